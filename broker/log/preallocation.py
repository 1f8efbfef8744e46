"""
The next segment of a log, made before it is needed: allocating one takes the disk milliseconds, or seconds.

Here: one spare segment and who may have it. Not here: what a segment is (``segment``), when a log goes on in the next
one (``commit_log``), the thread that prepares (``flush``).

The loop asks ``is_ready`` and waits for ``told``; who goes on without makes it, and blocks.

Rule 1: a spare is made for the end of the last segment; with a cut, which moves that, it is thrown away.
Rule 2: a spare lies in the log's folder under its name, so nothing is made while a cut runs: made for the old end it
would be a hole in the folder at the next start. The caller holds the log's disk lock.
Rule 3: the list of segments grows here alone, under the lock: between two steps the flush thread would make a segment
again that is in use, under the same name.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from rollcall_ha.broker.log.cut import LogFiles
from rollcall_ha.broker.log.segment import LogSegment

_NEVER = 1 << 63


class SegmentPreallocator:
    """At most one spare segment. ``prepare`` runs on the flush thread, the rest on the thread that owns the log."""

    def __init__(self, files: LogFiles, on_ready: Callable[[], object]) -> None:
        """Nothing is prepared yet. ``told`` runs on the preparing thread when ``is_ready`` may have changed."""
        self._files = files
        self._on_ready = on_ready
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
        """Whether ``grow`` will not wait for the disk. A disk that refused counts: who grows gets its error."""
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
        Blocking. Make the segment behind a log that ends at ``end``, if it is wanted or half of the last one is full.

        Raises ``OSError``: the disk refused; the next call tries again.
        """
        with self._lock:
            segments = self._files.segments
            base = segments[-1].end if segments else end
            is_needed = self._is_requested or end >= base - self._files.segment_bytes // 2
            if self._spare is not None or not is_needed:
                return
            try:
                self._spare = LogSegment.create(self._files.log_folder, base, self._files.segment_bytes)
                self._is_requested, self._error = False, None
            except OSError as error:
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
            segments.append(spare)
            self._due_at = base + self._files.segment_bytes // 2
            return spare

    def discard(self) -> None:
        """Blocking. The log is cut or closed: whatever was prepared is gone. Raises ``OSError``."""
        with self._lock:
            spare, self._spare = self._spare, None
            if spare is not None:
                spare.close()
                spare.path.unlink()
