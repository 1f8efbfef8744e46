"""
The additions of each feature level to commands and events, and operations as a level takes them (R15).

Here: the tables, and ``fitted``. Not here: ``FEATURE_LEVEL`` (``commands``), raising the level of a fleet
(``controller.core.fleet``), how to add to a level (CONTRIBUTING, "To change what is decided").

During an upgrade two programs share one quorum. The older one ignores fields that it does not know, and stops at kinds
that it does not know. So:
Rule 1: until every controller is upgraded and an operator has raised the level, the leader proposes only what the level
in the replicated state has: a field above it is left out, a command or a word above it is refused to its sender.
Rule 2: a field that is added to a value of an earlier level has the default ``UNSET``. It is not written: the event's
bytes, and so its hash, are those that the older program makes of the same operation.
Rule 3: an event above the level is not made by ``decide``, which asks the state for its level.
Rule 4: what a level that was released has is fixed: ``tests/unit/test_feature_levels.py`` holds the tables against it.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import (
    FEATURE_LEVEL,
    FIRST_FEATURE_LEVEL,
    Command,
    NoteConfirms,
    Operation,
)
from rollcall_ha.controller.contract.events import ConfirmsNoted, Event, ReplicaRegistered, ReplicasCleaned
from rollcall_ha.controller.contract.settings import Settings
from rollcall_ha.controller.contract.values import Evidence, Milestone, Positions, ReplicaEvidence, StoredView
from rollcall_ha.controller.contract.verdicts import CandidateVerdict

COMMANDS_SINCE: dict[type[Command], int] = {NoteConfirms: 2}
EVENTS_SINCE: dict[type[Event], int] = {ConfirmsNoted: 2}
FIELDS_SINCE: dict[type[msgspec.Struct], dict[str, int]] = {
    Evidence: {"confirmed": 2},
    Positions: {"confirm_epochs": 2},
    ReplicaEvidence: {"confirmed_before": 2},
    Settings: {
        "ack_timeout_ms": 2,
        "auto_create_topics": 2,
        "slave_reads": 2,
        "retention_hours": 2,
        "sends_refused_percent": 2,
        "retention_forced_percent": 2,
        "retention_segments_max": 2,
    },
    Milestone: {"uncertainty_us": 2, "outlived_from": 2, "outlived_to": 2},
    StoredView: {"master": 2, "master_incarnation": 2},
    CandidateVerdict: {"is_warm": 2},
    ReplicaRegistered: {"confirmed": 2, "newcomers": 2},
    ReplicasCleaned: {"kept_out": 2},
}
"""Fields that were added to a type of an earlier level."""
WORDS_SINCE: dict[Enum, int] = {}
"""Members that were added to an enumeration of an earlier level."""


def fitted(operation: Operation, level: int) -> tuple[Operation, int]:
    """
    ``operation`` for a fleet at ``level``, and the level that it needs all the same.

    Fields above ``level`` are left out. The command or a word in it cannot be: then the needed level is above
    ``level``, and the operation must not be proposed, because a controller below it would stop at the entry.
    """
    needed = COMMANDS_SINCE.get(type(operation.command), FIRST_FEATURE_LEVEL)
    # Nothing is above the newest level. The walk finds so too, for a twelfth of all that the leader of 1,000 sets does.
    if level >= FEATURE_LEVEL:
        return operation, needed
    found = _Fitting(level)
    fitting: Operation = found.value(operation)
    return fitting, max(found.needed, needed)


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
