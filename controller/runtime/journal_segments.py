"""
Files of the event journal: one segment of JSON lines, its index, and reading from it.

Here: names, scanning, torn tails, sidecar indexes. Not here: writing and its order (``event_journal``).

A segment ``events-INDEX.jsonl`` begins at Raft index INDEX; ``events-INDEX.fill.jsonl`` holds the events that a peer
gave for the gap that ends at INDEX. Lines are ``EventRecord``; the first one may be ``{"gap": …}``: events that this
node has never seen (``GapLine``). ``.index`` files are only a shortcut: a missing one, or one that does not fit its
segment, is made again.

Rule 1: a torn last line is cut, synced, before anything is appended. A bad line before good ones is damage: refused.
Rule 2: readers see synced events, never more.
"""

from __future__ import annotations

import os
import re
from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec

from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.values import EventRef
from rollcall_ha.node.files import atomic_replace

SPARSE_EVERY = 256
"""Events between two places that a search may start from."""

Position = tuple[int, int]
"""(Raft index, ordinal): orders all events, because an index belongs to one term for ever."""

_NAME = re.compile(r"events-(\d{20})(\.fill)?\.jsonl")
_GAP_PREFIX = b'{"gap":'


class JournalDamaged(RuntimeError):
    """The journal cannot be trusted; the message names file, byte and remedy."""


class Gap(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Events after ``after`` and up to Raft index ``to_index`` were never seen here."""

    after: EventRef | None
    to_index: int
    chain: str
    """Chain head at ``to_index``: a peer's answer must end in it. Empty = not known."""
    reason: str


class GapLine(msgspec.Struct, frozen=True):
    """First line of a segment that does not follow the one before."""

    gap: Gap


class _Key(msgspec.Struct, rename="camel"):
    """The part of a line that an index needs."""

    term: int
    index: int
    ordinal: int
    set_key: SetKey | None
    chain: str


class _Sidecar(msgspec.Struct, rename="camel"):
    size_bytes: int
    count: int
    first: tuple[int, int] | None
    last: EventRef | None
    chain: str
    gap: Gap | None
    sparse: list[tuple[int, int, int]]
    sets: dict[str, list[int]]


_decode_key = msgspec.json.Decoder(_Key).decode
_decode_gap = msgspec.json.Decoder(GapLine).decode
_decode_record = msgspec.json.Decoder(EventRecord).decode
_decode_sidecar = msgspec.json.Decoder(_Sidecar).decode


class SegmentIndex:
    """Where the events of one segment are. Grows while the segment does."""

    def __init__(self) -> None:
        """The segment is empty."""
        self.count = 0
        self.first: Position | None = None
        self.last: EventRef | None = None
        self.chain = ""
        self.gap: Gap | None = None
        self.sparse: list[tuple[int, int, int]] = []
        self.sets: dict[str, array[int]] = {}

    def add(self, ref: EventRef, set_key: SetKey | None, chain: str, offset: int) -> None:
        """The event ``ref`` begins at byte ``offset``."""
        if self.count % SPARSE_EVERY == 0:
            self.sparse.append((ref.index, ref.ordinal, offset))
        self.count += 1
        if self.first is None:
            self.first = (ref.index, ref.ordinal)
        self.last = ref
        self.chain = chain
        if set_key is not None:
            self.sets.setdefault(str(set_key), array("Q")).append(offset)

    def seek(self, position: Position) -> int:
        """A byte offset at or before the first event that is not before ``position``."""
        offset = 0
        for index, ordinal, at in self.sparse:
            if (index, ordinal) > position:
                break
            offset = at
        return offset

    def before_last(self, count: int) -> tuple[Position, int]:
        """The nearest known place at or before the last ``count`` events: its position and byte offset."""
        place = max(0, self.count - count) // SPARSE_EVERY
        if place >= len(self.sparse):
            return (0, 0), 0
        index, ordinal, offset = self.sparse[place]
        return (index, ordinal), offset


class JournalSegment:
    """One file, of which readers may see ``size_bytes``."""

    def __init__(self, path: Path) -> None:
        """Raises ``ValueError`` if the name is not a segment's."""
        found = _NAME.fullmatch(path.name)
        if found is None:
            raise ValueError(f"{path.name} is not a segment of the event journal")
        self.path = path
        self.base_index = int(found[1])
        self.is_fill = found[2] is not None
        self.size_bytes = 0
        self.index: SegmentIndex | None = None
        """None: not in memory; ``load_index`` brings it."""
        self.first: Position | None = None
        self.last: EventRef | None = None
        self.chain = ""
        self.gap: Gap | None = None

    @property
    def order(self) -> tuple[int, bool]:
        """Segments sorted by this hold events in order."""
        return self.base_index, self.is_fill

    def adopt(self, index: SegmentIndex, size_bytes: int) -> None:
        self.index = index
        self.size_bytes = size_bytes
        self.first, self.last, self.chain, self.gap = index.first, index.last, index.chain, index.gap

    def open(self, *, is_newest: bool) -> None:
        """
        Read the file's index; the newest one loses a torn last line.

        Raises ``JournalDamaged``, ``OSError``.
        """
        if not is_newest and self._open_by_sidecar():
            return
        index, size_bytes = scan(self.path, repairs=is_newest)
        self.adopt(index, size_bytes)
        if not is_newest:
            self.write_sidecar()
            self.index = None

    def _open_by_sidecar(self) -> bool:
        sidecar = self._read_sidecar()
        if sidecar is None:
            return False
        self.size_bytes = sidecar.size_bytes
        self.first, self.last, self.chain, self.gap = sidecar.first, sidecar.last, sidecar.chain, sidecar.gap
        return True

    def _read_sidecar(self) -> _Sidecar | None:
        try:
            sidecar = _decode_sidecar(self.sidecar_path.read_bytes())
        except (OSError, msgspec.MsgspecError):
            return None
        # It tells another size: killed between segment and sidecar. Its offsets would point into the middle of lines.
        return sidecar if sidecar.size_bytes == self.path.stat().st_size else None

    @property
    def sidecar_path(self) -> Path:
        """Its index on disk."""
        return self.path.with_suffix(".index")

    def write_sidecar(self) -> None:
        """Remember the index of a segment that no longer grows."""
        assert self.index is not None
        index = self.index
        sidecar = _Sidecar(
            size_bytes=self.size_bytes,
            count=index.count,
            first=index.first,
            last=index.last,
            chain=index.chain,
            gap=index.gap,
            sparse=index.sparse,
            sets={key: list(offsets) for key, offsets in index.sets.items()},
        )
        atomic_replace(self.sidecar_path, msgspec.json.encode(sidecar))

    def load_index(self) -> SegmentIndex:
        """The index, from memory, the sidecar or the file. Blocking. Raises ``JournalDamaged``, ``OSError``."""
        if self.index is not None:
            return self.index
        sidecar = self._read_sidecar()
        if sidecar is None:
            return scan(self.path, repairs=False)[0]
        index = SegmentIndex()
        index.count, index.first, index.last = sidecar.count, sidecar.first, sidecar.last
        index.chain, index.gap, index.sparse = sidecar.chain, sidecar.gap, sidecar.sparse
        index.sets = {key: array("Q", offsets) for key, offsets in sidecar.sets.items()}
        return index

    def read(self, position: Position, offset: int, limit: int) -> list[EventRecord]:
        """Up to ``limit`` events that are not before ``position``, searched from byte ``offset`` on. Blocking."""
        found: list[EventRecord] = []
        with self.path.open("rb") as file:
            file.seek(offset)
            # Rule 2: the file may go on, with lines that are written and not yet synced.
            while len(found) < limit and offset < self.size_bytes:
                line = file.readline()
                if not line:
                    break
                offset += len(line)
                if line.startswith(_GAP_PREFIX):
                    continue
                record = _decode_record(line)
                if (record.index, record.ordinal) >= position:
                    found.append(record)
        return found

    def read_at(self, offsets: list[int]) -> list[EventRecord]:
        """The events at these bytes. Blocking."""
        with self.path.open("rb") as file:
            return [_decode_record(_line_at(file.fileno(), offset)) for offset in offsets]


def _line_at(descriptor: int, offset: int) -> bytes:
    size_bytes = 4096
    while True:
        data = os.pread(descriptor, size_bytes, offset)
        end = data.find(b"\n")
        if end >= 0 or len(data) < size_bytes:
            return data[: end if end >= 0 else len(data)]
        size_bytes *= 4


def segment_path(directory: Path, base_index: int, *, is_fill: bool = False) -> Path:
    """Name of a segment."""
    return directory / f"events-{base_index:020d}{'.fill' if is_fill else ''}.jsonl"


def list_segments(directory: Path) -> list[JournalSegment]:
    """All segments in order; other files are not ours to judge."""
    found = [JournalSegment(path) for path in directory.iterdir() if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda segment: segment.order)


def scan(path: Path, *, repairs: bool) -> tuple[SegmentIndex, int]:
    """
    Index a file line by line; returns the bytes that are good.

    With ``repairs`` a torn last line is cut off, durably. Raises ``JournalDamaged``, ``OSError``.
    """
    index = SegmentIndex()
    offset = 0
    torn_at: int | None = None
    for line in _lines(path):
        if torn_at is not None:
            # Rule 1: a write is torn at its end only. Cutting here would take good events with it.
            raise JournalDamaged(_damage(path, torn_at, "a bad line is followed by others"))
        if not _index_line(index, line, offset):
            torn_at = offset
        offset += len(line)
    if torn_at is None:
        return index, offset
    if not repairs:
        # It was synced whole before the next segment began: the disk has lost something that was there.
        raise JournalDamaged(_damage(path, torn_at, "the last line is torn, and it is not the newest segment"))
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.ftruncate(descriptor, torn_at)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return index, torn_at


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        yield from file


def _index_line(index: SegmentIndex, line: bytes, offset: int) -> bool:
    if not line.endswith(b"\n"):
        return False
    try:
        if line.startswith(_GAP_PREFIX):
            index.gap = _decode_gap(line).gap
            return offset == 0  # within a segment events follow one another: nothing can be missing there
        key = _decode_key(line)
    except msgspec.MsgspecError:
        return False
    index.add(EventRef(term=key.term, index=key.index, ordinal=key.ordinal), key.set_key, key.chain, offset)
    return True


def _damage(path: Path, offset: int, what: str) -> str:
    return f"{path} is damaged at byte {offset}: {what}; move the events folder away, a peer will give the events again"
