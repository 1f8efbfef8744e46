"""
TLS on a port, whatever is spoken behind it, and on the links that this side dials.

Here: the door between a socket and a link, the transport that the link sees, whom a dialled peer has to be. Not here:
frames (``connection``), HTTP (``api.rest.listening``), contexts (``node.tls``), names (``node.certified``).

Rule 1: a port with a door takes TLS, and plain links only if its door says so. A ClientHello begins with 0x16; a frame
within the size limit never does, nor does a request of HTTP.
Rule 2: who the peer is, is judged behind the handshake, before a frame is read and before a byte of ours is sent.
Rule 3: an error in TLS, or a certificate that gives no right to the link, ends that link with a cause of its own; the
alert that names an error is sent first.
Rule 4: a link hears of its opening at once, so that its time for a first frame includes the handshake. asyncio's own
TLS would keep half handshakes where no table sees them.
Rule 5: what is written in one turn of the loop leaves as one batch of records.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import threading
from collections.abc import Mapping
from typing import Any, Final, Protocol, cast

import msgspec

from rollcall_ha.node.certified import PeerCertificate, PeerKind, PeerRefused
from rollcall_ha.node.remoting.links import CloseCause, cause_of
from rollcall_ha.node.tls import Credentials, tls_reason

CLIENT_HELLO: Final = 0x16
SCRATCH_BYTES: Final = 256 * 1024
"""Most encrypted bytes of one readable event."""
CHUNK_BYTES: Final = 64 * 1024
"""
Through OpenSSL's buffers at once. They keep their size as long as the link, so not all that was read; with half of it a
batch of 256 KiB takes a quarter longer.
"""
HANDSHAKE_CHUNK_BYTES: Final = 512
"""
The same of a peer that is not judged yet. Its certificates are the most that a session ever reads at once: in pieces
they cost its link 0.9 KiB less, of 31, as long as it stands.
"""
HANDSHAKE_BYTES: Final = 48 * 1024
"""What OpenSSL holds for a link; counted as an unfinished frame until the peer is judged."""
_NO_ROOM = memoryview(b"")


class Door(msgspec.Struct, frozen=True, kw_only=True):
    """Who may come in at a port with TLS."""

    credentials: Credentials
    kinds: frozenset[PeerKind] | None = None
    """None: every kind of certificate of the fleet."""
    takes_nameless: bool = False
    """TLS from 1.2 on without a certificate: RocketMQ's clients."""
    takes_plain: bool = False
    """Links without TLS too, told apart by their first byte (RocketMQ's "permissive" mode)."""
    keeps_refused: bool = False
    """
    A certificate that gives no right leaves its link open, as nobody's: REST tells its caller why. Closed without a
    word, its owner would look for the fault in the network.
    """

    def context(self) -> ssl.SSLContext:
        return self.credentials.asking_context() if self.takes_nameless else self.credentials.server_context()


class ExpectedPeer(msgspec.Struct, frozen=True, kw_only=True):
    """Whom a link is dialled to, and with which certificate of ours."""

    credentials: Credentials
    kinds: frozenset[PeerKind]
    set_key: str = ""
    """CLUSTER/SET that a broker has to be of; empty = any."""
    name: str = ""
    """Empty = any of these kinds and of this set."""

    def judge(self, found: Mapping[str, Any] | None) -> PeerCertificate:
        """Raises ``PeerRefused``."""
        certificate = self.credentials.judge(found, kinds=self.kinds)
        told = certificate.name
        # Every broker has a certificate of the fleet: one of another set, at an address that was taken over, would be
        # believed to be this one.
        if self.set_key and told.set_key != self.set_key:
            raise PeerRefused(f"certificate {certificate.serial} names {told}; expected is a broker of {self.set_key}")
        if self.name and told.name != self.name:
            raise PeerRefused(f"certificate {certificate.serial} names {told}; expected is {self.name}")
        return certificate


class LinkBehind(Protocol):
    """The link behind the door, which knows nothing of TLS: a ``LimitedLink`` that is a ``BufferedProtocol``."""

    is_shaking_hands: bool

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...

    def get_buffer(self, sizehint: int) -> memoryview: ...

    def buffer_updated(self, nbytes: int) -> None: ...

    def connection_lost(self, exc: Exception | None) -> None: ...

    def pause_writing(self) -> None: ...

    def resume_writing(self) -> None: ...

    def close(self, reason: str, cause: CloseCause) -> None: ...

    def refuse(self, reason: str, cause: CloseCause) -> None: ...

    def note_peer(self, certificate: PeerCertificate | None, complaint: str = "") -> None: ...

    def note_unfinished(self, held_bytes: int) -> None: ...


class _Shared(threading.local):
    """One per thread, because two loops in two threads read at the same time."""

    def __init__(self) -> None:
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))


_shared = _Shared()


class SecuredTransport:
    """The part of a transport that a link uses, through TLS once that has begun."""

    def __init__(self, raw: asyncio.Transport) -> None:
        self._raw = raw
        self._tls: ssl.SSLObject | None = None
        self._outgoing = ssl.MemoryBIO()
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0
        self._is_refused = False

    def secure(self, context: ssl.SSLContext, incoming: ssl.MemoryBIO) -> ssl.SSLObject:
        """From here on everything goes through TLS."""
        self._tls = context.wrap_bio(incoming, self._outgoing, server_side=True)
        return self._tls

    def write(self, data: bytes) -> None:
        if self._tls is None:
            self._raw.write(data)
            return
        # One record for each small answer would cost more than the answer: they wait for the end of the turn (rule 5).
        if not self._unsent:
            asyncio.get_running_loop().call_soon(self.flush)
        self._unsent.append(data)
        self._unsent_bytes += len(data)

    def flush(self) -> None:
        """Send what waits, and the records that TLS has made by itself: handshake, alert, goodbye."""
        if self._unsent and self._tls is not None and not self._raw.is_closing():
            unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
            data = unsent[0] if len(unsent) == 1 else b"".join(unsent)
            try:
                for at in range(0, len(data), CHUNK_BYTES):
                    self._tls.write(data[at : at + CHUNK_BYTES])
                    self._raw.write(self._outgoing.read())
            except ssl.SSLError:
                # Before the handshake is over no request was read: there is nothing to answer.
                self._raw.abort()
        if self._outgoing.pending and not self._raw.is_closing():
            self._raw.write(self._outgoing.read())

    def close(self) -> None:
        """Send everything and TLS's goodbye, then close."""
        self.flush()
        if self._tls is not None and not self._raw.is_closing():
            # Without the goodbye a peer cannot tell the end of an answer from one that was cut on the way. The peer's
            # own is not waited for, and before the end of the handshake there is none.
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self.flush()
        self._raw.close()

    def close_refused(self) -> None:
        """Close when what TLS has to say of it has been sent, whatever its link does."""
        self.flush()
        self._is_refused = True
        self._raw.close()

    def abort(self) -> None:
        # A refused peer would hear "connection reset" instead of the alert that says why.
        if not self._is_refused:
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
        return self._raw.get_write_buffer_size() + self._unsent_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._raw.get_extra_info(name, default)


class SecuredDoor(asyncio.BufferedProtocol):
    """Stands between the socket and ``link``; plain bytes go into the link's own buffer, without a copy."""

    def __init__(self, link: LinkBehind, door: Door) -> None:
        self._link = link
        self._door = door
        self._room = _NO_ROOM
        self._incoming = ssl.MemoryBIO()
        self._transport: SecuredTransport
        self._tls: ssl.SSLObject | None = None
        self._is_plain = False
        self._is_judged = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = SecuredTransport(cast("asyncio.Transport", transport))
        self._link.connection_made(cast("asyncio.BaseTransport", self._transport))

    def get_buffer(self, sizehint: int) -> memoryview:
        """Asyncio's callback: where the next bytes go."""
        self._room = self._link.get_buffer(sizehint) if self._is_plain else _shared.scratch
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        # Kept, a view of the room would keep the buffer of a large frame alive as long as the link.
        room, self._room = self._room, _NO_ROOM
        if self._is_plain:
            self._link.buffer_updated(nbytes)
        elif self._tls is not None:
            self._read_secured(self._tls, room[:nbytes])
        elif room[0] == CLIENT_HELLO:
            self._tls = self._transport.secure(self._door.context(), self._incoming)
            self._link.is_shaking_hands = True
            # Not counted, 20,000 strangers with half a handshake each would hold 900 MiB for as long as a first frame
            # may take.
            self._link.note_unfinished(HANDSHAKE_BYTES)
            self._read_secured(self._tls, room[:nbytes])
        elif self._door.takes_plain:
            self._is_plain = True
            self._pass_on(room[:nbytes])
        else:
            self._link.refuse("this port speaks TLS only (https); trust the fleet's ca.pem", CloseCause.TLS)

    def _pass_on(self, data: memoryview) -> None:
        """The first bytes of a plain link, which were not read into its own buffer."""
        at = 0
        while at < len(data) and not self._transport.is_closing():
            room = self._link.get_buffer(-1)
            count = min(len(room), len(data) - at)
            room[:count] = data[at : at + count]
            self._link.buffer_updated(count)
            at += count

    def _read_secured(self, tls: ssl.SSLObject, data: memoryview) -> None:
        """All that one readable event brought, as few batches as the link has room for."""
        incoming, transport, link = self._incoming, self._transport, self._link
        at, is_dry, is_over = 0, False, False
        try:
            while not (is_dry or is_over or transport.is_closing()):
                room, filled = link.get_buffer(-1), 0
                while filled < len(room) and not is_over:
                    if not incoming.pending and not tls.pending():
                        if is_dry := at == len(data):
                            break
                        next_at = min(at + (CHUNK_BYTES if self._is_judged else HANDSHAKE_CHUNK_BYTES), len(data))
                        incoming.write(data[at:next_at])
                        at = next_at
                    try:
                        if not self._is_judged:
                            tls.do_handshake()
                            if not self._judge(tls):
                                return
                        count = cast("int", tls.read(len(room) - filled, room[filled:]))
                    except ssl.SSLWantReadError:
                        continue
                    filled, is_over = filled + count, not count
                if filled:
                    link.buffer_updated(filled)
            if is_over and not transport.is_closing():
                # The peer has said goodbye: nothing more comes, and it waits for ours.
                transport.close()
            transport.flush()
        except ssl.SSLError as error:
            transport.close_refused()
            link.close(tls_reason(error), CloseCause.TLS)

    def _judge(self, tls: ssl.SSLObject) -> bool:
        """Rule 2; False: the link is closed."""
        self._is_judged, self._link.is_shaking_hands = True, False
        self._link.note_unfinished(0)
        found = tls.getpeercert()
        if not found and self._door.takes_nameless:
            self._link.note_peer(None)
            return True
        try:
            self._link.note_peer(self._door.credentials.judge(found, kinds=self._door.kinds))
        except PeerRefused as error:
            if self._door.keeps_refused:
                self._link.note_peer(None, str(error))
                return True
            self._transport.close_refused()
            self._link.close(str(error), cause_of(error))
            return False
        return True

    def pause_writing(self) -> None:
        self._link.pause_writing()

    def resume_writing(self) -> None:
        self._link.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._link.connection_lost(exc)
