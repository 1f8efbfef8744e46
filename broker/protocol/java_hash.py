"""
Java's hash of a string, by which RocketMQ finds tags and keys.

Here: ``String.hashCode`` of the text that UTF-8 bytes stand for, the tags code of a consume queue's unit.

Rule 1: it is counted over the text's UTF-16 units, of which ASCII has one a byte. Counted over bytes, as some clients
do, a tag in Chinese passes no filter of a Java consumer.
Rule 2: bytes that are no UTF-8 are hashed as the replacement characters that Java reads them as.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from operator import mul
from typing import Final

_STEP_UNITS: Final = 64
_POWERS: Final[tuple[int, ...]] = tuple(31**exponent & 0xFFFFFFFF for exponent in range(_STEP_UNITS + 1))
_WEIGHTS: Final = tuple(_POWERS[:length][::-1] for length in range(_STEP_UNITS + 1))
"""By the length of a text: what each of its units counts."""
_UTF16: Final = f"utf-16-{sys.byteorder[0]}e"


def java_hash(text: bytes, before: int = 0) -> int:
    """
    The int32 hash of a string that ends with ``text`` and whose beginning, in front of it, has the hash ``before``.
    """
    # A sum over a ``map`` runs in C: a loop in Python would cost a key of 32 characters 3 us instead of 1.
    units: Sequence[int] = text
    if not text.isascii():
        units = memoryview(text.decode("utf-8", "replace").encode(_UTF16)).cast("H")
    length = len(units)
    total: int
    if length <= _STEP_UNITS:
        total = before * _POWERS[length] + sum(map(mul, units, _WEIGHTS[length]))
    else:
        total = before
        for at in range(0, length, _STEP_UNITS):
            part = units[at : at + _STEP_UNITS]
            total = (total * _POWERS[len(part)] + sum(map(mul, part, _WEIGHTS[len(part)]))) & 0xFFFFFFFF
    return ((total & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def tags_code(tags: bytes) -> int:
    """The tags code of a record with the property TAGS, all of it one text; 0: it has none."""
    return java_hash(tags)
