"""
The interface between a synthetic set and its fleet: operations, steps, the leader, and the fleet as a set sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rollcall_ha.controller.contract.commands import AnyCommand
from rollcall_ha.controller.contract.ids import ControllerName, SetKey
from rollcall_ha.controller.contract.values import Evidence
from rollcall_ha.controller.core.state import SetState


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticOperation:
    """One operation to be proposed."""

    command: AnyCommand
    requested_by: str
    evidence: Evidence | None = None


Step = Callable[[int], Sequence[SyntheticOperation]]
"""A function of the moment, in microseconds UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The controller that leads."""

    name: ControllerName
    term: int
    since_us: int

    @property
    def requested_by(self) -> str:
        """As it signs its proposals."""
        return f"controller:{self.name}"


class FleetView(Protocol):
    """The fleet as a set sees it."""

    @property
    def leader(self) -> Leader:
        """The leading controller of this moment."""
        ...

    @property
    def read_at_index(self) -> int:
        """Newest applied Raft index."""
        ...

    def state_of(self, key: SetKey) -> SetState | None: ...

    def at(self, when_us: int, key: SetKey | None, step: Step) -> None:
        """Run ``step`` then; None: it belongs to no set."""
        ...

    def would_elect(self, operation: SyntheticOperation) -> bool:
        """Whether a dry run finds a winner."""
        ...
