"""
The history of one synthetic fleet: its sets live side by side, and the real decision core decides for all of them.

Here: the order of entries, changes of the leading controller. Not here: the log (``log``), the life of one set
(``broker_set``), files (``files``).
Rule 1: operations of different sets that come within ``ENTRY_US`` share an entry, as many callers share one of the
proposer's; a set has at most one step per entry, so that its operations see the effect of the ones before them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rollcall_ha.controller.contract.commands import (
    FEATURE_LEVEL,
    InitialiseFleet,
    RaiseFeatureLevel,
    TakeLeadership,
)
from rollcall_ha.controller.contract.events import EventRecord
from rollcall_ha.controller.contract.ids import BrokerName, FleetIncarnation, SetKey
from rollcall_ha.controller.core.state import FleetState
from tests.synthetic.broker_set import SyntheticSet
from tests.synthetic.draws import Draws
from tests.synthetic.log import ENTRY_US, SyntheticLog
from tests.synthetic.plan import SETTLE_MS, US_PER_MS, Plan, cluster_of
from tests.synthetic.processes import SyntheticOperation
from tests.synthetic.truth import Truth
from tests.synthetic.world import SetWorld


class SyntheticFleet:
    """Fleet ``number`` of a plan. Take ``entries`` to the end; then ``truth`` is complete."""

    def __init__(self, plan: Plan, number: int) -> None:
        """Nothing has happened yet."""
        self.truth = Truth()
        self._plan = plan
        self._log = SyntheticLog(plan.begin_ms * US_PER_MS)
        self._incarnation = FleetIncarnation(f"{plan.seed & (2**64 - 1):016x}{number:016x}")
        self._draws = Draws(plan, fleet=number, stream=-1)
        self._sets: dict[SetKey, SyntheticSet] = {}
        for set_number in range(plan.sets):
            key = SetKey(cluster=cluster_of(number), name=BrokerName(f"set-{set_number:05d}"))
            draws = Draws(plan, fleet=number, stream=set_number)
            world = SetWorld(plan, self._log, draws, self.truth, key=key, numbers=(number, set_number))
            self._sets[key] = SyntheticSet(world)

    @property
    def state(self) -> FleetState:
        """All sets, by the core."""
        return self._log.state

    # --- entries of the log -------------------------------------------------------------------------------------------

    def entries(self) -> Iterator[tuple[EventRecord, ...]]:
        """The records of each entry that has any, in the order of the log."""
        begin_us, last_us = self._plan.begin_ms * US_PER_MS, (self._plan.end_ms - SETTLE_MS) * US_PER_MS
        leader = self._log.leader
        initialise = leader.proposes(InitialiseFleet(fleet_incarnation=self._incarnation))
        raise_level = leader.proposes(RaiseFeatureLevel(level=FEATURE_LEVEL))
        yield self._log.apply((initialise, raise_level, self._taking()), begin_us).records
        self._schedule_controller_change(begin_us, last_us)
        for broker_set in self._sets.values():
            broker_set.begin(begin_us + 2 * ENTRY_US, last_us)
        while (first_us := self._log.next_us) is not None:
            records = self._entry(first_us)
            if records:
                yield records

    def _entry(self, first_us: int) -> tuple[EventRecord, ...]:
        """All steps that are due together."""
        operations, touched = self._log.due(first_us + ENTRY_US)
        if not operations:
            return ()
        done = self._log.apply(operations, first_us)
        applied_us = first_us + ENTRY_US + self._draws.step_us(2_500)
        by_set: dict[SetKey, list[EventRecord]] = {key: [] for key in touched if key is not None}
        for record in done.records:
            if record.set_key is not None:
                by_set.setdefault(record.set_key, []).append(record)
        answers = tuple(zip(operations, done.replies, strict=True))
        for key, own in by_set.items():
            self._sets[key].applied(own, answers, touched.get(key, first_us), applied_us)
        return done.records

    # --- controllers -------------------------------------------------------------------------------------------------

    def _taking(self) -> SyntheticOperation:
        leader = self._log.leader
        return leader.proposes(TakeLeadership(controller=leader.name, term=leader.term))

    def _schedule_controller_change(self, now_us: int, last_us: int) -> None:
        if self._plan.controller_changes_per_day <= 0:
            return
        when_us = now_us + self._draws.until_next_us(self._plan.controller_changes_per_day)
        if when_us < last_us:
            self._log.at(when_us, None, lambda at_us: self._change_controller(at_us, last_us))

    def _change_controller(self, now_us: int, last_us: int) -> Sequence[SyntheticOperation]:
        self._schedule_controller_change(now_us, last_us)
        self._log.change_leader(now_us)
        for broker_set in self._sets.values():
            is_cut_off = self._draws.chance(self._plan.controller_failover_share)
            broker_set.controller_changed(now_us, is_cut_off=is_cut_off)
        return [self._taking()]
