"""
Silver, one row per occurrence: reigns with their phases, elections, truncations, changes of leader.

Here: column expressions over bronze events. Not here: intervals (``intervals``), publishing (``jobs.layers``).

Rule 1: the phases chain as in ``controller.core.history`` (its rules 1-3); a test compares both row by row.
Rule 2: a reign is made of minima and maxima over its events: copies and any order give the same row, and a published
row takes part like one more event. So a later run, or a stream, reads new days only.
Rule 3: reports are many and narrow: they are shuffled as numbers, with 96 bits of hashes in place of the names of their
set, to the partition of their election; there one aggregate of fixed width makes the row. No aggregate runs before the
shuffle: a file holds a few events of each of 100,000 epochs, so it would hold a hash table of them all to save nothing.
Rule 4: a report counts if its incarnation is the elected one; one without an incarnation is the leader's.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from rollcall_ha.analytics import codes
from rollcall_ha.analytics.codes import CAUSES, ELECTION_KINDS, GRADES, KINDS, PHASES, code_of, word_of
from rollcall_ha.analytics.silver.tables import (
    SILVER_CALLERS,
    SILVER_CLEANINGS,
    SILVER_ELECTIONS,
    SILVER_HORIZONS,
    SILVER_LEADERSHIPS,
    SILVER_REIGNS,
    SILVER_TRUNCATIONS,
)
from rollcall_ha.controller.contract.values import Phase
from rollcall_ha.controller.contract.verdicts import ElectionKind, Grade

LEADER_PHASES = (Phase.COMMITTED, Phase.NOTIFIED)
WINNER_PHASES = (Phase.PROMISED, Phase.ROLE_APPLIED, Phase.SERVING, Phase.FIRST_ACK)
SPANS = (Phase.DETECTED, Phase.PROPOSED, *LEADER_PHASES, *WINNER_PHASES)
"""Phases of a failover that have a duration, in their order."""

OF_OUTAGE = SPANS[:-1]
"""Those of the outage; the first acknowledgement comes when somebody sends, and that may be an hour later."""

FAILOVERS = (ElectionKind.FAILOVER, ElectionKind.UNCLEAN)
"""Kinds of election that replace a master that was lost."""

_SET = ("fleet", "cluster", "broker_set")
_REIGN = (*_SET, "master_epoch")
_KEY = ("set_hash", "set_check", "master_epoch")
"""A reign in numbers: two hashes of its set's names that do not depend on each other, and its epoch."""

_WINNER = ("to_master", "winner_hash")

_STAMPED = (*LEADER_PHASES, *WINNER_PHASES, Phase.FULL_REDUNDANCY)
_OF_ELECTION = {
    "elected_seq": "seq",
    "elected_at_ms": "stamped_at_ms",
    "term": "term",
    "election_kind": "election_kind",
    "cause_code": "cause",
    "from_master": "previous_master",
    "previous_epoch": "previous_epoch",
    "triggered_seq": "triggered_seq",
    "set_size": "set_size",
    "regret_bytes": "regret_bytes",
    "fault_age_us": "fault_age_us",
    "alive_age_us": "alive_age_us",
    "detected_age_us": "detected_age_us",
    "last_heartbeat_age_us": "last_heartbeat_age_us",
}
"""Column of a fact -> column of the election's event: one event, so its maximum is itself."""
_OF_GRADE = {"grade_code": "grade", "bound_bytes": "bound_bytes", "cut_bytes": "cut_bytes"}
_OF_REPORT = ("phase", "elapsed_us", "observed_us", "waited_us", "entered_at_ms", "graded_seq", *_OF_GRADE)
"""A report on a reign after its election: a milestone, the winner's entry, or a grade."""


def span_column(phase: Phase) -> str:
    """Name of a phase's duration, in microseconds."""
    return f"{phase.value.replace('-', '_')}_us"


def stamp_column(phase: Phase) -> str:
    """Name of a phase's stamp, in microseconds on its reporter's clock."""
    return f"at_{phase.value.replace('-', '_')}_us"


def reigns(events: DataFrame, published: DataFrame | None = None) -> DataFrame:
    """
    ``silver.reigns`` of bronze events, and of published rows: these grow, none is lost.

    A reign whose election is in neither is left out; ``gold.quality`` counts it.
    """
    elections, reports = _elections_of_events(events), _reports_of_events(events)
    if published is not None:
        elections = elections.unionByName(_elections_of_reigns(published))
        reports = reports.unionByName(_reports_of_reigns(published))
    elections, reports = _keyed(elections), _keyed(reports).drop(*_SET)
    # Only the elected incarnation's reports count (rule 4): a late report of another start of broker 2 would else be
    # read as a stamp of the winner.
    winners = elections.select(*_KEY, *_WINNER).hint("shuffle_hash")
    is_winners = (f.col("reporter") == f.col("to_master")) & f.col("reporter_hash").eqNullSafe(f.col("winner_hash"))
    counted = reports.join(winners, list(_KEY)).where(f.col("reporter").isNull() | is_winners)
    told = counted.groupBy(*_KEY).agg(*_folds()).hint("shuffle_hash")
    # An election that is in the events and among the published rows is one row, not two.
    named = elections.repartition(*_KEY).groupBy(*_KEY, *_SET)
    elected = named.agg(*(f.max(name).alias(name) for name in (*_WINNER, *_OF_ELECTION)))
    return _finished(elected.join(told, list(_KEY), "left"))


def _keyed(rows: DataFrame) -> DataFrame:
    return rows.withColumns({"set_hash": f.xxhash64(*_SET), "set_check": f.hash(*_SET)})


def _folds() -> list[Column]:
    """The aggregate of all reports of one reign."""

    def at(phase: Phase, name: str) -> Column:
        return f.when(f.col("phase") == PHASES[phase], f.col(name))

    return [
        # Of two reports of one phase the first: a repeat after a lost answer must not make the phase longer.
        *(f.min(at(phase, "elapsed_us")).alias(stamp_column(phase)) for phase in _STAMPED),
        f.min(at(Phase.SERVING, "observed_us")).alias("total_us"),
        f.min(at(Phase.FIRST_ACK, "waited_us")).alias("told_wait_us"),
        f.max(at(Phase.ROUTE_CONVERGED, "observed_us")).alias("route_converged_us"),
        f.min("entered_at_ms").alias("entered_at_ms"),
        # The newest grade: "proven" becomes "refuted" when the old master comes back with acknowledged bytes. A minimum
        # of the codes would hide the alarm.
        *(f.max_by(name, "graded_seq").alias(name) for name in _OF_GRADE),
        f.max("graded_seq").alias("graded_seq"),
    ]


def _elections_of_events(events: DataFrame) -> DataFrame:
    return events.where(f.col("kind") == KINDS["master-elected"]).select(
        *_REIGN,
        f.col("broker_id").alias("to_master"),
        f.when(f.col("broker_id").isNotNull(), f.col("incarnation_hash")).alias("winner_hash"),
        *(
            (f.size("sync_state_set") if source == "set_size" else f.col(source)).alias(name)
            for name, source in _OF_ELECTION.items()
        ),
    )


def _reports_of_events(events: DataFrame) -> DataFrame:
    kind, phase = f.col("kind"), f.col("phase")
    is_entered, is_graded = kind == KINDS["master-entered"], kind == KINDS["loss-graded"]
    wanted = [PHASES[one] for one in (*_STAMPED, Phase.ROUTE_CONVERGED)]
    is_milestone = (kind == KINDS["milestone-reached"]) & phase.isin(wanted)
    # Converged routes and a grade are facts about the set, whichever broker reports them.
    is_own = is_entered | (is_milestone & (phase != PHASES[Phase.ROUTE_CONVERGED]))
    return events.where(is_entered | is_graded | is_milestone).select(
        *_REIGN,
        f.when(is_own, f.col("broker_id")).alias("reporter"),
        f.when(is_own & f.col("broker_id").isNotNull(), f.col("incarnation_hash")).alias("reporter_hash"),
        f.when(is_milestone, phase).alias("phase"),
        "elapsed_us",
        "observed_us",
        "waited_us",
        f.when(is_entered, f.col("stamped_at_ms")).alias("entered_at_ms"),
        f.when(is_graded, f.col("seq")).alias("graded_seq"),
        *(f.when(is_graded, f.col(source)).alias(name) for name, source in _OF_GRADE.items()),
    )


def _elections_of_reigns(published: DataFrame) -> DataFrame:
    coded = {
        "election_kind": code_of(f.col("kind"), ELECTION_KINDS),
        "cause_code": code_of(f.col("cause"), CAUSES),
    }
    # Without a detection ``cause`` holds the kind, which has no code among causes: back to null, as in the event.
    coded["cause_code"] = f.when(coded["cause_code"] > codes.UNKNOWN, coded["cause_code"])
    return published.select(*_REIGN, *_WINNER, *(coded.get(name, f.col(name)).alias(name) for name in _OF_ELECTION))


def _reports_of_reigns(published: DataFrame) -> DataFrame:
    """The stamps of a published row, as reports of its winner."""
    types = {"phase": "int", "grade_code": "int"}
    known: list[dict[str, Column]] = [
        {"phase": f.lit(PHASES[phase]), "elapsed_us": f.col(stamp_column(phase))} for phase in _STAMPED
    ]
    known[_STAMPED.index(Phase.SERVING)]["observed_us"] = f.col("total_us")
    known[_STAMPED.index(Phase.FIRST_ACK)]["waited_us"] = f.col("waited_us")
    known.append({"phase": f.lit(PHASES[Phase.ROUTE_CONVERGED]), "observed_us": f.col("route_converged_us")})
    graded = {name: f.col(name) for name in ("entered_at_ms", "graded_seq", "bound_bytes", "cut_bytes")}
    known.append(graded | {"grade_code": code_of(f.col("grade"), GRADES)})
    reports = f.array(
        *(
            f.struct(*(one.get(name, f.lit(None)).cast(types.get(name, "bigint")).alias(name) for name in _OF_REPORT))
            for one in known
        )
    )
    reporter = (f.col("to_master").alias("reporter"), f.col("winner_hash").alias("reporter_hash"))
    return published.select(*_REIGN, *reporter, f.explode(reports).alias("one")).select(
        *_REIGN, "reporter", "reporter_hash", *(f.col(f"one.{name}").alias(name) for name in _OF_REPORT)
    )


def _finished(folded: DataFrame) -> DataFrame:
    spans, backward = _spans()
    with_words = folded.withColumns(
        {
            "day": f.to_date(f.timestamp_millis("elected_at_ms")),
            "kind": word_of(f.col("election_kind"), ELECTION_KINDS),
            "is_failover": f.col("election_kind").isin([ELECTION_KINDS[kind] for kind in FAILOVERS]),
            "grade": word_of(f.col("grade_code"), GRADES),
            **spans,
            "backward_stamps": backward,
        }
    )
    durations = [f.col(span_column(phase)) for phase in SPANS]
    attributed, missing = f.lit(0).cast("bigint"), f.lit(0)
    for phase, duration in zip(SPANS, durations, strict=True):
        # A first election has no fault: its missing detection is no gap in the record.
        is_due = f.col("is_failover") if phase in (Phase.DETECTED, Phase.PROPOSED) else f.lit(True)
        if phase in OF_OUTAGE:
            attributed = attributed + f.coalesce(duration, f.lit(0))
        missing = missing + f.when(is_due & duration.isNull(), 1).otherwise(0)
    dominating = f.lit(None).cast("string")
    longest = f.greatest(*durations[: len(OF_OUTAGE)])
    # Backwards, so that of two equal phases the earlier one wins: ties must not depend on the plan.
    for phase, duration in reversed(list(zip(OF_OUTAGE, durations[: len(OF_OUTAGE)], strict=True))):
        dominating = f.when(duration == longest, phase.value).otherwise(dominating)
    grade, felt = f.col("grade"), f.least("told_wait_us", "first_ack_us")
    return with_words.withColumns(
        {
            "cause": f.coalesce(word_of(f.col("cause_code"), CAUSES), f.col("kind")),
            "unattributed_us": f.col("total_us") - attributed,
            "total_us_max": f.col("total_us") + _uncertainty(),
            # A wait that is longer began before SERVING, and is part of the outage.
            "waited_us": f.when(f.col("told_wait_us").isNotNull() & f.col("first_ack_us").isNotNull(), felt),
            "dominating_phase": dominating,
            "missing_phases": missing,
            # An unknown loss stays null. As 0 it would make the sum of a month look proven.
            "loss_bytes": f.when(grade == Grade.PROVEN.value, f.lit(0).cast("bigint")).when(
                grade != Grade.UNKNOWN.value, f.col("bound_bytes")
            ),
        }
    ).select(*SILVER_REIGNS.column_names)


def _spans() -> tuple[dict[str, Column], Column]:
    """
    The difference of each stamp to the one before it on its clock, null where it is missing or goes back; and how many
    go back.
    """
    fault, detected = f.col("fault_age_us"), f.col("detected_age_us")
    is_detection_valid = fault >= detected
    spans = {
        span_column(Phase.DETECTED): f.when(is_detection_valid, fault - detected),
        span_column(Phase.PROPOSED): detected,
    }
    backward = f.when(~is_detection_valid, 1).otherwise(0)
    for phases in (LEADER_PHASES, WINNER_PHASES):
        before: Column = f.lit(0).cast("bigint")
        for phase in phases:
            stamp = f.col(stamp_column(phase))
            # A stamp that goes back is left out, and the next one is measured from the last good one: else one skewed
            # stamp would make a negative phase and a phase that is too long.
            is_valid = stamp >= before
            spans[span_column(phase)] = f.when(is_valid, stamp - before)
            backward = backward + f.when(~is_valid, 1).otherwise(0)
            before = f.when(is_valid, stamp).otherwise(before)
    return spans, backward


def _uncertainty() -> Column:
    """How much earlier than its first sign the fault may have been; null = no bound is known."""
    # ``greatest`` skips nulls: an unknown bound would become "the fault was seen".
    earlier_us = f.col("alive_age_us") - f.coalesce("fault_age_us", f.lit(0))
    return f.when(earlier_us.isNotNull(), f.greatest(f.lit(0).cast("bigint"), earlier_us))


def cleanings(events: DataFrame) -> DataFrame:
    """``silver.cleanings``."""
    return (
        events.where((f.col("kind") == KINDS["replicas-cleaned"]) & f.col("is_cleaned"))
        .withColumn("cleaned_at_ms", f.col("stamped_at_ms"))
        .select(*SILVER_CLEANINGS.column_names)
    )


def elections(events: DataFrame) -> DataFrame:
    kind = f.col("kind")
    is_won = kind == KINDS["master-elected"]
    won = {
        "kind": word_of(f.col("election_kind"), ELECTION_KINDS),
        "to_master": f.col("broker_id"),
        "master_epoch": f.col("master_epoch"),
    }
    columns = {name: f.when(is_won, column) for name, column in won.items()} | {
        "cause": f.coalesce(word_of(f.col("cause"), CAUSES), f.when(is_won, won["kind"])),
        "held_at_ms": f.col("stamped_at_ms"),
        "from_master": f.col("previous_master"),
    }
    wanted = events.where(kind.isin(KINDS["master-elected"], KINDS["election-failed"]))
    return wanted.select(*(columns.get(name, f.col(name)).alias(name) for name in SILVER_ELECTIONS.column_names))


def truncations(events: DataFrame) -> DataFrame:
    zero = f.lit(0).cast("bigint")
    cut = f.greatest(zero, f.coalesce(f.col("cut_to") - f.col("cut_from"), zero))
    columns = {
        "reported_at_ms": f.col("stamped_at_ms"),
        "cut_bytes": cut,
        "released_cut_bytes": f.when(cut == 0, zero).otherwise(
            f.greatest(zero, f.least(f.col("released"), f.col("cut_to")) - f.col("cut_from"))
        ),
    }
    # ``least`` skips nulls: without a ``released`` it would call all cut bytes acknowledged, a loss that never was.
    columns["released_cut_bytes"] = f.when((cut == 0) | f.col("released").isNotNull(), columns["released_cut_bytes"])
    is_report = (f.col("kind") == KINDS["milestone-reached"]) & (f.col("phase") == PHASES[Phase.TRUNCATED])
    return events.where(is_report).select(
        *(columns.get(name, f.col(name)).alias(name) for name in SILVER_TRUNCATIONS.column_names)
    )


def leaderships(events: DataFrame) -> DataFrame:
    founded, taken = KINDS["fleet-initialised"], KINDS["leadership-taken"]
    # A founding is no change of controllers, and false alarms after it must not be put down to one. Its two events
    # share an entry, so a day.
    before = f.lag("kind").over(Window.partitionBy("cluster", "day", "fleet").orderBy("seq"))
    return (
        events.where(f.col("kind").isin(founded, taken))
        .withColumns({"taken_at_ms": f.col("stamped_at_ms"), "is_founding": before.eqNullSafe(f.lit(founded))})
        .where(f.col("kind") == taken)
        .select(*SILVER_LEADERSHIPS.column_names)
    )


def callers(events: DataFrame) -> DataFrame:
    """``silver.callers``."""
    return (
        events.where(f.col("caller").isNotNull())
        .withColumn("kind", word_of(f.col("kind"), KINDS))
        .groupBy("cluster", "day", "fleet", "caller", "proved_by", "kind")
        .agg(
            f.count("*").alias("events"),
            f.min("stamped_at_ms").alias("first_at_ms"),
            f.max("stamped_at_ms").alias("last_at_ms"),
        )
        .select(*SILVER_CALLERS.column_names)
    )


def horizons(events: DataFrame) -> DataFrame:
    return (
        events.groupBy("cluster", "day", "fleet")
        .agg(
            f.count("*").alias("events"),
            f.min("stamped_at_ms").alias("first_at_ms"),
            # Of the last event, not the latest stamp: a clock that was an hour ahead for a minute would put the end of
            # every open interval an hour into the future.
            f.max_by("stamped_at_ms", "seq").alias("last_at_ms"),
            f.max("seq").alias("last_seq"),
        )
        .select(*SILVER_HORIZONS.column_names)
    )
