"""
A replicated log in one process: deterministic, without threads, sockets or files.

Here: ``MemoryGroup``, whose members agree by construction, for unit tests and early simulation.
Not here: disagreement, loss and disks (that is what ``raft`` under the simulation is for).
Rule: nothing is applied before ``pump``, unless the group is made with ``applies_at_once``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.codec import ENTRY_BYTES_MAX
from rollcall_ha.controller.replication.membership import Change, ChangeRefused, Membership, founded
from rollcall_ha.controller.replication.ports import (
    Answerer,
    AppliedEntry,
    CallOutcome,
    CallStatus,
    Follower,
    HandoverEnd,
    Leadership,
    ProposalOutcome,
    ProposalStatus,
    Published,
    RaftRole,
    StateMachine,
)

S = TypeVar("S")
Done = Callable[[ProposalOutcome], None]


class MemoryLog(Generic[S]):
    """One member of a ``MemoryGroup``; implements ``ports.ReplicatedLog`` and ``ports.PeerCalls``."""

    def __init__(self, group: MemoryGroup[S], name: ControllerName, machine: StateMachine[S]) -> None:
        """Made by the group."""
        self.name = name
        self._group = group
        self._machine = machine
        self._listeners: list[Callable[[AppliedEntry[S]], None]] = []
        self._published: Published[S] = Published(state=machine.initial(), term=0, index=0)
        self.stop_reason: str | None = None
        """Set once apply asked this node to stop (R15); it applies nothing more."""
        self.is_running = False
        self.answerer: Answerer | None = None
        self.told: Mapping[int, str] = {}

    @property
    def published(self) -> Published[S]:
        """Newest applied state."""
        return self._published

    @property
    def leadership(self) -> Leadership:
        """Computed on each call from the group."""
        return self._group.leadership_of(self.name)

    def propose(self, payload: str, done: Done) -> None:
        """
        Queue an entry; ``done`` comes with the next ``pump`` of the group, or at once if it certainly is not
        proposed.
        """
        self._group.queue(self.name, payload, done)

    def exchange_states(self, own: tuple[tuple[int, str], ...]) -> Mapping[ControllerName, Mapping[int, str]]:
        """At once: the members of a group are one process."""
        self.told = dict(own)
        others = self._group.members.items()
        return {name: member.told for name, member in others if name != self.name and member.told}

    def followers(self) -> tuple[Follower, ...]:
        """Those that run have everything."""
        if self.leadership.role is not RaftRole.LEADER:
            return ()
        return tuple(
            Follower(name=name, is_linked=other.is_running, answer_age_ms=0, lag_entries=0)
            for name, other in self._group.members.items()
            if name != self.name
        )

    @property
    def members(self) -> Membership:
        return self._group.membership

    def change(self, change: Change, done: Done) -> None:
        """At once, and by the leader alone; new members have nobody behind them."""
        if self.leadership.role is not RaftRole.LEADER:
            done(ProposalOutcome(status=ProposalStatus.NOT_PROPOSED, reason=f"{self.name} does not lead"))
            return
        try:
            self._group.membership = change(self._group.membership)
        except ChangeRefused as error:
            done(ProposalOutcome(status=ProposalStatus.NOT_PROPOSED, reason=str(error)))
            return
        done(ProposalOutcome(status=ProposalStatus.COMMITTED))

    def hand_over(self, target: ControllerName, done: Callable[[HandoverEnd], None]) -> None:
        """At once."""
        if not self._group.members[target].is_running:
            done(HandoverEnd.NOT_CAUGHT_UP)
            return
        self._group.elect(target)
        done(HandoverEnd.DEPOSED)

    def call(self, peer: ControllerName, request: bytes, done: Callable[[CallOutcome], None]) -> None:
        """At once, while both run: as over a link that never breaks in between."""
        target = self._group.members.get(peer)
        if target is None or not (self.is_running and target.is_running) or target.answerer is None:
            done(CallOutcome(status=CallStatus.NOT_SENT))
        else:
            target.answerer(
                self.name, request, lambda answer: done(CallOutcome(status=CallStatus.ANSWERED, response=answer))
            )

    def answer_calls(self, answerer: Answerer) -> None:
        """Take the calls of the other members."""
        self.answerer = answerer

    def subscribe(self, listener: Callable[[AppliedEntry[S]], None]) -> None:
        """Hear what this member applies from now on."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Take part; applies what the group has committed meanwhile."""
        self.is_running = True
        self._group.catch_up(self)

    def stop(self) -> None:
        """Leave; may be started again and then catches up."""
        self.is_running = False

    def apply(self, payload: str, term: int, index: int) -> ProposalOutcome:
        """Apply one committed entry; called by the group in order."""
        applied = self._machine.apply(self._published.state, payload, term=term, index=index)
        if applied.stop_reason is not None:
            self.stop_reason = applied.stop_reason
            self.is_running = False
            return ProposalOutcome(status=ProposalStatus.UNKNOWN, reason=applied.stop_reason)
        self._published = Published(state=applied.state, term=term, index=index)
        entry = AppliedEntry(
            term=term, index=index, state=applied.state, replies=applied.replies, records=applied.records
        )
        for listener in self._listeners:
            listener(entry)
        return ProposalOutcome(status=ProposalStatus.COMMITTED, replies=applied.replies, term=term, index=index)


class MemoryGroup(Generic[S]):
    """All members of one fleet's control plane. Nobody leads until ``elect``."""

    def __init__(
        self,
        machines: Callable[[], StateMachine[S]],
        names: Iterable[ControllerName] = (ControllerName("c1"),),
        *,
        clock_ns: Callable[[], int] = lambda: 0,
        applies_at_once: bool = False,
    ) -> None:
        """``machines`` makes one state machine per member; ``clock_ns`` is what a leader's authority counts from."""
        self._clock_ns = clock_ns
        self._applies_at_once = applies_at_once
        self._term = 0
        self._leader: ControllerName | None = None
        self._cut_off_at_ns: int | None = None
        self._committed: list[tuple[str, int]] = []
        self._waiting: deque[tuple[str, Done]] = deque()
        self._is_pumping = False
        self.membership = founded({name: f"{name}:raft" for name in names})
        self.members = {name: MemoryLog(self, name, machines()) for name in names}

    def elect(self, leader: ControllerName | None) -> int:
        """Begin a new term under ``leader`` (None: nobody); what waits gets UNKNOWN and is lost. Returns the term."""
        self._term += 1
        self._leader = leader
        self._cut_off_at_ns = None
        lost, self._waiting = self._waiting, deque()
        for _, done in lost:
            done(ProposalOutcome(status=ProposalStatus.UNKNOWN, reason=f"term {self._term} began"))
        return self._term

    def cut_off_leader(self) -> None:
        """No majority answers the leader any more: its authority ages, nothing commits until the next ``elect``."""
        self._cut_off_at_ns = self._clock_ns()

    def rejoin_leader(self) -> None:
        """A majority answers it again, in the same term."""
        self._cut_off_at_ns = None
        self.pump()

    def pump(self) -> int:
        """Commit and apply everything that waits, what that proposes included; returns how many entries."""
        count = 0
        if self._is_pumping or self._cut_off_at_ns is not None:
            return count
        self._is_pumping = True
        try:
            while self._waiting:
                payload, done = self._waiting.popleft()
                done(self._commit(payload))
                count += 1
        finally:
            self._is_pumping = False
        return count

    def leadership_of(self, name: ControllerName) -> Leadership:
        """What this member knows about who leads."""
        leads = name == self._leader
        asked_at_ns = self._clock_ns() if self._cut_off_at_ns is None else self._cut_off_at_ns
        return Leadership(
            role=RaftRole.LEADER if leads else RaftRole.FOLLOWER,
            term=self._term,
            leader=self._leader,
            commit_index=len(self._committed),
            majority_asked_at_ns=asked_at_ns if leads else None,
        )

    def queue(self, name: ControllerName, payload: str, done: Done) -> None:
        """Take a proposal of a member."""
        if name != self._leader or not self.members[name].is_running:
            done(
                ProposalOutcome(status=ProposalStatus.NOT_PROPOSED, reason=f"{name} does not lead; {self._leader} does")
            )
        elif len(payload) > ENTRY_BYTES_MAX:
            reason = f"entry has {len(payload)} bytes, at most {ENTRY_BYTES_MAX} are allowed"
            done(ProposalOutcome(status=ProposalStatus.NOT_PROPOSED, reason=reason))
        else:
            self._waiting.append((payload, done))
            if self._applies_at_once:
                self.pump()

    def catch_up(self, member: MemoryLog[S]) -> None:
        """Apply what ``member`` has missed."""
        for index in range(member.published.index + 1, len(self._committed) + 1):
            if not member.is_running:
                return
            payload, term = self._committed[index - 1]
            member.apply(payload, term, index)

    def _commit(self, payload: str) -> ProposalOutcome:
        self._committed.append((payload, self._term))
        index = len(self._committed)
        outcome = ProposalOutcome(status=ProposalStatus.UNKNOWN, reason="the leader has stopped")
        for name, member in self.members.items():
            if member.is_running:
                own = member.apply(payload, self._term, index)
                if name == self._leader:
                    outcome = own
        return outcome
