"""
The broker sets of a consumer's topics, and the links to the replicas of each: to its master, to slaves that it names.

Here: asking seeds which sets and queues a topic has, whether a set is ours or RocketMQ's, following its master. Not
here: the route of one set (``routes``), links to slaves (``slaves``), what is asked on a link (``consumer``).

Rule 1: seeds are brokers of ours, each of which knows its own set, or name servers. All are asked, and a set that one
of them tells is there.
Rule 2: a link is handed out when its broker has been greeted, and ends when the route names another master: who waits
for an answer on it hears so at once, and asks the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from rollcall_ha.broker.client.routes import CONNECT_TIMEOUT_MS, RouteWatcher
from rollcall_ha.broker.client.slaves import SlaveLinks
from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.consumers import NONSENSE
from rollcall_ha.broker.protocol.routes import decode_topic_route
from rollcall_ha.node.remoting.asking import TOOL_LIMITS, AskingOnly, dial
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingError
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.remoting.secured import ExpectedPeer

ANSWER_MS_MAX = 3_000
RETRY_DELAY_MS_MIN = 20
RETRY_DELAY_MS_MAX = 500
_FAULTS = (OSError, TimeoutError, RemotingError, ValueError)
"""``ConfigError`` of an address that a route tells, and ``RouteError``, are of the last kind."""


class FoundSet(msgspec.Struct):
    """One set that has queues of the topics that were asked for."""

    name: str
    addresses: tuple[str, ...]
    queue_counts: dict[str, int] = {}
    """Queues of each topic that may be read."""


async def find_sets(
    seeds: Sequence[str], topics: Sequence[str], expected: ExpectedPeer | None = None
) -> tuple[dict[str, FoundSet], list[str], set[str]]:
    """The sets by name, why seeds did not answer (rule 1), and topics that one of them says nobody has made."""
    told = await asyncio.gather(*(_ask(seed, topics, expected) for seed in seeds))
    found: dict[str, FoundSet] = {}
    for sets, _, _ in told:
        for name, one in sets.items():
            known = found.setdefault(name, one)
            known.addresses = tuple(dict.fromkeys((*known.addresses, *one.addresses)))
            known.queue_counts |= one.queue_counts
    return found, [trouble for _, trouble, _ in told if trouble], set().union(*(absent for *_, absent in told))


async def _ask(
    seed: str, topics: Sequence[str], expected: ExpectedPeer | None
) -> tuple[dict[str, FoundSet], str, set[str]]:
    found: dict[str, FoundSet] = {}
    absent: set[str] = set()
    trouble = ""
    try:
        link = await dial(seed, timeout_ms=CONNECT_TIMEOUT_MS, limits=TOOL_LIMITS, expected=expected)
        try:
            for topic in topics:
                fields = {"topic": topic}
                answer = await link.request(ClientCode.GET_ROUTE_BY_TOPIC, ext_fields=fields, timeout_ms=ANSWER_MS_MAX)
                if answer.code != SystemCode.SUCCESS:
                    trouble = trouble or f"{seed}: {answer.remark or f'code {answer.code}'}"
                    if answer.code == ClientResult.TOPIC_NOT_EXIST:
                        absent.add(topic)
                    continue
                data = decode_topic_route(answer.body)
                for name, count in data.read_queues.items():
                    route = data.of_set(name)
                    addresses = () if route is None else tuple(each.address for each in route.replicas)
                    found.setdefault(name, FoundSet(name, addresses)).queue_counts[topic] = count
        finally:
            link.close("it was asked")
    except _FAULTS as error:
        trouble = f"{seed}: {error or type(error).__name__}"
    # Of several topics a set may have one alone; a seed that tells a set is in no trouble.
    return found, "" if found else trouble, absent


async def is_ours(found: FoundSet, expected: ExpectedPeer | None = None) -> bool | None:
    """Whether the set's brokers tell their route to who watches it; None: none of them answers."""
    for address in found.addresses:
        try:
            link = await dial(address, timeout_ms=CONNECT_TIMEOUT_MS, limits=TOOL_LIMITS, expected=expected)
            try:
                answer = await link.request(ClientCode.WATCH_ROUTE, timeout_ms=ANSWER_MS_MAX)
            finally:
                link.close("it was asked")
        except _FAULTS:
            continue
        return answer.code == SystemCode.SUCCESS
    return None


class MasterLink(AskingOnly):
    """The link to the master of one set, whoever that is (rule 2)."""

    def __init__(
        self,
        routes: RouteWatcher,
        expected: ExpectedPeer | None,
        *,
        greet: Callable[[RemotingConnection], Awaitable[None]],
        on_news: Callable[[], None],
    ) -> None:
        """
        ``greet`` says who we are, and raises ``RemotingError`` or one of ``NONSENSE``. ``on_news`` hears that it has,
        and of changes of the group.
        """
        self._routes = routes
        self._expected = expected
        self._greet = greet
        self._on_news = on_news
        self.slaves = SlaveLinks(routes, expected)
        self._link: RemotingConnection | None = None
        self._is_up = asyncio.Event()

    @property
    def link(self) -> RemotingConnection | None:
        """None: there is none now."""
        return self._link

    async def wait(self) -> RemotingConnection:
        """The link, when there is one."""
        while self._link is None:
            await self._is_up.wait()
        return self._link

    async def run(self) -> None:
        """Follow the master until cancelled."""
        self._routes.start()
        delay_ms = RETRY_DELAY_MS_MIN
        try:
            while True:
                self._routes.moved.clear()
                address = None if self._routes.route is None else self._routes.route.master_address
                if address is not None and await self._serve(address):
                    delay_ms = RETRY_DELAY_MS_MIN
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(delay_ms / 1000):
                        await self._routes.moved.wait()
                delay_ms = min(2 * delay_ms, RETRY_DELAY_MS_MAX)
        finally:
            self.slaves.close()
            await self._routes.stop()

    async def _serve(self, address: str) -> bool:
        """One link, until it ends or the master is another; whether there was one."""
        try:
            link = await dial(address, self, timeout_ms=CONNECT_TIMEOUT_MS, limits=TOOL_LIMITS, expected=self._expected)
        except _FAULTS:
            return False
        try:
            await self._greet(link)
            if not link.is_open:
                return False
            self._link = link
            self._is_up.set()
            self._on_news()
            await self._until_ended(link, address)
        except (RemotingError, *NONSENSE):
            return False
        finally:
            self._link = None
            self._is_up.clear()
            link.close("its broker is not the master any more, or the consumer ends")
        return True

    async def _until_ended(self, link: RemotingConnection, address: str) -> None:
        while link.is_open:
            await self._routes.moved.wait()
            self._routes.moved.clear()
            route = self._routes.route
            if route is not None and route.master_address not in (None, address):
                self._routes.moved.set()
                return

    # --- FrameHandler ------------------------------------------------------------------------------------------------

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        """News of the group; whatever else RocketMQ's brokers ask their clients is not known here."""
        for frame in frames:
            if frame.code == ClientCode.NOTIFY_CONSUMER_IDS_CHANGED:
                self._on_news()
            remark = f"request type {frame.code} not supported"
            connection.respond(frame, SystemCode.REQUEST_CODE_NOT_SUPPORTED, remark=remark)

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:  # noqa: ARG002 (nobody asks for it)
        if connection is self._link:
            self._routes.moved.set()  # so that who waits for it looks
