"""
The additions of each feature level to commands and events, and operations as a level takes them (R15).

Here: the tables, and ``fitted``. Not here: ``FEATURE_LEVEL`` (``commands``), what an older level decides otherwise
(``controller.core.gates``), raising the level of a fleet (``controller.core.fleet``).

During an upgrade two programs share one quorum. The older one ignores fields that it does not know, and stops at kinds
that it does not know. So:
Rule 1: until every controller is upgraded and an operator has raised the level, the leader proposes only what the level
in the replicated state has: a field above it is left out, a command or a word above it is refused to its sender.
Rule 2: a field that is added to a value of an earlier level has the default ``UNSET``. It is not written: the event's
bytes, and so its hash, are those that the older program makes of the same operation.
Rule 3: an event above the level is not made by ``decide``; it asks ``controller.core.gates``.
Rule 4: what a level that was released has is fixed: ``tests/unit/test_feature_levels.py`` holds the tables against it.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    FIRST_FEATURE_LEVEL,
    AnnounceStop,
    ApplySettings,
    Barrier,
    BeginMaintenance,
    ChangeControllers,
    Command,
    ConfigureSet,
    EndMaintenance,
    EndSwitchover,
    ImportSet,
    IssueToken,
    LeaveMaster,
    Operation,
    OrderSwitchover,
    PauseElections,
    RegisterReplica,
    ReportClockStep,
    ReportDrained,
    ReportWrites,
    ResumeElections,
    RevokeCertificate,
    RevokeToken,
    SayGoodbye,
    TransferLeadership,
)
from rollcall_ha.controller.contract.events import (
    CertificateRevoked,
    ClockStepped,
    ControllersChangeOrdered,
    ElectionsPaused,
    ElectionsResumed,
    ElectionWithheld,
    Event,
    EventRecord,
    FleetRestored,
    GoodbyeSaid,
    LeadershipTransferOrdered,
    MaintenanceBegun,
    MaintenanceEnded,
    OwnerBound,
    ReplicaRegistered,
    SetConfigured,
    SettingsApplied,
    StopAnnounced,
    SwitchoverEnded,
    SwitchoverOrdered,
    TokenIssued,
    TokenRevoked,
    WritesResumed,
    WritesStopped,
)
from rollcall_ha.controller.contract.values import DetectionStamps, Milestone, Phase, SilenceCause, StopReason
from rollcall_ha.controller.contract.verdicts import ElectionKind

TRANSFERS_SINCE_LEVEL = 4
"""From which level on a leader may ask a follower to stand; an older program would close the link."""

COMMANDS_SINCE: dict[type[Command], int] = {
    # Level 1 had it at its end. Controllers from before that are of level 1, too, and would diverge.
    ImportSet: 2,
    AnnounceStop: 2,
    ReportWrites: 2,
    ReportClockStep: 2,
    RevokeCertificate: 3,
    IssueToken: 3,
    RevokeToken: 3,
    OrderSwitchover: 4,
    EndSwitchover: 4,
    ReportDrained: 4,
    PauseElections: 4,
    ResumeElections: 4,
    ApplySettings: 4,
    LeaveMaster: 4,
    TransferLeadership: 4,
    ChangeControllers: 4,
    BeginMaintenance: 4,
    EndMaintenance: 4,
    ConfigureSet: 4,
}
EVENTS_SINCE: dict[type[Event], int] = {
    ClockStepped: 2,
    StopAnnounced: 2,
    WritesStopped: 2,
    WritesResumed: 2,
    OwnerBound: 3,
    CertificateRevoked: 3,
    TokenIssued: 3,
    TokenRevoked: 3,
    SwitchoverOrdered: 4,
    SwitchoverEnded: 4,
    ElectionsPaused: 4,
    ElectionsResumed: 4,
    ElectionWithheld: 4,
    SettingsApplied: 4,
    LeadershipTransferOrdered: 4,
    ControllersChangeOrdered: 4,
    MaintenanceBegun: 4,
    MaintenanceEnded: 4,
    FleetRestored: 4,
    SetConfigured: 4,
}
FIELDS_SINCE: dict[type[msgspec.Struct], dict[str, int]] = {
    DetectionStamps: {"first_sign_age_us": 2, "alive_age_us": 2},
    # ``age_us`` gets into no entry: the leader takes it off.
    Milestone: {"waited_us": 2, "age_us": 4},
    Barrier: {"heard_within_ms": 2},
    RegisterReplica: {"held_us": 2},
    SayGoodbye: {"stopped_us": 2},
    GoodbyeSaid: {"stopped_us": 2},
    ReplicaRegistered: {"ended": 2},
    Operation: {"principal": 3},
    EventRecord: {"principal": 3},
}
"""Fields that were added to a type of an earlier level."""
WORDS_SINCE: dict[Enum, int] = {
    ElectionKind.HANDOVER: 2,
    Phase.FAULT: 2,
    SilenceCause.WRITES_STOPPED: 2,
    SilenceCause.REVOKED: 3,
    RefusalCode.NOT_THE_OWNER: 3,
    RefusalCode.FORBIDDEN: 3,
    RefusalCode.UNKNOWN_TOKEN: 3,
    ElectionKind.SWITCHOVER: 4,
    SilenceCause.DRAINED: 4,
    RefusalCode.SWITCHOVER_UNDER_WAY: 4,
    RefusalCode.NO_SWITCHOVER: 4,
    RefusalCode.PAUSED: 4,
    RefusalCode.NO_SUCCESSOR: 4,
    RefusalCode.MEMBERS_NOT_CHANGED: 4,
    RefusalCode.NO_BUDGET: 4,
    StopReason.OWN_DISK: 4,
}
"""Members that were added to an enumeration of an earlier level."""


def fitted(operation: Operation, level: int) -> tuple[Operation, int]:
    """
    ``operation`` for a fleet at ``level``, and the level that it needs all the same.

    Fields above ``level`` are left out. The command or a word in it cannot be: then the needed level is above
    ``level``, and the operation must not be proposed, because a controller below it would stop at the entry.
    """
    found = _Fitting(level)
    fitting: Operation = found.value(operation)
    return fitting, max(found.needed, COMMANDS_SINCE.get(type(operation.command), FIRST_FEATURE_LEVEL))


class _Fitting:
    """One walk through a value."""

    def __init__(self, level: int) -> None:
        self._level = level
        self.needed = FIRST_FEATURE_LEVEL

    def value(self, value: Any) -> Any:
        if isinstance(value, tuple):
            items = tuple(map(self.value, value))
            return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
        if isinstance(value, Enum):
            self.needed = max(self.needed, WORDS_SINCE.get(value, FIRST_FEATURE_LEVEL))
        if not isinstance(value, msgspec.Struct):
            return value
        since = FIELDS_SINCE.get(type(value), {})
        changes: dict[str, Any] = {}
        for name in value.__struct_fields__:
            before = getattr(value, name)
            is_above = since.get(name, FIRST_FEATURE_LEVEL) > self._level
            after = msgspec.UNSET if is_above else self.value(before)
            if after is not before:
                changes[name] = after
        return replace(value, **changes) if changes else value
