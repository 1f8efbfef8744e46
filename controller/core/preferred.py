"""
The replica that would be master, had it been there at the last election: the preferred one.

Here: ``preferred_heir``, a function of the state. Not here: for how long it has been so, and the order to switch over
(``controller.runtime.return_duty``).

Rule 1: preferred is as in an election: in the zone of the present master, of smaller priority than it.
Rule 2: only where preferences may rank first, in mode ``all`` with our own replicas, and only to a replica that could
be elected now. A set that has no spare replica stays as it is: nothing is broken.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.ids import AckMode, BrokerId, ReplicaKind
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.core.maintenance import in_maintenance
from rollcall_ha.controller.core.pauses import pause_of
from rollcall_ha.controller.core.state import FleetState, ReplicaState, SetState
from rollcall_ha.controller.core.views import failure_budget, set_view


def preferred_heir(fleet: FleetState, set_state: SetState) -> BrokerId | None:
    """The preferred replica, if it is not master and could be elected; None: there is none, or the set is not whole."""
    master, configuration = set_state.replica(set_state.master), set_state.configuration
    if master is None or configuration is None or configuration.ack_mode is not AckMode.ALL:
        return None
    if any(replica.kind is ReplicaKind.ROCKETMQ for replica in set_state.replicas):
        return None
    if set_state.pending_switchover is not None or pause_of(fleet, set_state.set_key) is not None:
        return None
    away = in_maintenance(fleet, set_state)
    better = [one for one in set_state.replicas if one.broker_id not in away and _is_better(set_state, one, master)]
    if not better:
        return None
    view = set_view(fleet, set_state, term=fleet.term, index=fleet.index)
    if view.condition is not Condition.SERVING or failure_budget(view, away=away) < 1:
        return None
    return min(better, key=lambda one: (_priority(one), one.broker_id)).broker_id


def _is_better(set_state: SetState, one: ReplicaState, master: ReplicaState) -> bool:
    if not (one.is_alive and one.is_voter and not one.is_stopping and set_state.is_intact_member(one)):
        return False
    is_near = not _zone(master) or _zone(one) == _zone(master)
    return is_near and _priority(one) < _priority(master)


def _zone(replica: ReplicaState) -> str:
    return replica.description.zone if replica.description is not None else ""


def _priority(replica: ReplicaState) -> int:
    return replica.description.priority if replica.description is not None else 100
