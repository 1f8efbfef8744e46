"""
The commit log of one replica: appends of a master, bytes received by a slave, cuts, and the index of both.

Implements ``ha.ports.ReplicaLog``. Here: offsets, runs, segments in use, the work of the flush thread. Not here: bytes
of a record (``record``, ``appending``), files (``segment``, ``checkpoint``), the next segment (``preallocation``), the
steps of a cut (``cut``), the start (``recovery``).

Four ends, each at or below the one before: ``max_offset`` (bytes), ``whole_offset`` (records), ``flushed_offset``
(records on disk), ``confirm_offset`` (records on every required member).
Threads: the loop owns everything; the flush thread reads ``_whole`` and the list of segments, syncs, and prepares the
next segment. Both are handed over by single assignments.
Rule 1: methods run on the loop thread and return at once, except those whose docstring begins with *Blocking*: they
write and sync files and run on a one-thread executor, while no other call touches the log.
Rule 2: one run at a time: ``begin_run``, any number of ``append``, ``end_run``; nothing else in between.
Rule 3: bytes below ``ackable_offset`` may be acknowledged: whole records only, so that confirm is always a record
boundary and recovery, which keeps whole records, never ends below it; in flush mode sync only synced ones.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from rollcall_ha.broker.core.producers import ProducerStamp, ProducerTable
from rollcall_ha.broker.log.appending import place_record, place_run
from rollcall_ha.broker.log.checkpoint import (
    CLEAN_FILE_NAME,
    INDEX_FILE_NAME,
    CleanStop,
    CutMark,
    IndexSnapshot,
    LogState,
    read_small_or_none,
    write_small,
    write_state,
)
from rollcall_ha.broker.log.cut import LogFiles, begin_cut, finish_cut, remove_expired
from rollcall_ha.broker.log.deletion import LogFront
from rollcall_ha.broker.log.flush import GroupFlusher
from rollcall_ha.broker.log.log_index import LogIndex
from rollcall_ha.broker.log.preallocation import SegmentPreallocator
from rollcall_ha.broker.log.queue_offsets import QueueOffsets
from rollcall_ha.broker.log.reader import LogReader
from rollcall_ha.broker.log.record import BLANK_BYTES_MIN, Draft, pack_blank, record_bytes, run_bytes, walk
from rollcall_ha.broker.log.recovery import recover
from rollcall_ha.broker.log.segment import LogSegment
from rollcall_ha.broker.log.soundness import find_damage, sound_end
from rollcall_ha.broker.log.values import CutReason, CutRefusedError, IndexBehindError, RecoveryReport
from rollcall_ha.broker.protocol.record import RecordError
from rollcall_ha.broker.protocol.send import BatchItem
from rollcall_ha.controller.contract.ids import FlushMode
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.epoch.model import EpochEntry, LogOffset
from rollcall_ha.ha.ports import FileRegion
from rollcall_ha.ha.transport import wall_clock_ms

FLUSH_INTERVAL_MS = 500
"""Mode async: how much time of writes a power cut may take."""
INDEX_STEP_BYTES = 64 * 1024 * 1024
"""The index is saved whenever the log has grown by this much, so that a start reads at most about this much."""


class CommitLog:
    """One open log. Made by ``open``; ended by ``close``."""

    def __init__(self, files: LogFiles, state: LogState, report: RecoveryReport, *, store_host: bytes) -> None:
        self.recovery = report
        """The findings of ``open``."""
        self.remove_expired: Callable[..., list[str]] = partial(list[str])
        """*Blocking*. Of what cuts have set aside (``cut.remove_expired``)."""
        end = report.end_offset
        self._files = files
        self._state = state
        self._whole = self._max = self._flushed = end
        self._confirm, self._released = state.confirm_offset, state.released_offset
        self._index = LogIndex(LogOffset(files.segments[0].base if files.segments else 0))
        self._flush_mode = FlushMode.ASYNC
        self._store_host = store_host
        self._index_saved = LogOffset(0)
        self._preallocator = SegmentPreallocator(files, lambda: self._post(self._tell_room))
        self._disk = threading.Lock()
        """Held by a sync, by chores, by a cut and by a deletion: one at a time."""
        self._generation = 0
        """Counts the cuts of this process."""
        self._synced_generation = 0
        self._synced = end
        self._index_pending: IndexSnapshot | None = None
        self._stored_at_ms = 0
        self._flusher: GroupFlusher | None = None
        self._on_flushed: list[Callable[[LogOffset], None]] = []
        self._on_room: list[Callable[[], object]] = []
        self._on_confirmed: list[Callable[[], object]] = []
        self.reader = LogReader(files)
        """Its records where they lie."""
        self.front = LogFront(files, self._preallocator, self._disk, self._ends, self._store_state)
        self.front.whole_from = state.whole_from
        self._post: Callable[[Callable[[], None]], object] = lambda call: call()
        self._now_ms = wall_clock_ms
        self._boot_id = ""

    @classmethod
    def open(
        cls,
        root: Path,
        *,
        segment_bytes: int,
        flush_mode: FlushMode,
        store_host: bytes,
        stop_process: Callable[[BaseException], None],
        post: Callable[[Callable[[], None]], object],
        flush_interval_ms: int = FLUSH_INTERVAL_MS,
        quarantine_days: int = 7,
        quarantine_bytes: int = 8 * 1024**3,
        now_ms: Callable[[], int] = wall_clock_ms,
        before_step: Callable[[str], None] = lambda _step: None,
        on_loss: Callable[[], None] = lambda: None,
        on_flush_due: Callable[[], None] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
        boot_id: str = "",
    ) -> Self:
        """
        Blocking. Recover the log below ``root`` (made if it is not there), rebuild the index, start the flush thread.

        ``store_host`` is IP and int32 port as records carry them; ``post`` hands a call to the loop thread
        (``loop.call_soon_threadsafe``); ``stop_process`` ends the process after a failed sync; ``on_loss`` is called
        before anything is changed if the log lacks bytes that it had synced or confirmed. With ``on_flush_due`` there
        is no flush thread: it is called when a flush should not wait, and the caller runs ``flush_turn``, then and
        each ``flush_interval_ms``. ``boot_id`` is that of this boot of the machine; empty: not known.

        Raises:
            SegmentError, EpochFileMissing, EpochFileCorrupt, CheckpointError: the folder needs a human; nothing was
                changed but for a cut that had begun.
            RecordError: damage below the checked part; wipe this replica.
            OSError: the disk.
        """
        files, state, report = recover(
            root, segment_bytes=segment_bytes, now_ms=now_ms, before_step=before_step, on_loss=on_loss, boot_id=boot_id
        )
        log = cls(files, state, report, store_host=store_host)
        log._post, log._now_ms, log._flush_mode, log._boot_id = post, now_ms, flush_mode, boot_id
        log._load_index()
        log.remove_expired = partial(
            remove_expired, root, now_ms=now_ms, keep_days=quarantine_days, keep_bytes=quarantine_bytes
        )
        log.remove_expired()
        log._prepare_first()
        flusher = GroupFlusher(
            mode=flush_mode,
            interval_ms=flush_interval_ms,
            prepare=log._prepare_segment,
            sync=log._sync,
            chores=log._do_chores,
            publish=log._publish_flushed,
            stop_process=stop_process,
            clock_s=clock_s,
            on_due=on_flush_due,
        )
        log._start_flusher(flusher)
        return log

    def _start_flusher(self, flusher: GroupFlusher) -> None:
        for segment in self._files.segments:
            # After kill -9 the pages of the last writes are in memory only. Not synced here, the first ack of this
            # process in mode sync would cover them, and the next power cut would take them.
            # Written first: a sync that failed in the last process left pages that the kernel shows and calls clean. A
            # sync alone says yes without them.
            if segment.end > self.recovery.checked_from:
                segment.write_again(self.recovery.checked_from, self._whole)
                segment.sync()
        self._flusher = flusher
        flusher.start(self._flushed)
        flusher.request_chores()

    def _prepare_first(self) -> None:
        """Blocking. A log without a segment would make it in front of its first byte; a full disk is told then."""
        if not self._files.segments:
            with contextlib.suppress(OSError):
                self._preallocator.prepare(self._max)

    def _load_index(self) -> None:
        saved = read_small_or_none(self._files.root / INDEX_FILE_NAME, IndexSnapshot)
        self._index, self._index_saved = LogIndex.of(self._files.segments, self._whole, saved)

    # --- state --------------------------------------------------------------------------------------------------------

    @property
    def segment_bytes(self) -> int:
        """Size of every file of the log."""
        return self._files.segment_bytes

    @property
    def min_offset(self) -> LogOffset:
        """First byte that is still there."""
        return LogOffset(self._files.segments[0].base) if self._files.segments else self._max

    @property
    def max_offset(self) -> LogOffset:
        """End of the log, bytes of a record that is not whole included."""
        return self._max

    @property
    def whole_offset(self) -> LogOffset:
        """End of the last whole record."""
        return self._whole

    @property
    def flushed_offset(self) -> LogOffset:
        """Everything below is on disk; a record boundary."""
        return self._flushed

    @property
    def flush_mode(self) -> FlushMode:
        """Whether acks wait for the disk."""
        return self._flush_mode

    @property
    def ackable_offset(self) -> LogOffset:
        """
        End of the ackable bytes: whole records, in mode sync those on disk.

        Half a record must never count: confirm would stand inside of it, recovery keeps whole records only, and a
        confirmed byte would be gone after a crash.
        """
        return self._flushed if self._flush_mode is FlushMode.SYNC else self._whole

    @property
    def confirm_offset(self) -> LogOffset:
        """Highest confirm that ``note_confirm`` was told, never above ``whole_offset``."""
        return self._confirm

    @property
    def durable_confirm_offset(self) -> LogOffset:
        """The confirm that survives a power cut (R26)."""
        return self._state.confirm_offset

    @property
    def released_offset(self) -> LogOffset:
        """Highest end that was acknowledged to a producer by this replica as master."""
        return self._released

    @property
    def unindexed_bytes(self) -> int:
        """Bytes of whole records that the index has not seen yet."""
        return self._whole - self._index.offset

    @property
    def history(self) -> EpochHistory:
        """Epochs of the bytes that are there."""
        return self._files.history

    @property
    def producers(self) -> ProducerTable:
        """Numbers of the producers whose messages are in the log (R18)."""
        return self._index.producers

    @property
    def queues(self) -> QueueOffsets:
        """Next offset of every queue (R19)."""
        return self._index.queues

    def is_record_boundary(self, offset: LogOffset) -> bool:
        """Whether a record starts at ``offset``, or it is the end of the log."""
        if offset in (self._max, self._whole):
            return True
        segment = self.reader.segment_of(offset) if offset < self._whole else None
        if segment is None:
            return False
        start = max(self._index.boundary_at_or_below(offset), segment.base)
        return walk(segment.view, start - segment.base, offset - segment.base, []) == offset - segment.base

    def region(self, offset: LogOffset, length_max: int) -> FileRegion | None:
        """Bytes from ``offset`` on, cut at the end of the log and of the segment; None if there are none."""
        segment = self.reader.segment_of(offset) if offset < self._max else None
        if segment is None:
            return None
        length = min(length_max, self._max - offset, segment.end - offset)
        return FileRegion(fd=segment.fd, position=offset - segment.base, length=length)

    # --- HA ----------------------------------------------------------------------------------------------------------

    def receive_view(self, length_max: int) -> memoryview:
        """
        Writable bytes at ``max_offset``, cut at the end of the segment; never empty. Raises ``OSError``: disk full.
        """
        segment = self._segment_with_room()
        at = self._max - segment.base
        return segment.view[at : at + min(length_max, segment.size - at)]

    def commit_received(self, length: int) -> None:
        """
        The first ``length`` bytes of the last view are now part of the log.

        Raises ``RecordError``: no records, or damaged ones; nothing of them, or of the record they continue, was taken.
        """
        segment = self._files.segments[-1]
        end = self._max - segment.base + length
        try:
            whole = self._whole_end(segment, end)
        except RecordError:
            # They are in the map: a start after a crash would take whole ones for ours (D13), under a wrong epoch. The
            # part before them goes too: with the flipped bit in it, each later link would fail behind it.
            segment.zero(self._whole - segment.base, end)
            self._max = self._whole
            raise
        self._max = LogOffset(segment.base + end)
        self._whole = LogOffset(segment.base + whole)
        self.request_flush(self._whole)

    def _whole_end(self, segment: LogSegment, end: int) -> int:
        # A master's disk changed a bit of a record. Copied unread, it would be on every replica that comes back.
        whole = sound_end(segment, self._whole - segment.base, end)
        # Records do not cross segments. Half a record at the end of one can never become whole: nothing behind it would
        # ever be acked, and confirm would stand still without an error.
        if end == segment.size and whole != end:
            raise RecordError(f"the record at {segment.base + whole} does not end with its segment")
        return whole

    def find_damage(self, start: LogOffset, bytes_max: int) -> str:
        """Blocking, not beside a cut. The first damage in ``bytes_max`` from ``start``, a boundary, on; empty: none."""
        return find_damage(self._files.segments, start, min(self._whole, start + bytes_max))

    def record_epoch(self, entry: EpochEntry) -> None:
        """
        Blocking, milliseconds. The entry is durable on return; its start is the end of the log (R9, R12).

        Raises:
            EpochOrderError: it does not grow. ValueError: its start is not the end of the log. OSError: the disk.
        """
        # An empty log may begin in the middle of an epoch: the master has no older bytes of it any more.
        is_first = not self._files.history and self._max == self.min_offset and entry.start_offset < self._max
        # Epoch 2 from 900 in a log that ends at 950 would relabel 50 bytes of epoch 1. Another replica has other bytes
        # under epoch 1 there, and the handshake, which compares labels, would find nothing to cut (R9).
        if entry.start_offset != self._max and not is_first:
            raise ValueError(f"epoch {entry.epoch} would start at {entry.start_offset}, the log ends at {self._max}")
        history = self._files.history.appended(entry)
        # The disk first. With the entry in memory alone, bytes of epoch 2 would be acked, and after a crash found under
        # epoch 1.
        self._files.epochs.save(history)
        self._files.history = history

    # --- room ---------------------------------------------------------------------------------------------------------

    def is_room_ready(self, length: int) -> bool:
        """Whether the next ``length`` bytes need no wait for the disk; if not, ``subscribe_room`` says when to ask."""
        segments = self._files.segments
        left = segments[-1].end - self._max if segments else 0
        if left >= length + BLANK_BYTES_MIN or self._preallocator.is_ready or self._flusher is None:
            return True
        self._preallocator.request()
        self._flusher.request_chores()
        return False

    @property
    def room_bytes(self) -> int:
        """How many bytes of records can be appended without asking the disk for more."""
        segments = self._files.segments
        left = segments[-1].end - self._max if segments else 0
        return left + (self._files.segment_bytes if self._preallocator.spare is not None else 0)

    def subscribe_room(self, on_room: Callable[[], object]) -> None:
        """``on_room`` runs on the loop thread whenever the next segment was made, or could not be."""
        self._on_room.append(on_room)

    def _tell_room(self) -> None:
        for on_room in self._on_room:
            on_room()

    # --- appending ---------------------------------------------------------------------------------------------------

    def begin_run(self, *, stored_at_ms: int) -> None:
        """Start one append run. Raises ``IndexBehindError``: the index has not seen the whole log, or half a record."""
        # A slave that was elected in the middle of a burst has records that the index has not seen. The next message
        # would get a queue offset that one of them has already, and a duplicate of one of them would be appended. The
        # role shell lets the index catch up before it prepares a reign; this is the second guard.
        if self._index.offset != self._max:
            raise IndexBehindError(
                f"the log ends at {self._max}, whole records at {self._whole}, index at {self._index.offset} (R19)"
            )
        self._index.note_boundary(self._max)
        self._stored_at_ms = stored_at_ms

    def ensure_room(self, length: int) -> None:
        """
        The next ``length`` bytes will lie in one segment. Raises ``OSError``, ``RecordError`` if none is that large.
        """
        size = self._files.segment_bytes
        if length + BLANK_BYTES_MIN > size:
            raise RecordError(f"{length} bytes do not fit into a segment of {size}; send less or raise segment_bytes")
        segments = self._files.segments
        if segments and self._max < segments[-1].end:
            last = segments[-1]
            space = last.end - self._max
            if length + BLANK_BYTES_MIN <= space:
                return
            # The next segment first: if the disk is full, this one keeps its room for smaller messages. And never
            # without the blank: a start after a crash reads zeros there as a torn tail, and cuts the segments behind.
            following = self._preallocator.grow(self._max)
            pack_blank(last.view, self._max - last.base, space)
        else:
            following = self._preallocator.grow(self._max)
        self._max = self._whole = LogOffset(following.base)
        self._index.offset = self._max

    def append(self, draft: Draft) -> tuple[int, int]:
        """
        Copy one record behind the end; returns its physical and its queue offset.

        Raises, with nothing written:
            RecordError: the record is too large for a segment or one of its fields for the format.
            OSError: the next segment could not be made.
        """
        total = record_bytes(draft, self._store_host)
        segments = self._files.segments
        if not segments or total + BLANK_BYTES_MIN > segments[-1].end - self._max:
            self.ensure_room(total)
        # Asked for again: a deletion may have put another list in its place (``deletion``, rule 3), and the next
        # segment is in the newer one alone.
        segment = self._files.segments[-1]
        offset = self._max
        queue_offset = place_record(
            segment, self._index, draft, offset,
            total_bytes=total, stored_at_ms=self._stored_at_ms, store_host=self._store_host,
        )  # fmt: skip
        self._max = LogOffset(offset + total)
        return offset, queue_offset

    def append_run(
        self, draft: Draft, messages: Sequence[BatchItem], stamp: ProducerStamp | None
    ) -> tuple[list[int], int]:
        """
        Append messages of one queue, all in one segment: their physical offsets, and the queue offset of the first.

        ``draft`` gives what they share, each message body, properties and flag; ``stamp`` is that of the first, and
        each next message has the next sequence. Raises as ``append``, with nothing written.
        """
        self.ensure_room(run_bytes(draft, messages, self._store_host))
        starts, queue_offset, self._max = place_run(
            self._files.segments[-1], self._index, draft, messages, self._max,
            stamp=stamp, stored_at_ms=self._stored_at_ms, store_host=self._store_host,
        )  # fmt: skip
        return starts, queue_offset

    def end_run(self) -> LogOffset:
        """Publish the run: returns the new ``max_offset``. Nothing is synced."""
        self._whole = self._index.offset = self._max
        self._index.producers.advance(self._max)
        self.request_flush(self._max)
        return self._max

    @property
    def index(self) -> LogIndex:
        """Whoever reads the records from its ``offset`` on, up to ``whole_offset``, lets it take them."""
        return self._index

    def extend_index(self, budget_bytes: int) -> int:
        """Let the index follow the received bytes, at most about ``budget_bytes``; returns how many are left."""
        start = self._index.offset
        end = self._whole
        if start + budget_bytes < end:
            end = LogOffset(self.reader.run(start, end, budget_bytes)[2])
        self._index.extend(self._files.segments, end)
        return self._whole - end

    def _segment_with_room(self) -> LogSegment:
        segments = self._files.segments
        return self._preallocator.grow(self._max) if not segments or self._max == segments[-1].end else segments[-1]

    # --- durability --------------------------------------------------------------------------------------------------

    def note_confirm(self, confirm: LogOffset, released: LogOffset) -> None:
        """Remember both; the flush thread makes them durable within its interval. Neither ever falls, but for a cut."""
        # A slave hears of a confirm beyond its own end. Remembered as it is (1000 by a log that ends at 900), it would
        # isolate this replica at its next handshake: a loss below its own confirm that never happened (R26). Beyond the
        # last whole record, a kill inside a record would look like lost bytes to the next start.
        before, self._confirm = self._confirm, max(self._confirm, min(confirm, self._whole))
        self._released = max(self._released, min(released, self._whole))
        if self._confirm > before:
            for on_confirmed in self._on_confirmed:
                on_confirmed()

    def subscribe_confirmed(self, on_confirmed: Callable[[], object]) -> None:
        """``on_confirmed`` runs, within ``note_confirm``, whenever ``confirm_offset`` has grown: it only takes note."""
        self._on_confirmed.append(on_confirmed)

    def request_flush(self, offset: LogOffset) -> None:
        """Ask the flush thread for everything below ``offset``."""
        if self._flusher is None:
            return
        self._flusher.request(offset)
        if self._preallocator.is_due(self._max):
            self._flusher.request_chores()

    def flush_turn(self) -> None:
        """Blocking. One round of the flush, for a log without a flush thread (``on_flush_due``)."""
        if self._flusher is not None:
            self._flusher.turn()

    def sync_before_acks(self) -> None:
        """Mode sync from here on; never back."""
        if self._flush_mode is not FlushMode.SYNC:
            self._flush_mode = FlushMode.SYNC
            if self._flusher is not None:
                self._flusher.sync_at_once()

    def subscribe_flushed(self, on_flushed: Callable[[LogOffset], None]) -> None:
        """``on_flushed`` runs on the loop thread with each new ``flushed_offset``."""
        self._on_flushed.append(on_flushed)

    @property
    def disk_error(self) -> OSError | None:
        """Why the next segment or a checkpoint could not be written lately; None = it could."""
        return self._flusher.chore_error if self._flusher is not None else None

    def _note_flushed(self, flushed: LogOffset, generation: int) -> None:
        """Runs on the loop. A sync that ended before a cut says nothing about the bytes that came after it."""
        # Synced up to 900, posted to the loop; meanwhile cut to 500 and filled with the new master's bytes up to 900:
        # without the generation they would be acked as on disk.
        if generation != self._generation or flushed <= self._flushed:
            return
        self._flushed = flushed
        if self._index.offset - self._index_saved >= INDEX_STEP_BYTES and self._index_pending is None:
            self._index_pending = self._index.saved()
        for on_flushed in self._on_flushed:
            on_flushed(flushed)

    def _sync(self) -> LogOffset:
        """On the flush thread."""
        with self._disk:
            # Read before the first sync: what the loop appends during it is not known to be on disk.
            target = self._whole
            for segment in tuple(self._files.segments):
                if segment.end > self._synced and segment.base < target:
                    segment.sync()
            self._synced = target
            self._synced_generation = self._generation
            return target

    def _publish_flushed(self, flushed: LogOffset) -> None:
        """On the flush thread."""
        self._post(partial(self._note_flushed, flushed, self._synced_generation))

    def _do_chores(self) -> None:
        """Runs on the flush thread. Raises ``OSError``; nothing depends on it having worked."""
        with self._disk:
            self._store_state()
            pending = self._index_pending
            # Not ahead of the records: after a power cut a snapshot at 900 beside a log that was cut to 800 and grew to
            # 950 again passes the check of ``_load_index``, and counts records that were never there.
            if pending is not None and pending.offset <= self._synced:
                write_small(self._files.root / INDEX_FILE_NAME, pending)
                self._index_saved = pending.offset
                self._index_pending = None

    def _prepare_segment(self) -> None:
        """Runs on the flush thread, before its sync: a busy disk must not make the loop wait for the next segment."""
        with self._disk:
            self._preallocator.prepare(self._max)

    def _ends(self) -> tuple[LogOffset, LogOffset]:
        return self._whole, min(self._confirm, self._synced)

    def _store_state(self) -> None:
        # ``_synced``, not ``_whole``: recovery trusts what lies below without reading it, so an offset that is not on
        # disk yet would let a page that a power cut took pass as a record.
        state = LogState(
            checked_offset=self._synced,
            confirm_offset=self._confirm,
            released_offset=self._released,
            start_offset=max(self.min_offset, self.front.deleted_to),
            whole_from=self.front.whole_from,
            boot_id=self._boot_id,
        )
        if state == self._state:
            return
        write_state(self._files.root, state, stored_at_ms=self._stored_at_ms)
        # Last: ``durable_confirm_offset`` promises what a power cut leaves, and R26 relies on it.
        self._state = state

    # --- cutting -----------------------------------------------------------------------------------------------------

    def cut(self, offset: LogOffset, reason: CutReason, explanation: str = "") -> None:
        """
        Blocking. Mark, quarantine, cut, zero, drop, sync, clear the mark (R20); index and history are cut as well.

        Raises:
            CutRefusedError: ``offset`` is no record boundary or outside of the log. OSError: the disk. Nothing was cut.
            CutUnfinishedError: it failed half-way; the process must end, and ``open`` finishes the cut.
        """
        if not self.min_offset <= offset <= self._max:
            raise CutRefusedError(f"cut at {offset}: the log is [{self.min_offset}, {self._max})")
        # Inside a record the log would end with half of it; the next append behind that half is lost at the next start,
        # which keeps whole records only.
        if not self.is_record_boundary(offset):
            raise CutRefusedError(f"cut at {offset}: no record starts there")
        is_empty = offset == self.min_offset
        if offset < self._max:
            # A log that loses all its segments still knows where it begins.
            begin = offset if is_empty else None
            self._cut(offset, reason, explanation, begin, whole_from=self.front.whole_from)
            return
        # No byte goes, but an entry without one does: the master's history may not have it (W4).
        history = EpochHistory() if is_empty else self._files.history.truncated_suffix(offset)
        if history != self._files.history:
            self._files.epochs.save(history)
            self._files.history = history

    def set_aside(self, start_offset: LogOffset, explanation: str, *, is_whole: bool = True, known_to: int = 0) -> None:
        """
        Blocking. The log from ``known_to`` on goes to quarantine, the rest is deleted; an empty one begins at
        ``start_offset`` (S29), with the master's first byte if it is to be a whole one.

        Raises:
            CutRefusedError: ``start_offset`` is no segment's start. OSError: see ``cut``.
        """
        if start_offset % self._files.segment_bytes:
            raise CutRefusedError(f"a log cannot begin at {start_offset}: segments have {self._files.segment_bytes}")
        whole_from, reason = start_offset if is_whole else 0, CutReason.FULL_RESYNC
        self._cut(self.min_offset, reason, explanation, start_offset, whole_from=whole_from, known_to=known_to)

    def _cut(
        self, at: LogOffset, reason: CutReason, why: str, begin: LogOffset | None, *, whole_from: int, known_to: int = 0
    ) -> None:
        mark = CutMark(
            cut_offset=at,
            end_offset=self._max,
            new_start=begin,
            known_to=LogOffset(known_to),
            reason=reason,
            explanation=why,
            began_at_ms=self._now_ms(),
            state_before=LogState(
                checked_offset=self._flushed,
                confirm_offset=self._confirm,
                released_offset=self._released,
                whole_from=LogOffset(whole_from),
                boot_id=self._boot_id,
            ),
            epochs_before=tuple((entry.epoch, entry.start_offset) for entry in self._files.history.entries),
        )
        with self._disk:
            begin_cut(self._files, mark)
            # From here on the cut happens, now or at the next start. A sync result that is still on its way to the loop
            # belongs to the log before it; a spare made for the old end would be a hole in the folder.
            self._generation += 1
            self._preallocator.discard()
            end = at if begin is None else begin
            if reason is CutReason.FULL_RESYNC:
                self._index = LogIndex(end)
            else:
                # Before the bytes go: the index reads them to find which queue offsets are free again.
                self._index.cut(self._files.segments, end)
            self._index_pending = None
            self._index_saved = min(self._index_saved, end)
            finish_cut(self._files, mark)
            self._state = mark.state_before.clamped(end)
            self.front.was_cut(self._state.whole_from)
            self._confirm, self._released = self._state.confirm_offset, self._state.released_offset
            self._max = self._whole = end
            # Left at 900 after a cut to 500, the next 400 received bytes would be acked as synced, unsynced.
            self._flushed = self._synced = min(self._flushed, end)
            if self._flusher is not None:
                self._flusher.rewind(self._flushed)
            self._prepare_first()

    # --- the end -----------------------------------------------------------------------------------------------------

    def close(self, *, is_clean: bool) -> LogOffset:
        """
        Blocking. Stop the flush thread and unmap; ``is_clean``: sync everything first, and say so to the next start.

        Returns the end. Raises ``OSError``: nothing was said, the next start checks records.
        """
        if self._flusher is not None:
            self._flusher.stop()
        if is_clean:
            # The clean mark says that no record needs a check: half a record behind it would be taken for a whole one.
            if self._whole < self._max:
                self.cut(self._whole, CutReason.TORN_TAIL, "stopped while receiving a record")
            self._sync()
            self.extend_index(self.unindexed_bytes)
            write_small(self._files.root / INDEX_FILE_NAME, self._index.saved())
            self._store_state()
            self._files.epochs.save(self._files.history)
            # Last of all: before the syncs, a power cut in between leaves a mark by which the next start takes pages
            # that are gone for records, unread.
            write_small(self._files.root / CLEAN_FILE_NAME, CleanStop(end_offset=self._max))
        self._preallocator.discard()
        self.front.close_all()
        for segment in self._files.segments:
            segment.close()
        self._files.segments.clear()
        return self._max
