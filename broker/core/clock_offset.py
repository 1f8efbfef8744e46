"""
How far the leader's monotonic clock is from ours, from the round trips of heartbeats.

Here: the estimate and the transit of a push that follows from it. Not here: clocks (``broker.session`` reads them).
Rule 1: an answer that carries the leader's clock was given between our two stamps; of the last few the shortest round
trip is the best witness, and half of it is the error.
Rule 2: it is evidence for a record, never for a decision.
"""

from __future__ import annotations

from collections import deque

WITNESSES_MAX = 8
"""Round trips that are remembered; clocks drift apart by less than a microsecond in that time."""

TRANSIT_US_MAX = 1_000_000
"""A push that seems to have taken longer says more about the clocks than about the push."""


class ClockOffset:
    """The clock of one leader as seen on one connection."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self._witnesses: deque[tuple[int, int]] = deque(maxlen=WITNESSES_MAX)

    def witness(self, *, sent_at_us: int, leader_clock_us: int, answered_at_us: int) -> None:
        """A heartbeat was answered. ``leader_clock_us`` 0 = the leader does not tell its clock."""
        if leader_clock_us:
            round_trip_us = max(0, answered_at_us - sent_at_us)
            self._witnesses.append((round_trip_us, leader_clock_us - (sent_at_us + round_trip_us // 2)))

    def transit_us(self, *, leader_sent_at_us: int, arrived_at_us: int) -> int:
        """How long a push was under way; 0 if that cannot be known."""
        if not self._witnesses or not leader_sent_at_us:
            return 0
        _, offset_us = min(self._witnesses)
        transit_us = arrived_at_us + offset_us - leader_sent_at_us
        return transit_us if 0 < transit_us <= TRANSIT_US_MAX else 0
