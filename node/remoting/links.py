"""
The limits of a link, the causes of its end, and the table of all links of one port.

Here: ``LinkLimits``, ``CloseCause``, the clocks of one link, the limits over all links, ``FewLines``. Not here:
sockets and bytes (``connection``, ``ha.transport``, ``broker.health``, ``api.rest.listening``), the meaning of
requests. Every port that accepts links has one ``LinkTable``: the controllers' broker and REST ports, the brokers'
listen, HA and health ports.
Rule 1: a peer's nonsense, silence or greed closes that link and nothing else, with a cause that is counted.
Rule 2: the memory of all links of a port together has a limit too; above it the links that hold most are closed.
Rule 3: a port leaves descriptors to everything else that the process does.
Rule 4: a link ends with the right to it: when its certificate expires or is revoked.
Rule 5: whoever is refused fills no log: few lines of refusals in a while, with the number of those that were left out.
"""

from __future__ import annotations

import asyncio
import resource
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from rollcall_ha.node.certified import PeerCertificate, PeerExpired, PeerRefused, PeerRevoked
from rollcall_ha.node.remoting.frame import FRAME_BYTES_MAX
from rollcall_ha.node.tls import Credentials

DESCRIPTORS_KEPT = 256
"""A port leaves so many of the process's descriptors to files and other links, or half of them if they are few."""


class CloseCause(StrEnum):
    """Why a link ended: the closed vocabulary of the counters."""

    PROBE = "probe"
    """The peer left without a byte: a load balancer that looks whether the port is open."""
    PEER = "peer"
    BROKEN = "broken"
    """Reset, or given up by the operating system."""
    FRAME_LENGTH = "frame-length"
    """Garbage, or a frame (of REST: a request) above the limit."""
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
    STRANGER = "stranger"
    """It spoke in the name of a replica that has not registered on it."""
    TLS = "tls"
    """No TLS: plain bytes, no handshake in time, no certificate, or one that is expired or not of our authority."""
    CERTIFICATE = "certificate"
    """TLS stood, but the certificate gives no right to this link: another fleet, kind, set or owner."""
    REVOKED = "revoked"
    """Its certificate was revoked, before the link or while it stood."""
    EXPIRED = "expired"
    """Its certificate expired while the link stood."""
    HANDLER = "handler"
    """The owner of the link closed it."""
    FAULT = "fault"
    """Our own code failed on bytes of the peer."""
    STOPPED = "stopped"


def cause_of(error: PeerRefused) -> CloseCause:
    """Why the link of a peer with such a certificate ends."""
    if isinstance(error, PeerRevoked):
        return CloseCause.REVOKED
    return CloseCause.EXPIRED if isinstance(error, PeerExpired) else CloseCause.CERTIFICATE


class LinkLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The most that a peer may cost."""

    frame_bytes_max: int = FRAME_BYTES_MAX
    header_bytes_max: int = 256 * 1024
    out_buffer_bytes_max: int = 64 * 1024 * 1024
    """Unsent bytes above this: the peer does not read; the link closes."""
    pending_requests_max: int = 4096
    """Requests of ours without an answer."""
    idle_ms_max: int = 120_000
    """Nothing read for this long: closed (the reference's limit); 0 = never."""
    first_frame_ms_max: int = 0
    """The first frame must be whole within this; 0 = no limit (the end that connects may be the one that is asked)."""
    frame_ms_max: int = 10_000
    """A frame that has begun must be whole within this (slow senders)."""
    connections_max: int = 20_000
    """The most links of one port; fewer if the process may open no more files."""
    silent_make_room: bool = False
    """
    At ``connections_max`` the oldest link of the lowest ``shed_rank`` is closed for the new one; if none has a rank,
    the new one is.
    """
    unfinished_bytes_max: int = 256 * 1024 * 1024
    """Bytes held for frames that are not whole yet, over all links of a port."""
    unread_bytes_max: int = 512 * 1024 * 1024
    """Answers that peers have not read yet, over all links of a port; looked at every second."""


class LimitedLink(ABC):
    """One link as its table sees it: bytes held, clocks (the loop's seconds), and the way to close it."""

    def __init__(self, limits: LinkLimits) -> None:
        self.peer = "?"
        """host:port of the other end."""
        self.close_cause: CloseCause | None = None
        """None = open, or the peer ended it."""
        self.unfinished_bytes = 0
        """Held for a frame that is not whole yet."""
        self.on_unfinished: Callable[[int], None] | None = None
        """Hears by how much ``unfinished_bytes`` moved."""
        self.has_frame = False
        """Whether a first frame was whole."""
        self.certificate: PeerCertificate | None = None
        """Who the peer is, judged; None = not known: a plain link, or none was asked for."""
        self.is_shaking_hands = False
        """Between the first byte of TLS and the judgement of the peer."""
        self._limits = limits
        self._opened = 0.0
        self._last_read = 0.0
        self._frame_began: float | None = None
        self._has_read = False

    @property
    @abstractmethod
    def unread_bytes(self) -> int:
        """Sent by us, not taken by the operating system yet: the peer does not read."""

    @property
    def shed_rank(self) -> int | None:
        """Where links make room (``silent_make_room``): the lowest rank does so first; None: this link never does."""
        return None if self.has_frame else 0

    @abstractmethod
    def close(self, reason: str, cause: CloseCause = CloseCause.HANDLER) -> None:
        """Close now; buffered bytes are dropped."""

    def refuse(self, reason: str, cause: CloseCause) -> None:
        """End the link, and say why if its protocol can."""
        self.close(reason, cause)

    def note_peer(self, certificate: PeerCertificate | None, complaint: str = "") -> None:  # noqa: ARG002 (of REST)
        """TLS stands, and its peer is judged; ``complaint``: why the certificate that it showed is nobody's."""
        self.certificate = certificate

    def note_opened(self, peer: object, now: float) -> None:
        """The link stands; ``peer`` as sockets name it."""
        if isinstance(peer, tuple) and len(peer) >= 2:
            self.peer = f"{peer[0]}:{peer[1]}"
        self._opened = self._last_read = now

    def note_read(self, rest_bytes: int, *, took_frame: bool) -> None:
        """Bytes that came at ``_last_read`` were looked at: ``rest_bytes`` of them belong to an unfinished frame."""
        if took_frame:
            self.has_frame = True
        if not rest_bytes:
            self._frame_began = None
        # A peer that sends a byte now and then must not renew the time of the frame that it has begun.
        elif took_frame or self._frame_began is None:
            self._frame_began = self._last_read

    def note_unfinished(self, held_bytes: int) -> None:
        """So much is held for an unfinished frame now."""
        moved, self.unfinished_bytes = held_bytes - self.unfinished_bytes, held_bytes
        if moved and self.on_unfinished is not None:
            self.on_unfinished(moved)

    def note_gone(self, error: Exception | None) -> CloseCause:
        """The socket is closed; if this end had no cause for it, the cause is the peer's."""
        if self.close_cause is None:
            gone = CloseCause.PEER if self._has_read else CloseCause.PROBE
            self.close_cause = CloseCause.BROKEN if error is not None and self._has_read else gone
        self.note_unfinished(0)
        return self.close_cause

    def overdue(self, now: float) -> tuple[CloseCause, str] | None:
        """Why this link should be closed for its slowness, if it should."""
        limits = self._limits
        if self._frame_began is not None and now - self._frame_began > limits.frame_ms_max / 1000:
            return CloseCause.SLOW_FRAME, f"a frame took more than {limits.frame_ms_max} ms"
        if limits.first_frame_ms_max and not self.has_frame and now - self._opened > limits.first_frame_ms_max / 1000:
            if self.is_shaking_hands:
                return CloseCause.TLS, f"no handshake and request within {limits.first_frame_ms_max} ms"
            return CloseCause.SAID_NOTHING, f"no request within {limits.first_frame_ms_max} ms"
        if limits.idle_ms_max and now - self._last_read > limits.idle_ms_max / 1000:
            return CloseCause.IDLE, f"idle for more than {limits.idle_ms_max} ms"
        return None


class FewLines:
    """At most ``lines_max`` lines in a window (rule 5)."""

    def __init__(self, window_s: float, lines_max: int = 1) -> None:
        """The first line goes through."""
        self._window_s = window_s
        self._lines_max = lines_max
        self._began_s = float("-inf")
        self._lines = 0
        self._left_out = 0

    def take(self, now_s: float) -> int | None:
        """None: leave this line out; else how many were left out before it. ``now_s``: monotonic."""
        if now_s - self._began_s >= self._window_s:
            self._began_s, self._lines = now_s, 0
        if self._lines >= self._lines_max:
            self._left_out += 1
            return None
        self._lines += 1
        left_out, self._left_out = self._left_out, 0
        return left_out


LinkT = TypeVar("LinkT", bound=LimitedLink)


class LinkTable(Generic[LinkT]):
    """The links of one port: admits them, sweeps them, and counts in ``closed_by_cause`` why they ended."""

    SWEEP_MS = 1_000

    def __init__(
        self,
        limits: LinkLimits,
        *,
        credentials: Credentials | None = None,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """The sweep begins with ``open``. ``credentials``: of a port whose links have a ``certificate``."""
        self.limits = limits
        self.connections_max = limits.connections_max
        self.unfinished_bytes = 0
        """Held by all links together (rule 2)."""
        self.closed_by_cause: Counter[CloseCause] = Counter()
        self.answers: Counter[int] = Counter()
        """By response code: of every request that is answered by itself, so of all but sends."""
        self._links: dict[LinkT, None] = {}
        """In the order in which they came."""
        self._sweep_handle: asyncio.TimerHandle | None = None
        self._credentials = credentials
        self._wall_ms = wall_ms
        self._stop_listening: Callable[[], None] = lambda: None

    def __len__(self) -> int:
        """Open links."""
        return len(self._links)

    def __contains__(self, link: object) -> bool:
        """Whether it was admitted and is not gone."""
        return link in self._links

    def snapshot(self) -> tuple[LinkT, ...]:
        """The open links, the oldest first: closing some while going through it is fine."""
        return tuple(self._links)

    def open(self) -> None:
        """Sweep from now on; the port is about to listen."""
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if descriptors != resource.RLIM_INFINITY:
            # Without this, links alone would use up the descriptors: no log segment could be opened, no leader dialled.
            left = descriptors - min(DESCRIPTORS_KEPT, descriptors // 2)
            # Nor may two ports together: a port whose silent links make room does with a quarter.
            share = left // 4 if self.limits.silent_make_room else left - left // 4
            self.connections_max = max(1, min(self.limits.connections_max, share))
        loop = asyncio.get_running_loop()
        self._sweep_handle = loop.call_later(self.SWEEP_MS / 1000, self._sweep)
        if self._credentials is not None:
            self._stop_listening = self._credentials.on_change(loop, self._judge_again)

    def stop(self, reason: str) -> None:
        """Close every link and sweep no more."""
        self._stop_listening()
        if self._sweep_handle is not None:
            self._sweep_handle.cancel()
            self._sweep_handle = None
        for link in self.snapshot():
            link.close(reason, CloseCause.STOPPED)

    def admit(self, link: LinkT) -> bool:
        """Take a new link in, or close it: there are too many."""
        if len(self._links) >= self.connections_max and not self._make_room():
            link.close(f"more than {self.connections_max} links", CloseCause.TOO_MANY_LINKS)
            return False
        self._links[link] = None
        link.on_unfinished = self._note_unfinished
        return True

    def _make_room(self) -> bool:
        # Without this, 64 links that say nothing would keep every slave out of an HA port, and every probe out of a
        # health port, for as long as their peers come again.
        if not self.limits.silent_make_room:
            return False
        chosen, lowest = None, float("inf")
        for link in self._links:
            rank = link.shed_rank if link.close_cause is None else None
            if rank is not None and rank < lowest:
                chosen, lowest = link, rank
                if not rank:
                    break
        if chosen is not None:
            chosen.close(f"more than {self.connections_max} links", CloseCause.TOO_MANY_LINKS)
        return chosen is not None

    def ended(self, link: LinkT, error: Exception | None = None) -> bool:
        """Count why a link is gone; False: it had not been admitted."""
        self.closed_by_cause[link.note_gone(error)] += 1
        return self._links.pop(link, self) is None

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        # First of all: a close may stop the port, and an owner that raises in one must not end all sweeps to come.
        self._sweep_handle = loop.call_later(self.SWEEP_MS / 1000, self._sweep)
        now, unread_bytes, limit = loop.time(), 0, self.limits.unread_bytes_max
        for link in self.snapshot():
            overdue = link.overdue(now)
            if overdue is not None:
                link.close(overdue[1], overdue[0])
            else:
                unread_bytes += link.unread_bytes
        if unread_bytes > limit:
            self._shed(CloseCause.DOES_NOT_READ, lambda link: link.unread_bytes, unread_bytes, limit)
        self._judge_again()

    def _judge_again(self) -> None:
        """Rule 4: a handshake judges once, and a session may stay open for months."""
        if self._credentials is None:
            return
        now_ms = self._wall_ms()
        for link in self.snapshot():
            if link.certificate is None or link.close_cause is not None:
                continue
            if (ended := self._credentials.no_longer(link.certificate, now_ms)) is not None:
                link.close(str(ended), cause_of(ended))

    def _note_unfinished(self, moved_bytes: int) -> None:
        self.unfinished_bytes += moved_bytes
        limit = self.limits.unfinished_bytes_max
        # At once, not at the next sweep: within a second 60 links brought 900 MiB of frames that never became whole.
        if moved_bytes > 0 and self.unfinished_bytes > limit:
            self._shed(CloseCause.UNFINISHED_FRAMES, lambda link: link.unfinished_bytes, self.unfinished_bytes, limit)

    def _shed(self, cause: CloseCause, held: Callable[[LinkT], int], total_bytes: int, limit_bytes: int) -> None:
        """Rule 2: close the links that hold most, until half of the limit is free again."""
        for link in sorted(self._links, key=held, reverse=True):
            if total_bytes <= limit_bytes // 2:
                return
            total_bytes -= held(link)
            link.close(f"all links together hold more than {limit_bytes} bytes", cause)
