"""
The same rows out of Spark.

Here: the fleet's journals through ``rollcall analytics``, and what of ``silver.phases`` and ``silver.stops`` differs from
``history``. Not here: whether either is true (``recorded``).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rollcall_ha.analytics.gold.tables import GOLD_FELT
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.session import spark_session
from rollcall_ha.analytics.lake.tables import ORDINALS_PER_INDEX, in_ms
from rollcall_ha.analytics.silver.phases import SPANS, span_column
from rollcall_ha.analytics.silver.tables import SILVER_PHASES, SILVER_STOPS
from rollcall_ha.deploy.local import analytics_demo
from tests.truth.faults import Stage
from tests.truth.probe import folder_of

COPY_ATTEMPTS = 10

REIGN = {
    "kind": "kind",
    "electedAtMs": "elected_at_ms",
    "fromMaster": "from_master",
    "toMaster": "to_master",
    "totalUs": "total_us",
    "totalUsMax": "total_us_max",
    "waitedUs": "waited_us",
    "unattributedUs": "unattributed_us",
    "grade": "grade",
    "lossBytes": "loss_bytes",
    "cutBytes": "cut_bytes",
}
"""Key of a row of history -> column of ``silver.phases``, as ``in_ms`` gives it."""

STOP = {
    "masterEpoch": "master_epoch",
    "reason": "reason",
    "beganAtMs": "began_at_ms",
    "stoppedUs": "stopped_us",
    "end": "end",
}
"""The same of a stop and ``silver.stops``."""

ENDS = {
    "writes-resumed": "resumed", "writes-stopped": "resumed", "master-elected": "election", "replicas-cleaned": "cleaned",
    None: None,
}  # fmt: skip
"""The event that ended a stop in ``silver.stops`` -> the end in history."""


def differences(
    stage: Stage, history: Callable[[Stage], dict[str, Any]]
) -> tuple[int, list[str], dict[tuple[int, int], dict[str, Any]]]:
    """
    How many values were compared, each that the two sides give differently, and what probes felt.

    The last are rows of ``gold.felt`` by their begin in UTC ms and their length.
    """
    directory = stage.fleet.directory
    stage.heal()
    told = _copy_journals(stage, history)
    probes = [str(folder_of(stage))] if folder_of(stage).exists() else []
    analytics_demo.analyse("run", str(directory / "journals"), *probes, "--lake", str(directory / "lake"))
    with spark_session(app="record truth", master="local[1]") as spark:
        lake = Lake(directory / "lake")
        reigns = {row["master_epoch"]: row.asDict() for row in in_ms(lake.read(spark, SILVER_PHASES)).collect()}
        stops = {row["seq"]: row.asDict() for row in in_ms(lake.read(spark, SILVER_STOPS)).collect()}
        felt = [row.asDict() for row in in_ms(lake.read(spark, GOLD_FELT)).collect()]
    return *compare(told, reigns, stops), {(row["from_at_ms"], row["felt_ms"]): row for row in felt}


def compare(
    told: Mapping[str, Any], reigns: Mapping[int, Mapping[str, Any]], stops: Mapping[int, Mapping[str, Any]]
) -> tuple[int, list[str]]:
    """``history`` as JSON against silver by epoch, and by seq of a stop's event; rows of one side alone differ."""
    rows = {row["masterEpoch"]: _reign(row) for row in told["rows"]}
    stops = {seq: dict(row) | {"end": ENDS[row["ended_by"]]} for seq, row in stops.items()}
    begun = {
        stop["event"]["index"] * ORDINALS_PER_INDEX + stop["event"]["ordinal"]: _stop(stop) for stop in told["stops"]
    }
    count, found = 0, [f"only one side has {what} {key}" for what, key in _alone(rows, reigns, begun, stops)]
    for what, ours, theirs in (("epoch", rows, reigns), ("stop", begun, stops)):
        for key in sorted(ours.keys() & theirs.keys()):
            for column, value in ours[key].items():
                count += 1
                if value != theirs[key][column]:
                    found.append(f"{what} {key} {column}: history {value}, Spark {theirs[key][column]}")
    return count, found


def _reign(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of history in the columns of ``silver.phases``; a phase that it does not name has no duration."""
    durations = {span["phase"]: span["durationUs"] for span in row["phases"]}
    return {column: row.get(name) for name, column in REIGN.items()} | {
        span_column(phase): durations.get(phase.value) for phase in SPANS
    }


def _stop(stop: Mapping[str, Any]) -> dict[str, Any]:
    return {column: stop.get(name) for name, column in STOP.items()}


def _alone(
    rows: Mapping[int, Any], reigns: Mapping[int, Any], begun: Mapping[int, Any], stops: Mapping[int, Any]
) -> Iterable[tuple[str, int]]:
    yield from (("epoch", key) for key in sorted(rows.keys() ^ reigns.keys()))
    yield from (("stop", key) for key in sorted(begun.keys() ^ stops.keys()))


def _copy_journals(stage: Stage, history: Callable[[Stage], dict[str, Any]]) -> dict[str, Any]:
    """The journals of all controllers, and the history that belongs to them. Raises ``RuntimeError``."""
    before = history(stage)
    for _ in range(COPY_ATTEMPTS):
        target = stage.fleet.directory / "journals"
        shutil.rmtree(target, ignore_errors=True)
        for name in stage.fleet.controllers:
            shutil.copytree(stage.fleet.data(name) / "events", target / name / "events")
        after = history(stage)
        # An event between the copies of c1 and c2 would be a difference that is nobody's fault.
        if after["rows"] == before["rows"] and after["stops"] == before["stops"]:
            return after
        before = after
    raise RuntimeError(f"the history changed during each of {COPY_ATTEMPTS} copies of the journals")
