"""
Deciding: a command and the state in, an answer and facts out.

Here: which function decides which command, and rules of a few lines. Not here: the other rules (the modules of the
tables below), the end of a switchover that a decision brings about (``switchover_ends``), changing the state
(``evolve``, ``apply``).

Rule 1: pure. The same state and operation give the same decision on every machine (C8).
Rule 2: a decision names every change as an event; a change without an event does not happen (C10).
Rule 3: total. A refusal is raised wherever it is found, and becomes a decision here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from rollcall_ha.controller.contract import commands
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import Operation
from rollcall_ha.controller.contract.events import ClockStepped
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.core import (
    alters,
    cleaning,
    confirms,
    decide_configure,
    decide_election,
    decide_leaving,
    decide_maintenance,
    decide_switchover,
    flaps,
    ids,
    importing,
    liveness,
    milestones,
    pauses,
    registration,
    revocations,
    settings,
    tokens,
    writes,
)
from rollcall_ha.controller.core import fleet as of_fleet
from rollcall_ha.controller.core.callers import refuse_caller
from rollcall_ha.controller.core.decision import Decision, Refusal, done
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.core.switchover_ends import with_end

REQUEST_ID_CHARS_MAX = 64


def decide(fleet: FleetState, operation: Operation) -> Decision:
    """
    Decide one operation against ``fleet``. It may refuse, it never acts.

    Its view of the world is ``fleet`` and the operation's evidence; a ``view`` in the reply is that of ``fleet``.
    """
    try:
        return _decide(fleet, operation)
    except Refusal as refusal:
        return refusal.decision(operation)


def refuse_above_level(fleet: FleetState, operation: Operation) -> None:
    """Refuse an operation above the fleet's feature level (R15)."""
    # A controller that is not upgraded yet would stop at this operation, and two of three are a majority. So the level
    # is raised, by an operator, when all of them are.
    if operation.version > fleet.feature_level:
        raise Refusal(
            RefusalCode.FEATURE_LEVEL,
            f"the operation needs feature level {operation.version}, the fleet is at {fleet.feature_level}",
            "upgrade every controller, then raise the level with: rollcall raise-level",
            requested=operation.version,
            current=fleet.feature_level,
        )


def _decide(fleet: FleetState, operation: Operation) -> Decision:
    # Request ids are kept in replicated state, 1,024 of them: an id of a megabyte would be in every snapshot.
    if not operation.request_id.isascii() or not 1 <= len(operation.request_id) <= REQUEST_ID_CHARS_MAX:
        raise Refusal(
            RefusalCode.INVALID_ARGUMENT,
            f"the request id has {len(operation.request_id)} characters, not 1 to {REQUEST_ID_CHARS_MAX} of ASCII",
            "draw a shorter one",
        )
    refuse_above_level(fleet, operation)
    refuse_caller(fleet, operation)
    command = operation.command
    if by_fleet := _ON_THE_FLEET.get(type(command)):
        return by_fleet(fleet, command)
    # Before a fleet has its incarnation brokers would store views of none, and each of them would look like that of
    # another fleet as soon as it has one (R7).
    if not fleet.fleet_incarnation:
        raise Refusal(
            RefusalCode.INVALID_REQUEST,
            "the fleet is not initialised: it has no incarnation yet",
            "retry when a controller leads",
        )
    by_state = _BY_STATE.get(type(command))
    if by_state is not None:
        decision = by_state(fleet, command)
    else:
        decision = _BY_OPERATION[type(command)](fleet, operation, command)
    key: SetKey | None = getattr(command, "set_key", None)
    return replace(decision, events=with_end(fleet.sets.get(key) if key is not None else None, decision.events))


def _announced_stop(fleet: FleetState, operation: Operation, command: commands.AnnounceStop) -> Decision:
    set_state = fleet.sets.get(command.set_key)
    is_master = set_state is not None and set_state.is_master_alive and set_state.master == command.broker_id
    if not is_master:
        return liveness.decide_stopping(fleet, command)
    decision = decide_election.decide_handover(fleet, operation, command)
    return pauses.unless_paused(fleet, operation, command.set_key, decision)


def _elect(fleet: FleetState, operation: Operation, command: commands.ElectMaster) -> Decision:
    decision = decide_election.decide_elect(fleet, operation, command)
    decision = pauses.unless_paused(fleet, operation, command.set_key, decision)
    return flaps.with_block(fleet, operation, command.set_key, decision)


def _leave(fleet: FleetState, operation: Operation, command: commands.LeaveMaster) -> Decision:
    decision = decide_leaving.decide_leave(fleet, operation, command)
    return pauses.unless_paused(fleet, operation, command.set_key, decision)


_ON_THE_FLEET: dict[type[Any], Callable[[FleetState, Any], Decision]] = {
    commands.InitialiseFleet: of_fleet.decide_initialise,
    commands.TakeLeadership: lambda _fleet, command: of_fleet.decide_leadership(command),
    commands.RaiseFeatureLevel: of_fleet.decide_feature_level,
    commands.TransferLeadership: lambda _fleet, command: of_fleet.decide_transfer(command),
    commands.ChangeControllers: lambda _fleet, command: of_fleet.decide_change_controllers(command),
    commands.ReportClockStep: lambda _fleet, command: done(
        ClockStepped(controller=command.controller, step_ms=command.step_ms)
    ),
    commands.Barrier: lambda _fleet, _command: done(),
}
"""Taken from before the fleet has its incarnation on."""
_BY_STATE: dict[type[Any], Callable[[FleetState, Any], Decision]] = {
    commands.MarkSilent: liveness.decide_silent,
    commands.NoteConfirms: confirms.decide_confirms,
    commands.MarkAlive: liveness.decide_alive,
    commands.SayGoodbye: liveness.decide_goodbye,
    commands.EndSwitchover: decide_switchover.decide_end,
    commands.AlterSyncStateSet: alters.decide_alter,
    commands.ReportEntered: milestones.decide_entered,
    commands.RecordMilestones: milestones.decide_milestones,
    commands.ReportWrites: writes.decide_writes,
    commands.CleanReplicas: cleaning.decide_clean,
    commands.ConfigureSet: decide_configure.decide_configure,
    commands.ImportSet: importing.decide_import,
    commands.RevokeToken: tokens.decide_revoke_token,
    commands.ResumeElections: pauses.decide_resume,
    commands.ApplySettings: settings.decide_settings,
    commands.EndMaintenance: decide_maintenance.decide_end_maintenance,
}
"""Decided by the state and the command alone."""
_BY_OPERATION: dict[type[Any], Callable[[FleetState, Operation, Any], Decision]] = {
    commands.ApplyBrokerId: ids.decide_apply_id,
    commands.RegisterReplica: registration.decide_register,
    commands.AnnounceStop: _announced_stop,
    commands.OrderSwitchover: decide_switchover.decide_order,
    commands.ReportDrained: decide_switchover.decide_drained,
    commands.ElectMaster: _elect,
    commands.LeaveMaster: _leave,
    commands.ElectUnclean: decide_election.decide_elect_unclean,
    commands.Bootstrap: decide_election.decide_bootstrap_command,
    commands.RevokeCertificate: revocations.decide_revoke_certificate,
    commands.IssueToken: tokens.decide_issue_token,
    commands.PauseElections: pauses.decide_pause,
    commands.BeginMaintenance: decide_maintenance.decide_begin_maintenance,
}
"""Evidence, the time or the caller of the operation is looked at, too."""
