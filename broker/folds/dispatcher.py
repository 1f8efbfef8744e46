"""
The dispatcher: follows the log up to confirm, and hands its records to the folds.

Here: turns and their budget, what is told to readers, the mark on disk, rest during cuts. Not here: the folds
themselves (``consume_queue``, ``key_index``), reading (``broker.consuming``).

Rule 1: the folds are a function of the records below ``dispatched_offset``, which is never above confirm. It lies
behind confirm by what one turn of the loop takes, after a start by what was written since the last mark.
Rule 2: queues first, then those who wait for them, then the key index.
Rule 3: a mark counts what was durable before it. A start takes the mark, and dispatches what lies behind it again.
Files that do not agree with the mark, or with the log, are removed, and all is dispatched again.
Rule 4: while a thread cuts or closes the log the folds rest: nothing is read, and ``catch_up`` says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Final, Self

from rollcall_ha.broker.folds.consume_queue import UNIT, UNIT_BYTES, ConsumeQueue, ConsumeQueues, StaleError
from rollcall_ha.broker.folds.index_file import Shape
from rollcall_ha.broker.folds.key_index import MARK_FILE_NAME, Keyed, KeyIndex
from rollcall_ha.broker.folds.ports import FoldSizes, QueueKey
from rollcall_ha.broker.log.checkpoint import FOLDS_FILE_NAME, FoldsMark, read_small_or_none, write_small
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.log_index import Indexed
from rollcall_ha.broker.log.record import RecordError, RecordView, index_fields
from rollcall_ha.broker.protocol.java_hash import tags_code
from rollcall_ha.epoch.model import LogOffset
from rollcall_ha.node.files import durable_unlink, is_full_disk
from rollcall_ha.node.telemetry import get_logger

GATHER_MS: Final = 5
"""While no reader waits, records that are confirmed in so short a time are taken in together, at half the cost."""
TURN_BYTES: Final = 256 * 1024
"""One turn of the loop takes in so much, 2 to 3 ms of records of 1 KiB; then others have theirs."""
MARK_STEP_BYTES: Final = 64 * 1024 * 1024
"""A start after a crash dispatches at most about this much again."""
RETRY_MS: Final = 1_000
"""After a full disk."""
PROGRESS_BYTES: Final = 1024 * 1024 * 1024
"""A rebuild writes a line for each."""
TAGS_CODES_MAX: Final = 4_096
"""Remembered: tags are few, and computing a code costs more than all else of a record."""
_TAGS: Final = b"TAGS\x01"
_KEY: Final = b"KEY"
"""In every record that the key index takes: UNIQ_KEY, KEYS."""

_log = get_logger("folds")
_Unmarked = list[tuple[QueueKey, int, int, bytes]]


class Dispatcher:
    """The folds of one replica; implements ``ports.Folds`` and ``ports.Records``. Opened blocking, then on the loop."""

    def __init__(self, root: Path, log: CommitLog, queues: ConsumeQueues, index: KeyIndex, at: int) -> None:
        """Made by ``open``; ``at``: where the queues are."""
        self.index = index
        self.dispatched_offset = at
        self.trouble = ""
        """Why nothing is taken in; empty: nothing hinders it."""
        self._root = root
        self._commit_log = log
        self._queues = queues
        self._codes: dict[bytes, int] = {b"": 0}
        self._on_grown: list[Callable[[Sequence[QueueKey]], None]] = []
        self._marked_offset = at
        self._is_marking = False
        self._was_built_anew = False
        self._resting = 0
        """So many want the folds to rest."""
        self._is_due = self._is_gathering = False
        self.is_awaited: Callable[[], bool] = lambda: False
        """Whether a reader waits for the next record."""
        self._next_progress = at + PROGRESS_BYTES
        self._loop: asyncio.AbstractEventLoop | None = None
        self._disk: Executor | None = None

    @classmethod
    def open(cls, root: Path, log: CommitLog, sizes: FoldSizes) -> Self:
        """*Blocking*. What a mark says, or nothing: then ``start`` builds it all. Raises ``OSError``."""
        queues = ConsumeQueues(root, sizes.queue_units)
        mark = read_small_or_none(root / FOLDS_FILE_NAME, FoldsMark)
        amiss = "there is no mark of them"
        at = log.min_offset
        if mark is not None and at <= mark.offset:
            end = min(mark.offset, log.whole_offset)
            amiss = queues.load(mark.queues, end, partial(_is_of_log, log))
            if not amiss:
                at = end
                if end < mark.offset:
                    # The log lost its end with the power. Left as it is, the mark would count units of other records
                    # as soon as the log has grown past it again.
                    write_small(root / FOLDS_FILE_NAME, FoldsMark(offset=end, queues=queues.rows()))
        if amiss:
            queues.clear()
            if log.whole_offset > at:
                _log.warning("folds_are_built_anew", reason=amiss, start_offset=at, end_offset=log.whole_offset)
        shape = Shape(slot_count=sizes.index_slots, unit_count=sizes.index_units)
        index = KeyIndex.open(root, valid_to=at, start=log.min_offset, shape=shape)
        return cls(root, log, queues, index, at)

    def start(self, disk: Executor) -> None:
        """Follow the log; ``disk``: a thread of its own, as the syncs of a mark may take seconds."""
        self._loop = asyncio.get_running_loop()
        self._disk = disk
        self._commit_log.subscribe_confirmed(self._note_confirmed)
        self._note_due()

    # --- ports.Folds, ports.Records ----------------------------------------------------------------------------------

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

    def subscribe_grown(self, on_grown: Callable[[Sequence[QueueKey]], None]) -> None:
        self._on_grown.append(on_grown)

    @property
    def behind_bytes(self) -> int:
        """Confirmed bytes that are not taken in yet."""
        return max(0, self._commit_log.confirm_offset - self.dispatched_offset)

    def catch_up(self) -> int:
        """As ``ports.Folds`` says."""
        if self._resting:
            return max(1, self.behind_bytes)
        while self.behind_bytes and not self.trouble:
            start = self.dispatched_offset
            self._take()
            # Half a record counts as none: there is nothing to wait for.
            if self.dispatched_offset == start and not self.trouble:
                return 0
            if self.behind_bytes > TURN_BYTES:
                break
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
        self._is_due = False
        if self._resting:
            return
        was_in_trouble, self.trouble = self.trouble, ""
        left = self.catch_up()
        if self.trouble:
            if not was_in_trouble:
                _log.error("folds_stand_still", reason=self.trouble, dispatched_offset=self.dispatched_offset)
            self._note_due(RETRY_MS)
        elif left or self.index.taken_offset < self.dispatched_offset:
            self._index_behind()
            self._note_due()

    def _take(self) -> None:
        start = self.dispatched_offset
        try:
            grown, keyed = self._take_run(start)
        except (OSError, LookupError, ValueError) as error:
            # What was taken of the run stays: taken again, it is left out. The log goes on without readers.
            self.trouble = f"{type(error).__name__}: {error}"
            return
        if grown:
            for on_grown in self._on_grown:
                on_grown(grown)
        if self.index.taken_offset == start:
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
        grown: dict[QueueKey, None] = {}
        keyed: list[Keyed] = []
        for at in starts:
            topic, queue_id, queue_offset, is_queued, properties, stored_at_ms, size = index_fields(view, at)
            if not is_indexed:
                unindexed.append((base + at, topic, queue_id, queue_offset, properties, is_queued))
            if not is_queued:
                continue
            if _KEY in properties:
                keyed.append((topic, properties, base + at, size, stored_at_ms, is_queued))
            tags = tags_of(properties)
            code = codes.get(tags)
            if code is None:
                code = self._code_of(tags)
            key = (topic, queue_id)
            queue = find(key)
            if queue is None:
                queue = self._queues.add(key, queue_offset)
            queue.append(queue_offset, pack(base + at, size, code))
            grown[key] = None
        self.dispatched_offset = stop
        if not is_indexed:
            # Now that nothing of the run can fail: taken twice, a number of a producer would be a repeat of itself.
            index.take_all(unindexed, LogOffset(stop))
        return tuple(grown), keyed

    def _code_of(self, tags: bytes) -> int:
        if len(self._codes) >= TAGS_CODES_MAX:
            self._codes = {b"": 0}
        code = self._codes[tags] = tags_code(tags)
        return code

    def _index(self, keyed: Sequence[Keyed], end: int) -> None:
        try:
            self.index.take_all(keyed, end)
        except OSError as error:
            self.trouble = f"key index: {error}"

    def _index_behind(self) -> None:
        """One run for a key index that is behind the queues: it was damaged, or refused by a full disk."""
        start = self.index.taken_offset
        if start >= self.dispatched_offset:
            return
        segment, starts, stop = self._commit_log.reader.run(start, self.dispatched_offset, TURN_BYTES)
        view, base = segment.view, segment.base
        keyed: list[Keyed] = []
        for at in starts:
            topic, _, _, is_queued, properties, stored_at_ms, size = index_fields(view, at)
            keyed.append((topic, properties, base + at, size, stored_at_ms, is_queued))
        self._index(keyed, stop)

    # --- marks -------------------------------------------------------------------------------------------------------

    def _mark(self) -> None:
        if self._is_marking or self._loop is None or self._disk is None:
            return
        self._is_marking = True
        unmarked, mark, generation = self._gather()
        work = self._loop.run_in_executor(self._disk, self._write_mark, unmarked, mark, generation)
        work.add_done_callback(partial(self._was_marked, unmarked, mark, generation))

    def _gather(self) -> tuple[_Unmarked, FoldsMark, int]:
        queues = self._queues
        unmarked = [queue.unmarked() for _, queue in queues if queue.max_offset != queue.marked]
        mark = FoldsMark(offset=LogOffset(self.dispatched_offset), queues=queues.rows())
        return unmarked, mark, queues.files.generation

    def _write_mark(self, unmarked: _Unmarked, mark: FoldsMark, generation: int) -> None:
        """*Blocking*. Raises ``OSError``; ``StaleError``: units were taken back meanwhile, there is no new mark."""
        self.index.flush()
        files = self._queues.files
        for key, marked, written, tail in unmarked:
            files.write(key, written * UNIT_BYTES, tail, generation)
            files.sync(key, marked * UNIT_BYTES, written * UNIT_BYTES + len(tail))
        with files.lock:
            # A cut has begun: its mark is lower, and this one would count units of bytes that are gone.
            if generation != files.generation:
                raise StaleError
            write_small(self._root / FOLDS_FILE_NAME, mark)

    def _was_marked(self, unmarked: _Unmarked, mark: FoldsMark, generation: int, work: asyncio.Future[None]) -> None:
        self._is_marking = False
        # Behind a cut the next mark must write and sync again what this one did: other units may be there by now.
        if work.cancelled() or isinstance(work.exception(), StaleError) or generation != self._queues.files.generation:
            return
        self._marked_offset = mark.offset
        if (error := work.exception()) is not None:
            # Tried again a step later; until then a start dispatches more again.
            _log.warning("folds_not_marked", reason=str(error))
            if not is_full_disk(error):
                self._distrust()
            return
        for key, _, written, tail in unmarked:
            if (queue := self._queues.find(key)) is not None:
                queue.marked = written + len(tail) // UNIT_BYTES

    def _distrust(self) -> None:
        """A sync has failed: again it would succeed, without the pages that it lost. The next start builds all anew."""
        self._is_marking = True
        assert self._disk is not None, "a mark was being made"
        for name in (FOLDS_FILE_NAME, MARK_FILE_NAME):
            self._disk.submit(durable_unlink, self._root / name)

    # --- cuts and the end --------------------------------------------------------------------------------------------

    def rest(self, *, is_resting: bool) -> None:
        """While somebody wants it nothing is read (rule 4); in pairs."""
        self._resting += 1 if is_resting else -1
        if not self._resting:
            self._note_due()

    def before_cut(self) -> None:
        """*Blocking*, while the folds rest: a mark that is being made is not written any more, or was written."""
        files = self._queues.files
        with files.lock:
            files.generation += 1

    def cut(self, end: int, *, is_new: bool = False) -> None:
        """
        *Blocking*, behind the log's own cut, while the folds rest. Take back the records at or behind ``end``.

        ``is_new``: nothing of what was taken in is in the log, which begins at ``end``. Raises ``OSError``.
        """
        with self._queues.files.lock:
            if is_new:
                self._queues.clear()
                self.index.clear(end)
            elif end < self.dispatched_offset:
                self._queues.cut(end)
                self.index.cut(end)
            else:
                return
            self.dispatched_offset = end
            self._marked_offset = min(self._marked_offset, end)

    def build_anew(self, reason: str) -> None:
        """A reader found units that name other records: none is believed any more. Once: the record may be damaged."""
        if self._loop is None or self._disk is None or self._resting or self._was_built_anew:
            return
        self._was_built_anew = True
        _log.error("folds_are_built_anew", reason=reason, start_offset=self.min_offset, end_offset=self.confirm_offset)
        self.rest(is_resting=True)

        def cleared(work: asyncio.Future[None]) -> None:
            if not work.cancelled() and (error := work.exception()) is not None:
                self.trouble = f"files of consume queues cannot be removed: {error}"
            self.rest(is_resting=False)

        self._loop.run_in_executor(self._disk, self._clear).add_done_callback(cleared)

    def _clear(self) -> None:
        durable_unlink(self._root / FOLDS_FILE_NAME)
        self.cut(self._commit_log.min_offset, is_new=True)

    def close(self) -> None:
        """*Blocking*, while the folds rest: mark all, and close the files. Raises ``OSError``: there is no new mark."""
        try:
            if not self._is_marking:
                self._write_mark(*self._gather())
        finally:
            self._queues.files.close()
            self.index.close()


def tags_of(properties: bytes) -> bytes:
    """The property TAGS; empty: there is none."""
    at = properties.find(_TAGS)
    # ``MYTAGS`` is another property.
    while at > 0 and properties[at - 1] != 2:
        at = properties.find(_TAGS, at + 1)
    if at < 0:
        return b""
    end = properties.find(b"\x02", at)
    return properties[at + len(_TAGS) : end if end >= 0 else len(properties)]


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
