"""
The reigns of ``silver.reigns`` as DuckDB computes them from the same files of bronze, as a ruler for the lake's bench.

Here: the query, and a comparison of its rows with Spark's. Not here: measuring (``lake``). It shares the codes of kinds and
phases with the product, and no definition: the winner's first reports, the first entry, the newest grade.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import duckdb

from rollcall_ha.analytics.codes import KINDS, PHASES
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.tables import LakeTable
from rollcall_ha.controller.contract.values import Phase

FIRST = (
    Phase.COMMITTED,
    Phase.NOTIFIED,
    Phase.PROMISED,
    Phase.ROLE_APPLIED,
    Phase.SERVING,
    Phase.FIRST_ACK,
    Phase.FULL_REDUNDANCY,
)
"""Phases of which the first report counts."""

_STAMPS = {phase: f"at_{phase.value.replace('-', '_')}_us" for phase in FIRST}
KEY = ("set_id", "master_epoch")
COMPARED = (
    *KEY,
    *("elected_seq", "elected_at", "from_master", "to_master", "fault_age_us", "detected_age_us"),
    *_STAMPS.values(),
    *("total_us", "route_converged_us", "entered_at", "graded_seq", "bound_bytes", "cut_bytes"),
)
"""Columns that both have: facts; what is derived from them in the same row is Spark's alone."""

_KEY = ", ".join(KEY)
_IS_WANTED = f"phase IN ({', '.join(str(PHASES[phase]) for phase in (*FIRST, Phase.ROUTE_CONVERGED))})"
QUERY = f"""
CREATE TABLE reigns AS
WITH elections AS (
    SELECT {_KEY}, max(seq) AS elected_seq, max(stamped_at) AS elected_at, max(previous_master) AS from_master,
           max(broker_id) AS to_master, max(incarnation_hash) AS winner_hash, max(fault_age_us) AS fault_age_us,
           max(detected_age_us) AS detected_age_us
    FROM events WHERE kind = {KINDS["master-elected"]} GROUP BY {_KEY}
), reports AS (
    SELECT {_KEY}, phase, elapsed_us, observed_us, grade, bound_bytes, cut_bytes, incarnation_hash, kind, seq, stamped_at,
           CASE WHEN kind = {KINDS["loss-graded"]} OR phase = {PHASES[Phase.ROUTE_CONVERGED]} THEN NULL ELSE broker_id END
               AS reporter
    FROM events WHERE kind IN ({KINDS["master-entered"]}, {KINDS["loss-graded"]})
        OR (kind = {KINDS["milestone-reached"]} AND {_IS_WANTED})
), told AS (
    SELECT {_KEY},
           {", ".join(f"min(elapsed_us) FILTER (phase = {PHASES[phase]}) AS {name}" for phase, name in _STAMPS.items())},
           min(observed_us) FILTER (phase = {PHASES[Phase.SERVING]}) AS total_us,
           max(observed_us) FILTER (phase = {PHASES[Phase.ROUTE_CONVERGED]}) AS route_converged_us,
           min(stamped_at) FILTER (kind = {KINDS["master-entered"]}) AS entered_at,
           max(seq) FILTER (kind = {KINDS["loss-graded"]}) AS graded_seq,
           arg_max_null(bound_bytes, seq) FILTER (kind = {KINDS["loss-graded"]}) AS bound_bytes,
           arg_max_null(cut_bytes, seq) FILTER (kind = {KINDS["loss-graded"]}) AS cut_bytes
    FROM reports JOIN elections USING ({_KEY})
    WHERE reporter IS NULL OR (reporter = to_master AND incarnation_hash IS NOT DISTINCT FROM winner_hash)
    GROUP BY {_KEY}
)
SELECT {", ".join(COMPARED)} FROM elections LEFT JOIN told USING ({_KEY})
"""


def files_of(lake: Lake, table: LakeTable) -> list[Path]:
    """Paths of the files of a table in the newest snapshot."""
    found = lake.files(table.path, lake.snapshot().version(table.path))
    return [lake.folder(table.path) / file for some in found.values() for file in some]


def compute(database: duckdb.DuckDBPyConnection, events: Sequence[Path]) -> None:
    """Make the table ``reigns``, in memory, of these files of ``bronze.events``."""
    database.read_parquet([str(file) for file in events]).create_view("events")
    database.execute(QUERY)


def differing(database: duckdb.DuckDBPyConnection, reigns: Sequence[Path]) -> int:
    """How many rows are in one of both only: ``compute``'s, and those in files of ``silver.reigns``."""
    database.read_parquet([str(file) for file in reigns]).create_view("of_spark", replace=True)
    columns = ", ".join(COMPARED)
    counted = database.execute(
        f"SELECT count(*) FROM ((SELECT {columns} FROM reigns EXCEPT ALL SELECT {columns} FROM of_spark)"
        f" UNION ALL (SELECT {columns} FROM of_spark EXCEPT ALL SELECT {columns} FROM reigns))"
    ).fetchall()
    found: int = counted[0][0]
    return found
