"""
Mutants of policies that move masters by themselves: leaving one that cannot acknowledge, sets that flap, returns.

Here: the list. Not here: what a mutant is (``mutation``), running it (``mutants``), the policies in seeds (``policies``).
"""

from __future__ import annotations

from typing import Any

from rollcall_ha.controller.contract.ids import BrokerId
from tests.sim.mutation import Function, Mutation, constant


def _every_other_replica(_original: Function) -> Function:
    def mutated(set_state: Any, _evidence: Any) -> tuple[BrokerId, ...]:
        return tuple(one.broker_id for one in set_state.replicas if one.broker_id != set_state.master)

    return mutated


def _counted_whoever_is_heard(_original: Function) -> Function:
    def mutated(sync_state: Any, members: Any, _now_ms: int) -> bool:
        return bool(len(members) >= sync_state.reign.min_in_sync)

    return mutated


def _never_damped(original: Function) -> Function:
    def mutated(duty: Any, set_state: Any, stopped: Any, settings: Any, now_ns: int) -> bool:
        stopped.elected_ns = -(1 << 62)
        due: bool = original(duty, set_state, stopped, settings, now_ns)
        return due

    return mutated


def _never_blocked(_original: Function) -> Function:
    return lambda _fleet, _operation, _set_key, decision: decision


def _of_one_cause(original: Function) -> Function:
    def mutated(set_state: Any, _cause: Any, since_ms: int) -> Any:
        return sum(original(set_state, cause, since_ms) for cause in {one.cause for one in set_state.failovers})

    return mutated


def _always_in_sync(original: Function) -> Function:
    def mutated(duty: Any, fleet: Any, now_ns: int) -> None:
        original(duty, fleet, now_ns)
        for candidate in duty._candidates.values():
            candidate.since_ns = -(1 << 62)

    return mutated


POLICIES: tuple[Mutation, ...] = (
    Mutation(
        name="R22-lost-one-by-one",
        what="a master that is cut off removes the slave that it lost first, and one heir remains",
        target="rollcall_ha.ha.sync_state:SyncState._may_remain",
        mutate=_counted_whoever_is_heard,
        tests=(
            "tests/unit/test_ha_sync_state.py::test_r22_slaves_that_a_master_lost_one_after_the_other_left_it_with_one_heir",
            "tests/unit/test_ha_sync_state.py::test_r22_a_member_about_to_stop_that_cannot_be_spared_stays_and_counts_while_it_acks",
        ),
    ),
    Mutation(
        name="leaving-min-in-sync",
        what="a master is left for fewer heirs than min_in_sync, who acknowledge nothing either",
        target="rollcall_ha.controller.core.decide_leaving:able_without_master",
        mutate=_every_other_replica,
        tests=(
            "tests/unit/test_runtime_handovers.py::test_without_heirs_that_could_serve_the_master_stays_and_that_is_on_record_once",
            "tests/unit/test_runtime_handovers.py::test_of_two_heirs_one_that_has_left_the_set_does_not_count",
        ),
    ),
    Mutation(
        name="leaving-stop-is-over",
        what="a master that serves again is left by an order that was on its way",
        target="rollcall_ha.controller.core.decide_leaving:_refuse_stop",
        mutate=constant(None),
        tests=(
            "tests/unit/test_runtime_handovers.py::test_an_order_that_comes_behind_the_end_of_the_stop_elects_nobody",
            "tests/unit/test_runtime_handovers.py::test_an_order_for_a_stop_that_another_one_followed_elects_nobody",
        ),
    ),
    Mutation(
        name="leaving-damped",
        what="a fault that travels with the mastership moves it round without end",
        target="rollcall_ha.controller.runtime.handover_duty:HandoverDuty._is_due",
        mutate=_never_damped,
        tests=(
            "tests/unit/test_runtime_handovers.py::test_a_fault_that_travels_with_the_mastership_moves_it_once_in_a_pause",
            "tests/unit/test_runtime_handovers.py::test_the_next_leader_knows_of_the_last_election_and_of_the_age_of_the_stop",
        ),
    ),
    Mutation(
        name="leaving-slaves-disk",
        what="short stops add up for whatever reason: a master is left for a slave's disk",
        target="rollcall_ha.controller.runtime.handover_duty:_is_continued",
        mutate=constant(True),
        tests=(
            "tests/unit/test_runtime_handovers.py::test_stops_by_a_slaves_disk_or_with_time_between_them_are_not_added_up",
            "tests/unit/test_runtime_handovers.py::test_a_master_that_serves_again_stays",
        ),
    ),
    Mutation(
        name="S71-block",
        what="a set fails over again and again, and waits for nobody",
        target="rollcall_ha.controller.core.flaps:with_block",
        mutate=_never_blocked,
        case="flapping-set-waits",
        tests=(
            "tests/unit/test_core_flaps.py::test_the_last_failover_that_is_allowed_is_held_and_the_next_one_waits_for_a_person",
        ),
    ),
    Mutation(
        name="S71-per-cause",
        what="failovers by another cause block a set",
        target="rollcall_ha.controller.core.flaps:_counted",
        mutate=_of_one_cause,
        case="flaps-of-two-causes",
        tests=(
            "tests/unit/test_core_flaps.py::test_failovers_of_another_cause_and_those_before_the_window_do_not_count",
        ),
    ),
    Mutation(
        name="return-waits",
        what="a preferred replica gets its set back however short it was in sync, and again as soon as that has failed",
        target="rollcall_ha.controller.runtime.return_duty:ReturnDuty._look",
        mutate=_always_in_sync,
        case="failed-return-waits",
        tests=(
            "tests/unit/test_runtime_returns.py::test_the_master_returns_when_the_preferred_replica_was_in_sync_for_the_time_and_no_sooner",
        ),
    ),
)
"""Parts of ``MUTATIONS``."""
