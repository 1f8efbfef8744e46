"""
The same silver from a stream: every micro-batch goes through the layers as a small run of its own.

Here: sources, one micro-batch, a query. Not here: bronze and silver (``layers``), printing (``jobs.stream``).

Rule 1: a micro-batch and its number are published together: one that is repeated after a crash adds nothing.
Rule 2: batch and stream are equal by rule 4 of ``tables``: an open row has a null end, and is written again when the
end comes. After the last micro-batch both have read the same events, and silver is a function of those.
Rule 3: Spark's file source reads each file once. Files that still grow are not for it: give closed journals, or the
controllers themselves.
Rule 4: of compressed files the stream gives the names only; a micro-batch reads them as a batch does, so that a damaged
one neither ends the stream nor loses a line (``lines`` rule 3).
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import DataStreamReader, StreamingQuery

from rollcall_ha.analytics.bronze import lines
from rollcall_ha.analytics.jobs.layers import Layers
from rollcall_ha.analytics.lake.lake import Lake
from rollcall_ha.analytics.lake.progress import Progress

FILES_PER_BATCH = 200
BINARY_FILE_DDL = "path string, modificationTime timestamp, length bigint, content binary"
"""As Spark defines it; a column that no query selects is not read."""
SHUFFLE_PARTITIONS = "4"
"""Of a micro-batch: Spark's streams run without adaptive execution."""


def of_files(spark: SparkSession, folder: str, *, files_per_batch: int = FILES_PER_BATCH) -> DataFrame:
    """Lines of the journals in a folder or glob, as ``as_lines`` gives them; of a compressed file a null."""

    def stream(names: str) -> DataStreamReader:
        return (
            spark.readStream.option("maxFilesPerTrigger", files_per_batch)
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
            # Read twice, to count and to parse: without this the second reading of a live source would give other
            # events.
            kept = batch.persist()
            texts = kept if is_continued else _with_compressed(kept)
            try:
                layers = Layers(spark, writer, Progress(spark, is_quiet=is_quiet))
                layers.ingest(texts, is_continued=is_continued)
                layers.silver()
            finally:
                kept.unpersist()
            writer.note_batch(name, number)
            writer.publish()

    query = stream.writeStream.foreachBatch(add).option("checkpointLocation", name)
    query = (
        query.trigger(availableNow=True)
        if every_ms is None
        else query.trigger(processingTime=f"{every_ms} milliseconds")
    )
    return query.start()
