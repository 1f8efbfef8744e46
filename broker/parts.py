"""
The parts of a broker process that are not deterministic: clocks, draws, threads, and who the process is.

Here: ``Parts``, with the real ones as defaults. Not here: files (``node.files``), sockets (the running loop's).
Every other module of a broker gets its clock, its chance and its threads from here, so that the same process runs in a
simulation, from its start to its end, on virtual time.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

from rollcall_ha.broker.folds.ports import FoldSizes
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.node.files import birthmark
from rollcall_ha.node.tls import Credentials

_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


def _one_thread() -> Executor:
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix="disk")


def disk_room(folder: Path) -> tuple[int, int]:
    """*Blocking*. What a process without privileges can still write counts as free. Raises ``OSError``."""
    found = os.statvfs(folder)
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


class Parts(Frozen):
    """The clocks, draws and threads of one process."""

    now_us: Callable[[], int] = lambda: time.monotonic_ns() // 1_000
    """The monotonic clock of this machine."""
    wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    """UTC, for records and file names; only the age of records is decided by it (``broker.retention``)."""
    draw: Callable[[], str] = lambda: secrets.token_hex(16)
    """32 hex digits that nobody else has: incarnations, register codes, nonces, store ids."""
    boot_id: Callable[[], str] = lambda: _BOOT_ID_FILE.read_text().strip()
    """Names this boot of the machine (R3b)."""
    birthmark: Callable[[Path], str] = birthmark
    """A mark of a file that no copy of it has (R3)."""
    make_disk: Callable[[], Executor] = _one_thread
    """One thread for all durable writes of this process but the log's own syncs."""
    disk_room: Callable[[Path], tuple[int, int]] = disk_room
    """Size of the file system of a folder, and what is free of it, in bytes."""
    credentials: Credentials | None = None
    """For every port but the Raft log's; None: an insecure fleet, links are plain and everybody is believed."""
    on_flush_due: Callable[[], None] | None = None
    """None: the log has a flush thread. Else its owner runs ``CommitLog.flush_turn`` (``CommitLog.open``)."""

    fold_sizes: FoldSizes = FoldSizes()

    measures_disk: bool = False
    """Whether the process measures what its state takes on a real disk."""

    def now_ms(self) -> int:
        """The monotonic clock in milliseconds."""
        return self.now_us() // 1_000
