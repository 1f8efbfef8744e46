"""
The address of the master: watches on several brokers at once, the newest masterEpoch wins.

Every known replica and every seed is asked to answer when its route is newer than ours, so a master that hangs, or a
broker that is cut off, delays nobody.
Rule 1: a route replaces ours if its masterEpoch is higher, or if it is equal and the route names a master.
Rule 2: one link and one outstanding question per watched address, at most ``WATCHED_MAX`` addresses.
Rule 3: RocketMQ's name servers know neither watches nor epochs. They are asked again and again for a topic's route, at
once when its master is doubted, and the last answer that names a master counts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress

from rollcall_ha.broker.protocol.codes import ClientCode
from rollcall_ha.broker.protocol.routes import RouteError, RouteState, decode_route, decode_topic_route
from rollcall_ha.node.remoting.asking import dial
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingError
from rollcall_ha.node.remoting.names import addresses_of
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.node.tls import LOOK_INTERVAL_MS, Credentials

WATCHED_MAX = 8
WATCH_WAIT_MS = 5_000
CONNECT_TIMEOUT_MS = 1_000
RETRY_DELAY_MS = 100
NAMES_INTERVAL_MS = 2_000
NAMES_INTERVAL_MS_MIN = 100
"""The same while the master is doubted."""


async def renewing(credentials: Credentials) -> None:
    """Look every second for renewed files, until cancelled; ``credentials.complaint`` says why some are not taken."""
    while True:
        await asyncio.sleep(LOOK_INTERVAL_MS / 1000)
        # The certificate of the start would be refused from its end on. Links that show the old one are ended by the
        # broker then; a producer sends what was unanswered again.
        await asyncio.to_thread(credentials.renew_if_changed)


class RouteWatcher:
    """Keeps ``route`` current between ``start`` and ``stop``."""

    def __init__(
        self, seeds: Iterable[str], expected: ExpectedPeer | None = None, *, topic: str = "", set_name: str = ""
    ) -> None:
        """
        ``seeds``: host:port of any brokers of the set, or name servers of RocketMQ, which need ``topic`` and
        ``set_name``; ``expected`` None: an insecure fleet, links are plain.
        """
        self.route: RouteState | None = None
        """Newest known; None before the first answer."""
        self.moved = asyncio.Event()
        """Set whenever ``route`` is replaced; cleared by the waiter."""
        self.troubles: dict[str, str] = {}
        """By address: why it could not be asked the last time; nothing of one that answers."""
        self._seeds = tuple(seeds)
        self._expected = expected
        self._topic = topic
        self._set_name = set_name
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._doubted = asyncio.Event()

    def doubt(self) -> None:
        """The master did not answer as one: name servers are asked at once. Brokers of ours tell by themselves."""
        self._doubted.set()

    def start(self) -> None:
        """Begin to watch the seeds."""
        for address in self._seeds:
            self._watch(address)

    async def stop(self) -> None:
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def offer(self, route: RouteState) -> None:
        """Take ``route`` if it is newer (rule 1), and watch its replicas too."""
        known = self.route
        # A broker that is cut off still names the master of epoch 2. Taken after 3, its route would send the producer
        # back to a master that cannot ack, each time that broker answers.
        if known is not None and (
            route.master_epoch < known.master_epoch
            or (route.master_epoch == known.master_epoch and (route.master_address is None or route == known))
        ):
            return
        self.route = route
        self.moved.set()
        for replica in route.replicas:
            self._watch(replica.address)

    def _watch(self, address: str) -> None:
        if address not in self._tasks and len(self._tasks) < WATCHED_MAX:
            self._tasks[address] = asyncio.get_running_loop().create_task(self._run(address), name=f"watch {address}")

    async def _run(self, address: str) -> None:
        tries = 0
        while True:
            try:
                # A seed may be one name of all brokers of a set: another of its addresses each time.
                found = await addresses_of(address, first=tries, timeout_ms=CONNECT_TIMEOUT_MS)
                tries += 1
                link = await dial(found[0], timeout_ms=CONNECT_TIMEOUT_MS, expected=self._expected)
                try:
                    await self._follow(link, address)
                finally:
                    link.close("watch ends")
            except (OSError, TimeoutError, RemotingError, RouteError) as error:
                is_refused = isinstance(error, ConnectionRefusedError)
                self.troubles[address] = "connection refused" if is_refused else str(error) or "no answer in time"
                # This broker cannot tell; the watches of the others go on, and it is asked again.
                await asyncio.sleep(RETRY_DELAY_MS / 1000)

    async def _follow(self, link: RemotingConnection, address: str) -> None:
        wait_ms = 0
        while True:
            known = self.route.master_epoch if self.route is not None else -1
            has_master = self.route is not None and self.route.master is not None
            answer = await link.request(
                ClientCode.WATCH_ROUTE,
                ext_fields={
                    "masterEpoch": str(known),
                    "hasMaster": "true" if has_master else "false",
                    "waitMs": str(wait_ms),
                },
                timeout_ms=WATCH_WAIT_MS + CONNECT_TIMEOUT_MS,
            )
            self.troubles.pop(address, None)
            if answer.code == SystemCode.REQUEST_CODE_NOT_SUPPORTED and self._topic:
                await self._follow_names(link)
            route = decode_route(answer.body)
            self.offer(route)
            # From now on the broker holds its answer back until it knows more than we asked for: a loop of quick
            # answers would cost every broker a request per client and millisecond.
            wait_ms = WATCH_WAIT_MS

    async def _follow_names(self, link: RemotingConnection) -> None:
        """Rule 3, until cancelled."""
        while True:
            self._doubted.clear()
            answer = await link.request(
                ClientCode.GET_ROUTE_BY_TOPIC, ext_fields={"topic": self._topic}, timeout_ms=WATCH_WAIT_MS
            )
            # A topic that is not there, or a set that has left, says nothing about its master.
            if answer.code == SystemCode.SUCCESS:
                route = decode_topic_route(answer.body).of_set(self._set_name)
                if route is not None and route.master is not None and route != self.route:
                    self.route = route
                    self.moved.set()
            # Without this pause, doubts of each send would be a question each.
            await asyncio.sleep(NAMES_INTERVAL_MS_MIN / 1000)
            with suppress(TimeoutError):
                async with asyncio.timeout((NAMES_INTERVAL_MS - NAMES_INTERVAL_MS_MIN) / 1000):
                    await self._doubted.wait()
