"""
Orders to the control plane, as they travel through REST, a broker's session and the Raft log.

Here: the shape of every command. Not here: what commands are made of (``values``), whether a command is accepted
(``controller.core``).
Rule 1: a command names everything that it was decided against; apply refuses it if that moved (R1, R14).
Rule 2: unknown fields are ignored, so a new field or kind belongs to a feature level: ``levels`` lists it (R15).
"""

from __future__ import annotations

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
from rollcall_ha.controller.contract.replies import AnsweredBy, ControllersChanged, Done, Elected, SwitchoverAnswer
from rollcall_ha.controller.contract.settings import Settings
from rollcall_ha.controller.contract.timing import Timing
from rollcall_ha.controller.contract.values import (
    CleanMark,
    DetectionStamps,
    Evidence,
    ImportedReplica,
    Joining,
    KnownConfirm,
    MaintenanceScope,
    MembershipVerb,
    Milestone,
    Positions,
    RegisteredAs,
    ReplicaDescription,
    SetConfiguration,
    SilenceCause,
    StopReason,
    StoredView,
    Value,
)

FEATURE_LEVEL = 2
"""Highest level of operations and snapshots that this code understands (R15)."""
FIRST_FEATURE_LEVEL = 1
"""The level of every state before its first entry, for ever: an old log is replayed from there (C8)."""

SWITCHOVER_DEADLINE_MS = 5_000
SWITCHOVER_DEADLINE_MS_MIN = 100
SWITCHOVER_DEADLINE_MS_MAX = 60_000
"""Sends wait meanwhile, if the target does not confirm."""
SWITCHOVER_LAG_BYTES = 16 * 1024 * 1024

STOP_DETAIL_CHARS_MAX = 240
"""Longest ``detail`` of a stop: it is kept in replicated state."""


class Command(Value, tag_field="command"):
    """Base of all orders; the tag is the class name."""


class ReplicaCommand(Command):
    """Base of the orders that one process of a replica gives, or that are about it."""

    set_key: SetKey
    broker_id: BrokerId
    incarnation: Incarnation


class InitialiseFleet(Command, tag="InitialiseFleet"):
    """First entry of a fleet: fixes its incarnation. Repeating it with the same value changes nothing."""

    fleet_incarnation: FleetIncarnation


class TakeLeadership(Command, tag="TakeLeadership"):
    """Barrier of a new leader: once applied, its leader duties may begin."""

    controller: ControllerName
    term: int


class Barrier(Command, tag="Barrier"):
    """Changes no set; a reader that sees it applied has seen everything before it (linearizable reads)."""

    heard_within_ms: int | None = None
    """Every replica that counts as alive was heard by this leader within this time; None = it does not say so."""


class RaiseFeatureLevel(Command, tag="RaiseFeatureLevel"):
    """From here on operations of this level may appear; a node below it stops (R15)."""

    level: int


class NoteConfirms(Command, AnsweredBy[Done], tag="NoteConfirms"):
    """Confirm offsets of many sets, as the leader heard them; one that is lower, or of another reign, does nothing."""

    confirms: tuple[KnownConfirm, ...]


class TransferLeadership(Command, tag="TransferLeadership"):
    """On record before the leader asks its successor to stand; the transfer itself is Raft's, and follows the entry."""

    source: ControllerName
    """The leader that is to end its lead."""
    to: ControllerName
    reason: str = ""


class ChangeControllers(Command, AnsweredBy[ControllersChanged], tag="ChangeControllers"):
    """On record before the leader appends other members to Raft's log; the step itself is Raft's (adr/0020)."""

    verb: MembershipVerb
    name: ControllerName
    raft: str = ""
    """host:port of its three ports; empty unless it is added."""
    broker: str = ""
    rest: str = ""
    reason: str = ""


class ReportClockStep(Command, tag="ReportClockStep"):
    """The clock by which entries are stamped was set, or belongs to another leader now and differs (R14)."""

    controller: ControllerName
    step_ms: int
    """By which the stamps are ahead of where they would be; below 0: behind."""


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
    A process names itself and tells what its log holds; opens a session.

    The same incarnation again only opens a further session. A new one is judged here (R3, R8, R23).
    Refused, with what is registered, if that is not ``replaces``: a late duplicate of a dead process ends nothing (R1).
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
    Earlier incarnations of the data directory, newest last, each on its disk since before it first registered.

    A directory that does not name the registered one is an older copy, and proves nothing (R3).
    """
    held_us: int | None = None
    """For how long this process has held its data directory: the one before it was gone by then. None = not told."""


class MarkSilent(ReplicaCommand, tag="MarkSilent"):
    """The leader found this session's replica gone. Refused if session or incarnation moved (S33)."""

    session_ordinal: SessionOrdinal
    cause: SilenceCause
    detection: DetectionStamps | None = None


class MarkAlive(ReplicaCommand, tag="MarkAlive"):
    """A silent replica was heard again on the same session."""

    session_ordinal: SessionOrdinal


class SayGoodbye(ReplicaCommand, tag="SayGoodbye"):
    """A replica stops cleanly; the mark is compared with what it brings back (R3a)."""

    session_ordinal: SessionOrdinal
    clean_mark: CleanMark
    stopped_us: int | None = None
    """For how long a master that stops has taken no sends, on its own clock; None = it is no master."""


class AnnounceStop(ReplicaCommand, tag="AnnounceStop"):
    """
    A replica was asked to stop, and wants nothing to wait for it when it is gone. It goes on until it has the answer.

    A master asks for a successor, after its last byte was confirmed by every member; answered by ``Elected``. A slave
    asks to be let out of the SyncStateSet; answered by ``Done``, and done when a view shows it. Needs evidence.
    """

    session_ordinal: SessionOrdinal
    master_epoch: MasterEpoch
    """The epoch that it knows: that of its own reign, or of the master that it follows."""
    drained_us: int = 0
    """For how long a master has taken no sends, on its own clock; a slave's is 0."""


class ReportDrained(ReplicaCommand, tag="ReportDrained"):
    """
    A master has drained for an order to switch over, and waits for its target to be elected (R29).

    Every member has confirmed its last byte, and every sender has its answer. Needs evidence; answered by ``Elected``.
    """

    master_epoch: MasterEpoch
    drained_us: int
    """For how long it has taken no sends, on its own clock."""
    order: RequestId
    """The request id of the order."""


class OrderSwitchover(Command, AnsweredBy[SwitchoverAnswer], tag="OrderSwitchover"):
    """
    Let the serving master hand its reign to another member and follow it (R29). Needs evidence.

    Applied, it is answered by ``Done``, and the request id names the order. It ends with ``SwitchoverEnded``: done, or
    the old master serves again. REST answers when it has ended.
    """

    set_key: SetKey
    to: BrokerId | None = None
    """None: by policy, among the members."""
    expected_master: BrokerId | None = None
    expected_epoch: MasterEpoch | None = None
    deadline_ms: int = SWITCHOVER_DEADLINE_MS
    """From the moment when the leading controller hears of the order, on its own clock (R14)."""
    max_lag_bytes: int = SWITCHOVER_LAG_BYTES
    """A target that is further behind is refused: sends would wait until it has caught up."""
    reason: str = ""


class EndSwitchover(Command, tag="EndSwitchover"):
    """The leading controller withdraws an order whose deadline has passed, before its election."""

    set_key: SetKey
    order: RequestId
    reason: str


class ElectMaster(Command, AnsweredBy[Elected], tag="ElectMaster"):
    """Elect by policy, clean only. Needs ``Operation.evidence``."""

    set_key: SetKey
    to: BrokerId | None = None
    expected_master: BrokerId | None = None
    expected_epoch: MasterEpoch | None = None
    reason: str = ""


class LeaveMaster(Command, tag="LeaveMaster"):
    """
    Elect another member in place of a living master whose writes are stopped: the leading controller's own order, by a
    policy that is set (``handover_..._after_ms``). Needs ``Operation.evidence``.
    """

    set_key: SetKey
    master_epoch: MasterEpoch
    seq: int
    """It names the stop, as in ``ReportWrites``: if another one goes on, or none, nobody is elected."""
    reason: str
    """The evidence, with its numbers."""


class ElectUnclean(Command, AnsweredBy[Elected], tag="ElectUnclean"):
    """
    Elect outside the SyncStateSet. Refused unless ``accepted_loss_bytes`` covers the estimate (S72). Needs evidence.
    """

    set_key: SetKey
    accepted_loss_bytes: int = 0
    """0 by default: a caller that names no loss has accepted none."""
    to: BrokerId | None = None
    expected_master: BrokerId | None = None
    expected_epoch: MasterEpoch | None = None
    reason: str = ""


class Bootstrap(Command, AnsweredBy[Elected], tag="Bootstrap"):
    """First election by an operator's word, where R8 forbids the automatic one. Needs evidence."""

    set_key: SetKey
    master: BrokerId
    reason: str = ""


class AlterSyncStateSet(ReplicaCommand, tag="AlterSyncStateSet"):
    """
    A master's compare-and-set on the SyncStateSet (R1).

    ``seq`` counts the proposals of one (master, masterEpoch) from 1 and is bound to one content: a retry repeats it
    byte for byte.
    """

    master_epoch: MasterEpoch
    seq: int
    sync_state_set_epoch: SyncStateSetEpoch
    new_set: SyncStateSet
    joining: tuple[Joining, ...] = ()


class ReportEntered(ReplicaCommand, tag="ReportEntered"):
    """The winner entered its epoch: entry and promise are on its disk (R9, R12): fact 3 of a proof."""

    master_epoch: MasterEpoch
    start_offset: LogOffset | None
    """None: a RocketMQ broker, seen to be master; where its epoch starts is not told."""
    acked_end_max: LogOffset
    """Highest end that it ever acked to the old master."""
    is_mode_confirmed: bool = True
    """
    The master works by the set's ack mode and had confirm >= released when that was last strengthened (fact 1).
    """


class RecordMilestones(Command, tag="RecordMilestones"):
    """Make what happened in brokers part of the record, in batches."""

    set_key: SetKey
    milestones: tuple[Milestone, ...]


class ReportWrites(ReplicaCommand, tag="ReportWrites"):
    """
    A master tells that no write can be acknowledged, or that one can again; elections are no matter of it.

    ``seq`` counts the stops of one (incarnation, masterEpoch) from 1: a repeat changes nothing. Told late, after hours
    without a controller, a whole stop comes as one command.
    """

    master_epoch: MasterEpoch
    seq: int
    reason: StopReason
    detail: str
    """For people, at most ``STOP_DETAIL_CHARS_MAX`` printable characters."""
    age_us: int
    """Since the last moment when a write could be acknowledged, on the master's monotonic clock."""
    stopped_us: int | None = None
    """The whole stop; None = it goes on."""


class CleanReplicas(Command, AnsweredBy[Done], tag="CleanReplicas"):
    """Remove replicas (``broker_ids``) or the whole set (empty tuple); epochs stay in a tombstone (W29, S78)."""

    set_key: SetKey
    broker_ids: tuple[BrokerId, ...] = ()
    is_unclean: bool = False
    """Also while the master is not fenced (R8) or a named replica is alive."""
    reason: str = ""


class ConfigureSet(Command, AnsweredBy[Done], tag="ConfigureSet"):
    """Change how many replicas a set expects, and how many have to hold a message. The same again changes nothing."""

    set_key: SetKey
    expected_replicas: int | None = None
    """None: as it is."""
    min_in_sync: int | None = None
    """0 = half of the expected replicas, rounded up; None: as it is."""
    reason: str = ""


class ImportSet(Command, AnsweredBy[Done], tag="ImportSet"):
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


class RevokeCertificate(Command, AnsweredBy[Done], tag="RevokeCertificate"):
    """Believe a certificate no longer, on any port, from this entry on. The same again changes nothing."""

    serial: str
    """Hex digits, lower case, without leading zeros."""
    expires_at_ms: int
    """UTC. Some time after it the entry may be forgotten: nobody takes the certificate any more."""
    name: str = ""
    """Whose it is: its URI name, for people."""
    reason: str = ""


class IssueToken(Command, AnsweredBy[Done], tag="IssueToken"):
    """
    Let whoever has this token act in a role until it expires. The same again changes nothing.

    The token itself is 256 random bits as text; it is drawn, and shown once, by whoever asks for this.
    """

    token_id: str
    """Its public name, drawn with it."""
    digest: str
    """SHA-256 of the token's text, 64 hex digits: a reader of the record cannot use it."""
    role: Role
    name: str
    """Whose it is: the name of the principal."""
    expires_at_ms: int
    """UTC."""
    set_key: SetKey | None = None
    """The only set that a token of role broker may speak for; None for every other role."""


class RevokeToken(Command, AnsweredBy[Done], tag="RevokeToken"):
    """Take a token back, from this entry on. The same again changes nothing."""

    token_id: str
    reason: str = ""


class PauseElections(Command, AnsweredBy[Done], tag="PauseElections"):
    """
    Hold no automatic election in one set or in all, until a time; a person's order still elects.

    The same again replaces end and reason.
    """

    set_key: SetKey | None
    """None: the whole fleet."""
    expires_at_ms: int
    """UTC. When it has passed by the leader's clock, the leader ends the pause by ``ResumeElections``."""
    reason: str = ""


class ResumeElections(Command, AnsweredBy[Done], tag="ResumeElections"):
    """End a pause. One that is over already is no error."""

    set_key: SetKey | None
    """None: the pause of the whole fleet; those of single sets go on."""
    expired_at_ms: int | None = None
    """A leader ends the pause with this end, and no other. None: an operator ends whichever there is."""
    reason: str = ""


class ApplySettings(Command, tag="ApplySettings"):
    """Set the fleet to these values, all of them, from this entry on. The same as are in force change nothing."""

    settings: Settings
    expected_version: int
    """The version that ``settings`` were made from; refused if another one is in force. 0: the files are."""
    file: Timing
    """Durations of the leader's fleet file: settings must fit the ``raft_*`` ones."""
    founded: Settings | None = None
    """What version 1 is made of: the leader's fleet file. None: its durations, and every other key by default."""
    reason: str = ""


class BeginMaintenance(Command, AnsweredBy[Done], tag="BeginMaintenance"):
    """A replica, or each on a host, is worked on until a time. The same again replaces end and reason."""

    scope: MaintenanceScope
    expires_at_ms: int
    """UTC. When it has passed by the leader's clock, the leader ends it by ``EndMaintenance``."""
    spends_last: bool = False
    """Also if a set may then lose no further replica."""
    reason: str = ""


class EndMaintenance(Command, AnsweredBy[Done], tag="EndMaintenance"):
    """The replicas are elected and expected again. One that is over already is no error."""

    scope: MaintenanceScope
    expired_at_ms: int | None = None
    """A leader ends the one with this end, and no other. None: an operator ends whichever there is."""
    reason: str = ""


AnyCommand = (
    InitialiseFleet
    | TakeLeadership
    | Barrier
    | RaiseFeatureLevel
    | TransferLeadership
    | ChangeControllers
    | ReportClockStep
    | ApplyBrokerId
    | RegisterReplica
    | MarkSilent
    | MarkAlive
    | SayGoodbye
    | AnnounceStop
    | ReportDrained
    | OrderSwitchover
    | EndSwitchover
    | ElectMaster
    | LeaveMaster
    | ElectUnclean
    | Bootstrap
    | AlterSyncStateSet
    | ReportEntered
    | RecordMilestones
    | ReportWrites
    | CleanReplicas
    | ConfigureSet
    | ImportSet
    | RevokeCertificate
    | IssueToken
    | RevokeToken
    | PauseElections
    | ResumeElections
    | ApplySettings
    | BeginMaintenance
    | EndMaintenance
    | NoteConfirms
)


Electing = ElectMaster | ElectUnclean | Bootstrap
"""Orders that are decided on evidence, too."""
OperatorCommand = (
    Electing
    | OrderSwitchover
    | CleanReplicas
    | ConfigureSet
    | ImportSet
    | RaiseFeatureLevel
    | TransferLeadership
    | ChangeControllers
    | RevokeCertificate
    | IssueToken
    | RevokeToken
    | PauseElections
    | ResumeElections
    | ApplySettings
    | BeginMaintenance
    | EndMaintenance
)
"""Orders of people."""


class Operation(Value):
    """One item of a Raft entry. ``stamped_at_ms`` is the leader's UTC clock: shown, never used for liveness (R14)."""

    version: int
    """Feature level that is needed to apply it (R15)."""
    request_id: RequestId
    stamped_at_ms: int
    requested_by: str
    """The caller: ``controller:c1``, ``broker:2``, ``admin:alice``."""
    command: AnyCommand
    evidence: Evidence | None = None
    principal: Principal | None = None
    """Who is behind ``requested_by``, as proven; None = a controller's own order."""
