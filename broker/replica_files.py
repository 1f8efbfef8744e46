"""
The small durable files of a replica.

Here: one file per value, written whole, with a version and a checksum. The caller runs all of it on one thread, so that
writes happen in the order in which they were asked for.
Not here: the values' meaning (``broker.core.durable``), the epoch history (``epoch.store``), the log (``broker.log``).

| file | holds | written |
| --- | --- | --- |
| ``marks`` | promised/entered epoch (R9) | before what they allow |
| ``identity.json`` | register code, then the id (S62) | before asking, before using |
| ``view.json`` | the last view of the controllers (R7) | soon after it came |
| ``clean.json`` | the mark of a clean stop (R3a) | last of all; removed before the first append or ack |
| ``store.json`` | the id of this directory (R3b), and its birthmark | once |
| ``lives.json`` | the incarnations of its last starts (R3) | at start, before anything is registered |
| ``revoked.json`` | serial numbers of revoked certificates (R28) | soon after they came |

Rule 1: a file that is there but damaged is an error that names it, never taken for a missing one.
Rule 2: a failed write or sync is raised, never retried here (``node.files``).
Rule 3: the marks are written in place. Every failover waits for them, and a sync that changes neither length nor name
of a file does not wait for the file system's journal, in which the changes of all processes queue. Two slots of one
sector each take turns; a sector is written whole or not at all, so the other slot holds the marks before the last ones.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from rollcall_ha.broker.core.durable import EpochMarks, Identity, ProcessStarts
from rollcall_ha.controller.contract.session import RevokedSerials
from rollcall_ha.controller.contract.values import CleanMark, StoredView
from rollcall_ha.node.files import DirectoryError, atomic_replace, durable_unlink

FILE_VERSION = 1

T = TypeVar("T")


MARKS_FILE_NAME = "marks"
SLOT_BYTES = 512
SLOTS = 2


class StoreMark(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The directory itself: another disk, or a wiped one, is another store (R3b), and so is a copy of it."""

    store_id: str
    birthmark: str = ""
    """That of the marks' file, which is made once and never replaced (rule 3); empty: not known when it was written."""


class _Envelope(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    crc32: int
    value: msgspec.Raw


class DurableFile(Generic[T]):
    """One value in one file. All methods block."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        """Nothing is read yet."""
        self._path = path
        # Built here, by one thread: two that decode a type for the first time at once crash msgspec 0.22.
        self._decode: Callable[[msgspec.Raw], T] = msgspec.json.Decoder(kind).decode

    def load(self) -> T | None:
        """
        The stored value; None = there is no such file.

        Raises ``DirectoryError`` if the file is damaged or of another version.
        """
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return None
        return _open(self._path, raw, self._decode)

    def store(self, value: T) -> None:
        """Durable on return; a crash leaves the old value or the new one. Raises ``OSError``."""
        atomic_replace(self._path, _seal(value))

    def remove(self) -> None:
        """Gone, durably, on return. Raises ``OSError``."""
        durable_unlink(self._path)


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_marks = msgspec.json.Decoder(EpochMarks).decode


def _seal(value: object) -> bytes:
    body = msgspec.json.encode(value)
    envelope = _Envelope(version=FILE_VERSION, crc32=zlib.crc32(body), value=msgspec.Raw(body))
    return msgspec.json.encode(envelope) + b"\n"


def _open(path: Path, raw: bytes, decode: Callable[[msgspec.Raw], T]) -> T:
    try:
        envelope = _decode_envelope(raw)
        if envelope.version != FILE_VERSION:
            raise DirectoryError(f"{path}: version {envelope.version}, this program reads {FILE_VERSION}")
        found = zlib.crc32(envelope.value)
        if found != envelope.crc32:
            raise DirectoryError(f"{path}: checksum is {found}, the file says {envelope.crc32}; {_REMEDY}")
        return decode(envelope.value)
    except msgspec.MsgspecError as error:
        raise DirectoryError(f"{path}: {error}; {_REMEDY}") from error


_REMEDY = "restore it from where it was, or wipe the whole directory and let the replica copy everything again"


class MarksFile:
    """The marks, in place (rule 3). All methods block; for one thread at a time."""

    def __init__(self, path: Path) -> None:
        """Nothing is read yet."""
        self._path = path
        self._descriptor: int | None = None
        self._marks = EpochMarks()
        self._next_slot = 0

    def load(self) -> EpochMarks:
        """
        The marks on disk; without a file nothing was ever promised.

        Raises ``DirectoryError`` if a slot is damaged or of another version: marks never fall, not by rot either.
        """
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return EpochMarks()
        if len(raw) != SLOTS * SLOT_BYTES:
            raise DirectoryError(f"{self._path} has {len(raw)} bytes, expected {SLOTS * SLOT_BYTES}; {_REMEDY}")
        found = EpochMarks()
        for slot in range(SLOTS):
            content = raw[slot * SLOT_BYTES : (slot + 1) * SLOT_BYTES].rstrip(b"\x00")
            marks = _open(self._path, content, _decode_marks)
            # The larger of both: a crash in the middle of a write leaves the older one, which was all that anybody was
            # told.
            if marks.covers(found):
                found, self._next_slot = marks, (slot + 1) % SLOTS
        self._marks = found
        return found

    def store(self, marks: EpochMarks) -> None:
        """Durable on return. Raises ``ValueError`` rather than letting a mark fall (R9), ``OSError``."""
        if self._descriptor is None:
            self._descriptor = self._open()
        # B promised 3, restarts with 2 on its disk, and follows the stale master of 2: its acks release what 3 has cut.
        if not marks.covers(self._marks):
            raise ValueError(f"marks never fall (R9): {self._marks} is on disk, {marks} was asked for")
        content = _seal(marks).ljust(SLOT_BYTES, b"\x00")
        assert len(content) == SLOT_BYTES, "two numbers fit a sector"
        if os.pwrite(self._descriptor, content, self._next_slot * SLOT_BYTES) != SLOT_BYTES:
            raise OSError(f"{self._path}: a sector was not written as a whole")
        # Without the sync a power cut takes the promise with it, after the acks that it allowed.
        os.fdatasync(self._descriptor)
        self._marks = marks
        self._next_slot = (self._next_slot + 1) % SLOTS

    def _open(self) -> int:
        """A descriptor of the file, which is made by a rename, so that it is there with both slots or not at all."""
        self.load()
        if not self._path.exists():
            atomic_replace(self._path, SLOTS * _seal(EpochMarks()).ljust(SLOT_BYTES, b"\x00"))
        return os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)


class ReplicaFiles:
    """All of them, in one directory."""

    def __init__(self, directory: Path) -> None:
        """The directory is claimed by the caller."""
        self.marks_path = directory / MARKS_FILE_NAME
        self.marks = MarksFile(self.marks_path)
        self.identity = DurableFile(directory / "identity.json", Identity)
        self.view = DurableFile(directory / "view.json", StoredView)
        self.clean_mark = DurableFile(directory / "clean.json", CleanMark)
        self.store = DurableFile(directory / "store.json", StoreMark)
        self.starts = DurableFile(directory / "lives.json", ProcessStarts)
        self.revoked = DurableFile(directory / "revoked.json", RevokedSerials)
