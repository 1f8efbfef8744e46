"""
Host names without blocking: the raft thread asks, a thread of its own finds out.

Rule: a dial gets the address that is known at once, and has the name asked for again, at most every ``ASKED_SECONDS``:
a dead name server does not cut links that could be made, and a peer that moved is found within seconds (S53).
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from collections.abc import Callable

ASKED_SECONDS = 5.0


class Resolver:
    """A cache of addresses by host name; ``__call__`` never blocks."""

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._known: dict[str, str] = {}
        self._asked_at: dict[str, float] = {}

    def __call__(self, host: str) -> str | None:
        """The address of ``host``; None if it is not known yet."""
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            pass
        now = self._clock_s()
        if now - self._asked_at.get(host, -ASKED_SECONDS) >= ASKED_SECONDS:
            self._asked_at[host] = now
            threading.Thread(target=self._ask, args=(host,), name="raft-resolver", daemon=True).start()
        return self._known.get(host)

    def _ask(self, host: str) -> None:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError:
            return  # the old address stays: it is the best that is known
        self._known[host] = str(found[0][4][0])
