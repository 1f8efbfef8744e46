"""
What a process's state takes on its disk, and what is left there, for metrics.

Here: measuring on a thread, every ``INTERVAL_S``. Not here: limits (``broker.log``, ``controller.runtime``), alarms
(``deploy/prometheus``).

Rule 1: nothing is measured on the loop, nor at a scrape: a disk that hangs holds the thread that asked it.
Rule 2: a value that is older than ``KEPT_S`` is not shown: it would say that a disk has room which nobody can ask.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import msgspec
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

INTERVAL_S: Final = 10.0
KEPT_S: Final = 60.0
FILES_MAX: Final = 100_000
"""The most files of one directory that are counted."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement, in bytes."""

    used: Mapping[str, int]
    """By the name of the part."""
    free: int
    """What a process without privileges can still write to the file system."""
    size: int
    measured_at_s: float


def measure(directory: Path, parts: Mapping[str, Path], clock_s: Callable[[], float] = time.monotonic) -> Usage:
    """Blocking. ``parts``: files and directories by name; one that is not there has 0. Raises ``OSError``."""
    found = os.statvfs(directory)
    return Usage(
        used={name: _taken_bytes(path) for name, path in parts.items()},
        free=found.f_bavail * found.f_frsize,
        size=found.f_blocks * found.f_frsize,
        measured_at_s=clock_s(),
    )


def _taken_bytes(path: Path) -> int:
    """Blocks on the disk, not lengths: a log segment is as long as it may get, and mostly a hole at first."""
    taken, left, folders = 0, FILES_MAX, [path]
    while folders and left > 0:
        folder = folders.pop()
        try:
            if not folder.is_dir():
                return taken + folder.stat().st_blocks * 512
            with os.scandir(folder) as entries:
                for entry in entries:
                    left -= 1
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    else:
                        taken += entry.stat(follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:
            continue  # removed while it was looked at, or not made yet
    return taken


class DiskUsage(Collector):
    """The newest measurement as metrics; ``run`` takes it again and again."""

    def __init__(self, directory: Path, parts: Mapping[str, Path], registry: CollectorRegistry) -> None:
        """``directory``: whose file system is asked. Nothing is measured yet."""
        self._directory = directory
        self._parts = dict(parts)
        self._usage: Usage | None = None
        registry.register(self)

    async def run(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        # Its own: on a thread that others wait for, a disk that hangs would hold them too.
        with_thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="disk-usage")
        try:
            while True:
                try:
                    self._usage = await loop.run_in_executor(with_thread, measure, self._directory, self._parts)
                except OSError:
                    self._usage = None  # the log has its own way to say that its disk fails
                await asyncio.sleep(INTERVAL_S)
        finally:
            with_thread.shutdown(wait=False, cancel_futures=True)

    @property
    def taken_share(self) -> float | None:
        """Of the disk, whoever has taken it; None: not known (rule 2)."""
        usage = self._usage
        if usage is None or not usage.size or time.monotonic() - usage.measured_at_s > KEPT_S:
            return None
        return 1 - usage.free / usage.size

    def collect(self) -> Iterable[Metric]:
        """Nothing, if the newest measurement is too old (rule 2)."""
        usage = self._usage
        if usage is None or time.monotonic() - usage.measured_at_s > KEPT_S:
            return
        used = GaugeMetricFamily(
            "rollcall_state_bytes", "Blocks on disk that a part of the state takes.", labels=["part"]
        )
        for name, taken in sorted(usage.used.items()):
            used.add_metric([name], taken)
        yield used
        yield GaugeMetricFamily("rollcall_disk_free_bytes", "Left on the disk of the state.", value=usage.free)
        yield GaugeMetricFamily("rollcall_disk_size_bytes", "Size of the disk of the state.", value=usage.size)
