"""Publishing a lake: whole or not at all, whoever dies when; Spark is not needed to see it."""

from __future__ import annotations

import datetime as dt
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet
import pytest
from deltalake import DeltaTable

from rollcall_ha.analytics.lake.delta import Partitions, files_of, write_file
from rollcall_ha.analytics.lake.lake import SNAPSHOTS_KEPT, Lake, LakeBusy, LakeWriter, NoLake, Snapshot
from rollcall_ha.analytics.lake.tables import FORMS, SNAPSHOTS, LakeTable, columns_of

DAYS = ("2026-01-01", "2026-01-02")
COLUMNS = columns_of("day date UTC date\nnumber bigint of the snapshot\n")
FIRST, SECOND = (
    LakeTable(layer="silver", name=name, meaning="A table.", columns=COLUMNS, key=("day",))
    for name in ("first", "second")
)
EVENTS = LakeTable(layer="bronze", name="events", meaning="A table.", columns=COLUMNS, key=("day",))
RANDOM_KILLS = 25


def stage(writer: LakeWriter, *days: str, table: LakeTable = FIRST) -> Partitions:
    """What Spark would leave: a file per day, with one row of the snapshot that is to come."""
    folder = writer.folder(table)
    for day in days:
        row = {"day": dt.date.fromisoformat(day), "number": writer.published.number + 1}
        write_file(table, [row], folder / f"part={day}" / "0.parquet")
    return writer.found(table, folder)


def publish(lake: Lake, *days: str, removed: tuple[str, ...] | None = ()) -> int:
    with lake.writer() as writer:
        writer.replace(FIRST, stage(writer, *days), removed=removed)
        return writer.publish().number


def publish_both(lake: Lake) -> int:
    with lake.writer() as writer:
        for table in (FIRST, SECOND):
            writer.replace(table, stage(writer, *DAYS, table=table))
        return writer.publish().number


def rows(lake: Lake, table: LakeTable = FIRST, snapshot: Snapshot | None = None) -> dict[str, int]:
    """Day -> the number in its row, as any program reads it: by Delta, of the version that a snapshot names."""
    version = (lake.snapshot() if snapshot is None else snapshot).version(table.path)
    if version is None:
        return {}
    found = DeltaTable(lake.folder(table.path), version=version).to_pyarrow_table()
    assert found.num_rows == len(set(found["day"].to_pylist())), "never twice the rows"
    return {str(row["day"]): row["number"] for row in found.to_pylist()}


def test_what_is_staged_is_not_published(tmp_path: Path) -> None:
    """A writer that dies leaves the tables as they were; the next one removes its files."""
    lake = Lake(tmp_path)
    publish(lake, *DAYS)
    before = lake.snapshot()
    with lake.writer() as writer:
        left = [lake.folder(FIRST.path) / file for some in stage(writer, *DAYS).values() for file in some]
        new = writer.folder(SECOND)
        write_file(SECOND, [], new / "0.parquet")
    assert lake.snapshot() == before
    assert all(path.exists() for path in left)
    with lake.writer():
        assert not any(path.exists() for path in (*left, new))
    assert rows(lake) == dict.fromkeys(DAYS, 1)


def test_a_partition_that_comes_out_empty_is_gone(tmp_path: Path) -> None:
    """Others stay; replacing the whole table leaves nothing else."""
    lake = Lake(tmp_path)
    publish(lake, *DAYS)
    publish(lake, removed=(DAYS[0],))
    assert rows(lake) == {DAYS[1]: 1}
    publish(lake, DAYS[0], removed=None)
    assert rows(lake) == {DAYS[0]: 3}


def test_nothing_changed_is_not_a_snapshot(tmp_path: Path) -> None:
    """Running twice publishes once."""
    lake = Lake(tmp_path)
    publish(lake, *DAYS)
    with lake.writer() as writer:
        writer.append(FIRST, {})
        assert writer.publish().number == 1
    assert lake.snapshot().number == 1


@pytest.mark.slow
def test_earlier_runs_can_be_read_until_they_are_swept(tmp_path: Path) -> None:
    """Files of the kept snapshots are there, older ones are not, and the refusal names what is kept."""
    lake = Lake(tmp_path)
    for _ in range(SNAPSHOTS_KEPT + 2):
        publish(lake, DAYS[0])
    kept = [one.number for one in lake.snapshots()]
    assert kept == list(range(SNAPSHOTS_KEPT + 2, 2, -1))
    assert [rows(lake, snapshot=lake.snapshot(number))[DAYS[0]] for number in kept] == kept
    assert len(list(lake.folder(FIRST.path).rglob("*.parquet"))) == SNAPSHOTS_KEPT
    with pytest.raises(NoLake, match=r"keeps the snapshots \[12, .* 3\], and not 2"):
        lake.snapshot(2)


@pytest.mark.slow
def test_what_a_layer_was_built_from_is_kept_however_many_snapshots_follow(tmp_path: Path) -> None:
    """Bronze alone was published eleven times; then silver failed at the files that it had been built from."""
    lake = Lake(tmp_path)
    with lake.writer() as writer:
        writer.replace(EVENTS, stage(writer, *DAYS, table=EVENTS))
        writer.replace(FIRST, stage(writer, *DAYS))
        writer.note_built("silver", [EVENTS])
        writer.publish()
        for _ in range(SNAPSHOTS_KEPT + 1):
            writer.replace(EVENTS, stage(writer, *DAYS, table=EVENTS))
            writer.publish()
    with lake.writer() as writer:
        built = writer.built("silver")[EVENTS.path]
        assert writer.lake.files(EVENTS.path, 0) == built != writer.files(EVENTS)
        assert all((lake.folder(EVENTS.path) / file).exists() for some in built.values() for file in some)
        writer.note_built("silver", [EVENTS])
        writer.publish()
    assert not any((lake.folder(EVENTS.path) / file).exists() for some in built.values() for file in some)


def test_a_table_of_which_only_the_folder_was_made_is_no_table(tmp_path: Path) -> None:
    """A run was killed between the folder of its log and the first commit; every later run failed at it."""
    lake = Lake(tmp_path)
    for path in (FIRST.path, SNAPSHOTS.path):
        (lake.folder(path) / "_delta_log").mkdir(parents=True)
    assert lake.snapshot().number == 0
    assert publish(lake, *DAYS) == 1
    assert rows(lake) == dict.fromkeys(DAYS, 1)


@pytest.mark.slow
def test_no_entry_of_a_log_expires_and_what_is_committed_is_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints too: a reader begins with them. An old entry is what a snapshot of a quiet table still names."""
    lake, real = Lake(tmp_path), os.fsync
    synced: set[Path] = set()
    publish(lake, *DAYS)
    folder = lake.folder(FIRST.path)
    DeltaTable(folder).alter.set_table_properties({"delta.checkpointInterval": "2"})
    log = {path.name for path in (folder / "_delta_log").iterdir()}

    def noted(handle: int) -> None:
        synced.add(Path(f"/proc/self/fd/{handle}").readlink())
        real(handle)

    monkeypatch.setattr(os, "fsync", noted)
    for _ in range(4):
        publish(lake, DAYS[0])
    written = {path for path in (folder / "_delta_log").iterdir() if path.name not in log}
    assert sum(".checkpoint." in path.name for path in written) == 2
    assert written <= synced
    assert DeltaTable(folder).metadata().configuration["delta.enableExpiredLogCleanup"] == "false"


def test_a_lake_that_is_written_for_months_does_not_remember_every_version(tmp_path: Path) -> None:
    """A stream published every few seconds, and its process grew by the list of files of each version."""
    lake = Lake(tmp_path)
    with lake.writer() as writer:
        for _ in range(3):
            writer.append(FIRST, stage(writer, DAYS[0]))
            writer.publish()
    assert lake._files == {}


@pytest.mark.slow
def test_what_a_killed_run_committed_without_a_snapshot_is_undone(tmp_path: Path) -> None:
    """Its first table was committed, the second was not; a table that no snapshot knew is empty again."""
    lake = Lake(tmp_path)
    publish(lake, *DAYS)
    with lake.writer() as killed:
        killed.replace(FIRST, stage(killed, DAYS[0]))
        killed.replace(SECOND, stage(killed, *DAYS, table=SECOND))
        killed._name = lambda fresh: None  # type: ignore[method-assign]
        killed.publish()
    assert rows(lake) == dict.fromkeys(DAYS, 1)
    with lake.writer():
        for table, found in ((FIRST, 2), (SECOND, 0)):
            assert sum(map(len, files_of(DeltaTable(lake.folder(table.path))).values())) == found
    assert publish_both(lake) == 2
    assert rows(lake) == rows(lake, SECOND) == dict.fromkeys(DAYS, 2)


def test_java_of_a_killed_run_that_lives_on_writes_into_no_table(tmp_path: Path) -> None:
    """The next run would have had the same name: what the orphan still writes would have become its rows."""
    lake = Lake(tmp_path)
    with lake.writer() as killed:
        orphan = killed.folder(FIRST)
        stage(killed, DAYS[0])
    with lake.writer() as writer:
        staged = stage(writer, DAYS[0])
        write_file(FIRST, [], orphan / f"part={DAYS[0]}" / "late.parquet")
        writer.replace(FIRST, staged)
        writer.publish()
    assert rows(lake) == {DAYS[0]: 1}
    assert not orphan.exists()


def test_a_micro_batch_and_its_number_are_published_together(tmp_path: Path) -> None:
    """A batch without rows is a snapshot too: its number must not be lost."""
    lake = Lake(tmp_path)
    with lake.writer() as writer:
        assert writer.last_batch("checkpoint") == -1
        writer.replace(FIRST, stage(writer, *DAYS))
        writer.note_batch("checkpoint", 7)
        assert writer.last_batch("checkpoint") == -1
        writer.publish()
    with lake.writer() as writer:
        assert (writer.last_batch("checkpoint"), writer.last_batch("other")) == (7, -1)
        writer.note_batch("checkpoint", 8)
        assert writer.publish().number == 2
        assert writer.last_batch("checkpoint") == 8


def test_a_layer_knows_the_files_that_it_was_built_from(tmp_path: Path) -> None:
    """As they were published with it, not as they are now."""
    lake = Lake(tmp_path)
    with lake.writer() as writer:
        writer.replace(EVENTS, stage(writer, DAYS[0], table=EVENTS))
        writer.replace(FIRST, stage(writer, DAYS[0]))
        writer.note_built("silver", [EVENTS])
        built = {EVENTS.path: writer.files(EVENTS)}
        assert writer.built("silver") == {}
        writer.publish()
        assert writer.built("silver") == built
        writer.append(EVENTS, stage(writer, *DAYS, table=EVENTS))
        writer.publish()
    with lake.writer() as writer:
        assert writer.built("silver") == built != {EVENTS.path: writer.files(EVENTS)}


@pytest.mark.slow
def test_duckdb_and_pandas_read_one_snapshot_with_its_comments(tmp_path: Path) -> None:
    """By what the page shows: the versions of the newest snapshot, then the tables; nothing of ours is asked."""
    lake = Lake(tmp_path)
    publish_both(lake)
    publish_both(lake)
    snapshots = DeltaTable(tmp_path / "snapshots").to_pyarrow_dataset()
    database = duckdb.connect()
    newest = database.sql(
        'SELECT "table", version FROM snapshots WHERE snapshot = (SELECT max(snapshot) FROM snapshots) ORDER BY 1'
    ).fetchall()
    assert newest == [(FIRST.path, 1), (SECOND.path, 1)]
    assert snapshots.count_rows() == 4
    for path, version in newest:
        table = DeltaTable(tmp_path / path, version=version)
        first = table.to_pyarrow_dataset()
        assert database.sql("SELECT count(*), min(number), max(number) FROM first").fetchall() == [(2, 2, 2)]
        assert len(table.to_pandas()) == first.count_rows() == 2
        assert [field.metadata["comment"] for field in table.schema().fields] == ["UTC date", "of the snapshot"]
        assert table.metadata().description == "A table."
        # A plain reader of Parquet needs the list of files only.
        assert pa.parquet.read_table(table.file_uris()[0]).num_rows == 1
    database.close()


@pytest.mark.slow
def test_a_reader_beside_a_writer_sees_the_old_or_the_new(tmp_path: Path) -> None:
    """Two tables that are published together are read together: never one of each, never a file that is not there."""
    lake = Lake(tmp_path)
    seen: list[set[int]] = []
    has_read, is_over = threading.Event(), threading.Event()

    def read() -> None:
        while not is_over.is_set():
            snapshot = lake.snapshot()
            seen.append({number for table in (FIRST, SECOND) for number in rows(lake, table, snapshot).values()})
            has_read.set()

    publish_both(lake)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(2, 10):
            assert publish_both(lake) == number
            has_read.clear()
            assert has_read.wait(timeout=30)
    finally:
        is_over.set()
        reader.join()

    assert len({*map(frozenset, seen)}) > 1
    assert all(len(numbers_seen) == 1 for numbers_seen in seen)


@pytest.mark.slow
@pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.prove)])
def test_killed_before_any_change_of_the_disk_the_old_snapshot_or_the_new_one_is_there(
    tmp_path: Path, step: int
) -> None:
    """
    SIGKILL before the first change that a run makes on disk by itself, before the one ``step`` later, and so on. Readers
    of every kept snapshot find all of its rows, and the next run publishes and leaves nothing else behind.
    """
    template, old = published_often(tmp_path)
    found: list[int] = []
    while killed_and_sound(copied(template, tmp_path / "killed"), found, number=len(found) * step):
        pass

    assert min(found.count(old), found.count(old + 1)) > 5 // step, (
        "kills before and after the new snapshot was published"
    )
    assert len(found) == found.count(old) + found.count(old + 1)


@pytest.mark.prove
@pytest.mark.slow
def test_killed_at_any_moment_the_old_snapshot_or_the_new_one_is_there(tmp_path: Path) -> None:
    """The same at moments that fall into the changes that the library makes, some in a lake that is not there yet."""
    template, old = published_often(tmp_path)
    began = time.monotonic()
    publish_both(copied(template, tmp_path / "timed"))
    lasts_s = time.monotonic() - began
    found: list[int] = []
    from_nothing: list[int] = []
    for number in range(RANDOM_KILLS):
        after_s = lasts_s * number / RANDOM_KILLS
        if number % 3:
            killed_and_sound(copied(template, tmp_path / "killed"), found, after_s=after_s)
        else:
            shutil.rmtree(tmp_path / "killed", ignore_errors=True)
            killed_and_sound(Lake(tmp_path / "killed"), from_nothing, after_s=after_s)

    assert len(found) == found.count(old) + found.count(old + 1) > 5
    assert len(from_nothing) == from_nothing.count(0) + from_nothing.count(1) > 5


def published_often(folder: Path) -> tuple[Lake, int]:
    """A lake with snapshots to sweep, and the number of its newest."""
    template = Lake(folder / "template")
    for _ in range(SNAPSHOTS_KEPT + 1):
        old = publish_both(template)
    return template, old


def copied(template: Lake, root: Path) -> Lake:
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(template.root, root)
    return Lake(root)


FORKED = multiprocessing.get_context("forkserver")
"""Children of a process that has not used the library yet: its threads do not outlive a fork."""
FORKED.set_forkserver_preload(["deltalake", "pyarrow.parquet", __name__])


def killed_and_sound(lake: Lake, found: list[int], *, number: int = -1, after_s: float = 0) -> bool:
    """
    Let a child ``publish_both`` and die before its change of the disk of a number, or some time after it began; then look,
    and publish once more. False: it lived.

    A file that is opened for writing is a change, and so is what is written into it.
    """
    has_begun = FORKED.Event()
    child = FORKED.Process(target=dying, args=(lake, number, has_begun))
    child.start()
    assert has_begun.wait(timeout=60)
    if number < 0:
        time.sleep(after_s)  # the moment of death, not a condition that is waited for
        child.kill()
    child.join()
    assert child.exitcode in (0, -signal.SIGKILL)
    found.append(lake.snapshot().number)
    assert_sound(lake)
    assert publish_both(lake) == found[-1] + 1
    assert_sound(lake)
    assert everything(lake) == everything_kept(lake)
    return child.exitcode != 0


def dying(lake: Lake, number: int, has_begun: Any) -> None:
    has_begun.set()
    if number >= 0:
        sys.addaudithook(Death(number))
    publish_both(lake)


class Death:
    """Comes to this process before its change of the disk of a number."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if (
            event == "open" and isinstance(arguments[2], int) and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        ) or event in ("os.rename", "os.mkdir", "os.rmdir", "os.remove"):
            self._pass()

    def _pass(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


def assert_sound(lake: Lake) -> None:
    """The newest snapshot and the oldest kept one have all of their rows, and only their own."""
    kept = lake.snapshots()
    for snapshot in (*kept[:1], *kept[-1:]):
        for table in (FIRST, SECOND):
            assert rows(lake, table, snapshot) == dict.fromkeys(DAYS, snapshot.number)


def everything(lake: Lake) -> set[Path]:
    return {path for layer in FORMS for path in lake.folder(layer).rglob("*.parquet") if "_delta_log" not in path.parts}


def everything_kept(lake: Lake) -> set[Path]:
    """The files that kept snapshots name."""
    return {
        lake.folder(path) / file
        for snapshot in lake.snapshots()
        for path in snapshot.rows
        for some in lake.files(path, snapshot.version(path)).values()
        for file in some
    }


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """The second one is told who the first is; a writer that was killed holds nothing."""
    lake = Lake(tmp_path)
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom rollcall_ha.analytics.lake.lake import Lake\n"
        f"with Lake(Path({str(tmp_path)!r})).writer():\n    print('held', flush=True)\n    sys.stdin.read()\n"
    )
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(LakeBusy, match=f"pid {other.pid}"), lake.writer():
            pass
        other.kill()
        other.wait()
        with lake.writer() as writer:
            assert writer.published.number == 0


def test_no_lake_and_a_file_in_its_place_are_named(tmp_path: Path) -> None:
    """Neither is an empty lake."""
    lake = Lake(tmp_path)
    with pytest.raises(NoLake, match="make one with: rollcall analytics run"):
        lake.require()
    (tmp_path / "file").touch()
    with pytest.raises(NoLake, match="cannot be the folder of a lake"), Lake(tmp_path / "file").writer():
        pass


def test_a_lake_of_another_form_is_refused_but_for_gold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows meant something else; later days were added to them by another measure, without a word."""
    lake = Lake(tmp_path)
    publish(lake, *DAYS)
    monkeypatch.setitem(FORMS, "gold", 99)
    assert lake.require().number == 1
    made = FORMS["silver"]
    monkeypatch.setitem(FORMS, "silver", 99)
    with pytest.raises(NoLake, match=rf"has form {made}, this program's is 99; .* --lake OTHER"):
        lake.require()
    with pytest.raises(NoLake, match=f"form {made}"), lake.writer():
        pass


@pytest.mark.slow
def test_the_snapshots_have_a_row_per_table(tmp_path: Path) -> None:
    """Unique by their key, with the moment of the run."""
    lake = Lake(tmp_path)
    for _ in range(3):
        publish_both(lake)
    found = DeltaTable(lake.folder(SNAPSHOTS.path)).to_pyarrow_table().to_pylist()
    keys = [tuple(row[name] for name in SNAPSHOTS.key) for row in found]
    assert len(set(keys)) == len(keys) == 6
    assert all(row["made_at"].utcoffset().total_seconds() == 0 for row in found)
