"""
The history of one synthetic fleet: its sets live side by side, and the real decision core decides for all of them.

Here: simulated time, entries of the replicated log, the leading controller. Not here: the life of one set
(``broker_set``), files (``files``).
Rule 1: every event comes out of ``controller.core.apply``, with its hash chain, verdicts and refusals, as in the
product. The generator invents faults and durations, never an event.
Rule 2: operations of different sets that come within ``ENTRY_US`` share an entry, as many callers share one of the
proposer's; a set has at most one step per entry, so that its operations see the effect of the ones before them.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import count

from rollcall_ha.analytics.synthetic.broker_set import SyntheticSet
from rollcall_ha.analytics.synthetic.draws import Draws
from rollcall_ha.analytics.synthetic.plan import SETTLE_MS, US_PER_MS, Plan, cluster_of
from rollcall_ha.analytics.synthetic.processes import Leader, Step, SyntheticOperation
from rollcall_ha.analytics.synthetic.truth import Truth
from rollcall_ha.controller.contract.commands import (
    FEATURE_LEVEL,
    InitialiseFleet,
    Operation,
    RaiseFeatureLevel,
    TakeLeadership,
)
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import BrokerName, ControllerName, FleetIncarnation, RequestId, SetKey
from rollcall_ha.controller.contract.replies import Elected
from rollcall_ha.controller.core.apply import apply_operations
from rollcall_ha.controller.core.preview import preview
from rollcall_ha.controller.core.state import EMPTY_FLEET, FleetState

ENTRY_US = 5_000
"""Orders that come closer together share an entry."""

CONTROLLERS = 3


class CoreStopped(RuntimeError):
    """The core refused a whole entry: a fault of the generator, never of its input."""


class SyntheticFleet:
    """Fleet ``number`` of a plan. Take ``entries`` to the end; then ``truth`` is complete."""

    def __init__(self, plan: Plan, number: int) -> None:
        """Nothing has happened yet."""
        self.truth = Truth()
        self.state: FleetState = EMPTY_FLEET
        """All sets, by the core."""
        self.index = 0
        """Newest applied Raft index."""
        self.leader = Leader(name=ControllerName("c1"), term=1, since_us=plan.begin_ms * US_PER_MS)
        """The leading controller of this moment."""
        self._plan = plan
        self._incarnation = FleetIncarnation(f"{plan.seed & (2**64 - 1):016x}{number:016x}")
        self._draws = Draws(plan, fleet=number, stream=-1)
        self._requests = count(1)
        self._heap: list[tuple[int, int, SetKey | None, Step]] = []
        self._steps = count()
        self._sets: dict[SetKey, SyntheticSet] = {}
        for set_number in range(plan.sets):
            key = SetKey(cluster=cluster_of(number), name=BrokerName(f"set-{set_number:05d}"))
            draws = Draws(plan, fleet=number, stream=set_number)
            self._sets[key] = SyntheticSet(plan, self, draws, self.truth, key=key, numbers=(number, set_number))

    # --- the view of sets ---------------------------------------------------------------------------------------------

    def at(self, when_us: int, key: SetKey | None, step: Step) -> None:
        """
        Run ``step`` then; equal moments keep the order in which they were asked for.

        ``key`` None: it belongs to no set.
        """
        heapq.heappush(self._heap, (when_us, next(self._steps), key, step))

    def would_elect(self, operation: SyntheticOperation) -> bool:
        """A dry run, which draws no request id."""
        return isinstance(preview(self.state, self._stamped(operation, 0, "dry-run")), Elected)

    # --- entries of the log -------------------------------------------------------------------------------------------

    def entries(self) -> Iterator[tuple[EventRecord, ...]]:
        """The records of each entry that has any, in the order of the log."""
        begin_us, last_us = self._plan.begin_ms * US_PER_MS, (self._plan.end_ms - SETTLE_MS) * US_PER_MS
        initialise = InitialiseFleet(fleet_incarnation=self._incarnation)
        raise_level = RaiseFeatureLevel(level=FEATURE_LEVEL)
        commands = (self.leader.proposes(initialise), self.leader.proposes(raise_level), self._taking())
        yield self._apply(commands, begin_us)
        self._schedule_controller_change(begin_us, last_us)
        for broker_set in self._sets.values():
            broker_set.begin(begin_us + 2 * ENTRY_US, last_us)
        while self._heap:
            records = self._entry()
            if records:
                yield records

    def _entry(self) -> tuple[EventRecord, ...]:
        """All steps that are due together, at most one for each set."""
        first_us = self._heap[0][0]
        operations: list[SyntheticOperation] = []
        touched: dict[SetKey | None, int] = {}
        postponed: list[tuple[int, int, SetKey | None, Step]] = []
        while self._heap and self._heap[0][0] <= first_us + ENTRY_US:
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
        if not operations:
            return ()
        records = self._apply(operations, first_us)
        self._hand_out(records, touched, first_us)
        return records

    def _hand_out(self, records: Sequence[EventRecord], touched: dict[SetKey | None, int], first_us: int) -> None:
        by_set: dict[SetKey, list[EventRecord]] = {}
        for record in records:
            if record.set_key is not None:
                by_set.setdefault(record.set_key, []).append(record)
        applied_us = first_us + ENTRY_US + self._draws.step_us(2_500)
        for key, own in by_set.items():
            self._sets[key].applied(own, touched.get(key, first_us), applied_us)

    def _apply(self, operations: Sequence[SyntheticOperation], now_us: int) -> tuple[EventRecord, ...]:
        self.index += 1
        stamped = [self._stamped(operation, now_us, f"g{next(self._requests)}") for operation in operations]
        done = apply_operations(self.state, stamped, term=self.leader.term, index=self.index)
        if done.stop_reason is not None:
            raise CoreStopped(done.stop_reason)
        self.state = done.state
        return done.records

    def _stamped(self, operation: SyntheticOperation, now_us: int, request_id: str) -> Operation:
        return Operation(
            version=self.state.feature_level,
            request_id=RequestId(request_id),
            stamped_at_ms=now_us // US_PER_MS,
            requested_by=operation.requested_by,
            command=operation.command,
            evidence=operation.evidence,
        )

    # --- controllers -------------------------------------------------------------------------------------------------

    def _taking(self) -> SyntheticOperation:
        return self.leader.proposes(TakeLeadership(controller=self.leader.name, term=self.leader.term))

    def _schedule_controller_change(self, now_us: int, last_us: int) -> None:
        if self._plan.controller_changes_per_day <= 0:
            return
        when_us = now_us + self._draws.until_next_us(self._plan.controller_changes_per_day)
        if when_us < last_us:
            self.at(when_us, None, lambda at_us: self._change_controller(at_us, last_us))

    def _change_controller(self, now_us: int, last_us: int) -> Sequence[SyntheticOperation]:
        self._schedule_controller_change(now_us, last_us)
        number = self.leader.term % CONTROLLERS + 1
        self.leader = Leader(name=ControllerName(f"c{number}"), term=self.leader.term + 1, since_us=now_us)
        for broker_set in self._sets.values():
            if self._draws.chance(self._plan.controller_failover_share):
                broker_set.controller_changed(now_us)
        return [self._taking()]
