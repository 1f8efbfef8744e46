"""
What happens in brokers on behalf of an epoch: entering it, and the steps of a failover.

Here: ``decide_entered``, ``decide_milestones``, and when a grade is given or corrected. Not here: the grade itself
(``proof``).

Rule 1: the elected incarnation alone enters, and only the epoch that was named; its start is fixed once (R9, R12).
Rule 2: a report of what happened is taken from any incarnation of a replica: it is a fact, and changes no decision.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import RecordMilestones, ReportEntered
from rollcall_ha.controller.contract.events import AnyEvent, LossGraded, MasterEntered, MilestoneReached
from rollcall_ha.controller.contract.ids import ReplicaKind
from rollcall_ha.controller.contract.values import Phase, made_from
from rollcall_ha.controller.core.decision import Decision, Refusal, done, find_set
from rollcall_ha.controller.core.evolve import evolve
from rollcall_ha.controller.core.mastership import refuse_other_mastership
from rollcall_ha.controller.core.proof import grade_entered, grade_returned
from rollcall_ha.controller.core.state import FleetState

MILESTONES_PER_COMMAND_MAX = 256


def decide_entered(fleet: FleetState, command: ReportEntered) -> Decision:
    """The winner entered its epoch; grade the failover. A repeat with the same start changes nothing."""
    set_state = find_set(fleet, command.set_key)
    refuse_other_mastership(set_state, command, "do not serve in this epoch; read the set again")
    # The answer was lost and the winner tells again. Refused, the record would show a fault, "isolate this replica",
    # although all is well.
    if set_state.has_entered and set_state.start_offset == command.start_offset:
        return done()
    replica = set_state.replica(command.broker_id)
    is_told = command.start_offset is not None and command.start_offset >= 0
    is_java = replica is not None and replica.kind is ReplicaKind.ROCKETMQ and command.start_offset is None
    # One epoch, one start. Broker 2 told 900 for epoch 3 and tells 700 now: a slave that was cut at the first start
    # would keep bytes 700 to 900 that the second one writes anew (R12).
    if set_state.has_entered or not (is_told or is_java):
        raise Refusal(
            RefusalCode.INVALID_REQUEST,
            f"epoch {command.master_epoch} starts at {set_state.start_offset}, reported was {command.start_offset}",
            "an epoch is entered once: isolate this replica and report the fault",
            requested=command.start_offset,
            current=set_state.start_offset,
        )
    entered = made_from(command, MasterEntered)
    # The recorded master was elected, so its reign is the newest: ``reigns`` cannot be empty here.
    graded = LossGraded(verdict=grade_entered(set_state.reigns[-1], command))
    return done(entered, graded)


def decide_milestones(fleet: FleetState, command: RecordMilestones) -> Decision:
    """
    Put milestones on record; the cut of an old master that returned corrects the grade of the failover that deposed it.
    """
    set_state = find_set(fleet, command.set_key)
    if not 1 <= len(command.milestones) <= MILESTONES_PER_COMMAND_MAX:
        raise Refusal(
            RefusalCode.INVALID_ARGUMENT,
            f"{len(command.milestones)} milestones came, 1 to {MILESTONES_PER_COMMAND_MAX} can be taken at a time",
            "send them in smaller batches",
        )
    events: list[AnyEvent] = []
    for milestone in command.milestones:
        # An epoch from before a wipe: its failover is not on record here, and a grade would be put on another one.
        if milestone.master_epoch > set_state.master_epoch:
            raise Refusal(
                RefusalCode.FENCED_MASTER_EPOCH,
                f"milestone of epoch {milestone.master_epoch}, but epochs end at {set_state.master_epoch}",
                "report milestones of epochs that this fleet has issued",
                requested=milestone.master_epoch,
                current=set_state.master_epoch,
            )
        if milestone.broker_id is not None and set_state.replica(milestone.broker_id) is None:
            raise Refusal(
                RefusalCode.UNKNOWN_REPLICA,
                f"replica {milestone.broker_id} of {command.set_key} does not exist",
                "register first",
            )
        event = MilestoneReached(milestone=milestone)
        events.append(event)
        corrected = grade_returned(set_state, milestone) if milestone.phase is Phase.TRUNCATED else None
        if corrected is not None:
            # The next milestone of this command is graded against the corrected reign: of two cuts in one batch the
            # second would otherwise erase what the first had found.
            graded = LossGraded(verdict=corrected)
            events.append(graded)
            set_state = evolve(set_state, graded)
    return done(*events)
