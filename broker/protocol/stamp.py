"""
The producer's stamp as a property of a message: ``ROLLCALL_SEQ`` = 32 hex digits ``:`` producer epoch ``:`` sequence.

It travels in the send request's properties and stays in the record, so the dedupe table is a fold of the log (R18). A
batch has one, of its first message and among the properties of that: each next message has the next sequence. The
broker writes it into each record, so that a log which ends inside of a batch tells what is there.
Java producers do not set it, and Java readers see one more property.
"""

from __future__ import annotations

import re
from binascii import unhexlify
from typing import Final

STAMP_PROPERTY: Final = "ROLLCALL_SEQ"
_MARK: Final = b"ROLLCALL_SEQ\x01"
_END: Final = 2
_STAMP: Final = re.compile(rb"ROLLCALL_SEQ\x01([0-9a-f]{32}):([0-9]{1,18}):([0-9]{1,18})(?:\x02|\Z)")


class StampError(ValueError):
    """A property that should be a stamp is none; the message shows it."""


def find_stamp(properties: bytes) -> tuple[bytes, int, int] | None:
    """
    (producer id, producer epoch, sequence) of a message, None if it has no stamp.

    Raises ``StampError`` for a stamp that cannot be read: such a message is refused, never sent without protection.
    """
    is_here, at = False, properties.find(_MARK)
    while at >= 0:
        # Not within the value, or at the end of the name, of another property.
        if at == 0 or properties[at - 1] == _END:
            if (found := _STAMP.match(properties, at)) is not None:
                producer_id, producer_epoch, sequence = found.groups()
                return unhexlify(producer_id), int(producer_epoch), int(sequence)
            is_here = True
        at = properties.find(_MARK, at + 1)
    if not is_here:
        return None
    raise StampError(
        f"{STAMP_PROPERTY} is not 32 hex digits, epoch and sequence with colons between: {properties[:99]!r}"
    )


def stamp_lead(producer_id: bytes, producer_epoch: int) -> bytes:
    """The property of any message of a producer's epoch, up to its sequence; 0x02 is behind that."""
    return b"%b%b:%d:" % (_MARK, producer_id.hex().encode(), producer_epoch)


def format_stamp(producer_id: bytes, producer_epoch: int, sequence: int) -> str:
    return f"{producer_id.hex()}:{producer_epoch}:{sequence}"
