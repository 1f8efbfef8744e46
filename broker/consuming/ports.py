"""
What the rooms that serve consumers ask of the replica around them.

Here: appends of the broker itself, the replica's place in its set. Not here: the folds (``broker.folds.ports``), the
listen port (``broker.handlers``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from rollcall_ha.controller.contract.ids import MasterEpoch


class Standing(Protocol):
    """The replica's place in its set, as of now."""

    @property
    def is_master(self) -> bool:
        """Whether it serves as master: appends of the broker itself can be tried."""
        ...

    @property
    def cluster(self) -> str: ...

    @property
    def broker_name(self) -> str: ...

    @property
    def master_epoch(self) -> MasterEpoch:
        """The newest one that it knows."""
        ...

    @property
    def serves_reads(self) -> bool:
        """Whether consumers may read here."""
        ...


class Appender(Protocol):
    """Appends messages that the broker itself writes: offsets, retries."""

    def append(
        self, topic: bytes, queue_id: int, body: bytes, properties: bytes, on_outcome: Callable[[str], None]
    ) -> None:
        """
        Append one message as any send, with the guards and acknowledgements of sends.

        ``on_outcome`` runs once, on the loop, perhaps before this returns: empty = confirmed, else why it is not known
        to be (refused, or its epoch ended).
        """
        ...
