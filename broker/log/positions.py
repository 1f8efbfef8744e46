"""
Where a log is: its ends, what of it is on disk, confirmed and folded, where its bytes lie, where it may be cut.

Here: the half of ``commit_log.CommitLog`` that changes nothing. The rules are those of ``broker.log.ports``.
"""

from __future__ import annotations

from rollcall_ha.broker.core.producers import ProducerTable
from rollcall_ha.broker.log.checkpoint import LogState
from rollcall_ha.broker.log.cut import LogFiles
from rollcall_ha.broker.log.log_index import LogIndex
from rollcall_ha.broker.log.ports import CutPlan, CutReason, CutRefusedError
from rollcall_ha.broker.log.queue_offsets import QueueOffsets
from rollcall_ha.broker.log.record import walk
from rollcall_ha.broker.log.segment import LogSegment
from rollcall_ha.controller.contract.ids import FlushMode
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import LogOffset
from rollcall_ha.ha.ports import FileRegion


class LogPositions:
    """Offsets of one open log. Its numbers are moved by ``CommitLog`` alone."""

    def __init__(self, files: LogFiles, state: LogState, end: LogOffset) -> None:
        """As recovered; the folds have seen nothing yet."""
        self._files = files
        self._state = state
        self._whole = self._max = self._flushed = end
        self._confirm, self._released = state.confirm_offset, state.released_offset
        self._folds = LogIndex(LogOffset(files.segments[0].base if files.segments else 0))
        self._flush_mode = FlushMode.ASYNC

    @property
    def segment_bytes(self) -> int:
        """Size of every file of the log."""
        return self._files.segment_bytes

    @property
    def min_offset(self) -> LogOffset:
        """First byte that is still there."""
        return LogOffset(self._files.segments[0].base) if self._files.segments else self._max

    @property
    def max_offset(self) -> LogOffset:
        """End of the log, bytes of a record that is not whole included."""
        return self._max

    @property
    def whole_offset(self) -> LogOffset:
        """End of the last whole record."""
        return self._whole

    @property
    def flushed_offset(self) -> LogOffset:
        """Everything below is on disk; a record boundary."""
        return self._flushed

    @property
    def flush_mode(self) -> FlushMode:
        """Whether acks wait for the disk."""
        return self._flush_mode

    @property
    def ackable_offset(self) -> LogOffset:
        """What this replica may ack."""
        return self._flushed if self._flush_mode is FlushMode.SYNC else self._whole

    @property
    def confirm_offset(self) -> LogOffset:
        """Highest confirm that ``note_confirm`` was told, never above the end of the log."""
        return self._confirm

    @property
    def durable_confirm_offset(self) -> LogOffset:
        """The confirm that survives a power cut (R26)."""
        return self._state.confirm_offset

    @property
    def released_offset(self) -> LogOffset:
        """Highest end that was acknowledged to a producer by this replica as master."""
        return self._released

    @property
    def fold_lag_bytes(self) -> int:
        """Whole records that the folds have not seen yet."""
        return self._whole - self._folds.offset

    @property
    def history(self) -> EpochHistory:
        """Epochs of the bytes that are there."""
        return self._files.history

    @property
    def producers(self) -> ProducerTable:
        """Fold of the log for idempotent sends (R18)."""
        return self._folds.producers

    @property
    def queues(self) -> QueueOffsets:
        """Fold of the log: next offset of every queue (R19)."""
        return self._folds.queues

    def confirmed_queue_end(self, topic: bytes, queue_id: int) -> int:
        """Next offset of a queue, counting confirmed records only; costs reading the others."""
        return self._folds.queue_end_at(self._files.segments, topic, queue_id, self._confirm)

    def is_record_boundary(self, offset: LogOffset) -> bool:
        """Whether a record starts at ``offset``, or it is the end of the log."""
        if offset in (self._max, self._whole):
            return True
        if not self.min_offset <= offset < self._whole:
            return False
        segment = self._segment_of(offset)
        start = max(self._folds.boundary_at_or_below(offset), segment.base)
        return walk(segment.view, start - segment.base, offset - segment.base, []) == offset - segment.base

    def plan_cut(self, offset: LogOffset, reason: CutReason, explanation: str = "") -> CutPlan:
        """Check a cut. Raises ``CutRefusedError`` if ``offset`` is no record boundary or outside of the log."""
        if not self.min_offset <= offset <= self._max:
            raise CutRefusedError(f"cut at {offset}: the log is [{self.min_offset}, {self._max})")
        if reason is not CutReason.FULL_RESYNC and not self.is_record_boundary(offset):
            raise CutRefusedError(f"cut at {offset}: no record starts there")
        return CutPlan(
            cut_offset=offset,
            end_offset=self._max,
            reason=reason,
            is_below_confirm=offset < self.durable_confirm_offset,
            is_below_released=offset < self._released,
            explanation=explanation,
        )

    def _segment_of(self, offset: int) -> LogSegment:
        segments = self._files.segments
        return segments[(offset - segments[0].base) // self._files.segment_bytes]

    def region(self, offset: LogOffset, length_max: int) -> FileRegion | None:
        """Bytes from ``offset`` on, cut at the end of the log and of the segment; None if there are none."""
        if not self.min_offset <= offset < self._max:
            return None
        segment = self._segment_of(offset)
        length = min(length_max, self._max - offset, segment.end - offset)
        return FileRegion(fd=segment.fd, position=offset - segment.base, length=length)
