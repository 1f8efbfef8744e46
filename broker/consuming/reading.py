"""
What a pull finds: the records of one queue from an offset on that pass a filter.

Here: one look at a queue, the search by time, a single record. Nothing is kept between two of them. Not here: who asks,
and whether it waits (``pulls``), which records a queue has (``broker.folds``).

Rule 1: a consumer that follows ``next_offset`` meets every record that passes exactly once, in order.
Rule 2: a record is found only if it is the one that its unit names: its place, size, topic, queue id and queue offset.
Rule 3: work is bounded: so many units, so many records that are read for nothing, so many bytes that are found.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final

import msgspec

from rollcall_ha.broker.consuming.filters import Filter
from rollcall_ha.broker.folds.consume_queue import UNIT
from rollcall_ha.broker.folds.ports import Folds, Queue, QueueKey
from rollcall_ha.broker.log.record import index_fields
from rollcall_ha.broker.protocol.codes import ClientResult
from rollcall_ha.broker.protocol.record import MAGIC_V1, MAGIC_V2, RECORD_BYTES_MIN, RecordError, RecordView
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.frame import FRAME_BYTES_MAX

MESSAGES_MAX: Final = 32
BYTES_MAX: Final = 256 * 1024
FAR_MESSAGES_MAX: Final = 8
FAR_BYTES_MAX: Final = 64 * 1024
"""Of records far behind the end of the log: they come from the disk, and the loop waits for them."""
RECORD_BYTES_MAX: Final = FRAME_BYTES_MAX - 64 * 1024
"""The largest frame has room for it, and for any header."""
UNITS_MAX: Final = 800
FAR_TIMES_MAX: Final = 64
"""Store times of such records in one answer."""
RECORDS_PASSED_BY_MAX: Final = 100
"""Read and not found: a filter by properties has to read each record of its queue."""
_BLANK: Final = (0, 0x7FFFFFFF, 0)
_MAGICS: Final = (MAGIC_V1, MAGIC_V2)
_HEAD: Final = struct.Struct(">II20xq")
"""Of a record: size, magic, physical offset."""


class QueueDamaged(Exception):
    """A unit of a queue does not name a record of its log; the message has both."""


class Found(msgspec.Struct, gc=False):
    """One look at a queue. Release ``records`` within this turn."""

    code: int
    """Of the answer; 0 = there are ``records``."""
    next_offset: int
    remark: str = ""
    min_offset: int = 0
    max_offset: int = 0
    is_far: bool = False
    """Whether it is not in memory."""
    is_sent_back: bool = False
    """Whether it is the master's to answer."""
    damage: str = ""
    """Why the queue is not read behind ``next_offset``; empty: it is sound, as far as was read."""
    records: list[memoryview] = []


class QueueReader:
    """The queue of ``key``, with the log that it is of; for one turn."""

    __slots__ = ("_key", "_queue", "_records")

    def __init__(self, queue: Queue, records: Folds, key: QueueKey) -> None:
        self._queue = queue
        self._records = records
        self._key = key

    def look(self, offset: int, filter_: Filter, *, messages: int, near_bytes: int) -> Found:
        """
        What a pull at ``offset`` finds: at most ``messages`` records, and one even if it asks for none.

        Records within ``near_bytes`` of confirm count as being in memory. Raises ``OSError``.
        """
        lowest, end = self._queue.min_offset, self._queue.max_offset
        if end == 0:
            return nothing(offset)
        if offset == end:
            return Found(ClientResult.PULL_NOT_FOUND, end, "", lowest, end)
        if not lowest <= offset < end:
            remark = f"offset {offset} is not within {lowest} and {end}"
            return Found(ClientResult.PULL_OFFSET_MOVED, max(min(offset, end), lowest), remark, lowest, end)
        found = Found(ClientResult.PULL_RETRY_IMMEDIATELY, offset, "", lowest, end)
        try:
            self._gather(found, filter_, max(min(messages, MESSAGES_MAX), 1), near_bytes)
        except QueueDamaged as damaged:
            found.damage = str(damaged)
        if found.records:
            found.code = SystemCode.SUCCESS
        elif found.damage:
            found.code, found.remark = ClientResult.SYSTEM_ERROR, f"the queue is damaged: {found.damage}"
        return found

    def search(self, timestamp_ms: int, *, is_upper: bool) -> int:
        """
        Lower: the lowest offset stored at or after the time, else the end of the queue. Upper: the highest one stored
        at or before it, else the lowest of all. Of equal times lower takes the first, upper the last.

        Records that are gone count as older than any time. Raises ``QueueDamaged``, ``OSError``.
        """
        lowest, end = self._queue.min_offset, self._queue.max_offset
        bisect = bisect_right if is_upper else bisect_left
        count = bisect(range(lowest, end), timestamp_ms, key=self.stored_at_ms)
        return max(lowest, lowest + count - 1) if is_upper else lowest + count

    def earliest_ms(self) -> int:
        """Store time of the first record that is still there; -1: none is. Raises ``QueueDamaged``, ``OSError``."""
        first = self.search(0, is_upper=False)
        return self.stored_at_ms(first) if first < self._queue.max_offset else -1

    def _gather(self, found: Found, filter_: Filter, messages_max: int, near_bytes: int) -> None:
        """Fill ``records`` and move ``next_offset`` on. Raises ``QueueDamaged``, ``OSError``."""
        codes, passes, views = filter_.codes, filter_.passes, found.records
        room_bytes, passed_by = BYTES_MAX, 0
        units = self._units(found.next_offset, messages_max if codes is None and passes is None else UNITS_MAX)
        # By the first of them: the others are nearer.
        found.is_far = self._records.confirm_offset - UNIT.unpack_from(units)[0] > near_bytes
        if found.is_far:
            room_bytes, messages_max = FAR_BYTES_MAX, min(messages_max, FAR_MESSAGES_MAX)
        for unit in UNIT.iter_unpack(units):
            _, size, code = unit
            if codes is None or code in codes:
                # The first one is always taken: a record that is larger than the limit would end its queue.
                if views and (len(views) >= messages_max or size > room_bytes):
                    return
                record = self._record(found.next_offset, unit)
                if record is not None and (passes is None or passes(record[1])):
                    views.append(record[0])
                    room_bytes -= size
                elif record is not None:
                    record[0].release()
                    passed_by += 1
                    if passed_by >= RECORDS_PASSED_BY_MAX:
                        found.next_offset += 1
                        return
            found.next_offset += 1

    def _units(self, offset: int, count_max: int) -> bytes:
        try:
            units = self._queue.units(offset, count_max)
        except FileNotFoundError:
            units = b""
        # Answered "nothing passed", a client would ask for the same offset again at once, and for ever.
        if not units or len(units) % UNIT.size:
            raise QueueDamaged(f"{_name(self._key)} ends at {self._queue.max_offset} and has no whole unit {offset}")
        return units

    def stored_at_ms(self, offset: int) -> int:
        """Store time of the record at ``offset``; -1: it is gone. Raises ``QueueDamaged``, ``OSError``."""
        record = self._record(offset, UNIT.unpack(self._units(offset, 1)))
        if record is None:
            return -1
        record[0].release()
        return record[2]

    def place(self, offset: int) -> int:
        """Where its unit says that the record at ``offset`` lies. Raises ``QueueDamaged``, ``OSError``."""
        return int(UNIT.unpack(self._units(offset, 1))[0])

    def _record(self, offset: int, unit: tuple[int, int, int]) -> tuple[memoryview, bytes, int] | None:
        """
        The record of a unit, in place, with its properties and its store time; None: it is gone, or the unit is blank.

        Raises ``QueueDamaged`` (rule 2).
        """
        place, size, _ = unit
        is_possible = place >= 0 and size >= RECORD_BYTES_MIN
        if unit == _BLANK or (is_possible and place < self._records.min_offset):
            return None
        view = self._records.record(place, size) if is_possible else None
        if view is None:
            raise QueueDamaged(
                f"unit {offset} of {_name(self._key)} names {size} bytes at {place}, which the log lacks"
            )
        said_size, magic, said_place = _HEAD.unpack_from(view)
        there = f"size {said_size}, magic {magic:#010x}, place {said_place}"
        # Lengths inside of a record are believed only when its size and magic are those of one.
        if said_size == size and said_place == place and magic in _MAGICS:
            try:
                topic, queue_id, number, _, properties, stored_at_ms, _ = index_fields(view, 0)
            except RecordError as error:
                there = str(error)
            else:
                if number == offset and (topic, queue_id) == self._key:
                    return view, properties, stored_at_ms
                there = f"record {number} of {_name((topic, queue_id))}"
        # Delivered, it would be a message of another topic, or one that its consumer has had.
        view.release()
        raise QueueDamaged(f"unit {offset} of {_name(self._key)} names {size} bytes at {place}; there is: {there}")


class StoreTimes:
    """Store times of records in many queues, for one answer."""

    def __init__(self, records: Folds, near_bytes: int) -> None:
        """``near_bytes`` as of ``QueueReader.look``."""
        self._records = records
        self._near_bytes = near_bytes
        self._left = FAR_TIMES_MAX

    def of(self, queue: Queue, key: QueueKey, offset: int) -> int:
        """As ``QueueReader.stored_at_ms``; 0: it is far behind the end, and enough of those were read."""
        reader = QueueReader(queue, self._records, key)
        if self._records.confirm_offset - reader.place(offset) > self._near_bytes:
            # The loop would wait for the disk, a thousand times for one question of a tool.
            if not self._left:
                return 0
            self._left -= 1
        return reader.stored_at_ms(offset)


def copy_record(records: Folds, offset: int, is_meant: Callable[[RecordView], bool] = lambda _: True) -> bytes | None:
    """The visible record that begins at ``offset``; None: none does, or it is not meant."""
    room_bytes = min(records.confirm_offset - offset, RECORD_BYTES_MAX)
    head = records.record(offset, 4) if records.min_offset <= offset and room_bytes >= RECORD_BYTES_MIN else None
    if head is None:
        return None
    with head:
        size = int.from_bytes(head, "big")
    view = records.record(offset, size) if RECORD_BYTES_MIN <= size <= room_bytes else None
    if view is None:
        return None
    with view:
        try:
            record = RecordView(view)
        except RecordError:
            return None
        # A client may ask for any byte: in the body of a message something may look like a record.
        is_there = record.physical_offset == offset and record.size_bytes == size
        return bytes(view) if is_there and is_meant(record) else None


def nothing(offset: int) -> Found:
    """What a pull finds in a queue without a message."""
    code = ClientResult.PULL_OFFSET_MOVED if offset else ClientResult.PULL_NOT_FOUND
    return Found(code, 0, "the queue has no message")


def _name(key: QueueKey) -> str:
    return f"{key[0].decode(errors='replace')}:{key[1]}"
