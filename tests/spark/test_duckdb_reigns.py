"""The ruler of the lake's bench: DuckDB, with a query of its own, finds the reigns that Spark has written."""

from __future__ import annotations

import duckdb
import pytest

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.silver.tables import SILVER_REIGNS
from tests.perf import lake_duckdb

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_duckdb_finds_the_same_reigns_in_the_same_files(batch: Lake) -> None:
    """Every column that both have; and a reign that differs in one of them is told."""
    events, reigns = (lake_duckdb.files_of(batch, table) for table in (BRONZE_EVENTS, SILVER_REIGNS))
    with duckdb.connect() as database:
        lake_duckdb.compute(database, events)
        assert lake_duckdb.differing(database, reigns) == 0
        database.execute("UPDATE reigns SET cut_bytes = 201 WHERE cut_bytes = 200")
        assert lake_duckdb.differing(database, reigns) == 2
