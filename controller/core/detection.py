"""
When the leader noticed that a replica was gone: its stamps, on one monotonic clock in nanoseconds.

Here: the value that the leader's machines hand each other. Not here: how signs are judged
(``controller.runtime.sessions``); what the record keeps of them (``DetectionStamps``: ages at the proposal).
"""

from __future__ import annotations

from rollcall_ha.controller.contract.timing import NS_PER_US
from rollcall_ha.controller.contract.values import DetectionStamps, Frozen, SilenceCause

FRESH_INTERVALS = 3
"""Heartbeat intervals after which a replica is not called ready any more."""


class Stamps(Frozen, kw_only=True):
    """When the leader noticed each sign of a replica's end; ``None`` = it did not."""

    cause: SilenceCause
    detected_ns: int
    last_heartbeat_ns: int | None = None
    session_closed_ns: int | None = None
    link_closed_ns: int | None = None
    probe_refused_ns: int | None = None
    first_sign_ns: int
    """Where the phases of a failover begin: ``DetectionStamps.first_sign_age_us`` on this clock."""
    alive_ns: int | None
    """Last sure sign of life; None = none is known."""

    def ages(self, now_ns: int) -> DetectionStamps:
        """As ages at the moment of a proposal."""
        return DetectionStamps(
            cause=self.cause,
            last_heartbeat_age_us=_age_us(self.last_heartbeat_ns, now_ns),
            session_closed_age_us=_age_us(self.session_closed_ns, now_ns),
            link_closed_age_us=_age_us(self.link_closed_ns, now_ns),
            probe_refused_age_us=_age_us(self.probe_refused_ns, now_ns),
            detected_age_us=(now_ns - self.detected_ns) // NS_PER_US,
            first_sign_age_us=(now_ns - self.first_sign_ns) // NS_PER_US,
            alive_age_us=None if self.alive_ns is None else (now_ns - self.alive_ns) // NS_PER_US,
        )


def _age_us(stamp_ns: int | None, now_ns: int) -> int | None:
    return None if stamp_ns is None else max(0, now_ns - stamp_ns) // NS_PER_US
