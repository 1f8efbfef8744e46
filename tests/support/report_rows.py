"""
A report of an invented fleet: rows as Spark would hand them over.

Here: one story with everything in it, seeded. Not here: what pictures must show of it (tests of ``analytics.report``).
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Mapping
from typing import Any

from rollcall_ha.analytics.checks.what_if import WHAT_IF
from rollcall_ha.analytics.lake.tables import LakeTable
from rollcall_ha.analytics.report import contents, questions
from rollcall_ha.analytics.report.contents import Contents

CAUSES = {"dead-at-once": (90, 0.4), "timeout": (3_150, 0.08), "goodbye": (60, 0.3), "replaced": (400, 0.6)}
"""Cause -> median of its RTO in ms, and how far it spreads."""

PHASES = ("detected", "proposed", "committed", "notified", "promised", "role-applied", "serving")
MS_PER_DAY = 86_400_000
BEGIN_MS = 1_767_225_600_000


def instant(at_ms: int) -> dt.datetime:
    """Milliseconds since 1970 as a table has them."""
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=at_ms)


def row(table: LakeTable, **given: Any) -> dict[str, Any]:
    """A row of ``table``: what is not given is 0, False, empty or, where it may be, unknown."""
    blank: dict[str, Any] = {
        "bigint": 0,
        "int": 0,
        "string": "",
        "boolean": False,
        "date": dt.date(2026, 1, 1),
        "timestamp": instant(0),
        "array<int>": [],
    }
    unknown = set(given) - set(table.column_names)
    assert not unknown, f"{table.name} has no column {unknown}"
    return {column.name: given.get(column.name, blank[column.kind]) for column in table.columns}


def failover(epoch: int, cause: str, spans_ms: tuple[float | None, ...], **given: Any) -> dict[str, Any]:
    """A row of ``report.failovers`` with these seven phases; 3 % of the RTO are not explained."""
    known = [span for span in spans_ms if span is not None]
    columns = {
        f"{name.replace('-', '_')}_us": None if span is None else round(span * 1000)
        for name, span in zip(PHASES, spans_ms, strict=True)
    }
    total_us = round(sum(known) * 1030)
    rest = {
        "cluster": "demo",
        "broker_set": "broker-a",
        "fleet": "f1",
        "master_epoch": epoch,
        "elected_at": instant(BEGIN_MS + epoch * 7_000_000),
        "kind": "failover",
        "cause": cause,
        "from_master": 1,
        "to_master": 3,
        "total_us": total_us,
        "unattributed_us": total_us - round(sum(known) * 1000),
        "dominating_phase": "detected",
        "grade": "proven",
        "shown_as": "newest",
    }
    return row(contents.FAILOVERS, **{**rest, **columns, **given})


def story(*, days: int = 120, sets: int = 50, seed: int = 7) -> Contents:
    """Everything that a report can show, of a fleet of this age and size."""
    draw = random.Random(seed)
    rows: dict[str, list[dict[str, Any]]] = {
        contents.FAILOVERS.name: [
            failover(9, "dead-at-once", (5.9, 8, 14, 2, 22, 6, 0.1), shown_as="typical, newest"),
            failover(8, "timeout", (3010, 4, 15, 2, 30, 5, 0.2), shown_as="typical"),
            failover(7, "timeout", (3050, 4, 15, 2, None, None, None), grade=None, broker_set="orders-7"),
            failover(6, "goodbye", (0.1, 3, 9, 2, 18, 4, 0.1), shown_as="typical", to_master=2),
            failover(5, "replaced", (1, 340, 12, 2, 28, 7, 0.1), broker_set="a-set-with-a-very-long-name-indeed"),
        ],
        WHAT_IF.name: [
            row(
                WHAT_IF, preset="fast", timeout_ms=1_000, real_preset="normal", real_timeout_ms=3_000,
                real_scan_ms=250, earliest_us=3_010_000,
                failovers=1_119, same=700, faster=402, unknown=17, p50_ms=128, p95_ms=3_450, p99_ms=3_660,
                other_p50_ms=126, other_p95_ms=1_380, other_p99_ms=1_610,
                availability_ppm=999_912, other_availability_ppm=999_951,
            ),
            row(
                WHAT_IF, preset="safe", timeout_ms=10_000, real_preset="normal", real_timeout_ms=3_000,
                real_scan_ms=250, earliest_us=3_010_000,
                failovers=1_119, same=700, slower=320, avoided=82, unknown=17, p50_ms=128, p95_ms=3_450, p99_ms=3_660,
                other_p50_ms=129, other_p95_ms=10_470, other_p99_ms=10_980,
                availability_ppm=999_912, other_availability_ppm=999_730,
            ),
        ],
        contents.QUALITY.name: [
            row(contents.QUALITY, name=name, count=count)
            for name, count in {
                "lines": 1_204_332, "blank": 2, "shared": 1, "pieces": 1_204_331, "events": 401_440,
                "copies": 802_880, "rejected:truncated": 9, "rejected:hole": 2, "orphans": 1,
                "negative_intervals": 4, "backward_stamps": 3, "incomplete": 61, "open": 0,
            }.items()
        ],
    }  # fmt: skip
    where = "file:///srv/journals/controller-1/events/00000017.jsonl"
    rows[contents.REJECTED.name] = [row(contents.REJECTED, source_file=where, name="rejected:truncated", count=9)]
    rows |= _durations(draw) | _answers()
    rows |= _days(draw, days, sets)
    rows |= _service(draw, days, sets)
    return Contents(rows=rows, lake="/srv/lake", lake_version=12, made_at_ms=BEGIN_MS + days * MS_PER_DAY)


def _service(draw: random.Random, days: int, sets: int) -> dict[str, list[dict[str, Any]]]:
    """Periods, incidents and budgets of two fleets."""
    first = dt.date(2026, 1, 1)
    told = [first + dt.timedelta(days=n) for n in range(days)]
    months = sorted({day.replace(day=1) for day in told}, reverse=True)[: contents.MONTHS_MAX]
    weeks = sorted({day - dt.timedelta(days=day.weekday()) for day in told}, reverse=True)[: contents.WEEKS_MAX]
    spans = [("all", dt.date(1970, 1, 1)), *(("month", day) for day in months), *(("week", day) for day in weeks)]
    periods = [
        row(
            contents.PERIODS, fleet=fleet, unit=unit, from_day=day, first_day=max(first, day), last_day=told[-1],
            observed_ms=sets * 30 * MS_PER_DAY, outage_ms=90_000 * n, exposed_ms=400_000, availability_ppm=999_900 - n,
            failovers=n, false_positives=n // 3, proven=n, timed=n, p50_ms=80 if n else None, p99_ms=3_300 if n else None,
            max_ms=3_400 if n else None, sets=sets if unit == "month" else None, missed=n % 2 if unit == "month" else None,
        )
        for fleet in ("*", "f1", "f2")
        for unit, day in spans
        for n in (240 if unit == "all" else draw.choice((0, 1, 7, 240)),)
    ]  # fmt: skip
    kinds = ["failover", "failover", "unclean", "handover", "writes-stopped", "nobody-elected"]
    incidents = [
        row(
            questions.INCIDENTS, cluster=f"cluster-{n % 2}", fleet=f"f{n % 2 + 1}", broker_set=f"broker-{n:03d}",
            master_epoch=n, kind=kinds[n % 6], cause="dead-at-once" if n % 6 < 2 else None, ended_at=None,
            began_at=instant(BEGIN_MS + n * days * MS_PER_DAY // 40), outage_ms=900_000 // (n + 1),
            total_us=900_000_000 // (n + 1), total_us_max=None if n % 5 == 4 else 900_000_000 // (n + 1) * (1 + n % 2),
            grade=("proven", None)[n % 2], loss_bytes=0, is_open=n == 5, open_incidents=1,
        )
        for n in range(40)
    ]  # fmt: skip
    budgets = [
        row(
            contents.BUDGETS, cluster=f"cluster-{n % 2}", fleet=f"f{n % 2 + 1}", broker_set=f"broker-{n:03d}", month=month,
            observed_ms=30 * MS_PER_DAY, available_ms=30 * MS_PER_DAY - 2_000_000 // (n + 1),
            outage_ms=2_000_000 // (n + 1), availability_ppm=999_000 + n, budget_ms=1_296_000,
            budget_left_ms=1_296_000 - 2_000_000 // (n + 1), failovers=n,
        )
        for month in months
        for n in range(min(sets, 20))
    ]  # fmt: skip
    return {
        contents.PERIODS.name: periods,
        questions.INCIDENTS.name: incidents,
        contents.BUDGETS.name: budgets,
    }


def _answers() -> dict[str, list[dict[str, Any]]]:
    """Of every question; percentiles of many failovers and of a few."""
    phases = {"detected": 800, "promised": 90, "committed": 7}
    bounds = [("*", 1_119, 3_660, 4_000), ("timeout", 500, 3_700, 4_100), ("replaced", 12, 1_480, None)]
    return {
        questions.UNKNOWNS.name: [
            row(questions.UNKNOWNS, name=name, count=n * n, ms=90_000 if name in ("bounded", "untold") else None)
            for n, name in enumerate(questions.UNKNOWN_WORDS)
        ],
        questions.REPLICA_COSTS.name: [
            row(
                questions.REPLICA_COSTS, cluster="cluster-1", fleet="f1", broker_set="broker-001", broker_id=n,
                failovers=40 // n, needless=n, outage_ms=3_000_000 // n, reigned_ms=90_000_000,
                outage_ms_per_hour=None if n == 3 else 120_000 // n,
            )
            for n in (1, 2, 3)
        ],
        questions.LONGEST_PHASES.name: [
            row(
                questions.LONGEST_PHASES, cause=cause, phase=phase, failovers=many, of_failovers=sum(phases.values()),
                mean_ms=many,
            )
            for cause in CAUSES
            for phase, many in phases.items()
        ],
        questions.NEEDLESS.name: [
            row(
                questions.NEEDLESS, cause=cause, failovers=many, needless=21, controller_caused=3, not_proven=1,
                outage_ms=64_000, heard_again_ms=4_100,
            )
            for cause, many in (("*", 1_119), ("timeout", 500))
        ],
        questions.CONTROLLER_CHANGES.name: [
            row(
                questions.CONTROLLER_CHANGES, fleet=fleet, changes=4, failovers=9, needless=3, needless_ms=9_600,
                longer_ms=2_400, ms_per_change=3_000,
            )
            for fleet in ("*", "f1")
        ],
        questions.RTO_BOUNDS.name: [
            row(
                questions.RTO_BOUNDS, cause=cause, percent=percent, failovers=many, duration_ms=ms * percent // 99,
                least_ms=ms * percent // 110, most_ms=None if percent == 99 and most is None else ms * percent // 90,
            )
            for cause, many, ms, most in bounds
            for percent in (50, 99)
        ],
        questions.PLANNED.name: [
            row(questions.PLANNED, kind=kind, elections=many, timed=many, p50_ms=41, max_ms=310, outage_ms=many * 45)
            for kind, many in (("handover", 310), ("requested", 12))
        ],
    }  # fmt: skip


def _durations(draw: random.Random) -> dict[str, list[dict[str, Any]]]:
    bins: list[dict[str, Any]] = []
    rto: list[dict[str, Any]] = []
    grades: list[dict[str, Any]] = []
    everything: list[float] = []
    for cause, (median_ms, spread) in CAUSES.items():
        values = sorted(median_ms * math.exp(draw.gauss(0, spread)) for _ in range(draw.randrange(200, 2_000)))
        everything += values
        counts: dict[int, int] = {}
        for value in values:
            number = math.floor(math.log10(max(1, value)) * 10)
            counts[number] = counts.get(number, 0) + 1
        bins += [row(contents.RTO_HISTOGRAM, cause=cause, bin=n, failovers=m) for n, m in sorted(counts.items())]
        rto.append(_percentiles(cause, "total", values))
        left = len(values)
        parts = {name: draw.randrange(0, max(1, left // 12)) for name in ("bounded", "unknown", "ungraded")}
        parts["refuted"] = 3 if cause == "timeout" else 0
        grades.append(
            row(
                contents.GRADES, cause=cause, failovers=left, proven=left - sum(parts.values()), **parts,
                loss_bytes=parts["bounded"] * 70_000, cut_bytes=left * 30_000,
            )
        )  # fmt: skip
    everything.sort()
    rto.append(_percentiles("*", "total", everything))
    for number, phase in enumerate(PHASES):
        share = (0.5, 0.06, 0.12, 0.02, 0.1, 0.05, 0.15)[number]
        rto.append(_percentiles("*", phase, [value * share for value in everything]))
    return {contents.RTO_HISTOGRAM.name: bins, contents.RTO.name: rto, contents.GRADES.name: grades}


def _percentiles(cause: str, phase: str, ordered: list[float]) -> dict[str, Any]:
    at = {f"p{p}_ms": int(ordered[math.ceil(len(ordered) * p / 100) - 1]) for p in (50, 90, 95, 99)}
    return row(
        contents.RTO, cluster="*", cause=cause, phase=phase, failovers=len(ordered), max_ms=int(ordered[-1]), **at,
        dominated=len(ordered) // 2 if phase == "detected" else 0,
    )  # fmt: skip


def _days(draw: random.Random, days: int, sets: int) -> dict[str, list[dict[str, Any]]]:
    first = dt.date(2026, 1, 1)
    bucket = math.ceil(days / contents.HEAT_MAP_COLUMNS_MAX)
    calendar = {n: {"exposed_ms": 0, "outage_ms": 0, "failovers": 0} for n in range(days)}
    worst = []
    heat: list[dict[str, Any]] = []
    for rank in range(1, min(sets, contents.HEAT_MAP_SETS_MAX) + 1):
        name = {"cluster": f"cluster-{rank % 3}", "fleet": "f1", "broker_set": f"broker-{rank:03d}"}
        sums: dict[int, dict[str, int]] = {}
        for day in range(days):
            faults = draw.randrange(0, 3) if draw.random() < 3 / (rank + 2) else 0
            found = {
                "outage_ms": sum(draw.choice((95, 3_200, 3_400, 60_000)) for _ in range(faults)),
                "exposed_ms": sum(round(draw.expovariate(1 / 200_000)) for _ in range(faults)),
                "failovers": faults,
            }
            for column, value in found.items():
                calendar[day][column] += value
                part = sums.setdefault(day // bucket * bucket, {"outage_ms": 0, "exposed_ms": 0, "failovers": 0})
                part[column] += value
        heat += [
            row(contents.HEAT_MAP, rank=rank, **name, from_day=first + dt.timedelta(days=day), days=bucket, **part)
            for day, part in sums.items()
        ]
        whole = {
            column: sum(part[column] for part in sums.values()) for column in ("outage_ms", "exposed_ms", "failovers")
        }
        observed = days * MS_PER_DAY
        worst.append(
            row(
                contents.WORST_SETS, **name, **whole, observed_ms=observed, available_ms=observed - whole["outage_ms"],
                flaps=whole["failovers"] // 7,
                availability_ppm=(observed - whole["outage_ms"]) * 1_000_000 // observed, mtbf_ms=MS_PER_DAY,
            )
        )  # fmt: skip
    worst.sort(key=lambda one: -one["outage_ms"])
    return {
        contents.HEAT_MAP.name: heat,
        contents.WORST_SETS.name: worst[:12],
        contents.CALENDAR.name: [
            row(contents.CALENDAR, day=first + dt.timedelta(days=day), sets=sets, **sums) for day, sums in calendar.items()
        ],
        contents.WORST_NODES.name: [
            row(
                contents.WORST_NODES, cluster="cluster-1", fleet="f1", broker_set="broker-001", broker_id=n, faults=90 - n,
                timeouts=40, false_alarms=n, goodbyes=2, masters_lost=30, gone_ms=8_000_000, mtbf_ms=110_000_000 * n,
            )
            for n in (1, 2, 3)
        ],
        contents.ORDERS.name: [
            row(
                contents.ORDERS, fleet="f1", seq=n, cluster="cluster-1", broker_set="broker-001", kind=kind, refused=refused,
                ordered_by="admin:alice", proved_by="certificate", ordered_at=instant(1_767_312_000_000), reason="a new disk",
            )
            for n, kind, refused in ((2, "command-refused", "elect"), (1, "master-elected", None))
        ],
        contents.AS_OF.name: [row(contents.AS_OF, fleets=2, until_at=instant(BEGIN_MS), sets=sets, exposed=1)],
        contents.REPORTS.name: [
            row(contents.REPORTS, kind="milestone-reached", brokers=9, events=4_000, last_at=instant(1_767_312_000_000))
        ],
        contents.CLUSTERS.name: [
            _cluster(fleet, name, calendar.values(), days, sets)
            for fleet, name in (("*", "*"), ("f1", "cluster-0"), ("f1", "cluster-1"), ("f2", "cluster-0"))
        ],
    }  # fmt: skip


def _cluster(fleet: str, name: str, calendar: Any, days: int, sets: int) -> dict[str, Any]:
    found: list[Mapping[str, int]] = list(calendar)
    whole = {column: sum(day[column] for day in found) for column in ("outage_ms", "exposed_ms", "failovers")}
    observed = days * sets * MS_PER_DAY
    return row(
        contents.CLUSTERS, fleet=fleet, cluster=name, name=f"{fleet} since 2026-01-01", first_day=dt.date(2026, 1, 1),
        last_day=dt.date(2026, 1, 1) + dt.timedelta(days=days - 1), sets=sets, **whole, proven=max(0, whole["failovers"] - 9),
        unknown=4, bounded=5, false_positives=21, controller_caused=3, flaps=44, regretted=12, regret_bytes=9_400_000,
        routed=400, routes_late=7, observed_ms=observed, available_ms=observed - whole["outage_ms"],
        availability_ppm=(observed - whole["outage_ms"]) * 1_000_000 // observed,
    )  # fmt: skip
