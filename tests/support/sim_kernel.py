"""
One scheduler, one random source, one trace: the ground of the simulation.

Here: virtual time, hosts with clocks that drift, processes that pause, die and start again, counters. Not here: networks
(``sim_net``), disks (``sim_disk``), anything of ours (``tests.sim``).
Rule 1: all that is random comes from ``Kernel.random``; all that waits is on ``Kernel``'s heap, ordered by (time, number).
Rule 2: nothing iterates a set or depends on ``hash()`` of a string, so that a seed gives one trace under every hash seed.
Rule 3: what a dead process had scheduled never runs; what a paused one had scheduled runs when it wakes, in order.
"""

from __future__ import annotations

import hashlib
import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

MS = 1_000
"""Microseconds in a millisecond: the kernel counts in microseconds."""

SECOND = 1_000_000


class SimulationStalled(Exception):
    """More events than the limit: some machine answers itself without time passing."""


class Died(BaseException):
    """Raised out of a call that a process does not survive. Not an ``Exception``: nobody in it may handle that."""


@dataclass(slots=True)
class Timer:
    """Something that will happen; ``cancel`` is idempotent."""

    label: str
    action: Callable[[], None] | None

    def cancel(self) -> None:
        """It will not happen."""
        self.action = None


@dataclass(slots=True)
class Counts:
    """What happened, by name. A name that was declared but stayed zero over all seeds fails the run."""

    by_name: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, amount: int = 1) -> None:
        """Count ``amount`` more of ``name``."""
        self.by_name[name] = self.by_name.get(name, 0) + amount

    def merge(self, other: Counts) -> None:
        """Add everything of ``other``."""
        for name, amount in other.by_name.items():
            self.add(name, amount)

    def __getitem__(self, name: str) -> int:
        return self.by_name.get(name, 0)


class Kernel:
    """Virtual time. ``after_each`` runs after every event: that is where invariants are checked."""

    def __init__(self, seed: int, *, keep_lines: bool = False) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.now_us = 0
        self.steps = 0
        self.counts = Counts()
        self.lines: deque[str] = deque(maxlen=None if keep_lines else 400)
        self.after_each: Callable[[], None] = _nothing
        self.running: Process | None = None
        """The process whose code runs now."""
        self._heap: list[tuple[int, int, Timer]] = []
        self._number = 0
        self._digest = hashlib.blake2b(digest_size=16)

    def at(self, when_us: int, label: str, action: Callable[[], None]) -> Timer:
        """Run ``action`` at ``when_us``, or now if that has passed."""
        timer = Timer(label, action)
        self._number += 1
        heapq.heappush(self._heap, (max(when_us, self.now_us), self._number, timer))
        return timer

    def after(self, delay_us: int, label: str, action: Callable[[], None]) -> Timer:
        """Run ``action`` ``delay_us`` from now."""
        return self.at(self.now_us + delay_us, label, action)

    def note(self, text: str) -> None:
        """Put a fact into the trace: equal seeds must give equal facts at equal times."""
        line = f"{self.now_us} {text}"
        self._digest.update(line.encode())
        self.lines.append(line)

    @property
    def trace_hash(self) -> str:
        """Hash of all that was noted and run so far."""
        return self._digest.hexdigest()

    def run_until(
        self, deadline_us: int, *, steps_max: int = 2_000_000, stop: Callable[[], bool] | None = None
    ) -> bool:
        """
        Run up to ``deadline_us``; True if ``stop`` became true before.

        Raises:
            SimulationStalled: ``steps_max`` events were not enough.
        """
        limit = self.steps + steps_max
        heap, pop, update = self._heap, heapq.heappop, self._digest.update
        while heap and heap[0][0] <= deadline_us:
            when_us, number, timer = heap[0]
            action = timer.action
            if action is None:
                pop(heap)
                continue
            if stop is not None and stop():
                return True
            if self.steps >= limit:
                raise SimulationStalled(f"{steps_max} events before {deadline_us} us; last: {list(self.lines)[-3:]}")
            pop(heap)
            timer.action = None
            self.now_us = when_us
            self.steps += 1
            update(f"{when_us} {number} {timer.label}".encode())
            action()
            self.after_each()
        self.now_us = max(self.now_us, deadline_us)
        return stop is not None and stop()

    def chance(self, probability: float) -> bool:
        """True with ``probability``."""
        return self.random.random() < probability

    def hex_digits(self, count: int = 32) -> str:
        """A name that nobody else has, with overwhelming probability."""
        return f"{self.random.getrandbits(4 * count):0{count}x}"


def _nothing() -> None:
    """No check."""


class Host:
    """A machine: its boot id changes with a power loss, its clock runs a little fast or slow, and its wall clock may jump."""

    def __init__(self, kernel: Kernel, name: str, *, drift_ppm: int = 0, clock_start_us: int = 0) -> None:
        self.kernel = kernel
        self.name = name
        self.drift_ppm = drift_ppm
        self.wall_offset_us = 0
        self.boot_id = kernel.hex_digits()
        self._clock_start_us = clock_start_us

    def monotonic_us(self) -> int:
        """What this machine's monotonic clock shows; never falls, also not over a reboot."""
        return self._clock_start_us + self.kernel.now_us + self.kernel.now_us * self.drift_ppm // 1_000_000

    def wall_ms(self) -> int:
        """What this machine thinks UTC is."""
        return 1_800_000_000_000 + (self.kernel.now_us + self.wall_offset_us) // MS

    def real_delay_us(self, local_us: int) -> int:
        """How long ``local_us`` of this machine's clock really take, rounded up: a timer never fires early."""
        return local_us * 1_000_000 // (1_000_000 + self.drift_ppm) + 1

    def reboot(self) -> None:
        """Power was lost: what had not been synced is ``SimDisk``'s business."""
        self.boot_id = self.kernel.hex_digits()


class Process:
    """One life of a program on a host."""

    def __init__(self, host: Host, name: str) -> None:
        self.host = host
        self.name = name
        self.kernel = host.kernel
        self.is_alive = True
        self.is_paused = False
        self.on_idle: Callable[[], None] | None = None
        """Called when an action is done: a loop takes its turn."""
        self.life: Any = None
        """The program that runs in it."""
        self._waiting: deque[tuple[str, Callable[[], None]]] = deque()
        self._at_exit: list[Callable[[], None]] = []

    def after(self, local_delay_us: int, label: str, action: Callable[[], None]) -> Timer:
        """Run ``action`` in this process after ``local_delay_us`` of its own clock."""
        delay_us = self.host.real_delay_us(local_delay_us) if local_delay_us > 0 else 0
        return self.kernel.after(delay_us, label, lambda: self.run(label, action))

    def run(self, label: str, action: Callable[[], None]) -> None:
        """Run ``action`` in this process: now, when it wakes, or never."""
        if not self.is_alive:
            return
        if self.is_paused:
            self._waiting.append((label, action))
            return
        kernel = self.kernel
        outer, kernel.running = kernel.running, self
        try:
            action()
            if self.on_idle is not None and self.is_alive:
                self.on_idle()
        except Died:
            if self.is_alive:
                raise
        finally:
            kernel.running = outer

    def at_exit(self, action: Callable[[], None]) -> None:
        """The operating system does this when the process is gone, however it went."""
        self._at_exit.append(action)

    def pause(self) -> None:
        """SIGSTOP."""
        if self.is_alive:
            self.is_paused = True

    def resume(self) -> None:
        """SIGCONT: what arrived meanwhile is handled now, in order."""
        if not self.is_alive or not self.is_paused:
            return
        self.is_paused = False
        waiting, self._waiting = self._waiting, deque()
        for label, action in waiting:
            self.kernel.after(0, label, lambda label=label, action=action: self.run(label, action))  # type: ignore[misc]

    def kill(self) -> None:
        """SIGKILL, or the end of a power supply."""
        if not self.is_alive:
            return
        self.is_alive = False
        self._waiting.clear()
        actions, self._at_exit = self._at_exit, []
        for action in actions:
            action()
