"""
The true history of a synthetic fleet: a truth test compares Spark's tables with it.

Here: rows of truth, written while the sets are simulated. Not here: how Spark finds the same in events (``analytics``),
files (``files``).
Rule 1: truth comes from the simulated processes: their deaths, their logs, the durations of their steps. It is not
folded from events; two columns that only the core can know (``grade``, and which epoch came next) are its word.
Rule 2: a duration is None where its stamp was never reported: no reader of the events can know it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args, get_type_hints


@dataclass(slots=True, kw_only=True)
class ReignTruth:
    """One election that made a master."""

    cluster: str
    broker_set: str
    master_epoch: int
    elected_at_ms: int
    kind: str
    fault: str
    """``Fault`` that cost the set its last master; empty: none did."""
    cause: str
    """How the leading controller noticed: ``SilenceCause``; empty: it did not, or its successor decided."""
    from_master: int | None
    to_master: int
    fault_at_us: int | None
    """When the last master really stopped, in microseconds UTC."""
    is_false: bool
    """The last master's process lived all the time, and came back as it was."""
    is_controller_caused: bool
    """It was a change of the leading controller that kept it from being heard."""
    regret_bytes: int
    """Bytes that another eligible candidate was known to hold beyond the winner."""
    detected_us: int | None = None
    proposed_us: int | None = None
    committed_us: int | None = None
    notified_us: int | None = None
    promised_us: int | None = None
    role_applied_us: int | None = None
    serving_us: int | None = None
    first_ack_us: int | None = None
    """Phases chain: each is the time since the one before."""
    total_us: int | None = None
    """From the first sign of the fault to the report of SERVING, as the leader timed it."""
    route_converged_us: int | None = None
    """From the first sign of the fault until the last route was right."""
    grade: str | None = None
    cut_bytes: int | None = None
    """Bytes that the last master threw away when it came back."""
    lost_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class ExposureTruth:
    """A time in which the SyncStateSet had fewer members than the set needs."""

    cluster: str
    broker_set: str
    from_ms: int
    to_ms: int


@dataclass(slots=True, kw_only=True)
class OutageTruth:
    """A time in which a set had no serving master."""

    cluster: str
    broker_set: str
    from_us: int
    to_us: int
    fault: str
    is_recorded: bool
    """A new masterEpoch ended it. A pause that no controller noticed leaves no trace in the events."""


@dataclass(slots=True, kw_only=True)
class GapTruth:
    """Two heartbeats of one process with nothing between them for much longer than the interval."""

    cluster: str
    broker_set: str
    broker_id: int
    incarnation: str
    is_master: bool
    from_us: int
    gap_us: int
    is_detected: bool
    """It was found silent; a shorter gap leaves no trace in the events."""


@dataclass(slots=True)
class Truth:
    """Rows of one fleet, in the order in which they happened."""

    reigns: list[ReignTruth] = field(default_factory=list)
    exposures: list[ExposureTruth] = field(default_factory=list)
    outages: list[OutageTruth] = field(default_factory=list)
    gaps: list[GapTruth] = field(default_factory=list)


TRUTH_ROWS: dict[str, type] = {name: get_args(rows)[0] for name, rows in get_type_hints(Truth).items()}
"""Name of each table, and its row."""
