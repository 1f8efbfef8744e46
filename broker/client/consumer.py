"""
A consumer of topics, in a group, that follows the masters of their sets, and reads where they say: ours, or RocketMQ's.

Here: its tasks, what it asks brokers, handlers and polls. Not here: which queue is whose (``rebalance``), what may be
committed and what an answer means (``progress``), links and routes (``sets``), plain threads (``blocking``).

Rule 1: at least once (``progress``, rule 1). A message is finished when its handler has returned, or ``done`` was said.
Rule 2: one task for each queue, and as many as were asked for that handle; none for a message.
Rule 3: what is read and not finished has limits, of a queue and of all together.
Rule 4: ordered: a queue is read with the lock of its broker only, one batch of it at a time, and a batch that fails is
tried again before all that is behind it.
Rule 5: a message whose handler fails goes back to the broker, which gives it again later; where the broker takes none
back it is tried again here. After ``ATTEMPTS_MAX`` times the consumer ends, and the message is not committed: passed by
in silence, it would be lost.
Rule 6: commits are answered, one at a time, so that none overtakes another.
Rule 7: a queue is read from the replica that its last answer named, by default and after any fault from the master; its
offset, its lock and a move are the master's alone.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import socket
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from rollcall_ha.broker.client import rebalance
from rollcall_ha.broker.client.fleet import access_of
from rollcall_ha.broker.client.messages import Message, decode_messages
from rollcall_ha.broker.client.progress import ATTEMPTS_MAX, QueueProgress, Step, changes, step_of
from rollcall_ha.broker.client.questions import PULL_MESSAGES_MAX, Questions, Start, name_of, parse_pulled
from rollcall_ha.broker.client.routes import RouteWatcher, renewing
from rollcall_ha.broker.client.sets import MasterLink, find_sets, is_ours
from rollcall_ha.broker.client.slaves import MASTER
from rollcall_ha.broker.protocol.consumers import GROUP_PATTERN, NONSENSE, MessageQueue, Subscription
from rollcall_ha.broker.protocol.record import RecordError
from rollcall_ha.broker.protocol.topics import RETRY_PREFIX
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.config import split_address
from rollcall_ha.node.remoting.connection import RemotingConnection, RemotingError, RemotingTimeout
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.node.tls import Credentials

__all__ = ["Consumer", "ConsumerError", "Handler", "Start"]

Handler = Callable[[Sequence[Message]], Awaitable[None]]
"""Gets messages of one queue, in its order. An error that it raises is about all of them."""
OPEN_BYTES_MAX: Final = 64 * 1024 * 1024
"""Of all queues, read and not finished; a pull that is under way may bring one answer more."""
HELD_MS_MIN: Final = 1_000
"""A pull that took as long was held by its broker."""
HEARTBEAT_MS: Final = 30_000
REBALANCE_MS: Final = 20_000
SEARCH_MS: Final = 1_000
"""Between looks for queues or masters that are not found."""
STEER_PAUSE_MS: Final = 100
COMMIT_MS: Final = 5_000
LOCK_RENEWAL_MS: Final = 20_000
LOCK_BELIEVED_MS: Final = 30_000
LOCK_PAUSE_MS: Final = 1_000
RETRY_MS: Final = 5_000
ORDERED_RETRY_MS: Final = 1_000
LINK_PAUSE_MS: Final = 100
RELEASE_MS_MAX: Final = 5_000
"""For the batch under way of an ordered queue that is another's now."""
CLOSE_MS_MAX: Final = 10_000
"""For the batches under way when the consumer closes."""
_log = logging.getLogger("consumer")


class ConsumerError(Exception):
    """The consumer has ended by itself; the message says why. All that was finished is committed."""


class _Work:
    """One queue that is ours."""

    def __init__(self, queue: MessageQueue) -> None:
        self.queue = queue
        self.progress: QueueProgress | None = None
        """None: it is not known where it goes on."""
        self.task: asyncio.Task[None] | None = None
        self.locked_s = float("-inf")
        """When the lock was asked for that its broker gave; loop time."""
        self.reader = MASTER
        """Id of the replica for the next pull (rule 7)."""
        self.given = 0
        """Batches that are handled, or wait to be tried again."""
        self.is_listed = False
        """Whether it is among the turns."""
        self.is_dropped = False


_Batch = tuple[_Work, QueueProgress, list[Message]]


class Consumer:
    """
    ``async with Consumer(["127.0.0.1:10911"], group="g", topics={"orders": "*"}, handler=handle) as it:`` and then
    ``await it.run()``; without a handler ``messages = await it.poll()``, again and again.
    """

    def __init__(
        self,
        seeds: Iterable[str],
        *,
        group: str,
        topics: Mapping[str, str | Subscription],
        handler: Handler | None = None,
        is_ordered: bool = False,
        start: Start | int = Start.LAST,
        strategy: rebalance.Strategy = rebalance.average,
        batch_max: int = PULL_MESSAGES_MAX,
        handlers: int = 8,
        client_id: str = "",
        credentials: Credentials | None = None,
    ) -> None:
        """
        Nothing is dialled yet.

        Args:
            seeds: host:port of brokers, one of each set at least; or of RocketMQ's name servers.
            group: Consumer group; its members share the queues.
            topics: What is wanted of each: ``*``, tags (``a || b``), or a ``Subscription`` of the kind SQL92.
            handler: Push style; None: ``poll`` is called.
            is_ordered: Rule 4; needs a handler.
            start: Or a time, ms since 1970: where the group begins in a queue without an offset.
            strategy: Which queues are whose; all members of a group must have the same.
            batch_max: The most messages that a handler gets at once.
            handlers: Batches that are handled at a time.
            client_id: Another name for each member; empty: one is made.
            credentials: As of ``Producer``.

        Raises ``ValueError``: no seed, an address or a name that is none, ordered without a handler.
        """
        if is_ordered and handler is None:
            raise ValueError("an ordered consumer needs a handler: poll gives queues to nobody in particular")
        self._seeds = tuple(dict.fromkeys(seeds))
        _require_names(self._seeds, group, topics)
        self.client_id = client_id or f"{socket.gethostname()}@{os.getpid()}#{secrets.token_hex(4)}"
        self.messages = 0
        """Finished since the start."""
        self.uncommitted = 0
        """Queues whose last commit had no answer when the consumer closed."""
        kinds = frozenset({PeerKind.BROKER})
        self._expected = None if credentials is None else ExpectedPeer(credentials=credentials, kinds=kinds)
        version = time.time_ns() // 1_000_000
        self._topics = {topic: _subscription(wanted, version) for topic, wanted in topics.items()}
        if handler is not None and not is_ordered:
            self._topics[RETRY_PREFIX + group] = Subscription(version=version)
        self._questions = Questions(group, self.client_id, self._topics, is_push=handler is not None, start=start)
        self._tags = {topic: _tags(wanted) for topic, wanted in self._topics.items()}
        self._handler, self._is_ordered = handler, is_ordered
        self._strategy, self._batch_max, self._handlers = strategy, batch_max, handlers
        self._sets: dict[str, MasterLink] = {}
        self._queue_counts: dict[tuple[str, str], int] = {}
        """By topic and set."""
        self._at_start: dict[str, dict[str, int]] = {}
        """The same, as they were first told: by topic, by set. What is beyond them came later (``Start.LAST``)."""
        self._works: dict[MessageQueue, _Work] = {}
        self._turns: deque[_Work] = deque()
        """Queues with messages that are ready; each gives one batch, and stands in line again."""
        self._polled: list[_Batch] = []
        self._filled, self._room, self._woken = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._committing = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._workers: list[asyncio.Task[None]] = []
        self._is_closing = False
        self._is_settled = False
        """Whether it is known which queues are ours."""
        self._failure: ConsumerError | None = None
        self._ended = asyncio.Event()

    # --- for its owner -----------------------------------------------------------------------------------------------

    @classmethod
    def from_fleet_file(cls, path: str | Path, *, set_name: str = "", **options: Any) -> Self:
        """All sets of a fleet file, or one, as ``Producer.from_fleet_file``. Blocks. Raises ``ConfigError``."""
        access = access_of(path, set_name)
        return cls(access.seeds, credentials=access.credentials, **options)

    async def __aenter__(self) -> Consumer:
        """Begin to look for queues."""
        self._tasks = [self._begin(self._steer())]
        self._tasks.append(self._begin(self._every(HEARTBEAT_MS, self._beat_all)))
        self._tasks.append(self._begin(self._every(COMMIT_MS, self.commit)))
        if self._is_ordered:
            self._tasks.append(self._begin(self._every(LOCK_PAUSE_MS, self._renew_due)))
        if self._expected is not None:
            self._tasks.append(self._begin(renewing(self._expected.credentials)))
        if self._handler is not None:
            self._workers = [self._begin(self._handle(self._handler)) for _ in range(self._handlers)]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """
        Let handlers end, commit, leave the group. What the last ``poll`` gave is finished, unless an error ends this.
        """
        self._is_closing = True
        # First of all: a queue that it began to follow behind the others' end would be followed for ever.
        await _cancel(self._tasks[:1])
        if kind is None:
            self.done()
        self._filled.set()
        if self._workers:
            _, late = await asyncio.wait(self._workers, timeout=CLOSE_MS_MAX / 1000)
            await _cancel(late)
        await _cancel([work.task for work in self._works.values() if work.task is not None])
        await self.commit()
        works = self._works.values()
        self.uncommitted = sum(work.progress is not None and work.progress.due is not None for work in works)
        queues = list(self._works)
        for name, of_set in self._sets.items():
            if (link := of_set.link) is not None:
                with suppress(RemotingError):
                    if self._is_ordered:
                        await self._questions.unlock(link, [queue for queue in queues if queue.broker_name == name])
                    await self._questions.leave(link)
        await _cancel(self._tasks)

    async def run(self) -> None:
        """Until it is cancelled. Raises ``ConsumerError``."""
        await self._ended.wait()
        self._raise_failure()

    async def poll(self, max_messages: int = 256, wait_ms: int = 1_000) -> list[Message]:
        """
        The next messages, none if there are none within ``wait_ms``. Those of the last call count as finished.

        Raises ``ConsumerError``.
        """
        self.done()
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_ms / 1000):
                while not self._turns and self._failure is None:
                    self._filled.clear()
                    await self._filled.wait()
        self._raise_failure()
        found: list[Message] = []
        while len(found) < max_messages and (batch := self._next(max_messages - len(found))) is not None:
            self._polled.append(batch)
            found += batch[2]
        return found

    def done(self, count: int | None = None) -> None:
        """What ``poll`` gave is finished, and may be committed; of the first ``count`` only, the others come again."""
        polled, self._polled = self._polled, []
        left = sum(len(batch) for *_, batch in polled) if count is None else count
        kept: list[_Batch] = []
        for work, progress, batch in polled:
            kept.append((work, progress, batch[left:]))
            self._finished(work, progress, batch[:left])
            left = max(0, left - len(batch))
        for work, progress, batch in reversed(kept):
            progress.back(batch)
            self._list(work)

    async def behind(self) -> int | None:
        """How many messages of our queues, filtered ones included, are not read yet; None: that is not known now."""
        if not self._is_settled:
            return None
        total = 0
        for queue, work in list(self._works.items()):
            link = self._sets[queue.broker_name].link
            if link is None or work.progress is None:
                return None
            try:
                end = await self._questions.end(link, queue)
            except (RemotingError, *NONSENSE):
                return None
            if end is None:
                return None
            total += max(0, end - work.progress.next_offset) + len(work.progress.ready)
        return total

    async def commit(self) -> bool:
        """Commit what is finished; whether all of it is, as its brokers acknowledged."""
        async with self._committing:
            # Of a queue that is another's, our offset would be behind its own.
            works = [work for work in self._works.values() if not work.is_dropped]
            return all(await asyncio.gather(*map(self._commit, works)))

    # --- sets, members, queues ---------------------------------------------------------------------------------------

    async def _steer(self) -> None:
        """Which queues there are, and which are ours; again after a while, and when there is news."""
        while True:
            self._woken.clear()
            await self._find()
            is_whole = all(of_set.link is not None for of_set in self._sets.values())
            known = {topic for topic, _ in self._queue_counts}
            is_whole = is_whole and known.issuperset(t for t in self._topics if not t.startswith(RETRY_PREFIX))
            try:
                await self._rebalance()
            except (RemotingError, *NONSENSE) as error:
                self._questions.tell(f"members: {error}")
                is_whole = False
            with suppress(TimeoutError):
                async with asyncio.timeout((REBALANCE_MS if is_whole else SEARCH_MS) / 1000):
                    await self._woken.wait()
            # A thousand members that start together are no thousand looks of each.
            await asyncio.sleep(STEER_PAUSE_MS / 1000)

    async def _find(self) -> None:
        found, troubles, absent = await find_sets(self._seeds, list(self._topics), self._expected)
        for topic in self._topics:
            counts = {name: one.queue_counts[topic] for name, one in found.items() if topic in one.queue_counts}
            if counts or topic in absent:
                self._at_start.setdefault(topic, counts)
        for name, one in found.items():
            self._queue_counts |= {(topic, name): count for topic, count in one.queue_counts.items()}
            if name in self._sets or (ours := await is_ours(one, self._expected)) is None:
                continue
            topic = next(iter(one.queue_counts))
            routes = (
                RouteWatcher(one.addresses, self._expected)
                if ours
                else RouteWatcher(self._seeds, self._expected, topic=topic, set_name=name)
            )
            greet = partial(self._greet, name)
            of_set = self._sets[name] = MasterLink(routes, self._expected, greet=greet, on_news=self._woken.set)
            self._tasks.append(self._begin(of_set.run()))
        if not self._sets and troubles:
            self._questions.tell("; ".join(troubles))

    async def _rebalance(self) -> None:
        """Raises ``RemotingError``, one of ``NONSENSE``."""
        members = await self._members()
        if members is None:
            return
        wanted: list[MessageQueue] = []
        for topic in self._topics:
            queues = (
                MessageQueue(name, queue_id, topic)
                for (of_topic, name), count in self._queue_counts.items()
                for queue_id in range(count)
                if of_topic == topic and name in self._sets
            )
            wanted += self._strategy(rebalance.in_order(queues), members, self.client_id)
        stopping, starting = changes(self._works.keys(), wanted)
        await asyncio.gather(*(self._stop(self._works[queue]) for queue in stopping))
        self._is_settled = bool(wanted) or len(members) > 1
        for queue in starting:
            work = self._works[queue] = _Work(queue)
            work.task = self._begin(self._follow(work))

    async def _members(self) -> list[str] | None:
        """None: it is not known who they are, so that queues stay. Raises as ``_rebalance``: no set has answered."""
        failure: Exception | None = None
        for _, of_set in sorted(self._sets.items()):
            if (link := of_set.link) is not None:
                try:
                    members = await self._questions.members(link)
                    if members is None:
                        await self._questions.beat(link)
                except (RemotingError, *NONSENSE) as error:
                    _note_failed(link, error)
                    failure = error
                else:
                    return members
        if failure is not None:
            raise failure
        return None

    async def _greet(self, name: str, link: RemotingConnection) -> None:
        """Raises ``RemotingError``."""
        await self._questions.beat(link)
        await self._renew(link, name)

    async def _beat_all(self) -> None:
        await self._ask_all(lambda link, _: self._questions.beat(link))

    async def _ask_all(self, ask: Callable[[RemotingConnection, str], Awaitable[None]]) -> None:
        """Of each set; one that does not answer keeps nothing from the others."""
        for name, of_set in list(self._sets.items()):
            if (link := of_set.link) is not None:
                try:
                    await ask(link, name)
                except (RemotingError, *NONSENSE) as error:
                    _note_failed(link, error)

    async def _stop(self, work: _Work) -> None:
        """The queue is another's."""
        work.is_dropped = True
        if work.task is not None:
            await _cancel([work.task])
        link = self._sets[work.queue.broker_name].link
        if self._is_ordered:
            with suppress(TimeoutError):
                async with asyncio.timeout(RELEASE_MS_MAX / 1000):
                    while work.given:
                        self._room.clear()
                        await self._room.wait()
        async with self._committing:
            if work.progress is not None and work.progress.due is not None:
                await self._commit(work)
        # After the commit: its next owner asks for the offset when it has the lock.
        if self._is_ordered and link is not None:
            with suppress(RemotingError):
                await self._questions.unlock(link, [work.queue])
        del self._works[work.queue]
        # Its messages count no more: other queues may wait for that room.
        self._room.set()

    # --- one queue ---------------------------------------------------------------------------------------------------

    async def _follow(self, work: _Work) -> None:
        of_set = self._sets[work.queue.broker_name]
        while True:
            slave = await of_set.slaves.to(work.reader) if work.reader != MASTER else None
            is_placed = work.progress is not None and (not self._is_ordered or self._is_locked(work))
            link = slave if slave is not None and is_placed else await of_set.wait()
            try:
                pause_ms = await self._pull(link, work, is_slave=link is slave)
            except (RemotingError, RecordError, *NONSENSE) as error:
                _note_failed(link, error)
                work.reader, pause_ms = MASTER, LINK_PAUSE_MS
            if pause_ms:
                await asyncio.sleep(pause_ms / 1000)

    async def _pull(self, link: RemotingConnection, work: _Work, *, is_slave: bool) -> int:
        """
        One pull and what follows; returns how long to wait before the next one, ms.

        Raises ``RemotingError``, ``RecordError``, one of ``NONSENSE``.
        """
        if self._is_ordered and not self._is_locked(work):
            # Somebody else may have had it meanwhile: the queue goes on where the group is.
            work.progress = None
            await self._lock(link, [work])
            if not self._is_locked(work):
                return LOCK_PAUSE_MS
        if work.progress is None:
            is_later = work.queue.queue_id >= self._at_start[work.queue.topic].get(work.queue.broker_name, 0)
            work.progress = await self._questions.where(link, work.queue, is_later=is_later)
            if work.progress is None:
                return SEARCH_MS
        progress = work.progress
        if progress.is_full or self._open_bytes >= OPEN_BYTES_MAX:
            self._room.clear()
            await self._room.wait()
            return 0
        began_s = asyncio.get_running_loop().time()
        answer = await self._questions.pull(link, work.queue, progress.next_offset)
        was_held = asyncio.get_running_loop().time() - began_s >= HELD_MS_MIN / 1000
        step, pause_ms = step_of(answer.code, was_held=was_held)
        if work.progress is not progress:
            return 0
        work.reader = MASTER
        if step is Step.PAUSE:
            self._questions.is_done(answer, "pull", work.queue)
        elif step is Step.END:
            self._end(ConsumerError(f"{name_of(work.queue)}: {answer.remark}; mend the subscription"))
            pause_ms = SEARCH_MS
        else:
            told = parse_pulled(answer)
            if step is Step.MOVE:
                # A slave may know less than the master had confirmed: a queue would be read again, or passed by.
                if not is_slave:
                    progress.move(told.next_begin_offset)
                    self._room.set()
            else:
                tags = self._tags[work.queue.topic]
                found = decode_messages(answer.body, work.queue, tags) if step is Step.TAKE else []
                progress.take(found, told.next_begin_offset)
                self._list(work)
                work.reader = told.suggest_which_broker_id
        return pause_ms

    async def _commit(self, work: _Work) -> bool:
        progress, link = work.progress, self._sets[work.queue.broker_name].link
        offset = None if progress is None else progress.due
        if progress is None or offset is None:
            return True
        # The next holder of the lock may be further on: our offset would take the group back.
        if link is None or (self._is_ordered and not self._is_locked(work)):
            return False
        try:
            if not await self._questions.commit(link, work.queue, offset):
                return False
        except RemotingError:
            return False
        progress.committed = offset
        return True

    # --- locks -------------------------------------------------------------------------------------------------------

    def _is_locked(self, work: _Work) -> bool:
        return asyncio.get_running_loop().time() - work.locked_s < LOCK_BELIEVED_MS / 1000

    async def _lock(self, link: RemotingConnection, works: Sequence[_Work]) -> None:
        """Raises ``RemotingError``, one of ``NONSENSE``."""
        asked_s = asyncio.get_running_loop().time()
        granted = await self._questions.lock(link, [work.queue for work in works])
        if granted is not None:
            for work in works:
                work.locked_s = asked_s if work.queue in granted else float("-inf")

    async def _renew_due(self) -> None:
        # Each second until it is done: a new master may not know all locks yet. In another 20 s none would be believed
        # any more, and each queue would be read again from its last commit.
        now_s = asyncio.get_running_loop().time()
        ages_s = [now_s - work.locked_s for work in self._works.values() if self._is_locked(work)]
        if max(ages_s, default=0.0) >= LOCK_RENEWAL_MS / 1000:
            await self._renew_locks()

    async def _renew_locks(self) -> None:
        await self._ask_all(self._renew)

    async def _renew(self, link: RemotingConnection, name: str) -> None:
        held = [work for work in self._works.values() if work.queue.broker_name == name and self._is_locked(work)]
        if held:
            await self._lock(link, held)

    # --- handling ----------------------------------------------------------------------------------------------------

    async def _handle(self, handler: Handler) -> None:
        """One of those that handle, until the consumer closes."""
        while not self._is_closing:
            batch = self._next(self._batch_max)
            if batch is None:
                self._filled.clear()
                await self._filled.wait()
                continue
            try:
                await handler(batch[2])
            except (Exception, asyncio.CancelledError) as error:
                task = asyncio.current_task()
                # A task that the handler waits for may be the cancelled one: that is a failure of the handler.
                if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise
                _log.exception("handler_failed queue=%s", name_of(batch[0].queue))
                await self._failed(*batch)
            else:
                self._finished(*batch)

    def _list(self, work: _Work) -> None:
        """It stands in line if it has something to give (rule 4: one batch at a time)."""
        progress = work.progress
        is_free = not work.is_listed and not work.is_dropped and not (self._is_ordered and work.given)
        if progress is not None and progress.ready and is_free:
            work.is_listed = True
            self._turns.append(work)
            self._filled.set()

    def _next(self, count: int) -> _Batch | None:
        while self._turns:
            work = self._turns.popleft()
            work.is_listed = False
            if self._is_ordered and not self._is_locked(work):
                # The next holder may handle these messages already. Kept, they would take the room of other queues
                # for as long as this one's set has no master.
                work.progress = None
                self._room.set()
            if work.progress is None or work.is_dropped:
                continue
            batch = work.progress.give(count)
            if batch:
                work.given += 1
                self._list(work)
                return work, work.progress, batch
        return None

    def _finished(self, work: _Work, progress: QueueProgress, batch: list[Message]) -> None:
        progress.finish(batch)
        self.messages += len(batch)
        work.given -= 1
        self._room.set()
        self._list(work)

    async def _failed(self, work: _Work, progress: QueueProgress, batch: list[Message]) -> None:
        """It goes back to the broker, or is tried again here (rule 5)."""
        sent = 0 if self._is_ordered else await self._send_back(work.queue, batch)
        progress.finish(batch[:sent])
        left = batch[sent:]
        progress.note_failed(left)
        delay_ms = ORDERED_RETRY_MS if self._is_ordered else RETRY_MS if left else 0
        asyncio.get_running_loop().call_later(delay_ms / 1000, self._again, work, progress, left)

    def _again(self, work: _Work, progress: QueueProgress, left: list[Message]) -> None:
        worst = progress.back(left)
        if worst is not None:
            self._end(
                ConsumerError(
                    f"message {worst.queue_offset} of {name_of(work.queue)} failed {ATTEMPTS_MAX} times and is not "
                    "committed; mend its handler, or catch its errors there to pass it by"
                )
            )
            return
        self._finished(work, progress, [])

    async def _send_back(self, queue: MessageQueue, batch: Sequence[Message]) -> int:
        """How many of them, from the first on, the broker has taken; it gives each again after a while."""
        for number, message in enumerate(batch):
            link = self._sets[queue.broker_name].link
            try:
                if link is None or not await self._questions.send_back(link, message):
                    return number
            except RemotingError:
                return number
        return len(batch)

    # --- the rest ----------------------------------------------------------------------------------------------------

    @property
    def _open_bytes(self) -> int:
        return sum(work.progress.open_bytes for work in self._works.values() if work.progress is not None)

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._note_ended)
        return task

    def _note_ended(self, task: asyncio.Task[None]) -> None:
        is_lost = task.cancelled() and task in self._workers and not self._is_closing
        fault = None if task.cancelled() else task.exception()
        # Silent, the others would go on without it: with a queue that nobody reads, or offsets that nobody commits.
        if fault is not None:
            _log.error("consumer_fault group=%s", self._questions.group, exc_info=fault)
            self._end(ConsumerError(f"internal fault: {type(fault).__name__}: {fault}"))
        if is_lost:
            self._end(ConsumerError("a handler cancelled the task that called it; nobody would handle its queues"))

    async def _every(self, interval_ms: int, act: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            await act()

    def _end(self, failure: ConsumerError) -> None:
        self._failure = self._failure or failure
        self._ended.set()
        self._filled.set()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


def _require_names(seeds: Sequence[str], group: str, topics: Mapping[str, str | Subscription]) -> None:
    """Raises ``ValueError``: what can never work is said at once, not by a consumer that waits for ever."""
    if re.fullmatch(GROUP_PATTERN, group) is None:
        raise ValueError(f"group {group!r}: 1 to 248 letters, digits, %, |, _ and - make a name")
    if not seeds or not topics:
        raise ValueError(f"{len(seeds)} seeds and {len(topics)} topics; one of each is the least")
    for seed in seeds:
        split_address(seed)


def _subscription(wanted: str | Subscription, version: int) -> Subscription:
    text, kind = (wanted, "TAG") if isinstance(wanted, str) else (wanted.text, wanted.kind)
    return Subscription(text or "*", version, kind)


def _tags(wanted: Subscription) -> frozenset[str] | None:
    """Tags that are tested again here, as a hash may be another tag's; None: every message is wanted."""
    if wanted.kind != "TAG" or wanted.text.strip() == "*":
        return None
    return frozenset(tag.strip() for tag in wanted.text.split("||")) - {""} or None


def _note_failed(link: RemotingConnection, error: Exception) -> None:
    # A broker that hangs keeps its link open: closed, it holds up no next question, and the master is looked for again.
    if not isinstance(error, RemotingError) or isinstance(error, RemotingTimeout):
        link.close(str(error))


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    cancelled = list(tasks)
    for task in cancelled:
        task.cancel()
    await asyncio.gather(*cancelled, return_exceptions=True)
