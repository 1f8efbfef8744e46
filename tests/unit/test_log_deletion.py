"""R31: segments go from the front of a log, whenever the process or the power dies meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from rollcall_ha.broker.log import checkpoint
from rollcall_ha.broker.log.checkpoint import LogState
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.cut import LOG_FOLDER_NAME
from rollcall_ha.broker.log.segment import SegmentError
from rollcall_ha.broker.log.told_queues import Part, Told, find_part, parts_of
from rollcall_ha.broker.log.values import CutReason
from rollcall_ha.epoch.model import EpochEntry, LogOffset, MasterEpoch
from tests.support.fold_tools import confirm_all, open_folds, take_all
from tests.support.log_tools import (
    SEGMENT_BYTES,
    append_all,
    crash,
    draft,
    log_bytes,
    never_synced,
    open_log,
    settle,
    tell_queues,
)
from tests.support.power_cut import PowerCuttableFolder


class Killed(BaseException):
    """Stands for SIGKILL: no handler of the product runs for it."""


def five_segments(root: Path, **named: Callable[[str], None]) -> CommitLog:
    """Confirmed and synced; epoch 1 begins at 0, epoch 2 in segment 1, epoch 3 with segment 3."""
    log = open_log(root, **named)  # type: ignore[arg-type]
    log.record_epoch(EpochEntry(epoch=MasterEpoch(1), start_offset=LogOffset(0)))
    append_all(log, draft(b"once", topic=b"Idle", queue_id=4))
    while len(log._files.segments) < 5:
        if log.max_offset > SEGMENT_BYTES and log.history.last_epoch == 1:
            log.record_epoch(EpochEntry(epoch=MasterEpoch(2), start_offset=log.max_offset))
        append_all(log, draft(b"x" * 3000))
    settle(log)
    # Its thread may begin the next segment meanwhile. In a killed process it would be dead: a log opened beside it found
    # the half-made file, and then it was gone.
    return never_synced(log)


def names(root: Path) -> list[int]:
    return sorted(int(path.name) for path in (root / LOG_FOLDER_NAME).iterdir() if path.name.isdecimal())


def test_what_is_left_is_a_whole_log_that_begins_later(tmp_path: Path) -> None:
    log = five_segments(tmp_path)
    start = LogOffset(2 * SEGMENT_BYTES)
    before = log_bytes(log)

    assert log.front.delete(start) == start
    log.front.close_all()

    assert (log.min_offset, log.front.is_whole) == (start, True)
    assert names(tmp_path)[0] == start
    assert [entry.epoch for entry in log.history.entries] == [2], "the epoch that covers the beginning, with its start"
    assert log.reader.record(0, 100) is None
    assert log.region(LogOffset(0), 100) is None
    append_all(log, draft(b"more"))
    crash(log)

    again = open_log(tmp_path)
    assert (again.min_offset, again.front.is_whole, again.recovery.lost) == (start, True, "")
    assert log_bytes(again)[: len(before) - start] == before[start:]
    crash(again)


def test_what_is_not_confirmed_or_synced_stays(tmp_path: Path) -> None:
    """Deleted above confirm, a message could be gone that a failover makes the only copy of."""
    log = open_log(tmp_path)
    while len(log._files.segments) < 4:
        append_all(log, draft(b"x" * 3000))
    log._flusher.stop()  # type: ignore[union-attr]
    log._synced = log.whole_offset
    log.note_confirm(LogOffset(SEGMENT_BYTES), LogOffset(0))

    assert log.front.delete(LogOffset(2 * SEGMENT_BYTES)) == 0
    log.note_confirm(log.whole_offset, LogOffset(0))
    log._synced = LogOffset(SEGMENT_BYTES)
    assert log.front.delete(LogOffset(2 * SEGMENT_BYTES)) == 0
    assert log.front.delete(LogOffset(SEGMENT_BYTES + 1)) == 0, "no segment begins there"
    assert log.front.delete(LogOffset(0)) == 0
    assert log.front.delete(LogOffset(SEGMENT_BYTES)) == SEGMENT_BYTES
    crash(log)


def test_a_record_in_a_readers_hand_stays_readable(tmp_path: Path) -> None:
    log = five_segments(tmp_path)
    held = log.reader.record(0, 60)
    assert held is not None
    seen = bytes(held)

    log.front.delete(LogOffset(2 * SEGMENT_BYTES))
    log.front.close_all()

    assert bytes(held) == seen
    held.release()
    log.front.close_all()
    assert not log.front._deleted
    crash(log)


def test_a_log_without_a_segment_has_no_front(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.front.segments() == []
    append_all(log, draft())
    assert log.front.segments() == [(0, SEGMENT_BYTES, None)]
    while len(log._files.segments) < 3:
        append_all(log, draft(b"x" * 3000))
    log._files.segments[1].view[84:88] = b"\xff" * 4
    assert log.front.segments()[0] == (0, SEGMENT_BYTES, None), "a damaged record tells no time, and ends no process"
    assert log.front.segments()[1] == (SEGMENT_BYTES, 2 * SEGMENT_BYTES, 1_700_000_000_001)
    crash(log)
    assert log.front.delete(LogOffset(SEGMENT_BYTES)) == 0, "it is closed"


STEPS = ["delete-state", "delete-segment", "delete-segment", "delete-epochs"]


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_killed_at_each_step_it_starts_again_as_the_old_log_or_the_new_one(tmp_path: Path, number: int) -> None:
    """It found segment 1 without 0, and said that the log had lost bytes, or that a segment does not follow on."""
    steps: list[str] = []

    def step(name: str) -> None:
        if name.startswith("delete"):
            steps.append(name)
            if len(steps) == number + 1:
                raise Killed

    log = five_segments(tmp_path, before_step=step)
    before, start = log_bytes(log), LogOffset(2 * SEGMENT_BYTES)
    with pytest.raises(Killed):
        log.front.delete(start)
    assert steps == STEPS[: number + 1]

    losses: list[bool] = []
    again = open_log(tmp_path, on_loss=lambda: losses.append(True))

    begins = 0 if number == 0 else start
    assert (again.min_offset, again.front.is_whole, again.recovery.lost, losses) == (begins, True, "", [])
    assert log_bytes(again) == before[begins:]
    assert [entry.epoch for entry in again.history.entries] == ([1, 2] if number == 0 else [2])
    crash(again)


@pytest.mark.parametrize("number", range(len(STEPS)))
def test_the_power_goes_at_each_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """Names that nobody synced come back: the segments that are there again are removed, not read."""
    root = tmp_path / "before"
    root.mkdir()
    disk = PowerCuttableFolder(root, monkeypatch)
    steps: list[str] = []

    def step(name: str) -> None:
        if name.startswith("delete"):
            steps.append(name)
            if len(steps) == number + 1:
                raise Killed

    log = five_segments(disk.root, before_step=step)
    with pytest.raises(Killed):
        log.front.delete(LogOffset(2 * SEGMENT_BYTES))
    again = open_log(disk.cut_power(tmp_path / "after"))

    assert again.min_offset == (0 if number == 0 else 2 * SEGMENT_BYTES)
    assert (again.recovery.lost, again.front.is_whole) == ("", True)
    crash(again)
    disk.close()


def test_a_disk_that_refuses_the_state_leaves_the_log_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unlinked without it, the next start would call the log a lost one, and leave the set."""
    log = five_segments(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("rollcall_ha.broker.log.checkpoint.write_small", full)
        with pytest.raises(OSError, match="No space"):
            log.front.delete(LogOffset(SEGMENT_BYTES))

    assert (log.min_offset, names(tmp_path)[0], log.front.deleted_to) == (0, 0, 0)
    assert log.front.delete(LogOffset(SEGMENT_BYTES)) == SEGMENT_BYTES
    crash(log)


def test_a_spare_segment_kept_a_full_disk_from_being_freed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state found no room, beside a gigabyte that nobody had written to yet."""
    log = five_segments(tmp_path)
    log._preallocator.request()
    log._prepare_segment()
    spare = log._preallocator.spare
    assert spare is not None
    write = checkpoint.write_small

    def full(path: Path, value: LogState) -> None:
        if spare.path.exists():
            raise OSError(28, "No space left on device")
        write(path, value)

    monkeypatch.setattr(checkpoint, "write_small", full)
    assert log.front.delete(LogOffset(SEGMENT_BYTES)) == SEGMENT_BYTES
    assert log._preallocator.spare is None
    crash(log)


def test_a_reader_of_one_segment_kept_all_later_ones_on_the_disk(tmp_path: Path) -> None:
    log = five_segments(tmp_path)
    held = log.reader.record(0, 60)
    assert held is not None
    log.front.delete(LogOffset(3 * SEGMENT_BYTES))
    log.front.close_all()
    assert log.front.unclosed_bytes == SEGMENT_BYTES
    held.release()
    assert not log.front.close_deleted()
    assert log.front.unclosed_bytes == 0
    crash(log)


OUTLIVED_STEPS = ["mark", "drop", "zero", "begin", "sync", "history", "state", "clear"]


@pytest.mark.parametrize("dies_before", [*OUTLIVED_STEPS, None])
def test_a_slave_that_was_away_for_days_kept_its_old_log_beside_the_new_one(
    tmp_path: Path, dies_before: str | None
) -> None:
    """Each time, in quarantine, until its disk was full of what every other replica had deleted by age."""
    steps: list[str] = []

    def step(name: str) -> None:
        steps.append(name)
        if name == dies_before:
            raise Killed

    log = five_segments(tmp_path, before_step=step)
    start, end = LogOffset(7 * SEGMENT_BYTES), log.max_offset
    steps.clear()
    if dies_before is None:
        log.set_aside(start, "outlived", known_to=end)
        assert steps == OUTLIVED_STEPS
    else:
        with pytest.raises(Killed):
            log.set_aside(start, "outlived", known_to=end)
    crash(log)

    again = open_log(tmp_path)
    # In front of its mark it has not begun.
    assert (again.min_offset, again.max_offset) == ((0, end) if dies_before == "mark" else (start, start))
    assert again.recovery.lost == ""
    assert not (tmp_path / "quarantine").exists()
    crash(again)


def test_what_nobody_else_had_of_an_outlived_log_is_kept_for_some_days(tmp_path: Path) -> None:
    log = five_segments(tmp_path)
    log.set_aside(LogOffset(7 * SEGMENT_BYTES), "outlived", known_to=4 * SEGMENT_BYTES + 10)
    crash(log)
    (folder,) = (tmp_path / "quarantine").iterdir()
    assert sorted(path.name for path in folder.iterdir()) == [f"{4 * SEGMENT_BYTES:020d}", "manifest.json"]


def test_a_segment_was_written_to_that_another_list_had(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deletion put a list in the place of the one that the loop held; the record went into its last segment, or none."""
    log = five_segments(tmp_path)
    grow, grown = log._preallocator.grow, [0]

    def beside_a_deletion(end: int) -> object:
        grown[0] += 1
        log._preallocator.drop_front(log._files.segments[1].base)
        return grow(end)

    monkeypatch.setattr(log._preallocator, "grow", beside_a_deletion)
    before = log.max_offset
    while not grown[0]:
        place = append_all(log, draft(b"x" * 3000, topic=b"TopicB"))[0][0]
    assert (log.min_offset, log.max_offset > before) == (SEGMENT_BYTES, True)
    held = log.reader.record(place, 60)
    assert held is not None
    assert not log.is_record_boundary(LogOffset(10))
    held.release()
    settle(log)
    log.cut(log.max_offset, CutReason.TORN_TAIL)
    log._max = log._whole = LogOffset(log._files.segments[-1].end)
    view = log.receive_view(100)
    assert len(view) == 100
    view.release()


def test_a_front_that_somebody_removed_is_a_loss_still(tmp_path: Path) -> None:
    """Not every later beginning is a deletion's: bytes that an operator removed were acknowledged."""
    log = five_segments(tmp_path)
    crash(log)
    (tmp_path / LOG_FOLDER_NAME / f"{0:020}").unlink()
    losses: list[bool] = []

    again = open_log(tmp_path, on_loss=lambda: losses.append(True))

    assert losses == [True]
    assert not again.front.is_whole
    crash(again)


def test_a_beginning_that_is_gone_too_leaves_what_is_in_front_of_it(tmp_path: Path) -> None:
    log = five_segments(tmp_path)
    log.front.delete(LogOffset(2 * SEGMENT_BYTES))
    crash(log)
    folder = tmp_path / LOG_FOLDER_NAME
    (folder / f"{2 * SEGMENT_BYTES:020}").rename(folder / f"{SEGMENT_BYTES:020}")
    with pytest.raises(SegmentError, match="does not follow on"):
        open_log(tmp_path)
    assert (folder / f"{SEGMENT_BYTES:020}").exists()


def test_a_log_that_begins_anew_below_its_old_beginning_keeps_its_first_segment(tmp_path: Path) -> None:
    """The state says 2, the master's log begins at 1: the new first segment is none of a deletion."""
    log = five_segments(tmp_path)
    log.front.delete(LogOffset(2 * SEGMENT_BYTES))
    log.set_aside(LogOffset(SEGMENT_BYTES), "the master begins there")
    assert (log.min_offset, log.front.is_whole) == (SEGMENT_BYTES, True)
    crash(log)
    again = open_log(tmp_path)
    assert (again.min_offset, again.front.is_whole, again.recovery.lost) == (SEGMENT_BYTES, True, "")
    again.set_aside(LogOffset(2 * SEGMENT_BYTES), "the last segment of it", is_whole=False)
    crash(again)
    part = open_log(tmp_path)
    assert (part.min_offset, part.front.is_whole) == (2 * SEGMENT_BYTES, False)
    crash(part)


def test_r19_a_queue_whose_records_are_all_gone_goes_on_where_it_was(tmp_path: Path) -> None:
    """Its next message had the offset 0, far below where its consumers stood."""
    log = five_segments(tmp_path)
    tell_queues(log)
    settle(log)
    log.front.delete(LogOffset(4 * SEGMENT_BYTES))
    crash(log)
    (tmp_path / "folds").unlink(missing_ok=True)

    again = open_log(tmp_path)

    assert again.queues.max_offset(b"Idle", 4) == 1
    cut = again.max_offset
    append_all(again, draft(b"unconfirmed", topic=b"Idle", queue_id=4))
    again.cut(cut, CutReason.TRUNCATION)
    assert again.queues.max_offset(b"Idle", 4) == 1, "a cut of its only record here takes back that record alone"
    crash(again)


def test_a_new_slave_is_whole_from_the_masters_first_byte_on(tmp_path: Path) -> None:
    """It knew no queue whose messages were all gone, and would have begun them at 0 when it was elected."""
    master = five_segments(tmp_path / "master")
    tell_queues(master)
    settle(master)
    start = LogOffset(4 * SEGMENT_BYTES)
    master.front.delete(start)
    slave = open_log(tmp_path / "slave")
    slave.set_aside(start, "the empty log begins at 0, the master's later")
    slave.record_epoch(master.history.entries[-1])
    content = log_bytes(master)
    while content:
        view = slave.receive_view(len(content))
        taken = len(view)
        view[:] = content[:taken]
        view.release()
        slave.commit_received(taken)
        content = content[taken:]
    slave.extend_index(slave.unindexed_bytes)
    confirm_all(slave)
    folds = open_folds(tmp_path / "slave", slave)
    take_all(folds)

    assert (slave.min_offset, slave.max_offset, slave.front.is_whole) == (start, master.max_offset, True)
    assert slave.history == master.history
    assert slave.queues.max_offset(b"Idle", 4) == 1
    assert folds.knows_all
    idle = folds.queue(b"Idle", 4)
    assert idle is not None
    assert (idle.min_offset, idle.max_offset) == (1, 1)
    crash(slave)
    crash(master)


def test_parts_of_two_tellings_are_no_whole_one() -> None:
    rows = [(b"%0200d" % number, number % 8, 0, number) for number in range(500)]
    parts = [find_part(properties) for properties in parts_of(rows, 900)]
    assert all(parts)
    assert len(parts) > 2
    assert [row for part in parts if part for row in part.queues()] == [
        (topic, queue, n) for topic, queue, _, n in rows
    ]

    told, half = Told(), Told()
    for at, part in enumerate(parts):
        assert part is not None
        told.note(part, at + 1)
        if at != 1:
            half.note(part, at + 1)
    half.note(Part(since=950, number=1, is_last=True, rows=()), 99)

    assert (told.since, told.at) == (900, len(parts))
    assert (half.since, half.at) == (0, 0)
    told.cut(len(parts) - 1)
    assert (told.since, told.at) == (0, 0)


@pytest.mark.parametrize(
    "nonsense", [b"", b"QUEUES\x01\x02", b"QUEUES\x01[-1,0,true,[]]\x02", b'QUEUES\x01[1,0,true,[["?",1,1]]]\x02']
)
def test_what_is_no_telling_is_left_out(nonsense: bytes) -> None:
    assert find_part(nonsense) is None
