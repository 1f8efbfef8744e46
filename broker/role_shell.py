"""
The shell of the role machine: it executes the machine's actions and answers its steps.

Here: the one-thread executor of durable writes, steps as tasks, immediate actions by a table that the replica fills.
Not here: any ``if`` about epochs (``broker.core.role``), what an action does to session, reign and gate
(``broker.replica``).
Rule 1: inputs are handled one after another; one that comes while actions are done waits its turn.
Rule 2: a full disk fails a step, to be tried again; any other error of a write ends the process with ``STORAGE``: pages
that the kernel dropped after a failed sync cannot be written again (``node.files``).
Rule 3: when the log refuses a cut, the plan was wrong: the replica isolates itself instead of cutting elsewhere.
Rule 4: the stored view (R7), but for the first one of a directory, gives way to a role change: it is written when no
step was under way for ``VIEW_DELAY_MS``.
A failover brings several views within a moment, and each of its own writes would wait behind theirs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any

from rollcall_ha.broker.core.role import RoleMachine
from rollcall_ha.broker.core.role_io import (
    CloseLog,
    ExecuteCut,
    PersistMarks,
    PersistView,
    PrepareMaster,
    RecordEpochEntry,
    RemoveCleanMark,
    RoleAction,
    RoleInput,
    RoleTick,
    SayGoodbyeTo,
    SlaveLinkClosed,
    Step,
    StepDone,
    StepFailed,
    StopSlaveLink,
    WriteCleanMark,
)
from rollcall_ha.broker.folds.dispatcher import Dispatcher
from rollcall_ha.broker.following import Following
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.values import CutReason, CutRefusedError
from rollcall_ha.broker.parts import Parts
from rollcall_ha.broker.protocol.record import RecordError
from rollcall_ha.broker.replica_files import ReplicaFiles
from rollcall_ha.controller.contract.ids import LogOffset, MasterEpoch
from rollcall_ha.controller.contract.values import CleanMark, StoredView
from rollcall_ha.epoch.history import EpochOrderError
from rollcall_ha.epoch.model import EpochEntry
from rollcall_ha.ha.truncation import Cut, FullResync, TruncationPlan
from rollcall_ha.node.files import is_full_disk
from rollcall_ha.node.tasks import Tasks
from rollcall_ha.node.telemetry import get_logger

VIEW_DELAY_MS = 50
INDEX_BYTES_MAX = 4 * 1024 * 1024
"""Before a reign the index catches up in pieces of this size, with a turn of the loop between two."""

_log = get_logger("role")


Deeds = dict[type[RoleAction], Callable[[Any], object]]
"""What is done, at once and on the loop, for each kind of action; for ``PrepareMaster`` when the index is complete."""


class RoleShell:
    """One per process. On the loop."""

    def __init__(
        self,
        *,
        machine: RoleMachine,
        log: CommitLog,
        files: ReplicaFiles,
        disk: Executor,
        parts: Parts,
        has_view: bool,
        link: Following,
        folds: Dispatcher,
        deeds: Deeds,
        say_goodbye: Callable[[CleanMark], Awaitable[object]],
        failed: Callable[[BaseException], None],
    ) -> None:
        """
        ``disk``: one thread, for all durable writes but the log's own; ``has_view``: one is stored already.

        ``say_goodbye`` may raise any error of the session; ``failed`` ends the process.
        """
        self.machine = machine
        self._commit_log = log
        self._files = files
        self._disk = disk
        self._parts = parts
        self._link = link
        self._folds = folds
        self.deeds: Deeds = {PersistView: self._store_view, **deeds}
        self._say_goodbye = say_goodbye
        self._failed = failed
        self._loop = asyncio.get_running_loop()
        self._inputs: deque[RoleInput] = deque()
        self._is_busy = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_stopped = False
        self._tasks = Tasks()
        self._has_view = has_view
        self._view_to_store: StoredView | None = None
        self._is_storing_view = False
        self._is_cutting = False
        """A cut was ordered and is not answered yet: until then no other link may plan one."""
        self._calm_at_s = 0.0
        """When the last step will be ``VIEW_DELAY_MS`` ago, on the loop's clock."""

    def feed(self, event: RoleInput) -> None:
        """Hand an input to the machine and do its actions (rule 1). Never raises: a fault of ours ends the process."""
        self._inputs.append(event)
        # An action may feed the next input (a link that closes while it is told to stop). Handled inside of it, the
        # rest of the outer actions would come behind those of the inner one, a role published after it was withdrawn.
        if self._is_busy:
            return
        self._is_busy = True
        try:
            while self._inputs:
                self._handle(self._inputs.popleft())
        except Exception as error:  # noqa: BLE001 (a caller that swallows it, a timer say, would go on with half a role change)
            self._inputs.clear()
            self._failed(error)
        finally:
            self._is_busy = False
        self._arm()

    def _handle(self, event: RoleInput) -> None:
        # Not the loop's time: that stands still within a turn and counts whole milliseconds, as long as a phase takes.
        for action in self.machine.handle(event, now_us=self._parts.now_us()):
            if isinstance(action, Step):
                self._begin(action)
            else:
                self.deeds[type(action)](action)
        if isinstance(event, SlaveLinkClosed) and not self._is_cutting:
            # Its plan waited for something else, such as the pause after a full disk. The dialler waits for an answer
            # to it and would wait for ever.
            self._link.settle("the link that asked for a cut is gone")

    def stop(self) -> None:
        """No timer and no view any more, even if inputs come; steps under way end by themselves."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_us = self.machine.next_due_us
        if due_us is not None and not self._is_stopped:
            self._timer = self._loop.call_at((due_us + 1) / 1_000_000, self.feed, RoleTick())

    # --- steps -------------------------------------------------------------------------------------------------------

    def _begin(self, step: Step) -> None:
        if isinstance(step, StopSlaveLink):
            acked = self._link.stop("the role machine stops this link", self.machine.goal.master_epoch)
            # Through the queue, like every other answer: the machine is still inside of the input that asked for it.
            self._inputs.append(StepDone(step=step.step, offset=acked))
            return
        self._is_cutting = isinstance(step, ExecuteCut)
        self._calm_at_s = self._loop.time() + VIEW_DELAY_MS / 1000
        self._tasks.begin(self._run(step))

    async def _run(self, step: Step) -> None:
        try:
            answer: RoleInput = await self._execute(step)
        except OSError as error:
            # EIO from fdatasync: tried again it succeeds, although the page with the promise is gone. The machine would
            # take the mark for durable and ack on it (R9).
            if not is_full_disk(error):
                self._failed(error)
                return
            answer = StepFailed(step=step.step, reason=str(error))
        except (CutRefusedError, RecordError, EpochOrderError) as error:
            answer = StepFailed(step=step.step, reason=str(error), is_fatal=True)
        except Exception as error:  # noqa: BLE001 (a fault of our own: the process must not go on half a role)
            self._failed(error)
            return
        if isinstance(answer, StepFailed):
            _log.warning("step_failed", step=type(step).__name__, reason=answer.reason, is_fatal=answer.is_fatal)
        self._calm_at_s = self._loop.time() + VIEW_DELAY_MS / 1000
        self._is_cutting = False
        self.feed(answer)
        if isinstance(step, ExecuteCut):
            # If the machine resumed the link, its plan is answered already and this does nothing.
            self._link.settle("the cut is done, but its link is gone")

    async def _execute(self, step: Step) -> RoleInput:
        if isinstance(step, PersistMarks):
            await self._on_disk(lambda: self._files.marks.store(step.marks))
        elif isinstance(step, RemoveCleanMark):
            await self._on_disk(self._files.clean_mark.remove)
        elif isinstance(step, RecordEpochEntry):
            return StepDone(step=step.step, offset=await self._alone(lambda: self._record(step.master_epoch)))
        elif isinstance(step, PrepareMaster):
            while self._commit_log.extend_index(INDEX_BYTES_MAX) > 0:  # noqa: ASYNC110 (turns for the others, not a wait)
                await asyncio.sleep(0)
            self.deeds[PrepareMaster](step)
        elif isinstance(step, ExecuteCut):
            _log.info("cut", plan=str(step.plan))
            await self._alone(lambda: self._cut(step.plan))
        elif isinstance(step, CloseLog):
            # For good: to the folds all records of a closed log are gone, and a question by time would be answered with
            # the end of its queue.
            self._folds.rest(is_resting=True)
            return StepDone(step=step.step, offset=await self._alone(self._close))
        elif isinstance(step, WriteCleanMark):
            mark = CleanMark(nonce=self._parts.draw(), end_offset=step.end_offset)
            await self._on_disk(lambda: self._files.clean_mark.store(mark))
            return StepDone(step=step.step, clean_mark=mark)
        elif isinstance(step, SayGoodbyeTo):
            return await self._goodbye(step)
        return StepDone(step=step.step)

    async def _goodbye(self, step: SayGoodbyeTo) -> RoleInput:
        try:
            await self._say_goodbye(step.clean_mark)
        except Exception as error:  # noqa: BLE001 (nothing depends on it)
            return StepFailed(step=step.step, reason=str(error))
        return StepDone(step=step.step)

    def _on_disk(self, write: Callable[[], object]) -> Awaitable[object]:
        return self._loop.run_in_executor(self._disk, write)

    async def _alone(self, work: Callable[[], LogOffset]) -> LogOffset:
        """On the disk's thread, while nothing on the loop touches the log."""
        # The index and the folds read the map in turns of the loop: during a cut they would read zeros, or a map that
        # is closed.
        self._link.pause_indexing(is_paused=True)
        self._folds.rest(is_resting=True)
        try:
            return await self._loop.run_in_executor(self._disk, work)
        finally:
            self._link.pause_indexing(is_paused=False)
            self._folds.rest(is_resting=False)

    def _record(self, master_epoch: MasterEpoch) -> LogOffset:
        """R12: start = end, behind the last whole record; W4: an empty last entry is replaced."""
        log = self._commit_log
        # The old master died in the middle of a record. With its half before our start, every slave would have a torn
        # record at the boundary, and the first one that restarts would cut our epoch's bytes behind it.
        if log.whole_offset < log.max_offset:
            log.cut(log.whole_offset, CutReason.TORN_TAIL, "the master went away mid-record")
        entry = EpochEntry(epoch=master_epoch, start_offset=log.max_offset)
        # A step that is repeated after a lost answer finds its own entry: appended again it would be refused, and the
        # winner would isolate itself.
        if log.history.last != entry:
            log.record_epoch(entry)
        return entry.start_offset

    def _cut(self, plan: TruncationPlan) -> LogOffset:
        log = self._commit_log
        self._folds.before_cut()
        if isinstance(plan, FullResync):
            log.set_aside(plan.start_offset, plan.reason, is_whole=plan.is_whole, known_to=plan.known_to)
        elif isinstance(plan, Cut):
            log.cut(plan.point, CutReason.TRUNCATION, "the master's history differs")
        self._folds.cut(log.max_offset, is_new=isinstance(plan, FullResync))
        return log.max_offset

    def _close(self) -> LogOffset:
        try:
            self._folds.close()
        except OSError as error:
            # They are built again from the log, which is what must be closed cleanly.
            _log.warning("folds_not_marked", reason=str(error))
        return self._commit_log.close(is_clean=True)

    # --- the stored view ---------------------------------------------------------------------------------------------

    def _store_view(self, action: PersistView) -> None:
        """The newest one, one write at a time, behind the steps (rule 4)."""
        self._view_to_store = action.stored
        if not self._is_storing_view:
            self._is_storing_view = True
            self._tasks.begin(self._store_views())

    async def _store_views(self) -> None:
        try:
            # Behind the stop the disk's thread is let go, and a write would raise. The view that waits is not missed: a
            # kill would have taken it as well.
            while self._view_to_store is not None and not self._is_stopped:
                # The first one does not wait: killed with an id and no view, this replica could not say which fleet
                # gave the id, and controllers that were founded anew would refuse it for ever (R7).
                if self._has_view and (wait_s := self._calm_at_s - self._loop.time()) > 0:
                    await asyncio.sleep(wait_s)
                    continue
                # Taken before the write: a view that comes during it must not be dropped with the one that is written.
                stored, self._view_to_store = self._view_to_store, None
                await self._loop.run_in_executor(self._disk, self._files.view.store, stored)
                self._has_view = True
        except OSError as error:
            if is_full_disk(error):
                _log.warning("view_not_stored", reason=str(error))
            else:
                self._failed(error)
        finally:
            self._is_storing_view = False
