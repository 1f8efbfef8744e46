"""
The lines of a probe's journal: the one place of their schema (docs/probe.md).

Here: what a line holds, to and from bytes. Not here: when one is written (``gaps``, ``server``), files (``journal``).

Rule 1: a line says what was watched, too: without it, silence would read as health.
Rule 2: an instant is UTC of the probe's machine; a duration is of its monotonic clock, and never a difference of two
instants, for a clock that is set would make one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

SCHEMA_VERSION: Final = 1


class GapLine(msgspec.Struct, frozen=True, kw_only=True, tag="gap", tag_field="kind", rename="camel"):
    """One set took nothing for longer than the threshold."""

    schema: int = SCHEMA_VERSION
    cluster: str = ""
    """As the set's route names it; empty: none was known, or the line is of before there was this field."""
    set_name: str
    from_ms: int
    """UTC of the first send that was not acknowledged in time."""
    felt_ms: int
    """From that send to the first acknowledgement afterwards; of a gap that is not over: to the end of the probe."""
    since_ack_ms: int | None
    """How long before ``from_ms`` the last acknowledgement came; None: there was none."""
    sends_failed: int
    threshold_ms: int
    stalled_ms: int
    """Of ``felt_ms``, what the probe's own process may have lost: its loop was late by so much."""
    is_over: bool
    reason: str
    """Of the first send that failed, for people."""


class WatchedSet(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Sends to one set, and their ends, in the time of a ``WatchedLine``."""

    set_name: str
    sends: int
    acks: int
    failures: int
    gaps: int
    stalls: int
    """How often the probe's own process was late by more than an interval."""


class WatchedLine(msgspec.Struct, frozen=True, kw_only=True, tag="watched", tag_field="kind", rename="camel"):
    """The probe watched these sets in the ``watched_ms`` before ``to_ms``: a line each hour, and one at the end."""

    schema: int = SCHEMA_VERSION
    to_ms: int
    """UTC of the line; the time that it covers ends here."""
    watched_ms: int
    interval_ms: int
    sets: tuple[WatchedSet, ...]


class LineError(ValueError):
    """These bytes are no line of a probe that this program reads."""


Line = GapLine | WatchedLine
_encode = msgspec.json.Encoder().encode
_decode: Callable[[bytes], Line] = msgspec.json.Decoder(Line).decode


def encode_line(line: Line) -> bytes:
    """With its line feed."""
    return _encode(line) + b"\n"


def decode_line(data: bytes) -> Line:
    """Raises ``LineError``, also of a schema that this program does not know."""
    try:
        line = _decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LineError(f"no line of a probe: {error}") from error
    if line.schema != SCHEMA_VERSION:
        raise LineError(f"the line has schema {line.schema}, this program reads {SCHEMA_VERSION}")
    return line
