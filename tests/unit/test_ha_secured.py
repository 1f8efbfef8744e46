"""HA links through mutual TLS, over real sockets: who gets in, what arrives, and how a link ends."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvloop
from msgspec.structs import replace

import rollcall_ha.ha.channels
import rollcall_ha.ha.renewal
from rollcall_ha.controller.contract.ids import BrokerId, BrokerName, ClusterName, LogOffset, MasterEpoch, SetKey
from rollcall_ha.ha.channels import Parts, PlainChannel
from rollcall_ha.ha.codec_native import encode
from rollcall_ha.ha.errors import ErrorCode
from rollcall_ha.ha.frames import Handshake, LinkError
from rollcall_ha.ha.links import FollowTarget
from rollcall_ha.ha.renewal import RenewalClock
from rollcall_ha.ha.transport import MasterConnection
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.remoting.links import CloseCause, LinkTable
from rollcall_ha.node.remoting.secured import ExpectedPeer
from tests.support.ha_certs import SET_KEY, BrokerAuthority, stranger_context
from tests.support.ha_logs import MappedLog
from tests.support.ha_pair import identity, reign, target
from tests.support.ha_replica import MasterReplica, SlaveReplica, until

CAPACITY = 16 * 1024 * 1024
OTHER_SET = SetKey(ClusterName("c1"), BrokerName("broker-b"))


@dataclass
class World:
    authority: BrokerAuthority
    logs: tuple[MappedLog, MappedLog]
    master: MasterReplica
    peers: ExpectedPeer
    port: int = 0
    slaves: list[SlaveReplica] = field(default_factory=list)

    def target(self, epoch: int = 1) -> FollowTarget:
        return replace(target(epoch), port=self.port)

    def slave(self, masters: ExpectedPeer | None, broker_id: int = 2) -> SlaveReplica:
        made = SlaveReplica(self.logs[1], broker_id, masters=masters)
        self.slaves.append(made)
        return made

    def follow(self, masters: ExpectedPeer | None, broker_id: int = 2) -> SlaveReplica:
        made = self.slave(masters, broker_id)
        made.client.follow(self.target())
        return made

    @property
    def closed(self) -> dict[CloseCause, int]:
        return self.master.server.connections.closed_by_cause

    async def healthy_link_goes_on(self) -> None:
        log = self.master.log
        log.append(os.urandom(1_000))
        self.master.server.log_extended()
        await until(lambda: self.master.acks.get(BrokerId(2)) == log.max_offset)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[tuple[MappedLog, MappedLog]]:
    pair = MappedLog(tmp_path / "master", CAPACITY), MappedLog(tmp_path / "slave", CAPACITY)
    yield pair
    for log in pair:
        log.close()


def play(
    tmp_path: Path,
    logs: tuple[MappedLog, MappedLog],
    scene: Callable[[World], Awaitable[None]],
) -> None:
    """A master with a reign, whose links are secured; afterwards nothing may be left open."""
    authority = BrokerAuthority(tmp_path / "tls")
    peers = authority.peers("broker-a-1")

    async def body() -> None:
        master = MasterReplica(logs[0], slaves=peers)
        world = World(authority, logs, master, peers)
        world.port = await master.server.start("127.0.0.1", 0)
        logs[0].begin_epoch(1)
        master.server.open_reign(reign(1), LogOffset(0))
        try:
            await scene(world)
        finally:
            for slave in world.slaves:
                await slave.client.stop()
            await master.server.stop()
        assert peers.credentials.listeners == []

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(body())


# --- what arrives ----------------------------------------------------------------------------------------------------


def test_a_slave_catches_up_and_follows_through_tls(tmp_path: Path, logs: tuple[MappedLog, MappedLog]) -> None:
    """More than any window, several epochs, then single records: every byte is the same."""

    async def scene(world: World) -> None:
        log = world.master.log
        for epoch in (1, 2, 3):
            if epoch > 1:
                log.begin_epoch(epoch)
            log.append(os.urandom(3_000_001))
        world.master.server.open_reign(reign(3), LogOffset(0))
        slave = world.slave(world.authority.peers("broker-a-2"))
        slave.client.follow(world.target(3))
        await until(lambda: world.master.acks.get(BrokerId(2)) == log.max_offset)
        for size in (1, 100, 16_384, 16_385, 70_000):
            log.append(os.urandom(size))
            world.master.server.log_extended()
            await until(lambda: world.master.acks.get(BrokerId(2)) == log.max_offset)
        world.master.server.confirm_moved(log.max_offset)
        await until(lambda: slave.confirm == log.max_offset)
        assert slave.log.content() == log.content()
        assert slave.log.history == log.history

    play(tmp_path, logs, scene)


@pytest.mark.parametrize(("window", "fetched"), [(100, 7), (20_000, 20_000), (65_536, 16_384)])
def test_windows_of_any_size_carry_the_same_bytes(
    tmp_path: Path, logs: tuple[MappedLog, MappedLog], monkeypatch: pytest.MonkeyPatch, window: int, fetched: int
) -> None:
    monkeypatch.setattr(rollcall_ha.ha.channels, "WINDOW_BYTES", window)
    monkeypatch.setattr(rollcall_ha.ha.channels, "FETCH_BYTES", fetched)

    async def scene(world: World) -> None:
        log = world.master.log
        log.append(os.urandom(50_000 if window < 1_000 else 3_000_000))
        slave = world.follow(world.authority.peers("broker-a-2"))
        await until(lambda: world.master.acks.get(BrokerId(2)) == log.max_offset)
        assert slave.log.content() == log.content()

    play(tmp_path, logs, scene)


def test_what_tls_holds_is_read_when_the_log_has_room_again(tmp_path: Path, logs: tuple[MappedLog, MappedLog]) -> None:
    """A record's rest is in TLS, not in the socket: no readable event announces it, and the master has no more to say."""

    async def scene(world: World) -> None:
        world.logs[1].is_ready = False
        world.master.log.append(os.urandom(10_000))
        slave = world.follow(world.authority.peers("broker-a-2"))
        await until(lambda: "ready" in slave.told and bool(slave.log.history))
        connection = slave.client._connection
        assert connection is not None
        await until(lambda: connection.channel.has_unread)
        assert slave.log.max_offset == 0
        slave.log.is_ready = True
        slave.client.log_has_room()
        await until(lambda: slave.log.content() == world.master.log.content())
        assert slave.closed == []

    play(tmp_path, logs, scene)


def test_a_peer_that_does_not_read_costs_a_window_and_no_turns(
    tmp_path: Path, logs: tuple[MappedLog, MappedLog]
) -> None:
    """The socket is full: the link waits for room, the loop sleeps, and everything arrives when the peer reads on."""

    async def scene(world: World) -> None:
        world.logs[1].is_ready = False
        log = world.master.log
        log.append(os.urandom(12_000_000))
        slave = world.follow(world.authority.peers("broker-a-2"))
        (connection,) = await connections(world, 1)
        await until(
            lambda: connection._is_waiting_to_write and not select.select([], [connection.channel.fileno()], [], 0)[1]
        )
        calls = 0
        real = connection.channel.send

        def counted(parts: Parts, length_max: int) -> int:
            nonlocal calls
            calls += 1
            return real(parts, length_max)

        connection.channel.send = counted  # type: ignore[method-assign]
        for _ in range(200):
            await asyncio.sleep(0)
        assert calls < 10, "a writable event per turn would be a loop that spins"
        records = 1 + rollcall_ha.ha.channels.WINDOW_BYTES // 16_384
        assert connection.unread_bytes <= rollcall_ha.ha.channels.WINDOW_BYTES + 22 * records
        slave.log.is_ready = True
        slave.client.log_has_room()
        await until(lambda: world.master.acks.get(BrokerId(2)) == log.max_offset)
        assert slave.log.content() == log.content()

    play(tmp_path, logs, scene)


async def connections(world: World, count: int) -> tuple[MasterConnection, ...]:
    table = world.master.server.connections
    await until(lambda: len(table) == count)
    return table.snapshot()


# --- who gets in -----------------------------------------------------------------------------------------------------


def handshake(broker_id: int = 2) -> bytes:
    """The first frame of a replica."""
    me = identity(broker_id)
    return encode(
        Handshake(
            set_key=me.set_key,
            fleet_incarnation=me.fleet_incarnation,
            master_epoch=target(1).master_epoch,
            broker_id=me.broker_id,
            incarnation=me.incarnation,
            expected_master=BrokerId(1),
            expected_master_incarnation=target(1).master_incarnation,
            is_learner=False,
            last_epoch=target(1).master_epoch,
            max_offset=LogOffset(0),
            segment_bytes=1 << 30,
        )
    )


async def visit(port: int, context: ssl.SSLContext | None, first: bytes) -> bytes:
    """Everything that a visitor hears until his link is closed."""
    heard = b""
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection("127.0.0.1", port, ssl=context), 3)
        writer.write(first)
        heard = await asyncio.wait_for(reader.read(), 3)
        writer.close()
    except (OSError, ssl.SSLError):
        pass  # the other end closed
    return heard


STRANGERS: dict[str, tuple[CloseCause, Callable[[BrokerAuthority, Path], ssl.SSLContext | None]]] = {
    "plain": (CloseCause.TLS, lambda ours, folder: None),
    "no certificate": (CloseCause.TLS, lambda ours, folder: stranger_context(None)),
    "foreign authority": (
        CloseCause.TLS,
        lambda ours, folder: stranger_context(BrokerAuthority(folder / "foreign").issue("broker-a-2")),
    ),
    "expired": (CloseCause.TLS, lambda ours, folder: stranger_context(ours.issue("broker-a-2", days=-1))),
    "another set": (
        CloseCause.CERTIFICATE,
        lambda ours, folder: stranger_context(ours.issue("broker-b-1", set_key=OTHER_SET)),
    ),
    "another fleet": (
        CloseCause.CERTIFICATE,
        lambda ours, folder: stranger_context(ours.issue("broker-a-2", fleet="other")),
    ),
    "a controller": (
        CloseCause.CERTIFICATE,
        lambda ours, folder: stranger_context(ours.issue("c1", kind=PeerKind.CONTROLLER)),
    ),
    "a client": (
        CloseCause.CERTIFICATE,
        lambda ours, folder: stranger_context(ours.issue("client", kind=PeerKind.CLIENT)),
    ),
}


@pytest.mark.parametrize("who", STRANGERS)
def test_a_stranger_reads_nothing_and_acks_nothing(tmp_path: Path, logs: tuple[MappedLog, MappedLog], who: str) -> None:
    """He knows ids and incarnations, and sends a good handshake: it is not even looked at. The real slave goes on."""
    cause, make = STRANGERS[who]

    async def scene(world: World) -> None:
        world.follow(world.authority.peers("broker-a-2", set_key=SET_KEY))
        await until(lambda: 2 in world.master.acks)
        heard = await visit(world.port, make(world.authority, tmp_path), handshake())
        await until(lambda: world.closed.get(cause) == 1)
        assert b"RCHA" not in heard or cause is CloseCause.CERTIFICATE, (
            "only a refusal, and only to our authority's own"
        )
        assert [broker_id for broker_id, _ in world.master.opened] == [2]
        assert sum(world.closed.values()) == 1
        await world.healthy_link_goes_on()

    play(tmp_path, logs, scene)


def test_a_port_scan_is_no_attack(tmp_path: Path, logs: tuple[MappedLog, MappedLog]) -> None:
    async def scene(world: World) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", world.port)
        writer.close()
        await until(lambda: sum(world.closed.values()) == 1)
        assert set(world.closed) <= {CloseCause.PROBE, CloseCause.PEER}

    play(tmp_path, logs, scene)


def test_half_a_tls_handshake_is_not_waited_for(tmp_path: Path, logs: tuple[MappedLog, MappedLog]) -> None:
    """One hello that never ends, and one that never begins: both links end with the time of the handshake."""

    async def scene(world: World) -> None:
        _, stalled = await asyncio.open_connection("127.0.0.1", world.port)
        stalled.write(b"\x16\x03\x01\x02\x00\x01\x00\x01")
        _, silent = await asyncio.open_connection("127.0.0.1", world.port)
        await until(lambda: sum(world.closed.values()) == 2)
        assert world.closed == {CloseCause.TLS: 1, CloseCause.SAID_NOTHING: 1}
        stalled.close()
        silent.close()

    play(tmp_path, logs, scene)


def test_strangers_never_take_the_place_of_a_proven_broker(
    tmp_path: Path, logs: tuple[MappedLog, MappedLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that has proved its name, and said nothing yet, stays when strangers fill the port."""

    async def scene(world: World) -> None:
        world.master.server.connections.limits = replace(world.master.server.connections.limits, connections_max=3)
        world.master.server.connections.connections_max = 3
        context = stranger_context(world.authority.issue("broker-a-3"))
        _, proven = await asyncio.open_connection("127.0.0.1", world.port, ssl=context)
        (connection,) = await connections(world, 1)
        await until(lambda: connection.certificate is not None)
        strangers = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(5)]
        await until(lambda: world.closed.get(CloseCause.TOO_MANY_LINKS) == 3)
        assert not connection.is_closed
        for _, writer in (*strangers, (None, proven)):
            writer.close()

    play(tmp_path, logs, scene)


@pytest.mark.parametrize("who", ["another set", "foreign authority", "wrong owner", "plain"])
def test_a_slave_sends_nothing_to_a_master_that_is_not_proved(
    tmp_path: Path, logs: tuple[MappedLog, MappedLog], who: str
) -> None:
    """It dials again and again, says why, and its log stays as it is."""

    async def scene(world: World) -> None:
        if who == "another set":
            peers: ExpectedPeer | None = world.authority.peers("broker-b-1", set_key=OTHER_SET)
        elif who == "foreign authority":
            peers = BrokerAuthority(tmp_path / "foreign").peers("broker-a-1")
        else:
            peers = world.peers if who == "wrong owner" else None
        false = MasterReplica(world.logs[0], slaves=peers)
        port = await false.server.start("127.0.0.1", 0)
        false.server.open_reign(reign(1), LogOffset(0))
        slave = world.slave(world.authority.peers("broker-a-2"))
        slave.owners = {BrokerId(1): "broker-a-9"}
        slave.client.follow(replace(target(1), port=port))
        await until(lambda: len(slave.closed) >= 2)
        expected = None if who == "plain" else ErrorCode.CERTIFICATE_REFUSED
        assert set(slave.closed) == {expected}, slave.details
        assert false.opened == []
        assert slave.told == []
        slave.client.stop_following("enough")
        await false.server.stop()

    play(tmp_path, logs, scene)


# --- how a link ends -------------------------------------------------------------------------------------------------


def test_the_end_of_a_link_is_said_by_close_notify(tmp_path: Path, logs: tuple[MappedLog, MappedLog]) -> None:
    """A cut by somebody on the way can be told from an end: behind the last frame comes TLS's own goodbye."""

    async def scene(world: World) -> None:
        context = stranger_context(world.authority.issue("broker-a-2"))

        def talk() -> bytes:
            with socket.create_connection(("127.0.0.1", world.port)) as raw:
                sock = context.wrap_socket(raw, suppress_ragged_eofs=False)
                sock.settimeout(5)
                sock.sendall(b"RCHA" * 9)
                heard = b""
                while data := sock.recv(4096):
                    heard += data
                sock.close()
                return heard

        heard = await asyncio.to_thread(talk)
        assert heard.startswith(b"RCHA"), "the last word"

    play(tmp_path, logs, scene)


def test_a_link_that_is_cut_inside_a_record_is_dialled_again(tmp_path: Path, logs: tuple[MappedLog, MappedLog]) -> None:
    async def scene(world: World) -> None:
        log = world.master.log
        slave = world.follow(world.authority.peers("broker-a-2"))
        await until(lambda: 2 in world.master.acks)
        (connection,) = await connections(world, 1)
        os.write(connection.channel.fileno(), b"\x17\x03\x03\x40\x00half of a record")
        connection.close("cut")
        await until(lambda: slave.told.count("ready") == 2)
        log.append(os.urandom(5_000))
        world.master.server.log_extended()
        await until(lambda: world.master.acks.get(BrokerId(2)) == log.max_offset)
        assert slave.log.content() == log.content()

    play(tmp_path, logs, scene)


def test_a_byte_that_somebody_changed_on_the_way_ends_the_link(
    tmp_path: Path, logs: tuple[MappedLog, MappedLog]
) -> None:
    """A record that does not open is no data; the slave comes back, and has what the master has."""

    async def scene(world: World) -> None:
        log = world.master.log
        slave = world.follow(world.authority.peers("broker-a-2"))
        await until(lambda: 2 in world.master.acks)
        (connection,) = await connections(world, 1)
        os.write(connection.channel.fileno(), b"\x17\x03\x03\x00\x20" + b"x" * 32)
        await until(lambda: slave.told.count("ready") == 2)
        assert ErrorCode.CERTIFICATE_REFUSED in slave.closed or None in slave.closed
        log.append(b"behind it")
        world.master.server.log_extended()
        await until(lambda: slave.log.content() == log.content())

    play(tmp_path, logs, scene)


@pytest.mark.parametrize("end", ["master", "slave"])
def test_r28_a_revoked_peer_loses_its_open_link_at_once(
    tmp_path: Path, logs: tuple[MappedLog, MappedLog], end: str
) -> None:
    """By a word that comes on another thread; and it does not come back."""

    async def scene(world: World) -> None:
        mine = world.authority.peers("broker-a-2")
        slave = world.follow(mine)
        await until(lambda: 2 in world.master.acks)
        judge, of = (world.peers, mine) if end == "master" else (mine, world.peers)
        serial = of.credentials.own.serial
        await asyncio.to_thread(judge.credentials.revoke, {serial})
        await until(lambda: len(world.master.closed) == 1)
        if end == "master":
            assert world.closed == {CloseCause.REVOKED: 1}
            await until(lambda: world.closed[CloseCause.REVOKED] > 2)
        else:
            await until(lambda: slave.closed.count(ErrorCode.CERTIFICATE_REFUSED) > 2)
        assert any("revoked" in detail for detail in slave.details)
        assert len(world.master.opened) == 1
        judge.credentials.revoke(set())
        await until(lambda: slave.told.count("ready") == 2)

    play(tmp_path, logs, scene)


@pytest.mark.parametrize("end", ["master", "slave"])
def test_a_link_ends_when_the_certificate_of_its_peer_expires(
    tmp_path: Path, logs: tuple[MappedLog, MappedLog], monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    monkeypatch.setattr(LinkTable, "SWEEP_MS", 5)

    async def scene(world: World) -> None:
        slave = world.follow(world.authority.peers("broker-a-2"))
        await until(lambda: 2 in world.master.acks)
        table = world.master.server.connections if end == "master" else slave.client._links
        assert table is not None
        table._wall_ms = lambda: 1 << 62
        await until(lambda: table.closed_by_cause[CloseCause.EXPIRED] > 0)
        assert ErrorCode.CERTIFICATE_REFUSED not in slave.closed

    play(tmp_path, logs, scene)


# --- whose id it is --------------------------------------------------------------------------------------------------

OWNERS = {1: "broker-a-1", 2: "broker-a-2", 3: "broker-a-3"}


def test_r27_a_stolen_certificate_of_the_set_acks_for_its_own_id_only(
    tmp_path: Path, logs: tuple[MappedLog, MappedLog]
) -> None:
    """Acks of forged replicas 2 and 3 released messages that only the master had, and then it was killed."""

    async def scene(world: World) -> None:
        world.master.server.replicas_changed(reign(1, owners=OWNERS))
        world.follow(world.authority.peers("broker-a-2"))
        await until(lambda: 2 in world.master.acks)
        forger = world.slave(world.authority.peers("broker-a-3"), 2)
        forger.client.follow(world.target())
        await until(lambda: forger.closed.count(ErrorCode.CERTIFICATE_REFUSED) > 1)
        assert any("broker-a-2" in detail and "broker-a-3" in detail for detail in forger.details)
        assert world.closed[CloseCause.CERTIFICATE] > 0
        assert len(world.master.opened) == 1, "the real slave was never replaced"
        forger.client.stop_following("enough")
        await world.healthy_link_goes_on()

    play(tmp_path, logs, scene)


def test_r27_an_id_that_is_bound_meanwhile_ends_the_link_of_another(
    tmp_path: Path, logs: tuple[MappedLog, MappedLog]
) -> None:
    """Before anybody owned 2, any broker of the set was taken for it; with the view that binds it, that is over."""

    async def scene(world: World) -> None:
        slave = world.follow(world.authority.peers("broker-a-9"))
        await until(lambda: 2 in world.master.acks)
        world.master.server.replicas_changed(reign(1, owners=OWNERS))
        await until(lambda: slave.closed.count(ErrorCode.CERTIFICATE_REFUSED) > 1)
        assert len(world.master.closed) == 1

    play(tmp_path, logs, scene)


def test_an_error_frame_of_a_proven_peer_that_shook_no_hands_deposes_nobody(
    tmp_path: Path, logs: tuple[MappedLog, MappedLog]
) -> None:
    """One frame of 44 bytes with a higher epoch ended a reign; a certificate gives no right to that either."""

    async def scene(world: World) -> None:
        world.follow(world.authority.peers("broker-a-2"))
        await until(lambda: 2 in world.master.acks)
        error = LinkError(
            code=ErrorCode.EPOCH_UNKNOWN,
            master_epoch=MasterEpoch(2**30),
            broker_id=BrokerId(2),
            incarnation=identity(2).incarnation,
            expected="",
            actual="",
        )
        await visit(world.port, stranger_context(world.authority.issue("broker-a-3")), encode(error))
        await visit(world.port, None, encode(error))
        await until(lambda: sum(world.closed.values()) == 2)
        assert world.master.higher == []
        await world.healthy_link_goes_on()

    play(tmp_path, logs, scene)


def test_a_slave_goes_on_only_to_the_owner_of_its_master_s_id(
    tmp_path: Path, logs: tuple[MappedLog, MappedLog]
) -> None:
    async def scene(world: World) -> None:
        slave = world.slave(world.authority.peers("broker-a-2"))
        slave.owners = {BrokerId(1): "broker-a-1"}
        slave.client.follow(world.target())
        await until(lambda: "ready" in slave.told)
        assert slave.closed == []

    play(tmp_path, logs, scene)


# --- renewed certificates --------------------------------------------------------------------------------------------


def renewed(peers: ExpectedPeer, authority: BrokerAuthority, name: str) -> None:
    """New files, taken at once."""
    authority.issue(name)
    assert peers.credentials.renew_if_changed()


def test_a_slave_with_a_renewed_certificate_opens_its_link_anew_under_load(
    tmp_path: Path, logs: tuple[MappedLog, MappedLog]
) -> None:
    """Acks go on, nobody hears of a lost master, and the master sees the new certificate."""

    async def scene(world: World) -> None:
        mine, log = world.authority.peers("broker-a-2"), world.master.log
        slave = world.follow(mine)
        await until(lambda: 2 in world.master.acks)
        renewed(mine, world.authority, "broker-a-2")
        deadline = asyncio.get_running_loop().time() + 5
        while slave.told.count("ready") < 2:
            assert asyncio.get_running_loop().time() < deadline, "never renewed"
            log.append(os.urandom(20_000))
            world.master.server.log_extended()
            await until(lambda: world.master.acks.get(BrokerId(2)) == log.max_offset)
        await world.healthy_link_goes_on()
        assert slave.closed == [], "no attempt failed, and no end of the master is reported"
        assert slave.client.ended_age_us is None
        assert slave.log.content() == log.content()
        (connection,) = await connections(world, 1)
        assert connection.certificate is not None
        assert connection.certificate.serial == mine.credentials.own.serial

    play(tmp_path, logs, scene)


def test_a_slave_looks_for_the_renewed_certificate_of_its_master(
    tmp_path: Path, logs: tuple[MappedLog, MappedLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the old one expires, and not for nothing: a master that still shows the old one keeps its link."""
    monkeypatch.setattr(rollcall_ha.ha.renewal, "PAUSE_MS", 0)

    async def scene(world: World) -> None:
        slave = world.follow(world.authority.peers("broker-a-2"))
        await until(lambda: 2 in world.master.acks)
        expires_at_ms = world.peers.credentials.own.expires_at_ms
        slave.client._wall_ms = lambda: expires_at_ms - 1
        await until(lambda: sum(world.closed.values()) > 1)
        assert len(world.master.opened) == 1
        renewed(world.peers, world.authority, "broker-a-1")
        await until(lambda: len(world.master.opened) > 1)
        assert slave.closed == []
        slave.client._wall_ms = lambda: 0
        await world.healthy_link_goes_on()

    play(tmp_path, logs, scene)


def test_a_renewal_that_fails_leaves_the_old_link_as_it_is(tmp_path: Path, logs: tuple[MappedLog, MappedLog]) -> None:
    """Whoever answers the second dial is not the owner of the master's id: the first link carries on."""

    async def scene(world: World) -> None:
        mine = world.authority.peers("broker-a-2")
        slave = world.follow(mine)
        await until(lambda: 2 in world.master.acks)
        slave.owners = {BrokerId(1): "broker-a-9"}
        renewed(mine, world.authority, "broker-a-2")
        await until(lambda: sum(world.closed.values()) == 1)
        await world.healthy_link_goes_on()
        assert len(world.master.opened) == 1
        assert slave.closed == []

    play(tmp_path, logs, scene)


def test_a_renewal_never_outlives_its_target(tmp_path: Path, logs: tuple[MappedLog, MappedLog]) -> None:
    """Another master is followed while the second channel shakes hands: it is closed, and never used."""

    async def scene(world: World) -> None:
        mine = world.authority.peers("broker-a-2")
        slave = world.follow(mine)
        await until(lambda: 2 in world.master.acks)
        renewed(mine, world.authority, "broker-a-2")
        await until(lambda: slave.client._renewing is not None)
        slave.client.stop_following("another master")
        await asyncio.sleep(0)
        assert slave.client._renewing is None
        await until(lambda: len(world.master.server.connections) == 0)

    play(tmp_path, logs, scene)


def test_a_link_is_opened_anew_when_a_certificate_is_new_or_half_of_its_time_is_over(tmp_path: Path) -> None:
    peers = BrokerAuthority(tmp_path).peers("broker-a-1")
    own = peers.credentials.own
    ours, theirs = socket.socketpair()
    channel = PlainChannel(ours)
    clock = RenewalClock(peers.credentials)
    clock.opened(1_000)
    assert not clock.is_due(channel, 10**12, 10**15), "a plain link shows nothing"
    channel.certificate, channel.shown = own, own.serial
    half = own.expires_at_ms - 50_000
    assert not clock.is_due(channel, 50_999, half)
    assert clock.is_due(channel, 51_000, half)
    clock.tried(51_000)
    assert not clock.is_due(channel, 60_999, own.expires_at_ms), "one attempt in ten seconds"
    assert clock.is_due(channel, 61_000, own.expires_at_ms)
    channel.shown = "an older one"
    assert clock.is_due(channel, 61_000, half - 10**9)
    ours.close()
    theirs.close()
