"""Locks of queues: one holder at a time, across a change of master too (codes 41 and 42)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rollcall_ha.broker.consuming.locks_core import LOCK_MS_MAX, LOCK_PROOF_MS, LockTimes, LockVerdict
from rollcall_ha.broker.consuming.offsets_log import COMMIT_INTERVAL_MS, TOPIC
from rollcall_ha.node.remoting.frame import Frame
from tests.support.consumer_set import Client, Member, SetLog, Time

QUEUE = ("g", "T", 0)


class World:
    """A master and two clients of one group."""

    def __init__(self) -> None:
        self.time, self.log = Time(), SetLog()
        self.master = Member(self.log, self.time, is_master=True)
        self.first, self.second = Client(self.master, "c1"), Client(self.master, "c2")

    def settle(self) -> None:
        self.time.run(COMMIT_INTERVAL_MS)
        self.log.confirm()

    def take_over(self) -> None:
        """Another replica is master, and has what is confirmed; both clients are linked to it."""
        self.log.cut(self.log.confirmed)
        self.master.is_master = False
        self.log.end_epoch()
        self.master = Member(self.log, self.time, is_master=True)
        self.master.groups.tick()
        self.first, self.second = Client(self.master, "c1"), Client(self.master, "c2")

    def lock(self, client: Client, *queues: int, code: int = 41, **changed: object) -> Frame:
        """The answer, once what it needs is confirmed."""
        body = {
            "clientId": client.client_id,
            "consumerGroup": "g",
            "mqSet": [{"brokerName": "a", "queueId": queue, "topic": "T"} for queue in queues],
            "onlyThisBroker": False,
        }
        client.ask(code, body | changed)
        self.settle()
        return client.answers[-1]

    def locked(self, client: Client, *queues: int) -> list[int]:
        answer = self.lock(client, *queues)
        assert answer.code == 0, answer.remark
        return [queue["queueId"] for queue in json.loads(answer.body)["lockOKMQSet"]]

    def unlock(self, client: Client, *queues: int) -> None:
        assert self.lock(client, *queues, code=42).code == 0

    def records(self) -> int:
        return len(self.log.bodies(TOPIC))


@pytest.fixture
def world() -> World:
    return World()


def judge(times: LockTimes, holder: str, client_id: str, now_ms: int, *, is_confirmed: bool = True) -> LockVerdict:
    return times.judge(QUEUE, holder, is_confirmed=is_confirmed, is_proved=True, client_id=client_id, now_ms=now_ms)


def test_a_lock_is_free_held_or_foreign() -> None:
    times = LockTimes(0)

    assert judge(times, "", "c1", 1) is LockVerdict.FREE
    assert judge(times, "c1", "c1", 1) is LockVerdict.HELD
    assert judge(times, "c1", "c2", 1) is LockVerdict.FOREIGN


def test_a_lock_ends_when_its_holder_was_silent_for_a_minute() -> None:
    times = LockTimes(0)
    judge(times, "c1", "c1", 50_000)

    assert judge(times, "c1", "c2", 50_000 + LOCK_MS_MAX) is LockVerdict.FOREIGN
    assert judge(times, "c1", "c2", 50_001 + LOCK_MS_MAX) is LockVerdict.FREE


def test_a_holder_that_was_not_heard_here_is_honoured_from_the_take_over_on() -> None:
    times = LockTimes(1_000_000)

    assert judge(times, "c1", "c2", 1_000_000 + LOCK_MS_MAX) is LockVerdict.FOREIGN
    assert judge(times, "c1", "c2", 1_000_001 + LOCK_MS_MAX) is LockVerdict.FREE


def test_a_grant_that_is_not_confirmed_keeps_all_others_away() -> None:
    times = LockTimes(0)

    assert judge(times, "c1", "c2", 10 * LOCK_MS_MAX, is_confirmed=False) is LockVerdict.FOREIGN
    assert judge(times, "c1", "c1", 1, is_confirmed=False) is LockVerdict.FREE, "written again with the others"


def test_the_word_of_an_earlier_holder_does_not_prolong_the_lock_of_a_later_one() -> None:
    times = LockTimes(0)
    times.hear(QUEUE, "c1", 500_000)

    assert judge(times, "c2", "c3", 500_001) is LockVerdict.FREE
    assert judge(times, "c1", "c3", 500_001) is LockVerdict.FOREIGN


def test_a_queue_is_locked_for_one_client_and_renewals_write_nothing(world: World) -> None:
    assert world.locked(world.first, 0, 1) == [0, 1]
    assert world.locked(world.second, 0, 2) == [2]
    written = world.records()
    for _ in range(4):
        world.time.run(LOCK_PROOF_MS // 5)
        assert world.locked(world.first, 0, 1) == [0, 1]
        assert world.locked(world.second, 0) == []

    assert world.records() == written


def test_renewals_of_all_holders_write_one_record_in_an_interval(world: World) -> None:
    for queue in range(4):
        assert world.locked(Client(world.master, f"c{queue}"), queue) == [queue]
    written = world.records()
    for _ in range(5):
        world.time.run(LOCK_PROOF_MS + 1)
        for queue in range(4):
            assert world.locked(Client(world.master, f"c{queue}"), queue) == [queue]

    assert world.records() == written + 5


def test_a_master_that_is_cut_off_renews_no_lock(world: World) -> None:
    """The next master may have found another holder by the time that such renewals end."""
    assert world.locked(world.first, 0) == [0]
    world.time.run(LOCK_PROOF_MS + 1)
    told = len(world.first.answers)
    ask = {"clientId": "c1", "consumerGroup": "g", "mqSet": [{"brokerName": "a", "queueId": 0, "topic": "T"}]}
    world.first.ask(41, ask)
    world.time.run(COMMIT_INTERVAL_MS)
    assert world.first.answers[told:] == [], "its record is confirmed by nobody"
    world.log.end_epoch()

    assert [json.loads(answer.body) for answer in world.first.answers[told:]] == [{"lockOKMQSet": []}]


def test_a_lock_is_told_when_it_is_confirmed(world: World) -> None:
    world.first.ask(
        41, {"clientId": "c1", "consumerGroup": "g", "mqSet": [{"brokerName": "a", "queueId": 0, "topic": "T"}]}
    )
    world.second.ask(
        41, {"clientId": "c2", "consumerGroup": "g", "mqSet": [{"brokerName": "a", "queueId": 0, "topic": "T"}]}
    )
    world.time.run(COMMIT_INTERVAL_MS)

    assert world.first.answers == []
    assert [answer.body for answer in world.second.answers] == [b'{"lockOKMQSet":[]}']
    world.log.confirm()
    assert json.loads(world.first.answers[0].body) == {"lockOKMQSet": [{"brokerName": "a", "queueId": 0, "topic": "T"}]}


def test_a_lock_that_could_not_be_written_is_not_given(world: World) -> None:
    assert world.locked(world.first, 1) == [1]
    world.master.refuses = "too few in sync"

    assert world.locked(world.first, 0, 1) == [1]
    assert world.first.answers[-1].remark == "too few in sync"
    world.master.refuses = ""
    assert world.locked(world.second, 0) == [0]


def test_a_lock_is_given_back_by_its_holder_alone(world: World) -> None:
    world.locked(world.first, 0)
    world.unlock(world.second, 0)
    assert world.locked(world.second, 0) == []
    world.unlock(world.first, 0)

    assert world.locked(world.second, 0) == [0]


def test_a_lock_goes_to_another_after_a_minute_of_silence(world: World) -> None:
    world.locked(world.first, 0)
    world.time.run(LOCK_MS_MAX - 10_000)
    assert world.locked(world.second, 0) == []
    world.time.run(10_001)

    assert world.locked(world.second, 0) == [0]
    assert world.locked(world.first, 0) == []


def test_a_new_master_honours_the_locks_of_its_predecessor(world: World) -> None:
    world.locked(world.first, 0, 1)
    world.unlock(world.first, 1)
    world.take_over()

    assert world.locked(world.second, 0, 1) == [1]
    assert world.locked(world.first, 0) == [0]
    world.time.run(LOCK_MS_MAX - 10_000)
    assert world.locked(world.second, 0) == []
    world.time.run(10_001)
    assert world.locked(world.second, 0) == [0]


def test_a_grant_that_a_failover_took_back_locks_nothing(world: World) -> None:
    world.first.ask(
        41, {"clientId": "c1", "consumerGroup": "g", "mqSet": [{"brokerName": "a", "queueId": 0, "topic": "T"}]}
    )
    world.time.run(COMMIT_INTERVAL_MS)
    first = world.first
    world.take_over()

    assert [json.loads(answer.body) for answer in first.answers] == [{"lockOKMQSet": []}]
    assert world.locked(world.second, 0) == [0]


def test_slaves_and_folds_that_are_behind_lock_nothing(world: World) -> None:
    world.master.left_bytes = 1
    assert world.lock(world.first, 0).code == 2
    world.master.left_bytes = 0
    world.master.is_master = False
    assert world.lock(world.first, 0).code == 2
    assert world.lock(world.first, 0, code=42).code == 2


def test_queues_of_another_broker_are_not_locked_here(world: World) -> None:
    answer = world.lock(world.first, mqSet=[{"brokerName": "b", "queueId": 0, "topic": "T"}])

    assert (answer.code, answer.body) == (0, b'{"lockOKMQSet":[]}')


@pytest.mark.parametrize(
    "changed",
    [
        {"clientId": ""},
        {"consumerGroup": "g/h"},
        {"mqSet": [{"brokerName": "a", "queueId": -1, "topic": "T"}]},
        {"mqSet": [{"brokerName": "a", "queueId": 0, "topic": ""}]},
        {"mqSet": [{"brokerName": "a", "queueId": 0, "topic": "T"}] * 4097},
        {"mqSet": None},
    ],
)
def test_a_nonsense_request_for_locks_is_refused(world: World, changed: dict[str, Any]) -> None:
    assert world.lock(world.first, 0, **changed).code == 1
    assert world.records() == 0
