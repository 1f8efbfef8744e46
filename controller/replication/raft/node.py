"""
The library's node, made safe: it proposes only as a leader, applies without ever raising, and unpickles nothing.

Here: the subclass of ``SyncObj`` and its work around the library's tick. Not here: repairs of messages
(``repairs``), the source of the ticks (``member``, ``log``).
Rule 1: an entry is one type byte and ASCII text; term and index come from the log, not from the entry.
Rule 2: apply is total by contract. If it raises all the same, the entry is a counted no-op, the same everywhere
(P4); only a failure that another node may not meet (memory, stack) ends the process.
Rule 3: an outcome is told once, guarded: a callback that raises disturbs nothing (P5).
Rule 4: an entry is COMMITTED for its proposer only if the entry applied at its index has its term (P3).
Rule 5: a leader sends a peer at least a heartbeat each time, and beyond it no more than its link takes.
Rule 6: a leader that stops leading tells UNKNOWN to every proposer that waits, and so does a snapshot that jumps over
their entries.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
from pysyncobj import SERIALIZER_STATE, SyncObj, SyncObjConf
from pysyncobj import syncobj as library_module

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.codec import ENTRY_BYTES_MAX
from rollcall_ha.controller.replication.membership import (
    Change,
    ChangeRefused,
    Membership,
    Seat,
    decode,
    encode,
    is_step,
)
from rollcall_ha.controller.replication.ports import (
    AppliedEntry,
    HandoverEnd,
    ProposalOutcome,
    ProposalStatus,
    Published,
    StateMachine,
    UnsoundStateError,
)
from rollcall_ha.controller.replication.raft.catch_up import CatchUp
from rollcall_ha.controller.replication.raft.config import APPEND_BATCH_BYTES, JOURNAL_BYTES_MAX, PROPOSALS_QUEUED_MAX
from rollcall_ha.controller.replication.raft.failstop import FailStop
from rollcall_ha.controller.replication.raft.handover import Done as HandoverDone
from rollcall_ha.controller.replication.raft.handover import Handover
from rollcall_ha.controller.replication.raft.internals import Internals, Member
from rollcall_ha.controller.replication.raft.journal import DurableJournal, Entry
from rollcall_ha.controller.replication.raft.messages import PLEDGES_SINCE, REGULAR, StateDigests
from rollcall_ha.controller.replication.raft.patience import ELECTION_TIMEOUT_MS_MAX, LATE_TURNS, Patience
from rollcall_ha.controller.replication.raft.repairs import RepairedTransport
from rollcall_ha.controller.replication.raft.seams import Seams
from rollcall_ha.controller.replication.raft.snapshot import Snapshot, SnapshotStore

S = TypeVar("S")
T = TypeVar("T")
Done = Callable[[ProposalOutcome], None]

CHANGES_QUEUED_MAX = 8
"""Changes of the members that wait for one tick; all but the first would be refused, one at a time."""
PROMOTED_LAG_MAX = 200
"""Entries that a learner may lack when it becomes a voter; until it has them, each order waits for it."""
PENDING_BYTES_MAX = 4 * 1024 * 1024
"""While more than this waits on a link, it gets heartbeats only: no entries, no pieces of a snapshot."""

_logger = logging.getLogger(__name__)


class _Proposal(msgspec.Struct, frozen=True):
    command: bytes
    done: Done
    deadline_ns: int


class _Waiter(msgspec.Struct, frozen=True):
    term: int
    done: Done
    deadline_ns: int


class _SerializerAdapter:
    """Our snapshots in the shape of the library's ``Serializer``."""

    def __init__(self, node: RaftNode[Any]) -> None:
        self._node = node

    def checkSerializing(self) -> tuple[int, int | None]:  # noqa: N802
        """Whether a snapshot is under way, or was just finished: then from which index on the log must stay."""
        kept_from = self._node.store.poll()
        if kept_from is not None:
            return SERIALIZER_STATE.SUCCESS, kept_from
        if self._node.store.is_writing:
            return SERIALIZER_STATE.SERIALIZING, None
        return SERIALIZER_STATE.NOT_SERIALIZING, None

    def serialize(self, data: tuple[Any, ...], _kept_from: int) -> None:
        """Begin one of the present state; ``data`` carries the last two applied entries."""
        self._node.take_snapshot(previous=data[2], last=data[1])


class RaftNode(SyncObj, Generic[S]):  # type: ignore[misc]
    """One node; everything but ``propose`` is for the raft thread."""

    def __init__(
        self,
        machine: StateMachine[S],
        *,
        me: Member,
        peers: Sequence[Member],
        configuration: SyncObjConf,
        transport: RepairedTransport,
        journal: DurableJournal,
        store: SnapshotStore,
        snapshot: Snapshot | None,
        catch_up: CatchUp | None,
        member_of: Callable[[Seat], Member],
        on_caught_up: Callable[[], None],
        has_pledged: bool,
        on_pledge: Callable[[bool], None],
        seams: Seams,
        propose_timeout_ms: int,
    ) -> None:
        """``journal`` is aligned with ``snapshot``. Raises ``ValueError`` if the state in there cannot be read."""
        self.machine = machine
        self.transport = transport
        self.journal = journal
        self.store = store
        self.catch_up = catch_up
        self.listeners: list[Callable[[AppliedEntry[S]], None]] = []
        self.apply_failures = 0
        """Entries on which apply raised: a bug of ours (rule 2)."""
        self._member_of = member_of
        self.members = decode(journal.configuration[1])
        """In force here: those of the newest entry that holds some, committed or not; any thread."""
        self._configuration = b""
        self._changes: deque[tuple[Change, Done, int]] = deque()
        self._on_caught_up = on_caught_up
        self._seams = seams
        self._timeout_ns = propose_timeout_ms * 1_000_000
        self._proposals: deque[_Proposal] = deque()
        self._waiters: dict[int, _Waiter] = {}
        self._accepts = True
        now_ns = seams.monotonic_ns()
        self.patience = Patience(shortest_ms=round(configuration.raftMinTimeout * 1000), now_ns=now_ns)
        self._calm_fallback_s = configuration.leaderFallbackTimeout
        self.pledged_ms = 0
        """As ``RepairedNode`` has it."""
        self._on_pledge = on_pledge
        self._has_pledged = has_pledged
        """A pledge of more than the shortest election timeout may hold, of this process or of the one before."""
        self._pledged_until_ns = now_ns + ELECTION_TIMEOUT_MS_MAX * 1_000_000 * has_pledged
        self._handovers: deque[tuple[ControllerName, HandoverDone]] = deque()
        self.handover: Handover | None = None
        """The transfer of the own lead that is under way."""
        self.digests_due: tuple[tuple[int, str], ...] = ()
        """State digests for the peers, to be sent with the next tick; set by any thread."""
        state = machine.decode(snapshot.items) if snapshot is not None else machine.initial()
        super().__init__(me, peers, conf=configuration, transport=transport)
        self.internals = Internals(self)
        # BEFORE the first tick: until here the library has a log of its own, in memory, and term 0.
        self.internals.adopt_log(journal, _SerializerAdapter(self))
        index, term = 1, 0
        if snapshot is not None:
            _, index, term = snapshot.last
            self.internals.adopt_snapshot(index, journal.last_index)
        journal.applied_floor = index
        self.published: Published[S] = Published(state=state, term=term, index=index)
        """Replaced by one assignment; any thread reads it."""
        if catch_up is not None:
            self.internals.hold_election()
        transport.attach(self, bound_until_ns=self._pledged_until_ns)
        self.look_at_members()

    # --- members (R30, adr/0020) ---

    def look_at_members(self) -> None:
        """Go by the members that the log ends with now; after everything that adds or cuts entries."""
        _, command = self.journal.configuration
        if command == self._configuration:
            return
        self._configuration = command
        self.members = members = decode(command)
        own = self.transport.me.name
        voters = [self._member_of(seat) for seat in members.voters if seat.name != own]
        learners = [self._member_of(seat) for seat in members.learners if seat.name != own]
        self.internals.adopt_members(set(voters), set(learners), self.journal.last_index)
        for peer in set(self.transport.peers).difference(voters, learners):
            self.store.cancel(peer)
        self.transport.set_peers(voters, learners)
        names = ([seat.name for seat in seats] for seats in (members.voters, members.learners))
        _logger.info("%s: from entry %d on voters are %s, learners %s", own, self.journal.configuration[0], *names)

    @property
    def is_electable(self) -> bool:
        """Whether this member may stand: a voter, by the members that it goes by, with its memory."""
        return self.catch_up is None and self.members.is_voter(self.transport.me.name)

    def change(self, change: Change, done: Done) -> None:
        """Queue a change of the members; any thread. ``change`` raises ``ChangeRefused``."""
        reason = ""
        if not self._accepts:
            reason = "this controller is stopping"
        elif len(self._changes) >= CHANGES_QUEUED_MAX:
            reason = f"{len(self._changes)} changes wait already, at most {CHANGES_QUEUED_MAX} may"
        if reason:
            _tell(done, ProposalOutcome(status=ProposalStatus.NOT_PROPOSED, reason=reason))
        else:
            self._changes.append((change, done, self._seams.monotonic_ns() + self._timeout_ns))

    def _take_change(self) -> None:
        # Those that came while this one did not lead are told; one that may not be taken yet is refused, not kept.
        while self._changes:
            change, done, deadline_ns = self._changes.popleft()
            reason = self._why_no_change()
            members = before = self.members
            if not reason:
                try:
                    members = change(before)
                    reason = self._why_not(before, members)
                except ChangeRefused as error:
                    reason = str(error)
            if reason:
                _tell(done, ProposalOutcome(status=ProposalStatus.NOT_PROPOSED, reason=reason))
                continue
            index, term = self.journal.last_index + 1, self.internals.term
            self.journal.add(encode(members), index, term)
            self._waiters[index] = _Waiter(term, done, deadline_ns)
            self.look_at_members()
            self._SyncObj__sendAppendEntries()

    def _why_no_change(self) -> str:
        """The reason that no change may be appended now; empty: it may."""
        if not self.internals.is_leader:
            return f"this controller does not lead; {self.internals.leader or 'nobody'} does"
        # Rule 1 of ``handover``: with one entry more to get, the successor would not be asked.
        if self.handover is not None:
            return "its lead is being transferred"
        committed = self.internals.commit_index
        # Two changes that are not committed differ from what others count by two voters: two majorities without a
        # common member.
        if self.journal.configuration[0] > committed:
            return f"the change of entry {self.journal.configuration[0]} is not committed yet: one change at a time"
        # {c1,c2,c3,c4}: c1 has appended "remove c4" alone. c2 is elected by c3 and c4 and takes "add c5", which commits
        # by c2, c4, c5 (3 of 5). c1 is elected by c3 alone, 2 of its {c1,c2,c3}, if c3 has neither. An entry of c2's
        # own term on a majority before its change makes c1's log too old for that.
        if self.journal.term_at(committed) != self.internals.term:
            return "no entry of this leader's own term is committed yet"
        return ""

    def _why_not(self, before: Membership, after: Membership) -> str:
        """The reason that ``after`` may not follow ``before``; empty: it may."""
        if not is_step(before, after):
            return f"{after} does not follow {before} by one step"
        try:
            decode(encode(after))
        except ValueError as error:
            # In the log, each member would refuse the entry at each start: no majority would be left that can start.
            return f"no controller could read these members: {error}"
        # It would count itself for entries of a group that it is not in.
        if not after.is_voter(self.transport.me.name):
            return f"{self.transport.me.name} leads and does not remove itself: transfer its lead first"
        for seat in after.voters:
            peer = self._member_of(seat)
            # An answer as a voter means that it has its memory, or has caught up (``catch_up``). Without one it counts
            # in the majority and answers nothing: of two voters none is left over.
            if not before.is_voter(seat.name) and (
                self.transport.answered_at_ns(peer) is None
                or self.journal.last_index - self.internals.match_index.get(peer, 0) > PROMOTED_LAG_MAX
            ):
                return f"{seat.name} has not caught up yet"
        return ""

    @property
    def election_timeout_ns_min(self) -> int:
        """As ``RepairedNode`` has it."""
        return int(self.conf.raftMinTimeout * 1e9)

    @property
    def yields(self) -> bool:
        """As ``RepairedNode`` has it."""
        return self.handover is not None and self.handover.yields

    # --- ticks ---

    def tick(self, timeout_s: float) -> None:
        """One turn of the library with the barriers around it; waits for the network at most ``timeout_s``."""
        self._have_patience()
        # Durable BEFORE the library's turn, in which the leader counts itself for a commit as soon as an entry is in
        # its list. Unsynced, entry 500 commits by c1 and c2, both lose power, and no disk has it.
        self.journal.sync()
        self.transport.flush_answers()
        self.transport.attend()
        self._tell_digests()
        self.transport.carry_calls()
        if not self.is_electable:
            # Rule 7 of ``repairs``: it would win with the votes of members that have just as little. One that is no
            # voter, by its own log, would count itself into a majority that is none.
            self.internals.hold_election()
        if self.journal.file_bytes > JOURNAL_BYTES_MAX and not self.store.is_writing:
            self.forceLogCompaction()
        self._advance_handover()
        self.doTick(timeout_s)
        self.transport.flush_answers()
        self._expire()

    def _have_patience(self) -> None:
        before, now_ns = self.transport.stretch, self._seams.monotonic_ns()
        is_confirmed = self.transport.is_leader_confirmed
        if self.patience.turn(now_ns, term=self.internals.term, is_confirmed=is_confirmed):
            # P12. Messages that came in time wait in the sockets. Stock PySyncObj judges first and reads afterwards:
            # after 2 s without CPU a follower stands beside its leader, and a leader gives its lead up.
            self._poller.poll(0.0)
        self.transport.stretch = stretch = self.patience.factor
        if stretch != before:
            self.conf.leaderFallbackTimeout = self._calm_fallback_s * stretch
            _logger.info("%s waits %d times as long as in calm", self.transport.me.name, stretch)
        if stretch > before:
            # The one that runs was drawn when others were expected to be in time.
            self.internals.defer_election()
        self._pledge(self._seams.monotonic_ns())
        # It would vote for itself.
        self.internals.stand_not_within(self.transport.bound_until_ns - self._seams.monotonic_ns())

    def _pledge(self, now_ns: int) -> None:
        """Pledge a leader as much time as this member gives it, durably, where all controllers know of pledges."""
        # A leader pledges nothing: marked, a lone controller would wait for nobody when it is started again.
        # Nor does one that waits for lost elections alone: its next process would be bound where nobody is late.
        is_late = self.patience.late_ns > 0 and self.transport.stretch > 1 and not self.internals.is_leader
        is_made = is_late and self.machine.feature_level(self.published.state) >= PLEDGES_SINCE
        # The mark BEFORE the first such pledge, and until the last one is over: c2 pledges c1 9.6 s and is killed;
        # its next process is bound for 300 ms, votes for c3, and two have authority for nine seconds.
        if is_made or self.pledged_ms:
            # Also what the turn before has heard, which may have lasted for seconds.
            self._pledged_until_ns = now_ns + ELECTION_TIMEOUT_MS_MAX * 1_000_000
        if is_made != self._has_pledged and (is_made or now_ns >= self._pledged_until_ns):
            self._on_pledge(is_made)
            self._has_pledged = is_made
        self.pledged_ms = self.election_timeout_ns_min // 1_000_000 * self.transport.stretch * is_made

    def is_earlier(self, peer: Member) -> bool:
        """Whether ``peer`` comes half as late as this leader, at most, by its newest pledge; any thread."""
        # Below that level nobody tells, and a member that is later would pass for one that is in time.
        tells = self.machine.feature_level(self.published.state) >= PLEDGES_SINCE
        return tells and 0 < 2 * self.transport.pledged_for_ns(peer) <= LATE_TURNS * self.patience.late_ns

    def hand_over(self, target: ControllerName, done: HandoverDone) -> None:
        """Queue a transfer of the own lead; any thread."""
        if self._accepts:
            self._handovers.append((target, done))
        else:
            _tell(done, HandoverEnd.NOT_CAUGHT_UP)

    def _advance_handover(self) -> None:
        now_ns = self._seams.monotonic_ns()
        if self.handover is not None and not self.handover.advance(now_ns):
            self.handover = None
        while self._handovers and self.handover is None:
            target, done = self._handovers.popleft()
            handover = Handover(self, target, partial(_tell, done), now_ns=now_ns)
            self.handover = handover if handover.advance(now_ns) else None

    def _tell_digests(self) -> None:
        due, self.digests_due = self.digests_due, ()
        if due:
            for peer in self.transport.peers:
                self.transport.transmit(peer, StateDigests(digests=due))

    def settle(self) -> None:
        """Between the library's own work and its wait for the network: sync the new entries."""
        # Here rather than with the next tick: the sync runs while the followers do theirs.
        self.journal.sync()
        # Rule 6. The entry may still be committed by the next leader: NOT_PROPOSED would be an invitation to propose it
        # a second time under another request id.
        if self._waiters and not self.internals.is_leader:
            self._give_up(lambda _index, _waiter: True, "this controller stopped leading")

    @staticmethod
    def library_now() -> float:
        """Seconds on the library's clock."""
        return float(library_module.monotonicTime())

    def _SyncObj__generateRaftTimeout(self) -> float:  # noqa: N802
        """Replaces the library's, which draws from the global generator."""
        shortest, longest = self.conf.raftMinTimeout, self.conf.raftMaxTimeout
        return float(shortest + (longest - shortest) * self._seams.random()) * self.patience.factor

    # --- proposing ---

    def propose(self, payload: str, done: Done) -> None:
        """Queue an entry; any thread."""
        reason = ""
        if not self._accepts:
            reason = "this controller is stopping"
        elif len(payload) > ENTRY_BYTES_MAX or not payload.isascii():
            reason = f"entry has {len(payload)} characters; allowed are {ENTRY_BYTES_MAX} of ASCII"
        elif len(self._proposals) >= PROPOSALS_QUEUED_MAX:
            reason = f"{len(self._proposals)} entries wait already"
        if reason:
            _tell(done, ProposalOutcome(status=ProposalStatus.NOT_PROPOSED, reason=reason))
            return
        deadline_ns = self._seams.monotonic_ns() + self._timeout_ns
        self._proposals.append(_Proposal(REGULAR + payload.encode("ascii"), done, deadline_ns))

    def _checkCommandsToApply(self) -> None:  # noqa: N802
        """Replaces the library's: nothing is forwarded, and many entries leave with one append."""
        self._take_change()
        is_leader = self.internals.is_leader
        # An entry that came in now would be one more that the successor lacks: under load it would never be asked.
        if self.handover is not None and is_leader:
            return
        # Only as many as there are now: a caller that proposes again when it is told would keep the tick here for ever.
        count = len(self._proposals)
        for _ in range(count):
            proposal = self._proposals.popleft()
            if not is_leader:
                # It never entered a log, so it is certain. Stock PySyncObj forwards it and may lose the callback.
                reason = f"this controller does not lead; {self.internals.leader or 'nobody'} does"
                _tell(proposal.done, ProposalOutcome(status=ProposalStatus.NOT_PROPOSED, reason=reason))
                continue
            index, term = self.journal.last_index + 1, self.internals.term
            self.journal.add(proposal.command, index, term)
            self._waiters[index] = _Waiter(term, proposal.done, proposal.deadline_ns)
        if count and is_leader:
            self._SyncObj__sendAppendEntries()

    def _expire(self) -> None:
        if self._waiters:
            now_ns = self._seams.monotonic_ns()
            self._give_up(lambda _index, waiter: waiter.deadline_ns <= now_ns, "no majority confirmed it in time")

    def _give_up(self, is_lost: Callable[[int, _Waiter], bool], reason: str) -> None:
        for index in [index for index, waiter in self._waiters.items() if is_lost(index, waiter)]:
            waiter = self._waiters.pop(index)
            _tell(waiter.done, ProposalOutcome(status=ProposalStatus.UNKNOWN, reason=reason))

    def refuse_proposals(self) -> None:
        """The node stops: those that wait are told, and further proposals are refused."""
        self._accepts = False
        if self.handover is not None:
            self.handover.give_up()
            self.handover = None
        while self._changes:
            reason = "this controller is stopping"
            _tell(self._changes.popleft()[1], ProposalOutcome(status=ProposalStatus.NOT_PROPOSED, reason=reason))
        while self._handovers:
            _tell(self._handovers.popleft()[1], HandoverEnd.NOT_CAUGHT_UP)
        while self._proposals:
            reason = "this controller is stopping"
            _tell(self._proposals.popleft().done, ProposalOutcome(status=ProposalStatus.NOT_PROPOSED, reason=reason))
        self._give_up(lambda _index, _waiter: True, "this controller stopped")

    # --- sending ---

    def _SyncObj__sendAppendEntries(self) -> None:  # noqa: N802
        """
        Replaces the library's, which turns for a whole period while a snapshot is not ready, and knows no slow peer.

        Every peer gets at least one message, missing entries as far as its link takes them, and the rest later.
        """
        self.internals.appends_sent()
        for peer in self.transport.peers:
            if not self.internals.is_connected(peer):
                # A new link begins the snapshot anew: the receiver has dropped what it had.
                self.store.cancel(peer)
            elif self.internals.next_index[peer] > self.journal.first_index or self._send_snapshot(peer):
                self._send_entries(peer)

    def _send_snapshot(self, peer: Member) -> bool:
        """Whether all of it was sent, so that entries may follow."""
        is_first = True
        while self.transport.pending_bytes(peer) <= PENDING_BYTES_MAX:
            outgoing = self.store.next_piece(peer)
            if outgoing is None:
                break
            if not self.transport.send_piece(peer, outgoing.piece):
                return False
            is_first = False
            if outgoing.piece[2]:
                # Stock PySyncObj takes the beginning of its own log, which moves when a snapshot is written meanwhile.
                self.internals.next_index[peer] = outgoing.last_index + 1
                return outgoing.last_index >= self.journal.first_index
        if is_first:
            # None is ready, or the link is full. Without a word from its leader the peer would stand for election.
            self.transport.send_piece(peer, None)
        return False

    def _send_entries(self, peer: Member) -> None:
        position = self.internals.next_index[peer]
        is_first = True
        while is_first or position <= self.journal.last_index:
            entries: list[Entry] = []
            if self.transport.pending_bytes(peer) <= PENDING_BYTES_MAX:
                entries = self.journal.batch(position, APPEND_BATCH_BYTES)
            elif not is_first:
                return  # rule 5: entries that wait on a slow link cost memory; the heartbeat has been sent
            previous_term = self.journal.term_at(position - 1)
            assert previous_term is not None
            if not self.transport.send_append(peer, (position - 1, previous_term), entries) or not entries:
                return
            # Before any answer: entries in flight are not sent again, unless the peer resets the position.
            position += len(entries)
            self.internals.next_index[peer] = position
            is_first = False

    # --- applying ---

    def _SyncObj__doApplyCommand(self, command: bytes) -> None:  # noqa: N802
        """Replaces the library's, which unpickles; called for the entry after the last applied one, in order."""
        index = self.internals.last_applied + 1
        term = self.journal.term_at(index)
        assert term is not None
        entry: AppliedEntry[S] = AppliedEntry(
            term=term, index=index, state=self.published.state, replies=(), records=()
        )
        if command[:1] == REGULAR:
            entry = self._applied(command, term, index)
        # The floor FIRST: from here on others may act on this entry, and the journal must refuse to cut it. The waiter
        # LAST: a caller that reads after its answer must find its own write.
        self.journal.applied_floor = index
        self._publish(entry)
        waiter = self._waiters.pop(index, None)
        if waiter is None:
            return
        outcome = ProposalOutcome(
            status=ProposalStatus.NOT_PROPOSED, reason=f"an entry of term {term} took its place at index {index}"
        )
        # Rule 4. Stock PySyncObj tells a leader that was cut off SUCCESS for an entry that another leader has replaced.
        if waiter.term == term:
            outcome = ProposalOutcome(status=ProposalStatus.COMMITTED, replies=entry.replies, term=term, index=index)
        _tell(waiter.done, outcome)

    def _applied(self, command: bytes, term: int, index: int) -> AppliedEntry[S]:
        state = self.published.state
        try:
            applied = self.machine.apply(state, command[1:].decode("ascii"), term=term, index=index)
        except (MemoryError, RecursionError, SystemError) as error:
            # Another node may have had more of it and applied the entry: a no-op here would be a state of its own.
            self._seams.fail_stop(FailStop.NOT_DETERMINISTIC, f"apply of entry {index} failed: {error!r}")
        except Exception:
            # Stock PySyncObj leaves its tick before the applied index moves: the entry is tried again for ever, on
            # every node and after every restart, each time half applied; heartbeats stop, and elections follow one
            # another.
            self.apply_failures += 1
            _logger.exception("apply raised on entry %d of term %d; it changes nothing", index, term)
            return AppliedEntry(term=term, index=index, state=state, replies=(), records=())
        # R15: a no-op here, applied by the nodes that know it, would be a second state under one index.
        if applied.stop_reason is not None:
            code = FailStop.NOT_DETERMINISTIC if applied.is_fault else FailStop.FEATURE_LEVEL
            self._seams.fail_stop(code, applied.stop_reason)
        return AppliedEntry(
            term=term, index=index, state=applied.state, replies=applied.replies, records=applied.records
        )

    def _publish(self, entry: AppliedEntry[S]) -> None:
        self.published = Published(state=entry.state, term=entry.term, index=entry.index)
        for listener in self.listeners:
            try:
                listener(entry)
            except Exception:
                # On stock PySyncObj a callback that raises leaves the applied index behind: that node applies it twice.
                _logger.exception("a listener raised on entry %d", entry.index)

    # --- snapshots ---

    def take_snapshot(self, previous: tuple[bytes, int, int], last: tuple[bytes, int, int]) -> None:
        """Begin a snapshot of the published state, which ends with ``last``."""
        # Taken here, in the raft thread: by the time that the other one looks, the state may hold later entries.
        state = self.published.state
        members = self.journal.configuration_at(last[1]) if self.journal.configuration[0] else b""
        self.store.take(lambda: self.machine.encode(state), previous, last, members)

    def install(self, snapshot: Snapshot) -> int:
        _, index, term = snapshot.last
        # Late or repeated: installing it would take back what is applied, and what follows would be applied a second
        # time.
        if index <= self.internals.last_applied:
            return self.internals.last_applied
        try:
            state = self.machine.decode(snapshot.items)
        except ValueError as error:
            # Stock PySyncObj goes on with the state that it had, or with an empty one, votes, and may lead.
            code = FailStop.DAMAGED if isinstance(error, UnsoundStateError) else FailStop.FEATURE_LEVEL
            self._seams.fail_stop(code, f"the leader's snapshot cannot be used: {error}")
        # Snapshot, THEN journal: killed in between, the journal is aligned at the start. The other way round it would
        # begin at 900 beside a snapshot that ends at 400, and the node would never start again.
        self.store.keep()
        self.journal.install(snapshot.previous, snapshot.last)
        if snapshot.members:
            self.journal.set_base(index, snapshot.members)
        self.look_at_members()
        self.journal.applied_floor = index
        self.internals.adopt_snapshot(index, self.journal.last_index)
        self._give_up(lambda at, _waiter: at <= index, "a snapshot jumped over it")
        self._publish(AppliedEntry(term=term, index=index, state=state, replies=(), records=(), is_snapshot=True))
        return index

    def caught_up(self) -> None:
        # The mark on disk goes FIRST: the others count on this member's vote from now on, and a restart that finds the
        # mark takes the vote away again. With two of three members so marked nobody can be elected.
        self._on_caught_up()
        self.catch_up = None
        self.internals.expect_leader()


def _tell(done: Callable[[T], None], outcome: T) -> None:
    try:
        done(outcome)
    except Exception:
        _logger.exception("the callback of an outcome raised")
