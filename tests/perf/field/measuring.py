"""
One fault of one system: start it, write, strike, look until writes go on, end it.

Here: the strike, how long is looked. Not here: what a gap is (``rows``), which rows are wanted (``__main__``).

Rule 1: each row has members of its own, on an empty disk: what an earlier fault left behind counts for nobody.
Rule 2: the bench sends signals to processes and nothing else; no system is told of a fault.
Rule 3: a row ends: it is looked ``look_s_max`` for the next acknowledgement.
"""

from __future__ import annotations

import os
import shutil
import signal
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from rollcall_ha.deploy.local.processes import DeadlineError, LauncherError, wait_until
from tests.perf.field.rows import Gap, Row, gap_of
from tests.perf.field.system import Column, Fault, Kind, Master, System
from tests.perf.field.writing import Writer
from tests.perf.machine import Others

BACK_ACKS, STEADY_S = 20, 2.0
"""Writes go on when so many came from another member, and so long is looked for a second gap."""
FRESH_S = 1.0
"""A client that heard nothing for so long is in a gap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How long a row waits, and for what."""

    warm_acks: int = 300
    """Before the fault: Java compiles what is used."""
    warm_s_max: float = 60.0
    look_s_max: float = 90.0
    """After the fault (rule 3)."""


def measure(kind: Kind, column: Column, fault: Fault, *, run: int, directory: Path, limits: Limits) -> Row:
    """A row, whatever happens; ``directory`` stays if it failed, or has no end."""
    directory.mkdir(parents=True)
    # A server that gives its rights away has to come through; what lies in it are 1,024 times x.
    directory.chmod(0o755)
    load, others, began = os.getloadavg()[0], Others(), time.monotonic()
    found, error = _Found(), ""
    try:
        _measure(kind.make(directory, column), kind, fault, found, limits)
    except Exception as failure:  # noqa: BLE001 (the other rows have their own members)
        error = "".join(traceback.format_exception(failure))
    else:
        # Who asks why nobody took a write any more finds the answer in the logs.
        if found.gap is not None and found.gap.has_end:
            shutil.rmtree(directory, ignore_errors=True)
    return Row(
        system=kind.name,
        column=column,
        fault=fault,
        run=run,
        gap=None if error else found.gap,
        acked=found.acked,
        attempts=found.attempts,
        seconds=round(time.monotonic() - began, 1),
        load_before=round(load, 2),
        cpu_of_others=round(others.cores(), 2),
        error=error,
    )


class _Found:
    """What is known so far; of a row that fails, too."""

    gap: Gap | None = None
    acked = 0
    attempts = 0


def _measure(system: System, kind: Kind, fault: Fault, found: _Found, limits: Limits) -> None:
    try:
        system.start()
        master = system.master()
        # Whoever writes has found the master already: only what comes after the fault is measured.
        addresses = sorted(system.addresses, key=lambda address: address != master.address)
        with Writer(addresses, system.client) as writer:
            try:
                writer.wait_acks(limits.warm_acks, deadline_s=limits.warm_s_max)
                fault_at_ns, struck = strike(system, fault)
                look_s = kind.look_s if fault is Fault.DECIDER else None
                is_back = look(writer, struck, fault_at_ns, look_s=look_s, look_s_max=limits.look_s_max)
                until_ns = time.monotonic_ns()
            finally:
                found.acked, found.attempts = len(writer.acks), writer.attempts
        stamps = [at_ns for at_ns, _ in writer.acks if at_ns <= until_ns]
        found.gap = gap_of(stamps, fault_at_ns, given_up_at_ns=None if is_back else until_ns)
    finally:
        system.stop()


def strike(system: System, fault: Fault) -> tuple[int, Master]:
    """(CLOCK_MONOTONIC in ns just before the first signal, the master of that moment)."""
    master = system.master()
    pids = () if fault is Fault.DECIDER else master.pids
    if fault in (Fault.DECIDER, Fault.BOTH):
        pids += system.decider()
    number = signal.SIGSTOP if fault is Fault.STOP else signal.SIGKILL
    at_ns = time.monotonic_ns()
    struck = 0
    for pid in pids:
        # Servers have processes that live for one question, and those of a server that is dead end by themselves.
        with suppress(ProcessLookupError):
            os.kill(pid, number)
            struck += 1
    if pids and not struck:
        raise LauncherError(f"none of the processes {pids} of {master.address} lived when they were to be struck")
    return at_ns, master


def look(writer: Writer, struck: Master, fault_at_ns: int, *, look_s: float | None, look_s_max: float) -> bool:
    """
    Whether writes go on; returns when that is known, or after ``look_s_max``.

    ``look_s``: where the master lives, how long to wait for a gap; None: it does not, and another member has to be heard.
    """

    def is_over() -> bool:
        writer.check()
        last = [(at_ns, by) for at_ns, by in writer.acks[-BACK_ACKS:] if at_ns > fault_at_ns]
        now_ns = time.monotonic_ns()
        if len(last) < BACK_ACKS or now_ns - last[-1][0] > FRESH_S * 1e9:
            return False
        if look_s is not None:
            return now_ns - fault_at_ns > look_s * 1e9
        # The last words of a master that was struck are on their way for a moment.
        if any(by == struck.address for _, by in last):
            return False
        back_at_ns = next(at_ns for at_ns, by in writer.acks if at_ns > fault_at_ns and by != struck.address)
        return now_ns - back_at_ns > STEADY_S * 1e9

    try:
        wait_until(is_over, deadline_s=look_s_max, what="writes to go on")
    except DeadlineError:
        return False
    return True
