"""
Whether this controller may answer for the fleet right now.

Here: the judgement, pure. Not here: asking a majority (``replication.raft``), redirecting (``api.rest``,
``api.rocketmq``).

Rule 1 (R5): it leads, has applied its own ``TakeLeadership`` of this term, and a majority has answered an append that
it sent less than the minimum election timeout ago, or less than it has pledged to wait. The age counts from the
sending.
Rule 2: authority is a hint that keeps answers fresh; safety is in apply. Linearizable reads add a barrier of their own.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.timing import NS_PER_MS
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.replication.ports import Leadership, RaftRole


class Authority(Frozen):
    """Outcome of the judgement; ``reason`` is for people and empty when ``is_held``."""

    is_held: bool
    term: int
    leader: ControllerName | None
    """Where to go instead; None = nobody is known to lead."""
    majority_age_ms: int | None
    """Since the newest sending that a majority answered; None = never in this term, or this one does not lead."""
    reason: str


def holds_authority(
    leadership: Leadership, *, taken_term: int | None, now_ns: int, election_timeout_ms_min: int
) -> bool:
    """Rule 1 without a reason for people: asked for every heartbeat."""
    asked_at_ns = leadership.majority_asked_at_ns
    return (
        leadership.role is RaftRole.LEADER
        # Its own entry of this term is applied, and with it all that earlier leaders committed. Right after its
        # election it has applied 3 of 203 entries, and would answer with the epoch before the last failover.
        and taken_term == leadership.term
        and asked_at_ns is not None
        # A majority followed at the sending, and follows nobody else before the shortest election timeout is over.
        # Counted from the answer, a delay of 10 s on the way back would make two controllers answer at once.
        and (
            (now_ns - asked_at_ns) // NS_PER_MS < election_timeout_ms_min
            # Without CPU an answer is read seconds after the sending: by the shortest timeout alone, a leader that all
            # follow would answer for moments, and brokers would look for another one for ever.
            or now_ns < leadership.followed_until_ns
        )
    )


def judge_authority(
    leadership: Leadership, *, taken_term: int | None, now_ns: int, election_timeout_ms_min: int
) -> Authority:
    """
    Judge by Rule 1.

    ``taken_term`` comes from the last own ``TakeLeadership`` that was applied here, None = none yet; ``now_ns`` from
    the clock of ``majority_asked_at_ns``; after ``election_timeout_ms_min`` another controller may lead.
    """
    asked_at_ns = leadership.majority_asked_at_ns
    leads = leadership.role is RaftRole.LEADER
    age_ms = (now_ns - asked_at_ns) // NS_PER_MS if leads and asked_at_ns is not None else None
    is_held = holds_authority(
        leadership, taken_term=taken_term, now_ns=now_ns, election_timeout_ms_min=election_timeout_ms_min
    )
    reason = "" if is_held else _missing(leadership, taken_term, age_ms, election_timeout_ms_min)
    return Authority(
        is_held=is_held, term=leadership.term, leader=leadership.leader, majority_age_ms=age_ms, reason=reason
    )


def _missing(leadership: Leadership, taken_term: int | None, age_ms: int | None, election_timeout_ms_min: int) -> str:
    if leadership.role is not RaftRole.LEADER:
        return f"this controller is a {leadership.role} in term {leadership.term}"
    if taken_term != leadership.term:
        return f"leads in term {leadership.term} but has not applied its own entry of that term yet"
    if age_ms is None:
        return f"no majority has answered in term {leadership.term} yet"
    return f"last heard from a majority {age_ms} ms ago, authority ends at {election_timeout_ms_min} ms"
