"""
When the controllers know less than a replica does: after a wipe, after the restore of an old backup (R7).

Here: noticing it, which replicas are awaited, which set is adopted, what was confirmed, where epochs go on;
``begin_again`` for a restored snapshot. Not here: admitting the replicas (``registration``), electing
(``decide_election``).

Rule 1: the newest stored view counts once every replica that any view names has reported. A set that was shrunk from
{1,2} to {1} just before the wipe is known to replica 1 alone.
Rule 2: epochs jump to one of the next 16 multiples of 2**20 above the highest that any replica has shown; the proposer
draws which. Two control planes that are restored from one backup then hardly issue the same epoch.
"""

from __future__ import annotations

from collections.abc import Collection

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import RegisterReplica
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    FleetIncarnation,
    Incarnation,
    LogOffset,
    MasterEpoch,
    ReplicaKind,
    SyncStateSet,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.values import Positions, ReplicaEvidence, StoredView, ToldConfirm
from rollcall_ha.controller.core.state import REPLICAS_PER_SET_MAX, FleetState, Recovery, ReplicaState, SetState

EPOCH_JUMP = 2**20
"""Epochs between two multiples to which a jump may go."""

OWN_VIEW = FleetIncarnation("")
"""Fleet incarnation of a view that no broker stored: what the controllers know themselves, or were told."""

RECOVERED_LEVEL = 2
"""From this feature level on an outage that ends in a recovery is that of the newest view's master."""

NEWCOMERS_LEVEL = 2
"""The feature level from which an empty replica does not speak for a member whose id it was given (R7)."""
CONFIRMED_LEVEL = 2
"""The feature level from which on logs are measured by what is confirmed also in a recovery, and by epochs (R3, R7)."""

CONFIRMS_MAX = REPLICAS_PER_SET_MAX
"""Told confirms that a recovery keeps; of more the last one stays, as strict as it can be."""

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
        # Its id was granted here a moment ago: what it knows of elsewhere is no past of this set. Taken for one, a
        # broker that moved here from another fleet would stop a healthy set until that fleet's replicas report.
        return False
    # Its log shows epoch 9, the controllers were restored from a backup of epoch 7. Without a recovery the next
    # election would issue 8 and then 9 a second time, with another start.
    if is_settled and command.positions.last_epoch > set_state.master_epoch:
        return True
    stored = command.stored
    if stored is None or not has_content(stored):
        return False
    # A restored control plane has a new incarnation, so every broker's view comes from another fleet, also views that
    # are older than the state: those tell nothing new to a set that has a master.
    if stored.fleet_incarnation != fleet.fleet_incarnation:
        return not is_settled or stored.master_epoch > set_state.master_epoch
    return stored.master_epoch > set_state.master_epoch or stored.sync_state_set_epoch > set_state.sync_state_set_epoch


def newcomers_of(level: int, set_state: SetState) -> tuple[BrokerId, ...] | UnsetType:
    """The newcomers of the set's recovery; without one: those that it has if it begins with the next report."""
    if set_state.recovery is not None:
        return set_state.recovery.newcomers
    if level < NEWCOMERS_LEVEL:
        return UNSET
    # A set that has had a master here remembers its ids: an empty replica of it may have become a member in an entry
    # that was lost, and is awaited like any other.
    if set_state.is_established:
        return ()
    return tuple(
        replica.broker_id
        for replica in set_state.replicas
        if replica.kind is ReplicaKind.NATIVE and (replica.positions is None or replica.positions.max_offset == 0)
    )


def is_of_the_past(stored: StoredView | None, positions: Positions) -> bool:
    """Whether a report tells of a reign: by a stored view, or by a record in the log."""
    return has_content(stored) or positions.max_offset > 0


def started(set_state: SetState, newcomers: tuple[BrokerId, ...] | UnsetType) -> Recovery:
    """
    The recovery of a set before the first report: its replicas are awaited, but not its ``newcomers``; UNSET: its
    members alone.

    What the controllers themselves know is the first view. Views are compared by epochs, so it needs no fleet.
    """
    named = set(set_state.sync_state_set)
    # The copy knows 1, 2 and the set {3}. 3, whose volume was put back as well, has forgotten that 2 came in and was
    # left alone; 1 tells {1,3}, and would be elected without all that 2 acknowledged.
    if newcomers is not UNSET:
        named |= {replica.broker_id for replica in set_state.replicas if replica.is_registered}.difference(newcomers)
    own = StoredView(
        fleet_incarnation=OWN_VIEW,
        master_epoch=set_state.master_epoch,
        sync_state_set_epoch=set_state.sync_state_set_epoch,
        sync_state_set=set_state.sync_state_set,
    )
    return Recovery(
        named=tuple(sorted(named)),
        reported=(),
        newest=own if set_state.is_established else None,
        highest_epoch=set_state.master_epoch,
        highest_set_epoch=set_state.sync_state_set_epoch,
        newcomers=newcomers,
    )


def after_report(
    set_state: SetState,
    broker_id: BrokerId,
    stored: StoredView | None,
    positions: Positions | None,
    *,
    newcomers: tuple[BrokerId, ...] | UnsetType,
) -> Recovery:
    """
    The set's recovery, begun if need be, after one replica has reported; without its positions it has not yet.

    ``newcomers``: those of the set before this report (``newcomers_of``).
    """
    recovery = set_state.recovery or started(set_state, newcomers)
    # A RocketMQ broker that registered and has not sent a heartbeat: counted as a report, its log would be compared as
    # empty, and a shorter one elected.
    if positions is None:
        return recovery
    if newcomers is not UNSET and broker_id in newcomers:
        # An empty machine registered first with wiped controllers and got id 1. Taken for the report of the member 1
        # that another's view names, its word would let a set go on without what that one alone may hold.
        if not is_of_the_past(stored, positions):
            return recovery
        recovery = replace(recovery, newcomers=tuple(one for one in newcomers if one != broker_id))
    highest_epoch = max(recovery.highest_epoch, positions.last_epoch)
    reported = tuple(sorted({*recovery.reported, broker_id}))
    if stored is None or not has_content(stored):
        return replace(recovery, reported=reported, highest_epoch=MasterEpoch(highest_epoch))
    # The newest view, not the last to arrive: replica 2, out of the set since epoch 5, reports {1,2} last.
    newest = max((view for view in (recovery.newest, stored) if view is not None), key=_age)
    # An operator cleaned 1, which will not come back, and 3, which was down, reports the set of before: awaited again,
    # 1 would keep the set from an election, and be let in with the id that was taken from it (C6).
    kept_out = () if set_state.kept_out is UNSET else set_state.kept_out
    named = {*recovery.named, *stored.sync_state_set}.difference(kept_out)
    return replace(
        recovery,
        # Every view adds to the awaited ones, older ones too: until all have spoken nobody knows which is the newest.
        named=tuple(sorted(named)),
        reported=reported,
        newest=newest,
        highest_epoch=MasterEpoch(max(highest_epoch, stored.master_epoch)),
        highest_set_epoch=SyncStateSetEpoch(max(recovery.highest_set_epoch, stored.sync_state_set_epoch)),
    )


def _age(view: StoredView) -> tuple[int, int, SyncStateSet]:
    # The set is part of the key: two views of one version that differ (two fleets, one name) must not win by arrival,
    # or the order of registrations would decide which set is adopted.
    return view.master_epoch, view.sync_state_set_epoch, view.sync_state_set


def without(recovery: Recovery, cleaned: Collection[BrokerId]) -> Recovery:
    """``recovery`` without waiting for ``cleaned``: an operator said that these replicas will not come back."""
    return replace(recovery, named=tuple(broker_id for broker_id in recovery.named if broker_id not in cleaned))


def confirmed_after(recovery: Recovery, holds: Positions) -> tuple[ToldConfirm, ...]:
    """
    The confirm offsets that are known in a recovery after a replica of ours has told what it holds: those of which no
    other one says more, ``CONFIRMS_MAX`` at most.
    """
    known = () if recovery.confirmed is UNSET else recovery.confirmed
    # Never beyond the teller's own end, as outside of a recovery: every honest replica would lack it.
    offset = min(holds.confirm_offset, holds.max_offset)
    epochs = () if holds.confirm_epochs is UNSET else holds.confirm_epochs
    told = ToldConfirm(log_epoch=holds.last_epoch, epochs=epochs, offset=offset)
    # Of a log without a confirmed byte nothing is asked: as a word of epoch 4 it would rule out each log of epoch 3.
    if offset <= 0 or any(_implies(one, told) for one in known):
        return known
    kept = (*(one for one in known if not _implies(told, one)), told)
    if len(kept) <= CONFIRMS_MAX:
        return kept
    last = max(kept, key=lambda one: (one.log_epoch, one.offset))
    return (replace(last, epochs=()),)


def _implies(told: ToldConfirm, other: ToldConfirm) -> bool:
    """Whether each log that has what ``told`` confirms has what ``other`` confirms."""
    is_behind = (told.log_epoch, told.offset) >= (other.log_epoch, other.offset)
    return is_behind and all(_has(other, epoch, told.offset) for epoch in told.epochs)


def _has(told: ToldConfirm, last_epoch: MasterEpoch, end: LogOffset) -> bool:
    """Whether a log that ends in ``last_epoch`` at ``end`` has the confirmed bytes, by what is known of it."""
    # 900 confirmed bytes of epoch 4 are more than any log of epoch 3 can hold. But master 2 entered epoch 4 at 900 and
    # died with it before it wrote a byte: all that is confirmed lies in epoch 3, and a member that ends there at 900
    # has it. So has one that ends in an epoch between the two which the teller's log has, too: both have what its one
    # master had. Of any other one in between nothing is known: its master may have been one whom nobody followed.
    return (last_epoch, end) >= (told.log_epoch, told.offset) or (last_epoch in told.epochs and end >= told.offset)


def lacks_confirmed(set_state: SetState, replica: ReplicaState | None, holds: Positions | ReplicaEvidence) -> str:
    """Which confirmed bytes are not in this log, in words; empty: none that is known of."""
    # All replicas of a Java set may end below it after a power cut: they prove nothing, and its longest log is elected.
    if replica is None or replica.kind is not ReplicaKind.NATIVE:
        return ""
    # Member 4 reported 900, all of them acknowledged. Its volume was put back to 500, and it reported that: as the only
    # member it was the longest of all reports, and a clean election cut 400 acknowledged bytes from the others. Of a
    # log of a later reign this says nothing: an unclean election may have taken what was confirmed before it.
    if holds.last_epoch <= set_state.master_epoch and set_state.held_by(holds) < set_state.known_confirm:
        return f"{end_words(set_state, holds)}, below the known confirm offset {set_state.known_confirm}"
    # A log of a reign that the controllers have lost is measured by the confirms that replicas have told of it. Without
    # them member 4 would be elected with its 500 bytes there, too.
    told = UNSET if set_state.recovery is None else set_state.recovery.confirmed
    lacking = () if told is UNSET else [one for one in told if not _has(one, holds.last_epoch, holds.max_offset)]
    if not lacking:
        return ""
    last = max(lacking, key=lambda one: (one.log_epoch, one.offset))
    end = f"ends in epoch {holds.last_epoch} at {holds.max_offset}"
    return f"{end}, below the known confirm offset {last.offset} of epoch {last.log_epoch}"


def end_words(set_state: SetState, holds: Positions | ReplicaEvidence) -> str:
    """Where a log ends, and where its epoch did if that was before."""
    held = set_state.held_by(holds)
    past = f" in epoch {holds.last_epoch}, which ended at {held}" if held < holds.max_offset else ""
    return f"ends at {holds.max_offset}{past}"


def newest_reign(recovery: Recovery | None) -> tuple[BrokerId, Incarnation] | None:
    """The master of the newest view, and its process; None = the last one that is known here is meant."""
    newest = recovery.newest if recovery is not None else None
    if newest is None or newest.master is UNSET or newest.master_incarnation is UNSET:
        return None
    return newest.master, newest.master_incarnation


def adopted_set(recovery: Recovery, *, present: SyncStateSet, voters: Collection[BrokerId]) -> SyncStateSet:
    """The set that is taken over once no replica is awaited any more; as long as one is, the present one."""
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
    # Some broker may hold an epoch that no replica has shown here. A master of epoch 8 is partitioned while its set is
    # restored from a backup of 7: issued again, 8 would have two starts. A jump lands above all of them. An imported
    # set counts on by one: each of its brokers has been asked.
    if set_state.recovery is not None and set_state.recovery.elsewhere is None:
        highest = max(set_state.recovery.highest_epoch, set_state.master_epoch)
        return MasterEpoch((highest // EPOCH_JUMP + 1 + epoch_jump_draw) * EPOCH_JUMP)
    return MasterEpoch(max(set_state.master_epoch, floor if floor is not None else 0) + 1)


def next_set_epoch(set_state: SetState) -> SyncStateSetEpoch:
    """
    The SyncStateSetEpoch after the next change, above every one that a replica has shown: a master adopts a state of
    its own epoch only if this number is higher (R2).
    """
    highest = set_state.sync_state_set_epoch
    if set_state.recovery is not None:
        highest = SyncStateSetEpoch(max(highest, set_state.recovery.highest_set_epoch))
    return SyncStateSetEpoch(highest + 1)


def begin_again(state: FleetState, fleet_incarnation: FleetIncarnation) -> FleetState:
    """
    The state to start from after the restore of a backup: a new fleet incarnation, and every set awaits each of its
    replicas (R7).

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
                # An outage of the backup's time has ended, for all that anybody knows now.
                **({"outage": None, "alive_at_ms": None} if state.feature_level >= RECOVERED_LEVEL else {}),
                replicas=tuple(replace(replica, is_alive=False) for replica in set_state.replicas),
                recovery=_begun_again(set_state),
            )
            for key, set_state in state.sets.items()
        },
    )


def _begun_again(set_state: SetState) -> Recovery | None:
    # One that was under way keeps what it was told: a replica that named {1,2,3} in epoch 9, and is dead by now, tells
    # nobody again. Begun from nothing, {2} of epoch 5 would be the newest view, and be elected.
    recovery = set_state.recovery or (started(set_state, UNSET) if set_state.is_established else None)
    if recovery is None:
        return None
    # Not the members of then alone. 3 became one after the backup; 1 and 2 died before they heard so, and 3 acked as
    # the only member: nobody who reports names it, and 1 would be elected without what it acked.
    registered = {replica.broker_id for replica in set_state.replicas if replica.is_registered}
    return replace(recovery, named=tuple(sorted(registered.union(recovery.named))), reported=())
