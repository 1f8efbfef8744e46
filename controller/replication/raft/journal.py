"""
The Raft log of one node, its term and its vote, in one append-only file that survives a power cut.

Here: the file format, recovery, and the list that the library works on (its ``Journal`` interface, hence the foreign
method names). Not here: when to sync (``repairs``, ``node``), the meaning of an entry (``node``).

Format. A file is a magic, then batches; a batch is what one sync wrote:

    header   payload length u32 | batch number u64 | CRC-32 of payload u32 | CRC-32 of the 16 bytes before u32
    payload  records of type u8 | length u32 | body:
             ENTRY index u64, term u64, command | CUT from index u64 | VOTE term u64, name | CLEAR | COMMIT index u64

All numbers are little endian.

Rule 1: nothing is durable before ``sync``: one write and one fdatasync for all records since the last one. An error
ends the process.
Rule 2: a batch counts whole or not at all: no record of a torn batch was ever acknowledged.
Rule 3: at start, a tail that was never completely written (the file ends within it, or a sector of it is all zeros) is
dropped. Any other damage means that something acknowledged is gone: the node refuses to start. A whole batch behind
the damage proves that, too, because a batch is written only when the one before is synced.
Rule 4: shortening from the front writes a new file and replaces the old one; the file then has one batch.
Rule 5: entries that were applied are never cut. If the library asks for it, this node has diverged, and stops.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import overload

import msgspec
from pysyncobj.journal import Journal

from rollcall_ha.controller.replication.membership import CONFIGURATION
from rollcall_ha.controller.replication.raft.disk import Disk
from rollcall_ha.controller.replication.raft.failstop import FailStop, FailStopPort

JOURNAL_FILE_NAME = "journal"
MAGIC = b"RCJOURN1"
SECTOR_BYTES = 512

_HEADER = struct.Struct("<IQI")
_CRC = struct.Struct("<I")
_HEADER_BYTES = _HEADER.size + _CRC.size
_RECORD = struct.Struct("<BI")
_ENTRY = struct.Struct("<QQ")
_INDEX = struct.Struct("<Q")

ENTRY, CUT, VOTE, CLEAR, COMMIT = 1, 2, 3, 4, 5

Entry = tuple[bytes, int, int]
"""(command, index, term), in the order that the library wants."""

NO_OP = b"\x01"
"""Command of the entry that a new leader appends, and of the first one of every log."""

FIRST_ENTRY: Entry = (NO_OP, 1, 0)
"""The beginning of every log, on every node; it counts as applied."""


REMEDY = (
    "restore this controller's data directory, as a whole, from a backup; if there are others, move its raft directory "
    "away instead and start it again: it is filled from them"
)


class JournalDamagedError(ValueError):
    """The file cannot be trusted; the message says where and what to do."""


class Batch(msgspec.Struct, frozen=True):
    """One whole batch as it was found."""

    number: int
    payload: bytes


def encode_batch(number: int, payload: bytes) -> bytes:
    """One batch as bytes."""
    header = _HEADER.pack(len(payload), number, zlib.crc32(payload))
    return header + _CRC.pack(zlib.crc32(header)) + payload


def read_batches(raw: bytes) -> tuple[list[Batch], int]:
    """
    All whole batches, and how many bytes of a torn tail follow them; zeros behind are room (``disk``), not a tail.

    Raises ``JournalDamagedError`` by rule 3.
    """
    if raw[: len(MAGIC)] != MAGIC:
        raise JournalDamagedError(f"journal begins with {raw[: len(MAGIC)]!r}, expected {MAGIC!r}; {REMEDY}")
    batches: list[Batch] = []
    offset = len(MAGIC)
    written = len(raw.rstrip(b"\x00"))
    while offset < written:
        batch = _batch_at(raw, offset)
        # Numbers run on. A gap between two whole batches is one that was lost between them, acknowledged entries and
        # all.
        expected = batches[-1].number + 1 if batches else None
        if batch is None or (expected is not None and batch.number != expected):
            _require_torn(raw, offset, written, batches[-1].number if batches else 0)
            break
        batches.append(batch)
        offset += _HEADER_BYTES + len(batch.payload)
    return batches, max(0, written - offset)


def _header_at(raw: bytes, offset: int) -> tuple[int, int, int] | None:
    # The header has a checksum of its own: else a flipped bit in the length would make "the file ends within this
    # batch" out of damage, and acknowledged entries be dropped as a torn tail.
    header = raw[offset : offset + _HEADER.size]
    crc = raw[offset + _HEADER.size : offset + _HEADER_BYTES]
    if len(crc) < _CRC.size or _CRC.unpack(crc)[0] != zlib.crc32(header):
        return None
    length, number, payload_crc = _HEADER.unpack(header)
    return length, number, payload_crc


def _batch_at(raw: bytes, offset: int) -> Batch | None:
    header = _header_at(raw, offset)
    if header is None:
        return None
    length, number, payload_crc = header
    payload = raw[offset + _HEADER_BYTES : offset + _HEADER_BYTES + length]
    return Batch(number, payload) if len(payload) == length and zlib.crc32(payload) == payload_crc else None


def _require_torn(raw: bytes, offset: int, written: int, last_number: int) -> None:
    """
    Raise unless the bytes from ``offset`` on can only be a batch that was never completely written (rule 3).

    ``written``: behind the last byte that is not zero.
    """
    # Stock PySyncObj has no checksums: it applies one flipped byte, and that replica differs from the others for ever.
    for later in range(offset + 1, min(written, len(raw) - _HEADER_BYTES + 1)):
        header = _header_at(raw, later)
        if header is not None and header[1] > last_number:
            raise JournalDamagedError(
                f"journal is damaged at byte {offset}: whole batch {header[1]} follows at byte {later}; {REMEDY}"
            )
    header = _header_at(raw, offset)
    end = offset + _HEADER_BYTES + (header[0] if header is not None else 0)
    if end > len(raw):
        return  # the write was cut by the end of the file: nobody was told that it was synced
    if header is None:
        end = written
    # A power cut within a write leaves sectors of it unwritten: zeros, because the room ahead was zeros (``disk``).
    # With every sector written the sync may have returned, and its entries be acknowledged: bit rot, not a torn tail.
    if not _has_empty_sector(raw, offset, end):
        raise JournalDamagedError(
            f"journal is damaged at byte {offset}: a completely written batch has a wrong checksum; {REMEDY}"
        )


def _has_empty_sector(raw: bytes, start: int, end: int) -> bool:
    while start < end:
        sector_end = min(end, start - start % SECTOR_BYTES + SECTOR_BYTES)
        if not any(raw[start:sector_end]):
            return True
        start = sector_end
    return False


def _records(payload: bytes) -> Iterator[tuple[int, bytes]]:
    offset = 0
    while offset < len(payload):
        kind, length = _RECORD.unpack_from(payload, offset)
        offset += _RECORD.size
        yield kind, payload[offset : offset + length]
        offset += length


def _record(kind: int, body: bytes) -> bytes:
    return _RECORD.pack(kind, len(body)) + body


class DurableJournal(Journal):  # type: ignore[misc]
    """The library's journal on our file. All methods are for the raft thread."""

    def __init__(self, disk: Disk, fail_stop: FailStopPort) -> None:
        """
        Recover from ``disk``, or begin a new file, durable on return.

        Raises:
            JournalDamagedError: by rule 3, or a record that makes no sense.
            OSError: the file cannot be read or written.
        """
        self._disk = disk
        self._fail_stop = fail_stop
        self._entries: list[Entry] = []
        self._term = 0
        self._vote: str | None = None
        self._commit_index = 1
        self._commit_index_written = 1
        self._buffer: list[bytes] = []
        self._batch_number = 0
        self._bytes = 0
        self.syncs = 0
        """How often ``sync`` had something to do; for tests."""
        self._base: tuple[int, bytes] = (0, b"")
        self._configurations: list[tuple[int, bytes]] = []
        self.applied_floor = 0
        """Entries up to this index are applied here: cutting them ends the process (rule 5)."""
        self.was_new = not disk.exists(JOURNAL_FILE_NAME)
        if self.was_new:
            self._entries.append(FIRST_ENTRY)
            self.rewrite()
        else:
            self._recover(disk.read(JOURNAL_FILE_NAME))

    def _recover(self, raw: bytes) -> None:
        batches, torn_bytes = read_batches(raw)
        if not batches:
            # The first batch was synced before this node took part. A node that comes up empty has forgotten its vote.
            raise JournalDamagedError(f"journal has no whole batch, but every journal begins with one; {REMEDY}")
        for batch in batches:
            for kind, body in _records(batch.payload):
                self._replay(kind, body)
        self._batch_number = batches[-1].number
        self._bytes = len(raw)
        self.torn_bytes = torn_bytes
        used_bytes = len(MAGIC) + sum(_HEADER_BYTES + len(batch.payload) for batch in batches)
        # Never appended behind a torn tail: good batches behind bad bytes are damage to the next start (rule 3), which
        # would refuse although nothing is lost. Behind room the next batch would leave a hole of zeros.
        if used_bytes != len(raw) or not self._entries:
            if not self._entries:
                self._entries.append(FIRST_ENTRY)
            self.rewrite()

    torn_bytes = 0
    """Bytes of a torn tail that recovery dropped."""

    def _replay(self, kind: int, body: bytes) -> None:
        match kind:
            case 1:
                index, term = _ENTRY.unpack_from(body)
                # The library finds an entry by its distance from the first: with one missing it would apply the wrong
                # ones.
                if self._entries and index != self._entries[-1][1] + 1:
                    raise JournalDamagedError(f"journal: entry {index} follows entry {self._entries[-1][1]}")
                self._entries.append((body[_ENTRY.size :], index, term))
                self._note(body[_ENTRY.size :], index)
            case 2:
                (index,) = _INDEX.unpack(body)
                while self._entries and self._entries[-1][1] >= index:
                    self._entries.pop()
                self._forget_from(index)
            case 3:
                (self._term,) = _INDEX.unpack_from(body)
                self._vote = body[_INDEX.size :].decode("utf-8") or None
            case 4:
                self._entries.clear()
                self._configurations.clear()
            case 5:
                (self._commit_index,) = _INDEX.unpack(body)
                self._commit_index_written = self._commit_index
            case _:
                # Not skipped: it may be a cut or a vote in a form that this code does not know.
                raise JournalDamagedError(f"journal: record of unknown type {kind}; it was written by newer code")

    # --- durability ---

    @property
    def is_dirty(self) -> bool:
        """Something is buffered that a power cut would lose."""
        return bool(self._buffer)

    @property
    def file_bytes(self) -> int:
        """Size of the file, buffered records included."""
        return self._bytes

    def sync(self) -> None:
        """
        Everything so far is durable on return; an error ends the process.

        Stock PySyncObj (P6) writes through a map that it never syncs: a power cut takes acknowledged entries of all.
        """
        if not self._buffer:
            return
        self._batch_number += 1
        batch = encode_batch(self._batch_number, b"".join(self._buffer))
        self._buffer.clear()
        try:
            self._disk.append(JOURNAL_FILE_NAME, batch)
            self._disk.sync(JOURNAL_FILE_NAME)
        except OSError as error:
            # Not again: after a failed sync the kernel calls the pages clean, and the next sync says that all is well.
            self._fail_stop(FailStop.STORAGE, f"journal cannot be written: {error}")
        self.syncs += 1

    def rewrite(self) -> None:
        """
        Replace the file by one that holds the present content only; durable on return; an error ends the process.

        Stock PySyncObj (P2) shortens in place: it marks its file empty and adds the entries again, one by one. Killed
        in between, it starts without acknowledged entries.
        """
        payload = [
            _record(VOTE, _INDEX.pack(self._term) + (self._vote or "").encode("utf-8")),
            _record(COMMIT, _INDEX.pack(self._commit_index)),
        ]
        payload.extend(_record(ENTRY, _ENTRY.pack(index, term) + command) for command, index, term in self._entries)
        # Goes on counting: batches that follow must not have the numbers of older ones.
        self._batch_number += 1
        data = MAGIC + encode_batch(self._batch_number, b"".join(payload))
        # Buffered records are in ``payload`` by their effect: term, vote and entries are written as they are now.
        self._buffer.clear()
        try:
            self._disk.replace(JOURNAL_FILE_NAME, data)
        except OSError as error:
            self._fail_stop(FailStop.STORAGE, f"journal cannot be rewritten: {error}")
        self._bytes = len(data)
        self._commit_index_written = self._commit_index

    def _put(self, kind: int, body: bytes) -> None:
        record = _record(kind, body)
        self._buffer.append(record)
        self._bytes += len(record)

    # --- members (R30, adr/0020) ---

    def set_base(self, index: int, configuration: bytes) -> None:
        """The members that a snapshot, or the founding, ends with; entries up to ``index`` say nothing any more."""
        self._base = (index, configuration)
        self._configurations = [one for one in self._configurations if one[0] > index]

    @property
    def configuration(self) -> tuple[int, bytes]:
        """
        The members in force, as a command, and the index of their entry: the newest in the log, committed or not.

        By the newest committed one, c1 that took "add c4" would commit it by two of three, and c4 count nowhere.
        """
        return self._configurations[-1] if self._configurations else self._base

    def configuration_at(self, index: int) -> bytes:
        """The members that a snapshot of ``index`` ends with."""
        return next((one for at, one in reversed(self._configurations) if at <= index), self._base[1])

    def _note(self, command: bytes, index: int) -> None:
        if command[:1] == CONFIGURATION:
            self._configurations.append((index, command))

    def _forget_from(self, index: int) -> None:
        # A change that was cut never happened: counted on, this member would go by members that no log has.
        while self._configurations and self._configurations[-1][0] >= index:
            self._configurations.pop()

    # --- snapshots ---

    def install(self, previous: Entry, last: Entry) -> bool:
        """
        Make the log begin with the two entries that a snapshot ends with; entries that agree and follow are kept.

        Returns whether anything changed. Durable on return if so.
        """
        first = self._entries[0][1]
        position = previous[1] - first
        # Entries that agree and follow stay: they may be acknowledged. Stock PySyncObj throws its whole journal away
        # unless it begins with these two entries, which it does not when the node was killed between snapshot and
        # trimming.
        if position >= 0 and self._entries[position : position + 2] == [previous, last]:
            if position == 0:
                return False
            del self._entries[:position]
        else:
            # Another history, or a hole before the snapshot: nothing behind it can be compared with the leader's.
            self._entries = [previous, last]
            self._configurations.clear()
        self._commit_index = max(self._commit_index, last[1])
        self.rewrite()
        return True

    # --- the library's interface: its names, its units ---

    def add(self, command: bytes, idx: int, term: int) -> None:
        self._entries.append((command, idx, term))
        self._note(command, idx)
        self._put(ENTRY, _ENTRY.pack(idx, term) + command)

    def clear(self) -> None:
        self._entries.clear()
        self._configurations.clear()
        self._put(CLEAR, b"")

    def deleteEntriesFrom(self, entryFrom: int) -> None:  # noqa: N802, N803
        """Cut the tail; ``entryFrom`` is a position, not an index."""
        if entryFrom >= len(self._entries):
            return
        index = self._entries[entryFrom][1]
        # Stock PySyncObj logs "may have diverged", cuts, and goes on: an entry that this node has applied, and may have
        # told its caller, is replaced by another one; the states of the members differ from then on.
        if index <= self.applied_floor:
            self._fail_stop(
                FailStop.DIVERGED, f"asked to cut entry {index}, but everything up to {self.applied_floor} is applied"
            )
        del self._entries[entryFrom:]
        self._forget_from(index)
        self._put(CUT, _INDEX.pack(index))

    def deleteEntriesTo(self, entryTo: int) -> None:  # noqa: N802, N803
        """Drop the front; ``entryTo`` is a position. Rewrites the file."""
        if entryTo > 0:  # 0 would rewrite a file that is right
            del self._entries[:entryTo]
            first = self._entries[0][1]
            # The snapshot behind which the log is cut has them, too: that is where the next start finds them.
            dropped = [one for one in self._configurations if one[0] < first]
            if dropped:
                self._base = dropped[-1]
                self._configurations = self._configurations[len(dropped) :]
            self.rewrite()

    @overload
    def __getitem__(self, item: int) -> Entry: ...

    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...

    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        return self._entries[item]

    def __len__(self) -> int:
        return len(self._entries)

    def setRaftCommitIndex(self, raftCommitIndex: int) -> None:  # noqa: N802, N803
        """Remember a hint; written once a second."""
        self._commit_index = raftCommitIndex

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        """The hint, never beyond the last entry: the tail that it counted may have been torn off."""
        return max(1, min(self._commit_index, self._entries[-1][1]))

    def setCurrentTerm(self, term: int, votedForNodeId: str | None) -> None:  # noqa: N802, N803
        """Remember term and vote."""
        self._term, self._vote = term, votedForNodeId
        self._put(VOTE, _INDEX.pack(term) + (votedForNodeId or "").encode("utf-8"))

    def getCurrentTerm(self) -> int:  # noqa: N802
        return self._term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        return self._vote

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Write the commit hint, so that a restart applies committed entries before it meets anybody."""
        if self._commit_index != self._commit_index_written:
            self._commit_index_written = self._commit_index
            self._put(COMMIT, _INDEX.pack(self._commit_index))

    def _destroy(self) -> None:
        self.sync()

    # --- for the repairs ---

    @property
    def first_index(self) -> int:
        return self._entries[0][1]

    @property
    def last_index(self) -> int:
        return self._entries[-1][1]

    def batch(self, index: int, bytes_max: int) -> list[Entry]:
        """Entries from ``index`` on, of about ``bytes_max`` bytes; at least one if there is one."""
        taken: list[Entry] = []
        size_bytes = 0
        for position in range(index - self.first_index, len(self._entries)):
            entry = self._entries[position]
            taken.append(entry)
            size_bytes += len(entry[0])
            if size_bytes >= bytes_max:
                break
        return taken

    def term_at(self, index: int) -> int | None:
        """Term of an entry; None if it is not here."""
        position = index - self._entries[0][1]
        return self._entries[position][2] if 0 <= position < len(self._entries) else None
