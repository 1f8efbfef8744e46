"""
The master of a set under load is killed, hangs, or has a slave that hangs: real processes, judged from outside.

S18, S32, S35.
"""

from __future__ import annotations

import time

import pytest

from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.deploy.local.processes import wait_until
from tests.support.fleet_story import (
    FLAT_OUT,
    DirectSends,
    counted,
    heal,
    judge,
    load,
    only_set,
    phases_ms,
    timing_of,
    wait_row,
)
from tests.support.fleet_trials import kill_master

pytestmark = pytest.mark.cluster

SENDS_TO_THE_WOKEN = 200
NOTICE_MS = 2_000
"""What polling through a busy machine may add to what the preset promises."""


def test_kill_9_of_the_master_is_survived_within_two_seconds(fleet: Fleet) -> None:
    """masterEpoch + 1 and another master within 2 s by REST alone; nothing acknowledged is missing anywhere."""
    heal(fleet)
    with load(fleet, pause_ms=FLAT_OUT) as work:
        trial = kill_master(fleet)
        work.wait_more()
    row = wait_row(fleet, trial.epoch)
    found = judge(fleet)
    counted(trial=trial, phases_ms=phases_ms(row), total_us=row.total_us, grade=row.grade, audit=found)
    assert trial.is_next_epoch
    assert trial.new_master != trial.old_master
    assert trial.by_rest_ms < 2_000
    assert row.grade == "proven"


def test_a_stopped_master_acknowledges_nothing_when_it_wakes_and_then_follows(fleet: Fleet) -> None:
    """SIGSTOP: another one serves within the preset's worst case. SIGCONT: 0 acknowledgements, then it follows."""
    key = only_set(fleet)
    before = heal(fleet).view
    old = fleet.master(key)
    bound_ms = sum(timing_of(fleet).worst_case_rto_ms().values())
    with load(fleet) as work:
        # Connected before it hangs: what is sent now lies in its socket when it wakes.
        direct = DirectSends(fleet, old)
        stopped_at_ns = time.monotonic_ns()
        fleet.stop(old)
        direct.send(SENDS_TO_THE_WOKEN)
        served = fleet.wait_set(
            key,
            lambda status: status.view.master_epoch > before.master_epoch and status.view.has_entered,
            what="another master to serve",
            deadline_s=bound_ms / 1000 + 20,
        )
        serving_ms = (time.monotonic_ns() - stopped_at_ns) / 1e6
        work.wait_more()
        gap_ms = work.longest_gap_ms(stopped_at_ns)
        fleet.cont(old)
        fates = direct.settle(limit_s=20)
        status = fleet.wait_redundant(key, deadline_s=30)
        back_epoch = status.view.master_epoch
    row = wait_row(fleet, served.view.master_epoch)
    found = judge(fleet)
    counted(
        serving_ms=round(serving_ms), bound_ms=bound_ms, gap_ms=round(gap_ms), fates=fates,
        phases_ms=phases_ms(row), grade=row.grade, audit=found,
    )  # fmt: skip
    assert served.view.master_epoch == before.master_epoch + 1
    assert served.view.master != before.master
    assert serving_ms <= bound_ms + NOTICE_MS
    assert fates.sent == SENDS_TO_THE_WOKEN
    assert fates.acknowledged == 0
    assert fates.refused + fates.unknown == SENDS_TO_THE_WOKEN
    assert back_epoch == served.view.master_epoch, "it took the set back instead of following"


def test_a_slave_that_hangs_leaves_the_set_and_comes_back_by_itself(fleet: Fleet) -> None:
    """It holds acknowledgements up no longer than the preset's time; the master stays; awake, it is in sync again."""
    key = only_set(fleet)
    before = heal(fleet).view
    master = fleet.master(key)
    hanging = next(name for name in fleet.brokers if name != master)
    timing = timing_of(fleet)
    with load(fleet) as work:
        stopped_at_ns = time.monotonic_ns()
        fleet.stop(hanging)
        fleet.wait_set(
            key,
            lambda status: len(status.view.sync_state_set) == len(before.sync_state_set) - 1,
            what=f"{hanging} to leave the SyncStateSet",
        )
        left_ms = (time.monotonic_ns() - stopped_at_ns) / 1e6
        work.wait_more()
        gap_ms = work.longest_gap_ms(stopped_at_ns)
        fleet.cont(hanging)
        after = fleet.wait_redundant(key, deadline_s=30).view
        work.wait_more()
    found = judge(fleet)
    counted(left_ms=round(left_ms), gap_ms=round(gap_ms), audit=found)
    assert after.master_epoch == before.master_epoch, "a slave's death changed the master (S35)"
    assert after.master == before.master
    slack_ms = timing.heartbeat_interval_ms + NOTICE_MS
    assert left_ms <= max(timing.catch_up_timeout_ms, timing.heartbeat_timeout_ms) + slack_ms
    assert gap_ms <= max(timing.catch_up_timeout_ms, timing.heartbeat_timeout_ms) + slack_ms


def test_a_send_that_hanging_slaves_do_not_acknowledge_was_not_answered_while_they_hung(fleet: Fleet) -> None:
    """The set stays as it is, so nothing but time ends the wait; the messages are in all logs when the slaves wake."""
    key = only_set(fleet)
    before = heal(fleet).view
    master = fleet.master(key)
    slaves = [name for name in fleet.brokers if name != master]
    direct = DirectSends(fleet, master)
    for name in slaves:
        fleet.stop(name)
    began_s = time.monotonic()
    direct.send(3)
    fates = direct.settle(limit_s=30)
    took_ms = (time.monotonic() - began_s) * 1_000
    for name in slaves:
        fleet.cont(name)
    after = heal(fleet).view
    with load(fleet) as work:
        work.wait_more()
    counted(fates=fates, took_ms=round(took_ms), audit=judge(fleet))
    assert (fates.unknown, fates.reasons) == (3, {"ack-timeout"})
    assert took_ms >= fleet.client().settings().settings.value("ack_timeout_ms")
    assert after.master_epoch == before.master_epoch


def test_min_in_sync_refuses_writes_when_both_slaves_are_gone(fleet: Fleet) -> None:
    """Of three replicas two must hold a message: alone the master acknowledges nothing, and says why (S09)."""
    key = only_set(fleet)
    before = heal(fleet).view
    master = fleet.master(key)
    slaves = [name for name in fleet.brokers if name != master]
    for name in slaves:
        fleet.kill(name)
    fleet.wait_set(
        key, lambda status: status.view.condition is Condition.WRITES_STOPPED, what="to say that writes are stopped"
    )

    def is_refused() -> bool:
        direct = DirectSends(fleet, master)
        direct.send(1)
        fates = direct.settle(limit_s=2)
        assert fates.acknowledged == 0
        return "min-in-sync" in fates.reasons

    wait_until(is_refused, deadline_s=10, what="the master to refuse for min_in_sync")
    # Alone in its set it could not acknowledge either, and nobody could be elected if it died now.
    kept = fleet.client().set(key).set.view.sync_state_set
    after = heal(fleet).view
    counted(epoch_before=before.master_epoch, epoch_after=after.master_epoch, alone=master, kept=kept)
    # The first one that is gone may be removed before the second is noticed: two are left, which is enough.
    assert set(kept) <= set(before.sync_state_set)
    assert len(kept) >= before.configuration.effective_min_in_sync
    assert after.master_epoch == before.master_epoch
    with load(fleet) as work:
        work.wait_more()
    judge(fleet)
