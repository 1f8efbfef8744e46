"""What is looked at: signing in, the fleet, words and figures, and what is left of them when a controller is dead."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollcall_ha.cli.records import _forms
from rollcall_ha.controller.contract.sentences import sentence
from rollcall_ha.deploy.local.fleet import Fleet
from tests.support.console import LIMIT_MS, NARROW, Console
from tests.support.fleet_story import counted, heal, only_set, rollcall

pytestmark = pytest.mark.cluster

UNNAMED = """() => [...document.querySelectorAll("button, a, input, select, svg[role=img], dialog, section, nav, table")].filter(one => {
  if (one.closest("[hidden]") || (one.tagName === "SECTION" && !one.hasAttribute("aria-label") && !one.hasAttribute("aria-labelledby"))) return false;
  const by = one.getAttribute("aria-labelledby");
  const name = one.getAttribute("aria-label") || (by && document.getElementById(by)?.textContent) || one.textContent.trim()
    || [...(one.labels ?? [])].map(label => label.textContent.trim()).join("") || one.getAttribute("title");
  return !name;
}).map(one => one.outerHTML.slice(0, 120))"""


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
    figures = json.loads((Path(__file__).parents[2] / "unit" / "figures.json").read_text())
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


def test_a_set_that_rings_an_alarm_did_not_say_which(fleet: Fleet, consoles: Any) -> None:
    """A person who comes from the console finds the same page as one who was called."""
    console, key = consoles("viewer"), only_set(fleet)

    def answer(route: Any) -> None:
        found = route.fetch().json()
        found["set"]["problems"] = ["MASTER_SILENT", "NO_SPARE"]
        route.fulfill(json=found)

    console.page.route(f"**/v1/sets/{key.cluster}/{key.name}?*", answer)
    console.open(f"set/{key.cluster}/{key.name}")
    console.wait(".problems li")
    told = console.page.locator(".problems li").all_text_contents()
    assert told[0].endswith(" alarm RollcallSetWithoutMaster, what to do: docs/alarms.md#rollcallsetwithoutmaster")
    assert "alarm" not in told[1]
    console.page.unroute_all(behavior="wait")


def test_the_fleet_is_filtered_by_keyboard_and_the_address_keeps_it(fleet: Fleet, consoles: Any) -> None:
    key = only_set(fleet)
    console = consoles("viewer")
    page = console.page
    page.keyboard.press("/")
    page.keyboard.type("no-such-set")
    console.wait("text=No set matches.")
    # Asked in the page: ``page.url`` is what the browser has told of it so far, and was a few letters behind.
    console.until("location.hash.includes('name=no-such-set')")
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


def test_nobody_could_see_what_is_lost_with_a_host(fleet: Fleet, consoles: Any) -> None:
    """All replicas of this fleet are on one host; of another fleet, whose sets are on three, each word is shown."""
    key, console = only_set(fleet), consoles("viewer")
    page = console.page
    heal(fleet)
    console.open("hosts")
    cells = console.wait("tr[data-host='127.0.0.1'].bad").locator("td").all_text_contents()
    assert cells == ["127.0.0.1", "1", "1", "1", "0", "■1 set stops"]
    page.click("tr[data-host='127.0.0.1'] a")
    assert console.wait("main .lead:has-text('would stop')").inner_text() == "1 set of 1 would stop with it."
    assert "nobody elsewhere may be elected" in console.text(f"tr[data-set='{key}']")
    typed = shlex.split(console.text(".typed code"))
    assert rollcall(fleet, *typed[1:]).returncode == 0

    def answer(route: Any) -> None:
        found = route.fetch().json()
        (own,) = found["sets"]
        shares = {
            "goes-on": {"left": 3, "heirs": 3, "goesOn": True, "spare": 1},
            "bare": {"left": 2, "heirs": 1, "goesOn": True, "spare": 0},
            "few": {"left": 1, "heirs": 1, "goesOn": False, "spare": 0},
        }
        hosts = [{"host": "10.0.0.7", "hasMaster": True} | share for share in shares.values()]
        found["sets"] = [
            own | {"setKey": own["setKey"] | {"name": name}, "hosts": [one]}
            for name, one in zip(shares, hosts, strict=True)
        ]
        route.fulfill(json=found | {"setsTotal": 3})

    page.route("**/v1/overview?*hosts=true*", answer)
    console.open("hosts/10.0.0.7")
    assert console.wait("tr[data-set] .badge").all_text_contents() == [
        "■refuses writes: 1 in sync are too few",
        "▲goes on, and may lose no other",
        "●goes on, and may lose 1 more",
    ]
    page.unroute_all(behavior="wait")


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
        "hosts": "tr[data-host]",
        "hosts/127.0.0.1": f"tr[data-set='{key}']",
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
