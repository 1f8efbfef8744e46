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

import psutil

from tests.perf.machine import describe
from tests.support.analytics_story import days_apart, lines_of, long_story, write_journals

LOOK_S = 0.1


def main() -> int:
    """Measure and print; the exit code of the run."""
    with tempfile.TemporaryDirectory(prefix="rollcall-first-") as name:
        folder = Path(name)
        lines = lines_of(days_apart(long_story().records))
        write_journals(lines, folder / "journals")
        print(describe(folder).text())
        command = [sys.executable, "-m", "rollcall_ha.analytics.cli", "run", "journals", "--lake", "lake"]
        began = time.monotonic()
        with (folder / "said").open("wb") as said:
            started = psutil.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=said)
        cpu_s: dict[int, float] = {}
        while started.poll() is None:
            with suppress(psutil.NoSuchProcess):
                for process in (started, *started.children(recursive=True)):
                    cpu_s[process.pid] = sum(process.cpu_times()[:2])
            time.sleep(LOOK_S)
        wall_s, told = time.monotonic() - began, (folder / "said").read_text().splitlines()
    print(*told, sep="\n")
    print(f"{len(lines)} events: {sum(cpu_s.values()):.1f} CPU-s, {wall_s:.1f} s, {len(told)} lines on stderr")
    return int(started.returncode)


if __name__ == "__main__":
    sys.exit(main())
