"""
One running replica: its session, role, reign, link and listen port, tied together.

Here: who hears of what. Not here: decisions (``broker.core``, ``ha``), starting and stopping (``broker.server``).
Rule 1: the address of HA links opens when the id is known, before the role machine hears of the session.
Rule 2: what a client may do is one value, the gate; it is replaced before anything else of a role change is done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from broker.config import BrokerConfig
from broker.core.durable import Identity
from broker.core.registration import Registration, ReplicaFacts
from broker.core.role import RoleMachine
from broker.core.role_io import (
    AdoptView,
    EnteredAnswered,
    IncarnationEnded,
    LeaveMaster,
    PeerShowedEpoch,
    PhaseReached,
    PrepareMaster,
    PublishRole,
    Recovered,
    RecoveryStarted,
    ReignRefused,
    ReportMilestone,
    SendEntered,
    SendLinkReport,
    SessionLost,
    SessionOpened,
    StartSlaveLink,
    Stop,
    ViewArrived,
)
from broker.core.session import SessionMachine
from broker.following import Following
from broker.handlers.listen import ListenService
from broker.handlers.put import PutPath
from broker.health import HealthSnapshot
from broker.identity import Remembered, draw_code
from broker.log.commit_log import CommitLog
from broker.marks import ReplicaFiles
from broker.mastership import Gate, Mastership, ReignContext
from broker.protocol.routes import RouteBroker, RouteState
from broker.role_shell import RoleShell
from broker.session import Session, SessionUnavailable
from broker.status import health_of
from controller.contract.codes import RefusalCode, RequestCode
from controller.contract.commands import CleanMark, Phase, Positions, SayGoodbye, StoredView, Value
from controller.contract.ids import (
    BrokerId,
    FlushMode,
    Incarnation,
    LogOffset,
    MasterEpoch,
    SessionOrdinal,
    SyncStateSetEpoch,
)
from controller.contract.replies import AnyReply, Refused, Registered, SetView
from controller.contract.session import BrokerState, Heartbeat, LinkReport, ProbeAnswer
from epoch.model import NO_EPOCH
from ha.confirm_offset import MemberAck
from ha.errors import ErrorCode
from ha.frames import Handshake
from ha.links import LinkSettings, ReplicaIdentity
from ha.service import HaClient, HaServer
from node.telemetry import get_logger

_log = get_logger("replica")


@dataclass(frozen=True, slots=True, kw_only=True)
class _HaLinks:
    """Both ends, for one identity."""

    identity: ReplicaIdentity
    server: HaServer
    client: HaClient


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """Why the replica ended; ``error`` None = as asked."""

    is_clean: bool
    error: BaseException | None = None


class Replica:
    """See the module. On the loop; the log is recovered already."""

    def __init__(
        self, *, config: BrokerConfig, remembered: Remembered, files: ReplicaFiles, log: CommitLog, disk: Executor
    ) -> None:
        """Nothing is dialled or opened yet; ``start`` does."""
        loop = asyncio.get_running_loop()
        process = remembered.process
        self.ended: asyncio.Future[Ending] = loop.create_future()
        self.gate = Gate()
        self._loop = loop
        self._config = config
        self._process = process
        self._files = files
        self._log = log
        self._disk = disk
        self._stored = remembered.stored
        self._alarm = ""
        self._blocked = ""
        self._told_disk_trouble = ""
        self._reign: Mastership | None = None
        self._ha: _HaLinks | None = None
        self._opening: Registered | None = None
        """Told when the HA address is open for it; None = nothing is being opened."""
        self._held_view: SetView | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.machine = RoleMachine(
            set_key=config.set_key,
            incarnation=process.incarnation,
            is_learner=config.description.is_learner,
            retry_ms=config.timing.reconnect_delay_ms,
            retry_ms_max=config.timing.reconnect_delay_ms_max,
        )
        self.role = RoleShell(machine=self.machine, log=log, files=files, disk=disk, owner=self)
        self.following = Following(
            log=log,
            disk=disk,
            is_learner=config.description.is_learner,
            promised=lambda: self.machine.marks.promised,
            feed=self.role.feed,
            failed=self.failed,
        )
        self.put = PutPath(
            log,
            self.gate,
            store_host=config.store_host,
            broker_properties=f"CLUSTER\x01{config.set_key.cluster}\x02".encode(),
            now_ms=lambda: time.time_ns() // 1_000_000,
            wake_links=self._log_extended,
            on_first_ack=lambda epoch: self.role.feed(PhaseReached(master_epoch=epoch, phase=Phase.FIRST_ACK)),
        )
        self.listen = ListenService(put=self.put, log=log, routes=self, probes=self)
        self.session = self._new_session(remembered)
        self._remembered = remembered
        log.subscribe_flushed(self._log_synced)

    def _new_session(self, remembered: Remembered) -> Session:
        config = self._config
        facts = ReplicaFacts(
            set_key=config.set_key,
            process=remembered.process,
            description=config.description,
            configuration=config.configuration,
            clean_mark=remembered.clean_mark,
            new_register_code=draw_code(),
        )
        self._registration = Registration(facts, remembered.identity)
        machine = SessionMachine(
            addresses=config.controllers,
            registration=self._registration,
            timing=config.timing,
            holdings=self._holdings,
        )
        return Session(
            machine=machine, owner=self, set_key=config.set_key, rpc_timeout_ms=config.timing.session_rpc_timeout_ms
        )

    def start(self) -> None:
        """The log is recovered: begin."""
        remembered = self._remembered
        self.role.feed(RecoveryStarted())
        self.role.feed(Recovered(marks=remembered.marks, has_clean_mark=remembered.clean_mark is not None))
        self.session.start()

    def ask_to_stop(self) -> None:
        """Stop cleanly; ``ended`` says when and how."""
        self.role.feed(Stop())

    async def close(self) -> None:
        """Whatever is open is closed; the log is closed by the role machine, if it came to that."""
        self.role.stop()
        await self.session.stop("the broker stops")
        if self._ha is not None:
            await self._ha.client.stop()
            await self._ha.server.stop()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- what others ask ---------------------------------------------------------------------------------------------

    @property
    def positions(self) -> Positions:
        """What this replica holds, by its own word: whole records only."""
        log = self._log
        return Positions(
            last_epoch=log.history.last_epoch,
            max_offset=log.whole_offset,
            confirm_offset=log.confirm_offset,
            released=log.released_offset,
        )

    @property
    def probe(self) -> ProbeAnswer:
        """R13."""
        return ProbeAnswer(
            set_key=self._config.set_key,
            broker_id=self._registration.broker_id,
            incarnation=self._process.incarnation,
            state=self.machine.published.state,
        )

    @property
    def route(self) -> RouteState:
        """What this replica knows of its set; a master that has not entered is no master yet."""
        view, role = self.machine.view, self.machine.published
        members = view.members if view is not None else ()
        is_known = view is not None and view.master_epoch >= role.master_epoch
        epoch, master = (view.master_epoch, view.master) if is_known and view is not None else (role.master_epoch, None)
        is_ours = master is not None and master == self._registration.broker_id
        if (role.state is not BrokerState.MASTER) if is_ours else (view is None or not view.has_entered):
            # Who is sent to a winner that is still entering is refused, and comes back after a pause.
            master = None
        return RouteState(
            cluster=self._config.set_key.cluster,
            broker_name=self._config.set_key.name,
            master_epoch=epoch,
            master=master,
            replicas=tuple(RouteBroker(broker_id=one.broker_id, address=one.description.address) for one in members),
        )

    def health(self) -> HealthSnapshot:
        """For the health address."""
        return health_of(
            machine=self.machine,
            log=self._log,
            put=self.put,
            session=self.session,
            lag_bytes=self.following.lag_bytes,
            alarm=self._alarm,
            blocked=self._blocked,
            disk_trouble=self._disk_trouble(),
        )

    def _disk_trouble(self) -> str:
        error = self._log.disk_error
        if error is None:
            return ""
        return f"the log cannot grow ({error}); free space in {self._config.directory}, it goes on by itself then"

    def _tell_disk_trouble(self) -> None:
        """One line when it begins, one when it is over."""
        trouble = self._disk_trouble()
        if trouble == self._told_disk_trouble:
            return
        if trouble:
            _log.error("disk_trouble", reason=trouble)
        else:
            _log.info("disk_trouble_over")
        self._told_disk_trouble = trouble

    def _holdings(self) -> tuple[Positions, StoredView | None]:
        return self.positions, self._stored

    # --- SessionOwner ------------------------------------------------------------------------------------------------

    def heartbeat(self, ordinal: SessionOrdinal) -> Heartbeat:
        """What to say now."""
        assert self._registration.broker_id is not None, "a session has an id"
        self._tell_disk_trouble()
        view = self.machine.view
        return Heartbeat(
            set_key=self._config.set_key,
            broker_id=self._registration.broker_id,
            incarnation=self._process.incarnation,
            session_ordinal=ordinal,
            state=self.machine.published.state,
            is_ready=self.machine.is_ready,
            positions=self.positions,
            known_master_epoch=view.master_epoch if view is not None else NO_EPOCH,
            known_set_epoch=view.sync_state_set_epoch if view is not None else SyncStateSetEpoch(-1),
            lag_bytes=self.following.lag_bytes,
        )

    def session_opened(self, registered: Registered) -> None:
        """HA links are opened first; views that come meanwhile wait (rule 1)."""
        _log.info(
            "session_opened",
            broker_id=registered.broker_id,
            ordinal=registered.session_ordinal,
            controller=self.session.controller,
            intactness=registered.intactness,
        )
        self._blocked = ""
        if self._opening is not None:
            # A session was lost while the address opened; only one may bind it, and the newest session is told.
            self._opening = registered
        elif self._has_links_for(registered):
            self._tell_opened(registered)
        else:
            self._opening = registered
            self._spawn(self._open_links())

    def _identity_in(self, registered: Registered) -> ReplicaIdentity:
        return ReplicaIdentity(
            set_key=self._config.set_key,
            fleet_incarnation=registered.view.fleet_incarnation,
            broker_id=registered.broker_id,
            incarnation=self._process.incarnation,
        )

    def _has_links_for(self, registered: Registered) -> bool:
        return self._ha is not None and self._ha.identity == self._identity_in(registered)

    async def _open_links(self) -> None:
        while (registered := self._opening) is not None and not self._has_links_for(registered):
            await self._replace_links(self._identity_in(registered))
        self._opening = None
        if registered is not None:
            self._tell_opened(registered)
        held, self._held_view = self._held_view, None
        if held is not None:
            self.view_arrived(held, 0)

    async def _replace_links(self, identity: ReplicaIdentity) -> None:
        if self._ha is not None:
            await self._ha.client.stop()
            await self._ha.server.stop()
        timing = self._config.timing
        settings = LinkSettings(
            heartbeat_interval_ms=timing.heartbeat_interval_ms,
            idle_timeout_ms=timing.heartbeat_timeout_ms,
            handshake_timeout_ms=timing.session_rpc_timeout_ms,
        )
        server = HaServer(identity=identity, log=self._log, events=self, settings=settings)
        client = HaClient(
            identity=identity,
            log=self._log,
            events=self.following,
            settings=settings,
            reconnect_delay_ms=timing.reconnect_delay_ms,
            reconnect_delay_ms_max=timing.reconnect_delay_ms_max,
        )
        await server.start(*self._config.ha)
        self._ha = _HaLinks(identity=identity, server=server, client=client)
        self.following.client = client

    def _tell_opened(self, registered: Registered) -> None:
        if registered.view.configuration.flush is FlushMode.SYNC:
            # R3c vouches for every replica of such a set. It belongs to the set, not to this broker's configuration.
            self._log.sync_before_acks()
        self.role.feed(SessionOpened(registered=registered))
        if self._reign is not None:
            self._reign.session_opened()
        self.listen.route_moved()

    def session_lost(self, reason: str) -> None:
        """Changes no role (promise 3)."""
        _log.warning("session_lost", reason=reason)
        self.role.feed(SessionLost())

    def view_arrived(self, view: SetView, transit_us: int) -> None:
        """A push, or a heartbeat's answer."""
        if self._opening is not None:
            self._held_view = view
            return
        self._stored = StoredView(
            fleet_incarnation=view.fleet_incarnation,
            master_epoch=view.master_epoch,
            sync_state_set_epoch=view.sync_state_set_epoch,
            sync_state_set=view.sync_state_set,
        )
        self.role.feed(ViewArrived(view=view, transit_us=transit_us))
        self.listen.route_moved()

    def registration_blocked(self, refusal: Refused) -> None:
        """Shown in /readyz; one line for each new reason."""
        text = f"the controllers refuse this replica: {refusal.code.name}: {refusal.reason}; {refusal.hint}"
        if text != self._blocked:
            _log.warning("registration_refused", code=refusal.code.name, reason=refusal.reason, hint=refusal.hint)
        self._blocked = text

    def incarnation_ended(self, refusal: Refused) -> None:
        """S12."""
        self.role.feed(IncarnationEnded(reason=refusal.reason))

    async def persist_identity(self, identity: Identity) -> None:
        """Durable on return."""
        await self._loop.run_in_executor(self._disk, self._files.identity.store, identity)
        _log.info("identity_stored", broker_id=identity.broker_id)

    # --- RoleOwner ---------------------------------------------------------------------------------------------------

    def start_link(self, action: StartSlaveLink) -> None:
        """Follow."""
        self.following.start(action.generation, action.target)

    def resume_link(self) -> None:
        """Apply and ack."""
        self.following.resume()

    def settle_link(self, reason: str) -> None:
        """A cut without its link."""
        self.following.settle(reason)

    def stop_link(self, detail: str) -> LogOffset:
        """Apply and ack nothing."""
        return self.following.stop(detail)

    def hold_folds(self, is_held: bool) -> None:
        """A thread works on the log."""
        self.following.hold_folds(is_held)

    def prepare_master(self, action: PrepareMaster) -> None:
        """Everything but the permission to append."""
        assert self._ha is not None and self._registration.broker_id is not None, "a session came first"  # noqa: PT018
        context = ReignContext(
            set_key=self._config.set_key,
            broker_id=self._registration.broker_id,
            incarnation=self._process.incarnation,
            address=self._config.description.address,
            log=self._log,
            links=self._ha.server,
            waiters=self.put,
            gate=self.gate,
            timing=self._config.timing,
            ask=self._ask,
            on_phase=lambda epoch, phase: self.role.feed(PhaseReached(master_epoch=epoch, phase=phase)),
            on_refused=lambda epoch, reason: self.role.feed(ReignRefused(master_epoch=epoch, reason=reason)),
        )
        self._reign = Mastership(context, action)
        self._reign.open_links()

    def leave_master(self, action: LeaveMaster) -> None:
        """R12, R17."""
        reign, self._reign = self._reign, None
        if reign is not None:
            reign.leave(action.reason, self._master_address())

    def adopt_view(self, action: AdoptView) -> None:
        """R2."""
        if self._reign is not None:
            self._reign.adopt(action.view)

    def publish(self, action: PublishRole) -> None:
        """The gate first (rule 2), then everybody who watches."""
        if action.state is BrokerState.MASTER and self._reign is not None:
            self._reign.serve()
        else:
            self.gate.close(f"{action.state}: {action.reason}", action.master_epoch, self._master_address())
        self.listen.route_moved()

    def send_entered(self, action: SendEntered) -> None:
        """Answered by ``EnteredAnswered``."""
        epoch = action.report.master_epoch
        _log.info("entered", master_epoch=epoch, start=action.report.start_offset)

        def answered(future: asyncio.Future[AnyReply]) -> None:
            is_definite = not future.cancelled() and future.exception() is None and not _is_repeatable(future.result())
            self.role.feed(EnteredAnswered(master_epoch=epoch, is_definite=is_definite))

        self._ask(RequestCode.SESSION_ENTERED, action.report).add_done_callback(answered)

    def send_link_report(self, action: SendLinkReport) -> None:
        """R13."""
        ordinal, broker_id = self.session.ordinal, self._registration.broker_id
        if ordinal is None or broker_id is None:
            return
        self.session.report_link(
            LinkReport(
                set_key=self._config.set_key,
                broker_id=broker_id,
                incarnation=self._process.incarnation,
                session_ordinal=ordinal,
                master=action.master,
                master_epoch=action.master_epoch,
                is_open=action.is_open,
            )
        )

    def report_milestone(self, action: ReportMilestone) -> None:
        """Part of the record."""
        self.session.report(action.milestone)

    async def say_goodbye(self, clean_mark: CleanMark) -> None:
        """Raises ``SessionUnavailable``."""
        ordinal, broker_id = self.session.ordinal, self._registration.broker_id
        if ordinal is None or broker_id is None:
            raise SessionUnavailable("no session is open")
        command = SayGoodbye(
            set_key=self._config.set_key,
            broker_id=broker_id,
            incarnation=self._process.incarnation,
            session_ordinal=ordinal,
            clean_mark=clean_mark,
        )
        await self.session.ask(RequestCode.SESSION_GOODBYE, command)

    def raise_alarm(self, reason: str) -> None:
        """Shown in /readyz and counted."""
        self._alarm = reason

    def exit(self, *, is_clean: bool) -> None:
        """The role machine is done."""
        if not self.ended.done():
            self.ended.set_result(Ending(is_clean=is_clean))

    def failed(self, error: BaseException) -> None:
        """The process must not go on."""
        _log.error("failed", error=f"{type(error).__name__}: {error}", exc_info=error)
        if not self.ended.done():
            self.ended.set_result(Ending(is_clean=False, error=error))

    # --- MasterLinkEvents: of the running reign ----------------------------------------------------------------------

    def slave_opened(self, handshake: Handshake, link_generation: int) -> None:
        """A replica shook hands."""
        if self._reign is not None:
            self._reign.slave_opened(handshake, link_generation)

    def slave_acked(self, ack: MemberAck) -> None:
        """An ack came."""
        if self._reign is not None:
            self._reign.slave_acked(ack)

    def slave_closed(self, broker_id: BrokerId, link_generation: int, code: ErrorCode | None, detail: str) -> None:
        """A link is gone."""
        if self._reign is not None:
            self._reign.slave_closed(broker_id, link_generation, code, detail)

    def higher_epoch_seen(self, master_epoch: MasterEpoch, broker_id: BrokerId, incarnation: Incarnation) -> None:
        """A slave follows a higher epoch: its promise ends our reign (R21)."""
        self.role.feed(
            PeerShowedEpoch(broker_id=broker_id, incarnation=incarnation, master_epoch=master_epoch, is_master=False)
        )

    # --- inside ------------------------------------------------------------------------------------------------------

    def _ask(self, code: RequestCode, command: Value) -> asyncio.Future[AnyReply]:
        return self._loop.create_task(self.session.ask(code, command))

    def _log_extended(self) -> None:
        if self._reign is not None:
            self._reign.log_extended()

    def _log_synced(self, end: LogOffset) -> None:
        self.following.log_synced(end)
        if self._reign is not None:
            self._reign.log_synced(end)

    def _master_address(self) -> str:
        view = self.machine.view
        if view is None or view.master is None:
            return ""
        return next((one.description.address for one in view.members if one.broker_id == view.master), "")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.failed(error)


def _is_repeatable(reply: AnyReply) -> bool:
    """Whether an order was not even looked at: the same one may be accepted in a moment."""
    return isinstance(reply, Refused) and reply.code is RefusalCode.OVERLOADED
