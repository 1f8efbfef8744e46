"""
Delays by level, as RocketMQ's clients ask for them: levels, the topic in which messages wait, the properties of both.

Here: what the properties of a record say. Not here: the record that waits, and the one that is made of it
(``broker.delaying``).

Rule: a record that waits is one of its level's queue, and its unit's tags code is the time at which it is due. A record
that was delivered says by ``DELIVERED`` of which place it is the delivery: nobody but the broker writes that.
"""

from __future__ import annotations

import re
from typing import Final

from rollcall_ha.broker.protocol.properties import last_value

SCHEDULE_TOPIC: Final = b"SCHEDULE_TOPIC_XXXX"
_SECOND_MS: Final = 1_000
_MINUTE_MS: Final = 60_000
LEVEL_DELAYS_MS: Final = (
    *(seconds * _SECOND_MS for seconds in (1, 5, 10, 30)),
    *(minutes * _MINUTE_MS for minutes in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)),
)
"""Of the levels 1 to 18; level n waits in queue n - 1."""
DELAY: Final = b"DELAY\x01"
REAL_TOPIC: Final = b"REAL_TOPIC\x01"
REAL_QUEUE: Final = b"REAL_QID\x01"
DELIVERED: Final = b"ROLLCALL_DELIVERED\x01"
TIMER_NAMES: Final = (b"TIMER_DELAY_SEC", b"TIMER_DELAY_MS", b"TIMER_DELIVER_MS", b"TIMER_DEL_UNIQKEY")
_NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,10}")
_PLACE: Final = re.compile(rb"([1-9][0-9]?):([0-9]{1,18})")


class DelayError(ValueError):
    """A delay that cannot be understood, or kept until it is over; the message was not appended."""


def level_of(properties: bytes) -> int:
    """The level that a message asks for, at most the highest; 0: it is not delayed. Raises ``DelayError``."""
    value = last_value(properties, DELAY) if DELAY in properties else b""
    if not value:
        return 0
    if not _NUMBER.fullmatch(value):
        raise DelayError(f"property DELAY is {value[:99]!r}; a level from 1 to {len(LEVEL_DELAYS_MS)}, or 0, is meant")
    return min(max(int(value), 0), len(LEVEL_DELAYS_MS))


def due_ms(properties: bytes, stored_at_ms: int) -> int:
    """When a record of the schedule topic is due; 0: it does not say its level. Total."""
    try:
        level = level_of(properties)
    except DelayError:
        return 0
    return stored_at_ms + LEVEL_DELAYS_MS[level - 1] if level else 0


def delivered_mark(level: int, queue_offset: int) -> bytes:
    """The property of a record that is the delivery of what waited at this place."""
    return b"%b%d:%d\x02" % (DELIVERED, level, queue_offset)


def delivered_place(properties: bytes) -> tuple[int, int] | None:
    """Of which (level, queue offset) a record is the delivery; None: of none. Total."""
    found = _PLACE.fullmatch(last_value(properties, DELIVERED))
    if found is None or int(found[1]) > len(LEVEL_DELAYS_MS):
        return None
    return int(found[1]), int(found[2])
