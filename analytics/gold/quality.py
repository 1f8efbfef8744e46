"""
``gold.quality``: what the journals lacked, counted over the whole lake.

Here: the sums by name. Not here: what a name counts (``tables``, ``bronze.tables``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.codes import KINDS
from rollcall_ha.analytics.gold.tables import GOLD_FAILOVERS, GOLD_QUALITY
from rollcall_ha.analytics.lake.tables import view
from rollcall_ha.analytics.silver.tables import SILVER_REIGNS, SILVER_SYNC_STATE_SETS
from rollcall_ha.analytics.silver.turns import FROM_LIVED, SET_ID, SILVER_RESTORES

ALWAYS = ("copies", "events")
"""Counts that are told when they are 0, too; so are those of ``FAULTS``."""

# Epochs with reports but without an election, which lies in a hole of the journals, are orphans: silver leaves them
# out, so that this count is the only trace of them.
FAULTS = view(
    "gold/faults",
    "The part of quality that is counted in events, silver and failovers.",
    "name",
    GOLD_QUALITY.lines("name count"),
    of=(BRONZE_EVENTS, SILVER_RESTORES, SILVER_REIGNS, SILVER_SYNC_STATE_SETS, GOLD_FAILOVERS),
    select=f"""
WITH told AS (
  SELECT DISTINCT {SET_ID}, master_epoch {FROM_LIVED}
  WHERE kind IN ({KINDS["master-entered"]}, {KINDS["loss-graded"]}))
SELECT 'orphans' AS name, count(*) AS count FROM told LEFT JOIN reigns USING (set_id, master_epoch)
WHERE elected_seq IS NULL
UNION ALL SELECT 'negative_intervals', count(*) FROM sync_state_sets WHERE ended_at < began_at
UNION ALL SELECT 'backward_stamps', coalesce(sum(backward_stamps), 0) FROM failovers
UNION ALL SELECT 'incomplete', count(*) FROM failovers WHERE missing_phases > 0
UNION ALL SELECT 'open', count(*) FROM failovers WHERE is_open
""",
)

Rows = Iterable[Mapping[str, Any]]


def quality(files: Rows, horizons: Rows, faults: Rows) -> list[dict[str, Any]]:
    """Rows of ``gold.quality``: of ``bronze.quality``, ``silver.horizons`` and ``FAULTS``."""
    counts = Counter(dict.fromkeys(ALWAYS, 0))
    for row in files:
        counts[row["name"]] += row["count"]
        # What was read as an event and is not kept was a copy.
        counts["copies"] += row["count"] * ((row["name"] == "pieces") - row["name"].startswith("rejected:"))
    for row in horizons:
        counts["events"] += row["events"]
        counts["copies"] -= row["events"]
    counts.update({row["name"]: row["count"] for row in faults})
    return [{"name": name, "count": counts[name]} for name in sorted(counts)]
