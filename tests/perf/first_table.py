"""
What somebody's first table costs: ``rollcall analytics run`` over the journals of one fleet with three failovers.

    python -m tests.perf.first_table

CPU is that of the program and of all that it starts, looked at ten times a second: Java outlives its parent by a moment.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.perf.machine import describe
from tests.support.analytics_story import days_apart, lines_of, long_story, write_journals

LOOK_S = 0.1


class Told(NamedTuple):
    """CPU, time and words of one command."""

    cpu_s: float
    wall_s: float
    lines: list[str]
    """Standard error, progress and warnings: a person sees all of it."""
    code: int


def run_alone(folder: Path, *arguments: str) -> Told:
    """``rollcall analytics`` with ``arguments``, in a process of its own in ``folder``."""
    command = [sys.executable, "-m", "rollcall_ha.analytics.cli", *arguments]
    began = time.monotonic()
    with (folder / "said").open("wb") as said:
        started = psutil.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=said)
    cpu_s: dict[int, float] = {}
    while started.poll() is None:
        with suppress(psutil.NoSuchProcess):
            for process in (started, *started.children(recursive=True)):
                cpu_s[process.pid] = sum(process.cpu_times()[:2])
        # Looked at again and again: Java's children are gone, and their CPU with them, when the command has ended.
        time.sleep(LOOK_S)
    wall_s, lines = time.monotonic() - began, (folder / "said").read_text().splitlines()
    return Told(sum(cpu_s.values()), wall_s, lines, int(started.returncode))


def main() -> int:
    """Measure and print; the exit code of the run."""
    with tempfile.TemporaryDirectory(prefix="rollcall-first-") as name:
        folder = Path(name)
        lines = lines_of(days_apart(long_story().records))
        write_journals(lines, folder / "journals")
        print(describe(folder).text())
        told = run_alone(folder, "run", "journals", "--lake", "lake")
    print(*told.lines, sep="\n")
    print(f"{len(lines)} events: {told.cpu_s:.1f} CPU-s, {told.wall_s:.1f} s, {len(told.lines)} lines on stderr")
    return told.code


if __name__ == "__main__":
    sys.exit(main())
