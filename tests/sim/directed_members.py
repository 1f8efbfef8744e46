"""
Directed cases of the controllers' members, for the mutants of ``mutations_members``: see ``directed``.

The product's members under a network that the case moves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.membership import Change, Seat, promoted, with_learner, without
from rollcall_ha.controller.replication.ports import ProposalOutcome
from rollcall_ha.controller.replication.raft.messages import RequestVote
from tests.sim.violation import Violation, must
from tests.support.raft_virtual import TIMING, OurNode, VirtualGroup

ALL = ("c1", "c2", "c3", "c4", "c5")


class _Case:
    def __init__(self, patch: pytest.MonkeyPatch, founders: int) -> None:
        self.group = VirtualGroup(patch, partial(OurNode, compaction_entries=10), ALL, founders=ALL[:founders])
        self.told: list[ProposalOutcome] = []
        must(self.group.commit("first"), "an entry commits")

    @property
    def leader(self) -> OurNode:
        return self.group.ours(self.group.elect().name)

    def ask(self, change: Change, of: OurNode | None = None) -> bool:
        """Whether it is in the log of the one that is asked."""
        node, before = of or self.leader, len(self.told)
        node.member.change(change, self.told.append)
        node.tick()
        return not any(one.status.value == "not-proposed" for one in self.told[before:])

    def learn(self, name: str, of: OurNode | None = None) -> bool:
        return self.ask(partial(with_learner, seat=Seat(name=name, raft=f"{name}:1")), of)

    def add(self, name: str) -> None:
        self.group.start(name)
        self.learn(name)
        self.group.run_for(2_000)
        must(self.ask(partial(promoted, name=name)), f"{name} gets its vote")
        self.group.run_for(1_000)


@contextmanager
def _case(founders: int = 3) -> Iterator[_Case]:
    with pytest.MonkeyPatch.context() as patch:
        yield _Case(patch, founders)


def two_changes_at_once() -> None:
    """The second is refused until the first is on a majority's disks."""
    with _case() as case:
        leader = case.leader
        case.group.cut(leader.name)
        must(case.learn("c4", leader), "the first change is taken")
        is_second_taken = case.ask(partial(without, name="c4"), leader)
        must(not is_second_taken, "members: a change is taken while another one is not committed")


def entry_that_is_cut() -> None:
    """A leader that was cut off has added c4; its entry is cut when it comes back."""
    with _case() as case:
        old = case.leader
        case.group.cut(old.name)
        case.learn("c4", old)
        case.group.run_for(5_000)
        case.group.heal()
        case.group.run_for(2_000)
        must(case.group.commit("second"), "the others go on")
        case.group.run_for(500)
        must(not old.member.members.is_learner("c4"), "members: an entry that was cut counts on")


def behind_a_snapshot() -> None:
    """The entry that added c4 is compacted away."""
    with _case() as case:
        case.add("c4")
        for number in range(40):
            case.group.commit(f"{number}")
        case.group.run_for(1_000)
        for name in ALL[:4]:
            case.group.crash(name)
            try:
                case.group.start(name)
            except Exception as error:  # the simulated end, or a start that is refused
                raise Violation(f"members: {name} does not start behind a snapshot: {error}") from error
            must(case.group.ours(name).member.members.is_voter("c4"), "members: a snapshot does not say who they are")


def learner_away() -> None:
    """One of one commits, whatever becomes of the one that is being added."""
    with _case(founders=1) as case:
        case.group.start("c2")
        case.learn("c2")
        case.group.run_for(1_000)
        case.group.crash("c2")
        must(case.group.run_for(5_000, lambda: case.group.ours("c1").is_leader), "members: a learner is waited for")
        must(case.group.commit("alone"), "members: a learner counts for a commit")


def replaced_while_one_sleeps() -> None:
    """{c1,c2,c3} becomes {c3,c4,c5}; c3 wakes behind the last step."""
    with _case() as case:
        case.group.crash("c3")
        case.add("c4")
        case.add("c5")
        for name in ("c1", "c2"):
            if case.leader.name == name:
                case.leader.member.hand_over(ControllerName("c4"), lambda _how: None)
                case.group.run_for(1_000)
            must(case.ask(partial(without, name=name)), f"{name} is taken out")
            case.group.run_for(500)
            case.group.crash(name)
        case.group.start("c3")
        case.group.run_for(5_000)
        must(case.group.ours("c3").member.members.is_voter("c5"), "members: a member that slept hears nobody, for ever")


def removed_and_standing() -> None:
    """It was not told that it was removed."""
    with _case() as case:
        leader = case.leader
        gone = next(name for name in ALL[:3] if name != leader.name)
        case.group.cut(gone)
        must(case.ask(partial(without, name=gone)), f"{gone} is taken out")
        case.group.run_for(500)
        term = leader.term
        case.group.heal()
        case.group.run_for(10_000)
        must(leader.is_leader and leader.term == term, "members: one that was removed deposes leaders")


def learner_of_a_higher_term() -> None:
    """A member that was removed raised it, and it does not stand itself."""
    with _case() as case:
        case.group.start("c4")
        case.learn("c4")
        case.group.run_for(2_000)
        leader, raft = case.leader, case.group.ours("c4").member.raft
        # Until its leader has been silent for a while it heeds no request (R5).
        case.group.cut("c4")
        case.group.run_for(TIMING.raft_election_timeout_ms_min)
        case.group.heal()
        other = next(name for name in ALL[:3] if name != leader.name)
        request = RequestVote(term=leader.term + 5, last_index=1, last_term=0)
        raft.node.transport.deliver(raft.member_named(ControllerName(other)), request)
        case.group.run_for(3_000)
        must(case.group.commit("after"), "the others go on")
        case.group.run_for(500)
        must(case.group.ours("c4").ids[-1] == "after", "members: one without a vote refuses an older term for ever")


def vote_too_early() -> None:
    """The one that comes is not even running: of two voters one would be left."""
    with _case(founders=1) as case:
        must(case.learn("c2"), "c2 is being added")
        case.group.run_for(500)
        must(not case.ask(partial(promoted, name="c2")), "members: one that has no entry gets a vote")
        must(case.group.commit("alone"), "members: nothing commits while a new one is away")


def two_voters_in_one_step() -> None:
    """{c1..c5} without two is {c1,c2,c3}: three of five and two of three may have nobody in common but one."""
    with _case(founders=5) as case:
        gone = [name for name in ALL if name != case.leader.name][:2]
        is_taken = case.ask(lambda members: without(without(members, gone[0]), gone[1]))
        must(not is_taken, "members: two voters go in one step")


def learner_stands() -> None:
    """It has every entry, and hears the leader no more."""
    with _case() as case:
        case.group.start("c4")
        case.learn("c4")
        case.group.run_for(2_000)
        leader = case.leader
        term = leader.term
        case.group.cut("c4", leader.name)
        case.group.run_for(10_000)
        # The others heed no candidate beside their leader (R5); the leader itself has to.
        case.group.heal()
        case.group.run_for(10_000)
        must(leader.is_leader and leader.term == term, "members: one without a vote stands for election")


MEMBER_CASES: dict[str, Callable[[], None]] = {
    "members-two-changes-at-once": two_changes_at_once,
    "members-of-an-entry-that-is-cut": entry_that_is_cut,
    "members-behind-a-snapshot": behind_a_snapshot,
    "members-learner-away": learner_away,
    "members-replaced-while-one-sleeps": replaced_while_one_sleeps,
    "members-removed-and-standing": removed_and_standing,
    "members-learner-of-a-higher-term": learner_of_a_higher_term,
    "members-vote-too-early": vote_too_early,
    "members-two-voters-in-one-step": two_voters_in_one_step,
    "members-learner-stands": learner_stands,
}
"""By name, as ``directed.CASES``."""
