"""Sets that may serve on with their last replica (``min_in_sync = 1``, adr/0032), on real processes, judged from outside."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from rollcall_ha.deploy.local.fleet import Layout
from tests.support.fleet_story import counted, heal, judge, load, only_set, running

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("replicas", [3, pytest.param(5, marks=pytest.mark.prove)])
def test_all_replicas_but_one_may_go(tmp_path: Path, replicas: int) -> None:
    """One after the other, each time the master; then all at once. Nothing acknowledged is missing when they are back."""
    with running(tmp_path / "fleet", Layout(sets={"broker-a": replicas}, min_in_sync=1)) as fleet:
        key = only_set(fleet)
        with load(fleet) as work:
            for _ in range(replicas - 1):
                fleet.kill(fleet.master(key))
                work.wait_more()
            last = fleet.master(key)
            acked = work.acked()
            after = heal(fleet).view
            work.wait_more()
            master = fleet.master(key)
            victims = [master, *[name for name in fleet.brokers if name != master][1:]]
            for name in victims:
                fleet.processes.signal(name, signal.SIGKILL)
            for name in victims:
                fleet.processes.wait_gone(name, deadline_s=5)
            work.wait_more()
            survivor = fleet.master(key)
            heal(fleet)
            work.wait_more()
        found = judge(fleet)
        counted(replicas=replicas, last=last, acked=acked, epoch=after.master_epoch, survivor=survivor, audit=found)
        assert survivor not in victims
        assert after.master_epoch >= replicas
        assert acked > 0
