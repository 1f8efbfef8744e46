"""
Heirs of a set's master, and the rest of the set without one host.

Here: pure functions of a set as the leader shows it, for the command line and for REST. Not here: plans of moves
(``cli.plans``), who is elected (``controller.core.ranking``), the failure budget (``controller.core.views``).

Rule: a host is the host of a replica's address, as with maintenances.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.values import host_of
from rollcall_ha.controller.contract.views import HostShare, ReplicaStatus, SetStatus


def master_of(status: SetStatus) -> ReplicaStatus | None:
    """The master on record."""
    return next((one for one in status.replicas if one.is_master), None)


def heirs(status: SetStatus) -> list[ReplicaStatus]:
    """
    The replicas that could be elected in place of the master, by id.

    In the SyncStateSet, alive, proven, no learner, not about to stop, not in maintenance.
    """
    stopping = {member.broker_id for member in status.view.members if member.is_stopping}
    return [
        one
        for one in sorted(status.replicas, key=lambda one: one.broker_id)
        if not one.is_master
        and _is_whole(one)
        and not one.is_learner
        and one.maintenance is None
        and one.broker_id not in stopping
    ]


def spare_of(status: SetStatus) -> int:
    """
    How many more replicas the set may lose right now.

    Unlike the failure budget, those in maintenance count: the host that is drained is in maintenance, as a rule.
    """
    return _spare(status, sum(_is_whole(one) for one in status.replicas))


def host_shares(status: SetStatus) -> tuple[HostShare, ...]:
    """The share that each host has of the set, in the order of its replicas."""
    whole, able = (
        [host_of(one.address) for one in those] for those in (filter(_is_whole, status.replicas), heirs(status))
    )
    master = master_of(status)
    found = []
    for host in dict.fromkeys(host_of(one.address) for one in status.replicas):
        has_master = master is not None and host_of(master.address) == host
        left, able_left = (sum(one != host for one in hosts) for hosts in (whole, able))
        # A pause elects nobody: the set would wait for a person.
        is_followed = not has_master or (able_left > 0 and status.pause is None)
        is_enough = left >= status.view.configuration.effective_min_in_sync
        goes_on = status.view.condition is Condition.SERVING and is_followed and is_enough
        found.append(
            HostShare(
                host=host,
                has_master=has_master,
                left=left,
                heirs=able_left,
                goes_on=goes_on,
                spare=_spare(status, left) if goes_on else 0,
            )
        )
    return tuple(found)


def _is_whole(one: ReplicaStatus) -> bool:
    return one.is_in_sync and one.is_alive and not one.is_suspect


def _spare(status: SetStatus, whole: int) -> int:
    if status.view.condition is not Condition.SERVING:
        return 0
    return max(0, min(whole - 1, whole - status.view.configuration.effective_min_in_sync))
