"""Revoked certificates in a running controller: who hears of them, and what becomes of a revoked master (R28)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from rollcall_ha.api.broker_port.port import BrokerPortServer
from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.commands import MarkSilent, RevokeCertificate
from rollcall_ha.controller.contract.events import MasterElected, ReplicaSilent
from rollcall_ha.controller.contract.ids import ControllerName, RequestId
from rollcall_ha.controller.contract.principals import Principal, ProvedBy, Role
from rollcall_ha.controller.contract.replies import AnyReply, Done
from rollcall_ha.controller.contract.session import Heartbeat, HeartbeatAck, RevokedSerials
from rollcall_ha.controller.contract.values import SilenceCause
from rollcall_ha.controller.runtime import broker_requests
from rollcall_ha.controller.runtime.queries import Consistency
from rollcall_ha.controller.runtime.revocations import RevocationWatch
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.deploy.local.processes import free_ports
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.remoting.connection import RemotingConnection, connect
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.remoting.secured import Door, ExpectedPeer
from rollcall_ha.node.tls import Credentials
from tests.support.core_builders import Fleet
from tests.support.frames import QuietHandler
from tests.support.raft_certs import credentials_in, make_certificates, more_credentials, named
from tests.support.runtime_controller import (
    NAMES,
    Controller,
    SilentBrokers,
    broker_id_body,
    heartbeat_body,
    register_body,
    running_group,
    until,
)
from tests.support.runtime_world import World, set_key

KEY = set_key()
FAR_MS = 4_000_000_000_000
ALICE = Principal(name="alice", role=Role.ADMIN, proved_by=ProvedBy.CERTIFICATE, serial="ace")


def revocation(serial: str) -> RevokeCertificate:
    return RevokeCertificate(
        serial=serial, name="rollcall://demo/broker/broker-a/b", expires_at_ms=FAR_MS, reason="lost"
    )


async def revoke(controller: Controller, serial: str) -> AnyReply:
    return await controller.service.submit(
        revocation(serial), request_id=RequestId(f"revoke-{serial}"), requested_by=str(ALICE), principal=ALICE
    )


async def must(condition: Callable[[], Any], what: str) -> None:
    """A failure in words instead of the deadline's."""
    with contextlib.suppress(TimeoutError):
        await until(condition)
    assert condition(), what


# --- a revoked master --------------------------------------------------------------------------------------------------


def test_r28_a_master_whose_certificate_is_revoked_is_replaced_at_once() -> None:
    """It lives, and would answer every probe: by its timeout it would have reigned for seconds more."""
    world = World()
    world.take()
    master, *others = world.serving_set()
    world.pass_ms(200, master, *others)
    before = len(world.records)

    world.do(world.duties.handle_closed(master.connection, world.now_ns, is_revoked=True))

    found = [record.event for record in world.records[before:]]
    assert len(found) >= 2, found
    silence, elected = found[0], found[1]
    assert isinstance(silence, ReplicaSilent)
    assert (silence.broker_id, silence.cause) == (master.broker_id, SilenceCause.REVOKED)
    assert isinstance(elected, MasterElected)
    assert elected.master in [other.broker_id for other in others]
    assert world.probes == []
    view = world.the_view(KEY)
    assert master.broker_id not in view.sync_state_set


def test_r28_a_revoked_slave_is_not_elected_after_it() -> None:
    """Its master dies a moment later: it was in sync, and its heartbeats are fresh."""
    world = World()
    world.take()
    master, revoked, other = world.serving_set()
    world.pass_ms(200, master, revoked, other)
    world.do(world.duties.handle_closed(revoked.connection, world.now_ns, is_revoked=True))
    assert not world.the_view(KEY).members[1].is_alive

    world.do(world.duties.handle_closed(master.connection, world.now_ns, is_revoked=True))

    assert world.the_view(KEY).master == other.broker_id


def test_a_session_that_ends_otherwise_is_probed_first() -> None:
    world = World()
    world.take()
    master, *_ = world.serving_set()
    world.applies = False
    world.close(master)
    assert [probe.broker_id for probe in world.probes] == [master.broker_id]
    assert not any(isinstance(waiting.command, MarkSilent) for waiting in world.waiting)


# --- telling -------------------------------------------------------------------------------------------------------------


def test_a_follower_takes_the_list_too_and_the_leader_pushes_it(tmp_path: Path) -> None:
    """A follower that still believed the certificate would take its orders, and pass them on."""

    async def story() -> None:
        ports: dict[str, SilentBrokers] = {}

        def make(service: ControllerService) -> SilentBrokers:
            return ports.setdefault(service.settings.name, SilentBrokers())

        async with running_group(tmp_path, make_port=make) as group:
            heard: dict[ControllerName, list[AbstractSet[str]]] = {name: [] for name in NAMES}
            for name, member in group.members.items():
                member.service.revocations.listeners.append(heard[name].append)
            leader = await group.elect("c1")
            assert await revoke(leader, "b2") == Done()
            await must(lambda: all(heard.values()), "a controller was not told")
            assert {name: told[-1] for name, told in heard.items()} == {name: {"b2"} for name in NAMES}
            told = [msgspec.json.decode(body, type=RevokedSerials) for _code, body in ports["c1"].told]
            known = leader.service.published.state.revocations
            assert told == [RevokedSerials(revocations=known, serials=("b2",))]
            assert (ports["c2"].told, ports["c3"].told) == ([], [])
            answer = await leader.queries.certificates(Consistency.LINEARIZABLE)
            assert [(one.serial, one.revoked_by) for one in answer.revoked] == [("b2", "admin:alice")]
            assert {member.queries.controller().certificates_revoked for member in group.members.values()} == {1}
            gauges = {name: value for name, _help, value in leader.queries.reading().gauges}
            assert gauges["rollcall_certificates_revoked"] == 1

    asyncio.run(story())


def test_a_list_from_a_snapshot_is_told_once_and_the_one_in_force_counts() -> None:
    fleet = Fleet()
    fleet.do(revocation("b2"))
    older = fleet.state
    fleet.do(revocation("c3"))
    watch, heard = RevocationWatch(), list[AbstractSet[str]]()
    watch.listeners.append(heard.append)
    watch.look(fleet.state, None)
    watch.look(fleet.state, None)
    assert heard == [{"b2", "c3"}]
    # Controllers that were wiped have another list under a lower number: theirs is the one in force.
    watch.look(older, None)
    assert heard[-1] == {"b2"}


def test_a_heartbeat_gets_the_list_only_if_it_has_another_one(tmp_path: Path) -> None:
    """1,000 serial numbers with each of 3,000 heartbeats a second would be 120 MB/s."""

    async def story() -> None:
        async with running_group(tmp_path, NAMES[:1]) as group:
            leader = await group.elect("c1")
            for path, body in (("/v1/broker-ids", broker_id_body(1)), ("/v1/replicas", register_body(1))):
                assert (await leader.http.post(path, json=body)).status_code == 200
            await revoke(leader, "b2")
            beat = msgspec.convert(heartbeat_body(1), Heartbeat)
            number = leader.service.published.state.revocations

            def acked(known: int | None) -> RevokedSerials | None:
                answer = broker_requests.handle_heartbeat(
                    leader.service, msgspec.structs.replace(beat, known_revocations=known), None
                )
                assert isinstance(answer, HeartbeatAck)
                return answer.revoked

            whole = RevokedSerials(revocations=number, serials=("b2",))
            assert [acked(0), acked(number + 5)] == [whole, whole]
            assert [acked(number), acked(None)] == [None, None]

    asyncio.run(story())


# --- on sockets ----------------------------------------------------------------------------------------------------------


class Broker(QuietHandler):
    """A broker's end of a link."""

    def __init__(self) -> None:
        self.told: list[RevokedSerials] = []
        self.closed: list[str] = []

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        self.told += [
            msgspec.json.decode(frame.body, type=RevokedSerials)
            for frame in frames
            if frame.code == RequestCode.SESSION_REVOKED
        ]

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        self.closed.append(reason)


def test_r28_a_revocation_closes_the_session_and_counts_its_replica_as_gone(tmp_path: Path) -> None:
    """Through TLS, the port and the core: the other session hears the list, and stays."""

    async def story() -> None:
        make_certificates(tmp_path, ["c1"])
        controller = credentials_in(tmp_path, "c1")
        gateways: list[BrokerPortServer] = []

        def make(service: ControllerService) -> BrokerPortServer:
            gateways.append(BrokerPortServer(service, door=Door(credentials=controller)))
            service.revocations.listeners.append(controller.revoke)
            return gateways[-1]

        async with running_group(tmp_path, NAMES[:1], make_port=make) as group:
            leader = await group.elect("c1")
            (number,) = free_ports(1)
            await gateways[0].start(f"127.0.0.1:{number}")
            peers = [Broker(), Broker()]
            own = [
                more_credentials(tmp_path, named(PeerKind.BROKER, f"b{one}", set_key="demo/broker-a")) for one in (1, 2)
            ]
            links = [await _session(number, peers[at], own[at], at + 1) for at in range(2)]
            revoked = own[0].own.serial

            await revoke(leader, revoked)
            await must(lambda: peers[0].closed and peers[1].told, "a link stayed, or a broker was not told")

            assert peers[1].told[-1].serials == (revoked,)
            assert peers[1].closed == []
            view = partial(leader.service.view_of, KEY)
            await until(lambda: not view().members[0].is_alive)  # type: ignore[union-attr]
            state = leader.service.published.state.sets[KEY]
            assert [replica.silence for replica in state.replicas] == [SilenceCause.REVOKED, None]
            links[1].close("done")
            await gateways[0].stop()

    asyncio.run(story())


async def _session(port: int, peer: Broker, own: Credentials, number: int) -> RemotingConnection:
    expected = ExpectedPeer(credentials=own, kinds=frozenset({PeerKind.CONTROLLER}))
    link = await connect("127.0.0.1", port, peer, timeout_ms=2_000, expected=expected)
    for code, body in (
        (RequestCode.SESSION_APPLY_ID, broker_id_body(number)),
        (RequestCode.SESSION_REGISTER, register_body(number)),
    ):
        answer = await link.request(code, body=msgspec.json.encode(body), timeout_ms=2_000)
        assert answer.code == 0, answer
    return link
