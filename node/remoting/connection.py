"""
Remoting links on asyncio: a server, a client, and the connection that both hand out.

Here: sockets, limits, matching of answers to requests. Not here: what a request means (a ``FrameHandler`` of the
caller).
Rule 1: everything that one readable event brings reaches the handler as one batch.
Rule 2: a peer's nonsense, silence or greed closes that link and nothing else, with a cause that is counted.
Rule 3: whoever waits for an answer gets one, ``RemotingTimeout`` or ``LinkClosed``; never nothing.
Rule 4: what all links of a server hold together has a limit too; above it those that hold most are closed. Descriptors
are left for everything else that the process does.

RemotingError
  + LinkClosed
  + RemotingTimeout
"""

from __future__ import annotations

import asyncio
import itertools
import resource
import ssl
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, cast

from rollcall_ha.node.remoting.codes import FLAG_ONE_WAY, FLAG_RESPONSE
from rollcall_ha.node.remoting.frame import (
    FRAME_BYTES_MAX,
    Frame,
    FrameDecoder,
    FrameError,
    FrameLengthError,
    encode_frame,
)
from rollcall_ha.node.remoting.secured import PlainOrSecured

DESCRIPTORS_KEPT = 256
"""A server leaves so many of the process's descriptors to files and other links."""


class RemotingError(Exception):
    """Base of what can go wrong with a link."""


class LinkClosed(RemotingError):
    """The link is gone: whether the peer executed the request is unknown if it had been sent."""


class RemotingTimeout(RemotingError):
    """No answer within the limit: outcome unknown."""


class CloseCause(StrEnum):
    """Why a link ended: the closed vocabulary of the counters."""

    PROBE = "probe"
    """The peer left without a byte: a load balancer that looks whether the port is open."""
    PEER = "peer"
    BROKEN = "broken"
    """Reset, or given up by the operating system."""
    FRAME_LENGTH = "frame-length"
    """Garbage, or a frame above the limit."""
    FRAME = "frame"
    """The length was good, the header was not."""
    SLOW_FRAME = "slow-frame"
    SAID_NOTHING = "said-nothing"
    """No first frame in time."""
    IDLE = "idle"
    DOES_NOT_READ = "does-not-read"
    TOO_MANY_LINKS = "too-many-links"
    UNFINISHED_FRAMES = "unfinished-frames"
    """All links together held more of unfinished frames than is allowed, and this one most."""
    HANDLER = "handler"
    """Whoever owns the link closed it."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLimits:
    """What a peer may cost."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    header_bytes_max: int = 256 * 1024
    out_buffer_bytes_max: int = 64 * 1024 * 1024
    """Unsent bytes above this: the peer does not read; the link closes."""
    pending_requests_max: int = 4096
    """Requests of ours without an answer."""
    idle_ms_max: int = 120_000
    """Nothing read for this long: closed (the reference's limit); 0 = never."""
    first_frame_ms_max: int = 0
    """The first frame must be whole within this; 0 = never mind (who connects may be the one that is asked)."""
    frame_ms_max: int = 10_000
    """A frame that has begun must be whole within this (slow senders)."""
    connections_max: int = 20_000
    """Of one server; fewer if the process may open no more files."""
    unfinished_bytes_max: int = 256 * 1024 * 1024
    """Bytes of frames that are not whole yet, over all links of a server."""
    unread_bytes_max: int = 512 * 1024 * 1024
    """Answers that peers have not read yet, over all links of a server; looked at every second."""


class FrameHandler(Protocol):
    """What a server or a client does with its links. Called on the loop thread; must not block or raise."""

    def connected(self, connection: RemotingConnection) -> None:
        """A link is open."""
        ...

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        """All requests and one-ways that one readable event brought, in order."""
        ...

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        """The link is gone; called once, also after ``close``."""
        ...


class RemotingConnection(asyncio.Protocol):
    """One link. Both ends may ask; answers are matched by opaque."""

    def __init__(
        self,
        handler: FrameHandler,
        limits: LinkLimits,
        opaques: itertools.count[int],
        on_unfinished: Callable[[int], None] | None = None,
    ) -> None:
        """Made by ``RemotingServer`` and ``connect``; ``on_unfinished`` hears how far ``unfinished_bytes`` moved."""
        self.peer = "?"
        """host:port of the other end."""
        self.session: object | None = None
        """Free for the handler: what it knows about this link."""
        self._handler = handler
        self._limits = limits
        self._opaques = opaques
        self._decoder = FrameDecoder(frame_bytes_max=limits.frame_bytes_max, header_bytes_max=limits.header_bytes_max)
        self._on_unfinished = on_unfinished
        self.unfinished_bytes = 0
        """Of a frame that is not whole yet."""
        self.close_cause: CloseCause | None = None
        """None = open, or the peer ended it."""
        self._pending: dict[int, asyncio.Future[Frame]] = {}
        self._transport: asyncio.Transport | None = None
        self._close_reason = ""
        self._opened = 0.0
        self._last_read = 0.0
        self._frame_began: float | None = None
        self._has_read = False
        self._has_frame = False

    @property
    def is_open(self) -> bool:
        """Whether a frame sent now has a chance to leave."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def unread_bytes(self) -> int:
        """Sent by us, not taken by the operating system yet: the peer does not read."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # --- asyncio -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        name = transport.get_extra_info("peername")
        self.peer = f"{name[0]}:{name[1]}" if name else "?"
        self._opened = self._last_read = asyncio.get_running_loop().time()
        self._handler.connected(self)

    def data_received(self, data: bytes) -> None:
        self._has_read = True
        try:
            frames = self._decoder.feed(data)
        except FrameError as error:
            cause = CloseCause.FRAME_LENGTH if isinstance(error, FrameLengthError) else CloseCause.FRAME
            self.close(f"protocol error: {error}", cause)
            return
        self._last_read = asyncio.get_running_loop().time()
        if frames:
            self._has_frame = True
        if not self._decoder.buffered_bytes:
            self._frame_began = None
        elif frames or self._frame_began is None:
            self._frame_began = self._last_read
        self._note_unfinished(self._decoder.buffered_bytes)
        requests = [frame for frame in frames if not self._is_answer(frame)]
        if requests:
            self._handler.handle_requests(self, requests)

    def _is_answer(self, frame: Frame) -> bool:
        if not frame.is_response:
            return False
        waiter = self._pending.pop(frame.opaque, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(frame)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        reason = self._close_reason or (f"{exc}" if exc else "closed by the peer")
        if self.close_cause is None:
            gone = CloseCause.PEER if self._has_read else CloseCause.PROBE
            self.close_cause = CloseCause.BROKEN if exc is not None and self._has_read else gone
        self._note_unfinished(0)
        self._transport = None
        for waiter in self._pending.values():
            if not waiter.done():
                waiter.set_exception(LinkClosed(f"{self.peer}: {reason}"))
        self._pending.clear()
        self._handler.disconnected(self, reason)

    # --- for handlers and callers ------------------------------------------------------------------------------------

    def send(self, frame: Frame) -> None:
        """Send without waiting. A closed link drops it: who must know uses ``request``."""
        self.send_bytes(encode_frame(frame))

    def send_bytes(self, data: bytes) -> None:
        """Send encoded frames, one or many in one write."""
        if self._transport is None or self._transport.is_closing():
            return
        self._transport.write(data)
        if self._transport.get_write_buffer_size() > self._limits.out_buffer_bytes_max:
            self.close("the peer does not read", CloseCause.DOES_NOT_READ)

    def respond(
        self,
        request: Frame,
        code: int,
        *,
        body: bytes = b"",
        ext_fields: dict[str, str] | None = None,
        remark: str | None = None,
    ) -> None:
        """Answer ``request`` in its own header form; nothing for a one-way."""
        if not request.is_one_way:
            self.send(
                Frame(
                    code=code,
                    opaque=request.opaque,
                    flag=FLAG_RESPONSE,
                    body=body,
                    ext_fields=ext_fields,
                    remark=remark,
                    form=request.form,
                )
            )

    def send_one_way(self, code: int, *, body: bytes = b"", ext_fields: dict[str, str] | None = None) -> None:
        """Push something that wants no answer."""
        self.send(
            Frame(code=code, opaque=self._next_opaque(), flag=FLAG_ONE_WAY, body=body, ext_fields=ext_fields)
        )  # fmt: skip

    async def request(
        self, code: int, *, body: bytes = b"", ext_fields: dict[str, str] | None = None, timeout_ms: int
    ) -> Frame:
        """
        Ask and wait.

        Raises:
            LinkClosed: before the answer came. RemotingTimeout: no answer within ``timeout_ms``. Either way it may
            have been executed.
        """
        if not self.is_open:
            raise LinkClosed(f"{self.peer}: {self._close_reason or 'not open'}")
        if len(self._pending) >= self._limits.pending_requests_max:
            raise RemotingTimeout(f"{self.peer}: {len(self._pending)} requests wait already; this one was not sent")
        opaque = self._next_opaque()
        waiter: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
        self._pending[opaque] = waiter
        try:
            self.send(Frame(code=code, opaque=opaque, body=body, ext_fields=ext_fields))
            async with asyncio.timeout(timeout_ms / 1000):
                return await waiter
        except TimeoutError:
            raise RemotingTimeout(f"{self.peer}: no answer to code {code} within {timeout_ms} ms") from None
        finally:
            self._pending.pop(opaque, None)

    def close(self, reason: str, cause: CloseCause = CloseCause.HANDLER) -> None:
        """Close now; what is buffered is dropped. The handler hears ``reason``."""
        if self._transport is not None and not self._close_reason:
            self._close_reason, self.close_cause = reason, cause
            self._note_unfinished(0)
            self._transport.abort()

    def overdue(self, now: float) -> tuple[CloseCause, str] | None:
        """Why this link should be closed for its slowness, if it should. ``now`` in the loop's seconds."""
        limits = self._limits
        if self._frame_began is not None and now - self._frame_began > limits.frame_ms_max / 1000:
            return CloseCause.SLOW_FRAME, f"a frame took more than {limits.frame_ms_max} ms"
        if limits.first_frame_ms_max and not self._has_frame and now - self._opened > limits.first_frame_ms_max / 1000:
            return CloseCause.SAID_NOTHING, f"no request within {limits.first_frame_ms_max} ms"
        if limits.idle_ms_max and now - self._last_read > limits.idle_ms_max / 1000:
            return CloseCause.IDLE, f"idle for more than {limits.idle_ms_max} ms"
        return None

    def _note_unfinished(self, held_bytes: int) -> None:
        moved, self.unfinished_bytes = held_bytes - self.unfinished_bytes, held_bytes
        if moved and self._on_unfinished is not None:
            self._on_unfinished(moved)

    def _next_opaque(self) -> int:
        return next(self._opaques) & 0x7FFFFFFF


async def connect(
    host: str, port: int, handler: FrameHandler, *, timeout_ms: int, limits: LinkLimits | None = None
) -> RemotingConnection:
    """
    Open a link to ``host:port``.

    Raises:
        ConnectionRefusedError, OSError: as the operating system says (a probe tells a refusal from the rest).
        TimeoutError: no connection within ``timeout_ms``.
    """
    loop = asyncio.get_running_loop()
    opaques = itertools.count(1)
    async with asyncio.timeout(timeout_ms / 1000):
        _, connection = await loop.create_connection(
            lambda: RemotingConnection(handler, limits or LinkLimits(idle_ms_max=0), opaques), host, port
        )
    return connection


class RemotingServer:
    """Listens, and closes who is idle, slow, too many or talks nonsense; ``closed_by_cause`` counts them."""

    SWEEP_MS = 1_000

    def __init__(
        self, handler: FrameHandler, *, limits: LinkLimits | None = None, tls: ssl.SSLContext | None = None
    ) -> None:
        """Does not listen yet. With ``tls`` both plain and secured links are taken."""
        self._handler = handler
        self._tls = tls
        self._limits = limits or LinkLimits()
        self._opaques = itertools.count(1)
        self._connections: set[RemotingConnection] = set()
        self._connections_max = self._limits.connections_max
        self._server: asyncio.Server | None = None
        self._sweep: asyncio.TimerHandle | None = None
        self.unfinished_bytes = 0
        """Held by all links together (rule 4)."""
        self.closed_by_cause: Counter[CloseCause] = Counter()

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises ``OSError`` if the address is taken."""
        loop = asyncio.get_running_loop()
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors != resource.RLIM_INFINITY:
            self._connections_max = max(1, min(self._limits.connections_max, descriptors - DESCRIPTORS_KEPT))
        self._server = await loop.create_server(self._accept, host, port, backlog=1024)
        self._sweep = loop.call_later(self.SWEEP_MS / 1000, self._close_overdue)

    def _accept(self) -> asyncio.Protocol:
        if self._tls is None:
            return self._make_connection()
        return PlainOrSecured(self._make_connection, self._tls)

    def _make_connection(self) -> RemotingConnection:
        return RemotingConnection(self, self._limits, self._opaques, self._note_unfinished)

    async def stop(self, reason: str = "the server stops") -> None:
        """Stop listening and close every link."""
        if self._sweep is not None:
            self._sweep.cancel()
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.close(reason, CloseCause.STOPPED)
        # One turn, so that handlers hear of every close before we return.
        await asyncio.sleep(0)

    def _close_overdue(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        unread_bytes = 0
        for connection in tuple(self._connections):
            overdue = connection.overdue(now)
            if overdue is not None:
                connection.close(overdue[1], overdue[0])
            else:
                unread_bytes += connection.unread_bytes
        if unread_bytes > self._limits.unread_bytes_max:
            self._shed(
                CloseCause.DOES_NOT_READ, lambda link: link.unread_bytes, unread_bytes, self._limits.unread_bytes_max
            )
        self._sweep = loop.call_later(self.SWEEP_MS / 1000, self._close_overdue)

    def _note_unfinished(self, moved_bytes: int) -> None:
        self.unfinished_bytes += moved_bytes
        limit = self._limits.unfinished_bytes_max
        if moved_bytes > 0 and self.unfinished_bytes > limit:
            self._shed(CloseCause.UNFINISHED_FRAMES, lambda link: link.unfinished_bytes, self.unfinished_bytes, limit)

    def _shed(
        self, cause: CloseCause, held: Callable[[RemotingConnection], int], total_bytes: int, limit_bytes: int
    ) -> None:
        """Rule 4: close those that hold most, until half of the limit is free again."""
        for connection in sorted(self._connections, key=held, reverse=True):
            if total_bytes <= limit_bytes // 2:
                return
            total_bytes -= held(connection)
            connection.close(f"all links together hold more than {limit_bytes} bytes", cause)

    # --- FrameHandler: counts, then hands on -------------------------------------------------------------------------

    def connected(self, connection: RemotingConnection) -> None:
        """Count the link or turn it away."""
        if len(self._connections) >= self._connections_max:
            connection.close(f"more than {self._connections_max} links", CloseCause.TOO_MANY_LINKS)
            return
        self._connections.add(connection)
        self._handler.connected(connection)

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        self._handler.handle_requests(connection, frames)

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        """Count the cause and hand on."""
        assert connection.close_cause is not None
        self.closed_by_cause[connection.close_cause] += 1
        if connection in self._connections:
            self._connections.discard(connection)
            self._handler.disconnected(connection, reason)
