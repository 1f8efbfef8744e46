"""
Taking a backup: pages of one controller's state, and of its record, into one file.

Here: which controller is asked, the file. Not here: what a backup has of the state (``controller.core.backups``), the
format (``controller.contract.backups``), judging and restoring it (``controller.runtime``).

Rule 1: everything comes from one controller, at one index.
Rule 2: the file has its name only when it is whole and synced; until then it is ``FILE.part``, with mode 0600 from its
first byte on.
Rule 3: secrets are asked for only if there is a passphrase to encrypt them with; they are never on the disk in clear.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from rollcall_ha.cli import context
from rollcall_ha.cli.options import BackupOptions
from rollcall_ha.cli.output import CommandExit, Format, Mood, Report, fail, print_report, wrong_use
from rollcall_ha.controller.contract.backups import (
    BACKUP_FORMAT,
    BackupEnd,
    BackupHeader,
    BackupPage,
    PartName,
    PartSum,
    SealedHeader,
    encode_document,
    line_of,
)
from rollcall_ha.controller.contract.values import EventRef
from rollcall_ha.node.files import fsync_directory
from rollcall_ha.node.sealing import METHOD, Seal, SealError, new_salt, read_passphrase

if TYPE_CHECKING:
    from rollcall_ha.client.client import Client

CONTACT_AGE_MS_MAX = 5_000
"""A controller that has heard no leader for longer has, perhaps, an old state."""
HISTORY_WAIT_MS_MAX = 10_000
"""For the events of the last entries: they are synced in groups, behind the state."""
_WAIT_MS = 1_000
_PAGE_EVENTS = 500


def backup(file: Path, wanted: BackupOptions, form: Format) -> None:
    """Take one. Raises ``typer.Exit``."""
    if file.exists():
        # An older backup is the only thing that helps if the fleet has gone wrong before this one.
        raise fail(f"rollcall: {file} exists; name another file for each backup", CommandExit.WRONG_USE)
    passphrase = _passphrase(wanted)
    with context.client(form) as asking:
        address = _chosen(asking, wanted.by)
        first = _page(asking, address, None, 0, wanted)
        if first.header.contact_age_ms > CONTACT_AGE_MS_MAX and not wanted.takes_stale:
            raise fail(
                f"rollcall: {first.header.taken_by} has heard no leader for {first.header.contact_age_ms:,} ms: its "
                "state may be old. Take the backup of another controller (--from), or say --stale",
                CommandExit.REFUSED,
            )
        header = msgspec.structs.replace(first.header, has_history=wanted.has_history)
        try:
            with BackupFile(file, header, passphrase) as writing:
                _fill(writing, asking, address, first, wanted)
        except OSError as error:
            told = f"rollcall: {error.filename or file} cannot be written: {error.strerror}; name another file"
            raise fail(told, CommandExit.WRONG_USE) from None
    line = (
        f"OK  {header.sets:,} broker sets at entry {header.index:,}, epochs up to {header.highest_epoch:,}, from "
        f"{header.taken_by}: {file} ({file.stat().st_size:,} bytes)"
    )
    parts = (f"Check it, away from this fleet: rollcall verify {file}",)
    print_report(Report(document=header, verdict=line, mood=Mood.GOOD, parts=parts), form)


def _passphrase(wanted: BackupOptions) -> bytes | None:
    if wanted.has_secrets != (wanted.passphrase_file is not None):
        told = "--with-secrets and --passphrase-file need each other: secrets are never written in clear"
        raise fail(f"rollcall: {told}", CommandExit.WRONG_USE)
    with wrong_use(SealError):
        return None if wanted.passphrase_file is None else read_passphrase(wanted.passphrase_file)


def _chosen(asking: Client, by: str) -> str:
    """The address of the controller that is named, or that has applied most; of equals, one that does not lead."""
    from rollcall_ha.client.errors import Unreachable
    from rollcall_ha.controller.contract.views import ControllerRole

    reached = asking.survey()
    found = [(one.address, one.status.controller) for one in reached if one.status is not None]
    if by:
        named = [address for address, one in found if by in (one.name, one.rest_address, address)]
        if not named:
            told = ", ".join(one.name for _, one in found) or "nobody"
            raise fail(f"rollcall: --from {by}: it does not answer; {told} does", CommandExit.WRONG_USE)
        return named[0]
    if not found:
        raise Unreachable("; ".join(one.trouble for one in reached))
    return max(found, key=lambda one: (one[1].applied_index, one[1].role is not ControllerRole.LEADER))[0]


def _page(asking: Client, address: str, name: str | None, number: int, wanted: BackupOptions) -> BackupPage:
    from rollcall_ha.client.errors import BadAnswer

    params = {"page": str(number), "secrets": "true" if wanted.has_secrets else "false"}
    text = asking.text_from(address, "/v1/backup", params | ({} if name is None else {"backup": name}))
    try:
        return _decode_page(text)
    except msgspec.MsgspecError as error:
        raise BadAnswer(f"the answer is no page of a backup: {error}") from error


def _fill(writing: BackupFile, asking: Client, address: str, first: BackupPage, wanted: BackupOptions) -> None:
    page = first
    while True:
        for item in page.items:
            writing.add(PartName.STATE, bytes(item))
        if page.is_last:
            break
        page = _page(asking, address, page.backup, page.page + 1, wanted)
    if wanted.has_history:
        for line in _history(asking, address, writing.header):
            writing.add(PartName.HISTORY, line)
    writing.finish()


class _Event(msgspec.Struct):
    """The part of an event that is looked at here."""

    term: int
    index: int
    ordinal: int
    chain: str


class _Events(msgspec.Struct, rename="camel"):
    events: tuple[msgspec.Raw, ...]
    next_from: EventRef | None
    gap: str | None = None


_decode_page = msgspec.json.Decoder(BackupPage).decode
_decode_event = msgspec.json.Decoder(_Event).decode
_decode_events = msgspec.json.Decoder(_Events).decode


def _history(asking: Client, address: str, header: BackupHeader) -> Iterator[bytes]:
    """The lines of the record up to the backup's index, as that controller's journal has them."""
    start: EventRef | None = None
    chain, is_first = "", True
    deadline = time.monotonic() + HISTORY_WAIT_MS_MAX / 1000
    while chain != header.chain_head:
        params = {"limit": str(_PAGE_EVENTS)}
        params |= {} if start is None else {"from": str(start)}
        page = _decode_events(asking.text_from(address, "/v1/events", params, wait_ms=_WAIT_MS))
        if page.gap is not None and not is_first:
            raise fail(
                f"rollcall: the record of {header.taken_by} has a hole: {page.gap}. Take the history of another "
                "controller (--from), or the backup without it",
                CommandExit.REFUSED,
            )
        for raw in page.events:
            event = _decode_event(raw)
            if event.index > header.index:
                if chain == header.chain_head:
                    break
                # Read on, the record of a busy fleet never ends, and none of its hashes is the one that is sought.
                raise fail(
                    f"rollcall: the record of {header.taken_by} up to entry {header.index:,} ends with chain "
                    f"{chain or 'none'}, the backup with {header.chain_head}; take the backup of another controller "
                    "(--from), and look at this one with: rollcall verify DIR",
                    CommandExit.REFUSED,
                )
            if is_first and page.gap is not None:
                yield _hole_before(event, page.gap)
            is_first = False
            chain = event.chain
            yield bytes(raw)
        start = page.next_from or start
        if chain != header.chain_head and not page.events and time.monotonic() > deadline:
            raise fail(
                f"rollcall: {header.taken_by} has not all events up to entry {header.index:,} on its disk after "
                f"{HISTORY_WAIT_MS_MAX:,} ms; take the backup of another controller, or without --with-history",
                CommandExit.REFUSED,
            )


def _hole_before(event: _Event, reason: str) -> bytes:
    # As the first line of a segment: what was removed by age is no violation, and is told.
    return msgspec.json.encode(
        {"gap": {"after": None, "toIndex": event.index - 1, "chain": "", "reason": reason}}, order="deterministic"
    )


class BackupFile:
    """The file while it is written (rule 2)."""

    def __init__(self, file: Path, header: BackupHeader, passphrase: bytes | None) -> None:
        self.header = header
        self._file = file
        self._part = file.with_name(file.name + ".part")
        self._sums = {name: PartSum(name) for name in PartName}
        self._lines = 0
        self._is_whole = False
        self._sealed: bytes | None = None
        self._seal: Seal | None = None
        if passphrase is not None:
            salt = new_salt()
            self._sealed = encode_document(SealedHeader(rollcall_backup=BACKUP_FORMAT, sealed=METHOD, salt=salt))
            self._seal = Seal(passphrase, salt, first_line=self._sealed)

    def __enter__(self) -> BackupFile:
        descriptor = os.open(self._part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.fchmod(descriptor, 0o600)  # one that was left over may have had another
        self._out = os.fdopen(descriptor, "wb")
        if self._sealed is not None:
            self._out.write(line_of(self._sealed))
        self.add(PartName.HEADER, encode_document(self.header))
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_whole:
            self._out.flush()
            os.fsync(self._out.fileno())
        self._out.close()
        if not self._is_whole:
            self._part.unlink(missing_ok=True)
            return
        self._part.rename(self._file)
        fsync_directory(self._file.resolve().parent)

    def add(self, part: PartName, document: bytes) -> None:
        """Append ``document`` as the next line of ``part``."""
        self._sums[part].add(document)
        self._write(document, is_last=False)

    def finish(self) -> None:
        """Write the last line, with the sums of all parts: only now may the file get its name."""
        end = BackupEnd(end_of_backup=self._lines, parts=tuple(self._sums[name].part for name in PartName))
        self._write(encode_document(end), is_last=True)
        self._is_whole = True

    def _write(self, document: bytes, *, is_last: bool) -> None:
        self._lines += 1
        if self._seal is not None:
            document = self._seal.close(document, self._lines, is_last=is_last)
        self._out.write(line_of(document))
