"""
From gold to the rows of a report: the one part of it that speaks to Spark.

Rule 1: each query ends in an aggregate or in an ordered limit; the limits are in ``contents``.
Rule 2: ties are broken by keys, so that one lake gives one report.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from rollcall_ha.analytics.gold.tables import (
    ALL,
    GOLD_CLUSTERS,
    GOLD_FAILOVERS,
    GOLD_FAILOVERS_DAILY,
    GOLD_NODES,
    GOLD_QUALITY,
    GOLD_QUIET_DAILY,
    GOLD_RTO,
    GOLD_RTO_DAILY,
    GOLD_SETS,
    GOLD_SETS_DAILY,
)
from rollcall_ha.analytics.lake.lake import Lake, NoLake
from rollcall_ha.analytics.lake.progress import Progress
from rollcall_ha.analytics.lake.tables import LakeTable
from rollcall_ha.analytics.report import contents
from rollcall_ha.analytics.report.contents import Contents
from rollcall_ha.analytics.report.distributions import BINS_PER_DECADE
from rollcall_ha.analytics.report.questions import answers_of
from rollcall_ha.analytics.silver.tables import SILVER_CALLERS
from rollcall_ha.controller.contract.principals import Role

Read = Callable[[LakeTable], "DataFrame"]


def gather(spark: SparkSession, lake: Lake, progress: Progress, *, made_at_ms: int) -> Contents:
    """
    All tables of a report, from one version of the lake.

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
    for table, rows_of in _TABLES:
        with progress.step(f"report: {table.name}"):
            found = rows_of(read).select(*table.column_names)
            rows[table.name] = [row.asDict() for row in found.collect()]
    with progress.step("report: questions"):
        rows |= answers_of(spark, read)
    return Contents(rows=rows, lake=str(lake.root), lake_version=snapshot.number, made_at_ms=made_at_ms)


def _clusters(read: Read) -> DataFrame:
    ordered = read(GOLD_CLUSTERS).orderBy(f.col("cluster") != ALL, f.col("outage_ms").desc(), "cluster")
    return ordered.limit(contents.CLUSTERS_MAX)


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


def _rto(read: Read) -> DataFrame:
    rows = read(GOLD_RTO).where(f.col("cluster") == ALL)
    return rows.orderBy(f.col("cause") != ALL, "cause", "phase").limit(contents.RTO_ROWS_MAX)


def _rto_histogram(read: Read) -> DataFrame:
    duration = f.greatest(f.col("duration_ms"), f.lit(1).cast("bigint"))
    rows = read(GOLD_RTO_DAILY).where("phase = 'total'")
    binned = rows.withColumn("bin", f.floor(f.log10(duration) * BINS_PER_DECADE)).groupBy("cause", "bin")
    return binned.agg(f.sum("failovers").alias("failovers")).orderBy("cause", "bin").limit(contents.HISTOGRAM_BINS_MAX)


def _grades(read: Read) -> DataFrame:
    sums = [name for name in contents.GRADES.column_names if name != "cause"]
    found = read(GOLD_FAILOVERS_DAILY).groupBy("cause").agg(*(f.sum(name).alias(name) for name in sums))
    return found.orderBy(f.col("failovers").desc(), "cause").limit(contents.GRADE_CAUSES_MAX)


def _calendar(read: Read) -> DataFrame:
    sums = ("exposed_ms", "outage_ms", "failovers")
    told = read(GOLD_SETS_DAILY).select("day", f.lit(1).cast("bigint").alias("sets"), *sums)
    quiet = read(GOLD_QUIET_DAILY).select("day", "sets", *_zeros(sums))
    days = told.unionByName(quiet).groupBy("day").agg(*(f.sum(name).alias(name) for name in ("sets", *sums)))
    return days.orderBy(f.col("day").desc()).limit(contents.CALENDAR_DAYS_MAX).orderBy("day")


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
    worst = _worst_sets(read).limit(contents.HEAT_MAP_SETS_MAX).select(*key, "outage_ms", "exposed_ms")
    order = Window.orderBy(f.col("outage_ms").desc(), f.col("exposed_ms").desc(), *key)
    ranked = worst.select(*key, f.row_number().over(order).cast("bigint").alias("rank"))
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


def _worst_sets(read: Read) -> DataFrame:
    worst = (f.col("outage_ms").desc(), f.col("exposed_ms").desc())
    return read(GOLD_SETS).orderBy(*worst, "cluster", "fleet", "broker_set")


def _worst_nodes(read: Read) -> DataFrame:
    worst = (f.col("faults").desc(), f.col("gone_ms").desc())
    ordered = read(GOLD_NODES).orderBy(*worst, "cluster", "fleet", "broker_set", "broker_id")
    return ordered.limit(contents.WORST_NODES_MAX)


def _callers(read: Read) -> DataFrame:
    summed = (
        read(SILVER_CALLERS)
        .groupBy("caller", "proved_by", "kind")
        .agg(
            f.sum("events").alias("events"),
            f.min("first_at_ms").alias("first_at_ms"),
            f.max("last_at_ms").alias("last_at_ms"),
        )
    )
    # Brokers last: a fleet has thousands, whose registrations say little, and one person whose election says much.
    is_broker = f.col("caller").startswith(f"{Role.BROKER}:")
    return summed.orderBy(is_broker, f.col("last_at_ms").desc(), "caller", "proved_by", "kind").limit(
        contents.CALLERS_MAX
    )


_TABLES: tuple[tuple[LakeTable, Callable[[Read], DataFrame]], ...] = (
    (contents.CLUSTERS, _clusters),
    (contents.FAILOVERS, _failovers),
    (contents.RTO, _rto),
    (contents.RTO_HISTOGRAM, _rto_histogram),
    (contents.GRADES, _grades),
    (contents.CALENDAR, _calendar),
    (contents.HEAT_MAP, _heat_map),
    (contents.WORST_SETS, lambda read: _worst_sets(read).limit(contents.WORST_SETS_MAX)),
    (contents.WORST_NODES, _worst_nodes),
    (contents.CALLERS, _callers),
    (contents.QUALITY, lambda read: read(GOLD_QUALITY).orderBy("name").limit(contents.QUALITY_ROWS_MAX)),
)
