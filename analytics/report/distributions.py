"""
How long failovers took: a histogram per cause, percentiles per phase.

Here: rows of ``report.rto_histogram`` and ``gold.rto`` to pictures. Not here: percentiles themselves (``gold.tables``).
Rule 1: the axis is logarithmic and the same for all causes, so that they can be compared downwards.
Rule 2: a percentile is told by its shape: circle 50, square 90, diamond 95, triangle 99, cross the greatest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from rollcall_ha.analytics.gold.tables import ALL
from rollcall_ha.analytics.report.markup import at, element, label, legend, line, percent, strip
from rollcall_ha.analytics.report.phase_bars import PHASES
from rollcall_ha.analytics.report.questions import surety
from rollcall_ha.analytics.report.scales import LogAxis, count, duration, whole_ms

Row = Mapping[str, Any]

BINS_PER_DECADE = 10
BAND = 72.0
LINE = 18.0
NARROW_TICKS_MAX = 7
MARKS = {"p50_ms": "50 %", "p90_ms": "90 %", "p95_ms": "95 %", "p99_ms": "99 %", "max_ms": "greatest"}
"""Column of ``gold.rto`` -> words of its mark."""


def bin_edges_ms(number: int) -> tuple[float, float]:
    """A bin of the histogram: from, and up to but not with."""
    return 10 ** (number / BINS_PER_DECADE), 10 ** ((number + 1) / BINS_PER_DECADE)


def histograms(bins: Sequence[Row], rto: Sequence[Row]) -> Markup:
    """One band per cause, most frequent first."""
    totals = {row["cause"]: row for row in rto if row["phase"] == "total"}
    causes = sorted((cause for cause in totals if cause != ALL), key=lambda one: (-totals[one]["failovers"], one))
    by_cause: dict[str, dict[int, int]] = {cause: {} for cause in causes}
    for row in bins:
        by_cause.setdefault(row["cause"], {})[row["bin"]] = row["failovers"]
    axis = LogAxis.over(edge for found in by_cause.values() for number in found for edge in bin_edges_ms(number))
    return Markup().join([*(_band(cause, by_cause[cause], totals[cause], axis) for cause in causes), _ticks(axis)])


def _band(cause: str, found: Mapping[int, int], row: Row, axis: LogAxis) -> Markup:
    base, most = BAND - 18, max(found.values(), default=1)
    pieces: list[object] = [_grid(axis), element("line", x1=0, x2="100%", y1=base, y2=base, class_="axis")]
    for number, many in sorted(found.items()):
        low, high = (axis.place(edge) for edge in bin_edges_ms(number))
        tall = max(1.5, (base - 4) * many / most)
        hint = f"{duration(bin_edges_ms(number)[0])} to {duration(bin_edges_ms(number)[1])}: {many:,}"
        place = {"x": percent(low), "y": base - tall, "width": percent(high - low), "height": tall}
        pieces.append(element("rect", element("title", hint), **place, class_="bar"))
    pieces += [_mark(name, axis.place(row[name]), base + 9) for name in MARKS]
    ends = (f"{MARKS[name]} {whole_ms(row[name])}".replace(" ", "\N{NO-BREAK SPACE}") for name in ("p50_ms", "p99_ms"))
    drawn = strip(*pieces, height=BAND)
    return line(cause, drawn, value=", ".join(ends), soft=count(row["failovers"], "failover"))


def _grid(axis: LogAxis) -> list[Markup]:
    places = (percent(axis.place(tick)) for tick in axis.ticks())
    return [element("line", x1=x, x2=x, y1=0, y2="100%", class_="grid") for x in places]


def _ticks(axis: LogAxis) -> Markup:
    """The last row of a picture: the durations at its grid, fewer where it is narrow."""
    few = axis.ticks(NARROW_TICKS_MAX)
    labels = (
        label(
            duration(tick),
            percent(axis.place(tick)),
            12,
            class_="soft tiny" if tick in few else "soft tiny roomy",
            anchor="middle",
        )
        for tick in axis.ticks()
    )
    return line("", strip(*labels, height=16), value="\N{NO-BREAK SPACE}")


def percentiles(rto: Sequence[Row]) -> Markup:
    """A line per phase, from the first to the RTO, over all causes."""
    names = [(words, words.replace(" ", "-")) for words, _ in PHASES]
    names += [("unexplained", "unattributed"), ("RTO", "total"), ("outage", "outage")]
    by_phase = {row["phase"]: row for row in rto if row["cause"] == ALL}
    shown = [(words, by_phase[phase]) for words, phase in names if phase in by_phase]
    axis = LogAxis.over(row[name] for _, row in shown for name in MARKS)
    return Markup().join([*(_phase(words, row, axis) for words, row in shown), _ticks(axis)])


def _phase(words: str, row: Row, axis: LogAxis) -> Markup:
    marks = [_mark(name, axis.place(row[name]), LINE / 2) for name in reversed(MARKS)]
    hint = ", ".join(f"{mark} {whole_ms(row[name])}" for name, mark in MARKS.items())
    drawn = strip(
        element("title", f"{words}: {hint}, of {row['failovers']:,}"),
        _grid(axis),
        _span(axis.place(row["p50_ms"]), axis.place(row["max_ms"])),
        *marks,
        height=LINE,
    )
    return line(words, drawn, value=f"{whole_ms(row['p50_ms'])} / {whole_ms(row['p99_ms'])}")


def bounds(rows: Sequence[Row]) -> Markup:
    """A line per cause and percentile: where it was, and where it may truly be. Without an end, its side is open."""
    axis = LogAxis.over(row[name] for row in rows for name in ("least_ms", "duration_ms", "most_ms"))

    def one(row: Row) -> Markup:
        least, most = row["least_ms"], row["most_ms"]
        low = 0 if least is None else axis.place(least)
        high = 1 if most is None else axis.place(most)
        drawn = strip(
            _grid(axis),
            _span(low, high, "span open" if least is None or most is None else "span"),
            _mark(f"p{row['percent']}_ms", axis.place(row["duration_ms"]), LINE / 2),
            height=LINE,
        )
        name = f"{'all' if row['cause'] == ALL else row['cause']}, {row['percent']} %"
        few = f"{count(row['failovers'], 'failover')}: {surety(row)}"
        return line(name, drawn, value=whole_ms(row["duration_ms"]), soft=few)

    return Markup().join([*(one(row) for row in rows), _ticks(axis)])


def _span(low: float, high: float, class_: str = "span") -> Markup:
    return element("line", x1=percent(low), x2=percent(high), y1=LINE / 2, y2=LINE / 2, class_=class_)


def _mark(name: str, share: float, y: float) -> Markup:
    return at(share, element("g", _SHAPES[name](0, y), class_=f"mark {name.removesuffix('_ms')}"))


def _polygon(*corners: tuple[float, float]) -> Markup:
    return element("polygon", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in corners))


_SHAPES: Mapping[str, Callable[[float, float], Markup]] = {
    "p50_ms": lambda x, y: element("circle", cx=x, cy=y, r=5.5),
    "p90_ms": lambda x, y: element("rect", x=x - 4.5, y=y - 4.5, width=9.0, height=9.0),
    "p95_ms": lambda x, y: _polygon((x, y - 6), (x + 6, y), (x, y + 6), (x - 6, y)),
    "p99_ms": lambda x, y: _polygon((x, y - 6), (x + 6, y + 5), (x - 6, y + 5)),
    "max_ms": lambda x, y: element(
        "path", d=f"M{x - 5:.1f} {y - 5:.1f}L{x + 5:.1f} {y + 5:.1f}M{x - 5:.1f} {y + 5:.1f}L{x + 5:.1f} {y - 5:.1f}"
    ),
}


def percentile_legend() -> Markup:
    """Each shape with its percentile."""
    shapes = (
        (element("g", _SHAPES[name](9, 8), class_=f"mark {name.removesuffix('_ms')}"), words)
        for name, words in MARKS.items()
    )
    return legend(shapes, width=18)
