"""
Links between members: mutual TLS on non-blocking sockets, in the raft thread.

Here: dialling, accepting, handshakes, frames, limits. Not here: messages' meaning (``repairs``), their bytes
(``messages``).
Rule 1: TLS 1.3, with a certificate on both sides. The certificate names the peer; nothing that a peer sends is parsed
before the handshake is done. Stock PySyncObj unpickles the first frame of any stranger: code of his choice runs.
Rule 2: the first frame is a ``Hello`` of our protocol version with the name that the certificate has.
Rule 3: a peer's nonsense closes that link only; a listener that was lost is bound again.
Rule 4: without TLS only between loopback addresses (tests, demonstrations): the name is then that of ``Hello``.
Rule 5: of two members the one with the greater name dials. A new link replaces the old one.
Rule 6: a link lives no longer than the right of its peer's certificate: closed when that is revoked or expires. Links
that show a certificate that its end has renewed are dialled anew before, one peer after the other, while the old one
still carries.
"""

from __future__ import annotations

import errno
import logging
import select
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pysyncobj.poller import POLL_EVENT_TYPE

from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.replication.ports import RefusedPeer
from rollcall_ha.controller.replication.raft.internals import Member
from rollcall_ha.controller.replication.raft.messages import (
    PROTOCOL_VERSION,
    Hello,
    Message,
    Ping,
    ProtocolError,
    decode_message,
    encode_message,
    frame_length,
)
from rollcall_ha.controller.replication.raft.repairs import RepairedTransport
from rollcall_ha.node.certified import CertifiedName, PeerCertificate, PeerKind, PeerRefused
from rollcall_ha.node.config import is_loopback, split_address
from rollcall_ha.node.remoting.links import CloseCause, cause_of
from rollcall_ha.node.tls import Credentials, tls_reason

PENDING_HANDSHAKES_MAX = 32
"""Accepted links whose peer is not proved yet; of more, the oldest is dropped."""
HANDSHAKE_SECONDS_MAX = 3.0
OUT_BYTES_MAX = 64 * 1024 * 1024
"""Unsent bytes after which a link is given up: the peer begins again when it can follow."""
ACCEPTS_PER_EVENT_MAX = 16
HELLO_BYTES_MAX = 1024
"""A peer without a ``Hello`` may not send more."""
READ_BYTES = 256 * 1024
WRITE_BYTES = 128 * 1024
REBIND_SECONDS = 0.5
UNDIALLED_SECONDS = 3.0
"""Without a link, after which the lesser name dials too."""
REFUSED_MAX = 16
"""Peers whose last refusal is kept: twice as many as a group has members, of whom each dials and is dialled."""
RENEWAL_WAIT_SECONDS = 2.0
"""From our renewal to new links: who renews at the same time has read its files by then, and shows the new ones."""
RENEWAL_SECONDS_MIN = 10.0
"""Between two attempts at one peer to replace a link that works."""
_READ, _WRITE, _ERROR = POLL_EVENT_TYPE.READ, POLL_EVENT_TYPE.WRITE, POLL_EVENT_TYPE.ERROR

_logger = logging.getLogger(__name__)


class LinkPoller:
    """``select.poll`` with the library's interface. It forgets a descriptor at once: the next link gets its number."""

    def __init__(self) -> None:
        self._poll = select.poll()
        self._callbacks: dict[int, Callable[[int, int], None]] = {}

    def subscribe(self, descriptor: int, callback: Callable[[int, int], None], mask: int) -> None:
        """Watch, or watch for something else."""
        events = (select.POLLIN if mask & _READ else 0) | (select.POLLOUT if mask & _WRITE else 0)
        self._callbacks[descriptor] = callback
        self._poll.register(descriptor, events)

    def unsubscribe(self, descriptor: int) -> None:
        """Watch no more; fine if it was not watched."""
        if self._callbacks.pop(descriptor, None) is not None:
            self._poll.unregister(descriptor)

    def poll(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds, then call back for everything that is ready."""
        for descriptor, events in self._poll.poll(timeout * 1000):
            # A callback before this one may have closed the link: its events are still in this round's list.
            callback = self._callbacks.get(descriptor)
            if callback is not None:
                is_readable = events & (select.POLLIN | select.POLLHUP | select.POLLERR | select.POLLNVAL)
                callback(descriptor, (_READ if is_readable else 0) | (_WRITE if events & select.POLLOUT else 0))


class RaftLink:
    """One connection, dialled or accepted, from its first byte to its end."""

    def __init__(
        self, owner: TlsTransport, raw: socket.socket, peer: Member | None, *, host: str, opened_ns: int
    ) -> None:
        """``peer`` None: accepted, and not yet known."""
        self.owner = owner
        self.host = host
        self.peer = peer
        self.is_server = peer is None
        self.is_up = False
        self.is_closed = False
        self.opened_ns = opened_ns
        self.heard_ns = opened_ns
        self._is_connecting = not self.is_server
        self._is_secure = False
        self.proved: PeerCertificate | None = None
        """Whom the peer's certificate names; None: not yet, or without TLS."""
        self.shown = ""
        """Serial number of the certificate that we showed."""
        self._socket: socket.socket | ssl.SSLSocket = raw
        self._in = bytearray()
        self._out = bytearray()
        self._mask = 0
        if self.is_server:
            self._wrap()
        self._watch(_READ | _WRITE)

    @property
    def pending_bytes(self) -> int:
        return len(self._out)

    def _wrap(self) -> None:
        self.shown = self.owner.own_serial
        context = self.owner.context(is_server=self.is_server)
        if context is not None:
            # Detaches the plain socket; the descriptor stays the same.
            self._socket = context.wrap_socket(self._socket, server_side=self.is_server, do_handshake_on_connect=False)

    def _watch(self, mask: int) -> None:
        if mask != self._mask and not self.is_closed:
            self._mask = mask
            self.owner.poller.subscribe(self._socket.fileno(), self._on_event, mask)

    def close(self, reason: str, cause: CloseCause = CloseCause.HANDLER) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self.owner.closed_by_cause[cause] += 1
        self.owner.poller.unsubscribe(self._socket.fileno())
        self._socket.close()
        self.owner.link_closed(self, reason)

    # --- events ---

    def _on_event(self, _descriptor: int, events: int) -> None:
        if self.is_closed:
            return
        # Any error ends this link and nothing else: an exception that leaves here breaks off the node's tick,
        # and fifty in a row end the process. A peer must not be able to do that.
        try:
            if not self._is_secure:
                self._advance_handshake()
            if events & _WRITE:
                self._flush()
            self._read()
        except ssl.SSLWantReadError:
            self._watch(_READ)
        except ssl.SSLWantWriteError:
            self._watch(_READ | _WRITE)
        except (OSError, ProtocolError, PeerRefused) as error:
            self.owner.link_failed(self, error)
            self.close(str(error), _cause_of(error))

    def _advance_handshake(self) -> None:
        """Raises ``SSLWantReadError`` and the like until it is done."""
        if self._is_connecting:
            failure = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if failure:
                raise OSError(failure, errno.errorcode.get(failure, "connect failed"))
            self._is_connecting = False
            self._wrap()
        if isinstance(self._socket, ssl.SSLSocket):
            self._socket.do_handshake()
            # Dialled: that very peer, not just some member. c2 with its good certificate at c3's address would else
            # get the messages for c3, and vote twice.
            self.proved = self.owner.prove(self._socket, self.peer)
        self._is_secure = True
        self._watch(_READ)
        self.send(Hello(version=PROTOCOL_VERSION, name=self.owner.me.name))

    def _read(self) -> None:
        if self.is_closed:
            return
        while True:
            try:
                data = self._socket.recv(READ_BYTES)
            except (ssl.SSLWantReadError, BlockingIOError):
                break
            except ssl.SSLWantWriteError:
                self._watch(_READ | _WRITE)
                break
            if not data:
                # Frames that came with the close count: stock PySyncObj throws them away, a vote among them.
                self._take_frames()
                self.close("the peer closed it", CloseCause.PEER)
                return
            self._in += data
            self._take_frames()
            if self.is_closed or (len(data) < READ_BYTES and not isinstance(self._socket, ssl.SSLSocket)):
                return

    def _take_frames(self) -> None:
        # Bytes, not frames: a snapshot's piece on a slow link is a sign of life long before it is whole.
        self.heard_ns = self.owner.now_ns()
        offset = 0
        try:
            while not self.is_closed:
                length = frame_length(self._in, offset)
                # Judged by the length alone, before it is buffered: 32 strangers would else hold 8 MiB each.
                if length is not None and length > HELLO_BYTES_MAX and not self.is_up:
                    raise ProtocolError(f"its first frame has {length} bytes, at most {HELLO_BYTES_MAX} are allowed")
                if length is None or len(self._in) - offset < length:
                    break
                frame = bytes(memoryview(self._in)[offset : offset + length])
                offset += length
                self._on_message(decode_message(frame))
        finally:
            del self._in[:offset]

    def _on_message(self, message: Message) -> None:
        if self.is_up and self.peer is not None:
            if not isinstance(message, Ping):
                self.owner.deliver(self.peer, message)
            return
        if not isinstance(message, Hello):
            raise ProtocolError(f"its first frame is {type(message).__name__}, expected Hello")
        if message.version != PROTOCOL_VERSION:
            raise ProtocolError(f"it speaks version {message.version}, this node {PROTOCOL_VERSION}")
        # A member speaks for itself only: c2 must not vote as c3.
        if self.proved is not None and message.name != self.proved.name.name:
            raise ProtocolError(f"it says it is {message.name!r}, its certificate names {self.proved.name}")
        member = self.owner.peer_named(message.name)
        if member is None or (self.peer is not None and member is not self.peer):
            raise ProtocolError(f"{message.name!r} is not expected here")
        self.peer = member
        self.is_up = True
        self.owner.link_up(self)

    # --- sending ---

    def send(self, message: Message) -> None:
        """Queue and try to write; a peer that does not read loses its link."""
        self._out += encode_message(message)
        # A peer that reads nothing would cost this node's memory; it starts again with a new link.
        if len(self._out) > OUT_BYTES_MAX:
            self.close(f"{len(self._out)} bytes wait for it, at most {OUT_BYTES_MAX} may", CloseCause.DOES_NOT_READ)
            return
        if not self._mask & _WRITE:
            try:
                self._flush()
            except OSError as error:
                self.close(str(error))

    def _flush(self) -> None:
        sent = 0
        try:
            with memoryview(self._out) as view:
                while sent < len(view):
                    sent += self._socket.send(view[sent : sent + WRITE_BYTES])
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError, BlockingIOError):
            self._watch(_READ | _WRITE)
        # Not in a "finally": any other error closes the link, and while it flies its frames still hold a part of the
        # buffer, which can then not be shortened.
        del self._out[:sent]
        if not self._out:
            self._watch(_READ)


class TlsTransport(RepairedTransport):
    """Carries messages over ``RaftLink``."""

    def __init__(
        self,
        me: Member,
        peers: Sequence[Member],
        *,
        timing: Timing,
        tls: Credentials | None,
        clock_ns: Callable[[], int],
        resolve: Callable[[str], str | None],
        bind: str | None = None,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        stranger: Callable[[str], Member | None],
    ) -> None:
        """
        ``stranger`` gives the member for a name that is not among ``peers``, ``resolve`` the address of a host name
        without blocking; None: not known yet. ``bind``: host:port to listen on; None: the address of ``me``.

        Raises ``OSError`` if rule 4 is broken.
        """
        super().__init__(me, peers, clock_ns)
        self._bind_address = bind if bind is not None else me.address
        if tls is None:
            _require_loopback([*((peer.name, peer.address) for peer in peers), (me.name, self._bind_address)])
        self._stranger = stranger
        self._tls = tls
        self._wall_ms = wall_ms
        self._timing = timing
        self._resolve = resolve
        self._links: dict[Member, RaftLink] = {}
        self._pending: list[RaftLink] = []
        self._dial_at_ns: dict[Member, int] = {}
        self._own_serial = self.own_serial
        self._renewed_at_ns = 0
        self._replace_at_ns: dict[Member, int] = {}
        self._unlinked_at_ns: dict[Member, int] = {}
        self._ping_at_ns = 0
        self._bind_at_ns = 0
        self._listener: socket.socket | None = None
        self.closed_by_cause: Counter[CloseCause] = Counter()
        """Why links ended, those too whose peer proved nothing."""
        self.peer_certificates: tuple[PeerCertificate, ...] = ()
        """The certificates of linked peers; replaced as a whole, for other threads."""
        self.refused: tuple[RefusedPeer, ...] = ()
        """Peers that were refused a link, the last one last; replaced as a whole, for other threads."""
        self.poller: Any = None

    # --- for links ---

    def now_ns(self) -> int:
        """The node's monotonic clock."""
        return self._clock_ns()

    def context(self, *, is_server: bool) -> ssl.SSLContext | None:
        if self._tls is None:
            return None
        return self._tls.server_context() if is_server else self._tls.client_context()

    @property
    def own_serial(self) -> str:
        """Serial number of the certificate that the next link shows; empty without TLS."""
        return "" if self._tls is None else self._tls.own.serial

    def prove(self, link: ssl.SSLSocket, dialled: Member | None) -> PeerCertificate:
        """The member at the other end. Raises ``PeerRefused``."""
        assert self._tls is not None
        expected = None
        if dialled is not None:
            expected = CertifiedName(fleet=self._tls.fleet, kind=PeerKind.CONTROLLER, name=dialled.name)
        return self._tls.judge(link.getpeercert(), expected=expected, kinds={PeerKind.CONTROLLER})

    def peer_named(self, name: str) -> Member | None:
        """
        A controller other than this one: a member, or one that its certificate proves to be of this fleet.

        A stranger may have been added while this one slept: refused, this one would never hear of it (adr/0020).
        """
        if name == self.me.name:
            return None
        return next((peer for peer in self.peers if peer.name == name), None) or self._stranger(name)

    def link_up(self, link: RaftLink) -> None:
        """The peer has proved that it is a member."""
        assert link.peer is not None
        self._pending.remove(link)
        # The new one wins (rule 5): after a power cut on the other side the old link looks open for seconds, and the
        # peer would be turned away until it is found silent.
        old = self._links.pop(link.peer, None)
        if old is not None:
            old.close("a newer link replaces it")
            self.peer_down(link.peer)
        self._links[link.peer] = link
        name, host = link.peer.name, link.host
        self.refused = tuple(one for one in self.refused if one.name != name and (one.name or one.host != host))
        self._tell_certificates()
        self.peer_up(link.peer)

    def link_failed(self, link: RaftLink, error: OSError | ProtocolError | PeerRefused) -> None:
        """Keep it for people if this end has refused the peer, and not the network, or the peer this end."""
        is_of_certificate = isinstance(error, PeerRefused | ssl.SSLCertVerificationError)
        # A stranger without a certificate is none of the controllers: port scanners, ``rollcall doctor``.
        if not is_of_certificate and (link.proved is None or link.is_up or not isinstance(error, ProtocolError)):
            return
        proved = "" if link.proved is None else link.proved.name.name
        name = proved if link.peer is None else link.peer.name
        reason = tls_reason(error) if isinstance(error, ssl.SSLError) else str(error)
        others = tuple(one for one in self.refused if (one.name, one.host) != (name, link.host))
        refused = RefusedPeer(name=name, host=link.host, code=_cause_of(error), reason=reason, at_ns=self.now_ns())
        self.refused = (*others[1 - REFUSED_MAX :], refused)

    def link_closed(self, link: RaftLink, reason: str) -> None:
        name = link.peer.name if link.peer is not None else "an unknown peer"
        if link in self._pending:
            self._pending.remove(link)
            _logger.debug("%s: link to %s refused: %s", self.me.name, name, reason)
        elif link.peer is not None and self._links.get(link.peer) is link:
            del self._links[link.peer]
            self._tell_certificates()
            _logger.info("%s: link to %s closed: %s", self.me.name, name, reason)
            self.peer_down(link.peer)

    def _tell_certificates(self) -> None:
        self.peer_certificates = tuple(link.proved for link in self._links.values() if link.proved is not None)

    # --- for the repairs ---

    def transmit(self, peer: Member, message: Message) -> bool:
        link = self._links.get(peer)
        if link is None:
            return False
        link.send(message)
        return not link.is_closed

    def pending_bytes(self, peer: Member) -> int:
        link = self._links.get(peer)
        return link.pending_bytes if link is not None else 0

    def set_peers(self, voters: Sequence[Member], learners: Sequence[Member]) -> None:
        super().set_peers(voters, learners)
        for peer, link in list(self._links.items()):
            # A member that was removed must not vote, nor be voted for, over a link of before.
            if peer not in self.peers:
                link.close("it is no member any more", CloseCause.HANDLER)
        for known in (self._dial_at_ns, self._unlinked_at_ns, self._replace_at_ns):
            for peer in known.keys() - set(self.peers):
                del known[peer]

    def bind(self, poller: Any) -> None:
        """Listen on the configured address, and on no other."""
        self.poller = poller
        host, port = split_address(self._bind_address)
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setblocking(False)
            listener.bind(address)
            listener.listen(64)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        poller.subscribe(listener.fileno(), self._on_accept, _READ)

    def close(self) -> None:
        """Give up listener and links."""
        self._drop_listener()
        for link in (*self._pending, *self._links.values()):
            link.close("this node stops", CloseCause.STOPPED)

    def attend(self) -> None:
        # Without CPU a handshake takes as many late turns of both sides as it has round trips.
        now_ns, stretch = self.now_ns(), self.stretch
        for link in list(self._pending):
            # Not by silence: a byte a second would keep a handshake, and one of the 32 places, for ever.
            if now_ns - link.opened_ns > HANDSHAKE_SECONDS_MAX * stretch * 1e9:
                link.close(f"no handshake within {HANDSHAKE_SECONDS_MAX * stretch} s", CloseCause.TLS)
        for link in list(self._links.values()):
            # A machine that died sends no close. Without this its link is used until TCP gives up, a quarter of an
            # hour.
            silence_ms = (now_ns - link.heard_ns) // 1_000_000
            if silence_ms > self._timing.raft_connection_timeout_ms * stretch:
                link.close(f"silent for {silence_ms} ms", CloseCause.IDLE)
        self._close_unproved()
        for peer in self.peers:
            if peer in self._links:
                self._unlinked_at_ns.pop(peer, None)
                continue
            # Rule 5. The peer with the greater name may not know yet that this one is a member.
            unlinked_at_ns = self._unlinked_at_ns.setdefault(peer, now_ns)
            is_dialler = self.me.name > peer.name
            if not is_dialler and now_ns - unlinked_at_ns < UNDIALLED_SECONDS * 1e9:
                continue
            if now_ns >= self._dial_at_ns.get(peer, 0):
                self._dial(peer, now_ns)
                # Seldom: where both dial at once each replaces the other's link.
                if not is_dialler:
                    self._dial_at_ns[peer] = now_ns + int(UNDIALLED_SECONDS * 1e9)
        self._replace_aged(now_ns)
        # Followers say nothing to each other. Stock PySyncObj finds such a link silent at the first request for a vote,
        # closes it, and loses the first round of each election.
        if now_ns >= self._ping_at_ns:
            self._ping_at_ns = now_ns + self._timing.raft_connection_timeout_ms * 1_000_000 // 4
            for peer in list(self._links):
                self.transmit(peer, Ping())
        if self._listener is None and now_ns >= self._bind_at_ns and self.poller is not None:
            self._bind_again(now_ns)

    # --- certificates (rule 6) ---

    def _close_unproved(self) -> None:
        """Close links whose peers could not make them now."""
        if self._tls is None:
            return
        wall_ms = self._wall_ms()
        for link in list(self._links.values()):
            # Judged at the handshake only, a revoked controller would vote for as long as its link holds.
            if link.proved is not None and (ended := self._tls.no_longer(link.proved, wall_ms)) is not None:
                link.close(str(ended), cause_of(ended))

    def _replace_aged(self, now_ns: int) -> None:
        """Dial the next peer whose link shows a certificate that we, or probably that peer, have renewed."""
        if self._tls is None:
            return
        if self._own_serial != self.own_serial:
            self._own_serial, self._renewed_at_ns = self.own_serial, now_ns
        # One after the other: frames under way on a link that is replaced are lost, and a leader that loses those of
        # all its peers at once may lose its authority with them.
        if any(not link.is_server for link in self._pending):
            return
        for peer, link in self._links.items():
            if link.is_server or now_ns < self._replace_at_ns.get(peer, 0):
                continue
            if self._is_aged(link, now_ns):
                self._replace_at_ns[peer] = now_ns + int(RENEWAL_SECONDS_MIN * 1e9)
                self._dial(peer, now_ns, replaces=True)
                return

    def _is_aged(self, link: RaftLink, now_ns: int) -> bool:
        if link.shown != self.own_serial:
            return now_ns - self._renewed_at_ns >= RENEWAL_WAIT_SECONDS * 1e9
        # A peer cannot dial us, nor say that it has renewed: we look whenever half of what was left is over.
        held_ms = (now_ns - link.opened_ns) // 1_000_000
        return link.proved is not None and link.proved.is_half_over(held_ms, self._wall_ms())

    # --- listening and dialling ---

    def _bind_again(self, now_ns: int) -> None:
        self._bind_at_ns = now_ns + int(REBIND_SECONDS * 1e9)
        try:
            self.bind(self.poller)
        except OSError as error:
            _logger.error("%s: cannot listen on %s again: %s", self.me.name, self._bind_address, error)  # noqa: TRY400

    def _drop_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            self.poller.unsubscribe(listener.fileno())
            listener.close()

    def _on_accept(self, _descriptor: int, _events: int) -> None:
        for _ in range(ACCEPTS_PER_EVENT_MAX):
            if self._listener is None:
                return
            try:
                raw, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                # Out of descriptors, or an aborted connection. Stock PySyncObj gives its listener up for ever (with a
                # limit of 128 descriptors, 114 idle connections are enough), and no restarted peer gets in any more.
                # Here it listens again after a pause.
                _logger.warning("%s: cannot accept: %s", self.me.name, error)
                self._drop_listener()
                self._bind_at_ns = self.now_ns() + int(REBIND_SECONDS * 1e9)
                return
            # The oldest goes: a flood of silent links must not keep out a member, which needs milliseconds.
            accepted = [link for link in self._pending if link.is_server]
            if len(accepted) >= PENDING_HANDSHAKES_MAX:
                accepted[0].close(f"more than {PENDING_HANDSHAKES_MAX} handshakes at a time", CloseCause.TOO_MANY_LINKS)
            self._open(raw, None, address[0])

    def _open(self, raw: socket.socket, peer: Member | None, host: str) -> None:
        raw.setblocking(False)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._pending.append(RaftLink(self, raw, peer, host=host.removeprefix("::ffff:"), opened_ns=self.now_ns()))
        except OSError as error:
            raw.close()
            _logger.warning("%s: link refused: %s", self.me.name, error)

    def _dial(self, peer: Member, now_ns: int, *, replaces: bool = False) -> None:
        if (peer in self._links and not replaces) or any(link.peer is peer for link in self._pending):
            return
        self._dial_at_ns[peer] = now_ns + self._timing.reconnect_delay_ms * 1_000_000
        host, port = split_address(peer.address)
        # Stock PySyncObj resolves here: with a dead name server the raft thread stands for seconds, and loses its
        # leadership.
        address = self._resolve(host)
        if address is None:
            return
        raw = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        raw.setblocking(False)
        try:
            raw.connect((address, port))
        except BlockingIOError:
            pass
        except OSError:
            raw.close()
            return
        self._open(raw, peer, address)


def _cause_of(error: OSError | ProtocolError | PeerRefused) -> CloseCause:
    if isinstance(error, PeerRefused):
        return cause_of(error)
    if isinstance(error, ProtocolError):
        return CloseCause.FRAME
    return CloseCause.TLS if isinstance(error, ssl.SSLError) else CloseCause.BROKEN


def _require_loopback(addresses: Iterable[tuple[str, str]]) -> None:
    for name, address in addresses:
        host, _ = split_address(address)
        if not is_loopback(host):
            raise OSError(errno.EPERM, f"{name} at {address} is not on loopback: links between hosts need TLS")
