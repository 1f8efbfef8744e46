"""
Sets that move here from RocketMQ's controllers, broker after broker.

Here: ``decide_import``, what it does to a set, and when an imported set may elect. Not here: reading the other
controllers (``api.moving``), registering the brokers that come (``registration``).

Two control planes know the set while it moves, and only one of them may elect. So:

Rule 1: an import is a recovery (R7): no replica is elected, granted or cleaned here before every replica has reported
here. The master comes last; until then the brokers that have come are told to follow it where it is.
Rule 2: the set that is adopted then is the master of the import alone. It acked without the replicas that had left
before it; they join again as they catch up.
Rule 3: an import carries the highest masterEpoch that any broker showed, and the first epoch here is the next one,
without a jump. If a broker shows a higher epoch later, the other controllers have elected since, and the set must be
imported again.
Rule 4: a set that is run here, or has been elected in here since, is never overwritten.
"""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ImportSet
from rollcall_ha.controller.contract.events import SetImported
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    MasterEpoch,
    RegisterCode,
    SetKey,
    SyncStateSet,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.values import Evidence, StoredView, made_from
from rollcall_ha.controller.core import recovery
from rollcall_ha.controller.core.decision import Decision, Refusal, done
from rollcall_ha.controller.core.state import (
    REPLICAS_PER_SET_MAX,
    FleetState,
    Recovery,
    ReignElsewhere,
    ReplicaState,
    SetState,
)

IMPORTED_CODE = "imported:"
"""Begins the register code of an id that was imported: nobody was given one."""


def decide_import(fleet: FleetState, command: ImportSet) -> Decision:
    """Take over what other controllers say of a set. The same again changes nothing."""
    complaint = _complaint(command)
    if complaint:
        raise Refusal(RefusalCode.INVALID_ARGUMENT, complaint, "read the other controllers again")
    before = fleet.sets.get(command.set_key) or SetState(set_key=command.set_key)
    _validate(fleet, before, command)
    event = _imported(before, command)
    # While brokers come the import is repeated again and again: each repeat would be an event that tells nothing.
    if evolve_import(before, event) == before:
        return done()
    return done(event)


def _complaint(command: ImportSet) -> str:
    ids = [replica.broker_id for replica in command.replicas]
    if not command.set_key.cluster or not command.set_key.name:
        return f"the set {str(command.set_key)!r} lacks its cluster or its name"
    if not 1 <= len(ids) <= REPLICAS_PER_SET_MAX or sorted(set(ids)) != ids or ids[0] < 1:
        return f"the ids {ids} are not 1 to {REPLICAS_PER_SET_MAX} different ones in order, from 1"
    if any(not replica.address for replica in command.replicas):
        return "a replica has no address"
    if command.next_id <= ids[-1]:
        return f"the next id {command.next_id} is not above {ids[-1]}"
    if command.master not in command.sync_state_set or not set(command.sync_state_set) <= set(ids):
        return f"master {command.master} and SyncStateSet {command.sync_state_set} are not among the ids {ids}"
    if command.master_epoch < 1 or command.sync_state_set_epoch < 0:
        return f"masterEpoch {command.master_epoch} or SyncStateSetEpoch {command.sync_state_set_epoch} is too small"
    return ""


def _validate(fleet: FleetState, before: SetState, command: ImportSet) -> None:
    # RocketMQ's requests carry no cluster: heartbeats of one set would keep the other one's replicas alive.
    namesake = _namesake(fleet, command.set_key)
    if namesake is not None:
        raise Refusal(
            RefusalCode.CLUSTER_MISMATCH,
            f"{namesake} has this broker name already; RocketMQ's requests name no cluster",
            "a broker name can be moved into one cluster only",
        )
    elsewhere = before.recovery.elsewhere if before.recovery is not None else None
    # Typed a second time after the move is over: the master of two weeks ago would be the one to follow again.
    if before.replicas and elsewhere is None:
        raise Refusal(
            RefusalCode.INVALID_REQUEST,
            f"{command.set_key} is run by this fleet already, in masterEpoch {before.master_epoch}",
            "nothing is to be imported; see it with: rollcall status",
            requested=command.master_epoch,
            current=before.master_epoch,
        )
    # An answer of a deposed RocketMQ controller: its master is no longer the one that acknowledges.
    if elsewhere is not None and command.master_epoch < elsewhere.master_epoch:
        raise Refusal(
            RefusalCode.EXPECTATION_FAILED,
            f"masterEpoch {command.master_epoch} is older than what was imported before, {elsewhere.master_epoch}",
            "read the other controllers again",
            requested=command.master_epoch,
            current=elsewhere.master_epoch,
        )


def _namesake(fleet: FleetState, key: SetKey) -> SetKey | None:
    for other, found in fleet.sets.items():
        if other.name == key.name and other.cluster != key.cluster and not found.is_tombstone:
            return other
    return None


def _imported(before: SetState, command: ImportSet) -> SetImported:
    registered = {replica.broker_id for replica in before.replicas if replica.is_registered}
    named = tuple(sorted({replica.broker_id for replica in command.replicas} | registered))
    reported = before.recovery.reported if before.recovery is not None else ()
    # No member before all have reported: until then the other control plane may elect, and a set here would be a second
    # one in which a master could be elected.
    awaited = tuple(broker_id for broker_id in named if broker_id not in reported)
    members: SyncStateSet = () if awaited else (command.master,)
    is_moved = members != before.sync_state_set
    set_epoch = max(before.sync_state_set_epoch, command.sync_state_set_epoch + 1)
    return made_from(
        command,
        SetImported,
        imported_set=command.sync_state_set,
        imported_set_epoch=command.sync_state_set_epoch,
        sync_state_set=members,
        sync_state_set_epoch=SyncStateSetEpoch(set_epoch + 1) if is_moved else before.sync_state_set_epoch,
        awaited_reports=awaited,
    )


def evolve_import(before: SetState, event: SetImported) -> SetState:
    """The set after an import, but for its SyncStateSet (``evolve``). Total."""
    named = {replica.broker_id: replica for replica in event.replicas}
    kept = tuple(replica for replica in before.replicas if replica.is_registered)
    known = {replica.broker_id for replica in kept}
    granted = tuple(
        ReplicaState(
            broker_id=broker_id,
            register_code=RegisterCode(f"{IMPORTED_CODE}{before.set_key}#{broker_id}"),
            address=replica.address,
        )
        for broker_id, replica in named.items()
        if broker_id not in known
    )
    replicas = tuple(sorted((*kept, *granted), key=lambda replica: replica.broker_id))
    master = named.get(event.master)
    past = before.recovery
    return replace(
        before,
        replicas=replicas,
        next_id=BrokerId(max([before.next_id, event.next_id, *(replica.broker_id + 1 for replica in replicas)])),
        # Never down: an epoch that was issued here before the set moved away must not be issued again.
        master_epoch=MasterEpoch(max(before.master_epoch, event.master_epoch)),
        last_master=event.master,
        is_tombstone=False,
        recovery=Recovery(
            named=tuple(replica.broker_id for replica in replicas),
            reported=past.reported if past is not None else (),
            newest=StoredView(
                fleet_incarnation=recovery.OWN_VIEW,
                master_epoch=event.master_epoch,
                sync_state_set_epoch=event.imported_set_epoch,
                sync_state_set=(event.master,),
            ),
            highest_epoch=event.master_epoch,
            highest_set_epoch=event.imported_set_epoch,
            elsewhere=ReignElsewhere(
                master=event.master,
                address=master.address if master is not None else "",
                master_epoch=event.master_epoch,
                sync_state_set=event.imported_set,
                sync_state_set_epoch=event.imported_set_epoch,
            ),
        ),
    )


def followed_elsewhere(set_state: SetState) -> ReignElsewhere | None:
    """The master under other controllers that brokers of this set follow until it has come here, too (rule 1)."""
    elsewhere = set_state.recovery.elsewhere if set_state.recovery is not None else None
    master = set_state.replica(elsewhere.master) if elsewhere is not None else None
    return None if master is None or master.is_registered else elsewhere


def validate_imported(set_state: SetState, evidence: Evidence) -> None:
    """Refuse an election in an imported set whose replicas show a later reign than was imported (rule 3)."""
    recovering = set_state.recovery
    if recovering is None or recovering.elsewhere is None:
        return
    # Registrations and what the leader heard last: the other controllers may elect at any time.
    highest = max([highest_shown(set_state), *(replica.last_epoch for replica in evidence.replicas)])
    if highest <= set_state.master_epoch:
        return
    raise Refusal(
        RefusalCode.WAITING_FOR_REPORTS,
        stale_reason(recovering.elsewhere, highest),
        "import the set again with: rollcall import rocketmq",
        requested=recovering.elsewhere.master_epoch,
        current=highest,
    )


def highest_shown(set_state: SetState) -> MasterEpoch:
    """The highest epoch that a replica has reported here."""
    held = (replica.positions.last_epoch for replica in set_state.replicas if replica.positions is not None)
    return MasterEpoch(max(held, default=0))


def stale_reason(elsewhere: ReignElsewhere, highest: MasterEpoch) -> str:
    """Why an import is out of date, in words (rule 3)."""
    return (
        f"a replica shows epoch {highest}, the import knew of {elsewhere.master_epoch}: the other controllers have "
        "elected since"
    )
