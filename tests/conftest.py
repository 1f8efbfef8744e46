"""What holds for all tests: Hypothesis judges laws, not how busy the machine is that it runs on."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("rollcall", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rollcall")
