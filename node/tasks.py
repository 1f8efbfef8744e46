"""Tasks of one event loop that nobody awaits: kept while they run, and ended together."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Tasks:
    """Belongs to one event loop, and ends its tasks in the order in which they were begun."""

    def __init__(self, failed: Callable[[BaseException], None] | None = None) -> None:
        """``failed`` hears what a task raises; None: the loop does, as of every task."""
        self._failed = failed
        self._tasks: dict[asyncio.Task[None], None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Run it until it ends by itself, or with ``stop``."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if self._failed is not None and not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)

    async def stop(self) -> None:
        """Cancel all of them and return when they have ended."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
