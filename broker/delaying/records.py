"""
The records of a delayed message: the one that waits, and the one that is delivered.

Here: topic, queue and properties of both, and of a message that a group refused, pure. Not here: when a delivery is due
and appended (``deliveries``), what properties say (``broker.protocol.delays``).

Rule 1: what cannot be delivered is refused when it is sent: its delivery would fail for ever.
Rule 2: properties that are about one record, a producer's number or a place that was delivered, are not copied to
another one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from rollcall_ha.broker.log.record import PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX, Draft, record_bytes
from rollcall_ha.broker.protocol.delays import (
    DELAY,
    DELIVERED,
    LEVEL_DELAYS_MS,
    REAL_QUEUE,
    REAL_TOPIC,
    SCHEDULE_TOPIC,
    TIMER_NAMES,
    DelayError,
    delivered_mark,
)
from rollcall_ha.broker.protocol.properties import last_value, without
from rollcall_ha.broker.protocol.record import RecordView
from rollcall_ha.broker.protocol.stamp import STAMP_PROPERTY
from rollcall_ha.broker.protocol.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX

BACK_LEVEL: Final = 3
"""Level of the first time, 10 s; one more for each time after it."""
CLOCK_STEP_MS: Final = 10_000
"""Clocks of the replicas of a set differ by less."""
QUEUE_ID_MAX: Final = 0x7FFFFFFF
_DELIVERY_BYTES: Final = 64
"""What the properties of a delivery have more than those of the record that waits, at most."""
_OF_ONE_RECORD: Final = (DELIVERED[:-1], STAMP_PROPERTY.encode())
_OF_A_WAIT: Final = (DELAY[:-1], *TIMER_NAMES, b"WAIT", *_OF_ONE_RECORD)
_NO_WAIT: Final = b"WAIT\x01false\x02"
_RETRY_TOPIC: Final = b"RETRY_TOPIC\x01"
_ORIGIN_ID: Final = b"ORIGIN_MESSAGE_ID\x01"


class Limits(msgspec.Struct, frozen=True):
    """Of the log in which messages wait."""

    store_host: bytes
    record_bytes_max: int


def waiting(draft: Draft, level: int, limits: Limits) -> Draft:
    """
    ``draft``, which waits at ``level`` for its way into its topic.

    Raises ``DelayError``, ``RecordError``: it could not be delivered (rule 1).
    """
    topic, queue_id = draft.topic, draft.queue_id
    if not 0 < len(topic) <= TOPIC_BYTES_MAX or b"\x01" in topic or b"\x02" in topic:
        raise DelayError(
            f"topic {topic[:99]!r} of a delayed message: 1 to {TOPIC_BYTES_MAX} bytes above 2 are possible"
        )
    if not 0 <= queue_id <= QUEUE_ID_MAX:
        raise DelayError(f"queue {queue_id} of a delayed message: 0 to {QUEUE_ID_MAX} are possible")
    places = b"%b%b\x02%b%d\x02" % (REAL_TOPIC, topic, REAL_QUEUE, queue_id)
    length, most = len(draft.properties) + len(places), PROPERTIES_BYTES_MAX - _DELIVERY_BYTES
    if length > most:
        raise DelayError(f"properties of {length} bytes with topic and queue; {most} are possible with a delay")
    draft.properties += places
    draft.topic, draft.queue_id = SCHEDULE_TOPIC, level - 1
    record_length = record_bytes(draft, limits.store_host) + _DELIVERY_BYTES + TOPIC_BYTES_MAX
    if record_length > limits.record_bytes_max:
        raise DelayError(f"a record of {record_length} bytes when it is delivered; {limits.record_bytes_max} fit")
    return draft


def over_at_ms(due_ms: int, level: int, now_ms: int) -> int:
    """When the wait of a record is over that is due by its unit at ``due_ms``, on the clock that says ``now_ms``."""
    # The clock went back since it was stored: by that, and its delay, it would be too late. RocketMQ takes any lead for
    # this; of two machines whose clocks differ by a second, the second one delivered at once.
    return now_ms if due_ms > now_ms + LEVEL_DELAYS_MS[level - 1] + CLOCK_STEP_MS else due_ms


def delivery(record: RecordView, level: int, limits: Limits) -> tuple[Draft, int]:
    """
    The message that waited as ``record``, with its size; its body is a view into the record.

    Raises ``DelayError``, ``RecordError``: the record does not say what this is, it is not one of ours.
    """
    properties = record.properties
    topic, queue_id = last_value(properties, REAL_TOPIC), last_value(properties, REAL_QUEUE)
    if not topic or topic == SCHEDULE_TOPIC or not queue_id.isdigit() or int(queue_id) > QUEUE_ID_MAX:
        raise DelayError(f"it waits for queue {queue_id[:99]!r} of topic {topic[:99]!r}")
    mark = delivered_mark(level, record.queue_offset)
    kept = without(properties, _OF_A_WAIT) + _NO_WAIT + mark
    draft = _copy(record, topic, int(queue_id), kept, reconsume_times=record.reconsume_times)
    size_bytes = record_bytes(draft, limits.store_host)
    if size_bytes > limits.record_bytes_max:
        raise DelayError(f"it would have {size_bytes} bytes; {limits.record_bytes_max} fit into a segment")
    return draft, size_bytes


def sent_back(record: RecordView, group: str, level: int, reconsume_times_max: int, limits: Limits) -> Draft:
    """
    The message that ``group`` refused, on its way to it again, or to its dead letters; its body is a view.

    ``level``: of its delay; 0: longer with each time; below 0: it is a dead letter at once. Raises as ``waiting``.
    """
    topic, properties = record.topic, record.properties
    kept = without(properties, (*_OF_A_WAIT, REAL_TOPIC[:-1], REAL_QUEUE[:-1])) + _NO_WAIT
    if not last_value(kept, _RETRY_TOPIC):
        kept += b"%b%b\x02" % (_RETRY_TOPIC, topic)
    if not last_value(kept, _ORIGIN_ID):
        kept += b"%b%b%016X\x02" % (_ORIGIN_ID, record.store_host.hex().upper().encode(), record.physical_offset)
    times = max(record.reconsume_times, 0)
    if times >= reconsume_times_max or level < 0:
        return _copy(record, f"{DEAD_LETTER_PREFIX}{group}".encode(), 0, kept, reconsume_times=times + 1)
    level = min(level or BACK_LEVEL + times, len(LEVEL_DELAYS_MS))
    kept += b"%b%d\x02" % (DELAY, level)
    draft = _copy(record, f"{RETRY_PREFIX}{group}".encode(), 0, kept, reconsume_times=times + 1)
    return waiting(draft, level, limits)


def cleaned(topic: str, properties: bytes) -> bytes:
    """Properties that a client sends, without what it copied from a record that it was given (rule 2)."""
    # A client that cannot send a message back sends a copy. By its producer's number it would be taken for a repeat,
    # and be lost; by its place, for the delivery of something else.
    if topic.startswith(RETRY_PREFIX):
        return without(properties, _OF_ONE_RECORD)
    return without(properties, _OF_ONE_RECORD[:1]) if DELIVERED in properties else properties


def is_dead_letter(topic: str, times: int, said_max: int | None, times_max: Callable[[str], int]) -> bool:
    """Whether a client gives a message back once too often: by its own word, or by ``times_max`` of the group."""
    if not topic.startswith(RETRY_PREFIX):
        return False
    return times > (times_max(topic.removeprefix(RETRY_PREFIX)) if said_max is None else said_max)


def dead_letter(draft: Draft) -> Draft:
    """``draft`` of a retry topic, as a dead letter of the group."""
    draft.topic = DEAD_LETTER_PREFIX.encode() + draft.topic.removeprefix(RETRY_PREFIX.encode())
    draft.queue_id = 0
    draft.properties = without(draft.properties, (DELAY[:-1], *TIMER_NAMES))
    return draft


def _copy(record: RecordView, topic: bytes, queue_id: int, properties: bytes, *, reconsume_times: int) -> Draft:
    return Draft(
        topic=topic,
        queue_id=queue_id,
        body=record.body,
        properties=properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        born_at_ms=record.born_at_ms,
        born_host=record.born_host,
        reconsume_times=min(reconsume_times, QUEUE_ID_MAX),
    )
