"""What DuckDB answers about the tables of a lake, without Spark."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

pytest.importorskip("duckdb", reason="duckdb is not installed: the analytics extra is optional")

import pyarrow as pa

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS, BRONZE_QUALITY
from rollcall_ha.analytics.codes import KINDS
from rollcall_ha.analytics.gold.quality import FAULTS, quality
from rollcall_ha.analytics.gold.tables import GOLD_FAILOVERS, GOLD_QUALITY
from rollcall_ha.analytics.lake.delta import schema_of
from rollcall_ha.analytics.lake.query import Read, answers
from rollcall_ha.analytics.lake.tables import LakeTable
from rollcall_ha.analytics.report import contents
from rollcall_ha.analytics.silver.tables import SILVER_REIGNS, SILVER_SYNC_STATE_SETS
from rollcall_ha.analytics.silver.turns import SILVER_RESTORES

Rows = list[dict[str, Any]]


def reading(rows: dict[LakeTable, Rows], asked: Counter[str] | None = None) -> Read:
    """Of tables with these rows; all others are empty. ``asked`` counts by path."""

    def read(table: LakeTable) -> Any:
        if asked is not None:
            asked[table.path] += 1
        return pa.Table.from_pylist(rows.get(table, []), schema=pa.schema(schema_of(table).to_arrow()))

    return read


def test_two_tables_of_one_name_were_one() -> None:
    """Bronze and gold have a quality each. Each table is looked for once, whoever needs it; instants are in UTC."""
    at = datetime(2026, 1, 1, 12, tzinfo=UTC)
    failover = {"fleet": "f", "cluster": "c", "broker_set": "b", "master_epoch": 1, "elected_at": at, "total_us": 5}
    rows: dict[LakeTable, Rows] = {
        BRONZE_QUALITY: [{"source_file": "file:/a", "name": "rejected:hole", "count": 2}],
        GOLD_QUALITY: [{"name": "events", "count": 7}],
        GOLD_FAILOVERS: [failover],
    }
    asked = Counter[str]()
    found = answers(reading(rows, asked), contents.TABLES)
    assert found["quality"] == rows[GOLD_QUALITY]
    assert found["rejected"] == rows[BRONZE_QUALITY]
    assert [row["elected_at"] for row in found["failovers"]] == [at]
    assert {*found} == {table.name for table in contents.TABLES}
    assert set(asked.values()) == {1}


def test_faults_are_counted_over_all_layers() -> None:
    """An epoch that is reported on without its election is one, whatever reports on it, and by the set that a restored one goes back to."""
    at = [datetime(2026, 1, 1, 12, n, tzinfo=UTC) for n in range(2)]
    entered, graded, other = (KINDS[kind] for kind in ("master-entered", "loss-graded", "master-elected"))
    rows: dict[LakeTable, Rows] = {
        BRONZE_EVENTS: [
            {"fleet": "f", "set_id": 1, "master_epoch": epoch, "kind": kind}
            for epoch, kind in ((1, entered), (2, entered), (2, graded), (3, other))
        ],
        SILVER_REIGNS: [{"set_id": 1, "master_epoch": 1, "elected_seq": 5}],
        SILVER_SYNC_STATE_SETS: [{"began_at": at[1], "ended_at": at[0]}, {"began_at": at[0], "ended_at": at[1]}],
        GOLD_FAILOVERS: [{"missing_phases": 2, "backward_stamps": 3, "is_open": True}, {"missing_phases": 0}],
    }
    faults = answers(reading(rows), [FAULTS])["faults"]
    expected = {"orphans": 1, "negative_intervals": 1, "backward_stamps": 3, "incomplete": 1, "open": 1}
    assert {row["name"]: row["count"] for row in faults} == expected
    # The restored fleet's set of the same name is the one that it was before.
    rows[SILVER_RESTORES] = [{"fleet": "g", "origin": "f"}]
    named = {"cluster": "c", "broker_set": "b", "kind": entered, "master_epoch": 1}
    rows[BRONZE_EVENTS] = [{"fleet": "g", "set_id": 9, **named}]
    (orphan,) = (row for row in answers(reading(rows), [FAULTS])["faults"] if row["name"] == "orphans")
    assert orphan["count"] == 1


def test_what_was_read_and_is_not_kept_was_a_copy() -> None:
    """Or it was rejected. Counts of all files are summed, and told in the order of their names, zeros too."""
    files = [
        {"source_file": file, "name": name, "count": count}
        for file in ("a", "b")
        for name, count in (("pieces", 10), ("rejected:hole", 1))
    ]
    horizons = [{"events": 8}, {"events": 4}]
    assert quality(files, horizons, [{"name": "open", "count": 0}]) == [
        {"name": name, "count": count}
        for name, count in (("copies", 6), ("events", 12), ("open", 0), ("pieces", 20), ("rejected:hole", 2))
    ]
