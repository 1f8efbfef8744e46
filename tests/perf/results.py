"""
What a bench finds, held against its aim, as a table and as JSON.

Here: ``Measure`` (what is measured and what is wanted), ``Result`` (its value in every run), verdicts, table. Not here:
measuring (the ``bench_`` modules), who runs them (``__main__``).

Rule 1: a verdict is about the median over the runs; a table shows the smallest and the greatest beside it.
Rule 2: a measure without a value in some run is an error of its bench, not an empty cell.
Rule 3: what has no aim is there to explain what has one, and gets no verdict.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

REACHED = "reached"


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """One row."""

    key: str
    """Name in the JSON; unique in its section."""
    what: str
    unit: str
    aim: float | None = None
    is_floor: bool = False
    """The aim is to be above, not below."""
    reference: str = ""
    """What RocketMQ 5.3.3 was measured with, as text."""

    @property
    def aim_text(self) -> str:
        """``< 50 ms``; empty without an aim."""
        return "" if self.aim is None else f"{'>' if self.is_floor else '<'} {number(self.aim)} {self.unit}".rstrip()

    def is_reached_by(self, median: float) -> bool | None:
        """None = there is no aim."""
        if self.aim is None:
            return None
        return median > self.aim if self.is_floor else median < self.aim

    def verdict(self, median: float) -> str:
        """``reached``, or by how much it is missed; empty without an aim."""
        if self.aim is None or self.is_reached_by(median):
            return "" if self.aim is None else REACHED
        return f"misses by {number(abs(median - self.aim))} {self.unit}".rstrip()


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A measure with its value in every run."""

    section: str
    measure: Measure
    values: tuple[float, ...]

    @property
    def median(self) -> float:
        """Over the runs."""
        return statistics.median(self.values)

    @property
    def is_reached(self) -> bool | None:
        """None = there is no aim."""
        return self.measure.is_reached_by(self.median)

    @property
    def verdict(self) -> str:
        """``reached``, or by how much it is missed."""
        return self.measure.verdict(self.median)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What one run of one section found, and how busy the machine was meanwhile."""

    section: str
    side: str = ""
    """Which of the two programs that are compared; empty where there is one."""
    number: int
    seconds: float
    load_before: float
    """Processes that wanted to run in the minute before, ours of the section before among them."""
    cpu_of_others: float
    """Cores that processes which are not ours used on average."""
    values: dict[str, float]
    detail: dict[str, list[float]] = {}
    """Samples behind the values."""
    error: str = ""
    """Why it has no values."""


def gather(section: str, measures: Sequence[Measure], runs: Sequence[Mapping[str, float]]) -> list[Result]:
    """One result per measure, none without runs. Raises ``KeyError`` (rule 2)."""
    if not runs:
        return []
    return [
        Result(section=section, measure=measure, values=tuple(run[measure.key] for run in runs)) for measure in measures
    ]


def percentile(samples: Sequence[float], share: float) -> float:
    """The sample that ``share`` of all do not exceed. Raises ``ValueError`` without samples."""
    if not samples:
        raise ValueError("a percentile of nothing")
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def number(value: float) -> str:
    """Three digits that count, with thousands separators."""
    size = abs(value)
    if size >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def table(results: Sequence[Result]) -> str:
    """One line per result, sections apart."""
    head = ("WHAT", "UNIT", "MIN", "MEDIAN", "MAX", "AIM", "VERDICT", "ROCKETMQ 5.3.3")
    rows: list[tuple[str, ...]] = [head]
    for result in results:
        measure = result.measure
        numbers = (number(min(result.values)), number(result.median), number(max(result.values)))
        rows.append((measure.what, measure.unit, *numbers, measure.aim_text, result.verdict, measure.reference))
    return aligned(rows, [result.section for result in results])


def aligned(rows: Sequence[Sequence[str]], sections: Sequence[str]) -> str:
    """Columns under their heads, the third to the fifth to the right; ``sections``: of each row but the head."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for at, row in enumerate(rows):
        if at and sections[at - 1] != (sections[at - 2] if at > 1 else None):
            lines.append("")
        cells = [
            cell.rjust(width) if column in (2, 3, 4) else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
