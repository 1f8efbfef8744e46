"""Offsets of the live stream, without Spark: the loop that Spark runs, played by hand. With Spark: ``tests/spark``."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from rollcall_ha.analytics.bronze.datasource import (
    RollcallDataSource,
    RollcallStreamReader,
    WrongOption,
    live_schema,
    parse_options,
)
from rollcall_ha.analytics.bronze.live import End, Mark, ReadFailed


class StreamReader(RollcallStreamReader):
    """Of a record that ends where the test says."""

    def __init__(self, index: int, *, entries: int) -> None:
        options = parse_options({"endpoint": "127.0.0.1:1", "max-entries": str(entries)})
        super().__init__(options, live_schema())
        self.present = End(mark=Mark(index, 3), fleet="f")

    def _present_end(self) -> End:
        return self.present


def batches_of(reader: StreamReader, start: dict[str, Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What Spark does under AvailableNow: on and on until the latest offset is the one that it has."""
    reader.prepareForTriggerAvailableNow()
    batches = []
    while (end := reader.latestOffset(start, reader.getDefaultReadLimit())) != start:
        batches.append((start, end))
        start = end
        # More is written meanwhile: none of it belongs to this query.
        reader.present = End(mark=Mark(reader.present.mark.index + 50, 1), fleet="f")
    return batches


def test_available_now_reaches_its_end_and_not_more() -> None:
    """Batch after batch by the limit, up to the end that was fixed at the beginning."""
    reader = StreamReader(1_000, entries=300)
    batches = batches_of(reader, reader.initialOffset())

    assert [end["index"] for _, end in batches] == [300, 600, 900, 1_000]
    assert batches[-1][1] == {"index": 1_000, "ordinal": 3, "fleet": "f"}


def test_a_restart_goes_on_where_the_last_query_ended() -> None:
    """The first range after it begins where the last one ended, in the middle of an entry too."""
    first = batches_of(StreamReader(1_000, entries=300), {"index": 0, "ordinal": 0, "fleet": ""})
    reader = StreamReader(1_400, entries=300)
    second = batches_of(reader, first[-1][1])
    ranges = [part.value for start, end in first + second for part in reader.partitions(start, end)]

    assert ranges[0][0] == Mark(0, 0)
    assert ranges[-1][1] == Mark(1_400, 3)
    assert all(left[1] == right[0] for left, right in pairwise(ranges))


def test_a_stream_without_an_end_takes_all_that_is_there() -> None:
    """``ReadAllAvailable`` is honoured, and nothing new is no batch."""
    reader = StreamReader(1_000, entries=10)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())

    assert end["index"] == 1_000
    assert reader.latestOffset(end, ReadMaxRows(10)) == end


def test_a_controller_that_is_behind_moves_nothing_back() -> None:
    """An offset never falls: what was read is not read again."""
    start = {"index": 2_000, "ordinal": 1, "fleet": "f"}

    assert StreamReader(1_000, entries=10).latestOffset(start, ReadMaxRows(10)) == start


def test_another_fleets_record_is_not_the_continuation() -> None:
    """A control plane that was founded anew counts from index 1: a checkpoint of the old one says so instead of reading."""
    reader = StreamReader(5_000, entries=10)

    with pytest.raises(ReadFailed, match="new checkpoint"):
        reader.latestOffset({"index": 4_000, "ordinal": 0, "fleet": "another"}, ReadMaxRows(10))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "neither endpoint nor path is given"),
        ({"endpoint": "a:1", "path": "journals"}, r"endpoint \(a:1\) and path \(journals\) .* read one"),
        ({"path": "journals", "token-file": "t"}, r"\['token-file'\] are for an endpoint"),
        ({"endpoint": "a:1", "from-index": "-1"}, "from-index is '-1'"),
        ({"endpoint": "a:1", "partitions": "0"}, "at least 1"),
        ({"endpoint": "a:1", "limit": "5"}, r"unknown options \['limit'\]"),
    ],
)
def test_wrong_options_are_named(given: dict[str, str], words: str) -> None:
    """Options arrive as text, and a mistake is not a default."""
    with pytest.raises(WrongOption, match=words):
        parse_options(given)


def test_paths_come_as_spark_gives_them() -> None:
    """One, several, and as the URI that Spark shows; a stream of them is refused with the way that there is."""
    assert parse_options({"path": "file:///a%20b/c"}).paths == (Path("/a b/c"),)
    assert parse_options({"paths": '["a","b"]'}).paths == (Path("a"), Path("b"))
    with pytest.raises(WrongOption, match="rollcall analytics stream FOLDER"):
        RollcallDataSource({"path": "a"}).streamReader(live_schema())
