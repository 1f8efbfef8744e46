"""
The lines of a lake that was made before tables were Delta tables, into another lake.

Here: where such a lake has its lines. Not here: what becomes of them (``layers``): they are judged anew, as lines of
the journals that they came from.

Rule 1: the old lake is read only.
Rule 2: kept is what bronze kept: each event's line once, each rejected text. Blank lines and copies are not there any
more, and are not counted again. Of two texts of one event the one that counted counts again.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS, BRONZE_INPUTS, BRONZE_REJECTED
from rollcall_ha.analytics.jobs.layers import Layers
from rollcall_ha.analytics.lake.lake import Lake, NoLake
from rollcall_ha.analytics.lake.progress import Progress
from rollcall_ha.analytics.lake.session import spark_session


class OldManifest(msgspec.Struct, frozen=True):
    """The part of an old lake's ``manifest.json`` that says which files count."""

    tables: dict[str, dict[str, list[str]]]
    """Path of a table -> folder of a partition -> runs that hold its rows."""
    inputs: dict[str, tuple[int, int]] = {}
    """Path of each ingested file -> (bytes, modification time in ns) when it was read."""


_decode_manifest = msgspec.json.Decoder(OldManifest).decode


def folders_of(old: Path) -> tuple[OldManifest, tuple[list[str], list[str]]]:
    """The manifest of an old lake, and the folders of its events and of its rejected texts. Raises ``NoLake``."""
    try:
        manifest = _decode_manifest((old / "manifest.json").read_bytes())
    except (OSError, msgspec.DecodeError) as error:
        raise NoLake(
            f"no lake of the earlier kind in {old}: {error}; name the folder that holds manifest.json"
        ) from error
    events, rejected = (
        [
            str(old / "data" / table.path / f"run={run}" / partition)
            for partition, runs in manifest.tables.get(table.path, {}).items()
            for run in runs
        ]
        for table in (BRONZE_EVENTS, BRONZE_REJECTED)
    )
    if not events:
        raise NoLake(f"the lake in {old} has no events; build one from the journals: rollcall analytics run PATH...")
    return manifest, (events, rejected)


def run(old: Path, *, lake: Path, master: str, is_quiet: bool) -> None:
    """Ingest the lines of ``old`` into ``lake``, and publish. Raises ``JobRefused``."""
    manifest, (events, rejected) = folders_of(old.absolute())
    target = Lake(lake)
    with spark_session(app="rollcall analytics migrate", master=master) as spark, target.writer() as writer:
        if writer.published.number:
            raise NoLake(f"there is a lake in {target.root}; name another folder")
        layers = Layers(spark, writer, Progress(spark, is_quiet=is_quiet))
        layers.ingest(_texts(spark, events))
        # Not together with them: a text may have been rejected because it differed from an event that was there. Side
        # by side the smaller text of the two would be the event, and history would not be that of the old lake.
        if rejected:
            layers.ingest(_texts(spark, rejected), is_continued=True)
        # The files themselves are known: the next run reads those that have grown since, and no other.
        seen = ((path, *manifest.inputs[path]) for path in sorted(manifest.inputs))
        writer.put_rows(BRONZE_INPUTS, [dict(zip(BRONZE_INPUTS.column_names, row, strict=True)) for row in seen])
        writer.publish()
    print(f"next: rollcall analytics silver --lake {lake}; rollcall analytics gold --lake {lake}")


def _texts(spark: SparkSession, folders: Sequence[str]) -> DataFrame:
    kept = spark.read.schema("source_file string, line string").parquet(*folders)
    return kept.select("source_file", f.col("line").alias("text"))
