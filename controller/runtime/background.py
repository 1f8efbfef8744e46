"""
Tasks without a caller, and a condition that many readers wait for.

Here: ``BackgroundTasks`` (bounded, faults logged), ``Wakeup`` (many waiters, woken from any thread). Not here: the
work itself (``service``). Both belong to one event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from rollcall_ha.controller.replication.async_calls import on_loop
from rollcall_ha.node.tasks import Tasks
from rollcall_ha.node.telemetry import Logger

BACKGROUND_TASKS_MAX = 20_000


class BackgroundTasks:
    """Tasks that end by themselves, or with ``stop``."""

    def __init__(self, logger: Logger) -> None:
        """Faults of the tasks go to ``logger``."""
        self._logger = logger
        self._tasks = Tasks(self._failed)

    def spawn(self, work: Coroutine[Any, Any, None]) -> bool:
        """False: too many run already; ``work`` is dropped, and the caller must tell those that wait for it."""
        if len(self._tasks) >= BACKGROUND_TASKS_MAX:
            work.close()
            self._logger.error("background_tasks_full", limit=BACKGROUND_TASKS_MAX)
            return False
        self._tasks.begin(work)
        return True

    def _failed(self, error: BaseException) -> None:
        self._logger.error("background_task_failed", error=repr(error), exc_info=error)

    async def stop(self) -> None:
        """Cancel all tasks and return when they have ended."""
        await self._tasks.stop()


class Wakeup:
    """
    A condition that comes true again and again.

    Take ``next`` BEFORE you look whether there is something, and wait for that one: a wake-up between the look and the
    wait is then not missed.
    """

    def __init__(self) -> None:
        self._next = asyncio.Event()

    @property
    def next(self) -> asyncio.Event:
        """Set by the first ``wake`` from now on."""
        return self._next

    def wake(self) -> None:
        waiting, self._next = self._next, asyncio.Event()
        waiting.set()

    def wake_from_thread(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """From any thread; on a loop that is missing or closed nobody waits."""
        if loop is not None:
            on_loop(loop, self.wake)
