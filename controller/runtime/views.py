"""
The status of sets for operators: replicated state joined with the leader's soft state.

Here: ``SetStatus``, which problems it has, and the failure budget. Not here: replicated views
(``controller.core.views``), text (``cli``). Pure: the time is an argument.

Rule 1: a fact that this controller has not heard is ``None``, never a guess from replicated state.
Rule 2: problems come from a closed vocabulary (``controller.contract.problems``), the worst first; an empty tuple means
that nothing needs an operator.
"""

from __future__ import annotations

from collections.abc import Mapping

from rollcall_ha.controller.contract.ids import BrokerId, LogOffset, MasterEpoch, SetKey
from rollcall_ha.controller.contract.problems import ProblemCode
from rollcall_ha.controller.contract.replies import Condition, MemberView, SetView
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.contract.values import ElectionPause, Maintenance, made_from
from rollcall_ha.controller.contract.views import CatchUp, RefusedBroker, ReplicaStatus, SetStatus, TokenStatus
from rollcall_ha.controller.core.pauses import is_by_word
from rollcall_ha.controller.core.state import IssuedToken
from rollcall_ha.controller.core.views import failure_budget
from rollcall_ha.controller.runtime.catch_up import catch_up_of
from rollcall_ha.controller.runtime.session_state import ReplicaSession
from rollcall_ha.controller.runtime.sessions import Sessions

_CONDITION_PROBLEMS = {
    Condition.NO_ELIGIBLE_REPLICA: ProblemCode.NO_ELIGIBLE_REPLICA,
    Condition.MASTER_SILENT: ProblemCode.MASTER_SILENT,
    Condition.NEEDS_BOOTSTRAP: ProblemCode.NEEDS_BOOTSTRAP,
    Condition.WAITING_FOR_REPORTS: ProblemCode.WAITING_FOR_REPORTS,
    Condition.WAITING_FOR_REPLICAS: ProblemCode.WAITING_FOR_REPLICAS,
    Condition.ENTERING: ProblemCode.ENTERING,
    Condition.WRITES_STOPPED: ProblemCode.WRITES_STOPPED,
}

_ENTERED = (Condition.SERVING, Condition.WRITES_STOPPED)
"""Conditions of a set whose master has entered and lives, by replicated state."""

_ORDER = {code: place for place, code in enumerate(ProblemCode)}


def set_status(
    view: SetView,
    sessions: Sessions,
    *,
    last_election_ms: int | None,
    now_ns: int,
    pause: ElectionPause | None = None,
    maintenances: Mapping[BrokerId, Maintenance] | None = None,
    refused: tuple[RefusedBroker, ...] = (),
) -> SetStatus:
    """One set as an operator sees it; ``sessions`` is empty on a controller that does not lead."""
    away = maintenances or {}
    heard = {member.broker_id: sessions.get(view.set_key, member.broker_id) for member in view.members}
    master = heard.get(view.master) if view.master is not None else None
    replicas = tuple(
        _replica_status(view, member, heard[member.broker_id], master, now_ns, maintenance=away.get(member.broker_id))
        for member in view.members
    )
    return SetStatus(
        view=view,
        replicas=replicas,
        failure_budget=failure_budget(view, away=away),
        problems=problems_of(
            view, replicas, has_stopped_itself=_has_stopped_itself(view, master), is_paused=pause is not None
        ),
        last_election_ms=last_election_ms,
        pause=pause,
        refused=refused,
        is_master_missed=sessions.misses_master(view.set_key, now_ns),
    )


def is_served(status: SetStatus) -> bool:
    """Whether a master has entered, lives and has not stopped itself; that its writes have stopped is told apart."""
    return status.view.condition in _ENTERED and ProblemCode.MASTER_NOT_SERVING not in status.problems


def is_exposed(view: SetView) -> bool:
    """Whether one member alone is in sync, of more that are expected: its disk holds the only copy."""
    return len(view.sync_state_set) == 1 and view.configuration.expected_replicas > 1


def is_blocked(status: SetStatus) -> bool:
    """Whether the set failed over too often, and waits for a person (S71)."""
    pause = status.pause
    return pause is not None and pause.set_key is not None and not is_by_word(pause.paused_by)


def gravity(status: SetStatus) -> tuple[int, SetKey]:
    """For sorting: the sets with the worst problem first, those without one last, by name."""
    worst = min((_ORDER[ProblemCode(problem)] for problem in status.problems), default=len(_ORDER))
    return worst, status.view.set_key


def _has_stopped_itself(view: SetView, master: ReplicaSession | None) -> bool:
    """Whether the master on record says that it is fenced or isolated, although it knows of its epoch."""
    # A winner's last word may be of before its election: fenced in an older epoch, it is about to enter this one.
    return (
        view.condition in _ENTERED
        and master is not None
        and master.known_master_epoch == view.master_epoch
        and master.state in (BrokerState.FENCED, BrokerState.ISOLATED)
    )


def _replica_status(
    view: SetView,
    member: MemberView,
    session: ReplicaSession | None,
    master: ReplicaSession | None,
    now_ns: int,
    *,
    maintenance: Maintenance | None,
) -> ReplicaStatus:
    master_end = master.positions.max_offset if master is not None and master.positions is not None else None
    positions = session.positions if session is not None else None
    heard_ns = session.heard_ns if session is not None else None
    return ReplicaStatus(
        broker_id=member.broker_id,
        address=member.description.address,
        ha_address=member.description.ha_address,
        kind=member.description.kind,
        zone=member.description.zone,
        priority=member.description.priority,
        is_master=member.broker_id == view.master,
        is_in_sync=member.broker_id in view.sync_state_set,
        is_alive=member.is_alive,
        is_learner=member.description.is_learner,
        is_suspect=member.is_suspect,
        state=session.state if session is not None else None,
        last_epoch=_known_epoch(positions.last_epoch) if positions is not None else None,
        max_offset=positions.max_offset if positions is not None else None,
        confirm_offset=positions.confirm_offset if positions is not None else None,
        lag_bytes=_lag_bytes(view, member, session, master_end),
        seen_age_ms=None if heard_ns is None else max(0, now_ns - heard_ns) // NS_PER_MS,
        catch_up=_catch_up(view, member, session, master),
        min_offset=_min_offset(session),
        maintenance=maintenance,
        name=member.owner,
    )


def _catch_up(
    view: SetView, member: MemberView, session: ReplicaSession | None, master: ReplicaSession | None
) -> CatchUp | None:
    is_shown = member.is_alive and member.broker_id not in view.sync_state_set and member.broker_id != view.master
    if not is_shown or session is None or session.positions is None or master is None or master.positions is None:
        return None
    # Not its own word: a replica knows of its master's end what it was sent, and a copy is behind that by far.
    left_bytes = max(0, master.positions.max_offset - session.positions.max_offset)
    return catch_up_of(left_bytes, session.growth, master.growth)


def _min_offset(session: ReplicaSession | None) -> LogOffset | None:
    if session is None or session.min_offset is None or session.positions is None:
        return None
    # Its end was judged when it came, its beginning was not: beyond the end it would be a number of any size.
    return min(max(LogOffset(0), session.min_offset), session.positions.max_offset)


def _known_epoch(epoch: MasterEpoch) -> MasterEpoch | None:
    return epoch if epoch >= 0 else None


def _lag_bytes(
    view: SetView, member: MemberView, session: ReplicaSession | None, master_end: LogOffset | None
) -> int | None:
    """By the living replica's own word; else the distance of the last heartbeats. A master has none."""
    if session is None or member.broker_id == view.master:
        return None
    if member.is_alive and session.lag_bytes is not None:
        return session.lag_bytes
    if master_end is None or session.positions is None:
        return None
    return max(0, master_end - session.positions.max_offset)


def problems_of(
    view: SetView, replicas: tuple[ReplicaStatus, ...], *, has_stopped_itself: bool = False, is_paused: bool = False
) -> tuple[ProblemCode, ...]:
    """The problems of a set, the worst first, each once (Rule 2)."""
    if view.condition is Condition.CLEANED:
        return ()
    found = {_CONDITION_PROBLEMS[view.condition]} if view.condition in _CONDITION_PROBLEMS else set()
    if is_paused:
        found.add(ProblemCode.PAUSED)
    if has_stopped_itself:
        found.add(ProblemCode.MASTER_NOT_SERVING)
    if view.condition in _ENTERED and len(view.sync_state_set) < view.configuration.effective_min_in_sync:
        found.add(ProblemCode.BELOW_MIN_IN_SYNC)
    away = [replica.broker_id for replica in replicas if replica.maintenance is not None]
    is_redundant = view.condition is Condition.SERVING and view.configuration.expected_replicas > 1
    if is_redundant and failure_budget(view, away=away) == 0:
        found.add(ProblemCode.NO_SPARE)
    if len(view.members) < view.configuration.expected_replicas:
        found.add(ProblemCode.REPLICA_MISSING)
    for replica in replicas:
        found |= _replica_problems(view, replica)
    return tuple(sorted(found, key=_ORDER.__getitem__))


def _replica_problems(view: SetView, replica: ReplicaStatus) -> set[ProblemCode]:
    found = set()
    if replica.is_suspect:
        found.add(ProblemCode.REPLICA_SUSPECT)
    # Stopped, started and behind on purpose: alarms that are expected hide the one that is not.
    if replica.maintenance is not None:
        return found
    if not replica.is_alive:
        found.add(ProblemCode.REPLICA_SILENT)
    if replica.state is BrokerState.ISOLATED:
        found.add(ProblemCode.REPLICA_ISOLATED)
    if view.sync_state_set and replica.is_alive and not replica.is_in_sync and not replica.is_learner:
        found.add(ProblemCode.REPLICA_NOT_IN_SYNC)
    return found


def token_status(token: IssuedToken) -> TokenStatus:
    """The token without its digest."""
    return made_from(token, TokenStatus)
