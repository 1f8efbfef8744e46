"""What RocketMQ's tools ask of a broker: producers, all groups at once, epochs, and questions to members of groups."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from rollcall_ha.broker.consuming import relay
from rollcall_ha.broker.consuming.groups_core import SILENT_MS_MAX
from rollcall_ha.broker.protocol.send import encode_send
from rollcall_ha.node.remoting.codes import FLAG_RESPONSE
from rollcall_ha.node.remoting.frame import Frame, encode_frame
from tests.support.consumer_set import Client, SmallSet
from tests.support.log_broker import LogBroker
from tests.unit.test_consuming_topics import body, order, told
from tests.unit.test_handlers_listen import read_frame

RUNTIME, UNREGISTER, PRODUCERS_OF, PROGRESS_OF_ALL, PRODUCERS, EPOCHS = 28, 35, 204, 317, 328, 1007
ERROR, STATE, CONSUME_NOW = 1, 307, 309


@pytest.fixture
def world() -> SmallSet:
    return SmallSet()


def produces(client: Client, *groups: object) -> None:
    """The heartbeat of a producer of RocketMQ's."""
    beat = {"clientID": client.client_id, "producerDataSet": [{"groupName": group} for group in groups]}
    answer = client.ask(34, beat)
    assert answer is not None
    assert answer.code == 0, answer.remark


def producers(client: Client) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = body(told(client, PRODUCERS))["data"]
    return found


def test_producers_are_told_until_they_leave(world: SmallSet) -> None:
    """mqadmin's producer and producerConnection: the request code was not supported."""
    first, second = Client(world.master, "p1", "10.0.0.1:1"), Client(world.master, "p2", "10.0.0.2:2")
    produces(first, "till", "other")
    produces(second, "till")

    links = body(told(first, PRODUCERS_OF, producerGroup="till"))["connectionSet"]
    assert [(link["clientId"], link["clientAddr"], link["version"]) for link in links] == [
        ("p1", "10.0.0.1:1", 479),
        ("p2", "10.0.0.2:2", 479),
    ]
    assert {name: [each["remoteIP"] for each in row] for name, row in producers(first).items()} == {
        "till": ["/10.0.0.1:1", "/10.0.0.2:2"],
        "other": ["/10.0.0.1:1"],
    }

    first.ask(UNREGISTER, clientID="p1", producerGroup="till")
    world.master.groups.disconnected(second.link)
    assert list(producers(first)) == ["other"]
    assert told(first, PRODUCERS_OF, producerGroup="till").code == ERROR


def test_a_silent_producer_is_told_no_more(world: SmallSet) -> None:
    produces(world.client, "till")

    world.time.run(SILENT_MS_MAX + 20_000)
    world.master.groups.tick()

    assert producers(world.client) == {}


def test_a_producer_with_a_strange_name_is_not_refused(world: SmallSet) -> None:
    """Nothing depends on the name: refused, it would look for another broker, and none takes it."""
    produces(world.client, "no name", None, 7, "x" * 300, "till")

    assert list(producers(world.client)) == ["till"]


def test_all_groups_are_told_with_what_each_lags_behind(world: SmallSet) -> None:
    """mqadmin's brokerConsumeStats: the request code was not supported."""
    client = world.client
    told(client, 17, **order("T", 2))
    told(client, 17, **order("O", 1, order="true"))
    world.messages(3)
    for group, offset in (("a", 1), ("b", 3)):
        client.beat(group)
        client.commit(offset, group)
    world.settle()

    def asked(*, is_ordered: bool) -> bytes:
        answer = told(client, PROGRESS_OF_ALL, isOrder=str(is_ordered).lower())
        assert answer.code == 0, answer.remark
        return answer.body

    text = asked(is_ordered=False)
    assert text.startswith(b'{"consumeStatsList":[{"a":[{"offsetTable":')
    assert text.count(b'"consumerOffset":1') == text.count(b'"consumerOffset":3') == 1
    assert text.endswith(b',"totalDiff":2}')
    assert asked(is_ordered=True) == b'{"consumeStatsList":[{"a":[]},{"b":[]}],"totalDiff":0}'


def test_too_many_queues_for_one_answer_are_refused(world: SmallSet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is a read of the log on the loop: ten thousand groups would be seconds in which nobody is served."""
    monkeypatch.setattr("rollcall_ha.broker.consuming.tools.STATS_QUEUES_MAX", 2)
    told(world.client, 17, **order("T", 3))
    world.client.beat("a")
    world.client.commit(1, "a")
    world.settle()

    answer = told(world.client, PROGRESS_OF_ALL, isOrder="false")

    assert (answer.code, answer.remark) == (
        ERROR,
        "all groups have more than 2 queues; consumerProgress -g asks for one group",
    )


def test_epochs_are_told_with_the_id_of_a_route(world: SmallSet) -> None:
    """mqadmin's getBrokerEpoch; a master is 0 there."""
    found = body(told(world.client, EPOCHS))

    assert found["epochList"] == [{"epoch": 1, "startOffset": 0, "endOffset": 9}]
    assert (found["brokerId"], found["maxOffset"]) == (0, 9)
    world.master.is_master = False
    assert body(told(world.client, EPOCHS))["brokerId"] == 2


def test_a_slave_is_not_told_to_be_active(world: SmallSet) -> None:
    """clusterList showed every replica as activated; of RocketMQ's the master alone is."""
    assert body(told(world.client, RUNTIME))["table"]["brokerActive"] == "true"
    world.master.is_master = False
    assert body(told(world.client, RUNTIME))["table"]["brokerActive"] == "false"


def test_figures_are_there_that_tools_read_unguarded(world: SmallSet) -> None:
    """mqadmin's exportMetrics ended with a NumberFormatException: Cannot parse null string."""
    world.messages(3)

    table = body(told(world.client, RUNTIME))["table"]

    assert table["msgPutTotalTodayNow"] == "3"
    assert {table[f"msg{what}Total{day}Morning"] for what in ("Put", "Get") for day in ("Today", "Yesterday")} == {"0"}


@pytest.mark.parametrize("number", [306, 316, 329])
def test_an_order_for_what_goes_by_itself_is_done(world: SmallSet, number: int) -> None:
    assert told(world.client, number).code == 0


# --- questions to members --------------------------------------------------------------------------------------------


class Peer:
    """A raw connection to a broker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, code: int, data: bytes = b"", flag: int = 0, opaque: int = 1, **fields: str) -> None:
        self.writer.write(encode_frame(Frame(code=code, opaque=opaque, flag=flag, body=data, ext_fields=fields)))

    async def ask(self, code: int, data: bytes = b"", **fields: str) -> Frame:
        self.send(code, data, 0, 1, **fields)
        return await read_frame(self.reader)


def run(tmp_path: Path, test: Any) -> None:
    """A broker that leads, a member of the group g with the id m, and somebody who asks."""

    async def main() -> None:
        async with LogBroker(tmp_path, 1) as broker:
            broker.lead(1)
            member, asker = [Peer(*await asyncio.open_connection("127.0.0.1", broker.server.port)) for _ in range(2)]
            beat = {"clientID": "m", "consumerDataSet": [{"groupName": "g"}]}
            member.send(34, json.dumps(beat).encode())
            # The answer, and that the group has changed (40).
            assert {(await read_frame(member.reader)).code for _ in range(2)} == {0, 40}
            await test(broker, member, asker)
            member.writer.close()
            asker.writer.close()

    asyncio.run(main())


def test_a_member_answers_what_is_asked_through_its_broker(tmp_path: Path) -> None:
    """mqadmin's consumerStatus: the request code was not supported, and answers of clients were dropped."""

    async def test(_: LogBroker, member: Peer, asker: Peer) -> None:
        asker.send(STATE, opaque=7, consumerGroup="g", clientId="m", jstackEnable="true")
        question = await read_frame(member.reader)
        assert (question.code, (question.ext_fields or {})["jstackEnable"]) == (STATE, "true")
        member.send(0, b'{"properties":{}}', FLAG_RESPONSE, question.opaque)
        answer = await read_frame(asker.reader)
        assert (answer.code, answer.opaque, answer.body) == (0, 7, b'{"properties":{}}')

    run(tmp_path, test)


def test_a_member_is_given_a_message_to_consume_now(tmp_path: Path) -> None:
    async def test(_: LogBroker, member: Peer, asker: Peer) -> None:
        asker.writer.write(
            encode_send(opaque=1, group="p", topic="T", queue_id=0, born_at_ms=1, properties="", body=b"hello")
        )
        sent = await read_frame(asker.reader)
        place = (sent.ext_fields or {})["msgId"]
        asker.send(CONSUME_NOW, consumerGroup="g", clientId="m", msgId=place)
        question = await read_frame(member.reader)
        assert b"hello" in question.body
        assert (question.ext_fields or {})["brokerName"] == "b"
        # A number of its own counts as an error: answers are counted by code.
        member.send(99_999, b"", FLAG_RESPONSE, question.opaque)
        assert (await read_frame(asker.reader)).code == ERROR
        for nonsense in ("", "zz", "f" * 32, place[:-1] + "1"):
            answer = await asker.ask(CONSUME_NOW, consumerGroup="g", clientId="m", msgId=nonsense)
            assert (answer.code, "no message begins at" in (answer.remark or "")) == (ERROR, True), nonsense

    run(tmp_path, test)


def test_who_is_no_member_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor is one that leaves, or hangs."""
    monkeypatch.setattr(relay, "WAIT_MS_MAX", 1)

    async def test(_: LogBroker, member: Peer, asker: Peer) -> None:
        answer = await asker.ask(STATE, consumerGroup="g", clientId="x")
        assert (answer.code, answer.remark) == (ERROR, "The Consumer <g> <x> not online")
        hung = await asker.ask(STATE, consumerGroup="g", clientId="m")
        assert (hung.code, "no answer to code 307 within 1 ms" in (hung.remark or "")) == (ERROR, True)
        monkeypatch.setattr(relay, "WAIT_MS_MAX", 60_000)
        asker.send(STATE, consumerGroup="g", clientId="m")
        for _number in range(2):
            await read_frame(member.reader)
        member.writer.close()
        left = await read_frame(asker.reader)
        assert (left.code, (left.remark or "").startswith("the member has not answered")) == (ERROR, True)

    run(tmp_path, test)


def test_no_more_than_a_few_questions_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay, "ASKED_MAX", 2)

    async def test(_: LogBroker, member: Peer, asker: Peer) -> None:
        for opaque in range(3):
            asker.send(STATE, opaque=opaque, consumerGroup="g", clientId="m")
        refused = await read_frame(asker.reader)
        assert (refused.code, refused.opaque) == (2, 2)
        for _number in range(2):
            question = await read_frame(member.reader)
            member.send(0, b"", FLAG_RESPONSE, question.opaque)
            assert (await read_frame(asker.reader)).code == 0

    run(tmp_path, test)
