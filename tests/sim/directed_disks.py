"""
Directed cases of disks: the product's log and files on a disk that forgets, and one power cut or failed sync.

Here: what must be there afterwards, by a reader that shares no code with the log (``tests.sim.log``).
Not here: cases of machines (``directed``), the same faults by chance (``faults``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

from rollcall_ha.broker import identity
from rollcall_ha.broker.core.durable import EpochMarks
from rollcall_ha.broker.core.producers import ProducerStamp
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.values import CutReason
from rollcall_ha.broker.parts import Parts
from rollcall_ha.broker.replica_files import ReplicaFiles
from rollcall_ha.broker.role_shell import RoleShell
from rollcall_ha.controller.contract.ids import FlushMode, LogOffset, MasterEpoch
from rollcall_ha.epoch.model import EpochEntry
from tests.sim.log import RECORD_BYTES, STORE_HOST, ReplicaDisk, draft_of
from tests.sim.violation import Violation, must
from tests.support.core_builders import SET_A
from tests.support.sim_files import EVERY_SYNC, FileCalls, SimFiles
from tests.support.sim_kernel import Kernel


@contextmanager
def _disk(seed: int = 1) -> Iterator[SimFiles]:
    """``seed``: which pages a failed sync has written before it failed."""
    calls = FileCalls()
    try:
        disk = calls.disk(Kernel(seed), "b1")
        disk.boot()
        yield disk
    finally:
        calls.close()


def _open(disk: SimFiles, *, flush: FlushMode = FlushMode.ASYNC, stop: Callable[[BaseException], None]) -> CommitLog:
    return CommitLog.open(
        disk.folder,
        segment_bytes=16 * RECORD_BYTES,
        flush_mode=flush,
        store_host=STORE_HOST,
        stop_process=stop,
        post=lambda call: call(),
        now_ms=lambda: 1_800_000_000_000,
        on_flush_due=lambda: None,
        clock_s=lambda: 0.0,
    )


def _whole(error: BaseException) -> None:
    raise Violation(f"the log stops: {error}")


def _append(log: CommitLog, count: int) -> None:
    log.begin_run(stored_at_ms=1)
    for number in range(count):
        log.append(draft_of(ProducerStamp(b"p" * 16, 0, number), number))
    log.end_run()


def _lose_power(disk: SimFiles) -> ReplicaDisk:
    disk.lose_power(forgets_all=True)
    disk.boot()
    return ReplicaDisk(disk)


def cut_tail_comes_back() -> None:
    """S23: cut, then kill -9: records of equal size lie behind the cut with good CRCs."""
    with _disk() as disk:
        log = _open(disk, stop=_whole)
        log.record_epoch(EpochEntry(epoch=MasterEpoch(1), start_offset=LogOffset(0)))
        _append(log, 10)
        cut = LogOffset(4 * RECORD_BYTES)
        log.cut(cut, CutReason.TRUNCATION, "diverged")
        disk.crash()
        disk.boot()
        end = _open(disk, stop=_whole).max_offset
        must(end == cut, f"R20: cut to {cut}, after a crash the log ends at {end}")


def cut_over_a_power_cut() -> None:
    """Forty records on the disk, three are kept by a cut, then the power goes."""
    with _disk() as disk:
        log = _open(disk, stop=_whole)
        log.record_epoch(EpochEntry(epoch=MasterEpoch(1), start_offset=LogOffset(0)))
        _append(log, 40)
        log.flush_turn()
        cut = LogOffset(3 * RECORD_BYTES)
        log.cut(cut, CutReason.TRUNCATION, "diverged")
        after = _lose_power(disk)
        found = [record.value for record in after.records()]
        must(found == [0, 1, 2], f"R20: cut to {cut}, after a power cut the log has {found}")


def start_over_a_power_cut() -> None:
    """Records in the page cache, kill -9, a start that reports their end on the same boot, then the power goes."""
    with _disk() as disk:
        log = _open(disk, stop=_whole)
        log.flush_turn()
        log.record_epoch(EpochEntry(epoch=MasterEpoch(1), start_offset=LogOffset(0)))
        _append(log, 5)
        disk.crash()
        disk.boot()
        reported = _open(disk, stop=_whole).max_offset
        end = _lose_power(disk).end_on_disk()
        must(end >= reported, f"R3: intact on the same boot with {reported} bytes, {end} after a power cut")


def start_after_a_failed_sync() -> None:
    """The sync of five records fails; the next process, which sees them, calls them synced; then the power goes."""
    for seed in range(4):
        _start_after_a_failed_sync(seed)


def _start_after_a_failed_sync(seed: int) -> None:
    with _disk(seed) as disk:
        stopped: list[BaseException] = []
        log = _open(disk, flush=FlushMode.SYNC, stop=stopped.append)
        log.flush_turn()
        log.record_epoch(EpochEntry(epoch=MasterEpoch(1), start_offset=LogOffset(0)))
        _append(log, 5)
        # Every sync of this turn: the first is that of the next segment, which the log outlives and makes again.
        disk.failing_syncs = EVERY_SYNC
        log.flush_turn()
        disk.failing_syncs = 0
        must(stopped, "the log has outlived a failed sync of its records")
        disk.boot()
        again = _open(disk, stop=_whole)
        again.flush_turn()
        synced = again.flushed_offset
        end = _lose_power(disk).end_on_disk()
        must(end >= synced, f"R3: {synced} bytes are called synced after a failed sync, {end} after a power cut")


def promise_over_a_power_cut() -> None:
    """B promises epoch 7, acks in it, and loses its power: it must not follow the master of 6."""
    with _disk() as disk:
        files = ReplicaFiles(disk.folder)
        for epoch in (6, 7):
            files.marks.store(EpochMarks(promised=MasterEpoch(epoch)))
        _lose_power(disk)
        promised = ReplicaFiles(disk.folder).marks.load().promised
        must(promised == 7, f"R9: epoch 7 was promised, after a power cut {promised} is")


def promise_after_a_failed_sync() -> None:
    """The sync of the promise of epoch 7 fails; the next process reads it and acks in 7; then the power goes."""
    for seed in range(4):
        _promise_after_a_failed_sync(seed)


def _promise_after_a_failed_sync(seed: int) -> None:
    with _disk(seed) as disk:
        files = ReplicaFiles(disk.folder)
        files.marks.store(EpochMarks(promised=MasterEpoch(6)))
        disk.failing_syncs = EVERY_SYNC
        try:
            files.marks.store(EpochMarks(promised=MasterEpoch(7)))
        except OSError:
            disk.failing_syncs = 0
        must(not disk.failing_syncs, "a promise has outlived the failed sync of its file")
        disk.boot()
        read = identity.marks_on_disk(ReplicaFiles(disk.folder)).promised
        _lose_power(disk)
        promised = ReplicaFiles(disk.folder).marks.load().promised
        must(promised >= read, f"R9: a start went by the promise of epoch {read}, after a power cut it is {promised}")


def copy_of_a_directory() -> None:
    """An image of a running process is put back file by file: it names the incarnation that is registered."""
    with _disk() as disk:
        parts = Parts(birthmark=lambda _path: str(disk.births), boot_id=lambda: "boot")

        def store_of_a_start() -> str:
            return identity.remember(ReplicaFiles(disk.folder), SET_A, parts).process.store_id

        first, image = store_of_a_start(), disk.image()
        must(store_of_a_start() == first, "R3: a directory is another store at each start")
        disk.restore(image)
        must(store_of_a_start() != first, "R3: a copy of a directory is the same store")


def half_a_record_at_a_promotion() -> None:
    """The old master dies in the middle of a record; whoever has its half becomes master and takes a message."""
    with _disk() as disk:
        log = _open(disk, stop=_whole)
        log.record_epoch(EpochEntry(epoch=MasterEpoch(1), start_offset=LogOffset(0)))
        _append(log, 2)
        half = ReplicaDisk(disk).read_at(0, RECORD_BYTES // 2)
        with log.receive_view(len(half)) as view:
            view[:] = half
        log.commit_received(RECORD_BYTES // 2)
        start = RoleShell._record(cast("Any", SimpleNamespace(_commit_log=log)), MasterEpoch(2))
        whole = ReplicaDisk(disk).end_on_disk()
        must(start == whole, f"R12: epoch 2 begins at {start}, the last whole record ends at {whole}")


DISK_CASES: dict[str, Callable[[], None]] = {
    "cut-tail-comes-back": cut_tail_comes_back,
    "cut-over-a-power-cut": cut_over_a_power_cut,
    "start-over-a-power-cut": start_over_a_power_cut,
    "start-after-a-failed-sync": start_after_a_failed_sync,
    "promise-over-a-power-cut": promise_over_a_power_cut,
    "promise-after-a-failed-sync": promise_after_a_failed_sync,
    "copy-of-a-directory": copy_of_a_directory,
    "half-a-record-at-a-promotion": half_a_record_at_a_promotion,
}
"""By name, as ``directed.CASES``."""
