"""Laws of epoch histories: the cut point against a byte-by-byte comparison, and the codec against itself."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollcall_ha.epoch.codec import EpochFileCorrupt, decode_history, encode_history
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import LogOffset
from tests.support.ha_logs import entry

steps = st.lists(st.integers(min_value=0, max_value=12), max_size=5)


def grow(epochs: EpochHistory, end: int, lengths: list[int], numbers: list[int]) -> tuple[EpochHistory, int]:
    """Reigns one after the other; length 0 is a master that wrote nothing."""
    for number, length in zip(numbers, lengths, strict=True):
        epochs = epochs.appended(entry(number, end))
        end += length
    return epochs, end


def labels(epochs: EpochHistory, end: int) -> list[tuple[int, int]]:
    """For each byte the (epoch, start) that wrote it: equal labels at one offset mean equal bytes."""
    found = [epochs.find_by_offset(LogOffset(offset)) for offset in range(end)]
    return [(item.epoch, item.start_offset) for item in found if item]


@pytest.mark.slow
@given(steps, steps, steps, st.data())
def test_the_cut_point_is_where_two_forks_of_a_log_begin_to_differ(
    common: list[int], mine: list[int], theirs: list[int], data: st.DataObject
) -> None:
    """Whatever reigns two replicas went through separately: exactly the equal prefix is kept."""
    epochs, end = grow(EpochHistory(), 0, [3, *common], list(range(len(common) + 1)))
    numbers = list(range(10, 10 + len(mine) + len(theirs)))
    chosen = data.draw(st.permutations(numbers))
    own, own_end = grow(epochs, end, mine, sorted(chosen[: len(mine)]))
    other, other_end = grow(epochs, end, theirs, sorted(chosen[len(mine) :]))
    lost = data.draw(st.integers(min_value=0, max_value=own_end))
    own_end -= lost
    own = own.repaired(LogOffset(own_end))

    left, right = labels(own, own_end), labels(other, other_end)
    dumb = 0
    while dumb < min(len(left), len(right)) and left[dumb] == right[dumb]:
        dumb += 1
    point = own.consistent_point(LogOffset(own_end), other, LogOffset(other_end))
    assert point == dumb
    assert point == other.consistent_point(LogOffset(other_end), own, LogOffset(own_end))


@given(steps)
def test_the_epoch_file_reads_back_as_it_was_written(lengths: list[int]) -> None:
    epochs, _ = grow(EpochHistory(), 7, lengths, list(range(2, 2 + 3 * len(lengths), 3)))
    assert decode_history(encode_history(epochs)) == epochs


@given(steps, st.data())
def test_a_torn_or_changed_epoch_file_is_never_read_as_something_else(lengths: list[int], data: st.DataObject) -> None:
    """S28: cut anywhere or with one byte changed, it is refused, or it still says the same."""
    epochs, _ = grow(EpochHistory(), 7, [1, *lengths], list(range(2, 3 + len(lengths))))
    whole = encode_history(epochs)
    at = data.draw(st.integers(min_value=0, max_value=len(whole) - 1))
    changed = bytearray(whole)
    changed[at] = data.draw(st.integers(min_value=0, max_value=255))
    for damaged in (whole[:at], bytes(changed)):
        try:
            assert decode_history(damaged) == epochs
        except EpochFileCorrupt:
            continue


@given(st.binary(max_size=200))
def test_any_bytes_are_a_history_or_corrupt(data: bytes) -> None:
    with contextlib.suppress(EpochFileCorrupt):
        decode_history(data)
