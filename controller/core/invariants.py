"""
What must hold of the controllers' state, checked from outside: C1-C7 and C10-C14 of docs/invariants.md.

``check_state`` runs when a snapshot is loaded: a controller must not serve from a state that breaks one of them.
``check_entry`` runs behind a debug switch after each applied entry. Tests and the simulation run all of them.
Not here: C8 and C9, which speak of several runs and are tested as laws; the data plane's D and L (simulation).

Rule: these functions share no code with ``decide`` and ``evolve``: a mistake there must not hide here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import UNSET

from rollcall_ha.controller.contract.events import (
    AlterRefused,
    BrokerIdGranted,
    CommandRefused,
    ConfirmsNoted,
    ElectionFailed,
    ElectionsPaused,
    ElectionsResumed,
    EventRecord,
    MaintenanceBegun,
    MaintenanceEnded,
    MasterElected,
    ReplicasCleaned,
    SetConfigured,
    SettingsApplied,
    SyncStateSetAltered,
    chain_of,
)
from rollcall_ha.controller.contract.ids import BrokerId, ReplicaKind, SetKey
from rollcall_ha.controller.contract.values import MaintenanceScope
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.state import (
    MAINTENANCES_MAX,
    PAUSES_MAX,
    REQUEST_WINDOW_ENTRIES,
    REVOKED_MAX,
    SETTINGS_KEPT,
    TOKENS_MAX,
    FleetState,
    SetState,
)

_EPOCH_JUMP = 2**20
_EXEMPT = (ElectionKind.FIRST, ElectionKind.BOOTSTRAP, ElectionKind.UNCLEAN)


def check_state(fleet: FleetState) -> tuple[str, ...]:
    """Every rule that ``fleet`` breaks by itself, in words; empty if it is sound."""
    broken = [f"{key}: {text}" for key in sorted(fleet.sets) for text in _check_set(key, fleet.sets[key])]
    if len(fleet.requests) > REQUEST_WINDOW_ENTRIES:
        broken.append(f"request window holds {len(fleet.requests)}, at most {REQUEST_WINDOW_ENTRIES}")
    if len(fleet.pauses) > PAUSES_MAX:
        broken.append(f"C12: {len(fleet.pauses)} pauses are kept, at most {PAUSES_MAX}")
    if len(fleet.maintenances) > MAINTENANCES_MAX:
        broken.append(f"C14: {len(fleet.maintenances)} maintenances are kept, at most {MAINTENANCES_MAX}")
    broken += _check_callers(fleet)
    broken += _check_settings(fleet)
    return tuple(broken)


def check_entry(before: FleetState, after: FleetState, records: Sequence[EventRecord]) -> tuple[str, ...]:
    """
    Every rule that one entry breaks, by its step or by the state that it leaves; empty if it is sound.

    Sets that the entry left alone are the same objects before and after, and are compared by identity only.
    """
    changed = [key for key in sorted(after.sets) if after.sets[key] is not before.sets.get(key)]
    broken = [f"{key}: {text}" for key in changed for text in _check_set(key, after.sets[key])]
    if after.revoked is not before.revoked or after.tokens is not before.tokens:
        broken += _check_callers(after)
    return (*broken, *check_transition(before, after, records))


def check_transition(before: FleetState, after: FleetState, records: Sequence[EventRecord]) -> tuple[str, ...]:
    """Every rule that the step from ``before`` to ``after`` by one entry breaks, in words; empty if it is sound."""
    broken: list[str] = []
    if before.fleet_incarnation and before.fleet_incarnation != after.fleet_incarnation:
        broken.append(f"fleet incarnation {before.fleet_incarnation} became {after.fleet_incarnation}")
    chain = before.chain_head
    for ordinal, record in enumerate(records):
        chain = chain_of(chain, record)
        if record.chain != chain or record.ordinal != ordinal:
            broken.append(f"R24: record {record.ref} does not continue the chain")
    if chain != after.chain_head:
        broken.append(f"R24: chain head {after.chain_head} is not that of the records, {chain}")
    sets = before.sets | after.sets
    changed = {key for key in sets if before.sets.get(key) is not after.sets.get(key)}
    for key in sorted(changed | {record.set_key for record in records if record.set_key is not None}):
        own = [record for record in records if record.set_key == key or _tells_of(record, key)]
        old, new = before.sets.get(key, SetState(set_key=key)), after.sets.get(key)
        if new is None:
            # A refusal may name a set that never was; only one that was here has vanished.
            if key in before.sets:
                broken.append(f"{key}: the set vanished; a tombstone must stay")
            continue
        broken.extend(f"{key}: {text}" for text in _check_change(old, new, own))
    broken += _check_pauses(before, records)
    broken += _check_versions(before, after, records)
    broken += _check_maintenances(before, records)
    broken += _check_configurations(before, after, records)
    return tuple(broken)


def _tells_of(record: EventRecord, key: SetKey) -> bool:
    return isinstance(record.event, ConfirmsNoted) and any(one.set_key == key for one in record.event.confirms)


def _is_of_people(record: EventRecord) -> bool:
    return not record.requested_by.replace("@", ":").startswith(("controller:", "broker:"))


def _check_pauses(before: FleetState, records: Sequence[EventRecord]) -> Iterator[str]:
    paused = set(before.pauses)
    for record in records:
        event = record.event
        if isinstance(event, ElectionsPaused):
            paused.add(event.paused_set)
        elif isinstance(event, ElectionsResumed):
            paused.discard(event.paused_set)
        elif isinstance(event, MasterElected) and paused & {None, record.set_key}:
            ordered = before.sets.get(record.set_key) if record.set_key is not None else None
            if _is_of_people(record) or (ordered is not None and ordered.pending_switchover is not None):
                continue
            yield f"C12: {record.set_key} elected in a pause for {record.requested_by}, who is no person"


def _check_settings(fleet: FleetState) -> Iterator[str]:
    versions = [applied.version for applied in fleet.settings]
    if versions and versions != list(range(versions[0], versions[0] + len(versions))):
        yield f"C13: versions of settings {versions} do not follow each other"
    if len(versions) > SETTINGS_KEPT:
        yield f"C13: {len(versions)} versions of settings are kept, at most {SETTINGS_KEPT}"
    for applied in fleet.settings:
        timeout_ms, interval_ms = applied.settings.heartbeat_timeout_ms, applied.settings.heartbeat_interval_ms
        if timeout_ms < 2 * interval_ms:
            yield f"C13: version {applied.version} waits {timeout_ms} ms for heartbeats of every {interval_ms} ms"


def _check_versions(before: FleetState, after: FleetState, records: Sequence[EventRecord]) -> Iterator[str]:
    newest = before.settings[-1].version if before.settings else 0
    for record in records:
        if isinstance(record.event, SettingsApplied):
            if record.event.version != newest + 1:
                yield f"C13: version {record.event.version} of the settings follows version {newest}"
            newest = record.event.version
    if after.settings is not before.settings:
        yield from _check_settings(after)
    if (after.settings[-1].version if after.settings else 0) != newest:
        yield f"C13: version {newest} of the settings is on record, another one is in force"


def _check_maintenances(before: FleetState, records: Sequence[EventRecord]) -> Iterator[str]:
    scopes = set(before.maintenances)
    for record in records:
        event, key = record.event, record.set_key
        if isinstance(event, MaintenanceBegun):
            scopes.add(event.scope)
        elif isinstance(event, MaintenanceEnded):
            scopes.discard(event.scope)
        elif isinstance(event, MasterElected) and scopes and not _is_of_people(record):
            set_state = before.sets.get(key) if key is not None else None
            winner = set_state.replica(event.master) if set_state is not None else None
            if set_state is None or winner is None:
                continue
            order = set_state.pending_switchover
            host = winner.address.rpartition(":")[0].strip("[]")
            own = {MaintenanceScope(set_key=key, broker_id=event.master), MaintenanceScope(host=host)}
            if own & scopes and (order is None or order.master != event.master):
                yield f"C14: {key} elected {event.master}, in maintenance, for {record.requested_by}, who is no person"


def _check_configurations(before: FleetState, after: FleetState, records: Sequence[EventRecord]) -> Iterator[str]:
    ordered = {record.set_key for record in records if isinstance(record.event, SetConfigured)}
    cleaned = {record.set_key for record in records if isinstance(record.event, ReplicasCleaned)}
    for key in {record.set_key for record in records if record.set_key is not None}:
        old, new = before.sets.get(key), after.sets.get(key)
        if old is None or new is None or old.configuration is None or old.configuration == new.configuration:
            continue
        # Begun again after it was cleaned, maybe in the same entry, it has the numbers of its new replica's file.
        if old.is_tombstone or key in cleaned:
            continue
        if key not in ordered or new.configuration is None:
            yield f"C15: {key} went from {old.configuration} to {new.configuration} without an order"
            continue
        least, expected = new.configuration.effective_min_in_sync, new.configuration.expected_replicas
        if not 1 <= least <= expected:
            yield f"C15: {key} asks for {least} of {expected} replicas"
        modes = {(one.ack_mode, one.flush) for one in (old.configuration, new.configuration)}
        if len(modes) > 1:
            yield f"C15: the order changed the mode of {key}"


def _check_callers(fleet: FleetState) -> Iterator[str]:
    if len(fleet.revoked) > REVOKED_MAX or len(fleet.tokens) > TOKENS_MAX:
        yield f"C11: {len(fleet.revoked)} certificates are revoked and {len(fleet.tokens)} tokens are kept"
    if any(serial != one.serial for serial, one in fleet.revoked.items()):
        yield "C11: a revoked certificate is filed under another serial number"
    if len({token.digest for token in fleet.tokens.values()}) != len(fleet.tokens):
        yield "C11: two tokens have one digest"


def _check_set(key: SetKey, state: SetState) -> Iterator[str]:
    ids = [replica.broker_id for replica in state.replicas]
    members = state.sync_state_set
    if state.set_key != key:
        yield f"is filed under another key, {state.set_key}"
    if ids != sorted(set(ids)) or list(members) != sorted(set(members)):
        yield f"ids {ids} or members {members} are not sorted, each once"
    if ids and state.next_id <= max(ids):
        yield f"C6: next id {state.next_id} is not above {max(ids)}"
    codes = [replica.register_code for replica in state.replicas]
    if len(set(codes)) != len(codes):
        yield f"C6: {len(ids)} ids have {len(set(codes))} register codes: two ids share one"
    if not set(members) <= set(ids):
        yield f"C3: members {members} are not all registered: {ids}"
    if state.master is not None and (state.master not in members or state.master_incarnation is None):
        yield f"C3: master {state.master} is not in {members} with an incarnation"
    if state.master is not None and state.bound_incarnation(state.master) != state.master_incarnation:
        bound = state.bound_incarnation(state.master)
        yield f"R9: master {state.master} rules as {state.master_incarnation}, its membership belongs to {bound}"
    yield from _check_reigns(state)
    if [broker_id for broker_id, _ in state.bound_incarnations] != list(members):
        yield f"R3: bound {state.bound_incarnations} are not the members {members}"
    for broker_id, incarnation in state.bound_incarnations:
        replica = state.replica(broker_id)
        if replica is not None and replica.incarnation != incarnation:
            yield f"R3: member {broker_id} is bound to {incarnation}, registered is {replica.incarnation}"
        if state.recovery is None and replica is not None and not replica.is_voter:
            yield f"R23: learner {broker_id} is a member"
    suspects = [replica.broker_id for replica in state.replicas if replica.is_suspect]
    if state.recovery is None and suspects and suspects != list(members):
        yield f"R3: suspects {suspects} are not the last member, the set is {members}"
    if state.is_established and state.recovery is None and not members:
        yield f"S08: the last-known-good set is gone: no member in epoch {state.master_epoch}, replicas are {ids}"
    if state.is_tombstone and (ids or members or state.master is not None):
        yield f"W29: a tombstone has replicas {ids}, members {members} or master {state.master}"


def _check_reigns(state: SetState) -> Iterator[str]:
    if state.unclean_epoch > state.master_epoch:
        yield f"R26: unclean epoch {state.unclean_epoch} is above masterEpoch {state.master_epoch}"
    epochs = [reign.master_epoch for reign in state.reigns]
    if epochs != sorted(set(epochs)):
        yield f"C2: reigns {epochs} do not rise: two masters were elected in one epoch"
    if not epochs:
        return
    if epochs[-1] > state.master_epoch:
        yield f"C1: the newest reign is of epoch {epochs[-1]}, masterEpoch is {state.master_epoch}"
    elected = state.reigns[-1].master
    if epochs[-1] == state.master_epoch and state.master not in (None, elected):
        yield f"C2: epoch {state.master_epoch} has two masters, {elected} was elected and {state.master} is recorded"


def _check_change(old: SetState, new: SetState, records: Sequence[EventRecord]) -> Iterator[str]:
    yield from _check_epochs(old, new, records)
    yield from _check_identity(old, new, records)
    for record in records:
        event = record.event
        if isinstance(event, MasterElected):
            yield from _check_election(event)
        if isinstance(event, SyncStateSetAltered):
            members, is_present = event.verdict.sync_state_set, new.master_epoch == event.verdict.master_epoch
            if members == event.previous_set:
                yield f"C7: an alter that leaves the set at {members} was accepted"
            if is_present and new.master is not None and new.master not in members:
                yield f"C7: an alter to {members} lacks the master {new.master}"
    refusals = (CommandRefused, ElectionFailed, AlterRefused)
    if all(isinstance(record.event, refusals) for record in records):
        blank = [_without_stored_verdict(state) for state in (old, new)]
        if blank[0] != blank[1]:
            yield "C10: a refusal changed the set"


def _without_stored_verdict(state: SetState) -> tuple[object, ...]:
    return tuple(getattr(state, name) for name in state.__struct_fields__ if name != "last_alter")


def _check_epochs(old: SetState, new: SetState, records: Sequence[EventRecord]) -> Iterator[str]:
    if new.master_epoch < old.master_epoch or new.sync_state_set_epoch < old.sync_state_set_epoch:
        yield (
            f"C1: epochs fell from ({old.master_epoch}, {old.sync_state_set_epoch}) "
            f"to ({new.master_epoch}, {new.sync_state_set_epoch})"
        )
    if new.sync_state_set_epoch == old.sync_state_set_epoch and new.sync_state_set != old.sync_state_set:
        yield f"C1: the set changed from {old.sync_state_set} to {new.sync_state_set} within one SyncStateSetEpoch"
    if new.master_epoch != old.master_epoch:
        kinds = {record.event.__struct_config__.tag for record in records}
        if not kinds & {"master-elected", "replicas-cleaned", "set-imported"}:
            yield f"C1: masterEpoch went from {old.master_epoch} to {new.master_epoch} without an election"
        return
    if new.master not in (None, old.master) or (
        new.master is not None and new.master_incarnation != old.master_incarnation
    ):
        yield f"C2: epoch {new.master_epoch} has two masters, {old.master} and {new.master}"
    if old.start_offset is not None and new.start_offset != old.start_offset:
        yield f"R12: epoch {new.master_epoch} had start {old.start_offset}, now {new.start_offset}"


def _check_identity(old: SetState, new: SetState, records: Sequence[EventRecord]) -> Iterator[str]:
    if new.next_id < old.next_id:
        yield f"C6: next id fell from {old.next_id} to {new.next_id}"
    old_ids = {replica.broker_id for replica in old.replicas}
    cleanings = (record.event for record in records if isinstance(record.event, ReplicasCleaned))
    cleaned = {broker_id for event in cleanings for broker_id in event.broker_ids}
    # A newcomer gives its id up to the replica that tells of the past (R7).
    newcomers = old_ids if old.recovery is None and not old.is_established else set[BrokerId]()
    if old.recovery is not None and old.recovery.newcomers is not UNSET:
        newcomers = set(old.recovery.newcomers)
    granted = {record.event.broker_id for record in records if isinstance(record.event, BrokerIdGranted)}
    yielded = granted & newcomers
    for replica in new.replicas:
        past = old.replica(replica.broker_id)
        if past is None or replica.broker_id in cleaned | yielded:
            # After a wipe an id comes back with the replica that had it; everybody else gets a fresh one.
            continue
        if past.register_code != replica.register_code:
            yield f"C6: id {replica.broker_id} went from one register code to another"
        if past.owner and replica.owner != past.owner:
            yield f"C11: id {replica.broker_id} went from {past.owner} to {replica.owner or 'nobody'}"
        if replica.session_ordinal < past.session_ordinal:
            yield f"S33: session of {replica.broker_id} fell from {past.session_ordinal} to {replica.session_ordinal}"
        if replica.incarnation is not None and replica.incarnation in past.ended_incarnations:
            yield f"R13: an ended incarnation of {replica.broker_id} lives again"
    if new.is_tombstone and old_ids and new.next_id < max(old_ids):
        yield f"W29: the tombstone forgot the ids up to {max(old_ids)}"


def _check_election(event: MasterElected) -> Iterator[str]:
    verdict = event.verdict
    previous, current = verdict.previous_epoch, event.master_epoch
    is_jump = current > previous and current % _EPOCH_JUMP == 0
    # Logs that the set did not write may show epochs of their own: a first epoch lies above all of them.
    is_above = verdict.kind in (ElectionKind.FIRST, ElectionKind.BOOTSTRAP) and current > previous
    if not (current == previous + 1 or is_jump or is_above):
        yield f"C1: an election went from epoch {previous} to {current}"
    if event.sync_state_set_epoch <= verdict.previous_set_epoch:
        yield f"C1: an election left SyncStateSetEpoch at {event.sync_state_set_epoch}"
    if event.master not in event.sync_state_set:
        yield f"C3: elected {event.master} is not in {event.sync_state_set}"
    candidates = {candidate.broker_id: candidate for candidate in verdict.candidates}
    winner = candidates.get(event.master)
    if winner is None or not winner.is_alive or winner.is_learner:
        yield f"C4: elected {event.master} is not an alive voter"
    if verdict.kind in _EXEMPT:
        return
    if event.master not in verdict.previous_set:
        yield f"C4: clean winner {event.master} was not in {verdict.previous_set}"
    if winner is not None and winner.kind is ReplicaKind.ROCKETMQ and event.sync_state_set != (event.master,):
        yield f"C5: Java winner {event.master} does not stand alone in {event.sync_state_set}"
    yield from _check_survivors(event, verdict.previous_set)


def _check_survivors(event: MasterElected, previous_set: tuple[BrokerId, ...]) -> Iterator[str]:
    strangers = set(event.sync_state_set) - set(previous_set)
    if strangers:
        yield f"R6: {sorted(strangers)} entered the set by a clean election"
    dead = [c.broker_id for c in event.verdict.candidates if c.broker_id in event.sync_state_set and not c.is_alive]
    if dead:
        yield f"R6: silent replicas {dead} are in the new set"
