"""
The shell of ``core``: one look at log and disk every few seconds, and what follows from it.

Here: gathering facts, deleting, refusing sends, telling what is done. Not here: any decision (``core``), the steps of a
deletion (``broker.log.deletion``).

Rule 1: every replica decides for its own log and disk, slaves too: each has what is below its own confirm.
Rule 2: the disk is asked, and files are removed, on the thread of durable writes: a deletion and a cut never overlap.
Rule 3: before anything goes, the log itself says what it would be missed for: where queues go on, what groups said,
which topics were ordered.
Rule 4: nothing is deleted before a controller has said which settings are in force: they may keep more.
Rule 5: only a replica that is a part of its set deletes. One whose log and its master's differ may have the only copy.
Rule 6: what cuts have set aside goes before messages do.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import struct
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor
from typing import Final, Protocol, TypeVar

from msgspec.structs import replace

from rollcall_ha.broker.consuming.room import ConsumerRoom
from rollcall_ha.broker.core.producers import window_start
from rollcall_ha.broker.folds.dispatcher import Dispatcher
from rollcall_ha.broker.handlers.put import PutPath
from rollcall_ha.broker.live_settings import LiveSettings
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.log_index import BOUNDARY_STEP_BYTES
from rollcall_ha.broker.log.record import index_fields
from rollcall_ha.broker.protocol.record import RecordError
from rollcall_ha.broker.retention.core import (
    CLOCK,
    HOUR_MS,
    Decision,
    Facts,
    Freed,
    Need,
    Rules,
    SegmentAge,
    decide,
    is_forced,
    rules_of,
)
from rollcall_ha.broker.retention.telling import Telling
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.epoch.model import LogOffset
from rollcall_ha.node.files import is_full_disk
from rollcall_ha.node.tasks import Tasks
from rollcall_ha.node.telemetry import get_logger

LOOK_MS: Final = 10_000
LOOK_AGAIN_MS: Final = 1_000
"""While something is due or refused."""
LISTED_MAX: Final = 20
_IN_ITS_SET: Final = (BrokerState.MASTER, BrokerState.SLAVE, BrokerState.LEARNER)
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
        role: Callable[[], BrokerState],
        disk: Executor,
        disk_room: Callable[[], tuple[int, int]],
        now_ms: Callable[[], int],
        failed: Callable[[BaseException], None],
    ) -> None:
        """
        ``role``: the one that this replica shows. ``disk_room``: size and free bytes of the disk, *Blocking*;
        ``now_ms`` is UTC. ``failed`` ends the process.
        """
        self.needs: list[Callable[[], Need]] = [
            lambda: Need(who="consume queues", offset=folds.dispatched_offset),
            lambda: Need(who="key index", offset=folds.index.taken_offset),
            lambda: Need(who="queues' offsets", offset=folds.told.since, is_told=True),
            # By confirm: what lies behind it may be cut, and the window begins earlier again.
            lambda: Need(who="producers' numbers", offset=window_start(log.confirm_offset)),
            lambda: Need(who="groups", offset=room.consumers.kept_from(), is_told=True),
            lambda: Need(who="delayed messages", offset=folds.delayed_from()),
        ]
        """A room that reads records behind a start adds its own."""
        self._commit_log = log
        self._folds = folds
        self._put = put
        self._room = room
        self._copies = copies
        self._settings = settings
        self._role = role
        self._disk = disk
        self._disk_room = disk_room
        self._now_ms = now_ms
        self._telling = Telling(log, room.appender)
        self._tasks = Tasks(failed)
        self._facts: Facts | None = None
        self._decision = Decision()
        self._freed, self._beside_bytes = Freed(), 0
        self._freed_bytes = self._copies_passed = 0
        self._held_by: tuple[str, ...] = ()
        self._woken = asyncio.Event()

    @property
    def values(self) -> list[tuple[str, str, float]]:
        """For the health address."""
        return [
            ("retention_freed_bytes_total", "Of segments that were deleted since the start.", self._freed_bytes),
            ("retention_copies_passed_total", "That gave way to a full disk, and began anew.", self._copies_passed),
            ("retention_held", "1 if a segment is due and somebody needs it.", bool(self._decision.held_by)),
            ("sends_refused_for_disk", "1 if the disk is so full that sends are refused.", bool(self._put.full_disk)),
        ]

    def start(self) -> None:
        self._tasks.begin(self._run())

    async def close(self) -> None:
        await self._tasks.stop()

    def report(self, wanted: Mapping[str, int]) -> str:
        """
        What would go, for people, from a log that has told first what it is needed for.

        ``wanted``: other values than those in force, of ``hours``, ``forced`` and ``refused`` (percent).
        """
        facts, here = self._facts, rules_of(self._settings.settings)
        if facts is None:
            return "nothing was looked at yet\n"
        rules = Rules(
            keep_ms=wanted.get("hours", here.keep_ms // HOUR_MS) * HOUR_MS,
            forced_percent=wanted.get("forced", here.forced_percent),
            refused_percent=wanted.get("refused", here.refused_percent),
            segments_max=len(facts.segments),
        )
        needs = tuple(need for need in facts.needs if not need.is_told)
        decision = decide(replace(facts, needs=needs, newest_ms=None), rules)
        first = facts.segments[0].base if facts.segments else self._commit_log.min_offset
        start = first if decision.delete_to is None else decision.delete_to
        told = [need for need in facts.needs if need.is_told and need.offset < start]
        lines = [
            *([f"nothing is deleted: {why}"] if (why := self._why_kept(rules)) else []),
            f"the log begins at {first}; the disk is {facts.used_percent:.1f} % full",
            f"it would begin at {start}, and at {max(first, decision.wanted_to)} if nobody needed anything",
            *(f"  {why}" for why in decision.why[:LISTED_MAX]),
            *(f"the master writes {need.who} again first, last told behind {need.offset}" for need in told),
            *([f"the master writes a record first: {CLOCK}"] if facts.sure_ms < facts.now_ms else []),
            *(f"held by {need.who}, which needs {need.offset} and what follows" for need in decision.held_by),
            *(f"{who} would copy anew" for who in decision.passed),
            decision.refused or "sends are taken",
        ]
        return "\n".join(lines) + "\n"

    # --- inside ------------------------------------------------------------------------------------------------------

    def _why_kept(self, rules: Rules) -> str:
        """Why nothing goes whatever is due; empty: it does."""
        # Rule 4: the defaults of an unset key are not those of an operator who keeps all.
        if not self._settings.is_known:
            return "no controller has said which settings are in force"
        # Rule 5. Isolated, it has confirmed bytes that its master lacks, and an operator looks at them first (R26).
        if self._role() not in _IN_ITS_SET:
            return f"this replica is {self._role()}, what it has may be the only copy"
        return "retention_hours and retention_forced_percent are 0" if rules.is_off else ""

    def _rules(self) -> Rules:
        if not self._settings.is_known:
            return Rules()
        rules = rules_of(self._settings.settings)
        return replace(rules, segments_max=0) if self._why_kept(rules) else rules

    async def _run(self) -> None:
        # A segment more, or none for want of room: by the next look of every 10 s a small disk is full.
        self._commit_log.subscribe_room(self._woken.set)
        while True:
            self._woken.clear()
            wait_ms = LOOK_AGAIN_MS if await self._look() else LOOK_MS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_ms / 1000):
                    await self._woken.wait()

    async def _look(self) -> bool:
        """Whether the next look should be soon. Raises ``OSError`` after which nothing may be assumed of the disk."""
        # The index of the log is another thread's meanwhile.
        if self._folds.is_resting:
            return True
        rules = self._rules()
        try:
            await self._close_deleted()
            self._facts = facts = await self._gather(rules)
            # In one turn with the decision: while the disk was asked this replica may have left its set (rule 5).
            rules = self._rules()
            self._decision = decision = decide(facts, rules)
            self._tell(decision)
            self._write_again(rules, decision)
            if decision.delete_to is not None:
                await self._delete(LogOffset(decision.delete_to), decision)
        except OSError as error:
            # Descriptors come back; after another failed write the disk may say yes to what it has lost.
            if not is_full_disk(error) and error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            _log.warning("not_deleted", reason=str(error))
        return bool(self._decision.refused or (self._decision.wanted_to and rules.segments_max))

    def _write_again(self, rules: Rules, decision: Decision) -> None:
        """What lies in what is to go (rule 3)."""
        if rules.is_off or not self._room.standing.is_master:
            return
        held_by = {need.who for need in decision.held_by}
        # The clock, too: in a log that nobody writes to it is the one record that tells how late it is.
        if CLOCK in held_by or self._telling.is_due(self._folds.told.since, decision.wanted_to):
            self._telling.begin()
        if "groups" in held_by:
            self._room.consumers.tell_again()

    async def _gather(self, rules: Rules) -> Facts:
        front, confirm = self._commit_log.front, self._commit_log.confirm_offset
        newest_ms = self._newest_ms(confirm)
        segments, unclosed_bytes, room = await self._on_disk(
            lambda: (front.segments(), front.unclosed_bytes, self._make_room(rules))
        )
        disk_bytes, free_bytes, next_bytes, self._beside_bytes = room
        unshown_bytes = self._freed.unshown_bytes(asyncio.get_running_loop().time(), self._beside_bytes)
        return Facts(
            segments=tuple(SegmentAge(base=base, end=end, closed_ms=at_ms) for base, end, at_ms in segments),
            confirm=confirm,
            now_ms=self._now_ms(),
            newest_ms=newest_ms,
            disk_bytes=disk_bytes,
            free_bytes=free_bytes,
            next_bytes=next_bytes,
            unshown_bytes=max(unshown_bytes, unclosed_bytes),
            needs=self._all_needs(),
            is_refusing=bool(self._put.full_disk),
        )

    def _make_room(self, rules: Rules) -> tuple[int, int, int, int]:
        """*Blocking*. The room of the disk, without what cuts have set aside for too long (rule 6)."""
        front, remove = self._commit_log.front, self._commit_log.remove_expired
        try:
            remove()
            while rules.segments_max and is_forced(rules, *front.room(self._disk_room)[:3]):
                if not (names := remove(is_in_the_way=True)):
                    break
                _log.warning("quarantine_removed", cuts=names, meaning="the disk is full")
        except OSError as error:
            # An operator may be at it, too. What ails the disk the next line tells.
            _log.warning("quarantine_not_removed", reason=str(error))
        return front.room(self._disk_room)

    def _newest_ms(self, confirm: LogOffset) -> int:
        """Store time (UTC) of one of the last confirmed records; 0: there is none, or a damaged one."""
        log = self._commit_log
        last = log.reader.segment_of(confirm - 1)
        start = max(log.index.boundary_at_or_below(confirm - 1), 0 if last is None else last.base)
        try:
            segment, starts, _ = log.reader.run(start, confirm, BOUNDARY_STEP_BYTES)
            return index_fields(segment.view, starts[-1])[5] if starts else 0
        except (LookupError, RecordError):
            return 0

    def _all_needs(self) -> tuple[Need, ...]:
        """On the loop, in one turn with the decision."""
        try:
            copies = (Need(who=f"broker {one}", offset=at, is_copy=True) for one, at in self._copies.copies)
            return (*(need() for need in self.needs), *copies)
        except (FileNotFoundError, struct.error) as error:
            # Of a consume queue: whoever reads it tells what is amiss.
            return (Need(who=f"somebody who cannot read: {error}", offset=self._commit_log.min_offset),)

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
        log, freed_bytes = self._commit_log, start - self._commit_log.min_offset
        if decision.passed:
            self._copies_passed += len(decision.passed)
            _log.warning("copies_passed", copies=decision.passed, start_offset=start, meaning="they copy anew")
        try:
            await self._on_disk(lambda: log.front.delete(start))
        finally:
            # Also of a deletion that failed half-way: links send from files that are about to be closed, and what was
            # deleted is not deleted once more while it takes its space still.
            if log.min_offset >= start:
                self._freed_bytes += freed_bytes
                self._freed.note(asyncio.get_running_loop().time(), self._beside_bytes, freed_bytes)
                self._copies.let_go(start)
                _log.info(
                    "segments_deleted", start_offset=start, freed_bytes=freed_bytes, why=decision.why[:LISTED_MAX]
                )
        # While a thread cuts the log its index is that thread's.
        if not self._folds.is_resting and log.min_offset == start:
            log.index.trim(start)
        await self._close_deleted()
        await self._on_disk(log.front.make_next)
        await self._folds.trim()

    async def _close_deleted(self) -> None:
        while await self._on_disk(self._commit_log.front.close_deleted):
            pass

    async def _on_disk(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work)
