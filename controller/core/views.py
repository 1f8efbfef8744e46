"""
What brokers and operators see of one set: the authoritative view and the condition with its reason.

Here: pure rendering of replicated state. Not here: soft state of the leader (``controller.runtime.views``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from rollcall_ha.controller.contract.ids import BrokerId, SetKey
from rollcall_ha.controller.contract.replies import Condition, MemberView, SetView
from rollcall_ha.controller.contract.values import SetConfiguration, made_from
from rollcall_ha.controller.core.importing import highest_shown, stale_reason
from rollcall_ha.controller.core.maintenance import set_aside
from rollcall_ha.controller.core.recovery import lacks_confirmed
from rollcall_ha.controller.core.state import FleetState, ReplicaState, SetState
from rollcall_ha.controller.core.switchovers import switchover_view
from rollcall_ha.controller.core.writes import stop_words

_UNCONFIGURED = SetConfiguration()


def set_view(fleet: FleetState, set_state: SetState, *, term: int, index: int) -> SetView:
    """
    The authoritative state of one set, as of the entry (``term``, ``index``) that made it. A broker adopts it by R2 and
    R9.
    """
    condition, reason = condition_of(set_state, aside=set_aside(fleet, set_state))
    return SetView(
        set_key=set_state.set_key,
        fleet_incarnation=fleet.fleet_incarnation,
        term=term,
        index=index,
        master=set_state.master,
        master_incarnation=set_state.master_incarnation,
        master_epoch=set_state.master_epoch,
        sync_state_set=set_state.sync_state_set,
        sync_state_set_epoch=set_state.sync_state_set_epoch,
        configuration=set_state.configuration or _UNCONFIGURED,
        members=tuple(_member_view(replica) for replica in set_state.replicas if replica.is_registered),
        has_entered=set_state.has_entered,
        start_offset=set_state.start_offset,
        last_alter=set_state.last_alter.verdict if set_state.last_alter is not None else None,
        condition=condition,
        condition_reason=reason,
        unclean_epoch=set_state.unclean_epoch,
        next_id=set_state.next_id,
        switchover=switchover_view(set_state),
    )


def failure_budget(view: SetView, *, away: Collection[BrokerId] = ()) -> int:
    """
    How many more replicas may be lost without loss of data or service: 0 also if there is no service now.

    ``away``: these count as lost already.
    """
    if view.condition is not Condition.SERVING:
        return 0
    whole = sum(1 for member in view.members if is_whole(view, member) and member.broker_id not in away)
    return max(0, min(whole - 1, whole - view.configuration.effective_min_in_sync))


def is_whole(view: SetView, member: MemberView) -> bool:
    """Whether a failure budget counts it."""
    return member.broker_id in view.sync_state_set and member.is_alive and not member.is_suspect


ViewOf = Callable[[SetKey], SetView | None]
"""A reader of the newest applied state; None if there is no such set."""


def view_of(fleet: FleetState, set_key: SetKey) -> SetView | None:
    """The view of one set at the state's own (term, index); None if there is no such set."""
    set_state = fleet.sets.get(set_key)
    return None if set_state is None else set_view(fleet, set_state, term=fleet.term, index=fleet.index)


def condition_of(set_state: SetState, *, aside: Mapping[BrokerId, str] | None = None) -> tuple[Condition, str]:
    """In which condition the set is, and why, in words; ``aside``: replicas that are not elected now, and why."""
    if set_state.is_tombstone:
        return Condition.CLEANED, f"cleaned; epochs continue above {set_state.master_epoch}"
    if set_state.recovery is not None and set_state.recovery.awaited:
        awaited = ", ".join(map(str, set_state.recovery.awaited))
        elsewhere = set_state.recovery.elsewhere
        if elsewhere is not None:
            return Condition.WAITING_FOR_REPORTS, (
                f"moves here: replica {elsewhere.master} was master under other controllers in epoch "
                f"{elsewhere.master_epoch}; replicas {awaited} must register here, the master last"
            )
        return Condition.WAITING_FOR_REPORTS, f"replicas {awaited} must report before this set may elect (R7)"
    if set_state.recovery is not None and set_state.recovery.elsewhere is not None:
        highest = highest_shown(set_state)
        if highest > set_state.master_epoch:
            return Condition.WAITING_FOR_REPORTS, f"{stale_reason(set_state.recovery.elsewhere, highest)}; import again"
    if not set_state.is_established and set_state.recovery is None:
        return _condition_before_first_election(set_state)
    if set_state.recovery is None and set_state.is_master_alive:
        if not set_state.has_entered:
            return Condition.ENTERING, f"replica {set_state.master} is entering epoch {set_state.master_epoch}"
        reigns = f"replica {set_state.master} is master in epoch {set_state.master_epoch}"
        if set_state.writes is not None and not set_state.writes.is_over:
            return Condition.WRITES_STOPPED, f"{reigns} and acknowledges no write: {stop_words(set_state.writes)}"
        return Condition.SERVING, reigns
    return _condition_without_master(set_state, aside or {})


def _condition_before_first_election(set_state: SetState) -> tuple[Condition, str]:
    voters = [replica for replica in set_state.replicas if replica.is_voter]
    expected = set_state.configuration.expected_replicas if set_state.configuration is not None else 1
    with_records = [str(r.broker_id) for r in voters if r.positions is not None and r.positions.max_offset > 0]
    if with_records:
        return (
            Condition.NEEDS_BOOTSTRAP,
            f"replicas {', '.join(with_records)} bring records that no election here wrote; use: rollcall bootstrap",
        )
    if len(voters) < expected:
        return Condition.WAITING_FOR_REPLICAS, f"{len(voters)} of {expected} expected replicas have registered"
    if not any(replica.is_alive for replica in voters):
        return Condition.NO_ELIGIBLE_REPLICA, "no registered replica is alive"
    return (
        Condition.WAITING_FOR_REPLICAS,
        f"all {expected} expected replicas have registered; the first election is due",
    )


def _condition_without_master(set_state: SetState, aside: Mapping[BrokerId, str]) -> tuple[Condition, str]:
    obstacles: list[str] = []
    for broker_id in set_state.sync_state_set:
        obstacle = _obstacle(set_state, set_state.replica(broker_id)) or aside.get(broker_id, "")
        if not obstacle:
            gone = (
                f"master {set_state.last_master} is gone"
                if set_state.recovery is None
                else "all named replicas reported"
            )
            return Condition.MASTER_SILENT, f"{gone}; replica {broker_id} may be elected"
        obstacles.append(f"{broker_id} {obstacle}")
    return Condition.NO_ELIGIBLE_REPLICA, "in SyncStateSet: " + ("; ".join(obstacles) or "nobody")


def _obstacle(set_state: SetState, replica: ReplicaState | None) -> str:
    """Why this member cannot be elected, as far as replicated state tells; empty if it can."""
    if replica is None or not replica.is_registered:
        return "has not registered"
    if not replica.is_alive:
        return f"is silent ({replica.silence.value})" if replica.silence is not None else "is silent"
    if not replica.is_voter:
        return "is a learner"
    if replica.is_suspect and set_state.recovery is None:
        return "is suspect: its last restart may have lost records"
    if set_state.recovery is not None and replica.positions is not None:
        return lacks_confirmed(set_state, replica, replica.positions)
    return ""


def _member_view(replica: ReplicaState) -> MemberView:
    assert replica.description is not None
    assert replica.incarnation is not None
    return made_from(replica, MemberView, owner=replica.owner or "")
