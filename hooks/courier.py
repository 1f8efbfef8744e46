"""
The loop that delivers: takes what is due, has it sent, and writes what came of it.

Here: one task for each delivery that is out, one thread for the store. Not here: what is due (``desk``), sending
(``webhook``, ``commands``), reading (``server``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Protocol, TypeVar

import msgspec

from rollcall_ha.hooks.desk import Desk, Outcome
from rollcall_ha.hooks.store import Store, Waiting
from rollcall_ha.node.telemetry import get_logger

LOOK_MS = 1_000
"""How soon ``rollcall hooks retry`` is heard of."""
COUNT_DEAD_MS = 5_000
STOP_MS_MAX = 5_000
"""What is out when the process is to stop has so long; then it is out again at the next start."""

T = TypeVar("T")
_log = get_logger("hooks")


class _Typed(msgspec.Struct):
    type: str


_decode_typed = msgspec.json.Decoder(_Typed).decode


class Sender(Protocol):
    """Delivers for one hook."""

    async def deliver(self, identity: str, kind: str, body: bytes) -> Outcome: ...

    async def close(self) -> None: ...


class Courier:
    """The carrier of one event loop."""

    def __init__(
        self, desk: Desk, store: Store, senders: Mapping[str, Sender], *, thread: Executor, now_ms: Callable[[], int]
    ) -> None:
        """``thread``: has one thread, the only one that uses ``desk`` and ``store``; ``now_ms``: UTC."""
        self._desk, self._store, self._senders = desk, store, senders
        self._thread, self._now_ms = thread, now_ms
        self._wake = asyncio.Event()
        self.dead: dict[str, int] = {}
        """Dead letters by hook, as they were counted last."""
        self._counted_ms = 0

    @property
    def desk(self) -> Desk:
        """For metrics, and to ask whether it is full."""
        return self._desk

    async def on_store(self, call: Callable[..., T], *arguments: object) -> T:
        """``call`` on the thread of the store."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

    def wake(self) -> None:
        """Something was added."""
        self._wake.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop``. Raises ``sqlite3.Error``: the store cannot be written; the process has to end."""
        out: dict[asyncio.Task[Outcome], Waiting] = {}
        stopping = asyncio.create_task(stop.wait())
        try:
            done: list[tuple[Waiting, Outcome]] = []
            while not stop.is_set():
                self._wake.clear()
                taken, due_ms = await self.on_store(self._turn, done)
                for one, body in taken:
                    out[asyncio.create_task(self._deliver(one, body))] = one
                woken = asyncio.create_task(self._wake.wait())
                pause_ms = LOOK_MS if due_ms is None else max(0, min(LOOK_MS, due_ms - self._now_ms()))
                await asyncio.wait(
                    {*out, woken, stopping}, timeout=pause_ms / 1000, return_when=asyncio.FIRST_COMPLETED
                )
                woken.cancel()
                done = _ended(out)
            if out:
                await asyncio.wait(out, timeout=STOP_MS_MAX / 1000)
            await self.on_store(self._desk.settle, [*done, *_ended(out)], self._now_ms())
        finally:
            for task in (*out, stopping):
                task.cancel()
            for sender in self._senders.values():
                await sender.close()

    def _turn(self, done: Sequence[tuple[Waiting, Outcome]]) -> tuple[list[tuple[Waiting, bytes]], int | None]:
        now_ms = self._now_ms()
        self._desk.settle(done, now_ms)
        self._desk.look(now_ms)
        if now_ms - self._counted_ms >= COUNT_DEAD_MS:
            self._counted_ms, self.dead = now_ms, self._store.dead_by_hook()
        taken = [(one, self._store.body(one.seq)) for one in self._desk.take(now_ms)]
        return taken, self._desk.next_due_ms()

    async def _deliver(self, one: Waiting, body: bytes) -> Outcome:
        outcome = await self._senders[one.hook].deliver(one.id, _decode_typed(body).type, body)
        if outcome.is_delivered:
            _log.info("delivered", hook=one.hook, id=one.id, tries=one.tries + 1)
        else:
            _log.warning("not_delivered", hook=one.hook, id=one.id, tries=one.tries + 1, reason=outcome.reason)
        return outcome


def _ended(out: dict[asyncio.Task[Outcome], Waiting]) -> list[tuple[Waiting, Outcome]]:
    """Those that have ended, out of ``out``; a fault of ours is a failure, and not a lane that stands for ever."""
    found = []
    for task in [task for task in out if task.done()]:
        error = task.exception()
        outcome = task.result() if error is None else Outcome(is_delivered=False, reason=f"internal: {error!r}")
        found.append((out.pop(task), outcome))
    return found
