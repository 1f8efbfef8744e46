"""
The master's own bytes, read again when a slave has refused a record as damaged.

Here: when, how much, and what is said of it. Not here: the reading (``log.soundness``), the link (``ha``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from rollcall_ha.broker.core.goals import named_in
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.controller.contract.ids import BrokerId, LogOffset
from rollcall_ha.controller.contract.replies import SetView
from rollcall_ha.node.telemetry import get_logger

DAMAGE_BYTES_MAX: Final = 64 * 1024 * 1024
"""Read again when a slave refuses a record: more than is ever under way on one link."""
DAMAGE_CHECK_PAUSE_US: Final = 60_000_000
"""From one such reading to the next: a refused slave comes back, with the same refusal, every few seconds."""

_log = get_logger("replica")


class OwnDamage:
    """On the loop; reads on ``disk``."""

    def __init__(
        self,
        log: CommitLog,
        disk: Executor,
        view: Callable[[], SetView | None],
        now_us: Callable[[], int],
        *,
        raise_alarm: Callable[[str], None],
    ) -> None:
        """``view``: the newest one. ``raise_alarm`` shows a reason in /readyz."""
        self._commit_log = log
        self._disk = disk
        self._view = view
        self._now_us = now_us
        self._raise_alarm = raise_alarm
        self._next_check_us = 0

    def refused(self, broker_id: BrokerId, acked: LogOffset | None, detail: str) -> None:
        """A slave that has acked so much refused what follows: whether it is damaged here too."""
        now_us = self._now_us()
        if now_us < self._next_check_us:
            return
        # On the thread of promises and marks: read at each refusal, they would wait behind 64 MiB each time.
        self._next_check_us = now_us + DAMAGE_CHECK_PAUSE_US
        start = self._commit_log.min_offset if acked is None else acked
        loop = asyncio.get_running_loop()
        work = loop.run_in_executor(self._disk, self._commit_log.find_damage, start, DAMAGE_BYTES_MAX)
        work.add_done_callback(lambda found: self._checked(broker_id, detail, found))

    def _checked(self, broker_id: BrokerId, detail: str, work: asyncio.Future[str]) -> None:
        if work.cancelled() or work.exception() is not None:
            return
        slave = named_in(self._view(), broker_id)
        if damage := work.result():
            # Not left by itself: the other members may hold no good copy either, and without a master nobody asks.
            remedy = "elect a member that has a good copy, then wipe this directory"
            _log.error("own_record_damaged", refused_by=slave, reason=damage, remedy=remedy)
            self._raise_alarm(f"{damage}, on this disk; replica {slave} refused it; {remedy}")
        else:
            meaning = "the bytes here are good: they changed on the way, or in a memory"
            _log.warning("slave_got_damaged_record", slave=slave, detail=detail, meaning=meaning)
