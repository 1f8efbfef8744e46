"""``rollcall controllers add``, ``remove`` and ``replace``: which orders they give, and when they wait or go on."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import asdict, replace

from rollcall_ha.cli import context, members, orders
from rollcall_ha.cli.main import app
from rollcall_ha.cli.output import CommandExit, Format
from rollcall_ha.controller.contract.commands import ChangeControllers
from rollcall_ha.controller.contract.events import AnyEvent, ControllersChangeOrdered, LeadershipTransferOrdered
from rollcall_ha.controller.contract.ids import ControllerName, RequestId
from rollcall_ha.controller.contract.orders import TransferLead
from rollcall_ha.controller.contract.replies import ControllersChanged, LeadershipTransferred
from rollcall_ha.controller.contract.values import MembershipVerb
from rollcall_ha.controller.contract.views import ControllerStatus, OrderPreview
from tests.support.cli import CliRunner
from tests.support.fake_controllers import controller_status, freshness

PORTS = ("--raft", "h:1", "--broker", "h:2", "--rest", "h:3")


class Leader:
    """Answers as the client would: the part of ``Client`` that these commands use."""

    def __init__(self, *voters: str, name: str = "c2") -> None:
        self.name = name
        self.voters, self.learners = [*voters], list[str]()
        self.orders: list[tuple[str, str]] = []
        self.looks_until_it_votes = 2

    def __enter__(self) -> Leader:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def members(self) -> ControllerStatus:
        if self.learners:
            self.looks_until_it_votes -= 1
            if self.looks_until_it_votes <= 0:
                self.voters, self.learners = sorted([*self.voters, *self.learners]), []
        return replace(
            controller_status(self.name, leads=True),
            voters=tuple(ControllerName(name) for name in self.voters),
            learners=tuple(ControllerName(name) for name in self.learners),
        )

    def order(
        self, asked: ChangeControllers | TransferLead, *, request_id: RequestId | None = None
    ) -> ControllersChanged | LeadershipTransferred:
        if isinstance(asked, TransferLead):
            self.orders.append(("transfer", asked.reason))
            self.name = next(name for name in self.voters if name != self.name)
            return LeadershipTransferred(leader=ControllerName(self.name), term=9)
        self.orders.append((asked.verb, asked.name))
        if asked.verb is MembershipVerb.ADD:
            self.learners.append(asked.name)
        else:
            assert asked.name != self.name, "a leader does not remove itself"
            self.voters.remove(asked.name)
        return ControllersChanged(voters=(), learners=())

    def preview(self, asked: ChangeControllers | TransferLead) -> OrderPreview:
        if isinstance(asked, ChangeControllers):
            return _preview(ControllersChangeOrdered(**asdict(asked)))
        heir = next(name for name in self.voters if name != self.name)
        event = LeadershipTransferOrdered(
            controller=ControllerName(self.name), successor=ControllerName(heir), reason=""
        )
        return _preview(event)


def _preview(*events: AnyEvent) -> OrderPreview:
    return OrderPreview(freshness=freshness(), events=events)


class Terminal:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leader = Leader("c1", "c2", "c3")
        self.now = 0.0
        monkeypatch.setattr(members, "LOOK_SECONDS", 0)
        monkeypatch.setattr(context, "client", self._client)

    def _client(self, _form: Format) -> Leader:
        return self.leader

    def run(self, *words: str) -> Any:
        done = CliRunner().invoke(app, ["controllers", *words])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    return Terminal(monkeypatch)


def test_add_returns_when_the_new_one_votes(terminal: Terminal) -> None:
    ran = terminal.run("add", "c4", *PORTS)
    assert ran.exit_code == 0
    assert ran.stdout.startswith("OK  c4 votes; voters: c1, c2, c3, c4")
    assert terminal.leader.orders == [("add", "c4")]


def test_add_goes_on_where_a_broken_command_ended(terminal: Terminal) -> None:
    """Ordered again, it would be refused: c4 is a member already."""
    terminal.leader.learners = ["c4"]
    assert terminal.run("add", "c4", *PORTS).exit_code == 0
    assert terminal.run("add", "c4", *PORTS).exit_code == 0
    assert terminal.leader.orders == []


def test_add_says_what_to_look_at_when_the_new_one_gets_no_vote(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal.leader.looks_until_it_votes = 10**9
    ticks = iter(range(10_000))
    monkeypatch.setattr("rollcall_ha.cli.members.time.monotonic", lambda: float(next(ticks)))
    ran = terminal.run("add", "c4", *PORTS, "--timeout", "5")
    assert ran.exit_code == CommandExit.TIMED_OUT
    assert "c4 has no vote after 5 s; is it running, and linked?" in ran.stderr


def test_the_lead_moves_before_its_holder_is_removed(terminal: Terminal) -> None:
    ran = terminal.run("remove", "c2", "--reason", "old")
    assert ran.stdout.startswith(
        "OK  c2 is no controller any more: stop it, and revoke its certificate; voters: c1, c3"
    )
    assert terminal.leader.orders == [("transfer", "old"), ("remove", "c2")]
    terminal.leader.orders.clear()
    assert terminal.run("remove", "c3").exit_code == 0
    assert terminal.leader.orders == [("remove", "c3")]


def test_replace_adds_first_and_repeated_it_changes_nothing(terminal: Terminal) -> None:
    """Removed first, a fleet of three would have two disks while the third copies the state."""
    ran = terminal.run("replace", "c1", "c4", *PORTS)
    assert ran.stdout.startswith("OK  c4 votes in the place of c1: stop c1; voters: c2, c3, c4")
    assert terminal.leader.orders == [("add", "c4"), ("remove", "c1")]
    assert terminal.run("replace", "c1", "c4", *PORTS).exit_code == 0
    assert len(terminal.leader.orders) == 2


def test_a_controller_was_taken_out_without_a_question_at_a_terminal(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As every other order that nothing takes back; a script is not asked."""
    for module in (members, orders):
        monkeypatch.setattr(module, "may_ask", lambda: True)
    for words in (("remove", "c3"), ("replace", "c3", "c4", *PORTS)):
        ran = terminal.run(*words)
        assert (ran.exit_code, terminal.leader.voters) == (CommandExit.REFUSED, ["c1", "c2", "c3"])
        assert "c3 out of the controllers" in ran.stderr
    assert terminal.run("remove", "c3", "--yes").exit_code == 0
    assert terminal.leader.voters == ["c1", "c2"]


def test_a_dry_run_names_each_step_and_orders_nothing(terminal: Terminal) -> None:
    """S68: the server is asked for each step."""
    for words, told, kinds in (
        (("add", "c4", *PORTS), "Would add c4: it takes entries, and votes when it has caught up.", 1),
        (("remove", "c3"), "Would remove c3.", 1),
        (("remove", "c2"), "Would have c1 lead, then remove c2.", 1),
        (("replace", "c3", "c4", *PORTS), "Would add c4, and when it votes remove c3.", 2),
        (("replace", "c2", "c4", *PORTS), "Would add c4, and when it votes have c1 lead, then remove c2.", 2),
    ):
        ran = terminal.run(*words, "--dry-run")
        assert (ran.exit_code, ran.stdout.startswith(told)) == (0, True), ran.stdout
        document = terminal.run(*words, "--dry-run", "-o", "json").stdout
        assert document.count('"kind"') == kinds
    assert terminal.leader.orders == []
