"""
A lake on one screen.

Here: a few rows of the report, printed. Not here: definitions of figures (``gold.tables``), the rows (``gather``).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from rollcall_ha.analytics.bronze.lines import file_of
from rollcall_ha.analytics.gold.tables import ALL
from rollcall_ha.analytics.report import contents
from rollcall_ha.analytics.report.contents import Contents
from rollcall_ha.analytics.report.page import verdict
from rollcall_ha.analytics.report.questions import QUESTIONS, sentences
from rollcall_ha.controller.contract.verdicts import Grade
from rollcall_ha.node.terminal import harmless

WORST_ROWS = 5
ANSWERS = (*QUESTIONS, contents.WHAT_IF)
TABLES = (contents.CLUSTERS, contents.RTO, contents.WORST_SETS, contents.QUALITY, contents.REJECTED, *QUESTIONS)
"""What a summary is made of; the answer to what-if may be there, too."""
MS_PER_MINUTE = 60_000
PHASES = (
    "total",
    "detected",
    "proposed",
    "committed",
    "notified",
    "promised",
    "role-applied",
    "serving",
    "waited",
    "unattributed",
)
REJECTED = "rejected:"
FAULTS = ("orphans", "negative_intervals", "backward_stamps", "incomplete", "open", "blank", "shared")


def summary_of(found: Contents) -> dict[str, Any]:
    """
    Rows as they are: ``clusters``, ``rto`` of all, ``worst`` sets, ``quality``, ``answers`` to the questions, files
    with ``rejected`` texts.
    """
    return {
        "clusters": found.of(contents.CLUSTERS),
        "rto": found.of(contents.RTO),
        "worst": [row for row in found.of(contents.WORST_SETS) if row["outage_ms"] > 0][:WORST_ROWS],
        "quality": {row["name"]: row["count"] for row in found.of(contents.QUALITY)},
        "answers": {table.name: found.of(table) for table in ANSWERS},
        "rejected": found.of(contents.REJECTED),
    }


def print_summary(found: Mapping[str, Any]) -> None:
    """The verdict line first; then durations, the worst sets, what the answers say, and the quality of the input."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    if not found["clusters"]:
        print("NOTHING  no event of any broker set is in the lake")
        _print_quality(found["quality"], found["rejected"])
        return
    whole = found["clusters"][0]
    print(_verdict(whole))
    console.print(_durations(found["rto"]))
    if found["worst"]:
        console.print(_worst(found["worst"]))
    for line in sentences(found["answers"]).values():
        print(harmless(line))
    _print_quality(found["quality"], found["rejected"])


def _verdict(whole: Mapping[str, Any]) -> str:
    word, _ = verdict(whole)
    ppm = whole["availability_ppm"]
    available = "unknown" if ppm is None else f"{ppm / 10_000:.4f} %"
    outage, stopped, exposed = (whole[name] / MS_PER_MINUTE for name in ("outage_ms", "stopped_ms", "exposed_ms"))
    grades = ", ".join(f"{whole[grade.value]:,} {grade.value}" for grade in Grade)
    alarms = f"{whole['false_positives']:,} false alarms ({whole['controller_caused']:,} by a change of controllers)"
    without = f"{outage:,.1f} minutes without service ({stopped:,.1f} of them with a master, but no writes)"
    routes = f"{whole['routes_late']:,} of {whole['routed']:,} routes late"
    parts = (
        f"{whole['failovers']:,} failovers of {whole['sets']:,} sets, {whole['first_day']} to {whole['last_day']}",
        f"proof: {grades}, {whole['ungraded']:,} not graded",
        f"available {available}, {without}, {exposed:,.1f} with one member in sync",
        f"{alarms}, {whole['flaps']:,} flaps, {whole['regretted']:,} regretted, {routes}, {whole['open']:,} open",
    )
    return f"{word}  " + "\n    ".join(parts)


def _durations(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="", title_justify="left")
    for name in ("CAUSE", "PHASE"):
        table.add_column(name, no_wrap=True)
    for name in ("FAILOVERS", "P50", "P90", "P95", "P99", "MAX", "LONGEST IN"):
        table.add_column(name, justify="right", no_wrap=True)
    by_key = {(row["cause"], row["phase"]): row for row in rows}
    causes = sorted({row["cause"] for row in rows}, key=lambda cause: (cause != ALL, cause))
    for cause in causes:
        for phase in PHASES if cause == ALL else PHASES[:1]:
            row = by_key.get((cause, phase))
            if row is not None:
                ms = (f"{row[name]:,} ms" for name in ("p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms"))
                longest = f"{row['dominated']:,}" if row["dominated"] else "-"
                table.add_row("all" if cause == ALL else cause, phase, f"{row['failovers']:,}", *ms, longest)
    return table


def _worst(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("WORST SETS", no_wrap=True)
    for name in ("OUTAGE", "EXPOSED", "AVAILABLE", "FAILOVERS", "FLAPS", "FALSE"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        ppm = row["availability_ppm"]
        table.add_row(
            harmless(f"{row['cluster']}/{row['broker_set']}"),
            f"{row['outage_ms'] / 1000:,.1f} s",
            f"{row['exposed_ms'] / 1000:,.1f} s",
            "unknown" if ppm is None else f"{ppm / 10_000:.4f} %",
            f"{row['failovers']:,}",
            f"{row['flaps']:,}",
            f"{row['false_positives']:,}",
        )
    return table


def _print_quality(quality: Mapping[str, int], rejected: Sequence[Mapping[str, Any]]) -> None:
    print(
        f"read {quality.get('lines', 0):,} lines, {quality.get('pieces', 0):,} records, "
        f"{quality.get('copies', 0):,} copies; kept {quality.get('events', 0):,} events"
    )
    faults = {name: quality.get(name, 0) for name in FAULTS}
    faults |= {name.removeprefix(REJECTED): count for name, count in quality.items() if name.startswith(REJECTED)}
    told = [f"{count:,} {name.replace('_', ' ')}" for name, count in sorted(faults.items()) if count]
    if told:
        print(f"of note: {', '.join(told)}")
    if rejected:
        print("kept in bronze/rejected with the reason, most of it from:")
    for row in rejected:
        print(
            f"    {harmless(str(file_of(row['source_file'])))}: {row['count']:,} {row['name'].removeprefix(REJECTED)}"
        )
