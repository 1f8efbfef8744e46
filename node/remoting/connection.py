"""
Remoting links on asyncio: a server, a client, and the connection that both hand out.

Here: sockets, batches of frames, matching of answers to requests. Not here: what a request means (a ``FrameHandler`` of
the caller), limits and counters (``links``), where bytes lie (``receive``), TLS (``secured``).
Rule 1: everything that one readable event brings reaches the handler as one batch.
Rule 2: a peer's nonsense, silence or greed closes that link and nothing else, with a cause that is counted.
Rule 3: a caller that waits for an answer gets one, ``RemotingTimeout`` or ``LinkClosed``; never nothing.

RemotingError
  + LinkClosed
  + RemotingTimeout
  + PeerUnproved
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from rollcall_ha.node.certified import PeerRefused
from rollcall_ha.node.remoting.codes import FLAG_ONE_WAY, FLAG_RESPONSE
from rollcall_ha.node.remoting.frame import Frame, FrameError, FrameLengthError, decode_frame, encode_frame
from rollcall_ha.node.remoting.links import CloseCause, FewLines, LimitedLink, LinkLimits, LinkTable, cause_of
from rollcall_ha.node.remoting.receive import ReceiveBuffer
from rollcall_ha.node.remoting.secured import Door, ExpectedPeer, SecuredDoor

# The standard one: clients of the library have no structlog, and servers send it the same way (``node.telemetry``).
_log = logging.getLogger("remoting")
_UNPROVED = frozenset((CloseCause.TLS, CloseCause.CERTIFICATE, CloseCause.REVOKED, CloseCause.EXPIRED))
REFUSAL_INTERVAL_S = 1.0
"""A port writes at most one line about refused links in so long; the counters have every one."""


class RemotingError(Exception):
    """Base of the errors of a link."""


class LinkClosed(RemotingError):
    """The link is gone: whether the peer executed the request is unknown if it had been sent."""


class RemotingTimeout(RemotingError):
    """No answer within the limit: outcome unknown."""


class PeerUnproved(RemotingError):
    """Whoever listens there is not the one that was dialled; nothing was sent."""


class FrameHandler(Protocol):
    """Gets the requests of a server's or client's links. Called on the loop thread; must not block or raise."""

    def connected(self, connection: RemotingConnection) -> None:
        """A link is open; requests follow."""
        ...

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        """All requests and one-ways that one readable event brought, in order."""
        ...

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        """The link is gone; called once, also after ``close``."""
        ...


class BatchReader(Protocol):
    """
    Takes the frames of one link out of its receive buffer, where they lie; without one they are copied into ``Frame``.

    For ports with very many messages: nothing is made per message that the reader does not make.
    """

    def take_frame(self, part: memoryview, to_come_bytes: int) -> bool:
        """
        Take one frame, without its length word; raises ``FrameError``. The view must be released by ``end_batch``.

        False: not now; the frame stays, and the reader has called ``RemotingConnection.hold``: nothing is read until
        ``go_on``. ``to_come_bytes`` are there from the frame's length word on.
        """
        ...

    def end_batch(self) -> None:
        """No more frames in this readable event: handle those that were taken."""
        ...


class RemotingConnection(LimitedLink, asyncio.BufferedProtocol):
    """One link. Both ends may ask; answers are matched by opaque."""

    def __init__(
        self,
        handler: FrameHandler,
        limits: LinkLimits,
        opaques: itertools.count[int],
        make_reader: Callable[[RemotingConnection], BatchReader] | None = None,
        expected: ExpectedPeer | None = None,
    ) -> None:
        """Made by ``RemotingServer`` and ``connect``. ``expected``: of a link that was dialled by TLS."""
        super().__init__(limits)
        self._expected = expected
        self.session: object | None = None
        """Free for the handler's own facts about this link."""
        self.answers: Counter[int] | None = None
        """Those of its port (``LinkTable.answers``); None: it was dialled by this end."""
        self._handler = handler
        self._opaques = opaques
        self._make_reader = make_reader
        self._reader: BatchReader = self
        self._requests: list[Frame] = []
        self._received = ReceiveBuffer(frame_bytes_max=limits.frame_bytes_max, header_bytes_max=limits.header_bytes_max)
        self._pending: dict[int, asyncio.Future[Frame]] = {}
        self._loop: asyncio.AbstractEventLoop
        self._transport: asyncio.Transport | None = None
        self._close_reason = ""
        self._is_held = False

    @property
    def is_open(self) -> bool:
        """Whether a frame sent now has a chance to leave."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def close_reason(self) -> str:
        """Why this end closed it; empty = it did not."""
        return self._close_reason

    @property
    def unread_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    # --- asyncio -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()
        self.note_opened(transport.get_extra_info("peername"), self._loop.time())
        if self._expected is not None:
            try:
                self.certificate = self._expected.judge(transport.get_extra_info("peercert"))
            except PeerRefused as error:
                self.close(str(error), cause_of(error))
        if self._make_reader is not None:
            self._reader = self._make_reader(self)
        self._handler.connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (asyncio's signature)
        """Asyncio's callback: where the next bytes go."""
        return self._received.room()

    def buffer_updated(self, nbytes: int) -> None:
        # Bytes that came with the certificate of a peer that was refused.
        if self.close_cause is not None:
            return
        self._has_read = True
        self._last_read = self._loop.time()
        self._read_batch(nbytes)

    def _read_batch(self, new_bytes: int | None) -> None:
        """Hand on all frames that are whole (rule 1). None: nothing new came; the held ones are tried again."""
        reader, received = self._reader, self._received
        try:
            taken = received.cut(new_bytes, reader.take_frame)
            reader.end_batch()
            if self.close_cause is None:
                received.keep()
        except FrameError as error:
            cause = CloseCause.FRAME_LENGTH if isinstance(error, FrameLengthError) else CloseCause.FRAME
            self.close(f"protocol error: {error}", cause)
            return
        except Exception as error:  # noqa: BLE001 (ours; it costs the link that met it, and is seen)
            # Raised into the loop it would close the link too, but uncounted, and nobody would know whose bytes did it.
            _log.error("link_fault peer=%s", self.peer, exc_info=error)
            self.close(f"internal fault: {type(error).__name__}: {error}", CloseCause.FAULT)
            return
        self.note_read(received.rest_bytes, took_frame=taken > 0)
        held_bytes = received.held_bytes
        if held_bytes != self.unfinished_bytes and self.close_cause is None:
            self.note_unfinished(held_bytes)

    def go_on(self) -> None:
        """The reader can take the frame that it refused: take what is held, and read on."""
        if not self._is_held or not self.is_open:
            return
        self._is_held = False
        self._last_read = self._loop.time()
        self._read_batch(None)
        if not self._is_held and self._transport is not None and self.is_open:
            self._transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        reason = self._close_reason or (f"{exc}" if exc else "closed by the peer")
        self.note_gone(exc)
        # Now, not when the cycle collector comes by: link, reader and handler know each other, and 57 closed links of a
        # flood kept 850 MiB.
        self._received.drop()
        self._transport = None
        for waiter in self._pending.values():
            if not waiter.done():
                waiter.set_exception(LinkClosed(f"{self.peer}: {reason}"))
        self._pending.clear()
        self._handler.disconnected(self, reason)

    # --- frames by default: copied ------------------------------------------------------------------------------------

    def take_frame(self, part: memoryview, to_come_bytes: int) -> bool:  # noqa: ARG002 (of ``BatchReader``)
        """Answers go to their waiter, requests wait for the end of the batch."""
        frame = decode_frame(part)
        if not frame.is_response:
            self._requests.append(frame)
        else:
            self.take_answer(frame)
        return True

    def take_answer(self, frame: Frame) -> None:
        """An answer goes to whoever waits for it in ``request``, or to nobody."""
        waiter = self._pending.pop(frame.opaque, None)
        if waiter is not None and not waiter.done():
            waiter.set_result(frame)

    def end_batch(self) -> None:
        """All requests of one readable event at once (rule 1)."""
        if self._requests:
            requests, self._requests = self._requests, []
            self._handler.handle_requests(self, requests)

    # --- for handlers and callers ------------------------------------------------------------------------------------

    def send(self, frame: Frame) -> None:
        """Send without waiting. A closed link drops it: a caller that must know uses ``request``."""
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
        version: int = 0,
    ) -> None:
        """Answer ``request`` in its own header form; nothing for a one-way."""
        if not request.is_one_way:
            if self.answers is not None:
                self.answers[code] += 1
            self.send(
                Frame(
                    code=code,
                    opaque=request.opaque,
                    flag=FLAG_RESPONSE,
                    body=body,
                    ext_fields=ext_fields,
                    remark=remark,
                    version=version,
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
        # A peer that answers nothing would be asked for ever, and every question kept.
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
            self._received.drop()
            self.note_unfinished(0)
            self._transport.abort()

    def hold(self) -> None:
        """Read nothing more until ``go_on``; the sweep closes a link that is held longer than a frame may take."""
        self._is_held = True
        if self._transport is not None:
            self._transport.pause_reading()

    def _next_opaque(self) -> int:
        return next(self._opaques) & 0x7FFFFFFF


async def connect(
    host: str,
    port: int,
    handler: FrameHandler,
    *,
    timeout_ms: int,
    limits: LinkLimits | None = None,
    expected: ExpectedPeer | None = None,
    make_reader: Callable[[RemotingConnection], BatchReader] | None = None,
) -> RemotingConnection:
    """
    Open a link to ``host:port``; ``expected`` None: a plain one, to whoever listens there.

    Raises:
        ConnectionRefusedError, OSError: as the operating system says (a probe tells a refusal from the rest), and
            ``ssl.SSLError`` among them.
        PeerUnproved: it is not the peer that is expected.
        TimeoutError: no connection within ``timeout_ms``.
    """
    loop = asyncio.get_running_loop()
    opaques = itertools.count(1)

    def make() -> RemotingConnection:
        return RemotingConnection(handler, limits or LinkLimits(idle_ms_max=0), opaques, make_reader, expected)

    async with asyncio.timeout(timeout_ms / 1000):
        if expected is None:
            _, connection = await loop.create_connection(make, host, port)
        else:
            _, connection = await loop.create_connection(make, host, port, ssl=expected.credentials.client_context())
    if connection.close_cause is not None:
        raise PeerUnproved(f"{host}:{port}: {connection.close_reason}")
    return connection


class RemotingServer:
    """Listens, and closes links that are idle, slow, too many or talk nonsense; ``links`` counts them."""

    def __init__(
        self,
        handler: FrameHandler,
        *,
        limits: LinkLimits | None = None,
        door: Door | None = None,
        make_reader: Callable[[RemotingConnection], BatchReader] | None = None,
    ) -> None:
        """Does not listen yet. Without ``door`` links are plain, and believed whoever they are."""
        self._handler = handler
        self._door = door
        self._refusals = FewLines(REFUSAL_INTERVAL_S)
        self._make_reader = make_reader
        self._opaques = itertools.count(1)
        self._server: asyncio.Server | None = None
        self.links: LinkTable[RemotingConnection] = LinkTable(
            limits or LinkLimits(), credentials=None if door is None else door.credentials
        )

    @property
    def port(self) -> int:
        """Where it listens; for tests that asked for port 0."""
        assert self._server is not None, "it was started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self, host: str, port: int) -> None:
        """Listen. Raises ``OSError`` if the address is taken."""
        self._server = await asyncio.get_running_loop().create_server(self._accept, host, port, backlog=1024)
        self.links.open()

    def _accept(self) -> asyncio.BufferedProtocol:
        # The one door for every remoting port: what a link must show before its first frame belongs here.
        connection = RemotingConnection(self, self.links.limits, self._opaques, self._make_reader)
        connection.answers = self.links.answers
        return connection if self._door is None else SecuredDoor(connection, self._door)

    async def stop(self, reason: str = "the server stops") -> None:
        """Stop listening and close every link."""
        if self._server is not None:
            self._server.close()
        self.links.stop(reason)
        # One turn, so that handlers hear of every close before we return.
        await asyncio.sleep(0)

    # --- FrameHandler: counts, then hands on -------------------------------------------------------------------------

    def connected(self, connection: RemotingConnection) -> None:
        """Count the link or turn it away."""
        if self.links.admit(connection):
            self._handler.connected(connection)

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        self._handler.handle_requests(connection, frames)

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        """Count the cause and hand on."""
        if connection.close_cause in _UNPROVED:
            self._tell_refusal(connection, reason)
        if self.links.ended(connection):
            self._handler.disconnected(connection, reason)

    def _tell_refusal(self, connection: RemotingConnection, reason: str) -> None:
        # The peer hears little of it: TLS 1.3 lets it believe that the link stands.
        if self._refusals.take(asyncio.get_running_loop().time()) is not None:
            _log.warning("link_refused peer=%s cause=%s reason=%s", connection.peer, connection.close_cause, reason)
