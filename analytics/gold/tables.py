"""
The gold tables: every figure of the report, defined exactly.

Here: values only. Not here: how they are computed (``gold``).

Rule 1: ``*_daily`` tables are additive: every column that is not in the key is a sum or a count of whole numbers, so
that ``group by`` over any days gives exactly the longer period's row. Percentiles are not additive; their histograms in
``rto_daily`` are, in whole milliseconds, rounded down.
Rule 2: a percentile is by nearest rank: the smallest duration with at least p percent of the failovers at or below it.
Rule 3: tables without ``_daily`` cover the whole lake; ``cluster`` "*" is all clusters together. They are computed from
the daily tables only, but for ``failovers``, which is one row per failover.
Rule 4: an open interval counts up to the last event of its fleet.
Rule 5: most sets have nothing to tell on most days. Such a day of a set is quiet: it is counted per fleet in
``quiet_daily``, and is no row. From its first day on, a set has a row in ``sets_daily`` or is counted there, each day.
"""

from __future__ import annotations

from rollcall_ha.analytics.lake.tables import LakeTable, columns_of

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

GOLD_FAILOVERS = LakeTable(
    layer="gold",
    name="failovers",
    meaning="One row per failover (silver.reigns where is_failover), judged.",
    key=("fleet", "cluster", "broker_set", "master_epoch"),
    columns=columns_of(
        """
cluster string cluster
day date UTC date of the election
fleet string fleet incarnation
broker_set string name of the set
master_epoch bigint the epoch that began
elected_at_ms bigint stamp of the election
kind string failover or unclean
cause string timeout, dead-at-once, replaced, goodbye, revoked, or the kind where nothing was stamped
from_master int deposed master
to_master int winner
detected_us bigint phases as in silver.reigns
proposed_us bigint
committed_us bigint
notified_us bigint
promised_us bigint
role_applied_us bigint
serving_us bigint
first_ack_us bigint
total_us bigint RTO: first sign of the fault to SERVING
total_us_max bigint RTO from the last sure sign of life; equal if the fault was seen; null = no bound is known
waited_us bigint what a sender waited after that; null = not told
unattributed_us bigint RTO minus the phases
dominating_phase string phase with the greatest duration
missing_phases int phases without a duration
backward_stamps int quarantined stamps
grade string proven, bounded, unknown, refuted; null = not graded
loss_bytes bigint lost at most; null = unknown
cut_bytes bigint thrown away by the old master; null = not back
regret_bytes bigint how much more than the winner an eligible candidate held
lost_at_ms bigint begin of the outage: election minus fault age, else the finding of the silence, else the election
served_at_ms bigint end of the outage (silver.tenures.served_at_ms); null = never served
outage_ms bigint served_at_ms - lost_at_ms; of a reign that never served, up to the next election, else the horizon
is_open boolean never served, and nobody was elected since
heard_again_after_ms bigint from the finding of the silence to the same incarnation's return; null = it did not return
is_false_positive boolean the deposed incarnation itself came back: its process had lived all the time
leader_change_age_ms bigint from the last change of the leading controller to the silence's finding; null = none before
is_controller_caused boolean a false positive less than LEADER_SHADOW_MS after a change of the leading controller
since_previous_ms bigint from the set's previous failover to this one; null = its first
is_flap boolean since_previous_ms is less than FLAP_WINDOW_MS
route_late_ms bigint route_converged_us - total_us, in ms; null = not reported
is_route_late boolean route_late_ms is more than ROUTE_LATE_MS
"""
    ),
)

GOLD_FAILOVERS_DAILY = LakeTable(
    layer="gold",
    name="failovers_daily",
    meaning="Counts of failovers, by kind and cause.",
    key=("cluster", "day", "kind", "cause"),
    columns=columns_of(
        """
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
routed bigint with a report that routes converged
routes_late bigint is_route_late
"""
    ),
)

GOLD_RTO_DAILY = LakeTable(
    layer="gold",
    name="rto_daily",
    meaning="Histograms of durations: failovers by phase and whole milliseconds.",
    key=("cluster", "day", "kind", "cause", "phase", "duration_ms"),
    columns=columns_of(
        """
cluster string cluster
day date UTC date of the elections
kind string failover or unclean
cause string as gold.failovers.cause
phase string detected ... serving, total, waited (after SERVING, by a sender), unattributed, outage
duration_ms bigint whole milliseconds, rounded down
failovers bigint how many
"""
    ),
)

GOLD_DOMINANCE_DAILY = LakeTable(
    layer="gold",
    name="dominance_daily",
    meaning="Which phase took longest, by cause.",
    key=("cluster", "day", "kind", "cause", "phase"),
    columns=columns_of(
        """
cluster string cluster
day date UTC date of the elections
kind string failover or unclean
cause string as gold.failovers.cause
phase string dominating_phase
failovers bigint in how many
duration_us bigint sum of its durations in those
"""
    ),
)

GOLD_ELECTIONS_DAILY = LakeTable(
    layer="gold",
    name="elections_daily",
    meaning="Elections of every kind, by policy.",
    key=("cluster", "day", "policy", "kind"),
    columns=columns_of(
        """
cluster string cluster
day date UTC date
policy string policy and version
kind string as silver.elections.kind; "none" = nobody was eligible
elections bigint how many
regretted bigint regret_bytes > 0
regret_bytes bigint sum
estimated_loss_bytes bigint sum of the estimates of unclean ones
"""
    ),
)

GOLD_SETS_DAILY = LakeTable(
    layer="gold",
    name="sets_daily",
    meaning="Availability and exposure of each set on days that were not quiet (quiet_daily), and on its first one.",
    key=("cluster", "day", "fleet", "broker_set"),
    columns=columns_of(
        """
cluster string cluster
day date UTC date
fleet string fleet incarnation
broker_set string name of the set
begun bigint 1 on the first day on which the set is observed, also when it comes back after it was cleaned; else 0
ended bigint 1 on the day on which the set was cleaned, if it was not observed again on it; else 0
observed_ms bigint from the first serving master to the set's cleaning, else to the fleet's last event, within the day
available_ms bigint with a master that takes writes: from served_at_ms to the loss of each tenure, less stopped_ms
outage_ms bigint observed_ms - available_ms
stopped_ms bigint of outage_ms: writes had stopped, and no reign changed (silver.stops)
exposed_ms bigint with a SyncStateSet of one member: one more fault and nobody could be elected
memberless_ms bigint with an empty SyncStateSet, after it had members
below_sla bigint 1 if available_ms is less than SLA_PPM of observed_ms, else 0
failovers bigint elected on the day
false_positives bigint of these
controller_caused bigint of these
flaps bigint of these
"""
    ),
)

GOLD_QUIET_DAILY = LakeTable(
    layer="gold",
    name="quiet_daily",
    meaning="Sets without a row in sets_daily: observed and available all day, never exposed, no failover.",
    key=("cluster", "day", "fleet"),
    columns=columns_of(
        """
cluster string cluster
day date UTC date
fleet string fleet incarnation
sets bigint how many; each of them was observed and available for 86,400,000 ms
"""
    ),
)

GOLD_NODES_DAILY = LakeTable(
    layer="gold",
    name="nodes_daily",
    meaning="Silences of each replica, on days that have any, or on which it was gone.",
    key=("cluster", "day", "fleet", "broker_set", "broker_id"),
    columns=columns_of(
        """
cluster string cluster
day date UTC date
fleet string fleet incarnation
broker_set string name of the set
broker_id int the replica
faults bigint times that it was found silent on this day, goodbyes not counted
goodbyes bigint clean stops on this day
timeouts bigint faults found by the heartbeat timeout
false_alarms bigint faults after which the same incarnation came back
masters_lost bigint failovers of this day that deposed it
gone_ms bigint within the day: from the finding to the return, else to the horizon
"""
    ),
)

GOLD_RTO = LakeTable(
    layer="gold",
    name="rto",
    meaning="Percentiles by phase and cause, from rto_daily. cause or cluster '*' = all.",
    key=("cluster", "cause", "phase"),
    partition="",
    columns=columns_of(
        """
cluster string cluster
cause string as gold.failovers.cause
phase string as rto_daily.phase
failovers bigint with this duration
p50_ms bigint nearest rank, whole milliseconds
p90_ms bigint
p95_ms bigint
p99_ms bigint
max_ms bigint
dominated bigint failovers in which this phase took longest
"""
    ),
)

GOLD_CLUSTERS = LakeTable(
    layer="gold",
    name="clusters",
    meaning="One row per cluster, and '*'.",
    key=("cluster",),
    partition="",
    columns=columns_of(
        """
cluster string cluster
first_day date first day with an event
last_day date last day with an event
sets bigint sets with a serving master at some time; one that was cleaned and came back on a later day counts again
failovers bigint as failovers_daily, summed
open bigint
false_positives bigint
controller_caused bigint
flaps bigint
incomplete bigint
backward_stamps bigint
proven bigint
bounded bigint
unknown bigint
refuted bigint
ungraded bigint
loss_bytes bigint
cut_bytes bigint
regretted bigint
regret_bytes bigint
routed bigint
routes_late bigint
observed_ms bigint sets_daily and quiet_daily, summed
available_ms bigint
outage_ms bigint
stopped_ms bigint
exposed_ms bigint
set_days_below_sla bigint
availability_ppm bigint available_ms * 1,000,000 / observed_ms, rounded down
"""
    ),
)

GOLD_SETS = LakeTable(
    layer="gold",
    name="sets",
    meaning="One row per set: the worst offenders.",
    key=("cluster", "fleet", "broker_set"),
    partition="",
    columns=columns_of(
        """
cluster string cluster
fleet string fleet incarnation
broker_set string name of the set
observed_ms bigint sets_daily, summed, and the set's quiet days up to its cleaning or its fleet's last event
available_ms bigint
outage_ms bigint
stopped_ms bigint
exposed_ms bigint
memberless_ms bigint
days_below_sla bigint
failovers bigint
false_positives bigint
controller_caused bigint
flaps bigint
availability_ppm bigint as clusters.availability_ppm
mtbf_ms bigint available_ms / failovers, rounded down; null = no failover
"""
    ),
)

GOLD_NODES = LakeTable(
    layer="gold",
    name="nodes",
    meaning="One row per replica that was ever gone.",
    key=("cluster", "fleet", "broker_set", "broker_id"),
    partition="",
    columns=columns_of(
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
"""
    ),
)

GOLD_QUALITY = LakeTable(
    layer="gold",
    name="quality",
    meaning="Data quality of the whole lake: bronze.quality over all files, and rows left out later.",
    key=("name",),
    partition="",
    columns=columns_of(
        """
name string as bronze.quality.name; or backward_stamps, incomplete, open, negative_intervals, orphans
count bigint how many
"""
    ),
)

GOLD = (
    GOLD_FAILOVERS,
    GOLD_FAILOVERS_DAILY,
    GOLD_RTO_DAILY,
    GOLD_DOMINANCE_DAILY,
    GOLD_ELECTIONS_DAILY,
    GOLD_SETS_DAILY,
    GOLD_QUIET_DAILY,
    GOLD_NODES_DAILY,
    GOLD_RTO,
    GOLD_CLUSTERS,
    GOLD_SETS,
    GOLD_NODES,
    GOLD_QUALITY,
)
