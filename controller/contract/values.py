"""
Values that commands, replies, events and sessions are made of.

Here: what a replica tells about itself, evidence of elections, detection stamps, milestones of a failover. Not here:
orders (``commands``), answers (``replies``), facts (``events``), ids (``ids``).
Rule 1: no floats. Ages and offsets are integers with a unit in the name or in the type: every controller must encode a
value to the same bytes, because the events' hash chain runs over them.
Rule 2: unknown fields are ignored; a new field has the default ``UNSET``, which is not written, and is listed in
``levels`` (R15).
"""

from __future__ import annotations

from enum import StrEnum
from functools import cache
from typing import Annotated, Final, TypeVar, dataclass_transform

import msgspec
from msgspec import UNSET, UnsetType

from rollcall_ha.controller.contract.ids import (
    AckMode,
    BrokerId,
    FleetIncarnation,
    FlushMode,
    Incarnation,
    LogOffset,
    MasterEpoch,
    ReplicaKind,
    SessionOrdinal,
    SetKey,
    SyncStateSet,
    SyncStateSetEpoch,
)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Frozen(msgspec.Struct, frozen=True, kw_only=True):
    """Base of values that stay inside of a process: made by the names of their fields, and never changed."""


class Value(Frozen, rename="camel"):
    """Base of everything that is part of a command, a reply or an event."""


Made = TypeVar("Made", bound=msgspec.Struct)


def made_from(source: msgspec.Struct, kind: type[Made], **others: object) -> Made:
    """A ``kind`` that takes ``others``, and each further field that ``source`` has under the same name."""
    shared = {name: getattr(source, name) for name in _shared_fields(type(source), kind)}
    return kind(**(shared | others))


@cache
def _shared_fields(source: type[msgspec.Struct], kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(name for name in kind.__struct_fields__ if name in source.__struct_fields__)


EPOCHS_TOLD_MAX: Final = 16
EpochsTold = Annotated[tuple[MasterEpoch, ...], msgspec.Meta(max_length=EPOCHS_TOLD_MAX)]
"""Of more the newest: what is left out is taken as not there."""


class Positions(Value):
    """The ends of a replica's log, by its own word."""

    last_epoch: MasterEpoch
    """Last entry of its epoch history; -1 if there is none."""
    max_offset: LogOffset
    confirm_offset: LogOffset
    released: LogOffset = LogOffset(0)
    """Highest end that it acknowledged to a producer as a master, from its checkpoint: fact 4 of a proof."""
    confirm_epochs: EpochsTold | UnsetType = UNSET
    """
    Rising: the epoch of its log in which its last confirmed byte lies, and those behind it, without ``last_epoch``.

    UNSET = the replica does not say, or nothing is confirmed.
    """


class CleanMark(Value):
    """A clean stop: log and epoch list were synced up to ``end_offset`` before the mark was written (R3a)."""

    nonce: str
    end_offset: LogOffset


class StoredView(Value):
    """The state that a replica last heard from controllers and keeps on its own disk (R7)."""

    fleet_incarnation: FleetIncarnation
    master_epoch: MasterEpoch
    sync_state_set_epoch: SyncStateSetEpoch
    sync_state_set: SyncStateSet
    master: BrokerId | UnsetType = UNSET
    """The master of that epoch, with the process that was elected; UNSET = the broker does not say."""
    master_incarnation: Incarnation | UnsetType = UNSET


class RegisteredAs(Value):
    """The registration under an id. It moves with every registration, and never comes back (R14)."""

    incarnation: Incarnation
    session_ordinal: SessionOrdinal
    """0 = not known; enough to replace another incarnation, not to open a further session of the same one."""


class SetConfiguration(Value):
    """Belongs to the set; comes with its first registration. An order changes the numbers, nothing the mode (R11)."""

    expected_replicas: int = 1
    ack_mode: AckMode = AckMode.ALL
    min_in_sync: int = 0
    """0 = half of the expected replicas, rounded up; read it through ``effective_min_in_sync``."""
    flush: FlushMode = FlushMode.ASYNC

    @property
    def effective_min_in_sync(self) -> int:
        return self.min_in_sync or max(1, (self.expected_replicas + 1) // 2)


class ReplicaDescription(Value):
    """The operator's settings of one replica."""

    address: str
    """host:port of the broker's listen port."""
    ha_address: str
    kind: ReplicaKind = ReplicaKind.NATIVE
    zone: str = ""
    priority: int = 100
    """Smaller is preferred, as in RocketMQ."""
    is_learner: bool = False


class Joining(Value):
    """A member that an alter adds, by the incarnation whose ack passed the join test (R1)."""

    broker_id: BrokerId
    incarnation: Incarnation


class MembershipVerb(StrEnum):
    """A step of the controllers' members."""

    ADD = "add"
    """It takes entries, and has no vote yet."""
    PROMOTE = "promote"
    """A leader's: it has caught up, and votes from now on."""
    REMOVE = "remove"


class SilenceCause(StrEnum):
    """How a replica was found to be gone."""

    TIMEOUT = "timeout"
    DEAD_AT_ONCE = "dead-at-once"
    """Session closed, probe refused, HA link closed as seen by an electable member (R13)."""
    REPLACED = "replaced"
    """A newer incarnation answered the probe or registered (R13)."""
    GOODBYE = "goodbye"
    WRITES_STOPPED = "writes-stopped"
    """Only a detection has it: the master lives, its writes stopped, and an election ended that."""
    REVOKED = "revoked"
    """Its session ended because its certificate was revoked (R28)."""
    DRAINED = "drained"
    """Only a detection has it: the master lives, and took no sends because it was ordered to hand over."""


class SwitchoverEnd(StrEnum):
    """How an order to switch over ended. By the three in the middle the old master keeps its set, or gets it back."""

    DONE = "done"
    DEADLINE = "deadline"
    """The master did not announce in time that it has drained."""
    TARGET_LOST = "target-lost"
    """Before its election: silent, restarted, about to stop, no member any more, or not eligible."""
    NOT_ENTERED = "not-entered"
    """The target was elected and did not enter: the old master was elected again."""
    MASTER_LOST = "master-lost"
    """The old master is gone: a failover follows."""
    OVERTAKEN = "overtaken"
    """Another election or an operator's cleaning came between."""


class EventRef(Value):
    """Names one event for ever."""

    term: int
    index: int
    ordinal: int

    def __str__(self) -> str:
        return f"{self.term}.{self.index}.{self.ordinal}"


class DetectionStamps(Value):
    """
    When the leader noticed what, as ages in microseconds at the moment of the proposal, on its monotonic clock.

    ``None`` = was not seen. The fault lies between ``alive_age_us`` and ``first_sign_age_us``.
    """

    cause: SilenceCause
    first_sign_age_us: int
    """
    Where the phases of a failover begin: the first sign of the fault, which is what closed or was refused. The first
    sign of a silence is the moment when the next sign of life was due.
    """
    last_heartbeat_age_us: int | None = None
    session_closed_age_us: int | None = None
    link_closed_age_us: int | None = None
    probe_refused_age_us: int | None = None
    detected_age_us: int = 0
    alive_age_us: int | None = None
    """Last word of the master before it: a heartbeat, an entry that was committed while it was heard."""

    @property
    def uncertainty_us(self) -> int | None:
        """How much earlier than ``first_sign_age_us`` the fault may have been: 0 = exact, None = not known."""
        return None if self.alive_age_us is None else max(0, self.alive_age_us - self.first_sign_age_us)


class ReplicaEvidence(Value):
    """One replica as the leader saw it; apply checks incarnation and session ordinal (R14)."""

    broker_id: BrokerId
    incarnation: Incarnation
    session_ordinal: SessionOrdinal
    heartbeat_age_ms: int | None
    is_ready: bool
    """Recovered, and its store accepts a role (S46)."""
    last_epoch: MasterEpoch
    max_offset: LogOffset
    confirm_offset: LogOffset
    released: LogOffset = LogOffset(0)
    confirmed_before: LogOffset | UnsetType = UNSET
    """
    Confirm of this masterEpoch that the leader had heard before it was told ``max_offset``: a member that has lost
    nothing ends there or above. Unset: none was heard.
    """


class Evidence(Value):
    """Soft facts that a decision was taken on, with what they were taken against."""

    read_at_index: int
    master_epoch: MasterEpoch
    sync_state_set_epoch: SyncStateSetEpoch
    replicas: tuple[ReplicaEvidence, ...]
    triggered_by: EventRef | None = None
    detection: DetectionStamps | None = None
    epoch_jump_draw: int = 0
    """0..15, drawn by the proposer: which of the next 16 multiples of 2**20 a jump goes to (R7)."""
    confirmed: LogOffset | UnsetType = UNSET
    """Highest confirm that members told this leader in this masterEpoch; unset: none did."""


class KnownConfirm(Value):
    """The highest confirm offset that members of one set have told in one masterEpoch."""

    set_key: SetKey
    master_epoch: MasterEpoch
    confirm_offset: LogOffset


class ToldConfirm(Value):
    """A confirm offset that a replica told in a recovery, with what says which other logs have those bytes."""

    log_epoch: MasterEpoch
    """In which the log of its teller ends."""
    epochs: EpochsTold
    """As ``Positions.confirm_epochs``; empty if the teller does not say."""
    offset: LogOffset


class Phase(StrEnum):
    """Steps of a failover, in the order in which they happen; ``FAULT`` is last because journals count by place."""

    DETECTED = "detected"
    PROPOSED = "proposed"
    COMMITTED = "committed"
    NOTIFIED = "notified"
    PROMISED = "promised"
    TRUNCATED = "truncated"
    ROLE_APPLIED = "role-applied"
    SERVING = "serving"
    FIRST_ACK = "first-ack"
    ROUTE_CONVERGED = "route-converged"
    IN_SYNC = "in-sync"
    FULL_REDUNDANCY = "full-redundancy"
    FAULT = "fault"
    """Before all others. Never reported: among the missing phases it says that only bounds of the fault are known."""


class Milestone(Value):
    """
    Something that happened in a broker or in the leader on behalf of one masterEpoch.

    ``elapsed_us`` runs on the reporter's own monotonic clock: for a broker from the push that it answers,
    for the leader from the proposal. ``observed_us`` is the leader's: from the first sign of the fault to the arrival
    of the report, less its ``age_us``. Where an operator moves a living master both begin with the commit, so COMMITTED
    is 0 there.
    """

    master_epoch: MasterEpoch
    phase: Phase
    elapsed_us: int
    broker_id: BrokerId | None = None
    """None = the leading controller."""
    incarnation: Incarnation | None = None
    observed_us: int | None = None
    cut_from: LogOffset | None = None
    """TRUNCATED: first byte that was cut; None = nothing to cut."""
    cut_to: LogOffset | None = None
    outlived_from: LogOffset | UnsetType = UNSET
    """TRUNCATED: where the log began that was given up because the master had lost by age what follows it (R31)."""
    outlived_to: LogOffset | UnsetType = UNSET
    released: LogOffset | None = None
    """TRUNCATED: the highest end that this replica ever acknowledged as a master (fact 4 of a proof)."""
    waited_us: int | None = None
    """
    FIRST_ACK: the longest time that a send of this first release had waited, from when its sender was handed it.

    None = no sender of them said it: RocketMQ's clients do not.
    """
    age_us: int | None = None
    """
    On its way from a broker: how long before the report was sent it was reached, on the broker's monotonic clock.

    The leader takes it off ``observed_us``, and proposes the milestone without it.
    """
    uncertainty_us: int | UnsetType = UNSET
    """
    How much more ``observed_us`` may be: the leader saw the election as a follower, or nobody saw when the old master
    ceased to acknowledge. UNSET = it is exact.
    """


class StopReason(StrEnum):
    """Why a master that goes on reigning acknowledges no write."""

    TOO_FEW_IN_SYNC = "too-few-in-sync"
    """The SyncStateSet is smaller than ``min_in_sync``: sends are refused (R22)."""
    NOT_ACKNOWLEDGED = "not-acknowledged"
    """A replica that must have each byte does not say that it has (R2)."""
    DISK_FULL = "disk-full"
    """The master's log cannot grow: sends are refused."""
    FENCED = "fenced"
    """The master has stopped itself, and the controllers have elected nobody else."""
    OWN_DISK = "own-disk"
    """The master's own disk has not synced what every other member has, or has not made room for it."""


class RevokedCertificate(Value):
    """A certificate that nobody believes any more."""

    serial: str
    """Hex digits, lower case, without leading zeros."""
    name: str
    """Its URI name."""
    expires_at_ms: int
    reason: str
    revoked_at_ms: int
    """Stamp (UTC) of the entry."""
    revoked_by: str


class ElectionPause(Value):
    """While it lasts, nobody is elected but by an operator's word."""

    set_key: SetKey | None
    """None: in no set of the fleet."""
    expires_at_ms: int
    """UTC."""
    reason: str
    paused_at_ms: int
    """Stamp (UTC) of the entry."""
    paused_by: str


def host_of(address: str) -> str:
    """The host of host:port, an IPv6 address without its brackets."""
    return address.rpartition(":")[0].strip("[]")


def peer_host(address: str) -> str:
    """The host of an address that the kernel tells, as brokers write it in theirs."""
    # A port that is bound to "::" sees 10.0.0.5 as ::ffff:10.0.0.5: no broker would be at home on its own host.
    return host_of(address).removeprefix("::ffff:")


class MaintenanceScope(Value):
    """One replica (``set_key`` and ``broker_id``), or (``host``) each replica with an address on a host."""

    host: str = ""
    """The host in host:port of the replicas' addresses, without brackets; empty: one replica is meant."""
    set_key: SetKey | None = None
    broker_id: BrokerId | None = None

    def __str__(self) -> str:
        return self.host or f"{self.set_key}:{self.broker_id}"


class Maintenance(Value):
    """While it lasts, its replicas are elected by an operator's word only, and nobody is alarmed that they are gone."""

    scope: MaintenanceScope
    expires_at_ms: int
    """UTC."""
    reason: str
    begun_at_ms: int
    """Stamp (UTC) of the entry."""
    begun_by: str


class ImportedReplica(Value):
    """One replica of a set that other controllers gave its id to."""

    broker_id: BrokerId
    address: str
