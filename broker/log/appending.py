"""
Records of a master behind the end of its log: the place in their queue, their bytes, their producers' numbers.

Here: all of an append that is about one segment and the index. Not here: room for it, and the end of the log
(``commit_log``), bytes of a record (``record``).

Rule: an append that fails has written nothing and taken no number.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollcall_ha.broker.core.producers import ProducerStamp
from rollcall_ha.broker.log.log_index import LogIndex
from rollcall_ha.broker.log.record import Draft, pack, pack_run
from rollcall_ha.broker.log.segment import LogSegment
from rollcall_ha.broker.protocol.record import RecordError
from rollcall_ha.broker.protocol.send import BatchItem
from rollcall_ha.epoch.model import LogOffset


def place_record(
    segment: LogSegment,
    index: LogIndex,
    draft: Draft,
    offset: LogOffset,
    *,
    total_bytes: int,
    stored_at_ms: int,
    store_host: bytes,
) -> int:
    """Write a record of ``total_bytes`` at ``offset`` of the log; returns its queue offset. Raises ``RecordError``."""
    queue_offset = index.queues.take(draft.topic, draft.queue_id) if draft.is_queued else 0
    try:
        pack(
            segment.view,
            offset - segment.base,
            draft,
            total_bytes=total_bytes,
            physical_offset=offset,
            queue_offset=queue_offset,
            stored_at_ms=stored_at_ms,
            store_host=store_host,
        )
    except RecordError:
        # The head of the record may be in the map already. A shorter record that comes next would end in its middle,
        # and its rest would be read as the next record.
        segment.zero(offset - segment.base, offset - segment.base + total_bytes)
        if draft.is_queued:
            index.queues.give_back(draft.topic, draft.queue_id, queue_offset)
        raise
    # Only now: noted before a pack that fails, sequence 7 would be answered as a duplicate when it is sent again, and
    # never be in the log.
    if draft.stamp is not None:
        index.producers.fold(draft.stamp, offset)
    return queue_offset


def place_run(
    segment: LogSegment,
    index: LogIndex,
    draft: Draft,
    messages: Sequence[BatchItem],
    offset: LogOffset,
    *,
    stamp: ProducerStamp | None,
    stored_at_ms: int,
    store_host: bytes,
) -> tuple[list[int], int, LogOffset]:
    """
    Write the records of one queue from ``offset`` on: where each begins, the queue offset of the first, where the last
    one ends. Raises ``RecordError``.
    """
    queue_offset = index.queues.take(draft.topic, draft.queue_id, len(messages))
    try:
        data, starts = pack_run(
            draft,
            messages,
            physical_offset=offset,
            queue_offset=queue_offset,
            stored_at_ms=stored_at_ms,
            store_host=store_host,
        )
    except RecordError:
        index.queues.give_back(draft.topic, draft.queue_id, queue_offset)
        raise
    segment.view[offset - segment.base : offset - segment.base + len(data)] = data
    if stamp is not None:
        index.producers.fold_run(stamp, starts)
    return starts, queue_offset, LogOffset(offset + len(data))
