"""Offsets of consumers: what is told and taken (codes 14, 15, 222)."""

from __future__ import annotations

from typing import Any

import pytest

from rollcall_ha.broker.consuming import offsets, offsets_log
from rollcall_ha.broker.consuming.offsets_core import NO_RESET
from rollcall_ha.broker.consuming.offsets_log import COMMIT_INTERVAL_MS
from rollcall_ha.node.remoting.frame import Frame
from tests.support.consumer_set import Client, Member, SmallSet, code, offset

OK, SYSTEM_ERROR, BUSY, TOPIC_NOT_EXIST, NOT_FOUND, NO_GROUP, BAD = 0, 1, 2, 17, 22, 26, 29
ONE_WAY = 2


@pytest.fixture
def world() -> SmallSet:
    return SmallSet()


# --- 15 --------------------------------------------------------------------------------------------------------------


def test_a_commit_is_answered_when_it_is_confirmed_and_not_before(world: SmallSet) -> None:
    assert world.client.commit(5) is None
    world.time.run(COMMIT_INTERVAL_MS)
    assert len(world.records()) == 1
    assert world.client.answers == []
    world.log.confirm()

    assert [answer.code for answer in world.client.answers] == [OK]
    assert offset(world.client.query()) == 5


def test_commits_of_an_interval_are_one_record_and_the_newest_of_a_queue_counts(world: SmallSet) -> None:
    for queue, to in ((0, 5), (1, 6), (0, 7)):
        world.client.commit(to, queue=queue)
    world.settle()

    assert [record["groups"] for record in world.records()] == [{"g": {"offsets": {"T": {"0": 7, "1": 6}}}}]
    assert [answer.code for answer in world.client.answers] == [OK] * 3


def test_what_comes_while_a_record_is_on_its_way_is_one_more_record(world: SmallSet) -> None:
    world.client.commit(1)
    world.time.run(COMMIT_INTERVAL_MS)
    for to in (2, 3, 4):
        world.client.commit(to)
        world.time.run(COMMIT_INTERVAL_MS)

    assert len(world.records()) == 1
    world.log.confirm()
    world.time.run(1)
    assert len(world.records()) == 2
    world.log.confirm()
    assert offset(world.client.query()) == 4


def test_a_one_way_commit_has_no_answer_and_is_written(world: SmallSet) -> None:
    world.client.commit(5, flag=ONE_WAY)
    world.settle()

    assert world.client.answers == []
    assert offset(world.client.query()) == 5


def test_a_repeated_commit_writes_nothing_and_is_answered(world: SmallSet) -> None:
    """RocketMQ's clients send all their offsets every 5 s."""
    world.client.commit(5)
    world.settle()

    assert code(world.client.commit(5)) == OK
    world.settle()
    assert len(world.records()) == 1


def test_a_repeated_commit_waits_for_the_record_that_has_it(world: SmallSet) -> None:
    world.client.commit(5)
    assert world.client.commit(5) is None
    world.settle()

    assert [answer.code for answer in world.client.answers] == [OK, OK]


def test_a_lower_commit_counts(world: SmallSet) -> None:
    world.client.commit(5)
    world.settle()
    world.client.commit(3)
    world.settle()

    assert offset(world.client.query()) == 3


def test_an_offset_below_0_changes_nothing(world: SmallSet) -> None:
    world.client.commit(5)
    world.settle()

    assert code(world.client.commit(-1)) == OK
    assert offset(world.client.query()) == 5


def test_a_slave_takes_no_commit_and_tells_no_offset(world: SmallSet) -> None:
    """It would be in no log; and what a slave knows may be lower than what was acknowledged."""
    slave = Client(Member(world.log, world.time))

    refused = slave.commit(5), slave.query()
    assert [code(answer) for answer in refused] == [BUSY, BUSY]
    assert all(answer is not None and "not the master" in (answer.remark or "") for answer in refused)


def test_a_commit_that_could_not_be_written_is_refused_with_the_reason(world: SmallSet) -> None:
    world.master.refuses = "the disk is full"
    world.client.commit(5)
    world.settle()

    assert [(answer.code, answer.remark) for answer in world.client.answers] == [(BUSY, "the disk is full")]
    world.master.refuses = ""
    assert code(world.client.query()) == NOT_FOUND


@pytest.mark.slow
def test_commits_that_wait_have_a_limit(world: SmallSet) -> None:
    for number in range(offsets_log.WAITING_MAX):
        world.client.commit(number)

    refused = world.client.commit(99_999)
    assert code(refused) == BUSY
    assert refused is not None
    assert "10000 requests" in (refused.remark or "")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"consumerGroup": "g", "topic": "T", "queueId": 0},
        {"consumerGroup": "g", "topic": "T", "queueId": -1, "commitOffset": 1},
        {"consumerGroup": "g", "topic": "T", "queueId": 1 << 31, "commitOffset": 1},
        {"consumerGroup": "g", "topic": "", "queueId": 0, "commitOffset": 1},
        {"consumerGroup": "g/h", "topic": "T", "queueId": 0, "commitOffset": 1},
        {"consumerGroup": "g\n", "topic": "T", "queueId": 0, "commitOffset": 1},
        {"consumerGroup": "g" * 256, "topic": "T", "queueId": 0, "commitOffset": 1},
        {"consumerGroup": "g", "topic": "T", "queueId": 0, "commitOffset": 1 << 63},
    ],
)
def test_a_nonsense_commit_is_refused_and_costs_nobody_else(world: SmallSet, fields: dict[str, Any]) -> None:
    world.client.commit(5)

    assert code(world.client.ask(15, **fields)) == BAD
    world.settle()
    assert offset(world.client.query()) == 5


def test_a_pull_commits(world: SmallSet) -> None:
    world.master.offsets.commit("g", "T", 0, 7)
    world.settle()

    assert offset(world.client.query()) == 7


def test_a_commit_of_a_queue_that_cannot_be_is_refused_and_of_one_that_has_records_is_not(world: SmallSet) -> None:
    refused = world.client.commit(5, queue=8)
    assert refused is not None
    assert (refused.code, refused.remark) == (BAD, "queueId 8: topic T has 8 queues, from 0")
    world.messages(1, (b"T", 8))
    world.master.left_bytes = 10
    assert code(world.client.commit(5, queue=8)) == BUSY
    world.master.left_bytes = 0

    assert world.client.commit(5, queue=8) is None
    assert world.client.commit(5, queue=7) is None


def test_requests_that_wait_keep_no_body(world: SmallSet) -> None:
    body = b"x" * 1_000
    fields = {"consumerGroup": "g", "topic": "T", "queueId": 0}
    world.client.ask(15, body, **fields, commitOffset=5)
    world.client.ask(14, body, **fields)
    kept = [
        cell.cell_contents.body
        for waiting in world.master.consumers._gathered.waiting
        for cell in getattr(waiting, "__closure__", ())
        if isinstance(cell.cell_contents, Frame)
    ]

    assert kept == [b"", b""]


# --- 14 --------------------------------------------------------------------------------------------------------------


def test_a_question_waits_for_an_offset_that_is_being_written(world: SmallSet) -> None:
    """A member that takes a queue over asks just when its last owner has committed."""
    world.client.commit(5)
    world.settle()
    world.client.commit(8, flag=ONE_WAY)
    other = Client(world.master)

    assert other.query() is None
    world.time.run(COMMIT_INTERVAL_MS)
    assert other.answers == []
    world.log.confirm()
    assert offset(other.answers[0]) == 8


def test_a_question_that_waits_hears_busy_when_the_master_changes(world: SmallSet) -> None:
    world.client.commit(8, flag=ONE_WAY)
    other = Client(world.master)
    other.query()
    world.time.run(COMMIT_INTERVAL_MS)
    world.take_over()

    assert [answer.code for answer in other.answers] == [BUSY]


def test_an_acknowledged_offset_is_told_by_the_next_master(world: SmallSet) -> None:
    world.client.commit(5)
    world.settle()
    world.client.commit(9)
    world.time.run(COMMIT_INTERVAL_MS)
    client = world.take_over()

    assert offset(client.query()) == 5


def test_no_offset_is_told_while_the_folds_are_behind(world: SmallSet) -> None:
    world.client.commit(5)
    world.settle()
    world.master.left_bytes = 10
    assert code(world.client.query()) == BUSY
    world.master.left_bytes = 0
    assert offset(world.client.query()) == 5


def test_an_old_commit_is_written_while_the_folds_are_behind(world: SmallSet) -> None:
    """5 is known and 9 confirmed but not taken in: "the same as known" would lose the 5 that is said now."""
    world.client.commit(5)
    world.settle()
    world.client.commit(9)
    world.time.run(COMMIT_INTERVAL_MS)
    world.master.left_bytes = 10
    world.log.confirm()
    world.client.commit(5, flag=ONE_WAY)
    world.settle()
    world.master.left_bytes = 0

    assert offset(world.client.query()) == 5


def test_a_new_group_begins_at_0_of_a_queue_that_has_its_first_message(world: SmallSet) -> None:
    world.messages(3)

    assert offset(world.client.query()) == 0
    assert code(world.client.query(setZeroIfNotFound="false")) == NOT_FOUND


@pytest.mark.parametrize("why", ["no message", "deleted", "far"])
def test_a_new_group_has_no_offset_of_another_queue(world: SmallSet, why: str) -> None:
    if why != "no message":
        world.messages(3)
    if why == "deleted":
        world.client.commit(1, "h")
        world.settle()
        world.log.min_offset = world.log.records[1][1]
    if why == "far":
        world.log.append((b"U", 0), b"x" * 10_000_001)
        world.log.confirm()

    assert code(world.client.query()) == NOT_FOUND


# --- 222 -------------------------------------------------------------------------------------------------------------


def reset(world: SmallSet, **fields: Any) -> Frame:
    world.client.ask(222, **({"topic": "T", "group": "g", "timestamp": -1, "isForce": "true"} | fields))
    world.settle()
    return world.client.answers[-1]


def table(answer: Frame) -> str:
    assert answer.code == OK, answer.remark
    return answer.body.decode()


def test_a_reset_by_time_moves_all_queues_and_is_told_as_java_writes_it(world: SmallSet) -> None:
    world.messages(5)
    world.messages(2, (b"T", 3))
    world.client.beat()

    assert table(reset(world, timestamp=2_500)) == (
        '{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:2,{"brokerName":"a","queueId":3,"topic":"T"}:2}}'
    )
    assert offset(world.client.query()) == 2
    assert world.master.woken == [(b"T", 0), (b"T", 3)]


def test_a_reset_below_0_goes_to_the_end_and_one_of_a_queue_to_its_offset(world: SmallSet) -> None:
    world.messages(5)
    world.client.beat()

    assert "}:5}" in table(reset(world))
    assert "}:3}" in table(reset(world, queueId=0, offset=3))
    refused = reset(world, queueId=0, offset=6)
    assert (refused.code, refused.remark) == (SYSTEM_ERROR, "offset 6 is not within 0 and 5")


def test_a_reset_needs_a_topic_a_group_and_the_master(world: SmallSet) -> None:
    world.messages(1)
    assert reset(world).code == NO_GROUP
    world.client.beat()
    assert reset(world, topic="U").code == TOPIC_NOT_EXIST
    assert reset(world, queueId=7).code == TOPIC_NOT_EXIST
    assert code(world.client.ask(222, topic="T", group="g")) == BAD
    world.master.is_master = False
    assert reset(world).code == SYSTEM_ERROR


def test_a_reset_of_more_queues_than_one_turn_can_search_is_refused(
    world: SmallSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets, "RESET_QUEUES_MAX", 2)
    for queue in range(3):
        world.messages(1, (b"T", queue))
    world.client.beat()

    refused = reset(world, timestamp=500)
    assert (refused.code, refused.remark) == (BAD, "T has 3 queues; 2 are reset at once: name a queueId")
    assert "}:0}" in table(reset(world, timestamp=500, queueId=2))


def test_after_a_reset_the_next_pull_goes_there_and_old_commits_do_not_count(world: SmallSet) -> None:
    world.messages(5)
    world.client.beat()
    world.client.commit(4)
    world.settle()
    reset(world, timestamp=2_500)
    offsets = world.master.offsets

    assert code(world.client.commit(5)) == OK
    world.settle()
    assert offset(world.client.query()) == 2
    assert offsets.take_reset("g", "T", 0, 5) == 2
    assert offsets.take_reset("g", "T", 0, 5) is None, "it is told once"
    world.client.commit(3)
    world.settle()
    assert offset(world.client.query()) == 3


def test_a_pull_that_is_there_already_takes_the_reset_silently(world: SmallSet) -> None:
    world.messages(5)
    world.client.beat()
    reset(world, timestamp=2_500)

    assert world.master.offsets.take_reset("g", "T", 0, 2) is None
    assert world.client.commit(4) is None
    world.settle()
    assert offset(world.client.query()) == 4


def test_a_reset_outlives_the_master_and_its_end_does_too(world: SmallSet) -> None:
    world.messages(5)
    world.client.beat()
    reset(world, timestamp=2_500)
    client = world.take_over()

    assert code(client.commit(5)) == OK
    assert offset(client.query()) == 2
    assert world.master.offsets.take_reset("g", "T", 0, 5) == 2
    world.settle()
    world.take_over()
    assert world.master.consumers.follow()
    assert world.master.offsets.take_reset("g", "T", 0, 5) is None


def test_a_reset_is_not_told_from_half_of_the_log(world: SmallSet) -> None:
    """Its end may be in the other half: the group would be sent back once more."""
    world.messages(5)
    world.client.beat()
    reset(world, timestamp=2_500)
    world.master.left_bytes = 10
    assert world.master.offsets.take_reset("g", "T", 0, 5) is None
    world.master.left_bytes = 0

    assert world.master.offsets.take_reset("g", "T", 0, 5) == 2


def test_a_reset_is_told_once_even_if_its_end_could_not_be_written_at_first(world: SmallSet) -> None:
    world.messages(5)
    world.client.beat()
    reset(world, timestamp=2_500)
    assert world.master.offsets.take_reset("g", "T", 0, 5) == 2
    world.master.refuses = "too few in sync"
    world.settle()
    assert world.master.offsets.take_reset("g", "T", 0, 3) is None
    world.master.refuses = ""
    world.settle()

    assert world.records()[-1]["groups"] == {"g": {"resets": {"T": {"0": NO_RESET}}}}
    assert world.client.commit(4) is None
    world.settle()
    assert offset(world.client.query()) == 4


def test_a_newer_reset_is_not_ended_with_the_older_one(world: SmallSet) -> None:
    world.messages(5)
    world.client.beat()
    reset(world, timestamp=2_500)
    assert world.master.offsets.take_reset("g", "T", 0, 5) == 2
    world.master.refuses = "too few in sync"
    world.time.run(COMMIT_INTERVAL_MS)
    world.client.ask(222, topic="T", group="g", timestamp=1_500)
    world.master.refuses = ""
    world.settle()

    assert world.master.offsets.take_reset("g", "T", 0, 5) == 1


def test_a_reset_is_not_told_before_it_is_confirmed_nor_by_a_slave(world: SmallSet) -> None:
    world.messages(5)
    world.client.beat()
    world.settle()
    world.client.ask(222, topic="T", group="g", timestamp=2_500)
    assert world.master.offsets.take_reset("g", "T", 0, 5) is None
    world.settle()
    world.master.is_master = False

    assert world.master.offsets.take_reset("g", "T", 0, 5) is None
