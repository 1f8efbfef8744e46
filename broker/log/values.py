"""
What a commit log says of itself: its findings at a start, why bytes left it, and what it refuses.

Not here: the log (``commit_log``), the files beside it (``checkpoint``).
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from rollcall_ha.epoch.model import LogOffset, MasterEpoch


class IndexBehindError(RuntimeError):
    """An append before the index has seen the whole log; nothing was written."""


class CutRefusedError(ValueError):
    """This cut would not leave a log; nothing was changed."""


class CutReason(StrEnum):
    """Why bytes leave the log."""

    TRUNCATION = "truncation"
    """The master's history diverges from ours (handshake)."""
    TORN_TAIL = "torn-tail"
    """Recovery found an incomplete or damaged record."""
    FULL_RESYNC = "full-resync"
    """No common point: the whole log is set aside (S29)."""


class RecoveryReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Findings and repairs of ``open``."""

    was_clean: bool
    """The last stop synced everything and said so."""
    end_offset: LogOffset
    checked_from: LogOffset
    checked_records: int
    torn_bytes: int
    torn_reason: str
    finished_cut: bool
    """An interrupted cut was completed (R20)."""
    dropped_epochs: tuple[MasterEpoch, ...]
    """Epoch entries that began beyond the end (R9)."""
    lost: str
    """Why this log lacks bytes that it had synced or confirmed, with both offsets; empty: it lacks none."""
    damaged: str = ""
    """The first damage of a record near either end of the log; nothing was done about it. Empty: none was found."""
    history_fallback: str | None = None
    """Why the epoch file's backup was used; worth a warning."""
    duration_us: int
