"""
The three layers of a lake, brought up to date: changed days are computed again, the others stay as they are published.

Here: the partitions that a layer has to read, and putting its tables in place. Not here: their rows (``bronze``,
``silver``, ``gold``), the mechanism of publishing (``lake``).

Rule 1: a layer knows the partitions that it was built from. Same partitions: nothing to do. Ingesting a file again, or
copies of it, changes no partition.
Rule 2 (bronze): a day of a cluster is written anew if the files brought events for it that it lacked.
Rule 3 (silver): tables whose rows depend on one day are made anew for changed days. Reigns and intervals are made from
the published rows and the events since the day before the first change (rule 2 of ``silver.facts`` and
``silver.intervals``); only days whose rows differ are written.
Rule 4 (gold): daily tables are made anew from the first day with a changed silver row, or that was not over; tables of
the whole lake are added up from the daily ones.
"""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from rollcall_ha.analytics.bronze import events as bronze
from rollcall_ha.analytics.bronze import lines
from rollcall_ha.analytics.bronze.tables import BRONZE_EVENTS, BRONZE_QUALITY, BRONZE_REJECTED
from rollcall_ha.analytics.gold import daily as gold
from rollcall_ha.analytics.gold import days as gold_days
from rollcall_ha.analytics.gold import totals as gold_totals
from rollcall_ha.analytics.gold.tables import GOLD_BUILT, GOLD_FAILOVERS, GOLD_NODES, GOLD_SETS, GOLD_SETS_DAILY
from rollcall_ha.analytics.lake.lake import WHOLE, LakeWriter, Partitions, partitions_in, values_of
from rollcall_ha.analytics.lake.progress import Progress
from rollcall_ha.analytics.lake.session import OPEN_FILES_MAX
from rollcall_ha.analytics.lake.tables import LakeTable
from rollcall_ha.analytics.silver import facts as silver
from rollcall_ha.analytics.silver import intervals
from rollcall_ha.analytics.silver.tables import (
    SILVER,
    SILVER_CALLERS,
    SILVER_CLEANINGS,
    SILVER_ELECTIONS,
    SILVER_HORIZONS,
    SILVER_LEADERSHIPS,
    SILVER_REIGNS,
    SILVER_SILENCES,
    SILVER_STOPS,
    SILVER_SYNC_STATE_SETS,
    SILVER_TENURES,
    SILVER_TRUNCATIONS,
)

SKEW_DAYS = 1
"""A report may carry the date of so many days before its election's: leaders' clocks differ."""

OF_ONE_DAY = (
    (SILVER_ELECTIONS, silver.elections),
    (SILVER_TRUNCATIONS, silver.truncations),
    (SILVER_CLEANINGS, silver.cleanings),
    (SILVER_LEADERSHIPS, silver.leaderships),
    (SILVER_CALLERS, silver.callers),
    (SILVER_HORIZONS, silver.horizons),
)
"""Tables whose rows depend on the events of their own day only."""

FILE_ORDER = ("kind", "phase", "seq")
"""Order of the rows in a bronze file: a reader of one kind skips the pages of the others."""

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
        known = {} if again else self._writer.manifest.inputs
        # BEFORE the lines are read: a file that grows meanwhile has another size for the next run, which reads it
        # again. Looked at afterwards, its last lines would count as read.
        found = {str(file.absolute()): (file.stat().st_size, file.stat().st_mtime_ns) for file in files}
        fresh = [Path(path) for path, seen in found.items() if known.get(path) != seen]
        if not fresh:
            return 0
        self.ingest(lines.read_lines(self._spark, fresh))
        read = {str(path): found[str(path)] for path in fresh}
        self._writer.update(inputs={**self._writer.manifest.inputs, **read})
        return len(fresh)

    def ingest(self, texts: DataFrame, *, is_continued: bool = False) -> None:
        """
        Add texts (``lines.as_lines``) to bronze.

        Args:
            texts: Read twice, so they must be the same each time.
            is_continued: They follow earlier texts of the same sources; else they take their place in the counts.
        """
        with self._progress.step("bronze: count lines"):
            read = _counts(texts)
        # A file that is read again brings its bad lines again: kept beside the old ones they would count twice.
        if not is_continued:
            sources = {f"source={row['source']}" for row in read}
            self._writer.replace(BRONZE_REJECTED, {}, removed=sources)
        with self._progress.step("bronze: parse"):
            run = self._stage_events(bronze.once(bronze.judged(lines.pieces(texts))))
            added = self._merge(run)
        self._writer.replace(BRONZE_EVENTS, added, removed=())
        with self._progress.step("bronze: count events"):
            self._put_quality(read, is_continued=is_continued)

    def _stage_events(self, rows: DataFrame) -> str:
        """Write events and rejected texts in one job, then move both into folders of their tables. Returns the run."""
        outcome = f.when(f.col("why").isNull(), "event").otherwise("rejected")
        run, folder = self._writer.folder(BRONZE_EVENTS)
        both = folder.with_name(f"run={run}-both")
        parts = ("outcome", "cluster", "day")
        columns = (*parts, *(name for name in BRONZE_EVENTS.column_names if name not in parts), "why")
        ordered = rows.withColumn("outcome", outcome).select(*columns).sortWithinPartitions(*parts, *FILE_ORDER)
        ordered.write.partitionBy(*parts).option("compression", "zstd").parquet(str(both))
        folder.mkdir()
        # Renames within a run that nobody reads yet: killed half-way, both folders are unnamed and are swept.
        for cluster in sorted((both / "outcome=event").glob("cluster=*")):
            cluster.rename(folder / cluster.name)
        self._keep_rejected(run, both / "outcome=rejected")
        shutil.rmtree(both)
        return run

    def _keep_rejected(self, run: str, folder: Path) -> None:
        target = self._writer.lake.root / "data" / BRONZE_REJECTED.path / f"run={run}"
        kept = dict(self._writer.manifest.tables.get(BRONZE_REJECTED.path, {}))
        for cluster in sorted(folder.glob("cluster=*")):
            name = cluster.name.replace("cluster=", "source=", 1)
            # A rejected text has no day: its one folder is Hive's name for null.
            (without_day,) = cluster.iterdir()
            target.mkdir(parents=True, exist_ok=True)
            without_day.rename(target / name)
            kept[name] = [*kept.get(name, []), run]
        self._writer.replace(BRONZE_REJECTED, kept)

    def _merge(self, run: str) -> Partitions:
        """The days to which the staged run adds an event; published ones are merged with it."""
        lake, published = self._writer.lake, self._writer.manifest.tables.get(BRONZE_EVENTS.path, {})
        staged = partitions_in(lake.root / "data" / BRONZE_EVENTS.path / f"run={run}")
        added: Partitions = {name: [run] for name in staged if name not in published}
        both = [name for name in staged if name in published]
        if both:
            old = self._writer.read(self._spark, BRONZE_EVENTS, only=both)
            new = lake.read_folders(self._spark, BRONZE_EVENTS, {name: [run] for name in both})
            merged = self._stage_events(bronze.once(bronze.merging(old, new)))
            now = lake.read_folders(self._spark, BRONZE_EVENTS, {name: [merged] for name in both})
            # Old events win over their copies, so the same number is the same events. Days that only met copies keep
            # their files: else reading a journal twice would make silver and gold anew.
            sizes = _rows_by_day(old), _rows_by_day(now)
            added |= {name: [merged] for name in both if len({size.get(values_of(name)) for size in sizes}) > 1}
        return added

    def _put_quality(self, read: Sequence[Row], *, is_continued: bool) -> None:
        published = self._writer.manifest.tables.get(BRONZE_REJECTED.path, {})
        names = [name for row in read if (name := f"source={row['source']}") in published]
        rejected = self._writer.read(self._spark, BRONZE_REJECTED, only=names)
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
        source = self._writer.manifest.tables.get(BRONZE_EVENTS.path, {})
        built = {} if is_full else self._writer.manifest.built_from.get("silver", {})
        # By the names of runs, which are never used twice.
        changed = [name for name, runs in source.items() if built.get(name) != runs]
        if not changed and not is_full:
            return False
        of_changed = self._writer.read(self._spark, BRONZE_EVENTS, only=changed)
        for table, rows_of in OF_ONE_DAY:
            with self._progress.step(table.path.replace("/", ": ")):
                self._put(table, rows_of(of_changed), removed=changed if built else None)
        # Null without an earlier build: then everything is made from events alone, and no stale row can take part.
        scope = _Scope.of(changed, source) if built else None
        events = self._writer.read(self._spark, BRONZE_EVENTS, only=scope.events) if scope else of_changed
        for table, fold in FOLDED:
            with self._progress.step(table.path.replace("/", ": ")):
                published = self._published(table, scope)
                self._put_changed(table, fold(events, published), published, scope)
        with self._progress.step("silver: tenures"):
            reigns = self._published(SILVER_REIGNS, scope)
            if reigns is None:
                reigns = self._writer.read(self._spark, SILVER_REIGNS)
            self._put_changed(SILVER_TENURES, intervals.tenures(reigns), self._published(SILVER_TENURES, scope), scope)
        self._writer.update(built_from={**self._writer.manifest.built_from, "silver": dict(source)})
        return True

    def _published(self, table: LakeTable, scope: _Scope | None) -> DataFrame | None:
        """Rows of the clusters that are looked at; None: everything is made anew."""
        if scope is None:
            return None
        names = self._writer.manifest.tables.get(table.path, {})
        return self._writer.read(self._spark, table, only=[n for n in names if values_of(n)[0] in scope.clusters])

    def _put_changed(
        self, table: LakeTable, rows: DataFrame, published: DataFrame | None, scope: _Scope | None
    ) -> None:
        """Write the days whose rows differ from the published ones."""
        if published is None or scope is None:
            self._put(table, rows)
            return
        rows = rows.persist()
        try:
            before, now = _fingerprints(published), _fingerprints(rows)
            # A later event of one set rewrites a day of 10,000 sets only if a row of that day is another one now.
            differing = {day for day in before.keys() | now.keys() if before.get(day) != now.get(day)}
            if not differing:
                return
            days = self._spark.createDataFrame(sorted(differing), "cluster string, day date")
            names = self._writer.manifest.tables.get(table.path, {})
            removed = [name for name in names if values_of(name) in differing]
            self._put(table, rows.join(days.hint("broadcast"), ["cluster", "day"], "left_semi"), removed=removed)
        finally:
            rows.unpersist()

    def _put(self, table: LakeTable, rows: DataFrame, *, removed: Iterable[str] | None = None) -> None:
        """
        ``LakeWriter.put`` of a table by cluster and day.

        In a lake of many days of many clusters the rows of a day are brought together first: else each task writes a
        small file into nearly every one, and a task has no more than ``OPEN_FILES_MAX`` open at once.
        """
        if len(self._writer.manifest.tables.get(BRONZE_EVENTS.path, {})) > OPEN_FILES_MAX:
            rows = rows.hint("rebalance", *table.partitions)
        self._writer.put(table, rows, removed=removed)

    # --- gold --------------------------------------------------------------------------------------------------------

    def gold(self, *, is_full: bool = False) -> bool:
        """Bring gold up to date. Returns whether anything had changed."""
        source = {
            f"{table.path}/{name}": runs
            for table in (*SILVER, BRONZE_QUALITY)
            for name, runs in self._writer.manifest.tables.get(table.path, {}).items()
        }
        built = {} if is_full else self._writer.manifest.built_from.get(GOLD_BUILT, {})
        differing = [name for name in source.keys() | built.keys() if built.get(name) != source.get(name)]
        if not differing:
            return False
        dated = [name for name in differing if not name.endswith(f"/{WHOLE}")]
        if dated:
            self._put_days(dated, is_fresh=not built)
        with self._progress.step("gold: totals"):
            for table, rows_of in gold_totals.TOTALS:
                rows = rows_of(lambda wanted: self._writer.read(self._spark, wanted))
                # One file for small tables; a row per set or replica may be millions of rows, too many for one task.
                self._writer.put(table, rows if table in (GOLD_SETS, GOLD_NODES) else rows.coalesce(1))
        # Keys of gold in an older form go: kept, a return to that version of the program would find gold up to date.
        others = {name: of for name, of in self._writer.manifest.built_from.items() if not name.startswith("gold")}
        self._writer.update(built_from={**others, GOLD_BUILT: source})
        return True

    def _put_days(self, differing: Iterable[str], *, is_fresh: bool) -> None:
        """The daily tables, from the first day that may have changed (rule 4)."""
        tables = {table.name: self._writer.read(self._spark, table) for table in SILVER}
        horizons = {row["fleet"]: row["at_ms"] for row in gold_days.horizon_of_fleets(tables["horizons"]).collect()}
        since = None if is_fresh else self._gold_since(differing, horizons)
        days = gold_days.Days(tables=tables, since=since)
        for table, rows_of in gold.DAILY:
            with self._progress.step(table.path.replace("/", ": ")):
                names = self._writer.manifest.tables.get(table.path, {})
                removed = None if since is None else [name for name in names if values_of(name)[1] >= since]
                self._put(table, days.only_since(rows_of(days)), removed=removed)
                if table in (GOLD_FAILOVERS, GOLD_SETS_DAILY):
                    days.tables[table.name] = self._writer.read(self._spark, table)
        self._writer.update(horizons=horizons)

    def _gold_since(self, differing: Iterable[str], horizons: dict[str, int]) -> dt.date:
        """The first day with a changed row, or that was not over for a fleet that has lived on."""
        days = [values_of(name.split("/", 2)[2])[1] for name in differing]
        known = self._writer.manifest.horizons
        # An open interval counts up to its fleet's last event: when that moves on, yesterday's sums change although no
        # silver row of yesterday does.
        days += [_day_of(known[fleet]) for fleet, at_ms in horizons.items() if known.get(fleet, at_ms) != at_ms]
        return min(days)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scope:
    """Clusters and days that a later run of silver reads."""

    clusters: frozenset[str]
    events: list[str]

    @classmethod
    def of(cls, changed: Iterable[str], source: Iterable[str]) -> _Scope:
        first: dict[str, dt.date] = {}
        for cluster, day in map(values_of, changed):
            first[cluster] = min(first.get(cluster, day), day)
        # A report may be dated before its election, by a leader whose clock is behind. Read from the changed day on, an
        # epoch of the 2nd would miss its milestone that is dated the 1st.
        slack = dt.timedelta(days=SKEW_DAYS)
        looked_at = [
            name
            for name, (cluster, day) in ((name, values_of(name)) for name in source)
            if cluster in first and day >= first[cluster] - slack
        ]
        return cls(clusters=frozenset(first), events=looked_at)


def _counts(texts: DataFrame) -> Sequence[Row]:
    """Per source file: numbers about files, not data."""
    text = f.col("text")
    rows: list[Row] = (
        texts.select(
            "source_file",
            lines.is_blank(text).alias("blank"),
            lines.is_shared(text).alias("shared"),
            lines.count_of(text).alias("pieces"),
        )
        .groupBy("source_file")
        .agg(
            f.count("*").alias("lines"),
            f.count_if("blank").alias("blank"),
            f.count_if("shared").alias("shared"),
            f.sum("pieces").alias("pieces"),
        )
        .withColumn("source", bronze.source_of())
        .collect()
    )
    return rows


def _rows_by_day(rows: DataFrame) -> dict[tuple[str, dt.date], int]:
    return {(row["cluster"], row["day"]): row["count"] for row in rows.groupBy("cluster", "day").count().collect()}


def _fingerprints(rows: DataFrame) -> dict[tuple[str, dt.date], tuple[int, int]]:
    """Per cluster and day: how many rows, and a hash of all of them in any order."""
    hashed = rows.groupBy("cluster", "day").agg(f.count("*").alias("n"), f.bit_xor(f.xxhash64("*")).alias("hash"))
    return {(row["cluster"], row["day"]): (row["n"], row["hash"]) for row in hashed.collect()}


def _day_of(at_ms: int) -> dt.date:
    return dt.datetime.fromtimestamp(at_ms / 1000, dt.UTC).date()
