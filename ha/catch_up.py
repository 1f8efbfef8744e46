"""
How fast a slave that lags far behind is copied to, so that the sends of the members in sync do not feel it. Pure.

Here: which links copy, whose turn it is, how many bytes may be sent now, and how long to wait otherwise. Not here:
sockets and timers (``transport``), who has to acknowledge (``sync_state``). The clock is an argument; it may fall.

Rule 1: a link copies from the moment at which it lacks ``COPY_BEGINS_BYTES`` until it lacks ``COPY_ENDS_BYTES``. One
whose acks sends wait for never copies, whatever it lacks: held up, it would hold up every send.
Rule 2: at most ``copies_max`` links copy at a time, in the order in which they began; the others wait for their turn.
One that comes no nearer to the end for ``TURN_STUCK_MS`` goes to the end of the queue if another one waits.
Rule 3: a piece is sent when both budgets, that of the link and that of all links, hold a whole one. A budget fills
with its rate, up to ``BURST_MS`` of it.
Rule 4: while sends wait for acks, a copy sends one piece, and then nothing for ``BUSY_PAUSE_MS``.
"""

from __future__ import annotations

from typing import Final

import msgspec

from rollcall_ha.controller.contract.values import Frozen

COPY_BEGINS_BYTES: Final = 8 * 1024 * 1024
COPY_ENDS_BYTES: Final = 1024 * 1024
"""Below ``COPY_BEGINS_BYTES``, or a link at the limit would change between both with every batch of sends."""
PIECE_BYTES: Final = 128 * 1024
"""Copied at once: on the loop an ack waits behind so much at most. Slowest rate that can be set: one in a second."""
BUSY_PAUSE_MS: Final = 1
BURST_MS: Final = 100
TURN_POLL_MS: Final = 100
"""A link that waits for its turn asks again after this."""
TURN_STUCK_MS: Final = 30_000


class CatchUpLimits(Frozen):
    """0 = no limit."""

    link_bytes_per_s_max: int = 0
    node_bytes_per_s_max: int = 0
    """What all links of a process share."""
    copies_max: int = 1


class Grant(Frozen):
    """What a link may send now. ``bytes_max`` 0: nothing, ask again after ``wait_ms``; None: as much as it has."""

    bytes_max: int | None
    wait_ms: int = 0


WHOLE: Final = Grant(bytes_max=None)
PIECE: Final = Grant(bytes_max=PIECE_BYTES)


class CopyStatus(Frozen):
    """One link that copies, for metrics."""

    lag_bytes: int
    has_turn: bool


class ByteBudget:
    """A token bucket: ``bytes_per_s`` a second, whole pieces only. 0 = always full."""

    def __init__(self, bytes_per_s: int, now_ms: int) -> None:
        self._rate = bytes_per_s
        self._full = max(PIECE_BYTES, bytes_per_s * BURST_MS // 1_000) * 1_000
        self._held = self._full
        """In thousandths of a byte: a rate that is no multiple of 1,000 loses nothing between two looks."""
        self._at_ms = now_ms

    def wait_ms(self, now_ms: int) -> int:
        """Until there is a piece; 0 = there is one."""
        if self._rate == 0:
            return 0
        # A clock that fell back gives nothing, and takes nothing away.
        self._held = min(self._full, self._held + max(0, now_ms - self._at_ms) * self._rate)
        self._at_ms = now_ms
        missing = PIECE_BYTES * 1_000 - self._held
        return 0 if missing <= 0 else -(-missing // self._rate)

    def take(self, count: int) -> None:
        """``count`` bytes were sent. More than there were are owed."""
        if self._rate:
            self._held -= count * 1_000


class _Copy(msgspec.Struct, kw_only=True):
    budget: ByteBudget
    lag_bytes: int
    lowest_bytes: int
    nearer_at_ms: int
    """When it had its turn and came nearer to the end than ever before."""
    has_turn: bool = False


class CatchUpPacer:
    """The copies of one process, by link generation."""

    def __init__(self, limits: CatchUpLimits, now_ms: int) -> None:
        self.copied_bytes = 0
        """Since the start."""
        self._limits = limits
        self._node = ByteBudget(limits.node_bytes_per_s_max, now_ms)
        self._copies: dict[int, _Copy] = {}
        """In the order of their turns."""
        self._busy_until_ms: int | None = None

    def limit(self, limits: CatchUpLimits, now_ms: int) -> None:
        """Other limits are in force, for copies under way, too."""
        if limits == self._limits:
            return
        self._limits = limits
        self._node = ByteBudget(limits.node_bytes_per_s_max, now_ms)
        for copy in self._copies.values():
            copy.budget = ByteBudget(limits.link_bytes_per_s_max, now_ms)

    @property
    def copies(self) -> tuple[CopyStatus, ...]:
        """In the order of their turns."""
        return tuple(CopyStatus(lag_bytes=one.lag_bytes, has_turn=one.has_turn) for one in self._copies.values())

    def grant(self, link: int, *, lag_bytes: int, is_required: bool, is_busy: bool, now_ms: int) -> Grant:
        """
        What ``link`` may send now; tell ``sent`` what it did.

        ``lag_bytes``: what it has not been sent. ``is_required``: sends wait for its acks. ``is_busy``: some wait now.
        """
        copy = self._copies.get(link)
        if is_required or lag_bytes <= (COPY_BEGINS_BYTES if copy is None else COPY_ENDS_BYTES):
            self.ended(link)
            return WHOLE
        if copy is None:
            budget = ByteBudget(self._limits.link_bytes_per_s_max, now_ms)
            copy = _Copy(budget=budget, lag_bytes=lag_bytes, lowest_bytes=lag_bytes, nearer_at_ms=now_ms)
            self._copies[link] = copy
        copy.lag_bytes = lag_bytes
        self._give_turns(now_ms)
        if not copy.has_turn:
            return Grant(bytes_max=0, wait_ms=TURN_POLL_MS)
        wait_ms = max(copy.budget.wait_ms(now_ms), self._node.wait_ms(now_ms))
        if is_busy and self._busy_until_ms is not None:
            # A clock that fell back by an hour must not stop the copy for an hour.
            wait_ms = max(wait_ms, min(BUSY_PAUSE_MS, self._busy_until_ms - now_ms))
        return PIECE if wait_ms <= 0 else Grant(bytes_max=0, wait_ms=wait_ms)

    def sent(self, link: int, count: int, now_ms: int) -> None:
        """``link`` sent ``count`` bytes of the log."""
        copy = self._copies.get(link)
        if copy is None:
            return
        self.copied_bytes += count
        copy.budget.take(count)
        self._node.take(count)
        self._busy_until_ms = now_ms + BUSY_PAUSE_MS
        copy.lag_bytes = max(0, copy.lag_bytes - count)
        if copy.lag_bytes < copy.lowest_bytes:
            copy.lowest_bytes, copy.nearer_at_ms = copy.lag_bytes, now_ms

    def ended(self, link: int) -> None:
        """It has caught up, or is closed."""
        self._copies.pop(link, None)

    def _give_turns(self, now_ms: int) -> None:
        waiting = len(self._copies) - self._limits.copies_max
        # A slave whose disk hangs, or whose master takes more than the limit lets through, would keep every other one
        # from its copy for good.
        for link in [
            link for link, one in self._copies.items() if one.has_turn and now_ms - one.nearer_at_ms >= TURN_STUCK_MS
        ][: max(0, waiting)]:
            stuck = self._copies.pop(link)
            stuck.has_turn = False
            self._copies[link] = stuck
        for place, one in enumerate(self._copies.values()):
            has_turn = place < self._limits.copies_max
            if has_turn and not one.has_turn:
                one.lowest_bytes, one.nearer_at_ms = one.lag_bytes, now_ms
            one.has_turn = has_turn
