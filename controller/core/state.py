"""
Replicated state of the control plane, as one frozen value.

Here: its shape. Not here: how it changes (``evolve``, ``apply``), how it travels (``snapshot``), what brokers see of it
(``views``).

Rule 1: a state that was handed out never changes. A dictionary of ``FleetState`` is copied by an entry that changes it
(``apply``), once, and never written to afterwards.
Rule 2: only ``evolve`` makes a new ``SetState``, and only out of an event: the events give the state.
Rule 3: epochs, the next id and session ordinals never fall. A cleaned set stays as a tombstone that keeps them.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType

from rollcall_ha.controller.contract.commands import FIRST_FEATURE_LEVEL
from rollcall_ha.controller.contract.ids import (
    AckMode,
    BrokerId,
    FleetIncarnation,
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
from rollcall_ha.controller.contract.principals import Role
from rollcall_ha.controller.contract.replies import AlterVerdict, AnyReply
from rollcall_ha.controller.contract.settings import AppliedSettings
from rollcall_ha.controller.contract.values import (
    CleanMark,
    ElectionPause,
    EventRef,
    Maintenance,
    MaintenanceScope,
    Positions,
    RegisteredAs,
    ReplicaDescription,
    ReplicaEvidence,
    RevokedCertificate,
    SetConfiguration,
    SilenceCause,
    StopReason,
    StoredView,
    SwitchoverEnd,
    ToldConfirm,
    Value,
)
from rollcall_ha.controller.contract.verdicts import ElectionKind, Intactness, LossVerdict
from rollcall_ha.epoch.model import NO_EPOCH

REQUEST_WINDOW_ENTRIES = 1024
"""
How many answered request ids are remembered; the oldest leaves first. A convenience: safety never rests on it (R1).
"""

REPLICAS_PER_SET_MAX = 64
"""Ids that one set may hold at a time."""

KEPT_OUT_MAX = 64
"""Cleaned ids that a set remembers; one that was cleaned longer ago is awaited again if a report names it."""

REIGNS_KEPT = 16
"""Past reigns whose grade can still be corrected when an old master returns."""

REVOKED_MAX = 1_000
"""Certificates; the whole list goes to each broker, and is looked at for each link."""

TOKENS_MAX = 1_000
PAUSES_MAX = 1_000
SETTINGS_KEPT = 32
"""Versions of settings that an operator can go back to; all are in the journal."""
MAINTENANCES_MAX = 1_000

ENDED_INCARNATIONS_KEPT = 16
"""Incarnations per replica that are remembered as ended, so that a late registration of one of them is refused."""


class ReplicaState(Value):
    """One replica of a set. ``incarnation`` None: the id is granted, nobody has registered with it yet."""

    broker_id: BrokerId
    register_code: RegisterCode
    """Its digest (``register_codes``); of an id that was imported: ``IMPORTED_CODE`` and its name."""
    address: str
    """host:port that asked for the id; from the registration on, that of ``description``."""
    description: ReplicaDescription | None = None
    incarnation: Incarnation | None = None
    session_ordinal: SessionOrdinal = SessionOrdinal(0)
    boot_id: str = ""
    store_id: str = ""
    positions: Positions | None = None
    """What it held when it registered."""
    intactness: Intactness = Intactness.NEW
    is_alive: bool = False
    silence: SilenceCause | None = None
    """Why it counts as gone; None while it is alive or has never registered."""
    is_suspect: bool = False
    """Last member and not intact (R3), or a member that was taken over from a stored view without proof (R7)."""
    is_stopping: bool = False
    """It has announced its stop on this session."""
    goodbye: CleanMark | None = None
    """Mark of the clean stop of this incarnation (R3a)."""
    ended_incarnations: tuple[Incarnation, ...] = ()
    """Newest last; at most ``ENDED_INCARNATIONS_KEPT``."""
    owner: str | None = None
    """Name in the certificate of the one broker that may be this replica; None: the id is not bound yet."""
    is_warm: bool | UnsetType = UNSET
    """This incarnation was master, had entered, and was replaced while it lived; UNSET: no such thing is known."""

    @property
    def is_registered(self) -> bool:
        """Whether a process has ever registered under this id."""
        return self.incarnation is not None

    @property
    def registered_as(self) -> RegisteredAs | None:
        """What the next registration must be made against (R14)."""
        if self.incarnation is None:
            return None
        return RegisteredAs(incarnation=self.incarnation, session_ordinal=self.session_ordinal)

    @property
    def is_voter(self) -> bool:
        """Registered, and not a learner."""
        return self.description is not None and not self.description.is_learner

    @property
    def kind(self) -> ReplicaKind:
        """Which program it is; ``native`` as long as nobody has registered."""
        return self.description.kind if self.description is not None else ReplicaKind.NATIVE


def bound_to(replicas: tuple[ReplicaState, ...], members: SyncStateSet) -> tuple[tuple[BrokerId, Incarnation], ...]:
    """Each member with the incarnation that is registered for it now."""
    return tuple((r.broker_id, r.incarnation) for r in replicas if r.broker_id in members and r.incarnation is not None)


class StoredAlter(Value):
    """The last alter that this set decided for its master; a retry hears the same (R1)."""

    verdict: AlterVerdict
    digest: str
    """SHA-256 of the alter's content: one seq, one content."""
    reason: str


class ReignElsewhere(Value):
    """The reign of other controllers under which a set was when it was imported."""

    master: BrokerId
    address: str
    master_epoch: MasterEpoch
    sync_state_set: SyncStateSet
    sync_state_set_epoch: SyncStateSetEpoch


class Recovery(Value):
    """
    The controllers lost their memory of this set, or a replica knows more than they do (R7).

    It lasts until the next election. Nothing is elected cleanly, granted or cleaned before ``awaited`` is empty.
    """

    named: SyncStateSet
    """Every replica that a stored or reported set names."""
    reported: SyncStateSet
    newest: StoredView | None
    """
    The reported view with the highest (masterEpoch, SyncStateSetEpoch): its set is adopted when all have reported.
    """
    highest_epoch: MasterEpoch
    """Highest masterEpoch that anybody has shown, of whichever fleet incarnation."""
    highest_set_epoch: SyncStateSetEpoch
    elsewhere: ReignElsewhere | None = None
    """Set for one that moves here from other controllers; None = these controllers lost their memory."""
    confirmed: tuple[ToldConfirm, ...] | UnsetType = UNSET
    """
    Those that replicas of ours have told since it began and that no other one implies; UNSET: none did, or the feature
    level is below 2.
    """
    newcomers: tuple[BrokerId, ...] | UnsetType = UNSET
    """
    Ids that wiped controllers gave to replicas without a record, before anybody told of the past: the report of such a
    replica tells nothing, and its id may be another's. UNSET: it began with no report, or below feature level 2.
    """

    @property
    def awaited(self) -> SyncStateSet:
        """Replicas that have yet to report: of all that any view names, one alone may know the newest view."""
        return tuple(sorted(set(self.named) - set(self.reported)))


class Reign(Value):
    """How one master came to its epoch, and what is known about loss: docs/safety.md, "What a proof needs"."""

    kind: ElectionKind
    master: BrokerId
    master_kind: ReplicaKind
    master_epoch: MasterEpoch
    previous_master: BrokerId | None
    previous_epoch: MasterEpoch
    previous_kind: ReplicaKind
    is_previous_mode_confirmed: bool
    """Fact 1: the last master that entered worked by the set's mode."""
    previous_released: LogOffset | None
    """Fact 4: highest end that the old master is known to have acknowledged."""
    ack_mode: AckMode
    intactness: Intactness
    """What the winner proved when it registered (fact 2)."""
    was_in_set: bool
    was_suspect: bool
    was_restored: bool
    """Elected out of stored views (R7)."""
    inherited: tuple[str, ...] = ()
    """What the reigns before this one, that were never entered, leave unproven."""
    loss: LossVerdict | None = None


class WritesState(Value):
    """The newest stop of writes in the present reign."""

    seq: int
    reason: StopReason
    detail: str
    is_over: bool = False
    began_at_ms: int = 0
    """Stamp of the report's entry as in ``Outage``, less the age that the master said: there the outage begins."""
    told_at_ms: int = 0
    """Stamp of the report's entry, as in ``Outage``."""
    told_by: EventRef | None = None
    """The event of that report."""


class Outage(Value):
    """Since when a set has been without a master that serves: stamps of entries, less ``FleetState.stepped_ms``."""

    found_by: EventRef
    found_at_ms: int
    cause: SilenceCause
    first_sign_at_ms: int
    alive_at_ms: int | None
    """Last sure sign of life; None = none was known."""
    was_stopped: bool = False
    """Its master had stopped writes before it was lost: ``alive_at_ms`` is when, and no sign of life is later."""


class FailoverSeen(Value):
    """One failover of a set."""

    cause: SilenceCause
    at_ms: int
    """Stamp of its entry, as in ``Outage``."""


class Switchover(Value):
    """The newest order to switch over (R29)."""

    order: RequestId
    ordered_by: EventRef
    requested_by: str
    """The caller, as on record with the order."""
    master: BrokerId
    master_incarnation: Incarnation
    master_epoch: MasterEpoch
    """The reign that drains."""
    target: BrokerId
    target_incarnation: Incarnation
    deadline_ms: int
    ordered_at_ms: int
    """Stamp of its entry, as all times here: for people, nothing is decided by it."""
    drained_us: int = 0
    """For how long the master had taken no sends when it asked for the election."""
    elected_at_ms: int | None = None
    elected_epoch: MasterEpoch | None = None
    """The epoch of the target, or of the old master on its way back; None: nobody is elected yet."""
    end: SwitchoverEnd | None = None
    """None: under way."""
    ended_at_ms: int | None = None
    reason: str = ""
    """Why it ended."""

    @property
    def is_under_way(self) -> bool:
        """Whether it has not ended."""
        return self.end is None


class SetState(Value):
    """
    One broker set. ``sync_state_set`` is the committed set; ``bound_incarnations`` names each member's incarnation.
    """

    set_key: SetKey
    configuration: SetConfiguration | None = None
    """Comes with the first registration."""
    next_id: BrokerId = BrokerId(1)
    cleaned_below: BrokerId = BrokerId(1)
    """Ids below this one without a replica were cleaned: they are never given or admitted again."""
    kept_out: tuple[BrokerId, ...] | UnsetType = UNSET
    """
    Ids that were cleaned, newest last, at most ``KEPT_OUT_MAX``: no report brings them back (R7); UNSET: none was, from
    feature level 2 on.
    """
    replicas: tuple[ReplicaState, ...] = ()
    master: BrokerId | None = None
    """None: never elected, cleaned, or the master's process has been replaced by a new incarnation."""
    master_incarnation: Incarnation | None = None
    master_epoch: MasterEpoch = MasterEpoch(0)
    last_master: BrokerId | None = None
    """The replica that was elected last; stays when ``master`` is cleared."""
    has_entered: bool = False
    start_offset: LogOffset | None = None
    """Start of ``master_epoch``: fixed once (R12)."""
    is_mode_confirmed: bool = False
    """By the last master that entered (fact 1)."""
    is_handover_due: bool = False
    """The master said goodbye while it was alive: the election that follows, whenever it is, is a handover."""
    sync_state_set: SyncStateSet = ()
    bound_incarnations: tuple[tuple[BrokerId, Incarnation], ...] = ()
    sync_state_set_epoch: SyncStateSetEpoch = SyncStateSetEpoch(0)
    is_established: bool = False
    """Whether a first election or a bootstrap has been held since the set began, or began again after cleaning."""
    accepts_any_epoch: bool = False
    """Bootstrapped from a log with a past of its own: its epochs below ours are known records (R8)."""
    fallen: SyncStateSet = ()
    """Members that left because a restart proved nothing, since the last election or alter (R3)."""
    known_confirm: LogOffset = LogOffset(0)
    """Highest confirm offset that a member has reported: a member that ends below it has lost records (R3's veto)."""
    unclean_epoch: MasterEpoch = NO_EPOCH
    """The newest masterEpoch whose winner may have lacked confirmed bytes; it explains cuts below confirm (R26)."""
    last_alter: StoredAlter | None = None
    recovery: Recovery | None = None
    reigns: tuple[Reign, ...] = ()
    """Newest last; at most ``REIGNS_KEPT``."""
    writes: WritesState | None = None
    """None: the present master has not told of a stop."""
    last_elected_at_ms: int | None = None
    """Stamp (UTC) of the newest election's entry, for people to read: nothing is decided by it. None: never elected."""
    outage: Outage | None = None
    """For the record: nothing is decided by it. None: the elected master has entered, and was not found gone since."""
    alive_at_ms: int | None = None
    """Stamp of the newest entry that the present master itself caused, as in ``Outage``; None: there is none."""
    is_tombstone: bool = False
    switchover: Switchover | None = None
    """The newest one, its end included; None: none was ever ordered."""
    failovers: tuple[FailoverSeen, ...] = ()
    """Since the last acknowledgement, newest last, at most 16, for the policy ``flap_failovers``."""

    @property
    def pending_switchover(self) -> Switchover | None:
        """The order that is under way."""
        return self.switchover if self.switchover is not None and self.switchover.is_under_way else None

    def replica(self, broker_id: BrokerId | None) -> ReplicaState | None:
        """The replica of this id, if there is one."""
        for replica in self.replicas:
            if replica.broker_id == broker_id:
                return replica
        return None

    def bound_incarnation(self, broker_id: BrokerId) -> Incarnation | None:
        """The incarnation that the membership of ``broker_id`` belongs to; None if it is not a member."""
        for member, incarnation in self.bound_incarnations:
            if member == broker_id:
                return incarnation
        return None

    def is_intact_member(self, replica: ReplicaState) -> bool:
        """
        Whether ``replica`` is in the committed set with its present incarnation and nothing is known against it (R3).
        """
        # v1 acked by 1 and 2. Member 1 loses it in a power cut, 2 is elected with {1,2}, 2 dies: were 1 "intact"
        # because it is a member, it would be elected next, without v1 (R6).
        if replica.incarnation is None or replica.is_suspect:
            return False
        return self.bound_incarnation(replica.broker_id) == replica.incarnation

    def held_by(self, log: Positions | ReplicaEvidence) -> LogOffset:
        """Up to where a log that ends in an earlier epoch than ours can be that of the present reign."""
        # Epoch 4 began at 700. A log of epoch 3 with 950 bytes has more than the 900 that epoch 4 confirmed, and lacks
        # 200 of them: taken for a whole one, it cuts them from every other (R3, R7).
        if self.start_offset is None or log.last_epoch >= self.master_epoch:
            return log.max_offset
        return min(log.max_offset, self.start_offset)

    @property
    def is_master_alive(self) -> bool:
        """Whether the recorded master is alive as the incarnation that was elected."""
        replica = self.replica(self.master)
        return replica is not None and replica.is_alive and replica.incarnation == self.master_incarnation


class AnsweredRequest(Value):
    """An entry of the request-id window. The digest tells a retry from another command under the same id."""

    digest: str
    reply: AnyReply


class IssuedToken(Value):
    """A token, but for the token itself."""

    token_id: str
    digest: str
    role: Role
    name: str
    set_key: SetKey | None
    expires_at_ms: int
    issued_at_ms: int
    issued_by: str
    revoked_at_ms: int | None = None
    """None: it is in force until it expires."""
    revoked_by: str = ""
    revoke_reason: str = ""


class FleetState(msgspec.Struct, frozen=True, kw_only=True):
    """All sets of one control plane, and what is common to them."""

    fleet_incarnation: FleetIncarnation = FleetIncarnation("")
    """Empty: not initialised yet; every command on a set is refused until then."""
    feature_level: int = FIRST_FEATURE_LEVEL
    sets: dict[SetKey, SetState]
    requests: dict[RequestId, AnsweredRequest]
    """Oldest first; at most ``REQUEST_WINDOW_ENTRIES``."""
    revoked: dict[str, RevokedCertificate] = {}
    """By serial number, oldest first; at most ``REVOKED_MAX``."""
    revocations: int = 0
    """Index of the entry that last changed ``revoked``: who knows this number knows the whole list."""
    tokens: dict[str, IssuedToken] = {}
    """By id, oldest first; at most ``TOKENS_MAX``."""
    pauses: dict[SetKey | None, ElectionPause] = {}
    """By set; None: the whole fleet's. At most ``PAUSES_MAX``."""
    settings: tuple[AppliedSettings, ...] = ()
    """Newest last: it is in force. (): the files are. At most ``SETTINGS_KEPT``."""
    maintenances: dict[MaintenanceScope, Maintenance] = {}
    """At most ``MAINTENANCES_MAX``."""
    chain_head: str = ""
    """Hash of the newest event (R24)."""
    state_digest: str = ""
    """Hash of all that was applied (``digest``); empty before the first entry."""
    last_stamp_ms: int = 0
    """Stamp of the newest entry, by its leader's clock. It orders nothing: (term, index) does (R14)."""
    heard_at_ms: int = 0
    """When a leader had surely heard every replica that counted as alive; 0: never. Without steps of the clock."""
    stepped_ms: int = 0
    """Sum of the steps of the clock of entries. A stamp less this sum comes from a clock that does not step."""
    term: int = 0
    index: int = 0
    """Term and index of the newest applied entry."""


EMPTY_FLEET = FleetState(sets={}, requests={})
"""State before the first entry."""
