"""
Links on which this side asks and the peer only answers: probes, pushes, a producer's sends, the questions of tools.

Here: ``dial`` on a loop, ``running_timeout`` for one that is busy, and ``BlockingLink`` for tools that have none. Not
here: the links themselves (``connection``), the questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Self, TypeVar

from rollcall_ha.node.config import split_address
from rollcall_ha.node.remoting.connection import (
    BatchReader,
    RemotingConnection,
    RemotingError,
    RemotingTimeout,
    connect,
)
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.remoting.links import LinkLimits
from rollcall_ha.node.remoting.secured import ExpectedPeer

T = TypeVar("T")

ANSWER_LIMITS: Final = LinkLimits(frame_bytes_max=64 * 1024, idle_ms_max=0)
"""An answer of such a link is small; a peer that sends more is not the one that was to be asked."""
TOOL_LIMITS: Final = LinkLimits(idle_ms_max=0)
"""Tools ask for tables."""
ASK_TIMEOUT_MS: Final = 3_000
TIMEOUT_SLICES: Final = 10
"""In ``running_timeout``: a standstill of the loop, however long, counts for one of them."""
LATE_MS_MAX: Final = 10_000
"""By how much a dial or an answer within a ``running_timeout`` may exceed it, in any time."""


class AskingOnly:
    """Implements ``FrameHandler``. Answers go to the request that waits for them, not through here."""

    def connected(self, connection: RemotingConnection) -> None:
        """The side that connects knows already."""

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        # The peer is not the server that this side took it for; to go on asking would take its answers for that one's.
        connection.close(f"a request from a peer that is only asked: code {frames[0].code}")

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        """Each request that waits hears of it by itself."""


async def dial(
    address: str,
    handler: AskingOnly | None = None,
    *,
    timeout_ms: int,
    limits: LinkLimits = ANSWER_LIMITS,
    expected: ExpectedPeer | None = None,
    make_reader: Callable[[RemotingConnection], BatchReader] | None = None,
) -> RemotingConnection:
    """A link to host:port, as ``connect``. Raises as that, and ``ConfigError``."""
    host, port = split_address(address)
    return await connect(
        host,
        port,
        handler or AskingOnly(),
        timeout_ms=timeout_ms,
        limits=limits,
        expected=expected,
        make_reader=make_reader,
    )


@asynccontextmanager
async def running_timeout(timeout_ms: int) -> AsyncIterator[None]:
    """As ``asyncio.timeout``, by the time for which the loop runs: its own lateness is not the peer's silence."""
    loop = asyncio.get_running_loop()
    slice_s = timeout_ms / 1000 / TIMEOUT_SLICES
    timer: asyncio.TimerHandle

    def count(left: int) -> None:
        nonlocal timer
        if left:
            timer = loop.call_later(slice_s, count, left - 1)
        else:
            limit.reschedule(loop.time())

    async with asyncio.timeout(None) as limit:
        timer = loop.call_later(slice_s, count, TIMEOUT_SLICES - 1)
        try:
            yield
        finally:
            timer.cancel()


class BlockingLink:
    """One link of a tool that asks one thing after the other, and has no loop running. Not for several threads."""

    def __init__(self, address: str, *, timeout_ms: int = ASK_TIMEOUT_MS, expected: ExpectedPeer | None = None) -> None:
        """
        Connect; ``expected`` None: a plain link, to whoever listens there.

        Raises ``OSError``, with the reason if it is not the peer that is expected, and ``ConfigError`` if ``address``
        is none.
        """
        self._timeout_ms = timeout_ms
        self._runner = asyncio.Runner()
        try:
            self._link = self._run(dial(address, timeout_ms=timeout_ms, limits=TOOL_LIMITS, expected=expected))
        except BaseException:
            self._runner.close()
            raise

    def __enter__(self) -> Self:
        """Use as a context: closed at the end."""
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._link.close("the tool has asked")
        self._runner.close()

    def ask(self, code: int, fields: Mapping[str, object] | None = None, body: bytes = b"") -> Frame:
        """The answer. Raises ``OSError``, ``TimeoutError`` included: it may have been executed."""
        return self.ask_all([(code, fields or {}, body)])[0]

    def ask_all(self, requests: Sequence[tuple[int, Mapping[str, object], bytes]]) -> list[Frame]:
        """The answers in the order of the requests, which are all sent before the first is read. Raises as ``ask``."""
        texts = [{name: str(value) for name, value in fields.items()} or None for _, fields, _ in requests]

        async def answers() -> list[Frame]:
            asked = (
                self._link.request(code, body=body, ext_fields=text, timeout_ms=self._timeout_ms)
                for (code, _, body), text in zip(requests, texts, strict=True)
            )
            return await asyncio.gather(*asked)

        return self._run(answers())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Raises ``OSError`` for all that a link meets: tools tell one kind of failure."""
        try:
            return self._runner.run(work)
        except (RemotingTimeout, TimeoutError) as error:
            raise TimeoutError(str(error) or f"no connection within {self._timeout_ms} ms") from error
        except RemotingError as error:
            raise ConnectionAbortedError(str(error)) from error
