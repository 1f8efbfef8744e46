"""
The last release and a newer program in one quorum, as during an upgrade: each leads in turn, and nobody diverges (R15).

The newer one is this program with an artificial feature level (`tests/support/two_versions.py`): what it brings is refused
until every controller has it and an operator has raised the level, and from then on the release stops. Where the history
of the repository does not have the release, the test is skipped, and says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.deploy.local.endpoints import Endpoint
from rollcall_ha.deploy.local.fleet import Layout
from rollcall_ha.deploy.local.processes import wait_until
from tests.support.fleet_story import Answer, await_authority, counted, curl, load
from tests.support.runtime_controller import broker_id_body, heartbeat_body, register_body
from tests.support.two_versions import NEWER_LEVEL, RELEASE, RELEASE_LEVEL, TwoVersions, unpack_release

pytestmark = pytest.mark.cluster

DEADLINE_S = 40.0
LEADER_TRIALS = 12


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[TwoVersions]:
    """Three controllers and three brokers of the release; by plain ports the test may speak as a broker, too."""
    try:
        unpack_release(tmp_path / "release")
    except LookupError as error:
        pytest.skip(str(error))
    with TwoVersions.create(tmp_path / "fleet", Layout(is_insecure=True)) as found:
        found.release = tmp_path / "release"
        found.up(deadline_s=DEADLINE_S)
        yield found


def upgrade(fleet: TwoVersions, name: str) -> None:
    """A clean stop, and a start by the newer program on the same directory."""
    fleet.newer |= {name}
    fleet.terminate(name)
    fleet.restart(name)
    fleet.wait_live([name], deadline_s=DEADLINE_S)


# --- asking -------------------------------------------------------------------------------------------------------------


def _post(fleet: TwoVersions, path: str, body: dict[str, Any]) -> Answer:
    """To the leader, whichever it is by now."""
    answers: list[Answer] = []

    def is_answered() -> bool:
        leader = fleet.leader(deadline_s=DEADLINE_S)
        answers[:] = [curl(fleet.rest(leader), path, body=body)]
        return answers[0].status not in (307, 503)

    wait_until(is_answered, deadline_s=DEADLINE_S, what=f"an answer to {path}")
    return answers[0]


def _done(answer: Answer) -> dict[str, Any]:
    assert answer.status == 200, answer.document
    found: dict[str, Any] = answer.document
    return found


def _refusal(answer: Answer) -> str:
    return str(answer.document["code"])


def _drive(fleet: TwoVersions, name: str) -> None:
    """What brokers and operators ask by REST, on a set of its own; refusals of some of it."""
    of_set, key = f"/v1/sets/demo/{name}", {"cluster": "demo", "name": name}
    registered = []
    for number in (1, 2, 3):
        _done(_post(fleet, "/v1/broker-ids", broker_id_body(number, name)))
        registered.append(_done(_post(fleet, "/v1/replicas", register_body(number, name, 3))))
        _done(_post(fleet, "/v1/heartbeat", heartbeat_body(number, name)))
    view = _view(fleet, name)
    master, other = view["master"], next(number for number in (1, 2, 3) if number != view["master"])
    alter = {
        "command": "AlterSyncStateSet", "setKey": key, "brokerId": master, "incarnation": f"{master:032x}",
        "masterEpoch": view["masterEpoch"], "seq": 1, "syncStateSetEpoch": view["syncStateSetEpoch"],
        "newSet": sorted({master, other}),
    }  # fmt: skip
    assert _done(_post(fleet, "/v1/sync-state-set", alter))["verdict"]["isAccepted"]
    assert _done(_post(fleet, "/v1/sync-state-set", alter))["verdict"]["isAccepted"], "the retry hears the verdict"
    assert _refusal(_post(fleet, "/v1/sync-state-set", {**alter, "newSet": [master]})) == "SEQUENCE_REUSED"
    assert _refusal(_post(fleet, f"{of_set}/elect", {})) == "MASTER_STILL_EXISTS"
    assert _refusal(_post(fleet, f"{of_set}/bootstrap", {"master": master})) == "NOT_BOOTSTRAPPABLE"
    _beat(fleet, name)
    _done(_post(fleet, f"{of_set}/elect", {"to": other, "reason": "drill"}))
    _beat(fleet, name)
    unclean = {"to": master, "acceptedLossBytes": 1_000_000}
    _post(fleet, f"{of_set}/elect-unclean", unclean)
    goodbye = {
        "command": "SayGoodbye", "setKey": key, "brokerId": other, "incarnation": f"{other:032x}",
        "sessionOrdinal": 1, "cleanMark": {"nonce": "n", "endOffset": 100},
    }  # fmt: skip
    _done(_post(fleet, "/v1/goodbye", goodbye))
    again = {**register_body(other, name, 3), "incarnation": f"{other + 16:032x}"}
    again["previousIncarnations"] = [f"{other:032x}"]
    again["replaces"] = {"incarnation": f"{other:032x}", "sessionOrdinal": 1}
    _done(_post(fleet, "/v1/replicas", again))
    assert _refusal(_post(fleet, f"{of_set}/clean", {"brokerIds": [77]})) == "UNKNOWN_REPLICA"
    _done(_post(fleet, f"{of_set}/clean", {"brokerIds": [3], "isUnclean": True}))
    _done(_post(fleet, f"{of_set}/clean", {"isUnclean": True}))
    assert _post(fleet, f"{of_set}/clean", {}).status != 200, "it was cleaned"
    assert _post(fleet, "/v1/sync-state-set", {**alter, "seq": 2}).status != 200, "it was cleaned"


def _beat(fleet: TwoVersions, name: str) -> None:
    for number in (1, 2, 3):
        _done(_post(fleet, "/v1/heartbeat", heartbeat_body(number, name)))


def _view(fleet: TwoVersions, name: str) -> dict[str, Any]:
    found: list[dict[str, Any]] = []

    def has_master() -> bool:
        leader = fleet.leader(deadline_s=DEADLINE_S)
        answer = curl(fleet.rest(leader), f"/v1/sets/demo/{name}")
        if answer.status != 200:
            return False
        found[:] = [answer.document["set"]["view"]]
        return found[0]["master"] is not None

    wait_until(has_master, deadline_s=DEADLINE_S, what=f"{name} to have a master")
    return found[0]


IMPORT = {
    "replicas": [{"brokerId": 1, "address": "127.0.0.1:4001"}], "nextId": 2, "master": 1, "masterEpoch": 7,
    "syncStateSet": [1], "syncStateSetEpoch": 12,
}  # fmt: skip

NEWCOMER = {"name": "c9", "raft": "127.0.0.1:9", "broker": "127.0.0.1:10", "rest": "127.0.0.1:11"}


# --- comparing ----------------------------------------------------------------------------------------------------------


def _agree(fleet: TwoVersions) -> int:
    """
    Wait until every controller has applied the same entries, and compare what each has made of them; the index.

    Compared: the head of the chain of events, which covers every event before it byte for byte, and the view of every
    set.
    """
    told: dict[str, tuple[tuple[int, ...], str, str]] = {}

    def is_even() -> bool:
        told.update({name: _told(fleet.rest(name)) for name in fleet.controllers})
        # An event is shown when its journal is synced, which is later than its entry is applied.
        return len({places for places, _, _ in told.values()}) == 1

    wait_until(is_even, deadline_s=DEADLINE_S, what="all controllers to have applied the same entries")
    assert len({chain for _, chain, _ in told.values()}) == 1, f"the chains of events differ: {told}"
    assert len({views for _, _, views in told.values()}) == 1, f"the states differ: {told}"
    return next(iter(told.values()))[0][0]


def _told(endpoint: Endpoint) -> tuple[tuple[int, ...], str, str]:
    """The applied index with the place of the newest event, the chain's head there, and the views at that index."""
    status = curl(endpoint, "/v1/status?consistency=local&limit=500").document
    views = [one["view"] for one in status["sets"]]
    events = _all_events(endpoint)
    last = events[-1]
    places = (int(status["freshness"]["index"]), last["term"], last["index"], last["ordinal"])
    return places, str(last["chain"]), json.dumps(views, sort_keys=True)


def _all_events(endpoint: Endpoint) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    mark = ""
    while True:
        page = curl(endpoint, f"/v1/events?limit=500{mark}").document
        found += page["events"]
        following = page["nextFrom"]
        if not page["events"] or following is None:
            return found
        mark = f"&from={following['term']}.{following['index']}.{following['ordinal']}"


def _digest(endpoint: Endpoint) -> str:
    """The digest of the state; every controller has applied the same entries."""
    controller = curl(endpoint, "/v1/status?consistency=local&limit=1").document["controller"]
    assert controller["differing"] == []
    return str(controller["stateDigest"])


def _let_lead(fleet: TwoVersions, *, newer: bool) -> str:
    """Let a controller of that program lead: one of the other program hangs until it is not the leader any more."""
    for _ in range(LEADER_TRIALS):
        leader = fleet.leader(deadline_s=DEADLINE_S)
        if (leader in fleet.newer) is newer:
            return leader
        fleet.stop(leader)
        await_authority(fleet, tuple(name for name in fleet.controllers if name != leader))
        fleet.cont(leader)
        fleet.wait_ready([leader], deadline_s=DEADLINE_S)
    raise AssertionError(f"no controller of the {'newer' if newer else 'older'} program led in {LEADER_TRIALS} trials")


# --- the upgrade --------------------------------------------------------------------------------------------------------


def test_two_versions_share_a_quorum_and_the_level_is_raised_when_all_are_upgraded(fleet: TwoVersions) -> None:
    """Both lead and take every order; what the newer one brought is refused until it is raised, and then the older stops."""
    key = fleet.set_key()
    with load(fleet) as work:
        upgrade(fleet, "c3")
        _let_lead(fleet, newer=False)
        _drive(fleet, "older-leads")
        compared = [_agree(fleet)]
        upgrade(fleet, "c2")
        _let_lead(fleet, newer=True)
        _drive(fleet, "newer-leads")
        assert _refusal(_post(fleet, "/v1/sets/demo/moving/import", IMPORT)) == "FEATURE_LEVEL"
        raising = _post(fleet, "/v1/feature-level", {})
        assert _refusal(raising) == "FEATURE_LEVEL"
        assert f"c1 has level {RELEASE_LEVEL}" in raising.document["detail"]
        compared.append(_agree(fleet))
        assert fleet.pid("c1") is not None, f"the older one stopped:\n{fleet.processes.tail('c1')}"
        upgrade(fleet, "c1")
        assert _refusal(_post(fleet, "/v1/sets/demo/moving/import", IMPORT)) == "FEATURE_LEVEL"
        # The leader asks c1 over their Raft link, which comes a moment after c1's own ports.
        raises = {"reason": "all upgraded"}
        wait_until(
            lambda: _post(fleet, "/v1/feature-level", raises).status == 200,
            deadline_s=DEADLINE_S,
            what="the leader to hear that every controller is upgraded",
        )
        _done(_post(fleet, "/v1/sets/demo/moving/import", IMPORT))
        _drive(fleet, "all-upgraded")
        fleet.kill(fleet.broker_by_id(key, fleet.wait_redundant(key).view.master or BrokerId(0)))
        work.wait_more()
        compared.append(_agree(fleet))
    levels = {
        reached.status.controller.fleet_level for reached in fleet.client().survey() if reached.status is not None
    }
    kinds = {event["event"]["kind"] for event in _all_events(fleet.rest("c1"))}
    digests = {_digest(fleet.rest(name)) for name in fleet.controllers}
    counted(release=RELEASE, compared_at=compared, kinds=sorted(kinds), digests=sorted(digests))
    assert len(digests) == 1, "the controllers have made different states of the same entries"
    assert digests != {""}
    assert levels == {NEWER_LEVEL}
    assert kinds >= {
        "fleet-initialised", "leadership-taken", "broker-id-granted", "replica-registered", "replica-silent",
        "goodbye-said", "master-elected", "sync-state-set-altered", "command-refused", "master-entered", "loss-graded",
        "milestone-reached", "replicas-cleaned", "feature-level-raised", "set-imported",
    }  # fmt: skip
    _refuse_to_go_back(fleet, "c1")


def _refuse_to_go_back(fleet: TwoVersions, name: str) -> None:
    """There is no way back: the older program stops before it applies anything of the newer level."""
    fleet.terminate(name)
    fleet.newer -= {name}
    fleet.start(name)
    wait_until(lambda: fleet.pid(name) is None, deadline_s=DEADLINE_S, what="the older program to stop")
    assert f"feature level {NEWER_LEVEL}" in fleet.processes.tail(name)
