"""Members that come late, by too little CPU or slow disks: they elected one leader after the other."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.ports import RaftRole
from rollcall_ha.controller.replication.raft.member import PLEDGED_FILE_NAME
from rollcall_ha.controller.replication.raft.messages import PLEDGES_SINCE, Answer, RequestVote, Vote, encode_message
from rollcall_ha.controller.replication.raft.patience import (
    CALM_MS,
    CALM_MS_MAX,
    ELECTION_TIMEOUT_MS_MAX,
    LOST_STEPS_MAX,
    Patience,
)
from rollcall_ha.controller.runtime.authority import holds_authority
from tests.support.raft_ledger import LedgerMachine
from tests.support.raft_virtual import NAMES, TIMING, OurNode, VirtualGroup

pytestmark = pytest.mark.slow
"""Virtual hours of five members."""

MS = 1_000_000
PAUSE_MS = 20
_PROVE = [pytest.mark.slow, pytest.mark.prove]
SEEDS = pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=_PROVE) for seed in (2, 3))])


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


def _gasping(group: VirtualGroup, seed: int) -> Callable[[str], int]:
    """Each member by itself: three turns of 300 to 900 ms in about twenty seconds, and none late between."""
    random = Random(seed)
    begins_ns = {name: group.now_ns + random.randrange(20_000) * MS for name in group.nodes}
    turns = dict.fromkeys(group.nodes, 0)

    def late_ms(name: str) -> int:
        if not turns[name] and group.now_ns >= begins_ns[name]:
            begins_ns[name] = group.now_ns + random.randrange(10_000, 30_000) * MS
            turns[name] = 3
        if not turns[name]:
            return PAUSE_MS
        turns[name] -= 1
        return random.randrange(300, 900)

    return late_ms


def _factors(group: VirtualGroup) -> list[int]:
    return [group.ours(name).member.raft.node.transport.stretch for name in group.nodes]


class _Member:
    """A ``Patience`` and its clock."""

    def __init__(self, shortest_ms: int = 300) -> None:
        self.now_ms, self.term = 0, 1
        self.patience = Patience(shortest_ms=shortest_ms, now_ns=0)
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


@SEEDS
def test_p12_a_starved_control_plane_elected_for_ever(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Each turn 1 to 3 s late, for ten minutes: it was elected 320 times."""
    group = _started(monkeypatch, seed)
    before = _terms(group)
    group.run_late(600_000, _starved(seed))
    assert _terms(group) - before <= 3
    assert group.leader is not None


def test_p12_members_that_starve_for_a_moment_now_and_then_elected_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """In five minutes some twenty times: between two moments all had calmed down."""
    group = _started(monkeypatch)
    before = _terms(group)
    group.run_late(300_000, _gasping(group, 1))
    assert _terms(group) - before <= 8


@SEEDS
def test_starved_members_elect_another_leader_when_theirs_dies(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """They wait longer, and not for ever: twice the shortest timeout, once more if two stood, and their late turns."""
    group = _started(monkeypatch, seed)
    group.run_late(60_000, _starved(seed))
    leader = group.leader
    assert leader is not None
    group.crash(leader.name)
    group.run_late(5 * ELECTION_TIMEOUT_MS_MAX, _starved(seed + 1))
    assert group.leader is not None


@SEEDS
def test_starved_members_find_a_leader_when_they_start(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    group = VirtualGroup(monkeypatch, OurNode, seed=seed)
    group.run_late(120_000, _starved(seed))
    before = _terms(group)
    assert group.leader is not None
    group.run_late(480_000, _starved(seed))
    assert _terms(group) - before <= 2


class _Authority:
    """The controllers with authority at each look, as the program judges it, with its own entry applied."""

    def __init__(self, group: VirtualGroup) -> None:
        self._group = group
        self.held_ns = 0
        self._looked_ns = group.now_ns

    def look(self) -> None:
        holders = [name for name in self._group.nodes if self._is_held(name)]
        assert len(holders) <= 1, f"{holders} have authority at once"
        self.held_ns += (self._group.now_ns - self._looked_ns) * len(holders)
        self._looked_ns = self._group.now_ns

    def _is_held(self, name: str) -> bool:
        leadership = self._group.ours(name).member.leadership
        timeout_ms, now_ns = TIMING.raft_election_timeout_ms_min, self._group.now_ns
        return holds_authority(
            leadership, taken_term=leadership.term, now_ns=now_ns, election_timeout_ms_min=timeout_ms
        )


@SEEDS
def test_a_leader_that_all_followed_had_authority_for_moments(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """It read seconds later what its followers had answered, and each of them would have waited for longer."""
    group = _started(monkeypatch, seed)
    group.run_late(60_000, _starved(seed))
    authority = _Authority(group)
    group.run_late(600_000, _starved(seed), authority.look)
    assert authority.held_ns >= 570_000 * MS


@SEEDS
def test_r5_late_members_that_are_cut_off_killed_and_moved_have_one_authority(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A pledge holds over the process that made it, and ends before the leader to whom it was made is moved."""
    group, random = _started(monkeypatch, seed), Random(seed)
    authority, late = _Authority(group), dict.fromkeys(NAMES, 0)
    for _ in range(150):
        victim, leader = random.choice(NAMES), group.leader
        match random.randrange(6):
            case 0:
                late[victim] = random.choice((0, 0, 500, 3_000))
            case 1:
                group.cut(victim)
            case 2 | 3:
                group.heal()
            case 4:
                group.crash(victim, power=random.random() < 0.5)
                group.start(victim)
            case _:
                if isinstance(leader, OurNode):
                    leader.member.hand_over(ControllerName(victim), lambda _how: None)
        group.run_late(
            random.randrange(100, 5_000), lambda name: PAUSE_MS + random.randrange(late[name] + 1), authority.look
        )
    assert authority.held_ns > 0


@pytest.mark.parametrize("seed", [4, 6, 8])  # in which it is the first to stand
def test_r5_a_process_that_forgot_a_pledge_led_beside_the_leader_that_has_it(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """One follower is late, pledges seconds, is killed and started again; with the other it led after 600 ms."""
    group = _started(monkeypatch, seed=seed)
    leader = group.elect()
    late = next(name for name in NAMES if name != leader.name)
    random = Random(1)
    group.run_late(30_000, lambda name: random.randrange(1_000, 3_000) if name == late else PAUSE_MS)
    assert leader.is_leader
    authority = _Authority(group)
    group.cut(leader.name)
    group.crash(late)
    group.start(late)
    group.run_late(2 * ELECTION_TIMEOUT_MS_MAX, lambda _name: PAUSE_MS, authority.look)
    assert group.leader is not None
    assert group.leader.name != leader.name


def test_r5_a_process_is_bound_by_the_pledges_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """It forgot them with its memory, and voted beside the leader that counted on them for seconds."""
    group = _started(monkeypatch)
    group.run_late(30_000, _starved(1))
    leader = group.elect()
    voter, candidate = (name for name in NAMES if name != leader.name)
    assert group.disks[voter].exists(PLEDGED_FILE_NAME)
    group.crash(voter)
    group.start(voter)
    node = group.ours(voter)
    asked = RequestVote(term=node.term + 1, last_index=node.last_index + 1, last_term=node.term)
    group.now_ns += (ELECTION_TIMEOUT_MS_MAX - 1) * MS
    node.receive(candidate, asked)
    node.tick()
    assert node.term == asked.term - 1, "it neither votes nor stands"
    group.now_ns += MS
    node.receive(candidate, asked)
    assert node.term == asked.term


def test_r5_a_member_that_heard_its_leader_late_in_a_long_turn_forgot_what_it_pledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = _started(monkeypatch)
    group.run_late(30_000, _starved(1))
    leader = group.elect()
    late = next(name for name in NAMES if name != leader.name)
    node = group.ours(late).member.raft.node
    group.now_ns += (ELECTION_TIMEOUT_MS_MAX + 1_000) * MS
    node.transport._hear(leader.term, is_confirmed=True)
    monkeypatch.setattr(node.machine, "feature_level", lambda _state: PLEDGES_SINCE - 1)
    group.ours(late).tick()
    assert node.pledged_ms == 0
    assert node.transport.bound_until_ns > group.now_ns
    assert group.disks[late].exists(PLEDGED_FILE_NAME)


def test_a_member_that_is_calm_again_forgets_its_pledges(monkeypatch: pytest.MonkeyPatch) -> None:
    group = _started(monkeypatch)
    group.run_late(30_000, _starved(1))
    group.run_for(5 * CALM_MS_MAX)
    assert _factors(group) == [1, 1, 1]
    assert not any(disk.exists(PLEDGED_FILE_NAME) for disk in group.disks.values())


def test_r5_a_leader_that_died_was_missed_for_as_long_as_the_clock_of_the_library_was_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CLOCK_MONOTONIC_RAW of a machine was 250 ms behind CLOCK_MONOTONIC after minutes; after weeks it is minutes."""
    group = VirtualGroup(monkeypatch, OurNode)
    group.now_ns += 10**15
    group.library_ahead_ns = -600 * 10**9
    dead = group.elect()
    group.run_for(2 * CALM_MS)
    group.crash(dead.name)
    group.run_for(3 * TIMING.raft_election_timeout_ms_max)
    assert group.leader is not None


def test_r5_a_leader_is_seen_without_its_lead_before_its_vote_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread may wait for CPU right behind the vote, and the pledges of its followers last for seconds."""
    group = _started(monkeypatch)
    leader = group.ours(group.elect().name)
    candidate = next(name for name in NAMES if name != leader.name)
    roles: list[RaftRole] = []
    group.on_send = lambda source, message: (
        roles.append(group.ours(source).member.leadership.role) if isinstance(message, Vote) else None
    )
    asked = RequestVote(term=leader.term + 1, last_index=leader.last_index, last_term=leader.term)
    leader.receive(candidate, asked)
    assert roles == [RaftRole.FOLLOWER]


def test_r15_pledges_are_told_where_every_controller_knows_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller of 0.2.0 closes the link at a field that it does not know."""
    monkeypatch.setattr(LedgerMachine, "feature_level", lambda _self, _state: PLEDGES_SINCE - 1)
    group = _started(monkeypatch)
    told: list[Answer] = []
    group.on_send = lambda _source, message: told.append(message) if isinstance(message, Answer) else None
    group.run_late(60_000, _starved(1))
    assert max(_factors(group)) > 1
    assert b"pledged" not in b"".join(map(encode_message, told))


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
    group.run_late(120_000, late_ms)
    assert _terms(group) == before
    assert leader.is_leader


def test_a_leader_that_is_late_and_heard_in_time_knows_who_is_less_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody stands beside it, so it has to move the lead itself; where all are late there is nobody to move it to."""
    group = _started(monkeypatch)
    leader = group.ours(group.elect().name)
    target, also_late = (name for name in NAMES if name != leader.name)

    def earlier(*late: str) -> list[str]:
        group.run_late(30_000, lambda name: 270 if name in late else PAUSE_MS)
        assert leader.is_leader
        return [one.name for one in leader.member.followers() if one.is_earlier]

    assert earlier(leader.name, also_late) == [target]
    with monkeypatch.context() as patch:
        patch.setattr(LedgerMachine, "feature_level", lambda _self, _state: PLEDGES_SINCE - 1)
        assert earlier(leader.name, also_late) == [], "nobody tells"
    assert earlier(*NAMES) == []
    assert earlier(leader.name, also_late) == [target]
    leader.member.hand_over(ControllerName(target), lambda _how: None)
    group.run_late(2_000, lambda name: PAUSE_MS if name == target else 270)
    assert group.nodes[target].is_leader


@pytest.mark.parametrize("seed", range(2))
def test_calm_members_wait_no_longer_than_before(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Also after a pause of all machines, and after each of five leaders that died."""
    group = _started(monkeypatch, seed)
    for _ in range(5):
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


def test_calm_that_did_not_last_has_to_last_twice_as_long_the_next_time() -> None:
    member = _Member()
    for calm_ms in (CALM_MS, 2 * CALM_MS, 4 * CALM_MS):
        for _ in range(3):
            member.turn(late_ms=200)
        assert member.patience.factor == 2
        member.be_calm(calm_ms - 10 * PAUSE_MS)
        assert member.patience.factor == 2
        member.be_calm(20 * PAUSE_MS)
        assert member.patience.factor == 1
    member.be_calm(CALM_MS_MAX)
    for _ in range(3):
        member.turn(late_ms=200)
    member.be_calm(CALM_MS + PAUSE_MS)
    assert member.patience.factor == 1, "what lasted is calm"


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
