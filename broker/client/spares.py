"""
Links to brokers that may be master next, dialled while nobody knows yet which of them is.

Here: dialling them beside each other, handing one out, closing the rest. Not here: which brokers (``routes``), how one
is dialled and what is sent on it (``producer``).

With TLS a handshake is three ways and about a millisecond of each end. Begun when the new master is known, it is a part
of every outage; the election takes longer than it does.
Rule 1: nothing is sent on a spare link; its peer was judged as that of any other link.
Rule 2: at most ``SPARES_MAX``, and none once a link serves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Generic, Protocol, TypeVar

SPARES_MAX = 8


class SpareLink(Protocol):
    @property
    def is_open(self) -> bool:
        """Whether bytes sent now have a chance to leave."""
        ...

    def abort(self) -> None: ...


LinkT = TypeVar("LinkT", bound=SpareLink)


class Spares(Generic[LinkT]):
    """The spare links of one producer. Runs on its loop."""

    def __init__(self, dial: Callable[[str], Awaitable[LinkT | None]]) -> None:
        """``dial``: a link to host:port whose peer is judged, or None; it has a limit of time and raises nothing."""
        self._dial = dial
        self._dials: dict[str, asyncio.Task[LinkT | None]] = {}

    def begin(self, addresses: Iterable[str]) -> None:
        """Dial those that are not being dialled."""
        loop = asyncio.get_running_loop()
        for address in addresses:
            if address not in self._dials and len(self._dials) < SPARES_MAX:
                self._dials[address] = loop.create_task(self._run(address), name=f"spare link to {address}")

    async def take(self, address: str) -> LinkT | None:
        """The one to ``address``, when its handshake is over; None: there is none, or it has ended meanwhile."""
        task = self._dials.pop(address, None)
        if task is None:
            return None
        try:
            link = await task
        except asyncio.CancelledError:
            _discard(task)
            raise
        return link if link is not None and link.is_open else None

    def drop(self) -> None:
        """Close all that were not taken."""
        dials, self._dials = self._dials, {}
        for task in dials.values():
            _discard(task)

    async def _run(self, address: str) -> LinkT | None:
        return await self._dial(address)


def _discard(task: asyncio.Task[LinkT | None]) -> None:
    task.cancel()
    # Its handshake may have ended in the turn in which it is cancelled: that link would stay open as long as this
    # process.
    task.add_done_callback(_close)


def _close(task: asyncio.Task[LinkT | None]) -> None:
    link = None if task.cancelled() or task.exception() is not None else task.result()
    if link is not None:
        link.abort()
