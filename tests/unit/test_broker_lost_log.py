"""R3: a log that lacks synced bytes, and a store whose sync failed, vouch for nothing at the next start."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import socket
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from rollcall_ha.broker import server
from rollcall_ha.broker.core.durable import EpochMarks, Identity
from rollcall_ha.broker.identity import remember
from rollcall_ha.broker.log.checkpoint import STATE_FILE_NAME
from rollcall_ha.broker.log.cut import LOG_FOLDER_NAME
from rollcall_ha.broker.log.soundness import damage_at_the_ends, find_damage
from rollcall_ha.broker.parts import Parts
from rollcall_ha.broker.replica import Replica
from rollcall_ha.broker.replica_files import MARKS_FILE_NAME, ReplicaFiles, StoreMark
from rollcall_ha.controller.contract.ids import LogOffset, MasterEpoch, RegisterCode
from rollcall_ha.controller.contract.values import CleanMark
from rollcall_ha.controller.contract.verdicts import Intactness
from rollcall_ha.epoch.store import EPOCH_FILE_NAME
from rollcall_ha.node.files import DataDirectory, birthmark
from rollcall_ha.node.process import ExitCode
from tests.support.core_builders import Fleet, ids, positions
from tests.support.core_fleets import judged
from tests.support.log_tools import append_all, crash, draft, log_bytes, never_synced, open_log
from tests.support.set_views import KEY
from tests.unit.test_broker_replica import ME, config_of, free_port, registered, view


def filled(root: Path, *, is_clean: bool = True) -> LogOffset:
    log = open_log(root)
    while len(log._files.segments) < 3:
        append_all(log, draft(b"x" * 3000))
    end = log.max_offset
    # Synced and noted here, not when the flush thread comes to it: after a kill the rest is a torn tail.
    never_synced(log)
    log._sync()
    log._do_chores()
    log.close(is_clean=is_clean)
    return end


# --- the log ---------------------------------------------------------------------------------------------------------


def test_a_log_that_was_emptied_is_told_before_anything_is_changed(tmp_path: Path) -> None:
    """300 records, a clean stop, ``commitlog`` removed: the start said nothing, and the empty log was elected."""
    end = filled(tmp_path)
    shutil.rmtree(tmp_path / LOG_FOLDER_NAME)
    said = (tmp_path / STATE_FILE_NAME).read_bytes()
    found: list[bytes] = []

    log = open_log(tmp_path, on_loss=lambda: found.append((tmp_path / STATE_FILE_NAME).read_bytes()))

    assert found == [said]
    assert log.recovery.lost == f"the log ends at 0, its state says that everything up to {end} was synced or confirmed"
    crash(log)


def test_a_log_whose_first_segment_was_removed_is_told(tmp_path: Path) -> None:
    """The rest follows on by itself, so that nothing else would notice."""
    filled(tmp_path)
    min((tmp_path / LOG_FOLDER_NAME).iterdir()).unlink()

    log = open_log(tmp_path)

    assert "the log begins at 16384, its state says 0" in log.recovery.lost
    crash(log)


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_that_lost_nothing_is_not_accused(tmp_path: Path, is_clean: bool) -> None:
    """Neither after a clean stop nor after a kill, nor after the cut that a torn tail gets."""
    filled(tmp_path, is_clean=is_clean)
    accused: list[str] = []

    for _ in range(2):
        log = open_log(tmp_path, on_loss=lambda: accused.append("lost"))
        assert log.recovery.lost == ""
        crash(log)
    assert accused == []


@pytest.mark.parametrize(("which", "is_clean"), [(0, True), (0, False), (-1, True)])
def test_a_flipped_byte_in_the_first_or_last_segment_is_told(tmp_path: Path, which: int, is_clean: bool) -> None:
    """
    The start after a clean stop believed every byte. It cuts none: other replicas have acked what follows.

    Not the last segment after a kill: unsynced bytes are a torn tail.
    """
    end = filled(tmp_path, is_clean=is_clean)
    path = sorted(each for each in (tmp_path / LOG_FOLDER_NAME).iterdir() if not each.suffix)[which]
    content = bytearray(path.read_bytes())
    content[1_000] ^= 1
    path.write_bytes(content)

    log = open_log(tmp_path)

    assert f"the body of the record at {int(path.name)} does not match its CRC" in log.recovery.damaged
    assert log.max_offset == end
    crash(log)


def test_only_the_ends_of_a_log_are_read_at_a_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terabyte would take an hour. The middle is checked when it is sent."""
    monkeypatch.setattr("rollcall_ha.broker.log.soundness.CHECKED_BYTES", 4_000)
    end = filled(tmp_path)
    log = open_log(tmp_path)
    segments = log._files.segments
    assert damage_at_the_ends(segments, end) == ""
    segments[1].view[1_000] ^= 1
    assert damage_at_the_ends(segments, end) == ""
    assert f"the record at {segments[1].base}" in find_damage(segments, 0, end)
    crash(log)


# --- small files -----------------------------------------------------------------------------------------------------


def test_marks_that_were_removed_take_what_the_store_proves_with_them(tmp_path: Path) -> None:
    """The start took a replica without marks for one that never promised: it could follow an older master."""
    files = ReplicaFiles(tmp_path)
    before = remember(files, KEY)
    files.marks.store(EpochMarks(promised=MasterEpoch(5), entered=MasterEpoch(4)))
    files.clean_mark.store(CleanMark(nonce="n", end_offset=LogOffset(9)))
    assert remember(files, KEY, last_epoch=MasterEpoch(5)).process.store_id == before.process.store_id
    (tmp_path / MARKS_FILE_NAME).unlink()

    files = ReplicaFiles(tmp_path)
    found = remember(files, KEY, last_epoch=MasterEpoch(5))

    assert found.marks.promised == 5
    assert ReplicaFiles(tmp_path).marks.load().promised == 5
    assert found.clean_mark is None
    assert found.process.store_id != before.process.store_id
    assert "masterEpoch -1 was promised, the log has bytes of 5" in found.amiss


def test_a_view_that_was_removed_is_told(tmp_path: Path) -> None:
    files = ReplicaFiles(tmp_path)
    files.marks.store(EpochMarks(promised=MasterEpoch(5)))
    assert remember(files, KEY).amiss == "", "a new replica has none"
    assert "view.json is gone" in remember(files, KEY, last_epoch=MasterEpoch(5)).amiss


def test_a_confirm_beyond_half_a_record_accuses_nobody(tmp_path: Path) -> None:
    """A replica that catches up hears a confirm far ahead of it; killed inside a record, it has lost nothing."""
    master, slave = open_log(tmp_path / "m"), open_log(tmp_path / "s")
    append_all(master, draft(b"x" * 500), draft(b"x" * 500))
    data = log_bytes(master)[:-100]
    with slave.receive_view(len(data)) as view:
        view[:] = data
    slave.commit_received(len(data))
    slave.note_confirm(LogOffset(1_000_000), LogOffset(0))
    assert slave.confirm_offset == slave.whole_offset < slave.max_offset
    slave._do_chores()
    crash(slave)
    crash(master)

    slave = open_log(tmp_path / "s")

    assert slave.recovery.lost == ""
    crash(slave)


# --- the store -------------------------------------------------------------------------------------------------------


def start_once(directory: Path, *, stop_after_s: float = 0.3) -> tuple[int, str | None]:
    """One start of the real server on ``directory``, soon stopped; its exit code, and the store's id afterwards."""
    config = replace(config_of(directory), listen=("127.0.0.1", free_port()), segment_bytes=16 * 1024)

    async def story() -> int:
        claimed = DataDirectory.claim(directory, kind=server.DIRECTORY_KIND, version=server.DIRECTORY_VERSION)
        stop = asyncio.Event()
        asyncio.get_running_loop().call_later(stop_after_s, stop.set)
        try:
            return await server.serve(config, claimed, stop)
        finally:
            claimed.release()

    code = asyncio.run(story())
    mark = ReplicaFiles(directory).store.load()
    return code, None if mark is None else mark.store_id


def fail_next_sync_of(monkeypatch: pytest.MonkeyPatch, part: str) -> list[str]:
    """The next sync of a file whose path has ``part`` ends in EIO, later ones succeed: as Linux does it."""
    failed: list[str] = []

    def failing(sync: Callable[[int], None]) -> Callable[[int], None]:
        def synced(descriptor: int) -> None:
            path = os.readlink(f"/proc/self/fd/{descriptor}")
            if part in path and not failed:
                failed.append(path)
                raise OSError(errno.EIO, "Input/output error")
            sync(descriptor)

        return synced

    monkeypatch.setattr(os, "fdatasync", failing(os.fdatasync))
    monkeypatch.setattr(os, "fsync", failing(os.fsync))
    return failed


@pytest.mark.slow
def test_a_start_after_an_emptied_log_is_another_store(tmp_path: Path) -> None:
    code, before = start_once(tmp_path)
    assert (code, before is not None) == (ExitCode.OK, True)
    filled(tmp_path)
    assert start_once(tmp_path)[1] == before
    shutil.rmtree(tmp_path / LOG_FOLDER_NAME)

    code, after = start_once(tmp_path)

    assert code == ExitCode.OK
    assert after not in (None, before)


@pytest.mark.slow
def test_a_sync_that_fails_when_the_log_is_opened_disowns_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second start succeeds on the dropped pages, and was taken for the same boot and the same store."""
    _, before = start_once(tmp_path)
    log = never_synced(open_log(tmp_path))
    append_all(log, draft(b"x" * 3000))
    crash(log)

    with monkeypatch.context() as patch:
        failed = fail_next_sync_of(patch, f"/{LOG_FOLDER_NAME}/")
        code, after = start_once(tmp_path)

    assert len(failed) == 1
    assert (code, after) == (ExitCode.STORAGE, None)
    assert start_once(tmp_path)[1] not in (None, before)


@pytest.mark.slow
def test_a_sync_that_fails_at_a_clean_stop_disowns_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clean stop writes its mark last; the file before it was not synced, and nothing told the next start."""
    start_once(tmp_path)

    with monkeypatch.context() as patch:
        failed = fail_next_sync_of(patch, "clean-stop")
        code, after = start_once(tmp_path)

    assert len(failed) == 1
    assert (code, after) == (ExitCode.STORAGE, None)


@pytest.mark.slow
@pytest.mark.parametrize("part", [MARKS_FILE_NAME, EPOCH_FILE_NAME])
def test_a_sync_that_fails_at_a_promotion_disowns_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """R3b: the promise, and the entry of the epoch: only the failed sync of the flush thread was heard of."""
    assert start_once(tmp_path)[1] is not None
    identity = Identity(cluster=KEY.cluster, broker_name=KEY.name, register_code=RegisterCode("r1"), broker_id=ME)
    ReplicaFiles(tmp_path).identity.store(identity)
    was_started = Replica.start
    failing: list[list[str]] = []

    def start(replica: Replica) -> None:
        was_started(replica)
        failing.append(fail_next_sync_of(monkeypatch, f"/{part}"))
        replica.session_opened(registered(view(1, master=replica, epoch=1)))

    monkeypatch.setattr(Replica, "start", start)

    # It ends by itself, at the failure: stopped after 0.3 s, a busy machine had not come to the sync.
    code, after = start_once(tmp_path, stop_after_s=30)

    assert [len(failed) for failed in failing] == [1]
    assert (code, after) == (ExitCode.STORAGE, None)


@pytest.mark.parametrize(
    "error",
    [
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"),
        OSError(errno.EMFILE, "Too many open files"),
    ],
)
def test_an_address_that_cannot_be_opened_says_nothing_about_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    """The only replica of a set would else have to be elected by hand, because a name server was away for a second."""
    _, before = start_once(tmp_path)
    was_started = Replica.start

    def start(replica: Replica) -> None:
        was_started(replica)
        replica.failed(error)

    monkeypatch.setattr(Replica, "start", start)

    code, after = start_once(tmp_path)

    assert (code, after) == (ExitCode.STORAGE, before)


# --- the controllers -------------------------------------------------------------------------------------------------


def test_a_goodbye_that_the_log_does_not_reach_is_a_veto() -> None:
    """Replica 1 of a set of one said goodbye at 300 and comes back empty, same boot, same store: no proof, a suspect."""
    fleet = Fleet().serving()
    fleet.do(fleet.alter(1))
    fleet.goodbye(1, end=300)

    fleet.do(fleet.registration(1, incarnation="i1.2", holds=positions(0)))

    assert judged(fleet) is Intactness.SUSPECT
    assert fleet.set.sync_state_set == ids(1)
    fleet.elect()
    assert fleet.set.master_epoch == 1


# --- copies of a directory -----------------------------------------------------------------------------------------------


def started(directory: Path, birth: Callable[[Path], str] = birthmark) -> tuple[str, str]:
    """Store id of a start there, and what is amiss."""
    found = remember(ReplicaFiles(directory), KEY, Parts(birthmark=birth))
    return found.process.store_id, found.amiss


def test_a_copy_of_a_directory_was_the_same_store(tmp_path: Path) -> None:
    """All files of it, byte by byte and with their times, of a process that had run since the first start."""
    original, copied, moved = tmp_path / "original", tmp_path / "copied", tmp_path / "moved"
    original.mkdir()
    first, _ = started(original)
    if not birthmark(original / MARKS_FILE_NAME):
        pytest.skip("this file system tells no birth")
    shutil.copytree(original, copied)
    assert started(original) == (first, "")

    of_copy, amiss = started(copied)
    assert of_copy != first
    assert "is a copy" in amiss
    assert started(copied) == (of_copy, "")

    original.rename(moved)
    assert started(moved) == (first, "")
    shutil.rmtree(moved)
    shutil.copytree(copied, moved)
    assert started(moved)[0] not in (first, of_copy)


def test_marks_that_are_written_in_place_keep_their_birth(tmp_path: Path) -> None:
    """Each promise of a later epoch would make it another store."""
    first, _ = started(tmp_path)
    files = ReplicaFiles(tmp_path)
    for epoch in (1, 2, 3):
        files.marks.store(files.marks.load().with_promised(MasterEpoch(epoch)))

    assert started(tmp_path)[0] == first


def test_a_directory_of_a_program_that_knew_no_births_stays_the_same_store(tmp_path: Path) -> None:
    """Each replica of a fleet would have left its set with its upgrade to this program, and been a suspect as the last one."""
    files = ReplicaFiles(tmp_path)
    files.store.store(StoreMark(store_id="of-0.2.0"))
    assert "birthmark" in (tmp_path / "store.json").read_text()
    (tmp_path / "store.json").write_bytes(_as_0_2_0(files))

    assert started(tmp_path) == ("of-0.2.0", "")
    assert started(tmp_path) == ("of-0.2.0", "")
    shutil.copytree(tmp_path, tmp_path.with_name("copied"))
    assert started(tmp_path.with_name("copied"))[0] != "of-0.2.0"


def test_a_file_system_that_tells_no_birth_accuses_nobody(tmp_path: Path) -> None:
    """Nor does one that told it before its kernel was exchanged, and tells it again afterwards."""
    first, _ = started(tmp_path, lambda _path: "")
    assert started(tmp_path, lambda _path: "1.2.3") == (first, "")
    assert started(tmp_path, lambda _path: "") == (first, "")
    assert started(tmp_path, lambda _path: "1.2.3") == (first, "")
    assert started(tmp_path, lambda _path: "1.2.4")[0] != first
    assert birthmark(tmp_path / "nowhere") == ""


def _as_0_2_0(files: ReplicaFiles) -> bytes:
    """The mark as that release wrote it, without a field that it does not know."""
    mark = files.store.load()
    assert mark is not None
    body = json.dumps({"storeId": mark.store_id}, separators=(",", ":")).encode()
    return b'{"version":1,"crc32":%d,"value":%s}\n' % (zlib.crc32(body), body)
