"""
The first election of a set (R8).

Here: the automatic one, and bootstrap. Not here: every later election (``decide_election``).

Rule 1: automatic only when the expected replicas have registered and all report empty logs. The first set is then all
of them, a Java winner stands alone: nothing has been written, so nobody can lack anything.
Rule 2: a log with records needs an operator who names its master; the set is then that replica alone.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import Bootstrap, ElectMaster, Operation
from rollcall_ha.controller.contract.events import MasterElected
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, ReplicaKind, SyncStateSet
from rollcall_ha.controller.contract.values import Evidence
from rollcall_ha.controller.contract.verdicts import ElectionKind, Verdict
from rollcall_ha.controller.core import recovery
from rollcall_ha.controller.core.decision import Decision, elected, refuse
from rollcall_ha.controller.core.evidence import candidates_of
from rollcall_ha.controller.core.policies import FIRST
from rollcall_ha.controller.core.ranking import Ranking, elect
from rollcall_ha.controller.core.state import SetState


def decide_first(set_state: SetState, operation: Operation, command: ElectMaster, evidence: Evidence) -> Decision:
    """Elect the first master if rule 1 allows it."""
    voters = tuple(replica.broker_id for replica in set_state.replicas if replica.is_voter)
    expected = set_state.configuration.expected_replicas if set_state.configuration is not None else 1
    if len(voters) < expected:
        return refuse(
            operation,
            RefusalCode.NO_ELIGIBLE_REPLICA,
            f"{len(voters)} of {expected} expected replicas of {command.set_key} have registered",
            "start the others, or choose one with: rollcall bootstrap --master ID",
            requested=expected,
            current=len(voters),
        )
    filled = _ends(set_state, evidence)
    if filled:
        return refuse(
            operation,
            RefusalCode.NO_ELIGIBLE_REPLICA,
            f"replicas of {command.set_key} bring records that no election here wrote: "
            + ", ".join(f"{broker_id} up to {end}" for broker_id, end in sorted(filled.items())),
            "choose one with: rollcall bootstrap --master ID",
        )
    ranking = elect(candidates_of(set_state, evidence, set_aside={}), policy=FIRST, designated=command.designated)
    if ranking.winner is None:
        return _nobody(set_state, operation, ranking, command.designated)
    winner = set_state.replica(ranking.winner)
    is_java = winner is not None and winner.kind is ReplicaKind.ROCKETMQ
    members = (ranking.winner,) if is_java else voters
    return _elected(
        set_state, evidence, ranking, ranking.winner, members=members, kind=ElectionKind.FIRST,
        reason=command.reason, designated=command.designated,
    )  # fmt: skip


def decide_bootstrap(set_state: SetState, operation: Operation, command: Bootstrap, evidence: Evidence) -> Decision:
    """Make ``command.master`` the first master, whatever its log holds (rule 2)."""
    if set_state.is_established or set_state.recovery is not None:
        return refuse(
            operation,
            RefusalCode.NOT_BOOTSTRAPPABLE,
            f"{command.set_key} has a past: its epochs end at {set_state.master_epoch}",
            "use: rollcall elect, or elect --unclean with an accepted loss",
            current=set_state.master_epoch,
        )
    if set_state.replica(command.master) is None:
        return refuse(
            operation,
            RefusalCode.UNKNOWN_REPLICA,
            f"replica {command.master} of {command.set_key} does not exist",
            "see its replicas with: rollcall status",
        )
    ranking = elect(candidates_of(set_state, evidence, set_aside={}), policy=FIRST, designated=command.master)
    if ranking.winner is None:
        return _nobody(set_state, operation, ranking, command.master)
    return _elected(
        set_state, evidence, ranking, ranking.winner, members=(ranking.winner,), kind=ElectionKind.BOOTSTRAP,
        reason=command.reason, designated=command.master,
    )  # fmt: skip


def _ends(set_state: SetState, evidence: Evidence) -> dict[BrokerId, int]:
    """
    Who reports records, and up to where: by the evidence, else by its registration. Learners count: they hold a log
    too.
    """
    ends = {r.broker_id: r.positions.max_offset for r in set_state.replicas if r.positions is not None}
    ends.update({seen.broker_id: seen.max_offset for seen in evidence.replicas})
    return {broker_id: end for broker_id, end in ends.items() if end > 0}


def _nobody(set_state: SetState, operation: Operation, ranking: Ranking, designated: BrokerId | None) -> Decision:
    reasons = "; ".join(f"{candidate.broker_id} {candidate.reason}" for candidate in ranking.candidates)
    return refuse(
        operation,
        RefusalCode.NO_ELIGIBLE_REPLICA if designated is None else RefusalCode.NOT_ELIGIBLE,
        f"no replica of {set_state.set_key} may be elected: {reasons}"
        if designated is None
        else f"replica {designated} may not be elected: {ranking.reason_of(designated)}",
        "start it, and retry once it is ready",
        requested=designated,
    )


def _elected(
    set_state: SetState,
    evidence: Evidence,
    ranking: Ranking,
    winner: BrokerId,
    *,
    members: SyncStateSet,
    kind: ElectionKind,
    reason: str,
    designated: BrokerId | None,
) -> Decision:
    replica = set_state.replica(winner)
    assert replica is not None
    assert replica.incarnation is not None
    # A bootstrapped log has a past of its own: the new epoch must lie above every epoch in any of the logs.
    floor = max((seen.last_epoch for seen in evidence.replicas), default=MasterEpoch(0))
    floor = max([floor, *(r.positions.last_epoch for r in set_state.replicas if r.positions is not None)])
    verdict = Verdict(
        kind=kind,
        winner=winner,
        candidates=ranking.candidates,
        policy=FIRST.name,
        previous_master=None,
        previous_epoch=set_state.master_epoch,
        master_epoch=recovery.next_master_epoch(set_state, epoch_jump_draw=evidence.epoch_jump_draw, floor=floor),
        previous_set=set_state.sync_state_set,
        sync_state_set=members,
        previous_set_epoch=set_state.sync_state_set_epoch,
        sync_state_set_epoch=recovery.next_set_epoch(set_state),
        designated=designated,
    )
    event = MasterElected(
        verdict=verdict,
        master=winner,
        master_incarnation=replica.incarnation,
        master_epoch=verdict.master_epoch,
        sync_state_set=members,
        sync_state_set_epoch=verdict.sync_state_set_epoch,
        evidence=evidence,
        triggered_by=evidence.triggered_by,
        detection=evidence.detection,
        reason=reason,
        bound_incarnations=tuple(
            (member.broker_id, member.incarnation)
            for member in set_state.replicas
            if member.broker_id in members and member.incarnation is not None
        ),
    )
    return elected(event)
