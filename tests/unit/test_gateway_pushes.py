"""Pushes to RocketMQ brokers, some of which take a 1008 and never answer: the silence of one costs nobody else."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from rollcall_ha.api.broker_port.port import BrokerPortServer
from rollcall_ha.api.rocketmq.controller.pushes import (
    DIALS_AGAIN_MAX,
    DIALS_MAX,
    RocketmqPushes,
)
from rollcall_ha.api.rocketmq.controller.replicas import RocketmqReplicas
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    Incarnation,
    LogOffset,
    MasterEpoch,
    ReplicaKind,
    SessionOrdinal,
    SetKey,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.replies import Done, SetView
from rollcall_ha.controller.contract.values import ReplicaDescription, SetConfiguration
from rollcall_ha.controller.core.actions import SendProbe
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.controller.runtime.session_state import ProbeOutcome
from rollcall_ha.deploy.local.processes import free_ports
from rollcall_ha.node.remoting.asking import dial
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingServer
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.remoting.links import LinkLimits
from tests.support.frames import QuietHandler
from tests.support.rocketmq_wire import JavaListener
from tests.support.runtime_controller import until
from tests.support.set_views import shown, shown_member
from tests.support.sim_kernel import MS, SECOND, Host, Kernel, Process
from tests.support.sim_loop import SimLoop
from tests.support.sim_net import SimNet

MASTER = 1


@dataclass(slots=True)
class SilentListener(QuietHandler):
    """Takes everything, answers nothing; ``told``: (set, epoch) of each 1008 that came."""

    told: set[tuple[int, int]] = field(default_factory=set)

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.code == 1008:
                fields = frame.ext_fields or {}
                self.told.add((int(fields["syncStateSetEpoch"]), int(fields["masterEpoch"])))


@dataclass(slots=True, kw_only=True)
class Stage:
    pushes: RocketmqPushes
    silent: SilentListener
    silent_address: str
    healthy: JavaListener
    healthy_address: str


def play(scenario: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        silent, healthy = SilentListener(), JavaListener(ha_address="127.0.0.1:7")
        server = RemotingServer(silent, limits=LinkLimits(connections_max=10_000))
        (number,) = free_ports(1)
        await server.start("127.0.0.1", number)
        pushes = RocketmqPushes(_service(), cast("RocketmqReplicas", SimpleNamespace(entered=_entered)))
        stage = Stage(
            pushes=pushes,
            silent=silent,
            silent_address=f"127.0.0.1:{number}",
            healthy=healthy,
            healthy_address=await healthy.start(),
        )
        try:
            await scenario(stage)
        finally:
            await pushes.stop()
            await server.stop()
            await healthy.stop()

    asyncio.run(main())


def _service() -> ControllerService:
    duties = SimpleNamespace(is_active=True, handle_notified=lambda *_: None)
    ports = SimpleNamespace(new_request_id=lambda: "r")
    return cast("ControllerService", SimpleNamespace(duties=duties, ports=ports, now_ns=time.monotonic_ns))


async def _submit(*_args: Any, **_named: Any) -> Done:
    return Done()


async def _entered(_key: SetKey, _epoch: MasterEpoch) -> None: ...


def view(number_of_set: int, epoch: int, *addresses: str) -> SetView:
    """A set with one member per address, numbered from 1; its SyncStateSetEpoch is its number."""
    name = f"s{number_of_set}"
    return shown(
        set_key=SetKey(cluster=ClusterName("c"), name=BrokerName(name)),
        index=epoch,
        master=BrokerId(MASTER),
        master_incarnation=Incarnation("i"),
        master_epoch=MasterEpoch(epoch),
        sync_state_set=(BrokerId(MASTER),),
        sync_state_set_epoch=SyncStateSetEpoch(number_of_set),
        configuration=SetConfiguration(),
        members=tuple(
            replace(
                shown_member(number),
                incarnation=Incarnation(f"{name}-{number}"),
                description=ReplicaDescription(address=address, ha_address="", kind=ReplicaKind.ROCKETMQ),
            )
            for number, address in enumerate(addresses, start=1)
        ),
        has_entered=True,
        start_offset=LogOffset(0),
    )


async def tell_twice(stage: Stage, count: int) -> None:
    """``count`` sets of two silent brokers hear of epoch 1, and as soon as some have, of epoch 2."""
    silent = stage.silent_address
    for number in range(count):
        stage.pushes.announce(view(number, 1, silent, silent))
    await until(lambda: len(stage.silent.told) >= min(count, DIALS_MAX))
    for number in range(count):
        stage.pushes.announce(view(number, 2, silent, silent))
    await until(lambda: all((number, 2) in stage.silent.told for number in range(count)))


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer is waited for far longer than these tests wait: what stands behind one is never done in time."""
    monkeypatch.setattr("rollcall_ha.api.rocketmq.controller.pushes.ANSWER_MS_MAX", 60_000)
    # A milestone that the controllers do not take is a failed push: the broker is told again.
    monkeypatch.setattr("rollcall_ha.controller.runtime.broker_requests.submit", _submit)


def test_a_newer_view_is_told_at_once_whatever_an_older_push_waits_for() -> None:
    """The push of epoch 1 waited 2 s for a silent broker's answer, and that of epoch 2 stood behind it."""

    async def scenario(stage: Stage) -> None:
        await tell_twice(stage, 20)

    play(scenario)


@pytest.mark.slow
def test_a_silent_broker_holds_up_neither_other_members_of_its_set_nor_other_sets() -> None:
    """The second try of a member waited for the silent one's answer, and 512 silent ones took every place."""

    async def scenario(stage: Stage) -> None:
        healthy, silent = stage.healthy_address, stage.silent_address
        for number in range(100):
            stage.pushes.announce(view(number, 1, silent, silent))
        (closed,) = free_ports(1)
        late = JavaListener()
        stage.pushes.announce(view(1_000, 1, healthy, silent, f"127.0.0.1:{closed}"))
        await until(lambda: (1_000, 1) in stage.silent.told)
        await late.start(closed)
        await until(lambda: [frame.code for frame in late.pushed] == [1008, 906])
        await late.stop()
        assert [frame.code for frame in stage.healthy.pushed] == [1008, 906]

    play(scenario)


def test_links_to_silent_brokers_are_bounded_and_the_oldest_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kept until their time was over, they would be as many as there are brokers."""
    monkeypatch.setattr("rollcall_ha.api.rocketmq.controller.pushes.LINKS_MAX", 10)
    monkeypatch.setattr("rollcall_ha.api.rocketmq.controller.pushes.DIALS_MAX", 4)
    dialled: list[RemotingConnection] = []
    open_at_once: list[int] = []

    async def counted(address: str, *, timeout_ms: int) -> RemotingConnection:
        # At this end: on a busy machine the other one hears of a link that was closed when many more have come.
        dialled.append(await dial(address, timeout_ms=timeout_ms))
        open_at_once.append(sum(link.is_open for link in dialled))
        return dialled[-1]

    monkeypatch.setattr("rollcall_ha.api.rocketmq.controller.pushes.dial", counted)

    async def scenario(stage: Stage) -> None:
        for number in range(40):
            stage.pushes.announce(view(number, 1, stage.silent_address))
        await until(lambda: len(stage.silent.told) == 40)
        assert max(open_at_once) <= 10 + 4 + DIALS_AGAIN_MAX
        stage.pushes.announce(view(41, 1, stage.healthy_address))
        # Its link may be the one that makes room for a further try at a silent broker: then it is told twice.
        await until(lambda: [code for code, _ in groupby(frame.code for frame in stage.healthy.pushed)] == [1008, 906])

    play(scenario)


def test_a_set_is_forgotten_when_all_is_told_and_a_broker_that_starts_again_is_told_anew() -> None:
    async def scenario(stage: Stage) -> None:
        slave = JavaListener()
        members = (stage.healthy_address, await slave.start())
        stage.pushes.announce(view(1, 1, *members))
        await until(lambda: len(slave.pushed) == 2 and not stage.pushes.under_way)
        stage.pushes.announce(view(1, 1, *members))
        assert not stage.pushes.under_way
        again = view(1, 1, *members)
        restarted = replace(again.members[1], incarnation=Incarnation("started again"))
        stage.pushes.announce(replace(again, members=(again.members[0], restarted)))
        await until(lambda: [frame.code for frame in slave.pushed] == [1008, 906, 1008, 906])
        await slave.stop()

    play(scenario)


@pytest.mark.slow
@pytest.mark.parametrize(("was_entered", "records"), [(False, 1), (True, 0)])
def test_a_role_was_on_record_again_when_the_next_leader_told_it_once_more(
    monkeypatch: pytest.MonkeyPatch, *, was_entered: bool, records: int
) -> None:
    """By the second telling, 73 ms, the lake had a failover whose role took 926."""
    recorded: list[Any] = []

    async def submit(_service: Any, command: Any, **_named: Any) -> Done:
        recorded.append(command)
        return Done()

    monkeypatch.setattr("rollcall_ha.controller.runtime.broker_requests.submit", submit)

    async def scenario(stage: Stage) -> None:
        stage.pushes.announce(replace(view(1, 1, stage.healthy_address), has_entered=was_entered))
        await until(lambda: stage.pushes.under_way == 0)
        assert stage.pushes.sent["1008 taken"] == 1

    play(scenario)
    assert len(recorded) == records


def test_two_hundred_sets_of_silent_brokers_hear_of_their_next_masters_without_waiting_for_answers() -> None:
    """It took 1.8 s in the middle."""

    async def scenario(stage: Stage) -> None:
        await tell_twice(stage, 200)

    play(scenario)


def on_a_busy_loop(
    stalls_ms: Sequence[tuple[int, int]],
    answers_at_ms: int,
    ask: Callable[[asyncio.Future[None]], Coroutine[Any, Any, str]],
) -> str:
    """The finding of ``ask``, if its peer answers then and the loop stands still so often."""
    kernel = Kernel(1)
    process = Process(Host(kernel, "c1"), "c1")
    loop = SimLoop(process, SimNet(kernel), address="192.0.2.7", on_fault=lambda fault: pytest.fail(str(fault)))
    answered: asyncio.Future[None] = loop.create_future()

    def answer() -> None:
        if not answered.done():
            answered.set_result(None)

    for at_ms, length_ms in stalls_ms:
        kernel.at(at_ms * MS, "stall", process.pause)
        kernel.at((at_ms + length_ms) * MS, "go on", process.resume)
    kernel.at(answers_at_ms * MS, "answer", lambda: (loop.call_soon(answer), None)[1])
    task = loop.create_task(ask(answered))
    kernel.run_until(60 * SECOND, stop=task.done)
    return task.result()


@pytest.mark.parametrize(("stalls_ms", "answers_at_ms", "is_late"), [
    ((), 499, False), ((), 510, True), (((100, 2_000),), 2_150, False), (((100, 700), (900, 700), (1_700, 700)), 2_450, False),
    (((100, 2_000),), 3_000, True),
])  # fmt: skip
def test_a_busy_loop_is_not_taken_for_a_silent_broker(
    stalls_ms: tuple[tuple[int, int], ...], answers_at_ms: int, is_late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All masters lost at once: the loop's own lateness used up the 500 ms of its dials, and winners heard last."""

    async def dialled(answered: asyncio.Future[None]) -> str:
        async def connected(address: str, *, timeout_ms: int) -> RemotingConnection:
            await answered
            return cast("RemotingConnection", Mock())

        monkeypatch.setattr("rollcall_ha.api.rocketmq.controller.pushes.dial", connected)
        pushes = RocketmqPushes(_service(), cast("RocketmqReplicas", None))
        try:
            async with pushes._link_to("java:1", asyncio.Semaphore(1)):
                return "in time"
        except TimeoutError:
            return "late"

    assert on_a_busy_loop(stalls_ms, answers_at_ms, dialled) == ("late" if is_late else "in time")


@pytest.mark.parametrize(("stalls_ms", "answers_at_ms", "outcome"), [
    ((), 499, ProbeOutcome.REFUSED), ((), 510, ProbeOutcome.NO_ANSWER), (((100, 2_000),), 2_150, ProbeOutcome.REFUSED),
])  # fmt: skip
def test_a_busy_loop_does_not_keep_a_dead_master_until_its_timeout(
    stalls_ms: tuple[tuple[int, int], ...], answers_at_ms: int, outcome: ProbeOutcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refusal that stood there was taken for no answer; after five of them only the heartbeats' timeout is left."""

    async def probed(answered: asyncio.Future[None]) -> str:
        async def refused(address: str, *, timeout_ms: int, expected: object) -> RemotingConnection:
            async with asyncio.timeout(timeout_ms / 1000):
                await answered
            raise ConnectionRefusedError

        monkeypatch.setattr("rollcall_ha.api.broker_port.port.dial", refused)
        service = SimpleNamespace(live=SimpleNamespace(timing=SimpleNamespace(probe_timeout_ms=500)))
        probe = SendProbe(
            set_key=SetKey(cluster=ClusterName("c"), name=BrokerName("a")),
            broker_id=BrokerId(1),
            incarnation=Incarnation("x"),
            session_ordinal=SessionOrdinal(1),
            address="java:1",
            kind=ReplicaKind.ROCKETMQ,
        )
        return (await BrokerPortServer(cast("ControllerService", service)).probe(probe))[0]

    assert on_a_busy_loop(stalls_ms, answers_at_ms, probed) is outcome


def test_a_winner_that_is_asked_again_does_not_stand_behind_the_slaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Later tries of all slaves, which wait for winners, took every place of later tries."""
    tries: Counter[str] = Counter()
    hanging = 0

    async def flaky(address: str, *, timeout_ms: int) -> RemotingConnection:
        nonlocal hanging
        tries[address] += 1
        if tries[address] == 1:
            raise ConnectionResetError
        if address.startswith("slave"):
            hanging += 1
            await asyncio.Event().wait()
        return await dial(address, timeout_ms=timeout_ms)

    monkeypatch.setattr("rollcall_ha.api.rocketmq.controller.pushes.dial", flaky)
    monkeypatch.setattr("rollcall_ha.api.rocketmq.controller.pushes.CONNECT_MS_MAX", 60_000)

    async def scenario(stage: Stage) -> None:
        for number in range(DIALS_AGAIN_MAX):
            stage.pushes.announce(view(number, 1, f"master{number}", f"slave{number}"))
        await until(lambda: hanging == DIALS_AGAIN_MAX)
        stage.pushes.announce(view(100, 1, stage.healthy_address))
        await until(lambda: [frame.code for frame in stage.healthy.pushed] == [1008, 906])

    play(scenario)
