"""
Event journals as a Spark table: every good line once, every bad line counted.

Here: finding journal files, parsing with the generated schema, telling good from bad. Not here: what is computed
(``jobs``).
Rule 1: a line is bad if it is not one JSON object of the schema, or more than one; its text is kept (S81).
Rule 2: copies of one event (three controllers journal the same history) count once, by (fleet, term, index, ordinal).
Rule 3: a line ``{"gap": ...}`` is a controller's word for a hole in its journal: neither an event nor bad, and counted.
Rule 4: no journal at all is an error, not an empty table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analytics.schema import event_record_schema
from controller.contract.events import SCHEMA_VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JOURNAL_PATTERNS = ("*.jsonl", "*.jsonl.gz", "*.jsonl.zst")

TWO_OBJECTS = r'\}\s*\{"'
"""Two records on one line. Inside a JSON string the quote would be escaped, so no text can look like this."""

HOLE_PREFIX = '{"gap":'


class NoJournals(ValueError):
    """Nothing to read; the message says where was looked."""


@dataclass(frozen=True, slots=True)
class Journals:
    """Parsed lines; lazily evaluated."""

    events: DataFrame
    """Column per field of ``EventRecord``; one row per event."""
    bad: DataFrame
    """Columns ``line`` and ``why``."""
    holes: DataFrame
    """Column ``line``: what a controller says that it cannot give; another one's journal may have it."""
    files: int


def find_journals(paths: Sequence[Path]) -> list[Path]:
    """
    Files named by ``paths``; of a folder all journals below it.

    Raises ``NoJournals`` if a path does not exist or nothing was found.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            found += sorted(
                file for pattern in JOURNAL_PATTERNS for file in path.rglob(pattern) if file.parent.name == "events"
            ) or sorted(file for pattern in JOURNAL_PATTERNS for file in path.glob(pattern))
        elif path.exists():
            found.append(path)
        else:
            raise NoJournals(f"{path} does not exist")
    if not found:
        looked = ", ".join(str(path) for path in paths)
        raise NoJournals(f"no journals ({', '.join(JOURNAL_PATTERNS)}) in {looked}")
    return found


def read_journals(spark: SparkSession, files: Sequence[Path]) -> Journals:
    """Read journal files. Nothing is collected on the driver."""
    from pyspark.sql import functions as f

    lines = spark.read.text([str(file) for file in files]).withColumnRenamed("value", "line").where("length(line) > 0")
    is_hole = f.col("line").startswith(HOLE_PREFIX)
    parsed = lines.where(~is_hole).withColumn("record", f.from_json("line", event_record_schema()))
    record = f.col("record")
    why = (
        f.when(f.col("line").rlike(TWO_OBJECTS), "two objects on one line")
        .when(record.isNull() | record["index"].isNull() | record["event"]["kind"].isNull(), "not an event record")
        .when(record["version"] > SCHEMA_VERSION, "schema version is newer than this program's")
    )
    # Counts and tables each read this: parsing dominates, so it is done once and spills to disk if it must.
    judged = parsed.withColumn("why", why).persist()
    good = judged.where("why is null").select("record.*")
    return Journals(
        events=good.dropDuplicates(["fleetIncarnation", "term", "index", "ordinal"]),
        bad=judged.where("why is not null").select("line", "why"),
        holes=lines.where(is_hole),
        files=len(files),
    )
