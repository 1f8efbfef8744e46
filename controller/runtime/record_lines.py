"""
Lines of a record of events: read from files, and judged one after the other.

Here: ``Line``, ``Wrong``, ``lines_of``, ``judged``. Not here: the rules (``controller.core.verification``), which files
a record consists of (``verify``, ``backup_files``).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.core.verification import RecordWalk, Rule, Violation
from rollcall_ha.controller.runtime.journal_segments import Gap, GapLine

SHOWN_MAX = 20
"""What follows a wrong line may only be wrong because of it."""
GAP_PREFIX = b'{"gap":'

_decode_gap = msgspec.json.Decoder(GapLine).decode


class Line(Frozen):
    """One line, and where it is."""

    where: str
    text: bytes
    is_first: bool = False
    """It begins its segment: a gap may stand here, and nowhere else."""
    is_last: bool = False
    """The last one of the file that is written to."""


class Wrong(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A rule that a line breaks."""

    where: str
    rule: str
    text: str


def lines_of(path: Path, *, is_newest: bool) -> Iterator[Line]:
    """The lines of one segment. Blocks."""
    with path.open("rb") as file:
        line = file.readline()
        number = 1
        while line:
            following = file.readline()
            yield Line(where=f"{path}:{number}", text=line, is_first=number == 1, is_last=is_newest and not following)
            line, number = following, number + 1


def judged(lines: Iterator[Line], walk: RecordWalk, notes: list[str], *, is_whole: bool) -> Iterator[Wrong]:
    """What is wrong with a record; ``notes`` gets what is missing. ``is_whole``: its beginning must be on record."""
    for line in lines:
        if line.is_last and not line.text.endswith(b"\n"):
            # It is being written just now, or the power failed: the controller cuts it when it starts.
            notes.append(f"{line.where}: torn, as of a write that has not ended; not looked at")
            continue
        text = line.text.rstrip(b"\n")
        if text.startswith(GAP_PREFIX):
            yield from _gap(line, text, walk, notes)
            continue
        is_first = walk.events == 0
        for violation in walk.add(text):
            yield Wrong(where=line.where, rule=violation.rule, text=violation.text)
        if is_first and walk.is_begun_inside:
            told = "events before it are not here: no chain leads to it, and proves it"
            # A controller's whole journal has on record what was removed or never seen. Only noted, its beginning
            # could be taken out.
            if is_whole:
                yield Wrong(where=line.where, rule=Rule.CHAIN, text=f"{told}; no removal and no hole is on record")
            else:
                notes.append(f"{line.where}: {told}")


def _gap(line: Line, text: bytes, walk: RecordWalk, notes: list[str]) -> Iterator[Wrong]:
    """Events that this controller never saw. Filled by a peer's, the chain goes on; else it is a hole on record."""
    if not line.is_first:
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
