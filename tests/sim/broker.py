"""
One life of a broker in the simulation: the product's own process on a simulated loop, and eyes on what it does.

Here: its configuration, its clocks, draws and threads, its exit, and the places where the oracle looks on. Not here: any
rule, any shell: ``broker.server`` runs as it is, on the files of a simulated disk (``tests.support.sim_files``).
Rule: an eye changes nothing: it calls what it covers, with the same arguments, and keeps its findings to itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rollcall_ha.broker.config import BrokerConfig
from rollcall_ha.broker.consuming.reading import Found
from rollcall_ha.broker.consuming.waiting import WaitingPull
from rollcall_ha.broker.core.durable import EpochMarks
from rollcall_ha.broker.core.role_io import PrepareMaster, PublishRole, TellDrained
from rollcall_ha.broker.folds.consume_queue import UNIT
from rollcall_ha.broker.folds.ports import FoldSizes
from rollcall_ha.broker.handlers import put
from rollcall_ha.broker.log.commit_log import FLUSH_INTERVAL_MS, CommitLog
from rollcall_ha.broker.log.values import CutReason
from rollcall_ha.broker.mastership import Mastership
from rollcall_ha.broker.parts import Parts
from rollcall_ha.broker.protocol.codes import ClientCode
from rollcall_ha.broker.protocol.record import RecordView
from rollcall_ha.broker.replica import Replica
from rollcall_ha.broker.replica_files import MARKS_FILE_NAME, MarksFile
from rollcall_ha.broker.retention.core import Decision
from rollcall_ha.broker.server import serve
from rollcall_ha.broker.session import SessionUnavailable
from rollcall_ha.controller.contract.commands import AlterSyncStateSet
from rollcall_ha.controller.contract.ids import BrokerId, FleetIncarnation, Incarnation, MasterEpoch, SetKey
from rollcall_ha.controller.contract.replies import AnyReply, Refused, Registered
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.settings import Settings
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.contract.values import ReplicaDescription, SetConfiguration, Value
from rollcall_ha.epoch.model import NO_EPOCH, EpochEntry, LogOffset
from rollcall_ha.ha.actions import HigherEpochSeen, LinkReady, SlaveAction
from rollcall_ha.ha.links import FollowTarget
from rollcall_ha.ha.master_link import MasterLinkState
from rollcall_ha.ha.slave_link import SlaveLink
from rollcall_ha.ha.sync_state import ConfirmMoved, SyncOutput
from rollcall_ha.node.config import split_address
from rollcall_ha.node.files import DataDirectory
from rollcall_ha.node.process import ExitCode
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import Frame
from tests.sim.delays import undelivered
from tests.sim.log import ReplicaDisk
from tests.sim.log_laws import Deletion, LogLaws
from tests.sim.oracle import Oracle
from tests.sim.slave_reads import Given
from tests.sim.violation import Violation
from tests.sim.wire import OF_BEFORE
from tests.support.sim_kernel import MS, Died, Process
from tests.support.sim_loop import SimExecutor, SimLoop
from tests.support.sim_net import SimNet


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerPlan:
    """What an operator configured for one replica; the same in every life."""

    name: str
    """Of the host."""
    address: str
    """IP of the host."""
    set_key: SetKey
    description: ReplicaDescription
    configuration: SetConfiguration
    controllers: tuple[str, ...]
    timing: Timing
    segment_bytes: int
    slave_reads: bool = False
    """Its setting of this name is 1."""
    disk_segments: int = 0
    """So many fit on its disk; 0: as many as there are."""
    frees_late_us: int = 0
    """So late its disk shows that a segment is gone."""


@dataclass(frozen=True, slots=True)
class Published:
    """The role that the process shows."""

    state: BrokerState = BrokerState.RECOVERING
    master_epoch: MasterEpoch = NO_EPOCH
    reason: str = "reading the log"


class BrokerNode:
    """See the module. Made anew for each life of the process."""

    def __init__(
        self,
        *,
        plan: BrokerPlan,
        process: Process,
        net: SimNet,
        disk: ReplicaDisk,
        oracle: Oracle,
        laws: LogLaws,
        on_violation: Callable[[Violation], None],
    ) -> None:
        self.plan = plan
        self.process = process
        self.disk = disk
        self.oracle = oracle
        self.laws = laws
        self.kernel = process.kernel
        self.counts = process.kernel.counts
        self.published = Published()
        self.broker_id: BrokerId | None = None
        self.incarnation = Incarnation("")
        self.alarms: list[str] = []
        self.before_a_cut: Callable[[], None] = lambda: None
        self.on_exit: Callable[[ExitCode, str], None] = lambda _code, _reason: None
        self.has_an_id: Callable[[BrokerId], None] = lambda _broker_id: None
        self.replica: Replica | None = None
        self._on_violation = on_violation
        self._stop: asyncio.Event | None = None
        self._is_flush_due = False
        self._freed: list[tuple[int, int]] = []
        """When segments were deleted, and how many."""
        self._acked: dict[int, LogOffset] = {}
        process.life = self
        self.loop = SimLoop(process, net, address=plan.address, on_fault=self._fault)

    # --- life ---

    def start(self) -> None:
        """As ``python -m rollcall_ha.broker.server`` does."""
        self.loop.create_task(self._main()).add_done_callback(self._ended)

    async def _main(self) -> int:
        plan, host, kernel = self.plan, self.process.host, self.kernel
        parts = Parts(
            now_us=host.monotonic_us,
            wall_ms=host.wall_ms,
            draw=kernel.hex_digits,
            boot_id=lambda: host.boot_id,
            birthmark=lambda _path: str(self.disk.files.births),
            make_disk=lambda: SimExecutor(
                self.process, "disk", delay_us_max=self.disk.files.delay_us, on_end=self._died
            ),
            on_flush_due=self._flush_soon,
            disk_room=lambda _folder: self._disk_room(),
            fold_sizes=FoldSizes(queue_units=300, index_slots=64, index_units=1_000),
        )
        config = BrokerConfig(
            name=plan.name,
            set_key=plan.set_key,
            fleet_incarnation=FleetIncarnation(""),
            timing=plan.timing,
            directory=self.disk.files.folder,
            listen=split_address(plan.description.address),
            ha=split_address(plan.description.ha_address),
            health=(plan.address, 10913),
            controllers=plan.controllers,
            description=plan.description,
            configuration=plan.configuration,
            segment_bytes=plan.segment_bytes,
            quarantine_days=7,
            quarantine_bytes=1 << 30,
        )
        # The claim is a lock of the operating system: every host here has one process at a time by itself.
        directory = DataDirectory(self.disk.files.folder, -1, was_empty=not self.disk.files.paths())
        self._stop = asyncio.Event()
        return await serve(config, directory, self._stop, parts)

    def _disk_room(self) -> tuple[int, int]:
        room, size = self.plan.disk_segments, self.plan.segment_bytes
        since_us = self.kernel.now_us - self.plan.frees_late_us
        taken = self.disk.segment_count() + sum(count for at_us, count in self._freed if at_us > since_us)
        return (room * size, max(room - taken, 0) * size) if room else (1 << 40, 1 << 40)

    def _ended(self, task: asyncio.Future[int]) -> None:
        if task.cancelled() or not self.process.is_alive:
            return
        error = task.exception()
        if isinstance(error, Died):
            return
        if error is not None:
            self._on_violation(Violation(f"{self.plan.name} fell over: {type(error).__name__}: {error}"))
            return
        code = ExitCode(task.result())
        self.counts.add("clean stops", int(code is ExitCode.OK))
        if code is not ExitCode.OK:
            self.counts.add(f"brokers ended themselves: {code.name}")
            self.kernel.note(f"{self.plan.name} ends itself: {code.name}")
        self.on_exit(code, self.published.reason)

    def _died(self, end: BaseException) -> None:
        """Inside of a file call: ``SimFiles`` has told the world."""
        if not isinstance(end, Died):
            raise end

    def _fault(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if not isinstance(error, Died):
            self._on_violation(
                Violation(f"{self.plan.name}: {context.get('message')}: {type(error).__name__}: {error}")
            )

    def stop(self) -> None:
        """SIGTERM."""
        if self._stop is not None:
            self.loop.call_soon_threadsafe(self._stop.set)

    # --- the flush thread ---

    def _flush_soon(self) -> None:
        """Somebody waits for a sync, or for the next segment."""
        if not self._is_flush_due:
            self._is_flush_due = True
            self.process.after(self.disk.files.delay_us(), "flush now", self._flush)

    def _flush_tick(self) -> None:
        self._flush()
        interval_ms = self.kernel.random.randrange(FLUSH_INTERVAL_MS // 2, FLUSH_INTERVAL_MS)
        self.process.after(interval_ms * MS, "flush", self._flush_tick)

    def _flush(self) -> None:
        self._is_flush_due = False
        log = self.disk.log
        if log is not None:
            log.flush_turn()

    # --- what others look at ---

    @property
    def log(self) -> CommitLog:
        """Once it is recovered."""
        assert self.disk.log is not None
        return self.disk.log

    @property
    def reign(self) -> Mastership | None:
        """The running one."""
        reign = self.replica._reign if self.replica is not None else None
        return reign if reign is not None and not reign._is_over else None

    def durable_marks(self) -> EpochMarks:
        """As they are on disk, by another reader."""
        return MarksFile(self.disk.files.folder / MARKS_FILE_NAME).load()

    def check_required_set(self) -> None:
        """D7: after every input of ``SyncState``, and after every entry that the controllers apply."""
        reign = self.reign
        if reign is not None and self.broker_id is not None and self.process.is_alive:
            required = reign.sync.required_set
            self._look(
                lambda: self.oracle.required_set(
                    self.plan.set_key, self.broker_id or BrokerId(0), reign.master_epoch, required
                )
            )

    # --- eyes ---

    def _look(self, check: Callable[[], object]) -> None:
        try:
            check()
        except Violation as violation:
            self._on_violation(violation)

    def opened(self, replica: Replica) -> None:
        """The log is recovered, nothing else has begun."""
        self.replica = replica
        log: Any = replica._log
        start, records, queue_end = log.min_offset, self.disk.records(), log.queues.max_offset(b"t", 0)
        self._look(lambda: self.laws.read_again(self.plan.name, start, records, queue_end))
        self._folded(replica)
        self.disk.log = log
        remembered = replica._remembered
        self.incarnation = remembered.process.incarnation
        if remembered.identity is not None and remembered.identity.broker_id is not None:
            self._identified(remembered.identity.broker_id)
        report, last = log.recovery, log.history.last
        if last is not None:
            key, name = self.plan.set_key, self.plan.name
            self._look(lambda: self.oracle.recovered(key, name, last.start_offset, log.max_offset))
        self.counts.add("torn bytes", report.torn_bytes)
        self.counts.add("interrupted cuts finished", int(report.finished_cut))
        self.counts.add("epochs dropped at start", len(report.dropped_epochs))
        self.counts.add("logs that lack synced bytes", int(bool(report.lost)))
        if self.disk.rotten:
            # What a start cuts there as a torn tail was whole once: power that is lost tears nothing that was synced.
            self.disk.lost_bytes += report.torn_bytes
            self.counts.add("rotten tails cut", int(report.torn_bytes > 0))
            self.disk.look_for_rot()
        if replica.status.alarm:
            # Of what the start has found, before anybody looked on.
            self._alarmed(replica.status.alarm)
        self._watch(replica, log)
        self.process.after(MS, "flush", self._flush_tick)

    def _watch(self, replica: Replica, log: CommitLog) -> None:
        before, after = self._before, self._after
        before(log, "begin_run", self._begins_run)
        after(log, "append", lambda *_: self.counts.add("messages appended"))
        after(log, "record_epoch", self._recorded)
        before(log, "cut", self._cuts)
        before(log, "set_aside", lambda *_, **_named: self.counts.add("full resyncs"))
        self._watch_front(replica, log)
        before(log, "close", lambda **_: setattr(self.disk, "log", None))
        before(replica._files.marks, "store", self._marks)
        before(replica.role, "_cut", lambda _plan: self.before_a_cut())
        after(replica.role, "_cut", lambda _plan: self._was_cut(replica))
        self._watch_deeds(replica)
        after(replica, "session_opened", lambda _registered: self.counts.add("sessions opened"))
        after(replica, "raise_alarm", self._alarmed)
        after(replica, "registration_blocked", self._blocked)
        after(replica, "higher_epoch_seen", lambda *_: self.counts.add("higher epochs seen by peers"))
        before(replica.following, "slave_acted", self._acted)
        self._watch_session(replica)
        self._watch_release(replica)
        self._watch_slave_reads(replica, log)
        answer = replica.listen._responders[ClientCode.GET_MAX_OFFSET]

        def pulled(connection: RemotingConnection, frame: Frame) -> None:
            respond = connection.respond

            def told(request: Frame, code: int, **named: Any) -> None:
                self._pulled(replica, frame, code, named.get("ext_fields"))
                respond(request, code, **named)

            connection.respond = told  # type: ignore[method-assign]
            answer(connection, frame)
            del connection.respond

        replica.listen._responders[ClientCode.GET_MAX_OFFSET] = pulled

    def _watch_front(self, replica: Replica, log: CommitLog) -> None:
        front: Any = log.front
        retention: Any = replica.retention
        delete, tell = front.delete, retention._tell
        needed: list[LogOffset] = []
        is_refusing, role = False, self.published.state

        def decided(decision: Decision) -> None:
            # As the decision found them: telling it ends a refusal for the sake of which a copy has given way, and the
            # role may be another one by the time at which the disk's thread has removed the files.
            nonlocal is_refusing, role
            needed[:] = self._copies(replica)
            is_refusing, role = bool(replica.put.full_disk), self.published.state
            tell(decision)

        def deleted(start: LogOffset) -> LogOffset:
            begin, segments = log.min_offset, self.disk.segment_count()
            records = self.disk.records()
            gone = [record for record in records if record.end <= start]
            confirm = log.durable_confirm_offset
            deletion = Deletion(
                segments=segments,
                room=self.plan.disk_segments or 1 << 40,
                start=start,
                confirm=confirm,
                needed=tuple(needed),
                is_refusing=is_refusing,
                role=role,
                told_since=self.disk.told_since(log.confirm_offset),
                lost=undelivered(gone, records),
            )
            found: LogOffset = delete(start)
            if found > begin:
                self._look(lambda: self.laws.deleted(self.plan.name, deletion))
                self.oracle.deleted(self.plan.set_key, gone)
                self._freed.append((self.kernel.now_us, segments - self.disk.segment_count()))
            return found

        front.delete, retention._tell = deleted, decided

    def _copies(self, replica: Replica) -> list[LogOffset]:
        """Where slaves on links are, by the links themselves; one that cuts its log may go on anywhere."""
        ends = replica.ends._ends
        links = () if ends is None else (one.link for one in ends.server.connections.snapshot())
        states = (MasterLinkState.CUTTING, MasterLinkState.TRANSFER)
        return [one.acked for one in links if one.state in states and one.peer is not None]

    def _watch_deeds(self, replica: Replica) -> None:
        deeds = replica.role.deeds
        publish, prepare, tell_drained = deeds[PublishRole], deeds[PrepareMaster], deeds[TellDrained]

        def published(role: PublishRole) -> None:
            publish(role)
            self._look(lambda: self._publishes(role))

        def prepared(action: PrepareMaster) -> None:
            self._look(lambda: self._prepares(action))
            prepare(action)
            self._look(lambda: self._reigns(replica))

        def drained(action: TellDrained) -> None:
            self._look(lambda: self._told_drained(replica))
            tell_drained(action)

        deeds.update({PublishRole: published, PrepareMaster: prepared, TellDrained: drained})

    def _before(self, owner: object, name: str, eye: Callable[..., None]) -> None:
        covered = getattr(owner, name)

        def call(*args: Any, **named: Any) -> Any:
            self._look(lambda: eye(*args, **named))
            return covered(*args, **named)

        setattr(owner, name, call)

    def _after(self, owner: object, name: str, eye: Callable[..., object]) -> None:
        covered = getattr(owner, name)

        def call(*args: Any, **named: Any) -> Any:
            result = covered(*args, **named)
            self._look(lambda: eye(*args, **named))
            return result

        setattr(owner, name, call)

    def _told_drained(self, replica: Replica) -> None:
        """R29: whoever asks for the election by an order has confirmed every byte, answered every sender, takes no send."""
        reign = self.reign
        if reign is None:
            return
        self.counts.add("drains told")
        waiting, confirm, end = replica.put.waiting_messages, reign.sync.confirm_offset, self.log.max_offset
        if waiting or confirm < end or replica.gate.state.is_serving:
            raise Violation(f"R29: {self.plan.name} tells that it has drained: {waiting} wait, {confirm} of {end}")

    # --- the log ---

    def _begins_run(self, **_named: Any) -> None:
        replica = self.replica
        assert replica is not None
        self.laws.appended(self.plan.name, replica.gate.state.master_epoch, self.log.history.last_epoch)

    def _recorded(self, entry: EpochEntry) -> None:
        self.oracle.epoch_recorded(self.plan.set_key, self.broker_id, entry.epoch, entry.start_offset)

    def _cuts(self, offset: LogOffset, reason: CutReason, _explanation: str = "") -> None:
        cut_bytes = self.log.max_offset - offset
        if reason is CutReason.TORN_TAIL:
            self.counts.add("half records dropped")
        elif cut_bytes > 0:
            self.counts.add("truncations")
            self.counts.add("bytes truncated", cut_bytes)

    def _folded(self, replica: Replica) -> None:
        """What a consumer of the queue would be given now."""
        folds = replica._folds
        queue = folds._queues.find((b"t", 0))
        units: list[tuple[int, int]] = []
        at = queue.min_offset if queue is not None else 0
        while queue is not None and at < queue.max_offset:
            part = [(place, size) for place, size, _code in UNIT.iter_unpack(queue.units(at, 1_000))]
            at += len(part)
            units += part
        records, end = self.disk.records(), folds.dispatched_offset
        if folds.trouble and units:
            # Of a run that a full disk ended what is taken stays taken.
            end = max(end, sum(units[-1]))
        self._look(lambda: self.laws.folded(self.plan.name, records, end, units))

    def _was_cut(self, replica: Replica) -> None:
        self._folded(replica)
        target = replica.following._target
        if target is not None:
            incarnation = target.master_incarnation
            self.laws.cut(self.plan.set_key, self.disk, target.master, incarnation, target.master_epoch)

    def _marks(self, marks: EpochMarks) -> None:
        self.oracle.marks_written(self.plan.name, self.durable_marks(), marks)

    # --- the role ---

    def _publishes(self, role: PublishRole) -> None:
        self.published = Published(role.state, role.master_epoch, role.reason)
        self.kernel.note(f"{self.plan.name} {role.state.value} epoch {role.master_epoch}")
        self.counts.add(f"roles {role.state.value}")
        if role.state is BrokerState.MASTER and self.broker_id is not None:
            self.oracle.became_master(self.plan.set_key, self.broker_id, self.incarnation, role.master_epoch)

    def _prepares(self, action: PrepareMaster) -> None:
        self.oracle.reign_prepared(self.plan.name, action.start_offset, self.log.max_offset)

    def _reigns(self, replica: Replica) -> None:
        reign: Any = replica._reign
        self._before(reign, "_handle", lambda outputs: self._confirms(reign, outputs))
        self._after(reign, "_handle", lambda _outputs: self.check_required_set())

    def _confirms(self, reign: Mastership, outputs: list[SyncOutput]) -> None:
        for output in outputs:
            if isinstance(output, ConfirmMoved):
                sync = reign.sync
                acks = {one: sync.acked(one) for one in sync.required_set if one != self.broker_id}
                self.laws.confirmed(self.plan.set_key, reign.master_epoch, output.offset, acks)

    def _alarmed(self, reason: str) -> None:
        self.alarms.append(reason)
        self.counts.add("alarms")
        # Without the folder: it is another one in each process, and the note is part of the trace.
        self.kernel.note(f"{self.plan.name} alarm: {reason.replace(str(self.disk.files.folder), self.plan.name)}")

    # --- links ---

    def _acted(self, target: FollowTarget, action: SlaveAction) -> None:
        if isinstance(action, HigherEpochSeen):
            self.counts.add("higher epochs seen by peers")
        elif isinstance(action, LinkReady):
            key, incarnation, epoch = self.plan.set_key, target.master_incarnation, target.master_epoch
            self.laws.joined(key, self.disk, target.master, incarnation, epoch)
            self.oracle.link_ready(self.plan.name, self.durable_marks(), epoch)
            self._acked = {}

    def acks(self, link: SlaveLink) -> None:
        """An ack leaves."""
        acked, target = link._acked, link.target
        if acked is None:
            return
        known = self._acked.get(id(link), LogOffset(0))
        self._acked = {id(link): max(known, acked)}
        self._look(
            lambda: self.laws.acked(
                self.plan.set_key,
                self.disk,
                target.master,
                target.master_incarnation,
                target.master_epoch,
                before=known,
                ack=acked,
            )
        )

    # --- the session ---

    def _identified(self, broker_id: BrokerId) -> None:
        self.broker_id = broker_id
        self.has_an_id(broker_id)

    def _blocked(self, refusal: Refused) -> None:
        self.counts.add("registrations blocked")
        self.kernel.note(f"{self.plan.name} blocked: {refusal.reason}")

    def _watch_session(self, replica: Replica) -> None:
        session: Any = replica.session
        ask, persist, opened = session.ask, replica.persist_identity, replica.session_opened

        async def asked(command: Value) -> AnyReply:
            reign = self.reign
            is_alter = isinstance(command, AlterSyncStateSet) and session.is_open
            if isinstance(command, AlterSyncStateSet) and reign is not None:
                start = reign.sync.reign.start_offset
                self._look(lambda: self.oracle.proposed_alter(command, start))
            try:
                reply: AnyReply = await ask(command)
            except SessionUnavailable:
                self.counts.add("alters with lost answers", int(is_alter))
                raise
            return reply

        async def persisted(identity: Any) -> None:
            await persist(identity)
            if identity.broker_id is not None:
                self._identified(identity.broker_id)

        def session_opened(registered: Registered) -> None:
            self._identified(registered.broker_id)
            opened(registered)

        session.ask = asked
        seen: Any = replica
        seen.persist_identity, seen.session_opened = persisted, session_opened

    # --- clients ---

    def _watch_release(self, replica: Replica) -> None:
        put: Any = replica.put
        release = put.release

        def released(confirm: LogOffset) -> None:
            acks, reign = put._acks, self.reign
            before = acks.released_offset if acks is not None else LogOffset(0)
            release(confirm)
            if acks is not None and reign is not None and acks.released_offset > before:
                end, epoch, least = acks.released_offset, acks.master_epoch, reign.sync.reign.min_in_sync
                self._look(lambda: self.oracle.released(self.plan.set_key, end, epoch, least))

        put.release = released

    def _watch_slave_reads(self, replica: Replica, log: CommitLog) -> None:
        room = replica.consuming

        def gives(end: LogOffset, records: Sequence[Given]) -> None:
            view, epoch, name = replica.machine.view, self.published.master_epoch, self.plan.name
            is_member = view is not None and self.broker_id in view.sync_state_set
            self.oracle.slave_gave(self.plan.set_key, name, epoch, end, records, is_member=is_member)

        def answers(_pull: WaitingPull, found: Found) -> None:
            if found.records and not room.standing.serves_reads:
                given = [_given(view) for view in found.records]
                gives(LogOffset(given[-1].offset + given[-1].size), given if not self.disk.rotten else [])

        def may_answer(*_: object) -> None:
            # Readers ask now and then; what they would be given in between is judged as well.
            if not room.standing.serves_reads and room.standing.gives_as_slave:
                gives(log.confirm_offset, [])

        def give(_settings: Settings) -> None:
            room.standing.slave_reads = True

        if self.plan.slave_reads:
            room.standing.slave_reads = True
            self._after(room, "set_by", give)
            self._after(log, "note_confirm", may_answer)
        self._before(room.pulls, "_answer", answers)

    def _pulled(self, replica: Replica, frame: Frame, code: int, answer: dict[str, str] | None) -> None:
        """R19: until confirm reaches the own epoch's start, the end of a queue is not told: a consumer asks again."""
        fields, reign = frame.ext_fields or {}, self.reign
        if reign is None or not replica.gate.state.is_serving or "asked" not in fields:
            return
        key, epoch, asked = self.plan.set_key, reign.master_epoch, LogOffset(int(fields["asked"]))
        self._folded(replica)
        if code != SystemCode.SUCCESS:
            self.counts.add("ends of queues not told yet")
            return
        told = LogOffset(int((answer or {})["offset"]))
        self._look(lambda: self.oracle.pulled(key, epoch, asked, is_legal=asked <= told, max_offset=told))
        if asked <= told:
            self._look(lambda: self.oracle.legal(key, told, epoch))

    def count(self) -> None:
        """At the end of this life: what its clients heard."""
        if self.replica is not None:
            counters = self.replica.put.counters
            self.counts.add("sends refused", counters.refused)
            self.counts.add("duplicates answered", counters.duplicates)
            self.counts.add("waiters failed as unknown", counters.failed_unknown)


def _given(view: memoryview) -> Given:
    record = RecordView(view)
    return Given(int(record.physical_offset), record.size_bytes, int.from_bytes(bytes(record.body[:8]), "big"))


@contextmanager
def watched_brokers() -> Iterator[None]:
    """Within: brokers of a simulated process tell their life what happens where no instance can be reached."""
    kind, link = Replica, SlaveLink
    start, ack, why_not_served = kind.start, link._ack, put._why_not_served
    handler: Any = put

    def started(self: Replica) -> None:
        _life(self._loop).opened(self)
        start(self)

    def acked(self: SlaveLink, now_ms: int) -> Any:
        actions = ack(self, now_ms)
        loop = asyncio._get_running_loop()
        if isinstance(loop, SimLoop):
            _life(loop).acks(self)
        return actions

    classes: tuple[Any, Any] = (kind, link)
    classes[0].start, classes[1]._ack = started, acked
    # A broker of before looked at no flag: what it has stored is in logs that ours reads.
    handler._why_not_served = lambda flag, words: "" if OF_BEFORE in words else why_not_served(flag, words)
    try:
        yield
    finally:
        classes[0].start, classes[1]._ack = start, ack
        handler._why_not_served = why_not_served


def _life(loop: Any) -> BrokerNode:
    life = loop.process.life
    assert isinstance(life, BrokerNode)
    return life
