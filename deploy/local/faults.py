"""
Faults that the demo, chaos and the benches do to a fleet from outside.

Here: combinations of signals whose order matters. Not here: single signals (``fleet``), what is expected afterwards.
Rule: nothing here speaks to the processes or to the controllers about the fault.
"""

from __future__ import annotations

import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

from deploy.local.fleet import Fleet
from node.config import split_address

GONE_DEADLINE_S = 5.0


def kill_and_see(fleet: Fleet, name: str) -> int:
    """
    SIGKILL for a broker, observed from outside like any client would.

    Returns:
        CLOCK_MONOTONIC in ns when the kernel had closed its connections. That is some ms after the signal: first the
        kernel takes the mapped log apart. Nobody could have noticed the fault before.
    """
    address = split_address(fleet.file.broker(name).listen)
    with socket.create_connection(address, timeout=GONE_DEADLINE_S) as witness:
        fleet.processes.signal(name, signal.SIGKILL)
        with suppress(ConnectionError):
            while witness.recv(4096):
                pass
        seen_at_ns = time.monotonic_ns()
    fleet.processes.wait_gone(name, deadline_s=GONE_DEADLINE_S)
    return seen_at_ns


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


def kill_ahead_of_slaves(fleet: Fleet, master: str, slaves: Sequence[str], is_ahead: Callable[[], None]) -> None:
    """
    The slaves hang while producers push; the master dies with a tail that only it has; the slaves wake up.

    What the kernel had taken for the slaves before, they still get: so the tail has to be longer than socket buffers.

    Args:
        fleet: The fleet.
        master: Who dies.
        slaves: Who hangs.
        is_ahead: Pushes, and returns once the master has appended more than the buffers hold.
    """
    with hanging(fleet, slaves):
        is_ahead()
        fleet.kill(master)
