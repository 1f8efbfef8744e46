"""
TLS in front of one link of the REST port.

Here: the handshake, and bytes between socket and link. Not here: whose certificate it is (``listening``,
``guard``), the same for frames (``node.remoting.secured``).

Rule 1: a link hears of its opening before the handshake, so that half handshakes have the limits of half requests.
asyncio's own TLS would keep them where no table sees them.
Rule 2: what does not begin as TLS is answered in plain HTTP, and closed with the cause ``tls``: nothing of it is read.
Rule 3: an error in TLS ends its link with the cause ``tls``; the alert that names it is sent first.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Protocol, cast

from rollcall_ha.node.remoting.links import CloseCause
from rollcall_ha.node.remoting.secured import CLIENT_HELLO
from rollcall_ha.node.tls import Credentials

READ_BYTES_MAX = 64 * 1024
"""Of decrypted bytes that a link gets at once."""


class HttpLink(Protocol):
    """The link behind the door: ``listening.RestLink``."""

    close_cause: CloseCause | None

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def note_secured(self, shown: Mapping[str, Any] | None) -> None: ...

    def refuse(self, detail: str, cause: CloseCause) -> None: ...


class HttpsTransport:
    """The part of a transport that uvicorn uses, through TLS unless the peer began without."""

    def __init__(self, raw: asyncio.Transport, context: ssl.SSLContext) -> None:
        self.incoming = ssl.MemoryBIO()
        """Where the door puts what came."""
        self._raw = raw
        self._outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self._outgoing, server_side=True)
        self.is_plain = False
        self._context = context

    def write(self, data: bytes) -> None:
        if self.is_plain:
            self._raw.write(data)
            return
        try:
            self.tls.write(data)
        except ssl.SSLError:
            # Before the handshake is over no request was read: there is nothing to answer.
            self._raw.abort()
        self.flush()

    def flush(self) -> None:
        """Send records that TLS has made."""
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def close(self) -> None:
        """Send everything and TLS's goodbye, then close."""
        if not (self.is_plain or self._raw.is_closing()):
            # Without the goodbye a peer cannot tell the end of an answer from one that was cut on the way.
            try:
                self.tls.unwrap()
            except ssl.SSLError:
                pass  # the peer's own goodbye is not waited for; or there was no handshake yet
            self.flush()
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()

    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._raw.is_closing()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def get_write_buffer_size(self) -> int:
        """Bytes that wait to be sent."""
        return self._raw.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._context if name == "sslcontext" else self._raw.get_extra_info(name, default)


class HttpsDoor(asyncio.Protocol):
    """Stands between the socket and ``link``."""

    def __init__(self, link: HttpLink, credentials: Credentials) -> None:
        """The context is asked for here, once for each link: renewed files count from the next one on."""
        self._link = link
        self._context = credentials.asking_context()
        self._transport: HttpsTransport | None = None
        self._has_begun = False
        self._is_handshaken = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = HttpsTransport(cast("asyncio.Transport", transport), self._context)
        self._link.connection_made(cast("asyncio.BaseTransport", self._transport))

    def data_received(self, data: bytes) -> None:
        transport = self._transport
        assert transport is not None
        if self._link.close_cause is not None:
            return
        if not self._has_begun and data[0] != CLIENT_HELLO:
            transport.is_plain = True
            self._link.refuse("this port speaks TLS only; ask by https, and trust the fleet's ca.pem", CloseCause.TLS)
            return
        self._has_begun = True
        transport.incoming.write(data)
        try:
            self._read(transport)
        except ssl.SSLWantReadError:
            transport.flush()
        except ssl.SSLError:
            # Closed, not aborted: the alert says "expired" or "unknown authority" to a peer that can mend it.
            if self._link.close_cause is None:
                self._link.close_cause = CloseCause.TLS
            transport.flush()
            transport.close()

    def _read(self, transport: HttpsTransport) -> None:
        """Raises ``ssl.SSLWantReadError`` when everything that came is read, ``ssl.SSLError`` for what is no TLS."""
        if not self._is_handshaken:
            transport.tls.do_handshake()
            self._is_handshaken = True
            self._link.note_secured(transport.tls.getpeercert())
        while not transport.is_closing():
            data = transport.tls.read(READ_BYTES_MAX)
            # A goodbye of TLS: nothing more comes, and an answer that is under way would be read by nobody.
            if not data:
                transport.close()
                return
            transport.flush()
            self._link.data_received(data)

    def pause_writing(self) -> None:
        self._link.pause_writing()

    def resume_writing(self) -> None:
        self._link.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.connection_lost(exc)
