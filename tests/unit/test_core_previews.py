"""Elections by rank and expectation, and what a preview assumes."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    Barrier,
    ElectMaster,
    ElectUnclean,
)
from rollcall_ha.controller.contract.ids import (
    BrokerId,
)
from rollcall_ha.controller.contract.replies import Done, Elected, Refused, Registered
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.preview import preview
from rollcall_ha.controller.core.ranking import elect_again
from rollcall_ha.controller.core.snapshot import encode_state
from tests.support.core_builders import SET_A, SET_B, Fleet, ids, positions
from tests.support.core_fleets import (
    refusal_of,
)

# --- elections, previews ---------------------------------------------------------------------------------------------


def test_s47_ties_are_decided_by_zone_priority_data_then_id() -> None:
    """And the reason names the part that decided, with both values."""
    fleet = Fleet()
    for broker_id, zone, priority in ((1, "a", 10), (2, "b", 5), (3, "a", 20), (4, "a", 20)):
        fleet.grant(f"code-{broker_id}")
        fleet.do(fleet.registration(broker_id, zone=zone, priority=priority))
    fleet.elect(to=1)
    fleet.silence(1)

    elected = fleet.want(fleet.elect(evidence=fleet.evidence({3: positions(10), 4: positions(10)})), Elected)

    assert {c.broker_id: c.reason for c in elected.verdict.candidates} == {
        3: "in SyncStateSet, alive, equal otherwise, smallest id: 3 before 4",
        4: "in SyncStateSet, alive; replica 3 is before it: equal otherwise, smallest id: 3 before 4",
        2: "in SyncStateSet, alive; replica 3 is before it: in zone 'a' of the last master, before 'b'",
        1: "silent (timeout)",
    }
    assert elect_again(elected.verdict) is not None


def test_s46_who_is_not_ready_or_not_heard_is_not_elected() -> None:
    """With the reason."""
    fleet = Fleet().serving()
    fleet.silence(1)
    evidence = fleet.evidence(unready=(2,))
    reply = fleet.want(fleet.elect(to=2, evidence=evidence), Refused)
    assert reply.code is RefusalCode.NOT_ELIGIBLE
    assert "not ready" in reply.reason
    elected = fleet.want(fleet.elect(evidence=fleet.evidence(unheard=(2,))), Elected)
    assert (elected.verdict.winner, elected.verdict.candidates[-1].reason) == (
        3,
        "not heard by the leading controller yet",
    )


def test_s69_expectations_are_checked_first() -> None:
    """--expect-master and --expect-epoch."""
    fleet = Fleet().serving()
    assert refusal_of(fleet.elect(to=2, master=3)) is RefusalCode.EXPECTATION_FAILED
    assert refusal_of(fleet.elect(to=2, epoch=7)) is RefusalCode.EXPECTATION_FAILED
    assert refusal_of(fleet.elect(to=9)) is RefusalCode.UNKNOWN_REPLICA
    assert refusal_of(fleet.elect(to=1)) is RefusalCode.MASTER_STILL_EXISTS
    command = ElectMaster(set_key=SET_B)
    assert refusal_of(fleet.do(command, evidence=fleet.evidence())) is RefusalCode.SET_NOT_FOUND


def test_s72_unclean_needs_the_stated_loss_to_be_accepted() -> None:
    """Known confirm 1000, the winner ends at 800."""
    fleet = Fleet().serving()
    fleet.do(fleet.alter(1))
    fleet.silence(1)
    evidence = fleet.evidence({1: positions(1200, confirm=1000), 2: positions(800), 3: positions(700)})

    refused = fleet.want(fleet.elect_unclean(199, evidence=evidence), Refused)
    assert (refused.code, refused.current) == (RefusalCode.NOT_CONFIRMED, "200")
    elected = fleet.want(fleet.elect_unclean(200, evidence=evidence), Elected)

    assert (elected.verdict.kind, elected.verdict.estimated_loss_bytes) == (ElectionKind.UNCLEAN, 200)
    assert fleet.set.sync_state_set == ids(2)


def test_the_unclean_verb_stays_clean_if_it_can() -> None:
    """A member that is intact goes first; nothing is lost; a set without a past is bootstrapped instead."""
    fleet = Fleet().serving()
    fleet.silence(1)
    elected = fleet.want(fleet.elect_unclean(0), Elected)
    assert (elected.verdict.kind, fleet.set.sync_state_set) == (ElectionKind.FAILOVER, ids(2, 3))
    fleet.silence(3)
    late = fleet.operation(replace(_unclean(), expected_epoch=fleet.set.master_epoch), evidence=fleet.evidence())
    assert isinstance(fleet.apply([late]).replies[0], Elected)
    young = Fleet().joined(1)
    assert refusal_of(young.elect_unclean(0)) is RefusalCode.INVALID_REQUEST
    dead = Fleet().serving()
    for broker_id in (1, 2, 3):
        dead.silence(broker_id)
    assert refusal_of(dead.elect_unclean(10**9)) is RefusalCode.NO_ELIGIBLE_REPLICA


def _unclean() -> ElectUnclean:
    return ElectUnclean(set_key=SET_A, accepted_loss_bytes=0)


def test_s68_a_preview_assumes_that_the_living_master_is_lost() -> None:
    """Nothing changes; the master is excluded with that reason; the set is the one after its loss."""
    fleet = Fleet().serving()
    before = list(encode_state(fleet.state))
    for command in (ElectMaster(set_key=SET_A), _unclean()):
        reply = fleet.want(preview(fleet.state, fleet.operation(command, evidence=fleet.evidence())), Elected)

        assert reply.verdict.winner == 2
        assert reply.verdict.sync_state_set == ids(2, 3)
        assert reply.verdict.candidates[-1].reason == "current master (preview assumes it is lost)"
        assert reply.view.master == 1
    assert list(encode_state(fleet.state)) == before
    designated = fleet.operation(ElectMaster(set_key=SET_A, designated=BrokerId(1)), evidence=fleet.evidence())
    assert refusal_of(preview(fleet.state, designated)) is RefusalCode.MASTER_STILL_EXISTS
    assert isinstance(preview(fleet.state, fleet.operation(Barrier())), Done)
    new = fleet.registration(1)
    assert isinstance(preview(fleet.state, fleet.operation(new)), Registered)
