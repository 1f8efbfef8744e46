"""
``rollcall verify``: a controller's journal, or exported events, checked line by line, without a controller and without
Java.

Here: reading files in order, and printing. Not here: the rules (``controller.core.verification``), the same over many
fleets by Spark (``analytics.verify``).

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
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import msgspec

from rollcall_ha.controller.core.verification import RecordWalk, Rule, Violation
from rollcall_ha.controller.runtime.journal_retention import load_dropped
from rollcall_ha.controller.runtime.journal_segments import Gap, GapLine, JournalDamaged, list_segments

SHOWN_MAX = 20
EVENTS_DIRECTORY = "events"
_GAP_PREFIX = b'{"gap":'

_decode_gap = msgspec.json.Decoder(GapLine).decode


class _Exported(msgspec.Struct):
    """The part of an answer of GET /v1/events that is checked."""

    events: tuple[msgspec.Raw, ...]


_decode_exported = msgspec.json.Decoder(_Exported).decode


class NothingToRead(ValueError):
    """There is no event where the caller said; the message names the place and what is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line, and where it is."""

    where: str
    text: bytes
    is_last: bool = False
    """The last one of the file that is written to."""


class Wrong(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A rule that a line breaks."""

    where: str
    rule: str
    text: str


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


def verify(path: Path) -> Found:
    """
    Check a data directory of a controller, a folder of segments, or a file of events.

    Raises ``NothingToRead``, ``JournalDamaged`` and ``OSError``.
    """
    walk = RecordWalk()
    notes: list[str] = []
    lines = _of_directory(path, walk, notes) if path.is_dir() else _of_file(path)
    wrong = tuple(islice(_wrong(lines, walk, notes, is_whole=path.is_dir()), SHOWN_MAX))
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
        yield from _lines(segment.path, is_newest=segment is segments[-1])


def _of_file(path: Path) -> Iterator[Line]:
    with path.open("rb") as file:
        head = file.readline()
    # A journal has one event to a line; an export is an object over many, or one line that begins otherwise.
    if head.startswith((b'{"version"', _GAP_PREFIX)):
        yield from _lines(path, is_newest=False)
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
        # Of indented documents, the one brace in the first column; of others, the end of the line.
        end = text.find("\n}", begin) if text.startswith("{\n", begin) else text.find("\n", begin) - 1
        place = len(text) if end < 0 else end + 2
        yield text[begin:place]


def _lines(path: Path, *, is_newest: bool) -> Iterator[Line]:
    with path.open("rb") as file:
        line = file.readline()
        number = 1
        while line:
            following = file.readline()
            yield Line(where=f"{path}:{number}", text=line, is_last=is_newest and not following)
            line, number = following, number + 1


def _wrong(lines: Iterator[Line], walk: RecordWalk, notes: list[str], *, is_whole: bool) -> Iterator[Wrong]:
    for line in lines:
        if line.is_last and not line.text.endswith(b"\n"):
            # It is being written just now, or the power failed: the controller cuts it when it starts.
            notes.append(f"{line.where}: torn, as of a write that has not ended; not looked at")
            continue
        text = line.text.rstrip(b"\n")
        if text.startswith(_GAP_PREFIX):
            yield from _gap(line, text, walk, notes)
            continue
        is_first = walk.events == 0
        for violation in walk.add(text):
            yield Wrong(where=line.where, rule=violation.rule, text=violation.text)
        if is_first and walk.is_begun_inside:
            told = "events before it are not here: no chain leads to it, and proves it"
            # Of a controller's whole journal, what was removed or never seen is on record. Only noted, its beginning
            # could be taken out.
            if is_whole:
                yield Wrong(where=line.where, rule=Rule.CHAIN, text=f"{told}; no removal and no hole is on record")
            else:
                notes.append(f"{line.where}: {told}")


def _gap(line: Line, text: bytes, walk: RecordWalk, notes: list[str]) -> Iterator[Wrong]:
    """Events that this controller never saw. Filled by a peer's, the chain goes on; else it is a hole on record."""
    if not line.where.endswith(":1"):
        # Within a segment events follow one another: a forger would cover what he took out with such a line.
        violation = Violation(rule=Rule.ORDER, text="a gap in the middle of a segment; it stands only at its beginning")
        yield Wrong(where=line.where, rule=violation.rule, text=violation.text)
        return
    try:
        gap: Gap = _decode_gap(text).gap
    except msgspec.MsgspecError as error:
        yield Wrong(where=line.where, rule=Rule.READABLE, text=f"no gap: {error}")
        return
    if walk.chain and walk.chain == gap.chain:
        return
    after = "the beginning" if gap.after is None else f"index {gap.after.index:,}"
    notes.append(f"{line.where}: a hole after {after} up to index {gap.to_index:,}: {gap.reason}")
    walk.skip_to(gap.chain, gap.to_index)


# --- the command -----------------------------------------------------------------------------------------------------


def text_of(found: Found) -> str:
    """As people read it: the verdict first."""
    span = "" if found.first_index is None else f" from index {found.first_index:,} to {found.last_index:,}"
    what = f"{found.events:,} events{span}, {found.elections:,} elections, {found.sets:,} broker sets"
    if found.wrong:
        first = found.wrong[0]
        lines = [f"BROKEN  {first.where}: {first.rule}: {first.text}"]
        lines += [f"        {one.where}: {one.rule}: {one.text}" for one in found.wrong[1:]]
        lines += ["        and perhaps more: it was read up to here"] if len(found.wrong) == SHOWN_MAX else []
        lines.append(f"{what} were read. Compare with another controller's data directory; keep this one as it is")
    else:
        lines = [f"OK  {what}: every rule holds", f"chain {found.chain}"]
    return "".join(f"{line}\n" for line in (*lines, *(f"NOTE  {note}" for note in found.notes)))


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(prog="rollcall verify", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("path", type=Path, help="A controller's data directory, or a file of events.")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args(arguments)
    try:
        found = verify(asked.path)
    except (NothingToRead, JournalDamaged) as error:
        sys.stderr.write(f"rollcall: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"rollcall: {asked.path} cannot be read: {error.strerror}\n")
        return 2
    if asked.json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n")
    else:
        # Names and reasons in a record were chosen by others: printed as they are, they could clear the screen.
        text = text_of(found)
        sys.stdout.write("".join(one if one == "\n" or one.isprintable() else ascii(one)[1:-1] for one in text))
    return 1 if found.wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
