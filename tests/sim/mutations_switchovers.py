"""
Mutants of orders to switch over (R29).

Here: the list. Not here: what a mutant is (``mutation``), running it (``mutants``).
"""

from __future__ import annotations

from typing import Any

from tests.sim.mutation import Function, Mutation, constant


def _drained_at_once(original: Function) -> Function:
    def mutated(machine: Any) -> None:
        original(machine)
        machine._facts.is_drained = machine._facts.is_drained or machine._facts.order is not None

    return mutated


def _never_serves_again(original: Function) -> Function:
    def mutated(machine: Any) -> None:
        before = machine._facts.order
        original(machine)
        machine._facts.order = machine._facts.order or before

    return mutated


SWITCHOVERS: tuple[Mutation, ...] = (
    Mutation(
        name="R29-order-named",
        what="what a master drained for an order that was withdrawn elects the target of the next order",
        target="rollcall_ha.controller.core.decide_switchover:_is_named",
        mutate=constant(True),
        tests=(
            "tests/unit/test_core_switchover.py::test_r29_an_announcement_for_a_withdrawn_order_elects_nobody",
            "tests/unit/test_core_switchover.py::test_r29_an_order_that_nobody_gave_elects_nobody",
        ),
    ),
    Mutation(
        name="R29-drained",
        what="a master asks for the election before its last byte is confirmed",
        target="rollcall_ha.broker.core.role:RoleMachine._note_order",
        mutate=_drained_at_once,
        tests=(
            "tests/unit/test_broker_switching.py::test_r29_a_master_tells_that_it_has_drained_when_its_last_byte_is_confirmed_and_not_before",
            "tests/unit/test_broker_switching.py::test_r29_a_second_order_is_drained_for_anew",
        ),
    ),
    Mutation(
        name="R29-serves-again",
        what="a master whose order is withdrawn takes no sends any more",
        target="rollcall_ha.broker.core.role:RoleMachine._note_order",
        mutate=_never_serves_again,
        tests=(
            "tests/unit/test_broker_switching.py::test_r29_a_master_takes_sends_again_when_its_order_is_withdrawn",
            "tests/unit/test_broker_switching.py::test_r29_cut_off_from_the_controllers_it_serves_again_at_its_own_deadline",
        ),
    ),
    Mutation(
        name="R29-ends",
        what="an order whose target is gone goes on",
        target="rollcall_ha.controller.core.switchover_ends:_end_before",
        mutate=constant(None),
        tests=(
            "tests/unit/test_core_switchover.py::test_r29_before_its_election_an_order_ends_with_its_target_or_its_master",
            "tests/unit/test_core_switchover.py::test_r29_a_target_that_restarted_is_not_elected_by_the_order",
        ),
    ),
    Mutation(
        name="R29-way-back",
        what="a target that does not enter leaves the set to whichever replica policy prefers",
        target="rollcall_ha.controller.core.decide_election:_way_back",
        mutate=constant(None),
        tests=(
            "tests/unit/test_core_switchover.py::test_r29_a_target_that_does_not_enter_gives_the_set_back_to_the_old_master",
            "tests/unit/test_core_switchover.py::test_r29_a_target_that_dies_before_it_has_entered_gives_the_set_back_too",
        ),
    ),
)
"""Parts of ``MUTATIONS``."""
