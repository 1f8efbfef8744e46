"""
Silver, intervals: SyncStateSets, silences, stops of writes, each from its beginning to its end.

Here: windows over narrow rows, one sort per table. Not here: reigns (``facts``), cutting at midnight
(``gold.intervals``).

Rule 1: events of one fleet are ordered by ``seq``, reigns by epoch, never by stamps. An interval whose end is stamped
before its beginning is kept as it is; gold counts it as negative and gives it no time.
Rule 2: rows are brought together by their set before they are sorted: what is made here is written by set.

Events are all of some sets, with their instants as milliseconds (``in_ms``).
"""

from __future__ import annotations

from functools import reduce
from operator import and_

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from rollcall_ha.analytics.codes import CAUSES, KINDS, STOP_REASONS, word_of
from rollcall_ha.analytics.silver.tables import SILVER_SILENCES, SILVER_STOPS, SILVER_SYNC_STATE_SETS

US_PER_MS = 1_000

CHANGES_SET = ("replica-registered", "master-elected", "sync-state-set-altered", "replicas-cleaned", "set-imported")
GONE = ("replica-silent", "goodbye-said")
_ENDS_STOP = ("writes-resumed", "writes-stopped", "master-elected", "replicas-cleaned")
_BACK = ("replica-registered", "session-opened", "replica-alive")


def sync_state_sets(events: DataFrame) -> DataFrame:
    """``silver.sync_state_sets``; an epoch says whether an event changed the set or only repeats it."""
    is_told = f.col("sync_state_set_epoch") > 0
    expected, asked = f.col("expected_replicas"), f.col("min_in_sync")
    in_sync = f.when(asked > 0, asked).otherwise(f.floor((expected + 1) / 2))
    needed = f.when(expected.isNotNull(), f.least(expected, f.greatest(f.lit(2), in_sync)))
    points = events.where(f.col("kind").isin([KINDS[kind] for kind in (*CHANGES_SET, "set-configured")])).select(
        "set_id",
        "seq",
        f.col("stamped_at_ms").alias("began_at_ms"),
        f.when(is_told, f.col("sync_state_set")).alias("sync_state_set"),
        f.when(is_told, f.col("sync_state_set_epoch")).alias("sync_state_set_epoch"),
        needed.cast("int").alias("members_needed"),
        "kind",
    )
    of_set = Window.partitionBy("set_id").orderBy("seq")
    told = ("sync_state_set", "sync_state_set_epoch", "members_needed")
    so_far = of_set.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    known = points.repartition("set_id").withColumns(
        {name: f.last(name, ignorenulls=True).over(so_far) for name in told}
    )
    # An election and a registration repeat the set as it is. Counted as changes they would cut one long exposure into
    # many short ones, and the alert for it would begin anew each time.
    repeats = reduce(and_, (f.lag(name).over(of_set).eqNullSafe(f.col(name)) for name in told[1:]))
    changes = known.withColumn("is_repeated", repeats).where(f.col(told[1]).isNotNull() & ~f.col("is_repeated"))
    return changes.withColumns(
        {
            "day": f.to_date(f.timestamp_millis("began_at_ms")),
            "set_size": f.size("sync_state_set"),
            "changed_by": word_of(f.col("kind"), KINDS),
            "ended_at_ms": f.lead("began_at_ms").over(of_set),
            "ended_seq": f.lead("seq").over(of_set),
        }
    ).select(*SILVER_SYNC_STATE_SETS.of_ms())


def silences(events: DataFrame) -> DataFrame:
    """
    ``silver.silences``; a replica is back with its next session, sign of life or registration.

    A master's process whose end only the next one's registration tells is gone and back with this one event.
    """
    is_back = f.col("kind").isin([KINDS[kind] for kind in _BACK])
    is_replaced = (f.col("kind") == KINDS["replica-registered"]) & f.col("cause").isNotNull()
    gone = f.col("kind").isin([KINDS[kind] for kind in GONE]) | is_replaced
    points = events.where(gone | is_back).select(
        "set_id",
        "seq",
        "broker_id",
        "incarnation_hash",
        "term",
        f.col("stamped_at_ms").alias("found_at_ms"),
        f.when(gone, f.col("cause")).alias("cause"),
        "last_heartbeat_age_us",
        "fault_age_us",
        gone.alias("is_gone"),
        is_back.alias("is_back"),
    )
    # Backwards in time: the next return of a silence is then the last one before it in the window.
    backwards = Window.partitionBy("set_id", "broker_id").orderBy(f.col("seq").desc())
    # One struct, so that place, time and incarnation come from the same return.
    back = f.when(
        f.col("is_back"), f.struct("seq", f.col("found_at_ms").alias("at_ms"), f.col("incarnation_hash").alias("who"))
    )
    # A registration has the hash of the new process: the one that ended is not named.
    ended_hash = f.when(~f.col("is_back"), f.col("incarnation_hash"))
    is_same = f.coalesce(f.col("back.who") == ended_hash, f.lit(False))
    following = points.repartition("set_id").withColumn("back", f.last(back, ignorenulls=True).over(backwards))
    return (
        following.where("is_gone")
        .withColumns(
            {
                "day": f.to_date(f.timestamp_millis("found_at_ms")),
                "cause": word_of(f.col("cause"), CAUSES),
                "returned_at_ms": f.col("back.at_ms"),
                "returned_seq": f.col("back.seq"),
                "returned_hash": f.col("back.who"),
                "incarnation_hash": ended_hash,
                "is_same_incarnation": f.when(f.col("back").isNotNull(), is_same),
            }
        )
        .select(*SILVER_SILENCES.of_ms())
    )


def stops(events: DataFrame) -> DataFrame:
    """``silver.stops``: the next of ``_ENDS_STOP`` in the set ends a stop, as in ``controller.core.stops``."""
    kind = f.col("kind")
    is_begin = kind == KINDS["writes-stopped"]
    is_point = kind.isin([KINDS[one] for one in _ENDS_STOP]) & f.coalesce("is_cleaned", f.lit(True))
    told_ms = f.when(is_begin, f.col("stamped_at_ms") - f.floor(f.col("age_us") / US_PER_MS))
    points = events.where(is_point).select(
        "set_id",
        "seq",
        "master_epoch",
        "broker_id",
        f.coalesce(told_ms, f.col("stamped_at_ms")).alias("at_ms"),
        f.when(is_begin, f.col("stop_reason")).alias("stop_reason"),
        "stopped_us",
        word_of(kind, KINDS).alias("by"),
    )
    is_begin = f.col("by") == "writes-stopped"
    # Backwards, as for silences: the point before a stop in the window is the next one in time.
    backwards = Window.partitionBy("set_id").orderBy(f.col("seq").desc())
    following = points.repartition("set_id").withColumn(
        "end", f.lag(f.struct("seq", "at_ms", "stopped_us", "by")).over(backwards)
    )
    return (
        following.where(is_begin)
        .withColumns(
            {
                "day": f.to_date(f.timestamp_millis("at_ms")),
                "began_at_ms": f.col("at_ms"),
                "reason": word_of(f.col("stop_reason"), STOP_REASONS),
                "ended_seq": f.col("end.seq"),
                "ended_by": f.col("end.by"),
                "stopped_us": f.col("end.stopped_us"),
                # By the master's own clock where it told: two leaders' stamps may differ by seconds.
                "ended_at_ms": f.coalesce(
                    f.col("at_ms") + f.floor(f.col("end.stopped_us") / US_PER_MS), f.col("end.at_ms")
                ),
            }
        )
        .select(*SILVER_STOPS.of_ms())
    )
