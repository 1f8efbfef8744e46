"""
Silver, one row per occurrence: reigns with their stamps and their ends, cleanings, changes of leader, callers, chains.

Here: column expressions over bronze events. Not here: phases, which follow from stamps (``phases``), intervals
(``intervals``), views (``tables``), publishing (``jobs.layers``).

Rule 1: rows are narrow: writing one costs more than finding it, and what follows from its columns is a view's.
Rule 2: a reign is made of minima and maxima over its events: copies and any order give the same row.
Rule 3: events of a reign are many and narrow: they are shuffled once, as numbers, to the partition of their set; there
two aggregates of fixed width make the row, and the next reign its end. No aggregate runs before the shuffle: a file
holds a few events of each of 100,000 epochs, so it would hold a hash table of them all to save nothing. What few of
them have, an election and a grade, is one field each: null is 8 bytes then.
Rule 4: a report counts if its incarnation is the elected one; one without one is the leader's. An election is
counted with the reports of its winner: no join is needed to tell them from those of another incarnation.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from rollcall_ha.analytics.codes import CAUSES, ELECTION_KINDS, GRADES, KINDS, PHASES, word_of
from rollcall_ha.analytics.silver.intervals import CHANGES_SET, GONE, US_PER_MS
from rollcall_ha.analytics.silver.phases import LEADER_PHASES, WINNER_PHASES, stamp_column
from rollcall_ha.analytics.silver.tables import (
    NOBODY,
    PAUSED,
    SILVER_BROKER_SETS,
    SILVER_CALLERS,
    SILVER_CHAINS,
    SILVER_CLEANINGS,
    SILVER_HORIZONS,
    SILVER_LEADERSHIPS,
    SILVER_REIGNS,
    SILVER_WAITS,
)
from rollcall_ha.analytics.silver.turns import GENERATION_BITS
from rollcall_ha.controller.contract.values import Phase
from rollcall_ha.controller.contract.verdicts import ElectionKind

FAILOVERS = (ElectionKind.FAILOVER, ElectionKind.UNCLEAN)
"""Kinds of election that replace a master that was lost."""

CHAIN_RANGE_BITS = 38
"""``seq`` without so many low bits: so long a range of Raft indexes, 2**18, is walked by one task, and ends a run."""

_REIGN = ("set_id", "master_epoch")

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
_OF_NEXT = {
    "ended_at_ms": "elected_at_ms",
    "ended_seq": "elected_seq",
    "next_epoch": "master_epoch",
    "end_kind_code": "election_kind",
    "end_cause_code": "cause_code",
    "end_triggered_seq": "triggered_seq",
    "end_fault_age_us": "fault_age_us",
}
"""Column of a fact -> column of the set's next one."""
_OF_GRADE = {"grade_code": "grade", "bound_bytes": "bound_bytes", "cut_bytes": "cut_bytes"}
_OF_MILESTONE = ("phase", "elapsed_us", "observed_us", "uncertainty_us", "waited_us", "entered_at_ms")

_LEAST = {
    **{stamp_column(phase): (phase, "elapsed_us") for phase in _STAMPED},
    "total_us": (Phase.SERVING, "observed_us"),
    "total_uncertainty_us": (Phase.SERVING, "uncertainty_us"),
    "told_wait_us": (Phase.FIRST_ACK, "waited_us"),
}
"""Column of a fold -> the phase of whose reports it is the least, and their column."""


def reigns(events: DataFrame) -> DataFrame:
    """
    ``silver.reigns`` of all bronze events (``in_ms``) of some sets.

    A reign whose election is not among them is left out; ``gold.quality`` counts it.
    """
    elections, reports = _elections(events), _reports(events)
    elected = elections.select(
        *_REIGN,
        f.col("to_master").alias("reporter"),
        f.col("winner_hash").alias("reporter_hash"),
        f.struct(*_WINNER, *_OF_ELECTION).alias("elected"),
    )
    graded = f.when(f.col("graded_seq").isNotNull(), f.struct("graded_seq", *_OF_GRADE)).alias("graded")
    told = reports.select(*_REIGN, "reporter", "reporter_hash", *_OF_MILESTONE, graded)
    told = told.unionByName(elected, allowMissingColumns=True).repartition("set_id")
    of_reporter = told.groupBy(*_REIGN, "reporter", "reporter_hash").agg(*_folds())
    # Only the elected incarnation's reports count (rule 4): a late report of another start of broker 2 would else be
    # read as a stamp of the winner.
    counted = of_reporter.where(f.col("reporter").isNull() | f.col("elected_seq").isNotNull())
    folded = counted.groupBy(*_REIGN).agg(*_merged()).where(f.col("elected_seq").isNotNull())
    return _finished(_with_neighbours(folded))


def _folds() -> list[Column]:
    """The aggregate of a reign's election and of one reporter's reports on it."""

    def at(phase: Phase, name: str) -> Column:
        return f.when(f.col("phase") == PHASES[phase], f.col(name))

    return [
        # The first of two reports of one phase counts: a repeat after a lost answer must not make the phase longer.
        *(f.min(at(*source)).alias(name) for name, source in _LEAST.items()),
        f.max(at(Phase.ROUTE_CONVERGED, "observed_us")).alias("route_converged_us"),
        f.min("entered_at_ms").alias("entered_at_ms"),
        # The newest grade: "proven" becomes "refuted" when the old master comes back with acknowledged bytes. A minimum
        # of the codes would hide the alarm.
        *(f.max_by(f"graded.{name}", "graded.graded_seq").alias(name) for name in _OF_GRADE),
        f.max("graded.graded_seq").alias("graded_seq"),
        *(f.max(f"elected.{name}").alias(name) for name in (*_WINNER, *_OF_ELECTION)),
    ]


def _merged() -> list[Column]:
    """The same of what the leader and the winner said."""
    return [
        *(f.min(name).alias(name) for name in (*_LEAST, "entered_at_ms")),
        *(f.max_by(name, "graded_seq").alias(name) for name in _OF_GRADE),
        *(f.max(name).alias(name) for name in ("route_converged_us", "graded_seq", *_WINNER, *_OF_ELECTION)),
    ]


def _elections(events: DataFrame) -> DataFrame:
    return events.where(f.col("kind") == KINDS["master-elected"]).select(
        *_REIGN,
        f.col("broker_id").alias("to_master"),
        f.when(f.col("broker_id").isNotNull(), f.col("incarnation_hash")).alias("winner_hash"),
        *(
            (f.size("sync_state_set") if source == "set_size" else f.col(source)).alias(name)
            for name, source in _OF_ELECTION.items()
        ),
    )


def _reports(events: DataFrame) -> DataFrame:
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
        "uncertainty_us",
        "waited_us",
        f.when(is_entered, f.col("stamped_at_ms")).alias("entered_at_ms"),
        f.when(is_graded, f.col("seq")).alias("graded_seq"),
        *(f.when(is_graded, f.col(source)).alias(name) for name, source in _OF_GRADE.items()),
    )


def _with_neighbours(folded: DataFrame) -> DataFrame:
    """When it served, how the next reign of the set ended it, and when the set's last failover before it was."""
    # By epoch, not by stamp: leader c2's clock may be 2 s behind c1's, and the reigns would be swapped.
    of_set = Window.partitionBy("set_id").orderBy("master_epoch")
    earlier = of_set.rowsBetween(Window.unboundedPreceding, -1)
    generation = f.shiftright("elected_seq", GENERATION_BITS)
    known = f.coalesce(f.lag(generation).over(of_set), f.lit(0))
    # Restored controllers know of no master, and elect one of each set, which served on or not: no failover of that set
    # took 24 ms.
    is_needed = generation > known
    is_lost = f.col("election_kind").isin([ELECTION_KINDS[kind] for kind in FAILOVERS])
    folded = folded.withColumn("is_failover", is_lost & ~is_needed)
    after_fault_us = f.col("total_us") - f.col("fault_age_us")
    return folded.withColumns(
        {name: f.lead(source).over(of_set) for name, source in _OF_NEXT.items()}
        | {
            # The first moment with a serving master: election, RTO, fault.
            "served_at_ms": f.coalesce(
                f.col("elected_at_ms") + f.floor(after_fault_us / US_PER_MS), f.col("entered_at_ms")
            ),
            "previous_failover_at_ms": f.last(f.expr("if(is_failover, elected_at_ms, null)"), ignorenulls=True).over(
                earlier
            ),
        }
    )


def _finished(folded: DataFrame) -> DataFrame:
    kind, end_kind = (word_of(f.col(code), ELECTION_KINDS) for code in ("election_kind", "end_kind_code"))
    columns = {
        "day": f.to_date(f.timestamp_millis("elected_at_ms")),
        "kind": kind,
        "cause": f.coalesce(word_of(f.col("cause_code"), CAUSES), kind),
        "end_kind": end_kind,
        "end_cause": f.coalesce(word_of(f.col("end_cause_code"), CAUSES), end_kind),
        "lost_at_ms": f.col("ended_at_ms") - f.floor(f.col("end_fault_age_us") / US_PER_MS),
        "grade": word_of(f.col("grade_code"), GRADES),
    }
    return folded.withColumns(columns).select(*SILVER_REIGNS.of_ms())


def broker_sets(events: DataFrame) -> DataFrame:
    """``silver.broker_sets`` of all bronze events (``in_ms``) of some sets."""
    names = ("set_id", "fleet", "cluster", "broker_set")
    is_told = f.col("kind").isin([KINDS[kind] for kind in (*CHANGES_SET, *GONE, "writes-stopped")])
    gone_ms = f.when(f.col("is_cleaned"), f.col("stamped_at_ms"))
    points = events.where(is_told & f.col("set_id").isNotNull()).select(
        *names, "seq", f.col("stamped_at_ms").alias("at_ms"), gone_ms.alias("gone_ms")
    )
    return (
        points.groupBy(*names)
        .agg(
            f.min("seq").alias("created_seq"),
            f.min_by("at_ms", "seq").alias("created_at_ms"),
            f.max("seq").alias("last_seq"),
            f.max_by("gone_ms", "seq").alias("cleaned_at_ms"),
        )
        .select(*SILVER_BROKER_SETS.of_ms())
    )


def cleanings(events: DataFrame) -> DataFrame:
    """``silver.cleanings``."""
    return (
        events.where((f.col("kind") == KINDS["replicas-cleaned"]) & f.col("is_cleaned"))
        .withColumn("cleaned_at_ms", f.col("stamped_at_ms"))
        .select(*SILVER_CLEANINGS.of_ms())
    )


WAITS = ("election-withheld", "election-failed")


def waits(events: DataFrame) -> DataFrame:
    """``silver.waits``, of events of the kinds ``WAITS``."""
    why = f.when(f.col("kind") == KINDS[WAITS[0]], PAUSED).otherwise(NOBODY)
    columns = {"wanted_at_ms": f.col("stamped_at_ms"), "master_epoch": f.col("previous_epoch"), "why": why}
    wanted = events.where(f.col("kind").isin([KINDS[kind] for kind in WAITS]))
    return wanted.withColumns(columns).select(*SILVER_WAITS.of_ms())


def leaderships(events: DataFrame) -> DataFrame:
    founded, taken = KINDS["fleet-initialised"], KINDS["leadership-taken"]
    # A founding is no change of controllers, and false alarms after it must not be put down to one. Its two events
    # share an entry, so a day.
    before = f.lag("kind").over(Window.partitionBy("cluster", "day", "fleet").orderBy("seq"))
    return (
        events.where(f.col("kind").isin(founded, taken))
        .withColumns({"taken_at_ms": f.col("stamped_at_ms"), "is_founding": before.eqNullSafe(f.lit(founded))})
        .where(f.col("kind") == taken)
        .select(*SILVER_LEADERSHIPS.of_ms())
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
        .select(*SILVER_CALLERS.of_ms())
    )


def horizons(events: DataFrame) -> DataFrame:
    return (
        events.groupBy("cluster", "day", "fleet", f.shiftright("seq", GENERATION_BITS).alias("generation"))
        .agg(
            f.count("*").alias("events"),
            f.min("stamped_at_ms").alias("first_at_ms"),
            # The stamp of the last event, not the latest stamp: a clock that was an hour ahead for a minute would put
            # the end of every open interval an hour into the future.
            f.max_by("stamped_at_ms", "seq").alias("last_at_ms"),
            f.max("seq").alias("last_seq"),
        )
        .select(*SILVER_HORIZONS.of_ms())
    )


def chains(events: DataFrame) -> DataFrame:
    """``silver.chains``, of all events of some days."""
    own = f.struct("seq", "stamped_at_ms", f.coalesce("chain", f.lit("")).alias("chain")).alias("own")
    links = events.select("fleet", "day", "continues", "blanked", own)
    of_range = Window.partitionBy("fleet", "day", f.shiftright("own.seq", CHAIN_RANGE_BITS)).orderBy("own.seq")
    beside = links.withColumns(
        {"before": f.lag("own").over(of_range), "is_last": f.lead("own").over(of_range).isNull()}
    )
    # Anybody can write an event that continues one without a hash.
    before = f.nullif(f.col("before.chain"), f.lit(""))
    is_known = f.col("continues") == f.xxhash64(before)
    is_next = is_known | (f.sha2(f.concat(before, "blanked"), 256) == f.col("own.chain"))
    ends = beside.withColumn("is_first", ~f.coalesce(is_next, f.lit(False))).where("is_first or is_last")
    behind_it = {name: f.lead(name).over(of_range) for name in ("is_first", "before", "own")}
    last = f.when(f.col("is_last"), f.col("own")).when(behind_it["is_first"], behind_it["before"])
    runs = ends.withColumn("last", last.otherwise(behind_it["own"])).where("is_first")
    columns = {
        "generation": f.shiftright("own.seq", GENERATION_BITS),
        "first_seq": f.col("own.seq"),
        "first_at_ms": f.col("own.stamped_at_ms"),
        "first_chain": f.col("own.chain"),
        "first_text": f.coalesce("blanked", f.lit("")),
        "last_seq": f.col("last.seq"),
        "last_at_ms": f.col("last.stamped_at_ms"),
        "last_chain": f.col("last.chain"),
    }
    # Few rows of many lines: made one file without a shuffle they would be one task's.
    return runs.withColumns(columns).repartition(1).select(*SILVER_CHAINS.of_ms())
