"""
``rollcall analytics timeline PATH...``: one row per reign, with the phases that ``rollcall history`` shows.

Exit codes: 0 rows were printed; 1 there was nothing to print; 2 nothing to read, or no Spark.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.table import Table

from analytics.reigns import SPANS, is_failover, reigns, span_column
from analytics.session import NoSpark, spark_session
from analytics.source import Journals, NoJournals, find_journals, read_journals

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS_MAX = 500
"""Rows that a terminal shows; more are counted."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the job; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        files = find_journals(options.paths)
        print(f"reading {len(files)} journal files with Spark ...", file=sys.stderr)
        spark = spark_session(app="rollcall timeline", master=options.master)
    except (NoJournals, NoSpark) as error:
        print(f"rollcall analytics timeline: {error}", file=sys.stderr)
        return 2
    try:
        return _run(spark, files, output=options.output)
    finally:
        spark.stop()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rollcall analytics timeline", description=__doc__)
    parser.add_argument("paths", nargs="+", type=Path, help="journal files, or folders with journals below them")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table")
    parser.add_argument("--master", default="local[*]", help="Spark master, e.g. spark://host:7077")
    return parser


def _run(spark: SparkSession, files: Sequence[Path], *, output: str) -> int:
    journals = read_journals(spark, files)
    table = reigns(journals.events).orderBy("elected_at_ms", "cluster", "broker_set", "master_epoch")
    rows = [row.asDict() for row in table.limit(ROWS_MAX).collect()]
    counts = _counts(journals, rows)
    if output == "json":
        print(msgspec.json.encode({"counts": counts, "rows": rows}).decode())
    else:
        Console(width=None if sys.stdout.isatty() else 200).print(_rendered(rows))
        print(", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in counts.items()))
    if counts["bad_lines"]:
        example = journals.bad.first()
        print(f"bad line, e.g. {example['why']}: {example['line'][:200]}", file=sys.stderr)
    return 0 if rows else 1


def _counts(journals: Journals, rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    return {
        "files": journals.files,
        "events": journals.events.count(),
        "bad_lines": journals.bad.count(),
        "holes": journals.holes.count(),
        "reigns": len(rows),
        "failovers": sum(is_failover(row["kind"]) for row in rows),
    }


def _rendered(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    for name in ("SET", "EPOCH", "WHEN", "KIND", "CAUSE", "FROM->TO"):
        table.add_column(name, justify="right" if name == "EPOCH" else "left", no_wrap=True)
    for phase in SPANS:
        table.add_column(phase.value.upper(), justify="right", no_wrap=True)
    for name in ("TOTAL", "REST", "LOST", "PROOF"):
        table.add_column(name, justify="right" if name != "PROOF" else "left", no_wrap=True)
    for row in rows:
        when = datetime.fromtimestamp(row["elected_at_ms"] / 1000, UTC)
        table.add_row(
            f"{row['cluster']}/{row['broker_set']}",
            str(row["master_epoch"]),
            when.strftime("%Y-%m-%dT%H:%M:%SZ"),
            row["kind"],
            row["cause"],
            f"{row['from_master'] or '-'}->{row['to_master']}",
            *(_milliseconds(row[span_column(phase)]) for phase in SPANS),
            _milliseconds(row["total_us"]),
            _milliseconds(row["unattributed_us"]),
            "unknown" if row["loss_bytes"] is None else f"{row['loss_bytes']:,} B",
            row["grade"] or "unknown",
        )
    return table


def _milliseconds(value_us: int | None) -> str:
    return "-" if value_us is None else f"{value_us / 1000:,.1f} ms"


if __name__ == "__main__":
    sys.exit(main())
