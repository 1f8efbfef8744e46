"""
The next segment of a log, made before it is needed: allocating one takes the disk milliseconds, or seconds.

Here: one spare segment and who may have it. Not here: what a segment is (``segment``), when a log goes on in the next
one (``commit_log``), the thread that prepares (``flush``).

Rule 1: a spare is only ever taken for the offset that it was made for; after a cut it is thrown away.
Rule 2: a spare lies in the log's folder under its name, so nothing is made while a cut runs: made for the old end it
would be a hole in the folder at the next start. The caller holds the log's disk lock.
"""

from __future__ import annotations

import threading

from broker.log.cut import LogFiles
from broker.log.segment import Segment

_NEVER = 1 << 63


class SegmentSupply:
    """At most one spare segment. ``prepare`` runs on the flush thread, the rest on the thread that owns the log."""

    def __init__(self, files: LogFiles) -> None:
        """Nothing is prepared yet."""
        self._files = files
        self._spare: Segment | None = None
        self._lock = threading.Lock()
        self._ask_at = _NEVER

    @property
    def spare(self) -> Segment | None:
        """What is prepared."""
        return self._spare

    def asks(self, end: int) -> bool:
        """Whether a log that ends at ``end`` should have the next segment prepared now; once per segment."""
        if end < self._ask_at:
            return False
        self._ask_at = _NEVER
        return True

    def prepare(self, end: int) -> None:
        """Blocking. Make the segment behind a log that ends at ``end``, from half of its last one on. ``OSError``."""
        with self._lock:
            segments = self._files.segments
            base = segments[-1].end if segments else end
            if self._spare is None and end >= base - self._files.segment_bytes // 2:
                self._spare = Segment.create(self._files.log_folder, base, self._files.segment_bytes)

    def take(self, base: int) -> Segment:
        """The segment that begins at ``base``: the prepared one, or one made now. Raises ``OSError``."""
        self._ask_at = base + self._files.segment_bytes // 2
        with self._lock:
            spare, self._spare = self._spare, None
            if spare is not None and spare.base == base:
                return spare
            if spare is not None:
                # Prepared for an end that a cut has taken away.
                spare.close()
                spare.path.unlink()
            return Segment.create(self._files.log_folder, base, self._files.segment_bytes)

    def discard(self) -> None:
        """Blocking. The log is cut or closed: whatever was prepared is gone. Raises ``OSError``."""
        with self._lock:
            spare, self._spare = self._spare, None
            if spare is not None:
                spare.close()
                spare.path.unlink()
