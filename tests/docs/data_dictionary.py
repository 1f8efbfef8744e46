"""
docs/data-dictionary.md, made of the tables of the lake.

``python -m tests.docs.data_dictionary`` writes it.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from rollcall_ha.analytics.bronze.tables import BRONZE
from rollcall_ha.analytics.codes import CODES
from rollcall_ha.analytics.gold import tables as gold_tables
from rollcall_ha.analytics.gold.tables import GOLD, GOLD_VIEWS
from rollcall_ha.analytics.lake.query import MACROS
from rollcall_ha.analytics.lake.tables import BY_SET, SNAPSHOTS, LakeTable, LakeView
from rollcall_ha.analytics.silver.tables import SILVER, SILVER_VIEWS

PAGE = Path(__file__).resolve().parents[2] / "docs" / "data-dictionary.md"
HEAD = """# Data dictionary of the lake

Every table and every column, as their comments say it too; made of `analytics/{bronze,silver,gold}/tables.py`. How to ask them:
[analytics.md](analytics.md#any-program-can-ask). `_ms`, `_us` and `_ns` are milliseconds, microseconds, nanoseconds; `_at` is an
instant in UTC, to the millisecond. A view stores nothing: Rollcall's own readers know it as a table, and others make it by its
SELECT, in the SQL that Spark and DuckDB share. Five functions have other names in DuckDB, which has to be told first:

```sql
{macros}
```
"""


def page() -> str:
    """The whole page."""
    tables = (SNAPSHOTS, *BRONZE, *SILVER, *SILVER_VIEWS, *GOLD, *GOLD_VIEWS)
    return "\n".join(
        [HEAD.replace("{macros}", ";\n".join(MACROS)), _limits(), _codes(), *(_section(table) for table in tables)]
    )


def _limits() -> str:
    """Whole numbers that gold's meanings name, with their docstrings."""
    rows = [f"| {name} | {value:,} | {meaning} |" for name, value, meaning in _constants()]
    head = ["## limits\n", "By which gold judges.\n", "| name | value | meaning |", "| --- | --- | --- |"]
    return "\n".join([*head, *rows, ""])


def _codes() -> str:
    """The words behind the numbers of bronze."""
    rows = [
        f"| {column} | {', '.join(f'{code} {word}' for word, code in words.items())} |"
        for column, words in CODES.items()
    ]
    head = [
        "## codes\n",
        "Numbers of columns of `bronze/events`, and their words; 0 is a word that this version does not know.\n",
    ]
    return "\n".join([*head, "| column | words |", "| --- | --- |", *rows, ""])


def _constants() -> Iterator[tuple[str, int, str]]:
    body = ast.parse(inspect.getsource(gold_tables)).body
    for one, behind in pairwise(body):
        match one, behind:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int(value))),
                ast.Expr(value=ast.Constant(value=str(meaning))),
            ):
                yield name, value, " ".join(meaning.split())


def _section(table: LakeTable) -> str:
    facts = [f"Key: {', '.join(table.key)}."] if table.key else []
    by = "the hash of set_id" if table.partition == BY_SET else table.partition
    facts += [f"Files by {by}."] if by else []
    select = ""
    if isinstance(table, LakeView):
        facts.append(f"A view of {', '.join(one.path for one in table.of)}.")
        select = f"\n```sql\nCREATE VIEW {table.name} AS\n{table.statement()}\n```\n"
    rows = [f"| {one.name} | {one.kind} | {one.meaning.replace('|', chr(92) + '|')} |" for one in table.columns]
    return "\n".join(
        [
            f"## {table.path}\n",
            f"{table.meaning} {' '.join(facts)}\n",
            "| column | type | meaning |",
            "| --- | --- | --- |",
            *rows,
            select,
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page())
