"""
Laws of the hardened group under chance: cuts, crashes, power losses, wiped disks, slow links.

Law 1: what was acknowledged is there at the end, once and in every node.
Law 2: of two nodes' histories one is the beginning of the other.
Law 3: a term has one leader.
Law 4: within a term a follower's log never ends before what it acknowledged, and nobody speaks in a lower term than
before.
Law 5: no answer, vote or request for one leaves before what it rests on is synced.
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
from rollcall_ha.controller.replication.raft.messages import Answer, ProtocolError, RequestVote, Vote
from tests.support.raft_virtual import NAMES, OurNode, VirtualGroup


class _Laws:
    """Watches every delivery."""

    def __init__(self, group: VirtualGroup) -> None:
        self.group = group
        self.leaders: dict[int, str] = {}
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.terms: dict[str, int] = {}
        self.sudden: list[str] = []
        """Nodes that lose power within the step: what they just received is not synced, what they just sent arrives."""
        group.on_send = self.sent
        group.before_delivery = self.before
        group.after_delivery = self.after
        group.dies_after = self.dies

    def sent(self, source: str, message: Any) -> None:
        if isinstance(message, Answer | RequestVote | Vote):
            node = self.group.nodes[source]
            assert isinstance(node, OurNode)
            assert not node.member.raft.node.journal.is_dirty, f"{message} left before its sync"
            assert message.term >= self.terms.get(source, 0), f"{source} spoke in a higher term before"
            self.terms[source] = message.term

    def before(self, source: str, _target: str, message: Any) -> None:
        if isinstance(message, Answer) and message.is_success:
            key = (source, message.term)
            self.acknowledged[key] = max(self.acknowledged.get(key, 0), message.next_index - 1)

    def dies(self, target: str) -> bool:
        if self.group.random.random() < 0.004 and len(self.group.nodes) == len(NAMES):
            self.sudden.append(target)
            return True
        return False

    def after(self, _source: str, _target: str, _message: Any) -> None:
        for name, node in self.group.nodes.items():
            assert node.last_index >= self.acknowledged.get((name, node.term), 0), "a hole in what was acknowledged"
            if node.is_leader:
                assert self.leaders.setdefault(node.term, name) == name, f"two leaders in term {node.term}"

    def histories_agree(self) -> None:
        histories = sorted((node.ids for node in self.group.nodes.values()), key=len)
        for shorter, longer in pairwise(histories):
            assert longer[: len(shorter)] == shorter


def _disturb(group: VirtualGroup, random: Random, laws: _Laws, *, may_wipe: bool) -> None:
    victim = random.choice(NAMES)
    match random.randrange(7 if may_wipe else 6):
        case 0:
            group.cut(victim)
        case 1:
            group.cut(*random.sample(NAMES, 2))
        case 2:
            group.heal()
        case 3 | 4:
            group.crash(victim, power=random.random() < 0.7)
            group.start(victim)
        case 5:
            for name in random.sample(NAMES, 3):
                group.crash(name, power=True)
            for name in NAMES:
                group.start(name)
        case _:
            # One memory at a time: with two of three gone, nothing can be known.
            is_calm = all(isinstance(node, OurNode) and node.member.raft.is_voter for node in group.nodes.values())
            if is_calm and len(group.nodes) == len(NAMES):
                group.crash(victim)
                group.wipe(victim)
                laws.acknowledged = {key: index for key, index in laws.acknowledged.items() if key[0] != victim}
                laws.terms.pop(victim, None)
                group.start(victim)


def _run(seed: int, *, may_wipe: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        group = VirtualGroup(patch, partial(OurNode, compaction_entries=15), seed=seed)
        laws = _Laws(group)
        random = Random(seed)
        acknowledged: list[str] = []
        for number in range(120):
            if random.random() < 0.12:
                _disturb(group, random, laws, may_wipe=may_wipe)
            leader = group.leader
            if isinstance(leader, OurNode) and random.random() < 0.1:
                # To any member: one that is cut off, lags, or has lost its memory is not asked, or does not stand.
                leader.member.hand_over(ControllerName(random.choice(NAMES)), lambda _how: None)
            if leader is not None:
                text = f"{number}"
                leader.propose(text, lambda told, text=text: acknowledged.append(text) if told else None)  # type: ignore[misc]
            try:
                if random.random() < 0.5:
                    group.run_slowly(random.randrange(1, 20))
                else:
                    group.run_for(5 * random.randrange(1, 60))
            except ProtocolError as error:
                raise AssertionError(f"our own nodes never send nonsense: {error}") from error
            laws.histories_agree()
            # One that died behind a delivery may have been started again already.
            for name in dict.fromkeys(laws.sudden):
                if name not in group.nodes:
                    group.start(name)
            laws.sudden.clear()
        assert acknowledged, "nothing was committed at all"
        group.heal()
        group.dies_after = lambda _target: False
        for name in NAMES:
            if name not in group.nodes:
                group.start(name)
        group.elect()
        group.run_for(2_000)
        laws.histories_agree()
        for node in group.nodes.values():
            kept = [text for text in node.ids if text in set(acknowledged)]
            assert sorted(kept) == sorted(acknowledged)


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.integers(0, 2**32))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    """Laws 1 to 5 under cuts, crashes and power losses."""
    _run(seed, may_wipe=False)


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 2**32))
def test_nothing_acknowledged_is_lost_when_a_node_loses_its_memory(seed: int) -> None:
    """The same with disks that come back empty, one at a time (P7)."""
    _run(seed, may_wipe=True)
