"""Laws of the role machine under any order of views, links, failed steps, sessions and stops."""

from __future__ import annotations

import re
from typing import Any, get_args

import hypothesis.strategies as st
import pytest
from hypothesis import example, given, settings

from rollcall_ha.broker.core import role as role_module
from rollcall_ha.broker.core.durable import EpochMarks
from rollcall_ha.broker.core.goals import GoalKind
from rollcall_ha.broker.core.role import RoleMachine
from rollcall_ha.broker.core.role_io import (
    Drained,
    ExecuteCut,
    ExitProcess,
    LeaveMaster,
    LinkOpened,
    PersistMarks,
    PublishRole,
    RecordEpochEntry,
    Recovered,
    ResumeSlaveLink,
    RoleAction,
    RoleInput,
    RoleTick,
    SessionEstablished,
    SessionLost,
    SlaveLinkClosed,
    StartSlaveLink,
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
from rollcall_ha.broker.core.role_lines import LINES
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    Incarnation,
    LogOffset,
    MasterEpoch,
    SessionOrdinal,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.replies import Registered, SetView
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.values import CleanMark, SetConfiguration
from rollcall_ha.controller.contract.verdicts import Intactness
from rollcall_ha.epoch.history import EpochHistory
from rollcall_ha.ha.truncation import Cut, Keep
from tests.support.set_views import KEY, shown, shown_member

ME, OTHER = BrokerId(1), BrokerId(2)
INCARNATION = Incarnation("i1")
A_CUT = Cut(point=LogOffset(0), history=EpochHistory(), cut_bytes=10)


def view_of(master: BrokerId | None, epoch: int, index: int) -> SetView:
    """The set with ``master``; replica 2 is the only one with an address."""
    return shown(
        index=index,
        master=master,
        master_incarnation=INCARNATION if master == ME else Incarnation("i2"),
        master_epoch=MasterEpoch(epoch),
        sync_state_set=(ME, OTHER),
        sync_state_set_epoch=SyncStateSetEpoch(index),
        configuration=SetConfiguration(expected_replicas=2, min_in_sync=1),
        members=(shown_member(OTHER),),
    )


class Replica:
    """A role machine, a shell that answers as told, and what a disk and a peer would know."""

    def __init__(self, marks: EpochMarks = EpochMarks()) -> None:  # noqa: B008  a frozen value
        """``marks``: what the disk held when the process began."""
        self.machine = RoleMachine(set_key=KEY, incarnation=INCARNATION)
        self.now_us = 0
        self.index = 0
        self.marks = marks
        self.link: StartSlaveLink | None = None
        self.may_resume = False
        self.reign: MasterEpoch | None = None
        self.step: Step | None = None
        self.counted = 0
        self.give(Recovered(marks=marks, has_clean_mark=True))
        self.give(SessionEstablished(registered=registered(view_of(None, 0, 0))))

    def give(self, event: RoleInput) -> None:
        self.now_us += 1_000
        for action in self.machine.handle(event, now_us=self.now_us):
            self._check(action)

    def _check(self, action: RoleAction) -> None:
        self.counted += 1
        if isinstance(action, Step):
            if isinstance(action, RecordEpochEntry):
                assert self.link is None, "R12: the start is fixed while the old master's bytes still arrive"
            assert self.step is None, "one step at a time"
            self.step = action
        elif isinstance(action, StartSlaveLink):
            assert self.link is None, "one link at a time"
            assert self.marks.promised >= action.target.master_epoch, "R12: promised before anything is applied"
            assert self.reign is None
            self.link, self.may_resume = action, False
        elif isinstance(action, ResumeSlaveLink):
            assert self.link is not None
            assert self.may_resume, "S23: the cut comes before the first ack"
            self.may_resume = False
        elif isinstance(action, PublishRole) and action.state is BrokerState.MASTER:
            assert self.marks.entered == action.master_epoch, "R9"
            assert self.link is None
            self.reign = action.master_epoch
        elif isinstance(action, PublishRole):
            assert self.reign is None or action.state in (BrokerState.STOPPING, BrokerState.ISOLATED), "W19"
        elif isinstance(action, LeaveMaster):
            self.reign = None

    def answer(self, *, is_done: bool, is_fatal: bool = False) -> None:
        """What the shell says of the outstanding step."""
        step, self.step = self.step, None
        if step is None:
            return
        if not is_done:
            if is_fatal and isinstance(step, StopSlaveLink):
                # A link that cannot be stopped any more is none.
                self.link = None
            self.give(StepFailed(step=step.step, reason="disk", is_fatal=is_fatal))
            return
        if isinstance(step, PersistMarks):
            assert step.marks.covers(self.marks), "R9: marks never fall"
            self.marks = step.marks
        elif isinstance(step, StopSlaveLink):
            self.link = None
        elif isinstance(step, ExecuteCut):
            self.may_resume = True
        mark = CleanMark(nonce="n", end_offset=LogOffset(0)) if isinstance(step, WriteCleanMark) else None
        self.give(StepDone(step=step.step, offset=LogOffset(0), clean_mark=mark))

    def move(self, kind: str, number: int) -> None:
        """One of the things that happen to a replica."""
        generation = self.link.generation if self.link is not None else 1
        if kind == "view":
            self.index += 1
            master = (None, ME, OTHER)[number % 3]
            self.give(ViewArrived(view=view_of(master, number // 3 + 1, self.index)))
        elif kind in ("done", "failed", "fatal"):
            self.answer(is_done=kind == "done", is_fatal=kind == "fatal")
        elif kind == "plan" and not isinstance(self.step, (StopSlaveLink, ExecuteCut)):
            plan = Keep(point=LogOffset(0)) if number % 2 else A_CUT
            self.may_resume = isinstance(plan, Keep)
            self.give(TruncationPlanned(generation=generation, plan=plan, released=LogOffset(0)))
        elif kind == "open":
            self.give(LinkOpened(generation=generation))
        elif kind == "closed" and not isinstance(self.step, ExecuteCut):
            self.may_resume = False
            self.give(SlaveLinkClosed(generation=generation, reason="gone"))
        elif kind == "session":
            self.give(SessionLost())
        elif kind == "put back":
            # The controllers come back from a copy of their first day, and every session with them is new.
            self.index = 0
            self.give(SessionLost())
            self.give(SessionEstablished(registered=registered(view_of(None, 0, self.index))))
        elif kind == "tick":
            self.now_us += 2_000_000
            self.give(RoleTick())
        elif kind == "stop":
            self.give(Stop(leave_ms=number % 2 * 1_000))
        elif kind == "drained":
            self.give(Drained(master_epoch=self.machine.goal.master_epoch))
        elif kind == "told":
            self.give(StopAnswered(is_over=number % 2 == 0))


def registered(view: SetView) -> Registered:
    return Registered(
        broker_id=ME, session_ordinal=SessionOrdinal(1), intactness=Intactness.NEW, is_in_sync=True, view=view
    )


MOVES = st.tuples(
    st.sampled_from(
        (
            *("view", "done", "done", "done", "failed", "fatal", "plan", "open", "closed", "session", "tick", "stop"),
            *("drained", "told", "put back"),
        )
    ),
    st.integers(0, 11),
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(MOVES, max_size=60))
def test_no_order_of_events_breaks_the_rules_of_a_role(moves: list[tuple[str, int]]) -> None:
    """R9, R12, S23, W19 in every order; the checks are in ``Replica``."""
    replica = Replica()
    for kind, number in moves:
        replica.move(kind, number)
    assert replica.counted > 0


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 5), st.lists(MOVES, max_size=30))
def test_r9_a_process_keeps_what_the_one_before_it_promised(promised: int, moves: list[tuple[str, int]]) -> None:
    """Whatever it is told first: its marks rise from those on its disk, and it follows nobody in a lower epoch."""
    replica = Replica(EpochMarks(promised=MasterEpoch(promised), entered=MasterEpoch(promised)))
    for kind, number in moves:
        replica.move(kind, number)
        assert replica.marks.promised >= promised
        assert replica.link is None or replica.link.target.master_epoch >= promised


def test_r9_an_epoch_is_on_disk_before_its_master_is_followed() -> None:
    """A promise in memory alone would be forgotten by the next process, which acks in an older epoch then."""
    replica = Replica()
    replica.give(ViewArrived(view=view_of(OTHER, 3, 1)))
    while replica.step is not None:
        replica.answer(is_done=True)
    assert replica.link is not None
    assert replica.marks.promised == replica.link.target.master_epoch == 3


@settings(max_examples=60, deadline=None)
@given(st.lists(MOVES.filter(lambda move: move[0] not in ("fatal", "stop")), max_size=40))
@example([("view", 1), ("view", 1), ("put back", 0)])
def test_after_any_interruption_a_newer_epoch_is_entered(moves: list[tuple[str, int]]) -> None:
    """Facts stay, the goal moves, the table is read again: nothing leaves a replica that cannot reign any more."""
    replica = Replica()
    for kind, number in moves:
        replica.move(kind, number)
    replica.give(ViewArrived(view=view_of(ME, 9, replica.index + 1)))
    for _ in range(20):
        replica.answer(is_done=True)
        replica.move("tick", 0)

    reached = (replica.machine.published.state, replica.reign, replica.marks.entered)
    assert reached == (BrokerState.MASTER, 9, 9)


@settings(max_examples=60, deadline=None)
@given(st.lists(MOVES.filter(lambda move: move[0] != "fatal"), max_size=40))
def test_after_any_order_of_events_a_stop_ends_the_process(moves: list[tuple[str, int]]) -> None:
    """Whether it leaves first or not, and whatever it waits for: its time to leave is over at some tick."""
    replica = Replica()
    for kind, number in moves:
        replica.move(kind, number)
    replica.give(Stop(leave_ms=1_000))
    for _ in range(20):
        replica.answer(is_done=True)
        replica.move("tick", 0)

    assert replica.machine.goal.kind is GoalKind.STOPPED
    assert (replica.step, replica.link, replica.reign) == (None, None, None)


def test_a_stop_ends_in_one_clean_exit() -> None:
    """The lines of STOPPED, in order, and no action after the last."""
    replica = Replica()
    replica.answer(is_done=True)
    replica.give(Stop())
    seen: list[Any] = []
    while replica.step is not None:
        seen.append(type(replica.step).__name__)
        replica.answer(is_done=True)
    assert seen == ["CloseLog", "WriteCleanMark", "SayGoodbyeTo"]
    assert not [
        one
        for one in replica.machine.handle(RoleTick(), now_us=9_000_000)
        if isinstance(one, (ExitProcess, *get_args(Step)))
    ]


def test_the_table_in_the_docstring_is_the_one_that_is_executed() -> None:
    """Goal by goal, line by line."""
    assert role_module.__doc__ is not None
    table = re.sub(r",\n {2,}", ", ", role_module.__doc__)
    told = dict(re.findall(r"^([A-Z]+) +([a-z, -]+)$", table, re.MULTILINE))

    assert told == {kind.name: ", ".join(lines) for kind, lines in LINES.items()}
