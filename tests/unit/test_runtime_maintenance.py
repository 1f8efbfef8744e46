"""A leader whose replicas are in maintenance: what it proposes, when it ends one, what it calls a problem."""

from __future__ import annotations

from rollcall_ha.controller.contract.commands import BeginMaintenance, EndMaintenance
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.values import MaintenanceScope
from rollcall_ha.controller.contract.views import SetStatus
from rollcall_ha.controller.core.maintenance import in_maintenance
from rollcall_ha.controller.runtime.views import set_status
from tests.support.runtime_world import Replica, World, led_set, set_key

KEY = set_key()


def _maintained(world: World, broker_id: int, for_ms: int) -> None:
    scope = MaintenanceScope(set_key=KEY, broker_id=BrokerId(broker_id))
    world.apply(BeginMaintenance(scope=scope, expires_at_ms=world.now_ms + for_ms, spends_last=True))


def _lose_master(world: World, master: Replica, slave: Replica) -> None:
    world.close(master)
    world.report_link(slave, master)
    world.refuse_probe()


def _status(world: World) -> SetStatus:
    return set_status(
        world.the_view(KEY),
        world.duties.sessions,
        last_election_ms=None,
        now_ns=world.now_ns,
        maintenances=in_maintenance(world.state, world.state.sets[KEY]),
    )


def test_a_set_whose_heirs_are_in_maintenance_has_a_master_when_it_ends() -> None:
    world, replicas = led_set()
    _maintained(world, 2, 10_000)
    world.pass_ms(6_000, *replicas[:2])
    assert not world.state.sets[KEY].replicas[2].is_alive
    _lose_master(world, replicas[0], replicas[1])
    world.pass_ms(3_500, replicas[1])
    assert not world.the_view(KEY).condition.has_master
    assert world.kinds().count("election-failed") == 1
    world.pass_ms(3_000, replicas[1])

    assert world.state.maintenances == {}
    assert world.the_view(KEY).master == 2


def test_the_end_of_a_maintenance_is_proposed_each_second_until_it_is_applied() -> None:
    world, replicas = led_set()
    _maintained(world, 2, 1_000)
    world.applies = False
    world.pass_ms(4_000, *replicas)
    ends = [one for one in world.waiting if isinstance(one.command, EndMaintenance)]

    assert 2 <= len(ends) <= 4
    for action in world.waiting:
        world.settle(action)
    assert world.kinds().count("maintenance-ended") == 1


def test_a_replica_in_maintenance_is_not_missed_and_counts_as_lost() -> None:
    world, replicas = led_set()
    assert (_status(world).failure_budget, _status(world).problems) == (1, ())
    _maintained(world, 3, 60_000)
    world.pass_ms(8_000, *replicas[:2])

    status = _status(world)
    assert not status.replicas[2].is_alive
    assert status.replicas[2].maintenance is not None
    assert (status.failure_budget, status.problems) == (0, ("NO_SPARE",))
    world.apply(EndMaintenance(scope=MaintenanceScope(set_key=KEY, broker_id=BrokerId(3))))
    assert _status(world).problems == ("NO_SPARE", "REPLICA_SILENT")
