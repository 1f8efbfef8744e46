"""
One Spark session for all tests of a process: starting one costs more than most of them. And one lake that was made in
one run, which every other way to make it is compared with. Nothing here needs pyspark to be imported.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.gold.tables import GOLD, GOLD_VIEWS
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.session import NoSpark, check_java, spark_session
from rollcall_ha.analytics.report.contents import Contents
from rollcall_ha.analytics.silver.tables import SILVER, SILVER_VIEWS
from tests.support.analytics_story import days_apart, lines_of, long_story, write_journals

QUICK_START = {"spark.driver.memory": "1g"}
"""
Beside the settings for a few rows. Compiled expressions, as for many, make the lake of ``test_standalone_cluster``, and it is
the same.
"""


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """The session; skips with the reason where there is no Spark or no Java."""
    pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")
    try:
        check_java()
    except NoSpark as error:
        pytest.skip(str(error))
    master = os.environ.get("ROLLCALL_TEST_SPARK", "local[1]")
    session = spark_session(app="tests", master=master, settings=QUICK_START, is_few=True)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def lines() -> list[str]:
    """The journal of a fleet that lived for some days."""
    return lines_of(days_apart(long_story().records))


@pytest.fixture(scope="session")
def journals(lines: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of three controllers."""
    folder = tmp_path_factory.mktemp("journals")
    write_journals(lines, folder)
    return folder


@pytest.fixture(scope="session")
def batch(spark: Any, journals: Path, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """A lake that was made in one run."""
    from tests.spark.lakes import build

    lake = Lake(tmp_path_factory.mktemp("batch"))
    assert build(spark, lake, journals) == 1
    return lake


@pytest.fixture(scope="session")
def expected(spark: Any, batch: Lake) -> dict[str, list[Any]]:
    """What every other way must give."""
    from tests.spark.lakes import content

    return content(spark, batch, (BRONZE_EVENTS, *SILVER, *SILVER_VIEWS, *GOLD, *GOLD_VIEWS))


@pytest.fixture(scope="session")
def found(batch: Lake) -> Contents:
    """The tables of a report of the story with three failovers."""
    from rollcall_ha.analytics.report.gather import gather

    return gather(batch, made_at_ms=0)
