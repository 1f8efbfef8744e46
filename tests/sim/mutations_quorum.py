"""
Mutants of the controllers' quorum: what is committed, what is never cut, and from when on a majority's word counts.

Here: the list. Not here: what a mutant is (``mutation``), running it (``mutants``).
"""

from __future__ import annotations

from typing import Any

from rollcall_ha.controller.replication.raft.messages import TimeoutNow
from tests.sim.mutation import Function, Mutation, changed, constant, instead


def _commits_what_was_not_compared(original: Function) -> Function:
    def mutated(self: Any, peer: Any, message: Any) -> None:
        hand_over = self._hand_over
        self._hand_over = lambda to, told: hand_over(to, {**told, "commit_index": message.commit_index})
        try:
            original(self, peer, message)
        finally:
            del self._hand_over

    return mutated


def _floor_stays_below_the_snapshot(original: Function) -> Function:
    def mutated(self: Any, snapshot: Any) -> int:
        floor, publish = self.journal.applied_floor, self._publish

        def lowered(entry: Any) -> None:
            self.journal.applied_floor = floor
            publish(entry)

        self._publish = lowered
        try:
            index: int = original(self, snapshot)
        finally:
            del self._publish
        return index

    return mutated


def _counts_from_the_receipt(original: Function) -> Function:
    def mutated(self: Any, peer: Any, message: Any) -> None:
        before = self._answered_ns.get(peer)
        original(self, peer, message)
        if self._answered_ns.get(peer) != before:
            self._answered_ns[peer] = self._clock_ns()

    return mutated


def _by_the_shortest_timeout_alone(original: Function) -> Function:
    return lambda leadership, **named: original(changed(leadership, followed_until_ns=0), **named)


def _forgets_its_majority(original: Function) -> Function:
    def mutated(self: Any, *told: Any) -> bool:
        self._confirmed_ns = 0
        is_sent: bool = original(self, *told)
        return is_sent

    return mutated


def _keeps_authority(original: Function) -> Function:
    def mutated(self: Any, now_ns: int) -> bool:
        is_under_way: bool = original(self, now_ns)
        if self.yields and not self._has_asked:
            self.yields = False
            target = next(peer for peer in self._node.transport.voters if peer.name == self._name)
            self._has_asked = self._node.transport.transmit(target, TimeoutNow(term=self._term))
        return is_under_way

    return mutated


def _takes_its_lead_back(original: Function) -> Function:
    def mutated(self: Any, now_ns: int) -> bool:
        if self._has_asked and now_ns >= self._deadline_ns:
            return False
        return bool(original(self, now_ns))

    return mutated


def _never_late(original: Function) -> Function:
    def mutated(*args: Any, **named: Any) -> bool:
        original(*args, **named)
        return False

    return mutated


QUORUM: tuple[Mutation, ...] = (
    Mutation(
        name="commit-not-clamped",
        what="a follower commits entries of its own that nobody compared with the leader's",
        target="rollcall_ha.controller.replication.raft.repairs:RepairedTransport._append",
        mutate=_commits_what_was_not_compared,
        case="heartbeat-over-a-full-link",
        tests=("tests/unit/test_replication_boundaries.py::test_a_follower_commits_no_further_than_it_has_compared",),
        once_unnoticed="the commit index is not clamped to what was compared",
    ),
    Mutation(
        name="snapshot-applied-floor-lost",
        what="entries that came with a snapshot may be cut, though they are applied",
        target="rollcall_ha.controller.replication.raft.node:RaftNode.install",
        mutate=_floor_stays_below_the_snapshot,
        case="cut-below-a-snapshot",
        tests=("tests/unit/test_replication_boundaries.py::test_nothing_that_came_with_a_snapshot_is_ever_cut",),
        once_unnoticed="the applied floor is lost with an installed snapshot",
    ),
    Mutation(
        name="R5-authority-from-receipt",
        what="a leader has authority from when an answer arrives, though a majority may follow another one since",
        target="rollcall_ha.controller.replication.raft.repairs:RepairedTransport._on_answer",
        mutate=_counts_from_the_receipt,
        case="answers-in-the-socket-of-a-paused-leader",
        tests=(
            "tests/unit/test_replication_boundaries.py::test_authority_counts_from_the_sending_of_what_was_answered",
        ),
        once_unnoticed="authority is counted from the receipt instead of the sending",
    ),
    Mutation(
        name="R5-votes-beside-a-leader",
        what="a follower votes for another one while a leader counts on it, and two have authority at once",
        target="rollcall_ha.controller.replication.raft.repairs:RepairedTransport._is_bound",
        mutate=constant(False),
        tests=(
            "tests/unit/test_replication_member.py::test_r5_who_hears_a_leader_votes_for_nobody_beside_it",
            "tests/unit/test_replication_member.py::test_r5_a_process_that_was_started_a_moment_ago_votes_for_nobody",
        ),
    ),
    Mutation(
        name="R5-asked-a-successor",
        what="a leader asks its successor to stand before it gives its authority up, or never does",
        target="rollcall_ha.controller.replication.raft.handover:Handover.advance",
        mutate=_keeps_authority,
        case="successor-beside-an-asking-leader",
        tests=(
            "tests/unit/test_replication_handover.py::test_r5_a_leader_is_without_authority_before_its_successor_is_asked",
        ),
    ),
    Mutation(
        name="R5-takes-its-lead-back",
        what="a leader whose successor is not heard leads on with authority, and the successor may stand any moment",
        target="rollcall_ha.controller.replication.raft.handover:Handover.advance",
        mutate=_takes_its_lead_back,
        case="message-to-a-successor-on-a-slow-link",
        tests=(
            "tests/unit/test_replication_handover.py::test_r5_a_leader_that_has_asked_stands_down_when_nobody_deposes_it",
        ),
    ),
    Mutation(
        name="impatient",
        what="a member that comes late, or loses elections, waits for its leader no longer than a calm one",
        target="rollcall_ha.controller.replication.raft.patience:Patience._need",
        mutate=constant(None),
        tests=(
            "tests/unit/test_replication_patience.py::test_p12_a_starved_control_plane_elected_for_ever",
            "tests/unit/test_replication_patience.py::test_two_late_turns_stretch_and_one_does_not",
        ),
    ),
    Mutation(
        name="calm-at-once",
        what="a member that starves now and then waits as in calm three seconds after each time",
        target="rollcall_ha.controller.replication.raft.patience:CALM_MS_MAX",
        mutate=instead(3_000),
        tests=(
            "tests/unit/test_replication_patience.py::test_p12_members_that_starve_for_a_moment_now_and_then_elected_each_time",
            "tests/unit/test_replication_patience.py::test_calm_that_did_not_last_has_to_last_twice_as_long_the_next_time",
        ),
    ),
    Mutation(
        name="judges-before-it-reads",
        what="a member that was without CPU finds its leader silent whose word lies in its socket",
        target="rollcall_ha.controller.replication.raft.patience:Patience.turn",
        mutate=_never_late,
        tests=(
            "tests/unit/test_replication_patience.py::test_a_late_turn_reads_before_it_judges",
            "tests/unit/test_replication_patience.py::test_two_late_turns_stretch_and_one_does_not",
        ),
    ),
    Mutation(
        name="leads-on",
        what="a leader whose clock is behind, or that comes late where another one does not, keeps its lead",
        target="rollcall_ha.controller.runtime.transfers:Leaving._begin",
        mutate=constant(None),
        tests=(
            "tests/unit/test_runtime_transfers.py::test_a_leader_whose_clock_was_behind_kept_each_broker_that_started_out",
            "tests/unit/test_gateway_callers.py::test_a_port_whose_clock_is_behind_tells_that_it_refuses_younger_certificates",
            "tests/unit/test_runtime_transfers.py::test_a_late_leader_kept_the_lead_though_another_controller_came_in_time",
        ),
    ),
    Mutation(
        name="authority-for-moments",
        what="a leader that all follow has authority for moments, because it comes late to their answers",
        target="rollcall_ha.controller.runtime.authority:holds_authority",
        mutate=_by_the_shortest_timeout_alone,
        tests=(
            "tests/unit/test_replication_patience.py::test_a_leader_that_all_followed_had_authority_for_moments",
            "tests/unit/test_runtime_authority.py::test_a_leader_whose_followers_wait_for_longer_answers_for_as_long_as_they_do",
        ),
    ),
    Mutation(
        name="finds-silent-whom-it-refused",
        what="a leader that no majority answers finds the brokers silent that it refuses, and commits that when it leads again",
        target="rollcall_ha.controller.runtime.service:ControllerService._may_judge",
        mutate=constant(True),
        tests=(
            "tests/unit/test_runtime_service.py::test_a_leader_without_a_majority_found_every_broker_silent_that_it_had_refused",
            "tests/unit/test_runtime_service.py::test_a_leader_that_was_cut_off_proposed_the_silence_of_the_brokers_that_it_refused",
        ),
    ),
    Mutation(
        name="R5-forgets-a-pledge",
        what="the next process of a member votes while a leader counts on the pledge of the one before",
        target="rollcall_ha.controller.replication.raft.member:RaftMember._on_pledge",
        mutate=constant(None),
        tests=(
            "tests/unit/test_replication_patience.py::test_r5_a_process_is_bound_by_the_pledges_of_the_one_before",
            "tests/unit/test_replication_patience.py::test_r5_a_process_that_forgot_a_pledge_led_beside_the_leader_that_has_it",
        ),
    ),
    Mutation(
        name="R5-counts-whom-it-set-free",
        what="a leader whose transfer failed says again that it gives up, and counts what answers that",
        target="rollcall_ha.controller.replication.raft.repairs:RepairedTransport.send_append",
        mutate=_forgets_its_majority,
        tests=(
            "tests/unit/test_replication_handover.py::test_r5_authority_comes_back_with_followers_that_are_bound",
            "tests/unit/test_replication_handover.py::test_r5_a_follower_set_free_voted_beside_the_leader_that_counted_it",
        ),
    ),
    Mutation(
        name="waits-for-a-dead-leader",
        what="the end of the leader's link says nothing to its followers",
        target="rollcall_ha.controller.replication.raft.repairs:RepairedTransport._leader_gone",
        mutate=constant(None),
        tests=(
            "tests/unit/test_replication_member.py::test_the_end_of_a_dead_leaders_link_was_no_sign_and_its_followers_drew_who_stands",
            "tests/unit/test_replication_member.py::test_followers_of_a_dead_leader_stand_behind_their_pledges_each_in_its_turn",
        ),
    ),
    Mutation(
        name="R5-stands-beside-its-pledge",
        what="a member that pledged to vote for nobody stands, and votes for itself",
        target="rollcall_ha.controller.replication.raft.internals:Internals.stand_not_within",
        mutate=constant(None),
        tests=(
            "tests/unit/test_replication_patience.py::test_r5_a_process_is_bound_by_the_pledges_of_the_one_before",
            "tests/unit/test_replication_patience.py::test_r5_a_process_that_forgot_a_pledge_led_beside_the_leader_that_has_it",
        ),
    ),
)
"""Parts of ``MUTATIONS``."""
