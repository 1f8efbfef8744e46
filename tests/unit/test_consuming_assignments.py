"""Queues that brokers share out themselves (400), and the mode that they do it for (401)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from rollcall_ha.broker.consuming import assignments
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.topics import TopicRow
from rollcall_ha.node.certified import CertifiedName, PeerCertificate, PeerKind
from rollcall_ha.node.remoting.frame import Frame
from tests.support.consumer_set import Client, SmallSet, code
from tests.support.folded import play
from tests.support.sim_loop import SimLoop

Share = list[tuple[str, int]] | None


def ask(client: Client, **changed: Any) -> Frame | None:
    asked = {
        "clientId": client.client_id, "consumerGroup": "g", "messageModel": "CLUSTERING", "strategyName": "AVG",
        "topic": "T",
    }  # fmt: skip
    return client.ask(ClientCode.QUERY_ASSIGNMENT, asked | changed)


def share_of(answer: Frame | None) -> Share:
    """Set and queue of each assignment; None: the client is to keep what it has."""
    assert answer is not None
    assert answer.code == 0, answer.remark
    found = json.loads(answer.body)["messageQueueAssignments"]
    if found is None:
        return None
    assert {one["mode"] for one in found} | {"PULL"} == {"PULL"}
    assert {one["messageQueue"]["topic"] for one in found} <= {"T"}
    return [(one["messageQueue"]["brokerName"], one["messageQueue"]["queueId"]) for one in found]


def a_set() -> tuple[SmallSet, Client, Client]:
    """The topic T with three queues to read, and two members of the group g."""
    small = SmallSet()
    assert not small.master.consumers.note_topic("T", TopicRow(read_queue_nums=3), lambda _: None)
    first, second = small.client, Client(small.master, "c2")
    for client in (first, second):
        client.beat()
    small.settle()
    return small, first, second


@pytest.mark.parametrize(("strategy", "shares"), [("AVG", ([0, 1], [2])), ("AVG_BY_CIRCLE", ([0, 2], [1]))])
def test_members_are_told_shares_that_are_all_queues_together(strategy: str, shares: tuple[list[int], ...]) -> None:
    _, *members = a_set()
    found = [share_of(ask(client, strategyName=strategy)) for client in members]
    assert found == [[("a", each) for each in share] for share in shares]
    assert share_of(ask(members[1], messageModel="BROADCASTING", strategyName="")) == [("a", 0), ("a", 1), ("a", 2)]


def test_what_is_not_known_takes_no_queue_from_a_member() -> None:
    """An empty share does: the client gives up all that it reads."""
    small, first, _ = a_set()
    assert share_of(ask(Client(small.master, "c9"))) is None, "its heartbeat is on its way"
    assert share_of(ask(first, topic="nowhere")) is None
    assert share_of(ask(first, topic="nowhere", messageModel="BROADCASTING")) is None
    small.master.left_bytes = 100
    assert share_of(ask(first)) is None, "a new master knows half of the members"
    small.master.left_bytes = 0
    assert share_of(ask(first)) is not None


def test_a_strategy_that_brokers_do_not_know_is_refused_so_that_clients_share_by_themselves() -> None:
    """Told nothing, as by RocketMQ, they would read nothing, for ever."""
    _, first, _ = a_set()
    answer = ask(first, strategyName="CONSISTENT_HASH")
    assert answer is not None
    assert (answer.code, answer.remark) == (
        ClientResult.INVALID_PARAMETER, "strategy 'CONSISTENT_HASH': brokers share queues by AVG and AVG_BY_CIRCLE"
    )  # fmt: skip
    assert code(first.ask(ClientCode.QUERY_ASSIGNMENT, b"{}")) == ClientResult.SYSTEM_ERROR


class Routes:
    """A name service that is asked; it answers when it is let."""

    def __init__(self, queues: Mapping[str, int] | None) -> None:
        self.queues = queues
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()

    async def __call__(self, topic: str) -> Mapping[str, int] | None:
        self.asked.append(topic)
        await self.may_answer.wait()
        return self.queues


def test_a_client_that_asks_on_and_on_is_told_nothing_beyond_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its questions would wait for the route by the million."""
    monkeypatch.setattr(assignments, "QUESTIONS_MAX", 2)

    async def story(_: SimLoop) -> None:
        small, first, second = a_set()
        routes = small.master.assignments.routes = Routes({"a": 3})
        assert [ask(first), ask(first)] == [None, None]
        assert share_of(ask(second)) is None
        routes.may_answer.set()
        await asyncio.sleep(0.1)
        assert share_of(ask(second)) == [("a", 2)], "the route is known, and none waits"
        assert len(routes.asked) == 1

    play(story)


def test_queues_of_all_sets_are_shared_by_a_route_that_is_asked_for_once_a_second() -> None:
    async def story(_: SimLoop) -> None:
        small, first, second = a_set()
        routes = small.master.assignments.routes = Routes({"b": 2, "a": 3})
        assert ask(first) is None
        assert ask(second) is None
        await asyncio.sleep(0.1)
        assert (first.answers[1:], routes.asked) == ([], ["T"])
        routes.may_answer.set()
        await asyncio.sleep(0.1)
        found = [share_of(client.answers[-1]) for client in (first, second)]
        assert found == [[("a", 0), ("a", 1), ("a", 2)], [("b", 0), ("b", 1)]]
        await asyncio.sleep(1)
        routes.queues = None
        ask(first)
        await asyncio.sleep(0.1)
        assert (share_of(first.answers[-1]), routes.asked) == (None, ["T", "T"]), "by this set alone it loses b"

    play(story)


def test_routes_of_a_thousand_topics_are_asked_for_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assignments, "ROUTES_MAX", 1)

    async def story(_: SimLoop) -> None:
        small, first, _second = a_set()
        routes = small.master.assignments.routes = Routes({"a": 3})
        assert ask(first) is None
        assert share_of(ask(first, topic="other")) is None
        routes.may_answer.set()
        await asyncio.sleep(2)
        assert ask(first, topic="other") is None
        await asyncio.sleep(0.1)

    play(story)


def test_pop_is_refused_by_name_and_pull_is_what_groups_do_anyway() -> None:
    _, first, _ = a_set()
    asked = {"consumerGroup": "g", "topic": "T", "mode": "PULL", "popShareQueueNum": 0}
    assert code(first.ask(ClientCode.SET_MESSAGE_REQUEST_MODE, asked)) == 0
    refused = first.ask(ClientCode.SET_MESSAGE_REQUEST_MODE, asked | {"mode": "POP"})
    assert refused is not None
    assert (refused.code, refused.remark) == (1, "mode POP of g for T: POP is not served; groups pull")
    first.certificate = PeerCertificate(
        name=CertifiedName(fleet="f", kind=PeerKind.CLIENT, name="c"), serial="1", expires_at_ms=1
    )
    assert code(first.ask(ClientCode.SET_MESSAGE_REQUEST_MODE, asked)) == ClientResult.NO_PERMISSION
