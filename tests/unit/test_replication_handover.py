"""A leader has a follower take over: when it asks, what it proposes meanwhile, and how each end comes about."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.ports import HandoverEnd, ProposalStatus
from rollcall_ha.controller.replication.raft.messages import RequestVote, TimeoutNow
from tests.support.raft_virtual import NAMES, OurNode, VirtualGroup


class Moving:
    """A group with a leader, and the transfers that were ordered."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.group = VirtualGroup(patch, OurNode)
        assert self.group.commit("first")
        self.leader = self.group.ours(self.group.elect().name)
        self.others = [self.group.ours(name) for name in NAMES if name != self.leader.name]
        self.ends: list[HandoverEnd] = []
        self.authority_when_sent: list[int | None] = []
        self.group.on_send = self._sent

    def _sent(self, source: str, message: Any) -> None:
        if isinstance(message, TimeoutNow):
            self.authority_when_sent.append(self.group.ours(source).member.leadership.majority_asked_at_ns)

    def order(self, target: str) -> None:
        self.leader.member.hand_over(ControllerName(target), self.ends.append)


def test_a_follower_leads_at_once_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """No election timeout is waited for: two ticks until it is asked, one until it stands."""
    moving = Moving(monkeypatch)
    target = moving.others[1]
    began_ns = moving.group.now_ns
    moving.order(target.name)
    assert moving.group.run_for(1_000, lambda: target.is_leader)
    assert (moving.group.now_ns - began_ns) // 1_000_000 <= 50
    assert moving.group.run_for(200, lambda: bool(moving.ends))
    assert moving.ends == [HandoverEnd.DEPOSED]
    assert moving.group.commit("second")
    assert target.ids == ["first", "second"]


def test_r5_a_leader_is_without_authority_before_its_successor_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its followers heard of it a moment ago: by its own clock it would answer beside its successor for a second."""
    moving = Moving(monkeypatch)
    assert moving.leader.member.leadership.majority_asked_at_ns is not None
    moving.order(moving.others[0].name)
    moving.leader.tick()
    moving.leader.tick()
    assert moving.authority_when_sent == [None]
    moving.leader.tick()
    assert moving.leader.is_leader
    assert moving.leader.member.leadership.majority_asked_at_ns is None


def _given_up(patch: pytest.MonkeyPatch) -> tuple[VirtualGroup, OurNode]:
    """A leader whose followers have heard that it gave its authority up, and whose transfer fails with its next turn."""
    group = VirtualGroup(patch, OurNode)
    leader = group.ours(group.elect().name)
    yielding = SimpleNamespace(yields=True, advance=lambda _now_ns: True)
    patch.setattr(leader.member.raft.node, "handover", yielding)
    group.run_for(100)
    yielding.advance = lambda _now_ns: False
    return group, leader


def test_r5_a_leader_that_gave_its_authority_up_counts_no_answer_of_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transfer fails, it leads on, and its followers were free to vote for another one meanwhile."""
    group, leader = _given_up(monkeypatch)
    leader.tick()
    assert leader.member.raft.node.handover is None
    seen = leader.member.leadership
    assert (seen.majority_asked_at_ns, seen.followed_until_ns) == (None, 0)
    group.run_for(100)
    assert leader.member.leadership.majority_asked_at_ns is not None
    assert leader.member.leadership.followed_until_ns > group.now_ns


def test_r5_authority_comes_back_with_followers_that_are_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Its transfer failed. Its next append said once more that it has no authority: who heard that was free, and what it
    answered counted for as long as it pledges.
    """
    group, leader = _given_up(monkeypatch)
    others = [group.ours(name).member.raft.node.transport for name in NAMES if name != leader.name]
    has_had_authority = False
    for _ in range(40):
        group.now_ns += 5_000_000
        leader.tick()
        for source, target in list(group.queues):
            group.deliver_one(source, target)
            leader.tick()
            until_ns = leader.member.leadership.followed_until_ns
            has_had_authority |= until_ns > group.now_ns
            # Stamps of one moment differ by 1 ns each.
            assert until_ns // 1_000 <= max(one.bound_until_ns for one in others) // 1_000
    assert has_had_authority


def test_r5_a_follower_set_free_voted_beside_the_leader_that_counted_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group, leader = _given_up(monkeypatch)
    voter, candidate = (group.ours(name) for name in NAMES if name != leader.name)
    group.cut(leader.name, candidate.name)
    while leader.member.leadership.followed_until_ns <= group.now_ns:
        group.now_ns += 5_000_000
        leader.tick()
        group.deliver_one(leader.name, voter.name)
        voter.tick()
        group.deliver_one(voter.name, leader.name)
        leader.member.raft._look()
    voter.receive(candidate.name, RequestVote(term=leader.term + 1, last_index=voter.last_index, last_term=leader.term))
    assert voter.term == leader.term


def test_r5_a_leader_that_has_asked_stands_down_when_nobody_deposes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The successor died with the message: somebody else is elected, in another term."""
    moving = Moving(monkeypatch)
    target, term = moving.others[0], moving.leader.term
    moving.order(target.name)
    while not moving.authority_when_sent:
        moving.leader.tick()
    moving.group.cut(target.name)
    assert moving.group.run_for(1_000, lambda: bool(moving.ends))
    assert moving.ends == [HandoverEnd.STOOD_DOWN]
    assert not (moving.leader.is_leader and moving.leader.term == term)
    assert moving.group.commit("second")


def test_a_successor_that_lacks_entries_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not be elected, and the fleet would have no leader meanwhile."""
    moving = Moving(monkeypatch)
    target, term = moving.others[0], moving.leader.term
    moving.group.cut(target.name)
    assert moving.group.commit("it lacks this")
    moving.order(target.name)
    assert moving.group.run_for(1_000, lambda: bool(moving.ends))
    assert moving.ends == [HandoverEnd.NOT_CAUGHT_UP]
    assert moving.authority_when_sent == []
    assert moving.leader.is_leader
    assert moving.leader.term == term
    assert moving.leader.member.leadership.majority_asked_at_ns is not None
    assert moving.group.commit("it leads on")


def test_what_is_proposed_meanwhile_waits_and_is_told_that_it_was_not_proposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taken into the log, each would be one more entry that the successor lacks, and its outcome be unknown."""
    moving = Moving(monkeypatch)
    moving.order(moving.others[0].name)
    moving.leader.tick()
    outcomes: list[bool | None] = []
    moving.leader.propose("meanwhile", outcomes.append)
    assert moving.group.run_for(1_000, lambda: bool(outcomes))
    assert moving.leader.outcomes[-1].status is ProposalStatus.NOT_PROPOSED
    moving.group.run_for(500)
    assert moving.others[0].ids == ["first"]


def test_what_waited_is_proposed_when_the_transfer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    moving = Moving(monkeypatch)
    moving.group.cut(moving.others[0].name)
    assert moving.group.commit("it lacks this")
    moving.order(moving.others[0].name)
    moving.leader.tick()
    outcomes: list[bool | None] = []
    moving.leader.propose("meanwhile", outcomes.append)
    assert moving.group.run_for(2_000, lambda: bool(outcomes))
    assert outcomes == [True]


def test_a_member_without_memory_does_not_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule 7 of the repairs: its log may lack what it acknowledged before its disk was lost."""
    moving = Moving(monkeypatch)
    name = moving.others[0].name
    moving.group.crash(name)
    moving.group.wipe(name)
    node = moving.group.start(name)
    assert isinstance(node, OurNode)
    moving.group.now_ns += 100_000_000
    moving.leader.tick()
    while moving.group.deliver_one(moving.leader.name, name):
        pass
    assert not node.member.raft.is_voter
    assert node.term == moving.leader.term
    node.receive(moving.leader.name, TimeoutNow(term=node.term))
    node.tick()
    assert node.term == moving.leader.term
    assert not node.is_leader


def test_a_late_message_of_an_older_term_makes_nobody_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lay on a link while others were elected: heeded, it would depose a leader that everybody follows."""
    moving = Moving(monkeypatch)
    target, term = moving.others[0], moving.leader.term
    target.receive(moving.leader.name, TimeoutNow(term=term - 1))
    target.receive(moving.others[1].name, TimeoutNow(term=term))
    target.tick()
    assert target.term == term


def test_a_transfer_ends_with_the_process_that_was_to_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    moving = Moving(monkeypatch)
    moving.order(moving.others[0].name)
    moving.leader.tick()
    moving.order(moving.others[1].name)
    moving.leader.member.stop()
    assert moving.ends == [HandoverEnd.NOT_CAUGHT_UP] * 2
    moving.order(moving.others[0].name)
    assert len(moving.ends) == 3


def test_followers_are_told_to_the_leader_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    moving = Moving(monkeypatch)
    moving.group.run_for(200)
    gone = moving.others[1].name
    moving.group.cut(gone)
    assert moving.group.commit("it lacks this")
    assert moving.others[0].member.followers() == ()
    told = {one.name: one for one in moving.leader.member.followers()}
    assert (told[ControllerName(gone)].is_linked, told[ControllerName(gone)].lag_entries) == (False, 1)
    near = told[ControllerName(moving.others[0].name)]
    assert (near.is_linked, near.lag_entries) == (True, 0)
    assert near.answer_age_ms is not None
    assert near.answer_age_ms < 500
