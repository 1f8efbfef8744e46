"""
What hooks are told: one event of the record, and what is remembered of its set, as notices with a fixed schema.

Here: the kinds, the payload, the fold over a set's events. Not here: reading the record (``following``), which hook
takes which notice (``settings``), delivery (``desk``, ``courier``).

Rule 1: pure: the same events give the same notices with the same ids, so that a notice which is made again after a
crash is known to its receiver.
Rule 2: names and units are those of events (docs/hooks.md) and of ``rollcall history``; the outage of a failover is
computed by the same function (``controller.core.history``).
Rule 3: fields are only added; a change of meaning is a new ``schema``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from rollcall_ha.controller.contract.events import (
    AnyEvent,
    ElectionFailed,
    ElectionsPaused,
    ElectionsResumed,
    ElectionWithheld,
    EventRecord,
    LossGraded,
    MasterElected,
    MilestoneReached,
    ReplicaRegistered,
    ReplicasCleaned,
    SessionOpened,
    SetImported,
    SyncStateSetAltered,
    WritesResumed,
    WritesStopped,
)
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    ControllerName,
    FleetIncarnation,
    MasterEpoch,
    SetKey,
    SyncStateSet,
)
from rollcall_ha.controller.contract.values import EventRef, Phase, StopReason, Value, made_from
from rollcall_ha.controller.contract.verdicts import ElectionKind, Grade
from rollcall_ha.controller.contract.views import CertificateStatus, SetStatus
from rollcall_ha.controller.core.history import history_of
from rollcall_ha.probe.lines import GapLine

SCHEMA_VERSION = 1
MILESTONES_KEPT = 32
"""So many of one reign; it has eight phases, and two processes may tell of one."""


class Kind(StrEnum):
    """What a hook is interested in; a key of ``hooks.toml``."""

    ELECTIONS = "elections"
    SERVING = "serving"
    LOSSES = "losses"
    WRITES = "writes"
    EXPOSURE = "exposure"
    CERTIFICATES = "certificates"
    FLAPPING = "flapping"
    LAG = "lag"
    FELT = "felt"
    GAPS = "gaps"
    """Never chosen: every hook hears it, for its picture may lack something from then on."""


class Told(Value):
    """Base of what a notice says; its class is the type."""


class ReignTold(Told):
    """``master-elected``; ``master-serving`` when it takes sends, with the outage as ``rollcall history`` has it."""

    master_epoch: MasterEpoch
    kind: ElectionKind
    cause: str
    from_master: BrokerId | None
    from_address: str | None
    to_master: BrokerId
    to_address: str | None
    sync_state_set: SyncStateSet
    elected_at_ms: int
    requested_by: str
    estimated_loss_bytes: int
    total_us: int | None
    """The outage, or its lower bound; None: not over yet, or not timed."""
    total_us_max: int | None
    """Upper bound; equal to ``total_us`` if that is exact, None = no bound is known."""
    missing: tuple[Phase, ...]


class ElectionFailedTold(Told):
    """``election-failed``: nobody is eligible, the set is without a master."""

    master_epoch: MasterEpoch
    from_master: BrokerId | None
    reason: str


class LossTold(Told):
    """``loss-graded``: what is known about lost messages of a failover, where it is not proven that there are none."""

    master_epoch: MasterEpoch
    grade: Grade
    bound_bytes: int | None
    cut_bytes: int | None
    facts: tuple[str, ...]
    missing: tuple[str, ...]


class WritesTold(Told):
    """``writes-stopped``, ``writes-resumed``."""

    master_epoch: MasterEpoch
    broker_id: BrokerId
    address: str | None
    seq: int
    reason: StopReason
    detail: str
    age_us: int
    stopped_us: int | None
    """None: they are stopped."""


class ExposureTold(Told):
    """``set-exposed``: one replica has everything; ``set-covered``: no longer so."""

    sync_state_set: SyncStateSet
    expected_replicas: int
    exposed_ms: int | None
    """By stamps; None: it begins."""


class FlappingTold(Told):
    """``set-flapping``: blocked until a person acknowledges it; ``set-flapping-ended``."""

    reason: str
    expires_at_ms: int | None


class WaitingTold(Told):
    """``set-waits``: it would have a new master, had elections not been paused."""

    winner: BrokerId | None
    reason: str


class CertificateTold(Told):
    """``certificate-expiring``."""

    name: str
    serial: str
    expires_at_ms: int
    days: int
    """The limit of ``certificate_days`` that it has passed."""
    told_by: ControllerName


class LagTold(Told):
    """``group-lags``, and ``group-caught-up`` when it is behind by half of the limit at most."""

    group: str
    lag: int
    """Messages, in all sets."""
    limit: int
    stuck_queues: int


class FeltTold(Told):
    """``gap-felt``: a client felt that the set took nothing; as the probe's journal has it (docs/probe.md)."""

    from_ms: int
    felt_ms: int
    stalled_ms: int
    sends_failed: int
    is_over: bool
    reason: str
    limit_ms: int
    """Gaps as long as this are told (``probe_gap_ms`` of ``hooks.toml``)."""


class GapTold(Told):
    """``record-gap``: events between two indexes were not read, and never will be."""

    reason: str
    after_index: int
    up_to_index: int | None
    """None: not known."""
    previous_fleet: FleetIncarnation
    is_refused: bool
    """Nothing more is read until an operator accepts the other record (docs/hooks.md)."""


class TrialTold(Told):
    """``test``: an operator tries the hook."""

    text: str


class AlertTold(Told):
    """``open-failover``, ...: something lasts, as ``rollcall analytics stream`` finds it in its tables."""

    since_ms: int
    lasts_ms: int
    count: int


class Notice(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The payload."""

    schema: int = SCHEMA_VERSION
    id: str
    """The same for each delivery of this notice."""
    type: str
    kind: Kind | None
    """None: of no kind, a test."""
    fleet_incarnation: FleetIncarnation
    set_key: SetKey | None
    stamped_at_ms: int
    event: EventRef | None
    """What ``rollcall events --from`` shows; None: it is not an event of the record."""
    data: Told

    @property
    def lane(self) -> str:
        """What it is ordered with."""
        return "" if self.set_key is None else str(self.set_key)


class AlertNotice(Notice, frozen=True, kw_only=True, rename="camel"):
    """A notice that another program made: it tells of a set, and no event caused it."""

    kind: Kind
    set_key: SetKey
    event: None
    data: AlertTold


class SetMemory(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What is remembered of one set between its events."""

    addresses: dict[BrokerId, str] = {}
    expected_replicas: int = 0
    """0: not known."""
    reign: tuple[EventRecord, ...] = ()
    """The newest election, and its milestones."""
    is_serving: bool = False
    """``reign`` was said to serve."""
    in_sync: int = 0
    exposed_at_ms: int | None = None
    is_blocked: bool = False


def seeded(status: SetStatus) -> SetMemory:
    """What is known of a set whose events before this moment were not read."""
    view = status.view
    return SetMemory(
        addresses={member.broker_id: member.description.address for member in view.members},
        expected_replicas=view.configuration.expected_replicas,
        in_sync=len(view.sync_state_set),
    )


def key_of(record: EventRecord) -> SetKey | None:
    """The set that an event is about; None: the fleet."""
    if record.set_key is None and isinstance(record.event, ElectionsPaused | ElectionsResumed):
        return record.event.paused_set
    return record.set_key


def notices_of(record: EventRecord, before: SetMemory) -> tuple[SetMemory | None, tuple[Notice, ...]]:
    """The set's memory after an event, None for a set that is no more, and what is to be told."""
    event = record.event
    if isinstance(event, ReplicasCleaned) and not event.remaining:
        return None, ()
    memory, told = _exposure(record, _noted(event, before))
    said: list[tuple[Kind, str, Told]] = []
    if isinstance(event, MasterElected):
        memory = msgspec.structs.replace(memory, reign=(record,), is_serving=False)
        said.append((Kind.ELECTIONS, "master-elected", _reign(memory, event)))
    elif isinstance(event, MilestoneReached) and memory.reign:
        memory = msgspec.structs.replace(memory, reign=(*memory.reign, record)[:MILESTONES_KEPT])
        elected = memory.reign[0].event
        assert isinstance(elected, MasterElected)
        if not memory.is_serving and _is_serving(event, elected):
            memory = msgspec.structs.replace(memory, is_serving=True)
            said.append((Kind.SERVING, "master-serving", _reign(memory, elected)))
    elif isinstance(event, ElectionsPaused) and _is_block(record, memory):
        memory = msgspec.structs.replace(memory, is_blocked=True)
        said.append(
            (Kind.FLAPPING, "set-flapping", FlappingTold(reason=event.reason, expires_at_ms=event.expires_at_ms))
        )
    elif isinstance(event, ElectionsResumed) and memory.is_blocked and event.paused_set is not None:
        memory = msgspec.structs.replace(memory, is_blocked=False)
        said.append((Kind.FLAPPING, "set-flapping-ended", FlappingTold(reason=event.reason, expires_at_ms=None)))
    else:
        said += _said(event, memory)
    return memory, tuple(_notice(record, kind, name, data) for kind, name, data in [*said, *told])


def _said(event: AnyEvent, memory: SetMemory) -> list[tuple[Kind, str, Told]]:
    """What is said of events that speak for themselves."""
    if isinstance(event, ElectionFailed):
        verdict = event.verdict
        failed = ElectionFailedTold(
            master_epoch=verdict.previous_epoch, from_master=verdict.previous_master, reason=event.reason
        )
        return [(Kind.ELECTIONS, "election-failed", failed)]
    if isinstance(event, ElectionWithheld):
        return [(Kind.FLAPPING, "set-waits", WaitingTold(winner=event.verdict.winner, reason=event.reason))]
    if isinstance(event, LossGraded) and event.verdict.grade is not Grade.PROVEN:
        return [(Kind.LOSSES, "loss-graded", made_from(event.verdict, LossTold))]
    if isinstance(event, WritesStopped | WritesResumed):
        has_resumed = isinstance(event, WritesResumed)
        stop = made_from(
            event,
            WritesTold,
            address=memory.addresses.get(event.broker_id),
            stopped_us=event.stopped_us if isinstance(event, WritesResumed) else None,
        )
        return [(Kind.WRITES, "writes-resumed" if has_resumed else "writes-stopped", stop)]
    return []


def _noted(event: AnyEvent, memory: SetMemory) -> SetMemory:
    """Addresses, and how many replicas there should be."""
    found: Mapping[BrokerId, str] = {}
    expected = memory.expected_replicas
    if isinstance(event, ReplicaRegistered):
        found, expected = {event.broker_id: event.description.address}, event.configuration.expected_replicas
    elif isinstance(event, SessionOpened):
        found = {event.broker_id: event.description.address}
    elif isinstance(event, SetImported):
        found = {one.broker_id: one.address for one in event.replicas}
    addresses = {**memory.addresses, **found}
    if isinstance(event, ReplicasCleaned):
        addresses = {one: where for one, where in addresses.items() if one in event.remaining}
    if addresses == memory.addresses and expected == memory.expected_replicas:
        return memory
    return msgspec.structs.replace(memory, addresses=addresses, expected_replicas=expected)


def _exposure(record: EventRecord, memory: SetMemory) -> tuple[SetMemory, list[tuple[Kind, str, Told]]]:
    """Whether the SyncStateSet has one member now, and had not, or the other way round."""
    event = record.event
    if isinstance(event, SyncStateSetAltered):
        members = event.verdict.sync_state_set
    elif isinstance(event, MasterElected | ReplicaRegistered | ReplicasCleaned | SetImported):
        members = event.sync_state_set
    else:
        return memory, []
    before, now = memory.in_sync, len(members)
    after = msgspec.structs.replace(memory, in_sync=now)
    # A set of one replica is exposed as its owner meant it: alarmed once, and never covered.
    is_news = memory.expected_replicas > 1 and (now == 1) != (before == 1) and now > 0
    if not is_news:
        return after, []
    is_exposed = now == 1
    began_ms = memory.exposed_at_ms
    told = ExposureTold(
        sync_state_set=members,
        expected_replicas=memory.expected_replicas,
        exposed_ms=None if is_exposed or began_ms is None else record.stamped_at_ms - began_ms,
    )
    # The stamp is kept here and counted from by the next turn; nothing else reads it.
    after = msgspec.structs.replace(after, exposed_at_ms=record.stamped_at_ms if is_exposed else None)
    return after, [(Kind.EXPOSURE, "set-exposed" if is_exposed else "set-covered", told)]


def _reign(memory: SetMemory, elected: MasterElected) -> ReignTold:
    row = history_of(memory.reign)[0]
    lost = row.from_master
    return made_from(
        row,
        ReignTold,
        from_master=lost,
        from_address=None if lost is None else memory.addresses.get(lost),
        to_address=memory.addresses.get(row.to_master),
        sync_state_set=elected.sync_state_set,
        estimated_loss_bytes=elected.verdict.estimated_loss_bytes,
    )


def _is_serving(event: MilestoneReached, elected: MasterElected) -> bool:
    """Whether the winner says that it takes sends in the epoch that it was elected for."""
    told = event.milestone
    return (
        told.phase is Phase.SERVING
        and told.master_epoch == elected.master_epoch
        and told.broker_id == elected.master
        and told.incarnation in (None, elected.master_incarnation)
    )


def _is_block(record: EventRecord, memory: SetMemory) -> bool:
    """
    Whether the pause came of the failovers themselves (S71): its entry is that of an election.

    A person's pause is an entry of its own.
    """
    return bool(memory.reign) and memory.reign[0].index == record.index


def _notice(record: EventRecord, kind: Kind, name: str, data: Told) -> Notice:
    return Notice(
        id=f"{record.fleet_incarnation}.{record.index}.{record.ordinal}.{name}",
        type=name,
        kind=kind,
        fleet_incarnation=record.fleet_incarnation,
        set_key=key_of(record),
        stamped_at_ms=record.stamped_at_ms,
        event=record.ref,
        data=data,
    )


def certificate_notice(
    certificate: CertificateStatus, days: int, *, fleet: FleetIncarnation, told_by: ControllerName, now_ms: int
) -> Notice:
    """A certificate ends within ``days``; ``now_ms``: UTC of this machine."""
    told = made_from(certificate, CertificateTold, days=days, told_by=told_by)
    name = f"{fleet}.certificate.{certificate.serial}.{days}"
    return _eventless(name, "certificate-expiring", Kind.CERTIFICATES, told, fleet=fleet, now_ms=now_ms)


def lag_notice(told: LagTold, *, fleet: FleetIncarnation, now_ms: int) -> Notice:
    """A group has crossed its limit, or is back."""
    name = "group-lags" if told.lag > told.limit else "group-caught-up"
    return _eventless(f"{fleet}.{name}.{told.group}.{now_ms}", name, Kind.LAG, told, fleet=fleet, now_ms=now_ms)


def felt_notice(line: GapLine, limit_ms: int, *, fleet: FleetIncarnation) -> Notice | None:
    """What a probe felt; None: it is below the limit."""
    # A pause of the probe's own machine would else be an alarm for each of its sets.
    if line.felt_ms - line.stalled_ms < limit_ms:
        return None
    name, at_ms = f"{fleet}.felt.{line.cluster}/{line.set_name}.{line.from_ms}", line.from_ms + line.felt_ms
    told = made_from(line, FeltTold, limit_ms=limit_ms)
    notice = _eventless(name, "gap-felt", Kind.FELT, told, fleet=fleet, now_ms=at_ms)
    key = SetKey(ClusterName(line.cluster), BrokerName(line.set_name)) if line.cluster else None
    return msgspec.structs.replace(notice, set_key=key)


def gap_notice(told: GapTold, *, fleet: FleetIncarnation, now_ms: int) -> Notice:
    """Said to every hook; ``fleet``: the one that is found now."""
    return _eventless(f"{fleet}.gap.{told.after_index}", "record-gap", Kind.GAPS, told, fleet=fleet, now_ms=now_ms)


def trial_notice(name: str, identity: str, *, now_ms: int) -> Notice:
    """For ``rollcall hooks test``; ``identity`` is drawn by the caller."""
    told = TrialTold(text=f"rollcall hooks test {name}")
    return _eventless(f"test.{identity}", "test", None, told, fleet=FleetIncarnation(""), now_ms=now_ms)


def _eventless(
    identity: str, name: str, kind: Kind | None, data: Told, *, fleet: FleetIncarnation, now_ms: int
) -> Notice:
    return Notice(
        id=identity,
        type=name,
        kind=kind,
        fleet_incarnation=fleet,
        set_key=None,
        stamped_at_ms=now_ms,
        event=None,
        data=data,
    )
