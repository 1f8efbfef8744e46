"""
From files to single JSON texts, one per event: nothing is judged, nothing is lost.

Here: finding files, reading them as text, taking apart lines that hold more than one record, pages of ``/v1/events``.
Not here: parsing a text (``events``).

Rule 1: a record begins with ``{"version":``, a page with ``{"freshness":``. In a JSON string the quotes would be
escaped, so neither can stand inside one: a line is taken apart there, and a torn record before a good one costs only
itself.
Rule 2: a line that begins with ``{"gap":`` is a hole: events that this controller lacks, and another journal may have.
Rule 3: a compressed file that was cut off or damaged gives every line up to there, and one more that says so
(``BREAK``). Spark would fail, or, told to ignore it, lose up to a buffer of good lines and say nothing; so compressed
files are read through before, at two hundredths of the cost of parsing them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from itertools import compress, islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import quote, unquote, urlsplit

import msgspec

from rollcall_ha.analytics.lake.session import as_path, is_hidden
from rollcall_ha.analytics.refusals import JobRefused
from rollcall_ha.node.terminal import harmless
from rollcall_ha.probe.journal import GLOB

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

JOURNAL_PATTERNS = ("*.jsonl", "*.jsonl.gz", "*.jsonl.zst")

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
"""Suffix of a file -> its compression."""

CHUNK_BYTES = 1 << 18
UNREAD_SHOWN_MAX = 5

URI_SAFE = "/!'()*,;:$&+=@~"
"""Characters that Java leaves as they are in the path of a URI, besides letters, digits and all beyond ASCII."""

LINES_PER_BATCH = 2_000
INT_MAX = (1 << 31) - 1
LINES_DDL = "source_file string, text string"

HOLE = '{"gap":'
BREAK = '{"break":'
"""Begins the line that is added where a compressed file breaks off."""
RECORD = '{"version":'
PAGE = '{"freshness":'

BEFORE_RECORD = r'(?=\{"version":)'
BEFORE_PAGE = r'(?=\{"freshness":)'


class NoJournals(JobRefused):
    """Nothing to read; the message names the places that were searched."""


def is_of_probe(file: Path) -> bool:
    """Whether it is a file of a probe's journal, or a compressed copy of one."""
    return fnmatch(file.name, f"{GLOB}*")


def find_journals(paths: Sequence[Path], *, with_probes: bool = False) -> list[Path]:
    """
    Files named by ``paths``; of a folder all journals below it, however deep. Says what below it is not read.

    ``with_probes``: those of probes, too. Raises ``NoJournals`` if a path does not exist or nothing was found.
    """
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            held = sorted(file for pattern in JOURNAL_PATTERNS for file in path.rglob(pattern) if file.is_file())
            below = [file for file in held if not is_of_probe(file)]
            probes = [file for file in held if is_of_probe(file)]
            # A controller's lie in ``events/``: where there is one, any other ``.jsonl`` below is none (a ledger of
            # producers), and would be a thousand rejected lines. Without any they are copies in folders of a person's.
            chosen = [file for file in below if file.parent.name == "events"] or below
            tell_unread(sorted({*path.rglob("*.jsonl*")} - {*chosen, *probes}), "no journals by place or name")
            found += [*chosen, *(probes if with_probes else ())]
        elif path.is_file():
            found += [path] if with_probes or not is_of_probe(path) else []
        elif path.exists():
            raise NoJournals(f"{path} is neither a file nor a folder; write what it gives into a file, and name that")
        else:
            raise NoJournals(f"{path} does not exist")
    if not found:
        looked = ", ".join(str(path) for path in paths)
        raise NoJournals(
            f"no journals ({', '.join(JOURNAL_PATTERNS)}) in {looked}: name a controller's data directory, a folder"
            " with journals in it, or a file that holds pages of /v1/events"
        )
    return found


def tell_unread(files: Sequence[Path], why: str) -> None:
    """Say on standard error which files are left out: what was not read would look like what did not happen."""
    if files:
        more = f" and {len(files) - UNREAD_SHOWN_MAX:,} more" if len(files) > UNREAD_SHOWN_MAX else ""
        named = ", ".join(map(str, files[:UNREAD_SHOWN_MAX]))
        print(f"not read ({why}): {harmless(named)}{more}", file=sys.stderr)


def find_broken(files: Sequence[Path]) -> list[Path]:
    """
    Compressed files that cannot be read to their end. All are read through, several at once.

    Raises ``OSError`` if a file cannot be opened.
    """
    compressed = [file for file in files if file.suffix in COMPRESSIONS]
    with ThreadPoolExecutor() as pool:
        is_broken = list(pool.map(_is_broken, compressed))
    return list(compress(compressed, is_broken))


def _is_broken(file: Path) -> bool:
    with file.open("rb") as raw, _decompressed(file, raw) as stream:
        # To the last byte: a file that was cut at 90 % opens, and gives 90 % of its lines before it fails.
        try:
            while stream.read(CHUNK_BYTES):
                pass
        except OSError:
            return True
    return False


def _decompressed(file: Path, raw: BinaryIO) -> pa.NativeFile:
    import pyarrow as pa

    return pa.input_stream(raw, compression=COMPRESSIONS.get(file.suffix))


def readable_lines(file: Path) -> Iterator[str]:
    """
    Every line of a file, compressed or not.

    A broken one gives those up to where it breaks off, to the last byte that can be had; then a ``BREAK``.
    """
    good_bytes, rest, why = 0, b"", ""
    # A read that fails at byte 1,000 of a chunk gives none of the 1,000: the last chunk is read again, byte by byte.
    for read_bytes in (CHUNK_BYTES, 1):
        with file.open("rb") as raw, _decompressed(file, raw) as stream:
            _skip(stream, good_bytes)
            try:
                while chunk := stream.read(read_bytes):
                    good_bytes += len(chunk)
                    *whole, rest = (rest + chunk).split(b"\n")
                    yield from (line.decode(errors="replace") for line in whole)
            except OSError as error:
                why = str(error)
            else:
                why = ""
                break
    if rest:
        yield rest.decode(errors="replace")
    if why:
        yield f"{BREAK}{msgspec.json.encode(why).decode()}}}"


def _skip(stream: pa.NativeFile, count_bytes: int) -> None:
    while count_bytes:
        count_bytes -= len(stream.read(min(count_bytes, CHUNK_BYTES)))


def read_lines(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """Columns ``source_file`` and ``text``: the files' lines as they are, empty ones too."""
    ours = {*find_broken(files), *(file for file in files if is_hidden(file.name))}
    whole = [as_path(file.absolute()) for file in files if file not in ours]
    if not whole:
        return own_lines(spark, sorted(ours))
    texts = as_lines(spark.read.text(whole))
    return texts.unionByName(own_lines(spark, sorted(ours))) if ours else texts


def own_lines(spark: SparkSession, files: Sequence[Path]) -> DataFrame:
    """The same of files that Spark does not read: those that break off (rule 3), and hidden ones. A task per file."""
    rows = [(str(file.absolute()),) for file in files]
    return spark.createDataFrame(rows, "path string").repartition(len(rows)).mapInArrow(_read_own, LINES_DDL)


def _read_own(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for path in (path for batch in batches for path in batch.column("path").to_pylist()):
        lines = readable_lines(Path(path))
        while texts := list(islice(lines, LINES_PER_BATCH)):
            yield pa.RecordBatch.from_pydict({"source_file": [source_of(Path(path))] * len(texts), "text": texts})


def source_of(file: Path) -> str:
    """``source_file`` of a file, as Spark names it."""
    path = "".join(char if ord(char) > ord("~") else quote(char, safe=URI_SAFE) for char in str(file.absolute()))
    return f"file:{path}"


def file_of(source: str) -> Path:
    """The file of a ``source_file``."""
    return Path(unquote(urlsplit(source).path))


def as_lines(text: DataFrame) -> DataFrame:
    """The same columns from Spark's text source, batch or stream; bytes that are no text are still there."""
    from pyspark.sql import functions as f

    return text.select(f.col("_metadata.file_path").alias("source_file"), f.col("value").alias("text"))


def is_blank(text: Column) -> Column:
    """Whether a line is empty but for white space."""
    from pyspark.sql import functions as f

    # No ``length``: it counts the characters of every line, byte by byte.
    return f.trim(text) == ""


def pieces(lines: DataFrame) -> DataFrame:
    """
    One JSON text per row: ``source_file``, ``line``, and ``texts``, how many its line held, on the first of them.

    A hole stays a row; so does a line without a text, as a blank one. Bytes that are no text end here.
    """
    from pyspark.sql import functions as f

    return (
        lines.select("source_file", f.make_valid_utf8("text").alias("text"))
        .select("source_file", _pieces(f.col("text")).alias("held"))
        # By itself: in the next one the whole array would go along with each of its texts.
        .select("source_file", "held", f.size("held").alias("size"))
        .select("source_file", "size", f.posexplode("held").alias("place", "line"))
        .select("source_file", "line", f.when(f.col("place") == 0, f.col("size")).alias("texts"))
    )


def _is_shared(text: Column) -> Column:
    """Whether a line has to be taken apart: it is a page, or a second record begins in it."""
    from pyspark.sql import functions as f

    # From the second byte on: every good line begins with a record. As bytes, not by ``locate``, which compares all of
    # ``RECORD`` at every character of every line.
    behind_first = f.substring(text.cast("binary"), 2, INT_MAX)
    return text.startswith(PAGE) | f.contains(behind_first, f.lit(RECORD.encode()))


def _pieces(text: Column) -> Column:
    from pyspark.sql import functions as f

    pages = f.flatten(f.transform(f.split(text, BEFORE_PAGE), _page))
    shared = f.when(text.startswith(PAGE), pages).otherwise(f.split(text, BEFORE_RECORD))
    held = f.filter(shared, lambda piece: ~is_blank(piece))
    # A page without events gives no text, and is a line all the same: left out, it would be missing in the counts.
    none = f.array(f.lit(""))
    return f.when(_is_shared(text), f.when(f.size(held) > 0, held).otherwise(none)).otherwise(f.array(text))


def _page(text: Column) -> Column:
    """The records of one page, and its hole; a text that is no page stays as it is, to be rejected."""
    from pyspark.sql import functions as f

    page = f.from_json(text, "events array<string>, gap string, _corrupt_record string")
    hole = f.when(page["gap"].isNotNull(), f.array(f.concat(f.lit(HOLE), f.to_json(f.struct(page["gap"])), f.lit("}"))))
    # Half a page parses up to where it breaks: its events would count, and the lost half would leave no trace.
    is_page = page["events"].isNotNull() & page["_corrupt_record"].isNull()
    return f.when(is_page, f.concat(page["events"], f.coalesce(hole, f.array().cast("array<string>")))).otherwise(
        f.array(text)
    )
