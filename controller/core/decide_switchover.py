"""
Deciding an order to switch over: whether it is taken, and the election that its master asks for (R29).

Here: ``decide_order``, ``decide_end``, ``decide_drained``. Not here: what ends an order otherwise
(``switchover_ends``), the way back to the old master (``decide_election``), draining (``broker.core.role``).

Rule 1: an order names master, epoch and target with their incarnations; the election is for them and for nobody else.
Rule 2: only the order that is under way elects, and only its master in the reign that drains for it asks for that.
Rule 3: an order that cannot be carried out ends with its reason; nobody else is elected in the target's place, and an
order whose target is elected is not withdrawn any more.
"""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    SWITCHOVER_DEADLINE_MS_MAX,
    SWITCHOVER_DEADLINE_MS_MIN,
    EndSwitchover,
    Operation,
    OrderSwitchover,
    ReportDrained,
)
from rollcall_ha.controller.contract.events import SwitchoverOrdered
from rollcall_ha.controller.contract.ids import BrokerId, ReplicaKind
from rollcall_ha.controller.contract.values import Evidence, SwitchoverEnd
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.decide_election import refuse_expectation, refuse_impossible_drain, succession
from rollcall_ha.controller.core.decision import Decision, Refusal, done, elected, find_replica, find_set
from rollcall_ha.controller.core.evidence import validate_evidence
from rollcall_ha.controller.core.mastership import refuse_other_mastership
from rollcall_ha.controller.core.pauses import is_by_word, pause_of
from rollcall_ha.controller.core.state import FleetState, ReplicaState, SetState, Switchover
from rollcall_ha.controller.core.switchover_ends import ended


def decide_order(fleet: FleetState, operation: Operation, command: OrderSwitchover) -> Decision:
    """Take an operator's order, if its target could be elected now."""
    set_state = find_set(fleet, command.set_key)
    refuse_expectation(set_state, command)
    _refuse_order(set_state, operation, command)
    # A leader that returns masters by policy proposed it, and before it in the log elections were paused.
    pause = pause_of(fleet, command.set_key)
    if pause is not None and not is_by_word(operation.requested_by):
        raise Refusal(
            RefusalCode.PAUSED,
            f"elections of {pause.set_key or 'the fleet'} are paused by {pause.paused_by}",
            "nothing to do: the policy orders again when the pause is over",
        )
    evidence = validate_evidence(set_state, operation)
    master = set_state.replica(set_state.master)
    assert master is not None
    assert master.incarnation is not None
    target = _target(fleet, set_state, operation, command, evidence)
    assert target.incarnation is not None
    lag_bytes = _lag_bytes(set_state, evidence, target.broker_id)
    # Draining means that the target confirms the last byte. Behind by a gigabyte, it would keep every sender waiting
    # until the deadline, and then the master would go on as if nothing had been.
    if lag_bytes > command.max_lag_bytes:
        raise Refusal(
            RefusalCode.NOT_ELIGIBLE,
            f"replica {target.broker_id} is {lag_bytes} bytes behind, at most {command.max_lag_bytes} are allowed",
            "wait until it has caught up, or choose another one with --to ID",
            requested=command.max_lag_bytes,
            current=lag_bytes,
        )
    return done(
        SwitchoverOrdered(
            order=operation.request_id,
            master=master.broker_id,
            master_incarnation=master.incarnation,
            master_epoch=set_state.master_epoch,
            target=target.broker_id,
            target_incarnation=target.incarnation,
            lag_bytes=lag_bytes,
            deadline_ms=command.deadline_ms,
            reason=command.reason,
        )
    )


def _refuse_order(set_state: SetState, operation: Operation, command: OrderSwitchover) -> None:
    if not SWITCHOVER_DEADLINE_MS_MIN <= command.deadline_ms <= SWITCHOVER_DEADLINE_MS_MAX:
        raise Refusal(
            RefusalCode.INVALID_ARGUMENT,
            f"the deadline is {command.deadline_ms} ms, "
            f"not {SWITCHOVER_DEADLINE_MS_MIN} to {SWITCHOVER_DEADLINE_MS_MAX}",
            "choose one with --deadline-ms",
        )
    # Two orders at once: the master drains for one target, and the other one is elected.
    pending = set_state.pending_switchover
    if pending is not None:
        raise Refusal(
            RefusalCode.SWITCHOVER_UNDER_WAY,
            f"{set_state.set_key} switches over from replica {pending.master} to {pending.target} already, "
            f"by order {pending.order}",
            "wait for its end; see it with: rollcall history",
            requested=operation.request_id,
            current=pending.order,
        )
    # One that is entering takes no sends yet, and one that is gone cannot drain: both are matters of an election.
    if set_state.recovery is not None or not set_state.is_master_alive or not set_state.has_entered:
        raise Refusal(
            RefusalCode.MASTER_NOT_AVAILABLE,
            f"{set_state.set_key} has no serving master that could hand over",
            "wait until it serves, or use: rollcall elect SET",
        )
    master = set_state.replica(set_state.master)
    # RocketMQ's brokers know no draining: waited for until the deadline, every time.
    if master is not None and master.kind is ReplicaKind.ROCKETMQ:
        raise Refusal(
            RefusalCode.INVALID_REQUEST,
            f"replica {master.broker_id} is a RocketMQ broker: it cannot be asked to drain",
            "use: rollcall elect SET --to ID",
        )


def _target(
    fleet: FleetState, set_state: SetState, operation: Operation, command: OrderSwitchover, evidence: Evidence
) -> ReplicaState:
    """The replica that would be elected now: the one that is named, or the first by policy."""
    assert set_state.master is not None
    if command.to == set_state.master:
        raise Refusal(
            RefusalCode.MASTER_STILL_EXISTS,
            f"replica {command.to} is master already, in epoch {set_state.master_epoch}",
            "nothing to do, or choose another one with --to ID",
            requested=command.to,
            current=set_state.master,
        )
    if command.to is not None:
        find_replica(set_state, command.to)
    found = succession(
        fleet,
        set_state,
        operation,
        evidence,
        set_aside={set_state.master: "current master"},
        designated=command.to,
        reason=command.reason,
    )
    target = set_state.replica(found.winner)
    if target is not None:
        return target
    whom = f"replica {command.to} may not be elected" if command.to is not None else "nobody may be elected"
    raise Refusal(
        RefusalCode.NOT_ELIGIBLE,
        f"{whom}: {found.reasons}",
        "bring it into the SyncStateSet first; its members are in column IN SYNC of: rollcall status",
        requested=command.to,
        current=f"SyncStateSet {{{','.join(map(str, set_state.sync_state_set))}}}",
        verdict=found.verdict(ElectionKind.SWITCHOVER),
    )


def _lag_bytes(set_state: SetState, evidence: Evidence, target: BrokerId) -> int:
    """How far ``target`` is behind the longest log that anybody has told of."""
    ends = {seen.broker_id: seen.max_offset for seen in evidence.replicas}
    return max(0, max((set_state.known_confirm, *ends.values())) - ends.get(target, 0))


def decide_end(fleet: FleetState, command: EndSwitchover) -> Decision:
    """Withdraw an order whose deadline has passed."""
    set_state = find_set(fleet, command.set_key)
    pending = set_state.pending_switchover
    # Also an election that came just before the deadline: withdrawn behind it, the record would say that the old master
    # serves while the new one does.
    if pending is None or pending.order != command.order or pending.elected_epoch is not None:
        raise _not_under_way(command.order, pending)
    return done(ended(set_state, pending, SwitchoverEnd.DEADLINE, command.reason))


def decide_drained(fleet: FleetState, operation: Operation, command: ReportDrained) -> Decision:
    """
    Elect the target of the order for which this master has drained.

    Every member holds every byte, the target too: nothing is cut, and no sender is left without its answer.
    """
    set_state = find_set(fleet, command.set_key)
    pending = set_state.pending_switchover
    # Drained for order 1, which was withdrawn: the master takes sends again, and then order 2 comes. The report for 1,
    # delivered late, would depose a master with sends under way (R29).
    if pending is None or not _is_named(pending, command) or pending.elected_epoch is not None:
        raise _not_under_way(command.order, pending)
    # A restored backup holds an order, and the replicas have not told yet what became of the set since (R7).
    if set_state.recovery is not None:
        raise Refusal(
            RefusalCode.MASTER_NOT_AVAILABLE,
            f"{command.set_key} is in recovery: its reign of masterEpoch {set_state.master_epoch} may be over",
            "register again",
        )
    refuse_other_mastership(set_state, command, "read the set again")
    refuse_impossible_drain(command.drained_us, "report this fault")
    evidence = validate_evidence(set_state, operation)
    found = succession(
        fleet,
        set_state,
        operation,
        replace(evidence, triggered_by=pending.ordered_by),
        set_aside={command.broker_id: "hands over by an operator's order"},
        designated=pending.target,
        reason=f"switched over by order of {pending.requested_by}",
    )
    target = set_state.replica(found.winner)
    if target is None or target.incarnation != pending.target_incarnation:
        refusal = Refusal(
            RefusalCode.NOT_ELIGIBLE,
            f"replica {pending.target} may not be elected: {found.reasons}",
            "go on as master",
            requested=pending.target,
        )
        lost = ended(set_state, pending, SwitchoverEnd.TARGET_LOST, f"not eligible: {found.reasons}")
        return refusal.decision(operation, lost)
    return elected(found.elected(ElectionKind.SWITCHOVER))


def _is_named(pending: Switchover, command: ReportDrained) -> bool:
    return pending.order == command.order


def _not_under_way(order: object, pending: Switchover | None) -> Refusal:
    return Refusal(
        RefusalCode.NO_SWITCHOVER,
        f"order {order} is not under way; {pending.order if pending is not None else 'none'} is",
        "nothing to do: read the set again",
        requested=order,
        current=None if pending is None else pending.order,
    )
