"""What tests of lakes share: one run of the layers, and the content of tables in an order that is always the same."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rollcall_ha.analytics.bronze.lines import find_journals
from rollcall_ha.analytics.jobs.layers import Layers
from rollcall_ha.analytics.jobs.run import LAYERS
from rollcall_ha.analytics.lake.delta import Partitions
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.progress import Progress
from rollcall_ha.analytics.lake.tables import LakeTable

OF_READING = ("source_file", "continues", "blanked")
"""Columns of bronze that tell how it was read."""


def build(spark: Any, lake: Lake, *paths: Path, layers: Sequence[str] = LAYERS, until_ms: int | None = None) -> int:
    """One run that publishes once; returns the published snapshot's number."""
    with lake.writer() as writer:
        work = Layers(spark, writer, Progress(spark, is_quiet=True))
        if "ingest" in layers:
            work.ingest_files(find_journals(paths, with_probes=True))
        if "silver" in layers:
            work.silver()
        if "gold" in layers:
            work.gold(until_ms=until_ms)
        return writer.publish().number


def shown(lake: Lake) -> dict[str, Partitions]:
    """Files of all tables of the newest snapshot."""
    snapshot = lake.snapshot()
    return {path: lake.files(path, snapshot.version(path)) for path in snapshot.rows}


def start_stream(stream: Any, folder: Path, **trigger: Any) -> Any:
    """Write below ``folder / "rows"`` from where the checkpoint in ``folder`` ends; returns the running query."""
    return (
        stream.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(**trigger)
        .start()
    )


def stream_now(stream: Any, folder: Path) -> int:
    """
    ``start_stream`` for what is there now (AvailableNow).

    Returns the number of micro-batches up to now, earlier runs of the checkpoint included.
    """
    query = start_stream(stream, folder, availableNow=True)
    query.awaitTermination()
    assert query.exception() is None
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


def content(spark: Any, lake: Lake, tables: tuple[LakeTable, ...]) -> dict[str, list[Any]]:
    """All rows of each table, and a check of its key. Where a line was read, and beside which other one, is no content."""
    rows = {}
    for table in tables:
        columns = [name for name in table.column_names if name not in OF_READING]
        found = [tuple(map(str, row)) for row in lake.read(spark, table).select(*columns).collect()]
        rows[table.path] = sorted(found)
        if table.key and "source_file" not in table.key:
            keys = [tuple(row[columns.index(name)] for name in table.key) for row in found]
            assert len(set(keys)) == len(keys), table.path
    return rows
