"""
Calls between the programs of two members, as one member keeps them: its own that wait, and those of others.

Here: ids, limits, deadlines, outcomes. Not here: bytes (``messages``), links (``transport``), what is asked
(``api.rest``).

Rule 1: ``ask`` and replies come from any thread and only queue; everything else is for the raft thread.
Rule 2: an outcome is told once. NOT_SENT only if the peer certainly did not take it: an order that is told so is sent
again, elsewhere.
Rule 3: a call belongs to one link. When that ends, it is lost, and a late answer on the next one is dropped.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.ports import (
    CALL_BYTES_MAX,
    CALL_MS_MAX,
    CALLS_MAX,
    Answerer,
    CallOutcome,
    CallStatus,
)
from rollcall_ha.controller.replication.raft.messages import PeerRequest, PeerResponse

T = TypeVar("T")

CallMessage = PeerRequest | PeerResponse
Done = Callable[[CallOutcome], None]

_NOT_SENT = CallOutcome(status=CallStatus.NOT_SENT)
_LOST = CallOutcome(status=CallStatus.LOST)


class _Asked(msgspec.Struct, frozen=True):
    peer: ControllerName
    done: Done
    deadline_ns: int


class Calls:
    """One member's calls to all others, and theirs to it."""

    def __init__(self, clock_ns: Callable[[], int]) -> None:
        """``clock_ns``: monotonic."""
        self._clock_ns = clock_ns
        self._queued: deque[tuple[ControllerName, bytes, Done]] = deque()
        self._replies: deque[tuple[ControllerName, int, PeerResponse]] = deque()
        self._asked: dict[int, _Asked] = {}
        self._open: Counter[ControllerName] = Counter()
        self._links: Counter[ControllerName] = Counter()
        self._newest_id = 0
        self._is_closed = False
        self.answerer: Answerer | None = None
        """Set before the first tick; None: every call is refused."""

    def ask(self, peer: ControllerName, request: bytes, done: Done) -> None:
        """As ``ports.PeerCalls.call``."""
        if self._is_closed or len(request) > CALL_BYTES_MAX or len(self._queued) >= CALLS_MAX:
            done(_NOT_SENT)
        else:
            self._queued.append((peer, request, done))

    # --- the raft thread ---

    def carry(self, transmit: Callable[[ControllerName, CallMessage], bool]) -> None:
        """Once per tick: send what was queued, and give up what has waited too long."""
        for peer, request, done in _taken(self._queued):
            self._send(peer, request, done, transmit)
        for peer, link, response in _taken(self._replies):
            # Rule 3: the answer to a call of the last link has nobody who waits for it.
            if link == self._links[peer]:
                self._open[peer] -= 1
                transmit(peer, response)
        now_ns = self._clock_ns()
        self._lose(lambda asked: asked.deadline_ns <= now_ns)

    def _send(
        self,
        peer: ControllerName,
        request: bytes,
        done: Done,
        transmit: Callable[[ControllerName, CallMessage], bool],
    ) -> None:
        waiting = sum(asked.peer == peer for asked in self._asked.values())
        if waiting >= CALLS_MAX:
            done(_NOT_SENT)
            return
        self._newest_id += 1
        # BEFORE it is sent: a link that breaks under the write ends this call too, as lost.
        self._asked[self._newest_id] = _Asked(peer, done, self._clock_ns() + CALL_MS_MAX * 1_000_000)
        if not transmit(peer, PeerRequest(id=self._newest_id, payload=request)):
            asked = self._asked.pop(self._newest_id, None)
            # Already told lost: bytes of it may have left before the link broke.
            if asked is not None:
                done(_NOT_SENT)

    def take_request(self, peer: ControllerName, request: PeerRequest) -> None:
        """A call of ``peer``."""
        link = self._links[peer]
        # Refused, not left unanswered: the caller would take it for lost, and could not send it elsewhere.
        if self.answerer is None or self._open[peer] >= CALLS_MAX:
            self._open[peer] += 1
            self._replies.append((peer, link, PeerResponse(id=request.id, payload=None)))
            return
        self._open[peer] += 1
        self.answerer(
            peer,
            request.payload,
            lambda response: self._replies.append((peer, link, PeerResponse(id=request.id, payload=response))),
        )

    def take_response(self, peer: ControllerName, response: PeerResponse) -> None:
        """The answer of ``peer``; one that nobody waits for is dropped."""
        asked = self._asked.get(response.id)
        # A member answers for itself only: c2 must not end a call to c3.
        if asked is None or asked.peer != peer:
            return
        del self._asked[response.id]
        if response.payload is None:
            asked.done(_NOT_SENT)
        else:
            asked.done(CallOutcome(status=CallStatus.ANSWERED, response=response.payload))

    def peer_gone(self, peer: ControllerName) -> None:
        """The link to ``peer`` has ended."""
        self._links[peer] += 1
        self._open[peer] = 0
        self._lose(lambda asked: asked.peer == peer)

    def close(self) -> None:
        """This member stops: every caller is told."""
        self._is_closed = True
        for _, _, done in _taken(self._queued):
            done(_NOT_SENT)
        self._lose(lambda _: True)

    def _lose(self, is_over: Callable[[_Asked], bool]) -> None:
        for identity in [identity for identity, asked in self._asked.items() if is_over(asked)]:
            self._asked.pop(identity).done(_LOST)


def _taken(queue: deque[T]) -> Iterator[T]:
    """What is queued now: what other threads add meanwhile has its turn with the next tick."""
    for _ in range(len(queue)):
        yield queue.popleft()
