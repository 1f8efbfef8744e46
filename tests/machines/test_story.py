"""
A short form of ``make machines``: a fleet on eight machines, from the bundles of ``rollcall init`` alone.

A failover under load, every command where one controller is reached, the audit of raw files.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollcall_ha.client.client import Client
from rollcall_ha.client.errors import ClientError
from rollcall_ha.deploy.local import sites
from rollcall_ha.deploy.local.faults import kill_and_see
from rollcall_ha.deploy.local.fleet import Fleet, on_machines
from rollcall_ha.deploy.local.machines import MachinesError
from rollcall_ha.deploy.local.partitions import alone
from rollcall_ha.deploy.local.walk import walk
from tests.support.fleet_story import HEAL_DEADLINE_S, counted, heal, judge, load, only_set

pytestmark = pytest.mark.cluster


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    try:
        with on_machines(tmp_path / "fleet") as found:
            found.up(deadline_s=HEAL_DEADLINE_S)
            yield found
    except MachinesError as error:
        pytest.skip(str(error))


def keys_on(disk: Path) -> set[str]:
    return {path.stem for path in disk.rglob("*.key")}


def test_a_fleet_on_machines_is_led_over_and_operated_through_one_controller(fleet: Fleet) -> None:
    machines = fleet.machines
    assert machines is not None
    nodes = (*fleet.controllers, *fleet.brokers)
    # Nothing shared: each node's machine is its own, and so is the only key on its disk.
    assert len({fleet.machine(node) for node in nodes}) == len(nodes) == 6
    assert {node: keys_on(machines.disk(fleet.machine(node))) for node in nodes} == {node: {node} for node in nodes}
    assert keys_on(machines.disk(sites.OPERATOR)) == {"admin"}
    assert keys_on(machines.disk(sites.CLIENT)) == {"client"}

    # The operator reaches one controller and no other.
    reached = []
    for name in fleet.controllers:
        with Client([fleet.file.controllers[name].rest], identity=fleet.identity(), limit_ms=0) as asking:
            try:
                asking.status()
            except ClientError:
                continue
            reached.append(name)
    assert reached == list(fleet.asked) == ["c1"]

    with load(fleet) as work:
        victim = fleet.master(only_set(fleet))
        kill_and_see(fleet, victim)
        work.wait_more()
        heal(fleet)
        isolated = fleet.master(only_set(fleet))
        machines.impose(alone(machines.names, fleet.machine(isolated)))
        fleet.wait_set(
            only_set(fleet),
            lambda status: (
                status.view.master is not None and fleet.broker_by_id(only_set(fleet), status.view.master) != isolated
            ),
            what=f"another master than {isolated}, whose machine is alone",
            deadline_s=HEAL_DEADLINE_S,
        )
        work.wait_more()
        machines.heal()
        heal(fleet)
        said: list[str] = []
        counts = walk(fleet, only_set(fleet), said.append)
        work.wait_more()
    assert counts.failed == 0, "\n".join(said)
    assert counts.commands > 20
    found = judge(fleet)
    counted(killed=victim, isolated=isolated, commands=counts.commands, questions=counts.questions, audit=found)
