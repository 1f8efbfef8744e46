"""R5, rules 3 and 4 of the repairs: how far a follower commits, what is never cut, and when a majority was asked."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from rollcall_ha.controller.replication.raft.failstop import FailStop
from rollcall_ha.controller.replication.raft.messages import Append
from tests.support.raft_seams import Stopped
from tests.support.raft_virtual import NAMES, OurNode, VirtualGroup

SMALL = partial(OurNode, compaction_entries=10)


def leader_and_followers(group: VirtualGroup) -> tuple[OurNode, list[OurNode]]:
    leader = group.elect()
    return group.ours(leader.name), [group.ours(name) for name in NAMES if name != leader.name]


def test_a_follower_commits_no_further_than_it_has_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The follower holds entries up to n that no majority has; a heartbeat compares up to c and says "n is committed".

    In the leader's log n may be another entry: the follower would apply its own one and diverge for good.
    """
    group = VirtualGroup(monkeypatch, OurNode)
    assert group.commit("first")
    leader, (follower, other) = leader_and_followers(group)
    group.cut(other.name)
    committed = follower.commit_index
    for number in range(3):
        leader.propose(f"uncommitted-{number}", lambda _outcome: None)
    group.now_ns += 50_000_000
    leader.tick()
    while group.deliver_one(leader.name, follower.name):
        pass
    assert follower.last_index >= committed + 3
    assert follower.commit_index == committed

    follower.receive(
        leader.name,
        Append(
            term=leader.term,
            sent_ns=group.now_ns + 1,
            confirmed_ns=0,
            commit_index=follower.last_index,
            last_index=follower.last_index,
            previous_index=committed,
            previous_term=follower.entry_at(committed)[2],
            entries=(),
        ),
    )

    assert follower.commit_index == committed
    assert follower.ids == ["first"]


def test_nothing_that_came_with_a_snapshot_is_ever_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that asks for a cut below an installed snapshot has another history: the follower stops, not cuts."""
    group = VirtualGroup(monkeypatch, SMALL)
    leader, (late, _) = leader_and_followers(group)
    group.crash(late.name)
    for number in range(40):
        assert group.commit(f"id-{number}")
    late = group.ours(group.start(late.name).name)
    stops: list[Any] = []

    def installed(entry: Any) -> None:
        if entry.is_snapshot:
            with pytest.raises(Stopped) as stopped:
                late.member.raft.node.journal.deleteEntriesFrom(1)
            stops.append(stopped.value.code)

    late.member.raft.node.listeners.append(installed)
    group.run_for(2_000, lambda: bool(stops))

    assert stops == [FailStop.DIVERGED]
    assert leader.name != late.name


def test_nothing_that_a_start_found_in_its_snapshot_is_ever_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same after a restart, before the first entry behind the snapshot is applied."""
    group = VirtualGroup(monkeypatch, SMALL)
    leader, (follower, _) = leader_and_followers(group)
    for number in range(40):
        assert group.commit(f"id-{number}")
    group.crash(follower.name)
    follower = group.ours(group.start(follower.name).name)

    with pytest.raises(Stopped) as stopped:
        follower.member.raft.node.journal.deleteEntriesFrom(0)

    assert stopped.value.code is FailStop.DIVERGED
    assert leader.name != follower.name


def test_authority_counts_from_the_sending_of_what_was_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    An append is sent at 0 ms and answered at 250 ms: at 250 ms the majority's word is 250 ms old.

    Another leader may have been elected in between; counted from the receipt, this one would grant for 250 ms more.
    """
    group = VirtualGroup(monkeypatch, OurNode)
    assert group.commit("first")
    leader, _ = leader_and_followers(group)
    group.run_for(50)
    group.deliver_all()
    group.now_ns += 100_000_000
    leader.tick()
    sent_ns = group.now_ns
    group.now_ns += 250_000_000
    group.deliver_all()

    asked_ns = leader.member.raft.node.transport.majority_asked_at_ns()

    assert asked_ns is not None
    assert sent_ns <= asked_ns < sent_ns + 1_000_000
