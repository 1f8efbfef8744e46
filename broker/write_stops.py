"""
The shell of ``broker.core.write_watch`` and ``write_reports``: one timer, one report under way.

Here: looking at the reign every ``TICK_MS``, and at each change while writes are stopped; sending reports. Not here:
the facts (``broker.replica``), any decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rollcall_ha.broker.core.write_reports import Told, WriteReports
from rollcall_ha.broker.core.write_watch import Stop, WriteFacts, WriteWatch
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ReportWrites
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, SetKey
from rollcall_ha.controller.contract.replies import AnyReply, Refused
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.node.telemetry import get_logger

TICK_MS = 50

_log = get_logger("writes")


class WriteStops:
    """Looks and reports while this process is master by its own or the controllers' word; quiet otherwise."""

    def __init__(
        self,
        *,
        timing: Timing,
        set_key: SetKey,
        incarnation: Incarnation,
        facts: Callable[[], tuple[BrokerId, WriteFacts] | None],
        ask: Callable[[ReportWrites], asyncio.Future[AnyReply]],
        now_us: Callable[[], int],
    ) -> None:
        """``facts``: own id and the reign's state of this moment; None = not master by anybody's word."""
        self.watch = WriteWatch(stall_ms=timing.stall_ms, heartbeat_interval_ms=timing.heartbeat_interval_ms)
        self.reports = WriteReports(set_key, incarnation)
        self._facts = facts
        self._ask = ask
        self._now_us = now_us
        self._timer: asyncio.TimerHandle | None = None

    @property
    def stop(self) -> Stop | None:
        """The stop that goes on."""
        return self.watch.stop

    @property
    def stopped_us(self) -> int:
        """The time in all stops since the start of the process, the present one included."""
        stop = self.watch.stop
        return self.watch.stopped_us + (0 if stop is None else max(0, self._now_us() - stop.began_us))

    def retime(self, timing: Timing) -> None:
        """Other durations are in force."""
        self.watch.retime(stall_ms=timing.stall_ms, heartbeat_interval_ms=timing.heartbeat_interval_ms)

    def begin(self) -> None:
        """A reign serves: look from now on, until it is over by the controllers' word."""
        self.close()
        self._tick()

    def moved(self) -> None:
        """Something of the reign changed: the end of a stop is dated here. Cheap while writes go on."""
        if self.watch.stop is not None:
            self._look()

    def session_opened(self) -> None:
        """A leading controller can be told."""
        self.reports.session_opened()
        self._report()

    def close(self) -> None:
        """Stop looking; ``begin`` starts again."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- inside ------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(TICK_MS / 1000, self._tick)
        self._look()

    def _look(self) -> None:
        found = self._facts()
        if found is None:
            self.watch.leave()
            self.reports.forget()
            self.close()
            return
        stop = self.watch.look(found[1], self._now_us())
        if stop is not None:
            self.reports.note(stop)
            _tell(stop)
        self._report()

    def _report(self) -> None:
        found = self._facts()
        command = None if found is None else self.reports.next(found[0], self._now_us())
        if command is not None:
            self._ask(command).add_done_callback(self._told)

    def _told(self, future: asyncio.Future[AnyReply]) -> None:
        self.reports.told(_outcome(future), self._now_us())
        self._report()


def _outcome(future: asyncio.Future[AnyReply]) -> Told:
    if future.cancelled() or future.exception() is not None:
        return Told.UNKNOWN
    reply = future.result()
    if not isinstance(reply, Refused):
        return Told.TAKEN
    return Told.UNKNOWN if reply.code is RefusalCode.OVERLOADED else Told.REFUSED


def _tell(stop: Stop) -> None:
    if stop.ended_us is None:
        _log.warning("writes_stopped", master_epoch=stop.master_epoch, reason=stop.reason.value, detail=stop.detail)
    else:
        took_ms = (stop.ended_us - stop.began_us) // 1_000
        _log.warning("writes_resumed", master_epoch=stop.master_epoch, reason=stop.reason.value, stopped_ms=took_ms)
