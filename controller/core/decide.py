"""
Deciding: a command and the state in, an answer and facts out.

Here: which function decides which command, and rules of a few lines. Not here: the other rules (``ids``,
``registration``, ``liveness``, ``decide_election``, ``decide_leaving``, ``decide_switchover``, ``founding_election``,
``alters``, ``milestones``, ``writes``, ``cleaning``, ``fleet``, ``callers``, ``revocations``, ``tokens``, ``pauses``,
``decide_maintenance``, ``settings``), the end of a switchover that a decision brings about (``switchover_ends``),
changing the state (``evolve``, ``apply``).

Rule 1: pure. The same state and operation give the same decision on every machine (C8).
Rule 2: a decision names every change as an event; a change without an event does not happen (C10).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    AlterSyncStateSet,
    AnnounceStop,
    ApplyBrokerId,
    ApplySettings,
    Barrier,
    BeginMaintenance,
    Bootstrap,
    ChangeControllers,
    CleanReplicas,
    ConfigureSet,
    ElectMaster,
    ElectUnclean,
    EndMaintenance,
    EndSwitchover,
    ImportSet,
    InitialiseFleet,
    IssueToken,
    LeaveMaster,
    MarkAlive,
    MarkSilent,
    Operation,
    OrderSwitchover,
    PauseElections,
    RaiseFeatureLevel,
    RecordMilestones,
    RegisterReplica,
    ReportClockStep,
    ReportDrained,
    ReportEntered,
    ReportWrites,
    ResumeElections,
    RevokeCertificate,
    RevokeToken,
    SayGoodbye,
    TakeLeadership,
    TransferLeadership,
)
from rollcall_ha.controller.contract.events import ClockStepped
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.core.alters import decide_alter
from rollcall_ha.controller.core.callers import refuse_caller
from rollcall_ha.controller.core.cleaning import decide_clean
from rollcall_ha.controller.core.decide_configure import decide_configure
from rollcall_ha.controller.core.decide_election import (
    decide_bootstrap_command,
    decide_elect,
    decide_elect_unclean,
    decide_handover,
)
from rollcall_ha.controller.core.decide_leaving import decide_leave
from rollcall_ha.controller.core.decide_maintenance import decide_begin_maintenance, decide_end_maintenance
from rollcall_ha.controller.core.decide_switchover import decide_drained, decide_end, decide_order
from rollcall_ha.controller.core.decision import Decision, done, refuse
from rollcall_ha.controller.core.flaps import with_block
from rollcall_ha.controller.core.fleet import (
    decide_change_controllers,
    decide_feature_level,
    decide_initialise,
    decide_leadership,
    decide_transfer,
)
from rollcall_ha.controller.core.ids import decide_apply_id
from rollcall_ha.controller.core.importing import decide_import
from rollcall_ha.controller.core.liveness import decide_alive, decide_goodbye, decide_silent, decide_stopping
from rollcall_ha.controller.core.milestones import decide_entered, decide_milestones
from rollcall_ha.controller.core.pauses import decide_pause, decide_resume, unless_paused
from rollcall_ha.controller.core.registration import decide_register
from rollcall_ha.controller.core.revocations import decide_revoke_certificate
from rollcall_ha.controller.core.settings import decide_settings
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.core.switchover_ends import with_end
from rollcall_ha.controller.core.tokens import decide_issue_token, decide_revoke_token
from rollcall_ha.controller.core.writes import decide_writes

REQUEST_ID_CHARS_MAX = 64


def decide(fleet: FleetState, operation: Operation) -> Decision:
    """
    Decide one operation against ``fleet``. It may refuse, it never acts.

    Its view of the world is ``fleet`` and the operation's evidence; a ``view`` in the reply is that of ``fleet``.
    """
    # Request ids are kept in replicated state, 1,024 of them: an id of a megabyte would be in every snapshot.
    if not operation.request_id.isascii() or not 1 <= len(operation.request_id) <= REQUEST_ID_CHARS_MAX:
        return refuse(
            operation,
            RefusalCode.INVALID_ARGUMENT,
            f"the request id has {len(operation.request_id)} characters, not 1 to {REQUEST_ID_CHARS_MAX} of ASCII",
            "draw a shorter one",
        )
    refusal = refuse_above_level(fleet, operation) or refuse_caller(fleet, operation)
    if refusal is not None:
        return refusal
    match operation.command:
        case InitialiseFleet() as command:
            return decide_initialise(fleet, operation, command)
        case TakeLeadership() as command:
            return decide_leadership(operation, command)
        case RaiseFeatureLevel() as command:
            return decide_feature_level(fleet, command)
        case TransferLeadership() as command:
            return decide_transfer(operation, command)
        case ChangeControllers() as command:
            return decide_change_controllers(command)
        case ReportClockStep() as command:
            return done(ClockStepped(controller=command.controller, step_ms=command.step_ms))
        case Barrier():
            return done()
    # Before a fleet has its incarnation brokers would store views of none, and each of them would look like that of
    # another fleet as soon as it has one (R7).
    if not fleet.fleet_incarnation:
        return refuse(
            operation,
            RefusalCode.INVALID_REQUEST,
            "the fleet is not initialised: it has no incarnation yet",
            "retry when a controller leads",
        )
    decision = _BY_COMMAND[type(operation.command)](fleet, operation, operation.command)
    key: SetKey | None = getattr(operation.command, "set_key", None)
    return replace(decision, events=with_end(fleet.sets.get(key) if key is not None else None, decision.events))


def _decide_announced_stop(fleet: FleetState, operation: Operation, command: AnnounceStop) -> Decision:
    set_state = fleet.sets.get(command.set_key)
    is_master = set_state is not None and set_state.is_master_alive and set_state.master == command.broker_id
    if is_master:
        return unless_paused(fleet, operation, command.set_key, decide_handover(fleet, operation, command))
    return decide_stopping(fleet, operation, command)


def _decide_elect(fleet: FleetState, operation: Operation, command: ElectMaster) -> Decision:
    decision = unless_paused(fleet, operation, command.set_key, decide_elect(fleet, operation, command))
    return with_block(fleet, operation, command.set_key, decision)


def _decide_leave(fleet: FleetState, operation: Operation, command: LeaveMaster) -> Decision:
    return unless_paused(fleet, operation, command.set_key, decide_leave(fleet, operation, command))


def refuse_above_level(fleet: FleetState, operation: Operation) -> Decision | None:
    """The refusal of an operation above the fleet's feature level; None if it may be applied (R15)."""
    # A controller that is not upgraded yet would stop at this operation, and two of three are a majority. So the level
    # is raised, by an operator, when all of them are.
    if operation.version <= fleet.feature_level:
        return None
    return refuse(
        operation,
        RefusalCode.FEATURE_LEVEL,
        f"the operation needs feature level {operation.version}, the fleet is at {fleet.feature_level}",
        "upgrade every controller, then raise the level with: rollcall raise-level",
        requested=operation.version,
        current=fleet.feature_level,
    )


_BY_COMMAND: dict[type[Any], Callable[[FleetState, Operation, Any], Decision]] = {
    ApplyBrokerId: decide_apply_id,
    RegisterReplica: decide_register,
    MarkSilent: decide_silent,
    MarkAlive: decide_alive,
    SayGoodbye: decide_goodbye,
    AnnounceStop: _decide_announced_stop,
    ReportDrained: decide_drained,
    OrderSwitchover: decide_order,
    EndSwitchover: decide_end,
    ElectMaster: _decide_elect,
    LeaveMaster: _decide_leave,
    ElectUnclean: decide_elect_unclean,
    Bootstrap: decide_bootstrap_command,
    AlterSyncStateSet: decide_alter,
    ReportEntered: decide_entered,
    RecordMilestones: decide_milestones,
    ReportWrites: decide_writes,
    CleanReplicas: decide_clean,
    ConfigureSet: decide_configure,
    ImportSet: decide_import,
    RevokeCertificate: decide_revoke_certificate,
    IssueToken: decide_issue_token,
    RevokeToken: decide_revoke_token,
    PauseElections: decide_pause,
    ResumeElections: decide_resume,
    ApplySettings: decide_settings,
    BeginMaintenance: decide_begin_maintenance,
    EndMaintenance: decide_end_maintenance,
}
