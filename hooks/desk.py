"""
Which delivery is due, and what comes of one: order per hook and set, pauses, giving up.

Here: the queue in memory, without bodies, and the one place that writes outcomes. Not here: sending (``webhook``,
``commands``), the loop (``courier``), files (``store``).

Rule 1: a lane is what one hook is told of one set. Its deliveries are made one after the other: the next one begins
when the outcome of the one before is durable. A lane that fails holds up no other.
Rule 2: at least once: a delivery is forgotten after its receiver has said that it has it, or is kept as a dead letter.
Rule 3: everything is bounded: lanes by ``lane_waiting_max``, the whole by ``waiting_max``, dead letters in number.
Rule 4: no clock and no chance of its own: both are handed in.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.hooks.settings import HookSection, Limits
from rollcall_ha.hooks.store import Change, ChangeKind, Store, Waiting

BACKOFF_DOUBLINGS_MAX = 32


class Outcome(Frozen):
    """What came of one try."""

    is_delivered: bool
    reason: str = ""
    """Why it failed, in at most a few hundred characters."""
    retry_after_ms: int = 0
    """The receiver asked for so long a pause."""


DELIVERED = Outcome(is_delivered=True)


def pause_ms(tries: int, limits: Limits, draw: Callable[[], float]) -> int:
    """
    The pause after ``tries`` failures, at least one: exponential, half of it drawn.

    Without the draw, a thousand sets whose receiver was away would all come back to it in one moment, again and again.
    """
    whole = min(limits.pause_ms_max, limits.first_pause_ms * 2 ** min(tries - 1, BACKOFF_DOUBLINGS_MAX))
    return int(whole * (0.5 + draw() / 2))


class Desk:
    """Deliveries that wait. Of one thread at a time; ``store`` blocks."""

    def __init__(
        self, store: Store, hooks: Sequence[HookSection], limits: Limits, *, draw: Callable[[], float], now_ms: int
    ) -> None:
        """``now_ms``: UTC, as all times here: they are compared with those of before a restart."""
        self._store, self._limits, self._draw = store, limits, draw
        self._at_a_time = {hook.name: hook.at_a_time for hook in hooks}
        self._lanes: dict[tuple[str, str], deque[Waiting]] = {}
        """By hook and set; of each, the first one is out or next."""
        self._due: dict[str, list[tuple[int, int, str]]] = {hook.name: [] for hook in hooks}
        """For each hook the first of its idle lanes: (due, seq, lane)."""
        self._out = dict.fromkeys(self._at_a_time, 0)
        self._known_seq = 0
        self.waiting = dict.fromkeys(self._at_a_time, 0)
        """By hook."""
        self.totals: dict[tuple[str, str], int] = {}
        """(hook, outcome) since the start: delivered, failed, dead."""
        store.give_up_unknown(tuple(self._at_a_time))
        self.look(now_ms)

    @property
    def is_full(self) -> bool:
        """Whether nothing more is to be read."""
        return sum(self.waiting.values()) >= self._limits.waiting_max

    def look(self, now_ms: int) -> int:
        """Take up what was added to the store since the last look, also by ``rollcall hooks retry``; how many."""
        found = self._store.waiting_after(self._known_seq)
        crowded: list[Change] = []
        for one in found:
            self._known_seq = max(self._known_seq, one.seq)
            crowded += self._add(one, now_ms)
        self._write(crowded)
        return len(found)

    def _add(self, one: Waiting, now_ms: int) -> list[Change]:
        lane = self._lanes.setdefault((one.hook, one.lane), deque())
        lane.append(one)
        self.waiting[one.hook] += 1
        if len(lane) == 1:
            heapq.heappush(self._due[one.hook], (one.due_ms, one.seq, one.lane))
        given_up = []
        while len(lane) > self._limits.lane_waiting_max:
            # Not the first one: it may be out, and its place in ``_due`` is taken.
            oldest = lane[1]
            del lane[1]
            self.waiting[one.hook] -= 1
            reason = f"more than {self._limits.lane_waiting_max} waited for this set"
            given_up.append(_dead(oldest, reason, now_ms))
        return given_up

    def take(self, now_ms: int) -> list[Waiting]:
        """What is to be delivered now; each comes back by ``settle``."""
        taken = []
        for hook, due in self._due.items():
            while due and due[0][0] <= now_ms and self._out[hook] < self._at_a_time[hook]:
                _, _, name = heapq.heappop(due)
                lane = self._lanes[hook, name]
                self._out[hook] += 1
                taken.append(lane[0])
        return taken

    def next_due_ms(self) -> int | None:
        """When the next one is due of those that could go out; None: nothing waits for a time."""
        return min(
            (due[0][0] for hook, due in self._due.items() if due and self._out[hook] < self._at_a_time[hook]),
            default=None,
        )

    def settle(self, done: Sequence[tuple[Waiting, Outcome]], now_ms: int) -> None:
        """Durable on return; the lanes go on. Blocks. Raises ``sqlite3.Error``: nothing is settled."""
        changes = [self._change(one, outcome, now_ms) for one, outcome in done]
        # Before the lanes go on (rule 1): the next delivery may begin, and this process be killed; the one before would
        # be delivered again, behind its successor.
        self._write(changes)
        for (one, _), change in zip(done, changes, strict=True):
            lane = self._lanes[one.hook, one.lane]
            self._out[one.hook] -= 1
            if change.kind is ChangeKind.AGAIN:
                lane[0] = replace(one, tries=change.tries, due_ms=change.due_ms)
            else:
                lane.popleft()
                self.waiting[one.hook] -= 1
            if lane:
                first = lane[0]
                heapq.heappush(self._due[one.hook], (first.due_ms, first.seq, one.lane))
            else:
                del self._lanes[one.hook, one.lane]

    def _change(self, one: Waiting, outcome: Outcome, now_ms: int) -> Change:
        if outcome.is_delivered:
            return Change(kind=ChangeKind.DELIVERED, waiting=one, at_ms=now_ms)
        tries, age_ms = one.tries + 1, now_ms - one.born_ms
        if tries >= self._limits.tries_max or age_ms >= self._limits.age_s_max * 1000:
            return _dead(one, outcome.reason, now_ms, tries=tries)
        pause = max(pause_ms(tries, self._limits, self._draw), min(outcome.retry_after_ms, self._limits.pause_ms_max))
        return Change(
            kind=ChangeKind.AGAIN, waiting=one, at_ms=now_ms, tries=tries, due_ms=now_ms + pause, reason=outcome.reason
        )

    def _write(self, changes: Sequence[Change]) -> None:
        if not changes:
            return
        self._store.settle(changes, dead_letters_max=self._limits.dead_letters_max)
        for change in changes:
            key = (change.waiting.hook, change.kind.value)
            self.totals[key] = self.totals.get(key, 0) + 1


def _dead(one: Waiting, reason: str, now_ms: int, *, tries: int | None = None) -> Change:
    return Change(
        kind=ChangeKind.DEAD,
        waiting=one,
        at_ms=now_ms,
        tries=one.tries if tries is None else tries,
        reason=reason,
    )
