"""D13: whatever a power cut leaves, what is recovered is a prefix, and the folds are those of that prefix."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcall_ha.broker.core.producers import ProducerStamp
from rollcall_ha.broker.log.checkpoint import INDEX_FILE_NAME
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.values import CutReason
from rollcall_ha.epoch.model import LogOffset
from tests.support.log_tools import append_all, crash, draft, log_bytes, never_synced, open_log, read_by_the_document

PAGE = 4096
MESSAGES = st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 2)), min_size=1, max_size=25)


def write(log: CommitLog, messages: list[tuple[int, int]]) -> list[int]:
    """Stamped messages over some queues; where each of them begins."""
    starts = []
    for sequence, (size, queue_id) in enumerate(messages):
        text = f"ROLLCALL_SEQ\x01{'ab' * 16}:0:{sequence}\x02"
        message = draft(b"b" * size, queue_id=queue_id, properties=text.encode())
        message.stamp = ProducerStamp(bytes.fromhex("ab" * 16), 0, sequence)
        starts.append(append_all(log, message)[0][0])
    return starts


def queue_ends(log: CommitLog) -> dict[int, int]:
    """Of the table and, independently, of the bytes."""
    ends: dict[int, int] = {}
    for record in read_by_the_document(log._files.log_folder):
        ends[record.queue_id] = record.queue_offset + 1
    return ends


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(MESSAGES, st.sets(st.integers(0, 12), max_size=4))
def test_after_lost_pages_the_log_is_a_prefix_and_can_go_on(messages: list[tuple[int, int]], lost: set[int]) -> None:
    """Any pages at all; then another crash without loss changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        log = never_synced(open_log(Path(folder)))
        write(log, messages)
        before = log_bytes(log)
        for page in lost:
            for segment in log._files.segments:
                at = page * PAGE - segment.base
                if 0 <= at < segment.size:
                    segment.zero(at, at + PAGE)
        crash(log)
        log = open_log(Path(folder))
        assert log_bytes(log) == before[: log.max_offset]
        ends = queue_ends(log)
        assert {queue_id: log.queues.max_offset(b"TopicA", queue_id) for queue_id in ends} == ends
        kept = len(read_by_the_document(log._files.log_folder))
        expected = {bytes.fromhex("ab" * 16): (0, 0, kept - 1)} if kept else {}
        assert log.producers.snapshot() == expected
        end = log.max_offset
        crash(log)
        log = open_log(Path(folder))
        assert log.max_offset == end
        assert append_all(log, draft())[0][0] >= end
        crash(log)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(MESSAGES, st.integers(0, 25), MESSAGES)
def test_a_log_that_was_cut_is_the_log_that_never_had_what_was_cut(
    messages: list[tuple[int, int]], kept: int, others: list[tuple[int, int]]
) -> None:
    """Bytes, queue offsets and producers, and whatever is appended afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        cut, plain = open_log(Path(folder) / "cut"), open_log(Path(folder) / "plain")
        starts = write(cut, messages)
        kept = min(kept, len(starts))
        write(plain, messages[:kept])
        if kept < len(starts):
            cut.cut(LogOffset(starts[kept]), CutReason.TRUNCATION)
            assert cut.producers.snapshot() == plain.producers.snapshot()
            assert list(cut.queues.rows()) == list(plain.queues.rows())
        for size, queue_id in others:
            message = draft(b"o" * size, queue_id=queue_id)
            assert append_all(cut, message)[0][1] == append_all(plain, message)[0][1]
        crash(cut)
        crash(plain)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=30),
    st.integers(0, 30),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=6),
)
def test_a_log_that_is_read_again_gives_the_offsets_that_were_answered(
    messages: list[tuple[int, int]], kept: int, others: list[tuple[int, int]]
) -> None:
    """A prepared record took a number on the master and none on a slave: after a failover it was answered twice."""
    with tempfile.TemporaryDirectory() as folder:
        log = open_log(Path(folder))
        starts = [append_transactional(log, bits, queue_id) for bits, queue_id in messages]
        if kept < len(starts):
            log.cut(LogOffset(starts[kept]), CutReason.TRUNCATION)
        answered = list(log.queues.rows())
        crash(log)
        (Path(folder) / INDEX_FILE_NAME).unlink(missing_ok=True)

        again = open_log(Path(folder))

        again.begin_run(stored_at_ms=1)
        again.end_run()
        found = list(again.queues.rows())
        ends = dict.fromkeys(range(3), 0)
        for bits, queue_id in [*messages[:kept], *others]:
            ends[queue_id] += bits in (0, 2)
        for bits, queue_id in others:
            append_transactional(again, bits, queue_id)
        told = {queue_id: again.queues.max_offset(b"TopicA", queue_id) for queue_id in ends}
        crash(again)
        assert (found, told) == (answered, ends)


def append_transactional(log: CommitLog, bits: int, queue_id: int) -> int:
    """Where a record with these transaction bits begins: none, prepared, commit, rollback."""
    message = draft(queue_id=queue_id)
    message.sys_flag = bits << 2
    return append_all(log, message)[0][0]
