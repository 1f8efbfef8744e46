"""
Many callers, few entries: operations are gathered into batches that share one Raft entry and its syncs.

Here: ``Proposer``, a step machine without clock, tasks or threads, and the errors that callers see.
Not here: the asyncio shell (``async_proposer``), the log itself (``ports.ReplicatedLog``), the order of items inside
an entry (R25 is kept by apply).
Rule 1: at most ``ENTRIES_IN_FLIGHT_MAX`` entries are in flight; operations that come meanwhile share the next one.
Rule 2: an operation above ``BUFFER_OPERATIONS_MAX`` is refused at once, so that a stall does not grow a queue.
Rule 3: a caller gets exactly one resolution, at its deadline at the latest. An operation that is in the buffer by then
is certainly not executed; the outcome of one in flight is unknown.
Rule 4: an entry whose outcome never comes leaves "in flight" at its own deadline: a lost callback costs no slot.
Rule 5: a barrier takes the next entry, however many operations wait: its place among them means nothing, and a reader
must not wait for a thousand elections.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

import msgspec

from rollcall_ha.controller.contract.ids import ControllerName, RequestId
from rollcall_ha.controller.contract.replies import AnyReply
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.replication.codec import ENTRY_BYTES_MAX, join_operations
from rollcall_ha.controller.replication.ports import ProposalOutcome, ProposalStatus

ENTRIES_IN_FLIGHT_MAX = 2
BUFFER_OPERATIONS_MAX = 20_000
ENTRY_DEADLINE_SLACK_MS = 500
"""The log answers within its propose timeout; beyond that and this slack the answer is taken for lost."""


class ProposeError(Exception):
    """Base of the errors that ``AsyncProposer.submit`` raises; ``OSError`` and the like never come out of it."""


class NotLeader(ProposeError):
    """Certainly not executed: ask ``leader``, or again if that is not known."""

    def __init__(self, reason: str, leader: ControllerName | None = None) -> None:
        """``leader`` None: nobody is known to lead."""
        super().__init__(reason)
        self.leader = leader


class EntryOutcomeUnknown(ProposeError):
    """May be executed now or later: retry with the same request id only (R1)."""

    def __init__(self, request_id: RequestId, reason: str) -> None:
        """The id is the one to retry with."""
        super().__init__(f"outcome of {request_id} is unknown: {reason}; retry with the same request id")
        self.request_id = request_id


class Overloaded(ProposeError):
    """Certainly not executed: too many operations wait already."""


# --- inputs ---


class Submit(Frozen):
    """One encoded operation of one caller; ``ticket`` names the caller in ``Resolve``."""

    ticket: int
    request_id: RequestId
    part: str
    deadline_ns: int
    is_barrier: bool = False


class Flush(Frozen):
    """All callers of this turn have submitted: propose as many entries as may be in flight."""

    now_ns: int


class EntryOutcome(Frozen):
    """The log's answer to one entry."""

    entry: int
    outcome: ProposalOutcome
    now_ns: int


class ProposerTick(Frozen):
    now_ns: int


class Forget(Frozen):
    """The caller has gone; its operation may still be executed."""

    ticket: int


Input = Submit | Flush | EntryOutcome | ProposerTick | Forget


# --- actions ---


class ProposeEntry(Frozen):
    """Hand this entry to the log; its answer comes back as ``EntryOutcome`` with the same ``entry``."""

    entry: int
    payload: str


class Resolve(Frozen):
    ticket: int
    result: AnyReply | ProposeError


Action = ProposeEntry | Resolve


# --- the machine ---


class _Entry(msgspec.Struct):
    submissions: list[Submit]
    deadline_ns: int
    open_tickets: set[int] = msgspec.field(default_factory=set)


class Proposer:
    """See the module. Every method is for one thread."""

    def __init__(self, *, propose_timeout_ms: int, entry_bytes_max: int = ENTRY_BYTES_MAX) -> None:
        """``propose_timeout_ms``: within which the log answers an entry."""
        self._entry_timeout_ns = (propose_timeout_ms + ENTRY_DEADLINE_SLACK_MS) * 1_000_000
        self._entry_bytes_max = entry_bytes_max
        self._buffer: deque[Submit] = deque()
        self._in_flight: dict[int, _Entry] = {}
        self._next_entry = 0

    @property
    def is_idle(self) -> bool:
        return not self._buffer and not self._in_flight

    def handle(self, event: Input) -> list[Action]:
        match event:
            case Submit():
                return self._on_submit(event)
            case Flush(now_ns=now_ns):
                return list(self._fill_slots(now_ns))
            case EntryOutcome():
                return self._on_outcome(event)
            case ProposerTick(now_ns=now_ns):
                return self._on_tick(now_ns)
            case Forget(ticket=ticket):
                self._on_forget(ticket)
                return []

    def _on_submit(self, submit: Submit) -> list[Action]:
        if len(self._buffer) >= BUFFER_OPERATIONS_MAX:
            refusal: ProposeError = Overloaded(
                f"{len(self._buffer)} operations wait already, at most {BUFFER_OPERATIONS_MAX} may"
            )
            return [Resolve(ticket=submit.ticket, result=refusal)]
        # Refused here: at the front of the buffer it would fit no entry, and everything behind it would wait for ever.
        if len(submit.part) + 2 > self._entry_bytes_max:
            refusal = Overloaded(
                f"operation has {len(submit.part)} bytes, at most {self._entry_bytes_max - 2} fit an entry"
            )
            return [Resolve(ticket=submit.ticket, result=refusal)]
        if submit.is_barrier:
            self._buffer.appendleft(submit)
        else:
            self._buffer.append(submit)
        return []

    def _fill_slots(self, now_ns: int) -> Iterator[Action]:
        while self._buffer and len(self._in_flight) < ENTRIES_IN_FLIGHT_MAX:
            submissions = self._take_batch()
            self._next_entry += 1
            self._in_flight[self._next_entry] = _Entry(
                submissions, now_ns + self._entry_timeout_ns, {submit.ticket for submit in submissions}
            )
            yield ProposeEntry(entry=self._next_entry, payload=join_operations(submit.part for submit in submissions))

    def _take_batch(self) -> list[Submit]:
        taken: list[Submit] = []
        size_bytes = 1  # the brackets, less the comma that the first one does not need
        while self._buffer and size_bytes + len(self._buffer[0].part) + 1 <= self._entry_bytes_max:
            submit = self._buffer.popleft()
            size_bytes += len(submit.part) + 1
            taken.append(submit)
        return taken

    def _on_outcome(self, event: EntryOutcome) -> list[Action]:
        entry = self._in_flight.pop(event.entry, None)
        if entry is None:
            return []  # given up at its deadline: its callers have been told that the outcome is unknown
        actions: list[Action] = []
        replies = event.outcome.replies
        # A committed entry with another number of replies was not decoded: the first reply is nobody's then (R1).
        is_answered = event.outcome.status is ProposalStatus.COMMITTED and len(replies) == len(entry.submissions)
        for position, submit in enumerate(entry.submissions):
            if submit.ticket in entry.open_tickets:
                result = replies[position] if is_answered else _error_of(event.outcome, submit)
                actions.append(Resolve(ticket=submit.ticket, result=result))
        actions.extend(self._fill_slots(event.now_ns))
        return actions

    def _on_tick(self, now_ns: int) -> list[Action]:
        actions: list[Action] = []
        if any(submit.deadline_ns <= now_ns for submit in self._buffer):
            waiting, self._buffer = self._buffer, deque()
            for submit in waiting:
                if submit.deadline_ns <= now_ns:
                    # Taken out of the buffer: left there it would run seconds later, when its caller has long asked
                    # again.
                    late = Overloaded(f"{submit.request_id} waited until its deadline; it was never proposed")
                    actions.append(Resolve(ticket=submit.ticket, result=late))
                else:
                    self._buffer.append(submit)
        for number, entry in list(self._in_flight.items()):
            is_over = entry.deadline_ns <= now_ns
            for submit in entry.submissions:
                if submit.ticket in entry.open_tickets and (is_over or submit.deadline_ns <= now_ns):
                    entry.open_tickets.discard(submit.ticket)
                    # Never "failed": the entry may be on two disks already. A caller that took it for failed would
                    # alter the set as if its last alter had never been.
                    unknown = EntryOutcomeUnknown(submit.request_id, "no answer before the deadline")
                    actions.append(Resolve(ticket=submit.ticket, result=unknown))
            if is_over:
                del self._in_flight[number]
        actions.extend(self._fill_slots(now_ns))
        return actions

    def _on_forget(self, ticket: int) -> None:
        # In flight it goes on (its entry is shared), in the buffer it ends: nobody waits for it.
        for entry in self._in_flight.values():
            entry.open_tickets.discard(ticket)
        self._buffer = deque(submit for submit in self._buffer if submit.ticket != ticket)


def _error_of(outcome: ProposalOutcome, submit: Submit) -> ProposeError:
    # Only the log's own "not proposed" is certain. All else may be executed: the caller keeps its request id.
    if outcome.status is ProposalStatus.NOT_PROPOSED:
        return NotLeader(outcome.reason or "this controller does not lead")
    return EntryOutcomeUnknown(submit.request_id, outcome.reason or "the entry was committed without an answer to it")
