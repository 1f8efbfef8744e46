"""Groups of consumers: members, subscriptions, news, and the change of master (codes 34, 35, 38, 40, 46, 203)."""

from __future__ import annotations

import json

import pytest

from rollcall_ha.broker.consuming import groups_core
from rollcall_ha.broker.consuming.filters import ALL, Filter
from rollcall_ha.broker.consuming.groups import LIST_WAIT_MS_MAX, SETTLED_PER_TICK_MAX
from rollcall_ha.broker.consuming.groups_core import SILENT_MS_MAX, TAKEOVER_GRACE_MS, GroupTable, News, version_ms
from rollcall_ha.broker.consuming.groups_core import Member as GroupMember
from rollcall_ha.broker.consuming.offsets_log import COMMIT_INTERVAL_MS, TOPIC
from rollcall_ha.broker.protocol.consumers import Facts, Subscription
from rollcall_ha.broker.protocol.pull import Refused
from tests.support.consumer_set import Client, Member, SetLog, Time

NO_MEMBER = 1
NOT_ONLINE = 206
GO_VERSION = 1_700_000_000_000_000_000
JAVA_VERSION = 1_700_000_000_001


class World:
    """A set whose master and slave hear the same clients."""

    def __init__(self) -> None:
        self.time, self.log = Time(), SetLog()
        self.master = Member(self.log, self.time, is_master=True)
        self.slave = Member(self.log, self.time)

    def client(self, client_id: str, member: Member | None = None) -> Client:
        return Client(member or self.master, client_id, f"10.0.0.1:{client_id[1:]}")

    def settle(self) -> None:
        for _ in range(2):
            self.time.run(COMMIT_INTERVAL_MS)
            self.log.confirm()

    def tick(self, seconds: int = 1) -> None:
        """So many seconds pass; what was gathered is written and confirmed."""
        for _ in range(seconds):
            self.time.run(900)
            for reader in (self.master, self.slave):
                reader.consumers.tick()
                reader.groups.tick()
            self.settle()

    def take_over(self) -> Member:
        """The slave is master, and has what is confirmed."""
        self.log.cut(self.log.confirmed)
        self.master.is_master = False
        self.log.end_epoch()
        self.master, self.slave = self.slave, self.master
        self.master.is_master = True
        self.master.groups.tick()
        return self.master


@pytest.fixture
def world() -> World:
    return World()


def disconnect(client: Client) -> None:
    client.member.groups.disconnected(client.link)


def refused(found: Filter | Refused) -> int:
    assert isinstance(found, Refused)
    return found.code


# --- members ---------------------------------------------------------------------------------------------------------


def test_a_heartbeat_makes_a_member_and_is_answered_as_clients_expect(world: World) -> None:
    one = world.client("c1")
    answer = one.beat()

    assert (answer.code, answer.ext_fields) == (0, {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"})
    assert answer.version == 479, "Java takes a broker without a number for one that knows no SQL"
    assert one.list() == ["c1"]


def test_the_list_of_an_unknown_group_is_code_1(world: World) -> None:
    assert world.client("c1").list("h") == NO_MEMBER


def test_a_member_is_a_link_and_a_link_may_be_in_two_groups(world: World) -> None:
    one, two = world.client("c1"), world.client("c2")
    for group in ("g", "h"):
        one.beat(group)
    two.beat("h")
    assert (one.list("g"), one.list("h")) == (["c1"], ["c1", "c2"])
    disconnect(one)

    assert (two.list("g"), two.list("h")) == (NO_MEMBER, ["c2"])


def test_a_member_that_unregisters_is_gone_and_a_producer_that_does_is_nobody(world: World) -> None:
    one, two = world.client("c1"), world.client("c2")
    one.beat()
    two.beat()
    for fields in ({"producerGroup": "p"}, {"consumerGroup": "g"}, {"consumerGroup": "g"}):
        answer = one.ask(35, clientID="c1", **fields)
        assert answer is not None
        assert answer.code == 0

    assert two.list() == ["c2"]


def test_silent_members_leave_and_the_others_hear_it(world: World) -> None:
    one, two = world.client("c1"), world.client("c2")
    one.beat()
    two.beat()
    world.time.run(SILENT_MS_MAX // 2)
    two.beat()
    world.tick(5)
    two.news.clear()
    world.time.run(SILENT_MS_MAX // 2)
    world.tick(11)

    assert two.list() == ["c2"]
    assert two.news == ["g"]


def test_members_hear_at_once_and_of_all_that_follows_once_a_second(world: World) -> None:
    first = world.client("c0")
    first.beat()
    assert first.news == ["g"]
    world.time.run(1_000)
    others = [world.client(f"c{number}") for number in range(1, 50)]
    for other in others:
        other.beat()
    assert first.news == ["g", "g"]
    world.tick(1)
    world.tick(1)

    assert first.news == ["g", "g", "g"]
    assert others[-1].news == ["g"]


def test_the_same_heartbeat_again_is_no_news_and_writes_nothing(world: World) -> None:
    one = world.client("c1")
    one.beat()
    world.tick(2)
    written, heard = len(world.log.bodies(TOPIC)), len(one.news)
    for _ in range(10):
        world.time.run(30_000)
        one.beat()
        world.tick(2)

    assert (len(world.log.bodies(TOPIC)), len(one.news)) == (written, heard)


def test_another_topic_is_news_and_another_text_is_not_but_both_are_remembered(world: World) -> None:
    one = world.client("c1")
    one.beat()
    world.tick(2)
    one.news.clear()
    one.beat(topics={"T": ("a", 2)})
    world.tick(2)
    assert one.news == []
    one.beat(topics={"T": ("a", 2), "U": ("*", 1)})
    world.tick(2)

    assert one.news == ["g"]
    facts = world.slave.consumers.known.groups["g"].facts
    assert facts is not None
    assert {topic: word.text for topic, word in facts.subscriptions.items()} == {"T": "a", "U": "*"}


def test_a_broadcasting_group_hears_no_news(world: World) -> None:
    one, two = world.client("c1"), world.client("c2")
    one.beat(messageModel="BROADCASTING")
    two.beat(messageModel="BROADCASTING")
    world.tick(2)

    assert one.news == two.news == []


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "truncated"),
        (b"\xff{", "malformed"),
        (b'{"clientID":"","consumerDataSet":[]}', "clientID"),
        (b'{"consumerDataSet":[]}', "clientID"),
        (b'{"clientID":"c","consumerDataSet":[{"groupName":"g/h"}]}', "groupName"),
        (b'{"clientID":"c","consumerDataSet":[{"groupName":"g","subscriptionDataSet":[{"topic":""}]}]}', "topic"),
        (b"[" * 10_000, ""),
    ],
)
def test_a_nonsense_heartbeat_is_refused_with_a_reason(world: World, body: bytes, reason: str) -> None:
    one = world.client("c1")
    answer = one.ask(34, body)

    assert answer is not None
    assert answer.code == 1
    assert reason in (answer.remark or "")
    assert one.list() == NO_MEMBER


def test_heartbeats_of_go_and_of_producers_are_read(world: World) -> None:
    one = world.client("c1")
    body = {
        "clientID": "c1",
        "producerDataSet": [{"groupName": "p"}],
        "consumerDataSet": [
            {
                "groupName": "g",
                "consumeType": "push",
                "messageModel": 7,
                "subscriptionDataSet": [
                    {"topic": "T", "subString": "a || ä", "subVersion": GO_VERSION, "codeSet": ["97"], "x": None}
                ],
            }
        ],
    }
    answer = one.ask(34, body)
    assert answer is not None
    assert answer.code == 0
    producer = world.client("c2").ask(34, {"clientID": "c2", "producerDataSet": [{"groupName": "p"}]})
    assert producer is not None
    assert producer.code == 0

    described = one.ask(203, consumerGroup="g")
    assert described is not None
    assert json.loads(described.body) == {
        "connectionSet": [{"clientAddr": "10.0.0.1:1", "clientId": "c1", "language": "JAVA", "version": 479}],
        "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
        "consumeType": "CONSUME_PASSIVELY",
        "messageModel": "CLUSTERING",
        "subscriptionTable": {
            "T": {
                "classFilterMode": False,
                "codeSet": [97, 228],
                "expressionType": "TAG",
                "subString": "a || ä",
                "subVersion": GO_VERSION,
                "tagsSet": ["a", "ä"],
                "topic": "T",
            }
        },
    }


def test_a_group_without_members_is_not_described(world: World) -> None:
    answer = world.client("c1").ask(203, consumerGroup="g")

    assert answer is not None
    assert answer.code == NOT_ONLINE


def test_a_heartbeat_without_subscriptions_leaves_them_as_they_were(world: World) -> None:
    one = world.client("c1")
    one.beat(topics={"T": ("a", 1)})
    world.time.run(SILENT_MS_MAX - 1)
    one.ask(34, {"clientID": "c1", "consumerDataSet": [{"groupName": "g"}], "withoutSub": True})
    world.time.run(10_000)
    world.tick()

    assert one.list() == ["c1"]
    assert not isinstance(world.master.groups.filter_of("g", "T", 1), Refused)


# --- subscriptions ---------------------------------------------------------------------------------------------------


def test_a_pull_gets_the_filter_of_its_group_or_the_code_that_its_client_acts_on(world: World) -> None:
    find = world.master.groups.filter_of
    assert refused(find("g", "T", 1)) == 24
    world.client("c1").beat(topics={"T": ("*", 5), "U": ("a", 5)})

    assert find("g", "T", 5) is ALL
    assert find("g", "T", 0) is ALL, "Go says 0"
    assert refused(find("g", "T", 6)) == 25
    assert refused(find("g", "V", 1)) == 24
    assert find("g", "U", 5) is find("g", "U", 5), "one filter while nothing changes"


def test_members_of_one_group_that_want_different_topics_take_none_from_each_other(world: World) -> None:
    one, two = world.client("c1"), world.client("c2")
    one.beat(topics={"T": ("*", 1)})
    two.beat(topics={"U": ("*", 1)})
    one.beat(topics={"T": ("*", 1)})

    assert world.master.groups.filter_of("g", "T", 1) is ALL
    assert world.master.groups.filter_of("g", "U", 1) is ALL
    disconnect(two)
    assert refused(world.master.groups.filter_of("g", "U", 1)) == 24


def hear(table: GroupTable[str], link: str, text: str, version: int, now_ms: int = 0) -> News | str:
    member = GroupMember(link, "JAVA", 1, now_ms)
    return table.hear(link, "g", member, Facts(subscriptions={"T": Subscription(text, version)}))


def text(table: GroupTable[str]) -> str:
    word = table.subscription("g", "T", Facts())
    assert word is not None
    return word.text


def test_the_newest_word_counts_whether_its_time_is_in_ms_or_ns() -> None:
    table: GroupTable[str] = GroupTable()
    hear(table, "go", "a", GO_VERSION)
    assert hear(table, "java", "b", JAVA_VERSION) is News.MEMBERS
    assert text(table) == "b"
    hear(table, "go", "a", GO_VERSION)
    assert text(table) == "b"
    assert version_ms(GO_VERSION) == 1_700_000_000_000


def test_a_member_replaces_its_own_word_and_that_of_a_link_that_is_gone() -> None:
    table: GroupTable[str] = GroupTable()
    hear(table, "c1", "a", 9)
    hear(table, "c2", "b", 5)
    assert text(table) == "a"
    assert hear(table, "c1", "c", 8) is News.FACTS
    assert text(table) == "c"
    table.close("c1")
    assert text(table) == "c", "until the others are heard"
    hear(table, "c2", "b", 5)
    assert text(table) == "b"


def test_the_version_does_not_fall_when_the_word_of_a_link_that_is_gone_is_replaced(world: World) -> None:
    """Members that have said the newer one would have their pulls refused until their next heartbeat."""
    one, two, three = (world.client(f"c{number}") for number in (1, 2, 3))
    one.beat(topics={"T": ("*", 9)})
    two.beat(topics={"T": ("*", 5)})
    three.beat(topics={"T": ("*", 9)})
    disconnect(one)
    for _ in range(2):
        two.beat(topics={"T": ("a", 5)})

        found = world.master.groups.filter_of("g", "T", 9)
        assert isinstance(found, Filter)
        assert found.text == "TAG a"
    three.beat(topics={"T": ("b", GO_VERSION)})
    disconnect(three)
    two.beat(topics={"T": ("a", 5)})
    assert not isinstance(world.master.groups.filter_of("g", "T", GO_VERSION), Refused)


def test_a_filter_that_cannot_be_is_refused_where_it_is_asked_for(world: World) -> None:
    one = world.client("c1")
    bad = {"topic": "T", "subString": "a >", "expressionType": "SQL92", "subVersion": 1}
    good = {"topic": "T", "subString": "a > 5", "expressionType": "SQL92"}
    answers = [
        one.ask(46, {"clientId": "c1", "group": "g", "subscriptionData": each})
        for each in (bad, good, {"topic": "T"}, {})
    ]

    assert [answer and answer.code for answer in answers] == [23, 0, 0, 1]


# --- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("GROUPS_MAX", "groups have members"),
        ("CLIENTS_PER_GROUP_MAX", "group g has 1 members"),
        ("MEMBERS_MAX", "all groups together have 1 members"),
        ("TOPICS_PER_GROUP_MAX", "group g subscribes to 2 topics"),
        ("TEXT_CHARS_MAX", "all subscriptions together"),
    ],
)
def test_who_is_one_too_many_is_refused_and_members_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch, limit: str, reason: str
) -> None:
    one, two = world.client("c1"), world.client("c2")
    one.beat()
    monkeypatch.setattr(groups_core, limit, 2 if limit == "TEXT_CHARS_MAX" else 1)
    answer = two.beat("h" if limit == "GROUPS_MAX" else "g", topics={"U": ("*", 1)})

    assert answer.code == 1
    assert reason in (answer.remark or "")
    assert one.beat().code == 0
    assert one.list() == ["c1"]


def test_texts_are_limited_by_how_much_they_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    table: GroupTable[str] = GroupTable()
    hear(table, "c1", "abcd", 9)
    hear(table, "c2", "abcdefgh", 5)
    monkeypatch.setattr(groups_core, "TEXT_CHARS_MAX", 5)

    assert hear(table, "c1", "abcd", 9) is News.NONE
    assert hear(table, "c2", "abcdefgh", 5) is News.NONE, "its word does not count: it brings no character"
    assert "have 5 characters; 5 are" in str(hear(table, "c1", "abcde", 10, 1))
    assert table.expire(SILENT_MS_MAX + 1) == ["g"]
    assert list(table.members("g")) == ["c1"], "who is refused is there nevertheless"
    assert hear(table, "c1", "efgh", 10) is News.FACTS
    assert hear(table, "c1", "a", 11) is News.FACTS
    assert table._chars == 2


def test_what_is_too_long_in_a_heartbeat_is_refused(world: World) -> None:
    one = world.client("c1")
    assert one.beat(topics={"T": ("x" * 4_097, 1)}).code == 1
    assert one.beat(topics={"T" * 256: ("*", 1)}).code == 1
    many = one.ask(34, {"clientID": "c1", "consumerDataSet": [{"groupName": f"g{number}"} for number in range(257)]})
    assert many is not None
    assert many.code == 1
    one.client_id = "c" * 256
    assert one.beat().code == 1


def test_a_table_that_all_have_left_is_empty() -> None:
    table: GroupTable[str] = GroupTable()
    for link in ("c1", "c2"):
        hear(table, link, "a", 1)
        table.hear(link, "h", GroupMember(link, "GO", 1, 0), Facts(subscriptions={link: Subscription()}))
    table.close("c1")
    table.expire(SILENT_MS_MAX + 1)

    assert table.names == []
    assert (table._members, table._chars, table._of_link) == (0, 0, {})


# --- the change of master --------------------------------------------------------------------------------------------


def test_a_slave_tells_what_it_heard_and_what_the_master_wrote(world: World) -> None:
    world.client("c1").beat()
    world.tick(2)
    world.client("c2", world.slave).beat()

    assert world.client("c3", world.slave).list() == ["c1", "c2"]
    assert world.slave.groups.filter_of("g", "T", 1) is ALL


def test_a_new_master_tells_members_that_it_has_not_heard_and_their_subscriptions(world: World) -> None:
    world.client("c1").beat(topics={"T": ("*", 5)})
    world.client("c2").beat(topics={"T": ("*", 5)})
    world.tick(2)
    one = world.client("c1", world.take_over())
    assert one.list() == ["c1", "c2"]
    assert world.master.groups.filter_of("g", "T", 5) is ALL
    assert refused(world.master.groups.filter_of("g", "T", 6)) == 25
    one.beat(topics={"T": ("*", 5)})
    assert one.list() == ["c1", "c2"]


def test_after_a_minute_only_those_that_were_heard_are_members_and_they_hear_it(world: World) -> None:
    world.client("c1").beat()
    world.client("c2").beat()
    world.tick(2)
    one = world.client("c1", world.take_over())
    one.beat()
    world.tick(TAKEOVER_GRACE_MS // 1_000 - 2)
    assert one.list() == ["c1", "c2"]
    one.news.clear()
    world.tick(4)

    assert one.list() == ["c1"]
    assert one.news == ["g"]
    facts = world.slave.consumers.known.groups["g"].facts
    assert facts is not None
    assert facts.members == ("c1",)


def test_who_leaves_a_new_master_is_not_remembered(world: World) -> None:
    world.client("c1").beat()
    world.client("c2").beat()
    world.tick(2)
    master = world.take_over()
    one, two = world.client("c1", master), world.client("c2", master)
    one.beat()
    two.beat()
    disconnect(two)

    assert one.list() == ["c1"]


def test_a_group_that_nobody_came_back_to_is_forgotten(world: World) -> None:
    world.client("c1").beat()
    world.tick(2)
    world.take_over()
    world.tick(TAKEOVER_GRACE_MS // 1_000 + 4)

    assert world.client("c9").list() == NO_MEMBER
    assert refused(world.master.groups.filter_of("g", "T", 1)) == 24
    assert world.master.consumers.known.groups["g"].facts == Facts()


def test_members_that_a_slave_heard_alone_are_written_when_it_is_master(world: World) -> None:
    world.client("c1", world.slave).beat()
    world.tick(2)
    assert world.log.bodies(TOPIC) == []
    world.take_over()
    world.tick(2)

    facts = world.slave.consumers.known.groups["g"].facts
    assert facts is not None
    assert facts.members == ("c1",)


def test_a_list_waits_until_all_that_is_remembered_is_known(world: World) -> None:
    """Go takes an error for an empty list, and gives up its queues."""
    world.client("c1").beat()
    world.tick(2)
    master = world.take_over()
    master.left_bytes = 10
    two = world.client("c2", master)
    two.beat()
    assert two.list() is None
    world.tick()
    assert two.answers[1:] == []
    master.left_bytes = 0
    world.tick()

    assert [json.loads(answer.body) for answer in two.answers[1:]] == [{"consumerIdList": ["c1", "c2"]}]


def test_a_list_does_not_wait_longer_than_its_client(world: World) -> None:
    world.master.left_bytes = 10
    one = world.client("c1")
    one.beat()
    assert one.list() is None
    world.tick(LIST_WAIT_MS_MAX // 1_000 + 1)

    assert [json.loads(answer.body) for answer in one.answers[1:]] == [{"consumerIdList": ["c1"]}]


def test_what_could_not_be_written_of_a_group_is_tried_again(world: World) -> None:
    world.master.refuses = "too few in sync"
    world.client("c1").beat()
    world.tick(3)
    assert "g" not in world.slave.consumers.known.groups
    world.master.refuses = ""
    world.tick(3)

    facts = world.slave.consumers.known.groups["g"].facts
    assert facts is not None
    assert facts.members == ("c1",)


def test_a_list_that_waits_keeps_no_body_and_is_answered_within_the_3_s_of_its_client(world: World) -> None:
    world.master.left_bytes = 10
    one = world.client("c1")
    one.beat()
    world.time.run(901)
    one.ask(38, b"x" * 1_000, consumerGroup="g")
    assert [frame.body for _, _, frame, _ in world.master.groups._asking] == [b""]
    world.tick(2)
    assert len(one.answers) == 2

    assert LIST_WAIT_MS_MAX + 1_000 < 3_000


def test_a_new_master_settles_a_few_groups_in_a_tick(world: World) -> None:
    """Looking at 10,000 at once, its loop would send nothing meanwhile."""
    for number in range(SETTLED_PER_TICK_MAX + 10):
        world.client("c1", world.slave).beat(f"g{number}")
    world.tick()
    world.take_over()
    written = []
    for _ in range(3):
        world.settle()
        written.append(len(world.master.consumers.known.groups))
        world.time.run(1_000)
        world.master.groups.tick()

    assert written == [SETTLED_PER_TICK_MAX, SETTLED_PER_TICK_MAX + 10, SETTLED_PER_TICK_MAX + 10]


def test_members_of_a_group_hear_of_each_other_before_a_new_master_looks_at_all_groups(world: World) -> None:
    for number in range(SETTLED_PER_TICK_MAX + 10):
        world.client("c1", world.slave).beat(f"g{number}")
    one = world.client("c1", world.slave)
    one.beat("h")
    world.client("c2", world.slave).beat("h")
    one.news.clear()
    world.time.run(1_000)
    world.take_over()

    assert one.news == ["h"]
