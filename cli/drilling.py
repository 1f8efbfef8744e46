"""
A rehearsed failover: may it begin, and what has it shown?

Here: the judgement before and the verdict after, pure, and how both look. Not here: the drill itself (``drill``), which
replicas could be elected (``plans``), what a set lacks (``waiting.missing``).

Rule 1: a drill begins only in a set that survives it. All that speaks against it is told, with both figures.
Rule 2: a drill is not passed because nothing bad is known: without an acknowledgement, nothing was felt.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollcall_ha.cli import output
from rollcall_ha.cli.output import Mood, Report, Table
from rollcall_ha.cli.tables import outage, spans_of
from rollcall_ha.cli.waiting import Until, missing
from rollcall_ha.controller.contract.hosts import heirs, master_of, spare_of
from rollcall_ha.controller.contract.ids import ReplicaKind, SetKey
from rollcall_ha.controller.contract.labels import Names, label, labels, names_of, scope_words
from rollcall_ha.controller.contract.settings import Settings
from rollcall_ha.controller.contract.values import Value
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.contract.views import HistoryRow, SetStatus


class Judgement(Value):
    """Whether a drill may begin, by the set as it was before."""

    set_key: SetKey
    is_hard: bool
    """The master's process is stopped; else it hands over."""
    budget: int
    """The failure budget: replicas that may be lost."""
    in_sync: int
    """Members that are alive and no suspects."""
    min_in_sync: int
    failovers: int
    """Those within the window of the brake, by any cause."""
    failovers_allowed: int
    """So many block the set (``flap_failovers``); 0: none do."""
    against: tuple[str, ...]
    """In words; empty: it may begin."""


class FeltGap(Value):
    """One gap, as the probe tells it (docs/probe.md)."""

    from_ms: int
    felt_ms: int
    sends_failed: int
    stalled_ms: int
    is_over: bool
    reason: str


class Felt(Value):
    """The figures of the probe, from before the drill until after it."""

    interval_ms: int
    threshold_ms: int
    sends: int = 0
    acks: int = 0
    failures: int = 0
    stalls: int = 0
    gaps: tuple[FeltGap, ...] = ()


class Shown(Value):
    """The outcome of a drill that was begun."""

    judgement: Judgement
    felt: Felt
    felt_ms: int
    """The longest gap; 0: none was longer than the threshold."""
    whole_after_ms: int | None
    """From the order, or the stop command, until the set was as before; not the way back. None: it never was."""
    budget_after: int | None
    """None: no controller told."""
    reigns: tuple[HistoryRow, ...]
    """Those that began in it, oldest first."""
    failures: tuple[str, ...]
    """Why it is not passed, in words; empty: it is."""


def judge(
    status: SetStatus, rows: Sequence[HistoryRow], settings: Settings, *, is_hard: bool, spends_last: bool, now_ms: int
) -> Judgement:
    """Rule 1, by the set, its last reigns and the settings in force; ``spends_last``: its last budget may be spent."""
    names, least = names_of(status.view.members), status.view.configuration.effective_min_in_sync
    whole = sum(one.is_in_sync and one.is_alive and not one.is_suspect for one in status.replicas)
    window_ms, allowed, budget = settings.flap_window_ms, settings.flap_failovers, status.failure_budget
    failovers = sum(row.kind is ElectionKind.FAILOVER and row.elected_at_ms > now_ms - window_ms for row in rows)
    against = []
    if (lack := missing(status, Until.SERVING)) or master_of(status) is None:
        against.append(lack or "it has no master")
    elif spare_of(status) < 1:
        against.append(
            f"{whole} replicas are in sync and alive; at least {least + 1} are needed, for it takes one away"
        )
    elif is_hard and budget <= 1 and not spends_last:
        # As a maintenance that leaves no budget: another loss meanwhile would stop the set.
        against.append(f"its failure budget is {budget}, and 0 while the master is away; --spend-last accepts that")
    if any(one.kind == ReplicaKind.ROCKETMQ for one in status.replicas):
        # They tell no routes: half a minute later it would be refused because its probe is not served.
        against.append("its brokers are RocketMQ's, whose masters cannot hand over, and whose routes name servers have")
    if not heirs(status):
        against.append("no other replica could be elected")
    if status.pause is not None:
        against.append(f"elections are paused by {status.pause.paused_by}; end that with: rollcall resume")
    # Somebody works there, and expects that nothing else is taken from the set.
    busy = dict.fromkeys(each.maintenance for each in status.replicas if each.maintenance is not None)
    against += [f"{scope_words(one.scope, names)} is in maintenance by {one.begun_by}" for one in busy]
    if status.view.switchover is not None:
        against.append(f"it switches over to broker {label(status.view.switchover.target, names)} already")
    # A block is a pause that a person has to end: the drill would take from the set what it rehearses.
    if is_hard and 0 < allowed <= failovers + 1:
        against.append(
            f"{failovers} failovers within {window_ms} ms; with this one {allowed} block it (flap_failovers)"
        )
    return Judgement(
        set_key=status.view.set_key,
        is_hard=is_hard,
        budget=budget,
        in_sync=whole,
        min_in_sync=least,
        failovers=failovers,
        failovers_allowed=allowed,
        against=tuple(against),
    )


def not_yet(before: SetStatus, now: SetStatus) -> str:
    """In words, why the set is not yet as it was, under a later master; empty: it is."""
    if now.view.master_epoch <= before.view.master_epoch:
        return f"its masterEpoch is {now.view.master_epoch}, as before"
    alive = {one.broker_id for one in now.replicas if one.is_in_sync and one.is_alive}
    away = [one for one in before.view.sync_state_set if one not in alive]
    lack = f"not in sync again: {labels(away, names_of(before.view.members))}" if away else ""
    return missing(now, Until.SERVING) or lack


def failures_of(felt: Felt, *, at_most_ms: int | None, troubles: Sequence[str]) -> tuple[str, ...]:
    """Why the drill is not passed (rule 2); ``troubles``: what its steps have told, empty ones do not count."""
    found, longest_ms = [one for one in troubles if one], longest_ms_of(felt)
    if at_most_ms is not None and longest_ms > at_most_ms:
        found.append(f"a client felt {longest_ms} ms, at most {at_most_ms} ms are allowed")
    if not felt.acks:
        found.append(f"none of {felt.sends} sends was acknowledged, so nothing is known of what clients feel")
    if any(not gap.is_over for gap in felt.gaps):
        found.append("clients were not served when it ended")
    return tuple(found)


def longest_ms_of(felt: Felt) -> int:
    """0: no gap was longer than the threshold."""
    return max((gap.felt_ms for gap in felt.gaps), default=0)


def judgement_report(judged: Judgement) -> Report:
    """Before a drill, and all that ``--dry-run`` says."""
    counted = f"{judged.failovers_allowed} block the set" if judged.failovers_allowed else "no number blocks the set"
    parts = (
        *(f"And: {one}" for one in judged.against[1:]),
        f"Failure budget {judged.budget}: {judged.in_sync} in sync and alive, min_in_sync {judged.min_in_sync}.",
        f"Failovers of late: {judged.failovers}; {counted}.",
    )
    way = "a stop of its master" if judged.is_hard else "a switchover"
    verdict, mood = f"A drill of {judged.set_key} by {way} may begin", Mood.PLAIN
    if judged.against:
        verdict, mood = f"REFUSED  no drill of {judged.set_key}: {judged.against[0]}", Mood.BAD
    return Report(document=judged, verdict=verdict, mood=mood, parts=parts, names=(str(judged.set_key),))


def shown_report(shown: Shown, names: Names) -> Report:
    """The report of a drill that has ended."""
    judged, felt = shown.judgement, shown.felt
    told = f"{shown.felt_ms} ms" if felt.gaps else f"no gap longer than {felt.threshold_ms} ms"
    whole = "is not whole" if shown.whole_after_ms is None else f"was whole after {shown.whole_after_ms / 1000:.1f} s"
    late = f"; it was late itself {felt.stalls} times" if felt.stalls else ""
    parts: list[str | Table] = [
        *(f"Not passed: {one}" for one in shown.failures),
        f"Failure budget: {judged.budget} before, {output.number(shown.budget_after)} after.",
        f"Probe: {felt.sends} sends, one each {felt.interval_ms} ms; {felt.failures} failed{late}.",
    ]
    gaps = tuple(
        (output.utc(g.from_ms), f"{g.felt_ms} ms", f"{g.stalled_ms} ms", str(g.sends_failed), g.reason)
        for g in felt.gaps
    )
    columns = output.columns("GAP SINCE", ">FELT", ">STALLED", ">FAILED", "FIRST FAILURE")
    parts += [Table(columns=columns, rows=gaps)] if gaps else []
    for row in shown.reigns:
        way = " -> ".join("none" if one is None else label(one, names) for one in (row.from_master, row.to_master))
        phases = ((str(phase), output.duration_us(took)) for phase, took in spans_of(row).items() if took is not None)
        head = (("kind", str(row.kind)), ("masters", way), ("outage on record", outage(row)))
        parts.append(Table(columns=output.columns(f"MASTEREPOCH {row.master_epoch}", ">TOOK"), rows=(*head, *phases)))
    word, mood = ("NOT PASSED", Mood.BAD) if shown.failures else ("PASSED", Mood.GOOD)
    verdict = f"{word}  drill of {judged.set_key}: a client felt {told}, and the set {whole}"
    return Report(document=shown, verdict=verdict, mood=mood, parts=tuple(parts), names=(str(judged.set_key),))
