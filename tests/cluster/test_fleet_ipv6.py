"""A whole fleet on addresses of IPv6: every port, records with 16 bytes of address, a killed master, an audit."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcall_ha.deploy.local.fleet import Layout
from rollcall_ha.deploy.local.processes import free_ports
from tests.support.fleet_story import judge, load, only_set, running
from tests.support.fleet_trials import kill_master

pytestmark = pytest.mark.cluster

LOOPBACK = "::1"


def has_ipv6() -> bool:
    try:
        return bool(free_ports(1, LOOPBACK))
    except (OSError, RuntimeError):
        return False


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no ::1")
def test_a_fleet_on_ipv6_survives_its_master(tmp_path: Path) -> None:
    with running(tmp_path / "fleet", Layout(host=LOOPBACK)) as fleet:
        key = only_set(fleet)
        assert all("[::1]:" in replica.address for replica in fleet.wait_redundant(key).replicas)
        with load(fleet) as work:
            trial = kill_master(fleet)
            work.wait_more()
        assert trial.is_next_epoch
        judge(fleet)
