"""The door of a remoting port with TLS: who comes in, who does not, and who has to go while a link stands."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvloop
from msgspec.structs import replace

from rollcall_ha.deploy.local.processes import free_ports
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.remoting.asking import AskingOnly, BlockingLink
from rollcall_ha.node.remoting.connection import (
    LinkClosed,
    PeerUnproved,
    RemotingConnection,
    RemotingError,
    RemotingServer,
    connect,
)
from rollcall_ha.node.remoting.frame import Frame, encode_frame
from rollcall_ha.node.remoting.links import CloseCause, LinkLimits
from rollcall_ha.node.remoting.secured import HANDSHAKE_BYTES, Door, ExpectedPeer
from rollcall_ha.node.tls import Credentials
from tests.support.frames import FrameDecoder, QuietHandler
from tests.support.raft_certs import (
    credentials_in,
    issue_more,
    make_certificates,
    more_credentials,
    named,
)
from tests.support.runtime_controller import until
from tests.support.scenarios import player

SET = "test/broker-a"
BROKER = named(PeerKind.BROKER, "broker-a-1", set_key=SET)


class Echo(QuietHandler):
    """Answers every frame with its own body; remembers who asked."""

    def __init__(self) -> None:
        self.peers: list[str] = []

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        self.peers.append("" if connection.certificate is None else str(connection.certificate.name))
        for frame in frames:
            connection.respond(frame, 0, body=frame.body)


class World:
    """One port with a door, an authority, and ways in."""

    def __init__(self, directory: Path, **door: Any) -> None:
        self.directory = directory
        make_certificates(directory, ["c1"])
        self.credentials = credentials_in(directory, "c1")
        self.echo = Echo()
        limits = LinkLimits(first_frame_ms_max=1_500)
        self.server = RemotingServer(self.echo, limits=limits, door=Door(credentials=self.credentials, **door))
        (self.port,) = free_ports(1)

    def count(self, cause: CloseCause) -> int:
        return self.server.links.closed_by_cause[cause]

    async def dialled(self, credentials: Credentials, **expected: Any) -> RemotingConnection:
        expected = {"kinds": frozenset({PeerKind.CONTROLLER}), **expected}
        peer = ExpectedPeer(credentials=credentials, **expected)
        return await connect("127.0.0.1", self.port, AskingOnly(), timeout_ms=5_000, expected=peer)

    async def refused(self, link: Callable[[], Awaitable[RemotingConnection]], cause: CloseCause) -> None:
        """The link gets no answer, and its end is counted under ``cause``."""
        before = self.count(cause)
        with pytest.raises((RemotingError, OSError)):
            await (await link()).request(1, timeout_ms=2_000)
        await until(lambda: self.count(cause) == before + 1)

    async def still_serves(self) -> None:
        """A broker of the fleet is answered, whatever others did."""
        link = await self.dialled(more_credentials(self.directory, BROKER))
        assert (await link.request(1, body=b"x", timeout_ms=5_000)).body == b"x"
        link.close("seen")


def serving(directory: Path, scenario: Callable[[World], Awaitable[None]], **door: Any) -> None:
    async def main() -> None:
        world = World(directory, **door)
        await world.server.start("127.0.0.1", world.port)
        try:
            await scenario(world)
        finally:
            await world.server.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())


on_server = player(serving)


def nameless_context() -> ssl.SSLContext:
    """As a Java client's by default: it asks for TLS, shows nothing, and trusts whoever answers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def echoed(number: int, context: ssl.SSLContext | None, sizes: Sequence[int]) -> None:
    """Frames of these sizes come back whole."""
    reader, writer = await asyncio.open_connection("127.0.0.1", number, ssl=context)
    decoder = FrameDecoder()
    try:
        async with asyncio.timeout(30):
            for opaque, size in enumerate(sizes):
                writer.write(encode_frame(Frame(code=1, opaque=opaque, body=b"x" * size)))
                frames: list[Frame] = []
                while not frames:
                    data = await reader.read(65_536)
                    if not data:
                        raise ConnectionResetError("the port hung up")
                    frames = decoder.feed(data)
                assert (frames[0].opaque, len(frames[0].body)) == (opaque, size)
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


@on_server(takes_nameless=True, takes_plain=True)
async def test_secured_and_plain_links_are_served_on_one_port_that_says_so(world: World) -> None:
    """A frame larger than one TLS record, and than all buffers, arrives whole, in both directions."""
    await echoed(world.port, nameless_context(), (0, 10, 200_000, 3_000_000))
    await echoed(world.port, None, (0, 10, 200_000, 3_000_000))
    await until(lambda: len(world.server.links) == 0)
    assert set(world.echo.peers) == {""}


@on_server()
async def test_a_handler_sees_whose_certificate_a_link_has_shown(world: World, tmp_path: Path) -> None:
    link = await world.dialled(more_credentials(tmp_path, BROKER))
    assert str(link.certificate and link.certificate.name) == "rollcall://test/controller/c1"
    answers = await asyncio.gather(*(link.request(1, body=b"%d" % i, timeout_ms=5_000) for i in range(200)))
    assert [answer.body for answer in answers] == [b"%d" % i for i in range(200)]
    assert set(world.echo.peers) == {"rollcall://test/broker/broker-a/broker-a-1"}


@on_server()
async def test_plain_bytes_on_a_port_with_tls_are_not_answered(world: World) -> None:
    with pytest.raises(ConnectionResetError):
        await echoed(world.port, None, (10,))
    await until(lambda: world.count(CloseCause.TLS) == 1)
    assert world.echo.peers == []
    await world.still_serves()


@on_server()
async def test_a_link_without_a_certificate_is_refused(world: World) -> None:
    with pytest.raises((ConnectionError, ssl.SSLError)):
        await echoed(world.port, nameless_context(), (10,))
    await until(lambda: world.count(CloseCause.TLS) == 1)
    assert world.echo.peers == []
    await world.still_serves()


@on_server(takes_nameless=True)
async def test_a_certificate_of_another_authority_or_an_expired_one_is_refused(world: World, tmp_path: Path) -> None:
    stranger = tmp_path / "stranger"
    make_certificates(stranger, ["c1"])
    context = nameless_context()
    context.load_cert_chain(stranger / "c1.pem", stranger / "c1.key")
    expired = nameless_context()
    files = issue_more(tmp_path, BROKER, days=-1)
    expired.load_cert_chain(files.certificate, files.key)
    for number, wrong in enumerate((context, expired), 1):
        with pytest.raises((ConnectionError, ssl.SSLError)):
            await echoed(world.port, wrong, (10,))
        await until(lambda number=number: world.count(CloseCause.TLS) == number)  # type: ignore[misc]
    assert world.echo.peers == []


@on_server()
async def test_a_certificate_of_another_fleet_of_the_same_authority_is_refused(world: World, tmp_path: Path) -> None:
    other = more_credentials(tmp_path, named(PeerKind.CLIENT, "client", fleet="other"))
    context = other.client_context()
    with pytest.raises(ConnectionResetError):
        await echoed(world.port, context, (10,))
    await until(lambda: world.count(CloseCause.CERTIFICATE) == 1)
    assert world.echo.peers == []


@on_server(kinds=frozenset({PeerKind.BROKER}))
async def test_a_kind_that_has_no_business_at_a_port_is_refused(world: World, tmp_path: Path) -> None:
    client = more_credentials(tmp_path, named(PeerKind.CLIENT, "client"))
    await world.refused(lambda: world.dialled(client), CloseCause.CERTIFICATE)
    await world.still_serves()


@on_server()
async def test_a_certificate_that_is_revoked_before_and_while_a_link_stands(world: World, tmp_path: Path) -> None:
    """The open link ends at once, the others stay; the next dial with it is refused."""
    lost, kept = (more_credentials(tmp_path, named(PeerKind.BROKER, name, set_key=SET)) for name in ("lost", "kept"))
    links = [await world.dialled(one) for one in (lost, kept)]
    for link in links:
        await link.request(1, timeout_ms=5_000)
    world.credentials.revoke({lost.own.serial})
    await until(lambda: not links[0].is_open)
    assert world.count(CloseCause.REVOKED) == 1
    await links[1].request(1, timeout_ms=5_000)
    await world.refused(lambda: world.dialled(lost), CloseCause.REVOKED)


@on_server()
async def test_a_certificate_that_expires_while_a_link_stands_ends_it(world: World, tmp_path: Path) -> None:
    link = await world.dialled(more_credentials(tmp_path, BROKER))
    await link.request(1, timeout_ms=5_000)
    (served,) = world.server.links.snapshot()
    assert served.certificate is not None
    world.server.links._wall_ms = lambda: served.certificate.expires_at_ms  # type: ignore[union-attr]
    await until(lambda: not link.is_open)
    assert world.count(CloseCause.EXPIRED) == 1


@pytest.mark.parametrize(
    "expected",
    [
        {"kinds": frozenset({PeerKind.BROKER})},
        {"name": "c2"},
        {"set_key": SET},
    ],
)
@on_server()
async def test_a_peer_that_is_not_the_one_that_was_dialled_hears_nothing(
    world: World, tmp_path: Path, expected: dict[str, Any]
) -> None:
    with pytest.raises(PeerUnproved):
        await world.dialled(more_credentials(tmp_path, BROKER), **expected)
    assert world.echo.peers == []


def test_a_dial_by_tls_to_a_plain_port_fails_as_the_operating_system_says_it(tmp_path: Path) -> None:
    """And is not taken for "nobody listens there", which a probe counts as a fact."""
    make_certificates(tmp_path, ["c1"])

    async def scenario() -> None:
        plain = RemotingServer(Echo())
        (number,) = free_ports(1)
        await plain.start("127.0.0.1", number)
        peer = ExpectedPeer(credentials=credentials_in(tmp_path, "c1"), kinds=frozenset(PeerKind))
        with pytest.raises(OSError) as raised:
            await connect("127.0.0.1", number, AskingOnly(), timeout_ms=2_000, expected=peer)
        assert not isinstance(raised.value, ConnectionRefusedError)
        await plain.stop()

    asyncio.run(scenario())


@on_server()
async def test_a_tool_dials_by_tls_and_judges_before_it_asks(world: World, tmp_path: Path) -> None:
    credentials = more_credentials(tmp_path, named(PeerKind.CLIENT, "client"))
    address = f"127.0.0.1:{world.port}"

    def ask(name: str) -> bytes:
        peer = ExpectedPeer(credentials=credentials, kinds=frozenset({PeerKind.CONTROLLER}), name=name)
        with BlockingLink(address, expected=peer) as link:
            return link.ask(1, body=b"y" * 300_000).body

    assert await asyncio.to_thread(ask, "c1") == b"y" * 300_000
    asked = len(world.echo.peers)
    with pytest.raises(OSError, match="expected is c2"):
        await asyncio.to_thread(ask, "c2")
    assert len(world.echo.peers) == asked


@on_server()
async def test_garbage_that_begins_like_tls_ends_its_link_only(world: World) -> None:
    """Counted, and the next client is served."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(b"\x16" + b"\x00" * 64)
    async with asyncio.timeout(30):
        while await reader.read(1_024):
            pass
    writer.close()
    await until(lambda: world.count(CloseCause.TLS) == 1)
    await world.still_serves()


@on_server()
async def test_a_peer_that_leaves_in_the_middle_of_a_frame_costs_its_link_only(world: World, tmp_path: Path) -> None:
    link = await world.dialled(more_credentials(tmp_path, BROKER))
    link.send_bytes(encode_frame(Frame(code=1, opaque=1, body=b"x" * 100_000))[:50_000])
    await until(lambda: world.server.links.unfinished_bytes > 0)
    link.close("gone")
    await until(lambda: len(world.server.links) == 0)
    assert world.server.links.unfinished_bytes == 0
    with pytest.raises(LinkClosed):
        await link.request(1, timeout_ms=1_000)
    await world.still_serves()


@pytest.mark.slow
@on_server()
async def test_half_a_handshake_is_not_waited_for(world: World) -> None:
    """Its time for a first frame includes the handshake."""
    _, writer = await asyncio.open_connection("127.0.0.1", world.port)
    writer.write(b"\x16\x03\x01")
    await until(lambda: world.count(CloseCause.TLS) == 1)
    writer.close()


@on_server()
async def test_half_handshakes_hold_no_more_memory_than_unfinished_frames(world: World) -> None:
    """The oldest of them go, and who shakes hands to the end is served meanwhile."""
    world.server.links.limits = replace(world.server.links.limits, unfinished_bytes_max=20 * HANDSHAKE_BYTES)
    links = [await asyncio.open_connection("127.0.0.1", world.port) for _ in range(21)]
    for _, writer in links:
        writer.write(b"\x16\x03\x01")
    await until(lambda: world.count(CloseCause.UNFINISHED_FRAMES) == 11)
    assert world.server.links.unfinished_bytes == 10 * HANDSHAKE_BYTES
    await world.still_serves()
    for _, writer in links:
        writer.close()
    await until(lambda: world.server.links.unfinished_bytes == 0)
