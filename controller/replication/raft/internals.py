"""
Every private name of PySyncObj that we touch, typed, in one place.

Rule: the names were checked with one release, and ``require_known_release`` runs before anything else. Whether a newer
release can be taken is told by this page and by ``tests/unit/test_replication_stock_faults.py``.

Overridden in ``node`` besides: ``_SyncObj__doApplyCommand``, ``_SyncObj__generateRaftTimeout``,
``_SyncObj__sendAppendEntries``, ``_checkCommandsToApply``.
"""

from __future__ import annotations

import math
import os
from typing import Any

from pysyncobj import syncobj as library_module
from pysyncobj.node import Node
from pysyncobj.version import VERSION

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.replication.ports import RaftRole

KNOWN_RELEASE = "0.3.17"

_ROLES = (RaftRole.FOLLOWER, RaftRole.CANDIDATE, RaftRole.LEADER)


class LibraryVersionError(RuntimeError):
    """Another release of PySyncObj is installed than the one whose private names we know."""


def require_known_release(found: str = VERSION) -> None:
    if found != KNOWN_RELEASE:
        raise LibraryVersionError(
            f"PySyncObj {found} is installed, this program needs exactly {KNOWN_RELEASE}: install it as pinned"
        )


class Member(Node):  # type: ignore[misc]
    """
    One member of the group, as the library knows it.

    Hashed by its ordinal: the library iterates sets of members, and their order must not depend on the hash seed.
    """

    def __init__(self, name: ControllerName, ordinal: int, address: str) -> None:
        """``ordinal``: position among the sorted names."""
        super().__init__(name)
        self.name = name
        self.ordinal = ordinal
        self.address = address

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Member) and other.name == self.name

    def __hash__(self) -> int:
        return self.ordinal

    def __repr__(self) -> str:
        return f"Member({self.name})"


class Internals:
    """The private state of a ``SyncObj``."""

    def __init__(self, library: Any) -> None:
        self._library = library

    @property
    def term(self) -> int:
        return int(self._library._SyncObj__raftCurrentTerm)

    @property
    def role(self) -> RaftRole:
        return _ROLES[self._library._SyncObj__raftState]

    @property
    def is_leader(self) -> bool:
        return self.role is RaftRole.LEADER

    @property
    def leader(self) -> Member | None:
        leader: Member | None = self._library._SyncObj__raftLeader
        return leader

    @property
    def commit_index(self) -> int:
        return int(self._library._SyncObj__raftCommitIndex)

    @property
    def last_applied(self) -> int:
        return int(self._library._SyncObj__raftLastApplied)

    @property
    def next_index(self) -> dict[Member, int]:
        """Per peer, the index of the entry that a leader sends next."""
        next_index: dict[Member, int] = self._library._SyncObj__raftNextIndex
        return next_index

    @property
    def match_index(self) -> dict[Member, int]:
        """Per peer, the index up to which it has acknowledged this leader's log."""
        match_index: dict[Member, int] = self._library._SyncObj__raftMatchIndex
        return match_index

    def adopt_members(self, voters: set[Member], learners: set[Member], last_index: int) -> None:
        """The other members: those that are counted, and those that only take entries."""
        library = self._library
        for peer in (voters | learners) - set(library._SyncObj__raftNextIndex):
            library._SyncObj__raftNextIndex[peer] = last_index + 1
            library._SyncObj__raftMatchIndex[peer] = 0
        # Without an answer that is old enough to count, a leader that adds a voter would stand down at once.
        for peer in (voters - library._SyncObj__otherNodes) | learners:
            library._SyncObj__lastResponseTime[peer] = library.library_now()
        for peer in (library._SyncObj__otherNodes | library._SyncObj__readonlyNodes) - voters - learners:
            for kept in ("NextIndex", "MatchIndex"):
                getattr(library, f"_SyncObj__raft{kept}").pop(peer, None)
            library._SyncObj__lastResponseTime.pop(peer, None)
        library._SyncObj__otherNodes = voters
        library._SyncObj__readonlyNodes = learners

    def adopt_log(self, journal: Any, serializer: Any) -> None:
        """Put our journal and snapshots in place of the library's, before its first tick."""
        library = self._library
        library._SyncObj__raftLog = journal
        library._SyncObj__serializer = serializer
        library._SyncObj__needLoadDumpFile = False
        # A term that an entry shows was this node's term once. The vote on record belongs to a lower one then: kept, it
        # would count as this node's vote in the higher term, and nobody else would get one.
        library._SyncObj__raftCurrentTerm = max(journal.getCurrentTerm(), journal[-1][2])
        library._SyncObj__votedForNodeId = journal.getVotedForNodeId()
        if library._SyncObj__raftCurrentTerm > journal.getCurrentTerm():
            library._SyncObj__votedForNodeId = None
        library._SyncObj__raftCommitIndex = journal.getRaftCommitIndex()

    def adopt_snapshot(self, index: int, last_index: int) -> None:
        """The state of ``index`` is in place; the log ends at ``last_index``."""
        # Not beyond the log's end: the library would apply later entries as committed.
        library = self._library
        library._SyncObj__raftLastApplied = index
        library._SyncObj__raftCommitIndex = max(index, min(self.commit_index, last_index))

    def adopt_poller(self, poller: Any) -> None:
        """Replace poller and wake-up pipe, whose two descriptors the library never closes."""
        notifier = self._library.__dict__.pop("_SyncObj__pipeNotifier", None)
        if notifier is not None:
            os.close(notifier._PipeNotifier__pipeR)
            os.close(notifier._PipeNotifier__pipeW)
        self._library._poller = poller

    def hold_election(self) -> None:
        """Do not stand for election. To be called before each tick, because every append sets a deadline again."""
        self._library._SyncObj__raftElectionDeadline = math.inf

    def expect_leader(self) -> None:
        """Begin an election timeout now."""
        library = self._library
        library._SyncObj__raftElectionDeadline = library.library_now() + library._SyncObj__generateRaftTimeout()

    def defer_election(self) -> None:
        """Begin an election timeout now, if one runs; one of 0 is an order of the leader to stand."""
        if 0 < self._library._SyncObj__raftElectionDeadline < math.inf:
            self.expect_leader()

    def stand_not_within(self, wait_ns: int) -> None:
        """Wait at least ``wait_ns`` from now on, and then as long as those that stand with it do not."""
        # A duration, for the library has a clock of its own (CLOCK_MONOTONIC_RAW), which nobody slews. Taken for an
        # instant of it, the end of a pledge lay minutes ahead after weeks, and so long a dead leader had no successor.
        library = self._library
        until_s = library.library_now() + wait_ns / 1e9
        if wait_ns > 0 and 0 < library._SyncObj__raftElectionDeadline < until_s:
            library._SyncObj__raftElectionDeadline = until_s + library._SyncObj__generateRaftTimeout()

    def stand_after(self, wait_ns: int) -> None:
        """Wait ``wait_ns`` from now on, if an election timeout runs."""
        library = self._library
        if 0 < library._SyncObj__raftElectionDeadline < math.inf:
            library._SyncObj__raftElectionDeadline = library.library_now() + wait_ns / 1e9

    def stand_down(self) -> None:
        """Follow nobody, and wait for a leader as any other follower does."""
        # As the library's own fallback; without the new timeout it would stand again with the next tick.
        self._library._SyncObj__setState(library_module._RAFT_STATE.FOLLOWER)
        self._library._SyncObj__raftLeader = None
        self.expect_leader()

    def is_connected(self, peer: Member) -> bool:
        return peer in self._library._SyncObj__connectedNodes

    def appends_sent(self) -> None:
        """The next heartbeat is a period away."""
        library = self._library
        library._SyncObj__newAppendEntriesTime = library.library_now() + library.conf.appendEntriesPeriod

    def send_appends_soon(self) -> None:
        """Send with the next tick instead of the next heartbeat."""
        self._library._SyncObj__newAppendEntriesTime = 0
