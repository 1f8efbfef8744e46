"""
Leaving a master that lives and cannot acknowledge: the election that its word about its writes allows.

Here: ``decide_leave``. Not here: the master's word (``writes``), when the leader asks for this, and whether it may
(``controller.runtime.handover_duty``).

Rule 1: a stop is named by (masterEpoch, seq), and goes on. One that ended while the order was under way elects nobody.
Rule 2: clean elections only, by the rules of any other: a member holds every acknowledged byte (R6).
Rule 3: nobody is elected if nothing is gained: without the old master at least ``min_in_sync`` members must be alive
and heard, because the fault that stopped the master's writes would keep it from acknowledging as a slave, too.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import LeaveMaster, Operation
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.values import Evidence
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.decide_election import succession
from rollcall_ha.controller.core.decision import Decision, Refusal, elected, find_set
from rollcall_ha.controller.core.evidence import validate_evidence
from rollcall_ha.controller.core.state import FleetState, SetState


def decide_leave(fleet: FleetState, operation: Operation, command: LeaveMaster) -> Decision:
    """Elect another member in place of the master whose writes are stopped."""
    set_state = find_set(fleet, command.set_key)
    _refuse_stop(set_state, command)
    evidence = validate_evidence(set_state, operation)
    assert set_state.master is not None
    assert set_state.configuration is not None
    able = able_without_master(set_state, evidence)
    least = set_state.configuration.effective_min_in_sync
    # Rule 3. {1,2} with min_in_sync 2, the link between them cut: 2 would be master, acknowledge nothing, and be left
    # for 1 again, and so on for as long as the link is cut.
    if len(able) < least:
        raise Refusal(
            RefusalCode.NO_ELIGIBLE_REPLICA,
            f"without master {set_state.master} members {list(able)} could serve, min_in_sync is {least}",
            "bring more replicas into the SyncStateSet, or mend what stops the writes of the master",
            requested=least,
            current=len(able),
        )
    found = succession(
        fleet,
        set_state,
        operation,
        evidence,
        set_aside={set_state.master: "its writes are stopped"},
        reason=command.reason,
    )
    if found.winner is None:
        # No failed election, as nothing was lost: the master reigns on.
        raise Refusal(
            RefusalCode.NO_ELIGIBLE_REPLICA,
            f"nobody to hand over to: {found.reasons}",
            "bring more replicas into the SyncStateSet, or mend what stops the writes of the master",
        )
    return elected(found.elected(ElectionKind.HANDOVER))


def able_without_master(set_state: SetState, evidence: Evidence) -> tuple[BrokerId, ...]:
    """The members that could serve together without the master: intact, alive, and ready by what the leader heard."""
    ready = {seen.broker_id for seen in evidence.replicas if seen.is_ready}
    return tuple(
        replica.broker_id
        for replica in set_state.replicas
        if replica.broker_id != set_state.master
        and replica.broker_id in ready
        and replica.is_alive
        and replica.is_voter
        and not replica.is_stopping
        and set_state.is_intact_member(replica)
    )


def _refuse_stop(set_state: SetState, command: LeaveMaster) -> None:
    writes, pending = set_state.writes, set_state.pending_switchover
    # For a master that is gone, or late to enter, an election by other rules is due; an operator's order goes on.
    is_serving = set_state.is_master_alive and set_state.has_entered and set_state.recovery is None
    if not is_serving or pending is not None:
        raise Refusal(
            RefusalCode.MASTER_NOT_AVAILABLE,
            f"{set_state.set_key} has no serving master that could be left",
            "nothing to do: it is elected for, or switched over, already",
        )
    stop = None if writes is None or writes.is_over else (set_state.master_epoch, writes.seq)
    # Rule 1. The disk was cleared at this moment, and the master serves: deposed all the same, every producer would
    # have to send again for nothing.
    if stop != (command.master_epoch, command.seq):
        raise Refusal(
            RefusalCode.EXPECTATION_FAILED,
            f"stop {command.seq} of masterEpoch {command.master_epoch} is over; "
            f"{'none' if stop is None else f'stop {stop[1]} of masterEpoch {stop[0]}'} goes on",
            "nothing to do: read the set again",
            requested=f"{command.master_epoch}/{command.seq}",
            current=None if stop is None else f"{stop[0]}/{stop[1]}",
        )
