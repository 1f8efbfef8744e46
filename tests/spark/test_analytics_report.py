"""What leaves Spark for the report adds up to the gold that it comes from."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.gold.tables import GOLD_FAILOVERS, GOLD_SETS_DAILY
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.report import contents
from rollcall_ha.analytics.report.contents import Contents
from rollcall_ha.analytics.report.page import page

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_bars_are_rows_of_gold(spark: Any, batch: Lake, found: Contents) -> None:
    """Every timed failover of a small lake is shown, once, as it is in gold, with the reasons for showing it."""
    gold = batch.read(spark, GOLD_FAILOVERS).where("total_us is not null").toArrow().to_pylist()
    shown = [dict(row) for row in found.of(contents.FAILOVERS)]
    reasons = {row["master_epoch"]: row.pop("shown_as") for row in shown}

    assert gold
    assert sorted(shown, key=lambda row: row["master_epoch"]) == sorted(gold, key=lambda row: row["master_epoch"])
    assert reasons[2] == "typical, slowest, newest"
    assert all("newest" in reason for reason in reasons.values())


def test_sums_survive_the_way(spark: Any, batch: Lake, found: Contents) -> None:
    """Calendar, heat map, grades and histogram hold what gold holds; all clusters together come first."""
    daily = [row.asDict() for row in batch.read(spark, GOLD_SETS_DAILY).collect()]
    whole = found.of(contents.CLUSTERS)[0]
    timed = next(r for r in found.of(contents.RTO) if (r["cause"], r["phase"]) == ("*", "total"))

    assert whole["cluster"] == "*"
    for name in ("outage_ms", "exposed_ms", "failovers"):
        expected = sum(row[name] for row in daily)
        assert expected > 0
        assert sum(row[name] for row in found.of(contents.CALENDAR)) == expected
        assert sum(row[name] for row in found.of(contents.HEAT_MAP)) == expected
        assert sum(row[name] for row in found.of(contents.WORST_SETS)) == expected
    assert sum(row["failovers"] for row in found.of(contents.GRADES)) == whole["failovers"]
    assert sum(row["failovers"] for row in found.of(contents.RTO_HISTOGRAM)) == timed["failovers"]
    assert {row["rank"] for row in found.of(contents.HEAT_MAP)} == {1}


def test_page_of_a_real_lake_is_drawn(found: Contents) -> None:
    """With its false alarms in the head, and another preset beside the one that the record shows."""
    text = page(found)

    assert "failovers, 2 false alarms among them" in text
    assert "so the preset normal is taken to have been in force" in text
    for other in ("fast", "safe"):
        assert f"normal \N{RIGHTWARDS ARROW} {other}" in text
