"""
What the library's own change of members does under a network that a test moves: adr/0020.

It is not used. A test that fails here with a newer release says that a fault is gone, and that the decision can be made
anew.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations
from pathlib import Path

import pytest

from tests.support.raft_virtual import StockNode, VirtualGroup

FOUNDERS = ("c1", "c2", "c3")
ALL = (*FOUNDERS, "c4", "c5")


def stock(group: VirtualGroup, name: str) -> StockNode:
    node = group.nodes[name]
    assert isinstance(node, StockNode)
    return node


def founded(patch: pytest.MonkeyPatch, directory: Path | None = None) -> tuple[VirtualGroup, list[StockNode]]:
    """c1, c2 and c3 with a leader and an entry; c4 and c5 run and are linked to nobody. Leader first."""

    def make(group: VirtualGroup, name: str) -> StockNode:
        journal = None if directory is None else str(directory / name)
        return StockNode(group, name, founders=FOUNDERS, journal=journal)

    group = VirtualGroup(patch, make, ALL)
    for new in ("c4", "c5"):
        group.cut(new)
    assert group.commit("first")
    leader = group.elect()
    return group, [stock(group, name) for name in (leader.name, *(one for one in FOUNDERS if one != leader.name))]


def link(group: VirtualGroup, *names: str) -> None:
    """These are linked to each other, and to nobody else."""
    for name in ALL:
        group.cut(name)
    for one, other in combinations(names, 2):
        reconnect(group, one, other)


def _is_long(answers: list[int], count: int) -> bool:
    return len(answers) >= count


def reconnect(group: VirtualGroup, one: str, other: str) -> None:
    group.cuts -= {(one, other), (other, one)}
    group._connect(one, other)


def test_two_changes_at_once_are_both_taken_and_two_majorities_commit_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The index of the change that is under way is never set: the library's "one at a time" refuses nothing.

    {c1,c2,c3} becomes five in one step. c1 commits with c4 and c5, three of five; c2 and c3, two of three, elect.
    """
    group, (leader, one, other) = founded(monkeypatch)
    link(group, leader.name, "c4", "c5")
    answers: list[int] = []
    for new in ("c4", "c5"):
        leader.change("add", new, answers.append)
    group.run_for(100)
    assert leader.members == list(ALL), "the library has learned to refuse a second change: see adr/0020"
    told: list[bool | None] = []
    leader.propose("of five", told.append)
    group.run_for(500)
    assert told == [True]

    reconnect(group, one.name, other.name)
    group.run_for(2_000)
    second = next(node for node in (one, other) if node.is_leader)
    second.propose("of three", told.append)
    group.run_for(500)
    assert told == [True, True]
    assert leader.is_leader
    assert leader.entry_at(leader.commit_index) != second.entry_at(leader.commit_index)
    assert (leader.ids, second.ids) == (["first", "of five"], ["first", "of three"])


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_restart_forgets_changes_in_the_log_and_two_majorities_commit_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """
    One change after the other. c2 has both in its journal when it restarts, and counts by the members that its
    configuration file names until it has applied them: c2 and c3 elect, beside three of five.
    """
    group, (leader, one, other) = founded(monkeypatch, tmp_path)
    link(group, leader.name, one.name, "c4", "c5")
    answers: list[int] = []
    for count, new in enumerate(("c4", "c5"), start=1):
        leader.change("add", new, answers.append)
        assert group.run_for(300, partial(_is_long, answers, count))
    assert answers == [0, 0]
    assert leader.members == one.members == list(ALL)
    group.crash(one.name)
    link(group, one.name, other.name)
    again = stock(group, group.start(one.name).name)
    assert again.last_index == leader.last_index
    assert again.members == list(FOUNDERS), "the library has learned to read its members from the log: see adr/0020"

    for pair in (("c4", "c5"), (leader.name, "c4"), (leader.name, "c5")):
        reconnect(group, *pair)
    told: list[bool | None] = []
    leader.propose("of five", told.append)
    group.run_for(3_000)
    assert told == [True]
    # It led by two votes of three and committed its first entry with them; that applied the changes, and ended its lead.
    index = leader.last_index
    assert min(leader.commit_index, again.commit_index, other.commit_index) >= index
    assert again.entry_at(index) == other.entry_at(index) != leader.entry_at(index)
    for node in (*group.nodes.values(), one):
        node.library.destroy()
