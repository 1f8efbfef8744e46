"""
What REST answers and the CLI prints: replicated state joined with the leader's soft state.

Rule: words for unknown are ``None`` here and words in tables, never -1. JSON keys never change within a major
version.
"""

from __future__ import annotations

from enum import StrEnum
from itertools import chain

import msgspec

from rollcall_ha.controller.contract.commands import FIRST_FEATURE_LEVEL
from rollcall_ha.controller.contract.events import AnyEvent, EventRecord
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    ControllerName,
    FleetIncarnation,
    LogOffset,
    MasterEpoch,
    SetKey,
)
from rollcall_ha.controller.contract.principals import ProvedBy, Role
from rollcall_ha.controller.contract.replies import Condition, SetView, SwitchoverRow
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.settings import AppliedSettings, Settings
from rollcall_ha.controller.contract.values import (
    ElectionPause,
    EventRef,
    Maintenance,
    Phase,
    RevokedCertificate,
    StopReason,
    Value,
    host_of,
)
from rollcall_ha.controller.contract.verdicts import ElectionKind, Grade, LossVerdict, Verdict

PAGE_SETS_MAX = 500
"""Sets in one answer; a larger one would hold the leader's loop."""


class Freshness(Value):
    """Where and at which index an answer was read, and how old that is."""

    read_from: ControllerName
    term: int
    index: int
    age_ms: int
    """Since this controller last heard from a majority or from the leader."""
    is_authoritative: bool
    is_stale: bool


class Problem(Value):
    """
    RFC 9457 problem document; ``code`` is a ``RefusalCode`` name, or NO_LEADER, OUTCOME_UNKNOWN, NOT_READY,
    BAD_REQUEST.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    hint: str
    request_id: str | None = None
    requested: str | None = None
    current: str | None = None
    leader: str | None = None
    """Base URL of the leader's REST, if known."""
    verdict: Verdict | None = None
    names: dict[BrokerId, str] = msgspec.field(default_factory=dict)
    """Of the brokers of the set that was asked for: the texts and the verdict have their ids."""


class CatchUp(Value):
    """How far a replica that lags is from its master's end."""

    left_bytes: int
    bytes_per_s: int | None
    """Growth of its log in the last seconds. None = not known yet; 0 = it waits for its turn, or stands still."""
    left_s: int | None
    """Until it has caught up, if both go on so. None = not known, or it comes no nearer."""


class ReplicaStatus(Value):
    """One replica as an operator sees it."""

    broker_id: BrokerId
    address: str
    ha_address: str
    kind: str
    zone: str
    priority: int
    is_master: bool
    is_in_sync: bool
    is_alive: bool
    is_learner: bool
    is_suspect: bool
    state: BrokerState | None
    """None = this controller has not heard from it."""
    last_epoch: MasterEpoch | None
    max_offset: LogOffset | None
    confirm_offset: LogOffset | None
    lag_bytes: int | None
    seen_age_ms: int | None
    catch_up: CatchUp | None = None
    """A living replica has one that is not in sync and lacks 1 MiB or more."""
    min_offset: LogOffset | None = None
    """First byte of its log; None = not told."""
    maintenance: Maintenance | None = None
    """The one that holds for this replica, its own or its host's; None: it is elected and expected."""
    name: str = ""
    """The name in its broker's certificate, as ``owner`` in the view; empty: it is bound to nobody."""


class RefusedProcess(Value):
    """A process that asks at a controller's port and is refused, as it was last heard."""

    host: str
    """It asked from there."""
    code: str
    """A ``RefusalCode``, or the cause by which its link was ended."""
    reason: str
    hint: str
    age_ms: int = 0

    def __str__(self) -> str:
        """``id 3 of demo/broker-a was cleaned (TOMBSTONED)``."""
        return f"{self.reason} ({self.code})"


class RefusedBroker(RefusedProcess, kw_only=True):
    """At the broker port."""

    broker_id: BrokerId | None
    """The id that it names; None: it has none yet, or TLS has refused it before it could name one."""


class RefusedController(RefusedProcess, kw_only=True):
    """At the Raft port."""

    name: str
    """Empty: TLS has refused it before its certificate was read."""

    @property
    def who(self) -> str:
        """Its name, or where it asks from."""
        return self.name or f"a process at {self.host}"


class SetStatus(Value):
    view: SetView
    replicas: tuple[ReplicaStatus, ...]
    failure_budget: int
    """How many more replicas may be lost without loss of data or service."""
    problems: tuple[str, ...]
    last_election_ms: int | None
    pause: ElectionPause | None = None
    """The one that holds for this set, its own or the fleet's; None: masters are elected without asking."""
    refused: tuple[RefusedBroker, ...] = ()
    """Processes of this set that this controller has refused within the last minute."""
    is_master_missed: bool = False
    """Nobody is elected now: controllers lost its master together with all others (R13)."""

    def refusal_of(self, replica: ReplicaStatus) -> RefusedBroker | None:
        """The refusal of a process of ``replica``, or else of one without a name on its host; None: none is known."""
        by_id = (one for one in self.refused if one.broker_id == replica.broker_id)
        host = host_of(replica.address)
        by_host = (one for one in self.refused if one.broker_id is None and one.host == host)
        return next(chain(by_id, by_host), None)


CLOCK_STEP_SHOWN_MS_MAX = 3_600_000
"""For how long status warns of a step of the clock of entries."""


class CertificateStatus(Value):
    """A certificate that is in use."""

    name: str
    """Its URI name: whom it is for."""
    serial: str
    expires_at_ms: int
    """UTC."""
    expires_in_ms: int
    """By the clock of the controller that tells it."""


class MissedMasters(Value):
    """Masters that fell silent together with their sets or most of the fleet, and have no successor for it (R13)."""

    sets: int
    silent_ms: int
    """Of the one that was heard first of them, by its own heartbeats."""
    left_ms: int | None
    """The most for which any of them is awaited further; None: of a set nobody is heard, and the time has not begun."""


class ControllerRole(StrEnum):
    LEADER = "leader"
    FOLLOWER = "follower"
    CANDIDATE = "candidate"
    UNREACHABLE = "unreachable"


class ControllerStatus(Value):
    """One controller, by its own word."""

    name: ControllerName
    role: ControllerRole
    has_authority: bool
    leader: ControllerName | None
    term: int
    commit_index: int
    applied_index: int
    rest_address: str
    broker_address: str
    raft_address: str
    feature_level: int
    """The highest that its program has."""
    fleet_incarnation: FleetIncarnation | None
    fleet_level: int = FIRST_FEATURE_LEVEL
    """The level in force: replicated state, raised by ``rollcall raise-level`` (R15)."""
    clock_step_ms: int | None = None
    """The newest step of the clock of entries, if its event is at most ``CLOCK_STEP_SHOWN_MS_MAX`` old; else None."""
    clock_stepped_at_ms: int | None = None
    """UTC of that event, by the clock after the step."""
    lost_entries: int = 0
    """How many entries a broker has seen that this leader did not have: its directory was put back from a copy."""
    state_digest: str = ""
    """Hash of its state at ``applied_index``; empty before the first entry."""
    voters: tuple[ControllerName, ...] = ()
    """The controllers by its log, itself included."""
    learners: tuple[ControllerName, ...] = ()
    """Controllers that are being added, and have no vote yet."""
    differing: tuple[ControllerName, ...] = ()
    """Controllers that have made another state of the same entries, by its last comparison."""
    is_insecure: bool = False
    """Its ports are plain, and believe whoever connects: the fleet file says so."""
    certificates: tuple[CertificateStatus, ...] = ()
    """Its own first, then those of controllers and brokers with a link to it that end first."""
    certificate_complaint: str = ""
    """Why the certificate files on its disk are not those in use; empty = they are."""
    certificates_revoked: int = 0
    tokens_in_force: int = 0
    """Neither revoked nor expired, by its own clock."""
    settings_version: int = 0
    """By which it works; 0 = by its fleet file."""
    lead_changes: int = 0
    """Terms with a leader that it has seen begin within ``LEAD_WINDOW_MS``."""
    late_ms: int = 0
    """By which two turns of its Raft in a row were late within the last seconds; 0: none."""
    missed: MissedMasters | None = None
    """Of the leader alone. Its own network is suspected."""
    refused: tuple[RefusedController, ...] = ()
    """Controllers that it has refused a link within the last minute, the newest first."""


class ControllersAnswer(Value):
    """Answer of GET /v1/controllers: every member by its own word; ``unreachable`` ones as far as they are known."""

    read_from: str
    controllers: tuple[ControllerStatus, ...]


class FleetStatus(Value):
    """Answer of GET /v1/status: the answering controller and a page of its sets."""

    freshness: Freshness
    controller: ControllerStatus
    fleet_name: str
    timing: str
    sets: tuple[SetStatus, ...]
    sets_total: int
    next_after: str | None
    """Pass as ``after`` for the next page; None = this was the last."""
    pause: ElectionPause | None = None
    """The fleet's; those of single sets are with them."""


class SetPage(Value):
    freshness: Freshness
    sets: tuple[SetStatus, ...]
    sets_total: int
    next_after: str | None


class SetAnswer(Value):
    freshness: Freshness
    set: SetStatus


class HostShare(Value):
    """What one host has of a set, and what the set does if that host goes at once."""

    host: str
    has_master: bool
    left: int
    """Replicas elsewhere that are in sync, alive and not suspect."""
    heirs: int
    """Replicas elsewhere that could be elected."""
    goes_on: bool
    """It serves now, and would without a person's word: somebody is elected if the master is lost, enough are left."""
    spare: int
    """How many more replicas it may lose then."""


class SetLine(Value):
    """One set of many: what a person looks for first."""

    set_key: SetKey
    condition: Condition
    condition_reason: str
    problems: tuple[str, ...]
    """Codes, the worst first."""
    master: BrokerId | None
    master_epoch: MasterEpoch
    in_sync: int
    alive: int
    registered: int
    expected: int
    failure_budget: int
    lag_bytes_max: int | None
    """How far the last replica is behind; None = this controller has heard of none."""
    last_election_ms: int | None
    """UTC stamp of its entry; None = no election yet."""
    is_paused: bool
    in_maintenance: int
    """Count of its replicas that are in maintenance."""
    master_name: str = ""
    """Empty: there is no master, or it is bound to nobody."""
    hosts: tuple[HostShare, ...] = ()
    """Of its replicas; empty where the question did not ask for them."""


class Overview(Value):
    """Answer of GET /v1/overview: a page of sets, and counts over all of them."""

    freshness: Freshness
    fleet_name: str
    sets: tuple[SetLine, ...]
    sets_total: int
    sets_matching: int
    """Those that the filter leaves; ``sets`` is a page of them."""
    sets_with_problems: int
    problems: dict[str, int]
    """Sets that have each problem, the worst first; not only those that match."""
    conditions: dict[str, int]
    pause: ElectionPause | None
    """The fleet's; those of single sets are counted as the problem PAUSED."""
    maintenances: int
    next_after: str | None
    """Pass as ``after`` for the next page; None = this was the last."""


class PhaseSpan(Value):
    """One phase of a failover. Those before FIRST_ACK sum to the part of the total that can be attributed."""

    phase: Phase
    duration_us: int | None
    """None = no stamp; named in ``HistoryRow.missing``."""


class HistoryRow(Value):
    """One reign and how it came about."""

    master_epoch: MasterEpoch
    elected_at_ms: int
    kind: ElectionKind
    cause: str
    from_master: BrokerId | None
    to_master: BrokerId
    phases: tuple[PhaseSpan, ...]
    total_us: int | None
    """
    The outage: timed by the leader from the first sign of the fault to the arrival of SERVING; not a sum.

    The lower bound where ``missing`` names ``fault``.
    """
    unattributed_us: int | None
    missing: tuple[Phase, ...]
    """Phases without a stamp. ``fault``: nobody saw its first sign, ``total_us`` and ``total_us_max`` are bounds."""
    grade: Grade | None
    loss_bytes: int | None
    cut_bytes: int | None
    requested_by: str
    event: EventRef
    total_us_max: int | None = None
    """From the last sure sign of life to SERVING; equal to ``total_us`` if that is exact, None = no bound is known."""
    waited_us: int | None = None
    """So much of the time from SERVING to FIRST_ACK a sender waited; None = not known. The rest: nobody was sending."""


class StopEnd(StrEnum):
    """How a stop of writes ended."""

    RESUMED = "resumed"
    ELECTION = "election"
    """The outage of that change of reign begins where the stop began."""
    CLEANED = "cleaned"


class WriteStop(Value):
    """Writes stopped and no reign changed: one stop, within the reign of ``master_epoch``."""

    master_epoch: MasterEpoch
    broker_id: BrokerId
    began_at_ms: int
    """UTC: the stamp of the report's entry, less the age that the master said."""
    reason: StopReason
    detail: str
    stopped_us: int | None
    """On the master's clock; None = it goes on, or the master did not say how long it was."""
    end: StopEnd | None
    """None = it goes on."""
    event: EventRef


class HistoryPage(Value):
    freshness: Freshness
    set_key: SetKey
    rows: tuple[HistoryRow, ...]
    next_before: MasterEpoch | None
    stops: tuple[WriteStop, ...] = ()
    """Stops of writes in the reigns of ``rows``, newest first."""
    switchovers: tuple[SwitchoverRow, ...] = ()
    """Orders to switch over in the reigns of ``rows``, newest first, those that were rolled back too."""
    names: dict[BrokerId, str] = msgspec.field(default_factory=dict)
    """Of the brokers that the set has now; one that was cleaned since has none."""


class Explanation(Value):
    """The decision record of one epoch, rendered from its own events."""

    freshness: Freshness
    set_key: SetKey
    row: HistoryRow
    election: EventRecord
    loss: LossVerdict | None
    events: tuple[EventRecord, ...]
    """All events of that epoch, in order."""
    invariants: tuple[str, ...]
    """The rules that were checked, each with its outcome."""
    names: dict[BrokerId, str] = msgspec.field(default_factory=dict)
    """As in ``HistoryPage``: the record itself has ids, which never change hands."""


class EventPage(Value):
    freshness: Freshness
    events: tuple[EventRecord, ...]
    next_from: EventRef | None
    """Where to go on; None = nothing was there within the wait."""
    gap: str | None = None
    """Set if this node cannot give what lies between ``from`` and the first event."""
    last: EventRef | None = None
    """The newest event that this node has synced: everything up to it can be read here; None = nothing yet."""
    names: dict[str, dict[BrokerId, str]] = msgspec.field(default_factory=dict)
    """Of each set (``cluster/set``) in ``events``, those of ``HistoryPage``; of the state, the events have ids."""


class ElectionPreview(Value):
    """
    Answer of elect, elect-unclean and bootstrap with dryRun: decided on the state at ``freshness.index``, not proposed.

    An election that would be refused is answered by its refusal.
    """

    freshness: Freshness
    verdict: Verdict
    grade_note: str
    names: dict[BrokerId, str] = msgspec.field(default_factory=dict)
    """Of the brokers of the set."""


class OrderPreview(Value):
    """Answer of clean and import with dryRun, as ``ElectionPreview``."""

    freshness: Freshness
    events: tuple[AnyEvent, ...]
    """The events that the order would put on record; empty: it would change nothing."""
    names: dict[BrokerId, str] = msgspec.field(default_factory=dict)
    """Of the brokers of the set, if the order is about one."""


class SettingsAnswer(Value):
    """Answer of GET /v1/settings."""

    freshness: Freshness
    version: int
    """0: nothing was changed yet, and each process works by its own file."""
    settings: Settings
    worst_case_rto_ms: dict[str, int]
    """The longest outage that a silent master causes, by phase."""
    file: Settings
    """What the fleet file of the answering controller says; in force only at version 0."""
    history: tuple[AppliedSettings, ...]
    """Versions that are kept, oldest first."""
    brokers: int
    """Living brokers of this program, by the word of the answering controller: only the leader hears them."""
    brokers_behind: tuple[str, ...]
    """Those of them that have not shown this version yet, as ``cluster/set ID``; at most ``BROKERS_SHOWN_MAX``."""


BROKERS_SHOWN_MAX = 20


class CertificatesAnswer(Value):
    """Answer of GET /v1/certificates: those that are revoked; who has which one is in the files of each process."""

    freshness: Freshness
    revoked: tuple[RevokedCertificate, ...]


class TokenStatus(Value):
    """A token as an operator sees it; its digest stays with the controllers."""

    token_id: str
    role: Role
    name: str
    set_key: SetKey | None
    expires_at_ms: int
    issued_at_ms: int
    issued_by: str
    revoked_at_ms: int | None
    """None: in force until it expires."""
    revoked_by: str
    revoke_reason: str


class TokensAnswer(Value):
    """Answer of GET /v1/tokens."""

    freshness: Freshness
    tokens: tuple[TokenStatus, ...]


class CallerAnswer(Value):
    """Answer of GET /v1/caller: whom this controller takes its caller for."""

    name: str
    role: Role
    """Of an insecure fleet, which proves nobody, ``admin``."""
    proved_by: ProvedBy


class MaintenancesAnswer(Value):
    """Answer of GET /v1/maintenance: those in force, oldest first."""

    freshness: Freshness
    maintenances: tuple[Maintenance, ...]
    names: dict[str, dict[BrokerId, str]] = msgspec.field(default_factory=dict)
    """Of each set (``cluster/set``) with a replica in ``maintenances``, the names of its brokers."""
