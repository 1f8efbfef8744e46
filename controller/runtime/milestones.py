"""
Stamps of a failover that the leader takes itself, and the clock that joins those of brokers to its own.

Here: COMMITTED and NOTIFIED, ``observed_us`` of broker milestones, batches. Not here: the meaning of phases
(``controller.core.history``), proposing (``service``). Times are nanoseconds of one monotonic clock.

Rule 1: ``elapsed_us`` of the leader counts from the proposal, ``observed_us`` from the first sign of the fault;
without a detection (a first election) both count from the proposal. Where an operator moves a living master both count
from the commit: the old master serves until it is told.
Rule 2: a leader that did not see the beginning says nothing about it: ``observed_us`` stays None.
Rule 3: a broker's milestone is observed when it was reached: at the arrival of its report, less the age that the broker
tells, and not before the commit, of which it had to hear first.
Rule 4: stamps are a record, not a promise: at most ``PENDING_MAX`` wait, the oldest are dropped and counted.
"""

from __future__ import annotations

import msgspec

from rollcall_ha.controller.contract.commands import RecordMilestones
from rollcall_ha.controller.contract.ids import MasterEpoch, SetKey
from rollcall_ha.controller.contract.timing import NS_PER_US
from rollcall_ha.controller.contract.values import Frozen, Milestone, Phase
from rollcall_ha.controller.core.actions import Action, ProposeCommand

PENDING_MAX = 20_000
ORIGINS_MAX = 20_000
"""Failovers whose beginning is remembered; the oldest is forgotten first."""


class Origin(Frozen):
    """Where the clocks of one failover start."""

    proposed_ns: int
    fault_ns: int
    committed_ns: int


class Milestones:
    """The collector of one leader."""

    def __init__(self) -> None:
        self._origins: dict[tuple[SetKey, MasterEpoch], Origin] = {}
        self._pending: dict[SetKey, list[Milestone]] = {}
        self._pending_count = 0
        self.dropped = 0

    def disarm(self) -> None:
        """Cease to lead: the next leader's clock has another zero."""
        self._origins.clear()
        self._pending.clear()
        self._pending_count = 0

    def committed(self, key: SetKey, epoch: MasterEpoch, origin: Origin) -> None:
        """An election was applied here, while this controller leads."""
        self._origins[key, epoch] = origin
        if len(self._origins) > ORIGINS_MAX:
            del self._origins[next(iter(self._origins))]
        self._add(key, epoch, Phase.COMMITTED, origin.committed_ns)

    def notified(self, key: SetKey, epoch: MasterEpoch, now_ns: int) -> None:
        """The notice of this epoch was handed to the winner's connection."""
        # Rule 2: an election of the leader before this one; its clock is not ours.
        if (key, epoch) in self._origins:
            self._add(key, epoch, Phase.NOTIFIED, now_ns)

    def observe(self, command: RecordMilestones, now_ns: int) -> RecordMilestones:
        """The same milestones with the leader's own measure of when they were reached (rule 3)."""
        return msgspec.structs.replace(
            command,
            milestones=tuple(
                msgspec.structs.replace(
                    milestone, age_us=None, observed_us=self._observed_us(command.set_key, milestone, now_ns)
                )
                for milestone in command.milestones
            ),
        )

    def flush(self) -> list[Action]:
        """One proposal per set with all that has gathered."""
        pending, self._pending, self._pending_count = self._pending, {}, 0
        return [
            ProposeCommand(command=RecordMilestones(set_key=key, milestones=tuple(milestones)))
            for key, milestones in pending.items()
        ]

    def give_back(self, command: RecordMilestones) -> None:
        """Certainly not executed: try again with the next batch."""
        for milestone in command.milestones:
            self._put(command.set_key, milestone)

    def _observed_us(self, key: SetKey, milestone: Milestone, now_ns: int) -> int | None:
        origin = self._origins.get((key, milestone.master_epoch))
        if origin is None:
            return None
        # An age that is no time, of a broker's mistake or lie, would end the outage before it began, or after now.
        reached_ns = min(now_ns, max(origin.committed_ns, now_ns - (milestone.age_us or 0) * NS_PER_US))
        return max(0, reached_ns - origin.fault_ns) // NS_PER_US

    def _add(self, key: SetKey, epoch: MasterEpoch, phase: Phase, now_ns: int) -> None:
        origin = self._origins[key, epoch]
        self._put(
            key,
            Milestone(
                master_epoch=epoch,
                phase=phase,
                elapsed_us=max(0, now_ns - origin.proposed_ns) // NS_PER_US,
                observed_us=max(0, now_ns - origin.fault_ns) // NS_PER_US,
            ),
        )

    def _put(self, key: SetKey, milestone: Milestone) -> None:
        if self._pending_count >= PENDING_MAX:
            oldest = next(iter(self._pending))
            dropped = len(self._pending.pop(oldest))
            self._pending_count -= dropped
            self.dropped += dropped
        self._pending.setdefault(key, []).append(milestone)
        self._pending_count += 1
