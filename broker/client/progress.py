"""
What a consumer decides: where a queue goes on, what may be committed, what an answer means, which queues come and go.

Here: pure functions and the state of one queue. Not here: links, tasks and clocks (``consumer``).

Rule 1: the offset that may be committed is that of the first message that is not finished, or else where the next pull
goes on. So a message that was given and not finished is given again after any end of its consumer, a failover or a
change of members: at least once.
Rule 2: a queue is taken back only by the word of its broker (code 21). What was read of it goes then, and is read
again; moved forward, what was read before is still finished first.
Rule 3: a list of members that cannot be right changes nothing. Go's client takes an error for an empty list, and gives
up all its queues.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from enum import StrEnum
from typing import Final

from rollcall_ha.broker.client.messages import Message
from rollcall_ha.broker.protocol.codes import ClientResult
from rollcall_ha.broker.protocol.consumers import MessageQueue
from rollcall_ha.node.remoting.codes import SystemCode

QUEUE_MESSAGES_MAX: Final = 1_000
"""Of one queue, read and not finished."""
EMPTY_PAUSE_MS: Final = 50
BUSY_PAUSE_MS: Final = 20
REFUSED_PAUSE_MS: Final = 1_000
ATTEMPTS_MAX: Final = 16
"""Of a handler at one message, where the broker takes none back."""


class Step(StrEnum):
    """What follows on the answer to a pull."""

    TAKE = "take"
    GO_ON = "go-on"
    """Nothing passed; at the next offset."""
    MOVE = "move"
    """The broker has no such offset (21), and says where the queue goes on."""
    PAUSE = "pause"
    END = "end"
    """It will never be another answer: the consumer ends, and says why."""


def step_of(code: int, *, was_held: bool) -> tuple[Step, int]:
    """The step, and the pause in front of the next pull, ms; ``was_held``: the broker waited before it answered."""
    if code == SystemCode.SUCCESS:
        return Step.TAKE, 0
    if code == ClientResult.PULL_RETRY_IMMEDIATELY:
        return Step.GO_ON, 0
    if code == ClientResult.PULL_NOT_FOUND:
        # A broker that holds no pulls answers at once: without a pause it would be asked a thousand times a second.
        return Step.GO_ON, 0 if was_held else EMPTY_PAUSE_MS
    if code == ClientResult.PULL_OFFSET_MOVED:
        return Step.MOVE, 0
    if code == ClientResult.SUBSCRIPTION_PARSE_FAILED:
        return Step.END, 0
    return Step.PAUSE, BUSY_PAUSE_MS if code == ClientResult.FLOW_CONTROL else REFUSED_PAUSE_MS


def members_of(code: int, told: Sequence[str], own: str) -> list[str] | None:
    """The members of a group as they are sorted; None: this answer says nothing (rule 3)."""
    return sorted(set(told)) if code == SystemCode.SUCCESS and own in told else None


def changes(
    owned: AbstractSet[MessageQueue], wanted: Iterable[MessageQueue]
) -> tuple[set[MessageQueue], set[MessageQueue]]:
    """Queues to stop, and queues to begin with."""
    now = set(wanted)
    return set(owned) - now, now - owned


class QueueProgress:
    """One queue of one consumer, from its first offset on."""

    __slots__ = ("_open", "attempts", "committed", "next_offset", "open_bytes", "ready")

    def __init__(self, next_offset: int, committed: int | None = None) -> None:
        """``committed``: None = nothing yet, so that the first commit tells where the group began."""
        self.next_offset = next_offset
        self.committed = committed
        """As the broker acknowledged it."""
        self.ready: deque[Message] = deque()
        """Read, and not given yet."""
        self.attempts: dict[int, int] = {}
        """Of a handler, by offset, where it failed."""
        self.open_bytes = 0
        self._open: dict[int, int] = {}
        """Sizes of all that is not finished, by rising offset."""

    @property
    def is_full(self) -> bool:
        return len(self._open) >= QUEUE_MESSAGES_MAX

    @property
    def due(self) -> int | None:
        """What is to be committed (rule 1); None: that is known already."""
        offset = next(iter(self._open), self.next_offset)
        return None if offset == self.committed else offset

    def take(self, messages: Iterable[Message], next_offset: int) -> None:
        """An answer, in the order of the queue."""
        for message in messages:
            # An answer of before a move may come behind it; what is here already stays where it is.
            if message.queue_offset not in self._open:
                self._open[message.queue_offset] = message.size_bytes
                self.open_bytes += message.size_bytes
                self.ready.append(message)
        self.next_offset = next_offset

    def give(self, count: int) -> list[Message]:
        """At most so many of those that are ready; they are the caller's, until ``finish`` or ``back``."""
        return [self.ready.popleft() for _ in range(min(count, len(self.ready)))]

    def finish(self, messages: Iterable[Message]) -> None:
        """They need not be given again."""
        for message in messages:
            self.open_bytes -= self._open.pop(message.queue_offset, 0)
            self.attempts.pop(message.queue_offset, None)

    def back(self, messages: Sequence[Message]) -> Message | None:
        """They are ready again, in front; the first one that has been tried ``ATTEMPTS_MAX`` times, None: none has."""
        kept = [message for message in messages if message.queue_offset in self._open]
        self.ready.extendleft(reversed(kept))
        return next((each for each in kept if self.attempts.get(each.queue_offset, 0) >= ATTEMPTS_MAX), None)

    def note_failed(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self.attempts[message.queue_offset] = self.attempts.get(message.queue_offset, 0) + 1

    def move(self, offset: int) -> None:
        """The broker says where the queue goes on (rule 2)."""
        if offset < self.next_offset:
            self.ready.clear()
            self._open.clear()
            self.attempts.clear()
            self.open_bytes = 0
        self.next_offset = offset
