"""
``python -m tests.sim.mutants``: one rule switched off at a time; the simulation must notice each.

A mutant replaces one named function of the production code while a seed or a directed case or a transcript runs. A case (``directed``)
drives one real machine where the fleet as a whole has a second guard that would hide the loss. Without the mutant the same seed
and the same case must be quiet: otherwise it is not the mutant that was found.

    (nothing)     every mutant by its stored seed or case: what continuous integration runs
    --search N    mutants without a stored seed: try seeds 0 .. N-1, store what is found in mutant_seeds.json
    --only NAME   one of them

Exit 0: every mutant was found. A survivor is named and fails.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.sim import directed
from tests.sim.mutation import Mutation
from tests.sim.mutations import MUTATIONS
from tests.sim.run import run_seed
from tests.sim.violation import Violation

STORED = Path(__file__).with_name("mutant_seeds.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """How a mutant was noticed."""

    how: str
    failure: str


@contextmanager
def mutated(mutation: Mutation) -> Iterator[None]:
    """Within: the named function is the mutated one, wherever it was imported to."""
    module_name, _, path = mutation.target.partition(":")
    owner: Any = importlib.import_module(module_name)
    *parents, name = path.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    original = owner.__dict__[name]
    replacement = mutation.mutate(original)
    undo: list[Callable[[], None]] = []

    def replace_in(place: Any, key: Any) -> None:
        if isinstance(place, dict):
            place[key] = replacement
            undo.append(lambda: place.__setitem__(key, original))
        else:
            setattr(place, key, replacement)
            undo.append(lambda: setattr(place, key, original))

    replace_in(owner, name)
    if not parents:
        for place, key in _places_of(original):
            replace_in(place, key)
    try:
        yield
    finally:
        for step in undo:
            step()


def _places_of(function: Any) -> list[tuple[Any, Any]]:
    """Names and tables of loaded modules that hold ``function``."""
    found: list[tuple[Any, Any]] = []
    for module in list(sys.modules.values()):
        for key, value in list(getattr(module, "__dict__", {}).items()):
            if value is function:
                found.append((module, key))
            elif type(value) is dict and len(value) < 100:
                found += [(value, inner) for inner, held in list(value.items()) if held is function]
    return found


def run_case(case: Callable[[], None]) -> str | None:
    """What a directed case found; None = every promise was kept."""
    try:
        case()
    except Violation as violation:
        return str(violation)
    except Exception as error:  # noqa: BLE001  a mutant may break anything
        return f"{type(error).__name__}: {error}"
    return None


def _by_seed(mutation: Mutation, seed: int) -> Found | None:
    with mutated(mutation):
        outcome = run_seed(seed)
    if outcome.failure is None:
        return None
    if run_seed(seed).failure is not None:
        return None
    return Found(how=f"seed {seed}, step {outcome.steps:,}", failure=outcome.failure)


def _by_case(mutation: Mutation) -> Found | None:
    case = directed.CASES[mutation.case]
    quiet = run_case(case)
    if quiet is not None:
        raise SystemExit(f"FAILED case {mutation.case} without any mutant: {quiet}")
    with mutated(mutation):
        failure = run_case(case)
    return None if failure is None else Found(how=f"case {mutation.case}", failure=failure)


def _by_story(mutation: Mutation) -> Found | None:
    from tests.scenario.test_scenarios import FOLDER, perform

    told = (FOLDER / f"{mutation.story}.txt").read_text()
    with mutated(mutation):
        try:
            happened = perform(told)
        except Violation as violation:
            return Found(how=f"story {mutation.story}", failure=str(violation))
        except Exception as error:  # noqa: BLE001  a mutant may break anything
            return Found(how=f"story {mutation.story}", failure=f"{type(error).__name__}: {error}")
    for line, now in zip(told.splitlines(), happened.splitlines(), strict=False):
        if line != now:
            return Found(how=f"story {mutation.story}", failure=f"told {line!r}, happened {now!r}")
    return None


def find(mutation: Mutation, stored: dict[str, int], search: int) -> Found | None:
    """By its case, its stored seed, or a search."""
    if mutation.case:
        return _by_case(mutation)
    if mutation.story:
        return _by_story(mutation)
    if mutation.name in stored:
        found = _by_seed(mutation, stored[mutation.name])
        if found is not None or not search:
            return found
    for seed in range(search):
        found = _by_seed(mutation, seed)
        if found is not None:
            stored[mutation.name] = seed
            return found
    return None


def main(arguments: list[str]) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim.mutants")
    parser.add_argument("--search", type=int, default=0, metavar="N")
    parser.add_argument("--only", metavar="NAME")
    options = parser.parse_args(arguments)
    logging.getLogger().setLevel(logging.CRITICAL)
    stored: dict[str, int] = json.loads(STORED.read_text()) if STORED.exists() else {}
    by_seed = {mutation.name for mutation in MUTATIONS if not mutation.case and not mutation.story}
    if stored.keys() != by_seed and not options.search:
        raise SystemExit(
            f"{STORED.name} has {sorted(stored)}, mutants without a case or a story are {sorted(by_seed)}: "
            "run python -m tests.sim.mutants --search 100"
        )
    chosen = [mutation for mutation in MUTATIONS if options.only in (None, mutation.name)]
    if not chosen:
        raise SystemExit(f"no mutant is called {options.only!r}")
    survivors = []
    width = max(len(mutation.name) for mutation in chosen)
    ways: dict[str, int] = {}
    for mutation in chosen:
        found = find(mutation, stored, options.search)
        if found is None:
            survivors.append(mutation.name)
            print(f"SURVIVED {mutation.name}: {mutation.what}", flush=True)
        else:
            print(f"{mutation.name:<{width}} -> {found.how:<36} {found.failure[:140]}", flush=True)
            way = found.how.partition(" ")[0]
            ways[way] = ways.get(way, 0) + 1
            if options.search:
                STORED.write_text(json.dumps(dict(sorted(stored.items())), indent=2) + "\n")
    by_way = ", ".join(f"{count} by {way}" for way, count in sorted(ways.items()))
    print(f"RESULT {len(chosen)} mutants, {len(chosen) - len(survivors)} found ({by_way}), {len(survivors)} survived")
    if survivors:
        print(f"FAILED survivors: {', '.join(survivors)}")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
