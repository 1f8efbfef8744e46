"""
The tables of a report: small aggregates of gold, one per picture, with their limits.

Here: their columns and SELECTs. Not here: the questions (``questions``), reading (``gather``), drawing (the pictures),
writing (``files``).
Rule 1: every table has a greatest number of rows; nothing else of a lake leaves Spark.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from rollcall_ha.analytics.bronze.tables import BRONZE_QUALITY
from rollcall_ha.analytics.checks.what_if import WHAT_IF
from rollcall_ha.analytics.gold.tables import (
    AVAILABILITY,
    GOLD_CLUSTERS,
    GOLD_COUNTED_UNTIL,
    GOLD_FAILOVERS,
    GOLD_FAILOVERS_DAILY,
    GOLD_FLEETS,
    GOLD_NODES,
    GOLD_QUALITY,
    GOLD_QUIET_DAILY,
    GOLD_RTO,
    GOLD_RTO_DAILY,
    GOLD_SET_DAYS,
    GOLD_SETS,
    GOLD_SETS_DAILY,
    GOLD_SETS_MONTHLY,
)
from rollcall_ha.analytics.lake.tables import LakeTable, LakeView, columns_of, view
from rollcall_ha.analytics.report.questions import QUESTIONS, Rows
from rollcall_ha.analytics.silver.orders import SILVER_ORDERS
from rollcall_ha.analytics.silver.tables import SILVER_BROKER_SETS, SILVER_CALLERS, SILVER_SYNC_STATE_SETS
from rollcall_ha.controller.contract.values import Frozen

HEAT_MAP_SETS_MAX = 40
HEAT_MAP_COLUMNS_MAX = 48


def _first(table: LakeTable, name: str, meaning: str, select: str) -> LakeView:
    """The first rows of a table, in an order that has no ties."""
    return LakeView(
        layer="report", name=name, meaning=meaning, key=table.key, columns=table.columns, of=(table,), select=select
    )


FAILOVERS = LakeView(
    layer="report",
    name="failovers",
    meaning="The failovers that are drawn as bars: the typical one of each cause, the slowest, the newest.",
    key=GOLD_FAILOVERS.key,
    columns=(*GOLD_FAILOVERS.columns, *columns_of("shown_as string typical, slowest, newest; several with a comma")),
    of=(GOLD_FAILOVERS, GOLD_RTO),
    # Typical of a cause is the one nearest to its median. A bar with all its phases explains more than one without.
    select="""
WITH usual AS (SELECT cause, p50_ms FROM rto WHERE fleet = '*' AND kind = '*' AND cause <> '*' AND phase = 'total'
               ORDER BY failovers DESC, cause LIMIT 6),
near AS (SELECT *, row_number() OVER (PARTITION BY cause ORDER BY missing_phases, abs(floor(total_us / 1000) - p50_ms),
                                      fleet, cluster, broker_set, master_epoch) AS place
         FROM failovers JOIN usual USING (cause) WHERE total_us IS NOT NULL),
slowest AS (SELECT * FROM failovers WHERE total_us IS NOT NULL
            ORDER BY total_us DESC, fleet, cluster, broker_set, master_epoch LIMIT 5),
newest AS (SELECT * FROM failovers WHERE total_us IS NOT NULL
           ORDER BY elected_at DESC, fleet, cluster, broker_set, master_epoch LIMIT 5),
told AS (SELECT fleet, cluster, broker_set, master_epoch, 'typical' AS reason FROM near WHERE place = 1
         UNION ALL SELECT fleet, cluster, broker_set, master_epoch, 'slowest' FROM slowest
         UNION ALL SELECT fleet, cluster, broker_set, master_epoch, 'newest' FROM newest),
shown AS (SELECT fleet, cluster, broker_set, master_epoch,
                 concat_ws(', ', max(reason) FILTER (WHERE reason = 'typical'),
                           max(reason) FILTER (WHERE reason = 'slowest'),
                           max(reason) FILTER (WHERE reason = 'newest')) AS shown_as
          FROM told GROUP BY fleet, cluster, broker_set, master_epoch)
SELECT * FROM shown JOIN failovers USING (fleet, cluster, broker_set, master_epoch)
ORDER BY elected_at DESC, fleet, cluster, broker_set, master_epoch LIMIT 16
""",
)
RTO = _first(
    GOLD_RTO,
    "rto",
    "Percentiles by phase and cause, all clusters and kinds together.",
    "SELECT * FROM rto WHERE fleet = '*' AND kind = '*' ORDER BY cause <> '*', cause, phase LIMIT 100",
)
CLUSTERS = LakeView(
    layer="report",
    name="clusters",
    meaning="All clusters together (*), then those with most time without a master.",
    key=GOLD_CLUSTERS.key,
    columns=(*GOLD_CLUSTERS.columns, *columns_of("name string of the fleet, for people; null = all fleets")),
    of=(GOLD_CLUSTERS, GOLD_FLEETS),
    select="""
SELECT * FROM clusters LEFT JOIN (SELECT fleet, name FROM fleets) AS named USING (fleet)
ORDER BY fleet <> '*', outage_ms DESC, cluster, fleet LIMIT 50
""",
)
WORST_SETS = _first(
    GOLD_SETS,
    "worst_sets",
    "Sets with most time without a master, then most exposure.",
    "SELECT * FROM sets ORDER BY outage_ms DESC, exposed_ms DESC, cluster, fleet, broker_set LIMIT 12",
)
WORST_NODES = _first(
    GOLD_NODES,
    "worst_nodes",
    "Replicas with most faults, then longest gone.",
    "SELECT * FROM nodes ORDER BY faults DESC, gone_ms DESC, cluster, fleet, broker_set, broker_id LIMIT 12",
)
QUALITY = _first(
    GOLD_QUALITY,
    "quality",
    "Counts of input lines and of lines that gave no event.",
    "SELECT * FROM quality ORDER BY name LIMIT 100",
)
REJECTED = _first(
    BRONZE_QUALITY,
    "rejected",
    "The files with most texts that gave no event: one row per file and reason.",
    "SELECT * FROM quality WHERE name LIKE 'rejected:%' ORDER BY count DESC, source_file, name LIMIT 5",
)

AS_OF = view(
    "report/as_of",
    "Up to when it is counted, and how many sets there are then.",
    "",
    """
fleets bigint how many
until_at timestamp of the fleet that is counted longest
sets bigint sets that were not taken away
exposed bigint of these with fewer members in the SyncStateSet than the set needs (members_needed)
""",
    of=(GOLD_COUNTED_UNTIL, SILVER_BROKER_SETS, SILVER_SYNC_STATE_SETS),
    select="""
WITH lacking AS (
  SELECT set_id FROM sync_state_sets
  WHERE ended_at IS NULL AND set_size > 0 AND set_size < coalesce(members_needed, 2)),
here AS (
  SELECT count(*) AS sets, count(lacking.set_id) AS exposed
  FROM broker_sets LEFT JOIN lacking USING (set_id) WHERE cleaned_at IS NULL)
SELECT fleets, until_at, sets, exposed
FROM (SELECT count(*) AS fleets, max(until_at) AS until_at FROM counted_until) AS known CROSS JOIN here
""",
)

MONTHS_MAX, WEEKS_MAX = 13, 26
_FROM_DAY = """CASE unit WHEN 'month' THEN CAST(date_trunc('month', day) AS date)
              WHEN 'week' THEN CAST(date_trunc('week', day) AS date) ELSE DATE '1970-01-01' END AS from_day"""
_EACH = "GROUPING SETS ((fleet, unit, from_day), (unit, from_day))"

PERIODS = view(
    "report/periods",
    "Service by month, by week and in all, of each fleet, '*' all fleets.",
    "fleet unit from_day",
    """
fleet string fleet incarnation
unit string month, week, all
from_day date first day of the month, Monday of the week; 1970-01-01 for all
first_day date first day of it on which a set was observed
last_day date last one
observed_ms bigint of all sets
outage_ms bigint without a master that takes writes
exposed_ms bigint with fewer members in the SyncStateSet than the set needs
availability_ppm bigint in millionths, rounded down
failovers bigint elected in it
false_positives bigint of these false alarms
proven bigint of these with a proof that nothing was lost
refuted bigint of these with a proof of a loss
timed bigint of these with an RTO
p50_ms bigint RTO, nearest rank, rounded down; null = none was timed
p99_ms bigint
max_ms bigint
sets bigint sets that were observed in the month; null = no month
missed bigint of these below the SLO
""",
    of=(GOLD_SETS_DAILY, GOLD_QUIET_DAILY, GOLD_FAILOVERS_DAILY, GOLD_RTO_DAILY, GOLD_SETS_MONTHLY),
    select=f"""
WITH units AS (SELECT unit FROM (VALUES ('all'), ('month'), ('week')) AS three(unit)),
days AS (
  SELECT fleet, day, observed_ms, available_ms, outage_ms, exposed_ms FROM sets_daily
  UNION ALL SELECT fleet, day, sets * 86400000, sets * 86400000, 0, 0 FROM quiet_daily),
spent AS (
  SELECT coalesce(fleet, '*') AS fleet, unit, from_day, min(day) AS first_day, max(day) AS last_day,
         sum(observed_ms) AS observed_ms, sum(available_ms) AS available_ms, sum(outage_ms) AS outage_ms,
         sum(exposed_ms) AS exposed_ms
  FROM (SELECT *, {_FROM_DAY} FROM days CROSS JOIN units) AS each_day GROUP BY {_EACH}),
failed AS (
  SELECT coalesce(fleet, '*') AS fleet, unit, from_day, sum(failovers) AS failovers,
         sum(false_positives) AS false_positives, sum(proven) AS proven, sum(refuted) AS refuted
  FROM (SELECT *, {_FROM_DAY} FROM failovers_daily CROSS JOIN units) AS each_day GROUP BY {_EACH}),
bins AS (
  SELECT coalesce(fleet, '*') AS fleet, unit, from_day, duration_ms, sum(failovers) AS many
  FROM (SELECT *, {_FROM_DAY} FROM rto_daily CROSS JOIN units WHERE phase = 'total') AS each_day
  GROUP BY GROUPING SETS ((fleet, unit, from_day, duration_ms), (unit, from_day, duration_ms))),
ranked AS (
  SELECT *, sum(many) OVER (PARTITION BY fleet, unit, from_day ORDER BY duration_ms) AS place,
         sum(many) OVER (PARTITION BY fleet, unit, from_day) AS timed FROM bins),
lasted AS (
  SELECT fleet, unit, from_day, timed, min(CASE WHEN place * 100 >= timed * 50 THEN duration_ms END) AS p50_ms,
         min(CASE WHEN place * 100 >= timed * 99 THEN duration_ms END) AS p99_ms, max(duration_ms) AS max_ms
  FROM ranked GROUP BY fleet, unit, from_day, timed),
kept AS (
  SELECT coalesce(fleet, '*') AS fleet, 'month' AS unit, month AS from_day, count(*) AS sets,
         count(CASE WHEN budget_left_ms < 0 THEN 1 END) AS missed
  FROM sets_monthly GROUP BY GROUPING SETS ((fleet, month), (month))),
aged AS (SELECT *, dense_rank() OVER (PARTITION BY unit ORDER BY from_day DESC) AS age FROM spent)
SELECT aged.*, {AVAILABILITY} AS availability_ppm,
       coalesce(failovers, 0) AS failovers, coalesce(false_positives, 0) AS false_positives,
       coalesce(proven, 0) AS proven, coalesce(refuted, 0) AS refuted, coalesce(timed, 0) AS timed, p50_ms, p99_ms,
       max_ms, sets, missed
FROM aged LEFT JOIN failed USING (fleet, unit, from_day) LEFT JOIN lasted USING (fleet, unit, from_day)
LEFT JOIN kept USING (fleet, unit, from_day)
WHERE age <= CASE unit WHEN 'month' THEN {MONTHS_MAX} ELSE {WEEKS_MAX} END
ORDER BY fleet <> '*', fleet, unit, from_day DESC LIMIT 1200
""",
)

BUDGETS = LakeView(
    layer="report",
    name="budgets",
    meaning="The sets of each fleet and month with least of their error budget left.",
    key=GOLD_SETS_MONTHLY.key,
    columns=GOLD_SETS_MONTHLY.columns,
    of=(GOLD_SETS_MONTHLY,),
    select=f"""
SELECT * FROM (
  SELECT *, dense_rank() OVER (ORDER BY month DESC) AS age,
         row_number() OVER (PARTITION BY fleet, month ORDER BY budget_left_ms, cluster, broker_set) AS place
  FROM sets_monthly) AS ranked
WHERE place <= 10 AND age <= {MONTHS_MAX} AND outage_ms > 0
ORDER BY month DESC, budget_left_ms, cluster, fleet, broker_set LIMIT 600
""",
)

RTO_HISTOGRAM = view(
    "report/rto_histogram",
    "RTO of failovers in bins, ten for each power of ten, by cause.",
    "cause bin",
    """
cause string as gold.failovers.cause
bin bigint from 10 ** (bin / 10) ms up to, but not with, 10 ** ((bin + 1) / 10); less than 1 ms counts as 1 ms
failovers bigint how many
""",
    of=(GOLD_RTO_DAILY,),
    select="""
SELECT cause, floor(log10(greatest(duration_ms, 1)) * 10) AS bin, sum(failovers) AS failovers
FROM rto_daily WHERE phase = 'total' GROUP BY cause, bin ORDER BY cause, bin LIMIT 600
""",
)

CALENDAR = view(
    "report/calendar",
    "Sums over all sets per day.",
    "day",
    """
day date UTC date
sets bigint sets that were observed
exposed_ms bigint with fewer members in the SyncStateSet than the set needs
outage_ms bigint without a serving master
failovers bigint elected on the day
""",
    of=(GOLD_SETS_DAILY, GOLD_QUIET_DAILY),
    select="""
WITH told AS (SELECT day, 1 AS sets, exposed_ms, outage_ms, failovers FROM sets_daily
              UNION ALL SELECT day, sets, 0, 0, 0 FROM quiet_daily),
days AS (SELECT day, sum(sets) AS sets, sum(exposed_ms) AS exposed_ms, sum(outage_ms) AS outage_ms,
                sum(failovers) AS failovers FROM told GROUP BY day ORDER BY day DESC LIMIT 1098)
SELECT * FROM days ORDER BY day
""",
)

_NUMBER = "extract(DAY FROM CAST(day AS timestamp) - TIMESTAMP '1970-01-01 00:00:00') AS number"

HEAT_MAP = view(
    "report/heat_map",
    "The sets with most time without a master, in the fewest days a column with which the columns hold the whole time.",
    "rank from_day",
    """
rank bigint 1 = most time without a master
cluster string cluster
fleet string fleet incarnation
broker_set string name of the set
from_day date first day of the column
days bigint days of a column
outage_ms bigint without a serving master
exposed_ms bigint with fewer members in the SyncStateSet than the set needs
failovers bigint elected in these days
""",
    of=(GOLD_SETS, GOLD_SET_DAYS, GOLD_SETS_DAILY, GOLD_QUIET_DAILY),
    select=f"""
WITH ranked AS (
  SELECT cluster, fleet, broker_set, row_number() OVER (
           ORDER BY outage_ms DESC, exposed_ms DESC, cluster, fleet, broker_set) AS rank FROM sets),
span AS (
  SELECT min(number) AS first_number, ceil((max(number) - min(number) + 1) / {HEAT_MAP_COLUMNS_MAX}.0) AS days
  FROM (SELECT {_NUMBER} FROM (SELECT day FROM sets_daily UNION SELECT day FROM quiet_daily) AS known) AS numbered),
told AS (
  SELECT rank, cluster, fleet, broker_set, {_NUMBER}, outage_ms, exposed_ms, failovers
  FROM set_days JOIN ranked USING (cluster, fleet, broker_set) WHERE rank <= {HEAT_MAP_SETS_MAX})
SELECT rank, cluster, fleet, broker_set,
       DATE '1970-01-01' + CAST(first_number + floor((number - first_number) / days) * days AS int) AS from_day, days,
       sum(outage_ms) AS outage_ms, sum(exposed_ms) AS exposed_ms, sum(failovers) AS failovers
FROM told CROSS JOIN span GROUP BY rank, cluster, fleet, broker_set, 5, days ORDER BY rank, from_day
""",
)

GRADES = view(
    "report/grades",
    "Grades of loss by cause.",
    "cause",
    GOLD_FAILOVERS_DAILY.lines("cause failovers proven bounded unknown refuted ungraded loss_bytes cut_bytes"),
    of=(GOLD_FAILOVERS_DAILY,),
    select="""
SELECT cause, sum(failovers) AS failovers, sum(proven) AS proven, sum(bounded) AS bounded, sum(unknown) AS unknown,
       sum(refuted) AS refuted, sum(ungraded) AS ungraded, sum(loss_bytes) AS loss_bytes, sum(cut_bytes) AS cut_bytes
FROM failovers_daily GROUP BY cause ORDER BY failovers DESC, cause LIMIT 12
""",
)

_OF_ORDERS = "fleet seq cluster broker_set ordered_at ordered_by proved_by kind reason refused"

ORDERS = view(
    "report/orders",
    "What people and programs ordered, the newest first.",
    "fleet seq",
    SILVER_ORDERS.lines(_OF_ORDERS),
    of=(SILVER_ORDERS,),
    select=f"SELECT {_OF_ORDERS.replace(' ', ', ')} FROM orders ORDER BY ordered_at DESC, fleet, seq DESC LIMIT 40",
)

REPORTS = view(
    "report/reports",
    "What brokers reported by themselves.",
    "kind",
    """
kind string kind of the event
brokers bigint how many of them
events bigint how many
last_at timestamp latest stamp
""",
    of=(SILVER_CALLERS,),
    # By kind: a fleet has thousands of brokers, among whose registrations one person's election would not be seen.
    select="""
SELECT kind, count(DISTINCT caller) AS brokers, sum(events) AS events, max(last_at) AS last_at
FROM callers WHERE caller LIKE 'broker:%' GROUP BY kind ORDER BY events DESC, kind LIMIT 20
""",
)

TABLES = (
    AS_OF,
    PERIODS,
    BUDGETS,
    CLUSTERS,
    FAILOVERS,
    RTO,
    RTO_HISTOGRAM,
    GRADES,
    CALENDAR,
    HEAT_MAP,
    WORST_SETS,
    WORST_NODES,
    ORDERS,
    REPORTS,
    WHAT_IF,
    QUALITY,
    REJECTED,
    *QUESTIONS,
)


class Contents(Frozen):
    """The input of a report: rows by the name of their table, and the lake that they come from."""

    rows: Mapping[str, Rows]
    lake: str
    lake_version: int
    made_at_ms: int

    @property
    def made_at(self) -> datetime:
        """The moment of the report."""
        return datetime.fromtimestamp(self.made_at_ms / 1000, UTC)

    def of(self, table: LakeTable) -> Rows:
        """Rows of one table; empty if it is not there."""
        return self.rows.get(table.name, ())
