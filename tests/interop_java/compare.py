"""
What mqadmin says against Rollcall beside what it says against RocketMQ's own controllers and name server.

Here: differences, which of them are allowed, the print. ``allowed.toml`` is the list: each entry names commands, the
lines that may be on one side alone, and the heading of DIVERGENCE.md that explains them.
Rule: a line that is on one side alone and that no entry explains is a failure, and so is an entry whose heading is gone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

import msgspec

from tests.interop_java.mqadmin import Asked

ROOT = Path(__file__).resolve().parents[2]
ALLOWED_FILE = Path(__file__).resolve().parent / "allowed.toml"
DIVERGENCE_FILE = ROOT / "DIVERGENCE.md"
COLUMN_CHARACTERS = 72
LINES_SHOWN_MAX = 14


class Allowed(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One explained difference."""

    labels: tuple[str, ...]
    """Of the commands that it is about."""
    anchor: str
    """Heading of DIVERGENCE.md, as a link fragment."""
    rocketmq: str = ""
    """Pattern that a whole line on RocketMQ's side alone must fit; empty: there is none."""
    rollcall: str = ""
    without: str = ""
    """Pattern of what lines on RocketMQ's side have besides, where the rest is a line on Rollcall's; empty: nothing."""


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    difference: tuple[Allowed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One command on both sides."""

    rocketmq: Asked
    rollcall: Asked
    anchors: tuple[str, ...]
    """Headings that explain its differences."""
    unexplained: tuple[str, ...]
    """Lines that are on one side alone and that nothing explains, each with its side."""

    @property
    def verdict(self) -> str:
        """One word, and where the explanation is."""
        if self.unexplained:
            return "DIFFERS"
        return f"explained: {', '.join(self.anchors)}" if self.anchors else "same"


def allowed(file: Path = ALLOWED_FILE) -> tuple[Allowed, ...]:
    """The list of ``file``. Raises ``ValueError`` if an entry's heading is not in DIVERGENCE.md."""
    found = msgspec.toml.decode(file.read_bytes(), type=_File).difference
    known = set(anchors(DIVERGENCE_FILE.read_text()))
    lost = sorted({entry.anchor for entry in found} - known)
    if lost:
        raise ValueError(f"DIVERGENCE.md has no heading for {', '.join(lost)}; it has {', '.join(sorted(known))}")
    return found


def anchors(document: str) -> Iterator[str]:
    """Link fragments of a Markdown document's headings."""
    for line in document.splitlines():
        if line.startswith("#"):
            words = line.lstrip("#").strip().lower()
            yield re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def compare(rocketmq: Sequence[Asked], rollcall: Sequence[Asked], entries: Sequence[Allowed]) -> tuple[Compared, ...]:
    """Command by command. Raises ``ValueError`` if they are not the same commands."""
    if [asked.label for asked in rocketmq] != [asked.label for asked in rollcall]:
        raise ValueError("the two sides were not asked the same")
    return tuple(_compare(theirs, ours, entries) for theirs, ours in zip(rocketmq, rollcall, strict=True))


def _compare(theirs: Asked, ours: Asked, entries: Sequence[Allowed]) -> Compared:
    about = [entry for entry in entries if ours.label in entry.labels]
    used: list[str] = []
    unexplained: list[str] = []
    left, right = Counter(theirs.output.splitlines()), Counter(ours.output.splitlines())
    left, right = left - right, right - left
    for entry, line in ((entry, line) for entry in about if entry.without for line in list(left.elements())):
        if right[shorter := re.sub(entry.without, "", line)] and shorter != line:
            used.append(entry.anchor)
            left[line] -= 1
            right[shorter] -= 1
    for side, lines in (("rocketmq", +left), ("rollcall", +right)):
        for line in lines.elements():
            patterns = ((entry.anchor, getattr(entry, side)) for entry in about)
            fitting = [anchor for anchor, pattern in patterns if pattern and re.fullmatch(pattern, line)]
            if fitting:
                used.append(fitting[0])
            else:
                unexplained.append(f"only {side}: {line}")
    return Compared(rocketmq=theirs, rollcall=ours, anchors=tuple(dict.fromkeys(used)), unexplained=tuple(unexplained))


def report(compared: Sequence[Compared], *, lines_max: int = LINES_SHOWN_MAX) -> str:
    """Side by side, each command under its verdict."""
    return "\n".join(line for one in compared for line in _report(one, lines_max))


def _report(one: Compared, lines_max: int) -> Iterator[str]:
    yield f"mqadmin {one.rollcall.command}"
    yield f"  [{one.verdict}]  {one.rocketmq.seconds:.1f} s / {one.rollcall.seconds:.1f} s"
    left, right = (sorted(asked.output.splitlines()) for asked in (one.rocketmq, one.rollcall))
    shown = list(zip_longest(left, right, fillvalue=""))
    for theirs, ours in shown[:lines_max]:
        mark = " " if theirs == ours else "|"
        yield f"  {theirs[:COLUMN_CHARACTERS]:<{COLUMN_CHARACTERS}} {mark} {ours[:COLUMN_CHARACTERS]}".rstrip()
    if len(shown) > lines_max:
        yield f"  ... {len(shown) - lines_max} more lines"
    yield from (f"  {line}" for line in one.unexplained)
    yield ""


def summary(compared: Sequence[Compared]) -> str:
    """One line per command."""
    width = max(len(one.rollcall.label) for one in compared)
    return "\n".join(f"  {one.rollcall.label:<{width}}  {one.verdict}" for one in compared)
