"""
How fast a replica comes nearer to its master, from the ends of log that both tell in their heartbeats. Pure.

Here: the growth of one log, and the estimate for a replica that lags. Not here: heartbeats (``sessions``), who is shown
(``views``). So it holds for RocketMQ's replicas, too, and costs a broker nothing. Times are nanoseconds of the leader's
monotonic clock.

Rule 1: a speed is that of the last 5 to 10 s: of one heartbeat it would leap, of an hour it would not show a stop.
Rule 2: what is not known yet is None; a replica that comes no nearer has a speed, and no time.
"""

from __future__ import annotations

from typing import Final

import msgspec

from rollcall_ha.controller.contract.ids import LogOffset
from rollcall_ha.controller.contract.views import CatchUp

SHOWN_BYTES_MIN: Final = 1024 * 1024
"""Less is under way on every link of a set that is written to."""
MARK_NS: Final = 5_000_000_000
SPAN_NS_MIN: Final = 1_000_000_000
"""Ends that lie closer together say nothing."""


class LogGrowth(msgspec.Struct):
    """Three ends of one log: the newest, and two marks behind it."""

    _older: tuple[int, LogOffset] | None = None
    _newer: tuple[int, LogOffset] | None = None
    _last: tuple[int, LogOffset] | None = None

    def note(self, end: LogOffset, now_ns: int) -> None:
        """A heartbeat told ``end``."""
        # Cut, or empty again: what it had before is no growth, and the difference is below zero.
        if self._last is None or self._newer is None or end < self._last[1]:
            self._older = self._newer = (now_ns, end)
        elif now_ns - self._newer[0] >= MARK_NS:
            self._older, self._newer = self._newer, (now_ns, end)
        self._last = (now_ns, end)

    @property
    def bytes_per_s(self) -> int | None:
        """None = it has not been heard for long enough."""
        if self._older is None or self._last is None:
            return None
        span_ns = self._last[0] - self._older[0]
        return None if span_ns < SPAN_NS_MIN else (self._last[1] - self._older[1]) * 1_000_000_000 // span_ns


def catch_up_of(left_bytes: int, own: LogGrowth, master: LogGrowth) -> CatchUp | None:
    """The estimate for a replica that lacks ``left_bytes``; None = so little is no matter."""
    if left_bytes < SHOWN_BYTES_MIN:
        return None
    speed, writes = own.bytes_per_s, master.bytes_per_s
    # The writes of a master that is not heard are not known: as 0 they would promise an end that moves away.
    nearer = None if speed is None or writes is None else speed - writes
    left_s = -(-left_bytes // nearer) if nearer is not None and nearer > 0 else None
    return CatchUp(left_bytes=left_bytes, bytes_per_s=speed, left_s=left_s)
