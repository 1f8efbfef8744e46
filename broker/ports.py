"""
The replica, as the rooms around it in a broker see it.

Here: appends of the broker itself, the replica's place in its set, and what all rooms share. Not here: the folds
(``broker.folds.ports``), the listen port (``broker.handlers``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from rollcall_ha.broker.folds.ports import Folds
from rollcall_ha.broker.log.record import Draft
from rollcall_ha.controller.contract.ids import MasterEpoch
from rollcall_ha.controller.contract.values import Frozen


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
        """Whether it answers consumers as their master."""
        ...

    @property
    def gives_as_slave(self) -> bool:
        """Whether consumers may read here all the same (``consuming.reads_core``)."""
        ...

    @property
    def knows_master(self) -> bool:
        """Whether another replica is the master, as far as this one has heard."""
        ...

    def next_reader(self, wished: int, *, is_far: bool) -> int:
        """Broker id for the next pull of a reader far behind or not; ``wished`` by its group's settings."""
        ...


class Appender(Protocol):
    """Appends messages that the broker itself writes: offsets, deliveries, what groups refused."""

    @property
    def full_disk(self) -> str:
        """Why the disk takes no sends of clients; empty: it does. The broker's own are taken."""
        ...

    def refusal(self) -> str:
        """Why nothing would be appended now, whatever it is; empty: it would."""
        ...

    def append(
        self, topic: bytes, queue_id: int, body: bytes, properties: bytes, on_outcome: Callable[[str], None]
    ) -> None:
        """
        Append one message as any send, with the guards and acknowledgements of sends.

        ``on_outcome`` runs once, on the loop, perhaps before this returns: empty = confirmed, else why it is not known
        to be (refused, or its epoch ended).
        """
        ...

    def append_run(self, drafts: Sequence[Draft], on_outcome: Callable[[str], None]) -> str:
        """
        Append all of them, in one segment, or none.

        Returns why none is in the log, for certain. Empty: all are, and ``on_outcome`` runs once, in a later turn of
        the loop: empty = confirmed, else why it is not known whether they will be.
        """
        ...


class Around(Frozen):
    """All that each room of one replica is given."""

    folds: Folds
    appender: Appender
    standing: Standing
    near_bytes: int
    """Records further behind confirm are not in memory."""
    now_ms: Callable[[], int]
    """A monotonic clock, ms."""
    on_damaged: Callable[[str], None]
    """Hears why a queue names other records than its own: it is to be built anew."""
    version: Callable[[int], Mapping[str, int]]
    """Makes RocketMQ's version of a table out of a count of its changes."""
