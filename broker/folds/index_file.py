"""
One file of the key index, in RocketMQ's format: a header of 40 bytes, slots of 4, units of 20.

Here: its bytes, chains of units, taking units back. Not here: which files there are, and what may be believed after a
crash (``key_index``); Java's hash (``java_hash``).

Rule 1: units are numbered from 1 on; a chain begins in the slot of a hash and goes from each unit to an older one.
Rule 2: units are written as they come. The slots of a file that grows are in memory, and a slot is written when the
unit that it names has been synced. Through a shared map the kernel could write it first: the power goes, the slot names
a unit that never was, and with it the older units of that chain are lost.
Rule 3: so a slot on the disk may be ahead of what counts, and its chain leads back to what counts.
"""

from __future__ import annotations

import os
import struct
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

HEADER: Final = struct.Struct(">qqqqii")
UNIT: Final = struct.Struct(">iqii")
SLOT_BYTES: Final = 4
INT_MAX: Final = 0x7FFFFFFF
CLOCKS_APART_MS_MAX: Final = 60_000
"""An older record may say a later time: its master's clock was ahead of the next one's by up to this."""
_PAGE_SLOTS: Final = 1024
_SYNC_PAGES: Final = 1024
"""So many pages of slots, 4 MiB, are copied for one sync."""
_UNDO_UNITS: Final = 65_536


class IndexDamagedError(OSError):
    """A file is not what was written; the message says where."""


class Header(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """The fields of a file's first 40 bytes, in their order."""

    begin_ms: int = 0
    end_ms: int = 0
    begin_offset: int = 0
    end_offset: int = 0
    used_slots: int = 0
    count: int = 1
    """The number that the next unit will have."""


class Shape(msgspec.Struct, frozen=True, rename="camel"):
    """How large each file is; RocketMQ's numbers unless a test says others."""

    slot_count: int = 5_000_000
    unit_count: int = 20_000_000

    @property
    def file_bytes(self) -> int:
        return self.unit_at(self.unit_count)

    def unit_at(self, number: int) -> int:
        """Where a unit lies in its file."""
        return HEADER.size + SLOT_BYTES * self.slot_count + UNIT.size * number


class Draft(msgspec.Struct, gc=False):
    """Units that a file can take: written by ``write``, counted by ``apply``."""

    file: IndexFile
    header: Header
    heads: dict[int, int]
    """The new values of slots."""
    units: bytes


class IndexFile:
    """A file; its slots are in memory (``heads``) from ``create`` or ``attach`` on until ``detach``."""

    __slots__ = ("_dirty", "_fd", "_shape", "header", "heads", "path")

    def __init__(self, path: Path, shape: Shape, header: Header) -> None:
        """For a file that is there, or for ``create``."""
        self.path = path
        self.header = header
        self.heads: array[int] | None = None
        self._shape = shape
        self._dirty = bytearray()
        """For each page of slots whether it differs from the disk's."""
        self._fd = -1

    @classmethod
    def create(cls, path: Path, shape: Shape, before: Header) -> IndexFile:
        """Make an empty file that follows on one with the header ``before``, as sparse. Raises ``OSError``."""
        end_ms, end_offset = max(before.end_ms, 0), before.end_offset
        file = cls(path, shape, Header(end_ms, end_ms, end_offset, end_offset))
        file._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            os.ftruncate(file._fd, shape.file_bytes)
        except OSError:
            file.detach()
            raise
        file._hold(array("i", bytes(SLOT_BYTES * shape.slot_count)))
        return file

    def read_header(self) -> None:
        """*Blocking*. Of a full file. Raises ``OSError``, ``IndexDamagedError``."""
        with self.path.open("rb") as opened:
            found, size = opened.read(HEADER.size), os.fstat(opened.fileno()).st_size
        if size != self._shape.file_bytes:
            raise IndexDamagedError(f"{self.path} has {size} bytes, not {self._shape.file_bytes}")
        self.header = Header(*HEADER.unpack(found))
        if self.header.count != self._shape.unit_count:
            raise IndexDamagedError(f"{self.path} counts {self.header.count} units, not {self._shape.unit_count}")

    def attach(self) -> None:
        """*Blocking*. Hold the slots of a file that has ``header``. Raises ``OSError``, ``IndexDamagedError``."""
        self._fd = os.open(self.path, os.O_RDWR)
        size, least = os.fstat(self._fd).st_size, self._shape.unit_at(self.header.count)
        if not least <= size <= self._shape.file_bytes:
            raise IndexDamagedError(f"{self.path} has {size} bytes, not {least} to {self._shape.file_bytes}")
        heads = array("i", _read_at(self._fd, SLOT_BYTES * self._shape.slot_count, HEADER.size))
        self._hold(_swapped(heads))
        if min(heads) < 0 or max(heads) >= self.header.count:
            for slot, number in enumerate(heads):
                if not 0 <= number < self.header.count:
                    self._set(slot, self._counted(number))

    def _counted(self, number: int) -> int:
        """Rule 3: where a chain that begins ahead of what counts comes back to it."""
        while not 0 <= number < self.header.count:
            if not 0 < number < self._shape.unit_count:
                raise IndexDamagedError(f"{self.path}: a slot names unit {number} of {self._shape.unit_count}")
            previous = self._unit(self._fd, number)[3]
            if previous >= number:
                raise IndexDamagedError(f"{self.path}: unit {number} goes on to unit {previous}")
            number = previous
        return number

    def _hold(self, heads: array[int]) -> None:
        self.heads, self._dirty = heads, bytearray(len(heads) // _PAGE_SLOTS + 1)

    def detach(self) -> None:
        """Let go of slots and descriptor."""
        self.heads = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    # --- growing -----------------------------------------------------------------------------------------------------

    def draft(self, keyed: Sequence[tuple[int, int, int]]) -> Draft:
        """Units for keys as (hash, log offset, store time in ms); there is room for all of them."""
        assert self.heads is not None, "a file that grows is held"
        header, slots, slot_count = self.header, self.heads, self._shape.slot_count
        begin_ms, begin_offset, used, number = header.begin_ms, header.begin_offset, header.used_slots, header.count
        heads: dict[int, int] = {}
        units: list[bytes] = []
        pack = UNIT.pack
        for key_hash, offset, stored_at_ms in keyed:
            slot = key_hash % slot_count
            previous = heads.get(slot) or slots[slot]
            if not previous:
                used += 1
            seconds = (stored_at_ms - begin_ms) // 1000 if 0 < begin_ms < stored_at_ms else 0
            units.append(pack(key_hash, offset, min(seconds, INT_MAX), previous))
            heads[slot] = number
            if number == 1:
                # Behind its unit, as RocketMQ does: the first one counts its seconds from the end of the file before.
                begin_ms, begin_offset = stored_at_ms, offset
            number += 1
        _, end_offset, end_ms = keyed[-1]
        return Draft(self, Header(begin_ms, end_ms, begin_offset, end_offset, used, number), heads, b"".join(units))

    def write(self, draft: Draft) -> None:
        """The units of ``draft``, behind those that count. Raises ``OSError``: nothing has changed for readers."""
        _write_at(self._fd, draft.units, self._shape.unit_at(self.header.count))

    def apply(self, draft: Draft) -> None:
        """From here on the units of ``draft`` count."""
        slots, dirty = self.heads, self._dirty
        assert slots is not None, "a file that grows is held"
        for slot, number in draft.heads.items():
            slots[slot] = number
            # In this order: a sync on another thread calls a page clean before it copies it.
            dirty[slot // _PAGE_SLOTS] = 1
        self.header = draft.header

    def _set(self, slot: int, number: int) -> None:
        assert self.heads is not None, "a file that is changed is held"
        self.heads[slot] = number
        self._dirty[slot // _PAGE_SLOTS] = 1

    def sync(self, header: Header) -> None:
        """
        *Blocking*, beside a thread that drafts and applies. All that ``header`` counts is durable on return.

        Raises ``OSError``: of a write, it may be tried again; of a sync, nothing may be assumed any more.
        """
        for pages in self._dirty_pages():
            try:
                # Rule 2: the copied slots name units that were written before they were copied.
                os.fdatasync(self._fd)
                for page, slots in pages:
                    _write_at(self._fd, slots, HEADER.size + SLOT_BYTES * _PAGE_SLOTS * page)
            except OSError:
                for page, _ in pages:
                    self._dirty[page] = 1
                raise
        _write_at(self._fd, HEADER.pack(*msgspec.structs.astuple(header)), 0)
        os.fdatasync(self._fd)

    def _dirty_pages(self) -> Iterator[list[tuple[int, memoryview]]]:
        """Copies of the slots that the disk lacks, so many at a time that a sync is worth it and memory stays small."""
        assert self.heads is not None, "a file that is synced is held"
        dirty, pages = self._dirty, list[tuple[int, memoryview]]()
        page = dirty.find(1)
        while page >= 0:
            dirty[page] = 0
            slots = _swapped(self.heads[page * _PAGE_SLOTS : (page + 1) * _PAGE_SLOTS])
            pages.append((page, memoryview(slots).cast("B")))
            page = dirty.find(1, page + 1)
            if len(pages) == _SYNC_PAGES or page < 0:
                yield pages
                pages = []

    # --- taking back -------------------------------------------------------------------------------------------------

    def undo(self, boundary: int) -> bool:
        """
        *Blocking*, in memory. Units of records at or beyond the log offset ``boundary`` do not count any more.

        False: some did, and the header's end time is known to the second only. Raises ``OSError``.
        """
        keep = self._first_at_or_beyond(boundary)
        header, used = self.header, self.header.used_slots
        if keep == header.count:
            return True
        for end in range(header.count, keep, -_UNDO_UNITS):
            start = max(keep, end - _UNDO_UNITS)
            data = _read_at(self._fd, UNIT.size * (end - start), self._shape.unit_at(start))
            for key_hash, _, _, previous in reversed(list(UNIT.iter_unpack(data))):
                self._set(key_hash % self._shape.slot_count, previous)
                used -= not previous
        _, end_offset, seconds, _ = self._unit(self._fd, keep - 1)
        end_ms = self._time_of(keep - 1, seconds)
        self.header = Header(header.begin_ms, end_ms, header.begin_offset, end_offset, used, keep)
        return False

    def _first_at_or_beyond(self, offset: int) -> int:
        return bisect_left(range(self.header.count), offset, 1, key=lambda number: self._unit(self._fd, number)[1])

    def clear_tail(self) -> None:
        """*Blocking*. Behind the units that count there are zeros, up to a file's size. Raises ``OSError``."""
        os.ftruncate(self._fd, self._shape.unit_at(self.header.count))
        os.ftruncate(self._fd, self._shape.file_bytes)

    # --- reading -----------------------------------------------------------------------------------------------------

    def find(
        self, key_hash: int, begin_ms: int, end_ms: int, *, count_max: int, links_max: int, found: dict[int, None]
    ) -> int:
        """
        Add the log offsets of units with this hash to ``found``, newest first, until it has ``count_max`` of them.

        Times are known to the second: a record may be up to 999 ms outside of [``begin_ms``, ``end_ms``]. Returns how
        many links of the chain were followed. Raises ``OSError``.
        """
        header = self.header
        first_ms = begin_ms - CLOCKS_APART_MS_MAX
        if header.begin_ms > end_ms + CLOCKS_APART_MS_MAX or header.end_ms < first_ms:
            return 0
        # A descriptor of its own: the one of a file that grows is closed by a thread.
        descriptor = os.open(self.path, os.O_RDONLY)
        try:
            slot, heads = key_hash % self._shape.slot_count, self.heads
            if heads is not None:
                number = heads[slot]
            else:
                number = int.from_bytes(_read_at(descriptor, SLOT_BYTES, HEADER.size + SLOT_BYTES * slot), "big")
            for links in range(links_max):
                if not 0 < number < header.count or len(found) >= count_max:
                    return links
                unit_hash, offset, seconds, previous = self._unit(descriptor, number)
                unit_ms = self._time_of(number, seconds)
                if unit_ms < first_ms or previous >= number:
                    return links + 1
                if unit_hash == key_hash and begin_ms - 1000 < unit_ms <= end_ms:
                    found[offset] = None
                number = previous
            return links_max
        finally:
            os.close(descriptor)

    def _time_of(self, number: int, seconds: int) -> int:
        # The seconds of the first unit are not of this file's beginning (``draft``), which is its own time.
        return self.header.begin_ms + 1000 * seconds * (number > 1)

    def _unit(self, descriptor: int, number: int) -> tuple[int, int, int, int]:
        key_hash, offset, seconds, previous = UNIT.unpack(_read_at(descriptor, UNIT.size, self._shape.unit_at(number)))
        return key_hash, offset, seconds, previous


def _swapped(slots: array[int]) -> array[int]:
    """In place, between the machine's order of bytes and the file's."""
    if sys.byteorder == "little":
        slots.byteswap()
    return slots


def _read_at(descriptor: int, size: int, at: int) -> bytes:
    data = os.pread(descriptor, size, at)
    if len(data) < size:
        raise IndexDamagedError(f"a file of the key index ends at {at + len(data)}, before {at + size}")
    return data


def _write_at(descriptor: int, data: bytes | memoryview, at: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, at)
        view, at = view[written:], at + written
