"""
Who may give which order, as far as replicated state decides it.

Here: what a proven caller is refused, and to whom a broker id belongs. Not here: proofs (``node.certified``,
``tokens``), roles at the ports (``api.rest.roles``, ``api.broker_port``).

Rule 1 (R27): a broker id belongs to the name in the certificate of the broker that asked for it first; nobody else is
registered under it. A register code alone, read from a disk or a backup, is no broker.
Rule 2 (R27): a broker speaks for its own set, and gives the orders of a broker.
Rule 3 (R28): from the entry that revokes a certificate or a token on, nothing that it asks is done: also not what was
under way, and on no controller.
Rule 4: an insecure fleet proves nobody and believes everybody (``ProvedBy.NOTHING`` as admin), also about ids that were
bound before it became insecure.
"""

from __future__ import annotations

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import (
    AlterSyncStateSet,
    AnnounceStop,
    ApplyBrokerId,
    ElectMaster,
    Operation,
    RecordMilestones,
    RegisterReplica,
    ReportDrained,
    ReportEntered,
    ReportWrites,
    SayGoodbye,
)
from rollcall_ha.controller.contract.events import OwnerBound
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.controller.contract.principals import Principal, ProvedBy, Role
from rollcall_ha.controller.core.decision import Refusal
from rollcall_ha.controller.core.register_codes import owner_of
from rollcall_ha.controller.core.state import FleetState, ReplicaState

OWNER_HINT = (
    "start it with the certificate of its owner; if it has a new name for good, clean the replica and let it come with "
    "an empty data directory"
)

_OF_BROKERS = (
    ApplyBrokerId,
    RegisterReplica,
    AlterSyncStateSet,
    ReportEntered,
    ReportWrites,
    RecordMilestones,
    AnnounceStop,
    ReportDrained,
    SayGoodbye,
    ElectMaster,
)
"""Orders of brokers; RocketMQ's ask for elections, too."""


def refuse_caller(fleet: FleetState, operation: Operation) -> None:
    """Refuse an order by who its caller is."""
    caller = operation.principal
    if caller is not None:
        complaint = _revoked(fleet, caller) or _above_its_role(caller, operation)
        if complaint:
            raise Refusal(
                RefusalCode.FORBIDDEN,
                complaint,
                "ask an admin for a certificate or token whose role and set allow it",
                requested=getattr(operation.command, "set_key", None),
                current=caller.set_key,
            )
    _refuse_stranger(fleet, operation, caller)


def _revoked(fleet: FleetState, caller: Principal) -> str:
    # Rule 3. The ports close its links, each within two seconds. Its order that a follower passed on before that would
    # be done after its revocation, and the record would show a stranger's deed behind it.
    if caller.proved_by is ProvedBy.CERTIFICATE and caller.serial in fleet.revoked:
        return f"certificate {caller.serial} of {caller} is revoked"
    if caller.proved_by is ProvedBy.TOKEN:
        token = fleet.tokens.get(caller.serial)
        if token is None or token.revoked_at_ms is not None:
            return f"token {caller.serial} of {caller} is {'revoked' if token is not None else 'unknown'}"
    return ""


def _above_its_role(caller: Principal, operation: Operation) -> str:
    command = operation.command
    name = type(command).__name__
    if caller.role is Role.VIEWER:
        return f"{caller} may read only, not {name}"
    if caller.role is not Role.BROKER:
        return ""
    # Rule 2. One stolen disk of one set would else elect and clean in every set of the fleet.
    if not isinstance(command, _OF_BROKERS):
        return f"{caller} is a broker and may not {name}"
    is_unbound = caller.set_key is None and caller.proved_by in (ProvedBy.SIGNATURE, ProvedBy.NOTHING)
    if not is_unbound and caller.set_key != command.set_key:
        return f"{caller} speaks for {caller.set_key or 'no set'}, not for {command.set_key}"
    return ""


def _refuse_stranger(fleet: FleetState, operation: Operation, caller: Principal | None) -> None:
    replica = _claimed(fleet, operation)
    if replica is None or replica.owner is None or _is_owner(replica.owner, caller):
        return
    # Rule 1. The code of replica 2 is on its disk, and in each backup of it. With it, a process anywhere would be
    # replica 2: the real one is fenced, and a log that nobody knows is a member.
    name = "a caller without a proven name" if caller is None else str(caller)
    raise Refusal(
        RefusalCode.NOT_THE_OWNER,
        f"broker id {replica.broker_id} belongs to {Role.BROKER}:{replica.owner}, it was asked for by {name}",
        OWNER_HINT,
        requested=None if caller is None else caller.name,
        current=replica.owner,
    )


def _claimed(fleet: FleetState, operation: Operation) -> ReplicaState | None:
    """The replica that the caller says it is."""
    command = operation.command
    if not isinstance(command, ApplyBrokerId | RegisterReplica):
        return None
    set_state = fleet.sets.get(command.set_key)
    if set_state is None:
        return None
    if isinstance(command, RegisterReplica):
        return set_state.replica(command.broker_id)
    return set_state.replica(owner_of(set_state.replicas, command.register_code))


def _is_owner(owner: str, caller: Principal | None) -> bool:
    if caller is None:
        return False
    # Rule 4. Refused, every broker of a fleet that gave its certificates up would stay outside.
    if caller.role is Role.ADMIN and caller.proved_by is ProvedBy.NOTHING:
        return True
    return _binding_name(caller) == owner


def _binding_name(caller: Principal | None) -> str:
    """The name that a broker id can belong to; empty: this caller's proof names no single broker."""
    # A key of RocketMQ's is shared by all brokers of a cluster, and is replaced by another name: bound to it, the ids
    # of the whole cluster would be lost with the key.
    if caller is None or caller.role is not Role.BROKER or caller.proved_by is not ProvedBy.CERTIFICATE:
        return ""
    return caller.name


def binding(operation: Operation, broker_id: BrokerId, owner: str | None) -> tuple[OwnerBound, ...]:
    """The event by which an id of ``owner``, if that is nobody yet, becomes the caller's (rule 1)."""
    name = _binding_name(operation.principal)
    return (OwnerBound(broker_id=broker_id, owner=name),) if owner is None and name else ()
