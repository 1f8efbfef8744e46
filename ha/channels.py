"""
How the bytes of a link pass its socket: plain, or through mutual TLS 1.3.

Here: the calls on a non-blocking socket. Not here: watching it, which link it is (``transport``), who may come
(``proof``).

Plain: a body goes out by sendfile. TLS: the kernel cannot encrypt for us everywhere (kTLS needs its module ``tls``), so
a window of the file is read into one buffer, and leaves from there in pieces; what comes in is decrypted into the log's
map.

Rule 1: every call returns at once; a socket that is full or empty raises ``BlockingIOError``, in TLS, too.
Rule 2: TLS wants a write that found no room again with the same bytes: the window stays as it is until it has left.
Rule 3: TLS may have to write before it can read, and to read before it can write. ``waits_for_room`` and
``waits_for_bytes`` say so: to watch the wrong side is to wait for ever, or to turn without an end.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from typing import Any

from rollcall_ha.ha.ports import FileRegion
from rollcall_ha.node.certified import PeerCertificate

Parts = deque[memoryview | FileRegion]
"""What is to be sent, in its order."""
WINDOW_BYTES = 256 * 1024
"""Of a file in memory, while TLS encrypts it; one buffer per link that sends."""
PIECE_BYTES = 64 * 1024
"""Handed to TLS at a time: four of its records."""


class Channel(ABC):
    """One connected socket."""

    is_ready = False
    """Both ends may speak."""
    certificate: PeerCertificate | None = None
    """Of the peer, once it is judged; None on a plain link."""
    shown = ""
    """Serial number of the certificate that this end shows; empty on a plain link."""
    waits_for_room = False
    """Not for data of ours: TLS has something to say before it can go on."""
    waits_for_bytes = False
    """A write goes on when something was read."""

    def __init__(self, sock: socket.socket) -> None:
        """Takes the socket over."""
        self._sock = sock

    def fileno(self) -> int:
        return self._sock.fileno()

    @property
    def held_bytes(self) -> int:
        """Taken from ``Parts`` and not sent yet."""
        return 0

    @property
    def has_unread(self) -> bool:
        """Bytes are here that no readable event will announce."""
        return False

    @abstractmethod
    def shake_hands(self) -> bool:
        """Go on with the handshake; True: it is done. Raises ``OSError``, ``ssl.SSLError`` among them."""

    @abstractmethod
    def receive(self, length_max: int) -> bytes:
        """Empty: the peer has closed. Raises ``OSError``."""

    @abstractmethod
    def receive_into(self, view: memoryview) -> int:
        """As ``receive``."""

    @abstractmethod
    def send(self, parts: Parts, length_max: int) -> int:
        """Send some of the front of ``parts``; returns how many bytes have left. Raises ``OSError``."""

    def close(self) -> None:
        self._sock.close()


def _is_ended(region: FileRegion) -> OSError:
    # A file cut below an announced body gives 0 bytes for ever, while the slave waits inside the body.
    return OSError(f"file {region.fd} ends at {region.position}, {region.length} bytes early")


def _rest_of(region: FileRegion, count: int) -> FileRegion:
    return FileRegion(fd=region.fd, position=region.position + count, length=region.length - count)


class PlainChannel(Channel):
    """The socket itself."""

    is_ready = True

    def shake_hands(self) -> bool:
        return True

    def receive(self, length_max: int) -> bytes:
        return self._sock.recv(length_max)

    def receive_into(self, view: memoryview) -> int:
        return self._sock.recv_into(view)

    def send(self, parts: Parts, length_max: int) -> int:
        part = parts[0]
        if isinstance(part, memoryview):
            count = self._sock.send(part, socket.MSG_MORE if len(parts) > 1 else 0)
            rest: memoryview | FileRegion = part[count:]
            is_done = count == len(part)
        else:
            count = os.sendfile(self._sock.fileno(), part.fd, part.position, min(part.length, length_max))
            if count == 0:
                raise _is_ended(part)
            rest = _rest_of(part, count)
            is_done = count == part.length
        if is_done:
            parts.popleft()
        else:
            parts[0] = rest
        return count


class SecuredChannel(Channel):
    """Through mutual TLS; the caller judges the peer's certificate behind ``shake_hands``, before anything else."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, is_server: bool) -> None:
        """Raises ``OSError``: the peer is gone already. The socket is closed then."""
        try:
            tls = context.wrap_socket(sock, server_side=is_server, do_handshake_on_connect=False)
        except BaseException:
            sock.close()
            raise
        super().__init__(tls)
        self._tls = tls
        self._window = bytearray()
        self._unsent = memoryview(b"")

    @property
    def held_bytes(self) -> int:
        return len(self._unsent)

    @property
    def has_unread(self) -> bool:
        return self.is_ready and self._tls.pending() > 0

    def peer_certificate(self) -> Mapping[str, Any] | None:
        """As ``SSLSocket.getpeercert``, behind the handshake."""
        return self._tls.getpeercert()

    def shake_hands(self) -> bool:
        self.waits_for_room = False
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLWantWriteError:
            self.waits_for_room = True
            return False
        self.is_ready = True
        return True

    def receive(self, length_max: int) -> bytes:
        self.waits_for_room = False
        try:
            return self._tls.recv(length_max)
        except ssl.SSLWantReadError:
            raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self.waits_for_room = True
            raise BlockingIOError from None

    def receive_into(self, view: memoryview) -> int:
        taken = 0
        self.waits_for_room = False
        try:
            # A record has 16 KiB at most: taken one by one, each would cost a look at its bytes in the log.
            while taken < len(view) and (count := self._tls.recv_into(view[taken:])):
                taken += count
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            self.waits_for_room = isinstance(error, ssl.SSLWantWriteError)
            if taken == 0:
                raise BlockingIOError from None
        return taken

    def send(self, parts: Parts, length_max: int) -> int:
        if not self._unsent:
            self._unsent = self._fill(parts, length_max)
        self.waits_for_bytes = False
        try:
            count = self._tls.send(self._unsent[:PIECE_BYTES])
        except ssl.SSLWantWriteError:
            raise BlockingIOError from None
        except ssl.SSLWantReadError:
            self.waits_for_bytes = True
            raise BlockingIOError from None
        self._unsent = self._unsent[count:]
        return count

    def _fill(self, parts: Parts, length_max: int) -> memoryview:
        """A new window of the front of ``parts``: a header and its body leave in one record."""
        waiting = sum(part.length if isinstance(part, FileRegion) else len(part) for part in parts)
        filled, limit = 0, min(length_max, WINDOW_BYTES, waiting)
        # As large as was ever needed: a slave, which sends acks only, needs a hundred bytes.
        if len(self._window) < limit:
            self._window = bytearray(limit)
        view = memoryview(self._window)
        while parts and filled < limit:
            part = parts[0]
            if isinstance(part, memoryview):
                count = min(len(part), limit - filled)
                view[filled : filled + count] = part[:count]
                rest: memoryview | FileRegion = part[count:]
                is_done = count == len(part)
            else:
                room = view[filled : filled + min(part.length, limit - filled)]
                count = os.preadv(part.fd, [room], part.position)
                if count == 0:
                    raise _is_ended(part)
                rest = _rest_of(part, count)
                is_done = count == part.length
            filled += count
            if is_done:
                parts.popleft()
            else:
                parts[0] = rest
        return view[:filled]

    def close(self) -> None:
        # The peer learns that this is the end, and no cut by somebody on the way. Its own goodbye is not waited for.
        if self.is_ready and not self._unsent:
            with contextlib.suppress(OSError, ValueError):
                self._tls.unwrap()
        self._unsent = memoryview(b"")
        super().close()


async def shaken(channel: Channel, loop: asyncio.AbstractEventLoop) -> None:
    """Wait until both ends may speak; for the end that dials. Raises as ``Channel.shake_hands``."""
    while not channel.shake_hands():
        turn: asyncio.Future[None] = loop.create_future()
        number = channel.fileno()
        if channel.waits_for_room:
            loop.add_writer(number, _done, turn)
        else:
            loop.add_reader(number, _done, turn)
        try:
            await turn
        finally:
            if channel.waits_for_room:
                loop.remove_writer(number)
            else:
                loop.remove_reader(number)


def _done(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)
