"""Offsets of consumers: what is told and taken (codes 14, 15, 222), and how it is remembered in the log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollcall_ha.broker.consuming import offsets_log
from rollcall_ha.broker.consuming.offsets_core import (
    NO_RESET,
    Consumers,
    GroupChange,
    Record,
    encode_record,
    fill,
    merge,
)
from rollcall_ha.broker.consuming.offsets_log import COMMIT_INTERVAL_MS, TOPIC, ConsumerLog
from rollcall_ha.broker.protocol.consumers import Facts
from rollcall_ha.node.remoting.frame import Frame
from tests.support.consumer_set import Client, Member, SetLog, Time

OK, SYSTEM_ERROR, BUSY, TOPIC_NOT_EXIST, NOT_FOUND, NO_GROUP, BAD = 0, 1, 2, 17, 22, 26, 29
ONE_WAY = 2
T0 = (b"T", 0)


class World:
    """A master, its log, its time, one client."""

    def __init__(self) -> None:
        self.time, self.log = Time(), SetLog()
        self.master = Member(self.log, self.time, is_master=True)
        self.client = Client(self.master)

    def settle(self) -> None:
        """What was gathered is written and confirmed."""
        self.time.run(COMMIT_INTERVAL_MS)
        self.log.confirm()
        self.time.run(COMMIT_INTERVAL_MS)
        self.log.confirm()

    def messages(self, count: int, key: tuple[bytes, int] = T0) -> None:
        """``count`` messages, stored at 1000, 2000, ... ms."""
        for number in range(count):
            self.log.append(key, b"x", stored_at_ms=1_000 * (number + 1))
        self.log.confirm()

    def take_over(self) -> Client:
        """Another replica is master, and has what is confirmed; a client of it."""
        self.log.cut(self.log.confirmed)
        self.master.is_master = False
        self.log.end_epoch()
        self.master = Member(self.log, self.time, is_master=True)
        return Client(self.master)

    def records(self) -> list[dict[str, object]]:
        return [json.loads(body) for body in self.log.bodies(TOPIC)]


@pytest.fixture
def world() -> World:
    return World()


def code(answer: Frame | None) -> int | None:
    return None if answer is None else answer.code


def offset(answer: Frame | None) -> int:
    assert answer is not None
    assert answer.code == OK, answer.remark
    return int((answer.ext_fields or {})["offset"])


# --- 15 --------------------------------------------------------------------------------------------------------------


def test_a_commit_is_answered_when_it_is_confirmed_and_not_before(world: World) -> None:
    assert world.client.commit(5) is None
    world.time.run(COMMIT_INTERVAL_MS)
    assert len(world.records()) == 1
    assert world.client.answers == []
    world.log.confirm()

    assert [answer.code for answer in world.client.answers] == [OK]
    assert offset(world.client.query()) == 5


def test_commits_of_an_interval_are_one_record_and_the_newest_of_a_queue_counts(world: World) -> None:
    for queue, to in ((0, 5), (1, 6), (0, 7)):
        world.client.commit(to, queue=queue)
    world.settle()

    assert [record["groups"] for record in world.records()] == [{"g": {"offsets": {"T": {"0": 7, "1": 6}}}}]
    assert [answer.code for answer in world.client.answers] == [OK] * 3


def test_what_comes_while_a_record_is_on_its_way_is_one_more_record(world: World) -> None:
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


def test_a_one_way_commit_has_no_answer_and_is_written(world: World) -> None:
    world.client.commit(5, flag=ONE_WAY)
    world.settle()

    assert world.client.answers == []
    assert offset(world.client.query()) == 5


def test_a_repeated_commit_writes_nothing_and_is_answered(world: World) -> None:
    """RocketMQ's clients send all their offsets every 5 s."""
    world.client.commit(5)
    world.settle()

    assert code(world.client.commit(5)) == OK
    world.settle()
    assert len(world.records()) == 1


def test_a_repeated_commit_waits_for_the_record_that_has_it(world: World) -> None:
    world.client.commit(5)
    assert world.client.commit(5) is None
    world.settle()

    assert [answer.code for answer in world.client.answers] == [OK, OK]


def test_a_lower_commit_counts(world: World) -> None:
    world.client.commit(5)
    world.settle()
    world.client.commit(3)
    world.settle()

    assert offset(world.client.query()) == 3


def test_an_offset_below_0_changes_nothing(world: World) -> None:
    world.client.commit(5)
    world.settle()

    assert code(world.client.commit(-1)) == OK
    assert offset(world.client.query()) == 5


def test_a_slave_takes_no_commit_and_tells_no_offset(world: World) -> None:
    """It would be in no log; and what a slave knows may be lower than what was acknowledged."""
    slave = Client(Member(world.log, world.time))

    refused = slave.commit(5), slave.query()
    assert [code(answer) for answer in refused] == [BUSY, BUSY]
    assert all(answer is not None and "not the master" in (answer.remark or "") for answer in refused)


def test_a_commit_that_could_not_be_written_is_refused_with_the_reason(world: World) -> None:
    world.master.refusal = "the disk is full"
    world.client.commit(5)
    world.settle()

    assert [(answer.code, answer.remark) for answer in world.client.answers] == [(BUSY, "the disk is full")]
    world.master.refusal = ""
    assert code(world.client.query()) == NOT_FOUND


def test_commits_that_wait_have_a_limit(world: World) -> None:
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
def test_a_nonsense_commit_is_refused_and_costs_nobody_else(world: World, fields: dict[str, Any]) -> None:
    world.client.commit(5)

    assert code(world.client.ask(15, **fields)) == BAD
    world.settle()
    assert offset(world.client.query()) == 5


def test_a_pull_commits_and_its_nonsense_is_dropped(world: World) -> None:
    world.master.offsets.commit("g", "T", 0, 7)
    world.master.offsets.commit("g" * 300, "T", 0, 7)
    world.master.offsets.commit("g", "T", -3, 7)
    world.settle()

    assert offset(world.client.query()) == 7
    assert list(world.master.consumers.known.groups) == ["g"]


# --- 14 --------------------------------------------------------------------------------------------------------------


def test_a_question_waits_for_an_offset_that_is_being_written(world: World) -> None:
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


def test_a_question_that_waits_hears_busy_when_the_master_changes(world: World) -> None:
    world.client.commit(8, flag=ONE_WAY)
    other = Client(world.master)
    other.query()
    world.time.run(COMMIT_INTERVAL_MS)
    world.take_over()

    assert [answer.code for answer in other.answers] == [BUSY]


def test_an_acknowledged_offset_is_told_by_the_next_master(world: World) -> None:
    world.client.commit(5)
    world.settle()
    world.client.commit(9)
    world.time.run(COMMIT_INTERVAL_MS)
    client = world.take_over()

    assert offset(client.query()) == 5


def test_no_offset_is_told_while_the_folds_are_behind(world: World) -> None:
    world.client.commit(5)
    world.settle()
    world.master.left_bytes = 10
    assert code(world.client.query()) == BUSY
    world.master.left_bytes = 0
    assert offset(world.client.query()) == 5


def test_an_old_commit_is_written_while_the_folds_are_behind(world: World) -> None:
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


def test_a_new_group_begins_at_0_of_a_queue_that_has_its_first_message(world: World) -> None:
    world.messages(3)

    assert offset(world.client.query()) == 0
    assert code(world.client.query(setZeroIfNotFound="false")) == NOT_FOUND


@pytest.mark.parametrize("why", ["no message", "deleted", "far"])
def test_a_new_group_has_no_offset_of_another_queue(world: World, why: str) -> None:
    if why != "no message":
        world.messages(3)
    if why == "deleted":
        world.log.min_offset = world.log.records[1][1]
    if why == "far":
        world.log.append((b"U", 0), b"x" * 10_000_001)
        world.log.confirm()

    assert code(world.client.query()) == NOT_FOUND


# --- 222 -------------------------------------------------------------------------------------------------------------


def reset(world: World, **fields: Any) -> Frame:
    world.client.ask(222, **({"topic": "T", "group": "g", "timestamp": -1, "isForce": "true"} | fields))
    world.settle()
    return world.client.answers[-1]


def table(answer: Frame) -> str:
    assert answer.code == OK, answer.remark
    return answer.body.decode()


def test_a_reset_by_time_moves_all_queues_and_is_told_as_java_writes_it(world: World) -> None:
    world.messages(5)
    world.messages(2, (b"T", 3))
    world.client.beat()

    assert table(reset(world, timestamp=2_500)) == (
        '{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"T"}:2,{"brokerName":"a","queueId":3,"topic":"T"}:2}}'
    )
    assert offset(world.client.query()) == 2
    assert world.master.woken == [(b"T", 0), (b"T", 3)]


def test_a_reset_below_0_goes_to_the_end_and_one_of_a_queue_to_its_offset(world: World) -> None:
    world.messages(5)
    world.client.beat()

    assert "}:5}" in table(reset(world))
    assert "}:3}" in table(reset(world, queueId=0, offset=3))
    refused = reset(world, queueId=0, offset=6)
    assert (refused.code, refused.remark) == (SYSTEM_ERROR, "offset 6 is not within 0 and 5")


def test_a_reset_needs_a_topic_a_group_and_the_master(world: World) -> None:
    world.messages(1)
    assert reset(world).code == NO_GROUP
    world.client.beat()
    assert reset(world, topic="U").code == TOPIC_NOT_EXIST
    assert reset(world, queueId=7).code == TOPIC_NOT_EXIST
    assert code(world.client.ask(222, topic="T", group="g")) == BAD
    world.master.is_master = False
    assert reset(world).code == SYSTEM_ERROR


def test_after_a_reset_the_next_pull_goes_there_and_old_commits_do_not_count(world: World) -> None:
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


def test_a_pull_that_is_there_already_takes_the_reset_silently(world: World) -> None:
    world.messages(5)
    world.client.beat()
    reset(world, timestamp=2_500)

    assert world.master.offsets.take_reset("g", "T", 0, 2) is None
    assert world.client.commit(4) is None
    world.settle()
    assert offset(world.client.query()) == 4


def test_a_reset_outlives_the_master_and_its_end_does_too(world: World) -> None:
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


def test_a_reset_is_not_told_before_it_is_confirmed_nor_by_a_slave(world: World) -> None:
    world.messages(5)
    world.client.beat()
    world.settle()
    world.client.ask(222, topic="T", group="g", timestamp=2_500)
    assert world.master.offsets.take_reset("g", "T", 0, 5) is None
    world.settle()
    world.master.is_master = False

    assert world.master.offsets.take_reset("g", "T", 0, 5) is None


# --- the log ---------------------------------------------------------------------------------------------------------


def test_a_record_that_is_none_of_ours_is_counted_and_changes_nothing(world: World) -> None:
    world.client.commit(5)
    world.settle()
    for body in (
        b"",
        b"{",
        b"\xff",
        b"[]",
        b'{"since":-1}',
        b'{"since":99,"groups":{}}',
        b'{"groups":{"g":{}}}',
        b"[" * 9999,
    ):
        world.log.append((TOPIC, 0), body)
    world.log.confirm()

    assert offset(world.client.query()) == 5
    assert world.master.consumers.known.nonsense == 8


def test_a_cut_below_what_was_taken_is_noticed(world: World) -> None:
    """Even if the queue has grown past it again before anybody looked."""
    for to in (5, 6):
        world.client.commit(to)
        world.settle()
    slave = Member(world.log, world.time)
    assert slave.consumers.follow()
    world.log.cut(1)
    world.log.readers = []
    for to in (7, 8):
        world.log.append((TOPIC, 0), encode_record(Record(0, {"h": GroupChange(offsets={"T": {0: to}})})))
    world.log.confirm()

    assert slave.consumers.follow()
    assert slave.consumers.known.offset("g", "T", 0) == 5
    assert slave.consumers.known.offset("h", "T", 0) == 8


def test_a_log_that_is_cut_to_nothing_knows_nothing(world: World) -> None:
    world.client.commit(5)
    world.settle()
    world.log.cut(0)

    assert code(world.client.query()) == NOT_FOUND


def test_another_record_in_the_place_of_one_is_told_and_never_skipped(world: World) -> None:
    world.client.commit(5)
    world.settle()
    world.log.append((b"V", 0), b"{}")
    world.log.confirm()
    key, place, size = world.log.records[-1]
    world.log.records[-1] = ((TOPIC, 0), place, size)
    assert key == (b"V", 0)

    answer = world.client.query()
    assert code(answer) == BUSY
    assert answer is not None
    assert "is record 0 of b'V'" in (answer.remark or "")


def test_a_rebuild_reads_a_few_records_in_a_turn_and_is_busy_meanwhile(world: World) -> None:
    padding = Facts(members=("x" * 100_000,))
    for to in range(20):
        change = GroupChange(offsets={"T": {0: to}}, facts=padding)
        world.log.append((TOPIC, 0), encode_record(Record(0, {"g": change})))
    world.log.confirmed = len(world.log.records)
    client = Client(Member(world.log, world.time, is_master=True))

    assert code(client.query()) == BUSY
    world.time.run(10)
    assert offset(client.query()) == 19


def told_again(world: World) -> None:
    """An hour passes: all groups are told again."""
    world.time.run(offsets_log.AGAIN_MS)
    world.master.consumers.tick()
    for _ in range(6):
        world.settle()


def test_groups_are_told_again_and_what_lies_before_may_be_deleted(world: World) -> None:
    for group in ("g", "h", "i"):
        world.client.commit(5, group)
        world.settle()
    world.client.commit(6, "h")
    world.settle()
    told_again(world)
    assert [list(record["again"]) for record in world.records()[4:]] == [["g"], ["h"], ["i"]]  # type: ignore[call-overload]
    assert [record["since"] for record in world.records()] == [0, 0, 0, 0, 0, 0, 4]
    world.log.min_offset = world.log.records[4][1]
    client = world.take_over()

    assert [offset(client.query(group)) for group in ("g", "h", "i")] == [5, 6, 5]


def test_an_offset_that_is_committed_meanwhile_is_not_taken_back_by_what_is_told_again(world: World) -> None:
    """The record that tells 5 again lies behind the one with 9, which was not confirmed when it was written."""
    world.client.commit(5)
    world.settle()
    world.log.append((TOPIC, 0), encode_record(Record(0, {"g": GroupChange(offsets={"T": {0: 9}})})))
    told_again(world)
    client = world.take_over()

    assert [record.get("again") for record in world.records()][-1] == {"g": {"offsets": {"T": {"0": 5}}}}
    assert offset(client.query()) == 9


def test_groups_count_as_told_again_only_when_that_is_confirmed(world: World) -> None:
    for group in ("g", "h"):
        world.client.commit(5, group)
        world.settle()
    world.time.run(offsets_log.AGAIN_MS)
    world.master.consumers.tick()
    world.time.run(COMMIT_INTERVAL_MS)
    world.log.confirm()
    world.time.run(COMMIT_INTERVAL_MS)
    assert [list(record["again"]) for record in world.records()[2:]] == [["g"], ["h"]]  # type: ignore[call-overload]
    world.log.cut(world.log.confirmed)
    world.log.end_epoch()
    world.master.consumers.tick()
    for _ in range(4):
        world.settle()

    assert [list(record["again"]) for record in world.records()[2:]] == [["g"], ["g"], ["h"]]  # type: ignore[call-overload]
    assert [record["since"] for record in world.records()[2:]] == [0, 0, 3]


def test_a_log_that_begins_in_the_middle_is_busy_until_all_groups_are_told_again(world: World) -> None:
    """Told that it has no offset, a group would go to the end of its queue."""
    for group in ("g", "h"):
        world.client.commit(5, group)
        world.settle()
    world.log.min_offset = world.log.records[1][1]
    client = world.take_over()

    assert code(client.query("g")) == BUSY
    assert offset(client.query("h")) == 5
    world.master.consumers.tick()
    for _ in range(4):
        world.settle()
    assert code(client.query("g")) == NOT_FOUND
    assert offset(client.query("h")) == 5


@pytest.mark.slow
def test_many_records_are_a_reason_to_tell_again(world: World) -> None:
    for to in range(offsets_log.AGAIN_RECORDS):
        world.log.append((TOPIC, 0), encode_record(Record(0, {"g": GroupChange(offsets={"T": {0: to}})})))
    world.log.confirm()
    while not world.master.consumers.follow():
        world.time.run(1)
    world.master.consumers.tick()
    world.settle()

    assert world.master.consumers.known.since == offsets_log.AGAIN_RECORDS


@pytest.mark.parametrize("limit", ["ROWS_MAX", "ROWS_PER_GROUP_MAX"])
def test_new_queues_and_groups_have_a_limit_and_old_ones_go_on(
    world: World, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    world.client.commit(5)
    world.settle()
    monkeypatch.setattr(offsets_log, limit, 1)
    monkeypatch.setattr(offsets_log, "GROUPS_MAX", 1)

    assert code(world.client.commit(5, queue=1)) == BUSY
    assert code(world.client.commit(5, "h")) == BUSY
    assert world.client.commit(6) is None


def test_a_log_without_a_master_writes_nothing(world: World) -> None:
    world.master.is_master = False
    reason = world.master.consumers.note("g", GroupChange(offsets={"T": {0: 1}}))

    assert "not the master" in reason
    assert isinstance(world.master.consumers, ConsumerLog)


def test_newer_rows_replace_and_older_ones_fill() -> None:
    known = GroupChange(offsets={"T": {0: 5}}, resets={"T": {0: NO_RESET}}, facts=Facts(members=("a",)))
    old = GroupChange(offsets={"T": {0: 1, 1: 2}}, resets={"T": {0: 3}}, holders={"T": {0: "c"}}, facts=Facts())

    assert fill(known, old) == 2
    assert known == GroupChange(
        offsets={"T": {0: 5, 1: 2}}, resets={"T": {0: NO_RESET}}, holders={"T": {0: "c"}}, facts=Facts(members=("a",))
    )
    assert merge(known, old) == 0
    assert known == old
    value = Consumers()
    value.fold(0, encode_record(Record(0, {"g": known})))
    assert (value.rows, value.groups["g"]) == (4, old)
