"""
A plugin of pytest: a run with one rule switched off from before the first test is collected.

Here: what a child process of ``mutant_tests`` loads. ``ROLLCALL_MUTANT`` names the mutant, empty: none.
``ROLLCALL_MUTANT_OUTCOMES`` is the file that gets the outcome of each test, as JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.sim.mutation import mutated
from tests.sim.mutations import MUTATIONS

_OUTCOMES: dict[str, dict[str, str]] = {}
_SWITCHED_OFF = ExitStack()


def pytest_configure() -> None:
    """Before anything is collected; ``mutated`` reaches what the tests import later, too."""
    name = os.environ["ROLLCALL_MUTANT"]
    if name:
        (mutation,) = (one for one in MUTATIONS if one.name == name)
        _SWITCHED_OFF.enter_context(mutated(mutation))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """One line for each test: by its call, or by what went wrong around it."""
    report = yield
    # What an assertion leaves behind, as a thread that its test did not come to stop, may break the teardown by chance:
    # counted, that would take back what the call has noticed.
    is_noticed = _OUTCOMES.get(item.nodeid, {}).get("outcome") == "noticed"
    if not is_noticed and (report.when == "call" or report.failed or report.skipped):
        error = call.excinfo
        # Failed: a ``pytest.raises`` that nothing was raised in. A test that its own fixture or import breaks has
        # noticed nothing.
        is_assertion = error is not None and isinstance(error.value, AssertionError | pytest.fail.Exception)
        _OUTCOMES[item.nodeid] = {
            "outcome": "noticed" if report.failed and report.when == "call" and is_assertion else report.outcome,
            "detail": "" if error is None else f"{error.typename}: {' '.join(str(error.value).split())}"[:300],
        }
    return report


def pytest_unconfigure() -> None:
    """The last word."""
    _SWITCHED_OFF.close()
    Path(os.environ["ROLLCALL_MUTANT_OUTCOMES"]).write_text(json.dumps(_OUTCOMES))
