"""
docs/data-dictionary.md, made of the tables of the lake.

``python -m tests.docs.data_dictionary`` writes it.
"""

from __future__ import annotations

from pathlib import Path

from rollcall_ha.analytics.bronze.tables import BRONZE
from rollcall_ha.analytics.gold.tables import GOLD
from rollcall_ha.analytics.lake.tables import SNAPSHOTS, LakeTable
from rollcall_ha.analytics.silver.tables import SILVER

PAGE = Path(__file__).resolve().parents[2] / "docs" / "data-dictionary.md"
HEAD = """# Data dictionary of the lake

Every table and every column, as their comments say it too; made of `analytics/{bronze,silver,gold}/tables.py`. How to ask them:
[analytics.md](analytics.md#any-program-can-ask). `_ms`, `_us` and `_ns` are milliseconds, microseconds, nanoseconds; `_at_ms` is
since 1970 in UTC.
"""


def page() -> str:
    """The whole page."""
    return "\n".join([HEAD, *(_section(table) for table in (SNAPSHOTS, *BRONZE, *SILVER, *GOLD))])


def _section(table: LakeTable) -> str:
    facts = [f"Key: {', '.join(table.key)}."] if table.key else []
    facts += [f"Files by {table.partition}."] if table.partition else []
    rows = [f"| {one.name} | {one.kind} | {one.meaning.replace('|', chr(92) + '|')} |" for one in table.columns]
    return "\n".join(
        [
            f"## {table.path}\n",
            f"{table.meaning} {' '.join(facts)}\n",
            "| column | type | meaning |",
            "| --- | --- | --- |",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    PAGE.write_text(page())
