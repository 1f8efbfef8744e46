"""
A backup of the controllers' replicated state: one file of numbered lines.

Here: the documents of the file, its lines and their checksums, the answer that a backup is read by. Not here: reading
the state of a controller (``controller.runtime.backups``), writing the file (``cli.backup``), judging it
(``controller.core.backup_walk``), encryption (``node.sealing``).

Format: each line is the CRC-32 of the rest as 8 hex digits, a blank, a document. Line 1 is the header; then the items
of the state, as snapshots have them; then, if the header says so, lines as an event journal has them; the last line is
the end, with lines, bytes and SHA-256 of each part.
Rule 1: a document that belongs to the file itself is canonical: no byte of it can change without being noticed.
Rule 2: a change of the format has another number; a reader refuses a number that it does not know.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from enum import StrEnum

import msgspec

from rollcall_ha.controller.contract.ids import ControllerName, FleetIncarnation, MasterEpoch
from rollcall_ha.controller.contract.values import Value

BACKUP_FORMAT = 1
MARK = b'{"rollcallBackup":'
"""A header begins with it, behind its checksum."""
LINE_BYTES_MAX = 16 * 1024 * 1024
"""A set of 64 replicas with all that is kept of its past is some 200 KiB."""
_CHECKSUM_DIGITS = 8
_CHECKSUM = re.compile(rb"[0-9a-f]{8} \{")
_ENCODER = msgspec.json.Encoder(order="deterministic")


class PartName(StrEnum):
    HEADER = "header"
    STATE = "state"
    HISTORY = "history"


class BackupHeader(Value, forbid_unknown_fields=True):
    """Line 1: which fleet's state this is, and of when."""

    rollcall_backup: int
    """Version of the format: ``BACKUP_FORMAT``."""
    fleet_name: str
    fleet_incarnation: FleetIncarnation
    feature_level: int
    term: int
    index: int
    """The state was taken after this entry."""
    chain_head: str
    """Hash of the newest event up to ``index``."""
    highest_epoch: MasterEpoch
    """No set of the state has a higher one."""
    sets: int
    taken_by: ControllerName
    taken_at_ms: int
    """UTC of that controller."""
    contact_age_ms: int
    """How long it had not heard of a leader or a majority: the state may be older by that."""
    has_secrets: bool
    has_history: bool = False


class BackupPart(Value, forbid_unknown_fields=True):
    name: PartName
    lines: int
    size_bytes: int
    sha256: str


class BackupEnd(Value, forbid_unknown_fields=True):
    """Last line: without it the file was cut off."""

    end_of_backup: int
    """Lines before this one."""
    parts: tuple[BackupPart, ...]


class SealedHeader(Value, forbid_unknown_fields=True):
    """Line 1 of an encrypted backup; each further line is one of its lines, sealed, as base64."""

    rollcall_backup: int
    sealed: str
    """How the lines are encrypted: ``node.sealing.METHOD``."""
    salt: str


class BackupPage(Value):
    """Answer of GET /v1/backup: some items of the state at one index."""

    backup: str
    """Names the state that is being read, on the controller that gave it."""
    page: int
    header: BackupHeader
    items: tuple[msgspec.Raw, ...]
    is_last: bool


def encode_document(document: BackupHeader | BackupEnd | SealedHeader) -> bytes:
    """Canonical (rule 1)."""
    return _ENCODER.encode(document)


def line_of(document: bytes) -> bytes:
    """A line of the file, with its checksum and its end."""
    return b"%08x %s\n" % (zlib.crc32(document), document)


def document_of(line: bytes) -> bytes | None:
    """The document in a line; None: the line is not as it was written, or is cut off."""
    document = line[_CHECKSUM_DIGITS + 1 : -1]
    return document if line == line_of(document) else None


def is_backup(head: bytes) -> bool:
    """Whether a file that begins so is, or was meant to be, a backup."""
    # Either is enough: of a backup with one wrong byte it shall be said where that is, not that it is no backup.
    return _CHECKSUM.match(head) is not None or MARK[1:-1] in head


class PartSum:
    """One part, as its documents come."""

    def __init__(self, name: PartName) -> None:
        """Before the first one."""
        self._name = name
        self._lines = self._size_bytes = 0
        self._sum = hashlib.sha256()

    def add(self, document: bytes) -> None:
        """The next document of the part."""
        self._lines += 1
        self._size_bytes += len(document)
        # With its end: of "1" and "23" the sum would be that of "12" and "3".
        self._sum.update(document + b"\n")

    @property
    def part(self) -> BackupPart:
        """As the end of the file has it."""
        return BackupPart(name=self._name, lines=self._lines, size_bytes=self._size_bytes, sha256=self._sum.hexdigest())
