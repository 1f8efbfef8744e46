"""The plan for a slave's log at the handshake: keep, cut, full copy, or stop and call for help."""

from __future__ import annotations

from rollcall_ha.broker.core.phases import cut_range, outlived_range
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import NO_EPOCH, LogOffset, MasterEpoch
from rollcall_ha.ha.truncation import Cut, FullResync, Isolate, Keep, LogExtent, TruncationPlan, plan_truncation
from tests.support.ha_logs import history


def extent(epochs: EpochHistory, end: int, *, begin: int = 0) -> LogExtent:
    return LogExtent(history=epochs, min_offset=LogOffset(begin), max_offset=LogOffset(end))


def plan(
    own: LogExtent, master: LogExtent, *, confirm: int = 0, unclean: int = NO_EPOCH, misaligned: int = -1
) -> TruncationPlan:
    return plan_truncation(
        own,
        LogOffset(confirm),
        master,
        unclean_epoch=MasterEpoch(unclean),
        is_record_boundary=lambda offset: offset != misaligned,
    )


def test_a_log_that_is_a_prefix_is_kept() -> None:
    assert plan(extent(history((1, 0)), 500), extent(history((1, 0), (2, 900)), 1000)) == Keep(point=LogOffset(500))


def test_a_longer_tail_of_an_old_epoch_is_cut_with_its_entries() -> None:
    own = extent(history((1, 0), (5, 1000)), 1100)
    expected = Cut(point=LogOffset(1000), history=history((1, 0)), cut_bytes=100)
    assert plan(own, extent(history((1, 0), (6, 1000)), 1080), confirm=1000) == expected


def test_an_epoch_without_bytes_goes_although_nothing_is_cut() -> None:
    """S24: else the next byte would stay under the epoch that nobody wrote in."""
    own = extent(history((1, 0), (2, 1000)), 1000)
    expected = Cut(point=LogOffset(1000), history=history((1, 0)), cut_bytes=0)
    assert plan(own, extent(history((1, 0), (3, 1000)), 1080)) == expected


def test_no_common_epoch_is_an_announced_full_copy() -> None:
    """S29: never a silent cut to zero."""
    result = plan(extent(history((1, 0)), 500), extent(history((2, 0)), 900))
    assert isinstance(result, FullResync)
    assert (result.start_offset, result.set_aside_bytes) == (0, 500)
    assert "no epoch in common" in result.reason


def test_a_log_without_any_history_is_not_trusted() -> None:
    """W18: the reference keeps such bytes and acks them."""
    assert isinstance(plan(extent(EpochHistory(), 500), extent(history((2, 0)), 900)), FullResync)


def test_a_slave_that_is_older_than_everything_the_master_kept_copies_from_there() -> None:
    """L4, W18: retention is not a contradiction, so no alarm either."""
    own = extent(history((1, 0)), 500)
    result = plan(own, extent(history((3, 900)), 2000, begin=1000), confirm=500)
    assert isinstance(result, FullResync)
    assert result.start_offset == 1000


def test_a_common_point_that_the_master_deleted_is_a_full_copy() -> None:
    own = extent(history((1, 0), (2, 800)), 1500)
    result = plan(own, extent(history((1, 0), (3, 800)), 2000, begin=1000), confirm=800)
    assert isinstance(result, FullResync)


def test_a_cut_inside_a_record_is_a_full_copy() -> None:
    own, master = extent(history((1, 0)), 500), extent(history((1, 0), (2, 400)), 900)
    result = plan(own, master, misaligned=400)
    assert isinstance(result, FullResync)
    assert "400, which is inside a record" in result.reason


def test_a_cut_below_the_own_confirm_isolates() -> None:
    """D10, R26: an alarm instead of a cut."""
    own, master = extent(history((1, 0), (2, 400)), 500), extent(history((1, 0), (3, 300)), 900)
    result = plan(own, master, confirm=301)
    assert isinstance(result, Isolate)
    assert (result.point, result.confirm_offset) == (300, 301)
    assert isinstance(plan(own, master, confirm=300), Cut)
    assert isinstance(plan(own, extent(history((3, 0)), 900), confirm=1), Isolate)


def test_an_unclean_election_after_the_common_epoch_explains_the_cut() -> None:
    """R26: only one that came later than what both have."""
    own, master = extent(history((2, 0), (3, 400)), 500), extent(history((2, 0), (4, 300)), 900)
    assert isinstance(plan(own, master, confirm=450, unclean=4), Cut)
    assert isinstance(plan(own, master, confirm=450, unclean=2), Isolate)


def test_an_empty_log_begins_where_the_master_s_does() -> None:
    """Nothing to lose, so no question of confirm; entries without bytes go."""
    master = extent(history((3, 900)), 2000, begin=1000)
    assert plan(extent(EpochHistory(), 1000, begin=1000), master) == Keep(point=LogOffset(1000))
    assert plan(extent(history((2, 1000)), 1000, begin=1000), master) == Cut(
        point=LogOffset(1000), history=EpochHistory(), cut_bytes=0
    )
    result = plan(extent(EpochHistory(), 0), master, confirm=700)
    assert isinstance(result, FullResync)
    assert (result.start_offset, result.set_aside_bytes) == (1000, 0)


def test_a_log_that_the_master_has_outlived_by_age_refutes_nothing() -> None:
    """
    R31: the old master comes back after four days. Told as a cut from 0 on, all that it had acknowledged would be lost.
    """
    outlived = plan(extent(history((1, 0)), 900), extent(history((2, 900)), 5000, begin=1000), confirm=900)
    assert isinstance(outlived, FullResync)
    assert (outlived.start_offset, outlived.is_whole, cut_range(outlived)) == (1000, True, (None, None))

    assert outlived.known_to == 900, "all of it was confirmed, so the master had it"
    assert outlived_range(outlived) == {"outlived_from": 0, "outlived_to": 900}, "it was nowhere on record"

    foreign = plan(extent(history((1, 0)), 900, begin=500), extent(history((2, 400)), 5000, begin=400))
    assert isinstance(foreign, FullResync)
    assert (cut_range(foreign), outlived_range(foreign)) == ((500, 900), {})


def test_an_outlived_log_may_end_with_bytes_that_nobody_else_had() -> None:
    """Behind what both histories have in common, and behind its confirm: that alone is worth a quarantine."""
    own, master = extent(history((1, 0), (2, 400)), 900), extent(history((3, 700)), 5000, begin=1000)
    for confirm, unclean, known_to in ((600, NO_EPOCH, 600), (600, 3, 0), (5_000, NO_EPOCH, 900)):
        found = plan(own, master, confirm=confirm, unclean=unclean)
        assert isinstance(found, FullResync)
        assert (found.is_outlived, found.known_to) == (True, known_to)
    agreed = plan(own, extent(history((2, 400), (3, 2000)), 5000, begin=1000), unclean=3)
    assert isinstance(agreed, FullResync)
    assert agreed.known_to == 900


def test_a_log_that_begins_later_than_the_master_s_goes_on() -> None:
    """Its disk was fuller: it has what it has to have, and nothing is copied twice."""
    own = extent(history((2, 800)), 1500, begin=1000)
    assert plan(own, extent(history((1, 0), (2, 800)), 2000), confirm=1500) == Keep(point=LogOffset(1500))
