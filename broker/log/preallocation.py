"""
The next segment of a log, made before it is needed: allocating one takes the disk milliseconds, or seconds.

Here: at most one spare segment. Not here: what a segment is (``segment``), when a log goes on in the next one
(``commit_log``), the thread that prepares (``flush``).

A loop that must not wait for the disk asks ``is_ready`` first; ``on_ready`` tells it that the answer may have changed.
``grow`` without a spare makes the segment itself, and blocks its caller meanwhile.

Rule 1: a spare continues the last segment. A cut moves the end of the log, so it discards the spare.
Rule 2: no spare is made while a cut runs: the caller of ``prepare`` holds the log's disk lock. A spare lies in the
log's folder under its own name; one made at 2 GiB for a log that was cut to 1 GiB is a hole, and the next start
refuses it.
Rule 3: the list of segments grows here alone, and loses its front here alone, under this lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rollcall_ha.broker.log.cut import LogFiles
from rollcall_ha.broker.log.segment import LogSegment

LEAD_BYTES_MIN = 16 * 1024 * 1024
_NEVER = 1 << 63


def lead_bytes(segment_bytes: int) -> int:
    """How many bytes before the end of the last segment the next one is made."""
    # Half of a small one is written in less time than a busy disk takes to make the next: 32 KiB were, and sends waited
    # 1.7 s for it. All of a large one would be twice the disk for a log that is not written to.
    return max(segment_bytes // 2, min(segment_bytes, LEAD_BYTES_MIN))


class SegmentPreallocator:
    """At most one spare segment. ``prepare`` runs on the flush thread, the rest on the thread that owns the log."""

    def __init__(self, files: LogFiles, on_ready: Callable[[], object]) -> None:
        """Nothing is prepared yet. ``on_ready`` runs on the preparing thread when ``is_ready`` may have changed."""
        self._files = files
        self._on_ready = on_ready
        self._lead_bytes = lead_bytes(files.segment_bytes)
        self._spare: LogSegment | None = None
        self._lock = threading.Lock()
        self._due_at = _NEVER
        self._is_requested = False
        self._error: OSError | None = None

    @property
    def spare(self) -> LogSegment | None:
        return self._spare

    @property
    def is_ready(self) -> bool:
        """Whether ``grow`` will not wait for the disk. A disk that refused is ready, too: ``grow`` raises its error."""
        return self._spare is not None or self._error is not None

    def request(self) -> None:
        """Have the next segment made by the next ``prepare``, wherever the log ends."""
        self._is_requested = True

    def is_due(self, end: int) -> bool:
        """Whether a log that ends at ``end`` should have the next segment prepared now; once per segment."""
        if end < self._due_at:
            return False
        self._due_at = _NEVER
        return True

    def prepare(self, end: int) -> None:
        """
        Blocking. Make the segment behind a log that ends at ``end``, if it is wanted, or its time has come.

        Raises ``OSError``: the disk refused; the next call tries again.
        """
        with self._lock:
            segments = self._files.segments
            base = segments[-1].end if segments else end
            is_needed = self._is_requested or end >= base - self._lead_bytes
            if self._spare is not None or not is_needed:
                return
            try:
                self._spare = LogSegment.create(self._files.log_folder, base, self._files.segment_bytes)
                self._is_requested, self._error = False, None
            except OSError as error:
                # Kept for ``grow``: clients whose sends wait for room are to hear "disk full", not to wait for ever.
                self._error = error
                raise
            finally:
                self._on_ready()

    def grow(self, end: int) -> LogSegment:
        """
        Add the next segment to a log that ends at ``end``: the prepared one, or one made now.

        Raises ``OSError``: the disk refused, to the preparing thread (told once, then it is tried again) or now.
        """
        with self._lock:
            segments = self._files.segments
            base = segments[-1].end if segments else end
            spare, self._spare = self._spare, None
            error, self._error = self._error, None
            if spare is None:
                if error is not None:
                    raise error
                spare = LogSegment.create(self._files.log_folder, base, self._files.segment_bytes)
            assert spare.base == base, "rules 1 and 2"
            # Under the lock: between taking the spare and adding it, ``prepare`` would see neither and make the segment
            # again and rename its empty file over the one that the log appends to.
            segments.append(spare)
            self._due_at = spare.end - self._lead_bytes
            return spare

    def drop_front(self, start: int) -> list[LogSegment]:
        """The segments below ``start``, which are not in the list any more: another list is in its place."""
        # Not shortened in place: a loop that is going over it on another thread would leave out as many segments.
        with self._lock:
            segments = self._files.segments
            gone = [segment for segment in segments if segment.end <= start]
            self._files.segments = segments[len(gone) :]
        return gone

    def discard(self) -> None:
        """Blocking. The log is cut or closed: the spare, if there is one, is removed. Raises ``OSError``."""
        with self._lock:
            spare, self._spare = self._spare, None
            if spare is not None:
                spare.close()
                spare.path.unlink()
