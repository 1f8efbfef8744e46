"""
Random draws of a synthetic fleet: times between faults and durations, in integer microseconds.

Here: one seeded stream per set. Not here: the effect of a draw on a set (``broker_set``).
Rule 1: a stream depends on the plan's seed, the fleet and the set only, and never on another set's draws.
Rule 2: distributions are those of a demo on a busy machine, with tails; no number here is a promise about Rollcall.
"""

from __future__ import annotations

import math
import random

from tests.synthetic.plan import SURVIVED, US_PER_DAY, US_PER_MS, US_PER_S, Fault, Plan

PAUSE_MEDIAN_OF_TIMEOUT = 0.75
PAUSE_SIGMA = 0.8
"""The spread of the logarithm: with the median above, about a third of all pauses outlast the timeout."""

RESTART_MEDIAN_US = 25 * US_PER_S
BOOT_MEDIAN_US = 120 * US_PER_S
REPAIR_US_MAX = 1_800 * US_PER_S
"""No process stays away longer, so that a history comes to rest within ``plan.SETTLE_MS``."""


class Draws:
    """Draws for one set."""

    def __init__(self, plan: Plan, *, fleet: int, stream: int) -> None:
        """``stream`` is the number of the set; -1 is the fleet's own."""
        # One integer per stream: seeding with text would hash it, which is slower.
        seed = ((plan.seed * 1_000_003 + fleet) * 1_000_003 + stream + 1) & (2**128 - 1)
        self._random = random.Random(seed)
        self._timing = plan.timing
        self._faults = [fault for fault, _ in plan.mix.weights]
        self._weights = [weight for _, weight in plan.mix.weights]

    # --- when --------------------------------------------------------------------------------------------------------

    def until_next_us(self, per_day: float) -> int:
        """Time to the next event of a Poisson process; at least a microsecond."""
        return max(1, round(self._random.expovariate(per_day) * US_PER_DAY))

    def fault(self) -> Fault:
        """Which one, by the plan's mix."""
        return self._random.choices(self._faults, self._weights)[0]

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def pick(self, count: int) -> int:
        """0 .. ``count`` - 1."""
        return self._random.randrange(count)

    # --- how long ----------------------------------------------------------------------------------------------------

    def _spread(self, median_us: float, sigma: float, most_us: int) -> int:
        return max(1, min(most_us, round(median_us * math.exp(sigma * self._random.gauss()))))

    def away_us(self, fault: Fault) -> int:
        """How long a process is not heard; one that a new controller does not hear outlasts every grace."""
        if fault in SURVIVED:
            timeout_us = self._timing.heartbeat_timeout_ms * US_PER_MS
            drawn = self._spread(PAUSE_MEDIAN_OF_TIMEOUT * timeout_us, PAUSE_SIGMA, REPAIR_US_MAX)
            return 2 * timeout_us + drawn if fault is Fault.CONTROLLER else drawn
        if fault is Fault.RESTART:
            # A supervisor restarts it at once.
            return 80 * US_PER_MS + self._random.randrange(300 * US_PER_MS)
        if fault is Fault.POWER:
            return self._spread(BOOT_MEDIAN_US, 0.5, REPAIR_US_MAX)
        return self._spread(RESTART_MEDIAN_US, 0.6, REPAIR_US_MAX)

    def step_us(self, median_us: int) -> int:
        """One step of a failover in a broker or a controller."""
        return self._spread(median_us, 0.5, 400 * US_PER_MS)

    def within_us(self, most_us: int) -> int:
        """Anywhere in 0 .. ``most_us``: the place of a moment in a period."""
        return self._random.randrange(most_us + 1)

    # --- how much ----------------------------------------------------------------------------------------------------

    def lag_bytes(self, write_bytes_per_s: int) -> int:
        """The part of the master's log that a follower lacks at one moment."""
        return round(self._random.expovariate(1.0) * write_bytes_per_s * 0.004)

    def write_bytes_per_s(self) -> int:
        """How much a set takes in."""
        return 50_000 + self._random.randrange(400_000)
