"""
Which replicas may be elected, and in which order.

Here: policies as values; the parts of an order as exact integers. Not here: walking candidates and giving reasons
(``ranking``).

Rule 1: equal policies elect alike. The record keeps a policy by its name, so a name's meaning never changes: a new
meaning is a new ``@n``.
Rule 2: every order ends with the broker id, so two replicas never compare equal (S47).
Rule 3: in mode ``all`` every member holds what was acknowledged, so preferences may rank first. In modes ``n`` and
``async`` (R10), for RocketMQ replicas and without intactness, the longest log ranks first.
"""

from __future__ import annotations

from enum import StrEnum

from rollcall_ha.controller.contract.values import Frozen


class RankPart(StrEnum):
    """One part of an order; smaller is better."""

    MEMBERSHIP = "membership"
    """Intact members of the SyncStateSet before everybody else."""
    DATA = "data"
    """Greater (last epoch, max offset) first."""
    ZONE = "zone"
    """The zone of the last master first, so that nobody is moved across data centres without need (S73)."""
    PRIORITY = "priority"
    """Smaller first, as in RocketMQ."""
    WARM = "warm"
    """Replicas that were master before in their present process first: a JVM has loaded its master's code."""


class ElectionPolicy(Frozen):
    """Eligibility and order. The broker id is the last part of every order."""

    name: str
    order: tuple[RankPart, ...]
    allows_outsiders: bool = False
    """Replicas that are not in the SyncStateSet may win."""
    allows_suspects: bool = False
    """Members whose restart proved nothing may win (R3)."""


PREFERENCE_FIRST = ElectionPolicy(name="preference-first@1", order=(RankPart.ZONE, RankPart.PRIORITY, RankPart.DATA))

DATA_FIRST = ElectionPolicy(name="data-first@1", order=(RankPart.DATA, RankPart.ZONE, RankPart.PRIORITY))
"""Clean, modes ``n`` and ``async`` (R10), and sets with Java replicas."""

DATA_FIRST_THEN_WARM = ElectionPolicy(name="data-first@2", order=(*DATA_FIRST.order, RankPart.WARM))
"""In its place from feature level 2 on."""

FIRST = ElectionPolicy(
    name="first@1", order=(RankPart.PRIORITY, RankPart.ZONE), allows_outsiders=True, allows_suspects=True
)
"""First election of a set whose logs are all empty (R8)."""

RESTORED = ElectionPolicy(
    name="restored@1", order=(RankPart.DATA, RankPart.ZONE, RankPart.PRIORITY), allows_suspects=True
)
"""Out of the newest stored set, once every replica that it names has reported (R7)."""

LONGEST = ElectionPolicy(
    name="longest@1",
    order=(RankPart.DATA, RankPart.ZONE, RankPart.PRIORITY),
    allows_outsiders=True,
    allows_suspects=True,
)
"""RocketMQ replicas after restarts that prove nothing: the longest one, once all members have reported (R3)."""

UNCLEAN = ElectionPolicy(
    name="unclean@1",
    order=(RankPart.MEMBERSHIP, RankPart.DATA, RankPart.ZONE, RankPart.PRIORITY),
    allows_outsiders=True,
    allows_suspects=True,
)
"""By an operator's word, which names the loss that is accepted (S72)."""

POLICIES: dict[str, ElectionPolicy] = {
    policy.name: policy
    for policy in (PREFERENCE_FIRST, DATA_FIRST, DATA_FIRST_THEN_WARM, FIRST, RESTORED, LONGEST, UNCLEAN)
}
"""By name, to run a recorded election again."""
