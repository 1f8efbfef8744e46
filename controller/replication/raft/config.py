"""
The library's configuration, made from ``contract.timing``, and the limits that go with it.

Here: numbers and why. Not here: where journal and snapshot go (``journal``,
``snapshot``).
"""

from __future__ import annotations

from pysyncobj import SyncObjConf

from rollcall_ha.controller.contract.timing import Timing

TICK_SECONDS = 0.02
"""Longest pause between two ticks; sockets and proposals end it at once."""

APPEND_BATCH_BYTES = 4 * 1024 * 1024
"""One append. Above any entry: the library sends a longer one in pieces of a pickle. Below ``FRAME_BYTES_MAX``."""

COMPACTION_SECONDS = 600

JOURNAL_BYTES_MAX = 32 * 1024 * 1024
"""A longer journal is compacted at once: it is all in memory, and a follower that fell behind is sent it as a whole."""

PROPOSALS_QUEUED_MAX = 1_000
"""Entries that wait for the raft thread; the proposer has two in flight."""

FAILED_TICKS_MAX = 50
"""Failing ticks in a row after which the process ends."""


def library_configuration(timing: Timing, *, compaction_entries: int) -> SyncObjConf:
    """The library asserts that the timing is consistent; ``Timing.violations`` says it in words, and earlier."""
    return SyncObjConf(
        autoTick=False,
        autoTickPeriod=TICK_SECONDS,
        # A new entry leaves at once: batching is the proposer's business, not a timer's.
        appendEntriesUseBatch=False,
        appendEntriesPeriod=timing.raft_append_period_ms / 1000,
        appendEntriesBatchSizeBytes=APPEND_BATCH_BYTES,
        raftMinTimeout=timing.raft_election_timeout_ms_min / 1000,
        raftMaxTimeout=timing.raft_election_timeout_ms_max / 1000,
        # How long an isolated leader goes on; stock: 30 s. Authority is computed apart and ends earlier (R5).
        leaderFallbackTimeout=timing.raft_fallback_ms / 1000,
        connectionTimeout=timing.raft_connection_timeout_ms / 1000,
        # True: a command waits for a leader in a queue, without end, and runs when its caller has long given up.
        commandsWaitLeader=False,
        # Stock PySyncObj forgets that a change is under way: two at once can make two majorities. Members are fixed
        # here.
        dynamicMembershipChange=False,
        logCompactionMinEntries=compaction_entries,
        logCompactionMinTime=COMPACTION_SECONDS,
        # Both are replaced by our own before the first tick; None keeps the library away from files.
        journalFile=None,
        fullDumpFile=None,
        useFork=False,
    )
