"""
``rollcall restore``: empty controllers begin with the state of a backup.

Here: which directories may be written, the order of writing, the identity of the restored fleet, printing. Not here:
judging the backup (``backup_files``), the state that they begin with (``controller.core.backups``), what happens when
they start (``controller.core.recovery``, R7).

Rule 1: nothing is written before every line of the backup was judged, and every directory is known to be empty.
Rule 2 (R7): the restored fleet is another one. Its incarnation is made of the backup and of a token that is drawn once
and given to each machine: controllers that were restored from two files, or by two tokens, are no quorum.
Rule 3: a directory becomes a controller's by its last file. Until then it has the mark ``RESTORING``: no controller
starts on it, and the same command begins again.
Exit codes: 0 restored; 1 refused, with the reason; 2 nothing to read, or wrong use.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from rollcall_ha.controller.contract.backups import BackupHeader
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import FleetIncarnation
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.core.backups import restored
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.replication.raft.disk import DirectoryDisk
from rollcall_ha.controller.replication.raft.failstop import exit_process
from rollcall_ha.controller.replication.raft.member import FOUNDING_FILE_NAME
from rollcall_ha.controller.replication.raft.seeding import seed
from rollcall_ha.controller.runtime.backup_files import ReadBackup, looks_like_backup, read_backup
from rollcall_ha.controller.runtime.directories import (
    DIRECTORY_KIND,
    DIRECTORY_VERSION,
    EVENTS_DIRECTORY,
    RAFT_DIRECTORY,
    RESTORING_FILE_NAME,
)
from rollcall_ha.controller.runtime.event_journal import SEGMENT_BYTES_MAX
from rollcall_ha.controller.runtime.journal_segments import Gap, GapLine, segment_path
from rollcall_ha.controller.runtime.verify import found_in, shown, text_of
from rollcall_ha.node.config import FLEET_FILE_NAME, ConfigError, FleetFile, load_fleet_file
from rollcall_ha.node.files import (
    LOCK_FILE_NAME,
    VERSION_FILE_NAME,
    VOLUME_ENTRIES,
    DataDirectory,
    DirectoryError,
    atomic_replace,
    durable_unlink,
    fsync_directory,
)
from rollcall_ha.node.sealing import SealError, read_passphrase
from rollcall_ha.node.terminal import keep_printing, print_json

_TOKEN = re.compile(r"(?P<ms>[1-9][0-9]{12})-[0-9a-f]{16}")
_EMPTY = frozenset({FOUNDING_FILE_NAME, LOCK_FILE_NAME})
"""All that an empty directory may have: what ``rollcall init`` leaves, and the lock of a start that was refused."""
_OURS = frozenset({*_EMPTY, VERSION_FILE_NAME, RESTORING_FILE_NAME, EVENTS_DIRECTORY, RAFT_DIRECTORY})


class Refused(Exception):
    """The backup is not restored; the message has both values and the remedy. Nothing was written."""


class Plan(Frozen):
    """What would be done."""

    config: Path
    document: FleetFile
    directories: dict[str, Path]
    """By controller."""
    token: str
    incarnation: FleetIncarnation
    header: BackupHeader
    state: FleetState
    """That all controllers begin with."""
    event: EventRecord


class Outcome(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What ``--json`` prints."""

    backup: BackupHeader
    is_dry_run: bool
    controllers: dict[str, str]
    """Name and directory of each that was restored here."""
    elsewhere: tuple[str, ...]
    """Controllers of the fleet file that are to be restored by the same token on their machines."""
    token: str
    fleet_incarnation: FleetIncarnation
    begins_at: int


# --- deciding --------------------------------------------------------------------------------------------------------


def new_token() -> str:
    """When it was drawn, and chance: it is the time of the event, on whichever machine it is made."""
    return f"{time.time_ns() // 1_000_000}-{secrets.token_hex(8)}"


def incarnation_of(token: str, end: bytes) -> FleetIncarnation:
    """The restored fleet's own (rule 2); ``end``: the last line of the backup, which names all others."""
    return FleetIncarnation(hashlib.sha256(token.encode() + b"\n" + end).hexdigest()[:32])


def plan(
    config: Path, read: ReadBackup, *, names: Sequence[str] = (), token: str = "", accepts_fleet: str = ""
) -> Plan:
    """
    Judge a backup that was read against the fleet file and its directories. Blocks.

    ``names``: controllers to restore; none: all. ``accepts_fleet``: the backup's incarnation, said by its operator.

    Raises ``Refused``, ``ConfigError``, ``OSError``.
    """
    document = load_fleet_file(config)
    assert read.header is not None
    assert read.state is not None
    header = read.header
    token = token or new_token()
    found = _TOKEN.fullmatch(token)
    if found is None:
        raise ConfigError(
            f"--token {token!r} is none; leave it out on the first machine, and give what that one prints"
        )
    incarnation = incarnation_of(token, read.end)
    if header.fleet_name != document.fleet.name:
        raise Refused(
            f"the backup is of fleet {header.fleet_name!r}, {config} is of {document.fleet.name!r}; its brokers have "
            "certificates of another fleet. Name the fleet file of the fleet that was backed up"
        )
    told = document.fleet.incarnation
    # A fleet of the same name that was founded beside it: its brokers would be told epochs of strangers.
    if told not in (header.fleet_incarnation, incarnation) and accepts_fleet != header.fleet_incarnation:
        raise Refused(
            f"the backup is of fleet incarnation {header.fleet_incarnation}, {config} says {told}. If this fleet was "
            "founded or restored anew since the backup was taken, say so with: --accept-fleet "
            f"{header.fleet_incarnation}"
        )
    chosen = tuple(names) or tuple(document.controllers)
    directories = {name: document.path(document.controller(name).data) for name in chosen}
    for name, directory in directories.items():
        if complaint := complaint_of(directory):
            raise Refused(f"{name}: {complaint}")
    state, event = restored(read.state, incarnation, restored_at_ms=int(found["ms"]))
    return Plan(
        config=config,
        document=document,
        directories=directories,
        token=token,
        incarnation=incarnation,
        header=header,
        state=state,
        event=event,
    )


def complaint_of(directory: Path) -> str:
    """Why a controller must not begin in ``directory``; empty: it may. Blocks. Raises ``OSError``."""
    names = {entry.name for entry in directory.iterdir()} if directory.exists() else set()
    # What a controller has voted and acknowledged is in its directory. Written over, it would vote a second time.
    allowed = _OURS if RESTORING_FILE_NAME in names else _EMPTY
    names -= VOLUME_ENTRIES
    if names <= allowed:
        return ""
    return (
        f"{directory} is not empty (it has {', '.join(sorted(names - allowed))}); only controllers that were never "
        "started are restored. Stop the old controller for good, and move its directory away"
    )


def with_incarnation(text: str, old: str, new: str) -> str:
    """The fleet file with another incarnation, and nothing else changed. Raises ``ConfigError``."""
    line = re.compile(rf'^(\s*incarnation\s*=\s*)(["\']){re.escape(old)}\2', re.MULTILINE)
    changed, count = line.subn(rf"\g<1>\g<2>{new}\g<2>", text)
    if count != 1:
        raise ConfigError(f"the fleet file has {count} lines incarnation = {old!r}; it must have one")
    return changed


# --- writing ---------------------------------------------------------------------------------------------------------


def write(doing: Plan, history: BinaryIO) -> None:
    """
    Restore; durable on return. ``history``: the record of the backup, which may be empty. Blocks.

    Raises ``OSError``, ``DirectoryError``, ``ConfigError``.
    """
    told = doing.document.fleet.incarnation
    if told != doing.incarnation:
        # BEFORE the directories: begun again with the same token, all of this is done again. The other way round a
        # directory that is whole would have a fleet file that is not its own.
        text = with_incarnation(doing.config.read_text(encoding="utf-8"), told, doing.incarnation)
        atomic_replace(doing.config, text.encode(), mode=doing.config.stat().st_mode & 0o777)
    for directory in doing.directories.values():
        _write_directory(directory, doing, history)


def _write_directory(directory: Path, doing: Plan, history: BinaryIO) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    # The mark FIRST (rule 3); then the right to found, which belongs to another fleet.
    atomic_replace(directory / RESTORING_FILE_NAME, f"{doing.token}\n".encode())
    durable_unlink(directory / FOUNDING_FILE_NAME)
    atomic_replace(directory / VERSION_FILE_NAME, f"{DIRECTORY_KIND} {DIRECTORY_VERSION}\n".encode())
    claimed = DataDirectory.claim(directory, kind=DIRECTORY_KIND, version=DIRECTORY_VERSION)
    try:
        for name in (EVENTS_DIRECTORY, RAFT_DIRECTORY):
            folder = directory / name
            folder.mkdir(mode=0o700, exist_ok=True)
            for left in folder.iterdir():  # of a restore that was interrupted
                left.unlink()
        _write_events(directory / EVENTS_DIRECTORY, doing, history)
        seed(DirectoryDisk(directory / RAFT_DIRECTORY), doing.state, exit_process)
        fsync_directory(directory)
        durable_unlink(directory / RESTORING_FILE_NAME)
    finally:
        claimed.release()


class _Index(msgspec.Struct):
    index: int = 0
    """0: of a gap."""


_decode_index = msgspec.json.Decoder(_Index).decode


def _write_events(folder: Path, doing: Plan, history: BinaryIO) -> None:
    """The record: the backup's, or a hole with the hash that it ends with; then the event of the restore."""
    history.seek(0)
    event, header = doing.event, doing.header
    has_history = bool(history.read(1))
    history.seek(0)
    # Without the event nothing would lead from the old fleet to the new one: such a record begins with a hole.
    if has_history:
        newest = _copy_history(folder, history)
        with newest.open("ab") as file:
            _finish(file, msgspec.json.encode(event) + b"\n")
    else:
        gap = Gap(
            after=None,
            to_index=header.index,
            chain=header.chain_head,
            reason=f"restored from a backup of fleet {header.fleet_incarnation}",
        )
        lines = [msgspec.json.encode(GapLine(gap=gap)), msgspec.json.encode(event)]
        with segment_path(folder, gap.to_index + 1).open("wb") as file:
            _finish(file, b"".join(line + b"\n" for line in lines))
    fsync_directory(folder)


def _copy_history(folder: Path, history: BinaryIO) -> Path:
    """In segments of the usual size; returns the newest, which may grow."""
    file: BinaryIO | None = None
    path, newest = folder, 0
    begun: list[bytes] = []
    for line in history:
        index = _decode_index(line).index
        if index == 0:
            begun.append(line)  # a gap: the first event behind it names the segment
            continue
        # At the beginning of an entry only: all of its events are in one segment.
        if file is None or (index != newest and file.tell() >= SEGMENT_BYTES_MAX):
            if file is not None:
                _finish(file, b"")
                file.close()
            path = segment_path(folder, index)
            file = path.open("wb")
            file.writelines(begun)
        file.write(line)
        newest = index
    assert file is not None
    _finish(file, b"")
    file.close()
    return path


def _finish(file: BinaryIO, data: bytes) -> None:
    file.write(data)
    file.flush()
    os.fsync(file.fileno())


# --- the command -----------------------------------------------------------------------------------------------------


def outcome_of(doing: Plan, *, is_dry_run: bool) -> Outcome:
    """What there is to tell."""
    return Outcome(
        backup=doing.header,
        is_dry_run=is_dry_run,
        controllers={name: str(path) for name, path in doing.directories.items()},
        elsewhere=tuple(name for name in doing.document.controllers if name not in doing.directories),
        token=doing.token,
        fleet_incarnation=doing.incarnation,
        begins_at=doing.state.index,
    )


def text_of_outcome(outcome: Outcome, file: Path) -> str:
    """As people read it: what was done, then what is left to do."""
    did = "Would restore" if outcome.is_dry_run else "OK  restored"
    backup = outcome.backup
    lines = [
        f"{did} {', '.join(outcome.controllers)} to entry {backup.index:,}",
        f"{backup.sets:,} broker sets, epochs up to {backup.highest_epoch:,}",
        f"fleet.incarnation {outcome.fleet_incarnation}, from {backup.fleet_incarnation}",
    ]
    if outcome.is_dry_run:
        return "".join(f"{line}\n" for line in lines)
    lines += [
        f"Next, where {name} is, before any controller starts: rollcall restore {file.name} --name {name} "
        f"--token {outcome.token}"
        for name in outcome.elsewhere
    ]
    lines.append("Then start every controller. Each set waits until all of its brokers have reported: rollcall status")
    if not backup.has_secrets:
        lines.append("Tokens were not in the backup: issue them again. See them with: rollcall tokens list")
    lines.append("Certificates that were revoked after the backup are to be revoked again: rollcall certs revoke")
    return "".join(f"{line}\n" for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    keep_printing()
    asked = _parsed(arguments)
    try:
        if not looks_like_backup(asked.file):
            sys.stderr.write(f"rollcall: {asked.file} is no backup; take one with: rollcall backup\n")
            return 2
        passphrase = None if asked.passphrase_file is None else read_passphrase(asked.passphrase_file)
        with tempfile.TemporaryFile() as history:
            read = read_backup(asked.file, passphrase=passphrase, history=history)
            if read.wrong or read.state is None:
                sys.stderr.write(shown(text_of(found_in(read))))
                return 1
            doing = plan(asked.config, read, names=asked.name, token=asked.token, accepts_fleet=asked.accept_fleet)
            if not asked.dry_run:
                write(doing, history)
    except Refused as error:
        sys.stderr.write(f"rollcall: {error}\n")
        return 1
    except (ConfigError, SealError, DirectoryError) as error:
        sys.stderr.write(f"rollcall: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"rollcall: {error.filename or asked.file}: {error.strerror}\n")
        return 2
    outcome = outcome_of(doing, is_dry_run=asked.dry_run)
    if asked.json:
        print_json(outcome)
    else:
        sys.stdout.write(shown(text_of_outcome(outcome, asked.file)))
    return 0


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="rollcall restore", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("file", type=Path, help="A backup.")
    parser.add_argument("--config", type=Path, default=Path(FLEET_FILE_NAME), help="The fleet file.")
    parser.add_argument("--name", action="append", default=[], help="A controller of this machine; repeat it.")
    parser.add_argument("--token", default="", help="As the first machine printed it.")
    parser.add_argument("--accept-fleet", default="", help="Incarnation of the backup, if it is not the fleet file's.")
    parser.add_argument("--passphrase-file", type=Path, help="Of an encrypted backup.")
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
