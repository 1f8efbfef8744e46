"""
Block devices for the disks of machines, and how one is made slow: a loop device that the kernel throttles.

Here: mounting one, and throttling it. Not here: faults of processes that believe their disk is slow (``disk.c``).

Rule 1: every writer of the device waits, also the kernel's own journal: that is why the limit is on the root of the ``blkio``
hierarchy, and why nothing but the small device of a test has one.
Rule 2: a throttled device is let go at the end, whatever happens: unmounting it would else take as long as its backlog.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

THROTTLE = Path("/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device")


def why_no_slow_device() -> str:
    """Why no device can be made slow here; empty: one can."""
    if not os.access(THROTTLE, os.W_OK):
        return f"a slow device needs {THROTTLE} (the blkio controller of cgroup version 1, mounted and writable)"
    return ""


def mount_device(image: Path, disk: Path, size_bytes: int) -> None:
    """A new file system, on a loop device that goes with its last mount. Raises ``CalledProcessError``."""
    image.parent.mkdir(parents=True, exist_ok=True)
    with image.open("wb") as file:
        file.truncate(size_bytes)
    # Made later, by a thread of the kernel, its tables would be what a throttled device is busy with for an hour.
    options = ["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
    subprocess.run(["mkfs.ext4", *options, str(image)], check=True, timeout=60)
    subprocess.run(["mount", "-o", "loop", str(image), str(disk)], check=True, timeout=60)


@contextmanager
def throttled(disk: Path, bytes_per_s: int) -> Iterator[None]:
    """All that is written to the device below ``disk``, reads are as fast as ever."""
    number = disk.stat().st_dev
    device = f"{os.major(number)}:{os.minor(number)}"
    THROTTLE.write_text(f"{device} {bytes_per_s}")
    try:
        yield
    finally:
        THROTTLE.write_text(f"{device} 0")
