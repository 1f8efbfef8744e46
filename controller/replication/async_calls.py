"""
The asyncio shell of ``ports.PeerCalls``: one future per call, one task per call of a peer; and the way from the log's
thread to a loop, for all that wait for it (``outcome_of``, ``on_loop``).

Rule: a loop that is already closed is no error of that thread.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.ports import CallOutcome, PeerCalls, Reply
from rollcall_ha.node.tasks import Tasks

T = TypeVar("T")

Handler = Callable[[ControllerName, bytes], Awaitable[bytes]]
"""The answer to one call; it must not raise."""


class AsyncCalls:
    """The calls of one event loop's program."""

    def __init__(self, calls: PeerCalls) -> None:
        """Use it within a running loop, before the log starts."""
        self._calls = calls
        self._loop = asyncio.get_running_loop()
        self._handler: Handler | None = None
        self._tasks = Tasks()
        calls.answer_calls(self._on_call)

    def serve(self, handler: Handler) -> None:
        """Take calls from now on; one that comes before is told as lost to its caller when its time is up."""
        self._handler = handler

    async def call(self, peer: ControllerName, request: bytes) -> CallOutcome:
        """Ask ``peer``; never raises. A cancelled caller leaves its call to end by itself."""
        return await outcome_of(partial(self._calls.call, peer, request))

    async def stop(self) -> None:
        """End the calls of peers that are under way; their callers are told when the link ends."""
        await self._tasks.stop()

    def _on_call(self, caller: ControllerName, request: bytes, reply: Reply) -> None:
        on_loop(self._loop, self._begin, caller, request, reply)

    def _begin(self, caller: ControllerName, request: bytes, reply: Reply) -> None:
        if self._handler is not None:
            self._tasks.begin(_answer(self._handler, caller, request, reply))


async def _answer(handler: Handler, caller: ControllerName, request: bytes, reply: Reply) -> None:
    reply(await handler(caller, request))


async def outcome_of(begin: Callable[[Callable[[T], None]], None]) -> T:
    """What ``begin`` has its callback told, on any thread. A cancelled caller leaves it to end by itself."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    begin(partial(on_loop, loop, _settle, future))
    return await future


def on_loop(loop: asyncio.AbstractEventLoop, act: Callable[..., object], *arguments: object) -> None:
    """From any thread: have the loop do it soon. On one that is closed nobody waits any more."""
    # Raised, it would be an error of the log's thread.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(act, *arguments)


def _settle(future: asyncio.Future[T], outcome: T) -> None:
    if not future.done():
        future.set_result(outcome)
