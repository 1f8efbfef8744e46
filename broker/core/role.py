"""
The role of one replica: from boot to master, slave or learner, and out again. Sans-IO, pure.

Here: ``RoleMachine``. Its inputs and actions are the values of ``broker.core.role_io``, its goals those of
``broker.core.goals``; what is durable is in ``broker.core.durable``. Not here: doing the actions (``broker.server`` and
its parts), registering (``registration``), who is required for an ack (``ha.sync_state``), where a cut goes
(``ha.truncation``).

Use: ``machine = RoleMachine(set_key=..., incarnation=..., is_learner=...)``, then ``actions = machine.handle(input,
now_us=...)`` for every input, in order; do the actions in order. Call with ``Tick()`` at ``machine.next_due_us``.

How it works: views and peers set a *goal*. The next step is a function of the goal and of the facts alone, so an
interruption anywhere, by a higher epoch, a failed step or a restart, needs no case of its own: facts stay, the goal
moves, the table is read again. The first line that is not yet true is what happens next:

=========  ==========================================================================================================
goal       lines
=========  ==========================================================================================================
FENCED     link-stopped, promised
FOLLOW     other-link-stopped, unmarked, promised, link-started, cut, role-published
REIGN      link-stopped, unmarked, promised, entry-recorded, entered, prepared, role-published, entered-reported
ISOLATED   link-stopped
STOPPED    link-stopped, log-closed, marked, goodbye-said, exited
=========  ==========================================================================================================

In every goal a reign of another epoch ends before anything else, in the turn that sets the goal (R12, R17, W19).

Rule 1 (R9): marks never fall, and a mark is durable before the line behind it.
Rule 2 (R12): nothing lower is applied or acked once the promise is durable: the link is stopped before, which is
earlier than the rule asks. The start is taken after both.
Rule 3 (W19): a role is published when its last line is true, and withdrawn when its goal is set aside.
Rule 4 (promise 3): losing the controllers changes nothing.
Rule 5 (R26): a plan to isolate ends in ISOLATED with an alarm, until an operator restarts the replica.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from broker.core.durable import Marks
from broker.core.goals import Choice, Goal, GoalKind, Standing, goal_for_peer, goal_for_view
from broker.core.phases import PhaseClock, cut_range
from broker.core.role_io import (
    AdoptView,
    CloseLog,
    EnteredAnswered,
    ExecuteCut,
    Exit,
    IncarnationEnded,
    LeaveMaster,
    LinkClosed,
    LinkOpened,
    LinkTarget,
    PeerShowedEpoch,
    PersistMarks,
    PersistView,
    PhaseReached,
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
    SayGoodbyeTo,
    SendEntered,
    SendLinkReport,
    SessionLost,
    SessionOpened,
    StartSlaveLink,
    Step,
    StepDone,
    StepFailed,
    Stop,
    StopSlaveLink,
    Tick,
    TruncationPlanned,
    ViewArrived,
    WriteCleanMark,
)
from controller.contract.commands import CleanMark, Phase, ReportEntered, StoredView
from controller.contract.ids import BrokerId, Incarnation, LogOffset, MasterEpoch, SetKey
from controller.contract.replies import SetView
from controller.contract.session import BrokerState
from epoch.model import NO_EPOCH
from ha.truncation import Isolate, Keep


@dataclass(slots=True, kw_only=True)
class _Link:
    """The slave link as far as its reports tell."""

    generation: int
    target: LinkTarget
    is_open: bool = False
    planned: TruncationPlanned | None = None
    reported: bool | None = None
    """What the controllers were told last (R13); None = nothing in this session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """The epoch entry that this process recorded for its reign."""

    master_epoch: MasterEpoch
    start_offset: LogOffset


LINES: dict[GoalKind, tuple[str, ...]] = {
    GoalKind.FENCED: ("link-stopped", "promised"),
    GoalKind.FOLLOW: ("other-link-stopped", "unmarked", "promised", "link-started", "cut", "role-published"),
    GoalKind.REIGN: (
        "link-stopped",
        "unmarked",
        "promised",
        "entry-recorded",
        "entered",
        "prepared",
        "role-published",
        "entered-reported",
    ),
    GoalKind.ISOLATED: ("link-stopped",),
    GoalKind.STOPPED: ("link-stopped", "log-closed", "marked", "goodbye-said", "exited"),
}
"""The table of the module docstring, as it is executed; a test compares both."""


class RoleMachine:
    """One replica's role, for the life of one process. See the module docstring for use and rules."""

    def __init__(
        self,
        *,
        set_key: SetKey,
        incarnation: Incarnation,
        is_learner: bool = False,
        retry_ms: int = 50,
        retry_ms_max: int = 1_000,
    ) -> None:
        """``retry_ms`` doubles up to ``retry_ms_max`` while a step or the report of ``entered`` fails."""
        self._set_key = set_key
        self._incarnation = incarnation
        self._is_learner = is_learner
        self._retry_us = retry_ms * 1_000
        self._retry_us_max = retry_ms_max * 1_000
        self._now_us = 0
        self._pushed_at_us = 0
        """When the input that is handled left its sender."""
        self._actions: list[RoleAction] = []

        self._broker_id: BrokerId | None = None
        self._view: SetView | None = None
        self._own_view: SetView | None = None
        self._stored: StoredView | None = None
        self._goal = Goal(kind=GoalKind.FENCED, master_epoch=NO_EPOCH, reason="not registered yet")
        self._published = PublishRole(state=BrokerState.BOOT, master_epoch=NO_EPOCH, master=None, reason="boot")

        self._is_recovered = False
        self._is_registered = False
        self._has_session = False
        self._marks = Marks()
        self._left_epoch = NO_EPOCH
        """Epochs up to here are never entered (again): promised before we began, or left (W3)."""
        self._has_clean_mark = False
        self._link: _Link | None = None
        self._generation = 0
        self._followed_epoch = NO_EPOCH
        self._answered_epoch = NO_EPOCH
        self._acked_end = LogOffset(0)
        self._entry: _Entry | None = None
        self._reign: MasterEpoch | None = None
        self._reign_view_index = 0

        self._pending: Step | None = None
        self._steps = 0
        self._failures = 0
        self._retry_due_us: int | None = None
        self._is_entered_settled = False
        self._is_entered_asked = False
        self._entered_failures = 0
        self._entered_due_us: int | None = None

        self._phases = PhaseClock(incarnation)
        self._closed_end: LogOffset | None = None
        self._clean_mark: CleanMark | None = None
        self._is_goodbye_said = False
        self._is_exited = False

        self._lines: dict[str, Callable[[], bool]] = {
            "link-stopped": self._line_link_stopped,
            "other-link-stopped": self._line_other_link_stopped,
            "unmarked": self._line_unmarked,
            "promised": self._line_promised,
            "link-started": self._line_link_started,
            "cut": self._line_cut,
            "role-published": self._line_role_published,
            "entry-recorded": self._line_entry_recorded,
            "entered": self._line_entered,
            "prepared": self._line_prepared,
            "entered-reported": self._line_entered_reported,
            "log-closed": self._line_log_closed,
            "marked": self._line_marked,
            "goodbye-said": self._line_goodbye_said,
            "exited": self._line_exited,
        }

    # --- what others may ask -----------------------------------------------------------------------------------------

    @property
    def published(self) -> PublishRole:
        """The role that everybody sees."""
        return self._published

    @property
    def marks(self) -> Marks:
        """As they are on disk."""
        return self._marks

    @property
    def view(self) -> SetView | None:
        """The newest authoritative state that was heard."""
        return self._view

    @property
    def goal(self) -> Goal:
        """What it works towards."""
        return self._goal

    @property
    def pending(self) -> Step | None:
        """The step whose answer is awaited."""
        return self._pending

    @property
    def is_ready(self) -> bool:
        """Recovered, and the store accepts a role (S46)."""
        return self._is_recovered and self._goal.kind not in (GoalKind.ISOLATED, GoalKind.STOPPED)

    @property
    def is_link_open(self) -> bool:
        """Whether a slave link transfers."""
        return self._link is not None and self._link.is_open

    @property
    def next_due_us(self) -> int | None:
        """When a ``Tick`` is needed; None = not at all."""
        due = [due_us for due_us in (self._retry_due_us, self._entered_due_us) if due_us is not None]
        return min(due, default=None)

    # --- inputs ------------------------------------------------------------------------------------------------------

    def handle(self, event: RoleInput, *, now_us: int) -> list[RoleAction]:
        """
        One input; returns what to do, in order. Total: never raises for anything that a peer or a controller may say.

        ``now_us`` is monotonic and never smaller than before.
        """
        self._now_us = now_us
        self._pushed_at_us = now_us
        self._actions = []
        self._accept(event)
        self._advance()
        return self._actions

    def _accept(self, event: RoleInput) -> None:
        if isinstance(event, ViewArrived):
            self._on_view(event.view, transit_us=event.transit_us)
        elif isinstance(event, StepDone):
            self._on_step_done(event)
        elif isinstance(event, StepFailed):
            self._on_step_failed(event)
        elif isinstance(event, (TruncationPlanned, LinkOpened, LinkClosed)):
            self._on_link(event)
        elif isinstance(event, PeerShowedEpoch):
            self._on_peer_epoch(event)
        elif isinstance(event, SessionOpened):
            self._on_session_opened(event)
        elif isinstance(event, SessionLost):
            self._has_session = False
            self._is_entered_asked = False
        elif isinstance(event, EnteredAnswered):
            self._on_entered_answered(event)
        elif isinstance(event, PhaseReached):
            if event.master_epoch == self._goal.master_epoch:
                self._report(event.phase)
        elif isinstance(event, ReignRefused):
            if event.master_epoch == self._reign:
                self._set_own_goal(GoalKind.FENCED, event.reason)
        elif isinstance(event, IncarnationEnded):
            self._set_own_goal(GoalKind.ISOLATED, event.reason)
        elif isinstance(event, RecoveryStarted):
            self._publish(BrokerState.RECOVERING, "reading the log")
        elif isinstance(event, Recovered):
            self._on_recovered(event)
        elif isinstance(event, Stop):
            self._set_own_goal(GoalKind.STOPPED, "asked to stop")
        elif isinstance(event, Tick):
            self._on_tick()

    def _on_tick(self) -> None:
        if self._retry_due_us is not None and self._retry_due_us <= self._now_us:
            self._retry_due_us = None
        if self._entered_due_us is not None and self._entered_due_us <= self._now_us:
            self._entered_due_us = None

    def _on_recovered(self, event: Recovered) -> None:
        self._is_recovered = True
        self._marks = event.marks
        self._left_epoch = event.marks.promised
        self._has_clean_mark = event.has_clean_mark
        if self._goal.kind is GoalKind.FENCED:
            self._goal = Goal(kind=GoalKind.FENCED, master_epoch=event.marks.promised, reason="not registered yet")
            self._publish(BrokerState.REGISTERING, "not registered yet")

    def _on_session_opened(self, event: SessionOpened) -> None:
        self._has_session = True
        self._broker_id = event.registered.broker_id
        self._is_entered_asked = False
        self._entered_due_us = None
        if not self._is_registered:
            self._is_registered = True
            if self._goal.kind is GoalKind.FENCED:
                self._publish(BrokerState.FENCED, "registered; no role yet")
        self._on_view(event.registered.view, is_registration=True)
        link = self._link
        if link is not None and link.reported is not None:
            link.reported = None
            self._send_link_report(link)

    def _on_view(self, view: SetView, *, is_registration: bool = False, transit_us: int = 0) -> None:
        """R2, R9: an older state is dropped; another fleet's counts only if we registered there (R7)."""
        self._pushed_at_us = self._now_us - transit_us
        known = self._view
        if view.set_key != self._set_key or not self._is_registered:
            return
        if known is not None:
            is_same_fleet = view.fleet_incarnation == known.fleet_incarnation
            if view.index < known.index if is_same_fleet else not is_registration:
                return
        self._view = view
        self._store(view)
        self._take(lambda standing: goal_for_view(view, standing))
        if self._goal.kind is GoalKind.REIGN and view.master_incarnation == self._incarnation:
            self._own_view = view
        self._offer_to_reign(view)
        self._note_in_sync()

    def _on_peer_epoch(self, event: PeerShowedEpoch) -> None:
        if self._is_registered:
            self._take(lambda standing: goal_for_peer(event, self._view, standing))

    def _on_link(self, event: TruncationPlanned | LinkOpened | LinkClosed) -> None:
        link = self._link
        if link is None or event.generation != link.generation or isinstance(self._pending, StopSlaveLink):
            return
        if isinstance(event, TruncationPlanned):
            link.planned = event
            link.is_open = False
            self._answered_epoch = link.target.master_epoch
        elif isinstance(event, LinkOpened):
            link.is_open = True
            self._send_link_report(link)
            self._note_in_sync()
        else:
            link.is_open = False
            link.planned = None
            self._send_link_report(link)

    def _on_entered_answered(self, event: EnteredAnswered) -> None:
        if event.master_epoch != self._reign or not self._is_entered_asked:
            return
        self._is_entered_asked = False
        if event.is_definite:
            self._is_entered_settled = True
            return
        self._entered_failures += 1
        self._entered_due_us = self._now_us + self._pause_us(self._entered_failures)

    # --- goals -------------------------------------------------------------------------------------------------------

    def _take(self, choose: Callable[[Standing], Choice]) -> None:
        """Ask the pure functions of ``goals``; alarms are for humans, the goal is for the table."""
        assert self._broker_id is not None, "only a registered replica is told anything"
        choice = choose(
            Standing(
                broker_id=self._broker_id,
                incarnation=self._incarnation,
                goal=self._goal,
                promised=self._marks.promised,
                left_epoch=self._left_epoch,
                has_followed=self._answered_epoch == self._goal.master_epoch,
            )
        )
        if choice.alarm is not None:
            self._alarm(choice.alarm)
        if choice.goal is not None:
            self._set_goal(choice.goal)

    def _set_own_goal(self, kind: GoalKind, reason: str) -> None:
        self._set_goal(Goal(kind=kind, master_epoch=self._goal.master_epoch, reason=reason))

    def _set_goal(self, goal: Goal) -> None:
        """Withdraw at once what the new goal excludes; the table does the rest."""
        old = self._goal
        if goal.is_same_as(old):
            return
        if old.kind is GoalKind.STOPPED or (old.kind is GoalKind.ISOLATED and goal.kind is not GoalKind.STOPPED):
            return
        self._goal = goal
        self._phases.begin(goal.master_epoch, self._pushed_at_us)
        self._failures = 0
        self._retry_due_us = None
        self._end_other_reign()
        if goal.kind is GoalKind.ISOLATED:
            self._publish(BrokerState.ISOLATED, goal.reason)
            self._alarm(goal.reason)
        elif goal.kind is GoalKind.STOPPED:
            self._publish(BrokerState.STOPPING, goal.reason)
        elif goal.kind is GoalKind.REIGN:
            self._is_entered_settled = self._is_entered_asked = False
            self._entered_failures, self._entered_due_us = 0, None
            self._publish(BrokerState.PROMISED, goal.reason)
        elif goal.kind is GoalKind.FENCED or goal.master_epoch != old.master_epoch or old.kind is not GoalKind.FOLLOW:
            self._publish(BrokerState.FENCED, goal.reason)

    def _end_other_reign(self) -> None:
        if self._reign is None:
            return
        if self._goal.kind is GoalKind.REIGN and self._goal.master_epoch == self._reign:
            return
        self._actions.append(LeaveMaster(master_epoch=self._reign, reason=self._goal.reason))
        self._left_epoch = max(self._left_epoch, self._reign)
        self._reign = None

    def _offer_to_reign(self, view: SetView) -> None:
        if self._reign is None or view.master_epoch != self._reign or view.master_incarnation != self._incarnation:
            return
        if view.index > self._reign_view_index:
            self._reign_view_index = view.index
            self._actions.append(AdoptView(view=view))
        if view.has_entered:
            self._is_entered_settled = True
            self._entered_due_us = None

    # --- the table ---------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Read the goal's lines from the top until one has to wait or all are true."""
        if not self._is_recovered:
            if self._goal.kind is GoalKind.STOPPED:
                self._line_exited()
            return
        self._end_other_reign()
        while self._pending is None and self._retry_due_us is None and not self._is_exited:
            if not any(self._lines[name]() for name in LINES[self._goal.kind]):
                return

    # A line returns whether it did something; False = it is true already, or it waits for an input.

    def _line_link_stopped(self) -> bool:
        if self._link is None:
            return False
        return self._begin(StopSlaveLink(step=self._next_step(), generation=self._link.generation))

    def _line_other_link_stopped(self) -> bool:
        if self._link is None or self._link.target == self._goal.target:
            return False
        return self._line_link_stopped()

    def _line_unmarked(self) -> bool:
        return self._has_clean_mark and self._begin(RemoveCleanMark(step=self._next_step()))

    def _line_promised(self) -> bool:
        if self._marks.promised >= self._goal.master_epoch:
            if self._goal.kind is not GoalKind.FENCED:
                self._report(Phase.PROMISED)
            return False
        return self._persist(self._marks.with_promised(self._goal.master_epoch))

    def _line_link_started(self) -> bool:
        target = self._goal.target
        if self._link is not None or target is None:
            return False
        self._generation += 1
        self._link = _Link(generation=self._generation, target=target)
        if target.master_epoch != self._followed_epoch:
            self._followed_epoch = target.master_epoch
            self._acked_end = LogOffset(0)
        self._actions.append(StartSlaveLink(generation=self._generation, target=target))
        return True

    def _line_cut(self) -> bool:
        link = self._link
        if link is None or link.planned is None:
            return False
        plan = link.planned.plan
        if isinstance(plan, Isolate):
            link.planned = None
            self._set_own_goal(GoalKind.ISOLATED, plan.reason)
            return True
        if isinstance(plan, Keep):
            self._resume(link)
            return True
        return self._begin(ExecuteCut(step=self._next_step(), generation=link.generation, plan=plan))

    def _line_role_published(self) -> bool:
        goal = self._goal
        if goal.kind is GoalKind.REIGN:
            state = BrokerState.MASTER
            is_applied = self._reign == goal.master_epoch
        else:
            state = BrokerState.LEARNER if self._is_learner else BrokerState.SLAVE
            is_applied = self.is_link_open
        if not is_applied or (self._published.state is state and self._published.master_epoch == goal.master_epoch):
            return False
        self._publish(state, goal.reason)
        self._report(Phase.ROLE_APPLIED)
        if state is BrokerState.MASTER:
            self._report(Phase.SERVING)
        self._note_in_sync()
        return True

    def _line_entry_recorded(self) -> bool:
        if self._entry is not None and self._entry.master_epoch == self._goal.master_epoch:
            return False
        return self._begin(RecordEpochEntry(step=self._next_step(), master_epoch=self._goal.master_epoch))

    def _line_entered(self) -> bool:
        if self._marks.entered >= self._goal.master_epoch:
            return False
        return self._persist(self._marks.with_entered(self._goal.master_epoch))

    def _line_prepared(self) -> bool:
        if self._reign is not None:
            return False
        assert self._entry is not None, "the line before recorded the entry"
        assert self._own_view is not None, "the goal came from a view"
        return self._begin(
            PrepareMaster(
                step=self._next_step(),
                master_epoch=self._goal.master_epoch,
                start_offset=self._entry.start_offset,
                view=self._own_view,
            )
        )

    def _line_entered_reported(self) -> bool:
        is_waiting = self._is_entered_asked or self._entered_due_us is not None
        if self._is_entered_settled or is_waiting or not self._has_session:
            return False
        assert self._entry is not None and self._broker_id is not None, "a published master has both"  # noqa: PT018
        self._is_entered_asked = True
        report = ReportEntered(
            set_key=self._set_key,
            broker_id=self._broker_id,
            incarnation=self._incarnation,
            master_epoch=self._entry.master_epoch,
            start_offset=self._entry.start_offset,
            acked_end_max=self._acked_end,
        )
        self._actions.append(SendEntered(report=report))
        return True

    def _line_log_closed(self) -> bool:
        return self._closed_end is None and self._begin(CloseLog(step=self._next_step()))

    def _line_marked(self) -> bool:
        if self._clean_mark is not None or self._closed_end is None:
            return False
        if self._has_clean_mark and not self._is_registered:
            # The controllers know the mark that is there; nothing was appended or acked since.
            return False
        return self._begin(WriteCleanMark(step=self._next_step(), end_offset=self._closed_end))

    def _line_goodbye_said(self) -> bool:
        if self._is_goodbye_said or self._clean_mark is None or not self._has_session:
            return False
        return self._begin(SayGoodbyeTo(step=self._next_step(), clean_mark=self._clean_mark))

    def _line_exited(self) -> bool:
        if self._is_exited:
            return False
        self._is_exited = True
        self._actions.append(Exit(is_clean=self._clean_mark is not None or self._has_clean_mark))
        return True

    # --- steps -------------------------------------------------------------------------------------------------------

    def _next_step(self) -> int:
        self._steps += 1
        return self._steps

    def _begin(self, step: Step) -> bool:
        self._pending = step
        self._actions.append(step)
        return True

    def _persist(self, marks: Marks) -> bool:
        assert marks.covers(self._marks), f"marks never fall (R9): {self._marks} -> {marks}"
        return self._begin(PersistMarks(step=self._next_step(), marks=marks))

    def _on_step_done(self, event: StepDone) -> None:
        step = self._pending
        if step is None or step.step != event.step:
            return
        self._pending = None
        self._failures = 0
        if isinstance(step, PersistMarks):
            self._marks = step.marks
        elif isinstance(step, RemoveCleanMark):
            self._has_clean_mark = False
        elif isinstance(step, StopSlaveLink):
            self._forget_link(event.offset)
        elif isinstance(step, RecordEpochEntry):
            assert event.offset is not None, "RecordEpochEntry answers with the start"
            self._entry = _Entry(master_epoch=step.master_epoch, start_offset=event.offset)
        elif isinstance(step, PrepareMaster):
            self._reign = step.master_epoch
            self._reign_view_index = step.view.index
            self._end_other_reign()
            if self._view is not None:
                self._offer_to_reign(self._view)
        elif isinstance(step, ExecuteCut):
            link = self._link
            if link is not None and link.planned is not None and link.planned.plan is step.plan:
                self._resume(link)
        elif isinstance(step, CloseLog):
            self._closed_end = event.offset
        elif isinstance(step, WriteCleanMark):
            self._clean_mark = event.clean_mark
        else:
            self._is_goodbye_said = True

    def _on_step_failed(self, event: StepFailed) -> None:
        step = self._pending
        if step is None or step.step != event.step:
            return
        self._pending = None
        if isinstance(step, SayGoodbyeTo):
            self._is_goodbye_said = True
        elif isinstance(step, (CloseLog, WriteCleanMark)):
            self._line_exited()
        elif event.is_fatal and isinstance(step, StopSlaveLink):
            self._forget_link(None)
        elif event.is_fatal:
            self._set_own_goal(GoalKind.ISOLATED, f"{type(step).__name__} failed for good: {event.reason}")
        else:
            self._failures += 1
            self._retry_due_us = self._now_us + self._pause_us(self._failures)

    def _forget_link(self, acked_end: LogOffset | None) -> None:
        assert self._link is not None, "only a link can be stopped"
        self._link = None
        if acked_end is not None:
            self._acked_end = max(self._acked_end, acked_end)

    def _resume(self, link: _Link) -> None:
        assert link.planned is not None, "only a planned link waits"
        cut_from, cut_to = cut_range(link.planned.plan)
        self._report(Phase.TRUNCATED, cut_from=cut_from, cut_to=cut_to, released=link.planned.released)
        link.planned = None
        self._actions.append(ResumeSlaveLink(generation=link.generation))

    def _pause_us(self, failures: int) -> int:
        return min(self._retry_us << min(failures - 1, 16), self._retry_us_max)

    # --- telling -----------------------------------------------------------------------------------------------------

    def _publish(self, state: BrokerState, reason: str) -> None:
        view = self._view
        epoch = self._goal.master_epoch
        master = view.master if view is not None and view.master_epoch == epoch else None
        if master is None and self._goal.target is not None:
            master = self._goal.target.broker_id
        old = self._published
        if (state, epoch, master) == (old.state, old.master_epoch, old.master):
            return
        self._published = PublishRole(state=state, master_epoch=epoch, master=master, reason=reason)
        self._actions.append(self._published)

    def _report(self, phase: Phase, **details: LogOffset | None) -> None:
        """Each phase of an epoch once; ``details`` are fields of the milestone."""
        if self._broker_id is None:
            return
        milestone = self._phases.reach(phase, self._broker_id, self._now_us)
        if milestone is not None:
            self._actions.append(ReportMilestone(milestone=msgspec.structs.replace(milestone, **details)))

    def _note_in_sync(self) -> None:
        view = self._view
        if view is None or self._broker_id is None or not self.is_link_open:
            return
        is_published = self._published.state in (BrokerState.SLAVE, BrokerState.LEARNER)
        if is_published and view.master_epoch == self._goal.master_epoch and self._broker_id in view.sync_state_set:
            self._report(Phase.IN_SYNC)

    def _send_link_report(self, link: _Link) -> None:
        """R13 asks what electable members see; a link that we stop ourselves says nothing about the master."""
        if self._is_learner or link.reported is link.is_open:
            return
        link.reported = link.is_open
        self._actions.append(
            SendLinkReport(master=link.target.broker_id, master_epoch=link.target.master_epoch, is_open=link.is_open)
        )

    def _alarm(self, reason: str) -> None:
        self._actions.append(RaiseAlarm(reason=reason))

    def _store(self, view: SetView) -> None:
        stored = StoredView(
            fleet_incarnation=view.fleet_incarnation,
            master_epoch=view.master_epoch,
            sync_state_set_epoch=view.sync_state_set_epoch,
            sync_state_set=view.sync_state_set,
        )
        if stored != self._stored:
            self._stored = stored
            self._actions.append(PersistView(stored=stored))
