"""
Events as a fleet lived them: restored controllers go on with the past of those before, and times are of one clock.

Here: finding restores and steps of clocks, and the events without them. Not here: the other tables (``facts``,
``intervals``); journals and bronze have events as they were written.

Rule 1: a restored fleet is the one that it goes back to (``origin``), and so are its sets. Its indexes begin behind the
backup, where those of the lost controllers may go on, too: a later ``generation`` comes behind all of an earlier one.
Rule 2: a step of a clock that is on record is added to all stamps before it. Then durations are right across it, and
instants are those of the newest clock: a clock that is wrong is set right in the end.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from rollcall_ha.analytics.codes import KINDS
from rollcall_ha.analytics.lake.tables import set_id_of
from rollcall_ha.analytics.silver.turns import GENERATION_BITS

TURNS = ("fleet-restored", "clock-stepped")

Rows = Sequence[Mapping[str, Any]]


class Turns(NamedTuple):
    """Where the record of fleets takes a turn: rows of ``silver.restores`` and ``silver.clock_steps``."""

    restores: Rows = ()
    steps: Rows = ()

    def joined(self, other: Turns) -> Turns:
        """Both, each once, and with their origins: a later one may tell what an earlier one goes back to."""
        restores = {row["fleet"]: row for row in (*self.restores, *other.restores)}
        found = origins({fleet: row["previous_fleet"] for fleet, row in restores.items()})
        steps = {(row["told_fleet"], row["told_seq"]): row for row in (*self.steps, *other.steps)}
        return Turns(
            restores=[
                {**row, "origin": found[fleet][0], "generation": found[fleet][1]}
                for fleet, row in sorted(restores.items())
            ],
            steps=[{**row, **_lived(row, found)} for _, row in sorted(steps.items())],
        )


def origins(previous: Mapping[str, str]) -> dict[str, tuple[str, int]]:
    """Restored fleet -> the one that it goes back to, and how many restores ago; by fleet -> the one before."""
    found = {}
    for fleet in previous:
        path = [fleet]
        # A record may be forged: two fleets, each of which goes back to the other, would be followed for ever.
        while previous.get(path[-1], fleet) not in path:
            path.append(previous[path[-1]])
        found[fleet] = path[-1], len(path) - 1
    return found


def _lived(step: Mapping[str, Any], found: Mapping[str, tuple[str, int]]) -> dict[str, Any]:
    origin, generation = found.get(step["told_fleet"], (step["told_fleet"], 0))
    return {"fleet": origin, "seq": step["told_seq"] + (generation << GENERATION_BITS)}


def turns_of(events: DataFrame) -> Turns:
    """Those among bronze events (``in_ms``): a few rows, which a job fetches."""
    restored, stepped = (KINDS[kind] for kind in TURNS)
    told = {
        name: f.get_json_object("line", f"$.event.{path}")
        for name, path in (("previous_fleet", "previousFleet"), ("backup_index", "backupIndex"), ("step_ms", "stepMs"))
    }
    rows = (
        events.where(f.col("kind").isin(restored, stepped))
        .select("fleet", "seq", "stamped_at_ms", "kind", "controller", *(of.alias(name) for name, of in told.items()))
        .collect()
    )
    restores = [
        {
            "fleet": row["fleet"],
            "previous_fleet": row["previous_fleet"],
            "backup_index": int(row["backup_index"]),
            "restored_at": _instant(row["stamped_at_ms"]),
        }
        for row in rows
        if row["kind"] == restored
    ]
    steps = [
        {
            "told_fleet": row["fleet"],
            "told_seq": row["seq"],
            "stepped_at": _instant(row["stamped_at_ms"]),
            "controller": row["controller"],
            "step_ms": int(row["step_ms"]),
        }
        for row in rows
        if row["kind"] == stepped
    ]
    return Turns().joined(Turns(restores, steps))


def _instant(at_ms: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(milliseconds=at_ms)


def as_lived(events: DataFrame, turns: Turns) -> DataFrame:
    """
    Bronze events (``in_ms``) by the names, the order and the clock that silver has.

    ``day`` stays: it names the files that an event lies in.
    """
    if not turns.restores and not turns.steps:
        return events
    steps: dict[str, list[tuple[int, int]]] = {}
    for row in turns.steps:
        steps.setdefault(row["fleet"], []).append((row["seq"], row["step_ms"]))
    named = {fleet: (fleet, 0) for fleet in (*steps, *(row["origin"] for row in turns.restores))}
    named |= {row["fleet"]: (row["origin"], row["generation"]) for row in turns.restores}
    small = events.sparkSession.createDataFrame(
        [(fleet, origin, generation, steps.get(origin, [])) for fleet, (origin, generation) in named.items()],
        "fleet string, origin string, generation bigint, steps array<struct<seq bigint, step_ms bigint>>",
    )
    origin = f.coalesce("origin", "fleet")
    shift = f.shiftleft(f.coalesce("generation", f.lit(0).cast("bigint")), GENERATION_BITS)
    seq = f.col("seq") + shift
    later = f.filter(f.coalesce("steps", f.array()), lambda step: step["seq"] > seq)
    stepped_ms = f.aggregate(later, f.lit(0).cast("bigint"), lambda summed, step: summed + step["step_ms"])
    columns = {
        "fleet": origin,
        "set_id": f.when(f.col("set_id").isNotNull(), set_id_of(origin, f.col("cluster"), f.col("broker_set"))),
        "seq": seq,
        "triggered_seq": f.col("triggered_seq") + shift,
        "stamped_at_ms": f.col("stamped_at_ms") + stepped_ms,
    }
    return events.join(small.hint("broadcast"), "fleet", "left").withColumns(columns).drop(*small.columns[1:])
