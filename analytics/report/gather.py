"""
From the lake to the rows of a report: the one part of it that speaks to Spark.

Here: reading, and the one table that is no SELECT. Not here: the others (``contents``, ``questions``).
Rule 1: each query ends in an aggregate or in an ordered limit.
Rule 2: ties are broken by keys, so that one lake gives one report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from rollcall_ha.analytics.gold.tables import GOLD_QUIET_DAILY, GOLD_SETS, GOLD_SETS_DAILY
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
    tables: Sequence[LakeTable] = contents.TABLES,
) -> Contents:
    """
    Tables of a report, from one version of the lake.

    Raises:
        NoLake: nothing was ever published there, or gold has an older form.
    """
    snapshot = lake.require()
    if GOLD_SETS_DAILY.path in snapshot.rows and not snapshot.built_from("gold"):
        raise NoLake(f"gold in {lake.root} has an older form; make it anew: rollcall analytics gold --lake {lake.root}")

    def read(table: LakeTable) -> DataFrame:
        return lake.read(spark, table, snapshot=snapshot)

    rows: dict[str, list[dict[str, Any]]] = {}
    for table in tables:
        with progress.step(f"report: {table.name}"):
            found = table.rows(spark, read) if isinstance(table, LakeView) else _heat_map(read)
            # By way of Arrow: collected rows would have their instants without a zone, by this machine's clock.
            rows[table.name] = found.select(*table.column_names).toArrow().to_pylist()
    return Contents(rows=rows, lake=str(lake.root), lake_version=snapshot.number, made_at_ms=made_at_ms)


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
    # The fewest days with which the columns hold the whole time.
    span = (ends["last"] - ends["first"]).days + 1 if ends["first"] else 1
    days = math.ceil(span / contents.HEAT_MAP_COLUMNS_MAX)
    worst = (f.col("outage_ms").desc(), f.col("exposed_ms").desc(), *key)
    sets = read(GOLD_SETS).orderBy(*worst).limit(contents.HEAT_MAP_SETS_MAX)
    ranked = sets.select(*key, f.row_number().over(Window.orderBy(*worst)).cast("bigint").alias("rank"))
    told = read(GOLD_SETS_DAILY).join(f.broadcast(ranked), key)
    # On a quiet day a set has no row, but it was observed.
    zeros = [f.lit(0).cast("bigint").alias(name) for name in sums]
    begun = told.where("begun > 0").join(f.broadcast(lives), "fleet")
    observed = begun.select("rank", *key, f.explode(f.sequence("day", "last")).alias("day"), *zeros)
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
