"""
``make bench-field``: faults of Rollcall beside those of what people use in its place, as a client that keeps trying feels them.

    python -m tests.perf.field [--only rollcall,etcd] [--runs 3] [--columns default] [--faults kill,stop] [--json FILE]

Every system runs on this machine, one after the other, each row with members of its own. What is found goes into the JSON
file, cell by cell, and the table of docs/bench-field.md is made of it: a part replaces its own cells, and no others. With
another file than the default one (``--json``) the page stays as it is.

A system that cannot be had is skipped, which its row says. The exit code is 1 if a row could not be measured; what is left
of that, logs too, stays in the temporary folder, and so does a row in which writes did not go on. After ``BENCH_S_MAX`` no row is begun; the file has each row at once.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from tests.docs import made_tables
from tests.perf.field import etcd, kafka, patroni, rocketmq, rollcall, sentinel
from tests.perf.field.measuring import Limits, measure
from tests.perf.field.published import MEASURED, read
from tests.perf.field.rows import Report, Row, Told, joined, table, tell
from tests.perf.field.system import Column, Fault, Kind, UnavailableError
from tests.perf.machine import Machine, describe
from tests.perf.section import write_report

KINDS: tuple[Kind, ...] = (rollcall.KIND, rocketmq.KIND, kafka.KIND, etcd.KIND, sentinel.KIND, patroni.KIND)
RUNS = 3
BENCH_S_MAX = 60 * 60
PAGE = "bench-field"

T = TypeVar("T", bound=str)


def main(
    arguments: Sequence[str] | None = None,
    kinds: Sequence[Kind] = KINDS,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
) -> int:
    """Exit code 1: a row failed. ``kinds``: the systems that may be run."""
    options = _options(arguments, kinds)
    # A bench that is told to end still ends what it started.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    root = Path(tempfile.mkdtemp(prefix="rollcall-field-", dir=options.dir))
    root.chmod(0o755)  # for servers that give their rights away
    machine = describe(root)
    print(machine.text(), flush=True)
    had, told = obtain_all([kind for kind in kinds if kind.name in options.only], machine, _command(options, kinds))
    before, rows = read(options.json), list[Row]()

    def keep() -> Report:
        part = Report(systems=told, rows=rows)
        report = joined(before, part, [kind.name for kind in kinds])
        write_report(report, options.json)
        if options.json == MEASURED:
            made_tables.write(PAGE)
        return part

    part = keep()
    for row in measured(had, options, root, limits):
        rows.append(row)
        part = keep()
    failed = [row for row in rows if row.error]
    kept = sorted(root.iterdir())
    if not kept:
        root.rmdir()
    print(f"\n{table(part)}\nall rows in {options.json}")
    for directory in kept:
        print(f"KEPT  {directory}")
    for row in failed:
        print(f"FAILED  {_name(row)}, run {row.run}: {row.error.strip().splitlines()[-1]}")
    counts = {"systems": len(had), "skipped": len(told) - len(had), "rows": len(rows), "failed": len(failed)}
    print(f"RESULT {json.dumps(counts | {'acked': sum(row.acked for row in rows)})}")
    return int(bool(failed))


def obtain_all(kinds: Sequence[Kind], machine: Machine, command: str) -> tuple[list[Kind], list[Told]]:
    """(those that can be had, what the table tells of each)."""
    had: list[Kind] = []
    told: list[Told] = []
    for kind in kinds:
        version = skipped = ""
        try:
            version = kind.obtain()
        except UnavailableError as error:
            skipped = str(error)
            print(f"SKIPPED  {kind.title}: {skipped}")
        else:
            had.append(kind)
        told.append(tell(kind, version=version, skipped=skipped, machine=machine, command=command))
    return had, told


def measured(kinds: Sequence[Kind], options: argparse.Namespace, root: Path, limits: Limits) -> Iterator[Row]:
    """Every row once, then again: a busy quarter of an hour touches every system, not all runs of one."""
    began = time.monotonic()
    wanted = [
        (run, kind, column, fault)
        for run in range(1, options.runs + 1)
        for kind in kinds
        for column in options.columns
        for fault in kind.faults
        if fault in options.faults
    ]
    for number, (run, kind, column, fault) in enumerate(wanted):
        if time.monotonic() - began > BENCH_S_MAX:
            print(
                f"the bench has taken {BENCH_S_MAX // 60} min: {len(wanted) - number} of {len(wanted)} rows are not begun"
            )
            return
        directory = root / f"{kind.name}-{column}-{fault}-{run}"
        row = measure(kind, column, fault, run=run, directory=directory, limits=limits)
        said = row.error or (f"{row.gap.ms:,.0f} ms{'' if row.gap.has_end else ' and more'}" if row.gap else "")
        sys.stderr.write(f"run {run} of {options.runs}  {_name(row)}: {said} ({row.seconds:.0f} s)\n")
        sys.stderr.flush()
        yield row


def _name(row: Row) -> str:
    return f"{row.system} {row.column} {row.fault}"


def _command(options: argparse.Namespace, kinds: Sequence[Kind]) -> str:
    """What was asked for; where the answer went is nobody's."""
    found = ["python -m tests.perf.field"]
    for name, known in (("only", [kind.name for kind in kinds]), ("columns", list(Column)), ("faults", list(Fault))):
        chosen = list(getattr(options, name))
        found += [] if chosen == known else [f"--{name} {','.join(chosen)}"]
    found += [] if options.runs == RUNS else [f"--runs {options.runs}"]
    return " ".join(found)


def _options(arguments: Sequence[str] | None, kinds: Sequence[Kind]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench-field", description=(__doc__ or "").strip().splitlines()[0])
    names = [kind.name for kind in kinds]

    def some_of(known: Sequence[T]) -> str:
        return f"some of {','.join(known)}"

    def listed(known: Sequence[T]) -> Callable[[str], list[T]]:
        def chosen(text: str) -> list[T]:
            unknown = sorted(set(text.split(",")) - set(known))
            if unknown:
                raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is none of {', '.join(known)}")
            return [one for one in known if one in text.split(",")]

        return chosen

    parser.add_argument("--only", type=listed(names), default=names, help=some_of(names))
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--columns", type=listed(tuple(Column)), default=tuple(Column), help=some_of(tuple(Column)))
    parser.add_argument("--faults", type=listed(tuple(Fault)), default=tuple(Fault), help=some_of(tuple(Fault)))
    parser.add_argument("--json", type=lambda text: Path(text).resolve(), default=MEASURED, help=f"default: {MEASURED}")
    parser.add_argument("--dir", type=Path, help="where the members lie; default: the system's temporary folder")
    options = parser.parse_args(arguments)
    if options.runs < 1:
        parser.error(f"--runs {options.runs}: at least 1")
    return options


if __name__ == "__main__":
    sys.exit(main())
