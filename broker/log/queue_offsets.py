"""
Next offset of every queue, in memory: a fold of the log (its value depends on the log's records alone).

Here: the table. Not here: reading the log (``log_index``).

Rule 1 (R19): rebuilt before the first append of a new master, cut with the log.
Rule 2: within a queue offsets count from 0 without a hole, so cutting a record makes its offset the next one again; the
table after a cut equals the table of a log that never had the cut records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

QueueKey = tuple[bytes, int]
"""Topic and queue id."""


class QueueOffsets:
    """The table. Driven by one thread: the loop of the broker."""

    __slots__ = ("_first", "_next")

    def __init__(self) -> None:
        """The table of an empty log."""
        self._next: dict[QueueKey, int] = {}
        self._first: dict[QueueKey, int] = {}

    def take(self, topic: bytes, queue_id: int, count: int = 1) -> int:
        """The offset of a record that is being appended, the first of ``count``; each next one is one higher."""
        key = (topic, queue_id)
        offset = self._next.get(key)
        if offset is None:
            offset = 0
            self._first[key] = 0
        self._next[key] = offset + count
        return offset

    def give_back(self, topic: bytes, queue_id: int, offset: int) -> None:
        """The record that took ``offset``, and what was taken behind it in its queue, is not in the log (rule 2)."""
        key = (topic, queue_id)
        # The only record of its queue: forgotten, not set to 0, or ``has`` would name a queue that no record has. One
        # that had records before the log's beginning keeps its number: a consumer stands there (R19).
        if offset <= 0:
            self._next.pop(key, None)
            self._first.pop(key, None)
        elif offset < self._next.get(key, 0):
            self._next[key] = offset

    def fold(self, topic: bytes, queue_id: int, queue_offset: int) -> None:
        """A record with this offset follows in the log."""
        key = (topic, queue_id)
        if key not in self._first:
            self._first[key] = queue_offset
        self._next[key] = queue_offset + 1

    def tell(self, topic: bytes, queue_id: int, following: int) -> None:
        """A record says where the queue went on when it was written; only news where no record of it is left."""
        self._first.setdefault((topic, queue_id), following)
        self._next.setdefault((topic, queue_id), following)

    def min_offset(self, topic: bytes, queue_id: int) -> int:
        """Lowest offset in the log; 0 for a queue without records."""
        return self._first.get((topic, queue_id), 0)

    def max_offset(self, topic: bytes, queue_id: int) -> int:
        """Where the queue ends; 0 for a queue without records."""
        return self._next.get((topic, queue_id), 0)

    def has(self, topic: bytes, queue_id: int) -> bool:
        """Whether any record of this queue is in the log."""
        return (topic, queue_id) in self._next

    def __len__(self) -> int:
        """How many queues have records."""
        return len(self._next)

    def clear(self) -> None:
        self._next.clear()
        self._first.clear()

    def rows(self) -> Iterator[tuple[bytes, int, int, int]]:
        """(topic, queue id, first, next), sorted."""
        for (topic, queue_id), following in sorted(self._next.items()):
            yield topic, queue_id, self._first[topic, queue_id], following

    def load(self, rows: Iterable[tuple[bytes, int, int, int]]) -> None:
        """Replace the table by ``rows`` of an earlier one."""
        self.clear()
        for topic, queue_id, first, following in rows:
            self._first[topic, queue_id] = first
            self._next[topic, queue_id] = following
