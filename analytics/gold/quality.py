"""
``gold.quality``: what the journals lacked, counted over the whole lake.

Here: the sums by name. Not here: what a name counts (``tables``, ``bronze.tables``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.codes import KINDS
from rollcall_ha.analytics.gold.tables import GOLD_FAILOVERS
from rollcall_ha.analytics.lake.tables import LakeTable, set_id_of
from rollcall_ha.analytics.silver.tables import SILVER_REIGNS, SILVER_SYNC_STATE_SETS
from rollcall_ha.analytics.silver.turns import SILVER_RESTORES

ALWAYS = ("copies", "events", "backward_stamps", "incomplete", "open", "negative_intervals", "orphans")
"""Counts that are told when they are 0, too."""

Rows = Iterable[Mapping[str, Any]]


def quality(files: Rows, horizons: Rows, read: Callable[[LakeTable], DataFrame]) -> list[dict[str, Any]]:
    """Rows of ``gold.quality``: of ``bronze.quality``, ``silver.horizons``, and other tables as ``read`` gives them."""
    counts = Counter(dict.fromkeys(ALWAYS, 0))
    for row in files:
        counts[row["name"]] += row["count"]
        # What was read as an event and is not kept was a copy.
        counts["copies"] += row["count"] * ((row["name"] == "pieces") - row["name"].startswith("rejected:"))
    for row in horizons:
        counts["events"] += row["events"]
        counts["copies"] -= row["events"]
    orphans = _orphans(read(BRONZE_EVENTS), read(SILVER_RESTORES), read(SILVER_REIGNS))
    told = (
        read(GOLD_FAILOVERS)
        .agg(
            f.sum("backward_stamps").alias("backward_stamps"),
            f.count_if(f.col("missing_phases") > 0).alias("incomplete"),
            f.count_if("is_open").alias("open"),
        )
        .crossJoin(
            read(SILVER_SYNC_STATE_SETS).agg(f.count_if(f.expr("ended_at < began_at")).alias("negative_intervals"))
        )
        .crossJoin(orphans.agg(f.count("*").alias("orphans")))
    )
    counts.update({name: count or 0 for name, count in told.first().asDict().items()})
    return [{"name": name, "count": counts[name]} for name in sorted(counts)]


def _orphans(events: DataFrame, restores: DataFrame, reigns: DataFrame) -> DataFrame:
    """
    Epochs with reports but without an election, which lies in a hole of the journals.

    Silver leaves them out, so that this count is the only trace of them.
    """
    epoch = ("set_id", "master_epoch")
    told = events.where(f.col("kind").isin(KINDS["master-entered"], KINDS["loss-graded"]))
    # A set of restored controllers has the number of the set that it was before.
    of_origin = set_id_of(f.col("origin"), f.col("cluster"), f.col("broker_set"))
    told = told.join(restores.select("fleet", "origin").hint("broadcast"), "fleet", "left")
    told = told.withColumn("set_id", f.when(f.col("origin").isNotNull(), of_origin).otherwise(f.col("set_id")))
    each = told.select(*epoch, f.lit(0).alias("known")).unionByName(reigns.select(*epoch, f.lit(1).alias("known")))
    return each.groupBy(*epoch).agg(f.max("known").alias("known")).where("known = 0")
