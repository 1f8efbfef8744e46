"""
Broker ids: bound to a register code, once and for ever.

Here: ``decide_apply_id``. Not here: registering with the id (``registration``).

Rule 1: one id, one register code; ids are never used again, also not after cleaning (C6, S62, S63).
Rule 2: the next free id, or the id that the code already has; never another one that happens to be free (W26).
"""

from __future__ import annotations

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import ApplyBrokerId, Operation
from rollcall_ha.controller.contract.events import BrokerIdGranted
from rollcall_ha.controller.contract.replies import IdGranted
from rollcall_ha.controller.core.callers import binding
from rollcall_ha.controller.core.decision import Decision, Refusal
from rollcall_ha.controller.core.register_codes import kept_code, owner_of
from rollcall_ha.controller.core.state import REPLICAS_PER_SET_MAX, FleetState, SetState


def decide_apply_id(fleet: FleetState, operation: Operation, command: ApplyBrokerId) -> Decision:
    """Grant an id, or answer the one that the register code has. A repeat changes nothing."""
    if not command.register_code or not command.set_key.cluster or not command.set_key.name:
        raise Refusal(
            RefusalCode.INVALID_ARGUMENT,
            f"register code {command.register_code!r} or set {str(command.set_key)!r} is empty",
            "draw a register code and store it before asking for an id",
        )
    set_state = fleet.sets.get(command.set_key) or SetState(set_key=command.set_key)
    # The answer was lost and the broker asks again: a second id would be a second replica on one disk (S62).
    bound = owner_of(set_state.replicas, command.register_code)
    if bound is not None:
        if command.applied_broker_id not in (None, bound):
            raise Refusal(
                RefusalCode.BROKER_ID_INVALID,
                f"this register code has id {bound}, asked for {command.applied_broker_id}",
                f"use id {bound}",
                requested=command.applied_broker_id,
                current=bound,
            )
        replica = set_state.replica(bound)
        owner = replica.owner if replica is not None else None
        return Decision(answer=IdGranted(broker_id=bound), events=binding(operation, bound, owner))
    # Wiped controllers do not know which ids were given: 2 given to a newcomer is also the id of a member that has not
    # come back yet, and the newcomer, empty, would be that member (R7).
    if set_state.recovery is not None:
        raise Refusal(
            RefusalCode.WAITING_FOR_REPORTS,
            f"no id is granted in {command.set_key} before replicas {list(set_state.recovery.awaited)} have reported "
            "and a master is elected",
            "retry when the set has a master",
        )
    # An id that a caller remembers and nobody has here: it was cleaned, or belongs to another fleet (C6).
    if command.applied_broker_id not in (None, set_state.next_id):
        raise Refusal(
            RefusalCode.BROKER_ID_INVALID,
            f"id {command.applied_broker_id} is not the next one, {set_state.next_id}",
            "ask for the next id and retry",
            requested=command.applied_broker_id,
            current=set_state.next_id,
        )
    if len(set_state.replicas) >= REPLICAS_PER_SET_MAX:
        raise Refusal(
            RefusalCode.INVALID_REQUEST,
            f"{command.set_key} has {len(set_state.replicas)} ids, at most {REPLICAS_PER_SET_MAX} are kept",
            "clean replicas that will not come back",
        )
    return Decision(
        answer=IdGranted(broker_id=set_state.next_id),
        events=(
            BrokerIdGranted(
                broker_id=set_state.next_id,
                register_code=kept_code(command.register_code),
                address=command.address,
            ),
            *binding(operation, set_state.next_id, None),
        ),
    )
