"""
``python -m tests.sim.mutants``: one rule switched off at a time; each must be noticed in at least two independent ways.

A mutant replaces one named function of the production code. Its ways are a directed case, a story, a stored seed, and
named tests of the repository. A case (``directed``) drives one real machine, or a small fleet, where the fleet as a whole
has a second guard that would hide the loss. Without the mutant each way must be quiet: otherwise it is not the mutant that
was found.

    (nothing)     every mutant by all its ways
    --search N    mutants that lack a way: try seeds 0 .. N-1, store what is found in mutant_seeds.json
    --only NAME   one of them
    --jobs N      child processes at a time; 0 = one per core

Exit 0: every mutant was found in at least two ways, and by each case, story and unit test that it names. A survivor is
named and fails.
Here: cases, stories and seeds, in this process; what is printed. Not here: tests, in processes of their own
(``mutant_tests``).
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from time import monotonic

from tests.sim import directed
from tests.sim.mutant_tests import TestOutcome, run_tests
from tests.sim.mutation import Mutation, mutated
from tests.sim.mutations import MUTATIONS
from tests.sim.run import run_seed
from tests.sim.violation import Violation

STORED = Path(__file__).with_name("mutant_seeds.json")
WAYS_MIN = 2
SEEDS_TRIED = 4
_CHANCE = ("seed", "property test")
SHOWN_CHARS_MAX = 110
_OWN_FAULTS = (TypeError, AttributeError, NameError)
"""A mutant that is written wrongly, as for other arguments than the function has now, breaks everything by these."""
_BREAKS = "the mutant itself breaks: "
_without: dict[tuple[str, str], str] = {}
"""The trouble of a way without any mutant, mostly "": several mutants share a case or a story, which runs once for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to notice a mutant, and what came of it."""

    kind: str
    name: str
    failure: str | None
    """None: nothing was noticed."""
    trouble: str = ""
    """Why this way says nothing: it fails without the mutant, or did not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """A mutant with all its ways."""

    mutation: Mutation
    ways: tuple[Way, ...]

    @property
    def noticed(self) -> list[Way]:
        """The ways that count."""
        return [way for way in self.ways if way.failure is not None and not way.trouble]

    @property
    def verdict(self) -> str:
        """Empty: as it must be."""
        if not self.noticed:
            return "survived"
        if len(self.noticed) < WAYS_MIN:
            return "was noticed in one way only"
        # By chance a seed or a law may miss it one day; two other ways have noticed it then.
        silent = [f"{way.kind} {way.name}" for way in self.ways if way not in self.noticed and way.kind not in _CHANCE]
        return f"was not noticed by {', '.join(silent)}" if silent else ""


def kind_of(test: str) -> str:
    """``unit test`` or ``property test``, by its folder."""
    return f"{test.split('/')[1]} test"


def _noticed(run: Callable[[], str | None]) -> tuple[str | None, str]:
    """What ``run`` found, None = nothing; and why it says nothing, mostly empty."""
    try:
        return run(), ""
    except Violation as violation:
        return str(violation), ""
    except _OWN_FAULTS as fault:
        return None, f"{_BREAKS}{type(fault).__name__}: {fault}"
    except Exception as error:  # noqa: BLE001  a mutant may break anything
        return f"{type(error).__name__}: {error}", ""


def run_case(case: Callable[[], None]) -> str | None:
    """What a directed case found; None = every promise was kept."""
    failure, fault = _noticed(case)
    return failure or fault or None


def _way(kind: str, name: str, mutation: Mutation, run: Callable[[], str | None]) -> Way:
    if (kind, name) not in _without:
        failure, fault = _noticed(run)
        quiet = failure is None and not fault
        _without[kind, name] = "" if quiet else f"fails without any mutant: {failure}{fault}"
    with mutated(mutation):
        failure, fault = _noticed(run)
    return Way(kind=kind, name=name, failure=failure, trouble=_without[kind, name] or fault)


def _told_otherwise(story: str) -> str | None:
    """The first line of a story that happens in another way now."""
    from tests.scenario.test_scenarios import FOLDER, perform  # it shows mutants to its audience

    told = (FOLDER / f"{story}.txt").read_text()
    lines = zip(told.splitlines(), perform(told).splitlines(), strict=False)
    return next((f"told {line!r}, happened {now!r}" for line, now in lines if line != now), None)


def by_seed(mutation: Mutation, seed: int) -> Way:
    """One seed without the mutant, and with it."""

    def run() -> str | None:
        failure = run_seed(seed).failure
        # A seed never raises: it writes down the name of the error.
        if failure is not None and failure.partition(":")[0] in {fault.__name__ for fault in _OWN_FAULTS}:
            raise TypeError(failure)
        return failure

    return _way("seed", str(seed), mutation, run)


def ways_within(mutation: Mutation, stored: Mapping[str, int]) -> tuple[Way, ...]:
    """Its case, its story and its seed, in this process."""
    ways: list[Way] = []
    if mutation.case:
        ways.append(_way("case", mutation.case, mutation, directed.CASES[mutation.case]))
    if mutation.story:
        ways.append(_way("story", mutation.story, mutation, lambda: _told_otherwise(mutation.story)))
    if mutation.name in stored:
        ways.append(_by_seeds(mutation, stored[mutation.name]))
    return tuple(ways)


def _by_seeds(mutation: Mutation, stored: int) -> Way:
    """The stored seed, or, if what happens in it has changed since, the first of the next ones that notices."""
    first = by_seed(mutation, stored)
    later = (by_seed(mutation, seed) for seed in range(stored + 1, stored + SEEDS_TRIED))
    return next((way for way in chain([first], later) if way.failure is not None and not way.trouble), first)


def _by_tests(outcomes: Mapping[str, TestOutcome], controls: Mapping[str, TestOutcome]) -> tuple[Way, ...]:
    ways = []
    for test, outcome in outcomes.items():
        control = controls[test]
        trouble = "" if control.has_passed else f"does not pass without any mutant: {control.detail}"
        if not outcome.is_noticed and not outcome.has_passed:
            trouble = trouble or f"no assertion: {outcome.detail}"
        failure = outcome.detail if outcome.is_noticed else None
        ways.append(Way(kind=kind_of(test), name=test, failure=failure, trouble=trouble))
    return tuple(ways)


def named_ways(mutation: Mutation, stored: Mapping[str, int]) -> list[str]:
    """What it names, unjudged."""
    ways = [f"case {mutation.case}"] if mutation.case else []
    ways += [f"story {mutation.story}"] if mutation.story else []
    ways += [f"seed {stored[mutation.name]}"] if mutation.name in stored else []
    return ways + [f"{kind_of(test)} {test}" for test in mutation.tests]


def _judge_all(chosen: Sequence[Mutation], stored: Mapping[str, int], jobs: int) -> list[Judged]:
    tests = list(dict.fromkeys(test for mutation in chosen for test in mutation.tests))
    with ThreadPoolExecutor(jobs) as pool:
        controls = pool.submit(run_tests, "", tests) if tests else None
        runs: dict[str, Future[dict[str, TestOutcome]]] = {
            mutation.name: pool.submit(run_tests, mutation.name, mutation.tests)
            for mutation in chosen
            if mutation.tests
        }
        judged = []
        for number, mutation in enumerate(chosen, 1):
            ways = ways_within(mutation, stored)
            if controls is not None and mutation.name in runs:
                ways += _by_tests(runs[mutation.name].result(), controls.result())
            judged.append(Judged(mutation=mutation, ways=ways))
            _show(judged[-1], f"{number}/{len(chosen)}")
    return judged


def _show(judged: Judged, progress: str) -> None:
    mutation, count = judged.mutation, len(judged.noticed)
    print(f"{progress} {mutation.name}: noticed in {count} {'way' if count == 1 else 'ways'}", flush=True)
    for way in judged.ways:
        text = way.trouble or way.failure or "noticed nothing"
        print(f"    {way.kind} {way.name}\n        {text[:SHOWN_CHARS_MAX]}", flush=True)
    if judged.verdict:
        print(f"FAILED {mutation.name} {judged.verdict}: {mutation.what}", flush=True)


def _summary(judged: Sequence[Judged], seconds: float) -> None:
    once = [one for one in judged if one.mutation.once_unnoticed]
    if once:
        print(f"{len(once)} rules that once nothing guarded:")
    for one in once:
        ways = ", ".join(f"{way.kind} {way.name.rpartition('::')[2]}" for way in one.noticed)
        print(f"  {one.mutation.once_unnoticed} ({one.mutation.name}): {ways}")
    by_kind: dict[str, int] = {}
    for way in (way for one in judged for way in one.noticed):
        by_kind[way.kind] = by_kind.get(way.kind, 0) + 1
    result = {
        "mutants": len(judged),
        "found_twice": sum(len(one.noticed) >= WAYS_MIN for one in judged),
        "found_once": sum(len(one.noticed) == 1 for one in judged),
        "survived": sum(not one.noticed for one in judged),
        "failed": sum(bool(one.verdict) for one in judged),
        "once_unnoticed": len(once),
        "ways": by_kind,
        "seconds": round(seconds),
    }
    print(f"RESULT {json.dumps(result)}")


def _search(chosen: Sequence[Mutation], stored: dict[str, int], seeds: int) -> None:
    """Store the first seed that finds a mutant which lacks a way."""
    for mutation in chosen:
        if len(named_ways(mutation, stored)) >= WAYS_MIN:
            continue
        for seed in range(seeds):
            way = by_seed(mutation, seed)
            if way.failure is not None and not way.trouble:
                stored[mutation.name] = seed
                STORED.write_text(json.dumps(dict(sorted(stored.items())), indent=2) + "\n")
                break


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants")
    parser.add_argument("--search", type=int, default=0, metavar="N")
    parser.add_argument("--only", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=0, metavar="N")
    options = parser.parse_args(arguments)
    logging.getLogger().setLevel(logging.CRITICAL)
    stored: dict[str, int] = json.loads(STORED.read_text())
    chosen = [mutation for mutation in MUTATIONS if options.only in (None, mutation.name)]
    if not chosen:
        raise SystemExit(f"no mutant is called {options.only!r}")
    started = monotonic()
    if options.search:
        _search(chosen, stored, options.search)
    judged = _judge_all(chosen, stored, options.jobs or os.cpu_count() or 1)
    _summary(judged, monotonic() - started)
    return int(any(one.verdict for one in judged))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
