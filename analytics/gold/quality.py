"""
``gold.quality``: what the journals lacked, counted over the whole lake.

Here: one sum of contributions by name. Not here: what a name counts (``tables``, ``bronze.tables``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS, BRONZE_QUALITY
from rollcall_ha.analytics.codes import KINDS
from rollcall_ha.analytics.gold.tables import GOLD_FAILOVERS
from rollcall_ha.analytics.lake.tables import LakeTable
from rollcall_ha.analytics.silver.tables import SILVER_HORIZONS, SILVER_REIGNS, SILVER_SYNC_STATE_SETS

ALWAYS = ("copies", "events", "backward_stamps", "incomplete", "open", "negative_intervals", "orphans")
"""Counts that are told when they are 0, too."""


def quality(read: Callable[[LakeTable], DataFrame]) -> DataFrame:
    """``gold.quality`` of all tables, as ``read`` gives them."""

    def rows(of: DataFrame, name: str | Column, count: Column) -> DataFrame:
        named = f.lit(name) if isinstance(name, str) else name
        return of.select(named.alias("name"), count.cast("bigint").alias("count"))

    files, kept, failovers = read(BRONZE_QUALITY), read(SILVER_HORIZONS), read(GOLD_FAILOVERS)
    count, name = f.col("count"), f.col("name")
    one = f.lit(1)
    negative = read(SILVER_SYNC_STATE_SETS).where("ended_at < began_at")
    parts = (
        rows(files.sparkSession.range(1), f.explode(f.array(*map(f.lit, ALWAYS))), f.lit(0)),
        rows(files, name, count),
        # What was read as an event and is not kept was a copy.
        rows(files.where(name == "pieces"), "copies", count),
        rows(files.where(name.startswith("rejected:")), "copies", -count),
        rows(kept, "copies", -f.col("events")),
        rows(kept, "events", f.col("events")),
        rows(failovers.where("backward_stamps > 0"), "backward_stamps", f.col("backward_stamps")),
        rows(failovers.where("missing_phases > 0"), "incomplete", one),
        rows(failovers.where("is_open"), "open", one),
        rows(negative, "negative_intervals", one),
        rows(_orphans(read(BRONZE_EVENTS), read(SILVER_REIGNS)), "orphans", one),
    )
    return reduce(DataFrame.unionByName, parts).groupBy("name").agg(f.sum("count").alias("count"))


def _orphans(events: DataFrame, reigns: DataFrame) -> DataFrame:
    """
    Epochs with reports but without an election, which lies in a hole of the journals.

    Silver leaves them out, so that this count is the only trace of them.
    """
    epoch = ("set_id", "master_epoch")
    told = events.where(f.col("kind").isin(KINDS["master-entered"], KINDS["loss-graded"]))
    each = told.select(*epoch, f.lit(0).alias("known")).unionByName(reigns.select(*epoch, f.lit(1).alias("known")))
    return each.groupBy(*epoch).agg(f.max("known").alias("known")).where("known = 0")
