"""
Reading a log's records where they lie: single ones for consumers, runs of them for the folds.

Here: bytes by offset. Not here: what is done with them (``broker.folds``, ``broker.consuming``), how much of them may
be read: what lies below confirm (``broker.folds.ports``, rule 1).

Rule 1: on the loop thread, and not while a cut or a close is under way: the map of a segment that goes cannot be closed
while somebody holds a view of it.
"""

from __future__ import annotations

import os
from typing import Final

from rollcall_ha.broker.log.cut import LogFiles
from rollcall_ha.broker.log.record import blank_bytes, walk
from rollcall_ha.broker.log.segment import LogSegment

RUN_RECORDS_MAX: Final = 1_024
"""Of a run; a budget of bytes alone would be 2,000 of the smallest, 10 ms of a loop."""
READ_AHEAD_BYTES: Final = 8 * 1024 * 1024
"""A run's reader tells the kernel so far ahead what it reads next: a cold log would stop the loop at each page."""


class LogReader:
    """The bytes of one log."""

    def __init__(self, files: LogFiles) -> None:
        self._files = files
        self._told_to = 0

    def record(self, offset: int, size: int) -> memoryview | None:
        """``size`` bytes from ``offset`` on, in place; None: they are not in one segment, or not there any more."""
        segment = self.segment_of(offset)
        if segment is None or offset + size > segment.end:
            return None
        return segment.view[offset - segment.base : offset - segment.base + size]

    def run(self, start: int, end: int, budget_bytes: int) -> tuple[LogSegment, list[int], int]:
        """
        The whole records of ``[start, end)``, where ``start`` is a record boundary: their segment, their places in it,
        and the offset behind the last one; that is ``start`` if not even one is whole. Padding is left out.

        At most about ``budget_bytes`` and ``RUN_RECORDS_MAX``; a larger record comes alone. Raises ``RecordError``;
        ``LookupError``: ``start`` is outside of the log.
        """
        segment = self.segment_of(start)
        if segment is None:
            raise LookupError(f"the log has no byte {start}")
        if end - start > budget_bytes:
            self._read_ahead(segment, start, end)
        at, limit = start - segment.base, min(end - segment.base, segment.size)
        starts: list[int] = []
        stop = walk(segment.view, at, min(at + budget_bytes, limit), starts)
        if stop == at and at < limit:
            size = int.from_bytes(segment.view[at : at + 4], "big")
            stop = walk(segment.view, at, min(at + size, limit), starts)
        if len(starts) > RUN_RECORDS_MAX:
            stop = starts[RUN_RECORDS_MAX]
            del starts[RUN_RECORDS_MAX:]
        if starts and blank_bytes(segment.view, starts[-1]) is not None:
            del starts[-1]
        return segment, starts, segment.base + stop

    def _read_ahead(self, segment: LogSegment, start: int, end: int) -> None:
        if not start <= self._told_to <= start + READ_AHEAD_BYTES:
            self._told_to = start  # another place than before
        elif self._told_to > start + READ_AHEAD_BYTES // 2:
            return
        # Not beyond what is written: the kernel would make pages of nothing, 8 MiB at a time, while the loop waits.
        at, stop = self._told_to, min(self._told_to + READ_AHEAD_BYTES, end, segment.end)
        if stop > at:
            os.posix_fadvise(segment.fd, at - segment.base, stop - at, os.POSIX_FADV_WILLNEED)
            self._told_to = stop

    def segment_of(self, offset: int) -> LogSegment | None:
        """The segment that ``offset`` lies in; None: none that is there."""
        # Once: a deletion puts a shorter list in its place (``CommitLog.delete_front``), and the place of a segment in
        # one is that of another segment in the other.
        segments = self._files.segments
        if not segments or not segments[0].base <= offset < segments[-1].end:
            return None
        return segments[(offset - segments[0].base) // segments[0].size]
