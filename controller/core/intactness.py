"""
Judging a new incarnation: does it still hold what it acknowledged? (R3)

Here: the judgement with its reason. Not here: what follows from it (``registration``).

Rule 1: a reported end below the known confirm offset is a veto; an end above it is never a proof. The state
knows it, or the leader has heard a higher one in this masterEpoch.
Rule 2: boot id and store id are compared with the ids of the incarnation that is registered for the member. The ids
of the process's last start prove nothing: several restarts may lie between.
Rule 3: a suspect stays a suspect: a later clean restart does not bring back what an earlier one lost.
Rule 4: every proof needs the registered incarnation in the directory's list of earlier incarnations. A directory that
does not name it is an older copy, and lacks what that incarnation acknowledged.
Rule 5: every proof needs the same store: nothing on an empty disk in the place of the old one was ever synced (S65).
"""

from __future__ import annotations

from msgspec import UNSET
from msgspec.structs import replace

from rollcall_ha.controller.contract.commands import Operation, RegisterReplica
from rollcall_ha.controller.contract.ids import FlushMode, ReplicaKind
from rollcall_ha.controller.contract.verdicts import Intactness
from rollcall_ha.controller.core.recovery import CONFIRMED_LEVEL, lacks_confirmed
from rollcall_ha.controller.core.state import ReplicaState, SetState


def with_heard_confirm(set_state: SetState, operation: Operation) -> SetState:
    """The set as the leader knows it, which was told of its confirm since the state was (rule 1)."""
    evidence = operation.evidence
    # Of this reign: an unclean election between the leader's look and this entry took bytes that were confirmed before.
    if evidence is None or evidence.confirmed is UNSET or evidence.master_epoch != set_state.master_epoch:
        return set_state
    return replace(set_state, known_confirm=max(set_state.known_confirm, evidence.confirmed))


def judge(
    set_state: SetState, replica: ReplicaState, command: RegisterReplica, *, level: int
) -> tuple[Intactness, str]:
    """
    Say what a registration proves about the log that it brings, at the fleet's feature ``level``.

    Returns:
        The judgement and its reason, with both values where there are two. ``SUSPECT`` is only for the last member.
    """
    # No restart, nothing to prove. The mark of an earlier restart stays: a second session does not clear a suspect.
    if replica.incarnation == command.incarnation:
        if replica.is_suspect:
            return Intactness.SUSPECT, "the same process, which was a suspect before"
        return Intactness.SAME_INCARNATION, "the same process"
    if replica.incarnation is None:
        if not command.are_positions_known:
            return Intactness.NEW, "first registration, has not told what it holds"
        # A log that this set did not write gives no membership. Neither does an empty one, but that is no reproach.
        if command.positions.max_offset == 0:
            return Intactness.NEW, "first registration, empty log"
        return Intactness.NOT_INTACT, f"first registration, with a log that ends at {command.positions.max_offset}"
    proof, reason = _proof(set_state, replica, command, level)
    # Without its last member the set could elect no replica, and nothing would tell any more which replica had
    # the records. So it stays, marked: only an operator, or the longest of all members, brings it back (R3).
    if proof is None and set_state.sync_state_set == (replica.broker_id,):
        return Intactness.SUSPECT, f"{reason}; the last member of the SyncStateSet stays as a suspect"
    return proof or Intactness.NOT_INTACT, reason


def _proof(
    set_state: SetState, replica: ReplicaState, command: RegisterReplica, level: int
) -> tuple[Intactness | None, str]:
    end = command.positions.max_offset
    # First of all: power loss, then a clean restart on the same boot. Each proof below speaks of the last restart only.
    if replica.is_suspect:
        return None, "was a suspect before this restart"
    if command.description.kind is ReplicaKind.ROCKETMQ:
        return None, "a Java replica proves nothing when it restarts"
    # A veto, before every proof: a clean mark on a log that ends below what all members had confirmed was written by a
    # process that had lost the tail already.
    if end < set_state.known_confirm:
        return None, f"ends at {end}, below the known confirm offset {set_state.known_confirm}"
    if level >= CONFIRMED_LEVEL and (short := lacks_confirmed(set_state, replica, command.positions)):
        return None, short
    if replica.goodbye is not None and end < replica.goodbye.end_offset:
        # Neither the boot nor the store vouches for a log that was emptied between a stop and a start. A set of one
        # with 300 acknowledged records was elected as same-boot, and its empty log graded "proven, 0 B lost".
        return None, f"ends at {end}, it said goodbye at {replica.goodbye.end_offset}"
    # A disk was replaced and the machine kept running: "same boot" would be true, and every record gone.
    if not command.store_id or command.store_id != replica.store_id:
        return None, f"store {command.store_id!r} is not the registered store {replica.store_id!r}"
    # An operator put back Monday's copy of the directory on Tuesday, same machine, same boot, same store id. What
    # Tuesday's process acknowledged is not in it; only its list of incarnations tells.
    if replica.incarnation not in command.previous_incarnations:
        return None, f"its directory does not know of incarnation {replica.incarnation}, registered last: an older copy"
    # Nonce and end together. Without the nonce a mark of an earlier stop, left behind by a copy, would prove this one;
    # without the end, a log that grew after the mark and lost that in a power cut.
    mark = command.clean_mark
    if mark is not None and mark == replica.goodbye and mark.end_offset == end:
        return Intactness.CLEAN_STOP, f"clean mark matches the goodbye at {end}"
    # The kernel kept the mapped pages of the dead process. The boot is that of the incarnation that acked: "same boot
    # as my last start" is true of a process that died a second time after a power cut, and proves nothing.
    if command.boot_id and command.boot_id == replica.boot_id:
        return Intactness.SAME_BOOT, "same boot and same store: the process died, the mapped pages did not"
    if set_state.configuration is not None and set_state.configuration.flush is FlushMode.SYNC:
        return Intactness.SYNC_FLUSH, "every replica of this set syncs before it acks"
    return None, f"boot {command.boot_id!r} is not the registered boot {replica.boot_id!r}, and it did not stop cleanly"
