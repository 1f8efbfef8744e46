"""
When this replica reached which phase of a failover, timed from the push that it answers.

Here: each phase of an epoch once, as a ``Milestone``. Not here: sending them (``broker.session``).
"""

from __future__ import annotations

from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, LogOffset, MasterEpoch
from rollcall_ha.controller.contract.values import Milestone, Phase
from rollcall_ha.epoch.model import NO_EPOCH
from rollcall_ha.ha.truncation import Cut, FullResync, TruncationPlan


class PhaseClock:
    """The phases of one masterEpoch at a time."""

    def __init__(self, incarnation: Incarnation) -> None:
        """Nothing is reported before the first ``begin``."""
        self._incarnation = incarnation
        self._master_epoch = NO_EPOCH
        self._pushed_at_us = 0
        self._reported: set[Phase] = set()

    def begin(self, master_epoch: MasterEpoch, now_us: int) -> None:
        """A push arrived: it starts the clock if it shows another epoch, or if nothing of this one was reported yet."""
        if master_epoch != self._master_epoch or not self._reported:
            self._master_epoch = master_epoch
            self._pushed_at_us = now_us
            self._reported = set()

    def reach(self, phase: Phase, broker_id: BrokerId, now_us: int) -> Milestone | None:
        """``phase`` of the running epoch; None if it was reported before."""
        if phase in self._reported:
            return None
        self._reported.add(phase)
        return Milestone(
            master_epoch=self._master_epoch,
            phase=phase,
            elapsed_us=now_us - self._pushed_at_us,
            broker_id=broker_id,
            incarnation=self._incarnation,
        )


def cut_range(plan: TruncationPlan) -> tuple[LogOffset | None, LogOffset | None]:
    """First byte that a plan throws away and the end of what it throws away; (None, None) = nothing."""
    if isinstance(plan, Cut) and plan.cut_bytes:
        return plan.point, LogOffset(plan.point + plan.cut_bytes)
    # One that was away for days, and has what the others have lost by age: no acknowledged byte of it was refuted.
    if isinstance(plan, FullResync) and plan.set_aside_bytes and not plan.is_outlived:
        return plan.own_start, plan.own_end
    return None, None


def outlived_range(plan: TruncationPlan) -> dict[str, LogOffset]:
    """The fields of a ``Milestone`` for a log that its master has outlived by age; empty = it has not."""
    if isinstance(plan, FullResync) and plan.is_outlived:
        return {"outlived_from": plan.own_start, "outlived_to": plan.own_end}
    return {}
