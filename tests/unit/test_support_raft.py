"""The Raft group on virtual time: who is down is not killed twice, and no disk has two processes."""

from __future__ import annotations

from functools import partial

import pytest

from tests.sim import members
from tests.support.raft_virtual import NAMES, OurNode, VirtualGroup


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> VirtualGroup:
    made = VirtualGroup(monkeypatch, partial(OurNode, compaction_entries=20))
    assert made.commit("first")
    return made


def test_a_member_that_dies_does_not_receive_what_its_last_message_caused(group: VirtualGroup) -> None:
    """Both died in each other's last messages, and the first of them a second time: ``KeyError``."""
    leader = group.elect().name
    follower = next(name for name in NAMES if name != leader)
    # A heartbeat, its answer, and a heartbeat again: both directions are full.
    group.now_ns += 100_000_000
    group.nodes[leader].tick()
    assert group.deliver_one(leader, follower)
    group.now_ns += 100_000_000
    group.nodes[leader].tick()
    assert group.queues[leader, follower]
    assert group.queues[follower, leader]
    group.dies_after = lambda target: target in {leader, follower}
    group.random.seed(1)
    group.crash(leader)
    assert set(NAMES) - group.nodes.keys() == {leader, follower}
    assert not group.queues


def test_power_that_goes_after_a_process_takes_what_it_had_not_synced(group: VirtualGroup) -> None:
    group.crash("c2")
    group.disks["c2"].write("late", 0, b"not synced")
    group.crash("c2")
    assert group.disks["c2"].exists("late")
    group.crash("c2", power=True)
    assert not group.disks["c2"].exists("late") or group.disks["c2"].read("late") != b"not synced"
    group.start("c2")
    assert group.commit("second")


def test_a_disk_that_a_process_uses_is_neither_emptied_nor_given_to_a_second_one(group: VirtualGroup) -> None:
    with pytest.raises(AssertionError, match="c2 is running"):
        group.start("c2")
    with pytest.raises(AssertionError, match="c2 is running"):
        group.wipe("c2")


def test_a_life_that_ends_by_a_fault_of_the_double_names_its_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_life: members.Life) -> None:
        raise KeyError("c2")

    monkeypatch.setattr(members.Life, "live", broken)
    outcome = members.run(4711)
    assert outcome.failure is not None
    assert "KeyError: 'c2'" in outcome.failure
    assert "test_support_raft.py" in outcome.failure
    assert "--first 4711 --seeds 1" in outcome.again
