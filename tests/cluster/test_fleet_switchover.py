"""
Switchovers of real processes under load (R29), done and rolled back. ``python -m tests.chaos.switchovers`` does many.
"""

from __future__ import annotations

import json

import pytest

from rollcall_ha.client.errors import RefusedError
from rollcall_ha.controller.contract.commands import OrderSwitchover
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.values import SwitchoverEnd
from rollcall_ha.deploy.local import producer
from rollcall_ha.deploy.local.fleet import Fleet
from tests.chaos.switchovers import (
    IN_FLIGHT,
    PAUSE_MS,
    Result,
    all_rollbacks,
    one_switchover,
)
from tests.support.fleet_story import counted, heal, judge, load, only_set

pytestmark = pytest.mark.cluster

ROUNDS = 4


def test_switchovers_under_load_fail_no_send_and_lose_nothing(fleet: Fleet) -> None:
    """Round and round; every send is acknowledged, and the record names the operator and the kind."""
    heal(fleet)
    result = Result()
    with load(fleet, in_flight=IN_FLIGHT, pause_ms=PAUSE_MS) as work:
        for _ in range(ROUNDS):
            one_switchover(fleet, work, result)
        sent = producer.read_counts(fleet.books)
    rows = fleet.client().history(only_set(fleet)).rows[:ROUNDS]
    counted(waits_ms=result.waits_ms, producer=sent, audit=judge(fleet))
    assert result.wrong == []
    assert (sent.unknown, sent.not_appended) == (0, 0)
    assert {row.kind.value for row in rows} == {"switchover"}
    assert all(row.requested_by.startswith("admin") for row in rows)


@pytest.mark.prove
def test_orders_that_cannot_be_carried_out_leave_the_old_master_serving_and_say_why(fleet: Fleet) -> None:
    """Target hangs, target dies, leader dies, deadline; and the links cut, where that can be done."""
    result = Result()
    heal(fleet)
    with load(fleet, in_flight=IN_FLIGHT, pause_ms=PAUSE_MS) as work:
        all_rollbacks(fleet, work, result)
    found = judge(fleet)
    counted(rollbacks=result.rollbacks, waits_ms=result.rollback_waits_ms, audit=found)
    assert result.wrong == []
    ends = [result.rollbacks[name].partition(":")[0] for name in ("target hangs", "target dies", "deadline")]
    assert ends == [SwitchoverEnd.TARGET_LOST.value, SwitchoverEnd.TARGET_LOST.value, SwitchoverEnd.DEADLINE.value]


def test_a_dry_run_orders_nothing_and_a_guard_that_does_not_hold_is_refused(fleet: Fleet) -> None:
    heal(fleet)
    key = only_set(fleet)
    before = fleet.wait_redundant(key).view
    assert before.master is not None

    (event,) = fleet.client().preview(OrderSwitchover(set_key=key)).events
    with pytest.raises(RefusedError) as refused:
        fleet.client().order(OrderSwitchover(set_key=key, expected_master=BrokerId(before.master % 3 + 1)))

    assert json.loads(json.dumps(refused.value.problem.code)) == "EXPECTATION_FAILED"
    assert type(event).__name__ == "SwitchoverOrdered"
    after = fleet.wait_redundant(key).view
    assert (after.master, after.master_epoch, after.switchover) == (before.master, before.master_epoch, None)
