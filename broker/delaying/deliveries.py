"""
Deliveries: what waits in the queues of the schedule topic goes into its own topic when it is due.

A delayed message lies in the queue of its level, and its unit says when it is due (``broker.folds``). While a replica
is master one timer looks at the heads of the 18 queues. What is due becomes one run of appends, as any other sends:
each delivery names the place of what it delivers. From those names every replica knows what was delivered
(``broker.folds.delivered``), so the next master goes on behind it.

Here: reigns, runs, time. Not here: the records (``records``), how they are appended (``broker.handlers``).

Rule 1: exactly once to the log. A reign begins to deliver when everything that its log had at its start is confirmed
and taken in, from the numbers of the fold. From then on it counts for itself, as the fold hears of its own deliveries
later.
Rule 2: what was appended is never appended again in its reign, whatever its answer says. Only a run that is certainly
not in the log is tried again, ``RETRY_MS`` later, before anything behind it in its queues.
Rule 3: a level is delivered in the order of its queue, and nothing before it is due.
Rule 4: runs are bounded, in records and bytes, and so is what is on its way without an answer.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec

from rollcall_ha.broker.delaying.records import Limits, delivery, over_at_ms
from rollcall_ha.broker.folds.consume_queue import UNIT
from rollcall_ha.broker.folds.dispatcher import Dispatcher
from rollcall_ha.broker.folds.ports import Queue
from rollcall_ha.broker.log.record import Draft, RecordDamaged, check_body
from rollcall_ha.broker.ports import Around
from rollcall_ha.broker.protocol.delays import LEVEL_DELAYS_MS, SCHEDULE_TOPIC, DelayError
from rollcall_ha.broker.protocol.record import RECORD_BYTES_MIN, RecordError, RecordView
from rollcall_ha.node.telemetry import get_logger

LOOK_MS: Final = 1_000
"""A master looks so often at least: the shortest delay is as long, so nothing that is new is seen too late."""
RETRY_MS: Final = 100
GO_ON_MS: Final = 1
RUN_RECORDS_MAX: Final = 128
"""Delivered or left out."""
FAR_RECORDS_MAX: Final = 16
"""Of records that have to come from the disk: the loop waits for each."""
RUN_BYTES_MAX: Final = 128 * 1024
"""With that, one turn takes 1 to 2 ms."""
ON_WAY_RECORDS_MAX: Final = 8_192
ON_WAY_BYTES_MAX: Final = 8 * 1024 * 1024

_UNREADABLE: Final = (OSError, RecordError, struct.error)
"""Of a level: the disk refuses, its queue is shorter than it should be, or names other records."""

_log = get_logger("deliveries")


class _Reign(msgspec.Struct):
    """What a master knows of its own deliveries."""

    master_epoch: int
    following: list[int]
    """By level, from 0: the offset in its queue of the next one to append."""
    records_on_way: int = 0
    bytes_on_way: int = 0


class _Run(msgspec.Struct):
    """What one look found to be due."""

    following: list[int]
    looks_max: int
    looks: int = 0
    """Records that were looked at, delivered or not: each costs its time."""
    left_out: int = 0
    reason: str = ""
    """Of the first one that was left out."""
    drafts: list[Draft] = []
    views: list[memoryview] = []
    size_bytes: int = 0
    is_full: bool = False
    """More is due than it takes."""
    wait_ms: int = LOOK_MS
    """Until the next one is due."""


class Deliveries:
    """The deliveries of one replica. On the loop thread."""

    def __init__(
        self,
        at: Around,
        *,
        folds: Dispatcher,
        limits: Limits,
        now_ms: Callable[[], int],
    ) -> None:
        """``folds`` are those of ``at``; ``now_ms`` is UTC."""
        self.delivered = 0
        """Confirmed since the start of the process."""
        self.undeliverable = 0
        """Left out: they do not say where they go."""
        self._at = at
        self._folds = folds
        self._limits = limits
        self._run_bytes_max = min(RUN_BYTES_MAX, limits.record_bytes_max // 4)
        self._now_ms = now_ms
        self._reign: _Reign | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._first_level = 0
        self._faults: dict[int, str] = {}
        """By level, from 0: what was told last."""
        self._unread_since_ms: dict[int, int] = {}

    @property
    def values(self) -> list[tuple[str, str, float]]:
        """For the health address: name, meaning, value."""
        waiting, overdue_ms = self._waiting()
        return [
            ("delayed_waiting", "Messages that wait for the end of their delay.", waiting),
            ("delayed_overdue_seconds", "Since when the oldest of them is due; 0 = none is.", overdue_ms / 1000),
            ("delayed_delivered_total", "By this broker, confirmed, since the start.", self.delivered),
            ("delayed_undeliverable_total", "Left out, as they do not say where they go.", self.undeliverable),
        ]

    def standing_moved(self) -> None:
        """The replica leads now, or no more; called for nothing it does nothing."""
        if self._at.standing.is_master and not self._is_closed and self._timer is None:
            self._set_timer(GO_ON_MS)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    # --- turns -------------------------------------------------------------------------------------------------------

    def _set_timer(self, delay_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._turn)

    def _turn(self) -> None:
        self._timer = None
        if not self._is_closed and self._at.standing.is_master:
            # First: a fault of one turn would end all deliveries of the reign.
            self._set_timer(LOOK_MS)
            self._set_timer(self._deliver())

    def _deliver(self) -> int:
        """One run; returns after how many ms there may be another one."""
        reign = self._this_reign()
        if reign is None:
            return RETRY_MS
        if reign.records_on_way >= ON_WAY_RECORDS_MAX or reign.bytes_on_way >= ON_WAY_BYTES_MAX:
            return RETRY_MS
        run = _Run(list(reign.following), RUN_RECORDS_MAX)
        try:
            self._gather(run)
            if run.drafts:
                count, size_bytes = len(run.drafts), run.size_bytes
                # Before the append: a set of one hears of it at once.
                reign.records_on_way += count
                reign.bytes_on_way += size_bytes
                refusal = self._at.appender.append_run(run.drafts, partial(self._heard, reign, count, size_bytes))
                if refusal:
                    reign.records_on_way -= count
                    reign.bytes_on_way -= size_bytes
                    return RETRY_MS
        finally:
            for view in run.views:
                view.release()
        reign.following = run.following
        if run.left_out:
            _log.warning("delayed_not_deliverable", count=run.left_out, first=run.reason)
            self.undeliverable += run.left_out
        return GO_ON_MS if run.is_full else run.wait_ms

    def _this_reign(self) -> _Reign | None:
        """None: it is not known yet what was delivered before it (rule 1)."""
        epoch = self._at.standing.master_epoch
        if self._reign is None or self._reign.master_epoch != epoch:
            # Deliveries of the master before may lie in the log above confirm: begun before the fold has them, this
            # reign would append them a second time.
            if self._folds.catch_up():
                return None
            self._reign = _Reign(epoch, list(self._folds.delivered.following))
        return self._reign

    def _heard(self, reign: _Reign, count: int, size_bytes: int, reason: str) -> None:
        """A run is confirmed, or nobody knows: either way it is in this reign's log (rule 2)."""
        reign.records_on_way -= count
        reign.bytes_on_way -= size_bytes
        if not reason:
            self.delivered += count

    # --- what is due -------------------------------------------------------------------------------------------------

    def _gather(self, run: _Run) -> None:
        """Fill ``run``, by what can be read."""
        levels = len(LEVEL_DELAYS_MS)
        # In turn: a level that always has enough for a run would keep all others waiting.
        self._first_level = (self._first_level + 1) % levels
        now_ms = self._now_ms()
        for at in range(self._first_level, self._first_level + levels):
            index = at % levels
            queue = self._folds.queue(SCHEDULE_TOPIC, index)
            if queue is None or run.is_full:
                continue
            try:
                self._gather_level(run, index, queue, now_ms)
            except _UNREADABLE as error:
                # Alone: a fault of one level would end the deliveries of all.
                self._note_fault(index, run.following[index], error)

    def _note_fault(self, index: int, queue_offset: int, error: Exception) -> None:
        reason = f"{type(error).__name__}: {error}"
        if self._faults.get(index) != reason:
            self._faults[index] = reason
            _log.error("level_stands_still", level=index + 1, queue_offset=queue_offset, reason=reason)
        # Of a body that the disk made another one another replica has the message; a disk that refuses may do so for a
        # while. All else says that the queue is another one than the log has.
        is_own = isinstance(error, RecordDamaged) or (
            isinstance(error, OSError) and not isinstance(error, FileNotFoundError)
        )
        if not is_own:
            self._at.on_damaged(reason)

    def _gather_level(self, run: _Run, index: int, queue: Queue, now_ms: int) -> None:
        """Raises ``_UNREADABLE``; ``RecordError``: the queue names another record."""
        at = max(run.following[index], queue.min_offset)
        while at < queue.max_offset:
            units = queue.units(at, RUN_RECORDS_MAX)
            if not units:
                raise RecordError(
                    f"queue {index} of the schedule topic ends at {queue.max_offset} and has no unit {at}"
                )
            for place, size, due_ms in UNIT.iter_unpack(units):
                wait_ms = over_at_ms(due_ms, index + 1, now_ms) - now_ms
                if wait_ms > 0:
                    run.wait_ms = min(run.wait_ms, wait_ms)
                    return
                if self._folds.confirm_offset - place > self._at.near_bytes:
                    run.looks_max = FAR_RECORDS_MAX
                is_too_long = run.size_bytes + size > self._run_bytes_max and run.drafts
                if run.looks >= run.looks_max or is_too_long:
                    run.is_full = True
                    return
                run.looks += 1
                self._add(run, index, at, (place, size))
                at += 1
                run.following[index] = at

    def _add(self, run: _Run, index: int, queue_offset: int, there: tuple[int, int]) -> None:
        """Add the delivery of one record. Raises ``RecordDamaged``; ``RecordError``: another one is there."""
        place, size = there
        # Zeros of a file that lost its pages lie below the log, too, once it begins above 0.
        if size < RECORD_BYTES_MIN:
            raise RecordError(f"unit {queue_offset} says {size} bytes at {place}; {RECORD_BYTES_MIN} is the least")
        if place < self._folds.min_offset:
            return  # the log has lost it by its age
        view = self._folds.record(place, size)
        if view is None:
            raise RecordError(f"{size} bytes at {place} are not in the log")
        run.views.append(view)
        record = RecordView(view)
        found = (record.topic, record.queue_id, record.queue_offset, record.physical_offset, record.size_bytes)
        if found != (SCHEDULE_TOPIC, index, queue_offset, place, size):
            raise RecordError(f"at {place} is {found}, not unit {queue_offset} of queue {index}")
        # A copy would have a CRC that fits what the disk made of it.
        check_body(record)
        try:
            draft, size_bytes = delivery(record, index + 1, self._limits)
        except (DelayError, RecordError) as error:
            # Waited for, it would keep all behind it from their topics.
            run.left_out += 1
            run.reason = run.reason or f"level {index + 1}, queue offset {queue_offset}: {error}"
            return
        run.drafts.append(draft)
        run.size_bytes += size_bytes

    def _waiting(self) -> tuple[int, int]:
        """How many messages wait, and for how many ms the oldest of them has been due."""
        reign, folds, standing = self._reign, self._folds, self._at.standing
        is_own = reign is not None and standing.is_master and reign.master_epoch == standing.master_epoch
        following = reign.following if reign is not None and is_own else folds.delivered.following
        count, overdue_ms, now_ms = 0, 0, self._now_ms()
        for index, first in enumerate(following):
            queue = folds.queue(SCHEDULE_TOPIC, index)
            if queue is None or queue.max_offset <= first:
                continue
            at = max(first, queue.min_offset)
            count += queue.max_offset - at
            try:
                due_ms = UNIT.unpack(queue.units(at, 1))[2]
                self._unread_since_ms.pop(index, None)
            except (OSError, struct.error):
                # Nobody knows when it is due; said to be on time, it would stand still unseen.
                due_ms = self._unread_since_ms.setdefault(index, now_ms) - 1
            overdue_ms = max(overdue_ms, now_ms - due_ms)
        return count, overdue_ms
