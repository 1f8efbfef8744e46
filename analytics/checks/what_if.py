"""
Counterfactuals over a lake: every recorded failover under another preset, timeout or policy.

Here: the time at which each failover would have been found, the failovers that would not have happened, the silences
that would have become failovers, and the winners. Not here: the replay of one election (``core.counterfactual``), the
command line.

Rule 1: only failovers that were found by silence alone (cause ``timeout``) depend on the timeout; the others keep their
times.
Rule 2: a silence lasts from the last heartbeat to the return of the same incarnation; ``found after`` is counted from
the last heartbeat, too. A silence of 4 s is avoided under a timeout of 5 s. A new incarnation that came back after 4 s
would have been noticed then.
Rule 3: failovers that would have come on top are counted from heartbeat gaps of masters, and from nothing else.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from rollcall_ha.analytics import codes
from rollcall_ha.analytics.checks.counterfactual import Settings, replay
from rollcall_ha.analytics.lake.tables import in_ms
from rollcall_ha.analytics.refusals import JobRefused
from rollcall_ha.analytics.silver import facts as silver
from rollcall_ha.analytics.silver import intervals
from rollcall_ha.controller.contract.values import Frozen

REPLAYED_DDL = "other_winner int, other_policy string, is_replayed boolean, other_regret_bytes bigint"
"""The columns of a ``Replayed``."""

SAME = "same"
FASTER = "faster"
SLOWER = "slower"
AVOIDED = "avoided"
UNKNOWN = "unknown"
"""Found by silence, but when the last heartbeat came is not on record: its leader had just changed."""

OUTCOMES = (SAME, FASTER, SLOWER, AVOIDED, UNKNOWN)
PERCENTS = (50, 95, 99)

REMEDY = "name the real one (--real-preset; for what-if also --real-timeout-ms)"


class WrongReality(JobRefused):
    """The record contradicts the settings that are said to have been in force; the message has both values."""


class WhatIf(Frozen):
    failovers: DataFrame
    """One row per recorded failover, in reality and under the other rules."""
    added: DataFrame
    """One row per heartbeat gap of a master that would have become a failover. Empty without gaps."""
    doubt: str
    """What ``check_reality`` says; empty = no doubt."""


def what_if(
    events: DataFrame, *, real: Settings, other: Settings, policy: str | None = None, gaps: DataFrame | None = None
) -> WhatIf:
    """
    Replay ``events`` (``bronze.events``, each once).

    Args:
        events: What happened.
        real: Settings that were in force then.
        other: Settings to ask about. Equal to ``real``: history comes back (S83).
        policy: Name of another clean policy; None = the recorded ones.
        gaps: Columns cluster, broker_set, broker_id, is_master, from_us, gap_us: silences of living replicas.

    Raises:
        WrongReality: a recorded silence was found before ``real`` could have found it.
    """
    told = in_ms(events)
    failovers = recorded(*(in_ms(rows) for rows in (silver.reigns(told), intervals.silences(told)))).persist()
    doubt = check_reality(failovers, real)
    wanted = [codes.KINDS["master-elected"], codes.KINDS["election-failed"]]
    elections = events.where(f.col("kind").isin(wanted))
    again = f.udf(lambda line: replay(line.encode(), policy), REPLAYED_DDL)
    replayed = elections.select("set_id", f.col("seq").alias("elected_seq"), again("line").alias("again"))
    answered = (
        under(failovers, real, other)
        .join(replayed.select("set_id", "elected_seq", "again.*"), ["set_id", "elected_seq"], "left")
        .join(silver.broker_sets(told).select("set_id", "fleet", "cluster", "broker_set"), "set_id")
        .withColumn("is_other_winner", ~f.col("other_winner").eqNullSafe(f.col("to_master")))
        .drop("elected_seq")
    )
    return WhatIf(failovers=answered, added=_added(failovers, gaps, real, other), doubt=doubt)


RECORDED_SQL = """
SELECT r.set_id, master_epoch, elected_seq, elected_at_ms, r.kind, r.cause, from_master, to_master, regret_bytes,
    total_us,
    CASE WHEN r.cause = 'timeout' THEN r.last_heartbeat_age_us - r.detected_age_us END AS found_after_us,
    s.last_heartbeat_age_us + (s.returned_at_ms - s.found_at_ms) * 1000 AS back_us,
    coalesce(s.is_same_incarnation, false) AS was_false
FROM {reigns} r LEFT JOIN {silences} s
ON s.set_id = r.set_id AND s.seq = r.triggered_seq AND s.broker_id = r.from_master
WHERE is_failover
"""


def recorded(reigns: DataFrame, silences: DataFrame) -> DataFrame:
    """Failovers of silver (``in_ms``) with the silence by which the master's loss was found, and its length."""
    return reigns.sparkSession.sql(RECORDED_SQL, reigns=reigns, silences=silences)


def check_reality(failovers: DataFrame, real: Settings) -> str:
    """
    Whether the recorded silences fit the settings that are said to have been in force.

    Returns:
        A doubt, if none was found within two scans of the timeout: a longer one may have been in force, or the record
        is short and its leader was late. Empty = they fit.

    Raises:
        WrongReality: one was found before the timeout; ages are rounded to a microsecond twice.
    """
    # The earliest, not the mean: one silence that was found after 1.2 s refutes a timeout of 3 s, however many others
    # fit.
    earliest_us = failovers.agg(f.min("found_after_us").alias("us")).first()["us"]
    if earliest_us is None:
        return ""
    earliest, given = f"{earliest_us / 1000:,.1f} ms", f"{real.timeout_us / 1000:,.0f} ms"
    if earliest_us < real.timeout_us - 2:
        raise WrongReality(
            f"a recorded silence was found after {earliest}, so the timeout that was in force was not {given}; {REMEDY}"
        )
    if earliest_us <= real.timeout_us + 2 * real.scan_us:
        return ""
    return (
        f"Every recorded silence was found after {earliest} or later, which is late for the timeout of {given} that is "
        f"said to have been in force; if it was another one, {REMEDY}"
    )


def under(failovers: DataFrame, real: Settings, other: Settings) -> DataFrame:
    """Failovers (``recorded``) under another timeout: the outcome of each, what it saves, its other RTO. No replay."""
    found, back = f.col("found_after_us"), f.col("back_us")
    late = f.expr(f"((found_after_us - {real.timeout_us}) * {other.scan_us}) div {real.scan_us}")
    # As late within its scan interval as in reality. With a fresh draw the real settings would not give history back,
    # and a saving of 20 ms could not be told from the draw (S83).
    silent_until = f.lit(other.timeout_us) + late
    # A new incarnation that came back before is noticed as such, and deposes the old one then: a failover that is found
    # later than the restart would be a time that nobody waited.
    is_back_before = f.coalesce(back < silent_until, f.lit(False))
    other_found = f.when(is_back_before & ~f.col("was_false"), back).otherwise(silent_until)
    is_avoided = is_back_before & f.col("was_false")
    saved = f.col("found_after_us") - f.col("other_found_after_us")
    # A failover without its last heartbeat is unknown, not the same: counted as such it would shrink every difference.
    outcome = (
        f.when(f.col("cause") != "timeout", SAME)
        .when(found.isNull(), UNKNOWN)
        .when(f.col("is_avoided"), AVOIDED)
        .when(saved > 0, FASTER)
        .when(saved < 0, SLOWER)
        .otherwise(SAME)
    )
    zero_if_known = f.when(f.col("outcome") == SAME, f.lit(0)).cast("bigint")
    return (
        failovers.withColumns({"other_found_after_us": other_found, "is_avoided": is_avoided})
        .withColumn("outcome", outcome)
        .withColumn("saved_us", f.when(f.col("outcome").isin(FASTER, SLOWER), saved).otherwise(zero_if_known))
        .withColumn("other_total_us", f.col("total_us") - f.col("saved_us"))
        .drop("is_avoided")
    )


def counts() -> list[Column]:
    """
    How many failovers (``under``) had each outcome, and ``PERCENTS`` of their RTO in microseconds, as ``total_us`` and
    ``other_total_us``. Both speak of those whose change is known, the other one without the avoided ones.
    """
    shares = f.array(*(f.lit(percent / 100) for percent in PERCENTS))
    known = f.when(f.col("outcome") != UNKNOWN, f.col("total_us"))
    return [
        f.count("*").alias("failovers"),
        *(f.count_if(f.col("outcome") == outcome).alias(outcome) for outcome in OUTCOMES),
        f.percentile(known, shares).alias("total_us"),
        f.percentile("other_total_us", shares).alias("other_total_us"),
    ]


def _added(failovers: DataFrame, gaps: DataFrame | None, real: Settings, other: Settings) -> DataFrame:
    """Silences of masters that reality did not find, and the other timeout would have."""
    columns = "cluster string, broker_set string, broker_id bigint, from_us bigint, gap_us bigint, is_certain boolean"
    # A longer timeout finds no silence that the shorter one did not.
    if gaps is None or other.timeout_us >= real.timeout_us:
        return failovers.sparkSession.createDataFrame([], columns)
    would_be_found = ~f.col("is_detected") & f.col("is_master") & (f.col("gap_us") > other.timeout_us)
    # A gap of 1,010 ms under a timeout of 1,000 is found only if a scan falls into its last 10 ms: possible, not
    # certain.
    is_certain = f.col("gap_us") > other.timeout_us + other.scan_us
    return gaps.where(would_be_found).select(
        "cluster", "broker_set", "broker_id", "from_us", "gap_us", is_certain.alias("is_certain")
    )
