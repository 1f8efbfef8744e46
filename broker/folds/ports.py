"""
What the folds of a log offer to the rooms that read it, and what they ask of the log.

A fold is what a broker knows because of the records of its log, up to confirm: consume queues, the key index. It is the
same on a master and on its slaves, a cut takes it back, and it can always be built anew from the log (adr/0033).

Rule 1: a record is visible when its end is at or below confirm. A reader that saw more would act on a message that a
failover takes back.
Rule 2: everything here runs on the loop thread and returns at once, except what says *Blocking*.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from rollcall_ha.controller.contract.values import Frozen

QueueKey = tuple[bytes, int]
"""Topic and queue id."""


class FoldSizes(Frozen):
    """Sizes of the folds' files; the defaults are RocketMQ's, whose tools expect them."""

    queue_units: int = 300_000
    """Of one file of a consume queue."""
    index_slots: int = 5_000_000
    index_units: int = 20_000_000


class Queue(Protocol):
    """The consume queue of one (topic, queue id): where its visible records lie in the log."""

    @property
    def min_offset(self) -> int:
        """Lowest queue offset that can be read."""
        ...

    @property
    def max_offset(self) -> int:
        """The queue offset that the next visible record will have."""
        ...

    def units(self, start: int, count_max: int) -> bytes:
        """
        Units of 20 bytes, in RocketMQ's format (int64 physical offset, int32 size, int64 tags code), from the queue
        offset ``start`` on: at most ``count_max``, perhaps fewer, none outside of [``min_offset``, ``max_offset``).

        Raises ``OSError``.
        """
        ...


class Folds(Protocol):
    """All folds of one replica and the bytes of its log, as a reader meets them."""

    def queue(self, topic: bytes, queue_id: int) -> Queue | None:
        """None: no visible record has been in it, or the folds are not whole (``catch_up`` says which)."""
        ...

    def queue_ids(self, topic: bytes) -> Sequence[int]:
        """Ids of the topic's queues that have had visible records, ascending; empty = the topic is not known."""
        ...

    @property
    def knows_all(self) -> bool:
        """Whether a queue that is not known never was: also of a log that has lost its front by age."""
        ...

    def topic_names(self) -> Collection[bytes]:
        """Topics that have had visible records."""
        ...

    def catch_up(self) -> int:
        """
        Take in what is confirmed, within one budget; returns how many confirmed bytes are left.

        0: all is in. Above 0 the folds are behind, are being built anew, or rest while the log is cut: a reader that
        finds nothing, or an end that is too low, must answer "busy", never "there is nothing".
        """
        ...

    def subscribe_grown(self, on_grown: Callable[[Sequence[QueueKey]], None]) -> None:
        """``on_grown`` runs once per batch that was taken in, with the queues that have new records."""
        ...

    @property
    def min_offset(self) -> int: ...

    @property
    def confirm_offset(self) -> int: ...

    def record(self, offset: int, size: int) -> memoryview | None:
        """
        The record at ``offset``, in place: release it within this turn. None: it is not there any more.
        """
        ...
