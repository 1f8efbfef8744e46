"""
What-if for the report: recorded failovers under the timeouts of other presets, counted.

Here: a row per preset, from published silver. Not here: the rules of the answer (``checks.what_if``), the picture
(``bars``). Winners under another policy are the what-if job's: no election is repeated for the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from rollcall_ha.analytics.checks.counterfactual import Settings
from rollcall_ha.analytics.checks.what_if import AVOIDED, FASTER, SAME, SLOWER, UNKNOWN, check_reality, recorded, under
from rollcall_ha.analytics.gold.intervals import PPM
from rollcall_ha.analytics.gold.tables import ALL, GOLD_CLUSTERS
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.progress import Progress
from rollcall_ha.analytics.report import contents
from rollcall_ha.analytics.silver.tables import SILVER_REIGNS, SILVER_SILENCES
from rollcall_ha.controller.contract.timing import PRESETS, Preset

PERCENTS = {"p50": 50, "p95": 95, "p99": 99}


def ask(
    spark: SparkSession, lake: Lake, progress: Progress, *, real: Preset, presets: Sequence[Preset]
) -> tuple[list[dict[str, Any]], str]:
    """
    Rows of ``report.what_if``, none if no failover is on record; and what makes ``real`` doubtful, empty = nothing.

    Raises:
        NoLake: nothing was ever published there.
        WrongReality: the record contradicts ``real``.
    """
    snapshot = lake.require()
    reigns, silences, clusters = (
        lake.read(spark, table, snapshot=snapshot) for table in (SILVER_REIGNS, SILVER_SILENCES, GOLD_CLUSTERS)
    )
    whole = clusters.where(f.col("cluster") == ALL).first()
    failovers = recorded(reigns, silences).persist()
    try:
        with progress.step(f"report: was it {real}"):
            in_force = Settings.of(PRESETS[real])
            doubt = check_reality(failovers, in_force)
        rows = []
        for preset in presets[: contents.WHAT_IF_PRESETS_MAX]:
            with progress.step(f"report: what if {preset}"):
                answered = under(failovers, in_force, Settings.of(PRESETS[preset]))
                rows.append(_asked(real, preset) | _counted(answered) | _availability(answered, whole))
    finally:
        failovers.unpersist()
    return [row for row in rows if row["failovers"]], doubt


def _asked(real: Preset, preset: Preset) -> dict[str, Any]:
    return {
        "preset": preset.value,
        "timeout_ms": PRESETS[preset].heartbeat_timeout_ms,
        "real_preset": real.value,
        "real_timeout_ms": PRESETS[real].heartbeat_timeout_ms,
    }


def _counted(failovers: DataFrame) -> dict[str, Any]:
    """Both sides speak of the failovers whose change is known, the other one without the avoided ones."""
    sides = {
        "": f.when(f.col("outcome") != UNKNOWN, f.col("total_us")),
        "other_": f.when(~f.col("outcome").isin(UNKNOWN, AVOIDED), f.col("other_total_us")),
    }
    exact = f.array(*(f.lit(percent / 100) for percent in PERCENTS.values()))
    row = failovers.agg(
        f.count("*").alias("failovers"),
        *(f.count_if(f.col("outcome") == name).alias(name) for name in (SAME, FASTER, SLOWER, AVOIDED, UNKNOWN)),
        *(f.percentile(column, exact).alias(f"{side}us") for side, column in sides.items()),
    ).first()
    counts: dict[str, Any] = row.asDict()
    for side in sides:
        values = counts.pop(f"{side}us") or [None] * len(PERCENTS)
        for name, value in zip(PERCENTS, values, strict=True):
            counts[f"{side}{name}_ms"] = None if value is None else int(value) // 1_000
    return counts


def _availability(failovers: DataFrame, whole: Row | None) -> dict[str, int | None]:
    """Of all clusters: each failover costs as much less or more as it is shorter or longer, an avoided one nothing."""
    saved = f.coalesce(f.when(f.col("outcome") == AVOIDED, f.col("total_us")), f.col("saved_us"))
    saved_us = failovers.agg(f.sum(saved).alias("us")).first()["us"] or 0
    recorded_ppm = None if whole is None else whole["availability_ppm"]
    if whole is None or recorded_ppm is None:
        return {"availability_ppm": None, "other_availability_ppm": None}
    available_ms = min(whole["observed_ms"], whole["available_ms"] + saved_us // 1_000)
    return {
        "availability_ppm": recorded_ppm,
        "other_availability_ppm": max(0, available_ms) * PPM // whole["observed_ms"],
    }
