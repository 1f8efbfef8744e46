"""Links over real sockets on loopback: answers, limits, and that a peer's nonsense closes that link only."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine, Sequence

import pytest

from node.remoting.connection import (
    LinkClosed,
    LinkLimits,
    RemotingConnection,
    RemotingServer,
    RemotingTimeout,
    connect,
)
from node.remoting.frame import Frame, encode_frame


class Echo:
    """Answers code 1 with the body, stays silent on code 2, and remembers."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.reasons: list[str] = []
        self.changed = asyncio.Event()

    def connected(self, connection: RemotingConnection) -> None:
        """Nothing to do."""

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        self.batches.append(len(frames))
        for frame in frames:
            if frame.code == 1:
                connection.respond(frame, 0, body=frame.body)
        self.changed.set()

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        self.reasons.append(reason)
        self.changed.set()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def with_server(
    scenario: Callable[[Echo, RemotingServer, int], Coroutine[None, None, None]], limits: LinkLimits | None = None
) -> None:
    async def run() -> None:
        echo = Echo()
        server = RemotingServer(echo, limits=limits)
        port = free_port()
        await server.start("127.0.0.1", port)
        try:
            async with asyncio.timeout(5):
                await scenario(echo, server, port)
        finally:
            await server.stop()

    asyncio.run(run())


def test_many_requests_are_answered_each_with_its_own_body() -> None:
    """Matched by opaque, on one link."""

    async def scenario(echo: Echo, server: RemotingServer, port: int) -> None:
        client = await connect("127.0.0.1", port, Echo(), timeout_ms=1000)
        answers = await asyncio.gather(
            *(client.request(1, body=str(number).encode(), timeout_ms=1000) for number in range(50))
        )
        assert [answer.body for answer in answers] == [str(number).encode() for number in range(50)]
        assert sum(echo.batches) == 50
        client.close("done")

    with_server(scenario)


def test_a_silent_peer_gives_timeout_and_a_closed_one_link_closed() -> None:
    """Whoever waits gets an answer."""

    async def scenario(echo: Echo, server: RemotingServer, port: int) -> None:
        client = await connect("127.0.0.1", port, Echo(), timeout_ms=1000)
        with pytest.raises(RemotingTimeout):
            await client.request(2, timeout_ms=20)
        waiting = asyncio.ensure_future(client.request(2, timeout_ms=2000))
        await asyncio.sleep(0)
        await server.stop("test")
        with pytest.raises(LinkClosed):
            await waiting
        with pytest.raises(LinkClosed):
            await client.request(1, timeout_ms=20)

    with_server(scenario)


def test_nonsense_closes_that_link_and_nothing_else() -> None:
    """A second link goes on being answered; the reason is counted."""

    async def scenario(echo: Echo, server: RemotingServer, port: int) -> None:
        good = await connect("127.0.0.1", port, Echo(), timeout_ms=1000)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")

        assert await reader.read() == b""
        writer.close()
        assert (await good.request(1, body=b"still here", timeout_ms=1000)).body == b"still here"
        assert server.closed_by_reason["protocol error:"] == 1
        good.close("done")

    with_server(scenario)


def test_a_frame_that_never_becomes_whole_closes_the_link() -> None:
    """Slow senders are limited in time, whatever they trickle."""

    async def scenario(echo: Echo, server: RemotingServer, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(encode_frame(Frame(code=1, opaque=1, body=b"x" * 100))[:50])

        assert await reader.read() == b""
        assert "a frame took more than 50 ms" in echo.reasons[0]
        writer.close()

    with_server(scenario, LinkLimits(frame_ms_max=50))


def test_more_links_than_allowed_are_turned_away() -> None:
    """The first ones stay."""

    async def scenario(echo: Echo, server: RemotingServer, port: int) -> None:
        first = await connect("127.0.0.1", port, Echo(), timeout_ms=1000)
        assert (await first.request(1, timeout_ms=1000)).code == 0
        reader, writer = await asyncio.open_connection("127.0.0.1", port)

        assert await reader.read() == b""
        assert (await first.request(1, timeout_ms=1000)).code == 0
        writer.close()
        first.close("done")

    with_server(scenario, LinkLimits(connections_max=1))


def test_a_one_way_is_never_answered() -> None:
    """Flag bit 1."""

    async def scenario(echo: Echo, server: RemotingServer, port: int) -> None:
        heard = Echo()
        client = await connect("127.0.0.1", port, heard, timeout_ms=1000)
        client.send_one_way(1, body=b"quiet")
        assert (await client.request(1, body=b"loud", timeout_ms=1000)).body == b"loud"
        assert heard.batches == []
        client.close("done")

    with_server(scenario)
