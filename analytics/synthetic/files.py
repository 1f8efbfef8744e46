"""
Synthetic fleets as files: journals in the product's own schema, and the truth beside them.

Here: one task per fleet, files and their names. Not here: the history of a fleet (``synthetic.fleet``), the command
line (``jobs.generate``).
Below the folder: ``journals/CLUSTER/events/events-INDEX.jsonl.zst`` as a controller writes them,
``truth/TABLE/CLUSTER.parquet`` (``synthetic.truth``), ``counts/CLUSTER.json``, ``plan.json``.
Rule 1: a fleet's files depend on the plan alone: a task that runs twice writes the same bytes. Each file appears by a
rename, the counts as the last one of their fleet: a run that finds them skips the fleet, so a stopped run goes on.
Rule 2: nothing of a history passes through Spark; a task hands back one row of counts.
Rule 3: every worker writes below the same folder: on a cluster that is a shared file system.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rollcall_ha.analytics.refusals import JobRefused
from rollcall_ha.analytics.synthetic.fleet import SyntheticFleet
from rollcall_ha.analytics.synthetic.plan import Plan, fleet_name
from rollcall_ha.analytics.synthetic.truth import TRUTH_ROWS, Truth, column_types
from rollcall_ha.controller.contract.events import EventRecord

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

SUFFIXES = {"zstd": ".jsonl.zst", "gzip": ".jsonl.gz", "none": ".jsonl"}
SEGMENT_BYTES_MAX = 256 * 1024 * 1024
"""Before compression; a segment that is larger is closed."""

LINES_PER_WRITE = 2_000
PLAN_FILE = "plan.json"
COUNTS_DDL = "fleet bigint, entries bigint, events bigint, bytes bigint, reigns bigint, false_failovers bigint"

_PLANS = msgspec.json.Decoder(Plan)
_decode_counts = msgspec.json.Decoder(dict[str, int]).decode


class FolderInUse(JobRefused):
    """The folder holds something else; the message says what to do."""


def prepare(folder: Path, plan: Plan) -> None:
    """
    Make the folder, or find that it holds this very plan.

    Raises:
        FolderInUse: it holds another plan, or something that no plan left there.
    """
    text = msgspec.json.format(msgspec.json.encode(plan))
    path = folder / PLAN_FILE
    if path.exists():
        if path.read_bytes() != text:
            raise FolderInUse(f"{folder} holds a history of another plan ({path}); name another folder or remove it")
        return
    if folder.exists() and any(folder.iterdir()):
        raise FolderInUse(f"{folder} is not empty and has no {PLAN_FILE}; name a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)


def generate(spark: SparkSession, plan: Plan, folder: Path, *, compression: str = "zstd") -> dict[str, int]:
    """Write all fleets; returns the sums of the tasks' counts. The folder must be prepared."""
    from pyspark.sql import functions as f

    plan_text, root = msgspec.json.encode(plan), str(folder)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        wanted = _plan_of(plan_text)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                counts = write_fleet(wanted, number, Path(root), compression=compression)
                yield pa.RecordBatch.from_pylist([counts])

    # One fleet per task: they differ in length, and a worker that is done takes the next.
    counted = spark.range(0, plan.fleets, 1, plan.fleets).mapInArrow(write, COUNTS_DDL)
    names = [part.split()[0] for part in COUNTS_DDL.split(", ")]
    row = counted.agg(*(f.sum(name).alias(name) for name in names[1:]), f.count("fleet").alias("fleets")).first()
    return {name: int(value) for name, value in row.asDict().items()}


def _plan_of(text: bytes) -> Plan:
    # Reached by name: a decoder within ``write`` would be pickled with it, and decoders cannot be pickled.
    return _PLANS.decode(text)


def write_fleet(plan: Plan, number: int, folder: Path, *, compression: str = "zstd") -> dict[str, int]:
    """
    Live one fleet and write its files, unless they are all there; returns its counts.

    Blocking, one core, a few megabytes of memory.
    """
    cluster = fleet_name(plan, number).cluster
    counted = folder / "counts" / f"{cluster}.json"
    if counted.exists():
        return _decode_counts(counted.read_bytes())
    fleet = SyntheticFleet(plan, number)
    journal = _Journal(folder / "journals" / cluster / "events", compression)
    was_collecting = gc.isenabled()
    gc.disable()  # States are trees: counting references frees them, and searching for cycles costs a fifth.
    try:
        for records in fleet.entries():
            journal.write(records)
    finally:
        journal.close()
        if was_collecting:
            gc.enable()
    write_truth(folder / "truth", cluster, fleet.truth)
    counts = {
        "fleet": number,
        "entries": journal.entries,
        "events": journal.events,
        "bytes": journal.bytes,
        "reigns": len(fleet.truth.reigns),
        "false_failovers": sum(row.is_false for row in fleet.truth.reigns),
    }
    counted.parent.mkdir(parents=True, exist_ok=True)
    temporary = counted.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.encode(counts))
    temporary.replace(counted)
    return counts


class _Journal:
    """Segments of JSON lines; the one that is written has another name until it is whole."""

    def __init__(self, folder: Path, compression: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder, self._compression = folder, compression
        self._lines: list[bytes] = []
        self._file: Any = None
        self._path = folder
        self._segment_bytes = 0
        self.entries = self.events = self.bytes = 0

    def write(self, records: Sequence[EventRecord]) -> None:
        if self._file is None:
            self._open(records[0].index)
        self.entries += 1
        self.events += len(records)
        self._lines += [msgspec.json.encode(record) for record in records]
        if len(self._lines) >= LINES_PER_WRITE:
            self._flush()
            if self._segment_bytes >= SEGMENT_BYTES_MAX:
                self._finish()

    def _open(self, index: int) -> None:
        import pyarrow as pa

        self._path = self._folder / f"events-{index:020d}{SUFFIXES[self._compression]}"
        compression = None if self._compression == "none" else self._compression
        self._file = pa.output_stream(str(self._path) + ".tmp", compression=compression)
        self._segment_bytes = 0

    def _flush(self) -> None:
        text = b"\n".join([*self._lines, b""])
        self._lines = []
        self._segment_bytes += len(text)
        self.bytes += len(text)
        self._file.write(text)

    def _finish(self) -> None:
        self._file.close()
        self._file = None
        Path(str(self._path) + ".tmp").replace(self._path)

    def close(self) -> None:
        if self._file is not None:
            self._flush()
            self._finish()


def write_truth(folder: Path, cluster: str, truth: Truth) -> None:
    """One file per table; an empty table is a file without rows."""
    import pyarrow as pa
    from pyarrow import parquet

    kinds = {"int": pa.int64(), "bool": pa.bool_(), "str": pa.string()}
    for name, row in TRUTH_ROWS.items():
        columns = column_types(row)
        schema = pa.schema([(column, kinds[kind]) for column, kind in columns.items()])
        rows = getattr(truth, name)
        arrays = [
            pa.array([getattr(each, column) for each in rows], type=kinds[kind]) for column, kind in columns.items()
        ]
        path = folder / name / f"{cluster}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(".tmp")
        parquet.write_table(pa.Table.from_arrays(arrays, schema=schema), temporary, compression="zstd")
        temporary.replace(path)
