"""The members of the controllers: which change may follow, which counts, and what a log, a snapshot and a restart keep."""

from __future__ import annotations

from functools import partial

import pytest

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.membership import (
    MEMBERS_MAX,
    Change,
    ChangeRefused,
    Membership,
    Seat,
    decode,
    encode,
    founded,
    is_step,
    promoted,
    with_learner,
    without,
)
from rollcall_ha.controller.replication.ports import HandoverEnd, ProposalOutcome
from rollcall_ha.controller.replication.raft.member import STRANGERS_MAX
from rollcall_ha.controller.replication.raft.messages import RequestVote, TimeoutNow, is_command
from rollcall_ha.controller.replication.raft.node import CHANGES_QUEUED_MAX
from tests.support.raft_virtual import TIMING, OurNode, VirtualGroup

ALL = ("c1", "c2", "c3", "c4", "c5")
FOUNDERS = ALL[:3]
THREE = founded({ControllerName(name): f"{name}:1" for name in FOUNDERS})


def seat(name: str) -> Seat:
    return Seat(name=name, raft=f"{name}:1", broker=f"{name}:2", rest=f"{name}:3")


def names(members: Membership) -> tuple[str, ...]:
    return tuple(one.name for one in members.voters)


class Changed:
    """A group of three founders; c4 and c5 may come."""

    def __init__(self, patch: pytest.MonkeyPatch, founders: tuple[str, ...] = FOUNDERS) -> None:
        self.group = VirtualGroup(patch, partial(OurNode, compaction_entries=10), ALL, founders=founders)
        assert self.group.commit("first")
        self.outcomes: list[ProposalOutcome] = []

    @property
    def leader(self) -> OurNode:
        return self.group.ours(self.group.elect().name)

    def ask(self, change: Change, *, of: OurNode | None = None) -> str:
        """The reason of the refusal; empty: it is in the log, if not yet committed."""
        before = len(self.outcomes)
        node = of or self.leader
        node.member.change(change, self.outcomes.append)
        node.tick()
        told = self.outcomes[before:]
        return told[0].reason if told and told[0].status.value == "not-proposed" else ""

    def members_of(self, name: str) -> Membership:
        return self.group.ours(name).member.members

    def add(self, name: str) -> None:
        """Until it votes."""
        self.group.start(name)
        assert self.ask(partial(with_learner, seat=seat(name))) == ""
        self.group.run_for(2_000)
        assert self.group.ours(name).member.raft.is_voter
        assert self.ask(partial(promoted, name=name)) == ""
        self.group.run_for(1_000)


def test_members_survive_their_bytes_and_nonsense_is_no_entry() -> None:
    members = with_learner(THREE, seat("c4"))
    assert decode(encode(members)) == members
    assert is_command(encode(members))
    for bad in (b"\x02", b"\x02{}", b'\x02{"voters":[]}', encode(members)[:-1], b"\x02" + b"x" * 20_000):
        assert not is_command(bad), bad
    twice = Membership(voters=(*THREE.voters, THREE.voters[0]))
    assert not is_command(encode(twice))


def test_a_step_is_one_voter_and_a_voter_was_a_learner_first() -> None:
    learning = with_learner(THREE, seat("c4"))
    four = promoted(learning, "c4")
    assert [is_step(THREE, learning), is_step(learning, four), is_step(four, without(four, "c1"))] == [True] * 3
    assert not is_step(THREE, four), "it never was a learner"
    assert not is_step(four, without(without(four, "c1"), "c2")), "two voters at once"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (partial(with_learner, seat=seat("c1")), "c1 is a member already"),
        (partial(promoted, name="c4"), "c4 is no learner"),
        (partial(without, name="c9"), "c9 is no member; there are c1, c2, c3"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused_with_the_reason(change: Change, told: str) -> None:
    with pytest.raises(ChangeRefused, match=told):
        change(THREE)
    many = founded({ControllerName(f"c{number}"): "h:1" for number in range(1, MEMBERS_MAX + 2)})
    with pytest.raises(ChangeRefused, match="at most 7"):
        with_learner(many, seat("c9"))
    with pytest.raises(ChangeRefused, match="only voter"):
        without(founded({ControllerName("c1"): "h:1"}), "c1")
    with pytest.raises(ChangeRefused, match="one change at a time"):
        with_learner(with_learner(THREE, seat("c4")), seat("c5"))


def test_members_that_nobody_could_read_are_refused_before_they_are_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lone controller that added one without a name never started again."""
    changed = Changed(monkeypatch)
    for unreadable in (seat(""), seat("c" * 301)):
        assert "no controller could read these members" in changed.ask(partial(with_learner, seat=unreadable))
    assert names(changed.members_of("c1")) == FOUNDERS


def test_a_learner_takes_entries_and_votes_when_it_has_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = Changed(monkeypatch)
    changed.group.start("c4")
    assert changed.ask(partial(promoted, name="c4")) == "c4 is no learner: it is added first"
    assert changed.ask(partial(with_learner, seat=seat("c4"))) == ""
    assert "c4 has not caught up yet" in changed.ask(partial(promoted, name="c4")) or changed.outcomes[-1].reason
    changed.group.run_for(2_000)
    assert changed.group.ours("c4").ids == ["first"]
    assert names(changed.members_of("c4")) == FOUNDERS
    assert changed.ask(partial(promoted, name="c4")) == ""
    changed.group.run_for(1_000)
    assert {names(changed.members_of(name)) for name in ALL[:4]} == {ALL[:4]}


def test_a_learner_is_counted_by_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """c1 of one commits alone while the learner is away; of a voter it would wait for ever."""
    changed = Changed(monkeypatch, founders=ALL[:1])
    changed.group.start("c2")
    assert changed.ask(partial(with_learner, seat=seat("c2"))) == ""
    changed.group.run_for(1_000)
    changed.group.crash("c2")
    assert changed.group.commit("alone")


def test_no_change_follows_one_that_is_not_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own took both: two majorities (adr/0020)."""
    changed = Changed(monkeypatch)
    leader = changed.leader
    changed.group.cut(leader.name)
    assert changed.ask(partial(with_learner, seat=seat("c4")), of=leader) == ""
    assert "is not committed yet" in changed.ask(partial(without, name="c4"), of=leader)


def test_no_change_before_an_entry_of_the_leaders_own_term_is_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = Changed(monkeypatch)
    old = changed.leader
    others = [name for name in FOUNDERS if name != old.name]
    changed.group.cut(old.name)
    for _ in range(2_000):
        changed.group.run_slowly(1)
        if any(changed.group.ours(name).is_leader for name in others):
            break
    new = next(changed.group.ours(name) for name in others if changed.group.ours(name).is_leader)
    changed.group.cut(new.name)
    assert "own term" in changed.ask(partial(with_learner, seat=seat("c4")), of=new)
    changed.group.heal()
    changed.group.cut(old.name)
    new = changed.leader
    changed.group.run_for(500)
    assert changed.ask(partial(with_learner, seat=seat("c4")), of=new) == ""


def test_members_of_an_entry_that_is_cut_never_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that was cut off added c4; it comes back, and goes by three again."""
    changed = Changed(monkeypatch)
    old = changed.leader
    changed.group.cut(old.name)
    assert changed.ask(partial(with_learner, seat=seat("c4")), of=old) == ""
    assert changed.members_of(old.name).is_learner("c4")
    changed.group.run_for(5_000)
    changed.group.heal()
    assert changed.group.commit("second")
    changed.group.run_for(500)
    assert changed.members_of(old.name) == changed.members_of(changed.leader.name)
    assert not changed.members_of(old.name).is_learner("c4")


@pytest.mark.slow
def test_members_are_kept_over_restarts_and_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stock library counted by its configuration file until it had applied its log (adr/0020)."""
    changed = Changed(monkeypatch)
    changed.add("c4")
    changed.add("c5")
    for restart in range(2):
        for name in ALL:
            changed.group.crash(name, power=True)
            changed.group.start(name)
            assert names(changed.members_of(name)) == ALL, f"restart {restart}"
        for number in range(30):
            assert changed.group.commit(f"{restart}-{number}")
        changed.group.run_for(1_000)
    # The entries are behind the snapshot by now.
    assert min(changed.group.ours(name).member.raft.node.journal.first_index for name in ALL) > 20


def test_a_leader_does_not_remove_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = Changed(monkeypatch)
    leader = changed.leader
    assert "transfer its lead first" in changed.ask(partial(without, name=leader.name))


def test_a_removed_member_deposes_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was not told, and stands again and again; its log is older than each that has the entry."""
    changed = Changed(monkeypatch)
    leader = changed.leader
    gone = next(name for name in FOUNDERS if name != leader.name)
    changed.group.cut(gone)
    assert changed.ask(partial(without, name=gone)) == ""
    changed.group.run_for(500)
    term = leader.term
    changed.group.heal()
    changed.group.run_for(10_000)
    assert leader.is_leader
    assert leader.term == term
    assert changed.group.ours(gone).term > term, "it has stood"


@pytest.mark.slow
def test_a_member_that_slept_hears_a_leader_that_it_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """{c1,c2,c3} became {c3,c4,c5} while c3 slept: refusing strangers it would hear nobody, for ever."""
    changed = Changed(monkeypatch)
    changed.group.crash("c3")
    changed.add("c4")
    changed.add("c5")
    for name in ("c1", "c2"):
        if changed.leader.name == name:
            changed.leader.member.hand_over(ControllerName("c4"), lambda _how: None)
            changed.group.run_for(1_000)
        assert changed.ask(partial(without, name=name)) == ""
        changed.group.run_for(500)
        changed.group.crash(name)
    changed.group.start("c3")
    changed.group.run_for(5_000)
    assert changed.group.commit("after")
    changed.group.run_for(500)
    assert names(changed.members_of("c3")) == ("c3", "c4", "c5")
    assert changed.group.ours("c3").ids[-1] == "after"


@pytest.mark.slow
def test_a_learner_whose_term_was_raised_gets_entries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lagged behind the removal of c2, and heeded its request; it refused its leader's older term, for ever."""
    changed = Changed(monkeypatch)
    changed.group.start("c4")
    leader = changed.leader
    assert changed.ask(partial(with_learner, seat=seat("c4"))) == ""
    changed.group.run_for(2_000)
    raft = changed.group.ours("c4").member.raft
    # Its leader has been silent for a while: until then it heeds no request (R5).
    changed.group.cut("c4")
    changed.group.run_for(TIMING.raft_election_timeout_ms_min)
    changed.group.heal()
    other = next(name for name in FOUNDERS if name != leader.name)
    request = RequestVote(term=leader.term + 5, last_index=1, last_term=0)
    raft.node.transport.deliver(raft.member_named(ControllerName(other)), request)
    assert changed.group.ours("c4").term == leader.term + 5
    changed.group.run_for(3_000)
    assert changed.group.commit("after")
    changed.group.run_for(500)
    assert changed.group.ours("c4").ids[-1] == "after"


def test_a_candidate_stayed_behind_the_terms_of_a_removed_member_that_its_only_voter_had_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """c1 was removed, and stands; c6 has not heard so, and refused each request of c5, which never heard why."""
    changed = Changed(monkeypatch)
    changed.group.start("c4")
    leader = changed.leader
    assert changed.ask(partial(with_learner, seat=seat("c4"))) == ""
    changed.group.run_for(2_000)
    removed, candidate = (name for name in FOUNDERS if name != leader.name)
    for name in (leader.name, removed):
        changed.group.crash(name)
    changed.group.run_for(TIMING.raft_election_timeout_ms_min)
    raft, term = changed.group.ours("c4").member.raft, leader.term
    for name, told in ((removed, term + 50), (candidate, term + 1)):
        request = RequestVote(term=told, last_index=1, last_term=0)
        raft.node.transport.deliver(raft.member_named(ControllerName(name)), request)
    changed.group.run_for(100)

    assert changed.group.ours(candidate).term >= term + 50


def test_a_stranger_is_heard_only_as_far_as_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = Changed(monkeypatch)
    leader = changed.leader
    node = changed.group.ours(next(name for name in FOUNDERS if name != leader.name))
    last_term = node.entry_at(node.last_index)[2]
    transport = node.member.raft.node.transport
    changed.group.now_ns += TIMING.raft_election_timeout_ms_min * 1_000_000
    older = RequestVote(term=99, last_index=node.last_index, last_term=last_term)
    transport.deliver(node.member.raft.member_named(ControllerName("c9")), older)
    assert node.term == leader.term
    newer = RequestVote(term=99, last_index=node.last_index + 1, last_term=last_term)
    transport.deliver(node.member.raft.member_named(ControllerName("c9")), newer)
    assert node.term == 99


def test_a_learner_is_not_asked_to_lead_and_does_not_stand_if_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has every entry and answers as a voter does; elected, it would count itself in a group that it is not in."""
    changed = Changed(monkeypatch)
    changed.group.start("c4")
    leader = changed.leader
    assert changed.ask(partial(with_learner, seat=seat("c4"))) == ""
    changed.group.run_for(2_000)
    learner, ends = changed.group.ours("c4"), list[HandoverEnd]()
    assert learner.member.raft.is_voter, "it has caught up"
    leader.member.hand_over(ControllerName("c4"), ends.append)
    changed.group.run_for(1_000)
    assert (ends, leader.is_leader) == ([HandoverEnd.NOT_CAUGHT_UP], True)
    (told,) = (one for one in leader.member.followers() if one.name == "c4")
    assert not told.is_voter
    raft = learner.member.raft
    raft.node.transport.deliver(raft.member_named(ControllerName(leader.name)), TimeoutNow(term=leader.term))
    changed.group.run_for(1_000)
    assert (leader.is_leader, learner.term) == (True, leader.term)


def test_no_change_is_appended_while_the_lead_is_transferred(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one entry more to get the successor would never be asked."""
    changed = Changed(monkeypatch)
    leader, ends = changed.leader, list[HandoverEnd]()
    other = next(name for name in FOUNDERS if name != leader.name)
    changed.group.crash(other)
    leader.member.hand_over(ControllerName(other), ends.append)
    leader.tick()
    assert changed.ask(partial(with_learner, seat=seat("c4")), of=leader) == "its lead is being transferred"
    changed.group.run_for(1_000)
    assert ends == [HandoverEnd.NOT_CAUGHT_UP]
    assert changed.ask(partial(with_learner, seat=seat("c4")), of=leader) == ""


def test_changes_that_wait_are_bounded_and_told_when_the_process_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = Changed(monkeypatch)
    node, reasons = changed.leader.member.raft.node, list[str]()
    for _ in range(CHANGES_QUEUED_MAX + 1):
        node.change(partial(with_learner, seat=seat("c4")), lambda told: reasons.append(told.reason))
    assert reasons == [f"{CHANGES_QUEUED_MAX} changes wait already, at most {CHANGES_QUEUED_MAX} may"]
    node.refuse_proposals()
    node.change(partial(with_learner, seat=seat("c4")), lambda told: reasons.append(told.reason))
    assert reasons[1:] == ["this controller is stopping"] * (CHANGES_QUEUED_MAX + 1)


def test_a_change_that_nobody_committed_counts_after_a_restart_until_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the members before it, two of four would elect: the very fault of the library (adr/0020)."""
    changed = Changed(monkeypatch)
    changed.group.start("c4")
    assert changed.ask(partial(with_learner, seat=seat("c4"))) == ""
    changed.group.run_for(2_000)
    old = changed.leader
    changed.group.cut(old.name)
    assert changed.ask(partial(promoted, name="c4"), of=old) == ""
    changed.group.crash(old.name, power=True)
    changed.group.start(old.name)
    assert names(changed.members_of(old.name)) == ALL[:4]
    changed.group.heal()
    changed.group.cut(old.name)
    assert changed.group.commit("by the others")
    changed.group.heal()
    changed.group.run_for(3_000)
    assert names(changed.members_of(old.name)) == FOUNDERS
    assert changed.members_of(old.name) == changed.members_of(changed.leader.name)


def test_a_member_that_is_added_again_is_dialled_where_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """c4 was taken out, and comes back on another machine."""
    changed = Changed(monkeypatch)
    changed.add("c4")
    assert changed.ask(partial(without, name="c4")) == ""
    changed.group.run_for(500)
    elsewhere = Seat(name="c4", raft="elsewhere:9", broker="elsewhere:8", rest="elsewhere:7")
    assert changed.ask(partial(with_learner, seat=elsewhere)) == ""
    changed.group.run_for(500)
    for name in FOUNDERS:
        raft = changed.group.ours(name).member.raft
        assert raft.member_named(ControllerName("c4")).address == "elsewhere:9"
        # What the fleet file names is where the file says.
        assert raft.member_named(ControllerName("c1")).address == "127.0.0.1:9000"


def test_names_of_strangers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without TLS any process of this machine may tell a new one with each link."""
    raft = Changed(monkeypatch).leader.member.raft
    found = [raft.stranger_named(f"x{number}") for number in range(STRANGERS_MAX + 5)]
    assert [one is None for one in found] == [False] * STRANGERS_MAX + [True] * 5
    assert raft.stranger_named("x0") is found[0]
    assert raft.stranger_named("c2") is not None
