"""A dry run ends with the command that does what it showed, and a person at a terminal orders what was shown."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from msgspec.structs import replace

from rollcall_ha.cli import context, orders
from rollcall_ha.controller.contract.events import AnyEvent, LeadershipTransferOrdered, SwitchoverOrdered
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    ControllerName,
    Incarnation,
    MasterEpoch,
    RequestId,
)
from rollcall_ha.controller.contract.replies import Elected
from rollcall_ha.controller.contract.views import ElectionPreview, OrderPreview
from tests.support.cli import Ran, Run, scripted
from tests.support.fake_controllers import (
    SET_PATH,
    SETS,
    everywhere,
    freshness,
    noted,
    problem,
    set_status,
    verdict,
)
from tests.support.set_views import shown_member

NAMES = {BrokerId(1): "orders-3", BrokerId(2): "orders-1", BrokerId(3): "orders-2"}
ELECTION = ElectionPreview(freshness=freshness(), verdict=verdict(), grade_note="0 bytes", names=NAMES)
ELECT, SWITCH = f"{SET_PATH}/elect", f"{SET_PATH}/switchover"


def ordered(*, master: int = 3, target: int = 1) -> SwitchoverOrdered:
    return SwitchoverOrdered(
        order=RequestId("r"),
        master=BrokerId(master),
        master_incarnation=Incarnation("m"),
        master_epoch=MasterEpoch(2),
        target=BrokerId(target),
        target_incarnation=Incarnation("t"),
        lag_bytes=0,
        deadline_ms=5_000,
        reason="",
    )


def preview(*events: AnyEvent) -> OrderPreview:
    return OrderPreview(freshness=freshness(), events=events, names=NAMES)


def last_line(ran: Ran) -> str:
    assert ran.code == 0, ran
    *_, words, line = ran.out.splitlines()
    assert words == "To do exactly this, or be refused:"
    return line


@pytest.fixture
def rollcall(monkeypatch: pytest.MonkeyPatch) -> Run:
    return scripted(monkeypatch)


def test_a_switchover_took_another_broker_than_its_dry_run_had_named(rollcall: Run) -> None:
    """ "From 3 to 1" was shown, and the order that was typed next made 2 the master."""
    script = SETS | everywhere("POST", SWITCH, preview(ordered()))
    line = last_line(rollcall(script, "switchover", "broker-a", "--dry-run", "--deadline-ms", "700", "--reason", "a b"))

    assert line == (
        "  rollcall switchover demo/broker-a --to orders-3 --expect-master orders-2 --expect-epoch 2 --deadline-ms 700 "
        "--reason 'a b'"
    )


def test_the_command_of_a_dry_run_sends_what_it_showed_and_is_refused_with_both_values(rollcall: Run) -> None:
    script = SETS | everywhere("POST", ELECT, ELECTION)
    line = last_line(rollcall(script, "elect", "broker-a", "--dry-run"))
    assert line == "  rollcall elect demo/broker-a --to orders-1 --expect-epoch 7"

    bodies: list[Any] = []
    moved = problem(409, "EXPECTATION_FAILED", requested="7", current="8")
    found = everywhere("GET", SET_PATH, {"freshness": freshness(), "set": _named()})
    ran = rollcall(found | everywhere("POST", ELECT, noted(bodies, moved)), *shlex.split(line)[1:])
    assert (bodies[0]["to"], bodies[0]["expectedEpoch"]) == (2, 7)
    assert (ran.code, "requested 7; current 8" in ran.err) == (1, True)


def _named() -> Any:
    status = set_status()
    members = tuple(replace(shown_member(one), owner=name) for one, name in NAMES.items())
    return replace(status, view=replace(status.view, members=members))


def test_an_unclean_election_keeps_the_loss_that_was_accepted(rollcall: Run) -> None:
    script = SETS | everywhere("POST", f"{SET_PATH}/elect-unclean", ELECTION)
    line = last_line(rollcall(script, "elect", "broker-a", "--unclean", "--accept-loss", "0", "--dry-run"))
    assert "--unclean --accept-loss 0 --to orders-1 --expect-epoch 7" in line


def test_the_lead_goes_to_the_controller_that_was_shown_and_settings_follow_the_version_that_was_looked_at(
    rollcall: Run,
) -> None:
    moved = LeadershipTransferOrdered(controller=ControllerName("c1"), successor=ControllerName("c3"), reason="")
    script = everywhere("POST", "/v1/controllers/transfer", preview(moved))
    line = last_line(rollcall(script, "controllers", "transfer", "--dry-run"))
    assert line == "  rollcall controllers transfer --to c3"


def test_the_command_goes_to_the_fleet_that_was_asked(rollcall: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the words before the verb it would go to the fleet file that lies nearest."""
    monkeypatch.setattr(context.OPTIONS, "config", None)
    script = SETS | everywhere("POST", SWITCH, preview(ordered()))
    line = last_line(rollcall(script, "--config", "prod.toml", "switchover", "broker-a", "--dry-run"))
    assert line.startswith("  rollcall --config prod.toml switchover demo/broker-a --to orders-3")
    assert context.OPTIONS.config == Path("prod.toml")


def test_a_dry_run_that_would_change_nothing_offers_no_command(rollcall: Run) -> None:
    script = SETS | everywhere("POST", "/v1/controllers/transfer", preview())
    assert "exactly" not in rollcall(script, "controllers", "transfer", "--dry-run").out
    script = SETS | everywhere("POST", f"{SET_PATH}/pause", preview(ordered()))
    assert "exactly" not in rollcall(script, "pause", "broker-a", "--for", "1h", "--dry-run").out


@pytest.mark.parametrize("options", [(), ("--request-id", "r-1")])
def test_what_a_person_confirms_is_what_was_shown(
    rollcall: Run, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    """The order that was confirmed was the one typed: it took whoever was best by then. A repeated one is as typed."""
    bodies: list[Any] = []

    def elect(request: Any) -> Any:
        note = noted(bodies, ELECTION if not bodies else Elected(verdict=verdict(), view=set_status().view))
        return note(request)

    monkeypatch.setattr(orders, "may_ask", lambda: True)
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: True)
    ran = rollcall(SETS | everywhere("POST", ELECT, elect), "elect", "broker-a", *options)
    assert (ran.code, len(bodies), bodies[0].get("dryRun")) == (0, 2, True)
    assert (bodies[1].get("to"), bodies[1].get("expectedEpoch")) == ((None, None) if options else (2, 7))
