"""
Coming alive, going silent, about to stop, saying goodbye: which transition applies.

Here: these commands. Not here: clocks, timeouts, grace (``controller.runtime``), the successor of a master that is
about to stop (``decide_election``).

Rule 1: liveness belongs to (replica, incarnation, session): a late close of an earlier session means nothing (S33).
Rule 2: a goodbye ends its session. Only a registration brings the replica back.
Rule 3: a repeat changes nothing and is not recorded.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import AnnounceStop, MarkAlive, MarkSilent, SayGoodbye
from rollcall_ha.controller.contract.events import GoodbyeSaid, ReplicaAlive, ReplicaSilent, StopAnnounced
from rollcall_ha.controller.contract.values import made_from
from rollcall_ha.controller.core.decision import Decision, Refusal, done
from rollcall_ha.controller.core.state import FleetState, ReplicaState

DRAINED_US_MAX = 600_000_000
"""Without sends because of a stop: ten minutes are far above ``handover_ms`` of any preset."""


def validate_session(fleet: FleetState, command: MarkSilent | MarkAlive | SayGoodbye | AnnounceStop) -> ReplicaState:
    """The replica whose present session the command names. Raises ``Refusal``: the session is another one, or none."""
    set_state = fleet.sets.get(command.set_key)
    replica = set_state.replica(command.broker_id) if set_state is not None else None
    if replica is None or not replica.is_registered:
        raise Refusal(
            RefusalCode.UNKNOWN_REPLICA,
            f"replica {command.broker_id} of {command.set_key} has not registered",
            "register first",
        )
    # "i1 is dead" was proposed, and i2 registered before it applied: the report of a corpse would silence the living,
    # and depose it if it is the master.
    if replica.incarnation != command.incarnation:
        raise Refusal(
            RefusalCode.FENCED_INCARNATION,
            f"incarnation {command.incarnation} of replica {command.broker_id} is not {replica.incarnation}",
            "nothing to do: a newer incarnation has taken its place",
            requested=command.incarnation,
            current=replica.incarnation,
        )
    # The kernel reports the end of session 3 when session 4 has been open for a second (S33). By the incarnation alone
    # a broker that merely reconnects would be silent until its next heartbeat, and elections would be held over it.
    if replica.session_ordinal != command.session_ordinal:
        raise Refusal(
            RefusalCode.FENCED_SESSION,
            f"session {command.session_ordinal} of replica {command.broker_id} is not {replica.session_ordinal}",
            "nothing to do: a newer session has taken its place",
            requested=command.session_ordinal,
            current=replica.session_ordinal,
        )
    return replica


def decide_silent(fleet: FleetState, command: MarkSilent) -> Decision:
    """The leader found a replica gone."""
    replica = validate_session(fleet, command)
    # A second silence would overwrite the first cause, and "dead at once" is what lets a set be cleaned (R8).
    if not replica.is_alive and replica.silence is not None:
        return done()
    return done(made_from(command, ReplicaSilent))


def decide_alive(fleet: FleetState, command: MarkAlive) -> Decision:
    """A silent replica was heard again on the same session."""
    replica = validate_session(fleet, command)
    # A heartbeat that was on its way when its process said goodbye: the process has stopped, and would be elected.
    if replica.goodbye is not None:
        raise Refusal(
            RefusalCode.FENCED_SESSION,
            f"session {command.session_ordinal} of replica {command.broker_id} ended with its goodbye",
            "register again",
            requested=command.session_ordinal,
            current=replica.session_ordinal,
        )
    if replica.is_alive:
        return done()
    return done(made_from(command, ReplicaAlive))


def decide_stopping(fleet: FleetState, command: AnnounceStop) -> Decision:
    """A slave is about to stop. Its set stays as it is: only its master changes it (R1)."""
    replica = validate_session(fleet, command)
    if replica.is_stopping:
        return done()
    return done(made_from(command, StopAnnounced))


def decide_goodbye(fleet: FleetState, command: SayGoodbye) -> Decision:
    """A replica stops cleanly; its mark is compared with what it brings back (R3a)."""
    replica = validate_session(fleet, command)
    # Without a nonce, marks with the same end are equal: the one of last month's stop would prove this one (R3a).
    if not command.clean_mark.nonce:
        raise Refusal(
            RefusalCode.INVALID_ARGUMENT,
            "the clean mark has no nonce: it would prove nothing",
            "draw a nonce for every clean stop",
        )
    if replica.goodbye == command.clean_mark:
        return done()
    # Nonsense is left out, the goodbye is not: it proves what the log holds (R3a).
    return done(made_from(command, GoodbyeSaid, stopped_us=_possible(command.stopped_us)))


def _possible(stopped_us: int | None) -> int | None:
    return stopped_us if stopped_us is not None and 0 <= stopped_us <= DRAINED_US_MAX else None
