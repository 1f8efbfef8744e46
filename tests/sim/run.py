"""
One seed: a world, its faults, its end. What both the command line and the tests call.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass

from rollcall_ha.controller.contract.ids import FlushMode
from tests.sim.absences import hold_through_a_cut
from tests.sim.faults import Chaos
from tests.sim.policies import Policies, let_masters_return
from tests.sim.raft import raft_quorum
from tests.sim.seats import SEATS, Seats
from tests.sim.switchovers import SwitchoverOrders
from tests.sim.violation import Violation
from tests.sim.world import Shape, World, product_inside, small_disks
from tests.support.sim_kernel import MS, SECOND, Counts, SimulationStalled

SEATS_EVERY = 9
"""Of so many seeds one has controllers that change."""
SEATS_US = 8 * SECOND
"""That such a seed has faults for longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one seed."""

    seed: int
    steps: int
    virtual_us: int
    trace_hash: str
    counts: Counts
    failure: str | None
    lines: tuple[str, ...]


def has_seats(seed: int) -> bool:
    """Whether controllers are added, removed and replaced in this seed."""
    return seed % SEATS_EVERY == SEATS_EVERY // 2


def shape_of(seed: int) -> Shape:
    """
    One set or two, with and without a learner, three speeds and two manners, three controllers or five, policies, by seed.
    """
    grows = has_seats(seed)
    return Shape(
        controllers=len(SEATS) if grows else 5 if seed % 7 == 2 else 3,
        founders=1 if grows else 0,
        min_in_sync=1 if seed % 8 == 5 else 0,
        sets=2 if seed % 5 == 4 else 1,
        learners=1 if seed % 3 == 1 else 0,
        rocketmq_replicas=2 + seed // 6 % 2 if seed % 6 == 0 else 0,
        producers=2,
        orders_switchovers=seed % 2 == 1,
        has_policies=seed % 10 == 3 and not grows,
        prepares=0.1 if seed % 2 == 0 else 0.0,
        delays=0.2 if seed % 4 in (1, 2) else 0.0,
        cuts_controllers=seed % 5 in (1, 2),
        returns_masters=seed % 20 == 13 and not grows,
        flush=FlushMode.SYNC if seed % 4 == 3 else FlushMode.ASYNC,
        slave_reads=seed % 3 == 2,
        pause_ms=(10, 25, 60)[seed % 3],
        disk_segments=8 if seed % 11 == 6 else 0,
        frees_late_us=1_500 * MS if seed % 22 == 6 else 0,
    )


def run_seed(seed: int, *, steps_max: int = 400_000, keep_lines: bool = False) -> Outcome:
    """Run one seed to its end. Never raises for what the simulated code does."""
    # A seed makes much garbage and keeps little of it: looking for cycles after every 700 objects is a tenth of its time.
    gc.set_threshold(50_000, 20, 100)
    with product_inside(), small_disks(shape_of(seed)):
        world = World(seed, shape_of(seed), make_quorum=raft_quorum, keep_lines=keep_lines)
        try:
            return _run(world, steps_max)
        finally:
            world.close()


def _run(world: World, steps_max: int) -> Outcome:
    failure = None
    try:
        world.kernel.run_until(1_500 * MS, steps_max=steps_max)
        world.start_producers()
        world.kernel.run_until(2 * SECOND, steps_max=steps_max)
        if world.shape.cuts_controllers:
            hold_through_a_cut(world, steps_max=steps_max)
        end_us = world.kernel.now_us + world.kernel.random.randrange(7, 14) * SECOND
        if world.shape.founders:
            end_us += SEATS_US
            world.seats = Seats(world, end_us)
        chaos = Chaos(world, end_us)
        if world.shape.orders_switchovers:
            SwitchoverOrders(world, end_us)
        if world.shape.has_policies:
            Policies(world, end_us)
        world.kernel.run_until(end_us, steps_max=steps_max)
        if chaos.copies is not None:
            chaos.copies.put_back_at_last(steps_max=steps_max)
        if world.shape.returns_masters:
            let_masters_return(world, steps_max=steps_max)
        world.settle()
    except Violation as violation:
        failure = str(violation)
    except SimulationStalled as stalled:
        failure = f"livelock: {stalled}"
    except Exception as error:  # noqa: BLE001  whatever the simulated code raises is a finding
        failure = f"{type(error).__name__}: {error} at {_where(error)}"
    return Outcome(
        seed=world.kernel.seed,
        steps=world.kernel.steps,
        virtual_us=world.kernel.now_us,
        trace_hash=world.kernel.trace_hash,
        counts=world.counts,
        failure=failure,
        lines=tuple(world.kernel.lines),
    )


def _where(error: BaseException) -> str:
    """File and line of the innermost frame."""
    trace = error.__traceback__
    last = "?"
    while trace is not None:
        last = f"{trace.tb_frame.f_code.co_filename.rpartition('/')[2]}:{trace.tb_lineno}"
        trace = trace.tb_next
    return last
