"""
What a backup has of the replicated state, and the state that restored controllers begin with.

Here: leaving secrets out, the restored state and its event. Not here: the file (``controller.contract.backups``),
judging it (``backup_walk``), directories (``controller.runtime.restore``), what happens then (``recovery``, R7).

Rule 1: what lets somebody in is a secret: register codes that are kept as they are (level 1), and tokens. Tokens are
kept as digests; put back, each of them would be in force again, also one that was revoked since. Without secrets they
come back revoked.
Rule 2: digests of register codes stay: without them no broker of the fleet could register again.
Rule 3 (R7): a restored fleet is another one: it has a new incarnation, and each set awaits its members.
"""

from __future__ import annotations

from msgspec.structs import replace

from rollcall_ha.controller.contract.backups import BACKUP_FORMAT, BackupHeader
from rollcall_ha.controller.contract.events import SCHEMA_VERSION, EventRecord, FleetRestored, chain_of
from rollcall_ha.controller.contract.ids import ControllerName, FleetIncarnation, MasterEpoch, RegisterCode, RequestId
from rollcall_ha.controller.core import gates
from rollcall_ha.controller.core.importing import IMPORTED_CODE
from rollcall_ha.controller.core.recovery import begin_again
from rollcall_ha.controller.core.register_codes import DIGEST_PREFIX, kept_code
from rollcall_ha.controller.core.state import FleetState, IssuedToken, ReplicaState, SetState

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
    return BackupHeader(
        rollcall_backup=BACKUP_FORMAT,
        fleet_name=fleet_name,
        fleet_incarnation=state.fleet_incarnation,
        feature_level=state.feature_level,
        term=state.term,
        index=state.index,
        chain_head=state.chain_head,
        highest_epoch=highest_epoch(state),
        sets=len(state.sets),
        taken_by=taken_by,
        taken_at_ms=taken_at_ms,
        contact_age_ms=contact_age_ms,
        has_secrets=has_secrets,
    )


def highest_epoch(state: FleetState) -> MasterEpoch:
    """Of all sets; 0 if there is none."""
    return max((one.master_epoch for one in state.sets.values()), default=MasterEpoch(0))


def backed_up(state: FleetState, *, has_secrets: bool) -> FleetState:
    """
    ``state`` as a backup has it. Answered requests are left out: a restored fleet answers for no earlier one.

    Raises ``ValueError``: it cannot be had without secrets.
    """
    state = replace(state, requests={})
    if has_secrets:
        return state
    # At level 1 a digest proves nothing: all brokers of the restored fleet would be refused.
    if not gates.keeps_digests_of_codes(state) and any(one.replicas for one in state.sets.values()):
        raise ValueError(
            f"the fleet is at feature level {state.feature_level} and keeps register codes as they are: raise its "
            "level (rollcall raise-level), or take the backup with --with-secrets"
        )
    return replace(
        state,
        sets={key: _without_codes(state, one) for key, one in state.sets.items()},
        tokens={name: replace(one, digest=f"{WITHHELD}{name}") for name, one in state.tokens.items()},
    )


def _without_codes(state: FleetState, one: SetState) -> SetState:
    # Of ids from before level 2 only; most sets have none, and stay the same object.
    if not any(map(_is_plain, one.replicas)):
        return one
    replicas = tuple(
        replace(replica, register_code=kept_code(state, replica.register_code)) if _is_plain(replica) else replica
        for replica in one.replicas
    )
    return replace(one, replicas=replicas)


def _is_plain(replica: ReplicaState) -> bool:
    return is_plain_code(replica.register_code)


def is_plain_code(code: RegisterCode) -> bool:
    """Whether it is a code itself, and so a secret."""
    return not code.startswith((DIGEST_PREFIX, IMPORTED_CODE))


def restored(
    state: FleetState, fleet_incarnation: FleetIncarnation, *, restored_at_ms: int
) -> tuple[FleetState, EventRecord | None]:
    """
    The state that all controllers begin with, one entry after the backup, and its event; None: the level has none.

    Of equal arguments, so that controllers which are restored one by one on their machines begin alike.
    """
    tokens = {name: _revoked(one, restored_at_ms) for name, one in state.tokens.items()}
    begun = replace(begin_again(state, fleet_incarnation), tokens=tokens, index=state.index + 1)
    if not gates.records_restores(state):
        return begun, None
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
