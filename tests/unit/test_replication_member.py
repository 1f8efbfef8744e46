"""One member of the group: unsafe starts, authority, memory that was lost, waiters, partial partitions."""

from __future__ import annotations

import errno
from functools import partial

import pytest

from rollcall_ha.controller.replication.ports import ProposalStatus
from rollcall_ha.controller.replication.raft import config
from rollcall_ha.controller.replication.raft.catch_up import CATCHING_UP_FILE_NAME, CatchUp
from rollcall_ha.controller.replication.raft.failstop import FailStop
from rollcall_ha.controller.replication.raft.internals import KNOWN_RELEASE, LibraryVersionError, require_known_release
from rollcall_ha.controller.replication.raft.journal import JOURNAL_FILE_NAME
from rollcall_ha.controller.replication.raft.member import FOUNDING_FILE_NAME, RaftAddressInUse, RaftStartError
from rollcall_ha.controller.replication.raft.messages import Answer, Append, ProtocolError, RequestVote
from rollcall_ha.controller.replication.raft.repairs import STAND_GAP_MS, STAND_MS
from rollcall_ha.controller.replication.raft.snapshot import SNAPSHOT_FILE_NAME
from tests.support.raft_seams import SimulatedTransport, Stopped
from tests.support.raft_virtual import NAMES, TIMING, OurNode, VirtualGroup

SMALL = partial(OurNode, compaction_entries=10)


def _fill(group: VirtualGroup, count: int, label: str = "id") -> None:
    leader = group.elect()
    for number in range(count):
        leader.propose(f"{label}-{number}", lambda _: None)
        group.run_for(10)
    group.run_for(200)


def _is_led(group: VirtualGroup) -> bool:
    return group.leader is not None


def test_another_release_of_the_library_is_refused() -> None:
    require_known_release()
    with pytest.raises(LibraryVersionError, match=KNOWN_RELEASE):
        require_known_release("0.3.18")


def test_the_configuration_never_sends_an_entry_in_pieces() -> None:
    """Entries above the batch size take a path that our messages do not know."""
    conf = config.library_configuration(TIMING, compaction_entries=10)
    conf.validate()
    assert conf.appendEntriesBatchSizeBytes > 2 * 48_000
    assert conf.journalFile is None
    assert conf.fullDumpFile is None


def test_founders_vote_and_their_mark_is_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    group = VirtualGroup(monkeypatch, OurNode)
    assert group.commit("first")
    for name in NAMES:
        assert not group.disks[name].exists(FOUNDING_FILE_NAME)
        assert not group.disks[name].exists(CATCHING_UP_FILE_NAME)


def test_a_wiped_member_counts_only_after_it_has_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It neither votes nor completes a majority; over a restart it still remembers that it forgot."""
    group = VirtualGroup(monkeypatch, OurNode)
    _fill(group, 5)
    leader = group.elect()
    wiped, other = (name for name in NAMES if name != leader.name)
    group.crash(wiped)
    group.wipe(wiped)
    group.cut(other)
    group.start(wiped)
    group.run_for(300)
    answers: list[bool | None] = []
    leader.propose("needs a majority", answers.append)
    group.run_for(6_000)
    assert True not in answers, "the wiped member completed a majority"
    assert group.leader is None, "nobody follows the leader who may"
    group.crash(wiped)
    group.start(wiped)
    assert not group.ours(wiped).member.raft.is_voter
    group.heal()
    assert group.commit("all together")
    group.run_for(1_000)
    assert group.ours(wiped).member.raft.is_voter
    assert not group.disks[wiped].exists(CATCHING_UP_FILE_NAME)
    group.crash(leader.name)
    assert group.commit("with the vote of the wiped one")


def _alone(patch: pytest.MonkeyPatch) -> tuple[VirtualGroup, int]:
    """One controller that has committed and crashed, and the index of its last entry."""
    group = VirtualGroup(patch, OurNode, names=NAMES[:1])
    _fill(group, 5)
    last_index = group.ours(NAMES[0]).last_index
    group.crash(NAMES[0])
    return group, last_index


def test_half_the_journal_of_a_lone_controller_was_led_from_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """It said "dropped 299 bytes of a write that was never completed", and committed entries were gone."""
    group, last_index = _alone(monkeypatch)
    disk = group.disks[NAMES[0]]
    raw = disk.read(JOURNAL_FILE_NAME).rstrip(b"\0")
    disk.replace(JOURNAL_FILE_NAME, raw[: len(raw) // 2])

    with pytest.raises(RaftStartError, match=rf"ends at entry \d+, the record.*knows entry {last_index}.*backup"):
        OurNode(group, NAMES[0], recorded_index=last_index)


def test_a_lone_controller_whose_journal_holds_all_that_is_recorded_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    group, last_index = _alone(monkeypatch)
    assert OurNode(group, NAMES[0], recorded_index=last_index).last_index >= last_index


def test_a_lone_controller_without_a_journal_waited_for_others_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody else knows what was in it: the next start says the same, and what an operator can do."""
    group, _ = _alone(monkeypatch)
    group.disks[NAMES[0]].unlink(JOURNAL_FILE_NAME)
    for _ in range(2):
        with pytest.raises(RaftStartError, match=r"the journal is gone.*rollcall init"):
            OurNode(group, NAMES[0])


def test_an_empty_journal_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    group, _ = _alone(monkeypatch)
    group.disks[NAMES[0]].replace(JOURNAL_FILE_NAME, b"")
    with pytest.raises(RaftStartError, match=r"journal begins with b''.*backup"):
        OurNode(group, NAMES[0])


def test_a_member_among_others_that_lost_a_tail_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have applied an entry a moment before its own sync; the others have it."""
    group = VirtualGroup(monkeypatch, OurNode)
    _fill(group, 5)
    last_index = group.elect().last_index
    name = next(name for name in NAMES if not group.nodes[name].is_leader)
    group.crash(name)
    assert OurNode(group, name, recorded_index=last_index + 1).last_index == last_index


def test_catching_up_needs_a_majority_without_it_and_the_leaders_whole_log() -> None:
    catch_up = CatchUp()

    def observe(*, term: int = 3, sent: int, confirmed: int, applied: int, last: int = 50) -> bool:
        return catch_up.observe(
            leader=1, term=term, sent_ns=sent, confirmed_ns=confirmed, last_index=last, applied_index=applied
        )

    assert not observe(sent=100, confirmed=99, applied=60)
    assert not observe(sent=110, confirmed=99, applied=60), "the majority answered before this member came back"
    assert not observe(sent=120, confirmed=110, applied=49), "it may have acknowledged entry 50"
    assert not observe(term=4, sent=130, confirmed=130, applied=60), "a new term begins anew"
    assert observe(term=4, sent=140, confirmed=131, applied=60, last=70)


def test_s57_journals_stay_small_however_many_commands_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """S57: what a start has to read is bounded by what is between two snapshots."""
    group = VirtualGroup(monkeypatch, SMALL)
    _fill(group, 180)
    for name in NAMES:
        assert len(group.nodes[name].library._SyncObj__raftLog) <= 20
        assert group.disks[name].size(JOURNAL_FILE_NAME) <= 1_000
        group.crash(name)
    for name in NAMES:
        group.start(name)
    group.elect()
    assert {len(group.nodes[name].ids) for name in NAMES} == {180}


def test_a_snapshot_without_a_journal_is_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Votes and the tail were in the journal."""
    group = VirtualGroup(monkeypatch, SMALL)
    _fill(group, 30)
    group.crash("c1")
    group.disks["c1"].unlink(JOURNAL_FILE_NAME)
    assert not _ours_started(group, "c1").member.raft.is_voter


def _ours_started(group: VirtualGroup, name: str) -> OurNode:
    node = group.start(name)
    assert isinstance(node, OurNode)
    return node


def test_a_journal_without_its_snapshot_refuses_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stock library comes up empty, votes, and can lead."""
    group = VirtualGroup(monkeypatch, SMALL)
    _fill(group, 30)
    group.crash("c1")
    group.disks["c1"].unlink(SNAPSHOT_FILE_NAME)
    with pytest.raises(RaftStartError, match="the journal begins at entry"):
        group.start("c1")


@pytest.mark.parametrize("file_name", [SNAPSHOT_FILE_NAME, JOURNAL_FILE_NAME])
def test_damage_refuses_to_start(file_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    group = VirtualGroup(monkeypatch, SMALL)
    _fill(group, 30)
    group.crash("c1")
    raw = bytearray(group.disks["c1"].read(file_name))
    raw[len(raw) // 2] ^= 1
    group.disks["c1"].replace(file_name, bytes(raw))
    with pytest.raises(RaftStartError, match="damaged"):
        group.start("c1")


def test_a_taken_address_was_reported_as_a_damaged_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    """A supervisor does not restart what says so, and an operator looked at the wrong thing."""

    def taken(_transport: SimulatedTransport, _poller: object) -> None:
        raise OSError(errno.EADDRINUSE, "Address already in use")

    group = VirtualGroup(monkeypatch, SMALL)
    group.crash("c1")
    monkeypatch.setattr(SimulatedTransport, "bind", taken)
    with pytest.raises(RaftAddressInUse, match=r"raft is .* in use; end the process"):
        group.start("c1")


def test_a_name_that_is_no_member_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    group = VirtualGroup(monkeypatch, OurNode)
    group.names = ("c2", "c3")
    with pytest.raises(RaftStartError, match="must be one of"):
        OurNode(group, "c1")


def test_a_follower_that_fell_behind_gets_a_snapshot(monkeypatch: pytest.MonkeyPatch) -> None:
    group = VirtualGroup(monkeypatch, SMALL)
    _fill(group, 5)
    behind = next(name for name in NAMES if name != group.elect().name)
    group.crash(behind)
    _fill(group, 60, "later")
    heard: list[bool] = []
    node = _ours_started(group, behind)
    node.member.raft.node.listeners.append(lambda entry: heard.append(entry.is_snapshot))
    group.run_for(2_000)
    assert node.ids == group.elect().ids
    assert len(node.ids) == 65
    assert True in heard
    group.crash(behind, power=True)
    restarted = group.start(behind)
    group.elect()
    assert restarted.ids == node.ids


def test_an_unsound_snapshot_stops_the_follower_and_not_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The follower that it was sent to must not serve from it; the two that run go on."""
    group = VirtualGroup(monkeypatch, SMALL)
    _fill(group, 5)
    behind = next(name for name in NAMES if name != group.elect().name)
    group.crash(behind)
    _fill(group, 60, "later")
    group.commit("unsound")
    _fill(group, 60, "later still")
    group.start(behind)
    with pytest.raises(Stopped, match="breaks C2") as stopped:
        group.run_for(2_000)

    assert stopped.value.code is FailStop.DAMAGED
    group.crash(behind)
    assert group.commit("the others go on")


def test_an_unsound_snapshot_refuses_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own as well as a peer's: the message names the invariant."""
    group = VirtualGroup(monkeypatch, SMALL)
    group.commit("unsound")
    _fill(group, 60)
    group.crash("c1")
    with pytest.raises(RaftStartError, match="snapshot cannot be used: the snapshot breaks C2"):
        group.start("c1")


def test_a_conflicting_tail_is_replaced_within_a_few_round_trips(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stock library walks back one entry per heartbeat: 400 entries take 20 s."""
    group = VirtualGroup(monkeypatch, OurNode)
    old = group.elect()
    group.cut(old.name)
    for number in range(400):
        old.propose(f"dead-{number}", lambda _: None)
    group.run_for(50)
    assert old.last_index > 400
    group.run_for(2_000)
    group.commit("alive")
    group.heal()
    group.run_for(500)
    assert old.ids == ["alive"]


def test_authority_ages_from_the_send_time_and_ends_with_the_majority(monkeypatch: pytest.MonkeyPatch) -> None:
    """R5: an isolated leader keeps its role for the fallback time, but the stamp stands still at once."""
    group = VirtualGroup(monkeypatch, OurNode)
    leader = group.ours(group.elect().name)
    asked_at_ns = leader.member.leadership.majority_asked_at_ns
    assert asked_at_ns is not None
    assert group.now_ns - asked_at_ns < 100_000_000
    group.cut(leader.name)
    cut_at_ns = group.now_ns
    group.run_for(500)
    assert (leader.member.leadership.majority_asked_at_ns or 0) <= cut_at_ns
    answers: list[bool | None] = []
    leader.propose("barrier", answers.append)
    group.run_for(TIMING.raft_fallback_ms + 200)
    assert not leader.is_leader
    assert answers == [None]
    assert leader.member.leadership.majority_asked_at_ns is None


def test_r5_who_hears_a_leader_votes_for_nobody_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the link between the leader and one follower is cut: that one led by the third's vote, and the first did, too."""
    group = VirtualGroup(monkeypatch, OurNode)
    leader = group.elect()
    lonely, third = (name for name in NAMES if name != leader.name)
    group.cut(leader.name, lonely)
    term = leader.term

    group.run_for(5_000)

    stood = group.ours(lonely).term - term
    assert stood > 3, "the lonely one stands again and again"
    assert (leader.is_leader, leader.term, group.ours(third).term) == (True, term, term)
    group.crash(leader.name)
    assert group.elect().name in (lonely, third), "nobody waits for a leader that is gone"


def test_r5_a_process_that_was_started_a_moment_ago_votes_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one before it has just answered a leader, which counts on that for the shortest election timeout."""
    group = VirtualGroup(monkeypatch, OurNode)
    leader = group.elect()
    candidate, voter = (name for name in NAMES if name != leader.name)
    group.crash(voter)
    group.start(voter)
    node = group.ours(voter)
    asked = RequestVote(term=leader.term + 1, last_index=node.last_index + 1, last_term=leader.term)

    node.receive(candidate, asked)
    assert node.term == leader.term
    group.now_ns += TIMING.raft_election_timeout_ms_min * 1_000_000
    node.receive(candidate, asked)
    assert node.term == leader.term + 1


def test_an_answer_of_another_term_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """R5: a late answer would commit what that follower does not have."""
    group = VirtualGroup(monkeypatch, OurNode)
    leader = group.ours(group.elect().name)
    transport = leader.member.raft.node.transport
    follower = next(name for name in NAMES if name != leader.name)
    group.cut(leader.name)
    commit_index = leader.commit_index
    leader.propose("alone", lambda _: None)
    leader.tick()
    for term, sent_ns in ((leader.term - 1, 1), (leader.term + 1, 1), (leader.term, 1 << 60)):
        answer = Answer(
            term=term, sent_ns=sent_ns, next_index=leader.last_index + 1, is_success=True, is_reset=False, is_voter=True
        )
        leader.receive(follower, answer)
    leader.tick()
    assert leader.commit_index == commit_index
    assert transport.dropped_answers == 3


def test_a_second_leader_of_a_term_closes_the_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """One forged message must not depose a leader."""
    group = VirtualGroup(monkeypatch, OurNode)
    leader = group.elect()
    follower = next(name for name in NAMES if name != leader.name)
    forged = Append(
        term=leader.term, sent_ns=1, confirmed_ns=0, commit_index=1, last_index=1, previous_index=1, previous_term=0
    )
    with pytest.raises(ProtocolError, match="claims to lead"):
        leader.receive(follower, forged)
    assert leader.is_leader


def test_a_follower_forgets_a_leader_with_its_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """The link ends with the leader's process: named until the next election, it was dialled by every broker."""
    group = VirtualGroup(monkeypatch, OurNode)
    assert group.commit("first")
    leader = group.elect().name
    follower = group.ours(next(name for name in NAMES if name != leader))
    assert follower.member.leadership.leader == leader

    group.crash(leader)
    group.run_for(60)

    assert follower.member.leadership.leader is None


def test_followers_propose_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    group = VirtualGroup(monkeypatch, OurNode)
    leader = group.elect()
    follower = group.ours(next(name for name in NAMES if name != leader.name))
    follower.propose("no", lambda _: None)
    assert follower.outcomes[0].status is ProposalStatus.NOT_PROPOSED
    assert leader.name in follower.outcomes[0].reason


def test_every_waiter_is_told_when_links_break_with_entries_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the stock library 10 of 10 callbacks were never called."""
    group = VirtualGroup(monkeypatch, OurNode)
    leader = group.elect()
    answers: list[bool | None] = []
    for number in range(10):
        leader.propose(str(number), answers.append)
    leader.tick()
    group.cut(leader.name)
    group.heal()
    group.run_for(4_000)
    assert len(answers) == 10


def test_a_stopping_member_tells_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    group = VirtualGroup(monkeypatch, OurNode)
    leader = group.ours(group.elect().name)
    group.cut(leader.name)
    answers: list[bool | None] = []
    leader.propose("in the log", answers.append)
    leader.tick()
    leader.propose("in the queue", answers.append)
    leader.member.stop()
    assert answers == [False, None]
    leader.propose("after", answers.append)
    assert answers[-1] is False


@pytest.mark.slow
def test_a_partial_partition_makes_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes are cut, the third reaches both: within 20 s something is committed."""
    group = VirtualGroup(monkeypatch, OurNode)
    leader = group.elect()
    follower = next(name for name in NAMES if name != leader.name)
    group.cut(leader.name, follower)
    committed: list[bool | None] = []
    for _ in range(100):
        now = group.leader
        if now is not None:
            now.propose("on", committed.append)
        group.run_for(200)
    assert committed.count(True) > 20


def test_an_entry_above_the_feature_level_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """R15: it must not diverge."""
    group = VirtualGroup(monkeypatch, OurNode)
    with pytest.raises(Stopped) as stopped:
        group.commit("too new")
    assert stopped.value.code is FailStop.FEATURE_LEVEL


def test_an_entry_that_breaks_an_invariant_stops_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a fault of this program, and told apart from an operation of a newer one."""
    group = VirtualGroup(monkeypatch, OurNode)
    with pytest.raises(Stopped, match="breaks C2") as stopped:
        group.commit("fault")
    assert stopped.value.code is FailStop.NOT_DETERMINISTIC


def test_one_member_alone_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    group = VirtualGroup(monkeypatch, OurNode, names=("c1",))
    assert group.commit("alone")
    leadership = group.ours("c1").member.leadership
    assert leadership.majority_asked_at_ns is not None


def test_five_members_survive_two(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("c1", "c2", "c3", "c4", "c5")
    group = VirtualGroup(monkeypatch, OurNode, names=names)
    assert group.commit("one")
    first = group.elect().name
    group.crash(first, power=True)
    group.crash(next(name for name in names if name != first), power=True)
    assert group.commit("two")


def test_the_trace_does_not_depend_on_the_order_of_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """Members are hashed by ordinal, so that the library's sets iterate alike under every hash seed."""
    group = VirtualGroup(monkeypatch, OurNode)
    library = group.ours("c2").library
    assert [member.name for member in library._SyncObj__otherNodes] == ["c1", "c3"]
    assert [hash(member) for member in library._SyncObj__otherNodes] == [0, 2]


@pytest.mark.parametrize("names", [NAMES, (*NAMES, "c4", "c5")], ids=["three", "five"])
def test_the_end_of_a_dead_leaders_link_was_no_sign_and_its_followers_drew_who_stands(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    """They waited up to 500 ms, and longer where two stood at once; now the first one stands when its pledge ends."""
    for seed in range(1, 6):
        group = VirtualGroup(monkeypatch, OurNode, names=names, seed=seed)
        dead = group.elect()
        group.crash(dead.name)
        assert group.run_for(TIMING.raft_election_timeout_ms_min + 4 * STAND_MS, partial(_is_led, group))
        leader = group.elect()
        assert leader.term == dead.term + 1
        assert leader.name == min(name for name in names if name != dead.name), "one after the other, by their names"


def test_followers_of_a_dead_leader_stand_behind_their_pledges_each_in_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    group = VirtualGroup(monkeypatch, OurNode)
    dead = group.elect()
    group.crash(dead.name)
    behind_ms = []
    for name in sorted(group.nodes):
        deadline_s = group.nodes[name].library._SyncObj__raftElectionDeadline
        bound_ns = group.ours(name).member.raft.node.transport.bound_until_ns
        behind_ms.append(round(deadline_s * 1_000 - (bound_ns + group.library_ahead_ns) / 1e6))
    assert behind_ms == [STAND_MS, STAND_MS + STAND_GAP_MS]


def test_a_link_to_the_leader_that_comes_back_makes_nobody_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    group = VirtualGroup(monkeypatch, OurNode)
    leader = group.elect()
    for _ in range(20):
        group.cut(leader.name)
        group.run_for(TIMING.raft_election_timeout_ms_min // 2)
        group.heal()
        group.run_for(200)
    assert (group.leader, leader.term) == (leader, group.elect().term)
