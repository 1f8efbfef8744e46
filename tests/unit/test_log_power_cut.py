"""What the log, the marks and the epoch file promise over a power cut, on a disk that forgets each unsynced byte."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollcall_ha.broker.core.durable import EpochMarks
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.flush import GroupFlusher
from rollcall_ha.broker.log.values import CutReason
from rollcall_ha.broker.replica_files import MarksFile
from rollcall_ha.controller.contract.ids import LogOffset, MasterEpoch
from tests.support.log_tools import append_all, crash, draft, log_bytes, never_synced, open_log
from tests.support.power_cut import PowerCuttableFolder


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PowerCuttableFolder]:
    root = tmp_path / "before"
    root.mkdir()
    folder = PowerCuttableFolder(root, monkeypatch)
    yield folder
    folder.close()


def synced_log(disk: PowerCuttableFolder, bodies: int) -> tuple[CommitLog, list[tuple[int, int]]]:
    """A log whose records are all on disk, and from here on nothing is synced by its flush thread."""
    log = open_log(disk.root)
    places = append_all(log, *(draft(b"%05d" % number * 300) for number in range(bodies)))
    crash(log)
    return never_synced(open_log(disk.root)), places


def test_the_disk_forgets_what_nobody_synced(disk: PowerCuttableFolder, tmp_path: Path) -> None:
    """The harness itself: without a sync the record is gone, or the other tests here could not fail."""
    log = never_synced(open_log(disk.root))
    append_all(log, draft())

    after = open_log(disk.cut_power(tmp_path / "after"))

    assert log.max_offset > 0
    assert after.max_offset == 0
    crash(after)
    crash(log)


def test_r20_a_cut_is_on_disk_when_it_returns(disk: PowerCuttableFolder, tmp_path: Path) -> None:
    """
    Nine records, three are kept. Were the zeros not synced, the power cut would bring six back: records that the
    master does not have, below the end that this replica reports.
    """
    log, places = synced_log(disk, bodies=9)
    cut = LogOffset(places[3][0])
    log.cut(cut, CutReason.TRUNCATION, "the master does not have them")
    kept = log_bytes(log)
    crash(log)

    after = open_log(disk.cut_power(tmp_path / "after"))

    assert after.max_offset == cut
    assert log_bytes(after) == kept
    assert not any(after._files.segments[0].view[cut:])
    crash(after)


def test_r20_a_cut_over_segments_is_on_disk_when_it_returns(disk: PowerCuttableFolder, tmp_path: Path) -> None:
    """Thirty records in three segments, two are kept: no dropped segment comes back."""
    log, places = synced_log(disk, bodies=30)
    assert len(log._files.segments) >= 3
    cut = LogOffset(places[2][0])
    log.cut(cut, CutReason.TRUNCATION, "the master does not have them")
    crash(log)

    after = open_log(disk.cut_power(tmp_path / "after"))

    assert after.max_offset == cut
    crash(after)


def test_r3_what_a_start_returned_survives_the_power_cut_that_follows(
    disk: PowerCuttableFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """
    The process dies with records in the page cache, starts again on the same boot, registers their end as intact and
    the power fails: without a sync at the start, a member of the SyncStateSet lacks what it reported.
    """
    log = never_synced(open_log(disk.root))
    append_all(log, *(draft(b"%05d" % number * 300) for number in range(5)))
    end = log.max_offset
    crash(log)

    # The flush thread would sync a moment later, and hide a start that did not.
    monkeypatch.setattr(GroupFlusher, "request_chores", lambda _flusher: None)
    again = open_log(disk.root)
    reported = again.max_offset
    after = open_log(disk.cut_power(tmp_path / "after"))

    assert reported == end
    assert after.max_offset == end
    crash(again)
    crash(after)


def test_r9_a_promise_is_on_disk_when_it_is_given(disk: PowerCuttableFolder, tmp_path: Path) -> None:
    """Replica 3 promised epoch 7 and acked in it; after a power cut it must not follow the master of 6."""
    marks = MarksFile(disk.root / "marks")
    marks.store(EpochMarks(promised=MasterEpoch(6)))
    marks.store(EpochMarks(promised=MasterEpoch(7)))

    after = MarksFile(disk.cut_power(tmp_path / "after") / "marks").load()

    assert after.promised == 7
