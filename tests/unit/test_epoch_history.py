"""The epoch history as a value: growth, cutting, repair, and the test vectors of the reference's weak spots."""

from __future__ import annotations

import pytest

from rollcall_ha.epoch.history import EpochHistory, EpochOrderError
from rollcall_ha.epoch.model import NO_EPOCH, LogOffset, MasterEpoch
from tests.support.ha_logs import entry, history


def test_an_empty_last_epoch_is_replaced_by_the_next_one() -> None:
    """W4, S24: the reference refuses the entry, and new bytes end up under the old epoch."""
    grown = history((1, 0), (5, 1000)).appended(entry(6, 1000))
    assert grown == history((1, 0), (6, 1000))


@pytest.mark.parametrize(("epoch", "start"), [(5, 2000), (4, 2000), (6, 999)])
def test_an_entry_that_does_not_grow_is_refused(epoch: int, start: int) -> None:
    """An epoch is entered once (W3) and never starts before the last one did (D1)."""
    with pytest.raises(EpochOrderError, match="does not grow"):
        history((1, 0), (5, 1000)).appended(entry(epoch, start))


@pytest.mark.parametrize("pairs", [((2, 0), (1, 10)), ((1, 0), (1, 10)), ((1, 10), (2, 10)), ((-1, 0),), ((1, -1),)])
def test_a_history_that_does_not_grow_cannot_be_made(pairs: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(EpochOrderError):
        history(*pairs)


def test_lookups() -> None:
    """Before the first start there is no epoch; the last one has no end of its own."""
    epochs = history((1, 100), (3, 200))
    assert (epochs.last, epochs.last_epoch) == (entry(3, 200), 3)
    assert epochs.find_by_offset(LogOffset(99)) is None
    assert epochs.find_by_offset(LogOffset(199)) == entry(1, 100)
    assert epochs.find_by_offset(LogOffset(10**9)) == entry(3, 200)
    assert epochs.next(MasterEpoch(1)) == epochs.next(MasterEpoch(2)) == entry(3, 200)
    assert epochs.next(MasterEpoch(3)) is None
    assert epochs.get(MasterEpoch(2)) is None
    assert epochs.end_of(MasterEpoch(1), LogOffset(500)) == 200
    assert epochs.end_of(MasterEpoch(3), LogOffset(500)) == 500
    assert EpochHistory().last_epoch == NO_EPOCH
    assert EpochHistory().find_by_offset(LogOffset(0)) is None


def test_a_cut_drops_the_entries_behind_it() -> None:
    """An entry that starts at the cut lost its bytes, too; an emptied history is a value like any other."""
    assert history((1, 0), (2, 100)).truncated_suffix(LogOffset(100)) == history((1, 0))
    assert history((1, 0)).truncated_suffix(LogOffset(0)) == EpochHistory()


def test_repair_drops_entries_beyond_the_end_only() -> None:
    """R9, W5: an entry at the end is an epoch that has no byte yet, not damage."""
    assert history((1, 0), (2, 1000)).repaired(LogOffset(900)) == history((1, 0))
    assert history((1, 0), (2, 1000)).repaired(LogOffset(1000)) == history((1, 0), (2, 1000))


@pytest.mark.parametrize(
    ("own", "own_end", "other", "other_end", "point"),
    [
        (history((1, 100), (2, 300), (3, 500)), 600, history((1, 100), (2, 300), (3, 450)), 600, 450),
        (history((1, 0), (2, 1000)), 900, history((1, 0), (2, 1000)), 1500, 900),  # W5: never beyond the own end
        (history((1, 0), (2, 100)), 500, history((1, 0), (2, 500)), 600, 100),  # W3: why a start must never change
        (history((1, 0)), 500, history((1, 500)), 600, None),
        (history((1, 0), (5, 1000)), 1100, history((1, 0), (6, 1000)), 1080, 1000),  # W4 as it should be
        (history((1, 0)), 800, history((1, 0)), 500, 500),
        (history((1, 0)), 500, history((1, 0)), 800, 500),
        (EpochHistory(), 10, history((1, 0)), 800, None),
    ],
)
def test_consistent_points_of_the_fact_sheet(
    own: EpochHistory, own_end: int, other: EpochHistory, other_end: int, point: int | None
) -> None:
    assert own.consistent_point(LogOffset(own_end), other, LogOffset(other_end)) == point
