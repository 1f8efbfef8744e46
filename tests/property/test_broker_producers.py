"""The dedupe table is a fold of the log's window, against a model that keeps every record (R18)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollcall_ha.broker.core.producers import (
    BUCKET_BYTES,
    WINDOW_BYTES,
    ProducerStamp,
    ProducerTable,
    SequenceVerdict,
    window_start,
)
from rollcall_ha.epoch.model import LogOffset

STAMPS = st.builds(
    ProducerStamp,
    producer_id=st.sampled_from([b"a", b"b"]),
    producer_epoch=st.integers(0, 2),
    sequence=st.integers(0, 6),
)
STEPS = st.lists(
    st.tuples(STAMPS, st.sampled_from([100, BUCKET_BYTES // 2, BUCKET_BYTES, WINDOW_BYTES // 3])), max_size=60
)


def model_verdict(records: list[tuple[int, ProducerStamp]], end: int, stamp: ProducerStamp) -> SequenceVerdict:
    """The rules read aloud, over all records in the window."""
    mine = [
        each
        for offset, each in records
        if each.producer_id == stamp.producer_id and offset >= window_start(LogOffset(end))
    ]
    epoch = max((each.producer_epoch for each in mine), default=None)
    if epoch is None or stamp.producer_epoch > epoch:
        if stamp.sequence == 0:
            return SequenceVerdict.ACCEPT
        return SequenceVerdict.UNKNOWN if epoch is None else SequenceVerdict.GAP
    if stamp.producer_epoch < epoch:
        return SequenceVerdict.OLD
    known = [each.sequence for each in mine if each.producer_epoch == epoch]
    if stamp.sequence == max(known) + 1:
        return SequenceVerdict.ACCEPT
    if stamp.sequence > max(known):
        return SequenceVerdict.GAP
    return SequenceVerdict.DUPLICATE if stamp.sequence in known else SequenceVerdict.OLD


def play(steps: list[tuple[ProducerStamp, int]]) -> tuple[ProducerTable, list[tuple[int, ProducerStamp]], int]:
    """A log as a master writes it: only what is accepted is appended."""
    table, end = ProducerTable(), 0
    records: list[tuple[int, ProducerStamp]] = []
    for stamp, size in steps:
        verdict = table.judge(stamp)
        assert verdict is model_verdict(records, end, stamp)
        if verdict is SequenceVerdict.ACCEPT:
            table.fold(stamp, LogOffset(end))
            records.append((end, stamp))
            end += size
            table.advance(LogOffset(end))
    return table, records, end


@pytest.mark.slow
@given(STEPS)
def test_every_verdict_is_that_of_a_model_with_all_records(steps: list[tuple[ProducerStamp, int]]) -> None:
    """Checked at every step of any history."""
    play(steps)


@pytest.mark.slow
@given(STEPS)
def test_no_sequence_is_in_the_window_twice(steps: list[tuple[ProducerStamp, int]]) -> None:
    """What idempotence means."""
    _, records, end = play(steps)
    inside = [stamp for offset, stamp in records if offset >= window_start(LogOffset(end))]
    assert len(set(map(repr, inside))) == len(inside)


@given(
    st.lists(st.tuples(st.integers(1, 9), st.sampled_from([100, BUCKET_BYTES // 2, WINDOW_BYTES // 3])), max_size=20),
    st.integers(0, 12),
    st.integers(1, 12),
)
def test_a_run_is_folded_as_its_records_are_and_judged_by_what_is_there(
    runs: list[tuple[int, int]], asked: int, count: int
) -> None:
    """Also across the ends of buckets; of a run that was cut the first ones are known, and no more than there are."""
    whole, single, end, sequence = ProducerTable(), ProducerTable(), 0, 0
    for messages, size in runs:
        offsets = [end + number * size for number in range(messages)]
        whole.fold_run(ProducerStamp(b"a", 0, sequence), offsets)
        for number, offset in enumerate(offsets):
            single.fold(ProducerStamp(b"a", 0, sequence + number), LogOffset(offset))
        sequence, end = sequence + messages, end + messages * size
        for table in (whole, single):
            table.advance(LogOffset(end))
        assert whole.snapshot() == single.snapshot()
    stamp = ProducerStamp(b"a", 0, asked)
    if whole.judge(stamp) is SequenceVerdict.DUPLICATE:
        known = [whole.judge(ProducerStamp(b"a", 0, asked + number)) for number in range(count)]
        assert whole.known_of(stamp, count) == known.count(SequenceVerdict.DUPLICATE)


@pytest.mark.slow
@given(STEPS, st.integers(0, 60))
def test_a_table_rebuilt_from_the_window_is_the_table_that_was_folded_all_along(
    steps: list[tuple[ProducerStamp, int]], kept: int
) -> None:
    """Rule 1, at the end and after a cut anywhere."""
    _, records, end = play(steps)
    cut = records[kept][0] if kept < len(records) else end
    whole, window = ProducerTable(), ProducerTable()
    for offset, stamp in records:
        if offset < cut:
            whole.fold(stamp, LogOffset(offset))
            if offset >= window_start(LogOffset(cut)):
                window.fold(stamp, LogOffset(offset))
    whole.advance(LogOffset(cut))
    window.advance(LogOffset(cut))
    assert whole.snapshot() == window.snapshot()
