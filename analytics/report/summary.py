"""
A lake on one screen.

Here: a few rows of the report, printed. Not here: definitions of figures (``gold.tables``), the rows (``gather``).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
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
from rollcall_ha.analytics.report.questions import INCIDENTS, QUESTIONS, sentences
from rollcall_ha.analytics.report.scales import as_of, count, duration, share, shortened
from rollcall_ha.analytics.report.service import SLO, kept, month
from rollcall_ha.controller.contract.verdicts import Grade
from rollcall_ha.node.terminal import harmless

WORST_ROWS = 5
NAME_CHARACTERS = 60
"""A name may have 255 characters; in whole it stands in the report."""
TABLES = (
    contents.AS_OF,
    contents.PERIODS,
    contents.CLUSTERS,
    contents.RTO,
    contents.WORST_SETS,
    contents.QUALITY,
    contents.REJECTED,
    *QUESTIONS,
)
"""The tables of which a summary is made."""
LINES = ("total", *PHASES, "waited", "unattributed")
READ = frozenset({"lines", "pieces", "copies", "events"})


def summary_of(found: Contents) -> dict[str, Any]:
    """
    Rows as they are: ``as_of``, ``months`` of all fleets, ``clusters``, ``rto`` of all, ``worst`` sets, ``quality``,
    ``answers`` to the questions, files with ``rejected`` texts.
    """
    return {
        "as_of": found.of(contents.AS_OF),
        "months": [row for row in found.of(contents.PERIODS) if (row["fleet"], row["unit"]) == (ALL, "month")],
        "clusters": found.of(contents.CLUSTERS),
        "rto": found.of(contents.RTO),
        "worst": [row for row in found.of(contents.WORST_SETS) if row["outage_ms"] > 0][:WORST_ROWS],
        "quality": {row["name"]: row["count"] for row in found.of(contents.QUALITY)},
        "answers": {table.name: found.of(table) for table in QUESTIONS},
        "rejected": found.of(contents.REJECTED),
    }


def print_summary(found: Mapping[str, Any]) -> None:
    """The verdict line first; then durations, the worst sets, what the answers say, and the quality of the input."""
    console = Console(width=None if sys.stdout.isatty() else 160)
    if not found["clusters"]:
        print("NOTHING  no event of any broker set is in the lake")
        _print_quality(found["quality"], found["rejected"])
        return
    for line in _head(found):
        print(harmless(line))
    console.print(_durations(found["rto"]))
    if found["worst"]:
        console.print(_worst(found["worst"]))
    for line in sentences(found["answers"]).values():
        print(harmless(line))
    _print_quality(found["quality"], found["rejected"])


def _head(found: Mapping[str, Any]) -> Iterator[str]:
    whole, incidents = found["clusters"][0], found["answers"][INCIDENTS.name]
    word, _ = verdict(whole, is_out=any(row["is_open"] for row in incidents))
    sets = count(found["as_of"][0]["sets"] if found["as_of"] else whole["sets"], "set")
    yield f"{word}  {count(whole['failovers'], 'failover')} of {sets}, {whole['first_day']} to {whole['last_day']}"
    yield f"    counted up to {as_of(found['as_of'])}"
    grades = ", ".join(f"{whole[grade.value]:,} {grade.value}" for grade in Grade if whole[grade.value])
    ungraded = f", {whole['ungraded']:,} not graded" if whole["ungraded"] else ""
    if whole["failovers"]:
        yield f"    proof: {grades or 'none'}{ungraded}"
    without = f"{duration(whole['outage_ms'])} without service"
    stopped = f" ({duration(whole['stopped_ms'])} of it with a master, but no writes)" if whole["stopped_ms"] else ""
    exposed = f"{duration(whole['exposed_ms'])} with fewer in sync than needed"
    yield f"    available {share(whole['availability_ppm'])}, {without}{stopped}, {exposed}"
    noted = [
        count(whole["false_positives"], "false alarm"),
        *(
            [f"{whole['controller_caused']:,} of these by a change of controllers"]
            if whole["controller_caused"]
            else []
        ),
        *([count(whole["flaps"], "flap")] if whole["flaps"] else []),
        *([f"{whole['routes_late']:,} of {whole['routed']:,} routes late"] if whole["routes_late"] else []),
    ]
    yield f"    {', '.join(noted)}"
    months = [(month(row["from_day"]), row) for row in found["months"][:2]]
    if months:
        told = (f"{name} {row['failovers']:,}, {share(row['availability_ppm'])}, {kept(row)}" for name, row in months)
        yield f"    failovers, available, kept {SLO}: {'; '.join(told)}"


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
            harmless(shortened(f"{row['cluster']}/{row['broker_set']}", NAME_CHARACTERS)),
            *(duration(row[name]) for name in ("outage_ms", "exposed_ms")),
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
