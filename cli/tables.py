"""
Answers that are lists: status, sets, controllers, history, as reports.

Here: pure functions from values of ``controller.contract.views`` to ``Report``. Not here: decisions told one by one
(``decisions``), events (``records``), fetching (``reads``), alignment and formats (``output``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from rollcall_ha.cli import output
from rollcall_ha.cli.output import Column, Mood, Report, Table
from rollcall_ha.cli.watching import Change
from rollcall_ha.controller.contract.ids import BrokerId, SetKey
from rollcall_ha.controller.contract.labels import Names, in_words, label, labels, names_of, scope_words, word
from rollcall_ha.controller.contract.problems import (
    MASTER_MISSED_WORDS,
    ProblemCode,
    lead_unstable_words,
    lost_entries_words,
    own_network_words,
    words_of,
)
from rollcall_ha.controller.contract.replies import Condition, SwitchoverRow
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.values import ElectionPause, Frozen, Maintenance, Phase, SwitchoverEnd
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.contract.views import (
    CatchUp,
    CertificateStatus,
    ControllerStatus,
    FleetStatus,
    Freshness,
    HistoryPage,
    HistoryRow,
    ReplicaStatus,
    SetPage,
    SetStatus,
    StopEnd,
    WriteStop,
)
from rollcall_ha.node.certified import WARNING_DAYS

DAY_MS = 86_400_000


class ControllerRow(Frozen):
    """One controller of a survey; ``status`` None: it did not answer."""

    address: str
    status: ControllerStatus | None
    trouble: str = ""

    @property
    def name(self) -> str:
        """Its name, or its address."""
        return str(self.status.name) if self.status else self.address

    @property
    def role(self) -> str:
        """Its role as it tells it; a leader without a majority says so."""
        if self.status is None:
            return "unreachable"
        role = str(self.status.role)
        return f"{role} (no majority)" if role == "leader" and not self.status.has_authority else role


def read_line(freshness: Freshness) -> str:
    """``read at index 4,207 from c2, 0.2 s old``."""
    age = output.age_ms(freshness.age_ms)
    return f"read at index {output.number(freshness.index)} from {freshness.read_from}, {age} old"


# --- status ----------------------------------------------------------------------------------------------------------


class Judgement(NamedTuple):
    """The verdict line; ``is_degraded`` is the answer of ``status --check``."""

    verdict: str
    mood: Mood
    is_degraded: bool


MAINTENANCES_SHOWN = 5
REFUSED_SHOWN = 5
NEWS_SHOWN = 5


def _problems(status: SetStatus) -> str:
    return "; ".join(map(words_of, status.problems))


def judge(fleet: FleetStatus, controllers: Sequence[ControllerRow]) -> Judgement:
    """The worst finding: no leader, then no master, little redundancy, a controller away."""
    # First: without a leader everything below is of the past, and "OK, 9 replicas in sync" may be an hour old.
    if not fleet.freshness.is_authoritative or fleet.freshness.is_stale:
        name, age = fleet.freshness.read_from, output.age_ms(fleet.freshness.age_ms)
        leader = fleet.controller.leader
        # Its link to the leader is down.
        is_elsewhere = leader is not None and leader not in {row.name for row in controllers if row.status is not None}
        finding = f"{name} says that {leader} leads, which did not answer" if is_elsewhere else "no controller leads"
        reason = f"{finding}; this is what {name} knew {age} ago. Brokers keep serving without controllers"
        return Judgement(f"STALE  {reason}", Mood.BAD, is_degraded=True)
    # A cleaned set is a tombstone that keeps its epochs: counted, the fleet would be DOWN for ever after.
    sets = [status for status in fleet.sets if status.view.condition is not Condition.CLEANED]
    down = [status for status in sets if status.view.condition is not Condition.SERVING or _is_left(status)]
    if down:
        first = down[0]
        is_serving = first.view.condition is Condition.SERVING
        told = in_words(first.view.condition_reason, names_of(first.view.members)) or str(first.view.condition)
        reason = _problems(first) if is_serving else told
        if first.is_master_missed:
            reason += f"; {MASTER_MISSED_WORDS}"
        verdict = f"DOWN  {first.view.set_key.name} does not serve: {reason}{_more(down)}"
        return Judgement(verdict, Mood.BAD, is_degraded=True)
    weak = [status for status in sets if status.problems]
    if weak:
        verdict = f"DEGRADED  {weak[0].view.set_key.name}: {_problems(weak[0])}{_more(weak)}"
        return Judgement(verdict, Mood.WARNING, is_degraded=True)
    for row in controllers:
        if row.status is not None and row.status.differing:
            names = ", ".join(row.status.differing)
            reason = f"{row.name} and {names} have made different states of the same entries; see their logs"
            return Judgement(f"DEGRADED  {reason}", Mood.BAD, is_degraded=True)
    away = [row.name for row in controllers if row.status is None]
    if away:
        return Judgement(f"DEGRADED  controller unreachable: {', '.join(away)}", Mood.WARNING, is_degraded=True)
    ending = certificates_ending(controllers)
    if ending:
        return Judgement(
            f"DEGRADED  {ending[0]}{_and_more(len(ending) - 1, 'certificate')}", Mood.WARNING, is_degraded=True
        )
    if not sets:
        return Judgement("EMPTY  no broker set is registered", Mood.WARNING, is_degraded=False)
    in_sync = sum(len(status.view.sync_state_set) for status in sets)
    counted = _count(len(sets), "broker set")
    return Judgement(f"OK  {counted}, {_count(in_sync, 'replica')} in sync", Mood.GOOD, is_degraded=False)


def certificates_ending(controllers: Sequence[ControllerRow]) -> list[str]:
    """A line for each certificate that has expired or is about to, and for each file that is refused; soonest first."""
    ending: dict[str, CertificateStatus] = {}
    complaints: list[str] = []
    for row in controllers:
        if row.status is None:
            continue
        for one in row.status.certificates:
            if one.expires_in_ms < WARNING_DAYS * DAY_MS:
                ending[one.serial] = one
        if row.status.certificate_complaint:
            complaints.append(f"{row.name} goes on with its old certificate: {row.status.certificate_complaint}")
    soonest = sorted(ending.values(), key=lambda one: (one.expires_at_ms, one.name))
    return [_ending(one) for one in soonest] + complaints


def _ending(one: CertificateStatus) -> str:
    name = one.name.rpartition("/")[2]
    when = f"expires in {one.expires_in_ms / DAY_MS:.1f} days" if one.expires_in_ms > 0 else "has expired"
    return f"certificate of {name} {when} ({output.utc(one.expires_at_ms)}); renew it: rollcall certs renew {name}"


def _and_more(count: int, what: str) -> str:
    return f" (and {_count(count, what)} more)" if count > 0 else ""


def _is_left(status: SetStatus) -> bool:
    """Whether the master on record has fenced or isolated itself, though replicated state calls the set served."""
    return ProblemCode.MASTER_NOT_SERVING in status.problems


def _others(names: Sequence[str]) -> str:
    return f" and {len(names) - 5} more" if len(names) > 5 else ""


def _more(sets: Sequence[SetStatus]) -> str:
    return f" (and {len(sets) - 1} more sets)" if len(sets) > 1 else ""


def status_report(
    fleet: FleetStatus,
    controllers: Sequence[ControllerRow],
    *,
    is_wide: bool = False,
    change: Change | None = None,
) -> Report:
    """The whole fleet on one page; ``change``: since the page before, of one that is watched."""
    judgement = judge(fleet, controllers)
    parts: list[str | Table] = [_controllers_line(controllers)]
    if fleet.sets:
        parts.append(_replica_table(fleet.sets, is_wide=is_wide, written=change.written if change else {}))
        parts.extend(_footers(fleet.sets))
    if change is not None and change.news:
        parts.append(f"IN THE LAST {change.seconds:.1f} s  {'; '.join(change.news[:NEWS_SHOWN])}")
    if fleet.controller.clock_step_ms is not None:
        parts.append(
            f"WARNING  the controllers' clock stepped by {fleet.controller.clock_step_ms / 1000:+,.1f} s, to "
            f"{output.utc(fleet.controller.clock_stepped_at_ms)}: times of events before and after do not compare; "
            "look at the time service of each controller."
        )
    told = [row.status for row in controllers if row.status is not None] or [fleet.controller]
    if unstable := lead_unstable_words(told):
        parts.append(f"WARNING  {unstable}.")
    if own_network := own_network_words(fleet.controller.missed, fleet.sets_total):
        parts.append(f"WARNING  {own_network}.")
    if fleet.controller.lost_entries:
        parts.append(f"WARNING  {fleet.controller.name}: {lost_entries_words(fleet.controller.lost_entries)}.")
    if fleet.controller.fleet_level < fleet.controller.feature_level:
        parts.append(
            f"Feature level {_level(fleet.controller)}: when every controller is upgraded, raise it with: "
            "rollcall raise-level."
        )
    parts.extend(f"WARNING  {line}" for line in _lines_of_refused_controllers(told))
    parts.extend(f"WARNING  {line}" for line in certificates_ending(controllers))
    if any(row.status is not None and row.status.is_insecure for row in controllers):
        parts.append("INSECURE  ports are plain and believe whoever connects: fleet.insecure in the fleet file.")
    return Report(
        document=fleet,
        verdict=judgement.verdict,
        mood=judgement.mood,
        read=read_line(fleet.freshness),
        parts=tuple(parts),
        names=tuple(str(status.view.set_key) for status in fleet.sets),
    )


def _controllers_line(controllers: Sequence[ControllerRow]) -> str:
    answered = [row.status for row in controllers if row.status is not None]
    who = "   ".join(f"{row.name} {row.role}" for row in controllers)
    if not answered:
        return f"CONTROLLERS  {who}"
    applied = "/".join(output.number(row.status.applied_index) if row.status else "?" for row in controllers)
    committed = output.number(max(status.commit_index for status in answered))
    term = max(status.term for status in answered)
    return f"CONTROLLERS  {who}        term {term}   committed {committed}   applied {applied}"


def _replica_table(
    sets: Iterable[SetStatus], *, is_wide: bool, written: Mapping[tuple[SetKey, BrokerId], float]
) -> Table:
    columns = output.columns(
        "SET",
        "NAME?",
        ">BROKER",
        "ADDRESS",
        "ROLE",
        "STATE",
        ">EPOCH",
        ">MAX OFFSET",
        ">CONFIRM?",
        ">LAG?",
        "IN SYNC",
        ">SEEN",
        ">PRIO",
        "ZONE?",
        "HA ADDRESS?",
        ">SPEED?",
        ">CAUGHT UP IN?",
        ">BEGINS AT?",
        ">WRITTEN?",
    )
    rows = [
        (
            *_replica_row(status, replica, names, is_wide=is_wide),
            _written(written.get((status.view.set_key, replica.broker_id))),
        )
        for status in sets
        for names in (names_of(status.view.members),)
        for replica in status.replicas
    ]
    # The speed of writes last: it is what a page is watched for.
    leaving: tuple[str, ...] = (
        "HA ADDRESS",
        "PRIO",
        "ZONE",
        "CONFIRM",
        "BEGINS AT",
        "SPEED",
        "SEEN",
        "MAX OFFSET",
        "CAUGHT UP IN",
    )
    leaving += ("EPOCH", "LAG", "ADDRESS", "WRITTEN")
    return Table(columns=columns, rows=tuple(rows), leaving=leaving)


def _replica_row(status: SetStatus, replica: ReplicaStatus, names: Names, *, is_wide: bool) -> tuple[str, ...]:
    lag = output.NOT_APPLICABLE if replica.is_master else output.size(replica.lag_bytes)
    return (
        str(status.view.set_key) if is_wide else str(status.view.set_key.name),
        names.get(replica.broker_id, ""),
        str(replica.broker_id),
        replica.address,
        _role(replica),
        _state(status, replica),
        output.epoch(replica.last_epoch),
        output.number(replica.max_offset),
        output.number(replica.confirm_offset) if is_wide else "",
        lag,
        "suspect" if replica.is_suspect else output.yes_no(replica.is_in_sync),
        output.age_ms(replica.seen_age_ms),
        str(replica.priority),
        replica.zone,
        replica.ha_address if is_wide else "",
        *_catch_up_cells(replica.catch_up),
        output.number(replica.min_offset) if replica.min_offset else "",
    )


def _written(bytes_per_s: float | None) -> str:
    """Growth of the log in the last seconds, of a page that is watched."""
    if bytes_per_s is None:
        return ""
    speed = output.size(round(bytes_per_s))
    return output.Figure(f"{speed}/s", speed.raw)


def _catch_up_cells(catch_up: CatchUp | None) -> tuple[str, str]:
    """Bytes per second, and seconds that are left; empty where nothing is caught up with."""
    if catch_up is None:
        return "", ""
    # Not heard for long enough: half a second is not the speed of a copy.
    if catch_up.bytes_per_s is None:
        return output.number(None), output.number(None)
    speed, left = output.size(catch_up.bytes_per_s), catch_up.left_s
    end = "no nearer" if left is None else output.duration_us(left * 1_000_000)
    return output.Figure(f"{speed}/s", speed.raw), output.Figure(end, "" if left is None else left)


def _role(replica: ReplicaStatus) -> str:
    if replica.is_master:
        return "master"
    return "learner" if replica.is_learner else "slave"


def _state(status: SetStatus, replica: ReplicaStatus) -> str:
    """The replica's state, in the words of the glossary; ``gone`` once it counts as dead."""
    if replica.maintenance is not None and not replica.is_master:
        return "maintenance"
    if not replica.is_alive:
        return "gone"
    if replica.state is None:
        return output.UNKNOWN
    if replica.state is BrokerState.MASTER:
        words = {Condition.SERVING: "serving", Condition.WRITES_STOPPED: "no writes"}
        return words.get(status.view.condition, "entering")
    return "following" if replica.state is BrokerState.SLAVE else str(replica.state)


def _pause_line(pause: ElectionPause) -> str:
    whose = "the fleet" if pause.set_key is None else pause.set_key.name
    told = f" ({pause.reason})" if pause.reason else ""
    of_set = "--fleet" if pause.set_key is None else pause.set_key.name
    return (
        f"Elections of {whose} are paused by {pause.paused_by} until {output.utc(pause.expires_at_ms)}{told}; "
        f"end it with: rollcall resume {of_set}"
    )


def _maintenance_line(one: Maintenance, names: Names) -> str:
    told, scope = f" ({one.reason})" if one.reason else "", one.scope
    what = scope.host or f"{scope.set_key}:{word(scope.broker_id or 0, names)}"
    return (
        f"{scope_words(scope, names)} is in maintenance by {one.begun_by} until {output.utc(one.expires_at_ms)}{told}; "
        f"end it with: rollcall maintenance end {what}"
    )


def _footers(sets: Iterable[SetStatus]) -> list[str]:
    cleaned = [str(status.view.set_key) for status in sets if status.view.condition is Condition.CLEANED]
    sets = [status for status in sets if status.view.condition is not Condition.CLEANED]
    budgets = [f"{status.view.set_key.name} {_budget(status.failure_budget)}" for status in sets] or ["no set"]
    shown = "; ".join(budgets[:5]) + (f"; {len(budgets) - 5} more sets" if len(budgets) > 5 else "")
    lines = [f"Failure budget: {shown}."]
    lines += [f"{status.view.set_key.name}: {_problems(status)}." for status in sets if status.problems]
    lines += [line for status in sets for line in _lines_of_refused(status)]
    lines += [line for status in sets if (line := _remedy_of_gone(status))]
    pauses = {status.pause.set_key: status.pause for status in sets if status.pause is not None}
    lines += [_pause_line(pause) for pause in pauses.values()]
    worked_on = {
        one.maintenance.scope: (one.maintenance, names_of(status.view.members))
        for status in sets
        for one in status.replicas
        if one.maintenance
    }
    lines += [_maintenance_line(one, names) for one, names in list(worked_on.values())[:MAINTENANCES_SHOWN]]
    if len(worked_on) > MAINTENANCES_SHOWN:
        lines.append(f"{len(worked_on) - MAINTENANCES_SHOWN} more maintenances: rollcall maintenance list")
    if cleaned:
        lines.append(f"Cleaned, of which only epochs and ids are kept: {', '.join(cleaned[:5])}{_others(cleaned)}.")
    return lines


def _lines_of_refused(status: SetStatus) -> Iterator[str]:
    names = names_of(status.view.members)
    for one in status.refused[:REFUSED_SHOWN]:
        who = f"a process at {one.host}" if one.broker_id is None else f"broker {label(one.broker_id, names)}"
        age = output.age_ms(one.age_ms)
        yield f"{status.view.set_key.name}: {who} runs and is refused, {age} ago: {one}; {one.hint}."


def _lines_of_refused_controllers(told: Iterable[ControllerStatus]) -> Iterator[str]:
    for by in told:
        for one in by.refused[:REFUSED_SHOWN]:
            yield f"{by.name} refuses {one.who} as a controller, {output.age_ms(one.age_ms)} ago: {one}; {one.hint}."


def _remedy_of_gone(status: SetStatus) -> str:
    """The remedy for replicas that are gone. One that was wiped came back under a new id; its old id never does."""
    # Started again, one that runs and is refused is refused again.
    gone = [
        one for one in status.replicas if not (one.is_alive or one.maintenance is not None or status.refusal_of(one))
    ]
    if not gone:
        return ""
    heard = [f" (heard {output.age_ms(one.seen_age_ms)} ago)" if one.seen_age_ms is not None else "" for one in gone]
    names = names_of(status.view.members)
    told = [f"{label(one.broker_id, names)}{ago}" for one, ago in zip(gone, heard, strict=True)]
    noun = f"broker {told[0]} is" if len(gone) == 1 else f"brokers {', '.join(told)} are"
    order = " ".join(f"--broker {word(one.broker_id, names)}" for one in gone)
    return (
        f"{status.view.set_key.name}: {noun} gone. Start it again; an id that never comes back, as that of a wiped "
        f"disk, is forgotten with: rollcall clean {status.view.set_key} {order}"
    )


def _budget(count: int) -> str:
    return f"{count} more without loss" if count else "0"


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


# --- sets, controllers -----------------------------------------------------------------------------------------------


def sets_report(page: SetPage) -> Report:
    """One line per broker set."""
    columns = output.columns(
        "SET", "CONDITION", "MASTER", ">EPOCH", "IN SYNC", ">SET EPOCH", "MODE", ">MIN", ">BUDGET", "LAST ELECTION"
    )
    rows = []
    for status in page.sets:
        view, names = status.view, names_of(status.view.members)
        rows.append(
            (
                str(view.set_key),
                str(view.condition),
                broker_cell(view.master, names),
                output.number(view.master_epoch),
                output.Figure(
                    f"{labels(view.sync_state_set, names)} of {view.configuration.expected_replicas}",
                    f"{output.id_set(view.sync_state_set)} of {view.configuration.expected_replicas}",
                ),
                output.number(view.sync_state_set_epoch),
                str(view.configuration.ack_mode),
                str(view.configuration.effective_min_in_sync),
                str(status.failure_budget),
                "none" if status.last_election_ms is None else output.utc(status.last_election_ms),
            )
        )
    leaving = ("SET EPOCH", "MODE", "MIN", "BUDGET", "LAST ELECTION")
    table = Table(columns=columns, rows=tuple(rows), leaving=leaving, cut="IN SYNC")
    verdict = _count(page.sets_total, "broker set")
    keys = tuple(str(status.view.set_key) for status in page.sets)
    lines = (line for status in page.sets for line in _lines_of_refused(status))
    return Report(document=page, verdict=verdict, read=read_line(page.freshness), parts=(table, *lines), names=keys)


def broker_cell(broker_id: BrokerId | None, names: Names) -> str:
    """Its label, for programs its id; ``none``."""
    return "none" if broker_id is None else output.Figure(label(broker_id, names), broker_id)


def _level(status: ControllerStatus) -> str:
    """The level in force, and the program's own where that is another one: then it can be raised."""
    level, own = status.fleet_level, status.feature_level
    return str(level) if level == own else f"{level} of {own}"


def controllers_report(rows: Sequence[ControllerRow]) -> Report:
    """One line per controller, as each tells of itself."""
    columns = output.columns(
        "CONTROLLER", "ROLE", ">TERM", ">COMMITTED", ">APPLIED", "REST", "BROKER PORT", "RAFT", ">LEVEL", "TROUBLE?"
    )
    lines = []
    for row in rows:
        status = row.status
        if status is None:
            blank = (output.UNKNOWN,) * 3
            lines.append((row.name, row.role, *blank, row.address, "", "", "", row.trouble))
            continue
        numbers = (str(status.term), output.number(status.commit_index), output.number(status.applied_index))
        addresses = (status.rest_address, status.broker_address, status.raft_address)
        lines.append((row.name, row.role, *numbers, *addresses, _level(status), ""))
    leaders = [row.name for row in rows if row.status is not None and row.status.has_authority]
    verdict = f"OK  {leaders[0]} leads with authority" if leaders else "NO LEADER  no controller leads with authority"
    document = [{"address": row.address, "status": row.status, "trouble": row.trouble or None} for row in rows]
    mood = Mood.GOOD if leaders else Mood.BAD
    leaving = ("LEVEL", "RAFT", "BROKER PORT", "APPLIED", "COMMITTED")
    table = Table(columns=columns, rows=tuple(lines), leaving=leaving)
    return Report(document=document, verdict=verdict, mood=mood, parts=(table,), names=tuple(row.name for row in rows))


# --- history ---------------------------------------------------------------------------------------------------------

PHASE_GROUPS: Mapping[str, tuple[Phase, ...]] = {
    "DETECT": (Phase.DETECTED,),
    "DECIDE": (Phase.PROPOSED, Phase.COMMITTED),
    "ENTER": (Phase.NOTIFIED, Phase.PROMISED, Phase.TRUNCATED, Phase.ROLE_APPLIED),
    "SERVE": (Phase.SERVING,),
}
"""The phases that each column of the history sums up to TOTAL. ``explain`` shows them one by one."""


def history_report(page: HistoryPage) -> Report:
    """One line per reign, newest first."""
    groups = (f">{title}?" for title in PHASE_GROUPS)
    columns = output.columns(
        ">EPOCH",
        "WHEN",
        "KIND",
        "CAUSE",
        "FROM->TO",
        *groups,
        ">UNEXPLAINED?",
        ">TOTAL",
        ">FIRST ACK?",
        ">WAITED?",
        ">LOST",
        ">CUT?",
        "PROOF",
        "BY",
    )
    lines = [(row.elected_at_ms, _history_row(row, page.names)) for row in page.rows]
    lines += [(stop.began_at_ms, _stop_row(stop, columns, page.names)) for stop in page.stops]
    # One that is done is the reign that it made.
    undone = [row for row in page.switchovers if row.end is not SwitchoverEnd.DONE]
    lines += [(row.ordered_at_ms, _switchover_row(row, columns, page.names)) for row in undone]
    # Sorted by their beginnings alone, a reign and a stop of the same millisecond keep their order.
    rows = tuple(row for _, row in sorted(lines, key=lambda line: -line[0]))
    leaving = (
        "UNEXPLAINED",
        "BY",
        "FIRST ACK",
        *reversed(list(PHASE_GROUPS)),
        "CUT",
        "PROOF",
        "WAITED",
        "KIND",
        "LOST",
    )
    table = Table(columns=columns, rows=rows, leaving=leaving, cut="CAUSE")
    footers: list[str | Table] = []
    if page.next_before is not None:
        footers.append(f"Older ones: rollcall history {page.set_key.name} --before {page.next_before}")
    if page.rows:
        footers.append(f"Why: rollcall explain {page.set_key.name} {page.rows[0].master_epoch}")
    verdict = f"{page.set_key.name}  {_count(len(page.rows), 'reign')}"
    return Report(
        document=page,
        verdict=verdict,
        read=read_line(page.freshness),
        parts=(table, *footers),
        names=tuple(str(row.master_epoch) for row in page.rows),
    )


def _history_row(row: HistoryRow, names: Names) -> tuple[str, ...]:
    spans = spans_of(row)
    return (
        str(row.master_epoch),
        output.utc(row.elected_at_ms),
        str(row.kind),
        cause_of(row, names),
        _way(row.from_master, row.to_master, names),
        *(_group(spans, phases) for phases in PHASE_GROUPS.values()),
        output.NOT_APPLICABLE if not row.unattributed_us else output.duration_us(row.unattributed_us),
        outage(row),
        _group(spans, (Phase.FIRST_ACK,)),
        output.NOT_APPLICABLE if row.waited_us is None else output.duration_us(row.waited_us),
        output.UNKNOWN if row.loss_bytes is None else output.size(row.loss_bytes),
        output.NOT_APPLICABLE if row.cut_bytes is None else output.size(row.cut_bytes),
        output.NOT_APPLICABLE if row.grade is None else str(row.grade),
        row.requested_by,
    )


_ORDERED = (ElectionKind.REQUESTED, ElectionKind.UNCLEAN, ElectionKind.BOOTSTRAP, ElectionKind.SWITCHOVER)


def cause_of(row: HistoryRow, names: Names) -> str:
    """Why there was a change of reign, with names in our own reasons; an order's is a person's and stays."""
    return row.cause if row.kind in _ORDERED else in_words(row.cause, names)


def _way(origin: BrokerId | None, to: BrokerId, names: Names) -> str:
    """From master to master; for programs ``1->2``. Two labels would leave no room for what it cost."""
    first, raw = ("none", "none") if origin is None else (word(origin, names), str(origin))
    return output.Figure(f"{first}->{word(to, names)}", f"{raw}->{to}")


def spans_of(row: HistoryRow) -> dict[Phase, int | None]:
    """Each phase with its duration; None = not known."""
    spans = {span.phase: span.duration_us for span in row.phases}
    # No sign of the fault but its detection: "DETECT 0.0 ms" would say that it was noticed at once.
    if Phase.FAULT in row.missing and not spans.get(Phase.DETECTED, 1):
        spans[Phase.DETECTED] = None
    return spans


def outage(row: HistoryRow) -> str:
    """The total; ``1.2 s to 4.3 s`` or ``over 1.2 s`` where only bounds of its beginning are known."""
    if row.total_us is None:
        return output.NOT_APPLICABLE
    low = output.duration_us(row.total_us)
    if row.total_us_max is None:
        return output.Figure(f"over {low}", f">{low.raw}")
    high = output.duration_us(row.total_us_max)
    return low if row.total_us_max == row.total_us else output.Figure(f"{low} to {high}", f"{low.raw}..{high.raw}")


STOP_ENDS = {
    None: "goes on, no reign changed",
    StopEnd.RESUMED: "no reign changed",
    StopEnd.ELECTION: "ended by the next election",
    StopEnd.CLEANED: "ended by a clean",
}


def _stop_row(stop: WriteStop, columns: Iterable[Column], names: Names) -> tuple[str, ...]:
    """A stop of writes, between the reigns: it has no phases and no loss."""
    cells = {
        "EPOCH": str(stop.master_epoch),
        "WHEN": output.utc(stop.began_at_ms),
        "KIND": "writes-stopped",
        "CAUSE": f"{stop.reason}: {stop.detail}" if stop.detail else str(stop.reason),
        "FROM->TO": output.Figure(word(stop.broker_id, names), stop.broker_id),
        "TOTAL": output.NOT_APPLICABLE if stop.stopped_us is None else output.duration_us(stop.stopped_us),
        "PROOF": STOP_ENDS.get(stop.end, str(stop.end)),
        "BY": output.Figure(f"broker:{label(stop.broker_id, names)}", f"broker:{stop.broker_id}"),
    }
    return tuple(cells.get(column.title, output.NOT_APPLICABLE) for column in columns)


def _switchover_row(row: SwitchoverRow, columns: Iterable[Column], names: Names) -> tuple[str, ...]:
    """An order to switch over that did not come to its end, or has not yet."""
    cells = {
        "EPOCH": str(row.from_epoch),
        "WHEN": output.utc(row.ordered_at_ms),
        "KIND": "switchover",
        "CAUSE": in_words(row.reason, names) or "goes on",
        "FROM->TO": _way(row.from_master, row.to_master, names),
        "TOTAL": output.NOT_APPLICABLE if row.took_ms is None else output.duration_us(row.took_ms * 1_000),
        "PROOF": "goes on" if row.end is None else f"not done: {row.end}",
        "BY": row.requested_by,
    }
    return tuple(cells.get(column.title, output.NOT_APPLICABLE) for column in columns)


def _group(spans: Mapping[Phase, int | None], phases: Iterable[Phase]) -> str:
    stamped = [spans[phase] for phase in phases if spans.get(phase) is not None]
    return output.duration_us(sum(value or 0 for value in stamped)) if stamped else output.NOT_APPLICABLE
