"""Links of the REST port: half, slow and endless requests end under their cause, and others go on being served."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from msgspec.structs import replace
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from rollcall_ha.api.rest import listening
from rollcall_ha.api.rest.listening import (
    HEAD_BYTES_MAX,
    KEEP_ALIVE_SECONDS,
    REQUEST_BYTES_MAX,
    REQUEST_MS_MAX,
)
from rollcall_ha.node.remoting.links import CloseCause
from tests.support.rest_port import Link, RestPort
from tests.support.runtime_controller import until

GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
HALF_BODY = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{"


class Port(RestPort):
    """Its application answers with the body's size; ``/wait`` answers when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if scope["path"] == "/endless":
            await Response(b"too large", status_code=413)(scope, receive, send)
            return
        try:
            body = await request.body()
        except ClientDisconnect:
            return
        if scope["path"] == "/wait":
            self.waiting += 1
            await self.may_answer.wait()
        await Response(str(len(body)))(scope, receive, send)


def _run(scenario: Callable[[Port], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(200), Port().running() as port:
            await scenario(port)

    asyncio.run(main())


async def _answer(link: Link) -> bytes:
    """Head and body of the next answer."""
    head = await link[0].readuntil(b"\r\n\r\n")
    size = next(line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:"))
    return head + await link[0].readexactly(int(size.partition(b":")[2]))


async def _is_closed(link: Link) -> bool:
    try:
        return await link[0].read() == b""
    except ConnectionError:
        return True


def test_half_requests_and_silent_links_are_closed_in_time() -> None:
    """2,000 of them made ``/v1/status`` answer 503 for as long as they stayed."""

    async def scenario(port: Port) -> None:
        after_one = await port.link(GET)
        assert (await _answer(after_one)).startswith(b"HTTP/1.1 200")
        after_one[1].write(GET[:10])
        halves = (b"G", GET[:-2], HALF_BODY)
        links = [await port.link(half) for half in halves]
        silent = await port.link()
        held_bytes = 10 + sum(map(len, halves))
        await until(lambda: len(port.server.links) == 5 and port.server.links.unfinished_bytes == held_bytes)
        port.pass_ms(REQUEST_MS_MAX - 1_000)
        assert (await _answer(await port.link(GET))).startswith(b"HTTP/1.1 200")
        assert len(port.server.links) == 6
        port.pass_ms(2_000)
        assert [await _is_closed(link) for link in (after_one, *links, silent)] == [True] * 5
        await until(lambda: port.closed == {CloseCause.SLOW_FRAME: 4, CloseCause.SAID_NOTHING: 1})

    _run(scenario)


def test_a_byte_now_and_then_does_not_renew_the_time_of_a_request() -> None:
    async def scenario(port: Port) -> None:
        link = await port.link(GET[:-4])
        for sent_bytes in range(len(GET) - 4, len(GET) + 1):
            await until(lambda: port.server.links.unfinished_bytes == sent_bytes)  # noqa: B023 - awaited in the round
            port.pass_ms(900)
            link[1].write(b"X")
        port.pass_ms(2_000)
        assert await _is_closed(link)
        await until(lambda: port.closed == {CloseCause.SLOW_FRAME: 1})

    _run(scenario)


def test_a_pipelined_half_request_behind_an_answer_is_closed_too() -> None:
    """Its bytes came while the answer before it was under way."""

    async def scenario(port: Port) -> None:
        link = await port.link(GET.replace(b" / ", b" /wait ") + GET[:-4])
        await until(lambda: port.waiting == 1)
        port.may_answer.set()
        assert (await _answer(link)).endswith(b"0")
        port.pass_ms(REQUEST_MS_MAX + 1_000)
        assert await _is_closed(link)
        await until(lambda: port.closed == {CloseCause.SLOW_FRAME: 1})

    _run(scenario)


def test_a_wait_for_an_answer_is_no_silence() -> None:
    """A long-poll of half a minute is what the server was asked for."""

    async def scenario(port: Port) -> None:
        waiting = await port.link(GET.replace(b" / ", b" /wait "))
        await until(lambda: port.waiting == 1)
        silent = await port.link()
        await until(lambda: len(port.server.links) == 2)
        port.pass_ms(30_000)
        assert await _is_closed(silent)
        assert len(port.server.links) == 1
        port.may_answer.set()
        assert (await _answer(waiting)).endswith(b"0")

    _run(scenario)


@pytest.mark.slow
def test_a_link_between_two_requests_is_closed_and_counted_as_idle() -> None:
    async def scenario(port: Port) -> None:
        link = await port.link(GET)
        for _ in range(2):
            assert (await _answer(link)).startswith(b"HTTP/1.1 200")
            port.pass_ms(KEEP_ALIVE_SECONDS * 1_000 - 25_000)
            link[1].write(GET)
        assert (await _answer(link)).startswith(b"HTTP/1.1 200")
        port.pass_ms(KEEP_ALIVE_SECONDS * 1_000)
        assert await _is_closed(link)
        await until(lambda: port.closed == {CloseCause.IDLE: 1})

    _run(scenario)


def test_room_is_made_by_half_requests_then_by_idle_links_then_by_readers_and_never_by_orders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A new caller is always served while anything else may go; the oldest of each kind goes first."""
    monkeypatch.setattr(listening, "LIMITS", replace(listening.LIMITS, connections_max=4))

    async def scenario(port: Port) -> None:
        reader = await port.link(GET.replace(b" / ", b" /wait "))
        await until(lambda: port.waiting == 1)
        order = await port.link(HALF_BODY.replace(b" / ", b" /wait ") + b"x" * 9)
        await until(lambda: port.waiting == 2)
        idle = await port.link(GET)
        await _answer(idle)
        half = await port.link(GET[:-2])
        await until(lambda: port.server.links.unfinished_bytes > 0)

        orders = []
        for leaving, count in ((half, 3), (idle, 4), (reader, 5)):
            orders.append(await port.link(HALF_BODY.replace(b" / ", b" /wait ") + b"x" * 9))
            await until(lambda: port.waiting == count)  # noqa: B023 - awaited in the round
            assert await _is_closed(leaving)
        refused = await port.link(GET)
        assert await _is_closed(refused)
        assert port.closed == {CloseCause.TOO_MANY_LINKS: 4}
        port.may_answer.set()
        for link in (order, *orders):
            assert (await _answer(link)).endswith(b"10")

    _run(scenario)


def test_half_requests_that_hold_most_go_when_all_together_hold_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "LIMITS", replace(listening.LIMITS, unfinished_bytes_max=9_000))

    async def scenario(port: Port) -> None:
        small = await port.link(GET[:-2])
        large = [await port.link(GET[:-2] + b"X: " + b"y" * 6_000) for _ in range(2)]
        assert [await _is_closed(link) for link in large] == [True, True]
        assert port.closed == {CloseCause.UNFINISHED_FRAMES: 2}
        small[1].write(b"\r\n")
        assert (await _answer(small)).startswith(b"HTTP/1.1 200")
        assert port.server.links.unfinished_bytes == 0

    _run(scenario)


@pytest.mark.parametrize(
    "garbage",
    [b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", b"GET /" + b"x" * (HEAD_BYTES_MAX + 1), b"GET / HTTP/1.1\r\n\r\n"],
)
def test_what_is_no_request_is_a_problem_and_the_end(garbage: bytes) -> None:
    """TLS, a head above its limit, no Host: told in the API's own shape."""

    async def scenario(port: Port) -> None:
        link = await port.link(garbage)
        answer = await link[0].read()
        assert answer.startswith(b"HTTP/1.1 400")
        assert b"application/problem+json" in answer
        await until(lambda: port.closed == {CloseCause.FRAME_LENGTH: 1})

    _run(scenario)


def test_a_body_without_end_is_answered_and_then_cut() -> None:
    """The answer 413 is out long before; its sender goes on."""

    async def scenario(port: Port) -> None:
        reader, writer = await port.link(
            b"POST /endless HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 413")
        sent = 0
        try:
            while sent < 16 * REQUEST_BYTES_MAX:
                writer.write(b"x" * 65_536)
                sent += 65_536
                await writer.drain()
        except ConnectionError:
            pass
        await until(lambda: port.closed == {CloseCause.FRAME_LENGTH: 1})
        assert port.server.links.unfinished_bytes == 0

    _run(scenario)


def test_links_that_stay_are_counted_as_stopped() -> None:
    """A listener that does not go when the controller stops."""
    ports = []

    async def scenario(port: Port) -> None:
        ports.append(port)
        await port.link(GET[:-2])
        await until(lambda: port.server.links.unfinished_bytes > 0)

    _run(scenario)
    assert ports[0].closed == {CloseCause.STOPPED: 1}
