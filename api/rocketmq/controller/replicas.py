"""
RocketMQ brokers as replicas of kind ``rocketmq``: their 1003 and 904 as registrations and heartbeats of ours.

Here: incarnations, first reports, which heartbeats count, what shows that a master has entered. Not here: answers
(``handlers``), liveness and rules (``controller.runtime``, ``controller.core``), pushes (``pushes``).

Rule 1: a RocketMQ broker names no incarnation, and one process has one connection to one controller. So a 1003 on a
connection begins an incarnation, and a repeat on that connection is the same process (R3). A process that is judged
twice loses its membership once more, never a record.
Rule 2: 1003 does not tell what a broker holds. The broker is registered with unknown positions, and again with its
first 904; also when a recovery awaits its report (R7), when it shows an epoch above ours, and when its priority moves.
Rule 3: a 904 counts only if it names the address that is registered, and comes from whoever has the replica's claim.
Rule 4: a master has entered when its 904 shows the epoch, when its 1001 names it, or when it answers 906 as master; the
offset at which its epoch starts is never told.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from rollcall_ha.api.broker_port.code_table import Request
from rollcall_ha.api.rocketmq.controller.beans import BrokerHeartbeatHeader
from rollcall_ha.api.rocketmq.controller.broker_sets import SetsByName
from rollcall_ha.api.rocketmq.controller.claims import Claims
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import AnyCommand, RegisterReplica, ReportEntered
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    Incarnation,
    LogOffset,
    MasterEpoch,
    ReplicaKind,
    SetKey,
)
from rollcall_ha.controller.contract.replies import AnyReply, Refused
from rollcall_ha.controller.contract.session import BrokerState, Heartbeat
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.contract.values import Positions, ReplicaDescription, SetConfiguration, peer_host
from rollcall_ha.controller.contract.views import RefusedBroker
from rollcall_ha.controller.core.state import FleetState, ReplicaState, SetState
from rollcall_ha.controller.replication.proposer import ProposeError
from rollcall_ha.controller.runtime import broker_requests
from rollcall_ha.controller.runtime.ports import NoAuthority
from rollcall_ha.controller.runtime.service import ControllerService
from rollcall_ha.controller.runtime.session_state import ConnectionId, ReplicaKey
from rollcall_ha.epoch.model import NO_EPOCH
from rollcall_ha.node.telemetry import get_logger

PRIORITY_DEFAULT = 2_147_483_647
"""RocketMQ's: nobody is preferred."""
REPORT_PAUSE_MS = 1_000
REPORT_PAUSE_MS_MAX = 60_000
"""After a refused report; doubles from ``REPORT_PAUSE_MS``, so that a refusal does not fill the journal."""
REGISTER_ATTEMPTS = 3
"""A registration whose evidence another registration has moved is made anew."""
UNKNOWN = Positions(last_epoch=NO_EPOCH, max_offset=LogOffset(0), confirm_offset=LogOffset(0))


class _Report(msgspec.Struct):
    """Reports of one replica: whether one is under way, and when the next one may go."""

    is_under_way: bool = False
    not_before_ns: int = 0
    pause_ms: int = REPORT_PAUSE_MS


class RocketmqReplicas:
    """The replicas of kind ``rocketmq`` of one controller. Runs on the loop."""

    def __init__(self, service: ControllerService, *, expected_replicas: int = 1) -> None:
        """``expected_replicas``: of sets that RocketMQ brokers found (R8)."""
        self._service = service
        self._configuration = SetConfiguration(expected_replicas=expected_replicas)
        self._logger = get_logger("gateway")
        self._sets = SetsByName()
        self._incarnations: dict[ConnectionId, dict[ReplicaKey, Incarnation]] = {}
        self._reports: dict[ReplicaKey, _Report] = {}
        self._entering: dict[SetKey, MasterEpoch] = {}
        self._waiting: dict[ReplicaKey, list[asyncio.Future[None]]] = {}
        self.claims = Claims()
        self.tell: Callable[[SetKey, BrokerId, MasterEpoch], None] = lambda *_: None
        """Called when a heartbeat shows an older epoch than the set's."""
        self.ignored: Counter[str] = Counter()
        """Heartbeats that were not counted, by reason; a metric."""

    @property
    def fleet(self) -> FleetState:
        return self._service.published.state

    def find(self, name: str | None) -> SetState | None:
        """The set of this name that is not cleaned."""
        return self._sets.find(self.fleet.sets, name)

    def conflicting_set(self, key: SetKey) -> SetKey | None:
        """Another cluster's set of the same name."""
        return self._sets.conflicting_set(self.fleet.sets, key)

    def closed(self, link: ConnectionId) -> None:
        """A link is gone: a broker that registers on another link is another process (rule 1)."""
        self._incarnations.pop(link, None)

    def refuse_speaker(self, found: SetState, broker_id: BrokerId, request: Request) -> str:
        """Why ``request`` may not be said in the name of this replica; empty: it may (``claims``)."""
        replica = found.replica(broker_id)
        if replica is None:
            return ""
        # A 1003 shows no register code. Taken for one of ours, a stranger's would end its session and take its place.
        if replica.description is not None and replica.description.kind is not ReplicaKind.ROCKETMQ:
            self.claims.refused["native"] += 1
            return f"replica {broker_id} of {found.set_key} is a broker of Rollcall's, which speaks in its own session"
        now_ns, host = self._service.now_ns(), peer_host(request.caller.address)
        complaint = self.claims.refuse(
            (found.set_key, broker_id),
            request.caller,
            address=replica.address,
            now_ns=now_ns,
            code=request.frame.code,
        )
        if not complaint:
            self._service.refusals.heard(found.set_key, broker_id, host)
            return ""
        # A 904 has no answer: its broker would be silent here, and no log would say why.
        code, hint = RefusalCode.NOT_THE_OWNER.name, "end one of two; one on two networks: an access key"
        refused = RefusedBroker(broker_id=broker_id, host=host, code=code, reason=complaint, hint=hint)
        self._service.refusals.note(found.set_key, refused, now_ns)
        return complaint

    # --- 1003 --------------------------------------------------------------------------------------------------------

    async def register(self, key: SetKey, broker_id: BrokerId, address: str, request: Request) -> AnyReply:
        """
        Register the process behind the link of ``request``. The set and the id exist.

        Raises as ``ControllerService.submit``.
        """
        # The request may have waited behind others while its connection closed. Carried out now, the 1003 of broker 1's
        # old process would depose the new one, which has registered since.
        if not request.connection.is_open:
            return _gone(key, broker_id)
        incarnation = self._incarnations.setdefault(request.link, {}).setdefault(
            (key, broker_id), self._service.ports.draw_incarnation()
        )  # fmt: skip
        return await self._register(key, broker_id, request, incarnation=incarnation, address=address)

    async def _register(
        self,
        key: SetKey,
        broker_id: BrokerId,
        request: Request,
        *,
        incarnation: Incarnation,
        address: str,
        beat: BrokerHeartbeatHeader | None = None,
    ) -> AnyReply:
        for _ in range(REGISTER_ATTEMPTS):
            replica = self.fleet.sets[key].replica(broker_id)
            # In each round: the link may have closed, or another process have registered, during the await. A repeat
            # against "whatever is registered now" would replace a living successor.
            by_link = self._incarnations.get(request.link, {}).get((key, broker_id))
            current = by_link if beat is None or replica is None else replica.incarnation
            if replica is None or current != incarnation:
                return _gone(key, broker_id)
            reply = await self._submit(
                RegisterReplica(
                    set_key=key,
                    broker_id=broker_id,
                    register_code=replica.register_code,
                    incarnation=incarnation,
                    # Empty, so that nothing proves the new incarnation intact (R3): what Java sends does not tell a
                    # restart from a machine that lost its unsynced pages.
                    boot_id="",
                    store_id="",
                    description=ReplicaDescription(
                        address=address,
                        ha_address="",
                        kind=ReplicaKind.ROCKETMQ,
                        priority=_priority(beat, replica),
                    ),
                    configuration=self._configuration,
                    # Unknown, not 0: as "empty" a broker of 40 GB would be one of three empty ones in a first election
                    # (R8), and its log be cut to that of the winner.
                    positions=UNKNOWN if beat is None else _positions(beat),
                    are_positions_known=beat is not None,
                    # Refused if another registration came between (R1): a late entry must not undo a newer one.
                    replaces=replica.registered_as,
                ),
                broker_id,
                request,
            )
            if not (isinstance(reply, Refused) and reply.code is RefusalCode.EVIDENCE_MOVED):
                return reply
        return reply

    async def _submit(self, command: AnyCommand, broker_id: BrokerId, request: Request | None) -> AnyReply:
        return await broker_requests.submit(
            self._service,
            command,
            request_id=self._service.ports.new_request_id(),
            requested_by=f"broker:{broker_id}",
            connection=None if request is None else request.link,
            principal=None if request is None else request.caller,
        )

    # --- 904 ---------------------------------------------------------------------------------------------------------

    def heard(self, beat: BrokerHeartbeatHeader, request: Request) -> Coroutine[Any, Any, None] | None:
        """Count a heartbeat; returns the work that follows from it, if any. Only a leader counts."""
        found = self.find(beat.broker_name)
        if found is None or beat.broker_id is None:
            self.ignored["unknown set"] += 1
            return None
        broker_id = BrokerId(beat.broker_id)
        key = (found.set_key, broker_id)
        session = self._service.duties.sessions.get(*key)
        replica = found.replica(broker_id)
        # Its kind is checked: anybody can send a 904, and with this one keep a dead broker of our own alive.
        if session is None or replica is None or session.kind is not ReplicaKind.ROCKETMQ:
            self.ignored["not registered"] += 1
            return None
        # One of two processes with one id, from a copied disk, is registered: counted together they would be a replica
        # that holds 7,000 bytes now and 3,000 a second later.
        if beat.broker_addr != session.address or (beat.cluster_name or "") != found.set_key.cluster:
            self.ignored["another address or cluster"] += 1
            return None
        if self.refuse_speaker(found, broker_id, request):
            self.ignored["another host or name"] += 1
            return None
        try:
            broker_requests.count_heartbeat(
                self._service,
                Heartbeat(
                    set_key=found.set_key,
                    broker_id=broker_id,
                    incarnation=session.incarnation,
                    session_ordinal=session.ordinal,
                    # By our own state: 904 does not say which role its sender has.
                    state=BrokerState.MASTER if found.master == broker_id else BrokerState.SLAVE,
                    is_ready=True,
                    positions=_positions(beat),
                    known_master_epoch=found.master_epoch,
                    known_set_epoch=found.sync_state_set_epoch,
                    timeout_ms=beat.heartbeat_timeout_mills,
                ),
                request.link,
            )
        except NoAuthority:
            self.ignored["no authority"] += 1
            return None
        if self._must_report(found, replica, beat):
            return self._report(key, session.incarnation, beat, request)
        # AFTER the report, which wakes for itself: an election that is woken earlier would find unknown positions.
        self._wake(key)
        # Its 1008 was lost. Java would notice by its own 1004, up to 5 s later: so long a set may have no master.
        if (beat.epoch or NO_EPOCH) < found.master_epoch:
            self.tell(found.set_key, broker_id, found.master_epoch)
        return self.entered(found.set_key, found.master_epoch) if _shows_entered(found, broker_id, beat) else None

    def _must_report(self, found: SetState, replica: ReplicaState, beat: BrokerHeartbeatHeader) -> bool:
        """Whether this heartbeat says something that the replicated state must know (rule 2)."""
        recovery = found.recovery
        return (
            replica.positions is None
            or (recovery is not None and replica.broker_id not in recovery.reported)
            # A broker from epoch 9 under controllers that know 5: they were restored from a backup, and must wait for
            # all reports before they elect (R7). Counted as a plain heartbeat, epoch 6 would be given a second time.
            or (recovery is None and found.is_established and (beat.epoch or NO_EPOCH) > found.master_epoch)
            or (replica.description is not None and replica.description.priority != _priority(beat, replica))
        )

    async def _report(
        self, key: ReplicaKey, incarnation: Incarnation, beat: BrokerHeartbeatHeader, request: Request
    ) -> None:
        report = self._reports.setdefault(key, _Report())
        now_ns = self._service.now_ns()
        # A refused report would be made again by each heartbeat: 86,400 entries a day and replica, all the same.
        if report.is_under_way or now_ns < report.not_before_ns:
            return
        report.is_under_way = True
        try:
            reply = await self._register(
                *key, request, incarnation=incarnation, address=beat.broker_addr or "", beat=beat
            )
        except (NoAuthority, ProposeError) as error:
            self._logger.info("report_not_taken", set=str(key[0]), broker_id=key[1], reason=str(error))
            return
        finally:
            report.is_under_way = False
            self._wake(key)
        if isinstance(reply, Refused):
            report.not_before_ns = now_ns + report.pause_ms * NS_PER_MS
            report.pause_ms = min(2 * report.pause_ms, REPORT_PAUSE_MS_MAX)
            self._logger.warning("report_refused", set=str(key[0]), broker_id=key[1], reason=reply.reason)
            return
        del self._reports[key]
        found = self.fleet.sets[key[0]]
        if _shows_entered(found, key[1], beat):
            await self.entered(key[0], found.master_epoch)

    # --- 1002 --------------------------------------------------------------------------------------------------------

    async def wait_heard(self, key: ReplicaKey, timeout_ms: int) -> bool:
        """Whether this process has told its positions by a heartbeat, or does so in time."""
        if self._has_told(key):
            return True
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(waiter)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await waiter
        except TimeoutError:
            return False
        finally:
            waiters = self._waiting[key]
            waiters.remove(waiter)
            if not waiters:
                del self._waiting[key]
        return self._has_told(key)

    def _has_told(self, key: ReplicaKey) -> bool:
        session = self._service.duties.sessions.get(*key)
        found = self.fleet.sets.get(key[0])
        replica = found.replica(key[1]) if found is not None else None
        has_positions = replica is not None and replica.positions is not None
        return has_positions and session is not None and session.heard_ns is not None

    def _wake(self, key: ReplicaKey) -> None:
        for waiter in self._waiting.get(key, ()):
            if not waiter.done():
                waiter.set_result(None)

    def heard_by_its_request(self, key: ReplicaKey, link: ConnectionId) -> None:
        """Count a 1002 as a heartbeat in a set that never had a master: RocketMQ needs no other sign of life there."""
        session = self._service.duties.sessions.get(*key)
        # Once heard, only 904 counts: a broker that asks every 5 s and hangs otherwise must not look alive for ever.
        if session is None or session.kind is not ReplicaKind.ROCKETMQ or session.heard_ns is not None:
            return
        broker_requests.count_heartbeat(
            self._service,
            Heartbeat(
                set_key=key[0],
                broker_id=key[1],
                incarnation=session.incarnation,
                session_ordinal=session.ordinal,
                state=BrokerState.FENCED,
                is_ready=True,
                positions=session.positions or UNKNOWN,
                known_master_epoch=MasterEpoch(0),
                known_set_epoch=self.fleet.sets[key[0]].sync_state_set_epoch,
            ),
            link,
        )

    # --- entering ----------------------------------------------------------------------------------------------------

    async def entered(self, key: SetKey, epoch: MasterEpoch) -> None:
        """The master of ``epoch`` was seen to be master (rule 4)."""
        found = self.fleet.sets.get(key)
        # The epoch is compared: a late 906 answer of the master of 3 must not mark that of 4 as entered, whose deadline
        # would be off while it hangs (R6).
        is_due = found is not None and found.master_epoch == epoch and not found.has_entered
        if found is None or not is_due or self._entering.get(key) == epoch:
            return
        if found.master is None or found.master_incarnation is None:
            return
        self._entering[key] = epoch
        try:
            await self._submit(
                ReportEntered(
                    set_key=key,
                    broker_id=found.master,
                    incarnation=found.master_incarnation,
                    master_epoch=epoch,
                    # Java does not tell where its epoch begins. Guessed, a proof of loss would rest on it.
                    start_offset=None,
                    acked_end_max=LogOffset(0),
                    is_mode_confirmed=False,
                ),
                found.master,
                None,
            )
        except (NoAuthority, ProposeError) as error:
            self._logger.info("entered_not_taken", set=str(key), epoch=epoch, reason=str(error))
        finally:
            self._entering.pop(key, None)


def _priority(beat: BrokerHeartbeatHeader | None, replica: ReplicaState) -> int:
    if beat is not None and beat.election_priority is not None:
        return beat.election_priority
    return replica.description.priority if replica.description is not None else PRIORITY_DEFAULT


def _positions(beat: BrokerHeartbeatHeader) -> Positions:
    """The positions in a heartbeat; Java writes -1 for "nothing", or leaves the field out."""
    return Positions(
        last_epoch=MasterEpoch(beat.epoch if beat.epoch is not None else NO_EPOCH),
        max_offset=LogOffset(max(0, beat.max_offset or 0)),
        confirm_offset=LogOffset(max(0, beat.confirm_offset or 0)),
    )


def _shows_entered(found: SetState, broker_id: BrokerId, beat: BrokerHeartbeatHeader) -> bool:
    return broker_id == found.master and beat.epoch == found.master_epoch and not found.has_entered


def _gone(key: SetKey, broker_id: BrokerId) -> Refused:
    return Refused(
        code=RefusalCode.NEED_TO_BE_REGISTERED,
        reason=f"replica {broker_id} of {key} is not registered",
        hint="register again",
    )
