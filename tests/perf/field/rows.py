"""
What was found, and the table that is made of it: pure.

Here: the gap of one fault, the JSON file, how a part goes into it, the table of docs/bench-field.md. Not here: measuring.

Rule 1: the figure is the longest time between two acknowledgements of which the later came after the fault.
Rule 2: a system that took no write any more is a finding: its gap is at least what was waited. A run that could not be
made is none, and is told as failed.
Rule 3: a cell is the median of its runs with the smallest and the greatest; runs without an end, and those that failed,
are counted beside it.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

import msgspec

from rollcall_ha.deploy.local.ledger import interruption
from tests.perf.field.system import Column, Fault, Kind
from tests.perf.machine import Machine
from tests.perf.results import number

FAULT_WORDS = {
    Fault.KILL: "SIGKILL of the master",
    Fault.STOP: "SIGSTOP of it",
    Fault.DECIDER: "SIGKILL of the one that decides",
    Fault.BOTH: "of both at once",
}


class Gap(msgspec.Struct, frozen=True, kw_only=True):
    ms: float
    has_end: bool
    """Whether an acknowledgement ended it; else it is at least so long."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One fault of one run."""

    system: str
    column: Column
    fault: Fault
    run: int
    gap: Gap | None = None
    """None: it could not be measured, and ``error`` says why."""
    acked: int = 0
    attempts: int = 0
    seconds: float = 0.0
    load_before: float = 0.0
    cpu_of_others: float = 0.0
    """Cores that processes which are not ours used on average."""
    error: str = ""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """A system as the table tells it, and when and where it was measured."""

    name: str
    title: str
    version: str = ""
    skipped: str = ""
    """Why it could not be had; empty: it was measured."""
    acknowledged: str
    decider: str
    settings: dict[Column, str]
    faults: tuple[Fault, ...]
    machine: Machine
    command: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON file: systems as the table tells them, and each row that was measured."""

    systems: list[Told]
    rows: list[Row]


def tell(kind: Kind, *, version: str, skipped: str, machine: Machine, command: str) -> Told:
    """What the table says of it besides its figures."""
    return Told(
        name=kind.name, title=kind.title, version=version, skipped=skipped, acknowledged=kind.acknowledged,
        decider=kind.decider, settings=dict(kind.settings), faults=kind.faults, machine=machine, command=command,
    )  # fmt: skip


def gap_of(acked_at_ns: Sequence[int], fault_at_ns: int, *, given_up_at_ns: int | None = None) -> Gap:
    """
    Rule 1; ``given_up_at_ns``: when it was given up to wait for writes to go on, None: they did. All of CLOCK_MONOTONIC.

    Raises ``ValueError`` without an acknowledgement before the fault, or where writes went on without one after it: then
    there was nothing to interrupt, or nothing that ended it.
    """
    before = [at_ns for at_ns in acked_at_ns if at_ns <= fault_at_ns]
    found = interruption(acked_at_ns, fault_at_ns)
    if not before or (found is None and given_up_at_ns is None):
        after = len(acked_at_ns) - len(before)
        raise ValueError(
            f"{len(before)} acknowledgements came before the fault and {after} after it; a gap lies between two"
        )
    if given_up_at_ns is None and found is not None:
        return Gap(ms=found.gap_ms, has_end=True)
    # One that ended may have been the longer one: what is said is that it took at least so long.
    silent_ms = ((given_up_at_ns or 0) - max(acked_at_ns)) / 1e6
    return Gap(ms=max(silent_ms, 0.0 if found is None else found.gap_ms), has_end=False)


def joined(before: Report, part: Report, order: Sequence[str]) -> Report:
    """
    ``before`` with what ``part`` measured anew: its systems, and its cells with all their runs.

    ``order``: of the systems, by name; one that is not in it is gone from the bench, and goes.
    """
    systems = {told.name: told for told in (*before.systems, *part.systems)}
    anew = {(row.system, row.column, row.fault) for row in part.rows}
    skipped = {told.name for told in part.systems if told.skipped}
    kept = [row for row in before.rows if row.system not in skipped and (row.system, row.column, row.fault) not in anew]
    return Report(
        systems=[systems[name] for name in order if name in systems],
        rows=[row for name in order for row in (*kept, *part.rows) if row.system == name],
    )


def cell(rows: Sequence[Row]) -> str:
    """The runs of one fault, in ms (rule 3)."""
    gaps = [row.gap for row in rows if row.gap is not None]
    values = [gap.ms for gap in gaps if gap.has_end]
    endless = [gap.ms for gap in gaps if not gap.has_end]
    failed = len(rows) - len(gaps)
    words = []
    if values:
        spread = f" ({number(min(values))}-{number(max(values))})" if len(values) > 1 else ""
        words.append(f"{number(statistics.median(values))}{spread}")
    if endless:
        words.append(f"no write for {number(min(endless))} and more in {len(endless)} of {len(rows)}")
    if failed:
        words.append(f"{failed} of {len(rows)} failed")
    return "; ".join(words) or "not measured"


def cells(told: Told, column: Column, rows: Sequence[Row]) -> list[str]:
    """One for each fault."""
    own = [row for row in rows if (row.system, row.column) == (told.name, column)]
    found = []
    for fault in Fault:
        if fault in told.faults:
            found.append(cell([row for row in own if row.fault is fault]))
        else:
            found.append("the master decides")
    return found


def table(report: Report) -> str:
    """The tables of the page: figures, then what they were measured with."""
    head = ["system", "settings", *FAULT_WORDS.values()]
    lines = ["| " + " | ".join(head) + " |", "| --- | --- |" + " ---: |" * len(FAULT_WORDS)]
    for told in report.systems:
        if told.skipped:
            reason = " ".join(told.skipped.split()).replace("|", "/")
            lines.append(f"| {told.title} | skipped: {reason} |" + "  |" * len(FAULT_WORDS))
            continue
        for column in told.settings:
            words = [f"{told.title} {told.version}", column.value, *cells(told, column, report.rows)]
            lines.append("| " + " | ".join(words) + " |")
    lines += ["", "| system | acknowledged when | who decides | default | tuned | measured |", "| --- " * 6 + "|"]
    for told in report.systems:
        runs = max((row.run for row in report.rows if row.system == told.name), default=0)
        measured = "skipped" if told.skipped else f"{told.machine.date}, commit {told.machine.commit}, {_runs(runs)}"
        measured += "" if told.skipped else f", {_busy(row for row in report.rows if row.system == told.name)}"
        settings = (told.settings[column] for column in Column)
        words = [f"{told.title} {told.version}".rstrip(), told.acknowledged, told.decider, *settings, measured]
        lines.append("| " + " | ".join(words) + " |")
    machines = [told.machine for told in report.systems if not told.skipped]
    lines += ["", *sorted({_machine(one, machines) for one in machines})]
    commands = sorted({f"`{told.command}`" for told in report.systems})
    lines += ["", f"By {', '.join(commands)}."]
    return "\n".join(lines) + "\n"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _busy(rows: Iterable[Row]) -> str:
    """How busy others kept the machine meanwhile."""
    cores = [row.cpu_of_others for row in rows]
    return f"others used {number(statistics.median(cores))} cores, at most {number(max(cores))}" if cores else "no row"


def _machine(machine: Machine, all_of_them: Sequence[Machine]) -> str:
    """Without what differs from day to day on one machine, but for how long its disk took."""
    words = f"{machine.cores} cores, {machine.memory_gib:.0f} GiB, {machine.system.partition('-')[0]}, Python {machine.python}"
    alike = [one.sync_ms for one in all_of_them if (one.cores, one.system) == (machine.cores, machine.system)]
    return f"{words}; fdatasync {number(min(alike))} to {number(max(alike))} ms."
