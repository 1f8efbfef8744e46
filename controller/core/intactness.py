"""
Judging a new incarnation: does it still hold what it acknowledged? (R3)

Here: the judgement with its reason. Not here: what follows from it (``registration``).

Rule 1: a reported end below the known confirm offset is a veto; one above it is never a proof.
Rule 2: "same boot" and "same store" mean those of the incarnation that is registered for the member, over all restarts
since.
Rule 3: a suspect stays one: a later clean restart does not bring back what an earlier one lost.
Rule 4: every proof needs the registered incarnation among the directory's earlier lives: otherwise an older copy of the
directory was put back, which has neither that life nor what it acknowledged.
Rule 5: every proof needs the same store. An empty disk in the place of the old one was never synced by anybody (S65).
"""

from __future__ import annotations

from rollcall_ha.controller.contract.commands import RegisterReplica
from rollcall_ha.controller.contract.ids import FlushMode, ReplicaKind
from rollcall_ha.controller.contract.verdicts import Intactness
from rollcall_ha.controller.core.state import ReplicaState, SetState


def judge(set_state: SetState, replica: ReplicaState, command: RegisterReplica) -> tuple[Intactness, str]:
    """
    What a registration proves about the log that it brings.

    Returns:
        The judgement and its reason, with both values where there are two. ``SUSPECT`` is only for the last member.
    """
    if replica.incarnation == command.incarnation:
        if replica.is_suspect:
            return Intactness.SUSPECT, "the same process, which was a suspect before"
        return Intactness.SAME_INCARNATION, "the same process"
    if replica.incarnation is None:
        if not command.are_positions_known:
            return Intactness.NEW, "first registration, has not told what it holds"
        if command.positions.max_offset == 0:
            return Intactness.NEW, "first registration, empty log"
        return Intactness.NOT_INTACT, f"first registration, with a log that ends at {command.positions.max_offset}"
    proof, reason = _proof(set_state, replica, command)
    if proof is None and set_state.sync_state_set == (replica.broker_id,):
        return Intactness.SUSPECT, f"{reason}; the last member of the SyncStateSet stays as a suspect"
    return proof or Intactness.NOT_INTACT, reason


def _proof(set_state: SetState, replica: ReplicaState, command: RegisterReplica) -> tuple[Intactness | None, str]:
    end = command.positions.max_offset
    if replica.is_suspect:
        return None, "was a suspect before this restart"
    if command.description.kind is ReplicaKind.ROCKETMQ:
        return None, "a Java replica proves nothing when it restarts"
    if end < set_state.known_confirm:
        return None, f"ends at {end}, below the known confirm offset {set_state.known_confirm}"
    if not command.store_id or command.store_id != replica.store_id:
        return None, f"store {command.store_id!r} is not the registered store {replica.store_id!r}"
    if replica.incarnation not in command.previous_incarnations:
        return None, f"its directory does not know of incarnation {replica.incarnation}, registered last: an older copy"
    mark = command.clean_mark
    if mark is not None and mark == replica.goodbye and mark.end_offset == end:
        return Intactness.CLEAN_STOP, f"clean mark matches the goodbye at {end}"
    if command.boot_id and command.boot_id == replica.boot_id:
        return Intactness.SAME_BOOT, "same boot and same store: the process died, the mapped pages did not"
    if set_state.configuration is not None and set_state.configuration.flush is FlushMode.SYNC:
        return Intactness.SYNC_FLUSH, "every replica of this set syncs before it acks"
    return None, f"boot {command.boot_id!r} is not the registered boot {replica.boot_id!r}, and it did not stop cleanly"
