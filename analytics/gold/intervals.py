"""
The daily gold tables of intervals: availability, stops of writes and exposure of sets, absence of replicas.

Here: column expressions over silver's intervals. Not here: failovers (``daily``).

Rule 1: durations are cut at midnight UTC, so that days add up.
Rule 2: an interval counts up to its end, else to the last event of its fleet; one that ends before it begins counts 0.
Rule 3: no row per set and day is made: an interval is two edges, and the running sum of a set's edges is the time that
covers the days between. A set of three years with two failovers is some ten rows, not 1,100.
"""

from __future__ import annotations

import datetime as dt
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from rollcall_ha.analytics.gold.days import MS_PER_DAY, SET, US_PER_MS, Days, last_day
from rollcall_ha.analytics.gold.tables import GOLD_NODES_DAILY, GOLD_QUIET_DAILY, GOLD_SETS_DAILY, SLA_PPM
from rollcall_ha.analytics.silver.intervals import BY_SET, numbered
from rollcall_ha.controller.contract.values import SilenceCause

PPM = 1_000_000


def _by_day(spans: DataFrame, days: Days) -> DataFrame:
    """Cut ``from_ms`` to ``to_ms`` at midnight: a row per day, with ``day`` and ``lasted_ms``; empty ones go."""
    begin, first, last = _wanted_days(days)
    rows = spans.where(f.col("to_ms") > begin).withColumn("number", f.explode(f.sequence(first, last)))
    midnight = f.col("number") * MS_PER_DAY
    lasted = f.least(f.col("to_ms"), midnight + MS_PER_DAY) - f.greatest(f.col("from_ms"), midnight)
    return rows.withColumns({"day": f.date_from_unix_date(f.col("number").cast("int")), "lasted_ms": lasted}).drop(
        "number", "from_ms", "to_ms"
    )


def _wanted_days(days: Days) -> tuple[Column, Column, Column]:
    """Where the wanted part of ``from_ms`` to ``to_ms`` begins, and the numbers of its first and its last day."""
    begin: Column = f.col("from_ms")
    if days.since is not None:
        begin = f.greatest(begin, f.lit((days.since - dt.date(1970, 1, 1)).days * MS_PER_DAY))
    return begin, f.floor(begin / MS_PER_DAY), f.floor((f.col("to_ms") - 1) / MS_PER_DAY)


def sets_daily(days: Days) -> DataFrame:
    """``gold.sets_daily``. Days between two rows that are not quiet, in a long outage, have rows of their own."""
    counted = ("begun", "ended", *_COUNTED)
    sums = [*(f"{name}_ms" for name in _TIMES), *(f"{name}_daily_ms" for name in _TIMES), *counted]
    edges = numbered(_edges(days).unionByName(_counted(days))).repartition(*BY_SET)
    known = edges.groupBy(*BY_SET, *SET, "day_number").agg(*(f.sum(name).alias(name) for name in sums))
    of_set = Window.partitionBy(*BY_SET).orderBy("day_number")
    # Time that covers each whole day after this row, up to the next row.
    since = {f"{name}_daily_ms": f.sum(f"{name}_daily_ms").over(of_set) for name in _TIMES}
    running = known.withColumns(since | {"next_number": f.lead("day_number").over(of_set)})
    day, own = f.col("day_number"), f.col("number") == f.col("day_number")
    days_after = f.when(_is_told("daily_ms"), f.col("next_number") - 1)
    rows = running.withColumn("number", f.explode(f.sequence(day, f.coalesce(days_after, day))))
    lasted = {
        f"{name}_ms": f.when(own, f.col(f"{name}_ms")).otherwise(0) + f.col(f"{name}_daily_ms") for name in _TIMES
    }
    counts = {name: f.when(own, f.col(name)).otherwise(0) for name in counted}
    is_counted = f.col("begun") + f.col("ended") + f.col("failovers") > 0
    told = rows.withColumns(lasted | counts).where(is_counted | _is_told("ms"))
    # Skewed stamps can make two tenures overlap by 2 s; no set is more available than it was observed.
    available = f.greatest(f.lit(0).cast("bigint"), f.least("available_ms", "observed_ms") - f.col("stopped_ms"))
    is_below = f.col("available_ms") * PPM < f.col("observed_ms") * SLA_PPM
    return (
        told.withColumns({"available_ms": available, "day": f.date_from_unix_date(f.col("number").cast("int"))})
        .withColumns({"outage_ms": f.col("observed_ms") - f.col("available_ms"), "below_sla": is_below.cast("bigint")})
        .select(*GOLD_SETS_DAILY.column_names)
    )


_TIMES = ("observed", "available", "stopped", "exposed", "memberless")


def _is_told(suffix: str) -> Column:
    """Whether a day with these times is one to tell of: observed, but not all of it or not available, or exposed."""
    observed, available, stopped, exposed, memberless = (f.col(f"{name}_{suffix}") for name in _TIMES)
    is_whole = (observed == MS_PER_DAY) & (available >= MS_PER_DAY)
    return (stopped > 0) | (exposed > 0) | (memberless > 0) | ((observed > 0) & ~is_whole)


def _edges(days: Days) -> DataFrame:
    """
    The first and the last day of every interval, with its time in them.

    An interval that goes on after its first day gives ``daily_ms`` to each day from then on, and takes it back on its
    last one: the running sum of a set is the time that covers whole days.
    """
    available = _available(days)
    times = (_observed(days), available.select(*_SPAN), _stopped(days, available), *_exposed(days))
    spans = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), times)
    begin, first, last = _wanted_days(days)

    def edge(day: Column, lasted: Column, daily: int) -> Column:
        # The running sum counts on the row's own day too: an interval from 18:00 gives 6 h - 24 h there, and 24 h from
        # the sum.
        own = (lasted - f.lit(daily) if daily > 0 else lasted).cast("bigint")
        return f.struct(
            day.alias("day_number"),
            own.alias("ms"),
            f.lit(daily).cast("bigint").alias("daily_ms"),
            (f.col("is_begin") & (day == f.floor(f.col("from_ms") / MS_PER_DAY))).alias("is_begin"),
            (f.col("is_end") & (day == last)).alias("is_end"),
        )

    ends = f.when(first == last, f.array(edge(first, f.col("to_ms") - begin, 0))).otherwise(
        f.array(
            edge(first, (first + 1) * MS_PER_DAY - begin, MS_PER_DAY),
            edge(last, f.col("to_ms") - last * MS_PER_DAY, -MS_PER_DAY),
        )
    )
    edges = spans.where(f.col("to_ms") > begin).select(*SET, "what", f.explode(ends).alias("edge"))
    zero = f.lit(0).cast("bigint")
    return edges.select(
        *SET,
        "edge.day_number",
        *(f.when(f.col("what") == name, f.col("edge.ms")).otherwise(zero).alias(f"{name}_ms") for name in _TIMES),
        *(
            f.when(f.col("what") == name, f.col("edge.daily_ms")).otherwise(zero).alias(f"{name}_daily_ms")
            for name in _TIMES
        ),
        f.when(f.col("edge.is_begin"), 1).otherwise(0).alias("begun"),
        f.when(f.col("edge.is_end"), 1).otherwise(0).alias("ended"),
        *(f.lit(0).alias(name) for name in _COUNTED),
    )


def _counted(days: Days) -> DataFrame:
    """Failovers on their days, in the columns of ``_edges``."""
    zero = f.lit(0).cast("bigint")
    return days.only_since(days.tables["failovers"]).select(
        *SET,
        f.unix_date("day").cast("bigint").alias("day_number"),
        *(zero.alias(f"{name}_ms") for name in _TIMES),
        *(zero.alias(f"{name}_daily_ms") for name in _TIMES),
        f.lit(0).alias("begun"),
        f.lit(0).alias("ended"),
        f.lit(1).alias("failovers"),
        *(f.col(flag).cast("int").alias(name) for name, flag in _COUNTED.items() if flag),
    )


_COUNTED = {
    "failovers": "",
    "false_positives": "is_false_positive",
    "controller_caused": "is_controller_caused",
    "flaps": "is_flap",
}
"""Column of ``sets_daily`` -> the flag of a failover that it counts."""


_SPAN = (*SET, "what", "from_ms", "to_ms")


def _cleaned(days: Days) -> DataFrame:
    """Per set that was ever taken away: ``cleanings``, its (seq, at_ms) in order. Few sets are: it is broadcast."""
    one = f.struct("seq", f.col("cleaned_at_ms").alias("at_ms"))
    found = days.tables["cleanings"].groupBy(*SET).agg(f.array_sort(f.collect_list(one)).alias("cleanings"))
    return found.hint("broadcast")


def with_cleanings(days: Days, rows: DataFrame) -> DataFrame:
    """
    ``rows`` with ``elected_seq``: how often the set had been ``cleaned`` before, and where in the log (``cleaned_seq``)
    and when (``cleaned_at_ms``) it was after it.
    """
    joined = rows.join(_cleaned(days), [*SET], "left")
    later = f.filter("cleanings", lambda one: one["seq"] > f.col("elected_seq"))
    before = f.coalesce(f.size("cleanings") - f.size(later), f.lit(0))
    after = {f"cleaned_{name}": f.get(later, f.lit(0))[name] for name in ("seq", "at_ms")}
    return joined.withColumns({"cleaned": before} | after).drop("cleanings")


def _observed(days: Days) -> DataFrame:
    """
    From each set's first serving master to its cleaning, else to the end of its fleet's events.

    A set that was cleaned and comes back is observed anew. On the same day it has neither ended nor begun: else the day
    would be counted twice.
    """
    stays = with_cleanings(days, days.tables["tenures"]).where("served_at_ms is not null")
    of_set = Window.partitionBy(*SET).orderBy("cleaned")
    number = {name: f.floor(f.col(name) / MS_PER_DAY) for name in ("from_ms", "to_ms")}
    return (
        stays.groupBy(*SET, "cleaned")
        .agg(f.min("served_at_ms").alias("from_ms"), f.max("cleaned_at_ms").alias("cleaned_at_ms"))
        .join(days.horizons(), "fleet")
        .withColumn("to_ms", f.coalesce("cleaned_at_ms", "horizon_ms"))
        .withColumns(
            {
                "what": f.lit("observed"),
                "is_begin": ~f.coalesce(f.lag(number["to_ms"]).over(of_set) == number["from_ms"], f.lit(False)),
                "is_end": f.col("cleaned_at_ms").isNotNull()
                & ~f.coalesce(f.lead(number["from_ms"]).over(of_set) == number["to_ms"], f.lit(False)),
            }
        )
        .select(*_SPAN, "is_begin", "is_end")
    )


def quiet_daily(days: Days) -> DataFrame:
    """``gold.quiet_daily``: sets that have begun, less those with a row."""
    of_fleet = ("cluster", "fleet")
    told = (
        days.tables["sets_daily"]
        .groupBy(*of_fleet, "day")
        .agg(
            f.sum("begun").alias("begun"),
            f.sum("ended").alias("ended"),
            f.count_if(f.col("observed_ms") > 0).alias("told"),
        )
    )
    in_order = Window.partitionBy(*of_fleet).orderBy("day")
    living = told.join(days.horizons(), "fleet").withColumns(
        {
            "living": f.sum(f.col("begun") - f.col("ended")).over(in_order),
            "until": f.coalesce(f.date_sub(f.lead("day").over(in_order), 1), last_day(f.col("horizon_ms"))),
        }
    )
    each = f.explode(f.sequence("day", f.greatest("day", "until")))
    rows = living.select(*of_fleet, each.alias("on"), "day", "living", "ended", "told")
    # A set that ends on the day of its row has that row, and lives no more on the days behind it.
    of_row = f.when(f.col("on") == f.col("day"), f.col("told") - f.col("ended"))
    sets = f.col("living") - f.coalesce(of_row, f.lit(0))
    return rows.withColumns({"sets": sets, "day": f.col("on")}).where("sets > 0").select(*GOLD_QUIET_DAILY.column_names)


def _available(days: Days) -> DataFrame:
    """From serving to loss, per tenure."""
    found = days.tables["silences"].select(
        "fleet",
        f.col("seq").alias("end_triggered_seq"),
        f.col("broker_id").alias("silent_id"),
        f.col("found_at_ms").alias("silent_at_ms"),
    )
    tenures = with_cleanings(days, days.tables["tenures"]).where("served_at_ms is not null")
    # A set that was cleaned and made again: no election ended that tenure. By the first one of the new set, a master
    # that had said goodbye hours before the cleaning would have served up to it.
    is_cleaned = f.coalesce(f.col("cleaned_seq") < f.col("ended_seq"), f.lit(False))
    is_ended = f.col("ended_at_ms").isNotNull() & ~is_cleaned
    ended = tenures.where(is_ended)
    # The silence itself is looked up only where no detection was stamped: few rows take part in the join.
    unstamped = ended.where("lost_at_ms is null").join(
        found.hint("shuffle_hash"), ["fleet", "end_triggered_seq"], "left"
    )
    nothing = {"silent_id": f.lit(None).cast("int"), "silent_at_ms": f.lit(None).cast("bigint")}
    stamped = ended.where("lost_at_ms is not null").withColumns(nothing)
    # The trigger may be another replica's silence: this master served on, up to the election.
    found_at = f.when(f.col("silent_id") == f.col("broker_id"), f.col("silent_at_ms"))
    until_next = stamped.unionByName(unstamped).select(
        *SET,
        "master_epoch",
        f.col("served_at_ms").alias("from_ms"),
        # A set that was cleaned is not observed until its next master serves: nobody was there to take writes, either.
        f.least("ended_at_ms", f.coalesce("lost_at_ms", found_at, "ended_at_ms"), "cleaned_at_ms").alias("to_ms"),
    )
    # The master of an open tenure may be gone without a successor: counted to the horizon, the set would look available
    # for as long as nobody could be elected.
    lost = (
        days.tables["silences"]
        # One that came back as it was still is the master, and lost no time of its tenure here.
        .where(~f.coalesce(f.col("is_same_incarnation"), f.lit(False)))
        .select(
            *SET,
            "broker_id",
            "seq",
            (f.col("found_at_ms") - f.coalesce(f.floor(f.col("fault_age_us") / US_PER_MS), f.lit(0))).alias("gone_ms"),
        )
    )
    reigning = tenures.where(~is_ended).select(
        *SET, "master_epoch", "broker_id", "elected_seq", "served_at_ms", "cleaned_seq", "cleaned_at_ms"
    )
    # A silence before this election was of an earlier tenure, one behind the cleaning is of another set's.
    is_its = (f.col("seq") > f.col("elected_seq")) & f.coalesce(f.col("seq") < f.col("cleaned_seq"), f.lit(True))
    gone_ms = f.when(is_its, f.col("gone_ms"))
    open_ones = (
        reigning.hint("shuffle_hash")
        .join(lost, [*SET, "broker_id"], "left")
        .groupBy(*SET, "master_epoch", "served_at_ms", "cleaned_at_ms")
        .agg(f.min(gone_ms).alias("gone_ms"))
        .join(days.horizons(), "fleet")
        .select(
            *SET,
            "master_epoch",
            f.col("served_at_ms").alias("from_ms"),
            f.least("gone_ms", "horizon_ms", "cleaned_at_ms").alias("to_ms"),
        )
    )
    return until_next.unionByName(open_ones).withColumn("what", f.lit("available"))


def _stopped(days: Days, available: DataFrame) -> DataFrame:
    """
    Stops of writes within a tenure's available time.

    A stop that an election ended is in the outage of that election, which begins with it: cut off at the loss, nothing
    of it is left here.
    """
    stops = days.tables["stops"].join(days.horizons(), "fleet")
    tenures = available.select(
        *SET, "master_epoch", f.col("from_ms").alias("served_ms"), f.col("to_ms").alias("lost_ms")
    )
    return stops.join(tenures, [*SET, "master_epoch"]).select(
        *SET,
        f.lit("stopped").alias("what"),
        f.greatest("began_at_ms", "served_ms").alias("from_ms"),
        f.least(f.coalesce("ended_at_ms", "horizon_ms"), "lost_ms").alias("to_ms"),
    )


def _exposed(days: Days) -> list[DataFrame]:
    # A cleaned set has no members, and needs none.
    cleaned = days.tables["cleanings"].select("fleet", "seq").hint("broadcast")
    sets = days.tables["sync_state_sets"].join(cleaned, ["fleet", "seq"], "left_anti").join(days.horizons(), "fleet")
    to_ms = f.coalesce("ended_at_ms", "horizon_ms").alias("to_ms")
    return [
        sets.where(f.col("set_size") == size).select(
            *SET, f.lit(name).alias("what"), f.col("began_at_ms").alias("from_ms"), to_ms
        )
        for size, name in ((1, "exposed"), (0, "memberless"))
    ]


def nodes_daily(days: Days) -> DataFrame:
    node = (*SET, "broker_id")
    # An end that only the next registration tells was found by nobody, and is known of masters alone.
    silences = days.tables["silences"].where(~f.col("seq").eqNullSafe(f.col("returned_seq")))
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
            *SET,
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
