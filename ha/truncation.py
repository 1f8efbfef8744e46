"""
The plan of a slave for its log, once a master has shown its epoch history: keep, cut, set aside, or isolate.

Here: the decision, pure. Not here: cutting (``broker.log``, crash-safe by R20), when it is asked for (``slave_link``).
Rule 1: the point is the end of the history that both have in common, clamped to the own end (W5).
Rule 2: no common epoch, a point that the master no longer has, or one inside a record is answered by an announced full
copy with the old log set aside, never by a silent cut to zero (S29, W18).
Rule 3: a loss below the replica's own durable confirm isolates it, unless an unclean epoch explains it (R26).
"""

from __future__ import annotations

from collections.abc import Callable

from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import NO_EPOCH, LogOffset, MasterEpoch


class LogExtent(Frozen):
    """One log as the planner sees it."""

    history: EpochHistory
    min_offset: LogOffset
    max_offset: LogOffset


class Keep(Frozen):
    """Nothing to do: the whole log is a prefix of the master's."""

    point: LogOffset


class Cut(Frozen):
    """
    Cut log and history (R20). The log may keep its end and only lose an entry that got no byte.
    """

    point: LogOffset
    history: EpochHistory
    """The history after the cut; to be stored as it is."""
    cut_bytes: int


class FullResync(Frozen):
    """Set the log aside, then begin an empty one at ``start_offset`` with an empty history."""

    start_offset: LogOffset
    reason: str
    set_aside_bytes: int
    """0 = the log was empty, there is nothing to set aside."""
    own_start: LogOffset = LogOffset(0)
    """Where the log began that is set aside."""
    is_outlived: bool = False
    """The master has lost by age what follows the own log: no byte of it is known to differ."""
    known_to: LogOffset = LogOffset(0)
    """Of an outlived log: the bytes below were the master's too. Behind them may be bytes that no other replica had."""
    is_whole: bool = True
    """The new log begins with the master's first byte; a blank learner's may begin later (R23)."""

    @property
    def own_end(self) -> LogOffset:
        return LogOffset(self.own_start + self.set_aside_bytes)


class Isolate(Frozen):
    """Touch nothing, raise the alarm: confirmed bytes would go (R26)."""

    point: LogOffset
    confirm_offset: LogOffset
    reason: str


ExecutablePlan = Keep | Cut | FullResync
TruncationPlan = ExecutablePlan | Isolate


def plan_truncation(
    own: LogExtent,
    own_confirm: LogOffset,
    master: LogExtent,
    *,
    unclean_epoch: MasterEpoch,
    is_record_boundary: Callable[[LogOffset], bool],
    begins_at_last_segment_of_bytes: int = 0,
) -> TruncationPlan:
    """
    Decide on the handshake.

    ``begins_at_last_segment_of_bytes``: the size of segments, if a blank learner is to begin at the master's last one.
    ``own_confirm`` is durable; ``unclean_epoch`` is the newest one that began uncleanly, ``NO_EPOCH`` if there is none.
    """
    if own.max_offset == own.min_offset:
        return _plan_for_empty(own, master, begins_at_last_segment_of_bytes)
    common = own.history.common_entry(master.history)
    point = own.history.consistent_point(own.max_offset, master.history, master.max_offset)
    # An unclean election may take confirmed bytes back: the operator chose that. Only one behind the last common epoch
    # explains this loss; an older one is in both logs already.
    is_explained = unclean_epoch > (common.epoch if common else NO_EPOCH)
    # The bytes between both logs are gone on the master, so nothing can be sent behind this log. The branches below
    # would find a full copy too, but not say why.
    if own.max_offset < master.min_offset:
        reason = f"the own log ends at {own.max_offset}, the master's begins at {master.min_offset}"
        known_to = max(point or 0, 0 if is_explained else min(own_confirm, own.max_offset))
        return _resync(own, master, reason, known_to)
    if common is None or point is None:
        floor = max(master.min_offset, own.min_offset)
        if own_confirm > floor and not is_explained:
            return _isolate(floor, own_confirm, "the master shares no epoch with the own log")
        return _resync(own, master, "no epoch in common with the master")
    # The bytes from ``point`` on were on every required member once. That the elected master lacks them means that a
    # rule was broken somewhere: cut silently, the evidence would go with the last copy.
    if point < own_confirm and not is_explained:
        return _isolate(point, own_confirm, f"both logs agree up to {point} only, in epoch {common.epoch}")
    if point < max(master.min_offset, own.min_offset):
        return _resync(own, master, f"both logs agree up to {point}, where one of them has no bytes any more")
    # Epochs begin between records, so histories cannot agree up to the middle of one: the logs come from different
    # lives.
    if point < own.max_offset and not is_record_boundary(point):
        return _resync(own, master, f"both logs agree up to {point}, which is inside a record")
    history = EpochHistory(entry for entry in own.history.entries if entry.epoch <= common.epoch)
    if point == own.max_offset and history == own.history:
        return Keep(point=point)
    return Cut(point=point, history=history, cut_bytes=own.max_offset - point)


def _plan_for_empty(own: LogExtent, master: LogExtent, segment_bytes: int) -> TruncationPlan:
    """An empty log has nothing to lose; an entry without bytes comes again with its first byte."""
    if segment_bytes:
        last = LogOffset(max(master.min_offset, master.max_offset // segment_bytes * segment_bytes))
        if own.max_offset != last:
            reason = f"a blank learner begins at the master's last segment, {last} of {master.max_offset}"
            return FullResync(start_offset=last, reason=reason, set_aside_bytes=0, is_whole=False)
    elif own.max_offset != master.min_offset:
        return _resync(own, master, f"the empty log begins at {own.max_offset}, the master's at {master.min_offset}")
    if own.history:
        # An entry (3, 0) that never got a byte would label the master's first bytes, which are of epoch 1.
        return Cut(point=own.max_offset, history=EpochHistory(), cut_bytes=0)
    return Keep(point=own.max_offset)


def _resync(own: LogExtent, master: LogExtent, reason: str, outlived_to: int | None = None) -> FullResync:
    return FullResync(
        start_offset=master.min_offset,
        reason=reason,
        set_aside_bytes=own.max_offset - own.min_offset,
        own_start=own.min_offset,
        is_outlived=outlived_to is not None,
        known_to=LogOffset(outlived_to or 0),
    )


def _isolate(point: LogOffset, confirm: LogOffset, what: str) -> Isolate:
    return Isolate(
        point=point,
        confirm_offset=confirm,
        reason=f"{what}; bytes up to {confirm} are confirmed, and no unclean election explains their loss",
    )
