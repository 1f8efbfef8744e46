"""
A reader of a lake that knows nothing of ours: DuckDB, pandas or a plain Spark session, by docs/analytics.md alone.

``python tests/chaos/plain_reader.py HOW LAKE KEYS``: one round after the other until its standard input ends. KEYS is JSON,
path of a table -> columns of its key. A round takes the newest snapshot and reads these tables in it; each read is a line of
JSON, and so is the end of a round, and a read that failed. Imported for its names, and started, by ``lake_readers``.
"""

from __future__ import annotations

import hashlib
import json
import select
import sys
from collections.abc import Callable
from typing import Any

PAUSE_S = 0.2
"""Between rounds: three programs without any would take the machine from the runs that they watch."""

READERS = ("duckdb", "pandas", "spark")

Rows = tuple[list[str], list[tuple[Any, ...]]]
"""Names of columns, and rows."""


def by_duckdb(lake: str) -> Callable[[str, int], Rows]:
    import duckdb
    from deltalake import DeltaTable

    def read(path: str, version: int) -> Rows:
        with duckdb.connect() as database:
            database.register("rows", DeltaTable(f"{lake}/{path}", version=version).to_pyarrow_dataset())
            found = database.sql("SELECT * FROM rows").to_arrow_table()
            return found.column_names, [tuple(row.values()) for row in found.to_pylist()]

    return read


def by_pandas(lake: str) -> Callable[[str, int], Rows]:
    from deltalake import DeltaTable

    def read(path: str, version: int) -> Rows:
        found = DeltaTable(f"{lake}/{path}", version=version).to_pandas()
        return list(found.columns), [tuple(row) for row in found.to_numpy().tolist()]

    return read


def by_spark(lake: str) -> Callable[[str, int], Rows]:
    from deltalake import DeltaTable
    from pyspark.sql import SparkSession

    quick = {"spark.ui.enabled": "false", "spark.driver.memory": "1g", "spark.sql.codegen.wholeStage": "false"}
    spark = SparkSession.builder.master("local[1]").config(map=quick).getOrCreate()

    def read(path: str, version: int) -> Rows:
        files = DeltaTable(f"{lake}/{path}", version=version).file_uris()
        found = spark.read.parquet(*files)
        return found.columns, [tuple(row) for row in found.collect()]

    return read


def newest(lake: str) -> tuple[int, dict[str, int]]:
    """Number of the newest snapshot, and version of each of its tables."""
    from deltalake import DeltaTable

    rows = DeltaTable(f"{lake}/snapshots").to_pyarrow_table().to_pylist()
    number = max(row["snapshot"] for row in rows)
    return number, {row["table"]: row["version"] for row in rows if row["snapshot"] == number}


def seen(rows: Rows, key: list[str]) -> dict[str, Any]:
    """How many rows, how many different keys, and what tells one content from another."""
    names, found = rows
    places = [names.index(name) for name in key]
    content = "\n".join(sorted(map(repr, found)))
    return {
        "rows": len(found),
        "keys": len({tuple(row[place] for place in places) for row in found}),
        "digest": hashlib.sha256(content.encode()).hexdigest(),
    }


def main() -> None:
    """Ends when nobody waits for it any more."""
    how, lake, keys = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    # Whoever needs it fails, as on a machine where it is not installed.
    sys.modules["rollcall_ha"] = None  # type: ignore[assignment]
    read = {"duckdb": by_duckdb, "pandas": by_pandas, "spark": by_spark}[how](lake)
    round_number = 0
    while not select.select([sys.stdin], [], [], PAUSE_S)[0]:
        line: dict[str, Any] = {}
        try:
            snapshot, versions = newest(lake)
            for path in (path for path in keys if path in versions):
                line = {"snapshot": snapshot, "table": path, "version": versions[path]}
                print(json.dumps(line | seen(read(path, versions[path]), keys[path])), flush=True)
        except Exception as error:  # noqa: BLE001 (each is a finding, and the next round may have others)
            print(json.dumps(line | {"failed": f"{type(error).__name__}: {error}"[:500]}), flush=True)
        round_number += 1
        print(json.dumps({"round": round_number}), flush=True)


if __name__ == "__main__":
    main()
