"""
A lake: Delta tables below one folder, and one more table that names their versions after each run.

Here: reading one snapshot, staging, publishing. Not here: Delta logs (``delta``), columns of tables (``tables`` of each
layer), their rows (``jobs.layers``).

    LAKE/LAYER/TABLE/_delta_log/                        what belongs to each version of a table
    LAKE/LAYER/TABLE/RUN/part=2026-01-31/*.parquet      the files that one run wrote; part=7 is a bucket of sets
    LAKE/snapshots/                                     a row per run and table (``tables.SNAPSHOTS``)
    LAKE/lock                                           held by the one writer

Rule 1: Spark writes files into a folder of their own run. Each changed table is committed to its log, and last, by one
commit, their versions become a snapshot. A reader of one table sees the old rows or the new; a reader of several takes
the versions of one snapshot. Names of runs are never used again: the Java of a killed run lives on for a moment, and
may still write into its own.
Rule 2: what a killed run committed without a snapshot is undone by the next writer, before it reads anything.
Rule 3: a partition is replaced as a whole: one that is recomputed and comes out empty is gone.
Rule 4: files hold all their columns, the partition's too: who has their list can read them without a log.
Rule 5: files of the last ``SNAPSHOTS_KEPT`` snapshots stay, so that a reader can finish, and earlier runs can be read;
so do those that a layer was built from.
Rule 6: one writer at a time; a second one is refused with the first one's pid.
Rule 7: a lake lies on a file system that all workers see, with locks: a disk, NFS. An object store gets a copy
(``copies``).
"""

from __future__ import annotations

import datetime as dt
import fcntl
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rollcall_ha.analytics.lake.delta import (
    PART,
    Partitions,
    by_part,
    commit,
    delta,
    files_of,
    rows_of,
    schema_of,
    sweep,
    undo,
    write_file,
)
from rollcall_ha.analytics.lake.session import as_path
from rollcall_ha.analytics.lake.tables import BY_SET, FORMS, SNAPSHOTS, LakeTable, LakeView, bucket_of
from rollcall_ha.analytics.refusals import JobRefused
from rollcall_ha.controller.contract.values import Frozen

if TYPE_CHECKING:
    from pyarrow.dataset import Dataset
    from pyspark.sql import DataFrame, SparkSession

SNAPSHOTS_KEPT = 10
"""Snapshots, the newest included, whose files are not swept."""

_decode_versions = msgspec.json.Decoder(dict[str, int]).decode


class LakeBusy(JobRefused):
    """Another writer holds the lake; the message names it."""


class NoLake(JobRefused):
    """There is no lake, or the layer that is asked for was never built; the message says what to run."""


class Snapshot(Frozen):
    """Versions of all tables that one run published together."""

    number: int = 0
    """From 1 on; 0 = nothing was ever published."""
    rows: Mapping[str, Mapping[str, Any]] = msgspec.field(default_factory=dict)
    """Path of a table -> its row of ``SNAPSHOTS``."""

    def version(self, path: str) -> int | None:
        """The version of a table; None = it was never published."""
        version: int | None = self.rows[path]["version"] if path in self.rows else None
        return version

    def built_from(self, layer: str) -> dict[str, int]:
        """Tables that a layer was computed from, and their versions; empty: never, or in another form."""
        for path, row in self.rows.items():
            if path.startswith(f"{layer}/") and row["built_from"] and row["form"] == FORMS[layer]:
                return _decode_versions(row["built_from"])
        return {}


class Lake:
    def __init__(self, root: Path) -> None:
        """Nothing is read or made."""
        self.root = root.absolute()
        self._files: dict[tuple[str, int], Partitions] = {}

    def folder(self, path: str) -> Path:
        """Where the table of this path lies."""
        return self.root / path

    def snapshots(self) -> list[Snapshot]:
        """The kept ones, the newest first. Raises ``NoLake`` if a program with other columns made them."""
        found: dict[int, dict[str, Any]] = {}
        for row in rows_of(self.folder(SNAPSHOTS.path)):
            layer = row["table"].split("/")[0]
            # Gold of another form is made anew; events are here once.
            if layer != "gold" and row["form"] != FORMS[layer]:
                what = f"{layer} of the lake in {self.root} has form {row['form']}, this program's is {FORMS[layer]}"
                raise NoLake(
                    f"{what}; build another one from the journals: rollcall analytics run PATH... --lake OTHER"
                )
            found.setdefault(row["snapshot"], {})[row["table"]] = row
        return [Snapshot(number=number, rows=found[number]) for number in sorted(found, reverse=True)]

    def snapshot(self, number: int | None = None) -> Snapshot:
        """The newest, or a kept one by its number; an empty one if nothing was published. Raises ``NoLake``."""
        kept = self.snapshots()
        if number is None:
            return kept[0] if kept else Snapshot()
        for one in kept:
            if one.number == number:
                return one
        raise NoLake(f"{self.root} keeps the snapshots {[one.number for one in kept]}, and not {number}")

    def require(self) -> Snapshot:
        """The newest snapshot. Raises ``NoLake`` if nothing was ever published."""
        found = self.snapshot()
        if found.number == 0:
            raise NoLake(f"no lake in {self.root}; make one with: rollcall analytics run PATH... --lake {self.root}")
        return found

    def files(self, path: str, version: int | None) -> Partitions:
        """Files of a version of a table, by partition; a version never changes."""
        if version is None:
            return {}
        # One look-up: another thread may ``forget`` between two.
        known = self._files.get((path, version))
        if known is None:
            known = self._files[path, version] = files_of(delta(self.folder(path), version))
        return known

    def forget(self) -> None:
        """Let go of what is known of versions: a stream publishes some every few seconds, for months."""
        self._files.clear()

    def read(self, spark: SparkSession, table: LakeTable, *, snapshot: Snapshot | None = None) -> DataFrame:
        """
        Rows of a table as one snapshot has them; empty if there are none.

        Raises ``NoLake`` if the lake cannot be read.
        """
        shown = self.snapshot() if snapshot is None else snapshot
        if isinstance(table, LakeView):
            return table.rows(spark, lambda one: self.read(spark, one, snapshot=shown))
        return self.read_files(spark, table, self.files(table.path, shown.version(table.path)))

    def read_files(
        self, spark: SparkSession, table: LakeTable, files: Partitions, *, only: Iterable[str] | None = None
    ) -> DataFrame:
        """Rows of these files, published or staged, or of their partitions ``only``."""
        paths = [*map(as_path, self._paths(table, files, only))]
        if paths:
            return spark.read.schema(table.schema()).parquet(*paths)
        # By the condition Spark knows that there is no row, and plans none of what would be joined with it.
        return spark.createDataFrame([], table.schema()).where("false")

    def dataset(self, table: LakeTable, files: Partitions, *, only: Iterable[str] | None = None) -> Dataset:
        """As ``read_files``, without Spark."""
        import pyarrow as pa
        from pyarrow import dataset

        schema = pa.schema(schema_of(table).to_arrow())
        # No partitioning: by the names of folders "part" would be a column.
        return dataset.dataset(self._paths(table, files, only), schema=schema, partitioning=None, format="parquet")

    def _paths(self, table: LakeTable, files: Partitions, only: Iterable[str] | None) -> list[str]:
        wanted = files if only is None else {name: files[name] for name in only if name in files}
        return [str(self.folder(table.path) / file) for some in wanted.values() for file in some]

    @contextmanager
    def writer(self) -> Iterator[LakeWriter]:
        """
        Hold the lake for writing. Nothing is published unless ``LakeWriter.publish`` is called.

        Raises ``LakeBusy`` if another process writes, ``NoLake`` if there can be no folder, or the lake cannot be read.
        """
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise NoLake(f"{self.root} cannot be the folder of a lake: {error.strerror}") from error
        with (self.root / "lock").open("a+") as lock:
            # A lock of the kernel, not the file's existence: it ends with its process, so a killed run blocks nobody.
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                lock.seek(0)
                holder = lock.read().strip() or "unknown"
                raise LakeBusy(f"{self.root} is being written by pid {holder}; wait for it, or stop it") from error
            # Only now: before, these bytes are the holder's pid, which the refusal of a third run has to name.
            lock.truncate(0)
            lock.write(str(os.getpid()))
            lock.flush()
            yield LakeWriter(self)


class LakeWriter:
    """Stages tables and publishes them together."""

    def __init__(self, lake: Lake) -> None:
        """For the holder of the lock. It undoes the commits that a killed run left, and removes their files."""
        self.lake = lake
        self.published = lake.snapshot()
        self._changed: dict[str, tuple[LakeTable, Partitions]] = {}
        self._built: dict[str, Sequence[LakeTable]] = {}
        self._batches: dict[str, int] = {}
        for path in self.paths():
            undo(lake.folder(path), self.published.version(path))
        self._sweep()

    def paths(self) -> list[str]:
        """All tables that lie there, also those that no snapshot names."""
        return sorted(f"{layer}/{folder.name}" for layer in FORMS for folder in self.lake.folder(layer).glob("*"))

    # --- staging -----------------------------------------------------------------------------------------------------

    def files(self, table: LakeTable) -> Partitions:
        """Files of a table as they would be published now."""
        if table.path in self._changed:
            return self._changed[table.path][1]
        return self.lake.files(table.path, self.published.version(table.path))

    def read(self, spark: SparkSession, table: LakeTable, *, only: Iterable[str] | None = None) -> DataFrame:
        """Rows as they would be published now; of a view all of them."""
        if isinstance(table, LakeView):
            return table.rows(spark, lambda one: self.read(spark, one))
        return self.lake.read_files(spark, table, self.files(table), only=only)

    def folder(self, table: LakeTable) -> Path:
        """A folder of a new run of a table. Nobody reads it before ``found`` files of it are published."""
        # By chance, not by a counter: a Java that outlives its killed driver writes on for a second, and its files
        # would land in the next run's folder of the same number.
        return self.lake.folder(table.path) / f"{self.published.number + 1:08d}-{secrets.token_hex(6)}"

    def found(self, table: LakeTable, folder: Path) -> Partitions:
        """The files that were written below a folder of a table."""
        return by_part(str(file.relative_to(self.lake.folder(table.path))) for file in folder.rglob("*.parquet"))

    def stage(self, table: LakeTable, rows: DataFrame) -> Partitions:
        """Write rows into a folder of their own, in the table's columns."""
        from pyspark.sql import functions as f

        folder = self.folder(table)
        write = rows.select(*table.commented()).write
        if table.partition:
            part = bucket_of() if table.partition == BY_SET else f.col(table.partition)
            write = rows.select(*table.commented(), part.alias(PART)).write.partitionBy(PART)
        # Stamps and durations hardly repeat: a dictionary of them is given up again after a million values.
        numbers = (one.name for one in table.columns if one.kind in ("bigint", "timestamp"))
        plain = {f"parquet.enable.dictionary#{name}": "false" for name in numbers}
        write.options(**plain).option("compression", "zstd").parquet(str(folder))
        return self.found(table, folder)

    def replace(self, table: LakeTable, added: Partitions, *, removed: Iterable[str] | None = None) -> None:
        """
        Let ``added`` take the place of the partitions ``removed``, and of partitions of the same name.

        ``removed`` None: of the whole table.
        """
        # Also where nothing is added: else a day that has no row any more would keep its old ones for ever.
        gone = frozenset(removed or ())
        before = {} if removed is None else {name: some for name, some in self.files(table).items() if name not in gone}
        self._changed[table.path] = table, before | added

    def append(self, table: LakeTable, added: Partitions) -> None:
        """Add files to what is there."""
        before = self.files(table)
        self.replace(table, {name: [*before.get(name, ()), *some] for name, some in added.items()}, removed=())

    def put(self, table: LakeTable, rows: DataFrame, *, removed: Iterable[str] | None = None) -> None:
        """``stage`` and ``replace``: rows are all that the partitions ``removed`` shall hold."""
        self.replace(table, self.stage(table, rows), removed=removed)

    def dataset(self, table: LakeTable, *, only: Iterable[str] | None = None) -> Dataset:
        """As ``read``, without Spark; no view."""
        return self.lake.dataset(table, self.files(table), only=only)

    def rows(self, table: LakeTable) -> list[dict[str, Any]]:
        """All rows of a small table, without Spark."""
        found: list[dict[str, Any]] = self.dataset(table).to_table().to_pylist()
        return found

    def put_rows(self, table: LakeTable, rows: Sequence[Mapping[str, Any]]) -> None:
        """``put`` of the whole of a small table, without Spark."""
        folder = self.folder(table)
        write_file(table, rows, folder / "0.parquet")
        self.replace(table, self.found(table, folder))

    # --- what a layer was built from, streams ------------------------------------------------------------------------

    def built(self, layer: str) -> dict[str, Partitions]:
        """Files of the tables that a layer was computed from; empty: it never was."""
        known = self.published.built_from(layer)
        return {path: self.lake.files(path, version) for path, version in known.items()}

    def note_built(self, layer: str, tables: Sequence[LakeTable]) -> None:
        """A layer was computed from these tables, as they are published next."""
        self._built[layer] = tables

    def last_batch(self, stream: str) -> int:
        """The last micro-batch of a stream (its checkpoint) that is in here; -1 = none."""
        newest = delta(self.lake.folder(SNAPSHOTS.path))
        known = None if newest is None else newest.transaction_version(stream)
        return -1 if known is None else known

    def note_batch(self, stream: str, number: int) -> None:
        """A micro-batch is published with its rows, by one commit: one that is repeated adds nothing."""
        self._batches[stream] = number

    # --- publishing --------------------------------------------------------------------------------------------------

    def publish(self) -> Snapshot:
        """Commit each changed table, then name their versions together. Without a change nothing is written."""
        number, at = self.published.number + 1, dt.datetime.now(dt.UTC)
        rows = {path: {**row, "snapshot": number, "made_at": at} for path, row in self.published.rows.items()}
        is_new = bool(self._batches)
        for path, (table, files) in sorted(self._changed.items()):
            if path in rows and files == self.lake.files(path, rows[path]["version"]):
                continue
            version, is_new = commit(self.lake.folder(path), table, files), True
            of_table = {"snapshot": number, "made_at": at, "table": path, "version": version}
            rows[path] = {"built_from": None, **of_table, "form": FORMS[table.layer]}
        for layer, tables in self._built.items():
            versions = {table.path: rows[table.path]["version"] for table in tables if table.path in rows}
            is_new = is_new or versions != self.published.built_from(layer)
            for path in (path for path in rows if path.startswith(f"{layer}/")):
                rows[path]["built_from"] = msgspec.json.encode(versions, order="sorted").decode()
        # An empty snapshot would push the oldest kept one out, and its files from under a reader that still has it.
        if is_new:
            self._name(Snapshot(number=number, rows=rows))
        self._changed.clear()
        self._built.clear()
        self._batches.clear()
        return self.published

    def _name(self, fresh: Snapshot) -> None:
        kept = [fresh, *self.lake.snapshots()[: SNAPSHOTS_KEPT - 1]]
        folder = self.folder(SNAPSHOTS)
        write_file(SNAPSHOTS, [row for one in kept for row in one.rows.values()], folder / "0.parquet")
        commit(self.lake.folder(SNAPSHOTS.path), SNAPSHOTS, self.found(SNAPSHOTS, folder), self._batches)
        self.published = fresh
        self._sweep()

    def _sweep(self) -> None:
        """Remove what no kept snapshot has, and nothing was built from."""
        kept = self.lake.snapshots()
        # A layer may be older than all kept snapshots: its next run compares what it was built from with what is there.
        built = [self.published.built_from(layer) for layer in FORMS]
        for path in self.paths():
            versions = {one.rows[path]["version"] for one in kept if path in one.rows}
            sweep(self.lake.folder(path), versions | {one[path] for one in built if path in one})
        newest = delta(self.lake.folder(SNAPSHOTS.path))
        if newest is not None:
            since = max(0, newest.version() + 1 - SNAPSHOTS_KEPT)
            sweep(self.lake.folder(SNAPSHOTS.path), range(since, newest.version() + 1))
        self.lake.forget()
