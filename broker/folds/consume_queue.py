"""
Consume queues: for each (topic, queue id) the places of its records, in RocketMQ's files.

Here: units in memory and in files, cutting, the table of all queues. Not here: which records there are
(``dispatcher``), what is read of them (``broker.consuming``).

A queue's file is named by the byte that it begins with, has room for 300,000 units of 20 bytes, and keeps its size from
its first unit on. The newest units of a queue are in memory, until there are ``TAIL_UNITS_MAX``.
Rule 1: the unit of queue offset n lies at byte 20 n. Units that no record has are blank.
Rule 2: files are written by ``pwrite``: a full disk is ``OSError`` here, in a map it would be SIGBUS.
Rule 3: nothing is trusted after a start but what the mark counts (``marks``); units behind it are erased.
Rule 4: the loop and the thread that makes marks write the same bytes at the same place, or the thread's are refused:
``QueueFiles.generation`` counts what takes units back.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import struct
import threading
from bisect import insort
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from rollcall_ha.broker.folds.ports import QueueKey
from rollcall_ha.broker.log.segment import segment_name

QUEUES_FOLDER_NAME: Final = "consumequeue"
UNIT: Final = struct.Struct(">qiq")
UNIT_BYTES: Final = UNIT.size
TAIL_UNITS_MAX: Final = 204
"""Kept in memory, for 10,000 queues 40 MB at most; then they are written at once, a page of the file."""
_TAIL_BYTES_MAX: Final = TAIL_UNITS_MAX * UNIT_BYTES
DESCRIPTORS_MAX: Final = 128
"""Files of queues that are open: a replica with 10,000 queues has a usual limit of 1,024 for everything."""
_BLANK_SIZE: Final = 0x7FFFFFFF
_BLANK: Final = UNIT.pack(0, _BLANK_SIZE, 0)
_PLAIN_TOPIC: Final = re.compile(rb"[%|a-zA-Z0-9_-]{1,127}")


def queue_folder(root: Path, topic: bytes, queue_id: int) -> Path:
    """
    Where the files of a queue lie below the replica's directory.

    A topic that RocketMQ would refuse may be any bytes, a path out of the folder too: it lies under its digest.
    """
    name = topic.decode() if _PLAIN_TOPIC.fullmatch(topic) else f"~{hashlib.sha256(topic).hexdigest()}"
    return root / QUEUES_FOLDER_NAME / name / str(queue_id)


class GapError(Exception):
    """A queue lacks units of records that were taken in."""


class StaleError(Exception):
    """Units were taken back since these were gathered: nothing was written."""


class QueueFiles:
    """Descriptors of the newest used files. Used by the loop, and by the thread that makes marks."""

    def __init__(self, root: Path, file_units: int) -> None:
        self.root = root
        self.file_units = file_units
        self.generation = 0
        self._file_bytes = file_units * UNIT_BYTES
        self._open: OrderedDict[tuple[QueueKey, int], int] = OrderedDict()
        self.lock = threading.RLock()

    def write(self, key: QueueKey, at: int, data: bytes | bytearray, generation: int | None = None) -> None:
        """
        Write whole units at byte ``at`` of the queue; written again it ends the same.

        Raises ``OSError``; ``StaleError``: ``generation`` is over.
        """
        with self.lock, memoryview(data) as view:
            if generation is not None and generation != self.generation:
                raise StaleError
            done = 0
            while done < len(view):
                base = at - at % self._file_bytes
                length = min(len(view) - done, base + self._file_bytes - at)
                with view[done : done + length] as part:
                    wrote = os.pwrite(self._descriptor(key, base, is_new=True, at=at), part, at - base)
                done, at = done + wrote, at + wrote

    def read(self, key: QueueKey, at: int, length: int) -> bytes:
        """At most ``length`` bytes from byte ``at`` on, none behind the end of its file. Raises ``OSError``."""
        base = at - at % self._file_bytes
        with self.lock:
            length = min(length, base + self._file_bytes - at)
            return os.pread(self._descriptor(key, base, is_new=False), length, at - base)

    def sync(self, key: QueueKey, start: int, end: int) -> None:
        """*Blocking*. Bytes [``start``, ``end``) of the queue are durable on return. Raises ``OSError``."""
        for base in range(start - start % self._file_bytes, end, self._file_bytes):
            with self.lock:
                descriptor = os.dup(self._descriptor(key, base, is_new=False))
            # Without the lock: a sync takes milliseconds, and the loop would wait for it at its next write.
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)

    def erase_from(self, key: QueueKey, at: int) -> None:
        """*Blocking*. The queue's files end at byte ``at``: zeros behind it, no later file. Raises ``OSError``."""
        folder = queue_folder(self.root, *key)
        if not folder.is_dir():
            return
        with self.lock:
            self.generation += 1
            for path in sorted(folder.iterdir()):
                base = int(path.name) if path.name.isdecimal() else -1
                if base >= at or base < 0:
                    self._forget(key, base)
                    path.unlink()
                elif base <= at < base + self._file_bytes:
                    descriptor = self._descriptor(key, base, is_new=False)
                    if os.pread(descriptor, UNIT_BYTES, at - base).strip(b"\0"):
                        # Shorter and longer again: zeros, without writing six megabytes of them.
                        os.ftruncate(descriptor, at - base)
                        os.ftruncate(descriptor, self._file_bytes)

    def is_later_file(self, before: int, following: int) -> bool:
        """Of two queue offsets."""
        return before // self.file_units < following // self.file_units

    def erase_below(self, key: QueueKey, at: int) -> None:
        """*Blocking*. Files whose bytes all lie below byte ``at`` are gone. Raises ``OSError``."""
        folder = queue_folder(self.root, *key)
        with self.lock:
            for path in sorted(folder.iterdir()) if folder.is_dir() else ():
                base = int(path.name) if path.name.isdecimal() else at
                if base + self._file_bytes <= at:
                    self._forget(key, base)
                    path.unlink()

    def close(self) -> None:
        """Nothing is open any more; the next use opens again."""
        with self.lock:
            while self._open:
                os.close(self._open.popitem()[1])

    def _forget(self, key: QueueKey, base: int) -> None:
        descriptor = self._open.pop((key, base), None)
        if descriptor is not None:
            os.close(descriptor)

    def _descriptor(self, key: QueueKey, base: int, *, is_new: bool, at: int = 0) -> int:
        """``at``: the first byte that is about to be written, if it is a new file."""
        found = self._open.get((key, base))
        if found is not None:
            self._open.move_to_end((key, base))
            return found
        folder = queue_folder(self.root, *key)
        path = folder / segment_name(base)
        if is_new:
            folder.mkdir(parents=True, exist_ok=True)
        descriptor = self._open[key, base] = os.open(path, os.O_RDWR | (os.O_CREAT if is_new else 0), 0o644)
        if is_new and os.fstat(descriptor).st_size < self._file_bytes:
            try:
                _begin_file(descriptor, at - base, self._file_bytes)
            except OSError:
                self._forget(key, base)  # to begin again at the next write
                raise
        if len(self._open) > DESCRIPTORS_MAX:
            os.close(self._open.popitem(last=False)[1])
        return descriptor


def _begin_file(descriptor: int, first: int, file_bytes: int) -> None:
    # RocketMQ's tools read a file from its first byte on: blanks in front of a first unit. With its first unit only: of
    # idle queues that a telling names, the loop would write six megabytes each.
    blanks = memoryview(_BLANK * (first // UNIT_BYTES))
    while blanks:
        blanks = blanks[os.pwrite(descriptor, blanks, first - len(blanks)) :]
    os.ftruncate(descriptor, file_bytes)


class ConsumeQueue:
    """One queue; implements ``ports.Queue``."""

    __slots__ = ("_files", "_key", "_tail", "marked", "max_offset", "min_offset", "written")

    def __init__(self, files: QueueFiles, key: QueueKey, first: int, following: int) -> None:
        """A queue whose units [``first``, ``following``) are in its files."""
        self._files = files
        self._key = key
        self._tail = bytearray()
        self.min_offset = first
        self.max_offset = following
        """The queue offset of the next unit."""
        self.written = following
        """The queue offset up to which units are in the files."""
        self.marked = following
        """The queue offset up to which a mark on disk counts them."""

    def append(self, queue_offset: int, unit: bytes) -> None:
        """
        Take the unit of a record; one that is here already is left out.

        Raises ``OSError``: nothing was taken. ``GapError``: a unit in front of it is not here.
        """
        tail = self._tail
        if queue_offset != self.max_offset:
            if queue_offset < self.max_offset:
                return
            # No log has a gap (R19): units were lost here. Filled with blanks, their messages would be given to nobody.
            raise GapError(f"queue {self._key} ends at {self.max_offset}, the next record says {queue_offset}")
        if len(tail) >= _TAIL_BYTES_MAX:
            self.write()
        tail += unit
        self.max_offset = queue_offset + 1

    def write(self) -> None:
        """Write what is in memory. Raises ``OSError``: it stays there."""
        if self._tail:
            self._files.write(self._key, self.written * UNIT_BYTES, self._tail)
            self.written = self.max_offset
            self._tail.clear()

    def note_marked(self, written: int, tail_bytes: int) -> None:
        """A mark counts the units up to ``written`` and ``tail_bytes`` of those that were in memory behind it."""
        self.marked = written + tail_bytes // UNIT_BYTES
        # They are in the files by now: kept, the tails of 100,000 queues would take 400 MB.
        if self.written == written:
            del self._tail[:tail_bytes]
            self.written = self.marked

    def unmarked(self) -> tuple[QueueKey, int, int, bytes]:
        """What the next mark needs on disk: key, first unit that no mark counts, place and bytes of those in memory."""
        return self._key, self.marked, self.written, bytes(self._tail)

    def units(self, start: int, count_max: int) -> bytes:
        """Units from the queue offset ``start`` on, as ``ports.Queue`` says."""
        start, count = max(start, self.min_offset), min(count_max, self.max_offset - start)
        if count <= 0:
            return b""
        if start >= self.written:
            at = (start - self.written) * UNIT_BYTES
            return bytes(self._tail[at : at + count * UNIT_BYTES])
        return self._files.read(self._key, start * UNIT_BYTES, min(count, self.written - start) * UNIT_BYTES)

    def first_at_or_beyond(self, offset: int, low: int = 0, high: int | None = None) -> int:
        """
        The first queue offset of [``low``, ``high``) whose record lies at or behind the log's ``offset``, or ``high``.

        Raises ``OSError``.
        """
        low, high = max(low, self.min_offset), self.max_offset if high is None else high
        while low < high:
            middle = (low + high) // 2
            place, size, _ = UNIT.unpack(self.units(middle, 1))
            # Zeros: a cut has taken units back that the mark counts. A blank says place 0 and a size, and lies in front
            # of all that was appended behind it.
            if place >= offset or not size:
                high = middle
            else:
                low = middle + 1
        return low

    def trim(self, first: int, start: int) -> bool:
        """
        The log begins at ``start``; ``first`` is the first unit in the files behind it, or where they ended.

        Whether a file may go.
        """
        before = self.min_offset
        # The rest is in memory.
        found = self.first_at_or_beyond(start, first) if first >= self.written else first
        self.min_offset = max(before, found)
        return self._files.is_later_file(before, self.min_offset)

    def cut(self, end: int) -> None:
        """*Blocking*. Take back the units from the queue offset ``end`` on. Raises ``OSError``."""
        if end >= self.max_offset:
            return
        if end < self.written:
            self._tail.clear()
            self.written = end
        else:
            del self._tail[(end - self.written) * UNIT_BYTES :]
        self.max_offset = end
        self.marked = min(self.marked, end)
        # Also where none of the cut units was written: the thread that makes a mark may be about to.
        self._files.erase_from(self._key, end * UNIT_BYTES)


class ConsumeQueues:
    """All queues of a replica."""

    def __init__(self, root: Path, file_units: int) -> None:
        """None yet: ``load`` or ``add`` fills the table."""
        self.files = QueueFiles(root, file_units)
        self._table: dict[QueueKey, ConsumeQueue] = {}
        self._ids: dict[bytes, list[int]] = {}

    def __iter__(self) -> Iterator[tuple[QueueKey, ConsumeQueue]]:
        return iter(self._table.items())

    def find(self, key: QueueKey) -> ConsumeQueue | None:
        return self._table.get(key)

    def ids(self, topic: bytes) -> list[int]:
        """Ids of the topic's queues, ascending."""
        return self._ids.get(topic, [])

    @property
    def topics(self) -> Collection[bytes]:
        return self._ids.keys()

    def add(self, key: QueueKey, first: int) -> ConsumeQueue:
        """A new queue, whose first record has the queue offset ``first``."""
        queue = ConsumeQueue(self.files, key, first, first)
        self._keep(key, queue)
        return queue

    def _keep(self, key: QueueKey, queue: ConsumeQueue) -> None:
        self._table[key] = queue
        insort(self._ids.setdefault(key[0], []), key[1])

    def load(
        self,
        rows: Iterable[tuple[bytes, int, int, int]],
        start: int,
        end: int,
        is_of_log: Callable[[QueueKey, int, int, int], bool],
    ) -> str:
        """
        *Blocking*. Open the queues that a mark counted, as (topic, id, first, next), for a log that has [``start``,
        ``end``) of what was counted; ``is_of_log`` says whether (key, queue offset, place, size) names a record of it.

        Returns what is amiss with their files, empty: nothing; then nothing lies behind what was counted. Raises
        ``OSError``.
        """
        for topic, queue_id, first, following in rows:
            key = (topic, queue_id)
            queue = ConsumeQueue(self.files, key, first, following)
            self._keep(key, queue)
            try:
                # The log was cut since the mark was made, or lost its end with the power.
                keep = queue.first_at_or_beyond(end)
                # Or its front, by age.
                queue.min_offset = queue.first_at_or_beyond(start, high=keep)
                last = queue.units(keep - 1, 1) if queue.min_offset < keep else b""
            except (FileNotFoundError, struct.error) as error:
                return f"files of {queue_folder(self.files.root, *key)} are gone or too short: {error}"
            if not keep:
                self._drop(key)
                continue
            # Nothing is left of it but its number.
            place, size, _ = UNIT.unpack(last or _BLANK)
            if last and not is_of_log(key, keep - 1, place, size):
                return f"unit {keep - 1} in {queue_folder(self.files.root, *key)} names another record, at {place}"
            queue.written = queue.max_offset = queue.marked = keep
            self.files.erase_from(key, keep * UNIT_BYTES)
            if queue.min_offset >= self.files.file_units:
                self.files.erase_below(key, queue.min_offset * UNIT_BYTES)
        self._remove_unknown()
        return ""

    def _remove_unknown(self) -> None:
        """Folders of queues that were begun behind the mark: their records may be gone for ever."""
        known = {queue_folder(self.files.root, *key) for key in self._table}
        for folder in (self.files.root / QUEUES_FOLDER_NAME).glob("*/*"):
            if folder not in known and folder.is_dir():
                shutil.rmtree(folder)

    def firsts(self, start: int) -> list[tuple[QueueKey, int]]:
        """
        *Blocking*, beside the loop. Of each queue the first unit in its files of a record at or behind the log's
        ``start``, or where its files end. Raises ``OSError``.
        """
        found: list[tuple[QueueKey, int]] = []
        for key, queue in list(self._table.items()):
            try:
                found.append((key, queue.first_at_or_beyond(start, high=queue.written)))
            except (FileNotFoundError, struct.error):
                continue  # a cut took them; or the next pull, or start, tells what is amiss
        return found

    def erase_below(self, firsts: Mapping[QueueKey, int]) -> None:
        """*Blocking*. Files in front of these queue offsets are gone. Raises ``OSError``."""
        for key, first in firsts.items():
            self.files.erase_below(key, first * UNIT_BYTES)

    def cut(self, end: int) -> None:
        """*Blocking*. Take back the units of all records at or behind the log's ``end``. Raises ``OSError``."""
        for key, queue in list(self._table.items()):
            keep = queue.first_at_or_beyond(end)
            queue.cut(keep)
            # No record is left: with it in the table, ``has`` a queue that no record has, which no fresh build knows.
            # One whose older records went by age keeps its number (R19).
            if not keep:
                self._drop(key)

    def _drop(self, key: QueueKey) -> None:
        del self._table[key]
        ids = self._ids[key[0]]
        ids.remove(key[1])
        if not ids:
            del self._ids[key[0]]
        self.files.erase_from(key, 0)

    def forget(self) -> None:
        """No queue; what their files hold is written over, and erased by the next start behind its mark."""
        with self.files.lock:
            self.files.generation += 1
            self.files.close()
            self._table.clear()
            self._ids.clear()

    def clear(self) -> None:
        """*Blocking*. No queue, no file. Raises ``OSError``."""
        with self.files.lock:
            self.forget()
            if (folder := self.files.root / QUEUES_FOLDER_NAME).exists():
                shutil.rmtree(folder)

    def rows(self) -> tuple[tuple[bytes, int, int, int], ...]:
        """The table for a mark: (topic, queue id, first, next)."""
        return tuple((*key, queue.min_offset, queue.max_offset) for key, queue in self._table.items())
