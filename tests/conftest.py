"""What holds for all tests: Hypothesis judges laws, not how busy the machine is that it runs on; imports are no garbage."""

from __future__ import annotations

import gc
import os

from hypothesis import HealthCheck, settings

settings.register_profile("rollcall", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rollcall")

# The contexts of whoever runs the tests: a command without an address would go to a fleet of his.
os.environ["XDG_CONFIG_HOME"] = os.devnull


def pytest_collection_finish() -> None:
    """What was imported stays: without this each full collection walks all of it again, a fifth of the time of the fast tests."""
    gc.collect()
    gc.freeze()
