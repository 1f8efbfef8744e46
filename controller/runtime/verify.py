"""
``rollcall verify``: a controller's journal, exported events or a backup, checked line by line, without a controller and
without Java.

Here: which files are read, in order, and printing. Not here: their lines (``record_lines``, ``backup_files``), the
rules (``controller.core.verification``), the same over many fleets by Spark (``analytics.checks.verify``).

Rule 1: nothing is written, also no torn line is cut: the controller may be running.
Rule 2: one pass, line by line: of a journal of any size, a few values of each set are kept.
Rule 3: the first wrong line is named by file and line. What follows may only be wrong because of it, so at most
``SHOWN_MAX`` are shown.
Exit codes: 0 every rule holds; 1 a rule is broken; 2 nothing to read, or wrong use.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import msgspec

from rollcall_ha.controller.contract.backups import BackupHeader
from rollcall_ha.controller.core.verification import RecordWalk
from rollcall_ha.controller.runtime.backup_files import ReadBackup, looks_like_backup, read_backup
from rollcall_ha.controller.runtime.directories import EVENTS_DIRECTORY
from rollcall_ha.controller.runtime.journal_retention import load_dropped
from rollcall_ha.controller.runtime.journal_segments import JournalDamaged, list_segments
from rollcall_ha.controller.runtime.record_lines import GAP_PREFIX, SHOWN_MAX, Line, Wrong, judged, lines_of
from rollcall_ha.node.sealing import SealError, read_passphrase
from rollcall_ha.node.terminal import keep_printing, print_json


class _Exported(msgspec.Struct):
    """The part of an answer of GET /v1/events that is checked."""

    events: tuple[msgspec.Raw, ...]


_decode_exported = msgspec.json.Decoder(_Exported).decode


class NothingToRead(ValueError):
    """There is no event where the caller said; the message names the place and what is looked for."""


class Found(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What ``--json`` prints."""

    events: int
    elections: int
    sets: int
    first_index: int | None
    last_index: int | None
    chain: str
    """Hash of the last event; another controller's journal must have it too."""
    notes: tuple[str, ...]
    """What is missing, and no violation."""
    wrong: tuple[Wrong, ...]
    """The first ``SHOWN_MAX``."""
    backup: BackupHeader | None = None
    """Set if it is one, and its header can be read."""


def verify(path: Path, *, passphrase: bytes | None = None) -> Found:
    """
    Check a data directory of a controller, a folder of segments, a file of events, or a backup.

    Raises ``NothingToRead``, ``JournalDamaged`` and ``OSError``.
    """
    if path.is_file() and looks_like_backup(path):
        return found_in(read_backup(path, passphrase=passphrase))
    walk = RecordWalk()
    notes: list[str] = []
    lines = _of_directory(path, walk, notes) if path.is_dir() else _of_file(path)
    wrong = tuple(islice(judged(lines, walk, notes, is_whole=path.is_dir()), SHOWN_MAX))
    if not walk.events and not wrong:
        raise NothingToRead(f"{path} holds no event; name a controller's data directory, or a file of events as JSON")
    return Found(
        events=walk.events,
        elections=walk.elections,
        sets=walk.sets,
        first_index=walk.first_index,
        last_index=walk.last_index,
        chain=walk.chain,
        notes=tuple(notes),
        wrong=wrong,
    )


def found_in(read: ReadBackup) -> Found:
    """The same of a backup."""
    record = read.record
    return Found(
        events=record.events,
        elections=record.elections,
        sets=record.sets,
        first_index=record.first_index,
        last_index=record.last_index,
        chain=record.chain or (read.header.chain_head if read.header is not None else ""),
        notes=read.notes,
        wrong=read.wrong,
        backup=read.header,
    )


def _of_directory(path: Path, walk: RecordWalk, notes: list[str]) -> Iterator[Line]:
    directory = path / EVENTS_DIRECTORY if (path / EVENTS_DIRECTORY).is_dir() else path
    segments = list_segments(directory)
    if not segments:
        raise NothingToRead(
            f"{directory} has no events-*.jsonl; name a controller's data directory, as data/c1, or a file of events"
        )
    dropped = load_dropped(directory)
    if dropped is not None:
        notes.append(f"{dropped.events:,} events up to index {dropped.last.index:,} were removed by age or size")
        # The rest goes on from their end; without it, its first line would have no chain to continue.
        walk.begin_after(dropped.chain, dropped.last)
    for segment in segments:
        yield from lines_of(segment.path, is_newest=segment is segments[-1])


def _of_file(path: Path) -> Iterator[Line]:
    with path.open("rb") as file:
        head = file.readline()
    # A journal has one event to a line; an export is an object over many, or one line that begins otherwise.
    if head.startswith((b'{"version"', GAP_PREFIX)):
        yield from lines_of(path, is_newest=False)
        return
    number = 0
    try:
        for page in _documents(path.read_text(encoding="utf-8")):
            for raw in _decode_exported(page).events:
                number += 1
                # As it was hashed: ``rollcall events -o json`` breaks it into lines, and escapes what a terminal obeys.
                text = msgspec.json.encode(msgspec.json.decode(raw))
                yield Line(where=f"{path}: event {number}", text=text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        yield Line(where=f"{path}: after event {number}", text=f"no events: {error}".encode())


def _documents(text: str) -> Iterator[str]:
    """Each answer of several that were appended to one file, as ``rollcall events --by`` prints them."""
    place = 0
    while (begin := text.find("{", place)) >= 0:
        # An indented document ends with the one brace in the first column, another with its line.
        end = text.find("\n}", begin) if text.startswith("{\n", begin) else text.find("\n", begin) - 1
        place = len(text) if end < 0 else end + 2
        yield text[begin:place]


# --- the command -----------------------------------------------------------------------------------------------------


_REMEDIES = (
    "Compare with another controller's data directory; keep this one as it is",
    "Take another backup; of this one nothing should be restored",
)


def _backup_line(backup: BackupHeader) -> str:
    secrets = "with" if backup.has_secrets else "without"
    return (
        f"backup of fleet {backup.fleet_name} ({backup.fleet_incarnation}), {backup.sets:,} broker sets at entry "
        f"{backup.index:,} of term {backup.term}, epochs up to {backup.highest_epoch:,}, level {backup.feature_level}, "
        f"{secrets} secrets"
    )


def text_of(found: Found) -> str:
    """As people read it: the verdict first."""
    span = "" if found.first_index is None else f" from index {found.first_index:,} to {found.last_index:,}"
    what = f"{found.events:,} events{span}, {found.elections:,} elections, {found.sets:,} broker sets"
    if found.wrong:
        first = found.wrong[0]
        lines = [f"BROKEN  {first.where}: {first.rule}: {first.text}"]
        lines += [f"        {one.where}: {one.rule}: {one.text}" for one in found.wrong[1:]]
        lines += ["        and perhaps more: it was read up to here"] if len(found.wrong) == SHOWN_MAX else []
        lines.append(f"{what} were read. {_REMEDIES[found.backup is not None]}")
    elif found.backup is not None:
        lines = [f"OK  {_backup_line(found.backup)}: every rule holds", f"chain {found.chain}"]
        lines += [what] if found.backup.has_history else ["NOTE  no history: of the record, its last hash is known"]
    else:
        lines = [f"OK  {what}: every rule holds", f"chain {found.chain}"]
    return "".join(f"{line}\n" for line in (*lines, *(f"NOTE  {note}" for note in found.notes)))


def shown(text: str) -> str:
    """``text`` for a terminal."""
    # Names and reasons in a record were chosen by others: printed as they are, they could clear the screen.
    return "".join(one if one == "\n" or one.isprintable() else ascii(one)[1:-1] for one in text)


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    keep_printing()
    parser = argparse.ArgumentParser(prog="rollcall verify", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("path", type=Path, help="A controller's data directory, a file of events, or a backup.")
    parser.add_argument("--passphrase-file", type=Path, help="Of an encrypted backup.")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    try:
        passphrase = None if asked.passphrase_file is None else read_passphrase(asked.passphrase_file)
        found = verify(asked.path, passphrase=passphrase)
    except (NothingToRead, JournalDamaged, SealError) as error:
        sys.stderr.write(f"rollcall: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"rollcall: {asked.path} cannot be read: {error.strerror}\n")
        return 2
    if asked.json:
        print_json(found)
    else:
        sys.stdout.write(shown(text_of(found)))
    return 1 if found.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
