"""The lines of a lake that was made before tables were Delta tables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.bronze.lines import source_of
from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS, BRONZE_INPUTS, BRONZE_QUALITY, BRONZE_REJECTED
from rollcall_ha.analytics.gold.tables import GOLD, GOLD_QUALITY
from rollcall_ha.analytics.jobs import migrate
from rollcall_ha.analytics.lake.lake import Lake, NoLake
from rollcall_ha.analytics.silver.tables import SILVER
from tests.spark.lakes import build, content

pytestmark = [pytest.mark.spark, pytest.mark.slow]

DEADLINE_S = 300


def test_every_line_of_the_old_lake_is_in_the_new_one(
    spark: Any, lines: list[str], expected: dict[str, list[Any]], tmp_path: Path
) -> None:
    """
    By the command, and silver and gold of it are those of the journals. Rejected texts are there; a run that the old manifest
    does not name is not read; files that were read are known.

    Read beside its event, a text that had been rejected for it became the event, because it is the smaller one.
    """
    old, lake = tmp_path / "old", Lake(tmp_path / "lake")
    journal = tmp_path / "events.jsonl"
    source = source_of(journal)
    rejected = ["torn", "{ " + lines[0][1:]]
    for path, texts in (
        (f"{BRONZE_EVENTS.path}/run=1/cluster=a/day=2026-01-01", lines),
        (f"{BRONZE_REJECTED.path}/run=1/source=ab", rejected),
        (f"{BRONZE_EVENTS.path}/run=0/cluster=a/day=2026-01-01", ["of an older version"]),
    ):
        rows = spark.createDataFrame([(source, text) for text in texts], "source_file string, line string")
        rows.write.parquet(str(old / "data" / path))
    tables = {BRONZE_EVENTS.path: {"cluster=a/day=2026-01-01": ["1"]}, BRONZE_REJECTED.path: {"source=ab": ["1"]}}
    text = msgspec.json.encode({"version": 3, "form": 2, "tables": tables, "inputs": {str(journal): (7, 8)}})
    (old / "manifest.json").write_bytes(text)

    # As a program: the job ends its session, which here is that of all tests.
    verb = ["migrate", str(old), "--lake", str(lake.root), "--master", "local[1]", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "rollcall_ha.analytics.cli", *verb],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    assert build(spark, lake, layers=("silver", "gold")) == 2
    made = (BRONZE_EVENTS, *SILVER, *(table for table in GOLD if table is not GOLD_QUALITY))
    for path, rows in content(spark, lake, made).items():
        assert rows == expected[path], path
    assert sorted(row["line"] for row in lake.read(spark, BRONZE_REJECTED).collect()) == sorted(rejected)
    counts = {row["name"]: row["count"] for row in lake.read(spark, BRONZE_QUALITY).collect()}
    assert counts["pieces"] == len(lines) + len(rejected)
    with lake.writer() as writer:
        (known,) = writer.rows(BRONZE_INPUTS)
    assert known == {"path": str(journal), "bytes": 7, "modified_ns": 8}


def test_what_is_no_lake_of_before_is_named(tmp_path: Path) -> None:
    """With the remedy."""
    with pytest.raises(NoLake, match=r"name the folder that holds manifest.json"):
        migrate.folders_of(tmp_path)
    (tmp_path / "manifest.json").write_text('{"tables":{}}')
    with pytest.raises(NoLake, match="has no events"):
        migrate.folders_of(tmp_path)
