"""
The shell of ``core``: one look at log and disk every few seconds, and what follows from it.

Here: gathering facts, deleting, refusing sends, telling what is done. Not here: any decision (``core``), the steps of a
deletion (``broker.log.deletion``).

Rule 1: every replica decides for its own log and disk, slaves too: each has what is below its own confirm.
Rule 2: the disk is asked, and files are removed, on the thread of durable writes: a deletion and a cut never overlap.
Rule 3: before anything goes, the log itself says what it would be missed for: where queues go on, what groups said,
which topics were ordered.
Rule 4: nothing is deleted before a controller has said which settings are in force: they may keep more.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import Final, Protocol, TypeVar

from msgspec.structs import replace

from rollcall_ha.broker.consuming.room import ConsumerRoom
from rollcall_ha.broker.core.producers import window_start
from rollcall_ha.broker.folds.dispatcher import Dispatcher
from rollcall_ha.broker.handlers.put import PutPath
from rollcall_ha.broker.live_settings import LiveSettings
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.retention.core import HOUR_MS, Decision, Facts, Need, Rules, SegmentAge, decide, rules_of
from rollcall_ha.broker.retention.telling import Telling
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.epoch.model import LogOffset
from rollcall_ha.node.files import is_full_disk
from rollcall_ha.node.tasks import Tasks
from rollcall_ha.node.telemetry import get_logger

LOOK_MS: Final = 10_000
LOOK_AGAIN_MS: Final = 1_000
"""While something is due or refused."""
LISTED_MAX: Final = 20
_log = get_logger("retention")
Result = TypeVar("Result")


class Copies(Protocol):
    """The links to slaves (``ha.service.HaServer``)."""

    @property
    def copies(self) -> Iterable[tuple[BrokerId, LogOffset]]: ...

    def let_go(self, start: LogOffset) -> None: ...


class Retention:
    """Of one replica. On the loop."""

    def __init__(
        self,
        *,
        log: CommitLog,
        folds: Dispatcher,
        put: PutPath,
        room: ConsumerRoom,
        copies: Copies,
        settings: LiveSettings,
        disk: Executor,
        disk_room: Callable[[], tuple[int, int]],
        now_ms: Callable[[], int],
        failed: Callable[[BaseException], None],
    ) -> None:
        """
        ``disk_room``: size and free bytes of the disk, *Blocking*; ``now_ms`` is UTC. ``failed`` ends the process.
        """
        self.needs: list[Callable[[], Need]] = [
            lambda: Need(who="consume queues", offset=folds.dispatched_offset),
            lambda: Need(who="key index", offset=folds.index.taken_offset),
            lambda: Need(who="queues' offsets", offset=folds.told.since),
            lambda: Need(who="producers' numbers", offset=window_start(log.whole_offset)),
            lambda: Need(who="groups", offset=room.consumers.kept_from()),
            lambda: Need(who="delayed messages", offset=folds.delayed_from()),
        ]
        """A room that reads records behind a start adds its own."""
        self._commit_log = log
        self._folds = folds
        self._put = put
        self._room = room
        self._copies = copies
        self._settings = settings
        self._disk = disk
        self._disk_room = disk_room
        self._now_ms = now_ms
        self._telling = Telling(log, room.appender)
        self._tasks = Tasks(failed)
        self._facts: Facts | None = None
        self._decision = Decision()
        self._freed_bytes = 0
        self._held_by: tuple[str, ...] = ()

    @property
    def values(self) -> list[tuple[str, str, float]]:
        """For the health address."""
        return [
            ("retention_freed_bytes_total", "Of segments that were deleted since the start.", self._freed_bytes),
            ("retention_held", "1 if a segment is due and somebody needs it.", bool(self._decision.held_by)),
            ("sends_refused_for_disk", "1 if the disk is so full that sends are refused.", bool(self._put.full_disk)),
        ]

    def start(self) -> None:
        self._tasks.begin(self._run())

    async def close(self) -> None:
        await self._tasks.stop()

    def report(self, hours: int | None) -> str:
        """What the next look would do, for people; ``hours``: if so many were kept."""
        facts, rules = self._facts, self._rules()
        if facts is None:
            return "nothing was looked at yet: no controller has said which settings are in force, or all are off\n"
        if hours is not None:
            rules = replace(rules, keep_ms=hours * HOUR_MS)
        decision = decide(facts, rules)
        first = facts.segments[0].base if facts.segments else self._commit_log.min_offset
        start = first if decision.delete_to is None else decision.delete_to
        lines = [
            f"the log begins at {first}; the disk is {facts.used_percent:.1f} % full",
            f"it would begin at {start}, and at {max(first, decision.wanted_to)} if nobody needed anything",
            *(f"  {why}" for why in decision.why[:LISTED_MAX]),
            *(f"held by {need.who}, which needs {need.offset} and what follows" for need in decision.held_by),
            *(f"{who} would copy anew" for who in decision.passed),
            decision.refused or "sends are taken",
        ]
        return "\n".join(lines) + "\n"

    # --- inside ------------------------------------------------------------------------------------------------------

    def _rules(self) -> Rules:
        # Rule 4: the defaults of an unset key are not those of an operator who keeps all.
        return rules_of(self._settings.settings) if self._settings.is_known else Rules()

    async def _run(self) -> None:
        while True:
            is_moving = await self._look()
            await asyncio.sleep((LOOK_AGAIN_MS if is_moving else LOOK_MS) / 1000)

    async def _look(self) -> bool:
        """Whether the next look should be soon. Raises ``OSError`` after which nothing may be assumed of the disk."""
        rules = self._rules()
        if rules.is_off and not rules.refused_percent:
            self._facts, self._decision, self._put.full_disk = None, Decision(), ""
            return False
        try:
            self._facts = facts = await self._gather(rules)
            self._decision = decision = decide(facts, rules)
            self._tell(decision)
            if self._room.standing.is_master and self._telling.is_due(self._folds.told.since, decision.wanted_to):
                self._telling.begin()
            if any(need.who == "groups" for need in decision.held_by):
                self._room.consumers.tell_again()
            if decision.delete_to is not None:
                await self._delete(LogOffset(decision.delete_to), decision)
        except OSError as error:
            # Descriptors come back; after another failed write the disk may say yes to what it has lost.
            if not is_full_disk(error) and error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            _log.warning("not_deleted", reason=str(error))
        return bool(self._decision.refused or self._decision.wanted_to)

    async def _gather(self, rules: Rules) -> Facts:
        segments, (disk_bytes, free_bytes) = await self._on_disk(
            lambda: (self._commit_log.front.segments(rules.segments_max), self._disk_room())
        )
        copies = (Need(who=f"broker {one}", offset=at, is_copy=True) for one, at in self._copies.copies)
        return Facts(
            segments=tuple(SegmentAge(base=base, end=end, closed_ms=at_ms) for base, end, at_ms in segments),
            confirm=self._commit_log.confirm_offset,
            now_ms=self._now_ms(),
            disk_bytes=disk_bytes,
            free_bytes=free_bytes,
            needs=(*(need() for need in self.needs), *copies),
            is_refusing=bool(self._put.full_disk),
        )

    def _tell(self, decision: Decision) -> None:
        """A line when something begins or ends."""
        held_by = tuple(need.who for need in decision.held_by)
        if held_by != self._held_by:
            self._held_by = held_by
            _log.info("deletion_waits", needed_by=held_by, wanted_to=decision.wanted_to)
        if bool(decision.refused) != bool(self._put.full_disk):
            say = _log.error if decision.refused else _log.info
            say("sends_refused_for_disk" if decision.refused else "sends_taken_again", reason=decision.refused)
        self._put.full_disk = decision.refused

    async def _delete(self, start: LogOffset, decision: Decision) -> None:
        log, before = self._commit_log, self._commit_log.min_offset
        if decision.passed:
            _log.warning("copies_passed", copies=decision.passed, start_offset=start, meaning="they copy anew")
        if await self._on_disk(lambda: log.front.delete(start)) != start:
            return
        self._freed_bytes += start - before
        _log.info("segments_deleted", start_offset=start, freed_bytes=start - before, why=decision.why[:LISTED_MAX])
        # While a thread cuts the log its index is that thread's.
        if not self._folds.is_resting and log.min_offset == start:
            log.index.trim(start)
        self._copies.let_go(start)
        while await self._on_disk(log.front.close_deleted):
            pass
        await self._folds.trim()

    async def _on_disk(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work)
