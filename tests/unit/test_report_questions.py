"""The questions of the report: rows by hand, asked by DuckDB; what the answers say; the page of docs has each SELECT."""

from __future__ import annotations

import io
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="jinja2 is not installed: the analytics extra is optional")

import duckdb
from pyarrow import parquet

from rollcall_ha.analytics.gold.tables import (
    GOLD_COUNTED_UNTIL,
    GOLD_DOMINANCE_DAILY,
    GOLD_FAILOVERS,
    GOLD_HOLES,
    GOLD_QUALITY,
    GOLD_RTO,
    GOLD_RTO_DAILY,
)
from rollcall_ha.analytics.lake.tables import LakeTable, LakeView
from rollcall_ha.analytics.report import contents, questions
from rollcall_ha.analytics.report.files import parquet_of
from rollcall_ha.analytics.report.questions import sentences
from rollcall_ha.analytics.silver.tables import (
    SILVER_CLEANINGS,
    SILVER_LEADERSHIPS,
    SILVER_REIGNS,
    SILVER_TENURES,
)
from tests.support.report_rows import instant, row

DOCS = Path(__file__).resolve().parents[2] / "docs/analytics.md"
HOUR_MS = 3_600_000
SET = {"cluster": "c", "fleet": "f", "broker_set": "a"}
MACROS = ";".join(re.findall(r"CREATE MACRO [^;\n]*", (DOCS.parents[1] / "docs/data-dictionary.md").read_text()))


def asked(question: LakeView, *found: tuple[LakeTable, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The answer; a table that is not given is empty."""
    rows = {table.name: given for table, given in found}
    with duckdb.connect() as database:
        for table in question.of:
            database.register(table.name, parquet.read_table(io.BytesIO(parquet_of(table, rows.get(table.name, [])))))
        database.execute(MACROS)
        answer = database.sql(question.statement())
        assert answer.columns == list(question.column_names)
        return [dict(zip(answer.columns, one, strict=True)) for one in answer.fetchall()]


def said(question: LakeView, answer: list[dict[str, Any]]) -> str:
    """Its sentence."""
    return sentences({question.name: answer})[question.name]


def failover(**given: Any) -> dict[str, Any]:
    """A timed failover by timeout, 3 s without a master, of a process that was gone."""
    usual = {"cause": "timeout", "from_master": 1, "grade": "proven", "total_us": 3_000_000, "total_us_max": 3_000_000}
    rest = {"outage_ms": 3_000, "heard_again_after_ms": None, "leader_change_age_ms": None}
    return row(GOLD_FAILOVERS, **{**SET, **usual, **rest, **given})


def test_docs_show_each_select_as_it_is() -> None:
    """Who asks the lake without Rollcall copies it from there, and gets the report's rows."""
    text = DOCS.read_text()
    for question in questions.QUESTIONS:
        assert f"```sql\n{question.select.strip()}\n```" in text, question.name


@pytest.mark.slow
@pytest.mark.parametrize("question", questions.QUESTIONS, ids=lambda question: question.name)
def test_an_empty_lake_has_an_answer(question: LakeView) -> None:
    """Nothing, or counts of 0: no percentile of no failover, no division by it."""
    answer = asked(question)
    assert all(not any(value for name, value in one.items() if name != "name") for one in answer)
    assert not sentences({question.name: answer})


def test_what_is_not_known_is_counted() -> None:
    """Each kind on its own; what goes on is known, and an incident."""
    lost = {"from_master": 1, "outage_ms": 0}
    failovers = [
        failover(total_us_max=4_500_000),
        failover(total_us_max=None),
        failover(total_us=None, total_us_max=None, missing_phases=2, grade=None),
        failover(total_us=None, total_us_max=None, is_open=True, outage_ms=70_000, grade="unknown"),
        failover(**lost),
    ]
    answer = asked(
        questions.UNKNOWNS,
        (GOLD_FAILOVERS, failovers),
        (GOLD_HOLES, [row(GOLD_HOLES)]),
        (
            GOLD_COUNTED_UNTIL,
            [row(GOLD_COUNTED_UNTIL, fleet=str(n), last_at=instant(0), until_at=instant(n * HOUR_MS)) for n in (1, 3, 3)],
        ),
        (GOLD_QUALITY, [row(GOLD_QUALITY, name=n, count=7) for n in ("rejected:hole", "rejected:torn", "orphans", "lines")]),
    )  # fmt: skip
    found = {one["name"]: (one["count"], one["ms"]) for one in answer if one["count"]}
    assert found == {
        "bounded": (1, 1_500),
        "unbounded": (1, None),
        "untimed": (1, None),
        "incomplete": (1, None),
        "holes": (1, None),
        "ended": (1, None),
        "untold": (2, 6 * HOUR_MS),
        "ungraded": (2, None),
        "rejected": (14, None),
        "orphans": (7, None),
    }
    assert set(found) <= set(questions.UNKNOWN_WORDS)
    words = said(questions.UNKNOWNS, answer)
    assert words.startswith(
        "not known: holes in the record, which may hide outages and losses: 1; fleets that are counted up to an earlier time than others: 1; "
    )
    assert "fleets without an event in the last hour and more that is counted: 2 (6 h in all)" in words


@pytest.mark.slow
def test_a_replica_costs_what_its_losses_cost() -> None:
    """Per hour as the master: up to the loss, the cleaning, or the fleet's last event. One that never served has no rate."""
    reign = {**SET, "lost_at": None, "ended_at": None, "broker_id": 1, "served_at": instant(0)}
    answer = asked(
        questions.REPLICA_COSTS,
        (
            GOLD_FAILOVERS,
            [
                failover(outage_ms=2_000),
                failover(outage_ms=4_000, is_false_positive=True),
                failover(from_master=2, outage_ms=500),
                failover(from_master=3, outage_ms=100),
                failover(from_master=None, outage_ms=9_000),
            ],
        ),
        (
            SILVER_TENURES,
            [
                row(SILVER_TENURES, **{**reign, "master_epoch": 1, "lost_at": instant(HOUR_MS), "ended_at": instant(HOUR_MS + 9)}),
                row(SILVER_TENURES, **{**reign, "master_epoch": 3, "served_at": instant(2 * HOUR_MS)}),
                row(SILVER_TENURES, **{**reign, "master_epoch": 4, "broker_id": 2, "served_at": instant(3 * HOUR_MS), "elected_seq": 7}),
                row(SILVER_TENURES, **{**reign, "master_epoch": 5, "broker_id": 3, "served_at": None}),
            ],
        ),
        (SILVER_CLEANINGS, [row(SILVER_CLEANINGS, seq=s, cleaned_at=instant(t * HOUR_MS)) for s, t in ((6, 4), (9, 5))]),
        (GOLD_COUNTED_UNTIL, [row(GOLD_COUNTED_UNTIL, fleet="f", until_at=instant(9 * HOUR_MS))]),
    )  # fmt: skip
    told = [(one["broker_id"], one["failovers"], one["needless"], one["outage_ms"]) for one in answer]
    assert told == [(1, 2, 1, 6_000), (2, 1, 0, 500), (3, 1, 0, 100)]
    # Broker 1: an hour, and from 2 to the cleaning at 4. Broker 2: from 3 to 5, its reign began after the first cleaning.
    assert [(one["reigned_ms"], one["outage_ms_per_hour"]) for one in answer] == [
        (3 * HOUR_MS, 2_000),
        (2 * HOUR_MS, 250),
        (0, None),
    ]
    assert said(questions.REPLICA_COSTS, answer) == (
        "outage by replica: most by c/a 1, 6 s in 2 failovers, 2 s per hour of 3 h as master"
    )


@pytest.mark.slow
def test_the_longest_phase_is_told_by_cause() -> None:
    """Days and clusters are summed; the cause with most failovers comes first."""
    days = [
        ("timeout", "detected", 3, 9_000_000),
        ("timeout", "detected", 1, 3_001_999),
        ("timeout", "promised", 2, 50_000),
    ]
    days.append(("dead-at-once", "promised", 1, 22_000))
    rows = [row(GOLD_DOMINANCE_DAILY, cause=c, phase=p, failovers=n, duration_us=us) for c, p, n, us in days]
    answer = asked(questions.LONGEST_PHASES, (GOLD_DOMINANCE_DAILY, rows))

    assert [tuple(one.values()) for one in answer] == [
        ("timeout", "detected", 4, 6, 3_000),
        ("timeout", "promised", 2, 6, 25),
        ("dead-at-once", "promised", 1, 1, 22),
    ]
    assert said(questions.LONGEST_PHASES, answer) == (
        "longest phase: timeout detected in 4 of 6 (mean 3 s); dead-at-once promised in 1 of 1 (mean 22 ms)"
    )


def test_needless_failovers_are_those_of_living_masters() -> None:
    """All together first; a false alarm without a proof may have cost data for nothing."""
    false = {"is_false_positive": True, "outage_ms": 3_100}
    failovers = [
        failover(**false, heard_again_after_ms=4_000, is_controller_caused=True),
        failover(**false, heard_again_after_ms=7_000, grade=None),
        failover(),
        failover(cause="dead-at-once"),
    ]
    answer = asked(questions.NEEDLESS, (GOLD_FAILOVERS, failovers))

    assert [tuple(one.values()) for one in answer] == [
        ("*", 4, 2, 1, 1, 6_200, 5_500),
        ("timeout", 3, 2, 1, 1, 6_200, 5_500),
        ("dead-at-once", 1, 0, 0, 0, 0, None),
    ]
    assert said(questions.NEEDLESS, answer) == (
        "needless failovers: 2 of 4 failovers, 6.2 s of outage, 1 by a change of controllers, 1 without proof; "
        "half were heard again within 5.5 s"
    )
    assert said(questions.NEEDLESS, [answer[2]]) == "needless failovers: none of 1 failover"


def test_a_change_of_controllers_costs_what_comes_on_top() -> None:
    """False alarms within 30 s whole, other failovers by what they took longer than usual for their cause; none twice."""
    failovers = [
        failover(outage_ms=3_000, leader_change_age_ms=30_000),
        failover(outage_ms=3_200),
        failover(outage_ms=5_000, leader_change_age_ms=29_999),
        failover(outage_ms=2_900, leader_change_age_ms=10, is_false_positive=True),
        failover(outage_ms=99_000, leader_change_age_ms=10, is_open=True),
        failover(outage_ms=800, leader_change_age_ms=10, cause="replaced"),
    ]
    leaders = [
        row(SILVER_LEADERSHIPS, fleet=fleet, is_founding=founding)
        for fleet, founding in (("f", True), ("f", False), ("f", False), ("g", True), ("g", False))
    ]
    answer = asked(questions.CONTROLLER_CHANGES, (GOLD_FAILOVERS, failovers), (SILVER_LEADERSHIPS, leaders))

    # 5,000 instead of 3,100, and 2,900. Nothing is usual for "replaced": it counts as found, and for no time.
    assert [tuple(one.values()) for one in answer] == [
        ("*", 3, 3, 1, 2_900, 1_900, 1_600),
        ("f", 2, 3, 1, 2_900, 1_900, 2_400),
        ("g", 1, 0, 0, 0, 0, 0),
    ]
    assert said(questions.CONTROLLER_CHANGES, answer) == (
        "changes of the leading controller: 3, 1.6 s each, by 1 false alarm within 30 s (2.9 s) and 2 failovers that took "
        "1.9 s longer than usual"
    )
    assert said(questions.CONTROLLER_CHANGES, [answer[2]]).endswith("1, and no failover within 30 s of one")


def test_a_percentile_of_twelve_has_no_upper_end() -> None:
    """The 99 % of 12 failovers is the greatest of them, and the next one may be longer; of 2,000 both ends are known."""
    few = [row(GOLD_RTO_DAILY, cause="timeout", phase="total", duration_ms=3_000 + n, failovers=1) for n in range(12)]
    many = [
        row(GOLD_RTO_DAILY, cause="dead-at-once", phase="total", duration_ms=n, failovers=20) for n in range(1, 101)
    ]
    other = [row(GOLD_RTO_DAILY, cause="timeout", phase="detected", duration_ms=1, failovers=500)]
    answer = asked(questions.RTO_BOUNDS, (GOLD_RTO_DAILY, [*few, *many, *other]))
    found = {(one["cause"], one["percent"]): tuple(one.values())[2:] for one in answer}

    assert [one["cause"] for one in answer[:2]] == ["*", "*"]
    assert found["timeout", 99] == (12, 3_011, 3_010, None)
    assert found["timeout", 50] == (12, 3_005, 3_001, 3_009)
    assert found["dead-at-once", 99] == (2_000, 99, 99, 100)
    assert found["*", 50][0] == 2_012
    assert questions.surety(answer[-1]) == "at least 3.01 s, no upper end; the greatest of 12"
    assert said(questions.RTO_BOUNDS, answer) == (
        "RTO: 50 % within 51 ms (95 % sure: 48 ms to 53 ms); 99 % within 100 ms (95 % sure: 100 ms to 3 s)"
    )


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 19, 60, 150, 520, 1_600])
def test_bounds_are_as_sure_as_they_say(most: int) -> None:
    """By the binomial distribution itself, of any distribution of durations: 95 of 100 lakes at least."""
    causes = range(max(1, most - 18), most + 1)
    rows = [
        row(GOLD_RTO_DAILY, cause=str(n), phase="total", duration_ms=rank, failovers=1)
        for n in causes
        for rank in range(1, n + 1)
    ]
    for one in asked(questions.RTO_BOUNDS, (GOLD_RTO_DAILY, rows)):
        if one["cause"] == "*":
            continue
        n, part = one["failovers"], one["percent"] / 100
        # The duration of rank k is k: so many of n may lie at or below the true percentile.
        least, most_rank = one["least_ms"] or 0, one["most_ms"] or n + 1
        sure = sum(_likely(n, k, part) for k in range(least, most_rank))
        assert sure >= 0.95, one


def _likely(n: int, k: int, part: float) -> float:
    """That k of n lie below; by logarithms, as the number of combinations is too great for a float."""
    logs = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(logs + k * math.log(part) + (n - k) * math.log(1 - part))


def test_planned_changes_stand_apart() -> None:
    """Restarts, orders and switchovers, timed or not; failovers and first elections are none."""
    reigns = [
        ("handover", 41_900),
        ("handover", 60_000),
        ("handover", None),
        ("requested", 10_000),
        ("failover", 9_000_000),
    ]
    rows = [row(SILVER_REIGNS, kind=kind, total_us=us) for kind, us in (*reigns, ("first", None))]
    answer = asked(questions.PLANNED, (SILVER_REIGNS, rows))

    assert [tuple(one.values()) for one in answer] == [("handover", 3, 2, 41, 60, 101), ("requested", 1, 1, 10, 10, 10)]
    assert said(questions.PLANNED, answer) == (
        "planned changes of masters: 3 handover: half within 41 ms, in all 101 ms; 1 requested: half within 10 ms, in all 10 ms"
    )


def test_the_shown_failovers_are_the_typical_the_slowest_and_the_newest() -> None:
    """Of a cause the nearest to its median, and of these one with all its phases; each failover once, the newest first."""
    spans = [3_000, 3_100, 3_090, 9_000, 3_300, 3_400, 3_500, 3_600, 3_700]
    failovers = [
        failover(master_epoch=n, elected_at=instant(n), total_us=ms * 1_000, missing_phases=int(ms == 3_100))
        for n, ms in enumerate(spans)
    ]
    failovers.append(failover(master_epoch=99, elected_at=instant(99), total_us=None))
    rto = [
        row(GOLD_RTO, fleet="*", cluster="*", kind=kind, cause=cause, phase="total", p50_ms=3_100)
        for kind in ("*", "failover")
        for cause in ("*", "timeout")
    ]
    answer = asked(contents.FAILOVERS, (GOLD_FAILOVERS, failovers), (GOLD_RTO, rto))

    assert {one["master_epoch"]: one["shown_as"] for one in answer} == {
        8: "slowest, newest",
        7: "slowest, newest",
        6: "slowest, newest",
        5: "slowest, newest",
        4: "newest",
        3: "slowest",
        2: "typical",
    }
    assert [one["master_epoch"] for one in answer] == [8, 7, 6, 5, 4, 3, 2]


@pytest.mark.slow
def test_tests_that_import_duckdb_end_without_pages_about_its_leaks() -> None:
    """Modules that were frozen are never collected, and DuckDB's binding lists each of its types as leaked."""
    collected = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", __file__]
    ended = subprocess.run(collected, capture_output=True, text=True, check=True, cwd=DOCS.parents[1])
    assert "test_tests_that_import_duckdb" in ended.stdout
    assert not ended.stderr
