"""
What is measured on both sides: rows with both sides' values and their ratio, as a table.

Here: ``Measured``, the table as text and as Markdown. Not here: measuring (``controllers``, ``fleets``), who
runs it (``__main__``).
Rule 1: a ratio says how many times better Rollcall is; it is that of the medians over the runs.
Rule 2: a row without a value on one side has no ratio, and says so.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence

import msgspec

from tests.perf.machine import Machine
from tests.perf.results import Measure, Run, aligned, number
from tests.perf.section import Section

SIDES = ("rocketmq", "rollcall")
HEAD = ("what", "unit", "RocketMQ", "Rollcall", "times better", "aim", "verdict")


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """A row with what was found."""

    section: str
    row: Measure
    values: dict[str, tuple[float, ...]]
    """Side -> one value per run that ended well."""

    def median(self, side: str) -> float | None:
        """Over the runs of a side."""
        found = self.values.get(side)
        return statistics.median(found) if found else None

    @property
    def ratio(self) -> float | None:
        """How many times better Rollcall is; None = not both were measured, or one of them is zero."""
        theirs, ours = (self.median(side) for side in SIDES)
        if not theirs or not ours:
            return None
        return ours / theirs if self.row.is_floor else theirs / ours

    @property
    def verdict(self) -> str:
        """``reached``, or by how much it is missed."""
        ours = self.median("rollcall")
        if ours is None:
            return "" if self.row.aim is None else "not measured"
        return self.row.verdict(ours)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON file."""

    machine: Machine
    version: str
    command: str
    seconds: float
    measured: list[Measured]
    runs: list[Run]


def gather(sections: Sequence[Section], runs: Sequence[Run]) -> list[Measured]:
    """Every row with the values of its runs."""
    return [
        Measured(
            section=section.name,
            row=row,
            values={
                side: tuple(
                    done.values[row.key]
                    for done in runs
                    if (done.section, done.side) == (section.name, side) and row.key in done.values
                )
                for side in SIDES
            },
        )
        for section in sections
        for row in section.measures
    ]


def _cells(found: Measured) -> tuple[str, ...]:
    sides = []
    for side in SIDES:
        values = found.values.get(side, ())
        if not values:
            sides.append("-")
        elif len(values) == 1 or min(values) == max(values):
            sides.append(number(values[0]))
        else:
            median = statistics.median(values)
            sides.append(f"{number(median)} ({number(min(values))}-{number(max(values))})")
    ratio = "" if found.ratio is None else f"{number(found.ratio)} x"
    return (found.row.what, found.row.unit, *sides, ratio, found.row.aim_text, found.verdict)


def text(measured: Sequence[Measured]) -> str:
    """One line per row, sections apart; medians, smallest and greatest in parentheses."""
    rows = [tuple(word.upper() for word in HEAD), *(_cells(found) for found in measured)]
    return aligned(rows, [found.section for found in measured])


def markdown(report: Report, sections: Sequence[Section]) -> Iterator[str]:
    """One table per section, with how busy the machine was during its runs."""
    for section in sections:
        found = [one for one in report.measured if one.section == section.name and any(one.values.values())]
        if not found:
            continue
        runs = [done for done in report.runs if done.section == section.name]
        yield f"## {section.title[0].upper()}{section.title[1:]}"
        yield ""
        for side in SIDES:
            own = [done for done in runs if done.side == side]
            load = ", ".join(f"{done.load_before:.1f}" for done in own)
            others = ", ".join(f"{done.cpu_of_others:.2f}" for done in own)
            yield f"{side}: load before each run {load}; cores that other processes used meanwhile {others}."
        yield ""
        yield "| " + " | ".join(HEAD) + " |"
        yield "| --- | --- | ---: | ---: | ---: | --- | --- |"
        for one in found:
            yield "| " + " | ".join(cell.strip() for cell in _cells(one)) + " |"
        yield ""
