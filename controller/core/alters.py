"""
A master's compare-and-set on the SyncStateSet (R1).

Here: ``decide_alter`` and the digest that binds a seq to one content. Not here: what the master waits for meanwhile
(R2, ``ha``).

Rule 1: the set stores the verdict on the last alter of the present master, refusals too. The same seq with the same
content gets the stored verdict; the same seq with other content, and a lower seq, are refused. Only a higher seq or a
new epoch replaces the stored verdict: nothing evicts it. A refusal by the seq carries the stored verdict, so that the
true master goes on above it.
Rule 2: a broker that is not the master of this epoch, by id and incarnation, is refused, and the stored verdict stays.
Rule 3 (R7, R21): an alter of epoch 9 while the state ends at 7 tells that the controllers lost their memory: epochs are
issued once. The mastership of 9 is not over. Nothing is decided before a registration has reported it.
Rule 4: members that are added must be alive, registered with the incarnation whose ack passed the join test, and no
learners. Members that stay are not checked for liveness: a dying one must not block the others (S07).
Rule 5: a seq is at most ``SEQUENCE_STEP_MAX`` above the last one that was decided in its epoch.
"""

from __future__ import annotations

import hashlib

import msgspec

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import AlterSyncStateSet
from rollcall_ha.controller.contract.events import AlterRefused, SyncStateSetAltered
from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, SyncStateSet, SyncStateSetEpoch
from rollcall_ha.controller.contract.replies import AlterDecided, AlterVerdict
from rollcall_ha.controller.core.decision import Decision, Refusal, find_set
from rollcall_ha.controller.core.mastership import refuse_other_mastership
from rollcall_ha.controller.core.state import FleetState, SetState

SEQUENCE_STEP_MAX = 1_000
"""A master counts its proposals one by one. It passes over a number only when a newer state of the set overtook it."""

_ENCODER = msgspec.json.Encoder(order="deterministic")


def alter_digest(command: AlterSyncStateSet) -> str:
    """SHA-256 of the alter's content, 64 hex digits: equal for a retry that repeats it byte for byte."""
    return hashlib.sha256(_ENCODER.encode(command)).hexdigest()


def decide_alter(fleet: FleetState, command: AlterSyncStateSet) -> Decision:
    """Change the set, or refuse and remember the refusal; a retry hears the stored verdict."""
    set_state = find_set(fleet, command.set_key)
    digest = alter_digest(command)
    last = set_state.last_alter
    # The stored verdict comes before every check of the present state. {1} proposed {1,2}, it committed, the answer was
    # lost: checked first, the retry would be refused as stale, 1 would drop 2 from what it waits for and acknowledge
    # alone, and 2, a member, could be elected without that record.
    decided = last if last is not None and last.verdict.master_epoch == command.master_epoch else None
    if decided is not None and decided.verdict.seq == command.seq and decided.digest == digest:
        return Decision(answer=AlterDecided(verdict=decided.verdict, reason=decided.reason or "answered again"))
    if set_state.recovery is not None:
        # Never a verdict, which would end the master's union: this seq may have been accepted in what the controllers
        # have lost. {1,2} proposed {1,2,3}; it committed, the answer was lost, then the backup without it was restored.
        # Were the retry decided here, 1 and 2 would release alone, and 3, whose stored view names it, be elected.
        raise Refusal(
            RefusalCode.WAITING_FOR_REPORTS,
            f"{command.set_key} is being taken over after a wipe or restore: whether seq {command.seq} was decided "
            "before is not known here",
            "keep the mastership and its SyncStateSet as they are; a new masterEpoch comes with the next election",
            requested=command.seq,
        )
    last_seq = decided.verdict.seq if decided is not None else 0
    if decided is not None and command.seq <= last_seq:
        raise _passed_seq(command, decided.verdict)
    # Not stored under the seq: a fenced process could overwrite the verdict that the present master still has to hear.
    _validate_master(set_state, command)
    # Not stored either. Decided, a seq of 2**62 would be the last one of its epoch: nothing fits above it on the wire,
    # and the set could not change before the next election.
    if command.seq > last_seq + SEQUENCE_STEP_MAX:
        raise Refusal(
            RefusalCode.INVALID_ARGUMENT,
            f"seq {command.seq} is more than {SEQUENCE_STEP_MAX} above the last decided, {last_seq}",
            f"propose with seq {last_seq + 1}",
            requested=command.seq,
            current=last_seq,
        )
    refusal = _refusal(set_state, command)
    if refusal is not None:
        code, reason = refusal
        # A refusal is stored as well. The master that heard it drops its proposal; a late duplicate of the same alter
        # that was accepted afterwards would make a member of a replica that nobody waits for (R1).
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


def _passed_seq(command: AlterSyncStateSet, decided: AlterVerdict) -> Refusal:
    # One seq, one content. {1,2} commits as seq 1 and its answer is lost; were {1,3} then decided as seq 1, master 1
    # would hear "accepted" and no longer wait for 2. A lower seq is a late duplicate: its verdict is gone.
    is_reused = command.seq == decided.seq
    return Refusal(
        RefusalCode.SEQUENCE_REUSED if is_reused else RefusalCode.STALE_SEQUENCE,
        f"seq {command.seq} of epoch {command.master_epoch} "
        + ("was decided with other content" if is_reused else f"is below the last decided, {decided.seq}"),
        "read the stored verdict and propose anew with a higher seq",
        requested=command.seq,
        current=decided.seq,
        alter=decided,
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


def _validate_master(set_state: SetState, command: AlterSyncStateSet) -> None:
    """Only the present mastership may alter, it is (id, incarnation) in one epoch (rule 2); a later epoch is rule 3."""
    # "Your mastership is over" would be a lie here. Wiped controllers at epoch 0 would depose the serving master of
    # epoch 9 by it, and elect from less than it holds.
    if command.master_epoch > set_state.master_epoch:
        raise Refusal(
            RefusalCode.WAITING_FOR_REPORTS,
            f"masterEpoch {command.master_epoch} is not known here, the newest is {set_state.master_epoch}: "
            "the controllers have lost their memory of it",
            "register again, so that it is reported; until then the mastership and its SyncStateSet stay as they are",
            requested=command.master_epoch,
            current=set_state.master_epoch,
        )
    refuse_other_mastership(
        set_state,
        command,
        "this mastership is over: stop acknowledging, read the set again",
        alter=set_state.last_alter.verdict if set_state.last_alter is not None else None,
    )


def _refusal(set_state: SetState, command: AlterSyncStateSet) -> tuple[RefusalCode, str] | None:
    """Why the present master's alter cannot be; None if it can."""
    # The compare-and-set. {1,2}: "remove 2" is delayed; both ack v1; 1 loses power and leaves: {2}. Were the alter
    # applied to that set, {1} would be committed, and an empty replica 1 elected. A second guard is the incarnation,
    # above: 1 that came back is no master any more.
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
    # A set without its master: C4 could not elect the replica that acknowledged everything.
    if command.broker_id not in command.new_set:
        return RefusalCode.MIN_IN_SYNC, f"the new set {command.new_set} lacks the master {command.broker_id}"
    if command.new_set == set_state.sync_state_set:
        return RefusalCode.ALTER_REFUSED, f"the set is {command.new_set} already"
    return _refusal_of_joining(set_state, command)


def _refusal_of_joining(set_state: SetState, command: AlterSyncStateSet) -> tuple[RefusalCode, str] | None:
    added = [member for member in command.new_set if member not in set_state.sync_state_set]
    joining = {member.broker_id: member.incarnation for member in command.joining}
    # Every added member needs the incarnation whose ack passed the join test, and no other may bring one: an id alone
    # says nothing about the process that lives under it now.
    if sorted(joining) != added or len(joining) != len(command.joining):
        return RefusalCode.INVALID_REPLICAS, f"members {added} are added, incarnations came for {sorted(joining)}"
    for broker_id in added:
        replica = set_state.replica(broker_id)
        # No send waits for a learner. As a member it could be elected without the records that it lacks (R23).
        if replica is None or not replica.is_voter:
            what = "does not exist" if replica is None else "is a learner or has not registered"
            return RefusalCode.INVALID_REPLICAS, f"replica {broker_id} {what}"
        # 2 acked v1 and passed the join test; it lost power, lost v1 and registered again. The alter names the process
        # that had v1: bound to the new one, 2 would be a member without it, and could be elected.
        if replica.incarnation != joining[broker_id]:
            return (
                RefusalCode.FENCED_INCARNATION,
                f"replica {broker_id} joined as incarnation {joining[broker_id]}, registered is {replica.incarnation}",
            )
        # A replica that is gone would be required from now on: every send would wait for it.
        if not replica.is_alive:
            return RefusalCode.BROKER_NOT_ALIVE, f"replica {broker_id} is silent"
        # A RocketMQ broker that has registered and not told its end yet could not be compared in the next election.
        if replica.positions is None:
            return RefusalCode.BROKER_NOT_ALIVE, f"replica {broker_id} has not told what it holds since it registered"
    return None


def _bound_after(set_state: SetState, command: AlterSyncStateSet) -> tuple[tuple[BrokerId, Incarnation], ...]:
    # Members that stay keep the incarnation that they were bound to, not the registered one: staying proves nothing
    # about a process that came later.
    joining = [(member.broker_id, member.incarnation) for member in command.joining]
    staying = [bound for bound in set_state.bound_incarnations if bound[0] in command.new_set]
    return tuple(sorted([*joining, *staying]))
