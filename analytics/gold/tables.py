"""
The tables and views of gold: every figure of the report, defined exactly.

Here: values only. Not here: how rows of tables are computed (``daily``, ``intervals``).

Rule 1: ``*_daily`` tables are additive: every column that is not in the key is a sum or a count of whole numbers, so
that ``group by`` over any days gives exactly the longer period's row. Percentiles are not additive; their histograms in
``rto_daily`` are, in whole milliseconds, rounded down.
Rule 2: a percentile is by nearest rank: the smallest duration with at least p percent of the failovers at or below it.
Rule 3: tables without ``_daily`` cover the whole lake; ``cluster`` "*" is all clusters together. They are computed from
the daily tables only, but for ``failovers``, which is one row per failover, and are views, but for ``quality``.
Rule 4: an open interval counts up to ``counted_until`` of its fleet.
Rule 5: most sets have nothing to tell on most days. Such a day of a set is quiet: it is counted per fleet in
``quiet_daily``, and is no row. From its first day on, a set has a row in ``sets_daily`` or is counted there, each day.
"""

from __future__ import annotations

from collections.abc import Iterable

from rollcall_ha.analytics.bronze.tables import BRONZE_GAPS
from rollcall_ha.analytics.codes import CAUSES, words
from rollcall_ha.analytics.lake.tables import FLEET_CLUSTER, ORDINALS_PER_INDEX, table, view
from rollcall_ha.analytics.silver.phases import SPANS, span_column
from rollcall_ha.analytics.silver.tables import (
    NOBODY,
    PAUSED,
    SILVER_BROKER_SETS,
    SILVER_CHAINS,
    SILVER_CLEANINGS,
    SILVER_ELECTIONS,
    SILVER_HORIZONS,
    SILVER_PHASES,
    SILVER_REIGNS,
    SILVER_STOPS,
)
from rollcall_ha.analytics.silver.turns import GENERATION_BITS, SILVER_RESTORES
from rollcall_ha.controller.contract.verdicts import Grade

ALL = "*"
"""``cluster``, or ``cause``, of a row for all of them together."""

FLAP_WINDOW_MS = 3_600_000
"""A failover less than this after the set's previous one is a flap."""

LEADER_SHADOW_MS = 30_000
"""A false alarm found less than this after its finder took the lead is put down to the change of controllers."""

ROUTE_LATE_MS = 1_000
"""Routes that converge later than this after SERVING are late."""

SLA_PPM = 999_900
"""Availability that a set should have on a day, in millionths: 99.99 %."""

SLO_PPM = 999_500
"""Availability that a set should have in a month, in millionths: 99.95 %. The rest is its error budget."""

PERCENTS = {"p50_ms": 50, "p90_ms": 90, "p95_ms": 95, "p99_ms": 99}


def _sums(names: Iterable[str], default: int | None = None) -> str:
    summed = "sum({0})" if default is None else f"coalesce(sum({{0}}), {default})"
    return ", ".join(f"{summed} AS {{0}}".format(name) for name in names)


def _bigints(names: Iterable[str]) -> str:
    """Lines of columns that mean what the line before them says."""
    return "\n".join(f"{name} bigint" for name in names)


def _divided(whole: str, part: str) -> str:
    """In whole numbers, rounded down; null if there is nothing to divide by."""
    # The quotient is whole, whatever type a program gives to "/", and the nearest number that it has to it is close.
    return f"CASE WHEN {part} > 0 THEN CAST(round(({whole} - {whole} % {part}) / {part}) AS bigint) END"


PPM = 1_000_000
AVAILABILITY = _divided(f"(CAST(available_ms AS decimal(20, 0)) * {PPM})", "observed_ms")
"""In millionths. As a decimal: a month of 6,400 sets, in ms and times a million, is more than 64 bits hold."""

_DAY_MS = 86_400_000
_DAY_NUMBER = "extract(DAY FROM CAST(day AS timestamp) - TIMESTAMP '1970-01-01 00:00:00')"
_TIMES = ("observed_ms", "available_ms", "outage_ms", "stopped_ms", "exposed_ms", "memberless_ms")

_OF_PHASES = f"""
{" ".join(map(span_column, SPANS))} total_us total_us_max waited_us unattributed_us dominating_phase missing_phases
backward_stamps grade loss_bytes cut_bytes regret_bytes
"""

GOLD_COUNTED_UNTIL = table(
    "gold/counted_until",
    "The horizon of each fleet: it is counted up to then. Nobody wrote down what happened since its last event.",
    "fleet",
    """
fleet string fleet incarnation
last_at timestamp stamp of its last event
until_at timestamp as the run was told (--until), at least last_at; else when it ran, if last_at was at most 7 days \
before that; else last_at
""",
)

GOLD_FLEETS = view(
    "gold/fleets",
    "One row per fleet, with a name for people: no event gives one, so it is made of its clusters and its first day.",
    "fleet",
    """
fleet string fleet incarnation, as in all of silver and gold
name string its first cluster, how many others there are, its first day, and the first four digits of fleet
incarnation string as rollcall status has it: that of the last restore, else fleet
restores bigint how often it was restored from a backup
first_at timestamp earliest stamp of its first day
last_at timestamp counted_until
until_at timestamp counted_until
""",
    of=(SILVER_HORIZONS, SILVER_RESTORES, GOLD_COUNTED_UNTIL),
    select=f"""
WITH lives AS (
  SELECT fleet, min(first_at) AS first_at, min(day) AS first_day,
         min(CASE WHEN cluster <> '{FLEET_CLUSTER}' THEN cluster END) AS one,
         count(DISTINCT CASE WHEN cluster <> '{FLEET_CLUSTER}' THEN cluster END) AS clusters
  FROM horizons GROUP BY fleet),
newest AS (
  SELECT origin, max(generation) AS restores, max_by(fleet, generation) AS incarnation FROM restores GROUP BY origin)
SELECT lives.fleet, first_at, last_at, until_at, coalesce(restores, 0) AS restores,
       coalesce(incarnation, lives.fleet) AS incarnation,
       concat(coalesce(one, 'no cluster'),
              CASE WHEN clusters > 1 THEN concat(' and ', CAST(clusters - 1 AS string), ' more') ELSE '' END, ' since ',
              CAST(first_day AS string), ' (', substr(lives.fleet, 1, 4), ')') AS name
FROM lives JOIN counted_until u ON u.fleet = lives.fleet LEFT JOIN newest ON newest.origin = lives.fleet
""",
)

GOLD_FAILOVERS = table(
    "gold/failovers",
    "One row per failover (silver.phases where is_failover), judged.",
    "fleet cluster broker_set master_epoch",
    f"""
cluster string cluster
day date UTC date of the election
fleet string fleet incarnation
broker_set string name of the set
master_epoch bigint the epoch that began
elected_at timestamp stamp of the election
kind string failover or unclean
cause string what its length tells of: {PAUSED}: an election of it was withheld, as elections were paused; \
{NOBODY}: it is unclean, an election found nobody, or the winner itself was gone when it began; else found_by
found_by string how the fault was found: {words(CAUSES)}; the kind where nothing was stamped
from_master int deposed master
to_master int winner
{SILVER_PHASES.lines(_OF_PHASES)}
lost_at timestamp begin of the outage: election minus fault age, else finding of the master's silence, else the election
served_at timestamp end of the outage (silver.reigns.served_at); null = never served
outage_ms bigint served_at - lost_at; never served: up to the next election or the set's cleaning, else horizon; \
null = never served, and the next failover began with the same loss: it has this outage whole
is_open boolean never served, nobody was elected since, and the set was not cleaned
heard_again_after_ms bigint from the finding of the silence to the same incarnation's return; null = it did not return
is_false_positive boolean the deposed incarnation itself came back: its process had lived all the time
leader_change_age_ms bigint from the last change of the leading controller to the silence's finding; null = none before
is_controller_caused boolean a false positive less than LEADER_SHADOW_MS after a change of the leading controller
since_previous_ms bigint from the set's previous failover to this one; null = its first
is_flap boolean since_previous_ms is less than FLAP_WINDOW_MS
route_late_ms bigint route_converged_us - total_us, in ms; null = not reported
is_route_late boolean route_late_ms is more than ROUTE_LATE_MS
""",
)

# DuckDB's count_if of nothing but nulls is null: a day whose failovers have no grade yet would have no number of those
# that are proven.
_GRADES = ", ".join(f"count(CASE WHEN grade = '{one}' THEN 1 END) AS {one}" for one in Grade)

GOLD_FAILOVERS_DAILY = view(
    "gold/failovers_daily",
    "Counts of failovers, by kind and cause.",
    "fleet cluster day kind cause",
    """
fleet string fleet incarnation
cluster string cluster
day date UTC date of the elections
kind string failover or unclean
cause string as gold.failovers.cause
failovers bigint how many
open bigint is_open
timed bigint with a total_us
incomplete bigint with a missing phase
backward_stamps bigint quarantined stamps
false_positives bigint is_false_positive
controller_caused bigint is_controller_caused
flaps bigint is_flap
proven bigint grade proven
bounded bigint grade bounded
unknown bigint grade unknown
refuted bigint grade refuted: an alarm
ungraded bigint no grade
loss_bytes bigint sum, where known
cut_bytes bigint sum, where the old master is back
regretted bigint regret_bytes > 0
regret_bytes bigint sum
outage_ms bigint sum
routed bigint with a report that routes converged, and a total_us
routes_late bigint is_route_late
""",
    of=(GOLD_FAILOVERS,),
    select=f"""
SELECT fleet, cluster, day, kind, cause, count(*) AS failovers, count_if(is_open) AS open, count(total_us) AS timed,
       count_if(missing_phases > 0) AS incomplete, sum(backward_stamps) AS backward_stamps,
       count_if(is_false_positive) AS false_positives, count_if(is_controller_caused) AS controller_caused,
       count_if(is_flap) AS flaps, {_GRADES},
       count_if(grade IS NULL) AS ungraded, coalesce(sum(loss_bytes), 0) AS loss_bytes,
       coalesce(sum(cut_bytes), 0) AS cut_bytes, count_if(regret_bytes > 0) AS regretted,
       coalesce(sum(regret_bytes), 0) AS regret_bytes, coalesce(sum(outage_ms), 0) AS outage_ms,
       count(route_late_ms) AS routed, count_if(is_route_late) AS routes_late
FROM failovers GROUP BY fleet, cluster, day, kind, cause
""",
)

GOLD_RTO_DAILY = table(
    "gold/rto_daily",
    "Histograms of durations: failovers by phase and whole milliseconds.",
    "fleet cluster day kind cause phase duration_ms",
    f"""
{GOLD_FAILOVERS_DAILY.lines("fleet cluster day kind cause")}
phase string detected ... serving, total, waited (after SERVING, by a sender), unattributed, outage
duration_ms bigint whole milliseconds, rounded down
failovers bigint how many
dominated bigint of these failovers in which this phase took longest
""",
)

GOLD_DOMINANCE_DAILY = view(
    "gold/dominance_daily",
    "Which phase took longest, by cause.",
    "fleet cluster day kind cause phase",
    f"""
{GOLD_FAILOVERS_DAILY.lines("fleet cluster day kind cause")}
phase string dominating_phase
failovers bigint in how many
duration_us bigint sum of its durations in those
""",
    of=(GOLD_FAILOVERS,),
    select="""
SELECT fleet, cluster, day, kind, cause, dominating_phase AS phase, count(*) AS failovers,
       sum(greatest(detected_us, proposed_us, committed_us, notified_us, promised_us, role_applied_us, serving_us))
           AS duration_us
FROM failovers WHERE dominating_phase IS NOT NULL GROUP BY fleet, cluster, day, kind, cause, dominating_phase
""",
)

GOLD_ELECTIONS_DAILY = view(
    "gold/elections_daily",
    "Elections of every kind, by policy.",
    "fleet cluster day policy kind",
    """
fleet string fleet incarnation
cluster string cluster
day date UTC date
policy string policy and version
kind string as silver.elections.kind; "none" = nobody was eligible
elections bigint how many
regretted bigint regret_bytes > 0
regret_bytes bigint sum
estimated_loss_bytes bigint sum of the estimates of unclean ones
""",
    of=(SILVER_ELECTIONS,),
    select="""
SELECT fleet, cluster, day, policy, kind, count(*) AS elections, count_if(regret_bytes > 0) AS regretted,
       coalesce(sum(regret_bytes), 0) AS regret_bytes, coalesce(sum(estimated_loss_bytes), 0) AS estimated_loss_bytes
FROM (SELECT fleet, cluster, day, policy, coalesce(kind, 'none') AS kind, regret_bytes, estimated_loss_bytes
      FROM elections) AS held
GROUP BY fleet, cluster, day, policy, kind
""",
)

GOLD_SETS_DAILY = table(
    "gold/sets_daily",
    "Availability and exposure of each set on days that were not quiet (quiet_daily), and on its first one. "
    "A tenure that an election of any kind ended is lost at gold.failovers.lost_at. A tenure that no election ended "
    "lasts up to the set's cleaning or the horizon; it is lost when its master fell silent, said goodbye or ended for "
    "the first time since its election without coming back as the same process (silver.silences, found_at minus "
    "fault_age_us).",
    "cluster day fleet broker_set",
    """
cluster string cluster
day date UTC date
fleet string fleet incarnation
broker_set string name of the set
begun bigint 1 on the first day on which the set is observed, also when it comes back after it was cleaned; else 0
ended bigint 1 on the day on which the set was cleaned, if it was not observed again on it; else 0
observed_ms bigint from the first serving master to the set's cleaning, else to counted_until, within the day
available_ms bigint with a master that takes writes: from served_at to the loss of each tenure, less stopped_ms
outage_ms bigint observed_ms - available_ms
stopped_ms bigint of outage_ms: writes had stopped, and no reign changed (silver.stops)
exposed_ms bigint with fewer members in the SyncStateSet than the set needs (silver.sync_state_sets.members_needed)
memberless_ms bigint with an empty SyncStateSet
below_sla bigint 1 if available_ms is less than SLA_PPM of observed_ms, else 0
failovers bigint elected on the day
false_positives bigint of these
controller_caused bigint of these
flaps bigint of these
""",
)

GOLD_QUIET_DAILY = table(
    "gold/quiet_daily",
    "Sets without a row in sets_daily: observed and available all day, never exposed, no failover.",
    "cluster day fleet",
    f"""
{GOLD_SETS_DAILY.lines("cluster day fleet")}
sets bigint how many; each of them was observed and available for 86,400,000 ms
""",
)

GOLD_HOLES = view(
    "gold/holes",
    "Where the record of a set, or of its fleet, has a hole. Figures of that time are too good: hidden_ms of set_days "
    "and of sets_monthly.",
    "fleet seq what",
    f"""
{GOLD_FAILOVERS.lines("fleet")}
cluster string cluster of the set; null = all of the fleet
broker_set string name of the set; null = all of the fleet
what string elections: the next election of the set follows an epoch of which nothing is known; chain: the event does \
not continue the hash chain of the one before; restore: controllers were lost and put back
may_hide string what may have happened between from_at and to_at
seq bigint of the event behind the hole, as in silver: its Raft index is floor(seq / {ORDINALS_PER_INDEX}), less \
{1 << (GENERATION_BITS - 20)} for each restore before it
from_seq bigint of the event that from_at is of; null = none is known
from_at timestamp stamp of the last election of the set, or event of the fleet, that is known before it; null = none is
to_at timestamp stamp of the event behind it
master_epoch bigint epoch of the election behind the hole; null = no epoch is missing
known_epoch bigint the last epoch before it that is on record
previous_epoch bigint the epoch that it followed; its election is missing
""",
    of=(SILVER_REIGNS, SILVER_BROKER_SETS, SILVER_CLEANINGS, SILVER_CHAINS, SILVER_RESTORES, SILVER_HORIZONS),
    # The first election on record is no sign of a hole: a set may have come from another fleet with its epochs. Nor is
    # the first one after a cleaning, which begins an epoch itself. By ``||`` the first run of a fleet continues
    # nothing, and is no hole; DuckDB's concat would take it for one that continues an empty hash.
    select=f"""
SELECT fleet, cluster, broker_set, 'elections' AS what, 'failovers of this set, with their outages and losses'
           AS may_hide, elected_seq AS seq, from_seq, from_at, elected_at AS to_at, master_epoch, known_epoch,
       previous_epoch
FROM (SELECT set_id, master_epoch, previous_epoch, elected_at, elected_seq,
             lag(elected_seq) OVER (PARTITION BY set_id ORDER BY master_epoch) AS from_seq,
             lag(master_epoch) OVER (PARTITION BY set_id ORDER BY master_epoch) AS known_epoch,
             lag(elected_at) OVER (PARTITION BY set_id ORDER BY master_epoch) AS from_at FROM reigns) AS held
JOIN broker_sets USING (set_id) WHERE previous_epoch > known_epoch AND NOT EXISTS (
  SELECT 1 FROM cleanings c WHERE c.set_id = held.set_id AND c.seq > held.from_seq AND c.seq < held.elected_seq)
UNION ALL
SELECT fleet, NULL, NULL, 'chain', 'anything in any set: events between are missing, or that one was changed',
       first_seq, from_seq, from_at, first_at, NULL, NULL, NULL
FROM (SELECT *, lag(last_seq) OVER (PARTITION BY fleet, generation ORDER BY first_seq) AS from_seq,
             lag(last_at) OVER (PARTITION BY fleet, generation ORDER BY first_seq) AS from_at,
             lag(last_chain) OVER (PARTITION BY fleet, generation ORDER BY first_seq) AS from_chain FROM chains) AS runs
WHERE from_chain = '' OR sha2(from_chain || first_text, 256) <> first_chain
UNION ALL
SELECT origin, NULL, NULL, 'restore', 'all that brokers did without controllers, and that the lost ones did behind the '
       || 'last event here', r.generation * {1 << GENERATION_BITS} + (backup_index + 1) * {ORDINALS_PER_INDEX},
       max(h.last_seq), max_by(h.last_at, h.last_seq), restored_at, NULL, NULL, NULL
FROM restores r LEFT JOIN horizons h ON h.fleet = r.origin AND h.generation < r.generation
GROUP BY origin, r.generation, backup_index, restored_at
""",
)

GOLD_SET_DAYS = view(
    "gold/set_days",
    "sets_daily with the quiet days: one row per set and day from the first on which it was observed to the last. "
    "sum(available_ms) / sum(observed_ms) of any of these days is the availability of a set in that time.",
    "cluster fleet broker_set day",
    f"""
{GOLD_SETS_DAILY.lines("cluster day fleet broker_set")}
{GOLD_SETS_DAILY.lines("observed_ms available_ms outage_ms stopped_ms exposed_ms memberless_ms failovers")}
hidden_ms bigint of observed_ms: within a hole of the record, so that nobody knows whether it was available
""",
    of=(GOLD_SETS_DAILY, GOLD_QUIET_DAILY, GOLD_HOLES),
    # A day on which any set of the cluster was observed is in one of the two tables, so together they are the calendar.
    select=f"""
WITH calendar AS (SELECT cluster, fleet, day FROM sets_daily UNION SELECT cluster, fleet, day FROM quiet_daily),
lives AS (
  SELECT cluster, fleet, broker_set, day AS first_day, begun, min(CASE WHEN ended = 1 THEN day END) OVER (
           PARTITION BY cluster, fleet, broker_set ORDER BY day ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING)
           AS last_day
  FROM sets_daily),
quiet AS (
  SELECT lives.cluster, lives.fleet, lives.broker_set, calendar.day
  FROM lives JOIN calendar ON lives.cluster = calendar.cluster AND lives.fleet = calendar.fleet
       AND calendar.day > first_day AND (last_day IS NULL OR calendar.day < last_day)
  WHERE begun = 1),
days AS (
  SELECT cluster, day, fleet, broker_set, observed_ms, available_ms, outage_ms, stopped_ms, exposed_ms, memberless_ms,
         failovers FROM sets_daily
  UNION ALL
  SELECT quiet.cluster, quiet.day, quiet.fleet, quiet.broker_set, {_DAY_MS}, {_DAY_MS}, 0, 0, 0, 0, 0
  FROM quiet LEFT JOIN sets_daily AS told
    ON told.cluster = quiet.cluster AND told.fleet = quiet.fleet AND told.broker_set = quiet.broker_set
       AND told.day = quiet.day
  WHERE told.day IS NULL),
-- Holes are few, and so are the days that they touch.
begins AS (SELECT *, CAST({_DAY_NUMBER} AS bigint) * {_DAY_MS} AS begin_ms FROM days),
spans AS (
  SELECT d.cluster, d.fleet, d.broker_set, d.day, greatest(unix_millis(from_at), begin_ms) AS since_ms,
         least(unix_millis(to_at), begin_ms + {_DAY_MS}) AS until_ms
  FROM begins d JOIN holes h ON h.fleet = d.fleet AND unix_millis(from_at) < begin_ms + {_DAY_MS}
       AND unix_millis(to_at) > begin_ms
       AND (h.broker_set IS NULL OR (h.broker_set = d.broker_set AND h.cluster = d.cluster))),
-- A missing hour breaks the chain, and hides elections: each of its moments counts once.
apart AS (
  SELECT *, greatest(since_ms, coalesce(max(until_ms) OVER (
             PARTITION BY cluster, fleet, broker_set, day ORDER BY since_ms, until_ms
             ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), since_ms)) AS from_ms FROM spans),
hidden AS (
  SELECT cluster, fleet, broker_set, day, sum(greatest(0, until_ms - from_ms)) AS lasted_ms
  FROM apart GROUP BY cluster, fleet, broker_set, day)
SELECT days.*, least(observed_ms, coalesce(lasted_ms, 0)) AS hidden_ms
FROM days LEFT JOIN hidden ON hidden.cluster = days.cluster AND hidden.fleet = days.fleet
     AND hidden.broker_set = days.broker_set AND hidden.day = days.day
""",
)

GOLD_SETS_MONTHLY = view(
    "gold/sets_monthly",
    "set_days by month: one row per set and month, quiet or not, with its error budget.",
    "cluster fleet broker_set month",
    f"""
{GOLD_SETS_DAILY.lines("cluster fleet broker_set")}
month date first day of the month, in UTC
observed_ms bigint set_days, summed
{_bigints((*_TIMES[1:], "failovers", "hidden_ms"))}
availability_ppm bigint available_ms * 1,000,000 / observed_ms, rounded down
budget_ms bigint how long it may have been out of service in the time observed: observed_ms less SLO_PPM of it
budget_left_ms bigint budget_ms - outage_ms; below 0 = the month missed SLO_PPM
""",
    of=(GOLD_SET_DAYS,),
    select=f"""
WITH months AS (
  SELECT cluster, fleet, broker_set, CAST(date_trunc('month', day) AS date) AS month,
         {_sums((*_TIMES, "failovers", "hidden_ms"))}
  FROM set_days GROUP BY cluster, fleet, broker_set, CAST(date_trunc('month', day) AS date)),
allowed AS (SELECT *, {_divided(f"(observed_ms * {PPM - SLO_PPM})", str(PPM))} AS budget_ms FROM months)
SELECT *, {AVAILABILITY} AS availability_ppm, budget_ms - outage_ms AS budget_left_ms FROM allowed
""",
)

GOLD_NODES_DAILY = table(
    "gold/nodes_daily",
    "Silences of each replica, on days that have any, or on which it was gone; none with returned_seq = seq.",
    "cluster day fleet broker_set broker_id",
    f"""
{GOLD_SETS_DAILY.lines("cluster day fleet broker_set")}
broker_id int the replica
faults bigint times that it was found silent on this day, goodbyes not counted
goodbyes bigint clean stops on this day
timeouts bigint faults found by the heartbeat timeout
false_alarms bigint faults after which the same incarnation came back
masters_lost bigint failovers of this day that deposed it
gone_ms bigint within the day: from the finding to the return, else to the horizon
""",
)

# In whole numbers, place / whole >= percent / 100: with fractions 99 % of 100 would be place 99.00000000000001, and so
# the next one.
_RANKS = ", ".join(
    f"min(CASE WHEN place * 100 >= whole * {percent} THEN duration_ms END) AS {name}"
    for name, percent in PERCENTS.items()
)

_GROUPINGS = ", ".join(
    f"({of}{by}phase, duration_ms)"
    for of in ("fleet, cluster, ", "")
    for by in ("kind, cause, ", "cause, ", "kind, ", "")
)

GOLD_RTO = view(
    "gold/rto",
    "Percentiles by phase, kind and cause, from rto_daily. kind, cause '*' = all; fleet '*' = all fleets and clusters.",
    "fleet cluster kind cause phase",
    """
fleet string fleet incarnation
cluster string cluster; '*' where fleet is: a cluster itself may have that name
kind string failover or unclean
cause string as gold.failovers.cause
phase string as rto_daily.phase
failovers bigint with this duration
p50_ms bigint nearest rank, whole milliseconds
p90_ms bigint
p95_ms bigint
p99_ms bigint
max_ms bigint
dominated bigint failovers in which this phase took longest
""",
    of=(GOLD_RTO_DAILY,),
    select=f"""
WITH bins AS (
  SELECT coalesce(fleet, '*') AS fleet, coalesce(cluster, '*') AS cluster, coalesce(kind, '*') AS kind,
         coalesce(cause, '*') AS cause, phase, duration_ms, sum(failovers) AS many, sum(dominated) AS dominated
  FROM rto_daily GROUP BY GROUPING SETS ({_GROUPINGS})),
ranked AS (
  SELECT *, sum(many) OVER (PARTITION BY fleet, cluster, kind, cause, phase ORDER BY duration_ms) AS place,
         sum(many) OVER (PARTITION BY fleet, cluster, kind, cause, phase) AS whole FROM bins)
SELECT fleet, cluster, kind, cause, phase, sum(many) AS failovers, {_RANKS}, max(duration_ms) AS max_ms,
       sum(dominated) AS dominated
FROM ranked GROUP BY fleet, cluster, kind, cause, phase
""",
)

_OF_FAILOVERS = (
    *("failovers", "open", "false_positives", "controller_caused", "flaps", "incomplete", "backward_stamps"),
    *(*Grade, "ungraded", "loss_bytes", "cut_bytes", "regretted", "regret_bytes", "routed", "routes_late"),
)

GOLD_CLUSTERS = view(
    "gold/clusters",
    "One row per cluster of each fleet, and one of all: there fleet and cluster are '*'.",
    "fleet cluster",
    f"""
fleet string fleet incarnation
cluster string cluster
first_day date first day with an event
last_day date last day with an event
sets bigint sets with a serving master at some time
failovers bigint as failovers_daily, summed
{_bigints(_OF_FAILOVERS[1:])}
observed_ms bigint sets_daily and quiet_daily, summed
available_ms bigint
outage_ms bigint
stopped_ms bigint
exposed_ms bigint
set_days_below_sla bigint
availability_ppm bigint available_ms * 1,000,000 / observed_ms, rounded down
""",
    of=(SILVER_HORIZONS, GOLD_FAILOVERS_DAILY, GOLD_SETS_DAILY, GOLD_QUIET_DAILY),
    select=f"""
WITH lives AS (
  SELECT fleet, cluster, min(day) AS first_day, max(day) AS last_day FROM horizons
  WHERE cluster <> '{FLEET_CLUSTER}' GROUP BY fleet, cluster),
failed AS (SELECT fleet, cluster, {_sums(_OF_FAILOVERS)} FROM failovers_daily GROUP BY fleet, cluster),
told AS (
  SELECT fleet, cluster, count(DISTINCT broker_set) AS sets, {_sums(_TIMES[:-1])}, sum(below_sla) AS set_days_below_sla
  FROM sets_daily GROUP BY fleet, cluster),
quiet AS (SELECT fleet, cluster, sum(sets) * {_DAY_MS} AS quiet_ms FROM quiet_daily GROUP BY fleet, cluster),
summed AS (
  SELECT coalesce(fleet, '*') AS fleet, coalesce(cluster, '*') AS cluster, min(first_day) AS first_day,
         max(last_day) AS last_day,
         {_sums(("sets", *_OF_FAILOVERS, "outage_ms", "stopped_ms", "exposed_ms", "set_days_below_sla"), 0)},
         coalesce(sum(observed_ms), 0) + coalesce(sum(quiet_ms), 0) AS observed_ms,
         coalesce(sum(available_ms), 0) + coalesce(sum(quiet_ms), 0) AS available_ms
  FROM lives LEFT JOIN failed USING (fleet, cluster) LEFT JOIN told USING (fleet, cluster)
  LEFT JOIN quiet USING (fleet, cluster) GROUP BY GROUPING SETS ((fleet, cluster), ()) HAVING count(*) > 0)
SELECT *, {AVAILABILITY} AS availability_ppm FROM summed
""",
)

GOLD_FELT = view(
    "gold/felt",
    "What probes felt beside the record: a row per gap, and per fleet if several have outages of that set then. An "
    "outage belongs to a gap that it meets, give or take a second. A gap that the probe alone knows has outages 0 and "
    "fleet '': stops below stall_ms, and stops of writes of RocketMQ's brokers.",
    "cluster broker_set from_at felt_ms fleet",
    f"""
{BRONZE_GAPS.lines("cluster broker_set day from_at felt_ms stalled_ms sends_failed is_over reason")}
fleet string fleet incarnation whose record has it; "" = none has
outages bigint reigns and stops of writes that met it; a stop that an election ended is part of that reign's
kind string as silver.reigns.kind, or writes-stopped; of several the first by name; null = none
recorded_ms bigint total_us and stopped_us of these, in ms, rounded down; null = nobody told how long one lasted, as \
of RocketMQ's brokers
difference_ms bigint felt_ms - recorded_ms
""",
    of=(BRONZE_GAPS, SILVER_REIGNS, SILVER_STOPS, SILVER_BROKER_SETS),
    select="""
WITH known AS (
  SELECT one.set_id, one.kind, one.total_us AS recorded_us, coalesce(old.lost_at, one.elected_at) AS begun_at,
         coalesce(one.served_at, one.ended_at) AS over_at
  FROM reigns AS one LEFT JOIN reigns AS old ON old.set_id = one.set_id AND old.next_epoch = one.master_epoch
  UNION ALL
  SELECT set_id, 'writes-stopped' AS kind, stopped_us AS recorded_us, began_at AS begun_at, ended_at AS over_at
  FROM stops WHERE ended_by IS NULL OR ended_by <> 'master-elected'),
told AS (
  SELECT fleet, cluster, broker_set, kind, recorded_us, begun_at, over_at FROM known JOIN broker_sets USING (set_id)),
met AS (
  SELECT felt.cluster, felt.broker_set, felt.day, felt.from_at, felt.felt_ms, felt.stalled_ms, felt.sends_failed,
         felt.is_over, felt.reason, coalesce(told.fleet, '') AS fleet, told.kind, told.recorded_us
  FROM gaps AS felt LEFT JOIN told ON told.cluster = felt.cluster AND told.broker_set = felt.broker_set
       AND told.begun_at <= felt.near_to_at AND (told.over_at IS NULL OR told.over_at >= felt.near_from_at)),
summed AS (
  SELECT cluster, broker_set, day, from_at, felt_ms, stalled_ms, sends_failed, is_over, reason, fleet,
         count(kind) AS outages, min(kind) AS kind, sum(recorded_us) AS recorded_us
  FROM met GROUP BY cluster, broker_set, day, from_at, felt_ms, stalled_ms, sends_failed, is_over, reason, fleet),
timed AS (SELECT *, CAST(round((recorded_us - recorded_us % 1000) / 1000) AS bigint) AS recorded_ms FROM summed)
SELECT *, felt_ms - recorded_ms AS difference_ms FROM timed
""",
)

_COUNTS = ("failovers", "false_positives", "controller_caused", "flaps")

GOLD_SETS = view(
    "gold/sets",
    "One row per set: the worst offenders.",
    "cluster fleet broker_set",
    f"""
cluster string cluster
fleet string fleet incarnation
broker_set string name of the set
observed_ms bigint sets_daily, summed, and the set's quiet days up to its cleaning or counted_until
{_bigints((*_TIMES[1:], "days_below_sla", *_COUNTS))}
availability_ppm bigint as clusters.availability_ppm
mtbf_ms bigint available_ms / failovers, rounded down; null = no failover
""",
    of=(GOLD_COUNTED_UNTIL, GOLD_SETS_DAILY),
    select=f"""
WITH ends AS (
  SELECT fleet, CAST(floor((unix_millis(until_at) - 1) / {_DAY_MS}) AS bigint) AS last_number
  FROM counted_until),
days AS (
  SELECT told.*, last_number - {_DAY_NUMBER} AS days_left
  FROM sets_daily AS told JOIN ends ON told.fleet = ends.fleet),
-- While it is observed a set has a row each day, or the day was quiet.
summed AS (
  SELECT cluster, fleet, broker_set, {_sums((*_TIMES, *_COUNTS))}, sum(below_sla) AS days_below_sla,
         (sum(begun * (days_left + 1) - ended * days_left) - count_if(observed_ms > 0)) * {_DAY_MS} AS quiet_ms
  FROM days GROUP BY cluster, fleet, broker_set),
whole AS (
  SELECT cluster, fleet, broker_set, observed_ms + quiet_ms AS observed_ms, available_ms + quiet_ms AS available_ms,
         outage_ms, stopped_ms, exposed_ms, memberless_ms, days_below_sla, {", ".join(_COUNTS)} FROM summed)
SELECT *, {AVAILABILITY} AS availability_ppm, {_divided("available_ms", "failovers")} AS mtbf_ms FROM whole
""",
)

GOLD_NODES = view(
    "gold/nodes",
    "One row per replica that was ever gone.",
    "cluster fleet broker_set broker_id",
    """
cluster string cluster
fleet string fleet incarnation
broker_set string name of the set
broker_id int the replica
faults bigint as nodes_daily, summed
goodbyes bigint
timeouts bigint
false_alarms bigint
masters_lost bigint
gone_ms bigint
observed_ms bigint of its set
mtbf_ms bigint (observed_ms - gone_ms) / faults, at least 0, rounded down; null = no fault
""",
    of=(GOLD_NODES_DAILY, GOLD_SETS),
    select=f"""
WITH summed AS (
  SELECT cluster, fleet, broker_set, broker_id,
         {_sums(("faults", "goodbyes", "timeouts", "false_alarms", "masters_lost", "gone_ms"))}
  FROM nodes_daily GROUP BY cluster, fleet, broker_set, broker_id),
whole AS (
  SELECT summed.*, coalesce(observed_ms, 0) AS observed_ms
  FROM summed LEFT JOIN sets USING (cluster, fleet, broker_set))
SELECT *, {_divided("greatest(0, observed_ms - gone_ms)", "faults")} AS mtbf_ms FROM whole
""",
)

GOLD_QUALITY = table(
    "gold/quality",
    "Data quality of the whole lake: bronze.quality over all files, and rows left out later.",
    "name",
    """
name string as bronze.quality.name; or backward_stamps, incomplete, open, negative_intervals, orphans
count bigint how many
""",
)

GOLD = (
    GOLD_COUNTED_UNTIL,
    GOLD_FAILOVERS,
    GOLD_RTO_DAILY,
    GOLD_SETS_DAILY,
    GOLD_QUIET_DAILY,
    GOLD_NODES_DAILY,
    GOLD_QUALITY,
)

GOLD_VIEWS = (
    GOLD_FLEETS,
    GOLD_HOLES,
    GOLD_FELT,
    GOLD_SET_DAYS,
    GOLD_SETS_MONTHLY,
    GOLD_FAILOVERS_DAILY,
    GOLD_DOMINANCE_DAILY,
    GOLD_ELECTIONS_DAILY,
    GOLD_RTO,
    GOLD_CLUSTERS,
    GOLD_SETS,
    GOLD_NODES,
)
