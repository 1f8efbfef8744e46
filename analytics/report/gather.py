"""
From the lake to the rows of a report: the one part of it that speaks to Spark.

Here: reading, and the two tables that are no SELECT. Not here: the others (``contents``, ``questions``).
Rule 1: each query ends in an aggregate or in an ordered limit.
Rule 2: ties are broken by keys, so that one lake gives one report.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from rollcall_ha.analytics.gold.tables import (
    ALL,
    GOLD_FAILOVERS,
    GOLD_QUIET_DAILY,
    GOLD_RTO,
    GOLD_SETS,
    GOLD_SETS_DAILY,
)
from rollcall_ha.analytics.lake.lake import Lake, NoLake
from rollcall_ha.analytics.lake.progress import Progress
from rollcall_ha.analytics.lake.tables import LakeTable, LakeView
from rollcall_ha.analytics.report import contents
from rollcall_ha.analytics.report.contents import Contents

Read = Callable[[LakeTable], "DataFrame"]


def gather(
    spark: SparkSession,
    lake: Lake,
    progress: Progress,
    *,
    made_at_ms: int,
    tables: Sequence[LakeTable] = contents.GATHERED,
) -> Contents:
    """
    Tables of a report, from one version of the lake.

    Raises:
        NoLake: nothing was ever published there, or gold is of an older form.
    """
    snapshot = lake.require()
    if GOLD_SETS_DAILY.path in snapshot.rows and not snapshot.built_from("gold"):
        raise NoLake(
            f"gold in {lake.root} is of an older form; make it anew: rollcall analytics gold --lake {lake.root}"
        )

    def read(table: LakeTable) -> DataFrame:
        return lake.read(spark, table, snapshot=snapshot)

    rows: dict[str, list[dict[str, Any]]] = {}
    for table in tables:
        with progress.step(f"report: {table.name}"):
            found = table.rows(spark, read) if isinstance(table, LakeView) else _MADE[table](read)
            rows[table.name] = [row.asDict() for row in found.select(*table.column_names).collect()]
    return Contents(rows=rows, lake=str(lake.root), lake_version=snapshot.number, made_at_ms=made_at_ms)


def _failovers(read: Read) -> DataFrame:
    """The typical one of each cause is the one nearest to its cause's median."""
    key = ("fleet", "cluster", "broker_set", "master_epoch")
    timed = read(GOLD_FAILOVERS).where("total_us is not null")
    medians = (
        read(GOLD_RTO)
        .where((f.col("cluster") == ALL) & (f.col("cause") != ALL) & (f.col("phase") == "total"))
        .orderBy(f.col("failovers").desc(), "cause")
        .limit(contents.TYPICAL_CAUSES_MAX)
        .select("cause", "p50_ms")
    )
    distance = f.abs(f.floor(f.col("total_us") / 1_000) - f.col("p50_ms"))
    whole = f.struct(*GOLD_FAILOVERS.column_names)
    typical = (
        timed.join(f.broadcast(medians), "cause")
        # A bar with all its phases explains more than one without.
        .groupBy("cause")
        .agg(f.min_by(whole, f.struct(f.col("missing_phases"), distance, *key)).alias("one"))
        .select("one.*", f.lit("typical").alias("shown_as"))
    )
    slowest = timed.orderBy(f.col("total_us").desc(), *key).limit(contents.SLOWEST_FAILOVERS_MAX)
    newest = timed.orderBy(f.col("elected_at_ms").desc(), *key).limit(contents.NEWEST_FAILOVERS_MAX)
    together = typical.unionByName(slowest.withColumn("shown_as", f.lit("slowest"))).unionByName(
        newest.withColumn("shown_as", f.lit("newest"))
    )
    rest = [f.first(name).alias(name) for name in GOLD_FAILOVERS.column_names if name not in key]
    shown = f.concat_ws(", ", f.sort_array(f.collect_set("shown_as"), asc=False)).alias("shown_as")
    return together.groupBy(*key).agg(*rest, shown).orderBy(f.col("elected_at_ms").desc(), *key)


def _heat_map(read: Read) -> DataFrame:
    key, sums = ["cluster", "fleet", "broker_set"], ("outage_ms", "exposed_ms", "failovers")
    lives = (
        read(GOLD_SETS_DAILY)
        .select("fleet", "day")
        .unionByName(read(GOLD_QUIET_DAILY).select("fleet", "day"))
        .groupBy("fleet")
        .agg(f.min("day").alias("first"), f.max("day").alias("last"))
    )
    ends = lives.agg(f.min("first").alias("first"), f.max("last").alias("last")).first()
    days = days_per_column(ends["first"], ends["last"])
    worst = (f.col("outage_ms").desc(), f.col("exposed_ms").desc(), *key)
    sets = read(GOLD_SETS).orderBy(*worst).limit(contents.HEAT_MAP_SETS_MAX)
    ranked = sets.select(*key, f.row_number().over(Window.orderBy(*worst)).cast("bigint").alias("rank"))
    told = read(GOLD_SETS_DAILY).join(f.broadcast(ranked), key)
    # On a quiet day a set has no row, but it was observed.
    begun = told.where("begun > 0").join(f.broadcast(lives), "fleet")
    observed = begun.select("rank", *key, f.explode(f.sequence("day", "last")).alias("day"), *_zeros(sums))
    column = f.floor(f.date_diff("day", f.lit(ends["first"])) / days) * days
    from_day = f.date_add(f.lit(ends["first"]), column.cast("int"))
    return (
        told.select("rank", *key, "day", *sums)
        .unionByName(observed)
        .groupBy("rank", *key, from_day.alias("from_day"))
        .agg(*(f.sum(name).alias(name) for name in sums))
        .withColumn("days", f.lit(days).cast("bigint"))
        .orderBy("rank", "from_day")
    )


def _zeros(names: Sequence[str]) -> list[Column]:
    return [f.lit(0).cast("bigint").alias(name) for name in names]


def days_per_column(first: dt.date | None, last: dt.date | None) -> int:
    """The fewest days with which ``HEAT_MAP_COLUMNS_MAX`` columns hold the whole time."""
    days = (last - first).days + 1 if first is not None and last is not None else 1
    return math.ceil(days / contents.HEAT_MAP_COLUMNS_MAX)


_MADE: Mapping[LakeTable, Callable[[Read], DataFrame]] = {contents.FAILOVERS: _failovers, contents.HEAT_MAP: _heat_map}
