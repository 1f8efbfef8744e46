"""
A commit log on a simulated disk: same duties as ``broker.log.CommitLog``, one file, records of one size.

Records of one size are the nasty case of S23: behind a cut, the old tail lies at record boundaries with good CRCs.
Here: append, receive, recovery, cuts in the steps of R20, the marks that survive a power loss. Not here: when any of it
is done (the machines), what is said about it (``tests.sim.broker``).
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

from rollcall_ha.broker.core.producers import ProducerStamp, ProducerTable
from rollcall_ha.epoch.codec import decode_history, encode_history
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import EpochEntry, LogOffset
from rollcall_ha.ha.ports import FileRegion
from tests.support.sim_disk import SimDisk
from tests.support.sim_kernel import Counts

_RECORD = struct.Struct(">II16sIIQQ")
"""CRC of what follows, magic, producer id, producer epoch, sequence, value, own offset."""
RECORD_BYTES = _RECORD.size
_MAGIC = 0x51ACC10C
LOG, EPOCHS, CHECKPOINT, CUT_MARK = "log", "epochs", "checkpoint", "cut-mark"
_CHECKPOINT = struct.Struct(">QQI")


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One message as the log holds it."""

    producer_id: bytes
    producer_epoch: int
    sequence: int
    value: int


def encode_record(record: Record, offset: int) -> bytes:
    """Bytes of ``record`` at ``offset``."""
    body = _RECORD.pack(0, _MAGIC, record.producer_id, record.producer_epoch, record.sequence, record.value, offset)[4:]
    return zlib.crc32(body).to_bytes(4, "big") + body


def decode_record(data: bytes | bytearray | memoryview, at: int, offset: int) -> Record | None:
    """The record at ``at``; None if it is not a whole and good record that belongs to ``offset``."""
    if at + RECORD_BYTES > len(data):
        return None
    crc, magic, producer_id, producer_epoch, sequence, value, own_offset = _RECORD.unpack_from(data, at)
    if magic != _MAGIC or own_offset != offset or crc != zlib.crc32(data[at + 4 : at + RECORD_BYTES]):
        return None
    return Record(producer_id=producer_id, producer_epoch=producer_epoch, sequence=sequence, value=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What ``open`` found."""

    torn_bytes: int
    finished_cut: bool
    dropped_epochs: int
    stored_confirm: LogOffset


class SimLog:
    """One life of the log: opened by one process. All of ``ha.ports.ReplicaLog``, and what the broker's shell needs."""

    def __init__(self, disk: SimDisk, counts: Counts, *, is_sync_flush: bool) -> None:
        """Nothing is read before ``open``."""
        self.disk = disk
        self.producers = ProducerTable()
        self.is_sync_flush = is_sync_flush
        self.flushed_offset = LogOffset(0)
        self.confirm_offset = LogOffset(0)
        self.released_offset = LogOffset(0)
        self.durable_confirm_offset = LogOffset(0)
        self.folded_offset = LogOffset(0)
        """Records below are in ``producers``; received bytes behind it may be a part of a record."""
        self._counts = counts
        self._history = EpochHistory()
        self._end = 0
        self._min = 0
        self._incoming = bytearray()

    # --- start ---

    def open(self) -> Recovery:
        """Finish a cut, drop a torn tail, repair the history, fold the producers. Everything is synced on return."""
        disk = self.disk
        finished_cut = disk.exists(CUT_MARK)
        if finished_cut:
            self._cut_file(int.from_bytes(disk.read(CUT_MARK), "big"))
            disk.unlink(CUT_MARK)
        data = disk.read(LOG) if disk.exists(LOG) else b""
        end = self._walk(data)
        torn = len(data) - end
        if torn:
            disk.replace(CUT_MARK, end.to_bytes(8, "big"))
            self._cut_file(end)
            disk.unlink(CUT_MARK)
        self._end = end
        stored = decode_history(disk.read(EPOCHS)) if disk.exists(EPOCHS) else EpochHistory()
        self._history = stored.repaired(LogOffset(end))
        if self._history != stored:
            disk.replace(EPOCHS, encode_history(self._history))
        confirm, released = self._read_checkpoint()
        self.confirm_offset = self.durable_confirm_offset = LogOffset(min(confirm, end))
        self.released_offset = LogOffset(released)
        # A process that died left its pages with the kernel; what was read back may still be unsynced.
        disk.sync(LOG)
        self.flushed_offset = LogOffset(end)
        self._refold()
        return Recovery(
            torn_bytes=torn,
            finished_cut=finished_cut,
            dropped_epochs=len(stored) - len(self._history),
            stored_confirm=LogOffset(confirm),
        )

    def _walk(self, data: bytes) -> int:
        at = 0
        while decode_record(data, at, at) is not None:
            at += RECORD_BYTES
        return at

    def _read_checkpoint(self) -> tuple[int, int]:
        if not self.disk.exists(CHECKPOINT):
            return 0, 0
        data = self.disk.read(CHECKPOINT)
        confirm, released, crc = _CHECKPOINT.unpack(data)
        assert crc == zlib.crc32(data[:16])
        return confirm, released

    def _refold(self) -> None:
        self.producers.clear()
        self.folded_offset = LogOffset(self._min)
        self._fold_on()

    def _fold_on(self) -> None:
        if self._end - self.folded_offset < RECORD_BYTES:
            return
        start = self.folded_offset
        data = self.disk.read_at(LOG, start, self._end - start)
        for at in range(0, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
            self._fold(decode_record(data, at, start + at), start + at)

    def _fold(self, record: Record | None, at: int) -> None:
        assert record is not None, f"no record at {at}"
        stamp = ProducerStamp(record.producer_id, record.producer_epoch, record.sequence)
        self.producers.fold(stamp, LogOffset(at))
        self.folded_offset = LogOffset(at + RECORD_BYTES)

    # --- ha.ports.ReplicaLog ---

    @property
    def segment_bytes(self) -> int:
        """One file holds everything."""
        return 1 << 62

    @property
    def min_offset(self) -> LogOffset:
        return LogOffset(self._min)

    @property
    def max_offset(self) -> LogOffset:
        return LogOffset(self._end)

    @property
    def ackable_offset(self) -> LogOffset:
        """Whole records only: a part of one would be dropped by a promotion, and confirm must never fall with it."""
        return min(self.folded_offset, self.flushed_offset) if self.is_sync_flush else self.folded_offset

    @property
    def history(self) -> EpochHistory:
        return self._history

    def region(self, offset: LogOffset, length_max: int) -> FileRegion | None:
        length = min(length_max, self._end - offset)
        return FileRegion(fd=-1, position=offset, length=length) if length > 0 else None

    def read_bytes(self, position: int, length: int) -> bytes:
        """What sendfile would send."""
        return self.disk.read_at(LOG, position, length)

    def is_room_ready(self, length: int) -> bool:
        """A full disk says so when it is written to."""
        del length
        return True

    def receive_view(self, length_max: int) -> memoryview:
        self._incoming = bytearray(length_max)
        return memoryview(self._incoming)

    def commit_received(self, length: int) -> None:
        start = self._end
        self.disk.write(LOG, start, bytes(self._incoming[:length]))
        self._end += length
        self._fold_on()

    def is_record_boundary(self, offset: LogOffset) -> bool:
        return offset % RECORD_BYTES == 0 and offset <= self._end

    # --- the broker's shell ---

    def append(self, record: Record) -> LogOffset:
        """Write behind the end; returns the new end. Raises ``OSError`` if the disk is full: nothing was written then."""
        start = self._end
        assert self.folded_offset == start, f"a run begins behind {start - self.folded_offset} bytes of half a record"
        self.disk.write(LOG, start, encode_record(record, start))
        self._end = start + RECORD_BYTES
        self._fold(record, start)
        return LogOffset(self._end)

    def record_epoch(self, entry: EpochEntry) -> None:
        """Durable on return; its start is the end of the log."""
        history = self._history.appended(entry)
        self.disk.replace(EPOCHS, encode_history(history))
        self._history = history

    def store_history(self, history: EpochHistory) -> None:
        """Replace the history as a whole; durable on return."""
        self.disk.replace(EPOCHS, encode_history(history))
        self._history = history

    def note_confirm(self, confirm: LogOffset, released: LogOffset) -> None:
        """Remember both; ``save_checkpoint`` makes them durable."""
        self.confirm_offset = max(self.confirm_offset, LogOffset(min(confirm, self._end)))
        self.released_offset = max(self.released_offset, released)

    def save_checkpoint(self) -> None:
        """Durable on return. Nothing above what is synced is called confirmed."""
        body = struct.pack(">QQ", min(self.confirm_offset, self._end), self.released_offset)
        self.disk.replace(CHECKPOINT, body + zlib.crc32(body).to_bytes(4, "big"))
        self.durable_confirm_offset = self.confirm_offset

    def flush(self) -> LogOffset:
        """Sync the log; returns what is durable now."""
        self.disk.sync(LOG)
        self.flushed_offset = LogOffset(self._end)
        return self.flushed_offset

    def drop_partial_record(self) -> None:
        """Cut half a record off the end, durably. Raises ``OSError``."""
        if self.folded_offset == self._end:
            return
        self._counts.add("half records dropped")
        point = self.folded_offset
        history = self._history.repaired(point)
        for step in ("mark", "cut", "history", "clear"):
            self.cut_step(step, point, history)

    def cut_step(self, step: str, point: LogOffset, history: EpochHistory) -> None:
        """Do one step of R20: each is durable on return."""
        if step == "mark":
            self.disk.replace(CUT_MARK, point.to_bytes(8, "big"))
        elif step == "cut":
            self._counts.add("truncations", 1 if self._end > point else 0)
            self._counts.add("bytes truncated", self._end - point)
            self._cut_file(point)
            self._end = point
            self.flushed_offset = LogOffset(min(self.flushed_offset, point))
            self.confirm_offset = LogOffset(min(self.confirm_offset, point))
            self.save_checkpoint()
            self._refold()
        elif step == "history":
            self.store_history(history)
        else:
            self.disk.unlink(CUT_MARK)

    def _cut_file(self, point: int) -> None:
        self.disk.truncate(LOG, point)
        self.disk.sync(LOG)

    def values(self) -> dict[int, int]:
        """Offset of each value's first record; for the oracle."""
        return {record.value: at for at, record in self.records()}

    def records(self) -> list[tuple[int, Record]]:
        """All records with their offsets; for the oracle."""
        return read_records(self.disk, self._end)


def read_records(disk: SimDisk, end: int | None = None) -> list[tuple[int, Record]]:
    """All good records from the start of the log on ``disk``, with their offsets."""
    data = disk.read(LOG) if disk.exists(LOG) else b""
    found = []
    at = 0
    while (end is None or at < end) and (record := decode_record(data, at, at)) is not None:
        found.append((at, record))
        at += RECORD_BYTES
    return found
