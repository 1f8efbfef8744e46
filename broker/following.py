"""
This replica as a slave: the link to its master, the bytes that come in on it, and the log's index behind them.

Here: passing events between ``ha.service.HaClient``, the log and the role machine. Not here: the plan of a cut
(``ha.truncation``), whether to follow at all (``broker.core.role``).
Rule 1: every ``TruncateLog`` is answered, also when the role machine has another goal by now: ``HaClient`` dials
nobody before the answer.
Rule 2: an epoch entry of a link is stored on the executor that all durable writes go through, so the entry of a later
promotion comes behind it.
Rule 3: the dispatcher of the folds lets the log's index take what is confirmed; where more than ``UNREAD_BYTES_MAX``
were received behind it, the index reads them itself, at the pace of a copy: a burst never holds the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor

from rollcall_ha.broker.core.goals import named_in, owner_in
from rollcall_ha.broker.core.role_io import (
    LinkOpened,
    LinkTarget,
    RoleInput,
    SlaveLinkClosed,
    TruncationPlanned,
)
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.controller.contract.ids import BrokerId, LogOffset, MasterEpoch
from rollcall_ha.controller.contract.replies import SetView
from rollcall_ha.epoch.history import EpochOrderError
from rollcall_ha.epoch.model import EpochEntry
from rollcall_ha.ha.actions import (
    ConfirmHeard,
    HigherEpochSeen,
    IsolationWanted,
    LinkReady,
    LogGrew,
    MasterAnswered,
    RecordEpoch,
    SlaveAction,
    TruncateLog,
)
from rollcall_ha.ha.errors import ErrorCode
from rollcall_ha.ha.links import FollowTarget
from rollcall_ha.ha.service import HaClient
from rollcall_ha.ha.transport import TURN_BYTES_MAX
from rollcall_ha.ha.truncation import TruncationPlan
from rollcall_ha.node.config import split_address
from rollcall_ha.node.tasks import Tasks
from rollcall_ha.node.telemetry import get_logger

INDEX_BYTES_MAX = 256 * 1024
UNREAD_BYTES_MAX = 1024 * 1024
"""So much may be left to read when this replica is elected: 4 ms."""

_log = get_logger("following")


class Following:
    """The slave's side of one process; one link at a time. Implements ``ha.actions.SlaveLinkEvents``."""

    def __init__(
        self,
        *,
        log: CommitLog,
        disk: Executor,
        is_learner: bool,
        begins_at_last_segment: bool = False,
        promised: Callable[[], MasterEpoch],
        view: Callable[[], SetView | None],
        look_up: Callable[[], None],
        feed: Callable[[RoleInput], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        """
        ``begins_at_last_segment``: if the log is empty. ``promised``: the durable promise. ``view``: the newest one.
        ``look_up`` asks the controllers for the set (R21).

        ``failed`` hears of a disk that does not work any more.
        """
        self.client: HaClient | None = None
        """Set once this replica has its id."""
        self._log = log
        self._disk = disk
        self._is_learner = is_learner
        self._begins_at_last_segment = begins_at_last_segment
        self._promised = promised
        self._view = view
        self._look_up = look_up
        self._feed = feed
        self._failed = failed
        self._generation = 0
        self._target: FollowTarget | None = None
        self._is_wanted = False
        """A truncation waits for its answer."""
        self._was_ready = False
        self._master_end: LogOffset | None = None
        self._answered_end = LogOffset(0)
        """The end of the master's log, by its answer to the newest handshake."""
        self._is_indexing = False
        self._is_paused = False
        self._tasks = Tasks()

    @property
    def lag_bytes(self) -> int | None:
        """Distance to the master's last known end; None = not connected."""
        return None if self._master_end is None else max(0, self._master_end - self._log.max_offset)

    def heard_age_us(self, master_epoch: MasterEpoch) -> int | None:
        """How long ago the last byte of this epoch's master came; None = it is not followed, or nothing came."""
        return self.client.heard_age_us if self.client is not None and self._follows(master_epoch) else None

    def ended_age_us(self, master_epoch: MasterEpoch) -> int | None:
        """How long ago this epoch's master closed the link; None = it did not."""
        return self.client.ended_age_us if self.client is not None and self._follows(master_epoch) else None

    def _follows(self, master_epoch: MasterEpoch) -> bool:
        # Bytes of the master of 4 are no sign that the one of 5 lives, which this replica has not dialled yet.
        return self._target is not None and self._target.master_epoch == master_epoch

    # --- from the role machine ---------------------------------------------------------------------------------------

    def start(self, generation: int, target: LinkTarget) -> None:
        """Dial, and again, until ``stop``."""
        assert self.client is not None, "a replica without an id follows nobody"
        master = self._named(target.broker_id)
        _log.info("follow", master=master, master_epoch=target.master_epoch, address=target.ha_address)
        host, port = split_address(target.ha_address)
        self._generation = generation
        self._was_ready = False
        self._target = FollowTarget(
            host=host,
            port=port,
            master=target.broker_id,
            master_incarnation=target.incarnation,
            master_epoch=target.master_epoch,
            is_learner=self._is_learner,
            begins_at_last_segment=self._begins_at_last_segment,
            flush=self._log.flush_mode,
        )
        self.client.follow(self._target)

    def resume(self) -> None:
        """The plan is carried out."""
        if self._is_wanted and self.client is not None:
            self._is_wanted = False
            self.client.truncation_done()

    def settle(self, reason: str) -> None:
        """A cut ended whose link is gone: the dialler, which waits for an answer to its plan, may go on."""
        if self._is_wanted and self.client is not None:
            self._is_wanted = False
            self.client.truncation_failed(reason)

    def stop(self, detail: str, left_for: MasterEpoch) -> LogOffset:
        """
        Nothing is applied or acked any more; returns a bound of the acks on this link.

        The link does not tell its last ack: the end of the whole records is never below it.
        """
        if self.client is not None:
            self.client.stop_following(detail, left_for)
        self.settle(detail)
        self._target = None
        self._master_end = None
        # Too high is safe: the controllers compare it with the start of the next epoch, and grade "unknown" rather than
        # "proven". Too low would call a loss proven that was acked here.
        return self._log.ackable_offset if self._was_ready else LogOffset(0)

    def pause_indexing(self, is_paused: bool) -> None:
        """While a thread cuts or closes the log, the index does not read it."""
        self._is_paused = is_paused
        if not is_paused:
            self._index_received()

    def log_has_room(self) -> None:
        """The next segment is there, or could not be made."""
        if self.client is not None:
            self.client.log_has_room()

    def log_synced(self, end: LogOffset) -> None:
        """Once per group commit."""
        if self.client is not None:
            self.client.log_synced(end)

    # --- SlaveLinkEvents ---------------------------------------------------------------------------------------------

    def durable_confirm(self) -> LogOffset:
        """The confirm that survives a power cut: a plan below it isolates this replica (R26)."""
        return self._log.durable_confirm_offset

    def is_promise_durable(self, master_epoch: MasterEpoch) -> bool:
        """Whether acks of this epoch count: they say so themselves (R9)."""
        return self._promised() >= master_epoch

    def owner_of(self, broker_id: BrokerId) -> str:
        """The newest view says it, not that of the election: its name may have been bound since."""
        return owner_in(self._view(), broker_id)

    def slave_acted(self, target: FollowTarget, action: SlaveAction) -> None:
        """Do at once what needs no decision; hand the rest to the role machine, unless the link is an old one."""
        match action:
            case LogGrew():
                self._index_received()
            case ConfirmHeard(offset=offset, master_end=master_end):
                self._master_end = master_end
                # Remembered, so that a loss of confirmed bytes is noticed at a later handshake (R26).
                self._log.note_confirm(offset, self._log.released_offset)
            case TruncateLog(plan=plan):
                self._is_wanted = True
                if target is self._target:
                    _log.info("truncation_planned", plan=type(plan).__name__, detail=str(plan))
                    self._feed_plan(plan)
                else:
                    # A plan of the link to the old master: the machine would drop it, and without an answer the dialler
                    # would wait for ever (rule 1).
                    self.settle("another master is followed")
            case IsolationWanted(plan=plan) if target is self._target:
                self._feed_plan(plan)
            case RecordEpoch(entry=entry):
                self._tasks.begin(self._record(target, entry))
            case LinkReady() if target is self._target:
                self._was_ready = True
                # The master tells its end when it moves: of a set that nobody writes to, the lag would never be known.
                self._master_end = self._answered_end
                self._feed(LinkOpened(generation=self._generation))
            case MasterAnswered(reply=reply):
                if target is self._target:
                    self._answered_end = reply.max_offset
                _log.info(
                    "master_answered", master=self._named(target.master), master_epoch=reply.master_epoch,
                    master_end=reply.max_offset,
                )  # fmt: skip
            case HigherEpochSeen(master_epoch=epoch, broker_id=broker_id):
                _log.info("higher_epoch_shown", by=self._named(broker_id), master_epoch=epoch, own=target.master_epoch)
                self._look_up()

    def link_closed(self, target: FollowTarget, code: ErrorCode | None, detail: str) -> None:
        self._master_end = None
        if target is self._target:
            reason = f"{code.name}: {detail}" if code is not None else detail
            if code is ErrorCode.RECORD_DAMAGED:
                meaning = "nothing of it was taken; the master checks its own bytes, see its log and health port"
                master = self._named(target.master)
                _log.error("master_sends_damaged_record", master=master, detail=detail, meaning=meaning)
            self._feed(SlaveLinkClosed(generation=self._generation, reason=reason))

    # --- inside ------------------------------------------------------------------------------------------------------

    def _named(self, broker_id: BrokerId) -> str:
        return named_in(self._view(), broker_id)

    def _feed_plan(self, plan: TruncationPlan) -> None:
        self._feed(TruncationPlanned(generation=self._generation, plan=plan, released=self._log.released_offset))

    def _index_received(self) -> None:
        """Let the index follow behind the copy where the dispatcher, which reads what is confirmed, does not."""
        if self._is_paused or self._log.unindexed_bytes <= UNREAD_BYTES_MAX:
            return
        # As much as a turn receives. A copy would leave it behind: elected now, a slave that has just caught up would
        # let clients wait until it has read the rest, and another winner would wait for its turns.
        self._log.extend_index(TURN_BYTES_MAX)
        if not self._is_indexing:
            self._is_indexing = True
            self._index_step()

    def _index_step(self) -> None:
        if self._is_paused:
            self._is_indexing = False
            return
        left = self._log.extend_index(INDEX_BYTES_MAX)
        self._is_indexing = left > 0
        if self._is_indexing:
            asyncio.get_running_loop().call_soon(self._index_step)

    async def _record(self, target: FollowTarget, entry: EpochEntry) -> None:
        assert self.client is not None, "only a link asks for an entry"
        try:
            await asyncio.get_running_loop().run_in_executor(self._disk, self._log.record_epoch, entry)
        except (EpochOrderError, ValueError) as error:
            _log.warning("epoch_not_recorded", master=self._named(target.master), entry=str(entry), reason=str(error))
            self.client.epoch_failed(str(error))
        except OSError as error:
            # Not a reason to dial again: after a failed sync the disk may say yes to an entry that it has lost.
            self._failed(error)
        else:
            self.client.epoch_recorded()
