"""
What deliveries ask of the replica around them.

Here: its place in the set, what was delivered, appends of runs. Not here: consume queues and records
(``broker.folds.ports``), the rooms of consumers (``broker.consuming``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from rollcall_ha.broker.folds.ports import Folds, Records
from rollcall_ha.broker.log.record import Draft


class Reigning(Protocol):
    """The replica's place in its set, as of now."""

    @property
    def is_master(self) -> bool:
        """Whether it serves as master: appends of the broker itself can be tried."""
        ...

    @property
    def master_epoch(self) -> int:
        """Of the reign, if it is master."""
        ...


class Delivered(Protocol):
    """What the log says of deliveries, up to confirm."""

    @property
    def following(self) -> Sequence[int]:
        """By level, from 0: the offset in its queue of the next one to deliver."""
        ...


class DeliveryFolds(Folds, Records, Protocol):
    """The folds and records of one replica."""

    @property
    def delivered(self) -> Delivered: ...


class Appender(Protocol):
    """Appends messages that the broker itself writes."""

    def refusal(self) -> str:
        """Why nothing would be appended now, whatever it is; empty: it would."""
        ...

    def append_run(self, drafts: Sequence[Draft], on_outcome: Callable[[str], None]) -> str:
        """
        Append all of them, in one segment, or none.

        Returns why none is in the log, for certain. Empty: all are, and ``on_outcome`` runs once, in a later turn of
        the loop: empty = confirmed, else why it is not known whether they will be.
        """
        ...
