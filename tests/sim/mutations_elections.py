"""
Mutants of elections: the order of candidates, the set of an unclean winner, and what an election makes known.

Here: the list. Not here: what a mutant is (``mutation``), running it (``mutants``).
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from rollcall_ha.controller.contract.events import MasterElected
from rollcall_ha.controller.contract.ids import LogOffset
from rollcall_ha.controller.contract.values import SilenceCause
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.policies import RankPart
from rollcall_ha.controller.core.state import bound_to
from rollcall_ha.epoch.model import NO_EPOCH
from tests.sim.mutation import Function, Mutation, changed, constant


def _offset_before_epoch(original: Function) -> Function:
    def mutated(part: Any, candidate: Any, zone: str) -> Any:
        key = original(part, candidate, zone)
        return tuple(reversed(key)) if part is RankPart.DATA else key

    return mutated


def _warm_before_data(original: Function) -> Function:
    def mutated(candidate: Any, policy: Any, zone: str) -> Any:
        key = original(candidate, policy, zone)
        return key if RankPart.WARM not in policy.order else (key[-1], *key[:-1])

    return mutated


def _epochs_are_not_compared(original: Function) -> Function:
    def without_epoch(positions: Any) -> Any:
        return positions if positions is None else replace(positions, last_epoch=NO_EPOCH)

    def mutated(set_state: Any, evidence: Any) -> Any:
        replicas = tuple(replace(each, positions=without_epoch(each.positions)) for each in set_state.replicas)
        seen = tuple(map(without_epoch, evidence.replicas))
        return original(replace(set_state, replicas=replicas), replace(evidence, replicas=seen))

    return mutated


def _ages_are_not_heard(original: Function) -> Function:
    def mutated(collector: Any, key: Any, milestone: Any, now_ns: int) -> int | None:
        observed_us: int | None = original(collector, key, replace(milestone, age_us=0), now_ns)
        return observed_us

    return mutated


def _heard_at_its_end(original: Function) -> Function:
    def mutated(*where: Any) -> Any:
        stamps = original(*where)
        return changed(stamps, alive_age_us=stamps.first_sign_age_us)

    return mutated


def _the_old_master_ceased_at_the_commit(original: Function) -> Function:
    def mutated(collector: Any, key: Any, milestone: Any, now_ns: int, steady_ms: int | None) -> Any:
        origin = collector._origin_of(key, milestone.master_epoch)
        if origin is not None:
            origin.served_by = None
        return original(collector, key, milestone, now_ns, steady_ms)

    return mutated


def _only_orders_leave_a_master_serving(original: Function) -> Function:
    def mutated(event: Any) -> Any:
        is_replaced = event.detection is not None and event.detection.cause is SilenceCause.REPLACED
        return None if is_replaced or event.verdict.kind is ElectionKind.UNCLEAN else original(event)

    return mutated


def _locks_of_copies_count(_original: Function) -> Function:
    def mutated(_service: Any, command: Any) -> Any:
        return command

    return mutated


def _survivors_of_an_unclean_election(original: Function) -> Function:
    def mutated(case: Any, ranking: Any, winner: Any, **named: Any) -> MasterElected:
        event: MasterElected = original(case, ranking, winner, **named)
        if event.verdict.kind is not ElectionKind.UNCLEAN:
            return event
        replicas = case.set_state.replicas
        members = tuple(
            each.broker_id
            for each in replicas
            if each.broker_id == winner or (each.is_alive and case.set_state.is_intact_member(each))
        )
        return replace(
            event,
            verdict=replace(event.verdict, sync_state_set=members),
            sync_state_set=members,
            bound_incarnations=bound_to(replicas, members),
        )

    return mutated


def _confirm_is_not_raised(original: Function) -> Function:
    def mutated(set_state: Any, event: Any, *, may_have_lost: bool) -> LogOffset:
        return LogOffset(min(set_state.known_confirm, original(set_state, event, may_have_lost=may_have_lost)))

    return mutated


def _acked_end_is_forgotten(original: Function) -> Function:
    def mutated(facts: Any, step: Any, done: Any) -> None:
        original(facts, step, done)
        facts.acked_end = LogOffset(0)

    return mutated


ELECTIONS: tuple[Mutation, ...] = (
    Mutation(
        name="C4-offset-before-epoch",
        what="the longest log wins, although a shorter one ends in a later epoch",
        target="rollcall_ha.controller.core.ranking:_part",
        mutate=_offset_before_epoch,
        case="longer-log-of-an-older-epoch",
        tests=("tests/unit/test_core_safety_order.py::test_the_epoch_is_compared_before_the_offset",),
        once_unnoticed="the offset is compared before the epoch in the order of candidates",
    ),
    Mutation(
        name="C4-warm-before-data",
        what="among RocketMQ brokers a warm replica wins, although another one has the longer log",
        target="rollcall_ha.controller.core.ranking:_key",
        mutate=_warm_before_data,
        case="warm-slave-with-the-shorter-log",
        tests=(
            "tests/unit/test_core_safety_elections.py::test_a_warm_replica_goes_before_no_longer_log_and_no_smaller_priority",
        ),
    ),
    Mutation(
        name="R7-longest-by-offset-only",
        what="after a wipe or restore the longest log is elected, although a shorter one ends in a later epoch",
        target="rollcall_ha.controller.core.decide_election:_set_aside_by_reports",
        mutate=_epochs_are_not_compared,
        case="longest-report-of-an-older-epoch",
        tests=("tests/unit/test_core_safety_order.py::test_r7_after_a_wipe_the_longest_is_found_by_epoch_first",),
        once_unnoticed="the offset alone is compared after a restore",
    ),
    Mutation(
        name="R6-unclean-keeps-survivors",
        what="an unclean winner begins with members whose logs hold what it lacks",
        target="rollcall_ha.controller.core.decide_election:_elected",
        mutate=_survivors_of_an_unclean_election,
        case="outsider-beside-an-intact-member",
        tests=(
            "tests/unit/test_core_safety_order.py::test_r6_an_unclean_winner_stands_alone_although_an_intact_member_lives",
        ),
        once_unnoticed="an unclean winner keeps survivors",
    ),
    Mutation(
        name="R3-known-confirm-not-raised",
        what="an election forgets the confirm offsets that it was told: a member that lost records stays one",
        target="rollcall_ha.controller.core.evolve:_confirm_elected",
        mutate=_confirm_is_not_raised,
        tests=(
            "tests/unit/test_core_safety_order.py::test_r3_an_election_makes_the_confirm_offset_known_for_the_veto",
            "tests/property/test_core_laws.py::test_r3_what_an_election_was_told_to_be_confirmed_is_missed_in_every_later_restart",
        ),
        once_unnoticed="the known confirm is not raised at an election",
    ),
    Mutation(
        name="election-of-an-earlier-epoch",
        what="an election that waits since an earlier epoch replaces the winner that an operator has elected meanwhile",
        target="rollcall_ha.controller.core.election_duty:PendingElection.is_of",
        mutate=constant(True),
        tests=(
            "tests/unit/test_runtime_duties.py::test_a_waiting_election_replaced_the_master_that_an_operator_had_just_elected",
            "tests/unit/test_runtime_duties.py::test_the_loss_of_an_operators_winner_was_taken_for_the_loss_before_it",
        ),
        once_unnoticed="an election that waits is held in whatever epoch the set has come to",
    ),
    Mutation(
        name="wait-of-a-report-is-outage",
        what="the time that a report waited at its broker counts as outage",
        target="rollcall_ha.controller.runtime.milestones:Milestones._observed_us",
        mutate=_ages_are_not_heard,
        tests=(
            "tests/unit/test_runtime_milestones.py::test_the_time_that_a_report_waited_at_its_broker_was_part_of_the_outage[behind another report]",
            "tests/unit/test_gateway_broker_port.py::test_the_record_of_a_reign_does_not_count_how_long_its_report_waited",
        ),
        once_unnoticed="the leader times the arrival of each report",
    ),
    Mutation(
        name="outage-of-an-applied-election",
        what="the leader after the one that held an election has no bounds of its outage",
        target="rollcall_ha.controller.runtime.milestones:Milestones.applied",
        mutate=constant(None),
        case="leader-behind-its-election",
        tests=(
            "tests/unit/test_runtime_milestones.py::test_the_next_leader_had_no_bounds_of_an_outage_whose_election_it_had_applied",
        ),
    ),
    Mutation(
        name="outage-of-the-backups-master",
        what="after a restore the outage on record is that of the master that the backup knew",
        target="rollcall_ha.controller.core.recovery:newest_reign",
        mutate=constant(None),
        tests=(
            "tests/unit/test_core_outages.py::test_after_a_restore_the_outage_was_that_of_the_backups_master",
            "tests/unit/test_core_outages.py::test_a_master_that_dies_in_a_recovery_begins_the_outage_there",
        ),
    ),
    Mutation(
        name="outage-of-a-recovery-is-bounded",
        what="after a restore an outage has an upper bound, although nobody here heard the master",
        target="rollcall_ha.controller.core.outages:_of_past",
        mutate=_heard_at_its_end,
        tests=(
            "tests/unit/test_core_outages.py::test_after_a_restore_the_outage_was_that_of_the_backups_master",
            "tests/unit/test_core_outages.py::test_a_master_that_dies_in_a_recovery_begins_the_outage_there",
        ),
    ),
    Mutation(
        name="outage-of-an-order-is-exact",
        what="an order's outage is exact from its commit on, although the old master serves until the winner has promised",
        target="rollcall_ha.controller.runtime.milestones:Milestones._timed",
        mutate=_the_old_master_ceased_at_the_commit,
        tests=(
            "tests/unit/test_runtime_milestones.py::test_an_order_took_the_time_in_which_its_old_master_still_acknowledged_for_an_outage",
            "tests/unit/test_runtime_outages.py::test_the_outage_of_an_order_has_bounds_as_long_as_its_old_master_may_have_served",
        ),
    ),
    Mutation(
        name="hung-master-is-moved-alive",
        what="an order's outage begins with its commit, although the old master had not been heard for 2 s",
        target="rollcall_ha.controller.runtime.session_state:ReplicaSession.overdue_ns",
        mutate=constant(0),
        tests=(
            "tests/unit/test_runtime_outages.py::test_the_outage_of_an_order_has_bounds_as_long_as_its_old_master_may_have_served",
            "tests/unit/test_runtime_outages.py::test_an_order_ends_the_wait_for_acknowledgements_that_its_old_master_had_told_of",
        ),
    ),
    Mutation(
        name="late-heartbeat-is-the-last-word",
        what="a heartbeat that the network brought late counts as sent when it was read",
        target="rollcall_ha.controller.runtime.session_state:ReplicaSession.late_ns",
        mutate=constant(0),
        tests=(
            "tests/unit/test_runtime_outages.py::test_a_heartbeat_that_came_late_was_the_last_word_of_a_master_that_had_ceased_before",
            "tests/unit/test_runtime_outages.py::test_the_last_word_of_a_master_is_as_old_as_its_last_answer_and_its_own_clock_say",
        ),
    ),
    Mutation(
        name="copy-ends-what-it-stands-beside",
        what="a master serves no more once a copy of it has registered, or an unclean order names another one",
        target="rollcall_ha.controller.runtime.milestones:winner_beside",
        mutate=_only_orders_leave_a_master_serving,
        tests=(
            "tests/unit/test_runtime_milestones.py::test_a_master_that_its_slaves_heard_to_the_end_served_until_its_winner_had_promised",
            "tests/unit/test_runtime_milestones.py::test_a_living_master_serves_until_it_is_told_of_an_unclean_order_too",
        ),
    ),
    Mutation(
        name="lock-of-a-copy-ends-the-master",
        what="the lock on a copy of its directory is taken for the end of a master that the leader heard later",
        target="rollcall_ha.controller.runtime.broker_requests:gone_since_heard",
        mutate=_locks_of_copies_count,
        tests=(
            "tests/unit/test_runtime_outages.py::test_a_copy_of_a_directory_was_taken_for_the_end_of_the_process_that_served_on",
            "tests/unit/test_gateway_broker_port.py::test_a_copy_on_the_same_boot_ends_a_master_when_the_leader_heard_it_last",
        ),
    ),
    Mutation(
        name="acked-end-not-reported",
        what="a winner does not say what it had acked to the old master: a loss is graded proven",
        target="rollcall_ha.broker.core.role_lines:note_done",
        mutate=_acked_end_is_forgotten,
        case="winner-that-had-acked",
        tests=(
            "tests/unit/test_broker_role_memory.py::test_the_winner_reports_the_highest_end_that_it_acked_to_the_old_master",
        ),
        once_unnoticed="the acked end is not reported for the proof",
    ),
)
"""Parts of ``MUTATIONS``."""
