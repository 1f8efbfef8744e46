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
from rollcall_ha.analytics.report.page import REJECTED, verdict
from rollcall_ha.analytics.report.phases import PHASES
from rollcall_ha.analytics.report.pictures import MARKS
from rollcall_ha.analytics.report.questions import QUESTIONS, sentences
from rollcall_ha.analytics.report.scales import MS_PER_MINUTE, as_of, share
from rollcall_ha.controller.contract.verdicts import Grade
from rollcall_ha.node.terminal import harmless

WORST_ROWS = 5
ANSWERS = (*QUESTIONS, contents.WHAT_IF)
TABLES = (
    contents.AS_OF,
    contents.CLUSTERS,
    contents.RTO,
    contents.WORST_SETS,
    contents.QUALITY,
    contents.REJECTED,
    *QUESTIONS,
)
"""What a summary is made of; the answer to what-if may be there, too."""
LINES = ("total", *PHASES, "waited", "unattributed")
READ = frozenset({"lines", "pieces", "copies", "events"})


def summary_of(found: Contents) -> dict[str, Any]:
    """
    Rows as they are: ``as_of``, ``clusters``, ``rto`` of all, ``worst`` sets, ``quality``, ``answers`` to the
    questions, files with ``rejected`` texts.
    """
    return {
        "as_of": found.of(contents.AS_OF),
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
    print(_verdict(whole, as_of(found["as_of"])))
    console.print(_durations(found["rto"]))
    if found["worst"]:
        console.print(_worst(found["worst"]))
    for line in sentences(found["answers"]).values():
        print(harmless(line))
    _print_quality(found["quality"], found["rejected"])


def _verdict(whole: Mapping[str, Any], until: str) -> str:
    word, _ = verdict(whole)
    outage, stopped, exposed = (whole[name] / MS_PER_MINUTE for name in ("outage_ms", "stopped_ms", "exposed_ms"))
    grades = ", ".join(f"{whole[grade.value]:,} {grade.value}" for grade in Grade)
    alarms = f"{whole['false_positives']:,} false alarms ({whole['controller_caused']:,} by a change of controllers)"
    without = f"{outage:,.1f} minutes without service ({stopped:,.1f} of them with a master, but no writes)"
    routes = f"{whole['routes_late']:,} of {whole['routed']:,} routes late"
    parts = (
        f"{whole['failovers']:,} failovers of {whole['sets']:,} sets, {whole['first_day']} to {whole['last_day']}",
        f"counted up to {until}",
        f"proof: {grades}, {whole['ungraded']:,} not graded",
        f"available {share(whole['availability_ppm'])}, {without}, {exposed:,.1f} with one member in sync",
        f"{alarms}, {whole['flaps']:,} flaps, {whole['regretted']:,} regretted, {routes}, {whole['open']:,} open",
    )
    return f"{word}  " + "\n    ".join(parts)


def _table(words: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="")
    for name in (*words, *numbers):
        table.add_column(name, justify="left" if name in words else "right", no_wrap=True)
    return table


def _durations(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _table(("CAUSE", "PHASE"), ("FAILOVERS", "P50", "P90", "P95", "P99", "MAX", "LONGEST IN"))
    by_key = {(row["cause"], row["phase"]): row for row in rows}
    for cause in sorted({row["cause"] for row in rows}, key=lambda cause: (cause != ALL, cause)):
        for phase in LINES if cause == ALL else LINES[:1]:
            row = by_key.get((cause, phase))
            if row is not None:
                ms = (f"{row[name]:,} ms" for name in MARKS)
                longest = f"{row['dominated']:,}" if row["dominated"] else "-"
                table.add_row("all" if cause == ALL else cause, phase, f"{row['failovers']:,}", *ms, longest)
    return table


def _worst(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _table(("WORST SETS",), ("OUTAGE", "EXPOSED", "AVAILABLE", "FAILOVERS", "FLAPS", "FALSE"))
    for row in rows:
        table.add_row(
            harmless(f"{row['cluster']}/{row['broker_set']}"),
            *(f"{row[name] / 1000:,.1f} s" for name in ("outage_ms", "exposed_ms")),
            share(row["availability_ppm"]),
            *(f"{row[name]:,}" for name in ("failovers", "flaps", "false_positives")),
        )
    return table


def _print_quality(quality: Mapping[str, int], rejected: Sequence[Mapping[str, Any]]) -> None:
    print(
        f"read {quality.get('lines', 0):,} lines, {quality.get('pieces', 0):,} records, "
        f"{quality.get('copies', 0):,} copies; kept {quality.get('events', 0):,} events"
    )
    faults = sorted((name.removeprefix(REJECTED), count) for name, count in quality.items() if name not in READ)
    told = [f"{count:,} {name.replace('_', ' ')}" for name, count in faults if count]
    if told:
        print(f"of note: {', '.join(told)}")
    if rejected:
        print("kept in bronze/rejected with the reason, most of it from:")
    for row in rejected:
        print(
            f"    {harmless(str(file_of(row['source_file'])))}: {row['count']:,} {row['name'].removeprefix(REJECTED)}"
        )
