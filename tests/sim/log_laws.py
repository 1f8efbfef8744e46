"""
Laws of logs, looked at while they are written and read: at joins, at acks, at cuts (D3-D6), at starts (I11).

Here: comparing the files of a slave with those of the master that it follows, and a log with the queues that a start made
of it. Not here: the end of a seed, where all replicas must be equal (``oracle.converged``).
Rule: only a master that still reigns in the link's epoch is compared with: one that left it may have been cut since.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from rollcall_ha.controller.contract.ids import BrokerId, Incarnation, LogOffset, MasterEpoch, SetKey
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.epoch.model import EpochEntry
from tests.sim.delays import look_at_deliveries
from tests.sim.log import Record, ReplicaDisk
from tests.sim.violation import Violation
from tests.support.sim_kernel import Counts

FORCED_PERCENT, REFUSED_PERCENT = 85, 90
Reigning = Callable[[SetKey, BrokerId], tuple[Incarnation, MasterEpoch] | None]
"""Which process is master of which epoch now, if that replica is."""
_BLOCK_BYTES: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """One turn of a replica, as somebody beside it sees it."""

    segments: int
    """In its folder, before it."""
    room: int
    start: LogOffset
    confirm: LogOffset
    needed: Sequence[LogOffset]
    """Where each slave on a link is, when it was decided."""
    is_refusing: bool
    role: BrokerState
    told_since: int
    lost: Sequence[Record]


class LogLaws:
    """One per world."""

    def __init__(self, counts: Counts, disk_of: Callable[[SetKey, BrokerId], ReplicaDisk], reigning: Reigning) -> None:
        self._counts = counts
        self._disk_of = disk_of
        self._reigning = reigning
        self._confirms: dict[tuple[SetKey, MasterEpoch], LogOffset] = {}

    def _master_disk(
        self, key: SetKey, master: BrokerId, incarnation: Incarnation, epoch: MasterEpoch
    ) -> ReplicaDisk | None:
        return self._disk_of(key, master) if self._reigning(key, master) == (incarnation, epoch) else None

    def joined(
        self, key: SetKey, slave: ReplicaDisk, master: BrokerId, incarnation: Incarnation, epoch: MasterEpoch
    ) -> None:
        """D3: the handshake is over: the slave's log and epochs are a prefix of the master's."""
        theirs = self._master_disk(key, master, incarnation, epoch)
        if theirs is None:
            return
        self._counts.add("logs compared at joins")
        end = slave.size()
        if end > theirs.size():
            raise Violation(f"D3: {slave.name} joins epoch {epoch} with {end} bytes, its master has {theirs.size()}")
        start = max(slave.begin(), theirs.begin())
        self._same(slave, theirs, start, end, f"D3: {slave.name} joins epoch {epoch} of {theirs.name}")
        ours, masters = _epochs_in(slave, start, end), _epochs_in(theirs, start, end)
        if ours != masters:
            raise Violation(f"D3: {slave.name} joins epoch {epoch} with epochs {ours}, its master has {masters}")

    def acked(
        self,
        key: SetKey,
        slave: ReplicaDisk,
        master: BrokerId,
        incarnation: Incarnation,
        epoch: MasterEpoch,
        *,
        before: LogOffset,
        ack: LogOffset,
    ) -> None:
        """D5: what is acked is there, and is what the master has; ``before`` was acked on this link already."""
        if ack > slave.size():
            raise Violation(f"D5: {slave.name} acks {ack}, its log ends at {slave.size()}")
        theirs = self._master_disk(key, master, incarnation, epoch)
        if theirs is not None and ack > before:
            self._counts.add("acks compared")
            start = max(before, slave.begin(), theirs.begin())
            self._same(slave, theirs, start, ack, f"D5: {slave.name} acks {ack} in epoch {epoch} to {theirs.name}")

    def cut(
        self, key: SetKey, slave: ReplicaDisk, master: BrokerId, incarnation: Incarnation, epoch: MasterEpoch
    ) -> None:
        """D3: what a cut leaves is a prefix of the master's log."""
        theirs = self._master_disk(key, master, incarnation, epoch)
        if theirs is None:
            return
        self._counts.add("logs compared at cuts")
        end = min(slave.size(), theirs.size())
        start = max(slave.begin(), theirs.begin())
        self._same(slave, theirs, start, end, f"D3: {slave.name} was cut to {slave.size()} for epoch {epoch}")

    def appended(self, name: str, reign: MasterEpoch, last: MasterEpoch) -> None:
        """D4: a master's bytes are labelled with its own epoch."""
        if reign != last:
            raise Violation(f"D4: {name} reigns in epoch {reign} and appends under epoch {last}")

    def read_again(self, name: str, start: int, records: Sequence[Record], queue_end: int) -> None:
        """I11: places in the queue have no gap, and the next message gets the one behind them, whoever reads the log."""
        look_at_deliveries(name, records, start=start)
        places = [record.queue_offset for record in records if record.is_queued and record.topic == b"t"]
        self._counts.add("prepared records read again", sum(not record.is_queued for record in records))
        following = [*range(places[0], places[0] + len(places))] if places else []
        if places != following or (places and queue_end != following[-1] + 1):
            last = places[-1] if places else None
            raise Violation(f"I11: {name} reads {len(places)} places up to {last} again, and goes on at {queue_end}")

    def folded(self, name: str, records: Sequence[Record], end: int, units: Sequence[tuple[int, int]]) -> None:
        """I12: a consume queue names the records below ``end`` that have a place in it, in order, and no other."""
        ours = (record for record in records if record.is_queued and record.topic == b"t")
        here = [(record.offset, record.size) for record in ours if record.end <= end]
        # Behind a deletion they follow a moment later.
        units = [unit for unit in units if not records or unit[0] >= records[0].offset]
        self._counts.add("units of consume queues compared", len(here))
        if list(units) != here:
            differ = next(
                (n for n, (a, b) in enumerate(zip(units, here, strict=False)) if a != b), min(len(units), len(here))
            )
            raise Violation(
                f"I12: {name} has {len(units)} units of {len(here)} records below {end}; number {differ} differs"
            )

    def deleted(self, name: str, deletion: Deletion) -> None:
        """I14: a log loses its front for a full disk only, and nothing that this set or its members need still."""
        self._counts.add("segments deleted for room")
        one, says = deletion, f"I14: {name} deletes up to {deletion.start}"
        used_percent = 100 * one.segments / one.room
        if used_percent < FORCED_PERCENT:
            raise Violation(f"{says} on a disk that is {used_percent:.0f} % full")
        if one.role not in (BrokerState.MASTER, BrokerState.SLAVE, BrokerState.LEARNER):
            raise Violation(f"{says} as {one.role}: what it has may be the only copy")
        if one.start > one.confirm:
            raise Violation(f"{says}, confirmed is {one.confirm}")
        if one.told_since < one.start:
            raise Violation(f"{says}, the log says where its queues go on as of {one.told_since}")
        if one.lost:
            raise Violation(f"{says} what still waits for its time: {one.lost[0]}")
        passed = [at for at in one.needed if at < one.start]
        self._counts.add("copies passed by deletions", len(passed))
        if passed and not one.is_refusing and used_percent < REFUSED_PERCENT:
            raise Violation(f"{says}, its slaves have {sorted(one.needed)}")

    def confirmed(
        self, key: SetKey, epoch: MasterEpoch, confirm: LogOffset, acks: dict[BrokerId, LogOffset | None]
    ) -> None:
        """D6: confirm never falls within an epoch, and every other required member has acked it (W9)."""
        known = self._confirms.get((key, epoch), LogOffset(0))
        if confirm < known:
            raise Violation(f"D6: confirm of epoch {epoch} fell from {known} to {confirm}")
        self._confirms[key, epoch] = confirm
        for member, ack in acks.items():
            if ack is None or ack < confirm:
                raise Violation(f"D6: epoch {epoch} confirms {confirm}, required member {member} has acked {ack}")

    def _same(self, one: ReplicaDisk, other: ReplicaDisk, start: int, end: int, what: str) -> None:
        if end <= start:
            return
        ours, theirs = (disk.read_at(start, end - start) for disk in (one, other))
        # By blocks: byte by byte, the disks of a set with a rotten one took a tenth of a run.
        for at in range(0, len(ours), _BLOCK_BYTES) if ours != theirs else ():
            block, other_block = ours[at : at + _BLOCK_BYTES], theirs[at : at + _BLOCK_BYTES]
            if block == other_block:
                continue
            for place, (byte, other_byte) in enumerate(zip(block, other_block, strict=True), start + at):
                if byte != other_byte and not one.is_rotten_at(place) and not other.is_rotten_at(place):
                    raise Violation(f"{what}: the logs differ at {place}")


def _epochs_in(disk: ReplicaDisk, start: int, end: int) -> tuple[EpochEntry, ...]:
    """Epochs that have a byte of [``start``, ``end``): a follower records an entry with its first byte only (R9)."""
    if end <= start:
        return ()
    return tuple(disk.history().truncated_suffix(LogOffset(end)).truncated_prefix(LogOffset(start)).entries)
