"""
Real drivers that die: ``rollcall analytics run`` killed in the middle of what it does.

Here: where it is killed, and what the end must be. Not here: the kills (``lake_kills``), who reads meanwhile
(``lake_readers``), every single change of the disk while a lake is published (``tests/unit/test_analytics_lake.py``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.gold.tables import GOLD, GOLD_RTO_DAILY
from rollcall_ha.analytics.silver.tables import SILVER, SILVER_REIGNS
from tests.chaos.lake_kills import Kill, kill_all
from tests.spark.conftest import batch, expected, journals, lines, spark
from tests.spark.lakes import content
from tests.support.fleet_story import counted

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.slow]

__all__ = ["batch", "expected", "journals", "lines", "spark"]

KILLS = (
    # New events are written twice: by themselves, then those that their days lack.
    Kill("ingest", BRONZE_EVENTS.path, 2),
    Kill("silver", SILVER_REIGNS.path),
    Kill("gold", GOLD_RTO_DAILY.path),
    Kill("gold", "publish"),
    Kill("gold", "commit", 3),
    Kill("gold", "name"),
    Kill("gold", "sweep", 2),
)


def test_killed_while_it_writes_or_publishes_readers_see_the_old_version_or_the_new_and_the_end_is_the_same(
    spark: Any, lines: list[str], expected: dict[str, list[Any]], tmp_path: Path
) -> None:
    """
    Each kill meets what the one before it left; the last one has published, and the next run finds nothing to do. DuckDB, pandas
    and a plain Spark session read throughout: one version, no row twice.
    """
    lake, torn_files, read = kill_all(spark, lines, KILLS, tmp_path)
    writing = [kill for kill in KILLS if kill.is_writing]
    assert torn_files >= len(writing)
    for path, rows in content(spark, lake, (BRONZE_EVENTS, *SILVER, *GOLD)).items():
        assert rows == expected[path], path
    counted(kills=len(KILLS), while_writing=len(writing), torn_files=torn_files, **read)
