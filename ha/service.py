"""
HA links of one broker: the address that slaves connect to, and the connection to the own master.

Here: accepting, dialling, reconnecting, one link per replica, timers. Not here: bytes on sockets (``transport``),
decisions (``master_link``, ``slave_link``), which acks count (``sync_state``, which the broker feeds by the events).

Rule 1: one link per replica; a newer one replaces the older one, which is told closed first (W10).
Rule 2: every link ends with its reign; a slave that comes before the reign waits for it (R12).
Rule 3: while the broker cuts its log or records an epoch for one link, no other link is dialled: two plans for one log
never overlap. A link for renewed certificates is shaken before, and speaks when the old one is closed.
All methods are called on the loop that runs the links. RocketMQ's protocols are recognised and closed with a clear
line in the log.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from msgspec.structs import replace

from rollcall_ha.controller.contract.ids import BrokerId, LogOffset, MasterEpoch
from rollcall_ha.epoch.model import NO_EPOCH
from rollcall_ha.ha.actions import (
    HigherEpochSeen,
    LinkReady,
    MasterAction,
    RecordEpoch,
    SlaveAcked,
    SlaveAction,
    SlaveLinkEvents,
    SlaveOpened,
    TruncateLog,
)
from rollcall_ha.ha.catch_up import COPY_ENDS_BYTES, CatchUpLimits, CatchUpPacer, Grant
from rollcall_ha.ha.channels import Channel, SecuredChannel, shaken
from rollcall_ha.ha.copies import LeftCopies
from rollcall_ha.ha.errors import ErrorCode
from rollcall_ha.ha.links import FollowTarget, LinkReign, LinkSettings, ReplicaIdentity
from rollcall_ha.ha.master_link import MasterLink, MasterLinkState
from rollcall_ha.ha.ports import MasterLinkEvents, ReplicaLog
from rollcall_ha.ha.renewal import RenewalClock
from rollcall_ha.ha.slave_link import SlaveLink, SlaveLinkState
from rollcall_ha.ha.transport import (
    HA_LIMITS,
    MasterConnection,
    SlaveConnection,
    monotonic_ms,
    open_channel,
    wall_clock_ms,
)
from rollcall_ha.node.certified import PeerRefused
from rollcall_ha.node.remoting.links import CloseCause, FewLines, LinkTable
from rollcall_ha.node.remoting.names import looked_up
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.node.telemetry import get_logger
from rollcall_ha.node.tls import tls_reason

TICK_MS = 50
ACCEPT_PAUSE_MS = 1_000
"""When the process has no descriptors left."""
REFUSAL_INTERVAL_S = 10.0
"""Between two lines about links that were refused."""
_BACKLOG_CONNECTIONS = 16

_log = get_logger("ha")


_ENDS_OF_THE_PEER = (CloseCause.PEER, CloseCause.PROBE, CloseCause.BROKEN)
"""Ends of a link that transferred which its other end made: said, closed, or reset."""
_MISBEHAVIOUR = (ErrorCode.PROTOCOL, ErrorCode.WRONG_PEER)
_REFUSALS = (CloseCause.TLS, CloseCause.CERTIFICATE, CloseCause.REVOKED, CloseCause.EXPIRED)
"""Ends for lack of a good certificate: the operator hears of them."""


class _Ticker:
    """Calls ``tick`` every ``TICK_MS`` until it is stopped."""

    def __init__(self, loop: asyncio.AbstractEventLoop, tick: Callable[[], None]) -> None:
        self._loop = loop
        self._tick = tick
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        if self._handle is None:
            self._handle = self._loop.call_later(TICK_MS / 1000, self._run)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _run(self) -> None:
        self._handle = None
        self.start()  # before the tick, which may stop it
        self._tick()


def link_table(peers: ExpectedPeer | None) -> LinkTable[MasterConnection]:
    """The links of an HA address; with TLS it closes those whose certificates are revoked or expire."""
    return LinkTable(HA_LIMITS, credentials=None if peers is None else peers.credentials)


class HaServer:
    """The master's side: an address, and one connection per slave."""

    def __init__(
        self,
        *,
        identity: ReplicaIdentity,
        log: ReplicaLog,
        events: MasterLinkEvents,
        settings: LinkSettings,
        clock_ms: Callable[[], int] = monotonic_ms,
        links: LinkTable[MasterConnection] | None = None,
        slaves: ExpectedPeer | None = None,
        catch_up: CatchUpLimits | None = None,
    ) -> None:
        """
        Nothing listens yet; ``start`` does. ``links`` counts on from the server before.

        ``slaves``: who may come; None: links are plain, and whoever comes is believed.
        """
        self.connections: LinkTable[MasterConnection] = link_table(slaves) if links is None else links
        self._identity = identity
        self._replica_log = log
        self._events = events
        self._settings = settings
        self._clock_ms = clock_ms
        self._reign: LinkReign | None = None
        self._confirm = LogOffset(0)
        self._generation = 0
        self._current: dict[BrokerId, MasterConnection] = {}
        self._listener: socket.socket | None = None
        self._ticker: _Ticker | None = None
        self._confirm_timer: asyncio.TimerHandle | None = None
        self._slaves = slaves
        self._refusals, self._ends = FewLines(REFUSAL_INTERVAL_S), FewLines(REFUSAL_INTERVAL_S)
        self.pacer, self._left = CatchUpPacer(catch_up or CatchUpLimits(), clock_ms()), LeftCopies()

    async def start(self, host: str, port: int) -> int:
        """Listen; port 0 = any. Returns the port. Raises ``OSError``."""
        loop = asyncio.get_running_loop()
        family, kind, protocol, _, address = (
            await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        )[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(_BACKLOG_CONNECTIONS)
            listener.setblocking(False)
        except OSError:
            listener.close()
            raise
        self._listener = listener
        self.connections.open()
        self._accept_on(listener, loop)
        self._ticker = _Ticker(loop, self._tick)
        self._ticker.start()
        bound: int = listener.getsockname()[1]
        return bound

    async def stop(self) -> None:
        """Close the address and all links."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener.fileno())
            self._listener.close()
            self._listener = None
        if self._ticker is not None:
            self._ticker.stop()
        if self._confirm_timer is not None:
            self._confirm_timer.cancel()
        for connection in self.connections.snapshot():
            connection.execute(connection.link.end(ErrorCode.STOPPING, "the broker stops"))
        self.connections.stop("the broker stops")

    def open_reign(self, reign: LinkReign, confirm: LogOffset) -> None:
        """This broker has entered the epoch: answer the slaves, those that wait already first."""
        if self._reign is not None:
            self.end_reign(f"masterEpoch {reign.master_epoch} begins")
        self._reign, self._confirm = reign, confirm
        now_ms = self._clock_ms()
        for connection in self.connections.snapshot():
            connection.execute(connection.link.reign_opened(reign, confirm, now_ms))

    def replicas_changed(self, reign: LinkReign) -> None:
        """A newer view of the reign: slaves that it names are answered, those whose incarnation has ended let go."""
        self._reign = reign
        now_ms = self._clock_ms()
        for connection in self.connections.snapshot():
            connection.execute(connection.link.replicas_changed(reign, self._confirm, now_ms))

    def end_reign(self, detail: str) -> None:
        """This broker left its epoch: every link of it ends before this returns (R12)."""
        self._reign = None
        for connection in self.connections.snapshot():
            connection.execute(connection.link.reign_ended(detail))

    @property
    def copies(self) -> list[tuple[BrokerId, LogOffset]]:
        """Each slave on a link, or back in a moment, and the first byte that may still have to be sent to it."""
        links = (connection.link for connection in self.connections.snapshot())
        # One that still cuts its log has acked nothing, and begins anywhere from our beginning on.
        states = (MasterLinkState.CUTTING, MasterLinkState.TRANSFER)
        here = [(one.peer.broker_id, one.acked) for one in links if one.peer is not None and one.state in states]
        return self._left.beside(here, self._clock_ms())

    def let_go(self, start: LogOffset) -> None:
        """The log begins at ``start`` now: links that were sending from in front of it end, and copy anew."""
        self._left.let_go(start)
        for connection in self.connections.snapshot():
            link = connection.link
            # What is on its way is read from a file that is about to be closed: its number may be another's then.
            if link.state is MasterLinkState.TRANSFER and link.acked < start:
                detail = f"an offset from {start} on: the disk is full, what this slave lacks is deleted"
                connection.execute(link.end(ErrorCode.OFFSET_UNSERVED, detail))

    def log_extended(self) -> None:
        """The log grew: send. Called once per batch of appends."""
        for connection in list(self._current.values()):
            if not connection.has_queue:
                connection.guarded_send()

    def confirm_moved(self, offset: LogOffset) -> None:
        """Slaves hear it with the next data, or after ``confirm_delay_ms``."""
        self._confirm = offset
        if self._confirm_timer is None and self._current:
            delay_s = self._settings.confirm_delay_ms / 1000
            self._confirm_timer = asyncio.get_running_loop().call_later(delay_s, self._tell_confirm)

    def _accept_on(self, listener: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        if self._listener is listener:
            loop.add_reader(listener.fileno(), self._accept, listener, loop)

    def _accept(self, listener: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        try:
            sock, address = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError as error:
            # No descriptor is left, and the connection still waits: without a pause the loop would come back to it at
            # once, for ever, and serve nobody.
            _log.warning("ha_accept_failed", error=str(error))
            loop.remove_reader(listener.fileno())
            loop.call_later(ACCEPT_PAUSE_MS / 1000, self._accept_on, listener, loop)
            return
        # Asked for at each link: renewed files count from the next one on.
        context = None if self._slaves is None else self._slaves.credentials.server_context()
        try:
            channel = open_channel(sock, context, is_server=True)
        except OSError:
            return  # the peer has gone already
        self._generation += 1
        link = MasterLink(
            identity=self._identity,
            reign=self._reign,
            link_generation=self._generation,
            log=self._replica_log,
            settings=self._settings,
            now_ms=self._clock_ms(),
        )
        connection = MasterConnection(
            channel,
            link,
            self._replica_log,
            loop=loop,
            clock_ms=self._clock_ms,
            confirm=lambda: self._confirm,
            on_event=self._on_event,
            on_closed=self._on_closed,
            grant=self._grant,
            on_planned=lambda one, count: self.pacer.sent(one.link.link_generation, count, self._clock_ms()),
            slaves=self._slaves,
        )
        connection.note_opened(address, loop.time())
        if self.connections.admit(connection):
            connection.start_reading()

    def _grant(self, connection: MasterConnection) -> Grant:
        link, lag_bytes = connection.link, connection.link.lag_bytes
        is_far = lag_bytes > COPY_ENDS_BYTES
        return self.pacer.grant(
            link.link_generation,
            lag_bytes=lag_bytes,
            is_required=is_far and link.peer is not None and self._events.is_required(link.peer.broker_id),
            is_busy=self._confirm < self._replica_log.max_offset,
            now_ms=self._clock_ms(),
        )

    def _on_event(self, connection: MasterConnection, action: MasterAction) -> None:
        match action:
            case SlaveAcked(ack=ack):
                self._events.slave_acked(ack)
            case SlaveOpened(handshake=handshake, link_generation=generation):
                older = self._current.get(handshake.broker_id)
                # Links 7 and 8 of one slave may both shake hands, 8 first: 7, answered late, must not take its place.
                if older is not None and older.link.link_generation > generation:
                    connection.execute(connection.link.end(ErrorCode.LINK_REPLACED, "a newer link of the same replica"))
                    return
                # Told closed BEFORE the newer one is told opened (W10): else the broker would hear of an end last, and
                # take a replica that has just come back for gone.
                if older is not None:
                    del self._current[handshake.broker_id]
                    older.execute(older.link.end(ErrorCode.LINK_REPLACED, f"link {generation} of the same replica"))
                    self._tell_closed(handshake.broker_id, older, ErrorCode.LINK_REPLACED, "replaced by a newer link")
                self._current[handshake.broker_id] = connection
                self._events.slave_opened(handshake, generation)
            case HigherEpochSeen(master_epoch=epoch, broker_id=broker_id, incarnation=incarnation):
                self._events.higher_epoch_seen(epoch, broker_id, incarnation)

    def _on_closed(self, connection: MasterConnection, code: ErrorCode | None, detail: str) -> None:
        self.connections.ended(connection)
        self.pacer.ended(connection.link.link_generation)
        peer = connection.link.peer
        if peer is not None and self._current.get(peer.broker_id) is connection:
            del self._current[peer.broker_id]
            self._tell_closed(peer.broker_id, connection, code, detail)
            return
        if connection.close_cause in _REFUSALS:
            told = {"peer": connection.peer, "cause": connection.close_cause, "detail": detail}
            _warn(self._refusals, self._clock_ms(), "ha_peer_refused", **told)
            return
        # A line for each would let a stranger fill the disk (rule 5 of ``remoting.links``). Those of misbehaviour are
        # counted apart: an ordinary end of a second ago must not hide one.
        lines = self._refusals if code in _MISBEHAVIOUR else self._ends
        if (left_out := lines.take(self._clock_ms() / 1000)) is not None:
            _say_closed("ha_connection_closed", code, detail, peer=connection.peer, left_out=left_out)

    def _tell_closed(
        self, broker_id: BrokerId, connection: MasterConnection, code: ErrorCode | None, detail: str
    ) -> None:
        _say_closed("ha_slave_closed", code, detail, slave=broker_id)
        self._left.note(broker_id, connection.link.acked, self._clock_ms(), code)
        self._events.slave_closed(broker_id, connection.link.link_generation, code, detail)

    def _tick(self) -> None:
        now_ms = self._clock_ms()
        for connection in self.connections.snapshot():
            connection.guarded_tick(now_ms)

    def _tell_confirm(self) -> None:
        self._confirm_timer = None
        self._tick()


class HaClient:
    """The slave's side: follows one master at a time and comes back until it is told otherwise."""

    def __init__(
        self,
        *,
        identity: ReplicaIdentity,
        log: ReplicaLog,
        events: SlaveLinkEvents,
        settings: LinkSettings,
        reconnect_delay_ms: int,
        reconnect_delay_ms_max: int,
        clock_ms: Callable[[], int] = monotonic_ms,
        wall_ms: Callable[[], int] = wall_clock_ms,
        masters: ExpectedPeer | None = None,
    ) -> None:
        """
        Follows nobody yet. The first attempt on a target has no pause, later ones wait from min to max, doubling.

        ``masters``: who may answer; None: links are plain, and whoever answers is believed.
        """
        self._identity = identity
        self._replica_log = log
        self._events = events
        self._settings = settings
        self.retime(reconnect_delay_ms, reconnect_delay_ms_max)
        self._clock_ms = clock_ms
        self._wall_ms = wall_ms
        self._masters = masters
        self._links: LinkTable[SlaveConnection] | None = (
            None if masters is None else LinkTable(HA_LIMITS, credentials=masters.credentials)
        )
        """The one link, if it has a certificate to lose."""
        self._is_watched = False
        self._clock = None if masters is None else RenewalClock(masters.credentials)
        self._renewing: asyncio.Task[None] | None = None
        self._renewed: Channel | None = None
        """Ready to take over from the link that has just been closed for it."""
        self._refusals = FewLines(REFUSAL_INTERVAL_S)
        self._connection: SlaveConnection | None = None
        self._runner: asyncio.Task[None] | None = None
        self._ticker: _Ticker | None = None
        self._is_idle = asyncio.Event()
        """Set while the broker executes nothing for a link."""
        self._is_idle.set()
        self._was_ready = False
        self._last_bytes_at_ms: int | None = None
        self._ended_at_ms: int | None = None

    def retime(self, reconnect_delay_ms: int, reconnect_delay_ms_max: int) -> None:
        """Pauses between two attempts, from the next row of them on."""
        self._delay_ms = reconnect_delay_ms
        self._delay_ms_max = reconnect_delay_ms_max

    @property
    def heard_age_us(self) -> int | None:
        """Since the last byte of the target, on this link or the one before; None = none came."""
        at_ms = self._connection.link.bytes_at_ms if self._connection is not None else None
        return self._age_us(self._last_bytes_at_ms if at_ms is None else at_ms)

    @property
    def ended_age_us(self) -> int | None:
        """Since the target's end closed a link that transferred; None = it did not, or one transfers now."""
        return self._age_us(self._ended_at_ms)

    def _age_us(self, at_ms: int | None) -> int | None:
        return None if at_ms is None else max(0, self._clock_ms() - at_ms) * 1_000

    def follow(self, target: FollowTarget) -> None:
        """Leave the current link and dial ``target`` at once; call it again for another epoch of the same master."""
        self.stop_following(f"following {target.master} in masterEpoch {target.master_epoch} now")
        # Behind the end of the old link. Left, the end of the master of 4 would be told as that of the master of 5.
        self._last_bytes_at_ms = self._ended_at_ms = None
        loop = asyncio.get_running_loop()
        if self._links is not None and not self._is_watched:
            self._is_watched = True
            self._links.open()
        self._ticker = _Ticker(loop, self._tick)
        self._ticker.start()
        self._runner = loop.create_task(self._run(target), name=f"ha-follow-{target.master}")
        self._runner.add_done_callback(_report_failure)

    def stop_following(self, detail: str, left_for: MasterEpoch = NO_EPOCH) -> None:
        """The link is closed when this returns: no byte of it is taken any more (R12)."""
        if self._runner is not None:
            self._runner.cancel()
            self._runner = None
        if self._ticker is not None:
            self._ticker.stop()
            self._ticker = None
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
        if self._renewed is not None:
            self._renewed.close()
            self._renewed = None
        connection = self._connection
        if connection is not None:
            connection.execute(connection.link.fail(ErrorCode.STOPPING, "an open link", detail, left_for=left_for))
            connection.close(detail, CloseCause.STOPPED, ErrorCode.STOPPING)

    async def stop(self) -> None:
        """Close the link and wait for the dialler to end."""
        runner = self._runner
        self.stop_following("the broker stops")
        if self._links is not None and self._is_watched:
            self._is_watched = False
            self._links.stop("the broker stops")
        if runner is not None:
            await asyncio.gather(runner, return_exceptions=True)

    def truncation_done(self) -> None:
        """Answer to ``TruncateLog``, whether its link still lives or not."""
        self._answer(lambda link: link.truncation_done(self._clock_ms()))

    def truncation_failed(self, reason: str) -> None:
        """Answer to ``TruncateLog``: the link closes and another attempt follows."""
        self._answer(lambda link: link.truncation_failed(reason))

    def epoch_recorded(self) -> None:
        self._answer(lambda link: link.epoch_recorded(self._clock_ms()))

    def epoch_failed(self, reason: str) -> None:
        """Answer to ``RecordEpoch``: the link closes and another attempt follows."""
        self._answer(lambda link: link.fail(ErrorCode.LOG_FAILED, "an epoch on the disk", reason))

    def _answer(self, answer: Callable[[SlaveLink], list[SlaveAction]]) -> None:
        self._is_idle.set()
        if self._connection is not None:
            self._connection.answer(answer(self._connection.link))

    def log_synced(self, end: LogOffset) -> None:
        """The own log is on disk up to ``end``; matters in sets with ``flush = sync``."""
        if self._connection is not None:
            self._connection.execute(self._connection.link.log_synced(end, self._clock_ms()))

    def log_has_room(self) -> None:
        """Room is ready in the own log, or will not be: read on."""
        if self._connection is not None:
            self._connection.answer(())

    async def _run(self, target: FollowTarget) -> None:
        delay_ms = self._delay_ms
        while True:
            # The cut for the last link may still run. Two plans for one log would cut it twice, the second by a history
            # of before (rule 3).
            await self._is_idle.wait()
            self._was_ready = False
            try:
                await self._attempt(target)
            except Exception as error:  # noqa: BLE001 (ours; a slave that dials no more is worse than one more attempt)
                _log.error("ha_attempt_failed", master=target.master, exc_info=error)
                if self._connection is not None:
                    self._connection.close(f"a fault of our own: {type(error).__name__}", CloseCause.FAULT)
            if self._renewed is not None:
                continue
            delay_ms = self._delay_ms if self._was_ready else min(delay_ms, self._delay_ms_max)
            await asyncio.sleep(delay_ms / 1000)
            delay_ms *= 2

    async def _attempt(self, target: FollowTarget) -> None:
        """One connection from dialling to its end."""
        loop = asyncio.get_running_loop()
        channel, self._renewed = self._renewed, None
        if channel is None:
            channel = await self._connect(target)
        if channel is None:
            return
        link = SlaveLink(
            identity=self._identity,
            target=target,
            log=self._replica_log,
            durable_confirm=self._events.durable_confirm(),
            is_promise_durable=self._events.is_promise_durable(target.master_epoch),
            settings=self._settings,
            now_ms=self._clock_ms(),
        )
        ended = loop.create_future()

        def on_closed(code: ErrorCode | None, detail: str) -> None:
            self._connection = None
            if self._links is not None:
                self._links.ended(connection)
            self._note_end(connection)
            # A log that takes no bytes, or that of a master with a damaged record, is not better after the shortest
            # pause: the links wait longer each time.
            self._was_ready = self._was_ready and code not in (ErrorCode.LOG_FAILED, ErrorCode.RECORD_DAMAGED)
            if not ended.done():
                ended.set_result(None)
            # Nothing happened to the master, and the next link stands already: the controllers need not hear of it.
            if self._renewed is not None:
                return
            if code is ErrorCode.CERTIFICATE_REFUSED or connection.close_cause in _REFUSALS:
                self._tell_refused(target, detail)
            else:
                _say_closed("ha_master_closed", code, detail, master=target.master)
            self._events.link_closed(target, code, detail)

        connection = SlaveConnection(
            channel,
            link,
            loop=loop,
            clock_ms=self._clock_ms,
            on_event=lambda action: self._on_event(target, action),
            on_closed=on_closed,
        )
        self._connection = connection
        if self._links is not None:
            self._links.admit(connection)
        if self._clock is not None:
            self._clock.opened(self._clock_ms())
        connection.answer(link.connected(self._clock_ms()))
        await ended

    async def _connect(self, target: FollowTarget) -> Channel | None:
        """A channel to the master, whose certificate is judged; None: there is none, and that was told."""
        code, peer = None, f"{target.host}:{target.port}"
        try:
            async with asyncio.timeout(self._settings.handshake_timeout_ms / 1000):
                return await self._open(target)
        except PeerRefused as error:
            code, detail = ErrorCode.CERTIFICATE_REFUSED, f"{peer}: {error}"
        except ssl.SSLCertVerificationError as error:
            code, detail = ErrorCode.CERTIFICATE_REFUSED, f"{peer}: {tls_reason(error)}"
        except ssl.SSLError as error:
            detail = f"connect to {peer}: {tls_reason(error)}"
        except (OSError, TimeoutError) as error:
            detail = f"connect to {peer}: {error or 'timeout'}"
        if code is not None:
            self._tell_refused(target, detail)
        self._events.link_closed(target, code, detail)
        return None

    async def _open(self, target: FollowTarget) -> Channel:
        """Raises ``OSError``, ``ssl.SSLError`` and ``PeerRefused``."""
        loop, masters = asyncio.get_running_loop(), self._masters
        # Half of the time: what is left must do for the link to an address that was remembered.
        sock = await _dial(loop, target.host, target.port, timeout_ms=self._settings.handshake_timeout_ms // 2)
        # Before the context is asked for: renewed in between, the link would be opened once more than it has to.
        shown = "" if masters is None else masters.credentials.own.serial
        channel = open_channel(sock, None if masters is None else masters.credentials.client_context(), is_server=False)
        try:
            await shaken(channel, loop)
            if masters is not None:
                assert isinstance(channel, SecuredChannel), "made with a context"
                channel.shown = shown
                expected = replace(masters, name=self._events.owner_of(target.master))
                channel.certificate = expected.judge(channel.peer_certificate())
        except BaseException:
            channel.close()
            raise
        return channel

    def _renew_if_due(self, connection: SlaveConnection) -> None:
        clock, now_ms = self._clock, self._clock_ms()
        if clock is None or self._renewing is not None or connection.link.state is not SlaveLinkState.TRANSFER:
            return
        if clock.is_due(connection.channel, now_ms, self._wall_ms()):
            clock.tried(now_ms)
            name = f"ha-renew-{connection.link.target.master}"
            self._renewing = asyncio.get_running_loop().create_task(self._renew(connection), name=name)
            self._renewing.add_done_callback(_report_failure)

    async def _renew(self, connection: SlaveConnection) -> None:
        """
        Shake hands on a second channel, and let it take over.

        The old link carries meanwhile: what is missing in between is one handshake of ours, and no TLS.
        """
        try:
            async with asyncio.timeout(self._settings.handshake_timeout_ms / 1000):
                channel = await self._open(connection.link.target)
        except (OSError, TimeoutError, PeerRefused) as error:
            # The old link is as good as it was; its certificates, too, until they expire.
            _log.warning("ha_link_not_renewed", master=connection.link.target.master, reason=str(error) or "timeout")
            return
        finally:
            # Cancelled, it ends behind the start of the next one.
            if self._renewing is asyncio.current_task():
                self._renewing = None
        is_free = connection is self._connection and connection.link.state is SlaveLinkState.TRANSFER
        if not is_free or not RenewalClock.is_newer(channel, connection.channel):
            channel.close()
            return
        _log.info("ha_link_renewed", master=connection.link.target.master)
        self._renewed = channel
        connection.execute(connection.link.fail(ErrorCode.LINK_REPLACED, "an open link", "renewed certificates"))

    def _tell_refused(self, target: FollowTarget, detail: str) -> None:
        _warn(self._refusals, self._clock_ms(), "ha_certificate_refused", master=target.master, detail=detail)

    def _note_end(self, connection: SlaveConnection) -> None:
        heard_at_ms = connection.link.bytes_at_ms
        if heard_at_ms is not None:
            self._last_bytes_at_ms = heard_at_ms
        # Not an end of ours: a link that is closed after 3 s of silence is no sign that the master ended just now. And
        # not that of a later attempt: a master that is gone refuses each.
        if self._was_ready and connection.close_cause in _ENDS_OF_THE_PEER:
            self._ended_at_ms = self._clock_ms()

    def _on_event(self, target: FollowTarget, action: SlaveAction) -> None:
        if isinstance(action, (TruncateLog, RecordEpoch)):
            # Rule 3: no other link until the broker has answered. A second plan would be made for a log that the first
            # one is about to cut.
            self._is_idle.clear()
        elif isinstance(action, LinkReady):
            self._was_ready = True
            self._ended_at_ms = None
        self._events.slave_acted(target, action)

    def _tick(self) -> None:
        connection = self._connection
        if connection is not None:
            connection.guarded_tick(self._clock_ms())
            self._renew_if_due(connection)


def _say_closed(event: str, code: ErrorCode | None, detail: str, **peer: object) -> None:
    # A slave that acknowledges bytes which were never sent is broken or forged: nobody looks for that among the lines
    # of replicas that come and go.
    say = _log.warning if code in _MISBEHAVIOUR else _log.info
    say(event, code=code.name if code else None, detail=detail, **peer)


def _warn(lines: FewLines, now_ms: int, event: str, **values: object) -> None:
    if (left_out := lines.take(now_ms / 1000)) is not None:
        _log.warning(event, **values, left_out=left_out)


def _report_failure(runner: asyncio.Task[None]) -> None:
    """None of them ends with an error: if one does, that is a bug that must be seen."""
    if not runner.cancelled() and (error := runner.exception()) is not None:
        _log.error("ha_task_failed", task=runner.get_name(), exc_info=error)


async def _dial(loop: asyncio.AbstractEventLoop, host: str, port: int, *, timeout_ms: int) -> socket.socket:
    """A connected socket. Raises ``OSError`` with the last address's error."""
    failure: OSError | None = None
    for family, kind, protocol, _, address in await looked_up(host, port, timeout_ms=timeout_ms):
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
        else:
            return sock
    raise failure or OSError(f"{host} has no address")
