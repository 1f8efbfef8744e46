"""
Election of a master inside one broker set: a total order, and a reason for every replica.

Here: ranking candidates and saying why. A candidate is a ``CandidateVerdict`` that has no rank yet: the record of an
election holds its own input. Not here: which replicas are candidates and what an election changes
(``decide_election``), what may rank first (``policies``).

Rule 1: a replica that is silent, not ready, a learner or set aside never wins.
Rule 2: a replica outside the SyncStateSet, or a suspect, wins only if the policy says so.
Rule 3: the result depends on the values only, not on the order of the input; no two candidates compare equal.
Rule 4: a recorded verdict holds everything that its election depended on: ``elect_again`` repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.values import Frozen
from rollcall_ha.controller.contract.verdicts import CandidateOutcome, CandidateVerdict, Verdict
from rollcall_ha.controller.core.policies import POLICIES, ElectionPolicy, RankPart

_Key = tuple[tuple[int, ...], ...]


class Ranking(Frozen):
    """Outcome of ``elect``. ``winner`` None: nobody is eligible, or the designated one is not."""

    winner: BrokerId | None
    candidates: tuple[CandidateVerdict, ...]
    """Every candidate once: the eligible ones by rank, then the others by id."""

    def reason_of(self, broker_id: BrokerId) -> str:
        """Why this candidate has its place; a word for it if it is no candidate."""
        return next((verdict.reason for verdict in self.candidates if verdict.broker_id == broker_id), "not registered")

    @property
    def reasons(self) -> str:
        """Every candidate with its reason, in one line."""
        return "; ".join(f"{candidate.broker_id} {candidate.reason}" for candidate in self.candidates)


def elect(
    candidates: Sequence[CandidateVerdict],
    *,
    policy: ElectionPolicy,
    designated: BrokerId | None = None,
    previous_master: BrokerId | None = None,
) -> Ranking:
    """
    Choose the next master of one broker set.

    Args:
        candidates: All replicas of the set, dead and learner ones included, in any order.
        policy: Decides eligibility and order.
        designated: Only this one may win; None = the first in the order.
        previous_master: Its zone is the preferred one, if it is among the candidates.

    Returns:
        A ranking in which every candidate appears exactly once, with a reason.

    Keeps: C4, S46, S47.
    """
    by_id = sorted(candidates, key=lambda candidate: candidate.broker_id)
    zone = next((candidate.zone for candidate in by_id if candidate.broker_id == previous_master), "")
    obstacles = {candidate.broker_id: _obstacle(candidate, policy) for candidate in by_id}
    able = [candidate for candidate in by_id if not obstacles[candidate.broker_id]]
    keys = {candidate.broker_id: _key(candidate, policy, zone) for candidate in able}
    # Sorting is stable, and ``able`` is sorted by id: the id is the last part of the order. Without it two equal
    # replicas would win by the order of the input, and a controller that replays the entry could elect the other (C8).
    eligible = sorted(able, key=lambda candidate: keys[candidate.broker_id])
    winner = next(
        (candidate for candidate in eligible if designated is None or candidate.broker_id == designated), None
    )
    verdicts = [
        replace(
            candidate,
            outcome=CandidateOutcome.ELECTED if candidate is winner else CandidateOutcome.ELIGIBLE,
            reason=_rank_reason(candidate, eligible, winner, policy=policy, keys=keys, designated=designated),
            rank=rank,
        )
        for rank, candidate in enumerate(eligible, start=1)
    ]
    verdicts.extend(
        replace(
            candidate,
            outcome=CandidateOutcome.EXCLUDED if candidate.is_set_aside else CandidateOutcome.REJECTED,
            reason=obstacles[candidate.broker_id],
            rank=None,
        )
        for candidate in by_id
        if obstacles[candidate.broker_id]
    )
    return Ranking(winner=winner.broker_id if winner is not None else None, candidates=tuple(verdicts))


def elect_again(verdict: Verdict) -> Ranking | None:
    """Repeat a recorded election from its own record (S68); None if its policy is not known here."""
    policy = POLICIES.get(verdict.policy)
    if policy is None:
        return None
    return elect(
        verdict.candidates,
        policy=policy,
        designated=verdict.designated,
        previous_master=verdict.previous_master,
    )


def _obstacle(candidate: CandidateVerdict, policy: ElectionPolicy) -> str:
    """Why ``candidate`` may not win; empty if it may. The first obstacle is the one that an operator has to remove."""
    if candidate.is_set_aside:
        return candidate.reason
    if not candidate.is_alive:
        return candidate.reason or "silent"
    # Even by the unclean word: no send ever waited for a learner, so how much it lacks cannot be told.
    if candidate.is_learner:
        return "learner"
    # A new leader has heard nobody yet. Electing a replica that this leader has not heard would name a process that may
    # have been gone for minutes, and the set would wait for it to enter.
    if candidate.heartbeat_age_ms is None:
        return "not heard by the leading controller yet"
    # A store that is still recovering reports an end that recovery may take back: it would win with records that it is
    # about to cut (S46).
    if not candidate.is_ready:
        return "not ready: its store is recovering or refuses a role"
    # The sentence that safety stands on: the winner is a member, and a master waits for every member with each send. A
    # replica outside has no such promise behind it (C4).
    if not candidate.is_in_sync and not policy.allows_outsiders:
        return "not in SyncStateSet; unclean election is off"
    # Acked 5000, power loss, back with 1200 and alone in its set: it is a member still, so that nobody forgets who had
    # the records, but it must not win by itself (R3).
    if candidate.is_suspect and not policy.allows_suspects:
        return "suspect: its last restart may have lost records; unclean election is off"
    return ""


def _data(candidate: CandidateVerdict) -> tuple[int, int]:
    # Exact integers, and -1 for unknown: RocketMQ casts the difference to 32 bits and raises on a missing value (W32).
    epoch = -1 if candidate.last_epoch is None else int(candidate.last_epoch)
    offset = -1 if candidate.max_offset is None else int(candidate.max_offset)
    return epoch, offset


def _part(part: RankPart, candidate: CandidateVerdict, zone: str) -> tuple[int, ...]:
    if part is RankPart.DATA:
        # The epoch first. A deposed master that wrote on alone in epoch 4 has the longer log, and less of what counts.
        epoch, offset = _data(candidate)
        return -epoch, -offset
    if part is RankPart.PRIORITY:
        return (candidate.priority,)
    if part is RankPart.ZONE:
        return (0 if not zone or candidate.zone == zone else 1,)
    if part is RankPart.WARM:
        return (0 if candidate.is_warm is True else 1,)
    return (0 if candidate.is_in_sync and not candidate.is_suspect else 1,)


def _key(candidate: CandidateVerdict, policy: ElectionPolicy, zone: str) -> _Key:
    return tuple(_part(part, candidate, zone) for part in policy.order)


def _rank_reason(
    candidate: CandidateVerdict,
    eligible: Sequence[CandidateVerdict],
    winner: CandidateVerdict | None,
    *,
    policy: ElectionPolicy,
    keys: Mapping[BrokerId, _Key],
    designated: BrokerId | None,
) -> str:
    base = (
        f"{'in' if candidate.is_in_sync else 'not in'} SyncStateSet, alive{', suspect' if candidate.is_suspect else ''}"
    )
    if designated is not None:
        return f"{base}, designated" if candidate is winner else f"{base}; replica {designated} is designated"
    if len(eligible) == 1:
        return f"{base}, the only eligible replica"
    best = eligible[0]
    if candidate is best:
        return f"{base}, {_advantage(best, eligible[1], policy, keys)}"
    return f"{base}; replica {best.broker_id} is before it: {_advantage(best, candidate, policy, keys)}"


def _advantage(
    better: CandidateVerdict, worse: CandidateVerdict, policy: ElectionPolicy, keys: Mapping[BrokerId, _Key]
) -> str:
    """The first part of the order in which the two differ, with both values."""
    for part, left, right in zip(policy.order, keys[better.broker_id], keys[worse.broker_id], strict=True):
        if left == right:
            continue
        if part is RankPart.DATA:
            return f"greatest (epoch, offset): {_data(better)} before {_data(worse)}"
        if part is RankPart.PRIORITY:
            return f"smallest priority: {better.priority} before {worse.priority}"
        if part is RankPart.ZONE:
            return f"in zone {better.zone!r} of the last master, before {worse.zone!r}"
        if part is RankPart.WARM:
            return "warm: master before in its present process, before one that was not"
        return "an intact member, before one that is not"
    return f"equal otherwise, smallest id: {better.broker_id} before {worse.broker_id}"
