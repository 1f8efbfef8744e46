"""Three controllers as processes: who answers, how fast, and what survives kill -9."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import wait_until
from tests.support.fleet_certs import as_broker
from tests.support.runtime_controller import broker_id_body, heartbeat_body, register_body

pytestmark = pytest.mark.cluster

DEADLINE_S = 15.0


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    with Fleet.create(tmp_path / "fleet", Layout(sets={})) as found:
        found.up_controllers()
        yield found
        for name in found.controllers:
            found.terminate(name)
            assert found.pid(name) is None


def _ask(
    fleet: Fleet, name: str, method: str, path: str, json: dict[str, Any] | None = None, *, broker: int | None = None
) -> httpx.Response:
    """As the fleet's admin, or as broker ``broker-a-N``."""
    endpoint = fleet.rest(name) if broker is None else as_broker(fleet, name, broker)
    return httpx.request(method, endpoint.url(path), json=json, timeout=5, verify=endpoint.context or False)


def _make_set(fleet: Fleet, leader: str, size: int) -> None:
    for number in range(1, size + 1):
        for path, body in (
            ("/v1/broker-ids", broker_id_body(number)),
            ("/v1/replicas", register_body(number, expected=size)),
        ):
            answer = _ask(fleet, leader, "POST", path, json=body, broker=number)
            assert answer.status_code == 200, answer.text


def _beat(fleet: Fleet, leader: str, *numbers: int) -> bool:
    """Whether every heartbeat was counted."""
    answers = [
        _ask(fleet, leader, "POST", "/v1/heartbeat", json=heartbeat_body(number), broker=number) for number in numbers
    ]
    return all(answer.status_code == 200 for answer in answers)


def _journal(fleet: Fleet, name: str) -> str:
    return "".join(path.read_text() for path in sorted((fleet.data(name) / "events").glob("events-*.jsonl")))


def _set(fleet: Fleet, leader: str) -> dict[str, Any]:
    answer = _ask(fleet, leader, "GET", "/v1/sets/demo/broker-a")
    found: dict[str, Any] = answer.json()["set"]
    return found


def test_a_follower_gives_the_status_of_every_controller_in_one_answer(fleet: Fleet) -> None:
    leader = fleet.leader()
    for follower in set(fleet.controllers) - {leader}:
        # A leader leads before the last follower has heard of it: until then that one answers 503.
        wait_until(
            lambda name=follower: "x-rollcall-leader" in _ask(fleet, name, "GET", "/v1/status").headers,  # type: ignore[misc]
            deadline_s=DEADLINE_S,
            what=f"{follower} to know its leader",
        )
        everybody = _ask(fleet, follower, "GET", "/v1/controllers").json()["controllers"]
        assert {one["name"]: one["leader"] for one in everybody} == dict.fromkeys(fleet.controllers, leader)


def test_stale_epoch_is_refused_with_both_values(fleet: Fleet) -> None:
    """409; nothing is done (S69)."""
    leader = fleet.leader()
    _make_set(fleet, leader, 1)
    wait_until(
        lambda: _beat(fleet, leader, 1) and _set(fleet, leader)["view"]["master"] is not None,
        deadline_s=DEADLINE_S,
        what="the first election",
    )
    answer = _ask(fleet, leader, "POST", "/v1/sets/demo/broker-a/elect", json={"expectedEpoch": 9})
    problem = answer.json()

    assert (answer.status_code, problem["code"]) == (409, "EXPECTATION_FAILED")
    assert (problem["requested"], problem["current"]) == ("9", "1")


def test_lost_quorum_is_503_within_a_second_and_local_reads_answer(fleet: Fleet) -> None:
    """S52: no hang at any moment after the loss, for reads and orders; readiness says why (S60)."""
    leader = fleet.leader()
    for follower in set(fleet.controllers) - {leader}:
        fleet.kill(follower)
        assert fleet.pid(follower) is None
    deadline = time.monotonic() + 3
    statuses = []
    while time.monotonic() < deadline:
        began = time.monotonic()
        answer = _ask(fleet, leader, "GET", "/v1/sets")
        assert time.monotonic() - began < 1.0
        statuses.append(answer.status_code)
    assert statuses[-1] == 503
    assert answer.headers["retry-after"]
    local = _ask(fleet, leader, "GET", "/v1/status?consistency=local").json()
    assert local["freshness"]["isStale"]
    assert _ask(fleet, leader, "GET", "/livez").status_code == 200
    assert _ask(fleet, leader, "GET", "/readyz").status_code == 503


def test_next_leader_has_authority_and_the_record_goes_on(fleet: Fleet) -> None:
    """Kill -9 of the leader: another one answers, with everything that was acknowledged, and its own event."""
    first = fleet.leader()
    _make_set(fleet, first, 2)
    fleet.kill(first)
    assert fleet.pid(first) is None
    second = fleet.leader()
    assert second != first
    assert len(_set(fleet, second)["view"]["members"]) == 2
    fleet.restart(first)
    fleet.wait_ready([first])

    def journals_agree() -> bool:
        texts = [_journal(fleet, name) for name in fleet.controllers]
        return len(set(texts)) == 1 and '"brokerId":2' in texts[0]

    wait_until(journals_agree, deadline_s=DEADLINE_S, what="all journals to hold the same events")
    events = [json.loads(line) for line in _journal(fleet, first).splitlines()]
    leaders = [event["event"]["controller"] for event in events if event["event"]["kind"] == "leadership-taken"]
    assert leaders[0] == first
    assert second in leaders
    marks = [(event["index"], event["ordinal"]) for event in events]
    assert marks == sorted(set(marks))


def test_port_in_use_names_who_has_it(fleet: Fleet) -> None:
    """A second process with the same name does not start, and says why."""
    name = fleet.controllers[0]
    second = fleet.processes.start(
        f"{name}-again",
        [*_argv(fleet), "--config", str(fleet.directory / "rollcall.toml"), "--name", name],
        ports=[],
    )
    wait_until(lambda: fleet.pid(f"{name}-again") is None, deadline_s=DEADLINE_S, what=f"pid {second} to end")

    assert fleet.pid(f"{name}-again") is None
    assert "in use by another process" in fleet.processes.tail(f"{name}-again")


def _argv(fleet: Fleet) -> list[str]:
    import sys

    assert fleet.controllers
    return [sys.executable, "-m", "rollcall_ha.api.server"]
