"""
Host names without blocking: the raft thread asks, a thread of its own finds out.

Rule: an address counts for ``FRESH_SECONDS``; a stale one is used on while it is asked for again, so that a dead name
server does not cut links that could be made.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time

FRESH_SECONDS = 30.0
RETRY_SECONDS = 5.0


class Resolver:
    """A cache of addresses by host name; ``__call__`` never blocks."""

    def __init__(self) -> None:
        """Nothing is known."""
        self._known: dict[str, str] = {}
        self._asked_at: dict[str, float] = {}

    def __call__(self, host: str) -> str | None:
        """The address of ``host``; None if it is not known yet."""
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            pass
        now = time.monotonic()
        pause = FRESH_SECONDS if host in self._known else RETRY_SECONDS
        if now - self._asked_at.get(host, -pause) >= pause:
            self._asked_at[host] = now
            threading.Thread(target=self._ask, args=(host,), name="raft-resolver", daemon=True).start()
        return self._known.get(host)

    def _ask(self, host: str) -> None:
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
        except OSError:
            return
        self._known[host] = str(found[0][4][0])
