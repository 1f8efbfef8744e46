"""
Files that survive a power cut: replace, sync, lock, and a version for every data directory.

Durability: each function says what is on disk when it returns. A failed fsync is never retried: it is raised, and its
caller stops (a second fsync would report success for pages that the kernel has dropped).
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import stat
import struct
from collections.abc import Collection, Sequence
from pathlib import Path

VERSION_FILE_NAME = "VERSION"
LOCK_FILE_NAME = "LOCK"
VOLUME_ENTRIES = frozenset({"lost+found", ".snapshot"})
"""What a file system itself has in the root of a volume, which a data directory may be."""
NAMED_MAX = 5

_AT_FDCWD, _STATX_INO_AND_BTIME, _STATX_BYTES = -100, 0x900, 256
"""From linux/stat.h: Python has no statx before 3.15."""


class DirectoryError(RuntimeError):
    """A data directory must not be used; the message says why and what to do."""


def is_full_disk(error: BaseException | None) -> bool:
    """Whether space can mend it; after any other failed write or sync nothing may be assumed of the pages."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def fsync_directory(directory: Path) -> None:
    """The names in ``directory`` are durable on return."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte at the descriptor's position. Raises ``OSError``."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def read_secret(path: Path) -> bytes:
    """
    A private key, a token, a passphrase: the one rule for the modes of all of them.

    Raises ``OSError``; also if everybody on this machine may use it. A group may: a Secret volume of Kubernetes with an
    ``fsGroup`` belongs to root, and is read by group.
    """
    with path.open("rb") as opened:
        mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
        if mode & stat.S_IRWXO:
            why = f"its mode is {mode:04o}, so everybody on this machine can use it: chmod 0640, or 0600 (a volume of "
            raise PermissionError(errno.EACCES, f"{why}Kubernetes: defaultMode 0440)", str(path))
        return opened.read()


def atomic_replace(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """
    ``path`` holds ``data``, or, after a crash at any moment, its old content; durable on return.

    Raises ``OSError``; the old content is then still there.
    """
    replace_together((path,), data, mode=mode)


def replace_together(paths: Sequence[Path], data: bytes, *, mode: int = 0o600) -> None:
    """
    As ``atomic_replace`` for files of one folder that hold the same, with one sync of the folder.

    A crash before the return may leave the first ones new and the others old.
    """
    temporaries = [path.with_name(path.name + ".tmp") for path in paths]
    for temporary in temporaries:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        try:
            write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    # Renamed AFTER the sync: a name may reach the disk before its bytes, and an empty epoch file is a lost promise.
    for temporary, path in zip(temporaries, paths, strict=True):
        temporary.replace(path)
    fsync_directory(paths[0].parent)


def durable_unlink(path: Path) -> None:
    """``path`` does not exist, durably, on return; fine if it did not exist before."""
    path.unlink(missing_ok=True)
    fsync_directory(path.parent)


def birthmark(path: Path) -> str:
    """
    The inode and the time of birth of a file: no copy has them, and it keeps them over renames and reboots.

    Empty: the file system tells no birth, or there is no such file. An inode alone would be worse than nothing: where
    they are numbered anew with each mount a file would be taken for its copy.
    """
    found = ctypes.create_string_buffer(_STATX_BYTES)
    call = getattr(ctypes.CDLL(None), "statx", None)  # none on macOS
    if call is None or call(_AT_FDCWD, os.fsencode(path), 0, _STATX_INO_AND_BTIME, found):
        return ""
    (mask,) = struct.unpack_from("=I", found)
    (inode,), (born_s, born_ns) = struct.unpack_from("=Q", found, 32), struct.unpack_from("=qI", found, 80)
    has_both = mask & _STATX_INO_AND_BTIME == _STATX_INO_AND_BTIME
    return f"{inode}.{born_s}.{born_ns}" if has_both else ""


class DataDirectory:
    """A folder that one process owns while it lives, with the version of its content."""

    def __init__(self, path: Path, lock_descriptor: int, *, was_empty: bool) -> None:
        self.path = path
        self.was_empty = was_empty
        """Nothing but our own two files was there: a new or a wiped node."""
        self._lock_descriptor = lock_descriptor

    @classmethod
    def claim(cls, path: Path, *, kind: str, version: int, fresh: Collection[str] = ()) -> DataDirectory:
        """
        Create if needed (0700), lock, and check that it holds ``kind`` in a version that this program reads.

        ``fresh``: what a directory without a version may hold, and become ours.

        Raises:
            DirectoryError: another process has it, or it belongs to another kind or version; nothing was changed.
            OSError: its disk does not take it now.
        """
        mark = f"{kind} {version}\n"
        # Judged before the lock file is made, for a refused start changes nothing; and again when nobody else can.
        _refuse_foreign(path, mark, fresh)
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path / LOCK_FILE_NAME, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            if error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM):
                raise
            remedy = f"mount it read-write, and let user {os.getuid()} own it"
            raise OSError(error.errno, f"{path} cannot be written ({error.strerror}): {remedy}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _refuse_foreign(path, mark, fresh)
            was_empty = not entries_of(path)
            if not (path / VERSION_FILE_NAME).exists():
                atomic_replace(path / VERSION_FILE_NAME, mark.encode())
        except BlockingIOError:
            os.close(descriptor)
            raise DirectoryError(f"{path} is in use by another process; stop that one first") from None
        except BaseException:
            os.close(descriptor)
            raise
        return cls(path, descriptor, was_empty=was_empty)

    def release(self) -> None:
        """Give up the lock."""
        os.close(self._lock_descriptor)


def entries_of(path: Path) -> frozenset[str]:
    """What is in a data directory besides our own two files and what the file system keeps there."""
    return frozenset(entry.name for entry in path.iterdir()) - {LOCK_FILE_NAME, VERSION_FILE_NAME} - VOLUME_ENTRIES


def _refuse_foreign(path: Path, mark: str, fresh: Collection[str]) -> None:
    try:
        others = sorted(entries_of(path) - {*fresh}) if path.exists() else []
        found = (path / VERSION_FILE_NAME).read_text()
    except NotADirectoryError:
        raise DirectoryError(f"{path} is no folder; name one that is, or does not exist yet") from None
    except FileNotFoundError:
        if others:
            raise DirectoryError(
                f"{path} is not empty ({', '.join(others[:NAMED_MAX])}) and has no {VERSION_FILE_NAME}; it is not "
                "ours. Name another folder, or move away what is in it"
            ) from None
        return
    if found != mark:
        raise DirectoryError(f"{path} holds {found.strip()!r}, this program needs {mark.strip()!r}")
