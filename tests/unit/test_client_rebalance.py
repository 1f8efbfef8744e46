"""The five strategies: every queue has one owner, and the numbers of RocketMQ's rules."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollcall_ha.broker.client import rebalance
from rollcall_ha.broker.protocol.consumers import MessageQueue


def queues(count: int, broker: str = "b", topic: str = "T") -> list[MessageQueue]:
    return [MessageQueue(broker, number, topic) for number in range(count)]


def ids(found: list[MessageQueue]) -> list[int]:
    return [queue.queue_id for queue in found]


def shares(strategy: rebalance.Strategy, count: int, members: list[str]) -> list[list[int]]:
    return [ids(strategy(queues(count), members, each)) for each in members]


MEMBERS = st.lists(st.text("abcdef@#.", min_size=1, max_size=8), min_size=1, max_size=12, unique=True).map(sorted)
BROKERS = st.lists(
    st.tuples(st.sampled_from(["r1@x", "r1@y", "r2@x", "r2@y", "z"]), st.integers(1, 9)),
    min_size=1,
    unique_by=lambda each: each[0],
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [
        rebalance.average,
        rebalance.average_by_circle,
        rebalance.consistent_hash,
        rebalance.machine_room_nearby(
            rebalance.average, lambda queue: queue.broker_name[:2], lambda member: member[:1]
        ),
        rebalance.machine_room_nearby(rebalance.consistent_hash, lambda queue: queue.broker_name[:1], lambda _: "r"),
    ],
)
@given(brokers=BROKERS, members=MEMBERS)
def test_every_queue_has_exactly_one_owner(
    strategy: rebalance.Strategy, brokers: list[tuple[str, int]], members: list[str]
) -> None:
    all_queues = rebalance.in_order(queue for name, count in brokers for queue in queues(count, name))
    owned = [queue for member in members for queue in strategy(all_queues, members, member)]
    assert rebalance.in_order(owned) == all_queues
    assert strategy(all_queues, members, "somebody else") == []


@given(brokers=BROKERS, members=MEMBERS)
def test_queues_of_a_machine_room_have_one_owner_and_others_none(
    brokers: list[tuple[str, int]], members: list[str]
) -> None:
    all_queues = rebalance.in_order(queue for name, count in brokers for queue in queues(count, name))
    strategy = rebalance.machine_room(["r1"])
    owned = [queue for member in members for queue in strategy(all_queues, members, member)]
    assert rebalance.in_order(owned) == [queue for queue in all_queues if queue.broker_name.startswith("r1@")]


@given(count=st.integers(1, 40), members=MEMBERS)
def test_nobody_has_two_queues_more_than_another(count: int, members: list[str]) -> None:
    for strategy in (rebalance.average, rebalance.average_by_circle):
        sizes = [len(share) for share in shares(strategy, count, members)]
        assert max(sizes) - min(sizes) <= 1


def test_average_gives_neighbours_and_the_first_ones_get_more() -> None:
    """8 queues, 3 members: 8 mod 3 = 2, so the first two get 3."""
    assert shares(rebalance.average, 8, ["a", "b", "c"]) == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert shares(rebalance.average, 2, ["a", "b", "c"]) == [[0], [1], []]
    assert shares(rebalance.average, 6, ["a", "b", "c"]) == [[0, 1], [2, 3], [4, 5]]


def test_the_circle_deals_queues_out_one_by_one() -> None:
    assert shares(rebalance.average_by_circle, 8, ["a", "b", "c"]) == [[0, 3, 6], [1, 4, 7], [2, 5]]


def test_a_machine_room_gives_the_rest_one_by_one_behind_the_shares() -> None:
    """Of 8 queues 2 each, and 6 and 7 for the first two."""
    strategy = rebalance.machine_room(["r"])
    found = [ids(strategy(queues(8, "r@b"), ["a", "b", "c"], each)) for each in "abc"]
    assert found == [[0, 1, 6], [2, 3, 7], [4, 5]]
    assert strategy(queues(8, "r@b@c"), ["a"], "a") == []


def test_a_room_without_a_member_is_shared_by_all() -> None:
    strategy = rebalance.machine_room_nearby(rebalance.average, lambda queue: queue.broker_name, lambda m: m[0])
    all_queues = rebalance.in_order([*queues(2, "x"), *queues(2, "y"), *queues(3, "z")])
    told = {
        member: [(queue.broker_name, queue.queue_id) for queue in strategy(all_queues, ["x1", "y1", "y2"], member)]
        for member in ("x1", "y1", "y2")
    }
    assert told == {
        "x1": [("x", 0), ("x", 1), ("z", 0)],
        "y1": [("y", 0), ("z", 1)],
        "y2": [("y", 1), ("z", 2)],
    }


def test_a_queue_goes_to_the_next_node_clockwise() -> None:
    """By the rule, counted here in another way: the node whose hash is the least at or above the queue's, else the least."""

    def place(text: str) -> int:
        return int(hashlib.md5(text.encode()).hexdigest()[:8], 16)

    members = ["a", "b", "c"]
    nodes = [(place(f"{member}-{number}"), member) for member in members for number in range(10)]
    for queue in queues(30):
        at = place(f"MessageQueue [topic=T, brokerName=b, queueId={queue.queue_id}]")
        behind = [node for node in nodes if node[0] >= at]
        owner = min(behind or nodes)[1]
        assert queue in rebalance.consistent_hash(queues(30), members, owner)


def test_a_member_that_leaves_moves_its_own_queues_alone() -> None:
    before = {each: set(rebalance.consistent_hash(queues(64), ["a", "b", "c"], each)) for each in "abc"}
    for each in "ab":
        assert before[each] <= set(rebalance.consistent_hash(queues(64), ["a", "b"], each))


def test_a_fixed_list_is_given_for_its_topic_alone() -> None:
    strategy = rebalance.config(queues(2)[::-1])
    assert ids(strategy(queues(8), ["a", "b"], "a")) == [0, 1]
    assert strategy(queues(8, topic="other"), ["a"], "a") == []
