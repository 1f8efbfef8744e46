"""
The faults of PySyncObj 0.3.17, shown on the stock library and absent from ours (P1, P3 to P7, docs/pysyncobj.md).

A new release of the library is judged by the ``stock`` half: a test of it that fails means that a repair may go.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rollcall_ha.controller.replication.raft import node as raft_node
from rollcall_ha.controller.replication.raft.messages import Answer, RequestVote, Vote
from tests.support.raft_virtual import NAMES, TIMING, OurNode, StockNode, VirtualGroup, VirtualNode

Make = Callable[[VirtualGroup, str], VirtualNode]
KINDS = pytest.mark.parametrize(("make", "is_stock"), [(StockNode, True), (OurNode, False)], ids=["stock", "ours"])


def _acknowledged(message: Any) -> int:
    if isinstance(message, Answer):
        return message.next_index - 1 if message.is_success else 0
    if isinstance(message, dict) and message["type"] == "next_node_idx" and message["success"]:
        return int(message["next_node_idx"]) - 1
    return 0


class _HoleWatch:
    """Counts messages after which a follower's log ended before something it had acknowledged."""

    def __init__(self, group: VirtualGroup) -> None:
        self.group = group
        self.acknowledged: dict[str, int] = {}
        self.holes = 0
        group.before_delivery = self._before
        group.after_delivery = self._after

    def _before(self, source: str, target: str, message: Any) -> None:
        if self.group.nodes[target].is_leader:
            self.acknowledged[source] = max(self.acknowledged.get(source, 0), _acknowledged(message))

    def _after(self, source: str, target: str, message: Any) -> None:
        if self.group.nodes[target].last_index < self.acknowledged.get(target, 0):
            self.holes += 1


@pytest.mark.slow
@KINDS
def test_p1_a_follower_never_lacks_what_it_acknowledged(
    make: Make, is_stock: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P1: the stock leader sends entries in flight again, the stock follower cuts them off first."""
    monkeypatch.setattr(raft_node, "APPEND_BATCH_BYTES", 64 * 1024)
    group = VirtualGroup(monkeypatch, make)
    leader = group.elect()
    watch = _HoleWatch(group)
    followers = [name for name in NAMES if name != leader.name]
    committed: list[bool | None] = []
    for round_number in range(60):
        for number in range(4):
            leader.propose(f"{round_number}-{number}-" + "x" * 20_000, committed.append)
        group.now_ns += 2_000_000
        leader.tick()
        for follower in followers:
            # The network is a little behind: some messages stay under way.
            for _ in range(3):
                group.deliver_one(leader.name, follower)
            group.nodes[follower].tick()
            group.deliver_one(follower, leader.name)
            group.deliver_one(follower, leader.name)
    group.run_for(2_000)
    assert committed == [True] * 240
    assert (watch.holes > 0) == is_stock


@KINDS
def test_p3_a_returning_leader_does_not_report_what_was_never_committed(
    make: Make, is_stock: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P3: the pieces of a snapshot made the stock node commit its own dead tail, with SUCCESS to its callers."""
    group = VirtualGroup(monkeypatch, partial(make, compaction_entries=10))  # type: ignore[call-arg]
    old = group.elect()
    group.cut(old.name)
    answers: list[bool | None] = []
    for number in range(5):
        old.propose(f"ghost-{number}", answers.append)
    group.run_for(100)
    survivors = [group.nodes[name] for name in NAMES if name != old.name]
    group.run_for(3_000, lambda: any(node.is_leader for node in survivors))
    new = next(node for node in survivors if node.is_leader)
    for number in range(60):
        new.propose(f"real-{number}", lambda _: None)
        group.run_for(20)
    group.run_for(1_500)
    seen: list[list[str]] = []
    group.after_delivery = lambda _source, target, _message: seen.append(old.ids) if target == old.name else None
    group.heal()
    group.run_slowly(100)
    group.run_for(3_000)
    assert old.ids == new.ids
    was_falsely_told = True in answers
    assert was_falsely_told == is_stock
    if not is_stock:
        assert not any(text.startswith("ghost") for ids in seen for text in ids), "a dirty read"


@KINDS
def test_p4_an_entry_on_which_apply_raises_does_not_stop_the_group(
    make: Make, is_stock: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P4: the stock library tries such an entry for ever, on every node, and applies part of it each time."""
    group = VirtualGroup(monkeypatch, make)
    group.elect().propose("poison", lambda _: None)
    group.run_for(1_000)
    leader = group.leader
    assert leader is not None
    done: list[bool | None] = []
    leader.propose("after", done.append)
    group.run_for(1_000)
    assert (done == [True]) == (not is_stock)
    if not is_stock:
        assert [node.ids for node in group.nodes.values()] == [["after"]] * 3
        assert [node.library.apply_failures for node in group.nodes.values()] == [1] * 3


@KINDS
def test_p5_a_callback_that_raises_does_not_make_a_node_diverge(
    make: Make, is_stock: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """P5: on the stock library the leader applies that entry twice, its followers once."""
    group = VirtualGroup(monkeypatch, make)
    is_first = [True]

    def raising(_: bool | None) -> None:
        if is_first.pop() if is_first else False:
            raise RuntimeError("Event loop is closed")

    group.elect().propose("one", raising)
    group.run_for(1_000)
    counts = sorted(len(node.ids) for node in group.nodes.values())
    assert (counts == [1, 1, 2]) == is_stock
    assert (counts == [1, 1, 1]) == (not is_stock)


def _power_loss_survivors(group: VirtualGroup, acknowledged: list[str]) -> set[str]:
    for name in NAMES:
        group.crash(name, power=True)
    for name in NAMES:
        group.start(name)
    group.elect()
    return set(acknowledged) & set(group.elect().ids)


def test_stock_library_never_syncs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """P6: 0.3.17 acknowledges from a memory map that nobody ever syncs."""
    syncs: list[int] = []
    monkeypatch.setattr(os, "fsync", syncs.append)
    monkeypatch.setattr(os, "fdatasync", syncs.append)
    group = VirtualGroup(monkeypatch, lambda own, name: StockNode(own, name, journal=str(tmp_path / f"journal-{name}")))
    assert all(group.commit(str(number)) for number in range(5))
    assert syncs == []
    for node in group.nodes.values():
        node.library.destroy()


@pytest.mark.parametrize("seed", range(8))
def test_what_was_acknowledged_survives_a_power_loss_of_all(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """P6: every answer is behind a sync, on a majority, so that no subset of unsynced pages matters."""
    group = VirtualGroup(monkeypatch, partial(OurNode, compaction_entries=20), seed=seed)
    acknowledged: list[str] = []
    leader = group.elect()
    for number in range(50):
        text = f"id-{number}"
        leader.propose(text, lambda told, text=text: acknowledged.append(text) if told else None)  # type: ignore[misc]
        if group.random.random() < 0.5:
            group.run_for(5 * group.random.randrange(1, 4))
    assert len(acknowledged) > 10
    terms = group.leader and group.leader.term
    assert _power_loss_survivors(group, acknowledged) == set(acknowledged)
    assert group.elect().term > (terms or 0), "terms never fall"


def _ask_for_vote(group: VirtualGroup, voter: str, candidate: str, term: int) -> bool:
    """Whether ``voter`` says yes to ``candidate`` now."""
    granted: list[Any] = []
    queue = group.queues[voter, candidate]
    queue.clear()
    node = group.nodes[voter]
    if isinstance(node, OurNode):
        # Nobody whom it heard counts on it any more (R5).
        group.now_ns += TIMING.raft_election_timeout_ms_min * 1_000_000
        node.receive(candidate, RequestVote(term=term, last_index=1_000, last_term=term - 1))
        granted = [message for message in queue if isinstance(message, Vote)]
    else:
        node.receive(
            candidate, {"type": "request_vote", "term": term, "last_log_index": 1_000, "last_log_term": term - 1}
        )
        granted = [message for message in queue if message["type"] == "response_vote"]
    return bool(granted)


def _restart(group: VirtualGroup, name: str, *, power: bool) -> None:
    group.crash(name, power=power)
    group.start(name)


def test_stock_library_without_a_journal_votes_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """P7: two leaders in one term are possible."""
    group = VirtualGroup(monkeypatch, StockNode)
    assert _ask_for_vote(group, "c1", "c2", 7)
    _restart(group, "c1", power=True)
    assert _ask_for_vote(group, "c1", "c3", 7), "the stock library has learned to remember: this repair may go"


def test_a_vote_is_remembered_over_a_power_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """P7: a vote leaves after its sync."""
    group = VirtualGroup(monkeypatch, OurNode)
    assert _ask_for_vote(group, "c1", "c2", 7)
    _restart(group, "c1", power=True)
    assert not _ask_for_vote(group, "c1", "c3", 7)


def test_a_node_that_lost_its_files_does_not_vote(monkeypatch: pytest.MonkeyPatch) -> None:
    """P7: it may have forgotten a vote; the stock library votes at once."""
    group = VirtualGroup(monkeypatch, OurNode)
    group.elect()
    group.crash("c1")
    group.wipe("c1")
    group.cut("c1")
    group.start("c1")
    group.heal()
    assert not _ask_for_vote(group, "c1", "c2", 70)


@pytest.mark.slow
def test_importing_the_library_broke_inet_ntop_for_the_whole_process() -> None:
    """Its shim for Windows replaces ``socket.inet_ntop`` everywhere; ours puts the system's back."""
    look = "import socket; {}; print(socket.inet_ntop(socket.AF_INET, bytes((127, 0, 0, 1))))"

    def outcome(imported: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", look.format(imported)], capture_output=True, text=True, check=False
        )
        return done.stdout.strip()

    assert outcome("import pysyncobj") == ""
    for module in ("internals", "journal", "config"):  # whichever a process imports first
        assert outcome(f"import rollcall_ha.controller.replication.raft.{module}") == "127.0.0.1"
