"""
The daily gold tables of failovers and elections: column expressions over silver.

Here: failovers with their judgement, their sums per day, and the order of all daily tables. Not here: intervals
(``intervals``), totals of the whole lake (``totals``), the choice of days (``jobs.layers``).
Rule 1: figures are defined in ``tables``.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from rollcall_ha.analytics.gold.days import US_PER_MS, Days
from rollcall_ha.analytics.gold.intervals import nodes_daily, quiet_daily, sets_daily
from rollcall_ha.analytics.gold.tables import (
    FLAP_WINDOW_MS,
    GOLD_DOMINANCE_DAILY,
    GOLD_ELECTIONS_DAILY,
    GOLD_FAILOVERS,
    GOLD_FAILOVERS_DAILY,
    GOLD_NODES_DAILY,
    GOLD_QUIET_DAILY,
    GOLD_RTO_DAILY,
    GOLD_SETS_DAILY,
    LEADER_SHADOW_MS,
    ROUTE_LATE_MS,
)
from rollcall_ha.analytics.lake.tables import LakeTable
from rollcall_ha.analytics.silver.facts import OF_OUTAGE, span_column
from rollcall_ha.analytics.silver.intervals import BY_SET, numbered, served_at
from rollcall_ha.controller.contract.verdicts import Grade


def failovers(days: Days) -> DataFrame:
    of_set = Window.partitionBy(*BY_SET).orderBy("master_epoch")
    earlier = of_set.rowsBetween(Window.unboundedPreceding, -1)
    elected = f.col("elected_at_ms")
    reigns = numbered(days.tables["reigns"]).withColumns(
        {
            "next_elected_at_ms": f.lead("elected_at_ms").over(of_set),
            "served_at_ms": served_at(),
            "previous_at_ms": f.last(f.when(f.col("is_failover"), elected), ignorenulls=True).over(earlier),
        }
    )
    wanted = days.only_since(reigns.where("is_failover"))
    joined = (
        wanted.join(_triggers(days).hint("shuffle_hash"), ["fleet", "triggered_seq"], "left")
        .join(_terms(days), ["fleet", "found_term"], "left")
        .join(days.horizons(), "fleet", "left")
    )
    # The trigger may be another replica's silence: then its time is not that of the master's loss.
    is_its = f.col("silent_id") == f.col("from_master")
    fault_at = elected - f.floor(f.col("fault_age_us") / US_PER_MS)
    found_at = f.when(is_its, f.col("found_at_ms"))
    lost_at = f.coalesce(fault_at, found_at, elected)
    end = f.coalesce("served_at_ms", "next_elected_at_ms", "horizon_ms")
    is_false = f.coalesce(is_its & f.col("is_same_incarnation"), f.lit(False))
    since_change = found_at - f.col("taken_at_ms")
    # A change of leader after the finding cannot have caused it. Counted, the figure would also depend on whether the
    # day of that change has been ingested yet.
    shadow = f.when(since_change >= 0, since_change)
    since_previous = elected - f.col("previous_at_ms")
    route_late = f.floor((f.col("route_converged_us") - f.col("total_us")) / US_PER_MS)
    columns = {
        "lost_at_ms": lost_at,
        "outage_ms": f.greatest(f.lit(0).cast("bigint"), end - lost_at),
        "is_open": f.col("served_at_ms").isNull() & f.col("next_elected_at_ms").isNull(),
        "heard_again_after_ms": f.when(is_false, f.col("returned_at_ms") - found_at),
        "is_false_positive": is_false,
        "leader_change_age_ms": shadow,
        "is_controller_caused": f.coalesce(is_false & (shadow < LEADER_SHADOW_MS), f.lit(False)),
        "since_previous_ms": since_previous,
        "is_flap": f.coalesce(since_previous < FLAP_WINDOW_MS, f.lit(False)),
        "route_late_ms": route_late,
        "is_route_late": f.coalesce(route_late > ROUTE_LATE_MS, f.lit(False)),
    }
    return joined.select(*(columns.get(name, f.col(name)).alias(name) for name in GOLD_FAILOVERS.column_names))


def _triggers(days: Days) -> DataFrame:
    """Silences, by the name that an election calls them."""
    return days.tables["silences"].select(
        "fleet",
        f.col("seq").alias("triggered_seq"),
        f.col("broker_id").alias("silent_id"),
        f.col("term").alias("found_term"),
        "found_at_ms",
        "returned_at_ms",
        "is_same_incarnation",
    )


def _terms(days: Days) -> DataFrame:
    """When the leader of each term took the lead from another one; few rows."""
    changes = days.tables["leaderships"].where(~f.col("is_founding"))
    terms = changes.groupBy("fleet", "term").agg(f.min("taken_at_ms").alias("taken_at_ms"))
    return terms.withColumnRenamed("term", "found_term")


def failovers_daily(days: Days) -> DataFrame:
    grade = f.col("grade")
    zero = f.lit(0).cast("bigint")
    counts = {
        "failovers": f.count("*"),
        "open": f.count_if("is_open"),
        "timed": f.count("total_us"),
        "incomplete": f.count_if(f.col("missing_phases") > 0),
        "backward_stamps": f.sum("backward_stamps"),
        "false_positives": f.count_if("is_false_positive"),
        "controller_caused": f.count_if("is_controller_caused"),
        "flaps": f.count_if("is_flap"),
        **{one.value: f.count_if(grade == one.value) for one in Grade},
        "ungraded": f.count_if(grade.isNull()),
        "loss_bytes": f.coalesce(f.sum("loss_bytes"), zero),
        "cut_bytes": f.coalesce(f.sum("cut_bytes"), zero),
        "regretted": f.count_if(f.col("regret_bytes") > 0),
        "regret_bytes": f.coalesce(f.sum("regret_bytes"), zero),
        "outage_ms": f.sum("outage_ms"),
        "routed": f.count("route_late_ms"),
        "routes_late": f.count_if("is_route_late"),
    }
    grouped = days.only_since(days.tables["failovers"]).groupBy("cluster", "day", "kind", "cause")
    rows = grouped.agg(*(column.alias(name) for name, column in counts.items()))
    return rows.select(*GOLD_FAILOVERS_DAILY.column_names)


def rto_daily(days: Days) -> DataFrame:
    durations = {phase.value: f.col(span_column(phase)) for phase in OF_OUTAGE} | {
        "total": f.col("total_us"),
        "waited": f.col("waited_us"),
        "unattributed": f.col("unattributed_us"),
        "outage": f.col("outage_ms") * US_PER_MS,
    }
    stacked = f.explode(
        f.array(*(f.struct(f.lit(name).alias("phase"), us.alias("us")) for name, us in durations.items()))
    )
    rows = days.only_since(days.tables["failovers"]).select("cluster", "day", "kind", "cause", stacked.alias("one"))
    return (
        rows.where("one.us is not null")
        .withColumns({"phase": f.col("one.phase"), "duration_ms": f.floor(f.col("one.us") / US_PER_MS)})
        .groupBy("cluster", "day", "kind", "cause", "phase", "duration_ms")
        .agg(f.count("*").alias("failovers"))
        .select(*GOLD_RTO_DAILY.column_names)
    )


def dominance_daily(days: Days) -> DataFrame:
    longest = f.greatest(*(f.col(span_column(phase)) for phase in OF_OUTAGE))
    return (
        days.only_since(days.tables["failovers"])
        .where("dominating_phase is not null")
        .groupBy("cluster", "day", "kind", "cause", f.col("dominating_phase").alias("phase"))
        .agg(f.count("*").alias("failovers"), f.sum(longest).alias("duration_us"))
        .select(*GOLD_DOMINANCE_DAILY.column_names)
    )


def elections_daily(days: Days) -> DataFrame:
    kind = f.coalesce("kind", f.lit("none")).alias("kind")
    zero = f.lit(0).cast("bigint")
    return (
        days.only_since(days.tables["elections"])
        .groupBy("cluster", "day", "policy", kind)
        .agg(
            f.count("*").alias("elections"),
            f.count_if(f.col("regret_bytes") > 0).alias("regretted"),
            f.coalesce(f.sum("regret_bytes"), zero).alias("regret_bytes"),
            f.coalesce(f.sum("estimated_loss_bytes"), zero).alias("estimated_loss_bytes"),
        )
        .select(*GOLD_ELECTIONS_DAILY.column_names)
    )


DAILY: tuple[tuple[LakeTable, Callable[[Days], DataFrame]], ...] = (
    (GOLD_FAILOVERS, failovers),
    (GOLD_FAILOVERS_DAILY, failovers_daily),
    (GOLD_RTO_DAILY, rto_daily),
    (GOLD_DOMINANCE_DAILY, dominance_daily),
    (GOLD_ELECTIONS_DAILY, elections_daily),
    (GOLD_SETS_DAILY, sets_daily),
    (GOLD_QUIET_DAILY, quiet_daily),
    (GOLD_NODES_DAILY, nodes_daily),
)
"""In this order: most are made from ``failovers``; ``quiet_daily`` counts the days that ``sets_daily`` leaves out."""
