"""
Outcomes of elections and proofs, as events, replies and views all carry them.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import UNSET, UnsetType

from rollcall_ha.controller.contract.ids import (
    BrokerId,
    LogOffset,
    MasterEpoch,
    ReplicaKind,
    SyncStateSet,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.values import Value


class ElectionKind(StrEnum):
    """What kind of election made a master."""

    FIRST = "first"
    BOOTSTRAP = "bootstrap"
    FAILOVER = "failover"
    REQUESTED = "requested"
    """An operator's word: ``elect --to``."""
    UNCLEAN = "unclean"
    HANDOVER = "handover"
    """
    The master asked to stop, said goodbye while it was alive, or was left by policy because its writes had stopped:
    never a failover.
    """
    SWITCHOVER = "switchover"
    """An operator's order that the master drained for, or its way back: planned, never a failover."""


class Intactness(StrEnum):
    """What the apply of a registration found about a new incarnation (R3)."""

    NEW = "new"
    """First incarnation of this id, empty log."""
    SAME_INCARNATION = "same-incarnation"
    CLEAN_STOP = "clean-stop"
    SAME_BOOT = "same-boot"
    SYNC_FLUSH = "sync-flush"
    NOT_INTACT = "not-intact"
    SUSPECT = "suspect"
    """Not intact, but the last member: only the unclean verb may elect it."""

    @property
    def keeps_membership(self) -> bool:
        """Whether the membership moves to the new incarnation as a full member."""
        return self not in (Intactness.NOT_INTACT, Intactness.SUSPECT, Intactness.NEW)


class CandidateOutcome(StrEnum):
    """What became of one replica in an election."""

    ELECTED = "elected"
    ELIGIBLE = "eligible"
    REJECTED = "rejected"
    EXCLUDED = "excluded"


class CandidateVerdict(Value):
    """One replica of the set, with the reason for its rank. Every replica appears exactly once."""

    broker_id: BrokerId
    outcome: CandidateOutcome
    reason: str
    rank: int | None = None
    """From 1 among the eligible; None otherwise."""
    is_alive: bool = False
    is_in_sync: bool = False
    last_epoch: MasterEpoch | None = None
    max_offset: LogOffset | None = None
    priority: int = 100
    heartbeat_age_ms: int | None = None
    zone: str = ""
    kind: ReplicaKind = ReplicaKind.NATIVE
    is_ready: bool = True
    is_learner: bool = False
    is_suspect: bool = False
    is_set_aside: bool = False
    """Kept out of this election for the reason given: the current master, or one that did not enter in time."""
    is_warm: bool | UnsetType = UNSET
    """It was master before in its present process, and was replaced; told where the policy asks for it."""


class Verdict(Value):
    """
    What an election would do, or did. ``winner`` None: nobody is eligible; that is an answer, not an error.
    """

    kind: ElectionKind
    winner: BrokerId | None
    candidates: tuple[CandidateVerdict, ...]
    policy: str
    previous_master: BrokerId | None
    previous_epoch: MasterEpoch
    master_epoch: MasterEpoch
    """The new epoch; equal to ``previous_epoch`` if there is no winner."""
    previous_set: SyncStateSet
    sync_state_set: SyncStateSet
    previous_set_epoch: SyncStateSetEpoch
    sync_state_set_epoch: SyncStateSetEpoch
    estimated_loss_bytes: int = 0
    """Unclean only: highest known confirm or released end above the winner's end. 0 for a clean one."""
    designated: BrokerId | None = None
    """The replica that the caller asked for; with the candidates and ``policy`` it makes the election repeatable."""


class Grade(StrEnum):
    """What is known about loss. Never a guess (promise 1)."""

    PROVEN = "proven"
    BOUNDED = "bounded"
    UNKNOWN = "unknown"
    REFUTED = "refuted"


class LossVerdict(Value):
    """Grade of one failover with the facts that it rests on, or the ones that are missing."""

    master_epoch: MasterEpoch
    grade: Grade
    bound_bytes: int | None
    facts: tuple[str, ...]
    missing: tuple[str, ...] = ()
    cut_bytes: int | None = None
    """What the old master threw away when it came back; None = not back yet. In mode ``all`` never acknowledged."""
