"""
What a backup has of the replicated state, and the state that restored controllers begin with.

Here: leaving secrets out, the restored state and its event. Not here: the file (``controller.contract.backups``),
judging it (``backup_walk``), directories (``controller.runtime.restore``), what happens then (``recovery``, R7).

Rule 1: what lets somebody in is a secret: tokens. They are kept as digests; put back, each of them would be in force
again, also one that was revoked since. Without secrets they come back revoked.
Rule 2: digests of register codes stay: without them no broker of the fleet could register again.
Rule 3 (R7): a restored fleet is another one: it has a new incarnation, and each set awaits its members.
"""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.backups import BACKUP_FORMAT, BackupHeader
from rollcall_ha.controller.contract.events import SCHEMA_VERSION, EventRecord, FleetRestored, chain_of
from rollcall_ha.controller.contract.ids import ControllerName, FleetIncarnation, MasterEpoch, RequestId
from rollcall_ha.controller.contract.values import made_from
from rollcall_ha.controller.core.recovery import begin_again
from rollcall_ha.controller.core.state import FleetState, IssuedToken

RESTORER = "restore"
"""Who asked for the event, and revoked the tokens."""
WITHHELD = "withheld:"
"""Instead of a token's digest; the id follows, because no two tokens may have one digest (C11)."""


def header_of(
    state: FleetState,
    *,
    fleet_name: str,
    taken_by: ControllerName,
    taken_at_ms: int,
    contact_age_ms: int,
    has_secrets: bool,
) -> BackupHeader:
    """Line 1 of a backup of ``state``."""
    return made_from(
        state,
        BackupHeader,
        rollcall_backup=BACKUP_FORMAT,
        fleet_name=fleet_name,
        highest_epoch=highest_epoch(state),
        sets=len(state.sets),
        taken_by=taken_by,
        taken_at_ms=taken_at_ms,
        contact_age_ms=contact_age_ms,
        has_secrets=has_secrets,
    )


def highest_epoch(state: FleetState) -> MasterEpoch:
    """The highest masterEpoch of any set; 0 if there is no set."""
    return max((one.master_epoch for one in state.sets.values()), default=MasterEpoch(0))


def backed_up(state: FleetState, *, has_secrets: bool) -> FleetState:
    """``state`` as a backup has it. Answered requests are left out: a restored fleet answers for no earlier one."""
    state = replace(state, requests={})
    if has_secrets:
        return state
    return replace(state, tokens={name: replace(one, digest=f"{WITHHELD}{name}") for name, one in state.tokens.items()})


def restored(
    state: FleetState, fleet_incarnation: FleetIncarnation, *, restored_at_ms: int
) -> tuple[FleetState, EventRecord]:
    """
    The state that all controllers begin with, one entry after the backup, and its event.

    Equal arguments give equal ones: controllers that are restored one by one, each on its machine, begin alike.
    """
    tokens = {name: _revoked(one, restored_at_ms) for name, one in state.tokens.items()}
    begun = replace(begin_again(state, fleet_incarnation), tokens=tokens, index=state.index + 1)
    record = EventRecord(
        version=SCHEMA_VERSION,
        fleet_incarnation=fleet_incarnation,
        term=begun.term,
        index=begun.index,
        ordinal=0,
        stamped_at_ms=restored_at_ms,
        set_key=None,
        request_id=RequestId(f"{RESTORER}-{fleet_incarnation}"),
        requested_by=RESTORER,
        event=FleetRestored(
            fleet_incarnation=fleet_incarnation, previous_fleet=state.fleet_incarnation, backup_index=state.index
        ),
    )
    record = replace(record, chain=chain_of(state.chain_head, record))
    return replace(begun, chain_head=record.chain), record


def _revoked(token: IssuedToken, at_ms: int) -> IssuedToken:
    if not token.digest.startswith(WITHHELD) or token.revoked_at_ms is not None:
        return token
    reason = "the fleet was restored from a backup without secrets"
    return replace(token, revoked_at_ms=at_ms, revoked_by=RESTORER, revoke_reason=reason)
