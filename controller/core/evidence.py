"""
Evidence of an election: does it still hold, and what candidates does it make?

Here: R14's check, candidates, members that lack confirmed bytes, the estimate of a loss. Not here: electing
(``decide_election``, ``ranking``).

Rule 1: evidence that was taken against another masterEpoch, SyncStateSetEpoch, incarnation or session is refused (R14).
Rule 2: evidence adds what only the leader knows: readiness, positions, ages. Whether a replica is alive is replicated
state and is not taken from evidence.
Rule 3: this leader has not heard a replica without evidence: that replica cannot win, and does not hinder others.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import UNSET, UnsetType

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import Operation
from rollcall_ha.controller.contract.ids import BrokerId, ReplicaKind
from rollcall_ha.controller.contract.values import Evidence, ReplicaEvidence
from rollcall_ha.controller.contract.verdicts import CandidateOutcome, CandidateVerdict
from rollcall_ha.controller.core.decision import Refusal
from rollcall_ha.controller.core.recovery import CONFIRMED_LEVEL, EPOCH_JUMP_DRAWS, end_words
from rollcall_ha.controller.core.state import ReplicaState, SetState


def validate_evidence(set_state: SetState, operation: Operation) -> Evidence:
    """The operation's evidence. Raises ``Refusal``: there is none, or it does not hold any more."""
    evidence = operation.evidence
    if evidence is None:
        raise Refusal(
            RefusalCode.INVALID_ARGUMENT,
            "an election needs evidence, none came",
            "ask the leading controller",
        )
    # A draw of -1 would jump to an epoch that is not above those already shown (R7). A replica that is named twice,
    # with two ends, would be ranked by the later one.
    ids = [replica.broker_id for replica in evidence.replicas]
    if len(set(ids)) != len(ids) or not 0 <= evidence.epoch_jump_draw < EPOCH_JUMP_DRAWS:
        raise Refusal(
            RefusalCode.INVALID_ARGUMENT,
            f"evidence names replicas {ids} and draws {evidence.epoch_jump_draw}: each replica once, and 0..15",
            "this is a fault of the proposing controller; report it",
        )
    # "Elect 2" was proposed while the set was {1,2} and waits in the log; before it, master 1's alter to {1} commits,
    # and 1 acknowledges alone. Applied all the same, it would elect 2 without what 1 acknowledged meanwhile.
    taken = (evidence.master_epoch, evidence.sync_state_set_epoch)
    current = (set_state.master_epoch, set_state.sync_state_set_epoch)
    if taken != current:
        raise _moved("(masterEpoch, SyncStateSetEpoch)", taken, current)
    for seen in evidence.replicas:
        replica = set_state.replica(seen.broker_id)
        # The positions are those of one process on one session. Replica 2 reported 900 and was ranked by that; it lost
        # power, came back at 500 and registered before the entry applied: 900 is no longer true of anybody.
        present = None if replica is None else (replica.incarnation, replica.session_ordinal)
        if present != (seen.incarnation, seen.session_ordinal):
            raise _moved(
                f"(incarnation, session) of replica {seen.broker_id}",
                (seen.incarnation, seen.session_ordinal),
                present,
            )
    return evidence


def _moved(what: str, taken: object, current: object) -> Refusal:
    return Refusal(
        RefusalCode.EVIDENCE_MOVED,
        f"{what} was {taken} when the evidence was taken, is {current}",
        "gather evidence again and retry",
        requested=taken,
        current=current,
    )


def candidates_of(
    set_state: SetState, evidence: Evidence, *, set_aside: Mapping[BrokerId, str], tells_warm: bool = False
) -> list[CandidateVerdict]:
    """
    Every replica of the set, dead and learner ones included, as a candidate that is not ranked yet.

    ``set_aside``: replicas that are kept out of this election, with the reason. ``tells_warm``: each says it.
    """
    seen = {replica.broker_id: replica for replica in evidence.replicas}
    short = short_of_confirmed(set_state, evidence)
    return [
        _candidate(
            set_state,
            replica,
            seen.get(replica.broker_id),
            set_aside.get(replica.broker_id, ""),
            is_short=replica.broker_id in short,
            is_warm=bool(replica.is_warm) if tells_warm else UNSET,
        )
        for replica in set_state.replicas
    ]


def short_of_confirmed(set_state: SetState, evidence: Evidence) -> dict[BrokerId, str]:
    """The members of ours that lack bytes which every member had, each with both numbers (R3)."""
    return {
        seen.broker_id: f"{end_words(set_state, seen)}, below {seen.confirmed_before}, which all members had before"
        for seen in evidence.replicas
        if seen.confirmed_before is not UNSET and set_state.held_by(seen) < seen.confirmed_before
        if seen.broker_id in set_state.sync_state_set
        if (replica := set_state.replica(seen.broker_id)) is not None and replica.kind is ReplicaKind.NATIVE
    }


def _candidate(
    set_state: SetState,
    replica: ReplicaState,
    seen: ReplicaEvidence | None,
    set_aside: str,
    *,
    is_short: bool,
    is_warm: bool | UnsetType,
) -> CandidateVerdict:
    description = replica.description
    return CandidateVerdict(
        broker_id=replica.broker_id,
        outcome=CandidateOutcome.REJECTED,
        reason=set_aside or _absence(replica),
        is_alive=replica.is_alive,
        # Membership belongs to the incarnation that was bound when it was agreed on. By the id alone, 2 that restarted
        # with an empty disk would be "in sync", and would win.
        is_in_sync=(
            replica.incarnation is not None and set_state.bound_incarnation(replica.broker_id) == replica.incarnation
        ),
        is_suspect=replica.is_suspect or is_short,
        is_learner=description is not None and description.is_learner,
        # Not heard is not ready: False is the safe half of unknown.
        is_ready=seen is not None and seen.is_ready,
        heartbeat_age_ms=seen.heartbeat_age_ms if seen is not None else None,
        last_epoch=seen.last_epoch if seen is not None else None,
        max_offset=seen.max_offset if seen is not None else None,
        priority=description.priority if description is not None else 100,
        zone=description.zone if description is not None else "",
        kind=replica.kind,
        is_set_aside=bool(set_aside),
        is_warm=is_warm,
    )


def _absence(replica: ReplicaState) -> str:
    if replica.is_alive:
        return ""
    if not replica.is_registered:
        return "has not registered"
    return f"silent ({replica.silence.value})" if replica.silence is not None else "silent"


def estimate_loss_bytes(set_state: SetState, evidence: Evidence, winner: BrokerId, *, level: int) -> int:
    """
    Highest known confirm or released end above the winner's end: what an election of ``winner`` may lose, at least.

    An estimate from what replicas said last; a replica that never reported may hold more.
    """
    # ``known_confirm`` too: the replicas that reported it may be the very ones that are gone.
    ends = [set_state.known_confirm]
    for replica in set_state.replicas:
        if replica.positions is not None:
            ends.extend((replica.positions.confirm_offset, replica.positions.released))
    for seen in evidence.replicas:
        ends.extend((seen.confirm_offset, seen.released))
    if evidence.confirmed is not UNSET:
        ends.append(evidence.confirmed)
    if set_state.recovery is not None and set_state.recovery.confirmed is not UNSET:
        ends.extend(told.offset for told in set_state.recovery.confirmed)
    log = next((seen for seen in evidence.replicas if seen.broker_id == winner), None)
    end = 0 if log is None else set_state.held_by(log) if level >= CONFIRMED_LEVEL else log.max_offset
    return max(0, max(ends) - end)
