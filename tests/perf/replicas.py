"""
A thousand replicas in one process: sessions by the contract's protocol over real connections, and no log behind them.

Here: what a broker says to controllers (id, registration, heartbeats, links, entered, milestones) and how it hears of
roles. Not here: data, disks, retries: a replica whose session breaks stays away.

Rule 1: to the controllers these are brokers: one connection each, bodies of the contract, an HA connection from every
slave to its master, whose end is reported (R13), and an address that refuses once the process is gone.
Rule 2: a session whose controller does not lead any more moves to the one that is named, as a broker's would.
Rule 3: a slave that is elected reports that it entered, and the milestones that a broker would.
Rule 4: a master that is ordered to switch over has drained at once, for it has no sends; it says so in each session.
Rule 5: before controllers that ask for certificates each replica has its own, and dials with TLS. Connections between
replicas carry nothing and stay plain.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from rollcall_ha.controller.contract.codes import RefusalCode, RequestCode
from rollcall_ha.controller.contract.commands import (
    ApplyBrokerId,
    RecordMilestones,
    RegisterReplica,
    ReportDrained,
    ReportEntered,
)
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    Incarnation,
    LogOffset,
    MasterEpoch,
    RegisterCode,
    RequestId,
    SessionOrdinal,
    SetKey,
)
from rollcall_ha.controller.contract.replies import AnyReply, IdGranted, Refused, Registered, SetView, SwitchoverView
from rollcall_ha.controller.contract.session import BrokerState, Heartbeat, LeaderHint, LinkReport, RoleNotice
from rollcall_ha.controller.contract.values import (
    Milestone,
    Phase,
    Positions,
    RegisteredAs,
    ReplicaDescription,
    SetConfiguration,
    Value,
)
from rollcall_ha.epoch.model import NO_EPOCH
from rollcall_ha.node.authority import Authority
from rollcall_ha.node.certified import CertifiedName, PeerKind
from rollcall_ha.node.config import split_address
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingError, RemotingTimeout, connect
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.node.tls import Credentials, TlsFiles
from tests.perf.crowd_process import OtherProcess
from tests.support.frames import QuietHandler

RPC_TIMEOUT_MS = 20_000
HEARTBEAT_S = 1.0
DIALLING_MAX = 256
ANNOUNCEMENTS_MAX = 40
DEAD_PAUSE_S = 0.5
"""Before the next controller is tried, if others are known."""
PAUSE_S = 0.05
"""Between two sessions."""
SESSIONS_MAX = 200
ASKS_MAX = 200
"""Of one order."""
_encode = msgspec.json.Encoder().encode
_decode_reply: Any = msgspec.json.Decoder(AnyReply).decode
_decode_hint = msgspec.json.Decoder(LeaderHint).decode
_decode_notice = msgspec.json.Decoder(RoleNotice).decode


class SessionRefused(Exception):
    """The controllers do not want this replica."""


class NotLeader(Exception):
    """Ask ``address`` instead; None = nobody is known to lead."""

    def __init__(self, address: str | None) -> None:
        super().__init__(f"leader: {address}")
        self.address = address


@dataclass(slots=True, kw_only=True)
class Crowd:
    """What one process plays."""

    cluster: str
    names: tuple[str, ...]
    priority: int
    """Smaller is preferred: the crowd that is to win the first elections has the smaller one."""
    controller: str
    """Broker port of the leading controller."""
    others: tuple[str, ...] = ()
    """Broker ports of the other controllers, if the leading one may die."""
    heartbeat_s: float = HEARTBEAT_S
    """Between two heartbeats of a replica."""
    host: str = "127.0.0.1"
    """Loopback address of its replicas."""
    authority: Path | None = None
    """Folder with ca.pem and ca.key of the fleet; None: its ports are plain."""

    def expected(self, name: str, folder: Path) -> ExpectedPeer | None:
        """The controllers, with a certificate that is made here for the replica ``name``."""
        if self.authority is None:
            return None
        authority = Authority.load(self.authority / "ca.pem", self.authority / "ca.key")
        own = CertifiedName(
            fleet=self.cluster, kind=PeerKind.BROKER, name=f"{name}-{self.priority}", set_key=f"{self.cluster}/{name}"
        )
        files = TlsFiles(
            authority=self.authority / "ca.pem", certificate=folder / f"{name}.pem", key=folder / f"{name}.key"
        )
        authority.issue(own).write(files.certificate, files.key)
        return ExpectedPeer(
            credentials=Credentials(files, fleet=self.cluster, name=own), kinds=frozenset({PeerKind.CONTROLLER})
        )


class Replica(QuietHandler):
    """One replica; also the handler of its session's connection."""

    def __init__(self, crowd: Crowd, name: str, ha_address: str, expected: ExpectedPeer | None) -> None:
        self._expected = expected
        self.key = SetKey(ClusterName(crowd.cluster), BrokerName(name))
        self.incarnation = Incarnation(secrets.token_hex(16))
        self.code = RegisterCode(secrets.token_hex(16))
        self.description = ReplicaDescription(address=ha_address, ha_address=ha_address, priority=crowd.priority)
        self.broker_id = BrokerId(0)
        self.ordinal = SessionOrdinal(0)
        self.replaces: RegisteredAs | None = None
        self.epoch: MasterEpoch = NO_EPOCH
        self.view: SetView | None = None
        self.elected_at_ns = 0
        """When it heard that it is master of ``epoch``."""
        self.is_master = False
        self.beats = 0
        self.moves = 0
        """Sessions that it left because their controller did not lead."""
        self._drained_for: tuple[RequestId, SessionOrdinal] | None = None
        self.broken = ""
        self._registered = asyncio.Event()
        self._link: RemotingConnection | None = None
        self._ha: asyncio.BaseTransport | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # --- FrameHandler ---

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        """Notices."""
        for frame in frames:
            if frame.code == RequestCode.SESSION_NOTICE:
                self._heard(_decode_notice(frame.body).view)

    # --- session ---

    async def join(self, address: str) -> None:
        """Connect, get an id, register. Raises ``RemotingError``, ``OSError``, ``SessionRefused``."""
        host, port = split_address(address)
        self._link = await connect(host, port, self, timeout_ms=RPC_TIMEOUT_MS, expected=self._expected)
        granted = await self._ask(
            RequestCode.SESSION_APPLY_ID,
            ApplyBrokerId(set_key=self.key, register_code=self.code, address=self.description.address),
        )
        if not isinstance(granted, IdGranted):
            raise SessionRefused(f"no id for {self.key}: {granted}")
        self.broker_id = granted.broker_id
        registered = await self._ask(RequestCode.SESSION_REGISTER, self._registration())
        if isinstance(registered, Refused) and registered.code is RefusalCode.EVIDENCE_MOVED:
            # An answer was lost on the way from a controller that led before.
            self.replaces = registered.registered
            registered = await self._ask(RequestCode.SESSION_REGISTER, self._registration())
        if not isinstance(registered, Registered):
            raise SessionRefused(f"not registered in {self.key}: {registered}")
        self.ordinal = registered.session_ordinal
        self.replaces = RegisteredAs(incarnation=self.incarnation, session_ordinal=self.ordinal)
        self._registered.set()
        self._heard(registered.view)
        await self.beat()

    def leave(self) -> None:
        """Hang up."""
        self.moves += 1
        if self._link is not None:
            self._link.close("this controller does not lead")

    def _registration(self) -> RegisterReplica:
        return RegisterReplica(
            set_key=self.key,
            broker_id=self.broker_id,
            register_code=self.code,
            incarnation=self.incarnation,
            boot_id="bench",
            store_id=self.code,
            description=self.description,
            configuration=SetConfiguration(expected_replicas=2),
            positions=self._positions(),
            replaces=self.replaces,
        )

    def _positions(self) -> Positions:
        return Positions(last_epoch=self.epoch, max_offset=LogOffset(0), confirm_offset=LogOffset(0))

    async def beat(self) -> None:
        """One heartbeat."""
        beat = Heartbeat(
            set_key=self.key,
            broker_id=self.broker_id,
            incarnation=self.incarnation,
            session_ordinal=self.ordinal,
            state=BrokerState.MASTER if self.is_master else BrokerState.SLAVE,
            is_ready=True,
            positions=self._positions(),
            known_master_epoch=self.epoch,
            known_set_epoch=self.view.sync_state_set_epoch if self.view is not None else -1,  # type: ignore[arg-type]
        )
        assert self._link is not None
        answer = await self._link.request(RequestCode.SESSION_HEARTBEAT, body=_encode(beat), timeout_ms=RPC_TIMEOUT_MS)
        if answer.code == RefusalCode.NOT_LEADER:
            raise NotLeader(_decode_hint(answer.body).leader_broker_address)
        self.beats += 1

    async def _ask(self, code: RequestCode, command: Value) -> AnyReply:
        """Raises ``RemotingError``, ``NotLeader``."""
        assert self._link is not None
        for _ in range(ASKS_MAX):
            answer = await self._link.request(code, body=_encode(command), timeout_ms=RPC_TIMEOUT_MS)
            if answer.code == RefusalCode.NOT_LEADER:
                raise NotLeader(_decode_hint(answer.body).leader_broker_address)
            # "Outcome unknown": a broker asks again. Not asked again, the replica was never there, and a run of the bench
            # with much to do waited for it in vain.
            if answer.code != SystemCode.SYSTEM_BUSY:
                break
            await asyncio.sleep(PAUSE_S)
        else:
            raise RemotingTimeout(f"{self.key}: {ASKS_MAX} answers of an unknown outcome")
        reply: AnyReply = _decode_reply(answer.body)
        return reply

    # --- role ---

    def _heard(self, view: SetView) -> None:
        if self.view is not None and view.index < self.view.index:
            return
        self.view = view
        if view.master is None or view.master_epoch <= self.epoch:
            order = view.switchover
            if order is not None and order.elected_epoch is None and order.master == self.broker_id:
                self._drain(order)
            return
        self.epoch = view.master_epoch
        self.is_master = view.master == self.broker_id and view.master_incarnation == self.incarnation
        self._spawn(self._reign(view) if self.is_master else self._follow(view))

    def _drain(self, order: SwitchoverView) -> None:
        if self._drained_for == (order.order, self.ordinal):
            return
        self._drained_for = (order.order, self.ordinal)
        self._spawn(self._announce(order))

    async def _announce(self, order: SwitchoverView) -> None:
        drained = ReportDrained(
            set_key=self.key,
            broker_id=self.broker_id,
            incarnation=self.incarnation,
            master_epoch=order.master_epoch,
            drained_us=0,
            order=order.order,
        )
        # Evidence that moved meanwhile is gathered anew; a leader that has just come hears everybody within a beat or
        # two. A session that ends announces again in the next one.
        for _ in range(ANNOUNCEMENTS_MAX):
            try:
                answer = await self._ask(RequestCode.SESSION_DRAINED, drained)
            except (RemotingError, NotLeader):
                return
            if not isinstance(answer, Refused) or answer.code is not RefusalCode.EVIDENCE_MOVED:
                return
            await asyncio.sleep(PAUSE_S)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reign(self, view: SetView) -> None:
        self.elected_at_ns = time.monotonic_ns()
        await self._registered.wait()
        entered = ReportEntered(
            set_key=self.key,
            broker_id=self.broker_id,
            incarnation=self.incarnation,
            master_epoch=view.master_epoch,
            start_offset=LogOffset(0),
            acked_end_max=LogOffset(0),
        )
        told = RecordMilestones(
            set_key=self.key,
            milestones=tuple(
                Milestone(
                    master_epoch=view.master_epoch,
                    phase=phase,
                    elapsed_us=1,
                    broker_id=self.broker_id,
                    incarnation=self.incarnation,
                )
                for phase in (Phase.PROMISED, Phase.ROLE_APPLIED, Phase.SERVING)
            ),
        )
        for _ in range(ASKS_MAX):
            try:
                await asyncio.gather(
                    self._ask(RequestCode.SESSION_ENTERED, entered), self._ask(RequestCode.SESSION_MILESTONES, told)
                )
            except (RemotingError, NotLeader):
                # A leader that changed took the report with it, perhaps after the next session had begun: left to the
                # session after that, a run waited for this master for ever.
                await asyncio.sleep(PAUSE_S)
            else:
                return
            if self.epoch != view.master_epoch:
                return

    async def _follow(self, view: SetView) -> None:
        """Hold an HA connection to the master, and say when it opens and ends."""
        master = next(member for member in view.members if member.broker_id == view.master)
        host, port = split_address(master.description.ha_address)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        try:
            self._ha, _ = await loop.create_connection(lambda: _HaLink(ended), host, port)
        except OSError:
            return
        self._report(view, is_open=True)
        await ended
        self._report(view, is_open=False)

    def _report(self, view: SetView, *, is_open: bool) -> None:
        if self._link is None or view.master is None:
            return
        report = LinkReport(
            set_key=self.key,
            broker_id=self.broker_id,
            incarnation=self.incarnation,
            session_ordinal=self.ordinal,
            master=view.master,
            master_epoch=view.master_epoch,
            is_open=is_open,
        )
        self._link.send_one_way(RequestCode.SESSION_LINKS, body=_encode(report))


class _HaLink(asyncio.Protocol):
    def __init__(self, ended: asyncio.Future[None] | None = None) -> None:
        self._ended = ended

    def connection_lost(self, exc: Exception | None) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


class Told(msgspec.Struct, frozen=True):
    """What a crowd says when it is asked."""

    registered: int
    masters: int
    entered: int
    """Sets whose newest view says that its master has entered."""
    beats: int
    moves: int
    broken: int
    reason: str
    """Why the first of them broke."""
    elected_at_ns: tuple[int, ...]
    """Of the replicas that are master now."""


class CrowdProcess(OtherProcess[Told]):
    """``with CrowdProcess(crowd) as process: process.tell("join"); process.told()``."""

    def __init__(self, crowd: Crowd) -> None:
        super().__init__(_main, crowd)


async def _main(crowd: Crowd, pipe: Connection) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(_HaLink, crowd.host, 0, backlog=2048)
    port = server.sockets[0].getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        replicas = [
            Replica(crowd, name, f"{crowd.host}:{port}", crowd.expected(name, Path(folder))) for name in crowd.names
        ]
    go = asyncio.Event()
    ended = asyncio.Event()

    def heard() -> None:
        try:
            message = pipe.recv()
        except EOFError:
            ended.set()
            return
        if message == "join":
            go.set()
        else:
            pipe.send(_told(replicas))

    loop.add_reader(pipe.fileno(), heard)
    pipe.send("ready")
    await go.wait()
    dialling = asyncio.Semaphore(DIALLING_MAX)
    lives = [asyncio.create_task(_live(replica, crowd, dialling)) for replica in replicas]
    await ended.wait()
    for life in lives:
        life.cancel()


async def _live(replica: Replica, crowd: Crowd, dialling: asyncio.Semaphore) -> None:
    first = address = crowd.controller
    known = [first, *crowd.others]
    for _ in range(SESSIONS_MAX):
        try:
            async with dialling:
                await replica.join(address)
            due = time.monotonic() + crowd.heartbeat_s * (secrets.randbelow(1000) / 1000)
            while True:
                await asyncio.sleep(max(0.0, due - time.monotonic()))
                due += crowd.heartbeat_s
                await replica.beat()
        except NotLeader as error:
            address = error.address or first
        except SessionRefused as error:
            replica.broken = repr(error)
            return
        except (RemotingError, OSError) as error:
            # No connection in time: there is a queue at the door, and a broker dials again.
            is_final = isinstance(error, OSError) and not isinstance(error, TimeoutError)
            if is_final and len(known) == 1:
                replica.broken = repr(error)
                return
            address = known[(known.index(address) + 1) % len(known)] if address in known else first
            await asyncio.sleep(DEAD_PAUSE_S if len(known) > 1 else 0)
        replica.leave()
        await asyncio.sleep(PAUSE_S)
    replica.broken = f"{SESSIONS_MAX} sessions"


def _told(replicas: Sequence[Replica]) -> Told:
    return Told(
        registered=sum(replica.ordinal > 0 for replica in replicas),
        masters=sum(replica.is_master for replica in replicas),
        entered=sum(replica.view is not None and replica.view.has_entered for replica in replicas),
        beats=sum(replica.beats for replica in replicas),
        moves=sum(replica.moves for replica in replicas),
        broken=sum(bool(replica.broken) for replica in replicas),
        reason=next((replica.broken for replica in replicas if replica.broken), ""),
        elected_at_ns=tuple(replica.elected_at_ns for replica in replicas if replica.is_master),
    )
