"""
The first questions of a manager: which rows of months, incidents and budgets belong to a choice of fleet and period.

Here: the choices, and the rows of each. Not here: the SELECTs (``contents``, ``questions``), hiding and showing
(``filter.js``), words of the page (``service.html.jinja``).
Rule 1: nothing is reckoned in the browser: each row that some choice shows is in the page with the ``places`` in which
it is shown, and without the script the page is that of all fleets and the whole time.
Rule 2: a figure of few says so: of one failover there is no percentile, of less than 100 the 99 % is the longest one.
"""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Callable, Iterator, Sequence

from rollcall_ha.analytics.gold.tables import ALL, SLO_PPM
from rollcall_ha.analytics.report.questions import Row, Rows
from rollcall_ha.analytics.report.scales import UNKNOWN, count, duration, duration_us, share, whole_ms
from rollcall_ha.controller.contract.values import Frozen

WHOLE = "all"
"""The choice of all fleets, of the whole time."""
ROWS_MAX = 10
"""Incidents, and budgets, of a choice: the SELECTs give so many of each fleet and month."""
FLEETS_MAX = 8
"""More fleets than these, which were longest out of service, are in the page of all fleets only."""

Placed = tuple[Row, str]
"""A row, and the choices that show it, as ``FLEET:PERIOD`` with spaces between; ``FLEET:`` is any period of a fleet."""


class Fleet(Frozen):
    """A fleet to choose: what it is called in ``places``, its incarnation (``ALL``: all fleets), its words."""

    key: str
    fleet: str
    words: str


class Choice(Frozen):
    """Service in one period, and in those beside it, each with its words."""

    places: str
    words: str
    row: Row
    beside: Sequence[tuple[str, Row]]


def fleets(clusters: Rows) -> list[Fleet]:
    """All fleets together first; each alone where there are several."""
    named = {row["fleet"]: row["name"] for row in clusters if row["fleet"] != ALL}
    several = list(named.items())[:FLEETS_MAX] if len(named) > 1 else []
    alone = (Fleet(key=f"f{number}", fleet=fleet, words=name) for number, (fleet, name) in enumerate(several))
    return [Fleet(key=WHOLE, fleet=ALL, words=f"all {len(named)} fleets" if several else "the fleet"), *alone]


def months(periods: Rows) -> list[dt.date]:
    """The months to choose, the newest first."""
    return sorted({row["from_day"] for row in periods if row["unit"] == "month"}, reverse=True)


def month(day: dt.date) -> str:
    """As a person writes a month: ``November 2026``."""
    return f"{day:%B %Y}"


def choices(periods: Rows, of: Sequence[Fleet]) -> Iterator[Choice]:
    """The whole time with the two newest months beside it, then each month with the one before it."""
    for fleet in of:
        rows = [row for row in periods if row["fleet"] == fleet.fleet]
        told = sorted((row for row in rows if row["unit"] == "month"), key=lambda row: row["from_day"], reverse=True)
        named = [(month(row["from_day"]), row) for row in told]
        for row in (row for row in rows if row["unit"] == WHOLE):
            yield Choice(places=f"{fleet.key}:{WHOLE}", words="the whole time", row=row, beside=named[:2])
        for place, (words, row) in enumerate(named):
            yield Choice(
                places=f"{fleet.key}:{row['from_day']:%Y-%m}", words=words, row=row, beside=named[place + 1 : place + 2]
            )


def trend(periods: Rows, of: Sequence[Fleet], unit: str) -> list[Placed]:
    """Weeks or months of each fleet, the oldest first, whatever the period."""
    keys = {fleet.fleet: f"{fleet.key}:" for fleet in of}
    rows = (row for row in periods if row["unit"] == unit and row["fleet"] in keys)
    return [(row, keys[row["fleet"]]) for row in sorted(rows, key=lambda row: (row["fleet"] != ALL, row["from_day"]))]


def incidents(rows: Rows, of: Sequence[Fleet], to_choose: Sequence[dt.date]) -> list[Placed]:
    """The longest of each choice, the longest first; one belongs to the month in which it began."""
    ordered = sorted(rows, key=lambda row: -row["outage_ms"])
    return _first(ordered, of, {WHOLE: None} | {f"{day:%Y-%m}": day for day in to_choose}, _began_in)


def budgets(rows: Rows, of: Sequence[Fleet], to_choose: Sequence[dt.date]) -> list[Placed]:
    """Sets with least of their budget left in each month; the whole time shows the newest one."""
    by_key: dict[str, dt.date | None] = {f"{day:%Y-%m}": day for day in to_choose}
    if to_choose:
        by_key[WHOLE] = to_choose[0]
    return _first(rows, of, by_key, lambda row: row["month"])


def _began_in(row: Row) -> dt.date:
    began: dt.datetime = row["began_at"]
    return began.astimezone(dt.UTC).date().replace(day=1)


def _first(
    rows: Rows, of: Sequence[Fleet], periods: dict[str, dt.date | None], month_of: Callable[[Row], dt.date]
) -> list[Placed]:
    """The first ``ROWS_MAX`` rows of each choice, with all their places; a period of None has every month."""
    places: list[list[str]] = [[] for _ in rows]
    for fleet in of:
        for key, wanted in periods.items():
            fits = (
                n
                for n, row in enumerate(rows)
                if fleet.fleet in (ALL, row["fleet"]) and wanted in (None, month_of(row))
            )
            for _, number in zip(range(ROWS_MAX), fits, strict=False):
                places[number].append(f"{fleet.key}:{key}")
    return [(row, " ".join(told)) for row, told in zip(rows, places, strict=True) if told]


def without(placed: Sequence[Placed], of: Sequence[Fleet], to_choose: Sequence[dt.date]) -> str:
    """The places in which no row is shown: there it says so."""
    shown = {place for _, places in placed for place in places.split()}
    every = (f"{fleet.key}:{period}" for fleet in of for period in (WHOLE, *(f"{day:%Y-%m}" for day in to_choose)))
    return " ".join(place for place in every if place not in shown)


# --- words -----------------------------------------------------------------------------------------------------------


SLO = f"{SLO_PPM / 10_000:g} %"

Figure = tuple[str, str]
"""A figure, and what it is."""


def tiles(choice: Choice) -> Iterator[tuple[str, str, list[Figure]]]:
    """Figures of a period, each with its words and with those beside it."""
    for of in (_failovers, rto, _available, loss, _exposed):
        yield *of(choice.row), [(words, of(row)[0]) for words, row in choice.beside]
    # The SLO is a month's: the whole time tells of the newest one.
    told = [(choice.words, choice.row), *choice.beside] if choice.row["unit"] == "month" else [*choice.beside]
    if told:
        words, row = told[0]
        yield kept(row), f"kept {SLO} available in {words}", [(words, kept(row)) for words, row in told[1:]]


def _failovers(row: Row) -> Figure:
    alarms = f", {count(row['false_positives'], 'false alarm')} among them" if row["false_positives"] else ""
    return f"{row['failovers']:,}", f"failover{'' if row['failovers'] == 1 else 's'}{alarms}"


def _available(row: Row) -> Figure:
    return share(row["availability_ppm"]), f"available; {duration(row['outage_ms'])} without service, all sets together"


def _exposed(row: Row) -> Figure:
    return duration(row["exposed_ms"]), "with fewer members in sync than needed, all sets together"


def rto(row: Row) -> Figure:
    """The RTO of a period (rule 2)."""
    timed = row["timed"]
    if not timed:
        return "-", "RTO: no failover was timed"
    if timed == 1:
        return whole_ms(row["max_ms"]), "RTO: 1 failover; no percentile"
    least = f"RTO: half of {timed:,} failovers; "
    most = f"the longest {whole_ms(row['max_ms'])}" if timed < 100 else f"99 % within {whole_ms(row['p99_ms'])}"
    return whole_ms(row["p50_ms"]), least + most


def loss(row: Row) -> Figure:
    """The failovers of a period that are proven to have lost nothing, and those that lost."""
    many, proven = row["failovers"], row["proven"]
    if not many:
        return "-", "no failover could lose anything"
    refuted = f"; {row['refuted']:,} LOST what was acknowledged" if row["refuted"] else ""
    return f"{proven:,} of {many:,}", f"failovers are proven to have lost nothing{refuted}"


def kept(row: Row) -> str:
    """How many sets kept the SLO in a month: ``21 of 22 sets``."""
    return UNKNOWN if row["sets"] is None else f"{row['sets'] - row['missed']:,} of {count(row['sets'], 'set')}"


WHAT = {
    "handover": "planned: the master was restarted",
    "requested": "planned: somebody ordered it",
    "switchover": "planned: switchover",
    "writes-stopped": "writes stopped",
    "nobody-elected": "the master was lost, and nobody was elected",
}
"""Kind of an incident -> words; of the others the cause is told."""


def what(row: Row) -> str:
    """``dead at once``, ``writes stopped: disk full``."""
    cause = (row["cause"] or "").replace("-", " ")
    words = WHAT.get(row["kind"])
    if words is None:
        return ", ".join(dict.fromkeys(filter(None, [row["kind"].replace("failover", ""), cause]))) or row["kind"]
    return f"{words}: {cause}" if cause else words


def lasted(row: Row) -> str:
    """The outage of an incident, as history has it where it was timed."""
    low, high = row["total_us"], row["total_us_max"]
    if row["is_open"] or low is None:
        return duration(row["outage_ms"])
    if high is None:
        return f"over {duration_us(low)}"
    return duration_us(low) if low == high else f"{duration_us(low)} to {duration_us(high)}"


def lost(row: Row) -> str:
    """Whether an incident cost acknowledged messages, as far as it is graded."""
    if row["kind"] in ("writes-stopped", "nobody-elected"):
        return "no change of master"
    if row["grade"] == "proven":
        return "nothing lost: proven"
    return f"loss {row['grade'] or 'not graded yet'}"


def command(row: Row) -> str:
    """The command that tells more of an incident, typed at the fleet."""
    name = shlex.quote(f"{row['cluster']}/{row['broker_set']}")
    if row["kind"] in ("writes-stopped", "nobody-elected"):
        return f"rollcall history {name}"
    return f"rollcall explain {name} {row['master_epoch']}"
