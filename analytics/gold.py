"""
The daily gold tables: column expressions over silver.

Here: failovers with their judgement, and what they and the intervals add up to per day. Not here: what covers the whole
lake (``gold_totals``), which days are made anew (``layers``).

Rule 1: figures are defined in ``gold_tables``. Durations of intervals are cut at midnight UTC, so that days add up.
Rule 2: an interval counts up to its end, else to the last event of its fleet; one that ends before it begins counts 0.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from analytics.gold_tables import (
    FLAP_WINDOW_MS,
    GOLD_DOMINANCE_DAILY,
    GOLD_ELECTIONS_DAILY,
    GOLD_FAILOVERS,
    GOLD_FAILOVERS_DAILY,
    GOLD_NODES_DAILY,
    GOLD_RTO_DAILY,
    GOLD_SETS_DAILY,
    LEADER_SHADOW_MS,
    ROUTE_LATE_MS,
    SLA_PPM,
)
from analytics.intervals import served_at
from analytics.silver import SPANS, span_column
from analytics.tables import Table
from controller.contract.commands import SilenceCause
from controller.contract.verdicts import Grade

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

MS_PER_DAY = 86_400_000
US_PER_MS = 1_000
PPM = 1_000_000

_SET = ("fleet", "cluster", "broker_set")


@dataclass(slots=True, kw_only=True)
class Days:
    """Silver by name, later ``failovers`` too, and the first day that is wanted."""

    tables: dict[str, DataFrame]
    since: dt.date | None

    def only_since(self, rows: DataFrame) -> DataFrame:
        """Rows of the days that are wanted."""
        from pyspark.sql import functions as f

        return rows if self.since is None else rows.where(f.col("day") >= f.lit(self.since))

    def horizons(self) -> DataFrame:
        """Columns ``fleet`` and ``horizon_ms``, small."""
        from pyspark.sql import functions as f

        ends = horizon_of_fleets(self.tables["horizons"]).withColumnRenamed("at_ms", "horizon_ms")
        return ends.select(*(f.col(name) for name in ("fleet", "horizon_ms"))).hint("broadcast")


def horizon_of_fleets(horizons: DataFrame) -> DataFrame:
    """Columns ``fleet`` and ``at_ms``: the stamp of each fleet's last event."""
    from pyspark.sql import functions as f

    return horizons.groupBy("fleet").agg(f.max("last_at_ms").alias("at_ms"))


# --- failovers -------------------------------------------------------------------------------------------------------


def failovers(days: Days) -> DataFrame:
    """``gold.failovers``."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    of_set = Window.partitionBy(*_SET).orderBy("master_epoch")
    earlier = of_set.rowsBetween(Window.unboundedPreceding, -1)
    elected = f.col("elected_at_ms")
    reigns = days.tables["reigns"].withColumns(
        {
            "next_elected_at_ms": f.lead("elected_at_ms").over(of_set),
            "served_at_ms": served_at(),
            "previous_at_ms": f.last(f.when(f.col("is_failover"), elected), ignorenulls=True).over(earlier),
        }
    )
    wanted = days.only_since(reigns.where("is_failover"))
    joined = (
        wanted.join(_triggers(days), ["fleet", "triggered_seq"], "left")
        .join(_terms(days), ["fleet", "found_term"], "left")
        .join(days.horizons(), "fleet", "left")
    )
    is_its = f.col("silent_id") == f.col("from_master")
    fault_at = elected - f.floor(f.col("fault_age_us") / US_PER_MS)
    found_at = f.when(is_its, f.col("found_at_ms"))
    lost_at = f.coalesce(fault_at, found_at, elected)
    end = f.coalesce("served_at_ms", "next_elected_at_ms", "horizon_ms")
    is_false = f.coalesce(is_its & f.col("is_same_incarnation"), f.lit(False))
    shadow = found_at - f.col("taken_at_ms")
    since_previous = elected - f.col("previous_at_ms")
    route_late = f.floor((f.col("route_converged_us") - f.col("total_us")) / US_PER_MS)
    columns = {
        "lost_at_ms": lost_at,
        "outage_ms": f.greatest(f.lit(0).cast("bigint"), end - lost_at),
        "is_open": f.col("served_at_ms").isNull() & f.col("next_elected_at_ms").isNull(),
        "heard_again_after_ms": f.when(is_false, f.col("returned_at_ms") - found_at),
        "is_false_positive": is_false,
        "leader_change_age_ms": shadow,
        "is_controller_caused": f.coalesce(is_false & shadow.between(0, LEADER_SHADOW_MS - 1), f.lit(False)),
        "since_previous_ms": since_previous,
        "is_flap": f.coalesce(since_previous < FLAP_WINDOW_MS, f.lit(False)),
        "route_late_ms": route_late,
        "is_route_late": f.coalesce(route_late > ROUTE_LATE_MS, f.lit(False)),
    }
    return joined.select(*(columns.get(name, f.col(name)).alias(name) for name in GOLD_FAILOVERS.column_names))


def _triggers(days: Days) -> DataFrame:
    """Silences, by the name that an election calls them."""
    from pyspark.sql import functions as f

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
    from pyspark.sql import functions as f

    changes = days.tables["leaderships"].where(~f.col("is_founding"))
    terms = changes.groupBy("fleet", "term").agg(f.min("taken_at_ms").alias("taken_at_ms"))
    return terms.withColumnRenamed("term", "found_term")


def failovers_daily(days: Days) -> DataFrame:
    """``gold.failovers_daily``."""
    from pyspark.sql import functions as f

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
    """``gold.rto_daily``."""
    from pyspark.sql import functions as f

    durations = {phase.value: f.col(span_column(phase)) for phase in SPANS} | {
        "total": f.col("total_us"),
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
    """``gold.dominance_daily``."""
    from pyspark.sql import functions as f

    longest = f.greatest(*(f.col(span_column(phase)) for phase in SPANS))
    return (
        days.only_since(days.tables["failovers"])
        .where("dominating_phase is not null")
        .groupBy("cluster", "day", "kind", "cause", f.col("dominating_phase").alias("phase"))
        .agg(f.count("*").alias("failovers"), f.sum(longest).alias("duration_us"))
        .select(*GOLD_DOMINANCE_DAILY.column_names)
    )


def elections_daily(days: Days) -> DataFrame:
    """``gold.elections_daily``."""
    from pyspark.sql import functions as f

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


# --- intervals -------------------------------------------------------------------------------------------------------


def _by_day(spans: DataFrame, days: Days) -> DataFrame:
    """Cut ``from_ms`` to ``to_ms`` at midnight: a row per day, with ``day`` and ``lasted_ms``; empty ones go."""
    from pyspark.sql import functions as f

    begin: Column = f.col("from_ms")
    if days.since is not None:
        begin = f.greatest(begin, f.lit(_ms_of(days.since)))
    first, last = f.floor(begin / MS_PER_DAY), f.floor((f.col("to_ms") - 1) / MS_PER_DAY)
    rows = spans.where(f.col("to_ms") > begin).withColumn("number", f.explode(f.sequence(first, last)))
    midnight = f.col("number") * MS_PER_DAY
    lasted = f.least(f.col("to_ms"), midnight + MS_PER_DAY) - f.greatest(f.col("from_ms"), midnight)
    return rows.withColumns({"day": f.date_from_unix_date(f.col("number").cast("int")), "lasted_ms": lasted}).drop(
        "number", "from_ms", "to_ms"
    )


def _ms_of(day: dt.date) -> int:
    return (day - dt.date(1970, 1, 1)).days * MS_PER_DAY


def sets_daily(days: Days) -> DataFrame:
    """``gold.sets_daily``."""
    from pyspark.sql import functions as f

    spans = reduce(lambda one, other: one.unionByName(other), (_observed(days), _available(days), *_exposed(days)))
    times = ("observed", "available", "exposed", "memberless")
    lasted = _by_day(spans, days).select(
        *_SET,
        "day",
        *(f.when(f.col("what") == name, f.col("lasted_ms")).otherwise(0).alias(f"{name}_ms") for name in times),
        *(f.lit(0).alias(name) for name in _COUNTED),
    )
    counted = days.only_since(days.tables["failovers"]).select(
        *_SET,
        "day",
        *(f.lit(0).cast("bigint").alias(f"{name}_ms") for name in times),
        f.lit(1).alias("failovers"),
        *(f.col(flag).cast("int").alias(name) for name, flag in _COUNTED.items() if flag),
    )
    sums = [*(f"{name}_ms" for name in times), *_COUNTED]
    totals = lasted.unionByName(counted).groupBy(*_SET, "day").agg(*(f.sum(name).alias(name) for name in sums))
    # Skewed stamps can make tenures overlap; no set is more available than it was observed.
    available = f.least("available_ms", "observed_ms")
    is_below = f.col("available_ms") * PPM < f.col("observed_ms") * SLA_PPM
    return (
        totals.withColumn("available_ms", available)
        .withColumns({"outage_ms": f.col("observed_ms") - f.col("available_ms"), "below_sla": is_below.cast("bigint")})
        .select(*GOLD_SETS_DAILY.column_names)
    )


_COUNTED = {
    "failovers": "",
    "false_positives": "is_false_positive",
    "controller_caused": "is_controller_caused",
    "flaps": "is_flap",
}
"""Column of ``sets_daily`` -> the flag of a failover that it counts."""


def _observed(days: Days) -> DataFrame:
    """From each set's first serving master to the end of its fleet's events."""
    from pyspark.sql import functions as f

    first = days.tables["tenures"].groupBy(*_SET).agg(f.min("served_at_ms").alias("from_ms"))
    return first.join(days.horizons(), "fleet").select(
        *_SET, f.lit("observed").alias("what"), "from_ms", f.col("horizon_ms").alias("to_ms")
    )


def _available(days: Days) -> DataFrame:
    """From serving to loss, per tenure."""
    from pyspark.sql import functions as f

    triggers = days.tables["silences"].select(
        "fleet", f.col("seq").alias("end_triggered_seq"), f.col("found_at_ms").alias("end_found_at_ms")
    )
    tenures = days.tables["tenures"].where("served_at_ms is not null")
    ended = tenures.where("ended_at_ms is not null").join(triggers, ["fleet", "end_triggered_seq"], "left")
    until_next = ended.select(
        *_SET,
        f.col("served_at_ms").alias("from_ms"),
        f.least("ended_at_ms", f.coalesce("lost_at_ms", "end_found_at_ms", "ended_at_ms")).alias("to_ms"),
    )
    # The master of an open tenure may be gone, with nobody to follow it.
    lost = (
        days.tables["silences"]
        .where(~f.coalesce(f.col("is_same_incarnation"), f.lit(False)))
        .select(
            *_SET,
            "broker_id",
            "seq",
            (f.col("found_at_ms") - f.coalesce(f.floor(f.col("fault_age_us") / US_PER_MS), f.lit(0))).alias("gone_ms"),
        )
    )
    reigning = tenures.where("ended_at_ms is null")
    gone = (
        reigning.join(lost, [*_SET, "broker_id"])
        .where(f.col("seq") > f.col("elected_seq"))
        .groupBy(*_SET)
        .agg(f.min("gone_ms").alias("gone_ms"))
    )
    open_ones = (
        reigning.join(gone, list(_SET), "left")
        .join(days.horizons(), "fleet")
        .select(*_SET, f.col("served_at_ms").alias("from_ms"), f.least("gone_ms", "horizon_ms").alias("to_ms"))
    )
    return until_next.unionByName(open_ones).withColumn("what", f.lit("available"))


def _exposed(days: Days) -> list[DataFrame]:
    from pyspark.sql import functions as f

    sets = days.tables["sync_state_sets"].join(days.horizons(), "fleet")
    to_ms = f.coalesce("ended_at_ms", "horizon_ms").alias("to_ms")
    return [
        sets.where(f.col("set_size") == size).select(
            *_SET, f.lit(name).alias("what"), f.col("began_at_ms").alias("from_ms"), to_ms
        )
        for size, name in ((1, "exposed"), (0, "memberless"))
    ]


def nodes_daily(days: Days) -> DataFrame:
    """``gold.nodes_daily``."""
    from pyspark.sql import functions as f

    node = (*_SET, "broker_id")
    silences = days.tables["silences"]
    goodbye = f.col("cause") == SilenceCause.GOODBYE.value
    flags = {
        "faults": ~goodbye,
        "goodbyes": goodbye,
        "timeouts": f.col("cause") == SilenceCause.TIMEOUT.value,
        "false_alarms": ~goodbye & f.coalesce(f.col("is_same_incarnation"), f.lit(False)),
    }
    zero = f.lit(0).cast("bigint")
    found = days.only_since(silences).select(
        *node,
        "day",
        *(f.coalesce(flag.cast("bigint"), zero).alias(name) for name, flag in flags.items()),
        zero.alias("masters_lost"),
        zero.alias("gone_ms"),
    )
    deposed = (
        days.only_since(days.tables["failovers"])
        .where("from_master is not null")
        .select(
            *_SET,
            f.col("from_master").alias("broker_id"),
            "day",
            *(zero.alias(name) for name in flags),
            f.lit(1).cast("bigint").alias("masters_lost"),
            zero.alias("gone_ms"),
        )
    )
    spans = silences.join(days.horizons(), "fleet").select(
        *node, f.col("found_at_ms").alias("from_ms"), f.coalesce("returned_at_ms", "horizon_ms").alias("to_ms")
    )
    gone = _by_day(spans, days).select(
        *node, "day", *(zero.alias(name) for name in (*flags, "masters_lost")), f.col("lasted_ms").alias("gone_ms")
    )
    sums = [f.sum(name).alias(name) for name in (*flags, "masters_lost", "gone_ms")]
    return (
        found.unionByName(deposed)
        .unionByName(gone)
        .groupBy(*node, "day")
        .agg(*sums)
        .select(*GOLD_NODES_DAILY.column_names)
    )


DAILY: tuple[tuple[Table, Callable[[Days], DataFrame]], ...] = (
    (GOLD_FAILOVERS, failovers),
    (GOLD_FAILOVERS_DAILY, failovers_daily),
    (GOLD_RTO_DAILY, rto_daily),
    (GOLD_DOMINANCE_DAILY, dominance_daily),
    (GOLD_ELECTIONS_DAILY, elections_daily),
    (GOLD_SETS_DAILY, sets_daily),
    (GOLD_NODES_DAILY, nodes_daily),
)
"""In this order: the first is what the others are made from."""
