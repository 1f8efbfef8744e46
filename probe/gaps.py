"""
When a set took nothing: sends and their ends to gaps. Pure; all times are nanoseconds of one monotonic clock.

Here: the stopwatch of one set. Not here: sends (``sending``), clocks and files (``server``, ``journal``).

Rule 1: a gap begins when the first send that was not acknowledged in time was begun, and ends with the first
acknowledgement afterwards. It counts if it is longer than the threshold without what the process itself was late by.
Rule 2: a process that was late by more than an interval has stalled: a send that failed then says nothing of the set.
"""

from __future__ import annotations

import msgspec

NS_PER_MS = 1_000_000


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The grain of the stopwatch, and the least gap that is told."""

    interval_ms: int
    """Between two sends to a set, and what a process may be late by without a stall."""
    threshold_ms: int
    """A gap is longer."""


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """One send, from its beginning to its acknowledgement or to its timeout."""

    begun_ns: int
    ended_ns: int
    late_ns: int = 0
    """By how much the process woke later than it had asked to, before the send or at its timeout."""
    failure: str = ""
    """Why it was not acknowledged in time; empty: it was."""


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    """One gap of rule 1; ``is_over`` False: the probe ended before it did."""

    from_ns: int
    to_ns: int
    last_ack_ns: int | None
    reason: str
    sends_failed: int = 1
    stalled_ns: int = 0
    is_over: bool = True

    @property
    def felt_ns(self) -> int:
        return self.to_ns - self.from_ns


class Stopwatch(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one set. Counts begin with the life of the probe."""

    last_ack_ns: int | None = None
    open_gap: Gap | None = None
    """A failed send that no acknowledgement has followed; shorter than the threshold, maybe."""
    sends: int = 0
    acks: int = 0
    failures: int = 0
    gaps: int = 0
    stalls: int = 0


def take(watch: Stopwatch, send: Send, limits: Limits) -> tuple[Stopwatch, Gap | None]:
    """The stopwatch after ``send``, and the gap that it ended."""
    has_stalled = send.late_ns > limits.interval_ms * NS_PER_MS
    late_ns = send.late_ns if has_stalled else 0
    found = msgspec.structs.replace(watch, sends=watch.sends + 1, stalls=watch.stalls + has_stalled)
    gap = watch.open_gap
    if gap is not None:
        gap = msgspec.structs.replace(gap, to_ns=send.ended_ns, stalled_ns=gap.stalled_ns + late_ns)
    if not send.failure:
        closed = msgspec.structs.replace(found, acks=found.acks + 1, last_ack_ns=send.ended_ns, open_gap=None)
        return _counted(closed, gap, limits)
    found = msgspec.structs.replace(found, failures=found.failures + 1)
    if gap is not None:
        gap = msgspec.structs.replace(gap, sends_failed=gap.sends_failed + 1)
        return msgspec.structs.replace(found, open_gap=gap), None
    if has_stalled:
        # Its answer may have lain in the socket while the process stood: taken for a gap, each pause of this machine
        # would be a fault of every set at once.
        return found, None
    gap = Gap(from_ns=send.begun_ns, to_ns=send.ended_ns, last_ack_ns=watch.last_ack_ns, reason=send.failure)
    return msgspec.structs.replace(found, open_gap=gap), None


def end(watch: Stopwatch, now_ns: int, limits: Limits) -> tuple[Stopwatch, Gap | None]:
    """The probe ends: the gap that is open, up to now."""
    if watch.open_gap is None:
        return watch, None
    gap = msgspec.structs.replace(watch.open_gap, to_ns=now_ns, is_over=False)
    return _counted(msgspec.structs.replace(watch, open_gap=None), gap, limits)


def _counted(watch: Stopwatch, gap: Gap | None, limits: Limits) -> tuple[Stopwatch, Gap | None]:
    if gap is None or gap.felt_ns - gap.stalled_ns <= limits.threshold_ms * NS_PER_MS:
        return watch, None
    return msgspec.structs.replace(watch, gaps=watch.gaps + 1), gap
