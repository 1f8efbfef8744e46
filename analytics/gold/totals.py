"""
The gold tables that cover the whole lake: sums of the daily ones, and percentiles of their histograms.

Here: column expressions over daily tables. Not here: the days (``daily``).
Rule 1: only daily tables are read, the last events of fleets, and keys and counts for quality: a longer period is the
sum of its days, quiet ones included.
Rule 2: rows are summed by their own keys before they are repeated for "all": so few are repeated.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS, BRONZE_QUALITY
from rollcall_ha.analytics.codes import KINDS
from rollcall_ha.analytics.gold.days import MS_PER_DAY, horizon_of_fleets, last_day
from rollcall_ha.analytics.gold.tables import (
    ALL,
    GOLD_CLUSTERS,
    GOLD_DOMINANCE_DAILY,
    GOLD_FAILOVERS_DAILY,
    GOLD_NODES,
    GOLD_NODES_DAILY,
    GOLD_QUALITY,
    GOLD_QUIET_DAILY,
    GOLD_RTO,
    GOLD_RTO_DAILY,
    GOLD_SETS,
    GOLD_SETS_DAILY,
)
from rollcall_ha.analytics.lake.tables import FLEET_CLUSTER, LakeTable
from rollcall_ha.analytics.silver.tables import SILVER_HORIZONS, SILVER_REIGNS, SILVER_SYNC_STATE_SETS

PPM = 1_000_000
PERCENTS = {"p50_ms": 50, "p90_ms": 90, "p95_ms": 95, "p99_ms": 99}

Read = Callable[[LakeTable], "DataFrame"]


def _for_all(name: str) -> Column:
    """One row for the value itself and one for all of them."""
    return f.explode(f.array(f.col(name), f.lit(ALL))).alias(name)


def _divided(whole: Column, part: Column) -> Column:
    """In whole numbers, rounded down; null if there is nothing to divide by."""
    return f.when(part > 0, f.call_function("div", whole, part))


def _availability() -> Column:
    """In millionths. As a decimal: a month of 6,400 sets, in ms and times a million, is more than 64 bits hold."""
    return _divided(f.col("available_ms").cast("decimal(20,0)") * PPM, f.col("observed_ms"))


def percentiles(histogram: DataFrame, keys: list[str]) -> DataFrame:
    """
    Nearest-rank percentiles of a histogram with columns ``duration_ms`` and ``failovers``, by ``keys``.

    Columns: the keys, ``failovers``, those of ``PERCENTS``, ``max_ms``.
    """
    bins = histogram.groupBy(*keys, "duration_ms").agg(f.sum("failovers").alias("n"))
    up_to = Window.partitionBy(*keys).orderBy("duration_ms").rowsBetween(Window.unboundedPreceding, 0)
    of_key = Window.partitionBy(*keys)
    ranked = bins.withColumns({"rank": f.sum("n").over(up_to), "of": f.sum("n").over(of_key)})
    # In whole numbers, rank / of >= percent / 100: with fractions 99 % of 100 would be rank 99.00000000000001, the
    # next.
    reached = {
        name: f.min(f.when(f.col("rank") * 100 >= f.col("of") * percent, f.col("duration_ms")))
        for name, percent in PERCENTS.items()
    }
    return ranked.groupBy(*keys).agg(
        f.sum("n").alias("failovers"),
        *(column.alias(name) for name, column in reached.items()),
        f.max("duration_ms").alias("max_ms"),
    )


def _totalled(rows: DataFrame, numbers: list[str]) -> DataFrame:
    """Rows by cluster, and their sum."""
    return rows.withColumn("cluster", _for_all("cluster")).groupBy("cluster").agg(*(f.sum(n).alias(n) for n in numbers))


def _with_quiet(days: Column) -> dict[str, Column]:
    """The times of sets with so many quiet days more."""
    return {name: f.col(name) + days.cast("bigint") * MS_PER_DAY for name in ("observed_ms", "available_ms")}


def rto(read: Read) -> DataFrame:
    keys = ["cluster", "cause", "phase"]

    def by_key(table: LakeTable, *columns: str) -> DataFrame:
        summed = read(table).groupBy(*keys, *columns).agg(f.sum("failovers").alias("failovers"))
        rows = summed.select(_for_all("cluster"), "cause", "phase", *columns, "failovers")
        return rows.select("cluster", _for_all("cause"), "phase", *columns, "failovers")

    found = percentiles(by_key(GOLD_RTO_DAILY, "duration_ms"), keys)
    dominated = by_key(GOLD_DOMINANCE_DAILY).groupBy(*keys).agg(f.sum("failovers").alias("dominated"))
    return (
        found.join(dominated, keys, "left")
        .withColumn("dominated", f.coalesce("dominated", f.lit(0).cast("bigint")))
        .select(*GOLD_RTO.column_names)
    )


def clusters(read: Read) -> DataFrame:
    def summed(table: LakeTable, names: dict[str, str]) -> DataFrame:
        rows = read(table).groupBy("cluster").agg(*(f.sum(source).alias(name) for name, source in names.items()))
        return _totalled(rows, list(names))

    counts = [name for name in GOLD_FAILOVERS_DAILY.column_names if name in GOLD_CLUSTERS.column_names]
    of_failovers = {name: name for name in counts if name not in ("cluster", "outage_ms")}
    of_sets = {name: name for name in ("observed_ms", "available_ms", "outage_ms", "stopped_ms", "exposed_ms")}
    span = (
        read(SILVER_HORIZONS)
        .where(f.col("cluster") != FLEET_CLUSTER)
        .withColumn("cluster", _for_all("cluster"))
        .groupBy("cluster")
        .agg(f.min("day").alias("first_day"), f.max("day").alias("last_day"))
    )
    joined = (
        span.join(summed(GOLD_FAILOVERS_DAILY, of_failovers), "cluster", "left")
        .join(
            summed(GOLD_SETS_DAILY, of_sets | {"sets": "begun", "set_days_below_sla": "below_sla"}), "cluster", "left"
        )
        .join(summed(GOLD_QUIET_DAILY, {"quiet_days": "sets"}), "cluster", "left")
    )
    numbers = ["sets", *of_failovers, *of_sets, "set_days_below_sla"]
    return (
        joined.fillna(0, [*numbers, "quiet_days"])
        .withColumns(_with_quiet(f.col("quiet_days")))
        .withColumn("availability_ppm", _availability())
        .select(*GOLD_CLUSTERS.column_names)
    )


def sets(read: Read) -> DataFrame:
    key = ["cluster", "fleet", "broker_set"]
    renamed = {"days_below_sla": "below_sla"}
    ends = horizon_of_fleets(read(SILVER_HORIZONS)).select("fleet", last_day(f.col("at_ms")).alias("last_day"))
    # While it is observed a set has a row each day, or the day was quiet.
    days_left = f.date_diff("last_day", "day")
    observed = f.sum(f.col("begun") * (days_left + 1) - f.col("ended") * days_left)
    names = [name for name in GOLD_SETS.column_names if name not in (*key, "availability_ppm", "mtbf_ms")]
    sums = [f.sum(renamed.get(name, name)).alias(name) for name in names]
    return (
        read(GOLD_SETS_DAILY)
        .join(f.broadcast(ends), "fleet")
        .groupBy(*key)
        .agg(*sums, (observed - f.count_if(f.col("observed_ms") > 0)).alias("quiet_days"))
        .withColumns(_with_quiet(f.col("quiet_days")))
        .withColumns(
            {
                "availability_ppm": _availability(),
                "mtbf_ms": _divided(f.col("available_ms"), f.col("failovers")),
            }
        )
        .select(*GOLD_SETS.column_names)
    )


def nodes(read: Read) -> DataFrame:
    of_set = ["cluster", "fleet", "broker_set"]
    names = ("faults", "goodbyes", "timeouts", "false_alarms", "masters_lost", "gone_ms")
    observed = read(GOLD_SETS).select(*of_set, "observed_ms").hint("shuffle_hash")
    zero = f.lit(0).cast("bigint")
    return (
        read(GOLD_NODES_DAILY)
        .groupBy(*of_set, "broker_id")
        .agg(*(f.sum(name).alias(name) for name in names))
        .join(observed, of_set, "left")
        .withColumn("observed_ms", f.coalesce("observed_ms", zero))
        .withColumn("mtbf_ms", _divided(f.greatest(zero, f.col("observed_ms") - f.col("gone_ms")), f.col("faults")))
        .select(*GOLD_NODES.column_names)
    )


def quality(read: Read) -> DataFrame:
    of_files = read(BRONZE_QUALITY).groupBy("name").agg(f.sum("count").alias("count"))
    kept = read(SILVER_HORIZONS).agg(f.lit("events").alias("name"), f.sum("events").alias("count"))
    read_events = of_files.agg(
        f.lit("copies").alias("name"),
        (
            f.sum(f.when(f.col("name") == "pieces", f.col("count")).otherwise(0))
            - f.sum(f.when(f.col("name").startswith("rejected:"), f.col("count")).otherwise(0))
        ).alias("count"),
    )
    copies = read_events.crossJoin(kept.select(f.col("count").alias("kept"))).select(
        "name", (f.col("count") - f.col("kept")).alias("count")
    )
    of_failovers = read(GOLD_FAILOVERS_DAILY).select(
        f.explode(
            f.array(
                *(
                    f.struct(f.lit(name).alias("name"), f.col(name).alias("count"))
                    for name in ("backward_stamps", "incomplete", "open")
                )
            )
        ).alias("one")
    )
    negative = read(SILVER_SYNC_STATE_SETS).where("ended_at_ms < began_at_ms")
    # Epochs with reports but without an election, which lies in a hole of the journals. Silver leaves them out, so that
    # this count is the only trace of them.
    epoch = ["fleet", "cluster", "broker_set", "master_epoch"]
    told = read(BRONZE_EVENTS).where(f.col("kind").isin(KINDS["master-entered"], KINDS["loss-graded"]))
    known = read(SILVER_REIGNS).select(*epoch, f.lit(1).alias("is_known"))
    each = told.select(*epoch, f.lit(0).alias("is_known")).unionByName(known)
    orphans = each.groupBy(*epoch).agg(f.max("is_known").alias("is_known")).where("is_known = 0")
    parts = (
        orphans.agg(f.lit("orphans").alias("name"), f.count("*").alias("count")),
        of_files,
        kept,
        copies,
        of_failovers.groupBy("one.name").agg(f.sum("one.count").alias("count")),
        negative.agg(f.lit("negative_intervals").alias("name"), f.count("*").alias("count")),
    )
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.unionByName(part)
    return whole.withColumn("count", f.coalesce("count", f.lit(0).cast("bigint"))).select(*GOLD_QUALITY.column_names)


TOTALS: tuple[tuple[LakeTable, Callable[[Read], DataFrame]], ...] = (
    (GOLD_RTO, rto),
    (GOLD_CLUSTERS, clusters),
    (GOLD_SETS, sets),
    (GOLD_NODES, nodes),
    (GOLD_QUALITY, quality),
)
