"""
Where the queues of a log go on, as records of the log itself: for a log that has lost their older records by age.

Here: the bytes of such records, and when a telling is whole. Not here: who writes them (``broker.retention.telling``),
the tables that take them (``queue_offsets``, ``broker.folds``).

A queue that nobody writes to for days has no record in a log that keeps three. Without its number the next master would
give its next message the offset 0, far below where its consumers stand (R19).

Rule 1: a *telling* names every queue and its next offset, as of a log that ended at ``since``, in one or more records.
It is whole when its last part is there: a log that begins at or below ``since`` then knows all queues that ever were.
Rule 2: rows are in a property, because that is what the index of a log reads of a record.
Rule 3: what is no such record is left out: anybody's bytes may lie in a log.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import msgspec

from rollcall_ha.broker.protocol.properties import last_value

TOPIC: Final = b"ROLLCALL_SYS_QUEUES"
PART_BYTES_MAX: Final = 24 * 1024
"""Of rows in one record; properties may have 32 KiB."""
_NAME: Final = b"QUEUES\x01"
_Natural = Annotated[int, msgspec.Meta(ge=0)]


class Part(msgspec.Struct, frozen=True, array_like=True):
    """One record of a telling."""

    since: _Natural
    number: _Natural
    """From 0 on."""
    is_last: bool
    rows: tuple[tuple[str, _Natural, _Natural], ...]
    """Topic (base64: it may be any bytes), queue id, next offset."""

    def queues(self) -> Iterator[tuple[bytes, int, int]]:
        """(topic, queue id, next)."""
        for topic, queue_id, following in self.rows:
            yield b64decode(topic, validate=True), queue_id, following


class Told:
    """How far the newest telling is read; ``since`` of the newest whole one, and the log offset where that ended."""

    __slots__ = ("_expected", "_since", "at", "since")

    def __init__(self, since: int = 0, at: int = 0) -> None:
        self.since = since
        self.at = at
        self._since = self._expected = -1

    def note(self, part: Part, end: int) -> None:
        """The next part, whose record ends at ``end``."""
        if part.number == 0:
            self._since, self._expected = part.since, 0
        # A master died in the middle of one, and the next one began another: parts of two are no whole one.
        if (part.since, part.number) != (self._since, self._expected):
            self._expected = -1
            return
        self._expected += 1
        if part.is_last and part.since > self.since:
            self.since, self.at = part.since, end

    def cut(self, end: int) -> None:
        """Records at or behind ``end`` are gone."""
        self._expected = -1
        if self.at > end:
            self.since = self.at = 0


_decode: Final = msgspec.json.Decoder(Part).decode


def find_part(properties: bytes) -> Part | None:
    """The part in a record's properties; None: there is none."""
    try:
        part = _decode(last_value(properties, _NAME))
        list(part.queues())
    except (ValueError, msgspec.MsgspecError):
        return None
    return part


def parts_of(rows: Sequence[tuple[bytes, int, int, int]], since: int) -> Iterator[bytes]:
    """The properties of each record that tells ``rows`` (topic, queue id, first, next)."""
    at = number = 0
    while at < len(rows) or not number:
        part: list[tuple[str, int, int]] = []
        size_bytes = 0
        while at < len(rows) and size_bytes < PART_BYTES_MAX:
            topic, queue_id, _, following = rows[at]
            part.append((b64encode(topic).decode(), queue_id, following))
            size_bytes += len(part[-1][0]) + 32
            at += 1
        whole = Part(since=since, number=number, is_last=at == len(rows), rows=tuple(part))
        yield _NAME + msgspec.json.encode(whole) + b"\x02"
        number += 1
