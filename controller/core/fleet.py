"""
Commands on the fleet as a whole: its incarnation, leadership, barriers, the feature level.

Here: deciding them, and ``evolve_fleet``. Not here: sets.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    ChangeControllers,
    InitialiseFleet,
    RaiseFeatureLevel,
    TakeLeadership,
    TransferLeadership,
)
from rollcall_ha.controller.contract.events import (
    CertificateRevoked,
    ClockStepped,
    ControllersChangeOrdered,
    ElectionsPaused,
    ElectionsResumed,
    EventRecord,
    FeatureLevelRaised,
    FleetInitialised,
    LeadershipTaken,
    LeadershipTransferOrdered,
    MaintenanceBegun,
    MaintenanceEnded,
    SettingsApplied,
    TokenIssued,
    TokenRevoked,
)
from rollcall_ha.controller.contract.replies import Refused
from rollcall_ha.controller.contract.values import ElectionPause, Maintenance, RevokedCertificate, made_from
from rollcall_ha.controller.contract.views import ControllerStatus
from rollcall_ha.controller.core.decision import Decision, Refusal, done
from rollcall_ha.controller.core.settings import with_settings
from rollcall_ha.controller.core.state import FleetState, IssuedToken


def decide_initialise(fleet: FleetState, command: InitialiseFleet) -> Decision:
    """Fix the fleet's incarnation. The same value again changes nothing; another one is refused."""
    if not command.fleet_incarnation:
        raise Refusal(RefusalCode.INVALID_ARGUMENT, "the fleet incarnation is empty", "draw one with: rollcall init")
    if fleet.fleet_incarnation == command.fleet_incarnation:
        return done()
    if fleet.fleet_incarnation:
        raise Refusal(
            RefusalCode.WRONG_FLEET,
            f"this fleet is {fleet.fleet_incarnation}, not {command.fleet_incarnation}",
            "the controller's directory belongs to another fleet; use an empty one",
            requested=command.fleet_incarnation,
            current=fleet.fleet_incarnation,
        )
    return done(FleetInitialised(fleet_incarnation=command.fleet_incarnation))


def decide_leadership(command: TakeLeadership) -> Decision:
    """Barrier of a new leader, on record."""
    if not command.controller:
        raise Refusal(RefusalCode.INVALID_ARGUMENT, "the controller has no name", "name it in the fleet file")
    return done(LeadershipTaken(controller=command.controller, term=command.term))


def decide_transfer(command: TransferLeadership) -> Decision:
    """Put the order on record. Who can take over is in the leader's memory: ``controller.runtime.transfers`` judges."""
    if not command.source or not command.to or command.source == command.to:
        raise Refusal(
            RefusalCode.INVALID_ARGUMENT,
            f"the lead cannot go from {command.source!r} to {command.to!r}",
            "name another controller than the one that leads; see them with: rollcall controllers",
        )
    return done(LeadershipTransferOrdered(controller=command.source, successor=command.to, reason=command.reason))


def decide_change_controllers(command: ChangeControllers) -> Decision:
    """Put the step on record. Whether it may follow is judged on Raft's log: ``replication.membership``."""
    return done(made_from(command, ControllersChangeOrdered))


def decide_feature_level(fleet: FleetState, command: RaiseFeatureLevel) -> Decision:
    """
    Allow operations of a higher level from here on. It never falls. A node below it has stopped before this (R15).
    """
    if command.level <= fleet.feature_level:
        return done()
    return done(FeatureLevelRaised(level=command.level))


def below_level(level: int, members: Sequence[ControllerStatus], *, trusts_silent: bool) -> Refused | None:
    """The refusal to propose a level that a controller does not have, or may not have; None: all have it."""
    # One that does not answer counts as below: it would stop when it comes back, and may be one of two that are left.
    # An operator who has looked at its machine may say that it is upgraded.
    missing = [
        f"{member.name} {f'has level {member.feature_level}' if member.feature_level else 'does not answer'}"
        for member in members
        if member.feature_level < level and (member.feature_level or not trusts_silent)
    ]
    if not missing:
        return None
    return Refused(
        code=RefusalCode.FEATURE_LEVEL,
        reason=f"feature level {level} is not everywhere: {', '.join(missing)}",
        hint="upgrade and start every controller first; see each on its machine with: rollcall controllers. Where the "
        "leader cannot reach the REST ports of the others: rollcall raise-level --assume-upgraded",
        requested=str(level),
        current=str(min(member.feature_level for member in members)),
    )


def evolve_fleet(fleet: FleetState, record: EventRecord) -> FleetState:
    """What an event makes of the fleet's own fields. Total."""
    event = record.event
    if isinstance(event, FleetInitialised):
        return replace(fleet, fleet_incarnation=event.fleet_incarnation)
    if isinstance(event, FeatureLevelRaised):
        # A level that fell would let an old controller in again, which stops at the first entry above its own (R15).
        return replace(fleet, feature_level=max(fleet.feature_level, event.level))
    if isinstance(event, ClockStepped):
        # The mark is compared with stamps of elections, and those before this step come from another clock.
        return replace(fleet, stepped_ms=fleet.stepped_ms + event.step_ms, heard_at_ms=0)
    if isinstance(event, CertificateRevoked):
        return _certificate_revoked(fleet, event, record)
    if isinstance(event, TokenIssued):
        return _token_issued(fleet, event, record)
    if isinstance(event, TokenRevoked) and event.token_id in fleet.tokens:
        over = replace(
            fleet.tokens[event.token_id],
            revoked_at_ms=record.stamped_at_ms,
            revoked_by=record.requested_by,
            revoke_reason=event.reason,
        )
        return replace(fleet, tokens={**fleet.tokens, event.token_id: over})
    if isinstance(event, ElectionsPaused):
        pause = ElectionPause(
            set_key=event.paused_set,
            expires_at_ms=event.expires_at_ms,
            reason=event.reason,
            paused_at_ms=record.stamped_at_ms,
            paused_by=record.requested_by,
        )
        return replace(fleet, pauses={**fleet.pauses, event.paused_set: pause})
    if isinstance(event, ElectionsResumed):
        return replace(fleet, pauses={key: one for key, one in fleet.pauses.items() if key != event.paused_set})
    if isinstance(event, SettingsApplied):
        return with_settings(fleet, event, record)
    if isinstance(event, MaintenanceBegun):
        begun = made_from(event, Maintenance, begun_at_ms=record.stamped_at_ms, begun_by=record.requested_by)
        return replace(fleet, maintenances={**fleet.maintenances, event.scope: begun})
    if isinstance(event, MaintenanceEnded):
        return replace(fleet, maintenances={of: one for of, one in fleet.maintenances.items() if of != event.scope})
    return fleet


def _certificate_revoked(fleet: FleetState, event: CertificateRevoked, record: EventRecord) -> FleetState:
    kept = {serial: one for serial, one in fleet.revoked.items() if serial not in event.forgotten}
    kept[event.serial] = made_from(
        event, RevokedCertificate, revoked_at_ms=record.stamped_at_ms, revoked_by=record.requested_by
    )
    return replace(fleet, revoked=kept, revocations=record.index)


def _token_issued(fleet: FleetState, event: TokenIssued, record: EventRecord) -> FleetState:
    kept = {token_id: token for token_id, token in fleet.tokens.items() if token_id not in event.forgotten}
    kept[event.token_id] = made_from(
        event, IssuedToken, set_key=event.token_set, issued_at_ms=record.stamped_at_ms, issued_by=record.requested_by
    )
    return replace(fleet, tokens=kept)
