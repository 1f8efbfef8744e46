"""
One life of a broker in the simulation: the shell around ``RoleMachine``, ``SyncState``, links, acks and the log.

Here: what ``broker.server`` and ``ha.service`` do with sockets and tasks, done with simulated ones.
Not here: any rule. What decides is the production machine; the log and the small files are the product's own, on real
files under a simulated disk (``tests.support.sim_files``).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from rollcall_ha.broker.core.acks import WaitingSends
from rollcall_ha.broker.core.durable import EpochMarks, Identity, ProcessIdentity, ProcessStarts
from rollcall_ha.broker.core.producers import ProducerStamp, SequenceVerdict
from rollcall_ha.broker.core.registration import Registration, ReplicaFacts
from rollcall_ha.broker.core.role import RoleMachine
from rollcall_ha.broker.core.role_io import (
    AdoptView,
    CloseLog,
    EnteredAnswered,
    ExecuteCut,
    ExitProcess,
    LeaveMaster,
    PersistMarks,
    PersistView,
    PrepareMaster,
    PublishRole,
    RaiseAlarm,
    RecordEpochEntry,
    Recovered,
    RecoveryStarted,
    ReignRefused,
    RemoveCleanMark,
    ReportMilestone,
    ResumeSlaveLink,
    RoleAction,
    RoleInput,
    RoleTick,
    SayGoodbyeTo,
    SendEntered,
    SendLinkReport,
    SessionEstablished,
    StartSlaveLink,
    Step,
    StepDone,
    StepFailed,
    Stop,
    StopSlaveLink,
    ViewArrived,
    WriteCleanMark,
)
from rollcall_ha.broker.identity import disown, marks_on_disk
from rollcall_ha.broker.log.checkpoint import CheckpointError
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.cut import CutUnfinishedError
from rollcall_ha.broker.log.ports import CutReason, CutRefusedError
from rollcall_ha.broker.log.record import RecordError
from rollcall_ha.broker.log.segment import SegmentError
from rollcall_ha.broker.replica_files import MARKS_FILE_NAME, MarksFile, ReplicaFiles, StoreMark
from rollcall_ha.broker.server import NOT_OF_THE_DISK
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import AlterSyncStateSet, RecordMilestones, SayGoodbye
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    Incarnation,
    LogOffset,
    MasterEpoch,
    RegisterCode,
    SessionOrdinal,
    SetKey,
)
from rollcall_ha.controller.contract.replies import AlterDecided, Refused, Registered, SetView
from rollcall_ha.controller.contract.session import (
    BrokerState,
    Heartbeat,
    LeaderHint,
    ProbeAnswer,
)
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.contract.values import (
    CleanMark,
    Joining,
    Milestone,
    Positions,
    ReplicaDescription,
    SetConfiguration,
    StoredView,
)
from rollcall_ha.epoch.codec import EpochFileCorrupt
from rollcall_ha.epoch.history import EpochOrderError
from rollcall_ha.epoch.model import EpochEntry
from rollcall_ha.epoch.store import EpochFileMissing
from rollcall_ha.ha.sync_state import (
    ConfirmMoved,
    MastershipEnded,
    MemberInSync,
    ProposeAlter,
    ReignStart,
    SyncOutput,
    SyncState,
)
from rollcall_ha.ha.truncation import Cut, FullResync, TruncationPlan
from rollcall_ha.node.files import DirectoryError
from tests.sim.links import HaService
from tests.sim.log import STORE_HOST, ReplicaDisk, draft_of
from tests.sim.log_laws import LogLaws
from tests.sim.oracle import Oracle
from tests.sim.session import BrokerSession
from tests.sim.wire import NotAppended, Probe, Pull, Pulled, PutOk, PutUnknown, Send
from tests.support.sim_kernel import MS, Process, Timer
from tests.support.sim_net import End, SimNet

UNUSABLE = (DirectoryError, SegmentError, EpochFileMissing, EpochFileCorrupt, CheckpointError, RecordError)
"""A start refuses this folder: an operator has to replace it (exit code 65)."""
INDEX_STEP_BYTES = 1000
FULL = (errno.ENOSPC, errno.EDQUOT)


class Exit(Enum):
    """How a process ended itself, but for a clean stop."""

    STORAGE = "storage"
    """A write or a sync failed: a supervisor starts it again."""
    DIRECTORY = "directory"
    """Its folder is damaged: starting it again does not help."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """What an operator configured for one replica; the same in every life."""

    name: str
    """Of the host."""
    set_key: SetKey
    description: ReplicaDescription
    configuration: SetConfiguration
    controllers: tuple[str, ...]
    timing: Timing
    segment_bytes: int


@dataclass(frozen=True, slots=True)
class _Waiter:
    """Who waits for a confirm; None = nobody hears the answer."""

    end: End
    ask: Send
    record_end: LogOffset
    is_duplicate: bool


@dataclass(slots=True)
class _Reign:
    """What exists only while this process is master of one epoch."""

    master_epoch: MasterEpoch
    start_offset: LogOffset
    sync: SyncState
    acks: WaitingSends[_Waiter]
    is_over: bool = False
    alter_attempts: int = 0


class BrokerNode:
    """See the module. Made anew for each life of the process."""

    def __init__(
        self, *, plan: BrokerPlan, process: Process, net: SimNet, disk: ReplicaDisk, oracle: Oracle, laws: LogLaws
    ) -> None:
        self.plan = plan
        self.process = process
        self.disk = disk
        self.files = ReplicaFiles(disk.files.folder)
        self.oracle = oracle
        self.laws = laws
        self.kernel = process.kernel
        self.counts = process.kernel.counts
        self.incarnation = Incarnation(self.kernel.hex_digits())
        self.log: CommitLog
        """Since it was recovered."""
        self.role = RoleMachine(
            set_key=plan.set_key, incarnation=self.incarnation, is_learner=plan.description.is_learner
        )
        self.published = self.role.published
        self.broker_id: BrokerId | None = None
        self.reign: _Reign | None = None
        self.view: SetView | None = None
        self.stored: StoredView | None = None
        self.is_exited = False
        self.alarms: list[str] = []
        self.before_a_cut: Callable[[], None] = lambda: None
        self.on_exit: Callable[[Exit, BaseException], None] = lambda _exit, _error: None
        self.has_an_id: Callable[[BrokerId], None] = lambda _broker_id: None
        self.net = net
        self._role_timer: Timer | None = None
        self._is_flush_due = False
        self._is_stepping = False
        self.session = BrokerSession(self)
        self.ha = HaService(self, net)
        self._milestones: list[Milestone] = []
        self._inputs: list[RoleInput] = []

    # --- clocks ---

    def now_us(self) -> int:
        """Monotonic clock of the host."""
        return self.process.host.monotonic_us()

    def now_ms(self) -> int:
        """The same in milliseconds."""
        return self.now_us() // MS

    # --- life ---

    def start(self) -> None:
        """Read the disk, then register."""
        self.tell(RecoveryStarted())
        self.process.after(self.kernel.random.randrange(1, 30) * MS, "recovered", self._recover)

    def _recover(self) -> None:
        """As ``broker.server``: the log, then the small files."""
        try:
            self.log = self._open_log()
            facts, identity, marks = self._remember()
        except OSError as error:
            self._failed(error)
            return
        except UNUSABLE as error:
            self._end(Exit.DIRECTORY, error)
            return
        self.disk.log = self.log
        report, last = self.log.recovery, self.log.history.last
        if last is not None:
            self.oracle.recovered(self.plan.set_key, self.plan.name, last.start_offset, self.log.max_offset)
        self.counts.add("torn bytes", report.torn_bytes)
        self.counts.add("interrupted cuts finished", int(report.finished_cut))
        self.counts.add("epochs dropped at start", len(report.dropped_epochs))
        self.counts.add("logs that lack synced bytes", int(bool(report.lost)))
        if identity is not None and identity.broker_id is not None:
            self.identified(identity.broker_id)
        self.log.subscribe_flushed(self._flushed)
        self.tell(Recovered(marks=marks, has_clean_mark=facts.clean_mark is not None))
        listen = self.plan.description.address
        self.net.listen(self.process, listen, self._accept)
        self.ha.start()
        self.session.start(Registration(facts, identity))
        self._flush_tick()
        self._sync_tick()

    def _open_log(self) -> CommitLog:
        return CommitLog.open(
            self.disk.files.folder,
            segment_bytes=self.plan.segment_bytes,
            flush_mode=self.plan.configuration.flush,
            store_host=STORE_HOST,
            stop_process=self._failed,
            post=lambda call: self.process.after(self.kernel.random.randrange(300), "posted", call),
            flush_interval_ms=200,
            now_ms=self.process.host.wall_ms,
            on_loss=self.files.store.remove,
            on_flush_due=self._flush_soon,
            clock_s=lambda: self.now_us() / 1_000_000,
        )

    def _remember(self) -> tuple[ReplicaFacts, Identity | None, EpochMarks]:
        files, hex_digits = self.files, self.kernel.hex_digits
        identity = files.identity.load()
        store = files.store.load()
        if store is None:
            store = StoreMark(store_id=hex_digits())
            files.store.store(store)
        starts = files.starts.load() or ProcessStarts()
        files.starts.store(starts.with_start(self.incarnation))
        facts = ReplicaFacts(
            set_key=self.plan.set_key,
            process=ProcessIdentity(
                incarnation=self.incarnation,
                boot_id=self.process.host.boot_id,
                store_id=store.store_id,
                previous_incarnations=starts.incarnations,
            ),
            description=self.plan.description,
            configuration=self.plan.configuration,
            clean_mark=files.clean_mark.load(),
            new_register_code=RegisterCode(hex_digits()),
        )
        marks, self.stored = marks_on_disk(files), files.view.load()
        return facts, identity, marks

    def _failed(self, error: BaseException) -> None:
        """
        The process must not go on. After a failed write or sync its store proves nothing any more (R3b).

        Rules of ``broker.server``: ``_disown_after``.
        """
        if not self.process.is_alive:
            return
        cause = error if isinstance(error, OSError) else error.__cause__
        if isinstance(cause, OSError) and cause.errno not in NOT_OF_THE_DISK:
            disown(self.files)
        self._end(Exit.STORAGE, error)

    def _end(self, how: Exit, error: BaseException) -> None:
        self.counts.add(f"brokers ended themselves: {how.value}")
        self.kernel.note(f"{self.plan.name} ends itself: {how.value}: {type(error).__name__}")
        self.on_exit(how, error)

    def identified(self, broker_id: BrokerId) -> None:
        """It has an id from here on."""
        self.broker_id = broker_id
        self.has_an_id(broker_id)

    def durable_marks(self) -> EpochMarks:
        """As they are on disk, by another reader."""
        return MarksFile(self.disk.files.folder / MARKS_FILE_NAME).load()

    def stop(self) -> None:
        """SIGTERM."""
        self.tell(Stop())

    def _flush_tick(self) -> None:
        """The flush thread's interval."""
        self._flush()
        self.process.after(self.kernel.random.randrange(120, 360) * MS, "flush", self._flush_tick)

    def _flush_soon(self) -> None:
        """Somebody waits for a sync, or for the next segment."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self.process.after(self.disk.files.delay_us(), "flush now", self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self.ha.is_cutting:
            self._flush_soon()
        else:
            self.log.flush_turn()

    def _flushed(self, end: LogOffset) -> None:
        reign = self.reign
        if reign is not None and not reign.is_over:
            self._sync_outputs(reign, reign.sync.log_synced(end))
        self.ha.log_flushed()

    def _sync_tick(self) -> None:
        reign = self.reign
        if reign is not None:
            self._sync_outputs(reign, reign.sync.tick(self.now_ms()))
        self.ha.tick()
        if self._milestones and self.session.is_open and self.broker_id is not None:
            batch, self._milestones = tuple(self._milestones), []
            self.session.ask(RecordMilestones(set_key=self.plan.set_key, milestones=batch), lambda _body: None)
        self.process.after(50 * MS, "broker tick", self._sync_tick)

    # --- the role machine ---

    def tell(self, event: RoleInput) -> None:
        """One input, after those that wait; then do what the machine asks for."""
        self._inputs.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._inputs:
                for action in self.role.handle(self._inputs.pop(0), now_us=self.now_us()):
                    self._do(action)
        finally:
            self._is_stepping = False
        self._arm_role_timer()

    def _arm_role_timer(self) -> None:
        if self._role_timer is not None:
            self._role_timer.cancel()
            self._role_timer = None
        due_us = self.role.next_due_us
        if due_us is not None:
            self._role_timer = self.process.after(due_us - self.now_us(), "role tick", lambda: self.tell(RoleTick()))

    def _do(self, action: RoleAction) -> None:
        if isinstance(action, Step):
            self._step(action)
        elif not self.process.is_alive:
            return
        elif isinstance(action, StartSlaveLink):
            self.ha.start_slave_link(action.generation, action.target)
        elif isinstance(action, ResumeSlaveLink):
            self.ha.resume_slave_link(action.generation)
        elif isinstance(action, LeaveMaster):
            self._leave(action.master_epoch, action.reason)
        elif isinstance(action, AdoptView):
            self._adopt(action.view)
        elif isinstance(action, PublishRole):
            self._publish(action)
        elif isinstance(action, PersistView):
            self._store_view(action.stored)
        elif isinstance(action, SendEntered):
            report = action.report
            self.session.ask(report, lambda body: self._entered_answered(report.master_epoch, body))
        elif isinstance(action, SendLinkReport):
            self.session.link_report(action.master, action.master_epoch, is_open=action.is_open)
        elif isinstance(action, ReportMilestone):
            self._milestones.append(action.milestone)
        elif isinstance(action, RaiseAlarm):
            self.alarms.append(action.reason)
            self.counts.add("alarms")
            self.kernel.note(f"{self.plan.name} alarm: {action.reason}")
        elif isinstance(action, ExitProcess):
            self.is_exited = True
            self.counts.add("clean stops", int(action.is_clean))
            self.process.after(0, "exit", self.process.kill)

    def _store_view(self, stored: StoredView) -> None:
        """A full disk costs the newest view; any other error the process."""
        try:
            self.files.view.store(stored)
            self.stored = stored
        except OSError as error:
            if error.errno not in FULL:
                self._failed(error)

    def _entered_answered(self, epoch: MasterEpoch, body: object) -> None:
        is_definite = body is not None and not isinstance(body, LeaderHint)
        self.tell(EnteredAnswered(master_epoch=epoch, is_definite=is_definite))

    def _publish(self, role: PublishRole) -> None:
        self.published = role
        self.kernel.note(f"{self.plan.name} {role.state.value} epoch {role.master_epoch}")
        self.counts.add(f"roles {role.state.value}")
        if role.state is BrokerState.MASTER and self.broker_id is not None:
            self.oracle.became_master(self.plan.set_key, self.broker_id, self.incarnation, role.master_epoch)

    # --- steps ---

    def _step(self, step: Step) -> None:
        """The effect lies somewhere between the order and the answer: a crash in between may find either."""
        # A thread works on the log: the links and the flush wait for the answer.
        self.ha.is_cutting = isinstance(step, ExecuteCut | CloseLog)
        if isinstance(step, StopSlaveLink):
            acked = self.ha.stop_slave_link(step.generation)
            self._answer(step, lambda: StepDone(step=step.step, offset=acked))
        elif isinstance(step, SayGoodbyeTo):
            self._goodbye(step)
        elif isinstance(step, PrepareMaster | RecordEpochEntry):
            self._answer(step, lambda: self._perform(step))
        elif self.kernel.chance(0.5):
            outcome = self._perform(step)
            self._answer(step, lambda: outcome)
        else:
            self._answer(step, lambda: self._perform(step))

    def _answer(self, step: Step, outcome: Callable[[], StepDone | StepFailed | None]) -> None:
        def answer() -> None:
            answered = outcome()
            self.ha.is_cutting = False
            if answered is not None:
                self.tell(answered)

        self.process.after(self.disk.files.delay_us(), type(step).__name__, answer)

    def _perform(self, step: Step) -> StepDone | StepFailed | None:
        """As ``broker.role_shell``: a full disk fails the step, any other error of the disk ends the process."""
        try:
            return self._perform_or_raise(step)
        except (CutRefusedError, RecordError, EpochOrderError) as error:
            return StepFailed(step=step.step, reason=str(error), is_fatal=True)
        except OSError as error:
            if error.errno in FULL:
                return StepFailed(step=step.step, reason=str(error))
            self._failed(error)
        except CutUnfinishedError as error:
            self._failed(error)
        return None

    def _perform_or_raise(self, step: Step) -> StepDone:
        offset: LogOffset | None = None
        mark: CleanMark | None = None
        if isinstance(step, RemoveCleanMark):
            self.files.clean_mark.remove()
        elif isinstance(step, PersistMarks):
            self.oracle.marks_written(self.plan.name, self.durable_marks(), step.marks)
            self.files.store_marks(step.marks)
        elif isinstance(step, RecordEpochEntry):
            offset = self._begin_epoch(step.master_epoch)
        elif isinstance(step, PrepareMaster):
            self.oracle.reign_prepared(self.plan.name, step.start_offset, self.log.max_offset)
            self.log.extend_index(self.log.unindexed_bytes)
            self._begin_reign(step)
        elif isinstance(step, ExecuteCut):
            self._cut(step.plan)
        elif isinstance(step, CloseLog):
            self.disk.log = None
            offset = self.log.close(is_clean=True)
        elif isinstance(step, WriteCleanMark):
            mark = CleanMark(nonce=self.kernel.hex_digits(), end_offset=step.end_offset)
            self.files.clean_mark.store(mark)
        return StepDone(step=step.step, offset=offset, clean_mark=mark)

    def _begin_epoch(self, epoch: MasterEpoch) -> LogOffset:
        """R12: behind the last whole record."""
        log = self.log
        if log.whole_offset < log.max_offset:
            self.counts.add("half records dropped")
            log.execute_cut(log.plan_cut(log.whole_offset, CutReason.TORN_TAIL, "the master went away mid-record"))
        entry = EpochEntry(epoch=epoch, start_offset=log.max_offset)
        if log.history.last != entry:
            self.record_epoch(entry)
        return entry.start_offset

    def record_epoch(self, entry: EpochEntry) -> None:
        """Durable on return; the oracle looks on. Raises ``OSError``."""
        self.log.record_epoch(entry)
        self.oracle.epoch_recorded(self.plan.set_key, self.broker_id, entry.epoch, entry.start_offset)

    def _cut(self, plan: TruncationPlan) -> None:
        log, end = self.log, self.log.max_offset
        self.before_a_cut()
        if isinstance(plan, FullResync):
            self.counts.add("full resyncs")
            log.set_aside(plan.start_offset, plan.reason)
        elif isinstance(plan, Cut):
            log.execute_cut(log.plan_cut(plan.point, CutReason.TRUNCATION, "the master's history differs"))
        self.disk.files.dies_in_calls = 0
        self.counts.add("truncations", int(log.max_offset < end))
        self.counts.add("bytes truncated", end - log.max_offset)
        self.ha.was_cut()

    def _goodbye(self, step: SayGoodbyeTo) -> None:
        assert self.broker_id is not None
        goodbye = SayGoodbye(
            set_key=self.plan.set_key,
            broker_id=self.broker_id,
            incarnation=self.incarnation,
            session_ordinal=self.session.ordinal or SessionOrdinal(0),
            clean_mark=step.clean_mark,
        )
        self.session.ask(goodbye, lambda _body: self.tell(StepDone(step=step.step)))

    # --- the reign ---

    def _begin_reign(self, step: PrepareMaster) -> None:
        view, timing, configuration = step.view, self.plan.timing, step.view.configuration
        assert self.broker_id is not None
        reign = ReignStart(
            broker_id=self.broker_id,
            incarnation=self.incarnation,
            fleet_incarnation=view.fleet_incarnation,
            master_epoch=step.master_epoch,
            start_offset=step.start_offset,
            confirm_offset=min(self.log.confirm_offset, step.start_offset),
            sync_state_set=view.sync_state_set,
            sync_state_set_epoch=view.sync_state_set_epoch,
            min_in_sync=configuration.effective_min_in_sync,
            flush=configuration.flush,
            catch_up_timeout_ms=timing.catch_up_timeout_ms,
            survivors_wait_ms=timing.survivors_wait_ms,
            alter_retry_ms=200,
            stall_ms=timing.stall_ms,
        )
        sync = SyncState(reign, log_end=self.log.max_offset, now_ms=self.now_ms())
        acks: WaitingSends[_Waiter] = WaitingSends(
            step.master_epoch, waiting_messages_max=1_000, waiting_bytes_max=1 << 20
        )
        self.reign = _Reign(step.master_epoch, step.start_offset, sync, acks)
        self.ha.reign_opened(step.view)
        self._sync_outputs(self.reign, sync.log_synced(self.log.flushed_offset))

    def _leave(self, epoch: MasterEpoch, reason: str) -> None:
        reign = self.reign
        if reign is None or reign.master_epoch != epoch:
            return
        self.reign = None
        self._fail_waiters(reign, reason)
        self.ha.reign_ended(reason)

    def _fail_waiters(self, reign: _Reign, reason: str) -> None:
        reign.is_over = True
        for waiter in reign.acks.fail_all():
            self.counts.add("waiters failed as unknown")
            waiter.end.send(PutUnknown(waiter.ask.number, reason))

    def _adopt(self, view: SetView) -> None:
        reign = self.reign
        if reign is not None:
            outputs = reign.sync.authoritative_state(
                fleet_incarnation=view.fleet_incarnation,
                master_epoch=view.master_epoch,
                master=view.master,
                master_incarnation=view.master_incarnation,
                sync_state_set=view.sync_state_set,
                sync_state_set_epoch=view.sync_state_set_epoch,
                now_ms=self.now_ms(),
            )
            self._sync_outputs(reign, outputs)

    def sync_outputs(self, make: Callable[[SyncState], list[SyncOutput]]) -> None:
        """Let the SyncStateSet machine of the running reign take an input."""
        if self.reign is not None:
            self._sync_outputs(self.reign, make(self.reign.sync))

    def check_required_set(self) -> None:
        """D7: after every input of ``SyncState``, and after every entry that the controllers apply."""
        reign = self.reign
        if reign is not None and not reign.is_over and self.broker_id is not None:
            self.oracle.required_set(self.plan.set_key, self.broker_id, reign.master_epoch, reign.sync.required_set)

    def _sync_outputs(self, reign: _Reign, outputs: list[SyncOutput]) -> None:
        self.check_required_set()
        for output in outputs:
            if isinstance(output, ConfirmMoved):
                acks = {
                    member: reign.sync.acked(member) for member in reign.sync.required_set if member != self.broker_id
                }
                self.laws.confirmed(self.plan.set_key, reign.master_epoch, output.offset, acks)
                self._release(reign, output.offset)
            elif isinstance(output, ProposeAlter):
                self._propose_alter(reign, output)
            elif isinstance(output, MastershipEnded):
                self._fail_waiters(reign, output.reason)
                self.tell(ReignRefused(master_epoch=reign.master_epoch, reason=output.reason))
            elif isinstance(output, MemberInSync):
                self.counts.add("members in sync")

    def _release(self, reign: _Reign, confirm: LogOffset) -> None:
        if reign.is_over or self.reign is not reign:
            return
        self.log.note_confirm(confirm, LogOffset(0))
        for waiter in reign.acks.release(confirm):
            ask = waiter.ask
            self.oracle.released(self.plan.set_key, waiter.record_end, reign.master_epoch, reign.sync.reign.min_in_sync)
            self.log.note_confirm(confirm, waiter.record_end)
            end = LogOffset(0) if waiter.is_duplicate else waiter.record_end
            waiter.end.send(PutOk(ask.number, end, reign.master_epoch, waiter.is_duplicate))

    def _propose_alter(self, reign: _Reign, alter: ProposeAlter) -> None:
        reign.alter_attempts += 1
        assert self.broker_id is not None
        command = AlterSyncStateSet(
            set_key=self.plan.set_key,
            broker_id=self.broker_id,
            incarnation=self.incarnation,
            master_epoch=alter.master_epoch,
            seq=alter.seq,
            sync_state_set_epoch=alter.sync_state_set_epoch,
            new_set=alter.new_set,
            joining=tuple(Joining(broker_id=broker_id, incarnation=inc) for broker_id, inc in alter.joining),
        )

        self.oracle.proposed_alter(command, reign.start_offset)

        def answered(body: object) -> None:
            if self.reign is reign:
                self._alter_answered(reign, body)

        self.session.ask(command, answered)

    def _alter_answered(self, reign: _Reign, body: object) -> None:
        if isinstance(body, AlterDecided):
            verdict = body.verdict
            outputs = reign.sync.verdict(
                master_epoch=verdict.master_epoch,
                seq=verdict.seq,
                is_accepted=verdict.is_accepted,
                sync_state_set=verdict.sync_state_set,
                sync_state_set_epoch=verdict.sync_state_set_epoch,
                now_ms=self.now_ms(),
            )
            self._sync_outputs(reign, outputs)
        elif isinstance(body, Refused) and body.code in (
            RefusalCode.FENCED_MASTER_EPOCH,
            RefusalCode.FENCED_INCARNATION,
            RefusalCode.INVALID_MASTER,
        ):
            self._sync_outputs(reign, reign.sync.mastership_refused(body.reason))

    # --- what the session hears ---

    def registered(self, reply: Registered) -> None:
        """A session is open."""
        self.view = reply.view
        self.ha.view_arrived(reply.view)
        self.tell(SessionEstablished(registered=reply))
        reign = self.reign
        if reign is not None and reign.sync.outstanding is not None and not reign.is_over:
            self._propose_alter(reign, reign.sync.outstanding)

    def view_arrived(self, view: SetView) -> None:
        """A push, or a heartbeat's answer."""
        self.view = view
        self.ha.view_arrived(view)
        self.tell(ViewArrived(view=view))

    def stored_view(self) -> StoredView | None:
        """What it last heard, as its disk has it (R7)."""
        return self.stored

    def positions(self) -> Positions:
        """By its own word."""
        return Positions(
            last_epoch=self.log.history.last_epoch,
            max_offset=self.log.max_offset,
            confirm_offset=self.log.confirm_offset,
            released=self.log.released_offset,
        )

    def heartbeat(self, ordinal: SessionOrdinal) -> Heartbeat:
        """As of now."""
        assert self.broker_id is not None
        view = self.view
        return Heartbeat(
            set_key=self.plan.set_key,
            broker_id=self.broker_id,
            incarnation=self.incarnation,
            session_ordinal=ordinal,
            state=self.published.state,
            is_ready=self.role.is_ready,
            positions=self.positions(),
            known_master_epoch=view.master_epoch if view is not None else MasterEpoch(-1),
            known_set_epoch=view.sync_state_set_epoch if view is not None else -1,  # type: ignore[arg-type]
        )

    # --- clients and probes ---

    def _accept(self, end: End) -> None:
        end.on_message = lambda message: self._client(end, message)

    def _client(self, end: End, message: object) -> None:
        if isinstance(message, Probe):
            answer = ProbeAnswer(
                set_key=self.plan.set_key,
                broker_id=self.broker_id,
                incarnation=self.incarnation,
                state=self.published.state,
            )
            end.send(answer)
        elif isinstance(message, Send):
            self._put(end, message)
        elif isinstance(message, Pull):
            self._pull(end, message)

    def _refuse(self, end: End, ask: Send, reason: str) -> None:
        self.counts.add("sends refused")
        members = self.view.members if self.view is not None else ()
        masters = [one.description.address for one in members if one.broker_id == self.published.master]
        end.send(NotAppended(ask.number, reason, masters[0] if masters else None))

    def _put(self, end: End, ask: Send) -> None:
        reign = self.reign
        is_serving = (
            reign is not None
            and not reign.is_over
            and self.published.state is BrokerState.MASTER
            and self.published.master_epoch == reign.master_epoch
        )
        if reign is None or not is_serving:
            self._refuse(end, ask, f"not master: {self.published.reason}")
            return
        if not reign.sync.may_release or not reign.acks.has_room():
            self._refuse(end, ask, "min_in_sync or no room")
            return
        stamp = ProducerStamp(ask.producer_id, ask.producer_epoch, ask.sequence)
        verdict = self.log.producers.judge(stamp)
        if verdict is SequenceVerdict.DUPLICATE:
            self.counts.add("duplicates answered")
            record_end = self.log.max_offset
            if reign.sync.confirm_offset >= record_end:
                end.send(PutOk(ask.number, LogOffset(0), reign.master_epoch, True))
                return
            reign.acks.register(record_end, _Waiter(end, ask, record_end, True), messages=1, size_bytes=1)
            return
        if verdict is not SequenceVerdict.ACCEPT:
            self._refuse(end, ask, f"sequence {verdict.value}")
            return
        try:
            self.laws.appended(self.plan.name, reign.master_epoch, self.log.history.last_epoch)
            self.log.begin_run(stored_at_ms=self.process.host.wall_ms())
            self.log.append(draft_of(stamp, ask.value))
        except OSError:
            self._refuse(end, ask, "disk full")
            return
        record_end = self.log.end_run()
        self.counts.add("messages appended")
        reign.acks.register(record_end, _Waiter(end, ask, record_end, False), messages=1, size_bytes=1)
        self._sync_outputs(reign, reign.sync.log_extended(record_end))
        self.ha.log_grew()

    def _pull(self, end: End, ask: Pull) -> None:
        """R19: until confirm reaches the own epoch's start, an offset up to the log's end is legal and asks for a retry."""
        reign = self.reign
        if reign is None or reign.is_over:
            return
        confirm = reign.sync.confirm_offset
        limit = self.log.max_offset if confirm < reign.start_offset else confirm
        is_legal, max_offset, next_offset = ask.offset <= limit, self.log.max_offset, max(ask.offset, confirm)
        self.oracle.pulled(self.plan.set_key, reign.master_epoch, ask.offset, is_legal=is_legal, max_offset=max_offset)
        if is_legal:
            self.oracle.legal(self.plan.set_key, next_offset, reign.master_epoch)
        end.send(Pulled(ask.number, next_offset, is_legal, max_offset))
