"""
The report as one page: nothing is loaded, nothing runs in it.

Here: the values that the templates beside (``*.jinja``) put between their words. Not here: the words and the order of
the parts (the templates), the pictures (beside), definitions of figures (``gold.tables``), the rows
(``gather``).
Rule 1: no script, no address outside the page but links to its own tables; a policy in the head holds browsers to it.
Rule 2: a picture without rows says why it is empty; it is not left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from rollcall_ha.analytics.bronze.lines import file_of
from rollcall_ha.analytics.checks.counterfactual import MAY_NOT_CLAIM
from rollcall_ha.analytics.gold.tables import ALL
from rollcall_ha.analytics.report import contents, phases, pictures, scales
from rollcall_ha.analytics.report.contents import TABLES, Contents
from rollcall_ha.analytics.report.questions import UNKNOWNS, Row, Rows, rate, sentences, surety, unknowns

TITLE = "Rollcall failover report"


def page(found: Contents) -> str:
    """The whole page as text."""
    rto = found.of(contents.RTO)
    whole = next((row for row in found.of(contents.CLUSTERS) if row["cluster"] == ALL), None)
    rows = {table.name: found.of(table) for table in TABLES}
    return (
        templates()
        .get_template("page.html.jinja")
        .render(
            title=TITLE,
            found=found,
            rows=rows,
            said=sentences(rows),
            unknowns=unknowns(found.of(UNKNOWNS)),
            whole=whole,
            verdict=None if whole is None else verdict(whole),
            total=next((row for row in rto if row["cause"] == ALL and row["phase"] == "total"), None),
            percentiles=phases.of_all_causes(rto),
            quality=list(_quality(found.of(contents.QUALITY))),
            may_not_claim=MAY_NOT_CLAIM,
        )
    )


@cache
def templates() -> Environment:
    """The templates beside, with the words and places that they print."""
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
        "surety": surety,
    }
    return environment


def verdict(whole: Row) -> tuple[str, str]:
    """One word for the whole lake and its style: only a proof counts as one."""
    if whole["refuted"]:
        return "ALARM", "alarm"
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
