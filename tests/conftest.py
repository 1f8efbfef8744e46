"""
What holds for all tests: Hypothesis judges laws, not how busy the machine is that it runs on, and draws the same examples
each time unless it is asked for fresh ones; what failed says how to run it again; imports are no garbage; files that are run
side by side begin with those that take longest.
"""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

from rollcall_ha.deploy.local import processes
from tests.support.warm import WarmInterpreter

# pytest-xdist sets it for its workers: tables of commands would be those of a narrow terminal there.
os.environ.pop("COLUMNS", None)

WORKERS_MAX = 4
"""Of pytest-xdist (``deploy/check.sh``)."""
LONGEST = (
    "test_console",
    "test_console_orders",
    "test_console_failovers",
    "test_typed_pages",
    "test_demo",
    "test_fleet_phases",
    "test_fleet_controllers",
    "test_fleet_datasource",
    "test_fleet_damage",
    "test_fleet_alarms",
    "test_wheel",
    "test_controller_members",
    "test_fleet_backup",
    "test_raft_durability",
    "test_renewal",
    "test_play",
    "test_analytics_layers",
)
"""Files of half a minute and more. One of them that is begun last is waited for by every other worker."""
ONE_LAKE = dict.fromkeys(
    ("test_analytics_report", "test_duckdb_reigns", "test_lake_readers", "test_standalone_cluster"),
    "test_analytics_layers",
)
"""Files that need the lake of another one: on another worker it would be made twice."""

# "fresh" is for make prove, with --hypothesis-seed: a law that an example of this day breaks is no reason to stop everybody's merge.
settings.register_profile("fresh", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.register_profile("same", settings.get_profile("fresh"), derandomize=True)
settings.load_profile("same")

# The contexts of whoever runs the tests: a command without an address would go to a fleet of his.
os.environ["XDG_CONFIG_HOME"] = os.devnull

# The demo, the machines and the benches start theirs as anybody does.
processes.Processes.popen = staticmethod(WarmInterpreter().popen)

# Two fleets that are founded at the same moment find the same ports free; each worker has ports of its own.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    each = (processes.PORT_LAST - processes.PORT_FIRST) // WORKERS_MAX
    processes.PORT_FIRST += int(worker.removeprefix("gw")) % WORKERS_MAX * each
    processes.PORT_LAST = processes.PORT_FIRST + each


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """What was drawn for a test that failed can be drawn again."""
    report = yield
    if report.failed:
        given = {
            name: item.config.getoption(name) for name in ("randomly_seed", "hypothesis_profile", "hypothesis_seed")
        }
        drawn = " ".join(f"--{name.replace('_', '-')}={value}" for name, value in given.items() if value is not None)
        report.sections.append(("again", f"again: .venv/bin/python -m pytest {drawn} '{item.nodeid}'"))
    return report


def pytest_collection_finish() -> None:
    """What was imported stays: without this each full collection walks all of it again, a fifth of the time of the fast tests."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """The interpreter collects modules at its end: of frozen ones DuckDB's binding prints pages of types that leaked."""
    gc.unfreeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown() -> None:
    """
    End what a test that failed has left open while it is that test's turn.

    Its frames hold its sockets, and pytest keeps them for a debugger until the next test is called: that one, which is
    innocent, would fail for a writer that is collected and was never closed.
    """
    if hasattr(sys, "last_value"):
        del sys.last_type, sys.last_value, sys.last_traceback
        vars(sys).pop("last_exc", None)
        gc.collect()


class LongestFirst(LoadFileScheduling):  # type: ignore[misc]
    """By files. xdist begins with that of most tests: one of a single test that takes a minute would come last."""

    def _split_scope(self, nodeid: str) -> str:
        scope: str = super()._split_scope(nodeid)
        for name, other in ONE_LAKE.items():
            scope = scope.replace(name, other)
        return scope

    def _assign_work_unit(self, node: Any) -> None:
        waiting = {Path(scope).stem: scope for scope in self.workqueue}
        if longest := next((name for name in LONGEST if name in waiting), None):
            self.workqueue.move_to_end(waiting[longest], last=False)
        super()._assign_work_unit(node)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return LongestFirst(config, log) if config.getvalue("dist") == "loadfile" else None
