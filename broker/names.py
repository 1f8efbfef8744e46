"""
The links of this broker to the controllers' name services: it tells them that it is there, and its topics, and asks
them for routes.

Here: when they are told, the links to them, routes over all sets. Not here: what they answer
(``api.rocketmq.names``), the topics (``broker.consuming.topics``), the session with the leading controller
(``broker.session``).

Rule 1: every controller is told, on a link of its own, as RocketMQ's brokers tell name servers (103): each answers
routes by itself, also while nobody leads.
Rule 2: a table is told when it has changed, and when a controller does not have it: each is asked by version (322)
every ``RENEW_MS``. A controller that is away costs a dial every ``RETRY_MS`` and nothing else.
Rule 3: no table is made while this replica does not know all of its topics: taken as whole, it would take the others
out of all routes. The last one is told meanwhile, and of a process that has none only that it is there.
Rule 4: who is the master is the controllers' own word. What a broker says of its role only orders their questions.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from rollcall_ha.broker.config import BrokerConfig
from rollcall_ha.broker.consuming.topics import TopicList, Topics
from rollcall_ha.broker.handlers.ports import Gate
from rollcall_ha.broker.protocol.codes import ClientCode
from rollcall_ha.broker.protocol.routes import RouteError, decode_topic_route
from rollcall_ha.broker.protocol.topics import data_version, topic_table
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.config import ConfigError
from rollcall_ha.node.remoting.asking import TOOL_LIMITS, AskingOnly, dial
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingError
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.node.telemetry import get_logger
from rollcall_ha.node.tls import Credentials

REGISTER_BROKER: Final = 103
QUERY_DATA_VERSION: Final = 322
LOOK_MS: Final = 250
"""How old a change of topics may be before it is seen; the look itself compares a few numbers."""
SELF_MADE_MS: Final = 2_000
"""Between two looks for topics that came by themselves: each makes all of the table again, for every controller."""
RENEW_MS: Final = 30_000
RETRY_MS: Final = 3_000
ANSWER_MS: Final = 3_000
ROUTE_MS_MAX: Final = 500
"""For the route of one topic: a client that waits for it asks again after 1 s."""
CONTROLLERS_MAX: Final = 16
_MASTER_ROLE: Final = 0
_CRC_MASK: Final = 0x7FFFFFFF
_UNKNOWN: Final = TopicList(rows={}, is_whole=False)

_log = get_logger("names")
_encode = msgspec.json.Encoder().encode


class _Table(msgspec.Struct, frozen=True):
    """One registration."""

    version: Mapping[str, int]
    fields: Mapping[str, str]
    body: bytes


class _Link(AskingOnly):
    """One controller's link, as far as its owner waits at it."""

    def __init__(self) -> None:
        self.connection: RemotingConnection | None = None
        """None: it is not up."""
        self.news = asyncio.Event()
        """The table is another one, or the link is gone."""

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        super().disconnected(connection, reason)
        self.connection = None
        self.news.set()


class Names:
    """Keeps all controllers told. On the loop."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        topics: Topics,
        gate: Gate,
        broker_id: Callable[[], BrokerId | None],
        controllers: Callable[[], tuple[str, ...]],
        credentials: Credentials | None,
        wall_ms: Callable[[], int],
    ) -> None:
        """``controllers``: their broker ports, as far as they are known."""
        self._config = config
        self._topics = topics
        self._gate = gate
        self._broker_id = broker_id
        self._controllers = controllers
        self._credentials = credentials
        self._wall_ms = wall_ms
        self._since_ms = wall_ms()
        self._changes = 0
        self._stamp: tuple[object, object] = (None, None)
        self._table: _Table | None = None
        self._looked_s = 0.0
        self._links: dict[str, _Link] = {}
        self._told: dict[str, asyncio.Task[None]] = {}
        self._reasons: dict[str, str] = {}
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._looking = asyncio.create_task(self._look_on())

    async def stop(self) -> None:
        tasks = [*self._told.values(), *([] if self._looking is None else [self._looking])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def read_queues(self, topic: str) -> Mapping[str, int] | None:
        """How many queues of a topic each set has to read, by a controller's route; None: none tells it now."""
        for connection in [each.connection for each in self._links.values() if each.connection is not None]:
            with contextlib.suppress(RemotingError, RouteError):
                fields = {"topic": topic}
                answer = await connection.request(
                    ClientCode.GET_ROUTE_BY_TOPIC, ext_fields=fields, timeout_ms=ROUTE_MS_MAX
                )
                if answer.code == SystemCode.SUCCESS:
                    return decode_topic_route(answer.body).read_queues
        return None

    # --- what is told ------------------------------------------------------------------------------------------------

    async def _look_on(self) -> None:
        while True:
            self._look()
            wanted = self._controllers()[:CONTROLLERS_MAX]
            for address in [each for each in self._told if each not in wanted]:
                self._told.pop(address).cancel()
            for address in wanted:
                if address not in self._told:
                    self._told[address] = asyncio.create_task(self._keep(address))
            await asyncio.sleep(LOOK_MS / 1000)

    def _look(self) -> None:
        """The table, if it may be another one than was told last."""
        broker_id, now_s = self._broker_id(), asyncio.get_running_loop().time()
        if broker_id is None:
            return
        state = self._gate.state
        role = _MASTER_ROLE if state.is_serving or state.is_draining else broker_id
        ordered, self_made = self._topics.stamp
        stamp = (role, state.master_epoch, ordered), self_made
        if stamp[0] == self._stamp[0]:
            # Equal stamps are equal topics, as a rule; if once they were not, the mistake ends here.
            rest_ms = RENEW_MS if stamp == self._stamp else SELF_MADE_MS
            if now_s - self._looked_s < rest_ms / 1000:
                return
        is_known = self._topics.follow()
        if not is_known and self._table is not None:
            return
        if is_known:
            self._stamp, self._looked_s = stamp, now_s
        table = self._registration(role, is_known=is_known)
        if self._table is None or table.body != self._table.body or table.fields != self._table.fields:
            self._changes += 1
            self._table = self._registration(role, is_known=is_known)
            for link in self._links.values():
                link.news.set()

    def _registration(self, role: int, *, is_known: bool) -> _Table:
        config = self._config
        topics = self._topics.all() if is_known else _UNKNOWN
        version = data_version(self._changes, self._gate.state.master_epoch, self._since_ms)
        wrapper = topic_table(topics.rows, version)
        body = _encode({"filterServerList": [], "topicConfigSerializeWrapper": wrapper})
        fields = {
            "bodyCrc32": str(zlib.crc32(body) & _CRC_MASK),
            "brokerAddr": config.description.address,
            "brokerId": str(role),
            "brokerName": str(config.set_key.name),
            "clusterName": str(config.set_key.cluster),
            "compressed": "false",
            "enableActingMaster": "false",
            "haServerAddr": config.description.ha_address,
            # A topic that was deleted is left out: taken as an addition, as RocketMQ's are, it would stay in routes.
            "isWhole": str(topics.is_whole).lower(),
        }
        return _Table(version, fields, body)

    # --- one controller ----------------------------------------------------------------------------------------------

    async def _keep(self, address: str) -> None:
        while True:
            try:
                await self._tell_on(address)
            except (OSError, TimeoutError, RemotingError, ConfigError) as error:
                reason = f"{type(error).__name__}: {error}"
                if self._reasons.get(address) != reason:
                    _log.warning("names_not_told", controller=address, reason=reason)
                self._reasons[address] = reason
            await asyncio.sleep(RETRY_MS / 1000)

    async def _tell_on(self, address: str) -> None:
        """Keep one controller told. Raises what ended the link, or why it does not take the table."""
        credentials, expected, shown = self._credentials, None, ""
        if credentials is not None:
            expected = ExpectedPeer(credentials=credentials, kinds=frozenset({PeerKind.CONTROLLER}))
            shown = credentials.own.serial
        own = self._links[address] = _Link()
        link = await dial(address, own, timeout_ms=ANSWER_MS, limits=TOOL_LIMITS, expected=expected)
        own.connection = link
        told: _Table | None = None
        try:
            # Its certificate was judged when it was dialled, and ours was the newest.
            while credentials is None or credentials.own.serial == shown:
                proved = link.certificate
                ended = credentials.no_longer(proved, self._wall_ms()) if credentials and proved else None
                if ended is not None:
                    raise RemotingError(str(ended))
                own.news.clear()
                table = self._table
                if table is not None and (table is not told or await self._is_missing(link, table)):
                    await self._ask(link, REGISTER_BROKER, table.fields, table.body)
                    told = table
                    if self._reasons.pop(address, None) is not None:
                        _log.info("names_told", controller=address)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RENEW_MS / 1000):
                        await own.news.wait()
        finally:
            link.close("no more is told on this link")

    async def _is_missing(self, link: RemotingConnection, table: _Table) -> bool:
        fields = {name: table.fields[name] for name in ("brokerAddr", "brokerId", "brokerName", "clusterName")}
        answer = await self._ask(link, QUERY_DATA_VERSION, fields, _encode(table.version))
        return answer.get("changed") == "true"

    async def _ask(
        self, link: RemotingConnection, code: int, fields: Mapping[str, str], body: bytes
    ) -> Mapping[str, str]:
        answer = await link.request(code, body=body, ext_fields=dict(fields), timeout_ms=ANSWER_MS)
        if answer.code != SystemCode.SUCCESS:
            raise RemotingError(f"code {answer.code} to {code}: {answer.remark}")
        return answer.ext_fields or {}
