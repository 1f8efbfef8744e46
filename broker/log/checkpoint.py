"""
The small files beside a commit log: its flushed and confirmed ends, a clean stop, a cut that has begun, the index.

Here: their shapes, bytes and durability. ``checkpoint`` has RocketMQ's format, for its tools; ours carry a CRC and are
the ones that recovery trusts. The index lies in the file ``folds``, the mark of the consume queues in ``folds-mark``.

Rule 1: every file is replaced as a whole and durable on return.
Rule 2: a damaged or missing file is never an error at start: it means the weaker knowledge (check everything, confirm
unknown), except a damaged cut mark, which ``open`` refuses: half a cut may lie behind it.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from rollcall_ha.broker.log.values import CutReason
from rollcall_ha.epoch.model import LogOffset
from rollcall_ha.node.files import atomic_replace

CHECKPOINT_FILE_NAME = "checkpoint"
CHECKPOINT_BYTES = 4096
STATE_FILE_NAME = "rollcall-checkpoint"
CLEAN_FILE_NAME = "clean-stop"
CUT_FILE_NAME = "cut-mark"
INDEX_FILE_NAME = "folds"
FOLDS_FILE_NAME = "folds-mark"
_CHECKPOINT = struct.Struct(">qqqqq")


class CheckpointError(ValueError):
    """A small file is damaged, or of another kind."""


def rocketmq_checkpoint(*, stored_at_ms: int, confirm_offset: int) -> bytes:
    """
    RocketMQ's five numbers. ``stored_at_ms``: store time of the last flushed record, for all three.
    The fourth, of a slave, is how far its master has flushed: not told.
    """
    return _CHECKPOINT.pack(stored_at_ms, stored_at_ms, stored_at_ms, 0, confirm_offset).ljust(CHECKPOINT_BYTES, b"\0")


class LogState(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="log-state"):
    """The durable numbers beside the bytes. ``checked_offset`` is a record boundary in the flushed part."""

    checked_offset: LogOffset = LogOffset(0)
    confirm_offset: LogOffset = LogOffset(0)
    released_offset: LogOffset = LogOffset(0)
    start_offset: LogOffset | None = None
    """First byte of the log; None: not said, as by a cut that has moved it. Segments below it are being deleted."""
    whole_from: LogOffset = LogOffset(0)
    """A log that begins at or below it lacks nothing that its set keeps: older bytes went by age, here or there."""
    boot_id: str = ""
    """Boot of the machine on which this was written; empty: not said."""

    def lost(self, start: LogOffset, end: LogOffset) -> str:
        """The bytes that a log of ``[start, end)`` lacks beside this state, in words; empty if it lacks none."""
        durable = max(self.checked_offset, self.confirm_offset)
        if end < durable:
            return f"the log ends at {end}, its state says that everything up to {durable} was synced or confirmed"
        if self.start_offset is not None and start > self.start_offset:
            return f"the log begins at {start}, its state says {self.start_offset}"
        return ""

    def clamped(self, end: LogOffset) -> LogState:
        """For a log that now ends at ``end``."""
        return LogState(
            checked_offset=min(self.checked_offset, end),
            confirm_offset=min(self.confirm_offset, end),
            released_offset=min(self.released_offset, end),
            whole_from=self.whole_from,
            boot_id=self.boot_id,
        )


class CleanStop(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="clean-stop"):
    """
    Log and epoch list were synced up to ``end_offset`` before this was written: the next start need not check records.

    It proves nothing to the controllers: the proof of R3a is the clean mark of ``broker.replica_files``, which outlives
    starts that append and ack nothing.
    """

    end_offset: LogOffset


class CutMark(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="cut"):
    """A cut that has begun: a start that finds this file finishes it before anything else (R20). Also its manifest."""

    cut_offset: LogOffset
    end_offset: LogOffset
    new_start: LogOffset | None
    """Full resync only: where the empty log begins."""
    known_to: LogOffset = LogOffset(0)
    """Full resync only: bytes below are the master's too, or were; nobody will ask for them."""
    reason: CutReason
    explanation: str
    began_at_ms: int
    state_before: LogState
    epochs_before: tuple[tuple[int, int], ...]
    """(epoch, start) of the whole log, for a human who reads the quarantine."""

    @property
    def quarantine_name(self) -> str:
        """Folder of the cut bytes."""
        return f"{self.began_at_ms}-{self.cut_offset:020d}"


class IndexSnapshot(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="folds"):
    """Queue offsets of the log up to ``offset``, which was on disk when this was written. File ``folds``."""

    offset: LogOffset
    queues: tuple[tuple[bytes, int, int, int], ...]


class FoldsMark(msgspec.Struct, frozen=True, kw_only=True, rename="camel", tag="folds-mark"):
    """
    The consume queues of the records below ``offset``: their files had these units when this was written.

    A cut lowers ``offset``: units of records at or behind it are taken back by the next start.
    """

    offset: LogOffset
    queues: tuple[tuple[bytes, int, int, int], ...]
    """(topic, queue id, first, next)."""
    told_from: int = 0
    told_at: int = 0
    """Of the newest whole telling below ``offset`` (``told_queues``): its ``since``, and where it ended."""
    delivered: tuple[tuple[LogOffset, tuple[int, ...]], ...] | None = None
    """
    For some places in the log, by level, the next delayed message to deliver (``broker.folds.delivered``); those beyond
    ``offset`` are of a longer log. None: not said, by a program that delays none.
    """


Small = TypeVar("Small", LogState, CleanStop, CutMark, IndexSnapshot, FoldsMark)

# Built with the module: two threads that decode a type for the first time at once crash msgspec 0.22.
_DECODERS: dict[type, msgspec.json.Decoder[Any]] = {
    kind: msgspec.json.Decoder(kind) for kind in (LogState, CleanStop, CutMark, IndexSnapshot, FoldsMark)
}


def write_small(path: Path, value: LogState | CleanStop | CutMark | IndexSnapshot | FoldsMark) -> None:
    """Replace ``path``; durable on return. Raises ``OSError``."""
    raw = msgspec.json.encode(value)
    atomic_replace(path, b"%08x %s\n" % (zlib.crc32(raw), raw), mode=0o644)


def write_state(root: Path, state: LogState, *, stored_at_ms: int) -> None:
    """The state, then RocketMQ's file of it; both durable on return. Raises ``OSError``."""
    write_small(root / STATE_FILE_NAME, state)
    rocket = rocketmq_checkpoint(stored_at_ms=stored_at_ms, confirm_offset=state.confirm_offset)
    atomic_replace(root / CHECKPOINT_FILE_NAME, rocket, mode=0o644)


def read_small(path: Path, kind: type[Small]) -> Small | None:
    """
    The value, None if there is no such file.

    Raises:
        CheckpointError: it is damaged or of another kind.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    crc, _, raw = data.rstrip(b"\n").partition(b" ")
    try:
        # A flipped bit in ``checkedOffset`` still parses; recovery would skip that many records unread.
        if int(crc, 16) != zlib.crc32(raw):
            raise CheckpointError(f"{path}: its CRC does not match")
        small: Small = _DECODERS[kind].decode(raw)
    except (ValueError, msgspec.MsgspecError) as error:
        raise CheckpointError(f"{path}: {error}") from error
    return small


def read_small_or_none(path: Path, kind: type[Small]) -> Small | None:
    """Rule 2: damaged counts as absent."""
    try:
        return read_small(path, kind)
    except CheckpointError:
        return None
