"""Judgements of gold that a story of its own tells best."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.bronze.inputs import events_of
from rollcall_ha.analytics.gold import daily as gold
from rollcall_ha.analytics.gold import days as gold_days
from rollcall_ha.analytics.gold.tables import GOLD_CLUSTERS, GOLD_QUIET_DAILY, GOLD_SETS_DAILY
from rollcall_ha.analytics.lake.tables import LakeTable, in_ms
from rollcall_ha.analytics.silver import facts as silver
from rollcall_ha.analytics.silver import intervals
from rollcall_ha.analytics.silver.tables import SILVER_HORIZONS, SILVER_PHASES
from rollcall_ha.controller.contract.commands import CleanReplicas, RevokeCertificate, TakeLeadership
from rollcall_ha.controller.contract.ids import BrokerId, ControllerName
from rollcall_ha.controller.contract.principals import Principal, ProvedBy, Role
from rollcall_ha.controller.contract.values import DetectionStamps, EventRef, SilenceCause
from tests.support.analytics_story import BEGIN_MS, lines_of
from tests.support.core_builders import Fleet, positions

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def false_alarm_after_founding() -> list[str]:
    """A fleet is founded and led; within seconds its first master is taken for dead, and comes back as it was."""
    fleet = Fleet()
    fleet.do(TakeLeadership(controller=ControllerName("c1"), term=1))
    fleet.serving()
    fleet.silence(1)
    hang = DetectionStamps(
        cause=SilenceCause.TIMEOUT,
        last_heartbeat_age_us=3_050_000,
        detected_age_us=1_000,
        first_sign_age_us=3_050_000,
    )
    evidence = fleet.evidence({number: positions(1_000) for number in (1, 2, 3)}, detection=hang)
    found = EventRef(term=1, index=fleet.index, ordinal=0)
    fleet.elect(evidence=msgspec.structs.replace(evidence, triggered_by=found))
    fleet.enter(1_000, acked=1_000)
    fleet.revive(1)
    return lines_of(
        [msgspec.structs.replace(each, stamped_at_ms=BEGIN_MS + each.index * 1_000) for each in fleet.records]
    )


def test_who_did_what_is_counted_by_caller_and_kind(spark: Any, tmp_path: Path) -> None:
    """By the name in a header everybody was an admin; controllers' own orders have no caller."""
    alice = Principal(name="alice", role=Role.ADMIN, proved_by=ProvedBy.CERTIFICATE, serial="a1")
    fleet = Fleet()
    fleet.grant()
    for broker_id, caller in ((7, alice), (8, alice), (9, msgspec.structs.replace(alice, proved_by=ProvedBy.NOTHING))):
        fleet.do(CleanReplicas(set_key=fleet.key, broker_ids=(BrokerId(broker_id),)), by=caller)
    fleet.do(RevokeCertificate(serial="b2", name="b", expires_at_ms=2**50), by=alice)
    journal = tmp_path / "events.jsonl"
    journal.write_text("\n".join(lines_of(fleet.records)) + "\n")

    found = {
        (row["cluster"], row["caller"], row["proved_by"], row["kind"]): row["events"]
        for row in silver.callers(in_ms(events_of(spark, [journal]))).collect()
    }

    refused, revoked = "command-refused", "certificate-revoked"
    assert found == {
        (fleet.key.cluster, "admin:alice", "certificate", refused): 2,
        (fleet.key.cluster, "admin:alice", "nothing", refused): 1,
        ("/fleet", "admin:alice", "certificate", revoked): 1,
    }


Judged = dict[str, tuple[bool, bool, int | None]]


@pytest.fixture(scope="module")
def judged(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Judged:
    """The one failover of each of three fleets: false positive, controller-caused, age of the change."""
    lines = false_alarm_after_founding()
    _, raised, taken, *rest = lines
    an_hour_later = taken.replace(f'"stampedAtMs":{BEGIN_MS + 2_000}', f'"stampedAtMs":{BEGIN_MS + 3_600_000}')
    assert an_hour_later != taken
    told = {"whole": lines, "later": lines[1:], "changed later": [an_hour_later, *rest]}
    fleet: str = msgspec.json.decode(raised)["fleetIncarnation"]
    named = {name: f"{number:032x}" for number, name in enumerate(told, start=1)}
    journal = tmp_path_factory.mktemp("judged") / "events.jsonl"
    journal.write_text("\n".join(line.replace(fleet, named[name]) for name, some in told.items() for line in some))
    # Each of six tables would read the journal again, and the plan of their join would be as long as six of them.
    events = in_ms(events_of(spark, [journal])).localCheckpoint()
    tables = {
        "broker_sets": silver.broker_sets(events),
        "phases": SILVER_PHASES.rows(spark, lambda _: silver.reigns(events)),
        "silences": intervals.silences(events),
        "cleanings": silver.cleanings(events),
        "waits": silver.waits(events),
        "leaderships": silver.leaderships(events),
        "horizons": silver.horizons(events),
    }
    ends = gold_days.ends_of(tables["horizons"].toArrow().to_pylist())
    tables = {name: in_ms(rows).localCheckpoint() for name, rows in tables.items()}
    rows = gold.failovers(gold_days.Days(tables=tables, until_ms=ends)).collect()
    names = ("is_false_positive", "is_controller_caused", "leader_change_age_ms")
    assert len(rows) == len(told)
    found = {row["fleet"]: tuple(row[name] for name in names) for row in rows}
    return {name: found[fleet] for name, fleet in named.items()}


def test_the_first_leader_of_a_fresh_fleet_changes_nothing(judged: Judged) -> None:
    """A false alarm soon after a fleet was founded was put down to a change of controllers, but nobody led before. Where
    the founding is not on record, somebody may have."""
    assert judged["whole"] == (True, False, None)
    assert judged["later"] == (True, True, 9_000)


def test_a_change_after_a_silence_was_an_age_below_zero(judged: Judged) -> None:
    """A lake that was built before the change was read said null, one that was built after it a negative number."""
    assert judged["changed later"] == (True, False, None)


def test_a_month_of_thousands_of_sets_was_available_for_less_than_nothing(spark: Any) -> None:
    """Its milliseconds, times a million, overflowed: -11.4 % of a million failovers' fleets."""
    sets = 192_000
    told: dict[LakeTable, dict[str, Any]] = {
        SILVER_HORIZONS: {"events": 1},
        GOLD_QUIET_DAILY: {"sets": sets},
        GOLD_SETS_DAILY: {"observed_ms": 86_400_000, "available_ms": 0, "outage_ms": 86_400_000, "begun": 1},
    }

    def read(table: LakeTable) -> Any:
        row = {"cluster": "c", "day": dt.date(2026, 1, 1), "fleet": "f", **told.get(table, {})}
        rows = [[row.get(name) for name in table.column_names]] if table in told else []
        return spark.createDataFrame(rows, table.schema())

    rows = {row["cluster"]: row for row in GOLD_CLUSTERS.rows(spark, read).collect()}
    assert rows["*"]["observed_ms"] == (sets + 1) * 86_400_000
    assert rows["*"]["availability_ppm"] == rows["c"]["availability_ppm"] == sets * 1_000_000 // (sets + 1)


def test_a_clock_that_was_an_hour_ahead_for_a_minute_lengthens_no_open_interval(spark: Any, tmp_path: Path) -> None:
    """The last event ends what is open, not the latest stamp: broker 3 would be gone for an hour more than it was."""
    fleet = Fleet().serving()
    fleet.silence(3)
    gone_at = fleet.index
    fleet.do(TakeLeadership(controller=ControllerName("c2"), term=1))
    ahead_at = fleet.index
    fleet.do(TakeLeadership(controller=ControllerName("c1"), term=1))
    records = [
        msgspec.structs.replace(
            each, stamped_at_ms=BEGIN_MS + each.index * 1_000 + (3_600_000 if each.index == ahead_at else 0)
        )
        for each in fleet.records
    ]
    journal = tmp_path / "ahead.jsonl"
    journal.write_text("\n".join(lines_of(records)) + "\n")
    events = in_ms(events_of(spark, [journal]))

    (end_ms,) = gold_days.ends_of(silver.horizons(events).toArrow().to_pylist()).values()

    assert end_ms == BEGIN_MS + (ahead_at + 1) * 1_000
    (silence,) = in_ms(intervals.silences(events)).collect()
    assert end_ms - silence["found_at_ms"] == (ahead_at + 1 - gone_at) * 1_000
