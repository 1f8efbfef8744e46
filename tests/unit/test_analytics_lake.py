"""Publishing a lake: whole or not at all, whoever dies when; Spark is not needed to see it."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from analytics.lake import Lake, LakeBusy, NoLake, Writer, partitions_in, values_of
from analytics.tables import SILVER_REIGNS, SILVER_TENURES, Table

DAYS = ("cluster=a/day=2026-01-01", "cluster=a/day=2026-01-02")


def stage(writer: Writer, *partitions: str, table: Table = SILVER_REIGNS) -> str:
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


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    """The second one is told who the first is; a writer that was killed holds nothing."""
    lake = Lake(tmp_path)
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom analytics.lake import Lake\n"
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
    lake.manifest_path.write_text('{"version":1,"surprise":true}')
    with pytest.raises(NoLake, match="is not a manifest of this program"):
        lake.manifest()
    with pytest.raises(NoLake, match="cannot be the folder of a lake"), Lake(lake.manifest_path).writer():
        pass


def test_names_of_partitions_are_read_as_spark_writes_them() -> None:
    """A cluster's name may hold anything; Spark escapes it."""
    assert values_of("cluster=a%2Fb%3D/day=2026-01-31") == ("a/b=", dt.date(2026, 1, 31))
