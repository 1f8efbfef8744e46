"""Orders: previewed, confirmed, on record; and the same order as the command line takes it."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from rollcall_ha.controller.contract.ids import MasterEpoch
from rollcall_ha.deploy.local.fleet import Fleet
from tests.support.console import LIMIT_MS, MARKUP, Console, answer_of, named
from tests.support.fleet_story import heal, only_set, rollcall, shell, wait_row

pytestmark = pytest.mark.cluster

STRUCK = """() => [...document.querySelectorAll(".stage .follows")].flatMap(line => {
  const box = line.getBBox();
  return [...document.querySelectorAll(".stage .name, .stage .label")].filter(one => {
    const label = one.getBBox();
    return label.x < box.x + box.width && label.x + label.width > box.x && label.y < box.y + box.height && label.y + label.height > box.y;
  }).map(one => one.textContent);
})"""
"""Labels in the film that a line to a slave goes through."""


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
    assert page.evaluate("navigator.clipboard.readText().then((copied) => copied === location.href)")


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


def test_a_topic_and_a_group_are_shown_with_what_the_command_line_says(fleet: Fleet, consoles: Any) -> None:
    shell(fleet, "produce", "shown", given="\n".join(map(str, range(40))))
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
    shell(fleet, "produce", "made", given="1\n2\n3")
    assert rollcall(fleet, "consume", "made", "--group", "ordered", "--from", "first", "--count", "3").returncode == 0
    console.open("groups")
    order("Make a group…", name="founded", retries="3", ordered="yes")
    told = answer_of(fleet, "groups", "show", "founded")["settings"]
    assert [(one["retriesMax"], one["mayConsume"], one["isOrdered"]) for one in told] == [(3, True, True)]
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


def test_orders_about_topics_and_groups_could_not_be_copied_as_commands(fleet: Fleet, consoles: Any) -> None:
    """What every dialog shows is typed: the command line takes it, and its dry run has the outcome of the preview."""
    key, page = only_set(fleet), (console := consoles("operator")).page
    status = heal(fleet)
    slave = named(fleet, next(one.broker_id for one in status.replicas if not one.is_master))
    shell(fleet, "produce", "typed", given="1\n2\n3")
    assert rollcall(fleet, "consume", "typed", "--group", "typing", "--from", "first", "--count", "3").returncode == 0
    typed = []

    def check(button: str, **fields: str | bool) -> None:
        page.get_by_role("button", name=button, exact=True).click(timeout=LIMIT_MS)
        for name, value in ({"reason": f"it's {MARKUP}"} | fields).items():
            field = page.locator(f"dialog #{name}")
            if isinstance(value, bool):
                field.check()
            else:
                field.select_option(value) if field.evaluate("one => one.tagName") == "SELECT" else field.fill(value)
        page.get_by_role("button", name="Preview").click()
        console.wait(".foreseen, .answer .problem, .answer p:has-text('it is so already')")
        is_refused = bool(page.locator(".answer .problem, [data-outcome=refused]").count())
        command = console.text(".typed code")
        done = rollcall(fleet, *shlex.split(command)[1:], "--dry-run")
        assert done.returncode == is_refused, (command, done.stdout, done.stderr)
        typed.append(command.partition(" --reason ")[0].removeprefix("rollcall "))
        page.get_by_role("button", name="Close").click()

    console.open(f"set/{key.cluster}/{key.name}")
    check("Switch over…")
    check("Pause elections…", until="0.5")
    check(f"Maintenance of {slave}…", last=True)
    console.open("standing")
    check("Pause the fleet…", until="167.9")
    check("Begin maintenance of a host…", host="127.0.0.1")
    console.open("topics")
    check("Make a topic…", name="new-one", queues="2", permission="read")
    check("Make a topic…", name="typed")
    console.open("topics/typed")
    check("Change…", queues="4", permission="none")
    check("Change…", queues="4")
    check("Delete…")
    console.open("groups")
    check("Make a group…", name="new-group", retries="3", ordered="yes")
    check("Make a group…", name="typing")
    console.open("groups/typing")
    check("Settings…", retries="7", consume="yes", broadcast="no")
    check("Reset…", topic="typed", to="time", at="2026-11-28T10:00:05")
    check("Reset…", topic="typed", to="0")
    check("Reset…", topic="typed", to="-1")
    check("Delete…", keeps=True)
    assert typed[1:2] + typed[3:] == [
        f"pause {key} --for 30m",
        "pause --fleet --for 167h",
        "maintenance begin 127.0.0.1 --for 1h",
        "topics create new-one --queues 2 --permission read",
        "topics create typed --queues 8 --permission read-write",
        "topics change typed --queues 4 --permission none",
        "topics change typed --queues 4",
        "topics delete typed",
        "groups create new-group --retries 3 --ordered",
        "groups create typing",
        "groups change typing --retries 7 --consume --no-broadcast",
        "groups reset typing typed --to 2026-11-28T10:00:05Z",
        "groups reset typing typed --to first",
        "groups reset typing typed --to last",
        "groups delete typing --keep-offsets",
    ]
