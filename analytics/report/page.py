"""
The report as one page: nothing is loaded, and one script runs in it, that hides and shows.

Here: the values that the templates beside (``*.jinja``) put between their words. Not here: the words and the order of
the parts (the templates), the pictures (beside), definitions of figures (``gold.tables``), the rows
(``gather``).
Rule 1: no address outside the page but links to its own tables, no script but ``filter.js``; a policy in the head holds
browsers to it, and names that script by its hash.
Rule 2: a section without anything to tell is named in one line, a picture without rows says why; nothing is left out.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rollcall_ha.analytics.bronze.lines import file_of
from rollcall_ha.analytics.checks import what_if
from rollcall_ha.analytics.gold.tables import ALL
from rollcall_ha.analytics.report import contents, phases, pictures, scales, service
from rollcall_ha.analytics.report.contents import TABLES, Contents
from rollcall_ha.analytics.report.questions import Row, Rows, rate, sentences, surety, unknowns

if TYPE_CHECKING:
    from jinja2 import Environment

TITLE = "Rollcall failover report"


def page(found: Contents) -> str:
    """The whole page as text."""
    rto = found.of(contents.RTO)
    rows = {table.name: found.of(table) for table in TABLES}
    whole = next((row for row in rows["clusters"] if row["cluster"] == ALL), None)
    going_on = [row for row in rows["incidents"] if row["is_open"]]
    rows["what_if"], in_force = what_if.answer(rows["what_if"])
    told = {key: words for key, (words, _, wanted) in SECTIONS.items() if _tells(rows, wanted)}
    return (
        templates()
        .get_template("page.html.jinja")
        .render(
            title=TITLE,
            found=found,
            rows=rows,
            names={row["fleet"]: row["name"] for row in rows["clusters"]},
            percentiles=phases.of_all_causes(rto),
            **_service(rows),
            said=sentences(rows),
            unknowns=unknowns(rows["unknowns"]),
            whole=whole,
            going_on=going_on,
            verdict=None if whole is None else verdict(whole, is_out=bool(going_on)),
            told=told,
            silent=[words for key, (_, words, _) in SECTIONS.items() if key not in told],
            quality=list(_quality(found.of(contents.QUALITY))),
            in_force=in_force,
            limits=what_if.LIMITS,
            script=SCRIPT,
            script_hash=base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode(),
        )
    )


SCRIPT = (Path(__file__).parent / "filter.js").read_text()

SECTIONS = {
    "phases": ("where the time went", "phases of failovers", "failovers longest_phases"),
    "durations": ("how long", "durations of failovers", "rto"),
    "planned": ("planned", "planned changes of masters", "planned"),
    "needless": ("needless", "needless failovers", "needless.needless"),
    "loss": ("losses", "losses", "grades"),
    "exposure": ("exposure", "time with fewer members in sync than a set needs", "calendar.exposed_ms"),
    "sets": ("fleet", "time without a master by set", "heat_map.outage_ms"),
    "worst": (
        *("worst offenders", "worst offenders"),
        "worst_nodes replica_costs worst_sets.outage_ms worst_sets.exposed_ms",
    ),
    "controllers": ("controllers", "costs of another leading controller", "controller_changes.failovers"),
    "orders": ("who did what", "orders of people and reports of brokers", "orders reports"),
    "what-if": ("what if", "other timeouts", "what_if"),
}
"""
A section's id -> its words in the list of sections, its words where it has nothing to tell, and what it tells: tables
with a row, and columns (``TABLE.COLUMN``) in which any row is not 0.
"""


def _tells(rows: Mapping[str, Rows], wanted: str) -> bool:
    parts = (one.partition(".") for one in wanted.split())
    return any(not column or row[column] for table, _, column in parts for row in rows[table])


def _service(rows: Mapping[str, Rows]) -> dict[str, Any]:
    periods, of = rows["periods"], service.fleets(rows["clusters"])
    to_choose = service.months(periods)
    return {
        "fleets": of,
        "months": to_choose,
        "choices": list(service.choices(periods, of)),
        "trends": [(unit, service.trend(periods, of, unit)) for unit in ("month", "week")],
        "incidents": service.incidents(rows["incidents"], of, to_choose),
        "budgets": service.budgets(rows["budgets"], of, to_choose),
    }


@cache
def templates() -> Environment:
    """The templates beside, with the words and places that they print."""
    # Half a second to import, which a summary has no use for.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    # Autoescape for every name: by the suffix, Jinja would take .jinja for plain text and let a set's name be markup.
    # Strict: a misspelt column fails the tests, where a lenient page would show an empty cell.
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "as_of": scales.as_of,
        "duration": scales.duration,
        "duration_us": scales.duration_us,
        "failover": lambda row: f"{scales.shortened(row['broker_set'], 22)}, epoch {row['master_epoch']:,}",
        "file": file_of,
        "grouped": "{:,}".format,
        "percent": "{:.2%}".format,
        "rough": scales.rough,
        "share": scales.share,
        "shortened": scales.shortened,
        "size": scales.size,
        "when": scales.when,
        "whole": lambda name: "all" if name == ALL else name,
        "whole_ms": scales.whole_ms,
    }
    environment.globals |= {
        "count": scales.count,
        "levels": scales.Levels.of_durations,
        "phases": phases,
        "pictures": pictures,
        "rate": rate,
        "service": service,
        "surety": surety,
    }
    return environment


def verdict(whole: Row, *, is_out: bool) -> tuple[str, str]:
    """One word for the lake, and its style: only a proof counts as one. ``is_out``: a set is out of service now."""
    if whole["refuted"]:
        return "ALARM", "alarm"
    if is_out:
        return "OUT OF SERVICE", "alarm"
    if whole["unknown"] or whole["bounded"] or whole["ungraded"]:
        return "LOSS POSSIBLE", "warn"
    return "OK", "ok"


QUALITY_WORDS = {
    "lines": "lines read",
    "blank": "blank lines",
    "shared": "lines with more than one record",
    "pieces": "records found in them",
    "events": "events kept, each once",
    "copies": "copies of events that were there already",
    "orphans": "epochs that are reported on, but whose election is missing: a hole in the journals",
    "negative_intervals": "intervals that end before they begin: skewed clocks",
    "backward_stamps": "stamps before the one before them: quarantined",
    "incomplete": "failovers with a missing phase",
    "open": "failovers without a serving master since",
}
REJECTED = "rejected:"
_HARMLESS = frozenset({"lines", "pieces", "events", "copies", "blank"})


def _quality(rows: Rows) -> Iterator[tuple[str, str, str]]:
    """Words, a mark at a figure to look into, and the count; in the order of ``QUALITY_WORDS``."""
    order = {name: place for place, name in enumerate(QUALITY_WORDS)}
    for row in sorted(rows, key=lambda row: (order.get(row["name"], len(order)), row["name"])):
        name, seen = row["name"], row["count"]
        words = QUALITY_WORDS.get(name, f"rejected: {name.removeprefix(REJECTED).replace('-', ' ')}")
        yield words, "" if name in _HARMLESS or not seen else "\N{BLACK UP-POINTING TRIANGLE} look", f"{seen:,}"
