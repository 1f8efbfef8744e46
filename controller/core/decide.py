"""
Deciding: a command and the state in, an answer and facts out.

Here: which module decides which command. Not here: the rules themselves (``ids``, ``registration``, ``liveness``,
``decide_election``, ``founding_election``, ``alters``, ``milestones``, ``cleaning``, ``fleet``), changing the state
(``evolve``, ``apply``).

Rule 1: pure. The same state and operation give the same decision on every machine.
Rule 2: a decision says everything: what it does not name as an event does not happen (C10).
"""

from __future__ import annotations

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    AlterSyncStateSet,
    ApplyBrokerId,
    Barrier,
    Bootstrap,
    CleanReplicas,
    ElectMaster,
    ElectUnclean,
    ImportSet,
    InitialiseFleet,
    MarkAlive,
    MarkSilent,
    Operation,
    RaiseFeatureLevel,
    RecordMilestones,
    RegisterReplica,
    ReportEntered,
    SayGoodbye,
    TakeLeadership,
)
from rollcall_ha.controller.core.alters import decide_alter
from rollcall_ha.controller.core.cleaning import decide_clean
from rollcall_ha.controller.core.decide_election import decide_bootstrap_command, decide_elect, decide_elect_unclean
from rollcall_ha.controller.core.decision import DONE, Decision, refuse
from rollcall_ha.controller.core.fleet import decide_feature_level, decide_initialise, decide_leadership
from rollcall_ha.controller.core.ids import decide_apply_id
from rollcall_ha.controller.core.importing import decide_import
from rollcall_ha.controller.core.liveness import decide_alive, decide_goodbye, decide_silent
from rollcall_ha.controller.core.milestones import decide_entered, decide_milestones
from rollcall_ha.controller.core.registration import decide_register
from rollcall_ha.controller.core.state import FleetState

REQUEST_ID_CHARS_MAX = 64


def decide(fleet: FleetState, operation: Operation) -> Decision:
    """
    Decide one operation against ``fleet``. It may refuse, it never acts.

    Its view of the world is ``fleet`` and the operation's evidence; a ``view`` in the reply is that of ``fleet``.
    """
    if not operation.request_id.isascii() or not 1 <= len(operation.request_id) <= REQUEST_ID_CHARS_MAX:
        return refuse(
            operation,
            RefusalCode.INVALID_ARGUMENT,
            f"the request id has {len(operation.request_id)} characters, not 1 to {REQUEST_ID_CHARS_MAX} of ASCII",
            "draw a shorter one",
        )
    if operation.version > fleet.feature_level:
        return refuse(
            operation,
            RefusalCode.FEATURE_LEVEL,
            f"the operation needs feature level {operation.version}, the fleet is at {fleet.feature_level}",
            "upgrade every controller, then raise the feature level",
            requested=operation.version,
            current=fleet.feature_level,
        )
    match operation.command:
        case InitialiseFleet() as command:
            return decide_initialise(fleet, operation, command)
        case TakeLeadership() as command:
            return decide_leadership(operation, command)
        case RaiseFeatureLevel() as command:
            return decide_feature_level(fleet, command)
        case Barrier():
            return Decision(answer=DONE)
    if not fleet.fleet_incarnation:
        return refuse(
            operation,
            RefusalCode.INVALID_REQUEST,
            "the fleet is not initialised: it has no incarnation yet",
            "retry when a controller leads",
        )
    return _decide_on_set(fleet, operation)


def _decide_on_set(fleet: FleetState, operation: Operation) -> Decision:
    match operation.command:
        case ApplyBrokerId() as command:
            return decide_apply_id(fleet, operation, command)
        case RegisterReplica() as command:
            return decide_register(fleet, operation, command)
        case MarkSilent() as command:
            return decide_silent(fleet, operation, command)
        case MarkAlive() as command:
            return decide_alive(fleet, operation, command)
        case SayGoodbye() as command:
            return decide_goodbye(fleet, operation, command)
        case ElectMaster() as command:
            return decide_elect(fleet, operation, command)
        case ElectUnclean() as command:
            return decide_elect_unclean(fleet, operation, command)
        case Bootstrap() as command:
            return decide_bootstrap_command(fleet, operation, command)
        case AlterSyncStateSet() as command:
            return decide_alter(fleet, operation, command)
        case ReportEntered() as command:
            return decide_entered(fleet, operation, command)
        case RecordMilestones() as command:
            return decide_milestones(fleet, operation, command)
        case CleanReplicas() as command:
            return decide_clean(fleet, operation, command)
        case ImportSet() as command:
            return decide_import(fleet, operation, command)
        case _:
            raise TypeError(type(operation.command).__name__)
