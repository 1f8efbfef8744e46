"""
TLS on a port that also takes plain links: the first byte tells which (RocketMQ's "permissive" mode).

Here: a protocol between a socket and a link, and the transport that the link sees. Not here: frames
(``connection``), files of certificates (``node.tls``).
Source: rocketmq-wire section 1.7.

Rule 1: a TLS ClientHello begins with 0x16; a frame within the size limit never does.
Rule 2: whatever goes wrong in TLS ends its link with the reason ``protocol error: TLS``.
Rule 3: a link hears of its opening at once, so that its time for a first frame includes the handshake.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Protocol, cast

CLIENT_HELLO = 0x16
READ_BYTES = 65_536


class Link(Protocol):
    """What stands behind: ``connection.RemotingConnection``."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def data_received(self, data: bytes) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def close(self, reason: str) -> None: ...


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
            # Before the handshake is over there is nothing to answer, and nobody whom it could reach.
            self._raw.abort()
        self.flush()

    def flush(self) -> None:
        """Send what TLS has to say."""
        if self._outgoing.pending:
            self._raw.write(self._outgoing.read())

    def finish(self) -> None:
        """Close when everything has been sent."""
        self._raw.close()

    def abort(self) -> None:
        self._raw.abort()

    def is_closing(self) -> bool:
        """Whether nothing can be sent any more."""
        return self._raw.is_closing()

    def get_write_buffer_size(self) -> int:
        """Bytes that wait to be sent."""
        return self._raw.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)


class PlainOrSecured(asyncio.Protocol):
    def __init__(self, make_link: Callable[[], Link], context: ssl.SSLContext) -> None:
        """``make_link`` makes what the bytes are for."""
        self._link = make_link()
        self._context = context
        self._incoming = ssl.MemoryBIO()
        self._transport: SecuredTransport | None = None
        self._tls: ssl.SSLObject | None = None
        self._is_plain = False
        self._is_handshaken = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = SecuredTransport(cast("asyncio.Transport", transport))
        self._link.connection_made(cast("asyncio.BaseTransport", self._transport))

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        if self._tls is None and not self._is_plain:
            if data[0] == CLIENT_HELLO:
                self._tls = self._transport.secure(self._context, self._incoming)
            else:
                self._is_plain = True
        if self._tls is None:
            self._link.data_received(data)
        else:
            self._read_secured(self._tls, self._transport, data)

    def _read_secured(self, tls: ssl.SSLObject, transport: SecuredTransport, data: bytes) -> None:
        self._incoming.write(data)
        chunks: list[bytes] = []
        is_over = False
        try:
            if not self._is_handshaken:
                tls.do_handshake()
                self._is_handshaken = True
            while chunk := tls.read(READ_BYTES):
                chunks.append(chunk)
            # The peer has said goodbye; it waits for ours.
            is_over = True
            tls.unwrap()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            transport.flush()
            self._link.close(f"protocol error: TLS {error.reason or error}")
            return
        transport.flush()
        if is_over:
            transport.finish()
        if chunks:
            self._link.data_received(b"".join(chunks))

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.connection_lost(exc)
