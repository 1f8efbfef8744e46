"""R26: the controllers say which epoch began uncleanly, so that members that return are cut and not isolated."""

from __future__ import annotations

from rollcall_ha.controller.contract.ids import LogOffset, MasterEpoch
from rollcall_ha.controller.contract.replies import Elected
from rollcall_ha.controller.core.snapshot import decode_state, encode_state
from rollcall_ha.controller.core.views import view_of
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import NO_EPOCH, EpochEntry
from rollcall_ha.ha.truncation import Cut, Isolate, LogExtent, plan_truncation
from tests.support.core_builders import Fleet, ids, positions


def unclean_epoch(fleet: Fleet) -> MasterEpoch:
    view = view_of(fleet.state, fleet.key)
    assert view is not None
    return view.unclean_epoch


def lost_to_three() -> Fleet:
    """{1, 2} acknowledged up to 1000 and are gone; replica 3 with 400 is elected uncleanly in epoch 2."""
    fleet = Fleet().serving()
    fleet.do(fleet.alter(1, 2))
    fleet.silence(1)
    fleet.silence(2)
    assert unclean_epoch(fleet) == NO_EPOCH
    ends = {1: positions(1000, confirm=1000), 2: positions(1000, confirm=1000), 3: positions(400, confirm=400)}
    fleet.want(fleet.elect_unclean(600, 3, evidence=fleet.evidence(ends)), Elected)
    return fleet


def history(*entries: tuple[int, int]) -> EpochHistory:
    return EpochHistory(EpochEntry(epoch=MasterEpoch(e), start_offset=LogOffset(at)) for e, at in entries)


def extent(end: int, *entries: tuple[int, int]) -> LogExtent:
    return LogExtent(history=history(*entries), min_offset=LogOffset(0), max_offset=LogOffset(end))


def test_the_view_names_the_unclean_epoch_and_the_old_master_is_cut_by_it() -> None:
    """It was never named: after an unclean election every member that returned isolated itself for ever."""
    fleet = lost_to_three()

    plans = [
        plan_truncation(
            extent(1000, (1, 0)),
            LogOffset(1000),
            extent(500, (1, 0), (2, 400)),
            unclean_epoch=epoch,
            is_record_boundary=lambda _offset: True,
        )
        for epoch in (unclean_epoch(fleet), NO_EPOCH)
    ]

    assert unclean_epoch(fleet) == 2
    assert isinstance(plans[0], Cut)
    assert plans[0].point == 400
    assert isinstance(plans[1], Isolate)


def test_a_clean_election_after_it_forgets_nothing_and_a_snapshot_neither() -> None:
    """Replica 1 may return epochs later: epoch 2 still explains why it is cut."""
    fleet = lost_to_three()
    fleet.enter(400)
    fleet.do(fleet.registration(2, incarnation="i2.2", holds=positions(400, epoch=2)))
    fleet.do(fleet.alter(2, 3))
    fleet.silence(3)

    elected = fleet.want(fleet.elect(), Elected)

    assert elected.view.master_epoch == 3
    assert elected.view.sync_state_set == ids(2)
    assert elected.view.unclean_epoch == 2
    again = decode_state(encode_state(fleet.state))
    restored = view_of(again, fleet.key)
    assert restored is not None
    assert restored.unclean_epoch == 2


def test_a_suspect_winner_makes_its_epoch_unclean() -> None:
    """The last member restarted without proof and is elected by the unclean verb, although it is a member."""
    fleet = Fleet().serving()
    fleet.do(fleet.alter(1))
    fleet.do(fleet.registration(1, incarnation="i1.2", boot="boot-2"))

    fleet.want(fleet.elect_unclean(1_000, 1), Elected)

    assert unclean_epoch(fleet) == fleet.set.master_epoch == 2
