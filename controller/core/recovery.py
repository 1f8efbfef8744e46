"""
When the controllers know less than a replica does: after a wipe, after the restore of an old backup (R7).

Here: noticing it, whom to wait for, which set is adopted, where epochs go on; ``begin_again`` for a restored snapshot.
Not here: admitting the replicas (``registration``), electing (``decide_election``). Imports: ``controller.contract``,
``state``.

Rule 1: what the newest stored view says counts only when everybody whom any view names has reported: a set that was
shrunk just before the wipe is known to its last members alone.
Rule 2: epochs jump to one of the next 16 multiples of 2**20 above the highest that anybody has shown, drawn by the
proposer: two controllers that are restored from one backup do not issue the same epoch.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import RegisterReplica
from rollcall_ha.controller.contract.ids import BrokerId, FleetIncarnation, MasterEpoch, SyncStateSet, SyncStateSetEpoch
from rollcall_ha.controller.contract.values import Positions, StoredView
from rollcall_ha.controller.core.state import FleetState, Recovery, SetState

EPOCH_JUMP = 2**20
"""Epochs between two multiples to which a jump may go."""

OWN_VIEW = FleetIncarnation("")
"""Of a view that no fleet's brokers stored: what the controllers know, or were told."""

EPOCH_JUMP_DRAWS = 16
"""How many multiples a jump chooses from."""


def has_content(stored: StoredView | None) -> bool:
    """Whether the view tells of a reign; a replica that never saw a master keeps an empty one."""
    return stored is not None and (stored.master_epoch > 0 or bool(stored.sync_state_set))


def knows_more(fleet: FleetState, set_state: SetState | None, command: RegisterReplica) -> bool:
    """Whether this replica has seen a reign or a set that the controllers do not know."""
    if set_state is None:
        return has_content(command.stored)
    is_settled = set_state.is_established and set_state.recovery is None
    replica = set_state.replica(command.broker_id)
    if is_settled and replica is not None and not replica.is_registered:
        # Its id was granted here a moment ago: what it knows of elsewhere is no past of this set.
        return False
    if is_settled and command.positions.last_epoch > set_state.master_epoch:
        return True
    stored = command.stored
    if stored is None or not has_content(stored):
        return False
    if stored.fleet_incarnation != fleet.fleet_incarnation:
        return not is_settled or stored.master_epoch > set_state.master_epoch
    return stored.master_epoch > set_state.master_epoch or stored.sync_state_set_epoch > set_state.sync_state_set_epoch


def started(set_state: SetState) -> Recovery:
    """
    The recovery of a set of which nobody has reported yet: its own members are awaited.

    What the controllers themselves know is the first stored view. Views are compared by epochs, so it needs no fleet.
    """
    own = StoredView(
        fleet_incarnation=OWN_VIEW,
        master_epoch=set_state.master_epoch,
        sync_state_set_epoch=set_state.sync_state_set_epoch,
        sync_state_set=set_state.sync_state_set,
    )
    return Recovery(
        named=set_state.sync_state_set,
        reported=(),
        newest=own if set_state.is_established else None,
        highest_epoch=set_state.master_epoch,
        highest_set_epoch=set_state.sync_state_set_epoch,
    )


def after_report(
    set_state: SetState, broker_id: BrokerId, stored: StoredView | None, positions: Positions | None
) -> Recovery:
    """The set's recovery, begun if need be, after one replica has reported; without its positions it has not yet."""
    recovery = set_state.recovery or started(set_state)
    if positions is None:
        return recovery
    highest_epoch = max(recovery.highest_epoch, positions.last_epoch)
    reported = tuple(sorted({*recovery.reported, broker_id}))
    if stored is None or not has_content(stored):
        return replace(recovery, reported=reported, highest_epoch=MasterEpoch(highest_epoch))
    newest = max((view for view in (recovery.newest, stored) if view is not None), key=_age)
    return replace(
        recovery,
        named=tuple(sorted({*recovery.named, *stored.sync_state_set})),
        reported=reported,
        newest=newest,
        highest_epoch=MasterEpoch(max(highest_epoch, stored.master_epoch)),
        highest_set_epoch=SyncStateSetEpoch(max(recovery.highest_set_epoch, stored.sync_state_set_epoch)),
    )


def _age(view: StoredView) -> tuple[int, int, SyncStateSet]:
    # The set is part of the key so that two views of one version cannot compare equal and differ.
    return view.master_epoch, view.sync_state_set_epoch, view.sync_state_set


def without(recovery: Recovery, cleaned: Collection[BrokerId]) -> Recovery:
    """``recovery`` when nobody waits any longer for ``cleaned``."""
    return replace(recovery, named=tuple(broker_id for broker_id in recovery.named if broker_id not in cleaned))


def adopted_set(recovery: Recovery, *, present: SyncStateSet, voters: Collection[BrokerId]) -> SyncStateSet:
    """The set that is taken over once nobody is awaited any more; as long as somebody is, the present one."""
    if recovery.awaited:
        return present
    newest = recovery.newest.sync_state_set if recovery.newest is not None else present
    return tuple(sorted(broker_id for broker_id in newest if broker_id in voters))


def next_master_epoch(set_state: SetState, *, epoch_jump_draw: int, floor: MasterEpoch | None = None) -> MasterEpoch:
    """
    The epoch of the next reign: one more, or a jump after a wipe or restore (R7); an imported set counts on.

    Args:
        set_state: The set before the election.
        epoch_jump_draw: 0..15, drawn by the proposer.
        floor: The new epoch is above this one as well; None = no such bound.
    """
    if set_state.recovery is not None and set_state.recovery.elsewhere is None:
        highest = max(set_state.recovery.highest_epoch, set_state.master_epoch)
        return MasterEpoch((highest // EPOCH_JUMP + 1 + epoch_jump_draw) * EPOCH_JUMP)
    return MasterEpoch(max(set_state.master_epoch, floor if floor is not None else 0) + 1)


def next_set_epoch(set_state: SetState) -> SyncStateSetEpoch:
    """The SyncStateSetEpoch after the next change: above everything that anybody has shown."""
    highest = set_state.sync_state_set_epoch
    if set_state.recovery is not None:
        highest = SyncStateSetEpoch(max(highest, set_state.recovery.highest_set_epoch))
    return SyncStateSetEpoch(highest + 1)


def begin_again(state: FleetState, fleet_incarnation: FleetIncarnation) -> FleetState:
    """
    The state to start from after the restore of a backup: a new fleet incarnation, and every set awaits its members
    (R7).

    Nobody counts as alive, sessions are void, answered requests are forgotten. To be used offline, before a controller
    starts.
    """
    return replace(
        state,
        fleet_incarnation=fleet_incarnation,
        requests={},
        sets={
            key: replace(
                set_state,
                replicas=tuple(replace(replica, is_alive=False) for replica in set_state.replicas),
                recovery=started(set_state) if set_state.is_established else None,
            )
            for key, set_state in state.sets.items()
        },
    )
