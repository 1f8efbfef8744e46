"""
The dispatcher: follows the log up to confirm, and hands its records to the folds.

Here: turns and their budget, what is told to readers, the mark on disk, rest during cuts. Not here: the folds
themselves (``consume_queue``, ``key_index``), reading (``broker.consuming``).

Rule 1: the folds are a function of the records below ``dispatched_offset``, which were confirmed. It lies behind
confirm by what one turn of the loop takes, after a start by what was written since the last mark.
Rule 2: queues first, then those who wait for them, then the key index.
Rule 3: a mark counts what was durable before it. A start takes the mark, and dispatches what lies behind it again.
Files that do not agree with the mark, or with the log, are removed, and all is dispatched again.
Rule 4: while a thread cuts or closes the log the folds rest: nothing is read, and ``catch_up`` says so.
Rule 5: a log that begins later begins later for its folds, too: units of deleted records go, numbers of queues stay.
"""

from __future__ import annotations

import asyncio
import errno
import struct
import threading
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Final, Self

from rollcall_ha.broker.folds.consume_queue import (
    UNIT,
    UNIT_BYTES,
    ConsumeQueue,
    ConsumeQueues,
    GapError,
    StaleError,
)
from rollcall_ha.broker.folds.delivered import Delivered
from rollcall_ha.broker.folds.index_file import Shape
from rollcall_ha.broker.folds.key_index import MARK_FILE_NAME, Keyed, KeyIndex
from rollcall_ha.broker.folds.ports import FoldSizes, QueueKey
from rollcall_ha.broker.log.checkpoint import FOLDS_FILE_NAME, FoldsMark, read_small_or_none, write_small
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.log_index import Indexed
from rollcall_ha.broker.log.record import index_fields
from rollcall_ha.broker.log.told_queues import TOPIC, Told, find_part
from rollcall_ha.broker.protocol.delays import DELIVERED, SCHEDULE_TOPIC, due_ms
from rollcall_ha.broker.protocol.java_hash import tags_code
from rollcall_ha.broker.protocol.properties import last_value
from rollcall_ha.broker.protocol.record import RecordError, RecordView
from rollcall_ha.epoch.model import LogOffset
from rollcall_ha.node.files import durable_unlink, is_full_disk
from rollcall_ha.node.telemetry import get_logger

GATHER_MS: Final = 10
"""While no reader waits, records that are confirmed in so short a time are taken in together, at half the cost."""
TURN_BYTES: Final = 256 * 1024
"""One turn of the loop takes in so much, 2 to 3 ms of records of 1 KiB; then others have theirs."""
MARK_STEP_BYTES: Final = 64 * 1024 * 1024
"""A start after a crash dispatches at most about this much again."""
RETRY_MS: Final = 1_000
"""After a full disk."""
TRIMMED_QUEUES: Final = 1_000
"""In one turn of the loop, behind a deletion."""
PROGRESS_BYTES: Final = 1024 * 1024 * 1024
"""A rebuild writes a line for each."""
TAGS_BYTES_MAX: Final = 64
TAGS_CODES_MAX: Final = 4_096
"""Remembered: tags are few, and computing a code costs more than all else of a record."""
_TAGS: Final = b"TAGS\x01"
_KEY: Final = b"KEY"
"""In every record that the key index takes: UNIQ_KEY, KEYS."""

_UNREADABLE: Final = (OSError, LookupError, ValueError, OverflowError)
"""Of a run: the disk refuses, or records or numbers in them are damaged."""

_log = get_logger("folds")
_Unmarked = list[tuple[QueueKey, int, int, bytes]]


class Dispatcher:
    """The folds of one replica; implements ``ports.Folds``. Opened blocking, then on the loop."""

    def __init__(
        self, root: Path, log: CommitLog, queues: ConsumeQueues, index: KeyIndex, at: int, *, delivered: Delivered
    ) -> None:
        """Made by ``open``; ``at``: where queues and deliveries are."""
        self.index = index
        self.delivered = delivered
        self.dispatched_offset = at
        self.trouble = self.index_trouble = ""
        """Why queues, or the key index, take nothing in; empty: nothing hinders it."""
        self._root = root
        self._commit_log = log
        self._queues = queues
        self._codes: dict[bytes, int] = {b"": 0}
        self._on_grown: list[Callable[[Sequence[QueueKey]], None]] = []
        self.told = Told()
        """Of what was taken in."""
        self._to_erase: dict[QueueKey, int] = {}
        """Queues with files below their first unit."""
        self._marked_offset = at
        self._is_marking = False
        self._was_built_anew = False
        self._resting = 0
        """So many want the folds to rest."""
        self._is_due = self._is_gathering = self._is_spent = False
        self.is_awaited: Callable[[], bool] = lambda: False
        """Whether a reader waits for the next record."""
        self.on_whole: Callable[[], object] = lambda: None
        """Called when all is in, behind a time in which it was not: who was not answered for that may be."""
        self._was_whole = False
        self._next_progress = at + PROGRESS_BYTES
        self._mark_lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._disk: Executor | None = None

    @classmethod
    def open(cls, root: Path, log: CommitLog, sizes: FoldSizes) -> Self:
        """*Blocking*. What a mark says, or nothing: then ``start`` builds it all. Raises ``OSError``."""
        queues = ConsumeQueues(root, sizes.queue_units)
        mark = read_small_or_none(root / FOLDS_FILE_NAME, FoldsMark)
        amiss = "there is no mark of them in this log"
        at, told, delivered = log.min_offset, Told(), Delivered()
        if mark is not None and at <= mark.offset:
            end = min(mark.offset, log.whole_offset)
            amiss = queues.load(mark.queues, at, end, partial(_is_of_log, log))
            amiss = amiss or _load_delivered(delivered, mark, log, end)
            if not amiss:
                at = end
                told = Told(mark.told_from, mark.told_at)
                told.cut(end)
                if end < mark.offset:
                    # The log lost its end with the power. Left as it is, the mark would count units of other records
                    # as soon as the log has grown past it again.
                    write_small(root / FOLDS_FILE_NAME, _mark_at(end, queues, told, delivered))
        if amiss:
            # Before the files go: killed while they are built, the next start would take zeros for units of a cut.
            durable_unlink(root / FOLDS_FILE_NAME)
            queues.clear()
            delivered = Delivered()
            if log.whole_offset > at:
                _log.warning("folds_are_built_anew", reason=amiss, start_offset=at, end_offset=log.whole_offset)
        shape = Shape(slot_count=sizes.index_slots, unit_count=sizes.index_units)
        index = KeyIndex.open(root, valid_to=at, start=log.min_offset, shape=shape)
        folds = cls(root, log, queues, index, at, delivered=delivered)
        folds.told = told
        return folds

    def start(self, disk: Executor) -> None:
        """Follow the log; ``disk``: a thread of its own, as the syncs of a mark may take seconds."""
        self._loop = asyncio.get_running_loop()
        self._disk = disk
        self._commit_log.subscribe_confirmed(self._note_confirmed)
        self._note_due()

    # --- ports.Folds -------------------------------------------------------------------------------------------------

    @property
    def min_offset(self) -> int:
        """First byte of the log."""
        return self._commit_log.min_offset

    @property
    def confirm_offset(self) -> int:
        """Readers see records that end at or below it."""
        return min(self._commit_log.confirm_offset, self.dispatched_offset)

    def record(self, offset: int, size: int) -> memoryview | None:
        return None if self._resting else self._commit_log.reader.record(offset, size)

    def queue(self, topic: bytes, queue_id: int) -> ConsumeQueue | None:
        return None if self._resting else self._queues.find((topic, queue_id))

    def queue_ids(self, topic: bytes) -> Sequence[int]:
        return () if self._resting else tuple(self._queues.ids(topic))

    def topic_names(self) -> Collection[bytes]:
        return () if self._resting else self._queues.topics

    def subscribe_grown(self, on_grown: Callable[[Sequence[QueueKey]], None]) -> None:
        self._on_grown.append(on_grown)

    @property
    def knows_all(self) -> bool:
        """As ``ports.Folds`` says."""
        return self.min_offset <= self.told.since

    def delayed_from(self) -> int:
        """
        First byte of a delayed message that waits, by what was taken in; where that ends if none does. Never too high.

        Raises ``OSError``, ``struct.error``: a file of a queue is gone, or too short.
        """
        # Not only when all is taken in: on a full disk nothing is, and what held the log until then kept it full.
        if self._resting:
            return self.min_offset
        self.catch_up()
        found = self.confirm_offset
        for index, following in enumerate(self.delivered.following):
            if (queue := self.queue(SCHEDULE_TOPIC, index)) is not None:
                # Not from the number alone: built of a log without its front, it may lie below what is left.
                unit = queue.units(queue.first_at_or_beyond(self.min_offset, following), 1)
                found = min(found, UNIT.unpack(unit)[0]) if len(unit) == UNIT_BYTES else found
        return found

    @property
    def behind_bytes(self) -> int:
        """Confirmed bytes that are not taken in yet."""
        return max(0, self._commit_log.confirm_offset - self.dispatched_offset)

    def catch_up(self) -> int:
        """As ``ports.Folds`` says."""
        log = self._commit_log
        last = log.history.last
        # The master before may have confirmed everything in front of this epoch, and sent consumers there. By less, a
        # new one would move them back, and forget offsets and locks that were acknowledged (R19).
        unproved_bytes = 0 if last is None else max(0, last.start_offset - log.confirm_offset)
        return self._catch_up() or unproved_bytes

    def _catch_up(self) -> int:
        """Take in what is confirmed; returns how many bytes of it are left."""
        if self._resting:
            return max(1, self.behind_bytes)
        # Hundreds ask in one turn of the loop; a run for each of them would stop it for a second.
        if self._is_spent:
            return self.behind_bytes
        while self.behind_bytes and not self.trouble:
            start = self.dispatched_offset
            self._take()
            # Half a record counts as none: there is nothing to wait for.
            if self.dispatched_offset == start and not self.trouble:
                return 0
            if self.behind_bytes > TURN_BYTES:
                break
        if self.behind_bytes and self._loop is not None:
            self._is_spent = True
            self._note_due()
        return self.behind_bytes

    # --- turns -------------------------------------------------------------------------------------------------------

    def _note_confirmed(self) -> None:
        if self._is_due or self._loop is None:
            return
        if self.is_awaited():
            self._note_due()
        elif not self._is_gathering:
            self._is_gathering = True
            self._loop.call_later(GATHER_MS / 1000, self._gathered)

    def _gathered(self) -> None:
        self._is_gathering = False
        self._note_due()

    def _note_due(self, delay_ms: int = 0) -> None:
        if self._is_due or self._resting or self._loop is None:
            return
        self._is_due = True
        if delay_ms:
            self._loop.call_later(delay_ms / 1000, self._turn)
        else:
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = self._is_spent = False
        if self._resting:
            self._was_whole = False
            return
        was_in_trouble, self.trouble = self.trouble, ""
        left = self._catch_up()
        if self.trouble:
            if not was_in_trouble:
                _log.error("folds_stand_still", reason=self.trouble, dispatched_offset=self.dispatched_offset)
            self._note_due(RETRY_MS)
            return
        was_whole, self._was_whole = self._was_whole, not left and not self.catch_up()
        if self._was_whole and not was_whole:
            self.on_whole()
        is_behind = self._index_behind()
        if left or is_behind:
            # An index that is built anew leaves the loop to others: no reader waits for it.
            self._note_due(0 if left else GATHER_MS)

    def _take(self) -> None:
        start = self.dispatched_offset
        try:
            grown, keyed = self._take_run(start)
        except GapError as error:
            self.trouble = str(error)
            self.build_anew(self.trouble)
            return
        except _UNREADABLE as error:
            # What was taken of the run stays: taken again, it is left out. The log goes on without readers.
            self.trouble = f"{type(error).__name__}: {error}"
            return
        if grown:
            for on_grown in self._on_grown:
                on_grown(grown)
        if self.index.taken_offset == start and not self.index_trouble:
            self._index(keyed, self.dispatched_offset)
        if self.dispatched_offset >= self._next_progress:
            self._next_progress = self.dispatched_offset + PROGRESS_BYTES
            if self.behind_bytes > PROGRESS_BYTES:
                _log.info("folds_catch_up", dispatched_offset=self.dispatched_offset, left_bytes=self.behind_bytes)
        if self.dispatched_offset - self._marked_offset >= MARK_STEP_BYTES:
            self._mark()

    def _take_run(self, start: int) -> tuple[Sequence[QueueKey], list[Keyed]]:
        """One run into the queues: which have grown, and what the key index takes."""
        index, end = self._commit_log.index, self._commit_log.confirm_offset
        if start < index.offset < end:
            end = index.offset
        segment, starts, stop = self._commit_log.reader.run(start, end, TURN_BYTES)
        view, base, find, codes, pack = segment.view, segment.base, self._queues.find, self._codes, UNIT.pack
        # On a slave: each record is read once for both.
        is_indexed = start != index.offset
        unindexed: list[Indexed] = []
        grown: dict[QueueKey, ConsumeQueue] = {}
        keyed: list[Keyed] = []
        deliveries: list[bytes] = []
        for at in starts:
            topic, queue_id, queue_offset, is_queued, properties, stored_at_ms, size = index_fields(view, at)
            if not is_indexed:
                unindexed.append((base + at, topic, queue_id, queue_offset, properties, is_queued))
            if not is_queued:
                continue
            if topic == TOPIC:
                self._note_told(properties, base + at + size)
            if _KEY in properties:
                keyed.append((topic, properties, base + at, size, stored_at_ms, is_queued))
            code: int | None = 0
            if _TAGS in properties and (code := codes.get(tags := tags_of(properties))) is None:
                code = self._code_of(tags)
            if topic == SCHEDULE_TOPIC:
                code = due_ms(properties, stored_at_ms) or code
            elif DELIVERED in properties:
                deliveries.append(properties)
            key = (topic, queue_id)
            queue = grown.get(key)
            if queue is None:
                queue = grown[key] = find(key) or self._queues.add(key, queue_offset)
            queue.append(queue_offset, pack(base + at, size, code))
        self.dispatched_offset = stop
        for properties in deliveries:
            self.delivered.take(properties)
        if not is_indexed:
            # Now that nothing of the run can fail: taken twice, a number of a producer would be a repeat of itself.
            index.take_all(unindexed, LogOffset(stop))
        return tuple(grown), keyed

    def _note_told(self, properties: bytes, end: int) -> None:
        """Raises ``OSError``."""
        part = find_part(properties)
        # Of an older log than this one: what moved a queue on between the two may be gone.
        if part is None or part.since < self.min_offset:
            return
        for topic, queue_id, following in part.queues():
            if following and self._queues.find((topic, queue_id)) is None:
                self._queues.add((topic, queue_id), following)
        self.told.note(part, end)

    def _code_of(self, tags: bytes) -> int:
        if len(self._codes) >= TAGS_CODES_MAX:
            self._codes = {b"": 0}
        code = tags_code(tags)
        # A client may send as many as it likes, of 32 KB each.
        if len(tags) <= TAGS_BYTES_MAX:
            self._codes[tags] = code
        return code

    def _index(self, keyed: Sequence[Keyed], end: int) -> None:
        try:
            self.index.take_all(keyed, end)
        except OSError as error:
            self._index_failed(error)

    def _index_failed(self, error: Exception) -> None:
        """The queues go on without it."""
        _log.error("key_index_stands_still", reason=str(error), taken_offset=self.index.taken_offset)
        self.index_trouble = f"key index: {type(error).__name__}: {error}"
        if self._loop is not None:
            self._loop.call_later(RETRY_MS / 1000, self._index_again)

    def _index_again(self) -> None:
        self.index_trouble = ""
        self._note_due()

    def _index_behind(self) -> bool:
        """One run for a key index that is behind the queues (it was damaged, or refused by a disk); whether it is."""
        start = self.index.taken_offset
        if self.index_trouble or start >= self.dispatched_offset:
            return False
        try:
            segment, starts, stop = self._commit_log.reader.run(start, self.dispatched_offset, TURN_BYTES)
            view, base = segment.view, segment.base
            keyed: list[Keyed] = []
            for at in starts:
                topic, _, _, is_queued, properties, stored_at_ms, size = index_fields(view, at)
                keyed.append((topic, properties, base + at, size, stored_at_ms, is_queued))
            self.index.take_all(keyed, stop)
        except _UNREADABLE as error:
            self._index_failed(error)
            return False
        return self.index.taken_offset < self.dispatched_offset

    # --- marks -------------------------------------------------------------------------------------------------------

    def _mark(self) -> asyncio.Future[None] | None:
        """None: one is being made."""
        if self._is_marking or self._loop is None or self._disk is None:
            return None
        self._is_marking = True
        unmarked, mark, generation = self._gather()
        work = self._loop.run_in_executor(self._disk, self._write_mark, unmarked, mark, generation)
        work.add_done_callback(partial(self._was_marked, unmarked, mark, generation))
        return work

    def _gather(self) -> tuple[_Unmarked, FoldsMark, int]:
        queues = self._queues
        unmarked = [queue.unmarked() for _, queue in queues if queue.max_offset != queue.marked]
        mark = _mark_at(self.dispatched_offset, queues, self.told, self.delivered)
        return unmarked, mark, queues.files.generation

    def _write_mark(self, unmarked: _Unmarked, mark: FoldsMark, generation: int) -> None:
        """*Blocking*. Raises ``OSError``; ``StaleError``: units were taken back meanwhile, there is no new mark."""
        self.index.flush()
        files = self._queues.files
        for key, marked, written, tail in unmarked:
            files.write(key, written * UNIT_BYTES, tail, generation)
            files.sync(key, marked * UNIT_BYTES, written * UNIT_BYTES + len(tail))
        # Not that of the files: the loop would wait for two syncs at its next unit.
        with self._mark_lock:
            # A cut has begun: its mark is lower, and this one would count units of bytes that are gone.
            if generation != files.generation:
                raise StaleError
            write_small(self._root / FOLDS_FILE_NAME, mark)
            # Not on the loop: a cut that begins now would find no mark to take back, and leave this one's queues in it.
            self._marked_offset = mark.offset

    def _was_marked(self, unmarked: _Unmarked, mark: FoldsMark, generation: int, work: asyncio.Future[None]) -> None:
        self._is_marking = False
        # Behind a cut the next mark must write and sync again what this one did: other units may be there by now.
        if work.cancelled() or isinstance(work.exception(), StaleError) or generation != self._queues.files.generation:
            return
        self._marked_offset = mark.offset
        if (error := work.exception()) is not None:
            # Tried again a step later; until then a start dispatches more again.
            _log.warning("folds_not_marked", reason=str(error))
            if not is_full_disk(error) and getattr(error, "errno", None) not in (errno.EMFILE, errno.ENFILE):
                self._distrust()
            return
        for key, _, written, tail in unmarked:
            if (queue := self._queues.find(key)) is not None:
                queue.note_marked(written, len(tail))

    def _distrust(self) -> None:
        """A sync has failed: again it would succeed, without the pages that it lost. The next start builds all anew."""
        # For good: this process makes no mark any more.
        self._is_marking = True
        self.index.is_trusted = False
        assert self._disk is not None, "a mark was being made"
        for name in (FOLDS_FILE_NAME, MARK_FILE_NAME):
            self._disk.submit(durable_unlink, self._root / name)

    # --- the front ---------------------------------------------------------------------------------------------------

    async def trim(self) -> None:
        """
        The log begins later: so do queues and index when this returns; readers pass by what is gone meanwhile.

        What a cut or another mark comes between is done by the next call, or by the next start. Raises ``OSError``.
        """
        start, generation = self.min_offset, self._queues.files.generation
        on_disk = asyncio.get_running_loop().run_in_executor
        firsts = [] if self._resting else await on_disk(self._disk, self._queues.firsts, start)
        for at, (key, first) in enumerate(firsts):
            if at % TRIMMED_QUEUES == 0:
                await asyncio.sleep(0)
            # Behind a cut the files hold other units.
            if self._resting or generation != self._queues.files.generation:
                return
            if (queue := self._queues.find(key)) is not None and queue.trim(first, start):
                self._to_erase[key] = queue.min_offset
        if self._resting:
            return
        if self.index.has_below(start):
            self.rest(is_resting=True)
            try:
                await on_disk(self._disk, self.index.trim, start)
            finally:
                self.rest(is_resting=False)
        # A mark that counts them would miss the files that go.
        if self._to_erase and (marked := self._mark()) is not None:
            await asyncio.wait((marked,))
            if not marked.cancelled() and marked.exception() is None:
                gone, self._to_erase = self._to_erase, {}
                await on_disk(self._disk, self._queues.erase_below, gone)

    # --- cuts and the end --------------------------------------------------------------------------------------------

    @property
    def is_resting(self) -> bool:
        """Whether a thread cuts the log, or may."""
        return self._resting > 0

    def rest(self, *, is_resting: bool) -> None:
        """While somebody wants it nothing is read (rule 4); in pairs."""
        self._resting += 1 if is_resting else -1
        if not self._resting:
            self._note_due()

    def before_cut(self) -> None:
        """*Blocking*, while the folds rest: a mark that is being made is not written any more, or was written."""
        # Written behind the cut's own, it would count units of bytes that are gone.
        with self._mark_lock:
            self._queues.files.generation += 1

    def cut(self, end: int, *, is_new: bool = False) -> None:
        """
        *Blocking*, behind the log's own cut, while the folds rest. Take back the records at or behind ``end``.

        ``is_new``: nothing of what was taken in is in the log, which begins at ``end``.
        """
        if not is_new and end >= self.dispatched_offset:
            return
        with self._queues.files.lock:
            # The log is cut already, whatever comes next: left above its end, this would leave out all that follows.
            self.dispatched_offset = end
            self.told.cut(end)
            try:
                if is_new:
                    self._queues.clear()
                    self.delivered = Delivered()
                else:
                    self._queues.cut(end)
                    self.delivered.cut(self._commit_log.reader, self.min_offset, end)
                    # Files of queues that are gone would be missed by the next start.
                    if end < self._marked_offset:
                        mark = _mark_at(end, self._queues, self.told, self.delivered)
                        write_small(self._root / FOLDS_FILE_NAME, mark)
            except (*_UNREADABLE, struct.error) as error:
                _log.error(
                    "folds_are_built_anew", reason=f"a cut of them failed: {error}", start_offset=self.min_offset
                )
                self._queues.forget()
                self.delivered = Delivered()
                durable_unlink(self._root / FOLDS_FILE_NAME)
                self.dispatched_offset = self._commit_log.min_offset
            self._marked_offset = min(self._marked_offset, self.dispatched_offset)
        try:
            if is_new:
                self.index.clear(end)
            else:
                self.index.cut(end)
        except OSError as error:
            # It is taken back; the disk hears of it before the next record is taken.
            _log.warning("key_index_not_cut", reason=str(error))

    def build_anew(self, reason: str) -> None:
        """A reader found units that name other records: none is believed any more. Once: the record may be damaged."""
        if self._loop is None or self._disk is None or self._resting or self._was_built_anew:
            return
        self._was_built_anew = True
        _log.error("folds_are_built_anew", reason=reason, start_offset=self.min_offset, end_offset=self.confirm_offset)
        self.rest(is_resting=True)
        self._next_progress = PROGRESS_BYTES
        work = self._loop.run_in_executor(self._disk, self._clear)
        work.add_done_callback(lambda _work: self.rest(is_resting=False))

    def _clear(self) -> None:
        durable_unlink(self._root / FOLDS_FILE_NAME)
        self.cut(self._commit_log.min_offset, is_new=True)

    def close(self) -> None:
        """*Blocking*, while the folds rest, for good: mark all, close the files. Raises ``OSError``: no new mark."""
        try:
            if self._is_marking:
                # The thread stops at its next queue.
                self.before_cut()
            else:
                self._write_mark(*self._gather())
        finally:
            self._queues.files.close()
            self.index.close()


def tags_of(properties: bytes) -> bytes:
    """The property TAGS; empty: there is none."""
    return last_value(properties, _TAGS) if _TAGS in properties else b""


def _mark_at(offset: int, queues: ConsumeQueues, told: Told, delivered: Delivered) -> FoldsMark:
    return FoldsMark(
        offset=LogOffset(offset),
        queues=queues.rows(),
        told_from=told.since,
        told_at=told.at,
        delivered=delivered.note_step(offset),
    )


def _load_delivered(delivered: Delivered, mark: FoldsMark, log: CommitLog, end: int) -> str:
    """*Blocking*. What was delivered below ``end``, by a mark; returns what is amiss. Raises ``OSError``."""
    if mark.delivered is None:
        # A program that delays nothing wrote it, perhaps on the slave of a master that does.
        if any(topic == SCHEDULE_TOPIC for topic, *_ in mark.queues):
            return "their mark does not say which delayed messages were delivered"
        delivered.note_step(end)
        return ""
    delivered.load(mark.delivered)
    try:
        delivered.cut(log.reader, log.min_offset, end)
    except (LookupError, ValueError, OverflowError) as error:
        return f"deliveries cannot be read: {error}"
    return ""


def _is_of_log(log: CommitLog, key: QueueKey, queue_offset: int, place: int, size: int) -> bool:
    part = log.reader.record(place, size)
    if part is None:
        return False
    with part:
        try:
            record = RecordView(part)
        except RecordError:
            return False
        found = (record.topic, record.queue_id, record.queue_offset, record.physical_offset)
        return record.size_bytes == size and found == (*key, queue_offset, place)
