"""Days of sets: those with a row, those that are only counted as quiet, and that together they are all of them."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from pyspark.sql import functions as f

from rollcall_ha.analytics.gold.days import MS_PER_DAY, Days
from rollcall_ha.analytics.gold.intervals import quiet_daily, sets_daily
from rollcall_ha.analytics.gold.tables import GOLD_COUNTED_UNTIL, GOLD_FAILOVERS, GOLD_SETS, GOLD_SETS_DAILY
from rollcall_ha.analytics.lake.tables import LakeTable, set_id_of
from rollcall_ha.analytics.silver.tables import (
    SILVER_BROKER_SETS,
    SILVER_CLEANINGS,
    SILVER_REIGNS,
    SILVER_SILENCES,
    SILVER_STOPS,
    SILVER_SYNC_STATE_SETS,
)

pytestmark = [pytest.mark.spark, pytest.mark.slow]

FIRST = dt.date(2026, 1, 1)
HOUR_MS = 3_600_000
HORIZON = (9, 3)
TIMES = ("observed_ms", "available_ms", "stopped_ms", "exposed_ms", "memberless_ms")


def at(day: int, hour: int) -> int:
    """Milliseconds of an hour of a day of the story."""
    return ((FIRST - dt.date(1970, 1, 1)).days + day) * MS_PER_DAY + hour * HOUR_MS


def frame(spark: Any, table: LakeTable, *rows: dict[str, Any]) -> Any:
    """Rows of a table, ``in_ms``; what is not said is null."""
    kinds = {
        f"{one.name}_ms" if one.kind == "timestamp" else one.name: "bigint" if one.kind == "timestamp" else one.kind
        for one in table.columns
    }
    ddl = ", ".join(f"{name} {kind}" for name, kind in kinds.items())
    made = spark.createDataFrame([(*map(row.get, kinds), row["broker_set"]) for row in rows], f"{ddl}, name string")
    number = set_id_of(f.lit("f"), f.lit("c"), f.col("name"))
    return (made.withColumn("set_id", number) if "set_id" in kinds else made).drop("name")


def of(broker_set: str, day: int, **columns: Any) -> dict[str, Any]:
    """A row of one of the sets."""
    found = {"cluster": "c", "fleet": "f", "broker_set": broker_set, "day": FIRST + dt.timedelta(days=day)}
    return found | columns


UNTIL = {"f": at(*HORIZON)}


@pytest.fixture(scope="module")
def silver(spark: Any) -> dict[str, Any]:
    """
    Set a: a failover on day 2, and from day 6 on nobody serves. Set b: from midnight of day 3, exposed from 5 to 7.

    Set c: writes stop for two hours of day 4 and, until its end, on day 6, when it is cleaned; it is back on day 8. Set d:
    cleaned at noon of day 1, and back an hour later.
    """
    reigns = frame(
        spark,
        SILVER_REIGNS,
        of("a", 0, master_epoch=1, elected_seq=3, served_at_ms=at(0, 1), ended_at_ms=at(2, 5), lost_at_ms=at(2, 4)),
        of("a", 2, master_epoch=2, to_master=2, elected_seq=5, served_at_ms=at(2, 5)),
        of("b", 3, master_epoch=1, to_master=1, elected_seq=6, served_at_ms=at(3, 0)),
        of("c", 0, master_epoch=1, elected_seq=1, served_at_ms=at(0, 2), ended_at_ms=at(8, 6), ended_seq=30),
        of("c", 8, master_epoch=2, elected_seq=30, served_at_ms=at(8, 6)),
        of("d", 0, master_epoch=1, elected_seq=2, served_at_ms=at(0, 5), ended_at_ms=at(1, 13), ended_seq=13),
        of("d", 1, master_epoch=2, elected_seq=13, served_at_ms=at(1, 13)),
    )
    stops = frame(
        spark,
        SILVER_STOPS,
        of("c", 4, seq=15, master_epoch=1, began_at_ms=at(4, 3), ended_at_ms=at(4, 5)),
        of("c", 6, seq=16, master_epoch=1, began_at_ms=at(6, 1), ended_at_ms=at(6, 4)),
        # Ended by an election whose outage begins with it: nothing of it is counted twice.
        of("a", 2, seq=4, master_epoch=1, began_at_ms=at(2, 4), ended_at_ms=at(2, 5)),
    )
    cleanings = frame(
        spark,
        SILVER_CLEANINGS,
        of("c", 6, seq=17, cleaned_at_ms=at(6, 4)),
        of("d", 1, seq=12, cleaned_at_ms=at(1, 12)),
    )
    exposed = of("b", 5, seq=7, began_at_ms=at(5, 1), ended_at_ms=at(7, 2), set_size=1)
    failover = {"is_false_positive": True, "is_controller_caused": False, "is_flap": False}
    return {
        "broker_sets": frame(spark, SILVER_BROKER_SETS, *(of(name, 0) for name in "abcd")),
        "reigns": reigns,
        "stops": stops,
        "cleanings": cleanings,
        "sync_state_sets": frame(
            spark, SILVER_SYNC_STATE_SETS, exposed, of("c", 6, seq=17, began_at_ms=at(6, 4), set_size=0)
        ),
        "silences": frame(spark, SILVER_SILENCES, of("a", 6, seq=9, broker_id=2, found_at_ms=at(6, 2))),
        "failovers": frame(spark, GOLD_FAILOVERS, of("a", 2, master_epoch=2, **failover)),
    }


@pytest.fixture(scope="module")
def days(spark: Any, silver: dict[str, Any]) -> Any:
    """Of all sets, made in one run."""
    rows = sets_daily(Days(tables=silver, until_ms=UNTIL))
    return spark.createDataFrame(rows.collect(), rows.schema)


def lasted(day: int, *spans: tuple[int, int]) -> int:
    """Time of the spans within a day."""
    return sum(max(0, min(end, at(day + 1, 0)) - max(begin, at(day, 0))) for begin, end in spans)


def every_day() -> dict[tuple[str, int], tuple[int, ...]]:
    """``TIMES`` of each set and day on which it was observed, one by one."""
    end = at(*HORIZON)
    stories = {
        "a": ([(at(0, 1), end)], [(at(0, 1), at(2, 4)), (at(2, 5), at(6, 2))], [], []),
        "b": ([(at(3, 0), end)], [(at(3, 0), end)], [], [(at(5, 1), at(7, 2))]),
        "c": (
            [(at(0, 2), at(6, 4)), (at(8, 6), end)],
            [(at(0, 2), at(4, 3)), (at(4, 5), at(6, 1)), (at(8, 6), end)],
            [(at(4, 3), at(4, 5)), (at(6, 1), at(6, 4))],
            [],
        ),
        "d": ([(at(0, 5), at(1, 12)), (at(1, 13), end)], [(at(0, 5), at(1, 12)), (at(1, 13), end)], [], []),
    }
    found = {
        (name, day): (*(lasted(day, *spans) for spans in story), 0)
        for name, story in stories.items()
        for day in range(10)
    }
    return {key: times for key, times in found.items() if times[0]}


def number(day: dt.date) -> int:
    return (day - FIRST).days


def test_a_day_of_a_set_has_a_row_or_is_counted_as_quiet(silver: dict[str, Any], days: Any) -> None:
    """An outage and an exposure of days have all their days; a quiet first day and a day cut short by the end too."""
    rows = days.collect()
    told = {(row["broker_set"], number(row["day"])): tuple(row[name] for name in TIMES) for row in rows}
    tables = silver | {"sets_daily": days}
    quiet = {number(row["day"]): row["sets"] for row in quiet_daily(Days(tables=tables, until_ms=UNTIL)).collect()}

    whole = every_day()
    assert {name: sorted(day for one, day in told if one == name) for name in "abcd"} == {
        "a": [0, 2, 6, 7, 8, 9],
        "b": [3, 5, 6, 7, 9],
        "c": [0, 4, 6, 8, 9],
        "d": [0, 1, 9],
    }
    assert told == {key: whole[key] for key in told}
    assert quiet == Counter(day for name, day in whole if (name, day) not in told)
    assert {whole[key] for key in whole.keys() - told.keys()} == {(MS_PER_DAY, MS_PER_DAY, 0, 0, 0)}
    counted = dict(sorted(((row["broker_set"], number(row["day"])), row) for row in rows))
    assert [key for key, row in counted.items() if row["begun"]] == [
        ("a", 0),
        ("b", 3),
        ("c", 0),
        ("c", 8),
        ("d", 0),
    ]
    assert [key for key, row in counted.items() if row["ended"]] == [("c", 6)]
    assert [key for key, row in counted.items() if row["failovers"] and row["false_positives"]] == [("a", 2)]
    assert [key for key, row in counted.items() if row["below_sla"]] == [
        *(("a", day) for day in (2, 6, 7, 8, 9)),
        ("c", 4),
        ("c", 6),
    ]


def test_a_cleaned_set_counts_up_to_its_cleaning(spark: Any, silver: dict[str, Any], days: Any) -> None:
    """Not to the fleet's last event: 126,000 s of a set that was taken away would be its outage."""
    ends = spark.createDataFrame([*UNTIL.items()], "fleet string, ms bigint")
    ends = ends.withColumn("until_at", f.timestamp_millis("ms"))
    read = {GOLD_SETS_DAILY: days, GOLD_COUNTED_UNTIL: ends}
    found = {row["broker_set"]: row for row in GOLD_SETS.rows(spark, lambda table: read[table]).collect()}
    whole = every_day()
    for name in "abcd":
        times = [times for (one, _), times in whole.items() if one == name]
        assert tuple(found[name][column] for column in TIMES) == tuple(map(sum, zip(*times, strict=True)))
