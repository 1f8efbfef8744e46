"""A few seeds of the whole fleet on every run of the tests; ``make sim`` runs many, ``ROLLCALL_SIM_SEEDS`` says how many here."""

from __future__ import annotations

import json
import os

import pytest

from tests.sim.__main__ import regressions, reproduce, trace_hashes
from tests.sim.mutants import STORED, find
from tests.sim.mutation import Mutation
from tests.sim.mutations import MUTATIONS
from tests.sim.run import run_seed

SEEDS = int(os.environ.get("ROLLCALL_SIM_SEEDS", "6"))


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*regressions(), *range(SEEDS)])
def test_no_promise_is_broken_under_this_seed(seed: int) -> None:
    """Invariants hold after every event, and once the faults stop every set serves and all replicas hold the same."""
    outcome = run_seed(seed)

    assert outcome.failure is None, reproduce(outcome)
    assert outcome.counts["messages acked"] > 0


@pytest.mark.slow
def test_a_seed_gives_one_trace_under_every_hash_seed_and_behind_other_seeds() -> None:
    """Nothing in the fleet iterates a set in hash order, reads a clock of its own or keeps anything for another world."""
    assert trace_hashes([1, 2], "1") == trace_hashes([2, 1], "2")[::-1]


def test_every_stored_seed_is_that_of_a_mutant_which_has_no_case() -> None:
    """A seed that nobody reads would be taken for a guard."""
    stored: dict[str, int] = json.loads(STORED.read_text())

    assert set(stored) == {mutation.name for mutation in MUTATIONS if not mutation.case and not mutation.story}


@pytest.mark.slow
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_rule_that_is_switched_off_is_noticed(mutation: Mutation) -> None:
    """Each mutant by its case, its transcript or its stored seed; a survivor means that nothing guards the rule."""
    stored: dict[str, int] = json.loads(STORED.read_text())

    assert find(mutation, stored, search=0) is not None, f"{mutation.name} survived: {mutation.what}"
