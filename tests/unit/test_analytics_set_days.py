"""Availability of a set in any span of days: views of gold, asked by DuckDB of rows by hand."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

pytest.importorskip("jinja2", reason="jinja2 is not installed: the analytics extra is optional")

from rollcall_ha.analytics.gold.tables import GOLD_QUIET_DAILY, GOLD_SET_DAYS, GOLD_SETS_DAILY, GOLD_SETS_MONTHLY
from tests.unit.test_report_questions import asked

DAY_MS = 86_400_000
FLEET = {"cluster": "c", "fleet": "f"}
ZEROS = dict.fromkeys(GOLD_SETS_DAILY.column_names[4:], 0)


def told(name: str, day: dt.date, *, out_ms: int = 0, observed_ms: int = DAY_MS, **others: int) -> dict[str, Any]:
    """A row of ``sets_daily``."""
    times = {"observed_ms": observed_ms, "available_ms": observed_ms - out_ms, "outage_ms": out_ms}
    return {**FLEET, "broker_set": name, "day": day, **ZEROS, **times, **others}


def days_of(rows: list[dict[str, Any]], first: dt.date, last: dt.date) -> list[dict[str, Any]]:
    """``set_days``, with ``quiet_daily`` on all days but those on which every set has a row."""
    quiet = [first + dt.timedelta(days=number) for number in range((last - first).days + 1)]
    named = [{**FLEET, "day": day, "sets": 1} for day in quiet]
    return asked(GOLD_SET_DAYS, (GOLD_SETS_DAILY, rows), (GOLD_QUIET_DAILY, named))


def test_the_availability_of_a_month_left_its_quiet_days_out() -> None:
    """A month with one bad day had that day's availability: 75 % of a set that was out for 6 hours of 30 days."""
    rows = [
        told("a", dt.date(2024, 5, 20), begun=1),
        told("a", dt.date(2024, 6, 3), out_ms=DAY_MS // 4, failovers=1),
        told("b", dt.date(2024, 6, 29), observed_ms=DAY_MS // 2, begun=1),
        told("a", dt.date(2024, 7, 2), observed_ms=1_000),
        told("b", dt.date(2024, 7, 2), observed_ms=1_000),
    ]
    days = days_of(rows, dt.date(2024, 5, 20), dt.date(2024, 7, 1))
    months = {(row["broker_set"], row["month"].month): row for row in asked(GOLD_SETS_MONTHLY, (GOLD_SET_DAYS, days))}

    assert len(days) == 44 + 4
    assert len({(row["broker_set"], row["day"]) for row in days}) == len(days)
    june = months["a", 6]
    assert (june["observed_ms"], june["outage_ms"], june["failovers"]) == (30 * DAY_MS, DAY_MS // 4, 1)
    assert june["availability_ppm"] == 991_666
    assert june["budget_ms"] == 1_296_000  # 0.05 % of 30 days
    assert june["budget_left_ms"] == 1_296_000 - DAY_MS // 4
    assert months["b", 6]["observed_ms"] == DAY_MS // 2 + DAY_MS
    assert months["a", 7]["observed_ms"] == DAY_MS + 1_000
    assert set(months) == {("a", 5), ("a", 6), ("a", 7), ("b", 6), ("b", 7)}


def test_a_set_that_was_taken_away_and_came_back_has_no_days_between() -> None:
    """Nor after its second end; a failover while nobody serves yet is a day of nothing else."""
    day = [dt.date(2026, 1, one) for one in range(1, 11)]
    rows = [
        told("a", day[0], begun=1),
        told("a", day[2], ended=1, observed_ms=1),
        told("a", day[4], observed_ms=0, failovers=1),
        told("a", day[6], begun=1, observed_ms=2),
        told("a", day[8], ended=1),
    ]
    found = {row["day"]: row["observed_ms"] for row in days_of(rows, day[0], day[9])}

    assert found == {
        day[0]: DAY_MS,
        day[1]: DAY_MS,
        day[2]: 1,
        day[4]: 0,
        day[6]: 2,
        day[7]: DAY_MS,
        day[8]: DAY_MS,
    }
