"""
What the record says about a stretch of time, and whether it is true.

Here: reading ``history`` as JSON, which gap of the stopwatch is the outage, and ``judge``; all is pure. Not here: the
stopwatch, faults, asking (``__main__``).

Rule 1: a record is true if what was felt lies in its bounds, give or take max(5 %, 30 ms); where the record names no
bounds it is a point, and the same holds.
Rule 2: a kind that was not expected is wrong, whatever the time. A planned stop that is called a failover is a lie too.
Rule 3: an outage is what the record promises to tell: from the last answer by one link to the first by another, or a
silence of ``STALL_MS``. On a busy machine all processes wait for a core, before an order as well as behind it.
Rule 4: a master that hung answers what waits in its socket when it goes on, 16 ms before its successor does: a lone answer
behind ``LAST_WORD_MS`` is its last word, and no service between two outages.
Rule 5: of a process that was killed, the outage begins between its last answer and its end; who waits between two answers
of a living master, for a core or by the stopwatch's own pause, is not without service.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from rollcall_ha.controller.contract.timing import PRESETS, Preset

TOLERANCE_SHARE = 0.05
TOLERANCE_MS = 30.0
STALL_MS = PRESETS[Preset.NORMAL].stall_ms
"""A reign's silence below this is no stop of writes (docs/timing.md)."""
LAST_WORD_MS = 300.0
"""In front of a last word at least; no process waits for a core so long where a run is fair."""
ELECTED = "election"
"""The end of a stop that an election ended."""


class Event(NamedTuple):
    """An answer that the stopwatch counts."""

    at_ns: int
    """When it was read, on CLOCK_MONOTONIC, which all processes of a machine share."""
    link: int
    """Another broker's, or that of another process, has another number."""


class Felt(NamedTuple):
    """How long there was no service, milliseconds: equal but where a process was killed (rule 5)."""

    most_ms: float
    least_ms: float
    over_ns: int = 0
    """When there was service again, on CLOCK_MONOTONIC."""


def felt(events: Sequence[Event], since_ns: int, gone_ns: int | None = None) -> Felt:
    """
    The outage that ended after ``since_ns`` (rule 3); of a master that was not changed, the longest gap.

    ``gone_ns``: when the master's process was seen to have ended; None if it did not.
    """
    gaps = [(one, later) for one, later in pairwise(events) if later.at_ns > since_ns]
    if gone_ns is None:
        # As two outages, a second without service was felt as 16 ms, and a true record called untrue.
        gaps += [
            (before[0], after[1])
            for before, after in pairwise(gaps)
            if after[0].link != after[1].link and before[1].at_ns - before[0].at_ns >= LAST_WORD_MS * 1e6
        ]
    stops = [gap for gap in gaps if gap[0].link != gap[1].link or gap[1].at_ns - gap[0].at_ns >= STALL_MS * 1e6]
    one, later = max(stops or gaps, key=lambda gap: gap[1].at_ns - gap[0].at_ns)
    begun_ns = gone_ns if gone_ns is not None and one.at_ns < gone_ns < later.at_ns else one.at_ns
    return Felt(most_ms=(later.at_ns - one.at_ns) / 1e6, least_ms=(later.at_ns - begun_ns) / 1e6, over_ns=later.at_ns)


def longest_gaps(events: Sequence[Event], since_ns: int, *, count: int = 4) -> str:
    """The longest of those that ended after ``since_ns``, in order of time: what a false row has to be looked at by."""
    gaps = [(one, later) for one, later in pairwise(events) if later.at_ns > since_ns]
    longest = sorted(sorted(gaps, key=lambda gap: gap[0].at_ns - gap[1].at_ns)[:count])
    told = [
        f"{(later.at_ns - one.at_ns) / 1e6:,.0f} ms to {(later.at_ns - since_ns) / 1e6:,.0f} (link {one.link}"
        + (")" if one.link == later.link else f", then {later.link})")
        for one, later in longest
    ]
    return f"the longest gaps, until ms after the fault began: {'; '.join(told)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """All outages of one row together. Milliseconds."""

    kinds: tuple[str, ...]
    """Of each outage, in the order of their ends: kinds of elections, or ``writes-stopped:REASON``."""
    lower_ms: float
    upper_ms: float | None
    """None = the record says that it knows no upper bound."""
    waited_ms: float
    """Of the first acknowledgement: how long it was waited for after the outage's end."""
    missing: tuple[str, ...]

    @property
    def is_exact(self) -> bool:
        return self.lower_ms == self.upper_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """``complaints`` empty = the record is true."""

    complaints: tuple[str, ...]


def recorded(rows: Sequence[Mapping[str, Any]], stops: Sequence[Mapping[str, Any]]) -> Recorded:
    """
    The reigns and stops of one row, oldest first.

    Elections behind which no master ever served are parts of the next outage that ended. A stop that an election ended
    is part of that election's outage, and a first acknowledgement that waits for a stop to end is part of the stop:
    counted again, their time would be there twice.
    """
    kinds: list[str] = []
    lower = upper = waited = 0.0
    is_bounded = True
    missing: list[str] = []
    of_epoch: dict[int, float] = {}
    for stop in stops:
        if stop["end"] == ELECTED:
            continue
        kinds.append(f"writes-stopped:{stop['reason']}")
        length = (stop.get("stoppedUs") or 0) / 1000
        lower, upper = lower + length, upper + length
        of_epoch[stop["masterEpoch"]] = of_epoch.get(stop["masterEpoch"], 0.0) + length
    for row in rows:
        kinds.append(row["kind"])
        missing += row["missing"]
        total = row["totalUs"]
        if total is None:
            continue
        lower += total / 1000
        most = row.get("totalUsMax", total)
        is_bounded = is_bounded and most is not None
        upper += (most or 0) / 1000
        waited += max(0.0, (row.get("waitedUs") or 0) / 1000 - of_epoch.get(row["masterEpoch"], 0.0))
    return Recorded(
        kinds=tuple(kinds),
        lower_ms=lower,
        upper_ms=upper if is_bounded else None,
        waited_ms=waited,
        missing=tuple(missing),
    )


def judge(
    found: Recorded, *, felt: Felt, with_sends: bool, expected: frozenset[str], is_bounded: bool = True
) -> Verdict:
    """
    Compare with the stopwatch.

    Args:
        found: The record.
        felt: Longest time without service by the stopwatch.
        with_sends: The stopwatch sent messages: what it waited for after the outage's end counts as felt.
        expected: Kinds that this fault may have; another kind, or none, is wrong. Empty: it leaves no record.
        is_bounded: False: a record without an upper bound is true.
    """
    complaints = [
        f"kind {kind}, expected {' or '.join(sorted(expected))}" for kind in found.kinds if kind not in expected
    ]
    if not found.kinds and expected:
        complaints.append("nothing is on record")
    tolerance = max(TOLERANCE_SHARE * felt.most_ms, TOLERANCE_MS)
    waited = found.waited_ms if with_sends else 0.0
    if felt.most_ms < found.lower_ms + waited - tolerance:
        below_ms = found.lower_ms + waited - felt.most_ms
        complaints.append(f"felt {felt.most_ms:,.0f} ms is {below_ms:,.0f} ms below the record")
    if found.upper_ms is not None and felt.least_ms > found.upper_ms + waited + tolerance:
        above_ms = felt.least_ms - found.upper_ms - waited
        complaints.append(f"felt {felt.least_ms:,.0f} ms is {above_ms:,.0f} ms above the record")
    if found.kinds and found.upper_ms is None and is_bounded:
        complaints.append("the record knows no upper bound")
    if found.upper_ms is not None and not found.is_exact and "fault" not in found.missing:
        complaints.append("the record has bounds, and does not say that it missed the fault")
    return Verdict(complaints=tuple(complaints))
