"""Outages as history tells them: bounds, waits, stops of writes, planned ends, and the end of a set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.checks.alerts import Limits, alerts
from rollcall_ha.analytics.gold.tables import GOLD_CLUSTERS, GOLD_FAILOVERS, GOLD_NODES, GOLD_SETS
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.tables import in_ms
from rollcall_ha.analytics.report import service
from rollcall_ha.analytics.report.questions import INCIDENTS
from rollcall_ha.analytics.silver.tables import (
    SILVER,
    SILVER_CLEANINGS,
    SILVER_PHASES,
    SILVER_SILENCES,
    SILVER_STOPS,
)
from rollcall_ha.controller.contract.commands import ReportWrites
from rollcall_ha.controller.contract.values import DetectionStamps, Phase, SilenceCause, StopReason
from rollcall_ha.controller.contract.views import StopEnd
from rollcall_ha.controller.core.history import history_of
from rollcall_ha.controller.core.stops import stops_of
from tests.recount.stories import write
from tests.recount.telling import at_ms
from tests.spark.lakes import build, content
from tests.support.analytics_story import days_apart, lines_of, reached, triggered, write_journals
from tests.support.core_builders import Fleet, positions

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def stop(fleet: Fleet, seq: int, *, age_us: int, stopped_us: int | None = None) -> None:
    """The master tells that writes have stopped, or that they had."""
    master = fleet.replica(int(fleet.set.master or 0))
    assert master.incarnation is not None
    fleet.do(
        ReportWrites(
            set_key=fleet.key,
            broker_id=master.broker_id,
            incarnation=master.incarnation,
            master_epoch=fleet.set.master_epoch,
            seq=seq,
            reason=StopReason.DISK_FULL,
            detail="",
            age_us=age_us,
            stopped_us=stopped_us,
        )
    )


def troubled() -> Fleet:
    """
    Three stops: of the second the end is not told, the third goes on when a replica is cleaned, an election ends it; a
    timeout of which only bounds are known, from the stop on; a handover; a master whose next process comes, and falls silent;
    cleaned.
    """
    fleet = Fleet().serving()
    ends = {number: positions(1_000, confirm=900) for number in (1, 2, 3)}
    fleet.enter(0)
    stop(fleet, 1, age_us=1_200_000)
    stop(fleet, 1, age_us=4_100_000, stopped_us=4_000_000)
    stop(fleet, 2, age_us=900_000)
    stop(fleet, 4, age_us=500_000)
    fleet.silence(3)
    fleet.clean(3)
    fleet.silence(1)
    hang = DetectionStamps(
        cause=SilenceCause.TIMEOUT, first_sign_age_us=2_500_000, alive_age_us=3_000_000, detected_age_us=1_000
    )
    fleet.elect(evidence=triggered(fleet, fleet.evidence(ends, detection=hang)))
    fleet.enter(1_000, acked=1_000)
    winner = int(fleet.set.master or 0)
    fleet.milestones(
        reached(2, Phase.SERVING, 8_000, by=winner, observed=2_508_000),
        msgspec.structs.replace(reached(2, Phase.FIRST_ACK, 31_000_000, by=winner), waited_us=2_000),
    )
    fleet.revive(1)
    fleet.do(fleet.alter(*sorted((1, winner))))
    fleet.goodbye(winner, end=1_000)
    fleet.elect(evidence=triggered(fleet, fleet.evidence(ends)))
    fleet.enter(1_000, acked=1_000)
    master = int(fleet.set.master or 0)
    served = reached(fleet.set.master_epoch, Phase.SERVING, 900, by=master, observed=700)
    fleet.milestones(msgspec.structs.replace(served, uncertainty_us=1_000_000))
    fleet.do(fleet.registration(master, incarnation="next", boot="boot-2", holds=positions(1_000)))
    fleet.silence(master)
    fleet.clean(is_unclean=True)
    return fleet


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    fleet = troubled()
    fleet.records[:] = days_apart(fleet.records)
    return fleet


@pytest.fixture(scope="module")
def lake(spark: Any, fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("troubled")
    write_journals(lines_of(fleet.records), folder)
    found = Lake(folder / "lake")
    build(spark, found, folder / "data")
    return found


def test_bounds_and_waits_are_those_of_history(spark: Any, fleet: Fleet, lake: Lake) -> None:
    """An outage that began at some time within 500 ms is no point, and 31 s without a sender are no outage."""
    history = {row.master_epoch: row for row in history_of(fleet.records)}
    rows = {row["master_epoch"]: row for row in lake.read(spark, SILVER_PHASES).collect()}
    names = ("kind", "total_us", "total_us_max", "waited_us", "unattributed_us")
    assert {epoch: tuple(row[name] for name in names) for epoch, row in rows.items()} == {
        epoch: tuple(getattr(row, name) for name in names) for epoch, row in history.items()
    }
    assert (rows[2]["total_us"], rows[2]["total_us_max"], rows[2]["waited_us"]) == (2_508_000, 3_008_000, 2_000)
    bounded = rows[max(rows)]
    assert (bounded["total_us"], bounded["total_us_max"], bounded["unattributed_us"]) == (700, 1_000_700, 0)
    assert rows[2]["dominating_phase"] == "detected"


def test_incidents_are_those_of_history(spark: Any, fleet: Fleet, lake: Lake) -> None:
    """Failovers, planned ends and stops have the durations of the timeline; a master that nobody followed is one more."""
    rows = lake.read(spark, INCIDENTS).collect()
    timed = {row["master_epoch"]: row for row in rows if row["kind"] in ("failover", "handover")}
    history = {row.master_epoch: row for row in history_of(fleet.records) if row.total_us is not None}
    names = ("kind", "total_us", "total_us_max", "grade", "loss_bytes")
    assert {epoch: tuple(row[name] for name in names) for epoch, row in timed.items()} == {
        epoch: tuple(getattr(row, name) for name in names) for epoch, row in history.items()
    }
    stops = [stop for stop in stops_of(fleet.records) if stop.end is not StopEnd.ELECTION]
    told = in_ms(lake.read(spark, INCIDENTS)).where("kind = 'writes-stopped'").collect()
    assert {(row["master_epoch"], row["cause"], row["began_at_ms"], row["total_us"]) for row in told} == {
        (stop.master_epoch, stop.reason.value, stop.began_at_ms, stop.stopped_us) for stop in stops
    }
    (gone,) = (row for row in rows if row["kind"] == "nobody-elected")
    assert (gone["master_epoch"], gone["is_open"]) == (max(history), False)
    assert len(rows) == len(timed) + len(told) + 1
    assert service.lasted(timed[2]) == "2.51 s to 3.01 s"


def test_a_planned_end_is_no_failover(spark: Any, lake: Lake) -> None:
    """A rolling restart made three failovers of which two were flaps."""
    assert [row["master_epoch"] for row in lake.read(spark, GOLD_FAILOVERS).collect()] == [2]
    (row,) = lake.read(spark, GOLD_SETS).collect()
    assert (row["failovers"], row["flaps"]) == (1, 0)


def test_stops_of_writes_are_those_of_history(spark: Any, fleet: Fleet, lake: Lake) -> None:
    """And availability counts what no change of reign does."""
    told = {
        (stop.event.index, stop.reason.value, stop.began_at_ms, stop.stopped_us) for stop in stops_of(fleet.records)
    }
    rows = in_ms(lake.read(spark, SILVER_STOPS)).orderBy("seq").collect()
    assert {(row["seq"] >> 20, row["reason"], row["began_at_ms"], row["stopped_us"]) for row in rows} == told
    assert [row["ended_by"] for row in rows] == ["writes-resumed", "writes-stopped", "master-elected"]
    (whole,) = lake.read(spark, GOLD_CLUSTERS).where("fleet = '*'").collect()
    assert 4_000 <= whole["stopped_ms"] <= whole["outage_ms"]


def test_a_cleaned_set_is_observed_no_more(spark: Any, fleet: Fleet, lake: Lake) -> None:
    (row,) = in_ms(lake.read(spark, SILVER_CLEANINGS)).collect()
    assert row["cleaned_at_ms"] == fleet.records[-1].stamped_at_ms


def test_the_end_of_a_replaced_master_is_on_record(spark: Any, lake: Lake) -> None:
    """Nobody found it silent: its next process registered. It is gone and back with one event, and no fault of a node."""
    (row,) = lake.read(spark, SILVER_SILENCES).where("cause = 'replaced'").collect()
    assert row["seq"] == row["returned_seq"]
    assert (row["incarnation_hash"], row["is_same_incarnation"]) == (None, False)
    faults = {node["broker_id"]: node["faults"] for node in lake.read(spark, GOLD_NODES).collect()}
    assert (
        faults[row["broker_id"]]
        == lake.read(spark, SILVER_SILENCES)
        .where(f"broker_id = {row['broker_id']} and cause not in ('replaced', 'goodbye')")
        .count()
    )


@pytest.mark.prove
def test_what_began_in_an_earlier_run_is_one_row(spark: Any, fleet: Fleet, lake: Lake, tmp_path: Path) -> None:
    """Read in three runs, days apart, from the end of a master on and from a stop on: the same rows as in one."""
    lines = lines_of(fleet.records)
    ended, stopped = (
        next(place for place, line in enumerate(lines) if word in line) + 1 for word in ('"ended"', "writes-stopped")
    )
    assert ended < stopped
    parts = Lake(tmp_path / "lake")
    for name, part in (("first", lines[:ended]), ("second", lines[ended:stopped]), ("third", lines[stopped:])):
        (tmp_path / name / "events").mkdir(parents=True)
        (tmp_path / name / "events" / "000001.jsonl").write_text("\n".join(part) + "\n")
        build(spark, parts, tmp_path / name, layers=("ingest", "silver"))
    assert content(spark, parts, SILVER) == content(spark, lake, SILVER)


def test_a_master_that_was_replaced_unnoticed_was_no_alert(spark: Any, tmp_path: Path) -> None:
    """Its next process was back with the event that told its end. And masters of cleaned sets were missed for ever."""
    write(tmp_path / "stories")
    lake = Lake(tmp_path / "lake")
    build(spark, lake, *(tmp_path / "stories" / name for name in ("lost", "deleted")), layers=("ingest", "silver"))

    def told(seconds: float) -> set[tuple[str, str, str, int]]:
        rows = alerts(spark, lake, lake.snapshot(), now_ms=at_ms(seconds), limits=Limits())
        found = [(row["alert"], row["cluster"], row["broker_set"], row["lasts_ms"]) for row in rows.collect()]
        assert len(set(found)) == len(found)
        return {row for row in found if row[0] != "one-member-in-sync"}

    # Tables of the end: what came later than the moment lasts for less than nothing, and is no alert of it.
    early = {("no-master", "lost", "silent", 307_999), ("open-failover", "lost", "mute", 299_999)}
    assert told(509.999) == early | {("no-master", "lost", "goodbye", 209_999)}
    assert told(510) - told(509.999) >= {("no-master", "lost", "restarted", 10_000)}
