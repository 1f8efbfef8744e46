"""
From rows of the report's tables to places in its pictures.

Here: what is drawn where, and which words have room. Not here: elements (``pictures.html.jinja``), style
(``style.css``), phases (``phases``), axes and words (``scales``), the counting (``gather``, ``questions``).
Rule 1: bars of one picture have one scale and begin at 0; the number is written beside each.
Rule 2: a kind of bar is told by colour, pattern and its place or its letter.
Rule 3: an axis of durations is logarithmic and the same for all of a picture, so that they can be compared downwards.
Rule 4: a percentile is told by its shape: circle 50, square 90, diamond 95, triangle 99, cross the greatest.
Rule 5: a day without a row was not observed: it has no frame. A day on which nothing happened has an empty one.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from rollcall_ha.analytics.gold.tables import ALL
from rollcall_ha.analytics.report.questions import Row, Rows
from rollcall_ha.analytics.report.scales import LogAxis

Kinds = Sequence[tuple[str, str, str]]
"""Column of a table, its letter, its meaning."""

GRADES: Kinds = (
    ("proven", "P", "nothing acknowledged was lost, and that is proven"),
    ("bounded", "B", "at most so many bytes"),
    ("unknown", "U", "cannot be known"),
    ("refuted", "R", "a log that came back shows a loss: an alarm"),
    ("ungraded", "N", "not graded yet"),
)
OUTCOMES: Kinds = (
    ("faster", "F", "found sooner"),
    ("slower", "S", "found later"),
    ("avoided", "A", "a false alarm that would not have been"),
    ("same", "=", "as it was"),
    ("unknown", "?", "not on record"),
)
ALARMS: Kinds = (
    ("needed", "", "the master was gone"),
    ("false", "F", "the master lived: needless"),
    ("led", "C", "needless, within 30 s after a change of controllers"),
)
MARKS = {"p50_ms": "50 %", "p90_ms": "90 %", "p95_ms": "95 %", "p99_ms": "99 %", "max_ms": "greatest"}
"""Column of ``gold.rto`` -> words of its mark."""

ROOM_PX = 350.0
"""Width of a strip where it is narrowest: words are written into what is wide enough for them even there."""
_LETTER_PX, _CHARACTER_PX, _SMALL_CHARACTER_PX = 13.0, 8.0, 6.6
BINS_PER_DECADE = 10
_DAYS_PER_WEEK = 7


# --- strips ----------------------------------------------------------------------------------------------------------


class Part(msgspec.Struct, frozen=True):
    """A part of a strip: its kind, letter and quantity, a hint, the words in it and below it, its place in shares."""

    kind: str
    letter: str
    quantity: int
    hint: str
    words: str = ""
    below: str = ""
    low: float = 0
    wide: float = 0

    @property
    def plate_px(self) -> float:
        """Width of the plate behind the words."""
        return _CHARACTER_PX * len(self.words) + 10


def placed(parts: Iterable[Part], whole: float) -> list[Part]:
    """Parts one after the other, that are ``whole`` together. Letters and words that have no room are left out."""
    found: list[Part] = []
    low = 0.0
    for part in parts:
        wide = part.quantity / whole
        room_px = ROOM_PX * wide
        words = part.words if room_px >= part.plate_px + 24 else ""
        letter = part.letter if words or room_px >= _LETTER_PX else ""
        below = part.below if room_px >= _SMALL_CHARACTER_PX * len(part.below) else ""
        found.append(replace(part, words=words, letter=letter, below=below, low=low, wide=wide))
        low += wide
    return found


def shares(row: Row, kinds: Kinds, prefix: str) -> list[Part]:
    """All failovers of a row, by their kind."""
    parts = (
        Part(f"{prefix}-{name}", letter, row[name], f"{name}: {row[name]:,}", words=f"{row[name]:,}")
        for name, letter, _ in kinds
        if row[name] > 0
    )
    return placed(parts, sum(row[name] for name, *_ in kinds) or 1)


def greatest(rows: Rows, *columns: str) -> float:
    """What the longest bar of a picture stands for; never 0."""
    return max((row[name] or 0 for row in rows for name in columns), default=0) or 1


# --- durations -------------------------------------------------------------------------------------------------------


def bin_edges_ms(number: int) -> tuple[float, float]:
    """A bin of the histogram: from, and up to but not with."""
    return 10 ** (number / BINS_PER_DECADE), 10 ** ((number + 1) / BINS_PER_DECADE)


def histograms(bins: Rows, rto: Rows) -> list[tuple[Row, list[Row]]]:
    """Per cause its row of ``gold.rto`` and its bins, the most frequent cause first."""
    totals = [row for row in rto if row["phase"] == "total" and row["cause"] != ALL]
    totals.sort(key=lambda row: (-row["failovers"], row["cause"]))
    return [(row, [one for one in bins if one["cause"] == row["cause"]]) for row in totals]


def bin_axis(bins: Rows) -> LogAxis:
    """The axis of all histograms."""
    return LogAxis.over(edge for row in bins for edge in bin_edges_ms(row["bin"]))


def axis_over(rows: Rows, *columns: str) -> LogAxis:
    """An axis that holds all these columns, in ms."""
    return LogAxis.over(row[name] for row in rows for name in columns)


# --- maps of days ----------------------------------------------------------------------------------------------------


class Year(msgspec.Struct, frozen=True):
    """A block of the calendar. Columns are weeks, from 0 on."""

    number: int
    months: dict[int, str]
    """Column -> word above it; as long as a word needs, there is no other."""
    days: list[tuple[int, Row]]

    @property
    def weeks(self) -> int:
        """How many columns."""
        return self.days[-1][0] + 1


def calendar(rows: Rows) -> list[Year]:
    """A block per year: weeks from left to right, weekdays downwards."""
    years: dict[int, Year] = {}
    for row in sorted(rows, key=lambda row: row["day"]):
        day: dt.date = row["day"]
        year = years.setdefault(day.year, Year(day.year, {}, []))
        first: dt.date = year.days[0][1]["day"] if year.days else day
        column = ((day - first).days + first.weekday()) // _DAYS_PER_WEEK
        begins = not year.days or year.days[-1][1]["day"].month != day.month
        if begins and column >= max(year.months, default=-WORD_COLUMNS) + WORD_COLUMNS:
            year.months[column] = f"{day:%b}"
        year.days.append((column, row))
    return list(years.values())


WORD_COLUMNS = 3
"""So many columns of a calendar the name of a month needs."""


def by_set(rows: Rows) -> list[list[Row | None]]:
    """A line per set, worst first, with a place for each bucket of days; None: not observed."""
    days = sorted({row["from_day"] for row in rows})
    found = {(row["rank"], row["from_day"]): row for row in rows}
    return [[found.get((rank, day)) for day in days] for rank in sorted({row["rank"] for row in rows})]
