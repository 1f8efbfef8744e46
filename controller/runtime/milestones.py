"""
Stamps of a failover that the leader takes itself, and the clock that joins those of brokers to its own.

Here: COMMITTED and NOTIFIED, ``observed_us`` of broker milestones, batches. Not here: the meaning of phases
(``controller.core.history``), proposing (``service``). Times are nanoseconds of one monotonic clock.

Rule 1: ``elapsed_us`` of the leader counts from the proposal, ``observed_us`` from the first sign of the fault;
without a detection (a first election) both count from the proposal. Where an operator moves a living master both count
from the commit: the old master serves until it is told, and at the most until the winner has promised. So does one that
its slaves heard after it was found silent, and one whose id another process took while its session was open. One whose
heartbeat was overdue at the commit may have ceased at its last word.
Rule 2: a leader that applied the election of the leader before it has bounds: at the least since it applied it, at the
most since its stamp. One that did not see it, or leads a fleet whose level has no bounds, says nothing: ``observed_us``
stays None.
Rule 3: a broker's milestone is observed when it was reached: at the arrival of its report, less the age that the broker
tells, and not before the commit, of which it had to hear first.
Rule 4: stamps are a record, not a promise: at most ``PENDING_MAX`` wait, the oldest are dropped and counted.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import UNSET

from rollcall_ha.controller.contract.commands import RecordMilestones
from rollcall_ha.controller.contract.events import EventRecord, MasterElected
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, SetKey
from rollcall_ha.controller.contract.timing import NS_PER_US
from rollcall_ha.controller.contract.values import Milestone, Phase, SilenceCause
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.actions import Action, ProposeCommand
from rollcall_ha.controller.core.outages import CLOCK_DIFFERENCE_MS, US_PER_MS

PENDING_MAX = 20_000
ORIGINS_MAX = 20_000
"""Failovers whose beginning is remembered; the oldest is forgotten first."""


class Origin(msgspec.Struct, kw_only=True):
    """Where the clocks of one failover start."""

    proposed_ns: int
    fault_ns: int
    committed_ns: int
    served_by: BrokerId | None = None
    """The winner, where the old master serves until it is told; None: it had ceased before."""
    unheard_us: int = 0
    """How long ago the old master had been heard at the commit, if it was overdue."""
    promised_us: int | None = None
    """When that winner promised, on its own clock."""
    stamped_ms: int | None = None
    """The election's stamp less the steps of its clock, if another proposed it: the rest is when it was applied."""


def winner_beside(event: MasterElected) -> BrokerId | None:
    """The winner, if the old master may have served until it was told: nobody saw it stop before the election."""
    stamps = event.detection
    if stamps is None:
        return event.master if event.verdict.kind in (ElectionKind.REQUESTED, ElectionKind.UNCLEAN) else None
    if stamps.cause is SilenceCause.REPLACED:
        # By another process of its id, while its own session was open: a copy, and it serves until its slaves have left
        # it. From the copy's registration on, 116 ms were the least on record, and 10 felt.
        signs = (stamps.session_closed_age_us, stamps.link_closed_age_us, stamps.probe_refused_age_us)
        return event.master if stamps.last_heartbeat_age_us is not None and set(signs) == {None} else None
    # Silent here, and heard by its slaves nearly to the end: of a cut from the controllers alone 140 ms were the least
    # on record, and 29 felt. One that hangs is heard by nobody from its last heartbeat on.
    told_us = stamps.last_heartbeat_age_us or stamps.detected_age_us
    is_heard_elsewhere = 2 * stamps.first_sign_age_us <= stamps.detected_age_us + told_us
    return event.master if stamps.cause is SilenceCause.TIMEOUT and is_heard_elsewhere else None


class Milestones:
    """The collector of one leader."""

    def __init__(self) -> None:
        self._origins: dict[tuple[SetKey, MasterEpoch], Origin] = {}
        self._applied: dict[SetKey, tuple[MasterEpoch, Origin]] = {}
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

    def applied(self, records: Iterable[EventRecord], *, stepped_ms: int, now_ns: int) -> None:
        """Remember each set's last election, also while another controller leads: this one may be the next (rule 2)."""
        for record in records:
            event = record.event
            if not isinstance(event, MasterElected) or record.set_key is None:
                continue
            stamps = event.detection
            origin = Origin(
                proposed_ns=now_ns,
                fault_ns=now_ns - (stamps.first_sign_age_us * NS_PER_US if stamps is not None else 0),
                committed_ns=now_ns,
                served_by=winner_beside(event),
                stamped_ms=record.stamped_at_ms - stepped_ms,
            )
            self._applied.pop(record.set_key, None)
            self._applied[record.set_key] = event.master_epoch, origin
            if len(self._applied) > ORIGINS_MAX:
                del self._applied[next(iter(self._applied))]

    def notified(self, key: SetKey, epoch: MasterEpoch, now_ns: int) -> None:
        """The notice of this epoch was handed to the winner's connection."""
        # Rule 2: an election of the leader before this one; its clock is not ours.
        if (key, epoch) in self._origins:
            self._add(key, epoch, Phase.NOTIFIED, now_ns)

    def observe(self, command: RecordMilestones, now_ns: int, *, steady_ms: int | None) -> RecordMilestones:
        """
        The same milestones with the leader's own measure of when they were reached (rule 3).

        Args:
            command: A broker's report.
            now_ns: When it arrived.
            steady_ms: UTC at that moment, less the steps on record; None: the fleet's level has no bounds (rule 2).
        """
        milestones = tuple(self._timed(command.set_key, one, now_ns, steady_ms) for one in command.milestones)
        return msgspec.structs.replace(command, milestones=milestones)

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

    def _origin_of(self, key: SetKey, epoch: MasterEpoch) -> Origin | None:
        applied_epoch, applied = self._applied.get(key, (None, None))
        return self._origins.get((key, epoch)) or (applied if applied_epoch == epoch else None)

    def _timed(self, key: SetKey, milestone: Milestone, now_ns: int, steady_ms: int | None) -> Milestone:
        origin = self._origin_of(key, milestone.master_epoch)
        timed = msgspec.structs.replace(milestone, age_us=None, observed_us=None, uncertainty_us=UNSET)
        observed_us = self._observed_us(key, milestone, now_ns)
        if origin is None or observed_us is None or (origin.stamped_ms is not None and steady_ms is None):
            return timed
        least_us = most_us = observed_us
        if origin.stamped_ms is not None and steady_ms is not None:
            # It was proposed before it was applied here. By how much, only the stamp of another clock says.
            since_ms = steady_ms - origin.stamped_ms + CLOCK_DIFFERENCE_MS
            late_us = since_ms * US_PER_MS - (now_ns - origin.committed_ns) // NS_PER_US
            # Negative by a step that is not on record yet: as exact, the total would be a number that nobody measured.
            most_us += max(CLOCK_DIFFERENCE_MS * US_PER_MS, late_us)
        if milestone.broker_id is not None and milestone.broker_id == origin.served_by:
            if milestone.phase is Phase.PROMISED:
                origin.promised_us = milestone.elapsed_us
            elif milestone.phase is Phase.SERVING and steady_ms is not None:
                # Up to the winner's promise its acks let the old master answer: counted from the commit, 1,834 ms were
                # on record as exact of 1,730 felt.
                promised_us = milestone.elapsed_us if origin.promised_us is None else origin.promised_us
                least_us = min(least_us, max(0, milestone.elapsed_us - promised_us))
                # It may have hung before the order: 30 ms were the most on record of 2 s.
                most_us += origin.unheard_us
        return msgspec.structs.replace(timed, observed_us=least_us, uncertainty_us=(most_us - least_us) or UNSET)

    def _observed_us(self, key: SetKey, milestone: Milestone, now_ns: int) -> int | None:
        origin = self._origin_of(key, milestone.master_epoch)
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
