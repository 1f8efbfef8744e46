"""
Maintenance and drain with real processes. ``python -m tests.chaos.drain`` drains 200 sets while a controller is killed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rollcall_ha.controller.contract.commands import OrderSwitchover
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from tests.chaos.drain import HOST, begin, masters_on, on_another_host
from tests.support.fleet_story import counted, rollcall, running

pytestmark = pytest.mark.cluster

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Three controllers, and two sets of two; the first broker of each is on ``HOST``."""
    layout = Layout(sets={"broker-a": 2, "broker-b": 2})
    directory = tmp_path_factory.mktemp("maintenance") / "fleet"
    with running(directory, layout, prepare=lambda made: on_another_host(made, "broker-a-1", "broker-b-1")) as found:
        yield found


def test_a_host_is_kept_out_drained_stopped_and_neither_missed_nor_elected(fleet: Fleet) -> None:
    keys = fleet.set_keys()
    for key in keys:
        fleet.wait_redundant(key)
        if not fleet.master(key).endswith("-1"):
            fleet.client().order(OrderSwitchover(set_key=key, reason="begin there"))
            fleet.wait_redundant(key)
    assert masters_on(fleet, HOST) == len(keys)

    refused = rollcall(fleet, "maintenance", "begin", HOST, "--for", "10m")
    assert (refused.returncode, "NO_BUDGET" in refused.stderr, "--spend-last" in refused.stderr) == (1, True, True)
    begun = rollcall(fleet, "maintenance", "begin", HOST, "--for", "10m", "--spend-last", "--reason", "new kernel")
    assert (begun.returncode, f"rollcall drain {HOST}" in begun.stdout) == (0, True), begun.stderr

    segment = begin(fleet, "drain")
    assert segment.ended() == 0, segment.errors.read_text()
    batch = json.loads(segment.output.read_bytes())
    assert [one["outcome"] for one in batch["moved"]] == ["done"] * len(keys)
    assert masters_on(fleet, HOST) == 0

    for key in keys:
        fleet.terminate(f"{key.name}-1")
        gone = fleet.wait_set(
            key, lambda status: not all(one.is_alive for one in status.replicas), what="its stop", deadline_s=DEADLINE_S
        )
        assert not {"REPLICA_SILENT", "REPLICA_NOT_IN_SYNC"} & set(gone.problems), gone.problems
    # The only heirs come back while their maintenance lasts: the set waits for its end, or for a person.
    for key in keys:
        fleet.restart(f"{key.name}-1")
        fleet.wait_redundant(key)
    fleet.kill("broker-a-2")
    waiting = fleet.wait_set(
        keys[0],
        lambda status: status.view.condition is Condition.NO_ELIGIBLE_REPLICA,
        what="that nobody may be elected",
        deadline_s=DEADLINE_S,
    )
    assert "in maintenance by" in waiting.view.condition_reason
    assert rollcall(fleet, "maintenance", "end", HOST).returncode == 0
    after = fleet.wait_set(
        keys[0], lambda status: status.view.condition is Condition.SERVING, what="a master", deadline_s=DEADLINE_S
    )
    assert after.view.master is not None
    assert fleet.broker_by_id(keys[0], after.view.master) == "broker-a-1"
    counted(batch=batch, waited_because=waiting.view.condition_reason)
