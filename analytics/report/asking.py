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
from rollcall_ha.analytics.checks.what_if import AVOIDED, PERCENTS, check_reality, counts, recorded, under
from rollcall_ha.analytics.gold.tables import ALL, GOLD_CLUSTERS, PPM
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.progress import Progress
from rollcall_ha.analytics.lake.tables import in_ms
from rollcall_ha.analytics.report import contents
from rollcall_ha.analytics.silver.tables import SILVER_REIGNS, SILVER_SILENCES
from rollcall_ha.controller.contract.timing import PRESETS, Preset


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
        in_ms(lake.read(spark, table, snapshot=snapshot)) for table in (SILVER_REIGNS, SILVER_SILENCES, GOLD_CLUSTERS)
    )
    whole = clusters.where(f.col("fleet") == ALL).first()
    failovers = recorded(reigns, silences).persist()
    try:
        with progress.step(f"report: was it {real}"):
            in_force = Settings.of(PRESETS[real])
            doubt = check_reality(failovers, in_force)
        rows = []
        for preset in presets[: contents.WHAT_IF_PRESETS_MAX]:
            with progress.step(f"report: what if {preset}"):
                answered = under(failovers, in_force, Settings.of(PRESETS[preset]))
                rows.append(_asked(real, preset) | _counted(answered, whole))
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


def _counted(failovers: DataFrame, whole: Row | None) -> dict[str, Any]:
    """
    Outcomes, percentiles, and the availability of all clusters: each failover costs as much less or more as it is
    shorter or longer, an avoided one nothing.
    """
    saved = f.coalesce(f.when(f.col("outcome") == AVOIDED, f.col("total_us")), f.col("saved_us"))
    found: dict[str, Any] = failovers.agg(*counts(), f.sum(saved).alias("shorter_us")).first().asDict()
    for side in ("", "other_"):
        values = found.pop(f"{side}total_us") or [None] * len(PERCENTS)
        for percent, value in zip(PERCENTS, values, strict=True):
            found[f"{side}p{percent}_ms"] = None if value is None else int(value) // 1_000
    shorter_us = found.pop("shorter_us") or 0
    if whole is None or whole["availability_ppm"] is None:
        return found | {"availability_ppm": None, "other_availability_ppm": None}
    available_ms = max(0, min(whole["observed_ms"], whole["available_ms"] + shorter_us // 1_000))
    other_ppm = available_ms * PPM // whole["observed_ms"]
    return found | {"availability_ppm": whole["availability_ppm"], "other_availability_ppm": other_ppm}
