"""
The broker port of a controller: sessions of brokers, the leader's probes, and the question for the leader.

Here: frames to commands and replies to frames, limits, counters. Not here: liveness and decisions
(``controller.runtime``), RocketMQ's codes: ``api.server`` puts their handlers into the table ``codes``. A code that
nothing serves is answered by REQUEST_CODE_NOT_SUPPORTED.

Rule 1: heartbeats are answered in the turn in which they come, without a task; orders to the Raft log are one task
each, at most ``ORDERS_PER_LINK_MAX`` per link and ``ORDERS_MAX`` in all.
Rule 2: a body that is no value of the contract is answered by a refusal; the link stays. A frame that is no frame
closes its link (``node.remoting``).
Rule 3: a link speaks for the replicas that have registered on it. Anything else in a replica's name closes it.
Rule 4: only the leader with authority answers; everybody else says NOT_LEADER with a ``LeaderHint`` at once.
Rule 5: in a fleet with certificates a session needs a broker's, of the set that it speaks of (``callers``).
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import msgspec

from rollcall_ha.api.broker_port.callers import principal_of, refusal_of_link, refusal_of_set
from rollcall_ha.api.broker_port.code_table import Access, AccessRefused, CodeTable, Request, Served
from rollcall_ha.controller.contract.codes import RefusalCode, RequestCode
from rollcall_ha.controller.contract.commands import (
    AlterSyncStateSet,
    AnnounceStop,
    AnyCommand,
    ApplyBrokerId,
    RecordMilestones,
    RegisterReplica,
    ReportDrained,
    ReportEntered,
    ReportWrites,
    SayGoodbye,
)
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, ReplicaKind, SetKey
from rollcall_ha.controller.contract.replies import AnyReply, IdGranted, Refused, Registered, SetView
from rollcall_ha.controller.contract.session import SESSION_COMMANDS, Heartbeat, LinkReport, ProbeAnswer
from rollcall_ha.controller.contract.values import peer_host
from rollcall_ha.controller.contract.views import RefusedBroker
from rollcall_ha.controller.core.actions import SendProbe
from rollcall_ha.controller.replication.proposer import EntryOutcomeUnknown, NotLeader, Overloaded
from rollcall_ha.controller.runtime import broker_requests
from rollcall_ha.controller.runtime.ports import NoAuthority
from rollcall_ha.controller.runtime.refusals import CERTIFICATE_HINT
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.controller.runtime.session_state import ConnectionId, ProbeOutcome
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.config import ConfigError, split_address
from rollcall_ha.node.durations import Durations
from rollcall_ha.node.remoting.asking import LATE_MS_MAX, dial, running_timeout
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingError, RemotingServer
from rollcall_ha.node.remoting.frame import Frame
from rollcall_ha.node.remoting.links import CloseCause, LinkLimits, LinkTable
from rollcall_ha.node.remoting.secured import Door, ExpectedPeer
from rollcall_ha.node.tasks import Tasks
from rollcall_ha.node.telemetry import get_logger
from rollcall_ha.node.tls import NOT_YET_VALID, Credentials

FRAME_BYTES_MAX = 1024 * 1024
"""No session body comes near it; a log entry is smaller anyhow."""
OUT_BUFFER_BYTES_MAX = 8 * 1024 * 1024
FIRST_FRAME_MS_MAX = 30_000
"""A link without a request for so long is closed; RocketMQ's test whether the port is open ends at once."""
NONSENSE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Errors of reading a peer's body: a log line each would let a peer fill the disk."""
ORDERS_PER_LINK_MAX = 64
ORDERS_MAX = 20_000
ORDER_BOUNDS_S = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
REPLICAS_PER_LINK_MAX = 64
"""Registrations on one link; a broker has one."""
PROBES_MAX = 256
"""Probes under way; more wait for their turn: when a whole rack dies, each of its masters must be asked (R13)."""

_decode_heartbeat = msgspec.json.Decoder(Heartbeat).decode
_decode_link = msgspec.json.Decoder(LinkReport).decode
_decode_probe_answer = msgspec.json.Decoder(ProbeAnswer).decode
_decode_command = {code: msgspec.json.Decoder(command).decode for code, command in SESSION_COMMANDS.items()}
_encode = msgspec.json.Encoder().encode

_REFUSED_BY_TLS = frozenset({CloseCause.TLS, CloseCause.CERTIFICATE, CloseCause.REVOKED, CloseCause.EXPIRED})

SPOKEN = AlterSyncStateSet | ReportEntered | ReportWrites | AnnounceStop | ReportDrained | SayGoodbye | RecordMilestones
"""The orders that a replica gives once it has registered."""
_Spoken = SPOKEN | Heartbeat | LinkReport

_SESSION_CODES = frozenset(
    (*SESSION_COMMANDS, RequestCode.SESSION_HEARTBEAT, RequestCode.SESSION_LINKS, RequestCode.FIND_LEADER)
)


class _Link(msgspec.Struct):
    """The port's own data of one connection."""

    number: ConnectionId
    orders: int = 0
    replicas: dict[tuple[SetKey, BrokerId], Incarnation] = msgspec.field(default_factory=dict)
    """Those that it speaks for (rule 3)."""


class BrokerPortServer:
    """The port; implements ``controller.runtime.service.BrokerPort`` and ``node.remoting``'s ``FrameHandler``."""

    def __init__(
        self,
        service: ControllerService,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        door: Door | None = None,
        access: Access | None = None,
    ) -> None:
        """
        Does not listen yet. Without ``door`` (an insecure fleet) links are plain and believed whoever they are.

        ``access`` judges who asks by the codes of ``codes``; None: nobody may, and they are answered as unknown ones.
        """
        self._service = service
        self._logger = get_logger("gateway")
        limits = LinkLimits(
            frame_bytes_max=frame_bytes_max,
            out_buffer_bytes_max=OUT_BUFFER_BYTES_MAX,
            first_frame_ms_max=FIRST_FRAME_MS_MAX,
        )
        self._door = door
        self._server = RemotingServer(self, limits=limits, door=door)
        self._links: dict[ConnectionId, RemotingConnection] = {}
        self._last_number = 0
        self._tasks = Tasks()
        self._probes = asyncio.Semaphore(PROBES_MAX)
        self._access = access
        self.codes = CodeTable()
        """The codes besides those of our own sessions: filled before ``start``."""
        self.closed_listeners: list[Callable[[ConnectionId], None]] = []
        """Called with the number of each link that has ended."""
        self.on_not_yet_valid: Callable[[], None] = lambda: None
        """Called when a certificate of the fleet was refused as not yet valid."""
        self.announcers: list[Callable[[SetView], None]] = []
        """Called to tell the RocketMQ brokers of a set what was committed."""
        self.requests: Counter[str] = Counter()
        """Requests by name; unknown codes under ``unsupported``, refused callers under ``forbidden``."""
        self.durations: dict[str, Durations] = defaultdict(lambda: Durations(ORDER_BOUNDS_S))
        """How long orders took, from the frame to its answer."""

    async def start(self, address: str) -> None:
        """Listen. Raises ``OSError`` if the address is taken, ``ConfigError`` if it is none."""
        host, port = split_address(address)
        await self._server.start(host, port)

    async def stop(self) -> None:
        """Close every link; returns when no task of the port runs any more."""
        await self._server.stop("this controller stops")
        await self._tasks.stop()

    @property
    def links(self) -> LinkTable[RemotingConnection]:
        return self._server.links

    @property
    def credentials(self) -> Credentials | None:
        """The certificate that this port shows; None: links are plain."""
        return None if self._door is None else self._door.credentials

    # --- BrokerPort --------------------------------------------------------------------------------------------------

    def notify(self, connection: ConnectionId, body: bytes) -> bool:
        """Push a notice. A peer that does not read is closed by the out-buffer's limit."""
        link = self._links.get(connection)
        if link is None or not link.is_open:
            return False
        link.send_one_way(RequestCode.SESSION_NOTICE, body=body)
        return True

    def tell_brokers(self, code: RequestCode, body: bytes) -> None:
        """Push a list of revoked certificates, or settings, to every link that speaks for a replica."""
        for connection in tuple(self._links.values()):
            link = connection.session
            if isinstance(link, _Link) and link.replicas and connection.is_open:
                connection.send_one_way(code, body=body)

    def announce(self, view: SetView) -> None:
        """Tell the RocketMQ brokers of this set."""
        for tell in self.announcers:
            tell(view)

    async def probe(self, probe: SendProbe) -> tuple[ProbeOutcome, ProbeAnswer | None]:
        """Ask for the incarnation that listens there (R13)."""
        if probe.after_ms:
            await asyncio.sleep(probe.after_ms / 1000)
        try:
            # By the clock, a refusal that came while this loop stood still would be no answer, and a dead master of a
            # mass failover be left to its heartbeats' timeout after five of them.
            async with self._probes, running_timeout(self._service.live.timing.probe_timeout_ms):
                answer = await self._ask_listener(probe)
                if probe.kind is ReplicaKind.ROCKETMQ:
                    return ProbeOutcome.ANSWERED, None
                return ProbeOutcome.ANSWERED, _decode_probe_answer(answer.body)
        except ConnectionRefusedError:
            # The operating system's own word, and nothing else: a timeout, a reset or nonsense may come from a
            # firewall, or from a broker that is busy, and two more facts would make it dead at once.
            return ProbeOutcome.REFUSED, None
        except (OSError, TimeoutError, RemotingError, msgspec.MsgspecError, ConfigError):
            return ProbeOutcome.NO_ANSWER, None

    async def _ask_listener(self, probe: SendProbe) -> Frame:
        """Its answer; that of a RocketMQ broker says that it does not know the code, and so that it lives."""
        timeout_ms = self._service.live.timing.probe_timeout_ms + LATE_MS_MAX
        link = await dial(probe.address, timeout_ms=timeout_ms, expected=self._expected_at(probe))
        try:
            return await link.request(RequestCode.PROBE, timeout_ms=timeout_ms)
        finally:
            link.close("the probe is done")

    def _expected_at(self, probe: SendProbe) -> ExpectedPeer | None:
        # RocketMQ's brokers have no certificate of ours; that something lives there is all that is asked of them.
        if self._door is None or probe.kind is ReplicaKind.ROCKETMQ:
            return None
        found = self._service.published.state.sets.get(probe.set_key)
        replica = None if found is None else found.replica(probe.broker_id)
        owner = None if replica is None else replica.owner
        # Whoever took over the address of a dead master would answer for it, and keep the set without one.
        return ExpectedPeer(
            credentials=self._door.credentials,
            kinds=frozenset({PeerKind.BROKER}),
            set_key=str(probe.set_key),
            name=owner or "",
        )

    # --- FrameHandler ------------------------------------------------------------------------------------------------

    def connected(self, connection: RemotingConnection) -> None:
        """Number the link: liveness belongs to the number, never to a socket that may be reused."""
        self._last_number += 1
        connection.session = _Link(self._last_number)
        self._links[self._last_number] = connection

    def disconnected(self, connection: RemotingConnection, reason: str) -> None:
        """Tell the sessions that lived on it."""
        link = connection.session
        assert isinstance(link, _Link)
        self._links.pop(link.number, None)
        self._logger.debug("link_closed", peer=connection.peer, reason=reason)
        # A peer that shows none is no broker: a port scanner, or ``rollcall doctor``.
        if (cause := connection.close_cause) in _REFUSED_BY_TLS and "certificate" in reason:
            host = peer_host(connection.peer)
            refused = RefusedBroker(broker_id=None, host=host, code=cause, reason=reason, hint=CERTIFICATE_HINT)
            self._service.refusals.note(None, refused, self._service.now_ns())
            if NOT_YET_VALID in reason:
                self.on_not_yet_valid()
        broker_requests.handle_closed(
            self._service, link.number, is_revoked=connection.close_cause is CloseCause.REVOKED
        )
        for tell in self.closed_listeners:
            tell(link.number)

    def handle_requests(self, connection: RemotingConnection, frames: Sequence[Frame]) -> None:
        """Everything that one readable event brought."""
        link = connection.session
        assert isinstance(link, _Link)
        # In order, in one turn: a heartbeat behind an order of the same read is not made to wait for the log.
        for frame in frames:
            self._handle(connection, link, frame)

    def _handle(self, connection: RemotingConnection, link: _Link, frame: Frame) -> None:
        if frame.code in _SESSION_CODES:
            self._handle_session(connection, link, frame)
            return
        served = self.codes.find(frame)
        if served is None or self._access is None:
            self.requests["unsupported"] += 1
            self._unsupported(connection, frame)
            return
        self.requests[served.name] += 1
        try:
            caller = self._access.judge(frame, address=connection.peer, certificate=connection.certificate)
        except AccessRefused as refusal:
            # The link stays: a peer whose key is being replaced would dial again for each of its requests.
            connection.respond(frame, SystemCode.NO_PERMISSION, remark=str(refusal))
            return
        self._serve(link, served, Request(frame=frame, connection=connection, link=link.number, caller=caller))

    def _serve(self, link: _Link, served: Served, request: Request) -> None:
        """Answer the request, or run the task that does; an error is answered too (rule 1 of ``code_table``)."""
        try:
            work = served.handler(request)
            if work is None:
                return
            if link.orders >= ORDERS_PER_LINK_MAX or len(self._tasks) >= ORDERS_MAX:
                # Handlers that answer in their own turn, heartbeats above all, are served however many tasks wait.
                work.close()
                request.answer(SystemCode.SYSTEM_BUSY, remark=f"{link.orders} requests of this link wait already")
                return
            link.orders += 1
            self._tasks.begin(self._work(link, served, request, work))
        except Exception as error:  # noqa: BLE001 - Rule 1 of ``code_table``
            self._fault(served, request, error)

    async def _work(self, link: _Link, served: Served, request: Request, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - Rule 1 of ``code_table``
            self._fault(served, request, error)
        finally:
            link.orders -= 1

    def _fault(self, served: Served, request: Request, error: Exception) -> None:
        """A fault of ours costs this request only, and is answered as RocketMQ answers its own."""
        self._logger.error("request_failed", request=served.name, error=repr(error), exc_info=error)
        request.answer(SystemCode.SYSTEM_ERROR, remark=f"{type(error).__name__}: {error}")

    def _handle_session(self, connection: RemotingConnection, link: _Link, frame: Frame) -> None:
        code = RequestCode(frame.code)
        self.requests[code.name] += 1
        refusal = None if self._door is None else refusal_of_link(connection.certificate, code)
        if refusal is not None:
            self._forbid(connection, frame, refusal)
            return
        try:
            if code is RequestCode.SESSION_HEARTBEAT:
                self._heartbeat(connection, link, frame)
            elif code is RequestCode.SESSION_LINKS:
                report = _decode_link(frame.body)
                if self._may_speak(connection, link, frame, report):
                    broker_requests.handle_link(self._service, report)
            elif code is RequestCode.FIND_LEADER:
                self._find_leader(connection, link, frame)
            else:
                self._order(connection, link, frame, _decode_command[code](frame.body))
        except NONSENSE as error:
            self.requests["malformed"] += 1
            self._answer(connection, frame, _malformed(f"body of {code.name}: {error}"))
        except NoAuthority:
            self._not_leader(connection, frame)

    def _find_leader(self, connection: RemotingConnection, link: _Link, frame: Frame) -> None:
        async def answer() -> None:
            try:
                connection.respond(frame, SystemCode.SUCCESS, body=_encode(await self._service.leader_hint_soon()))
            finally:
                link.orders -= 1

        hint = self._service.leader_hint()
        # Bounded as orders are: questions that are held must not use up what registrations need.
        if hint.leader is None and link.orders < ORDERS_PER_LINK_MAX and len(self._tasks) < ORDERS_MAX:
            link.orders += 1
            self._tasks.begin(answer())
        else:
            connection.respond(frame, SystemCode.SUCCESS, body=_encode(hint))

    def _heartbeat(self, connection: RemotingConnection, link: _Link, frame: Frame) -> None:
        beat = _decode_heartbeat(frame.body)
        # Before the session's own check: a follower has nothing to say about who may speak.
        self._service.require_authority()
        if not self._may_speak(connection, link, frame, beat):
            return
        answer = broker_requests.handle_heartbeat(self._service, beat, link.number)
        if isinstance(answer, Refused):
            self._answer(connection, frame, answer)
        else:
            connection.respond(frame, SystemCode.SUCCESS, body=_encode(answer))

    def _order(self, connection: RemotingConnection, link: _Link, frame: Frame, command: AnyCommand) -> None:
        # Before a task is made of it: after a change of leader each broker of the fleet asks the old one at once.
        self._service.require_authority()
        if isinstance(command, SPOKEN):
            if not self._may_speak(connection, link, frame, command):
                return
        elif isinstance(command, ApplyBrokerId | RegisterReplica) and not self._is_of_own_set(
            connection, frame, command
        ):
            return
        if link.orders >= ORDERS_PER_LINK_MAX or len(self._tasks) >= ORDERS_MAX:
            self._answer(connection, frame, _overloaded(f"{link.orders} orders of this link wait already"))
            return
        if isinstance(command, RegisterReplica) and len(link.replicas) >= REPLICAS_PER_LINK_MAX:
            self._answer(connection, frame, _overloaded(f"{len(link.replicas)} replicas have registered on this link"))
            return
        link.orders += 1
        self._tasks.begin(self._commit(connection, link, frame, command))

    def _is_of_own_set(
        self, connection: RemotingConnection, frame: Frame, message: _Spoken | ApplyBrokerId | RegisterReplica
    ) -> bool:
        certificate = connection.certificate
        if self._door is None or certificate is None:
            return True
        refusal = refusal_of_set(certificate, message.set_key, type(message).__name__)
        if refusal is not None:
            self._note(connection, message, refusal)
            self._forbid(connection, frame, refusal)
        return refusal is None

    def _note(self, connection: RemotingConnection, message: AnyCommand | _Spoken, refusal: Refused) -> None:
        """For people: the process runs, and is not taken."""
        sets = self._service.published.state.sets
        # Of other sets nothing is shown, and nothing vouches for the length of their names.
        if isinstance(message, ApplyBrokerId | RegisterReplica) and message.set_key in sets:
            self._service.refusals.note(
                message.set_key,
                RefusedBroker(
                    broker_id=message.broker_id if isinstance(message, RegisterReplica) else None,
                    host=peer_host(connection.peer),
                    code=refusal.code.name,
                    reason=refusal.reason,
                    hint=refusal.hint,
                ),
                self._service.now_ns(),
            )

    def _forbid(self, connection: RemotingConnection, frame: Frame, refusal: Refused) -> None:
        self.requests["forbidden"] += 1
        self._answer(connection, frame, refusal)

    def _may_speak(self, connection: RemotingConnection, link: _Link, frame: Frame, message: _Spoken) -> bool:
        if not self._is_of_own_set(connection, frame, message):
            return False
        # Ids and incarnations are no secrets: a probe tells them. A goodbye, an alter or a link report in the name of
        # replica 2, by anybody who can reach this port, would depose a healthy master, or shrink its set to itself.
        for key, broker_id, incarnation in _speakers(message):
            if broker_id is None or incarnation is None or link.replicas.get((key, broker_id)) != incarnation:
                self.requests["strangers"] += 1
                told = f"{type(message).__name__} of {(key, broker_id, incarnation)}"
                connection.close(f"{told}, which has not registered on this link", CloseCause.STRANGER)
                return False
        return True

    async def _commit(self, connection: RemotingConnection, link: _Link, frame: Frame, command: AnyCommand) -> None:
        began_s = asyncio.get_running_loop().time()
        caller = principal_of(connection.certificate, connection.peer, _name_of(command))
        try:
            reply = await broker_requests.submit(
                self._service,
                command,
                request_id=self._service.ports.new_request_id(),
                requested_by=_name_of(command) if connection.certificate is None else str(caller),
                connection=link.number,
                principal=caller,
            )
        except (NoAuthority, NotLeader):
            self._not_leader(connection, frame)
        except Overloaded as error:
            self._answer(connection, frame, _overloaded(str(error)))
        except EntryOutcomeUnknown as error:
            # No answer at all would be a lie of omission; this one names that nothing is known. The broker asks again:
            # every order of a session is idempotent by its own content (R1).
            connection.respond(frame, SystemCode.SYSTEM_BUSY, remark=str(error))
        except ValueError as error:
            self._answer(connection, frame, _malformed(str(error)))
        else:
            if isinstance(command, RegisterReplica) and isinstance(reply, Registered):
                link.replicas[command.set_key, reply.broker_id] = command.incarnation
            if isinstance(command, ApplyBrokerId | RegisterReplica) and isinstance(reply, IdGranted | Registered):
                self._service.refusals.taken(command.set_key, reply.broker_id, peer_host(connection.peer))
            elif isinstance(reply, Refused):
                self._note(connection, command, reply)
            self._answer(connection, frame, reply)
        finally:
            link.orders -= 1
            name = RequestCode(frame.code).name
            self.durations[name].note(asyncio.get_running_loop().time() - began_s)

    def _answer(self, connection: RemotingConnection, frame: Frame, reply: AnyReply) -> None:
        code = reply.code if isinstance(reply, Refused) else SystemCode.SUCCESS
        remark = reply.reason if isinstance(reply, Refused) else None
        connection.respond(frame, code, body=_encode(reply), remark=remark)

    def _not_leader(self, connection: RemotingConnection, frame: Frame) -> None:
        connection.respond(frame, RefusalCode.NOT_LEADER, body=_encode(self._service.leader_hint()))

    def _unsupported(self, connection: RemotingConnection, frame: Frame) -> None:
        connection.respond(
            frame, SystemCode.REQUEST_CODE_NOT_SUPPORTED, remark=f" request type {frame.code} not supported"
        )


def _speakers(message: _Spoken) -> list[tuple[SetKey, BrokerId | None, Incarnation | None]]:
    """The replicas in whose name it is said."""
    if isinstance(message, RecordMilestones):
        return [(message.set_key, one.broker_id, one.incarnation) for one in message.milestones]
    return [(message.set_key, message.broker_id, message.incarnation)]


def _name_of(command: AnyCommand) -> str:
    """For the record: which broker asked."""
    if isinstance(command, RecordMilestones):
        ids = {milestone.broker_id for milestone in command.milestones if milestone.broker_id is not None}
        return f"broker:{min(ids)}" if ids else "broker"
    if isinstance(command, ApplyBrokerId):
        return f"broker@{command.address}"
    broker_id = getattr(command, "broker_id", None)
    return "broker" if broker_id is None else f"broker:{broker_id}"


def _malformed(reason: str) -> Refused:
    return Refused(
        code=RefusalCode.INVALID_ARGUMENT, reason=reason, hint="send the JSON of the session's contract, in UTF-8"
    )


def _overloaded(reason: str) -> Refused:
    return Refused(code=RefusalCode.OVERLOADED, reason=reason, hint="nothing was proposed; retry after a pause")
