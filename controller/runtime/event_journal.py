"""
The record of everything that was decided: events as JSON lines, synced in groups on a thread of its own.

Here: order, nothing twice, holes, reading by position and by set. Not here: files (``journal_segments``), fetching the
missing events from a peer (``api.server``), the meaning of events.

Rule 1: events are written in the order (index, ordinal), each once. An event that a restart applies again is skipped;
the first one is compared with the one on disk.
Rule 2 (R24): ``synced_index`` is the highest Raft index whose events, and all before, are on disk; compaction waits
for it.
Rule 3: events that this node never saw, because it installed a snapshot, are a ``Gap`` on record until a peer has given
them. The hash chain tells whether there is a gap, and whether a peer's events fill it.
Rule 4: a failed write or sync ends the process (``node.files``), and so does any other error of the journal's thread:
the port ``fail`` does not return. Raft has what this journal lacks: another controller may lead first (``leave``).
Rule 5: the oldest segments go as ``journal_retention`` says, on the journal's thread. A read that meets a removed file
begins again with the files that are left; a reader that asks for removed events gets a ``Gap``.
Rule 6: the newest lines stay in memory, at most ``TAIL_BYTES_MAX``, for those that follow the record: 20 listeners that
each read and decoded every new event would cost the leader more than the events did.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Generic, NoReturn, TypeVar

import msgspec

from rollcall_ha.controller.contract.events import EventRecord, chain_of
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.values import EventRef, Frozen
from rollcall_ha.controller.replication.ports import AppliedEntry
from rollcall_ha.controller.runtime.journal_retention import (
    Dropped,
    Retention,
    expired,
    load_dropped,
    note_dropped,
    remove,
    without_remains,
)
from rollcall_ha.controller.runtime.journal_segments import (
    SPARSE_EVERY,
    Gap,
    GapLine,
    JournalDamaged,
    JournalSegment,
    Position,
    SegmentIndex,
    list_segments,
    segment_path,
)
from rollcall_ha.node.files import fsync_directory, write_all
from rollcall_ha.node.telemetry import get_logger

S = TypeVar("S")
T = TypeVar("T")

_log = get_logger("events")

SEGMENT_BYTES_MAX = 64 * 1024 * 1024
PENDING_EVENTS_MAX = 500_000
"""Events that may wait for the disk; with more of them the disk has stopped, and the process ends."""
PAGE_EVENTS_MAX = 500
INDEXES_MAX = 8
"""Indexes of older segments that stay in memory."""
ORDINAL_MAX = 99_999_999
"""Above every ordinal: "after all events of that index"."""
FILL_EVENTS_MAX = 200_000
"""A larger hole stays on record as a gap."""
TAIL_BYTES_MAX = 1024 * 1024
"""The newest lines, up to so many bytes, stay in memory."""
RETENTION_INTERVAL_MS = 60_000
"""Between two looks for segments that may go; the next group of events after it looks."""


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


class Page(Frozen):
    """Events in order, the place to go on from, and the gap before the first one, if there is one."""

    records: tuple[EventRecord, ...]
    next_from: EventRef | None
    gap: Gap | None = None


class EventTail:
    """The newest synced lines in memory (rule 6). Written by the journal's thread, read by any."""

    def __init__(self, begins: Position) -> None:
        """Holds everything from ``begins`` on: nothing yet."""
        self._lock = threading.Lock()
        self._lines: deque[tuple[Position, EventRef, bytes]] = deque()
        self._size_bytes = 0
        self._begins = begins

    @property
    def begins(self) -> Position:
        """From here on it has everything."""
        return self._begins

    def add(self, ref: EventRef, line: bytes) -> None:
        """The next event; the oldest ones make room."""
        with self._lock:
            self._lines.append(((ref.index, ref.ordinal), ref, line))
            self._size_bytes += len(line)
            while self._size_bytes > TAIL_BYTES_MAX:
                (index, ordinal), _, oldest = self._lines.popleft()
                self._size_bytes -= len(oldest)
                self._begins = (index, ordinal + 1)

    def begin_again(self, begins: Position) -> None:
        """Events before ``begins`` were never here: a reader from before has to hear of the gap."""
        with self._lock:
            self._lines.clear()
            self._size_bytes, self._begins = 0, begins

    def after(self, position: Position, *, limit: int) -> list[tuple[EventRef, bytes]] | None:
        """Up to ``limit`` events from ``position`` on, each with its line; None: the files have to be asked."""
        with self._lock:
            if position < self._begins:
                return None
            found: list[tuple[EventRef, bytes]] = []
            for at, ref, line in reversed(self._lines):
                if at < position:
                    break
                found.append((ref, line))
        return found[::-1][:limit]


class EventJournal(Generic[S]):
    """One node's journal. ``append`` is for the log's thread, reading for worker threads, the rest for any."""

    def __init__(
        self,
        directory: Path,
        *,
        chain_head_of: Callable[[S], str],
        fail: Callable[[str], NoReturn],
        leave: Callable[[], None] = lambda: None,
        on_synced: Callable[[], None] = lambda: None,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        retention: Retention | None = None,
        wall_ms: Callable[[], int] = _wall_ms,
    ) -> None:
        """
        Open, repair a torn tail, and be ready to ``start``.

        Args:
            directory: Made if missing.
            chain_head_of: Hash of the newest event that a state has seen.
            fail: Ends the process; called on the journal's thread, or the log's.
            leave: Called on the journal's thread before ``fail``; returns in time, whatever comes of it.
            on_synced: Called on the journal's thread after each group that held events.
            segment_bytes_max: A segment that is larger is closed.
            retention: Limits; None: everything is kept.
            wall_ms: UTC, as files are stamped; only their age is judged by it.

        Raises:
            JournalDamaged, OSError: the directory cannot be used; the message says what to do.
        """
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._chain_head_of = chain_head_of
        self._fail, self._leave = fail, leave
        self._on_synced = on_synced
        self._segment_bytes_max = segment_bytes_max
        self._retention = retention
        self._wall_ms = wall_ms
        self._next_retention_ms = 0
        self._lock = threading.Lock()
        self._segments = list_segments(directory)
        newest = max((segment for segment in self._segments if not segment.is_fill), key=_order, default=None)
        for segment in self._segments:
            segment.open(is_newest=segment is newest)
        self._dropped = load_dropped(directory)
        self._segments = without_remains(self._segments, self._dropped)
        self._indexes: OrderedDict[tuple[int, bool], SegmentIndex] = OrderedDict()
        self._current: JournalSegment | None = newest
        self._descriptor = os.open(newest.path, os.O_WRONLY | os.O_APPEND) if newest is not None else -1
        last = next((segment for segment in reversed(self._segments) if segment.last is not None), None)
        self._last: EventRef | None = last.last if last is not None else None
        self.tail = EventTail((self._last.index, self._last.ordinal + 1) if self._last is not None else (0, 0))
        self._chain = last.chain if last is not None else ""
        # A segment that holds nothing but its gap: the chain goes on from the snapshot, not from the last event before
        # it.
        if newest is not None and newest.gap is not None and newest.last is None:
            self._chain = newest.gap.chain
        self._is_verified = False
        self._synced_index = 0
        self._pending: deque[AppliedEntry[S]] = deque()
        self._pending_events = 0
        self._wake = threading.Condition()
        self._is_stopping = False
        self._thread = threading.Thread(target=self._run, name="event-journal", daemon=True)

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Write and sync everything that was appended; returns when that is done."""
        with self._wake:
            self._is_stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join()
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def append(self, entry: AppliedEntry[S]) -> None:
        """Take over an applied entry. On the log's thread, in order; does not block, does not raise."""
        with self._wake:
            self._pending.append(entry)
            self._pending_events += len(entry.records)
            is_stuck = self._pending_events > PENDING_EVENTS_MAX
            self._wake.notify()
        if is_stuck:
            self._fail(f"more than {PENDING_EVENTS_MAX} events wait for the disk under {self._directory}")

    @property
    def synced_index(self) -> int:
        """Rule 2. Any thread."""
        return self._synced_index

    @property
    def last(self) -> EventRef | None:
        """The newest synced event. Any thread."""
        return self._last

    @property
    def dropped(self) -> Dropped | None:
        """The record of removed segments (Rule 5); None: none was. Any thread."""
        return self._dropped

    # --- the journal's thread ----------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._pending and not self._is_stopping:
                    self._wake.wait()
                entries, self._pending = self._pending, deque()
                self._pending_events = 0
                if not entries:
                    return  # stopping, and everything is written
            try:
                self._write_group(entries)
            except Exception as error:  # noqa: BLE001 (compaction would wait for this thread for ever)
                try:
                    self._leave()
                finally:
                    self._fail(f"the event journal failed: {type(error).__name__}: {error}")

    def _write_group(self, entries: Sequence[AppliedEntry[S]]) -> None:
        batch: list[EventRecord] = []
        for entry in entries:
            if entry.is_snapshot:
                # The batch so far is written first: the gap is noted behind the last event on disk.
                self._write(batch)
                batch = []
                self._note_snapshot(entry)
            batch += [record for record in entry.records if self._is_new(record)]
        has_events = bool(batch)
        self._write(batch)
        # AFTER the sync (R24). Before it, the log is compacted up to here, the power fails, and the replay that would
        # give these events again begins behind them.
        self._synced_index = max(self._synced_index, entries[-1].index)
        if has_events:
            self._drop_expired()
            self._on_synced()

    def _drop_expired(self) -> None:
        """Remove the segments that have passed a limit (rule 5)."""
        now_ms = self._wall_ms()
        if self._retention is None or now_ms < self._next_retention_ms:
            return
        self._next_retention_ms = now_ms + RETENTION_INTERVAL_MS
        gone = expired(self._snapshot(), self._retention, now_ms=now_ms)
        if not gone:
            return
        dropped = note_dropped(self._directory, self._dropped, gone)
        # Readers hear of it BEFORE the files go: a read that meets a missing file then finds other segments, and begins
        # again. The other way round it would find the same ones, and fail.
        with self._lock:
            self._dropped = dropped
            self._segments = [segment for segment in self._segments if segment not in gone]
            for segment in gone:
                self._indexes.pop(segment.order, None)
        remove(gone)

    def _is_new(self, record: EventRecord) -> bool:
        # By position: after a restart the log applies everything since its snapshot again, and each event would be
        # there twice. Readers would count a failover twice.
        last = self._last
        if last is None or (record.index, record.ordinal) > (last.index, last.ordinal):
            return True
        if not self._is_verified:
            self._verify_replayed(record)
        return False

    def _verify_replayed(self, record: EventRecord) -> None:
        """The first event that is applied again must be the one that is here: else this is another fleet's journal."""
        found = self.read(record.ref, limit=1).records
        # By position: the same place in another history may well be of another term.
        is_there = bool(found) and (found[0].index, found[0].ordinal) == (record.index, record.ordinal)
        if is_there and found[0].chain != record.chain:
            raise JournalDamaged(
                f"event {record.ref} in {self._directory} is not the one that the "
                "Raft log gives; this journal belongs to another history: move it away"
            )
        self._is_verified = True

    def _write(self, records: Sequence[EventRecord]) -> None:
        if not records:
            return
        # A disk that came back from an older backup: the log goes on, but events are missing between. Appended without
        # a gap they would look like a whole record.
        if not self._follows(records[0]):
            self._begin_segment(
                Gap(after=self._last, to_index=records[0].index - 1, chain="", reason="the record does not continue"),
                records[0].index,
            )
        self._is_verified = True
        current = self._current
        # One that holds nothing but its gap is not full, however small the limit.
        if current is None or (current.last is not None and current.size_bytes >= self._segment_bytes_max):
            self._begin_segment(None, records[0].index)
        segment = self._current
        assert segment is not None
        assert segment.index is not None
        lines = [msgspec.json.encode(record) + b"\n" for record in records]
        write_all(self._descriptor, b"".join(lines))
        os.fdatasync(self._descriptor)
        # Readers see the lines AFTER the sync: an event that was shown must not be gone after a power cut.
        with self._lock:
            offset = segment.size_bytes
            for record, line in zip(records, lines, strict=True):
                segment.index.add(record.ref, record.set_key, record.chain, offset)
                offset += len(line)
            segment.adopt(segment.index, offset)
            self._last, self._chain = records[-1].ref, records[-1].chain
        for record, line in zip(records, lines, strict=True):
            self.tail.add(record.ref, line)

    def _follows(self, record: EventRecord) -> bool:
        return self._is_verified or chain_of(self._chain, record) == record.chain

    def _note_snapshot(self, entry: AppliedEntry[S]) -> None:
        """A snapshot brought the state to ``entry.index``: the chain tells whether events are missing."""
        head = self._chain_head_of(entry.state)
        self._is_verified = True
        if head in (self._chain, ""):
            return  # the entries that were jumped over held no event
        gap = Gap(after=self._seen_up_to(), to_index=entry.index, chain=head, reason="a snapshot was installed")
        self._begin_segment(gap, entry.index + 1)
        self._chain = head
        self._on_synced()

    def _seen_up_to(self) -> EventRef | None:
        # Two snapshots in a row: the second gap begins where the first ends, else both would ask for the same events.
        current = self._current
        if current is not None and current.gap is not None and current.last is None:
            return EventRef(term=0, index=current.gap.to_index, ordinal=ORDINAL_MAX)
        return self._last

    def _begin_segment(self, gap: Gap | None, base_index: int) -> None:
        if gap is not None:
            self.tail.begin_again((gap.to_index, ORDINAL_MAX))
            after = gap.after.index if gap.after is not None else None
            meaning = (
                "asked of the other controllers; where there are none, the record has a hole: restore it, or keep it"
            )
            _log.warning("events_missing", after_entry=after, to_entry=gap.to_index, reason=gap.reason, meaning=meaning)
        if self._current is not None:
            self._current.write_sidecar()
            os.close(self._descriptor)
        path = segment_path(self._directory, base_index)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        line = msgspec.json.encode(GapLine(gap)) + b"\n" if gap is not None else b""
        write_all(self._descriptor, line)
        os.fdatasync(self._descriptor)
        fsync_directory(self._directory)
        index = SegmentIndex()
        index.gap = gap
        segment = JournalSegment(path)
        segment.adopt(index, len(line))
        with self._lock:
            if self._current is not None:
                self._current.index = None
            self._segments.append(segment)
            self._segments.sort(key=_order)
            self._current = segment

    # --- reading (worker threads) ------------------------------------------------------------------------------------

    def read(self, start: EventRef | None, *, limit: int, set_key: SetKey | None = None) -> Page:
        """Up to ``limit`` (at most 500) events from ``start`` on, of one set or of all. Blocking."""
        return self._read_what_is_left(lambda: self._read(start, limit=limit, set_key=set_key))

    def read_newest(self, *, limit: int, set_key: SetKey | None = None) -> Page:
        """The last ``limit`` (at most 500) events, of one set or of all, oldest first. Blocking."""
        return self._read_what_is_left(lambda: self._read_newest(limit=limit, set_key=set_key))

    def _read_newest(self, *, limit: int, set_key: SetKey | None) -> Page:
        limit = max(1, min(limit, PAGE_EVENTS_MAX))
        records: list[EventRecord] = []
        gap: Gap | None = None
        with self._lock:
            dropped, segments = self._dropped, tuple(self._segments)
        for segment in reversed(segments):
            index = self._index_of(segment)
            wanted = limit - len(records)
            if set_key is not None:
                records = segment.read_at(self._offsets(index, set_key)[-wanted:]) + records
            else:
                position, offset = index.before_last(wanted)
                records = segment.read(position, offset, wanted + SPARSE_EVERY)[-wanted:] + records
            if len(records) >= limit:
                break
            if segment.gap is not None and not self._is_filled(segment.gap):
                gap = segment.gap
        else:
            gap = dropped.gap() if dropped is not None else gap
        return Page(records=tuple(records), next_from=_after(records), gap=gap)

    def _read_what_is_left(self, read: Callable[[], T]) -> T:
        """Begin again if retention removed a file meanwhile (rule 5)."""
        while True:
            before = self._snapshot()
            try:
                return read()
            except FileNotFoundError:
                if self._snapshot() == before:
                    raise  # it is missing for another reason: going on would be a loop without end

    def _read(self, start: EventRef | None, *, limit: int, set_key: SetKey | None) -> Page:
        limit = max(1, min(limit, PAGE_EVENTS_MAX))
        position: Position = (start.index, start.ordinal) if start is not None else (0, 0)
        records: list[EventRecord] = []
        with self._lock:
            dropped, segments = self._dropped, tuple(self._segments)
        is_gone = dropped is not None and position <= (dropped.last.index, dropped.last.ordinal)
        gap = dropped.gap() if dropped is not None and is_gone else None
        for segment in segments:
            if segment.gap is not None and not records and position[0] <= segment.gap.to_index:
                gap = segment.gap if not self._is_filled(segment.gap) else gap
            if segment.last is None or (segment.last.index, segment.last.ordinal) < position:
                continue
            index = self._index_of(segment)
            if set_key is None:
                records += segment.read(position, index.seek(position), limit - len(records))
            else:
                records += self._read_set(segment, index, set_key, position, limit - len(records))
            if len(records) >= limit:
                break
        return Page(records=tuple(records), next_from=_after(records), gap=gap)

    def _read_set(
        self, segment: JournalSegment, index: SegmentIndex, set_key: SetKey, position: Position, limit: int
    ) -> list[EventRecord]:
        found: list[EventRecord] = []
        offsets = self._offsets(index, set_key)
        for first in range(0, len(offsets), PAGE_EVENTS_MAX):
            for record in segment.read_at(offsets[first : first + PAGE_EVENTS_MAX]):
                if (record.index, record.ordinal) >= position and len(found) < limit:
                    found.append(record)
            if len(found) >= limit:
                break
        return found

    def read_set_backwards(
        self, set_key: SetKey, *, is_enough: Callable[[list[EventRecord]], bool], limit: int
    ) -> list[EventRecord]:
        """
        The newest events of one set, oldest first: pages are added in front until ``is_enough`` or ``limit``.

        Blocking. Costs what it reads: each segment's index names the events of the set.
        """
        return self._read_what_is_left(lambda: self._read_backwards(set_key, is_enough=is_enough, limit=limit))

    def _read_backwards(
        self, set_key: SetKey, *, is_enough: Callable[[list[EventRecord]], bool], limit: int
    ) -> list[EventRecord]:
        found: list[EventRecord] = []
        for segment in reversed(self._snapshot()):
            offsets = self._offsets(self._index_of(segment), set_key)
            while offsets and len(found) < limit:
                page, offsets = offsets[-PAGE_EVENTS_MAX:], offsets[:-PAGE_EVENTS_MAX]
                found = segment.read_at(page) + found
                if is_enough(found):
                    return found
            if len(found) >= limit:
                break
        return found

    def gaps(self) -> tuple[Gap, ...]:
        """The gaps that no peer has filled, oldest first. Any thread."""
        found = (segment.gap for segment in self._snapshot())
        begins_at = self._dropped.last.index if self._dropped is not None else -1
        return tuple(gap for gap in found if gap is not None and gap.to_index > begins_at and not self._is_filled(gap))

    def _snapshot(self) -> tuple[JournalSegment, ...]:
        with self._lock:
            return tuple(self._segments)

    def _is_filled(self, gap: Gap) -> bool:
        return any(segment.is_fill and segment.base_index == gap.to_index for segment in self._snapshot())

    def _offsets(self, index: SegmentIndex, set_key: SetKey) -> list[int]:
        with self._lock:
            return list(index.sets.get(str(set_key), ()))

    def _index_of(self, segment: JournalSegment) -> SegmentIndex:
        index = segment.index
        if index is not None:
            return index
        with self._lock:
            cached = self._indexes.get(segment.order)
            if cached is not None:
                self._indexes.move_to_end(segment.order)
                return cached
        loaded = segment.load_index()
        with self._lock:
            self._indexes[segment.order] = loaded
            while len(self._indexes) > INDEXES_MAX:
                self._indexes.popitem(last=False)
        return loaded

    # --- filling holes -----------------------------------------------------------------------------------------------

    def fill(self, gap: Gap, records: Sequence[EventRecord]) -> None:
        """
        Put a peer's events into the gap; durable on return. Blocking.

        Raises:
            ValueError: they are not the missing ones: the chain does not run from the last event here to the gap's.
        """
        # Each event, from the last one here to the head that the snapshot named: a peer with another history, or one
        # that leaves out a single event, is refused.
        chain = self._chain_before(gap)
        for record in records:
            if chain is not None and chain_of(chain, record) != record.chain:
                raise ValueError(f"event {record.ref} breaks the chain")
            chain = record.chain
        if not records or chain is None or not self._leads_over(gap, chain):
            raise ValueError("the events do not end where the snapshot began")
        path = segment_path(self._directory, gap.to_index, is_fill=True)
        # Under its name only when it is whole: a start takes each file of that name for a filled gap, and a torn one
        # for damage.
        temporary = path.with_name(path.name + ".tmp")
        with temporary.open("wb") as file:
            file.writelines(msgspec.json.encode(record) + b"\n" for record in records)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        fsync_directory(self._directory)
        segment = JournalSegment(path)
        segment.open(is_newest=False)
        with self._lock:
            self._segments.append(segment)
            self._segments.sort(key=_order)

    def _leads_over(self, gap: Gap, chain: str) -> bool:
        if gap.chain:
            return chain == gap.chain
        following = self.read(EventRef(term=0, index=gap.to_index + 1, ordinal=0), limit=1).records
        return bool(following) and chain_of(chain, following[0]) == following[0].chain

    def _chain_before(self, gap: Gap) -> str | None:
        if gap.after is None:
            return ""
        found = self.read(gap.after, limit=1).records
        return found[0].chain if found and found[0].ref == gap.after else None


def _order(segment: JournalSegment) -> tuple[int, bool]:
    return segment.order


def _after(records: Sequence[EventRecord]) -> EventRef | None:
    if not records:
        return None
    last = records[-1]
    return EventRef(term=last.term, index=last.index, ordinal=last.ordinal + 1)
