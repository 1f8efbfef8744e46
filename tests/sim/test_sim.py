"""The mutants of the simulation: each names what guards its rule, and what is named is there and notices. Seeds: ``make sim``."""

from __future__ import annotations

import inspect
import json
from types import SimpleNamespace
from typing import Any, Literal, cast

import pytest

from tests.sim import directed, mutant_plugin
from tests.sim.mutant_tests import ROOT, run_tests
from tests.sim.mutants import STORED, WAYS_MIN, named_ways, ways_within
from tests.sim.mutation import Mutation, original_of
from tests.sim.mutations import MUTATIONS

LONG = {
    *("S12-ended-for-ever", "R3-id-free-for-a-moment", "R3-id-in-use", "R26-unclean-epoch", "C4-offset-before-epoch"),
    *("R7-restored-as-itself", "R13-missed-until-heard", "R30-learner-stands"),
}
"""Mutants whose case goes on for seconds: two thirds of what all of them take. ``make prove PARTS=sim-mutants`` has them too."""


def test_every_mutant_names_two_ways_that_are_there() -> None:
    """``make prove PARTS=sim-mutants`` runs them all; a test that was renamed or a case that went takes its guard with it."""
    stored: dict[str, int] = json.loads(STORED.read_text())
    ways = {mutation.name: named_ways(mutation, stored) for mutation in MUTATIONS}
    tests = {test for mutation in MUTATIONS for test in mutation.tests}
    stories = {path.stem for path in (ROOT / "tests/scenario").glob("*.txt")}

    tables = [table for name, table in vars(directed).items() if name.endswith("_CASES")]

    assert len(ways) == len(MUTATIONS), "two mutants of one name"
    assert len(tables) >= 6
    assert sum(map(len, tables)) == len(set().union(*tables)), "two cases of one name"
    assert set(stored) <= set(ways)
    assert set(ways) >= LONG
    assert {name: len(named) for name, named in ways.items() if len(set(named)) < WAYS_MIN} == {}
    assert {mutation.case for mutation in MUTATIONS} - {"", *directed.CASES} == set()
    assert {mutation.story for mutation in MUTATIONS} - {"", *stories} == set()
    assert {test for test in tests if not _is_there(test)} == set()


def test_a_mutant_with_other_arguments_than_its_function_looked_noticed() -> None:
    """The function had got a further one: every decision was refused for a ``TypeError``, as if a rule had refused it."""
    refused = {mutation.name: _not_taken(mutation) for mutation in MUTATIONS}

    assert {name: call for name, call in refused.items() if call} == {}


def _not_taken(mutation: Mutation) -> str:
    """How its function may be called and the mutant may not; empty: in no way."""
    original = original_of(mutation)
    if not inspect.isfunction(original):
        return ""
    every = list(inspect.signature(original).parameters.values())
    mutant = inspect.signature(mutation.mutate(original))
    for chosen in (every, [one for one in every if one.default is one.empty]):
        by_name = {one.name: None for one in chosen if one.kind is one.KEYWORD_ONLY}
        in_order = [None for one in chosen if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
        try:
            mutant.bind(*in_order, **by_name)
        except TypeError as error:
            return f"{len(in_order)} arguments in order and {sorted(by_name)} by name: {error}"
    return ""


def _is_there(test: str) -> bool:
    path, _, name = test.partition("::")
    return f"def {name.partition('[')[0]}(" in (ROOT / path).read_text()


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutation",
    [one for one in MUTATIONS if (one.case or one.story) and one.name not in LONG],
    ids=lambda mutation: mutation.name,
)
def test_a_rule_that_is_switched_off_is_noticed(mutation: Mutation) -> None:
    """Each mutant by its case and its transcript; a survivor means that nothing guards the rule."""
    for way in ways_within(mutation, {}):
        assert not way.trouble, f"{way.kind} {way.name} {way.trouble}"
        assert way.failure is not None, f"{mutation.name} survived {way.kind} {way.name}: {mutation.what}"


@pytest.mark.prove
@pytest.mark.slow
def test_a_test_notices_a_mutant_by_an_assertion_and_passes_without() -> None:
    """A child process that applies no mutant, or a test that cannot be imported, would look like a guard."""
    mutation = next(one for one in MUTATIONS if one.name == "R17")
    test = "tests/unit/test_broker_acks.py::test_r17_an_ended_epoch_takes_nobody_and_releases_nobody"

    missing = "tests/unit/test_broker_acks.py::test_that_is_not_there"

    assert run_tests(mutation.name, [test])[test].is_noticed
    assert run_tests("", [test])[test].has_passed
    unjudged = run_tests(mutation.name, [missing])[missing]
    assert not unjudged.is_noticed
    assert not unjudged.has_passed
    assert "did not run" in unjudged.detail


def test_a_notice_was_taken_back_by_what_the_failed_test_had_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """An assertion in the call, then a thread in the teardown that the test did not come to stop."""
    outcomes: dict[str, dict[str, str]] = {}
    monkeypatch.setattr(mutant_plugin, "_OUTCOMES", outcomes)

    def report(name: str, when: Literal["setup", "call", "teardown"], error: Exception | None) -> None:
        def body() -> None:
            if error is not None:
                raise error

        call = pytest.CallInfo.from_call(body, when)
        told = SimpleNamespace(
            when=when, failed=error is not None, skipped=False, outcome="failed" if error else "passed"
        )
        hook = mutant_plugin.pytest_runtest_makereport(cast("Any", SimpleNamespace(nodeid=name)), call)
        next(hook)
        with pytest.raises(StopIteration):
            hook.send(cast("Any", told))

    report("noticed", "call", AssertionError("twice in the log"))
    report("noticed", "teardown", RuntimeError("a thread"))
    report("broken", "call", None)
    report("broken", "teardown", RuntimeError("a thread"))

    assert outcomes["noticed"] == {"outcome": "noticed", "detail": "AssertionError: twice in the log"}
    assert outcomes["broken"] == {"outcome": "failed", "detail": "RuntimeError: a thread"}
