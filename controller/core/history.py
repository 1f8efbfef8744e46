"""
The reigns of one set, computed from its events.

Here: ``history_of`` and the split of a failover's time by phase. Not here: reading the journal, paging
(``controller.runtime``), where an outage began (``outages``, ``controller.runtime.sessions``).

Rule 1: phases chain. The leader's clock: first sign of the fault -> detected -> proposed -> committed -> notified;
the winner's clock goes on from the push that notified it. Each span is the difference to the stamp before it on its
clock.
Rule 2: an outage ends at SERVING, when the gate is open. The leader alone times it, and it is not a sum; the part that
no phase up to SERVING explains is ``unattributed_us``.
Rule 3: FIRST_ACK comes when somebody sends: it is in no total. The part of it that a sender waited is ``waited_us``.
Rule 4: a phase without a stamp is named in ``missing``, and so is a stamp that lies before its predecessor. Nothing is
guessed. Where the fault itself was not seen, or not by the leader that times SERVING, ``missing`` names it, and the
total is a lower and an upper bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from msgspec import UNSET

from rollcall_ha.controller.contract.events import (
    EventRecord,
    LossGraded,
    MasterElected,
    MilestoneReached,
    SwitchoverOrdered,
)
from rollcall_ha.controller.contract.ids import MasterEpoch
from rollcall_ha.controller.contract.values import Milestone, Phase, SilenceCause
from rollcall_ha.controller.contract.verdicts import ElectionKind, Grade, LossVerdict
from rollcall_ha.controller.contract.views import HistoryRow, PhaseSpan

_LEADER_PHASES = (Phase.COMMITTED, Phase.NOTIFIED)
_WINNER_PHASES = (Phase.PROMISED, Phase.ROLE_APPLIED, Phase.SERVING, Phase.FIRST_ACK)
_FOR_A_LOST_MASTER = (ElectionKind.FAILOVER, ElectionKind.UNCLEAN)


class _Reign(msgspec.Struct):
    """What the events say about one epoch."""

    elected: EventRecord
    event: MasterElected
    requested_by: str
    milestones: list[Milestone] = msgspec.field(default_factory=list)
    loss: LossVerdict | None = None


def history_of(records: Iterable[EventRecord]) -> tuple[HistoryRow, ...]:
    """
    One row per reign, newest first.

    Args:
        records: Events of one set, in order; others are ignored. A repeated event changes nothing (S81).
    """
    reigns: dict[MasterEpoch, _Reign] = {}
    switched_by = ""
    for record in records:
        event = record.event
        if isinstance(event, SwitchoverOrdered):
            switched_by = record.requested_by
        elif isinstance(event, MasterElected):
            reigns.setdefault(
                event.master_epoch, _Reign(elected=record, event=event, requested_by=_requester(record, switched_by))
            )
        elif isinstance(event, MilestoneReached) and event.milestone.master_epoch in reigns:
            reigns[event.milestone.master_epoch].milestones.append(event.milestone)
        elif isinstance(event, LossGraded) and event.verdict.master_epoch in reigns:
            reigns[event.verdict.master_epoch].loss = event.verdict
    return tuple(_row(reigns[epoch]) for epoch in sorted(reigns, reverse=True))


def _requester(record: EventRecord, switched_by: str) -> str:
    """The operator behind it: of a switchover the master that has drained asks for the election, by an order."""
    event = record.event
    is_ordered = isinstance(event, MasterElected) and event.verdict.kind is ElectionKind.SWITCHOVER
    return switched_by if is_ordered and switched_by else record.requested_by


def _row(reign: _Reign) -> HistoryRow:
    event, loss = reign.event, reign.loss
    phases = _phases(event, reign.milestones)
    serving = _milestone(reign.milestones, Phase.SERVING, event)
    total_us = serving.observed_us if serving is not None else None
    slack_us = 0 if serving is None or serving.uncertainty_us is UNSET else serving.uncertainty_us
    uncertainty_us = _uncertainty_us(event, slack_us)
    durations = {span.phase: span.duration_us for span in phases}
    attributed_us = sum(us for phase, us in durations.items() if us is not None and phase is not Phase.FIRST_ACK)
    missing = tuple(phase for phase, duration_us in durations.items() if duration_us is None)
    return HistoryRow(
        master_epoch=event.master_epoch,
        elected_at_ms=reign.elected.stamped_at_ms,
        kind=event.verdict.kind,
        cause=_cause(event),
        from_master=event.verdict.previous_master,
        to_master=event.master,
        phases=phases,
        total_us=total_us,
        unattributed_us=None if total_us is None else _unattributed_us(total_us - attributed_us, slack_us),
        missing=missing if uncertainty_us == 0 else (Phase.FAULT, *missing),
        grade=loss.grade if loss is not None else None,
        loss_bytes=_loss_bytes(loss),
        cut_bytes=loss.cut_bytes if loss is not None else None,
        requested_by=reign.requested_by,
        event=reign.elected.ref,
        total_us_max=None if total_us is None or uncertainty_us is None else total_us + uncertainty_us,
        waited_us=_waited_us(_milestone(reign.milestones, Phase.FIRST_ACK, event), durations[Phase.FIRST_ACK]),
    )


def _uncertainty_us(event: MasterElected, slack_us: int) -> int | None:
    """
    How much longer than its total the outage may have been, ``slack_us`` of it by SERVING; None = no bound is known.
    """
    if event.detection is not None:
        of_fault_us = event.detection.uncertainty_us
        return None if of_fault_us is None else of_fault_us + slack_us
    # Its beginning is on record: a living master was moved, or there was none before. A master that was lost without a
    # stamp was lost at some time before it: 40 ms of election would be the record of an outage of 12 minutes.
    return None if event.verdict.kind in _FOR_A_LOST_MASTER else slack_us


def _unattributed_us(rest_us: int, slack_us: int) -> int:
    """``rest_us`` of a total; phases that reach beyond its lower bound, and not beyond the upper one, explain it."""
    return max(rest_us, min(0, rest_us + slack_us))


def _waited_us(first_ack: Milestone | None, span_us: int | None) -> int | None:
    """The wait of senders after SERVING: the rest of a longer one began before, and is part of the outage."""
    if first_ack is None or span_us is None or first_ack.waited_us is None:
        return None
    return min(span_us, first_ack.waited_us)


def _loss_bytes(loss: LossVerdict | None) -> int | None:
    """Bytes that were, or at most can have been, lost; None = not known."""
    if loss is None or loss.grade is Grade.UNKNOWN:
        return None
    return 0 if loss.grade is Grade.PROVEN else loss.bound_bytes


def _cause(event: MasterElected) -> str:
    if event.verdict.kind is not ElectionKind.FAILOVER or event.detection is None:
        return event.reason or event.verdict.kind.value
    stamps = event.detection
    if stamps.cause is SilenceCause.TIMEOUT and stamps.last_heartbeat_age_us is not None:
        return f"no heartbeat for {stamps.last_heartbeat_age_us / 1_000_000:.1f} s"
    return {
        SilenceCause.TIMEOUT: "no heartbeat in time",
        SilenceCause.DEAD_AT_ONCE: "session closed, probe refused, HA link closed",
        SilenceCause.REPLACED: "restarted as a new incarnation",
        SilenceCause.GOODBYE: "stopped cleanly",
        SilenceCause.WRITES_STOPPED: "its writes had stopped",
        SilenceCause.REVOKED: "its certificate was revoked",
        SilenceCause.DRAINED: "drained for a switchover",
    }[stamps.cause]


def _milestone(milestones: Sequence[Milestone], phase: Phase, event: MasterElected) -> Milestone | None:
    """
    The first report of ``phase`` by the process that it belongs to: the leader, or the winner's elected incarnation.
    """
    if phase in _LEADER_PHASES:
        return next((m for m in milestones if m.phase is phase and m.broker_id is None), None)
    return next(
        (
            milestone
            for milestone in milestones
            if milestone.phase is phase
            and milestone.broker_id == event.master
            and milestone.incarnation in (None, event.master_incarnation)
        ),
        None,
    )


def _phases(event: MasterElected, milestones: Sequence[Milestone]) -> tuple[PhaseSpan, ...]:
    spans: list[PhaseSpan] = []
    if event.detection is not None:
        fault_us = event.detection.first_sign_age_us
        spans.append(PhaseSpan(phase=Phase.DETECTED, duration_us=fault_us - event.detection.detected_age_us))
        spans.append(PhaseSpan(phase=Phase.PROPOSED, duration_us=event.detection.detected_age_us))
    elif event.verdict.kind in _FOR_A_LOST_MASTER:
        spans.append(PhaseSpan(phase=Phase.DETECTED, duration_us=None))
    for phases in (_LEADER_PHASES, _WINNER_PHASES):
        # Both clocks start again at 0: the leader's milestones count from the proposal, the winner's from the push.
        before_us = 0
        for phase in phases:
            milestone = _milestone(milestones, phase, event)
            if milestone is None or milestone.elapsed_us < before_us:
                spans.append(PhaseSpan(phase=phase, duration_us=None))
                continue
            spans.append(PhaseSpan(phase=phase, duration_us=milestone.elapsed_us - before_us))
            before_us = milestone.elapsed_us
    return tuple(spans)
