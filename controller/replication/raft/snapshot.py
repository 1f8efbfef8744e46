"""
Snapshots: the applied state and the two entries that it ends with, in one checksummed file, written beside the raft
thread.

Here: the file, writing it on a thread, sending and receiving it in pieces. Not here: the state itself
(``ports.StateMachine``), cutting the journal (``journal``).

Format, after a magic: chunks of length u32 | CRC-32 u32 | kind u8 + body. HEAD (index and term of both entries, their
commands), then ITEMS (deflated; each item with its length), then END (number of items, CRC-32 over all chunk
checksums).

Rule 1: the state is taken by reference, it is frozen; a thread encodes it item by item and replaces the file durably.
Rule 2: a received snapshot is verified in memory, and durable, before anything of it counts.
Rule 3: damage is never taken for "no snapshot": a node that came up empty would vote and lead. The node refuses to
start.
Rule 4: an error while writing ends the process: the journal would grow until the disk is full.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any

import msgspec

from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.replication.raft.disk import Disk
from rollcall_ha.controller.replication.raft.failstop import FailStop, FailStopPort
from rollcall_ha.controller.replication.raft.journal import Entry

SNAPSHOT_FILE_NAME = "snapshot"
MAGIC = b"RCSNAPS1"
CHUNK_BYTES = 256 * 1024
"""Items are deflated in chunks of about this size: one C call never holds the GIL for long."""
PIECE_BYTES = 64 * 1024
INCOMING_BYTES_MAX = 1 << 30
"""A snapshot that a leader sends may not be longer: some 100 times that of 50,000 sets."""

_CHUNK = struct.Struct("<II")
_HEAD = struct.Struct("<QQIQQI")
_LENGTH = struct.Struct("<I")
_END = struct.Struct("<QI")

_KIND_HEAD, _KIND_MEMBERS, _KIND_ITEMS, _KIND_END = b"H", b"M", b"I", b"E"

Piece = tuple[bytes, bool, bool]
"""(data, is first, is last), as the library sends it."""


class SnapshotDamagedError(ValueError):
    """The snapshot cannot be trusted; the message says where."""


class Snapshot(Frozen):
    previous: Entry
    last: Entry
    items: tuple[bytes, ...]
    members: bytes = b""
    """As a command (``membership``); empty: those of the founding."""


def encode_snapshot(previous: Entry, last: Entry, items: Iterable[bytes], members: bytes = b"") -> bytes:
    head = _HEAD.pack(previous[1], previous[2], len(previous[0]), last[1], last[2], len(last[0]))
    chunks = [_chunk(_KIND_HEAD, head + previous[0] + last[0])]
    if members:
        chunks.append(_chunk(_KIND_MEMBERS, members))
    pending: list[bytes] = []
    pending_bytes = count = 0
    for item in items:
        count += 1
        pending += (_LENGTH.pack(len(item)), item)
        pending_bytes += len(item)
        if pending_bytes >= CHUNK_BYTES:
            chunks.append(_chunk(_KIND_ITEMS, zlib.compress(b"".join(pending), 1)))
            pending.clear()
            pending_bytes = 0
    if pending:
        chunks.append(_chunk(_KIND_ITEMS, zlib.compress(b"".join(pending), 1)))
    total = zlib.crc32(b"".join(chunk[4:8] for chunk in chunks))
    chunks.append(_chunk(_KIND_END, _END.pack(count, total)))
    return MAGIC + b"".join(chunks)


def _chunk(kind: bytes, body: bytes) -> bytes:
    content = kind + body
    return _CHUNK.pack(len(content), zlib.crc32(content)) + content


def decode_snapshot(raw: bytes) -> Snapshot:
    """Inverse of ``encode_snapshot``. Raises ``SnapshotDamagedError``."""
    if raw[: len(MAGIC)] != MAGIC:
        raise SnapshotDamagedError(f"snapshot begins with {raw[: len(MAGIC)]!r}, expected {MAGIC!r}")
    head: bytes | None = None
    items: list[bytes] = []
    members = b""
    checksums = bytearray()
    for kind, body, checksum in _chunks(raw):
        if kind == _KIND_END:
            # Each chunk has a checksum; the sum over them tells that none is missing and that they stand in order.
            count, total = _unpack(_END, body)
            if count != len(items) or total != zlib.crc32(checksums) or head is None:
                raise SnapshotDamagedError(f"snapshot has {len(items)} items, its end says {count}")
            return Snapshot(items=tuple(items), members=members, **_entries_of(head))
        checksums += checksum
        if kind == _KIND_HEAD and head is None:
            head = body
        elif kind == _KIND_MEMBERS and head is not None and not members and not items:
            members = body
        elif kind == _KIND_ITEMS and head is not None:
            items.extend(_items_of(body))
        else:
            raise SnapshotDamagedError(f"snapshot has a chunk of kind {kind!r} where it may not be")
    # Stock PySyncObj logs a dump that is cut short, starts empty, votes, and can be elected.
    raise SnapshotDamagedError("snapshot has no end")


def last_index_of(raw: bytes) -> int:
    """Where the state in a snapshot ends, without inflating it. Raises ``SnapshotDamagedError``."""
    for kind, body, _ in _chunks(raw):
        if kind == _KIND_HEAD:
            return _entries_of(body)["last"][1]
        break
    raise SnapshotDamagedError("snapshot does not begin with its head")


def _chunks(raw: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    offset = len(MAGIC)
    while offset + _CHUNK.size <= len(raw):
        length, checksum = _CHUNK.unpack_from(raw, offset)
        content = raw[offset + _CHUNK.size : offset + _CHUNK.size + length]
        # At least the kind: of zeros where a chunk should begin, the length 0 has a right checksum.
        if len(content) < max(1, length) or zlib.crc32(content) != checksum:
            raise SnapshotDamagedError(f"snapshot is damaged or cut short at byte {offset} of {len(raw)}")
        offset += _CHUNK.size + length
        # Two snapshots in one file: a write that was not atomic. Which of them the journal follows cannot be told.
        if content[:1] == _KIND_END and offset != len(raw):
            raise SnapshotDamagedError(f"snapshot goes on after its end: {len(raw) - offset} bytes")
        yield content[:1], content[1:], _LENGTH.pack(checksum)


def _unpack(layout: struct.Struct, body: bytes) -> tuple[Any, ...]:
    try:
        return layout.unpack_from(body)
    except struct.error as error:
        raise SnapshotDamagedError(f"snapshot has a chunk that is too short: {error}") from error


def _entries_of(head: bytes) -> dict[str, Entry]:
    previous_index, previous_term, previous_length, last_index, last_term, last_length = _unpack(_HEAD, head)
    commands = head[_HEAD.size :]
    if len(commands) != previous_length + last_length or last_index != previous_index + 1:
        raise SnapshotDamagedError("snapshot has a head that contradicts itself")
    return {
        "previous": (commands[:previous_length], previous_index, previous_term),
        "last": (commands[previous_length:], last_index, last_term),
    }


def _items_of(body: bytes) -> Iterator[bytes]:
    try:
        content = zlib.decompress(body)
    except zlib.error as error:
        raise SnapshotDamagedError(f"snapshot has a chunk that cannot be inflated: {error}") from error
    offset = 0
    while offset < len(content):
        (length,) = _unpack(_LENGTH, content[offset : offset + _LENGTH.size])
        offset += _LENGTH.size
        if offset + length > len(content):
            raise SnapshotDamagedError("snapshot has an item that is cut short")
        yield content[offset : offset + length]
        offset += length


class WriterState(Enum):
    """Where the writer is; the thread moves it, the raft thread reads it."""

    IDLE = "idle"
    WAITING = "waiting"
    """Taken, but the event journal has not synced that far yet (R24)."""
    WRITING = "writing"
    WRITTEN = "written"


class _File(msgspec.Struct, frozen=True):
    content: bytes
    last_index: int


class _Outgoing(msgspec.Struct):
    file: _File
    sent_bytes: int = 0


class OutgoingPiece(msgspec.Struct, frozen=True):
    """A piece, and where the snapshot that it belongs to ends."""

    piece: Piece
    last_index: int


class _Taken(msgspec.Struct):
    items: Callable[[], Iterator[bytes]]
    previous: Entry
    last: Entry
    members: bytes


class SnapshotStore:
    """The snapshot file of one node; everything but the writing is for the raft thread."""

    def __init__(
        self,
        disk: Disk,
        fail_stop: FailStopPort,
        *,
        run_beside: Callable[[Callable[[], None]], None],
        floor: Callable[[], int],
    ) -> None:
        """``run_beside`` runs the writing; ``floor`` is the index up to which snapshots may be taken (R24)."""
        self._disk = disk
        self._fail_stop = fail_stop
        self._run_beside = run_beside
        self._floor = floor
        self._state = WriterState.IDLE
        self._taken: _Taken | None = None
        self._outgoing: dict[Any, _Outgoing] = {}
        self._incoming: bytearray | None = None
        self._cached: _File | None = None
        self.writes = 0
        """Snapshots written by this process; for tests."""

    # --- own snapshots ---

    def load(self) -> Snapshot | None:
        """The one on disk; None if there is none. Raises ``SnapshotDamagedError``, ``OSError``."""
        if not self._disk.exists(SNAPSHOT_FILE_NAME):
            return None
        return decode_snapshot(self._disk.read(SNAPSHOT_FILE_NAME))

    def take(self, items: Callable[[], Iterator[bytes]], previous: Entry, last: Entry, members: bytes = b"") -> None:
        """Begin a snapshot of the present state; ``items`` is called beside the raft thread."""
        self._taken = _Taken(items, previous, last, members)
        self._state = WriterState.WAITING
        self._begin_if_allowed()

    @property
    def is_writing(self) -> bool:
        """A snapshot is under way, or is done and ``poll`` has not said so yet."""
        return self._state is not WriterState.IDLE

    def poll(self) -> int | None:
        """Go on; once a snapshot is on disk, returns the index from which the journal must be kept, exactly once."""
        self._begin_if_allowed()
        taken = self._taken
        if taken is None or self._state is not WriterState.WRITTEN:
            return None
        # Only now may the journal be cut: the file is in place, durably. Stock PySyncObj cuts as soon as the dump is
        # renamed, unsynced: after a power cut both are gone.
        self._taken = None
        self._state = WriterState.IDLE
        self._cached = None
        return taken.previous[1]

    def _begin_if_allowed(self) -> None:
        # R24: the events of the entries that a snapshot covers are made by applying them. Cut before the event journal
        # has them on disk, a crash would leave a hole in the record that no replay can fill.
        if self._state is WriterState.WAITING and self._taken is not None and self._floor() >= self._taken.last[1]:
            self._state = WriterState.WRITING
            self._run_beside(self._write)

    def _write(self) -> None:
        taken = self._taken
        if taken is None:
            return  # a received one replaced it
        try:
            content = encode_snapshot(taken.previous, taken.last, taken.items(), taken.members)
            self._disk.replace(SNAPSHOT_FILE_NAME, content)
        except Exception as error:  # noqa: BLE001 - rule 4: after any error, going on would fill the disk
            self._fail_stop(FailStop.STORAGE, f"snapshot cannot be written: {error!r}")
        self.writes += 1
        self._state = WriterState.WRITTEN

    # --- sending ---

    def next_piece(self, peer: Any) -> OutgoingPiece | None:
        """
        The next piece for ``peer``; None while a snapshot is being written or if there is none.

        Raises ``OSError``, ``SnapshotDamagedError``: the file was good when this node started.
        """
        outgoing = self._outgoing.get(peer)
        if outgoing is None:
            # Not while the file is replaced: the log is cut behind the new one before all pieces of the old one are
            # sent.
            if self._state in (WriterState.WRITING, WriterState.WRITTEN) or not self._disk.exists(SNAPSHOT_FILE_NAME):
                return None
            if self._cached is None:
                content = self._disk.read(SNAPSHOT_FILE_NAME)
                self._cached = _File(content, last_index_of(content))
            outgoing = self._outgoing[peer] = _Outgoing(self._cached)
        begin, content = outgoing.sent_bytes, outgoing.file.content
        data = content[begin : begin + PIECE_BYTES]
        outgoing.sent_bytes += len(data)
        is_last = outgoing.sent_bytes >= len(content)
        if is_last:
            del self._outgoing[peer]
            if not self._outgoing:
                self._cached = None
        return OutgoingPiece((data, begin == 0, is_last), outgoing.file.last_index)

    def cancel(self, peer: Any) -> None:
        """``peer`` is gone: begin again when it is back."""
        self._outgoing.pop(peer, None)

    # --- receiving ---

    def receive(self, piece: Piece) -> Snapshot | None:
        """
        Take one piece; with the last one, the verified snapshot, not yet on disk (``keep``).

        Raises ``SnapshotDamagedError``; all pieces so far are then dropped.
        """
        data, is_first, is_last = piece
        if self._state is WriterState.WRITING:
            # Two writers of one file: the older state might be renamed last, behind a journal that was cut for the
            # newer. The leader begins again as long as this node lacks it.
            self._incoming = None
        elif is_first:
            self._incoming = bytearray()
        if self._incoming is None:
            return None
        self._incoming += data
        if len(self._incoming) > INCOMING_BYTES_MAX:
            # A leader whose pieces never end would fill this node's memory.
            self._incoming = None
            raise SnapshotDamagedError(f"snapshot is longer than {INCOMING_BYTES_MAX} bytes")
        if not is_last:
            return None
        content, self._incoming = bytes(self._incoming), None
        snapshot = decode_snapshot(content)
        self._received = content
        return snapshot

    _received: bytes = b""

    def keep(self) -> None:
        """Make the snapshot that ``receive`` returned the one on disk; an error ends the process."""
        content, self._received = self._received, b""
        # An own snapshot that waits has an older state: written later, it would replace this one.
        self._taken = None
        self._state = WriterState.IDLE
        try:
            self._disk.replace(SNAPSHOT_FILE_NAME, content)
        except OSError as error:
            self._fail_stop(FailStop.STORAGE, f"received snapshot cannot be written: {error}")
        self._cached = None


def run_on_thread(work: Callable[[], None]) -> None:
    """The real ``run_beside``: a thread of its own, so that the raft thread goes on ticking."""
    threading.Thread(target=work, name="raft-snapshot", daemon=True).start()
