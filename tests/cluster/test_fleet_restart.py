"""
Brokers that are asked to stop, under load: a rolling restart, and a stop in a hurry. Real processes, judged from outside.

S86.
"""

from __future__ import annotations

import signal

import pytest

from rollcall_ha.deploy.local import producer
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import wait_until
from tests.support.fleet_story import counted, heal, judge, load, only_set, timing_of
from tests.support.fleet_trials import restart_broker

pytestmark = pytest.mark.cluster

NOTICE_MS = 1_000
"""What a busy machine may add to what the preset promises."""


def test_a_rolling_restart_under_load_hands_over_and_fails_no_send(fleet: Fleet) -> None:
    """
    Each election is a handover that was asked for, each send is acknowledged, and nothing acknowledged is missing.

    Slaves first, the master last: one election, and no send waits for a slave that is gone.
    """
    heal(fleet)
    key = only_set(fleet)
    master = fleet.master(key)
    with load(fleet) as work:
        order = sorted(fleet.brokers, key=lambda name: name == master)
        restarts = [restart_broker(fleet, name, work) for name in order]
        sent = producer.read_counts(fleet.directory)
    rows = fleet.client().history(key).rows
    found = judge(fleet)
    counted(restarts=restarts, producer=sent, audit=found)
    assert [restart.new_kinds for restart in restarts] == [(), (), ("handover",)]
    assert rows[0].cause == "handed over: asked to stop"
    assert rows[0].missing == ()
    assert (sent.unknown, sent.not_appended) == (0, 0)
    assert max(restart.gap_ms for restart in restarts) < timing_of(fleet).handover_ms + NOTICE_MS


def test_a_second_signal_stops_a_master_that_waits_for_its_slaves(fleet: Fleet) -> None:
    """Both slaves hang, so nothing is confirmed and nobody can be elected: the first signal waits, the second does not."""
    heal(fleet)
    master = fleet.master(only_set(fleet))
    slaves = [name for name in fleet.brokers if name != master]
    with load(fleet):
        for name in slaves:
            fleet.stop(name)
        fleet.processes.signal(master, signal.SIGTERM)
        wait_until(
            lambda: '"draining"' in fleet.processes.tail(master), deadline_s=10, what=f"{master} to take no more sends"
        )
        fleet.processes.signal(master, signal.SIGTERM)
        wait_until(lambda: fleet.pid(master) is None, deadline_s=10, what=f"{master} to end")
        words = fleet.processes.tail(master)
        for name in slaves:
            fleet.cont(name)
        heal(fleet)
    assert '"stopping_at_once"' in words
    assert '"is_clean":true' in words
    judge(fleet)
