"""
The three layers of a lake, brought up to date.

Here: what a layer has to read, and putting its tables in place. Not here: their rows (``bronze``, ``silver``,
``gold``), the mechanism of publishing (``lake``).

Rule 1: a layer knows the versions of the tables that it was built from. The same files: nothing to do. Ingesting a
file again, or copies of it, adds no file.
Rule 2 (bronze): events that a day lacked are added to it as files; at ``FILES_PER_DAY`` the day is written anew.
Rule 3 (silver): facts of sets are made anew, from all their events, for each bucket with a set that has a new event;
the other buckets stay as they are. Counts of days are made anew for days with a new event.
Rule 4 (gold): all tables are made anew if a row of silver is another one, or the time up to which is counted.
Rule 5: a table for whose rows there was no event is not computed. Planning it costs as much as if it had some.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

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
from rollcall_ha.analytics.codes import KINDS
from rollcall_ha.analytics.gold import daily as gold
from rollcall_ha.analytics.gold import days as gold_days
from rollcall_ha.analytics.gold.quality import FAULTS, quality
from rollcall_ha.analytics.gold.tables import GOLD_COUNTED_UNTIL, GOLD_FAILOVERS, GOLD_QUALITY, GOLD_SETS_DAILY
from rollcall_ha.analytics.lake.delta import PART, Partitions, rows_of
from rollcall_ha.analytics.lake.lake import Lake, LakeWriter
from rollcall_ha.analytics.lake.progress import Progress
from rollcall_ha.analytics.lake.query import answers
from rollcall_ha.analytics.lake.session import as_path
from rollcall_ha.analytics.lake.tables import BUCKETS, BY_SET, LakeTable, bucket_of, in_ms
from rollcall_ha.analytics.silver import facts as silver
from rollcall_ha.analytics.silver import intervals, lived
from rollcall_ha.analytics.silver.tables import (
    SILVER,
    SILVER_BROKER_SETS,
    SILVER_CALLERS,
    SILVER_CHAINS,
    SILVER_CLEANINGS,
    SILVER_HORIZONS,
    SILVER_LEADERSHIPS,
    SILVER_REIGNS,
    SILVER_SILENCES,
    SILVER_STOPS,
    SILVER_SYNC_STATE_SETS,
    SILVER_WAITS,
)
from rollcall_ha.analytics.silver.turns import SILVER_CLOCK_STEPS, SILVER_RESTORES

Make = Callable[[DataFrame], DataFrame]

CALLED = "called"
"""Among kinds of events: one that a proven caller made."""

OF_SETS: tuple[tuple[LakeTable, Make, tuple[str, ...]], ...] = (
    (SILVER_BROKER_SETS, silver.broker_sets, ()),
    (SILVER_REIGNS, silver.reigns, ()),
    (SILVER_SYNC_STATE_SETS, intervals.sync_state_sets, ()),
    (SILVER_SILENCES, intervals.silences, ()),
    (SILVER_STOPS, intervals.stops, ("writes-stopped",)),
    (SILVER_CLEANINGS, silver.cleanings, ("replicas-cleaned",)),
    (SILVER_WAITS, silver.waits, silver.WAITS),
)
"""Tables by bucket of sets: a row follows from all events of its set. And kinds without which there is no row."""

OF_DAYS: tuple[tuple[LakeTable, Make, tuple[str, ...]], ...] = (
    (SILVER_LEADERSHIPS, silver.leaderships, ("leadership-taken",)),
    (SILVER_CALLERS, silver.callers, (CALLED,)),
    (SILVER_HORIZONS, silver.horizons, ()),
    (SILVER_CHAINS, silver.chains, ()),
)
"""Small tables whose rows depend on the events of their own day only."""

FILE_ORDER = ("kind", "phase", "seq")
"""Order of the rows in a bronze file: a reader of one kind skips the pages of the others."""

FILES_PER_DAY = 64
"""A stream adds a file every few seconds; a day of thousands would take longer to open than to read."""

READ_COUNTS = ("lines", "blank", "shared", "pieces")


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
        found = {seen["path"]: seen for seen in map(_seen, files)}
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
        before = {(row["source_file"], row["name"]): row["count"] for row in self._writer.rows(BRONZE_QUALITY)}
        files = {row["source_file"] for row in read}
        counts = {key: count for key, count in before.items() if key[0] not in files}
        for row in read:
            for name in READ_COUNTS:
                key = (row["source_file"], name)
                counts[key] = row[name] + (before.get(key, 0) if is_continued else 0)
        rejected = self._writer.dataset(BRONZE_REJECTED, only=[row["source"] for row in read])
        texts = rejected.to_table(columns=["source_file", "why"]).group_by(["source_file", "why"])
        for row in texts.aggregate([([], "count_all")]).to_pylist():
            counts[row["source_file"], f"rejected:{row['why']}"] = row["count_all"]
        rows = [{"source_file": of, "name": name, "count": count} for (of, name), count in sorted(counts.items())]
        self._writer.put_rows(BRONZE_QUALITY, rows)

    # --- silver ------------------------------------------------------------------------------------------------------

    def silver(self, *, is_full: bool = False) -> bool:
        """Bring silver up to date. Returns whether anything had changed."""
        source = self._writer.files(BRONZE_EVENTS)
        built = {} if is_full else self._writer.built("silver").get(BRONZE_EVENTS.path, {})
        fresh = {day: [file for file in some if file not in built.get(day, ())] for day, some in source.items()}
        changed = [day for day, some in fresh.items() if some]
        if not changed and not is_full:
            return False
        known = lived.Turns()
        if built:
            known = lived.Turns(self._writer.rows(SILVER_RESTORES), self._writer.rows(SILVER_CLOCK_STEPS))
        with self._progress.step("silver: what is new"):
            new = in_ms(self._writer.lake.read_files(self._spark, BRONZE_EVENTS, fresh))
            buckets, kinds = _new(lived.as_lived(new, known))
            turns = known if kinds.isdisjoint(lived.TURNS) else known.joined(lived.turns_of(new))
        if built and turns != known:
            # The past of a fleet gets another name or other times by it: in all rows, not in those of these days.
            return self.silver(is_full=True)
        if not built:
            self._writer.put_rows(SILVER_RESTORES, turns.restores)
            self._writer.put_rows(SILVER_CLOCK_STEPS, turns.steps)
        of_sets = lived.as_lived(in_ms(self._writer.read(self._spark, BRONZE_EVENTS)), turns)
        if built and len(buckets) < BUCKETS:
            of_sets = of_sets.where(bucket_of().isin(buckets))
        of_days = lived.as_lived(in_ms(self._writer.read(self._spark, BRONZE_EVENTS, only=changed)), turns)
        removed = [str(bucket) for bucket in buckets] if built else None
        parts = {}
        for table, make, needed in OF_SETS:
            # Stops of a bucket that was there before are made anew by an event of any kind: an election ends one.
            if needed and kinds.isdisjoint(needed) and not (built and self._writer.files(table)):
                self._writer.replace(table, {}, removed=removed)
            else:
                parts[table.path] = partial(self._put_of_sets, table, make, of_sets, removed)
        for table, make, needed in OF_DAYS:
            if needed and kinds.isdisjoint(needed):
                self._writer.replace(table, {}, removed=() if built else None)
            else:
                parts[table.path] = partial(self._put_of_days, table, make, of_days, changed if built else None)
        self._progress.together(parts)
        self._writer.note_built("silver", [BRONZE_EVENTS])
        return True

    def _put_of_sets(self, table: LakeTable, make: Make, events: DataFrame, removed: Sequence[str] | None) -> None:
        rows = make(events)
        # No shuffle, or one by names, is behind these: their rows would be in as many files as tasks.
        is_spread = table in (SILVER_BROKER_SETS, SILVER_CLEANINGS, SILVER_WAITS)
        self._writer.put(table, rows.repartition(BY_SET) if is_spread else rows, removed=removed)

    def _put_of_days(self, table: LakeTable, make: Make, events: DataFrame, changed: Sequence[str] | None) -> None:
        rows = make(events)
        if changed is not None:
            others = self._writer.read(self._spark, table).where(~f.col("day").cast("string").isin(changed))
            rows = rows.unionByName(others)
        self._writer.put(table, rows.coalesce(1))

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
        differing = {table for table in sources if self._writer.files(table) != built.get(table.path, {})}
        ends, now_ms = gold_days.ends_of(self._writer.rows(SILVER_HORIZONS)), _now_ms()
        until = {of: gold_days.counted_until(at, asked_ms=until_ms, now_ms=now_ms) for of, at in ends.items()}
        counted = self._writer.rows(GOLD_COUNTED_UNTIL) if built else ()
        is_counted = until == {row["fleet"]: gold_days.ms_of(row["until_at"]) for row in counted}
        if not differing and is_counted:
            return False
        # A further copy of a journal changes what was read, and no figure. But an open interval counts up to now: when
        # that moves, days change although no row of silver does.
        waves: list[dict[str, Callable[[], None]]] = [{}]
        if differing - {BRONZE_QUALITY} or not is_counted:
            rows = [{"fleet": of, "last_at": _at(ends[of]), "until_at": _at(until[of])} for of in sorted(until)]
            self._writer.put_rows(GOLD_COUNTED_UNTIL, rows)
            tables = {one.name: in_ms(self._writer.read(self._spark, one)) for one in gold_days.SOURCES}
            put = partial(self._put_of_gold, gold_days.Days(tables=tables, until_ms=until))
            waves = [{table.path: partial(put, table, make) for table, make in wave.items()} for wave in gold.DAILY]
        waves[-1][GOLD_QUALITY.path] = self._count_faults
        for wave in waves:
            self._progress.together(wave)
        self._writer.note_built("gold", sources)
        return True

    def _put_of_gold(self, days: gold_days.Days, table: LakeTable, make: Callable[[gold_days.Days], DataFrame]) -> None:
        self._writer.put(table, make(days))
        if table in (GOLD_FAILOVERS, GOLD_SETS_DAILY):
            days.tables[table.name] = in_ms(self._writer.read(self._spark, table))

    def _count_faults(self) -> None:
        files, horizons = (self._writer.rows(table) for table in (BRONZE_QUALITY, SILVER_HORIZONS))
        faults = answers(self._writer.dataset, [FAULTS])[FAULTS.name]
        self._writer.put_rows(GOLD_QUALITY, quality(files, horizons, faults))


def _new(events: DataFrame) -> tuple[list[int], set[str]]:
    """Of these events the buckets of their sets, and their kinds."""
    rows = events.groupBy(bucket_of().alias("bucket"), "kind").agg(f.count("caller").alias(CALLED)).collect()
    words = {code: word for word, code in KINDS.items()}
    kinds = {words[row["kind"]] for row in rows if row["kind"] in words}
    called = {CALLED} if any(row[CALLED] for row in rows) else set()
    return sorted({row["bucket"] for row in rows} - {None}), kinds | called


def unread(lake: Lake, files: Sequence[Path]) -> list[Path]:
    """Files that are new or have changed since the newest snapshot of a lake read them."""
    version = lake.snapshot().version(BRONZE_INPUTS.path)
    known = {} if version is None else {row["path"]: row for row in rows_of(lake.folder(BRONZE_INPUTS.path), version)}
    return [file for file in files if (seen := _seen(file)) != known.get(seen["path"])]


def _seen(file: Path) -> dict[str, Any]:
    """Its row of ``bronze.inputs``."""
    found = file.stat()
    return {"path": str(file.absolute()), "bytes": found.st_size, "modified_ns": found.st_mtime_ns}


def _at(at_ms: int) -> dt.datetime:
    return gold_days.EPOCH + dt.timedelta(milliseconds=at_ms)


def _now_ms() -> int:
    return round(time.time() * 1000)
