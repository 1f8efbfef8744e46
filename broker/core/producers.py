"""
Idempotent sends (R18): the producers that number their messages, as the log shows them.

Here: the table, a pure fold of the records of the last ``WINDOW_BYTES`` of the log, and its verdicts. Not here: where
the stamp lies in a record (``broker.protocol.stamp``), reading the log (``broker.log.log_index``).

Rule 1: folding a whole log gives the same table as folding only its records at or above ``window_start`` of its end, so
the table is rebuilt in bounded time after a cut or a start. It therefore forgets by log distance, never by time.
Rule 2: sequences of one (producer, producer epoch) are accepted without a gap, from 0; a duplicate is one of those in
the window. A higher producer epoch starts again at 0 and ends the lower one.
A batch is one run of sequences, one for each of its messages, and it is judged by its first.
Rule 3: a sequence that the window has forgotten is neither accepted nor called a duplicate. The exception is sequence 0
of a producer that the window does not know: it is a new one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from enum import Enum

import msgspec

from rollcall_ha.epoch.model import LogOffset

WINDOW_BYTES = 64 * 1024 * 1024
"""How far back in the log a duplicate is recognised."""

BUCKET_BYTES = 1024 * 1024
"""The window moves in steps of this size: so at most 65 numbers are kept per producer."""


class ProducerStamp(msgspec.Struct, frozen=True):
    """Which message of which producer this is: drawn and counted by the client, carried in the record's properties."""

    producer_id: bytes
    producer_epoch: int
    sequence: int


class SequenceVerdict(Enum):
    """Verdict on a stamped send."""

    ACCEPT = "accept"
    DUPLICATE = "duplicate"
    """It is in the log: answer once its original is released, append nothing."""
    GAP = "gap"
    OLD = "old"
    UNKNOWN = "unknown"


class _Producer:
    """One producer: ``firsts`` holds (bucket, lowest sequence of that bucket) in rising order."""

    __slots__ = ("epoch", "firsts", "last_sequence")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.last_sequence = -1
        self.firsts: deque[tuple[int, int]] = deque()


def window_start(end: LogOffset) -> LogOffset:
    """Records that begin at or above this offset are in the window of a log that ends at ``end``."""
    return LogOffset(max(0, (end // BUCKET_BYTES - WINDOW_BYTES // BUCKET_BYTES) * BUCKET_BYTES))


class ProducerTable:
    """The table. Driven by one thread: the loop of the broker."""

    def __init__(self) -> None:
        """An empty table is the fold of an empty log."""
        self._producers: dict[bytes, _Producer] = {}
        self._buckets: dict[int, set[bytes]] = {}
        """Producers with a record in that bucket of the log, rising."""
        self._bucket = -1
        """Bucket of the last folded record, or of the end."""

    def __len__(self) -> int:
        """Number of producers in the window."""
        return len(self._producers)

    def judge(self, stamp: ProducerStamp) -> SequenceVerdict:
        """Rules 2 and 3. Changes nothing: an accepted message is folded when it has its place in the log."""
        producer = self._producers.get(stamp.producer_id)
        if producer is None or stamp.producer_epoch > producer.epoch:
            if stamp.sequence == 0:
                return SequenceVerdict.ACCEPT
            # Sequence 7 of a producer that the window has forgotten may be in the log or not: accepted it could be
            # there twice, called a duplicate it could be nowhere.
            return SequenceVerdict.UNKNOWN if producer is None else SequenceVerdict.GAP
        # A producer that gave its numbers up for a higher epoch has told its callers "unknown" for the rest. Accepted
        # now, out of a slow socket, such a message would follow those that were sent after it.
        if stamp.producer_epoch < producer.epoch:
            return SequenceVerdict.OLD
        if stamp.sequence == producer.last_sequence + 1:
            return SequenceVerdict.ACCEPT
        # Sequence 9 after 7: 8 was refused or is still under way. With 9 in the log, 8 would look old when it comes.
        if stamp.sequence > producer.last_sequence:
            return SequenceVerdict.GAP
        return SequenceVerdict.DUPLICATE if stamp.sequence >= producer.firsts[0][1] else SequenceVerdict.OLD

    def known_of(self, stamp: ProducerStamp, count: int) -> int:
        """
        How many of ``count`` sequences from a duplicate on are in the log: its first ones, because there is no gap.

        A log that was cut inside of a batch has some of it. Taken for the whole, the others were lost although their
        sender heard PUT_OK; for nothing, the first ones were there twice.
        """
        return min(count, self._producers[stamp.producer_id].last_sequence - stamp.sequence + 1)

    def fold(self, stamp: ProducerStamp, offset: LogOffset, count: int = 1) -> None:
        """
        A record with ``stamp`` begins at ``offset``, and ``count - 1`` with the next sequences in the same bucket.

        Offsets rise from call to call; total: it judges nothing.
        """
        bucket = offset // BUCKET_BYTES
        if bucket != self._bucket:
            self._advance(bucket)
        producer = self._producers.get(stamp.producer_id)
        if producer is None or stamp.producer_epoch > producer.epoch:
            producer = self._producers[stamp.producer_id] = _Producer(stamp.producer_epoch)
        elif stamp.producer_epoch < producer.epoch or stamp.sequence <= producer.last_sequence:
            return
        elif stamp.sequence != producer.last_sequence + 1:
            # The log of another writer may have a gap. A range from before it would call the missing ones duplicates.
            producer.firsts.clear()
        producer.last_sequence = stamp.sequence + count - 1
        if not producer.firsts or producer.firsts[-1][0] != bucket:
            producer.firsts.append((bucket, stamp.sequence))
            self._buckets.setdefault(bucket, set()).add(stamp.producer_id)

    def fold_run(self, stamp: ProducerStamp, offsets: Sequence[int]) -> None:
        """Records with ``stamp`` and the next sequences begin at ``offsets``, which rise."""
        first = 0
        while first < len(offsets):
            following = (offsets[first] // BUCKET_BYTES + 1) * BUCKET_BYTES
            end = bisect_left(offsets, following, first)
            head = ProducerStamp(stamp.producer_id, stamp.producer_epoch, stamp.sequence + first)
            self.fold(head, LogOffset(offsets[first]), end - first)
            first = end

    def advance(self, end: LogOffset) -> None:
        """The log now ends at ``end``: forget the records that left the window (rule 1)."""
        bucket = end // BUCKET_BYTES
        if bucket != self._bucket:
            self._advance(bucket)

    def clear(self) -> None:
        """Start again, before a rebuild."""
        self._producers.clear()
        self._buckets.clear()
        self._bucket = -1

    def snapshot(self) -> dict[bytes, tuple[int, int, int]]:
        """(producer epoch, first known sequence, last sequence) by producer id; for tests and for display."""
        return {
            identity: (producer.epoch, producer.firsts[0][1], producer.last_sequence)
            for identity, producer in sorted(self._producers.items())
        }

    def _advance(self, bucket: int) -> None:
        """Move the window; the cost is that of the forgotten records."""
        self._bucket = bucket
        # By whole buckets of the log, on every replica at the same record: a new master whose table forgot later or
        # earlier than the old one would answer the same retry differently.
        lowest = bucket - WINDOW_BYTES // BUCKET_BYTES
        for old in [each for each in self._buckets if each < lowest]:
            for identity in sorted(self._buckets.pop(old)):
                producer = self._producers.get(identity)
                if producer is None:
                    continue
                while producer.firsts and producer.firsts[0][0] < lowest:
                    producer.firsts.popleft()
                if not producer.firsts:
                    del self._producers[identity]
