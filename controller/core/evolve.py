"""
What an event makes of one broker set.

Here: ``evolve``, ``evolve_all``. Not here: whether the event may happen (``decide``), what is common to all sets
(``apply``).

Rule 1: total. Any event on any state gives a state; an event about an unknown replica or kind changes nothing.
Rule 2: all that a step needs is in the event and its stamp: the records of a set give its state. Times of outages alone
count the steps of the clock, too, which belong to no set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from rollcall_ha.controller.contract.events import (
    AlterRefused,
    AnyEvent,
    BrokerIdGranted,
    ConfirmsNoted,
    EventRecord,
    GoodbyeSaid,
    LossGraded,
    MasterElected,
    MasterEntered,
    OwnerBound,
    ReplicaAlive,
    ReplicaRegistered,
    ReplicasCleaned,
    ReplicaSilent,
    SessionOpened,
    SetConfigured,
    SetImported,
    StopAnnounced,
    SyncStateSetAltered,
    WritesResumed,
    WritesStopped,
)
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    LogOffset,
    ReplicaKind,
    SessionOrdinal,
)
from rollcall_ha.controller.contract.values import SilenceCause
from rollcall_ha.controller.contract.verdicts import ElectionKind, Intactness
from rollcall_ha.controller.core import flaps, switchovers
from rollcall_ha.controller.core.importing import evolve_import
from rollcall_ha.controller.core.outages import noted
from rollcall_ha.controller.core.proof import reign_of
from rollcall_ha.controller.core.recovery import after_report, without
from rollcall_ha.controller.core.state import (
    ENDED_INCARNATIONS_KEPT,
    REIGNS_KEPT,
    Reign,
    ReplicaState,
    SetState,
    StoredAlter,
    WritesState,
    bound_to,
)


def evolve(set_state: SetState, event: AnyEvent) -> SetState:
    """
    The set after ``event``. Total: never raises, never refuses; events without effect on a set return it as it is.
    """
    step = _STEPS.get(type(event))
    return set_state if step is None else step(set_state, event)


def evolve_all(set_state: SetState, records: Iterable[EventRecord], *, stepped_ms: int = 0) -> SetState:
    """
    The set after the events of all ``records``, in order, with what their stamps and names tell.

    ``stepped_ms``: by how much the clock of these stamps has stepped so far (``FleetState.stepped_ms``).
    """
    for record in records:
        event, stamped_at_ms = record.event, record.stamped_at_ms
        before, set_state = set_state, evolve(set_state, event)
        if isinstance(event, MasterElected):
            set_state = replace(set_state, last_elected_at_ms=stamped_at_ms)
        elif isinstance(event, WritesStopped) and set_state.writes is not None:
            told_at_ms = stamped_at_ms - stepped_ms
            began_at_ms = max(0, told_at_ms - event.age_us // 1_000)
            writes = replace(set_state.writes, began_at_ms=began_at_ms, told_at_ms=told_at_ms, told_by=record.ref)
            set_state = replace(set_state, writes=writes)
        set_state = flaps.noted(before, set_state, record, stamped_at_ms - stepped_ms)
        set_state = noted(before, set_state, record, stamped_at_ms - stepped_ms)
        set_state = switchovers.noted(set_state, record)
    return set_state


def _with_replica(set_state: SetState, changed: ReplicaState) -> tuple[ReplicaState, ...]:
    return tuple(changed if replica.broker_id == changed.broker_id else replica for replica in set_state.replicas)


def _changed(set_state: SetState, broker_id: BrokerId, **changes: object) -> SetState:
    replica = set_state.replica(broker_id)
    if replica is None:
        return set_state
    return replace(set_state, replicas=_with_replica(set_state, replace(replica, **changes)))


def _id_granted(set_state: SetState, event: BrokerIdGranted) -> SetState:
    before = set_state.replica(event.broker_id)
    if before is not None and before.register_code == event.register_code:
        return set_state
    granted = ReplicaState(broker_id=event.broker_id, register_code=event.register_code, address=event.address)
    # A newcomer yields the id to the replica that had it before the controllers lost their memory (R7).
    others = (replica for replica in set_state.replicas if replica is not before)
    return replace(
        set_state,
        replicas=tuple(sorted((*others, granted), key=lambda replica: replica.broker_id)),
        # After a wipe a replica brings id 3 while the next one here is 1: given again, 3 would be two replicas (C6).
        next_id=BrokerId(max(set_state.next_id, event.broker_id + 1)),
        is_tombstone=False,
    )


def _registered(set_state: SetState, event: ReplicaRegistered) -> SetState:
    before = set_state.replica(event.broker_id)
    if before is None:
        return set_state
    is_new = before.incarnation != event.incarnation
    ended = before.ended_incarnations
    if is_new and before.incarnation is not None:
        ended = (*ended, before.incarnation)[-ENDED_INCARNATIONS_KEPT:]
    after = replace(
        before,
        description=event.description,
        address=event.description.address,
        incarnation=event.incarnation,
        session_ordinal=event.session_ordinal,
        boot_id=event.boot_id,
        store_id=event.store_id,
        positions=event.positions if event.are_positions_known else None,
        intactness=event.intactness,
        is_alive=True,
        silence=None,
        # A repeated session of the same process keeps the mark; a new process is judged anew.
        is_suspect=event.intactness is Intactness.SUSPECT or (before.is_suspect and not is_new),
        is_stopping=False,
        goodbye=None,
        # So that a registration of one of them that arrives late is refused, not taken for a new process (R13).
        ended_incarnations=ended,
        # The next process has loaded nothing yet.
        is_warm=UNSET if is_new else before.is_warm,
    )
    # A master that restarts is not the master any more: its dead process was elected. Left on record, the set would
    # look served, and no successor be elected. (That the new process does not enter the epoch a second time is kept by
    # the incarnation in the notice, R9.)
    is_master_over = set_state.master == event.broker_id and is_new
    has_left = event.broker_id in set_state.sync_state_set and event.broker_id not in event.sync_state_set
    result = replace(
        set_state,
        configuration=event.configuration,
        replicas=_with_replica(set_state, after),
        master=None if is_master_over else set_state.master,
        master_incarnation=None if is_master_over else set_state.master_incarnation,
        # Kept until the next election or alter: RocketMQ's longest log is looked for among all former members (R3).
        fallen=tuple(sorted({*set_state.fallen, event.broker_id})) if has_left and after.is_voter else set_state.fallen,
        known_confirm=_confirm_after(set_state, event),
    )
    if event.is_recovering:
        # A replica that registered an hour ago told an older end, and no view: it must register again.
        if set_state.recovery is None:
            result = replace(result, replicas=_without_sessions(result.replicas, event.broker_id))
        known = event.positions if event.are_positions_known else None
        recovering = after_report(set_state, event.broker_id, event.stored, known, newcomers=event.newcomers)
        # An event of feature level 1 tells none, and leaves what is known.
        told = recovering.confirmed if event.confirmed is UNSET else event.confirmed
        result = replace(result, recovery=replace(recovering, confirmed=told))
    return _with_set(result, event)


def _without_sessions(replicas: tuple[ReplicaState, ...], reporter: BrokerId) -> tuple[ReplicaState, ...]:
    """
    A recovery begins: sessions from before it end, so that each replica registers again, and by that reports.

    RocketMQ's brokers have no sessions; the port registers them anew when it hears them.
    """
    return tuple(
        replace(replica, session_ordinal=SessionOrdinal(replica.session_ordinal + 1))
        if replica.is_registered and replica.kind is ReplicaKind.NATIVE and replica.broker_id != reporter
        else replica
        for replica in replicas
    )


def _confirm_after(set_state: SetState, event: ReplicaRegistered) -> LogOffset:
    if event.broker_id not in event.sync_state_set or not event.intactness.keeps_membership:
        return set_state.known_confirm
    # Never beyond the reporter's own end: a confirm offset that its log does not reach would veto every honest replica.
    reported = min(event.positions.confirm_offset, event.positions.max_offset)
    return LogOffset(max(set_state.known_confirm, reported))


def _with_set(set_state: SetState, event: ReplicaRegistered | ReplicasCleaned | SetImported) -> SetState:
    """
    Bind the event's set to the incarnations that are registered now; members without a proof of their own are suspects.
    """
    # The set of a recovery comes from a stored view: its members are members because a view says so, and each that
    # proved nothing is a suspect. As full members they would rank before a longer log in an unclean election (R7).
    members = event.sync_state_set
    replicas = set_state.replicas
    if set_state.recovery is not None and not set_state.recovery.awaited:
        replicas = tuple(
            replace(replica, is_suspect=replica.broker_id in members and not replica.intactness.keeps_membership)
            for replica in replicas
        )
    elif any(replica.is_suspect and replica.broker_id not in members for replica in replicas):
        replicas = tuple(
            replace(replica, is_suspect=False) if replica.broker_id not in members else replica for replica in replicas
        )
    # A master outside of its set: a failover chooses among the members, and would not find what it acknowledged (C3).
    is_master_member = set_state.master in members
    return replace(
        set_state,
        replicas=replicas,
        master=set_state.master if is_master_member else None,
        master_incarnation=set_state.master_incarnation if is_master_member else None,
        sync_state_set=members,
        sync_state_set_epoch=event.sync_state_set_epoch,
        bound_incarnations=bound_to(replicas, members),
    )


def _session_opened(set_state: SetState, event: SessionOpened) -> SetState:
    # The process that said goodbye is back without an election: its next end is one of its own.
    if set_state.is_handover_due and event.broker_id == set_state.master:
        set_state = replace(set_state, is_handover_due=False)
    return _changed(
        set_state,
        event.broker_id,
        session_ordinal=event.session_ordinal,
        description=event.description,
        address=event.description.address,
        is_alive=True,
        silence=None,
        is_stopping=False,
        goodbye=None,
    )


def _silent(set_state: SetState, event: ReplicaSilent) -> SetState:
    # It stays a member and, if it is the master, the master on record: silence ends no reign. With members that leave
    # by being silent the last-known-good set would be gone, and with it the way back (S08).
    return _changed(set_state, event.broker_id, is_alive=False, silence=event.cause)


def _alive(set_state: SetState, event: ReplicaAlive) -> SetState:
    return _changed(set_state, event.broker_id, is_alive=True, silence=None)


def _goodbye(set_state: SetState, event: GoodbyeSaid) -> SetState:
    # Not of a master that was found silent before: its set had lost it already, and by a fault.
    is_planned = set_state.master == event.broker_id and set_state.is_master_alive
    result = _changed(
        set_state, event.broker_id, is_alive=False, silence=SilenceCause.GOODBYE, goodbye=event.clean_mark
    )
    return replace(result, is_handover_due=True) if is_planned else result


def _elected(set_state: SetState, event: MasterElected) -> SetState:
    replicas = set_state.replicas
    reign = reign_of(set_state, event)
    # Records from before this control plane's epochs: refused for them, no old member could come back (R8).
    is_past_known = reign.kind is ElectionKind.BOOTSTRAP or reign.was_restored
    if any(replica.is_suspect for replica in replicas):
        replicas = tuple(replace(replica, is_suspect=False) for replica in replicas)
    # Only by an event of feature level 2: a controller below it makes none, and this field would be a second state.
    if set_state.has_entered and any(candidate.is_warm is not UNSET for candidate in event.verdict.candidates):
        replicas = tuple(
            replace(replica, is_warm=True) if replica.broker_id == set_state.master else replica for replica in replicas
        )
    return replace(
        set_state,
        replicas=replicas,
        master=event.master,
        master_incarnation=event.master_incarnation,
        master_epoch=event.master_epoch,
        last_master=event.master,
        # With the old epoch's start the new master's report would be refused as a second start of this one.
        has_entered=False,
        start_offset=None,
        # The stop of the old reign ends here: its master may never say so, and the set would be stopped for ever.
        writes=None,
        is_handover_due=False,
        sync_state_set=event.sync_state_set,
        bound_incarnations=event.bound_incarnations,
        sync_state_set_epoch=event.sync_state_set_epoch,
        is_established=True,
        accepts_any_epoch=set_state.accepts_any_epoch or is_past_known,
        fallen=(),
        known_confirm=_confirm_elected(set_state, event, may_have_lost=reign.was_suspect or reign.was_restored),
        # Without it, members that return isolate themselves for ever: no log of the set has what they confirmed (R26).
        unclean_epoch=event.master_epoch if _may_lack_confirmed(reign) else set_state.unclean_epoch,
        recovery=None,
        reigns=(*set_state.reigns, reign)[-REIGNS_KEPT:],
    )


def _may_lack_confirmed(reign: Reign) -> bool:
    return reign.kind is ElectionKind.UNCLEAN or reign.was_suspect


def _confirm_elected(set_state: SetState, event: MasterElected, *, may_have_lost: bool) -> LogOffset:
    """
    The confirm offset that members are measured by from here on (R3's veto).

    An election that may lose sets it down to the winner's end: measured by 1000, which no log reaches any more, each
    member that restarts cleanly at 700 would be judged "has lost records".
    """
    by_id = {evidence.broker_id: evidence for evidence in event.evidence.replicas}
    winner = by_id.get(event.master)
    if winner is None:
        return set_state.known_confirm
    if event.verdict.kind is ElectionKind.UNCLEAN or may_have_lost:
        return LogOffset(min(set_state.known_confirm, max(0, winner.max_offset)))
    reported = [
        min(evidence.confirm_offset, evidence.max_offset)
        for broker_id in event.sync_state_set
        if (evidence := by_id.get(broker_id)) is not None
    ]
    # Heard of the old master, which is gone: its slaves may not have told of it yet.
    heard = LogOffset(0) if event.evidence.confirmed is UNSET else event.evidence.confirmed
    return LogOffset(max(set_state.known_confirm, *reported, heard))


def _altered(set_state: SetState, event: SyncStateSetAltered) -> SetState:
    return replace(
        set_state,
        sync_state_set=event.verdict.sync_state_set,
        sync_state_set_epoch=event.verdict.sync_state_set_epoch,
        bound_incarnations=event.bound_incarnations,
        # The master that altered the set lives and holds everything: no longest log has to be looked for any more.
        fallen=(),
        last_alter=StoredAlter(verdict=event.verdict, digest=event.digest, reason=""),
    )


def _alter_refused(set_state: SetState, event: AlterRefused) -> SetState:
    return replace(set_state, last_alter=StoredAlter(verdict=event.verdict, digest=event.digest, reason=event.reason))


def _entered(set_state: SetState, event: MasterEntered) -> SetState:
    return replace(
        set_state,
        has_entered=True,
        start_offset=event.start_offset,
        is_mode_confirmed=event.is_mode_confirmed,
    )


def _graded(set_state: SetState, event: LossGraded) -> SetState:
    return replace(
        set_state,
        reigns=tuple(
            replace(reign, loss=event.verdict) if reign.master_epoch == event.verdict.master_epoch else reign
            for reign in set_state.reigns
        ),
    )


def _cleaned(set_state: SetState, event: ReplicasCleaned) -> SetState:
    is_master_kept = event.master is not None
    is_epoch_kept = event.master_epoch == set_state.master_epoch
    recovering = without(set_state.recovery, event.broker_ids) if set_state.recovery is not None else None
    # Also above ids that are cleaned without ever having registered here (R7): nobody gets one of them again.
    next_id = BrokerId(max([set_state.next_id, *(broker_id + 1 for broker_id in event.broker_ids)]))
    begins_anew = not event.remaining or (not event.sync_state_set and recovering is None)
    result = replace(
        set_state,
        next_id=next_id,
        cleaned_below=next_id,
        kept_out=set_state.kept_out if event.kept_out is UNSET else event.kept_out,
        replicas=tuple(replica for replica in set_state.replicas if replica.broker_id in event.remaining),
        configuration=set_state.configuration if event.remaining else None,
        master=event.master,
        master_incarnation=set_state.master_incarnation if is_master_kept else None,
        master_epoch=event.master_epoch,
        has_entered=set_state.has_entered and is_epoch_kept,
        start_offset=set_state.start_offset if is_epoch_kept else None,
        is_established=set_state.is_established and not begins_anew,
        is_handover_due=set_state.is_handover_due and not begins_anew,
        accepts_any_epoch=set_state.accepts_any_epoch and not begins_anew,
        fallen=tuple(broker_id for broker_id in set_state.fallen if broker_id in event.remaining),
        # A set that begins anew has confirmed nothing: the old value would veto each restart of its new, shorter logs.
        known_confirm=LogOffset(0) if begins_anew else set_state.known_confirm,
        recovery=recovering if event.remaining else None,
        writes=set_state.writes if is_master_kept and is_epoch_kept else None,
        is_tombstone=not event.remaining,
    )
    return _with_set(result, event)


def _confirms_noted(set_state: SetState, event: ConfirmsNoted) -> SetState:
    told = [one.confirm_offset for one in event.confirms if one.set_key == set_state.set_key]
    return replace(set_state, known_confirm=LogOffset(max(set_state.known_confirm, *told, 0)))


def _writes_stopped(set_state: SetState, event: WritesStopped) -> SetState:
    return replace(set_state, writes=WritesState(seq=event.seq, reason=event.reason, detail=event.detail))


def _writes_resumed(set_state: SetState, event: WritesResumed) -> SetState:
    if set_state.writes is None or set_state.writes.seq != event.seq:
        return set_state
    # Kept, over as it is: a report of it that comes late once more must change nothing.
    return replace(set_state, writes=replace(set_state.writes, is_over=True))


def _configured(set_state: SetState, event: SetConfigured) -> SetState:
    if set_state.configuration is None:
        return set_state
    changed = replace(set_state.configuration, expected_replicas=event.expected_replicas, min_in_sync=event.min_in_sync)
    return replace(set_state, configuration=changed)


_STEPS: dict[type[Any], Callable[[SetState, Any], SetState]] = {
    BrokerIdGranted: _id_granted,
    OwnerBound: lambda set_state, event: _changed(set_state, event.broker_id, owner=event.owner),
    ReplicaRegistered: _registered,
    SessionOpened: _session_opened,
    ReplicaSilent: _silent,
    ReplicaAlive: _alive,
    GoodbyeSaid: _goodbye,
    StopAnnounced: lambda set_state, event: _changed(set_state, event.broker_id, is_stopping=True),
    MasterElected: _elected,
    SyncStateSetAltered: _altered,
    AlterRefused: _alter_refused,
    MasterEntered: _entered,
    LossGraded: _graded,
    WritesStopped: _writes_stopped,
    WritesResumed: _writes_resumed,
    ReplicasCleaned: _cleaned,
    SetConfigured: _configured,
    ConfirmsNoted: _confirms_noted,
    SetImported: lambda set_state, event: _with_set(evolve_import(set_state, event), event),
}
"""Kinds that are not here say something about the fleet, or record what changed nothing."""
