"""
The interface of the commit log for the broker process; that for HA, ``ha.ports.ReplicaLog``, is a part of it.

Here: the values of cuts, recovery and checkpoints, and the protocol that ``commit_log.CommitLog`` implements.
Rule 1: methods run on the loop thread and return at once, except those whose docstring begins with *Blocking*: they
write and sync files and run on a one-thread executor, while no other call touches the log.
Rule 2: one run at a time: ``begin_run``, any number of ``append``, ``end_run``; nothing else in between.
Rule 3: bytes below ``ackable_offset`` may be acknowledged: whole records only, so that confirm is always a record
boundary and recovery, which keeps whole records, never ends below it; in flush mode sync only synced ones.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import msgspec

from rollcall_ha.broker.core.producers import ProducerTable
from rollcall_ha.broker.log.queue_offsets import QueueOffsets
from rollcall_ha.broker.log.record import Draft
from rollcall_ha.controller.contract.ids import FlushMode
from rollcall_ha.epoch.model import EpochEntry, LogOffset, MasterEpoch
from rollcall_ha.ha.ports import ReplicaLog


class IndexBehindError(RuntimeError):
    """An append before the index has seen the whole log; nothing was written."""


class CutRefusedError(ValueError):
    """This cut would not leave a log; nothing was changed."""


class CutReason(StrEnum):
    """Why bytes leave the log."""

    TRUNCATION = "truncation"
    """The master's history diverges from ours (handshake)."""
    TORN_TAIL = "torn-tail"
    """Recovery found an incomplete or damaged record."""
    FULL_RESYNC = "full-resync"
    """No common point: the whole log is set aside (S29)."""


class CutPlan(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A cut that was checked but not begun. ``end_offset`` is the end of the log at the time of planning."""

    cut_offset: LogOffset
    end_offset: LogOffset
    reason: CutReason
    is_below_confirm: bool
    """R26: isolate instead, unless an unclean epoch explains it."""
    is_below_released: bool
    """It removes acknowledged bytes: the proof of the failover is refuted."""
    explanation: str = ""

    @property
    def cut_bytes(self) -> int:
        """Length of the tail that goes to quarantine."""
        return self.end_offset - self.cut_offset


class RecoveryReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Findings and repairs of ``open``."""

    was_clean: bool
    """The last stop synced everything and said so."""
    end_offset: LogOffset
    checked_from: LogOffset
    checked_records: int
    torn_bytes: int
    torn_reason: str
    finished_cut: bool
    """An interrupted cut was completed (R20)."""
    dropped_epochs: tuple[MasterEpoch, ...]
    """Epoch entries that began beyond the end (R9)."""
    lost: str
    """Why this log lacks bytes that it had synced or confirmed, with both offsets; empty: it lacks none."""
    damaged: str = ""
    """The first damage of a record near either end of the log; nothing was done about it. Empty: none was found."""
    history_fallback: str | None = None
    """Why the epoch file's backup was used; worth a warning."""
    duration_us: int


class BrokerLog(ReplicaLog, Protocol):
    """The log as the role machine's shell and the put path see it."""

    @property
    def flushed_offset(self) -> LogOffset:
        """Everything below is on disk."""
        ...

    @property
    def whole_offset(self) -> LogOffset:
        """End of the last whole record; below ``max_offset`` while a record is being received."""
        ...

    @property
    def flush_mode(self) -> FlushMode:
        """Whether acks wait for the disk."""
        ...

    @property
    def ackable_offset(self) -> LogOffset:
        """End of the ackable bytes: ``whole_offset``, or ``flushed_offset`` in flush mode sync (rule 3)."""
        ...

    @property
    def confirm_offset(self) -> LogOffset:
        """Highest confirm that ``note_confirm`` was told, never above ``whole_offset``."""
        ...

    @property
    def durable_confirm_offset(self) -> LogOffset:
        """The confirm that survives a power cut (R26)."""
        ...

    @property
    def released_offset(self) -> LogOffset:
        """Highest end that was acknowledged to a producer by this replica as master."""
        ...

    @property
    def unindexed_bytes(self) -> int:
        """Received bytes that the index (queue offsets, producers) has not seen yet; ``begin_run`` needs 0."""
        ...

    @property
    def producers(self) -> ProducerTable:
        """Numbers of the producers whose messages are in the log (R18)."""
        ...

    @property
    def queues(self) -> QueueOffsets:
        """Next offset of every queue (R19)."""
        ...

    def confirmed_queue_end(self, topic: bytes, queue_id: int) -> int:
        """Next offset of a queue, counting confirmed records only; costs reading the others."""
        ...

    def find_damage(self, start: LogOffset, bytes_max: int) -> str:
        """Blocking, not beside a cut. The first damage in ``bytes_max`` from ``start``, a boundary, on; empty: none."""
        ...

    def record_epoch(self, entry: EpochEntry) -> None:
        """
        Blocking, milliseconds. The entry is durable on return; its start is the end of the log (R9, R12).

        Only the first entry of an empty log may start below it: a log may begin in the middle of an epoch.
        """
        ...

    def begin_run(self, *, stored_at_ms: int) -> None:
        """
        Start one append run.

        Raises:
            IndexBehindError: ``unindexed_bytes`` is not 0 (R19), or the last record is not whole: cut it first.
        """
        ...

    def ensure_room(self, length: int) -> None:
        """
        The next ``length`` bytes will lie in one segment (batch messages). Raises ``OSError`` if the disk is full.
        """
        ...

    def append(self, draft: Draft) -> tuple[int, int]:
        """
        Copy one record behind the end; returns its physical and its queue offset.

        Raises:
            RecordError: the record is too large for a segment or one of its fields for the format; nothing was written.
            OSError: the next segment could not be made; nothing was written.
        """
        ...

    def end_run(self) -> LogOffset:
        """Publish the run: returns the new ``max_offset``. Nothing is synced."""
        ...

    def extend_index(self, budget_bytes: int) -> int:
        """Let the index follow the received bytes, at most about ``budget_bytes``; returns how many are left."""
        ...

    def note_confirm(self, confirm: LogOffset, released: LogOffset) -> None:
        """Remember both; the flush thread makes them durable within its interval. Neither ever falls, but for a cut."""
        ...

    def sync_before_acks(self) -> None:
        """Acks wait for the disk from here on, for good: the set has ``flush = sync``."""
        ...

    def request_flush(self, offset: LogOffset) -> None:
        """Ask the flush thread for everything below ``offset``; ``on_flushed`` hears of it once per group."""
        ...

    def subscribe_room(self, on_room: Callable[[], object]) -> None:
        """``on_room`` runs on the loop thread: ask ``is_room_ready`` again, its answer may be another one."""
        ...

    def subscribe_flushed(self, on_flushed: Callable[[LogOffset], None]) -> None:
        """``on_flushed`` runs on the loop thread with each new ``flushed_offset``."""
        ...

    def plan_cut(self, offset: LogOffset, reason: CutReason, explanation: str = "") -> CutPlan:
        """Check a cut. Raises ``CutRefusedError`` if ``offset`` is no record boundary or outside of the log."""
        ...

    def execute_cut(self, plan: CutPlan) -> None:
        """
        Blocking. Mark, quarantine, cut, zero, drop, sync, clear the mark (R20); index and history are cut as well.

        Raises ``CutRefusedError`` if the log moved since the plan, ``OSError`` if the disk refuses: nothing was cut.
        ``CutUnfinishedError`` (``cut``): it failed half-way, the process must end and ``open`` finishes the cut.
        """
        ...

    def set_aside(self, start_offset: LogOffset, explanation: str) -> None:
        """
        Blocking. The whole log goes to quarantine; an empty one begins at ``start_offset``, a segment's start (S29).
        """
        ...
