"""
How much of the event journal is kept, by bytes and by age, in whole segments; and the record of the dropped rest.

Here: which segments may go, and the record of those that went. Not here: when this is asked, readers
(``event_journal``).

Rule 1: the oldest segments go first, and only closed ones, which are synced. The segment that is written to stays, and
so does the newest one that holds events: a restart tells by it which events are written already.
Rule 2: the record is durable before the first file goes. Files that a crash in between leaves are removed at the next
start.
Rule 3: dropped events are a gap for readers, with their count. No peer is asked for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from rollcall_ha.controller.contract.values import EventRef, Frozen
from rollcall_ha.controller.runtime.journal_segments import Gap, JournalDamaged, JournalSegment, Position
from rollcall_ha.node.files import atomic_replace, durable_unlink

DROPPED_FILE_NAME = "dropped.json"
KEEP_DAYS = 90
KEEP_BYTES = 8 * 1024**3
MS_PER_DAY = 86_400_000


class Retention(Frozen):
    """Limits; a segment goes when either is passed."""

    keep_ms: int = KEEP_DAYS * MS_PER_DAY
    """Since the last event of a segment was written, by the file's own time."""
    keep_bytes: int = KEEP_BYTES
    """All segments together may have so many, the one that is written to included."""


class Dropped(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Everything up to ``last`` was removed from this journal. The counts are since its beginning."""

    last: EventRef
    chain: str
    """Chain head after ``last``: the events that are left go on from it."""
    events: int
    size_bytes: int

    def gap(self) -> Gap:
        """The answer to a reader that asks for a removed event."""
        return Gap(
            after=None,
            to_index=self.last.index,
            chain=self.chain,
            reason=f"{self.events} events were dropped by the limits fleet.event_days and fleet.event_bytes",
        )


_decode_dropped = msgspec.json.Decoder(Dropped).decode


def expired(segments: Sequence[JournalSegment], retention: Retention, *, now_ms: int) -> list[JournalSegment]:
    """
    The segments that may be removed: the oldest, as long as a limit is passed.

    ``segments`` are in order, and the last one is written to. Blocking: reads the files' times. Raises ``OSError``.
    """
    total_bytes = sum(segment.size_bytes for segment in segments)
    newest_with_events = max((place for place, one in enumerate(segments) if one.last is not None), default=0)
    gone: list[JournalSegment] = []
    # Rule 1. Without the newest one that holds events a restart would find an empty journal, take every event of the
    # replay for new, and note a gap for all before it.
    for segment in segments[: min(newest_with_events, len(segments) - 1)]:
        age_ms = now_ms - segment.path.stat().st_mtime_ns // 1_000_000
        if total_bytes <= retention.keep_bytes and age_ms <= retention.keep_ms:
            break  # nor any behind it: removed events are all before the others (``Dropped``)
        gone.append(segment)
        total_bytes -= segment.size_bytes
    return gone


def note_dropped(directory: Path, before: Dropped | None, gone: Sequence[JournalSegment]) -> Dropped | None:
    """
    Record durably that the segments ``gone`` are removed (Rule 2); None if no removed segment ever held an event.

    Blocking. Raises ``JournalDamaged``, ``OSError``.
    """
    dropped = before
    for segment in gone:
        if segment.last is None:
            continue
        dropped = Dropped(
            last=segment.last,
            chain=segment.chain,
            events=(dropped.events if dropped is not None else 0) + segment.load_index().count,
            size_bytes=(dropped.size_bytes if dropped is not None else 0) + segment.size_bytes,
        )
    if dropped is not None and dropped != before:
        atomic_replace(directory / DROPPED_FILE_NAME, msgspec.json.encode(dropped))
    return dropped


def remove(gone: Sequence[JournalSegment]) -> None:
    """Remove files, oldest first, each durably. Blocking. Raises ``OSError``."""
    for segment in gone:
        segment.sidecar_path.unlink(missing_ok=True)
        durable_unlink(segment.path)


def load_dropped(directory: Path) -> Dropped | None:
    """The record of removed segments; None: none was. Raises ``JournalDamaged``, ``OSError``."""
    path = directory / DROPPED_FILE_NAME
    try:
        return _decode_dropped(path.read_bytes())
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise JournalDamaged(
            f"{path} cannot be read ({error}): it says which events were dropped; move the events folder away, a peer "
            "will give its events again"
        ) from error


def without_remains(segments: Sequence[JournalSegment], dropped: Dropped | None) -> list[JournalSegment]:
    """``segments`` (opened, in order) without those that a crash left behind (Rule 2): they are removed. Blocking."""
    if dropped is None:
        return list(segments)
    end = (dropped.last.index, dropped.last.ordinal)
    remains = [segment for segment in segments[:-1] if _end(segment) <= end]
    remove(remains)
    return [segment for segment in segments if segment not in remains]


def _end(segment: JournalSegment) -> Position:
    last = segment.last
    return (last.index, last.ordinal) if last is not None else (segment.base_index, 0)
