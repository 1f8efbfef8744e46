"""
The small durable files of a replica.

Here: one file per thing to remember, written whole, with a version and a checksum; and the one-thread executor that all
blocking writes of a broker go through, so that they happen in the order in which they were asked for.
Not here: what the values mean (``broker.core.durable``), the epoch history (``epoch.store``), the log (``broker.log``).

| file | holds | written |
| --- | --- | --- |
| ``marks.json`` | promised/entered epoch (R9) | before what they allow |
| ``identity.json`` | register code, then the id (S62) | before asking, before using |
| ``view.json`` | the last view of the controllers (R7) | soon after it came |
| ``clean.json`` | the mark of a clean stop (R3a) | last of all; removed before the first append or ack |
| ``store.json`` | the id of this directory (R3b) | once |

Rule 1: a file that is there but damaged is an error that names it, never taken for a missing one.
Rule 2: a failed write or sync is raised, never retried here (``node.files``).
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from broker.core.durable import Identity, Marks
from controller.contract.commands import CleanMark, StoredView
from node.files import DirectoryError, atomic_replace, durable_unlink

FILE_VERSION = 1

T = TypeVar("T")


class StoreMark(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The directory itself: another disk, or a wiped one, is another store (R3b)."""

    store_id: str


class _Envelope(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    crc32: int
    value: msgspec.Raw


class DurableFile(Generic[T]):
    """One value in one file. All methods block."""

    def __init__(self, path: Path, kind: type[T]) -> None:
        """Nothing is read yet."""
        self._path = path
        self._kind: Any = kind

    def load(self) -> T | None:
        """
        The stored value; None = there is no such file.

        Raises ``DirectoryError`` if the file is damaged or of another version.
        """
        try:
            raw = self._path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            envelope = msgspec.json.decode(raw, type=_Envelope)
            if envelope.version != FILE_VERSION:
                raise DirectoryError(f"{self._path}: version {envelope.version}, this program reads {FILE_VERSION}")
            found = zlib.crc32(envelope.value)
            if found != envelope.crc32:
                raise DirectoryError(f"{self._path}: checksum is {found}, the file says {envelope.crc32}; {_REMEDY}")
            value: T = msgspec.json.decode(envelope.value, type=self._kind)
        except msgspec.MsgspecError as error:
            raise DirectoryError(f"{self._path}: {error}; {_REMEDY}") from error
        return value

    def store(self, value: T) -> None:
        """Durable on return; a crash leaves the old value or the new one. Raises ``OSError``."""
        body = msgspec.json.encode(value)
        envelope = _Envelope(version=FILE_VERSION, crc32=zlib.crc32(body), value=msgspec.Raw(body))
        atomic_replace(self._path, msgspec.json.encode(envelope) + b"\n")

    def remove(self) -> None:
        """Gone, durably, on return. Raises ``OSError``."""
        durable_unlink(self._path)


_REMEDY = "restore it from where it was, or wipe the whole directory and let the replica copy everything again"


class ReplicaFiles:
    """All of them, in one directory."""

    def __init__(self, directory: Path) -> None:
        """The directory is claimed by the caller."""
        self._marks = DurableFile(directory / "marks.json", Marks)
        self.identity = DurableFile(directory / "identity.json", Identity)
        self.view = DurableFile(directory / "view.json", StoredView)
        self.clean_mark = DurableFile(directory / "clean.json", CleanMark)
        self.store = DurableFile(directory / "store.json", StoreMark)

    def load_marks(self) -> Marks:
        """Without a file nothing was ever promised."""
        return self._marks.load() or Marks()

    def store_marks(self, marks: Marks) -> None:
        """Raises ``ValueError`` rather than letting a mark fall (R9), ``OSError``."""
        found = self.load_marks()
        if not marks.covers(found):
            raise ValueError(f"marks never fall (R9): {found} is on disk, {marks} was asked for")
        self._marks.store(marks)
