"""
The front of a log: where it begins, whether that is the beginning of a whole log, and deleting segments from it.

Here: the steps of a deletion, beside everything that the loop does with the log. Not here: what to delete and when
(``broker.retention``), cuts from the other end (``cut``), what a start finishes (``recovery``).

The steps: the new beginning into the state, durably · another list of segments · unlink, oldest first · the epochs of
deleted bytes · and, a turn of the loop later, the maps.
Rule 1 (R31): the state comes first. A start that finds a log without its first segment, and no word of it, calls it one
that has lost bytes (R3); one that finds segments below the beginning removes them.
Rule 2: nothing that is not confirmed and synced goes, and never the last segment.
Rule 3: a reader has the old list or the new one: the list is replaced, never shortened.
Rule 4: what failed half-way counts as deleted; names that are left the next start removes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from rollcall_ha.broker.log.cut import LogFiles
from rollcall_ha.broker.log.preallocation import SegmentPreallocator
from rollcall_ha.broker.log.record import index_fields
from rollcall_ha.broker.log.segment import LogSegment
from rollcall_ha.broker.protocol.record import RecordError
from rollcall_ha.epoch.model import LogOffset
from rollcall_ha.node.files import fsync_directory, is_full_disk


class LogFront:
    """Of one open log. Its methods block, and run on the thread that cuts the log."""

    def __init__(
        self,
        files: LogFiles,
        preallocator: SegmentPreallocator,
        disk: threading.Lock,
        ends: Callable[[], tuple[LogOffset, LogOffset]],
        store_state: Callable[[], None],
    ) -> None:
        """
        ``disk`` is the log's. ``ends``: of its whole records, and of those that are confirmed and synced.
        """
        self.whole_from = LogOffset(0)
        """A log that begins at or below it is a whole one."""
        self.deleted_to = LogOffset(0)
        """The log begins here, or will at the next start."""
        self._files = files
        self._preallocator = preallocator
        self._disk = disk
        self._ends = ends
        self._store_state = store_state
        self._deleted: list[LogSegment] = []
        """Not in the list any more, and not closed yet."""
        self._times_ms: dict[int, int] = {}  # by base

    @property
    def is_whole(self) -> bool:
        """Whether nothing is missing in front of its first byte but what went by age; a learner's may be a part."""
        return not self._files.segments or self._files.segments[0].base <= self.whole_from

    def was_cut(self, whole_from: LogOffset) -> None:
        """It may begin anywhere now."""
        self.deleted_to, self.whole_from = LogOffset(0), whole_from
        self._times_ms.clear()

    def segments(self) -> list[tuple[int, int, int | None]]:
        """
        (base, end, store time of the first record behind it, UTC ms) of each segment that has a record. None: there is
        none behind it, or a damaged one.
        """
        end = self._ends()[0]
        found = [one for one in self._files.segments if one.base < end]
        # Read once: of 2 TB each look would else fetch two thousand cold pages.
        times = [self._times_ms.get(one.base) or _stored_at_ms(one) for one in found[1:]]
        self._times_ms = {one.base: time for one, time in zip(found[1:], times, strict=True) if time}
        return [(one.base, one.end, time) for one, time in zip(found, [*times, None], strict=False)]

    def room(self, disk_room: Callable[[], tuple[int, int]]) -> tuple[int, int, int, int]:
        """
        Of one moment: size and free bytes of the disk, what the next segment will take, and what is there beside the
        files of this log. Raises ``OSError``.
        """
        with self._disk:
            size_bytes, free_bytes = disk_room()
            spare = self._preallocator.spare
            own_bytes = sum(one.size for one in self._files.segments) + (0 if spare is None else spare.size)
        next_bytes = self._files.segment_bytes if spare is None else 0
        return size_bytes, free_bytes, next_bytes, max(size_bytes - free_bytes - own_bytes, 0)

    def delete(self, start: LogOffset) -> LogOffset:
        """
        Remove the segments below ``start``; returns where the log begins now.

        Nothing is done if no segment begins there any more, as behind a cut. Raises ``OSError``: nothing was done, or
        the next start goes on.
        """
        files = self._files
        with self._disk:
            is_segment = any(segment.base == start for segment in files.segments[1:])
            # Rule 2. Decided a moment ago: a cut may have come since.
            if not is_segment or start > self._ends()[1]:
                return LogOffset(files.segments[0].base if files.segments else 0)
            before = self.deleted_to, self.whole_from
            self.deleted_to = start
            if self.is_whole:
                self.whole_from = start
            files.before_step("delete-state")
            try:
                self._store_begin()
            except OSError:
                self.deleted_to, self.whole_from = before
                raise
            gone = self._preallocator.drop_front(start)
            self._deleted += gone
            for segment in gone:
                files.before_step("delete-segment")
                segment.path.unlink()
            fsync_directory(files.log_folder)
            files.before_step("delete-epochs")
            history = files.history.truncated_prefix(start)
            if history != files.history:
                files.epochs.save(history)
                files.history = history
        return start

    def _store_begin(self) -> None:
        try:
            self._store_state()
        except OSError as error:
            # On a full disk the segment that was made ahead is in the way of the deletion that would make room for it.
            if not is_full_disk(error) or self._preallocator.spare is None:
                raise
            self._preallocator.discard()
            self._store_state()

    @property
    def unclosed_bytes(self) -> int:
        """Of deleted segments that take their space still: somebody reads them, or nobody has closed them yet."""
        return sum(one.size for one in self._deleted)

    def close_deleted(self) -> bool:
        """
        Free the space of one segment; whether there may be another. At least a turn of the loop behind ``delete``, when
        no reader and no link of before is left.
        """
        # One at a time: giving a gigabyte back takes a while, and the promise of a failover waits for this thread.
        for number, segment in enumerate(self._deleted):
            try:
                segment.close()
            except BufferError:
                continue  # somebody has not let go of a record: again at the next look
            del self._deleted[number]
            return bool(self._deleted)
        return False

    def make_next(self) -> None:
        """Make the segment that found no room before: else the next send is told so, whatever room there is now."""
        if self._preallocator.is_ready and self._preallocator.spare is None:
            # The log's chores try again, and tell what ails the disk.
            with self._disk, contextlib.suppress(OSError):
                self._preallocator.prepare(self._ends()[0])

    def close_all(self) -> None:
        """The log is closed."""
        while self.close_deleted():
            pass


def _stored_at_ms(segment: LogSegment) -> int | None:
    try:
        return index_fields(segment.view, 0)[5]
    except RecordError:
        return None
