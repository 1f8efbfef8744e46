"""
What cuts have taken out of a log, and for how long it is kept.

Here: removing cuts that are old, or in the way of the log's own growth. Not here: filling the quarantine (``cut``).

Rule: on the thread that cuts the log, while no cut is under way.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

QUARANTINE_FOLDER_NAME = "quarantine"
_DAY_MS = 24 * 60 * 60 * 1000


class Quarantine:
    """Of one log."""

    def __init__(self, root: Path, *, now_ms: Callable[[], int], keep_days: int, keep_bytes: int) -> None:
        """``now_ms`` is UTC. Kept are ``keep_days``, and ``keep_bytes`` at most, but for the newest cut."""
        self._folder = root / QUARANTINE_FOLDER_NAME
        self._now_ms = now_ms
        self._keep_days = keep_days
        self._keep_bytes = keep_bytes

    def expire(self, *, is_in_the_way: bool = False) -> list[str]:
        """
        *Blocking*. Remove the oldest cuts, until none is too old, and no more is there than is kept;
        ``is_in_the_way``: the oldest one whatever it is. Returns their names. Raises ``OSError``.
        """
        entries = self._folder.iterdir() if self._folder.is_dir() else ()
        cuts = sorted((int(began), entry) for entry in entries if (began := entry.name.split("-")[0]).isdecimal())
        sizes_bytes = [sum(file.stat().st_size for file in entry.iterdir()) for _, entry in cuts]
        total_bytes = sum(sizes_bytes)
        removed: list[str] = []
        for (began_at_ms, entry), size_bytes in zip(cuts, sizes_bytes, strict=True):
            # Never the newest by size: after a failover that cut 16 GiB it is the only copy of what producers may ask
            # about.
            is_too_much = total_bytes > self._keep_bytes and entry != cuts[-1][1]
            is_wanted = is_in_the_way and not removed
            if not is_wanted and not is_too_much and self._now_ms() - began_at_ms <= self._keep_days * _DAY_MS:
                break
            shutil.rmtree(entry)
            removed.append(entry.name)
            total_bytes -= size_bytes
        return removed
