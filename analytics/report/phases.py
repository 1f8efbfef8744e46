"""
The phases of a failover: where its time went.

Here: rows of ``report.failovers`` and ``report.longest_phases`` to parts of bars. Not here: which failovers are shown
(``gather``), drawing (``pictures.html.jinja``).
Rule 1: a bar is all of the greater of the RTO and the sum of its phases: its length says nothing, its parts do.
Rule 2: a phase is told by colour, pattern and number; the number is written into it where it fits.
Rule 3: where detection takes most of the time, the later phases are drawn again, enlarged.
Rule 4: a phase without a stamp is not drawn, and named.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter

from rollcall_ha.analytics.gold.tables import ALL
from rollcall_ha.analytics.report.pictures import Part, placed
from rollcall_ha.analytics.report.questions import Row, Rows
from rollcall_ha.analytics.report.scales import duration_us, whole_ms
from rollcall_ha.controller.contract.values import Frozen

PHASES = ("detected", "proposed", "committed", "notified", "promised", "role-applied", "serving")
"""As ``gold.rto`` calls them, in the order of an outage. Numbered from 1 in the pictures."""
UNATTRIBUTED = "no phase explains"

PARTS = [(n, name.replace("-", " "), f"{name.replace('-', '_')}_us") for n, name in enumerate(PHASES, start=1)]
"""Number, words, and the column of ``gold.failovers``."""
LEGEND = (*((n, words) for n, words, _ in PARTS), (0, UNATTRIBUTED))
COLUMNS = (
    *((f"{n} {words}", column) for n, words, column in PARTS),
    *(("rest", "unattributed_us"), ("RTO", "total_us"), ("at most", "total_us_max"), ("waited", "waited_us")),
)
"""The table below the bars: head, and the column of ``gold.failovers``."""
IN_RTO = dict(zip(PHASES, (words for _, words, _ in PARTS), strict=True)) | {
    "unattributed": "unexplained",
    "total": "RTO",
    "outage": "outage",
}
"""Phase of ``gold.rto`` -> its words, in the order of a failover."""

ENLARGED_SHARE_MIN = 0.6
"""When detection took this share of the time, the rest is enlarged."""


class Bar(Frozen):
    """One failover; ``enlarged``, and the share of the bar that it begins and ends at, where detection took most."""

    parts: list[Part]
    enlarged: list[Part]
    lens: tuple[float, float]
    notes: str


def bar_of(row: Row) -> Bar:
    """The stamped phases of a failover, and the rest that no phase explains; durations are positive."""
    found = [(n, words, int(row[column] or 0)) for n, words, column in (*PARTS, (0, UNATTRIBUTED, "unattributed_us"))]
    parts = [
        Part(f"phase-{n}", str(n or ""), us, f"{n or 'rest'}  {words}: {duration_us(us)}", below=duration_us(us))
        for n, words, us in found
        if us > 0
    ]
    whole = max(sum(part.quantity for part in parts), row["total_us"] or 0, 1)
    rest = [part for part in parts if part.kind != "phase-1"]
    after = sum(part.quantity for part in rest)
    detected = sum(part.quantity for part in parts if part.kind == "phase-1") / whole
    is_enlarged = bool(rest) and detected >= ENLARGED_SHARE_MIN
    notes = [f"after detection, enlarged: {duration_us(after)}"] if is_enlarged else []
    if missing := [words for _, words, column in PARTS if row[column] is None]:
        notes.append(f"not stamped: {', '.join(missing)}")
    return Bar(
        parts=placed(parts, whole),
        enlarged=placed(rest, after) if is_enlarged else [],
        lens=(detected, detected + after / whole),
        notes="; ".join(notes),
    )


def longest_phases(rows: Rows) -> Iterator[tuple[Row, list[Part]]]:
    """Per cause its first row, and which phase took longest in how many failovers, coloured and numbered as in bars."""
    for _, of_cause in groupby(rows, itemgetter("cause")):
        found = list(of_cause)
        parts: list[Part] = []
        for row in found:
            number, many = PHASES.index(row["phase"]) + 1, f"{row['failovers']:,}"
            hint = f"{row['phase']}: {many}, mean {whole_ms(row['mean_ms'])}"
            parts.append(Part(f"phase-{number}", str(number), row["failovers"], hint, words=many))
        yield found[0], placed(parts, found[0]["of_failovers"])


def of_all_causes(rto: Rows) -> list[Row]:
    """Percentiles of all causes together, in the order of a failover; what is no part of one comes last."""
    names = list(IN_RTO)
    rows = [row for row in rto if row["cause"] == ALL]
    return sorted(rows, key=lambda row: names.index(row["phase"]) if row["phase"] in names else len(names))
