"""
A recorded election under another policy, by the real core: for whoever asks it of a line of ``bronze.events``.

Not here: times under another timeout (``checks.what_if``).
Rule 1: at the recorded policy every replay gives history back exactly (S83).
Rule 2: a replay changes one decision and nothing after it: the further history of the set under another master is not
known, and not claimed.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from rollcall_ha.controller.contract.events import ElectionFailed, EventRecord, MasterElected
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.policies import DATA_FIRST, DATA_FIRST_THEN_WARM, POLICIES, PREFERENCE_FIRST
from rollcall_ha.controller.core.ranking import elect

CLEAN_POLICIES = (PREFERENCE_FIRST.name, DATA_FIRST.name, DATA_FIRST_THEN_WARM.name)
"""Policies that may take each other's place: both elect members of the SyncStateSet only."""

_CLEAN_KINDS = (ElectionKind.FAILOVER, ElectionKind.HANDOVER, ElectionKind.REQUESTED, ElectionKind.SWITCHOVER)

_decode = msgspec.json.Decoder(EventRecord).decode


class Replayed(NamedTuple):
    """One election, decided again."""

    winner: int | None
    policy: str
    is_replayed: bool
    """False: an election of a kind that this policy has no word in; the winner is the recorded one."""
    regret_bytes: int
    """Bytes that the eligible candidate with the greatest (epoch, offset) held beyond this winner."""


def replay(line: bytes, policy: str | None) -> Replayed | None:
    """
    The election on ``line`` under ``policy``; None = the recorded one. Returns None for another event.

    Raises ``KeyError`` for an unknown policy, ``msgspec.DecodeError`` for a line of another version.
    """
    event = _decode(line).event
    if not isinstance(event, MasterElected | ElectionFailed):
        return None
    verdict = event.verdict
    # An unclean election, or the first of a set, was decided by other rules: asked under a clean policy it would have
    # no winner, and the answer would blame the policy.
    may_change = verdict.policy in CLEAN_POLICIES and verdict.kind in _CLEAN_KINDS
    wanted = policy if policy is not None and may_change else verdict.policy
    ranking = elect(
        verdict.candidates,
        policy=POLICIES[wanted],
        designated=verdict.designated,
        previous_master=verdict.previous_master,
    )
    ends = {each.broker_id: (each.last_epoch or 0, each.max_offset or 0) for each in ranking.candidates if each.rank}
    # Regret of the other winner against the same candidates: no candidate is compared with a log of another moment.
    regret = max(ends.values())[1] - ends[ranking.winner][1] if ranking.winner is not None else 0
    return Replayed(winner=ranking.winner, policy=wanted, is_replayed=may_change, regret_bytes=max(0, regret))
