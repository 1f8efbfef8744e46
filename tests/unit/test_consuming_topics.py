"""Topics and settings of groups by order: what RocketMQ's tools send, and what a later master knows of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollcall_ha.broker.consuming import offsets_log
from rollcall_ha.broker.consuming.offsets_core import Consumers, Record, encode_record
from rollcall_ha.broker.consuming.offsets_log import AGAIN_MS, TOPIC
from rollcall_ha.broker.consuming.topics import USUAL
from rollcall_ha.broker.protocol.topics import TopicRow, topic_config
from rollcall_ha.node.certified import CertifiedName, PeerCertificate, PeerKind
from rollcall_ha.node.remoting.frame import Frame
from tests.support.consumer_set import Client, Member, SmallSet, code, offset

CREATE, CREATE_LIST, ALL, STATS, DELETE, SYSTEM, DESCRIBE = 17, 18, 21, 202, 215, 305, 351
GROUP, GROUPS, DELETE_GROUP, GROUP_LIST, GROUP_CONFIG = 200, 201, 207, 225, 352
OK, ERROR, BUSY, DENIED, ABSENT, NOT_FOUND, BAD = 0, 1, 2, 16, 17, 22, 29


@pytest.fixture
def world() -> SmallSet:
    return SmallSet()


def order(topic: str = "T", queues: int = 4, **changed: object) -> dict[str, Any]:
    """The header that mqadmin updateTopic of 5.3.3 sends."""
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
        "attributes": "",
        "force": "false",
    } | changed


def told(client: Client, number: int, body: object = None, **fields: object) -> Frame:
    """The answer of an order that is written and confirmed, or of a question."""
    answer = client.ask(number, body, **fields)
    if answer is None:
        settle(client)
        answer = client.answers[-1]
    return answer


def settle(client: Client) -> None:
    member = client.member
    for _ in range(2):
        member.time.run(offsets_log.COMMIT_INTERVAL_MS)
        member.log.confirm()


def body(answer: Frame) -> Any:
    assert answer.code == OK, answer.remark
    return json.loads(answer.body)


def queue_rows(answer: Frame) -> dict[int, dict[str, int]]:
    """The table of a 202 or 208 of one topic, by queue id: Java writes objects as keys."""
    assert answer.code == OK, answer.remark
    text = answer.body.decode()
    rows = {}
    for part in text.removeprefix('{"offsetTable":{').removesuffix("}}").split(",{"):
        key, _, row = part.partition("}:")
        rows[json.loads("{" + key.removeprefix("{") + "}")["queueId"]] = json.loads(row)
    return rows


# --- topics ----------------------------------------------------------------------------------------------------------


def test_a_topic_that_an_order_made_is_there_after_the_death_of_the_master(world: SmallSet) -> None:
    assert world.client.ask(CREATE, **order(queues=3, order="true", writeQueueNums=2)) is None
    assert world.master.topics.find("T") == USUAL, "nobody has confirmed it"
    settle(world.client)
    assert code(world.client.answers[-1]) == OK

    client = world.take_over()
    row = TopicRow(read_queue_nums=3, write_queue_nums=2, order=True)
    assert client.member.consumers.follow()
    assert client.member.topics.find("T") == row
    config = body(told(client, DESCRIBE, topic="T"))
    assert config == {
        "attributes": {},
        "order": True,
        "perm": 6,
        "readQueueNums": 3,
        "topicFilterType": "SINGLE_TAG",
        "topicName": "T",
        "topicSysFlag": 0,
        "writeQueueNums": 2,
    }
    assert body(told(client, ALL))["topicConfigTable"]["T"] == config


def test_a_topic_that_is_not_confirmed_is_answered_to_nobody(world: SmallSet) -> None:
    assert world.client.ask(CREATE, **order()) is None
    world.time.run(60)
    world.log.end_epoch()

    assert (code(world.client.answers[-1]), world.client.answers[-1].remark) == (ERROR, "its masterEpoch ended")


def test_a_deleted_topic_stays_deleted_and_is_made_again_by_an_order_only(world: SmallSet) -> None:
    told(world.client, CREATE, **order())
    world.messages(2)
    assert code(told(world.client, DELETE, topic="T")) == OK
    for client in (world.client, world.take_over()):
        client.member.consumers.follow()
        assert client.member.topics.find("T") is None
        assert "was deleted" in client.member.topics.absence("T").remark
        assert code(told(client, DESCRIBE, topic="T")) == ABSENT
        assert "T" not in body(told(client, ALL))["topicConfigTable"]
    assert code(told(client, CREATE, **order(queues=5))) == OK

    assert client.member.topics.find("T") == TopicRow(read_queue_nums=5, write_queue_nums=5)
    assert queue_rows(told(client, STATS, topic="T"))[0]["maxOffset"] == 2, "its queues go on where they were"


def test_a_topic_that_is_told_again_from_before_its_end_stays_deleted() -> None:
    known = Consumers()
    row = TopicRow(read_queue_nums=3)
    known.fold(0, encode_record(Record(0, topics={"T": TopicRow(is_deleted=True)})))
    known.fold(1, encode_record(Record(0, topics_again={"T": row, "U": row})))

    assert known.topics["T"].is_deleted
    assert known.topics["U"] == row


def test_topics_that_were_told_again_counted_as_other_ones_each_hour() -> None:
    known = Consumers()
    row = TopicRow(read_queue_nums=3)
    known.fold(0, encode_record(Record(0, topics={"T": row})))
    known.fold(1, encode_record(Record(0, topics_again={"T": row})))
    assert known.orders == 1

    known.fold(2, encode_record(Record(0, topics={"V": row}, topics_again={"U": row, "V": TopicRow()})))
    assert (known.orders, known.topics["V"]) == (3, row)


def test_all_topics_are_told_again_and_a_rebuild_from_there_knows_them(world: SmallSet) -> None:
    for name in ("A", "B", "C"):
        told(world.client, CREATE, **order(name))
    told(world.client, DELETE, topic="B")
    world.client.commit(5)
    settle(world.client)
    settings = {"groupName": "g", "retryMaxTimes": 3}
    told(world.client, GROUP, settings)
    world.time.now_ms += AGAIN_MS
    world.master.consumers.tick()
    for _ in range(8):
        settle(world.client)
    since = int(str(world.records()[-1]["since"]))
    assert since >= 5
    # The age of the log takes all that lies before.
    world.log.min_offset = [place for key, place, _ in world.log.records if key[0] == TOPIC][since]
    client = world.take_over()

    assert client.member.consumers.follow()
    assert client.member.consumers.is_whole
    known = client.member.consumers.known
    assert {name: row.is_deleted for name, row in known.topics.items()} == {"A": False, "B": True, "C": False}
    assert known.groups["g"].settings is not None
    assert (known.groups["g"].settings.retry_max_times, offset(client.query())) == (3, 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changed", "refused", "remark"),
    [
        ({"topic": "a b"}, BAD, "characters"),
        ({"topic": "t" * 128}, BAD, "1 to 127"),
        ({"topic": ""}, BAD, "1 to 127"),
        ({"topic": "T\n"}, BAD, "characters"),
        ({"topic": "ROLLCALL_SYS_CONSUMERS"}, BAD, "the brokers' own"),
        ({"topic": "TBW102"}, BAD, "the brokers' own"),
        ({"topic": "c"}, BAD, "the brokers' own"),
        ({"readQueueNums": 0}, BAD, "readQueueNums is 0; it takes 1 to 256"),
        ({"writeQueueNums": 257}, BAD, "writeQueueNums is 257"),
        ({"perm": 16}, BAD, "perm is 16"),
        ({"perm": -1}, BAD, "perm is -1"),
        ({"topicSysFlag": 1 << 31}, BAD, "int32"),
        ({"attributes": "+message.type=FIFO"}, ERROR, "leave them out"),
        ({"readQueueNums": "x"}, ERROR, "readQueueNums"),
    ],
)
def test_an_order_that_cannot_be_is_refused_and_writes_nothing(
    world: SmallSet, changed: dict[str, Any], refused: int, remark: str
) -> None:
    answer = world.client.ask(CREATE, **order(**changed))
    assert answer is not None

    assert (answer.code, remark in (answer.remark or "")) == (refused, True), answer.remark
    settle(world.client)
    assert world.records() == []


def test_an_order_that_changes_nothing_writes_nothing_and_one_on_its_way_is_waited_for(world: SmallSet) -> None:
    assert world.client.ask(CREATE, **order()) is None
    assert world.client.ask(CREATE, **order()) is None
    settle(world.client)
    assert [code(each) for each in world.client.answers] == [OK, OK]
    assert code(world.client.ask(CREATE, **order())) == OK

    assert len(world.records()) == 1


def unheard(world: SmallSet, number: int, body: object = None, **fields: object) -> None:
    """Asked, appended, and answered with a reason: its record is in the log, and is confirmed later, perhaps."""
    assert world.client.ask(number, body, **fields) is None
    world.time.run(offsets_log.COMMIT_INTERVAL_MS)
    world.log.end_epoch()
    assert code(world.client.answers[-1]) != OK


@pytest.mark.parametrize("is_same_master", [True, False])
def test_an_order_that_was_answered_was_undone_by_an_earlier_one_that_timed_out(
    world: SmallSet, is_same_master: bool
) -> None:
    told(world.client, CREATE, **order())
    told(world.client, GROUP, {"groupName": "g", "retryMaxTimes": 3})
    told(world.client, 15, consumerGroup="g", topic="T", queueId=0, commitOffset=5)
    unheard(world, CREATE, **order(perm=4))
    unheard(world, CREATE, **order("new"))
    unheard(world, GROUP, {"groupName": "g", "retryMaxTimes": 9})
    unheard(world, GROUP, {"groupName": "h"})
    unheard(world, 15, consumerGroup="g", topic="T", queueId=0, commitOffset=1)
    client, member = world.client, world.master
    if not is_same_master:
        world.master.is_master = False
        member = Member(world.log, world.time, is_master=True)
        client = Client(member)
    assert member.consumers.follow()
    for number, sent, fields in (
        (CREATE, None, order()),
        (DELETE, None, {"topic": "new"}),
        (GROUP, {"groupName": "g", "retryMaxTimes": 3}, {}),
        (DELETE_GROUP, None, {"groupName": "h"}),
        (15, None, {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 5}),
    ):
        assert client.ask(number, sent, **fields) is None
    settle(client)
    assert [code(each) for each in client.answers[-5:]] == [OK] * 5

    known = member.consumers.known
    settings = {name: change.settings for name, change in known.groups.items() if change.settings}
    assert (member.topics.find("T"), member.topics.find("new")) == (
        TopicRow(read_queue_nums=4, write_queue_nums=4),
        None,
    )
    assert (settings["g"].retry_max_times, settings["h"].is_deleted, known.offset("g", "T", 0)) == (3, True, 5)
    written = len(world.records())
    assert code(client.ask(CREATE, **order())) == OK
    assert len(world.records()) == written, "all is known again"


def test_a_list_of_topics_is_answered_once_when_all_are_confirmed(world: SmallSet) -> None:
    rows = [topic_config(name, TopicRow(read_queue_nums=2)) for name in ("A", "B")]
    assert world.client.ask(CREATE_LIST, {"topicConfigList": rows}) is None
    settle(world.client)
    assert [code(each) for each in world.client.answers] == [OK]
    assert set(world.master.consumers.known.topics) == {"A", "B"}
    rows[1]["perm"] = 99

    assert code(world.client.ask(CREATE_LIST, {"topicConfigList": rows})) == BAD
    assert code(world.client.ask(CREATE_LIST, {"topicConfigList": []})) == OK
    rows[1] = {"topicName": "B", "perm": "x"}
    assert code(world.client.ask(CREATE_LIST, {"topicConfigList": rows})) == ERROR
    rows[1] = topic_config("B", TopicRow()) | {"attributes": {"+message.type": "FIFO"}}
    assert code(world.client.ask(CREATE_LIST, {"topicConfigList": rows})) == ERROR


def test_topics_have_a_limit_and_a_known_one_can_be_changed_at_it(
    world: SmallSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets_log, "TOPICS_MAX", 2)
    for name in ("A", "B"):
        told(world.client, CREATE, **order(name))
    answer = told(world.client, CREATE, **order("C"))
    assert (answer.code, "2 can be" in (answer.remark or "")) == (ERROR, True)

    assert code(told(world.client, CREATE, **order("A", queues=9))) == OK


def test_slaves_take_no_order_and_answer_questions(world: SmallSet) -> None:
    told(world.client, CREATE, **order())
    slave = Client(Member(world.log, world.time))
    slave.member.consumers.follow()
    for number, fields in ((CREATE, order("U")), (DELETE, {"topic": "T"}), (DELETE_GROUP, {"groupName": "g"})):
        answer = slave.ask(number, **fields)
        assert answer is not None
        assert (answer.code, "is not the master" in (answer.remark or "")) == (ERROR, True)

    assert code(slave.ask(DESCRIBE, topic="T")) == OK
    told(world.client, DELETE, topic="T")
    slave.member.consumers.follow()
    for topic in ("T", "%RETRY%g", "unheard"):
        assert code(slave.ask(DELETE, topic=topic)) == OK, "mqadmin deleteSubGroup asks slaves, and stops at a refusal"


def certificate(kind: PeerKind) -> PeerCertificate:
    return PeerCertificate(name=CertifiedName(fleet="f", kind=kind, name="x"), serial="1", expires_at_ms=1 << 50)


@pytest.mark.parametrize("kind", list(PeerKind))
def test_with_the_certificate_of_a_client_nobody_deletes_topics(world: SmallSet, kind: PeerKind) -> None:
    told(world.client, CREATE, **order())
    client = Client(world.master)
    client.certificate = certificate(kind)
    may = kind in (PeerKind.OPERATOR, PeerKind.ADMIN, PeerKind.CONTROLLER)
    answers = [
        told(client, CREATE, **order("U")),
        told(client, CREATE_LIST, {"topicConfigList": []}),
        told(client, DELETE, topic="T"),
        told(client, GROUP, {"groupName": "g"}),
        told(client, GROUP_LIST, {"groupConfigList": []}),
        told(client, DELETE_GROUP, groupName="g"),
    ]

    assert [code(each) for each in answers] == [OK if may else DENIED] * 6
    assert (world.master.topics.find("T") is None) == may
    assert code(client.ask(SYSTEM)) == code(client.ask(DESCRIBE, topic="c")) == OK


def test_retries_and_dead_letters_are_there_with_their_group(world: SmallSet) -> None:
    """mqadmin deleteSubGroup deletes them, too: the group's next failed message would have no place."""
    topics = world.master.topics
    topics.creates = False
    one = TopicRow(read_queue_nums=1, write_queue_nums=1)
    assert topics.find("%RETRY%g") == topics.find("%DLQ%g") == one
    told(world.client, GROUP, {"groupName": "g", "retryQueueNums": 3})
    assert topics.find("%RETRY%g") == TopicRow(read_queue_nums=3, write_queue_nums=3)
    for topic in ("%RETRY%g", "%DLQ%g"):
        assert code(told(world.client, DELETE, topic=topic)) == OK
    told(world.client, CREATE, **order("%DLQ%g", queues=2, perm=4))
    told(world.client, DELETE, topic="%DLQ%g")

    assert topics.find("%DLQ%g") == one
    assert "%RETRY%g" in body(told(world.client, ALL))["topicConfigTable"]


def test_a_topic_comes_by_itself_only_while_the_setting_says_so(world: SmallSet) -> None:
    topics = world.master.topics
    assert topics.find("new") == USUAL
    assert code(told(world.client, DESCRIBE, topic="new")) == ABSENT, "it is not there before its first message"
    topics.creates = False
    assert topics.find("new") is None
    world.master.consumers.tick()
    assert "auto_create_topics is 0" in topics.absence("new").remark
    world.master.left_bytes = 5
    world.master.consumers.tick()
    assert topics.absence("new").code == BUSY, "its record may be among what is not taken in"
    assert topics.unsure() is not None, "it may have more queues by now"
    world.master.left_bytes = 0
    world.messages(1, (b"new", 9))

    assert topics.find("new") == TopicRow(read_queue_nums=10, write_queue_nums=10), "all its queues can be read"
    world.messages(1, (b"old", (1 << 31) - 1))
    assert topics.find("old") == TopicRow(read_queue_nums=256, write_queue_nums=256), (
        "and no more than a topic can have"
    )
    assert topics.find("TBW102") is None
    assert topics.find("c") == USUAL


def test_a_name_that_nobody_has_used_is_deleted_without_a_row(world: SmallSet) -> None:
    world.client.commit(5)
    settle(world.client)
    assert code(world.client.ask(DELETE, topic="mistyped")) == OK
    world.messages(1)
    told(world.client, DELETE, topic="T")

    assert list(world.master.consumers.known.topics) == ["T"]


def test_the_ends_of_queues_and_the_time_of_the_last_message_are_told(world: SmallSet) -> None:
    world.messages(3, (b"T", 2))
    rows = queue_rows(told(world.client, STATS, topic="T"))
    assert len(rows) == 8
    assert rows[2] == {"lastUpdateTimestamp": 3_000, "maxOffset": 3, "minOffset": 0}
    assert rows[0] == {"lastUpdateTimestamp": 0, "maxOffset": 0, "minOffset": 0}
    world.master.left_bytes = 7

    world.master.consumers.tick()
    assert code(world.client.ask(STATS, topic="T")) == code(world.client.ask(STATS, topic="c")) == BUSY
    world.master.left_bytes = 0
    assert code(world.client.ask(STATS, topic="unheard")) == ABSENT


def test_system_topics_are_told_and_the_list_of_all_has_a_limit(
    world: SmallSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = body(told(world.client, SYSTEM))["topicList"]
    assert {"a", "c", "TBW102", "SCHEDULE_TOPIC_XXXX"} <= set(listed)
    told(world.client, CREATE, **order("Z"))
    world.messages(1, (b"A", 0))
    world.messages(1, (b"B", 0))
    monkeypatch.setattr("rollcall_ha.broker.consuming.topics.TOPICS_MAX", 2)

    named = set(world.master.topics.all().rows) - set(listed)
    assert "Z" in named, "those by order come first"
    assert len(named) == 2
    assert not world.master.topics.all().is_whole
    monkeypatch.setattr("rollcall_ha.broker.consuming.topics.TOPICS_MAX", 3)
    assert world.master.topics.all().is_whole


# --- groups ----------------------------------------------------------------------------------------------------------


def test_settings_of_a_group_are_there_after_the_death_of_the_master(world: SmallSet) -> None:
    """A body as mqadmin updateSubGroup of 5.3.3 writes it."""
    sent = {
        "attributes": {},
        "brokerId": 0,
        "consumeBroadcastEnable": False,
        "consumeEnable": True,
        "consumeFromMinEnable": False,
        "consumeMessageOrderly": True,
        "consumeTimeoutMinute": 15,
        "groupName": "g",
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "groupSysFlag": 0,
        "notifyConsumerIdsChangedEnable": True,
        "retryMaxTimes": 5,
        "retryQueueNums": 2,
        "whichBrokerWhenConsumeSlowly": 1,
    }
    assert code(told(world.client, GROUP, sent)) == OK
    client = world.take_over()
    client.member.consumers.follow()
    config = body(told(client, GROUP_CONFIG, group="g"))

    assert config == {key: value for key, value in sent.items() if key not in ("attributes", "groupRetryPolicy")}
    assert body(told(client, GROUPS))["subscriptionGroupTable"] == {"g": config}
    assert body(told(client, GROUP_CONFIG, group="unheard"))["retryMaxTimes"] == 16


def test_a_group_that_may_not_consume_is_refused_with_the_setting(world: SmallSet) -> None:
    groups = world.master.groups
    assert groups.refusal_of("g") is None
    told(world.client, GROUP, {"groupName": "g", "consumeEnable": False})
    refused = groups.refusal_of("g")
    assert refused is not None
    assert (refused.code, "consumeEnable is false" in refused.remark) == (DENIED, True)
    told(world.client, GROUP, {"groupName": "g", "consumeBroadcastEnable": False})
    assert groups.refusal_of("g") is None
    world.client.beat(messageModel="BROADCASTING")

    refused = groups.refusal_of("g")
    assert refused is not None
    assert "consumeBroadcastEnable is false" in refused.remark


def test_members_hear_no_news_of_a_group_that_wants_none(world: SmallSet) -> None:
    told(world.client, GROUP, {"groupName": "g", "notifyConsumerIdsChangedEnable": False})
    world.client.beat()
    Client(world.master, "c2").beat()
    world.time.run(2_000)
    world.master.groups.tick()

    assert world.client.news == []


@pytest.mark.parametrize(
    ("sent", "remark"),
    [
        ({"groupName": "g", "retryQueueNums": 257}, "retryQueueNums is 257"),
        ({"groupName": "g", "retryMaxTimes": 1 << 31}, "int32"),
        ({"groupName": "g", "attributes": {"+a": "b"}}, "no attribute"),
        ({"groupName": "g/h"}, "groupName"),
        ({}, "groupName"),
    ],
)
def test_settings_that_cannot_be_are_refused(world: SmallSet, sent: dict[str, object], remark: str) -> None:
    answer = world.client.ask(GROUP, sent)
    assert answer is not None

    assert (answer.code, remark in (answer.remark or "")) == (ERROR, True), answer.remark
    assert code(world.client.ask(GROUP_LIST, {"groupConfigList": [{"groupName": "h"}, sent]})) == ERROR
    settle(world.client)
    assert world.records() == []


def test_a_deleted_group_keeps_its_offsets_unless_the_order_says_otherwise(world: SmallSet) -> None:
    world.client.commit(5)
    told(world.client, GROUP, {"groupName": "g", "retryMaxTimes": 5})
    assert code(told(world.client, DELETE_GROUP, groupName="g")) == OK
    assert body(told(world.client, GROUPS))["subscriptionGroupTable"] == {}
    assert body(told(world.client, GROUP_CONFIG, group="g"))["retryMaxTimes"] == 16
    assert offset(world.client.query()) == 5
    world.client.commit(6)
    assert code(told(world.client, DELETE_GROUP, groupName="g", cleanOffset="true")) == OK
    client = world.take_over()

    answer = told(client, 14, consumerGroup="g", topic="T", queueId=0)
    assert code(answer) == NOT_FOUND, "also the one that was gathered when the order came"
    client.beat()
    settle(client)
    assert set(body(told(client, GROUPS))["subscriptionGroupTable"]) == {"g"}, "it has members again"
    assert code(told(client, DELETE_GROUP, groupName="unheard")) == OK
    assert "unheard" not in client.member.consumers.known.groups


# --- tools -----------------------------------------------------------------------------------------------------------


def test_how_far_a_group_is_and_who_consumes_what(world: SmallSet) -> None:
    world.messages(4)
    world.client.beat()
    world.client.commit(3)
    settle(world.client)
    world.messages(1, (b"old", 0))
    world.client.commit(1, topic="old")
    settle(world.client)
    rows = queue_rows(told(world.client, 208, consumerGroup="g"))
    assert len(rows) == 8, "the topic that it does not subscribe to is left out"
    assert rows[0] == {"brokerOffset": 4, "consumerOffset": 3, "lastTimestamp": 3_000, "pullOffset": 3}
    assert rows[1]["consumerOffset"] == 0
    assert queue_rows(told(world.client, 208, consumerGroup="g", topic="old"))[0]["consumerOffset"] == 1
    assert body(told(world.client, 300, topic="T")) == {"groupList": ["g"]}
    assert body(told(world.client, 343, group="g")) == {"topicList": ["T", "old"]}
    told(world.client, CREATE, **order("wide", queues=256))

    answer = told(world.client, 208, consumerGroup="g", topicList="wide;wide;wide;wide;wide")
    assert (answer.code, "name a topic" in (answer.remark or "")) == (ERROR, True)


def test_mqadmins_consumer_progress_ended_at_a_subscription_to_a_topic_that_nobody_made(world: SmallSet) -> None:
    told(world.client, CREATE, **order("U", queues=2))
    world.client.beat(topics={"T": ("*", 1), "U": ("*", 1)})
    settle(world.client)
    answer = told(world.client, 208, consumerGroup="g")

    assert answer.body.count(b'"topic":"U"') == 2
    assert b'"topic":"T"' not in answer.body
    assert b'"topic":"T"' not in told(world.client, 208, consumerGroup="g", topic="T").body


def test_who_consumes_a_topic_was_found_by_all_topics_of_all_groups(
    world: SmallSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.client.commit(5, "with-offset")
    settle(world.client)
    world.client.beat("with-members")
    settle(world.client)
    world.client.beat("elsewhere", {"U": ("*", 1)})
    settle(world.client)
    told(world.client, 15, consumerGroup="deleted", topic="T", queueId=0, commitOffset=5)
    told(world.client, DELETE_GROUP, groupName="deleted", cleanOffset="true")
    client = world.take_over()
    client.member.consumers.follow()
    monkeypatch.delattr(type(client.member.groups), "facts")

    assert body(told(client, 300, topic="T")) == {"groupList": ["with-members", "with-offset"]}


def test_a_question_for_ends_or_progress_read_any_number_of_old_records_from_the_disk(
    world: SmallSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rollcall_ha.broker.consuming.reading.FAR_TIMES_MAX", 2)
    for queue in range(4):
        world.messages(1, (b"T", queue))
        assert told(world.client, 15, consumerGroup="g", topic="T", queueId=queue, commitOffset=1).code == OK
    for near_bytes, times in ((1 << 40, [1_000] * 4), (10, [1_000, 1_000, 0, 0])):
        member = Member(world.log, world.time, is_master=True, near_bytes=near_bytes)
        client = Client(member)
        ends, progress = queue_rows(told(client, STATS, topic="T")), queue_rows(told(client, 208, consumerGroup="g"))
        assert [ends[queue]["lastUpdateTimestamp"] for queue in range(4)] == times
        assert [progress[queue]["lastTimestamp"] for queue in range(4)] == times
        assert [progress[queue]["brokerOffset"] for queue in range(4)] == [1] * 4


def test_the_figures_that_mqadmin_parses_are_there(world: SmallSet) -> None:
    world.messages(1)
    world.master.tools.tick()
    world.messages(10)
    world.time.run(10_000)
    world.master.pulled = 20
    world.master.tools.tick()
    world.messages(5)
    world.time.run(5_000)
    table = body(told(world.client, 28))["table"]
    assert all(isinstance(value, str) for value in table.values())
    assert (table["earliestMessageTimeStamp"], table["commitLogDiskRatio"]) == ("1000", "-1")
    rates = [float(rate) for rate in table["putTps"].split()]
    assert rates == pytest.approx([1.0, 1.0, 1.0])
    assert [float(rate) for rate in table["getTransferredTps"].split()] == pytest.approx(
        [0, 20 / 15, 20 / 15], abs=0.01
    )
    world.master.disk_share = 0.5
    assert body(told(world.client, 28))["table"]["commitLogDiskRatio"] == "0.5000"
    empty = Client(Member(type(world.log)(), world.time))

    assert body(told(empty, 28))["table"]["earliestMessageTimeStamp"] == "-1"


def test_the_configuration_is_shown_and_not_changed_by_mqadmin(world: SmallSet) -> None:
    answer = told(world.client, 26)
    assert answer.body == b"autoCreateTopicEnable=true\nbrokerName=a\n"

    assert code(told(world.client, 25, b"autoCreateTopicEnable=false\n")) == DENIED


def test_a_question_for_nonsense_is_answered(world: SmallSet) -> None:
    for number in (STATS, DELETE, DESCRIBE, DELETE_GROUP, GROUP_CONFIG, 208, 300, 343):
        assert code(world.client.ask(number)) == ERROR
    for number in (CREATE_LIST, GROUP, GROUP_LIST):
        assert code(world.client.ask(number, b"\xff[")) == ERROR
