"""
Laws of a group whose members change, from one to three, to five and back to three, while members are killed at every step.

The laws are 1 to 3 of ``test_replication_raft``: what was acknowledged is there at the end, once and in every member; of
two histories one is the beginning of the other; a term has one leader. And the group gets where the operator wants it.
"""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.ports import ProposalOutcome
from rollcall_ha.controller.replication.raft.membership import Membership, Seat, promoted, with_learner, without
from rollcall_ha.controller.replication.raft.messages import ProtocolError
from tests.support.raft_virtual import OurNode, VirtualGroup

ALL = ("c1", "c2", "c3", "c4", "c5", "c6")
GOALS = (("c1", "c2", "c3"), ("c1", "c2", "c3", "c4", "c5"), ("c3", "c5", "c6"))
"""c6 takes the place of members that founded the group."""
STEPS_MAX = 1_500


class Changing:
    """A group, its operator, and what both have seen."""

    def __init__(self, patch: pytest.MonkeyPatch, seed: int) -> None:
        self.random = Random(seed)
        self.group = VirtualGroup(patch, partial(OurNode, compaction_entries=15), ALL, seed=seed, founders=ALL[:1])
        self.group.after_delivery = self._after
        self.group.dies_after = self._dies
        self.leaders: dict[int, str] = {}
        self.acknowledged: list[str] = []
        self.number = 0
        self.is_calm = False
        self.has_stepped = False
        self.steps = 0

    def _after(self, _source: str, _target: str, _message: Any) -> None:
        for name, node in self.group.nodes.items():
            if node.is_leader:
                assert self.leaders.setdefault(node.term, name) == name, f"two leaders in term {node.term}"

    def _dies(self, _target: str) -> bool:
        return not self.is_calm and self.random.random() < 0.001

    def agree(self) -> None:
        histories = sorted((node.ids for node in self.group.nodes.values()), key=len)
        for shorter, longer in pairwise(histories):
            assert longer[: len(shorter)] == shorter, "two histories"

    def leader(self) -> OurNode | None:
        leader = self.group.leader
        assert leader is None or isinstance(leader, OurNode)
        return leader

    def members(self) -> Membership | None:
        leader = self.leader()
        return None if leader is None else leader.member.raft.node.members

    def operate(self, goal: tuple[str, ...]) -> bool:
        """One order towards ``goal``; True once the group is there."""
        leader, members = self.leader(), self.members()
        if leader is None or members is None:
            return False
        raft = leader.member.raft.node
        voters = {seat.name for seat in members.voters}
        if voters == set(goal) and not members.learners:
            return raft.journal.configuration[0] <= leader.commit_index
        missing = [name for name in goal if name not in {seat.name for seat in members.seats}]
        ready = [seat.name for seat in members.learners if seat.name in goal]
        extra = sorted(voters - set(goal))
        if ready:
            leader.member.change(partial(promoted, name=ready[0]), self._changed)
        elif missing:
            if missing[0] not in self.group.nodes:
                self.group.start(missing[0])
            seat = Seat(name=missing[0], raft="127.0.0.1:1")
            leader.member.change(partial(with_learner, seat=seat), self._changed)
        elif leader.name in extra:
            others = [name for name in goal if name != leader.name]
            leader.member.hand_over(ControllerName(self.random.choice(others)), lambda _how: None)
        elif extra:
            leader.member.change(partial(without, name=extra[0]), self._changed)
        return False

    def _changed(self, outcome: ProposalOutcome) -> None:
        # Not yet applied by all, and for UNKNOWN perhaps never: that is when members are killed.
        self.has_stepped = self.has_stepped or outcome.status.value != "not-proposed"

    def disturb(self) -> None:
        group, random = self.group, self.random
        alive = list(group.nodes)
        if not alive:
            return
        match random.randrange(6):
            case 0:
                group.cut(random.choice(alive))
            case 1 if len(alive) > 1:
                group.cut(*random.sample(alive, 2))
            case 2:
                group.heal()
            case 3:
                leader = self.leader()
                if leader is not None:
                    group.crash(leader.name, power=random.random() < 0.7)
            case _:
                for name in random.sample(alive, random.choice((1, 1, len(alive)))):
                    group.crash(name, power=random.random() < 0.7)

    def send(self) -> None:
        leader = self.leader()
        if leader is not None:
            self.number += 1
            text = f"{self.number}"
            leader.propose(text, lambda told: self.acknowledged.append(text) if told else None)

    def restart(self, *, share: float) -> None:
        for name in ALL:
            is_known = self.group.disks[name].exists("journal")
            if name not in self.group.nodes and is_known and self.random.random() < share:
                self.group.start(name)

    def reach(self, goal: tuple[str, ...]) -> None:
        """Until the members are ``goal``, committed."""
        for step in range(STEPS_MAX):
            self.steps += 1
            is_there = self.operate(goal) if self.random.random() < 0.6 else False
            if is_there:
                return
            self.send()
            # In the middle of each step, and now and then between them.
            if step < STEPS_MAX // 2 and (
                (self.has_stepped and self.random.random() < 0.5) or self.random.random() < 0.05
            ):
                self.has_stepped = False
                self.disturb()
            if step >= STEPS_MAX // 2:
                self.group.heal()
            if self.random.random() < 0.5:
                self.group.run_slowly(self.random.randrange(1, 20))
            else:
                self.group.run_for(5 * self.random.randrange(1, 60))
            self.agree()
            self.restart(share=0.3 if step < STEPS_MAX // 2 else 1.0)
        raise AssertionError(f"the members are {self.members()}, not {goal}, after {STEPS_MAX} steps")


def run(seed: int) -> Changing:
    """One life of a group. Raises ``AssertionError``: a law is broken."""
    with pytest.MonkeyPatch.context() as patch:
        changing = Changing(patch, seed)
        changing.group.elect()
        try:
            for goal in GOALS:
                changing.reach(goal)
        except ProtocolError as error:
            raise AssertionError(f"our own nodes never send nonsense: {error}") from error
        changing.is_calm = True
        changing.group.heal()
        changing.restart(share=1.0)
        # Those that were removed are switched off, as an operator does.
        for name in ALL:
            if name not in GOALS[-1] and name in changing.group.nodes:
                changing.group.crash(name)
        changing.group.elect()
        # "Unknown" is an answer, too: one that comes back in a higher term ends the lead of that moment.
        assert any(changing.group.commit(f"last-{attempt}") for attempt in range(5))
        changing.group.run_for(3_000)
        changing.agree()
        for name in GOALS[-1]:
            ids = changing.group.nodes[name].ids
            kept = [text for text in ids if text in set(changing.acknowledged)]
            assert sorted(kept) == sorted(changing.acknowledged), f"{name} lacks what was acknowledged"
        return changing


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
def test_members_change_under_kills_and_nothing_acknowledged_is_lost(seed: int) -> None:
    run(seed)
