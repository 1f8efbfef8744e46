"""
Steps of the clock by which entries are stamped: a leader's clock that was set, or a new leader whose clock differs.

Here: ``ClockWatch``, a pure machine. Not here: reading clocks and proposing the report (``service``), what a stamp is
good for (docs/timing.md).

A stamp is the UTC clock of the leader that proposed the entry. It is shown, and orders nothing (R14). The watch
compares it with this controller's monotonic clock, which nobody sets: the difference is constant unless a clock steps.
Rule 1: the leader alone reports, with the size, until its report is answered or another controller leads. No decision
rests on it; an outage over a step that is not on record has wrong bounds (``controller.core.outages``).
Rule 2: a follower learns the leader's clock from entries that it applies as they are committed. One that it catches up
with may be hours old, and tells nothing. Delay makes an offset smaller and never larger: the largest of the last two
windows counts, from one leader and between two steps. After a stall of the own loop nothing is known.
Rule 3: a new leader that has learned nothing can still tell a step back: the newest entry lies in its future.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.core.outages import CLOCK_DIFFERENCE_MS

CLOCK_STEP_MS_MIN = CLOCK_DIFFERENCE_MS
"""A smaller step is none: the commit of an entry may take as long, and a clock that is slewed moves in such steps."""
EVEN_MS_MIN = 1_000
"""For how long a follower has applied everything that was committed, before it learns from an entry; and a stall."""
WINDOW_MS = 60_000
"""Two clocks that nobody sets drift apart by some milliseconds in that time."""


class ClockWatch:
    """The clock of entries, as an offset to this controller's monotonic clock."""

    def __init__(self) -> None:
        self._offset_ms: int | None = None
        """The largest of this window."""
        self._offset_before_ms: int | None = None
        self._window_since_ns = 0
        self._looked_ns: int | None = None
        self._even_since_ns: int | None = None
        self._even_ns = 0
        self._newest_stamp_ms = 0

    def look(self, *, is_even: bool, newest_stamp_ms: int, now_ns: int) -> None:
        """A follower's look, at least each ``EVEN_MS_MIN``: has it applied what was committed, and the newest stamp."""
        self._newest_stamp_ms = newest_stamp_ms
        # Each entry of a starved minute is applied 2 s late, and the largest offset is too small by as much: the next
        # leadership would report a step forward that no clock made.
        if self._looked_ns is not None and now_ns - self._looked_ns > EVEN_MS_MIN * NS_PER_MS:
            self.forget()
        self._looked_ns = now_ns
        if not is_even:
            return
        # Not at once: an entry is committed a moment before it is applied, and a look in between is no catching up.
        if self._even_since_ns is None or now_ns - self._even_ns > EVEN_MS_MIN * NS_PER_MS:
            self._even_since_ns = now_ns
        self._even_ns = now_ns

    def applied(self, stamped_at_ms: int, *, applied_ns: int) -> None:
        """A follower applied an entry."""
        since_ns = self._even_since_ns
        is_live = applied_ns - self._even_ns <= EVEN_MS_MIN * NS_PER_MS
        if since_ns is None or not is_live or self._even_ns - since_ns < EVEN_MS_MIN * NS_PER_MS:
            return
        offset_ms = stamped_at_ms - applied_ns // NS_PER_MS
        if self._offset_ms is None or applied_ns - self._window_since_ns > WINDOW_MS * NS_PER_MS:
            self._offset_before_ms, self._offset_ms, self._window_since_ns = self._offset_ms, offset_ms, applied_ns
        else:
            self._offset_ms = max(self._offset_ms, offset_ms)

    def forget(self) -> None:
        """What was learned is of another clock: another controller leads, or a step is on record."""
        self._offset_ms = self._offset_before_ms = None

    def lead(self, wall_ms: int, *, now_ns: int) -> int | None:
        """
        A leader's look at its own clocks.

        Args:
            wall_ms: Its UTC clock, by which it stamps from now on.
            now_ns: Its monotonic clock.

        Returns:
            By how much the clock of entries has stepped, in milliseconds, below 0 for back; None: it has not.
        """
        offset_ms = wall_ms - now_ns // NS_PER_MS
        learned = [known for known in (self._offset_ms, self._offset_before_ms) if known is not None]
        before_ms = max(learned, default=None)
        self._offset_ms, self._offset_before_ms = offset_ms, None
        # The clock of another leader is not learned again before this controller has followed for a while.
        self._even_since_ns = self._looked_ns = None
        step_ms = min(0, wall_ms - self._newest_stamp_ms) if before_ms is None else offset_ms - before_ms
        return step_ms if abs(step_ms) >= CLOCK_STEP_MS_MIN else None
