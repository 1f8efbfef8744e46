"""
After a sync that failed: the kernel forgets that the pages are dirty, shows them to the next process all the same, and
calls its syncs a success. What that process promises must not rest on them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rollcall_ha.broker.core.durable import EpochMarks
from rollcall_ha.broker.identity import remember
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.replica_files import ReplicaFiles
from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, FlushMode, MasterEpoch, SetKey
from tests.support.log_tools import SEGMENT_BYTES, STORE_HOST, append_all, draft
from tests.support.sim_files import FileCalls, SimFiles
from tests.support.sim_kernel import Kernel

KEY = SetKey(cluster=ClusterName("c"), name=BrokerName("b"))


@pytest.fixture(params=range(4))
def disk(request: pytest.FixtureRequest) -> Iterator[SimFiles]:
    """By seed the pages of a failed sync are dropped when the process ends, or stay to be seen."""
    calls = FileCalls()
    found = calls.disk(Kernel(request.param), "h1")
    found.boot()
    yield found
    calls.close()


def open_log(disk: SimFiles, failures: list[BaseException]) -> CommitLog:
    """In mode sync; it is flushed when the test says so."""
    return CommitLog.open(
        disk.folder,
        segment_bytes=SEGMENT_BYTES,
        flush_mode=FlushMode.SYNC,
        store_host=STORE_HOST,
        stop_process=failures.append,
        post=lambda call: call(),
        on_flush_due=lambda: None,
    )


def log_on_disk(disk: SimFiles) -> bytes:
    """The bytes of all segments, as a reader finds them."""
    return b"".join(path.read_bytes() for path in sorted((disk.folder / "commitlog").iterdir()))


def test_r3_what_a_start_calls_synced_is_on_disk_though_a_sync_failed_before_it(disk: SimFiles) -> None:
    """Four records, their sync fails, the process ends and starts again: what it acks survives the next power cut."""
    failures: list[BaseException] = []
    log = open_log(disk, failures)
    log.flush_turn()
    append_all(log, *(draft(b"%05d" % number * 300) for number in range(4)))
    # The first is that of the next segment, which is made again; the second is of the records.
    disk.failing_syncs = 2
    log.flush_turn()
    assert isinstance(failures[0], OSError)
    disk.crash()
    disk.boot()

    again = open_log(disk, failures)
    again.flush_turn()
    acked = again.ackable_offset
    written = log_on_disk(disk)[:acked]
    disk.lose_power(forgets_all=True)
    disk.boot()
    assert log_on_disk(disk)[:acked] == written
    after = open_log(disk, failures)

    assert after.max_offset >= acked
    assert not after.recovery.lost


def test_r9_a_promise_that_a_start_has_read_is_on_disk_though_its_sync_failed(disk: SimFiles) -> None:
    """
    The sync of the promise of epoch 7 fails. The next process reads 7, acks in it, and the power goes.

    Read back as 6, it would follow the master of 6, whose messages the master of 7 has cut.
    """
    files = ReplicaFiles(disk.folder)
    files.marks.store(EpochMarks(promised=MasterEpoch(6)))
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="Input/output"):
        files.marks.store(EpochMarks(promised=MasterEpoch(7)))
    disk.boot()  # the pages stay to be seen

    promised = remember(ReplicaFiles(disk.folder), KEY).marks.promised
    disk.lose_power(forgets_all=True)
    disk.boot()

    assert ReplicaFiles(disk.folder).marks.load().promised == promised
