"""
The tables of a report: small aggregates of gold, one per picture, with their limits.

Here: values only. Not here: how they are gathered (``gather``), drawn (the pictures), written (``files``).
Rule 1: every table has a greatest number of rows; nothing else of a lake leaves Spark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rollcall_ha.analytics.gold.tables import (
    GOLD_CLUSTERS,
    GOLD_FAILOVERS,
    GOLD_NODES,
    GOLD_QUALITY,
    GOLD_RTO,
    GOLD_SETS,
)
from rollcall_ha.analytics.lake.tables import LakeColumn, LakeTable, columns_of
from rollcall_ha.analytics.report.questions import QUESTIONS

SLOWEST_FAILOVERS_MAX = 5
NEWEST_FAILOVERS_MAX = 5
TYPICAL_CAUSES_MAX = 6
RTO_ROWS_MAX = 100
HISTOGRAM_BINS_MAX = 600
CALENDAR_DAYS_MAX = 3 * 366
HEAT_MAP_SETS_MAX = 40
HEAT_MAP_COLUMNS_MAX = 48
WORST_SETS_MAX = 12
WORST_NODES_MAX = 12
GRADE_CAUSES_MAX = 12
CLUSTERS_MAX = 50
CALLERS_MAX = 40
QUALITY_ROWS_MAX = 100
WHAT_IF_PRESETS_MAX = 3


def _report(table: LakeTable, name: str, meaning: str, *, extra: tuple[LakeColumn, ...] = ()) -> LakeTable:
    return replace(table, layer="report", name=name, meaning=meaning, partition="", columns=(*table.columns, *extra))


FAILOVERS = _report(
    GOLD_FAILOVERS,
    "failovers",
    "The failovers that are drawn as bars: the typical one of each cause, the slowest, the newest.",
    extra=columns_of("shown_as string typical, slowest, newest; several with a comma"),
)
RTO = _report(GOLD_RTO, "rto", "Percentiles by phase and cause, all clusters together.")
CLUSTERS = _report(GOLD_CLUSTERS, "clusters", "All clusters together (*), then those with most time without a master.")
WORST_SETS = _report(GOLD_SETS, "worst_sets", "Sets with most time without a master, then most exposure.")
WORST_NODES = _report(GOLD_NODES, "worst_nodes", "Replicas with most faults, then longest gone.")
QUALITY = _report(GOLD_QUALITY, "quality", "Counts of input lines and of lines that gave no event.")

RTO_HISTOGRAM = LakeTable(
    layer="report",
    name="rto_histogram",
    meaning="RTO of failovers in bins, ten for each power of ten, by cause.",
    key=("cause", "bin"),
    partition="",
    columns=columns_of(
        """
cause string as gold.failovers.cause
bin bigint from 10 ** (bin / 10) ms up to, but not with, 10 ** ((bin + 1) / 10); less than 1 ms counts as 1 ms
failovers bigint how many
"""
    ),
)

CALENDAR = LakeTable(
    layer="report",
    name="calendar",
    meaning="Sums over all sets per day.",
    key=("day",),
    partition="",
    columns=columns_of(
        """
day date UTC date
sets bigint sets that were observed
exposed_ms bigint with a SyncStateSet of one member
outage_ms bigint without a serving master
failovers bigint elected on the day
"""
    ),
)

HEAT_MAP = LakeTable(
    layer="report",
    name="heat_map",
    meaning="The sets with most time without a master, in columns of as many days as fit.",
    key=("rank", "from_day"),
    partition="",
    columns=columns_of(
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
"""
    ),
)

GRADES = LakeTable(
    layer="report",
    name="grades",
    meaning="Grades of loss by cause.",
    key=("cause",),
    partition="",
    columns=columns_of(
        """
cause string as gold.failovers.cause
failovers bigint how many
proven bigint grade proven
bounded bigint grade bounded
unknown bigint grade unknown
refuted bigint grade refuted: an alarm
ungraded bigint no grade
loss_bytes bigint sum, where known
cut_bytes bigint thrown away by old masters that are back
"""
    ),
)

WHAT_IF = LakeTable(
    layer="report",
    name="what_if",
    meaning="Recorded failovers under the timeouts of other presets: analytics.what_if, counted.",
    key=("preset",),
    partition="",
    columns=columns_of(
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
"""
    ),
)

CALLERS = LakeTable(
    layer="report",
    name="callers",
    meaning="Who did what: people and programs first, then brokers, the newest first.",
    key=("caller", "proved_by", "kind"),
    partition="",
    columns=columns_of(
        """
caller string admin:alice, broker:broker-a-1
proved_by string certificate, token, signature, nothing
kind string kind of the event
events bigint how many
first_at_ms bigint earliest stamp
last_at_ms bigint latest stamp
"""
    ),
)

TABLES = (
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
    *(question.table for question in QUESTIONS),
)

Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The input of a report: rows by the name of their table, and the lake that they come from."""

    rows: Mapping[str, Rows]
    lake: str
    lake_version: int
    made_at_ms: int
    why_no_what_if: str = "Nobody asked what another timeout would have done."
    """Said where ``what_if`` has no rows."""
    what_if_doubt: str = ""
    """Why the settings that are said to have been in force may not have been; empty = nothing speaks against them."""

    def of(self, table: LakeTable) -> Rows:
        """Rows of one table; empty if it is not there."""
        return self.rows.get(table.name, ())
