"""``--watch``: drawing in place, a terminal that is given back, controllers that do not answer, and rates."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from rollcall_ha.cli import watching
from rollcall_ha.cli.output import Format, Report
from rollcall_ha.cli.tables import status_report
from rollcall_ha.cli.watching import ENTER, LEAVE, change_of, framed, watch
from rollcall_ha.client.errors import Unreachable
from rollcall_ha.controller.contract.ids import BrokerId, LogOffset, MasterEpoch
from rollcall_ha.controller.contract.views import FleetStatus
from tests.support.fake_controllers import fleet_status


class Terminal(io.StringIO):
    """Says that it is one."""

    def isatty(self) -> bool:
        return True


def pauses(count: int) -> Callable[[float], None]:
    """Ctrl-C in the pause of this number."""
    left = count

    def wait(_: float) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KeyboardInterrupt

    return wait


def report(text: str) -> Report:
    return Report(document={}, verdict=text)


def answers(*found: Any) -> Callable[[], Report]:
    left = list(found)

    def fetch() -> Report:
        one = left.pop(0)
        if isinstance(one, BaseException):
            raise one
        assert isinstance(one, Report)
        return one

    return fetch


def screen(text: str) -> list[str]:
    """What a terminal of any size shows behind these bytes."""
    inside = text.split(ENTER)[1].split(LEAVE, maxsplit=1)[0]
    page = inside.split(watching.HOME)[-1]
    assert page.endswith(watching.END_OF_SCREEN)
    return [line for line in re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", page).split("\n") if line]


def test_the_page_is_drawn_over_the_one_before_and_the_terminal_given_back() -> None:
    terminal = Terminal()
    watch(answers(report("OK  one"), report("OK  two")), Format.TABLE, 1.0, stream=terminal, wait=pauses(2))
    text = terminal.getvalue()
    assert text.startswith(ENTER)
    assert text.endswith(LEAVE)
    assert text.count(ENTER) == text.count(LEAVE) == 1
    assert "\x1b[2J" not in text, "cleared before it is drawn, it flickers"
    assert screen(text) == ["OK  two"]


def test_a_ctrl_c_while_nobody_answers_left_the_cursor_hidden() -> None:
    """It came within the question, not within the pause: a traceback."""
    terminal = Terminal()
    watch(answers(report("OK  one"), KeyboardInterrupt()), Format.TABLE, 1.0, stream=terminal, wait=pauses(9))
    assert terminal.getvalue().endswith(LEAVE)


def test_a_fault_of_ours_gives_the_terminal_back_too() -> None:
    terminal = Terminal()
    with pytest.raises(ZeroDivisionError):
        watch(answers(report("OK  one"), ZeroDivisionError()), Format.TABLE, 1.0, stream=terminal, wait=pauses(9))
    assert terminal.getvalue().endswith(LEAVE)


def test_a_controller_that_dies_ended_the_watch() -> None:
    """The page stays, with what went wrong, and is of now when somebody answers again."""
    terminal, dead = Terminal(), Unreachable("c1 does not answer")
    watch(answers(report("OK  one"), dead), Format.TABLE, 1.0, stream=terminal, wait=pauses(2))
    first, *rest = screen(terminal.getvalue())
    assert first.startswith("NO ANSWER  c1 does not answer; shown is what was known")
    assert rest == ["OK  one"]
    again = Terminal()
    watch(answers(report("OK  one"), dead, report("OK  two")), Format.TABLE, 1.0, stream=again, wait=pauses(3))
    assert screen(again.getvalue()) == ["OK  two"]


def test_the_first_question_that_fails_ends_the_command() -> None:
    """With its exit code: a wrong address is no outage."""
    terminal = Terminal()
    with pytest.raises(Unreachable):
        watch(answers(Unreachable("nobody")), Format.TABLE, 1.0, stream=terminal, wait=pauses(1))
    assert terminal.getvalue() == ""


def test_no_terminal_gets_pages_and_never_an_old_one_twice(capsys: pytest.CaptureFixture[str]) -> None:
    stream = io.StringIO()
    found = answers(report("OK  one"), Unreachable("gone"), report("OK  two"))
    watch(found, Format.TABLE, 1.0, stream=stream, wait=pauses(3))
    assert stream.getvalue() == "OK  one\nOK  two\n"
    assert "NO ANSWER  gone" in capsys.readouterr().err


def test_a_page_is_never_longer_than_the_screen() -> None:
    shown = framed([str(number) for number in range(100)], 10)
    lines = shown.replace(watching.END_OF_LINE, "").split("\n")
    assert len(lines) == 10
    assert lines[-1].startswith("... 91 more lines")
    assert len(framed(["a", "b"], 10).split("\n")) == 2


def _fleet(end: int, *, epoch: int = 7) -> FleetStatus:
    fleet = fleet_status("c1")
    (status,) = fleet.sets
    replicas = tuple(replace(one, max_offset=LogOffset(end)) for one in status.replicas)
    view = replace(status.view, master_epoch=MasterEpoch(epoch))
    return replace(fleet, sets=(replace(status, replicas=replicas, view=view),))


def test_what_changed_is_told_in_bytes_a_second_and_in_words() -> None:
    before, after = _fleet(1_000), _fleet(5_000, epoch=8)
    assert change_of(None, after, 2.0) is None
    change = change_of(before, after, 2.0)
    assert change is not None
    (status,) = after.sets
    key = status.view.set_key
    assert set(change.written.values()) == {2_000.0}
    assert (key, BrokerId(1)) in change.written
    assert len(change.news) == 1
    assert "masterEpoch 7 -> 8" in change.news[0]
    shown = status_report(after, (), change=change)
    assert any(isinstance(part, str) and part.startswith("IN THE LAST 2.0 s") for part in shown.parts)


def test_a_log_that_was_cut_has_no_rate() -> None:
    change = change_of(_fleet(5_000), _fleet(1_000), 1.0)
    assert change is not None
    assert change.written == {}
