"""
The few things that journal and snapshots ask of a disk.

Here: the port, and the real directory. Not here: formats (``journal``, ``snapshot``), the simulated disk
(``tests.support.sim_disk``, which has the same methods).
Rule: ``append`` promises nothing until ``sync``; ``replace`` and ``unlink`` are durable when they return. Every method
raises ``OSError``; who gets one stops the process (``failstop``).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from node.files import atomic_replace, durable_unlink, fsync_directory, write_all


class Disk(Protocol):
    """One directory of one node."""

    def exists(self, path: str) -> bool:
        """Whether the file is there."""
        ...

    def read(self, path: str) -> bytes:
        """All of it. Raises ``FileNotFoundError``."""
        ...

    def append(self, path: str, data: bytes) -> None:
        """Write at the end, creating the file."""
        ...

    def sync(self, path: str) -> None:
        """What was appended, and the name, are durable."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Durably ``data``, or, after a crash, durably what it was before."""
        ...

    def unlink(self, path: str) -> None:
        """Durably gone; fine if it was not there."""
        ...


class DirectoryDisk:
    """A real directory; keeps one descriptor per file that is appended to. For one thread at a time, per file."""

    def __init__(self, directory: Path) -> None:
        """The directory is made (0700) if it is missing."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._descriptors: dict[str, int] = {}

    def exists(self, path: str) -> bool:
        """Whether the file is there."""
        return (self._directory / path).exists()

    def read(self, path: str) -> bytes:
        """All of it."""
        return (self._directory / path).read_bytes()

    def append(self, path: str, data: bytes) -> None:
        """Write at the end; a new name is made durable at once."""
        write_all(self._descriptor(path), data)

    def sync(self, path: str) -> None:
        """By fdatasync: the length is synced with the data."""
        os.fdatasync(self._descriptor(path))

    def replace(self, path: str, data: bytes) -> None:
        """Temporary file, fsync, rename, fsync of the directory."""
        atomic_replace(self._directory / path, data)
        self._forget(path)

    def unlink(self, path: str) -> None:
        """Remove and sync the directory."""
        durable_unlink(self._directory / path)
        self._forget(path)

    def close(self) -> None:
        """Give the descriptors back."""
        for path in list(self._descriptors):
            self._forget(path)

    def _descriptor(self, path: str) -> int:
        descriptor = self._descriptors.get(path)
        if descriptor is None:
            descriptor = os.open(self._directory / path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            fsync_directory(self._directory)
            self._descriptors[path] = descriptor
        return descriptor

    def _forget(self, path: str) -> None:
        descriptor = self._descriptors.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)
