"""
Barriers that readers share.

Here: which reader joins which barrier. Not here: committing one (the caller's), the permission to read (``service``).

Rule: a reader passes when a barrier has committed that was proposed after the reader came. All readers that come while
one barrier is in flight share the next, so a flood of readers costs no flood of entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

LOOKS: Final = 4
"""Into so many waits a reader's limit is divided; after each it looks whether its barrier has passed."""


class SharedBarriers:
    """For one event loop."""

    def __init__(self, commit: Callable[[], Awaitable[None]]) -> None:
        """``commit`` proposes one barrier and returns when it is applied here; its readers get its exception."""
        self._commit = commit
        self._out: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def passed(self, limit_ms: int) -> None:
        """
        Return when everything that was committed before the call is applied here. Raises as ``commit`` does.

        Raises ``TimeoutError`` after ``limit_ms``, and the time for which the loop was busy meanwhile.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._run(self._out))
            self._next.add_done_callback(_consume)
        barrier = self._next
        # One timer for all of it would end the read in the first turn after 40 readers had kept the loop busy for
        # ``limit_ms``: before their barrier is proposed at all.
        for _ in range(LOOKS):
            # Does not cancel it: a reader that gives up must not take the barrier away from those that share it.
            await asyncio.wait((barrier,), timeout=limit_ms / 1000 / LOOKS)
            if barrier.done():
                return barrier.result()
        raise TimeoutError

    async def _run(self, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await asyncio.wait((previous,))
        # BEFORE it is proposed: a reader that comes from here on takes the next one. In this one it might miss a write
        # that was committed while the barrier was on its way.
        self._out, self._next = self._next, None
        await self._commit()


def _consume(task: asyncio.Task[None]) -> None:
    """A barrier whose readers all went away must not warn about its exception."""
    if not task.cancelled():
        task.exception()
