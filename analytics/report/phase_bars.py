"""
Failovers as bars: where each one's time went.

Here: rows of ``report.failovers`` to a picture. Not here: which failovers are shown (``gather``).
Rule 1: a bar is all of the greater of the RTO and the sum of its phases: its length says nothing, its parts do.
Rule 2: a phase is told by colour, pattern and number; the number is written into it where it fits.
Rule 3: where detection takes most of the time, the later phases are drawn again, enlarged.
Rule 4: a phase without a stamp is not drawn, and named.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from rollcall_ha.analytics.report.bars import ROOM_PX, segments
from rollcall_ha.analytics.report.markup import element, label, legend, line, percent, strip, swatch
from rollcall_ha.analytics.report.scales import UNKNOWN, count, duration_us, whole_ms

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

BAR, ZOOM = 24.0, 18.0
_PIXELS_PER_CHARACTER = 6.6

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
    return Markup().join(
        line(_name(row), _bar(row), value=duration_us(row["total_us"]), soft=_story(row)) for row in rows
    )


def _bar(row: Row) -> list[object]:
    parts = parts_of(row)
    whole = max(sum(us for *_, us in parts), row["total_us"] or 0, 1)
    drawn: list[object] = [_segments(parts, whole, BAR)]
    rest = [part for part in parts if part[0] != 1]
    after = sum(us for *_, us in rest)
    detected = sum(us for number, _, us in parts if number == 1) / whole
    notes = []
    if rest and detected >= ENLARGED_SHARE_MIN:
        # The wedge from the rest of the bar to its enlargement: one unit high, as wide as the bar.
        wedge = f"{detected * 100:.2f},0 {(detected + after / whole) * 100:.2f},0 100,1 0,1"
        lens = element("polygon", points=wedge, class_="lens")
        view = element("svg", lens, viewBox="0 0 100 1", preserveAspectRatio="none", width="100%", height=12)
        drawn += [strip(view, height=12), _segments(rest, after, ZOOM)]
        parts, whole = rest, after
        notes.append(f"after detection, enlarged: {duration_us(after)}")
    drawn.append(_durations(parts, whole))
    if missing := missing_of(row):
        notes.append(f"not stamped: {', '.join(missing)}")
    return [*drawn, element("span", "; ".join(notes)) if notes else None]


def _segments(parts: Sequence[Part], whole: int, height: float) -> Markup:
    return segments(
        ((f"phase-{n}", str(n or ""), us, f"{n or 'rest'}  {words}: {duration_us(us)}", "") for n, words, us in parts),
        whole,
        height,
    )


def _durations(parts: Sequence[Part], whole: int) -> Markup | None:
    """Durations below the parts that are wide enough for them, in the middle of each."""
    found, low = [], 0.0
    for _, _, us in parts:
        wide, text = us / whole, duration_us(us)
        if ROOM_PX * wide >= _PIXELS_PER_CHARACTER * len(text):
            found.append(label(text, percent(low + wide / 2), 12, class_="soft tiny", anchor="middle"))
        low += wide
    return strip(*found, height=16) if found else None


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
    items = [(n, words) for n, (words, _) in enumerate(PHASES, start=1)] + [(0, UNATTRIBUTED)]
    return legend((swatch(f"phase-{n}", str(n or "")), words) for n, words in items)


def longest_phases(rows: Sequence[Row]) -> Markup:
    """Per cause: which phase took longest, in how many failovers. The phases have the colours and numbers of above."""
    numbers = {words.replace(" ", "-"): n for n, (words, _) in enumerate(PHASES, start=1)}
    causes: dict[str, list[Row]] = {}
    for row in rows:
        causes.setdefault(row["cause"], []).append(row)

    def parts(found: Sequence[Row]) -> Iterator[tuple[str, str, int, str, str]]:
        for row in found:
            number = numbers[row["phase"]]
            hint = f"{row['phase']}: {row['failovers']:,}, mean {whole_ms(row['mean_ms'])}"
            yield f"phase-{number}", str(number), row["failovers"], hint, f"{row['failovers']:,}"

    return Markup().join(
        line(
            cause,
            segments(parts(found), found[0]["of_failovers"], BAR),
            value=count(found[0]["of_failovers"], "failover"),
        )
        for cause, found in causes.items()
    )


def phase_numbers(rows: Sequence[Row]) -> tuple[list[str], list[list[str]]]:
    """Heads and cells of the bars in numbers."""
    heads = [
        "failover",
        *(f"{n} {words}" for n, (words, _) in enumerate(PHASES, start=1)),
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
