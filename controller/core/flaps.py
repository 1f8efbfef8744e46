"""
Sets that fail over again and again: blocked until a person acknowledges it (S71).

Here: counting failovers, and the block. Not here: what a pause withholds, and its end (``pauses``), the policy's keys
(``controller.contract.settings``).

Rule 1: a block is a pause of the set that begins with the last failover that the policy allows, and names its cause.
Rule 2: failovers are counted per cause. Three masters that were killed in a demo and one that hung do not share one
fault, and a network that drops heartbeats is not blamed on them.
Rule 3: the end of the pause, by a person or by its time, begins the count anew.
"""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import Operation
from rollcall_ha.controller.contract.events import ElectionsPaused, ElectionsResumed, EventRecord, MasterElected
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.values import SilenceCause
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.decision import Decision
from rollcall_ha.controller.core.pauses import PAUSE_MS_MAX, is_by_word
from rollcall_ha.controller.core.settings import settings_in_force
from rollcall_ha.controller.core.state import PAUSES_MAX, FailoverSeen, FleetState, SetState

FAILOVERS_KEPT = 16
"""As many as the policy can ask for."""


def with_block(fleet: FleetState, operation: Operation, set_key: SetKey, decision: Decision) -> Decision:
    """``decision`` on an election; with the block, if it is the last failover that the policy allows (rule 1)."""
    applied, set_state = settings_in_force(fleet), fleet.sets.get(set_key)
    failover = next((event for event in decision.events if isinstance(event, MasterElected)), None)
    if applied is None or set_state is None or failover is None or is_by_word(operation.requested_by):
        return decision
    allowed, window_ms = applied.settings.flap_failovers, applied.settings.flap_window_ms
    if not allowed or failover.verdict.kind is not ElectionKind.FAILOVER or set_state.outage is None:
        return decision
    # A pause that a person has begun meanwhile keeps its own end and reason; and pauses are bounded.
    if set_key in fleet.pauses or len(fleet.pauses) >= PAUSES_MAX:
        return decision
    now_ms, cause = operation.stamped_at_ms - fleet.stepped_ms, set_state.outage.cause
    failovers = _counted(set_state, cause, now_ms - window_ms) + 1
    if failovers < allowed:
        return decision
    block = ElectionsPaused(
        paused_set=set_key,
        expires_at_ms=operation.stamped_at_ms + PAUSE_MS_MAX,
        reason=f"{failovers} failovers by {cause.value} within {window_ms} ms, {allowed} block the set; find out "
        f"why, then: rollcall acknowledge {set_key.name}",
    )
    return Decision(answer=decision.answer, events=(*decision.events, block))


def _counted(set_state: SetState, cause: SilenceCause, since_ms: int) -> int:
    """How many failovers by ``cause`` there were since then (rule 2)."""
    return sum(one.cause is cause and one.at_ms > since_ms for one in set_state.failovers)


def noted(before: SetState, after: SetState, record: EventRecord, at_ms: int) -> SetState:
    """``after`` the event of ``record``, with the failover that it was, or without any (rule 3)."""
    event = record.event
    if isinstance(event, ElectionsResumed):
        return replace(after, failovers=()) if after.failovers else after
    if not isinstance(event, MasterElected) or event.verdict.kind is not ElectionKind.FAILOVER:
        return after
    if before.outage is None:
        return after
    failover = FailoverSeen(cause=before.outage.cause, at_ms=at_ms)
    return replace(after, failovers=(*after.failovers, failover)[-FAILOVERS_KEPT:])
