"""
What a replica deletes from the front of its log, and whether it takes sends, by the facts of one moment. Pure.

Here: facts in, a decision out. Not here: gathering the facts and doing it (``shell``), the deletion itself
(``broker.log``).

Rule 1: whole segments, oldest first, up to the first one that stays; never the last one, and nothing above confirm.
Rule 2: a segment goes by its age, or because the disk is fuller than ``forced_percent``. In the second case no more go
than bring the disk below it.
Rule 3 (R31): what somebody still needs stays. A copy that runs gives way where the disk is fuller than
``refused_percent``; everything else that is needed never does: without it the log would be no whole one any more.
Rule 4: sends are refused where the disk is fuller than ``refused_percent`` even without what goes now, until it is
below ``forced_percent``: refused and taken by turns, a set would lose its writes at each segment.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.settings import Settings
from rollcall_ha.controller.contract.values import Frozen

HOUR_MS = 3_600_000


class Rules(Frozen):
    """The settings. 0 of the first three: never."""

    keep_ms: int = 0
    forced_percent: int = 0
    refused_percent: int = 0
    segments_max: int = 10
    """Deleted in one turn."""

    @property
    def resumed_percent(self) -> int:
        """Below it sends are taken again."""
        is_below = 0 < self.forced_percent < self.refused_percent
        return self.forced_percent if is_below else self.refused_percent

    @property
    def is_off(self) -> bool:
        """Whether nothing is ever deleted."""
        return not self.keep_ms and not self.forced_percent


def rules_of(settings: Settings) -> Rules:
    return Rules(
        keep_ms=settings.value("retention_hours") * HOUR_MS,
        forced_percent=settings.value("retention_forced_percent"),
        refused_percent=settings.value("sends_refused_percent"),
        segments_max=settings.value("retention_segments_max"),
    )


class SegmentAge(Frozen):
    """One file of the log, and when the next one was begun: no record in it is younger."""

    base: int
    end: int
    closed_ms: int | None
    """UTC, by the first record behind it; None: there is none, the segment is the last one or the next one is empty."""


class Need(Frozen):
    """Who reads the log from ``offset`` on."""

    who: str
    offset: int
    is_copy: bool = False
    """A slave on a link: it can copy anew (rule 3)."""


class Facts(Frozen):
    """One moment of a replica."""

    segments: tuple[SegmentAge, ...]
    """From the first one on; perhaps not all."""
    confirm: int
    now_ms: int
    """UTC, ms since 1970: segments are as old as this clock says."""
    disk_bytes: int
    free_bytes: int
    needs: tuple[Need, ...] = ()
    is_refusing: bool = False
    """Sends are refused since an earlier moment."""

    @property
    def used_percent(self) -> float:
        return _percent(self.disk_bytes, self.free_bytes)


class Decision(Frozen):
    """``delete_to`` is the new beginning of the log; None: it stays."""

    delete_to: int | None = None
    why: tuple[str, ...] = ()
    """Of each segment that goes."""
    wanted_to: int = 0
    """Where the log would begin if nobody needed anything."""
    held_by: tuple[Need, ...] = ()
    """Who keeps the next segment that is due."""
    passed: tuple[str, ...] = ()
    """Copies that have to begin anew."""
    refused: str = ""
    """Why sends are refused; empty: they are taken."""


def decide(facts: Facts, rules: Rules) -> Decision:
    """The decision of this moment."""
    delete_to, wanted_to, free_bytes = None, 0, facts.free_bytes
    why: list[str] = []
    passed: dict[str, None] = {}
    held_by: tuple[Need, ...] = ()
    for segment in facts.segments[: rules.segments_max]:
        reason = _why_due(segment, facts, rules, _percent(facts.disk_bytes, free_bytes))
        # Whole segments from the front: behind one that stays nothing goes, or there would be a hole.
        if not reason:
            break
        wanted_to = segment.end
        lacking = tuple(need for need in facts.needs if need.offset < segment.end)
        is_urgent = bool(rules.refused_percent) and _percent(facts.disk_bytes, free_bytes) >= rules.refused_percent
        if not held_by:
            held_by = tuple(need for need in lacking if not (need.is_copy and is_urgent))
        if held_by:
            continue
        passed.update((need.who, None) for need in lacking)
        why.append(reason)
        delete_to, free_bytes = segment.end, free_bytes + segment.end - segment.base
    return Decision(
        delete_to=delete_to,
        why=tuple(why),
        wanted_to=wanted_to,
        held_by=held_by,
        passed=tuple(passed),
        refused=_why_refused(facts, rules, _percent(facts.disk_bytes, free_bytes)),
    )


def _why_due(segment: SegmentAge, facts: Facts, rules: Rules, used_percent: float) -> str:
    """Why it may go as far as time and disk are concerned; empty: it stays."""
    # The last segment has no time: the log ends in it.
    if segment.closed_ms is None or segment.end > facts.confirm:
        return ""
    age_ms = facts.now_ms - segment.closed_ms
    if rules.keep_ms and age_ms >= rules.keep_ms:
        return f"its newest record is {age_ms // HOUR_MS} h old, {rules.keep_ms // HOUR_MS} h are kept"
    if rules.forced_percent and used_percent >= rules.forced_percent:
        return f"the disk is {used_percent:.1f} % full, from {rules.forced_percent} % on age protects nothing"
    return ""


def _why_refused(facts: Facts, rules: Rules, used_percent: float) -> str:
    """``used_percent``: behind the deletion."""
    limit = rules.resumed_percent if facts.is_refusing else rules.refused_percent
    if not rules.refused_percent or used_percent < limit:
        return ""
    return (
        f"the disk is {used_percent:.1f} % full; sends are refused from {rules.refused_percent} % on, until it "
        f"is below {rules.resumed_percent} % (sends_refused_percent): free space, or keep less (retention_hours)"
    )


def _percent(disk_bytes: int, free_bytes: int) -> float:
    return 100.0 * max(disk_bytes - free_bytes, 0) / disk_bytes if disk_bytes > 0 else 0.0
