"""What leaves Spark for the report adds up to the gold that it comes from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from html import unescape
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.checks.counterfactual import MAY_NOT_CLAIM, Settings
from rollcall_ha.analytics.checks.what_if import OUTCOMES, what_if
from rollcall_ha.analytics.cli import presets_of
from rollcall_ha.analytics.gold.tables import GOLD_CLUSTERS, GOLD_FAILOVERS, GOLD_SETS_DAILY
from rollcall_ha.analytics.jobs import report
from rollcall_ha.analytics.jobs import what_if as job
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.progress import Progress
from rollcall_ha.analytics.report import contents
from rollcall_ha.analytics.report.contents import Contents
from rollcall_ha.analytics.report.page import page
from rollcall_ha.controller.contract.timing import PRESETS, Preset

pytestmark = [pytest.mark.spark, pytest.mark.slow]


Asked = Callable[..., Contents]


@pytest.fixture(scope="module")
def asked_of(spark: Any, batch: Lake, found: Contents) -> Iterator[Asked]:
    """What the page shows when it is told ``--what-if presets --real-preset real``; gold is the same each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report, "gather", lambda *_, **__: found)

        @cache
        def asked(presets: str, real: Preset = Preset.NORMAL) -> Contents:
            quiet = Progress(spark, is_quiet=True)
            return report.contents_of(spark, batch, quiet, presets=presets_of(presets), real_preset=real)

        yield asked


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
    """With its false alarms in the head."""
    assert "<b>2 false alarms</b>" in page(found)


@pytest.mark.parametrize("preset", ["fast", pytest.param("safe", marks=pytest.mark.prove)])
def test_the_page_answers_as_the_what_if_job_does(spark: Any, batch: Lake, asked_of: Asked, preset: str) -> None:
    """Side by side for two presets unless told otherwise; counts and percentiles are the job's, from the same lake."""
    asked = asked_of("fast,safe").of(contents.WHAT_IF)
    events = batch.read(spark, BRONZE_EVENTS)

    assert [row["preset"] for row in asked] == ["fast", "safe"]
    whole = batch.read(spark, GOLD_CLUSTERS).where("fleet = '*'").first()
    for row in (row for row in asked if row["preset"] == preset):
        other = Settings.of(PRESETS[Preset(row["preset"])])
        answered = what_if(events, real=Settings.of(PRESETS[Preset.NORMAL]), other=other)
        told, _ = job.summary(answered)
        shorter_us = sum(
            one["total_us"] if one["outcome"] == "avoided" else one["saved_us"] or 0
            for one in answered.failovers.collect()
        )
        available_ms = whole["available_ms"] + shorter_us // 1_000
        assert row["availability_ppm"] == whole["availability_ppm"]
        assert row["other_availability_ppm"] == available_ms * 1_000_000 // whole["observed_ms"]
        assert {name: row[name] for name in ("failovers", *OUTCOMES)} == {
            name: told[name] for name in ("failovers", *OUTCOMES)
        }
        for side in ("", "other_"):
            assert [row[f"{side}{name}_ms"] for name in ("p50", "p95", "p99")] == [
                int(us) // 1_000 for us in told[f"{side}total_us"]
            ]


def test_the_page_says_what_a_what_if_may_not_claim(found: Contents, asked_of: Asked) -> None:
    """Beside the picture; where the record contradicts the preset that is said to have been in force, instead of it."""
    answered = unescape(page(asked_of("fast,safe")))
    assert "normal \N{RIGHTWARDS ARROW} fast" in answered
    assert "normal \N{RIGHTWARDS ARROW} safe" in answered
    for line in MAY_NOT_CLAIM:
        assert line in answered
    assert "The record does not contradict it." in answered
    doubted = unescape(page(asked_of("safe", Preset.FAST)))
    assert "Every recorded silence was found after" in doubted
    assert "fast \N{RIGHTWARDS ARROW} safe" in doubted
    assert "normal \N{RIGHTWARDS ARROW}" not in doubted
    refused = page(asked_of("fast", Preset.SAFE))
    assert "Not answered: a recorded silence was found after" in refused
    assert MAY_NOT_CLAIM[0] not in refused
    assert "Nobody asked what another timeout would have done." in page(found)
