"""
The one event schema of the house: journal, REST, exporter and Spark use it.

Here: facts in the past, each with what it was decided on. Not here: access to them, files, Spark types.
Rule 1: every applied operation yields its events in order; (term, index, ordinal) names one for ever.
Rule 2: ``chain`` = SHA-256 over (previous chain, canonical JSON of the record with an empty chain): ``chain_of``.
Rule 3: fields are only added, with the default ``UNSET``, which is not written: a record that lacks the field keeps its
bytes, and so its hash. A change of meaning is a new kind. ``levels`` lists what each feature level added.
"""

from __future__ import annotations

import hashlib

import msgspec
from msgspec import UNSET, UnsetType

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    ControllerName,
    FleetIncarnation,
    Incarnation,
    LogOffset,
    MasterEpoch,
    RegisterCode,
    RequestId,
    SessionOrdinal,
    SetKey,
    SyncStateSet,
    SyncStateSetEpoch,
)
from rollcall_ha.controller.contract.principals import Principal, Role
from rollcall_ha.controller.contract.replies import AlterVerdict
from rollcall_ha.controller.contract.settings import SettingChange, Settings
from rollcall_ha.controller.contract.values import (
    CleanMark,
    DetectionStamps,
    EventRef,
    Evidence,
    ImportedReplica,
    KnownConfirm,
    MaintenanceScope,
    MembershipVerb,
    Milestone,
    Positions,
    ReplicaDescription,
    SetConfiguration,
    SilenceCause,
    StopReason,
    StoredView,
    SwitchoverEnd,
    ToldConfirm,
    Value,
)
from rollcall_ha.controller.contract.verdicts import Intactness, LossVerdict, Verdict

SCHEMA_VERSION = 1


class Event(Value, tag_field="kind"):
    """Base of all facts; the tag is the kind."""


class ReplicaEvent(Event):
    """Base of the facts about one process of a replica."""

    broker_id: BrokerId
    incarnation: Incarnation


class FleetInitialised(Event, tag="fleet-initialised"):
    fleet_incarnation: FleetIncarnation


class FleetRestored(Event, tag="fleet-restored"):
    """Controllers began again with the state of a backup: of the old fleet nothing behind ``backup_index`` is known."""

    fleet_incarnation: FleetIncarnation
    previous_fleet: FleetIncarnation
    backup_index: int


class LeadershipTaken(Event, tag="leadership-taken"):
    """This controller leads in this term and has applied everything before it."""

    controller: ControllerName
    term: int


class FeatureLevelRaised(Event, tag="feature-level-raised"):
    level: int


class LeadershipTransferOrdered(Event, tag="leadership-transfer-ordered"):
    """A person has the lead moved; whoever leads then has the next ``LeadershipTaken``."""

    controller: ControllerName
    successor: ControllerName
    reason: str


class ControllersChangeOrdered(Event, tag="controllers-change-ordered"):
    """A step of the controllers' members: by a person or, the vote of one that has caught up, by the leader."""

    verb: MembershipVerb
    name: ControllerName
    raft: str
    broker: str
    rest: str
    reason: str


class ClockStepped(Event, tag="clock-stepped"):
    """Stamps before this event and from it on are of clocks that differ by ``step_ms``; the order is not touched."""

    controller: ControllerName
    """The leader that saw it, by its monotonic clock."""
    step_ms: int


class ConfirmsNoted(Event, tag="confirms-noted"):
    """The confirm offset that members of these sets are measured by from here on, when they restart (R3)."""

    confirms: tuple[KnownConfirm, ...]


class BrokerIdGranted(Event, tag="broker-id-granted"):
    broker_id: BrokerId
    register_code: RegisterCode
    """Its SHA-256."""
    address: str


class OwnerBound(Event, tag="owner-bound"):
    """From here on only the broker whose certificate has this name may register as this replica."""

    broker_id: BrokerId
    owner: str


class ReplicaRegistered(ReplicaEvent, tag="replica-registered"):
    """
    A new incarnation was judged (R3).

    ``sync_state_set`` and its epoch are those after the judgement: a member that is not intact has left.
    """

    session_ordinal: SessionOrdinal
    boot_id: str
    store_id: str
    description: ReplicaDescription
    configuration: SetConfiguration
    """In force for the set after this registration."""
    positions: Positions
    intactness: Intactness
    intactness_reason: str
    sync_state_set: SyncStateSet
    sync_state_set_epoch: SyncStateSetEpoch
    awaited_reports: tuple[BrokerId, ...] = ()
    """Replicas that must report before this set may elect cleanly (R7)."""
    stored: StoredView | None = None
    """What the replica kept of an earlier control plane."""
    is_recovering: bool = False
    """The controllers know less than somebody else: the set is taken over from stored views (R7)."""
    are_positions_known: bool = True
    """False: a RocketMQ broker that has not told them yet; another event follows when it has."""
    ended: DetectionStamps | None = None
    """The end of the master's process that this one replaces, with the cause ``replaced``; None = it replaces none."""
    confirmed: tuple[ToldConfirm, ...] | UnsetType = UNSET
    """Those that replicas of ours have told in this recovery and that no other one implies; UNSET: there is none."""
    newcomers: tuple[BrokerId, ...] | UnsetType = UNSET
    """Ids of ``Recovery.newcomers`` before this report; UNSET: no recovery, or it began below feature level 2."""


class SessionOpened(ReplicaEvent, tag="session-opened"):
    """The same incarnation opened a further session, and counts as alive."""

    session_ordinal: SessionOrdinal
    description: ReplicaDescription


class ReplicaSilent(ReplicaEvent, tag="replica-silent"):
    session_ordinal: SessionOrdinal
    cause: SilenceCause
    detection: DetectionStamps | None = None


class ReplicaAlive(ReplicaEvent, tag="replica-alive"):
    session_ordinal: SessionOrdinal


class StopAnnounced(ReplicaEvent, tag="stop-announced"):
    """A slave is about to stop: its master proposes to remove it at once, and an election prefers every other one."""

    session_ordinal: SessionOrdinal


class SwitchoverOrdered(Event, tag="switchover-ordered"):
    """From here on the master takes no sends, has all confirmed, and asks for the election of the target (R29)."""

    order: RequestId
    master: BrokerId
    master_incarnation: Incarnation
    master_epoch: MasterEpoch
    target: BrokerId
    target_incarnation: Incarnation
    lag_bytes: int
    """By which the target was behind, by the evidence."""
    deadline_ms: int
    reason: str


class SwitchoverEnded(Event, tag="switchover-ended"):
    order: RequestId
    end: SwitchoverEnd
    master: BrokerId | None
    """The master of the set after the end."""
    master_epoch: MasterEpoch
    target: BrokerId
    reason: str


class GoodbyeSaid(ReplicaEvent, tag="goodbye-said"):
    session_ordinal: SessionOrdinal
    clean_mark: CleanMark
    stopped_us: int | None = None
    """For how long the master had taken no sends when it said so; None = it was no master."""


class MasterElected(Event, tag="master-elected"):
    """Carries all that a dry run, an explanation, a replay under another policy or a Spark job needs."""

    verdict: Verdict
    master: BrokerId
    master_incarnation: Incarnation
    master_epoch: MasterEpoch
    sync_state_set: SyncStateSet
    sync_state_set_epoch: SyncStateSetEpoch
    evidence: Evidence
    triggered_by: EventRef | None
    detection: DetectionStamps | None
    reason: str
    bound_incarnations: tuple[tuple[BrokerId, Incarnation], ...]
    """Incarnation of each member of the new set."""


class ElectionFailed(Event, tag="election-failed"):
    """Nobody was eligible; no epoch changed (W28)."""

    verdict: Verdict
    evidence: Evidence
    triggered_by: EventRef | None
    reason: str


class SyncStateSetAltered(Event, tag="sync-state-set-altered"):
    verdict: AlterVerdict
    previous_set: SyncStateSet
    digest: str
    """SHA-256 of the alter's content: binds the seq (R1)."""
    bound_incarnations: tuple[tuple[BrokerId, Incarnation], ...]


class AlterRefused(Event, tag="alter-refused"):
    """A refusal that is stored under its seq, so that a retry hears the same (R1)."""

    verdict: AlterVerdict
    digest: str
    reason: str


class MasterEntered(ReplicaEvent, tag="master-entered"):
    master_epoch: MasterEpoch
    start_offset: LogOffset | None
    """None: not told (a RocketMQ broker)."""
    acked_end_max: LogOffset
    is_mode_confirmed: bool


class LossGraded(Event, tag="loss-graded"):
    """What is known about loss in this failover; a later one of the same epoch replaces it (``refuted``, cut bytes)."""

    verdict: LossVerdict


class MilestoneReached(Event, tag="milestone-reached"):
    milestone: Milestone


class WritesStopped(ReplicaEvent, tag="writes-stopped"):
    """
    The master of this epoch acknowledges no write since ``age_us`` before its report; it goes on reigning.

    It ends with ``WritesResumed``, with the next election, or with the cleaning of the set.
    """

    master_epoch: MasterEpoch
    seq: int
    """Counts the stops of one reign."""
    reason: StopReason
    detail: str
    age_us: int


class WritesResumed(ReplicaEvent, tag="writes-resumed"):
    """Writes can be acknowledged again since ``age_us`` before the report; the stop took ``stopped_us``."""

    master_epoch: MasterEpoch
    seq: int
    reason: StopReason
    """Why writes had stopped."""
    detail: str
    age_us: int
    stopped_us: int


class ReplicasCleaned(Event, tag="replicas-cleaned"):
    """Left: ``remaining``; if empty, the set is a tombstone that keeps both epochs and the next id."""

    broker_ids: tuple[BrokerId, ...]
    remaining: tuple[BrokerId, ...]
    master: BrokerId | None
    master_epoch: MasterEpoch
    sync_state_set: SyncStateSet
    sync_state_set_epoch: SyncStateSetEpoch
    is_unclean: bool
    reason: str
    kept_out: tuple[BrokerId, ...] | UnsetType = UNSET
    """All ids, newest last, that no view of a replica brings back; UNSET: feature level 1."""


class SetImported(Event, tag="set-imported"):
    """What other controllers say of a set that is moving here; ``sync_state_set`` is the one in force here after it."""

    replicas: tuple[ImportedReplica, ...]
    next_id: BrokerId
    master: BrokerId
    master_epoch: MasterEpoch
    imported_set: SyncStateSet
    imported_set_epoch: SyncStateSetEpoch
    sync_state_set: SyncStateSet
    sync_state_set_epoch: SyncStateSetEpoch
    awaited_reports: tuple[BrokerId, ...]
    reason: str


class CertificateRevoked(Event, tag="certificate-revoked"):
    """No port believes this certificate any more, and nothing that it asks is done."""

    serial: str
    name: str
    expires_at_ms: int
    reason: str
    forgotten: tuple[str, ...] = ()
    """Serial numbers that made room: their certificates have expired long ago."""


class TokenIssued(Event, tag="token-issued"):
    """Whoever has the token acts in this role until then; the record has its SHA-256 only."""

    token_id: str
    digest: str
    role: Role
    name: str
    token_set: SetKey | None
    """The set that a token of role broker speaks for; None for every other role."""
    expires_at_ms: int
    forgotten: tuple[str, ...] = ()
    """Ids of tokens that made room: they were no longer good for anything."""


class TokenRevoked(Event, tag="token-revoked"):
    token_id: str
    reason: str


class SetConfigured(Event, tag="set-configured"):
    """From here on the set expects so many replicas, and a send is answered with so many copies."""

    expected_replicas: int
    min_in_sync: int
    """0 = half of the expected replicas, rounded up; as ``previous_min_in_sync``."""
    previous_expected_replicas: int
    previous_min_in_sync: int
    reason: str


class ElectionsPaused(Event, tag="elections-paused"):
    """From here on nobody is elected but by an operator's word."""

    paused_set: SetKey | None
    """None: in no set of the fleet."""
    expires_at_ms: int
    reason: str


class ElectionsResumed(Event, tag="elections-resumed"):
    """Masters are elected again without asking."""

    paused_set: SetKey | None
    is_expired: bool
    """True: its time was over; False: an operator ended it."""
    reason: str


class MaintenanceBegun(Event, tag="maintenance-begun"):
    """From here on its replicas are elected by an operator's word only, and nobody is alarmed that they are gone."""

    scope: MaintenanceScope
    expires_at_ms: int
    reason: str


class MaintenanceEnded(Event, tag="maintenance-ended"):
    """Its replicas are elected and expected again."""

    scope: MaintenanceScope
    is_expired: bool
    """True: its time was over; False: an operator ended it."""
    reason: str


class ElectionWithheld(Event, tag="election-withheld"):
    """The election that would have been held, had elections not been paused. Nothing changed."""

    verdict: Verdict
    """``winner`` is the replica that would be master now."""
    evidence: Evidence
    triggered_by: EventRef | None
    reason: str
    paused_set: SetKey | None
    """Whose pause it was: this set's or, None, the fleet's."""


class SettingsApplied(Event, tag="settings-applied"):
    """From here on the fleet works by these values."""

    version: int
    settings: Settings
    changed: tuple[SettingChange, ...]
    """Against the version before; () = the values of the leader's file, put on record as version 1."""
    worst_case_rto_ms: int
    """The longest outage that a silent master causes, by these values and the leader's Raft durations."""
    reason: str


class CommandRefused(Event, tag="command-refused"):
    """R24: a refusal is on record. Answers repeated for a known request id are not."""

    command: str
    code: RefusalCode
    reason: str
    requested: str | None = None
    current: str | None = None


AnyEvent = (
    FleetInitialised
    | LeadershipTaken
    | FeatureLevelRaised
    | BrokerIdGranted
    | ReplicaRegistered
    | SessionOpened
    | ReplicaSilent
    | ReplicaAlive
    | GoodbyeSaid
    | MasterElected
    | ElectionFailed
    | SyncStateSetAltered
    | AlterRefused
    | MasterEntered
    | LossGraded
    | MilestoneReached
    | ReplicasCleaned
    | CommandRefused
    | SetImported
    | StopAnnounced
    | WritesStopped
    | WritesResumed
    | ClockStepped
    | OwnerBound
    | CertificateRevoked
    | TokenIssued
    | TokenRevoked
    | SwitchoverOrdered
    | SwitchoverEnded
    | ElectionsPaused
    | ElectionsResumed
    | ElectionWithheld
    | SettingsApplied
    | LeadershipTransferOrdered
    | MaintenanceBegun
    | MaintenanceEnded
    | FleetRestored
    | ControllersChangeOrdered
    | SetConfigured
    | ConfirmsNoted
)
"""In the order in which they came: a new one stands at the end, for the lake stores their numbers (analytics)."""


class EventRecord(Value):
    """One line of the journal."""

    version: int
    fleet_incarnation: FleetIncarnation
    term: int
    index: int
    ordinal: int
    stamped_at_ms: int
    """The entry's stamp: UTC of the leader that proposed it."""
    set_key: SetKey | None
    request_id: RequestId
    requested_by: str
    event: AnyEvent
    chain: str = ""
    """64 hex digits; hard state keeps the last one."""
    principal: Principal | None = None
    """Who asked, as proven to the controller that took the request; None = a controller itself. ``chain`` covers it."""

    @property
    def ref(self) -> EventRef:
        """Name of this event."""
        return EventRef(term=self.term, index=self.index, ordinal=self.ordinal)


def is_asked_by(record: EventRecord, name: str) -> bool:
    """Whether ``name``, or ``role:name``, asked for it; a controller's own order goes by its own words."""
    told = record.requested_by if record.principal is None else str(record.principal)
    return name in (told, told.partition(":")[2], record.requested_by)


def chain_of(previous: str, record: EventRecord) -> str:
    """Hash of ``record`` in the chain that ended in ``previous``; ``record.chain`` is ignored."""
    blank = msgspec.structs.replace(record, chain="")
    return hashlib.sha256(previous.encode() + msgspec.json.encode(blank, order="deterministic")).hexdigest()
