"""
The next step of a replica: the table of the role machine, as pure functions of its facts and its goal.

Here: ``Facts``, one function per line, and ``next_action``. Not here: where facts and goals come from (``role``).
Rule: a line answers with the action that makes it true, or None if it is true already or waits for an input.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from rollcall_ha.broker.core.durable import EpochMarks
from rollcall_ha.broker.core.goals import Goal, GoalKind
from rollcall_ha.broker.core.role_io import (
    CloseLog,
    ExecuteCut,
    ExitProcess,
    LinkTarget,
    PersistMarks,
    PrepareMaster,
    PublishRole,
    RecordEpochEntry,
    RemoveCleanMark,
    ResumeSlaveLink,
    SayGoodbyeTo,
    SendEntered,
    StartDraining,
    StartSlaveLink,
    Step,
    StepDone,
    StopDraining,
    StopSlaveLink,
    TellDrained,
    TellStop,
    TruncationPlanned,
    WriteCleanMark,
)
from rollcall_ha.controller.contract.commands import ReportEntered
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, LogOffset, MasterEpoch, RequestId, SetKey
from rollcall_ha.controller.contract.replies import SetView, SwitchoverView
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.values import CleanMark
from rollcall_ha.epoch.model import NO_EPOCH, EpochEntry
from rollcall_ha.ha.truncation import Keep


class SlaveLinkFacts(msgspec.Struct, kw_only=True):
    """The slave link as far as its reports tell."""

    generation: int
    target: LinkTarget
    is_open: bool = False
    planned: TruncationPlanned | None = None
    """It waits for this plan to be carried out."""
    is_cut: bool = False
    """``planned`` is carried out."""
    reported: bool | None = None
    """The last report of this link to the controllers (R13); None = none in this session."""

    def plan_for(self, planned: TruncationPlanned | None) -> None:
        """A handshake was answered, or the one before counts no more: nothing flows until a new plan is carried out."""
        self.is_open = False
        self.planned = planned
        self.is_cut = False


class Facts(msgspec.Struct, kw_only=True):
    """Everything that a line may look at. Changed by ``RoleMachine`` alone."""

    set_key: SetKey
    incarnation: Incarnation
    is_learner: bool
    broker_id: BrokerId | None = None
    view: SetView | None = None
    """The newest authoritative state that was heard."""
    seen_index: int = 0
    """The highest index at which the controllers of ``view``'s founding have told a state."""
    own_view: SetView | None = None
    """The newest one that names this incarnation master of the goal's epoch."""
    published: PublishRole = msgspec.field(
        default_factory=lambda: PublishRole(state=BrokerState.BOOT, master_epoch=NO_EPOCH, master=None, reason="boot")
    )
    is_registered: bool = False
    has_session: bool = False
    marks: EpochMarks = msgspec.field(default_factory=EpochMarks)
    """As they are on disk."""
    has_clean_mark: bool = False
    link: SlaveLinkFacts | None = None
    generation: int = 0
    followed_epoch: MasterEpoch = NO_EPOCH
    acked_end: LogOffset = LogOffset(0)
    """Highest end that was acked in ``followed_epoch``, the epoch that was followed last."""
    entry: EpochEntry | None = None
    """The epoch entry that this process recorded as a master."""
    reign: MasterEpoch | None = None
    """The epoch that everything is prepared for, and that was not left."""
    shown_epoch: MasterEpoch = NO_EPOCH
    """The highest that a peer has shown since the newest view was heard (R21)."""
    is_entered_settled: bool = False
    is_entered_asked: bool = False
    entered_due_us: int | None = None
    order: RequestId | None = None
    """The order to switch over for which this reign drains (R29)."""
    order_due_us: int | None = None
    """When it goes on as master all the same."""
    given_up: RequestId | None = None
    """The order that it drained for until that moment."""
    is_draining: bool = False
    is_drained: bool = False
    is_stop_told: bool = False
    stop_due_us: int | None = None
    """When the controllers are told again; None = when there is a session."""
    closed_end: LogOffset | None = None
    clean_mark: CleanMark | None = None
    is_goodbye_said: bool = False
    is_exited: bool = False
    steps: int = 0

    @property
    def is_link_open(self) -> bool:
        """Whether a slave link transfers."""
        return self.link is not None and self.link.is_open


LineAction = (
    Step
    | StartSlaveLink
    | ResumeSlaveLink
    | PublishRole
    | SendEntered
    | StartDraining
    | StopDraining
    | TellStop
    | TellDrained
    | ExitProcess
)
Line = Callable[[Facts, Goal], LineAction | None]


def role_of(facts: Facts, goal: Goal, state: BrokerState, reason: str) -> PublishRole:
    """``state`` in the goal's epoch, with the master as far as it is known."""
    view = facts.view
    master = view.master if view is not None and view.master_epoch == goal.master_epoch else None
    if master is None and goal.target is not None:
        master = goal.target.broker_id
    return PublishRole(state=state, master_epoch=goal.master_epoch, master=master, reason=reason)


def exit_of(facts: Facts) -> ExitProcess:
    """The end of this process, clean if its mark is on disk."""
    return ExitProcess(is_clean=facts.clean_mark is not None or facts.has_clean_mark)


def _link_stopped(facts: Facts, goal: Goal) -> LineAction | None:
    del goal
    return None if facts.link is None else StopSlaveLink(step=facts.steps + 1)


def _other_link_stopped(facts: Facts, goal: Goal) -> LineAction | None:
    is_other = facts.link is not None and facts.link.target != goal.target
    return _link_stopped(facts, goal) if is_other else None


def _unmarked(facts: Facts, goal: Goal) -> LineAction | None:
    # A mark that says "stopped cleanly at 900" must not survive an append: after a power cut back to 900 it would prove
    # to the controllers that nothing is missing (R3a). They forget the goodbye at a registration, too.
    del goal
    return RemoveCleanMark(step=facts.steps + 1) if facts.has_clean_mark else None


def _promised(facts: Facts, goal: Goal) -> LineAction | None:
    if facts.marks.promised >= goal.master_epoch:
        return None
    return PersistMarks(step=facts.steps + 1, marks=facts.marks.with_promised(goal.master_epoch))


def _link_started(facts: Facts, goal: Goal) -> LineAction | None:
    if facts.link is not None or goal.target is None:
        return None
    return StartSlaveLink(generation=facts.generation + 1, target=goal.target)


def _cut(facts: Facts, goal: Goal) -> LineAction | None:
    del goal
    link = facts.link
    if link is None or link.planned is None:
        return None
    # Only now the link may ack: an ack between the plan and the cut speaks of bytes that the master does not have
    # (S23).
    if link.is_cut or isinstance(link.planned.plan, Keep):
        return ResumeSlaveLink()
    return ExecuteCut(step=facts.steps + 1, plan=link.planned.plan)


def _role_published(facts: Facts, goal: Goal) -> LineAction | None:
    if goal.kind is GoalKind.REIGN:
        state, is_applied = BrokerState.MASTER, facts.reign == goal.master_epoch
    else:
        state = BrokerState.LEARNER if facts.is_learner else BrokerState.SLAVE
        is_applied = facts.is_link_open
    shown = facts.published
    if not is_applied or (shown.state, shown.master_epoch) == (state, goal.master_epoch):
        return None
    return role_of(facts, goal, state, goal.reason)


def _entry_recorded(facts: Facts, goal: Goal) -> LineAction | None:
    if facts.entry is not None and facts.entry.epoch == goal.master_epoch:
        return None
    return RecordEpochEntry(step=facts.steps + 1, master_epoch=goal.master_epoch)


def _entered(facts: Facts, goal: Goal) -> LineAction | None:
    # Durable before the reign: after a crash the disk tells which epochs this replica was master of (R9).
    if facts.marks.entered >= goal.master_epoch:
        return None
    return PersistMarks(step=facts.steps + 1, marks=facts.marks.with_entered(goal.master_epoch))


def _prepared(facts: Facts, goal: Goal) -> LineAction | None:
    if facts.reign is not None:
        return None
    assert facts.entry is not None, "the line before recorded the entry"
    assert facts.own_view is not None, "the goal came from a view"
    return PrepareMaster(
        step=facts.steps + 1,
        master_epoch=goal.master_epoch,
        start_offset=facts.entry.start_offset,
        view=facts.own_view,
    )


def _entered_reported(facts: Facts, goal: Goal) -> LineAction | None:
    is_waiting = facts.is_entered_asked or facts.entered_due_us is not None
    if facts.is_entered_settled or is_waiting or not facts.has_session:
        return None
    assert facts.entry is not None, "a published master recorded its entry"
    assert facts.broker_id is not None, "a published master is registered"
    return SendEntered(
        report=ReportEntered(
            set_key=facts.set_key,
            broker_id=facts.broker_id,
            incarnation=facts.incarnation,
            master_epoch=goal.master_epoch,
            start_offset=facts.entry.start_offset,
            acked_end_max=facts.acked_end,
        )
    )


def order_of(facts: Facts, goal: Goal) -> SwitchoverView | None:
    """The order that this reign has to drain for, by the newest view that names it; None: there is none."""
    order = facts.own_view.switchover if facts.own_view is not None else None
    if order is None or goal.kind is not GoalKind.REIGN or facts.reign != goal.master_epoch:
        return None
    # Its election is held: this view shows the reign before, or our way back, in which nothing is drained.
    is_ours = order.master_epoch == facts.reign and order.elected_epoch is None
    return order if is_ours and order.order != facts.given_up else None


def _switching(facts: Facts, goal: Goal) -> LineAction | None:
    if facts.reign is None or facts.is_draining == (facts.order is not None):
        return None
    # Withdrawn: drained for nobody, the set would take no sends until it is restarted (R29).
    kind = StopDraining if facts.is_draining else StartDraining
    return kind(master_epoch=goal.master_epoch)


def _switch_told(facts: Facts, goal: Goal) -> LineAction | None:
    is_waiting = facts.is_stop_told or facts.stop_due_us is not None or not facts.has_session
    # Told before the last byte is confirmed, the target might not have it: cut from us, and its sender is told
    # "outcome unknown" (R29).
    if facts.order is None or not facts.is_drained or is_waiting:
        return None
    return TellDrained(master_epoch=goal.master_epoch, order=facts.order)


def _draining(facts: Facts, goal: Goal) -> LineAction | None:
    return None if facts.reign is None or facts.is_draining else StartDraining(master_epoch=goal.master_epoch)


def _stop_told(facts: Facts, goal: Goal) -> LineAction | None:
    # Elected before the last byte is confirmed, the successor might not have it: cut from us, and its sender told
    # "outcome unknown".
    is_drained = facts.reign is None or facts.is_drained
    if not is_drained or facts.is_stop_told or facts.stop_due_us is not None or not facts.has_session:
        return None
    return TellStop(master_epoch=goal.master_epoch)


def _log_closed(facts: Facts, goal: Goal) -> LineAction | None:
    del goal
    return CloseLog(step=facts.steps + 1) if facts.closed_end is None else None


def _marked(facts: Facts, goal: Goal) -> LineAction | None:
    del goal
    if facts.clean_mark is not None or facts.closed_end is None:
        return None
    if facts.has_clean_mark and not facts.is_registered:
        return None  # the controllers know the mark that is there, and nothing was appended or acked since
    return WriteCleanMark(step=facts.steps + 1, end_offset=facts.closed_end)


def _goodbye_said(facts: Facts, goal: Goal) -> LineAction | None:
    del goal
    if facts.is_goodbye_said or facts.clean_mark is None or not facts.has_session:
        return None
    return SayGoodbyeTo(step=facts.steps + 1, clean_mark=facts.clean_mark)


def _exited(facts: Facts, goal: Goal) -> LineAction | None:
    del goal
    if facts.is_exited:
        return None
    return exit_of(facts)


LINES: dict[GoalKind, dict[str, Line]] = {
    GoalKind.FENCED: {"link-stopped": _link_stopped, "promised": _promised},
    GoalKind.FOLLOW: {
        # Before the promise: bytes of the old master that arrive behind it would be applied below it (R12).
        "other-link-stopped": _other_link_stopped,
        "unmarked": _unmarked,
        # Before the link, thus before the first ack: C acked in 3 and restarted without a trace of it. It followed the
        # stale master of 2 and was cut; the record that 3 had released on C's word was gone (R9).
        "promised": _promised,
        "link-started": _link_started,
        "cut": _cut,
        "role-published": _role_published,
    },
    GoalKind.REIGN: {
        # Before the start is taken: v1 of the old master, copied and acked behind the start, would be cut from the
        # others, which compare with our entry, although the old master released it on our word (R12).
        "link-stopped": _link_stopped,
        "unmarked": _unmarked,
        "promised": _promised,
        # Before the first append: a crash would else leave bytes of epoch 3 that the history calls epoch 2 (R9).
        "entry-recorded": _entry_recorded,
        "entered": _entered,
        # Before the role is published: an append without a SyncStateSet would be released by the master alone, one
        # without queue offsets would take those of received records (R19).
        "prepared": _prepared,
        "role-published": _role_published,
        # Last: the controllers stop their election deadline when they hear it, and nobody else would begin to serve.
        "entered-reported": _entered_reported,
        # By an operator's order, while its view shows it.
        "switching": _switching,
        "switch-told": _switch_told,
    },
    GoalKind.LEAVE: {"draining": _draining, "stop-told": _stop_told},
    GoalKind.ISOLATED: {"link-stopped": _link_stopped},
    GoalKind.STOPPED: {
        "link-stopped": _link_stopped,
        "log-closed": _log_closed,
        # Behind the syncs of closing the log: the mark vouches for all of it.
        "marked": _marked,
        "goodbye-said": _goodbye_said,
        "exited": _exited,
    },
}
"""The table in ``role``'s docstring; a test compares both."""


def next_action(facts: Facts, goal: Goal) -> LineAction | None:
    """The first line of the goal that is not true yet, as an action; None = all are true, or one waits."""
    for line in LINES[goal.kind].values():
        action = line(facts, goal)
        if action is not None:
            return action
    return None


def is_promise_kept(facts: Facts, goal: Goal) -> bool:
    """Whether the goal's epoch is promised, and all that had to come before."""
    if goal.kind not in (GoalKind.FOLLOW, GoalKind.REIGN) or facts.has_clean_mark:
        return False
    is_other_link = facts.link is not None and facts.link.target != goal.target
    return not is_other_link and facts.marks.promised >= goal.master_epoch


def note_begun(facts: Facts, action: LineAction) -> None:
    """Note the facts that are true as soon as ``action`` is handed out."""
    if isinstance(action, PublishRole):
        facts.published = action
    elif isinstance(action, SendEntered):
        facts.is_entered_asked = True
    elif isinstance(action, StartDraining):
        facts.is_draining = True
    elif isinstance(action, StopDraining):
        facts.is_draining = facts.is_drained = False
    elif isinstance(action, TellStop | TellDrained):
        facts.is_stop_told = True
    elif isinstance(action, ExitProcess):
        facts.is_exited = True
    elif isinstance(action, StartSlaveLink):
        facts.generation = action.generation
        facts.link = SlaveLinkFacts(generation=action.generation, target=action.target)
        # Per epoch, over all its links: the controllers compare it with the start of the next epoch to grade the loss.
        # The ack of an earlier epoch would accuse this one.
        if action.target.master_epoch != facts.followed_epoch:
            facts.followed_epoch = action.target.master_epoch
            facts.acked_end = LogOffset(0)
    elif isinstance(action, Step):
        facts.steps = action.step
        if isinstance(action, PersistMarks):
            assert action.marks.covers(facts.marks), f"marks never fall (R9): {facts.marks} -> {action.marks}"


def note_done(facts: Facts, step: Step, done: StepDone) -> None:
    """Note the facts that are true once ``step`` was answered by ``done``."""
    if isinstance(step, PersistMarks):
        facts.marks = step.marks
    elif isinstance(step, RemoveCleanMark):
        facts.has_clean_mark = False
    elif isinstance(step, StopSlaveLink):
        facts.link = None
        if done.offset is not None:
            facts.acked_end = max(facts.acked_end, done.offset)
    elif isinstance(step, RecordEpochEntry):
        assert done.offset is not None, "RecordEpochEntry answers with the start"
        facts.entry = EpochEntry(epoch=step.master_epoch, start_offset=done.offset)
    elif isinstance(step, PrepareMaster):
        facts.reign = step.master_epoch
    elif isinstance(step, ExecuteCut):
        # The same plan, not an equal one: the link may have closed and shaken hands again while the log was cut.
        if facts.link is not None and facts.link.planned is not None and facts.link.planned.plan is step.plan:
            facts.link.is_cut = True
    elif isinstance(step, CloseLog):
        facts.closed_end = done.offset
    elif isinstance(step, WriteCleanMark):
        facts.clean_mark = done.clean_mark
    else:
        facts.is_goodbye_said = True
