"""What a manager asks first: periods, incidents and budgets, asked by DuckDB of rows by hand, and who sees which."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="jinja2 is not installed: the analytics extra is optional")

from rollcall_ha.analytics.gold.tables import (
    GOLD_COUNTED_UNTIL,
    GOLD_FAILOVERS,
    GOLD_FAILOVERS_DAILY,
    GOLD_QUIET_DAILY,
    GOLD_RTO_DAILY,
    GOLD_SETS_DAILY,
    GOLD_SETS_MONTHLY,
)
from rollcall_ha.analytics.report import contents, service
from rollcall_ha.analytics.report.questions import INCIDENTS
from rollcall_ha.analytics.silver.tables import (
    SILVER_BROKER_SETS,
    SILVER_CLEANINGS,
    SILVER_PHASES,
    SILVER_SILENCES,
    SILVER_STOPS,
    SILVER_SYNC_STATE_SETS,
    SILVER_TENURES,
)
from tests.support.report_rows import instant, row
from tests.unit.test_report_questions import HOUR_MS, SET, asked, failover

DAY_MS = 86_400_000


def test_every_time_without_service_is_an_incident_once() -> None:
    """
    Failovers, planned changes, stops of writes, and the loss that no election answered: it was in no table of failovers.

    A stop that an election ended is in that election's outage; a master that came back as it was is no loss.
    """
    sets = {1: "a", 2: "gone", 3: "back", 4: "cleaned"}
    named = [row(SILVER_BROKER_SETS, set_id=n, fleet="f", cluster="c", broker_set=name) for n, name in sets.items()]
    reign = {"set_id": 1, "cause": "", "grade": None, "loss_bytes": None}
    stop = {"set_id": 1, "master_epoch": 6, "reason": "disk-full", "began_at": instant(HOUR_MS)}
    tenure = {"cluster": "c", "fleet": "f", "elected_seq": 10, "ended_at": None, "broker_id": 1, "master_epoch": 2}
    silence = {"broker_id": 1, "found_at": instant(2 * HOUR_MS), "fault_age_us": 5_000_000, "is_same_incarnation": None}
    answer = asked(
        INCIDENTS,
        (GOLD_COUNTED_UNTIL, [row(GOLD_COUNTED_UNTIL, fleet="f", until_at=instant(5 * HOUR_MS))]),
        (SILVER_BROKER_SETS, named),
        (GOLD_FAILOVERS, [
            failover(kind="failover", master_epoch=5, lost_at=instant(0)),
            failover(master_epoch=4, outage_ms=None),
            failover(kind="failover", master_epoch=7, outage_ms=60_000, is_open=True, served_at=None),
        ]),
        (SILVER_PHASES, [
            row(SILVER_PHASES, **reign, kind="handover", master_epoch=8, total_us=41_900),
            row(SILVER_PHASES, **reign, kind="failover", master_epoch=5, total_us=3_000_000),
            row(SILVER_PHASES, **reign, kind="requested", master_epoch=9, total_us=None),
        ]),
        (SILVER_STOPS, [
            row(SILVER_STOPS, **stop, seq=1, ended_seq=2, ended_by="writes-resumed", stopped_us=7_000_900),
            row(SILVER_STOPS, **stop, seq=3, ended_seq=4, ended_by="master-elected"),
            row(SILVER_STOPS, **stop, seq=5, ended_seq=None, ended_by=None, ended_at=None, stopped_us=None),
        ]),
        (SILVER_TENURES, [row(SILVER_TENURES, **tenure, set_id=n, broker_set=sets[n]) for n in (2, 3, 4)]),
        (SILVER_SILENCES, [
            row(SILVER_SILENCES, **silence, set_id=2, seq=11),
            row(SILVER_SILENCES, **silence | {"found_at": instant(3 * HOUR_MS)}, set_id=2, seq=12),
            row(SILVER_SILENCES, **silence | {"is_same_incarnation": True}, set_id=3, seq=11),
            row(SILVER_SILENCES, **silence, set_id=3, seq=9),
            row(SILVER_SILENCES, **silence, set_id=4, seq=11),
        ]),
        (SILVER_CLEANINGS, [row(SILVER_CLEANINGS, set_id=4, seq=13, cleaned_at=instant(3 * HOUR_MS))]),
    )  # fmt: skip
    told = [(one["broker_set"], one["kind"], one["master_epoch"], one["outage_ms"], one["is_open"]) for one in answer]

    assert told == [
        ("a", "writes-stopped", 6, 4 * HOUR_MS, True),
        ("gone", "nobody-elected", 2, 3 * HOUR_MS + 5_000, True),
        ("a", "failover", 7, 60_000, True),
        ("cleaned", "nobody-elected", 2, HOUR_MS + 5_000, False),
        ("a", "writes-stopped", 6, 7_000, False),
        ("a", "failover", 5, 3_000, False),
        ("a", "handover", 8, 41, False),
    ]
    assert {one["open_incidents"] for one in answer} == {3}


def test_each_month_keeps_its_longest_incidents() -> None:
    """Ten of each fleet and month: a bad month does not push a good one out of the page."""
    failovers = [
        failover(fleet=fleet, master_epoch=n, lost_at=instant(day * DAY_MS), outage_ms=1_000 * (n + 1) * (day + 1))
        for fleet in ("f", "g")
        for day in (0, 30, 31)  # 1 January, 31 January, 1 February 1970
        for n in range(12)
    ]
    answer = asked(INCIDENTS, (GOLD_FAILOVERS, failovers))

    assert len(answer) == 2 * 2 * 10
    assert min(one["outage_ms"] for one in answer if one["began_at"] == instant(31 * DAY_MS)) == 3 * 32_000
    assert {one["began_at"] for one in answer} == {instant(30 * DAY_MS), instant(31 * DAY_MS)}


def days() -> dict[str, list[dict[str, Any]]]:
    """Two fleets from 29 January to 2 February 2026, one failover each day of ``f``."""
    told = [dt.date(2026, 1, 29) + dt.timedelta(days=n) for n in range(5)]
    times = {"observed_ms": DAY_MS, "available_ms": DAY_MS - 1_000, "outage_ms": 1_000, "exposed_ms": 9_000}
    return {
        "sets": [row(GOLD_SETS_DAILY, fleet="f", day=day, **times) for day in told],
        "quiet": [row(GOLD_QUIET_DAILY, fleet="g", day=day, sets=1) for day in told],
        "failed": [row(GOLD_FAILOVERS_DAILY, fleet="f", day=day, failovers=1, proven=1) for day in told],
        "lasted": [
            row(GOLD_RTO_DAILY, fleet="f", day=day, phase=phase, duration_ms=100 * day.day, failovers=1)
            for day in told
            for phase in ("total", "detected")
        ],
        "months": [
            row(GOLD_SETS_MONTHLY, fleet=fleet, month=dt.date(2026, month, 1), budget_left_ms=left)
            for fleet, left in (("f", -1), ("g", 5))
            for month in (1, 2)
        ],
    }


def test_periods_are_months_weeks_and_all_of_each_fleet_and_of_all() -> None:
    """A week begins on Monday, in whichever month; a percentile of all is none of the fleets' means."""
    found = days()
    answer = asked(
        contents.PERIODS, (GOLD_SETS_DAILY, found["sets"]), (GOLD_QUIET_DAILY, found["quiet"]),
        (GOLD_FAILOVERS_DAILY, found["failed"]), (GOLD_RTO_DAILY, found["lasted"]), (GOLD_SETS_MONTHLY, found["months"]),
    )  # fmt: skip
    by_key = {(one["fleet"], one["unit"], one["from_day"]): one for one in answer}
    whole = by_key["*", "all", dt.date(1970, 1, 1)]
    january = by_key["f", "month", dt.date(2026, 1, 1)]

    assert {key[1:] for key in by_key if key[0] == "g"} == {
        ("all", dt.date(1970, 1, 1)),
        ("month", dt.date(2026, 1, 1)),
        ("month", dt.date(2026, 2, 1)),
        ("week", dt.date(2026, 1, 26)),
        ("week", dt.date(2026, 2, 2)),
    }
    assert (whole["failovers"], whole["timed"], whole["proven"], whole["sets"]) == (5, 5, 5, None)
    assert (whole["first_day"], whole["last_day"]) == (dt.date(2026, 1, 29), dt.date(2026, 2, 2))
    assert whole["observed_ms"] == 10 * DAY_MS
    assert whole["availability_ppm"] == (10 * DAY_MS - 5_000) * 1_000_000 // (10 * DAY_MS)
    assert (january["failovers"], january["p50_ms"], january["max_ms"]) == (3, 3_000, 3_100)
    assert (january["sets"], january["missed"]) == (1, 1)
    assert by_key["*", "month", dt.date(2026, 2, 1)]["missed"] == 1
    quiet = by_key["g", "all", dt.date(1970, 1, 1)]
    assert (quiet["failovers"], quiet["timed"], quiet["p50_ms"]) == (0, 0, None)
    assert quiet["availability_ppm"] == 1_000_000
    assert answer[0]["fleet"] == "*"


def test_budgets_are_those_of_the_sets_that_used_most() -> None:
    """Ten of each fleet and month; a set that was never out is none of them."""
    rows = [
        row(
            GOLD_SETS_MONTHLY, **SET | {"fleet": fleet, "broker_set": f"s{n:02d}"}, month=dt.date(2026, 1, 1),
            outage_ms=n, budget_left_ms=100 - n,
        )
        for fleet in ("f", "g")
        for n in range(13)
    ]  # fmt: skip
    answer = asked(contents.BUDGETS, (GOLD_SETS_MONTHLY, rows))

    assert [one["broker_set"] for one in answer if one["fleet"] == "g"] == [f"s{n:02d}" for n in range(12, 2, -1)]
    assert asked(contents.BUDGETS, (GOLD_SETS_MONTHLY, rows[:1])) == []


def test_now_counts_the_sets_that_are_there() -> None:
    """A set that was taken away is not there; a set of one replica needs one member, and is not exposed."""
    sets = [row(SILVER_BROKER_SETS, set_id=n, cleaned_at=instant(1) if n == 4 else None) for n in (1, 2, 3, 4)]
    sizes = [
        row(
            SILVER_SYNC_STATE_SETS, set_id=n, set_size=size, members_needed=1 if n == 2 else 2,
            ended_at=None if is_last else instant(1),
        )
        for n, size, is_last in ((1, 3, False), (1, 1, True), (2, 1, True), (3, 1, False), (3, 3, True), (4, 1, True))
    ]  # fmt: skip
    until = [row(GOLD_COUNTED_UNTIL, fleet=str(n), until_at=instant(n)) for n in (5, 9)]
    (now,) = asked(
        contents.AS_OF, (SILVER_BROKER_SETS, sets), (SILVER_SYNC_STATE_SETS, sizes), (GOLD_COUNTED_UNTIL, until)
    )
    assert now == {"fleets": 2, "until_at": instant(9), "sets": 3, "exposed": 1}


@pytest.mark.parametrize(
    ("timed", "words"),
    [
        (0, ("-", "RTO: no failover was timed")),
        (1, ("55 ms", "RTO: 1 failover; no percentile")),
        (99, ("50 ms", "RTO: half of 99 failovers; the longest 55 ms")),
        (100, ("50 ms", "RTO: half of 100 failovers; 99 % within 54 ms")),
    ],
)
def test_one_failover_had_a_percentile(timed: int, words: tuple[str, str]) -> None:
    """The headline said "99 % within 55 ms", and the bound came three screens later."""
    assert service.rto(row(contents.PERIODS, timed=timed, p50_ms=50, p99_ms=54, max_ms=55)) == words


def incident(n: int, fleet: str, day: dt.date, **given: Any) -> dict[str, Any]:
    at = dt.datetime(day.year, day.month, day.day, 23, 59, tzinfo=dt.UTC)
    return row(INCIDENTS, cluster="c", fleet=fleet, broker_set="a b", master_epoch=n, outage_ms=n, began_at=at, **given)


def test_a_choice_shows_its_ten_longest() -> None:
    """Of all, of a fleet, of a month, and of both: none is reckoned in the browser, so each has its places in the page."""
    clusters = [row(contents.CLUSTERS, fleet=fleet, cluster="c", name=f"c since {fleet}") for fleet in ("*", "f", "g")]
    of, months = service.fleets(clusters), [dt.date(2026, 2, 1), dt.date(2026, 1, 1)]
    rows = [incident(n, "fg"[n % 2], dt.date(2026, 1 + (n % 3 > 0), 28)) for n in range(1, 60)]
    shown = service.incidents(rows, of, months)

    def places(place: str) -> list[int]:
        return [one["master_epoch"] for one, told in shown if place in told.split()]

    assert [(one.key, one.words) for one in of] == [("all", "all 2 fleets"), ("f0", "c since f"), ("f1", "c since g")]
    assert places("all:all") == list(range(59, 49, -1))
    assert places("f0:all") == list(range(58, 39, -2))
    assert places("all:2026-01") == list(range(57, 27, -3))
    assert places("f1:2026-01") == [57, 51, 45, 39, 33, 27, 21, 15, 9, 3]
    assert service.fleets(clusters[:2])[1:] == []
    assert service.without(shown, of, months) == ""
    assert service.without(shown[:1], of, months) == "all:2026-01 f0:all f0:2026-02 f0:2026-01 f1:2026-01"


def test_a_month_stands_beside_the_one_before() -> None:
    """The whole time stands beside the two newest; a week is no period to choose."""
    spans = [("all", 1), ("month", 1), ("month", 2), ("month", 3), ("week", 5)]
    rows = [
        row(contents.PERIODS, fleet="*", unit=unit, from_day=dt.date(2026, n, 1), failovers=n, sets=9)
        for unit, n in spans
    ]
    found = {one.places: one for one in service.choices(rows, service.fleets([]))}

    assert [*found] == ["all:all", "all:2026-03", "all:2026-02", "all:2026-01"]
    assert [words for words, _ in found["all:all"].beside] == ["March 2026", "February 2026"]
    assert [words for words, _ in found["all:2026-03"].beside] == ["February 2026"]
    assert next(service.tiles(found["all:2026-03"])) == ("3", "failovers", [("February 2026", "2")])
    *_, slo = service.tiles(found["all:all"])
    assert slo == ("9 of 9 sets", "kept 99.95 % available in March 2026", [("February 2026", "9 of 9 sets")])


def test_an_incident_says_what_where_and_how_to_learn_more() -> None:
    """A name is typed as a shell takes it."""
    day = dt.date(2026, 1, 1)
    killed = incident(
        9, "f", day, kind="failover", cause="dead-at-once", total_us=54_300, total_us_max=54_300, grade="proven"
    )
    unseen = incident(3, "f", day, kind="unclean", cause="timeout", total_us=3_000_000, total_us_max=None, grade=None)
    full = incident(2, "f", day, kind="writes-stopped", cause="disk-full", total_us=None)

    assert [service.what(one) for one in (killed, unseen, full)] == [
        "dead at once",
        "unclean, timeout",
        "writes stopped: disk full",
    ]
    assert [service.lasted(one) for one in (killed, unseen, full)] == ["54.3 ms", "over 3 s", "2 ms"]
    assert [service.lost(one) for one in (killed, unseen)] == ["nothing lost: proven", "loss not graded yet"]
    assert service.command(killed) == "rollcall explain 'c/a b' 9"
    assert service.command(full) == "rollcall history 'c/a b'"
