"""
Real files under simulated disks: the product's own file code runs, and each host's disk forgets, tears, fails and rots.

``FileCalls`` stands between the program and ``os`` for everything below one folder, in memory where there is such a
place. What processes see (the page cache) are the real files. What is durable is kept here, from the syncs that the
program really made: the bytes of a file by fsync and fdatasync, the names of a folder by a sync of that folder.
Bytes written through a map need no call: they are seen when a sync, or a power cut, compares.

Rule 1: a process that dies loses nothing. A power cut keeps each unsynced sector, and each unsynced name, by chance.
Rule 2: a sector of ``SECTOR_BYTES`` is written whole or not at all; the sectors of one block go in any order.
Rule 3: a failed sync writes some of the pages and forgets that the others are dirty: the next sync succeeds without
them. Processes see them until the page is dropped, which is at the end of the process here, by chance.
Rule 4: a process may die inside of any call that changes something. From then on its calls raise ``Died``, so that no
handler on the way out does what a dead process cannot do.
Rule 5: all chance is ``Kernel.random``; everything is iterated in the order of names.

Not here: which faults, and when (``tests.sim.faults``), disks of controllers, which need no real files (``sim_disk``).
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from tests.support.sim_kernel import MS, Died, Kernel

SECTOR_BYTES = 512
PAGE_BYTES = 4096
IN_MEMORY = Path("/dev/shm")
EVERY_SYNC = 1 << 30
"""For ``SimFiles.failing_syncs``: until it is set to 0 again."""
ROOT_PREFIX = "rollcall-sim-"
"""Of the folder of a process, its id comes next."""


@dataclass(slots=True, eq=False)
class _File:
    """One inode."""

    durable: bytes = b""
    """As of its syncs."""
    dropped: dict[int, bytes] = field(default_factory=dict)
    """Pages that a failed sync called clean, as they were then (rule 3)."""
    is_sparse: bool = False
    """It was made longer without blocks: each write needs one."""

    def rewritten_from(self, offset: int) -> None:
        """The file was made shorter or longer there: its pages behind are dirty again."""
        for page in [number for number in self.dropped if number >= offset // PAGE_BYTES]:
            del self.dropped[page]


@dataclass(slots=True)
class _Folder:
    names: dict[str, _File] = field(default_factory=dict)
    durable: dict[str, _File] = field(default_factory=dict)
    is_durable: bool = False
    """Its own name is."""


@dataclass(frozen=True, slots=True)
class Image:
    """A copy of a whole disk, to be put back later."""

    folders: tuple[str, ...]
    files: tuple[tuple[str, bytes], ...]


class SimFiles:
    """The disk of one host. Made by ``FileCalls.disk``."""

    def __init__(self, calls: FileCalls, kernel: Kernel, name: str) -> None:
        self.name = name
        self.folder = calls.root / name
        self.is_full = False
        self.is_slow = False
        self.failing_syncs = 0
        """So many of the next syncs of a file fail with EIO."""
        self.dies_in_calls = 0
        """The process dies in front of this many-th call from now that changes something; 0 = it does not."""
        self.dies_with_power = False
        """And takes the page cache with it."""
        self.on_death: Callable[[bool], None] = lambda _with_power: None
        """Told when it dies inside of a call: whether the power goes, too."""
        self.on_failed_sync: Callable[[], None] = lambda: None
        """Told when a sync fails."""
        self.version = 0
        """Raised whenever a call, or a fault, may have changed a file."""
        self.births = 0
        """How often all files were made anew: an old image was put back, or the disk is another one."""
        self._calls = calls
        self._kernel = kernel
        self._is_dead = False
        self._folders: dict[str, _Folder] = {}
        self._new_folder("").is_durable = True
        with calls.unwatched():
            self.folder.mkdir()

    # --- lives of the process ---

    def boot(self) -> None:
        """A process starts."""
        self._calls.close_all(self)
        self._is_dead, self.dies_in_calls = False, 0

    def crash(self) -> None:
        """The process is gone; the pages stay, but for those that a failed sync has called clean (rule 3)."""
        self._is_dead = True
        self.version += 1
        for path, file in self._all_files():
            if not file.dropped:
                continue
            content = bytearray(self._content(path))
            for page in sorted(file.dropped):
                if self._kernel.chance(0.5):
                    start = page * PAGE_BYTES
                    if bytes(content[start : start + PAGE_BYTES]) == file.dropped[page]:
                        content[start : start + PAGE_BYTES] = file.durable[start : start + PAGE_BYTES]
                    del file.dropped[page]
                    self._kernel.counts.add("pages dropped behind a failed sync")
            self._write(path, bytes(content))

    def dirty_again(self) -> None:
        """Everything that a failed sync called clean will be written through a map, with the bytes that it has."""
        for _path, file in self._all_files():
            file.dropped.clear()

    def lose_power(self, *, forgets_all: bool = False) -> None:
        """
        The plug: what was not synced survives by chance (rules 1, 2). ``forgets_all``: without chance, nothing does.
        """
        self._is_dead = True
        kept: dict[str, bytes] = {}
        there: list[str] = [""]
        for path in sorted(self._folders):
            folder = self._folders[path]
            is_there = folder.is_durable or (not forgets_all and self._kernel.chance(0.5))
            if path and not (is_there and path.rpartition("/")[0] in there):
                continue
            there += [path] if path else []
            for name in sorted({*folder.names, *folder.durable}):
                now, then = folder.names.get(name), folder.durable.get(name)
                found = now if now is then or (not forgets_all and self._kernel.chance(0.5)) else then
                if found is not None:
                    full = f"{path}/{name}" if path else name
                    current = self._content(full) if found is now else found.durable
                    kept[full] = found.durable if forgets_all else self._torn(found.durable, current)
        self._become(there, kept)

    def _torn(self, durable: bytes, current: bytes) -> bytes:
        """Rule 2. The usual case first: everything from some sector on is as it was."""
        if durable == current:
            return current
        random = self._kernel.random
        size = max(len(durable), len(current))
        # Of a file that was made shorter: a sector of nothing would move those behind it.
        current = current.ljust(size, b"\0")
        changed = [
            at
            for at in range(0, size, SECTOR_BYTES)
            if durable[at : at + SECTOR_BYTES] != current[at : at + SECTOR_BYTES]
        ]
        first_lost = random.randrange(len(changed) + 1)
        is_prefix = random.random() < 0.7
        content = bytearray(durable)
        for number, at in enumerate(changed):
            if number < first_lost or (not is_prefix and random.random() < 0.5):
                content.extend(bytes(max(0, at - len(content))))
                content[at : at + SECTOR_BYTES] = current[at : at + SECTOR_BYTES]
        return bytes(content)

    # --- whole disks ---

    def image(self) -> Image:
        """A copy of what processes see now."""
        files = tuple((path, self._content(path)) for path, _file in self._all_files())
        return Image(tuple(sorted(self._folders)), files)

    def restore(self, image: Image) -> None:
        """Put an old image back, durably."""
        self.births += 1
        self._become(list(image.folders), dict(image.files))

    def wipe(self) -> None:
        """A new, empty disk."""
        self.births += 1
        self._become([""], {})

    def _become(self, folders: list[str], files: dict[str, bytes]) -> None:
        self.version += 1
        self._folders.clear()
        with self._calls.unwatched():
            shutil.rmtree(self.folder)
            for path in sorted(folders):
                (self.folder / path).mkdir()
                self._new_folder(path).is_durable = True
            for path, content in files.items():
                folder, _, name = path.rpartition("/")
                (self.folder / path).write_bytes(content)
                there = self._folders[folder]
                there.names[name] = there.durable[name] = _File(durable=content)

    # --- faults ---

    def rot(self, path: str, offset: int) -> None:
        """One bit of ``path``, for good: on the platter and in the cache."""
        folder, _, name = path.rpartition("/")
        file = self._folders[folder].names[name]
        content = bytearray(self._content(path))
        flipped = 1 << self._kernel.random.randrange(8)
        content[offset] ^= flipped
        if offset < len(file.durable):
            durable = bytearray(file.durable)
            durable[offset] ^= flipped
            file.durable = bytes(durable)
        self._write(path, bytes(content))
        self.version += 1

    def is_durable(self, path: str, offset: int) -> bool:
        """Whether this byte is on the platter as processes see it."""
        folder, _, name = path.rpartition("/")
        durable, content = self._folders[folder].names[name].durable, self._content(path)
        return offset < min(len(durable), len(content)) and durable[offset] == content[offset]

    def paths(self) -> list[str]:
        """Of all files, relative to the folder, in order."""
        return [path for path, _file in self._all_files()]

    def delay_us(self) -> int:
        """How long the work that is asked for now will take this disk."""
        if self.is_slow:
            return self._kernel.random.randrange(50 * MS, 1_500 * MS)
        return self._kernel.random.randrange(50, 4_000)

    # --- calls of the process, by ``FileCalls`` ---

    def changes(self, what: str) -> None:
        """In front of each call that changes something. Raises ``Died`` (rule 4)."""
        if self._is_dead:
            raise Died(f"{self.name} is dead and calls {what}")
        self.version += 1
        if self.dies_in_calls:
            self.dies_in_calls -= 1
            if not self.dies_in_calls:
                self._is_dead = True
                self._kernel.counts.add("deaths inside of a file call")
                self._kernel.note(f"{self.name} dies in {what}")
                self.on_death(self.dies_with_power)
                raise Died(f"{self.name} dies in {what}")

    def takes_room(self, path: str) -> None:
        """In front of each call that needs new blocks. Raises ``OSError``."""
        if self.is_full:
            self._kernel.counts.add("writes refused by a full disk")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def file_at(self, path: str) -> _File:
        """The inode that has this name now; a new one if there is none."""
        folder, _, name = path.rpartition("/")
        return self._folders[folder].names.setdefault(name, _File())

    def is_folder(self, path: str) -> bool:
        return path in self._folders

    def made_folder(self, path: str) -> None:
        self._new_folder(path)

    def renamed(self, source: str, target: str) -> None:
        folder, _, name = source.rpartition("/")
        to_folder, _, to_name = target.rpartition("/")
        self._folders[to_folder].names[to_name] = self._folders[folder].names.pop(name)

    def removed(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        self._folders[folder].names.pop(name, None)

    def removed_folder(self, path: str) -> None:
        self._folders.pop(path, None)

    def synced_folder(self, path: str) -> None:
        """Its names are durable, those of folders in it included."""
        folder = self._folders[path]
        folder.durable = dict(folder.names)
        for other, inner in self._folders.items():
            if other and other.rpartition("/")[0] == path:
                inner.is_durable = True

    def synced(self, file: _File, content: bytes) -> None:
        """Its bytes are durable. Raises ``OSError`` (rule 3)."""
        if self.failing_syncs and content != file.durable:
            self.failing_syncs -= 1
            self._kernel.counts.add("syncs failed")
            self._kernel.note(f"{self.name} fails a sync")
            self._lose_pages(file, content)
            self.on_failed_sync()
            raise OSError(errno.EIO, os.strerror(errno.EIO), self.name)
        if not file.dropped:
            file.durable = content
            return
        durable = bytearray(file.durable.ljust(len(content), b"\0")[: len(content)])
        for start in range(0, len(content), PAGE_BYTES):
            page = content[start : start + PAGE_BYTES]
            if file.dropped.get(start // PAGE_BYTES) != page:
                file.dropped.pop(start // PAGE_BYTES, None)
                durable[start : start + PAGE_BYTES] = page
        file.durable = bytes(durable)

    def rewritten(self, file: _File, offset: int, length: int) -> None:
        """A write makes its pages dirty again, whatever a failed sync has said of them."""
        for page in range(offset // PAGE_BYTES, (offset + length + PAGE_BYTES - 1) // PAGE_BYTES):
            file.dropped.pop(page, None)

    def _lose_pages(self, file: _File, content: bytes) -> None:
        durable = bytearray(file.durable.ljust(len(content), b"\0")[: len(content)])
        for start in range(0, len(content), PAGE_BYTES):
            page = content[start : start + PAGE_BYTES]
            if durable[start : start + PAGE_BYTES] == page:
                continue
            if self._kernel.chance(0.3):
                durable[start : start + PAGE_BYTES] = page
            else:
                file.dropped[start // PAGE_BYTES] = page
        file.durable = bytes(durable)

    # --- inside ---

    def _new_folder(self, path: str) -> _Folder:
        return self._folders.setdefault(path, _Folder())

    def _all_files(self) -> list[tuple[str, _File]]:
        return [
            (f"{path}/{name}" if path else name, self._folders[path].names[name])
            for path in sorted(self._folders)
            for name in sorted(self._folders[path].names)
        ]

    def _content(self, path: str) -> bytes:
        with open(self.folder / path, "rb") as file:
            return file.read()

    def _write(self, path: str, content: bytes) -> None:
        """In place: maps of a process that lives see it."""
        with open(self.folder / path, "r+b") as file:
            file.write(content)


@cache
def remove_leftovers(place: Path) -> None:
    """What a process that was killed has left there: it lies in memory until somebody removes it."""
    for found in place.glob(f"{ROOT_PREFIX}*-*"):
        pid = found.name.removeprefix(ROOT_PREFIX).partition("-")[0]
        if pid.isdecimal() and not _is_alive(int(pid)):
            shutil.rmtree(found, ignore_errors=True)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # Of another user.
        return True
    return True


class FileCalls:
    """
    All simulated disks of one world, below ``root``; while it is open, calls of ``os`` go through it. One at a time.

    A file is opened for reading as well, whatever was asked for: a sync has to see its bytes.
    """

    def __init__(self) -> None:
        is_writable = IN_MEMORY.is_dir() and os.access(IN_MEMORY, os.W_OK)
        place = IN_MEMORY if is_writable else Path(tempfile.gettempdir())
        remove_leftovers(place)
        self.root = Path(tempfile.mkdtemp(prefix=f"{ROOT_PREFIX}{os.getpid()}-", dir=place))
        self._prefix = f"{self.root}/"
        self._disks: dict[str, SimFiles] = {}
        self._open: dict[int, tuple[SimFiles, _File | None, str]] = {}
        """By descriptor: a file, or a folder by its path."""
        self._is_watching = True
        self._real: dict[str, Callable[..., Any]] = {}
        self._put("open", self._on_open)
        self._put("close", self._on_close)
        self._put("write", self._on_write)
        self._put("pwrite", self._on_pwrite)
        self._put("posix_fallocate", self._on_allocate)
        self._put("fsync", partial(self._on_sync, "fsync"))
        self._put("fdatasync", partial(self._on_sync, "fdatasync"))
        self._put("rename", partial(self._on_rename, "rename"))
        self._put("replace", partial(self._on_rename, "replace"))
        self._put("unlink", self._on_unlink)
        self._put("mkdir", self._on_mkdir)
        self._put("rmdir", self._on_rmdir)
        self._put("ftruncate", self._on_truncate)
        self._put("dup", self._on_dup)
        self._rmtree = shutil.rmtree
        shutil.rmtree = self._on_rmtree  # type: ignore[assignment]

    def _put(self, name: str, instead: Callable[..., Any]) -> None:
        self._real[name] = getattr(os, name)
        setattr(os, name, instead)

    def close(self) -> None:
        """Give ``os`` back and remove everything."""
        for name, real in self._real.items():
            setattr(os, name, real)
        shutil.rmtree = self._rmtree
        for descriptor in list(self._open):
            os.close(descriptor)
        self._open.clear()
        shutil.rmtree(self.root, ignore_errors=True)

    def disk(self, kernel: Kernel, name: str) -> SimFiles:
        """A new, empty disk."""
        disk = self._disks[name] = SimFiles(self, kernel, name)
        return disk

    def unwatched(self) -> _Unwatched:
        """Within: calls are those of the simulation itself."""
        return _Unwatched(self)

    def close_all(self, disk: SimFiles) -> None:
        """The descriptors of a process that is gone."""
        for descriptor in [number for number, (owner, _file, _path) in self._open.items() if owner is disk]:
            del self._open[descriptor]
            self._real["close"](descriptor)

    def _of(self, path: Any, dir_fd: int | None) -> tuple[SimFiles, str] | None:
        if not self._is_watching or dir_fd is not None or isinstance(path, int):
            return None
        text = os.fspath(path)
        if not isinstance(text, str) or not text.startswith(self._prefix):
            return None
        host, _, rest = text[len(self._prefix) :].partition("/")
        disk = self._disks.get(host)
        return None if disk is None else (disk, rest)

    # --- what stands in ``os`` ---

    def _on_open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        found = self._of(path, dir_fd)
        if found is None:
            return int(self._real["open"](path, flags, mode, dir_fd=dir_fd))
        disk, inner = found
        if disk.is_folder(inner):
            descriptor = int(self._real["open"](path, flags, mode))
            self._open[descriptor] = (disk, None, inner)
            return descriptor
        if flags & os.O_CREAT:
            disk.changes(f"open {inner}")
        if flags & os.O_ACCMODE == os.O_WRONLY:
            flags = (flags & ~os.O_ACCMODE) | os.O_RDWR
        descriptor = int(self._real["open"](path, flags, mode))
        if flags & os.O_TRUNC:
            # What is written from here on is dirty, also where it says the same as pages that a failed sync has dropped.
            disk.file_at(inner).dropped.clear()
        self._open[descriptor] = (disk, disk.file_at(inner), inner)
        return descriptor

    def _on_close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)
        self._real["close"](descriptor)

    def _on_write(self, descriptor: int, data: Any) -> int:
        found = self._open.get(descriptor)
        if found is not None:
            found[0].changes(f"write {found[2]}")
            found[0].takes_room(found[2])
            if found[1] is not None:
                found[0].rewritten(found[1], os.lseek(descriptor, 0, os.SEEK_CUR), len(data))
        return int(self._real["write"](descriptor, data))

    def _on_pwrite(self, descriptor: int, data: Any, offset: int) -> int:
        found = self._open.get(descriptor)
        if found is not None:
            found[0].changes(f"write {found[2]}")
            is_sparse = found[1] is not None and found[1].is_sparse
            if is_sparse or offset + len(data) > os.fstat(descriptor).st_size:
                found[0].takes_room(found[2])
            if found[1] is not None:
                found[0].rewritten(found[1], offset, len(data))
        return int(self._real["pwrite"](descriptor, data, offset))

    def _on_allocate(self, descriptor: int, offset: int, length: int) -> None:
        found = self._open.get(descriptor)
        if found is not None:
            found[0].changes(f"allocate {found[2]}")
            found[0].takes_room(found[2])
        self._real["posix_fallocate"](descriptor, offset, length)

    def _on_sync(self, call: str, descriptor: int) -> None:
        found = self._open.get(descriptor)
        if found is None:
            self._real[call](descriptor)
            return
        disk, file, path = found
        disk.changes(f"{call} {path}")
        if file is None:
            disk.synced_folder(path)
        else:
            disk.synced(file, os.pread(descriptor, os.fstat(descriptor).st_size, 0))

    def _on_rename(
        self, call: str, source: Any, target: Any, *, src_dir_fd: int | None = None, dst_dir_fd: int | None = None
    ) -> None:
        one, two = self._of(source, src_dir_fd), self._of(target, dst_dir_fd)
        if one is None or two is None:
            self._real[call](source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
            return
        one[0].changes(f"{call} {one[1]}")
        self._real[call](source, target)
        one[0].renamed(one[1], two[1])

    def _on_unlink(self, path: Any, *, dir_fd: int | None = None) -> None:
        found = self._of(path, dir_fd)
        if found is not None:
            found[0].changes(f"unlink {found[1]}")
        self._real["unlink"](path, dir_fd=dir_fd)
        if found is not None:
            found[0].removed(found[1])

    def _on_mkdir(self, path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        found = self._of(path, dir_fd)
        if found is not None:
            found[0].changes(f"mkdir {found[1]}")
        self._real["mkdir"](path, mode, dir_fd=dir_fd)
        if found is not None:
            found[0].made_folder(found[1])

    def _on_rmdir(self, path: Any, *, dir_fd: int | None = None) -> None:
        found = self._of(path, dir_fd)
        if found is not None:
            found[0].changes(f"rmdir {found[1]}")
        self._real["rmdir"](path, dir_fd=dir_fd)
        if found is not None:
            found[0].removed_folder(found[1])

    def _on_rmtree(self, path: Any, **options: Any) -> None:
        """Name by name, as the standard library does it, but by paths: descriptors of folders say no name."""
        if self._of(path, None) is None:
            self._rmtree(path, **options)
            return
        for folder, folders, names in os.walk(path, topdown=False):
            for name in sorted(names):
                os.unlink(os.path.join(folder, name))
            for name in sorted(folders):
                os.rmdir(os.path.join(folder, name))
        os.rmdir(path)

    def _on_truncate(self, descriptor: int, length: int) -> None:
        found = self._open.get(descriptor)
        if found is not None:
            found[0].changes(f"truncate {found[2]}")
            if found[1] is not None:
                size = os.fstat(descriptor).st_size
                found[1].rewritten_from(min(length, size))
                found[1].is_sparse |= length > size
        self._real["ftruncate"](descriptor, length)

    def _on_dup(self, descriptor: int) -> int:
        copy = int(self._real["dup"](descriptor))
        if descriptor in self._open:
            self._open[copy] = self._open[descriptor]
        return copy


class _Unwatched:
    def __init__(self, calls: FileCalls) -> None:
        self._calls = calls

    def __enter__(self) -> None:
        self._calls._is_watching = False

    def __exit__(self, *_error: object) -> None:
        self._calls._is_watching = True
