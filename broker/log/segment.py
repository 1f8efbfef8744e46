"""
One file of the commit log: preallocated, mapped, named by the offset of its first byte.

Rule 1: every block is allocated before the file is mapped, so a full disk is ``OSError`` here and never SIGBUS later. A
copy that left out blocks of zeros gets them back.
Rule 2: a mapped file keeps its size: cut bytes are zeroed.
Rule 3: ``sync`` is fdatasync on the descriptor; ``mmap.flush`` holds the interpreter lock and is never used.
Rule 4: a file gets its name when it is whole: a crash while one is made leaves a ``.tmp`` that the next start removes.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from rollcall_ha.epoch.model import LogOffset
from rollcall_ha.node.files import fsync_directory

NAME_DIGITS = 20
TEMPORARY_SUFFIX = ".tmp"
_STAT_BLOCK_BYTES = 512
_CHUNK_BYTES = 1024 * 1024
_ZEROS = bytes(_CHUNK_BYTES)


class SegmentError(ValueError):
    """A file in the log's folder is not a segment of this log; the message says what to do."""


def segment_name(base: int) -> str:
    return f"{base:0{NAME_DIGITS}d}"


class LogSegment:
    """Bytes ``[base, base + size)`` of the log."""

    __slots__ = ("_map", "base", "fd", "path", "size", "view")

    def __init__(self, path: Path, base: int, size: int) -> None:
        """Map an existing file. Raises ``OSError``, ``SegmentError`` if its size is not ``size``."""
        self.path, self.base, self.size = path, base, size
        found = path.stat()
        if found.st_size != size:
            raise SegmentError(f"{path} has {found.st_size} bytes, not {size}; set segment_bytes back")
        self.fd = os.open(path, os.O_RDWR)
        try:
            if (allocated := found.st_blocks * _STAT_BLOCK_BYTES) < size:
                self._fill_holes(allocated)
            self._map = mmap.mmap(self.fd, size)
        except BaseException:
            os.close(self.fd)
            raise
        self.view = memoryview(self._map)
        """All of it, writable; slices of it are released before ``close``."""

    def _fill_holes(self, allocated: int) -> None:
        # ``cp --sparse`` and rsync -S leave out the zeros ahead. Mapped like that on a disk that fills up, the append
        # that reaches them is SIGBUS: the process is gone without a line.
        try:
            os.posix_fallocate(self.fd, 0, self.size)
        except OSError as error:
            problem = f"{self.path} is a sparse copy, {allocated} of {self.size} bytes are on the disk"
            remedy = "free space for the rest, or copy it anew with its zeros (cp --sparse=never)"
            raise OSError(error.errno, f"{problem}: {error.strerror}; {remedy}") from error

    @property
    def end(self) -> int:
        """First offset behind it."""
        return self.base + self.size

    @classmethod
    def create(cls, directory: Path, base: int, size: int) -> LogSegment:
        """
        Make and map a segment of zeros; its name and its blocks are durable on return.

        Raises ``OSError``: the disk is full, or the file may not be as large. Nothing is left behind.
        """
        path = directory / segment_name(base)
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            # Every block now: a hole that finds no block later is SIGBUS in the middle of an append, which no handler
            # can turn into "disk full".
            os.posix_fallocate(descriptor, 0, size)
            os.fsync(descriptor)
            temporary.rename(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)
        # Without this a power cut may take the name with all records that were synced into the file since.
        fsync_directory(directory)
        return cls(path, base, size)

    def sync(self) -> None:
        """Everything written so far is durable on return. Raises ``OSError``, after which nothing may be assumed."""
        os.fdatasync(self.fd)

    def write_again(self, start: int, end: int) -> None:
        """
        Make the log's bytes ``[start, end)`` that lie here dirty, so that ``sync`` writes them. Raises ``OSError``.
        """
        at, stop = max(start - self.base, 0), min(end - self.base, self.size)
        while at < stop:
            with self.view[at : min(at + _CHUNK_BYTES, stop)] as part:
                at += os.pwrite(self.fd, part, at)

    def zero(self, start: int, end: int) -> None:
        """Zero ``[start, end)``, counted from the segment's first byte."""
        view = self.view
        while start < end:
            step = min(_CHUNK_BYTES, end - start)
            view[start : start + step] = _ZEROS[:step]
            start += step

    def data_end(self, start: int) -> int:
        """Behind the last byte that is not zero, at least ``start``; counted from the segment's first byte."""
        end = self.size
        while end > start:
            low = max(start, end - _CHUNK_BYTES)
            part = bytes(self.view[low:end])
            if part != _ZEROS[: end - low]:
                return low + len(part.rstrip(b"\0"))
            end = low
        return start

    def find(self, pattern: bytes, start: int) -> int:
        """Where ``pattern`` comes first at or behind ``start``, counted from the segment's first byte; -1: nowhere."""
        return self._map.find(pattern, start)

    def close(self) -> None:
        """Unmap. Raises ``BufferError`` if somebody still holds a view (rule 2 of ``ha.ports``)."""
        self.view.release()
        self._map.close()
        os.close(self.fd)


def open_segments(directory: Path, size: int, *, cut_offset: LogOffset | None) -> list[LogSegment]:
    """
    Map every segment of ``directory``, in order; removes files that a crash left half made (rule 4).

    ``cut_offset``: of a cut that was interrupted, whose dropped segments may be missing; None: there is none.

    Raises:
        SegmentError: a foreign name, another size, or a hole between two files.
    """
    bases: list[int] = []
    for path in sorted(directory.iterdir()):
        if path.name.endswith(TEMPORARY_SUFFIX):
            path.unlink()  # a crash while it was made: it has no byte of the log
        elif len(path.name) != NAME_DIGITS or not path.name.isdecimal():
            raise SegmentError(f"{path} is not a segment; move it out of the log's folder")
        else:
            bases.append(int(path.name))
    segments: list[LogSegment] = []
    for base in bases:
        # A hole means that a file was lost or that ``segment_bytes`` was changed. Going on would put records at offsets
        # that no other replica has them at.
        # Behind an interrupted cut it means less: killed between its first drop and its second, the process left
        # segments 0, 2, 3, and refused for good, the replica would never start again (R20).
        is_hole = bool(segments) and base != segments[-1].end
        is_dropped = is_hole and cut_offset is not None and segments[-1].end >= cut_offset
        if base % size or (is_hole and not is_dropped):
            raise SegmentError(f"segment {segment_name(base)} in {directory} does not follow on (size {size})")
        segments.append(LogSegment(directory / segment_name(base), base, size))
    return segments
