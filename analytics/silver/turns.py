"""
Where the record of a fleet takes a turn: the two tables, and the SQL by which views on bronze follow them.

Here: values only. Not here: finding turns, and events without them (``lived``, whose rules hold here).
"""

from __future__ import annotations

from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS
from rollcall_ha.analytics.lake.tables import SET_ID_SQL, table

GENERATION_BITS = 58
"""``seq`` of a fleet that was restored once is 2**58 more: indexes up to 2**38 fit below, and 31 restores above."""

SILVER_RESTORES = table(
    "silver/restores",
    "One row per fleet that was restored from a backup. In all other tables of silver and gold it is the fleet that it "
    "goes back to, and its sets are those of that one.",
    "fleet",
    """
fleet string its own incarnation, as bronze and rollcall status have it
origin string fleet of silver and gold: the one that was founded, or the first whose own restore is not on record
generation bigint how many restores lie between both; seq of silver is that of bronze + generation * 2**58
previous_fleet string the fleet of the backup
backup_index bigint last Raft index in the backup: of the previous fleet nothing behind it is known to this one
restored_at timestamp stamp of the restore
""",
)

SILVER_CLOCK_STEPS = table(
    "silver/clock_steps",
    "One row per step of a leader's clock that is on record. Instants of silver and gold that were stamped before it "
    "have step_ms added, so they are by the newest clock; those of bronze and of views on it are as they were stamped.",
    "fleet seq",
    """
fleet string fleet incarnation
seq bigint of the event, as in silver
told_fleet string fleet of the event in bronze
told_seq bigint its seq in bronze
stepped_at timestamp its stamp
controller string the leader that saw it
step_ms bigint the clock shows so much more from then on
""",
)

FLEET = "coalesce(origin, e.fleet)"
LIVED = f"{FLEET} AS fleet, seq + coalesce(generation, 0) * {1 << GENERATION_BITS} AS seq"
"""Columns of ``FROM_LIVED`` by the names and the order of silver; ``SET_ID`` is the set's."""
SET_ID = f"CASE WHEN origin IS NULL THEN set_id ELSE {SET_ID_SQL.format(fleet='origin')} END AS set_id"
FROM_LIVED = "FROM events e LEFT JOIN restores r ON r.fleet = e.fleet"
OF_LIVED = (BRONZE_EVENTS, SILVER_RESTORES)
