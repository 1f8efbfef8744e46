"""R20: a process that is killed between two of the segment drops of one cut starts again, and finishes the cut."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.cut import LOG_FOLDER_NAME
from rollcall_ha.broker.log.segment import SegmentError
from rollcall_ha.broker.log.values import CutReason
from rollcall_ha.epoch.model import EpochEntry, LogOffset, MasterEpoch
from tests.support.log_tools import SEGMENT_BYTES, append_all, crash, draft, log_bytes, never_synced, open_log


class Killed(BaseException):
    """Stands for SIGKILL: no handler of the product runs for it."""


def five_segments(root: Path) -> tuple[CommitLog, list[tuple[int, int]]]:
    log = open_log(root)
    log.record_epoch(EpochEntry(epoch=MasterEpoch(1), start_offset=LogOffset(0)))
    places: list[tuple[int, int]] = []
    while len(log._files.segments) < 5:
        places += append_all(log, draft(b"x" * 3000))
    return never_synced(log), places


def kill_at_rename(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """The ``number``-th segment that would go to quarantine kills the process instead."""
    rename, seen = Path.rename, 0

    def renamed(path: Path, target: Path) -> Path:
        nonlocal seen
        if path.parent.name == LOG_FOLDER_NAME and path.name.isdecimal():
            seen += 1
            if seen == number:
                raise Killed
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", renamed)


@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_killed_between_two_drops_of_a_truncation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Segments 1 to 4 go. It found 0, 3 and 4, said that 3 does not follow on, and never started again."""
    log, places = five_segments(tmp_path)
    cut = LogOffset(places[1][0])
    before = log_bytes(log)
    with monkeypatch.context() as patch:
        kill_at_rename(patch, number)
        with pytest.raises(Killed):
            log.cut(cut, CutReason.TRUNCATION, "diverged")

    log = open_log(tmp_path)

    assert log.max_offset == cut
    assert log_bytes(log) == before[:cut]
    assert log.recovery.finished_cut
    # The thread that syncs may have begun the next segment.
    kept = {path.name.removesuffix(".tmp") for path in (tmp_path / LOG_FOLDER_NAME).iterdir()}
    assert kept - {f"{SEGMENT_BYTES:020}"} == {f"{0:020}"}
    crash(log)


@pytest.mark.parametrize("number", [1, 2, 5])
def test_killed_between_two_drops_of_a_full_resync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """All segments go, and an empty log begins where the master's does."""
    log, _ = five_segments(tmp_path)
    start = LogOffset(2 * SEGMENT_BYTES)
    with monkeypatch.context() as patch:
        kill_at_rename(patch, number)
        with pytest.raises(Killed):
            log.set_aside(start, "the master begins there")

    log = open_log(tmp_path)

    assert (log.min_offset, log.max_offset) == (start, start)
    assert not log.history
    crash(log)


def test_a_hole_without_a_cut_and_one_before_its_offset_are_refused(tmp_path: Path) -> None:
    """A segment that somebody removed is no drop: going on would move every later record."""
    log, _ = five_segments(tmp_path)
    crash(log)
    removed = sorted((tmp_path / LOG_FOLDER_NAME).iterdir())[2]
    removed.unlink()

    with pytest.raises(SegmentError, match="does not follow on"):
        open_log(tmp_path)
