"""
The client that keeps trying: one loop for every system, on a thread of its own.

Here: whom it asks next and when, stamps of acknowledgements. Not here: an attempt (each system's own).

Rule 1: one attempt at a time. After one that failed comes the next address, at once.
Rule 2: a pause is made after an acknowledgement, and when each address has failed once: without it the client would take
the core that the members need to agree.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rollcall_ha.deploy.local.processes import LauncherError, wait_until
from tests.perf.field.system import Client, RefusedError

PAUSE_MS = 2
END_S_MAX = 30.0


class Writer:
    """``with Writer(addresses, system.client) as writer: writer.wait_acks(...)``; ``acks`` grows meanwhile."""

    def __init__(self, addresses: Sequence[str], make: Callable[[], Client]) -> None:
        """``addresses``: the first one is asked first. ``make`` is called on the thread."""
        self.acks: list[tuple[int, str]] = []
        """When (CLOCK_MONOTONIC in ns) each came, and from where; rising."""
        self.attempts = 0
        self.failure = "no attempt was made"
        """What the last attempt that failed was told."""
        self._addresses, self._make = tuple(addresses), make
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._write, name="writer", daemon=True)
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        """Begin."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It has ended, and has no link left."""
        self._is_over.set()
        self._thread.join(END_S_MAX)

    def wait_acks(self, count: int, *, deadline_s: float) -> None:
        """Return when ``count`` more than now came. Raises ``LauncherError`` with what the last attempt was told."""
        goal = len(self.acks) + count

        def is_there() -> bool:
            self.check()
            return len(self.acks) >= goal

        try:
            wait_until(is_there, deadline_s=deadline_s, what=f"{goal} acks")
        except LauncherError as error:
            raise LauncherError(f"{error}; {len(self.acks)} came; the last failure: {self.failure}") from None

    def check(self) -> None:
        """Raises what ended the loop, if something did: no acknowledgement of such a client says anything."""
        if self._error is not None:
            raise LauncherError(f"the client ended: {self._error!r}") from self._error

    def _write(self) -> None:
        client = self._make()
        try:
            self._keep_trying(client)
        except BaseException as error:  # noqa: BLE001 (told by ``check`` on the thread that waits)
            self._error = error
        finally:
            client.close()

    def _keep_trying(self, client: Client) -> None:
        at = failed = 0
        while not self._is_over.is_set():
            address = self._addresses[at]
            self.attempts += 1
            try:
                client.attempt(address)
            except (RefusedError, OSError) as error:
                self.failure = f"{address}: {error or type(error).__name__}"
                at, failed = (at + 1) % len(self._addresses), failed + 1
                is_round = failed % len(self._addresses) == 0
            else:
                self.acks.append((time.monotonic_ns(), address))
                failed, is_round = 0, True
            if is_round:
                self._is_over.wait(PAUSE_MS / 1000)
