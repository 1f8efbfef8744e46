"""The lake: the same whatever way the events came in, whoever was killed on the way, and exact when days are added."""

from __future__ import annotations

import gzip
import math
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.bronze.events import Why
from rollcall_ha.analytics.bronze.lines import LINES_DDL
from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS, BRONZE_QUALITY, BRONZE_REJECTED
from rollcall_ha.analytics.checks.alerts import Limits, alerts
from rollcall_ha.analytics.gold.tables import (
    GOLD,
    GOLD_CLUSTERS,
    GOLD_FAILOVERS,
    GOLD_FAILOVERS_DAILY,
    GOLD_QUALITY,
    GOLD_RTO,
    GOLD_SETS_DAILY,
    PERCENTS,
)
from rollcall_ha.analytics.jobs import stream as streams
from rollcall_ha.analytics.jobs.layers import Layers
from rollcall_ha.analytics.lake.lake import Lake, NoLake
from rollcall_ha.analytics.lake.progress import Progress
from rollcall_ha.analytics.lake.tables import BUCKETS, FORMS, bucket_of, in_ms
from rollcall_ha.analytics.report.contents import CLUSTERS
from rollcall_ha.analytics.report.gather import gather
from rollcall_ha.analytics.silver.orders import ORDERS
from rollcall_ha.analytics.silver.tables import (
    SILVER,
    SILVER_BROKER_SETS,
    SILVER_CLEANINGS,
    SILVER_HORIZONS,
    SILVER_REIGNS,
    SILVER_SILENCES,
    SILVER_SYNC_STATE_SETS,
)
from rollcall_ha.deploy.local.processes import wait_until
from tests.spark.lakes import build, content, shown
from tests.synthetic.files import write_fleet
from tests.synthetic.plan import Plan

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]
KILL_DEADLINE_S = 300
PLAN = Plan(seed=13, fleets=1, sets=4, days=2, faults_per_day=10)
LATE_FROM = 15
"""Place of a line in the middle of a failover: what comes from here on is read first."""


def test_every_table_has_rows_and_unique_keys(expected: dict[str, list[Any]], lines: list[str]) -> None:
    """Events are there once, though three journals hold them, one with a line of two records. No day was quiet, no epoch is missing, nobody ordered anything, and no probe watched."""
    assert len(expected["bronze/events"]) == len(lines)
    assert [path for path, rows in expected.items() if not rows] == [
        "silver/restores",
        "silver/clock_steps",
        "silver/stops",
        "silver/cleanings",
        "silver/waits",
        "silver/callers",
        *(view.path for view in ORDERS),
        "gold/quiet_daily",
        "gold/holes",
        "gold/felt",
    ]


def test_failovers_are_judged(spark: Any, batch: Lake) -> None:
    """A kill; a false alarm; a false alarm right after a change of the leading controller."""
    rows = {row["master_epoch"]: row for row in batch.read(spark, GOLD_FAILOVERS).collect()}
    assert sorted(rows) == [2, 3, 4]
    judged = {
        epoch: (row["is_false_positive"], row["is_controller_caused"], row["cause"]) for epoch, row in rows.items()
    }
    assert judged == {
        2: (False, False, "dead-at-once"),
        3: (True, False, "timeout"),
        4: (True, True, "timeout"),
    }
    assert (rows[2]["total_us"], rows[2]["outage_ms"], rows[2]["dominating_phase"]) == (15_100, 15, "detected")
    assert (rows[3]["backward_stamps"], rows[3]["notified_us"]) == (1, None)
    assert (rows[4]["leader_change_age_ms"], rows[4]["is_route_late"]) == (1_000, True)
    assert (rows[2]["grade"], rows[2]["loss_bytes"], rows[2]["cut_bytes"]) == ("proven", 0, 200)
    whole = {row["fleet"]: row for row in batch.read(spark, GOLD_CLUSTERS).collect()}["*"]
    assert (whole["failovers"], whole["false_positives"], whole["controller_caused"]) == (3, 2, 1)


def test_intervals_are_cut_at_midnight(spark: Any, batch: Lake) -> None:
    """Exposure of the days adds up to the intervals; the last one is open up to the fleet's last event."""
    sets = in_ms(batch.read(spark, SILVER_SYNC_STATE_SETS)).orderBy("seq").collect()
    daily = batch.read(spark, GOLD_SETS_DAILY).collect()
    alone = [row for row in sets if row["set_size"] == 1]
    assert [row["ended_at_ms"] is None for row in alone] == [False, True]
    (horizon,) = in_ms(batch.read(spark, SILVER_HORIZONS)).agg({"last_at_ms": "max"}).first()
    lasted = sum((row["ended_at_ms"] or horizon) - row["began_at_ms"] for row in alone)
    assert sum(row["exposed_ms"] for row in daily) == lasted > 20 * 3_600_000
    assert all(row["available_ms"] + row["outage_ms"] == row["observed_ms"] <= 86_400_000 for row in daily)
    assert len(daily) == len({row["day"] for row in daily}) >= 3


def test_days_add_up_and_histograms_give_the_exact_percentiles(spark: Any, batch: Lake) -> None:
    """Nearest rank over all failovers is what the daily histograms give; so are the sums."""
    failovers = batch.read(spark, GOLD_FAILOVERS).collect()
    totals = sorted(row["total_us"] // 1_000 for row in failovers)
    (found,) = (
        batch.read(spark, GOLD_RTO).where("fleet = '*' and kind = '*' and cause = '*' and phase = 'total'").collect()
    )
    for name, percent in PERCENTS.items():
        assert found[name] == totals[math.ceil(len(totals) * percent / 100) - 1]
    daily = batch.read(spark, GOLD_FAILOVERS_DAILY).collect()
    assert len({row["day"] for row in daily}) > 1
    assert sum(row["failovers"] for row in daily) == len(failovers)
    assert sum(row["outage_ms"] for row in daily) == sum(row["outage_ms"] for row in failovers)


def test_everything_that_was_read_is_accounted_for(spark: Any, batch: Lake, lines: list[str]) -> None:
    """Pieces are events, copies or rejected; the reasons are counted."""
    counts = {row["name"]: row["count"] for row in batch.read(spark, GOLD_QUALITY).collect()}
    assert counts["lines"] == 3 * (len(lines) + 1)
    assert (counts["shared"], counts["pieces"]) == (1, counts["lines"] + 1)
    assert (counts["rejected:hole"], counts["rejected:not an event record"]) == (1, 1)
    assert counts["events"] == len(lines)
    assert counts["copies"] == counts["pieces"] - 2 - len(lines)
    assert counts["orphans"] == 0


def test_lines_were_read_once_to_count_them_and_once_more_for_their_events(
    spark: Any, lines: list[str], tmp_path: Path
) -> None:
    """Each text of a source is asked for once; blank ones, copies, pages with events and without are counted."""
    page, empty = (f'{{"freshness":{{}},"events":[{",".join(some)}]}}' for some in (lines[2:4], ()))
    texts = [lines[0], lines[0] + lines[1], "", "torn", page, empty, lines[4], "  ", lines[0]]
    told = spark.sparkContext.accumulator(0)

    def telling(batches: Any) -> Any:
        for batch in batches:
            told.add(batch.num_rows)
            yield batch

    rows = spark.createDataFrame([("file:/a", text) for text in texts], LINES_DDL).mapInArrow(telling, LINES_DDL)
    lake = Lake(tmp_path / "lake")
    with lake.writer() as writer:
        Layers(spark, writer, Progress(spark, is_quiet=True)).ingest(rows)
        writer.publish()

    counts = {row["name"]: row["count"] for row in lake.read(spark, BRONZE_QUALITY).collect()}
    assert told.value == len(texts)
    assert counts == {"lines": 9, "blank": 3, "shared": 2, "pieces": 8, "rejected:not an event record": 1}
    assert lake.read(spark, BRONZE_EVENTS).count() == len({*lines[:5]})
    assert lake.read(spark, BRONZE_REJECTED).count() == 1


def test_gold_of_an_older_form_is_not_read_and_is_made_anew(
    spark: Any, batch: Lake, expected: dict[str, list[Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tables meant something else: added up with the new ones they would give wrong figures."""
    shutil.copytree(batch.root, tmp_path / "lake")
    lake = Lake(tmp_path / "lake")
    monkeypatch.setitem(FORMS, "gold", FORMS["gold"] + 1)
    quiet = Progress(spark, is_quiet=True)

    with pytest.raises(NoLake, match="older form"):
        gather(lake, made_at_ms=0)
    with lake.writer() as writer:
        assert Layers(spark, writer, quiet).gold()
        writer.publish()

    assert content(spark, lake, GOLD) == {table.path: expected[table.path] for table in GOLD}
    assert gather(lake, made_at_ms=0, tables=(CLUSTERS,)).rows


@pytest.fixture
def adaptive(spark: Any) -> Iterator[None]:
    """As sessions outside of tests plan; without it Spark brings no rows together."""
    spark.conf.set("spark.sql.adaptive.enabled", "true")
    yield
    spark.conf.set("spark.sql.adaptive.enabled", "false")


@pytest.mark.usefixtures("adaptive")
def test_each_task_wrote_a_file_into_each_part_of_a_table(spark: Any, tmp_path: Path) -> None:
    """Rows that come by set are in one file for each bucket, however many tasks write them; and in their bucket's."""
    numbers = "CAST(id AS bigint) AS set_id"
    empty = (f"CAST(null AS {one.kind}) AS {one.name}" for one in SILVER_CLEANINGS.columns[1:])
    rows = spark.range(0, 1_000, 1, 4).selectExpr(numbers, *empty).repartition("set_id")
    with Lake(tmp_path).writer() as writer:
        writer.put(SILVER_CLEANINGS, rows)
        files = writer.files(SILVER_CLEANINGS)
        assert sorted(map(int, files)) == list(range(BUCKETS))
        assert sum(map(len, files.values())) <= BUCKETS + 1
        for bucket in ("0", "7"):
            found = writer.read(spark, SILVER_CLEANINGS, only=[bucket]).select(bucket_of()).distinct().collect()
            assert [str(row[0]) for row in found] == [bucket]


def test_a_run_made_all_sets_anew_for_an_event_of_one(spark: Any, tmp_path: Path) -> None:
    """
    A day of one set's events made a quarter of all days of all sets anew, and all of gold's. Only the bucket of that set is
    another one now; and all tables are those of one run, the ends of what was open before among them.
    """
    write_fleet(PLAN, 0, tmp_path / "fleet", compression="none")
    told = [line for file in sorted((tmp_path / "fleet").rglob("*.jsonl")) for line in file.read_text().splitlines()]
    sets = [msgspec.json.decode(line)["setKey"] for line in told]
    late = [number for number, key in enumerate(sets) if key and key == sets[-1]][-40:]
    parts = {
        "early": [line for number, line in enumerate(told) if number not in late],
        "late": [told[at] for at in late],
    }
    whole, lake = Lake(tmp_path / "whole"), Lake(tmp_path / "lake")
    for name, some in (*parts.items(), ("all", told)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(some) + "\n")
    build(spark, whole, tmp_path / "all.jsonl", until_ms=0)

    build(spark, lake, tmp_path / "early.jsonl", until_ms=0)
    before = shown(lake)
    build(spark, lake, tmp_path / "late.jsonl", until_ms=0)

    for table in (SILVER_BROKER_SETS, SILVER_REIGNS, SILVER_SYNC_STATE_SETS, SILVER_SILENCES):
        now, then = shown(lake)[table.path], before[table.path]
        assert len({bucket for bucket in now if now[bucket] != then.get(bucket)}) <= 1 < len(now), table.path
    tables = (*SILVER, *(table for table in GOLD if table is not GOLD_QUALITY))
    assert content(spark, lake, tables) == content(spark, whole, tables)


def test_a_second_run_publishes_nothing_and_a_copy_changes_no_event(
    spark: Any, batch: Lake, journals: Path, expected: dict[str, list[Any]], tmp_path: Path
) -> None:
    """The same files: the snapshot stays. A further copy of a journal: only the counts of what was read change."""
    lake = Lake(tmp_path / "lake")
    shutil.copytree(batch.root, lake.root)
    assert build(spark, lake, journals) == lake.snapshot().number == 1
    before = shown(lake)
    copy = tmp_path / "copy.jsonl"
    copy.write_text((journals / "data" / "c1" / "events" / "000001.jsonl").read_text())
    assert build(spark, lake, copy) == 2
    after = shown(lake)
    changed = {path for path in after if after[path] != before.get(path)}
    assert "gold/quality" in changed
    assert not {path for path in changed if path.startswith("silver/") or path.endswith(("_daily", "/events"))}
    counts = {row["name"]: row["count"] for row in lake.read(spark, GOLD_QUALITY).collect()}
    assert counts["events"] == len(expected["bronze/events"])


@pytest.mark.prove
def test_late_events_in_two_runs_give_the_same_lake(
    spark: Any, lines: list[str], expected: dict[str, list[Any]], tmp_path: Path
) -> None:
    """The end of the history is read first, from the middle of a failover on; gold is built in between."""
    lake = Lake(tmp_path / "lake")
    for name, part in (("late", lines[LATE_FROM:]), ("early", lines[: LATE_FROM + 2])):
        file = tmp_path / f"{name}.jsonl"
        file.write_text("\n".join(part) + "\n")
        build(spark, lake, file)
    tables = (BRONZE_EVENTS, *SILVER, *(table for table in GOLD if table is not GOLD_QUALITY))
    found = content(spark, lake, tables)
    for path, rows in found.items():
        assert rows == expected[path], path


@pytest.mark.prove
def test_a_stream_gives_the_same_silver_also_after_a_restart(
    spark: Any, lines: list[str], expected: dict[str, list[Any]], tmp_path: Path
) -> None:
    """
    Two micro-batches, the later events first; the query is started again for the second one. That one comes from a
    damaged compressed journal. Then a third query repeats it, as after a kill between publishing and the checkpoint's note.
    All of it is below a folder whose name is a pattern to Spark.
    """
    root = tmp_path / "prod [eu] {a,b}*"
    lake, folder, checkpoint = Lake(root / "lake"), root / "closed", root / "checkpoint"
    folder.mkdir(parents=True)

    def stream_now() -> None:
        texts = streams.of_files(spark, str(folder))
        query = streams.start(spark, texts, lake, checkpoint=checkpoint, is_continued=False, every_ms=None)
        query.awaitTermination()
        assert query.exception() is None

    (folder / "late.jsonl").write_text("\n".join(lines[LATE_FROM:]) + "\n")
    stream_now()
    early = gzip.compress(("\n".join(lines[: LATE_FROM + 2]) + "\n").encode())
    (folder / "early.jsonl.gz").write_bytes(early + b"garbage")
    stream_now()
    found = content(spark, lake, (BRONZE_EVENTS, *SILVER))
    for path, rows in found.items():
        assert rows == expected[path], path
    with lake.writer() as writer:
        assert writer.last_batch(str(checkpoint)) == 1
    assert [row["why"] for row in lake.read(spark, BRONZE_REJECTED).collect()] == [Why.BREAK]

    for note in (checkpoint / "commits").glob("*1*"):
        note.unlink()
    published = lake.snapshot()
    stream_now()
    assert lake.snapshot() == published


def test_alerts_begin_at_their_limit(spark: Any, batch: Lake) -> None:
    """One member in sync since the last election; three failovers in the window; nobody waits for a master."""
    snapshot = batch.snapshot()
    last = max(row["elected_at_ms"] for row in in_ms(batch.read(spark, GOLD_FAILOVERS)).collect())
    limits = Limits(exposed_ms=60_000, flaps=3, flap_window_ms=8 * 86_400_000)

    def told(now_ms: int) -> list[tuple[Any, ...]]:
        rows = alerts(spark, batch, snapshot, now_ms=now_ms, limits=limits).collect()
        return [(row["alert"], row["broker_set"], row["count"]) for row in rows]

    assert told(last + 59_999) == [("flapping", "broker-a", 3)]
    assert told(last + 60_000) == [("flapping", "broker-a", 3), ("one-member-in-sync", "broker-a", 1)]


@pytest.mark.prove
def test_a_run_that_is_killed_publishes_nothing_and_the_next_one_gives_the_same(
    spark: Any, journals: Path, expected: dict[str, list[Any]], tmp_path: Path
) -> None:
    """SIGKILL while bronze is being written: readers see no table; its folders are gone after the next run."""
    lake = Lake(tmp_path / "lake")
    command = [
        sys.executable,
        "-m",
        "rollcall_ha.analytics.cli",
        "run",
        str(journals),
        "--lake",
        str(lake.root),
        "--master",
        "local[1]",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:

        def is_writing() -> bool:
            assert process.poll() is None, "the run ended before it was killed"
            return any(lake.root.glob("bronze/events/*"))

        wait_until(is_writing, deadline_s=KILL_DEADLINE_S, what="bronze to be written")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert lake.snapshot().number == 0
    assert lake.read(spark, BRONZE_EVENTS).count() == 0
    left = set(lake.root.glob("bronze/*/*"))
    assert left
    assert build(spark, lake, journals, layers=("ingest", "silver")) == 1
    found = content(spark, lake, (BRONZE_EVENTS, *SILVER))
    for path, rows in found.items():
        assert rows == expected[path], path
    assert not left & set(lake.root.glob("bronze/*/*"))
