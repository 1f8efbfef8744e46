"""
Both ends of this replica's HA links: the address that slaves dial, and the dialler to a master.

Here: opening them for the id and the fleet that the controllers gave. Not here: links (``ha.service``), the master to
follow (``broker.core.role``).
Rule 1: the address is bound by one opening at a time; of the sessions that open meanwhile the newest one is reported.
Rule 2: a view that comes meanwhile is reported behind its session.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rollcall_ha.broker.config import BrokerConfig
from rollcall_ha.broker.following import Following
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.parts import Parts
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, LogOffset
from rollcall_ha.controller.contract.replies import Registered, SetView
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.ha.catch_up import CatchUpLimits, CatchUpPacer
from rollcall_ha.ha.links import LinkSettings, ReplicaIdentity
from rollcall_ha.ha.ports import MasterLinkEvents
from rollcall_ha.ha.service import HaClient, HaServer, link_table
from rollcall_ha.ha.transport import MasterConnection
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.remoting.links import LinkTable
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.node.tls import Credentials


class _Ends(Frozen):
    """Both ends, for one identity."""

    identity: ReplicaIdentity
    server: HaServer
    client: HaClient


class HaEnds:
    """One per process. On the loop."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        incarnation: Incarnation,
        log: CommitLog,
        parts: Parts,
        as_master: MasterLinkEvents,
        as_slave: Following,
        opened: Callable[[Registered, SetView | None], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """``opened`` is told the session and the view that waited for it; ``failed`` that the address is not ours."""
        self._peers = None if parts.credentials is None else _brokers_of(config, parts.credentials)
        self.links: LinkTable[MasterConnection] = link_table(self._peers)
        """The links of the HA address; its counters outlive a change of identity."""
        self._config = config
        self._timing = config.timing
        self._catch_up = config.catch_up
        self._settings = LinkSettings(
            heartbeat_interval_ms=config.timing.heartbeat_interval_ms,
            idle_timeout_ms=config.timing.heartbeat_timeout_ms,
            handshake_timeout_ms=config.timing.session_rpc_timeout_ms,
        )
        self._shortening: asyncio.TimerHandle | None = None
        self._incarnation = incarnation
        self._log = log
        self._parts = parts
        self._as_master = as_master
        self._as_slave = as_slave
        self._opened = opened
        self._failed = failed
        self._ends: _Ends | None = None
        self._opening: Registered | None = None
        """Told when the address is open for it; None = nothing is being opened."""
        self._held_view: SetView | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def server(self) -> HaServer:
        """For slaves. Only behind ``opened``."""
        assert self._ends is not None, "a session came first"
        return self._ends.server

    @property
    def pacer(self) -> CatchUpPacer | None:
        """The copies to slaves; None before the first session."""
        return None if self._ends is None else self._ends.server.pacer

    @property
    def copies(self) -> list[tuple[BrokerId, LogOffset]]:
        """Slaves on links, and from where on the log may have to be sent to each."""
        return [] if self._ends is None else self._ends.server.copies

    def let_go(self, start: LogOffset) -> None:
        """Links end that were sending what is deleted."""
        if self._ends is not None:
            self._ends.server.let_go(start)

    def session_opened(self, registered: Registered) -> None:
        """Open both ends for its identity; ``opened`` follows, at once if they are open."""
        if self._opening is not None:
            self._opening = registered
        elif self._serves(registered):
            self._opened(registered, None)
        else:
            self._opening = registered
            self._task = asyncio.get_running_loop().create_task(self._open())
            self._task.add_done_callback(self._finished)

    def retime(self, timing: Timing) -> None:
        """Other durations are in force, for links that are open, too."""
        self._timing, settings = timing, self._settings
        settings.heartbeat_interval_ms = timing.heartbeat_interval_ms
        settings.handshake_timeout_ms = timing.session_rpc_timeout_ms
        if self._ends is not None:
            self._ends.client.retime(timing.reconnect_delay_ms, timing.reconnect_delay_ms_max)
        if self._shortening is not None:
            self._shortening.cancel()
        # The other end hears of its shorter interval a moment later than we: judged by the shorter timeout at once, a
        # healthy link would break between two of its heartbeats, and sends wait for the member meanwhile.
        if timing.heartbeat_timeout_ms < settings.idle_timeout_ms:
            loop = asyncio.get_running_loop()
            self._shortening = loop.call_later(timing.heartbeat_timeout_ms / 1000, self._shorten)
        else:
            self._shorten()

    def limit(self, limits: CatchUpLimits) -> None:
        """Other limits of copies are in force."""
        self._catch_up = limits
        if self._ends is not None:
            self._ends.server.pacer.limit(limits, self._parts.now_ms())

    def _shorten(self) -> None:
        self._settings.idle_timeout_ms = self._timing.heartbeat_timeout_ms

    def holds_back(self, view: SetView) -> bool:
        """Whether ``view`` waits for its session (rule 2)."""
        if self._opening is None:
            return False
        self._held_view = view
        return True

    async def stop(self) -> None:
        """Every link is closed on return."""
        if self._shortening is not None:
            self._shortening.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._close()

    async def _close(self) -> None:
        if self._ends is not None:
            await self._ends.client.stop()
            await self._ends.server.stop()

    def _identity_in(self, registered: Registered) -> ReplicaIdentity:
        return ReplicaIdentity(
            set_key=self._config.set_key,
            fleet_incarnation=registered.view.fleet_incarnation,
            broker_id=registered.broker_id,
            incarnation=self._incarnation,
        )

    def _serves(self, registered: Registered) -> bool:
        return self._ends is not None and self._ends.identity == self._identity_in(registered)

    async def _open(self) -> None:
        assert self._opening is not None, "somebody asked"
        # Asked again after each opening: a session with a controller of another founding may have opened meanwhile, and
        # links that name the old fleet would be refused by every peer.
        while not self._serves(registered := self._opening):
            await self._replace(self._identity_in(registered))
        self._opening = None
        held, self._held_view = self._held_view, None
        self._opened(registered, held)

    async def _replace(self, identity: ReplicaIdentity) -> None:
        await self._close()
        timing = self._timing
        server = HaServer(
            identity=identity,
            log=self._log,
            events=self._as_master,
            settings=self._settings,
            clock_ms=self._parts.now_ms,
            links=self.links,
            slaves=self._peers,
            catch_up=self._catch_up,
        )
        client = HaClient(
            identity=identity,
            log=self._log,
            events=self._as_slave,
            settings=self._settings,
            reconnect_delay_ms=timing.reconnect_delay_ms,
            reconnect_delay_ms_max=timing.reconnect_delay_ms_max,
            clock_ms=self._parts.now_ms,
            wall_ms=self._parts.wall_ms,
            masters=self._peers,
        )
        await server.start(*self._config.ha)
        self._ends = _Ends(identity=identity, server=server, client=client)
        self._as_slave.client = client

    def _finished(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(error)


def _brokers_of(config: BrokerConfig, credentials: Credentials) -> ExpectedPeer:
    """The other replicas of the own set."""
    return ExpectedPeer(credentials=credentials, kinds=frozenset({PeerKind.BROKER}), set_key=str(config.set_key))
