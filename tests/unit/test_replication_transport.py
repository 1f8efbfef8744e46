"""Links on loopback sockets: who gets in, who does not, and what a hostile peer can reach."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from controller.contract.ids import ControllerName
from controller.contract.timing import PRESETS, Preset
from controller.replication.raft import transport as transport_module
from controller.replication.raft.internals import Member
from controller.replication.raft.messages import (
    Hello,
    Message,
    ProtocolError,
    RequestVote,
    SnapshotPiece,
    Vote,
    encode_message,
)
from controller.replication.raft.transport import LinkPoller, TlsTransport
from node.tls import TlsFiles, mutual_context
from tests.support.raft_certs import make_certificates

NAMES = ("c1", "c2")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TlsFiles]:
    return make_certificates(tmp_path_factory.mktemp("tls"), (*NAMES, "stranger"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TlsFiles]:
    return make_certificates(tmp_path_factory.mktemp("foreign"), NAMES)


class _Recording(TlsTransport):
    """Keeps what would have gone to the repairs."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.heard: list[tuple[str, Message]] = []
        self.up: list[str] = []

    def deliver(self, peer: Member, message: Message) -> None:
        if isinstance(message, Vote):
            raise ProtocolError("a test refuses votes")
        self.heard.append((peer.name, message))

    def peer_up(self, peer: Member) -> None:
        self.up.append(peer.name)

    def peer_down(self, peer: Member) -> None:
        self.up.remove(peer.name)


class _World:
    """Transports on one poller, driven by hand."""

    def __init__(self) -> None:
        self.poller = LinkPoller()
        self.skew_ns = 0
        self.transports: list[_Recording] = []
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in NAMES]
            for one in sockets:
                one.bind(("127.0.0.1", 0))
            addresses = [f"127.0.0.1:{one.getsockname()[1]}" for one in sockets]
        self.members = [
            Member(ControllerName(name), at, address)
            for at, (name, address) in enumerate(zip(NAMES, addresses, strict=True))
        ]

    def add(self, name: str, tls: TlsFiles | None) -> _Recording:
        me = next(member for member in self.members if member.name == name)
        peers = [member for member in self.members if member.name != name]
        made = _Recording(
            me,
            peers,
            timing=PRESETS[Preset.NORMAL],
            tls=tls,
            clock_ns=lambda: time.monotonic_ns() + self.skew_ns,
            resolve=lambda host: host,
        )
        made.bind(self.poller)
        self.transports.append(made)
        return made

    def run_until(self, condition: Callable[[], bool], timeout_s: float = 5.0) -> bool:
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                return False
            for transport in self.transports:
                transport.attend()
            self.poller.poll(0.005)
        return True

    def close(self) -> None:
        for transport in self.transports:
            transport.close()


@pytest.fixture
def world() -> Iterator[_World]:
    made = _World()
    yield made
    made.close()


def _pair(world: _World, certificates: dict[str, TlsFiles]) -> tuple[_Recording, _Recording]:
    one, other = (world.add(name, certificates[name]) for name in NAMES)
    assert world.run_until(lambda: one.up == ["c2"] and other.up == ["c1"])
    return one, other


REQUEST = RequestVote(term=3, last_index=2, last_term=1)


def test_members_find_each_other_and_talk(world: _World, certificates: dict[str, TlsFiles]) -> None:
    one, other = _pair(world, certificates)
    assert one.transmit(one.peers[0], REQUEST)
    assert other.transmit(other.peers[0], REQUEST)
    assert world.run_until(lambda: one.heard == [("c2", REQUEST)] and other.heard == [("c1", REQUEST)])


def test_without_tls_on_loopback_only(world: _World) -> None:
    one, other = world.add("c1", None), world.add("c2", None)
    assert world.run_until(lambda: one.up == ["c2"] and other.up == ["c1"])
    far = Member(ControllerName("c3"), 2, "10.0.0.1:1")
    with pytest.raises(OSError, match="links between hosts need TLS"):
        TlsTransport(far, [], timing=PRESETS[Preset.NORMAL], tls=None, clock_ns=time.monotonic_ns, resolve=str)


def _raw(world: _World, at: int = 0) -> socket.socket:
    host, port = world.members[at].address.rsplit(":", 1)
    raw = socket.create_connection((host, int(port)), timeout=5.0)
    raw.setblocking(False)
    return raw


def _is_closed(raw: socket.socket) -> bool:
    try:
        return raw.recv(65536) == b""
    except (BlockingIOError, ssl.SSLWantReadError):
        return False
    except OSError:
        return True


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        encode_message(Hello(version=1, name="c2")),
        b"\xff" * 100_000,
        b"\x80\x02" + b"." * 100,
    ],
    ids=["http", "our-frames-in-plain-text", "noise", "pickle"],
)
def test_plain_text_on_the_port_gets_nowhere(
    data: bytes, world: _World, certificates: dict[str, TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is parsed before the handshake."""
    parsed: list[bytes] = []
    monkeypatch.setattr(transport_module, "decode_message", parsed.append)
    one = world.add("c1", certificates["c1"])
    with _raw(world) as raw:
        with contextlib.suppress(OSError):
            raw.send(data)
        assert world.run_until(lambda: one.refused_links == 1)
        assert world.run_until(lambda: _is_closed(raw))
    assert parsed == []


def _handshake(world: _World, raw: socket.socket, files: TlsFiles) -> ssl.SSLSocket:
    secured = mutual_context(files, is_server=False).wrap_socket(raw, do_handshake_on_connect=False)

    def is_done() -> bool:
        try:
            secured.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    assert world.run_until(is_done)
    return secured


@pytest.mark.parametrize("kind", ["foreign", "stranger", "lies-in-hello", "long-hello", "wrong-version"])
def test_a_peer_that_is_no_member_gets_nowhere(
    kind: str, world: _World, certificates: dict[str, TlsFiles], foreign: dict[str, TlsFiles]
) -> None:
    one = world.add("c1", certificates["c1"])
    files = {"stranger": certificates["stranger"]}.get(kind, certificates["c2"])
    if kind == "foreign":
        # Trusts our authority, but another one signed it.
        files = TlsFiles(
            authority=certificates["c2"].authority, certificate=foreign["c2"].certificate, key=foreign["c2"].key
        )
    hello = {
        "lies-in-hello": encode_message(Hello(version=1, name="c3")),
        "wrong-version": encode_message(Hello(version=2, name="c2")),
        "long-hello": (5_000).to_bytes(4, "big") + bytes(5_000),
    }.get(kind, encode_message(Hello(version=1, name="c2")))
    raw = _raw(world)
    with contextlib.suppress(OSError), _handshake(world, raw, files) as secured:
        secured.send(hello)
        assert world.run_until(lambda: one.refused_links == 1)
    assert one.up == []
    assert one.refused_links == 1


def test_nonsense_of_a_member_closes_its_link_only(world: _World, certificates: dict[str, TlsFiles]) -> None:
    """And an oversized frame is refused by its length, before it is buffered."""
    one = world.add("c1", certificates["c1"])
    for nonsense in (encode_message(Vote(term=1)), b"\xff\xff\xff\xff", (6).to_bytes(4, "big") + b"\x00\x00\x00\x02{]"):
        with _handshake(world, _raw(world), certificates["c2"]) as secured:
            secured.send(encode_message(Hello(version=1, name="c2")))
            assert world.run_until(lambda: one.up == ["c2"])
            secured.send(encode_message(REQUEST) + nonsense)
            assert world.run_until(lambda: one.up == [])
    assert one.heard == [("c2", REQUEST)] * 3
    other = world.add("c2", certificates["c2"])
    assert world.run_until(lambda: one.up == ["c2"] and other.up == ["c1"])


def test_idle_connections_do_not_keep_members_out(world: _World, certificates: dict[str, TlsFiles]) -> None:
    """With the stock library 114 of them killed the listener for ever."""
    one = world.add("c1", certificates["c1"])
    with contextlib.ExitStack() as stack:
        for _ in range(transport_module.PENDING_HANDSHAKES_MAX + 20):
            stack.enter_context(_raw(world))
            world.run_until(lambda: True)
        world.run_until(lambda: one.refused_links >= 10)
        other = world.add("c2", certificates["c2"])
        assert world.run_until(lambda: one.up == ["c2"] and other.up == ["c1"])
        world.skew_ns += int(transport_module.HANDSHAKE_SECONDS_MAX * 1e9)
        assert world.run_until(lambda: one.refused_links == transport_module.PENDING_HANDSHAKES_MAX + 20)
        assert world.run_until(lambda: one.up == ["c2"])


def test_a_listener_that_was_lost_is_bound_again(
    world: _World, certificates: dict[str, TlsFiles], caplog: pytest.LogCaptureFixture
) -> None:
    """accept() failing once (no descriptors left) unbinds the stock library for ever."""

    class _Failing:
        def __init__(self, real: socket.socket) -> None:
            self.real = real

        def accept(self) -> Any:
            raise OSError(24, "Too many open files")

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

    one = world.add("c1", certificates["c1"])
    one._listener = _Failing(one._listener)  # type: ignore[arg-type, assignment]
    with caplog.at_level(logging.WARNING), _raw(world):
        assert world.run_until(lambda: one._listener is None)
    assert "Too many open files" in caplog.text
    other = world.add("c2", certificates["c2"])
    world.skew_ns += int(transport_module.REBIND_SECONDS * 1e9)
    assert world.run_until(lambda: one.up == ["c2"] and other.up == ["c1"])


def test_a_silent_peer_is_given_up_and_pings_keep_idle_links(world: _World, certificates: dict[str, TlsFiles]) -> None:
    """Followers do not talk to each other; with the stock library their links are dead when an election needs them."""
    one, other = _pair(world, certificates)
    timeout_ns = PRESETS[Preset.NORMAL].raft_connection_timeout_ms * 1_000_000
    links = (one._links[one.peers[0]], other._links[other.peers[0]])
    for _ in range(6):
        world.skew_ns += timeout_ns // 3
        before = [link.heard_ns for link in links]
        assert world.run_until(lambda before=before: all(link.heard_ns > at for link, at in zip(links, before)))  # type: ignore[misc]  # noqa: B905
    assert one.up == ["c2"]
    world.skew_ns += timeout_ns + 1_000_000
    one.attend()
    assert one.up == []


def test_a_peer_that_does_not_read_loses_its_link(
    world: _World, certificates: dict[str, TlsFiles], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits for it is bounded."""
    monkeypatch.setattr(transport_module, "OUT_BYTES_MAX", 200_000)
    one, _ = _pair(world, certificates)
    peer = one.peers[0]
    piece = SnapshotPiece(term=1, sent_ns=1, piece=(bytes(64 * 1024), True, False))
    count = 0
    while one.up and count < 2_000:
        one.transmit(peer, piece)
        count += 1
    assert one.up == []
    assert count > 3
