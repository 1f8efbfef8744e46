"""Backups of small fleets, sound and doctored: written by the product's own writer."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from rollcall_ha.cli.backup import BackupFile
from rollcall_ha.controller.contract.backups import BackupHeader, PartName, document_of, line_of
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.core.backups import backed_up, header_of
from rollcall_ha.controller.core.snapshot import encode_state
from rollcall_ha.controller.core.state import FleetState

FLEET_NAME = "demo"


def header_for(state: FleetState, *, has_secrets: bool = False) -> BackupHeader:
    return header_of(
        state,
        fleet_name=FLEET_NAME,
        taken_by=ControllerName("c1"),
        taken_at_ms=1_750_000_000_000,
        contact_age_ms=3,
        has_secrets=has_secrets,
    )


def write_backup(
    file: Path,
    state: FleetState,
    records: Sequence[EventRecord] | None = None,
    *,
    header: BackupHeader | None = None,
    passphrase: bytes | None = None,
) -> Path:
    """
    A backup of ``state``, with ``records`` as its history; None: without.

    ``header``: in place of the true one. All sums fit what is written.
    """
    header = header or header_for(state, has_secrets=passphrase is not None)
    header = replace(header, has_history=records is not None)
    with BackupFile(file, header, passphrase) as writing:
        for item in encode_state(backed_up(state, has_secrets=passphrase is not None)):
            writing.add(PartName.STATE, item)
        for record in records or ():
            writing.add(PartName.HISTORY, msgspec.json.encode(record))
        writing.finish()
    return file


def documents(file: Path) -> list[bytes]:
    """Of each line."""
    found = [document_of(line) for line in file.read_bytes().splitlines(keepends=True)]
    return [document for document in found if document is not None]


def rewrite(file: Path, contents: Sequence[bytes]) -> None:
    """The file of these documents, with checksums that fit; its end stays as it was."""
    file.write_bytes(b"".join(map(line_of, contents)))
