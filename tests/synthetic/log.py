"""
The replicated log of one synthetic fleet: simulated time, what is due, who leads, and what the real core decides.

Here: the newest state, and entries into it. Not here: who is due when (``broker_set``, ``leading``, ``failover``).
Rule 1: every event comes out of ``controller.core.apply``, with its hash chain, verdicts and refusals, as in the
product. The generator invents faults and durations, never an event.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import count

from rollcall_ha.controller.contract.commands import Operation
from rollcall_ha.controller.contract.ids import ControllerName, RequestId, SetKey
from rollcall_ha.controller.contract.replies import Elected, Refused
from rollcall_ha.controller.core.apply import Applied, apply_operations
from rollcall_ha.controller.core.preview import preview
from rollcall_ha.controller.core.state import EMPTY_FLEET, FleetState
from tests.synthetic.plan import US_PER_MS
from tests.synthetic.processes import Leader, Step, SyntheticOperation

ENTRY_US = 5_000
"""Orders that come closer together share an entry."""

CONTROLLERS = 3


class CoreStopped(RuntimeError):
    """The core refused a whole entry: a fault of the generator, never of its input."""


class SyntheticLog:
    """What all sets of a fleet share."""

    def __init__(self, begin_us: int) -> None:
        """Nothing has happened yet."""
        self.state: FleetState = EMPTY_FLEET
        """All sets, by the core."""
        self.leader = Leader(name=ControllerName("c1"), term=1, since_us=begin_us)
        """The leading controller of this moment."""
        self._requests = count(1)
        self._heap: list[tuple[int, int, SetKey | None, Step]] = []
        self._steps = count()

    def at(self, when_us: int, key: SetKey | None, step: Step) -> None:
        """
        Run ``step`` then; equal moments keep the order in which they were asked for.

        ``key`` None: it belongs to no set.
        """
        heapq.heappush(self._heap, (when_us, next(self._steps), key, step))

    @property
    def next_us(self) -> int | None:
        """When the next step is due."""
        return self._heap[0][0] if self._heap else None

    def due(self, until_us: int) -> tuple[list[SyntheticOperation], dict[SetKey | None, int]]:
        """Run the steps until then, for each set at most one that gives operations: these, and when each set had it."""
        operations: list[SyntheticOperation] = []
        touched: dict[SetKey | None, int] = {}
        postponed: list[tuple[int, int, SetKey | None, Step]] = []
        while self._heap and self._heap[0][0] <= until_us:
            due = heapq.heappop(self._heap)
            when_us, _, key, step = due
            if key in touched:
                postponed.append(due)
                continue
            # A set has one step per entry: broker 2's alter, decided beside its own silence, would be judged by a state
            # that its step never saw. A step without an operation leaves the entry open for the next one of its set.
            given = step(when_us)
            if given:
                touched[key] = when_us
                operations += given
        for due in postponed:
            heapq.heappush(self._heap, due)
        return operations, touched

    def apply(self, operations: Sequence[SyntheticOperation], now_us: int) -> Applied[FleetState]:
        """One entry. Raises ``CoreStopped``."""
        stamped = [self._stamped(operation, now_us, f"g{next(self._requests)}") for operation in operations]
        done = apply_operations(self.state, stamped, term=self.leader.term, index=self.state.index + 1)
        if done.stop_reason is not None:
            raise CoreStopped(done.stop_reason)
        self.state = done.state
        return done

    def preview(self, operation: SyntheticOperation) -> Elected | Refused:
        """A dry run of an election, which draws no request id."""
        reply = preview(self.state, self._stamped(operation, 0, "dry-run"))
        assert isinstance(reply, Elected | Refused)
        return reply

    def _stamped(self, operation: SyntheticOperation, now_us: int, request_id: str) -> Operation:
        return Operation(
            version=self.state.feature_level,
            request_id=RequestId(request_id),
            stamped_at_ms=now_us // US_PER_MS,
            requested_by=operation.requested_by,
            command=operation.command,
            evidence=operation.evidence,
        )

    def change_leader(self, now_us: int) -> None:
        """The next controller leads from now on."""
        number = self.leader.term % CONTROLLERS + 1
        self.leader = Leader(name=ControllerName(f"c{number}"), term=self.leader.term + 1, since_us=now_us)
