"""
``make bench-vs-rocketmq``: Rollcall beside Apache RocketMQ, one after the other on the same machine, under the same load.

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
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from tests.interop_java.admin import to_stderr
from tests.interop_java.artifacts import JavaUnavailableError, RocketMq, obtain
from tests.perf.machine import ROOT, Tried, describe
from tests.perf.versus import controllers, fleets
from tests.perf.versus.rows import SIDES, Context, Done, Report, Section, gather, markdown, text

SECTIONS: tuple[Section, ...] = (
    fleets.FAILOVER,
    controllers.LEADER,
    *controllers.SETS,
    fleets.PUT,
    fleets.CATCH_UP,
)
RUNS = 3


def run_section(section: Section, side: str, number: int, root: Path, rocketmq: RocketMq, *, is_quick: bool) -> Done:
    """One run of one section on one side, in a directory of its own."""
    directory = root / f"{section.name}-{side}-{number}"
    directory.mkdir()
    context = Context(side=side, directory=directory, rocketmq=rocketmq, is_quick=is_quick, say=to_stderr)
    tried = Tried(lambda: section.run(context), directory)
    return Done(
        section=section.name,
        side=side,
        number=number,
        seconds=tried.seconds,
        load_before=tried.load_before,
        cpu_of_others=tried.cpu_of_others,
        values=tried.values,
        detail=context.detail,
        error=tried.error,
    )


def run_all(
    sections: Sequence[Section], runs: int, root: Path, rocketmq: RocketMq, *, on: Sequence[str], is_quick: bool
) -> list[Done]:
    """Every section on each side once, then again; who begins changes from run to run."""
    done: list[Done] = []
    for number in range(1, runs + 1):
        for section in sections:
            for side in on if number % 2 else on[::-1]:
                sys.stderr.write(f"run {number} of {runs}  {section.title}: {side}\n")
                done.append(run_section(section, side, number, root, rocketmq, is_quick=is_quick))
                sys.stderr.write(f"    {done[-1].seconds:.0f} s, others used {done[-1].cpu_of_others:.2f} cores\n")
    return done


def merge(reports: Sequence[Report]) -> Report:
    """The runs of several pieces as if they had been one; runs of the same section are numbered on."""
    runs: list[Done] = []
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


def write(report: Report, path: Path) -> None:
    """The JSON file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def read(path: Path) -> Report:
    """A JSON file that ``write`` left."""
    return msgspec.json.decode(path.read_bytes(), type=Report)


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 1: a run failed."""
    parser = argparse.ArgumentParser(prog="make bench-vs-rocketmq", description=(__doc__ or "").strip().splitlines()[0])
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
        write(report, options.json)
        print(f"{text(report.measured)}\n\n{len(report.runs)} runs; all samples in {options.json}")
        return 0
    try:
        rocketmq = obtain()
    except JavaUnavailableError as error:
        print(f"SKIPPED  {error}\nRESULT  1 skipped: nothing was measured")
        return 0
    sections = [section for section in SECTIONS if not options.only or section.name in options.only]
    began = time.monotonic()
    root = Path(tempfile.mkdtemp(prefix="rollcall-versus-"))
    machine = describe(root)
    print(machine.text(), flush=True)
    count = options.runs or (1 if options.quick else RUNS)
    on = (options.side,) if options.side else SIDES
    runs = run_all(sections, count, root, rocketmq, on=on, is_quick=options.quick)
    failed = [done for done in runs if done.error]
    if not failed:
        root.rmdir()
    report = Report(
        machine=machine,
        version=rocketmq.version,
        command=" ".join(["python -m tests.perf.versus", *(arguments if arguments is not None else sys.argv[1:])]),
        seconds=round(time.monotonic() - began, 1),
        measured=gather(sections, runs),
        runs=runs,
    )
    write(report, options.json)
    print(f"\n{text(report.measured)}\n\n{len(runs)} runs in {report.seconds:.0f} s; all samples in {options.json}")
    for done in failed:
        print(f"FAILED  {done.section}, {done.side}, run {done.number}: {done.error.strip().splitlines()[-1]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
