"""
Copies of the controllers' directories, taken while they run, and put back later (R7): what was committed since is gone.

Here: when there is such a copy, when it may be put back, doing both. Not here: backups, which make another fleet
(``amnesia``), copies of brokers' directories (``faults``).
Rule 1: all directories are of one moment, at which each controller had every entry: an entry that some have would be
committed again, or not, as the law of one history forbids.
Rule 2: a copy is put back only when every broker has stored the newest masterEpoch and SyncStateSet of its set. A
masterEpoch that no directory knows may be given a second time (``docs/controllers.md``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rollcall_ha.broker.replica_files import ReplicaFiles
from rollcall_ha.controller.contract.ids import ControllerName, FleetIncarnation
from rollcall_ha.controller.core.state import FleetState, SetState
from tests.sim.raft import RaftQuorum
from tests.support.sim_disk import Image
from tests.support.sim_kernel import MS, SECOND

if TYPE_CHECKING:
    from tests.sim.world import BrokerMachine, World

TRY_MS = (20, 120)
"""Between two looks whether it can be done now."""
AGE_MS = (300, 3_000)
CALM_US = 10 * SECOND
"""Behind the faults, for a copy that found no moment among them."""
AWAY_MS_MAX = 1_500


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """Of all controllers, of one moment."""

    fleet_incarnation: FleetIncarnation
    state: FleetState
    images: dict[str, Image]


class Copies:
    """Of one world, which has its faults until ``until_us``."""

    def __init__(self, world: World, until_us: int) -> None:
        self._world = world
        self._kernel = world.kernel
        self._until_us = until_us
        self._copy: Copy | None = None
        self._is_done = False
        self._later(500, (until_us - world.kernel.now_us) // (2 * MS), self._take)

    def put_back_at_last(self, *, steps_max: int) -> None:
        """Behind the faults: everything runs, and brokers hear again."""
        if self._copy is not None and not self._is_done:
            self._world.heal()
            self._kernel.run_until(self._kernel.now_us + CALM_US, steps_max=steps_max, stop=lambda: self._is_done)
        self._copy = None

    def _later(self, low_ms: int, high_ms: int, action: Callable[[], None]) -> None:
        self._kernel.after(self._kernel.random.randrange(low_ms, high_ms) * MS, "copies", action)

    def _take(self) -> None:
        if self._kernel.now_us >= self._until_us:
            return
        self._copy = copy_of(self._world)
        if self._copy is None:
            self._later(*TRY_MS, self._take)
        else:
            self._later(*AGE_MS, self._put_back)

    def _put_back(self) -> None:
        if self._copy is None:
            return
        if not may_be_put_back(self._world, self._copy):
            self._later(*TRY_MS, self._put_back)
            return
        self._is_done = True
        put_back(self._world, self._copy)
        random = self._kernel.random
        for controller in self._world.controllers.values():
            self._kernel.after(
                random.randrange(20, AWAY_MS_MAX) * MS, "restart", partial(self._world.start, controller)
            )
        if self._kernel.chance(0.5):
            # The next master is elected by controllers that know less than it does.
            self._kernel.after(random.randrange(AWAY_MS_MAX) * MS, "kill behind a copy", self._kill_a_master)

    def _kill_a_master(self) -> None:
        key = self._kernel.random.choice(self._world.keys)
        for broker in self._world.brokers.values():
            if broker.plan.set_key == key and broker.node is not None and broker.node.reign is not None:
                self._world.kill(broker)
                self._world.start_later(broker)


def copy_of(world: World) -> Copy | None:
    """None: a controller is down, or an entry is under way; rule 1."""
    quorum, state, index = world.quorum, world.oracle.state, world.oracle.index
    assert isinstance(quorum, RaftQuorum)
    machines = world.controllers.values()
    if state is None or any(key not in state.sets or not state.sets[key].is_established for key in world.keys):
        return None
    if not all(one.process.is_alive and quorum.ends_at(ControllerName(one.name)) == index for one in machines):
        return None
    images = {one.name: one.disk.image() for one in machines}
    return Copy(fleet_incarnation=world.fleet_incarnation, state=state, images=images)


def may_be_put_back(world: World, copy: Copy) -> bool:
    """Whether something was committed since, and whatever of it was about sets is known to every broker; rule 2."""
    state = world.oracle.state
    if state is None or world.fleet_incarnation != copy.fleet_incarnation or world.oracle.index == copy.state.index:
        return False
    for key in world.keys:
        now, then = state.sets[key], copy.state.sets[key]
        mates = [broker for broker in world.brokers.values() if broker.plan.set_key == key]
        if world.oracle.facts(key).watch is not None or not all(_knows(broker, now, copy) for broker in mates):
            return False
        # A judgement that changed no set is forgotten, and nobody can tell of it.
        if _numbers(now) == _numbers(then) and _judged(now) != _judged(then):
            return False
    return True


def put_back(world: World, copy: Copy) -> None:
    """As an operator does it who takes a snapshot of a machine for a backup: the fleet is the same, and knows less."""
    lost = world.oracle.index - copy.state.index
    for controller in world.controllers.values():
        world.kill(controller)
        controller.disk.restore(copy.images[controller.name])
        controller.mend()
    world.quorum.payloads.clear()
    world.oracle.rolled_back(copy.state)
    world.counts.add("controllers put back from a copy")
    world.counts.add("entries lost with a copy", lost)
    world.kernel.note(f"controllers put back to entry {copy.state.index}, {lost} are lost")


def _knows(broker: BrokerMachine, state: SetState, copy: Copy) -> bool:
    stored = None if broker.is_damaged else ReplicaFiles(broker.files.folder).view.load()
    return stored is not None and (stored.fleet_incarnation, stored.master_epoch, stored.sync_state_set_epoch) == (
        copy.fleet_incarnation,
        *_numbers(state),
    )


def _numbers(state: SetState) -> tuple[int, int]:
    return state.master_epoch, state.sync_state_set_epoch


def _judged(state: SetState) -> tuple[object, ...]:
    return state.fallen, *((one.broker_id, one.is_suspect) for one in state.replicas)
