"""What holds for all tests: Hypothesis judges laws, not how busy the machine is that it runs on; imports are no garbage."""

from __future__ import annotations

import gc
import os

from hypothesis import HealthCheck, settings

from rollcall_ha.deploy.local import processes

WORKERS_MAX = 4
"""Of pytest-xdist (``deploy/check.sh``)."""

settings.register_profile("rollcall", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rollcall")

# The contexts of whoever runs the tests: a command without an address would go to a fleet of his.
os.environ["XDG_CONFIG_HOME"] = os.devnull

# Two fleets that are founded at the same moment find the same ports free; each worker has ports of its own.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    each = (processes.PORT_LAST - processes.PORT_FIRST) // WORKERS_MAX
    processes.PORT_FIRST += int(worker.removeprefix("gw")) % WORKERS_MAX * each
    processes.PORT_LAST = processes.PORT_FIRST + each


def pytest_collection_finish() -> None:
    """What was imported stays: without this each full collection walks all of it again, a fifth of the time of the fast tests."""
    gc.collect()
    gc.freeze()
