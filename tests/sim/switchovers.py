"""
An operator who moves masters by order, at random, and what becomes of such orders (R29).

Here: ordering, the targets that hang or die between their election and their entering, the judge of orders. Not here:
other faults (``faults``), what must hold of elections (``oracle``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rollcall_ha.controller.contract.commands import OrderSwitchover
from rollcall_ha.controller.contract.events import AnyEvent, MasterElected, SwitchoverEnded, SwitchoverOrdered
from rollcall_ha.controller.contract.ids import BrokerId, RequestId, SetKey
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.state import FleetState
from tests.sim.violation import Violation
from tests.support.sim_kernel import MS, Counts

if TYPE_CHECKING:
    from tests.sim.world import World

PAUSE_MEAN_MS = 700
"""Between two orders."""
DEADLINES_MS = (150, 600, 1_500)
HURT_PROBABILITY = 0.25
"""Of an order whose target is lost as soon as it is elected."""
HANG_PROBABILITY = 0.25
"""Of an order whose target hangs before it comes."""
HANG_MS = (300, 4_000)
LOOK_MS = 2
LOOKS_MAX = 200


class SwitchoverOrders:
    """Orders until ``until_us``."""

    def __init__(self, world: World, until_us: int) -> None:
        self._world = world
        self._kernel = world.kernel
        self._until_us = until_us
        self._again()

    def _again(self) -> None:
        delay_us = int(self._kernel.random.expovariate(1.0 / PAUSE_MEAN_MS) * MS)
        self._kernel.after(delay_us, "order", self._order)

    def _order(self) -> None:
        if self._kernel.now_us >= self._until_us:
            return
        self._again()
        random, key = self._kernel.random, self._kernel.random.choice(self._world.keys)
        state = self._world.set_state(key)
        if state is None or not state.sync_state_set or self._world.leader() is None:
            return
        target = random.choice((None, *state.sync_state_set))
        if target is not None and target != state.master and self._kernel.chance(HANG_PROBABILITY):
            # The master cannot drain: the deadline passes, or the target falls silent before it.
            self._lose(key, target, hangs=True)
        self._kernel.counts.add("switchovers sent")
        self._world.order(OrderSwitchover(set_key=key, to=target, deadline_ms=random.choice(DEADLINES_MS)))
        if self._kernel.chance(HURT_PROBABILITY):
            self._look(key, LOOKS_MAX, hangs=self._kernel.chance(0.5))

    def _look(self, key: SetKey, looks: int, *, hangs: bool) -> None:
        state = self._world.set_state(key)
        pending = state.pending_switchover if state is not None else None
        if pending is not None and pending.elected_epoch is not None:
            self._lose(key, pending.target, hangs=hangs)
        elif looks:
            self._kernel.after(LOOK_MS * MS, "look", lambda: self._look(key, looks - 1, hangs=hangs))

    def _lose(self, key: SetKey, target: BrokerId, *, hangs: bool) -> None:
        for broker in self._world.brokers.values():
            if broker.node is None or (broker.plan.set_key, broker.node.broker_id) != (key, target):
                continue
            if hangs:
                broker.process.pause()
                self._kernel.after(self._kernel.random.choice(HANG_MS) * MS, "resume", broker.process.resume)
            else:
                self._world.kill(broker)
                self._world.start_later(broker)


class SwitchoverJudge:
    """Of what is on record: an order elects its target, or its master again, and ends once."""

    def __init__(self, counts: Counts, known: FleetState | None = None) -> None:
        """``known``: what the controllers begin with, or begin again with."""
        self._counts = counts
        self._under_way: dict[SetKey, tuple[RequestId, BrokerId, BrokerId]] = {}
        """Order, master, target."""
        for key, state in known.sets.items() if known is not None else ():
            if (order := state.pending_switchover) is not None:
                self._under_way[key] = (order.order, order.master, order.target)

    def applied(self, key: SetKey, event: AnyEvent) -> None:
        """Raises ``Violation``."""
        order = self._under_way.get(key)
        if isinstance(event, SwitchoverOrdered):
            self._counts.add("switchovers ordered")
            self._under_way[key] = (event.order, event.master, event.target)
        elif isinstance(event, SwitchoverEnded):
            self._counts.add(f"switchovers {event.end.value}")
            if order is None or event.order != order[0]:
                raise Violation(f"R29: order {event.order} of {key} ends, and was not under way")
            del self._under_way[key]
        elif isinstance(event, MasterElected) and event.verdict.kind is ElectionKind.SWITCHOVER:
            is_named = order is not None and event.master in order[1:]
            if not is_named:
                raise Violation(f"R29: {event.master} of {key} was elected by an order that did not name it")
