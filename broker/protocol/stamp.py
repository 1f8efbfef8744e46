"""
The producer's stamp as a property of a message: ``ROLLCALL_SEQ`` = 32 hex digits ``:`` producer epoch ``:`` sequence.

It travels in the send request's properties and stays in the record, so the dedupe table is a fold of the log (R18).
Java producers do not set it, and Java readers see one more property.
"""

from __future__ import annotations

from typing import Final

STAMP_PROPERTY: Final = "ROLLCALL_SEQ"
_MARK: Final = b"ROLLCALL_SEQ\x01"
_NUMBER_MAX: Final = 2**63 - 1


class StampError(ValueError):
    """A property that should be a stamp is none; the message shows it."""


def find_stamp(properties: bytes) -> tuple[bytes, int, int] | None:
    """
    (producer id, producer epoch, sequence) of a message, None if it has no stamp.

    Raises ``StampError`` for a stamp that cannot be read: such a message is refused, never sent without protection.
    """
    start = properties.find(_MARK)
    while start > 0 and properties[start - 1] != 2:
        start = properties.find(_MARK, start + 1)
    if start < 0:
        return None
    start += len(_MARK)
    end = properties.find(b"\x02", start)
    raw = properties[start:] if end < 0 else properties[start:end]
    parts = raw.split(b":")
    if len(parts) != 3 or len(parts[0]) != 32 or not parts[1].isdigit() or not parts[2].isdigit():
        raise StampError(f"{STAMP_PROPERTY} is {raw[:80]!r}, not 32 hex digits, epoch and sequence with colons between")
    try:
        identity = bytes.fromhex(str(parts[0], "ascii"))
        epoch, sequence = int(parts[1][:20]), int(parts[2][:20])
    except ValueError as error:
        raise StampError(f"{STAMP_PROPERTY} is {raw[:80]!r}: {error}") from error
    if len(identity) != 16 or epoch > _NUMBER_MAX or sequence > _NUMBER_MAX:
        raise StampError(f"{STAMP_PROPERTY} is {raw[:80]!r}: a number is too large")
    return identity, epoch, sequence


def format_stamp(producer_id: bytes, producer_epoch: int, sequence: int) -> str:
    """The property's value."""
    return f"{producer_id.hex()}:{producer_epoch}:{sequence}"
