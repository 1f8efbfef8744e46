"""TLS and plain links on one port: told apart by their first byte."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from rollcall_ha.deploy.local.processes import free_ports
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingServer
from rollcall_ha.node.remoting.frame import Frame, FrameDecoder, encode_frame
from rollcall_ha.node.remoting.links import CloseCause, LinkLimits
from rollcall_ha.node.tls import server_context
from tests.support.raft_certs import make_certificates
from tests.support.runtime_controller import until


class Echo:
    """Answers every frame with its own body."""

    def connected(self, connection: RemotingConnection) -> None:
        pass

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        for frame in frames:
            connection.respond(frame, 0, body=frame.body)

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        pass


def serving(directory: Path, scenario: Callable[[RemotingServer, int], Awaitable[None]]) -> None:
    files = make_certificates(directory, ["controller.example"])["controller.example"]

    async def main() -> None:
        limits = LinkLimits(first_frame_ms_max=1_500)
        server = RemotingServer(Echo(), limits=limits, tls=server_context(files.certificate, files.key))
        (number,) = free_ports(1)
        await server.start("127.0.0.1", number)
        try:
            await scenario(server, number)
        finally:
            await server.stop()

    asyncio.run(main())


def client_context() -> ssl.SSLContext:
    """As a Java client's by default: it asks for TLS and trusts whoever answers."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def echoed(number: int, context: ssl.SSLContext | None, sizes: Sequence[int]) -> None:
    """Frames of these sizes come back whole."""
    reader, writer = await asyncio.open_connection("127.0.0.1", number, ssl=context)
    decoder = FrameDecoder()
    async with asyncio.timeout(5):
        for opaque, size in enumerate(sizes):
            writer.write(encode_frame(Frame(code=1, opaque=opaque, body=b"x" * size)))
            frames: list[Frame] = []
            while not frames:
                data = await reader.read(65_536)
                assert data
                frames = decoder.feed(data)
            assert (frames[0].opaque, len(frames[0].body)) == (opaque, size)
    writer.close()
    await writer.wait_closed()


def test_secured_and_plain_links_are_served_on_one_port(tmp_path: Path) -> None:
    """A frame larger than one TLS record arrives whole, in both directions."""

    async def scenario(server: RemotingServer, number: int) -> None:
        await echoed(number, client_context(), (0, 10, 200_000))
        await echoed(number, None, (0, 10, 200_000))
        await until(lambda: server.connections == 0)

    serving(tmp_path, scenario)


def test_garbage_that_begins_like_tls_ends_its_link_only(tmp_path: Path) -> None:
    """Counted, and the next client is served."""

    async def scenario(server: RemotingServer, number: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        writer.write(b"\x16" + b"\x00" * 64)
        async with asyncio.timeout(5):
            while await reader.read(1_024):
                pass
        writer.close()
        await until(lambda: sum(server.closed_by_cause.values()) == 1)
        await echoed(number, client_context(), (5,))

    serving(tmp_path, scenario)


@pytest.mark.slow
def test_half_a_handshake_is_not_waited_for(tmp_path: Path) -> None:
    """Its time for a first frame includes the handshake."""

    async def scenario(server: RemotingServer, number: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", number)
        writer.write(b"\x16\x03\x01")
        await until(lambda: server.closed_by_cause[CloseCause.SAID_NOTHING] == 1)
        writer.close()

    serving(tmp_path, scenario)
