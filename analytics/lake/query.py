"""
Questions to a lake that DuckDB answers in this process: Spark plans for longer than that takes.

Here: tables and views in a database, where they are called by their paths (``gold/rto``). Not here: the SELECTs
(views of ``tables`` of each layer, ``report``), which Spark and any other reader have, too.
Rule 1: an answer is few rows: all of it is held here. Tables may be large: columns that a SELECT names are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from rollcall_ha.analytics.lake.tables import LakeTable, LakeView

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyarrow.dataset import Dataset

MACROS = (
    "CREATE MACRO unix_millis(t) AS epoch_ms(t)",
    "CREATE MACRO timestamp_millis(ms) AS make_timestamptz(ms * 1000)",
    "CREATE MACRO get_json_object(text, path) AS json_extract_string(text, path)",
    "CREATE MACRO conv(text, old, new) AS CAST('0x' || text AS BIGINT)",
    "CREATE MACRO sha2(text, bits) AS sha256(text)",
)
"""Functions of our SELECTs that have other names in DuckDB."""

Read: TypeAlias = "Callable[[LakeTable], Dataset]"


def answers(read: Read, views: Sequence[LakeView]) -> dict[str, list[dict[str, Any]]]:
    """
    Rows of each of these ``views``, by its name, in the order of its SELECT; instants are in UTC.

    ``read`` gives stored tables.
    """
    import duckdb

    with duckdb.connect() as database:
        for one in ("SET TimeZone = 'UTC'", *MACROS):
            database.execute(one)
        known: set[str] = set()
        for view in views:
            _make(database, read, view, known)
        return {one.name: database.sql(f"FROM {_quoted(one)}").to_arrow_table().to_pylist() for one in views}


def _make(database: DuckDBPyConnection, read: Read, table: LakeTable, known: set[str]) -> None:
    """A table or view, and before it those that it is of."""
    if table.path in known:
        return
    known.add(table.path)
    if not isinstance(table, LakeView):
        database.register(table.path, read(table))
        return
    for one in table.of:
        _make(database, read, one, known)
    database.execute(f"CREATE VIEW {_quoted(table)} AS {table.statement(_quoted)}")


def _quoted(table: LakeTable) -> str:
    return f'"{table.path}"'
