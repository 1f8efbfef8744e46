"""
Failovers as bars: where each one's time went.

Here: rows of ``report.failovers`` to a picture. Not here: which failovers are shown (``gather``).
Rule 1: a bar is as wide as the greater of the RTO and the sum of its phases: its length says nothing, its parts do.
Rule 2: a phase is told by colour, pattern and number; the number is written into it where it fits.
Rule 3: where detection takes most of the time, the later phases are drawn again, enlarged.
Rule 4: a phase without a stamp is not drawn, and named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from rollcall_ha.analytics.report.markup import box, element, label, svg
from rollcall_ha.analytics.report.scales import UNKNOWN, duration_us

PHASES: tuple[tuple[str, str], ...] = (
    ("detected", "detected_us"),
    ("proposed", "proposed_us"),
    ("committed", "committed_us"),
    ("notified", "notified_us"),
    ("promised", "promised_us"),
    ("role applied", "role_applied_us"),
    ("serving", "serving_us"),
)
"""In the order of an outage: words, and the column of ``gold.failovers``. Numbered from 1 in the pictures."""

UNATTRIBUTED = "no phase explains"
ENLARGED_SHARE_MIN = 0.6
"""Of the time in detection, from which on the rest is enlarged."""

WIDTH = 1000.0
LEFT, RIGHT = 268.0, 910.0
BAR, ZOOM = 24.0, 18.0
_NUMBER_WIDTH_MIN = 13.0
_TEXT_WIDTH_PER_CHARACTER = 6.6

Row = Mapping[str, Any]
Part = tuple[int, str, int]
"""Number of the phase (0: no phase explains), its words, its duration in microseconds."""


def parts_of(row: Row) -> list[Part]:
    """The stamped phases of a failover, and the rest that no phase explains; durations are positive."""
    found = [(n, words, int(row[column] or 0)) for n, (words, column) in enumerate(PHASES, start=1)]
    found.append((0, UNATTRIBUTED, int(row["unattributed_us"] or 0)))
    return [part for part in found if part[2] > 0]


def missing_of(row: Row) -> list[str]:
    """Words for the phases without a stamp."""
    return [words for words, column in PHASES if row[column] is None]


def phase_bars(rows: Sequence[Row]) -> Markup:
    """One bar per row, in their order."""
    pieces: list[object] = []
    top = 8.0
    for row in rows:
        drawn, height = _bar(row, top)
        pieces.append(drawn)
        top += height
    shown = "; ".join(f"{_name(row)}: {duration_us(row['total_us'])}" for row in rows)
    return svg(
        *pieces,
        width=WIDTH,
        height=top,
        title="Failovers by phase",
        description=f"Time from the first sign of the fault to a serving master. {shown}",
    )


def _bar(row: Row, top: float) -> tuple[Markup, float]:
    parts = parts_of(row)
    whole = max(sum(us for *_, us in parts), row["total_us"] or 0, 1)
    missing = missing_of(row)
    pieces: list[object] = [
        label(_name(row), 0, top + 11, class_="strong"),
        label(_story(row), 0, top + 26, class_="soft"),
        *_segments(parts, whole, top, BAR),
        label(duration_us(row["total_us"]), WIDTH, top + 17, class_="strong value", anchor="end"),
    ]
    bottom = top + BAR
    rest = [part for part in parts if part[0] != 1]
    detected = sum(us for number, _, us in parts if number == 1)
    if rest and detected / whole >= ENLARGED_SHARE_MIN:
        after = sum(us for *_, us in rest)
        begin = LEFT + (RIGHT - LEFT) * detected / whole
        end = begin + (RIGHT - LEFT) * after / whole
        low = bottom + 12
        pieces.append(_lens(begin, end, bottom, low))
        pieces += _segments(rest, after, low, ZOOM)
        pieces.append(label(duration_us(after), WIDTH, low + 13, class_="soft value", anchor="end"))
        pieces.append(label("after detection, enlarged", LEFT - 10, low + 13, class_="soft", anchor="end"))
        bottom = low + ZOOM
        parts = rest
        whole = after
    if words := _durations(parts, whole):
        pieces += [label(text, x, bottom + 13, class_="soft tiny", anchor="middle") for text, x in words]
        bottom += 16
    if missing:
        pieces.append(label(f"not stamped: {', '.join(missing)}", LEFT, bottom + 13, class_="soft tiny"))
        bottom += 16
    bottom = max(bottom, top + 30)
    return element("g", pieces), bottom - top + 16


def _segments(parts: Sequence[Part], whole: int, top: float, height: float) -> list[object]:
    pieces: list[object] = [box(LEFT, top, RIGHT - LEFT, height, "track")]
    x = LEFT
    for number, words, us in parts:
        width = (RIGHT - LEFT) * us / whole
        hint = f"{number or 'rest'}  {words}: {duration_us(us)}"
        pieces.append(box(x, top, width, height, f"phase-{number}"))
        pieces.append(box(x, top, width, height, f"over pattern-{number}", hint=hint))
        if width >= _NUMBER_WIDTH_MIN:
            middle = x + width / 2
            pieces.append(
                element("circle", cx=middle, cy=top + height / 2, r=7.0, class_="badge") if number else Markup("")
            )
            pieces.append(label(str(number or ""), middle, top + height / 2 + 4, class_="badge-text", anchor="middle"))
        x += width
    return pieces


def _durations(parts: Sequence[Part], whole: int) -> list[tuple[str, float]]:
    """Durations below the parts that are wide enough for them, with the middle of each."""
    found = []
    x = LEFT
    for _, _, us in parts:
        width, text = (RIGHT - LEFT) * us / whole, duration_us(us)
        if width >= _TEXT_WIDTH_PER_CHARACTER * len(text):
            found.append((text, x + width / 2))
        x += width
    return found


def _lens(begin: float, end: float, top: float, bottom: float) -> Markup:
    """The wedge from a part of a bar to its enlargement."""
    corners = ((begin, top), (end, top), (RIGHT, bottom), (LEFT, bottom))
    return element("polygon", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in corners), class_="lens")


def _name(row: Row) -> str:
    return f"{shortened(row['broker_set'], 22)}, epoch {row['master_epoch']:,}"


def _story(row: Row) -> str:
    origin = "nobody" if row["from_master"] is None else row["from_master"]
    return f"{row['cause']}, {origin} \N{RIGHTWARDS ARROW} {row['to_master']}, {when(row['elected_at_ms'])}"


def when(at_ms: int) -> str:
    """UTC to the minute."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%MZ")


def shortened(name: str, characters: int = 26) -> str:
    """A name that fits; its end is what tells it from others."""
    return name if len(name) <= characters else f"\N{HORIZONTAL ELLIPSIS}{name[1 - characters :]}"


def phase_legend() -> Markup:
    """Colour, pattern, number and words of every phase."""
    items = [(str(n), words, n) for n, (words, _) in enumerate(PHASES, start=1)] + [("", UNATTRIBUTED, 0)]
    return element(
        "ul",
        *(
            element(
                "li",
                element(
                    "svg",
                    box(0, 0, 22, 16, f"phase-{number}"),
                    box(0, 0, 22, 16, f"over pattern-{number}"),
                    element("circle", cx=11.0, cy=8.0, r=7.0, class_="badge") if number else None,
                    label(mark, 11, 12, class_="badge-text", anchor="middle"),
                    viewBox="0 0 22 16",
                    width=22,
                    height=16,
                    aria_hidden="true",
                ),
                f" {words}",
            )
            for mark, words, number in items
        ),
        class_="legend",
    )


def heads_of_phases() -> list[str]:
    """Number and words, held together."""
    return [f"{n} {words}".replace(" ", "\N{NO-BREAK SPACE}", 1) for n, (words, _) in enumerate(PHASES, start=1)]


def phase_numbers(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of the bars in numbers."""
    heads = [
        "failover",
        *heads_of_phases(),
        "rest",
        "RTO",
        "at most",
        "waited",
        "proof",
    ]
    cells = [
        [
            _name(row),
            *("-" if row[column] is None else duration_us(row[column]) for _, column in PHASES),
            "-" if row["unattributed_us"] is None else duration_us(row["unattributed_us"]),
            duration_us(row["total_us"]),
            *("-" if row[column] is None else duration_us(row[column]) for column in ("total_us_max", "waited_us")),
            row["grade"] or UNKNOWN,
        ]
        for row in rows
    ]
    return heads, cells
