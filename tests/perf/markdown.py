"""
The tables of docs/numbers.md from the JSON of a run: ``python -m tests.perf.markdown [out/bench.json]``.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from tests.perf.__main__ import SECTIONS, Report
from tests.perf.machine import ROOT
from tests.perf.results import number

HEAD = ("what", "unit", "min", "median", "max", "aim", "verdict", "RocketMQ 5.3.3")


def lines(report: Report) -> Iterator[str]:
    """One table per section, with how busy the machine was during its runs."""
    for section in SECTIONS:
        results = [result for result in report.results if result.section == section.name]
        if not results:
            continue
        runs = [run for run in report.runs if run.section == section.name]
        load = ", ".join(f"{run.load_before:.1f}" for run in runs)
        others = ", ".join(f"{run.cpu_of_others:.2f}" for run in runs)
        yield f"## {section.title[0].upper()}{section.title[1:]}"
        yield ""
        yield f"Load before each run: {load}; cores that other processes used meanwhile: {others}."
        yield ""
        yield "| " + " | ".join(HEAD) + " |"
        yield "| --- " * 2 + "| ---: " * 3 + "| --- " * 3 + "|"
        for result in results:
            measure = result.measure
            numbers = (number(min(result.values)), number(result.median), number(max(result.values)))
            row = (measure.what.strip(), measure.unit, *numbers, measure.aim_text, result.verdict, measure.reference)
            yield "| " + " | ".join(row) + " |"
        yield ""


def main(arguments: Sequence[str]) -> int:
    """Print."""
    path = Path(arguments[0]) if arguments else ROOT / "out" / "bench.json"
    report = msgspec.json.decode(path.read_bytes(), type=Report)
    print(f"{report.machine.text()}. {len(report.runs)} runs in {report.seconds:.0f} s.\n")
    print("\n".join(lines(report)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
