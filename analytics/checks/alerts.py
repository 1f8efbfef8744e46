"""
Alerts: failovers that do not end, sets that flap, sets with one member in sync.

Here: column expressions over silver at one moment. Not here: the moments and the printing (``jobs.stream``).
Rule 1: the moment is an argument, so that a stream of old files is judged by its own stamps. The tables are those of
now: a row that is open today was open then, a row that has ended since is no alert of any moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from rollcall_ha.analytics.silver.tables import SILVER_REIGNS, SILVER_SILENCES, SILVER_SYNC_STATE_SETS, SILVER_TENURES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rollcall_ha.analytics.lake.lake import Lake, Snapshot

COLUMNS = ("alert", "cluster", "fleet", "broker_set", "since_ms", "lasts_ms", "count")
ROWS_MAX = 10_000
"""More alerts at one moment are cut off, the newest first."""

_SET = ("fleet", "cluster", "broker_set")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """From when on something is an alert."""

    open_ms: int = 10_000
    """A set without a serving master for so long."""
    exposed_ms: int = 60_000
    """A SyncStateSet of one member for so long."""
    flaps: int = 3
    """So many failovers of one set ..."""
    flap_window_ms: int = 600_000
    """... within so long a time."""


def alerts(spark: SparkSession, lake: Lake, snapshot: Snapshot, *, now_ms: int, limits: Limits) -> DataFrame:
    """``COLUMNS`` of everything that is over a limit at ``now_ms``, the oldest first; ``ROWS_MAX`` at most."""

    def read(table: object) -> DataFrame:
        return lake.read(spark, table, snapshot=snapshot)  # type: ignore[arg-type]  # all are tables

    tenures = read(SILVER_TENURES).where("ended_at_ms is null")
    found = (
        _unserved(tenures, now_ms, limits)
        .unionByName(_deserted(tenures, read(SILVER_SILENCES), now_ms, limits))
        .unionByName(_flapping(read(SILVER_REIGNS), now_ms, limits))
        .unionByName(_exposed(read(SILVER_SYNC_STATE_SETS), now_ms, limits))
    )
    return found.orderBy("since_ms", "alert", *_SET).limit(ROWS_MAX)


def _told(rows: DataFrame, alert: str, now_ms: int) -> DataFrame:
    """``rows`` have the set, ``since_ms`` and ``count``."""
    from pyspark.sql import functions as f

    return rows.withColumns({"alert": f.lit(alert), "lasts_ms": f.lit(now_ms) - f.col("since_ms")}).select(*COLUMNS)


def _unserved(tenures: DataFrame, now_ms: int, limits: Limits) -> DataFrame:
    """Elected, and does not serve."""
    from pyspark.sql import functions as f

    late = tenures.where(f.col("served_at_ms").isNull() & (f.col("elected_at_ms") <= now_ms - limits.open_ms))
    rows = late.select(*_SET, f.col("elected_at_ms").alias("since_ms"), f.lit(1).cast("bigint").alias("count"))
    return _told(rows, "open-failover", now_ms)


def _deserted(tenures: DataFrame, silences: DataFrame, now_ms: int, limits: Limits) -> DataFrame:
    """The master is gone, and it has no successor."""
    from pyspark.sql import functions as f

    gone = silences.where(f.col("returned_seq").isNull()).select(*_SET, "broker_id", "seq", "found_at_ms")
    late = (
        tenures.where("served_at_ms is not null")
        .join(gone, [*_SET, "broker_id"])
        .where((f.col("seq") > f.col("elected_seq")) & (f.col("found_at_ms") <= now_ms - limits.open_ms))
        .groupBy(*_SET)
        .agg(f.min("found_at_ms").alias("since_ms"), f.lit(1).cast("bigint").alias("count"))
    )
    return _told(late, "no-master", now_ms)


def _flapping(reigns: DataFrame, now_ms: int, limits: Limits) -> DataFrame:
    from pyspark.sql import functions as f

    recent = reigns.where(f.col("is_failover") & f.col("elected_at_ms").between(now_ms - limits.flap_window_ms, now_ms))
    counted = recent.groupBy(*_SET).agg(f.min("elected_at_ms").alias("since_ms"), f.count("*").alias("count"))
    return _told(counted.where(f.col("count") >= limits.flaps), "flapping", now_ms)


def _exposed(sets: DataFrame, now_ms: int, limits: Limits) -> DataFrame:
    from pyspark.sql import functions as f

    late = sets.where(
        f.col("ended_at_ms").isNull() & (f.col("set_size") == 1) & (f.col("began_at_ms") <= now_ms - limits.exposed_ms)
    )
    rows = late.select(*_SET, f.col("began_at_ms").alias("since_ms"), f.lit(1).cast("bigint").alias("count"))
    return _told(rows, "one-member-in-sync", now_ms)
