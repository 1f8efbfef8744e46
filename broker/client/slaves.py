"""
Links to the slaves of one set, for queues whose next pull its master has sent there.

Here: dialling them by the route, and what follows when one fails. Not here: which replica is named (the broker's
``consuming.reads_core``), which queue goes there (``consumer``), the link to the master (``sets``).

Rule: a slave is read from and asked for nothing else; while it cannot be, its readers are the master's.
"""

from __future__ import annotations

import asyncio
from typing import Final

from rollcall_ha.broker.client.routes import CONNECT_TIMEOUT_MS, RouteWatcher
from rollcall_ha.node.remoting.asking import TOOL_LIMITS, dial
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingError
from rollcall_ha.node.remoting.secured import ExpectedPeer

MASTER: Final = 0
"""The id by which an answer to a pull names it."""
FAILED_MS: Final = 5_000
"""After its link has failed, a slave is left alone for so long."""
_FAULTS = (OSError, TimeoutError, RemotingError, ValueError)


class SlaveLinks:
    """One link to each slave that was named. Runs on the loop of its consumer."""

    def __init__(self, routes: RouteWatcher, expected: ExpectedPeer | None) -> None:
        """``routes`` are those of the set; nothing is dialled yet."""
        self._routes = routes
        self._expected = expected
        self._links: dict[str, RemotingConnection] = {}
        self._failed_s: dict[str, float] = {}
        self._dialling = asyncio.Lock()

    async def to(self, broker_id: int) -> RemotingConnection | None:
        """The link to this slave; None: it is the master, it is not in the route, or it does not answer."""
        route = self._routes.route
        if route is None or broker_id in (MASTER, route.master):
            return None
        address = next((each.address for each in route.replicas if each.broker_id == broker_id), None)
        # All queues of a set are sent to the same slave: each of them would dial it.
        async with self._dialling:
            return None if address is None else await self._link_to(address)

    async def _link_to(self, address: str) -> RemotingConnection | None:
        link, now_s = self._links.get(address), asyncio.get_running_loop().time()
        if link is not None and link.is_open:
            return link
        # The master names it until it finds out itself: a dead one would be dialled for a second in front of each pull.
        if self._links.pop(address, None) is not None:
            self._failed_s[address] = now_s
        if now_s - self._failed_s.get(address, float("-inf")) < FAILED_MS / 1000:
            return None
        try:
            link = await dial(address, timeout_ms=CONNECT_TIMEOUT_MS, limits=TOOL_LIMITS, expected=self._expected)
        except _FAULTS:
            self._failed_s[address] = asyncio.get_running_loop().time()
            return None
        self._links[address] = link
        return link

    def close(self) -> None:
        """Close all links: a pull that waits for its answer raises ``RemotingError``."""
        for link in self._links.values():
            link.close("the consumer ends")
        self._links.clear()
