"""
Replica logs for tests of HA links: one in memory for the machines, one over a mapped file for sockets.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import EpochEntry, LogOffset, MasterEpoch
from rollcall_ha.ha.ports import FileRegion
from rollcall_ha.ha.truncation import Cut, ExecutablePlan, FullResync


def entry(epoch: int, start: int) -> EpochEntry:
    return EpochEntry(epoch=MasterEpoch(epoch), start_offset=LogOffset(start))


def history(*pairs: tuple[int, int]) -> EpochHistory:
    return EpochHistory(entry(epoch, start) for epoch, start in pairs)


class MemoryLog:
    """Bytes in memory; ``FileRegion.position`` is the log offset, ``read_region`` gives the bytes."""

    def __init__(
        self, data: bytes = b"", epochs: EpochHistory | None = None, *, base: int = 0, segment: int = 1 << 30
    ) -> None:
        self.data = bytearray(data)
        self.base = base
        self.segment = segment
        self.epochs = epochs or EpochHistory()
        self.room_bytes = 1 << 40
        self.record_bytes = 1
        self.is_sceptical = False
        self.is_ready = True
        self.boundaries: set[int] | None = None
        self.set_aside: list[bytes] = []
        self._view: bytearray | None = None

    @property
    def segment_bytes(self) -> int:
        return self.segment

    @property
    def min_offset(self) -> LogOffset:
        return LogOffset(self.base)

    @property
    def max_offset(self) -> LogOffset:
        return LogOffset(self.base + len(self.data))

    @property
    def ackable_offset(self) -> LogOffset:
        return LogOffset(self.max_offset - (self.max_offset - self.base) % self.record_bytes)

    @property
    def history(self) -> EpochHistory:
        return self.epochs

    def region(self, offset: LogOffset, length_max: int) -> FileRegion | None:
        length = min(length_max, self.max_offset - offset, self.segment - offset % self.segment)
        return FileRegion(fd=-1, position=offset, length=length) if length > 0 else None

    def read_region(self, region: FileRegion) -> bytes:
        start = region.position - self.base
        return bytes(self.data[start : start + region.length])

    def is_room_ready(self, length: int) -> bool:
        return self.is_ready

    def receive_view(self, length_max: int) -> memoryview:
        end = self.max_offset
        if end - self.base >= self.room_bytes:
            raise OSError(28, "No space left on device")
        self._view = bytearray(min(length_max, self.segment - end % self.segment))
        return memoryview(self._view)

    def commit_received(self, length: int) -> None:
        assert self._view is not None
        if self.is_sceptical:
            raise ValueError("magic is 0")
        self.data += self._view[:length]
        self._view = None

    def is_record_boundary(self, offset: LogOffset) -> bool:
        return self.boundaries is None or offset in self.boundaries or offset == self.max_offset

    # --- what a broker does ---

    def append(self, data: bytes) -> None:
        self.data += data

    def begin_epoch(self, epoch: int) -> None:
        self.epochs = self.epochs.appended(entry(epoch, self.max_offset))

    def record(self, new: EpochEntry) -> None:
        self.epochs = self.epochs.appended(new)

    def execute(self, plan: ExecutablePlan) -> None:
        if isinstance(plan, Cut):
            del self.data[plan.point - self.base :]
            self.epochs = plan.history
        elif isinstance(plan, FullResync):
            self.set_aside.append(bytes(self.data))
            self.data.clear()
            self.base = plan.start_offset
            self.epochs = EpochHistory()


class MappedLog:
    """One preallocated mapped file, as the broker's segments are."""

    def __init__(self, path: Path, capacity_bytes: int) -> None:
        self.fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.posix_fallocate(self.fd, 0, capacity_bytes)
        self._map = mmap.mmap(self.fd, capacity_bytes)
        self._end = 0
        self.is_ready = True
        self.epochs = EpochHistory()

    @property
    def segment_bytes(self) -> int:
        return 1 << 30

    @property
    def min_offset(self) -> LogOffset:
        return LogOffset(0)

    @property
    def max_offset(self) -> LogOffset:
        return LogOffset(self._end)

    @property
    def ackable_offset(self) -> LogOffset:
        return LogOffset(self._end)

    @property
    def history(self) -> EpochHistory:
        return self.epochs

    def region(self, offset: LogOffset, length_max: int) -> FileRegion | None:
        length = min(length_max, self._end - offset)
        return FileRegion(fd=self.fd, position=offset, length=length) if length > 0 else None

    def is_room_ready(self, length: int) -> bool:
        return self.is_ready

    def receive_view(self, length_max: int) -> memoryview:
        length = min(length_max, len(self._map) - self._end)
        if length <= 0:
            raise OSError(28, "No space left on device")
        whole = memoryview(self._map)
        try:
            return whole[self._end : self._end + length]
        finally:
            whole.release()

    def commit_received(self, length: int) -> None:
        self._end += length

    def is_record_boundary(self, offset: LogOffset) -> bool:
        return offset <= self._end

    def append(self, data: bytes) -> None:
        self._map[self._end : self._end + len(data)] = data
        self._end += len(data)

    def begin_epoch(self, epoch: int) -> None:
        self.record(entry(epoch, self._end))

    def record(self, new: EpochEntry) -> None:
        self.epochs = self.epochs.appended(new)

    def execute(self, plan: ExecutablePlan) -> None:
        if isinstance(plan, Cut):
            self._end = plan.point
            self.epochs = plan.history

    def content(self) -> bytes:
        return self._map[: self._end]

    def close(self) -> None:
        self._map.close()
        os.close(self.fd)
