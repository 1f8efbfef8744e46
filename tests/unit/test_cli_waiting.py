"""``rollcall wait``: what it waits for, what it waits through, and how it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import httpx
import pytest
import typer
from msgspec.structs import replace

from rollcall_ha.cli import context, waiting
from rollcall_ha.cli.main import app
from rollcall_ha.cli.output import CommandExit
from rollcall_ha.cli.waiting import Until, missing, wait_for
from rollcall_ha.client.client import Client
from rollcall_ha.client.errors import NoLeader, RefusedError, Unreachable
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.views import SetAnswer, SetStatus
from tests.support.cli import CliRunner
from tests.support.fake_controllers import (
    NAMES,
    SET_PATH,
    FakeControllers,
    answer,
    freshness,
    problem,
    set_page,
    set_status,
)

SERVING = set_status()
BEHIND = set_status(in_sync=(1, 2))
DOWN = set_status(master=None, condition=Condition.NO_ELIGIBLE_REPLICA, reason="1 gone; 2 gone")
NOBODY_LEADS = problem(503, "NO_LEADER")
NO_SET = problem(404, "SET_NOT_FOUND")
BUSY = problem(503, "OVERLOADED")


class Watch:
    """Monotonic seconds that pass with pauses, and a little with each look."""

    def __init__(self) -> None:
        self.now = 0.0

    def read(self) -> float:
        self.now += 0.001
        return self.now

    def pause(self, seconds: float) -> None:
        self.now += seconds


def _asking(watch: Watch, *answers: object) -> Client:
    """Controllers that give these answers one after the other, and the last one for ever."""

    def following() -> Iterator[object]:
        yield from answers
        while True:
            yield answers[-1]

    coming = following()

    def tell(request: httpx.Request) -> httpx.Response:
        told = next(coming)
        if told is None:
            raise httpx.ConnectError("Connection refused", request=request)
        if not isinstance(told, SetStatus):
            return answer(told)
        is_list = request.url.path == "/v1/sets"
        return answer(set_page(told) if is_list else SetAnswer(freshness=freshness(), set=told))

    script = {(name, "GET", path): tell for name in NAMES for path in ("/v1/sets", SET_PATH)}
    return Client(NAMES, transport=FakeControllers(script).transport(), clock=watch.read, pause=watch.pause)


def _waited(until: Until, *answers: object, name: str = "demo/broker-a", timeout_s: float = 30.0) -> SetAnswer:
    watch = Watch()
    with _asking(watch, *answers) as asking:
        return wait_for(asking, name, until, timeout_s, clock=watch.read, pause=watch.pause)


@pytest.mark.parametrize(
    ("status", "serving", "in_sync"),
    [
        (SERVING, "", ""),
        (BEHIND, "", "2 of 3 replicas are in sync: {1,2}; not yet: {3}"),
        (DOWN, "it is no-eligible-replica: 1 gone; 2 gone", "it is no-eligible-replica: 1 gone; 2 gone"),
        (set_status(condition=Condition.ENTERING), "it is entering", "it is entering"),
        (set_status(condition=Condition.CLEANED), "it is cleaned", "it is cleaned"),
        (
            set_status(problems=("MASTER_NOT_SERVING",)),
            "the master on record has stopped itself",
            "the master on record has stopped itself",
        ),
        (
            set_status(in_sync=(1,), problems=("BELOW_MIN_IN_SYNC",)),
            "writes are refused: 1 in sync, min_in_sync 2",
            "writes are refused: 1 in sync, min_in_sync 2",
        ),
    ],
)
def test_what_a_set_lacks_is_said_in_words(status: SetStatus, serving: str, in_sync: str) -> None:
    """Serving is "it takes sends"; in sync is more."""
    assert (missing(status, Until.SERVING), missing(status, Until.IN_SYNC)) == (serving, in_sync)


def test_an_expected_replica_that_never_registered_is_not_in_sync() -> None:
    """All that are known are members, and one has never come: a script would kill the master of a pair."""
    pair = set_status(in_sync=(1, 2))
    pair = replace(pair, replicas=pair.replicas[:2])

    assert missing(pair, Until.IN_SYNC) == "2 of 3 replicas are in sync: {1,2}"


def test_a_failover_is_waited_through() -> None:
    """No answer, no leader, an overloaded one, a set without a master, one that is behind: none of them is the end."""
    got = _waited(Until.IN_SYNC, None, None, None, NOBODY_LEADS, BUSY, NO_SET, DOWN, BEHIND, SERVING)

    assert got.set == SERVING


def test_a_short_name_is_looked_up_once_it_is_there() -> None:
    """Scripts start brokers and wait for their set, which nobody knows yet."""
    empty = set_page()

    assert _waited(Until.SERVING, empty, empty, SERVING, name="broker-a").set == SERVING


@pytest.mark.parametrize(
    ("answers", "expected"),
    [((None,), Unreachable), ((NOBODY_LEADS,), NoLeader), ((problem(403, "FORBIDDEN"),), RefusedError)],
)
def test_the_end_without_an_answer_has_the_reason_of_the_last_question(
    answers: tuple[object, ...], expected: type[Exception]
) -> None:
    """Exit codes 4, 3 and 7: a script tells a fleet that is down from a set that is slow."""
    with pytest.raises(expected):
        _waited(Until.SERVING, *answers, timeout_s=3.0)


def test_a_wait_of_no_seconds_asks_once() -> None:
    """A probe: is it so now?"""
    assert _waited(Until.SERVING, SERVING, timeout_s=0.0).set == SERVING
    with pytest.raises(typer.Exit) as ended:
        _waited(Until.SERVING, DOWN, SERVING, timeout_s=0.0)
    assert ended.value.exit_code == 8


def test_the_wait_is_over_when_its_time_is(capsys: pytest.CaptureFixture[str]) -> None:
    """Not before, and at most one question later."""
    watch = Watch()
    with _asking(watch, BEHIND) as asking, pytest.raises(typer.Exit) as ended:
        wait_for(asking, "demo/broker-a", Until.IN_SYNC, 10.0, clock=watch.read, pause=watch.pause)

    assert ended.value.exit_code == int(CommandExit.TIMED_OUT)
    assert 10.0 - waiting.POLL_S <= watch.now <= 10.0 + waiting.QUESTION_MS_MIN / 1000
    assert capsys.readouterr().err.startswith(
        "TIMED OUT  demo/broker-a is not in-sync after 10 s: 2 of 3 replicas are in sync: {1,2}; not yet: {3}\n"
    )


@pytest.fixture
def rollcall(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str, str]]:
    def run(status: object, *arguments: str) -> tuple[int, str, str]:
        watch = Watch()
        monkeypatch.setattr(context, "make_client", lambda: _asking(watch, status))
        done = CliRunner().invoke(app, ["wait", *arguments])
        return done.exit_code, done.stdout, done.stderr

    return run


def test_the_command_prints_the_set_or_the_reason(rollcall: Callable[..., tuple[int, str, str]]) -> None:
    """0 with the line of ``rollcall sets`` on standard output; 8 with nothing on it."""
    reached = rollcall(SERVING, "broker-a", "--until", "in-sync", "--timeout", "5")
    timed_out = rollcall(DOWN, "broker-a", "--until", "serving", "--timeout", "0")

    assert (reached[0], "demo/broker-a" in reached[1], reached[2]) == (0, True, "")
    assert (timed_out[0], timed_out[1]) == (8, "")
    assert "no-eligible-replica" in timed_out[2]


@pytest.mark.parametrize("arguments", [("broker-a",), ("broker-a", "--until", "whole"), ("--until", "serving")])
def test_wrong_use_is_2(rollcall: Callable[..., tuple[int, str, str]], arguments: tuple[str, ...]) -> None:
    """Without ``--until`` nobody knows what for."""
    assert rollcall(SERVING, *arguments)[0] == 2
