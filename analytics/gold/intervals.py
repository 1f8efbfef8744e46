"""
The daily gold tables of intervals: availability, stops of writes and exposure of sets, absence of replicas.

Here: column expressions over silver's intervals. Not here: failovers (``daily``).

Rule 1: durations are cut at midnight UTC, so that days add up.
Rule 2: an interval counts up to its end, else to the horizon of its fleet; one that ends before it begins counts 0.
Rule 3: no row per set and day is made: an interval is two edges, and the running sum of a set's edges is the time that
covers the days between. A set of three years with two failovers is some ten rows, not 1,100.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from rollcall_ha.analytics.gold.days import MS_PER_DAY, SET, US_PER_MS, Days
from rollcall_ha.analytics.gold.tables import GOLD_NODES_DAILY, GOLD_QUIET_DAILY, GOLD_SETS_DAILY, PPM, SLA_PPM
from rollcall_ha.analytics.lake.tables import set_id_of
from rollcall_ha.controller.contract.values import SilenceCause


def _by_day(spans: DataFrame) -> DataFrame:
    """Cut ``from_ms`` to ``to_ms`` at midnight: a row per day, with ``day`` and ``lasted_ms``; empty ones go."""
    rows = spans.where("to_ms > from_ms").withColumn("number", f.explode(f.sequence(*_days())))
    midnight = f.col("number") * MS_PER_DAY
    lasted = f.least(f.col("to_ms"), midnight + MS_PER_DAY) - f.greatest(f.col("from_ms"), midnight)
    return rows.withColumns({"day": f.date_from_unix_date(f.col("number").cast("int")), "lasted_ms": lasted}).drop(
        "number", "from_ms", "to_ms"
    )


def _days() -> tuple[Column, Column]:
    """The numbers of the first and the last day of ``from_ms`` to ``to_ms``."""
    return f.floor(f.col("from_ms") / MS_PER_DAY), f.floor((f.col("to_ms") - 1) / MS_PER_DAY)


def sets_daily(days: Days) -> DataFrame:
    """``gold.sets_daily``. Days between two rows that are not quiet, in a long outage, have rows of their own."""
    edges = _edges(days).unionByName(_counted(days), allowMissingColumns=True).repartition("set_id")

    def of(name: str, column: str) -> Column:
        return f.sum(f.when(f.col("what") == name, f.col(column)).otherwise(0))

    known = edges.groupBy("set_id", "day_number").agg(
        *(of(name, "ms").alias(f"{name}_ms") for name in _TIMES),
        *(of(name, "daily_ms").alias(f"{name}_daily_ms") for name in _TIMES),
        *(f.count_if(name).alias(name) for name in ("begun", "ended", *_COUNTED)),
    )
    of_set = Window.partitionBy("set_id").orderBy("day_number")
    # Time that covers each whole day after this row, up to the next row.
    since = {f"{name}_daily_ms": f.sum(f"{name}_daily_ms").over(of_set) for name in _TIMES}
    running = known.withColumns(since | {"next_number": f.lead("day_number").over(of_set)})
    day, own = f.col("day_number"), f.col("number") == f.col("day_number")
    days_after = f.when(_is_told("daily_ms"), f.col("next_number") - 1)
    rows = running.withColumn("number", f.explode(f.sequence(day, f.coalesce(days_after, day))))
    lasted = {
        f"{name}_ms": f.when(own, f.col(f"{name}_ms")).otherwise(0) + f.col(f"{name}_daily_ms") for name in _TIMES
    }
    counts = {name: f.when(own, f.col(name)).otherwise(0) for name in ("begun", "ended", *_COUNTED)}
    is_counted = f.col("begun") + f.col("ended") + f.col("failovers") > 0
    told = rows.withColumns(lasted | counts).where(is_counted | _is_told("ms"))
    # Skewed stamps can make two tenures overlap by 2 s; no set is more available than it was observed.
    available = f.greatest(f.lit(0).cast("bigint"), f.least("available_ms", "observed_ms") - f.col("stopped_ms"))
    is_below = f.col("available_ms") * PPM < f.col("observed_ms") * SLA_PPM
    return (
        told.withColumns({"available_ms": available, "day": f.date_from_unix_date(f.col("number").cast("int"))})
        .withColumns({"outage_ms": f.col("observed_ms") - f.col("available_ms"), "below_sla": is_below.cast("bigint")})
        .join(days.sets(), "set_id")
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
    spans = reduce(
        lambda one, other: one.unionByName(other, allowMissingColumns=True),
        (_observed(days), _served(days), _exposed(days)),
    )
    begin, (first, last) = f.col("from_ms"), _days()

    def edge(day: Column, lasted: Column, daily: int) -> Column:
        # The running sum counts on the row's own day too: an interval from 18:00 gives 6 h - 24 h there, and 24 h from
        # the sum.
        return f.struct(
            day.alias("day_number"),
            (lasted - f.lit(max(daily, 0))).cast("bigint").alias("ms"),
            f.lit(daily).cast("bigint").alias("daily_ms"),
            (f.col("is_begin") & (day == first)).alias("begun"),
            (f.col("is_end") & (day == last)).alias("ended"),
        )

    ends = f.when(first == last, f.array(edge(first, f.col("to_ms") - begin, 0))).otherwise(
        f.array(
            edge(first, (first + 1) * MS_PER_DAY - begin, MS_PER_DAY),
            edge(last, f.col("to_ms") - last * MS_PER_DAY, -MS_PER_DAY),
        )
    )
    edges = spans.where("to_ms > from_ms").select("set_id", "what", f.explode(ends).alias("edge"))
    return edges.select("set_id", "what", "edge.*")


def _counted(days: Days) -> DataFrame:
    """Failovers on their days."""
    return days.tables["failovers"].select(
        set_id_of(*map(f.col, SET)).alias("set_id"),
        f.unix_date("day").cast("bigint").alias("day_number"),
        *(f.col(flag).alias(name) if flag else f.lit(True).alias(name) for name, flag in _COUNTED.items()),
    )


_COUNTED = {
    "failovers": "",
    "false_positives": "is_false_positive",
    "controller_caused": "is_controller_caused",
    "flaps": "is_flap",
}
"""Column of ``sets_daily`` -> the flag of a failover that it counts."""


def _cleaned(days: Days) -> DataFrame:
    """Per set that was ever taken away: ``cleanings``, its (seq, at_ms) in order. Few sets are: it is broadcast."""
    one = f.struct("seq", f.col("cleaned_at_ms").alias("at_ms"))
    found = days.tables["cleanings"].groupBy("set_id").agg(f.array_sort(f.collect_list(one)).alias("cleanings"))
    return found.hint("broadcast")


def with_cleanings(days: Days, rows: DataFrame) -> DataFrame:
    """
    ``rows`` with ``elected_seq``: how often the set had been ``cleaned`` before, and where in the log (``cleaned_seq``)
    and when (``cleaned_at_ms``) it was after it.
    """
    joined = rows.join(_cleaned(days), "set_id", "left")
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
    served = days.tables["reigns"].where("served_at_ms is not null").select("set_id", "elected_seq", "served_at_ms")
    of_set = Window.partitionBy("set_id").orderBy("cleaned")
    number = {name: f.floor(f.col(name) / MS_PER_DAY) for name in ("from_ms", "to_ms")}
    return (
        with_cleanings(days, served)
        .groupBy("set_id", "cleaned")
        .agg(f.min("served_at_ms").alias("from_ms"), f.max("cleaned_at_ms").alias("cleaned_at_ms"))
        .join(days.sets(), "set_id")
        .withColumn("to_ms", f.coalesce("cleaned_at_ms", "horizon_ms"))
        .withColumns(
            {
                "what": f.lit("observed"),
                "is_begin": ~f.coalesce(f.lag(number["to_ms"]).over(of_set) == number["from_ms"], f.lit(False)),
                "is_end": f.col("cleaned_at_ms").isNotNull()
                & ~f.coalesce(f.lead(number["from_ms"]).over(of_set) == number["to_ms"], f.lit(False)),
            }
        )
        .select("set_id", "what", "from_ms", "to_ms", "is_begin", "is_end")
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
    last_day = f.date_from_unix_date(f.floor((days.horizon_ms() - 1) / MS_PER_DAY).cast("int"))
    living = told.withColumns(
        {
            "living": f.sum(f.col("begun") - f.col("ended")).over(in_order),
            "until": f.coalesce(f.date_sub(f.lead("day").over(in_order), 1), last_day),
        }
    )
    each = f.explode(f.sequence("day", f.greatest("day", "until")))
    rows = living.select(*of_fleet, each.alias("on"), "day", "living", "ended", "told")
    # A set that ends on the day of its row has that row, and lives no more on the days behind it.
    of_row = f.when(f.col("on") == f.col("day"), f.col("told") - f.col("ended"))
    sets = f.col("living") - f.coalesce(of_row, f.lit(0))
    return rows.withColumns({"sets": sets, "day": f.col("on")}).where("sets > 0").select(*GOLD_QUIET_DAILY.column_names)


def _tenures(days: Days) -> DataFrame:
    """
    Per tenure its milestones (``_OF_TENURE``), ``gone_ms`` when its master fell silent, and ``trigger_ms`` when the
    silence behind its end was found.

    Reigns and silences of a set are put in order once: a silence belongs to the tenure in which it was found.
    """
    reigns = days.tables["reigns"].where("served_at_ms is not null")
    gone_ms = f.col("found_at_ms") - f.coalesce(f.floor(f.col("fault_age_us") / US_PER_MS), f.lit(0))
    # One that came back as it was still is the master, and lost no time of its tenure here.
    is_lost = ~f.coalesce(f.col("is_same_incarnation"), f.lit(False))
    silences = days.tables["silences"].select(
        "set_id",
        "seq",
        f.struct("broker_id", "found_at_ms", f.when(is_lost, gone_ms).alias("gone_ms")).alias("silence"),
    )
    points = reigns.select(
        "set_id", f.col("elected_seq").alias("seq"), f.struct(*_OF_TENURE).alias("reign")
    ).unionByName(silences, allowMissingColumns=True)
    so_far = Window.partitionBy("set_id").orderBy("seq")
    in_order = points.repartition("set_id").withColumn("tenure", f.last("reign", ignorenulls=True).over(so_far))
    tenure, silence = f.col("tenure"), f.col("silence")
    # The silence of another replica is no loss of this master.
    is_its = silence["broker_id"] == tenure["to_master"]
    is_trigger = f.col("seq") == tenure["end_triggered_seq"]
    return (
        in_order.where("tenure is not null")
        .groupBy("set_id", "tenure.elected_seq")
        .agg(
            *(f.max(f.when(f.col("reign").isNotNull(), tenure[name])).alias(name) for name in _OF_TENURE[1:]),
            f.min(f.when(is_its, silence["gone_ms"])).alias("gone_ms"),
            f.min(f.when(is_its & is_trigger, silence["found_at_ms"])).alias("trigger_ms"),
        )
    )


def _served(days: Days) -> DataFrame:
    """Per tenure the time from serving to its loss, and its stops of writes within that."""
    stop = f.struct("began_at_ms", f.coalesce("ended_at_ms", "horizon_ms").alias("ended_at_ms"))
    stops = (
        days.tables["stops"]
        .join(days.sets(), "set_id")
        .groupBy("set_id", "master_epoch")
        .agg(f.collect_list(stop).alias("stops"))
    )
    tenures = (
        with_cleanings(days, _tenures(days)).join(stops, ["set_id", "master_epoch"], "left").join(days.sets(), "set_id")
    )
    # A set that was cleaned and made again: no election ended that tenure. By the first one of the new set, a master
    # that had said goodbye hours before the cleaning would have served up to it.
    is_cleaned = f.coalesce(f.col("cleaned_seq") < f.col("ended_seq"), f.lit(False))
    # The master of an open tenure may be gone without a successor: counted to the horizon, the set would look available
    # for as long as nobody could be elected.
    lost_ms = f.when(
        f.col("ended_at_ms").isNotNull() & ~is_cleaned,
        f.least("ended_at_ms", f.coalesce("lost_at_ms", "trigger_ms", "ended_at_ms")),
    ).otherwise(f.least("gone_ms", "horizon_ms"))
    # A set that was cleaned is not observed until its next master serves: nobody was there to take writes, either.
    to_ms = f.least(lost_ms, "cleaned_at_ms")

    def span(what: str, begin: Column, end: Column) -> Column:
        return f.struct(f.lit(what).alias("what"), begin.alias("from_ms"), end.alias("to_ms"))

    # A stop that an election ended is in the outage of that election, which begins with it: cut off at the loss,
    # nothing of it is left here.
    stopped = f.transform(
        f.coalesce("stops", f.array()),
        lambda one: span(
            "stopped",
            f.greatest(one["began_at_ms"], f.col("served_at_ms")),
            f.least(one["ended_at_ms"], f.col("to_ms")),
        ),
    )
    spans = f.concat(f.array(span("available", f.col("served_at_ms"), f.col("to_ms"))), stopped)
    return (
        tenures.withColumn("to_ms", to_ms).select("set_id", f.explode(spans).alias("span")).select("set_id", "span.*")
    )


_OF_TENURE = (
    "elected_seq",
    "master_epoch",
    "to_master",
    "served_at_ms",
    "ended_at_ms",
    "ended_seq",
    "lost_at_ms",
    "end_triggered_seq",
)


def _exposed(days: Days) -> DataFrame:
    """While the set is observed: before its first master it needs nobody."""
    # Nor does a set that was cleaned: it has no members, and comes back with some.
    cleaned = days.tables["cleanings"].select("set_id", "seq").hint("broadcast")
    lives = _observed(days).select("set_id", f.col("from_ms").alias("least_ms"), f.col("to_ms").alias("most_ms"))
    sets = days.tables["sync_state_sets"].where("set_size < coalesce(members_needed, 2)")
    sets = sets.join(cleaned, ["set_id", "seq"], "left_anti")
    end = f.coalesce("ended_at_ms", "horizon_ms")
    return (
        sets.join(days.sets(), "set_id")
        .join(lives, "set_id")
        .select(
            "set_id",
            f.when(f.col("set_size") > 0, "exposed").otherwise("memberless").alias("what"),
            f.greatest("began_at_ms", "least_ms").alias("from_ms"),
            f.least(end, "most_ms").alias("to_ms"),
        )
    )


def nodes_daily(days: Days) -> DataFrame:
    # An end that only the next registration tells was found by nobody, and is known of masters alone.
    silences = days.tables["silences"].where(~f.col("seq").eqNullSafe(f.col("returned_seq")))
    goodbye = f.col("cause") == SilenceCause.GOODBYE.value
    is_timeout = f.col("cause") == SilenceCause.TIMEOUT.value
    found = silences.select(
        "set_id",
        "broker_id",
        "day",
        (~goodbye).alias("faults"),
        goodbye.alias("goodbyes"),
        is_timeout.alias("timeouts"),
        (~goodbye & f.col("is_same_incarnation")).alias("false_alarms"),
    )
    spans = silences.join(days.sets(), "set_id").select(
        "set_id",
        "broker_id",
        f.col("found_at_ms").alias("from_ms"),
        f.coalesce("returned_at_ms", "horizon_ms").alias("to_ms"),
    )
    deposed = (
        days.tables["reigns"]
        .where("is_failover and from_master is not null")
        .select("set_id", f.col("from_master").alias("broker_id"), "day", f.lit(True).alias("masters_lost"))
    )
    rows = reduce(
        lambda one, other: one.unionByName(other, allowMissingColumns=True),
        (found, deposed, _by_day(spans).withColumnRenamed("lasted_ms", "gone_ms")),
    )
    counts = ("faults", "goodbyes", "timeouts", "false_alarms", "masters_lost")
    sums = [*(f.count_if(name).alias(name) for name in counts), f.coalesce(f.sum("gone_ms"), f.lit(0)).alias("gone_ms")]
    return (
        rows.groupBy("set_id", "broker_id", "day")
        .agg(*sums)
        .join(days.sets(), "set_id")
        .select(*GOLD_NODES_DAILY.column_names)
    )
