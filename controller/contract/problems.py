"""
What can be wrong with a set or a controller: its code, how bad it is, its words, once for all who tell of it.

Here: the closed vocabulary, the worst first. Not here: which problems a set has (``controller.runtime.views``),
refusals of orders (``codes``).
Rule: the command line, REST and the console tell a problem by this table: the console reads it as ``problems.js``
(``api.rest.console``). A code of a newer controller, which it lacks, is shown as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from rollcall_ha.controller.contract.views import ControllerStatus, MissedMasters

LEAD_WINDOW_MS = 600_000
LEAD_CHANGES_MAX = 5
"""Within the window; all controllers restarted one by one are three."""


class Severity(StrEnum):
    """How bad something is, the worst first."""

    CRITICAL = "critical"
    """Something does not serve, or what it shows cannot be believed."""
    WARNING = "warning"
    """It serves, and the next fault, or the next days, may end that."""
    NOTE = "note"


class ProblemCode(StrEnum):
    """Everything that can be wrong with a set, the worst first."""

    NO_ELIGIBLE_REPLICA = "NO_ELIGIBLE_REPLICA"
    MASTER_SILENT = "MASTER_SILENT"
    NEEDS_BOOTSTRAP = "NEEDS_BOOTSTRAP"
    WAITING_FOR_REPORTS = "WAITING_FOR_REPORTS"
    WAITING_FOR_REPLICAS = "WAITING_FOR_REPLICAS"
    ENTERING = "ENTERING"
    WRITES_STOPPED = "WRITES_STOPPED"
    """The master acknowledges no write, by its own word; the condition's reason says why."""
    MASTER_NOT_SERVING = "MASTER_NOT_SERVING"
    """The master on record lives, and says of itself that it does not serve: fenced or isolated."""
    BELOW_MIN_IN_SYNC = "BELOW_MIN_IN_SYNC"
    """Writes are refused: fewer members are in sync than the set demands."""
    PAUSED = "PAUSED"
    """Elections are paused: a master that dies has no successor until an operator elects one."""
    NO_SPARE = "NO_SPARE"
    """Losing one more replica stops the set."""
    REPLICA_SUSPECT = "REPLICA_SUSPECT"
    REPLICA_SILENT = "REPLICA_SILENT"
    REPLICA_ISOLATED = "REPLICA_ISOLATED"
    REPLICA_NOT_IN_SYNC = "REPLICA_NOT_IN_SYNC"
    REPLICA_MISSING = "REPLICA_MISSING"
    """Fewer replicas are registered than the set expects."""


class ProblemKind(NamedTuple):
    """What is told of a problem."""

    severity: Severity
    words: str
    command: str = ""
    """The verb that mends it, where one does."""
    alarm: str = ""
    """The alarm of ``deploy/prometheus/rules.yml`` that it raises if it lasts; its runbook is in ``docs/alarms.md``."""

    def __str__(self) -> str:
        return f"{self.words}: rollcall {self.command}" if self.command else self.words


_NO_MASTER = "RollcallSetWithoutMaster"
PROBLEMS = {
    ProblemCode.NO_ELIGIBLE_REPLICA: ProblemKind(Severity.CRITICAL, "no replica may be elected", alarm=_NO_MASTER),
    ProblemCode.MASTER_SILENT: ProblemKind(Severity.CRITICAL, "the master is silent", alarm=_NO_MASTER),
    ProblemCode.NEEDS_BOOTSTRAP: ProblemKind(Severity.CRITICAL, "needs a first master", "bootstrap", alarm=_NO_MASTER),
    ProblemCode.WAITING_FOR_REPORTS: ProblemKind(
        Severity.CRITICAL, "waits for replicas to report what they hold", alarm=_NO_MASTER
    ),
    ProblemCode.WAITING_FOR_REPLICAS: ProblemKind(
        Severity.CRITICAL, "waits for its replicas to register", alarm=_NO_MASTER
    ),
    ProblemCode.ENTERING: ProblemKind(Severity.CRITICAL, "the new master is entering", alarm=_NO_MASTER),
    ProblemCode.WRITES_STOPPED: ProblemKind(
        Severity.CRITICAL, "the master acknowledges no write", alarm="RollcallWritesStopped"
    ),
    ProblemCode.MASTER_NOT_SERVING: ProblemKind(
        Severity.CRITICAL, "the master on record has stopped itself", alarm=_NO_MASTER
    ),
    ProblemCode.BELOW_MIN_IN_SYNC: ProblemKind(
        Severity.CRITICAL, "refuses writes: fewer replicas in sync than min_in_sync"
    ),
    ProblemCode.PAUSED: ProblemKind(Severity.WARNING, "elections are paused"),
    ProblemCode.NO_SPARE: ProblemKind(Severity.WARNING, "losing one more replica stops it"),
    ProblemCode.REPLICA_SUSPECT: ProblemKind(Severity.WARNING, "its last member may lack acknowledged messages"),
    ProblemCode.REPLICA_SILENT: ProblemKind(Severity.WARNING, "a replica is silent"),
    ProblemCode.REPLICA_ISOLATED: ProblemKind(Severity.WARNING, "a replica has isolated itself"),
    ProblemCode.REPLICA_NOT_IN_SYNC: ProblemKind(Severity.WARNING, "a replica is not in sync"),
    ProblemCode.REPLICA_MISSING: ProblemKind(Severity.WARNING, "fewer replicas than expected are registered"),
}


def lost_entries_words(entries: int) -> str:
    """What is wrong with a controller that leads, and lacks entries that brokers have seen."""
    return (
        f"its log lacks {entries:,} entries that brokers have seen: its data directory was put back from an older copy"
    )


def lead_unstable_words(answering: Sequence[ControllerStatus]) -> str:
    """The warning that the lead changes again and again, with the cause; empty: it does not."""
    changes = max((one.lead_changes for one in answering), default=0)
    if changes <= LEAD_CHANGES_MAX:
        return ""
    late = ", ".join(f"{one.name} {one.late_ms / 1000:.1f} s" for one in answering if one.late_ms)
    cause = f"controllers come late, {late}: too little CPU, or a slow disk" if late else "none that answers is late"
    return f"LEAD_UNSTABLE: the lead changed {changes} times within {LEAD_WINDOW_MS // 60_000} minutes; {cause}"


MASTER_MISSED_WORDS = (
    "controllers lost its master together with all others, so nobody is elected until a member is heard without it"
)
"""Of one set (R13)."""


def own_network_words(missed: MissedMasters | None, sets_total: int) -> str:
    """Why sets elect nobody although their masters are silent, and for how long (R13); empty when none is missed."""
    if missed is None:
        return ""
    within = "" if missed.left_ms is None else f", and for {missed.left_ms / 1000:.1f} s more at most"
    return (
        f"OWN_NETWORK: the masters of {missed.sets} of {sets_total} sets are silent for up to "
        f"{missed.silent_ms / 1000:.1f} s, since all of their sets, or most of the fleet, fell silent at once: the "
        f"controllers' own network is suspected; nobody is elected there until a member is heard without its master"
        f"{within}"
    )


def words_of(code: str) -> str:
    """What is wrong, and what mends it; a code that this program does not know, as it is."""
    return str(PROBLEMS[ProblemCode(code)]) if code in PROBLEMS else code
