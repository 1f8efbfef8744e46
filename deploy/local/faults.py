"""
Faults that the demo, chaos and the benches do to a fleet from outside.

Here: combinations of signals whose order matters. Not here: single signals (``fleet``), the expected outcome (tests).
Rule: no function here speaks to the processes or to the controllers about the fault.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import DeadlineError, wait_until
from rollcall_ha.node.config import split_address

GONE_DEADLINE_S = 5.0
HANG_S_MAX = 1.5
"""Half of the shortest timeout of the ``normal`` preset: heartbeats and HA links count to 3 s."""
LOOK_BYTES = 64


def kill_and_see(fleet: Fleet, name: str) -> int:
    """
    SIGKILL for a broker, observed from outside like any client would.

    Returns:
        CLOCK_MONOTONIC in ns when the kernel had closed its connections. That is some ms after the signal: first the
        kernel takes the mapped log apart. Nobody could have noticed the fault before.
    """
    address = split_address(fleet.file.broker(name).listen)
    with fleet.on(name):  # a witness on the machine itself sees its death whatever the network does
        connection = socket.create_connection(address, timeout=GONE_DEADLINE_S)
    with connection as witness, _first_on_a_core():
        fleet.processes.signal(name, signal.SIGKILL)
        with suppress(ConnectionError):
            while witness.recv(4096):
                pass
        seen_at_ns = time.monotonic_ns()
    fleet.processes.wait_gone(name, deadline_s=GONE_DEADLINE_S)
    return seen_at_ns


@contextmanager
def _first_on_a_core() -> Iterator[None]:
    """
    Where it is allowed, this thread runs as soon as it can: at a death half a dozen processes wake up together, and a
    stopwatch in their queue is milliseconds late. It sleeps but for one reading of the clock.
    """
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    with suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


@contextmanager
def hanging(fleet: Fleet, names: Sequence[str]) -> Iterator[None]:
    """The named nodes hang (SIGSTOP) inside the block and go on after it; one that died meanwhile stays dead."""
    with ExitStack() as wake:
        for name in names:
            fleet.stop(name)
            wake.callback(_wake, fleet, name)
        yield


def _wake(fleet: Fleet, name: str) -> None:
    if fleet.pid(name) is not None:
        fleet.cont(name)


def kill_ahead_of_slaves(
    fleet: Fleet, master: str, slaves: Sequence[str], *, push: Callable[[], object], is_ahead: Callable[[], bool]
) -> bool:
    """
    The slaves hang while producers push; the master dies with a tail that only it has; the slaves wake up.

    Bytes in socket buffers still reach the slaves, so the tail has to be longer than the buffers.

    Args:
        fleet: The fleet.
        master: The broker that dies.
        slaves: Brokers that hang, for less than ``HANG_S_MAX``: slaves that hang longer leave the SyncStateSet, and
            then no broker but the master could be elected.
        push: Makes producers send a lot.
        is_ahead: Whether the master has appended more than the buffers hold.

    Returns:
        Whether the master was killed; if it did not get ahead in time, nothing has happened but a pause.
    """
    with hanging(fleet, slaves):
        push()
        try:
            wait_until(is_ahead, deadline_s=HANG_S_MAX, what=f"{master} to get ahead")
        except DeadlineError:
            return False
        fleet.kill(master)
        return True


def has_written(replica: Path, offset: int) -> bool:
    """Whether the log in a data directory has bytes of a record around ``offset``, by its raw files."""
    segments = sorted((replica / "commitlog").glob("[0-9]" * 20))
    holders = [path for path in segments if int(path.name) <= offset]
    if not holders:
        return False
    with holders[-1].open("rb") as file:
        file.seek(offset - int(holders[-1].name))
        return any(file.read(LOOK_BYTES))
