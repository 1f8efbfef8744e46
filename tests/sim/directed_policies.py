"""
Directed cases of policies, for ``mutations_policies`` and ``mutations_elections``: masters that are moved by themselves, a warm slave.

Here: the cases. Not here: the policies in seeds (``policies``), cases of other rules (``directed``).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle, islice

from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import ApplySettings, ElectMaster
from rollcall_ha.controller.contract.replies import Elected
from rollcall_ha.controller.contract.settings import settings_of
from rollcall_ha.controller.contract.timing import PRESETS, Preset
from rollcall_ha.controller.contract.values import SilenceCause
from tests.sim.violation import must
from tests.support.core_builders import Fleet, positions
from tests.support.core_fleets import java_with_a_warm_slave
from tests.support.runtime_world import World, set_key

FILE = PRESETS[Preset.NORMAL]
ALLOWED = 3
RETURN_AFTER_MS = 10_000
LIFE_MS = 65_000


def _failovers(*causes: SilenceCause) -> int:
    """Of a set whose masters are lost by ``causes``, one after the other: how many of them the policy let happen."""
    fleet = Fleet().serving()
    settings = replace(settings_of(FILE), flap_failovers=ALLOWED)
    order = ApplySettings(settings=settings, expected_version=0, file=FILE)
    fleet.apply([fleet.operation(order, requested_by="admin:ann")])
    for number, cause in enumerate(causes):
        master = fleet.set.master
        assert master is not None
        fleet.silence(master, cause=cause)
        elect = ElectMaster(set_key=fleet.key)
        operation = fleet.operation(elect, requested_by="controller:c1", evidence=fleet.evidence())
        if not isinstance(fleet.apply([operation]).replies[0], Elected):
            return number
        fleet.enter(0)
        fleet.revive(master)
        fleet.do(fleet.alter(1, 2, 3, seq=1))
    return len(causes)


def flapping_set_waits() -> None:
    """Ten masters are lost by one cause, and three failovers are allowed."""
    count = _failovers(*[SilenceCause.TIMEOUT] * 10)
    must(count == ALLOWED, f"S71: {count} failovers by one cause, {ALLOWED} are allowed")


def flaps_of_two_causes() -> None:
    """Two of each: no cause has happened often enough."""
    causes = tuple(islice(cycle((SilenceCause.TIMEOUT, SilenceCause.DEAD_AT_ONCE)), 2 * (ALLOWED - 1)))
    count = _failovers(*causes)
    must(count == len(causes), f"S71: blocked after {count} failovers, {ALLOWED - 1} by each cause at the most")


def failed_return_waits() -> None:
    """A minute with a preferred replica whose master never drains: each order ends, and the next one takes its time."""
    world, key = World(), set_key()
    world.take()
    replicas = world.serving_set()
    found = world.state.sets[key]
    preferring = tuple(
        replace(one, description=replace(one.description, priority=1 if one.broker_id == 2 else 100))
        for one in found.replicas
        if one.description is not None
    )
    world.state = replace(world.state, sets={**world.state.sets, key: replace(found, replicas=preferring)})
    settings = replace(settings_of(FILE), return_after_ms=RETURN_AFTER_MS)
    world.apply(ApplySettings(settings=settings, expected_version=0, file=FILE, reason="policy"))
    world.pass_ms(LIFE_MS, *replicas)
    orders = world.kinds().count("switchover-ordered")
    must(1 <= orders <= LIFE_MS // RETURN_AFTER_MS, f"returns: {orders} orders in {LIFE_MS} ms")


def warm_slave_with_the_shorter_log() -> None:
    """3 was master before in its process, 2 holds what 1 wrote last: all of it may have been acknowledged."""
    fleet = java_with_a_warm_slave()
    fleet.silence(1)
    fleet.elect(evidence=fleet.evidence({2: positions(500), 3: positions(400)}))
    must(fleet.set.master == 2, f"{fleet.set.master} is elected: 100 bytes of replica 2 are cut")


POLICY_CASES: dict[str, Callable[[], None]] = {
    "flapping-set-waits": flapping_set_waits,
    "flaps-of-two-causes": flaps_of_two_causes,
    "failed-return-waits": failed_return_waits,
    "warm-slave-with-the-shorter-log": warm_slave_with_the_shorter_log,
}
"""By name, as ``directed.CASES``."""
