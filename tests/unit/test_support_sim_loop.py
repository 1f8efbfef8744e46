"""The simulated event loop against the real ones: the same little programs tell the same story on all three."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import uvloop

from rollcall_ha.controller.contract.ids import BrokerId, FlushMode, LogOffset, MasterEpoch
from rollcall_ha.deploy.local.processes import free_ports
from rollcall_ha.ha.links import FollowTarget
from rollcall_ha.ha.transport import monotonic_ms
from rollcall_ha.node.remoting import receive
from rollcall_ha.node.remoting.connection import (
    FrameHandler,
    LinkClosed,
    RemotingConnection,
    RemotingServer,
    RemotingTimeout,
    connect,
)
from rollcall_ha.node.remoting.frame import Frame
from tests.support.ha_logs import MappedLog
from tests.support.ha_pair import identity, reign
from tests.support.ha_replica import MasterReplica, SlaveReplica
from tests.support.sim_kernel import SECOND, Host, Kernel, Process
from tests.support.sim_loop import SimExecutor, SimLoop
from tests.support.sim_net import SimNet
from tests.support.sim_streams import simulated_sockets

Program = Callable[["Stage"], Coroutine[Any, Any, None]]
REAL = (asyncio.new_event_loop, uvloop.new_event_loop)


class Stage:
    """What a program has: a place to tell what it sees, an address, a thread."""

    def __init__(
        self, host: str, port: int, thread: Executor, folder: Path = Path(), clock_ms: Callable[[], int] = monotonic_ms
    ) -> None:
        self.told: list[str] = []
        self.host, self.port, self.thread = host, port, thread
        self.folder, self.clock_ms = folder, clock_ms

    def tell(self, what: object) -> None:
        self.told.append(str(what))


def told_by_a_real_loop(program: Program, make: Callable[[], asyncio.AbstractEventLoop], folder: Path) -> list[str]:
    with ThreadPoolExecutor(max_workers=1) as thread:
        stage = Stage("127.0.0.1", free_ports(1)[0], thread, folder)
        with asyncio.Runner(loop_factory=make) as runner:
            runner.run(program(stage))
    return stage.told


def told_by_the_simulation(program: Program, folder: Path, seed: int = 1) -> list[str]:
    kernel = Kernel(seed)
    process = Process(Host(kernel, "here", drift_ppm=120, clock_start_us=10**9), "here")
    faults: list[dict[str, Any]] = []
    loop = SimLoop(process, SimNet(kernel), address="192.0.2.7", on_fault=faults.append)
    thread = SimExecutor(process, "disk", delay_us_max=lambda: 900, on_end=lambda end: pytest.fail(str(end)))
    stage = Stage("here", 4000, thread, folder, clock_ms=lambda: process.host.monotonic_us() // 1_000)
    task = loop.create_task(program(stage))
    with simulated_sockets():
        kernel.run_until(60 * SECOND, stop=task.done)
    task.result()

    assert faults == []
    return stage.told


async def tasks_and_timers(stage: Stage) -> None:
    async def step(name: str, pause_s: float) -> str:
        stage.tell(f"{name} begins")
        await asyncio.sleep(pause_s)
        stage.tell(f"{name} ends")
        return name

    stage.tell(await asyncio.gather(step("slow", 0.06), step("quick", 0.02), step("at once", 0)))
    moved = asyncio.Event()
    asyncio.get_running_loop().call_later(0.02, moved.set)
    await moved.wait()
    try:
        async with asyncio.timeout(0.02):
            await asyncio.sleep(5)
    except TimeoutError:
        stage.tell("timeout")
    cancelled = asyncio.ensure_future(step("cancelled", 5))
    await asyncio.sleep(0.01)
    cancelled.cancel()
    stage.tell(await asyncio.gather(cancelled, return_exceptions=True))
    handle = asyncio.get_running_loop().call_later(0.01, stage.tell, "never")
    handle.cancel()
    loop = asyncio.get_running_loop()
    for number in range(3):
        loop.call_soon(stage.tell, f"soon {number}")
    loop.call_soon(loop.call_soon, stage.tell, "a turn later")
    loop.call_soon(stage.tell, "in this turn")
    before_s = loop.time()
    await asyncio.sleep(0.03)
    stage.tell(0.028 <= loop.time() - before_s < 30)


async def a_thread(stage: Stage) -> None:
    loop = asyncio.get_running_loop()
    orders = [loop.run_in_executor(stage.thread, lambda number=number: number * number) for number in range(4)]  # type: ignore[misc]

    def fails() -> None:
        raise OSError(28, "no space left")

    stage.tell(await asyncio.gather(*orders))
    try:
        await loop.run_in_executor(stage.thread, fails)
    except OSError as error:
        stage.tell(error)
    heard = asyncio.Event()
    stage.thread.submit(lambda: loop.call_soon_threadsafe(heard.set))
    await heard.wait()
    stage.tell("woken by the thread")


class _Echo:
    """Answers requests, all but code 9."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    def connected(self, connection: RemotingConnection) -> None:
        self._stage.tell(f"connected, has a peer: {bool(connection.peer.partition(':')[2])}")

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.code == 8:
                connection.close("asked to")
            elif frame.code != 9:
                connection.respond(frame, 0, body=frame.body)

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        del connection
        self._stage.tell(f"disconnected: {reason.partition(':')[0]}")


class _Client(_Echo):
    def connected(self, connection: RemotingConnection) -> None:
        """Told by ``connect``."""

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        """Told by the server."""


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 (of any loop)
            await asyncio.sleep(0.002)


async def remoting(stage: Stage) -> None:
    """Our own links: many requests at once, a body of 3 MB, a timeout, both ends closing, a refused port."""
    handler: FrameHandler = _Echo(stage)
    server = RemotingServer(handler)
    await server.start(stage.host, stage.port)
    link = await connect(stage.host, stage.port, _Client(stage), timeout_ms=2_000)
    answers = await asyncio.gather(*(link.request(1, body=b"%d" % n, timeout_ms=2_000) for n in range(200)))
    stage.tell([answer.body for answer in answers] == [b"%d" % n for n in range(200)])
    large = bytes(itertools.islice(itertools.cycle(range(251)), 3_000_000))
    stage.tell((await link.request(2, body=large, timeout_ms=5_000)).body == large)
    try:
        await link.request(9, timeout_ms=50)
    except RemotingTimeout:
        stage.tell("no answer")
    link.close("enough")
    await _until(lambda: len(server.links) == 0)
    other = await connect(stage.host, stage.port, _Client(stage), timeout_ms=2_000)
    try:
        await other.request(8, timeout_ms=2_000)
    except LinkClosed:
        stage.tell("closed by the server")
    await _until(lambda: len(server.links) == 0)
    await server.stop()
    try:
        await connect(stage.host, stage.port, _Client(stage), timeout_ms=2_000)
    except ConnectionRefusedError:
        stage.tell("refused")


async def ha_links(stage: Stage) -> None:
    """Two replicas: 1 MB by sendfile into the slave's map, a reign that ends, the next one, a master that stops."""
    mapped = MappedLog(stage.folder / "master", 4_000_000), MappedLog(stage.folder / "slave", 4_000_000)
    master = MasterReplica(mapped[0], clock_ms=stage.clock_ms)
    slave = SlaveReplica(mapped[1], clock_ms=stage.clock_ms)
    mapped[0].begin_epoch(1)
    mapped[0].append(bytes(range(250)) * 4_000)
    await master.server.start(stage.host, stage.port)
    master.server.open_reign(reign(1), LogOffset(0))
    slave.client.follow(_target(stage, 1))
    await _until(lambda: master.acks.get(BrokerId(2)) == 1_000_000)
    mapped[0].append(b"more")
    master.server.log_extended()
    master.server.confirm_moved(LogOffset(1_000_000))
    await _until(lambda: master.acks.get(BrokerId(2)) == 1_000_004 and slave.confirm == 1_000_000)
    stage.tell(f"{master.opened} {slave.told} {slave.closed}")
    master.server.end_reign("the next one begins")
    await _until(lambda: bool(slave.closed) and bool(master.closed))
    stage.tell(f"{master.closed} {slave.closed}")
    mapped[0].begin_epoch(2)
    mapped[0].append(b"of epoch 2")
    master.server.open_reign(reign(2), LogOffset(0))
    slave.client.follow(_target(stage, 2))
    await _until(lambda: master.acks.get(BrokerId(2)) == 1_000_014)
    stage.tell(f"{mapped[1].history.entries} {mapped[1].content() == mapped[0].content()}")
    await master.server.stop()
    await _until(lambda: len(slave.closed) >= 2)
    await slave.client.stop()
    stage.tell(f"{slave.closed[-1]} {slave.told}")


def _target(stage: Stage, epoch: int) -> FollowTarget:
    return FollowTarget(
        host=stage.host,
        port=stage.port,
        master=BrokerId(1),
        master_incarnation=identity(1).incarnation,
        master_epoch=MasterEpoch(epoch),
        is_learner=False,
        flush=FlushMode.ASYNC,
    )


@pytest.mark.slow
@pytest.mark.parametrize("program", [tasks_and_timers, a_thread, remoting, ha_links])
def test_a_program_does_the_same_on_the_simulated_loop_as_on_real_ones(program: Program, tmp_path: Path) -> None:
    """A fake is worth what it shares with the real thing."""
    folders = [tmp_path / name for name in ("simulated", "asyncio", "uvloop")]
    for folder in folders:
        folder.mkdir()
    simulated = told_by_the_simulation(program, folders[0])

    assert simulated
    for make, folder in zip(REAL, folders[1:], strict=True):
        assert told_by_a_real_loop(program, make, folder) == simulated


@pytest.mark.slow
def test_a_seed_gives_one_trace() -> None:
    """Byte for byte, or no failure could be seen again: also behind other worlds and tests of the same process."""

    def trace(seed: int, *spare_bytes: int) -> str:
        """``spare_bytes``: receive buffers that other links of this thread have left."""
        receive._shared.spares[:] = [bytearray(size) for size in spare_bytes]
        kernel = Kernel(seed)
        process = Process(Host(kernel, "here"), "here")
        loop = SimLoop(process, SimNet(kernel), address="here", on_fault=lambda context: pytest.fail(str(context)))
        thread = SimExecutor(process, "disk", delay_us_max=lambda: 900, on_end=lambda end: pytest.fail(str(end)))
        task = loop.create_task(remoting(Stage("here", 4000, thread)))
        kernel.run_until(60 * SECOND, stop=task.done)
        task.result()
        return kernel.trace_hash

    assert trace(3) == trace(3, 300_000) != trace(4)


def test_a_killed_process_runs_nothing_and_a_stopped_one_later() -> None:
    """SIGKILL between two lines of a coroutine: not even its ``finally`` runs. SIGSTOP: everything, when it goes on."""
    kernel = Kernel(1)
    told: list[str] = []

    async def program(name: str) -> None:
        try:
            await asyncio.sleep(1)
            told.append(f"{name} slept")
        finally:
            told.append(f"{name} ended")

    processes = {name: Process(Host(kernel, name), name) for name in ("killed", "stopped")}
    net = SimNet(kernel)
    loops = [
        SimLoop(process, net, address=name, on_fault=lambda context: pytest.fail(str(context)))
        for name, process in processes.items()
    ]
    for loop, name in zip(loops, processes, strict=True):
        loop.create_task(program(name))
    kernel.run_until(SECOND // 2)
    processes["killed"].kill()
    processes["stopped"].pause()
    kernel.run_until(3 * SECOND)

    assert told == []
    processes["stopped"].resume()
    kernel.run_until(4 * SECOND)

    assert told == ["stopped slept", "stopped ended"]


def test_a_world_that_was_over_left_a_real_loop_open_for_the_next_test() -> None:
    """A ``gather`` on the way out asked for the thread's loop, and was made one that nobody closed."""
    kernel = Kernel(1)
    process = Process(Host(kernel, "here"), "here")
    loop = SimLoop(process, SimNet(kernel), address="here", on_fault=lambda context: pytest.fail(str(context)))

    async def program() -> None:
        try:
            await asyncio.sleep(10)
        finally:
            await asyncio.gather(return_exceptions=True)

    loop.create_task(program())
    kernel.run_until(SECOND)
    before, policy = asyncio.get_event_loop_policy(), asyncio.DefaultEventLoopPolicy()
    asyncio.set_event_loop_policy(policy)  # as of a process that has run no loop yet
    try:
        loop.dispose()
        with pytest.raises(RuntimeError, match="no current event loop"):
            policy.get_event_loop()
    finally:
        asyncio.set_event_loop_policy(before)


def test_a_cut_delays_a_link_and_a_reset_ends_it() -> None:
    """As TCP: what is held arrives late; after a reset both ends hear of the end."""
    kernel = Kernel(1)
    net = SimNet(kernel)
    faults: list[dict[str, Any]] = []
    here, there = (Process(Host(kernel, name), name) for name in ("here", "there"))
    client, server = (SimLoop(one, net, address=one.name, on_fault=faults.append) for one in (here, there))
    stage = Stage("there", 4000, ThreadPoolExecutor(max_workers=1))
    listening = RemotingServer(_Echo(stage))
    server.create_task(listening.start("there", 4000))
    kernel.run_until(SECOND)
    heard: list[str] = []

    async def asks() -> None:
        link = await connect("there", 4000, _Client(stage), timeout_ms=2_000)
        net.cut("there", "here")
        kernel.after(2 * SECOND, "heal", lambda: net.heal("there", "here"))
        heard.append((await link.request(1, body=b"late", timeout_ms=5_000)).body.decode())
        net.break_some(1.0)
        try:
            await link.request(1, timeout_ms=5_000)
        except LinkClosed as error:
            heard.append(str(error).partition("]")[2].strip())

    task = client.create_task(asks())
    kernel.run_until(20 * SECOND)
    task.result()

    assert heard == ["late", "Connection reset by peer"]
    assert len(listening.links) == 0
    assert faults == []
