"""
One row per reign, from events, in column expressions: what ``controller.core.history`` folds for one set, for all
sets.

Here: joins of elections with their milestones and their grade. Not here: reading (``source``), printing (``jobs``).
Rule 1: the phases chain as in ``controller.core.history`` (its rules 1-3); a test compares both row by row.
Rule 2: only narrow columns are shuffled; nothing is collected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from controller.contract.commands import Phase, SilenceCause
from controller.contract.verdicts import ElectionKind, Grade

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

LEADER_PHASES = (Phase.COMMITTED, Phase.NOTIFIED)
WINNER_PHASES = (Phase.PROMISED, Phase.ROLE_APPLIED, Phase.SERVING, Phase.FIRST_ACK)
SPANS = (Phase.DETECTED, Phase.PROPOSED, *LEADER_PHASES, *WINNER_PHASES)

_REIGN = ["fleetIncarnation", "cluster", "broker_set", "master_epoch"]


def span_column(phase: Phase) -> str:
    """Name of a phase's duration, in microseconds."""
    return f"{phase.value.replace('-', '_')}_us"


def reigns(events: DataFrame) -> DataFrame:
    """
    Columns: cluster, broker_set, master_epoch, elected_at_ms, kind, cause, from_master, to_master, a duration per
    phase of
    ``SPANS`` (null = not stamped), total_us, unattributed_us, grade, loss_bytes, cut_bytes, requested_by.
    """
    from pyspark.sql import functions as f

    keyed = events.withColumns({"cluster": f.col("setKey.cluster"), "broker_set": f.col("setKey.name")})
    elections = _elections(keyed)
    joined = (
        elections.join(_milestones(keyed, leader=True), _REIGN, "left")
        .join(_winner_milestones(elections, keyed), _REIGN, "left")
        .join(_grades(keyed), _REIGN, "left")
    )
    spans = _spans()
    attributed = f.lit(0)
    for column in spans.values():
        attributed = attributed + f.coalesce(column, f.lit(0))
    grade = f.col("loss.grade")
    loss = f.when(grade == Grade.PROVEN.value, f.lit(0)).when(grade != Grade.UNKNOWN.value, f.col("loss.boundBytes"))
    return joined.select(
        "cluster",
        "broker_set",
        "master_epoch",
        "elected_at_ms",
        "kind",
        "cause",
        "from_master",
        "to_master",
        *(column.alias(name) for name, column in spans.items()),
        f.col("total_us"),
        (f.col("total_us") - attributed).alias("unattributed_us"),
        grade.alias("grade"),
        loss.alias("loss_bytes"),
        f.col("loss.cutBytes").alias("cut_bytes"),
        "requested_by",
    )


def _elections(keyed: DataFrame) -> DataFrame:
    from pyspark.sql import functions as f

    event = f.col("event")
    detection = event["detection"]
    # The first sign of the fault: DetectionStamps.fault_age_us.
    heartbeat = f.when(detection["cause"] == SilenceCause.TIMEOUT.value, detection["lastHeartbeatAgeUs"])
    signs = f.greatest(
        detection["sessionClosedAgeUs"], detection["linkClosedAgeUs"], detection["probeRefusedAgeUs"], heartbeat
    )
    return keyed.where(event["kind"] == "master-elected").select(
        "fleetIncarnation",
        "cluster",
        "broker_set",
        event["masterEpoch"].alias("master_epoch"),
        f.col("stampedAtMs").alias("elected_at_ms"),
        event["verdict"]["kind"].alias("kind"),
        f.coalesce(detection["cause"], event["verdict"]["kind"]).alias("cause"),
        event["verdict"]["previousMaster"].alias("from_master"),
        event["master"].alias("to_master"),
        event["masterIncarnation"].alias("master_incarnation"),
        f.coalesce(signs, detection["detectedAgeUs"]).alias("fault_age_us"),
        detection["detectedAgeUs"].alias("detected_age_us"),
        f.col("requestedBy").alias("requested_by"),
    )


def _milestones(keyed: DataFrame, *, leader: bool) -> DataFrame:
    """The first report of each phase, per reporter; the leader's has no broker id."""
    from pyspark.sql import functions as f

    milestone = f.col("event.milestone")
    narrow = keyed.where(f.col("event.kind") == "milestone-reached").select(
        *_REIGN[:3],
        milestone["masterEpoch"].alias("master_epoch"),
        milestone["brokerId"].alias("reporter"),
        milestone["incarnation"].alias("reporter_incarnation"),
        milestone["phase"].alias("phase"),
        milestone["elapsedUs"].alias("elapsed_us"),
        milestone["observedUs"].alias("observed_us"),
    )
    reporter = ["reporter", "reporter_incarnation"]
    phases = LEADER_PHASES if leader else WINNER_PHASES
    grouped = narrow.where("reporter is null").groupBy(_REIGN) if leader else narrow.groupBy([*_REIGN, *reporter])
    stamps = [
        f.min(f.when(f.col("phase") == phase.value, f.col("elapsed_us"))).alias(f"at_{phase.value}") for phase in phases
    ]
    if not leader:
        stamps.append(f.min(f.when(f.col("phase") == Phase.FIRST_ACK.value, f.col("observed_us"))).alias("total_us"))
    return grouped.agg(*stamps)


def _winner_milestones(elections: DataFrame, keyed: DataFrame) -> DataFrame:
    """Those of the incarnation that was elected; others' reports of the same epoch are not the winner's."""
    from pyspark.sql import functions as f

    winners = elections.select(*_REIGN, "to_master", "master_incarnation")
    mine = (f.col("reporter") == f.col("to_master")) & (
        f.col("reporter_incarnation").isNull() | (f.col("reporter_incarnation") == f.col("master_incarnation"))
    )
    stamps = [*(f"at_{phase.value}" for phase in WINNER_PHASES), "total_us"]
    return (
        _milestones(keyed, leader=False)
        .join(winners, _REIGN)
        .where(mine)
        .groupBy(_REIGN)
        .agg(*(f.min(f"`{name}`").alias(name) for name in stamps))
    )


def _grades(keyed: DataFrame) -> DataFrame:
    """The newest grade of each epoch: a later one corrects an earlier one."""
    from pyspark.sql import functions as f

    verdict = f.col("event.verdict")
    return (
        keyed.where(f.col("event.kind") == "loss-graded")
        .select(
            *_REIGN[:3],
            verdict["masterEpoch"].alias("master_epoch"),
            f.struct("term", "index", "ordinal").alias("at"),
            f.struct(verdict["grade"], verdict["boundBytes"], verdict["cutBytes"]).alias("loss"),
        )
        .groupBy(_REIGN)
        .agg(f.max_by("loss", "at").alias("loss"))
    )


def _spans() -> dict[str, Column]:
    """The difference of each stamp to the one before it on its clock; null where it is missing or goes back."""
    from pyspark.sql import functions as f

    is_failover = f.col("kind").isNotNull() & f.col("fault_age_us").isNotNull()
    spans = {
        span_column(Phase.DETECTED): f.when(is_failover, f.col("fault_age_us") - f.col("detected_age_us")),
        span_column(Phase.PROPOSED): f.col("detected_age_us"),
    }
    for phases in (LEADER_PHASES, WINNER_PHASES):
        before: Column = f.lit(0)
        for phase in phases:
            stamp = f.col(f"`at_{phase.value}`")
            is_valid = stamp.isNotNull() & (stamp >= before)
            spans[span_column(phase)] = f.when(is_valid, stamp - before)
            before = f.when(is_valid, stamp).otherwise(before)
    return spans


def is_failover(kind: str) -> bool:
    """Whether an election of this kind replaced a master that was lost."""
    return kind in (ElectionKind.FAILOVER.value, ElectionKind.UNCLEAN.value)
