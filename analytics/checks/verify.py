"""
The record of many fleets, checked against the rules that it must keep: a Spark job over bronze.

Here: the events that each rule is checked over, and their partitions. Not here: the rules themselves
(``controller.core.verification``), the command line (``jobs.verify``).

Rule 1: the chain is walked in ranges of one fleet's events, each sorted where it lies: a huge fleet is many tasks. Each
range hands back its first and its last event; these borders, a few rows, are walked afterwards.
Rule 2: a rule about the whole life of a set is a window over narrow columns: elections, starts and set epochs.
Rule 3: violations are rows; nothing of them reaches the driver by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from rollcall_ha.analytics.codes import KINDS
from rollcall_ha.controller.core.verification import (
    ChainedEvent,
    Rule,
    begins_inside,
    election_violations,
    link_of,
    walk,
)

VIOLATION_DDL = (
    "rule string, fleet string, cluster string, broker_set string, index bigint, ordinal bigint, text string"
)
BROKEN_DDL = "array<struct<rule string, text string>>"
EVENTS_PER_RANGE = 200_000
ROWS_PER_BATCH = 10_000

BORDER = "border"
"""Rows of the first pass that are no violations: the ends of a range, to be walked in the second."""
BEGUN_INSIDE = "begun-inside"
"""Rows of the second pass that are no violations: the events before this one are not here."""

_SET = ("fleet", "cluster", "broker_set")
_LINK = ("fleet", "cluster", "broker_set", "term", "index", "ordinal", "line")


class Verified(msgspec.Struct, frozen=True):
    violations: DataFrame
    """``VIOLATION_DDL``; empty if the record is sound."""
    begun_inside: DataFrame
    """The same columns: first events of fleets whose earlier events are not here, so that no chain leads to them."""


def verify(events: DataFrame) -> Verified:
    """Check ``events``, rows of ``bronze.events``, each once."""
    ranges = max(1, -(-events.count() // EVENTS_PER_RANGE))
    # By fleet and index, not by hash: the chain is only walked between neighbours.
    links = events.select(*_LINK).repartitionByRange(ranges, "fleet", "index")
    # Read twice: for its violations and for its borders. Few rows, where the record is sound.
    walked = links.sortWithinPartitions("fleet", "index", "ordinal").mapInArrow(walk_ranges, VIOLATION_DDL).persist()
    rule = f.col("rule")
    # One partition per fleet: a border between two ranges that lie in two partitions would be walked by neither, and an
    # event that was cut out there would not be missed.
    ends = walked.where(rule == BORDER).repartition("fleet").sortWithinPartitions("fleet", "index", "ordinal")
    borders = ends.mapInArrow(walk_borders, VIOLATION_DDL)
    elections, entered = (events.where(f.col("kind") == KINDS[kind]) for kind in ("master-elected", "master-entered"))
    repeated = f.udf(lambda line: [(one.rule, one.text) for one in election_violations(line.encode())], BROKEN_DDL)
    # (id, incarnation): mastership belongs to both.
    master = f.concat_ws(" as ", f.col("broker_id"), f.get_json_object("line", "$.event.masterIncarnation"))
    found = [
        walked.where(rule != BORDER),
        borders.where(rule != BEGUN_INSIDE),
        elections.select(*_SET, "index", "ordinal", f.inline(repeated("line"))),
        _two_of_one(elections, Rule.ONE_MASTER, master, "masters"),
        _two_of_one(entered, Rule.ONE_START, f.get_json_object("line", "$.event.startOffset"), "starts"),
        _falls(elections, Rule.EPOCHS, "master_epoch"),
        _falls(events.where("sync_state_set_epoch is not null"), Rule.SET_EPOCHS, "sync_state_set_epoch"),
    ]
    return Verified(
        violations=reduce(lambda left, right: left.unionByName(right), found),
        begun_inside=borders.where(rule == BEGUN_INSIDE),
    )


# --- the chain -------------------------------------------------------------------------------------------------------


def walk_ranges(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One sorted range of one fleet, or of several."""
    last: dict[str, Any] | None = None
    before: ChainedEvent | None = None
    found: list[dict[str, Any]] = []
    for row in _rows(batches):
        link = _link(row)
        # A range may end one fleet and begin the next: walked on, the first event of fleet B would "break" A's chain.
        if last is not None and last["fleet"] != row["fleet"]:
            found.append(_border(last))
            before = None
        found += [_border(row)] if before is None else _broken(before, link, row)
        last, before = row, link
        if len(found) >= ROWS_PER_BATCH:
            yield _batch(found)
            found = []
    if last is not None:
        yield _batch([*found, _border(last)])


def walk_borders(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The borders of whole fleets, in order: first, last, first, last; from each last to the next first."""
    last: dict[str, Any] | None = None
    found: list[dict[str, Any]] = []
    is_first = True
    for border in _rows(batches):
        row = msgspec.json.decode(border["text"])
        if is_first and (last is None or last["fleet"] != row["fleet"]):
            # The chain begins with this event, or its beginning is in journals that were not given: not a violation.
            found += [_said(BEGUN_INSIDE, row, "")] if begins_inside(_link(row)) else []
        elif is_first and last is not None:
            found += _broken(_link(last), _link(row), row)
        last, is_first = row, not is_first
    if found:
        yield _batch(found)


def _broken(before: ChainedEvent, link: ChainedEvent, row: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [_said(broken.rule, row, broken.text) for broken in walk(before, link)]


def _border(row: Mapping[str, Any]) -> dict[str, Any]:
    return _said(BORDER, row, msgspec.json.encode(row).decode())


def _link(row: Mapping[str, Any]) -> ChainedEvent:
    places = {name: row[name] for name in ("term", "index", "ordinal")}
    return link_of(row["line"].encode(), **places)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        yield from batch.to_pylist()


def _said(rule: str, row: Mapping[str, Any], text: str) -> dict[str, Any]:
    named = {name: row[name] for name in ("fleet", "cluster", "broker_set", "index", "ordinal")}
    return {"rule": rule, **named, "text": text}


def _batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    kinds = {"string": pa.string(), "bigint": pa.int64()}
    fields = [part.split() for part in VIOLATION_DDL.split(", ")]
    return pa.RecordBatch.from_pylist(rows, schema=pa.schema([(name, kinds[kind]) for name, kind in fields]))


# --- one set over its life -------------------------------------------------------------------------------------------


def _two_of_one(events: DataFrame, rule: str, value: Column, what: str) -> DataFrame:
    """Epochs with two different values, e.g. two masters."""
    first = f.min(f.struct("index", "ordinal"))
    grouped = (
        events.select(*_SET, "master_epoch", "index", "ordinal", value.alias("value"))
        .groupBy(*_SET, "master_epoch")
        .agg(f.collect_set("value").alias("values"), first.alias("at"))
        .where(f.size("values") > 1)
    )
    values = f.concat_ws(" and ", f.array_sort("values"))
    text = f.concat(f.lit("epoch "), f.col("master_epoch"), f.lit(f" has {what} "), values)
    return grouped.select(f.lit(rule).alias("rule"), *_SET, f.col("at.index"), f.col("at.ordinal"), text.alias("text"))


def _falls(events: DataFrame, rule: str, name: str) -> DataFrame:
    """Events at which ``name`` is lower than at the event of the same set before; an election must raise its epoch."""
    life = Window.partitionBy(*_SET).orderBy("index", "ordinal")
    before = f.lag(name).over(life)
    narrow = events.select(*_SET, "index", "ordinal", name).withColumn("before", before)
    # An election must raise the epoch: the same one twice is two masters in it. A set epoch repeats with each event.
    fell = f.col(name) <= f.col("before") if rule == Rule.EPOCHS else f.col(name) < f.col("before")
    text = f.concat(f.lit(f"C1: {name} went from "), f.col("before"), f.lit(" to "), f.col(name))
    return narrow.where(fell).select(f.lit(rule).alias("rule"), *_SET, "index", "ordinal", text.alias("text"))
