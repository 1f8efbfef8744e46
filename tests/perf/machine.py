"""
What the numbers were measured on: cores, memory, versions, commit, and how busy others kept it.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import psutil

ROOT = Path(__file__).resolve().parents[2]
SYNC_PROBES = 40


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """As printed above the table."""

    cores: int
    memory_gib: float
    system: str
    python: str
    commit: str
    date: str
    sync_ms: float
    """Median of a 512-byte write with fdatasync in the folder of the benches: many rows stand on it."""

    def text(self) -> str:
        """One line."""
        return (
            f"{self.cores} cores, {self.memory_gib:.0f} GiB, {self.system}, Python {self.python}, commit {self.commit},"
            f" {self.date}, fdatasync {self.sync_ms:.2f} ms"
        )


def describe(directory: Path) -> Machine:
    """Look at this machine; ``directory`` is where the fleets will lie."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return Machine(
        cores=os.cpu_count() or 0,
        memory_gib=psutil.virtual_memory().total / 2**30,
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        commit=done.stdout.strip() or "unknown",
        date=datetime.now(tz=UTC).strftime("%Y-%m-%dT%H:%MZ"),
        sync_ms=sync_ms(directory),
    )


def sync_ms(directory: Path) -> float:
    """Median of a small write with fdatasync."""
    path = directory / "sync-probe"
    took = []
    with path.open("wb") as file:
        for _ in range(SYNC_PROBES):
            began = time.perf_counter()
            os.write(file.fileno(), bytes(512))
            os.fdatasync(file.fileno())
            took.append((time.perf_counter() - began) * 1000)
    path.unlink()
    return sorted(took)[len(took) // 2]


class Others:
    """How many cores processes that are not ours keep busy."""

    def __init__(self) -> None:
        """Begin to count."""
        self._began = time.monotonic()
        self._all = _busy_s()
        self._ours = self._own_s()
        self._gone_s = 0.0

    def _own_s(self) -> float:
        """Of this process with all children, also those that have ended."""
        times = psutil.Process().cpu_times()
        ours = times.user + times.system + times.children_user + times.children_system
        for child in psutil.Process().children(recursive=True):
            try:
                spent = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            ours += spent.user + spent.system
        return ours

    def cores(self) -> float:
        """Since the beginning. To be asked when our own processes of the section have ended and were reaped."""
        elapsed = max(1e-6, time.monotonic() - self._began)
        return max(0.0, (_busy_s() - self._all) - (self._own_s() - self._ours)) / elapsed


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


def cpu_s(pids: list[int]) -> float:
    """CPU seconds that these processes have used."""
    total = 0.0
    for pid in pids:
        spent = psutil.Process(pid).cpu_times()
        total += spent.user + spent.system
    return total


def resident_mib(pid: int) -> tuple[float, float]:
    """(resident, resident without file pages) of a process: mapped logs and libraries are page cache."""
    for_resident = for_shared = 0.0
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            for_resident = int(line.split()[1]) / 1024
        elif line.startswith(("RssFile:", "RssShmem:")):
            for_shared += int(line.split()[1]) / 1024
    return for_resident, for_resident - for_shared
