"""
A leader that has a follower take over: dissertation of Raft, 3.10.

Here: one transfer, from the order to its end. Not here: which follower (``controller.runtime.transfers``), what the
follower does with the message (``repairs``).

Rule 1: while a transfer is under way nothing new is proposed; what waits is proposed when it is given up, or told that
this controller does not lead.
Rule 2: the follower is asked when it has every entry and all of them are committed, so that nobody waits for an answer.
Rule 3: a leader that has asked has no authority in its term any more, and is seen without it BEFORE the message leaves:
the follower is elected without waiting for anybody's election timeout, which is what authority counts on (R5).
Rule 4: a leader that has asked never takes its lead back. If nobody has deposed it at the deadline, it stands down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.ports import HandoverEnd
from rollcall_ha.controller.replication.raft.internals import Internals, Member
from rollcall_ha.controller.replication.raft.journal import DurableJournal
from rollcall_ha.controller.replication.raft.messages import TimeoutNow
from rollcall_ha.controller.replication.raft.repairs import RepairedTransport

ASK_MS_MAX = 300
"""How long the follower may take to hold every entry; nothing is proposed meanwhile. As long as ``stretch`` says."""
DEPOSED_MS_MAX = 300
"""How long it may take to be heard as a candidate; the same."""

Done = Callable[[HandoverEnd], None]


class HandingNode(Protocol):
    """The node as a transfer sees it."""

    internals: Internals
    journal: DurableJournal
    transport: RepairedTransport


class Handover:
    """One transfer of one leader; all in the raft thread."""

    def __init__(self, node: HandingNode, target: ControllerName, done: Done, *, now_ns: int) -> None:
        self._node = node
        self._name = target
        self._done = done
        self._term = node.internals.term
        self._deadline_ns = now_ns + ASK_MS_MAX * node.transport.stretch * 1_000_000
        self._has_asked = False
        self._stood_down = False
        self.yields = False
        """Authority is given up (rule 3)."""

    def advance(self, now_ns: int) -> bool:
        """Go on, once per tick; False when it is over."""
        internals = self._node.internals
        if not internals.is_leader or internals.term != self._term:
            return self._end(HandoverEnd.STOOD_DOWN if self._stood_down else HandoverEnd.DEPOSED)
        if self._has_asked:
            if now_ns < self._deadline_ns:
                return True
            # Rule 4. The message may lie on a slow link: leading on with authority, this controller would answer while
            # the other one, elected by it a second later, answers too.
            internals.stand_down()
            self._stood_down = True
            return True
        target = next((peer for peer in self._node.transport.voters if peer.name == self._name), None)
        if target is None or now_ns >= self._deadline_ns:
            return self._end(HandoverEnd.NOT_CAUGHT_UP)
        if not self._is_ready(target):
            self.yields = False
            return True
        if not self.yields:
            # Other threads see it between two ticks, and the other members with this one, or they would not vote for
            # the successor (rule 9 of ``repairs``); the message leaves with the next one.
            self.yields = True
            internals.send_appends_soon()
        elif self._node.transport.transmit(target, TimeoutNow(term=self._term)):
            self._has_asked = True
            self._deadline_ns = now_ns + DEPOSED_MS_MAX * self._node.transport.stretch * 1_000_000
        return True

    def give_up(self) -> None:
        """The node stops."""
        self._end(HandoverEnd.NOT_CAUGHT_UP)

    def _is_ready(self, target: Member) -> bool:
        """Whether it has every entry, and all of them are committed (rule 2)."""
        internals, last_index = self._node.internals, self._node.journal.last_index
        # Asked one entry early, it stands with a shorter log than this one's, gets no vote of those that have it, and
        # the fleet has no leader until the next timeout.
        return internals.match_index.get(target, 0) == last_index == internals.last_applied

    def _end(self, how: HandoverEnd) -> bool:
        self._done(how)
        return False
