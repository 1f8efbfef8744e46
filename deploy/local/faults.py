"""
Faults that the demo, chaos and the benches do to a fleet from outside.

Here: combinations of signals whose order matters. Not here: single signals (``fleet``), what is expected afterwards.
Rule: nothing here speaks to the processes or to the controllers about the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from deploy.local.fleet import Fleet


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
