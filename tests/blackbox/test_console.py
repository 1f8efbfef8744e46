"""
The console in a real browser, before a real fleet: every flow, no complaint of the browser, and figures that are the record's.

The Chromium of this machine, driven by Playwright; skipped with the reason where one of both is missing. No test here judges
a time: `make prove PARTS=console-bench` does.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollcall_ha.analytics.gold.tables import GOLD_FAILOVERS
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.tables import LakeTable, LakeView
from rollcall_ha.analytics.silver.tables import SILVER_PHASES
from rollcall_ha.cli import output
from rollcall_ha.cli.records import _forms
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch
from rollcall_ha.controller.contract.labels import label
from rollcall_ha.controller.contract.sentences import sentence
from rollcall_ha.controller.contract.values import Phase
from rollcall_ha.controller.contract.views import HistoryRow
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import wait_until
from tests.spark.conftest import spark
from tests.support.fleet_story import counted, heal, load, only_set, rollcall, running, wait_row
from tests.support.fleet_trials import kill_master

pytestmark = pytest.mark.cluster

__all__ = ["spark"]

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LIMIT_MS = 30_000
NARROW = 400
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
MARKUP = "<img src=x onerror=alert(1)>"
WATCH = """
window.__complaints = [];
addEventListener("securitypolicyviolation", (event) => __complaints.push(`policy: ${event.violatedDirective} ${event.blockedURI}`));
addEventListener("error", (event) => __complaints.push(`error: ${event.message}`));
addEventListener("unhandledrejection", (event) => __complaints.push(`rejected: ${event.reason}`));
"""
STRUCK = """() => [...document.querySelectorAll(".stage .follows")].flatMap(line => {
  const box = line.getBBox();
  return [...document.querySelectorAll(".stage .name, .stage .label")].filter(one => {
    const label = one.getBBox();
    return label.x < box.x + box.width && label.x + label.width > box.x && label.y < box.y + box.height && label.y + label.height > box.y;
  }).map(one => one.textContent);
})"""
"""Labels in the film that a line to a slave goes through."""
UNNAMED = """() => [...document.querySelectorAll("button, a, input, select, svg[role=img], dialog, section, nav, table")].filter(one => {
  if (one.closest("[hidden]") || (one.tagName === "SECTION" && !one.hasAttribute("aria-label") && !one.hasAttribute("aria-labelledby"))) return false;
  const by = one.getAttribute("aria-labelledby");
  const name = one.getAttribute("aria-label") || (by && document.getElementById(by)?.textContent) || one.textContent.trim()
    || [...(one.labels ?? [])].map(label => label.textContent.trim()).join("") || one.getAttribute("title");
  return !name;
}).map(one => one.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three controllers and three brokers, with certificates."""
    if BROWSER is None:
        pytest.skip("no Chromium on the PATH: apt-get install chromium")
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make setup")
    with running(tmp_path_factory.mktemp("console") / "fleet") as found:
        yield found


@pytest.fixture(scope="module")
def browser(fleet: Fleet) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield found
        found.close()


@pytest.fixture(scope="module")
def tokens(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """One of each role."""
    folder, found = tmp_path_factory.mktemp("tokens"), {}
    for role in ("viewer", "operator"):
        told = ("tokens", "issue", "--role", role, "--name", f"{role}-of-the-console", "--out", str(folder / role))
        done = rollcall(fleet, *told)
        assert done.returncode == 0, done.stderr
        found[role] = (folder / role).read_text().strip()
    return found


@dataclass(slots=True)
class Console:
    """A signed-in tab, and what the browser had to complain of."""

    page: Any
    url: str
    complaints: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    is_cut: bool = False
    """Its controller is taken away: the browser complains of connections, and is right."""

    def open(self, view: str) -> None:
        """Go to a view; the page stays."""
        self.page.goto(f"{self.url}#/{view}")

    def text(self, selector: str) -> str:
        """As it is read."""
        found: str = self.page.locator(selector).first.inner_text(timeout=LIMIT_MS)
        return found

    def until(self, expression: str) -> None:
        """Until it is true in the page. Asked from here: what Playwright would evaluate there again, the policy forbids."""
        wait_until(lambda: self.page.evaluate(expression), deadline_s=LIMIT_MS / 1000, what=expression)

    def wait(self, selector: str) -> Any:
        """Until it is to be seen."""
        self.page.locator(selector).first.wait_for(timeout=LIMIT_MS)
        return self.page.locator(selector)


@pytest.fixture
def consoles(fleet: Fleet, browser: Any, tokens: dict[str, str]) -> Iterator[Any]:
    """Makes tabs. At the end of the test: no error, no violation of the policy, nothing asked of another address."""
    heal(fleet)
    made: list[Console] = []

    def make(role: str = "operator", *, controller: str = "", **how: Any) -> Console:
        address = fleet.rest(controller or fleet.leader()).address
        context = browser.new_context(ignore_https_errors=True, viewport={"width": 1440, "height": 900}, **how)
        context.add_init_script(WATCH)
        page = context.new_page()
        found = Console(page, f"https://{address}/console")
        page.on("console", lambda said: found.complaints.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.on("request", lambda request: found.asked.append(request.url))
        page.goto(found.url)
        if role:
            page.fill("#token", tokens[role])
            page.click("button[type=submit]")
            found.wait("#verdict[class]")
        made.append(found)
        return found

    yield make
    for one in made:
        # A refusal is an answer, and so is an outcome that is not known as the leader changes (asked for again under the
        # same id); the browser writes a line for each that is not 2xx.
        excused = r"status of (401|403|404|409|422|503|504)" + ("|net::ERR_" if one.is_cut else "")
        of_page = [said for said in one.complaints if not re.search(excused, said)]
        assert of_page == []
        assert one.page.evaluate("window.__complaints") == []
        assert {url.split("/")[2] for url in one.asked} == {one.url.split("/")[2]}
        secrets = [url for url in one.asked if any(token in url for token in tokens.values())]
        assert secrets == []
        one.page.context.close()


def test_a_token_signs_in_and_a_wrong_one_is_told_why(consoles: Any, tokens: dict[str, str]) -> None:
    console = consoles("")
    page = console.page
    page.fill("#token", "not-a-token")
    page.keyboard.press("Enter")
    assert "UNAUTHENTICATED" in console.wait(".problem").inner_text()
    page.fill("#token", tokens["viewer"])
    page.keyboard.press("Enter")
    assert "The only set serves" in console.wait("#verdict.good").inner_text()
    console.wait("#link[data-state=live]")
    assert page.evaluate(
        "[localStorage.length, document.cookie, location.href.includes(sessionStorage['rollcall.token'])]"
    ) == [0, "", False]
    page.click("#leave")
    console.wait("#token")
    assert page.evaluate("sessionStorage.length") == 0


def test_figures_are_written_as_the_command_line_writes_them(consoles: Any) -> None:
    """Halves went to the even digit there and up here, or the other way round, where a copy was forgotten."""
    figures = json.loads((Path(__file__).parents[1] / "unit" / "figures.json").read_text())
    shown = consoles("viewer").page.evaluate(
        """async (figures) => {
            const words = await import("/console/words.js");
            return Object.fromEntries(
                Object.entries(figures).map(([kind, all]) => [kind, all.map(([value]) => [value, words[kind](value)])]));
        }""",
        figures,
    )
    assert shown == figures


def test_events_are_told_as_the_command_line_tells_them(fleet: Fleet, consoles: Any) -> None:
    """Both have the sentences of the contract, and forms of their own."""
    key, console = only_set(fleet), consoles("viewer")
    # The page has learned the names of this set's brokers then.
    console.open(f"set/{key.cluster}/{key.name}")
    console.wait("[data-replica]")
    found = fleet.client().events(is_newest=True, limit=200)
    told = [sentence(one.event, _forms(found.names.get(str(key), {}))) for one in found.events]
    counted(events=len(told), kinds=len({type(one.event) for one in found.events}))
    assert len({type(one.event) for one in found.events}) > 5
    shown = console.page.evaluate(
        """async ([events, key]) => {
            const words = await import("/console/words.js");
            return events.map((event) => words.told(event, key));
        }""",
        msgspec.to_builtins([[one.event for one in found.events], key]),
    )
    assert shown == told


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


def answer_of(fleet: Fleet, *arguments: str) -> Any:
    """What a command says, as a document."""
    done = rollcall(fleet, *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


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


def named(fleet: Fleet, broker_id: BrokerId | None) -> str:
    """As it is told: the name first."""
    assert broker_id is not None
    return label(broker_id, {one.broker_id: one.name for one in fleet.client().set(only_set(fleet)).set.replicas})


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


def test_a_switchover_is_previewed_confirmed_and_on_record_with_its_caller(fleet: Fleet, consoles: Any) -> None:
    key = only_set(fleet)
    console = consoles("operator")
    page = console.page
    status = heal(fleet)
    old, epoch = status.view.master, status.view.master_epoch
    console.open(f"set/{key.cluster}/{key.name}")
    page.get_by_role("button", name="Switch over…").click(timeout=LIMIT_MS)
    page.fill("#reason", f"for the test {MARKUP}")
    assert page.get_by_role("button", name="Confirm").is_disabled()
    page.get_by_role("button", name="Preview").click()
    assert (
        f"switchover from {named(fleet, old)}" in console.wait(".foreseen [data-kind=switchover-ordered]").inner_text()
    )
    assert fleet.client().history(key).rows[0].master_epoch == epoch
    # What is confirmed is what was shown: another reason asks for another preview.
    page.fill("#reason", f"for this test {MARKUP}")
    assert page.get_by_role("button", name="Confirm").is_disabled()
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Confirm").click(timeout=LIMIT_MS)
    assert "is master in masterEpoch" in console.wait(".answer .done").inner_text(timeout=LIMIT_MS)
    typed = shlex.split(console.text(".typed code"))
    assert typed[:3] == ["rollcall", "switchover", str(key)]
    assert typed[-6:] == [
        "--expect-master",
        str(old),
        "--expect-epoch",
        str(epoch),
        "--reason",
        f"for this test {MARKUP}",
    ]
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy", exact=True).click()
    console.wait(".copy:text-is('copied')")
    page.get_by_role("button", name="Close").click()
    row = wait_row(fleet, MasterEpoch(epoch + 1), lambda found: found.total_us is not None)
    assert (row.kind.value, row.from_master) == ("switchover", old)
    console.wait(f"tr[data-epoch='{epoch + 1}']")
    console.open(f"set/{key.cluster}/{key.name}/epoch/{epoch + 1}")
    console.wait(".figures")
    check_film_of_a_switchover(console)
    console.open("timeline")
    console.wait("svg.timeline")
    # It stood among the elections, and the lane of people's orders was empty.
    ordered = page.locator("svg.timeline .mark:has-text('switchover-ordered')").last
    assert ordered.get_attribute("data-lane") == "orders of people"
    console.open("audit")
    console.wait("h1:text-is('Who asked for what')")
    page.fill("#filter", "operator-of-the-console")
    page.keyboard.press("Enter")
    assert (
        "operator:operator-of-the-console (token)"
        in console.wait("td:has-text('switchover-ordered') >> xpath=..").first.inner_text()
    )


def check_film_of_a_switchover(console: Console) -> None:
    """It began with "detected 0.0 ms: the master is found gone", and the line to a slave went through a label."""
    steps, page = console.page.locator(".steps li"), console.page
    assert all(
        one.get_attribute("value") != "0" for one in page.locator(".steps li:not([data-step=serving]) data.us").all()
    )
    assert "is found gone" not in page.locator("main").inner_text()
    for at in range(steps.count()):
        steps.nth(at).locator("button").click()
        assert " is gone" not in console.text(".caption")
        assert page.evaluate(STRUCK) == []
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy its link").click()
    console.wait(".copy:text-is('copied')")
    assert page.evaluate("navigator.clipboard.readText()") == page.url


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


def test_an_answer_had_an_index_where_a_person_looks_for_its_age(fleet: Fleet, consoles: Any) -> None:
    console = consoles("viewer")
    assert re.match(r"read (just now|\d+ s ago) from c\d", console.text(".read"))
    assert re.fullmatch(r"read at index [\d,]+", console.page.locator(".read .at").get_attribute("title"))


def crowd(console: Console, count: int, *, down: int = 0) -> None:
    """Answers of a fleet of so many sets in the place of its own; the worst first, as the controllers sort them."""

    def answer(route: Any) -> None:
        found = route.fetch().json()
        (own,) = found["sets"] or [None]
        if own is None:
            route.fulfill(json=found)
            return
        is_down = {
            "condition": "no-master",
            "conditionReason": "no replica is alive",
            "problems": ["NO_MASTER"],
            "master": None,
        }
        sets = [
            own | (is_down if at < down else {}) | {"setKey": own["setKey"] | {"name": f"set-{at:04}"}}
            for at in range(count)
        ]
        page = {"sets": sets, "setsTotal": count, "setsMatching": count, "setsWithProblems": down, "nextAfter": None}
        conditions = {"serving": count - down, "no-master": down}
        route.fulfill(json=found | page | {"conditions": conditions, "problems": {"NO_MASTER": down} if down else {}})

    console.page.route("**/v1/overview?*", answer)
    console.page.reload()


def test_a_hundred_sets_were_15_700_pixels_on_a_phone_and_had_no_map(consoles: Any) -> None:
    console = consoles("viewer")
    page = console.page
    page.set_viewport_size({"width": NARROW, "height": 800})
    crowd(console, 100, down=2)
    console.wait(".map .cell:nth-child(100)")
    assert page.locator("tr[data-set]").count() == 100
    assert page.locator(".rows").bounding_box()["height"] < 7_000
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    cells = page.locator(".map .cell")
    assert [cells.nth(at).inner_text() for at in (0, 1, 2)] == ["■", "■", "●"], (
        "a sign before a colour, the worst first"
    )
    assert page.locator(".map [tabindex='0']").count() == 1
    cells.nth(0).focus()
    for pressed in ("ArrowRight", "ArrowDown", "ArrowUp", "ArrowRight"):
        page.keyboard.press(pressed)
    assert "set-0002: serving" in page.evaluate("document.activeElement.getAttribute('aria-label')")
    page.keyboard.press("Enter")
    console.until("location.hash.endsWith('/set-0002')")
    page.unroute_all(behavior="wait")


def test_twenty_sets_that_were_down_by_one_cause_were_twenty_lines_and_no_word_of_it(consoles: Any) -> None:
    console = consoles("viewer")
    crowd(console, 30, down=20)
    assert console.wait(".cause").inner_text() == "■ 20 sets, one cause: no replica is alive"
    console.page.unroute_all(behavior="wait")
    crowd(console, 20)
    console.wait("tr[data-set]:nth-child(20)")
    assert console.page.locator(".cause, .map").count() == 0, "few sets that serve are seen in the table"
    console.page.unroute_all(behavior="wait")


def test_a_switchover_that_lasts_longer_than_the_page_waits_is_not_told_as_not_done(
    fleet: Fleet, consoles: Any
) -> None:
    key = only_set(fleet)
    console = consoles("operator")
    page, asked = console.page, []

    def answer(route: Any) -> None:
        if route.request.post_data_json.get("dryRun"):
            route.continue_()
            return
        asked.append(route.request.post_data_json["requestId"])
        route.fulfill(json={"row": {"end": None, "reason": "", "toMaster": None, "epoch": None, "tookMs": None}})

    page.route("**/switchover", answer)
    console.open(f"set/{key.cluster}/{key.name}")
    page.get_by_role("button", name="Switch over…").click(timeout=LIMIT_MS)
    page.get_by_role("button", name="Preview").click()
    page.get_by_role("button", name="Confirm").click(timeout=LIMIT_MS)
    told = console.wait(".answer .done").inner_text(timeout=LIMIT_MS)
    assert "Still under way" in told
    assert "null" not in told
    assert len(asked) > 1
    assert len(set(asked)) == 1, "asked anew under one id: no second order"


@pytest.mark.parametrize("second", ["from before the pause", "a refusal"])
def test_a_pause_was_not_shown_if_the_answer_was_older_than_its_event(fleet: Fleet, consoles: Any, second: str) -> None:
    """An overview is shared for 250 ms, and a busy controller refuses: the page offered "Pause" until the next event."""
    console, answers = consoles("operator"), []

    def answer(route: Any) -> None:
        answers.append(route.fetch().json())
        if len(answers) == 2 and second == "a refusal":
            route.fulfill(status=503, json={"code": "NOT_READY", "detail": "busy"})
        else:
            route.fulfill(json=answers[0] if len(answers) == 2 else answers[-1])

    console.page.route("**/v1/overview?problem=PAUSED*", answer)
    console.open("standing")
    console.wait("text=Elections of the fleet are held")
    try:
        assert rollcall(fleet, "pause", "--fleet", "--for", "1h").returncode == 0
        console.wait("text=Resume the fleet")
    finally:
        # Left paused, no other test here would have a successor for its dead master.
        assert rollcall(fleet, "resume", "--fleet").returncode == 0
    console.wait("text=Pause the fleet")
    # Asked while the page is closed, a question would fail in the test that follows.
    console.page.unroute_all(behavior="wait")
    assert len(answers) >= 4


def test_a_broker_was_told_by_its_number_which_is_another_one_than_that_of_its_name(
    fleet: Fleet, consoles: Any
) -> None:
    """Ids are given in the order of arrival: the fleet's page, the set's, why and film, the record and the orders say names."""
    key, status = only_set(fleet), heal(fleet)
    told = {one.broker_id: f"{one.name} ({one.broker_id})" for one in status.replicas}
    assert all(one.name in fleet.brokers for one in status.replicas)
    assert status.view.master is not None
    master = told[status.view.master]
    console = consoles("operator")
    page = console.page
    assert master in console.text(f"tr[data-set='{key}'] td[data-title=Master]")
    console.open(f"set/{key.cluster}/{key.name}")
    console.wait("tr[data-epoch]")
    assert {one.inner_text() for one in page.locator("[data-replica] td[data-title=Replica]").all()} == set(
        told.values()
    )
    assert master in console.text("tr[data-epoch] td[data-title='From → to']")
    assert all(one in console.text(".facts") for one in told.values())
    page.get_by_role("button", name="Switch over…").click()
    offered = page.locator("#to").inner_text()
    assert all((one in offered) == (one != master) for one in told.values())
    page.get_by_role("button", name="Close").click()
    console.open(f"set/{key.cluster}/{key.name}/epoch/{status.view.master_epoch}")
    console.wait(".figures")
    assert {one.text_content() for one in page.locator(".stage .name").all()} == set(told.values())
    assert page.locator(f"td[data-title=Replica]:has-text('{master}')").count() == 2
    console.open("timeline")
    assert master in console.wait(".event[data-kind=master-elected]").first.inner_text()


def test_pauses_and_maintenance_are_seen_at_once_by_everybody_and_ended(fleet: Fleet, consoles: Any) -> None:
    """Also by who looks at a controller that does not lead. Markup in a reason stays text."""
    key = only_set(fleet)
    follower = next(name for name in fleet.controllers if name != fleet.leader())
    console, other = consoles("operator"), consoles("viewer", controller=follower)
    page = console.page

    def order(button: str) -> str:
        """Reason with markup, preview, confirmation; what the preview said."""
        page.get_by_role("button", name=button).click(timeout=LIMIT_MS)
        page.fill("#reason", MARKUP)
        if page.locator("#last").count():
            page.check("#last")
        page.get_by_role("button", name="Preview").click()
        said: str = console.wait(".foreseen").inner_text()
        page.get_by_role("button", name="Confirm").click(timeout=LIMIT_MS)
        console.wait(".answer .done")
        page.get_by_role("button", name="Close").click()
        return said

    def seen(kind: str) -> str:
        told: str = other.wait(f"#changes [data-kind={kind}]").first.inner_text()
        return told

    console.open("standing")
    try:
        assert MARKUP in order("Pause the fleet…")
        assert MARKUP in seen("elections-paused")
        order("Resume the fleet…")
    except BaseException:
        rollcall(fleet, "resume", "--fleet")  # for the tests that follow
        raise
    # All replicas are on one host: no budget is left, and the server says so.
    page.get_by_role("button", name="Begin maintenance of a host…").click(timeout=LIMIT_MS)
    page.fill("#host", "127.0.0.1")
    page.get_by_role("button", name="Preview").click()
    assert "NO_BUDGET" in console.wait(".problem").inner_text()
    page.get_by_role("button", name="Close").click()
    console.open(f"set/{key.cluster}/{key.name}")
    slave = next(one.broker_id for one in heal(fleet).replicas if not one.is_master)
    assert MARKUP in order(f"Maintenance of {named(fleet, slave)}…")
    assert MARKUP in seen("maintenance-begun")
    console.open("standing")
    order("End…")
    console.wait("text=Nothing is in maintenance")
    other.open(f"set/{key.cluster}/{key.name}")
    # A follower hears no heartbeats: what it shows it has asked the leader for.
    assert re.fullmatch(r"[\d,]+", other.wait("[data-replica] td[data-title='End of log']").first.inner_text())
    assert other.page.locator("img").count() == 1, "the sign of the console, and nothing that was made of a text"


def test_a_viewer_is_told_which_role_an_order_needs(fleet: Fleet, consoles: Any) -> None:
    key = only_set(fleet)
    console = consoles("viewer")
    console.open(f"set/{key.cluster}/{key.name}")
    console.page.get_by_role("button", name="Pause elections…").click(timeout=LIMIT_MS)
    console.page.get_by_role("button", name="Preview").click()
    assert "needs role operator or admin" in console.wait(".problem").inner_text()
    assert console.page.get_by_role("button", name="Confirm").is_disabled()


def test_the_fleet_is_filtered_by_keyboard_and_the_address_keeps_it(fleet: Fleet, consoles: Any) -> None:
    key = only_set(fleet)
    console = consoles("viewer")
    page = console.page
    page.keyboard.press("/")
    page.keyboard.type("no-such-set")
    console.wait("text=No set matches.")
    assert "name=no-such-set" in page.url
    page.fill("#filter", key.name[:4].upper())
    console.wait(f"tr[data-set='{key}']")
    page.locator(f"tr[data-set='{key}'] a").focus()
    page.keyboard.press("Enter")
    console.wait("[data-replica]")
    console.until("document.activeElement.id === 'main'")
    page.go_back()
    console.wait(f"tr[data-set='{key}']")


@pytest.mark.parametrize("how", ["killed", "hung"])
def test_the_page_was_green_while_its_controller_was_dead(fleet: Fleet, consoles: Any, how: str) -> None:
    """The last answers stay, grey and with their age, in views that are opened then, too; the others' consoles are named."""
    key, view = only_set(fleet), "set/{0.cluster}/{0.name}".format(only_set(fleet))
    name, *others = sorted(fleet.controllers, key=lambda one: one == fleet.leader())
    console, other = consoles("viewer", controller=name), consoles("viewer", controller=name)
    console.is_cut = other.is_cut = True
    console.open(view)
    console.wait("[data-replica]")
    console.open("fleet")
    for one in (console, other):
        one.wait("#verdict.good")
        one.wait(".controllers span:has-text('★')")
    fleet.kill(name) if how == "killed" else fleet.stop(name)
    try:
        said = console.wait("#verdict.none").inner_text()
        assert re.search(r"Not known since \d+ s \(last: the only set serves\)$", said), said
        assert "last: serving" in console.text(f"tr[data-set='{key}'] .badge")
        assert "ago" in console.text(".read")
        # An event of the past keeps its kind, but no colour; nothing that tells of now is good.
        assert console.page.locator("#verdict.good, tr.good, .badge.good, .controllers .good").count() == 0
        assert console.page.evaluate("getComputedStyle(document.getElementById('main')).filter") == "grayscale(1)"
        assert f"{name} does not answer" in console.text(".controllers")
        assert f"{name} does not answer since" in console.text("#away")
        links = {link.inner_text(): link.get_attribute("href") for link in console.page.locator("#away a").all()}
        assert links == {one: f"https://{fleet.rest(one).address}/console#/fleet" for one in others}
        console.open(view)
        assert console.wait("[data-replica]").count() == len(fleet.brokers)
        assert "not known since" in console.text("h1")
        other.wait("#verdict.none")
        other.open(view)
        assert "(last: serving)" in other.wait("h1 .badge.none").inner_text()
        other.open("timeline")
        other.wait("svg.timeline")
        other.open(view)
        other.wait("text=Its replicas were not read before")
    finally:
        fleet.restart(name) if how == "killed" else fleet.cont(name)
    for one in (console, other):
        one.wait("h1 .badge.good")
        one.wait("[data-replica]")
        one.until("document.getElementById('away').hidden")


def test_the_page_was_green_while_nobody_led(fleet: Fleet, consoles: Any) -> None:
    name, *others = fleet.controllers
    console = consoles("viewer", controller=name)
    console.wait("#verdict.good")
    try:
        for one in others:
            fleet.kill(one)
        assert "no controller leads" in console.wait(".head:has(#verdict.none) .read").inner_text()
        assert "(last: the only set serves)" in console.text("#verdict")
    finally:
        for one in others:
            fleet.restart(one)
    console.wait("#verdict.good")


def test_a_topic_and_a_group_are_shown_with_what_the_command_line_says(fleet: Fleet, consoles: Any) -> None:
    given = subprocess.run(
        fleet.command("produce", "shown"),
        input="\n".join(map(str, range(40))),
        env=fleet.commands_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert given.returncode == 0, given.stderr
    assert rollcall(fleet, "consume", "shown", "--group", "late", "--from", "first", "--count", "10").returncode == 0
    console = consoles("viewer")
    console.open("topics")
    # The view before has a filter, too, and stays until this one's module is there: filled in there, nothing is left out.
    console.wait("h1:text-is('Topics')")
    console.page.fill("#filter", "show")
    console.until("document.querySelectorAll('[data-row]').length === 1")
    console.page.click("[data-row=shown] a")
    console.wait("[data-row='7']")
    assert console.text("h1") == "shown"
    console.open("groups")
    console.page.click("[data-row=late] a")
    listed = answer_of(fleet, "groups", "show", "late")["queues"]
    console.wait("[data-row='shown:7']")
    for queue in (one for one in listed if one["topic"] == "shown"):
        cells = console.text(f"[data-row='shown:{queue['queueId']}']").split("\t")
        assert cells[4] == str(queue["maxOffset"])
        assert cells[5] == ("—" if queue["lag"] is None else str(queue["lag"]))
    console.open("groups/nobody")
    assert "there is no group nobody" in console.wait(".problem").inner_text()


def test_topics_and_groups_are_ordered_by_preview_and_confirmation_and_not_by_viewers(
    fleet: Fleet, consoles: Any
) -> None:
    console, viewer = consoles("operator"), consoles("viewer")
    page = console.page

    def order(button: str, **fields: str) -> str:
        """Fill in, preview, confirm; the outcome that was foreseen."""
        page.get_by_role("button", name=button, exact=True).click(timeout=LIMIT_MS)
        for name, value in fields.items():
            field = page.locator(f"dialog #{name}")
            field.select_option(value) if field.evaluate("one => one.tagName") == "SELECT" else field.fill(value)
        page.get_by_role("button", name="Preview").click()
        said: str = console.wait(".foreseen [data-outcome=would-do]").inner_text()
        page.get_by_role("button", name="Confirm").click(timeout=LIMIT_MS)
        assert "Done" in console.wait(".answer .done").inner_text(timeout=LIMIT_MS)
        page.get_by_role("button", name="Close").click()
        return said

    console.open("topics")
    order("Make a topic…", name="made", queues="2")
    assert [one["readQueues"] for one in answer_of(fleet, "topics", "show", "made")["topics"]] == [2]
    page.get_by_role("button", name="Make a topic…").click()
    page.fill("#name", "made")
    page.get_by_role("button", name="Preview").click()
    assert "it is there: 2 queues" in console.wait("[data-outcome=refused]").inner_text()
    assert page.get_by_role("button", name="Confirm").is_disabled()
    page.get_by_role("button", name="Close").click()
    console.open("topics/made")
    assert "before: 2 queues, read-write" in order("Change…", queues="4", permission="read-write")
    console.wait("td[data-title=Queues]:text-is('4')")
    given = subprocess.run(
        fleet.command("produce", "made"),
        input="1\n2\n3",
        env=fleet.commands_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert given.returncode == 0, given.stderr
    assert rollcall(fleet, "consume", "made", "--group", "ordered", "--from", "first", "--count", "3").returncode == 0
    console.open("groups/ordered")
    console.wait("td[data-title=Retries]")
    order("Settings…", retries="7", broadcast="no")
    console.wait("td[data-title=Retries]:text-is('7')")
    assert "no" in console.wait("td[data-title='May broadcast']").inner_text()
    order("Reset…", topic="made", to="0")
    lags = [one["lag"] for one in answer_of(fleet, "groups", "show", "ordered")["queues"] if one["topic"] == "made"]
    assert sum(filter(None, lags)) == 3
    for view, shown in (
        ("topics", "[data-row=made]"),
        ("topics/made", "[data-row='3']"),
        ("groups/ordered", "[data-row]"),
    ):
        viewer.open(view)
        viewer.wait(shown)
        assert viewer.page.locator(".orders button").count() == 0
    order("Delete…")
    console.open("topics/made")
    order("Delete…")
    console.wait("text=there is no topic made")


def test_an_empty_log_had_a_full_bar(fleet: Fleet, consoles: Any) -> None:
    console, key = consoles("viewer"), only_set(fleet)

    def answer(route: Any) -> None:
        found = route.fetch().json()
        for one in found["set"]["replicas"]:
            one.update(minOffset=0, maxOffset=0, confirmOffset=0)
        route.fulfill(json=found)

    console.page.route(f"**/v1/sets/{key.cluster}/{key.name}?*", answer)
    console.open(f"set/{key.cluster}/{key.name}")
    console.wait("svg.extent[aria-label=empty]")
    assert console.page.locator("th:text-is('State')").count() == 0, "its role told twice"
    assert console.page.locator("svg.extent .held").count() == 0
    console.page.unroute_all(behavior="wait")


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


@pytest.mark.parametrize("how", ["wide", "narrow", "dark", "print"])
def test_every_view_fits_and_everything_in_it_has_a_name(fleet: Fleet, consoles: Any, how: str) -> None:
    """No view scrolls sideways at 400 px; what a screen reader meets has a name; on paper nothing is a button."""
    key = only_set(fleet)
    console = consoles("viewer", **({"color_scheme": "dark"} if how == "dark" else {}))
    page = console.page
    if how == "narrow":
        page.set_viewport_size({"width": NARROW, "height": 800})
    if how == "print":
        page.emulate_media(media="print")
    epoch = fleet.client().history(key).rows[0].master_epoch
    views = {
        "fleet": f"tr[data-set='{key}']",
        f"set/{key.cluster}/{key.name}": "tr[data-epoch]",
        f"set/{key.cluster}/{key.name}/epoch/{epoch}": ".figures",
        "topics": "main table, main .empty",
        "groups": "main table, main .empty",
        "timeline": "svg.timeline",
        "standing": "text=Nothing is in maintenance",
        "audit": "main table, main .empty",
    }
    paper = set()
    for view, shown in views.items():
        console.open(view)
        page.locator(shown).first.wait_for(timeout=LIMIT_MS)
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0, view
        assert page.evaluate(UNNAMED) == [], view
        assert page.locator("h1").count() == page.locator("main").count() == 1
        paper.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        if how == "print":
            assert page.locator("nav:visible, .filters:visible").count() == 0
    assert len(paper) == 1
    channel = int(re.findall(r"\d+", paper.pop())[0])
    assert (channel < 60) == (how == "dark")
