"""Members that come late, by too little CPU or slow disks: they elected one leader after the other."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.raft.patience import (
    CALM_MS,
    ELECTION_TIMEOUT_MS_MAX,
    LOST_STEPS_MAX,
    Patience,
)
from tests.support.raft_virtual import NAMES, TIMING, OurNode, VirtualGroup

MS = 1_000_000
PAUSE_MS = 20


def _started(patch: pytest.MonkeyPatch, seed: int = 1) -> VirtualGroup:
    group = VirtualGroup(patch, OurNode, seed=seed)
    group.elect()
    group.run_for(2 * CALM_MS)
    return group


def _terms(group: VirtualGroup) -> int:
    return max(node.term for node in group.nodes.values())


def _starved(seed: int) -> Callable[[str], int]:
    random = Random(seed)
    return lambda _name: random.randrange(1_000, 3_000)


def _factors(group: VirtualGroup) -> list[int]:
    return [group.ours(name).member.raft.node.transport.stretch for name in group.nodes]


class _Member:
    """A ``Patience`` and its clock."""

    def __init__(self, shortest_ms: int = 300) -> None:
        self.now_ms, self.term = 0, 1
        self.patience = Patience(shortest_ms=shortest_ms, pause_ms=PAUSE_MS, now_ns=0)
        self.turn()

    def turn(self, late_ms: int = 0, *, is_confirmed: bool = True) -> bool:
        self.now_ms += PAUSE_MS + late_ms
        return self.patience.turn(self.now_ms * MS, term=self.term, is_confirmed=is_confirmed)

    def lose_election(self) -> None:
        self.term += 1
        self.turn(is_confirmed=False)

    def be_calm(self, milliseconds: int) -> None:
        for _ in range(milliseconds // PAUSE_MS):
            self.turn()


@pytest.mark.parametrize("seed", range(4))
def test_p12_a_starved_control_plane_elected_for_ever(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Each turn 1 to 3 s late, for ten minutes: it was elected 320 times."""
    group = _started(monkeypatch, seed)
    before = _terms(group)
    group.run_late(600_000, _starved(seed))
    assert _terms(group) - before <= 3
    assert group.leader is not None


@pytest.mark.parametrize("seed", range(4))
def test_starved_members_elect_another_leader_when_theirs_dies(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """They wait longer, and not for ever: twice the shortest timeout, once more if two stood, and their late turns."""
    group = _started(monkeypatch, seed)
    group.run_late(60_000, _starved(seed))
    leader = group.leader
    assert leader is not None
    group.crash(leader.name)
    group.run_late(5 * ELECTION_TIMEOUT_MS_MAX, _starved(seed + 1))
    assert group.leader is not None


@pytest.mark.parametrize("seed", range(4))
def test_starved_members_find_a_leader_when_they_start(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    group = VirtualGroup(monkeypatch, OurNode, seed=seed)
    group.run_late(120_000, _starved(seed))
    before = _terms(group)
    assert group.leader is not None
    group.run_late(480_000, _starved(seed))
    assert _terms(group) - before <= 2


@pytest.mark.parametrize("late", NAMES)
def test_the_lead_goes_to_a_member_that_is_not_late(monkeypatch: pytest.MonkeyPatch, late: str) -> None:
    """One machine has no CPU; whoever led before, one of the others does then, and keeps it."""
    group = _started(monkeypatch)
    random = Random(1)

    def late_ms(name: str) -> int:
        return random.randrange(1_000, 3_000) if name == late else PAUSE_MS

    group.run_late(60_000, late_ms)
    before = _terms(group)
    leader = group.leader
    assert leader is not None
    assert leader.name != late
    group.run_late(540_000, late_ms)
    assert _terms(group) == before
    assert leader.is_leader


@pytest.mark.parametrize("seed", range(4))
def test_calm_members_wait_no_longer_than_before(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Also after a pause of one machine, and after each of ten leaders that died."""
    group = _started(monkeypatch, seed)
    for _ in range(10):
        group.now_ns += 2_000 * MS
        leader = group.elect()
        group.run_for(500)
        assert _factors(group) == [1, 1, 1]
        group.crash(leader.name)
        assert group.run_for(2 * TIMING.raft_election_timeout_ms_max, lambda: group.leader is not None)
        group.start(leader.name)
        group.run_for(CALM_MS + 1_000)


def test_a_late_turn_reads_before_it_judges(monkeypatch: pytest.MonkeyPatch) -> None:
    """A follower without CPU for 2 s stood beside a leader whose word lay in its socket."""
    group = _started(monkeypatch)
    before, leader = _terms(group), group.elect()
    late = next(name for name in NAMES if name != leader.name)
    turns_ms = iter([2_000, 10_000])
    group.run_late(3_000, lambda name: next(turns_ms) if name == late else PAUSE_MS)
    assert _terms(group) == before
    assert leader.is_leader


def test_an_order_to_stand_is_not_put_off_by_a_late_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    group = _started(monkeypatch)
    leader = group.elect()
    target = next(name for name in NAMES if name != leader.name)
    group.ours(leader.name).member.hand_over(ControllerName(target), lambda _how: None)
    node = group.ours(target).member.raft.node
    assert group.run_for(300, lambda: node._SyncObj__raftElectionDeadline == 0 or group.nodes[target].is_leader)
    node.internals.defer_election()
    assert group.run_for(200, lambda: group.nodes[target].is_leader)


def test_two_late_turns_stretch_and_one_does_not() -> None:
    member = _Member()
    assert member.turn(late_ms=1_000)
    assert (member.patience.factor, member.patience.late_ns) == (1, 0)
    assert not member.turn()
    assert member.turn(late_ms=2_000)
    # Three times 1,000 ms are waited at least: 16 x 300.
    assert (member.patience.factor, member.patience.late_ns) == (16, 1_000 * MS)


def test_two_late_turns_that_are_far_apart_stretch_nothing() -> None:
    member = _Member()
    for _ in range(3):
        member.turn(late_ms=1_000)
        member.be_calm(CALM_MS)
    assert member.patience.factor == 1


@pytest.mark.parametrize(("shortest_ms", "factor"), [(300, 32), (1_000, 8), (10_000, 1), (20_000, 1)])
def test_no_timeout_is_stretched_beyond_its_limit(shortest_ms: int, factor: int) -> None:
    member = _Member(shortest_ms)
    for _ in range(9):
        member.turn(late_ms=60_000)
    assert member.patience.factor == factor
    assert shortest_ms * factor <= max(ELECTION_TIMEOUT_MS_MAX, shortest_ms)


def test_a_member_waits_shorter_again_step_by_step_and_only_under_a_leader() -> None:
    member = _Member()
    for _ in range(3):
        member.turn(late_ms=200)
    assert member.patience.factor == 2
    for _ in range(2 * CALM_MS // PAUSE_MS):
        member.turn(is_confirmed=False)
    assert member.patience.factor == 2
    member.be_calm(CALM_MS + PAUSE_MS)
    assert (member.patience.factor, member.patience.late_ns) == (1, 0)


def test_elections_that_nobody_wins_stretch_from_the_second_on_and_a_confirmed_leader_ends_that() -> None:
    member = _Member()
    member.lose_election()
    member.lose_election()
    assert member.patience.factor == 1
    member.lose_election()
    assert member.patience.factor == 2
    for _ in range(9):
        member.lose_election()
    assert member.patience.factor == 1 << LOST_STEPS_MAX
    member.turn(is_confirmed=True)
    member.lose_election()
    member.be_calm((LOST_STEPS_MAX + 1) * CALM_MS)
    assert member.patience.factor == 1


def test_leaders_that_die_one_after_the_other_stretch_nothing() -> None:
    """Each of their elections was won."""
    member = _Member()
    for _ in range(20):
        member.term += 1
        member.turn()
    assert member.patience.factor == 1
