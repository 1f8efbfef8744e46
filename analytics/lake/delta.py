"""
Delta logs: the one place that knows the library ``deltalake``.

Here: which files a version of a table has, and the commit that makes other files the table's. Not here: which versions
belong together, and whose turn it is to write (``lake``).

Rule 1: a commit says what differs from the newest version, file by file: a reader sees all of it or nothing.
Rule 2: data before log: files are synced before a commit names them, and the log before anything names its version.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rollcall_ha.analytics.lake.tables import BY_SET
from rollcall_ha.node.files import fsync_directory

if TYPE_CHECKING:
    from deltalake import DeltaTable, Schema

    from rollcall_ha.analytics.lake.tables import LakeTable

Partitions = dict[str, list[str]]
"""Value of the partition column -> files of its rows, below the table's folder."""

WHOLE = ""
"""The one partition of a table without partitions."""

PART = "part"
"""Files of a table's partition lie in folders ``part=VALUE``."""

LOG = "_delta_log"

KEPT_FOR_EVER = {"delta.enableExpiredLogCleanup": "false"}
"""Else the library removes entries of 30 days ago, and versions that a snapshot of a quiet table still names."""


def delta(folder: Path, version: int | None = None) -> DeltaTable | None:
    """A version of the table there, the newest without a number; None = there is no table."""
    from deltalake import DeltaTable

    # Not the folder alone: who is killed before the first commit leaves it empty, and every later run would fail at it.
    return DeltaTable(folder, version=version) if any((folder / LOG).glob("[0-9]*.json")) else None


def files_of(table: DeltaTable | None) -> Partitions:
    """Files of a version, by partition."""
    import pyarrow as pa

    return {} if table is None else by_part(pa.table(table.get_add_actions())["path"].to_pylist())


def by_part(files: Iterable[str]) -> Partitions:
    """Files below the folder of a table, by the partition in whose folder each lies."""
    found: Partitions = {}
    for file in sorted(files):
        _, is_part, value = Path(file).parent.name.partition(f"{PART}=")
        found.setdefault(value if is_part else WHOLE, []).append(file)
    return found


def commit(folder: Path, table: LakeTable, files: Partitions, batches: Mapping[str, int] | None = None) -> int:
    """
    Make ``files`` the table's; returns the version, which is durable.

    ``batches``: of each stream the last micro-batch whose rows are among them.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import RemoveAction, create_table_with_add_actions

    # A bucket is no column: who asks for a set has nothing to skip a file by.
    by = [table.partition] if table.partition not in ("", BY_SET) else []
    newest, schema = delta(folder), schema_of(table)
    before = files_of(newest)
    known, wanted = ({file for some in one.values() for file in some} for one in (before, files))
    fresh = [(value, file) for value, some in files.items() for file in some if file not in known]
    added = [_added(folder, file, dict.fromkeys(by, value)) for value, file in fresh]
    noted = CommitProperties(app_transactions=[Transaction(*one) for one in (batches or {}).items()])
    if newest is None:
        create_table_with_add_actions(
            str(folder),
            schema,
            added,
            partition_by=by,
            name=table.path,
            description=table.meaning,
            configuration=KEPT_FOR_EVER,
            commit_properties=noted,
        )
    elif newest.schema() != schema and known.isdisjoint(wanted):
        # Columns that changed, or their comments: they can be another table's if no older file is left in it.
        newest.create_write_transaction(
            added, mode="overwrite", schema=schema, partition_by=by, commit_properties=noted
        )
    else:
        now_ms = time.time_ns() // 1_000_000
        removed = [
            RemoveAction(file, data_change=True, deletion_timestamp=now_ms, partition_values=dict.fromkeys(by, value))
            for value, some in before.items()
            for file in some
            if file not in wanted
        ]
        newest.create_write_transaction(
            [*added, *removed], mode="append", schema=newest.schema(), partition_by=by, commit_properties=noted
        )
    return _synced_version(folder)


def schema_of(table: LakeTable) -> Schema:
    """The columns of a table as Delta has them."""
    from deltalake import Schema

    return Schema.from_json(msgspec.json.encode(table.json_schema()).decode())


def _added(folder: Path, file: str, values: Mapping[str, str]) -> Any:
    """A new file, which is on disk after this, as an action."""
    from deltalake.transaction import AddAction
    from pyarrow import parquet

    path = folder / file
    with path.open("rb") as opened:
        os.fsync(opened.fileno())
        rows, size = parquet.read_metadata(opened).num_rows, path.stat().st_size
    # The name of a synced file is in its folder: unsynced, the file may be there and not be found.
    fsync_directory(path.parent)
    stats = msgspec.json.encode({"numRecords": rows}).decode()
    return AddAction(file, size, values, time.time_ns() // 1_000_000, data_change=True, stats=stats)


def _synced_version(folder: Path) -> int:
    newest = delta(folder)
    assert newest is not None
    version: int = newest.version()
    # The checkpoints too: a reader begins with the one that ``_last_checkpoint`` names, and an empty one is no table.
    for path in (*(folder / LOG).glob(f"{version:020d}.*"), *(folder / LOG).glob("_last_checkpoint")):
        with path.open("rb") as entry:
            os.fsync(entry.fileno())
    for path in (folder / LOG, folder, folder.parent):
        fsync_directory(path)
    return version


def write_file(table: LakeTable, rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Rows of a small table as a file of Parquet, without Spark."""
    import pyarrow as pa
    from pyarrow import parquet

    path.parent.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist(list(rows), schema=pa.schema(schema_of(table).to_arrow())), path)


def rows_of(folder: Path, version: int | None = None) -> list[dict[str, Any]]:
    """All rows of a small table."""
    table = delta(folder, version)
    return [] if table is None else table.to_pyarrow_table().to_pylist()


def undo(folder: Path, version: int | None) -> None:
    """Make a version's files the newest ones' again, by a commit of its own; None: there were none."""
    newest = delta(folder)
    if newest is None or files_of(newest) == files_of(None if version is None else delta(folder, version)):
        return
    if version is None:
        newest.delete()
    else:
        newest.restore(version)
    _synced_version(folder)


def sweep(folder: Path, versions: Iterable[int]) -> None:
    """Remove the files that none of the ``versions`` has: of older ones, and of killed runs."""
    found = [files_of(delta(folder, version)) for version in versions]
    kept = {folder / file for one in found for some in one.values() for file in some}
    for run in (one for one in folder.iterdir() if one.name != LOG):
        mine = {file for file in kept if run in file.parents}
        if not mine:
            # Errors are ignored: the Java of a killed run may still create files in it; the rest goes next time.
            shutil.rmtree(run, ignore_errors=True)
        for file in set(run.rglob("*.parquet")) - mine if mine else ():
            file.unlink()
