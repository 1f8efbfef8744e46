"""
What the three electing commands do to a set: by policy, unclean, first.

Here: when an election may be held, by which policy, and what it changes. Not here: the order of candidates
(``ranking``), checking evidence (``evidence``), the first election's rules (``founding_election``).

Rule 1: a living master that has entered stays, unless the caller designates another replica. A master that is late to
enter may be replaced by a caller who names its epoch: ``expected_epoch`` is the guard (R6).
Rule 2: the new set is the winner and the alive, intact members of the set that is committed now, a drained old master
included. A RocketMQ winner, an unclean winner and a suspect stand alone (R6).
Rule 3: an election without an eligible replica changes no epoch and keeps the last-known-good set (S08); the reasons
are on record.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec.structs import replace
from msgspec.structs import replace as replace_value

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    AnnounceStop,
    Bootstrap,
    ElectMaster,
    ElectUnclean,
    LeaveMaster,
    Operation,
    OrderSwitchover,
)
from rollcall_ha.controller.contract.events import ElectionFailed, MasterElected
from rollcall_ha.controller.contract.ids import AckMode, BrokerId, ReplicaKind, SyncStateSet
from rollcall_ha.controller.contract.replies import Refused
from rollcall_ha.controller.contract.values import Evidence, Frozen
from rollcall_ha.controller.contract.verdicts import ElectionKind, Verdict
from rollcall_ha.controller.core import maintenance
from rollcall_ha.controller.core.decision import Decision, Refusal, elected, find_replica, find_set
from rollcall_ha.controller.core.election_record import master_elected, verdict_of
from rollcall_ha.controller.core.evidence import (
    candidates_of,
    estimate_loss_bytes,
    short_of_confirmed,
    validate_evidence,
)
from rollcall_ha.controller.core.founding_election import decide_bootstrap, decide_first
from rollcall_ha.controller.core.importing import validate_imported
from rollcall_ha.controller.core.liveness import DRAINED_US_MAX, validate_session
from rollcall_ha.controller.core.pauses import is_by_word
from rollcall_ha.controller.core.policies import (
    DATA_FIRST,
    DATA_FIRST_THEN_WARM,
    LONGEST,
    PREFERENCE_FIRST,
    RESTORED,
    UNCLEAN,
    ElectionPolicy,
    RankPart,
)
from rollcall_ha.controller.core.ranking import Ranking, elect
from rollcall_ha.controller.core.recovery import CONFIRMED_LEVEL, lacks_confirmed, newest_reign
from rollcall_ha.controller.core.state import FleetState, ReplicaState, SetState

_Electing = ElectMaster | ElectUnclean

WARM_LEVEL = 2
"""The feature level from which on warm replicas are known, and preferred among equal logs."""


class _Case(Frozen):
    """One election that may be held."""

    fleet: FleetState
    set_state: SetState
    operation: Operation
    command: _Electing
    evidence: Evidence
    set_aside: Mapping[BrokerId, str] = msgspec.field(default_factory=dict)
    is_set_aside_final: bool = True
    """False: a replica that is set aside may win all the same if no other can."""
    named: BrokerId | None = None
    """May win although it is in maintenance."""


def decide_elect(fleet: FleetState, operation: Operation, command: ElectMaster) -> Decision:
    """Elect by policy, clean only."""
    case = _prepare(fleet, operation, command)
    recovering = case.set_state.recovery
    # Wiped controllers heard replica 2 first, whose view names {1,2}. Replica 1 holds 500 bytes more, acknowledged
    # while the set was {1} alone. With 2 elected now they are cut; so every replica that any view names reports first
    # (R7).
    if recovering is not None and recovering.awaited:
        raise Refusal(
            RefusalCode.WAITING_FOR_REPORTS,
            f"after a wipe or restore replicas {list(recovering.awaited)} must report first",
            "start them, or accept a loss with: rollcall elect --unclean --accept-loss BYTES",
            current=recovering.awaited,
        )
    # The other control plane may have elected since the import: two masters, each with controllers that believe in it.
    validate_imported(case.set_state, case.evidence)
    # A set without a past has no members, and the rules below choose among members: it would never get a master. The
    # first election has rules of its own (R8).
    if recovering is None and not case.set_state.is_established:
        worked_on = maintenance.set_aside(fleet, case.set_state, but_for=case.named)
        return decide_first(case.set_state, command, case.evidence, set_aside=worked_on)
    policy, further = _clean_policy(case.fleet, case.set_state, case.evidence)
    back = _way_back(case)
    if back is not None:
        return back
    # A member that is about to stop would be master for a moment; for want of others it still holds every byte.
    ranking = _rank(case, policy, {**further, **_stopping(case.set_state), **case.set_aside})
    if ranking.winner is None:
        ranking = _rank(case, policy, {**further, **case.set_aside})
    # A master that was late to enter is better than none: with the other replicas silent, keeping it aside would leave
    # the set without a master for as long as they are.
    if ranking.winner is None and not case.is_set_aside_final:
        ranking = _rank(case, policy, further)
    if ranking.winner is None:
        return _nobody(case, ranking, policy)
    # A RocketMQ replica may win from outside of the set (``LONGEST``): an unclean election, and recorded as one.
    is_member = ranking.winner in case.set_state.sync_state_set
    kind = ElectionKind.UNCLEAN if not is_member else _clean_kind(case)
    return elected(_elected(case, ranking, ranking.winner, policy=policy, kind=kind))


def _way_back(case: _Case) -> Decision | None:
    """
    The election of the old master whose successor by an order did not enter, if it may be elected (R29).

    By policy it might be a third replica: the operator's order would have moved the set to a place that nobody chose.
    """
    pending = case.set_state.pending_switchover
    is_targets = pending is not None and pending.elected_epoch == case.set_state.master_epoch
    if case.command.to is not None:
        return None
    if pending is None or not is_targets or case.set_state.has_entered or case.set_state.last_master != pending.target:
        return None
    # By the same rules as any clean election: it must be a member that is alive and intact, or policy decides (R6).
    found = succession(
        case.fleet,
        case.set_state,
        case.operation,
        case.evidence,
        set_aside=case.set_aside,
        designated=pending.master,
        named=pending.master,
        reason=f"rolled back: {case.command.reason}",
    )
    return elected(found.elected(ElectionKind.SWITCHOVER)) if found.winner is not None else None


def decide_handover(fleet: FleetState, operation: Operation, command: AnnounceStop) -> Decision:
    """
    Elect a successor of the master that asks for one, because it is about to stop.

    Every member holds every byte: the master asks when the last one is confirmed. Nothing is cut, whichever wins.
    """
    replica = validate_session(fleet, command)
    present = fleet.sets[command.set_key]
    # Broker 1 announced its stop in epoch 3, was deposed and elected again in 5: it has not drained that reign.
    if command.master_epoch != present.master_epoch or present.recovery is not None:
        raise Refusal(
            RefusalCode.FENCED_MASTER_EPOCH,
            f"the stop was announced in masterEpoch {command.master_epoch}, current is {present.master_epoch}",
            "stop without a successor",
            requested=command.master_epoch,
            current=present.master_epoch,
        )
    refuse_impossible_drain(command.drained_us, "stop without a successor")
    evidence = validate_evidence(present, operation)
    # It leaves the set with its reign: as a member that exits it would keep the winner waiting until it is removed.
    leaving = replace_value(replica, is_stopping=True)
    replicas = tuple(leaving if one.broker_id == leaving.broker_id else one for one in present.replicas)
    set_state = replace_value(present, replicas=replicas)
    found = succession(fleet, set_state, operation, evidence, set_aside={}, reason="handed over: asked to stop")
    if found.winner is None:
        # No failed election: nothing failed, the master still serves.
        raise Refusal(
            RefusalCode.NO_ELIGIBLE_REPLICA,
            f"nobody to hand over to: {found.reasons}",
            "stop without a successor",
        )
    return elected(found.elected(ElectionKind.HANDOVER))


def refuse_impossible_drain(drained_us: int, hint: str) -> None:
    """Refuse a time without sends that cannot be: it becomes the beginning of an outage on record."""
    if 0 <= drained_us <= DRAINED_US_MAX:
        return
    raise Refusal(
        RefusalCode.INVALID_ARGUMENT,
        f"it says that it drains since {drained_us} us; 0 to {DRAINED_US_MAX} are possible",
        hint,
    )


class Succession(Frozen):
    """The heirs of a master that lives and leaves its reign."""

    _case: _Case
    _ranking: Ranking
    _policy: ElectionPolicy

    @property
    def winner(self) -> BrokerId | None:
        """A member, or None: nobody may be elected."""
        winner = self._ranking.winner
        return winner if winner in self._case.set_state.sync_state_set else None

    @property
    def reasons(self) -> str:
        """Why each of the others may not."""
        return str(self._ranking.reasons)

    def verdict(self, kind: ElectionKind) -> Verdict:
        """What an election would say that is not held."""
        return _verdict(self._case, self._ranking, policy=self._policy, kind=kind)

    def elected(self, kind: ElectionKind) -> MasterElected:
        """The election of ``winner``."""
        assert self.winner is not None
        return _elected(self._case, self._ranking, self.winner, policy=self._policy, kind=kind)


def succession(
    fleet: FleetState,
    set_state: SetState,
    operation: Operation,
    evidence: Evidence,
    *,
    set_aside: Mapping[BrokerId, str],
    designated: BrokerId | None = None,
    named: BrokerId | None = None,
    reason: str,
) -> Succession:
    """
    Rank the heirs of a living master, by policy or for ``designated`` alone.

    ``set_aside`` may not win; nor a replica in maintenance, but for ``named``.
    """
    # Also others that are about to stop, not even for want of heirs: a fleet that is shut down would hand its sets
    # round.
    aside = {**_stopping(set_state), **set_aside}
    command = ElectMaster(set_key=set_state.set_key, to=designated, reason=reason)
    case = _Case(
        fleet=fleet,
        set_state=set_state,
        operation=operation,
        command=command,
        evidence=evidence,
        set_aside=aside,
        named=named,
    )
    policy, further = _clean_policy(fleet, set_state, evidence)
    return Succession(_case=case, _ranking=_rank(case, policy, {**further, **aside}), _policy=policy)


def decide_elect_unclean(fleet: FleetState, operation: Operation, command: ElectUnclean) -> Decision:
    """Elect outside the SyncStateSet if need be. Refused unless the accepted loss covers the estimate (S72)."""
    case = _prepare(fleet, operation, command)
    # The estimate of the loss rests on what this set confirmed: nothing. The logs may be full all the same (R8).
    if case.set_state.recovery is None and not case.set_state.is_established:
        raise Refusal(
            RefusalCode.INVALID_REQUEST,
            f"{command.set_key} has never had a master: nothing can be lost by a first election",
            "use: rollcall bootstrap --master ID",
        )
    ranking = _rank(case, UNCLEAN, case.set_aside)
    if ranking.winner is None and not case.is_set_aside_final:
        ranking = _rank(case, UNCLEAN, {})
    if ranking.winner is None:
        return _nobody(case, ranking, UNCLEAN)
    replica = case.set_state.replica(ranking.winner)
    # The unclean word finds an intact member alive: nothing can be lost, and its survivors stay members. During a
    # recovery nothing is clean, the members themselves come from stored views.
    is_clean = case.set_state.recovery is None and replica is not None and _is_whole(case, replica)
    kind = _clean_kind(case) if is_clean else ElectionKind.UNCLEAN
    event = _elected(case, ranking, ranking.winner, policy=UNCLEAN, kind=kind)
    verdict = event.verdict
    # The operator's number is the consent. A replica that came up after the dry run may have told of more records
    # since: what is lost then was never agreed to (S72).
    if kind is ElectionKind.UNCLEAN and command.accepted_loss_bytes < verdict.estimated_loss_bytes:
        raise Refusal(
            RefusalCode.NOT_CONFIRMED,
            f"electing replica {ranking.winner} may lose {verdict.estimated_loss_bytes} bytes, accepted were "
            f"{command.accepted_loss_bytes}",
            f"repeat with --accept-loss {verdict.estimated_loss_bytes}, or wait for a member of the SyncStateSet",
            requested=command.accepted_loss_bytes,
            current=verdict.estimated_loss_bytes,
            verdict=verdict,
        )
    return elected(event)


def decide_bootstrap_command(fleet: FleetState, operation: Operation, command: Bootstrap) -> Decision:
    """First election by an operator's word (R8)."""
    set_state = find_set(fleet, command.set_key)
    evidence = validate_evidence(set_state, operation)
    return decide_bootstrap(set_state, command, evidence)


def _prepare(fleet: FleetState, operation: Operation, command: _Electing) -> _Case:
    set_state = find_set(fleet, command.set_key)
    # The caller's expectation first, then the evidence: a script that meant epoch 7 must not depose the master of 8.
    refuse_expectation(set_state, command)
    evidence = validate_evidence(set_state, operation)
    named = command.to if is_by_word(operation.requested_by) else None
    case = _Case(fleet=fleet, set_state=set_state, operation=operation, command=command, evidence=evidence, named=named)
    if command.to is not None:
        find_replica(set_state, command.to)
    # After a wipe or restore the recorded master may be that of an old backup: it does not hinder the election that
    # brings the set back, and if it lives and holds the most, it wins it.
    if set_state.recovery is not None or not set_state.is_master_alive:
        return case
    return _with_living_master(case)


def refuse_expectation(set_state: SetState, command: _Electing | OrderSwitchover) -> None:
    """Refuse an order that was meant for another master or another epoch."""
    for name, expected, current in (
        ("master", command.expected_master, set_state.master),
        ("masterEpoch", command.expected_epoch, set_state.master_epoch),
    ):
        if expected is not None and expected != current:
            raise Refusal(
                RefusalCode.EXPECTATION_FAILED,
                f"{name} {expected} was expected, it is {current}",
                "read the set again and decide anew",
                requested=expected,
                current=current,
            )


def _with_living_master(case: _Case) -> _Case:
    """Whether there may be an election although the master is alive, and which replica stands aside in it (rule 1)."""
    set_state, command, master = case.set_state, case.command, case.set_state.master
    assert master is not None
    if command.to not in (None, master):
        reason = f"current master; replica {command.to} is designated"
        return replace(case, set_aside={master: reason})
    # ``expected_epoch`` is the guard: without it each "elect" that comes while 2 is entering epoch 4 would depose 2. Of
    # two proposals "epoch 3 was not entered in time" the second is refused by its epoch, and by its evidence (R14).
    if command.to is None and not set_state.has_entered and command.expected_epoch == set_state.master_epoch:
        reason = f"did not enter epoch {set_state.master_epoch} in time"
        return replace(case, set_aside={master: reason}, is_set_aside_final=False)
    # A living master that serves would be deposed by each controller that misses a heartbeat: availability, not safety,
    # but each election costs every producer a retry.
    state = "is master" if set_state.has_entered else "is entering"
    raise Refusal(
        RefusalCode.MASTER_STILL_EXISTS,
        f"replica {master} is alive and {state} in epoch {set_state.master_epoch}",
        "name the replica that is to be master: rollcall switchover SET --to ID (RocketMQ's: elect SET --to ID)",
        current=master,
    )


def _clean_policy(
    fleet: FleetState, set_state: SetState, evidence: Evidence
) -> tuple[ElectionPolicy, dict[BrokerId, str]]:
    """The policy of a clean election, and the replicas that it sets aside."""
    if set_state.recovery is not None:
        return RESTORED, {**_short(fleet, set_state, evidence), **_set_aside_by_reports(set_state, evidence)}
    # RocketMQ's brokers prove nothing when they restart: after a power cut all of them are suspects, and waiting for
    # the unclean word would stop every such fleet. Ours may prove more, so one native suspect is enough to wait for it.
    suspects = [replica for replica in set_state.replicas if replica.is_suspect]
    if suspects and all(replica.kind is ReplicaKind.ROCKETMQ for replica in suspects):
        return LONGEST, _set_aside_by_longest(set_state, evidence)
    configuration = set_state.configuration
    # Only in mode ``all``, and only with our own replicas, does every member hold what was acknowledged. Elsewhere a
    # member preferred for its zone could lack records that another member still has (R10).
    is_java = any(replica.kind is ReplicaKind.ROCKETMQ for replica in set_state.replicas)
    if is_java or configuration is None or configuration.ack_mode is not AckMode.ALL:
        return DATA_FIRST_THEN_WARM if fleet.feature_level >= WARM_LEVEL else DATA_FIRST, {}
    # Member 2 was started on a copy of its directory from when it ran, and all that a start proves is true of it. Dead
    # master 1 had told of 3,000 confirmed bytes, 2 ends at 1,600: elected, it cuts 1,400 from every log (R3).
    return PREFERENCE_FIRST, _short(fleet, set_state, evidence)


def _short(fleet: FleetState, set_state: SetState, evidence: Evidence) -> dict[BrokerId, str]:
    """The replicas that lack what is known to be confirmed, each with both numbers."""
    short = short_of_confirmed(set_state, evidence)
    if set_state.recovery is None or fleet.feature_level < CONFIRMED_LEVEL:
        return short
    return short | {
        seen.broker_id: reason
        for seen in evidence.replicas
        if (reason := lacks_confirmed(set_state, set_state.replica(seen.broker_id), seen))
    }


def _set_aside_by_longest(set_state: SetState, evidence: Evidence) -> dict[BrokerId, str]:
    """
    RocketMQ replicas that may not win after restarts without proof (R3): all, until each former member has reported;
    then the replicas that were no members.

    A registration is no report: what a RocketMQ broker holds comes with its first heartbeat.
    """
    # Members that left because of their restart count too: acked 5000 by both, 1 boots first with 1200. Were 2
    # forgotten because it fell from the set a moment ago, 1 would be the longest of one.
    members = {*set_state.sync_state_set, *set_state.fallen}
    heard = {seen.broker_id for seen in evidence.replicas if seen.heartbeat_age_ms is not None}
    unheard = [
        replica
        for replica in set_state.replicas
        if replica.broker_id in members and not (replica.is_alive and replica.broker_id in heard)
    ]
    if unheard:
        names = ", ".join(str(replica.broker_id) for replica in unheard)
        return {r.broker_id: f"restarted without proof; members {names} must report first" for r in set_state.replicas}
    return {
        replica.broker_id: "was not a member when its set restarted"
        for replica in set_state.replicas
        if replica.broker_id not in members
    }


def _set_aside_by_reports(set_state: SetState, evidence: Evidence) -> dict[BrokerId, str]:
    """
    The replicas that hold less than some member has reported, whether that member can be elected right now or not (R7).

    Member 1 reported 900 and is silent since, member 2 ends at 500. Electing 2 would cut 400 bytes that may have been
    acknowledged, and 1 may be back in a second: its data decides, not the speed of its heartbeat.
    """
    held = {r.broker_id: r.positions for r in set_state.replicas if r.positions is not None}
    ends = {broker_id: (positions.last_epoch, positions.max_offset) for broker_id, positions in held.items()}
    # What the leader heard last replaces what the registration said: a log grows while it follows.
    ends.update({seen.broker_id: (seen.last_epoch, seen.max_offset) for seen in evidence.replicas})
    reported = [(ends[member], member) for member in set_state.sync_state_set if member in ends]
    if not reported:
        return {}
    # The epoch before the offset: 900 bytes of epoch 4 are less than 100 of epoch 5, which were acknowledged later.
    (epoch, offset), longest = max(reported)
    return {
        broker_id: f"ends in epoch {end[0]} at {end[1]}; member {longest} reported epoch {epoch}, {offset}"
        for broker_id, end in ends.items()
        if end < (epoch, offset)
    }


def _stopping(set_state: SetState) -> dict[BrokerId, str]:
    return {replica.broker_id: "is about to stop" for replica in set_state.replicas if replica.is_stopping}


def _clean_kind(case: _Case) -> ElectionKind:
    # An operator's wish or a clean stop that counted as failovers would be flaps, and spoil the MTBF, of a set that
    # nothing ever happened to.
    if case.command.to is not None:
        return ElectionKind.REQUESTED
    if case.set_state.is_handover_due and case.set_state.recovery is None:
        return ElectionKind.HANDOVER
    return ElectionKind.FAILOVER


def _last_master(case: _Case) -> BrokerId | None:
    # The backup knows master 1. 2 had been elected since, was restored with it and died: "1 -> 1" was on record.
    newest = newest_reign(case.set_state.recovery)
    return case.set_state.last_master if newest is None else newest[0]


def _reason(case: _Case, kind: ElectionKind) -> str:
    # The proposer sees that the master is gone; that it said goodbye is known here.
    is_after_goodbye = kind is ElectionKind.HANDOVER and not isinstance(
        case.operation.command, AnnounceStop | LeaveMaster
    )
    return "stopped cleanly" if is_after_goodbye else case.command.reason


def _rank(case: _Case, policy: ElectionPolicy, set_aside: Mapping[BrokerId, str]) -> Ranking:
    # The disk of replica 2 is being changed. Elected, it would be stopped a minute later, with sends under way.
    worked_on = maintenance.set_aside(case.fleet, case.set_state, but_for=case.named)
    ranking = _rank_without(case, policy, {**worked_on, **set_aside})
    if not worked_on or policy is PREFERENCE_FIRST:
        return ranking
    # By these policies the data decides, for members may lack what another holds. The longest log is in maintenance:
    # elected in its place, a shorter one would cut what it does not have, for the sake of a change of disks (R3, R7).
    first = _rank_without(case, policy, set_aside).winner
    if first is None or first not in worked_on:
        return ranking
    waits = f"replica {first} goes before it, and is {worked_on[first]}"
    every = {replica.broker_id: waits for replica in case.set_state.replicas}
    return _rank_without(case, policy, {**every, **worked_on, **set_aside})


def _rank_without(case: _Case, policy: ElectionPolicy, set_aside: Mapping[BrokerId, str]) -> Ranking:
    return elect(
        candidates_of(case.set_state, case.evidence, set_aside=set_aside, tells_warm=RankPart.WARM in policy.order),
        policy=policy,
        designated=case.command.to,
        previous_master=_last_master(case),
    )


def _nobody(case: _Case, ranking: Ranking, policy: ElectionPolicy) -> Decision:
    set_state, command = case.set_state, case.command
    kind = ElectionKind.UNCLEAN if policy is UNCLEAN else _clean_kind(case)
    verdict = _verdict(case, ranking, policy=policy, kind=kind)
    hint = "start a member of the SyncStateSet; it is elected as soon as it has registered"
    if policy is RESTORED and _short(case.fleet, set_state, case.evidence):
        hint = "start the replica that holds it, or accept a loss with: rollcall elect --unclean --accept-loss BYTES"
    elif command.to is not None:
        hint = "bring it into the SyncStateSet first; its members are in column IN SYNC of: rollcall status"
    if command.to is not None:
        raise Refusal(
            RefusalCode.NOT_ELIGIBLE,
            f"replica {command.to} may not be elected: {ranking.reason_of(command.to)}",
            hint,
            requested=command.to,
            current=f"SyncStateSet {{{','.join(map(str, set_state.sync_state_set))}}}",
            verdict=verdict,
        )
    return Decision(
        answer=Refused(
            code=RefusalCode.NO_ELIGIBLE_REPLICA,
            reason=f"no replica of {command.set_key} may be elected: {ranking.reasons}",
            hint=hint,
            verdict=verdict,
        ),
        events=(
            ElectionFailed(
                verdict=verdict,
                evidence=case.evidence,
                triggered_by=case.evidence.triggered_by,
                reason=_reason(case, kind),
            ),
        ),
    )


def _elected(
    case: _Case, ranking: Ranking, winner: BrokerId, *, policy: ElectionPolicy, kind: ElectionKind
) -> MasterElected:
    set_state, evidence, level = case.set_state, case.evidence, case.fleet.feature_level
    replica = set_state.replica(winner)
    assert replica is not None
    # A winner that may lack records stands alone. The others were members of a set that agreed on another log; each
    # joins again by the handshake with this one, and the join test (R2).
    is_proven = _is_whole(case, replica)
    return master_elected(
        set_state,
        evidence,
        _verdict(case, ranking, policy=policy, kind=kind),
        winner=winner,
        members=_new_set(case, replica) if is_proven and kind is not ElectionKind.UNCLEAN else (winner,),
        reason=_reason(case, kind),
        estimated_loss_bytes=0 if is_proven else estimate_loss_bytes(set_state, evidence, winner, level=level),
    )


def _verdict(case: _Case, ranking: Ranking, *, policy: ElectionPolicy, kind: ElectionKind) -> Verdict:
    return verdict_of(
        case.set_state,
        ranking,
        kind=kind,
        policy=policy,
        designated=case.command.to,
        previous_master=_last_master(case),
    )


def _new_set(case: _Case, winner: ReplicaState) -> SyncStateSet:
    """The winner and the alive, intact members of the set that is committed at this moment (rule 2)."""
    # RocketMQ's master assumes after an election that it is alone in its set, and acks alone. With {1,2} on record
    # here, 2 could be elected next, without what 1 acknowledged (C5).
    if winner.kind is ReplicaKind.ROCKETMQ:
        return (winner.broker_id,)
    # {winner} alone would lose nothing, but redundancy would drop to one: the winner's own death in the next second
    # could not be survived, while two intact copies are standing by.
    return tuple(
        replica.broker_id
        for replica in case.set_state.replicas
        if replica.broker_id == winner.broker_id
        or (
            # Each of these conditions has its loss. Silent: the winner waits for it until it is removed. A learner: it
            # was never waited for. Not intact: v1 acked by 1 and 2; 1 loses it; 2 wins with {1,2}; 2 dies, 1 is
            # elected. Not a member, only alive: master 1 is elected again with {1,2,3}, and 3 never had v1.
            replica.is_alive
            and replica.is_voter
            # About to stop: the winner would wait for it from the moment that it is gone.
            and not replica.is_stopping
            and _is_whole(case, replica)
        )
    )


def _is_whole(case: _Case, replica: ReplicaState) -> bool:
    """An intact member, and nothing that was heard of it says that it lacks what all members had."""
    # In a recovery as well: 2 registered 500 and was intact, for nobody had told of the 900 confirmed bytes yet. In the
    # set of winner 1 it would be elected without them when that dies in the next second (R7).
    short = _short(case.fleet, case.set_state, case.evidence)
    return case.set_state.is_intact_member(replica) and replica.broker_id not in short
