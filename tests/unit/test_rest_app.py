"""The REST interface of whole controllers on a memory log: answers, relays, reads, health and metrics."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from functools import partial

import msgspec
import pytest
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from rollcall_ha.api.rest import forwarding
from rollcall_ha.api.rest.relay import Answered, Asked, PeerDoor, decode_answered, encode
from rollcall_ha.controller.contract.commands import ApplyBrokerId
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    ControllerName,
    RegisterCode,
    RequestId,
    SetKey,
)
from rollcall_ha.controller.contract.principals import Principal, ProvedBy, Role
from rollcall_ha.controller.contract.views import (
    EventPage,
    Explanation,
    FleetStatus,
    HistoryPage,
    OrderPreview,
    Overview,
    SetAnswer,
    SetPage,
)
from rollcall_ha.controller.replication.ports import CALL_BYTES_MAX
from rollcall_ha.controller.runtime import service
from rollcall_ha.controller.runtime.ports import NoAuthority
from tests.support.runtime_controller import (
    DEADLINE_S,
    NAMES,
    SET,
    Group,
    broker_id_body,
    heartbeat_body,
    make_set,
    played,
    problem_of,
    recorded,
    register_body,
    until,
)


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
    assert [problem_of(answer).code for answer in refusals] == ["EXPECTATION_FAILED"] * 2
    done = await group["c3"].http.post(
        "/v1/feature-level", json={}, headers={"X-Request-Id": "5" * 32, "X-Requested-By": "lina"}
    )
    assert (done.status_code, done.headers["x-request-id"]) == (200, "5" * 32)
    missing = await group["c2"].http.get("/v1/sets/demo/x%2Dy")
    assert (missing.status_code, problem_of(missing).detail) == (404, "set demo/x-y does not exist")


@pytest.mark.slow
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
    assert (answer.status_code, problem_of(answer).code) == (503, "NO_LEADER")


@pytest.mark.slow
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
    problem = problem_of(answer)
    assert (answer.status_code, problem.code) == (status, code)
    assert (problem.request_id is not None) == (method == "POST")


@played(names=NAMES)
async def test_a_follower_without_a_link_names_the_leader(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """307 with Location at the leader, path and query kept, and nothing is waited for, by reads and orders alike."""
    monkeypatch.setattr(forwarding, "FORWARD_MS_MAX", 3_600_000)
    await group.elect("c1")
    group.silence("c1")
    async with asyncio.timeout(DEADLINE_S):
        read = await group["c2"].http.get("/v1/sets?limit=7")
        order = await group["c2"].http.post(f"{SET}/elect", json={"reason": "x"})
    assert (read.status_code, order.status_code) == (307, 307)
    assert read.headers["location"] == "http://127.0.0.1:3000/v1/sets?limit=7"
    assert order.headers["location"] == f"http://127.0.0.1:3000{SET}/elect"
    assert problem_of(order).leader == "http://127.0.0.1:3000"


@pytest.mark.slow
@played()
async def test_lost_quorum_is_503_within_a_second(group: Group) -> None:
    """S52: never a hang; local reads still answer, marked stale."""
    assert service.READ_WAIT_MS_MAX < 1_000
    leader = await group.elect("c1")
    group.memory.cut_off_leader()
    for _ in range(2):
        async with asyncio.timeout(DEADLINE_S):
            read = await leader.http.get("/v1/sets")
        assert (read.status_code, read.headers["retry-after"]) == (503, "1")
        assert problem_of(read).code == "NO_LEADER"
    # At once: an order that was proposed would be answered after ``PROPOSE_MS``, with an unknown outcome.
    order = await leader.http.post(f"{SET}/elect", json={})
    assert order.status_code == 503
    local = msgspec.json.decode((await leader.http.get("/v1/status?consistency=local")).content, type=FleetStatus)
    assert (local.freshness.is_stale, local.controller.has_authority) == (True, False)


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
async def test_a_reader_of_ids_alone_stopped_the_machine_of_the_same_number(group: Group) -> None:
    """Broker 1 is the one that came first: its name stands beside its id wherever a person reads of it."""
    leader = await group.elect("c1")
    await make_set(leader)
    key = SetKey(ClusterName("demo"), BrokerName("broker-a"))
    claim = ApplyBrokerId(set_key=key, register_code=RegisterCode("broker-a-1"), address="127.0.0.1:4001")
    caller = Principal(name="broker-a-3", role=Role.BROKER, proved_by=ProvedBy.CERTIFICATE, set_key=key)
    await leader.service.submit(claim, request_id=RequestId("r"), requested_by="", principal=caller)
    await recorded(leader)
    answer = msgspec.json.decode((await leader.http.get(SET)).content, type=SetAnswer)
    assert [replica.name for replica in answer.set.replicas] == ["broker-a-3", ""]
    names = {BrokerId(1): "broker-a-3"}
    overview = msgspec.json.decode((await leader.http.get("/v1/overview")).content, type=Overview)
    master = overview.sets[0].master
    assert overview.sets[0].master_name == names.get(master or BrokerId(0), "")
    assert msgspec.json.decode((await leader.http.get(f"{SET}/history")).content, type=HistoryPage).names == names
    assert msgspec.json.decode((await leader.http.get(f"{SET}/epochs/1")).content, type=Explanation).names == names
    events = msgspec.json.decode((await leader.http.get("/v1/events")).content, type=EventPage)
    assert events.names == {"demo/broker-a": names}
    refused = await leader.http.post(f"{SET}/clean", json={"brokerIds": [1], "dryRun": True})
    assert refused.json()["names"] == {"1": "broker-a-3"}
    forced = await leader.http.post(f"{SET}/clean", json={"brokerIds": [1], "isUnclean": True, "dryRun": True})
    assert msgspec.json.decode(forced.content, type=OrderPreview).names == names
    scope = {"setKey": {"cluster": "demo", "name": "broker-a"}, "brokerId": 2}
    refused = await leader.http.post("/v1/maintenance", json={"scope": scope, "expiresAtMs": 2**60})
    assert refused.json()["names"] == {"1": "broker-a-3"}


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
        assert (path, answer.status_code, problem_of(answer).code) == (path, 422, "BAD_REQUEST")
    assert problem_of(await leader.http.get("/v1/nothing")).status == 404
    assert problem_of(await leader.http.delete("/v1/sets")).status == 405


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


@played(names=NAMES)
async def test_health_tells_alive_from_ready(group: Group) -> None:
    """S60: without a leader alive but not ready, with the reason; a follower that hears a leader is ready."""
    assert (await group["c2"].http.get("/livez")).status_code == 200
    unready = await group["c2"].http.get("/readyz")
    assert (unready.status_code, problem_of(unready).code) == (503, "NOT_READY")
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
    assert "follower" in problem_of(answers[1]).detail
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


@played()
async def test_a_leader_that_was_put_back_did_not_say_that_brokers_have_seen_more_than_its_log(group: Group) -> None:
    """Nor could an alarm: of all processes its brokers alone know how long the lost log was."""
    leader = await group.elect("c1")
    await make_set(leader)
    lost = []
    for seen in (0, leader.service.published.index + 1_000):
        await leader.http.post("/v1/heartbeat", json=heartbeat_body(1) | {"seenIndex": seen})
        lost.append(leader.queries.controller().lost_entries)
    assert lost[0] == 0
    assert lost[1] > 900
    assert f"rollcall_lost_entries {lost[1]}.0" in (await leader.http.get("/metrics")).text


@played(names=NAMES)
async def test_unreachable_controllers_are_listed_as_such(group: Group) -> None:
    """The answer does not wait for them, and does not hide them."""
    leader = await group.elect("c1")
    told = msgspec.json.decode((await leader.http.get("/v1/controllers")).content)
    assert [found["role"] for found in told["controllers"]] == ["leader", "follower", "follower"]
    group.silence("c2", "c3")
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


@played()
async def test_a_read_outlives_a_loop_that_was_busy_for_longer_than_its_limit(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forty readers at once took the loop 600 ms before their barrier was proposed: 503, though nothing was wrong."""
    limit_ms = 30
    monkeypatch.setattr("rollcall_ha.controller.runtime.service.READ_WAIT_MS_MAX", limit_ms)

    def busy() -> None:
        until_s = time.monotonic() + 2 * limit_ms / 1000
        while time.monotonic() < until_s:
            pass

    leader = await group.elect("c1")
    reads = [asyncio.ensure_future(leader.service.read_barrier()) for _ in range(3)]
    # Behind the first steps of the readers, and in the same turn.
    asyncio.get_running_loop().call_soon(busy)
    await asyncio.gather(*reads)


@played()
async def test_a_read_whose_barrier_does_not_commit_is_refused(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """S52: within its limit, not when the proposal is given up; one that was proposed before does not count either."""
    monkeypatch.setattr("rollcall_ha.controller.runtime.service.READ_WAIT_MS_MAX", 30)
    leader = await group.elect("c1")
    group.memory.cut_off_leader()
    reads = (leader.service.read_barrier() for _ in range(3))
    answers = await asyncio.gather(*reads, return_exceptions=True)
    assert [str(answer) for answer in answers] == ["the barrier of this read did not commit in time"] * 3


@played(names=NAMES[:1])
async def test_the_document_fits_a_generated_client(group: Group) -> None:
    """``Consistency`` and ``ImportBody`` were named and not there; an id was ``elect_v1_sets__cluster___set__elect_post``."""
    document = (await group["c1"].http.get("/openapi.json")).json()
    references = set(re.findall(r'"\$ref": "#/components/schemas/([^"]+)"', json.dumps(document)))
    assert references - document["components"]["schemas"].keys() == set()
    assert len(references) > 30
    ids = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(set(ids)) == len(ids) > 20
    verbs = "get|list|pause|resume|begin|end|explain|stream|elect|switch|bootstrap|clean|import|raise|apply|register|send|alter|say|issue|revoke|transfer|add|remove|configure|create|change|delete|reset"
    assert [one for one in ids if not re.fullmatch(f"({verbs})([A-Z][a-z]+)+", one)] == []


@played(names=NAMES[:1])
async def test_counters_are_exported_as_counters(group: Group) -> None:
    """As gauges, rate() took each restart for a fall; ``_created`` gauges doubled the page."""
    text = (await group["c1"].http.get("/metrics")).text
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    assert {kinds["rollcall_graces_total"], kinds["rollcall_journal_events_dropped_total"]} == {"counter"}
    assert [name for name in kinds if name.endswith("_created")] == []
    assert [name for name, kind in kinds.items() if (kind == "counter") != name.endswith("_total")] == []


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
