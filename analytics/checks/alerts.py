"""
Alerts: failovers that do not end, sets that flap, sets with one member in sync.

Here: column expressions over silver at one moment, and an alert as a notice. Not here: the moments and the printing
(``jobs.stream``).
Rule 1: the moment is an argument, so that a stream of old files is judged by its own stamps. The tables are those of
now: a row that is open today was open then, a row that has ended since is no alert of any moment.
Rule 2: an alert is told in the form that hooks tell events in (docs/hooks.md, schema 1), so that one receiver takes
both. It is written out here: nobody imports hooks, so that no work can wait for one;
``tests/unit/test_analytics_alerts.py`` reads it as a notice of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from rollcall_ha.analytics.silver.tables import SILVER_REIGNS, SILVER_SILENCES, SILVER_SYNC_STATE_SETS, SILVER_TENURES
from rollcall_ha.controller.contract.ids import SetKey

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rollcall_ha.analytics.lake.lake import Lake, Snapshot

COLUMNS = ("alert", "cluster", "fleet", "broker_set", "since_ms", "lasts_ms", "count")
ROWS_MAX = 10_000
"""More alerts at one moment are cut off, the newest first."""

_SET = ("fleet", "cluster", "broker_set")

KINDS = {"open-failover": "serving", "no-master": "elections", "flapping": "flapping", "one-member-in-sync": "exposure"}
"""Alert -> the kind of notices about the same."""


class AlertTold(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How long it has lasted, by stamps."""

    since_ms: int
    lasts_ms: int
    count: int
    """Failovers; 1 where nothing is counted."""


class AlertNotice(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The payload, as of a hook."""

    schema: int = 1
    id: str
    """The same for one alert, who ever tells it: a stream that is started again tells what still lasts."""
    type: str
    kind: str
    fleet_incarnation: str
    set_key: SetKey
    stamped_at_ms: int
    """The moment that was looked at."""
    event: None = None
    data: AlertTold


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


def notice_of(found: Mapping[str, Any], *, now_ms: int) -> AlertNotice:
    """An alert, by ``COLUMNS``, at the moment ``now_ms``."""
    key, alert = SetKey(cluster=found["cluster"], name=found["broker_set"]), found["alert"]
    return AlertNotice(
        id=f"{found['fleet']}.alert.{key}.{alert}.{found['since_ms']}",
        type=alert,
        kind=KINDS[alert],
        fleet_incarnation=found["fleet"],
        set_key=key,
        stamped_at_ms=now_ms,
        data=AlertTold(since_ms=found["since_ms"], lasts_ms=found["lasts_ms"], count=found["count"]),
    )


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
