"""
The decision record of one epoch, rendered from its own events.

Here: ``explain`` and the rules that are checked again on the record. Not here: reading the journal, text for a terminal
(``cli``).

Rule: an explanation rests on the record alone. That of an old epoch is the same today and in a year.
"""

from __future__ import annotations

from collections.abc import Iterable

from rollcall_ha.controller.contract.events import (
    EventRecord,
    LossGraded,
    MasterElected,
    MasterEntered,
    MilestoneReached,
)
from rollcall_ha.controller.contract.ids import MasterEpoch, ReplicaKind
from rollcall_ha.controller.contract.verdicts import CandidateOutcome, ElectionKind, LossVerdict
from rollcall_ha.controller.contract.views import Explanation, Freshness
from rollcall_ha.controller.core.history import history_of
from rollcall_ha.controller.core.ranking import elect_again
from rollcall_ha.controller.core.recovery import EPOCH_JUMP


def explain(records: Iterable[EventRecord], *, master_epoch: MasterEpoch, freshness: Freshness) -> Explanation | None:
    """
    Explain how ``master_epoch`` came about and what became of it.

    Args:
        records: Events of one set, in order. None is needed from before the event that triggered the election.
        master_epoch: The epoch to explain.
        freshness: Where the events were read; handed through.

    Returns:
        The explanation; None if no election of this epoch is among ``records``.
    """
    known = tuple(records)
    events = events_of_epoch(known, master_epoch)
    row = next((row for row in history_of(known) if row.master_epoch == master_epoch), None)
    elected = next((record for record in events if isinstance(record.event, MasterElected)), None)
    if row is None or elected is None or elected.set_key is None:
        return None
    losses = [record.event.verdict for record in events if isinstance(record.event, LossGraded)]
    loss: LossVerdict | None = losses[-1] if losses else None
    return Explanation(
        freshness=freshness,
        set_key=elected.set_key,
        row=row,
        election=elected,
        loss=loss,
        events=events,
        invariants=checked_rules(events),
    )


def events_of_epoch(records: Iterable[EventRecord], master_epoch: MasterEpoch) -> tuple[EventRecord, ...]:
    """
    The event that triggered this epoch's election, all up to the next election, and later ones that name the epoch.
    """
    known = tuple(records)
    start = next(
        (
            position
            for position, record in enumerate(known)
            if isinstance(record.event, MasterElected) and record.event.master_epoch == master_epoch
        ),
        None,
    )
    if start is None:
        return ()
    elected = known[start].event
    trigger = elected.triggered_by if isinstance(elected, MasterElected) else None
    before = [record for record in known[:start] if trigger is not None and record.ref == trigger]
    within: list[EventRecord] = [known[start]]
    is_over = False
    for record in known[start + 1 :]:
        is_over = is_over or isinstance(record.event, MasterElected)
        if not is_over or _names_epoch(record, master_epoch):
            within.append(record)
    return (*before, *within)


def _names_epoch(record: EventRecord, master_epoch: MasterEpoch) -> bool:
    event = record.event
    if isinstance(event, LossGraded):
        return event.verdict.master_epoch == master_epoch
    return isinstance(event, MilestoneReached) and event.milestone.master_epoch == master_epoch


def checked_rules(events: Iterable[EventRecord]) -> tuple[str, ...]:
    """The rules that an epoch's own events can show, each with its outcome and the values that it rests on."""
    known = tuple(events)
    lines: list[str] = []
    for record in known:
        if isinstance(record.event, MasterElected):
            lines.extend(_checked_election(record.event))
        elif isinstance(record.event, MasterEntered):
            epoch, start = record.event.master_epoch, record.event.start_offset
            lines.append(
                f"holds: R12 epoch {epoch} starts at {start}, fixed once"
                if start is not None
                else f"unknown: R12 where epoch {epoch} starts; its master is a RocketMQ broker"
            )
    return tuple(lines)


def _line(holds: bool, text: str) -> str:
    return f"{'holds' if holds else 'BROKEN'}: {text}"


def _checked_election(event: MasterElected) -> tuple[str, ...]:
    verdict = event.verdict
    previous, current = verdict.previous_epoch, verdict.master_epoch
    is_first = verdict.kind in (ElectionKind.FIRST, ElectionKind.BOOTSTRAP)
    is_next = current == previous + 1 or (current > previous and (is_first or current % EPOCH_JUMP == 0))
    is_exempt = verdict.kind in (ElectionKind.FIRST, ElectionKind.BOOTSTRAP, ElectionKind.UNCLEAN)
    winner = next((c for c in verdict.candidates if c.broker_id == verdict.winner), None)
    is_eligible = winner is not None and winner.is_alive and winner.outcome is CandidateOutcome.ELECTED
    in_set = event.master in verdict.previous_set
    allowed = {event.master, *verdict.previous_set}
    is_java = winner is not None and winner.kind is ReplicaKind.ROCKETMQ
    survivors = set(event.sync_state_set) <= (allowed if not is_java else {event.master})
    evidence = event.evidence
    taken = (evidence.master_epoch, evidence.sync_state_set_epoch)
    again = elect_again(verdict)
    if again is None:
        repeated = f"not repeated: policy {verdict.policy} is not known here"
    else:
        same = again.winner == verdict.winner and [(c.broker_id, c.outcome, c.rank) for c in again.candidates] == [
            (c.broker_id, c.outcome, c.rank) for c in verdict.candidates
        ]
        repeated = _line(
            same, f"S68 elected again from the stored evidence by {verdict.policy}: replica {again.winner}"
        )
    how = f"in the committed set {list(verdict.previous_set)}" if in_set else f"elected by {verdict.kind.value}"
    return (
        _line(is_next, f"C1 masterEpoch {previous} -> {current}"),
        _line(is_eligible and (in_set or is_exempt), f"C4 replica {event.master} was alive and {how}"),
        _line(survivors or is_exempt, f"R6 SyncStateSet {list(verdict.previous_set)} -> {list(event.sync_state_set)}"),
        _line(
            taken == (previous, verdict.previous_set_epoch),
            f"R14 evidence at index {evidence.read_at_index} was taken against masterEpoch {taken[0]}, "
            f"SyncStateSetEpoch {taken[1]}",
        ),
        repeated,
    )
