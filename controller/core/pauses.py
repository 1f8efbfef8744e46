"""
Pauses of elections: begun, ended, and what they withhold.

Here: deciding all three. Not here: noticing that a pause is over (``controller.runtime.order_ends``), holding elections
(``decide_election``).

Rule 1: while elections of a set, or of the fleet, are paused, only a person's word elects, and the switchover that a
person ordered; detection goes on. The election that would have been held is on record, with its winner.
Rule 2: a pause ends by an entry, never by a clock that ``decide`` reads: one node's clock would elect where another's
would not (C8).
Rule 3: a pause has an end, at most ``PAUSE_MS_MAX`` ahead. One that was forgotten would show itself at the next death
of a master, at night.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import Operation, PauseElections, ResumeElections
from rollcall_ha.controller.contract.events import ElectionsPaused, ElectionsResumed, ElectionWithheld, MasterElected
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.replies import Refused
from rollcall_ha.controller.contract.values import ElectionPause, made_from
from rollcall_ha.controller.core.decision import Decision, Refusal, done, find_set, no_room
from rollcall_ha.controller.core.state import PAUSES_MAX, FleetState

PAUSE_MS_MAX = 7 * 86_400_000
_NO_PEOPLE = ("controller:", "broker:", "broker@")
"""Begins the names of such callers; a RocketMQ broker asks for elections, too."""


def pause_of(fleet: FleetState, set_key: SetKey) -> ElectionPause | None:
    """The pause that holds for a set: its own, else the fleet's."""
    return fleet.pauses.get(set_key) or fleet.pauses.get(None)


def is_by_word(requested_by: str) -> bool:
    """Whether a person asked, or a program with a person's rights."""
    return not requested_by.startswith(_NO_PEOPLE)


def unless_paused(fleet: FleetState, operation: Operation, set_key: SetKey, decision: Decision) -> Decision:
    """``decision`` on an election; where elections are paused and no person asked, what it would have done (rule 1)."""
    pause = pause_of(fleet, set_key)
    elected = next((event for event in decision.events if isinstance(event, MasterElected)), None)
    # An operator switches a network off for a minute: without the pause each set of the rack would move its master
    # away, and back by hand afterwards.
    if pause is None or elected is None or is_by_word(operation.requested_by):
        return decision
    # A person ordered the switchover whose target did not enter: withheld, the set would have no master at all.
    set_state = fleet.sets.get(set_key)
    order = set_state.pending_switchover if set_state is not None else None
    if order is not None and order.elected_epoch is not None:
        return decision
    return Decision(
        answer=Refused(
            code=RefusalCode.PAUSED,
            reason=f"elections of {pause.set_key or 'the fleet'} are paused by {pause.paused_by}"
            f"{': ' if pause.reason else ''}{pause.reason}; else replica {elected.verdict.winner} would be master now",
            hint="an order still elects: rollcall elect SET; end the pause with: rollcall resume",
            verdict=elected.verdict,
        ),
        events=(made_from(elected, ElectionWithheld, paused_set=pause.set_key),),
    )


def refuse_time(operation: Operation, what: str, expires_at_ms: int, example: str) -> None:
    """Refuse an end that is over or too far ahead (rule 3)."""
    now_ms = operation.stamped_at_ms
    # Compared with the stamp of the order, which is in the entry: each node decides alike.
    if now_ms < expires_at_ms <= now_ms + PAUSE_MS_MAX:
        return
    raise Refusal(
        RefusalCode.INVALID_ARGUMENT,
        f"{what} would end at {expires_at_ms} ms UTC, it is {now_ms} now; it has to end later than now, and lasts at "
        f"most {PAUSE_MS_MAX} ms",
        f"name a time of up to seven days: {example}",
        requested=expires_at_ms,
        current=now_ms,
    )


def decide_pause(fleet: FleetState, operation: Operation, command: PauseElections) -> Decision:
    """Begin a pause, or give the one there is another end and reason."""
    refuse_time(operation, "the pause", command.expires_at_ms, "rollcall pause --for 2h")
    if command.set_key is not None:
        find_set(fleet, command.set_key)
    present = fleet.pauses.get(command.set_key)
    if present is not None and (present.expires_at_ms, present.reason) == (command.expires_at_ms, command.reason):
        return done()
    if present is None and len(fleet.pauses) >= PAUSES_MAX:
        raise no_room("pauses", len(fleet.pauses), PAUSES_MAX, "pause the fleet as a whole: rollcall pause --fleet")
    return done(ElectionsPaused(paused_set=command.set_key, expires_at_ms=command.expires_at_ms, reason=command.reason))


def decide_resume(fleet: FleetState, command: ResumeElections) -> Decision:
    """End a pause. There is none, or, for a leader, none with that end any more: nothing changes."""
    present = fleet.pauses.get(command.set_key)
    of_fleet = fleet.pauses.get(None)
    # Answered with "done", the operator would believe that the set elects again.
    if command.set_key is not None and present is None and of_fleet is not None:
        raise Refusal(
            RefusalCode.PAUSED,
            f"{command.set_key} has no pause of its own, the fleet is paused by {of_fleet.paused_by}",
            "end that one with: rollcall resume --fleet",
        )
    # An operator prolonged it while the leader's order was under way: ended by that, the pause of the next hour would
    # be over.
    if present is None or command.expired_at_ms not in (None, present.expires_at_ms):
        return done()
    is_expired = command.expired_at_ms is not None
    return done(ElectionsResumed(paused_set=command.set_key, is_expired=is_expired, reason=command.reason))
