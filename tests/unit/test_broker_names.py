"""What a broker tells the controllers' name services: to each of them, when it has changed, and when it was forgotten."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rollcall_ha.api.broker_port.headers import header_fields
from rollcall_ha.api.rocketmq.names.machine import NameCode
from rollcall_ha.broker.config import BrokerConfig
from rollcall_ha.broker.consuming.offsets_core import GroupChange
from rollcall_ha.broker.handlers.ports import Gate, GateState
from rollcall_ha.broker.names import LOOK_MS, RENEW_MS, RETRY_MS, SELF_MADE_MS, Names
from rollcall_ha.broker.protocol.topics import TopicRow
from rollcall_ha.controller.contract.ids import BrokerId, BrokerName, ClusterName, MasterEpoch, SetKey
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingServer
from rollcall_ha.node.remoting.frame import Frame
from tests.support.consumer_set import Member, SmallSet
from tests.support.folded import play
from tests.support.names_world import NameWorld, address, ha_address, register_body, word
from tests.support.sim_loop import SimLoop

HOST = "192.0.2.7"


class NameServer:
    """A controller's name service behind a real port; it may refuse, and forget."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.world = NameWorld({"broker-a": word(1, 1, 2)})
        self.codes: list[int] = []
        self.refusal = 0
        self.server = RemotingServer(self)

    async def start(self) -> None:
        self.server = RemotingServer(self)
        await self.server.start(HOST, self.port)

    def connected(self, connection: RemotingConnection) -> None:
        connection.session = id(connection)

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        """The table keeps it for a while."""

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        for frame in frames:
            self.codes.append(frame.code)
            if self.refusal:
                connection.respond(frame, self.refusal, remark="not served here")
                continue
            answer = self.world.ask(
                NameCode(frame.code), frame.body, link=cast("int", connection.session), **(frame.ext_fields or {})
            )
            fields = None if answer.header is None else header_fields(answer.header)
            connection.respond(frame, answer.code, ext_fields=fields, body=answer.body, remark=answer.remark)


class World:
    """A broker, its topics, and the controllers."""

    def __init__(self, controllers: int = 2) -> None:
        self.set = SmallSet()
        self.servers = [NameServer(9_100 + number) for number in range(controllers)]
        self.gate = Gate()
        self.gate.state = GateState(is_serving=True, master_epoch=MasterEpoch(1), is_min_in_sync=True)
        self.addresses = tuple(f"{HOST}:{each.port}" for each in self.servers)
        self.names = self.new_names()

    def new_names(self) -> Names:
        description = SimpleNamespace(address=address(1), ha_address=ha_address(1))
        key = SetKey(ClusterName("c1"), BrokerName("broker-a"))
        return Names(
            cast("BrokerConfig", SimpleNamespace(set_key=key, description=description)),
            topics=self.set.master.topics,
            gate=self.gate,
            broker_id=lambda: BrokerId(1),
            controllers=lambda: self.addresses,
            credentials=None,
            wall_ms=lambda: 1_700_000_000_000,
        )

    def order(self, topic: str, row: TopicRow) -> None:
        assert not self.set.master.consumers.note_topic(topic, row, lambda _: None)
        self.set.settle()

    def queues(self, number: int, topic: str) -> tuple[int, int] | None:
        """Queues to read and permission, by a controller's route of the topic."""
        route = self.servers[number].world.route(topic)
        return None if route is None else (route["queueDatas"][0]["readQueueNums"], route["queueDatas"][0]["perm"])


def tell(story: Callable[[World], Any], controllers: int = 2) -> None:
    async def told(_: SimLoop) -> None:
        world = World(controllers)
        for server in world.servers:
            await server.start()
        world.names.start()
        await seconds(1)
        await story(world)
        await world.names.stop()
        for server in world.servers:
            await server.server.stop("over")

    play(told)


async def seconds(count: float) -> None:
    """Of virtual time."""
    await asyncio.sleep(count)


def test_every_controller_answers_routes_of_our_topics_by_itself() -> None:
    async def story(world: World) -> None:
        world.order("T", TopicRow(read_queue_nums=3, write_queue_nums=2, perm=4))
        await seconds(LOOK_MS / 1000 + 0.1)
        for number in (0, 1):
            route = world.servers[number].world.route("T")
            assert route is not None
            assert route["brokerDatas"][0]["brokerAddrs"] == {"0": address(1)}
            assert world.queues(number, "T") == (3, 4)
            assert world.queues(number, "TBW102") == (8, 7)
            listed = json.loads(world.servers[number].world.ask(NameCode.GET_ALL_TOPIC_LIST).body)["topicList"]
            assert {"T", "c", "a"} <= set(listed)

    tell(story)


def test_a_deleted_topic_stayed_in_routes_until_somebody_told_each_name_service() -> None:
    """RocketMQ's tools send 216 to those that they know."""

    async def story(world: World) -> None:
        world.order("T", TopicRow())
        world.order("U", TopicRow())
        await seconds(1)
        world.order("T", TopicRow(is_deleted=True))
        world.set.master.topics.creates = False
        await seconds(1)
        for number in (0, 1):
            assert [world.queues(number, each) for each in ("T", "TBW102", "U")] == [None, None, (8, 6)]

    tell(story)


def test_nothing_is_told_again_while_nothing_changes_and_a_role_is_told_at_once() -> None:
    async def story(world: World) -> None:
        (server,) = world.servers
        assert server.codes == [103]
        await seconds(2.5 * RENEW_MS / 1000)
        assert server.codes == [103, 322, 322]
        world.gate.close("deposed", MasterEpoch(2), "")
        await seconds(1)
        assert server.codes[3:] == [103]
        entry = server.world.table.registration("broker-a", address(1))
        assert entry is not None
        assert (entry.claimed_id, entry.version.state_version) == (1, 2)

    tell(story, controllers=1)


def test_topics_vanished_from_routes_while_a_broker_did_not_know_all_of_them() -> None:
    """At a start, while its queues are built anew, and when it has just become master."""

    async def story(world: World) -> None:
        world.order("T", TopicRow(read_queue_nums=3))
        world.set.messages(1, (b"U", 0))
        await seconds(3)
        for is_new in (False, True):
            world.set.master.is_master = False
            world.set.master = Member(world.set.log, world.set.time, is_master=True)
            world.set.master.left_bytes = 10
            if is_new:
                await world.names.stop()
                world.names = world.new_names()
                world.names.start()
            world.names._topics = world.set.master.topics
            world.gate.state = GateState(is_serving=True, master_epoch=MasterEpoch(2), is_min_in_sync=True)
            await seconds(RENEW_MS / 1000 + 5)
            assert [world.queues(0, each) for each in ("T", "U")] == [(3, 6), (8, 6)]
            entry = world.servers[0].world.table.registration("broker-a", address(1))
            assert entry is not None
            assert entry.connection is not None, "it says that it is there"
            world.set.master.left_bytes = 0
            world.order("T", TopicRow(read_queue_nums=4))
            await seconds(3)
            assert [world.queues(0, each) for each in ("T", "U")] == [(4, 6), (8, 6)]
            world.order("T", TopicRow(read_queue_nums=3))
            await seconds(3)

    tell(story, controllers=1)


def test_a_log_that_begins_in_the_middle_took_the_topics_of_older_orders_out_of_routes() -> None:
    async def story(world: World) -> None:
        for topic in ("T", "U"):
            world.order(topic, TopicRow(read_queue_nums=3))
        await seconds(1)
        log = world.set.log
        log.min_offset = log.records[1][1]
        world.set.take_over()
        world.names._topics = world.set.master.topics
        await seconds(1)
        assert [world.queues(0, each) for each in ("T", "U")] == [(3, 6), (3, 6)]

    tell(story, controllers=1)


def test_a_controller_that_has_forgotten_hears_it_again() -> None:
    async def story(world: World) -> None:
        (server,) = world.servers
        world.order("T", TopicRow(read_queue_nums=3))
        await seconds(1)
        server.world = NameWorld(server.world.words)
        assert world.queues(0, "T") is None
        await seconds(RENEW_MS / 1000 + 1)
        assert world.queues(0, "T") == (3, 6)
        await server.server.stop("it starts again")
        server.world = NameWorld(server.world.words)
        await seconds(10)
        await server.start()
        await seconds(RETRY_MS / 1000 + 2)
        assert world.queues(0, "T") == (3, 6)

    tell(story, controllers=1)


def test_a_controller_that_serves_no_names_costs_the_others_nothing() -> None:
    async def story(world: World) -> None:
        bad = world.servers[0]
        bad.refusal = 3
        world.order("T", TopicRow(read_queue_nums=3))
        await seconds(10)
        assert world.queues(1, "T") == (3, 6)
        assert 2 <= len(bad.codes) <= 6, "it is asked every RETRY_MS"
        bad.refusal = 0
        await seconds(2 * RETRY_MS / 1000)
        assert world.queues(0, "T") == (3, 6)

    tell(story)


def test_a_controller_that_joins_is_told_and_one_that_left_is_not() -> None:
    async def story(world: World) -> None:
        old, new = world.servers
        world.addresses = (f"{HOST}:{new.port}",)
        await seconds(1)
        told = len(old.codes)
        world.order("T", TopicRow(read_queue_nums=3))
        await seconds(2 * RENEW_MS / 1000)
        assert (len(old.codes), world.queues(1, "T")) == (told, (3, 6))

    tell(story)


def test_topics_above_the_limit_took_retries_of_groups_and_each_other_out_of_routes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story(world: World) -> None:
        world.set.messages(1, (b"T", 0))
        await seconds(3)
        monkeypatch.setattr("rollcall_ha.broker.consuming.topics.TOPICS_MAX", 1)
        world.set.client.beat()
        world.set.settle()
        await seconds(3)
        assert world.queues(0, "%RETRY%g") == (1, 6)
        assert world.queues(0, "T") == (8, 6), "a table that was cut takes nothing away"

    tell(story, controllers=1)


def test_each_topic_that_came_by_itself_was_a_table_for_every_controller() -> None:
    async def story(world: World) -> None:
        (server,) = world.servers
        await seconds(3)
        told = len(server.codes)
        for number in range(20):
            world.set.messages(1, (b"T%d" % number, 0))
            await seconds(0.5)
        assert 4 <= len(server.codes) - told <= 6
        await seconds(SELF_MADE_MS / 1000 + 1)
        assert world.queues(0, "T19") == (8, 6)

    tell(story, controllers=1)


def test_a_topic_with_a_name_that_is_too_long_kept_the_set_out_of_all_routes() -> None:
    async def story(world: World) -> None:
        world.set.messages(1, (b"\xff" * 100, 0))
        world.set.master.consumers.note("g" * 250, GroupChange(offsets={"T": {0: 1}}))
        world.order("T", TopicRow(read_queue_nums=3))
        await seconds(3)
        assert world.queues(0, "T") == (3, 6)
        world.set.client.beat("h" * 248)
        world.set.settle()
        await seconds(3)
        assert world.queues(0, "%RETRY%" + "h" * 248) == (1, 6)
        assert world.set.client.beat("h" * 249).code == 1

    tell(story, controllers=1)
    names = NameWorld({"broker-a": word(1, 1)})
    names.register(1, role=0, body=register_body("t" * 256, "T"))
    assert (names.route("T") is None, names.route("t" * 256)) == (False, None)


@pytest.mark.parametrize("is_whole", [True, False])
def test_topics_of_javas_brokers_stay_when_a_table_lacks_them(is_whole: bool) -> None:
    world = NameWorld({"broker-a": word(1, 1)})
    world.register(1, role=0)
    body = json.dumps(
        {
            "topicConfigSerializeWrapper": {
                "dataVersion": {"counter": 2, "stateVersion": 1, "timestamp": 1},
                "topicConfigTable": {name: {"perm": 6} for name in ("A", "B")},
            }
        }
    ).encode()
    world.register(1, role=0, body=body, **({"isWhole": "true"} if is_whole else {}))

    assert (world.route("T") is None) is is_whole
    assert world.route("A") is not None


def test_the_queues_of_all_sets_are_read_from_a_controller_that_answers() -> None:
    async def story(world: World) -> None:
        world.order("T", TopicRow(read_queue_nums=3))
        await seconds(1)
        assert await world.names.read_queues("T") == {"broker-a": 3}
        assert await world.names.read_queues("nowhere") is None
        await world.servers[0].server.stop("away")
        assert await world.names.read_queues("T") == {"broker-a": 3}
        world.servers[1].refusal = 1
        assert await world.names.read_queues("T") is None

    tell(story)
