"""
Registration: a process names itself (id, register code, incarnation) and tells what its log holds.

Here: admitting or refusing it, and what its judgement does to the SyncStateSet. Not here: the judgement itself
(``intactness``), noticing that a replica knows more than the controllers (``recovery``), ids (``ids``).

Rule 1: a new incarnation is judged here, once. An intact one takes over the membership. One that is not intact leaves
the set; the last member stays as a suspect (R3). Registering a new incarnation ends the one before (R13).
Rule 2: the same incarnation again only opens a further session (S33).
Rule 3: a replica that registers as a learner leaves the set (R23). The last member cannot: its set would be forgotten.
Rule 4: a replica with records that the set's history does not know is refused, never cut (R8).
Rule 5: a registration names what it replaces, and is refused if that is not what is registered: a late duplicate ends
nothing and opens no session (R1, R14). The refusal says what is registered, and the living process asks again with it.
Rule 6: a RocketMQ broker registers before it tells what it holds. Until it registers again with its positions they are
unknown, and a recovery still awaits its report.
Rule 7: while a set recovers its past (R7) no replica leaves it: its members are those of the newest stored view.
Rule 8: a process whose incarnation has ended is refused, and told what a new start of it may take over: nothing while
the one that is registered lives, or while no other master does.
"""

from __future__ import annotations

from msgspec import UNSET, UnsetType

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import Operation, RegisterReplica
from rollcall_ha.controller.contract.events import AnyEvent, BrokerIdGranted, ReplicaRegistered, SessionOpened
from rollcall_ha.controller.contract.ids import BrokerId, ReplicaKind, SessionOrdinal, SyncStateSet
from rollcall_ha.controller.contract.replies import Registered
from rollcall_ha.controller.contract.values import Positions, RegisteredAs, ToldConfirm, made_from
from rollcall_ha.controller.contract.verdicts import Intactness
from rollcall_ha.controller.core import recovery
from rollcall_ha.controller.core.callers import binding
from rollcall_ha.controller.core.decision import Decision, Refusal
from rollcall_ha.controller.core.intactness import judge, with_heard_confirm
from rollcall_ha.controller.core.register_codes import is_proven, kept_code, owner_of
from rollcall_ha.controller.core.state import REPLICAS_PER_SET_MAX, FleetState, ReplicaState, SetState

PREVIOUS_INCARNATIONS_MAX = 64
"""What a registration may name; brokers keep fewer."""
FRESH_ID_HINT = (
    "stop the broker, move its data directory away and start it: it gets a fresh id and copies the log of its master"
)
VACATED_LEVEL = 2
"""The feature level from which an ended process hears of a vacated id (R15)."""
LOST_GRANT_LEVEL = 2
"""The feature level from which an id comes back whose grant was lost with the controllers' entries (R7)."""
ENDED_HINT = (
    "two processes have this id, on copies of one directory: end the one that is not to run; the other goes on within "
    "a minute"
)
AGE_US_MAX = 2**53
"""285 years: a JSON reader keeps every integer up to here."""
SHOWN_EPOCH_MAX = 2**30
"""A masterEpoch has 31 bits on RocketMQ's wire; as many again are left above this one for elections and jumps (R7)."""
SHOWN_NUMBER_MAX = 2**62
"""Offsets and SyncStateSetEpochs have 63 bits on the wire."""


def decide_register(fleet: FleetState, operation: Operation, command: RegisterReplica) -> Decision:
    """Open a session for a replica, judging it if its incarnation is new."""
    # Before anything else, so that no malformed command reaches replicated state: each of these numbers is kept, and
    # compared, for the life of the set.
    _validate(command)
    set_state = with_heard_confirm(fleet.sets.get(command.set_key) or SetState(set_key=command.set_key), operation)
    knows_more = recovery.knows_more(fleet, fleet.sets.get(command.set_key), command)
    replica = set_state.replica(command.broker_id)
    events: tuple[AnyEvent, ...] = ()
    if replica is None or _yields(fleet.feature_level, set_state, replica, command, knows_more=knows_more):
        _validate_readmission(fleet, set_state, command, knows_more=knows_more)
        code, address = kept_code(command.register_code), command.description.address
        replica = ReplicaState(broker_id=command.broker_id, register_code=code, address=address)
        events = (BrokerIdGranted(broker_id=command.broker_id, register_code=code, address=address),)
    is_recovering = set_state.recovery is not None or knows_more
    _validate_identity(fleet, set_state, replica, command, is_recovering=is_recovering)
    event = _registration(fleet.feature_level, set_state, replica, command, is_recovering=is_recovering)
    intactness = event.intactness if isinstance(event, ReplicaRegistered) else Intactness.SAME_INCARNATION
    return Decision(
        answer=lambda view: Registered(
            broker_id=command.broker_id,
            session_ordinal=event.session_ordinal,
            intactness=intactness,
            is_in_sync=command.broker_id in view.sync_state_set,
            view=view,
        ),
        events=(*events, *binding(operation, command.broker_id, replica.owner), event),
    )


def _yields(
    level: int, set_state: SetState, replica: ReplicaState, command: RegisterReplica, *, knows_more: bool
) -> bool:
    """Whether the id belongs to ``command``'s replica: it had it before the controllers lost their memory (R7)."""
    # An empty machine registered before it and got its id, 1. Refused, it would stay out until a person empties it,
    # with the records that it alone may hold; the empty one loses nothing and asks for another id.
    if is_proven(replica, command) or not (knows_more or set_state.recovery is not None):
        return False
    newcomers = recovery.newcomers_of(level, set_state)
    return newcomers is not UNSET and replica.broker_id in newcomers and recovery.has_content(command.stored)


def _validate(command: RegisterReplica) -> None:
    configuration = command.configuration
    named = command.stored.sync_state_set if command.stored is not None else ()
    complaint = ""
    if not command.incarnation or not command.register_code or not command.description.address:
        complaint = "incarnation, register code or address is empty"
    elif command.broker_id < 1:
        complaint = f"broker id {command.broker_id} is below 1"
    elif command.positions.max_offset < 0:
        complaint = f"max offset {command.positions.max_offset} is below 0"
    elif too_high := _too_high(command):
        # Epochs only rise. A forged 2**70 would be the floor of every later election of the set, and no broker could
        # read it: the codecs hold 63 bits, RocketMQ's 31.
        complaint = too_high
    elif not 1 <= configuration.effective_min_in_sync <= configuration.expected_replicas <= REPLICAS_PER_SET_MAX:
        complaint = (
            f"min_in_sync {configuration.effective_min_in_sync} and {configuration.expected_replicas} expected "
            f"replicas are not ordered between 1 and {REPLICAS_PER_SET_MAX}"
        )
    elif command.held_us is not None and not 0 <= command.held_us <= AGE_US_MAX:
        complaint = f"its data directory is held since {command.held_us} us ago, not 0 to {AGE_US_MAX}"
    elif len(named) > REPLICAS_PER_SET_MAX:
        complaint = f"the stored view names {len(named)} members, at most {REPLICAS_PER_SET_MAX} are possible"
    elif len(command.previous_incarnations) > PREVIOUS_INCARNATIONS_MAX:
        complaint = (
            f"{len(command.previous_incarnations)} previous incarnations are named, at most "
            f"{PREVIOUS_INCARNATIONS_MAX} are taken"
        )
    if not complaint:
        return
    raise Refusal(RefusalCode.INVALID_ARGUMENT, complaint, "correct the broker's configuration and restart it")


def _too_high(command: RegisterReplica) -> str:
    stored = command.stored
    if stored is None:
        return too_high(command.positions)
    return too_high(command.positions) or _first_above(
        ("stored masterEpoch", stored.master_epoch, SHOWN_EPOCH_MAX),
        ("stored SyncStateSetEpoch", stored.sync_state_set_epoch, SHOWN_NUMBER_MAX),
    )


def too_high(holds: Positions) -> str:
    """The first number that no wire can carry, in words; empty if there is none. Heartbeats are held to it as well."""
    return _first_above(
        ("masterEpoch", holds.last_epoch, SHOWN_EPOCH_MAX),
        ("max offset", holds.max_offset, SHOWN_NUMBER_MAX),
        ("confirm offset", holds.confirm_offset, SHOWN_NUMBER_MAX),
        ("released offset", holds.released, SHOWN_NUMBER_MAX),
    )


def _first_above(*shown: tuple[str, int, int]) -> str:
    return next((f"{name} {number} is above {limit}" for name, number, limit in shown if number > limit), "")


def _validate_readmission(
    fleet: FleetState, set_state: SetState, command: RegisterReplica, *, knows_more: bool
) -> None:
    """The refusal of an id that is not known here; None if an earlier control plane gave it (R7)."""
    stored = command.stored
    is_foreign = stored is not None and stored.fleet_incarnation != fleet.fleet_incarnation
    # A broker of another fleet with a higher epoch, pointed at these controllers by a wrong address. Taken for the sign
    # of a restored backup, it would stop this set and make it wait for that fleet's replicas.
    if set_state.is_established and set_state.recovery is None and is_foreign and knows_more:
        raise Refusal(
            RefusalCode.WRONG_FLEET,
            f"replica {command.broker_id} is unknown and its epoch "
            f"{max(command.positions.last_epoch, stored.master_epoch if stored else 0)} is above "
            f"{set_state.master_epoch}: it belongs to another fleet",
            "check its controller addresses and its cluster and broker name",
            requested=stored.fleet_incarnation if stored is not None else None,
            current=fleet.fleet_incarnation,
        )
    # An operator cleaned replica 2 while the set recovered its past, and 2's stored view names it all the same:
    # admitted by that view it would be a member again, against the operator's word. With a fresh id it starts anew
    # (C6).
    recovering = set_state.recovery
    # Replica 3 had not come yet when 1 was cleaned, and its id is below the next one. Refused, it would be waited for
    # until somebody cleaned it as well, with all that it holds.
    is_awaited = recovering is not None and command.broker_id in recovering.awaited
    is_cleaned = command.broker_id < set_state.cleaned_below and not is_awaited
    is_named = recovering is not None and command.broker_id in recovering.named
    is_lost = not is_foreign and _is_grant_lost(fleet, set_state, command)
    is_past = stored is not None and (is_foreign or knows_more or is_lost or recovering is not None)
    if is_cleaned or not (is_named or is_past):
        raise Refusal(
            RefusalCode.TOMBSTONED if is_cleaned else RefusalCode.NEED_TO_BE_REGISTERED,
            f"id {command.broker_id} of {command.set_key} was {'cleaned' if is_cleaned else 'never granted'}",
            FRESH_ID_HINT,
            requested=command.broker_id,
            current=set_state.next_id,
        )
    # Two ids for one register code: a copied directory would count as two copies of every record.
    owner = owner_of(set_state.replicas, command.register_code)
    if owner is not None or len(set_state.replicas) >= REPLICAS_PER_SET_MAX:
        raise Refusal(
            RefusalCode.BROKER_ID_INVALID,
            f"this register code has id {owner}, it came as {command.broker_id}"
            if owner is not None
            else f"{command.set_key} already has {REPLICAS_PER_SET_MAX} replicas",
            FRESH_ID_HINT,
            requested=command.broker_id,
            current=owner,
        )


def _is_grant_lost(fleet: FleetState, set_state: SetState, command: RegisterReplica) -> bool:
    """Whether the controllers may have lost the entry that granted this id: they were put back from a copy (R7)."""
    # The set has gone on since, so that no epoch of the replica's view is news. Sent away for a fresh id, it would wait
    # for a person to empty it. Any id above the next one would be taken for the rest of the set's life: a forged 2**62
    # would leave none to grant.
    ahead = command.broker_id - set_state.next_id
    return fleet.feature_level >= LOST_GRANT_LEVEL and 0 <= ahead < REPLICAS_PER_SET_MAX


def _validate_identity(
    fleet: FleetState,
    set_state: SetState,
    replica: ReplicaState,
    command: RegisterReplica,
    *,
    is_recovering: bool,
) -> None:
    # The same id from two directories, as after copying a whole disk: the second would take over the first one's
    # membership, with a log that may be years old.
    if not is_proven(replica, command):
        raise Refusal(
            RefusalCode.BROKER_ID_INVALID,
            f"id {command.broker_id} of {command.set_key} belongs to another register code",
            f"two replicas may share one copied data directory: {FRESH_ID_HINT}",
        )
    # A repeated registration of a process that has ended since. Applied, the dead process would be the current one, and
    # the living one fenced. Rule 5, below, stands behind this; here the broker learns that it must restart.
    if command.incarnation in replica.ended_incarnations:
        raise Refusal(
            RefusalCode.FENCED_INCARNATION,
            f"incarnation {command.incarnation} of replica {command.broker_id} has ended",
            ENDED_HINT
            if fleet.feature_level >= VACATED_LEVEL
            else "restart the broker: every start draws a new incarnation",
            requested=command.incarnation,
            current=replica.incarnation,
            registered=_vacated(fleet, set_state, replica),
        )
    if _has_moved(replica, command):
        raise _moved(replica, command)
    # A directory of another set, or of this set before it was founded anew. As a slave it would find no common epoch
    # and set its log aside, or isolate itself (R26); a person has to say which of the two is wrong (R8).
    if not is_recovering and not _knows_records(set_state, command):
        raise Refusal(
            RefusalCode.UNKNOWN_RECORDS,
            f"replica {command.broker_id} brings records up to epoch {command.positions.last_epoch}, offset "
            f"{command.positions.max_offset}, that this set did not write; its epochs end at {set_state.master_epoch}",
            "start it with an empty data directory, or keep it out of this set; it will not be cut",
            requested=command.positions.last_epoch,
            current=set_state.master_epoch,
        )
    # {2} alone, and 2 comes back as a learner: nobody would be left that the records may be asked for.
    if command.description.is_learner and set_state.sync_state_set == (command.broker_id,):
        raise Refusal(
            RefusalCode.INVALID_REPLICAS,
            f"replica {command.broker_id} is the last member of the SyncStateSet and cannot become a learner",
            "bring another replica in sync first",
        )


def _vacated(fleet: FleetState, set_state: SetState, replica: ReplicaState) -> RegisteredAs | None:
    """The registration that a new start of an ended process may replace (rule 8); None: it stays out."""
    # While the registered process lives, two on copies of one directory would end each other in turns. And while no
    # other master lives, its log may be the only whole one: with the copy registered in its place it comes back without
    # a proof (R3), and in a recovery the copy's report is taken for the one that is awaited (R7).
    has_other_master = set_state.is_master_alive and set_state.master != replica.broker_id
    is_vacated = not replica.is_alive and has_other_master and set_state.recovery is None
    return replica.registered_as if is_vacated and fleet.feature_level >= VACATED_LEVEL else None


def _has_moved(replica: ReplicaState, command: RegisterReplica) -> bool:
    """
    Whether ``command`` was made against another registration than the present one (rule 5).

    A new incarnation replaces an incarnation, a further session of the same one replaces a session.
    """
    # i1 sends its registration and dies; i2 registers and acks. Then i1's arrives. It never was registered, so it is
    # not among the ended ones: without this check it would end i2, whose acks would count for nothing from then on.
    current, replaces = replica.registered_as, command.replaces
    if current is None or replaces is None or current.incarnation != command.incarnation:
        return (current and current.incarnation) != (replaces and replaces.incarnation)
    return current != replaces


def _moved(replica: ReplicaState, command: RegisterReplica) -> Refusal:
    current, replaces = replica.registered_as, command.replaces
    return Refusal(
        RefusalCode.EVIDENCE_MOVED,
        f"the registration of replica {command.broker_id} replaces {_text(replaces)}, registered is {_text(current)}",
        "register again, made against what is registered; a late duplicate has nothing to do",
        requested=_text(replaces),
        current=_text(current),
        registered=current,
    )


def _text(registered: RegisteredAs | None) -> str:
    if registered is None:
        return "nobody"
    return f"incarnation {registered.incarnation}, session {registered.session_ordinal}"


def _knows_records(set_state: SetState, command: RegisterReplica) -> bool:
    """Whether the log can be one of this set: empty, or last written in an epoch that the set has issued."""
    if command.positions.max_offset == 0 or not set_state.is_established:
        return True
    # Epoch 0 is a log from before any master. Only a bootstrapped set has one among its own records.
    oldest = 0 if set_state.accepts_any_epoch else 1
    return oldest <= max(command.positions.last_epoch, 0) <= set_state.master_epoch


def _registration(
    level: int, set_state: SetState, replica: ReplicaState, command: RegisterReplica, *, is_recovering: bool
) -> ReplicaRegistered | SessionOpened:
    ordinal = SessionOrdinal(replica.session_ordinal + 1)
    is_member = command.broker_id in set_state.sync_state_set
    leaves_as_learner = command.description.is_learner and is_member
    is_same = replica.incarnation == command.incarnation
    completes = is_same and replica.positions is None and command.are_positions_known
    if is_same and not (is_recovering or leaves_as_learner or completes):
        return made_from(command, SessionOpened, session_ordinal=ordinal)
    intactness, reason = judge(set_state, replica, command, level=level)
    if completes:
        # Judged when it registered; what it tells now is data for elections, and no proof. Judged a second time against
        # itself, every RocketMQ broker would come out as "the same process", and intact.
        intactness, reason = replica.intactness, "the same process, which has told now what it holds"
        # Elected before this report was applied: its log is what there is. A suspect once more, it would keep each
        # slave that joins it from the office: the set would wait for the dead master's report (R3).
        if intactness is Intactness.SUSPECT and not replica.is_suspect:
            intactness = Intactness.NOT_INTACT
    members = set_state.sync_state_set
    awaited: SyncStateSet = ()
    told: tuple[ToldConfirm, ...] | UnsetType = UNSET
    newcomers: tuple[BrokerId, ...] | UnsetType = UNSET
    if is_recovering:
        # Judged, and it stays a member all the same: wiped controllers know of no earlier incarnation, so by the
        # judgement alone all would be newcomers and the set empty (rule 7). Members without proof become suspects.
        known = command.positions if command.are_positions_known else None
        newcomers = recovery.newcomers_of(level, set_state)
        recovering = recovery.after_report(set_state, command.broker_id, command.stored, known, newcomers=newcomers)
        awaited = recovering.awaited
        if level >= recovery.CONFIRMED_LEVEL and command.description.kind is ReplicaKind.NATIVE:
            told = recovery.confirmed_after(recovering, command.positions)
        members = recovery.adopted_set(recovering, present=members, voters=_voters_after(set_state, command))
    # Acked 5000, power loss, back with 1200, and "a member" in the next election: it could win, and 3800 acknowledged
    # bytes would be cut from the others. Out of the set it must catch up and join again (R3).
    elif is_member and (
        leaves_as_learner or not (completes or intactness.keeps_membership or intactness is Intactness.SUSPECT)
    ):
        members = tuple(member for member in members if member != command.broker_id)
    return made_from(
        command,
        ReplicaRegistered,
        session_ordinal=ordinal,
        configuration=set_state.configuration or command.configuration,
        intactness=intactness,
        intactness_reason=reason,
        sync_state_set=members,
        # Moved with the set: the alter that the master has on its way was made against the set with this member (R1).
        sync_state_set_epoch=(
            recovery.next_set_epoch(set_state)
            if members != set_state.sync_state_set
            else set_state.sync_state_set_epoch
        ),
        awaited_reports=awaited,
        is_recovering=is_recovering,
        confirmed=told,
        newcomers=newcomers,
    )


def _voters_after(set_state: SetState, command: RegisterReplica) -> frozenset[BrokerId]:
    voters = {replica.broker_id for replica in set_state.replicas if replica.is_voter} - {command.broker_id}
    return frozenset(voters if command.description.is_learner else voters | {command.broker_id})
