"""
The directory of a member that begins with a state: after the restore of a backup, with everything stopped.

Here: journal, snapshot and mark of founding on one disk. Not here: the state (``controller.core.backups``), where the
disk is (``controller.runtime.restore``).

Rule: every member of the group begins with the same one. All hold the last entry then, so whoever is elected has it.
"""

from __future__ import annotations

from rollcall_ha.controller.core.state import FleetState
from rollcall_ha.controller.replication.machine import FleetMachine
from rollcall_ha.controller.replication.raft.disk import Disk
from rollcall_ha.controller.replication.raft.failstop import FailStopPort
from rollcall_ha.controller.replication.raft.journal import NO_OP, DurableJournal
from rollcall_ha.controller.replication.raft.member import FOUNDING_FILE_NAME
from rollcall_ha.controller.replication.raft.snapshot import SNAPSHOT_FILE_NAME, encode_snapshot


def seed(disk: Disk, state: FleetState, fail_stop: FailStopPort) -> None:
    """Make an empty disk that of a member that has applied ``state`` and may vote; durable on return. Blocks."""
    previous, last = (NO_OP, state.index - 1, state.term), (NO_OP, state.index, state.term)
    journal = DurableJournal(disk, fail_stop)
    journal.install(previous, last)
    # The term of the backup: an entry of a lower one behind the snapshot's would be in no order.
    journal.setCurrentTerm(state.term, None)
    journal.sync()
    disk.replace(SNAPSHOT_FILE_NAME, encode_snapshot(previous, last, FleetMachine().encode(state)))
    # LAST: without it the member has no vote, and half of a seed founds nothing.
    disk.replace(FOUNDING_FILE_NAME, f"{state.fleet_incarnation}\n".encode())
