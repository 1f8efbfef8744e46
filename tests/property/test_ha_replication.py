"""Two link machines and three logs: whatever happens, a slave ends up as a byte-equal prefix with the same epochs."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcall_ha.controller.contract.ids import LogOffset
from rollcall_ha.epoch.model import LogOffset as Offset
from tests.support.ha_logs import MemoryLog
from tests.support.ha_pair import Pair

reigns = st.lists(
    st.tuples(
        st.integers(min_value=0, max_value=2),  # who becomes master
        st.integers(min_value=0, max_value=40),  # bytes it writes
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 60)), max_size=4),  # who follows, for how many steps
        st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=1),  # who loses how much of its tail
    ),
    max_size=7,
)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(reigns, st.randoms(use_true_random=False))
def test_replicas_agree_after_any_reigns_and_cuts(history: list[tuple[int, int, list, list]], random: object) -> None:  # type: ignore[type-arg]
    """D1, D2, D3: links break anywhere, in any chunking; tails get lost; empty epochs come and go."""
    logs = [MemoryLog(segment=32) for _ in range(3)]
    byte = 0
    for epoch, (master, length, followers, losses) in enumerate(history, start=1):
        log = logs[master]
        log.begin_epoch(epoch)
        for _ in range(length):
            byte += 1
            log.append(bytes([byte % 256]))
        for generation, (follower, steps) in enumerate(followers, start=1):
            if follower != master:
                pair = Pair(log, logs[follower], epoch=epoch, generation=generation)
                pair.chunk = lambda available: random.randint(1, available)  # type: ignore[attr-defined]
                pair.open().steps(steps)
                assert pair.closes == []
                for ack in pair.acks:
                    assert logs[follower].max_offset >= ack.offset
                    assert logs[follower].data[: ack.offset] == log.data[: ack.offset]
        for loser, lost in losses:
            victim = logs[loser]
            if lost:
                del victim.data[max(0, len(victim.data) - lost) :]
            victim.epochs = victim.epochs.repaired(victim.max_offset)
    last = max(range(3), key=lambda index: (logs[index].history.last_epoch, logs[index].max_offset))
    logs[last].begin_epoch(100)
    logs[last].append(b"end")
    for index in range(3):
        if index != last:
            pair = Pair(logs[last], logs[index], epoch=100, confirm=0).open().run()
            assert pair.is_up
            assert logs[index].data == logs[last].data
            assert logs[index].history == logs[last].history
            assert pair.acks[-1].offset == logs[last].max_offset


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.integers(2, 9), st.lists(st.integers(min_value=0, max_value=30), min_size=1, max_size=4))
def test_chunking_changes_nothing_of_what_a_slave_ends_up_with(chunk: int, lengths: list[int]) -> None:
    master = MemoryLog()
    for epoch, length in enumerate(lengths, start=1):
        master.begin_epoch(epoch)
        master.append(bytes(range(length)))
    results = []
    for size in (1, chunk, 10_000):
        pair = Pair(master, MemoryLog(), epoch=len(lengths))
        pair.chunk = lambda available, size=size: min(size, available)  # type: ignore[misc]
        pair.open().run()
        results.append((bytes(pair.slave_log.data), pair.slave_log.history, pair.acks[-1].offset))
    assert results[0] == results[1] == results[2]
    kept = master.history.truncated_suffix(Offset(master.max_offset))
    assert results[0] == (bytes(master.data), kept, LogOffset(len(master.data)))
