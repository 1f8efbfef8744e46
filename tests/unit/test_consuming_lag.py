"""How far groups are behind, who holds a queue, what stands still, and how a master tells it."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import pytest

from rollcall_ha.broker.consuming import lag as module
from rollcall_ha.broker.consuming.lag import LAG_SERIES_MAX, OTHERS
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.pull import PullRequest
from rollcall_ha.controller.contract.consuming import (
    STUCK_AFTER_MS,
    GroupAnswer,
    GroupPage,
    Permission,
    TopicAnswer,
    TopicPage,
)
from rollcall_ha.controller.contract.ids import MasterEpoch
from tests.support.consumer_set import KEY, Client, SmallSet

T = TypeVar("T")


def told(client: Client, code: ClientCode, kind: type[T], **fields: object) -> T:
    answer = client.ask(code, **fields)
    assert answer is not None
    assert answer.code == 0, answer.remark
    return msgspec.json.decode(answer.body, type=kind)


def group(client: Client, name: str = "g", **fields: object) -> GroupAnswer:
    return told(client, ClientCode.TELL_GROUP, GroupAnswer, group=name, **fields)


def pull(client: Client, queue: int = 0, topic: str = "T", name: str = "g") -> None:
    client.member.lags.note_pull(client.link, PullRequest(name, topic, queue, 0))


@pytest.fixture
def small() -> SmallSet:
    """Ten messages in queue 0 of T, of which the group g has finished three."""
    made = SmallSet()
    made.messages(10)
    made.client.beat()
    made.client.commit(3)
    made.settle()
    return made


def test_a_group_is_told_with_its_members_and_its_lag_per_queue(small: SmallSet) -> None:
    pull(small.client)
    found = group(small.client)
    (line,), (member,) = found.groups, found.members
    assert (line.lag, line.members, line.topics, line.stuck_queues, line.set_key) == (7, 1, 1, 0, KEY)
    assert (member.client_id, member.address, member.queues, member.lag) == ("c1", "10.0.0.1:4000", 1, 7)
    first, *others = found.queues
    assert (first.offset, first.max_offset, first.lag, first.holder) == (3, 10, 7, "c1")
    assert len(others) == 7
    assert {(one.offset, one.lag, one.holder) for one in others} == {(None, None, "")}


def test_a_queue_is_stuck_that_has_messages_and_does_not_move_for_a_minute(small: SmallSet) -> None:
    pull(small.client)
    assert not group(small.client).queues[0].is_stuck
    small.time.run(STUCK_AFTER_MS)
    found = group(small.client)
    assert (found.queues[0].still_ms, found.queues[0].is_stuck) == (STUCK_AFTER_MS, True)
    assert (found.groups[0].stuck_queues, found.members[0].stuck_queues) == (1, 1)
    small.client.commit(4)
    small.settle()
    assert (group(small.client).queues[0].still_ms, group(small.client).groups[0].stuck_queues) == (0, 0)
    small.client.commit(10)
    small.settle()
    assert group(small.client).queues[0].still_ms is None, "nothing is behind it"


def test_a_queue_is_held_by_who_pulled_it_last_and_is_a_member_still(small: SmallSet) -> None:
    other = Client(small.master, "c2", "10.0.0.2:4000")
    other.beat()
    pull(small.client)
    pull(other)
    assert group(small.client).queues[0].holder == "c2"
    small.master.groups.disconnected(other.link)
    small.settle()
    assert group(small.client).queues[0].holder == ""
    pull(Client(small.master, "stranger"))
    assert group(small.client).queues[0].holder == ""


def test_sums_are_of_a_sweep_and_series_are_bounded(small: SmallSet, monkeypatch: pytest.MonkeyPatch) -> None:
    small.messages(5, (b"U", 0))
    small.client.beat("h", {"U": ("*", 1)})
    small.client.commit(1, "h", "U")
    small.settle()
    lags = small.master.lags
    for _ in range(2):
        lags.tick()
    assert lags.series() == [("g", "T", 7), ("h", "U", 4), (OTHERS, OTHERS, 0)]
    monkeypatch.setattr(module, "LAG_SERIES_MAX", 1)
    assert lags.series() == [("g", "T", 7), (OTHERS, OTHERS, 4)]
    assert LAG_SERIES_MAX > 1
    small.time.run(STUCK_AFTER_MS)
    for _ in range(2):
        lags.tick()
    assert lags.stuck_queues == 2
    assert [one.lag for one in told(small.client, ClientCode.TELL_GROUPS, GroupPage).groups] == [7, 4]


def test_a_sweep_goes_on_where_its_second_ended(small: SmallSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ROWS_PER_TICK_MAX", 3)
    ticks = 0
    while "g" not in small.master.lags.sums:
        small.master.lags.tick()
        ticks += 1
    assert ticks == 3, "eight queues, three a second"


def test_lag_did_not_fall_to_nothing_while_queues_were_built_anew(small: SmallSet) -> None:
    small.master.lags.tick()
    small.master.left_bytes = 1
    for _ in range(3):
        small.master.lags.tick()
    assert small.master.lags.series()[0] == ("g", "T", 7)


def test_a_slave_sums_nothing_and_tells_nothing(small: SmallSet) -> None:
    small.master.lags.tick()
    small.master.is_master = False
    small.master.lags.tick()
    assert small.master.lags.series() == [(OTHERS, OTHERS, 0)]
    for code in (ClientCode.TELL_TOPICS, ClientCode.TELL_TOPIC, ClientCode.TELL_GROUPS, ClientCode.TELL_GROUP):
        answer = small.client.ask(code, group="g", topic="T")
        assert answer is not None
        assert answer.code == ClientResult.SYSTEM_BUSY


def test_topics_come_by_name_and_page(small: SmallSet) -> None:
    small.messages(1, (b"U", 0))
    page: Any = told(small.client, ClientCode.TELL_TOPICS, TopicPage, limit=1, part="T", after="SELF_TEST_TOPIC")
    assert ([one.topic for one in page.topics], page.next_after) == (["T"], "T")
    every = told(small.client, ClientCode.TELL_TOPICS, TopicPage)
    assert every.next_after is None
    assert {one.topic: one.is_own for one in every.topics}.items() >= {"T": False, "U": False, "TBW102": True}.items()
    nonsense = small.client.ask(ClientCode.TELL_TOPICS, limit=0)
    assert nonsense is not None
    assert nonsense.code == ClientResult.SYSTEM_ERROR


def test_a_topic_is_told_with_its_queues_and_its_readers(small: SmallSet) -> None:
    small.master.lags.tick()
    found = told(small.client, ClientCode.TELL_TOPIC, TopicAnswer, topic="T")
    assert [(one.group, one.lag) for one in found.groups] == [("g", 7)]
    assert [one.max_offset for one in found.queues] == [10, *[0] * 7]
    assert found.topics[0].permission is Permission.READ_WRITE
    absent = small.client.ask(ClientCode.TELL_TOPIC, topic="no_such")
    assert absent is not None
    assert absent.code == ClientResult.TOPIC_NOT_EXIST


def test_what_a_member_pulls_that_is_no_queue_is_forgotten(small: SmallSet) -> None:
    pull(small.client, queue=99)
    pull(small.client, topic="nowhere")
    pull(small.client)
    small.master.lags.tick()
    small.master.lags.tick()
    assert small.master.lags._holders == {"g": {("T", 0): "c1"}}


def test_a_new_master_counts_standstill_from_its_own_beginning(small: SmallSet) -> None:
    group(small.client)
    small.time.run(STUCK_AFTER_MS)
    client = small.take_over()
    small.master.master_epoch = MasterEpoch(2)
    assert group(client).queues[0].still_ms == 0
