"""
One controller: the replicated log, the leader's machines, the journal and the broker port, tied on one event loop.

Here: leadership, submitting, consistent reads, doing the machines' actions, pushes. Not here: decisions
(``controller.core``, ``duties``), what brokers ask and tell (``broker_requests``), HTTP (``api.rest``), frames
(``api.broker_port``), the answers of reads (``queries``). All methods run on the loop; the log's and the journal's
threads only wake it.

Rule 1 (R5): nothing is answered with authority unless ``authority()`` holds; without it a caller is told so at once.
Rule 2: a linearizable read sees everything that was committed before it arrived: readers share barriers, and a reader
never joins one that was proposed before it came.
Rule 3: leader duties begin when the own ``TakeLeadership`` of the term is applied, and end when the role or term moves.
Rule 4: an applied entry is pushed to the sessions of its sets in the same turn of the loop that hears of it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import (
    FEATURE_LEVEL,
    AnyCommand,
    Barrier,
    Electing,
    ElectMaster,
    InitialiseFleet,
    LeaveMaster,
    Operation,
    OperatorCommand,
    OrderSwitchover,
    RaiseFeatureLevel,
    ReportClockStep,
    TakeLeadership,
)
from rollcall_ha.controller.contract.events import (
    ClockStepped,
    EventRecord,
    FleetInitialised,
    LeadershipTaken,
)
from rollcall_ha.controller.contract.ids import RequestId, SetKey
from rollcall_ha.controller.contract.levels import fitted
from rollcall_ha.controller.contract.names import refusal_of_texts
from rollcall_ha.controller.contract.principals import Principal
from rollcall_ha.controller.contract.replies import AnyReply, Elected, Refused, SetView
from rollcall_ha.controller.contract.session import LeaderHint
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.contract.values import Evidence
from rollcall_ha.controller.core.actions import Action, ProposeCommand, SendProbe
from rollcall_ha.controller.core.decide import refuse_above_level
from rollcall_ha.controller.core.decision import Refusal
from rollcall_ha.controller.core.preview import preview
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.replication.async_calls import on_loop
from rollcall_ha.controller.replication.async_proposer import AsyncProposer
from rollcall_ha.controller.replication.ports import AppliedEntry, Published, RaftRole, ReplicatedLog
from rollcall_ha.controller.replication.proposer import EntryOutcomeUnknown, NotLeader, Overloaded, ProposeError
from rollcall_ha.controller.runtime.authority import Authority, holds_authority, judge_authority
from rollcall_ha.controller.runtime.background import BackgroundTasks, Wakeup
from rollcall_ha.controller.runtime.barriers import SharedBarriers
from rollcall_ha.controller.runtime.clock_watch import ClockWatch
from rollcall_ha.controller.runtime.decision_log import log_decisions
from rollcall_ha.controller.runtime.duties import OWN_ORDERS, LeaderDuties
from rollcall_ha.controller.runtime.event_journal import EventJournal
from rollcall_ha.controller.runtime.kept_views import KeptViews
from rollcall_ha.controller.runtime.lead_watch import LeadWatch
from rollcall_ha.controller.runtime.live_settings import LiveSettings
from rollcall_ha.controller.runtime.metrics import ControllerMetrics
from rollcall_ha.controller.runtime.ports import BrokerPort, NoAuthority, Ports
from rollcall_ha.controller.runtime.pushes import push_views
from rollcall_ha.controller.runtime.refusals import Refusals
from rollcall_ha.controller.runtime.revocations import RevocationWatch
from rollcall_ha.controller.runtime.settings import ServiceSettings
from rollcall_ha.controller.runtime.state_watch import StateWatch
from rollcall_ha.node.telemetry import get_logger

LEADERSHIP_POLL_MS = 20
"""How late a change of leadership may be noticed."""
HEARD_MARK_PERIOD_MS = 10_000
"""How often the log is told that everybody was heard: what is known at most of an outage that no leader saw begin."""
READ_WAIT_MS_MAX = 600
"""A linearizable read that takes longer is answered by "no authority" (503 within a second)."""
CLOCK_REPORT_PAUSE_MS = 1_000
"""Between two attempts to put one step of the clock on record."""
ENTRIES_PENDING_MAX = 50_000
"""Applied entries that the loop has not seen; beyond it the leader takes everything over anew."""


class ControllerService:
    def __init__(
        self,
        *,
        settings: ServiceSettings,
        log: ReplicatedLog[FleetState],
        journal: EventJournal[FleetState],
        metrics: ControllerMetrics,
        ports: Ports | None = None,
    ) -> None:
        """Subscribes to ``log``, which must not be started yet; the journal must be."""
        self.settings = settings
        self.broker_ports = settings.broker_ports
        self._own_name = f"{OWN_ORDERS}{settings.name}"
        self.journal = journal
        self.metrics = metrics
        self.ports = ports or Ports()
        self._log = log
        self._logger = get_logger("controller")
        self._broker_port: BrokerPort | None = None
        self._proposer: AsyncProposer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._applied: deque[tuple[AppliedEntry[FleetState], int]] = deque()
        self._is_drain_due = False
        self._has_overrun = False
        self._views = KeptViews()
        self._taken_term: int | None = None
        self._taking_term: int | None = None
        self._founded_term: int | None = None
        self.strange_fleet = ""
        """The incarnation in the log, if this one was elected to lead by the log of another fleet: it does not."""
        self._leader_seen_ns = self.ports.monotonic_ns()
        self._barriers = SharedBarriers(self._commit_barrier)
        self.states = StateWatch(len(settings.controllers), self._logger)
        self.revocations = RevocationWatch()
        self.refusals = Refusals()
        self._clock_watch = ClockWatch()
        self.clock_step: EventRecord | None = None
        """The newest step of the clock of entries that this process has applied."""
        self.lead = LeadWatch()
        self.on_late: Callable[[], None] = lambda: None
        """Called each time that this controller is seen to lead and to come late."""
        self.lost_entries = 0
        """By how much the index of an entry that a broker has seen was above ours."""
        self._background = BackgroundTasks(self._logger)
        self._timer: asyncio.TimerHandle | None = None
        self._next_scan_ns = 0
        self._next_mark_ns = 0
        self._events_synced = Wakeup()
        self._leader_named = Wakeup()
        self._named: str | None = None
        self.duties = LeaderDuties(
            timing=settings.timing,
            view_of=self.view_of,
            preview=self._preview_election,
            draw_epoch_jump=self.ports.draw_epoch_jump,
            fleet_now=lambda: (log.published.state, self.ports.wall_ms()),
        )
        self.live = LiveSettings(settings.timing, settings.founded, self.duties.retime, self.now_ns)
        log.subscribe(self._on_applied)

    # --- life --------------------------------------------------------------------------------------------------------

    def start(self, broker_port: BrokerPort) -> None:
        """On the running loop; the log is started by the caller, before or after."""
        self._loop = asyncio.get_running_loop()
        self._broker_port = broker_port
        self._proposer = AsyncProposer(
            self._log, propose_timeout_ms=self.settings.timing.propose_timeout_ms, now_ns=self.now_ns
        )
        self._on_timer()

    async def stop(self) -> None:
        """End duties and background work; the log and the journal are the caller's to stop."""
        if self._timer is not None:
            self._timer.cancel()
        self.duties.stand_down()
        await self._background.stop()

    # --- what others read --------------------------------------------------------------------------------------------

    @property
    def published(self) -> Published[FleetState]:
        return self._log.published

    @property
    def log(self) -> ReplicatedLog[FleetState]:
        """The replicated log, for its leadership."""
        return self._log

    def now_ns(self) -> int:
        """The clock of all soft state."""
        return self.ports.monotonic_ns()

    def authority(self) -> Authority:
        """Whether this controller may answer, now (Rule 1)."""
        return judge_authority(
            self._log.leadership,
            taken_term=self._taken_term,
            now_ns=self.now_ns(),
            election_timeout_ms_min=self.settings.timing.raft_election_timeout_ms_min,
        )

    def require_authority(self) -> None:
        if not holds_authority(
            self._log.leadership,
            taken_term=self._taken_term,
            now_ns=self.now_ns(),
            election_timeout_ms_min=self.settings.timing.raft_election_timeout_ms_min,
        ):
            raise NoAuthority(self.authority())

    def leader_hint(self) -> LeaderHint:
        """Where brokers and callers should go instead."""
        leadership = self._log.leadership
        leader = leadership.leader
        # Not to itself: a leader that is cut off would send each caller back to where it has just been refused.
        if leader == self.settings.name and not self.authority().is_held:
            leader = None
        addresses = self.settings.controllers.get(leader) if leader is not None else None
        return LeaderHint(
            controller=self.settings.name,
            leader=leader,
            leader_broker_address=addresses.broker or None if addresses is not None else None,
            term=leadership.term,
        )

    async def leader_hint_soon(self) -> LeaderHint:
        """
        The hint, once it names a leader, or after the longest election.

        An answer "nobody leads" is out of date when the asker has paused and asks again. Held, it is the earliest there
        can be, and each asker costs one request instead of one every pause.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.settings.timing.raft_election_timeout_ms_max / 1000):
                while (waiting := self._leader_named.next) and self.leader_hint().leader is None:
                    await waiting.wait()
        return self.leader_hint()

    def contact_age_ms(self) -> int:
        """Since this controller last heard from a majority, or from a leader."""
        authority = self.authority()
        if authority.majority_age_ms is not None:
            return max(0, authority.majority_age_ms)
        return max(0, self.now_ns() - self._leader_seen_ns) // NS_PER_MS

    def view_of(self, key: SetKey) -> SetView | None:
        """The newest applied state of one set."""
        return self._views.of(self._log.published.state, key)

    @property
    def next_events_synced(self) -> asyncio.Event:
        """Set when further events are on disk than were when this was taken."""
        return self._events_synced.next

    def on_events_synced(self) -> None:
        """For the journal's thread: wake the readers that wait."""
        self._events_synced.wake_from_thread(self._loop)

    # --- orders and reads --------------------------------------------------------------------------------------------

    def operation(
        self,
        command: AnyCommand,
        *,
        request_id: RequestId,
        requested_by: str,
        evidence: Evidence | None = None,
        principal: Principal | None = None,
    ) -> Operation:
        """The order as this fleet's feature level takes it; ``version`` is above that if it cannot be taken (R15)."""
        level = self._log.published.state.feature_level
        operation = Operation(
            version=level,
            request_id=request_id,
            stamped_at_ms=self.ports.wall_ms(),
            requested_by=requested_by,
            command=command,
            evidence=evidence,
            principal=principal,
        )
        operation, needed = fitted(operation, level)
        return operation if needed <= level else msgspec.structs.replace(operation, version=needed)

    def _own_operation(self, command: AnyCommand, *, evidence: Evidence | None = None) -> Operation:
        """An order of this controller itself, under a request id of its own."""
        request_id = self.ports.new_request_id()
        return self.operation(command, request_id=request_id, requested_by=self._own_name, evidence=evidence)

    async def submit(
        self,
        command: AnyCommand,
        *,
        request_id: RequestId,
        requested_by: str,
        evidence: Evidence | None = None,
        principal: Principal | None = None,
    ) -> AnyReply:
        """
        Commit an order and return the reply that apply computed; durable on a majority on return.

        ``principal``: who asks, as proven here or by the controller that passes the order on; None = a controller.

        Raises:
            NoAuthority, NotLeader, Overloaded: certainly not executed.
            EntryOutcomeUnknown: ask again with the same request id.
        """
        # Before proposing: an isolated leader's log takes the entry, and the caller waits until its deadline for
        # "unknown".
        self.require_authority()
        if refusal := refusal_of_texts(command) or (principal and refusal_of_texts(principal)):
            self.metrics.refusals.labels(code=refusal.code.name).inc()
            return refusal
        return await self._submit(
            self.operation(
                command, request_id=request_id, requested_by=requested_by, evidence=evidence, principal=principal
            )
        )

    async def _submit(self, operation: Operation) -> AnyReply:
        assert self._proposer is not None
        # Not proposed at all. The controllers that are not upgraded yet would stop at this entry, and two of three are
        # a majority. The level here may be an old one: it only rises, so that refuses too much, never too little.
        try:
            refuse_above_level(self._log.published.state, operation)
        except Refusal as refusal:
            return refusal.refused
        began_ns = self.now_ns()
        try:
            reply = await self._proposer.submit(operation)
        except EntryOutcomeUnknown:
            self.metrics.outcome_unknown.inc()
            raise
        self.metrics.commit_delay.observe((self.now_ns() - began_ns) / 1e9)
        return reply

    async def read_barrier(self) -> None:
        """
        Return when this controller has applied everything that was committed before the call (Rule 2).

        Raises ``NoAuthority`` at once, or after ``READ_WAIT_MS_MAX``.
        """
        self.require_authority()
        try:
            await self._barriers.passed(READ_WAIT_MS_MAX)
        except (TimeoutError, ProposeError):
            authority = self.authority()
            reason = authority.reason or "the barrier of this read did not commit in time"
            raise NoAuthority(replace(authority, is_held=False, reason=reason)) from None

    async def _commit_barrier(self) -> None:
        await self._submit(self._own_operation(Barrier()))

    def evidence_for(self, command: OperatorCommand) -> Evidence | None:
        """The leader's soft facts about the set of an election that an operator orders; other orders need none."""
        view = self.view_of(command.set_key) if isinstance(command, Electing | OrderSwitchover) else None
        return None if view is None else self.evidence_of(view)

    def evidence_of(self, view: SetView) -> Evidence:
        """The leader's soft facts about one set."""
        # Where the duty tries in vain to find a successor, this election ends the outage that it has seen begin.
        pending = self.duties.elections.pending_of(view.set_key)
        return self.duties.sessions.evidence(
            view,
            now_ns=self.now_ns(),
            triggered_by=pending.triggered_by if pending is not None else None,
            stamps=pending.stamps if pending is not None else None,
            draw=self.ports.draw_epoch_jump(),
        )

    def _preview_election(self, command: ElectMaster | LeaveMaster, evidence: Evidence) -> Elected | Refused:
        reply = preview(
            self._log.published.state,
            self.operation(command, request_id=RequestId("preview"), requested_by=self._own_name, evidence=evidence),
        )
        assert isinstance(reply, Elected | Refused)
        return reply

    # --- leadership and time -----------------------------------------------------------------------------------------

    def _on_timer(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(LEADERSHIP_POLL_MS / 1000, self._on_timer)
        self._look_at_leadership()
        self._tell()
        now_ns = self.now_ns()
        self.duties.breathe(now_ns)
        self._watch_clock(now_ns)
        if reason := self.states.compare(self._log.exchange_states, now_ns):
            self.ports.diverged(reason)
        if now_ns >= self._next_scan_ns:
            self._next_scan_ns = now_ns + self.live.timing.scan_interval_ms * NS_PER_MS
            if self._may_judge():
                self.do(self.duties.tick(now_ns))
        if now_ns >= self._next_mark_ns:
            self._next_mark_ns = now_ns + HEARD_MARK_PERIOD_MS * NS_PER_MS
            if (within_ms := self.duties.heard_within_ms(now_ns)) is not None:
                self.do([ProposeCommand(command=Barrier(heard_within_ms=within_ms))])

    def _may_judge(self) -> bool:
        """Whether who says nothing may be found silent (rule 2 of ``sessions``: they have a grace afterwards)."""
        # Without a majority brokers are refused, and look for another leader: each would be found silent by our own
        # doing, and a leader that is elected again would have that on record from before its master's end.
        return self.authority().is_held

    def _tell(self) -> None:
        for watch in (self.revocations, self.live):
            watch.look(self._log.published.state, self._broker_port if self.duties.is_active else None)

    def _watch_clock(self, now_ns: int) -> None:
        published, term = self._log.published, self._taken_term
        if term is None:
            is_even = self._log.leadership.leader is not None and published.index >= self._log.leadership.commit_index
            newest_stamp_ms = published.state.last_stamp_ms
            self._clock_watch.look(is_even=is_even, newest_stamp_ms=newest_stamp_ms, now_ns=now_ns)
            return
        step_ms = self._clock_watch.lead(self.ports.wall_ms(), now_ns=now_ns)
        if step_ms is not None:
            self._logger.warning("clock_stepped", step_ms=step_ms, term=term)
            self._background.spawn(self._report_clock_step(step_ms, term))

    async def _report_clock_step(self, step_ms: int, term: int) -> None:
        # One request id for all attempts: a step whose first report was executed all the same must not count twice.
        operation = self._own_operation(ReportClockStep(controller=self.settings.name, step_ms=step_ms))
        while self._taken_term == term:
            with contextlib.suppress(ProposeError):
                await self._submit(operation)
                return
            await asyncio.sleep(CLOCK_REPORT_PAUSE_MS / 1000)

    def _look_at_leadership(self) -> None:
        leadership = self._log.leadership
        self.lead.look(leadership, self.now_ns())
        if leadership.leader is not None:
            self._leader_seen_ns = self.now_ns()
        named = self.leader_hint().leader
        if named != self._named:
            self._named = named
            self._leader_named.wake()
        leads = leadership.role is RaftRole.LEADER
        if leads and leadership.late_ms:
            self.on_late()
        # Also if it leads again, in a later term: its soft state comes from term 3, and c2 may have led 4 in between.
        if self._taken_term is not None and (not leads or self._taken_term != leadership.term):
            self._logger.warning("leadership_lost", term=self._taken_term, now_term=leadership.term)
            self._taken_term = None
            self.duties.stand_down()
        if leads and self._taken_term is None and self._taking_term != leadership.term:
            # Once per term; not spawned (too many tasks), the next look tries again.
            is_taking = self._background.spawn(self._take_leadership(leadership.term))
            self._taking_term = leadership.term if is_taking else None

    async def _take_leadership(self, term: int) -> None:
        commands: tuple[AnyCommand, ...] = (
            InitialiseFleet(fleet_incarnation=self.settings.fleet_incarnation),
            TakeLeadership(controller=self.settings.name, term=term),
        )
        try:
            for command in commands if self._must_initialise() else commands[1:]:
                reply = await self._submit(self._own_operation(command))
                if isinstance(reply, Refused):
                    self._logger.error("leadership_refused", term=term, code=reply.code.name, reason=reply.reason)
                self.drain()
                # A fleet that begins here begins at this program's level. The event tells whether it does: a leader
                # that has not applied the log of earlier terms yet initialises it again, and must raise nothing.
                if self._founded_term == term and isinstance(command, InitialiseFleet):
                    await self._submit(self._own_operation(RaiseFeatureLevel(level=FEATURE_LEVEL)))
        except ProposeError as error:
            self._logger.warning("leadership_not_taken", term=term, reason=str(error))
            # Tried again at the next look. Left set, this controller would lead its term without duties: no election.
            self._taking_term = None

    def _must_initialise(self) -> bool:
        return self._log.published.state.fleet_incarnation != self.settings.fleet_incarnation

    # --- what was applied --------------------------------------------------------------------------------------------

    def _on_applied(self, entry: AppliedEntry[FleetState]) -> None:
        """On the log's thread."""
        # The journal gets every entry, also when the loop is behind: it is the record, and compaction waits for it
        # (R24).
        self.journal.append(entry)
        if len(self._applied) < ENTRIES_PENDING_MAX:
            self._applied.append((entry, self.ports.monotonic_ns()))
        else:
            # The loop stands still. Its machines can be built anew from the state, which holds their effect.
            self._has_overrun = True
        loop = self._loop
        if loop is not None and not self._is_drain_due:
            self._is_drain_due = True
            on_loop(loop, self.drain)

    def drain(self) -> None:
        """Handle the entries that were applied and not heard of yet."""
        # The flag falls BEFORE the queue is read: an entry that comes in between wakes the loop once too often, never
        # once too few.
        self._is_drain_due = False
        while self._applied:
            entry, applied_ns = self._applied.popleft()
            self._handle_entry(entry, applied_ns)
        if self._has_overrun:
            self._has_overrun = False
            if self.duties.is_active:
                self.do(self.duties.take(sorted(self._log.published.state.sets), self.now_ns()))

    def _handle_entry(self, entry: AppliedEntry[FleetState], applied_ns: int) -> None:
        self.states.note(entry.index, entry.state.state_digest)
        self._tell()
        for record in entry.records:
            if isinstance(record.event, FleetInitialised) and record.requested_by == self._own_name:
                self._founded_term = record.term
            if isinstance(record.event, LeadershipTaken):
                self._note_leadership(record.event)
            if isinstance(record.event, ClockStepped):
                self.clock_step = record
            if isinstance(record.event, LeadershipTaken | ClockStepped) and self._taken_term is None:
                self._clock_watch.forget()
        if entry.records and self._taken_term is None:
            self._clock_watch.applied(entry.records[-1].stamped_at_ms, applied_ns=applied_ns)
        self.duties.milestones.applied(entry.records, stepped_ms=entry.state.stepped_ms, now_ns=applied_ns)
        # A follower pushes nothing: it has no sessions, and its view may be older than the leader's last notice.
        if not self.duties.is_active:
            return
        self.metrics.observe(entry.records, entry.state)
        actions = self.duties.handle_applied(entry.records, applied_ns)
        assert self._broker_port is not None
        # Pushed BEFORE the actions are done, each of which costs a task: the winner hears first.
        push_views(entry.records, view_of=self.view_of, duties=self.duties, port=self._broker_port, now_ns=self.now_ns)
        self.do(actions)
        log_decisions(self._logger, entry.records, entry.state)

    def _note_leadership(self, event: LeadershipTaken) -> None:
        leadership = self._log.leadership
        # The term too: after a restart the replay applies this controller's own entries of terms that have passed.
        is_ours = event.controller == self.settings.name and event.term == leadership.term
        if not is_ours or leadership.role is not RaftRole.LEADER or self._taken_term == event.term:
            return
        if self._must_initialise():
            # The directory of another fleet: leading would hand its brokers the epochs of ours (R7).
            self.strange_fleet = self._log.published.state.fleet_incarnation
            self._logger.error(
                "wrong_fleet",
                stored=self._log.published.state.fleet_incarnation,
                configured=self.settings.fleet_incarnation,
            )
            return
        # Only now, not at the election: this entry stands behind all of earlier terms, so all of them are applied here.
        self._taken_term = event.term
        self._watch_clock(self.now_ns())
        self._logger.info("leadership_taken", term=event.term, index=self._log.published.index)
        self.do(self.duties.take(sorted(self._log.published.state.sets), self.now_ns()))

    # --- doing actions -----------------------------------------------------------------------------------------------

    def do(self, actions: Sequence[Action]) -> None:
        """Do what the leader's machines ask for; nothing is waited for."""
        for action in actions:
            if isinstance(action, ProposeCommand):
                term = self._taken_term
                # Dropped without a word, the outcome would be awaited for ever: one slot of the duty less, one set that
                # is never tried again. Not at once either: the machine is in the middle of the call that made the
                # action.
                if not self._background.spawn(self._propose(action, term)):
                    give_back = partial(self._proposed, action, None, term, is_certainly_not_executed=True)
                    asyncio.get_running_loop().call_soon(give_back)
            else:
                self._background.spawn(self._probe(action))

    async def _propose(self, action: ProposeCommand, term: int | None) -> None:
        operation = self._own_operation(action.command, evidence=action.evidence)
        reply: AnyReply | None = None
        is_certainly_not_executed = False
        try:
            reply = await self._submit(operation)
        except (NotLeader, Overloaded):
            is_certainly_not_executed = True
        except EntryOutcomeUnknown as error:
            self._logger.warning("proposal_unknown", reason=str(error))
        except Exception as error:
            # A bug of ours; the duty must hear of an outcome all the same, or it waits for this set for ever.
            self._logger.exception("proposal_failed", error=repr(error))
        self._proposed(action, reply, term, is_certainly_not_executed=is_certainly_not_executed)

    def _proposed(
        self, action: ProposeCommand, reply: AnyReply | None, term: int | None, *, is_certainly_not_executed: bool
    ) -> None:
        # Proposed in term 3, answered in 5: the machines of today know nothing of it, and must not count it.
        if term != self._taken_term:
            return
        # Its entry is handled BEFORE its outcome: else the duty takes an election that was applied for lost.
        self.drain()
        self.do(
            self.duties.handle_proposed(
                action, reply, self.now_ns(), is_certainly_not_executed=is_certainly_not_executed
            )
        )

    async def _probe(self, probe: SendProbe) -> None:
        assert self._broker_port is not None
        outcome, answer = await self._broker_port.probe(probe)
        self.do(self.duties.handle_probe(probe, outcome, answer, self.now_ns()))
