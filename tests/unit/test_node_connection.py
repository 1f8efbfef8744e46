"""Links over real sockets on loopback: answers, limits, and that a peer's nonsense closes that link only."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress

import pytest

from rollcall_ha.api.rest.listening import LIMITS as REST_LIMITS
from rollcall_ha.deploy.local.processes import free_ports
from rollcall_ha.node.remoting.connection import (
    LinkClosed,
    RemotingConnection,
    RemotingServer,
    RemotingTimeout,
    connect,
)
from rollcall_ha.node.remoting.frame import Frame, encode_frame
from rollcall_ha.node.remoting.links import CloseCause, LimitedLink, LinkLimits, LinkTable
from tests.support.frames import QuietHandler


class Echo(QuietHandler):
    """Answers code 1 with the body, stays silent on code 2, and remembers."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.reasons: list[str] = []
        self.changed = asyncio.Event()

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        self.batches.append(len(frames))
        for frame in frames:
            if frame.code == 1:
                connection.respond(frame, 0, body=frame.body, version=479)
        self.changed.set()

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        self.reasons.append(reason)
        self.changed.set()


def with_server(
    scenario: Callable[[Echo, RemotingServer, int], Coroutine[None, None, None]], limits: LinkLimits | None = None
) -> None:
    async def run() -> None:
        echo = Echo()
        server = RemotingServer(echo, limits=limits)
        (port,) = free_ports(1)
        await server.start("127.0.0.1", port)
        try:
            async with asyncio.timeout(30):
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
        assert {answer.version for answer in answers} == {479}
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
        assert server.links.closed_by_cause == {CloseCause.FRAME_LENGTH: 1}
        good.close("done")

    with_server(scenario)


@pytest.mark.slow
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


async def _counted(server: RemotingServer, cause: CloseCause) -> None:
    """Return when a link has ended for this cause."""
    while not server.links.closed_by_cause[cause]:  # noqa: ASYNC110 - a counter of the server
        await asyncio.sleep(0.002)


def _frame_of(header: bytes, form: int = 0, length: int | None = None) -> bytes:
    word = (form << 24) | (len(header) if length is None else length)
    return struct.pack(">iI", 4 + len(header), word) + header


@pytest.mark.parametrize(
    ("sent", "cause"),
    [
        (b"\x16\x03\x01\x02\x00\x01", CloseCause.FRAME_LENGTH),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", CloseCause.FRAME_LENGTH),
        (struct.pack(">i", 16 * 1024 * 1024 + 1), CloseCause.FRAME_LENGTH),
        (struct.pack(">i", -1), CloseCause.FRAME_LENGTH),
        (_frame_of(b"{}", form=7), CloseCause.FRAME),
        (_frame_of(b"{}", length=3), CloseCause.FRAME),
        (_frame_of(b"{}"), CloseCause.FRAME),
        (_frame_of(b'{"code":1,"opaque":1,"x":' + b"[" * 60_000), CloseCause.FRAME),
        # Its header alone is above the limit: closed when that is known, not when all of it is here.
        (struct.pack(">iI", 1_000_000, 500_000), CloseCause.FRAME),
        (b"", CloseCause.SAID_NOTHING),
        (b"\x00\x00", CloseCause.SLOW_FRAME),
        (encode_frame(Frame(code=1, opaque=1, body=b"x" * 100))[:50], CloseCause.SLOW_FRAME),
        (encode_frame(Frame(code=2, opaque=1)), CloseCause.IDLE),
    ],
)
def test_each_kind_of_nonsense_has_its_own_count(
    monkeypatch: pytest.MonkeyPatch, sent: bytes, cause: CloseCause
) -> None:
    """Garbage, huge lengths, deep JSON, half frames, silence: the link is closed, and the counter says why."""
    monkeypatch.setattr(LinkTable, "SWEEP_MS", 5)

    async def scenario(echo: Echo, server: RemotingServer, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(sent)
        assert await reader.read() == b""
        writer.close()
        assert server.links.closed_by_cause == {cause: 1}
        assert (len(server.links), server.links.unfinished_bytes) == (0, 0)

    # Only what is meant to be late has a short limit: on a busy machine all is.
    short = {
        CloseCause.SAID_NOTHING: LinkLimits(first_frame_ms_max=60),
        CloseCause.SLOW_FRAME: LinkLimits(frame_ms_max=30),
        CloseCause.IDLE: LinkLimits(idle_ms_max=80),
    }
    with_server(scenario, short.get(cause, LinkLimits()))


class _Idle(LimitedLink):
    """A link that never sends; its owner fails when it hears of the end."""

    unread_bytes = 0

    def close(self, reason: str, cause: CloseCause = CloseCause.HANDLER) -> None:
        self.close_cause = cause
        raise ValueError(reason)


def test_an_owner_that_raises_ends_no_later_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """One error of a listener, and no silent or slow link of the port would ever be closed again."""
    monkeypatch.setattr(LinkTable, "SWEEP_MS", 5)

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, _context: None)
        table: LinkTable[_Idle] = LinkTable(LinkLimits(idle_ms_max=1))
        table.open()
        for _ in range(2):
            link = _Idle(table.limits)
            link.note_opened(None, loop.time())
            table.admit(link)
            async with asyncio.timeout(30):
                while link.close_cause is None:  # noqa: ASYNC110 - a value of the link
                    await asyncio.sleep(0.002)
            table.ended(link)
        table.stop("the end")

    asyncio.run(scenario())


@pytest.mark.parametrize("resets", [False, True])
def test_probe_of_a_load_balancer_is_counted_and_leaves_nothing(resets: bool) -> None:
    """Connect and close, also by a reset: no frame, no error, nothing that stays."""

    async def scenario(echo: Echo, server: RemotingServer, port: int) -> None:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", port)) as probe:
                if resets:
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        while server.links.closed_by_cause[CloseCause.PROBE] < 20:  # noqa: ASYNC110 - a counter of the server
            await asyncio.sleep(0.002)
        assert server.links.closed_by_cause == {CloseCause.PROBE: 20}
        assert len(server.links) == 0
        assert echo.batches == []

    with_server(scenario)


def test_peer_that_does_not_read_is_closed() -> None:
    """Its answers would fill our memory."""

    async def scenario(echo: Echo, server: RemotingServer, port: int) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        request = encode_frame(Frame(code=1, opaque=1, body=b"x" * 60_000))
        while not server.links.closed_by_cause:
            writer.write(request * 20)
            await asyncio.sleep(0.001)
        assert server.links.closed_by_cause == {CloseCause.DOES_NOT_READ: 1}
        writer.transport.abort()

    with_server(scenario, LinkLimits(out_buffer_bytes_max=100_000))


def test_unfinished_frames_of_all_links_have_a_limit_and_the_greediest_go_first() -> None:
    """A thousand links with a frame of almost 16 MiB each would be all our memory; an honest small one stays."""

    async def scenario(echo: Echo, server: RemotingServer, port: int) -> None:
        honest = encode_frame(Frame(code=1, opaque=1, body=b"y" * 100))
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(honest[:60])
        greedy = [await asyncio.open_connection("127.0.0.1", port) for _ in range(4)]
        for _, other in greedy:
            other.write(struct.pack(">i", 100_000) + struct.pack(">I", 10) + b"z" * 40_000)
        await _counted(server, CloseCause.UNFINISHED_FRAMES)
        assert server.links.unfinished_bytes <= 100_000
        writer.write(honest[60:])
        assert await reader.readexactly(20)
        assert set(server.links.closed_by_cause) == {CloseCause.UNFINISHED_FRAMES}
        for other in (writer, *(found for _, found in greedy)):
            other.transport.abort()

    with_server(scenario, LinkLimits(unfinished_bytes_max=100_000))


def test_a_closed_link_lets_go_of_its_unfinished_frame_at_once() -> None:
    """Its memory came back with the next full look of the cycle collector: 57 closed links held 850 MiB until then."""

    async def scenario(echo: Echo, server: RemotingServer, port: int) -> None:
        for is_ours in (True, False):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(struct.pack(">iI", 1_000_000, 10) + b"z" * 90_000)
            while server.links.unfinished_bytes < 90_000:  # noqa: ASYNC110 - a counter of the server
                await asyncio.sleep(0)
            (link,) = server.links.snapshot()
            if is_ours:
                link.close("enough")
            else:
                writer.transport.abort()
            while len(server.links):  # noqa: ASYNC110 - a counter of the server
                await asyncio.sleep(0)
            assert (link._received.held_bytes, len(link._received._own), server.links.unfinished_bytes) == (0, 0, 0)
            writer.transport.abort()

    with_server(scenario)


def test_unread_answers_of_all_links_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each below its own limit, together above what we may hold."""
    monkeypatch.setattr(LinkTable, "SWEEP_MS", 5)

    async def scenario(echo: Echo, server: RemotingServer, port: int) -> None:
        request = encode_frame(Frame(code=1, opaque=1, body=b"x" * 1_000_000))
        links = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        with suppress(ConnectionError):  # Who goes over the limit while we write is closed while we write.
            for _ in range(12):
                for _, writer in links:
                    writer.write(request)
                    await writer.drain()
        await _counted(server, CloseCause.DOES_NOT_READ)
        for _, writer in links:
            writer.transport.abort()

    with_server(scenario, LinkLimits(unread_bytes_max=2_000_000))


@pytest.mark.parametrize(
    ("descriptors", "links", "of_rest"), [(128, 48, 16), (256, 96, 32), (1024, 576, 192), (65_536, 20_000, 1_000)]
)
def test_a_controller_that_may_open_256_files_took_one_broker_and_said_nothing(
    descriptors: int, links: int, of_rest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All were kept for files and other links; of 1,024 the broker port and REST, flooded together, took every one."""
    monkeypatch.setattr("rollcall_ha.node.remoting.links.resource.getrlimit", lambda _: (descriptors, descriptors))

    async def scenario(echo: Echo, server: RemotingServer, port: int) -> None:
        rest: LinkTable[RemotingConnection] = LinkTable(REST_LIMITS)
        rest.open()
        rest.stop("seen")
        assert (server.links.connections_max, rest.connections_max) == (links, of_rest)

    with_server(scenario)


def test_server_leaves_descriptors_to_the_rest_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit of open files the log could not be written and no leader be reached."""
    monkeypatch.setattr("rollcall_ha.node.remoting.links.resource.getrlimit", lambda _: (2, 2))

    async def scenario(echo: Echo, server: RemotingServer, port: int) -> None:
        first = await connect("127.0.0.1", port, Echo(), timeout_ms=1000)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        assert server.links.closed_by_cause == {CloseCause.TOO_MANY_LINKS: 1}
        writer.close()
        first.close("done")

    with_server(scenario)
