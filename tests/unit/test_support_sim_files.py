"""The simulated disk under real files keeps its own promises: or the simulation would find nothing."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from rollcall_ha.node.files import atomic_replace, fsync_directory
from tests.support.sim_files import PAGE_BYTES, ROOT_PREFIX, SECTOR_BYTES, FileCalls, SimFiles, remove_leftovers
from tests.support.sim_kernel import Died, Kernel


@pytest.fixture
def calls() -> Iterator[FileCalls]:
    found = FileCalls()
    yield found
    found.close()


@pytest.fixture
def disk(calls: FileCalls) -> SimFiles:
    found = calls.disk(Kernel(1), "h1")
    found.boot()
    return found


def write(path: Path, data: bytes, *, is_synced: bool) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.pwrite(descriptor, data, 0)
    if is_synced:
        os.fdatasync(descriptor)
        fsync_directory(path.parent)
    os.close(descriptor)


def test_a_kill_loses_nothing_and_a_power_cut_what_was_not_synced(disk: SimFiles) -> None:
    write(disk.folder / "a", b"synced", is_synced=True)
    write(disk.folder / "a", b"newest", is_synced=False)
    write(disk.folder / "b", b"unsynced", is_synced=False)
    disk.crash()

    assert (disk.folder / "a").read_bytes() == b"newest"
    disk.lose_power(forgets_all=True)
    assert (disk.folder / "a").read_bytes() == b"synced"
    assert disk.paths() == ["a"]


def test_a_replaced_file_is_the_old_or_the_new_one(disk: SimFiles) -> None:
    """Bytes that were synced under a name that was not: the old name, with its old bytes, may come back."""
    atomic_replace(disk.folder / "a", b"old")
    write(disk.folder / "a.tmp", b"new", is_synced=False)
    os.replace(disk.folder / "a.tmp", disk.folder / "a")
    disk.lose_power(forgets_all=True)

    assert (disk.folder / "a").read_bytes() == b"old"


def test_sectors_survive_whole_and_each_by_itself(calls: FileCalls) -> None:
    found = set()
    for seed in range(60):
        disk = calls.disk(Kernel(seed), f"h{seed}")
        write(disk.folder / "a", bytes(3 * SECTOR_BYTES), is_synced=True)
        write(disk.folder / "a", b"x" * 3 * SECTOR_BYTES, is_synced=False)
        disk.lose_power()
        content = (disk.folder / "a").read_bytes()
        sectors = [content[at : at + SECTOR_BYTES] for at in range(0, len(content), SECTOR_BYTES)]
        assert all(len(set(sector)) == 1 for sector in sectors)
        found.add(tuple(sector[:1] == b"x" for sector in sectors))

    assert {(False, False, False), (True, False, False), (True, True, True), (False, False, True)} <= found


def test_a_sync_that_failed_succeeds_when_it_is_tried_again_and_its_pages_are_gone(disk: SimFiles) -> None:
    """What Linux does: the pages are clean from then on. Processes see them until they are dropped."""
    path = disk.folder / "a"
    old, new = b"o" * 4 * PAGE_BYTES, b"n" * 4 * PAGE_BYTES
    write(path, old, is_synced=True)
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="Input/output") as failed:
        write(path, new, is_synced=True)
    assert failed.value.errno == errno.EIO
    descriptor = os.open(path, os.O_RDWR)
    os.fdatasync(descriptor)

    assert path.read_bytes() == new
    image = disk.image()
    disk.lose_power(forgets_all=True)
    assert path.read_bytes() != new
    assert len(path.read_bytes()) == len(new)
    assert dict(image.files)["a"] == new


def test_pages_of_a_failed_sync_are_written_if_they_are_made_dirty_again(disk: SimFiles) -> None:
    path = disk.folder / "a"
    disk.failing_syncs = 1
    with pytest.raises(OSError, match="Input/output"):
        write(path, b"n" * 4 * PAGE_BYTES, is_synced=True)
    write(path, b"n" * 4 * PAGE_BYTES, is_synced=True)
    disk.lose_power(forgets_all=True)

    assert path.read_bytes() == b"n" * 4 * PAGE_BYTES


def test_nothing_of_a_process_that_died_in_a_call_reaches_the_disk(disk: SimFiles) -> None:
    """Its handlers would tidy up: a dead process does not."""
    told: list[bool] = []
    disk.on_death, disk.dies_in_calls, disk.dies_with_power = told.append, 2, True

    def process() -> None:
        try:
            write(disk.folder / "a", b"bytes", is_synced=True)
        finally:
            (disk.folder / "a").unlink()

    with pytest.raises(Died):
        process()

    assert told == [True]
    assert (disk.folder / "a").read_bytes() == b""
    disk.boot()
    (disk.folder / "a").unlink()


def test_a_full_disk_takes_no_new_block(disk: SimFiles) -> None:
    write(disk.folder / "a", b"four", is_synced=True)
    disk.is_full = True

    write(disk.folder / "a", b"4444", is_synced=True)
    with pytest.raises(OSError, match="No space"):
        write(disk.folder / "a", b"55555", is_synced=True)
    with pytest.raises(OSError, match="No space"):
        atomic_replace(disk.folder / "b", b"new")


def test_a_bit_rots_for_good(disk: SimFiles) -> None:
    write(disk.folder / "a", bytes(8), is_synced=True)
    disk.rot("a", 3)
    disk.lose_power(forgets_all=True)

    content = (disk.folder / "a").read_bytes()
    assert sum(byte.bit_count() for byte in content) == 1
    assert content[3]


def test_os_is_as_before_when_it_is_closed() -> None:
    before = os.open, os.fsync, os.rename, os.unlink
    found = FileCalls()
    assert os.open is not before[0]
    found.close()

    assert (os.open, os.fsync, os.rename, os.unlink) == before
    assert not found.root.exists()


def test_a_small_file_that_is_replaced_again_after_a_failed_sync_is_whole(calls: FileCalls) -> None:
    """The same bytes are written into the same temporary file: they are dirty, whatever the failed sync has called them."""
    for seed in range(8):
        disk = calls.disk(Kernel(seed), f"again{seed}")
        disk.boot()
        atomic_replace(disk.folder / "view.json", b"old")
        failures: list[None] = []
        disk.on_failed_sync = lambda failures=failures: failures.append(None)  # type: ignore[misc]
        disk.failing_syncs = 1
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            atomic_replace(disk.folder / "view.json", b"new")
        assert len(failures) == 1
        assert (disk.folder / "view.json").read_bytes() == b"old"
        atomic_replace(disk.folder / "view.json", b"new")
        disk.crash()
        assert (disk.folder / "view.json").read_bytes() == b"new"
        disk.lose_power(forgets_all=True)
        assert (disk.folder / "view.json").read_bytes() == b"new"


def test_what_a_killed_run_left_in_memory_is_removed_by_the_next_one(tmp_path: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    left, lives, of_others = (
        tmp_path / f"{ROOT_PREFIX}{name}" for name in (f"{gone.pid}-a", f"{os.getpid()}-a", "abc-d")
    )
    for folder in (left, lives, of_others):
        (folder / "h1").mkdir(parents=True)
    remove_leftovers(tmp_path)

    assert sorted(tmp_path.iterdir()) == sorted([lives, of_others])
