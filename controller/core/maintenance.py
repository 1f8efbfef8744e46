"""
Which replicas are in maintenance, and what that keeps them from.

Here: looking it up. Not here: beginning and ending it (``decide_maintenance``), holding elections
(``decide_election``), alarms (``controller.runtime.views``).

Rule 1: a replica in maintenance is elected by a person's word only, and by the way back of a switchover. A master that
is in maintenance reigns on: ``rollcall drain`` moves it.
Rule 2: a host is the host of a replica's address. A replica that registers there later is in maintenance, too.
"""

from __future__ import annotations

from collections.abc import Mapping

from rollcall_ha.controller.contract.ids import BrokerId, SetKey
from rollcall_ha.controller.contract.values import Maintenance, MaintenanceScope, host_of
from rollcall_ha.controller.core.state import FleetState, ReplicaState, SetState


def in_maintenance(fleet: FleetState, set_state: SetState) -> dict[BrokerId, Maintenance]:
    """The replicas of a set for which one holds, each with its own before that of its host."""
    if not fleet.maintenances:
        return {}
    found = {replica.broker_id: _maintenance_of(fleet, set_state.set_key, replica) for replica in set_state.replicas}
    return {broker_id: one for broker_id, one in found.items() if one is not None}


def _maintenance_of(fleet: FleetState, set_key: SetKey, replica: ReplicaState) -> Maintenance | None:
    own = MaintenanceScope(set_key=set_key, broker_id=replica.broker_id)
    return fleet.maintenances.get(own) or fleet.maintenances.get(MaintenanceScope(host=host_of(replica.address)))


def set_aside(fleet: FleetState, set_state: SetState, *, but_for: BrokerId | None = None) -> Mapping[BrokerId, str]:
    """The replicas that may not be elected now, each with the reason (rule 1); ``but_for``: a person named this one."""
    return {
        broker_id: f"in maintenance by {one.begun_by}{': ' if one.reason else ''}{one.reason}"
        for broker_id, one in in_maintenance(fleet, set_state).items()
        if broker_id != but_for
    }
