"""
Whole controllers in one process: real service, journal and REST application on a ``MemoryGroup``.

No sockets: HTTP goes through ASGI, broker connections are a list of what was pushed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec
from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from rollcall_ha.api.rest.app import make_app
from rollcall_ha.api.rest.peers import Peers
from rollcall_ha.api.rest.relay import PeerDoor
from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.ids import ControllerName, FleetIncarnation
from rollcall_ha.controller.contract.replies import SetView
from rollcall_ha.controller.contract.session import ProbeAnswer
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.views import Problem
from rollcall_ha.controller.core.actions import SendProbe
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.replication.async_calls import AsyncCalls
from rollcall_ha.controller.replication.machine import FleetMachine
from rollcall_ha.controller.runtime.event_journal import EventJournal
from rollcall_ha.controller.runtime.metrics import ControllerMetrics
from rollcall_ha.controller.runtime.ports import BrokerPort
from rollcall_ha.controller.runtime.queries import Queries
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.controller.runtime.session_state import ConnectionId, ProbeOutcome
from rollcall_ha.controller.runtime.settings import ControllerAddresses, ServiceSettings
from rollcall_ha.node.telemetry import Telemetry
from tests.support.memory_log import MemoryGroup, MemoryLog
from tests.support.runtime_records import fails
from tests.support.scenarios import player

FLEET = FleetIncarnation("0123456789abcdef" * 2)
NAMES = (ControllerName("c1"), ControllerName("c2"), ControllerName("c3"))
SET = "/v1/sets/demo/broker-a"
DEADLINE_S = 30.0
"""Of a condition that comes true: reached only if it does not, however busy the machine is."""
PROPOSE_MS = 30_000
"""After this an outcome is unknown. As long as a condition's deadline: an order that is late on a busy machine is none."""


@dataclass(slots=True)
class SilentBrokers:
    """A broker port without brokers: keeps what was pushed, answers probes as told."""

    pushed: list[tuple[ConnectionId, bytes]] = field(default_factory=list)
    answer: tuple[ProbeOutcome, ProbeAnswer | None] = (ProbeOutcome.NO_ANSWER, None)
    announced: list[SetView] = field(default_factory=list)
    told: list[tuple[RequestCode, bytes]] = field(default_factory=list)

    def notify(self, connection: ConnectionId, body: bytes) -> bool:
        self.pushed.append((connection, body))
        return True

    def tell_brokers(self, code: RequestCode, body: bytes) -> None:
        self.told.append((code, body))

    def announce(self, view: SetView) -> None:
        self.announced.append(view)

    async def probe(self, probe: SendProbe) -> tuple[ProbeOutcome, ProbeAnswer | None]:
        return self.answer


class LateApps:
    """
    The applications of a group, made when the first of them is asked: most tests ask none by HTTP.

    All at once: one that is made for a question of another member would be late for that member's deadline.
    """

    def __init__(self) -> None:
        self._makers: dict[ControllerName, Callable[[], FastAPI]] = {}
        self._made: dict[ControllerName, FastAPI] = {}

    def of(self, name: ControllerName) -> FastAPI:
        self._made = self._made or {member: make() for member, make in self._makers.items()}
        return self._made[name]

    def add(self, name: ControllerName, make: Callable[[], FastAPI]) -> ASGIApp:
        """What answers as this member's application."""
        self._makers[name] = make

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            await self.of(name)(scope, receive, send)

        return answer


@dataclass(slots=True, kw_only=True)
class Controller:
    """One member, running."""

    name: ControllerName
    log: MemoryLog[FleetState]
    journal: EventJournal[FleetState]
    service: ControllerService
    queries: Queries
    peers: Peers
    calls: AsyncCalls
    apps: LateApps
    http: httpx.AsyncClient

    @property
    def app(self) -> FastAPI:
        return self.apps.of(self.name)


@dataclass(slots=True, kw_only=True)
class Group:
    """All members."""

    memory: MemoryGroup[FleetState]
    members: dict[ControllerName, Controller]

    def __getitem__(self, name: str) -> Controller:
        return self.members[ControllerName(name)]

    async def elect(self, name: str) -> Controller:
        """Let ``name`` lead, and wait until it answers with authority."""
        self.memory.elect(ControllerName(name))
        leader = self[name]
        await until(lambda: leader.service.authority().is_held)
        return leader

    def silence(self, *names: str) -> None:
        """No link to these members is up."""
        for name in names:
            self[name].log.answerer = None


def problem_of(answer: httpx.Response) -> Problem:
    assert answer.headers["content-type"] == "application/problem+json"
    return msgspec.json.decode(answer.content, type=Problem)


async def until(condition: Callable[[], Any]) -> None:
    """Return when it holds. Raises ``TimeoutError`` at the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - any condition of any thread
            await asyncio.sleep(0.002)


async def recorded(controller: Controller) -> None:
    """
    Return when all that this member has applied can be read from its journal.

    An operation is answered when it is applied; the journal's thread syncs its events a little later, on each member.
    """
    await until(lambda: controller.journal.synced_index == controller.service.published.index)


def settings_of(
    name: str,
    *,
    timing: Preset = Preset.NORMAL,
    names: tuple[str, ...] = NAMES,
    is_insecure: bool = True,
    propose_ms: int = PROPOSE_MS,
) -> ServiceSettings:
    """Settings with ports that nobody listens on."""
    return ServiceSettings(
        name=ControllerName(name),
        fleet_name="demo",
        fleet_incarnation=FLEET,
        timing_name=timing,
        timing=msgspec.structs.replace(PRESETS[timing], propose_timeout_ms=propose_ms, probe_timeout_ms=5_000),
        controllers={
            ControllerName(member): ControllerAddresses(
                raft=f"127.0.0.1:{1000 + number}",
                broker=f"127.0.0.1:{2000 + number}",
                rest=f"127.0.0.1:{3000 + number}",
            )
            for number, member in enumerate(names)
        },
        is_insecure=is_insecure,
    )


@asynccontextmanager
async def running_group(
    directory: Path,
    names: tuple[ControllerName, ...] = NAMES,
    *,
    make_port: Callable[[ControllerService], BrokerPort] = lambda _: SilentBrokers(),
    is_insecure: bool = True,
    propose_ms: int = PROPOSE_MS,
    timing: Preset = Preset.NORMAL,
) -> AsyncIterator[Group]:
    """Controllers on one memory log; nobody leads yet."""
    memory: MemoryGroup[FleetState] = MemoryGroup(FleetMachine, names, clock_ns=time.monotonic_ns, applies_at_once=True)
    apps = LateApps()
    members = {
        name: _start(
            settings_of(name, names=names, is_insecure=is_insecure, propose_ms=propose_ms, timing=timing),
            memory.members[name],
            directory / name,
            make_port,
            apps,
        )
        for name in names
    }
    group = Group(memory=memory, members=members)
    try:
        yield group
    finally:
        for member in members.values():
            await member.http.aclose()
            await member.calls.stop()
            await member.service.stop()
            member.log.stop()
            member.journal.stop()
            member.queries.close()


def play(
    directory: Path,
    scenario: Callable[[Group], Awaitable[None]],
    *,
    names: tuple[ControllerName, ...] = NAMES[:1],
    is_insecure: bool = True,
    propose_ms: int = PROPOSE_MS,
) -> None:
    """A scenario on a loop of its own, on a group that nobody leads yet."""

    async def main() -> None:
        async with running_group(directory, names, is_insecure=is_insecure, propose_ms=propose_ms) as group:
            await scenario(group)

    asyncio.run(main())


def play_led(directory: Path, scenario: Callable[[Controller], Awaitable[None]], *, is_insecure: bool = True) -> None:
    """As ``play``, on one controller that leads."""

    async def led(group: Group) -> None:
        await scenario(await group.elect("c1"))

    play(directory, led, is_insecure=is_insecure)


played, played_led = player(play), player(play_led)
"""``@played(names=...)`` above a coroutine makes a test of it."""


def _start(
    settings: ServiceSettings,
    log: MemoryLog[FleetState],
    directory: Path,
    make_port: Callable[[ControllerService], BrokerPort],
    apps: LateApps,
) -> Controller:
    telemetry = Telemetry()
    metrics = ControllerMetrics(telemetry.registry)
    synced: list[Callable[[], None]] = []

    def wake_readers() -> None:
        for wake in synced:
            wake()

    journal: EventJournal[FleetState] = EventJournal(
        directory,
        chain_head_of=lambda state: state.chain_head,
        fail=fails,
        on_synced=wake_readers,
    )
    service = ControllerService(settings=settings, log=log, journal=journal, metrics=metrics)
    synced.append(service.on_events_synced)
    queries = Queries(service)
    metrics.read_from(queries.reading)
    calls = AsyncCalls(log)
    peers = Peers(settings, calls)
    app = apps.add(settings.name, partial(make_app, service=service, queries=queries, peers=peers, telemetry=telemetry))
    calls.serve(PeerDoor(app).answer)
    journal.start()
    service.start(make_port(service))
    log.start()
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
    http = httpx.AsyncClient(transport=transport, base_url=f"http://{settings.own.rest}")
    return Controller(
        name=settings.name,
        log=log,
        journal=journal,
        service=service,
        queries=queries,
        peers=peers,
        calls=calls,
        apps=apps,
        http=http,
    )


# --- bodies of broker operations -------------------------------------------------------------------------------------


def broker_id_body(number: int, name: str = "broker-a") -> dict[str, Any]:
    return {
        "command": "ApplyBrokerId",
        "setKey": {"cluster": "demo", "name": name},
        "registerCode": f"{name}-{number}",
        "address": f"127.0.0.1:{4000 + number}",
    }


def register_body(number: int, name: str = "broker-a", expected: int = 2) -> dict[str, Any]:
    return {
        "command": "RegisterReplica",
        "setKey": {"cluster": "demo", "name": name},
        "brokerId": number,
        "registerCode": f"{name}-{number}",
        "incarnation": f"{number:032x}",
        "bootId": "boot",
        "storeId": f"store-{number}",
        "description": {"address": f"127.0.0.1:{4000 + number}", "haAddress": f"127.0.0.1:{5000 + number}"},
        "configuration": {"expectedReplicas": expected},
        "positions": {"lastEpoch": -1, "maxOffset": 0, "confirmOffset": 0},
    }


def heartbeat_body(number: int, name: str = "broker-a", ordinal: int = 1, epoch: int = 0) -> dict[str, Any]:
    return {
        "setKey": {"cluster": "demo", "name": name},
        "brokerId": number,
        "incarnation": f"{number:032x}",
        "sessionOrdinal": ordinal,
        "state": "fenced",
        "isReady": True,
        "positions": {"lastEpoch": -1, "maxOffset": 0, "confirmOffset": 0},
        "knownMasterEpoch": epoch,
        "knownSetEpoch": 0,
    }


async def make_set(leader: Controller, name: str = "broker-a", size: int = 2) -> None:
    """Register and beat ``size`` replicas by REST, until the set has a master."""
    for number in range(1, size + 1):
        for path, body in (
            ("/v1/broker-ids", broker_id_body(number, name)),
            ("/v1/replicas", register_body(number, name, size)),
            ("/v1/heartbeat", heartbeat_body(number, name)),
        ):
            answer = await leader.http.post(path, json=body)
            assert answer.status_code == 200, answer.text
    state = leader.service
    await until(lambda: any(key.name == name and found.master for key, found in state.published.state.sets.items()))


async def listen(app: Any, headers: dict[str, str], count: int, *, stops_reading: bool = False) -> list[bytes]:
    """The first ``count`` server-sent events of the stream; then the listener hangs up, perhaps in mid-write."""
    heard = bytearray()
    enough = asyncio.Event()

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.body" and message["body"]:
            heard.extend(message["body"])
        if heard.count(b"\n\n") >= count:
            enough.set()
            if stops_reading:
                await asyncio.Event().wait()

    async def receive() -> dict[str, Any]:
        await enough.wait()
        if stops_reading:
            # Until all that the stream prepares ahead of a slow listener is prepared.
            for _ in range(50):
                await asyncio.sleep(0)
        return {"type": "http.disconnect"}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/events/stream",
        "query_string": b"",
        "headers": [
            (name.lower().encode(), value.encode()) for name, value in ({"Host": "localhost"} | headers).items()
        ],
    }
    async with asyncio.timeout(DEADLINE_S):
        await app(scope, receive, send)
    return [one + b"\n\n" for one in bytes(heard).split(b"\n\n")[:count]]
