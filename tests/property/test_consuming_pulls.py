"""Laws of pulls: what a consumer that follows the next offset sees, times against a dumb search, and expressions."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollcall_ha.broker.consuming.filters import Filter, make_filter
from rollcall_ha.broker.consuming.reading import QueueReader
from rollcall_ha.broker.consuming.sql import SqlError, compile_sql
from rollcall_ha.broker.protocol.codes import ClientResult
from rollcall_ha.broker.protocol.record import RecordView
from tests.support.folded import T0, FoldedLog

TAGS = ["", "a", "Aa", "BB"]
SUBSCRIPTIONS = {
    ("TAG", "*"): TAGS,
    ("TAG", "a"): ["a"],
    ("TAG", "Aa || nobody"): ["Aa"],
    ("SQL92", "TAGS IS NULL OR TAGS = 'BB'"): ["", "BB"],
    ("SQL92", "TAGS = 'nobody'"): [],
}
SIZES = st.sampled_from([0, 0, 0, 10, 40_000, 70_000, 300_000])


@settings(max_examples=60, deadline=None)
@given(
    messages=st.lists(st.tuples(st.sampled_from(TAGS), SIZES, st.booleans()), min_size=1, max_size=60),
    subscription=st.sampled_from(sorted(SUBSCRIPTIONS)),
    limit=st.integers(-1, 40),
    near_bytes=st.sampled_from([0, 100_000, 1 << 40]),
    first=st.sampled_from([0, 1, 1_000]),
    dropped=st.integers(0, 5),
    step=st.integers(1, 50),
)
def test_a_consumer_that_follows_the_next_offset_sees_every_message_that_passes_once_and_in_order(
    messages: list[tuple[str, int, bool]],
    subscription: tuple[str, str],
    limit: int,
    near_bytes: int,
    first: int,
    dropped: int,
    step: int,
) -> None:
    """Whatever the limits, the sizes, other queues in between, and records that the log has dropped."""
    log = FoldedLog()
    places = []
    for number, (tag, size, is_other_between) in enumerate(messages):
        if is_other_between:
            log.grow(b"other", key=(b"T", 1))
        properties = b"TAGS\x01" + tag.encode() + b"\x02" if tag else b""
        places.append(log.append(number.to_bytes(4, "big") + b"x" * size, properties=properties, first=first))
    log.catch_up()
    queue = log.queues[T0]
    queue.step_max = step
    if dropped and dropped < len(places):
        log.min_offset = places[dropped]
    filter_ = make_filter(*subscription)
    assert isinstance(filter_, Filter)

    seen, offset = [], first
    while True:
        found = QueueReader(queue, log, T0).look(offset, filter_, messages=limit, near_bytes=near_bytes)
        if found.code == ClientResult.PULL_NOT_FOUND:
            break
        assert found.damage == ""
        assert (found.code == 0) == bool(found.records)
        assert found.next_offset > offset
        records = [RecordView(view) for view in found.records]
        assert all(offset <= record.queue_offset < found.next_offset for record in records)
        seen += [int.from_bytes(record.body[:4], "big") for record in records]
        offset = found.next_offset

    assert offset == first + len(messages)
    kept = range(dropped if dropped < len(places) else 0, len(messages))
    assert seen == [number for number in kept if messages[number][0] in SUBSCRIPTIONS[subscription]]


@given(
    times=st.lists(st.integers(0, 20), min_size=1, max_size=20).map(sorted),
    at_ms=st.integers(-2, 22),
    first=st.integers(0, 3),
)
def test_a_time_is_found_where_a_reader_of_all_records_finds_it(times: list[int], at_ms: int, first: int) -> None:
    log = FoldedLog()
    for time_ms in times:
        log.grow(b"x", at_ms=time_ms, first=first)
    reader = QueueReader(log.queues[T0], log, T0)
    numbered = list(enumerate(times, first))

    assert reader.search(at_ms, is_upper=False) == next((n for n, t in numbered if t >= at_ms), first + len(times))
    assert reader.search(at_ms, is_upper=True) == max((n for n, t in numbered if t <= at_ms), default=first)
    assert reader.earliest_ms() == times[0]


WORDS = st.sampled_from(
    ["a", "b", "5", "-1.5", "'x'", "''", "=", "<>", "<", ">=", "(", ")", ",", "AND", "OR", "NOT", "IN", "IS", "NULL",
     "BETWEEN", "CONTAINS", "STARTSWITH", "TRUE", "FALSE", "--", "/*", "\n", "'", "$", "é"]
)  # fmt: skip
PROPERTIES = st.binary(max_size=30) | st.sampled_from([b"a\x015\x02b\x01x\x02", b"a\x01\x02b\x01true\x02"])


@pytest.mark.slow
@settings(max_examples=300)
@given(words=st.lists(WORDS, max_size=14), properties=PROPERTIES, glue=st.sampled_from([" ", ""]))
def test_any_text_is_an_expression_that_answers_or_is_refused(words: list[str], properties: bytes, glue: str) -> None:
    try:
        passes = compile_sql(glue.join(words))
    except SqlError:
        return
    assert passes(properties) in (True, False)


def conditions() -> st.SearchStrategy[tuple[str, bool | None]]:
    """An expression over a = 5, s = 'x', and what it comes to; None: unknown."""
    leaves = st.sampled_from(
        [
            ("a = 5", True),
            ("a > 5", False),
            ("s = 'x'", True),
            ("s IN ('y')", False),
            ("gone = 1", None),
            ("s < 1", None),
        ]
    )

    def joined(parts: st.SearchStrategy[tuple[str, bool | None]]) -> st.SearchStrategy[tuple[str, bool | None]]:
        return st.one_of(
            st.tuples(parts, parts).map(lambda two: (f"({two[0][0]} AND {two[1][0]})", _both(two[0][1], two[1][1]))),
            st.tuples(parts, parts).map(lambda two: (f"({two[0][0]} OR {two[1][0]})", _either(two[0][1], two[1][1]))),
            parts.map(lambda one: (f"(NOT {one[0]})", None if one[1] is None else not one[1])),
        )

    return st.recursive(leaves, joined, max_leaves=8)


def _both(one: bool | None, other: bool | None) -> bool | None:
    return False if one is False or other is False else None if one is None or other is None else True


def _either(one: bool | None, other: bool | None) -> bool | None:
    return True if one is True or other is True else None if one is None or other is None else False


@given(condition=conditions())
def test_conditions_have_three_values_as_in_sql(condition: tuple[str, bool | None]) -> None:
    text, value = condition
    properties = b"a\x015\x02s\x01x\x02"

    assert compile_sql(text)(properties) is (value is True)
    assert compile_sql(f"NOT {text}")(properties) is (value is False)
