"""
Backups under load, and a living fleet whose controllers are destroyed and restored: real processes, judged from outside.

R7. What producers were told is acknowledged is on every replica, and epochs only grow.
"""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.core.recovery import EPOCH_JUMP
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import wait_until
from rollcall_ha.node.config import FLEET_FILE_NAME
from tests.support.fleet_story import counted, heal, judge, load, only_set, rollcall, running, timing_of

pytestmark = pytest.mark.cluster

HEAL_DEADLINE_S = 60


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Three controllers, three brokers."""
    with running(tmp_path / "fleet") as found:
        yield found


def done(fleet: Fleet, *arguments: str) -> str:
    """A command of the CLI that succeeds."""
    ran = rollcall(fleet, *arguments)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def back_up(fleet: Fleet, file: Path, *options: str) -> dict[str, object]:
    """The header of a backup that was taken and verified."""
    done(fleet, "backup", str(file), *options)
    found: dict[str, object] = json.loads(done(fleet, "verify", str(file), "-o", "json"))
    assert found["wrong"] == []
    header = found["backup"]
    assert isinstance(header, dict)
    return header


def destroy_controllers(fleet: Fleet) -> None:
    """Killed together, and their disks are gone."""
    for name in fleet.controllers:
        fleet.processes.signal(name, signal.SIGKILL)
    wait_until(lambda: not any(map(fleet.pid, fleet.controllers)), deadline_s=10, what="all controllers to be gone")
    for name in fleet.controllers:
        shutil.rmtree(fleet.data(name))


def restore(fleet: Fleet, file: Path) -> dict[str, object]:
    """All controllers; not started."""
    config = str(fleet.directory / FLEET_FILE_NAME)
    told = json.loads(done(fleet, "restore", str(file), "--config", config, "-o", "json"))
    assert list(told["controllers"]) == list(fleet.controllers)
    for name in fleet.controllers:
        fleet.restart(name)
    fleet.leader(deadline_s=HEAL_DEADLINE_S)
    result: dict[str, object] = told
    return result


def test_a_living_fleet_is_restored_from_a_backup_of_before_a_failover(fleet: Fleet, tmp_path: Path) -> None:
    """
    Backups of a follower and of the leader under load; a failover that they do not know; every controller destroyed.

    Brokers serve without controllers, and go on under the restored ones in an epoch above all that there were.
    """
    key = only_set(fleet)
    first = heal(fleet).view
    leader = fleet.leader()
    follower = next(name for name in fleet.controllers if name != leader)
    with load(fleet) as work:
        headers = {
            "leader": back_up(fleet, tmp_path / "leader", "--from", leader, "--with-history"),
            "follower": back_up(fleet, tmp_path / "follower", "--from", follower, "--with-history"),
        }
        work.wait_more()
        fleet.kill(fleet.master(key))
        fleet.wait_set(
            key,
            lambda status: status.view.master_epoch > first.master_epoch and status.view.condition is Condition.SERVING,
            what="a failover",
            deadline_s=HEAL_DEADLINE_S,
        )
        before = heal(fleet).view
        work.wait_more()
        destroyed_at_ns = time.monotonic_ns()
        destroy_controllers(fleet)
        work.wait_more()
        without_controllers = len(work.stamps(destroyed_at_ns))
        told = restore(fleet, tmp_path / "follower")
        after = fleet.wait_redundant(key, deadline_s=HEAL_DEADLINE_S).view
        restored_ms = (time.monotonic_ns() - destroyed_at_ns) / 1e6
        work.wait_more()
        gap_ms = work.longest_gap_ms(destroyed_at_ns)
    found = judge(fleet)
    records = [json.loads(done(fleet, "verify", str(fleet.data(name)), "-o", "json")) for name in fleet.controllers]
    counted(
        backups={name: (header["takenBy"], header["index"]) for name, header in headers.items()},
        epochs=(first.master_epoch, before.master_epoch, after.master_epoch), begins_at=told["beginsAt"],
        acked_without_controllers=without_controllers, restored_ms=round(restored_ms), gap_ms=round(gap_ms),
        lost=found["lost"], audit=found,
    )  # fmt: skip
    assert (headers["leader"]["takenBy"], headers["follower"]["takenBy"]) == (leader, follower)
    assert first.master_epoch < before.master_epoch < after.master_epoch
    assert after.master_epoch % EPOCH_JUMP == 0, "an epoch that the old controllers may have given after the backup"
    assert without_controllers > 0
    assert [record["wrong"] for record in records] == [[], [], []], "the record goes on from the backup's"
    assert [record["notes"] for record in records] == [[], [], []], "with the history of the old fleet"
    row = next(row for row in fleet.client().history(key).rows if row.master_epoch == after.master_epoch)
    assert row.grade is not None
    assert row.grade.value == "unknown", "nobody can prove what the lost record said"


def test_a_replica_that_the_backup_calls_master_is_not_elected_before_the_others_have_reported(
    fleet: Fleet, tmp_path: Path
) -> None:
    """
    The backup says that 1 is the master of {1,2,3}. It died, the others acked without it, and everything was lost.

    Of the restored fleet it comes first: elected, it would cut what the others acknowledged.
    """
    key = only_set(fleet)
    first = heal(fleet).view
    old = fleet.master(key)
    back_up(fleet, tmp_path / "b")
    with load(fleet) as work:
        work.wait_more()
        fleet.kill(old)
        fleet.wait_set(
            key,
            lambda status: len(status.view.sync_state_set) == 2 and status.view.condition is Condition.SERVING,
            what="a successor without the old master",
            deadline_s=HEAL_DEADLINE_S,
        )
        before = fleet.set_status(key)
        assert before is not None
        work.wait_more()
        acked = work.acked()
    others = [name for name in fleet.brokers if name != old]
    for name in others:
        fleet.kill(name)
    destroy_controllers(fleet)
    restore(fleet, tmp_path / "b")
    fleet.restart(old)

    waiting = fleet.wait_set(
        key,
        lambda status: (
            status.view.condition is Condition.WAITING_FOR_REPORTS
            and any(one.is_alive for one in status.replicas if one.broker_id == first.master)
        ),
        what="the first to have reported",
        deadline_s=HEAL_DEADLINE_S,
    )
    heard_at_ns = time.monotonic_ns()
    limit_ms = timing_of(fleet).heartbeat_timeout_ms + 1_000
    wait_until(
        lambda: time.monotonic_ns() > heard_at_ns + limit_ms * 1_000_000, deadline_s=30, what="a timeout and a second"
    )
    later = fleet.set_status(key)
    assert later is not None
    assert later.view.master_epoch == waiting.view.master_epoch == first.master_epoch, "somebody was elected"
    after = heal(fleet).view
    found = judge(fleet)
    counted(
        epochs=(first.master_epoch, before.view.master_epoch, after.master_epoch), acked=acked,
        sets=(first.sync_state_set, before.view.sync_state_set, after.sync_state_set), lost=found["lost"], audit=found,
    )  # fmt: skip
    assert after.master_epoch > before.view.master_epoch
    assert after.master in before.view.sync_state_set
