"""Orders by REST on whole controllers: previewed, refused with both values, carried out once."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from rollcall_ha.controller.contract.commands import FEATURE_LEVEL, CleanReplicas, ReportEntered
from rollcall_ha.controller.contract.events import ReplicasCleaned
from rollcall_ha.controller.contract.ids import LogOffset, RequestId, SetKey
from rollcall_ha.controller.contract.replies import Elected
from rollcall_ha.controller.contract.views import ElectionPreview, OrderPreview
from tests.support.runtime_controller import (
    NAMES,
    SET,
    Group,
    broker_id_body,
    heartbeat_body,
    make_set,
    played,
    problem_of,
    recorded,
    until,
)


@pytest.mark.slow
@played(propose_ms=3_000)
async def test_outcome_unknown_names_the_request_id(group: Group) -> None:
    """S51: 504 with the id, so that somebody can find out."""
    leader = await group.elect("c1")
    group.memory.cut_off_leader()
    body = broker_id_body(1)
    answer = await leader.http.post("/v1/broker-ids", json=body, headers={"X-Request-Id": "my-id"})
    # Within the last moments of authority the order is taken; then nobody knows what became of it.
    assert answer.status_code in (503, 504)
    if answer.status_code == 504:
        assert (problem_of(answer).code, problem_of(answer).request_id) == ("OUTCOME_UNKNOWN", "my-id")
    assert answer.headers.get("x-request-id") == "my-id"


@played()
async def test_stale_expectation_is_409_with_both_values(group: Group) -> None:
    """S69: nothing is done, and the document has what was expected, what is, and the remedy."""
    leader = await group.elect("c1")
    await make_set(leader)
    index = leader.service.published.state.sets
    answer = await leader.http.post(f"{SET}/elect", json={"expectedEpoch": 7, "requestId": "r-1"})
    problem = problem_of(answer)
    assert (answer.status_code, problem.code) == (409, "EXPECTATION_FAILED")
    assert (problem.requested, problem.current, problem.request_id) == ("7", "1", "r-1")
    assert problem.hint
    assert next(iter(index.values())).master_epoch == 1


@played()
async def test_dry_run_names_every_replica_and_changes_nothing(group: Group) -> None:
    """S68: the real election that follows on unchanged state elects the same one."""
    leader = await group.elect("c1")
    await make_set(leader, size=3)
    for number in (1, 2, 3):
        await leader.http.post("/v1/heartbeat", json=heartbeat_body(number))
    body = {"to": 2, "dryRun": True}
    preview = msgspec.json.decode((await leader.http.post(f"{SET}/elect", json=body)).content, type=ElectionPreview)
    assert {candidate.broker_id for candidate in preview.verdict.candidates} == {1, 2, 3}
    assert leader.service.published.state.sets[preview_key(leader)].master_epoch == 1
    alive = await leader.http.post(f"{SET}/elect", json={"dryRun": True})
    assert (alive.status_code, problem_of(alive).code) == (409, "MASTER_STILL_EXISTS")
    for ids, code in (([1], "MASTER_NOT_FENCED"), ([77], "UNKNOWN_REPLICA")):
        dry, order = [
            await leader.http.post(f"{SET}/clean", json={"brokerIds": ids, "dryRun": is_dry})
            for is_dry in (True, False)
        ]
        assert (problem_of(dry).code, problem_of(dry).detail) == (code, problem_of(order).detail)
    forced = {"brokerIds": [3], "isUnclean": True, "dryRun": True}
    found = msgspec.json.decode((await leader.http.post(f"{SET}/clean", json=forced)).content, type=OrderPreview)
    assert [type(event) for event in found.events] == [ReplicasCleaned]
    assert len(leader.service.published.state.sets[preview_key(leader)].replicas) == 3
    real = await leader.http.post(f"{SET}/elect", json={"to": 2, "reason": "drill"})
    elected = msgspec.json.decode(real.content, type=Elected)
    assert elected.verdict.winner == preview.verdict.winner == 2
    assert real.headers["x-request-id"]


@played()
async def test_a_pause_is_shown_with_its_set_previewed_and_ended(group: Group) -> None:
    """S68 for pauses: a dry run changes nothing; the pause of the fleet shows in each set."""
    leader = await group.elect("c1")
    await make_set(leader, size=3)
    until = leader.service.ports.wall_ms() + 3_600_000
    body = {"expiresAtMs": until, "reason": "new switch"}
    for path, own, of_fleet in ((SET, "broker-a", False), ("/v1", None, True)):
        dry = await leader.http.post(f"{path}/pause", json=body | {"dryRun": True})
        assert [event["kind"] for event in dry.json()["events"]] == ["elections-paused"]
        assert (await leader.http.get(SET)).json()["set"]["pause"] is None
        assert (await leader.http.post(f"{path}/pause", json=body)).status_code == 200
        told = (await leader.http.get(SET)).json()["set"]
        assert "PAUSED" in told["problems"]
        assert (told["pause"]["reason"], told["pause"]["expiresAtMs"]) == ("new switch", until)
        assert (told["pause"]["setKey"] or {}).get("name") == own
        assert ((await leader.http.get("/v1/status")).json()["pause"] is not None) is of_fleet
        assert "rollcall_election_pauses 1.0" in (await leader.http.get("/metrics")).text
        if of_fleet:
            wrong = await leader.http.post(f"{SET}/resume", json={})
            assert (wrong.status_code, problem_of(wrong).code) == (409, "PAUSED")
        assert (await leader.http.post(f"{path}/resume", json={})).status_code == 200
        assert "PAUSED" not in (await leader.http.get(SET)).json()["set"]["problems"]
    late = await leader.http.post("/v1/pause", json={"expiresAtMs": 5})
    assert (late.status_code, problem_of(late).code) == (422, "INVALID_ARGUMENT")


@pytest.mark.slow
@played(names=NAMES)
async def test_the_lead_is_moved_on_record_and_an_order_that_is_repeated_moves_nothing(group: Group) -> None:
    """S68 for transfers; a lost answer is asked for again of the new leader, under the same request id."""
    leader = await group.elect("c1")
    path, body = "/v1/controllers/transfer", {"to": "c2", "reason": "restart of c1", "requestId": "move-1"}
    dry = await leader.http.post(path, json=body | {"dryRun": True})
    assert dry.status_code == 200, dry.text
    (told,) = dry.json()["events"]
    assert (told["kind"], told["controller"], told["successor"]) == ("leadership-transfer-ordered", "c1", "c2")
    assert leader.service.authority().is_held
    for to, why in (("c1", "leads already"), ("c9", "no controller 'c9'")):
        wrong = await leader.http.post(path, json={"to": to})
        assert (wrong.status_code, problem_of(wrong).code) == (409, "NO_SUCCESSOR")
        assert why in problem_of(wrong).detail
    done = await leader.http.post(path, json=body)
    assert (done.status_code, done.json()["leader"]) == (200, "c2")
    await until(lambda: group["c2"].service.authority().is_held)
    again = await group["c2"].http.post(path, json=body)
    assert again.json() == done.json()
    assert group["c2"].service.authority().is_held
    await recorded(group["c2"])
    events = (await group["c2"].http.get("/v1/events")).json()["events"]
    ordered = [one for one in events if one["event"]["kind"] == "leadership-transfer-ordered"]
    assert [(one["event"]["reason"], one["requestedBy"]) for one in ordered] == [("restart of c1", "admin")]


@pytest.mark.slow
@played(names=NAMES)
async def test_settings_are_previewed_applied_and_taken_back_and_a_slip_is_named(group: Group) -> None:
    """S68 for settings; what is refused names both values, what is unknown the keys that there are."""
    leader = await group.elect("c1")
    before = (await leader.http.get("/v1/settings")).json()
    assert (before["version"], before["history"]) == (0, [])
    body = {"values": {"heartbeat_timeout_ms": 2_000}, "reason": "night", "expectedVersion": 0}
    dry = await leader.http.post("/v1/settings", json=body | {"dryRun": True})
    assert [event["version"] for event in dry.json()["events"]] == [1, 2]
    assert (await leader.http.get("/v1/settings")).json()["version"] == 0
    # A follower's state may be older: it passes the order on.
    done = await group["c2"].http.post("/v1/settings", json=body, headers={"X-Requested-By": "lina"})
    assert done.status_code == 200
    told = (await leader.http.get("/v1/settings")).json()
    assert (told["version"], told["settings"]["heartbeat_timeout_ms"]) == (2, 2_000)
    assert told["file"] == before["settings"]
    assert [(one["version"], one["reason"]) for one in told["history"]][1] == (2, "night")
    assert "lina" in told["history"][1]["appliedBy"]
    assert sum(told["worstCaseRtoMs"].values()) == told["history"][1]["worstCaseRtoMs"]
    late = await leader.http.post("/v1/settings", json=body)
    assert (late.status_code, problem_of(late).code) == (409, "EXPECTATION_FAILED")
    for wrong, words in (
        ({"values": {"heartbeat_timeout_ms": 300}}, "must be at least 2 x heartbeat_interval_ms, which is 500 ms"),
        ({"values": {"heart": 3}}, "key 'heart' is not known; keys are: heartbeat_interval_ms"),
        ({"preset": "slow"}, "presets are: fast, normal, safe"),
        ({"version": 9}, "version 9 of the settings is not kept; kept are: 1 to 2"),
    ):
        refused = await leader.http.post("/v1/settings", json=wrong)
        assert (refused.status_code, words in problem_of(refused).detail) == (422, True), refused.text
    assert (await leader.http.post("/v1/settings", json={"version": 1})).status_code == 200
    back = (await leader.http.get("/v1/settings")).json()
    assert (back["version"], back["settings"]) == (3, before["settings"])
    assert (await leader.http.get("/v1/status")).json()["controller"]["settingsVersion"] == 3


@played()
async def test_a_maintenance_is_refused_for_its_budget_previewed_listed_shown_and_ended(group: Group) -> None:
    """S68 for maintenances; and whoever watches is not alarmed by a replica that is worked on."""
    leader = await group.elect("c1")
    await make_set(leader, size=3)
    of = await enter(leader)
    scope = {"setKey": {"cluster": of.cluster, "name": of.name}, "brokerId": 3}
    until = leader.service.ports.wall_ms() + 3_600_000
    body = {"scope": scope, "expiresAtMs": until, "reason": "new disk"}
    refused = await leader.http.post("/v1/maintenance", json=body | {"dryRun": True})
    problem = problem_of(refused)
    assert (refused.status_code, problem.code, problem.current, problem.requested) == (409, "NO_BUDGET", "1", "0")
    body["spendsLast"] = True
    dry = await leader.http.post("/v1/maintenance", json=body | {"dryRun": True})
    assert [event["kind"] for event in dry.json()["events"]] == ["maintenance-begun"]
    assert (await leader.http.get("/v1/maintenance")).json()["maintenances"] == []
    assert (await leader.http.post("/v1/maintenance", json=body)).status_code == 200
    (listed,) = (await leader.http.get("/v1/maintenance")).json()["maintenances"]
    assert (listed["scope"]["brokerId"], listed["reason"], listed["expiresAtMs"]) == (3, "new disk", until)
    told = (await leader.http.get(SET)).json()["set"]
    assert (told["failureBudget"], told["replicas"][2]["maintenance"]) == (0, listed)
    assert "rollcall_maintenances 1.0" in (await leader.http.get("/metrics")).text
    assert (await leader.http.post("/v1/maintenance/end", json={"scope": scope})).status_code == 200
    assert (await leader.http.get(SET)).json()["set"]["failureBudget"] == 1
    wrong = await leader.http.post("/v1/maintenance", json=body | {"scope": {"host": "nowhere"}})
    assert (wrong.status_code, problem_of(wrong).code) == (404, "UNKNOWN_REPLICA")


async def enter(leader: Any) -> SetKey:
    """The master of the only set enters."""
    key: SetKey = preview_key(leader)
    view = leader.service.view_of(key)
    command = ReportEntered(
        set_key=key,
        broker_id=view.master,
        incarnation=view.master_incarnation,
        master_epoch=view.master_epoch,
        start_offset=LogOffset(0),
        acked_end_max=LogOffset(0),
    )
    await leader.service.submit(command, request_id=RequestId("enter"), requested_by="broker:1")
    return key


def preview_key(leader: Any) -> Any:
    """The key of the only set that this leader knows."""
    return next(iter(leader.service.published.state.sets))


@played()
async def test_request_id_is_never_executed_twice(group: Group) -> None:
    """The second request with the same id gets the first one's answer."""
    leader = await group.elect("c1")
    headers = {"X-Request-Id": "once"}
    first = await leader.http.post("/v1/broker-ids", json=broker_id_body(1), headers=headers)
    events = leader.service.published.state.chain_head
    second = await leader.http.post("/v1/broker-ids", json=broker_id_body(1), headers=headers)
    assert first.content == second.content
    assert leader.service.published.state.chain_head == events


@played(names=NAMES)
async def test_a_new_fleet_begins_at_the_level_of_its_founder_and_no_level_is_raised_past_a_silent_peer(
    group: Group,
) -> None:
    """R15: a controller that is away while the level is raised stops when it comes back."""
    leader = await group.elect("c1")
    assert leader.queries.controller().fleet_level == FEATURE_LEVEL
    above = await leader.http.post("/v1/feature-level", json={"level": FEATURE_LEVEL + 1})
    assert (above.status_code, problem_of(above).code) == (409, "FEATURE_LEVEL")
    group.silence("c2", "c3")
    silent = await leader.http.post("/v1/feature-level", json={})
    silence = "c2 does not answer, c3 does not answer"
    assert problem_of(silent).detail == f"feature level {FEATURE_LEVEL} is not everywhere: {silence}"
    trusted = await leader.http.post("/v1/feature-level", json={"assumeUpgraded": True})
    assert trusted.status_code == 200
    above = await leader.http.post("/v1/feature-level", json={"level": FEATURE_LEVEL + 1, "assumeUpgraded": True})
    assert problem_of(above).detail.endswith(f"c1 has level {FEATURE_LEVEL}")


@played()
async def test_a_command_above_the_fleets_level_is_refused_and_never_proposed(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R15: in the log, it would stop every controller that is not upgraded yet, and two of three are a majority."""
    monkeypatch.setattr("rollcall_ha.controller.contract.levels.COMMANDS_SINCE", {CleanReplicas: FEATURE_LEVEL + 1})
    leader = await group.elect("c1")
    await make_set(leader, size=3)
    proposed: list[str] = []
    real = leader.log.propose

    def propose(payload: str, done: Any) -> None:
        proposed.append(payload)
        real(payload, done)

    monkeypatch.setattr(leader.log, "propose", propose)
    for is_dry in (True, False):
        refused = await leader.http.post(f"{SET}/clean", json={"brokerIds": [3], "dryRun": is_dry})
        assert (refused.status_code, problem_of(refused).code) == (409, "FEATURE_LEVEL")
        assert "raise-level" in problem_of(refused).hint
    assert not any("CleanReplicas" in payload for payload in proposed)
