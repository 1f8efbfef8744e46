"""
How the bytes of a link pass its socket: plain, or through mutual TLS 1.3.

Here: the calls on a non-blocking socket. Not here: watching it, which link it is (``transport``), who may come
(``proof``).

Plain: a body goes out by sendfile. TLS: the kernel cannot encrypt for us everywhere (kTLS needs its module ``tls``), so
a window of the file is read into one buffer and encrypted; what comes in is decrypted into the log's map.

Rule 1: every call returns at once; a socket that is full or empty raises ``BlockingIOError``, in TLS, too.
Rule 2: TLS works in memory. Each side of a batch is one call to the kernel, whatever the number of its records; a link
that moves small batches pays for calls, not for encryption.
Rule 3: TLS may have to write before it can read; ``waits_for_room`` says so: to watch the wrong side is to wait for
ever.
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
from typing import Any, cast

from rollcall_ha.ha.ports import FileRegion
from rollcall_ha.node.certified import PeerCertificate

Parts = deque[memoryview | FileRegion]
"""What is to be sent, in its order."""
WINDOW_BYTES = 256 * 1024
"""How much of a file is in memory while TLS encrypts it; one buffer per link that sends."""
FETCH_BYTES = 64 * 1024
"""Taken from the socket at a time: what OpenSSL's buffer may grow to, and stays at, for each link that receives."""


class Channel(ABC):
    """One connected socket."""

    is_ready = False
    """Both ends may speak."""
    certificate: PeerCertificate | None = None
    """The peer's, once it is judged; None on a plain link."""
    shown = ""
    """Serial number of the certificate that this end shows; empty on a plain link."""
    waits_for_room = False
    """Not for data of ours: TLS has something to say before it can go on."""
    is_drained = False
    """A read took all that had come: another one is for nothing, until the next readable event."""

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


def _drop_front(parts: Parts, count: int) -> None:
    """``count`` bytes of the first part are taken; it goes with its last one."""
    part = parts[0]
    if count == (part.length if isinstance(part, FileRegion) else len(part)):
        parts.popleft()
    elif isinstance(part, FileRegion):
        parts[0] = FileRegion(fd=part.fd, position=part.position + count, length=part.length - count)
    else:
        parts[0] = part[count:]


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
        else:
            count = os.sendfile(self._sock.fileno(), part.fd, part.position, min(part.length, length_max))
            if count == 0:
                raise _is_ended(part)
        _drop_front(parts, count)
        return count


class SecuredChannel(Channel):
    """Through mutual TLS; the caller judges the peer's certificate behind ``shake_hands``, before anything else."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, is_server: bool) -> None:
        """``sock`` does not block. Nothing is sent yet."""
        super().__init__(sock)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self._window = bytearray()
        self._unsent = memoryview(b"")
        """Records that are made and have not left."""
        self._unsent_for = 0
        """So many bytes of ``Parts`` are in them."""
        self._is_torn = False
        """A part of the next record has come, not all."""

    @property
    def held_bytes(self) -> int:
        return len(self._unsent)

    @property
    def has_unread(self) -> bool:
        return self.is_ready and self._has_record()

    def _has_record(self) -> bool:
        # A torn record is no news: the loop would turn until the rest of it comes.
        return self._tls.pending() > 0 or (self._incoming.pending > 0 and not self._is_torn)

    def peer_certificate(self) -> Mapping[str, Any] | None:
        """As ``SSLObject.getpeercert``, behind the handshake."""
        return self._tls.getpeercert()

    def shake_hands(self) -> bool:
        self.is_drained = False
        try:
            while not self.is_ready:
                try:
                    self._tls.do_handshake()
                    self.is_ready = True
                except ssl.SSLWantReadError:
                    self._say()
                    self._fetch()
        except BlockingIOError:
            return False
        finally:
            # The last flight, or the alert that says why there is none.
            self._say()
        return True

    def receive(self, length_max: int) -> bytes:
        return cast("bytes", self._take(length_max))

    def receive_into(self, view: memoryview) -> int:
        taken = 0
        try:
            # A record has 16 KiB at most: taken one by one, each would cost a look at its bytes in the log.
            while taken < len(view) and (count := self._take(len(view) - taken, view[taken:])):
                taken += cast("int", count)
        except BlockingIOError:
            if not taken:
                raise
        return taken

    def _take(self, length_max: int, *into: memoryview) -> bytes | int:
        """Bytes of one record, or how many of them are in ``into``; nothing: the peer has closed."""
        while True:
            if not self._has_record():
                self._fetch()
            try:
                return cast("bytes | int", self._tls.read(length_max, *into))
            except ssl.SSLWantReadError:
                self._is_torn = True
            except ssl.SSLEOFError:
                return b"" if not into else 0
            finally:
                # A record that asks for new keys is answered.
                if self._outgoing.pending:
                    self._say()

    def _fetch(self) -> None:
        """Records from the socket, as many as came. Raises ``OSError``."""
        if self.is_drained:
            raise BlockingIOError
        data = self._sock.recv(FETCH_BYTES)
        self.is_drained, self._is_torn = len(data) < FETCH_BYTES, False
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    def _say(self) -> None:
        """Send what TLS itself has to say, if there is room."""
        self._unsent = memoryview(b"".join((self._unsent, self._outgoing.read())))
        try:
            self._push()
        except BlockingIOError:
            self.waits_for_room = True
        except OSError:
            return  # a peer that is gone: the next read says so, and its last words come before

    def _push(self) -> None:
        if self._unsent:
            self._unsent = self._unsent[self._sock.send(self._unsent) :]
        if self._unsent:
            raise BlockingIOError
        self.waits_for_room = False

    def send(self, parts: Parts, length_max: int) -> int:
        if not self._unsent:
            window = self._fill(parts, length_max)
            self._tls.write(window)
            # All of its records in one call, where a socket of OpenSSL's own would take one after the other.
            self._unsent, self._unsent_for = memoryview(self._outgoing.read()), len(window)
        self._push()
        count, self._unsent_for = self._unsent_for, 0
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
            else:
                room = view[filled : filled + min(part.length, limit - filled)]
                count = os.preadv(part.fd, [room], part.position)
                if count == 0:
                    raise _is_ended(part)
            _drop_front(parts, count)
            filled += count
        return view[:filled]

    def close(self) -> None:
        # The peer learns that this is the end, and no cut by somebody on the way. Its own goodbye is not waited for.
        if self.is_ready and not self._unsent:
            with contextlib.suppress(OSError, ValueError):
                self._tls.unwrap()
            self._say()
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
