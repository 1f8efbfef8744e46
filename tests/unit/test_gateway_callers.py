"""Sessions in a fleet with certificates: who may open one, of which set, and who answers a probe."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from rollcall_ha.api.broker_port.port import BrokerPortServer
from rollcall_ha.controller.contract.codes import RefusalCode, RequestCode
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, SessionOrdinal, SetKey
from rollcall_ha.controller.contract.principals import Principal, ProvedBy, Role
from rollcall_ha.controller.contract.replies import AnyReply, IdGranted, Refused, Registered
from rollcall_ha.controller.contract.session import BrokerState, HeartbeatAck, LeaderHint, ProbeAnswer
from rollcall_ha.controller.contract.views import RefusedBroker
from rollcall_ha.controller.core.actions import SendProbe
from rollcall_ha.controller.runtime import broker_requests, transfers
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.controller.runtime.session_state import ProbeOutcome
from rollcall_ha.controller.runtime.transfers import Leaving
from rollcall_ha.deploy.local.processes import free_ports
from rollcall_ha.node import authority
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.remoting.asking import AskingOnly
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingServer, connect
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.remoting.links import CloseCause
from rollcall_ha.node.remoting.secured import Door, ExpectedPeer
from tests.support.frames import QuietHandler
from tests.support.raft_certs import credentials_in, issue_more, make_certificates, more_credentials, named
from tests.support.runtime_controller import (
    NAMES,
    Controller,
    Group,
    broker_id_body,
    heartbeat_body,
    register_body,
    running_group,
    until,
)
from tests.support.runtime_world import set_key
from tests.support.scenarios import player

KEY = set_key()
OWN = named(PeerKind.BROKER, "b-1", set_key=str(KEY))
OF_ANOTHER_SET = named(PeerKind.BROKER, "x-1", set_key=f"{KEY.cluster}/another")
CONTROLLER = frozenset({PeerKind.CONTROLLER})


@dataclass(slots=True, kw_only=True)
class World:
    directory: Path
    group: Group
    leader: Controller
    gateway: BrokerPortServer
    number: int

    async def link(self, kind: PeerKind = PeerKind.BROKER, name: str = OWN.name, key: str = "") -> RemotingConnection:
        """With a certificate of the test's authority."""
        whose = named(kind, name, set_key=key or (str(KEY) if kind is PeerKind.BROKER else ""))
        peer = ExpectedPeer(credentials=more_credentials(self.directory, whose), kinds=CONTROLLER)
        return await connect("127.0.0.1", self.number, AskingOnly(), timeout_ms=5_000, expected=peer)


def serving(directory: Path, scenario: Callable[[World], Awaitable[None]]) -> None:
    make_certificates(directory, ["c1"])

    async def main() -> None:
        gateways: list[BrokerPortServer] = []

        def make(service: ControllerService) -> BrokerPortServer:
            gateways.append(BrokerPortServer(service, door=Door(credentials=credentials_in(directory, "c1"))))
            return gateways[-1]

        async with running_group(directory / "data", NAMES[:1], make_port=make) as group:
            (number,) = free_ports(1)
            await gateways[0].start(f"127.0.0.1:{number}")
            await group.elect("c1")
            world = World(directory=directory, group=group, leader=group["c1"], gateway=gateways[0], number=number)
            try:
                await scenario(world)
            finally:
                await gateways[0].stop()

    asyncio.run(main())


served = player(serving)


async def ask(link: RemotingConnection, code: RequestCode, body: object) -> AnyReply:
    answer = await link.request(code, body=msgspec.json.encode(body), timeout_ms=5_000)
    reply: AnyReply = msgspec.json.decode(answer.body, type=AnyReply)
    assert answer.code == (reply.code if isinstance(reply, Refused) else 0)
    return reply


async def open_session(link: RemotingConnection) -> None:
    assert await ask(link, RequestCode.SESSION_APPLY_ID, broker_id_body(1)) == IdGranted(broker_id=BrokerId(1))
    assert isinstance(await ask(link, RequestCode.SESSION_REGISTER, register_body(1, expected=1)), Registered)


async def beats(link: RemotingConnection) -> None:
    body = msgspec.json.encode(heartbeat_body(1))
    answer = await link.request(RequestCode.SESSION_HEARTBEAT, body=body, timeout_ms=5_000)
    msgspec.json.decode(answer.body, type=HeartbeatAck)


@served()
async def test_a_broker_opens_its_session_and_the_caller_is_who_its_certificate_names(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = await world.link()
    seen: list[Principal | None] = []
    submit = broker_requests.submit

    async def spy(*arguments: object, principal: Principal | None = None, **named: object) -> AnyReply:
        seen.append(principal)
        return await submit(*arguments, principal=principal, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(broker_requests, "submit", spy)
    await open_session(link)
    await beats(link)
    assert seen[0] == Principal(
        name="b-1",
        role=Role.BROKER,
        proved_by=ProvedBy.CERTIFICATE,
        serial=seen[0].serial if seen[0] else "",
        address=seen[0].address if seen[0] else "",
        set_key=KEY,
    )
    assert seen[0].serial
    assert seen[0].address.startswith("127.0.0.1:")


@served()
async def test_a_broker_of_another_set_speaks_for_nobody_of_this_one(world: World) -> None:
    """Each order is refused with both names; the real broker's session goes on."""
    real, stranger = await world.link(), await world.link(name="x-1", key=OF_ANOTHER_SET.set_key)
    await open_session(real)
    for code, body in (
        (RequestCode.SESSION_APPLY_ID, broker_id_body(2)),
        (RequestCode.SESSION_REGISTER, register_body(1, expected=1)),
        (RequestCode.SESSION_HEARTBEAT, heartbeat_body(1)),
    ):
        reply = await ask(stranger, code, body)
        assert isinstance(reply, Refused), code
        assert reply.code is RefusalCode.FORBIDDEN
        assert (reply.requested, reply.current) == (str(KEY), OF_ANOTHER_SET.set_key)
        assert str(OF_ANOTHER_SET) in reply.reason
    assert world.gateway.requests["forbidden"] == 3
    await beats(real)


@served()
async def test_why_a_broker_is_not_taken_stood_in_its_own_log_alone(world: World) -> None:
    """``status`` had it started again, although it ran and was refused."""
    await open_session(await world.link())
    service = world.leader.service

    def told() -> dict[tuple[BrokerId | None, str], str]:
        view = service.view_of(KEY)
        assert view is not None
        return {(one.broker_id, one.code): one.reason for one in service.refusals.of(view, service.now_ns())}

    assert told() == {}
    await ask(await world.link(name="x-1"), RequestCode.SESSION_REGISTER, register_body(1, expected=1))
    assert told() == {(1, "NOT_THE_OWNER"): "broker id 1 belongs to broker:b-1, it was asked for by broker:x-1"}
    of_another = await world.link(name="x-2", key=OF_ANOTHER_SET.set_key)
    await ask(of_another, RequestCode.SESSION_REGISTER, register_body(1, expected=1))
    assert set(told()) == {(1, "FORBIDDEN")}, "the last one of each id counts"


@served()
async def test_a_port_whose_clock_is_behind_tells_that_it_refuses_younger_certificates(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader hands over; a certificate of another authority tells nothing of the clock here."""
    told: list[str] = []
    noted: list[tuple[SetKey | None, RefusedBroker]] = []
    leaving = Leaving(world.leader.service)

    async def step_aside(*_: object) -> bool:
        told.append("another one is to lead")
        return True

    def refused() -> None:
        told.append("behind")
        leaving.clock_behind()

    world.gateway.on_not_yet_valid = refused
    monkeypatch.setattr(transfers, "step_aside", step_aside)
    monkeypatch.setattr(
        world.leader.service.refusals, "note", lambda key, refused, _now_ns: noted.append((key, refused))
    )
    monkeypatch.setattr(authority, "BACKDATED", -timedelta(hours=1))
    strangers = world.directory / "strangers"
    make_certificates(strangers, ["c1"])
    for directory in (strangers, world.directory):
        files = issue_more(directory, OWN)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.load_cert_chain(files.certificate, files.key)
        reader, writer = await asyncio.open_connection("127.0.0.1", world.number, ssl=context)
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()
    plain = await connect("127.0.0.1", world.number, AskingOnly(), timeout_ms=5_000)
    plain.send_one_way(RequestCode.FIND_LEADER)
    await until(lambda: world.gateway.links.closed_by_cause[CloseCause.TLS] == 3)
    assert told == ["behind", "another one is to lead"]
    assert [(key, one.broker_id, one.host, one.code) for key, one in noted] == [(None, None, "127.0.0.1", "tls")] * 2
    assert noted[1][1].reason == "TLS: certificate is not yet valid"


@served()
async def test_only_brokers_open_sessions_and_every_certificate_hears_who_leads(world: World) -> None:
    for kind in (PeerKind.CLIENT, PeerKind.ADMIN, PeerKind.CONTROLLER):
        link = await world.link(kind, f"any-{kind}")
        reply = await ask(link, RequestCode.SESSION_APPLY_ID, broker_id_body(1))
        assert isinstance(reply, Refused)
        assert reply.code is RefusalCode.FORBIDDEN
        answer = await link.request(RequestCode.FIND_LEADER, timeout_ms=5_000)
        assert msgspec.json.decode(answer.body, type=LeaderHint).leader == "c1"


@served()
async def test_a_session_ends_with_its_certificate(world: World) -> None:
    link = await world.link()
    await open_session(link)
    assert link.certificate is not None
    (served,) = world.gateway.links.snapshot()
    assert served.certificate is not None
    assert world.gateway._door is not None
    world.gateway._door.credentials.revoke({served.certificate.serial})
    await until(lambda: world.gateway.links.closed_by_cause[CloseCause.REVOKED] == 1)
    assert len(world.gateway.links) == 0


class _Listens(QuietHandler):
    """A listen port that answers a probe."""

    asked = 0

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        for frame in frames:
            self.asked += 1
            answer = ProbeAnswer(
                set_key=KEY, broker_id=BrokerId(1), incarnation=Incarnation("y"), state=BrokerState.BOOT
            )
            connection.respond(frame, 0, body=msgspec.json.encode(answer))


@served()
async def test_a_probe_believes_a_broker_of_the_set_and_nobody_else(world: World, tmp_path: Path) -> None:
    """Whoever took over the address of a dead master would keep its set without one (R13)."""
    found = []
    for whose in (OWN, OF_ANOTHER_SET, named(PeerKind.CLIENT, "client")):
        listens = _Listens()
        door = Door(credentials=more_credentials(tmp_path, whose), kinds=CONTROLLER)
        port = RemotingServer(listens, door=door)
        (number,) = free_ports(1)
        await port.start("127.0.0.1", number)
        outcome, _ = await world.gateway.probe(
            SendProbe(
                set_key=KEY,
                broker_id=BrokerId(1),
                incarnation=Incarnation("x"),
                session_ordinal=SessionOrdinal(1),
                address=f"127.0.0.1:{number}",
            )
        )
        found.append((outcome, listens.asked))
        await port.stop()
    assert found == [(ProbeOutcome.ANSWERED, 1), (ProbeOutcome.NO_ANSWER, 0), (ProbeOutcome.NO_ANSWER, 0)]
