"""
Telling the controllers of stops of writes, each beginning and each end once, however long no controller answers. Pure.

Here: ``WriteReports``: stops in, one command at a time out. Not here: when writes are stopped (``write_watch``),
sending (``broker.write_stops``).

Rule 1: one report is under way. A repeat names the same stop, and changes nothing at the controllers.
Rule 2: ages are taken when a report leaves: told an hour late, a stop began an hour and a bit ago.
Rule 3: a controller that does not answer is asked again after pauses that double up to ``RETRY_PAUSE_MS_MAX``, so that
a stop that is over does not look open for long. A refusal ends the matter: the reign is over.
Rule 4: at most ``STOPS_PENDING_MAX`` stops wait; beyond that the oldest that is over is dropped and counted.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

import msgspec

from rollcall_ha.broker.core.write_watch import US_PER_MS, Stop
from rollcall_ha.controller.contract.commands import ReportWrites
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, SetKey
from rollcall_ha.controller.contract.values import made_from

STOPS_PENDING_MAX: Final = 64
RETRY_PAUSE_MS: Final = 200
RETRY_PAUSE_MS_MAX: Final = 5_000


class Told(Enum):
    """The outcome of a report."""

    TAKEN = auto()
    REFUSED = auto()
    UNKNOWN = auto()
    """No answer, or none that says anything."""


class _Pending(msgspec.Struct):
    stop: Stop
    is_begun_told: bool = False

    @property
    def is_due(self) -> bool:
        return not self.is_begun_told or self.stop.ended_us is not None


class WriteReports:
    """The stops of one process that the controllers have yet to hear of, in their order."""

    def __init__(self, set_key: SetKey, incarnation: Incarnation) -> None:
        self.dropped = 0
        self._set_key = set_key
        self._incarnation = incarnation
        self._pending: list[_Pending] = []
        self._under_way: tuple[_Pending, bool] | None = None
        self._failures = 0
        self._retry_at_us = 0

    @property
    def untold(self) -> int:
        """Stops whose beginning or end the controllers lack."""
        return sum(one.is_due for one in self._pending)

    def note(self, stop: Stop) -> None:
        """``stop`` began or ended; the value is the same, changed in place."""
        if not any(one.stop is stop for one in self._pending):
            self._pending.append(_Pending(stop))
        if len(self._pending) > STOPS_PENDING_MAX:
            # The oldest is over: a stop goes on only at the end of the list.
            del self._pending[0]
            self.dropped += 1

    def forget(self) -> None:
        """The reign is over by the controllers' word: they would refuse each report on it."""
        self._pending.clear()

    def session_opened(self) -> None:
        """Another controller, or this one again: no pause."""
        self._failures = self._retry_at_us = 0

    def next(self, broker_id: BrokerId, now_us: int) -> ReportWrites | None:
        """The report to send now, answered by ``told``; None = nothing is to be told, or not yet."""
        if self._under_way is not None or now_us < self._retry_at_us:
            return None
        pending = next((one for one in self._pending if one.is_due), None)
        if pending is None:
            return None
        stop = pending.stop
        self._under_way = (pending, stop.ended_us is not None)
        return made_from(
            stop,
            ReportWrites,
            set_key=self._set_key,
            broker_id=broker_id,
            incarnation=self._incarnation,
            age_us=now_us - stop.began_us,
            stopped_us=None if stop.ended_us is None else stop.ended_us - stop.began_us,
        )

    def told(self, outcome: Told, now_us: int) -> None:
        """The outcome of the report that is under way."""
        assert self._under_way is not None
        (pending, was_end), self._under_way = self._under_way, None
        if outcome in (Told.TAKEN, Told.REFUSED):
            self._failures = 0
            pending.is_begun_told = True
            # It may have ended while its beginning was under way: that is still to be told.
            if (was_end or outcome is Told.REFUSED) and pending in self._pending:
                self._pending.remove(pending)
            return
        pause_ms = min(RETRY_PAUSE_MS << min(self._failures, 16), RETRY_PAUSE_MS_MAX)
        self._failures += 1
        self._retry_at_us = now_us + pause_ms * US_PER_MS
