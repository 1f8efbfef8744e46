"""Failovers: seen as they happen, explained and played, with the record's figures; the timeline."""

from __future__ import annotations

import itertools
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from rollcall_ha.analytics.gold.tables import GOLD_FAILOVERS
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.tables import LakeTable, LakeView
from rollcall_ha.analytics.silver.tables import SILVER_PHASES
from rollcall_ha.cli import output
from rollcall_ha.controller.contract.ids import MasterEpoch
from rollcall_ha.controller.contract.values import Phase
from rollcall_ha.controller.contract.views import HistoryRow
from rollcall_ha.deploy.local.fleet import Fleet
from tests.spark.conftest import spark
from tests.support.console import Console, answer_of, named
from tests.support.fleet_story import counted, heal, load, only_set, rollcall, wait_row
from tests.support.fleet_trials import kill_master

pytestmark = pytest.mark.cluster

__all__ = ["spark"]

PRINTED = {
    "outage, timed independently": "total",
    "then, to the first acknowledgement": "first-ack",
    "of this, a sender waited": "waited",
}
"""Lines of ``rollcall explain`` that the console names otherwise."""
IN_LAKE = {
    "kind": "kind",
    "from_master": "fromMaster",
    "to_master": "toMaster",
    "elected_at": "electedAtMs",
    "total_us": "totalUs",
    "total_us_max": "totalUsMax",
    "unattributed_us": "unattributedUs",
    "waited_us": "waitedUs",
    "grade": "grade",
    "loss_bytes": "lossBytes",
    "cut_bytes": "cutBytes",
}
"""Columns of ``silver/phases`` and ``gold/failovers``, and the same in history."""


def test_a_failover_is_seen_as_it_happens_and_its_figures_are_those_of_history(fleet: Fleet, consoles: Any) -> None:
    """Fleet, set, phase bars, explanation and film of one fault that was recorded here: the same figures everywhere."""
    key = only_set(fleet)
    fleet_tab, set_tab = consoles("viewer"), consoles("viewer")
    set_tab.open(f"set/{key.cluster}/{key.name}")
    set_tab.wait("[data-replica]")
    before = fleet.wait_redundant(key).view.master_epoch
    dead = fleet.master(key)
    with load(fleet):
        fleet.kill(dead)
        epoch = MasterEpoch(before + 1)
        assert (
            "elected in"
            in fleet_tab.wait(f"#changes [data-kind=master-elected] >> text=masterEpoch {epoch}").first.inner_text()
        )
        fleet_tab.wait(f"tr[data-set='{key}'].warn, tr[data-set='{key}'].bad")
        row = wait_row(fleet, epoch)
        fleet.restart(dead)
    fleet.wait_redundant(key)
    row = wait_row(fleet, epoch)
    reign = set_tab.wait(f"tr[data-epoch='{epoch}']")
    set_tab.wait(f"tr[data-epoch='{epoch}'] svg.bar")
    listed = next(one for one in answer_of(fleet, "history", key.name)["rows"] if one["masterEpoch"] == epoch)
    drawn = bar_of(reign)
    assert drawn.items() <= {span["phase"]: span["durationUs"] for span in listed["phases"]}.items() | {
        ("unexplained", listed["unattributedUs"])
    }
    assert sum(drawn.values()) == listed["totalUs"]
    set_tab.page.click(f"tr[data-epoch='{epoch}'] a")
    set_tab.wait(".figures")
    assert figures_of(set_tab) == expected_figures(row)
    assert f"{row.cause}" in set_tab.text(".lead")
    check_film(fleet, set_tab, row)


def bar_of(reign: Any) -> dict[str, int]:
    """Microseconds of each phase that a bar draws."""
    drawn = reign.locator("svg.bar rect.phase").all()
    return {one.get_attribute("data-phase"): int(one.get_attribute("data-us")) for one in drawn}


def printed_phases(text: str) -> dict[str, str]:
    """The table of phases that ``explain`` prints for people, by the names of the console's table."""
    lines = text.splitlines()
    first = next(place for place, line in enumerate(lines) if line.split() == ["PHASE", "TOOK"]) + 1
    # What follows the table is a sentence, not two columns.
    rows = itertools.takewhile(lambda row: len(row) == 2, (re.split(r"\s{2,}", one.strip()) for one in lines[first:]))
    return {PRINTED.get(name, name): took for name, took in rows}


def lake_row(lake: Lake, table: LakeTable, epoch: int) -> dict[str, Any]:
    """The row of a reign, as any reader of Delta tables and their views finds it; instants as milliseconds."""
    import duckdb
    from deltalake import DeltaTable

    snapshot = lake.snapshot()
    with duckdb.connect() as database:
        for one in table.of if isinstance(table, LakeView) else (table,):
            held = DeltaTable(lake.folder(one.path), version=snapshot.version(one.path))
            database.register(one.name, held.to_pyarrow_dataset())
        if isinstance(table, LakeView):
            database.execute(f"CREATE VIEW {table.name} AS {table.statement()}")
        rows = database.sql(f"SELECT * FROM {table.name} WHERE master_epoch = {epoch}").to_arrow_table()
    (found,) = rows.to_pylist()
    return {name: round(one.timestamp() * 1_000) if isinstance(one, datetime) else one for name, one in found.items()}


def figures_of(console: Console) -> dict[str, tuple[str, str]]:
    """What the table of phases says: value in microseconds and text."""
    found = {}
    for line in console.page.locator(".figures tr").all():
        cell = line.locator("data.us")
        shown = (
            (cell.get_attribute("value"), cell.inner_text())
            if cell.count()
            else ("", line.locator("td").first.inner_text())
        )
        found[line.get_attribute("data-phase")] = shown
    return found


def expected_figures(row: HistoryRow) -> dict[str, tuple[str, str]]:
    """The same by the row of history, in the words of the command line."""

    def shown(value: int | None) -> tuple[str, str]:
        return ("", "no stamp") if value is None else (str(value), str(output.duration_us(value)))

    found = {span.phase.value: shown(span.duration_us) for span in row.phases if span.phase is not Phase.FIRST_ACK}
    if row.unattributed_us:
        found["unexplained"] = shown(row.unattributed_us)
    assert row.total_us is not None
    total = str(output.duration_us(row.total_us))
    if Phase.FAULT in row.missing and row.total_us_max != row.total_us:
        total = f"over {total}" if row.total_us_max is None else f"{total} to {output.duration_us(row.total_us_max)}"
    found["total"] = (str(row.total_us), total)
    found |= {span.phase.value: shown(span.duration_us) for span in row.phases if span.phase is Phase.FIRST_ACK}
    if row.waited_us is not None:
        found["waited"] = shown(row.waited_us)
    return found


def check_film(fleet: Fleet, console: Console, row: HistoryRow) -> None:
    """Its steps are the phases with their figures; the keyboard goes through all of them, and the picture is told in words."""
    page = console.page
    steps = {
        one.get_attribute("data-step"): one.locator("data.us").get_attribute("value")
        for one in page.locator(".steps li").all()
        if one.locator("data.us").count()
    }
    shown = [span for span in row.phases if span.duration_us != 0 or span.phase in (Phase.SERVING, Phase.FIRST_ACK)]
    assert steps == {span.phase.value: str(span.duration_us) for span in shown if span.duration_us is not None}
    assert "fault" in console.text(".caption")
    assert f"replica {named(fleet, row.from_master)}: gone" in page.locator(".stage svg").get_attribute("aria-label")
    page.locator("[data-film=play]").focus()
    sum_us, count = 0, page.locator(".steps li").count()
    for span in shown:
        if span.phase is Phase.FIRST_ACK:
            break
        page.keyboard.press("ArrowRight")
        sum_us += span.duration_us or 0
        assert span.phase.value in console.text(".caption b")
        assert console.text(".caption .clock") == str(output.duration_us(sum_us))
    assert f"replica {named(fleet, row.to_master)}: master, serves" in page.locator(".stage svg").get_attribute(
        "aria-label"
    )
    for _ in range(count):
        page.keyboard.press("ArrowRight")
    assert f"{count}/{count}" in console.text(".caption b")
    # Whole again: the one that was killed is back among them.
    assert f"replica {named(fleet, row.from_master)}: slave, in sync" in page.locator(".stage svg").get_attribute(
        "aria-label"
    )


@pytest.mark.prove
@pytest.mark.spark
@pytest.mark.slow
def test_film_bars_explain_and_spark_say_of_a_fault_what_history_says(
    fleet: Fleet,
    consoles: Any,
    spark: Any,
    tmp_path: Path,
) -> None:
    """One fault, recorded here, and everybody who tells of it: the same microseconds in each phase, the same words."""
    from tests.spark.lakes import build

    key = only_set(fleet)
    with load(fleet) as work:
        epoch = kill_master(fleet).epoch
        work.wait_more()
    wait_row(fleet, epoch)
    # Whole again, so that the last word on the loss has been said: everybody below reads the same record.
    heal(fleet)
    listed = next(row for row in answer_of(fleet, "history", key.name)["rows"] if row["masterEpoch"] == epoch)
    history = {span["phase"]: span["durationUs"] for span in listed["phases"]}
    rest = {"unexplained": listed["unattributedUs"]} if listed["unattributedUs"] else {}
    whole = history | rest | {"total": listed["totalUs"]}
    outage = {phase: us for phase, us in (history | rest).items() if phase != Phase.FIRST_ACK and us}
    told = answer_of(fleet, "explain", key.name, str(epoch))["row"]
    assert told == listed
    console = consoles("viewer")
    console.open(f"set/{key.cluster}/{key.name}")
    reign = console.wait(f"tr[data-epoch='{epoch}']")
    assert bar_of(reign) == outage
    assert int(reign.locator("data.us").get_attribute("value")) == listed["totalUs"]
    console.open(f"set/{key.cluster}/{key.name}/epoch/{epoch}")
    console.wait(".figures")
    assert bar_of(console.page.locator(".decision")) == outage
    shown = figures_of(console)
    waited = {"waited": listed["waitedUs"]} if listed["waitedUs"] is not None else {}
    assert {name: int(us) if us else None for name, (us, _) in shown.items()} == whole | waited
    printed = printed_phases(rollcall(fleet, "explain", key.name, str(epoch)).stdout)
    assert {name: text for name, (_, text) in shown.items()} == printed
    row = wait_row(fleet, epoch)
    check_film(fleet, console, row)
    assert all(text in console.text(".film .steps") for name, text in printed.items() if name in history)
    lake = Lake(tmp_path / "lake")
    build(spark, lake, fleet.directory)
    for table in (SILVER_PHASES, GOLD_FAILOVERS):
        found = lake_row(lake, table, epoch)
        assert {phase: found[f"{phase.replace('-', '_')}_us"] for phase in history} == history, table.path
        for column, name in IN_LAKE.items():
            assert found[column] == listed[name], (table.path, column)
    counted(epoch=epoch, phases=history, total_us=listed["totalUs"], unexplained_us=listed["unattributedUs"])


def test_reigns_had_no_figure_of_all_of_them(fleet: Fleet, consoles: Any) -> None:
    """A percentile is told where one failover lasted longer; a planned change of master is none."""
    console, key = consoles("viewer"), only_set(fleet)

    def told(totals: list[int | None], kind: str = "failover") -> str:
        rows: list[dict[str, Any]] = [
            {"kind": kind, "totalUs": one, "totalUsMax": one, "missing": []} for one in totals
        ]
        asked = "async (rows) => (await import('/console/phases.js')).outagesText(rows)"
        return str(console.page.evaluate(asked, rows))

    assert told([]) == told([5_000], "switchover") == "No failover is on record here."
    assert told([84_000]) == "1 failover; no percentile"
    assert told([84_000, None]) == "2 failovers; no percentile; of 1 the outage is not known exactly"
    assert told([99_000, 84_000, 91_000]) == "3 failovers: p50 91 ms, no p99 before a hundred, longest 99 ms"
    assert told([1_000 * one for one in range(101, 201)]) == "100 failovers: p50 150 ms, p99 199 ms, longest 200 ms"
    console.open(f"set/{key.cluster}/{key.name}")
    lost = [one for one in fleet.client().history(key).rows if one.kind.value in ("failover", "unclean")]
    count = f"{len(lost)} failover{'' if len(lost) == 1 else 's'}" if lost else "No failover"
    assert console.wait(".outages").inner_text().startswith(count)


def test_how_far_a_replica_is_behind_had_no_trend(fleet: Fleet, consoles: Any) -> None:
    """Of each slave, kept in the page for two minutes; where it is master, or was not heard, there is no line."""
    console, key = consoles("viewer"), only_set(fleet)
    lags = itertools.cycle([0, 4_000, 1_000])

    def answer(route: Any) -> None:
        found, lag = route.fetch().json(), next(lags)
        for one in found["set"]["replicas"]:
            one["lagBytes"] = None if one["isMaster"] else lag
        route.fulfill(json=found)

    heal(fleet)
    console.page.route(f"**/v1/sets/{key.cluster}/{key.name}?*", answer)
    console.open(f"set/{key.cluster}/{key.name}")
    console.wait("svg.trend[aria-label*='at most 4.0 K']")
    assert console.page.locator("svg.trend").count() == len(fleet.brokers) - 1
    console.page.unroute_all(behavior="wait")
    drawn = """async () => {
        const found = (await import("/console/trend.js")).trend();
        for (let at = 0; at < 1000; at++) found.add([{ brokerId: 1, isMaster: at % 100 === 0, lagBytes: at }]);
        return found.picture(1).querySelector("path").getAttribute("d");
    }"""
    steps = console.page.evaluate(drawn).split()
    assert (len(steps) // 3, steps.count("M")) == (238, 3)


def test_milestones_were_half_of_the_newest_events_of_a_set(fleet: Fleet, consoles: Any) -> None:
    console, key = consoles("viewer"), only_set(fleet)
    console.open(f"set/{key.cluster}/{key.name}")
    fold = console.wait("li.fold").first
    assert "masterEpoch" in fold.inner_text()
    assert console.page.locator(".events > [data-kind=milestone-reached]:visible").count() == 0
    epochs = [one.get_attribute("data-epoch") for one in console.page.locator("li.fold").all()]
    assert len(epochs) == len(set(epochs)), "one line for each reign"
    fold.locator("summary").click()
    console.wait("li.fold [data-kind=milestone-reached]:visible")


def test_a_candidate_without_an_epoch_had_epoch_minus_1_and_its_evidence_none(fleet: Fleet, consoles: Any) -> None:
    console, key = consoles("viewer"), only_set(fleet)
    epoch = fleet.client().history(key).rows[0].master_epoch

    def answer(route: Any) -> None:
        text = route.fetch().text()
        route.fulfill(content_type="application/json", body=re.sub(r'"lastEpoch":-?\d+', '"lastEpoch":-1', text))

    console.page.route(f"**/epochs/{epoch}?*", answer)
    console.open(f"set/{key.cluster}/{key.name}/epoch/{epoch}")
    console.wait("h2:text-is('Evidence')")
    shown = console.page.locator("main table td").all_inner_texts()
    assert "none" in shown
    assert "-1" not in shown
    console.page.unroute_all(behavior="wait")


def test_the_axis_of_the_timeline_had_no_date_and_its_marks_lay_on_each_other(fleet: Fleet, consoles: Any) -> None:
    console = consoles("viewer")
    console.open("timeline")
    console.wait("svg.timeline")
    console.page.check("#all")
    console.wait("svg.timeline .many")
    ticks = console.page.locator("svg.timeline .tick").all()
    assert ticks
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d", tick.text_content()) for tick in ticks)
    for lane in ("elections", "losses and stops", "orders of people", "everything else"):
        assert not overlaps(console, f"svg.timeline g[data-lane='{lane}'] > text:first-of-type"), lane
    assert not overlaps(console, "svg.timeline .tick")


def overlaps(console: Console, selector: str) -> list[tuple[float, float]]:
    """Neighbours of one line that lie on each other: where the first ends, and where the second begins."""
    boxes = sorted(
        console.page.locator(selector).evaluate_all(
            "all => all.map(one => one.getBoundingClientRect()).map(box => [box.left, box.right])"
        )
    )
    return [(one[1], two[0]) for one, two in itertools.pairwise(boxes) if two[0] < one[1]]


def test_the_timeline_shows_every_event_if_asked(fleet: Fleet, consoles: Any) -> None:
    console = consoles("viewer")
    console.open("timeline")
    console.wait("svg.timeline")
    notable = console.page.locator(".events.full li").count()
    console.page.check("#all")
    console.wait(".events.full [data-kind=replica-registered]")
    assert console.page.locator(".events.full li").count() > notable
    console.page.fill("#filter", "master-elected")
    # In one look: the list is drawn anew with the next frame.
    console.until(
        "(kinds => kinds.length > 0 && kinds.every(kind => kind === 'master-elected'))"
        "([...document.querySelectorAll('.events.full li')].map(line => line.dataset.kind))"
    )


def test_the_timeline_had_no_zoom_and_no_part_of_the_time(fleet: Fleet, consoles: Any) -> None:
    """By buttons, keys and mouse; the address keeps it, and nothing outside of it is drawn or listed."""
    console = consoles("viewer")
    page, lines = console.page, console.page.locator(".events.full li[data-ref]")
    console.open("timeline")
    console.wait("svg.timeline")
    page.check("#hold")
    page.check("#all")
    console.wait(".events.full [data-kind=replica-registered]")

    def listed() -> int:
        return int(console.text("main .read").split(" of ")[0].replace(",", ""))

    def address() -> str:
        """As the page has it now; Playwright's own copy follows by an event."""
        found: str = page.evaluate("location.href")
        return found

    def shown() -> tuple[float, float]:
        """The part in the address; every event that is listed is of it."""
        (part,) = re.findall(r"from=(.*?)&to=(.*)$", address())
        stamps = lines.locator("> time").evaluate_all("all => all.map(one => one.getAttribute('datetime'))")
        first, last = (datetime.fromisoformat(one).timestamp() for one in part)
        assert all(first <= datetime.fromisoformat(one).timestamp() <= last for one in stamps)
        return first, last

    count = listed()
    page.locator(".chart").focus()
    page.keyboard.press("+")
    page.keyboard.press("+")
    first, last = shown()
    assert listed() < count
    page.keyboard.press("ArrowLeft")
    assert shown()[0] <= first
    page.keyboard.press("0")
    assert address().endswith("#/timeline")
    assert listed() == count
    box = page.locator("svg.timeline").bounding_box()
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 30)
    assert page.locator("svg.timeline .brush").count() == 1
    page.mouse.up()
    brushed = shown()
    assert brushed[1] - brushed[0] < last - first
    assert page.locator("svg.timeline .brush").count() == 0
    page.reload()
    console.wait("svg.timeline")
    assert shown() == brushed
    page.get_by_role("button", name="last 1 min").click()
    assert address().endswith("#/timeline?last=60")
    assert page.locator("[data-last='60000']").get_attribute("aria-pressed") == "true"
