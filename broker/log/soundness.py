"""
Bodies that are not the ones that were stored: bit rot, found before a human or a slave does.

Here: reading records that are in a map. Not here: the check of one record (``record``), of the tail after a crash
(``recovery``).
"""

from __future__ import annotations

from collections.abc import Sequence

from rollcall_ha.broker.log.record import RecordError, check_bodies, walk
from rollcall_ha.broker.log.segment import LogSegment


def sound_end(segment: LogSegment, start: int, end: int) -> int:
    """
    Where the last whole record of ``[start, end)`` ends, counted from the segment's first byte.

    Raises ``RecordDamaged``: a body is another one than was stored. ``RecordError``: these are no records.
    """
    starts: list[int] = []
    whole = walk(segment.view, start, end, starts)
    check_bodies(segment.view, starts, segment.base)
    return whole


def find_damage(segments: Sequence[LogSegment], start: int, end: int) -> str:
    """What is wrong with the first damaged record of ``[start, end)``, both record boundaries; empty: nothing."""
    try:
        for segment in segments:
            if segment.end > start and segment.base < end:
                sound_end(segment, max(start - segment.base, 0), min(end - segment.base, segment.size))
    except RecordError as error:
        return str(error)
    return ""
