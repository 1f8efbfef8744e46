"""
Removing replicas, or a whole set, for good.

Here: ``decide_clean``.

Rule 1: epochs and the next id stay in a tombstone; a replica that comes back gets a fresh id and higher epochs (W29,
S78).
Rule 2: SyncStateSetEpoch rises with every cleaning, so that an alter on its way misses (S13); masterEpoch rises when
the master goes. The master is cleared in the same event.
Rule 3: without the unclean word a replica stays that may still serve or be needed: a master that is not fenced, a
living replica, the last member of the SyncStateSet, any replica of a set that recovers its past (R7, R8).
"""

from __future__ import annotations

from msgspec import UNSET

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import CleanReplicas
from rollcall_ha.controller.contract.events import ReplicasCleaned
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, SyncStateSet
from rollcall_ha.controller.contract.values import SilenceCause
from rollcall_ha.controller.core import recovery
from rollcall_ha.controller.core.decision import Decision, Refusal, done, find_set
from rollcall_ha.controller.core.state import KEPT_OUT_MAX, FleetState, SetState

_FENCING = (SilenceCause.GOODBYE, SilenceCause.REPLACED, SilenceCause.DEAD_AT_ONCE)
"""
Silences after which the process certainly serves no more. After a timeout alone it may serve behind a broken network:
cleaned, it would go on acknowledging, and nobody would ever ask it for those records (R8).
"""


KEPT_OUT_LEVEL = 2
"""The feature level from which on a cleaned id is awaited by no recovery, whoever names it."""


def decide_clean(fleet: FleetState, command: CleanReplicas) -> Decision:
    """Remove the named replicas, or all of them if none is named."""
    set_state = find_set(fleet, command.set_key)
    known = {replica.broker_id for replica in set_state.replicas}
    awaited = set(set_state.recovery.awaited) if set_state.recovery is not None else set()
    named = tuple(sorted(set(command.broker_ids))) or tuple(sorted(known))
    unknown = [broker_id for broker_id in named if broker_id not in known | awaited]
    if unknown:
        raise Refusal(
            RefusalCode.UNKNOWN_REPLICA,
            f"replicas {unknown} of {command.set_key} do not exist",
            "see its replicas with: rollcall status",
        )
    remaining = tuple(sorted(known - set(named)))
    members = _members_after(set_state, remaining, named)
    if not command.is_unclean:
        _validate_clean(set_state, command, named=named, members=members)
    # The epoch rises with the master's removal. Kept, the next master would be elected into the epoch after it, and the
    # removed one, still in its own, would not learn from any higher number that it is over.
    is_master_kept = set_state.master is not None and set_state.master in remaining
    is_epoch_kept = bool(remaining) and (set_state.master is None or is_master_kept)
    return done(
        ReplicasCleaned(
            broker_ids=named,
            remaining=remaining,
            master=set_state.master if is_master_kept else None,
            master_epoch=set_state.master_epoch if is_epoch_kept else MasterEpoch(set_state.master_epoch + 1),
            sync_state_set=members,
            sync_state_set_epoch=recovery.next_set_epoch(set_state),
            is_unclean=command.is_unclean,
            reason=command.reason,
            kept_out=_kept_out(set_state, named) if fleet.feature_level >= KEPT_OUT_LEVEL else UNSET,
        ),
    )


def _kept_out(set_state: SetState, named: SyncStateSet) -> tuple[BrokerId, ...]:
    before = () if set_state.kept_out is UNSET else set_state.kept_out
    return (*(broker_id for broker_id in before if broker_id not in named), *named)[-KEPT_OUT_MAX:]


def _members_after(set_state: SetState, remaining: SyncStateSet, named: SyncStateSet) -> SyncStateSet:
    # A replica that is cleaned leaves the set here, in the same event: a member without a replica would be waited for
    # by every send and could never be elected (C3).
    present = tuple(member for member in set_state.sync_state_set if member in remaining)
    if set_state.recovery is None:
        return present
    voters = frozenset(r.broker_id for r in set_state.replicas if r.is_voter and r.broker_id in remaining)
    return recovery.adopted_set(recovery.without(set_state.recovery, named), present=present, voters=voters)


def _validate_clean(set_state: SetState, command: CleanReplicas, *, named: SyncStateSet, members: SyncStateSet) -> None:
    # "Clean the dead replica 2" after a wipe: its view may be the one that names the newest set (R7).
    if set_state.recovery is not None:
        raise Refusal(
            RefusalCode.WAITING_FOR_REPORTS,
            f"{command.set_key} recovers its past; replicas {list(set_state.recovery.awaited)} have yet to report",
            "wait, or force it with --unclean",
        )
    master = set_state.master
    if master is not None and master in named and not _is_fenced(set_state, master):
        raise Refusal(
            RefusalCode.MASTER_NOT_FENCED,
            f"replica {master} is master in epoch {set_state.master_epoch} and may still serve",
            "stop it first, or force it with --unclean",
            current=master,
        )
    alive = [replica.broker_id for replica in set_state.replicas if replica.broker_id in named and replica.is_alive]
    if alive:
        raise Refusal(
            RefusalCode.INVALID_CLEAN,
            f"replicas {alive} of {command.set_key} are alive",
            "stop them first, or force it with --unclean",
            current=alive,
        )
    # The dead replica 1 is all that is left of {1}; 2 lives and lacks the tail. Cleaned, 1's records would be gone with
    # it, and the set would begin anew with 2 as if nothing had been acknowledged.
    if command.broker_ids and set_state.sync_state_set and not members:
        raise Refusal(
            RefusalCode.INVALID_CLEAN,
            f"replicas {list(named)} are all that is left of the SyncStateSet: nobody else holds every record",
            "bring another replica in sync first, or force it with --unclean",
            current=set_state.sync_state_set,
        )


def _is_fenced(set_state: SetState, master: BrokerId) -> bool:
    replica = set_state.replica(master)
    return replica is None or (not replica.is_alive and replica.silence in _FENCING)
