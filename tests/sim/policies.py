"""
Policies of a fleet, switched on in a share of the seeds, the faults that they are about, and the judge of what they do.

Here: hand-overs by policy, sets that flap and their acknowledgement, returns to a preferred replica, each with the bound
that the policy promises. Not here: pauses and maintenances, which ``controller.core.invariants`` judges in every seed;
other faults (``faults``).

The judge works by events and their stamps alone. Where the clock of a controller was set, stamps say nothing, and times
are not judged from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rollcall_ha.controller.contract.commands import ResumeElections
from rollcall_ha.controller.contract.events import (
    ElectionsPaused,
    ElectionsResumed,
    EventRecord,
    MasterElected,
    SettingsApplied,
    SwitchoverOrdered,
)
from rollcall_ha.controller.contract.ids import RequestId, SetKey
from rollcall_ha.controller.contract.values import SilenceCause
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.evolve import evolve_all
from rollcall_ha.controller.core.maintenance import in_maintenance
from rollcall_ha.controller.core.pauses import is_by_word
from rollcall_ha.controller.core.settings import settings_in_force
from rollcall_ha.controller.core.state import FleetState
from tests.sim.violation import Violation
from tests.support.sim_kernel import MS, SECOND, Kernel

if TYPE_CHECKING:
    from tests.sim.world import BrokerMachine, World

DAMPING_MS = 1_000
FLAPS = 2
RETURN_AFTER_MS = 10_000
VALUES = {
    "handover_disk_full_after_ms": 700,
    "handover_writes_stopped_after_ms": 1_200,
    "handover_pause_ms": DAMPING_MS,
    "flap_failovers": FLAPS,
}
"""The shortest that the durations of the preset leave room for: what a policy does wrong, it does then."""
LEFT_REASON = "handed over by policy"
RETURNED_REASON = "returned by policy"
CLOCKS_SET = "clocks of controllers set"
DRIFT = 0.99
"""A clock that runs fast waits a little less than it says."""
FAULT_MEAN_MS = 1_200
FAULT_MS = (2_000, 3_000, 4_000)
WAYS = ("full", "slow", "cut", "cut", "hang", "hang")
TRY_MS = 300
ACKNOWLEDGED_MS = (500, 2_000)
CALM_MS = RETURN_AFTER_MS + 5_000
"""After the faults of a seed that returns masters: the time of the policy, and what a switchover takes."""


class Policies:
    """The policies of one world, and the faults that they are about, until ``until_us``."""

    def __init__(self, world: World, until_us: int) -> None:
        self._world = world
        self._kernel = world.kernel
        self._until_us = until_us
        self._switch_on()
        self._again()

    def _switch_on(self) -> None:
        """As soon as somebody leads a fleet that has settings (R15)."""
        state = self._world.oracle.state
        applied = settings_in_force(state) if state is not None else None
        if self._kernel.now_us >= self._until_us or (applied is not None and applied.settings.flap_failovers == FLAPS):
            return
        self._world.operator.change_settings(**VALUES)
        self._kernel.after(TRY_MS * MS, "policies", self._switch_on)

    def _again(self) -> None:
        delay_us = int(self._kernel.random.expovariate(1.0 / FAULT_MEAN_MS) * MS)
        self._kernel.after(delay_us, "policy fault", self._fault)

    def _fault(self) -> None:
        if self._kernel.now_us >= self._until_us:
            return
        self._again()
        self._acknowledge()
        broker = self._master()
        if broker is None:
            return
        way = self._kernel.random.choice(WAYS)
        length_us = self._kernel.random.choice(FAULT_MS) * MS
        self._kernel.counts.add(f"masters that cannot acknowledge: {way}")
        if way == "full":
            broker.files.is_full = True
            self._kernel.after(length_us, "room", lambda: setattr(broker.files, "is_full", False))
        elif way == "slow":
            broker.files.is_slow = True
            self._kernel.after(length_us, "fast", lambda: setattr(broker.files, "is_slow", False))
        elif way == "cut":
            self._cut(broker, length_us)
        else:
            broker.process.pause()
            self._kernel.after(length_us, "resume", broker.process.resume)

    def _cut(self, broker: BrokerMachine, length_us: int) -> None:
        """From its slaves; every controller goes on hearing it."""
        mates = [one for one in self._world.brokers.values() if one.plan.set_key == broker.plan.set_key]
        others = [one.name for one in mates if one is not broker]
        pairs = [pair for other in others for pair in ((broker.name, other), (other, broker.name))]
        for source, target in pairs:
            self._world.net.cut(source, target)

        def heal() -> None:
            for source, target in pairs:
                self._world.net.heal(source, target)

        self._kernel.after(length_us, "heal", heal)

    def _master(self) -> BrokerMachine | None:
        key = self._kernel.random.choice(self._world.keys)
        state = self._world.set_state(key)
        for broker in self._world.brokers.values():
            node = broker.node
            if state is not None and node is not None and (broker.plan.set_key, node.broker_id) == (key, state.master):
                return broker
        return None

    def _acknowledge(self) -> None:
        """``rollcall acknowledge`` of each set that flapped, a while after somebody has looked."""
        state = self._world.oracle.state
        for key, pause in state.pauses.items() if state is not None else ():
            if key is None or is_by_word(pause.paused_by):
                continue

            def acknowledge(key: SetKey = key) -> None:
                state = self._world.oracle.state
                if state is not None and key in state.pauses and self._world.leader() is not None:
                    self._kernel.counts.add("flapping sets acknowledged")
                    self._world.order(ResumeElections(set_key=key))

            self._kernel.after(self._kernel.random.choice(ACKNOWLEDGED_MS) * MS, "acknowledge", acknowledge)


def let_masters_return(world: World, *, steps_max: int) -> None:
    """Behind the faults: everything runs, nobody sends any more, and the policy has the time that it needs."""
    world.heal()
    for producer in world.producers:
        producer.is_stopped = True
    until_us = world.kernel.now_us + CALM_MS * MS
    while world.kernel.now_us < until_us:
        state = world.oracle.state
        applied = settings_in_force(state) if state is not None else None
        if applied is None or applied.settings.return_after_ms != RETURN_AFTER_MS:
            world.operator.change_settings(return_after_ms=RETURN_AFTER_MS)
        world.kernel.run_until(min(until_us, world.kernel.now_us + SECOND), steps_max=steps_max)


@dataclass(slots=True)
class _Seen:
    """Of one set."""

    elected_at_ms: int | None = None
    """Stamp of its last election."""
    returned_at_ms: int | None = None
    orders: set[RequestId] = field(default_factory=set)
    """Returns that were ordered: a late duplicate of one is no second one."""
    failovers: dict[SilenceCause, int] = field(default_factory=dict)
    """By cause, since the policy is on and a person has acknowledged."""


class PolicyJudge:
    """Of what policies did, by what is on record."""

    def __init__(self, kernel: Kernel) -> None:
        self._counts = kernel.counts
        self._sets: dict[SetKey, _Seen] = {}
        self._entry: list[EventRecord] = []
        """Events of the entry that is being judged, so far."""

    def forget(self) -> None:
        """The controllers have lost their memory, and count from the beginning."""
        self._sets.clear()

    @property
    def _has_true_stamps(self) -> bool:
        return not self._counts[CLOCKS_SET]

    def applied(self, before: FleetState, record: EventRecord) -> None:
        """``before``: of the whole entry. Raises ``Violation``."""
        event = record.event
        if self._entry and (self._entry[0].term, self._entry[0].index) != (record.term, record.index):
            self._entry.clear()
        if isinstance(event, SettingsApplied):
            for seen in self._sets.values():
                seen.failovers.clear()
        elif isinstance(event, ElectionsPaused | ElectionsResumed):
            self._paused(record, event)
        elif record.set_key is not None and isinstance(event, SwitchoverOrdered):
            self._ordered(before, record.set_key, record.stamped_at_ms, event)
        elif record.set_key is not None and isinstance(event, MasterElected):
            self._elected(before, record.set_key, record, event)
        self._entry.append(record)

    def _of(self, key: SetKey) -> _Seen:
        return self._sets.setdefault(key, _Seen())

    def _paused(self, record: EventRecord, event: ElectionsPaused | ElectionsResumed) -> None:
        if event.paused_set is None:
            return
        if isinstance(event, ElectionsResumed):
            self._of(event.paused_set).failovers.clear()
        elif not is_by_word(record.requested_by):
            self._counts.add("sets blocked for flapping")

    def _elected(self, before: FleetState, key: SetKey, record: EventRecord, event: MasterElected) -> None:
        seen = self._of(key)
        if event.reason.startswith(LEFT_REASON):
            self._counts.add("masters left by policy")
            self._left(before, key, event)
            since = seen.elected_at_ms
            if since is not None and self._has_true_stamps and record.stamped_at_ms - since < DAMPING_MS * DRIFT:
                raise Violation(f"leaving: {key} was left {record.stamped_at_ms - since} ms after its last election")
        seen.elected_at_ms = record.stamped_at_ms
        self._failed_over(before, key, record, event)

    def _left(self, before: FleetState, key: SetKey, event: MasterElected) -> None:
        set_state = before.sets[key]
        assert set_state.configuration is not None
        old, least = set_state.master, set_state.configuration.effective_min_in_sync
        heirs = [one for one in event.sync_state_set if one != old]
        if event.master == old or len(heirs) < least:
            raise Violation(f"leaving: {key} was left by {old} for {heirs}, min_in_sync is {least}")

    def _failed_over(self, before: FleetState, key: SetKey, record: EventRecord, event: MasterElected) -> None:
        """Never more often by one cause than the policy allows, but by a person's word."""
        applied, outage = settings_in_force(before), None
        if key in before.sets:
            # Its cause may be new in this very entry: writes were stopped, and then its process died.
            told = [one for one in self._entry if one.set_key == key]
            outage = evolve_all(before.sets[key], told, stepped_ms=before.stepped_ms).outage
        if event.verdict.kind is not ElectionKind.FAILOVER or outage is None or is_by_word(record.requested_by):
            return
        if applied is None or not applied.settings.flap_failovers or not self._has_true_stamps:
            return
        failovers = self._of(key).failovers
        failovers[outage.cause] = failovers.get(outage.cause, 0) + 1
        if failovers[outage.cause] > applied.settings.flap_failovers:
            raise Violation(f"flaps: {key} failed over {failovers[outage.cause]} times by {outage.cause.value}")

    def _ordered(self, before: FleetState, key: SetKey, at_ms: int, event: SwitchoverOrdered) -> None:
        seen = self._of(key)
        if not event.reason.startswith(RETURNED_REASON) or event.order in seen.orders:
            return
        seen.orders.add(event.order)
        self._counts.add("returns to a preferred replica")
        if event.target in in_maintenance(before, before.sets[key]):
            raise Violation(f"return: {key} goes back to {event.target}, which is in maintenance")
        since = seen.returned_at_ms
        seen.returned_at_ms = at_ms
        if since is not None and self._has_true_stamps and at_ms - since < RETURN_AFTER_MS * DRIFT:
            raise Violation(f"return: {key} goes back again after {at_ms - since} ms")
