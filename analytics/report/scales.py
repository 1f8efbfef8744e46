"""
From numbers to places and words.

Here: logarithmic axes of durations, five levels of a quantity, durations and bytes in words. Not here: drawing.
Rule 1: words have a unit and at most three digits that count; an unknown value is called unknown, never 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from rollcall_ha.controller.contract.values import Frozen

UNKNOWN = "unknown"

US_PER_MS = 1_000
MS_PER_SECOND = 1_000
MS_PER_MINUTE = 60_000
MS_PER_HOUR = 3_600_000
MS_PER_DAY = 86_400_000

TICKS_MS = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 30_000),
    *(MS_PER_MINUTE, 2 * MS_PER_MINUTE, 5 * MS_PER_MINUTE, 10 * MS_PER_MINUTE, 30 * MS_PER_MINUTE),
    *(MS_PER_HOUR, 3 * MS_PER_HOUR, 12 * MS_PER_HOUR),
    *(MS_PER_DAY, 7 * MS_PER_DAY, 30 * MS_PER_DAY, 365 * MS_PER_DAY),
)
"""Round durations that an axis may name."""

MAJOR_TICKS_MS = (
    *(1, 10, 100, 1_000, 10_000),
    *(MS_PER_MINUTE, 10 * MS_PER_MINUTE, MS_PER_HOUR, MS_PER_DAY, 30 * MS_PER_DAY),
)
"""Where there is no room for all."""

LEVEL_EDGES_MS = (
    *(digit * 10**power for power in range(4) for digit in (1, 2, 3, 5, 7)),
    *(seconds * MS_PER_SECOND for seconds in (10, 15, 20, 30, 45)),
    *(minutes * MS_PER_MINUTE for minutes in (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50)),
    *(hours * MS_PER_HOUR for hours in (1, 1.5, 2, 3, 4, 6, 8, 12, 18)),
    *(days * MS_PER_DAY for days in (1, 2, 3, 5, 7, 10, 20, 30, 50, 100, 200, 365)),
)
"""Round durations at which a level may begin."""

TICKS_MAX = 13
LEVELS = 5

_UNITS = ((MS_PER_DAY, "d"), (MS_PER_HOUR, "h"), (MS_PER_MINUTE, "min"), (MS_PER_SECOND, "s"), (1, "ms"))
_BYTES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def duration(ms: float | None) -> str:
    """``83 ms``, ``3.05 s``, ``12 min``, ``1.5 h``."""
    if ms is None:
        return UNKNOWN
    if ms < 0:
        return f"\N{MINUS SIGN}{duration(-ms)}"
    # 999.6 ms is 1 s: the unit is chosen after rounding to three digits.
    rounded = float(f"{ms:.3g}")
    size, unit = next((pair for pair in _UNITS if rounded >= pair[0]), _UNITS[-1])
    return f"{_digits(ms / size)} {unit}"


def whole_ms(ms: int | None) -> str:
    """A duration of a histogram, which rounds down to whole milliseconds: 0 is less than one."""
    return "< 1 ms" if ms == 0 else duration(ms)


def rough(ms: int) -> str:
    """At most two digits, for places of the width of a word: ``24 min``."""
    if not ms:
        return ""
    size_ms, unit = next((pair for pair in _UNITS if ms >= pair[0]), _UNITS[-1])
    value = ms / size_ms
    return f"{value:.0f} {unit}" if value >= 10 else f"{float(f'{value:.1f}'):g} {unit}"


def duration_us(us: int | None) -> str:
    return duration(None if us is None else us / US_PER_MS)


def _digits(value: float) -> str:
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 or rounded == int(rounded) else f"{rounded:g}"


def size(count: int | None) -> str:
    """``0 B``, ``17.3 MiB``."""
    if count is None:
        return UNKNOWN
    for unit, name in _BYTES:
        if count >= unit:
            return f"{_digits(count / unit)} {name}"
    return f"{count:,} B"


def count(number: int, word: str) -> str:
    """``1 false alarm``, ``2 false alarms``."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"


def as_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Up to when a lake is counted, by the row of ``contents.AS_OF``."""
    return when(rows[0]["until_at"]) if rows else UNKNOWN


def share(ppm: int | None) -> str:
    """Millionths as per cent with all their digits: 99.9991 %."""
    return UNKNOWN if ppm is None else f"{ppm / 10_000:.4f} %"


def when(at: datetime) -> str:
    """UTC to the minute."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%MZ")


def shortened(name: str, characters: int) -> str:
    """A name that fits; its end is what tells it from others."""
    return name if len(name) <= characters else f"\N{HORIZONTAL ELLIPSIS}{name[1 - characters :]}"


class LogAxis(Frozen):
    """Durations from left to right, each decade as wide as the other."""

    low_ms: float
    high_ms: float

    @classmethod
    def over(cls, values_ms: Iterable[float | None]) -> LogAxis:
        """An axis that holds all values and begins and ends at round ones; less than 1 ms counts as 1 ms."""
        known = [max(1.0, value) for value in values_ms if value is not None] or [1.0, MS_PER_SECOND]
        low = max((tick for tick in TICKS_MS if tick <= min(known)), default=1)
        high = next((tick for tick in TICKS_MS if tick >= max(known) and tick > low), max(known) * 2)
        return cls(low_ms=low, high_ms=high)

    def place(self, ms: float) -> float:
        """Where a duration lies, inside the axis: 0 is its left end, 1 its right one."""
        within = min(max(ms, self.low_ms), self.high_ms)
        return math.log(within / self.low_ms) / math.log(self.high_ms / self.low_ms)

    def ticks(self, most: int = TICKS_MAX) -> list[int]:
        """Round durations to name: all if there is room for so many, else those that are a power of ten or a unit."""
        inside = [tick for tick in TICKS_MS if self.low_ms <= tick <= self.high_ms]
        if len(inside) <= most:
            return inside
        return [tick for tick in MAJOR_TICKS_MS if self.low_ms <= tick <= self.high_ms]


class Levels(Frozen):
    """Level 0 is nothing at all; 1 to ``LEVELS`` are drawn larger and darker. ``limits``: where 2, 3, ... begin."""

    limits: tuple[float, ...]

    @classmethod
    def of_durations(cls, values_ms: Iterable[int]) -> Levels:
        """Limits at round durations, spread over the values by order, so that one outlier does not hide the rest."""
        ordered = sorted(value for value in values_ms if value > 0)
        if not ordered:
            return cls(limits=())
        wanted = (ordered[len(ordered) * part // LEVELS] for part in range(1, LEVELS))
        rounded = {max((edge for edge in LEVEL_EDGES_MS if edge <= value), default=0) for value in wanted}
        return cls(limits=tuple(sorted(limit for limit in rounded if limit > ordered[0])))

    def of(self, value: int) -> int:
        """0 for nothing, 1 below all limits, ``LEVELS`` from the last one on."""
        return 0 if value <= 0 else self._level(sum(value >= limit for limit in self.limits))

    def _level(self, reached: int) -> int:
        return 1 + reached * (LEVELS - 1) // max(1, len(self.limits))

    def words(self) -> list[tuple[int, str]]:
        """Each level with its words, for the legend."""
        if not self.limits:
            return [(0, "none"), (1, "some")]
        above = ((self._level(n), f"{duration(low)} or more") for n, low in enumerate(self.limits, start=1))
        return [(0, "none"), (1, f"less than {duration(self.limits[0])}"), *above]
