"""
One member of the group, from recovery to stop, without a thread: ``log`` drives it with one, the simulation with a
virtual clock.

Here: refusing an unsafe start, the values for other threads, the port ``ReplicatedLog``. Not here: the protocol
(``node``, ``repairs``).
Rule 1: a member with an empty directory may vote only if ``rollcall init`` left ``FOUNDING`` in it. The mark is used
up when the journal exists durably. Without the mark the member catches up first (``catch_up``), over restarts.
Rule 2: journal and snapshot must overlap: a gap between them means that something acknowledged is gone.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.timing import NS_PER_MS, Timing
from rollcall_ha.controller.replication.membership import (
    MEMBERS_MAX,
    Change,
    Membership,
    Seat,
    decode,
    encode,
    founded,
)
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
from rollcall_ha.controller.replication.raft import config
from rollcall_ha.controller.replication.raft.catch_up import CATCHING_UP_FILE_NAME, CatchUp
from rollcall_ha.controller.replication.raft.disk import Disk
from rollcall_ha.controller.replication.raft.failstop import FailStop
from rollcall_ha.controller.replication.raft.internals import Member, require_known_release
from rollcall_ha.controller.replication.raft.journal import JOURNAL_FILE_NAME, DurableJournal, JournalDamagedError
from rollcall_ha.controller.replication.raft.messages import Message
from rollcall_ha.controller.replication.raft.node import RaftNode
from rollcall_ha.controller.replication.raft.repairs import RepairedTransport
from rollcall_ha.controller.replication.raft.seams import Seams
from rollcall_ha.controller.replication.raft.snapshot import Snapshot, SnapshotDamagedError, SnapshotStore

S = TypeVar("S")

MEMBERS_FILE_NAME = "MEMBERS"
"""The members of the founding, as a command (``membership``): by the fleet file of today, two members would differ."""
FOUNDING_FILE_NAME = "FOUNDING"
"""Written into each controller's raft directory by ``rollcall init``, and by nothing else (rule 1)."""

PLEDGED_FILE_NAME = "PLEDGED"
"""Here while pledges of more than the shortest election timeout may hold: the next process is bound by them."""

STRANGERS_MAX = 64
"""Names of controllers that are no members and were linked, for the life of this process."""

_logger = logging.getLogger(__name__)


class RaftStartError(RuntimeError):
    """This node must not start; the message says why and what to do."""


class RaftAddressInUse(RaftStartError):
    """Somebody listens on its address already: nothing is wrong with the directory."""


class Poller(Protocol):
    def poll(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds and handle what came."""
        ...


Carrier = Callable[[Member, Sequence[Member], Callable[[str], Member | None]], RepairedTransport]
"""Makes the transport of a member: (me, peers, the member for any other name)."""


def members_of(members: Mapping[ControllerName, str]) -> dict[ControllerName, Member]:
    """Members with their ordinals: equal mappings give equal members everywhere."""
    return {name: Member(name, ordinal, members[name]) for ordinal, name in enumerate(sorted(members))}


class RaftMember(Generic[S]):
    """Implements ``ports.ReplicatedLog``; ``start``, ``tick``, ``receive`` and ``stop`` are for one thread."""

    def __init__(
        self,
        machine: StateMachine[S],
        *,
        me: ControllerName,
        members: Mapping[ControllerName, str],
        disk: Disk,
        carrier: Carrier,
        poller: Poller,
        timing: Timing,
        seams: Seams,
        compaction_floor: Callable[[], int] | None = None,
        compaction_entries: int = 20_000,
        recorded_index: int = 0,
    ) -> None:
        """
        Nothing is read or opened before ``start``. Raises ``RaftStartError`` if ``me`` is no member.

        ``recorded_index``: the newest entry of which something else on this disk knows that it was applied here.
        """
        require_known_release()
        # One more than a group may have: the eighth takes the place of one of seven.
        if me not in members or len(members) > MEMBERS_MAX + 1:
            known = ", ".join(sorted(members))
            raise RaftStartError(f"{me!r} must be one of at most {MEMBERS_MAX + 1} members; configured are: {known}")
        self._machine = machine
        self._members = members_of(members)
        self._by_file = frozenset(members)
        self._founders = founded(members)
        self._me = self._members[me]
        self._disk = disk
        self._carrier = carrier
        self._poller = poller
        self._timing = timing
        self._seams = seams
        self._floor = compaction_floor
        self._compaction_entries = compaction_entries
        self._recorded_index = recorded_index
        self._listeners: list[Callable[[AppliedEntry[S]], None]] = []
        self._answerer: Answerer | None = None
        self._node: RaftNode[S] | None = None
        self._initial: Published[S] = Published(state=machine.initial(), term=0, index=0)
        self._leadership = Leadership(
            role=RaftRole.FOLLOWER, term=0, leader=None, commit_index=0, majority_asked_at_ns=None
        )
        self.ticked_at_ns = seams.monotonic_ns()
        """When the newest tick ended, for a watchdog; any thread."""

    # --- the port ---

    @property
    def published(self) -> Published[S]:
        node = self._node
        return node.published if node is not None else self._initial

    @property
    def leadership(self) -> Leadership:
        return self._leadership

    @property
    def is_voter(self) -> bool:
        """False while this member, having lost its memory, catches up."""
        return self._node is not None and self._node.catch_up is None

    @property
    def node(self) -> RaftNode[S]:
        """Only after ``start``."""
        assert self._node is not None
        return self._node

    def propose(self, payload: str, done: Callable[[ProposalOutcome], None]) -> None:
        """As ``ports.ReplicatedLog.propose``; the next tick takes it."""
        node = self._node
        if node is None:
            done(ProposalOutcome(status=ProposalStatus.NOT_PROPOSED, reason="this controller has not started"))
        elif self._leadership.role is not RaftRole.LEADER:
            reason = f"this controller does not lead; {self._leadership.leader or 'nobody'} does"
            done(ProposalOutcome(status=ProposalStatus.NOT_PROPOSED, reason=reason))
        else:
            node.propose(payload, done)

    def exchange_states(self, own: tuple[tuple[int, str], ...]) -> Mapping[ControllerName, Mapping[int, str]]:
        """As ``ports.ReplicatedLog.exchange_states``; the next tick sends."""
        node = self._node
        if node is None:
            return {}
        node.digests_due = own
        return dict(node.transport.digests_told)

    def followers(self) -> tuple[Follower, ...]:
        """As ``ports.ReplicatedLog.followers``."""
        node = self._node
        if node is None or self._leadership.role is not RaftRole.LEADER:
            return ()
        now_ns, last_index = self._seams.monotonic_ns(), node.journal.last_index
        return tuple(_follower(node, peer, now_ns, last_index) for peer in node.transport.peers)

    def hand_over(self, target: ControllerName, done: Callable[[HandoverEnd], None]) -> None:
        """As ``ports.ReplicatedLog.hand_over``; the next ticks do it."""
        node = self._node
        if node is None:
            done(HandoverEnd.NOT_CAUGHT_UP)
        else:
            node.hand_over(target, done)

    def call(self, peer: ControllerName, request: bytes, done: Callable[[CallOutcome], None]) -> None:
        """As ``ports.PeerCalls.call``; the next tick sends."""
        node = self._node
        if node is None:
            done(CallOutcome(status=CallStatus.NOT_SENT))
        else:
            node.transport.calls.ask(peer, request, done)

    def answer_calls(self, answerer: Answerer) -> None:
        """As ``ports.PeerCalls.answer_calls``."""
        assert self._node is None, "answer_calls before start"
        self._answerer = answerer

    def subscribe(self, listener: Callable[[AppliedEntry[S]], None]) -> None:
        assert self._node is None, "subscribe before start"
        self._listeners.append(listener)

    # --- life ---

    def start(self) -> None:
        """Recover and listen. Raises ``RaftStartError``."""
        try:
            journal, store, snapshot, catch_up = self._recover()
        except (JournalDamagedError, SnapshotDamagedError) as error:
            raise RaftStartError(f"{self._me.name}: {error}") from error
        except OSError as error:
            raise RaftStartError(f"{self._me.name}: raft directory cannot be used: {error}") from error
        peers = [member for member in self._members.values() if member is not self._me]
        transport = self._carrier(self._me, peers, self.stranger_named)
        try:
            node = RaftNode(
                self._machine,
                me=self._me,
                peers=peers,
                configuration=config.library_configuration(self._timing, compaction_entries=self._compaction_entries),
                transport=transport,
                journal=journal,
                store=store,
                snapshot=snapshot,
                catch_up=catch_up,
                member_of=self._member_of,
                on_caught_up=self._on_caught_up,
                has_pledged=self._disk.exists(PLEDGED_FILE_NAME),
                on_pledge=self._on_pledge,
                seams=self._seams,
                propose_timeout_ms=self._timing.propose_timeout_ms,
            )
            node.internals.adopt_poller(self._poller)
            transport.bind(self._poller)
        except ValueError as error:
            raise RaftStartError(f"{self._me.name}: snapshot cannot be used: {error}") from error
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise RaftAddressInUse(
                    f"controllers.{self._me.name}.raft is {self._me.address}: its port is in use; end the process "
                    "that listens there, or give this controller another one in every fleet file"
                ) from error
            raise RaftStartError(f"{self._me.name}: cannot listen on {self._me.address}: {error}") from error
        node.listeners = self._listeners
        transport.calls.answerer = self._answerer
        transport.before_vote = self._look
        node.addOnTickCallback(self._settle)
        self._node = node
        self._look()

    def tick(self, timeout_s: float) -> None:
        """One turn; waits at most ``timeout_s`` for the network."""
        node = self.node
        node.tick(timeout_s)
        self._look()
        self.ticked_at_ns = self._seams.monotonic_ns()

    @property
    def members(self) -> Membership:
        """In force by the own log; those of the founding before ``start``. Any thread."""
        node = self._node
        return self._founders if node is None else node.members

    def member_named(self, name: ControllerName) -> Member:
        """The one value that stands for it here; of a stranger, too."""
        return self._members.get(name) or self._member_of(Seat(name=name, raft=""))

    def stranger_named(self, name: str) -> Member | None:
        """The same for a name that was told on a link; None: more of them than a fleet can have."""
        # Without TLS any process of this machine may tell a new name with each link.
        if name not in self._members and len(self._members) >= len(self._by_file) + STRANGERS_MAX:
            return None
        return self.member_named(ControllerName(name))

    def _member_of(self, seat: Seat) -> Member:
        name = ControllerName(seat.name)
        if name not in self._members:
            # Never the ordinal of another one: the library's sets are in the order of ordinals.
            self._members[name] = Member(name, len(self._members), seat.raft)
        # Rule 1 of ``runtime.seating``: what an operator wrote into the file wins. Of others the newest word counts: c4
        # was taken out, and is added again on another machine.
        elif name not in self._by_file and seat.raft:
            self._members[name].address = seat.raft
        return self._members[name]

    def change(self, change: Change, done: Callable[[ProposalOutcome], None]) -> None:
        """Have the members changed, if this one leads and may (adr/0020); ``change`` raises ``ChangeRefused``."""
        if self._node is None:
            done(ProposalOutcome(status=ProposalStatus.NOT_PROPOSED, reason="this controller has not started"))
        else:
            self._node.change(change, done)

    def receive(self, sender: ControllerName, message: Message) -> None:
        """For carriers without a poller (simulation): one message, and the answers to it. Raises ``ProtocolError``."""
        node = self.node
        node.transport.deliver(self.member_named(sender), message)
        node.transport.flush_answers()
        self._look()

    def stop(self) -> None:
        """Give up links and waiters; buffered records are durable on return."""
        node, self._node = self._node, None
        if node is not None:
            self._initial = node.published
            node.refuse_proposals()
            node.transport.calls.close()
            node.transport.close()
            node.journal.sync()
            self._leadership = Leadership(
                role=RaftRole.FOLLOWER,
                term=self._leadership.term,
                leader=None,
                commit_index=self._leadership.commit_index,
                majority_asked_at_ns=None,
            )

    def _settle(self) -> None:
        # Between the library's work and its wait: others hear of a lost leadership now, not up to a tick later.
        self.node.settle()
        self._look()

    def _look(self) -> None:
        """Publish the leadership as other threads may see it, by one assignment."""
        node = self.node
        internals = node.internals
        leader = internals.leader
        # The link to a leader ends with its process. Named until the next election, it would be dialled by each broker
        # that asks, for 600 ms, and their pauses would be the longest when its successor has been elected.
        if leader is not None and leader != self._me and not internals.is_connected(leader):
            leader = None
        seen = Leadership(
            role=internals.role,
            term=internals.term,
            leader=leader.name if leader is not None else None,
            commit_index=internals.commit_index,
            # R5, rule 3 of ``handover``: the successor is elected while this one's followers have heard of it just now.
            majority_asked_at_ns=None if node.yields else node.transport.majority_asked_at_ns(),
            followed_until_ns=0 if node.yields else node.transport.followed_until_ns(),
            late_ms=node.patience.late_ns // NS_PER_MS,
        )
        if seen != self._leadership:
            self._leadership = seen

    # --- recovery ---

    def _recover(self) -> tuple[DurableJournal, SnapshotStore, Snapshot | None, CatchUp | None]:
        disk, name = self._disk, self._me.name
        is_founder = disk.exists(FOUNDING_FILE_NAME)
        has_memory = disk.exists(JOURNAL_FILE_NAME) and not disk.exists(CATCHING_UP_FILE_NAME)
        # It would wait for a leader that tells it what it forgot, for ever: there is nobody else.
        if len(self._by_file) == 1 and not is_founder and not has_memory:
            raise JournalDamagedError(
                "the journal is gone, and by its fleet file this fleet has no other controller that knows what was in "
                "it. If controllers were added, write their sections into this file, and start again: it is filled "
                "from them. Else restore a backup (rollcall restore), or found the fleet anew (rollcall init)"
            )
        # Rule 1. The mark BEFORE the journal: killed in between, the next start would find a journal with no vote in
        # it, and take a member that has forgotten its vote for one that never voted.
        if not disk.exists(JOURNAL_FILE_NAME) and not is_founder and not disk.exists(CATCHING_UP_FILE_NAME):
            disk.replace(CATCHING_UP_FILE_NAME, b"")
        store = SnapshotStore(
            disk, self._seams.fail_stop, run_beside=self._seams.run_beside, floor=self._compaction_floor
        )
        snapshot = store.load()
        journal = DurableJournal(disk, self._seams.fail_stop)
        # AFTER the journal is durable: killed in between, a founder would come back without its right to vote, and
        # three of them would wait for each other for ever. Not later: a disk that is lost next year must not find the
        # right again.
        if is_founder:
            disk.unlink(FOUNDING_FILE_NAME)
        if journal.torn_bytes:
            _logger.warning("%s: dropped %d bytes of a write that was never completed", name, journal.torn_bytes)
        self._align(journal, snapshot)
        self._settle_members(journal, snapshot)
        self._compare_with_record(journal)
        if not disk.exists(CATCHING_UP_FILE_NAME):
            return journal, store, snapshot, None
        _logger.warning(
            "%s has no memory of this fleet: it neither votes nor counts until it has caught up with a leader that a "
            "majority of the others follows",
            name,
        )
        return journal, store, snapshot, CatchUp()

    def _settle_members(self, journal: DurableJournal, snapshot: Snapshot | None) -> None:
        """Members of the founding, or of the snapshot; those of entries behind it are in the journal."""
        if not self._disk.exists(MEMBERS_FILE_NAME):
            self._disk.replace(MEMBERS_FILE_NAME, encode(self._founders))
        index, command = 0, self._disk.read(MEMBERS_FILE_NAME)
        if snapshot is not None and snapshot.members:
            index, command = snapshot.last[1], snapshot.members
        journal.set_base(index, command)

    def _align(self, journal: DurableJournal, snapshot: Snapshot | None) -> None:
        """Refuse a gap between snapshot and journal, and cut the entries that both have (rule 2)."""
        remedy = "move this raft directory away and start again: it is filled from the others"
        # Stock PySyncObj throws such a journal away and starts with the older snapshot: acknowledged entries are gone,
        # and the member votes without them.
        covered = snapshot.last[1] if snapshot is not None else 1
        if journal.first_index > covered or (snapshot is None and journal.first_index != 1):
            raise JournalDamagedError(
                f"the journal begins at entry {journal.first_index}, but the snapshot ends at {covered}; {remedy}"
            )
        if snapshot is not None:
            journal.install(snapshot.previous, snapshot.last)

    def _compare_with_record(self, journal: DurableJournal) -> None:
        if journal.last_index >= self._recorded_index:
            return
        what = (
            f"the journal ends at entry {journal.last_index}, the record of events beside it knows entry "
            f"{self._recorded_index}: committed entries are gone"
        )
        # Alone, an entry is applied when it is synced here and never before: this disk has lost it. Led from what is
        # left, the fleet would issue epochs a second time, and nobody would have been told.
        if len(decode(journal.configuration[1]).voters) == 1:
            raise JournalDamagedError(
                f"{what}; restore the data directory, as a whole, from a backup; to go on with what is left, move its "
                "events directory away: brokers then tell what they know (R7)"
            )
        # Beside others it may have been applied a moment before its sync, and a power cut came in between.
        _logger.warning("%s: %s; they come back from the others", self._me.name, what)

    def _compaction_floor(self) -> int:
        return self._floor() if self._floor is not None else self.published.index

    def _on_caught_up(self) -> None:
        try:
            self._disk.unlink(CATCHING_UP_FILE_NAME)
        except OSError as error:
            self._seams.fail_stop(FailStop.STORAGE, f"{CATCHING_UP_FILE_NAME} cannot be removed: {error}")
        _logger.warning("%s has caught up: it votes and counts from now on", self._me.name)

    def _on_pledge(self, is_made: bool) -> None:
        try:
            if is_made:
                self._disk.replace(PLEDGED_FILE_NAME, b"")
            else:
                self._disk.unlink(PLEDGED_FILE_NAME)
        except OSError as error:
            self._seams.fail_stop(FailStop.STORAGE, f"{PLEDGED_FILE_NAME} cannot be kept: {error}")


def _follower(node: RaftNode[S], peer: Member, now_ns: int, last_index: int) -> Follower:
    answered_ns = node.transport.answered_at_ns(peer)
    return Follower(
        name=ControllerName(peer.name),
        is_linked=node.internals.is_connected(peer),
        answer_age_ms=None if answered_ns is None else max(0, now_ns - answered_ns) // 1_000_000,
        lag_entries=max(0, last_index - node.internals.match_index.get(peer, 0)),
        is_voter=peer in node.transport.voters,
        is_earlier=node.is_earlier(peer),
    )
