"""
One running replica: its session, role, reign, link and listen port, tied together.

Here: the wiring of their events. Not here: decisions (``broker.core``, ``ha``), starting and stopping
(``broker.server``), the replica's own words about itself (``broker.status``).
Rule 1: the address of HA links opens when the id is known, before the role machine hears of the session.
Rule 2: one value, the gate, says what a client may do; it is replaced before anything else of a role change is done.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor
from typing import Any

from msgspec.structs import replace

from rollcall_ha.broker.config import BrokerConfig, copies_by
from rollcall_ha.broker.consuming.room import ConsumerRoom, GateStanding
from rollcall_ha.broker.consuming.tools import About
from rollcall_ha.broker.core.durable import Identity
from rollcall_ha.broker.core.goals import GoalKind, named_in
from rollcall_ha.broker.core.role import RoleMachine, told_view
from rollcall_ha.broker.core.role_io import (
    AdoptView,
    Drained,
    EnteredAnswered,
    ExitProcess,
    HigherEpochShown,
    IncarnationEnded,
    LeaveMaster,
    PhaseReached,
    PrepareMaster,
    PublishRole,
    RaiseAlarm,
    Recovered,
    RecoveryStarted,
    ReignRefused,
    ReportMilestone,
    ResumeSlaveLink,
    SendEntered,
    SendLinkReport,
    SessionEstablished,
    SessionLost,
    StartDraining,
    StartSlaveLink,
    Stop,
    StopAnswered,
    StopDraining,
    TellDrained,
    TellStop,
    ViewArrived,
)
from rollcall_ha.broker.core.session import SessionMachine
from rollcall_ha.broker.core.write_watch import WriteFacts, fenced_facts
from rollcall_ha.broker.folds.dispatcher import Dispatcher
from rollcall_ha.broker.following import Following
from rollcall_ha.broker.ha_ends import HaEnds
from rollcall_ha.broker.handlers.listen import ListenService
from rollcall_ha.broker.handlers.own_sends import OwnSends
from rollcall_ha.broker.handlers.ports import Gate
from rollcall_ha.broker.handlers.put import PutPath
from rollcall_ha.broker.health import HealthSnapshot
from rollcall_ha.broker.identity import Remembered, registration_of
from rollcall_ha.broker.live_settings import LiveSettings
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.mastership import Mastership, ReignContext
from rollcall_ha.broker.own_damage import OwnDamage
from rollcall_ha.broker.parts import Parts
from rollcall_ha.broker.replica_files import ReplicaFiles
from rollcall_ha.broker.retention.shell import Retention
from rollcall_ha.broker.revocations import RevokedPeers
from rollcall_ha.broker.role_shell import Deeds, RoleShell
from rollcall_ha.broker.session import ControllerSession, SessionUnavailable
from rollcall_ha.broker.status import ReplicaReporter
from rollcall_ha.broker.write_stops import WriteStops
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import AnnounceStop, ReportDrained, SayGoodbye
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    FlushMode,
    Incarnation,
    LogOffset,
    MasterEpoch,
    RegisterCode,
    SessionOrdinal,
)
from rollcall_ha.controller.contract.replies import AnyReply, Elected, Refused, Registered, SetView
from rollcall_ha.controller.contract.session import BrokerState, Heartbeat, LinkReport
from rollcall_ha.controller.contract.settings import Settings
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.contract.values import CleanMark, Frozen, Phase, Value
from rollcall_ha.ha.confirm_offset import MemberAck
from rollcall_ha.ha.errors import ErrorCode
from rollcall_ha.ha.frames import Handshake
from rollcall_ha.node.telemetry import get_logger

_log = get_logger("replica")


class Ending(Frozen):
    """Why the replica ended; ``error`` None = as asked."""

    is_clean: bool
    error: BaseException | None = None


class Replica:
    """One replica, from its recovered log to its end. On the loop."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        remembered: Remembered,
        files: ReplicaFiles,
        log: CommitLog,
        folds: Dispatcher,
        disk: Executor,
        parts: Parts,
        about: About,
    ) -> None:
        """Nothing is dialled or opened yet; ``start`` does. The owner of ``folds`` starts and ends them."""
        loop = asyncio.get_running_loop()
        process = remembered.process
        self.ended: asyncio.Future[Ending] = loop.create_future()
        self.gate = Gate()
        self._loop = loop
        self._config = config
        self._process = process
        self._files = files
        self._log = log
        self._folds = folds
        self._disk = disk
        self._parts = parts
        self._remembered = remembered
        self._stored = remembered.stored
        self._reign: Mastership | None = None
        self.begins_anew = False
        """Nobody asked it to stop: its id is nobody's again, and the next start in this process takes it."""
        self._no_sends_since_s: float | None = None
        """Since when no sends are taken, if the last role that was left is a master's."""
        self._registration = registration_of(config, remembered, RegisterCode(parts.draw()))
        self._damage = OwnDamage(log, disk, lambda: self.machine.view, parts.now_us, raise_alarm=self.raise_alarm)
        self.settings = LiveSettings(config.timing, self._retimed, config.founded)
        self.machine = RoleMachine(
            set_key=config.set_key,
            incarnation=process.incarnation,
            is_learner=config.description.is_learner,
            retry_ms=config.timing.reconnect_delay_ms,
            retry_ms_max=config.timing.reconnect_delay_ms_max,
        )
        self.status = self._new_status()
        self.session = self._new_session()
        self.following = self._new_following()
        self.role = self._new_role(has_view=remembered.stored is not None)
        self.ends = HaEnds(
            config=config,
            incarnation=process.incarnation,
            log=log,
            parts=parts,
            as_master=self,
            as_slave=self.following,
            opened=self._links_opened,
            failed=self.failed,
        )
        self.put = self._new_put_path()
        self.writes = self._new_writes()
        self.consuming = self._new_consuming(about)
        self.put.topics = self.consuming.topics
        self.put.retry_times_max = self.consuming.retry_times_max
        self.retention = Retention(
            log=log, folds=folds, put=self.put, room=self.consuming, copies=self.ends, settings=self.settings,
            role=lambda: self.machine.published.state, disk=disk,
            disk_room=lambda: parts.disk_room(config.directory), now_ms=parts.wall_ms, failed=self.failed,
        )  # fmt: skip
        self.listen = self._new_listen()
        log.subscribe_flushed(self._log_synced)
        log.subscribe_room(self._log_has_room)

    def _new_consuming(self, about: About) -> ConsumerRoom:
        config, parts = self._config, self._parts
        return ConsumerRoom(
            log=self._log,
            folds=self._folds,
            appender=OwnSends(self.put, host=config.store_host, now_ms=parts.wall_ms),
            standing=GateStanding(self.gate, config.set_key, lambda: self.status.place),
            about=about,
            broker_id=lambda: self._registration.broker_id or 0,
            put_total=lambda: self.put.counters.appended,
            limits=self.put.delay_limits,
            now_ms=parts.now_ms,
            wall_ms=parts.wall_ms,
        )

    def _new_status(self) -> ReplicaReporter:
        return ReplicaReporter(
            config=self._config,
            incarnation=self._process.incarnation,
            machine=self.machine,
            log=self._log,
            broker_id=lambda: self._registration.broker_id,
            lag_bytes=lambda: self.following.lag_bytes,
            is_stopped=lambda: self.writes.stop is not None,
        )

    def _new_listen(self) -> ListenService:
        told = self.consuming.disconnected
        return ListenService(put=self.put, word=self.status, responders=self.consuming.responders, on_disconnected=told)

    def _new_writes(self) -> WriteStops:
        return WriteStops(
            timing=self._config.timing,
            set_key=self._config.set_key,
            incarnation=self._process.incarnation,
            facts=self._write_facts,
            ask=self._ask,
            now_us=self._parts.now_us,
        )

    def _new_role(self, *, has_view: bool) -> RoleShell:
        return RoleShell(
            machine=self.machine,
            log=self._log,
            files=self._files,
            disk=self._disk,
            parts=self._parts,
            has_view=has_view,
            link=self.following,
            folds=self._folds,
            deeds=self._deeds(),
            say_goodbye=self._say_goodbye,
            failed=self.failed,
        )

    def _deeds(self) -> Deeds:
        return {
            StartSlaveLink: self._follow,
            ResumeSlaveLink: lambda _action: self.following.resume(),
            PrepareMaster: self._prepare_master,
            LeaveMaster: self._leave_master,
            AdoptView: self._adopt_view,
            PublishRole: self._publish,
            SendEntered: self._send_entered,
            StartDraining: self._start_draining,
            StopDraining: self._stop_draining,
            TellStop: self._tell_stop,
            TellDrained: self._tell_drained,
            SendLinkReport: self._send_link_report,
            ReportMilestone: self._report_milestone,
            RaiseAlarm: self._alarm,
            ExitProcess: self._exit,
        }

    def _new_following(self) -> Following:
        return Following(
            log=self._log,
            disk=self._disk,
            is_learner=self._config.description.is_learner,
            begins_at_last_segment=self._config.begins_at_last_segment,
            promised=lambda: self.machine.marks.promised,
            view=lambda: self.machine.view,
            look_up=self.session.look_up,
            feed=lambda event: self.role.feed(event),  # noqa: PLW0108 (the role is made with this link)
            failed=self.failed,
        )

    def _new_put_path(self) -> PutPath:
        config, parts = self._config, self._parts
        return PutPath(
            self._log,
            self.gate,
            store_host=config.store_host,
            broker_properties=f"CLUSTER\x01{config.set_key.cluster}\x02".encode(),
            now_ms=parts.wall_ms,
            now_us=parts.now_us,
            wake_links=self._log_extended,
            on_first_ack=self._first_ack,
        )

    def _new_session(self) -> ControllerSession:
        config = self._config
        machine = SessionMachine(
            addresses=config.controllers,
            registration=self._registration,
            timing=config.timing,
            holdings=lambda: (self.status.positions, self._stored),
        )
        return ControllerSession(
            machine=machine,
            owner=self,
            set_key=config.set_key,
            timing=config.timing,
            now_us=self._parts.now_us,
            held_since_us=self._process.held_since_us,
            credentials=self._parts.credentials,
            wall_ms=self._parts.wall_ms,
            revoked=self._revoked_peers(),
            settings=self.settings,
        )

    def _revoked_peers(self) -> RevokedPeers | None:
        credentials, write = self._parts.credentials, self._files.revoked.store
        if credentials is None:
            return None
        return RevokedPeers(credentials, self._remembered.revoked, store=lambda told: self._disk.submit(write, told))

    def _retimed(self, timing: Timing, settings: Settings) -> None:
        """The controllers' settings are in force."""
        self.machine.retime(retry_ms=timing.reconnect_delay_ms, retry_ms_max=timing.reconnect_delay_ms_max)
        self.session.retime(timing)
        self.ends.retime(timing)
        self.ends.limit(copies_by(settings))
        self.writes.retime(timing)
        self.put.ack_timeout_ms = settings.value("ack_timeout_ms")
        self.consuming.set_by(settings)
        if self._reign is not None:
            self._reign.retime(timing)

    def start(self) -> None:
        """The log is recovered: begin."""
        remembered = self._remembered
        self.role.feed(RecoveryStarted())
        self.role.feed(Recovered(marks=remembered.marks, has_clean_mark=remembered.clean_mark is not None))
        self.session.start()
        self.consuming.start()
        self.retention.start()

    def ask_to_stop(self, *, at_once: bool = False) -> None:
        """Stop cleanly; ``ended`` says when and how. ``at_once``: also while others wait for this replica."""
        self.role.feed(Stop(leave_ms=0 if at_once else self.settings.timing.handover_ms))

    async def close(self) -> None:
        """Close session and links; the log is closed by the role machine, if it came to that."""
        self.writes.close()
        await self.retention.close()
        self.consuming.close()
        self.role.stop()
        await self.session.stop("the broker stops")
        await self.ends.stop()

    def health(self) -> HealthSnapshot:
        """For the health address."""
        facts = self.status.facts(
            gate=self.gate.state,
            session=self.session,
            writes=self.writes,
            following=self.following,
            timing=self.settings.timing,
        )
        return self.status.health(
            put=self.put,
            session=self.session,
            writes=self.writes,
            pacer=self.ends.pacer,
            facts=facts,
            room=self.consuming,
            retention=self.retention,
        )

    # --- SessionOwner ------------------------------------------------------------------------------------------------

    def heartbeat(self, ordinal: SessionOrdinal) -> Heartbeat:
        """The heartbeat of this moment."""
        self.status.tell_disk_trouble()
        beat = self.status.heartbeat(ordinal)
        since_us = self.put.waiting_since_us
        return replace(
            beat,
            master_heard_age_us=self.following.heard_age_us(beat.known_master_epoch),
            waiting_us=None if since_us is None else max(0, self._parts.now_us() - since_us),
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
        self.status.blocked = ""
        self._know(registered.view)
        self.ends.session_opened(registered)

    def _links_opened(self, registered: Registered, held: SetView | None) -> None:
        if registered.view.configuration.flush is FlushMode.SYNC:
            # R3c calls every replica of such a set intact after a power cut. One that acks from memory, because its own
            # file says ``async``, would be elected without bytes that it acked.
            self._log.sync_before_acks()
        self.role.feed(SessionEstablished(registered=registered))
        if self._reign is not None:
            self._reign.session_opened()
        self.writes.session_opened()
        self.listen.route_moved()
        if held is not None:
            self.view_arrived(held, 0)

    def session_lost(self, reason: str) -> None:
        """Changes no role (promise 3)."""
        _log.warning("session_lost", reason=reason)
        self.role.feed(SessionLost())

    def view_arrived(self, view: SetView, transit_us: int) -> None:
        """A push, or a heartbeat's answer."""
        # A view before its session: the machine would start a link to a master when there is no dialler yet.
        if self.ends.holds_back(view):
            return
        self._know(view)
        self.role.feed(ViewArrived(view=view, transit_us=transit_us))
        self.listen.route_moved()

    def _know(self, view: SetView) -> None:
        """Keep what controllers that are wiped next have to hear (R7)."""
        self._stored = told_view(view, self._stored)

    def registration_blocked(self, refusal: Refused) -> None:
        """Shown in /readyz; one line for each new reason."""
        text = f"the controllers refuse this replica: {refusal.code.name}: {refusal.reason}; {refusal.hint}"
        if text != self.status.blocked:
            _log.warning("registration_refused", code=refusal.code.name, reason=refusal.reason, hint=refusal.hint)
        self.status.blocked = text

    def incarnation_ended(self, refusal: Refused) -> None:
        """A newer process of this replica is registered: this one must not go on (S12)."""
        self.role.feed(IncarnationEnded(reason=refusal.reason))

    def begin_anew(self) -> None:
        """The newer process is gone: a new start judges what this directory holds (R3), and follows."""
        _log.warning("begins_anew", meaning="the process that took this one's id is gone")
        self.begins_anew = True
        self.role.feed(Stop())

    async def persist_identity(self, identity: Identity) -> None:
        await self._loop.run_in_executor(self._disk, self._files.identity.store, identity)
        _log.info("identity_stored", broker_id=identity.broker_id)

    # --- actions of the role machine ---------------------------------------------------------------------------------

    def _follow(self, action: StartSlaveLink) -> None:
        self._no_sends_since_s = None
        self.following.start(action.generation, action.target)

    def _prepare_master(self, action: PrepareMaster) -> None:
        """Everything but the permission to append."""
        assert self._registration.broker_id is not None, "a session came first"
        context = ReignContext(
            set_key=self._config.set_key,
            broker_id=self._registration.broker_id,
            incarnation=self._process.incarnation,
            address=self._config.description.address,
            log=self._log,
            links=self.ends.server,
            waiters=self.put,
            gate=self.gate,
            timing=self.settings.timing,
            ask=self._ask,
            on_phase=self._phase_reached,
            on_drained=lambda epoch: self.role.feed(Drained(master_epoch=epoch)),
            on_refused=lambda epoch, reason: self.role.feed(ReignRefused(master_epoch=epoch, reason=reason)),
            on_moved=self.writes.moved,
        )
        self._reign = Mastership(context, action)
        self._reign.open_links()

    def _leave_master(self, action: LeaveMaster) -> None:
        """The reign ends: no append, no release, no link of a slave any more (R12, R17)."""
        _log.info("reign_left", master_epoch=action.master_epoch, why=action.reason)
        reign, self._reign = self._reign, None
        if reign is not None:
            # A goodbye tells since when the producers of this reign wait.
            self._no_sends_since_s = self._loop.time() - reign.drained_us / 1_000_000
            reign.leave(action.reason, self._master_address())
            # Sends that waited for the end of a handover are refused now, with the address of the new master.
            self.listen.room_is_ready()

    def _adopt_view(self, action: AdoptView) -> None:
        """The controllers' state of the set, for the required set of the reign (R2)."""
        if self._reign is not None:
            self._reign.adopt(action.view)

    def _publish(self, action: PublishRole) -> None:
        """The gate first (rule 2), then the clients that watch the route."""
        master = None if action.master is None else named_in(self.machine.view, action.master)
        _log.info("role", state=action.state, master_epoch=action.master_epoch, master=master, why=action.reason)
        if action.state is BrokerState.MASTER and self._reign is not None:
            self._reign.serve()
            self.writes.begin()
        else:
            self.gate.close(f"{action.state}: {action.reason}", action.master_epoch, self._master_address())
        self.listen.route_moved()
        self.consuming.standing_moved()

    def _phase_reached(self, epoch: MasterEpoch, phase: Phase) -> None:
        self.role.feed(PhaseReached(master_epoch=epoch, phase=phase, reached_at_us=self._parts.now_us()))

    def _first_ack(self, epoch: MasterEpoch, at_us: int, waited_us: int | None) -> None:
        self.role.feed(
            PhaseReached(master_epoch=epoch, phase=Phase.FIRST_ACK, reached_at_us=at_us, waited_us=waited_us)
        )

    def _send_entered(self, action: SendEntered) -> None:
        epoch = action.report.master_epoch
        _log.info("entered", master_epoch=epoch, start=action.report.start_offset)

        def answered(future: asyncio.Future[AnyReply]) -> None:
            # A lost answer and an overloaded leader are no answer: taken for one, the report would not be sent again,
            # and the set would elect another master at the deadline.
            is_definite = not future.cancelled() and future.exception() is None
            if is_definite and isinstance(reply := future.result(), Refused):
                is_definite = reply.code is not RefusalCode.OVERLOADED
            self.role.feed(EnteredAnswered(master_epoch=epoch, is_definite=is_definite))

        self._ask(action.report).add_done_callback(answered)

    def _start_draining(self, action: StartDraining) -> None:
        """The reign goes on, without new sends."""
        _log.info("draining", master_epoch=action.master_epoch)
        if self._reign is not None:
            self._reign.drain(may_serve_again=self.machine.goal.kind is GoalKind.REIGN)

    def _stop_draining(self, action: StopDraining) -> None:
        """The gate first: sends that waited for another master are taken here."""
        _log.info("serves_again", master_epoch=action.master_epoch)
        if self._reign is not None:
            self._reign.serve_again()
        self.listen.room_is_ready()

    def _tell_stop(self, action: TellStop) -> None:
        """The controllers elect another master, or show this slave to its master as about to stop."""
        speaker = self._speaker()
        if speaker is None:
            return  # asked again with the next session
        command = AnnounceStop(**speaker, master_epoch=action.master_epoch, drained_us=self._drained_us())
        self._ask_to_leave(command)

    def _tell_drained(self, action: TellDrained) -> None:
        """The controllers elect the target of the order (R29)."""
        broker_id = self._registration.broker_id
        assert broker_id is not None, "a master is registered"
        command = ReportDrained(
            set_key=self._config.set_key,
            broker_id=broker_id,
            incarnation=self._process.incarnation,
            master_epoch=action.master_epoch,
            drained_us=self._drained_us(),
            order=action.order,
        )
        self._ask_to_leave(command)

    def _drained_us(self) -> int:
        return self._reign.drained_us if self._reign is not None else 0

    def _ask_to_leave(self, command: AnnounceStop | ReportDrained) -> None:
        def answered(future: asyncio.Future[AnyReply]) -> None:
            if future.cancelled() or future.exception() is not None:
                self.role.feed(StopAnswered(is_over=False))
                return
            reply = future.result()
            if isinstance(reply, Elected):
                self.view_arrived(reply.view, 0)
            elif isinstance(reply, Refused):
                _log.info("nobody_to_leave_to", code=reply.code.name, reason=reply.reason)
                # Not even looked at, or in a moment: the same order may be accepted then.
                is_over = reply.code not in (RefusalCode.OVERLOADED, RefusalCode.EVIDENCE_MOVED)
                self.role.feed(StopAnswered(is_over=is_over))

        self._ask(command).add_done_callback(answered)

    def _send_link_report(self, action: SendLinkReport) -> None:
        """Whether the link to the master stands, as this replica sees it (R13)."""
        speaker = self._speaker()
        if speaker is None:
            return
        self.session.report_link(
            LinkReport(
                **speaker,
                master=action.master,
                master_epoch=action.master_epoch,
                is_open=action.is_open,
                closed_age_us=None if action.is_open else self.following.ended_age_us(action.master_epoch),
                heard_age_us=self.following.heard_age_us(action.master_epoch),
            )
        )

    def _report_milestone(self, action: ReportMilestone) -> None:
        """Part of the record."""
        self.session.report(action.milestone, reached_at_us=action.reached_at_us)

    async def _say_goodbye(self, clean_mark: CleanMark) -> None:
        speaker = self._speaker()
        if speaker is None:
            raise SessionUnavailable("no session is open")
        since_s = self._no_sends_since_s
        stopped_us = None if since_s is None else int((self._loop.time() - since_s) * 1_000_000)
        command = SayGoodbye(**speaker, clean_mark=clean_mark, stopped_us=stopped_us)
        await self.session.ask(command)

    def _speaker(self) -> dict[str, Any] | None:
        """This replica, as an order of its open session names it; None: none is open."""
        ordinal, broker_id = self.session.ordinal, self._registration.broker_id
        if ordinal is None or broker_id is None:
            return None
        return {
            "set_key": self._config.set_key,
            "broker_id": broker_id,
            "incarnation": self._process.incarnation,
            "session_ordinal": ordinal,
        }

    def _alarm(self, action: RaiseAlarm) -> None:
        _log.error("alarm", reason=action.reason)
        self.raise_alarm(action.reason)

    def raise_alarm(self, reason: str) -> None:
        """Shown in /readyz and counted."""
        self.status.alarm = reason

    def _exit(self, action: ExitProcess) -> None:
        if not self.ended.done():
            self.ended.set_result(Ending(is_clean=action.is_clean))

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
        if self._reign is not None:
            self._reign.slave_acked(ack)

    def slave_closed(self, broker_id: BrokerId, link_generation: int, code: ErrorCode | None, detail: str) -> None:
        """A link is gone."""
        if self._reign is None:
            return
        if code is ErrorCode.RECORD_DAMAGED:
            self._damage.refused(broker_id, self._reign.sync.acked(broker_id), detail)
        self._reign.slave_closed(broker_id, link_generation, code, detail)

    def is_required(self, broker_id: BrokerId) -> bool:
        """Whether sends wait for its acks."""
        return self._reign is not None and broker_id in self._reign.sync.required_set

    def higher_epoch_seen(self, master_epoch: MasterEpoch, broker_id: BrokerId, incarnation: Incarnation) -> None:
        """A slave shows a higher epoch: the controllers know whether there is one (R21)."""
        by = named_in(self.machine.view, broker_id)
        _log.info("higher_epoch_shown", by=by, incarnation=incarnation, master_epoch=master_epoch)
        self.role.feed(HigherEpochShown(master_epoch=master_epoch))
        self.session.look_up()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _ask(self, command: Value) -> asyncio.Future[AnyReply]:
        return self._loop.create_task(self.session.ask(command))

    def _write_facts(self) -> tuple[BrokerId, WriteFacts] | None:
        """The reign as a sender meets it; None = no master, or one that stops on purpose."""
        broker_id = self._registration.broker_id
        if broker_id is None:
            return None
        facts = self._reign.write_facts() if self._reign is not None else None
        if facts is not None:
            facts = replace(
                facts,
                disk_trouble=self.status.append_trouble(self.put),
                waiting_since_us=self.put.waiting_since_us,
                room_wanted_since_us=self.listen.room_wanted_since_us,
            )
        else:
            machine, incarnation = self.machine, self._process.incarnation
            facts = fenced_facts(machine.view, machine.published, broker_id=broker_id, incarnation=incarnation)
        return None if facts is None else (broker_id, replace(facts, released_us=self.put.released_us))

    def _log_extended(self) -> None:
        if self._reign is not None:
            self._reign.log_extended()

    def _log_synced(self, end: LogOffset) -> None:
        self.following.log_synced(end)
        if self._reign is not None:
            self._reign.log_synced(end)

    def _log_has_room(self) -> None:
        self.following.log_has_room()
        self.listen.room_is_ready()

    def _master_address(self) -> str:
        view = self.machine.view
        if view is None or view.master is None:
            return ""
        return next((one.description.address for one in view.members if one.broker_id == view.master), "")
