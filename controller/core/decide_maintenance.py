"""
Beginning and ending the maintenance of a replica or a host.

Here: deciding both. Not here: which replicas it holds for (``maintenance``), noticing that its time is over
(``controller.runtime.order_ends``).

Rule 1: a failure budget counts it as lost, for it may be stopped at any moment. So a maintenance that would spend the
last budget of a set is refused, unless a person says that this is meant; one that would stop a set is refused anyway.
Rule 2: it ends by an entry, never by a clock that ``decide`` reads (``pauses`` rules 2 and 3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import BeginMaintenance, EndMaintenance, Operation
from rollcall_ha.controller.contract.events import MaintenanceBegun, MaintenanceEnded
from rollcall_ha.controller.contract.ids import BrokerId, SetKey
from rollcall_ha.controller.contract.values import MaintenanceScope, host_of
from rollcall_ha.controller.core.decision import Decision, Refusal, done, find_replica, find_set, no_room
from rollcall_ha.controller.core.maintenance import in_maintenance
from rollcall_ha.controller.core.pauses import refuse_time
from rollcall_ha.controller.core.state import MAINTENANCES_MAX, FleetState
from rollcall_ha.controller.core.views import failure_budget, is_whole, view_of


def decide_begin_maintenance(fleet: FleetState, operation: Operation, command: BeginMaintenance) -> Decision:
    """Begin one, or give the one there is another end and reason."""
    refuse_time(operation, "the maintenance", command.expires_at_ms, "rollcall maintenance begin --for 2h")
    concerned = _concerned(fleet, command.scope)
    present = fleet.maintenances.get(command.scope)
    if present is not None and (present.expires_at_ms, present.reason) == (command.expires_at_ms, command.reason):
        return done()
    if present is None and len(fleet.maintenances) >= MAINTENANCES_MAX:
        raise no_room(
            "maintenances", len(fleet.maintenances), MAINTENANCES_MAX, "end some of them: rollcall maintenance list"
        )
    _refuse_budget(fleet, command, concerned)
    return done(MaintenanceBegun(scope=command.scope, expires_at_ms=command.expires_at_ms, reason=command.reason))


def decide_end_maintenance(fleet: FleetState, command: EndMaintenance) -> Decision:
    """End one. There is none, or, for a leader, none with that end any more: nothing changes."""
    present = fleet.maintenances.get(command.scope)
    # An operator prolonged it while the leader's order was under way: ended by that, the replica that is being worked
    # on would be elected.
    if present is None or command.expired_at_ms not in (None, present.expires_at_ms):
        return done()
    is_expired = command.expired_at_ms is not None
    return done(MaintenanceEnded(scope=command.scope, is_expired=is_expired, reason=command.reason))


def _concerned(fleet: FleetState, scope: MaintenanceScope) -> Mapping[SetKey, Collection[BrokerId]]:
    """The replicas that a scope means, by set, sets in order: a refusal names the first, alike on each node (C8)."""
    if scope.host and scope.set_key is None and scope.broker_id is None:
        on_host = {
            key: [one.broker_id for one in fleet.sets[key].replicas if host_of(one.address) == scope.host]
            for key in sorted(fleet.sets)
        }
        # A slip in a name would else be answered with "done", and its host be stopped with masters on it.
        if not any(on_host.values()):
            raise Refusal(
                RefusalCode.UNKNOWN_REPLICA,
                f"no replica has an address on host {scope.host}",
                "see the addresses with: rollcall status",
                requested=scope.host,
            )
        return {key: found for key, found in on_host.items() if found}
    if scope.host or scope.set_key is None or scope.broker_id is None:
        raise Refusal(
            RefusalCode.INVALID_ARGUMENT,
            f"a maintenance is for a host, or for a set's replica: host {scope.host!r}, set {scope.set_key}, "
            f"replica {scope.broker_id}",
            "name HOST, or SET:ID",
        )
    set_state = find_set(fleet, scope.set_key)
    find_replica(set_state, scope.broker_id)
    return {scope.set_key: [scope.broker_id]}


def _refuse_budget(
    fleet: FleetState,
    command: BeginMaintenance,
    concerned: Mapping[SetKey, Collection[BrokerId]],
) -> None:
    """Rule 1, over every set that is concerned."""
    least = 0 if command.spends_last else 1
    short = []
    for key, broker_ids in concerned.items():
        view = view_of(fleet, key)
        assert view is not None
        away = in_maintenance(fleet, fleet.sets[key])
        lost = sum(
            1
            for member in view.members
            if member.broker_id in broker_ids and member.broker_id not in away and is_whole(view, member)
        )
        budget = failure_budget(view, away=away)
        # One that is gone or behind already costs nothing, also in a set that has no budget at all.
        if lost and budget - lost < least:
            short.append((key, broker_ids, budget, budget - lost))
    if not short:
        return
    key, broker_ids, before, after = short[0]
    more = f", and {len(short) - 1} more sets have too little, too" if len(short) > 1 else ""
    names = ", ".join(map(str, broker_ids))
    left = f"{after} more" if after >= 0 else "it would have fewer than it needs"
    spend = "wait until more of its replicas are in sync, or accept that it may lose no other: --spend-last"
    raise Refusal(
        RefusalCode.NO_BUDGET,
        f"{key} may lose {before} more replicas; with {names} in maintenance: {left}{more}",
        spend if after == 0 else "bring another replica into sync first; see: rollcall status",
        requested=after,
        current=before,
    )
