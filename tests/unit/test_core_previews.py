"""Elections by rank and expectation, and what a preview shows."""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    Barrier,
    CleanReplicas,
    ElectMaster,
    ElectUnclean,
)
from rollcall_ha.controller.contract.events import MasterElected
from rollcall_ha.controller.contract.ids import (
    BrokerId,
)
from rollcall_ha.controller.contract.replies import Done, Elected, Refused, Registered
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.preview import foresee, preview
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


def test_s68_a_preview_is_refused_where_the_command_would_be() -> None:
    """A preview assumed that the living master was lost, and promised an election that was then refused."""
    fleet = Fleet().serving()
    before = list(encode_state(fleet.state))
    commands = (
        ElectMaster(set_key=SET_A),
        _unclean(),
        CleanReplicas(set_key=SET_A, broker_ids=ids(1)),
        CleanReplicas(set_key=SET_A, broker_ids=ids(77)),
    )
    operations = [fleet.operation(command, evidence=fleet.evidence()) for command in commands]
    previews = [preview(fleet.state, operation) for operation in operations]

    assert list(encode_state(fleet.state)) == before
    assert [refusal_of(reply) for reply in previews] == [
        RefusalCode.MASTER_STILL_EXISTS,
        RefusalCode.MASTER_STILL_EXISTS,
        RefusalCode.MASTER_NOT_FENCED,
        RefusalCode.UNKNOWN_REPLICA,
    ]
    assert [fleet.apply([operation]).replies[0] for operation in operations] == previews


def test_s68_a_preview_shows_the_view_of_the_present_and_the_events_to_come() -> None:
    """Nothing changes; the verdict is that of the election, the view is not."""
    fleet = Fleet().serving()
    before = list(encode_state(fleet.state))
    designated = fleet.operation(ElectMaster(set_key=SET_A, to=BrokerId(2)), evidence=fleet.evidence())
    reply, events = foresee(fleet.state, designated)
    elected = fleet.want(reply, Elected)

    assert (elected.verdict.winner, elected.view.master) == (2, 1)
    assert [type(event) for event in events] == [MasterElected]
    assert list(encode_state(fleet.state)) == before
    assert isinstance(preview(fleet.state, fleet.operation(Barrier())), Done)
    assert isinstance(preview(fleet.state, fleet.operation(fleet.registration(1))), Registered)
