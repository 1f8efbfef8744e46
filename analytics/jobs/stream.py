"""
A lake that is kept up to date from a source that goes on, and the alerts that come of it.

Here: sources, one micro-batch, which goes through the layers as a small run of its own, when to look for alerts, which
of them are printed. Not here: bronze and silver (``layers``), limits and rows of alerts (``checks.alerts``).

Rule 1: a micro-batch and its number are published together: one that is repeated after a crash adds nothing.
Rule 2: batch and stream are equal by rule 4 of ``tables``: an open row has a null end, and is written again when the
end comes. After the last micro-batch both have read the same events, and silver is a function of those.
Rule 3: Spark's file source reads each file once. Files that still grow are not for it: give closed journals, or the
controllers themselves.
Rule 4: of compressed files the stream gives the names only; a micro-batch reads them as a batch does, so that a damaged
one neither ends the stream nor loses a line (``lines`` rule 3).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import DataStreamReader, StreamingQuery

from rollcall_ha.analytics.bronze import lines
from rollcall_ha.analytics.checks.alerts import COLUMNS, Limits, alerts, notice_of
from rollcall_ha.analytics.jobs.layers import Layers
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.progress import Progress
from rollcall_ha.analytics.lake.session import as_path, check_java, is_hidden, spark_session
from rollcall_ha.analytics.lake.tables import in_ms
from rollcall_ha.analytics.refusals import JobRefused
from rollcall_ha.analytics.silver.tables import SILVER_HORIZONS
from rollcall_ha.client.identity import Identity
from rollcall_ha.node.terminal import print_json

FILES_PER_BATCH = 200
BINARY_FILE_DDL = "path string, modificationTime timestamp, length bigint, content binary"
"""As Spark defines it; a column that no query selects is not read."""
SHUFFLE_PARTITIONS = "4"
"""A micro-batch has so many: Spark's streams run without adaptive execution."""


def run(
    source: str,
    *,
    lake: Path,
    checkpoint: Path | None,
    is_once: bool,
    every_ms: int,
    limits: Limits,
    master: str,
    is_quiet: bool,
) -> int:
    """Follow ``source`` until all was read; 1 if the stream failed. Raises ``JobRefused``."""
    target = Lake(lake)
    is_live = ":" in source and not Path(source).exists()
    if not is_live and "*" not in source and not Path(source).is_dir():
        raise JobRefused(f"{source} is neither a folder nor host:port")
    # Before anything is made or started: a lake that another run writes is told at once, not at the first micro-batch.
    check_java()
    with target.writer():
        pass
    with spark_session(app="rollcall analytics stream", master=master) as spark:
        texts = of_controllers(spark, source, **_caller()) if is_live else of_files(spark, source)
        query = start(
            spark,
            texts,
            target,
            checkpoint=checkpoint or lake / "checkpoint",
            is_continued=is_live,
            every_ms=None if is_once else every_ms,
            is_quiet=is_quiet,
        )
        told: set[tuple[object, ...]] = set()
        has_ended = False
        try:
            while not has_ended:
                has_ended = _has_ended(query, every_ms)
                told = tell(spark, target, limits, told, is_live=is_live)
        finally:
            query.stop()
        failure = query.exception()
    if failure is None:
        return 0
    print(f"rollcall analytics stream: {failure}", file=sys.stderr)
    return 1


def _caller() -> dict[str, str]:
    """Who reads from the controllers: options of the source, by the environment, as the other commands take it."""
    found = Identity.of_environment(os.environ)
    named = {"authority": found.authority, "identity": found.certificate, "token-file": found.token_file}
    return {name: str(path.resolve()) for name, path in named.items() if path is not None}


def _has_ended(query: StreamingQuery, within_ms: int) -> bool:
    try:
        return bool(query.awaitTermination(within_ms / 1000))
    except StreamingQueryException:
        return True


def tell(
    spark: SparkSession, lake: Lake, limits: Limits, told: set[tuple[object, ...]], *, is_live: bool
) -> set[tuple[object, ...]]:
    """
    One look at the published tables: print each alert that is not among ``told``. Returns those that last.

    ``is_live``: judge by this machine's clock; else by the newest stamp of the events.
    """
    snapshot = lake.snapshot()
    if snapshot.number == 0:
        return told
    # Old files by their own stamps: by this machine's clock each set of last year would have had no master for a year.
    newest = in_ms(lake.read(spark, SILVER_HORIZONS, snapshot=snapshot)).agg({"last_at_ms": "max"})
    now_ms = round(time.time() * 1000) if is_live else newest.first()[0]
    if now_ms is None:
        return told
    lasting = set()
    for row in alerts(spark, lake, snapshot, now_ms=now_ms, limits=limits).collect():
        # Without the three that move: else a set without a master would be an alert at each look.
        key = tuple(row[name] for name in COLUMNS if name not in ("lasts_ms", "count", "since_ms"))
        lasting.add(key)
        if key not in told:
            print_json(notice_of(row.asDict(), now_ms=now_ms), is_line=True)
    return lasting


def of_files(spark: SparkSession, folder: str) -> DataFrame:
    """Lines of the journals in a folder or glob, as ``as_lines`` gives them; of a compressed file a null."""
    root = Path(folder)
    if root.is_dir():
        folder = as_path(root)
        hidden = (file for file in root.rglob("*.jsonl*") if any(map(is_hidden, file.relative_to(root).parts)))
        lines.tell_unread(sorted(hidden), "Spark hides names that begin with _ or .; rename them, or read them by run")

    def stream(names: str) -> DataStreamReader:
        return (
            spark.readStream.option("maxFilesPerTrigger", FILES_PER_BATCH)
            .option("pathGlobFilter", names)
            .option("recursiveFileLookup", "true")
        )

    plain = lines.as_lines(stream("*.jsonl").text(folder))
    compressed = stream("*.jsonl.{gz,zst}").format("binaryFile").schema(BINARY_FILE_DDL).load(folder)
    return plain.unionByName(
        compressed.select(f.col("_metadata.file_path").alias("source_file"), f.lit(None).cast("string").alias("text"))
    )


def _with_compressed(batch: DataFrame) -> DataFrame:
    """The lines of a micro-batch of ``of_files``, with those of its compressed files."""
    named = batch.where("text is null").select("source_file").collect()
    if not named:
        return batch
    files = [lines.file_of(row["source_file"]) for row in named]
    return batch.where("text is not null").unionByName(lines.read_lines(batch.sparkSession, files))


def of_controllers(spark: SparkSession, endpoints: str, **options: str) -> DataFrame:
    """Lines of a live control plane; ``endpoints`` as ``host:port,...`` of REST ports, ``options`` of its source."""
    from rollcall_ha.analytics.bronze.datasource import register

    register(spark)
    stream = spark.readStream.format("rollcall").option("endpoint", endpoints).options(**options).load()
    return stream.select(f.lit(f"rollcall:{endpoints}").alias("source_file"), f.col("line").alias("text"))


def start(
    spark: SparkSession,
    stream: DataFrame,
    lake: Lake,
    *,
    checkpoint: Path,
    is_continued: bool,
    every_ms: int | None,
    is_quiet: bool = True,
) -> StreamingQuery:
    """
    Keep bronze and silver of ``lake`` up to date with a ``stream`` (``of_files`` or ``of_controllers``).

    ``checkpoint`` is the folder of the stream's offsets; one lake may be fed by several. ``is_continued``: one
    source gives more and more lines (a control plane), not each file once. ``every_ms`` is the pause between
    micro-batches; None: read to the present end.
    """
    name = str(checkpoint.absolute())

    def add(batch: DataFrame, number: int) -> None:
        with lake.writer() as writer:
            # A crash after ``publish`` and before Spark's commit repeats the batch: its bad lines would count twice.
            # Asked of the lake, because both were published by one commit.
            if writer.last_batch(name) >= number:
                return
            batch.sparkSession.conf.set("spark.sql.shuffle.partitions", SHUFFLE_PARTITIONS)
            # Files are read twice, to look for compressed ones, too.
            texts = batch if is_continued else _with_compressed(batch.persist())
            try:
                progress = Progress(spark, is_quiet=is_quiet)
                layers = Layers(spark, writer, progress)
                with progress.step(f"micro-batch {number}"):
                    layers.ingest(texts, is_continued=is_continued)
                    layers.silver()
            finally:
                batch.unpersist()
            writer.note_batch(name, number)
            writer.publish()

    trigger = {"availableNow": True} if every_ms is None else {"processingTime": f"{every_ms} milliseconds"}
    query = stream.writeStream.foreachBatch(add).option("checkpointLocation", name)
    return query.trigger(**trigger).start()
