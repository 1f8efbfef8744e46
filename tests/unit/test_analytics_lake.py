"""Publishing a lake: whole or not at all, whoever dies when; Spark is not needed to see it."""

from __future__ import annotations

import datetime as dt
import os
import shutil
import signal
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollcall_ha.analytics.lake.lake import (
    FORM,
    VERSIONS_KEPT,
    Lake,
    LakeBusy,
    LakeWriter,
    Manifest,
    NoLake,
    partitions_in,
    values_of,
)
from rollcall_ha.analytics.lake.tables import LakeTable
from rollcall_ha.analytics.silver.tables import SILVER_REIGNS, SILVER_TENURES

DAYS = ("cluster=a/day=2026-01-01", "cluster=a/day=2026-01-02")


def stage(writer: LakeWriter, *partitions: str, table: LakeTable = SILVER_REIGNS) -> str:
    """What Spark would leave: a file per partition."""
    run, folder = writer.folder(table)
    for partition in partitions:
        (folder / partition).mkdir(parents=True)
        (folder / partition / "part-0.parquet").write_text(run)
    return run


def publish(lake: Lake, *partitions: str, removed: tuple[str, ...] | None = ()) -> str:
    with lake.writer() as writer:
        run = stage(writer, *partitions)
        writer.replace(SILVER_REIGNS, {partition: [run] for partition in partitions}, removed=removed)
        writer.publish()
    return run


def folders(lake: Lake) -> list[str]:
    return sorted(
        f"{folder.name}/{partition}"
        for folder in (lake.root / "data").glob("*/*/run=*")
        for partition in partitions_in(folder) or ["."]
    )


def test_what_is_staged_is_not_published(tmp_path: Path) -> None:
    """A writer that dies leaves the manifest as it was; the next one removes its folders."""
    lake = Lake(tmp_path)
    first = publish(lake, *DAYS)
    before = lake.manifest()
    with lake.writer() as writer:
        second = stage(writer, *DAYS)
        writer.replace(SILVER_REIGNS, {}, removed=DAYS)
    assert lake.manifest() == before
    assert f"run={second}/{DAYS[0]}" in folders(lake)
    with lake.writer():
        assert folders(lake) == [f"run={first}/{day}" for day in DAYS]


def test_a_partition_that_comes_out_empty_is_gone(tmp_path: Path) -> None:
    """Others stay; replacing the whole table leaves nothing else."""
    lake = Lake(tmp_path)
    publish(lake, *DAYS)
    publish(lake, removed=(DAYS[0],))
    assert list(lake.manifest().tables[SILVER_REIGNS.path]) == [DAYS[1]]
    run = publish(lake, DAYS[0], removed=None)
    assert lake.manifest().tables[SILVER_REIGNS.path] == {DAYS[0]: [run]}


def test_nothing_changed_is_not_a_version(tmp_path: Path) -> None:
    """Running twice publishes once."""
    lake = Lake(tmp_path)
    publish(lake, *DAYS)
    with lake.writer() as writer:
        assert writer.publish().version == 1
    assert lake.manifest().version == 1


def test_a_reader_of_an_older_manifest_can_finish(tmp_path: Path) -> None:
    """Files of the last three versions are there, older ones are not."""
    lake = Lake(tmp_path)
    runs = [publish(lake, DAYS[0]) for _ in range(5)]
    assert folders(lake) == [f"run={run}/{DAYS[0]}" for run in runs[-3:]]


def test_killed_between_the_two_manifests_counts_as_not_published(tmp_path: Path) -> None:
    """The kept copy is written first; without ``manifest.json`` it names nothing."""
    lake = Lake(tmp_path)
    publish(lake, *DAYS)
    before = lake.manifest_path.read_bytes()
    lost = publish(lake, *DAYS)
    lake.manifest_path.write_bytes(before)
    with lake.writer() as writer:
        assert writer.published.version == 1
    assert [folder for folder in folders(lake) if lost in folder] == []
    assert publish(lake, *DAYS) != lost
    assert lake.manifest().version == 2


def test_java_of_a_killed_run_that_lives_on_writes_into_no_table(tmp_path: Path) -> None:
    """The next run would have had the same name: what the orphan still writes would have become its rows."""
    lake = Lake(tmp_path)
    with lake.writer() as killed:
        orphan = stage(killed, DAYS[0])
    with lake.writer() as writer:
        run = stage(writer, DAYS[0])
        late = lake.root / "data" / SILVER_REIGNS.path / f"run={orphan}" / DAYS[0]
        late.mkdir(parents=True)
        (late / "part-1.parquet").write_text("late")
        writer.replace(SILVER_REIGNS, {DAYS[0]: [run]})
        writer.publish()
    assert folders(lake) == [f"run={run}/{DAYS[0]}"]
    assert [file.name for file in (lake.root / "data").rglob("*.parquet")] == ["part-0.parquet"]


@pytest.mark.slow
def test_a_reader_beside_a_writer_sees_the_old_or_the_new(tmp_path: Path) -> None:
    """Two tables that are published together are read together: never one of each, never a file that is not there."""
    lake = Lake(tmp_path)
    seen: list[set[str]] = []
    has_read, is_over = threading.Event(), threading.Event()

    def read() -> None:
        while not is_over.is_set():
            tables = lake.manifest().tables
            seen.append(
                {
                    (lake.root / "data" / path / f"run={run}" / partition / "part-0.parquet").read_text().split("-")[0]
                    for path, partitions in tables.items()
                    for partition, runs in partitions.items()
                    for run in runs
                }
            )
            has_read.set()

    publish_both(lake)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for version in range(2, 10):
            assert publish_both(lake) == version
            # Files of three versions are kept: a reader that sleeps through more is told so, and reads again.
            has_read.clear()
            assert has_read.wait(timeout=10)
    finally:
        is_over.set()
        reader.join()

    assert len({*map(frozenset, seen)}) > 1
    assert all(len(versions_seen) == 1 for versions_seen in seen)


def publish_both(lake: Lake) -> int:
    with lake.writer() as writer:
        for table in (SILVER_REIGNS, SILVER_TENURES):
            writer.replace(table, {day: [stage(writer, day, table=table)] for day in DAYS})
        return writer.publish().version


@pytest.mark.slow
def test_killed_before_any_change_of_the_disk_the_old_version_or_the_new_one_is_there(tmp_path: Path) -> None:
    """
    SIGKILL before the first change that a run makes on disk, before the second, and so on: while it stages, syncs, writes
    both manifests and removes what is old. Readers of every kept version find all of its files, and the next run
    publishes and leaves nothing else behind.
    """
    template = Lake(tmp_path / "template")
    for _ in range(VERSIONS_KEPT + 1):
        old = publish_both(template)
    found: list[int] = []
    while True:
        lake = Lake(tmp_path / f"killed-{len(found)}")
        shutil.copytree(template.root, lake.root)
        was_killed = killed_before(len(found), lake)
        found.append(readable(lake)[0])
        assert readable(lake) == [found[-1] - back for back in range(VERSIONS_KEPT)]
        assert publish_both(lake) == found[-1] + 1
        assert everything(lake) == everything_kept(lake)
        shutil.rmtree(lake.root)
        if not was_killed:
            break

    assert found == sorted(found)
    assert found.count(old) > 20, "kills before the new version was published"
    assert found.count(old + 1) > 5, "kills after that"
    assert len(found) == found.count(old) + found.count(old + 1)


def killed_before(number: int, lake: Lake) -> bool:
    """
    Let a child ``publish_both``, and kill itself before its change of the disk of this number. False: it made fewer.

    A file that is opened for writing is a change, and so is what is written into it.
    """
    child = os.fork()
    if child == 0:
        try:
            sys.addaudithook(Death(number))
            publish_both(lake)
            os._exit(0)
        finally:
            traceback.print_exc()
            os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL)
    return status != 0


class Death:
    """Comes to this process before its change of the disk of a number."""

    def __init__(self, number: int) -> None:
        self._left = number

    def __call__(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR) and self._left >= 0:
            self._pass()
            if self._left == 0:
                self._left = -1
                os.open(arguments[0], arguments[2], 0o600)
                self._die()
            self._left -= 1
        elif event in ("os.rename", "os.mkdir", "os.rmdir", "os.remove"):
            self._pass()

    def _pass(self) -> None:
        if self._left == 0:
            self._die()
        self._left -= 1

    def _die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def manifests(lake: Lake) -> list[Manifest]:
    """Kept ones, the newest published one first."""
    newest = lake.manifest()
    texts = [path.read_bytes() for path in (lake.root / "manifests").glob("*.json")]
    kept = [msgspec.json.decode(text, type=Manifest) for text in texts]
    return sorted(
        (manifest for manifest in kept if newest.version - VERSIONS_KEPT < manifest.version <= newest.version),
        key=lambda manifest: -manifest.version,
    )


def files_of(lake: Lake, manifest: Manifest) -> set[Path]:
    return {
        lake.root / "data" / path / f"run={run}" / partition / "part-0.parquet"
        for path, partitions in manifest.tables.items()
        for partition, runs in partitions.items()
        for run in runs
    }


def readable(lake: Lake) -> list[int]:
    """Kept versions; fails unless all files of each are there, and are of that version."""
    assert lake.manifest() == manifests(lake)[0]
    for manifest in manifests(lake):
        texts = [file.read_text() for file in files_of(lake, manifest)]
        assert {text.split("-")[0] for text in texts} == {f"v{manifest.version:08d}"}
        assert len(texts) == 2 * len(DAYS)
    return [manifest.version for manifest in manifests(lake)]


def everything(lake: Lake) -> set[Path]:
    return {path for path in lake.root.rglob("*") if path.is_file() or path.name.startswith("run=")}


def everything_kept(lake: Lake) -> set[Path]:
    """What belongs there: two files of our own, the kept manifests, and the folders and files that they name."""
    kept = manifests(lake)
    files = set[Path]().union(*(files_of(lake, manifest) for manifest in kept))
    folders_of_runs = {parent for file in files for parent in file.parents if parent.name.startswith("run=")}
    of_versions = {lake.root / "manifests" / f"{manifest.version:08d}.json" for manifest in kept}
    return {lake.root / "lock", lake.manifest_path} | of_versions | files | folders_of_runs


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
            assert writer.published.version == 0


def test_no_lake_and_a_foreign_manifest_are_named(tmp_path: Path) -> None:
    """Neither is an empty lake."""
    lake = Lake(tmp_path)
    with pytest.raises(NoLake, match="make one with: rollcall analytics run"):
        lake.require()
    lake.manifest_path.write_text('{"version":1,"form":2,"surprise":true}')
    with pytest.raises(NoLake, match="is not a manifest of this program"):
        lake.manifest()
    with pytest.raises(NoLake, match="cannot be the folder of a lake"), Lake(lake.manifest_path).writer():
        pass


def test_a_lake_of_an_earlier_form_is_refused(tmp_path: Path) -> None:
    """Its reigns ended at the first acknowledgement; later days were added to them by another measure, without a word."""
    lake = Lake(tmp_path)
    publish(lake, "cluster=a/day=2026-01-31")
    assert lake.manifest().form == FORM
    lake.manifest_path.write_bytes(lake.manifest_path.read_bytes().replace(b'"form":2,', b""))
    with pytest.raises(NoLake, match=r"has form 1, this program reads and writes form 2; .* --lake OTHER"):
        lake.require()
    with pytest.raises(NoLake, match="form 1"), lake.writer():
        pass


def test_names_of_partitions_are_read_as_spark_writes_them() -> None:
    """A cluster's name may hold anything; Spark escapes it."""
    assert values_of("cluster=a%2Fb%3D/day=2026-01-31") == ("a/b=", dt.date(2026, 1, 31))
