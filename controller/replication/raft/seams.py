"""
Everything in this package that is not determined by its inputs, in one value.

Here: the real clock, chance, exit and thread. Not here: simulated ones (``tests/support/raft_seams.py``).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.replication.raft.failstop import FailStopPort, exit_process
from rollcall_ha.controller.replication.raft.snapshot import run_on_thread


class Seams(Frozen):
    """Clock, chance, the end of the process, and work beside the raft thread."""

    monotonic_ns: Callable[[], int] = time.monotonic_ns
    random: Callable[[], float] = random.SystemRandom().random
    """From [0, 1): spreads election timeouts."""
    fail_stop: FailStopPort = exit_process
    run_beside: Callable[[Callable[[], None]], None] = run_on_thread
