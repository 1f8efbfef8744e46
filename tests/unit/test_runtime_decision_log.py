"""What a controller's log says of a decision: the names of machines, as tables and sentences do."""

from __future__ import annotations

import structlog
from msgspec.structs import replace

from rollcall_ha.controller.contract.events import MasterElected
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.runtime.decision_log import log_decisions
from tests.support.core_builders import SET_A, Fleet


def named(state: FleetState) -> FleetState:
    """Broker 1 of the set is ``orders-3``, and so on: ids came in the order of arrival."""
    found = state.sets[SET_A]
    replicas = tuple(replace(one, owner=f"orders-{4 - one.broker_id}") for one in found.replicas)
    return replace(state, sets={**state.sets, SET_A: replace(found, replicas=replicas)})


def test_the_log_of_an_election_said_broker_1_where_the_machine_is_orders_3() -> None:
    fleet = Fleet().serving()
    fleet.silence(1)
    fleet.elect()
    elected = fleet.last.records[-1]
    assert isinstance(elected.event, MasterElected)
    # As the leader orders it for a fault; an order of a person has a reason of his, or none.
    fleet.records[-1] = replace(elected, event=replace(elected.event, reason="broker 1 is gone"))
    fleet.enter()

    with structlog.testing.capture_logs() as lines:
        log_decisions(structlog.get_logger(), fleet.records, named(fleet.state))

    told = [line for line in lines if line["event"] in ("replica_silent", "master_elected", "master_entered")]
    silent, chosen, entered = told[-3:]
    assert silent["broker"] == "orders-3 (1)"
    assert chosen["master"] == entered["master"] == "orders-2 (2)"
    assert chosen["sync_state_set"].startswith("{orders-")
    assert chosen["reason"] == "broker orders-3 (1) is gone"
