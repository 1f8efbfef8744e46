"""
``make bench``: everything that Rollcall claims about its speed, measured on real processes.

    python -m tests.perf [--quick] [--only NAME]... [--runs 3] [--json out/bench.json] [--keep]

One table on standard output, the same with all samples as JSON beside it, progress on standard error. Three runs, each
with fleets of its own; aims are those of docs/numbers.md. The exit code is 0 whatever is reached: numbers of a shared
machine judge nobody. It is 1 if a run of a bench failed; what is left of it, logs too, stays in the temporary folder then.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.perf import (
    bench_catch_up,
    bench_catch_up_beside,
    bench_failover,
    bench_processes,
    bench_put,
    bench_sets,
    bench_tls,
)
from tests.perf.machine import ROOT, Machine, describe
from tests.perf.results import Result, Run, gather, table
from tests.perf.section import Context, Section, print_failed, run_section, write_report

SECTIONS: tuple[Section, ...] = (
    bench_failover.KILL,
    bench_failover.STOP,
    bench_failover.LEADER,
    bench_put.PUT,
    bench_catch_up.CATCH_UP,
    bench_catch_up_beside.CATCH_UP_BESIDE,
    bench_sets.SETS_SECTION,
    bench_processes.PROCESSES,
    bench_tls.TLS,
)
RUNS = 3


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON file."""

    machine: Machine
    command: str
    seconds: float
    results: list[Result]
    runs: list[Run]


def run_all(sections: Sequence[Section], runs: int, root: Path, *, is_quick: bool) -> list[Run]:
    """Every section once, then again: a busy quarter of an hour touches every section, not all runs of one."""
    done: list[Run] = []
    for number in range(1, runs + 1):
        for section in sections:
            sys.stderr.write(f"run {number} of {runs}  {section.title}\n")
            context = Context(directory=root / f"{section.name}-{number}", is_quick=is_quick)
            done.append(run_section(section, number, context))
    return done


def main(arguments: Sequence[str] | None = None, known: Sequence[Section] = SECTIONS) -> int:
    """Exit code 1: a run failed. ``known``: the sections that may be run."""
    parser = argparse.ArgumentParser(prog="make bench", description=(__doc__ or "").strip().splitlines()[0])
    names = [section.name for section in known]
    parser.add_argument("--quick", action="store_true", help="one short run of everything, less than three minutes")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"of: {', '.join(names)}")
    parser.add_argument("--runs", type=int, help=f"instead of {RUNS}, or of 1 with --quick")
    parser.add_argument("--json", type=Path, default=ROOT / "out" / "bench.json")
    parser.add_argument("--dir", type=Path, help="where the fleets lie; default: the system's temporary folder")
    options = parser.parse_args(arguments)
    sections = [section for section in known if not options.only or section.name in options.only]
    began = time.monotonic()
    root = Path(tempfile.mkdtemp(prefix="rollcall-perf-", dir=options.dir))
    machine = describe(root)
    print(machine.text(), flush=True)
    runs = run_all(sections, options.runs or (1 if options.quick else RUNS), root, is_quick=options.quick)
    if not any(run.error for run in runs):
        root.rmdir()
    results = [
        result
        for section in sections
        for result in gather(
            section.name, section.measures, [run.values for run in runs if run.section == section.name and run.values]
        )
    ]
    report = Report(
        machine=machine,
        command=" ".join(["python -m tests.perf", *(arguments if arguments is not None else sys.argv[1:])]),
        seconds=round(time.monotonic() - began, 1),
        results=results,
        runs=runs,
    )
    write_report(report, options.json)
    print(f"\n{table(results)}\n\n{len(runs)} runs in {report.seconds:.0f} s; all samples in {options.json}")
    reached = sum(result.is_reached is True for result in results)
    missed = sum(result.is_reached is False for result in results)
    found = {
        "benches": len(sections),
        "runs": len(runs),
        "failed": print_failed(runs),
        "reached": reached,
        "missed": missed,
    }
    print(f"RESULT {json.dumps(found)}")
    return int(bool(found["failed"]))


if __name__ == "__main__":
    sys.exit(main())
