"""
Quantities side by side: the worst sets and replicas, the grades of loss, the failovers under another preset.

Here: rows of the report's tables to pictures. Not here: the counting (``gather``, ``questions``).
Rule 1: bars of one picture have one scale and begin at 0; the number is written beside each.
Rule 2: a kind of bar is told by colour, pattern and its place or its letter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markupsafe import Markup

from rollcall_ha.analytics.gold.tables import ALL
from rollcall_ha.analytics.report.markup import at, badge, box, label, legend, line, part, strip, swatch
from rollcall_ha.analytics.report.questions import rate
from rollcall_ha.analytics.report.scales import count, duration, share, whole_ms

Row = Mapping[str, Any]

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

ROOM_PX = 350.0
"""Width of a strip where it is narrowest: words are written into what is wide enough for them even there."""
_LETTER_PX, _PIXELS_PER_CHARACTER = 13.0, 8.0
_REACH = 0.78
"""Of a strip, for its longest bar: the number is written behind it."""

Amount = tuple[str, float | None, str]
"""Kind of a bar, its quantity, its words."""
Part = tuple[str, str, int, str, str]
"""Kind, letter, quantity, hint, and the words inside, where there is room."""


def amounts(rows: Sequence[tuple[str, str, Sequence[Amount]]]) -> Markup:
    """A row for each name with its words and its bars."""
    most = max((quantity or 0 for *_, bars in rows for _, quantity, _ in bars), default=0) or 1

    def bar(number: int, kind: str, quantity: float | None, words: str) -> list[object]:
        wide = _REACH * max(0, quantity or 0) / most
        text = label(words, 6, 15 * number + 10, class_="small value")
        return [part(0, wide, 15 * number, 12, kind), at(wide, text)]

    return Markup().join(
        line(name, strip(*(bar(n, *one) for n, one in enumerate(bars)), height=15 * len(bars)), soft=soft)
        for name, soft, bars in rows
    )


def segments(parts: Iterable[Part], whole: float, height: float) -> Markup:
    """A strip of parts, one after the other, that are ``whole`` together."""
    pieces: list[object] = [box(0, 0, "100%", height, "track")]
    low = 0.0
    for kind, letter, quantity, hint, words in parts:
        wide, plate = quantity / whole, _PIXELS_PER_CHARACTER * len(words) + 10
        pieces.append(part(low, wide, 0, height, kind, hint=hint))
        inside: Sequence[object] = ()
        if words and ROOM_PX * wide >= plate + 24:
            inside = [
                badge(letter, -plate / 2 - 4, height / 2) if letter else None,
                box(6 - plate / 2, height / 2 - 8, plate, 16, "plate-box"),
                label(words, 6, height / 2 + 4, class_="small value", anchor="middle"),
            ]
        elif letter and ROOM_PX * wide >= _LETTER_PX:
            inside = badge(letter, 0, height / 2)
        pieces.append(at(low + wide / 2, inside) if inside else None)
        low += wide
    return strip(*pieces, height=height)


def _shares(row: Row, kinds: Kinds, prefix: str) -> Markup:
    """All failovers of a row, by their kind."""
    parts = [
        (f"{prefix}-{n}", letter, row[n], f"{n}: {row[n]:,}", f"{row[n]:,}") for n, letter, _ in kinds if row[n] > 0
    ]
    return segments(parts, sum(row[n] for n, *_ in kinds) or 1, 24)


def _legend(kinds: Kinds, prefix: str, *bars: tuple[str, str]) -> Markup:
    return legend(
        [(swatch(f"{prefix}-{name}", letter), f"{name}: {words}") for name, letter, words in kinds]
        + [(swatch(kind), words) for kind, words in bars]
    )


def grades(rows: Sequence[Row]) -> Markup:
    """Per cause; lost and cut bytes are in the table below."""
    return Markup().join(
        line(row["cause"], _shares(row, GRADES, "grade"), value=count(row["failovers"], "failover")) for row in rows
    )


def grade_legend() -> Markup:
    """Colour, pattern, letter and meaning of every grade."""
    return _legend(GRADES, "grade")


def needless(rows: Sequence[Row]) -> Markup:
    """Per cause, "*" first."""
    return Markup().join(
        line(
            "all" if row["cause"] == ALL else row["cause"],
            _shares(
                {
                    "needed": row["failovers"] - row["needless"],
                    "false": row["needless"] - row["controller_caused"],
                    "led": row["controller_caused"],
                },
                ALARMS,
                "alarm",
            ),
            value=count(row["failovers"], "failover"),
        )
        for row in rows
    )


def needless_legend() -> Markup:
    """What a failover was for."""
    return _legend(ALARMS, "alarm")


def worst_sets(rows: Sequence[Row]) -> Markup:
    """Two bars per set: without a master, and with one member in sync."""

    def one(row: Row) -> tuple[str, str, list[Amount]]:
        faults = f"{count(row['failovers'], 'failover')}, {count(row['flaps'], 'flap')}"
        bars = [(kind, row[f"{kind}_ms"], duration(row[f"{kind}_ms"])) for kind in ("outage", "exposed")]
        return f"{row['cluster']}/{row['broker_set']}", f"{share(row['availability_ppm'])} available, {faults}", bars

    return amounts([one(row) for row in rows])


def worst_legend() -> Markup:
    """The two kinds of bars."""
    return _legend((), "", ("outage", "upper: without a serving master"), ("exposed", "lower: one member in sync"))


def replica_costs(rows: Sequence[Row]) -> Markup:
    """Outage by replica."""

    def soft(row: Row) -> str:
        return f"{count(row['failovers'], 'failover')}, {row['needless']:,} needless; {rate(row)}"

    return _outages(
        (f"{row['cluster']}/{row['broker_set']} {row['broker_id']}", soft(row), row["outage_ms"]) for row in rows
    )


def controller_changes(rows: Sequence[Row]) -> Markup:
    """What each change cost, by fleet."""
    return _outages(
        (
            "all" if row["fleet"] == ALL else row["fleet"],
            f"{count(row['changes'], 'change')}, {count(row['failovers'], 'failover')} within 30 s",
            row["ms_per_change"],
        )
        for row in rows
    )


def planned(rows: Sequence[Row]) -> Markup:
    """Outage by kind of election."""

    def soft(row: Row) -> str:
        times = f"half within {whole_ms(row['p50_ms'])}, the longest {whole_ms(row['max_ms'])}"
        return f"{count(row['elections'], 'election')}; {times}"

    return _outages((row["kind"], soft(row), row["outage_ms"]) for row in rows)


def _outages(rows: Iterable[tuple[str, str, int | None]]) -> Markup:
    return amounts([(name, soft, [("outage", ms, duration(ms))]) for name, soft, ms in rows])


def what_if(rows: Sequence[Row]) -> Markup:
    """Outcomes of the failovers per preset; then three percentiles, as recorded and under the preset."""
    arrow = "\N{RIGHTWARDS ARROW}"
    outcomes = (
        line(
            f"{row['real_preset']} {arrow} {row['preset']}",
            _shares(row, OUTCOMES, "outcome"),
            value=count(row["failovers"], "failover"),
            soft=f"timeout {duration(row['real_timeout_ms'])} {arrow} {duration(row['timeout_ms'])}; available "
            f"{share(row['availability_ppm'])} {arrow} {share(row['other_availability_ppm'])}",
        )
        for row in rows
    )
    times = [
        (
            f"{row['preset']}, {percent} %",
            "",
            [
                (kind, row[f"{side}p{percent}_ms"], whole_ms(row[f"{side}p{percent}_ms"]))
                for side, kind in (("", "recorded"), ("other_", "replayed"))
            ],
        )
        for row in rows
        for percent in (50, 95, 99)
    ]
    return Markup().join(outcomes) + amounts(times)


def what_if_legend() -> Markup:
    """Outcomes with their letters, and the two kinds of bars."""
    upper, lower = "upper: RTO as recorded", "lower: RTO under the other preset"
    return _legend(OUTCOMES, "outcome", ("recorded", upper), ("replayed", lower))
