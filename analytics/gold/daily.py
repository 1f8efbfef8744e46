"""
The daily gold tables of failovers: column expressions over silver.

Here: failovers with their judgement, histograms of their durations, and the order of all daily tables. Not here:
intervals (``intervals``), sums (views in ``tables``).
Rule 1: figures are defined in ``tables``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from rollcall_ha.analytics.gold.days import US_PER_MS, Days
from rollcall_ha.analytics.gold.intervals import nodes_daily, quiet_daily, sets_daily, with_cleanings
from rollcall_ha.analytics.gold.tables import (
    FLAP_WINDOW_MS,
    GOLD_FAILOVERS,
    GOLD_NODES_DAILY,
    GOLD_QUIET_DAILY,
    GOLD_RTO_DAILY,
    GOLD_SETS_DAILY,
    LEADER_SHADOW_MS,
    ROUTE_LATE_MS,
)
from rollcall_ha.analytics.lake.tables import LakeTable
from rollcall_ha.analytics.silver.phases import OF_OUTAGE, span_column
from rollcall_ha.analytics.silver.tables import NOBODY, PAUSED
from rollcall_ha.analytics.silver.turns import GENERATION_BITS
from rollcall_ha.controller.contract.verdicts import ElectionKind


def failovers(days: Days) -> DataFrame:
    elected = f.col("elected_at_ms")
    wanted = days.tables["phases"].where("is_failover")
    joined = (
        with_cleanings(days, wanted)
        .join(_triggers(days).hint("shuffle_hash"), ["set_id", "triggered_seq"], "left")
        .join(days.sets(), "set_id")
        .join(_terms(days), ["fleet", "generation", "found_term"], "left")
        .join(_held_up(days, wanted), ["set_id", "master_epoch"], "left")
    )
    # The trigger may be another replica's silence: then its time is not that of the master's loss.
    is_its = f.col("silent_id") == f.col("from_master")
    fault_at = elected - f.floor(f.col("fault_age_us") / US_PER_MS)
    found_at = f.when(is_its, f.col("found_at_ms"))
    lost_at = f.coalesce(fault_at, found_at, elected)
    # A set that is taken away needs no master: up to the next election, or the horizon, it would be out of service.
    end = f.coalesce("served_at_ms", f.least("ended_at_ms", "cleaned_at_ms"), "horizon_ms")
    # The winner was gone before it served: the next election names the same beginning, and has this outage whole.
    goes_on = f.coalesce(f.col("served_at_ms").isNull() & (f.col("lost_at_ms") <= elected), f.lit(False))
    is_false = f.coalesce(is_its & f.col("is_same_incarnation"), f.lit(False))
    since_change = found_at - f.col("taken_at_ms")
    # A change of leader after the finding cannot have caused it. Counted, the figure would also depend on whether the
    # day of that change has been ingested yet.
    shadow = f.when(since_change >= 0, since_change)
    since_previous = elected - f.col("previous_failover_at_ms")
    route_late = f.floor((f.col("route_converged_us") - f.col("total_us")) / US_PER_MS)
    columns = {
        "found_by": f.col("cause"),
        # How long operators kept elections paused, or until somebody started the last member again, is not the speed of
        # a failover: counted as "dead-at-once", half of those would take 20 minutes.
        "cause": f.coalesce("held_up_by", f.when(f.col("kind") == ElectionKind.UNCLEAN.value, NOBODY), "cause"),
        # When this outage began; the silver column of that name tells of the outage that ended the reign.
        "lost_at_ms": lost_at,
        "outage_ms": f.when(~goes_on, f.greatest(f.lit(0).cast("bigint"), end - lost_at)),
        "is_open": f.coalesce("served_at_ms", "ended_at_ms", "cleaned_at_ms").isNull(),
        "heard_again_after_ms": f.when(is_false, f.col("returned_at_ms") - found_at),
        "is_false_positive": is_false,
        "leader_change_age_ms": shadow,
        "is_controller_caused": f.coalesce(is_false & (shadow < LEADER_SHADOW_MS), f.lit(False)),
        "since_previous_ms": since_previous,
        "is_flap": f.coalesce(since_previous < FLAP_WINDOW_MS, f.lit(False)),
        "route_late_ms": route_late,
        "is_route_late": f.coalesce(route_late > ROUTE_LATE_MS, f.lit(False)),
    }
    return joined.withColumns(columns).select(*GOLD_FAILOVERS.of_ms())


def _triggers(days: Days) -> DataFrame:
    """Silences, by the name that an election calls them."""
    return days.tables["silences"].select(
        "set_id",
        f.col("seq").alias("triggered_seq"),
        f.col("broker_id").alias("silent_id"),
        f.col("term").alias("found_term"),
        f.shiftright("seq", GENERATION_BITS).alias("generation"),
        "found_at_ms",
        "returned_at_ms",
        "is_same_incarnation",
    )


def _held_up(days: Days, failovers: DataFrame) -> DataFrame:
    """
    Columns ``set_id``, ``master_epoch`` and ``held_up_by``: failovers that waited for the end of a pause, or for
    somebody to elect, since the event that triggered them.
    """
    waits, seq = days.tables["waits"], f.col("seq")
    back = days.tables["silences"].where("returned_seq > seq")
    points = (
        failovers.select(
            "set_id",
            "master_epoch",
            f.col("to_master").alias("who"),
            "triggered_seq",
            f.col("elected_seq").alias("seq"),
        )
        .unionByName(waits.select("set_id", "seq", "why"), allowMissingColumns=True)
        .unionByName(
            back.select("set_id", f.col("broker_id").alias("who"), f.col("returned_seq").alias("seq")),
            allowMissingColumns=True,
        )
    )
    of_set = Window.partitionBy("set_id").orderBy("seq")
    of_who = Window.partitionBy("set_id", "who").orderBy("seq")
    is_election = f.col("master_epoch").isNotNull()
    newest = {
        "paused_seq": f.max(f.when(f.col("why") == PAUSED, seq)).over(of_set),
        "nobody_seq": f.max(f.when(f.col("why") == NOBODY, seq)).over(of_set),
        "back_seq": f.max(f.when(~is_election & f.col("why").isNull(), seq)).over(of_who),
    }
    since = f.coalesce("triggered_seq", f.lit(0))
    is_nobody = f.greatest("nobody_seq", "back_seq") > since
    why = f.when(f.col("paused_seq") > since, PAUSED).when(is_nobody, NOBODY)
    held_up = points.repartition("set_id").withColumns(newest).where(is_election).withColumn("held_up_by", why)
    return held_up.where("held_up_by is not null").select("set_id", "master_epoch", "held_up_by")


def _terms(days: Days) -> DataFrame:
    """When the leader of each term took the lead from another one; few rows. Restored controllers repeat terms."""
    changes = days.tables["leaderships"].where(~f.col("is_founding"))
    generation = f.shiftright("seq", GENERATION_BITS).alias("generation")
    terms = changes.groupBy("fleet", generation, "term").agg(f.min("taken_at_ms").alias("taken_at_ms"))
    return terms.withColumnRenamed("term", "found_term")


def rto_daily(days: Days) -> DataFrame:
    durations = {phase.value: f.col(span_column(phase)) for phase in OF_OUTAGE} | {
        "total": f.col("total_us"),
        "waited": f.col("waited_us"),
        "unattributed": f.col("unattributed_us"),
        "outage": f.col("outage_ms") * US_PER_MS,
    }
    # A number in place of the phase's word, up to the sums: ten rows of each failover are made.
    phases = f.array(*map(f.lit, durations))
    stacked = f.posexplode(f.array(*durations.values())).alias("place", "us")
    longest = (f.array_position(phases, f.col("dominating_phase")) - 1).alias("longest")
    key = ("fleet", "cluster", "day", "kind", "cause", "place", "duration_ms")
    return (
        days.tables["failovers"]
        .select(*key[:5], longest, stacked)
        .where("us is not null")
        .withColumn("duration_ms", f.floor(f.col("us") / US_PER_MS))
        .groupBy(*key)
        .agg(f.count("*").alias("failovers"), f.count_if(f.col("place") == f.col("longest")).alias("dominated"))
        .withColumn("phase", f.get(phases, f.col("place")))
        .select(*GOLD_RTO_DAILY.column_names)
    )


DAILY: tuple[Mapping[LakeTable, Callable[[Days], DataFrame]], ...] = (
    {GOLD_FAILOVERS: failovers, GOLD_NODES_DAILY: nodes_daily},
    {GOLD_RTO_DAILY: rto_daily, GOLD_SETS_DAILY: sets_daily},
    {GOLD_QUIET_DAILY: quiet_daily},
)
"""
Tables that need nothing of each other, behind those that they need: most are made from ``failovers``; ``quiet_daily``
counts the days that ``sets_daily`` leaves out.
"""
