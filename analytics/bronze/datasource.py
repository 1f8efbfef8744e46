"""
``spark.read.format("rollcall")`` and ``spark.readStream.format("rollcall")``: a live control plane, or journals, as a
table.

Here: options, offsets, partitions, Arrow batches. Not here: pages, holes, controllers that are behind (``live``), texts
of files (``journals``).
One row per event: the columns of ``schema``, and ``line``, the event's JSON text as it was sent. A text in a journal
that is no event is a row with ``line`` alone.

Options: ``endpoint`` host:port,... of the controllers' REST ports, or ``path`` (``load(PATH)``) of journals, folders of
them, or folders of folders; ``cluster`` only this one's sets; ``from-index`` the first Raft index (0); ``partitions``
tasks of a batch (4). With an endpoint also: ``max-entries`` Raft entries per micro-batch of a stream (20,000);
``authority`` the fleet's ca.pem (without it controllers are asked without TLS), ``identity`` the certificate to show,
its key beside it, ``token-file`` in its place. All paths name files of every machine that reads.

Rule 1: a stream's offset is the mark after the newest event that is on record, never a step beyond it: an event that
comes later lies after it.
Rule 2: under AvailableNow the end is fixed once, at the beginning, and every micro-batch goes towards it by at most the
limit; the query ends when it is reached, not before (``SupportsTriggerAvailableNow``).
Rule 3: an offset names its fleet incarnation: a checkpoint does not go on in another fleet's record, which begins at
index 1 as well.
Rule 4: on one machine the source runs in the Python that registered it, whatever ``PYSPARK_PYTHON`` says.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import ArrayType, DataType, LongType, StringType, StructField, StructType

from rollcall_ha.analytics.bronze.journals import Share, Text, read_share
from rollcall_ha.analytics.bronze.lines import file_of, find_journals
from rollcall_ha.analytics.bronze.live import End, LiveRecord, Mark, ReadFailed, split
from rollcall_ha.analytics.bronze.schema import event_record_schema
from rollcall_ha.client.identity import Identity
from rollcall_ha.controller.contract.values import Frozen

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

BATCH_ROWS_MAX = 2_000
PARTITIONS = 4
ENTRIES_PER_BATCH = 20_000

LONG_MIN, LONG_MAX = -(1 << 63), (1 << 63) - 1

FOR_ALL = frozenset({"cluster", "from-index", "partitions"})
FOR_ENDPOINT = frozenset({"endpoint", "max-entries", "authority", "identity", "token-file"})
FOR_PATH = frozenset({"path", "paths"})
"""``paths`` is what Spark makes of ``load([PATH, ...])``."""


_decode_paths = msgspec.json.Decoder(list[str]).decode


class WrongOption(ValueError):
    """An option is missing or makes no sense; the message names it."""


class ReadOptions(Frozen):
    """Options of a query, checked."""

    endpoints: tuple[str, ...] = ()
    paths: tuple[Path, ...] = ()
    """Journals, instead of endpoints."""
    cluster: str = ""
    from_index: int = 0
    partitions: int = PARTITIONS
    entries_per_batch: int = ENTRIES_PER_BATCH
    authority: str = ""
    certificate: str = ""
    token_file: str = ""

    def record(self) -> LiveRecord:
        """The controllers' record, asked as the options say. Close it. Raises ``client.identity.IdentityError``."""
        authority, certificate, token = (
            Path(text) if text else None for text in (self.authority, self.certificate, self.token_file)
        )
        return LiveRecord(self.endpoints, Identity(authority=authority, certificate=certificate, token_file=token))


def parse_options(given: Mapping[str, str]) -> ReadOptions:
    """Options arrive as text. Raises ``WrongOption``."""
    known = FOR_ALL | FOR_ENDPOINT | FOR_PATH
    names = {name.lower() for name in given}
    strange = sorted(names - known)
    if strange:
        raise WrongOption(f"unknown options {strange}; known are {sorted(known)}")
    endpoints = tuple(part.strip() for part in given.get("endpoint", "").split(",") if part.strip())
    paths = _paths_of(given)
    if endpoints and paths:
        raise WrongOption(
            f"endpoint ({', '.join(endpoints)}) and path ({', '.join(map(str, paths))}) are two records: read one, and"
            " union the tables if both are wanted"
        )
    if not endpoints and not paths:
        raise WrongOption(
            'neither endpoint nor path is given: .option("endpoint", "host:port,...") of the controllers\' REST ports,'
            ' or .load("PATH") of journals'
        )
    useless = sorted(names & FOR_ENDPOINT) if paths else []
    if useless:
        raise WrongOption(f"options {useless} are for an endpoint: journals by path need none of them")

    def number(name: str, default: int, least: int) -> int:
        text = given.get(name, str(default))
        if not text.isascii() or not text.isdigit() or int(text) < least:
            raise WrongOption(f"option {name} is {text!r}, must be a whole number of at least {least}")
        return int(text)

    return ReadOptions(
        endpoints=endpoints,
        paths=paths,
        cluster=given.get("cluster", ""),
        from_index=number("from-index", 0, 0),
        partitions=number("partitions", PARTITIONS, 1),
        entries_per_batch=number("max-entries", ENTRIES_PER_BATCH, 1),
        authority=given.get("authority", ""),
        certificate=given.get("identity", ""),
        token_file=given.get("token-file", ""),
    )


def _paths_of(given: Mapping[str, str]) -> tuple[Path, ...]:
    texts = [given["path"]] if given.get("path") else []
    if given.get("paths"):
        texts += _decode_paths(given["paths"])
    return tuple(file_of(text) if text.startswith("file:") else Path(text) for text in texts)


def register(spark: SparkSession) -> None:
    """Make ``format("rollcall")`` known to a session. On a cluster its workers' Python needs Rollcall as well."""
    # A session of Spark Connect has no context: there the server says which Python it is.
    context = getattr(spark, "sparkContext", None)
    if context is None or not context.master.startswith("local") or not sys.executable:
        spark.dataSource.register(RollcallDataSource)
        return
    # Spark starts PATH's python3 unless PYSPARK_PYTHON was there before the session: without Rollcall, or of another
    # version. The one that runs this has both. Put back after that: other functions of the session are the user's.
    before = context.pythonExec
    context.pythonExec = sys.executable
    try:
        spark.dataSource.register(RollcallDataSource)
    finally:
        context.pythonExec = before


def live_schema() -> StructType:
    return StructType([*event_record_schema().fields, StructField("line", StringType())])


class RollcallDataSource(DataSource):  # type: ignore[misc]  # pyspark is untyped
    """The entry point that Spark calls."""

    @classmethod
    def name(cls) -> str:
        return "rollcall"

    def schema(self) -> StructType:
        """The same for all options. Raises ``WrongOption``."""
        # Asked first, by ``load``: a wrong option is told there, and not by the first query.
        parse_options(self.options)
        return live_schema()

    def reader(self, schema: StructType) -> DataSourceReader:
        options = parse_options(self.options)
        return JournalReader(options, schema) if options.paths else RollcallReader(options, schema)

    def streamReader(self, schema: StructType) -> RollcallStreamReader:  # noqa: N802 (Spark's name)
        options = parse_options(self.options)
        if options.paths:
            raise WrongOption(
                "journals by path are a batch: spark.read. As a stream: spark.readStream with an endpoint, or"
                " rollcall analytics stream FOLDER"
            )
        return RollcallStreamReader(options, schema)


class _Reads:
    """The part of batch and stream that runs in a task: a range is read from any controller that has it."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        """Nothing is asked or looked for yet."""
        self._options = options
        self._schema = schema

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The texts of one task, as Arrow batches. Runs in a worker."""
        from pyspark.sql.pandas.types import to_arrow_schema

        schema, rows = to_arrow_schema(self._schema), Rows(self._schema)
        texts = self._texts(partition.value)
        while batch := list(islice(texts, BATCH_ROWS_MAX)):
            yield rows.batch(batch, schema)

    def _texts(self, part: Any) -> Iterator[Text]:
        low, high = part
        with self._options.record() as record:
            for found in record.read(low, high):
                if not self._options.cluster or found.cluster == self._options.cluster:
                    yield found.line, msgspec.json.decode(found.line)

    def _ranges(self, start: Mark, end: Mark) -> list[InputPartition]:
        return [InputPartition(part) for part in split(start, end, self._options.partitions)]


class RollcallReader(_Reads, DataSourceReader):  # type: ignore[misc]  # pyspark is untyped
    """A batch: everything that is on record when it is planned."""

    def partitions(self) -> list[InputPartition]:
        """Ranges that together reach to the present end."""
        with self._options.record() as record:
            return self._ranges(Mark(self._options.from_index), record.end().mark)


class JournalReader(_Reads, DataSourceReader):  # type: ignore[misc]  # pyspark is untyped
    """A batch: the files that are there when it is planned."""

    def partitions(self) -> list[InputPartition]:
        """Tasks, each with all files (``journals`` rule 2). Raises ``NoJournals``."""
        files = tuple(file.absolute() for file in find_journals(self._options.paths))
        tasks = self._options.partitions
        return [InputPartition(Share(files=files, number=number, tasks=tasks)) for number in range(tasks)]

    def _texts(self, part: Any) -> Iterator[Text]:
        return read_share(part, from_index=self._options.from_index, cluster=self._options.cluster)


class RollcallStreamReader(_Reads, DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """A stream. Offsets are ``{"index", "ordinal", "fleet"}``: the mark where the next micro-batch begins."""

    _target: End | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """The beginning of a query without a checkpoint."""
        return {"index": self._options.from_index, "ordinal": 0, "fleet": ""}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """Raft entries per micro-batch; nearly every one has an event."""
        return ReadMaxRows(self._options.entries_per_batch)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Fix the end of an AvailableNow query at its beginning (Rule 2)."""
        self._target = self._present_end()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """How far the next micro-batch goes; equal to ``start`` if there is nothing new."""
        begin, fleet = Mark(start["index"], start["ordinal"]), start["fleet"]
        # Under AvailableNow the end that was fixed: a fleet that writes faster than this reads would never let it end.
        end = self._target if self._target is not None else self._present_end()
        if end.mark <= begin:
            # Nothing new; or the controllers that answer are behind, or restored from an old copy. An end before the
            # start would move the offset back, and the next batch would give the same events again.
            return start
        # Another fleet's record begins at index 1 as well: offset 70,000 would skip its first 70,000 entries, and mix
        # two fleets in one lake.
        if fleet and end.fleet != fleet:
            raise ReadFailed(
                f"this stream read fleet {fleet}, the record of {', '.join(self._options.endpoints)} is now that of "
                f"{end.fleet}: it was founded or restored anew. Start with a new checkpoint"
            )
        mark = end.mark
        # At most the limit, towards the target. A step that ignores ``ReadAllAvailable`` reads 50,000 of 200,000 rows
        # under AvailableNow, and succeeds.
        if isinstance(limit, ReadMaxRows) and not isinstance(limit, ReadAllAvailable):
            mark = min(mark, Mark(begin.index + limit.max_rows))
        return {"index": mark.index, "ordinal": mark.ordinal, "fleet": end.fleet}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """Ranges of one micro-batch: the same again after a restart."""
        return self._ranges(Mark(start["index"], start["ordinal"]), Mark(end["index"], end["ordinal"]))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing is kept here: the record stays where it is."""

    def stop(self) -> None:
        """Nothing is open between calls."""

    def _present_end(self) -> End:
        with self._options.record() as record:
            return record.end()


class Rows:
    """JSON texts to Arrow, by the Spark type of a row. A value of a wrong type is null, its text is in ``line``."""

    def __init__(self, schema: StructType) -> None:
        """Build the readers of all fields once."""
        self._fields = [(field.name, _reader_of(field.dataType)) for field in schema.fields if field.name != "line"]

    def batch(self, texts: list[Text], schema: pa.Schema) -> pa.RecordBatch:
        """The rows of these lines and their records."""
        import pyarrow as pa

        columns = [
            pa.array([read(record.get(name)) for _, record in texts], type=schema.field(name).type)
            for name, read in self._fields
        ]
        columns.append(pa.array([line.decode() for line, _ in texts], type=pa.string()))
        return pa.RecordBatch.from_arrays(columns, schema=schema)


_Read = Callable[[Any], Any]


def _reader_of(kind: DataType) -> _Read:
    if isinstance(kind, StructType):
        fields = [(field.name, _reader_of(field.dataType)) for field in kind.fields]
        return lambda value: (
            {name: read(value[name]) for name, read in fields if name in value} if isinstance(value, dict) else None
        )
    if isinstance(kind, ArrayType):
        read_item = _reader_of(kind.elementType)
        return lambda value: [read_item(item) for item in value] if isinstance(value, list) else None
    if isinstance(kind, StringType):
        # Items of different types share an array of text (``schema``): numbers are written out, as from_json does.
        return lambda value: value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()
    if isinstance(kind, LongType):
        # Arrow has no number beyond 64 bits: one in a journal would end the read.
        return lambda value: value if type(value) is int and LONG_MIN <= value <= LONG_MAX else None
    return lambda value: value if isinstance(value, bool) else None
