"""
What a slave does with its log when a master has shown its epoch history.

Here: the decision, pure. Not here: cutting (``broker.log``, crash-safe by R20), when it is asked for (``slave_link``).
Rule 1: the point is the end of what both have in common, clamped to the own end (W5).
Rule 2: no common epoch, a point that the master no longer has, or one inside a record is answered by an announced full
copy with the old log set aside, never by a silent cut to zero (S29, W18).
Rule 3: a loss below the replica's own durable confirm isolates it, unless an unclean epoch explains it (R26).
"""

from __future__ import annotations

from dataclasses import dataclass

from epoch.history import EpochHistory
from epoch.model import LogOffset, MasterEpoch


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExtent:
    """One log as the planner sees it."""

    history: EpochHistory
    min_offset: LogOffset
    max_offset: LogOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Nothing to do: the whole log is a prefix of the master's."""

    point: LogOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """
    Cut log and history (R20). The log may keep its end and only lose an entry that got no byte.
    """

    point: LogOffset
    history: EpochHistory
    """The history after the cut; to be stored as it is."""
    cut_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FullResync:
    """Set the log aside, then begin an empty one at ``start_offset`` with an empty history."""

    start_offset: LogOffset
    reason: str
    set_aside_bytes: int
    """0 = the log was empty, there is nothing to set aside."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolate:
    """Touch nothing, raise the alarm: what would go was confirmed (R26)."""

    point: LogOffset
    confirm_offset: LogOffset
    reason: str


TruncationPlan = Keep | Cut | FullResync | Isolate


def plan_truncation(
    own: LogExtent, own_confirm: LogOffset, master: LogExtent, *, unclean_epoch: MasterEpoch
) -> TruncationPlan:
    """
    Decide on the handshake. ``own_confirm`` is durable; ``unclean_epoch`` is the newest one that began uncleanly.

    Whether ``Cut.point`` is a record boundary is asked by the caller, who has the log; see ``resync_for``.
    """
    if own.max_offset == own.min_offset:
        return _plan_for_empty(own, master)
    common = own.history.common_entry(master.history)
    explained = unclean_epoch > (common.epoch if common else -1)
    limit = LogOffset(0) if explained else own_confirm
    if common is None:
        return _unless_confirmed(resync_for(own, master, "no epoch in common with the master"), limit)
    point = min(
        own.history.end_of(common.epoch, own.max_offset), master.history.end_of(common.epoch, master.max_offset)
    )
    if point < limit:
        return Isolate(
            point=point,
            confirm_offset=own_confirm,
            reason=f"a cut at {point} would go below the own confirm offset {own_confirm}, and no unclean election"
            f" after epoch {common.epoch} explains it",
        )
    if point < master.min_offset or point < own.min_offset:
        floor = max(master.min_offset, own.min_offset)
        return resync_for(own, master, f"both logs agree up to {point}, but one of them begins at {floor}")
    history = EpochHistory(entry for entry in own.history.entries if entry.epoch <= common.epoch)
    if point == own.max_offset and history == own.history:
        return Keep(point=point)
    return Cut(point=point, history=history, cut_bytes=own.max_offset - point)


def _plan_for_empty(own: LogExtent, master: LogExtent) -> TruncationPlan:
    """An empty log has nothing to lose; an entry without bytes comes again with its first byte."""
    if own.max_offset != master.min_offset:
        return resync_for(own, master, f"the empty log begins at {own.max_offset}, the master's at {master.min_offset}")
    if own.history:
        return Cut(point=own.max_offset, history=EpochHistory(), cut_bytes=0)
    return Keep(point=own.max_offset)


def resync_for(own: LogExtent, master: LogExtent, reason: str) -> FullResync:
    """The full copy from the first byte that the master has."""
    return FullResync(start_offset=master.min_offset, reason=reason, set_aside_bytes=own.max_offset - own.min_offset)


def _unless_confirmed(resync: FullResync, confirm_limit: LogOffset) -> TruncationPlan:
    """A full copy throws away everything: what was confirmed must be explained (R26)."""
    if confirm_limit <= 0 or resync.set_aside_bytes == 0:
        return resync
    return Isolate(
        point=LogOffset(0),
        confirm_offset=confirm_limit,
        reason=f"{resync.reason}, and the own log is confirmed up to {confirm_limit}",
    )
