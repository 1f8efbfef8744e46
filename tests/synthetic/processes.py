"""
The processes of a synthetic fleet as they are, beside what the controllers believe; and what they propose.

Here: replicas, the ends of their logs, the leading controller. Not here: faults and returns (``broker_set``), the
log of operations (``log``).
Rule 1: in mode ``all`` a record is acknowledged when every member of the SyncStateSet holds it; in ``async`` when the
master holds it.
Rule 2: the log grows while a master serves; followers lack a little of it, drawn when a fault fixes their ends.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from rollcall_ha.controller.contract.commands import AnyCommand
from rollcall_ha.controller.contract.ids import BrokerId, ControllerName, Incarnation, RegisterCode
from rollcall_ha.controller.contract.values import CleanMark, Evidence, Frozen
from tests.synthetic.plan import US_PER_S, Fault

NO_EPOCH_YET = -1
EARLIER_KEPT = 4


class SyntheticOperation(Frozen):
    """One operation to be proposed."""

    command: AnyCommand
    requested_by: str
    evidence: Evidence | None = None


Step = Callable[[int], Sequence[SyntheticOperation]]
"""A function of the moment, in microseconds UTC."""


class Leader(Frozen):
    """The controller that leads."""

    name: ControllerName
    term: int
    since_us: int

    @property
    def signature(self) -> str:
        return f"controller:{self.name}"

    def proposes(self, command: AnyCommand, evidence: Evidence | None = None) -> SyntheticOperation:
        """By its duty."""
        return SyntheticOperation(command=command, requested_by=self.signature, evidence=evidence)


class Process(msgspec.Struct):
    """One replica. While it neither serves nor follows, ``end`` is where its log ends."""

    broker_id: BrokerId
    name: str
    """Prefix of its incarnations: cluster, set and id, so that no two processes of a plan share one."""
    number: int = 1
    boot: int = 1
    is_up: bool = True
    """Runs and is heard."""
    end: int = 0
    last_epoch: int = NO_EPOCH_YET
    released: int = 0
    """Highest end that it acknowledged to a producer, by its checkpoint."""
    released_told: int = 0
    """The same by its last heartbeat."""
    following: int = NO_EPOCH_YET
    """The epoch whose master it follows."""
    mark: CleanMark | None = None
    fault: Fault | None = None
    """Why it is not up, or was not the last time."""
    fault_us: int = 0
    last_heard_us: int = 0
    """When its last heartbeat came before it fell silent."""

    @property
    def incarnation(self) -> Incarnation:
        """32 characters, as the product draws them, but told by seed and start."""
        return Incarnation(f"{self.name}{self.number:08x}")

    def earlier_incarnations(self) -> tuple[Incarnation, ...]:
        """Incarnations of its last starts, as its data directory remembers them."""
        starts = range(max(1, self.number - EARLIER_KEPT), self.number)
        return tuple(Incarnation(f"{self.name}{number:08x}") for number in starts)

    @property
    def register_code(self) -> RegisterCode:
        """Kept over all starts."""
        return RegisterCode(self.name)

    @property
    def identity(self) -> dict[str, Any]:
        """The fields by which commands and milestones name it."""
        return {"broker_id": self.broker_id, "incarnation": self.incarnation}

    def proposes(self, command: AnyCommand) -> SyntheticOperation:
        """Its own word to the controllers."""
        return SyntheticOperation(command=command, requested_by=f"broker:{self.broker_id}")


class ServingMaster(msgspec.Struct):
    """A master that takes records."""

    process: Process
    epoch: int
    base: int
    since_us: int
    write_bytes_per_s: int

    def end_at(self, now_us: int) -> int:
        """Where its log ends at that moment."""
        return self.base + max(0, now_us - self.since_us) * self.write_bytes_per_s // US_PER_S
