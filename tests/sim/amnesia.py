"""
The controllers lose their memory: all of them are wiped, or an old backup is put back (R7), or one alone is wiped.

Here: doing it, as an operator would with everything stopped, and what must then hold until the next election of each
set. Not here: when (``faults``), what the controllers do about it (``controller.core.recovery``).
Rule: ``Watch`` shares no code with ``recovery``. Whom to wait for it takes from what replicas said, what may be lost from
their disks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rollcall_ha.controller.contract.events import MasterElected, ReplicaRegistered
from rollcall_ha.controller.contract.ids import BrokerId, FleetIncarnation, MasterEpoch, SyncStateSet, SyncStateSetEpoch
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.core.backups import backed_up, restored
from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.replication.raft.catch_up import CATCHING_UP_FILE_NAME
from rollcall_ha.controller.replication.raft.member import FOUNDING_FILE_NAME
from rollcall_ha.controller.replication.raft.seeding import seed
from tests.support.raft_seams import raise_stopped

if TYPE_CHECKING:
    from tests.sim.world import ControllerMachine, World

JUMP = 2**20


class Watch:
    """I9: what is owed to one set from the loss of the controllers' memory to its next election."""

    def __init__(
        self,
        *,
        known: SyncStateSet,
        members: SyncStateSet,
        suspects: SyncStateSet,
        epoch_max: MasterEpoch,
        has_acked: bool,
        is_of_a_copy: bool,
        kept_out: SyncStateSet = (),
        set_epoch: SyncStateSetEpoch | None = None,
    ) -> None:
        """
        ``known``: the set by the backup; ``members``: the set that was committed when the memory went; ``suspects``:
        those of them that were known to have lost something, which is forgotten as well; ``kept_out``: cleaned before;
        ``set_epoch``: of ``members``, if they changed within the reign that the backup knows.
        """
        self.members = members
        self._set_epoch = set_epoch
        self._epoch_max = epoch_max
        self._has_acked = has_acked
        self.is_of_a_copy = is_of_a_copy
        """Their directories were put back (``copies``)."""
        self._cleaned: set[BrokerId] = set(kept_out)
        self._named: set[BrokerId] = set(known)
        self._reported: set[BrokerId] = set()
        self.doubtful: set[BrokerId] = set(suspects)

    def registered(self, event: ReplicaRegistered, *, has_lost: bool) -> None:
        """A replica reports, with all whom its stored view names; ``has_lost``: its disk did, since it was last judged."""
        self._named.update(event.stored.sync_state_set if event.stored is not None else ())
        self._named -= self._cleaned
        self._reported.add(event.broker_id)
        if has_lost:
            self.doubtful.add(event.broker_id)

    def is_over_with(self, event: ReplicaRegistered) -> bool:
        """Whether it decides once more, in the same words, all that was forgotten: nobody knows more than that."""
        again = event.sync_state_set, event.sync_state_set_epoch
        return self.is_of_a_copy and not event.is_recovering and again == (self.members, self._set_epoch)

    def cleaned(self, broker_ids: SyncStateSet) -> None:
        """Their machines are gone: nobody waits for them any more, and what they held is lost."""
        self._cleaned |= set(broker_ids)
        self._named -= self._cleaned
        self.doubtful |= set(broker_ids)

    @property
    def may_lose(self) -> bool:
        """Nobody who held everything is left: then the longest one is the best there is."""
        return set(self.members) <= self.doubtful

    def broken_by(self, event: MasterElected) -> str | None:
        """What this first election since then breaks."""
        kind, epoch = event.verdict.kind, event.master_epoch
        if epoch <= self._epoch_max:
            return f"R7: epoch {epoch} is given out, {self._epoch_max} was before the controllers lost their memory"
        if kind is ElectionKind.UNCLEAN:
            return None
        missing = sorted(self._named - self._reported)
        if missing:
            return f"R7: {kind.value} election of {event.master}, but {missing} are named and have not reported"
        if kind is ElectionKind.FIRST and self._has_acked:
            return f"R7: a first election of {event.master} in a set that has acknowledged messages"
        if kind is not ElectionKind.FIRST and epoch % JUMP:
            return f"R7: epoch {epoch} is no multiple of {JUMP}"
        return None


def wipe(world: World) -> None:
    """All controllers lose their disks and are founded anew, which draws a new fleet incarnation (``rollcall init``)."""
    world.fleet_incarnation = FleetIncarnation(world.kernel.hex_digits())
    _stop_all(world)
    for controller in world.controllers.values():
        controller.disk.replace(FOUNDING_FILE_NAME, b"founding\n")
    world.oracle.forgotten(None)
    world.counts.add("all controllers wiped")
    world.kernel.note("all controllers wiped")


def can_lose(world: World, machine: ControllerMachine) -> bool:
    """Whether a majority keeps its memory without this one: two wiped ones of three are a fleet to be restored (R7)."""
    if world.seats is not None and not world.seats.can_lose(machine):
        return False
    others = [one for one in world.controllers.values() if one is not machine]
    remembering = [one for one in others if one.disk.names() and not one.disk.exists(CATCHING_UP_FILE_NAME)]
    return world.seats is not None or 2 * len(remembering) > len(world.controllers)


def wipe_one(world: World, machine: ControllerMachine) -> None:
    """It comes back with an empty directory, the others go on: its votes and what it acknowledged are forgotten."""
    world.kill(machine)
    machine.disk.wipe()
    machine.mend()
    if world.seats is not None:
        world.seats.wiped(machine)
    world.counts.add("single controllers wiped")
    world.kernel.note(f"{machine.name} is wiped")


def restore(world: World, backup: FleetState) -> None:
    """All controllers begin with ``backup``, as ``rollcall restore`` does it, under a new name."""
    world.fleet_incarnation = FleetIncarnation(world.kernel.hex_digits())
    state, _ = restored(
        backed_up(backup, has_secrets=True), world.fleet_incarnation, restored_at_ms=backup.last_stamp_ms
    )
    _stop_all(world)
    _install(world, state)
    world.oracle.forgotten(state)
    world.counts.add("old backups restored")
    world.kernel.note(f"controllers restored to entry {state.index}")


def _install(world: World, state: FleetState) -> None:
    """On the empty disks of all controllers."""
    for name in world.founder_names:
        seed(world.controllers[name].disk, state, raise_stopped)


def _stop_all(world: World) -> None:
    """And empty their disks."""
    for controller in world.controllers.values():
        world.kill(controller)
        controller.disk.wipe()
        controller.mend()
    world.quorum.payloads.clear()
