"""
Journals by path for ``format("rollcall")``: every event once, and every other text as it is.

Here: the texts of files, which of them are events, copies. Not here: finding files, lines of damaged ones (``lines``),
Spark (``datasource``), the reasons why a text is no event (``events``, in a lake).

Rule 1: the journals of three controllers hold each event three times: the first copy that is met is given, so that a
count over journals is the count of the live record.
Rule 2: a task gives the events of its own Raft indexes, and looks through all files for them: copies meet in one task,
whatever files they are in. Texts that are no events are given by the first task, each as often as it is there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from rollcall_ha.analytics.bronze.lines import BEFORE_PAGE, BEFORE_RECORD, HOLE, PAGE, readable_lines
from rollcall_ha.analytics.bronze.live import Place, ReadFailed, decode_page, decode_place
from rollcall_ha.analytics.lake.tables import ORDINALS_PER_INDEX
from rollcall_ha.controller.contract.values import Frozen

EVENTS_PER_TASK_MAX = 4_000_000
"""A task remembers its events by some 70 bytes each."""


Text = tuple[bytes, dict[str, Any]]
"""A text, and its record, empty if it is no event."""


class Share(Frozen):
    """What one task reads: of all files the events of every ``tasks``-th Raft index, beginning with ``number``."""

    files: Sequence[Path]
    number: int
    tasks: int


def read_share(share: Share, *, from_index: int = 0, cluster: str = "") -> Iterator[Text]:
    """
    Texts of the share.

    Events before ``from_index`` are left out, and those of other clusters if ``cluster`` is named.

    Raises ``OSError`` if a file cannot be opened, ``ReadFailed`` with more than ``EVENTS_PER_TASK_MAX`` events.
    """
    seen: dict[tuple[str, int], set[int]] = {}
    kept = 0
    for text in (piece for file in share.files for line in readable_lines(file) for piece in pieces_of(line)):
        place = _place_of(text)
        if place is None:
            # Not left out: a torn line is an event that is missing, and somebody has to see it.
            if share.number == 0:
                yield text.encode(), {}
            continue
        if place.index % share.tasks != share.number or place.index < from_index:
            continue
        if cluster and (place.set_key is None or place.set_key.cluster != cluster):
            continue
        known = seen.setdefault((place.fleet_incarnation, place.term), set())
        seq = place.index * ORDINALS_PER_INDEX + place.ordinal
        if seq in known:
            continue
        # Else the memory of a task would end the whole job, and say nothing of the way out.
        if kept >= EVENTS_PER_TASK_MAX:
            raise ReadFailed(
                f"more than {EVENTS_PER_TASK_MAX} events in one of {share.tasks} tasks: give a greater option"
                " partitions, or make a lake of the journals: rollcall analytics run PATH... --lake LAKE"
            )
        # Its place was found without the rest, which may be damaged: it is no event, and no copy hides behind it.
        try:
            record = msgspec.json.decode(text)
        except msgspec.DecodeError:
            yield text.encode(), {}
            continue
        known.add(seq)
        kept += 1
        yield text.encode(), record


def _place_of(text: str) -> Place | None:
    """None: no event, by the rules of ``events.Why`` that need no type of a field but of these."""
    try:
        place = decode_place(text)
    except msgspec.DecodeError:
        return None
    is_named = place.version >= 1 and place.term >= 0 and place.index >= 0 and 0 <= place.ordinal < ORDINALS_PER_INDEX
    return place if is_named else None


def pieces_of(text: str) -> list[str]:
    """The JSON texts of one line: what ``lines.pieces`` makes of it, without Spark."""
    if text.startswith(PAGE):
        found = [piece for page in re.split(BEFORE_PAGE, text) for piece in _pieces_of_page(page)]
    else:
        found = re.split(BEFORE_RECORD, text)
    return [piece for piece in found if piece.strip()]


def _pieces_of_page(text: str) -> list[str]:
    """Its records, and its hole; a text that is no page stays as it is."""
    try:
        page = decode_page(text)
    except msgspec.DecodeError:
        return [text]
    hole = [] if page.gap is None else [f"{HOLE}{msgspec.json.encode({'gap': page.gap}).decode()}}}"]
    return [*(bytes(event).decode() for event in page.events), *hole]
