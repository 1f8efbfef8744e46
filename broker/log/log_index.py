"""
The index of a log, built by reading it once: queue offsets, producers, and some record boundaries.

Rule 1: it is a pure function of the records below ``offset``. A master moves it with each append, a slave lets it
follow the copy (``extend``).
Rule 2: after a cut it equals the index of a log that never had the cut records: queue 3 whose records 5 and 6 are cut
gives the next message offset 5.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from rollcall_ha.broker.core.producers import ProducerStamp, ProducerTable, window_start
from rollcall_ha.broker.log.checkpoint import IndexSnapshot
from rollcall_ha.broker.log.queue_offsets import QueueOffsets
from rollcall_ha.broker.log.record import blank_bytes, index_fields, walk
from rollcall_ha.broker.log.segment import LogSegment
from rollcall_ha.broker.log.told_queues import TOPIC, find_part
from rollcall_ha.broker.protocol.stamp import StampError, find_stamp, stamp_lead
from rollcall_ha.epoch.model import LogOffset

BOUNDARY_STEP_BYTES = 256 * 1024
"""At most about this much is walked to find out whether a record starts somewhere."""


Indexed = tuple[int, bytes, int, int, bytes, bool]
"""Of a record: offset, topic, queue id, queue offset, properties, whether it has a place in its queue."""


class LogIndex:
    """Queue offsets, producers and boundaries of one log, up to ``offset``."""

    def __init__(self, start: LogOffset) -> None:
        """The index of an empty log that begins at ``start``."""
        self.queues = QueueOffsets()
        self.producers = ProducerTable()
        self.offset = start
        self._boundaries: list[int] = [start]

    @classmethod
    def of(cls, segments: Sequence[LogSegment], end: LogOffset, saved: IndexSnapshot | None) -> tuple[Self, LogOffset]:
        """The index of a log that ends at ``end``, and how much of it is from ``saved``. Raises ``RecordError``."""
        index = cls(LogOffset(segments[0].base if segments else 0))
        # A snapshot taken at 900 of a log that recovery ended at 800 counts records that are gone: the next message of
        # their queue would get an offset behind a hole. One from below the first byte belongs to an older log.
        is_usable = saved is not None and index.offset <= saved.offset <= end
        if saved is not None and is_usable:
            index.load(saved)
        index.extend(segments, end)
        if saved is not None and is_usable:
            index.rebuild_producers(segments)
        return index, saved.offset if saved is not None and is_usable else LogOffset(0)

    def note_boundary(self, offset: int) -> None:
        """A record starts at ``offset``; remembered if it is far enough from the last one that is."""
        if offset - self._boundaries[-1] >= BOUNDARY_STEP_BYTES:
            self._boundaries.append(offset)

    def boundary_at_or_below(self, offset: int) -> LogOffset:
        """The nearest remembered start of a record; the start of the log for an ``offset`` before it."""
        index = bisect_right(self._boundaries, offset) - 1
        return LogOffset(self._boundaries[max(index, 0)])

    def extend(self, segments: Sequence[LogSegment], end: LogOffset) -> None:
        """
        Take in the records of ``[offset, end)``, whole ones only.

        Raises:
            RecordError: something else lies there.
        """
        self.take_all(_indexed(segments, self.offset, end), end)

    def take_all(self, records: Iterable[Indexed], end: LogOffset) -> None:
        """All records of ``[offset, end)``, in order."""
        boundaries, fold, stamps = self._boundaries, self.queues.fold, _StampRun(self.producers)
        for offset, topic, queue_id, queue_offset, properties, is_queued in records:
            if offset - boundaries[-1] >= BOUNDARY_STEP_BYTES:
                boundaries.append(offset)
            if is_queued:
                fold(topic, queue_id, queue_offset)
            if topic == TOPIC:
                self._note_told(properties)
            stamps.note(properties, offset)
        stamps.end()
        self.offset = end
        self.producers.advance(end)

    def cut(self, segments: Sequence[LogSegment], end: LogOffset) -> None:
        """
        Undo everything at or above ``end``, a record boundary, while the bytes are still there (rule 2).

        Costs reading the cut records and, for the producers, the window below ``end``. Raises ``RecordError``.
        """
        if end >= self.offset:
            return
        lowest: dict[tuple[bytes, int], int] = {}
        for segment, at in _records(segments, end, self.offset):
            if blank_bytes(segment.view, at) is None:
                topic, queue_id, queue_offset, is_queued, _, _, _ = index_fields(segment.view, at)
                if is_queued:
                    lowest.setdefault((topic, queue_id), queue_offset)
        # The lowest cut offset of each queue is the next one again. Without this, consumers of a queue whose records 5
        # and 6 were cut would wait at 5 for ever, while the next message is 7.
        for (topic, queue_id), queue_offset in lowest.items():
            self.queues.give_back(topic, queue_id, queue_offset)
        del self._boundaries[max(bisect_right(self._boundaries, end), 1) :]
        self.offset = end
        # The table keeps counts, not records: it cannot take single ones back. Left as it was, a message that was cut
        # would be answered as a duplicate when its producer sends it again, and be lost (R18).
        self.rebuild_producers(segments)

    def rebuild_producers(self, segments: Sequence[LogSegment]) -> None:
        """Read the window that ends at ``offset``. Raises ``RecordError``."""
        self.producers.clear()
        start = self.boundary_at_or_below(window_start(self.offset))
        lowest, stamps = window_start(self.offset), _StampRun(self.producers)
        for segment, at in _records(segments, start, self.offset):
            if segment.base + at >= lowest and blank_bytes(segment.view, at) is None:
                stamps.note(index_fields(segment.view, at)[4], segment.base + at)
        stamps.end()
        self.producers.advance(self.offset)

    def saved(self) -> IndexSnapshot:
        """The value for ``load``. Producers are not in it: their window is read again."""
        return IndexSnapshot(offset=self.offset, queues=tuple(self.queues.rows()))

    def load(self, saved: IndexSnapshot) -> None:
        """Start from the index of an earlier process at ``saved.offset``, a record boundary."""
        self.queues.load(saved.queues)
        self.offset = saved.offset
        self.note_boundary(saved.offset)

    def trim(self, start: LogOffset) -> None:
        """The log begins at ``start`` now. Numbers of queues stay: the next offset of one without records is known."""
        del self._boundaries[: max(bisect_right(self._boundaries, start) - 1, 0)]
        self._boundaries[0] = max(self._boundaries[0], start)

    def _note_told(self, properties: bytes) -> None:
        part = find_part(properties)
        # Told of an older log than this one: records between may be gone here that moved a queue on.
        if part is not None and part.since >= self._boundaries[0]:
            for topic, queue_id, following in part.queues():
                self.queues.tell(topic, queue_id, following)


class _StampRun:
    """Stamps of records in order, folded by runs of one producer: most records of a batch differ by their number."""

    def __init__(self, producers: ProducerTable) -> None:
        self._producers = producers
        self._lead = b"\0"
        """The properties of the next record of the run begin so."""
        self._first: ProducerStamp | None = None
        self._next = 0
        self._offsets: list[int] = []

    def note(self, properties: bytes, offset: int) -> None:
        """Of the record at ``offset``."""
        if properties.startswith(self._lead):
            at = len(self._lead)
            number = properties[at : properties.find(b"\x02", at)]
            if number == b"%d" % self._next:
                self._next += 1
                self._offsets.append(offset)
                return
        try:
            found = find_stamp(properties)
        except StampError:
            # Another writer's property of that name. It protects nothing, but the record is in the log of every
            # replica: an error here would stop each of them at this byte.
            return
        if found is not None:
            self.end()
            self._first, self._lead, self._next = ProducerStamp(*found), stamp_lead(*found[:2]), found[2] + 1
            self._offsets = [offset]

    def end(self) -> None:
        """Fold what is not folded yet."""
        if self._first is not None:
            self._producers.fold_run(self._first, self._offsets)
            self._first, self._lead = None, b"\0"


def _indexed(segments: Sequence[LogSegment], start: int, end: int) -> Iterator[Indexed]:
    for segment, starts in _runs(segments, start, end):
        view, base = segment.view, segment.base
        # Padding at a segment's end, which it is the last of; read as a record it would be a queue of rubbish.
        if starts and blank_bytes(view, starts[-1]) is not None:
            starts.pop()
        for at in starts:
            topic, queue_id, queue_offset, is_queued, properties, _, _ = index_fields(view, at)
            yield base + at, topic, queue_id, queue_offset, properties, is_queued


def _records(segments: Sequence[LogSegment], start: int, end: int) -> Iterator[tuple[LogSegment, int]]:
    """Every whole record or blank of ``[start, end)`` as its segment and its place in it."""
    for segment, starts in _runs(segments, start, end):
        for at in starts:
            yield segment, at


def _runs(segments: Sequence[LogSegment], start: int, end: int) -> Iterator[tuple[LogSegment, list[int]]]:
    for segment in segments:
        if segment.end <= start or segment.base >= end:
            continue
        starts: list[int] = []
        walk(segment.view, max(start - segment.base, 0), min(end - segment.base, segment.size), starts)
        yield segment, starts
