"""The REST interface of whole controllers on a memory log."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from rollcall_ha.api.rest import forwarding, streaming
from rollcall_ha.api.rest.relay import Answered, Asked, PeerDoor, decode_answered, encode
from rollcall_ha.controller.contract.commands import FEATURE_LEVEL, CleanReplicas, ReportEntered
from rollcall_ha.controller.contract.events import EventRecord, ReplicasCleaned, is_asked_by
from rollcall_ha.controller.contract.ids import ControllerName, LogOffset, RequestId, SetKey
from rollcall_ha.controller.contract.replies import Elected
from rollcall_ha.controller.contract.values import EventRef
from rollcall_ha.controller.contract.views import (
    ElectionPreview,
    EventPage,
    Explanation,
    FleetStatus,
    HistoryPage,
    OrderPreview,
    Problem,
    SetAnswer,
    SetPage,
)
from rollcall_ha.controller.replication.ports import CALL_BYTES_MAX
from rollcall_ha.controller.runtime import service
from rollcall_ha.controller.runtime.event_journal import Page
from rollcall_ha.controller.runtime.ports import NoAuthority
from tests.support.runtime_controller import (
    DEADLINE_S,
    NAMES,
    Group,
    broker_id_body,
    heartbeat_body,
    listen,
    make_set,
    play,
    played,
    recorded,
    register_body,
    until,
)

SET = "/v1/sets/demo/broker-a"


def _problem(answer: Any) -> Problem:
    assert answer.headers["content-type"] == "application/problem+json"
    return msgspec.json.decode(answer.content, type=Problem)


def _silence(group: Group, *names: str) -> None:
    """Members to which no link is up."""
    for name in names:
        group[name].log.answerer = None


@pytest.mark.parametrize(
    ("target", "sent", "is_whole", "status"),
    [("/x?y=1", b"answer", True, 200), ("/x", b"ans", False, 500), ("/x", b"a" * CALL_BYTES_MAX, True, 500)],
)
def test_another_controller_gets_a_whole_answer_or_a_failure(
    target: str, sent: bytes, is_whole: bool, status: int
) -> None:
    """Half an answer would be taken for a whole one, and one above the limit of a call would never leave."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert (scope["path"], (await receive())["body"], scope["client"]) == ("/x", b"body", ("c2", 0))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": sent, "more_body": not is_whole})
        if not is_whole:
            raise RuntimeError("a fault of ours")

    async def ask(request: bytes) -> Answered:
        return decode_answered(await PeerDoor(app).answer(ControllerName("c2"), request))

    asked = Asked(method="GET", target=target, headers=(), content=b"body")
    answered = asyncio.run(ask(encode(asked)))
    assert (answered.status, answered.content) == (status, sent if status == 200 else b"")
    assert asyncio.run(ask(b"no request")).status == 400


@played(names=NAMES)
async def test_a_follower_passes_requests_on_to_the_leader(group: Group) -> None:
    """A caller that reaches one controller only can read and order; the answer is the leader's, and names it."""
    leader = await group.elect("c1")
    await make_set(leader)
    status = await group["c2"].http.get("/v1/status?limit=7")
    assert (status.status_code, status.headers["x-rollcall-leader"]) == (200, "c1")
    assert msgspec.json.decode(status.content, type=FleetStatus).controller.name == "c1"
    order = {"reason": "x", "expectedEpoch": 9}
    refusals = [await group[name].http.post(f"{SET}/elect", json=order) for name in ("c1", "c2")]
    assert [answer.status_code for answer in refusals] == [409, 409]
    assert [_problem(answer).code for answer in refusals] == ["EXPECTATION_FAILED"] * 2
    done = await group["c3"].http.post(
        "/v1/feature-level", json={}, headers={"X-Request-Id": "5" * 32, "X-Requested-By": "lina"}
    )
    assert (done.status_code, done.headers["x-request-id"]) == (200, "5" * 32)
    missing = await group["c2"].http.get("/v1/sets/demo/x%2Dy")
    assert (missing.status_code, _problem(missing).detail) == (404, "set demo/x-y does not exist")


@played(names=NAMES)
async def test_two_controllers_that_take_each_other_for_the_leader_end_after_one_hop(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """503, not a request that goes to and fro until a second is over."""
    leader = await group.elect("c1")
    elsewhere = NoAuthority(replace(leader.service.authority(), leader=ControllerName("c2")))

    def refuse() -> None:
        raise elsewhere

    monkeypatch.setattr(leader.service, "require_authority", refuse)
    answer = await group["c2"].http.post(f"{SET}/elect", json={})
    assert (answer.status_code, _problem(answer).code) == (503, "NO_LEADER")


@pytest.mark.parametrize(("method", "status", "code"), [("GET", 503, "NO_ANSWER"), ("POST", 504, "OUTCOME_UNKNOWN")])
@played(names=NAMES)
async def test_an_answer_of_the_leader_that_is_lost(group: Group, method: str, status: int, code: str) -> None:
    """An order may have been executed: 503 would say that it was not."""
    leader = await group.elect("c1")
    leader.log.answer_calls(lambda _caller, _request, _reply: None)
    content = b"{}" if method == "POST" else b""
    answer = await group["c2"].http.request(
        method, f"{SET}{'/elect' if content else ''}", content=content, headers={"Content-Type": "application/json"}
    )
    problem = _problem(answer)
    assert (answer.status_code, problem.code) == (status, code)
    assert (problem.request_id is not None) == (method == "POST")


def test_a_follower_without_a_link_names_the_leader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """307 with Location at the leader, path and query kept, and nothing is waited for, by reads and orders alike."""
    monkeypatch.setattr(forwarding, "FORWARD_MS_MAX", 3_600_000)

    async def scenario(group: Group) -> None:
        await group.elect("c1")
        _silence(group, "c1")
        async with asyncio.timeout(DEADLINE_S):
            read = await group["c2"].http.get("/v1/sets?limit=7")
            order = await group["c2"].http.post(f"{SET}/elect", json={"reason": "x"})
        assert (read.status_code, order.status_code) == (307, 307)
        assert read.headers["location"] == "http://127.0.0.1:3000/v1/sets?limit=7"
        assert order.headers["location"] == f"http://127.0.0.1:3000{SET}/elect"
        assert _problem(order).leader == "http://127.0.0.1:3000"

    play(tmp_path, scenario, names=NAMES)


@pytest.mark.slow
def test_lost_quorum_is_503_within_a_second(tmp_path: Path) -> None:
    """S52: never a hang; local reads still answer, marked stale."""
    assert service.READ_WAIT_MS_MAX < 1_000

    async def scenario(group: Group) -> None:
        leader = await group.elect("c1")
        group.memory.cut_off_leader()
        for _ in range(2):
            async with asyncio.timeout(DEADLINE_S):
                read = await leader.http.get("/v1/sets")
            assert (read.status_code, read.headers["retry-after"]) == (503, "1")
            assert _problem(read).code == "NO_LEADER"
        # At once: an order that was proposed would be answered after ``PROPOSE_MS``, with an unknown outcome.
        order = await leader.http.post(f"{SET}/elect", json={})
        assert order.status_code == 503
        local = msgspec.json.decode((await leader.http.get("/v1/status?consistency=local")).content, type=FleetStatus)
        assert (local.freshness.is_stale, local.controller.has_authority) == (True, False)

    play(tmp_path, scenario)


@pytest.mark.slow
@played()
async def test_outcome_unknown_names_the_request_id(group: Group) -> None:
    """S51: 504 with the id, so that somebody can find out."""
    leader = await group.elect("c1")
    group.memory.cut_off_leader()
    body = broker_id_body(1)
    answer = await leader.http.post("/v1/broker-ids", json=body, headers={"X-Request-Id": "my-id"})
    # Within the last moments of authority the order is taken; then nobody knows what became of it.
    assert answer.status_code in (503, 504)
    if answer.status_code == 504:
        assert (_problem(answer).code, _problem(answer).request_id) == ("OUTCOME_UNKNOWN", "my-id")
    assert answer.headers.get("x-request-id") == "my-id"


@played(names=NAMES)
async def test_set_comes_to_life_and_is_explained(group: Group) -> None:
    """Register, first election, status, history, explanation and events agree; the record is on disk."""
    leader = await group.elect("c1")
    await make_set(leader)
    answer = msgspec.json.decode((await leader.http.get(SET)).content, type=SetAnswer)
    assert (answer.set.view.sync_state_set, answer.set.view.master_epoch) == ((1, 2), 1)
    assert answer.set.problems[0] == "ENTERING"
    assert answer.freshness.is_authoritative
    await recorded(leader)
    history = msgspec.json.decode((await leader.http.get(f"{SET}/history")).content, type=HistoryPage)
    assert [(row.master_epoch, row.kind) for row in history.rows] == [(1, "first")]
    explanation = msgspec.json.decode((await leader.http.get(f"{SET}/epochs/1")).content, type=Explanation)
    assert explanation.election.ref == history.rows[0].event
    missing = await leader.http.get(f"{SET}/epochs/9")
    assert missing.status_code == 404
    await until(lambda: group["c3"].journal.synced_index == leader.service.published.index)
    events = msgspec.json.decode((await group["c3"].http.get("/v1/events")).content, type=EventPage)
    assert explanation.election in events.events


@played()
async def test_stale_expectation_is_409_with_both_values(group: Group) -> None:
    """S69: nothing is done, and the document has what was expected, what is, and the remedy."""
    leader = await group.elect("c1")
    await make_set(leader)
    index = leader.service.published.state.sets
    answer = await leader.http.post(f"{SET}/elect", json={"expectedEpoch": 7, "requestId": "r-1"})
    problem = _problem(answer)
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
    assert (alive.status_code, _problem(alive).code) == (409, "MASTER_STILL_EXISTS")
    for ids, code in (([1], "MASTER_NOT_FENCED"), ([77], "UNKNOWN_REPLICA")):
        dry, order = [
            await leader.http.post(f"{SET}/clean", json={"brokerIds": ids, "dryRun": is_dry})
            for is_dry in (True, False)
        ]
        assert (_problem(dry).code, _problem(dry).detail) == (code, _problem(order).detail)
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
            assert (wrong.status_code, _problem(wrong).code) == (409, "PAUSED")
        assert (await leader.http.post(f"{path}/resume", json={})).status_code == 200
        assert "PAUSED" not in (await leader.http.get(SET)).json()["set"]["problems"]
    late = await leader.http.post("/v1/pause", json={"expiresAtMs": 5})
    assert (late.status_code, _problem(late).code) == (422, "INVALID_ARGUMENT")


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
        assert (wrong.status_code, _problem(wrong).code) == (409, "NO_SUCCESSOR")
        assert why in _problem(wrong).detail
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
    assert (late.status_code, _problem(late).code) == (409, "EXPECTATION_FAILED")
    for wrong, words in (
        ({"values": {"heartbeat_timeout_ms": 300}}, "must be at least 2 x heartbeat_interval_ms, which is 500 ms"),
        ({"values": {"heart": 3}}, "key 'heart' is not known; keys are: heartbeat_interval_ms"),
        ({"preset": "slow"}, "presets are: fast, normal, safe"),
        ({"version": 9}, "version 9 of the settings is not kept; kept are: 1 to 2"),
    ):
        refused = await leader.http.post("/v1/settings", json=wrong)
        assert (refused.status_code, words in _problem(refused).detail) == (422, True), refused.text
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
    problem = _problem(refused)
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
    assert (wrong.status_code, _problem(wrong).code) == (404, "UNKNOWN_REPLICA")


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
    """The only set."""
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


@played()
async def test_bad_requests_are_problems_that_name_the_fault(group: Group) -> None:
    """Misspelt members, wrong types, no JSON, too much: 4xx with what was wrong, never a 500."""
    leader = await group.elect("c1")
    cases: list[tuple[str, bytes, int, str]] = [
        (f"{SET}/elect", b'{"expectepoch": 1}', 422, "expectepoch"),
        (f"{SET}/elect", b"not json", 400, "not JSON"),
        (f"{SET}/elect", b'{"reason": "\xff"}', 400, "JSON"),
        (f"{SET}/elect", b'{"requestId": ""}', 422, "requestId"),
        (f"{SET}/elect", b'{"reason": "' + b"x" * 70_000 + b'"}', 413, "65536"),
        ("/v1/heartbeat", b"{}", 422, "setKey"),
        ("/v1/replicas", msgspec.json.encode(register_body(1)), 404, "NEED_TO_BE_REGISTERED"),
    ]
    for path, content, status, words in cases:
        answer = await leader.http.post(path, content=content, headers={"Content-Type": "application/json"})
        assert (path, status) == (path, answer.status_code), answer.text
        assert words in answer.text
    for path in ("/v1/sets?limit=0", "/v1/sets?limit=501", "/v1/events?from=1.2", "/v1/sets?consistency=maybe"):
        answer = await leader.http.get(path)
        assert (path, answer.status_code, _problem(answer).code) == (path, 422, "BAD_REQUEST")
    assert _problem(await leader.http.get("/v1/nothing")).status == 404
    assert _problem(await leader.http.delete("/v1/sets")).status == 405


@played()
async def test_sets_come_in_pages_that_join_without_gap(group: Group) -> None:
    """``nextAfter`` leads to the next page; the last one has none."""
    leader = await group.elect("c1")
    names = [f"set-{number}" for number in range(7)]
    for name in names:
        await leader.http.post("/v1/broker-ids", json=broker_id_body(1, name))
    found: list[str] = []
    after = ""
    while True:
        answer = await leader.http.get(f"/v1/sets?limit=3{after}")
        page = msgspec.json.decode(answer.content, type=SetPage)
        assert page.sets_total == 7
        found += [status.view.set_key.name for status in page.sets]
        if page.next_after is None:
            break
        after = f"&after={page.next_after}"
    assert found == names
    assert (await leader.http.get("/v1/sets?after=nonsense")).status_code == 404


def test_the_record_of_one_caller_was_read_whole_by_its_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages hold the orders of that caller only, and go on where a bounded search has stopped."""
    monkeypatch.setattr("rollcall_ha.controller.runtime.queries.SEARCH_PAGES_MAX", 1)
    monkeypatch.setattr("rollcall_ha.controller.runtime.queries.PAGE_EVENTS_MAX", 2)

    async def scenario(group: Group) -> None:
        leader = await group.elect("c1")
        for number, name in enumerate(("alice", "bob", "bob", "bob", "alice", "bob")):
            told = {"X-Requested-By": f"admin:{name}"}
            await leader.http.post("/v1/broker-ids", json=broker_id_body(number + 1), headers=told)
        await until(lambda: leader.journal.synced_index == leader.service.published.index)

        async def walked(query: str) -> list[tuple[EventRecord, ...]]:
            pages: list[tuple[EventRecord, ...]] = []
            mark = "0.0.0"
            while True:
                answer = await leader.http.get(f"/v1/events?limit=2&from={mark}{query}")
                assert answer.status_code == 200, answer.text
                page = msgspec.json.decode(answer.content, type=EventPage)
                if page.next_from is None:
                    return pages
                pages.append(page.events)
                mark = f"{page.next_from.term}.{page.next_from.index}.{page.next_from.ordinal}"

        whole = [record for page in await walked("") for record in page]
        counts = {}
        for name in ("alice", "admin:bob", "mallory"):
            pages = await walked(f"&by={name}")
            found = [record for page in pages for record in page]
            assert found == [record for record in whole if is_asked_by(record, name)]
            assert len(pages) >= len(whole) // 2, "a search of two events at a time"
            counts[name] = len(found)
        assert counts == {"alice": 2, "admin:bob": 4, "mallory": 0}
        assert (await leader.http.get("/v1/events?by=alice&newest=true")).status_code == 422

    play(tmp_path, scenario)


@played()
async def test_events_are_held_until_something_happens(group: Group) -> None:
    """Long-poll: the answer comes with the event, long before the wait is over."""
    leader = await group.elect("c1")
    await recorded(leader)
    page = msgspec.json.decode((await leader.http.get("/v1/events")).content, type=EventPage)
    newest = (await leader.http.get("/v1/events?newest=true&limit=2")).content
    assert msgspec.json.decode(newest, type=EventPage).events == page.events[-2:]
    assert (await leader.http.get("/v1/events?newest=true&from=1.1.0")).status_code == 422
    assert page.next_from is not None
    mark = f"{page.next_from.term}.{page.next_from.index}.{page.next_from.ordinal}"
    empty = await leader.http.get(f"/v1/events?from={mark}")
    assert msgspec.json.decode(empty.content, type=EventPage).events == ()
    began = time.monotonic()
    waiting = asyncio.create_task(leader.http.get(f"/v1/events?from={mark}&waitMs=30000"))
    await asyncio.sleep(0)
    await leader.http.post("/v1/broker-ids", json=broker_id_body(1))
    following = msgspec.json.decode((await waiting).content, type=EventPage)
    assert len(following.events) == 1
    assert time.monotonic() - began < 20


def test_an_event_between_the_reading_and_the_wait_wakes_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Synced while the empty page is still on its way: the answer comes at once, not when the wait is over."""
    has_read, may_answer = threading.Event(), threading.Event()

    async def scenario(group: Group) -> None:
        leader = await group.elect("c1")
        await recorded(leader)
        last, read = leader.journal.last, leader.journal.read
        assert last is not None
        start = EventRef(term=last.term, index=last.index, ordinal=last.ordinal + 1)

        def slow_read(*args: Any, **options: Any) -> Page:
            page = read(*args, **options)
            has_read.set()
            assert may_answer.wait(10)
            return page

        monkeypatch.setattr(leader.journal, "read", slow_read)
        began = time.monotonic()
        waiting = asyncio.create_task(leader.queries.events(start, limit=10, wait_ms=20_000))
        await until(has_read.is_set)
        synced = leader.service.next_events_synced
        await leader.http.post("/v1/broker-ids", json=broker_id_body(1))
        await synced.wait()
        may_answer.set()
        assert len((await waiting).events) == 1
        assert time.monotonic() - began < 10

    play(tmp_path, scenario)


@played()
async def test_event_stream_resumes_where_it_ended(group: Group) -> None:
    """Server-sent events carry the mark to go on from as their id; a mark that cannot be read is none."""
    leader = await group.elect("c1")
    await make_set(leader)
    await recorded(leader)
    total = len(leader.journal.read(None, limit=500).records)

    chunks = await listen(leader.app, {}, total)
    data, first_id, *end = chunks[0].decode().split("\n")
    assert end == ["", ""]
    assert msgspec.json.decode(data.removeprefix("data: "), type=EventRecord).event
    again = await listen(leader.app, {"Last-Event-ID": first_id.removeprefix("id: ")}, total - 1)
    assert again == chunks[1:]
    assert await listen(leader.app, {"Last-Event-ID": "here"}, 1) == chunks[:1]


@played()
async def test_a_listener_that_hangs_up_behind_its_backlog_is_no_fault(group: Group) -> None:
    """It stops reading with events still to come and closes its link: the stream ends, and nothing is raised."""
    leader = await group.elect("c1")
    await make_set(leader)
    await recorded(leader)
    assert len(await listen(leader.app, {}, 1, stops_reading=True)) == 1


def test_event_stream_says_that_nothing_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment while nothing happens: without it nobody notices that the listener has gone."""
    monkeypatch.setattr(streaming, "HEARTBEAT_MS", 5)

    async def scenario(group: Group) -> None:
        leader = await group.elect("c1")
        await recorded(leader)
        total = len(leader.journal.read(None, limit=500).records)

        chunks = await listen(leader.app, {}, total + 1)
        assert chunks[-1] == b": nothing new\n\n"

    play(tmp_path, scenario)


@played(names=NAMES)
async def test_health_tells_alive_from_ready(group: Group) -> None:
    """S60: without a leader alive but not ready, with the reason; a follower that hears a leader is ready."""
    assert (await group["c2"].http.get("/livez")).status_code == 200
    unready = await group["c2"].http.get("/readyz")
    assert (unready.status_code, _problem(unready).code) == (503, "NOT_READY")
    await group.elect("c1")
    for name in ("c1", "c2"):
        assert (await group[name].http.get("/readyz")).status_code == 200


@played(names=NAMES)
async def test_a_load_balancer_finds_the_controller_that_leads(group: Group) -> None:
    """One of three says 200 to GET and HEAD, and none without a leader."""
    before = [(await group[name].http.head("/leader")).status_code for name in NAMES]
    assert before == [503, 503, 503]
    await group.elect("c1")
    answers = [await group[name].http.get("/leader") for name in NAMES]
    assert [answer.status_code for answer in answers] == [200, 503, 503]
    assert answers[0].json()["reason"].startswith("leads in term")
    assert "follower" in _problem(answers[1]).detail
    heads = [await group["c1"].http.head(path) for path in ("/leader", "/readyz", "/livez")]
    assert [head.status_code for head in heads] == [200, 200, 200]


@played()
async def test_metrics_name_what_an_operator_watches(group: Group) -> None:
    """Roles, epochs, set sizes, lags, elections, RTO by phase, term, commit delay, sessions."""
    leader = await group.elect("c1")
    await make_set(leader)
    text = (await leader.http.get("/metrics")).text
    for name in (
        'rollcall_controller_role{role="leader"} 1.0',
        'rollcall_set_master_epoch{cluster="demo",set="broker-a"} 1.0',
        'rollcall_set_sync_state_set_size{cluster="demo",set="broker-a"} 2.0',
        "rollcall_replica_lag_bytes",
        'rollcall_elections_total{kind="first"} 1.0',
        "rollcall_rto_phase_seconds",
        "rollcall_raft_term",
        "rollcall_commit_delay_seconds_count",
        "rollcall_sessions_open",
    ):
        assert name in text


@played(names=NAMES)
async def test_unreachable_controllers_are_listed_as_such(group: Group) -> None:
    """The answer does not wait for them, and does not hide them."""
    leader = await group.elect("c1")
    told = msgspec.json.decode((await leader.http.get("/v1/controllers")).content)
    assert [found["role"] for found in told["controllers"]] == ["leader", "follower", "follower"]
    _silence(group, "c2", "c3")
    answer = msgspec.json.decode((await leader.http.get("/v1/controllers")).content)
    assert [(found["name"], found["role"]) for found in answer["controllers"]] == [
        ("c1", "leader"),
        ("c2", "unreachable"),
        ("c3", "unreachable"),
    ]


@pytest.mark.parametrize("count", [40])
@played()
async def test_readers_share_barriers(group: Group, count: int) -> None:
    """A flood of linearizable reads costs few entries, and each read sees what was committed before it."""
    leader = await group.elect("c1")
    await leader.http.post("/v1/broker-ids", json=broker_id_body(1))
    index = leader.service.published.index
    answers = await asyncio.gather(*(leader.http.get(SET) for _ in range(count)))
    assert {answer.status_code for answer in answers} == {200}
    assert leader.service.published.index - index <= count // 4


def test_a_read_outlives_a_loop_that_was_busy_for_longer_than_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty readers at once took the loop 600 ms before their barrier was proposed: 503, though nothing was wrong."""
    limit_ms = 30
    monkeypatch.setattr("rollcall_ha.controller.runtime.service.READ_WAIT_MS_MAX", limit_ms)

    def busy() -> None:
        until_s = time.monotonic() + 2 * limit_ms / 1000
        while time.monotonic() < until_s:
            pass

    async def scenario(group: Group) -> None:
        leader = await group.elect("c1")
        reads = [asyncio.ensure_future(leader.service.read_barrier()) for _ in range(3)]
        # Behind the first steps of the readers, and in the same turn.
        asyncio.get_running_loop().call_soon(busy)
        await asyncio.gather(*reads)

    play(tmp_path, scenario)


def test_a_read_whose_barrier_does_not_commit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S52: within its limit, not when the proposal is given up; one that was proposed before does not count either."""
    monkeypatch.setattr("rollcall_ha.controller.runtime.service.READ_WAIT_MS_MAX", 30)

    async def scenario(group: Group) -> None:
        leader = await group.elect("c1")
        group.memory.cut_off_leader()
        reads = (leader.service.read_barrier() for _ in range(3))
        answers = await asyncio.gather(*reads, return_exceptions=True)
        assert [str(answer) for answer in answers] == ["the barrier of this read did not commit in time"] * 3

    play(tmp_path, scenario)


@played(names=NAMES[:1])
async def test_the_document_fits_a_generated_client(group: Group) -> None:
    """``Consistency`` and ``ImportBody`` were named and not there; an id was ``elect_v1_sets__cluster___set__elect_post``."""
    document = (await group["c1"].http.get("/openapi.json")).json()
    references = set(re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(document)))
    assert references - document["components"]["schemas"].keys() == set()
    assert len(references) > 30
    ids = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids) > 20
    verbs = "get|list|pause|resume|begin|end|explain|stream|elect|switch|bootstrap|clean|import|raise|apply|register|send|alter|say|issue|revoke|transfer|add|remove|configure"
    assert [one for one in ids if not re.fullmatch(f"({verbs})([A-Z][a-z]+)+", one)] == []


@played(names=NAMES[:1])
async def test_counters_are_exported_as_counters(group: Group) -> None:
    """As gauges, rate() took each restart for a fall; ``_created`` gauges doubled the page."""
    text = (await group["c1"].http.get("/metrics")).text
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert {kinds["rollcall_graces_total"], kinds["rollcall_journal_events_dropped_total"]} == {"counter"}
    assert [name for name in kinds if name.endswith("_created")] == []
    assert [name for name, kind in kinds.items() if (kind == "counter") != name.endswith("_total")] == []


@played(names=NAMES)
async def test_a_new_fleet_begins_at_the_level_of_its_founder_and_no_level_is_raised_past_a_silent_peer(
    group: Group,
) -> None:
    """R15: a controller that is away while the level is raised stops when it comes back."""
    leader = await group.elect("c1")
    assert leader.queries.controller().fleet_level == FEATURE_LEVEL
    above = await leader.http.post("/v1/feature-level", json={"level": FEATURE_LEVEL + 1})
    assert (above.status_code, _problem(above).code) == (409, "FEATURE_LEVEL")
    _silence(group, "c2", "c3")
    silent = await leader.http.post("/v1/feature-level", json={})
    silence = "c2 does not answer, c3 does not answer"
    assert _problem(silent).detail == f"feature level {FEATURE_LEVEL} is not everywhere: {silence}"
    trusted = await leader.http.post("/v1/feature-level", json={"assumeUpgraded": True})
    assert trusted.status_code == 200
    above = await leader.http.post("/v1/feature-level", json={"level": FEATURE_LEVEL + 1, "assumeUpgraded": True})
    assert _problem(above).detail.endswith(f"c1 has level {FEATURE_LEVEL}")


def test_a_command_above_the_fleets_level_is_refused_and_never_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R15: in the log, it would stop every controller that is not upgraded yet, and two of three are a majority."""
    monkeypatch.setattr("rollcall_ha.controller.contract.levels.COMMANDS_SINCE", {CleanReplicas: FEATURE_LEVEL + 1})

    async def scenario(group: Group) -> None:
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
            assert (refused.status_code, _problem(refused).code) == (409, "FEATURE_LEVEL")
            assert "raise-level" in _problem(refused).hint
        assert not any("CleanReplicas" in payload for payload in proposed)

    play(tmp_path, scenario)


def _ahead(wall_ms: Callable[[], int], error_ms: int) -> int:
    return wall_ms() + error_ms


def _is_other(now: Callable[[], object], before: object) -> bool:
    return now() is not before


@played()
async def test_a_leaders_clock_that_is_set_an_hour_ahead_is_an_event_and_a_warning(group: Group) -> None:
    """R14: stamps follow the clock, ahead and back; the order of events is that of the log."""
    leader = await group.elect("c1")
    service, ports = leader.service, leader.service.ports
    for error_ms in (3_600_000, 0):
        before = service.clock_step
        ahead = partial(_ahead, ports.wall_ms, error_ms)
        service.ports = replace(ports, wall_ms=ahead)
        await until(partial(_is_other, lambda: service.clock_step, before))
        step_ms = leader.queries.controller().clock_step_ms
        assert step_ms is not None
        assert abs(step_ms - (3_600_000 if error_ms else -3_600_000)) < 1_000
        assert service.clock_step is not None
        assert abs(service.clock_step.stamped_at_ms - ahead()) < 10_000
