"""
The asyncio shell of ``ports.PeerCalls``: one future per call, one task per call of a peer.

Rule: outcomes and calls come from the log's thread by ``call_soon_threadsafe``. A loop that is already closed is no
error there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.ports import CallOutcome, PeerCalls, Reply

Handler = Callable[[ControllerName, bytes], Awaitable[bytes]]
"""The answer to one call; it must not raise."""


class AsyncCalls:
    """The calls of one event loop's program."""

    def __init__(self, calls: PeerCalls) -> None:
        """Use it within a running loop, before the log starts."""
        self._calls = calls
        self._loop = asyncio.get_running_loop()
        self._handler: Handler | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        calls.answer_calls(self._on_call)

    def serve(self, handler: Handler) -> None:
        """Take calls from now on; one that comes before is told as lost to its caller when its time is up."""
        self._handler = handler

    async def call(self, peer: ControllerName, request: bytes) -> CallOutcome:
        """Ask ``peer``; never raises. A cancelled caller leaves its call to end by itself."""
        future: asyncio.Future[CallOutcome] = self._loop.create_future()

        def done(outcome: CallOutcome) -> None:
            try:
                self._loop.call_soon_threadsafe(_settle, future, outcome)
            except RuntimeError:
                return  # the loop is closed: nobody waits any more

        self._calls.call(peer, request, done)
        return await future

    async def stop(self) -> None:
        """End the calls of peers that are under way; their callers are told when the link ends."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _on_call(self, caller: ControllerName, request: bytes, reply: Reply) -> None:
        try:
            self._loop.call_soon_threadsafe(self._begin, caller, request, reply)
        except RuntimeError:
            return  # the loop is closed: this member stops, and its links with it

    def _begin(self, caller: ControllerName, request: bytes, reply: Reply) -> None:
        if self._handler is None:
            return
        task = self._loop.create_task(_answer(self._handler, caller, request, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _answer(handler: Handler, caller: ControllerName, request: bytes, reply: Reply) -> None:
    reply(await handler(caller, request))


def _settle(future: asyncio.Future[CallOutcome], outcome: CallOutcome) -> None:
    if not future.done():
        future.set_result(outcome)
