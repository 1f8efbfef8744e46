"""
Between PySyncObj and the network: messages leave after their sync, and are repaired when they arrive.

Here: every repair of the protocol that can be made on messages, and the barriers of group commit. Not here: bytes
(``messages``), sockets (``transport``), repairs within the library's own tick (``node``). At each branch stands what
stock PySyncObj does, and what is lost by it (docs/pysyncobj.md).

Rule 1 (votes): term and vote are synced before a vote or a request for one leaves; a peer's vote counts once per term.
Rule 2 (answers): an answer leaves after one sync for all that the tick received.
Rule 3 (P1): entries that agree with the leader's are kept; the log is cut at a conflict only, and only what was
compared is acknowledged or committed.
Rule 4 (P1): an acknowledgement never moves a leader's send position back, and of many resets that answer one
burst only the first counts.
Rule 5 (P3): the pieces of a snapshot commit nothing; it counts as a whole, once it is verified and durable.
Rule 6 (R5): appends carry (term, send time) and answers echo both. An answer of another term is dropped before it
counts for commit or authority; authority counts from the send time.
Rule 7: a member without memory (``catch_up``) neither votes nor counts.
Rule 8: a follower whose tail conflicts answers with the beginning of that term, not with one entry less.
Rule 9 (R5): a member that heard a leader votes for nobody, itself included, for as long as it has pledged with the
answer, the shortest election timeout at least, unless that leader gives its authority up. The start of the process
counts as such a hearing, of the longest pledge that may hold.
Rule 10: a follower whose link to its leader ends stands as soon as rule 9 lets it, one after the other by their names.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import msgspec
from pysyncobj.transport import Transport

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.raft.calls import CallMessage, Calls
from rollcall_ha.controller.replication.raft.catch_up import CatchUp
from rollcall_ha.controller.replication.raft.internals import Internals, Member
from rollcall_ha.controller.replication.raft.journal import DurableJournal, Entry
from rollcall_ha.controller.replication.raft.messages import (
    Answer,
    Append,
    Message,
    PeerRequest,
    PeerResponse,
    ProtocolError,
    RequestVote,
    SnapshotPiece,
    StateDigests,
    TimeoutNow,
    Vote,
)
from rollcall_ha.controller.replication.raft.patience import ELECTION_TIMEOUT_MS_MAX
from rollcall_ha.controller.replication.raft.snapshot import Piece, Snapshot, SnapshotDamagedError, SnapshotStore

STAND_MS = 10
"""Behind the end of the own pledge: those of the others end with the same append, read a moment later."""
STAND_GAP_MS = 40
"""Between two that stand: a turn of both, and a vote."""


class RepairedNode(Protocol):
    """The node as the repairs see it."""

    internals: Internals
    journal: DurableJournal
    store: SnapshotStore
    catch_up: CatchUp | None

    @property
    def is_electable(self) -> bool:
        """Whether this member may stand."""
        ...

    pledged_ms: int
    """From hearing a leader on: for how long it may count on this member (rule 9); 0: the shortest election timeout."""

    @property
    def election_timeout_ns_min(self) -> int:
        """The shortest one in calm, and what a leader's authority lasts for without a pledge."""
        ...

    @property
    def yields(self) -> bool:
        """Whether it leads and gives its authority up."""
        ...

    def install(self, snapshot: Snapshot) -> int:
        """Make a received snapshot the state, durably, unless it is old; returns the index applied afterwards."""
        ...

    def caught_up(self) -> None:
        """Become a voter, durably."""
        ...

    def look_at_members(self) -> None:
        """Go by the members that the log ends with now."""
        ...


class _Asked(msgspec.Struct, frozen=True):
    """The append or piece that is being answered: the library's own answers name neither term nor send time."""

    term: int
    sent_ns: int
    pledged_ms: int


class RepairedTransport(Transport):  # type: ignore[misc]
    """
    The library's transport, repaired; a subclass carries messages.

    A subclass calls ``peer_up``, ``peer_down`` and ``deliver``, and implements ``transmit``, ``pending_bytes``,
    ``bind``, ``attend`` and ``close``. All in the raft thread.
    """

    def __init__(self, me: Member, peers: Sequence[Member], clock_ns: Callable[[], int]) -> None:
        """``peers``: all members but ``me``."""
        super().__init__(None, me, peers)
        self.me = me
        self.peers = tuple(peers)
        self.voters = frozenset(peers)
        """Those of ``peers`` that count."""
        self._clock_ns = clock_ns
        self._node: RepairedNode | None = None
        self._newest_stamp_ns = 0
        self._answering: _Asked | None = None
        self._held: list[tuple[Member, Answer]] = []
        self._term = 0
        self._voted: set[Member] = set()
        self.bound_until_ns = 0
        """By the own clock: until then the leader that was heard last may count on this member (rule 9)."""
        self._heard_term = 0
        self._heard_is_confirmed = False
        """The leader of that term has told that a majority answers it."""
        self._answered_ns: dict[Member, int] = {}
        self._pledged_ns: dict[Member, int] = {}
        """Until when each peer votes for nobody else (rule 9)."""
        self._given_up_ns = 0
        """Stamp of the newest append that gave the own authority up."""
        self._confirmed_ns = 0
        """The newest majority of this term, counted or given up since."""
        self.before_vote: Callable[[], None] = lambda: None
        """Others must see a leader without its authority before its vote leaves."""
        self._reset_ns: dict[Member, int] = {}
        self.digests_told: dict[ControllerName, Mapping[int, str]] = {}
        """State digests by index, as each peer told them last."""
        self.calls = Calls(clock_ns)
        self.stretch = 1
        """By which this member waits longer than in calm (``patience``)."""
        self.dropped_answers = 0
        """Answers of another term, or to nothing that was asked (rule 6); for tests."""

    def attach(self, node: RepairedNode, *, bound_until_ns: int) -> None:
        """Before the first tick."""
        self._node = node
        # The process before may have answered a leader a moment ago: it was killed, and this one is here 66 ms later.
        self.bound_until_ns = max(bound_until_ns, self._clock_ns() + node.election_timeout_ns_min)

    # --- for subclasses ---

    @abstractmethod
    def transmit(self, peer: Member, message: Message) -> bool:
        """Hand a message to the link to ``peer``; False if there is none."""

    @abstractmethod
    def pending_bytes(self, peer: Member) -> int:
        """Bytes that wait on the link to ``peer``."""

    @abstractmethod
    def bind(self, poller: Any) -> None:
        """Listen. Raises ``OSError``."""

    @abstractmethod
    def attend(self) -> None:
        """Once per tick: dial, ping, give up links that are silent. Must not raise."""

    @abstractmethod
    def close(self) -> None:
        """Give up all links."""

    def set_peers(self, voters: Sequence[Member], learners: Sequence[Member]) -> None:
        """All other members from now on; a subclass gives up links to others."""
        gone = set(self.peers) - {*voters, *learners}
        self.voters = frozenset(voters)
        self.peers = (*voters, *learners)
        for peer in gone:
            # Kept, an answer of before would count at once when the member is added again.
            self._answered_ns.pop(peer, None)
            self._pledged_ns.pop(peer, None)
            self._reset_ns.pop(peer, None)
            self.digests_told.pop(ControllerName(peer.name), None)
            self._held = [(to, answer) for to, answer in self._held if to != peer]

    def peer_up(self, peer: Member) -> None:
        """The link to ``peer`` works in both directions."""
        self._onNodeConnected(peer)

    def peer_down(self, peer: Member) -> None:
        """The link to ``peer`` is gone."""
        self._leader_gone(peer)
        # Sent on the next link, a held reset would move the leader's position back to where the old link was.
        self._held = [(to, answer) for to, answer in self._held if to is not peer]
        self.calls.peer_gone(ControllerName(peer.name))
        self._onNodeDisconnected(peer)

    def _leader_gone(self, peer: Member) -> None:
        """Rule 10; a leader that lives dials again within milliseconds, and its next append takes this back."""
        node = self._attached()
        if node.internals.leader == peer and not node.internals.is_leader:
            # Both at once, they would vote for themselves. Drawn, as for a leader that is merely not heard, it takes a
            # hundred milliseconds longer.
            others = sum(other != peer and other.name < self.me.name for other in self.voters)
            wait_ns = (STAND_MS + others * STAND_GAP_MS) * 1_000_000
            node.internals.stand_after(max(0, self.bound_until_ns - self._clock_ns()) + wait_ns)

    # --- authority (R5) ---

    def majority_asked_at_ns(self) -> int | None:
        """
        Send time of the newest append that a majority of voters, this leader included, has answered in this term.

        The time of the sending, not of the answer: one that lay 10 s in the socket of a paused machine proves that its
        sender followed 10 s ago; since then the others may have elected c3.
        """
        return self._of_majority(self._answered_ns)

    def followed_until_ns(self) -> int:
        """Until when a majority of voters, this leader included, votes for nobody else; 0: it does not lead."""
        return self._of_majority(self._pledged_ns) or 0

    def _of_majority(self, told_ns: Mapping[Member, int]) -> int | None:
        node = self._attached()
        needed = (len(self.voters) + 1) // 2
        if not node.internals.is_leader:
            return None
        if needed == 0:
            return self._clock_ns()
        self._enter_term(node.internals.term)
        # Five members, and answers to what was sent at 90, 70 and 20: two and this leader have answered what was sent
        # at 70.
        told = sorted((at for peer, at in told_ns.items() if peer in self.voters), reverse=True)
        return told[needed - 1] if len(told) >= needed else None

    def answered_at_ns(self, peer: Member) -> int | None:
        """Send time of the newest append that ``peer``, a voter, has answered in this term; for any thread."""
        return self._answered_ns.get(peer)

    def pledged_for_ns(self, peer: Member) -> int:
        """How long ``peer`` votes for nobody else from its newest answer on; 0: it has not answered; for any thread."""
        return self._pledged_ns.get(peer, 0) - self._answered_ns.get(peer, 0)

    @property
    def is_leader_confirmed(self) -> bool:
        """Whether a majority follows the leader of this term, as far as this member has heard."""
        internals = self._attached().internals
        if internals.is_leader:
            return self.majority_asked_at_ns() is not None
        return self._heard_is_confirmed and self._heard_term == internals.term

    def _enter_term(self, term: int) -> None:
        # Answers of term 3 say nothing about term 5. Kept, a leader that is elected again would have authority over the
        # fleet before anybody had answered it in its new term, while c2, leader of 4, may have decided otherwise (R5).
        if term != self._term:
            self._term = term
            self._voted.clear()
            self._answered_ns.clear()
            self._pledged_ns.clear()
            self._confirmed_ns = 0
            self._reset_ns.clear()

    def _stamp(self) -> int:
        """Now, and later than every stamp before: a reset is matched with the burst that it answers by the stamp."""
        self._newest_stamp_ns = max(self._newest_stamp_ns + 1, self._clock_ns())
        return self._newest_stamp_ns

    def _attached(self) -> RepairedNode:
        assert self._node is not None
        return self._node

    # --- library -> network ---

    def send(self, node: Member, message: dict[str, Any]) -> bool:
        """Called by the library; appends do not come here, ``node`` sends them itself."""
        match message["type"]:
            case "next_node_idx":
                self._answer_for_library(node, message)
                return True
            case "request_vote":
                # P7. A candidate has voted for itself. Stock PySyncObj writes term and vote to a file that is never
                # synced: c1 stands in term 7, loses power, has forgotten it, votes for c2 in 7: two leaders of one term
                # commit different entries at one index.
                self._attached().journal.sync()
                request = RequestVote(
                    term=message["term"], last_index=message["last_log_index"], last_term=message["last_log_term"]
                )
                return self.transmit(node, request)
            case "response_vote":
                # The same: a vote must be on disk before anybody counts it.
                self._attached().journal.sync()
                # A leader that votes leads no more. Seen to lead while its thread waits for CPU, it would answer by its
                # followers' pledges beside the one that it has voted for.
                self.before_vote()
                return self.transmit(node, Vote(term=message["term"]))
            case _:
                # Forwarded commands. Stock PySyncObj sends them to the leader, and when that link breaks their
                # callbacks are never called. Here a follower refuses, and the caller is told where the leader is.
                return False

    def send_append(self, peer: Member, previous: tuple[int, int], entries: Sequence[Entry]) -> bool:
        """Entries after ``previous`` (index, term), or none: a heartbeat."""
        node = self._attached()
        stamp_ns = self._stamp()
        if node.yields:
            # Followers that hear this are bound no more. Counted when the transfer fails, earlier answers would be
            # authority beside a leader that they elect meanwhile.
            self._given_up_ns = stamp_ns
            self._answered_ns.clear()
            self._pledged_ns.clear()
        # Also when none counts at the moment: 0 gives authority up once more (``_hear``). A leader whose transfer has
        # failed, or that has more voters now, would count answers of followers that it had set free by its question.
        self._confirmed_ns = max(self._confirmed_ns, self.majority_asked_at_ns() or 0)
        append = Append(
            term=node.internals.term,
            sent_ns=stamp_ns,
            confirmed_ns=0 if node.yields else self._confirmed_ns,
            commit_index=node.internals.commit_index,
            last_index=node.journal.last_index,
            previous_index=previous[0],
            previous_term=previous[1],
            entries=tuple(entries),
        )
        return self.transmit(peer, append)

    def send_piece(self, peer: Member, piece: Piece | None) -> bool:
        """A piece of the snapshot; None: a heartbeat to a peer that waits for one."""
        piece_message = SnapshotPiece(term=self._attached().internals.term, sent_ns=self._stamp(), piece=piece)
        return self.transmit(peer, piece_message)

    def _answer_for_library(self, peer: Member, message: dict[str, Any]) -> None:
        next_index = message["next_node_idx"]
        # Rule 8. Stock PySyncObj goes back one entry per round trip: a deposed leader that returns with a tail of 2,000
        # entries would take 2,000 of them to follow.
        if message["reset"]:
            next_index = self._begin_of_conflict(next_index)
        self._answer(peer, next_index=next_index, is_success=message["success"], is_reset=message["reset"])

    def _begin_of_conflict(self, next_index: int) -> int:
        """The first index of the term that ``next_index`` is of; an index beyond the log's end stays as it is."""
        node = self._attached()
        term = node.journal.term_at(next_index)
        if term is None:
            return next_index
        # What is applied is committed and cannot conflict; below the first entry the leader would send a whole
        # snapshot.
        lowest = max(node.internals.last_applied, node.journal.first_index) + 1
        while next_index > lowest and node.journal.term_at(next_index - 1) == term:
            next_index -= 1
        return next_index

    def _answer(self, peer: Member, *, next_index: int, is_success: bool, is_reset: bool) -> None:
        asked = self._answering
        assert asked is not None
        is_voter = self._attached().catch_up is None
        answer = Answer(
            term=asked.term,
            sent_ns=asked.sent_ns,
            next_index=next_index,
            # Rule 7. c2 voted for c3 in term 5 and lost its disk. If its answers counted, c1, still leader of 4, would
            # commit entry 501 with it; c3 does not have that entry, and cuts it.
            is_success=is_success and is_voter,
            is_reset=is_reset,
            is_voter=is_voter,
            pledged_ms=asked.pledged_ms,
        )
        # Rule 2 (P6). Stock PySyncObj answers at once and syncs never: c2 acknowledges 500, the leader commits, c1 and
        # c2 lose power, and c2's journal ends at 480: twenty committed entries are gone. Behind a held answer every
        # later one is held as well, so that answers of a link keep their order.
        if self._held or self._attached().journal.is_dirty:
            self._held.append((peer, answer))
        else:
            self.transmit(peer, answer)

    def flush_answers(self) -> None:
        """Rule 2: one sync, then everything that waited for it."""
        if self._held:
            self._attached().journal.sync()
            held, self._held = self._held, []
            for peer, answer in held:
                self.transmit(peer, answer)

    def carry_calls(self) -> None:
        """Once per tick, beside Raft's own messages."""
        members = {peer.name: peer for peer in self.peers}

        def transmit(name: ControllerName, message: CallMessage) -> bool:
            peer = members.get(name)
            return peer is not None and self.transmit(peer, message)

        self.calls.carry(transmit)

    # --- network -> library ---

    def deliver(self, peer: Member, message: Message) -> None:
        """A message of an authenticated peer. Raises ``ProtocolError``: close the link."""
        if peer not in self.peers and not self._may_be_heard(message):
            return
        match message:
            case Append():
                self._on_append(peer, message)
            case SnapshotPiece():
                self._on_piece(peer, message)
            case Answer():
                self._on_answer(peer, message)
            case RequestVote():
                self._on_request_vote(peer, message)
            case Vote():
                self._on_vote(peer, message)
            case TimeoutNow():
                self._on_timeout_now(peer, message)
            case StateDigests():
                self.digests_told[ControllerName(peer.name)] = dict(message.digests)
            case PeerRequest():
                self.calls.take_request(ControllerName(peer.name), message)
            case PeerResponse():
                self.calls.take_response(ControllerName(peer.name), message)
            case _:
                raise ProtocolError(f"{peer.name} sent {type(message).__name__}, which has no meaning here")

    def _may_be_heard(self, message: Message) -> bool:
        """
        Whether a message counts of one that is no member, by the log of this one.

        Either that one was removed, or this one has not heard yet that it was added.
        """
        journal = self._attached().journal
        match message:
            case Append() | SnapshotPiece():
                # Refused, a member that slept while {c1,c2,c3} became {c3,c5,c6} would hear nobody, and never learn it.
                return True
            case RequestVote():
                # A removed member lacks the entry that removed it, so its log is older than each that has it; heeded,
                # it would raise terms, and depose one leader after the other, for ever. One whose adding was missed
                # here has a newer log; refused, two of three could not elect.
                return (message.last_term, message.last_index) > (journal[-1][2], journal.last_index)
            case _:
                return False

    def _hand_over(self, peer: Member, message: dict[str, Any]) -> None:
        self._onMessageReceived(peer, message)

    def _on_request_vote(self, peer: Member, message: RequestVote) -> None:
        # Rule 7: before its disk was lost it may have voted in this very term; a second vote makes a second leader.
        if self._attached().catch_up is not None or self._is_bound():
            return
        if message.term < self._attached().internals.term:
            self._tell_term(peer)
            return
        self._hand_over(
            peer,
            {
                "type": "request_vote",
                "term": message.term,
                "last_log_index": message.last_index,
                "last_log_term": message.last_term,
            },
        )

    def _is_bound(self) -> bool:
        """Whether a leader that this member has answered may count on it (rule 9)."""
        # P11. c5 leads by c3; only the link between c5 and c6 is cut. Stock PySyncObj lets c3, which heard c5 20 ms
        # ago, vote for c6 all the same: c6 leads with authority, and c5 with its own for 280 ms more.
        return not self._attached().internals.is_leader and self._clock_ns() < self.bound_until_ns

    def _hear(self, term: int, *, is_confirmed: bool) -> None:
        """Note that a leader was heard; one that says no more that a majority answers it gives its authority up."""
        if term != self._heard_term:
            self._heard_term, self._heard_is_confirmed = term, False
        gives_up = self._heard_is_confirmed and not is_confirmed
        self._heard_is_confirmed |= is_confirmed
        # An earlier pledge may be the longer one.
        until_ns = self._pledge_from(self._clock_ns(), self._attached().pledged_ms)
        self.bound_until_ns = 0 if gives_up else max(self.bound_until_ns, until_ns)

    def _pledge_from(self, at_ns: int, pledged_ms: int) -> int:
        """The end of a pledge; a peer's, too, which must not be authority without an end."""
        pledged_ns = min(pledged_ms, ELECTION_TIMEOUT_MS_MAX) * 1_000_000
        return at_ns + max(self._attached().election_timeout_ns_min, pledged_ns)

    def _asked(self, message: Append | SnapshotPiece) -> _Asked:
        return _Asked(message.term, message.sent_ns, self._attached().pledged_ms)

    def _on_vote(self, peer: Member, message: Vote) -> None:
        self._enter_term(self._attached().internals.term)
        # P8. Stock PySyncObj counts votes, not voters: of five members c1 leads by its own vote and c2's, delivered
        # twice.
        if message.term != self._term or peer in self._voted or peer not in self.voters:
            return
        self._voted.add(peer)
        self._hand_over(peer, {"type": "response_vote", "term": message.term})

    def _on_timeout_now(self, peer: Member, message: TimeoutNow) -> None:
        node = self._attached()
        internals = node.internals
        # With another term it is late: its sender leads no more, and a leader that all follow would be deposed. A
        # member without memory would stand on a log that lacks what it acknowledged (rule 7), one that is no voter
        # would count itself.
        if not node.is_electable or message.term != internals.term or internals.leader != peer:
            return
        self._hand_over(peer, {"type": "timeout_now", "term": message.term})

    def _on_append(self, peer: Member, message: Append) -> None:
        node = self._attached()
        # No answer to an older term: its leader stands down when its majority stays silent, ``raft_fallback_ms`` later.
        if message.term < node.internals.term:
            self._tell_term(peer)
            return
        self._require_follower(peer, message.term)
        self._hear(message.term, is_confirmed=message.confirmed_ns > 0)
        self._answering = self._asked(message)
        try:
            self._append(peer, message)
        finally:
            self._answering = None
        if node.catch_up is not None and node.catch_up.observe(
            leader=peer.ordinal,
            term=message.term,
            sent_ns=message.sent_ns,
            confirmed_ns=message.confirmed_ns,
            last_index=message.last_index,
            applied_index=node.internals.last_applied,
        ):
            node.caught_up()

    def _tell_term(self, peer: Member) -> None:
        """To one that leads or stands in an older term, and will not hear of this one's by a request for a vote."""
        # By {c1,c2,c3}, which are gone, c3 has stood in 14 and asked nobody else; the leader of {c3,c5,c6} in 11 would
        # never hear of 14, and c3 never follow it. And c6, which does not stand because it has no vote yet, was raised
        # to 17 by c1, of whose removal it has not got the entry: it would refuse its leader of 16 for ever. And c5,
        # which may lead by c6's vote alone, would stand in 15 while c1 stands in 17, in 16 while c1 stands in 18, for
        # ever. A request that counts for nothing raises their term.
        node = self._attached()
        if peer not in self.peers or not node.is_electable:
            node.journal.sync()
            last_index, last_term = node.journal.last_index, node.journal[-1][2]
            self.transmit(peer, RequestVote(term=node.internals.term, last_index=last_index, last_term=last_term))

    def _require_follower(self, peer: Member, term: int) -> None:
        # Two leaders of one term: somebody has forgotten a vote. The library would follow without a word and cut its
        # own entries, which its callers may have been told are committed.
        internals = self._attached().internals
        if internals.is_leader and internals.term == term:
            raise ProtocolError(f"{peer.name} claims to lead term {term}, in which this node was elected")

    def _append(self, peer: Member, message: Append) -> None:
        """
        Hand over what is new of ``message``, and acknowledge what was compared (rule 3).

        Stock PySyncObj cuts its log behind ``previous_index`` even where it agrees, and adds the entries again. Its
        leader sends what is in flight again, in several messages: between them the log ends before entries that this
        node has acknowledged. If the leader's machine dies in such a moment, committed entries are gone (9 of 14).
        """
        journal = self._attached().journal
        previous, entries = message.previous_index, message.entries
        is_comparable = previous < journal.last_index and journal.term_at(previous) == message.previous_term
        known = 0
        if is_comparable:
            while known < len(entries) and journal.term_at(entries[known][1]) == entries[known][2]:
                known += 1
        compared = previous + known
        library_message: dict[str, Any] = {
            "type": "append_entries",
            "term": message.term,
            # Behind ``compared`` may stand this node's own dead tail: the leader has committed up to 120, compared is
            # 100, and 101 to 120 have an old term. Committed by that number, they would be applied here alone.
            "commit_index": min(message.commit_index, compared),
        }
        if is_comparable and known == len(entries) and compared < journal.last_index:
            # All of it is here already: the library hears a heartbeat, and cuts nothing. What follows in the log was
            # not compared; acknowledging it too could commit an entry of a dead term by this node's copy of another
            # one.
            self._hand_over(peer, library_message)
            self._answer(peer, next_index=compared + 1, is_success=True, is_reset=False)
            return
        # From here on the log will end with the last entry of this message, and the library commits no further than
        # that.
        library_message["commit_index"] = message.commit_index
        library_message["prevLogIdx"] = compared
        library_message["prevLogTerm"] = entries[known - 1][2] if known else message.previous_term
        library_message["entries"] = entries[known:]
        self._hand_over(peer, library_message)
        self._attached().look_at_members()

    def _on_piece(self, peer: Member, message: SnapshotPiece) -> None:
        """
        Take a piece of a snapshot, and install it with the last one (rule 5).

        Stock PySyncObj sends the commit index with each piece. A leader that was cut off with 20 entries of its own
        comes back, takes the first piece, commits those 20 and tells their callers SUCCESS; the last piece takes them
        away.
        """
        node = self._attached()
        if message.term < node.internals.term:
            self._tell_term(peer)
            return
        self._require_follower(peer, message.term)
        self._hear(message.term, is_confirmed=True)
        self._hand_over(peer, {"type": "append_entries", "term": message.term, "commit_index": 0, "serialized": None})
        self._answering = self._asked(message)
        try:
            snapshot = node.store.receive(message.piece) if message.piece is not None else None
            if snapshot is None:
                # An answer to each piece: else a leader that sends one for two seconds hears nobody and stands down.
                self._answer(peer, next_index=1, is_success=False, is_reset=False)
            else:
                self._answer(peer, next_index=node.install(snapshot) + 1, is_success=True, is_reset=False)
        except SnapshotDamagedError as error:
            # Stock PySyncObj logs it, keeps its old state and answers success: a hole in its state for ever.
            raise ProtocolError(f"{peer.name} sent a snapshot that is damaged: {error}") from error
        finally:
            self._answering = None

    def _on_answer(self, peer: Member, message: Answer) -> None:
        """Count an answer for authority, commit and send position, as far as it may count (rules 4, 6 and 7)."""
        internals = self._attached().internals
        self._enter_term(internals.term)
        last_index = self._attached().journal.last_index
        # A stamp from the future would be authority that never ends. A success beyond the log's end would count for
        # entries that do not exist yet: at 500 "900 is here", and the next 400 entries commit without anybody else.
        is_impossible = message.sent_ns > self._newest_stamp_ns or (
            message.is_success and message.next_index > last_index + 1
        )
        if not internals.is_leader or message.term != internals.term or is_impossible:
            # R5 (P8). Elected in 3, deposed, elected again in 5 with another entry at 500: the late answer "500 is
            # here" of term 3 is about the other entry. Stock answers carry no term and count.
            self.dropped_answers += 1
            return
        # Fifty appends in flight to a follower with a conflict bring fifty resets; each would send everything again.
        is_reset = message.is_reset and message.sent_ns > self._reset_ns.get(peer, 0)
        # Not 1: every log has entry 1, and nothing stands before it that an append could name.
        next_index = max(2, min(message.next_index, last_index + 1))
        if is_reset:
            self._reset_ns[peer] = self._newest_stamp_ns
            internals.send_appends_soon()
        if not message.is_voter:
            # Rule 7: it may say where to go on; the library never hears that it answered.
            if is_reset:
                internals.next_index[peer] = next_index
            return
        if message.sent_ns > self._given_up_ns:
            self._answered_ns[peer] = max(self._answered_ns.get(peer, 0), message.sent_ns)
            until_ns = self._pledge_from(message.sent_ns, message.pledged_ms)
            self._pledged_ns[peer] = max(self._pledged_ns.get(peer, 0), until_ns)
        position = internals.next_index.get(peer, 0)
        self._hand_over(
            peer,
            {
                "type": "next_node_idx",
                "next_node_idx": next_index,
                "reset": is_reset,
                "success": message.is_success,
            },
        )
        # Rule 4. Stock PySyncObj goes back to each index that is acknowledged and sends all that is in flight again,
        # which is what makes its followers cut.
        if not is_reset:
            internals.next_index[peer] = max(position, internals.next_index.get(peer, 0))
