"""
Questions about the failovers of a lake: each one SELECT over silver and gold, and what its answer says.

Here: the SELECTs, their columns, one sentence each. Not here: drawing (the page), other timeouts (``checks.what_if``).

Rule 1: a SELECT is in the SQL that Spark and DuckDB share, and docs/analytics.md shows it as it is here: who asks the
lake without Rollcall gets the same rows.
Rule 2: each has a greatest number of rows. Where there is a row for all together ("*"), it comes first: no part is
more than the whole, and "*" is before every letter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from rollcall_ha.analytics.gold.tables import (
    ALL,
    GOLD_COUNTED_UNTIL,
    GOLD_DOMINANCE_DAILY,
    GOLD_FAILOVERS,
    GOLD_HOLES,
    GOLD_QUALITY,
    GOLD_RTO_DAILY,
)
from rollcall_ha.analytics.lake.tables import view
from rollcall_ha.analytics.report.scales import count, duration, when, whole_ms
from rollcall_ha.analytics.silver.tables import (
    SILVER_BROKER_SETS,
    SILVER_CLEANINGS,
    SILVER_LEADERSHIPS,
    SILVER_PHASES,
    SILVER_REIGNS,
    SILVER_SILENCES,
    SILVER_STOPS,
    SILVER_TENURES,
)

Row = Mapping[str, Any]
Rows = Sequence[Row]

UNKNOWNS = view(
    "report/unknowns",
    "What the lake does not know: these limit every figure.",
    "name",
    """
name string a key of UNKNOWN_WORDS
count bigint how many
ms bigint bounded: what the outages may have lasted longer, in all; untold: time since the last events; else null
""",
    of=(GOLD_FAILOVERS, GOLD_HOLES, GOLD_QUALITY, GOLD_COUNTED_UNTIL),
    select="""
SELECT 'bounded' AS name, count(*) AS count, CAST(floor(sum(total_us_max - total_us) / 1000) AS BIGINT) AS ms
FROM failovers WHERE total_us_max > total_us
UNION ALL SELECT 'unbounded', count(*), NULL FROM failovers WHERE total_us IS NOT NULL AND total_us_max IS NULL
UNION ALL SELECT 'untimed', count(*), NULL FROM failovers WHERE total_us IS NULL AND NOT is_open
UNION ALL SELECT 'incomplete', count(*), NULL FROM failovers WHERE missing_phases > 0
UNION ALL SELECT 'holes', count(*), NULL FROM holes
UNION ALL SELECT 'ended', count(*), NULL
          FROM (SELECT until_at, max(until_at) OVER () AS newest FROM counted_until) AS fleets WHERE until_at < newest
UNION ALL SELECT 'untold', count(*), sum(unix_millis(until_at) - unix_millis(last_at)) FROM counted_until
          WHERE unix_millis(until_at) - unix_millis(last_at) > 3600000
UNION ALL SELECT 'ungraded', count(*), NULL FROM failovers WHERE grade IS NULL OR grade = 'unknown'
UNION ALL SELECT 'rejected', sum(count), NULL FROM quality WHERE name LIKE 'rejected:%'
UNION ALL SELECT name, count, NULL FROM quality WHERE name IN ('orphans', 'negative_intervals', 'backward_stamps')
""",
)

UNKNOWN_WORDS = {
    "holes": "holes in the record, which may hide outages and losses",
    "ended": "fleets that are counted up to an earlier time than others",
    "untold": "fleets without an event in the last hour and more that is counted",
    "bounded": "outages known by two bounds only, as the fault was not seen",
    "unbounded": "outages with a lower bound only",
    "untimed": "failovers that were not timed",
    "incomplete": "failovers without the stamp of a phase",
    "ungraded": "failovers whose loss is unknown, or not graded yet",
    "rejected": "lines of the input that were rejected",
    "orphans": "epochs without their election, as the journals have a hole",
    "negative_intervals": "intervals that end before they begin, by skewed clocks",
    "backward_stamps": "stamps before the one before them",
}
"""In the order in which they are told."""

INCIDENTS = view(
    "report/incidents",
    "Times without a master that takes writes: all that go on, and the longest of each fleet and month.",
    "cluster fleet broker_set master_epoch kind began_at",
    """
cluster string cluster
fleet string fleet incarnation
broker_set string name of the set
master_epoch bigint the epoch that ended it; of writes-stopped and nobody-elected the one that it happened in
kind string failover, unclean; handover, requested, switchover: planned; writes-stopped; nobody-elected
cause string as gold.failovers.cause; of writes-stopped the reason; null = as kind
began_at timestamp first sign of it; of a planned one the election
ended_at timestamp when a master served again, or the set was cleaned; null = it goes on, or the next incident took over
outage_ms bigint how long, by stamps; up to counted_until if it goes on
total_us bigint how long, timed by one clock, as history has it; null = not timed
total_us_max bigint as silver.phases.total_us_max
grade string proven, bounded, unknown, refuted; null = not graded
loss_bytes bigint lost at most; null = unknown
is_open boolean whether it goes on
open_incidents bigint how many go on
""",
    of=(
        *(GOLD_FAILOVERS, GOLD_COUNTED_UNTIL, SILVER_PHASES, SILVER_STOPS, SILVER_TENURES, SILVER_SILENCES),
        *(SILVER_CLEANINGS, SILVER_BROKER_SETS),
    ),
    select="""
WITH gone AS (
  SELECT t.fleet, t.cluster, t.broker_set, t.master_epoch, min(s.found_at) AS began_at, min(c.cleaned_at) AS ended_at,
         min(unix_millis(s.found_at) - floor(coalesce(s.fault_age_us, 0) / 1000)) AS began_ms
  FROM tenures t JOIN silences s ON s.set_id = t.set_id AND s.broker_id = t.broker_id AND s.seq > t.elected_seq
  LEFT JOIN cleanings c ON c.set_id = t.set_id AND c.seq > t.elected_seq
  WHERE t.ended_at IS NULL AND t.served_at IS NOT NULL AND NOT coalesce(s.is_same_incarnation, false)
  GROUP BY t.fleet, t.cluster, t.broker_set, t.master_epoch),
met AS (
  SELECT cluster, fleet, broker_set, master_epoch, kind, cause, lost_at AS began_at, served_at AS ended_at, outage_ms,
         total_us, total_us_max, grade, loss_bytes, is_open
  FROM failovers WHERE outage_ms > 0
  UNION ALL
  SELECT cluster, fleet, broker_set, master_epoch, kind, NULL, elected_at, served_at, floor(total_us / 1000), total_us,
         total_us_max, grade, loss_bytes, false
  FROM phases JOIN broker_sets USING (set_id) WHERE kind IN ('handover', 'requested', 'switchover') AND total_us > 0
  UNION ALL
  SELECT cluster, fleet, broker_set, master_epoch, 'writes-stopped', reason, began_at, ended_at,
         coalesce(floor(stopped_us / 1000), unix_millis(coalesce(ended_at, until_at)) - unix_millis(began_at)),
         stopped_us, stopped_us, NULL, NULL, ended_seq IS NULL
  FROM stops JOIN broker_sets USING (set_id) JOIN counted_until USING (fleet)
  WHERE coalesce(ended_by, '') <> 'master-elected'
  UNION ALL
  SELECT cluster, fleet, broker_set, master_epoch, 'nobody-elected', NULL, began_at, ended_at,
         greatest(0, unix_millis(coalesce(ended_at, until_at)) - began_ms), NULL, NULL, NULL, NULL, ended_at IS NULL
  FROM gone JOIN counted_until USING (fleet)),
placed AS (
  SELECT *, row_number() OVER (
           PARTITION BY fleet, CAST(date_trunc('month', DATE '1970-01-01'
             + CAST(floor(unix_millis(began_at) / 86400000) AS int)) AS date)
           ORDER BY outage_ms DESC, cluster, broker_set, master_epoch, kind) AS place FROM met)
SELECT *, sum(CASE WHEN is_open THEN 1 ELSE 0 END) OVER () AS open_incidents
FROM placed WHERE place <= 10 OR is_open
ORDER BY CASE WHEN is_open THEN 0 ELSE 1 END, outage_ms DESC, cluster, fleet, broker_set, master_epoch, kind, began_at
LIMIT 600
""",
)

REPLICA_COSTS = view(
    "report/replica_costs",
    "Outage by the replica whose loss began it. A loss that no election has answered yet is in no row.",
    "cluster fleet broker_set broker_id",
    """
cluster string cluster
fleet string fleet incarnation
broker_set string name of the set
broker_id int the replica
failovers bigint that deposed it
needless bigint of these false alarms
outage_ms bigint of these failovers
reigned_ms bigint how long it served as the master: up to its loss, the set's cleaning or counted_until
outage_ms_per_hour bigint outage_ms for each hour of reigned_ms, rounded down; null = it never served
""",
    of=(GOLD_FAILOVERS, SILVER_TENURES, SILVER_CLEANINGS, GOLD_COUNTED_UNTIL),
    select="""
WITH ends AS (SELECT fleet, until_at FROM counted_until),
reigned AS (
  SELECT t.fleet, t.cluster, t.broker_set, t.broker_id, unix_millis(t.served_at) AS served_ms,
         unix_millis(least(coalesce(t.lost_at, t.ended_at, e.until_at), min(c.cleaned_at))) AS until_ms
  FROM tenures t JOIN ends e ON e.fleet = t.fleet LEFT JOIN cleanings c
    ON c.set_id = t.set_id AND c.seq > t.elected_seq
  WHERE t.served_at IS NOT NULL
  GROUP BY t.fleet, t.cluster, t.broker_set, t.broker_id, t.master_epoch, t.served_at, t.lost_at, t.ended_at,
           e.until_at),
reigns_of AS (
  SELECT fleet, cluster, broker_set, broker_id, sum(greatest(until_ms - served_ms, 0)) AS reigned_ms
  FROM reigned GROUP BY fleet, cluster, broker_set, broker_id),
lost AS (
  SELECT fleet, cluster, broker_set, from_master AS broker_id, count(*) AS failovers,
         count(*) FILTER (WHERE is_false_positive) AS needless, coalesce(sum(outage_ms), 0) AS outage_ms
  FROM failovers WHERE from_master IS NOT NULL GROUP BY fleet, cluster, broker_set, from_master)
SELECT cluster, fleet, broker_set, broker_id, failovers, needless, outage_ms, coalesce(reigned_ms, 0) AS reigned_ms,
       CAST(floor(outage_ms * 3600000.0 / nullif(reigned_ms, 0)) AS BIGINT) AS outage_ms_per_hour
FROM lost LEFT JOIN reigns_of USING (fleet, cluster, broker_set, broker_id)
ORDER BY outage_ms DESC, cluster, fleet, broker_set, broker_id LIMIT 12
""",
)

LONGEST_PHASES = view(
    "report/longest_phases",
    "Which phase took longest, by cause.",
    "cause phase",
    """
cause string as gold.failovers.cause
phase string the phase that took longest
failovers bigint in how many
of_failovers bigint of so many of this cause, with a stamped phase
mean_ms bigint mean of its durations in those, rounded down
""",
    of=(GOLD_DOMINANCE_DAILY,),
    select="""
SELECT cause, phase, sum(failovers) AS failovers, sum(sum(failovers)) OVER (PARTITION BY cause) AS of_failovers,
       CAST(floor(sum(duration_us) / (sum(failovers) * 1000)) AS BIGINT) AS mean_ms
FROM dominance_daily GROUP BY cause, phase ORDER BY 4 DESC, cause, 3 DESC, phase LIMIT 60
""",
)

NEEDLESS = view(
    "report/needless",
    "False alarms by cause, '*' all: the deposed process itself came back, so nobody had to be elected.",
    "cause",
    """
cause string as gold.failovers.cause
failovers bigint how many
needless bigint of these false alarms
controller_caused bigint of these put down to a change of controllers
not_proven bigint of these without a proof that nothing was lost
outage_ms bigint of the false alarms
heard_again_ms bigint median time until the deposed master was heard again, rounded down; null = no false alarm
""",
    of=(GOLD_FAILOVERS,),
    select="""
SELECT coalesce(cause, '*') AS cause, count(*) AS failovers, count(*) FILTER (WHERE is_false_positive) AS needless,
       count(*) FILTER (WHERE is_controller_caused) AS controller_caused,
       count(*) FILTER (WHERE is_false_positive AND grade IS DISTINCT FROM 'proven') AS not_proven,
       coalesce(sum(outage_ms) FILTER (WHERE is_false_positive), 0) AS outage_ms,
       CAST(floor(median(heard_again_after_ms)) AS BIGINT) AS heard_again_ms
FROM failovers GROUP BY GROUPING SETS ((cause), ()) HAVING count(*) > 0 ORDER BY 3 DESC, 2 DESC, 1 LIMIT 20
""",
)

CONTROLLER_CHANGES = view(
    "report/controller_changes",
    "What a change of the leading controller cost, by fleet, '*' all: failovers found within 30 s after it.",
    "fleet",
    """
fleet string fleet incarnation
changes bigint times that another controller took the lead
failovers bigint found within 30 s after one; those still open are left out
needless bigint of these false alarms
needless_ms bigint their outage
longer_ms bigint what the others took longer than the mean of their causes at other times, in all; may be below 0
ms_per_change bigint (needless_ms + longer_ms) / changes, rounded down
""",
    of=(GOLD_FAILOVERS, SILVER_LEADERSHIPS),
    select="""
WITH changed AS (SELECT fleet, count(*) AS changes FROM leaderships WHERE NOT is_founding GROUP BY fleet),
usual AS (
  SELECT cause, avg(outage_ms) AS usual_ms FROM failovers
  WHERE NOT is_open AND coalesce(leader_change_age_ms, 30000) >= 30000 GROUP BY cause),
near AS (
  SELECT fleet, count(*) AS failovers, count(*) FILTER (WHERE is_false_positive) AS needless,
         coalesce(sum(outage_ms) FILTER (WHERE is_false_positive), 0) AS needless_ms,
         coalesce(sum(outage_ms - usual_ms) FILTER (WHERE NOT is_false_positive), 0) AS longer_ms
  FROM failovers LEFT JOIN usual USING (cause)
  WHERE NOT is_open AND leader_change_age_ms < 30000 GROUP BY fleet)
SELECT coalesce(fleet, '*') AS fleet, sum(changes) AS changes, coalesce(sum(failovers), 0) AS failovers,
       coalesce(sum(needless), 0) AS needless, coalesce(sum(needless_ms), 0) AS needless_ms,
       CAST(floor(coalesce(sum(longer_ms), 0)) AS BIGINT) AS longer_ms,
       CAST(floor(coalesce(sum(needless_ms + longer_ms), 0) / sum(changes)) AS BIGINT) AS ms_per_change
FROM changed LEFT JOIN near USING (fleet) GROUP BY GROUPING SETS ((fleet), ())
HAVING sum(changes) > 0 ORDER BY 2 DESC, 3 DESC, 1 LIMIT 20
""",
)

RTO_BOUNDS = view(
    "report/rto_bounds",
    "How sure percentiles of the RTO are, by cause, '*' all: intervals of order statistics, of any distribution.",
    "cause percent",
    """
cause string as gold.failovers.cause
percent int 50, 99
failovers bigint that were timed
duration_ms bigint the percentile by nearest rank, as gold.rto has it
least_ms bigint in 95 of 100 lakes like this one the true percentile lies between least_ms and most_ms
most_ms bigint as above; null = so few failovers say nothing of an upper end (least_ms: of a lower)
""",
    of=(GOLD_RTO_DAILY,),
    select="""
WITH bins AS (
  SELECT coalesce(cause, '*') AS cause, duration_ms, sum(failovers) AS many
  FROM rto_daily WHERE phase = 'total' GROUP BY GROUPING SETS ((cause, duration_ms), (duration_ms))),
ranked AS (
  SELECT cause, duration_ms, sum(many) OVER (PARTITION BY cause ORDER BY duration_ms) AS up_to,
         sum(many) OVER (PARTITION BY cause) AS failovers FROM bins),
asked AS (
  SELECT *, floor(failovers * percent / 100 - 2.05 * sqrt(failovers * percent * (100 - percent)) / 100) AS low,
         ceil(failovers * percent / 100 + 2.05 * sqrt(failovers * percent * (100 - percent)) / 100) AS high
  FROM ranked CROSS JOIN (VALUES (50), (99)) AS percents(percent))
SELECT cause, percent, failovers, min(duration_ms) FILTER (WHERE up_to * 100 >= failovers * percent) AS duration_ms,
       min(duration_ms) FILTER (WHERE low >= 1 AND up_to >= low) AS least_ms,
       min(duration_ms) FILTER (WHERE up_to >= high) AS most_ms
FROM asked GROUP BY cause, percent, failovers ORDER BY failovers DESC, cause, percent LIMIT 40
""",
)

PLANNED = view(
    "report/planned",
    "Masters that were changed by a plan: restarts, orders, switchovers. No failovers, but they cost availability.",
    "kind",
    """
kind string handover (the master was restarted, or left), requested, switchover
elections bigint how many
timed bigint with an outage
p50_ms bigint median outage, nearest rank, rounded down; null = none was timed
max_ms bigint the longest, rounded down
outage_ms bigint all, rounded down
""",
    of=(SILVER_REIGNS,),
    select="""
SELECT kind, count(*) AS elections, count(total_us) AS timed,
       CAST(floor(percentile_disc(0.5) WITHIN GROUP (ORDER BY total_us) / 1000) AS BIGINT) AS p50_ms,
       CAST(floor(max(total_us) / 1000) AS BIGINT) AS max_ms, CAST(floor(sum(total_us) / 1000) AS BIGINT) AS outage_ms
FROM reigns WHERE kind IN ('handover', 'requested', 'switchover') GROUP BY kind ORDER BY elections DESC, kind LIMIT 10
""",
)

QUESTIONS = (UNKNOWNS, INCIDENTS, REPLICA_COSTS, LONGEST_PHASES, NEEDLESS, CONTROLLER_CHANGES, RTO_BOUNDS, PLANNED)


# --- what an answer says ---------------------------------------------------------------------------------------------


def sentences(answers: Mapping[str, Rows]) -> dict[str, str]:
    """A line for each answer that has something to say, by its table."""
    told = {name: (title, words(answers[name])) for name, (title, words) in _SENTENCES.items() if answers.get(name)}
    return {name: f"{title}: {line}" for name, (title, line) in told.items() if line}


def unknowns(rows: Rows) -> list[str]:
    """What is not known, in words with numbers, in the order of ``UNKNOWN_WORDS``; empty = nothing of these."""
    found = {row["name"]: row for row in rows}
    told = []
    for name, words in UNKNOWN_WORDS.items():
        row = found.get(name)
        if row is None or not row["count"]:
            continue
        ms = "" if not row["ms"] else f" ({'up to ' if name == 'bounded' else ''}{duration(row['ms'])} in all)"
        told.append(f"{words}: {row['count']:,}{ms}")
    return told


def _incidents(rows: Rows) -> str:
    row = max(rows, key=lambda row: row["outage_ms"])
    longest = (
        f"the longest {row['cluster']}/{row['broker_set']}, {duration(row['outage_ms'])} from {when(row['began_at'])}"
    )
    going_on = "" if not row["open_incidents"] else f"{row['open_incidents']:,} GO ON; "
    return f"{going_on}{longest}"


def _replica(rows: Rows) -> str:
    row = rows[0]
    replica = f"{row['cluster']}/{row['broker_set']} {row['broker_id']}"
    return f"most by {replica}, {duration(row['outage_ms'])} in {count(row['failovers'], 'failover')}, {rate(row)}"


def rate(row: Row) -> str:
    """What a replica costs per hour of its service."""
    each = row["outage_ms_per_hour"]
    return "never served" if each is None else f"{duration(each)} per hour of {duration(row['reigned_ms'])} as master"


def _phases(rows: Rows) -> str:
    # Rows of a cause follow one another; the first is the phase that took longest most often.
    firsts = (next(of_cause) for _, of_cause in groupby(rows, itemgetter("cause")))
    return "; ".join(
        f"{row['cause']} {row['phase']} in {row['failovers']:,} of {row['of_failovers']:,}"
        f" (mean {whole_ms(row['mean_ms'])})"
        for row in firsts
    )


def _needless(rows: Rows) -> str:
    row = rows[0]
    if not row["needless"]:
        return f"none of {count(row['failovers'], 'failover')}"
    again = "" if row["heard_again_ms"] is None else f"; half were heard again within {duration(row['heard_again_ms'])}"
    return (
        f"{row['needless']:,} of {count(row['failovers'], 'failover')}, {duration(row['outage_ms'])} of outage, "
        f"{row['controller_caused']:,} by a change of controllers, {row['not_proven']:,} without proof{again}"
    )


def _changes(rows: Rows) -> str:
    row = rows[0]
    if not row["failovers"]:
        return f"{row['changes']:,}, and no failover within 30 s of one"
    return (
        f"{row['changes']:,}, {duration(row['ms_per_change'])} each, by {count(row['needless'], 'false alarm')} within "
        f"30 s ({duration(row['needless_ms'])}) and {count(row['failovers'] - row['needless'], 'failover')} that took "
        f"{duration(row['longer_ms'])} longer than usual"
    )


def surety(row: Row) -> str:
    """How sure a percentile is: ``75 ms to 88 ms``, ``at least 3.05 s, no upper end``."""
    least, most = row["least_ms"], row["most_ms"]
    if most is None:
        # The rank of 99 % of less than 100 is the last one: a longer one may be the next.
        few = f"; the greatest of {row['failovers']:,}" if row["failovers"] * (100 - row["percent"]) < 100 else ""
        low = "no lower end" if least is None else f"at least {whole_ms(least)}"
        return f"{low}, no upper end{few}"
    return f"{'less' if least is None else whole_ms(least)} to {whole_ms(most)}"


def _bounds(rows: Rows) -> str:
    return "; ".join(
        f"{row['percent']} % within {whole_ms(row['duration_ms'])} (95 % sure: {surety(row)})"
        for row in rows
        if row["cause"] == ALL
    )


def _planned(rows: Rows) -> str:
    return "; ".join(
        f"{row['elections']:,} {row['kind']}: half within {whole_ms(row['p50_ms'])},"
        f" in all {duration(row['outage_ms'])}"
        for row in rows
    )


_SENTENCES: Mapping[str, tuple[str, Callable[[Rows], str]]] = {
    INCIDENTS.name: ("incidents", _incidents),
    UNKNOWNS.name: ("not known", lambda rows: "; ".join(unknowns(rows))),
    RTO_BOUNDS.name: ("RTO", _bounds),
    LONGEST_PHASES.name: ("longest phase", _phases),
    REPLICA_COSTS.name: ("outage by replica", _replica),
    NEEDLESS.name: ("needless failovers", _needless),
    CONTROLLER_CHANGES.name: ("changes of the leading controller", _changes),
    PLANNED.name: ("planned changes of masters", _planned),
}
"""Name of a table -> what its sentence begins with, and the rest of it."""
