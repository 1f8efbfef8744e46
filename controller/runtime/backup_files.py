"""
Reading a backup: lines, checksums, decryption, and everything that can be said against it.

Here: ``read_backup``. Not here: the format (``controller.contract.backups``), the rules
(``controller.core.backup_walk``, ``controller.core.verification``), directories (``restore``).

Rule 1: one pass, line by line; of a history of any size a few values of each set are kept. It ends at the first line
that is not as it was written: what follows would only be wrong because of it.
Rule 2: nobody has anything of a backup of which a line is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO

import msgspec

from rollcall_ha.controller.contract.backups import (
    LINE_BYTES_MAX,
    BackupHeader,
    SealedHeader,
    document_of,
    is_backup,
)
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.core.backup_walk import BackupWalk, Told
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.core.verification import RecordWalk, Rule
from rollcall_ha.controller.runtime.record_lines import SHOWN_MAX, Line, Wrong, judged
from rollcall_ha.node.sealing import METHOD, Seal, SealError

_decode_sealed = msgspec.json.Decoder(SealedHeader).decode


class ReadBackup(Frozen):
    """``state`` is there if nothing is ``wrong``."""

    header: BackupHeader | None
    state: FleetState | None
    record: RecordWalk
    end: bytes
    """The last line: it names all the others."""
    notes: tuple[str, ...]
    wrong: tuple[Wrong, ...]
    """The first ``SHOWN_MAX``."""


class _Stopped(Exception):
    """The line cannot be used, nor anything behind it."""

    def __init__(self, rule: str, text: str) -> None:
        """Both as of a violation."""
        super().__init__(text)
        self.rule = rule
        self.text = text


def looks_like_backup(path: Path) -> bool:
    """Raises ``OSError``."""
    with path.open("rb") as file:
        return is_backup(file.read(256))


def read_backup(path: Path, *, passphrase: bytes | None = None, history: BinaryIO | None = None) -> ReadBackup:
    """
    Check a backup; ``history`` gets the lines of its record as they come. Blocks. Raises ``OSError``.

    What ``history`` got must not be used if something is ``wrong`` (rule 2).
    """
    reading = _Reading(path, passphrase, history)
    wrong = list(islice(reading.wrong(), SHOWN_MAX))
    return ReadBackup(
        header=reading.walk.header,
        state=None if wrong else reading.walk.state,
        record=reading.record,
        end=reading.newest,
        notes=tuple(reading.notes),
        wrong=tuple(wrong),
    )


class _Reading:
    """One pass over one file."""

    def __init__(self, path: Path, passphrase: bytes | None, history: BinaryIO | None) -> None:
        self.walk = BackupWalk()
        self.record = RecordWalk()
        self.notes: list[str] = []
        self.newest = b""
        self._path = path
        self._passphrase = passphrase
        self._history = history
        self._number = 0
        self._lines_before = 0
        """1 in an encrypted file, which has a first line of its own."""
        self._pending: list[Wrong] = []

    def wrong(self) -> Iterator[Wrong]:
        """Everything, in the order of reading."""
        try:
            for one in judged(self._record_lines(), self.record, self.notes, is_whole=True):
                yield from self._take()
                yield one
        except _Stopped as stopped:
            yield from self._take()
            yield Wrong(where=self._where(self._number), rule=stopped.rule, text=stopped.text)
            return
        is_sound = not self._pending
        yield from self._take()
        # Judged as a whole only if every line can be believed: else the first complaint would hide what is wrong.
        if is_sound:
            yield from (self._wrong_of(told) for told in self.walk.finish(self.record))

    def _take(self) -> list[Wrong]:
        taken, self._pending = self._pending, []
        return taken

    def _where(self, number: int) -> str:
        return f"{self._path}:{number + self._lines_before}"

    def _wrong_of(self, told: Told) -> Wrong:
        return Wrong(where=self._where(told.number), rule=told.violation.rule, text=told.violation.text)

    def _record_lines(self) -> Iterator[Line]:
        """The lines of the history; those before and behind it are looked at on the way."""
        is_first = True
        for document, is_last in self._documents():
            told = self.walk.add(document, is_last=is_last)
            self._pending += map(self._wrong_of, told)
            if told and (is_last or self._number == 1):
                return  # of another format, nothing else can be read; behind the last line is nothing
            if not self.walk.is_history:
                continue
            if self._history is not None:
                self._history.write(document + b"\n")
            yield Line(where=self._where(self._number), text=document + b"\n", is_first=is_first)
            is_first = False
        if self.walk.header is None or self.walk.end is not None:
            return
        if not self._pending:
            raise _Stopped(Rule.FORMAT, "the file ends with this line: it was cut off")

    def _documents(self) -> Iterator[tuple[bytes, bool]]:
        """Each document in clear, and whether it is the last."""
        with self._path.open("rb") as file:
            seal: Seal | None = None
            line = file.readline(LINE_BYTES_MAX)
            while line:
                following = file.readline(LINE_BYTES_MAX)
                document = self._checked(line)
                if self._number == 0 and (sealed := _sealed(document)) is not None:
                    self._lines_before = 1
                    seal = self._unsealing(sealed, document)
                    line = following
                    continue
                self._number += 1
                if seal is not None:
                    try:
                        document = seal.open(document, self._number, is_last=not following)
                    except SealError as error:
                        raise _Stopped(Rule.CHECKSUM, str(error)) from None
                self.newest = document
                yield document, not following
                line = following

    def _checked(self, line: bytes) -> bytes:
        document = document_of(line)
        if document is None:
            self._number += 1
            raise _Stopped(Rule.CHECKSUM, "the line is not as it was written: it was changed, or cut off")
        return document

    def _unsealing(self, sealed: SealedHeader, document: bytes) -> Seal:
        if sealed.sealed != METHOD:
            raise _Stopped(Rule.FORMAT, f"encrypted by {sealed.sealed!r}, this program knows {METHOD!r}")
        if self._passphrase is None:
            raise _Stopped(Rule.FORMAT, "encrypted: give the passphrase with --passphrase-file")
        try:
            return Seal(self._passphrase, sealed.salt, first_line=document)
        except SealError as error:
            raise _Stopped(Rule.FORMAT, str(error)) from None


def _sealed(document: bytes) -> SealedHeader | None:
    try:
        return _decode_sealed(document)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
