"""
The three layers of a lake, brought up to date: changed days are computed again, the others stay as they are published.

Here: the partitions that a layer has to read, and putting its tables in place. Not here: their rows (``bronze``,
``silver``, ``gold``), the mechanism of publishing (``lake``).

Rule 1: a layer knows the versions of the tables that it was built from. Days with the same files: nothing to do.
Ingesting a file again, or copies of it, adds no file.
Rule 2 (bronze): events that a day lacked are added to it as files; at ``FILES_PER_DAY`` the day is written anew.
Rule 3 (silver): tables whose rows depend on one day are made anew for changed days. Reigns and intervals are made from
the published rows and the events since the day before the first change (rule 2 of ``silver.facts`` and
``silver.intervals``); only days whose rows differ are written.
Rule 4 (gold): tables are made anew from the first day with a changed silver row, or up to which was counted, but for
``quality``, which is counted anew.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from rollcall_ha.analytics.bronze import events as bronze
from rollcall_ha.analytics.bronze import lines
from rollcall_ha.analytics.bronze.gaps import gaps_of
from rollcall_ha.analytics.bronze.tables import (
    BRONZE_EVENTS,
    BRONZE_GAPS,
    BRONZE_INPUTS,
    BRONZE_QUALITY,
    BRONZE_REJECTED,
)
from rollcall_ha.analytics.gold import daily as gold
from rollcall_ha.analytics.gold import days as gold_days
from rollcall_ha.analytics.gold.quality import quality
from rollcall_ha.analytics.gold.tables import GOLD_COUNTED_UNTIL, GOLD_FAILOVERS, GOLD_QUALITY, GOLD_SETS_DAILY
from rollcall_ha.analytics.lake.delta import WHOLE, Partitions
from rollcall_ha.analytics.lake.lake import PART, LakeWriter
from rollcall_ha.analytics.lake.progress import Progress
from rollcall_ha.analytics.lake.session import as_path
from rollcall_ha.analytics.lake.tables import LakeTable, in_ms
from rollcall_ha.analytics.silver import facts as silver
from rollcall_ha.analytics.silver import intervals
from rollcall_ha.analytics.silver.tables import (
    SILVER,
    SILVER_BROKER_SETS,
    SILVER_CALLERS,
    SILVER_CLEANINGS,
    SILVER_HORIZONS,
    SILVER_LEADERSHIPS,
    SILVER_PHASES,
    SILVER_REIGNS,
    SILVER_SILENCES,
    SILVER_STOPS,
    SILVER_SYNC_STATE_SETS,
)

SKEW_DAYS = 1
"""A report may carry the date of so many days before its election's: leaders' clocks differ."""

OF_ONE_DAY = (
    (SILVER_CLEANINGS, silver.cleanings),
    (SILVER_LEADERSHIPS, silver.leaderships),
    (SILVER_CALLERS, silver.callers),
    (SILVER_HORIZONS, silver.horizons),
)
"""Tables whose rows depend on the events of their own day only."""

FILE_ORDER = ("kind", "phase", "seq")
"""Order of the rows in a bronze file: a reader of one kind skips the pages of the others."""

FILES_PER_DAY = 64
"""A stream adds a file every few seconds; a day of thousands would take longer to open than to read."""

READ_COUNTS = ("lines", "blank", "shared", "pieces")

FOLDED: tuple[tuple[LakeTable, Callable[[DataFrame, DataFrame | None], DataFrame]], ...] = (
    (SILVER_REIGNS, silver.reigns),
    (SILVER_SYNC_STATE_SETS, intervals.sync_state_sets),
    (SILVER_SILENCES, intervals.silences),
    (SILVER_STOPS, intervals.stops),
)
"""Tables whose rows grow while later days come."""


class Layers:
    """Brings the layers of one lake up to date. The caller publishes, by the writer."""

    def __init__(self, spark: SparkSession, writer: LakeWriter, progress: Progress) -> None:
        """The lake is held by ``writer``."""
        self._spark = spark
        self._writer = writer
        self._progress = progress

    # --- bronze ------------------------------------------------------------------------------------------------------

    def ingest_files(self, files: Sequence[Path], *, again: bool = False) -> int:
        """
        Read the ``files`` that are new or have changed since they were read; all of them if ``again``.

        Returns how many were read.
        """
        known = {row["path"]: row for row in self._writer.rows(BRONZE_INPUTS)}
        # BEFORE the lines are read: a file that grows meanwhile has another size for the next run, which reads it
        # again. Looked at afterwards, its last lines would count as read.
        found = {str(path): {"path": str(path), **_seen(path)} for path in (file.absolute() for file in files)}
        fresh = [Path(path) for path, seen in found.items() if again or known.get(path) != seen]
        if not fresh:
            return 0
        if events := [file for file in fresh if not lines.is_of_probe(file)]:
            self.ingest(lines.read_lines(self._spark, events))
        self._put_gaps([file for file in fresh if lines.is_of_probe(file)])
        read = known | {str(path): found[str(path)] for path in fresh}
        self._writer.put_rows(BRONZE_INPUTS, [read[path] for path in sorted(read)])
        return len(fresh)

    def _put_gaps(self, files: Sequence[Path]) -> None:
        """Add what probes felt. A table without a row, too: the views of plain readers name it."""
        if files or self._writer.published.version(BRONZE_GAPS.path) is None:
            self._writer.put_rows(BRONZE_GAPS, gaps_of(files, self._writer.rows(BRONZE_GAPS)))

    def ingest(self, texts: DataFrame, *, is_continued: bool = False) -> None:
        """
        Add texts (``lines.as_lines``) to bronze.

        Args:
            texts: They are read once.
            is_continued: They follow earlier texts of the same sources; else they take their place in the counts.
        """
        with self._progress.step("bronze: parse"):
            folder = self._write(bronze.once(bronze.judged(lines.pieces(texts))))
        with self._progress.step("bronze: count"):
            read = self._counts(folder)
        # A file that is read again brings its bad lines again: kept beside the old ones they would count twice.
        if not is_continued:
            self._writer.replace(BRONZE_REJECTED, {}, removed={row["source"] for row in read})
        with self._progress.step("bronze: add"):
            self._add(self._staged(folder))
            self._put_quality(read, is_continued=is_continued)

    def _write(self, rows: DataFrame) -> Path:
        """Events, rejected texts, and what is only counted, in one job; the folder of all three."""
        why = f.col("why")
        outcome = f.when(why.isNull(), "event").when(why.isin(*bronze.COUNTED), "counted").otherwise("rejected")
        folder = self._writer.folder(BRONZE_EVENTS)
        parts = {"outcome": outcome, PART: f.coalesce(f.col("day").cast("string"), f.col("cluster"))}
        columns = (*parts, *BRONZE_EVENTS.commented(), f.col("cluster").alias("source"), "why", "texts")
        ordered = rows.withColumns(parts).select(*columns).sortWithinPartitions(*parts, *FILE_ORDER)
        ordered.write.partitionBy(*parts).option("compression", "zstd").parquet(str(folder))
        return folder

    def _counts(self, folder: Path) -> Sequence[Row]:
        """Counts what ``_write`` wrote, per source file: numbers about files, not data."""
        rows = self._spark.read.schema("source_file string, why string, texts int").parquet(as_path(folder))
        is_blank = f.col("why") == bronze.Why.BLANK.value
        counts: list[Row] = (
            rows.groupBy("source_file")
            .agg(
                f.count("texts").alias("lines"),
                f.count_if(is_blank).alias("blank"),
                f.count_if(f.col("texts") > 1).alias("shared"),
                (f.count("*") - f.count_if(is_blank)).alias("pieces"),
            )
            .withColumn("source", bronze.source_of())
            .collect()
        )
        return counts

    def _staged(self, folder: Path) -> Partitions:
        """The files of events, by day. Rejected texts are in their table then."""
        rejected = folder / "outcome=rejected"
        if rejected.exists():
            # A rename within runs that nobody reads yet: killed before or behind it, both are unnamed and are swept.
            target = self._writer.folder(BRONZE_REJECTED)
            target.parent.mkdir(parents=True, exist_ok=True)
            rejected.rename(target)
            self._writer.append(BRONZE_REJECTED, self._writer.found(BRONZE_REJECTED, target))
        return self._writer.found(BRONZE_EVENTS, folder / "outcome=event")

    def _add(self, staged: Partitions) -> None:
        """Publish next what staged events add to the published ones of their days."""
        published = self._writer.files(BRONZE_EVENTS)
        both = [day for day in staged if day in published]
        added = {day: files for day, files in staged.items() if day not in published}
        full = [day for day in both if len(published[day]) >= FILES_PER_DAY]
        if both:
            old = self._writer.read(self._spark, BRONZE_EVENTS, only=both)
            new = self._writer.lake.read_files(self._spark, BRONZE_EVENTS, staged, only=both)
            rows = bronze.once(bronze.merging(old, new))
            # Old events win over their copies, so what is not old is new. Days that only met copies get no file: else
            # reading a journal twice would make silver and gold anew.
            is_written = ~f.col("is_old") | f.col("day").cast("string").isin(full)
            added |= self._staged(self._write(bronze.kept(rows.where(is_written))))
        self._writer.replace(BRONZE_EVENTS, {day: added[day] for day in full}, removed=())
        self._writer.append(BRONZE_EVENTS, {day: files for day, files in added.items() if day not in full})

    def _put_quality(self, read: Sequence[Row], *, is_continued: bool) -> None:
        rejected = self._writer.read(self._spark, BRONZE_REJECTED, only=[row["source"] for row in read])
        by_reason = rejected.groupBy("source_file", "why").agg(f.count("*").alias("count"))
        reasons = by_reason.withColumn("name", f.concat(f.lit("rejected:"), "why"))
        rows = [(row["source_file"], name, row[name]) for row in read for name in READ_COUNTS]
        fresh = self._spark.createDataFrame(rows, "source_file string, name string, count bigint")
        before = self._writer.read(self._spark, BRONZE_QUALITY)
        kept = before.join(fresh.select("source_file").distinct(), "source_file", "left_anti")
        if is_continued:
            earlier = before.where(f.col("name").isin(*READ_COUNTS)).join(
                fresh.select("source_file").distinct(), "source_file", "left_semi"
            )
            fresh = fresh.unionByName(earlier).groupBy("source_file", "name").agg(f.sum("count").alias("count"))
        self._writer.put(BRONZE_QUALITY, kept.unionByName(fresh).unionByName(reasons.drop("why")).coalesce(1))

    # --- silver ------------------------------------------------------------------------------------------------------

    def silver(self, *, is_full: bool = False) -> bool:
        """Bring silver up to date. Returns whether anything had changed."""
        source = self._writer.files(BRONZE_EVENTS)
        built = {} if is_full else self._writer.built("silver").get(BRONZE_EVENTS.path, {})
        changed = [day for day, files in source.items() if built.get(day) != files]
        if not changed and not is_full:
            return False
        of_changed = in_ms(self._writer.read(self._spark, BRONZE_EVENTS, only=changed))
        is_later = bool(built)
        with self._progress.step("silver: broker_sets"):
            known = self._writer.read(self._spark, SILVER_BROKER_SETS) if is_later else None
            self._writer.put(SILVER_BROKER_SETS, silver.broker_sets(of_changed, known).coalesce(1))
        for table, rows_of in OF_ONE_DAY:
            with self._progress.step(table.path.replace("/", ": ")):
                self._put(table, rows_of(of_changed), removed=changed if built else None)
        # Null without an earlier build: then everything is made from events alone, and no stale row can take part.
        events = of_changed
        if is_later:
            events = in_ms(self._writer.read(self._spark, BRONZE_EVENTS, only=_since(changed, source)))
        for table, fold in FOLDED:
            with self._progress.step(table.path.replace("/", ": ")):
                published = self._writer.read(self._spark, table) if is_later else None
                self._put_changed(table, fold(events, published), published)
        self._writer.note_built("silver", [BRONZE_EVENTS])
        return True

    def _put_changed(self, table: LakeTable, rows: DataFrame, published: DataFrame | None) -> None:
        """Write the days whose rows differ from the published ones."""
        if published is None:
            self._put(table, rows)
            return
        rows = rows.persist()
        try:
            before, now = _fingerprints(published), _fingerprints(rows)
            # A later event of one set rewrites a day of 10,000 sets only if a row of that day is another one now.
            differing = [day for day in before.keys() | now.keys() if before.get(day) != now.get(day)]
            if differing:
                self._put(table, rows.where(f.col("day").isin(differing)), removed=map(str, differing))
        finally:
            rows.unpersist()

    def _put(self, table: LakeTable, rows: DataFrame, *, removed: Iterable[str] | None = None) -> None:
        """
        ``LakeWriter.put`` of a table by day.

        The rows of a day are brought together first. Else each row goes to another day's file than the one before it:
        with thirty files of thirty columns open at once that costs twice what the shuffle does, and each task leaves a
        file of its own in every day.
        """
        if len(self._writer.files(BRONZE_EVENTS)) > 1:
            rows = rows.hint("rebalance", table.partition)
        self._writer.put(table, rows, removed=removed)

    # --- gold --------------------------------------------------------------------------------------------------------

    def gold(self, *, is_full: bool = False, until_ms: int | None = None) -> bool:
        """
        Bring gold up to date. Returns whether anything had changed.

        ``until_ms``: as ``asked_ms`` of ``gold.days.counted_until``.
        """
        if not self._writer.files(BRONZE_GAPS):
            # The lake of a stream, or of before there were probes.
            self._put_gaps([])
        sources = (*SILVER, BRONZE_QUALITY)
        built = {} if is_full else self._writer.built("gold")
        differing: set[str] = set()
        for table in sources:
            now, then = self._writer.files(table), built.get(table.path, {})
            differing |= {day for day in now.keys() | then.keys() if now.get(day) != then.get(day)}
        ends, now_ms = gold_days.ends_of(in_ms(self._writer.read(self._spark, SILVER_HORIZONS))), _now_ms()
        until = {of: gold_days.counted_until(at, asked_ms=until_ms, now_ms=now_ms) for of, at in ends.items()}
        known = (
            {row["fleet"]: _ms_of(row["until_at"]) for row in self._writer.rows(GOLD_COUNTED_UNTIL)} if built else {}
        )
        if not differing and until == known:
            return False
        if differing - {WHOLE} or until != known:
            # An open interval counts up to then: when that moves, yesterday's sums change although no silver row of
            # yesterday does.
            moved = {str(_day_of(min(known.get(of, at), at))) for of, at in until.items() if known.get(of) != at}
            self._put_days(min(moved | differing - {WHOLE}) if built else None, until)
            rows = [{"fleet": of, "last_at": _at(ends[of]), "until_at": _at(until[of])} for of in sorted(until)]
            self._writer.put_rows(GOLD_COUNTED_UNTIL, rows)
        with self._progress.step("gold: quality"):
            rows = quality(lambda wanted: self._writer.read(self._spark, wanted))
            self._writer.put(GOLD_QUALITY, rows.coalesce(1))
        self._writer.note_built("gold", sources)
        return True

    def _put_days(self, first: str | None, until: Mapping[str, int]) -> None:
        """The daily tables, from the ``first`` day that may have changed (rule 4); None: all."""
        tables = {one.name: in_ms(self._writer.read(self._spark, one)) for one in (*SILVER, SILVER_PHASES)}
        since = None if first is None else dt.date.fromisoformat(first)
        days = gold_days.Days(tables=tables, since=since, until_ms=until)
        for table, rows_of in gold.DAILY:
            with self._progress.step(table.path.replace("/", ": ")):
                removed = None if since is None else [day for day in self._writer.files(table) if day >= str(since)]
                self._put(table, days.only_since(rows_of(days)), removed=removed)
                if table in (GOLD_FAILOVERS, GOLD_SETS_DAILY):
                    days.tables[table.name] = in_ms(self._writer.read(self._spark, table))


def _since(changed: Iterable[str], days: Iterable[str]) -> list[str]:
    """Days whose events a later run of silver reads."""
    # A report may be dated before its election, by a leader whose clock is behind. Read from the changed day on, an
    # epoch of the 2nd would miss its milestone that is dated the 1st.
    first = dt.date.fromisoformat(min(changed)) - dt.timedelta(days=SKEW_DAYS)
    return [day for day in days if day >= str(first)]


def _seen(file: Path) -> dict[str, int]:
    found = file.stat()
    return {"bytes": found.st_size, "modified_ns": found.st_mtime_ns}


def _fingerprints(rows: DataFrame) -> dict[dt.date, tuple[int, int]]:
    """Per day: how many rows, and a hash of all of them in any order."""
    hashed = rows.groupBy("day").agg(f.count("*").alias("n"), f.bit_xor(f.xxhash64("*")).alias("hash"))
    return {row["day"]: (row["n"], row["hash"]) for row in hashed.collect()}


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def _at(at_ms: int) -> dt.datetime:
    return _EPOCH + dt.timedelta(milliseconds=at_ms)


def _ms_of(at: dt.datetime) -> int:
    return (at - _EPOCH) // dt.timedelta(milliseconds=1)


def _now_ms() -> int:
    return round(time.time() * 1000)


def _day_of(at_ms: int) -> dt.date:
    return _at(at_ms).date()
