"""
The recorded failovers as they would have been under each preset, counted.

Here: a row for each pair of presets, which of them was in force, the limits of the answer. Not here: one election under
another policy (``counterfactual``), drawing (``report``).

Rule 1: only failovers that were found by silence alone (cause ``timeout``) depend on the timeout; the others keep their
times.
Rule 2: a silence lasts from the last heartbeat to the return of the same incarnation; ``found after`` is counted from
the last heartbeat, too. A silence of 4 s is avoided under a timeout of 5 s. A new incarnation that came back after 4 s
would have been noticed then.
Rule 3: a failover is found as late within its scan interval as in reality: at the real preset history comes back (S83).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rollcall_ha.analytics.gold.tables import AVAILABILITY, GOLD_CLUSTERS
from rollcall_ha.analytics.lake.tables import view
from rollcall_ha.analytics.silver.tables import SILVER_REIGNS, SILVER_SILENCES
from rollcall_ha.controller.contract.timing import PRESETS

LIMITS = (
    "Each failover is asked about alone: the further history after another one is not known.",
    "A later timeout is compared with when the replica was heard again; the clients' work meanwhile is not on record.",
    "No silence shorter than the timeout that was in force is on record: false failovers on top are not counted.",
    "All fleets of the lake are taken to have had the same preset.",
)

_PRESETS = ", ".join(
    f"('{preset}', {timing.heartbeat_timeout_ms}, {timing.scan_interval_ms})" for preset, timing in PRESETS.items()
)
_PERCENTILES = ", ".join(
    f"floor(percentile_disc({percent / 100}) WITHIN GROUP (ORDER BY {column}) / 1000) AS {name}{percent}_ms"
    for name, column in (("p", "CASE WHEN outcome <> 'unknown' THEN total_us END"), ("other_p", "other_total_us"))
    for percent in (50, 95, 99)
)
_OUTCOMES = ", ".join(
    f"count(CASE WHEN outcome = '{one}' THEN 1 END) AS {one}"
    for one in ("same", "faster", "slower", "avoided", "unknown")
)

WHAT_IF = view(
    "report/what_if",
    "Recorded failovers under the timeout of each preset, had each been in force: a row for each pair.",
    "real_preset preset",
    """
real_preset string the one that is taken to have been in force
real_timeout_ms bigint its heartbeat timeout
real_scan_ms bigint its scan interval
preset string the preset that is asked about
timeout_ms bigint its heartbeat timeout
earliest_us bigint the shortest silence by which a failover was found; null = none was found by silence alone
failovers bigint recorded ones
same bigint would have taken as long
faster bigint would have been found sooner
slower bigint would have been found later
avoided bigint false ones that would not have happened
unknown bigint when the last heartbeat came is not on record: its leader had just changed
p50_ms bigint RTO as recorded, nearest rank, of failovers whose change is known, rounded down
p95_ms bigint
p99_ms bigint
other_p50_ms bigint RTO under the preset, of the same without the avoided ones
other_p95_ms bigint
other_p99_ms bigint
availability_ppm bigint of all clusters, as recorded, in millionths
other_availability_ppm bigint under the preset, without false failovers on top; failovers of unknown change as recorded
""",
    of=(SILVER_REIGNS, SILVER_SILENCES, GOLD_CLUSTERS),
    select=f"""
WITH presets AS (SELECT * FROM (VALUES {_PRESETS}) AS three(preset, timeout_ms, scan_ms)),
recorded AS (
  SELECT r.cause, r.total_us, CASE WHEN r.cause = 'timeout' THEN r.last_heartbeat_age_us - r.detected_age_us END
           AS found_after_us,
         s.last_heartbeat_age_us + (unix_millis(s.returned_at) - unix_millis(s.found_at)) * 1000 AS back_us,
         coalesce(s.is_same_incarnation, false) AS was_false
  FROM reigns r LEFT JOIN silences s
    ON s.set_id = r.set_id AND s.seq = r.triggered_seq AND s.broker_id = r.from_master
  WHERE r.is_failover),
asked AS (
  SELECT recorded.*, one.preset AS real_preset, one.timeout_ms AS real_timeout_ms, one.scan_ms AS real_scan_ms,
         other.preset, other.timeout_ms, other.timeout_ms * 1000
           + floor((found_after_us - one.timeout_ms * 1000) * other.scan_ms / one.scan_ms) AS silent_until_us
  FROM recorded CROSS JOIN presets AS one CROSS JOIN presets AS other),
changed AS (
  SELECT *, coalesce(back_us < silent_until_us, false) AND was_false AS is_avoided,
         found_after_us - CASE WHEN back_us < silent_until_us AND NOT was_false THEN back_us ELSE silent_until_us END
           AS sooner_us FROM asked),
told AS (
  SELECT *, CASE WHEN cause <> 'timeout' THEN 'same' WHEN found_after_us IS NULL THEN 'unknown'
           WHEN is_avoided THEN 'avoided' WHEN sooner_us > 0 THEN 'faster' WHEN sooner_us < 0 THEN 'slower'
           ELSE 'same' END AS outcome FROM changed),
under AS (
  SELECT *, CASE outcome WHEN 'same' THEN total_us WHEN 'faster' THEN total_us - sooner_us
                         WHEN 'slower' THEN total_us - sooner_us END AS other_total_us,
         CASE outcome WHEN 'avoided' THEN total_us WHEN 'faster' THEN sooner_us WHEN 'slower' THEN sooner_us ELSE 0 END
           AS saved_us FROM told),
counted AS (
  SELECT real_preset, real_timeout_ms, real_scan_ms, preset, timeout_ms, min(found_after_us) AS earliest_us,
         count(*) AS failovers, {_OUTCOMES}, {_PERCENTILES}, floor(coalesce(sum(saved_us), 0) / 1000) AS saved_ms
  FROM under GROUP BY real_preset, real_timeout_ms, real_scan_ms, preset, timeout_ms),
whole AS (
  SELECT counted.*, c.availability_ppm AS real_ppm, c.observed_ms,
         greatest(0, least(c.observed_ms, c.available_ms + saved_ms)) AS available_ms
  FROM counted CROSS JOIN clusters c WHERE c.fleet = '*')
SELECT whole.*, real_ppm AS availability_ppm, {AVAILABILITY} AS other_availability_ppm
FROM whole ORDER BY real_timeout_ms, timeout_ms
""",
)


def answer(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], str]:
    """
    The rows of the preset that was in force, by the record, one for each other preset; and a sentence about that.

    The preset is the one with the longest timeout before which no failover was found by silence. No rows where there is
    none such, or no failover at all.
    """
    if not rows:
        return [], ""
    earliest_us = rows[0]["earliest_us"]
    if earliest_us is None:
        return [], "No failover was found by silence alone: no timeout would have changed any."
    earliest = f"The shortest silence by which a failover was found lasted {earliest_us / 1000:,.1f} ms"
    # 2 us: ages are rounded to a microsecond twice.
    fitting = [row for row in rows if row["real_timeout_ms"] * 1000 <= earliest_us + 2]
    if not fitting:
        return [], f"{earliest}, so the timeout that was in force was that of no preset."
    real = max(fitting, key=lambda row: row["real_timeout_ms"])
    is_late = earliest_us > (real["real_timeout_ms"] + 2 * real["real_scan_ms"]) * 1000
    doubt = ": that is late for it, and another timeout may have been" if is_late else ""
    found = [row for row in fitting if row["real_preset"] == real["real_preset"] != row["preset"]]
    return found, f"{earliest}, so the preset {real['real_preset']} is taken to have been in force{doubt}."
