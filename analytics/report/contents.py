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
from rollcall_ha.analytics.gold.tables import (
    GOLD_CLUSTERS,
    GOLD_COUNTED_UNTIL,
    GOLD_FAILOVERS,
    GOLD_FAILOVERS_DAILY,
    GOLD_NODES,
    GOLD_QUALITY,
    GOLD_QUIET_DAILY,
    GOLD_RTO,
    GOLD_RTO_DAILY,
    GOLD_SETS,
    GOLD_SETS_DAILY,
)
from rollcall_ha.analytics.lake.tables import LakeTable, LakeView, columns_of, table, view
from rollcall_ha.analytics.report.questions import QUESTIONS, Rows
from rollcall_ha.analytics.silver.tables import SILVER_CALLERS
from rollcall_ha.controller.contract.values import Frozen

HEAT_MAP_SETS_MAX = 40
HEAT_MAP_COLUMNS_MAX = 48
WHAT_IF_PRESETS_MAX = 3


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
CLUSTERS = _first(
    GOLD_CLUSTERS,
    "clusters",
    "All clusters together (*), then those with most time without a master.",
    "SELECT * FROM clusters ORDER BY fleet <> '*', outage_ms DESC, cluster, fleet LIMIT 50",
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
    "Up to when it is counted.",
    "",
    """
fleets bigint how many
until_at timestamp of the fleet that is counted longest
ended bigint fleets that are counted up to an earlier time
""",
    of=(GOLD_COUNTED_UNTIL,),
    select="""
SELECT count(*) AS fleets, max(until_at) AS until_at, count(*) FILTER (WHERE until_at < newest) AS ended
FROM (SELECT until_at, max(until_at) OVER () AS newest FROM counted_until) AS one
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
exposed_ms bigint with a SyncStateSet of one member
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

HEAT_MAP = table(
    "report/heat_map",
    "The sets with most time without a master, in columns of as many days as fit.",
    "rank from_day",
    """
rank bigint 1 = most time without a master
cluster string cluster
fleet string fleet incarnation
broker_set string name of the set
from_day date first day of the column
days bigint days of a column
outage_ms bigint without a serving master
exposed_ms bigint with a SyncStateSet of one member
failovers bigint elected in these days
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

WHAT_IF = table(
    "report/what_if",
    "Recorded failovers under the timeouts of other presets: analytics.what_if, counted.",
    "preset",
    """
preset string the preset that is asked about
timeout_ms bigint its heartbeat timeout
real_preset string the one that was in force
real_timeout_ms bigint its heartbeat timeout
failovers bigint recorded ones
same bigint would have taken as long
faster bigint would have been found sooner
slower bigint would have been found later
avoided bigint false ones that would not have happened
unknown bigint when the last heartbeat came is not on record
p50_ms bigint RTO as recorded, interpolated, of failovers whose change is known, rounded down
p95_ms bigint
p99_ms bigint
other_p50_ms bigint RTO under the preset, of the same without the avoided ones
other_p95_ms bigint
other_p99_ms bigint
availability_ppm bigint of all clusters, as recorded, in millionths
other_availability_ppm bigint under the preset, without false failovers on top; failovers of unknown change as recorded
""",
)

CALLERS = view(
    "report/callers",
    "Who did what: people and programs first, then brokers, the newest first.",
    "caller proved_by kind",
    SILVER_CALLERS.lines("caller proved_by kind events first_at last_at"),
    of=(SILVER_CALLERS,),
    # Brokers last: a fleet has thousands, whose registrations say little, and one person whose election says much.
    select="""
SELECT caller, proved_by, kind, sum(events) AS events, min(first_at) AS first_at, max(last_at) AS last_at
FROM callers GROUP BY caller, proved_by, kind
ORDER BY caller LIKE 'broker:%', last_at DESC, caller, proved_by, kind LIMIT 40
""",
)

TABLES = (
    AS_OF,
    CLUSTERS,
    FAILOVERS,
    RTO,
    RTO_HISTOGRAM,
    GRADES,
    CALENDAR,
    HEAT_MAP,
    WORST_SETS,
    WORST_NODES,
    CALLERS,
    WHAT_IF,
    QUALITY,
    REJECTED,
    *QUESTIONS,
)

GATHERED = tuple(table for table in TABLES if table is not WHAT_IF)
"""What the lake has an answer to by itself."""


class Contents(Frozen):
    """The input of a report: rows by the name of their table, and the lake that they come from."""

    rows: Mapping[str, Rows]
    lake: str
    lake_version: int
    made_at_ms: int
    why_no_what_if: str = "Nobody asked what another timeout would have done."
    """Said where ``what_if`` has no rows."""
    what_if_doubt: str = ""
    """Why the settings that are said to have been in force may not have been; empty = nothing speaks against them."""

    @property
    def made_at(self) -> datetime:
        """The moment of the report."""
        return datetime.fromtimestamp(self.made_at_ms / 1000, UTC)

    def of(self, table: LakeTable) -> Rows:
        """Rows of one table; empty if it is not there."""
        return self.rows.get(table.name, ())
