"""
``make prove PARTS=bench-vs-rocketmq``: Rollcall beside Apache RocketMQ, one after the other on the same machine, under the same load.

    python -m tests.perf.versus [--quick] [--only NAME]... [--side NAME] [--runs 3] [--json out/versus.json]
    python -m tests.perf.versus --merge out/a.json --merge out/b.json

Each section runs on the one side, then on the other, then again; a table with ratios on standard output, the same with
all samples as JSON beside it, progress on standard error. The exit code is 0 whatever comes out, also if Java or Maven
cannot be had, which is said; 1 if a run could not be finished: what is left of it stays in the temporary folder.

All of it takes most of an hour. ``--only`` measures in pieces, each into a file of its own (``--json``), and ``--merge``
puts their runs together. ``--markdown out/versus.json`` prints the tables of docs/numbers-vs-rocketmq.md.
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

from tests.interop_java.artifacts import JavaUnavailableError, RocketMq, obtain
from tests.perf.machine import ROOT, describe
from tests.perf.results import Run
from tests.perf.section import Context, Section, print_failed, run_section, write_report
from tests.perf.versus import controllers, fleets, messages
from tests.perf.versus.rows import SIDES, Report, gather, markdown, text

SECTIONS: tuple[Section, ...] = (
    fleets.FAILOVER,
    controllers.LEADER,
    *controllers.SETS,
    fleets.PUT,
    fleets.CATCH_UP,
    *messages.MESSAGES,
)
RUNS = 3


def run_all(
    sections: Sequence[Section], runs: int, root: Path, rocketmq: RocketMq, *, on: Sequence[str], is_quick: bool
) -> list[Run]:
    """Every section on each side once, then again; who begins changes from run to run."""
    done: list[Run] = []
    for number in range(1, runs + 1):
        for section in sections:
            for side in on if number % 2 else on[::-1]:
                sys.stderr.write(f"run {number} of {runs}  {section.title}: {side}\n")
                directory = root / f"{section.name}-{side}-{number}"
                context = Context(directory=directory, is_quick=is_quick, side=side, java=rocketmq)
                done.append(run_section(section, number, context))
    return done


def merge(reports: Sequence[Report]) -> Report:
    """The runs of several pieces as if they had been one; runs of the same section are numbered on."""
    runs: list[Run] = []
    for done in (done for report in reports for done in report.runs):
        earlier = sum((other.section, other.side) == (done.section, done.side) for other in runs)
        runs.append(msgspec.structs.replace(done, number=earlier + 1))
    return msgspec.structs.replace(
        reports[0],
        command="; ".join(report.command for report in reports),
        seconds=round(sum(report.seconds for report in reports), 1),
        measured=gather(SECTIONS, runs),
        runs=runs,
    )


def read(path: Path) -> Report:
    """A JSON file that ``write_report`` left."""
    return msgspec.json.decode(path.read_bytes(), type=Report)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1: a run failed."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.perf.versus", description=(__doc__ or "").strip().splitlines()[0]
    )
    names = [section.name for section in SECTIONS]
    parser.add_argument("--quick", action="store_true", help="one short run of everything")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"of: {', '.join(names)}")
    parser.add_argument("--side", choices=SIDES, help="only this one, to look where its time goes")
    parser.add_argument("--runs", type=int, help=f"instead of {RUNS}, or of 1 with --quick")
    parser.add_argument("--json", type=Path, default=ROOT / "out" / "versus.json")
    parser.add_argument("--merge", action="append", type=Path, metavar="JSON", help="measure nothing; runs of pieces")
    parser.add_argument("--markdown", type=Path, metavar="JSON", help="measure nothing; print a run's tables")
    options = parser.parse_args(arguments)
    if options.markdown is not None:
        print("\n".join(markdown(read(options.markdown), SECTIONS)))
        return 0
    if options.merge:
        report = merge([read(path) for path in options.merge])
        write_report(report, options.json)
        print(f"{text(report.measured)}\n\n{len(report.runs)} runs; all samples in {options.json}")
        return 0
    try:
        rocketmq = obtain()
    except JavaUnavailableError as error:
        print(f"SKIPPED  {error}\nRESULT {json.dumps({'skipped_because': str(error)})}")
        return 0
    sections = [section for section in SECTIONS if not options.only or section.name in options.only]
    began = time.monotonic()
    root = Path(tempfile.mkdtemp(prefix="rollcall-versus-"))
    machine = describe(root)
    print(machine.text(), flush=True)
    count = options.runs or (1 if options.quick else RUNS)
    on = (options.side,) if options.side else SIDES
    runs = run_all(sections, count, root, rocketmq, on=on, is_quick=options.quick)
    if not any(done.error for done in runs):
        root.rmdir()
    report = Report(
        machine=machine,
        version=rocketmq.version,
        command=" ".join(["python -m tests.perf.versus", *(arguments if arguments is not None else sys.argv[1:])]),
        seconds=round(time.monotonic() - began, 1),
        measured=gather(sections, runs),
        runs=runs,
    )
    write_report(report, options.json)
    print(f"\n{text(report.measured)}\n\n{len(runs)} runs in {report.seconds:.0f} s; all samples in {options.json}")
    result = {"benches": len(sections), "runs": len(runs), "failed": print_failed(runs)}
    print(f"RESULT {json.dumps(result)}")
    return int(bool(result["failed"]))


if __name__ == "__main__":
    sys.exit(main())
