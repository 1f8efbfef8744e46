"""
Pulls that wait for a message to come.

Here: who waits, at which queue, of which link, until when. Not here: what a pull finds, and its answer (``pulls``).

Rule 1: growth of a queue wakes those that wait at it, a few per turn of the loop. A woken pull that finds nothing goes
on waiting from behind what it has seen.
Rule 2: who waits costs nothing until then: there is one timer, for the earliest time at which one is over. It fires
within ``STEP_MS`` of that time. RocketMQ looks through all of them every 5 s, and is late by as much.
Rule 3: a link that closes takes its pulls along.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

import msgspec

from rollcall_ha.broker.consuming.filters import Filter
from rollcall_ha.broker.folds.ports import QueueKey
from rollcall_ha.broker.protocol.pull import PullRequest
from rollcall_ha.node.remoting.connection import RemotingConnection
from rollcall_ha.node.remoting.frame import HeaderForm

WAITING_PULLS_MAX: Final = 16_384
LINK_PULLS_MAX: Final = 4_096
WAITING_CHARS_MAX: Final = 1 << 20
"""Of texts in headers of pulls that wait: each subscription may be another one, and its filter is kept."""
WAIT_MS_MAX: Final = 60_000
"""A client that asks for more gets its answer then, and asks again."""
STEP_MS: Final = 10
WAKES_PER_TURN_MAX: Final = 32
"""A look at a queue takes 0.1 ms: others of the loop wait for 3 ms."""
ENDS_PER_TURN_MAX: Final = 256
Key = TypeVar("Key")


class WaitingPull(msgspec.Struct, eq=False):
    """A pull without an answer."""

    connection: RemotingConnection
    opaque: int
    form: HeaderForm
    request: PullRequest
    key: QueueKey
    offset: int
    """Where it looks next: at its request's offset, or behind records that did not pass ``filter``."""
    filter: Filter | None = None
    """None: it was not admitted yet."""
    step: int = 0
    """When its wait is over, on the loop's clock, in steps."""
    is_sent_back: bool = False
    """It waits only so that its client does not come back at once."""
    is_over: bool = False


class WaitingPulls:
    """The table. On the loop thread."""

    def __init__(self, retry: Callable[[WaitingPull], bool], expire: Callable[[WaitingPull], None]) -> None:
        """
        ``retry`` looks again, and answers or says False; ``expire`` answers that there is nothing. Neither is called
        within a call from outside, neither may raise.
        """
        self._retry = retry
        self._expire = expire
        self._of_queue: dict[QueueKey, dict[WaitingPull, None]] = {}
        self._of_link: dict[RemotingConnection, dict[WaitingPull, None]] = {}
        self._of_step: dict[int, dict[WaitingPull, None]] = {}
        self._steps: list[int] = []
        """A heap of the keys of ``_of_step``."""
        self._woken: deque[WaitingPull] = deque()
        self._is_turn_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_step = 0
        self._count = 0
        self._chars = 0

    def __len__(self) -> int:
        """How many wait."""
        return self._count

    def hold(self, pull: WaitingPull, wait_ms: int) -> str:
        """``pull`` waits for at most ``wait_ms``; returns why it cannot, empty: it does."""
        of_link = self._of_link.get(pull.connection, ())
        if self._count >= WAITING_PULLS_MAX or len(of_link) >= LINK_PULLS_MAX or self._chars >= WAITING_CHARS_MAX:
            limits = f"{WAITING_PULLS_MAX}, {LINK_PULLS_MAX} and {WAITING_CHARS_MAX} may"
            there = f"{self._count} pulls wait here, {len(of_link)} of this link"
            return f"{there}, with {self._chars} characters of names and filters; {limits}: pull fewer queues at a time"
        loop = asyncio.get_running_loop()
        due_ms = loop.time() * 1000 + min(wait_ms, WAIT_MS_MAX)
        # Up, never down: answered before its time, a client's wait would be shorter than it asked for.
        pull.step = step = int(due_ms // STEP_MS) + 1
        self._count += 1
        self._chars += _chars(pull.request)
        self._of_link.setdefault(pull.connection, {})[pull] = None
        self._of_queue.setdefault(pull.key, {})[pull] = None
        if step not in self._of_step:
            self._of_step[step] = {}
            heapq.heappush(self._steps, step)
            self._set_timer(loop)
        self._of_step[step][pull] = None
        return ""

    def wake(self, keys: Iterable[QueueKey]) -> None:
        """These queues have grown: who waits there looks again, from the next turn of the loop on."""
        for key in keys:
            waiting = self._of_queue.pop(key, None)
            if waiting is not None:
                self._woken.extend(waiting)
        if self._woken and not self._is_turn_due:
            self._is_turn_due = True
            asyncio.get_running_loop().call_soon(self._turn)

    def wake_all(self) -> None:
        """Every pull looks again: what it is answered may have changed."""
        self.wake(list(self._of_queue))

    def forget(self, connection: RemotingConnection) -> None:
        """The link is closed (rule 3)."""
        for pull in list(self._of_link.get(connection, ())):
            self._end(pull)

    def _turn(self) -> None:
        self._is_turn_due = False
        for _ in range(min(len(self._woken), WAKES_PER_TURN_MAX)):
            pull = self._woken.popleft()
            if pull.is_over:
                continue
            if self._retry(pull):
                self._end(pull)
            else:
                self._of_queue.setdefault(pull.key, {})[pull] = None
        self.wake(())

    def _end(self, pull: WaitingPull) -> None:
        if pull.is_over:
            return
        pull.is_over = True
        self._count -= 1
        self._chars -= _chars(pull.request)
        self._of_step[pull.step].pop(pull)
        _drop(self._of_link, pull.connection, pull)
        _drop(self._of_queue, pull.key, pull)

    # --- time --------------------------------------------------------------------------------------------------------

    def _set_timer(self, loop: asyncio.AbstractEventLoop) -> None:
        step = self._steps[0]
        if self._timer is not None:
            if self._timer_step <= step:
                return
            self._timer.cancel()
        self._timer_step = step
        self._timer = loop.call_at(step * STEP_MS / 1000, self._fire)

    def _fire(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        # A loop may fire a timer up to a millisecond early.
        now = int((loop.time() * 1000 + 1) // STEP_MS)
        for _ in range(ENDS_PER_TURN_MAX):
            while self._steps and self._steps[0] <= now and not self._of_step[self._steps[0]]:
                del self._of_step[heapq.heappop(self._steps)]
            if not self._steps or self._steps[0] > now:
                break
            pull = next(reversed(self._of_step[self._steps[0]]))
            self._end(pull)
            self._expire(pull)
        if self._steps:
            self._set_timer(loop)


def _chars(request: PullRequest) -> int:
    return sum(map(len, (request.consumer_group, request.topic, request.subscription, request.expression_type)))


def _drop(table: dict[Key, dict[WaitingPull, None]], key: Key, pull: WaitingPull) -> None:
    of_key = table.get(key)
    if of_key is not None:
        of_key.pop(pull, None)
        # Empty ones, of queues that nobody pulls any more, would be kept for ever.
        if not of_key:
            del table[key]
