"""The journal's file: what survives, what is dropped, what must stop a node from starting."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollcall_ha.controller.replication.raft.disk import DirectoryDisk
from rollcall_ha.controller.replication.raft.failstop import FailStop
from rollcall_ha.controller.replication.raft.journal import (
    JOURNAL_FILE_NAME,
    NO_OP,
    DurableJournal,
    JournalDamagedError,
)
from tests.support.raft_seams import Stopped, raise_stopped
from tests.support.sim_disk import SimDisk
from tests.support.sim_kernel import Kernel


def _disk() -> SimDisk:
    return SimDisk(Kernel(1), "c1")


def _filled(disk: SimDisk, batches: int = 3) -> DurableJournal:
    journal = DurableJournal(disk, raise_stopped)
    journal.setCurrentTerm(1, "c2")
    for number in range(batches):
        journal.add(b"\x00entry-%d" % number, 2 + number, 1)
        journal.sync()
    return journal


def _entries(journal: DurableJournal) -> list[tuple[bytes, int, int]]:
    return journal[:]


def _damage(disk: SimDisk, at: int, data: bytes) -> None:
    raw = bytearray(disk.read(JOURNAL_FILE_NAME))
    at %= len(raw)
    raw[at : at + len(data)] = data
    disk.replace(JOURNAL_FILE_NAME, bytes(raw))


def test_a_restart_finds_entries_term_vote_and_commit_hint() -> None:
    disk = _disk()
    journal = _filled(disk)
    journal.deleteEntriesFrom(2)
    journal.add(b"\x00other", 3, 2)
    journal.setCurrentTerm(2, None)
    journal.setRaftCommitIndex(3)
    journal.onOneSecondTimer()
    journal.sync()
    again = DurableJournal(disk, raise_stopped)
    assert _entries(again) == [(NO_OP, 1, 0), (b"\x00entry-0", 2, 1), (b"\x00other", 3, 2)]
    assert (again.getCurrentTerm(), again.getVotedForNodeId(), again.getRaftCommitIndex()) == (2, None, 3)


def test_nothing_is_durable_before_sync() -> None:
    disk = _disk()
    journal = _filled(disk)
    journal.add(b"\x00late", 5, 1)
    assert journal.is_dirty
    disk.lose_power()
    assert DurableJournal(disk, raise_stopped).last_index == 4


@pytest.mark.parametrize("cut_bytes", [1, 5, 19, 20, 21, 30])
def test_a_torn_tail_is_dropped_as_a_whole(cut_bytes: int) -> None:
    """The last batch was never acknowledged if it is not whole."""
    disk = _disk()
    _filled(disk)
    raw = disk.read(JOURNAL_FILE_NAME)
    disk.replace(JOURNAL_FILE_NAME, raw[:-cut_bytes])
    journal = DurableJournal(disk, raise_stopped)
    assert journal.last_index == 3
    assert journal.torn_bytes > 0
    assert DurableJournal(disk, raise_stopped).torn_bytes == 0, "the file was repaired"


def test_a_tail_of_zeros_is_dropped() -> None:
    """A file system may keep the length and lose the data."""
    disk = _disk()
    _filled(disk)
    disk.append(JOURNAL_FILE_NAME, bytes(1500))
    assert DurableJournal(disk, raise_stopped).last_index == 4


@pytest.mark.parametrize("at", [8, 9, 20, 30, 60, 100, -60])
def test_a_flipped_byte_in_the_middle_refuses_to_start(at: int) -> None:
    """The stock library applies it silently: that replica differs for ever."""
    disk = _disk()
    _filled(disk)
    _damage(disk, at, b"\xff")
    with pytest.raises(JournalDamagedError, match="damaged at byte"):
        DurableJournal(disk, raise_stopped)


def test_a_damaged_vote_at_the_end_refuses_to_start() -> None:
    """It was written completely, so it was promised: a node that forgot it would vote twice."""
    disk = _disk()
    journal = _filled(disk)
    journal.setCurrentTerm(9, "c3")
    journal.sync()
    _damage(disk, -1, b"\x00")
    with pytest.raises(JournalDamagedError, match="completely written"):
        DurableJournal(disk, raise_stopped)


def test_a_foreign_or_empty_file_refuses_to_start() -> None:
    disk = _disk()
    disk.replace(JOURNAL_FILE_NAME, b"")
    with pytest.raises(JournalDamagedError, match="begins with"):
        DurableJournal(disk, raise_stopped)


def test_dropping_the_front_keeps_the_rest_and_the_vote() -> None:
    disk = _disk()
    journal = _filled(disk, 10)
    before = disk.size(JOURNAL_FILE_NAME)
    journal.deleteEntriesTo(7)
    assert disk.size(JOURNAL_FILE_NAME) < before
    again = DurableJournal(disk, raise_stopped)
    assert [entry[1] for entry in _entries(again)] == [8, 9, 10, 11]
    assert again.getVotedForNodeId() == "c2"
    again.add(b"\x00more", 12, 1)
    again.sync()
    assert DurableJournal(disk, raise_stopped).last_index == 12


def test_a_snapshot_keeps_what_follows_it_and_replaces_what_contradicts_it() -> None:
    """Entries behind a snapshot that agree with it may be acknowledged: dropping them loses them (P1)."""
    disk = _disk()
    journal = _filled(disk, 10)
    previous, last = journal[4], journal[5]
    assert journal.install(previous, last)
    assert [entry[1] for entry in _entries(journal)] == list(range(5, 12))
    assert not journal.install(previous, last), "nothing to do the second time"
    journal.install((b"\x00x", 20, 3), (b"\x00y", 21, 3))
    assert _entries(DurableJournal(disk, raise_stopped)) == [(b"\x00x", 20, 3), (b"\x00y", 21, 3)]


def test_a_full_disk_stops_the_process() -> None:
    disk = _disk()
    journal = _filled(disk)
    disk.is_full = True
    journal.add(b"\x00late", 5, 1)
    with pytest.raises(Stopped) as stopped:
        journal.sync()
    assert stopped.value.code is FailStop.STORAGE


def test_cutting_what_is_applied_stops_the_process() -> None:
    """The library logs "may have diverged" and goes on."""
    journal = _filled(_disk())
    journal.applied_floor = 3
    journal.deleteEntriesFrom(3)
    with pytest.raises(Stopped) as stopped:
        journal.deleteEntriesFrom(2)
    assert stopped.value.code is FailStop.DIVERGED


def test_on_a_real_directory(tmp_path: Path) -> None:
    disk = DirectoryDisk(tmp_path / "raft")
    journal = DurableJournal(disk, raise_stopped)
    assert journal.was_new
    journal.add(b"\x00real", 2, 1)
    journal.sync()
    disk.close()
    again = DurableJournal(DirectoryDisk(tmp_path / "raft"), raise_stopped)
    assert again.last_index == 2
    assert not again.was_new
    assert (tmp_path / "raft" / JOURNAL_FILE_NAME).stat().st_mode & 0o777 == 0o600


def _on_a_directory(path: Path) -> DurableJournal:
    return DurableJournal(DirectoryDisk(path), raise_stopped)


def test_a_sync_inside_of_the_room_leaves_the_length_of_the_file_alone(tmp_path: Path) -> None:
    """A length that changes waits for the file system's own journal; most syncs must not."""
    journal = _on_a_directory(tmp_path)
    sizes = set()
    for number in range(50):
        journal.add(b"\x00entry-%d" % number, 2 + number, 1)
        journal.sync()
        sizes.add((tmp_path / JOURNAL_FILE_NAME).stat().st_size)

    assert len(sizes) == 1
    again = _on_a_directory(tmp_path)
    assert (again.last_index, again.torn_bytes) == (51, 0)
    again.add(b"\x00after", 52, 1)
    again.sync()
    assert _entries(_on_a_directory(tmp_path))[-1] == (b"\x00after", 52, 1), "it lies behind the others, not the room"


@pytest.mark.parametrize("lost", ["first", "middle", "last"])
def test_a_batch_in_the_room_that_lost_a_sector_is_torn(tmp_path: Path, lost: str) -> None:
    """Sectors of one unsynced write reach the disk in any order."""
    journal = _on_a_directory(tmp_path)
    journal.sync()
    journal.add(b"\x00kept", 2, 1)
    journal.sync()
    path = tmp_path / JOURNAL_FILE_NAME
    before = len(path.read_bytes().rstrip(b"\x00"))
    journal.add(b"\x00" + b"x" * 2000, 3, 1)
    journal.sync()
    raw = bytearray(path.read_bytes())
    end = len(raw.rstrip(b"\x00"))
    sector = {"first": before // 512, "middle": before // 512 + 2, "last": (end - 1) // 512}[lost]
    start = max(before, sector * 512)
    raw[start : (sector + 1) * 512] = bytes((sector + 1) * 512 - start)
    path.write_bytes(bytes(raw))

    again = _on_a_directory(tmp_path)

    assert again.last_index == 2
    assert again.torn_bytes > 0


def test_damage_before_the_room_stops_the_start(tmp_path: Path) -> None:
    """Zeros behind the last batch do not make a wrong byte in it a write that never ended."""
    journal = _on_a_directory(tmp_path)
    journal.add(b"\x00" + b"x" * 2000, 2, 1)
    journal.sync()
    path = tmp_path / JOURNAL_FILE_NAME
    raw = bytearray(path.read_bytes())
    for at in (raw.index(b"xxxx"), len(raw.rstrip(b"\x00")) - 2010):
        damaged = bytearray(raw)
        damaged[at] ^= 1
        path.write_bytes(bytes(damaged))
        with pytest.raises(JournalDamagedError):
            _on_a_directory(tmp_path)
