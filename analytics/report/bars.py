"""
Quantities side by side: the worst sets, the grades of loss, the failovers under another preset.

Here: rows of ``report.worst_sets``, ``report.grades`` and ``report.what_if`` to pictures. Not here: the counting
(``gather``).
Rule 1: bars of one picture have one scale and begin at 0; the number is written beside each.
Rule 2: a kind of bar is told by colour, pattern and its place or its letter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from rollcall_ha.analytics.report.markup import box, element, label, svg
from rollcall_ha.analytics.report.phase_bars import shortened
from rollcall_ha.analytics.report.scales import duration, share, whole_ms

Row = Mapping[str, Any]

WIDTH = 1000.0
GRADES: tuple[tuple[str, str, str], ...] = (
    ("proven", "P", "nothing acknowledged was lost, and that is proven"),
    ("bounded", "B", "at most so many bytes"),
    ("unknown", "U", "cannot be known"),
    ("refuted", "R", "a log that came back shows a loss: an alarm"),
    ("ungraded", "N", "not graded yet"),
)
"""Column of ``gold.failovers_daily``, its letter, its meaning."""

_LETTER_WIDTH_MIN = 12.0


def worst_sets(rows: Sequence[Row]) -> Markup:
    """Two bars per set: without a master, and with one member in sync."""
    left, right = 230.0, 700.0
    most = max((max(row["outage_ms"], row["exposed_ms"]) for row in rows), default=0) or 1
    pieces: list[object] = [
        label("available", 850, 12, class_="soft tiny", anchor="end"),
        label("failovers", 925, 12, class_="soft tiny", anchor="end"),
        label("flaps", WIDTH, 12, class_="soft tiny", anchor="end"),
    ]
    for place, row in enumerate(rows):
        top = 22.0 + place * 38
        pieces.append(label(shortened(f"{row['cluster']}/{row['broker_set']}", 30), 0, top + 18, class_="strong"))
        for offset, column, kind in ((0, "outage_ms", "outage"), (14, "exposed_ms", "exposed")):
            width = (right - left) * row[column] / most
            pieces.append(box(left, top + offset, width, 12, kind))
            pieces.append(box(left, top + offset, width, 12, f"over {kind}-pattern"))
            pieces.append(label(duration(row[column]), left + width + 6, top + offset + 10, class_="small value"))
        pieces.append(label(share(row["availability_ppm"]), 850, top + 18, class_="value", anchor="end"))
        pieces.append(label(f"{row['failovers']:,}", 925, top + 18, class_="value", anchor="end"))
        pieces.append(label(f"{row['flaps']:,}", WIDTH, top + 18, class_="value", anchor="end"))
    names = ", ".join(f"{row['broker_set']} {duration(row['outage_ms'])}" for row in rows)
    return svg(*pieces, width=WIDTH, height=22 + 38 * len(rows), title="Worst sets", description=names)


def _swatch(*classes: str, letter: str = "") -> Markup:
    return element(
        "svg",
        *(box(0, 0, 22, 16, class_) for class_ in classes),
        _badge(letter, 11, 8) if letter else None,
        viewBox="0 0 22 16",
        width=22,
        height=16,
        aria_hidden="true",
    )


def _badge(letter: str, x: float, y: float) -> list[Markup]:
    return [
        element("circle", cx=x, cy=y, r=7.0, class_="badge"),
        label(letter, x, y + 4, class_="badge-text", anchor="middle"),
    ]


def worst_legend() -> Markup:
    """The two kinds of bars."""
    return element(
        "ul",
        element("li", _swatch("outage", "over outage-pattern"), " upper: without a serving master"),
        element("li", _swatch("exposed", "over exposed-pattern"), " lower: one member in sync"),
        class_="legend",
    )


def grades(rows: Sequence[Row]) -> Markup:
    """A bar of parts per cause, all as wide; beside it how many, lost and cut bytes are in the table below."""
    left, right = 150.0, 860.0
    pieces: list[object] = []
    for place, row in enumerate(rows):
        top = 4.0 + place * 34
        total = sum(row[name] for name, *_ in GRADES)
        pieces.append(label(row["cause"], 0, top + 17, class_="strong"))
        pieces.append(label(f"{total:,} failovers", WIDTH, top + 17, class_="value", anchor="end"))
        x = left
        for name, letter, _ in GRADES:
            width = (right - left) * row[name] / max(1, total)
            if not width:
                continue
            pieces.append(box(x, top, width, 24, f"grade-{name}"))
            pieces.append(box(x, top, width, 24, f"over grade-{name}-pattern", hint=f"{name}: {row[name]:,}"))
            pieces += _inside(letter, f"{row[name]:,}", x, width, top + 12)
            x += width
    text = "; ".join(f"{row['cause']}: " + ", ".join(f"{row[n]:,} {n}" for n, *_ in GRADES) for row in rows)
    return svg(*pieces, width=WIDTH, height=8 + 34 * len(rows), title="Grades of loss", description=text)


def _inside(letter: str, count: str, x: float, width: float, y: float) -> list[Markup]:
    """The letter, and the number on a plate of its own, as far as there is room."""
    plate = 8.0 * len(count) + 10
    if width >= plate + 24:
        middle = x + width / 2
        return [
            *_badge(letter, middle - plate / 2 - 4, y),
            box(middle - plate / 2 + 6, y - 8, plate, 16, "plate-box"),
            label(count, middle + 6, y + 4, class_="small value", anchor="middle"),
        ]
    return _badge(letter, x + width / 2, y) if width >= _LETTER_WIDTH_MIN else []


OUTCOMES: tuple[tuple[str, str, str], ...] = (
    ("faster", "F", "found sooner"),
    ("slower", "S", "found later"),
    ("avoided", "A", "a false alarm that would not have been"),
    ("same", "=", "as it was"),
    ("unknown", "?", "not on record"),
)
"""Column of ``report.what_if``, its letter, its meaning."""


def what_if(rows: Sequence[Row]) -> Markup:
    """A block per preset: outcomes of the failovers, and three percentiles as recorded and under the preset."""
    left, right = 230.0, 800.0
    durations = [row[f"{side}{name}_ms"] for row in rows for name in _PERCENTILES for side in ("", "other_")]
    most = max((value for value in durations if value is not None), default=0) or 1
    pieces: list[object] = []
    top = 4.0
    for row in rows:
        timeouts = f"timeout {duration(row['real_timeout_ms'])} \N{RIGHTWARDS ARROW} {duration(row['timeout_ms'])}"
        pieces.append(label(f"{row['real_preset']} \N{RIGHTWARDS ARROW} {row['preset']}", 0, top + 12, class_="strong"))
        pieces.append(label(timeouts, 0, top + 28, class_="soft"))
        pieces.append(label(f"{row['failovers']:,} failovers", WIDTH, top + 16, class_="value", anchor="end"))
        pieces += _outcomes(row, left, right, top)
        top += 36
        for name, words in _PERCENTILES.items():
            pieces.append(label(words, left - 12, top + 18, class_="small", anchor="end"))
            for offset, side, kind in ((0, "", "recorded"), (13, "other_", "replayed")):
                value = row[f"{side}{name}_ms"]
                width = (right - left) * (value or 0) / most
                pieces.append(box(left, top + offset, width, 11, kind))
                pieces.append(box(left, top + offset, width, 11, f"over {kind}-pattern"))
                text = whole_ms(value)
                pieces.append(label(text, left + width + 6, top + offset + 10, class_="small value"))
            top += 32
        top += 18
    said = "; ".join(f"{row['preset']}: " + ", ".join(f"{row[n]:,} {n}" for n, *_ in OUTCOMES) for row in rows)
    return svg(*pieces, width=WIDTH, height=max(20.0, top - 14), title="Under other presets", description=said)


_PERCENTILES = {"p50": "RTO, 50 %", "p95": "95 %", "p99": "99 %"}


def _outcomes(row: Row, left: float, right: float, top: float) -> list[object]:
    pieces: list[object] = []
    total, x = max(1, sum(row[name] for name, *_ in OUTCOMES)), left
    for name, letter, words in OUTCOMES:
        width = (right - left) * row[name] / total
        if width:
            pieces.append(box(x, top, width, 24, f"outcome-{name}"))
            pieces.append(box(x, top, width, 24, f"over outcome-{name}-pattern", hint=f"{words}: {row[name]:,}"))
            pieces += _inside(letter, f"{row[name]:,}", x, width, top + 12)
        x += width
    return pieces


def what_if_legend() -> Markup:
    """Outcomes with their letters, and the two kinds of bars."""
    outcomes = [
        element("li", _swatch(f"outcome-{n}", f"over outcome-{n}-pattern", letter=letter), f" {n}: {words}")
        for n, letter, words in OUTCOMES
    ]
    kinds = [
        element("li", _swatch("recorded", "over recorded-pattern"), " upper: RTO as recorded"),
        element("li", _swatch("replayed", "over replayed-pattern"), " lower: RTO under the other preset"),
    ]
    return element("ul", *outcomes, *kinds, class_="legend")


def grade_legend() -> Markup:
    """Colour, pattern, letter and meaning of every grade."""
    return element(
        "ul",
        *(
            element("li", _swatch(f"grade-{n}", f"over grade-{n}-pattern", letter=letter), f" {n}: {meaning}")
            for n, letter, meaning in GRADES
        ),
        class_="legend",
    )
