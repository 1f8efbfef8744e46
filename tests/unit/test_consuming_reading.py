"""One look at a queue: its ends, its limits, records that are gone, units that name others; and the search by time."""

from __future__ import annotations

import pytest

from rollcall_ha.broker.consuming.filters import ALL, Filter, make_filter
from rollcall_ha.broker.consuming.reading import (
    BYTES_MAX,
    FAR_BYTES_MAX,
    FAR_MESSAGES_MAX,
    MESSAGES_MAX,
    RECORDS_PASSED_BY_MAX,
    UNITS_MAX,
    Found,
    QueueDamaged,
    QueueReader,
)
from rollcall_ha.broker.protocol.codes import ClientResult
from rollcall_ha.broker.protocol.record import RecordView
from tests.support.folded import T0, UNIT, FoldedLog

NEAR = 1 << 40


def reader_of(log: FoldedLog) -> QueueReader:
    return QueueReader(log.queues[T0], log, T0)


def look(log: FoldedLog, offset: int, *, filter_: Filter = ALL, messages: int = 32, near_bytes: int = NEAR) -> Found:
    return reader_of(log).look(offset, filter_, messages=messages, near_bytes=near_bytes)


def bodies(found: Found) -> list[bytes]:
    return [bytes(RecordView(view).body) for view in found.records]


def a_filter(expression: str, kind: str = "TAG") -> Filter:
    found = make_filter(kind, expression)
    assert isinstance(found, Filter)
    return found


def a_log(*sizes: int, first: int = 0) -> FoldedLog:
    log = FoldedLog()
    log.grow(*(b"x" * size for size in sizes), first=first)
    return log


@pytest.mark.parametrize(
    ("offset", "code", "following"),
    [
        (7, ClientResult.PULL_OFFSET_MOVED, 10),
        (-1, ClientResult.PULL_OFFSET_MOVED, 10),
        (10, ClientResult.PUT_OK, 13),
        (12, ClientResult.PUT_OK, 13),
        (13, ClientResult.PULL_NOT_FOUND, 13),
        (14, ClientResult.PULL_OFFSET_MOVED, 13),
        (1 << 62, ClientResult.PULL_OFFSET_MOVED, 13),
    ],
)
def test_an_offset_outside_of_the_queue_is_moved_to_its_nearer_end(offset: int, code: int, following: int) -> None:
    found = look(a_log(5, 5, 5, first=10), offset)

    assert (found.code, found.next_offset) == (code, following)
    assert (found.min_offset, found.max_offset) == (10, 13)


def test_a_queue_whose_messages_are_all_gone_has_its_end_as_its_only_offset() -> None:
    log = a_log(5, 5)
    log.queues[T0].min_offset = 2

    assert look(log, 2).code == ClientResult.PULL_NOT_FOUND
    assert (look(log, 1).code, look(log, 1).next_offset) == (ClientResult.PULL_OFFSET_MOVED, 2)


def test_records_come_in_order_as_they_lie_in_the_log() -> None:
    log = FoldedLog()
    log.grow(b"one", b"two", b"three")

    assert bodies(look(log, 1)) == [b"two", b"three"]
    assert b"".join(look(log, 0).records) == bytes(log.data)


def test_at_most_as_many_as_are_asked_for_and_never_more_than_32() -> None:
    log = a_log(*[5] * 50)

    assert len(look(log, 0, messages=3).records) == 3
    assert len(look(log, 0, messages=1_000).records) == MESSAGES_MAX
    assert look(log, 0, messages=1_000).next_offset == MESSAGES_MAX
    assert len(look(log, 0, messages=0).records) == len(look(log, 0, messages=-5).records) == 1


def test_bytes_are_limited_but_never_the_first_message() -> None:
    """A message larger than the limit would stop its queue for ever."""
    log = a_log(BYTES_MAX * 2, 100, BYTES_MAX // 2, BYTES_MAX // 2, 5)

    assert look(log, 0).next_offset == 1
    assert look(log, 1).next_offset == 3
    assert look(log, 3).next_offset == 5


def test_far_behind_the_end_of_the_log_an_answer_is_smaller() -> None:
    log = a_log(*[5] * 20, *[FAR_BYTES_MAX // 2] * 4)
    near = log.confirm_offset - 1

    assert len(look(log, 0, near_bytes=near).records) == FAR_MESSAGES_MAX
    assert len(look(log, 0, near_bytes=near, messages=2).records) == 2
    assert len(look(log, 20, near_bytes=0).records) == 1
    assert len(look(log, 0, near_bytes=near + 1).records) == 24


def test_only_records_whose_code_fits_are_read() -> None:
    log = FoldedLog()
    log.grow(b"1", b"2", properties=b"TAGS\x01a\x02")
    log.grow(b"3", properties=b"TAGS\x01b\x02")
    log.grow(b"4")
    log.reads.clear()
    found = look(log, 0, filter_=a_filter("b"))

    assert (bodies(found), found.next_offset, len(log.reads)) == ([b"3"], 4, 1)


def test_a_record_whose_tag_only_has_the_same_code_is_passed_by() -> None:
    log = FoldedLog()
    log.grow(b"1", properties=b"TAGS\x01BB\x02")
    log.grow(b"2", properties=b"TAGS\x01Aa\x02")
    found = look(log, 0, filter_=a_filter("Aa"))

    assert (bodies(found), found.next_offset) == ([b"2"], 2)


def test_a_look_without_a_record_that_passes_moves_behind_what_it_has_seen() -> None:
    log = a_log(*[0] * (UNITS_MAX + 1))
    log.reads.clear()
    found = look(log, 0, filter_=a_filter("nobody"))

    assert (found.code, found.next_offset, log.reads) == (ClientResult.PULL_RETRY_IMMEDIATELY, UNITS_MAX, [])


def test_an_expression_reads_so_many_records_for_nothing_and_no_more() -> None:
    log = a_log(*[0] * (RECORDS_PASSED_BY_MAX + 1))
    log.grow(b"last", properties=b"a\x011\x02")
    log.reads.clear()
    filter_ = a_filter("a = 1", "SQL92")
    found = look(log, 0, filter_=filter_)

    assert (found.code, found.next_offset) == (ClientResult.PULL_RETRY_IMMEDIATELY, RECORDS_PASSED_BY_MAX)
    assert len(log.reads) == RECORDS_PASSED_BY_MAX
    assert bodies(look(log, found.next_offset, filter_=filter_)) == [b"last"]


def test_a_queue_that_gives_few_units_at_a_time_is_read_none_the_less() -> None:
    log = a_log(*[5] * 5)
    log.queues[T0].step_max = 2

    assert look(log, 0).next_offset == 2


def test_records_that_the_log_has_dropped_are_left_out() -> None:
    log = FoldedLog()
    log.grow(b"one", b"two", b"three")
    log.min_offset = log.start + len(log.data) * 2 // 3 - 2

    assert bodies(look(log, 0)) == [b"three"]

    log.min_offset = log.confirm_offset
    assert (look(log, 0).code, look(log, 0).next_offset) == (ClientResult.PULL_RETRY_IMMEDIATELY, 3)


def test_a_blank_unit_is_no_record() -> None:
    log = FoldedLog()
    log.grow(b"one", b"two")
    log.queues[T0].put(0, 0, 0x7FFFFFFF, 0)

    assert bodies(look(log, 0)) == [b"two"]


@pytest.mark.parametrize(
    ("place_of", "shift", "size_by", "why"),
    [
        (0, 0, 0, "there is: record 0 of T:0"),
        (3, 0, 0, "there is: record 2 of T:1"),
        (4, 0, 0, "there is: record 2 of U:0"),
        (2, 0, -1, "there is: size"),
        (2, 0, 1, "there is: size"),
        (2, 4, 0, "there is: size"),
        (2, 0, -1_000, "which the log lacks"),
        (4, 0, 1, "which the log lacks"),
        (2, 1_000, 0, "which the log lacks"),
        (2, -1 << 40, 0, "which the log lacks"),
    ],
)
def test_a_unit_that_names_another_record_ends_what_is_delivered(
    place_of: int, shift: int, size_by: int, why: str
) -> None:
    """The records before it are found; from it on there is nothing but the reason."""
    log = FoldedLog(start=1_000)
    places = [log.append(body) for body in (b"zero", b"one!", b"two!")]
    places += [log.append(b"else", key=key, first=2) for key in ((b"T", 1), (b"U", 0))]
    log.catch_up()
    log.queues[T0].put(2, places[place_of] + shift, places[1] - places[0] + size_by, 0)
    before, at = look(log, 0), look(log, 2)

    assert (before.code, bodies(before), before.next_offset) == (ClientResult.PUT_OK, [b"zero", b"one!"], 2)
    assert (at.code, at.records, at.next_offset) == (ClientResult.SYSTEM_ERROR, [], 2)
    assert before.damage in at.remark
    assert "unit 2 of T:0" in at.remark
    assert why in at.remark


def test_lengths_inside_of_a_damaged_record_are_not_believed() -> None:
    log = a_log(5, 5)
    log.data[84:88] = b"\x7f\xff\xff\xff"
    found = look(log, 0)

    assert found.code == ClientResult.SYSTEM_ERROR
    assert "does not fit" in found.damage or "body of" in found.damage


@pytest.mark.parametrize("end", ["file is gone", "file is short", "file is empty"])
def test_a_queue_without_the_units_that_it_counts_is_damaged(end: str) -> None:
    """Answered as if nothing had passed, its consumer would ask for the same offset for ever."""
    log = a_log(5, 5, 5)
    queue = log.queues[T0]
    whole = bytes(queue.data)
    if end == "file is gone":
        queue.broken = FileNotFoundError("consumequeue/T/0/00000000000000000000")
    else:
        part = whole[: UNIT.size + 7] if end == "file is short" else b""
        queue.units = lambda start, count_max: part  # type: ignore[method-assign]
    found = look(log, 0)

    assert found.code == ClientResult.SYSTEM_ERROR
    assert "T:0 ends at 3 and has no whole unit 0" in found.damage


def test_a_disk_that_does_not_read_is_not_a_damaged_queue() -> None:
    log = a_log(5)
    log.queues[T0].broken = OSError(5, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        look(log, 0)


# --- time ------------------------------------------------------------------------------------------------------------


def timed(*times_ms: int, first: int = 0) -> FoldedLog:
    log = FoldedLog()
    for at_ms in times_ms:
        log.grow(b"x", at_ms=at_ms, first=first)
    return log


@pytest.mark.parametrize(
    ("at_ms", "lower", "upper"),
    [
        (0, 10, 10),
        (100, 10, 10),
        (150, 11, 10),
        (200, 11, 13),
        (250, 14, 13),
        (300, 14, 14),
        (301, 15, 14),
        (-5, 10, 10),
    ],
)
def test_a_time_is_found_between_its_neighbours(at_ms: int, lower: int, upper: int) -> None:
    """Of three equal times the first or the last; in a gap the neighbour; outside an end."""
    reader = reader_of(timed(100, 200, 200, 200, 300, first=10))

    assert reader.search(at_ms, is_upper=False) == lower
    assert reader.search(at_ms, is_upper=True) == upper


def test_records_that_are_gone_are_older_than_any_time() -> None:
    log = timed(100, 200, 300)
    log.min_offset = len(log.data) // 3

    assert reader_of(log).search(0, is_upper=False) == 1
    assert reader_of(log).earliest_ms() == 200

    log.min_offset = log.confirm_offset
    assert reader_of(log).earliest_ms() == -1
    assert reader_of(log).search(0, is_upper=False) == 3


def test_a_search_reads_few_records_of_many() -> None:
    log = timed(*range(1_000))
    log.reads.clear()

    assert reader_of(log).search(777, is_upper=False) == 777
    assert len(log.reads) <= 10


def test_a_search_that_meets_a_damaged_unit_says_so() -> None:
    log = timed(100, 200, 300)
    log.queues[T0].put(1, 0, 100, 0)

    with pytest.raises(QueueDamaged, match="unit 1 of T:0"):
        reader_of(log).search(200, is_upper=False)
