"""
Orders to the control plane, as they travel through REST, a broker's session and the Raft log.

Here: the shape of every command and of the evidence that it may carry. Not here: whether it is accepted
(``controller.core``).
Rule 1: a command names everything that it was decided against; apply refuses it if that moved (R1, R14).
Rule 2: unknown fields are ignored, a new mandatory field or a new kind raises ``FEATURE_LEVEL`` (R15).
Rule 3: no floats. Ages are integers with a unit in the name.
"""

from __future__ import annotations

from enum import StrEnum
from typing import dataclass_transform

import msgspec

from rollcall_ha.controller.contract.ids import (
    AckMode,
    BrokerId,
    ControllerName,
    FleetIncarnation,
    FlushMode,
    Incarnation,
    LogOffset,
    MasterEpoch,
    RegisterCode,
    ReplicaKind,
    RequestId,
    SessionOrdinal,
    SetKey,
    SyncStateSet,
    SyncStateSetEpoch,
)

FEATURE_LEVEL = 1
"""Highest level of operations and snapshots that this code understands (R15)."""


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of everything that is part of a command, a reply or an event."""


class Command(Value, tag_field="command"):
    """Base of all orders; the tag is the class name."""


# --- parts -----------------------------------------------------------------------------------------------------------


class Positions(Value):
    """What a replica holds, by its own word."""

    last_epoch: MasterEpoch
    """Last entry of its epoch history; -1 if there is none."""
    max_offset: LogOffset
    confirm_offset: LogOffset
    released: LogOffset = LogOffset(0)
    """Highest end that it acknowledged to a producer as a master; kept in its checkpoint (safety.md, proof 4)."""


class CleanMark(Value):
    """A clean stop: log and epoch list were synced up to ``end_offset`` before the mark was written (R3a)."""

    nonce: str
    end_offset: LogOffset


class StoredView(Value):
    """What a replica last heard from controllers and keeps on its own disk (R7)."""

    fleet_incarnation: FleetIncarnation
    master_epoch: MasterEpoch
    sync_state_set_epoch: SyncStateSetEpoch
    sync_state_set: SyncStateSet


class RegisteredAs(Value):
    """What is registered under an id. It moves with every registration, and never comes back (R14)."""

    incarnation: Incarnation
    session_ordinal: SessionOrdinal
    """0 = not known; enough to replace another incarnation, not to open a further session of the same one."""


class SetConfiguration(Value):
    """Belongs to the set; comes with its first registration (design section 9)."""

    expected_replicas: int = 1
    ack_mode: AckMode = AckMode.ALL
    min_in_sync: int = 0
    """0 = half of the expected replicas, rounded up; read it through ``effective_min_in_sync``."""
    flush: FlushMode = FlushMode.ASYNC

    @property
    def effective_min_in_sync(self) -> int:
        return self.min_in_sync or max(1, (self.expected_replicas + 1) // 2)


class ReplicaDescription(Value):
    """What an operator configured about one replica."""

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


class SilenceCause(StrEnum):
    """How a replica was found to be gone."""

    TIMEOUT = "timeout"
    DEAD_AT_ONCE = "dead-at-once"
    """Session closed, probe refused, HA link closed as seen by an electable member (R13)."""
    REPLACED = "replaced"
    """A newer incarnation answered the probe or registered (R13)."""
    GOODBYE = "goodbye"


class EventRef(Value):
    """Names one event for ever."""

    term: int
    index: int
    ordinal: int


class DetectionStamps(Value):
    """
    When the leader noticed what, as ages in microseconds at the moment of the proposal, on its monotonic clock.

    ``None`` = was not seen. The phases of a failover begin at ``fault_age_us``.
    """

    cause: SilenceCause
    last_heartbeat_age_us: int | None = None
    session_closed_age_us: int | None = None
    link_closed_age_us: int | None = None
    probe_refused_age_us: int | None = None
    detected_age_us: int = 0

    @property
    def fault_age_us(self) -> int:
        """
        Where the phases of a failover begin: the first sign of the fault.

        A heartbeat is a sign of life. It bounds the fault only where silence was all that there was; where a session
        or a link broke, the fault is when it did.
        """
        heartbeat = self.last_heartbeat_age_us if self.cause is SilenceCause.TIMEOUT else None
        signs = (self.session_closed_age_us, self.link_closed_age_us, self.probe_refused_age_us, heartbeat)
        return max((age for age in signs if age is not None), default=self.detected_age_us)


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


# --- commands --------------------------------------------------------------------------------------------------------


class InitialiseFleet(Command, tag="InitialiseFleet"):
    """First entry of a fleet: fixes its incarnation. Repeating it with the same value changes nothing."""

    fleet_incarnation: FleetIncarnation


class TakeLeadership(Command, tag="TakeLeadership"):
    """Barrier of a new leader: once applied, its leader duties may begin."""

    controller: ControllerName
    term: int


class Barrier(Command, tag="Barrier"):
    """Changes nothing; whoever sees it applied has seen everything before it (linearizable reads)."""


class RaiseFeatureLevel(Command, tag="RaiseFeatureLevel"):
    """From here on operations of this level may appear; a node below it stops (R15)."""

    level: int


class ApplyBrokerId(Command, tag="ApplyBrokerId"):
    """
    Bind a broker id to a register code, once and for ever (S62, S63, C6).

    ``applied_broker_id`` None: the next free one. A repeat with the same code gets the same id.
    """

    set_key: SetKey
    register_code: RegisterCode
    address: str
    applied_broker_id: BrokerId | None = None


class RegisterReplica(Command, tag="RegisterReplica"):
    """
    A process says who it is and what it holds; opens a session.

    The same incarnation again only opens a further session. A new one is judged here (R3, R8, R23).
    Refused with what is registered if that is not ``replaces``: a late duplicate of an earlier life ends nobody (R1).
    """

    set_key: SetKey
    broker_id: BrokerId
    register_code: RegisterCode
    incarnation: Incarnation
    boot_id: str
    store_id: str
    description: ReplicaDescription
    configuration: SetConfiguration
    positions: Positions
    are_positions_known: bool = True
    """False: a RocketMQ broker that has not sent a heartbeat yet; it registers again when it has."""
    clean_mark: CleanMark | None = None
    stored: StoredView | None = None
    replaces: RegisteredAs | None = None
    """What it was made against, as the broker last heard, or as its directory says; None = nobody has registered."""
    previous_incarnations: tuple[Incarnation, ...] = ()
    """
    Earlier lives of the data directory, the newest last, each on its disk since before that life first registered.

    A directory that does not name the registered one is an older copy, and proves nothing (R3).
    """


class MarkSilent(Command, tag="MarkSilent"):
    """The leader found this session's replica gone. Refused if session or incarnation moved (S33)."""

    set_key: SetKey
    broker_id: BrokerId
    incarnation: Incarnation
    session_ordinal: SessionOrdinal
    cause: SilenceCause
    detection: DetectionStamps | None = None


class MarkAlive(Command, tag="MarkAlive"):
    """A silent replica was heard again on the same session."""

    set_key: SetKey
    broker_id: BrokerId
    incarnation: Incarnation
    session_ordinal: SessionOrdinal


class SayGoodbye(Command, tag="SayGoodbye"):
    """A replica stops cleanly; the mark is compared with what it brings back (R3a)."""

    set_key: SetKey
    broker_id: BrokerId
    incarnation: Incarnation
    session_ordinal: SessionOrdinal
    clean_mark: CleanMark


class ElectMaster(Command, tag="ElectMaster"):
    """Elect by policy, clean only. Needs ``Operation.evidence``."""

    set_key: SetKey
    designated: BrokerId | None = None
    expected_master: BrokerId | None = None
    expected_epoch: MasterEpoch | None = None
    reason: str = ""


class ElectUnclean(Command, tag="ElectUnclean"):
    """
    Elect outside the SyncStateSet. Refused unless ``accepted_loss_bytes`` covers the estimate (S72). Needs evidence.
    """

    set_key: SetKey
    accepted_loss_bytes: int
    designated: BrokerId | None = None
    expected_master: BrokerId | None = None
    expected_epoch: MasterEpoch | None = None
    reason: str = ""


class Bootstrap(Command, tag="Bootstrap"):
    """First election by an operator's word, where R8 forbids the automatic one. Needs evidence."""

    set_key: SetKey
    master: BrokerId
    reason: str = ""


class AlterSyncStateSet(Command, tag="AlterSyncStateSet"):
    """
    A master's compare-and-set on the SyncStateSet (R1).

    ``seq`` counts the proposals of one (master, masterEpoch) from 1 and is bound to one content: a retry repeats it
    byte for byte.
    """

    set_key: SetKey
    broker_id: BrokerId
    incarnation: Incarnation
    master_epoch: MasterEpoch
    seq: int
    sync_state_set_epoch: SyncStateSetEpoch
    new_set: SyncStateSet
    joining: tuple[Joining, ...] = ()


class ReportEntered(Command, tag="ReportEntered"):
    """The winner entered its epoch: entry and promise are on its disk (R9, R12; safety.md, proof 3)."""

    set_key: SetKey
    broker_id: BrokerId
    incarnation: Incarnation
    master_epoch: MasterEpoch
    start_offset: LogOffset | None
    """None: a RocketMQ broker, seen to be master; where its epoch starts is not told."""
    acked_end_max: LogOffset
    """Highest end that it ever acked to the old master."""
    is_mode_confirmed: bool = True
    """
    The master works by the set's ack mode and had confirm >= released when that was last strengthened (proof 1).
    """


class Phase(StrEnum):
    """Steps of a failover, in the order in which they happen."""

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


class Milestone(Value):
    """
    Something that happened in a broker or in the leader on behalf of one masterEpoch.

    ``elapsed_us`` runs on the reporter's own monotonic clock: for a broker from the push that it answers,
    for the leader from the proposal. ``observed_us`` is the leader's: from its oldest detection stamp to the arrival
    of the report.
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
    released: LogOffset | None = None
    """TRUNCATED: the highest end that this replica ever acknowledged as a master (proof 4)."""


class RecordMilestones(Command, tag="RecordMilestones"):
    """Make what happened in brokers part of the record, in batches."""

    set_key: SetKey
    milestones: tuple[Milestone, ...]


class CleanReplicas(Command, tag="CleanReplicas"):
    """Remove replicas (``broker_ids``) or the whole set (empty tuple); epochs stay in a tombstone (W29, S78)."""

    set_key: SetKey
    broker_ids: tuple[BrokerId, ...] = ()
    is_unclean: bool = False
    """Also while the master is not fenced (R8) or a named replica is alive."""
    reason: str = ""


class ImportedReplica(Value):
    """One replica of a set that other controllers gave its id to."""

    broker_id: BrokerId
    address: str


class ImportSet(Command, tag="ImportSet"):
    """
    Know a RocketMQ set that other controllers still run: its ids, epochs and SyncStateSet as they are there.

    Nothing is elected, granted or cleaned here before each of its replicas has registered here, the master last. Until
    then a repeat brings what the other controllers say by now.
    """

    set_key: SetKey
    replicas: tuple[ImportedReplica, ...]
    next_id: BrokerId
    master: BrokerId
    master_epoch: MasterEpoch
    """Highest that the other controllers or any broker show: the first epoch here is the next one, without a jump."""
    sync_state_set: SyncStateSet
    sync_state_set_epoch: SyncStateSetEpoch
    reason: str = ""


AnyCommand = (
    InitialiseFleet
    | TakeLeadership
    | Barrier
    | RaiseFeatureLevel
    | ApplyBrokerId
    | RegisterReplica
    | MarkSilent
    | MarkAlive
    | SayGoodbye
    | ElectMaster
    | ElectUnclean
    | Bootstrap
    | AlterSyncStateSet
    | ReportEntered
    | RecordMilestones
    | CleanReplicas
    | ImportSet
)


class Operation(Value):
    """One item of a Raft entry. ``stamped_at_ms`` is the leader's UTC clock: shown, never used for liveness (R14)."""

    version: int
    """Feature level that is needed to apply it (R15)."""
    request_id: RequestId
    stamped_at_ms: int
    requested_by: str
    """Who asked: ``controller:c1``, ``broker:2``, ``admin:alice``."""
    command: AnyCommand
    evidence: Evidence | None = None
