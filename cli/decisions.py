"""
Answers that tell one decision: an election before or after it happened, the record of an epoch, a refusal.

Here: pure functions from values of ``controller.contract`` to ``Report``. Not here: lists (``tables``).
"""

from __future__ import annotations

from rollcall_ha.cli import output
from rollcall_ha.cli.output import Mood, Report, Table
from rollcall_ha.cli.records import caller_text, event_table
from rollcall_ha.cli.tables import cause_of, outage, read_line, spans_of
from rollcall_ha.controller.contract.events import EventRecord, MasterElected, ReplicasCleaned, SwitchoverOrdered
from rollcall_ha.controller.contract.labels import Names, in_words, label, labels, names_of
from rollcall_ha.controller.contract.problems import MASTER_MISSED_WORDS
from rollcall_ha.controller.contract.replies import Elected, SwitchoverAnswer
from rollcall_ha.controller.contract.values import Phase, SwitchoverEnd
from rollcall_ha.controller.contract.verdicts import (
    CandidateOutcome,
    CandidateVerdict,
    ElectionKind,
    LossVerdict,
    Verdict,
)
from rollcall_ha.controller.contract.views import ElectionPreview, Explanation, OrderPreview, Problem, SetStatus

_CANDIDATE_COLUMNS = output.columns(
    "RANK", "NAME?", ">BROKER", "VERDICT", ">EPOCH", ">MAX OFFSET", ">HEARD", ">PRIO", "REASON"
)


def candidate_table(verdict: Verdict, names: Names) -> Table:
    """Every replica of the set with its reason, the winner first, the excluded last."""
    order = list(CandidateOutcome)
    ranked = sorted(
        verdict.candidates,
        key=lambda found: (found.rank is None, found.rank or 0, order.index(found.outcome), found.broker_id),
    )
    rows = tuple(_candidate_row(found, names) for found in ranked)
    return Table(columns=_CANDIDATE_COLUMNS, rows=rows, leaving=("PRIO", "HEARD"))


def _candidate_row(found: CandidateVerdict, names: Names) -> tuple[str, ...]:
    return (
        output.NOT_APPLICABLE if found.rank is None else str(found.rank),
        names.get(found.broker_id, ""),
        str(found.broker_id),
        str(found.outcome),
        output.epoch(found.last_epoch),
        output.number(found.max_offset),
        output.age_ms(found.heartbeat_age_ms),
        str(found.priority),
        in_words(found.reason, names),
    )


def change_line(verdict: Verdict, names: Names) -> str:
    """``masterEpoch 7 -> 8, SyncStateSet {1,2} -> {2}, SyncStateSetEpoch 12 -> 13``."""
    return (
        f"masterEpoch {verdict.previous_epoch} -> {verdict.master_epoch}, "
        f"SyncStateSet {labels(verdict.previous_set, names)} -> {labels(verdict.sync_state_set, names)}, "
        f"SyncStateSetEpoch {verdict.previous_set_epoch} -> {verdict.sync_state_set_epoch}"
    )


def preview_report(preview: ElectionPreview) -> Report:
    verdict, names = preview.verdict, preview.names
    ages = [found.heartbeat_age_ms for found in verdict.candidates if found.heartbeat_age_ms is not None]
    oldest = f", oldest heartbeat {output.age_ms(max(ages))}" if ages else ""
    evidence = f"Policy {verdict.policy}, evidence at index {output.number(preview.freshness.index)}{oldest}."
    parts: list[str | Table] = [evidence, candidate_table(verdict, names)]
    parts.append(f"Then: {change_line(verdict, names)}.  Loss: {_loss_forecast(preview)}.")
    winner = "nobody" if verdict.winner is None else f"broker {label(verdict.winner, names)}"
    first = f"Would elect {winner}."
    return Report(document=preview, verdict=first, read=read_line(preview.freshness), parts=tuple(parts))


def clean_preview_report(preview: OrderPreview) -> Report:
    """What ``clean`` would forget, and what the set would be then."""
    lines, names = [], preview.names
    for event in preview.events:
        if isinstance(event, ReplicasCleaned):
            master = "no master" if event.master is None else f"master {label(event.master, names)}"
            lines.append(
                f"Would forget replicas {labels(event.broker_ids, names)}; {labels(event.remaining, names)} remain, "
                f"with {master}, masterEpoch {event.master_epoch}, SyncStateSet {labels(event.sync_state_set, names)}."
            )
    return Report(document=preview, verdict=" ".join(lines), read=read_line(preview.freshness))


def switchover_preview_report(preview: OrderPreview) -> Report:
    """What ``switchover`` would order."""
    names = preview.names
    lines = [
        f"Would switch over from broker {label(event.master, names)} to {label(event.target, names)} in masterEpoch "
        f"{event.master_epoch}: it is {output.size(event.lag_bytes)} behind; not done within {event.deadline_ms:,} ms, "
        f"broker {label(event.master, names)} serves again."
        for event in preview.events
        if isinstance(event, SwitchoverOrdered)
    ]
    return Report(document=preview, verdict=" ".join(lines), read=read_line(preview.freshness))


def switchover_report(answer: SwitchoverAnswer) -> Report:
    """``switchover``, at its end."""
    row, name, names = answer.row, answer.view.set_key.name, names_of(answer.view.members)
    old, new = label(row.from_master, names), label(row.to_master, names)
    rows = [
        ("order to election", row.elected_ms),
        ("order to entered", row.entered_ms),
        ("order to its end", row.took_ms),
    ]
    shown = [(what, output.duration_us(None if took_ms is None else took_ms * 1_000)) for what, took_ms in rows]
    shown.insert(0, ("no sends before the election", output.duration_us(row.drained_us)))
    table = Table(columns=output.columns("PHASE", ">TOOK"), rows=tuple(shown))
    follow = f"Next: rollcall history {name}"
    if row.end is SwitchoverEnd.DONE:
        first = f"OK  broker {new} is master of {name} in masterEpoch {row.epoch}, no more {old}"
        return Report(document=answer, verdict=first, mood=Mood.GOOD, parts=(table, follow))
    if row.end is None:
        first = f"GOES ON  {name} switches over from broker {old} to {new}"
        return Report(document=answer, verdict=first, mood=Mood.BAD, parts=(table, follow))
    master = "no master" if answer.view.master is None else f"broker {label(answer.view.master, names)}"
    first = f"NOT DONE  {row.end}: {in_words(row.reason, names)}; {name} has {master}"
    return Report(document=answer, verdict=first, mood=Mood.BAD, parts=(table, follow))


def _loss_forecast(preview: ElectionPreview) -> str:
    verdict = preview.verdict
    note = preview.grade_note or "0 bytes"
    if verdict.kind is ElectionKind.UNCLEAN:
        return f"~{output.size(verdict.estimated_loss_bytes)}; {note}"
    return note


def elected_report(answer: Elected) -> Report:
    """``elect``, ``elect --unclean`` and ``bootstrap``, done."""
    verdict, names = answer.verdict, names_of(answer.view.members)
    name = answer.view.set_key.name
    epoch = verdict.master_epoch
    winner = "nobody" if verdict.winner is None else f"broker {label(verdict.winner, names)}"
    first = f"OK  {winner} is master of {name} in masterEpoch {epoch}"
    follow = f"Next: rollcall explain {name} {epoch}"
    read = f"applied at index {output.number(answer.view.index)}"
    parts = (f"Then: {change_line(verdict, names)}.", candidate_table(verdict, names), follow)
    taken = (str(answer.view.set_key),)
    return Report(document=answer, verdict=first, mood=Mood.GOOD, read=read, parts=parts, names=taken)


def refusal_report(problem: Problem) -> Report:
    """A definite no: the code, both values, the reason of every replica if there is one, the remedy."""
    parts: list[str | Table] = []
    values = (("requested", problem.requested), ("current", problem.current))
    if told := "; ".join(f"{name} {value}" for name, value in values if value is not None):
        parts.append(told)
    if problem.verdict is not None and problem.verdict.candidates:
        parts.append(candidate_table(problem.verdict, problem.names))
    elif problem.names:
        # The reason may have ids without a word before them, and both values are ids.
        parts.append("Brokers: " + labels(sorted(problem.names), problem.names)[1:-1])
    if problem.hint:
        parts.append(f"What to do: {in_words(problem.hint, problem.names)}")
    first = f"REFUSED  {problem.code}: {in_words(problem.detail, problem.names)}"
    return Report(document=problem, verdict=first, mood=Mood.BAD, parts=tuple(parts))


def explanation_report(found: Explanation, now: SetStatus | None = None) -> Report:
    """``explain SET EPOCH``: the decision record, from its own events; ``now``: the set, if no epoch was asked for."""
    row, names = found.row, found.names
    name = found.set_key.name
    origin = "nobody" if row.from_master is None else f"broker {label(row.from_master, names)}"
    way = f"from {origin} to broker {label(row.to_master, names)}"
    first = f"{name} masterEpoch {row.master_epoch}: {row.kind}, {way}: {cause_of(row, names)}"
    parts: list[str | Table] = [
        f"Elected {output.utc(row.elected_at_ms)} by {_caller(found.election)}, event {found.election.ref}."
    ]
    # Asked when a set has no master, the record of its last election alone would say why that one was held.
    if now is not None and now.is_master_missed:
        parts.insert(0, f"NOW  {MASTER_MISSED_WORDS}; rollcall status says for how long.")
    event = found.election.event
    if isinstance(event, MasterElected):
        parts += _election_parts(event, names)
    parts += _phase_parts(found)
    parts += _loss_parts(found.loss)
    if found.invariants:
        rules = Table(columns=output.columns("INVARIANTS"), rows=tuple((line,) for line in found.invariants))
        parts.append(rules)
    parts.append(event_table(found.events, {str(found.set_key): names}))
    return Report(document=found, verdict=first, read=read_line(found.freshness), parts=tuple(parts))


def _caller(record: EventRecord) -> str:
    """With what was shown as proof and from where: this is the page for the one decision that went wrong."""
    caller = record.principal
    if caller is None or not caller.serial:
        return caller_text(record)
    return f"{caller} ({caller.proved_by} {caller.serial}{f', from {caller.address}' if caller.address else ''})"


def _election_parts(event: MasterElected, names: Names) -> list[str | Table]:
    evidence = event.evidence
    rows = tuple(
        (
            names.get(replica.broker_id, ""),
            str(replica.broker_id),
            str(replica.incarnation)[:8],
            str(replica.session_ordinal),
            output.age_ms(replica.heartbeat_age_ms),
            output.yes_no(replica.is_ready),
            output.epoch(replica.last_epoch),
            output.number(replica.max_offset),
            output.number(replica.confirm_offset),
            output.number(replica.released),
        )
        for replica in evidence.replicas
    )
    columns = output.columns(
        "NAME?",
        ">BROKER",
        "INCARNATION",
        ">SESSION",
        ">HEARD",
        "READY",
        ">EPOCH",
        ">MAX OFFSET",
        ">CONFIRM",
        ">RELEASED",
    )
    against = (
        f"Evidence, read at index {output.number(evidence.read_at_index)}, against masterEpoch {evidence.master_epoch} "
        f"and SyncStateSetEpoch {evidence.sync_state_set_epoch}:"
    )
    reason = [f"Reason given: {event.reason}"] if event.reason else []
    return [
        *reason,
        f"Then: {change_line(event.verdict, names)}.",
        against,
        Table(columns=columns, rows=rows, leaving=("INCARNATION", "SESSION", "READY", "RELEASED")),
        candidate_table(event.verdict, names),
    ]


def _phase_parts(found: Explanation) -> list[str | Table]:
    row = found.row
    if not row.phases:
        return []
    spans = spans_of(row)
    after_us = spans.pop(Phase.FIRST_ACK, None)
    rows: list[tuple[str, str]] = [
        (str(phase), output.duration_us(duration_us)) for phase, duration_us in spans.items()
    ]
    if row.unattributed_us:
        rows.append(("unexplained", output.duration_us(row.unattributed_us)))
    if row.total_us is not None:
        rows.append(("outage, timed independently", outage(row)))
    if after_us is not None:
        rows.append(("then, to the first acknowledgement", output.duration_us(after_us)))
    if row.waited_us is not None:
        rows.append(("of this, a sender waited", output.duration_us(row.waited_us)))
    parts: list[str | Table] = [Table(columns=output.columns("PHASE", ">TOOK"), rows=tuple(rows))]
    if Phase.FAULT in row.missing:
        parts.append("The first sign of the fault was not seen: the outage is given by its bounds.")
    if unstamped := [phase for phase in row.missing if phase is not Phase.FAULT]:
        parts.append("No stamp yet: " + ", ".join(unstamped))
    return parts


def _loss_parts(loss: LossVerdict | None) -> list[str | Table]:
    if loss is None:
        return ["Proof: none yet; the new master has not reported that it entered."]
    bound = "" if loss.bound_bytes is None else f", at most {output.size(loss.bound_bytes)} lost"
    cut = (
        ""
        if loss.cut_bytes is None
        else f"; the old master cut {output.size(loss.cut_bytes)} that was never acknowledged"
    )
    lines: list[str | Table] = [f"Proof: {loss.grade}{bound}{cut}"]
    lines += [f"  + {fact}" for fact in loss.facts]
    lines += [f"  - missing: {fact}" for fact in loss.missing]
    return lines
