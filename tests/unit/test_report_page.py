"""The page of the report: whole, self-contained, the same for the same tables; files beside it hold them."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

pytest.importorskip("jinja2", reason="jinja2 is not installed: the analytics extra is optional")

from rollcall_ha.analytics.report import contents, questions
from rollcall_ha.analytics.report.contents import Contents
from rollcall_ha.analytics.report.files import csv_of, write_report
from rollcall_ha.analytics.report.page import SCRIPT, page, verdict
from rollcall_ha.analytics.report.scales import share
from rollcall_ha.analytics.report.summary import print_summary, summary_of
from tests.support.report_rows import failover, row, story

VOID = frozenset({"meta", "br"})
"""Tags that are never closed."""


class Reader(HTMLParser):
    """Tags in pairs, ids, links and everything that a browser would load."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in VOID:
            self.open.append(tag)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given else []
        if tag in ("script", "link", "img", "iframe", "image", "object", "embed") or "src" in given:
            self.loads.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_loads_nothing() -> None:
    """One script, that the policy names by its hash; no picture, no address outside: browsers are held to that."""
    text = page(story(days=20, sets=5))
    found = Reader(text)

    assert found.open == []
    assert found.loads == ["script"]
    script = text.partition("<script>")[2].partition("</script>")[0]
    assert script == SCRIPT
    named = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{named}'\"" in text
    assert "http:" not in text
    assert "https:" not in text
    assert "default-src 'none'" in text


def test_links_lead_somewhere(tmp_path: Path) -> None:
    """To a part of the page, or to a file that was written beside it."""
    written = write_report(story(days=20, sets=5), tmp_path / "out")
    found = Reader(written.read_text())

    assert len(found.links) > 20
    for link in found.links:
        assert link.removeprefix("#") in found.ids if link.startswith("#") else (written.parent / link).is_file(), link
    assert len(found.ids) == len(set(found.ids))


@pytest.mark.slow
def test_one_lake_gives_one_page() -> None:
    """Byte for byte."""
    assert page(story(days=30, sets=9)) == page(story(days=30, sets=9))


@pytest.mark.slow
def test_every_fill_and_pattern_is_defined() -> None:
    """A part without its colour is black, and one without its pattern is told by colour alone."""
    text = page(story())
    style = text[text.index("<style>") : text.index("</style>")]
    defined = set(re.findall(r"\.([\w-]+)", style))
    used = {name for group in re.findall(r'<rect [^>]*class="([^"]+)"', text) for name in group.split()}

    assert len(used) > 30
    assert used <= defined
    assert set(re.findall(r"url\(#(\w+)\)", style)) <= set(Reader(text).ids)


@pytest.mark.parametrize(
    ("grades", "word"),
    [
        ({"proven": 3}, "OK"),
        ({"proven": 3, "ungraded": 1}, "LOSS POSSIBLE"),
        ({"proven": 3, "unknown": 1}, "LOSS POSSIBLE"),
        ({"proven": 3, "bounded": 1}, "LOSS POSSIBLE"),
        ({"bounded": 1, "refuted": 1}, "ALARM"),
    ],
)
def test_verdict_is_as_good_as_the_worst_grade(grades: dict[str, int], word: str) -> None:
    """Only when everything is proven is it OK."""
    assert verdict(row(contents.CLUSTERS, fleet="*", cluster="*", **grades), is_out=False)[0] == word


def test_a_lake_whose_only_set_is_out_of_service_was_ok() -> None:
    """Nobody could be elected, so no failover and no loss was on record."""
    whole = row(contents.CLUSTERS, fleet="*", cluster="*", sets=1)
    out = row(
        questions.INCIDENTS, cluster="c", broker_set="a", kind="nobody-elected", master_epoch=4, cause=None, is_open=True,
        open_incidents=1, outage_ms=3 * 86_400_000, ended_at=None,
    )  # fmt: skip
    found = Contents(rows={"clusters": [whole], "incidents": [out]}, lake="/l", lake_version=1, made_at_ms=0)
    now = page(found).partition('id="now"')[2].partition("</div>")[0]

    assert verdict(whole, is_out=True) == ("OUT OF SERVICE", "alarm")
    assert '<span class="verdict alarm">OUT OF SERVICE</span>' in page(found)
    assert "c/a: the master was lost, and nobody was elected" in now
    assert "(3 d)" in now
    assert "<code>rollcall history c/a</code>" in now
    assert "1 incident goes on." in now


def test_the_terminal_gives_the_verdict_of_the_page_and_obeys_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    """It said OK of a failover without a grade, and a set that was called ESC [2J cleared the screen."""
    clusters = [row(contents.CLUSTERS, fleet="*", cluster="*", failovers=1, ungraded=1, sets=1)]
    worst = [row(contents.WORST_SETS, cluster="c", broker_set="s\x1b[2J", outage_ms=1_000)]
    found = Contents(rows={"clusters": clusters, "worst_sets": worst}, lake="/l", lake_version=1, made_at_ms=0)

    print_summary(summary_of(found))

    told = capsys.readouterr().out
    assert told.startswith("LOSS POSSIBLE  1 failover of 1 set,")
    assert "\x1b" not in told
    assert r"c/s\x1b[2J" in told


def test_an_empty_lake_is_a_page_too() -> None:
    """It says that nothing was there, and what could not be read."""
    text = page(Contents(rows={}, lake="/l", lake_version=1, made_at_ms=0))

    assert "No event of any broker set" in text
    assert Reader(text).open == []


def test_sections_that_had_nothing_to_tell_filled_five_screens() -> None:
    """They are one line, which names them; what is asked first says in words that there is nothing."""
    whole = row(contents.CLUSTERS, fleet="*", cluster="*", sets=1)
    text = page(Contents(rows={"clusters": [whole]}, lake="/l", lake_version=1, made_at_ms=0))
    line = text.partition("Nothing to tell of: ")[2].partition("</p>")[0]

    assert re.findall(r'<section id="([\w-]+)"', text) == [*FIRST, "clusters", "quality"]
    assert line.startswith(
        "phases of failovers; durations of failovers; planned changes of masters; needless failovers; "
    )
    assert "No set was without a master that takes writes." in text
    assert "No set was out of service." in text
    assert set(re.findall(r'href="#([\w-]+)"', text)) <= set(Reader(text).ids)


FIRST = ["incidents", "budgets", "trend"]


def test_nothing_was_said_to_be_unknown_where_hours_are_missing() -> None:
    """A hole and a fleet that ends earlier are told; without them, and everything else, nothing is unknown."""
    base = story(days=3, sets=2)
    unknown = [row(questions.UNKNOWNS, name=name, count=1, ms=None) for name in ("holes", "ended")]
    told = page(replace(base, rows={**base.rows, "unknowns": unknown}))

    assert "holes in the record, which may hide outages and losses: 1" in told
    assert "fleets that are counted up to an earlier time than others: 1" in told
    assert "Nothing is not known" not in told
    assert "Nothing is not known" in page(replace(base, rows={**base.rows, "unknowns": []}))


def test_names_cannot_break_the_page() -> None:
    """A set may be called anything."""
    nasty = failover(2, "timeout", (3_000, 1, 1, 1, 1, 1, 1), broker_set="</svg><script>alert(1)</script>")
    base = story(days=3, sets=2)
    text = page(replace(base, rows={**base.rows, "failovers": [nasty]}))

    assert text.count("<script") == 1
    assert Reader(text).open == []


def test_no_text_of_any_table_is_markup() -> None:
    """Every text that a lake can hold, in every picture and table at once: the page has the same tags as with others."""
    found = story(days=3, sets=2)
    fixed = ("*", "total", "detected", "all", "month", "week", "f1", "f2", "fast", "normal", "safe")

    def page_with(text: str) -> str:
        def of(name: str, value: object) -> object:
            is_free = isinstance(value, str) and value not in fixed and name not in ("phase", "shown_as", "grade")
            return f"{text}{value}" if is_free else value

        rows = {table: [{n: of(n, v) for n, v in one.items()} for one in each] for table, each in found.rows.items()}
        return page(replace(found, rows=rows, lake=text))

    def tags(text: str) -> list[tuple[str, str]]:
        return re.findall(r"<(/?)(\w+)", text)

    nasty = page_with("\"'><script>alert(1)</script>")
    assert nasty.count("&lt;script&gt;") > 40
    assert tags(nasty) == tags(page_with("x" * len("\"'><script>alert(1)</script>")))
    assert Reader(nasty).open == []


def test_tables_beside_the_page_are_the_rows(tmp_path: Path) -> None:
    """CSV and Parquet hold the same; unknown is empty there and null here."""
    from pyarrow import parquet

    found = story(days=10, sets=4)
    folder = write_report(found, tmp_path).parent / "tables"

    for table in contents.TABLES:
        rows = [dict(one) for one in found.of(table)]
        assert parquet.read_table(folder / f"{table.name}.parquet").to_pylist() == rows, table.name
        back = list(csv.DictReader(io.StringIO((folder / f"{table.name}.csv").read_text())))
        assert len(back) == len(rows)
        assert rows, table.name
    hang = row(contents.RTO_HISTOGRAM, cause="a,b", bin=3, failovers=None)
    assert csv_of(contents.RTO_HISTOGRAM, [hang]) == b'cause,bin,failovers\n"a,b",3,\n'


def test_figures_of_the_head_are_those_of_the_lake() -> None:
    """The tiles repeat the row of all fleets and the whole time, with the newest months beside it."""
    found = story(days=40, sets=4)
    whole = next(row for row in found.of(contents.PERIODS) if (row["fleet"], row["unit"]) == ("*", "all"))
    tiles = page(found).partition('data-in="all:all">')[2].partition("<div data-in")[0]

    assert f"<b>{whole['failovers']:,}</b>" in tiles
    assert f"<b>{share(whole['availability_ppm'])}</b>" in tiles
    assert tiles.index("<small>February 2026: ") < tiles.index("<small>January 2026: ")
