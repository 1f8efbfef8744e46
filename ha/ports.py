"""
What HA needs from the replica that it serves.

Implemented by ``broker.log`` (``ReplicaLog``) and by fakes in ``tests.support``, which are tested against the real
one.
Rule 1: all methods are called on the broker's loop thread and return at once; what may block is asked for by an
action
of the role machine and answered by an input.
Rule 2: a view handed out by ``receive_view`` is released before any other call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from epoch.history import EpochHistory
from epoch.model import LogOffset


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRegion:
    """Bytes of the log as a part of one file, for ``os.sendfile``. Valid until the next truncation."""

    fd: int
    position: int
    length: int


class ReplicaLog(Protocol):
    """A commit log as a sequence of bytes with an epoch history."""

    @property
    def min_offset(self) -> LogOffset:
        """First byte that is still there."""
        ...

    @property
    def max_offset(self) -> LogOffset:
        """End of the log: everything before it is in the map, not necessarily synced."""
        ...

    @property
    def history(self) -> EpochHistory:
        """Epochs of the bytes that are there."""
        ...

    def region(self, offset: LogOffset, length_max: int) -> FileRegion | None:
        """Bytes from ``offset`` on, cut at the end of the log and of the segment; None if there are none."""
        ...

    def receive_view(self, length_max: int) -> memoryview:
        """
        Writable bytes at ``max_offset``, cut at the end of the segment; never empty. Raises ``OSError`` if the disk
        is full.
        """
        ...

    def commit_received(self, length: int) -> None:
        """The first ``length`` bytes of the last view are now part of the log."""
        ...

    def is_record_boundary(self, offset: LogOffset) -> bool:
        """Whether a record starts at ``offset``, or it is the end of the log."""
        ...
