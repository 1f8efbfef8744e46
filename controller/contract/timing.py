"""
Every duration that controllers and brokers must agree on, as presets, with the inequalities that they must satisfy.

Here: numbers and their relations; ``worst_case_rto_ms`` is the bound by phase that an operator may rely on.
Not here: reading clocks. All values are milliseconds of a monotonic clock.
Sources: docs/timing.md; R6, R7, R13; docs/pysyncobj.md for the numbers of Raft.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

NS_PER_US = 1_000
NS_PER_MS = 1_000_000
US_PER_MS = 1_000


class Preset(StrEnum):
    """Named sets of timeouts."""

    FAST = "fast"
    NORMAL = "normal"
    SAFE = "safe"


RELATIONS: tuple[tuple[str, int, str], ...] = (
    ("heartbeat_timeout_ms", 2, "heartbeat_interval_ms"),
    ("heartbeat_timeout_ms", 2, "scan_interval_ms"),
    ("heartbeat_timeout_ms", 1, "raft_election_timeout_ms_max"),
    ("raft_election_timeout_ms_min", 3, "raft_append_period_ms"),
    ("raft_election_timeout_ms_max", 1, "raft_election_timeout_ms_min"),
    ("raft_fallback_ms", 1, "raft_election_timeout_ms_max"),
    ("raft_connection_timeout_ms", 1, "raft_fallback_ms"),
    ("entered_deadline_ms", 1, "survivors_wait_ms"),
    ("stall_ms", 1, "survivors_wait_ms"),
    ("catch_up_timeout_ms", 1, "survivors_wait_ms"),
    ("propose_timeout_ms", 1, "raft_election_timeout_ms_max"),
    ("reconnect_delay_ms_max", 1, "reconnect_delay_ms"),
)
"""The left duration must be at least so many times the right one."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """
    One consistent set of durations, in milliseconds. A new one needs a default: entries of the log hold such values.

    Which of them can be changed while a fleet runs is in ``controller.contract.settings``.
    """

    heartbeat_interval_ms: int
    heartbeat_timeout_ms: int
    """Silence after which a replica counts as gone; also the grace that everybody gets after a controller change."""
    scan_interval_ms: int
    """How often the leader looks for silent replicas and for sets without a master."""
    probe_timeout_ms: int
    """A probe that takes longer proves nothing (R13)."""
    stall_ms: int
    """
    A gap between two ticks of the leader's loop above this starts the grace again (S41, S42); a send that waits for so
    long means that writes are stopped.
    """
    entered_deadline_ms: int
    """A winner that has not reported ``entered`` by then is replaced (R6)."""
    survivors_wait_ms: int
    """A new master waits this long for the handshakes of its set before it proposes to remove missing members (R6)."""
    catch_up_timeout_ms: int
    """A member of the SyncStateSet that was not caught up for this long is removed (W13)."""
    handover_ms: int
    """A replica that was asked to stop goes on for so long at most until nobody waits for it; sends wait meanwhile."""
    session_rpc_timeout_ms: int
    reconnect_delay_ms: int
    """Pause between two attempts of a session or an HA link to connect."""
    reconnect_delay_ms_max: int
    propose_timeout_ms: int
    """After this a proposal's outcome is unknown."""
    raft_append_period_ms: int
    raft_election_timeout_ms_min: int
    raft_election_timeout_ms_max: int
    raft_fallback_ms: int
    raft_connection_timeout_ms: int

    def violations(self) -> tuple[str, ...]:
        """Name every broken inequality with both values; empty means that the set is consistent."""
        return tuple(
            self._violation(left, factor, right)
            for left, factor, right in RELATIONS
            if getattr(self, left) < factor * getattr(self, right)
        )

    def _violation(self, left: str, factor: int, right: str) -> str:
        value, other = getattr(self, left), getattr(self, right)
        # The log's own durations stay in the file: nobody can lower them by settings.
        lower = "" if right.startswith("raft_") else f", or lower {right} to {value // factor}"
        return (
            f"{left} is {value} ms, must be at least {f'{factor} x ' if factor > 1 else ''}{right}, which is "
            f"{other} ms: raise {left} to {factor * other}{lower}"
        )

    @property
    def session_dial_timeout_ms(self) -> int:
        """For a session's connection to open. One that is lost in a cut is noticed no sooner."""
        # All controllers were cut off for 2 s. With the whole second of an answer the last dial into the cut ended so
        # late that a healthy master was found silent behind it (R13).
        return min(self.session_rpc_timeout_ms, self.heartbeat_timeout_ms // 2)

    def worst_case_rto_ms(self) -> dict[str, int]:
        """
        Bound by phase of a failover of a silent master, controllers healthy: detect, decide, enter.

        ``detect``: the last heartbeat may have left just before the fault, and a scan may just have passed.
        ``enter``: push, promise, epoch entry, survivors' handshakes or their removal.
        """
        return {
            "detect": self.heartbeat_timeout_ms + self.scan_interval_ms,
            "decide": self.raft_append_period_ms,
            "enter": self.survivors_wait_ms + self.raft_append_period_ms,
        }


_BY_PRESET: dict[str, tuple[int, int, int]] = {
    "heartbeat_interval_ms": (250, 500, 1_000),
    "heartbeat_timeout_ms": (1_000, 3_000, 10_000),
    "scan_interval_ms": (50, 100, 250),
    "probe_timeout_ms": (200, 500, 1_000),
    "stall_ms": (500, 1_000, 2_000),
    "entered_deadline_ms": (2_000, 3_000, 10_000),
    "survivors_wait_ms": (300, 500, 500),
    "catch_up_timeout_ms": (1_000, 3_000, 10_000),
    "handover_ms": (1_000, 2_000, 2_000),
    "session_rpc_timeout_ms": (1_000, 2_000, 3_000),
    "reconnect_delay_ms": (50, 50, 100),
    "reconnect_delay_ms_max": (500, 1_000, 2_000),
    "propose_timeout_ms": (2_000, 3_000, 5_000),
    "raft_append_period_ms": (50, 50, 100),
    "raft_election_timeout_ms_min": (300, 300, 1_000),
    "raft_election_timeout_ms_max": (600, 600, 2_000),
    "raft_fallback_ms": (800, 1_000, 3_000),
    "raft_connection_timeout_ms": (2_000, 2_000, 5_000),
}
"""Fast, normal, safe."""

PRESETS: dict[Preset, Timing] = {
    preset: Timing(**{name: values[column] for name, values in _BY_PRESET.items()})
    for column, preset in enumerate((Preset.FAST, Preset.NORMAL, Preset.SAFE))
}
