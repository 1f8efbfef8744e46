"""
The few things that journal and snapshots ask of a disk.

Here: the port, and the real directory. Not here: formats (``journal``, ``snapshot``), the simulated disk
(``tests.support.sim_disk``, which has the same methods).
Rule 1: ``append`` promises nothing until ``sync``; ``replace`` and ``unlink`` are durable when they return. Every
method raises ``OSError``, upon which the caller stops the process (``failstop``).
Rule 2: behind what was appended a file may go on with zeros, its room. A sync inside of the room changes no length, so
it does not wait for the file system's own journal, in which the changes of all processes queue. Readers accept room; a
file that has some when it is opened is replaced before the next append.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from rollcall_ha.node.files import atomic_replace, durable_unlink, fsync_directory, write_all

ROOM_BYTES = 256 * 1024
"""Zeros that are written ahead at once: enough for some hundred entries."""


class Disk(Protocol):
    """One directory of one node."""

    def exists(self, path: str) -> bool:
        """Whether the file is there."""
        ...

    def read(self, path: str) -> bytes:
        """All of it. Raises ``FileNotFoundError``."""
        ...

    def append(self, path: str, data: bytes) -> None:
        """Write behind the bytes that were appended before, creating the file."""
        ...

    def sync(self, path: str) -> None:
        """Everything appended so far, and the name, are durable."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """The content is ``data``, durably; after a crash it is that or the former one."""
        ...

    def unlink(self, path: str) -> None:
        """Durably gone; fine if it was not there."""
        ...


class _Appended:
    """A file that is open for appending."""

    __slots__ = ("descriptor", "end", "room_end")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.end = self.room_end = os.fstat(descriptor).st_size

    def append(self, data: bytes) -> None:
        """Write inside of the room, and make more of it first if need be."""
        end = self.end + len(data)
        # Zeros are written, not a length set: filling a hole changes the file's map of blocks, and each sync would wait
        # for it (rule 2). A torn write then shows as sectors of zeros, which the journal's rule 3 relies on.
        if end > self.room_end:
            os.lseek(self.descriptor, self.room_end, os.SEEK_SET)
            write_all(self.descriptor, bytes(end + ROOM_BYTES - self.room_end))
            self.room_end = end + ROOM_BYTES
        os.lseek(self.descriptor, self.end, os.SEEK_SET)
        write_all(self.descriptor, data)
        self.end = end


class DirectoryDisk:
    """A real directory; keeps one descriptor per file that is appended to. For one thread at a time, per file."""

    def __init__(self, directory: Path) -> None:
        """The directory is made (0700) if it is missing."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._appended: dict[str, _Appended] = {}

    def exists(self, path: str) -> bool:
        """Whether the file is there."""
        return (self._directory / path).exists()

    def read(self, path: str) -> bytes:
        return (self._directory / path).read_bytes()

    def append(self, path: str, data: bytes) -> None:
        """Write in the room; a new name is made durable at once."""
        self._open(path).append(data)

    def sync(self, path: str) -> None:
        """By fdatasync: a length that changed is synced with the data."""
        os.fdatasync(self._open(path).descriptor)

    def replace(self, path: str, data: bytes) -> None:
        """Temporary file, fsync, rename, fsync of the directory."""
        atomic_replace(self._directory / path, data)
        # The open descriptor is that of the file which has just lost its name: appends would go there, synced, and be
        # gone.
        self._forget(path)

    def unlink(self, path: str) -> None:
        """Remove and sync the directory."""
        durable_unlink(self._directory / path)
        self._forget(path)

    def close(self) -> None:
        """Give the descriptors back."""
        for path in list(self._appended):
            self._forget(path)

    def _open(self, path: str) -> _Appended:
        appended = self._appended.get(path)
        if appended is None:
            appended = _Appended(os.open(self._directory / path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
            # The name, too: fdatasync makes the bytes durable of a file that no directory might know after a power cut.
            fsync_directory(self._directory)
            self._appended[path] = appended
        return appended

    def _forget(self, path: str) -> None:
        appended = self._appended.pop(path, None)
        if appended is not None:
            os.close(appended.descriptor)
