"""
An asyncio event loop in the simulation: one per simulated process, on the kernel's time, chance and network.

Here: turns, timers, executors, and the calls of a loop that our shells make. Not here: bytes (``sim_streams``), time and
processes (``sim_kernel``), networks (``sim_net``). ``tests/unit/test_support_sim_loop.py`` runs the same programs on this
loop and on the real ones.
Rule 1: a turn runs what was ready when it began; what it makes ready runs in a later turn, a moment later.
Rule 2: a process that is stopped has no turns; one that is dead never has any again. Its tasks are kept, never
collected: a coroutine that is collected runs its ``finally``, and a dead process runs nothing.
Rule 3: time is that of ``uvloop``: whole milliseconds, read once per turn and at each timer.
Rule 4: an error that nobody handles is a finding: ``on_fault`` hears it.
Rule 5: what the product keeps per thread is kept per loop: many simulated processes, and many worlds, share one thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import errno
import socket
import sys
from asyncio import events
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from concurrent.futures import Executor, Future
from typing import Any, TypeVar

from rollcall_ha.node.remoting.receive import _shared as _receive_shared
from tests.support.sim_kernel import MS, Kernel, Process, Timer
from tests.support.sim_net import End, SimNet
from tests.support.sim_streams import Address, SimServer, SimSocket, SimTransport, Stream

T = TypeVar("T")
TURN_US = 20
"""Between two turns of a loop that has more to do."""
THREAD_US_MAX = 60
"""How late a loop hears of another thread."""
_FIRST_NUMBER = 1_000_000
"""Above every real descriptor."""


class SimTimerHandle(asyncio.TimerHandle):
    """Cancelled at the kernel as well."""

    __slots__ = ("timer",)
    timer: Timer

    def cancel(self) -> None:
        if not self.cancelled():
            self.timer.cancel()
        super().cancel()


_EventLoop: Any = asyncio.AbstractEventLoop
"""Untyped: of the abstract methods those are here that our shells call."""


class SimLoop(_EventLoop):  # type: ignore[misc]
    """See the module. ``on_fault`` gets what ``call_exception_handler`` was told; ``address`` is the host's IP."""

    def __init__(
        self,
        process: Process,
        net: SimNet,
        *,
        address: str,
        on_fault: Callable[[dict[str, Any]], None],
    ) -> None:
        self.process = process
        self.kernel: Kernel = process.kernel
        self.net = net
        self.address = address
        self.sockets: dict[int, SimSocket] = {}
        self._on_fault = on_fault
        self._ready: deque[asyncio.Handle] = deque()
        self._is_turn_due = self._is_in_turn = False
        process.on_idle = self._idle
        self._turn_label = f"turn {process.name}"
        self._timer_label = f"timer {process.name}"
        self._now_ms = process.host.monotonic_us() // MS
        self._numbers = _FIRST_NUMBER
        self._readers: dict[int, tuple[Callable[..., object], tuple[Any, ...]]] = {}
        self._writers: dict[int, tuple[Callable[..., object], tuple[Any, ...]]] = {}
        self._looks: dict[int, None] = {}
        self._tasks: dict[asyncio.Future[Any], None] = {}
        self._spares: list[bytearray] = []

    # --- turns -------------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        # What the kernel hands to this process now is handled by a turn that follows at once (``_idle``).
        if not self._is_turn_due and (self._is_in_turn or self.kernel.running is not self.process):
            self._is_turn_due = True
            self.kernel.after(TURN_US, self._turn_label, self._turn_or_wait)

    def _idle(self) -> None:
        if self._ready and not self._is_turn_due and not self._is_in_turn:
            self._turn()

    def _turn_or_wait(self) -> None:
        self.process.run(self._turn_label, self._turn)

    def _turn(self) -> None:
        self._is_turn_due, self._is_in_turn = False, True
        self._now_ms = self.process.host.monotonic_us() // MS
        ready = self._ready
        outer = events._get_running_loop()
        events._set_running_loop(self)
        # Rule 5. A spare buffer may be larger than was asked for, and a link reads as much as it has room for: with those
        # of other processes and of worlds before this one, a seed had one trace alone and another one behind other seeds.
        outer_spares, _receive_shared.spares = _receive_shared.spares, self._spares
        try:
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle.cancelled():
                    handle._run()
                    if not self.process.is_alive:
                        return
        finally:
            events._set_running_loop(outer)
            _receive_shared.spares = outer_spares
            if ready:
                self._wake()
            self._is_in_turn = False

    def is_running(self) -> bool:
        return events._get_running_loop() is self

    def is_closed(self) -> bool:
        return not self.process.is_alive

    def get_debug(self) -> bool:
        return False

    def time(self) -> float:
        """Rule 3, in seconds."""
        if events._get_running_loop() is not self:
            self._now_ms = self.process.host.monotonic_us() // MS
        return self._now_ms / 1000

    def call_soon(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._is_turn_due and events._get_running_loop() is not self:
            self._wake()
        return handle

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        """From another thread of this process, which runs between the turns."""
        if not self.process.is_alive:
            raise RuntimeError("Event loop is closed")
        handle = asyncio.Handle(callback, args, self, context)
        delay_us = self.kernel.random.randrange(1, THREAD_US_MAX)
        self.kernel.after(delay_us, "thread", lambda: self.process.run("thread", lambda: self._add(handle)))
        return handle

    def _add(self, handle: asyncio.Handle) -> None:
        self._ready.append(handle)
        self._wake()

    def call_later(
        self, delay: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        delay_ms = round(delay * 1000)
        if delay_ms <= 0:
            return self.call_soon(callback, *args, context=context)
        now_us = self.process.host.monotonic_us()
        self._now_ms = now_us // MS
        due_ms = self._now_ms + delay_ms
        handle = SimTimerHandle(due_ms / 1000, callback, args, self, context)
        real_us = self.process.host.real_delay_us(due_ms * MS - now_us)
        handle.timer = self.kernel.after(real_us, self._timer_label, lambda: self._fire(handle))
        return handle

    def _fire(self, handle: asyncio.TimerHandle) -> None:
        if not handle.cancelled():
            self.process.run(self._timer_label, lambda: self._fired(handle))

    def _fired(self, handle: asyncio.TimerHandle) -> None:
        self._ready.append(handle)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        return self.call_later(when - self.time(), callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Nothing to count."""

    # --- tasks -------------------------------------------------------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: str | None = None,
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=name, context=context)
        # Rule 2; and not by the order in which a set of tasks is collected.
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Future[Any]) -> None:
        self._tasks.pop(task, None)

    def dispose(self) -> None:
        """The world is over: end the coroutines that are left, quietly, whatever they do on their way out."""
        # No loop runs here: a ``gather`` on the way out would have a real one made for this thread, and the test that is
        # running when it is collected would fail for its open sockets.
        asyncio.set_event_loop(None)
        hook, sys.unraisablehook = sys.unraisablehook, _ignore
        try:
            for task in list(self._tasks):
                left: Any = task
                left._log_destroy_pending = False
                for _ in range(3):
                    with contextlib.suppress(BaseException):
                        left.get_coro().close()
            self._tasks.clear()
        finally:
            sys.unraisablehook = hook
        self._ready.clear()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if self.process.is_alive:
            self._on_fault(context)

    def run_in_executor(self, executor: Executor | None, func: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        assert executor is not None, "a simulated process has no threads but those that it was given"
        return asyncio.wrap_future(executor.submit(func, *args), loop=self)

    # --- the network -------------------------------------------------------------------------------------------------

    def new_number(self) -> int:
        """Of a socket, or a port, that nobody has."""
        self._numbers += 1
        return self._numbers

    def peer_of(self, end: End) -> Address:
        """Where the other end of an accepted connection came from."""
        return self.net.address_of(end.peer.process.host.name), 1 + self.new_number() % 60_000

    def listen(self, address: Address, accept: Callable[[End], None]) -> None:
        """Raises ``OSError``: the address is taken."""
        where = f"{address[0]}:{address[1]}"
        if self.net.is_listening(where):
            raise OSError(errno.EADDRINUSE, f"address {where} is in use")
        self.net.listen(self.process, where, accept)

    def unlisten(self, address: Address) -> None:
        """New connections are refused."""
        self.net.unlisten(self.process, f"{address[0]}:{address[1]}")

    async def _connect(self, host: str, port: int) -> Stream:
        """Raises ``ConnectionRefusedError``; over a cut it never returns."""
        done: asyncio.Future[Stream] = self.create_future()

        def opened(end: End) -> None:
            if done.done():
                end.close()
                return
            local = (self.address, 1 + self.new_number() % 60_000)
            done.set_result(Stream(self, end, local, (host, port)))

        def refused() -> None:
            if not done.done():
                done.set_exception(ConnectionRefusedError(errno.ECONNREFUSED, f"connect to {host}:{port} refused"))

        self.net.connect(self.process, f"{host}:{port}", self.net.host_of(host), opened, refused)
        try:
            return await done
        except asyncio.CancelledError:
            if done.done() and not done.cancelled() and done.exception() is None:
                done.result().close()
            raise

    async def create_connection(
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_options: Any
    ) -> tuple[SimTransport, Any]:
        stream = await self._connect(host, port)
        protocol = protocol_factory()
        transport = SimTransport(stream, protocol)
        made: asyncio.Future[None] = self.create_future()
        # Behind ``connection_made``, as every loop has it.
        self.call_soon(_resolve, made)
        await made
        return transport, protocol

    async def create_server(
        self, protocol_factory: Callable[[], Any], host: str, port: int, **_options: Any
    ) -> SimServer:
        return SimServer(self, (host, port), protocol_factory)

    async def getaddrinfo(self, host: Any, port: Any, **_options: Any) -> Any:
        """Addresses are numbers here."""
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    async def sock_connect(self, sock: Any, address: Any) -> None:
        sock.attach(await self._connect(*address))

    # --- sockets of shells that read by themselves ---

    def add_reader(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        self._readers[fd] = (callback, args)
        self.look_at(fd)

    def remove_reader(self, fd: Any) -> bool:
        return self._readers.pop(fd, None) is not None

    def add_writer(self, fd: Any, callback: Callable[..., object], *args: Any) -> None:
        self._writers[fd] = (callback, args)
        self.look_at(fd)

    def remove_writer(self, fd: Any) -> bool:
        return self._writers.pop(fd, None) is not None

    def forget_socket(self, number: int) -> None:
        """It is closed."""
        self.sockets.pop(number, None)
        self._readers.pop(number, None)
        self._writers.pop(number, None)

    def look_at(self, number: int) -> None:
        """Something of this socket has changed: call its owner back in a turn, if that is wanted."""
        if number not in self._looks and (number in self._readers or number in self._writers):
            self._looks[number] = None
            self.call_soon(self._look, number)

    def _look(self, number: int) -> None:
        del self._looks[number]
        sock = self.sockets.get(number)
        for watched, is_due in ((self._readers, "is_readable"), (self._writers, "is_writable")):
            wanted = watched.get(number)
            if wanted is not None and sock is not None and getattr(sock, is_due):
                wanted[0](*wanted[1])
                # Level-triggered, as epoll: as long as it holds, in each turn.
                if number in watched and getattr(sock, is_due):
                    self.look_at(number)


def _ignore(_unraisable: object) -> None:
    """A coroutine that waits for something in its ``finally``."""


def _resolve(made: asyncio.Future[None]) -> None:
    if not made.done():
        made.set_result(None)


class SimExecutor(Executor):
    """One thread of a simulated process: one call after another, each somewhere between its order and its answer."""

    def __init__(
        self, process: Process, name: str, *, delay_us_max: Callable[[], int], on_end: Callable[[BaseException], None]
    ) -> None:
        """``on_end`` hears of what is no ``Exception``: the host lost its power inside of the call, say."""
        self._process = process
        self._label = f"{name} {process.name}"
        self._delay_us_max = delay_us_max
        self._on_end = on_end
        self._calls: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._is_busy = False

    def submit(self, fn: Callable[..., T], /, *args: Any, **named: Any) -> Future[T]:
        future: Future[T] = Future()
        self._calls.append((future, lambda: fn(*args, **named)))
        if not self._is_busy:
            self._is_busy = True
            self._next()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What was ordered is still done."""
        del wait
        if cancel_futures:
            for future, _call in self._calls:
                future.cancel()
            self._calls.clear()

    def _pause_us(self) -> int:
        return self._process.kernel.random.randrange(20, max(21, self._delay_us_max()))

    def _next(self) -> None:
        if not self._calls:
            self._is_busy = False
            return
        future, call = self._calls.popleft()
        self._process.after(self._pause_us(), self._label, lambda: self._do(future, call))

    def _do(self, future: Future[Any], call: Callable[[], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            self._next()
            return
        try:
            result = call()
        except Exception as error:  # noqa: BLE001 (it is the caller's)
            failure = error
            self._process.after(
                self._pause_us(), self._label, lambda: self._done(lambda: future.set_exception(failure))
            )
        except BaseException as end:  # noqa: BLE001 (the end of the process, or of its host)
            self._on_end(end)
        else:
            self._process.after(self._pause_us(), self._label, lambda: self._done(lambda: future.set_result(result)))

    def _done(self, tell: Callable[[], None]) -> None:
        tell()
        self._next()
