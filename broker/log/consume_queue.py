"""
The consume queue's unit of 20 bytes (rocketmq-wire section 5.4): where a message lies, how long it is, its tags' hash.

Here: the codec. Queue offsets themselves are ``queue_offsets``.
"""

from __future__ import annotations

import struct

import msgspec

UNIT_BYTES = 20
_UNIT = struct.Struct(">qiq")


class QueueUnit(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a consume queue."""

    physical_offset: int
    size_bytes: int
    tags_code: int


NEVER_WRITTEN = QueueUnit(physical_offset=0, size_bytes=0x7FFFFFFF, tags_code=0)
"""Fills the prefix of a queue that begins above 0."""


class QueueUnitError(ValueError):
    """These bytes are not a unit, or these numbers do not fit into one."""


def encode_unit(unit: QueueUnit) -> bytes:
    """20 bytes. Raises ``QueueUnitError``."""
    try:
        return _UNIT.pack(unit.physical_offset, unit.size_bytes, unit.tags_code)
    except struct.error as error:
        raise QueueUnitError(f"{unit} does not fit into {UNIT_BYTES} bytes: {error}") from error


def decode_unit(data: bytes | memoryview) -> QueueUnit:
    """Raises ``QueueUnitError`` unless it is exactly one unit of a sensible size."""
    if len(data) != UNIT_BYTES:
        raise QueueUnitError(f"a unit of {len(data)} bytes; it has {UNIT_BYTES}")
    physical_offset, size_bytes, tags_code = _UNIT.unpack(data)
    if physical_offset < 0 or size_bytes <= 0:
        raise QueueUnitError(f"a unit with offset {physical_offset} and size {size_bytes}")
    return QueueUnit(physical_offset=physical_offset, size_bytes=size_bytes, tags_code=tags_code)


def tags_code(tags: str) -> int:
    """Java's ``String.hashCode`` (over UTF-16 units), sign-extended; 0 without tags."""
    code = 0
    raw = tags.encode("utf-16-be", "surrogatepass")
    for high, low in zip(raw[::2], raw[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code - (1 << 32) if code & 0x80000000 else code
