"""
Values that outlive a restart of a replica.

Here: the marks of its epochs, its identity, and how a mark may grow. Not here: files (``broker.replica_files``,
``broker.identity``).
Rule 1 (R9): marks never fall, and an epoch is promised before it is entered.
"""

from __future__ import annotations

import msgspec

from rollcall_ha.controller.contract.ids import BrokerId, ClusterName, Incarnation, MasterEpoch, RegisterCode, SetKey
from rollcall_ha.epoch.model import NO_EPOCH

STARTS_KEPT = 16
"""Starts that are remembered: after more of them in a row without a registration, a restart proves nothing (R3)."""


class EpochMarks(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The promised/entered mark of R9. ``NO_EPOCH`` = none yet."""

    promised: MasterEpoch = NO_EPOCH
    """Nothing of a lower epoch is applied, acked or served any more."""
    entered: MasterEpoch = NO_EPOCH
    """The newest epoch that this replica was master of."""

    def with_promised(self, epoch: MasterEpoch) -> EpochMarks:
        """Grown to ``epoch``; unchanged if it is there already."""
        return msgspec.structs.replace(self, promised=max(self.promised, epoch))

    def with_entered(self, epoch: MasterEpoch) -> EpochMarks:
        """Grown to ``epoch``, promise included."""
        return EpochMarks(promised=max(self.promised, epoch), entered=max(self.entered, epoch))

    def covers(self, other: EpochMarks) -> bool:
        """Whether going from ``other`` to this one lets no mark fall."""
        # ``entered <= promised``: an epoch that was entered without a promise could be entered by another one below it.
        return self.promised >= other.promised and self.entered >= other.entered and self.entered <= self.promised


class Identity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The name of this data directory. The code is stored before an id is asked for, the id before it is used (S62)."""

    cluster: ClusterName
    broker_name: str
    register_code: RegisterCode
    broker_id: BrokerId | None = None

    def belongs_to(self, set_key: SetKey) -> bool:
        """Whether it was drawn for this set: a directory never moves to another one."""
        return self.cluster == set_key.cluster and self.broker_name == set_key.name


class ProcessIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """This start of the process: drawn or read by the shell, constant afterwards."""

    incarnation: Incarnation
    boot_id: str
    """Names the boot of the machine (R3b)."""
    store_id: str
    """Names the data directory (R3b)."""
    held_since_us: int = 0
    """When this process had the data directory alone, on the monotonic clock: the one before was gone by then."""
    previous_incarnations: tuple[Incarnation, ...] = ()
    """Earlier starts on this directory, the newest last (R3): on its disk, like this one, before it registers."""


class ProcessStarts(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """
    Starts on one data directory. File ``lives.json``.

    A backup that is put back does not name the starts since: so the controllers see that it is older than what its
    replica has acked (R3).
    """

    incarnations: tuple[Incarnation, ...] = ()
    """Newest last; at most ``STARTS_KEPT``."""

    def with_start(self, incarnation: Incarnation) -> ProcessStarts:
        return ProcessStarts(incarnations=(*self.incarnations, incarnation)[-STARTS_KEPT:])
