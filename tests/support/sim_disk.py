"""
Files of one simulated host: what was written is there, what was not synced may be gone after a power loss.

Here: writes at offsets, sync per file, atomic names with their own sync, loss and tearing, a full disk, old images.
Not here: file formats.
Rule 1: a process that dies loses nothing: its pages belong to the kernel. Only ``lose_power`` loses.
Rule 2: at a power loss each unsynced write survives whole, in part, or not at all, independently of the others: pages go
to a disk in any order. A file's length survives as the furthest byte that did.
Rule 3: a name (create, replace, unlink) survives if the directory was synced after it; otherwise either state is found.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field

from tests.support.sim_kernel import Kernel


class PowerCut(BaseException):
    """Raised out of a sync: the host is dark from here on. Not an ``Exception``: nobody may handle it but the world."""


@dataclass(slots=True)
class _File:
    content: bytearray
    """As processes see it."""
    durable: bytes
    """As of the last sync."""
    pending: list[tuple[int, int]] = field(default_factory=list)
    """(offset, length) of unsynced writes; length -1 = cut to offset."""


@dataclass(frozen=True, slots=True)
class Image:
    """A copy of a whole disk, to be put back later."""

    files: tuple[tuple[str, bytes], ...]


class SimDisk:
    """One disk. Paths are plain strings; there is one directory."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        self.kernel = kernel
        self.name = name
        self.is_full = False
        self.dies_in_sync = False
        """The power goes in the middle of the next sync that has something to do."""
        self.lost_bytes = 0
        """Of all power losses, since the owner set it to 0."""
        self.was_replaced = False
        """An old image was put back, or the disk was emptied; the owner resets it."""
        self._files: dict[str, _File] = {}
        self._durable_names: dict[str, _File] = {}

    def exists(self, path: str) -> bool:
        """Whether ``path`` is there now."""
        return path in self._files

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._files)

    def read(self, path: str) -> bytes:
        """Whole content. Raises ``FileNotFoundError``."""
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return bytes(self._files[path].content)

    def read_at(self, path: str, offset: int, length: int) -> bytes:
        """A part of the content, cut at its end. Raises ``FileNotFoundError``."""
        if path not in self._files:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return bytes(memoryview(self._files[path].content)[offset : offset + length])

    def size(self, path: str) -> int:
        """Length of ``path``; 0 if it is not there."""
        file = self._files.get(path)
        return len(file.content) if file is not None else 0

    def write(self, path: str, offset: int, data: bytes | memoryview) -> None:
        """Write at ``offset``, creating the file. Not durable. Raises ``OSError`` (ENOSPC)."""
        if self.is_full:
            self.kernel.counts.add("writes refused by a full disk")
            raise OSError(errno.ENOSPC, "no space left on device", path)
        file = self._open(path)
        end = offset + len(data)
        if len(file.content) < offset:
            file.content.extend(bytes(offset - len(file.content)))
        file.content[offset:end] = data
        file.pending.append((offset, len(data)))

    def append(self, path: str, data: bytes | memoryview) -> None:
        """Write at the end."""
        self.write(path, self.size(path), data)

    def truncate(self, path: str, length: int) -> None:
        """Cut ``path`` to ``length``. Not durable."""
        file = self._open(path)
        if len(file.content) > length:
            del file.content[length:]
            file.pending.append((length, -1))

    def sync(self, path: str) -> None:
        """Everything written to ``path`` is durable, and so is its name. May raise ``PowerCut``."""
        file = self._open(path)
        if file.pending:
            if self.dies_in_sync:
                self.dies_in_sync = False
                raise PowerCut(self.name)
            file.durable = bytes(file.content)
            file.pending.clear()
        self._durable_names[path] = file

    def replace(self, path: str, data: bytes) -> None:
        """``path`` holds ``data`` durably on return (temporary file, sync, rename, directory sync). Raises ``OSError``."""
        if self.is_full:
            self.kernel.counts.add("writes refused by a full disk")
            raise OSError(errno.ENOSPC, "no space left on device", path)
        file = _File(bytearray(data), data)
        self._files[path] = file
        self._durable_names[path] = file

    def unlink(self, path: str) -> None:
        """``path`` is durably gone on return."""
        self._files.pop(path, None)
        self._durable_names.pop(path, None)

    def rename(self, source: str, target: str) -> None:
        """``target`` is durably what ``source`` was, on return."""
        file = self._files.pop(source)
        self._files[target] = file
        self._durable_names.pop(source, None)
        self._durable_names[target] = file

    def forget_unsynced(self) -> int:
        """The worst case of rule 2, without chance: every unsynced write is gone; returns how many bytes."""
        lost = 0
        for file in self._files.values():
            lost += sum(length for _, length in file.pending if length > 0)
            file.content = bytearray(file.durable)
            file.pending.clear()
        self.lost_bytes += lost
        return lost

    def lose_power(self, *, keep_all: bool = False) -> int:
        """What was not synced survives by chance; returns how many unsynced bytes were lost or torn."""
        lost = 0
        for path in sorted(self._files):
            file = self._files[path]
            if file.pending:
                lost += 0 if keep_all else self._tear(file)
                file.durable = bytes(file.content)
                file.pending.clear()
            if self._durable_names.get(path) is not file and not keep_all and self.kernel.chance(0.5):
                lost += len(file.content)
                old = self._durable_names.get(path)
                if old is None:
                    del self._files[path]
                else:
                    self._files[path] = old
        self._durable_names = dict(self._files)
        self.lost_bytes += lost
        return lost

    def _tear(self, file: _File) -> int:
        """Rule 2. The usual case first: everything from some write on is gone."""
        random = self.kernel.random
        before = bytes(file.content)
        content = bytearray(file.durable)
        keep_first = random.randrange(len(file.pending) + 1)
        is_prefix = random.random() < 0.7
        lost = 0
        for number, (offset, length) in enumerate(file.pending):
            if length < 0:
                if number < keep_first or random.random() < 0.5:
                    del content[offset:]
                continue
            if number < keep_first or (not is_prefix and random.random() < 0.5):
                kept = length
            else:
                kept = random.randrange(length + 1) if length and random.random() < 0.3 else 0
            lost += length - kept
            if kept:
                if len(content) < offset:
                    content.extend(bytes(offset - len(content)))
                # Later writes may have overwritten this one: pages hold the newest bytes.
                content[offset : offset + kept] = before[offset : offset + kept]
        file.content = content
        return lost

    def image(self) -> Image:
        """A copy of what processes see now."""
        return Image(tuple((path, bytes(file.content)) for path, file in sorted(self._files.items())))

    def restore(self, image: Image) -> None:
        """Put an old image back: the disk was rolled back."""
        self.was_replaced = True
        self._files = {path: _File(bytearray(data), data) for path, data in image.files}
        self._durable_names = dict(self._files)

    def wipe(self) -> None:
        """A new, empty disk."""
        self.was_replaced = True
        self._files = {}
        self._durable_names = {}

    def _open(self, path: str) -> _File:
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = _File(bytearray(), b"")
        return file
