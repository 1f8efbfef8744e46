"""The folds of a log: what readers see, over starts, kills, cuts and full disks."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from rollcall_ha.broker.folds import consume_queue
from rollcall_ha.broker.folds.consume_queue import UNIT, StaleError, queue_folder
from rollcall_ha.broker.folds.delivered import STEP_BYTES_MIN, STEPS_MAX, Delivered
from rollcall_ha.broker.folds.dispatcher import tags_of
from rollcall_ha.broker.log.values import CutReason
from rollcall_ha.epoch.model import EpochEntry, LogOffset, MasterEpoch
from tests.support.fold_tools import confirm_all, expected, mark, open_folds, take_all, units_in_files, units_of
from tests.support.log_tools import append_all, crash, draft, open_log

A0 = (b"TopicA", 0)
FILE_UNITS = 300_000


def test_readers_see_what_is_confirmed_and_nothing_behind_it(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    append_all(log, *(draft(b"x" * 100 * n, queue_id=n % 3) for n in range(30)))
    confirmed = log.whole_offset
    confirm_all(log)
    append_all(log, *(draft(queue_id=n % 3) for n in range(30)))
    take_all(folds)
    assert units_of(folds) == expected(tmp_path, confirmed)
    assert folds.confirm_offset == confirmed
    confirm_all(log)
    take_all(folds)
    assert units_of(folds) == expected(tmp_path, log.whole_offset)
    assert folds.queue_ids(b"TopicA") == (0, 1, 2)
    assert folds.queue_ids(b"TopicB") == ()
    crash(log)


def test_files_of_queues_read_as_rocketmq_writes_them(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    append_all(log, *(draft(properties=b"TAGS\x01TagA\x02" if n % 2 else b"") for n in range(500)))
    confirm_all(log)
    take_all(folds)
    mark(folds)
    # "TagA".hashCode() in Java.
    assert [code for _, _, code in units_in_files(tmp_path, A0)] == [0, 2598919] * 250
    (file,) = queue_folder(tmp_path, *A0).iterdir()
    assert (file.name, file.stat().st_size) == ("0" * 20, 6_000_000)
    crash(log)


def test_a_start_goes_on_where_the_mark_ends(tmp_path: Path) -> None:
    """After a clean stop and after a kill: what the mark did not count is dispatched again, and nothing twice."""
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    append_all(log, *(draft(queue_id=n % 3) for n in range(300)))
    confirm_all(log)
    take_all(folds)
    mark(folds)
    marked = log.whole_offset
    append_all(log, *(draft(queue_id=n % 5) for n in range(1_200)))
    confirm_all(log)
    take_all(folds)
    assert (tmp_path / "consumequeue/TopicA/4").exists()
    crash(log)
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    assert folds.dispatched_offset == marked
    assert not (tmp_path / "consumequeue/TopicA/4").exists()
    confirm_all(log)
    take_all(folds)
    assert units_of(folds) == expected(tmp_path, log.whole_offset)
    folds.close()
    log.close(is_clean=True)
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    assert folds.dispatched_offset == log.whole_offset
    assert units_of(folds) == expected(tmp_path, log.whole_offset)
    crash(log)


@pytest.mark.parametrize("damage", ["gone", "short", "of another log", "no mark", "damaged mark"])
def test_files_that_do_not_agree_are_built_anew(tmp_path: Path, damage: str) -> None:
    """Killed while they are built: the mark of before, which counted all, was believed by the next start."""
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    append_all(log, *(draft(queue_id=n % 3) for n in range(900)))
    confirm_all(log)
    take_all(folds)
    folds.close()
    log.close(is_clean=True)
    (file,) = queue_folder(tmp_path, b"TopicA", 1).iterdir()
    if damage == "gone":
        file.unlink()
    elif damage == "short":
        os.truncate(file, 100)
    elif damage == "of another log":
        file.write_bytes(file.read_bytes()[20:] + bytes(20))
    elif damage == "no mark":
        (tmp_path / "folds-mark").unlink()
    else:
        (tmp_path / "folds-mark").write_bytes(b"00000000 {}\n")
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    assert folds.dispatched_offset == 0
    assert folds.queue(*A0) is None
    take_all(folds)
    assert units_of(folds) == expected(tmp_path, log.whole_offset)
    crash(log)
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    confirm_all(log)
    take_all(folds)
    assert units_of(folds) == expected(tmp_path, log.whole_offset)
    crash(log)


def test_units_of_another_queue_are_not_believed(tmp_path: Path) -> None:
    """Two folders of one topic, put back under each other's names: places and sizes are those of records of this log."""
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    append_all(log, *(draft(queue_id=n % 2) for n in range(300)))
    confirm_all(log)
    take_all(folds)
    folds.close()
    log.close(is_clean=True)
    one, two = queue_folder(tmp_path, b"TopicA", 0), queue_folder(tmp_path, b"TopicA", 1)
    one.rename(tmp_path / "aside")
    two.rename(one)
    (tmp_path / "aside").rename(two)
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    take_all(folds)
    assert units_of(folds) == expected(tmp_path, log.whole_offset)
    crash(log)


def test_a_cut_takes_back_the_units_of_cut_records(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    places = append_all(log, *(draft(queue_id=n % 3) for n in range(900)))
    confirm_all(log)
    take_all(folds)
    mark(folds)
    end = LogOffset(places[100][0])
    folds.rest(is_resting=True)
    assert folds.catch_up() > 0
    assert folds.queue(*A0) is None
    assert folds.record(0, 100) is None
    folds.before_cut()
    log.cut(end, CutReason.TRUNCATION)
    folds.cut(log.max_offset)
    folds.rest(is_resting=False)
    assert units_of(folds) == expected(tmp_path, end)
    append_all(log, *(draft(b"others", queue_id=n % 2) for n in range(900)))
    confirm_all(log)
    take_all(folds)
    assert units_of(folds) == expected(tmp_path, log.whole_offset)
    # The mark was lowered by the cut itself: killed now, the next start takes no unit of a cut record for its own.
    crash(log)
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    assert folds.dispatched_offset == end
    confirm_all(log)
    take_all(folds)
    assert units_of(folds) == expected(tmp_path, log.whole_offset)
    crash(log)


def test_a_log_that_lost_its_end_with_the_power_takes_the_units_with_it(tmp_path: Path) -> None:
    """The mark counts more than the log has; the log then grows past it with other records, and is killed."""
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    places = append_all(log, *(draft(b"first", queue_id=n % 3) for n in range(50)))
    confirm_all(log)
    take_all(folds)
    mark(folds)
    crash(log)
    segment = tmp_path / "commitlog" / ("0" * 20)
    end = places[20][0]
    segment.write_bytes(segment.read_bytes()[:end] + bytes(segment.stat().st_size - end))
    # The thread that writes it may not have had its turn.
    (tmp_path / "rollcall-checkpoint").unlink(missing_ok=True)
    log = open_log(tmp_path)
    assert log.whole_offset == end
    folds = open_folds(tmp_path, log)
    assert folds.dispatched_offset == end
    assert units_of(folds) == expected(tmp_path, end)
    append_all(log, *(draft(b"second, longer", queue_id=n % 2) for n in range(50)))
    crash(log)
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    assert folds.dispatched_offset == end
    confirm_all(log)
    take_all(folds)
    assert units_of(folds) == expected(tmp_path, log.whole_offset)
    crash(log)


def test_a_mark_that_is_being_made_during_a_cut_is_not_written(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    places = append_all(log, *(draft(queue_id=n % 3) for n in range(90)))
    confirm_all(log)
    take_all(folds)
    gathered = folds._gather()
    folds.rest(is_resting=True)
    folds.before_cut()
    log.cut(LogOffset(places[30][0]), CutReason.TRUNCATION)
    with pytest.raises(StaleError):
        folds._write_mark(*gathered)
    folds.cut(log.max_offset)
    with pytest.raises(StaleError):
        folds._write_mark(*gathered)
    assert not (tmp_path / "folds-mark").exists()
    crash(log)


def test_a_full_copy_begins_the_folds_anew(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    append_all(log, *(draft(queue_id=n % 3) for n in range(90)))
    confirm_all(log)
    take_all(folds)
    mark(folds)
    folds.rest(is_resting=True)
    folds.before_cut()
    log.set_aside(LogOffset(64 * 1024), "nothing in common")
    # Killed here, the next start must not find the steps of another log.
    assert not (tmp_path / "folds-mark").exists()
    folds.cut(log.max_offset, is_new=True)
    folds.rest(is_resting=False)
    assert folds.dispatched_offset == 64 * 1024
    assert not (tmp_path / "folds-mark").exists()
    append_all(log, *(draft(queue_id=n % 3) for n in range(9)))
    confirm_all(log)
    take_all(folds)
    assert units_of(folds) == expected(tmp_path, log.whole_offset)
    crash(log)


def test_an_idle_queue_that_a_telling_names_has_no_file(tmp_path: Path) -> None:
    """Six megabytes of blanks for each, 400 queues a record, on the loop of a new slave."""
    queues = consume_queue.ConsumeQueues(tmp_path, FILE_UNITS)
    queue = queues.add(A0, FILE_UNITS + 2)
    queue.write()
    assert not queue_folder(tmp_path, *A0).exists()
    assert (queue.min_offset, queue.max_offset, queue.units(0, 10)) == (FILE_UNITS + 2, FILE_UNITS + 2, b"")
    (rows,) = queues.rows()
    again = consume_queue.ConsumeQueues(tmp_path, FILE_UNITS)
    assert again.load([rows], 0, 100, lambda *_: True) == ""
    found = again.find(A0)
    assert found is not None
    found.append(FILE_UNITS + 2, UNIT.pack(1_000, 100, 0))
    found.write()
    assert units_in_files(tmp_path, A0) == [(0, 2**31 - 1, 0), (0, 2**31 - 1, 0), (1_000, 100, 0)]


def test_a_queue_that_begins_later_keeps_its_numbers(tmp_path: Path) -> None:
    """As a learner's that began at the last segment: offset n lies at byte 20 n, with blanks in front."""
    queues = consume_queue.ConsumeQueues(tmp_path, FILE_UNITS)
    queue = queues.add(A0, FILE_UNITS + 2)
    for n in range(3):
        queue.append(FILE_UNITS + 2 + n, UNIT.pack(1_000 + n, 100, 0))
    queue.write()
    assert (queue.min_offset, queue.max_offset) == (FILE_UNITS + 2, FILE_UNITS + 5)
    assert [place for place, _, _ in UNIT.iter_unpack(queue.units(0, 10))] == [1_000, 1_001, 1_002]
    assert units_in_files(tmp_path, A0) == [
        (0, 2**31 - 1, 0),
        (0, 2**31 - 1, 0),
        (1_000, 100, 0),
        (1_001, 100, 0),
        (1_002, 100, 0),
    ]
    (file,) = queue_folder(tmp_path, *A0).iterdir()
    assert file.name == f"{6_000_000:020d}"


def test_a_queue_goes_on_over_the_end_of_its_file(tmp_path: Path) -> None:
    queues = consume_queue.ConsumeQueues(tmp_path, FILE_UNITS)
    queue = queues.add(A0, FILE_UNITS - 100)
    for n in range(300):
        queue.append(FILE_UNITS - 100 + n, UNIT.pack(n, 100, 0))
    queue.write()
    assert len(queue.units(FILE_UNITS - 100, 1_000)) == 100 * 20
    assert [place for place, _, _ in UNIT.iter_unpack(queue.units(FILE_UNITS, 1_000))] == list(range(100, 300))
    queue.cut(FILE_UNITS - 50)
    assert [path.name for path in queue_folder(tmp_path, *A0).iterdir()] == ["0" * 20]
    assert len(units_in_files(tmp_path, A0)) == FILE_UNITS - 50


@pytest.mark.parametrize("topic", [b"../../etc", b"a/b", b"\xff\x00", b"x" * 255, b".", b""])
def test_a_topic_of_any_bytes_stays_in_the_folder(tmp_path: Path, topic: bytes) -> None:
    folder = queue_folder(tmp_path, topic, 0)
    assert folder.resolve().parent.parent == tmp_path.resolve() / "consumequeue"
    consume_queue.ConsumeQueues(tmp_path, FILE_UNITS).add((topic, 0), 0)
    assert len({queue_folder(tmp_path, one, 0) for one in (topic, topic + b"1")}) == 2


def test_more_queues_than_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consume_queue, "DESCRIPTORS_MAX", 5)
    log = open_log(tmp_path, segment_bytes=1024 * 1024)
    folds = open_folds(tmp_path, log)
    append_all(log, *(draft(topic=b"T%d" % (n % 40)) for n in range(400)))
    confirm_all(log)
    take_all(folds)
    mark(folds)
    folder = str(tmp_path / "consumequeue")
    links = [Path(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")]
    assert len([link for link in links if link.exists() and str(link.readlink()).startswith(folder)]) == 5
    assert units_of(folds) == expected(tmp_path, log.whole_offset)
    crash(log)


def test_a_full_disk_stops_the_folds_and_loses_no_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    append_all(log, *(draft(queue_id=n % 2) for n in range(900)))
    confirm_all(log)
    real = os.pwrite

    def full(*_: Any) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    while folds.catch_up() and not folds.trouble:
        pass
    assert "No space left" in folds.trouble
    assert folds.behind_bytes > 0
    monkeypatch.setattr(os, "pwrite", real)
    folds.trouble = ""
    take_all(folds)
    assert units_of(folds) == expected(tmp_path, log.whole_offset)
    crash(log)


def test_the_loop_takes_what_is_confirmed_and_tells_readers_once_per_batch(tmp_path: Path) -> None:
    async def run() -> None:
        log = open_log(tmp_path)
        folds = open_folds(tmp_path, log)
        told: list[tuple[tuple[bytes, int], ...]] = []
        everything_in = asyncio.Event()

        def grown(keys: Any) -> None:
            told.append(tuple(keys))
            if not folds.behind_bytes:
                everything_in.set()

        folds.subscribe_grown(grown)
        with ThreadPoolExecutor(1) as disk:
            folds.start(disk)
            append_all(log, draft(queue_id=1), draft(queue_id=0), draft(queue_id=1))
            confirm_all(log)
            async with asyncio.timeout(5):
                await everything_in.wait()
            assert told == [((b"TopicA", 1), A0)]
            assert units_of(folds) == expected(tmp_path, log.whole_offset)
        crash(log)

    asyncio.run(run())


def test_a_mark_is_made_by_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollcall_ha.broker.folds.dispatcher.MARK_STEP_BYTES", 10_000)

    async def run() -> None:
        log = open_log(tmp_path)
        folds = open_folds(tmp_path, log)
        with ThreadPoolExecutor(1) as disk:
            folds.start(disk)
            append_all(log, *(draft() for _ in range(300)))
            confirm_all(log)
            async with asyncio.timeout(5):
                while not folds._marked_offset or folds.behind_bytes:  # noqa: ASYNC110 (a thread makes it)
                    await asyncio.sleep(0)
        marked = folds._marked_offset
        assert marked >= 10_000
        crash(log)
        log = open_log(tmp_path)
        assert open_folds(tmp_path, log).dispatched_offset >= marked
        crash(log)

    asyncio.run(run())


def test_tags_are_the_property_of_that_name() -> None:
    assert tags_of(b"KEYS\x01k\x02TAGS\x01a || b\x02W\x01x\x02") == b"a || b"
    assert tags_of(b"MYTAGS\x01x\x02TAGS\x01y") == b"y"
    assert tags_of(b"MYTAGS\x01x\x02") == b""
    assert tags_of(b"") == b""


def test_a_failed_sync_leaves_no_mark_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Synced again it succeeds, and the pages are gone: a mark would count units that no disk has."""
    monkeypatch.setattr("rollcall_ha.broker.folds.dispatcher.MARK_STEP_BYTES", 10_000)

    real = os.fdatasync

    def fails(descriptor: int) -> None:
        if "consumequeue" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.EIO, "Input/output error")
        real(descriptor)

    async def run() -> None:
        log = open_log(tmp_path)
        folds = open_folds(tmp_path, log)
        append_all(log, *(draft() for _ in range(30)))
        confirm_all(log)
        take_all(folds)
        mark(folds)
        assert (tmp_path / "folds-mark").exists()
        with ThreadPoolExecutor(1) as disk:
            folds.start(disk)
            append_all(log, *(draft() for _ in range(300)))
            with monkeypatch.context() as broken:
                broken.setattr(os, "fdatasync", fails)
                confirm_all(log)
                async with asyncio.timeout(5):
                    while (tmp_path / "folds-mark").exists():  # noqa: ASYNC110 (a thread removes it)
                        await asyncio.sleep(0)
            folds.rest(is_resting=True)
            folds.close()
        assert not (tmp_path / "folds-mark").exists()
        crash(log)
        log = open_log(tmp_path)
        assert open_folds(tmp_path, log).dispatched_offset == 0
        crash(log)

    asyncio.run(run())


def test_the_loop_waited_for_the_syncs_of_a_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark was written under the lock that the loop takes for each page of units."""
    began, may_end = threading.Event(), threading.Event()

    def slow(path: Path, value: object) -> None:
        began.set()
        assert may_end.wait(10)

    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    append_all(log, *(draft() for _ in range(300)))
    confirm_all(log)
    take_all(folds)
    monkeypatch.setattr("rollcall_ha.broker.folds.dispatcher.write_small", slow)
    with ThreadPoolExecutor(1) as disk:
        work = disk.submit(folds._write_mark, *folds._gather())
        assert began.wait(10)
        append_all(log, *(draft() for _ in range(900)))
        confirm_all(log)
        take_all(folds)
        assert units_of(folds) == expected(tmp_path, log.whole_offset)
        assert not work.done()
        may_end.set()
        work.result(10)
    crash(log)


def test_a_key_index_that_is_refused_stopped_the_queues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And was tried again in each turn of the loop."""
    real = os.pwrite

    def refused(descriptor: int, data: Any, at: int) -> int:
        if "/index/" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, data, at)

    async def run() -> None:
        log = open_log(tmp_path)
        folds = open_folds(tmp_path, log)
        turns = 0
        take = folds.index.take_all

        def counted(*given: Any) -> None:
            nonlocal turns
            turns += 1
            take(*given)

        folds.index.take_all = counted  # type: ignore[assignment, method-assign]
        with ThreadPoolExecutor(1) as disk:
            folds.start(disk)
            with monkeypatch.context() as full:
                full.setattr(os, "pwrite", refused)
                for n in range(20):
                    append_all(log, draft(properties=b"KEYS\x01k%d\x02" % n))
                    confirm_all(log)
                    async with asyncio.timeout(5):
                        while folds.behind_bytes:  # noqa: ASYNC110 (turns of the dispatcher)
                            await asyncio.sleep(0)
                for _ in range(50):
                    await asyncio.sleep(0)
                assert turns < 5
                assert "No space left" in folds.index_trouble
                assert not folds.trouble
            folds._index_again()
            async with asyncio.timeout(5):
                while folds.index.taken_offset < folds.dispatched_offset:  # noqa: ASYNC110 (turns of the dispatcher)
                    await asyncio.sleep(0)
            assert len(folds.index.find(b"TopicA", b"k7", begin_ms=0, end_ms=2**62, count_max=9)) == 1
            folds.rest(is_resting=True)
        crash(log)

    asyncio.run(run())


@pytest.mark.parametrize("how", ["a file is gone", "the disk refuses"])
def test_a_cut_that_fails_builds_the_folds_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """The log was cut already: left above its end, the folds left out what came next."""
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    places = append_all(log, *(draft(queue_id=n % 3) for n in range(900)))
    confirm_all(log)
    take_all(folds)
    mark(folds)
    folds.rest(is_resting=True)
    folds.before_cut()
    log.cut(LogOffset(places[100][0]), CutReason.TRUNCATION)
    if how == "a file is gone":
        for file in queue_folder(tmp_path, b"TopicA", 1).iterdir():
            file.unlink()
        folds._queues.files.close()
        folds.cut(log.max_offset)
    else:
        with monkeypatch.context() as full:
            full.setattr(os, "ftruncate", lambda *_: exec("raise OSError(28, 'No space left on device')"))
            folds.cut(log.max_offset)
    folds.rest(is_resting=False)
    assert folds.dispatched_offset == 0
    append_all(log, *(draft(b"others", queue_id=n % 2) for n in range(100)))
    confirm_all(log)
    take_all(folds)
    assert units_of(folds) == expected(tmp_path, log.whole_offset)
    crash(log)


def test_a_queue_that_a_cut_ended_is_not_missed_by_the_next_start(tmp_path: Path) -> None:
    """All was dispatched again: the mark that was written as the cut began named a queue whose files were gone."""
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    append_all(log, *(draft() for _ in range(50)))
    end = log.whole_offset
    append_all(log, *(draft(topic=b"TopicB") for _ in range(50)))
    confirm_all(log)
    take_all(folds)
    mark(folds)
    folds.rest(is_resting=True)
    folds.before_cut()
    log.cut(end, CutReason.TRUNCATION)
    folds.cut(log.max_offset)
    crash(log)
    log = open_log(tmp_path)
    assert open_folds(tmp_path, log).dispatched_offset == end
    crash(log)


def test_tails_that_a_mark_counts_are_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rollcall_ha.broker.folds.dispatcher.MARK_STEP_BYTES", 1_000)

    async def run() -> None:
        log = open_log(tmp_path)
        folds = open_folds(tmp_path, log)
        with ThreadPoolExecutor(1) as disk:
            folds.start(disk)
            append_all(log, *(draft() for _ in range(50)))
            confirm_all(log)
            async with asyncio.timeout(5):
                while not (queue := folds.queue(*A0)) or queue.written != 50:  # noqa: ASYNC110 (a thread makes a mark)
                    await asyncio.sleep(0)
            assert units_of(folds) == expected(tmp_path, log.whole_offset)
            append_all(log, draft())
            confirm_all(log)
            take_all(folds)
            assert units_of(folds) == expected(tmp_path, log.whole_offset)
            folds.rest(is_resting=True)
        crash(log)

    asyncio.run(run())


def test_a_gap_in_a_queue_is_never_filled(tmp_path: Path) -> None:
    queues = consume_queue.ConsumeQueues(tmp_path, FILE_UNITS)
    queue = queues.add(A0, 0)
    queue.append(0, UNIT.pack(0, 100, 0))
    with pytest.raises(consume_queue.GapError, match="ends at 1, the next record says 3"):
        queue.append(3, UNIT.pack(300, 100, 0))


def test_a_cold_log_is_read_ahead_wherever_a_reader_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[int] = []
    monkeypatch.setattr("rollcall_ha.broker.log.reader.READ_AHEAD_BYTES", 1_000)
    monkeypatch.setattr(os, "posix_fadvise", lambda _fd, at, _length, _advice: told.append(at))
    log = open_log(tmp_path)
    places = append_all(log, *(draft(b"x" * 100) for _ in range(60)))
    log.reader.run(places[30][0], log.whole_offset, 1_000)
    assert told == [places[30][0]]
    log.reader.run(places[0][0], log.whole_offset, 1_000)
    assert told == [places[30][0], 0]
    crash(log)


def test_no_page_is_read_ahead_behind_what_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel would make 8 MiB of empty pages in front of each hot run, and the loop would wait for them."""
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _fd, at, length, _advice: told.append((at, length)))
    log = open_log(tmp_path)
    append_all(log, *(draft(b"x" * 100) for _ in range(60)))
    end = log.whole_offset
    log.reader.run(0, end, end)
    assert told == []  # one run takes all: nothing is left to be read ahead
    log.reader.run(0, end, 1_000)
    log.reader.run(0, end, 1_000)
    # A length of 0 would mean "to the end of the file".
    assert told == [(0, end)]
    crash(log)


def test_readers_are_told_when_confirm_reaches_the_start_of_the_own_epoch(tmp_path: Path) -> None:
    """R19: until then a new master does not know how far the one before had confirmed; those it held look again."""

    async def run() -> None:
        log = open_log(tmp_path)
        folds = open_folds(tmp_path, log)
        whole = asyncio.Event()
        folds.on_whole = whole.set
        with ThreadPoolExecutor(1) as disk:
            append_all(log, draft(), draft())
            confirm_all(log)
            places = append_all(log, draft(topic=b"TopicB"))
            log.record_epoch(EpochEntry(epoch=MasterEpoch(2), start_offset=log.max_offset))
            folds.start(disk)
            async with asyncio.timeout(5):
                while folds.dispatched_offset < places[0][0]:  # noqa: ASYNC110 (turns of the dispatcher)
                    await asyncio.sleep(0)
            assert folds.catch_up() == log.max_offset - places[0][0]
            assert not whole.is_set()
            confirm_all(log)
            async with asyncio.timeout(5):
                await whole.wait()
            assert folds.catch_up() == 0
            folds.rest(is_resting=True)
        crash(log)

    asyncio.run(run())


def test_sixteen_restarts_pushed_out_all_steps_that_a_cut_needs() -> None:
    """Each makes a mark: the next cut read the whole log."""
    counted, far = Delivered(), 10 * STEP_BYTES_MIN
    counted.note_step(STEP_BYTES_MIN)
    for n in range(3 * STEPS_MAX):
        steps = counted.note_step(far + n)
    assert [offset for offset, _ in steps] == [STEP_BYTES_MIN, far, far + 3 * STEPS_MAX - 1]
    for n in range(3 * STEPS_MAX):
        steps = counted.note_step(far + (n + 2) * STEP_BYTES_MIN)
    assert len(steps) == STEPS_MAX


@pytest.mark.parametrize("step_bytes", [1, STEP_BYTES_MIN])
def test_a_cut_left_deliveries_counted_that_are_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_bytes: int
) -> None:
    """Within the steps of marks, and below all of them; a start that finds a mark of a longer log goes back as well."""
    monkeypatch.setattr("rollcall_ha.broker.folds.delivered.STEP_BYTES_MIN", step_bytes)
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    ends = []
    for n in range(40):
        append_all(log, draft(properties=b"ROLLCALL_DELIVERED\x012:%d\x02" % n))
        confirm_all(log)
        take_all(folds)
        ends.append(log.max_offset)
        if n % 2 and n > 4:
            mark(folds)
    assert folds.delivered.following[1] == 40
    folds.rest(is_resting=True)
    for n in (30, 3):
        folds.before_cut()
        log.cut(ends[n], CutReason.TRUNCATION)
        folds.cut(log.max_offset)
        assert folds.delivered.following[1] == n + 1
    folds.rest(is_resting=False)
    for n in range(4, 9):
        append_all(log, draft(properties=b"ROLLCALL_DELIVERED\x012:%d\x02" % n))
    confirm_all(log)
    take_all(folds)
    mark(folds)
    log.cut(ends[6], CutReason.TRUNCATION)
    crash(log)
    log = open_log(tmp_path)
    folds = open_folds(tmp_path, log)
    assert folds.dispatched_offset == ends[6]
    assert folds.delivered.following[1] == 7
    crash(log)
