"""
Tests of the repository under a mutant: each mutant in a process of its own, in which its rule is off before the first
test is collected.

Here: running the tests that a mutant names, and what became of each. Not here: the plugin of the child
(``mutant_plugin``), cases, stories and seeds (``mutants``).
Rule: a test has noticed a mutant if its call fails by an assertion. A test that breaks otherwise, or cannot be imported,
has not.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CHILD_S_MAX = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class TestOutcome:
    """Of one named test, with all its parameters."""

    __test__ = False

    is_noticed: bool
    """At least one of its parameters fails by an assertion."""
    has_passed: bool
    """It ran, and all of its parameters passed."""
    detail: str
    """The first failure, or why it did not run."""


def run_tests(mutant: str, tests: Sequence[str]) -> dict[str, TestOutcome]:
    """Run ``tests`` with ``mutant`` switched on ("": with none) in a child process, at most ``CHILD_S_MAX`` seconds."""
    with tempfile.TemporaryDirectory(prefix="rollcall-mutant-") as folder:
        written = Path(folder) / "outcomes.json"
        environment = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "ROLLCALL_MUTANT": mutant,
            "ROLLCALL_MUTANT_OUTCOMES": str(written),
            # What Hypothesis finds under a mutant is no example for anybody.
            "HYPOTHESIS_STORAGE_DIRECTORY": folder,
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.sim.mutant_plugin"]
        command += ["--hypothesis-seed=0", "--tb=short", *tests]
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=CHILD_S_MAX, check=False
            )
            said = (done.stdout + done.stderr)[-400:]
        except subprocess.TimeoutExpired:
            said = f"not ended after {CHILD_S_MAX} s"
        by_id: dict[str, dict[str, str]] = json.loads(written.read_text()) if written.exists() else {}
    return {test: _outcome_of(test, by_id, said) for test in tests}


def _outcome_of(test: str, by_id: dict[str, dict[str, str]], said: str) -> TestOutcome:
    found = [outcome for name, outcome in by_id.items() if name == test or name.startswith(f"{test}[")]
    noticed = [outcome["detail"] for outcome in found if outcome["outcome"] == "noticed"]
    others = [f"{one['outcome']} {one['detail']}" for one in found if one["outcome"] not in ("noticed", "passed")]
    return TestOutcome(
        is_noticed=bool(noticed),
        has_passed=bool(found) and not noticed and not others,
        detail=next(iter(noticed or others), "" if found else f"did not run: {said}"),
    )
