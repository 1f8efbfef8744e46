"""
The REST port as a server: uvicorn with h11, and one link of it held to limits like a link of every other port.

Here: how long, how large and how many half requests may be, which link makes room, the causes of ends, whose
certificate a link showed. Not here: TLS (``node.remoting.secured``), what a request may say (``edge``), what its caller
may do (``guard``), what it means (``routes``), the table and its counters (``node.remoting.links``).

Rule 1: a request is whole, head and body, within ``REQUEST_MS_MAX`` of its first byte, and the first one within as much
of the connection; a link between two requests is closed after ``KEEP_ALIVE_SECONDS``.
Rule 2: at ``LINKS_MAX`` a new link is taken all the same. The oldest link with a half request makes room for it, else
the oldest one between two requests, else the oldest one that only reads: it asks again. An order under way never does.
Rule 3: signals are the process's own: uvicorn never sees them.
Rule 4: with credentials the port speaks TLS alone; what begins otherwise is answered in plain HTTP, and closed unread.
A certificate that is shown and not believed leaves the link open, as nobody's: its caller is told why.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Generator
from typing import Any, Final, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from rollcall_ha.api.rest import problems
from rollcall_ha.api.rest.edge import SAFE_METHODS
from rollcall_ha.node.certified import PeerCertificate
from rollcall_ha.node.remoting.links import CloseCause, LimitedLink, LinkLimits, LinkTable
from rollcall_ha.node.remoting.secured import Door, SecuredDoor
from rollcall_ha.node.tls import Credentials

LINKS_MAX: Final = 1_000
REQUEST_MS_MAX: Final = 5_000
KEEP_ALIVE_SECONDS: Final = 60
HEAD_BYTES_MAX: Final = 16 * 1024
READ_BYTES_MAX: Final = 64 * 1024
"""Decrypted bytes that a link gets at once."""
REQUEST_BYTES_MAX: Final = 1024 * 1024
"""A body that is too large is refused at 64 KiB and read on up to here: a closed link would lose the answer to it."""
LIMITS: Final = LinkLimits(
    connections_max=LINKS_MAX,
    silent_make_room=True,
    first_frame_ms_max=REQUEST_MS_MAX,
    frame_ms_max=REQUEST_MS_MAX,
    idle_ms_max=0,  # a long-poll reads nothing for half a minute; between requests uvicorn's own clock runs
    unfinished_bytes_max=64 * 1024 * 1024,  # above what half handshakes on all links hold
    unread_bytes_max=64 * 1024 * 1024,
)


CERTIFICATE = "certificate"
"""Key in the state of each request: the ``PeerCertificate`` of its link, or None."""
COMPLAINT = "certificate_complaint"
"""Key in the same state: why the certificate that was shown is nobody's; empty = it is good, or there is none."""


class RestLink(LimitedLink, H11Protocol):
    """One link: uvicorn's protocol, and what its table asks."""

    def __init__(self, links: LinkTable[RestLink], room: memoryview, **of_uvicorn: Any) -> None:
        """``room``: where a door puts decrypted bytes; ``of_uvicorn``: what its server gives to every protocol."""
        LimitedLink.__init__(self, LIMITS)
        H11Protocol.__init__(self, **of_uvicorn)
        self._links = links
        self._room = room
        # uvicorn copies it into the scope of each request. Its own is shared by all links.
        self.app_state = {CERTIFICATE: None, COMPLAINT: ""}

    @property
    def unread_bytes(self) -> int:
        return self.transport.get_write_buffer_size()

    @property
    def shed_rank(self) -> int | None:
        """The place among those that make room, the lowest first; None = it never does (rule 2)."""
        if not self.has_frame or self._frame_began is not None:
            return 0
        if not self._is_answering:
            return 1
        return 2 if self.scope["method"] in SAFE_METHODS else None

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def close(self, reason: str, cause: CloseCause = CloseCause.HANDLER) -> None:  # noqa: ARG002 (nobody asks for it)
        if self.close_cause is None:
            self.close_cause = cause
            self.transport.abort()

    # --- the door ----------------------------------------------------------------------------------------------------

    def note_peer(self, certificate: PeerCertificate | None, complaint: str = "") -> None:
        LimitedLink.note_peer(self, certificate)
        self.scheme = "https"
        self.app_state = {CERTIFICATE: certificate, COMPLAINT: complaint}

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (asyncio's signature)
        """One room for all links of the port: it is read before the next one is."""
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(bytes(self._room[:nbytes]))

    def refuse(self, reason: str, cause: CloseCause) -> None:
        """What came is no request: answer as far as an answer can be read, and close."""
        if self.close_cause is not None:
            return
        self.close_cause = cause
        # Behind an answer that is under way, another one would be taken for a part of it.
        if not self._is_answering and self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            answer = problems.tls_only(reason) if cause is CloseCause.TLS else problems.bad_request(400, reason)
            headers = [*answer.raw_headers, (b"connection", b"close")]
            events = (h11.Response(status_code=400, headers=headers), h11.Data(bytes(answer.body)), h11.EndOfMessage())
            self.transport.write(b"".join(self.conn.send(event) or b"" for event in events))
        self.transport.close()

    # --- asyncio -----------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        H11Protocol.connection_made(self, cast("asyncio.Transport", transport))
        self.note_opened(transport.get_extra_info("peername"), self.loop.time())
        self._links.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._links.ended(self, exc)
        H11Protocol.connection_lost(self, exc)

    def data_received(self, data: bytes) -> None:
        if self.close_cause is not None:
            return
        self._last_read, self._has_read = self.loop.time(), True
        H11Protocol.data_received(self, data)
        self._note_request(len(data))

    # --- uvicorn -----------------------------------------------------------------------------------------------------

    def on_response_complete(self) -> None:
        self._last_read = self.loop.time()
        H11Protocol.on_response_complete(self)
        # A pipelined request behind this one may have begun, and would wait for its rest without a limit.
        self._note_request(0)

    def shutdown(self) -> None:
        if not self._is_answering and self.close_cause is None:
            self.close_cause = CloseCause.STOPPED
        H11Protocol.shutdown(self)

    def timeout_keep_alive_handler(self) -> None:
        self.close(f"idle for more than {KEEP_ALIVE_SECONDS} s", CloseCause.IDLE)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 (uvicorn has one text for all)
        told = f"this is no HTTP/1.1, or its head is larger than {HEAD_BYTES_MAX} bytes"
        self.refuse(told, CloseCause.FRAME_LENGTH)

    def _note_request(self, new_bytes: int) -> None:
        if self.close_cause is not None:
            return
        held_bytes = 0
        if self.conn.their_state is h11.IDLE:
            held_bytes = len(self.conn.trailing_data[0])
        elif self.conn.their_state is h11.SEND_BODY:
            held_bytes = max(1, self.unfinished_bytes + new_bytes)
        self.note_read(held_bytes, took_frame=not held_bytes)
        if held_bytes > REQUEST_BYTES_MAX:
            self.close(f"a request of more than {REQUEST_BYTES_MAX} bytes", CloseCause.FRAME_LENGTH)
        else:
            self.note_unfinished(held_bytes)


class RestServer:
    """Serves one application on one socket until ``stop``."""

    def __init__(self, app: ASGIApp, credentials: Credentials | None = None) -> None:
        """Nothing is served yet. ``credentials``: of TLS; None = the port is plain."""
        self.links: LinkTable[RestLink] = LinkTable(LIMITS, credentials=credentials)
        self._door = None
        if credentials is not None:
            self._door = Door(credentials=credentials, takes_nameless=True, keeps_refused=True)
        self._room = memoryview(bytearray(READ_BYTES_MAX))
        self._uvicorn = _Uvicorn(
            uvicorn.Config(
                app,
                http=self._protocol,  # type: ignore[arg-type] # whatever makes a protocol
                ws="none",
                interface="asgi3",
                access_log=False,
                log_config=None,
                # Warnings are a peer's nonsense, a line for each: it is counted instead.
                log_level="error",
                lifespan="off",
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=1,
                h11_max_incomplete_event_size=HEAD_BYTES_MAX,
            )
        )

    def _protocol(self, **of_uvicorn: Any) -> asyncio.BaseProtocol:
        link = RestLink(self.links, self._room, **of_uvicorn)
        return link if self._door is None else SecuredDoor(link, self._door)

    async def serve(self, listener: socket.socket) -> None:
        """Return when stopped; ``listener`` is closed then."""
        self.links.open()
        try:
            await self._uvicorn.serve(sockets=[listener])
        finally:
            self.links.stop("this controller stops")

    def stop(self) -> None:
        """End ``serve``: answers under way have a second."""
        self._uvicorn.should_exit = True


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Leave the signals to the process (rule 3)."""
        yield
