"""
Figures by day: the calendar of the fleet, and its sets side by side.

Here: rows of ``report.calendar`` and ``report.heat_map`` to pictures. Not here: sums and buckets (``gather``).
Rule 1: a level is told by the size of a square and by its strength; where squares are large, by a number too.
Rule 2: a day without a row was not observed: it has no frame. A day on which nothing happened has an empty one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from rollcall_ha.analytics.report.markup import box, element, label, legend, svg
from rollcall_ha.analytics.report.phase_bars import shortened
from rollcall_ha.analytics.report.scales import LEVELS, Levels, duration, rough

Row = Mapping[str, Any]

WIDTH = 840.0
"""Of a sheet of paper: printed, the smallest words are 9 px high."""
CELL_MAX, CELL_MIN = 46.0, 14.0
_NUMBER_CELL_MIN = 40.0
_NUMBERED_SHARE = 0.42
"""Of a cell, for the square between two numbers."""
_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_DAYS_PER_WEEK = 7
_LEFT, _RIGHT = 190.0, 745.0


def calendar(rows: Sequence[Row]) -> Markup:
    """A block per year: weeks from left to right, weekdays downwards; the value is ``exposed_ms``."""
    by_day: dict[dt.date, Row] = {row["day"]: row for row in rows}
    levels = Levels.of_durations(row["exposed_ms"] for row in rows)
    years: dict[int, list[dt.date]] = {}
    for day in sorted(by_day):
        years.setdefault(day.year, []).append(day)
    most = max((_week(days[-1], days[0]) + 1 for days in years.values()), default=1)
    cell = min(CELL_MAX, max(CELL_MIN, (WIDTH - 60) / most))
    pieces: list[object] = []
    top = 0.0
    for days in years.values():
        pieces.append(_year([by_day[day] for day in days], levels, cell, top))
        top += _DAYS_PER_WEEK * cell + 44
    total = sum(row["exposed_ms"] for row in rows)
    return svg(
        *pieces,
        width=WIDTH,
        height=max(top, 20),
        title="Exposure per day",
        description=f"{len(by_day):,} days; with one member in sync {duration(total)}, all sets together",
    )


def _week(day: dt.date, first: dt.date) -> int:
    """Column of a day: weeks since the one of ``first``."""
    return ((day - first).days + first.weekday()) // _DAYS_PER_WEEK


def _year(rows: Sequence[Row], levels: Levels, cell: float, top: float) -> Markup:
    first: dt.date = rows[0]["day"]
    left, head = 52.0, top + 22
    pieces: list[object] = [label(str(first.year), 0, top + 14, class_="strong")]
    for number, name in enumerate(_WEEKDAYS):
        if cell >= 2 * CELL_MIN or number % 2 == 0:
            pieces.append(label(name, left - 8, head + (number + 0.5) * cell + 4, class_="soft tiny", anchor="end"))
    month, free_from = 0, 0.0
    for row in rows:
        day: dt.date = row["day"]
        x, y = left + _week(day, first) * cell, head + day.weekday() * cell
        if day.month != month and x >= free_from:
            pieces.append(label(day.strftime("%b"), x, top + 14, class_="soft tiny"))
            free_from = x + 28
        month = day.month
        hint = (
            f"{day}: exposed {duration(row['exposed_ms'])}, without a master {duration(row['outage_ms'])}, "
            f"{row['failovers']:,} failovers"
        )
        is_numbered = cell >= _NUMBER_CELL_MIN
        largest = _NUMBERED_SHARE if is_numbered else 1.0
        pieces += _cell(x, y, cell - 2, levels.of(row["exposed_ms"]), hint=hint, largest=largest)
        if is_numbered:
            pieces.append(label(str(day.day), x + 3, y + 11, class_="soft tiny"))
            text = rough(row["exposed_ms"])
            pieces.append(label(text, x + cell / 2 - 1, y + cell - 5, class_="tiny", anchor="middle"))
    return element("g", pieces)


def _cell(
    x: float, y: float, side: float, level: int, *, hint: str | None = None, largest: float = 1.0
) -> list[object]:
    """A frame with a square in it that grows, up to that share of the frame, and gets stronger with the level."""
    inner = side * largest * (0.3 + 0.7 * (level - 1) / (LEVELS - 1))
    edge = (side - inner) / 2
    square = box(x + edge, y + edge, inner, inner, f"level-{level}") if level else None
    return [square, box(x, y, side, side, "frame", hint=hint)]


def level_legend(values_ms: Iterable[int]) -> Markup:
    """The squares of a picture of these durations, with their limits."""
    levels = Levels.of_durations(values_ms).words()
    return legend(((_cell(1, 1, 14, level), words) for level, words in levels), width=16)


def heat_map(rows: Sequence[Row]) -> Markup:
    """A line per set, worst first, a column per bucket of days; the value is ``outage_ms``."""
    levels = Levels.of_durations(row["outage_ms"] for row in rows)
    buckets = sorted({row["from_day"] for row in rows})
    places = {day: place for place, day in enumerate(buckets)}
    sets: dict[int, list[Row]] = {}
    for row in rows:
        sets.setdefault(row["rank"], []).append(row)
    cell = min(28.0, (_RIGHT - _LEFT) / max(1, len(buckets)))
    line = max(CELL_MIN + 2, min(22.0, cell))
    grid = _Grid(places=places, levels=levels, cell=cell, line=line)
    pieces: list[object] = []
    for place, rank in enumerate(sorted(sets)):
        pieces.append(_set_line(sets[rank], grid, 20 + place * line))
    free_from = 0.0
    for day, place in places.items():
        x = _LEFT + place * cell
        if x >= free_from:
            pieces.append(label(day.strftime("%d %b"), x, 12, class_="soft tiny"))
            free_from = x + 60
    height = 24 + line * len(sets)
    pieces.append(label("total", WIDTH, 12, class_="soft tiny", anchor="end"))
    text = f"{len(sets):,} sets in {len(buckets):,} columns of {rows[0]['days'] if rows else 1} days"
    return svg(*pieces, width=WIDTH, height=height, title="Time without a master, by set", description=text)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Grid:
    places: Mapping[dt.date, int]
    levels: Levels
    cell: float
    line: float


def _set_line(rows: Sequence[Row], grid: _Grid, top: float) -> Markup:
    first, total = rows[0], sum(row["outage_ms"] for row in rows)
    name = f"{first['cluster']}/{first['broker_set']}"
    pieces: list[object] = [
        label(shortened(name, 28), _LEFT - 10, top + grid.line / 2 + 4, class_="small", anchor="end")
    ]
    side = min(grid.cell, grid.line) - 2
    for row in rows:
        hint = (
            f"{name}, {row['days']} days from {row['from_day']}: without a master {duration(row['outage_ms'])}, "
            f"exposed {duration(row['exposed_ms'])}, {row['failovers']:,} failovers"
        )
        x = _LEFT + grid.places[row["from_day"]] * grid.cell
        pieces += _cell(x, top + (grid.line - side) / 2, side, grid.levels.of(row["outage_ms"]), hint=hint)
    pieces.append(label(duration(total), WIDTH, top + grid.line / 2 + 4, class_="small value", anchor="end"))
    return element("g", pieces)
