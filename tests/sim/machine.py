"""
A host of the simulation and the process that lives on it.

Here: what all sorts of machines have. Not here: the sorts (``world``, ``rocketmq``), starting and killing them (``world``).
"""

from __future__ import annotations

from tests.support.sim_kernel import Host, Kernel, Process


class Machine:
    """A host and the process that lives on it now."""

    def __init__(self, kernel: Kernel, name: str) -> None:
        random = kernel.random
        self.name = name
        self.host = Host(
            kernel, name, drift_ppm=random.randrange(-200, 200), clock_start_us=random.randrange(10**6, 10**12)
        )
        self.process = Process(self.host, name)
        self.process.is_alive = False
        self.is_powered = True
        self.lives = 0

    def power_lost(self, *, forgets_all: bool) -> int:
        """What was not synced goes; returns how many bytes of the log or the journal."""
        raise NotImplementedError

    def mend(self) -> None:
        """The disk works as it should."""
        raise NotImplementedError
