"""
Members in one thread, on clocks of their own, with messages carried by the simulation.

Here: the carrier without sockets, the simulated end of the process, and the one module-level name of the library that
must be replaced: its clock. Not here: networks, disks, faults (``tests.support``).
Rule 1: every entry into a member goes through ``SimulatedMember``, which first makes that member's clock the
library's.
Rule 2: chance, exit, disk and background work come through ``Seams`` and ``Disk``; nothing here depends on the hash
seed.

A member with its group::

    with replaced_library_clock():
        member = SimulatedMember(machine, me=..., members=..., disk=..., timing=..., seams=..., send=carry)
        member.start()
        member.peer_up("c2")            # when a link works in both directions
        member.tick()                   # every few milliseconds, and soon after each ``receive`` and ``propose``
        member.receive("c2", message)   # raises ProtocolError: break that link
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NoReturn, TypeVar

from pysyncobj import syncobj as library_module

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.replication.membership import Change, Membership
from rollcall_ha.controller.replication.ports import (
    AppliedEntry,
    Follower,
    HandoverEnd,
    Leadership,
    ProposalOutcome,
    Published,
    StateMachine,
)
from rollcall_ha.controller.replication.raft.disk import Disk
from rollcall_ha.controller.replication.raft.failstop import FailStop
from rollcall_ha.controller.replication.raft.internals import Member
from rollcall_ha.controller.replication.raft.member import RaftMember
from rollcall_ha.controller.replication.raft.messages import Message
from rollcall_ha.controller.replication.raft.repairs import RepairedTransport
from rollcall_ha.controller.replication.raft.seams import Seams

S = TypeVar("S")

Send = Callable[[ControllerName, Message], bool]
"""Carry a message to a peer; False if there is no link."""


class Stopped(BaseException):
    """Raised where the end of the process is simulated. Not an ``Exception``: no handler of ours may swallow it."""

    def __init__(self, code: FailStop, reason: str) -> None:
        super().__init__(f"{code.name}: {reason}")
        self.code = code
        self.reason = reason


def raise_stopped(code: FailStop, reason: str) -> NoReturn:
    """``failstop.FailStopPort`` of the simulations."""
    raise Stopped(code, reason)


class _Poller:
    """For members whose messages come through ``receive``: it never waits."""

    def __init__(self, poll: Callable[[], None]) -> None:
        self._poll = poll

    def poll(self, timeout: float) -> None:
        """Return at once."""
        self._poll()


LIBRARY_AHEAD_NS = 86_400 * 10**9
"""The library reads CLOCK_MONOTONIC_RAW, which no NTP slews: on a machine that runs for weeks both are minutes apart."""


class _LibraryClock:
    """What the library takes for its clock while it is replaced."""

    def __init__(self) -> None:
        self.read_ns: Callable[[], int] = lambda: 0

    def __call__(self) -> float:
        return (self.read_ns() + LIBRARY_AHEAD_NS) / 1e9


_clock = _LibraryClock()


@contextmanager
def replaced_library_clock() -> Iterator[None]:
    """Within: the library reads the clock of the member that runs."""
    real = library_module.monotonicTime
    library_module.monotonicTime = _clock
    try:
        yield
    finally:
        library_module.monotonicTime = real


class SimulatedTransport(RepairedTransport):
    """Carries messages by a function; links are told up and down from outside."""

    def __init__(self, me: Member, peers: Sequence[Member], *, clock_ns: Callable[[], int], send: Send) -> None:
        """``send`` gets the peer's name."""
        super().__init__(me, peers, clock_ns)
        self._send = send

    def transmit(self, peer: Member, message: Message) -> bool:
        """As in the base class."""
        return self._send(peer.name, message)

    def pending_bytes(self, peer: Member) -> int:
        """Nothing ever waits."""
        return 0

    def bind(self, poller: Any) -> None:
        """Nothing to bind."""

    def attend(self) -> None:
        """Nothing to dial."""

    def close(self) -> None:
        """Nothing to close."""


class SimulatedMember(Generic[S]):
    """A ``RaftMember`` without sockets and threads; implements ``ports.ReplicatedLog``."""

    def __init__(
        self,
        machine: StateMachine[S],
        *,
        me: ControllerName,
        members: Mapping[ControllerName, str],
        disk: Disk,
        timing: Timing,
        seams: Seams,
        send: Send,
        poll: Callable[[], None] = lambda: None,
        compaction_floor: Callable[[], int] | None = None,
        compaction_entries: int = 20_000,
        recorded_index: int = 0,
    ) -> None:
        """As ``RaftMember``. ``send`` must not deliver within the call; ``poll`` may."""
        self.name = me
        self._seams = seams
        with self._clock():
            self.raft = RaftMember(
                machine,
                me=me,
                members=members,
                disk=disk,
                carrier=lambda own, peers, _stranger: SimulatedTransport(
                    own, peers, clock_ns=seams.monotonic_ns, send=send
                ),
                poller=_Poller(poll),
                timing=timing,
                seams=seams,
                compaction_floor=compaction_floor,
                compaction_entries=compaction_entries,
                recorded_index=recorded_index,
            )

    @contextmanager
    def _clock(self) -> Iterator[None]:
        before = _clock.read_ns
        _clock.read_ns = self._seams.monotonic_ns
        try:
            yield
        finally:
            _clock.read_ns = before

    @property
    def published(self) -> Published[S]:
        """Newest applied state."""
        return self.raft.published

    @property
    def leadership(self) -> Leadership:
        """Newest known leadership."""
        return self.raft.leadership

    def propose(self, payload: str, done: Callable[[ProposalOutcome], None]) -> None:
        """As ``ports.ReplicatedLog.propose``; tick soon."""
        with self._clock():
            self.raft.propose(payload, done)

    def followers(self) -> tuple[Follower, ...]:
        return self.raft.followers()

    def hand_over(self, target: ControllerName, done: Callable[[HandoverEnd], None]) -> None:
        """As ``ports.ReplicatedLog.hand_over``."""
        with self._clock():
            self.raft.hand_over(target, done)

    @property
    def members(self) -> Membership:
        return self.raft.members

    def change(self, change: Change, done: Callable[[ProposalOutcome], None]) -> None:
        """As ``RaftMember.change``."""
        with self._clock():
            self.raft.change(change, done)

    def exchange_states(self, own: tuple[tuple[int, str], ...]) -> Mapping[ControllerName, Mapping[int, str]]:
        return self.raft.exchange_states(own)

    def subscribe(self, listener: Callable[[AppliedEntry[S]], None]) -> None:
        """As ``ports.ReplicatedLog.subscribe``."""
        self.raft.subscribe(listener)

    def start(self) -> None:
        """Recover. Raises ``RaftStartError``."""
        with self._clock():
            self.raft.start()

    def stop(self) -> None:
        """A clean stop; a crash is simply to be forgotten."""
        with self._clock():
            self.raft.stop()

    def tick(self) -> None:
        """One turn."""
        with self._clock():
            self.raft.tick(0.0)

    def receive(self, sender: ControllerName, message: Message) -> None:
        """One message of a link that is up. Raises ``ProtocolError``: break that link."""
        with self._clock():
            self.raft.receive(sender, message)

    def peer_up(self, peer: ControllerName) -> None:
        """A link to ``peer`` works in both directions."""
        with self._clock():
            self.raft.node.transport.peer_up(self.raft.member_named(peer))

    def peer_down(self, peer: ControllerName) -> None:
        """The link to ``peer`` is gone."""
        with self._clock():
            self.raft.node.transport.peer_down(self.raft.member_named(peer))
