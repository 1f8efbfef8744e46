"""
What a replica deletes from the front of its log, and whether it takes sends, by the facts of one moment. Pure.

Here: facts in, a decision out. Not here: gathering the facts and doing it (``shell``), the deletion itself
(``broker.log``).

Rule 1: whole segments, oldest first, up to the first one that stays; never the last one, and nothing above confirm.
Rule 2: a segment goes by its age, or because the disk is fuller than ``forced_percent``, or has no room for the next
segment. In these cases no more go than bring the disk below it, and make that room.
Rule 3 (R31): what somebody still needs stays. A copy that runs gives way where sends are refused, or would be;
everything else that is needed never does: without it the log would be no whole one any more.
Rule 4: sends are refused where the disk is fuller than ``refused_percent`` even without what goes now, until it is
below ``forced_percent``: refused and taken by turns, a set would lose its writes at each segment.
Rule 5: a clock may be wrong. Age is counted up to an hour behind the newest record of the log at most, and a time that
is not there, or still to come, is that of the next segment with a good one.
Rule 6: a disk may show late what was deleted. Before that no more goes for its sake, and sends are judged by what it
shows.
"""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.settings import Settings
from rollcall_ha.controller.contract.values import Frozen

HOUR_MS = 3_600_000
SHOWN_LATE_S = 60.0
"""So late a file system may show what was deleted; then another deletion is the only remedy that there is."""
CLOCK = "the clock is far ahead of the newest record of the log"


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
    """UTC, by the first record behind it; None: there is none, or a damaged one."""


class Need(Frozen):
    """Who reads the log from ``offset`` on."""

    who: str
    offset: int
    is_copy: bool = False
    """A slave on a link: it can copy anew (rule 3)."""
    is_told: bool = False
    """The master ends it when it is in the way: it writes again what lies there."""


class Facts(Frozen):
    """One moment of a replica."""

    segments: tuple[SegmentAge, ...]
    """All that have a record; the last one is the one that the log ends in."""
    confirm: int
    now_ms: int
    """UTC, ms since 1970, by the clock of this machine."""
    disk_bytes: int
    free_bytes: int
    needs: tuple[Need, ...] = ()
    is_refusing: bool = False
    """Sends are refused since an earlier moment."""
    newest_ms: int | None = None
    """UTC, of the newest confirmed record (rule 5); None: the own clock is believed."""
    unshown_bytes: int = 0
    """Deleted lately, and not free yet by the disk's word (rule 6)."""
    next_bytes: int = 0
    """Space that the next segment will take; 0: it is there already."""

    @property
    def used_percent(self) -> float:
        return _percent(self.disk_bytes, self.free_bytes)

    @property
    def sure_ms(self) -> int:
        """So late it is at least (rule 5)."""
        # One machine whose clock is a year ahead would delete all that it has.
        return self.now_ms if self.newest_ms is None else min(self.now_ms, self.newest_ms + HOUR_MS)


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


class Freed:
    """What was deleted in the last minute, and whether the disk shows it (rule 6)."""

    def __init__(self) -> None:
        self._turns: list[tuple[float, int, int]] = []

    def note(self, now_s: float, beside_bytes: int, freed_bytes: int) -> None:
        """``beside_bytes``: what the disk had beside the log before it lost ``freed_bytes``."""
        self._turns.append((now_s, beside_bytes, freed_bytes))

    def unshown_bytes(self, now_s: float, beside_bytes: int) -> int:
        """How much of it is not free yet, at most: by so much the disk has more beside the log than it had."""
        self._turns = [turn for turn in self._turns if now_s - turn[0] < SHOWN_LATE_S]
        more_bytes = beside_bytes - min((beside for _, beside, _ in self._turns), default=beside_bytes)
        return min(max(more_bytes, 0), sum(freed for _, _, freed in self._turns))


def decide(facts: Facts, rules: Rules) -> Decision:
    """The decision of this moment."""
    delete_to, wanted_to = None, 0
    # Of what is due, whether it may go or not, and of what goes.
    due_bytes, gone_bytes = facts.unshown_bytes, 0
    why: list[str] = []
    passed: dict[str, None] = {}
    held_by: tuple[Need, ...] = ()
    for segment, closed_ms in zip(facts.segments[:-1], _times(facts), strict=False):
        here = replace(facts, free_bytes=facts.free_bytes + due_bytes)
        reason = _why_due(closed_ms, facts.now_ms, rules, here)
        # Whole segments from the front: behind one that stays nothing goes, or there would be a hole.
        if not reason or segment.end > facts.confirm:
            break
        wanted_to, due_bytes = segment.end, due_bytes + segment.end - segment.base
        lacking = tuple(need for need in facts.needs if need.offset < segment.end)
        if not held_by:
            held_by = tuple(need for need in lacking if not (need.is_copy and _is_urgent(rules, here)))
        if not held_by and not _why_due(closed_ms, facts.sure_ms, rules, here):
            held_by = (Need(who=CLOCK, offset=segment.base, is_told=True),)
        if held_by or len(why) >= rules.segments_max:
            continue
        passed.update((need.who, None) for need in lacking)
        why.append(reason)
        delete_to, gone_bytes = segment.end, gone_bytes + segment.end - segment.base
    # Hoped for at each look, space that does not come would have sends taken until the disk is full.
    hoped_bytes = max(gone_bytes - facts.unshown_bytes, 0)
    return Decision(
        delete_to=delete_to,
        why=tuple(why),
        wanted_to=wanted_to,
        held_by=held_by,
        passed=tuple(passed),
        refused=_why_refused(facts, rules, _percent(facts.disk_bytes, facts.free_bytes + hoped_bytes)),
    )


def is_forced(rules: Rules, disk_bytes: int, free_bytes: int, next_bytes: int) -> bool:
    """Whether age protects nothing, on a disk on which the next segment takes ``next_bytes`` more."""
    # A disk of five segments is 80 % full when the next one does not fit any more: nothing would be deleted, and no
    # send be taken, for ever.
    is_full = free_bytes < next_bytes or _percent(disk_bytes, free_bytes) >= rules.forced_percent
    return bool(rules.forced_percent) and is_full


def _times(facts: Facts) -> list[int | None]:
    """When each segment was closed (rule 5); None: no later one tells a time either."""
    times: list[int | None] = []
    later: int | None = None
    # One record that is stamped a year ahead, or damaged, would keep all segments behind it for a year, or for ever.
    for segment in reversed(facts.segments):
        later = segment.closed_ms if segment.closed_ms is not None and segment.closed_ms <= facts.sure_ms else later
        times.append(later)
    return times[::-1]


def _is_urgent(rules: Rules, facts: Facts) -> bool:
    """Whether copies give way."""
    # While sends are refused, too: between both shares neither would end, the copy that holds the segment by which the
    # disk would be below the lower one, or the refusal.
    limit = rules.resumed_percent if facts.is_refusing else rules.refused_percent
    return bool(rules.refused_percent) and (facts.used_percent >= limit or facts.free_bytes < facts.next_bytes)


def _why_due(closed_ms: int | None, now_ms: int, rules: Rules, facts: Facts) -> str:
    """Why a segment may go as far as time and disk are concerned; empty: it stays."""
    if rules.keep_ms and closed_ms is not None and now_ms - closed_ms >= rules.keep_ms:
        age_ms = now_ms - closed_ms
        return f"its newest record is {age_ms // HOUR_MS} h old, {rules.keep_ms // HOUR_MS} h are kept"
    if is_forced(rules, facts.disk_bytes, facts.free_bytes, facts.next_bytes):
        lacks = ", the next segment does not fit" if facts.free_bytes < facts.next_bytes else ""
        return (
            f"the disk is {facts.used_percent:.1f} % full{lacks}, from {rules.forced_percent} % on age protects nothing"
        )
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
