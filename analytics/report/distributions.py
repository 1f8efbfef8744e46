"""
How long failovers took: a histogram per cause, percentiles per phase.

Here: rows of ``report.rto_histogram`` and ``gold.rto`` to pictures. Not here: percentiles themselves (``gold.totals``).
Rule 1: the axis is logarithmic and the same for all causes, so that they can be compared downwards.
Rule 2: a percentile is told by its shape: circle 50, square 90, diamond 95, triangle 99, cross the greatest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from rollcall_ha.analytics.gold.tables import ALL
from rollcall_ha.analytics.report.markup import box, element, label, svg
from rollcall_ha.analytics.report.phase_bars import PHASES
from rollcall_ha.analytics.report.scales import LogAxis, duration, whole_ms

Row = Mapping[str, Any]

BINS_PER_DECADE = 10
WIDTH = 1000.0
LEFT, RIGHT = 150.0, 870.0
BAND = 92.0
LINE = 30.0
MARKS = {"p50_ms": "50 %", "p90_ms": "90 %", "p95_ms": "95 %", "p99_ms": "99 %", "max_ms": "greatest"}
"""Column of ``gold.rto`` -> words of its mark."""


def bin_edges_ms(number: int) -> tuple[float, float]:
    """A bin of the histogram: from, and up to but not with."""
    return 10 ** (number / BINS_PER_DECADE), 10 ** ((number + 1) / BINS_PER_DECADE)


def histograms(bins: Sequence[Row], rto: Sequence[Row]) -> Markup:
    """One band per cause, most frequent first; all causes together on top if there are several."""
    totals = {row["cause"]: row for row in rto if row["phase"] == "total"}
    causes = sorted((cause for cause in totals if cause != ALL), key=lambda one: (-totals[one]["failovers"], one))
    by_cause: dict[str, dict[int, int]] = {cause: {} for cause in causes}
    for row in bins:
        by_cause.setdefault(row["cause"], {})[row["bin"]] = row["failovers"]
    edges = [edge for found in by_cause.values() for number in found for edge in bin_edges_ms(number)]
    axis = LogAxis.over(edges, left=LEFT, right=RIGHT)
    height = BAND * max(1, len(causes)) + 30
    pieces: list[object] = [_axis(axis, 4, height - 24)]
    for place, cause in enumerate(causes):
        pieces.append(_band(cause, by_cause[cause], totals[cause], axis, 4 + place * BAND))
    words = "; ".join(f"{c}: half within {whole_ms(totals[c]['p50_ms'])}" for c in causes)
    return svg(*pieces, width=WIDTH, height=height, title="RTO by cause", description=f"Histograms. {words}")


def _band(cause: str, found: Mapping[int, int], row: Row, axis: LogAxis, top: float) -> Markup:
    base, most = top + BAND - 20, max(found.values(), default=1)
    pieces: list[object] = [
        label(cause, 0, base - 26, class_="strong"),
        label(f"{row['failovers']:,} failovers", 0, base - 11, class_="soft"),
        label(f"50 %  {whole_ms(row['p50_ms'])}", WIDTH, base - 26, class_="strong value", anchor="end"),
        label(f"99 %  {whole_ms(row['p99_ms'])}", WIDTH, base - 11, class_="soft value", anchor="end"),
        element("line", x1=LEFT, x2=RIGHT, y1=base, y2=base, class_="axis"),
    ]
    for number, count in sorted(found.items()):
        low, high = (axis.place(edge) for edge in bin_edges_ms(number))
        tall = max(1.5, (BAND - 34) * count / most)
        hint = f"{duration(bin_edges_ms(number)[0])} to {duration(bin_edges_ms(number)[1])}: {count:,}"
        pieces.append(box(low + 0.5, base - tall, max(1.5, high - low - 1), tall, "bar", hint=hint))
    pieces += [_mark(name, axis.place(row[name]), base + 8) for name in MARKS]
    return element("g", pieces)


def _axis(axis: LogAxis, top: float, bottom: float) -> Markup:
    pieces: list[object] = []
    for tick in axis.ticks():
        x = axis.place(tick)
        pieces.append(element("line", x1=x, x2=x, y1=top, y2=bottom, class_="grid"))
        pieces.append(label(duration(tick), x, bottom + 18, class_="soft tiny", anchor="middle"))
    return element("g", pieces)


def percentiles(rto: Sequence[Row]) -> Markup:
    """A line per phase, from the first to the RTO, over all causes."""
    names = [(words, words.replace(" ", "-")) for words, _ in PHASES]
    names += [("unexplained", "unattributed"), ("RTO", "total"), ("outage", "outage")]
    by_phase = {row["phase"]: row for row in rto if row["cause"] == ALL}
    shown = [(words, by_phase[phase]) for words, phase in names if phase in by_phase]
    axis = LogAxis.over([row[name] for _, row in shown for name in MARKS], left=LEFT, right=RIGHT)
    height = LINE * max(1, len(shown)) + 34
    pieces: list[object] = [_axis(axis, 4, height - 26)]
    for place, (words, row) in enumerate(shown):
        pieces.append(_line(words, row, axis, 4 + place * LINE + LINE / 2))
    text = "; ".join(f"{words}: half within {whole_ms(row['p50_ms'])}" for words, row in shown)
    return svg(*pieces, width=WIDTH, height=height, title="Percentiles by phase", description=text)


def _line(words: str, row: Row, axis: LogAxis, y: float) -> Markup:
    low, high = axis.place(row["p50_ms"]), axis.place(row["max_ms"])
    numbers = f"{whole_ms(row['p50_ms'])} / {whole_ms(row['p99_ms'])}"
    hint = ", ".join(f"{mark} {whole_ms(row[name])}" for name, mark in MARKS.items())
    return element(
        "g",
        element("title", f"{words}: {hint}, of {row['failovers']:,}"),
        label(words, 0, y + 4, class_="strong" if words == "RTO" else ""),
        element("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid"),
        element("line", x1=low, x2=high, y1=y, y2=y, class_="span"),
        *(_mark(name, axis.place(row[name]), y) for name in reversed(MARKS)),
        label(numbers, WIDTH, y + 4, class_="value", anchor="end"),
    )


def _mark(name: str, x: float, y: float) -> Markup:
    return element("g", _SHAPES[name](x, y), class_=f"mark {name.removesuffix('_ms')}")


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
    return element(
        "ul",
        *(
            element(
                "li",
                element("svg", _mark(name, 9, 8), viewBox="0 0 18 16", width=18, height=16, aria_hidden="true"),
                f" {words}",
            )
            for name, words in MARKS.items()
        ),
        class_="legend",
    )
