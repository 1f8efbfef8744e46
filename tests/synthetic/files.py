"""
Synthetic fleets as files: journals in the product's own schema, and the truth beside them.

Here: one task per fleet, files and their names. Not here: the history of a fleet (``fleet``), the command
line (``__main__``).
Below the folder: ``journals/CLUSTER/events/events-INDEX.jsonl.zst`` as a controller writes them,
``truth/TABLE/CLUSTER.parquet`` (``truth``), ``counts/CLUSTER.json``, ``plan.json``.
Rule 1: a fleet's files depend on the plan alone: a task that runs twice writes the same bytes. Each file appears by a
rename, the counts as the last one of their fleet: a run that finds them skips the fleet, so a stopped run goes on.
Rule 2: nothing of a history passes through Spark; a task hands back one row of counts.
Rule 3: every worker writes below the same folder: on a cluster that is a shared file system.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import fields
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rollcall_ha.analytics.refusals import JobRefused
from rollcall_ha.controller.contract.events import EventRecord
from tests.synthetic.fleet import SyntheticFleet
from tests.synthetic.plan import Plan, cluster_of
from tests.synthetic.truth import TRUTH_ROWS, Truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUFFIXES = {"zstd": ".jsonl.zst", "gzip": ".jsonl.gz", "none": ".jsonl"}
SEGMENT_BYTES_MAX = 256 * 1024 * 1024
"""Before compression; a segment that is larger is closed."""

PLAN_FILE = "plan.json"

_decode_counts = msgspec.json.Decoder(dict[str, int]).decode


def prepare(folder: Path, plan: Plan) -> None:
    """
    Make the folder, or find that it holds this very plan.

    Raises:
        JobRefused: it holds another plan, or something that no plan left there.
    """
    text = msgspec.json.format(msgspec.json.encode(plan))
    path = folder / PLAN_FILE
    if path.exists():
        if path.read_bytes() != text:
            raise JobRefused(f"{folder} holds a history of another plan ({path}); name another folder or remove it")
        return
    if folder.exists() and any(folder.iterdir()):
        raise JobRefused(f"{folder} is not empty and has no {PLAN_FILE}; name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)


def generate(spark: SparkSession, plan: Plan, folder: Path, *, compression: str = "zstd") -> dict[str, int]:
    """Write all fleets; returns the sums of the tasks' counts. The folder must be prepared."""
    # One fleet per task: they differ in length, and a worker that is done takes the next.
    numbers = spark.sparkContext.parallelize(range(plan.fleets), plan.fleets)
    counted = numbers.map(lambda number: write_fleet(plan, number, folder, compression=compression)).collect()
    sums = {name: sum(counts[name] for counts in counted) for name in counted[0] if name != "fleet"}
    return sums | {"fleets": len(counted)}


def write_fleet(plan: Plan, number: int, folder: Path, *, compression: str = "zstd") -> dict[str, int]:
    """
    Live one fleet and write its files, unless they are all there; returns its counts.

    Blocking, one core, a few megabytes of memory.
    """
    cluster = cluster_of(number)
    counted = folder / "counts" / f"{cluster}.json"
    if counted.exists():
        return _decode_counts(counted.read_bytes())
    fleet = SyntheticFleet(plan, number)
    was_collecting = gc.isenabled()
    gc.disable()  # States are trees: counting references frees them, and searching for cycles costs a fifth.
    try:
        written = _write_journal(folder / "journals" / cluster / "events", fleet.entries(), compression)
    finally:
        if was_collecting:
            gc.enable()
    write_truth(folder / "truth", cluster, fleet.truth)
    counts = {
        "fleet": number,
        **written,
        "reigns": len(fleet.truth.reigns),
        "false_failovers": sum(row.is_false for row in fleet.truth.reigns),
    }
    counted.parent.mkdir(parents=True, exist_ok=True)
    temporary = counted.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.encode(counts))
    temporary.replace(counted)
    return counts


def _write_journal(folder: Path, entries: Iterator[tuple[EventRecord, ...]], compression: str) -> dict[str, int]:
    """Segments of JSON lines; the one that is written has another name until it is whole. Returns what was written."""
    import pyarrow as pa

    folder.mkdir(parents=True, exist_ok=True)
    counts = {"entries": 0, "events": 0, "bytes": 0}
    for first in entries:
        path = folder / f"events-{first[0].index:020d}{SUFFIXES[compression]}"
        temporary = path.with_name(path.name + ".tmp")
        end = counts["bytes"] + SEGMENT_BYTES_MAX
        with pa.output_stream(str(temporary), compression=None if compression == "none" else compression) as file:
            for records in chain([first], entries):
                text = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
                file.write(text)
                counts["entries"] += 1
                counts["events"] += len(records)
                counts["bytes"] += len(text)
                if counts["bytes"] >= end:
                    break
        temporary.replace(path)
    return counts


def write_truth(folder: Path, cluster: str, truth: Truth) -> None:
    """One file per table; an empty table is a file without rows."""
    import pyarrow as pa
    from pyarrow import parquet

    kinds = {"int": pa.int64(), "bool": pa.bool_(), "str": pa.string()}
    for name, row in TRUTH_ROWS.items():
        # "int | None" is an int: any column may be null.
        schema = pa.schema([(column.name, kinds[str(column.type).split(" | ")[0]]) for column in fields(row)])
        columns = {column: [getattr(each, column) for each in getattr(truth, name)] for column in schema.names}
        path = folder / name / f"{cluster}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        parquet.write_table(pa.table(columns, schema=schema), temporary, compression="zstd")
        temporary.replace(path)
