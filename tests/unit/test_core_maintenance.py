"""Maintenance in the controllers' core: who is not elected, and which maintenances a failure budget does not allow."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    AnyCommand,
    BeginMaintenance,
    ElectMaster,
    EndMaintenance,
    OrderSwitchover,
    ReportDrained,
)
from rollcall_ha.controller.contract.events import (
    ElectionFailed,
    MaintenanceBegun,
    MaintenanceEnded,
    MasterElected,
    SwitchoverEnded,
)
from rollcall_ha.controller.contract.ids import AckMode, BrokerId
from rollcall_ha.controller.contract.labels import in_words
from rollcall_ha.controller.contract.replies import AnyReply, Condition, Done, Elected
from rollcall_ha.controller.contract.values import MaintenanceScope, SetConfiguration, SwitchoverEnd, host_of
from rollcall_ha.controller.core.invariants import check_transition
from rollcall_ha.controller.core.pauses import PAUSE_MS_MAX
from rollcall_ha.controller.core.snapshot import decode_state, encode_state
from rollcall_ha.controller.core.state import MAINTENANCES_MAX
from rollcall_ha.controller.core.views import failure_budget, view_of
from tests.support.core_builders import SET_A, SET_B, Fleet, positions, refusal

ALICE = "operator:alice"
LEADER = "controller:c1"
UNTIL_MS = 2_000_000


def of(broker_id: int) -> MaintenanceScope:
    """A replica of the set under test."""
    return MaintenanceScope(set_key=SET_A, broker_id=BrokerId(broker_id))


def ask(fleet: Fleet, command: AnyCommand, by: str = ALICE) -> AnyReply:
    """As an operator, or another caller."""
    needs_evidence = isinstance(command, ElectMaster | ReportDrained | OrderSwitchover)
    evidence = fleet.evidence() if needs_evidence else None
    return fleet.apply([fleet.operation(command, requested_by=by, evidence=evidence)]).replies[0]


def begin(
    fleet: Fleet,
    scope: MaintenanceScope,
    *,
    spends_last: bool = True,
    until_ms: int = UNTIL_MS,
    reason: str = "new disk",
) -> AnyReply:
    """For work on its disk."""
    command = BeginMaintenance(scope=scope, expires_at_ms=until_ms, spends_last=spends_last, reason=reason)
    return ask(fleet, command)


def budget(fleet: Fleet) -> int:
    """With every maintenance counted."""
    view = view_of(fleet.state, SET_A)
    assert view is not None
    away = [broker_id for broker_id in (1, 2, 3) if of(broker_id) in fleet.state.maintenances]
    return failure_budget(view, away=[BrokerId(one) for one in away])


@pytest.mark.parametrize("scope", [of(2), MaintenanceScope(host="10.0.0.2")])
def test_a_replica_in_maintenance_is_not_elected_and_the_record_says_why(scope: MaintenanceScope) -> None:
    fleet = Fleet().serving()
    assert begin(fleet, scope) == Done()
    assert fleet.event(MaintenanceBegun).scope == scope
    fleet.silence(1)

    elected = ask(fleet, ElectMaster(set_key=SET_A), LEADER)
    assert isinstance(elected, Elected)
    assert elected.verdict.winner == 3
    reasons = {one.broker_id: one.reason for one in elected.verdict.candidates}
    assert reasons[BrokerId(2)] == "in maintenance by operator:alice: new disk"
    assert fleet.set.sync_state_set == (2, 3)


def test_with_all_heirs_in_maintenance_the_set_waits_and_says_for_whom() -> None:
    fleet = Fleet().serving()
    begin(fleet, of(2))
    fleet.silence(3)
    fleet.silence(1)

    assert refusal(ask(fleet, ElectMaster(set_key=SET_A), LEADER)).code is RefusalCode.NO_ELIGIBLE_REPLICA
    assert any("in maintenance" in one.reason for one in fleet.event(ElectionFailed).verdict.candidates)
    view = view_of(fleet.state, SET_A)
    assert view is not None
    assert view.condition is Condition.NO_ELIGIBLE_REPLICA
    assert "2 in maintenance by operator:alice: new disk" in view.condition_reason


def test_a_persons_broker_1_became_the_name_of_another_machine_in_the_condition_of_a_set() -> None:
    fleet = Fleet().serving()
    begin(fleet, of(2), reason="as broker 1 before it")
    fleet.silence(3)
    fleet.silence(1)

    view = view_of(fleet.state, SET_A)
    assert view is not None
    assert "operator:alice: as broker 1 before it; 3 is silent" in in_words(view.condition_reason, {BrokerId(1): "x-3"})


def test_an_operators_word_elects_a_replica_in_maintenance() -> None:
    fleet = Fleet().serving()
    begin(fleet, of(2))
    fleet.silence(3)
    fleet.silence(1)

    assert refusal(ask(fleet, ElectMaster(set_key=SET_A))).code is RefusalCode.NO_ELIGIBLE_REPLICA
    assert isinstance(ask(fleet, ElectMaster(set_key=SET_A, to=BrokerId(2))), Elected)


def test_a_program_that_names_a_replica_in_maintenance_does_not_elect_it() -> None:
    fleet = Fleet().serving()
    begin(fleet, of(2))
    fleet.silence(1)

    asked = ask(fleet, ElectMaster(set_key=SET_A, to=BrokerId(2)), "broker@10.0.0.9:5")
    assert refusal(asked).code is RefusalCode.NOT_ELIGIBLE


def test_where_the_data_decides_a_shorter_log_does_not_win_over_one_in_maintenance() -> None:
    """Mode ``n`` releases by some members: with the longest set aside, what it alone has would be cut."""
    some = SetConfiguration(expected_replicas=3, ack_mode=AckMode.N)
    fleet = Fleet().joined(1, 2, 3, configuration=some)
    assert isinstance(fleet.elect(), Elected)
    fleet.enter(0)
    begin(fleet, of(2))
    fleet.silence(1)
    evidence = fleet.evidence({2: positions(900), 3: positions(500)})

    asked = fleet.operation(ElectMaster(set_key=SET_A), requested_by=LEADER, evidence=evidence)
    answer = refusal(fleet.apply([asked]).replies[0])
    assert answer.code is RefusalCode.NO_ELIGIBLE_REPLICA
    assert "replica 2 goes before it, and is in maintenance" in answer.reason


def test_the_last_failure_budget_is_spent_only_by_a_word_that_says_so() -> None:
    fleet = Fleet().serving()
    assert budget(fleet) == 1

    answer = refusal(begin(fleet, of(3), spends_last=False))
    assert (answer.code, answer.current, answer.requested) == (RefusalCode.NO_BUDGET, "1", "0")
    assert "may lose 1 more replicas; with 3 in maintenance: 0 more" in answer.reason
    assert "--spend-last" in answer.hint
    assert begin(fleet, of(3)) == Done()
    assert budget(fleet) == 0


@pytest.mark.parametrize("spends_last", [False, True])
def test_a_maintenance_that_would_stop_a_set_is_refused(spends_last: bool) -> None:
    fleet = Fleet().serving()
    begin(fleet, of(3))

    answer = refusal(begin(fleet, of(2), spends_last=spends_last))
    assert (answer.code, answer.requested) == (RefusalCode.NO_BUDGET, "-1")
    assert "--spend-last" not in answer.hint


def test_a_host_is_counted_with_all_of_its_replicas_and_one_that_is_gone_costs_nothing() -> None:
    fleet = Fleet().serving()
    fleet.silence(3)
    assert budget(fleet) == 0

    assert begin(fleet, MaintenanceScope(host="10.0.0.3"), spends_last=False) == Done()
    answer = refusal(begin(fleet, MaintenanceScope(host="10.0.0.2")))
    assert answer.code is RefusalCode.NO_BUDGET


def test_a_master_in_maintenance_reigns_on_and_gets_its_set_back_from_a_failed_switchover() -> None:
    fleet = Fleet().serving()
    begin(fleet, of(1))
    assert fleet.set.master == 1
    ask(fleet, OrderSwitchover(set_key=SET_A, to=BrokerId(2)))
    assert isinstance(ask(fleet, drained(fleet), "broker:1"), Elected)

    assert fleet.want(fleet.elect(master=2, epoch=2), Elected).verdict.winner == 1


def test_a_target_that_goes_into_maintenance_ends_its_switchover() -> None:
    fleet = Fleet().serving()
    ask(fleet, OrderSwitchover(set_key=SET_A, to=BrokerId(2)))
    begin(fleet, of(2))

    assert refusal(ask(fleet, drained(fleet), "broker:1")).code is RefusalCode.NOT_ELIGIBLE
    assert fleet.event(SwitchoverEnded).end is SwitchoverEnd.TARGET_LOST
    assert fleet.set.master == 1


def test_no_switchover_goes_to_a_replica_in_maintenance() -> None:
    fleet = Fleet().serving()
    begin(fleet, of(2))

    answer = refusal(ask(fleet, OrderSwitchover(set_key=SET_A, to=BrokerId(2))))
    assert answer.code is RefusalCode.NOT_ELIGIBLE
    assert ask(fleet, OrderSwitchover(set_key=SET_A)) == Done()
    order = fleet.set.pending_switchover
    assert order is not None
    assert order.target == 3


def drained(fleet: Fleet) -> ReportDrained:
    master, order = fleet.replica(1), fleet.set.pending_switchover
    assert master.incarnation is not None
    assert order is not None
    return ReportDrained(
        set_key=SET_A,
        broker_id=master.broker_id,
        incarnation=master.incarnation,
        master_epoch=fleet.set.master_epoch,
        drained_us=0,
        order=order.order,
    )


def test_a_leaders_end_of_a_maintenance_that_was_prolonged_meanwhile_ends_nothing() -> None:
    fleet = Fleet().serving()
    begin(fleet, of(2))
    begin(fleet, of(2), until_ms=3_000_000)

    assert ask(fleet, EndMaintenance(scope=of(2), expired_at_ms=UNTIL_MS), LEADER) == Done()
    assert fleet.events == []
    ask(fleet, EndMaintenance(scope=of(2), expired_at_ms=3_000_000), LEADER)
    assert fleet.event(MaintenanceEnded).is_expired
    assert fleet.state.maintenances == {}


def test_a_maintenance_of_nothing_is_refused() -> None:
    fleet = Fleet().serving()

    assert refusal(begin(fleet, MaintenanceScope(host="10.0.0.9"))).code is RefusalCode.UNKNOWN_REPLICA
    assert refusal(begin(fleet, of(7))).code is RefusalCode.UNKNOWN_REPLICA
    unknown = MaintenanceScope(set_key=SET_B, broker_id=BrokerId(1))
    assert refusal(begin(fleet, unknown)).code is RefusalCode.SET_NOT_FOUND
    both = replace(of(2), host="10.0.0.2")
    for wrong in (MaintenanceScope(), both, MaintenanceScope(set_key=SET_A)):
        assert refusal(begin(fleet, wrong)).code is RefusalCode.INVALID_ARGUMENT
    late = refusal(begin(fleet, of(2), until_ms=1_000_000 + PAUSE_MS_MAX * 2))
    assert (late.code, "the maintenance would end at" in late.reason) == (RefusalCode.INVALID_ARGUMENT, True)


def test_the_same_maintenance_again_changes_nothing_and_maintenances_are_bounded() -> None:
    fleet = Fleet().serving()
    begin(fleet, of(2))
    assert begin(fleet, of(2)) == Done()
    assert fleet.events == []
    one = fleet.state.maintenances[of(2)]
    many = {MaintenanceScope(host=f"h{number}"): one for number in range(MAINTENANCES_MAX)}
    fleet.state = replace(fleet.state, maintenances=many)

    answer = refusal(begin(fleet, of(3)))
    assert (answer.code, answer.current) == (RefusalCode.INVALID_REQUEST, str(MAINTENANCES_MAX))


def test_a_snapshot_keeps_maintenances() -> None:
    fleet = Fleet().serving()
    begin(fleet, of(2))
    fleet.silence(3)
    begin(fleet, MaintenanceScope(host="10.0.0.3"))

    assert list(decode_state(encode_state(fleet.state)).maintenances.items()) == list(fleet.state.maintenances.items())
    assert len(fleet.state.maintenances) == 2


def test_the_invariants_notice_an_election_in_maintenance() -> None:
    fleet = Fleet().serving()
    begin(fleet, of(2))
    fleet.silence(1)
    ask(fleet, ElectMaster(set_key=SET_A, to=BrokerId(2)))
    record = next(one for one in fleet.last.records if isinstance(one.event, MasterElected))

    assert not any("C14" in text for text in check_transition(fleet.state, fleet.state, [record]))
    forged = replace(record, requested_by=LEADER)
    assert any("C14" in text for text in check_transition(fleet.state, fleet.state, [forged]))


def test_the_host_of_an_address() -> None:
    assert (host_of("10.0.0.2:911"), host_of("[::1]:911"), host_of("db-7:911")) == ("10.0.0.2", "::1", "db-7")
