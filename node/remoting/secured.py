"""
TLS on a port that also takes plain links: the first byte tells which (RocketMQ's "permissive" mode).

Here: a protocol between a socket and a link, and the transport that the link sees. Not here: frames
(``connection``), files of certificates (``node.tls``).

Rule 1: a TLS ClientHello begins with 0x16; a frame within the size limit never does.
Rule 2: an error in TLS ends its link with the reason ``protocol error: TLS``.
Rule 3: a link hears of its opening at once, so that its time for a first frame includes the handshake.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any, Protocol, cast

from rollcall_ha.node.remoting.links import CloseCause

CLIENT_HELLO = 0x16
_NO_ROOM = memoryview(b"")


class FrameLink(Protocol):
    """The link behind the door: ``connection.RemotingConnection``, which reads frames and knows nothing of TLS."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def close(self, reason: str, cause: CloseCause) -> None: ...


class SecuredTransport:
    """The part of a transport that a link uses, through TLS once that has begun."""

    def __init__(self, raw: asyncio.Transport) -> None:
        self._raw = raw
        self._tls: ssl.SSLObject | None = None
        self._outgoing = ssl.MemoryBIO()

    def secure(self, context: ssl.SSLContext, incoming: ssl.MemoryBIO) -> ssl.SSLObject:
        """From here on everything goes through TLS."""
        self._tls = context.wrap_bio(incoming, self._outgoing, server_side=True)
        return self._tls

    def write(self, data: bytes) -> None:
        if self._tls is None:
            self._raw.write(data)
            return
        try:
            self._tls.write(data)
        except ssl.SSLError:
            # Before the handshake is over no request was read: there is nothing to answer.
            self._raw.abort()
        self.flush()

    def flush(self) -> None:
        """Send records that TLS has made: handshake, data, goodbye."""
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def finish(self) -> None:
        """Close when everything has been sent."""
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()

    def pause_reading(self) -> None:
        self._raw.pause_reading()

    def resume_reading(self) -> None:
        self._raw.resume_reading()

    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._raw.is_closing()

    def get_write_buffer_size(self) -> int:
        """Bytes that wait to be sent."""
        return self._raw.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)


class PlainOrSecured(asyncio.BufferedProtocol):
    """Stands between the socket and ``link``; plain bytes go into the link's own buffer, without a copy."""

    def __init__(self, link: FrameLink, context: ssl.SSLContext) -> None:
        self._link = link
        self._context = context
        self._room = _NO_ROOM
        self._incoming = ssl.MemoryBIO()
        self._transport: SecuredTransport | None = None
        self._tls: ssl.SSLObject | None = None
        self._is_plain = False
        self._is_handshaken = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = SecuredTransport(cast("asyncio.Transport", transport))
        self._link.connection_made(cast("asyncio.BaseTransport", self._transport))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Asyncio's callback: where the next bytes go."""
        self._room = self._link.get_buffer(sizehint)
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        assert self._transport is not None
        # Kept, a view of the room would keep the buffer of a large frame alive as long as the link.
        room, self._room = self._room, _NO_ROOM
        if self._tls is None and not self._is_plain:
            if room[0] == CLIENT_HELLO:
                self._tls = self._transport.secure(self._context, self._incoming)
            else:
                self._is_plain = True
        if self._tls is None:
            self._link.buffer_updated(nbytes)
        else:
            # Copied BEFORE the link reads: decrypted bytes go to the place where these lie.
            self._incoming.write(room[:nbytes])
            self._read_secured(self._tls, self._transport)

    def _read_secured(self, tls: ssl.SSLObject, transport: SecuredTransport) -> None:
        is_dry, is_over = False, False
        while not (is_dry or is_over or transport.is_closing()):
            room, filled = self._link.get_buffer(-1), 0
            try:
                if not self._is_handshaken:
                    tls.do_handshake()
                    self._is_handshaken = True
                while filled < len(room) and not is_over:
                    count = cast("int", tls.read(len(room) - filled, room[filled:]))
                    filled, is_over = filled + count, not count
                if is_over:
                    # The peer has said goodbye; it waits for ours.
                    tls.unwrap()
            except ssl.SSLWantReadError:
                is_dry = True
            except ssl.SSLError as error:
                transport.flush()
                self._link.close(f"protocol error: TLS {error.reason or error}", CloseCause.FRAME)
                return
            transport.flush()
            if is_over:
                transport.finish()
            if filled:
                self._link.buffer_updated(filled)

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.connection_lost(exc)
