"""Topics and groups by REST: a real controller, links to a master, sets that do not answer."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from rollcall_ha.api.rest import masters
from rollcall_ha.broker.protocol.codes import ClientCode
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingServer
from rollcall_ha.node.remoting.frame import Frame
from tests.support.consumer_set import Client, SmallSet
from tests.support.runtime_controller import (
    Controller,
    broker_id_body,
    heartbeat_body,
    played_led,
    problem_of,
    register_body,
    until,
)


class Port:
    """The listen port of a master; what it is asked to write is confirmed at once, unless it hangs."""

    def __init__(self, small: SmallSet) -> None:
        self.small = small
        self.hangs_at: ClientCode | None = None
        self.server = RemotingServer(self)

    def connected(self, connection: RemotingConnection) -> None:
        pass

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        pass

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        for frame in frames:
            if frame.code != self.hangs_at:
                self.small.master.responders[frame.code](connection, frame)
                self.small.settle()


async def make_set(leader: Controller, cluster: str, name: str, address: str) -> None:
    for path, body in (
        ("/v1/broker-ids", broker_id_body(1, name)),
        ("/v1/replicas", register_body(1, name, 1)),
        ("/v1/heartbeat", heartbeat_body(1, name)),
    ):
        body["setKey"]["cluster"] = cluster
        if "description" in body:
            body["description"]["address"] = address
        assert (await leader.http.post(path, json=body)).is_success
    await until(
        lambda: any(
            view.master
            for view in [leader.service.view_of(key) for key in leader.service.published.state.sets if key.name == name]
            if view
        )
    )


@asynccontextmanager
async def serving(leader: Controller) -> AsyncIterator[Port]:
    """The set c/a with a master that answers: ten messages in queue 0 of T, of which the group g has finished three."""
    small = SmallSet()
    small.messages(10)
    small.client.beat()
    small.client.commit(3)
    small.settle()
    port = Port(small)
    await port.server.start("127.0.0.1", 0)
    try:
        await make_set(leader, "c", "a", f"127.0.0.1:{port.server.port}")
        yield port
    finally:
        await port.server.stop()


async def get(leader: Controller, path: str) -> dict[str, Any]:
    answer = await leader.http.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def order(leader: Controller, path: str, **body: object) -> list[tuple[str, str]]:
    answer = await leader.http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["x-request-id"]
    return [(one["outcome"], one["reason"]) for one in answer.json()["outcomes"]]


@played_led()
async def test_a_topic_is_made_changed_and_deleted_by_rest(leader: Controller) -> None:
    async with serving(leader):
        assert await order(leader, "/v1/topics/new_one/create", queues=4, dryRun=True) == [("would-do", "")]
        assert (await leader.http.get("/v1/topics/new_one")).status_code == 404
        assert await order(leader, "/v1/topics/new_one/create", queues=4) == [("done", "")]
        told = "it is there: 4 queues, read-write; change it, or name other sets"
        assert await order(leader, "/v1/topics/new_one/create") == [("refused", told)]
        assert await order(leader, "/v1/topics/new_one/change", queues=4) == [("unchanged", "4 queues, read-write")]
        assert await order(leader, "/v1/topics/new_one/change", permission="read") == [
            ("done", "before: 4 queues, read-write")
        ]
        (line,) = (await get(leader, "/v1/topics/new_one"))["topics"]
        assert (line["readQueues"], line["permission"], line["setKey"]["name"]) == (4, "read", "a")
        assert [one["topic"] for one in (await get(leader, "/v1/topics?name=new_o"))["topics"]] == ["new_one"]
        assert await order(leader, "/v1/topics/new_one/delete") == [("done", "before: 4 queues, read")]
        assert await order(leader, "/v1/topics/new_one/delete") == [("absent", "there is no topic new_one")]
        assert await order(leader, "/v1/topics/new_one/change", queues=1) == [("absent", "there is no topic new_one")]
        ((outcome, reason),) = await order(leader, "/v1/topics/TBW102/change", queues=1)
        assert (outcome, "the brokers' own" in reason) == ("refused", True)


@played_led()
async def test_a_group_is_told_reset_and_deleted_by_rest(leader: Controller) -> None:
    async with serving(leader) as port:
        found = await get(leader, "/v1/groups/g")
        assert [(one["lag"], one["members"]) for one in found["groups"]] == [(7, 1)]
        assert found["members"][0]["clientId"] == "c1"
        assert [one["group"] for one in (await get(leader, "/v1/groups"))["groups"]] == ["g"]
        would = ("would-do", "1 members, 7 messages were behind")
        assert await order(leader, "/v1/groups/g/reset", topic="T", toMs=5_000, dryRun=True) == [would]
        assert await order(leader, "/v1/groups/g/reset", topic="T", toMs=5_000) == [("done", would[1])]
        assert (await get(leader, "/v1/groups/g?topic=T"))["queues"][0]["offset"] == 4
        assert await order(leader, "/v1/groups/g/reset", topic="T", toMs=-1) == [
            ("done", "1 members, 6 messages were behind")
        ]
        assert (await get(leader, "/v1/groups/g"))["groups"][0]["lag"] == 0
        assert (await order(leader, "/v1/groups/nobody/reset", topic="T", toMs=0))[0][0] == "absent"
        port.small.master.groups.disconnected(port.small.client.link)
        port.small.settle()
        assert await order(leader, "/v1/groups/g/delete") == [("done", "0 members, 0 messages were behind")]
        assert (await leader.http.get("/v1/groups/g")).status_code == 404
        assert Client(port.small.master).query() is not None


@played_led()
async def test_a_group_s_settings_are_told_and_changed_by_rest(leader: Controller) -> None:
    """What is not named stays, what RocketMQ's tools have set included; a group that is not there gets none."""
    async with serving(leader) as port:
        before = "retryMaxTimes 16, consumeEnable true, consumeBroadcastEnable true, consumeMessageOrderly false"
        row = {"groupName": "g", "retryQueueNums": 3}
        assert port.small.client.ask(ClientCode.UPDATE_AND_CREATE_GROUP, row) is None
        port.small.settle()
        path = "/v1/groups/g/change"
        assert await order(leader, path, retriesMax=5, dryRun=True) == [("would-do", f"before: {before}")]
        assert await order(leader, path, retriesMax=16, mayConsume=True) == [("unchanged", before)]
        assert await order(leader, path, retriesMax=5, mayConsume=False) == [("done", f"before: {before}")]
        (told,) = (await get(leader, "/v1/groups/g"))["settings"]
        assert told.pop("setKey") == {"cluster": "c", "name": "a"}
        assert told == {"retriesMax": 5, "mayConsume": False, "mayBroadcast": True, "isOrdered": False}
        assert port.small.master.settings.of("g").retry_queue_nums == 3
        assert [one for one, _ in await order(leader, path, isOrdered=True, mayBroadcast=False)] == ["done"]
        (told,) = (await get(leader, "/v1/groups/g"))["settings"]
        assert (told["retriesMax"], told["isOrdered"], told["mayBroadcast"]) == (5, True, False)
        assert [one for one, _ in await order(leader, "/v1/groups/typo/change", retriesMax=1)] == ["absent"]
        assert "typo" not in port.small.master.consumers.known.groups
        wrong = await leader.http.post(path, json={"retriesMax": -1})
        assert wrong.status_code == 422


@pytest.mark.slow
@played_led()
async def test_a_set_that_does_not_answer_is_named_beside_those_that_do(leader: Controller) -> None:
    async with serving(leader):
        await make_set(leader, "c", "b", "127.0.0.1:9")
        page = await get(leader, "/v1/topics")
        reads = {one["setKey"]["name"]: one["trouble"] for one in page["read"]}
        assert reads["a"] == ""
        assert "broker 1 at 127.0.0.1:9" in reads["b"]
        assert "T" in [one["topic"] for one in page["topics"]]
        # Not 404: the set that does not answer may have it.
        assert (await get(leader, "/v1/topics/nowhere"))["topics"] == []
        outcomes = dict(zip("ab", await order(leader, "/v1/topics/new_one/create"), strict=True))
        assert [outcomes[name][0] for name in "ab"] == ["done", "not-reached"]
        named = [{"cluster": "c", "name": "b"}]
        assert [one for one, _ in await order(leader, "/v1/topics/new_one/create", sets=named)] == ["not-reached"]
        wrong = await leader.http.post("/v1/topics/new_one/create", json={"sets": [{"cluster": "c", "name": "x"}]})
        assert (wrong.status_code, problem_of(wrong).detail) == (404, "set c/x does not exist")


@played_led()
async def test_an_order_without_an_answer_is_unknown_and_one_that_was_not_given_is_not(leader: Controller) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masters, "SET_MS_MAX", 200)
        async with serving(leader) as port:
            port.hangs_at = ClientCode.UPDATE_AND_CREATE_TOPIC
            assert [one for one, _ in await order(leader, "/v1/topics/new_one/create")] == ["unknown"]
            port.hangs_at = ClientCode.GET_TOPIC_CONFIG
            assert [one for one, _ in await order(leader, "/v1/topics/new_one/create")] == ["not-reached"]


@played_led()
async def test_a_question_asks_so_many_sets_and_names_the_next(leader: Controller) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masters, "SETS_ASKED_MAX", 1)
        async with serving(leader):
            await make_set(leader, "c", "b", "127.0.0.1:9")
            first = await get(leader, "/v1/groups")
            assert ([one["setKey"]["name"] for one in first["read"]], first["nextSet"]) == (["a"], "c/b")
            second = await get(leader, "/v1/groups?fromSet=c/b")
            assert ([one["setKey"]["name"] for one in second["read"]], second["nextSet"]) == (["b"], None)
            answer = (await leader.http.post("/v1/topics/new_one/create", json={})).json()
            assert (len(answer["outcomes"]), answer["nextSet"]) == (1, "c/b")


@played_led()
async def test_names_page_up_to_what_every_set_has_told(leader: Controller) -> None:
    async with serving(leader) as port:
        port.small.messages(1, (b"U", 0))
        names: list[str] = []
        after = ""
        while True:
            page = await get(leader, f"/v1/topics?limit=2&after={after}")
            names += [one["topic"] for one in page["topics"]]
            after = page["nextAfter"] or ""
            if not after:
                break
        assert names == sorted(names)
        assert {"T", "U", "TBW102"} <= set(names)
