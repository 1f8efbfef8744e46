"""The commit log of one replica: appends, received bytes, cuts, starts after every kind of stop."""

from __future__ import annotations

import errno
import os
import resource
import signal
import threading
from pathlib import Path

import pytest

from rollcall_ha.broker.core.producers import ProducerStamp
from rollcall_ha.broker.log.checkpoint import FOLDS_FILE_NAME
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.log.cut import CutUnfinishedError, remove_expired
from rollcall_ha.broker.log.preallocation import lead_bytes
from rollcall_ha.broker.log.record import pack_blank
from rollcall_ha.broker.log.segment import LogSegment
from rollcall_ha.broker.log.values import CutReason, CutRefusedError, IndexBehindError
from rollcall_ha.broker.protocol.record import RecordError
from rollcall_ha.controller.contract.ids import FlushMode
from rollcall_ha.epoch.model import EpochEntry, LogOffset, MasterEpoch
from tests.support.log_tools import (
    SEGMENT_BYTES,
    append_all,
    crash,
    draft,
    log_bytes,
    never_synced,
    open_log,
    read_by_the_document,
)


class StopHere(Exception):
    """The process dies at this step."""


KIB = 1024
MIB = 1024 * KIB


def test_a_log_that_we_wrote_reads_back_by_the_wire_document(tmp_path: Path) -> None:
    """Over several segments, with blanks between, by a reader that knows the document only."""
    log = open_log(tmp_path)
    places = [append_all(log, draft(b"x" * (n * 97 % 3000), queue_id=n % 3))[0] for n in range(40)]
    log.close(is_clean=True)
    records = read_by_the_document(tmp_path / "commitlog")
    assert [(each.offset, each.queue_offset) for each in records] == places
    assert [len(each.body) for each in records] == [n * 97 % 3000 for n in range(40)]


def test_queue_offsets_count_per_topic_and_queue_and_survive_every_start(tmp_path: Path) -> None:
    """R19: the next append after a start goes on where the log ends, after a clean stop and after a crash."""
    log = open_log(tmp_path)
    assert [queue for _, queue in append_all(log, draft(), draft(), draft(queue_id=1), draft(topic=b"B"))] == [
        0,
        1,
        0,
        0,
    ]
    log.close(is_clean=True)
    log = open_log(tmp_path)
    assert log.recovery.was_clean
    assert append_all(log, draft())[0][1] == 2
    crash(log)
    log = open_log(tmp_path)
    assert not log.recovery.was_clean
    assert append_all(log, draft())[0][1] == 3
    crash(log)


def test_a_clean_mark_is_good_for_one_start(tmp_path: Path) -> None:
    """The mark is gone before the first append, so that a later crash is never taken for a clean stop."""
    log = open_log(tmp_path)
    log.close(is_clean=True)
    crash(open_log(tmp_path))
    log = open_log(tmp_path)
    assert not log.recovery.was_clean
    crash(log)


def test_a_torn_tail_is_cut_and_kept_in_quarantine(tmp_path: Path) -> None:
    """D13: what is recovered is a prefix, what is cut is zeroed and can be read by a human."""
    log = never_synced(open_log(tmp_path))
    places = append_all(log, *[draft(letter * 100, properties=b"K\x01v\x02") for letter in (b"a", b"b", b"c")])
    second = places[1][0]
    before = log_bytes(log)
    log._files.segments[0].view[second + 120] ^= 1
    crash(log)
    log = open_log(tmp_path)
    assert log.max_offset == second
    assert log_bytes(log) == before[:second]
    assert log.recovery.torn_bytes == len(before) - second
    assert "CRC" in log.recovery.torn_reason
    assert not any(log._files.segments[0].view[second:])
    (folder,) = (tmp_path / "quarantine").iterdir()
    assert {each.name for each in folder.iterdir()} == {"manifest.json", f"{second:020d}"}
    assert (folder / f"{second:020d}").stat().st_size == len(before) - second
    assert append_all(log, draft())[0] == (second, 1)
    crash(log)


def test_quarantine_is_bounded_by_days_and_by_bytes(tmp_path: Path) -> None:
    """The oldest cuts go first, whatever is no cut stays, and the newest one goes by its age only."""
    day_ms = 86_400_000
    for day in (1, 2, 9, 10):
        folder = tmp_path / "quarantine" / f"{day * day_ms}-0-100"
        folder.mkdir(parents=True)
        (folder / "0").write_bytes(bytes(100))
    (tmp_path / "quarantine" / "notes").mkdir()

    def removed(*, day: int, keep_days: int, keep_bytes: int) -> list[int]:
        names = remove_expired(tmp_path, now_ms=lambda: day * day_ms, keep_days=keep_days, keep_bytes=keep_bytes)
        return [int(name.split("-")[0]) // day_ms for name in names]

    assert removed(day=10, keep_days=9, keep_bytes=400) == []
    assert removed(day=10, keep_days=8, keep_bytes=400) == [1]
    assert removed(day=10, keep_days=8, keep_bytes=250) == [2]
    assert removed(day=10, keep_days=8, keep_bytes=0) == [9]
    assert removed(day=10, keep_days=8, keep_bytes=0) == []
    assert removed(day=19, keep_days=8, keep_bytes=0) == [10]
    assert [entry.name for entry in (tmp_path / "quarantine").iterdir()] == ["notes"]


@pytest.mark.parametrize("lost_page", range(4))
def test_a_page_lost_in_a_power_cut_never_leaves_a_hole(tmp_path: Path, lost_page: int) -> None:
    """Rule 4 of records: whatever page reads as zeros, the log ends before it and holds nothing behind it."""
    log = never_synced(open_log(tmp_path))
    append_all(log, *[draft(b"x" * 300, properties=b"K\x01" + b"v" * 50 + b"\x02") for _ in range(30)])
    before = log_bytes(log)
    log._files.segments[0].zero(lost_page * 4096, (lost_page + 1) * 4096)
    crash(log)
    log = open_log(tmp_path)
    assert log.max_offset <= lost_page * 4096
    assert log_bytes(log) == before[: log.max_offset]
    assert lost_page * 4096 - log.max_offset < 500
    crash(log)


STEPS = ("mark", "quarantine", "manifest", "drop", "zero", "begin", "sync", "history", "state", "clear")


@pytest.mark.parametrize("dies_before", [*STEPS, None])
def test_a_cut_interrupted_at_any_step_is_finished_at_the_next_start(tmp_path: Path, dies_before: str | None) -> None:
    """R20: before the mark nothing happened, afterwards all of it does, whole segments and epochs included."""

    def stop(step: str) -> None:
        if step == dies_before:
            raise StopHere(step)

    log = open_log(tmp_path)
    log.record_epoch(EpochEntry(epoch=MasterEpoch(1), start_offset=LogOffset(0)))
    places = [append_all(log, draft(b"y" * 2000))[0] for _ in range(30)]
    log.record_epoch(EpochEntry(epoch=MasterEpoch(2), start_offset=log.max_offset))
    append_all(log, draft(b"z"))
    before, end = log_bytes(log), log.max_offset
    cut = LogOffset(places[3][0])
    log._files.before_step = stop
    if dies_before is None:
        log.cut(cut, CutReason.TRUNCATION, "diverged")
    else:
        with pytest.raises(StopHere):
            log.cut(cut, CutReason.TRUNCATION, "diverged")
    crash(log)
    log = open_log(tmp_path)
    if dies_before == "mark":
        assert log_bytes(log) == before
        assert log.history.last_epoch == 2
    else:
        assert log.max_offset == cut
        assert log_bytes(log) == before[:cut]
        assert log.recovery.finished_cut == (dies_before is not None)
        assert not any(log._files.segments[0].view[cut:])
        assert len(log._files.segments) == 1
        assert log.history.last_epoch == 1
        assert log.queues.max_offset(b"TopicA", 0) == 3
        (folder,) = (tmp_path / "quarantine").iterdir()
        kept = sorted(each for each in folder.iterdir() if each.name != "manifest.json")
        assert b"".join(each.read_bytes() for each in kept)[: end - cut] == before[cut:]
    assert not (tmp_path / "cut-mark").exists()
    crash(log)


@pytest.mark.parametrize("dies_before", [*STEPS, None])
def test_a_log_that_is_set_aside_begins_again_where_the_master_says(tmp_path: Path, dies_before: str | None) -> None:
    """S29: nothing of the old log is left in place, all of it is in quarantine, and a crash between changes nothing."""

    def stop(step: str) -> None:
        if step == dies_before:
            raise StopHere(step)

    log = open_log(tmp_path)
    log.record_epoch(EpochEntry(epoch=MasterEpoch(1), start_offset=LogOffset(0)))
    for _ in range(20):
        append_all(log, draft(b"y" * 2000))
    before = log_bytes(log)
    folds = tmp_path / FOLDS_FILE_NAME
    folds.touch()
    log._files.before_step = stop
    start = LogOffset(SEGMENT_BYTES)
    try:
        log.set_aside(start, "no common epoch")
    except StopHere:
        crash(log)
        log = open_log(tmp_path)
    if dies_before == "mark":
        assert log_bytes(log) == before
    else:
        assert (log.min_offset, log.max_offset, len(log.history)) == (start, start, 0)
        assert not folds.exists(), "it counts records of the log before"
        (folder,) = (tmp_path / "quarantine").iterdir()
        kept = sorted(each for each in folder.iterdir() if each.name != "manifest.json")
        assert b"".join(each.read_bytes() for each in kept)[: len(before)] == before
        crash(log)
        log = open_log(tmp_path)
        assert (log.min_offset, log.max_offset) == (start, start)
    crash(log)


def test_r19_a_slave_counted_no_place_for_a_prepared_record_and_the_master_did(tmp_path: Path) -> None:
    """Behind a failover the next message repeated a number that had been answered."""
    master = open_log(tmp_path / "m")
    prepared = draft()
    prepared.sys_flag = 4
    assert [queue_offset for _, queue_offset in append_all(master, draft(), prepared, draft())] == [0, 0, 1]
    data = log_bytes(master)
    slave = open_log(tmp_path / "s")
    with slave.receive_view(len(data)) as view:
        view[: len(data)] = data
    slave.commit_received(len(data))
    while slave.extend_index(1000):
        pass
    assert append_all(slave, draft()) == append_all(master, draft())
    crash(slave)
    crash(master)


def test_received_bytes_count_as_acked_only_by_whole_records(tmp_path: Path) -> None:
    """So that confirm is always a record boundary, and no recovery of a killed process ends below it."""
    master = open_log(tmp_path / "m")
    append_all(master, *[draft(b"x" * 500, queue_id=n % 2) for n in range(50)])
    data = log_bytes(master)
    slave = open_log(tmp_path / "s")
    sent = 0
    while sent < len(data):
        with slave.receive_view(777) as view:
            length = min(len(view), len(data) - sent)
            view[:length] = data[sent : sent + length]
        slave.commit_received(length)
        sent += length
        assert slave.max_offset == sent
        assert slave.is_record_boundary(slave.ackable_offset)
        assert slave.whole_offset <= sent
    assert log_bytes(slave) == data
    with pytest.raises(IndexBehindError):
        slave.begin_run(stored_at_ms=1)
    while slave.extend_index(1000):
        pass
    assert append_all(slave, draft()) == append_all(master, draft())
    crash(slave)
    crash(master)


def test_a_peer_that_sends_no_records_changes_nothing(tmp_path: Path) -> None:
    """The link is closed by whoever catches ``RecordError``; the log stays as it was."""
    log = open_log(tmp_path)
    append_all(log, draft())
    end = log.max_offset
    with log.receive_view(100) as view:
        view[:] = b"\xff" * 100
    with pytest.raises(RecordError):
        log.commit_received(100)
    assert log.max_offset == end
    crash(log)


def test_a_cut_inside_of_a_record_or_outside_of_the_log_is_refused(tmp_path: Path) -> None:
    """And changes nothing."""
    log = open_log(tmp_path)
    append_all(log, draft(), draft())
    for offset in (-1, 1, log.max_offset - 1, log.max_offset + 1):
        with pytest.raises(CutRefusedError):
            log.cut(LogOffset(offset), CutReason.TRUNCATION)
    assert log.whole_offset == log.max_offset > 0
    crash(log)


def test_a_cut_below_confirm_clamps_it(tmp_path: Path) -> None:
    """R26 isolates instead, unless an unclean epoch explains it; then confirm never points beyond the log."""
    log = open_log(tmp_path)
    places = append_all(log, draft(), draft(), draft())
    log.note_confirm(log.max_offset, LogOffset(places[2][0]))
    log._do_chores()
    log.cut(LogOffset(places[1][0]), CutReason.TRUNCATION)
    assert log.confirm_offset == log.durable_confirm_offset == log.released_offset == places[1][0]
    crash(log)


def test_epoch_entries_beyond_the_recovered_end_are_dropped(tmp_path: Path) -> None:
    """R9: nothing that is appended later gets an epoch that lost its bytes."""
    log = never_synced(open_log(tmp_path))
    log.record_epoch(EpochEntry(epoch=MasterEpoch(1), start_offset=LogOffset(0)))
    append_all(log, draft())
    append_all(log, draft())
    log.record_epoch(EpochEntry(epoch=MasterEpoch(2), start_offset=log.max_offset))
    append_all(log, draft())
    log._files.segments[0].zero(10, SEGMENT_BYTES)
    crash(log)
    log = open_log(tmp_path)
    assert log.max_offset == 0
    assert log.recovery.dropped_epochs == (2,)
    crash(log)


def test_the_dedupe_table_is_cut_and_rebuilt_with_the_log(tmp_path: Path) -> None:
    """R18: a cut sequence is accepted again, a kept one is a duplicate, also after a start."""
    identity = bytes(range(16))

    def stamped(sequence: int) -> tuple[ProducerStamp, bytes]:
        text = f"ROLLCALL_SEQ\x01{identity.hex()}:0:{sequence}\x02"
        return ProducerStamp(identity, 0, sequence), text.encode()

    log = open_log(tmp_path)
    places = []
    for sequence in range(5):
        stamp, properties = stamped(sequence)
        message = draft(properties=properties)
        message.stamp = stamp
        places += append_all(log, message)
    assert log.producers.snapshot() == {identity: (0, 0, 4)}
    log.cut(LogOffset(places[3][0]), CutReason.TRUNCATION)
    assert log.producers.snapshot() == {identity: (0, 0, 2)}
    crash(log)
    log = open_log(tmp_path)
    assert log.producers.snapshot() == {identity: (0, 0, 2)}
    crash(log)


def test_a_full_disk_is_an_error_and_the_log_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """ENOSPC or EFBIG from the allocation, never SIGBUS from the map, and nothing half written."""
    log = never_synced(open_log(tmp_path))
    # The flush thread may have made the next segment while there was room.
    log._preallocator.discard()
    append_all(log, draft(b"x" * 10_000))
    end = log.max_offset
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (SEGMENT_BYTES // 2, old[1]))
    try:
        log.begin_run(stored_at_ms=1)
        with pytest.raises(OSError):
            log.append(draft(b"x" * 10_000))
        assert log.end_run() == end
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)
    assert append_all(log, draft(b"x" * 10_000))[0] == (SEGMENT_BYTES, 1)
    crash(log)


def test_a_record_that_fits_no_segment_is_refused(tmp_path: Path) -> None:
    """With both sizes in the message, before anything is written."""
    log = open_log(tmp_path)
    log.begin_run(stored_at_ms=1)
    with pytest.raises(RecordError, match=str(SEGMENT_BYTES)):
        log.append(draft(b"x" * SEGMENT_BYTES))
    with pytest.raises(RecordError, match="field"):
        log.append(draft(queue_id=1 << 40))
    assert log.end_run() == 0
    assert append_all(log, draft())[0] == (0, 0)
    crash(log)


def test_flush_mode_sync_acks_what_is_on_disk_only(tmp_path: Path) -> None:
    """The end that may be acked follows the flush thread, once per group."""
    log = open_log(tmp_path, flush_mode=FlushMode.SYNC)
    heard: list[int] = []
    log.subscribe_flushed(heard.append)
    assert log.ackable_offset == 0
    append_all(log, draft(), draft())
    wait_for_flush(log)
    assert log.ackable_offset == log.max_offset
    assert heard[-1] == log.max_offset
    crash(log)


def wait_for_flush(log: CommitLog) -> None:
    """The flush thread has answered the last request; joins it, which has a deadline of its own."""
    flusher = log._flusher
    assert flusher is not None
    deadline = 500
    while log.flushed_offset < log.max_offset and deadline:
        with flusher._wake:
            flusher._wake.wait(0.01)
        deadline -= 1


def test_the_next_segment_is_ready_before_it_is_needed(tmp_path: Path) -> None:
    """Made by the flush thread; a cut throws it away, and nothing of it is taken for data."""
    log = open_log(tmp_path)
    append_all(log, draft(b"x" * (SEGMENT_BYTES // 2)))
    never_synced(log)
    log._prepare_segment()
    spare = log._preallocator.spare
    assert spare is not None
    assert spare.base == SEGMENT_BYTES
    append_all(log, draft(b"x" * (SEGMENT_BYTES // 2)))
    assert log._files.segments[-1] is spare
    log._prepare_segment()
    log.cut(LogOffset(0), CutReason.TRUNCATION)
    assert not any((tmp_path / "commitlog").iterdir()) or log.min_offset == 0
    assert append_all(log, draft()) == [(0, 0)]
    crash(log)
    log = open_log(tmp_path)
    assert len(read_by_the_document(tmp_path / "commitlog")) == 1
    crash(log)


def test_half_of_a_small_segment_was_too_late_for_the_next_one(tmp_path: Path) -> None:
    """32 KiB were written before a busy disk had made it, and sends waited 1.7 s: it is made from the first byte on."""
    log = open_log(tmp_path)
    append_all(log, draft(b"x"))
    never_synced(log)
    log._prepare_segment()
    assert log._preallocator.spare is not None
    crash(log)


@pytest.mark.parametrize(
    ("segment_bytes", "lead"),
    [(64 * KIB, 64 * KIB), (16 * MIB, 16 * MIB), (20 * MIB, 16 * MIB), (64 * MIB, 32 * MIB), (1024 * MIB, 512 * MIB)],
)
def test_the_next_segment_is_made_half_a_segment_ahead_but_16_mib(segment_bytes: int, lead: int) -> None:
    """A log that is not written to takes no more disk than its one segment of the usual size."""
    assert lead_bytes(segment_bytes) == lead


def test_the_flush_thread_made_the_segment_again_that_had_just_been_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between taking it and adding it to the log: a new file of its name, and what was written next had none (D13)."""
    log = never_synced(open_log(tmp_path))

    def pack_blank_slowly(view: memoryview, at: int, length: int) -> None:
        pack_blank(view, at, length)
        log._prepare_segment()

    monkeypatch.setattr("rollcall_ha.broker.log.commit_log.pack_blank", pack_blank_slowly)
    places = [append_all(log, draft(b"x" * 3000))[0] for _ in range(20)]
    before = log_bytes(log)
    assert len(log._files.segments) > 2
    crash(log)
    assert [(each.offset, each.queue_offset) for each in read_by_the_document(tmp_path / "commitlog")] == places
    log = open_log(tmp_path)
    assert log_bytes(log) == before
    crash(log)


def test_who_asks_for_room_hears_when_it_is_there(tmp_path: Path) -> None:
    """Nobody but the flush thread makes a segment: from the first byte on, behind a cut, and for what does not fit."""
    log = open_log(tmp_path)
    room = threading.Event()
    log.subscribe_room(room.set)
    assert log.is_room_ready(1)
    spare = log._preallocator.spare
    append_all(log, draft(b"x" * (SEGMENT_BYTES // 4)))
    assert log._files.segments == [spare]
    assert not log.is_room_ready(SEGMENT_BYTES)
    assert room.wait(5)
    assert log.is_room_ready(SEGMENT_BYTES)
    log.cut(LogOffset(0), CutReason.TRUNCATION)
    assert log.is_room_ready(SEGMENT_BYTES // 2)
    crash(log)


def test_a_full_disk_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks for room goes on and hears what the disk said, once; then it is tried again."""
    log = never_synced(open_log(tmp_path))
    append_all(log, draft(b"x" * (SEGMENT_BYTES // 2)))

    def refuse(*_: object) -> LogSegment:
        raise OSError(errno.ENOSPC, "no space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(LogSegment, "create", refuse)
        with pytest.raises(OSError, match="no space"):
            log._prepare_segment()
    assert log.is_room_ready(SEGMENT_BYTES)
    with pytest.raises(OSError, match="no space"):
        append_all(log, draft(b"x" * (SEGMENT_BYTES // 2)))
    log.end_run()
    assert not log.is_room_ready(SEGMENT_BYTES)
    log._prepare_segment()
    assert append_all(log, draft(b"x" * (SEGMENT_BYTES // 2)))[0][0] == SEGMENT_BYTES
    crash(log)


def test_a_log_can_be_told_later_to_sync_before_acks(tmp_path: Path) -> None:
    """R3c: the set's flush mode is known only when its replica has registered; what is not on disk is not ackable."""
    log = open_log(tmp_path)
    synced = threading.Event()
    log.subscribe_flushed(lambda _flushed: synced.set())
    append_all(log, draft(b"a"))
    assert log.ackable_offset == log.whole_offset
    log.sync_before_acks()
    assert synced.wait(5.0), "what was requested before is synced at once"
    assert log.ackable_offset == log.flushed_offset == log.whole_offset
    never_synced(log)
    append_all(log, draft(b"b"))
    assert log.ackable_offset == log.flushed_offset < log.whole_offset
    crash(log)


@pytest.mark.parametrize("full_at", ["mark", "quarantine", "manifest"])
def test_a_cut_that_could_not_begin_is_not_made_up_for_by_a_later_start(tmp_path: Path, full_at: str) -> None:
    """R20: the mark of a cut that a full disk stopped stayed; the log went on, and the next start cut what was acked."""

    def fill(step: str) -> None:
        if step == full_at:
            raise OSError(errno.ENOSPC, "no space left on device")

    log = open_log(tmp_path)
    places = append_all(log, *(draft(b"x" * 100) for _ in range(5)))
    log._files.before_step = fill
    with pytest.raises(OSError, match="no space left"):
        log.cut(LogOffset(places[2][0]), CutReason.TRUNCATION, "diverged")
    append_all(log, draft(b"acknowledged by everybody"))
    before = log_bytes(log)
    crash(log)
    log = open_log(tmp_path)
    assert log_bytes(log) == before
    assert not log.recovery.finished_cut
    crash(log)


def test_a_cut_that_fails_half_way_lets_nobody_go_on(tmp_path: Path) -> None:
    """R20: a full disk behind the zeros was taken for "nothing was cut"; the log went on with zeros in its middle."""

    def fill(step: str) -> None:
        if step == "state":
            raise OSError(errno.ENOSPC, "no space left on device")

    log = open_log(tmp_path)
    places = append_all(log, *(draft(b"x" * 100) for _ in range(5)))
    log._files.before_step = fill
    with pytest.raises(CutUnfinishedError):
        log.cut(LogOffset(places[2][0]), CutReason.TRUNCATION, "diverged")
    crash(log)
    log = open_log(tmp_path)
    assert (log.recovery.finished_cut, log.max_offset) == (True, places[2][0])
    crash(log)


def test_nothing_of_what_was_refused_stays_behind_the_end(tmp_path: Path) -> None:
    """D13: a peer sent two good records and nonsense; all of it was refused, and a crash made two records of it."""
    source = open_log(tmp_path / "master")
    append_all(source, draft(b"one"), draft(b"two"))
    nonsense = log_bytes(source) + b"\x00\x00\x00\x20nonsense"
    crash(source)
    log = open_log(tmp_path / "slave")
    with log.receive_view(len(nonsense)) as view:
        view[: len(nonsense)] = nonsense
    with pytest.raises(RecordError):
        log.commit_received(len(nonsense))
    crash(log)
    log = open_log(tmp_path / "slave")
    assert (log.max_offset, log.recovery.torn_bytes) == (0, 0)
    crash(log)


def sparse(path: Path) -> None:
    """As a copy that leaves out zeros."""
    content = path.read_bytes().rstrip(b"\0")
    size = path.stat().st_size
    path.unlink()
    path.write_bytes(content)
    os.truncate(path, size)


def test_a_sparse_copy_of_a_log_gets_its_blocks_back(tmp_path: Path) -> None:
    """On a disk that filled up, the append that reached a hole was SIGBUS: the process was gone without a line."""
    log = open_log(tmp_path)
    append_all(log, draft(b"x" * 100))
    log.close(is_clean=True)
    (path,) = (tmp_path / "commitlog").iterdir()
    sparse(path)
    assert path.stat().st_blocks * 512 < SEGMENT_BYTES

    log = open_log(tmp_path)

    assert path.stat().st_blocks * 512 >= SEGMENT_BYTES
    append_all(log, draft(b"y" * 100))
    log.close(is_clean=False)


def test_a_sparse_copy_without_room_for_the_rest_is_refused_with_both_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    append_all(log, draft(b"x" * 100))
    log.close(is_clean=True)
    (path,) = (tmp_path / "commitlog").iterdir()
    sparse(path)

    def full(_descriptor: int, _start: int, _length: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    allocated = path.stat().st_blocks * 512
    with pytest.raises(OSError, match=rf"{allocated} of {SEGMENT_BYTES} bytes are on the disk: No space.*--sparse"):
        open_log(tmp_path)


def rotten_tail(root: Path, *, at: int, is_after_cut: bool = False) -> None:
    """Ten records behind the state of boot b1, of a checkpoint or a cut; a kill; a byte of record ``at`` that rots."""
    log = never_synced(open_log(root, boot_id="b1"))
    log._do_chores()
    if is_after_cut:
        append_all(log, draft(b"cut"))
        log.cut(LogOffset(0), CutReason.TRUNCATION)
    places = append_all(log, *(draft(b"%05d" % number * 40) for number in range(10)))
    crash(log)
    (path,) = (root / "commitlog").iterdir()
    with path.open("r+b") as file:
        file.seek(places[at][0] + 120)
        file.write(b"#")


@pytest.mark.parametrize(("boot", "is_lost"), [("b1", True), ("b2", False), ("", False)])
def test_r3_a_rotten_record_in_the_tail_was_cut_as_torn_and_the_same_boot_vouched_for_the_rest(
    tmp_path: Path, boot: str, is_lost: bool
) -> None:
    """
    A kill tears the newest record only: with a whole one behind it, the damaged one was whole, and may have been acked.

    On another boot a power cut explains it: pages go to a disk in any order.
    """
    rotten_tail(tmp_path, at=6)
    losses: list[None] = []
    log = open_log(tmp_path, boot_id=boot, on_loss=lambda: losses.append(None))

    assert log.recovery.checked_records == 6
    assert bool(losses) is is_lost
    assert ("is damaged, one at" in log.recovery.lost) is is_lost
    crash(log)


def test_r3_a_cut_forgot_the_boot_and_a_rotten_record_behind_it_passed_for_torn(tmp_path: Path) -> None:
    """Until the next checkpoint, a flush interval later."""
    rotten_tail(tmp_path, at=6, is_after_cut=True)
    losses: list[None] = []
    log = open_log(tmp_path, boot_id="b1", on_loss=lambda: losses.append(None))

    assert log.recovery.checked_records == 6
    assert losses
    crash(log)


def test_half_of_the_newest_record_is_no_loss_on_the_same_boot(tmp_path: Path) -> None:
    rotten_tail(tmp_path, at=9)
    log = open_log(tmp_path, boot_id="b1", on_loss=lambda: pytest.fail("a torn tail is no loss"))

    assert log.recovery.checked_records == 9
    assert not log.recovery.lost
    crash(log)
