"""
Mutants of the members of the controllers (R30, adr/0020).

Here: the list. Not here: what a mutant is (``mutation``), running it (``mutants``).
"""

from __future__ import annotations

from typing import Any

from tests.sim.mutation import Function, Mutation, constant


def _no_strangers(_original: Function) -> Function:
    return lambda _self, _message: False


def _every_stranger(_original: Function) -> Function:
    return lambda _self, _message: True


def _keeps_what_was_cut(_original: Function) -> Function:
    return lambda _self, _index: None


def _snapshot_forgets(_original: Function) -> Function:
    return lambda _self, _index: b""


def _counts_learners(original: Function) -> Function:
    def mutated(self: Any, voters: set[Any], learners: set[Any], last_index: int) -> None:
        original(self, voters | learners, set(), last_index)

    return mutated


def _stands_without_a_vote(_original: Any) -> Any:
    return property(lambda self: self.catch_up is None)


MEMBERS: tuple[Mutation, ...] = (
    Mutation(
        name="R30-vote-before-caught-up",
        what="a leader gives a vote to one that lacks entries, and removes itself",
        target="rollcall_ha.controller.replication.raft.node:RaftNode._why_not",
        mutate=constant(""),
        case="members-vote-too-early",
        tests=("tests/unit/test_replication_members.py::test_a_leader_does_not_remove_itself",),
    ),
    Mutation(
        name="R30-higher-term-untold",
        what="a member that does not stand, or that its leader will not ask, keeps its higher term for itself",
        target="rollcall_ha.controller.replication.raft.repairs:RepairedTransport._tell_term",
        mutate=constant(None),
        case="members-learner-of-a-higher-term",
        tests=("tests/unit/test_replication_members.py::test_a_learner_whose_term_was_raised_gets_entries_again",),
        once_unnoticed="a learner that was raised to a higher term refused its leader for ever",
    ),
    Mutation(
        name="R30-two-voters-at-once",
        what="a change may take or give two votes, and a vote to one that was no learner",
        target="rollcall_ha.controller.replication.membership:is_step",
        mutate=constant(True),
        case="members-two-voters-in-one-step",
        tests=("tests/unit/test_replication_members.py::test_a_step_is_one_voter_and_a_voter_was_a_learner_first",),
    ),
    Mutation(
        name="R30-learner-stands",
        what="a member that has caught up stands for election before it has a vote",
        target="rollcall_ha.controller.replication.raft.node:RaftNode.is_electable",
        mutate=_stands_without_a_vote,
        case="members-learner-stands",
        tests=(
            "tests/unit/test_replication_members.py::test_a_learner_is_not_asked_to_lead_and_does_not_stand_if_it_is",
        ),
    ),
    Mutation(
        name="R30-one-at-a-time",
        what="a leader takes a change while the one before is not committed, or no entry of its own term is",
        target="rollcall_ha.controller.replication.raft.node:RaftNode._why_no_change",
        mutate=constant(""),
        case="members-two-changes-at-once",
        tests=(
            "tests/unit/test_replication_members.py::test_no_change_follows_one_that_is_not_committed",
            "tests/unit/test_replication_members.py::test_no_change_before_an_entry_of_the_leaders_own_term_is_committed",
        ),
    ),
    Mutation(
        name="R30-of-a-cut-entry",
        what="members of an entry that was cut go on counting",
        target="rollcall_ha.controller.replication.raft.journal:DurableJournal._forget_from",
        mutate=_keeps_what_was_cut,
        case="members-of-an-entry-that-is-cut",
        tests=("tests/unit/test_replication_members.py::test_members_of_an_entry_that_is_cut_never_were",),
    ),
    Mutation(
        name="R30-not-in-snapshots",
        what="a snapshot does not say who the members are",
        target="rollcall_ha.controller.replication.raft.journal:DurableJournal.configuration_at",
        mutate=_snapshot_forgets,
        case="members-behind-a-snapshot",
        tests=("tests/unit/test_replication_members.py::test_members_are_kept_over_restarts_and_snapshots",),
    ),
    Mutation(
        name="R30-learners-count",
        what="a member that has not caught up counts for commits",
        target="rollcall_ha.controller.replication.raft.internals:Internals.adopt_members",
        mutate=_counts_learners,
        case="members-learner-away",
        tests=("tests/unit/test_replication_members.py::test_a_learner_is_counted_by_nobody",),
    ),
    Mutation(
        name="R30-strangers-unheard",
        what="a member that slept while all others were replaced refuses their appends",
        target="rollcall_ha.controller.replication.raft.repairs:RepairedTransport._may_be_heard",
        mutate=_no_strangers,
        case="members-replaced-while-one-sleeps",
        tests=(
            "tests/unit/test_replication_members.py::test_a_member_that_slept_hears_a_leader_that_it_does_not_know",
            "tests/unit/test_replication_members.py::test_a_stranger_is_heard_only_as_far_as_it_may_be",
        ),
    ),
    Mutation(
        name="R30-removed-deposes",
        what="a member that was removed deposes one leader after the other",
        target="rollcall_ha.controller.replication.raft.repairs:RepairedTransport._may_be_heard",
        mutate=_every_stranger,
        case="members-removed-and-standing",
        tests=(
            "tests/unit/test_replication_members.py::test_a_removed_member_deposes_nobody",
            "tests/unit/test_replication_members.py::test_a_stranger_is_heard_only_as_far_as_it_may_be",
        ),
    ),
)
"""Parts of ``MUTATIONS``."""
