"""
Rows of gold, counted from what happened to the sets of a fleet.

Here: the rows of one fleet, the sums over fleets, percentiles. Not here: the events (``sets``), the lake (``compare``).
Microseconds become milliseconds by rounding down, as all divisions here.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise, product
from typing import Any

from tests.recount import orders
from tests.recount.dictionary import LIMITS
from tests.recount.journal import Event
from tests.recount.lived import GENERATION
from tests.recount.sets import BY_HAND, SPANS, US_PER_MS, FleetStory, Reign, SetStory

MS_PER_DAY = 86_400_000
PPM = 1_000_000
ALL = "*"
EVERY = (ALL, ALL)
GRADES = ("proven", "bounded", "unknown", "refuted")
OF_OUTAGE = SPANS[:-1]
TIMES = ("observed_ms", "available_ms", "stopped_ms", "exposed_ms", "memberless_ms")
JUDGED = {"false_positives": "is_false_positive", "controller_caused": "is_controller_caused", "flaps": "is_flap"}
"""Column of sums -> column of a failover."""

Row = dict[str, Any]
Span = tuple[int, int]
"""Milliseconds since 1970, from and to."""


@dataclass(slots=True)
class Figures:
    """Rows of one fleet, or of several: the tables by their names, and what the totals are made of."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list))
    """Tables whose key has the fleet."""
    sums: dict[str, dict[tuple[Any, ...], Counter[str]]] = field(default_factory=lambda: defaultdict(dict))
    """Tables by cluster: key -> column -> sum."""
    stamps: dict[tuple[str, str], Span] = field(default_factory=dict)
    """Of each fleet and cluster."""
    cases: Counter[str] = field(default_factory=Counter)

    def add(self, table: str, key: tuple[Any, ...], **numbers: int) -> None:
        """Numbers to the row of a key."""
        self.sums[table].setdefault(key, Counter()).update(numbers)

    def join(self, other: Figures) -> None:
        """Add those of other fleets; rows of single fleets are not taken over."""
        for table, rows in other.sums.items():
            for key, numbers in rows.items():
                self.add(table, key, **numbers)
        for owner, (least, greatest) in other.stamps.items():
            before = self.stamps.get(owner, (least, greatest))
            self.stamps[owner] = min(before[0], least), max(before[1], greatest)
        self.cases.update(other.cases)


def _instant(at_ms: int | None) -> dt.datetime | None:
    return None if at_ms is None else dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=at_ms)


def day_of(at_ms: int) -> dt.date:
    """The UTC date of a stamp in ms since 1970."""
    return dt.date(1970, 1, 1) + dt.timedelta(days=at_ms // MS_PER_DAY)


def figures_of(fleet: FleetStory) -> Figures:
    """All that is counted of a fleet."""
    found = Figures(stamps={(fleet.name, cluster): span for cluster, span in fleet.stamps.items()})
    of_fleet = [_restore_hole(fleet, event, known) for event, known in fleet.restores]
    of_fleet += [_break_hole(fleet, event, known) for known, event in fleet.breaks]
    found.rows["holes"] += of_fleet
    for (cluster, name), story in sorted(fleet.sets.items()):
        owner = {"cluster": cluster, "fleet": fleet.name, "broker_set": name}
        failovers = [owner | _failover(one, story, fleet.horizon_ms) for one in story.reigns if one.is_failover]
        found.rows["failovers"] += failovers
        holes = [owner | _hole(*two) for two in pairwise(story.reigns) if _is_hole(*two)]
        found.rows["holes"] += holes
        for row in failovers:
            _count_failover(found, row)
        _count_days(found, owner, story, fleet.horizon_ms, failovers, [*holes, *of_fleet])
        _count_nodes(found, owner, story, fleet.horizon_ms, failovers)
    for cluster, at_ms, body in fleet.held:
        kind = body["kind"] if "master" in body else "none"
        numbers = {"elections": 1, "regretted": int(body["regret"] > 0), "regret_bytes": body["regret"]}
        key = (fleet.name, cluster, day_of(at_ms), body["policy"], kind)
        found.add("elections_daily", key, **numbers, estimated_loss_bytes=body["estimate"])
    found.rows["fleets"].append(_fleet(fleet))
    found.rows["restores"] += [_restore(fleet.name, event) for event, _ in fleet.restores]
    for table, rows in orders.rows_of(fleet).items():
        found.rows[table] += rows
    found.cases.update(_cases(fleet, found))
    return found


def _fleet(fleet: FleetStory) -> Row:
    others = f" and {len(fleet.clusters) - 1} more" if len(fleet.clusters) > 1 else ""
    name = f"{min(fleet.clusters, default='no cluster')}{others} since {day_of(fleet.first_stamped_ms)}"
    return {
        "fleet": fleet.name,
        "name": f"{name} ({fleet.name[:4]})",
        "incarnation": fleet.restores[-1][0].body["fleetIncarnation"] if fleet.restores else fleet.name,
        "restores": len(fleet.restores),
        "first_at": _instant(fleet.first_at_ms),
        "last_at": _instant(fleet.last_at_ms),
        "until_at": _instant(fleet.horizon_ms),
    }


def _restore(origin: str, event: Event) -> Row:
    return {
        "fleet": event.body["fleetIncarnation"],
        "origin": origin,
        "generation": event.place[0] // GENERATION,
        "previous_fleet": event.body["previousFleet"],
        "backup_index": event.body["backupIndex"],
        "restored_at": _instant(event.stamped_ms),
    }


# --- failovers -------------------------------------------------------------------------------------------------------------


def _failover(reign: Reign, story: SetStory, horizon_ms: int) -> Row:
    spans, backward = reign.durations()
    lost_ms, served_ms, its = reign.fault_at_ms, reign.served_at_ms, reign.lost_master
    # A set counts up to its cleaning: of one that is gone nothing is out of service any more.
    ends_ms = [reign.following.at_ms] if reign.following else []
    ends_ms += [one.at_ms for one in story.cleanings[reign.cleaned_before : reign.cleaned_before + 1]]
    is_false = its is not None and its.is_same
    led_ms = its.at_ms - its.led_since_ms if its is not None and its.led_since_ms is not None else None
    led_ms = led_ms if led_ms is not None and led_ms >= 0 else None
    since_ms = None if reign.previous_failover_ms is None else reign.at_ms - reign.previous_failover_ms
    known = {phase: us for phase, us in spans.items() if us is not None and phase in OF_OUTAGE}
    rest_us = (reign.total_us or 0) - sum(known.values())
    # Phases may end within the uncertainty of the total: then they explain all of it.
    rest_us = rest_us if rest_us >= 0 else min(0, rest_us + reign.uncertainty_us)
    late_us = None if None in (reign.route_us, reign.total_us) else (reign.route_us or 0) - (reign.total_us or 0)
    late_ms = None if late_us is None else late_us // US_PER_MS
    wait_us, ack_us = reign.told_wait_us, spans["first-ack"]
    maximum = None
    if reign.total_us is not None and reign.alive_us is not None:
        maximum = reign.total_us + reign.uncertainty_us + max(0, reign.alive_us - (reign.fault_us or 0))
    return {
        "day": day_of(reign.at_ms),
        "master_epoch": reign.epoch,
        "elected_at": _instant(reign.at_ms),
        "kind": reign.kind,
        "cause": reign.cause,
        "found_by": reign.found_by,
        "from_master": reign.from_master,
        "to_master": reign.master,
        **{f"{phase.replace('-', '_')}_us": us for phase, us in spans.items()},
        "total_us": reign.total_us,
        "total_us_max": maximum,
        "waited_us": None if wait_us is None or ack_us is None else min(wait_us, ack_us),
        "unattributed_us": None if reign.total_us is None else rest_us,
        # The first of equal ones: the phases are in order.
        "dominating_phase": max(known, key=lambda phase: known[phase], default=None),
        "missing_phases": sum(us is None for us in spans.values()),
        "backward_stamps": backward,
        "grade": reign.grade,
        "loss_bytes": {"proven": 0, "bounded": reign.bound_bytes, "refuted": reign.bound_bytes}.get(reign.grade or ""),
        "cut_bytes": reign.cut_bytes,
        "regret_bytes": reign.regret,
        "lost_at": _instant(lost_ms),
        "served_at": _instant(served_ms),
        "outage_ms": None
        if _goes_on(reign)
        else max(0, (min(ends_ms, default=horizon_ms) if served_ms is None else served_ms) - lost_ms),
        "is_open": served_ms is None and not ends_ms,
        "heard_again_after_ms": (its.back_at_ms or 0) - its.at_ms if its is not None and is_false else None,
        "is_false_positive": is_false,
        "leader_change_age_ms": led_ms,
        "is_controller_caused": is_false and led_ms is not None and led_ms < LIMITS["LEADER_SHADOW_MS"],
        "since_previous_ms": since_ms,
        "is_flap": since_ms is not None and since_ms < LIMITS["FLAP_WINDOW_MS"],
        "route_late_ms": late_ms,
        "is_route_late": late_ms is not None and late_ms > LIMITS["ROUTE_LATE_MS"],
    }


def _goes_on(reign: Reign) -> bool:
    """Its master never served, and the election after it stamped a fault of before it: one outage, counted there."""
    after = reign.following
    return (
        reign.served_at_ms is None
        and after is not None
        and after.fault_us is not None
        and after.fault_at_ms <= reign.at_ms
    )


def _is_hole(known: Reign, reign: Reign) -> bool:
    # A cleaning begins an epoch itself.
    return reign.previous_epoch > known.epoch and reign.cleaned_before == known.cleaned_before


def _hole(known: Reign, reign: Reign) -> Row:
    epochs = {"known_epoch": known.epoch, "previous_epoch": reign.previous_epoch, "master_epoch": reign.epoch}
    row = epochs | {"what": "elections", "may_hide": "failovers of this set, with their outages and losses"}
    return row | _between(known, reign.place, reign.at_ms)


def _between(known: Reign | Event | None, place: tuple[int, int], to_ms: int) -> Row:
    since = (None, None) if known is None else (_seq(known.place), known.at_ms)
    times = {"from_at": _instant(since[1]), "to_at": _instant(to_ms)}
    return times | {"seq": _seq(place), "from_seq": since[0]}


_NO_EPOCHS = dict.fromkeys(("cluster", "broker_set", "master_epoch", "known_epoch", "previous_epoch"))


def _break_hole(fleet: FleetStory, event: Event, known: Event) -> Row:
    hidden = "anything in any set: events between are missing, or that one was changed"
    row = _NO_EPOCHS | {"fleet": fleet.name, "what": "chain", "may_hide": hidden}
    return row | _between(known, event.place, event.at_ms)


def _restore_hole(fleet: FleetStory, event: Event, known: Event | None) -> Row:
    """Between the last event of the lost controllers and the restore nobody wrote anything down."""
    hidden = "all that brokers did without controllers, and that the lost ones did behind the last event here"
    row = _NO_EPOCHS | {"fleet": fleet.name, "what": "restore", "may_hide": hidden}
    return row | _between(known, event.place, event.stamped_ms)


def _seq(place: tuple[int, int]) -> int:
    return (place[0] << 20) + place[1]


def _hidden_ms(holes: Iterable[Row], day: int, observed_ms: int) -> int:
    """How much of what was observed of a day lies in holes, each moment once."""
    spans = [(_ms(hole["from_at"]), _ms(hole["to_at"])) for hole in holes if hole["from_at"] is not None]
    return min(observed_ms, _by_day(_united(spans))[day])


def _ms(at: dt.datetime) -> int:
    return (at - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)


def _count_failover(found: Figures, row: Row) -> None:
    key = (row["fleet"], row["cluster"], row["day"], row["kind"], row["cause"])
    found.add(
        "failovers_daily",
        key,
        failovers=1,
        open=int(row["is_open"]),
        timed=int(row["total_us"] is not None),
        incomplete=int(row["missing_phases"] > 0),
        backward_stamps=row["backward_stamps"],
        **{name: int(row[flag]) for name, flag in JUDGED.items()},
        **{grade: int(row["grade"] == grade) for grade in GRADES},
        ungraded=int(row["grade"] is None),
        loss_bytes=row["loss_bytes"] or 0,
        cut_bytes=row["cut_bytes"] or 0,
        regretted=int(row["regret_bytes"] > 0),
        regret_bytes=row["regret_bytes"],
        outage_ms=row["outage_ms"] or 0,
        routed=int(row["route_late_ms"] is not None),
        routes_late=int(row["is_route_late"]),
    )
    durations = {phase: row[f"{phase.replace('-', '_')}_us"] for phase in OF_OUTAGE}
    durations |= {name: row[f"{name}_us"] for name in ("total", "waited", "unattributed")}
    durations["outage"] = None if row["outage_ms"] is None else row["outage_ms"] * US_PER_MS
    for phase, us in durations.items():
        if us is not None:
            is_longest = int(phase == row["dominating_phase"])
            found.add("rto_daily", (*key, phase, us // US_PER_MS), failovers=1, dominated=is_longest)
    longest = row["dominating_phase"]
    if longest is not None:
        found.add("dominance_daily", (*key, longest), failovers=1, duration_us=durations[longest])


# --- days of sets ----------------------------------------------------------------------------------------------------------


def _lives(story: SetStory, horizon_ms: int) -> list[Span]:
    """From the first serving master to the cleaning, else to the fleet's last event; once more if the set comes back."""
    served: dict[int, list[int]] = defaultdict(list)
    for reign in story.reigns:
        if reign.served_at_ms is not None:
            served[reign.cleaned_before].append(reign.served_at_ms)
    ends = [*(cleaning.at_ms for cleaning in story.cleanings), horizon_ms]
    found = [(min(at), ends[life]) for life, at in sorted(served.items())]
    return [(begin, end) for begin, end in found if begin < end]


def _tenures(story: SetStory, horizon_ms: int) -> dict[int, Span]:
    """Of each epoch that served: from then on to the loss of its master."""
    found = {}
    for reign in story.reigns:
        if reign.served_at_ms is None:
            continue
        cleaned = story.cleanings[reign.cleaned_before : reign.cleaned_before + 1]
        following = reign.following
        ends = [cleaning.at_ms for cleaning in cleaned]
        if following is not None and following.cleaned_before == reign.cleaned_before:
            ends += [following.fault_at_ms, following.at_ms]
        else:
            # Nobody was elected up to the cleaning: it is lost if it was found gone, and that very process did not come
            # back, or if its next process registered.
            until = cleaned[0].place if cleaned else (1 << 62, 0)
            its = [one for one in story.ends if one.broker == reign.master and reign.place < one.place < until]
            ends += [*(one.gone_at_ms for one in its if not one.is_same), horizon_ms]
        found[reign.epoch] = reign.served_at_ms, min(ends)
    return found


def _exposed(story: SetStory, lives: list[Span], horizon_ms: int, *, is_empty: bool) -> list[Span]:
    """When the SyncStateSet had fewer members than the set needs, or none, while the set was observed."""
    points = [*story.members, (horizon_ms, 0, 0)]
    spans = [
        (at_ms, end)
        for (at_ms, members, needed), (end, _, _) in pairwise(points)
        if members < needed and (members == 0) is is_empty
    ]
    return [(max(begin, least), min(end, most)) for begin, end in spans for least, most in lives]


def _united(spans: Iterable[Span]) -> list[Span]:
    """The same time, each moment once."""
    found: list[Span] = []
    for begin, end in sorted(span for span in spans if span[0] < span[1]):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def _by_day(spans: Iterable[Span]) -> Counter[int]:
    """Number of the day since 1970 -> milliseconds."""
    found: Counter[int] = Counter()
    for begin, end in spans:
        for day in range(begin // MS_PER_DAY, (end - 1) // MS_PER_DAY + 1) if begin < end else ():
            found[day] += min(end, (day + 1) * MS_PER_DAY) - max(begin, day * MS_PER_DAY)
    return found


def _count_days(
    found: Figures, owner: Row, story: SetStory, horizon_ms: int, failovers: list[Row], holes: list[Row]
) -> None:
    lives, tenures = _lives(story, horizon_ms), _tenures(story, horizon_ms)
    stops = [
        (max(stop.began_at_ms, tenures[stop.epoch][0]), min(_end(stop.ended_at_ms, horizon_ms), tenures[stop.epoch][1]))
        for stop in story.stops
        if stop.epoch in tenures
    ]
    short = (_exposed(story, lives, horizon_ms, is_empty=is_empty) for is_empty in (False, True))
    spans = (lives, _united(tenures.values()), stops, *short)
    times = dict(zip(TIMES, map(_by_day, spans), strict=True))
    begins, ends = ([at_ms // MS_PER_DAY for at_ms in of] for of in ([b for b, _ in lives], [e for _, e in lives]))
    # Back on the day of its cleaning: it has neither ended nor begun.
    begun = {day for number, day in enumerate(begins) if not number or ends[number - 1] != day}
    ended = {day for number, day in enumerate(ends[: len(story.cleanings)]) if begins[number + 1 : number + 2] != [day]}
    elected = defaultdict(list)
    for row in failovers:
        elected[(row["day"] - dt.date(1970, 1, 1)).days].append(row)
    rows, quiet = [], 0
    for day in sorted({*elected, *(day for of_days in times.values() for day in of_days)}):
        row = {name: of_days[day] for name, of_days in times.items()}
        row["available_ms"] = max(0, min(row["available_ms"], row["observed_ms"]) - row["stopped_ms"])
        row["hidden_ms"] = _hidden_ms(holes, day, row["observed_ms"])
        row |= {"begun": int(day in begun), "ended": int(day in ended), "failovers": len(elected[day])}
        trouble = sum(row[name] for name in (*TIMES[2:], "begun", "ended", "failovers"))
        date = dt.date(1970, 1, 1) + dt.timedelta(days=day)
        if trouble or row["available_ms"] < row["observed_ms"] or 0 < row["observed_ms"] < MS_PER_DAY:
            rows.append(row | owner | {"day": date} | _rest_of_day(row, elected[day]))
            _count_set_day(found, owner, date, rows[-1])
        elif row["observed_ms"]:
            quiet += 1
            _count_set_day(found, owner, date, row | {"outage_ms": 0})
            found.add("quiet_daily", (owner["cluster"], date, owner["fleet"]), sets=1)
    found.rows["sets_daily"] += rows
    _count_set(found, owner, rows, quiet)


def _end(ended_at_ms: int | None, horizon_ms: int) -> int:
    return horizon_ms if ended_at_ms is None else ended_at_ms


OF_DAYS = (*TIMES, "outage_ms", "failovers", "hidden_ms")


def _count_set_day(found: Figures, owner: Row, date: dt.date, row: Row) -> None:
    numbers = {name: row[name] for name in OF_DAYS}
    found.rows["set_days"].append(owner | {"day": date} | numbers)
    found.add("months", (*owner.values(), date.replace(day=1)), **numbers)


def _months(found: Figures) -> Iterator[Row]:
    for (cluster, fleet, broker_set, month), numbers in found.sums["months"].items():
        budget_ms = numbers["observed_ms"] * (PPM - LIMITS["SLO_PPM"]) // PPM
        yield {
            "cluster": cluster,
            "fleet": fleet,
            "broker_set": broker_set,
            "month": month,
            **{name: numbers[name] for name in OF_DAYS},
            "availability_ppm": _divided(numbers["available_ms"] * PPM, numbers["observed_ms"]),
            "budget_ms": budget_ms,
            "budget_left_ms": budget_ms - numbers["outage_ms"],
        }


def _rest_of_day(row: Row, failovers: list[Row]) -> Row:
    is_below = row["available_ms"] * PPM < row["observed_ms"] * LIMITS["SLA_PPM"]
    counts = {name: sum(one[flag] for one in failovers) for name, flag in JUDGED.items()}
    return counts | {"outage_ms": row["observed_ms"] - row["available_ms"], "below_sla": int(is_below)}


def _count_set(found: Figures, owner: Row, rows: list[Row], quiet: int) -> None:
    """The row of the whole time, and what the set gives to its cluster."""
    if not rows:
        return
    names = (*TIMES, "outage_ms", "failovers", *JUDGED, "below_sla")
    whole: Counter[str] = Counter({name: sum(row[name] for row in rows) for name in names})
    for name in ("observed_ms", "available_ms"):
        whole[name] += quiet * MS_PER_DAY
    below = whole.pop("below_sla")
    found.rows["sets"].append(
        {name: whole[name] for name in names if name != "below_sla"}
        | owner
        | {
            "days_below_sla": below,
            "availability_ppm": _divided(whole["available_ms"] * PPM, whole["observed_ms"]),
            "mtbf_ms": _divided(whole["available_ms"], whole["failovers"]),
        }
    )
    times = {name: whole[name] for name in ("observed_ms", "available_ms", "outage_ms", "stopped_ms", "exposed_ms")}
    is_there = int(any(row["begun"] for row in rows))
    found.add("clusters", (owner["fleet"], owner["cluster"]), **times, set_days_below_sla=below, sets=is_there)


def _divided(whole: int, part: int) -> int | None:
    return whole // part if part > 0 else None


# --- replicas ----------------------------------------------------------------------------------------------------------------


def _count_nodes(found: Figures, owner: Row, story: SetStory, horizon_ms: int, failovers: list[Row]) -> None:
    days: dict[tuple[int, dt.date], Counter[str]] = defaultdict(Counter)
    for silence in story.silences:
        is_goodbye = silence.cause == "goodbye"
        days[silence.broker, day_of(silence.at_ms)].update(
            faults=int(not is_goodbye),
            goodbyes=int(is_goodbye),
            timeouts=int(silence.cause == "timeout"),
            false_alarms=int(not is_goodbye and silence.is_same),
        )
        for day, gone_ms in _by_day([(silence.at_ms, _end(silence.back_at_ms, horizon_ms))]).items():
            days[silence.broker, day_of(day * MS_PER_DAY)].update(gone_ms=gone_ms)
    for row in failovers:
        if row["from_master"] is not None:
            days[row["from_master"], row["day"]].update(masters_lost=1)
    names = ("faults", "goodbyes", "timeouts", "false_alarms", "masters_lost", "gone_ms")
    whole: dict[int, Counter[str]] = defaultdict(Counter)
    for (broker, date), numbers in sorted(days.items()):
        found.rows["nodes_daily"].append(owner | {"broker_id": broker, "day": date} | {n: numbers[n] for n in names})
        whole[broker].update(numbers)
    last = found.rows["sets"][-1] if found.rows["sets"] else {}
    is_own = last.get("broker_set") == owner["broker_set"] and last.get("cluster") == owner["cluster"]
    observed_ms = last["observed_ms"] if is_own else 0
    for broker, numbers in whole.items():
        mtbf_ms = _divided(max(0, observed_ms - numbers["gone_ms"]), numbers["faults"])
        row = owner | {"broker_id": broker, "observed_ms": observed_ms, "mtbf_ms": mtbf_ms}
        found.rows["nodes"].append(row | {name: numbers[name] for name in names})


# --- what probes felt --------------------------------------------------------------------------------------------------------


def felt_of(gaps: Iterable[Mapping[str, Any]], fleets: Iterable[FleetStory]) -> Iterator[Row]:
    """Each gap beside the outages of each fleet that knows its set; one that nobody knows by itself."""
    known = [(fleet.name, fleet.sets) for fleet in fleets]
    for gap in gaps:
        met = {name: _met(gap, sets[gap["cluster"], gap["setName"]]) for name, sets in known
               if (gap["cluster"], gap["setName"]) in sets}  # fmt: skip
        for name, outages in ({name: found for name, found in met.items() if found} or {"": []}).items():
            lengths = [us for _, us in outages if us is not None]
            recorded_ms = sum(lengths) // US_PER_MS if lengths else None
            yield {
                "cluster": gap["cluster"],
                "broker_set": gap["setName"],
                "day": day_of(gap["fromMs"]),
                "from_at": _instant(gap["fromMs"]),
                "felt_ms": gap["feltMs"],
                "stalled_ms": gap["stalledMs"],
                "sends_failed": gap["sendsFailed"],
                "is_over": gap["isOver"],
                "reason": gap["reason"],
                "fleet": name,
                "outages": len(outages),
                "kind": min((kind for kind, _ in outages), default=None),
                "recorded_ms": recorded_ms,
                "difference_ms": None if recorded_ms is None else gap["feltMs"] - recorded_ms,
            }


def _met(gap: Mapping[str, Any], story: SetStory) -> list[tuple[str, int | None]]:
    """Kind and microseconds of the outages that the gap meets, give or take a second."""
    from_ms, to_ms = gap["fromMs"] - 1_000, gap["fromMs"] + gap["feltMs"] + 1_000
    before = {reign.following.epoch: reign for reign in story.reigns if reign.following is not None}
    found: list[tuple[str, int | None, int, int | None]] = []
    for reign in story.reigns:
        is_stamped = reign.epoch in before and reign.fault_us is not None
        begun_ms = reign.at_ms - (reign.fault_us or 0) // US_PER_MS if is_stamped else reign.at_ms
        over_ms = reign.served_at_ms
        if over_ms is None and reign.following is not None:
            over_ms = reign.following.at_ms
        found.append((reign.kind, reign.total_us, begun_ms, over_ms))
    # One that an election ended is a part of that reign.
    stops = (stop for stop in story.stops if stop.ended_by != "master-elected")
    found += (("writes-stopped", stop.stopped_us, stop.began_at_ms, stop.ended_at_ms) for stop in stops)
    return [
        (kind, us)
        for kind, us, begun_ms, over_ms in found
        if begun_ms <= to_ms and (over_ms is None or over_ms >= from_ms)
    ]


# --- the whole lake ------------------------------------------------------------------------------------------------------------


def totals(found: Figures) -> dict[str, list[Row]]:
    """What is made of the sums of all fleets."""
    return {"rto": list(_rto(found)), "clusters": list(_clusters(found)), "sets_monthly": list(_months(found))}


def _rto(found: Figures) -> Iterator[Row]:
    times: dict[tuple[str, ...], list[int]] = defaultdict(list)
    dominated: Counter[tuple[str, ...]] = Counter()
    for (fleet, cluster, _, *by, phase, ms), numbers in found.sums["rto_daily"].items():
        for key in _groups(fleet, cluster, by, phase):
            times[key] += [ms] * numbers["failovers"]
    for (fleet, cluster, _, *by, phase), numbers in found.sums["dominance_daily"].items():
        for key in _groups(fleet, cluster, by, phase):
            dominated[key] += numbers["failovers"]
    for key, values in times.items():
        values.sort()
        yield {
            **dict(zip(("fleet", "cluster", "kind", "cause", "phase"), key, strict=True)),
            "failovers": len(values),
            # Nearest rank: the smallest one that so many percent of all do not exceed.
            **{f"p{percent}_ms": values[-(-percent * len(values) // 100) - 1] for percent in (50, 90, 95, 99)},
            "max_ms": values[-1],
            "dominated": dominated[key],
        }


def _groups(fleet: str, cluster: str, by: Iterable[str], phase: str) -> Iterator[tuple[str, ...]]:
    """The rows of ``rto`` in which a failover of this kind and cause counts."""
    for owner in ((fleet, cluster), EVERY):
        yield from ((*owner, *of, phase) for of in product(*((word, ALL) for word in by)))


OF_CLUSTERS = (
    *("failovers", "open", *JUDGED, "incomplete", "backward_stamps", *GRADES, "ungraded", "loss_bytes", "cut_bytes"),
    *("regretted", "regret_bytes", "routed", "routes_late"),
)
"""Columns of ``clusters`` that are sums of ``failovers_daily``."""
OF_SETS = ("sets", "observed_ms", "available_ms", "outage_ms", "stopped_ms", "exposed_ms", "set_days_below_sla")


def _clusters(found: Figures) -> Iterator[Row]:
    whole: dict[tuple[str, str], Counter[str]] = {
        owner: Counter() for owner in (*found.stamps, *([EVERY] if found.stamps else []))
    }
    for (fleet, cluster, *_), numbers in found.sums["failovers_daily"].items():
        for owner in ((fleet, cluster), EVERY):
            whole[owner].update({column: numbers[column] for column in OF_CLUSTERS})
    for (fleet, cluster), numbers in found.sums["clusters"].items():
        for owner in ((fleet, cluster), EVERY):
            whole[owner].update(numbers)
    every = list(found.stamps.values())
    for owner, numbers in whole.items():
        least, greatest = found.stamps.get(owner) or (min(one for one, _ in every), max(one for _, one in every))
        yield {
            **dict(zip(("fleet", "cluster"), owner, strict=True)),
            "first_day": day_of(least),
            "last_day": day_of(greatest),
            **{column: numbers[column] for column in (*OF_CLUSTERS, *OF_SETS)},
            "availability_ppm": _divided(numbers["available_ms"] * PPM, numbers["observed_ms"]),
        }


# --- cases -----------------------------------------------------------------------------------------------------------------------


def _cases(fleet: FleetStory, found: Figures) -> Mapping[str, int]:
    """How often there was what a wrong definition would get wrong."""
    reigns = [reign for story in fleet.sets.values() for reign in story.reigns]
    stops = [stop for story in fleet.sets.values() for stop in story.stops]
    observed = [_lives(story, fleet.horizon_ms) for story in fleet.sets.values()]
    return {
        "events": fleet.events,
        "changes of controllers during an outage": sum(_is_changed(reign, fleet) for reign in reigns),
        "elections by hand": sum(reign.kind in BY_HAND for reign in reigns),
        "sets that never recovered": sum(_is_lost(story, fleet.horizon_ms) for story in fleet.sets.values()),
        "sets deleted and made again": sum(len(lives) > 1 for lives in observed),
        "idle days of sets": sum(numbers["sets"] for numbers in found.sums["quiet_daily"].values()),
        "holes": len(found.rows["holes"]),
        "broken chains": len(fleet.breaks),
        "stamps that fall": fleet.falling_stamps,
        "stops of writes without election": sum(stop.ended_by != "master-elected" for stop in stops),
        "late routes": sum(row["is_route_late"] for row in found.rows["failovers"]),
        "false alarms": sum(row["is_false_positive"] for row in found.rows["failovers"]),
        "exposures": sum(row["exposed_ms"] > 0 for row in found.rows["sets"]),
    }


def _is_changed(reign: Reign, fleet: FleetStory) -> bool:
    """Another controller took the lead between the loss and the service of the next master."""
    since = reign.trigger.place if reign.trigger is not None else reign.place
    until = reign.served_place or (reign.following.place if reign.following else (1 << 62, 0))
    return reign.is_failover and any(since < place < until for place in fleet.changes)


def _is_lost(story: SetStory, horizon_ms: int) -> bool:
    """The set is out of service at the end, and was not taken away."""
    lives, tenures = _lives(story, horizon_ms), list(_tenures(story, horizon_ms).values())
    return bool(lives) and lives[-1][1] == horizon_ms and (not tenures or tenures[-1][1] < horizon_ms)
