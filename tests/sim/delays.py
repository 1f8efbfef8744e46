"""
Laws of delayed messages (I13), read off a log: each is delivered once, in the order of its level, and not before its time.

Here: one log. Not here: when it is looked at (``log_laws``, ``oracle``), who sends (``client``).
"""

from __future__ import annotations

from collections.abc import Sequence

from rollcall_ha.epoch.history import EpochHistory
from tests.sim.log import Record
from tests.sim.violation import Violation
from tests.support.sim_kernel import Counts

WAITING = b"SCHEDULE_TOPIC_XXXX"
DELAYS_MS = (1_000, 5_000)
"""Of the levels that producers ask for."""
CLOCK_STEP_MS = 10_000
"""A wait that is longer than its level allows by more than this is the work of a clock that went back."""


def look_at_deliveries(name: str, records: Sequence[Record], *, start: int) -> tuple[list[Record], dict[bytes, Record]]:
    """The deliveries of a log that begins at ``start``, and by its place what waits or has waited."""
    waiting: dict[bytes, Record] = {}
    deliveries: list[Record] = []
    following = {} if start else dict.fromkeys(range(1, 19), 0)
    first: dict[int, int] = {}
    """By level: the first place that the log has still."""
    for record in records:
        if record.topic == WAITING:
            waiting[b"%d:%d" % (record.queue_id + 1, record.queue_offset)] = record
            first.setdefault(record.queue_id + 1, record.queue_offset)
        if not record.delivers:
            continue
        level, place = map(int, record.delivers.split(b":"))
        original = waiting.get(record.delivers)
        is_gone = original is None and start > 0 and place < first.get(level, place + 1)
        if not is_gone and (original is None or original.value != record.value):
            raise Violation(f"I13: {name} delivers {record} as what waits at {record.delivers!r}, there is: {original}")
        if place != following.setdefault(level, place):
            raise Violation(f"I13: {name} delivers place {place} of level {level}, {following[level]} is the next")
        following[level] += 1
        if original and record.stored_at_ms < due_ms(original) and not went_back(record, original):
            raise Violation(f"I13: {name} delivers {original} at {record.stored_at_ms}, due at {due_ms(original)}")
        deliveries.append(record)
    return deliveries, waiting


def undelivered(some: Sequence[Record], records: Sequence[Record]) -> list[Record]:
    """Of ``some`` those that wait still, by all records of the log."""
    delivered = {record.delivers for record in records}
    waiting = (record for record in some if record.topic == WAITING)
    return [record for record in waiting if b"%d:%d" % (record.queue_id + 1, record.queue_offset) not in delivered]


def due_ms(waiting: Record) -> int:
    return waiting.stored_at_ms + DELAYS_MS[waiting.queue_id]


def went_back(delivery: Record, waiting: Record) -> bool:
    """Whether the clock that delivered was further behind the one that stored than clocks of a set may be."""
    return waiting.stored_at_ms > delivery.stored_at_ms + CLOCK_STEP_MS


def count_deliveries(
    counts: Counts, history: EpochHistory, deliveries: Sequence[Record], waiting: dict[bytes, Record]
) -> None:
    """At the end of a seed."""
    starts = [entry.start_offset for entry in history.entries]
    for record in deliveries:
        counts.add("delayed messages delivered")
        if (original := waiting.get(record.delivers)) is None:
            continue  # it went with the front of the log
        is_later = any(original.offset < start <= record.offset for start in starts)
        counts.add("delayed messages delivered by a later master", int(is_later))
        counts.add(
            "delayed messages delivered early by a clock that went back",
            int(record.stored_at_ms < due_ms(original)),
        )
