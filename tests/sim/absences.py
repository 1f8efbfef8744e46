"""
Controllers that no broker reaches for a while: the leader's own network, as far as it can know (R13).

Here: such a cut alone, before all faults, and what must hold of it (I10). Not here: the same among faults (``faults``),
where the master may be gone as well, what the leader makes of it (``controller.runtime.own_network``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.core.views import condition_of
from tests.sim.violation import Violation
from tests.support.sim_kernel import MS, SECOND

if TYPE_CHECKING:
    from tests.sim.world import BrokerMachine, ControllerMachine, World

BEGIN_US = 5 * SECOND
"""For all replicas to be in sync."""
CUT_MS = (1_050, 3_000)
"""The first is a heartbeat timeout of the preset and a little more."""
HEAL_MS_MAX = 300
"""Between the first broker that reaches the controllers again and the last one."""
BACK_US = 2_500 * MS


def cut(world: World, brokers: list[BrokerMachine]) -> list[tuple[str, str]]:
    """All controllers, or a majority of them, from ``brokers``, in both directions; what is to be healed."""
    random, controllers = world.kernel.random, list(world.controllers.values())
    gone: list[ControllerMachine] = controllers
    if random.random() < 0.3:
        gone = random.sample(controllers, len(controllers) // 2 + 1)
    pairs = [(one.name, broker.name) for broker in brokers for one in gone]
    pairs += [(target, source) for source, target in pairs]
    for source, target in pairs:
        world.net.cut(source, target)
    world.counts.add("cuts of the controllers")
    world.kernel.note(f"{[one.name for one in gone]} are cut from {[one.name for one in brokers]}")
    return pairs


def hold_through_a_cut(world: World, *, steps_max: int) -> None:
    """
    Every broker, or every one of a set, is cut from the controllers and comes back; now and then the lead changes in between.

    Raises:
        Violation: a set has another master than before, or the same in another epoch (I10).
    """
    kernel = world.kernel
    if not kernel.run_until(kernel.now_us + BEGIN_US, steps_max=steps_max, stop=lambda: _is_calm(world)):
        return
    before = {key: _reign(world, key) for key in world.keys}
    keys = world.keys if kernel.chance(0.7) else [kernel.random.choice(world.keys)]
    brokers = [broker for broker in world.brokers.values() if broker.plan.set_key in keys]
    pairs = cut(world, brokers)
    length_ms = kernel.random.randrange(*CUT_MS)
    leader = world.leader()
    if leader is not None and kernel.chance(0.4):
        machine, at_ms = world.controllers[leader.name], kernel.random.randrange(length_ms)
        kernel.after(at_ms * MS, "kill in a cut", partial(world.kill, machine))
        kernel.after((at_ms + kernel.random.randrange(20, 1_000)) * MS, "restart", partial(world.start, machine))
    for broker in brokers:
        mine = [pair for pair in pairs if broker.name in pair]
        delay_ms = length_ms + kernel.random.randrange(HEAL_MS_MAX)
        kernel.after(delay_ms * MS, "heal", partial(_heal, world, mine))
    kernel.run_until(kernel.now_us + length_ms * MS + HEAL_MS_MAX * MS + BACK_US, steps_max=steps_max)
    for key, reign in before.items():
        after = _reign(world, key)
        if after != reign:
            raise Violation(
                f"I10: {key} had master {reign[0]} in epoch {reign[1]}, after a cut {after[0]} in {after[1]}"
            )
        world.counts.add("masters kept across a cut of the controllers")


def _heal(world: World, pairs: list[tuple[str, str]]) -> None:
    for source, target in pairs:
        world.net.heal(source, target)


def _is_calm(world: World) -> bool:
    states = [world.set_state(key) for key in world.keys]
    return world.leader() is not None and all(
        state is not None
        and condition_of(state)[0] is Condition.SERVING
        and len(state.sync_state_set) == world.shape.replicas
        for state in states
    )


def _reign(world: World, key: SetKey) -> tuple[int | None, int]:
    state = world.set_state(key)
    assert state is not None, "it was calm"
    return state.master, state.master_epoch
