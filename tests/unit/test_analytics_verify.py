"""Walking a chain in ranges, without Spark: whatever the ranges, the same violations are found, borders included."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: the analytics extra is optional")

import pyarrow as pa

from rollcall_ha.analytics.checks.verify import BEGUN_INSIDE, BORDER, walk_borders, walk_ranges
from rollcall_ha.analytics.jobs.verify import RecordVerdict, verdict_of
from rollcall_ha.controller.core.verification import Rule
from tests.synthetic.fleet import SyntheticFleet
from tests.synthetic.plan import Plan

Row = dict[str, Any]


def test_a_record_of_nothing_is_not_sound() -> None:
    """A check that looked at no event has found nothing out, and must not end well."""
    assert [verdict_of(0, 0), verdict_of(5, 0), verdict_of(5, 1)] == [
        RecordVerdict.EMPTY,
        RecordVerdict.SOUND,
        RecordVerdict.BROKEN,
    ]


def rows_of(number: int) -> list[Row]:
    """Bronze rows of one synthetic fleet."""
    fleet = SyntheticFleet(Plan(seed=4, fleets=2, sets=1, days=1, faults_per_day=6), number)
    records = [record for entry in fleet.entries() for record in entry]
    return [
        {
            "fleet": records[-1].fleet_incarnation,
            "cluster": "c",
            "broker_set": None if record.set_key is None else record.set_key.name,
            "term": record.term,
            "index": record.index,
            "ordinal": record.ordinal,
            "line": msgspec.json.encode(record).decode(),
        }
        for record in records
    ]


def batches(rows: Sequence[Row], size: int) -> Iterator[Any]:
    for first in range(0, len(rows), size):
        yield pa.RecordBatch.from_pylist(list(rows[first : first + size]))


def walked(rows: Sequence[Row], *, ranges: int) -> set[tuple[str, int, int]]:
    """Both passes over so many ranges, each of a few batches."""
    length = -(-len(rows) // ranges)
    parts = [rows[first : first + length] for first in range(0, len(rows), length)]
    first = [row for part in parts for batch in walk_ranges(batches(part, 7)) for row in batch.to_pylist()]
    borders = [row for row in first if row["rule"] == BORDER]
    second = [row for batch in walk_borders(batches(borders, 3)) for row in batch.to_pylist()]
    found = [row for row in [*first, *second] if row["rule"] != BORDER]
    return {(row["rule"], row["index"], row["ordinal"]) for row in found}


@pytest.mark.parametrize("ranges", [1, 2, 5, 40])
def test_ranges_find_what_one_walk_finds(ranges: int) -> None:
    """Two fleets, one sound, one with an event changed and one gone."""
    sound, broken = rows_of(0), rows_of(1)
    changed = broken[20]
    changed["line"] = changed["line"].replace('"requestedBy":"', '"requestedBy":"x')
    gone = broken.pop(31)
    after = broken[31]

    found = walked([*sound, *broken], ranges=ranges)

    assert (Rule.CHAIN, changed["index"], changed["ordinal"]) in found
    assert (Rule.CHAIN, after["index"], after["ordinal"]) in found, gone
    assert {rule for rule, _, _ in found} <= {Rule.CHAIN, Rule.ORDER}
    assert len([rule for rule, _, _ in found if rule == Rule.CHAIN]) == 2


@pytest.mark.parametrize("ranges", [1, 3])
def test_a_record_that_begins_inside_is_said_to(ranges: int) -> None:
    """Not a violation: the events before are somewhere else."""
    rows = rows_of(0)[10:]

    assert walked(rows, ranges=ranges) == {(BEGUN_INSIDE, rows[0]["index"], rows[0]["ordinal"])}


def test_nothing_to_walk_is_nothing_found() -> None:
    """A task without rows."""
    assert list(walk_ranges(iter(()))) == []
    assert list(walk_borders(iter(()))) == []
