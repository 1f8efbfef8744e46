"""Gold is what its journals say: counted a second time without Spark, and, of small stories, worked out by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.gold.days import LIVING_MS, counted_until
from rollcall_ha.analytics.gold.tables import GOLD, GOLD_FELT, GOLD_VIEWS
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.silver.tables import SILVER, SILVER_VIEWS
from tests.recount.compare import COMPARED, compare, counted, opened, published, rows_of, untils, wrong
from tests.recount.stories import STORIES, nobody_left, write
from tests.recount.telling import BEGIN_MS, DAY_S, Story, misses
from tests.spark.lakes import build
from tests.support.analytics_plans import ROUGH
from tests.synthetic.files import write_fleet

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.prove]

PAGE = Path(__file__).resolve().parents[2] / "docs/analytics.md"
PLAN = msgspec.structs.replace(ROUGH, faults_per_day=40)


class Made:
    """Journals of the stories and of a rough fleet, and their lake."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.lake = folder / "lake"
        self.stories: Sequence[Story] = write(folder / "stories")
        write_fleet(PLAN, 0, folder / "fleet")
        self.journals = [folder / "stories", folder / "fleet" / "journals"]
        build(spark, Lake(folder / "lake"), *self.journals)
        self.felt = sorted(Lake(folder / "lake").read(spark, GOLD_FELT).toArrow().to_pylist(), key=repr)
        """As Spark tells it: no other lake of a test has a probe's journal."""
        self.gold: Mapping[str, Any] = published(folder / "lake")
        self.until = untils(folder / "lake")


@pytest.fixture(scope="module")
def made(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(spark, tmp_path_factory.mktemp("recount"))


@pytest.mark.parametrize("number", range(len(STORIES)), ids=[make().name for make in STORIES])
def test_gold_is_right_about(made: Made, number: int) -> None:
    assert list(misses(made.stories[number], made.gold)) == []


def test_gold_is_what_is_counted_from_the_lines(made: Made) -> None:
    """Every row and column of all tables but ``quality``."""
    _, figures = counted(made.journals, made.until)
    compared = compare(rows_of(figures), made.gold)

    assert wrong(compared) == []
    assert compared.keys() == set(COMPARED)
    assert compared["failovers"].rows > 100
    assert [case for case, count in figures.cases.items() if not count] == []


def test_what_probes_felt_is_the_same_in_spark_and_in_duckdb(made: Made) -> None:
    assert made.felt == sorted(made.gold["felt"], key=repr)
    assert len(made.felt) == sum(len(story.gaps) for story in made.stories)


def test_a_stranger_gets_each_answer_by_one_select(spark: Any, made: Made) -> None:
    """In DuckDB and in Spark alike: the ten questions of the page, and how a set's number is made."""
    queries = re.findall(r"```sql\n(.*?)```", PAGE.read_text(), re.DOTALL)[:11]
    tables = (BRONZE_EVENTS, *SILVER, *SILVER_VIEWS, *GOLD, *GOLD_VIEWS)
    for table in tables:
        Lake(made.lake).read(spark, table).createOrReplaceTempView(table.name)
    with opened(made.lake) as database:
        answers = [database.sql(query).to_arrow_table().to_pylist() for query in queries]
    asked = [spark.sql(query).toArrow().to_pylist() for query in queries]
    for table in tables:
        spark.catalog.dropTempView(table.name)

    assert all(answers)
    assert asked == answers
    assert {"paused", "nobody-eligible"}.isdisjoint(row["cause"] for row in answers[0])
    assert not any(row["ordered_by"].startswith(("controller:", "broker")) for row in answers[3])
    assert all(row["explained_by"].startswith("rollcall explain ") for row in answers[6])
    assert {row["what"] for row in answers[7]} == {"chain", "elections", "restore"}
    assert _one(answers[8], outcome="rolled-back")["told_end"] == "deadline"
    assert all(row["set_id"] == row["made"] for row in answers[10])


def _one(rows: Sequence[Mapping[str, Any]], **values: str) -> Mapping[str, Any]:
    (found,) = (row for row in rows if values.items() <= row.items())
    return found


def test_the_last_outage_of_a_fleet_lasted_up_to_its_last_event(spark: Any, tmp_path: Path) -> None:
    """
    40 ms, however much later somebody asked: nobody writes events while nobody can be elected.

    A later question changes the days since the earlier one, to what one that was asked at once finds.
    """
    (story,) = write(tmp_path / "journals", (nobody_left,))
    lake, later_ms = tmp_path / "lake", BEGIN_MS + 3 * DAY_S * 1_000
    build(spark, Lake(lake), tmp_path / "journals", until_ms=BEGIN_MS + DAY_S * 1_000)
    build(spark, Lake(lake), tmp_path / "journals", until_ms=later_ms)
    gold = published(lake)

    assert list(misses(story, gold)) == []
    assert set(untils(lake).values()) == {later_ms}
    _, figures = counted([tmp_path / "journals"], untils(lake))
    sets_only = ("sets_daily", "sets", "set_days", "sets_monthly", "clusters", "nodes_daily", "nodes")
    assert wrong(compare(rows_of(figures), gold, sets_only)) == []


def test_a_fleet_lives_on_for_a_week_after_its_last_event() -> None:
    """An idle healthy one was not observed any more; one of last year is not observed up to now."""
    now, week = 10 * LIVING_MS, LIVING_MS
    assert counted_until(now - week, asked_ms=None, now_ms=now) == now
    assert counted_until(now - week - 1, asked_ms=None, now_ms=now) == now - week - 1
    assert counted_until(now + 5, asked_ms=None, now_ms=now) == now + 5
    assert counted_until(0, asked_ms=now, now_ms=now) == now
    assert counted_until(now - 3, asked_ms=0, now_ms=now) == now - 3
