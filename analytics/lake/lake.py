"""
A lake: tables as Parquet files below one folder, published so that a reader never sees half a table.

Here: the manifest, staging, publishing, sweeping. Not here: columns of tables (``tables`` of each layer),
their rows (``jobs.layers``).

    LAKE/manifest.json                                  the folders that are the tables, and their inputs
    LAKE/data/LAYER/TABLE/run=RUN/cluster=C/day=D/*.parquet
    LAKE/lock                                           held by the one writer

Rule 1: files are written into a folder of their own run, synced, and only then named by a new manifest, which replaces
the old one by a rename. A killed run leaves folders that no manifest names; the next writer removes them. Names of runs
are never used again: the Java of a killed run lives on for a moment, and may still write into its own.
Rule 2: a partition is replaced as a whole: one that is recomputed and comes out empty is gone from the manifest.
Rule 3: folders that the last ``VERSIONS_KEPT`` manifests name stay, so that a reader of an older one can finish.
Rule 4: one writer at a time; a second one is refused with the first one's pid.
Rule 5: a lake lies on a file system that all workers see, with rename and locks: a disk, NFS; not an object store.
"""

from __future__ import annotations

import datetime as dt
import fcntl
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec

from rollcall_ha.analytics.lake.tables import LakeTable
from rollcall_ha.analytics.refusals import JobRefused
from rollcall_ha.node.files import atomic_replace, fsync_directory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORM = 2
"""
Of bronze and silver: another number whenever a column is added to them or changes its meaning. Rows of form 1 know no
stops of writes and no cleanings, and their RTO ends at the first acknowledgement.
"""

VERSIONS_KEPT = 3
"""Manifests, the newest included, whose files are not swept."""

WHOLE = "."
"""The one partition of a table without partitions."""

Partitions = dict[str, list[str]]
"""Folder below the run (``cluster=a/day=2026-01-01``) -> the runs that hold its rows."""


class LakeBusy(JobRefused):
    """Another writer holds the lake; the message names it."""


class NoLake(JobRefused):
    """There is no lake, or the layer that is asked for was never built; the message says what to run."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int = 0
    form: int = 1
    """``FORM`` of the program that made it."""
    tables: dict[str, Partitions] = msgspec.field(default_factory=dict)
    inputs: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Path of each ingested file -> (bytes, modification time in ns) when it was read."""
    built_from: dict[str, Partitions] = msgspec.field(default_factory=dict)
    """Layer -> the partitions that it was computed from, so that the next run finds what has changed since."""
    horizons: dict[str, int] = msgspec.field(default_factory=dict)
    """Fleet -> stamp of its last event when gold was built: open intervals were counted up to it."""
    batches: dict[str, int] = msgspec.field(default_factory=dict)
    """Stream (its checkpoint) -> the last micro-batch that is in here: one that is repeated adds nothing."""


_decode_manifest = msgspec.json.Decoder(Manifest).decode


class Lake:
    def __init__(self, root: Path) -> None:
        """Nothing is read or made."""
        self.root = root.absolute()

    @property
    def manifest_path(self) -> Path:
        return self.root / "manifest.json"

    def manifest(self) -> Manifest:
        """The newest published one; an empty one if nothing was published."""
        try:
            found = _decode_manifest(self.manifest_path.read_bytes())
        except FileNotFoundError:
            return Manifest()
        except msgspec.DecodeError as error:
            raise NoLake(f"{self.manifest_path} is not a manifest of this program: {error}") from error
        if found.form != FORM:
            what = f"the lake in {self.root} has form {found.form}, this program reads and writes form {FORM}"
            raise NoLake(f"{what}; build another one from the journals: rollcall analytics run PATH... --lake OTHER")
        return found

    def require(self) -> Manifest:
        """The newest manifest. Raises ``NoLake`` if nothing was ever published."""
        found = self.manifest()
        if found.version == 0:
            raise NoLake(f"no lake in {self.root}; make one with: rollcall analytics run PATH... --lake {self.root}")
        return found

    def read(
        self,
        spark: SparkSession,
        table: LakeTable,
        *,
        manifest: Manifest | None = None,
        only: Iterable[str] | None = None,
    ) -> DataFrame:
        """
        Rows of a table, or of its partitions ``only``, as one manifest names them; empty if there are none.

        Raises ``NoLake`` if the manifest cannot be read.
        """
        published = (manifest or self.manifest()).tables.get(table.path, {})
        wanted = published if only is None else {name: published[name] for name in only if name in published}
        return self.read_folders(spark, table, wanted)

    def read_folders(self, spark: SparkSession, table: LakeTable, wanted: Partitions) -> DataFrame:
        """Rows of these folders, published or staged."""
        paths = _paths(self.root / "data" / table.path, wanted)
        if not paths:
            return spark.createDataFrame([], table.schema())
        base = str(self.root / "data" / table.path)
        return spark.read.schema(table.schema()).option("basePath", base).parquet(*paths).select(*table.column_names)

    @contextmanager
    def writer(self) -> Iterator[LakeWriter]:
        """
        Hold the lake for writing. Nothing is published unless ``LakeWriter.publish`` is called.

        Raises ``LakeBusy`` if another process writes, ``NoLake`` if there can be no folder, or no manifest can be read.
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


def _paths(base: Path, wanted: Partitions) -> list[str]:
    """Folders to read; the run's own folder where all that it holds is wanted: one path instead of thousands."""
    by_run: dict[str, list[str]] = {}
    for partition, runs in wanted.items():
        for run in runs:
            by_run.setdefault(run, []).append(partition)
    paths: list[str] = []
    for run, partitions in sorted(by_run.items()):
        folder = base / f"run={run}"
        # Only if every partition of the run is wanted: its folder may hold days that a later run has replaced, and read
        # as a whole it would give both versions of them.
        if len(partitions) == len(partitions_in(folder)):
            paths.append(str(folder))
        else:
            paths += [str(folder / partition) for partition in sorted(partitions)]
    return paths


def values_of(partition: str) -> tuple[str, dt.date]:
    """Cluster and day of a partition's folder name, e.g. ``cluster=a%2Fb/day=2026-01-31``."""
    cluster, day = partition.split("/")
    return unquote(cluster.removeprefix("cluster=")), dt.date.fromisoformat(day.removeprefix("day="))


def partitions_in(folder: Path) -> list[str]:
    """Leaf folders of partitions below a run's folder."""
    if not folder.is_dir():
        return []
    leaves = sorted({str(file.parent.relative_to(folder)) for file in folder.rglob("*.parquet")})
    return [WHOLE if leaf == "." else leaf for leaf in leaves]


class LakeWriter:
    """Stages tables and publishes them together. ``manifest`` is the one that ``publish`` would write now."""

    def __init__(self, lake: Lake) -> None:
        """The lock is held. Folders that a killed run left are removed."""
        self.lake = lake
        self.published = lake.manifest()
        self.manifest = self.published
        self._staged = 0
        self._token = secrets.token_hex(4)
        self._sweep()

    def read(self, spark: SparkSession, table: LakeTable, *, only: Iterable[str] | None = None) -> DataFrame:
        """Rows as they will be published, with the tables that this writer staged."""
        return self.lake.read(spark, table, manifest=self.manifest, only=only)

    def folder(self, table: LakeTable) -> tuple[str, Path]:
        """Name and folder of a new run of a table. Nobody reads it before ``replace`` names it."""
        # The token makes names unique over processes. A Java that outlives its killed driver writes on for a second:
        # with a counter alone its files would land in the next run's folder of the same number.
        self._staged += 1
        run = f"{self._mark()}{self._staged:03d}-{self._token}"
        return run, self.lake.root / "data" / table.path / f"run={run}"

    def stage(self, table: LakeTable, rows: DataFrame) -> tuple[str, Path]:
        """Write rows into a folder of their own, in the table's columns."""
        run, folder = self.folder(table)
        write = rows.select(*table.column_names).write.option("compression", "zstd")
        if table.partitions:
            write = write.partitionBy(*table.partitions)
        write.parquet(str(folder))
        return run, folder

    def replace(
        self, table: LakeTable, added: Mapping[str, Sequence[str]], *, removed: Iterable[str] | None = None
    ) -> None:
        """
        Let ``added`` take the place of the partitions ``removed``, and of partitions of the same name.

        ``removed`` None: of the whole table.
        """
        before: Partitions = {} if removed is None else dict(self.manifest.tables.get(table.path, {}))
        # Also where nothing is added: else a day that has no row any more would keep its old ones for ever.
        for partition in removed or ():
            before.pop(partition, None)
        before.update({partition: list(runs) for partition, runs in added.items()})
        self.update(tables={**self.manifest.tables, table.path: before})

    def put(self, table: LakeTable, rows: DataFrame, *, removed: Iterable[str] | None = None) -> None:
        """``stage`` and ``replace``: rows are all that the partitions ``removed`` shall hold."""
        run, folder = self.stage(table, rows)
        self.replace(table, {partition: [run] for partition in partitions_in(folder)}, removed=removed)

    def update(self, **changes: object) -> None:
        """Change other fields of the manifest."""
        self.manifest = msgspec.structs.replace(self.manifest, **changes)

    def publish(self) -> Manifest:
        """
        Sync the staged files, then let the new manifest take the old one's place. Without a change nothing is written.
        """
        # An empty version would push the oldest kept one out, and its files from under a reader that still has it.
        if self.manifest == self.published:
            return self.published
        version = self.published.version + 1
        # DATA BEFORE MANIFEST: after a power cut a manifest on disk must not name files that were only in memory.
        for table, partitions in self.manifest.tables.items():
            _sync_runs(self.lake.root / "data" / table, self._new_runs(partitions))
        newest = msgspec.structs.replace(self.manifest, version=version, form=FORM)
        content = msgspec.json.encode(newest, order="sorted")
        # THE COPY FIRST. Killed between the two, the copy is one version ahead, and ``_sweep`` removes it. In the other
        # order version 5 would be published without a copy, and version 6 would sweep its files under a reader.
        atomic_replace(self.lake.root / "manifests" / f"{version:08d}.json", content)
        atomic_replace(self.lake.manifest_path, content)
        self.published = self.manifest = newest
        self._staged = 0
        self._sweep()
        return newest

    def _new_runs(self, partitions: Partitions) -> set[str]:
        return {run for runs in partitions.values() for run in runs if run.startswith(self._mark())}

    def _mark(self) -> str:
        """Runs that are published next begin so."""
        return f"v{self.published.version + 1:08d}-"

    def _sweep(self) -> None:
        """Remove folders that no kept manifest names."""
        (self.lake.root / "manifests").mkdir(parents=True, exist_ok=True)
        history = sorted((self.lake.root / "manifests").glob("*.json"))
        # A copy beyond the published version is of a run that was killed between its two writes: what it names is not
        # published, and the next run may take the same version.
        kept = [self.published]
        for path in history[::-1]:
            version = int(path.stem)
            if version > self.published.version or len(kept) >= VERSIONS_KEPT:
                path.unlink()
            elif version < self.published.version:
                kept.append(_decode_manifest(path.read_bytes()))
        for folder in (self.lake.root / "data").glob("*/*/run=*"):
            table, run = str(folder.parent.relative_to(self.lake.root / "data")), folder.name.removeprefix("run=")
            named = {
                partition
                for manifest in kept
                for partition, runs in manifest.tables.get(table, {}).items()
                if run in runs
            }
            if not named:
                # Errors are ignored: the Java of a killed run may still create files in it; the rest goes next time.
                shutil.rmtree(folder, ignore_errors=True)
                continue
            # A run that is named in part: days that later runs replaced in all kept versions go one by one.
            for partition in partitions_in(folder):
                if partition not in named and partition != WHOLE:
                    shutil.rmtree(folder / partition)


def _sync_runs(base: Path, runs: Iterable[str]) -> None:
    for run in sorted(runs):
        for folder, _, files in os.walk(base / f"run={run}"):
            for name in files:
                with (Path(folder) / name).open("rb") as file:
                    os.fsync(file.fileno())
            # The name of a synced file is in its folder: unsynced, the file may be there and not be found.
            fsync_directory(Path(folder))
