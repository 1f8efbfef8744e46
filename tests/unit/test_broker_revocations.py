"""Revoked certificates in a broker: taken, remembered, refused without a controller (R28)."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import cast

import msgspec
import pytest

from rollcall_ha.broker.core.session import Beat, SessionAction, SessionMachine
from rollcall_ha.broker.replica_files import ReplicaFiles
from rollcall_ha.broker.revocations import SERIALS_MAX, RevokedPeers
from rollcall_ha.broker.session import ControllerSession, SessionOwner
from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.controller.contract.ids import SessionOrdinal
from rollcall_ha.controller.contract.session import Heartbeat, HeartbeatAck, RevokedSerials
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.node.certified import PeerKind, PeerRefused
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.tls import Credentials
from tests.support.raft_certs import credentials_in, make_certificates, more_credentials, named
from tests.support.runtime_controller import heartbeat_body
from tests.support.runtime_world import set_key


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    make_certificates(tmp_path / "tls", ["c1"])
    return more_credentials(tmp_path / "tls", named(PeerKind.BROKER, "b1", set_key="test/broker-a"))


def peers_on(directory: Path, credentials: Credentials, disk: Executor) -> RevokedPeers:
    """As a start makes them."""
    file = ReplicaFiles(directory).revoked
    return RevokedPeers(credentials, file.load(), store=lambda told: disk.submit(file.store, told))


def told(number: int, *serials: str) -> RevokedSerials:
    return RevokedSerials(revocations=number, serials=serials)


def test_r28_a_start_without_controllers_refuses_whom_the_process_before_it_refused(
    tmp_path: Path, credentials: Credentials
) -> None:
    """A rack that comes back before its controllers would take the thief in."""
    with ThreadPoolExecutor(1) as disk:
        peers = peers_on(tmp_path, credentials, disk)
        assert peers.known == 0
        peers.take(told(7, "a1"))
        assert credentials.revoked == {"a1"}, "before it is written"
    started = credentials_in(tmp_path / "tls", "c1")
    with ThreadPoolExecutor(1) as disk:
        assert peers_on(tmp_path, started, disk).known == 7
    assert started.revoked == {"a1"}
    shown = {"serialNumber": "A1", "subjectAltName": (("URI", "rollcall://test/controller/c1"),)}
    with pytest.raises(PeerRefused, match="revoked"):
        started.judge(shown)


def test_r28_a_start_asks_for_the_list_that_it_lacks(credentials: Credentials) -> None:
    """It has 7, and the fleet is at 9: asked for with 0, the whole list would come with each heartbeat's first answer."""
    peers = RevokedPeers(credentials, told(7, "a1"), store=lambda _: Future())
    assert peers.known == 7
    peers.take(told(9, "a1", "b2"))
    assert (peers.known, credentials.revoked) == (9, frozenset({"a1", "b2"}))


def test_r28_controllers_that_lost_their_memory_give_nobody_back(tmp_path: Path, credentials: Credentials) -> None:
    """Restored from a backup of last week, they have an empty list, or another one."""
    with ThreadPoolExecutor(1) as disk:
        peers = peers_on(tmp_path, credentials, disk)
        peers.take(told(7, "a1", "a2"))
        peers.take(told(0))
        assert peers.known == 0
        peers.take(told(3, "b1"))
        assert credentials.revoked == {"a1", "a2", "b1"}
        peers.take(told(9, *(f"{number:x}" for number in range(1, SERIALS_MAX + 1))))
        assert len(credentials.revoked) == SERIALS_MAX


def test_a_list_that_cannot_be_written_is_in_force_all_the_same(credentials: Credentials) -> None:
    def full(_: RevokedSerials) -> Future[None]:
        failed: Future[None] = Future()
        failed.set_exception(OSError("no space"))
        return failed

    peers = RevokedPeers(credentials, None, store=full)
    peers.take(told(7, "a1"))
    assert (peers.known, credentials.revoked) == (7, frozenset({"a1"}))


# --- by the session ------------------------------------------------------------------------------------------------------


class Machine:
    """As far as one heartbeat goes."""

    next_due_ms = None
    session_ordinal = SessionOrdinal(1)

    def __init__(self) -> None:
        self.lost_for: list[str] = []
        self.beaten = 0

    def lost(self, _number: int, reason: str, _now_ms: int, *, is_silent: bool = False) -> list[SessionAction]:
        self.lost_for.append(reason)
        return []

    def beat_answered(self, _number: int, _ack: HeartbeatAck, _now_ms: int) -> list[SessionAction]:
        self.beaten += 1
        return []


class Link:
    """The controller's end: answers heartbeats with this list."""

    def __init__(self, revoked: RevokedSerials) -> None:
        self.revoked = revoked
        self.known: list[int | None] = []

    async def request(self, _code: int, *, body: bytes, timeout_ms: int) -> Frame:
        del timeout_ms
        self.known.append(msgspec.json.decode(body, type=Heartbeat).known_revocations)
        ack = HeartbeatAck(view=None, controllers=(), revoked=self.revoked)
        return Frame(code=0, opaque=1, body=msgspec.json.encode(ack))


class Owner:
    def heartbeat(self, _ordinal: SessionOrdinal) -> Heartbeat:
        return msgspec.convert(heartbeat_body(1), Heartbeat)


def test_a_push_and_the_answer_of_a_heartbeat_bring_the_list(tmp_path: Path, credentials: Credentials) -> None:
    """Heartbeats tell which one is known; nonsense costs the link, and nothing that was known."""

    async def story(peers: RevokedPeers) -> None:
        machine, link = Machine(), Link(told(8, "a1", "b2"))
        session = ControllerSession(
            machine=cast("SessionMachine", machine),
            owner=cast("SessionOwner", Owner()),
            set_key=set_key(),
            timing=PRESETS[Preset.FAST],
            now_us=lambda: 0,
            held_since_us=0,
            revoked=peers,
        )
        session._link = cast("RemotingConnection", link)
        session.pushed(0, [_push(b'{"revocations":7,"serials":["a1"]}')])
        assert credentials.revoked == {"a1"}
        await session._beat(Beat(connection=0, session_ordinal=SessionOrdinal(1)))
        assert (link.known, machine.beaten, peers.known) == ([7], 1, 8)
        assert credentials.revoked == {"a1", "b2"}
        assert machine.lost_for == []
        session.pushed(0, [_push(b'{"revocations":"x"}')])
        assert len(machine.lost_for) == 1
        assert credentials.revoked == {"a1", "b2"}

    with ThreadPoolExecutor(1) as disk:
        asyncio.run(story(peers_on(tmp_path, credentials, disk)))


def _push(body: bytes) -> Frame:
    return Frame(code=RequestCode.SESSION_REVOKED, opaque=1, body=body)
