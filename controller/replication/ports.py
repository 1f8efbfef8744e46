"""
The port of the control plane to a replicated log.

Implemented by ``raft`` (PySyncObj, repaired), and for tests by ``tests/support/memory_log.py`` in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from typing import Generic, Protocol, TypeVar

from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.replies import AnyReply
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.core.apply import Applied
from rollcall_ha.controller.replication.membership import Change, Membership

S = TypeVar("S")

CALL_BYTES_MAX = 4 * 1024 * 1024
"""A page of events is the largest answer that is carried."""
CALL_MS_MAX = 2_000
CALLS_MAX = 64
"""That wait for one peer, and that one peer may have open here."""


class UnsoundStateError(ValueError):
    """A state breaks an invariant. It was read as it was written, and must not be served from all the same."""


class StateMachine(Protocol[S]):
    """The deterministic part: equal payloads in equal order give equal states and replies on every node (C8)."""

    def initial(self) -> S:
        """State before the first entry."""
        ...

    def feature_level(self, state: S) -> int:
        """In force: no controller is older."""
        ...

    def apply(self, state: S, payload: str, *, term: int, index: int) -> Applied[S]:
        """Apply one entry. Total: never raises; bytes that cannot be decoded are a reason to stop (R15)."""
        ...

    def encode(self, state: S) -> Iterator[bytes]:
        """
        Snapshot of ``state`` as items of at most some 64 KiB, so that a thread may write it without holding the GIL
        long.
        """
        ...

    def decode(self, items: Iterable[bytes]) -> S:
        """
        Inverse of ``encode``. Raises ``ValueError`` with the reason if the snapshot is damaged or above the feature
        level, ``UnsoundStateError`` if the state in it breaks an invariant.
        """
        ...


class Published(Frozen, Generic[S]):
    """The newest applied state. Replaced by one assignment: readers take the reference and never a lock."""

    state: S
    term: int
    index: int


class AppliedEntry(Frozen, Generic[S]):
    """An applied entry as a listener hears it, in order, on the log's own thread; after a restart again."""

    term: int
    index: int
    state: S
    replies: tuple[AnyReply, ...]
    records: tuple[EventRecord, ...]
    is_snapshot: bool = False
    """A snapshot was installed: entries up to ``index`` were never seen here."""


class RaftRole(StrEnum):
    LEADER = "leader"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"


class Leadership(Frozen):
    """Replaced by one assignment whenever something in it changes."""

    role: RaftRole
    term: int
    leader: ControllerName | None
    commit_index: int
    majority_asked_at_ns: int | None
    """
    Monotonic time at which the leader sent the newest append that a majority, itself included, answered in its own
    term (R5).
    """
    followed_until_ns: int = 0
    """Until then a majority votes for nobody else, as it has pledged; of a leader, by its clock (R5)."""
    late_ms: int = 0
    """By which two turns of this member in a row were late within the last seconds; 0: none."""


class ProposalStatus(StrEnum):
    COMMITTED = "committed"
    NOT_PROPOSED = "not-proposed"
    """Certainly not executed: safe to retry."""
    UNKNOWN = "unknown"
    """May be executed now or later: only the same request id may be retried."""


class ProposalOutcome(Frozen):
    """The outcome of one entry; ``replies`` only if committed, one per operation."""

    status: ProposalStatus
    replies: tuple[AnyReply, ...] = ()
    term: int = 0
    index: int = 0
    reason: str = ""


class CallStatus(StrEnum):
    ANSWERED = "answered"
    NOT_SENT = "not-sent"
    """Certainly not taken by the peer: there is no link to it, or too many calls wait."""
    LOST = "lost"
    """The peer may have taken it, now or later: the link ended, or no answer came in time."""


class CallOutcome(Frozen):
    """The outcome of one call; ``response`` only if it was answered."""

    status: CallStatus
    response: bytes = b""


class Follower(Frozen):
    """Another member, as the leader sees it."""

    name: ControllerName
    is_linked: bool
    answer_age_ms: int | None
    """Since the leader sent what it answered last in this term, as a voter; None: nothing yet."""
    lag_entries: int
    """Entries of the leader's log that it has not acknowledged."""
    is_voter: bool = True
    """False: it is being added, and counts for nothing yet."""
    is_earlier: bool = False
    """It has told that it comes half as late as the leader, at most."""


class RefusedPeer(Frozen):
    """A process that asked for a link to this member, or was dialled as one, and was refused one."""

    name: str
    """By its dialled address, or by its certificate; empty: TLS has refused it before that was read."""
    host: str
    code: str
    reason: str
    at_ns: int
    """When it was refused last, on this process's monotonic clock."""


class HandoverEnd(StrEnum):
    DEPOSED = "deposed"
    """Another member stood: this one leads no more."""
    STOOD_DOWN = "stood-down"
    """The follower was asked and not heard as a candidate: this one leads no more, and somebody is elected."""
    NOT_CAUGHT_UP = "not-caught-up"
    """The follower did not have every entry in time, or is gone; it was not asked, and this one leads on."""


Reply = Callable[[bytes], None]
"""Any thread, at most once."""
Answerer = Callable[[ControllerName, bytes, Reply], None]
"""(caller, request, reply), on the log's thread: it must be short and must not raise."""


class PeerCalls(Protocol):
    """Calls between the programs of members, over the links of the group: whoever calls has proved its name."""

    def call(self, peer: ControllerName, request: bytes, done: Callable[[CallOutcome], None]) -> None:
        """
        Ask ``peer``. Any thread, never blocks; ``request`` and the answer have at most ``CALL_BYTES_MAX`` bytes.

        ``done`` is called exactly once, on any thread, within ``CALL_MS_MAX``.
        """
        ...

    def answer_calls(self, answerer: Answerer) -> None:
        """Before ``start``: take the calls of the other members."""
        ...


class ReplicatedLog(Protocol[S]):
    """A Raft group as one of its members sees it."""

    @property
    def published(self) -> Published[S]:
        """Newest applied state; any thread."""
        ...

    @property
    def leadership(self) -> Leadership:
        """Newest known leadership; any thread."""
        ...

    def propose(self, payload: str, done: Callable[[ProposalOutcome], None]) -> None:
        """
        Append an entry if this node leads. Any thread, never blocks.

        ``done`` is called exactly once, on any thread, within the configured ``propose_timeout_ms``.
        """
        ...

    def exchange_states(self, own: tuple[tuple[int, str], ...]) -> Mapping[ControllerName, Mapping[int, str]]:
        """
        Tell the other members the state digests of our newest entries, (index, digest); any thread, never blocks.

        Returns what each of them has told last, by index; nothing of one that has not told yet.
        """
        ...

    def followers(self) -> tuple[Follower, ...]:
        """The other members, as a leader sees them; empty on one that does not lead. Any thread."""
        ...

    @property
    def members(self) -> Membership:
        """In force by this member's log, committed or not; any thread."""
        ...

    def change(self, change: Change, done: Callable[[ProposalOutcome], None]) -> None:
        """
        Append other members, if this one leads and a change may be taken (adr/0020); NOT_PROPOSED says why not.

        Any thread, never blocks; ``done`` as in ``propose``.
        """
        ...

    def hand_over(self, target: ControllerName, done: Callable[[HandoverEnd], None]) -> None:
        """
        End the own lead in favour of ``target``, which is asked to stand when it has every entry.

        Any thread, never blocks; ``done`` is called once, on any thread, within a second, or later if this
        one comes late.
        """
        ...

    def subscribe(self, listener: Callable[[AppliedEntry[S]], None]) -> None:
        """
        Before ``start``: hear every applied entry, on the log's thread. A listener must be short and must not raise.
        """
        ...

    def start(self) -> None:
        """Recover, then take part. Raises if the directory is not safe to start from; the message says what to do."""
        ...

    def stop(self) -> None:
        """Leave; returns when everything buffered is durable and the thread has ended."""
        ...
