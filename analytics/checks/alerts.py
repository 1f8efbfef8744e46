"""
Alerts: failovers that do not end, sets that flap, sets with one member in sync.

Here: one SELECT over silver at one moment, and an alert as a notice. Not here: the moments and the printing
(``jobs.stream``).
Rule 1: the moment is an argument, so that a stream of old files is judged by its own stamps. The tables are those of
now: a row that is open today was open then, a row that has ended since is no alert of any moment.
Rule 2: an alert is told in the form that hooks tell events in (docs/hooks.md, schema 1), so that one receiver takes
both. It is written out here: nobody imports hooks, so that no work can wait for one;
``tests/unit/test_analytics_alerts.py`` reads it as a notice of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from rollcall_ha.analytics.lake.tables import in_ms
from rollcall_ha.analytics.silver.tables import (
    SILVER_BROKER_SETS,
    SILVER_CLEANINGS,
    SILVER_REIGNS,
    SILVER_SILENCES,
    SILVER_SYNC_STATE_SETS,
)
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.values import Frozen

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from rollcall_ha.analytics.lake.lake import Lake, Snapshot

COLUMNS = ("alert", "cluster", "fleet", "broker_set", "since_ms", "lasts_ms", "count")
ROWS_MAX = 10_000
"""More alerts at one moment are cut off, the newest first."""

ALERTS_SQL = """
WITH reigning AS (
    -- Without the sets that were cleaned: theirs would have no master for ever.
    SELECT r.*, r.to_master AS broker_id FROM {reigns} r LEFT ANTI JOIN {cleanings} c
    ON c.set_id = r.set_id AND c.seq > r.elected_seq
    WHERE r.ended_at_ms IS NULL
), found AS (
    SELECT 'open-failover' AS alert, set_id, elected_at_ms AS since_ms, 1L AS count
    FROM reigning WHERE served_at_ms IS NULL AND elected_at_ms <= :now_ms - :open_ms
    UNION ALL
    -- A master that came back as it was still is the master. Its next process is none, though it is back at once.
    SELECT 'no-master', set_id, min(found_at_ms), 1L
    FROM reigning JOIN {silences} USING (set_id, broker_id)
    WHERE served_at_ms IS NOT NULL AND seq > elected_seq AND NOT coalesce(is_same_incarnation, false)
        AND found_at_ms <= :now_ms - :open_ms
    GROUP BY ALL
    UNION ALL
    SELECT 'flapping', set_id, min(elected_at_ms), count(*)
    FROM {reigns} WHERE is_failover AND elected_at_ms BETWEEN :now_ms - :flap_window_ms AND :now_ms
    GROUP BY ALL HAVING count(*) >= :flaps
    UNION ALL
    SELECT 'one-member-in-sync', set_id, began_at_ms, 1L
    FROM {sync_state_sets}
    WHERE ended_at_ms IS NULL AND set_size = 1 AND coalesce(members_needed, 2) > 1
        AND began_at_ms <= :now_ms - :exposed_ms
)
SELECT alert, cluster, fleet, broker_set, since_ms, :now_ms - since_ms AS lasts_ms, count
FROM found JOIN {broker_sets} USING (set_id) ORDER BY since_ms, alert, fleet, cluster, broker_set LIMIT :rows_max
"""

KINDS = {"open-failover": "serving", "no-master": "elections", "flapping": "flapping", "one-member-in-sync": "exposure"}
"""Alert -> the kind of notices about the same."""


class Limits(Frozen):
    """From when on something is an alert."""

    open_ms: int = 10_000
    """A set without a serving master for so long."""
    exposed_ms: int = 60_000
    """A SyncStateSet of one member for so long."""
    flaps: int = 3
    """So many failovers of one set ..."""
    flap_window_ms: int = 600_000
    """... within so long a time."""


def alerts(spark: SparkSession, lake: Lake, snapshot: Snapshot, *, now_ms: int, limits: Limits) -> DataFrame:
    """``COLUMNS`` of everything that is over a limit at ``now_ms``, the oldest first; ``ROWS_MAX`` at most."""
    tables = (SILVER_BROKER_SETS, SILVER_CLEANINGS, SILVER_SILENCES, SILVER_REIGNS, SILVER_SYNC_STATE_SETS)
    rows = {table.name: in_ms(lake.read(spark, table, snapshot=snapshot)) for table in tables}
    return spark.sql(ALERTS_SQL, {"now_ms": now_ms, "rows_max": ROWS_MAX, **msgspec.structs.asdict(limits)}, **rows)


def notice_of(found: Mapping[str, Any], *, now_ms: int) -> dict[str, Any]:
    """The payload, as of a hook: of an alert, by ``COLUMNS``, at the moment ``now_ms`` that was looked at."""
    key, alert = SetKey(cluster=found["cluster"], name=found["broker_set"]), found["alert"]
    return {
        "schema": 1,
        # The same for one alert, who ever tells it: a stream that is started again tells what still lasts.
        "id": f"{found['fleet']}.alert.{key}.{alert}.{found['since_ms']}",
        "type": alert,
        "kind": KINDS[alert],
        "fleetIncarnation": found["fleet"],
        "setKey": key,
        "stampedAtMs": now_ms,
        "event": None,
        # How long it has lasted, by stamps; failovers, or 1 where nothing is counted.
        "data": {"sinceMs": found["since_ms"], "lastsMs": found["lasts_ms"], "count": found["count"]},
    }
