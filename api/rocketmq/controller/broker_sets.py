"""
Broker sets as RocketMQ's codes name them: by broker name alone, with Java's result codes. Pure.

Here: finding a set by its name, what an answer shows of it, and which number Java gives a refusal. Not here: handlers
(``handlers``), the decision to refuse (``controller.core``).

Rule 1: a brokerName belongs to one cluster, because 1001 and 1004 carry none: a broker that comes with the same name
and another cluster is refused. A cleaned set holds its name no longer.
Rule 2: the code of a refused 1001 is that of the first check that fails in Java's order.
"""

from __future__ import annotations

from collections.abc import Mapping

from rollcall_ha.api.rocketmq.controller.beans import (
    MasterHeader,
    ReplicaBody,
    SetBody,
    SyncStateSetBody,
    sync_state_set_body,
)
from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.ids import BrokerId, ClusterName, MasterEpoch, SetKey, SyncStateSetEpoch
from rollcall_ha.controller.contract.replies import Refused
from rollcall_ha.controller.core.importing import followed_elsewhere
from rollcall_ha.controller.core.state import ReplicaState, SetState
from rollcall_ha.node.remoting.codes import SystemCode

FIRST_CODE_OF_OURS = 21_000
"""Refusal codes from here on are unknown to RocketMQ."""


class SetsByName:
    """Finds sets by broker name; the index is built again only when there are new sets."""

    def __init__(self) -> None:
        self._keys: dict[str, list[SetKey]] = {}
        self._count = -1

    def find(self, sets: Mapping[SetKey, SetState], name: str | None) -> SetState | None:
        """The set of this name that is not cleaned; None if there is none, or if two clusters use the name."""
        found = self._living(sets, name)
        # Not "the first of two": a 1001 of cluster x would alter the SyncStateSet of cluster y.
        return found[0] if len(found) == 1 else None

    def conflicting_set(self, sets: Mapping[SetKey, SetState], key: SetKey) -> SetKey | None:
        """Another cluster's set of the same name (rule 1)."""
        return next((found.set_key for found in self._living(sets, key.name) if found.set_key != key), None)

    def _living(self, sets: Mapping[SetKey, SetState], name: str | None) -> list[SetState]:
        if len(sets) != self._count:
            # Sets are never removed, tombstones stay: equal counts are equal keys.
            self._keys = {}
            for key in sets:
                self._keys.setdefault(key.name, []).append(key)
            self._count = len(sets)
        return [sets[key] for key in self._keys.get(name or "", ()) if key in sets and not sets[key].is_tombstone]


def belongs_to(found: SetState, cluster: str | None) -> bool:
    """Whether a request that names ``cluster`` means this set; an empty name is no claim."""
    return not cluster or found.set_key.cluster == ClusterName(cluster)


def living_master(found: SetState) -> ReplicaState | None:
    """The recorded master, if it is alive as the process that was elected."""
    return found.replica(found.master) if found.is_master_alive else None


def master_header(found: SetState, *, with_set_epoch: bool = True) -> MasterHeader:
    """The master; without one there is only the epoch, which Java reads always."""
    # A set that moves here has its master under the old controllers still. "No master" would make a slave ask for an
    # election here, and stop following the one that serves.
    elsewhere = followed_elsewhere(found)
    if elsewhere is not None:
        return MasterHeader(
            master_broker_id=elsewhere.master,
            master_address=elsewhere.address,
            master_epoch=elsewhere.master_epoch,
            sync_state_set_epoch=elsewhere.sync_state_set_epoch if with_set_epoch else None,
        )
    master = found.replica(found.master)
    # Restored controllers know an old master (R7): broker 1 of epoch 5, while 2 has reigned in 9. Named here, 1
    # would take the office up again after a restart, when it has no epoch to compare.
    if found.recovery is not None:
        master = None
    return MasterHeader(
        master_broker_id=master.broker_id if master is not None else None,
        master_address=master.address if master is not None else None,
        master_epoch=found.master_epoch,
        sync_state_set_epoch=found.sync_state_set_epoch if with_set_epoch else None,
    )


def is_master_named(found: SetState) -> bool:
    """Whether a broker that registers is told whom to follow: a living master, or one under the old controllers."""
    # Alive: a dead master that is named here is dialled every 5 s, and the broker never asks for an election (1002).
    return followed_elsewhere(found) is not None or (living_master(found) is not None and found.recovery is None)


def set_of(found: SetState) -> bytes:
    """The body with the SyncStateSet that goes with ``master_header``."""
    elsewhere = followed_elsewhere(found)
    if elsewhere is not None:
        return sync_state_set_body(elsewhere.sync_state_set, elsewhere.sync_state_set_epoch)
    return sync_state_set_body(found.sync_state_set, found.sync_state_set_epoch)


def set_body(found: SetState) -> SetBody:
    """One set of the answer to 1006."""
    master = found.replica(found.master)
    replicas = [replica for replica in found.replicas if replica.is_registered]
    members = set(found.sync_state_set)
    return SetBody(
        in_sync_replicas=tuple(_replica_body(found, r) for r in replicas if r.broker_id in members),
        master_address=master.address if master is not None else None,
        master_broker_id=master.broker_id if master is not None else None,
        master_epoch=found.master_epoch,
        not_in_sync_replicas=tuple(_replica_body(found, r) for r in replicas if r.broker_id not in members),
        sync_state_set_epoch=found.sync_state_set_epoch,
    )


def _replica_body(found: SetState, replica: ReplicaState) -> ReplicaBody:
    return ReplicaBody(
        alive=replica.is_alive,
        broker_address=replica.address,
        broker_id=replica.broker_id,
        broker_name=found.set_key.name,
    )


def code_of(refused: Refused) -> int:
    """Java's number for a refusal of ours; a refusal without one is an invalid request."""
    if refused.code is RefusalCode.OVERLOADED:
        return SystemCode.SYSTEM_BUSY
    return refused.code if refused.code < FIRST_CODE_OF_OURS else RefusalCode.INVALID_REQUEST


def silent_additions(found: SetState, asked: SyncStateSetBody) -> list[BrokerId]:
    """Replicas that a 1001 adds and that have not been heard, or have not said what they hold."""
    added = (found.replica(BrokerId(member)) for member in asked.sync_state_set if member not in found.sync_state_set)
    return [r.broker_id for r in added if r is not None and not (r.is_alive and r.positions is not None)]


def code_of_alter(
    found: SetState, asked: SyncStateSetBody, *, master: BrokerId, epoch: MasterEpoch, refusal: RefusalCode
) -> int:
    """Java's number for a refused 1001 (rule 2)."""
    # Not decided, and no refusal: the alter may be in what restored controllers have lost (R2, R7). Java keeps its set
    # and asks again after 5 s, as after every code but 0; its log says "busy" and why, not that the set was refused.
    if refusal is RefusalCode.WAITING_FOR_REPORTS:
        return SystemCode.SYSTEM_BUSY
    members = tuple(BrokerId(member) for member in asked.sync_state_set)
    unknown = [member for member in members if found.replica(member) is None]
    # The order is Java's: after an election the old master sends a burst with its own id and the new epoch, and
    # operators look for 2002 in its log, "not the master". Another order would show them 2001, a race that heals by
    # itself.
    checks = (
        (members == found.sync_state_set, RefusalCode.ALTER_REFUSED),
        (master != found.master, RefusalCode.INVALID_MASTER),
        (epoch != found.master_epoch, RefusalCode.FENCED_MASTER_EPOCH),
        (
            SyncStateSetEpoch(asked.sync_state_set_epoch) != found.sync_state_set_epoch,
            RefusalCode.FENCED_SYNC_STATE_SET_EPOCH,
        ),
        (bool(unknown), RefusalCode.INVALID_REPLICAS),
        (bool(silent_additions(found, asked)), RefusalCode.BROKER_NOT_ALIVE),
        (master not in members, RefusalCode.ALTER_REFUSED),
    )
    fallback = refusal if refusal < FIRST_CODE_OF_OURS else RefusalCode.ALTER_REFUSED
    return next((code for fails, code in checks if fails), fallback)
