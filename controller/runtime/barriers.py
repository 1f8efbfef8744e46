"""
Barriers that readers share.

Here: which reader joins which barrier. Not here: committing one (the caller's), the permission to read (``service``).

Rule: a reader passes when a barrier has committed that was proposed after the reader came. All readers that come while
one barrier is in flight share the next, so a flood of readers costs no flood of entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class SharedBarriers:
    """For one event loop."""

    def __init__(self, commit: Callable[[], Awaitable[None]]) -> None:
        """``commit`` proposes one barrier and returns when it is applied here; its readers get its exception."""
        self._commit = commit
        self._out: asyncio.Task[None] | None = None
        self._next: asyncio.Task[None] | None = None

    async def passed(self) -> None:
        """Return when everything that was committed before the call is applied here. Raises as ``commit`` does."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._run(self._out))
            self._next.add_done_callback(_consume)
        # Shielded: a reader that gives up must not take the barrier away from those that share it.
        await asyncio.shield(self._next)

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
