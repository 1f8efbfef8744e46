"""
How anything that the CLI says is put on the screen: numbers, ages, tables and the formats.

Here: formatting of single values, ``Report`` and printing it. Not here: what a command shows (``tables``,
``decisions``).

Rule 1: one verdict line first; then tables; then footers. A part that says nothing is left out.
Rule 2: numbers are right-aligned with thousands separators; unknown is a word, never -1.
Rule 3: ``json`` and ``yaml`` are the answer of REST with what a reader needs beside it (``for_programs``): its keys are
those of ``controller.contract.views`` with the same raw integers, ``format`` says in which version, and beside each
instant in milliseconds stands the same in ISO 8601. Keys come, and neither go nor change within a version (adr/0018).
Rule 4: colour only on a terminal. ``tsv`` has one header line per table and no alignment; its numbers are plain, sizes
and offsets in bytes, durations and ages in seconds; a value that is unknown or does not apply is empty. ``name`` has
what other commands take, one to a line.
Rule 5: text is shown, never obeyed: brokers choose their names, and operators read them on a terminal.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import IntEnum, StrEnum
from itertools import chain, zip_longest
from typing import TextIO

import msgspec
import typer
from msgspec.structs import replace

from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.node.terminal import OBEYED, can_show, for_stream, harmless, json_for


class CommandExit(IntEnum):
    DONE = 0
    REFUSED = 1
    WRONG_USE = 2
    NO_LEADER = 3
    UNREACHABLE = 4
    OUTCOME_UNKNOWN = 5
    DEGRADED = 6
    NOT_PERMITTED = 7
    TIMED_OUT = 8
    OUTPUT_CLOSED = 141
    """As a shell says it of a program that SIGPIPE ended: ``rollcall events | head -1``."""


def complain(message: str) -> None:
    """Lines for a human, on standard error."""
    sys.stderr.write("".join(harmless(line) + "\n" for line in message.rstrip().splitlines()))


def fail(message: str, code: CommandExit) -> typer.Exit:
    """Print the reason, and return the exception to raise."""
    complain(message)
    return typer.Exit(int(code))


@contextmanager
def wrong_use(*errors: type[Exception]) -> Iterator[None]:
    """Such errors end the command (2) with their words."""
    try:
        yield
    except errors as error:
        raise fail(f"rollcall: {error}", CommandExit.WRONG_USE) from None


TYPED_SHOWN_MAX = 40
"""Characters of a value that is refused."""
UNKNOWN = "unknown"
NOT_APPLICABLE = "-"
_UNITS = {"K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_ESCAPED_IN_QUOTES = {code: f"\\u{code:04x}" for code in map(ord, OBEYED) if code >= 0x7F}
"""The same as JSON and YAML write them within quotes; below 0x7F both do so by themselves."""


class Figure(str):
    """A value as people read it, with the same for a program (``raw``, rule 4)."""

    __slots__ = ("raw",)
    raw: str

    def __new__(cls, shown: str, raw: int | float | str) -> Figure:
        made = super().__new__(cls, shown)
        made.raw = str(raw)
        return made


class Format(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    """A table with timestamps where ``table`` has ages."""
    JSON = "json"
    YAML = "yaml"
    TSV = "tsv"
    NAME = "name"
    """Names alone, one to a line, for ``xargs``."""

    @property
    def is_for_programs(self) -> bool:
        """Whether a refusal, too, is printed where answers are. ``name`` prints none: it would be taken for a name."""
        return self in (Format.JSON, Format.YAML, Format.TSV)


class Column(Frozen):
    """One column. ``is_optional``: left out if no row says anything in it."""

    title: str
    is_right: bool = False
    is_optional: bool = False


def columns(*titles: str) -> tuple[Column, ...]:
    """``>LAG?`` is a column that is right-aligned and optional."""
    return tuple(
        Column(title=title.strip(">?"), is_right=title.startswith(">"), is_optional=title.endswith("?"))
        for title in titles
    )


class Table(Frozen):
    """Rows under titles; a cell ``""`` or ``-`` says nothing."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    leaving: tuple[str, ...] = ()
    """Titles of the columns that are left out where there is no room, the first one first; the others stay."""
    cut: str = ""
    """The title of the column that is cut to the room that is left, to ``CUT_MIN`` places before a column leaves."""
    wrapped: str = ""
    """The title of one that goes on in further lines instead, in ``WRAPPED_MIN`` places before a column leaves."""

    def visible(self) -> Table:
        """Without optional columns in which nothing is said."""
        return self.with_columns(
            number
            for number, column in enumerate(self.columns)
            if not column.is_optional or any(row[number] not in ("", NOT_APPLICABLE) for row in self.rows)
        )

    def fitted(self, width: int) -> Table:
        """
        The columns that fit into lines of ``width`` places; wider if those that stay are.

        Of a table that says nothing of it, the widest texts go on in further lines.
        """
        places = [
            max([_places(column.title), *(_places(row[number]) for row in self.rows)])
            for number, column in enumerate(self.columns)
        ]
        titles, narrowed = [column.title for column in self.columns], self.cut or self.wrapped
        # Words stay whole as long as there is room for them.
        kept, whole, least = (dict(enumerate(places)) for _ in range(3))
        for number, column in enumerate(self.columns):
            if column.title == narrowed:
                whole[number] = least[number] = min(places[number], WRAPPED_MIN if self.wrapped else CUT_MIN)
            elif not narrowed and not column.is_right:
                longest = max((_places(word) for row in self.rows for word in row[number].split()), default=0)
                least[number] = min(places[number], WORD_MIN)
                whole[number] = max(least[number], min(longest, WORD_MAX))

        def over(rooms: Mapping[int, int]) -> int:
            return sum(rooms[number] for number in kept) + len(GAP) * (len(kept) - 1) - width

        for title in self.leaving:
            if over(whole) <= 0:
                break
            kept = {number: room for number, room in kept.items() if titles[number] != title}
        for floors in (whole, least):
            while over(kept) > 0 and (wide := [number for number in kept if kept[number] > floors[number]]):
                kept[max(wide, key=kept.__getitem__)] -= 1
        at = titles.index(self.cut) if self.cut else None
        rows = chain.from_iterable(_in_rooms(row, kept, cut=at) for row in self.rows)
        return replace(self, rows=tuple(rows)).with_columns(kept)

    def with_columns(self, numbers: Iterable[int]) -> Table:
        """Those alone, by their places."""
        kept = tuple(numbers)
        rows = tuple(tuple(row[number] for number in kept) for row in self.rows)
        return replace(self, columns=tuple(self.columns[number] for number in kept), rows=rows)


class Mood(IntEnum):
    """How the verdict line is coloured on a terminal: the number of the colour there."""

    PLAIN = 0
    BAD = 31
    GOOD = 32
    WARNING = 33


class Report(Frozen):
    """Everything that one command has to say."""

    document: object
    """What ``json`` and ``yaml`` print: a value of the contract, or a tuple of them."""
    verdict: str = ""
    """First word in capitals, e.g. ``DEGRADED  broker-b has no replica to fail over to``."""
    read: str = ""
    """Where and at which index it was read, and how old that is; at the right end of the verdict line."""
    mood: Mood = Mood.PLAIN
    parts: tuple[str | Table, ...] = ()
    """Tables and lines in the order of printing."""
    names: tuple[str, ...] = ()
    """What ``name`` prints, each once: what other commands take for an argument."""


LINE_WIDTH = 110
"""The right end of the verdict line where the width is not known; tables are whole there."""
GAP = "  "
CUT_MIN = 16
"""Places of a column that is cut: ``history`` keeps what stays within 80 for a failover."""
WRAPPED_MIN = 40
"""Of one that is wrapped: a sentence takes two or three lines."""
WORD_MIN = 14
"""Of any other text."""
WORD_MAX = 32
"""Of a word for which a column leaves, so that it stays whole."""


def print_report(report: Report, form: Format, *, stream: TextIO | None = None) -> None:
    """Print to ``stream``, by default standard output, at once."""
    stream = stream or sys.stdout
    if form is Format.JSON:
        text = msgspec.json.format(msgspec.json.encode(for_programs(report.document)), indent=2).decode()
        # Only texts have them, and these are quoted: a program reads what was sent, and a terminal obeys nothing.
        stream.write(json_for(text.translate(_ESCAPED_IN_QUOTES), stream) + "\n")
    elif form is Format.YAML:
        text = _as_yaml(report.document)
        stream.write(text if can_show(text, stream) else _as_yaml(report.document, is_ascii=True))
    elif form is Format.NAME:
        stream.write(for_stream("".join(f"{_raw(name)}\n" for name in dict.fromkeys(report.names)), stream))
    elif form is Format.TSV:
        for part in report.parts:
            if isinstance(part, Table):
                rows = (tuple(map(_raw, row)) for row in part.rows)
                lines = (tuple(column.title for column in part.columns), *rows)
                stream.write(for_stream("".join("\t".join(line) + "\n" for line in lines), stream))
    else:
        is_terminal = stream.isatty()
        width = width_of(form, is_terminal=is_terminal)
        text = render_text(report, has_colour=is_terminal and not os.environ.get("NO_COLOR"), width=width)
        stream.write(for_stream(text, stream))
    stream.flush()


def width_of(form: Format, *, is_terminal: bool) -> int | None:
    """Places to a line, by ``COLUMNS`` or the terminal; None, for a pipe, a file and ``wide``: tables are whole."""
    if form is Format.WIDE or not (is_terminal or os.environ.get("COLUMNS")):
        return None
    return shutil.get_terminal_size().columns


def render_text(report: Report, *, has_colour: bool = False, width: int | None = None) -> str:
    """
    The report as text. Tables are aligned; a blank line stands before each.

    In ``width`` places they show what fits, and how the rest is seen.
    """
    lines: list[str] = []
    if report.verdict or report.read:
        verdict, read = harmless(report.verdict), harmless(report.read)
        right = min(LINE_WIDTH, width or LINE_WIDTH)
        gap = " " * max(2, right - _places(verdict) - _places(read)) if read else ""
        told = [verdict + gap + read]
        if width is not None and _places(told[0]) > width:
            told = [*_flowing(verdict, width), *filter(None, [read])]
        lines += [_coloured(told[0], report.mood, has_colour=has_colour), *told[1:]]
    for part in report.parts:
        if isinstance(part, Table):
            if lines:
                lines.append("")
            whole = part.visible()
            shown = whole if width is None else whole.fitted(width)
            lines.extend(_aligned(shown))
            hidden = len(whole.columns) - len(shown.columns)
            if hidden or (part.cut and shown != whole):
                more = f"{hidden} more column{'s' * (hidden > 1)}" if hidden else f"all of {part.cut}"
                lines.append(f"({more}: -o wide)")
        else:
            lines += _flowing(harmless(part), width)
    return "".join(line.rstrip() + "\n" for line in lines)


def _flowing(text: str, width: int | None) -> list[str]:
    """Between words, but not in a command, which may go beyond: with an end of line in it, it could not be copied."""
    if width is None or _places(text) <= width:
        return [text]
    told, begins, rest = text.partition("rollcall ")
    lines = textwrap.wrap(told, width, subsequent_indent=GAP, break_on_hyphens=False, break_long_words=False)
    if begins:
        last = lines.pop() + " " if lines else ""
        lines += [last + begins + rest] if _places(last + begins + rest) <= width else [last, GAP + begins + rest]
    return [line for line in lines if line.strip()]


def _coloured(verdict: str, mood: Mood, *, has_colour: bool) -> str:
    word, gap, rest = verdict.partition("  ")
    if not has_colour or mood is Mood.PLAIN:
        return verdict
    return f"\x1b[1;{int(mood)}m{word}\x1b[0m{gap}{rest}"


def _raw(cell: str) -> str:
    if isinstance(cell, Figure):
        return cell.raw
    return "" if cell == NOT_APPLICABLE else harmless(cell)


def _aligned(table: Table) -> list[str]:
    """
    Cells as wide as the widest of their column on a terminal, on which a Chinese character takes two places.

    ``rich.table`` would do it too, in 1.7 s for 500 sets of three (this: 20 ms), and cuts at the width of the terminal.
    """
    lines = [tuple(column.title for column in table.columns), *(tuple(map(harmless, row)) for row in table.rows)]
    widths = [max(map(_places, cells)) for cells in zip(*lines, strict=True)]

    def cell(text: str, width: int, column: Column) -> str:
        blank = " " * (width - _places(text))
        return blank + text if column.is_right else text + blank

    return [GAP.join(map(cell, line, widths, table.columns)) for line in lines]


def _places(text: str) -> int:
    """Its width on a terminal, without what would be obeyed there."""
    shown = harmless(text)
    if shown.isascii():
        return len(shown)
    # Only now: the tables of widths take longer to import than a page of ASCII to print.
    from rich.cells import cell_len

    return cell_len(shown)


def _cut(text: str, room: int) -> str:
    """``text`` in at most ``room`` places, with ``...`` where some of it is missing."""
    from rich.cells import set_cell_size

    return text if _places(text) <= room else set_cell_size(harmless(text), room - 3).rstrip() + "..."


def _in_rooms(row: tuple[str, ...], rooms: Mapping[int, int], *, cut: int | None) -> Iterator[tuple[str, ...]]:
    """``row`` with its cell ``cut`` in its room, and each other one in as many lines as it takes."""
    pieces = [[cell] for cell in row]
    for number, room in rooms.items():
        if number == cut:
            pieces[number] = [_cut(row[number], room)]
        elif _places(row[number]) > room:
            pieces[number] = textwrap.wrap(harmless(row[number]), room, break_on_hyphens=False)
    for line in zip_longest(*pieces, fillvalue=""):
        yield tuple(line)


def _as_yaml(document: object, *, is_ascii: bool = False) -> str:
    import yaml

    class Dumper(yaml.SafeDumper):
        """Quotes the texts that have characters to escape: YAML knows no escapes outside of quotes."""

    def represent(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        style = '"' if any(letter in OBEYED for letter in text) else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, represent)
    text = str(yaml.dump(for_programs(document), Dumper=Dumper, sort_keys=False, allow_unicode=not is_ascii))
    return text.translate(_ESCAPED_IN_QUOTES)


FORMAT_VERSION = "rollcall/v1"
"""What ``json`` and ``yaml`` say of their keys; another one when a key goes or changes its meaning."""
_INSTANT = "AtMs"
_OTHER_INSTANTS = {"lastElectionMs": "lastElectionAt"}
_HASHED = "chain"


def for_programs(document: object) -> dict[str, object]:
    """The document as ``json`` and ``yaml`` print it (rule 3); a list becomes ``items``: it has no place for keys."""
    plain = _with_instants(msgspec.json.decode(msgspec.json.encode(document)))
    return {"format": FORMAT_VERSION, **(plain if isinstance(plain, dict) else {"items": plain})}


def _with_instants(value: object) -> object:
    """``electedAtMs`` with ``electedAt`` behind it."""
    if isinstance(value, list):
        return [_with_instants(one) for one in value]
    # An event is covered by its hash as it is: with a key more, its record could be read and never be verified.
    if not isinstance(value, dict) or _HASHED in value:
        return value
    made: dict[str, object] = {}
    for key, one in value.items():
        made[key] = _with_instants(one)
        name = key.removesuffix("Ms") if key.endswith(_INSTANT) else _OTHER_INSTANTS.get(key)
        if name is not None and isinstance(one, int):
            made[name] = iso_utc(one)
    return made


# --- single values ---------------------------------------------------------------------------------------------------


def number(value: int | None) -> Figure:
    return Figure(UNKNOWN, "") if value is None else Figure(f"{value:,}", value)


def epoch(value: int | None) -> Figure:
    """``none`` of a log that has no epoch yet: its -1 would read as a number; ``unknown`` where nobody has told it."""
    return number(value) if value is None or value >= 0 else Figure("none", value)


def size(value: int | None) -> Figure:
    """Bytes: ``0 B``, ``21.8 K``, ``3.1 M``, or ``unknown``."""
    return Figure(UNKNOWN, "") if value is None else Figure(_size(value), value)


def _size(value: int) -> str:
    if value < 1000:
        return f"{value} B"
    name, unit = next((one for one in _UNITS.items() if value < 999.95 * one[1]), ("T", 10**12))
    return f"{_tenths(value, unit)} {name}"


def duration_us(value: int | None) -> Figure:
    """``0.8 ms``, ``12 ms``, ``3.1 s``, ``14 min``, ``2.1 h``, ``5 d``, or ``unknown``."""
    return Figure(UNKNOWN, "") if value is None else Figure(_duration_us(value), f"{value / 1_000_000:.6f}")


def _duration_us(value: int) -> str:
    if value < 9_950:
        return f"{_tenths(value, 1000)} ms"
    if value < 999_500:
        return f"{_whole(value, 1000)} ms"
    if value < 59_950_000:
        return f"{_tenths(value, 10**6)} s"
    if value < 3_600_000_000:
        return f"{_whole(value, 60 * 10**6)} min"
    if value < 86_400_000_000:
        return f"{_tenths(value, 3600 * 10**6)} h"
    return f"{_whole(value, 86_400 * 10**6)} d"


def _whole(value: int, unit: int) -> int:
    """Halves go up, counted in whole numbers, as in the console (``words.js``), whose language rounds no other way."""
    return (2 * value + unit) // (2 * unit)


def _tenths(value: int, unit: int) -> str:
    return f"{_whole(10 * value, unit) / 10:.1f}"


def age_ms(value: int | None) -> Figure:
    """An age for a table: ``0.3 s``, ``14 min``, or ``never``."""
    if value is None:
        return Figure("never", "")
    shown = f"{_tenths(value, 1000)} s" if value < 59_950 else _duration_us(value * 1000)
    return Figure(shown, f"{value / 1000:.3f}")


def utc(stamp_ms: int | None) -> str:
    if stamp_ms is None:
        return UNKNOWN
    return datetime.fromtimestamp(stamp_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def iso_utc(stamp_ms: int) -> str | None:
    """``2026-11-22T18:25:00.042Z``; None: the calendar does not reach so far."""
    try:
        second = datetime.fromtimestamp(stamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
    return f"{second:%Y-%m-%dT%H:%M:%S}.{stamp_ms % 1000:03d}Z"


def yes_no(value: bool) -> str:
    return "yes" if value else "no"


def id_set(ids: Sequence[int]) -> str:
    return "{" + ",".join(str(member) for member in ids) + "}"
