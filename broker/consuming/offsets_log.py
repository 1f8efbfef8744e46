"""
The internal topic in which a broker set remembers its consumers and topics: what is new is gathered and written, what
is confirmed is read and known.

Here: batches, rebuilds, telling groups and topics again. Not here: the form of a record (``offsets_core``), what is
worth writing (``offsets``, ``groups``, ``topics``).

Rule 1: ``known`` is made of confirmed records only, those of other masters included. What is gathered or on its way is
answered to nobody: a failover may take it back.
Rule 2: one record is on its way at a time, and has all that came since the last one. So a slow set writes fewer and
larger records, and who waits hears of its own record.
Rule 3: ``follow`` says whether all that is confirmed is known. Before that there is no answer but "busy": a replica
that has just started, or become master, would tell a group an offset that is too low, or that it has none.
A record whose confirm was never heard may still get it, and undo what is known: meanwhile nothing counts as being there
already (``is_doubtful``).
Rule 4: a cut is noticed by the last record that was taken: it is no longer there, or another one. All is built anew.
A unit that names no record of the topic is told to the queue's owner, and tried again until it does.
Rule 5: a master tells all groups and topics again after ``AGAIN_RECORDS`` records and each hour, a few per record
(``offsets_core``, rules 2 and 3).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from rollcall_ha.broker.consuming.offsets_core import (
    GROUP_BYTES_MAX,
    GROUPS_MAX,
    NAME_BYTES_MAX,
    ROWS_MAX,
    TOPIC_BYTES_MAX,
    TOPICS_MAX,
    Consumers,
    GroupChange,
    Record,
    brings_rows,
    decode_record,
    encode_record,
    merge,
)
from rollcall_ha.broker.folds.consume_queue import UNIT
from rollcall_ha.broker.folds.ports import Queue, QueueKey
from rollcall_ha.broker.ports import Around
from rollcall_ha.broker.protocol.record import RecordError, RecordView
from rollcall_ha.broker.protocol.topics import TopicRow
from rollcall_ha.epoch.model import NO_EPOCH

TOPIC: Final = b"ROLLCALL_SYS_CONSUMERS"
COMMIT_INTERVAL_MS: Final = 50
GATHERED_BYTES_MAX: Final = 1024 * 1024
WAITING_MAX: Final = 10_000
"""Requests that wait for one record."""
UNITS_PER_READ: Final = 64
TURN_BYTES_MAX: Final = 512 * 1024
"""Records that one turn of the loop takes: 3 ms."""
LOOK_BACK_RECORDS_MAX: Final = 64
AGAIN_RECORDS: Final = 4_096
AGAIN_MS: Final = 3_600_000
AGAIN_BYTES: Final = 64 * 1024
"""About so much of each record is groups that are told again, while that lasts."""
Value = TypeVar("Value")
OnOutcome = Callable[[str], None]
"""Hears once: empty = confirmed, else why it is not known to be."""


class _Batch(msgspec.Struct):
    groups: dict[str, GroupChange] = {}
    topics: dict[str, TopicRow] = {}
    waiting: list[OnOutcome] = []
    cost_bytes: int = 0

    def __bool__(self) -> bool:
        """Whether there is something to write."""
        return bool(self.groups or self.topics)


class _Again(msgspec.Struct):
    """All groups and topics are being told again."""

    begin: int
    """The queue offset up to which records were known when it began."""
    left: list[tuple[bool, str]]
    """Whether it is a topic, and its name."""
    under_way: int = 0
    """So many of them, from the end, are in the record that is on its way."""


def join(waiting: list[OnOutcome] | None, on_outcome: OnOutcome) -> str:
    """``on_outcome`` hears of the record that ``ConsumerLog.newest`` tells; why it will not, empty: it will, or has."""
    if waiting is None:
        on_outcome("")
    elif len(waiting) < WAITING_MAX:
        waiting.append(on_outcome)
    else:
        return f"{WAITING_MAX} requests wait for one record; retry"
    return ""


class ConsumerLog:
    """What is known of consumers, and the way to change it. On the loop thread."""

    def __init__(
        self,
        at: Around,
        *,
        after: Callable[[int, Callable[[], None]], object],
        again_bytes: int = AGAIN_BYTES,
    ) -> None:
        """``after`` runs a function so many ms later, on the loop, never at once."""
        self.known = Consumers()
        self.trouble = ""
        """Why the topic cannot be read on; empty: it can."""
        self.is_all_known = False
        """By the last ``follow``, which each tick calls."""
        self._at = at
        self._after = after
        self._damage = ""
        """The one that was told; empty: all could be read since then."""
        self._again_bytes = again_bytes
        self._start = 0
        self._next = 0
        self._mark = b""
        """The head of the last record that was taken: its place, CRC and times (rule 4)."""
        self._is_going_on = False
        self._gathered = _Batch()
        self._on_way: _Batch | None = None
        self._is_timed = self._is_due = self._is_again_wanted = False
        self._again: _Again | None = None
        self._told_again_ms = at.now_ms()
        self._written_ms = 0
        self._proved_ms: int | None = None
        self._written_epoch = self._sure_epoch = NO_EPOCH
        at.folds.subscribe_grown(self._note_grown)

    @property
    def is_whole(self) -> bool:
        """Whether ``known`` is all that was ever said: a log that begins in the middle lacks groups (rule 5)."""
        # Without any record of the topic, such a log would look as if there had never been a group.
        return self._start <= self.known.since and (self._next > 0 or self._at.folds.knows_all)

    def kept_from(self) -> int:
        """
        First byte of the log that a rebuild reads, by what was taken in; that of the log while that cannot be known.

        Not while the folds rest. Raises ``OSError``, ``struct.error``: a file of the queue is gone, or too short.
        """
        # Not only when all is known: on a full disk the folds take nothing in, and the log would be held, and the disk
        # full, for ever. Later records read from no earlier place.
        if not self.follow() and self.trouble:
            return self._at.folds.min_offset
        queue = self._at.folds.queue(TOPIC, 0)
        unit = b"" if queue is None else queue.units(max(self.known.since, queue.min_offset), 1)
        return UNIT.unpack(unit)[0] if unit else self._at.folds.confirm_offset

    def tell_again(self) -> None:
        """All groups, at the next tick: the log is to lose what ``kept_from`` says."""
        self._is_again_wanted = True

    # --- what is known -----------------------------------------------------------------------------------------------

    def newest(
        self, group: str, pick: Callable[[GroupChange], Value | None]
    ) -> tuple[Value | None, list[OnOutcome] | None]:
        """
        What ``pick`` finds first in what is gathered, on its way, and known; None: in none of them.

        The list is of those who hear the outcome of that record, None: it is confirmed, or there is none.
        """
        for batch in (self._gathered, self._on_way):
            change = None if batch is None else batch.groups.get(group)
            if batch is not None and change is not None and (found := pick(change)) is not None:
                return found, batch.waiting
        known = self.known.groups.get(group)
        return (None if known is None else pick(known)), None

    def newest_topic(self, topic: str) -> tuple[TopicRow | None, list[OnOutcome] | None]:
        """As ``newest``, of a topic."""
        for batch in (self._gathered, self._on_way):
            if batch is not None and (row := batch.topics.get(topic)) is not None:
                return row, batch.waiting
        return self.known.topics.get(topic), None

    def parts(self, group: str) -> list[GroupChange]:
        """All that was said of the group, the newest last: known, on its way, gathered."""
        tables = (self.known.groups, self._on_way.groups if self._on_way else {}, self._gathered.groups)
        return [table[group] for table in tables if group in table]

    def follow(self) -> bool:
        """Take in what is confirmed, within one budget; whether all of it is known (rule 3)."""
        self.is_all_known = self._follow()
        if self.is_all_known:
            self._damage = ""
        return self.is_all_known

    def why_unknown(self) -> str:
        """Why what is known may be told to nobody (rule 3); empty: it may, and can be changed."""
        if not self._at.standing.is_master:
            return f"this replica of {self._at.standing.broker_name} is not the master: ask the route, and retry there"
        if not self.follow():
            return self.trouble or "this replica does not know all that is confirmed yet; ask again in a moment"
        return ""

    def is_proved(self, within_ms: int) -> bool:
        """Whether a record that was written ``within_ms`` was confirmed: another master came later, if at all."""
        return self._proved_ms is not None and self._at.now_ms() - self._proved_ms <= within_ms

    @property
    def is_doubtful(self) -> bool:
        """
        Whether the log may have a record that is not known and may yet be confirmed: one of this master, which heard a
        reason instead, or of the last one. An order then needs a record of its own, even if it says what is known.
        """
        return self._sure_epoch != self._at.standing.master_epoch

    def _follow(self) -> bool:
        left_bytes = self._at.folds.catch_up()
        queue = self._at.folds.queue(TOPIC, 0)
        if queue is None:
            # With bytes left, or while a cut goes on, it only is not there yet.
            if not left_bytes and self._next:
                self._begin_at(0, 0)
            return not left_bytes
        return self._take(queue) and not left_bytes

    def _note_grown(self, keys: Sequence[QueueKey]) -> None:
        queue = self._at.folds.queue(TOPIC, 0) if (TOPIC, 0) in keys else None
        if queue is not None:
            self._take(queue)

    def _take(self, queue: Queue) -> bool:
        try:
            is_all = self._take_units(queue)
        except (OSError, RecordError, struct.error) as error:
            # Left out, the record might be the one with an offset that was acknowledged.
            self.trouble = f"record {self._next} of {TOPIC.decode()}: {error}"
            # Told once: if the queue is no better when it was built anew, it would be built for ever.
            if not isinstance(error, OSError) and self._damage != self.trouble:
                self._damage = damage = self.trouble
                # Not within this call: it may come out of the folds, which are taking in other records.
                self._after(1, lambda: self._at.on_damaged(damage))
            return False
        self.trouble = ""
        if not is_all and not self._is_going_on:
            self._is_going_on = True
            self._after(1, self._go_on)
        return is_all

    def _go_on(self) -> None:
        self._is_going_on = False
        self.follow()

    def _take_units(self, queue: Queue) -> bool:
        """Raises ``OSError``, ``RecordError``."""
        if self._next == self._start or not self._is_same(queue):
            self._begin(queue)
        room_bytes = TURN_BYTES_MAX
        while self._next < queue.max_offset:
            units = queue.units(self._next, UNITS_PER_READ)
            if not units:
                raise RecordError(f"the queue ends at {queue.max_offset} and has no unit {self._next}")
            for place, size, _ in UNIT.iter_unpack(units):
                body = self._read(place, size, self._next)
                if body is None:
                    # The log has lost it by age: as if the topic began behind it.
                    self._begin_at(self._next + 1, self.known.since)
                else:
                    self.known.fold(self._next, body)
                    self._next += 1
                room_bytes -= size
                if room_bytes <= 0:
                    return self._next == queue.max_offset
        return True

    def _read(self, place: int, size: int, queue_offset: int) -> bytes | None:
        """The body of one record; None: its place is below the log's beginning. Raises ``RecordError``."""
        if place < self._at.folds.min_offset:
            return None
        view = self._at.folds.record(place, size)
        if view is None:
            raise RecordError(f"{size} bytes at {place} are not in the log")
        with view:
            record = RecordView(view)
            if (record.topic, record.queue_id, record.queue_offset) != (TOPIC, 0, queue_offset):
                raise RecordError(f"at {place} is record {record.queue_offset} of {record.topic!r}")
            self._mark = bytes(view[:88])
            return bytes(record.body)

    def _is_same(self, queue: Queue) -> bool:
        """Whether the last record that was taken is still in its place (rule 4). Raises ``OSError``."""
        if not queue.min_offset <= self._next <= queue.max_offset:
            return False
        unit = queue.units(self._next - 1, 1) if self._next > queue.min_offset else b""
        if not unit:
            return True
        place, size, _ = UNIT.unpack(unit)
        view = self._at.folds.record(place, size) if place >= self._at.folds.min_offset else None
        return view is None or bytes(view[:88]) == self._mark

    def _begin(self, queue: Queue) -> None:
        """Nothing is known, and is read from ``since`` of the newest record on. Raises ``OSError``, ``RecordError``."""
        since, lowest = 0, max(queue.min_offset, queue.max_offset - LOOK_BACK_RECORDS_MAX)
        for at in range(queue.max_offset - 1, lowest - 1, -1):
            place, size, _ = UNIT.unpack(queue.units(at, 1))
            body = self._read(place, size, at)
            record = None if body is None else decode_record(at, body)
            if record is not None:
                since = record.since
                break
        self._begin_at(max(since, queue.min_offset), since)

    def _begin_at(self, start: int, since: int) -> None:
        self.known = Consumers(since)
        self._start = self._next = start
        self._again = None

    # --- what is new -------------------------------------------------------------------------------------------------

    def note(self, group: str, change: GroupChange, on_outcome: OnOutcome | None = None) -> str:
        """Write ``change`` with the next record; returns why it will not be, empty: it is gathered."""
        if not self._at.standing.is_master:
            return self.why_unknown()
        batch, known = self._gathered, self.known
        cost_bytes = change.cost_bytes + (0 if group in batch.groups else NAME_BYTES_MAX)
        if refusal := self._no_room(cost_bytes):
            return refusal
        old = known.groups.get(group)
        if old is None and len(known.groups) + len(batch.groups) >= GROUPS_MAX:
            return f"{len(known.groups)} groups are known, {GROUPS_MAX} can be: use one of them"
        has_new_rows = brings_rows(old, change)
        # One batch may go beyond it: its bytes are limited.
        if has_new_rows and known.rows >= ROWS_MAX:
            return f"{known.rows} offsets and locks are known, {ROWS_MAX} can be: use a queue that is among them"
        is_longer = has_new_rows or change.holders or change.facts or change.settings
        group_bytes = self._group_bytes(group, change) if is_longer else 0
        if group_bytes > GROUP_BYTES_MAX:
            there = f"group {group} would have {group_bytes} bytes of offsets, locks and subscriptions"
            return f"{there}, {GROUP_BYTES_MAX} can be: use fewer topics"
        merge(batch.groups.setdefault(group, GroupChange()), change)
        self._wait(cost_bytes, on_outcome)
        return ""

    def note_topic(self, topic: str, row: TopicRow, on_outcome: OnOutcome) -> str:
        """As ``note``, of a topic."""
        if not self._at.standing.is_master:
            return self.why_unknown()
        known, gathered = self.known.topics, self._gathered.topics
        if refusal := self._no_room(TOPIC_BYTES_MAX):
            return refusal
        if topic not in known and len(known) + len(gathered) >= TOPICS_MAX:
            return f"{len(known)} topics are known, deleted ones among them, {TOPICS_MAX} can be: use a name of those"
        gathered[topic] = row
        self._wait(TOPIC_BYTES_MAX, on_outcome)
        return ""

    def _no_room(self, more_bytes: int) -> str:
        """Why so much more is not gathered; empty: it can be."""
        waiting, cost_bytes = len(self._gathered.waiting), self._gathered.cost_bytes + more_bytes
        if cost_bytes <= GATHERED_BYTES_MAX and waiting < WAITING_MAX:
            return ""
        limits = f"{WAITING_MAX} requests and {GATHERED_BYTES_MAX} bytes may"
        return f"{waiting} requests and {cost_bytes} bytes wait to be written, {limits}: retry"

    def _wait(self, more_bytes: int, on_outcome: OnOutcome | None) -> None:
        """The gathered batch has ``more_bytes`` more, and ``on_outcome`` hears of it; the timer writes it."""
        self._gathered.cost_bytes += more_bytes
        if on_outcome is not None:
            self._gathered.waiting.append(on_outcome)
        self._set_timer()

    def _group_bytes(self, group: str, change: GroupChange) -> int:
        """What the group is in a record, at most, once all that is gathered and on its way is known, and ``change``."""
        parts = [*self.parts(group), change]
        cost_bytes = sum(each.cost_bytes for each in parts)
        if cost_bytes <= GROUP_BYTES_MAX:
            return cost_bytes
        # Rows that replace others were counted with them.
        whole = GroupChange()
        for each in parts:
            merge(whole, each)
        return whole.cost_bytes

    def tick(self) -> None:
        """Once a second: what is confirmed, and whether it is time to tell all groups again (rule 5)."""
        # On slaves too: one that has started again would begin to read when it is elected, while clients wait.
        is_known = self.follow()
        if not self._at.standing.is_master:
            self._again = None
        elif is_known and self._again is None and self._on_way is None and self._is_again_due():
            names = [*((False, group) for group in self.known.groups), *((True, topic) for topic in self.known.topics)]
            self._again = _Again(self._next, sorted(names, reverse=True))
            self._is_again_wanted = False
            self._set_timer()

    def _is_again_due(self) -> bool:
        is_old = bool(self._next) and (self._is_again_wanted or self._at.now_ms() - self._told_again_ms >= AGAIN_MS)
        return is_old or not self.is_whole or self._next - self.known.since >= AGAIN_RECORDS

    def _set_timer(self) -> None:
        if not self._is_timed and not self._is_due:
            self._is_timed = True
            self._after(COMMIT_INTERVAL_MS, self._note_due)

    def _note_due(self) -> None:
        self._is_timed, self._is_due = False, True
        self._write_due()

    def _write_due(self) -> None:
        if not self._is_due or self._on_way is not None:
            return
        self._is_due = False
        if not self._gathered and self._again is None:
            return
        batch, self._gathered = self._gathered, _Batch()
        since, groups, topics = self._next_again()
        body = encode_record(Record(since, batch.groups, groups, batch.topics, topics))
        self._on_way, self._written_ms = batch, self._at.now_ms()
        self._written_epoch = self._at.standing.master_epoch
        self._at.appender.append(TOPIC, 0, body, b"", self._end_batch)

    def _next_again(self) -> tuple[int, dict[str, GroupChange], dict[str, TopicRow]]:
        """``since`` of the next record, and the groups and topics that it tells again."""
        again, known = self._again, self.known
        groups: dict[str, GroupChange] = {}
        topics: dict[str, TopicRow] = {}
        if again is None:
            return known.since, groups, topics
        room_bytes = self._again_bytes
        for is_topic, name in reversed(again.left):
            if is_topic:
                topics[name] = known.topics[name]
                room_bytes -= TOPIC_BYTES_MAX
            else:
                groups[name] = known.groups[name]
                room_bytes -= groups[name].cost_bytes + NAME_BYTES_MAX
            if room_bytes <= 0:
                break
        again.under_way = len(groups) + len(topics)
        return (again.begin if again.under_way == len(again.left) else known.since), groups, topics

    def _end_batch(self, reason: str) -> None:
        """The record is confirmed, or will perhaps never be."""
        batch, self._on_way = self._on_way, None
        assert batch is not None, "one outcome for each record"
        # All records before a confirmed one are: those that nobody heard of, too.
        self._sure_epoch = NO_EPOCH if reason else self._written_epoch
        if not reason:
            self._proved_ms = self._written_ms
        again = self._again
        if again is not None:
            again.left = again.left[: len(again.left) - again.under_way]
            if not again.left and not reason:
                self._told_again_ms = self._at.now_ms()
            # Going on without its confirm, ``since`` would promise groups that no record has told again: the next tick
            # begins anew.
            if not again.left or reason:
                self._again = None
        self.follow()
        for on_outcome in batch.waiting:
            on_outcome(reason)
        if self._is_due:
            # Not within this call: it may come out of the put path, which is releasing other sends.
            self._after(1, self._write_due)
        elif self._gathered or self._again is not None:
            self._set_timer()
