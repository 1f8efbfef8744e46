"""
The report as one page: nothing is loaded, nothing runs in it.

Here: the order of its parts, the words around the pictures. Not here: the pictures (beside), what figures mean
(``gold_tables``), how rows are found (``gather``).
Rule 1: no script, no address outside the page but links to its own tables; a policy in the head holds browsers to it.
Rule 2: a picture without rows says why it is empty; it is not left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from rollcall_ha.analytics.core.counterfactual import MAY_NOT_CLAIM
from rollcall_ha.analytics.gold_totals import ALL
from rollcall_ha.analytics.report import bars, contents, distributions, phase_bars, time_maps
from rollcall_ha.analytics.report.contents import Contents, Rows
from rollcall_ha.analytics.report.markup import Markup, box, element
from rollcall_ha.analytics.report.phase_bars import when
from rollcall_ha.analytics.report.scales import Levels, count, duration, share, size, whole_ms
from rollcall_ha.analytics.tables import LakeTable

CONTENT_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
TITLE = "Rollcall failover report"

Row = Mapping[str, Any]


def page(found: Contents) -> str:
    """The whole page as text."""
    whole = next((row for row in found.of(contents.CLUSTERS) if row["cluster"] == ALL), None)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=CONTENT_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", TITLE),
        element("style", Markup(_style())),
    )
    parts = _parts(found) if whole is not None else []
    quality = _section("quality", "What was read, and what could not be used", *_quality(found))
    body = element("body", _top(found, whole), _navigation(whole is not None), *parts, quality, _foot(found))
    return f"<!DOCTYPE html>\n{element('html', head, body, lang='en')}\n"


@cache
def _style() -> str:
    return (Path(__file__).parent / "style.css").read_text()


# --- head and foot ---------------------------------------------------------------------------------------------------

_SECTIONS = (
    ("phases", "where the time went"),
    ("durations", "how long"),
    ("loss", "what was lost"),
    ("exposure", "exposure"),
    ("sets", "fleet"),
    ("worst", "worst offenders"),
    ("what-if", "what if"),
    ("clusters", "clusters"),
    ("quality", "data quality"),
)


def verdict(whole: Row) -> tuple[str, str]:
    """One word for the whole lake and its style: only a proof counts as one."""
    if whole["refuted"]:
        return "ALARM", "alarm"
    if whole["unknown"] or whole["bounded"] or whole["ungraded"]:
        return "LOSS POSSIBLE", "warn"
    return "OK", "ok"


def _top(found: Contents, whole: Row | None) -> list[Markup]:
    patterns = _patterns()
    if whole is None:
        nothing = element("p", "No event of any broker set is in the lake.", class_="lead")
        return [patterns, element("h1", TITLE), nothing]
    word, style = verdict(whole)
    sets, days = (
        count(whole["sets"], "broker set"),
        f"{whole['first_day']} to {whole['last_day']}, UTC",
    )
    lead = element("p", element("span", word, class_=f"verdict {style}"), f"  {sets}, {days}.", class_="lead")
    return [patterns, element("h1", TITLE), lead, _tiles(found, whole)]


def _tiles(found: Contents, whole: Row) -> Markup:
    total = next((r for r in found.of(contents.RTO) if r["cause"] == ALL and r["phase"] == "total"), None)
    rto = "-" if total is None else whole_ms(total["p50_ms"])
    slow = (
        "no failover was timed" if total is None else f"half of the failovers; 99 % within {duration(total['p99_ms'])}"
    )
    lost = f"{whole['bounded']:,} bounded, {whole['unknown']:,} unknown, {whole['refuted']:,} refuted, "
    tiles = (
        (f"{whole['failovers']:,}", f"failovers; {whole['flaps']:,} of them flaps, {whole['open']:,} still open"),
        (rto, f"RTO: {slow}"),
        (f"{whole['proven']:,} proven", f"without loss; {lost}{whole['ungraded']:,} not graded"),
        (share(whole["availability_ppm"]), f"available; {duration(whole['outage_ms'])} without a master in all"),
        (duration(whole["exposed_ms"]), "with one member in sync: one more fault and nobody could be elected"),
        (
            count(whole["false_positives"], "false alarm"),
            f"the deposed master lived; {whole['controller_caused']:,} by a change of controllers",
        ),
        (f"{whole['regretted']:,} regretted", f"another candidate held more, {size(whole['regret_bytes'])} in all"),
        (f"{whole['routes_late']:,} of {whole['routed']:,}", "routes converged late, of those that were reported"),
    )
    return element(
        "div",
        *(element("div", element("b", big), element("span", small), class_="tile") for big, small in tiles),
        class_="tiles",
    )


def _navigation(is_full: bool) -> Markup:
    shown = _SECTIONS if is_full else _SECTIONS[-1:]
    return element("nav", *([element("a", words, href=f"#{name}"), " "] for name, words in shown))


def _patterns() -> Markup:
    """What is drawn over colours; defined once for all pictures."""
    lines = {
        "rising": element("path", d="M-2 2L2 -2M0 8L8 0M6 10L10 6", class_="ink"),
        "falling": element("path", d="M-2 6L2 10M0 0L8 8M6 -2L10 2", class_="ink"),
        "upright": element("path", d="M4 0V8", class_="ink"),
        "level": element("path", d="M0 4H8", class_="ink"),
        "cross": element("path", d="M0 0L8 8M0 8L8 0", class_="ink-rest"),
        "dots": element("circle", cx=4.0, cy=4.0, r=1.5, class_="ink-dot"),
    }
    shapes = [
        element("pattern", drawn, id=name, width=8, height=8, patternUnits="userSpaceOnUse")
        for name, drawn in lines.items()
    ]
    hidden = "position:absolute"
    return element("svg", element("defs", *shapes), box(0, 0, 0, 0, ""), width=0, height=0, style=hidden)


def _foot(found: Contents) -> Markup:
    return element(
        "footer",
        f"Made {when(found.made_at_ms)} from version {found.lake_version:,} of {found.lake}. ",
        "Every picture's table lies beside this page in tables/, as CSV and as Parquet. ",
        "Durations are read from the clocks of those who reported them; nothing is guessed.",
    )


# --- parts -----------------------------------------------------------------------------------------------------------


def _section(name: str, title: str, *children: object) -> Markup:
    return element("section", element("h2", title), *children, id=name)


def _files(*tables: LakeTable) -> Markup:
    links = [
        [
            table.name,
            " ",
            *([element("a", kind, href=f"tables/{table.name}.{kind}"), " "] for kind in ("csv", "parquet")),
        ]
        for table in tables
    ]
    return element("p", "Table behind this: ", links, class_="files")


def html_table(
    heads: Sequence[str], cells: Sequence[Sequence[object]], *, left: int = 1, class_: str | None = None
) -> Markup:
    """A table whose first ``left`` columns are words and the others numbers."""

    def of(name: str, row: Sequence[object]) -> list[Markup]:
        return [element(name, cell, class_="number" if n >= left else None) for n, cell in enumerate(row)]

    head = element("thead", element("tr", of("th", heads)))
    body = element("tbody", *(element("tr", of("td", row)) for row in cells))
    return element("div", element("table", head, body, class_=class_), class_="scroll")


def _words(text: str) -> Markup:
    return element("p", text, class_="soft")


def _picture(rows: Rows, drawn: Markup | None, why_empty: str) -> Markup:
    return element("figure", drawn) if rows and drawn is not None else element("p", why_empty, class_="lead")


def _parts(found: Contents) -> list[Markup]:
    return [
        _section("phases", "Where the time of a failover goes", *_phases(found)),
        _section("durations", "How long failovers took", *_durations(found)),
        _section("loss", "What was lost, and how that is known", *_loss(found)),
        _section("exposure", "Exposure: one more fault and nobody could be elected", *_exposure(found)),
        _section("sets", "Fleet: time without a master", *_fleet(found)),
        _section("worst", "Worst offenders", *_worst(found)),
        _section("what-if", "What another heartbeat timeout would have done", *_what_if(found)),
        _section("clusters", "Clusters", *_clusters(found)),
    ]


def _phases(found: Contents) -> list[Markup]:
    rows = found.of(contents.FAILOVERS)
    return [
        _words(
            "The typical failover of each cause, the slowest and the newest. Each bar is one failover from the first "
            "sign of the fault to the first acknowledgement; its length on paper is always the same."
        ),
        phase_bars.phase_legend(),
        _picture(rows, phase_bars.phase_bars(rows) if rows else None, "No failover was timed."),
        html_table(*phase_bars.phase_numbers(rows), class_="dense") if rows else Markup(""),
        _files(contents.FAILOVERS),
    ]


def _durations(found: Contents) -> list[Markup]:
    rto, bins = found.of(contents.RTO), found.of(contents.RTO_HISTOGRAM)
    heads = ["phase", "failovers", "50 %", "90 %", "95 %", "99 %", "greatest", "longest phase in"]
    total = [row for row in rto if row["cause"] == ALL]
    names = [words.replace(" ", "-") for words, _ in phase_bars.PHASES] + ["unattributed", "total", "outage"]
    total.sort(key=lambda row: names.index(row["phase"]) if row["phase"] in names else len(names))
    cells = [
        [
            row["phase"],
            f"{row['failovers']:,}",
            *(whole_ms(row[name]) for name in distributions.MARKS),
            f"{row['dominated']:,}" if row["dominated"] else "-",
        ]
        for row in total
    ]
    return [
        _words("RTO by cause: how many failovers took how long, each cause by its own height, on one axis."),
        distributions.percentile_legend(),
        _picture(bins, distributions.histograms(bins, rto) if bins else None, "No failover was timed."),
        _words("Percentiles by phase, all causes together. Right: 50 % / 99 %."),
        _picture(total, distributions.percentiles(rto) if total else None, "No phase was stamped."),
        html_table(heads, cells) if cells else Markup(""),
        _files(contents.RTO, contents.RTO_HISTOGRAM),
    ]


def _loss(found: Contents) -> list[Markup]:
    rows = found.of(contents.GRADES)
    heads = ["cause", "failovers", *(name for name, *_ in bars.GRADES), "lost at most", "cut, never acknowledged"]
    cells = [
        [
            row["cause"],
            f"{row['failovers']:,}",
            *(f"{row[name]:,}" for name, *_ in bars.GRADES),
            size(row["loss_bytes"]),
            size(row["cut_bytes"]),
        ]
        for row in rows
    ]
    return [
        _words("Grades of failovers by cause, each bar all of them."),
        bars.grade_legend(),
        _picture(rows, bars.grades(rows), "There was no failover."),
        html_table(heads, cells) if cells else Markup(""),
        _files(contents.GRADES),
    ]


def _exposure(found: Contents) -> list[Markup]:
    rows = found.of(contents.CALENDAR)
    levels = Levels.of_durations(row["exposed_ms"] for row in rows)
    return [
        _words("Time with a SyncStateSet of one member, all sets together, per day. Larger and stronger is longer."),
        time_maps.level_legend(levels),
        _picture(rows, time_maps.calendar(rows) if rows else None, "No day was observed."),
        _files(contents.CALENDAR),
    ]


def _fleet(found: Contents) -> list[Markup]:
    rows = found.of(contents.HEAT_MAP)
    levels = Levels.of_durations(row["outage_ms"] for row in rows)
    days = rows[0]["days"] if rows else 1
    sets = len({row["rank"] for row in rows})
    each = "a day" if days == 1 else f"{days} days"
    return [
        _words(f"{count(sets, 'set')} with most time without a serving master; a column is {each}."),
        time_maps.level_legend(levels),
        _picture(rows, time_maps.heat_map(rows) if rows else None, "No set was observed."),
        _files(contents.HEAT_MAP),
    ]


def _worst(found: Contents) -> list[Markup]:
    sets, nodes = found.of(contents.WORST_SETS), found.of(contents.WORST_NODES)
    heads = ["replica", "faults", "by timeout", "false alarms", "clean stops", "masters lost", "gone", "between faults"]
    cells = [
        [
            f"{row['cluster']}/{row['broker_set']} {row['broker_id']}",
            *(f"{row[name]:,}" for name in ("faults", "timeouts", "false_alarms", "goodbyes", "masters_lost")),
            duration(row["gone_ms"]),
            "-" if row["mtbf_ms"] is None else duration(row["mtbf_ms"]),
        ]
        for row in nodes
    ]
    return [
        bars.worst_legend(),
        _picture(sets, bars.worst_sets(sets), "No set was observed."),
        html_table(heads, cells) if cells else _words("No replica was ever gone."),
        _files(contents.WORST_SETS, contents.WORST_NODES),
    ]


def _what_if(found: Contents) -> list[Markup]:
    rows = found.of(contents.WHAT_IF)
    if not rows:
        return [element("p", found.why_no_what_if, class_="lead")]
    claims = element("ul", *(element("li", line) for line in MAY_NOT_CLAIM), class_="claims")
    return [
        _words(
            "Each recorded failover again, with the same silence but found by another timeout. That the preset on the "
            "left was in force is what the report was told. "
            + (found.what_if_doubt or "The record does not contradict it.")
        ),
        bars.what_if_legend(),
        element("figure", bars.what_if(rows)),
        _words("What this may not claim:"),
        claims,
        _files(contents.WHAT_IF),
    ]


def _clusters(found: Contents) -> list[Markup]:
    rows = found.of(contents.CLUSTERS)
    heads = ["cluster", "sets", "failovers", "available", "without master", "exposed", "false", "flaps", "refuted"]
    cells = [
        [
            "all" if row["cluster"] == ALL else row["cluster"],
            *(f"{row[name]:,}" for name in ("sets", "failovers")),
            share(row["availability_ppm"]),
            duration(row["outage_ms"]),
            duration(row["exposed_ms"]),
            *(f"{row[name]:,}" for name in ("false_positives", "flaps", "refuted")),
        ]
        for row in rows
    ]
    return [html_table(heads, cells), _files(contents.CLUSTERS)]


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
    "open": "failovers after which nobody has served yet",
}
_REJECTED = "rejected:"
_HARMLESS = frozenset({"lines", "pieces", "events", "copies", "blank"})


def _quality(found: Contents) -> list[Markup]:
    rows = found.of(contents.QUALITY)
    order = {name: place for place, name in enumerate(QUALITY_WORDS)}
    cells = []
    for row in sorted(rows, key=lambda row: (order.get(row["name"], len(order)), row["name"])):
        name, seen = row["name"], row["count"]
        words = QUALITY_WORDS.get(name, f"rejected: {name.removeprefix(_REJECTED).replace('-', ' ')}")
        mark = "" if name in _HARMLESS or not seen else "\N{BLACK UP-POINTING TRIANGLE} look"
        cells.append([words, mark, f"{seen:,}"])
    return [
        _words(
            "Nothing is dropped silently: what gave no event is kept in the lake's bronze/rejected with its reason."
        ),
        html_table(["what", "", "count"], cells, left=2) if cells else element("p", "Nothing was read.", class_="lead"),
        _files(contents.QUALITY),
    ]
