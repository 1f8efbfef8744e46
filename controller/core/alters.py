"""
A master's compare-and-set on the SyncStateSet (R1).

Here: ``decide_alter`` and the digest that binds a seq to one content. Not here: what the master waits for meanwhile
(R2, ``ha``).

Rule 1: the verdict on the last alter of the present master is stored, refusals too. The same seq with the same content
hears it again; with other content, or a lower seq, it is refused. Only a higher seq or a new epoch replaces it: nothing
evicts it.
Rule 2: who is not the master of this epoch, by id and incarnation, is refused without a trace in the stored verdict.
Rule 3 (R7, R21): a masterEpoch above the present one tells that the controllers have lost their memory, not that this
mastership is over: epochs are issued once. Nothing is decided before it has been reported by a registration.
Rule 4: members that are added must be alive, registered with the incarnation whose ack passed the join test, and no
learners. Members that merely stay are not checked for liveness: a dying one must not block the others (S07).
"""

from __future__ import annotations

import hashlib

import msgspec

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import AlterSyncStateSet, Operation
from rollcall_ha.controller.contract.events import AlterRefused, SyncStateSetAltered
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, SyncStateSet, SyncStateSetEpoch
from rollcall_ha.controller.contract.replies import AlterDecided, AlterVerdict
from rollcall_ha.controller.core.decision import Decision, find_set, refuse
from rollcall_ha.controller.core.mastership import refuse_other_mastership
from rollcall_ha.controller.core.state import FleetState, SetState

_ENCODER = msgspec.json.Encoder(order="deterministic")


def alter_digest(command: AlterSyncStateSet) -> str:
    """SHA-256 of the alter's content, 64 hex digits: equal for a retry that repeats it byte for byte."""
    return hashlib.sha256(_ENCODER.encode(command)).hexdigest()


def decide_alter(fleet: FleetState, operation: Operation, command: AlterSyncStateSet) -> Decision:
    """Change the set, or refuse and remember the refusal; a retry hears the stored verdict."""
    set_state = find_set(fleet, operation, command.set_key)
    if isinstance(set_state, Decision):
        return set_state
    digest = alter_digest(command)
    last = set_state.last_alter
    if last is not None and last.verdict.master_epoch == command.master_epoch:
        if last.verdict.seq == command.seq and last.digest == digest:
            return Decision(answer=AlterDecided(verdict=last.verdict, reason=last.reason or "answered again"))
        if command.seq <= last.verdict.seq:
            is_reused = command.seq == last.verdict.seq
            return refuse(
                operation,
                RefusalCode.SEQUENCE_REUSED if is_reused else RefusalCode.STALE_SEQUENCE,
                f"seq {command.seq} of epoch {command.master_epoch} "
                + ("was decided with other content" if is_reused else f"is below the last decided, {last.verdict.seq}"),
                "read the stored verdict and propose anew with a higher seq",
                requested=command.seq,
                current=last.verdict.seq,
                alter=last.verdict,
            )
    if set_state.recovery is not None:
        # Never a verdict, which would end the master's union: this seq may have been accepted in what the controllers
        # have lost. {1,2} proposed {1,2,3}; it committed, the answer was lost, then the backup without it was restored.
        # Were the retry decided here, 1 and 2 would release alone, and 3, whose stored view names it, be elected.
        return refuse(
            operation,
            RefusalCode.WAITING_FOR_REPORTS,
            f"{command.set_key} is being taken over after a wipe or restore: whether seq {command.seq} was decided "
            "before is not known here",
            "keep the mastership and its SyncStateSet as they are; a new masterEpoch comes with the next election",
            requested=command.seq,
        )
    fenced = _validate_master(set_state, operation, command)
    if fenced is not None:
        return fenced
    refusal = _refusal(set_state, command)
    if refusal is not None:
        code, reason = refusal
        verdict = _verdict(command, set_state.sync_state_set, set_state.sync_state_set_epoch, refusal=code)
        return Decision(
            answer=AlterDecided(verdict=verdict, reason=reason),
            events=(AlterRefused(verdict=verdict, digest=digest, reason=reason),),
        )
    verdict = _verdict(command, command.new_set, SyncStateSetEpoch(set_state.sync_state_set_epoch + 1), refusal=None)
    return Decision(
        answer=AlterDecided(verdict=verdict, reason="committed"),
        events=(
            SyncStateSetAltered(
                verdict=verdict,
                previous_set=set_state.sync_state_set,
                digest=digest,
                bound_incarnations=_bound_after(set_state, command),
            ),
        ),
    )


def _verdict(
    command: AlterSyncStateSet, members: SyncStateSet, set_epoch: SyncStateSetEpoch, *, refusal: RefusalCode | None
) -> AlterVerdict:
    return AlterVerdict(
        master_epoch=command.master_epoch,
        seq=command.seq,
        is_accepted=refusal is None,
        refusal=refusal,
        sync_state_set=members,
        sync_state_set_epoch=set_epoch,
    )


def _validate_master(set_state: SetState, operation: Operation, command: AlterSyncStateSet) -> Decision | None:
    """Rule 2: only the present mastership may alter; it is (id, incarnation) in one epoch. Rule 3 for a later one."""
    if command.master_epoch > set_state.master_epoch:
        return refuse(
            operation,
            RefusalCode.WAITING_FOR_REPORTS,
            f"masterEpoch {command.master_epoch} is not known here, the newest is {set_state.master_epoch}: "
            "the controllers have lost their memory of it",
            "register again, so that it is reported; until then the mastership and its SyncStateSet stay as they are",
            requested=command.master_epoch,
            current=set_state.master_epoch,
        )
    return refuse_other_mastership(
        set_state,
        operation,
        command,
        "this mastership is over: stop acknowledging, read the set again",
        alter=set_state.last_alter.verdict if set_state.last_alter is not None else None,
    )


def _refusal(set_state: SetState, command: AlterSyncStateSet) -> tuple[RefusalCode, str] | None:
    """Why the present master's alter cannot be; None if it can."""
    if command.sync_state_set_epoch != set_state.sync_state_set_epoch:
        return (
            RefusalCode.FENCED_SYNC_STATE_SET_EPOCH,
            f"SyncStateSetEpoch {command.sync_state_set_epoch} is stale, current is {set_state.sync_state_set_epoch}",
        )
    if command.seq < 1 or tuple(sorted(set(command.new_set))) != command.new_set:
        return (
            RefusalCode.INVALID_ARGUMENT,
            f"seq {command.seq} is below 1, or {command.new_set} is not sorted, each once",
        )
    if command.broker_id not in command.new_set:
        return RefusalCode.MIN_IN_SYNC, f"the new set {command.new_set} lacks the master {command.broker_id}"
    if command.new_set == set_state.sync_state_set:
        return RefusalCode.ALTER_REFUSED, f"the set is {command.new_set} already"
    return _refusal_of_joining(set_state, command)


def _refusal_of_joining(set_state: SetState, command: AlterSyncStateSet) -> tuple[RefusalCode, str] | None:
    added = [member for member in command.new_set if member not in set_state.sync_state_set]
    joining = {member.broker_id: member.incarnation for member in command.joining}
    if sorted(joining) != added or len(joining) != len(command.joining):
        return RefusalCode.INVALID_REPLICAS, f"members {added} are added, incarnations came for {sorted(joining)}"
    for broker_id in added:
        replica = set_state.replica(broker_id)
        if replica is None or not replica.is_voter:
            what = "does not exist" if replica is None else "is a learner or has not registered"
            return RefusalCode.INVALID_REPLICAS, f"replica {broker_id} {what}"
        if replica.incarnation != joining[broker_id]:
            return (
                RefusalCode.FENCED_INCARNATION,
                f"replica {broker_id} joined as incarnation {joining[broker_id]}, registered is {replica.incarnation}",
            )
        if not replica.is_alive:
            return RefusalCode.BROKER_NOT_ALIVE, f"replica {broker_id} is silent"
        if replica.positions is None:
            return RefusalCode.BROKER_NOT_ALIVE, f"replica {broker_id} has not told what it holds since it registered"
    return None


def _bound_after(set_state: SetState, command: AlterSyncStateSet) -> tuple[tuple[BrokerId, Incarnation], ...]:
    joining = [(member.broker_id, member.incarnation) for member in command.joining]
    staying = [bound for bound in set_state.bound_incarnations if bound[0] in command.new_set]
    return tuple(sorted([*joining, *staying]))
