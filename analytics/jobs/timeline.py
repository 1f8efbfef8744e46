"""
One row per master epoch, with the phases that ``rollcall history`` shows: journals in, a table out, no lake.

Here: the columns and how they are printed. Not here: the rows themselves (``silver``).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from rollcall_ha.analytics.bronze import events as bronze
from rollcall_ha.analytics.bronze.events import Why
from rollcall_ha.analytics.bronze.lines import find_journals, pieces, read_lines
from rollcall_ha.analytics.codes import KINDS
from rollcall_ha.analytics.lake.session import spark_session
from rollcall_ha.analytics.lake.tables import in_ms
from rollcall_ha.analytics.silver import facts as silver
from rollcall_ha.analytics.silver.phases import SPANS, span_column
from rollcall_ha.analytics.silver.tables import SILVER_PHASES
from rollcall_ha.node.terminal import print_json

ROWS_MAX = 500
"""Rows that are shown; the lake's tables have them all."""

TIMES = (*(span_column(phase) for phase in SPANS), "total_us", "total_us_max", "waited_us", "unattributed_us")
"""In microseconds; null = not known."""

COLUMNS = (
    "cluster",
    "broker_set",
    "master_epoch",
    "elected_at_ms",
    "kind",
    "cause",
    "is_failover",
    "from_master",
    "to_master",
    *TIMES,
    "grade",
    "loss_bytes",
    "cut_bytes",
    "requested_by",
)


def run(paths: Sequence[Path], *, master: str, is_json: bool) -> int:
    """Print the table of these journals; 1 if it has no row. Raises ``JobRefused``."""
    files = find_journals(paths)
    print(f"reading {len(files)} journal files with Spark ...", file=sys.stderr)
    with spark_session(app="rollcall analytics timeline", master=master) as spark:
        return _print(spark, files, is_json=is_json)


def timeline(events: DataFrame) -> DataFrame:
    """One row per reign, oldest first: ``silver.phases`` with the set's names and the election's requester."""
    elections = events.where(events["kind"] == KINDS["master-elected"])
    asked = elections.select("set_id", "seq", "cluster", "broker_set", "requested_by").withColumnRenamed(
        "seq", "elected_seq"
    )
    phases = SILVER_PHASES.rows(events.sparkSession, lambda _: silver.reigns(in_ms(events)))
    reigns = in_ms(phases).join(asked, ["set_id", "elected_seq"])
    return reigns.orderBy("elected_at_ms", "cluster", "broker_set", "master_epoch").select(*COLUMNS)


def _print(spark: SparkSession, files: Sequence[Path], *, is_json: bool) -> int:
    # Counts and the table each read this: parsing dominates, so it is done once and spills to disk if it must.
    judged = bronze.kept(bronze.once(bronze.judged(pieces(read_lines(spark, files))))).persist()
    found = {row["why"]: row["count"] for row in judged.groupBy("why").count().collect()}
    rows = [row.asDict() for row in timeline(judged.where("why is null")).limit(ROWS_MAX).collect()]
    counts = {
        "files": len(files),
        "events": found.pop(None, 0),
        "holes": found.pop(Why.HOLE.value, 0),
        "bad_lines": sum(found.values()),
        "reigns": len(rows),
        "failovers": sum(row["is_failover"] for row in rows),
    }
    if is_json:
        print_json({"counts": counts, "rows": rows}, is_line=True)
    else:
        Console(width=None if sys.stdout.isatty() else 200).print(_rendered(rows))
        print(", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in counts.items()))
    if counts["bad_lines"]:
        example = judged.where(judged["why"].isNotNull() & (judged["why"] != Why.HOLE.value)).first()
        print(f"bad line, e.g. {example['why']}: {example['line'][:200]}", file=sys.stderr)
    return 0 if rows else 1


def _rendered(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    times = (*(phase.value.upper() for phase in SPANS), "TOTAL", "AT MOST", "WAITED", "REST")
    for name in ("SET", "EPOCH", "WHEN", "KIND", "CAUSE", "FROM->TO", *times, "LOST", "PROOF"):
        is_number = name in (*times, "EPOCH", "LOST")
        table.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    for row in rows:
        when = datetime.fromtimestamp(row["elected_at_ms"] / 1000, UTC)
        table.add_row(
            f"{row['cluster']}/{row['broker_set']}",
            str(row["master_epoch"]),
            when.strftime("%Y-%m-%dT%H:%M:%SZ"),
            row["kind"],
            row["cause"],
            f"{row['from_master'] or '-'}->{row['to_master']}",
            *(_milliseconds(row[name]) for name in TIMES),
            "unknown" if row["loss_bytes"] is None else f"{row['loss_bytes']:,} B",
            row["grade"] or "unknown",
        )
    return table


def _milliseconds(value_us: int | None) -> str:
    return "-" if value_us is None else f"{value_us / 1000:,.1f} ms"
