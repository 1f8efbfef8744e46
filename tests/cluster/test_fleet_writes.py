"""
Writes that stop without an election, on real processes: every page says so while it happens, and how long it took.

The judge is the producer's own ledger: when its messages were acknowledged, on its own clock.
"""

from __future__ import annotations

import json
import time

import pytest

from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.values import StopReason
from rollcall_ha.controller.contract.views import StopEnd, WriteStop
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import wait_until
from tests.support.fleet_story import (
    counted,
    curl,
    heal,
    judge,
    load,
    only_set,
    plain,
    readiness,
    rest,
    rollcall,
    set_path,
    timing_of,
    wait_row,
)

pytestmark = pytest.mark.cluster

NOTICE_MS = 2_000
"""What polling through a busy machine may add to the threshold."""
EXIT_DEGRADED = 6


def stops(fleet: Fleet) -> list[WriteStop]:
    """On record, newest first."""
    return list(fleet.client().history(only_set(fleet)).stops)


def is_stopped(fleet: Fleet) -> bool:
    """By REST."""
    status = fleet.set_status(only_set(fleet))
    return status is not None and status.view.condition is Condition.WRITES_STOPPED


def test_a_master_without_its_slaves_says_everywhere_that_it_acknowledges_nothing(fleet: Fleet) -> None:
    """Nothing was acknowledged for 16.6 s; ``sets``, REST and /readyz said serving, and the record said nothing."""
    key = only_set(fleet)
    before = heal(fleet).view
    master = fleet.master(key)
    slaves = [name for name in fleet.brokers if name != master]
    known = len(stops(fleet))
    with load(fleet) as work:
        stopped_at_ns = time.monotonic_ns()
        for name in slaves:
            fleet.stop(name)
        wait_until(lambda: is_stopped(fleet), deadline_s=20, what="REST to say that writes are stopped")
        noticed_ms = (time.monotonic_ns() - stopped_at_ns) / 1e6
        _judge_every_page(fleet, master)
        # The slaves are found silent, and stay members; nothing of it may look like service in between.
        fleet.wait_set(
            key,
            lambda status: sum(member.is_alive for member in status.view.members) == 1,
            what="the slaves to be found silent",
        )
        _judge_every_page(fleet, master)
        for name in slaves:
            fleet.cont(name)
        fleet.wait_set(key, lambda status: status.view.condition is Condition.SERVING, what="writes to resume")
        work.wait_more()
        gap_ms = work.longest_gap_ms(stopped_at_ns)
    stop, *earlier = stops(fleet)
    assert stop.stopped_us is not None
    found = judge(fleet)
    recorded_ms = stop.stopped_us / 1_000
    counted(noticed_ms=round(noticed_ms), felt_ms=round(gap_ms), recorded_ms=round(recorded_ms), audit=found)
    assert (len(earlier), stop.end, stop.reason) == (known, StopEnd.RESUMED, StopReason.NOT_ACKNOWLEDGED)
    assert abs(recorded_ms - gap_ms) <= max(0.05 * gap_ms, 30)
    assert noticed_ms <= timing_of(fleet).stall_ms + NOTICE_MS
    assert heal(fleet).view.master_epoch == before.master_epoch, "no reign changed"
    assert readiness(fleet, master)[0] == 200
    assert "writes-stopped" in rollcall(fleet, "history", str(key.name)).stdout
    # Other files leave sets of nobody behind in the shared fleet, which have problems of their own.
    assert f"{key.name}: " not in rollcall(fleet, "status", "--check").stdout


def _judge_every_page(fleet: Fleet, master: str) -> None:
    """REST, ``status``, ``sets``, /readyz, both /metrics: one answer."""
    leader = rest(fleet, fleet.leader())
    view = curl(leader, set_path(fleet)).document["set"]["view"]
    checked = rollcall(fleet, "status", "--check")
    ready = readiness(fleet, master)
    told = plain(fleet.health(master), "/metrics")[1]
    counts = plain(leader, "/metrics")[1]
    assert view["condition"] == "writes-stopped"
    assert "acknowledges no write" in view["conditionReason"]
    assert checked.returncode == EXIT_DEGRADED, checked.stdout
    assert checked.stdout.startswith("DOWN")
    assert "acknowledges no write" in checked.stdout.splitlines()[0]
    assert "writes-stopped" in rollcall(fleet, "sets").stdout
    assert ready[0] == 503
    assert "writes are stopped" in ready[1]
    assert 'rollcall_broker_writes_stopped{reason="not-acknowledged"} 1.0' in told
    assert "rollcall_set_writes_stopped{" in counts
    assert 'rollcall_sets_by_condition{condition="writes-stopped"} 1.0' in counts
    page = json.loads(rollcall(fleet, "history", str(only_set(fleet).name), "-o", "json").stdout)
    assert page["stops"][0]["end"] is None


def test_a_master_that_is_killed_while_its_writes_are_stopped_leaves_no_stop_behind(fleet: Fleet) -> None:
    """Nobody was left to say that writes go on: the set would be without writes for ever, by its record."""
    key = only_set(fleet)
    before = heal(fleet).view
    master = fleet.master(key)
    slaves = [name for name in fleet.brokers if name != master]
    with load(fleet) as work:
        stopped_at_ns = time.monotonic_ns()
        for name in slaves:
            fleet.stop(name)
        wait_until(lambda: is_stopped(fleet), deadline_s=20, what="REST to say that writes are stopped")
        fleet.kill(master)
        for name in slaves:
            fleet.cont(name)
        fleet.wait_set(
            key,
            lambda status: (
                status.view.master_epoch > before.master_epoch and status.view.condition is Condition.SERVING
            ),
            what="another master to serve",
        )
        work.wait_more()
        epoch = fleet.wait_set(key, lambda _status: True, what="to be there").view.master_epoch
        gap_ms = work.longest_gap_ms(stopped_at_ns)
    stop = stops(fleet)[0]
    row = wait_row(fleet, epoch)
    found = judge(fleet)
    assert row.total_us is not None
    recorded_ms = (row.total_us + (row.waited_us or 0)) / 1_000
    counted(felt_ms=round(gap_ms), recorded_ms=round(recorded_ms), total_us_max=row.total_us_max, audit=found)
    assert abs(recorded_ms - gap_ms) <= max(0.05 * gap_ms, 30), "the outage begins with the stop"
    assert (stop.master_epoch, stop.end, stop.stopped_us) == (before.master_epoch, StopEnd.ELECTION, None)
