"""
Bodies that are not the ones that were stored: bit rot, found before a human or a slave does.

Here: reading records that are in a map. Not here: the check of one record (``record``), of the tail after a crash
(``recovery``).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from rollcall_ha.broker.log.record import check_bodies, walk
from rollcall_ha.broker.log.segment import LogSegment
from rollcall_ha.broker.protocol.record import RecordError

CHECKED_BYTES = 8 * 1024 * 1024
"""Read at each start at either end of a log: 10 to 25 ms each. A slave checks each record that it is sent."""


def sound_end(segment: LogSegment, start: int, end: int) -> int:
    """
    The end of the last whole record of ``[start, end)``, counted from the segment's first byte.

    Raises ``RecordDamaged``: a body is another one than was stored. ``RecordError``: these are no records.
    """
    starts: list[int] = []
    whole = walk(segment.view, start, end, starts)
    check_bodies(segment.view, starts, segment.base)
    return whole


def find_damage(segments: Sequence[LogSegment], start: int, end: int) -> str:
    """The first damage of a record of ``[start, end)``, both record boundaries, in words; empty: none."""
    try:
        for segment in segments:
            if segment.end > start and segment.base < end:
                sound_end(segment, max(start - segment.base, 0), min(end - segment.base, segment.size))
    except RecordError as error:
        return str(error)
    return ""


def damage_at_the_ends(segments: Sequence[LogSegment], end: int) -> str:
    """The first damage of a record of the first or the last ``CHECKED_BYTES``, in words; empty: none."""
    try:
        for segment in segments[:1]:
            sound_end(segment, 0, min(CHECKED_BYTES, end - segment.base, segment.size))
        for segment in segments:
            if segment.end > end - CHECKED_BYTES and segment.base < end:
                starts: list[int] = []
                walk(segment.view, 0, min(end - segment.base, segment.size), starts)
                lowest = bisect_left(starts, end - CHECKED_BYTES - segment.base)
                check_bodies(segment.view, starts[lowest:], segment.base)
    except RecordError as error:
        return str(error)
    return ""
