"""
A disk that forgets: what a power cut leaves of a real folder, from the syncs that the program really made.

``PowerCuttableFolder`` stands between a program and ``os.fsync``/``os.fdatasync`` and keeps what each of them made
durable: the bytes of a file, the names of a folder. ``cut_power`` writes only that to a new folder. It is the most
forgetful disk that is allowed: a write that nobody synced is lost whole, a name that nobody synced is not there.

Not here: torn sectors, reordering among synced writes (``tests.support.sim_disk``).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest


class PowerCuttableFolder:
    """Everything below ``root``. Use it before the program opens its first file there."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """``root`` exists and is durable."""
        self.root = root
        self.syncs = 0
        self._contents: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {root: {}}
        self._kept: list[int] = []
        fsync, fdatasync = os.fsync, os.fdatasync

        def synced(descriptor: int) -> None:
            fdatasync(descriptor)
            self._note(descriptor)

        def fsynced(descriptor: int) -> None:
            fsync(descriptor)
            self._note(descriptor)

        monkeypatch.setattr(os, "fdatasync", synced)
        monkeypatch.setattr(os, "fsync", fsynced)

    def _note(self, descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        if not path.is_relative_to(self.root):
            return
        self.syncs += 1
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            self._names[path] = {entry.name: entry.inode() for entry in os.scandir(path)}
            for entry in os.scandir(path):
                if entry.is_dir():
                    self._names.setdefault(Path(entry.path), {})
            return
        if found.st_ino not in self._contents:
            # Held open, so that no later file gets the number of one that was removed.
            self._kept.append(os.open(path, os.O_RDONLY))
        with open(f"/proc/self/fd/{descriptor}", "rb") as file:
            self._contents[found.st_ino] = file.read()

    def cut_power(self, target: Path) -> Path:
        """Write to ``target`` what would be there after the machine lost its power now; returns it."""
        for folder, names in sorted(self._names.items()):
            if folder != self.root and folder.name not in self._names.get(folder.parent, {}):
                continue
            there = target / folder.relative_to(self.root)
            there.mkdir(parents=True, exist_ok=True)
            for name, inode in names.items():
                if folder / name not in self._names:
                    (there / name).write_bytes(self._contents.get(inode, b""))
        return target

    def close(self) -> None:
        for descriptor in self._kept:
            os.close(descriptor)
