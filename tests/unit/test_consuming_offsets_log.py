"""The topic in which a set remembers its consumers: rebuilds, cuts, damage, telling groups again, limits."""

from __future__ import annotations

import pytest

from rollcall_ha.broker.consuming import offsets_log
from rollcall_ha.broker.consuming.offsets_core import (
    GROUP_BYTES_MAX,
    NAME_BYTES_MAX,
    NO_RESET,
    Consumers,
    GroupChange,
    Record,
    encode_record,
    merge,
)
from rollcall_ha.broker.consuming.offsets_log import COMMIT_INTERVAL_MS, TOPIC, ConsumerLog
from rollcall_ha.broker.protocol.consumers import Facts, Subscription
from tests.support.consumer_set import Client, Member, SmallSet, code, offset

BUSY, NOT_FOUND = 2, 22


@pytest.fixture
def world() -> SmallSet:
    return SmallSet()


def test_a_record_that_is_none_of_ours_is_counted_and_changes_nothing(world: SmallSet) -> None:
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


def test_a_cut_below_what_was_taken_is_noticed(world: SmallSet) -> None:
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


def test_a_log_that_is_cut_to_nothing_knows_nothing(world: SmallSet) -> None:
    world.client.commit(5)
    world.settle()
    world.log.cut(0)

    assert code(world.client.query()) == NOT_FOUND


def test_another_record_in_the_place_of_one_is_told_and_never_skipped(world: SmallSet) -> None:
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


def test_a_queue_that_names_other_records_is_told_once_and_read_on_when_it_is_built_anew(world: SmallSet) -> None:
    world.client.commit(5)
    world.settle()
    world.log.append((TOPIC, 0), encode_record(Record(0, {"g": GroupChange(offsets={"T": {0: 9}})})))
    whole = world.log.records[-1]
    world.log.records[-1] = (whole[0], whole[1] - 1, whole[2])
    world.log.confirm()
    for _ in range(3):
        assert code(world.client.query()) == BUSY
        world.time.run(10)
    assert world.master.damage == [world.master.consumers.trouble] != [""]
    world.log.records[-1] = whole
    world.master.left_bytes = 10
    assert code(world.client.query()) == BUSY
    world.master.left_bytes = 0

    assert offset(world.client.query()) == 9
    assert world.master.consumers.trouble == ""
    world.log.records[-1] = (whole[0], whole[1] - 1, whole[2])
    world.take_over()
    assert not world.master.consumers.follow()
    world.time.run(10)
    assert len(world.master.damage) == 1


def test_a_slave_knows_the_groups_before_it_is_elected(world: SmallSet) -> None:
    world.client.commit(5)
    world.settle()
    slave = Member(world.log, world.time)
    slave.consumers.tick()

    assert slave.consumers.known.offset("g", "T", 0) == 5


def test_a_rebuild_reads_a_few_records_in_a_turn_and_is_busy_meanwhile(world: SmallSet) -> None:
    padding = Facts(members=("x" * 100_000,))
    for to in range(20):
        change = GroupChange(offsets={"T": {0: to}}, facts=padding)
        world.log.append((TOPIC, 0), encode_record(Record(0, {"g": change})))
    world.log.confirmed = len(world.log.records)
    client = Client(Member(world.log, world.time, is_master=True))

    assert code(client.query()) == BUSY
    world.time.run(10)
    assert offset(client.query()) == 19


def told_again(world: SmallSet) -> None:
    """An hour passes: all groups are told again."""
    world.time.run(offsets_log.AGAIN_MS)
    world.master.consumers.tick()
    for _ in range(6):
        world.settle()


def test_groups_are_told_again_and_what_lies_before_may_be_deleted(world: SmallSet) -> None:
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


def test_an_offset_that_is_committed_meanwhile_is_not_taken_back_by_what_is_told_again(world: SmallSet) -> None:
    """The record that tells 5 again lies behind the one with 9, which was not confirmed when it was written."""
    world.client.commit(5)
    world.settle()
    world.log.append((TOPIC, 0), encode_record(Record(0, {"g": GroupChange(offsets={"T": {0: 9}})})))
    told_again(world)
    client = world.take_over()

    assert [record.get("again") for record in world.records()][-1] == {"g": {"offsets": {"T": {"0": 5}}}}
    assert offset(client.query()) == 9


def test_groups_count_as_told_again_only_when_that_is_confirmed(world: SmallSet) -> None:
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


def test_a_log_that_begins_in_the_middle_is_busy_until_all_groups_are_told_again(world: SmallSet) -> None:
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


def test_a_log_that_begins_in_the_middle_and_has_no_record_of_the_topic_is_not_whole(world: SmallSet) -> None:
    world.messages(2)
    world.log.min_offset = world.log.records[1][1]

    assert code(world.client.query(setZeroIfNotFound="false")) == BUSY
    world.master.consumers.tick()
    world.settle()
    assert code(world.client.query(setZeroIfNotFound="false")) == NOT_FOUND


@pytest.mark.slow
def test_many_records_are_a_reason_to_tell_again(world: SmallSet) -> None:
    for to in range(offsets_log.AGAIN_RECORDS):
        world.log.append((TOPIC, 0), encode_record(Record(0, {"g": GroupChange(offsets={"T": {0: to}})})))
    world.log.confirm()
    while not world.master.consumers.follow():
        world.time.run(1)
    world.master.consumers.tick()
    world.settle()

    assert world.master.consumers.known.since == offsets_log.AGAIN_RECORDS


@pytest.mark.parametrize("limit", ["ROWS_MAX", "GROUP_BYTES_MAX"])
def test_new_queues_and_groups_have_a_limit_and_old_ones_go_on(
    world: SmallSet, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    world.client.commit(5)
    world.settle()
    monkeypatch.setattr(offsets_log, limit, 1 if limit == "ROWS_MAX" else 50)
    monkeypatch.setattr(offsets_log, "GROUPS_MAX", 1)

    assert code(world.client.commit(5, queue=1)) == BUSY
    assert code(world.client.commit(5, "h")) == BUSY
    assert world.client.commit(6) is None


@pytest.mark.slow
@pytest.mark.parametrize("letter", ["a", "\U0001f600", "\x01"])
def test_what_is_known_of_a_group_can_always_be_told_again_in_one_message(world: SmallSet, letter: str) -> None:
    name, message_bytes_max = letter * 255, 4 * 1024 * 1024
    words = {f"{number}{name}"[:255]: Subscription(letter * 1_000, -(1 << 63)) for number in range(40)}
    changes = [GroupChange(facts=Facts(members=tuple(f"{number}{name}" for number in range(500)), subscriptions=words))]
    changes += [
        GroupChange(
            offsets={f"{number}{name}"[:255]: dict.fromkeys(range(1 << 30, (1 << 30) + 100), -(1 << 63))},
            holders={f"{number}{name}"[:255]: dict.fromkeys(range(1 << 30, (1 << 30) + 20), name)},
        )
        for number in range(500)
    ]
    refusals = []
    for change in changes:
        refusals.append(world.master.consumers.note("g", change))
        world.settle()
    known = world.master.consumers.known.groups["g"]
    told = len(encode_record(Record(0, {}, {"g" * 255: known})))

    assert f"{GROUP_BYTES_MAX} can be" in refusals[-1]
    assert told <= known.cost_bytes + NAME_BYTES_MAX
    assert told + offsets_log.GATHERED_BYTES_MAX + 2 * offsets_log.AGAIN_BYTES < message_bytes_max


def test_a_lock_counts_with_the_name_of_its_holder_and_can_be_given_back_and_renewed_at_the_limit(
    world: SmallSet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets_log, "GROUP_BYTES_MAX", 2_000)
    note, topics = world.master.consumers.note, [{"T": dict.fromkeys(range(30), "")}, {"T": {0: "c" * 255}}]
    for holders in (*topics, {"T": {0: ""}}, {"T": {1: "c" * 20}}, {"T": {1: "c" * 20}}):
        refusal = note("g", GroupChange(holders=holders))
        world.settle()
        assert ("2000 can be" in refusal) == (holders is topics[1])


def test_what_is_gathered_of_groups_with_long_names_fits_into_one_message(world: SmallSet) -> None:
    consumers, refusal, number = world.master.consumers, "", 0
    while not refusal:
        refusal = consumers.note(f"{number:0>255}", GroupChange(offsets={"T": {0: 1}}))
        number += 1

    assert "wait to be written" in refusal
    assert len(encode_record(Record(0, consumers._gathered.groups))) <= offsets_log.GATHERED_BYTES_MAX


def test_a_group_is_limited_by_what_is_on_its_way_too(world: SmallSet) -> None:
    rows = [dict.fromkeys(range(1 << 20, (1 << 20) + 20_000), 1) for _ in range(4)]
    refusals = []
    for number, of_topic in enumerate(rows):
        refusals.append(world.master.consumers.note("g", GroupChange(offsets={f"T{number}": of_topic})))
        world.time.run(COMMIT_INTERVAL_MS)

    assert refusals[:2] == ["", ""]
    assert "retry" in refusals[2] or f"{GROUP_BYTES_MAX} can be" in refusals[2]


def test_a_log_without_a_master_writes_nothing(world: SmallSet) -> None:
    world.master.is_master = False
    reason = world.master.consumers.note("g", GroupChange(offsets={"T": {0: 1}}))

    assert "not the master" in reason
    assert isinstance(world.master.consumers, ConsumerLog)


def test_newer_rows_replace_and_older_ones_fill() -> None:
    known = GroupChange(offsets={"T": {0: 5}}, resets={"T": {0: NO_RESET}}, facts=Facts(members=("a",)))
    old = GroupChange(offsets={"T": {0: 1, 1: 2}}, resets={"T": {0: 3}}, holders={"T": {0: "c"}}, facts=Facts())

    assert merge(known, old, is_older=True) == 2
    assert known == GroupChange(
        offsets={"T": {0: 5, 1: 2}}, resets={"T": {0: NO_RESET}}, holders={"T": {0: "c"}}, facts=Facts(members=("a",))
    )
    assert merge(known, old) == 0
    assert known == old
    value = Consumers()
    value.fold(0, encode_record(Record(0, {"g": known})))
    assert (value.rows, value.groups["g"]) == (4, old)
