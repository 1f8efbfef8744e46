"""
The role of one replica: from boot to master, slave or learner, and out again. Sans-IO, pure.

Here: ``RoleMachine``. Its inputs and actions are the values of ``broker.core.role_io``, its goals those of ``goals``,
its facts and the lines below those of ``role_lines``, its marks on disk those of ``durable``. Not here: doing the
actions (``broker.role_shell``), registering (``registration``), which replicas an ack needs (``ha.sync_state``), where
a cut goes (``ha.truncation``).

Use: ``machine = RoleMachine(set_key=..., incarnation=..., is_learner=...)``, then ``actions = machine.handle(input,
now_us=...)`` for every input, in order; do the actions in order. Call with ``Tick()`` at ``machine.next_due_us``.

How it works: views set a *goal*. The next step is a function of the goal and of the facts alone, so an
interruption anywhere, by a higher epoch, a failed step or a restart, needs no case of its own: facts stay, the goal
moves, the table is read again. The first line that is not yet true is the next step:

=========  ==========================================================================================================
goal       lines
=========  ==========================================================================================================
FENCED     link-stopped, promised
FOLLOW     other-link-stopped, unmarked, promised, link-started, cut, role-published
REIGN      link-stopped, unmarked, promised, entry-recorded, entered, prepared, role-published, entered-reported,
           switching, switch-told
LEAVE      draining, stop-told
ISOLATED   link-stopped
STOPPED    link-stopped, log-closed, marked, goodbye-said, exited
=========  ==========================================================================================================

LEAVE becomes STOPPED when nobody waits for this replica any more: another one is master, or the set goes on without it.
So it does when its time is over, and at a second ``Stop``.

In every goal a reign of another epoch ends before anything else, in the turn that sets the goal (R12, R17, W19).

Rule 1 (R9): marks never fall, and a mark is durable before the line behind it begins.
Rule 2 (R12): the link to the old master is stopped first, then the promise is made durable, then the start of the own
epoch is taken. So no byte of a lower epoch arrives behind the start, and no ack of one leaves behind the promise.
Rule 3 (W19): a role is published when its last line is true, and withdrawn when its goal is given up.
Rule 4: losing the controllers changes no role (promise 3 of the README).
Rule 5 (R26): a plan that would cut confirmed bytes ends in ISOLATED with an alarm, until an operator restarts the
replica.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec import UNSET

from rollcall_ha.broker.core.durable import EpochMarks
from rollcall_ha.broker.core.goals import Choice, Goal, GoalKind, Standing, goal_for_view, is_awaited
from rollcall_ha.broker.core.phases import PhaseClock, cut_range, outlived_range
from rollcall_ha.broker.core.role_io import (
    AdoptView,
    CloseLog,
    Drained,
    EnteredAnswered,
    HigherEpochShown,
    IncarnationEnded,
    LeaveMaster,
    LinkOpened,
    PersistView,
    PhaseReached,
    PrepareMaster,
    PublishRole,
    RaiseAlarm,
    Recovered,
    RecoveryStarted,
    ReignRefused,
    ReportMilestone,
    ResumeSlaveLink,
    RoleAction,
    RoleInput,
    RoleTick,
    SayGoodbyeTo,
    SendLinkReport,
    SessionEstablished,
    SessionLost,
    SlaveLinkClosed,
    Step,
    StepDone,
    StepFailed,
    Stop,
    StopAnswered,
    StopSlaveLink,
    TruncationPlanned,
    ViewArrived,
    WriteCleanMark,
)
from rollcall_ha.broker.core.role_lines import (
    Facts,
    LineAction,
    SlaveLinkFacts,
    exit_of,
    is_promise_kept,
    next_action,
    note_begun,
    note_done,
    order_of,
    role_of,
)
from rollcall_ha.controller.contract.ids import Incarnation, SetKey
from rollcall_ha.controller.contract.replies import SetView
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.values import Phase, StoredView, made_from
from rollcall_ha.epoch.model import NO_EPOCH
from rollcall_ha.ha.truncation import Isolate


class RoleMachine:
    """One replica's role, for the life of one process. Use and rules are at the top of the module."""

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
        self._facts = Facts(set_key=set_key, incarnation=incarnation, is_learner=is_learner)
        self._goal = Goal(kind=GoalKind.FENCED, master_epoch=NO_EPOCH, reason="not registered yet")
        self.retime(retry_ms=retry_ms, retry_ms_max=retry_ms_max)
        self._now_us = 0
        self._pushed_at_us = 0
        """When the input that is handled left its sender."""
        self._actions: list[RoleAction] = []

        self._is_recovered = False
        self._stored: StoredView | None = None
        self._left_epoch = NO_EPOCH
        """Epochs up to here are never entered (again): promised before we began, or left (W3)."""
        self._answered_epoch = NO_EPOCH
        self._reign_view: SetView | None = None
        self._pending: Step | None = None
        self._failures = 0
        self._retry_due_us: int | None = None
        self._leave_due_us: int | None = None
        """When it stops although somebody waits for it."""
        self._entered_failures = 0
        self._phases = PhaseClock(incarnation)

    def retime(self, *, retry_ms: int, retry_ms_max: int) -> None:
        """Pauses between two tries of a step, from the next one on."""
        self._retry_us = retry_ms * 1_000
        self._retry_us_max = retry_ms_max * 1_000

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def published(self) -> PublishRole:
        """The role that everybody sees."""
        return self._facts.published

    @property
    def marks(self) -> EpochMarks:
        """As they are on disk."""
        return self._facts.marks

    @property
    def view(self) -> SetView | None:
        """The newest authoritative state that was heard."""
        return self._facts.view

    @property
    def seen_index(self) -> int:
        """The highest index at which these controllers told a state: if theirs is lower, they have lost entries."""
        return self._facts.seen_index

    @property
    def goal(self) -> Goal:
        """The state that it works towards."""
        return self._goal

    @property
    def pending(self) -> Step | None:
        """The step whose answer is awaited."""
        return self._pending

    @property
    def is_ready(self) -> bool:
        """Recovered, and the store accepts a role (S46)."""
        return self._is_recovered and self._goal.kind not in (GoalKind.LEAVE, GoalKind.ISOLATED, GoalKind.STOPPED)

    @property
    def is_link_open(self) -> bool:
        """Whether a slave link transfers."""
        return self._facts.is_link_open

    @property
    def is_doubted(self) -> bool:
        """A peer shows a higher epoch than that of this reign, and no controller says that it goes on (R21)."""
        facts = self._facts
        return facts.reign is not None and facts.shown_epoch > facts.reign and not facts.has_session

    @property
    def next_due_us(self) -> int | None:
        """When a ``RoleTick`` is needed; None = not at all."""
        facts = self._facts
        all_due = (
            self._retry_due_us, facts.entered_due_us, self._leave_due_us, facts.stop_due_us, facts.order_due_us
        )  # fmt: skip
        return min((due_us for due_us in all_due if due_us is not None), default=None)

    # --- inputs ------------------------------------------------------------------------------------------------------

    def handle(self, event: RoleInput, *, now_us: int) -> list[RoleAction]:
        """
        One input; returns the actions, in order. Total: never raises for anything that a peer or a controller may say.

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
        elif isinstance(event, (TruncationPlanned, LinkOpened, SlaveLinkClosed)):
            self._on_link(event)
        elif isinstance(event, SessionEstablished):
            self._on_session_opened(event)
        elif isinstance(event, SessionLost):
            # The goal stays (rule 4): a master that stopped for want of controllers would turn their outage into ours.
            self._facts.has_session = False
            self._facts.is_entered_asked = self._facts.is_stop_told = False
        elif isinstance(event, EnteredAnswered):
            self._on_entered_answered(event)
        elif isinstance(event, PhaseReached):
            if event.master_epoch == self._goal.master_epoch:
                self._report(event.phase, at_us=event.reached_at_us, waited_us=event.waited_us)
        elif isinstance(event, ReignRefused):
            # The refusal of an alter of epoch 2 may arrive when we reign in 4: it says nothing about that.
            if event.master_epoch == self._facts.reign:
                self._set_own_goal(GoalKind.FENCED, event.reason)
        elif isinstance(event, IncarnationEnded):
            self._set_own_goal(GoalKind.ISOLATED, event.reason)
        elif isinstance(event, HigherEpochShown):
            self._facts.shown_epoch = max(self._facts.shown_epoch, event.master_epoch)
        elif isinstance(event, RecoveryStarted):
            self._publish(BrokerState.RECOVERING, "reading the log")
        elif isinstance(event, Recovered):
            self._on_recovered(event)
        elif isinstance(event, (Stop, Drained, StopAnswered)):
            self._on_stop(event)
        elif isinstance(event, RoleTick):
            self._on_tick()

    def _on_tick(self) -> None:
        if self._retry_due_us is not None and self._retry_due_us <= self._now_us:
            self._retry_due_us = None
        if self._facts.entered_due_us is not None and self._facts.entered_due_us <= self._now_us:
            self._facts.entered_due_us = None
        if self._facts.stop_due_us is not None and self._facts.stop_due_us <= self._now_us:
            self._facts.stop_due_us = None
        if self._facts.order_due_us is not None and self._facts.order_due_us <= self._now_us:
            # Cut off from the controllers, it would never hear that they have withdrawn the order, and promise 3 says
            # that sending does not need them. Elected or not, its target promises the next epoch before it acks there.
            self._facts.given_up = self._facts.order
            self._note_order()
        if self._leave_due_us is not None and self._leave_due_us <= self._now_us:
            self._set_own_goal(GoalKind.STOPPED, "asked to stop; its time to hand over has passed")

    def _on_stop(self, event: Stop | Drained | StopAnswered) -> None:
        facts, is_leaving = self._facts, self._goal.kind is GoalKind.LEAVE
        if isinstance(event, Drained):
            facts.is_drained = facts.is_drained or (facts.is_draining and event.master_epoch == facts.reign)
        elif isinstance(event, StopAnswered):
            if is_leaving and not event.is_over:
                facts.is_stop_told = False
                facts.stop_due_us = self._now_us + self._retry_us
            elif is_leaving:
                self._set_own_goal(GoalKind.STOPPED, "asked to stop")
            elif facts.order is not None:
                # Refused for good: the view that follows says why. Asked as often as a lost answer, it would be asked
                # twenty times a second until then.
                facts.is_stop_told = False
                facts.stop_due_us = self._now_us + (self._retry_us_max if event.is_over else self._retry_us)
        elif event.leave_ms > 0 and self._is_worth_leaving():
            self._leave_due_us = self._now_us + event.leave_ms * 1_000
            # It drains for an order: what it asks for from here on is a successor because it stops.
            facts.order = facts.order_due_us = facts.stop_due_us = None
            facts.is_stop_told = False
            self._set_own_goal(GoalKind.LEAVE, "asked to stop")
        else:
            self._set_own_goal(GoalKind.STOPPED, "asked to stop")

    def _is_worth_leaving(self) -> bool:
        is_in_role = self._facts.published.state in (BrokerState.MASTER, BrokerState.SLAVE)
        is_at_work = self._goal.kind in (GoalKind.REIGN, GoalKind.FOLLOW) and is_in_role and self._facts.has_session
        return is_at_work and is_awaited(self._facts.view, self._facts.broker_id, self._goal.master_epoch)

    def _on_recovered(self, event: Recovered) -> None:
        self._is_recovered = True
        self._facts.marks = event.marks
        # The former process may have entered the epoch that it promised last. Entered again by this one, from wherever
        # its log ends now, the epoch would have two starts, and the replicas that cut to the first are not cut again.
        self._left_epoch = event.marks.promised
        self._facts.has_clean_mark = event.has_clean_mark
        if self._goal.kind is GoalKind.FENCED:
            self._goal = Goal(kind=GoalKind.FENCED, master_epoch=event.marks.promised, reason="not registered yet")
            self._publish(BrokerState.REGISTERING, "not registered yet")

    def _on_session_opened(self, event: SessionEstablished) -> None:
        self._facts.has_session = True
        self._facts.broker_id = event.registered.broker_id
        self._facts.is_entered_asked = self._facts.is_stop_told = False
        self._facts.entered_due_us = self._facts.stop_due_us = None
        if not self._facts.is_registered:
            self._facts.is_registered = True
            if self._goal.kind is GoalKind.FENCED:
                self._publish(BrokerState.FENCED, "registered; no role yet")
        self._on_view(event.registered.view, is_registration=True)
        link = self._facts.link
        if link is not None and link.reported is not None:
            # A new leader knows no links. Not told again that ours to the dead master is closed, it would wait for the
            # timeout (R13).
            link.reported = None
            self._send_link_report(link)

    def _on_view(self, view: SetView, *, is_registration: bool = False, transit_us: int = 0) -> None:
        """R2, R9: an older state is dropped; another fleet's counts only if we registered there (R7)."""
        # Timed from when the leader sent it: else a busy network between us would be missing in the phases.
        self._pushed_at_us = self._now_us - transit_us
        known = self._facts.view
        # Before the registration nobody has judged what this incarnation still holds (R3): a replica that lost its tail
        # in a power cut would follow, ack, and be counted for the acks of its former process.
        if view.set_key != self._facts.set_key or not self._facts.is_registered:
            return
        is_same_fleet = known is not None and view.fleet_incarnation == known.fleet_incarnation
        if is_registration:
            # Committed after all that this broker has seen, unless the controllers' directories were put back from an
            # older copy. By the index alone each answer of theirs was dropped until their log was as long as the lost
            # one: 144 s without a master for 133 entries.
            if is_same_fleet and view.index < self._facts.seen_index:
                self._alarm(
                    f"the controllers are at index {view.index}, they were at {self._facts.seen_index}: their data "
                    "directories were put back from an older copy"
                )
        elif known is not None and (not is_same_fleet or (view.term, view.index) < (known.term, known.index)):
            # A push that was overtaken by a heartbeat's answer: the set of index 40 after that of 41 would bring back a
            # member that has left. Indexes of two foundings cannot be compared: only registering decides then.
            return
        self._facts.seen_index = max(view.index, self._facts.seen_index if is_same_fleet else 0)
        self._facts.view = view
        self._facts.shown_epoch = NO_EPOCH
        self._store(view)
        self._take(lambda standing: goal_for_view(view, standing))
        if self._goal.kind is GoalKind.REIGN and view.master_incarnation == self._facts.incarnation:
            self._facts.own_view = view
        self._offer_to_reign(view)
        self._note_order()
        is_leaving = self._goal.kind is GoalKind.LEAVE
        if is_leaving and not is_awaited(view, self._facts.broker_id, self._goal.master_epoch):
            self._set_own_goal(GoalKind.STOPPED, "asked to stop")
        self._note_in_sync()

    def _note_order(self) -> None:
        """The order that the newest view of this reign shows, with its time from now on, or none (R29)."""
        facts, order = self._facts, order_of(self._facts, self._goal)
        name = None if order is None else order.order
        if self._goal.kind is not GoalKind.REIGN or name == facts.order:
            return
        facts.order = name
        facts.order_due_us = None if order is None else self._now_us + order.deadline_ms * 1_000
        facts.is_stop_told, facts.stop_due_us = False, None

    def _on_link(self, event: TruncationPlanned | LinkOpened | SlaveLinkClosed) -> None:
        link = self._facts.link
        # A plan of link 3, made for the log before link 4 cut it, would cut the log a second time. And a link that is
        # being stopped must not open any more: the start of our epoch is about to be taken behind it (rule 2).
        if link is None or event.generation != link.generation or isinstance(self._pending, StopSlaveLink):
            return
        if isinstance(event, TruncationPlanned):
            link.plan_for(event)
            self._answered_epoch = link.target.master_epoch
            if isinstance(event.plan, Isolate) and link.target == self._goal.target:
                self._set_own_goal(GoalKind.ISOLATED, event.plan.reason)
        elif isinstance(event, LinkOpened):
            link.is_open = True
            self._send_link_report(link)
            self._note_in_sync()
        else:
            link.plan_for(None)
            self._send_link_report(link)

    def _on_entered_answered(self, event: EnteredAnswered) -> None:
        if event.master_epoch != self._facts.reign or not self._facts.is_entered_asked:
            return
        self._facts.is_entered_asked = False
        if event.is_definite:
            self._facts.is_entered_settled = True
            return
        # Unknown is asked again: a lost report of a master that serves would let the deadline pass, and the set elects
        # another one for nothing.
        self._entered_failures += 1
        self._facts.entered_due_us = self._now_us + self._pause_us(self._entered_failures)

    # --- goals -------------------------------------------------------------------------------------------------------

    def _take(self, choose: Callable[[Standing], Choice]) -> None:
        """Ask the pure functions of ``goals``; alarms are for humans, the goal is for the table."""
        assert self._facts.broker_id is not None, "only a registered replica is told anything"
        choice = choose(
            Standing(
                broker_id=self._facts.broker_id,
                incarnation=self._facts.incarnation,
                goal=self._goal,
                promised=self._facts.marks.promised,
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
        """Withdraw the role and the reign that the new goal excludes, at once; the table does the rest."""
        old = self._goal
        if goal.is_same_as(old):
            return
        # An isolated replica that took the next view's goal would follow and be cut below its confirm: what it isolated
        # itself to prevent (R26).
        if old.kind is GoalKind.STOPPED or (old.kind is GoalKind.ISOLATED and goal.kind is not GoalKind.STOPPED):
            return
        # It was asked to stop: isolated or fenced instead, its process would never end.
        if old.kind is GoalKind.LEAVE:
            goal = Goal(kind=GoalKind.STOPPED, master_epoch=goal.master_epoch, reason=goal.reason)
            self._leave_due_us = self._facts.stop_due_us = None
        self._goal = goal
        self._phases.begin(goal.master_epoch, self._pushed_at_us)
        self._failures = 0
        self._retry_due_us = None
        # In this turn, not when its line comes: a send between a view of epoch 3 and the end of epoch 2 would be
        # appended, acked by the set of 2, and cut by 3 (R17).
        self._end_other_reign()
        if goal.kind is GoalKind.ISOLATED:
            self._publish(BrokerState.ISOLATED, goal.reason)
            self._alarm(goal.reason)
        elif goal.kind is GoalKind.STOPPED:
            self._publish(BrokerState.STOPPING, goal.reason)
        elif goal.kind is GoalKind.LEAVE:
            pass  # its role stays what it is, until nobody waits for it
        elif goal.kind is GoalKind.REIGN:
            self._facts.is_entered_settled = self._facts.is_entered_asked = False
            self._entered_failures, self._facts.entered_due_us = 0, None
            self._publish(BrokerState.PROMISED, goal.reason)
        elif goal.kind is GoalKind.FENCED or goal.master_epoch != old.master_epoch or old.kind is not GoalKind.FOLLOW:
            self._publish(BrokerState.FENCED, goal.reason)

    def _end_other_reign(self) -> None:
        if self._facts.reign is None:
            return
        if self._goal.kind in (GoalKind.REIGN, GoalKind.LEAVE) and self._goal.master_epoch == self._facts.reign:
            return
        self._actions.append(LeaveMaster(master_epoch=self._facts.reign, reason=self._goal.reason))
        # Never again (W3): a late view (2, us) after we left 2 for 3 would begin epoch 2 a second time, with another
        # start.
        self._left_epoch = max(self._left_epoch, self._facts.reign)
        facts = self._facts
        facts.reign = facts.order = facts.order_due_us = facts.stop_due_us = None
        # What the reign that is over has drained says nothing of the next one.
        facts.is_draining = facts.is_drained = facts.is_stop_told = False

    def _offer_to_reign(self, view: SetView) -> None:
        facts = self._facts
        if facts.reign is None or view.master_epoch != facts.reign or view.master_incarnation != facts.incarnation:
            return
        # Told again with nothing new, each heartbeat's answer would be worked through by the reign.
        if view != self._reign_view:
            self._reign_view = view
            self._actions.append(AdoptView(view=view))
        if view.has_entered:
            self._facts.is_entered_settled = True
            self._facts.entered_due_us = None

    # --- the table ---------------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        """Do the goal's lines from the top until one has to wait or all are true."""
        if not self._is_recovered:
            if self._goal.kind is GoalKind.STOPPED:
                self._begin(exit_of(self._facts))
            return
        self._end_other_reign()
        # One step at a time: an entry that is recorded while a cut still runs would start at an end that the cut moves.
        while self._pending is None and self._retry_due_us is None and not self._facts.is_exited:
            action = next_action(self._facts, self._goal)
            if is_promise_kept(self._facts, self._goal):
                self._report(Phase.PROMISED)
            if action is None:
                return
            self._begin(action)

    def _begin(self, action: LineAction) -> None:
        """Do ``action`` and note the facts that are true from now on; those of a step are noted when it is done."""
        note_begun(self._facts, action)
        if isinstance(action, ResumeSlaveLink):
            self._report_cut()
        self._actions.append(action)
        if isinstance(action, PublishRole):
            self._report_role(action)
        elif isinstance(action, Step):
            self._pending = action

    def _report_role(self, role: PublishRole) -> None:
        self._report(Phase.ROLE_APPLIED)
        if role.state is BrokerState.MASTER:
            self._report(Phase.SERVING)
        self._note_in_sync()

    def _report_cut(self) -> None:
        link = self._facts.link
        assert link is not None and link.planned is not None, "only a planned link waits"  # noqa: PT018
        plan, released = link.planned.plan, link.planned.released
        cut_from, cut_to = cut_range(plan)
        self._report(Phase.TRUNCATED, cut_from=cut_from, cut_to=cut_to, released=released, **outlived_range(plan))
        link.plan_for(None)

    # --- steps -------------------------------------------------------------------------------------------------------

    def _on_step_done(self, event: StepDone) -> None:
        step = self._pending
        if step is None or step.step != event.step:
            return
        self._pending = None
        self._failures = 0
        note_done(self._facts, step, event)
        if isinstance(step, PrepareMaster):
            self._reign_view = step.view
            # Preparing takes turns of the loop. If epoch 3 was shown meanwhile, the reign of 2 is left before its gate
            # ever opens; if only the set changed, the reign hears of it before the first ack is counted.
            self._end_other_reign()
            if self._facts.view is not None:
                self._offer_to_reign(self._facts.view)

    def _on_step_failed(self, event: StepFailed) -> None:
        step = self._pending
        if step is None or step.step != event.step:
            return
        self._pending = None
        if isinstance(step, SayGoodbyeTo):
            self._facts.is_goodbye_said = True
        elif isinstance(step, (CloseLog, WriteCleanMark)):
            # Exit without the mark: the log may not be on disk, and a mark would prove that it is (R3a).
            self._begin(exit_of(self._facts))
        elif event.is_fatal and isinstance(step, StopSlaveLink):
            self._facts.link = None
        elif event.is_fatal:
            # A cut that the log refuses would be refused again: another point would be ours, not the master's.
            self._set_own_goal(GoalKind.ISOLATED, f"{type(step).__name__} failed for good: {event.reason}")
        else:
            self._failures += 1
            self._retry_due_us = self._now_us + self._pause_us(self._failures)

    def _pause_us(self, failures: int) -> int:
        return min(self._retry_us << min(failures - 1, 16), self._retry_us_max)

    # --- telling -----------------------------------------------------------------------------------------------------

    def _publish(self, state: BrokerState, reason: str) -> None:
        role = role_of(self._facts, self._goal, state, reason)
        old = self._facts.published
        if (role.state, role.master_epoch, role.master) != (old.state, old.master_epoch, old.master):
            self._facts.published = role
            self._actions.append(role)

    def _report(self, phase: Phase, *, at_us: int | None = None, **details: int | None) -> None:
        """Each phase of an epoch once, ``at_us`` or now; ``details`` are fields of the milestone."""
        if self._facts.broker_id is None:
            return
        reached_at_us = self._now_us if at_us is None else at_us
        milestone = self._phases.reach(phase, self._facts.broker_id, reached_at_us)
        if milestone is not None:
            milestone = msgspec.structs.replace(milestone, **details)
            self._actions.append(ReportMilestone(milestone=milestone, reached_at_us=reached_at_us))

    def _note_in_sync(self) -> None:
        facts, view = self._facts, self._facts.view
        if view is None or facts.broker_id is None or not facts.is_link_open:
            return
        is_published = facts.published.state in (BrokerState.SLAVE, BrokerState.LEARNER)
        if is_published and view.master_epoch == self._goal.master_epoch and facts.broker_id in view.sync_state_set:
            self._report(Phase.IN_SYNC)

    def _send_link_report(self, link: SlaveLinkFacts) -> None:
        """R13 asks what electable members see; a link that we stop ourselves says nothing about the master."""
        # The word of a learner behind a cut cable would help to declare a master dead that every voter still hears.
        if self._facts.is_learner or link.reported is link.is_open:
            return
        link.reported = link.is_open
        self._actions.append(
            SendLinkReport(master=link.target.broker_id, master_epoch=link.target.master_epoch, is_open=link.is_open)
        )

    def _alarm(self, reason: str) -> None:
        self._actions.append(RaiseAlarm(reason=reason))

    def _store(self, view: SetView) -> None:
        stored = stored_view(view, self._stored)
        if stored != self._stored:
            self._stored = stored
            self._actions.append(PersistView(stored=stored))


def stored_view(view: SetView, known: StoredView | None) -> StoredView:
    """
    The part of ``view`` that a replica keeps on its disk, for controllers that were wiped or restored (R7).

    A master that is over is in no view; its epoch's in ``known``, the last one, is the one whose end they must find.
    """
    master, incarnation = view.master or UNSET, view.master_incarnation or UNSET
    if master is UNSET and known is not None and known.master_epoch == view.master_epoch:
        master, incarnation = known.master, known.master_incarnation
    return made_from(view, StoredView, master=master, master_incarnation=incarnation)


def told_view(view: SetView, known: StoredView | None) -> StoredView:
    """What controllers that are wiped next have to hear of the set (R7); ``known``: what they would hear so far."""
    stored = stored_view(view, known)
    # A lower epoch of the same fleet is the word of controllers that were wiped and still gather. In place of what
    # was known, nobody would tell of the reign before them if they were wiped again.
    if known is not None and stored.master_epoch < known.master_epoch:
        return known if stored.fleet_incarnation == known.fleet_incarnation else stored
    return stored
