"""
A report as files: one page, and beside it the tables of its pictures.

    OUT/index.html    OUT/tables/NAME.csv    OUT/tables/NAME.parquet

Rule 1: each file takes the place of its predecessor by a rename; the page is the last.
Rule 2: CSV has a head, an empty field for an unknown value, ISO 8601 for days and instants.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from rollcall_ha.analytics.lake.tables import LakeTable
from rollcall_ha.analytics.report.contents import TABLES, Contents
from rollcall_ha.analytics.report.page import page
from rollcall_ha.analytics.report.questions import Rows
from rollcall_ha.node.files import atomic_replace

PAGE = "index.html"
FOLDER = "tables"
MODE = 0o644
"""Readable for all: a report is copied and shown."""


def write_report(contents: Contents, out: Path) -> Path:
    """Write all files; returns the path of the page. Raises ``OSError``."""
    (out / FOLDER).mkdir(parents=True, exist_ok=True)
    for table in TABLES:
        rows = contents.of(table)
        atomic_replace(out / FOLDER / f"{table.name}.csv", csv_of(table, rows), mode=MODE)
        atomic_replace(out / FOLDER / f"{table.name}.parquet", parquet_of(table, rows), mode=MODE)
    atomic_replace(out / PAGE, page(contents).encode(), mode=MODE)
    return out / PAGE


def csv_of(table: LakeTable, rows: Rows) -> bytes:
    """A table as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, table.column_names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        found = {name: row[name] for name in table.column_names}
        writer.writerow({name: str(one).lower() if isinstance(one, bool) else one for name, one in found.items()})
    return text.getvalue().encode()


def parquet_of(table: LakeTable, rows: Rows) -> bytes:
    """A table as Parquet, with its own types also where there are no rows."""
    import pyarrow as pa
    from pyarrow import parquet

    kinds: dict[str, Any] = {
        "string": pa.string(),
        "bigint": pa.int64(),
        "int": pa.int32(),
        "boolean": pa.bool_(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "array<int>": pa.list_(pa.int32()),
    }
    schema = pa.schema([(column.name, kinds[column.kind]) for column in table.columns])
    buffer = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist([*rows], schema), buffer, compression="zstd")
    return buffer.getvalue()
