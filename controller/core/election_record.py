"""
What an election leaves on record: the verdict, and the event that makes a replica master.

Here: ``verdict_of``, ``master_elected``, for every kind of election. Not here: when one may be held and which
replicas become members (``decide_election``, ``founding_election``), the order of candidates (``ranking``).

Rule 1: the event carries all that its election rested on, so that it can be explained and repeated (S68).
Rule 2: masterEpoch and SyncStateSetEpoch rise by one, or jump after a wipe or restore (R7).
"""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.events import MasterElected
from rollcall_ha.controller.contract.ids import BrokerId, MasterEpoch, SyncStateSet
from rollcall_ha.controller.contract.values import Evidence
from rollcall_ha.controller.contract.verdicts import ElectionKind, Verdict
from rollcall_ha.controller.core import recovery
from rollcall_ha.controller.core.policies import ElectionPolicy
from rollcall_ha.controller.core.ranking import Ranking
from rollcall_ha.controller.core.state import SetState, bound_to


def verdict_of(
    set_state: SetState,
    ranking: Ranking,
    *,
    kind: ElectionKind,
    policy: ElectionPolicy,
    designated: BrokerId | None,
    previous_master: BrokerId | None,
) -> Verdict:
    """The verdict as long as it changes nothing: epochs and set are the present ones, there is no winner."""
    return Verdict(
        kind=kind,
        winner=None,
        candidates=ranking.candidates,
        policy=policy.name,
        previous_master=previous_master,
        previous_epoch=set_state.master_epoch,
        master_epoch=set_state.master_epoch,
        previous_set=set_state.sync_state_set,
        sync_state_set=set_state.sync_state_set,
        previous_set_epoch=set_state.sync_state_set_epoch,
        sync_state_set_epoch=set_state.sync_state_set_epoch,
        designated=designated,
    )


def master_elected(
    set_state: SetState,
    evidence: Evidence,
    base: Verdict,
    *,
    winner: BrokerId,
    members: SyncStateSet,
    reason: str,
    floor: MasterEpoch | None = None,
    estimated_loss_bytes: int = 0,
) -> MasterElected:
    """
    The election of ``winner`` with the new set ``members``, on the state before it.

    ``base`` is the verdict of the ranking that named the winner. The new epoch lies above ``floor``, if there is one.
    """
    replica = set_state.replica(winner)
    assert replica is not None
    assert replica.incarnation is not None
    verdict = replace(
        base,
        winner=winner,
        master_epoch=recovery.next_master_epoch(set_state, epoch_jump_draw=evidence.epoch_jump_draw, floor=floor),
        sync_state_set=members,
        sync_state_set_epoch=recovery.next_set_epoch(set_state),
        estimated_loss_bytes=estimated_loss_bytes,
    )
    return MasterElected(
        verdict=verdict,
        master=winner,
        # The mastership belongs to this process, not to the id: a process that starts again under the id was never
        # elected. By the id alone it would enter its old epoch a second time, with a second start (R9).
        master_incarnation=replica.incarnation,
        master_epoch=verdict.master_epoch,
        sync_state_set=members,
        sync_state_set_epoch=verdict.sync_state_set_epoch,
        evidence=evidence,
        triggered_by=evidence.triggered_by,
        detection=evidence.detection,
        reason=reason,
        # The same for members: one that restarts without proof is then no longer the member that was meant (R3).
        bound_incarnations=bound_to(set_state.replicas, members),
    )
