"""
Damage to the disks of a fleet of real processes: a small file system, a tail that never reached the disk.

Here: the damage. Not here: what the fleet must make of it (the tests).
Rule: only what lies under the fleet's own directory is touched; a mount is removed by whoever made it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

COMMIT_LOG = "commitlog"
STORE_MARK = "store.json"
CLEAN_MARKS = ("clean-stop", "clean.json", "folds")
SYNC_WITNESSES = ("rollcall-checkpoint", "folds")
"""They say up to where the log was synced: what an honest disk lost was never synced, so they cannot be there."""


@contextmanager
def small_disk(directory: Path, *, size_bytes: int) -> Iterator[Path]:
    """A file system of its own at ``directory``; skips with its reason where that cannot be had."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    directory.mkdir(parents=True, exist_ok=True)
    mounted = mount("-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "tmpfs", str(directory))
    if mounted.returncode != 0:
        pytest.skip(f"a tmpfs cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield directory
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True, timeout=10)


def mount(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run mount(8)."""
    return subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False, timeout=10)


def enlarge(directory: Path, *, size_bytes: int) -> None:
    """What an operator does about a full disk."""
    done = mount("-o", f"remount,size={size_bytes}", str(directory))
    assert done.returncode == 0, done.stderr


def _segments(data: Path) -> list[Path]:
    """In order, without one that was being made when its broker was killed."""
    return [path for path in sorted((data / COMMIT_LOG).glob("[0-9]*")) if not path.suffix]


def written_end(data: Path) -> int:
    """Offset behind the last byte of a log that is not zero: the segments are preallocated."""
    for path in reversed(_segments(data)):
        content = path.read_bytes().rstrip(b"\0")
        if content:
            return int(path.name) + len(content)
    return 0


def put_back_files(copy: Path, data: Path) -> None:
    """A restore: all files are made anew."""
    shutil.rmtree(data)
    shutil.copytree(copy, data)


def put_back_volume(copy: Path, data: Path) -> None:
    """As the snapshot of a volume: files that were there before keep their inodes and times of birth."""
    for path in data.rglob("*"):
        if path.is_file() and not (copy / path.relative_to(data)).exists():
            path.unlink()
    for source in copy.rglob("*"):
        target = data / source.relative_to(copy)
        if source.is_dir():
            target.mkdir(exist_ok=True)
        else:
            shutil.copyfile(source, target)


def lose_tail(data: Path, *, lost_bytes: int, was_synced: bool = False) -> int:
    """
    What a power loss does to pages that were never synced, done to a broker that does not run.

    The last ``lost_bytes`` of the log become zeros, and the directory counts as another store, because the machine did
    not reboot: the boot id would prove that the pages survived (R3b). With ``was_synced`` the disk lost what it had
    promised to hold.

    Returns:
        The offset from which on everything is gone.
    """
    end = written_end(data)
    start = max(0, end - lost_bytes)
    for path in _segments(data):
        base, size = int(path.name), path.stat().st_size
        first, last = max(start, base), min(end, base + size)
        if first < last:
            with path.open("r+b") as segment:
                segment.seek(first - base)
                segment.write(bytes(last - first))
    (data / STORE_MARK).unlink()
    for name in CLEAN_MARKS if was_synced else SYNC_WITNESSES:
        (data / name).unlink(missing_ok=True)
    return start
