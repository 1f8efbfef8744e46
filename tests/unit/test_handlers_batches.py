"""Batches with a producer's number in the put path: one number, a record for each message, each there once (R18)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from rollcall_ha.broker.handlers.put import PutLimits
from rollcall_ha.broker.log.record import walk
from rollcall_ha.broker.protocol.send import SendRequest, encode_batch, encode_send, parse_frame
from tests.support.log_broker import LogBroker
from tests.support.log_tools import log_bytes, read_by_the_document
from tests.unit.test_handlers_put import PRODUCER, Sink, send


def stamp(sequence: int) -> bytes:
    return f"ROLLCALL_SEQ\x01{PRODUCER}:0:{sequence}\x02".encode()


def batch(
    opaque: int, first: int | None, count: int, *, properties: bytes = b"", queue_id: int = 0, body_bytes: int = 1
) -> SendRequest:
    """``count`` messages, of which the first has the number; their bodies are their numbers."""
    bodies = [b"%d" % (number + (first or 0)) for number in range(count)]
    of_each = [properties] * count
    if first is not None:
        of_each[0] = stamp(first) + properties
    body = encode_batch([each.ljust(body_bytes, b".") for each in bodies], of_each)
    raw = encode_send(
        opaque=opaque, group="g", topic="T", queue_id=queue_id, born_at_ms=1, properties="", body=body, is_batch=True
    )
    found = parse_frame(memoryview(raw)[4:])
    assert isinstance(found, SendRequest)
    return found


def bodies(broker: LogBroker) -> list[bytes]:
    """By docs/wire.md."""
    return [each.body for each in read_by_the_document(broker.log._files.log_folder)]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[LogBroker]:
    made = LogBroker(tmp_path / "1", 1, limits=PutLimits(waiting_messages_max=5))
    made.confirms_at_once = False
    made.lead(1)
    yield made
    made.log.close(is_clean=False)


def test_a_batch_is_recognised_whole_and_each_record_has_its_own_number(broker: LogBroker) -> None:
    """Repeated before its release it waits for that; the next message has the number behind its last."""
    sink = Sink()
    broker.put.handle(sink, [batch(1, 0, 3, properties=b"K\x01v\x02"), batch(2, 0, 3), send(3, 3, body=b"3")])
    assert broker.put.waiting_messages == 7
    assert sink.writes == []
    broker.put.release(broker.log.max_offset)
    first, repeated, single = sink.writes[0]
    assert (first.code, repeated.code, single.code) == (0, 0, 0)
    assert first.ext_fields is not None
    assert first.ext_fields["queueOffset"] == "0"
    assert repeated.ext_fields is not None
    assert repeated.ext_fields["duplicate"] == "true"
    records = read_by_the_document(broker.log._files.log_folder)
    assert [(each.body, each.queue_offset) for each in records] == [(b"%d" % n, n) for n in range(4)]
    assert [each.properties.partition(b"\x02")[0] + b"\x02" for each in records] == [stamp(n) for n in range(4)]
    assert [b"K\x01v\x02" in each.properties for each in records] == [True, True, True, False]
    ids = [int(each[16:], 16) for each in first.ext_fields["msgId"].split(",")]
    starts: list[int] = []
    walk(memoryview(log_bytes(broker.log)), 0, broker.log.max_offset, starts)
    assert ids == starts[:3]
    counters = broker.put.counters
    assert (counters.appended, counters.duplicates, counters.released) == (4, 3, 7)


def test_r18_of_a_batch_that_a_failover_cut_the_rest_is_appended_and_nothing_twice(
    broker: LogBroker, tmp_path: Path
) -> None:
    """Whole records reach a slave, not whole batches: taken for all, the others would be lost behind PUT_OK."""
    broker.put.handle(Sink(), [batch(1, 0, 5)])
    starts: list[int] = []
    data = log_bytes(broker.log)
    walk(memoryview(data), 0, broker.log.max_offset, starts)
    second, sink = LogBroker(tmp_path / "2", 2), Sink()
    with second.log.receive_view(starts[2]) as view:
        view[:] = data[: starts[2]]
    second.log.commit_received(starts[2])
    second.log.extend_index(1 << 30)
    second.lead(2)
    second.put.handle(sink, [batch(2, 0, 5)])
    second.put.handle(sink, [batch(3, 0, 5), send(4, 5, body=b"5")])
    second.put.release(second.log.max_offset)
    assert {answer[0] for answer in sink.answers.values()} == {0}
    assert bodies(second) == [b"0", b"1", b"2", b"3", b"4", b"5"]
    second.log.close(is_clean=False)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [(batch(1, 7, 2), "producer-unknown"), (batch(1, 0, 2, properties=stamp(9)), "illegal")],
    ids=["gap", "two numbers"],
)
def test_a_batch_with_a_gap_or_with_two_numbers_leaves_nothing_in_the_log(
    broker: LogBroker, request_: SendRequest, reason: str
) -> None:
    """One answer is for all of it."""
    sink, end = Sink(), broker.log.max_offset
    broker.put.handle(sink, [request_])
    assert sink.answers[1][1] == reason
    assert broker.log.max_offset == end


def test_a_batch_that_fits_into_no_segment_is_refused_and_its_number_is_free(broker: LogBroker) -> None:
    """As one message."""
    sink = Sink()
    broker.put.handle(sink, [batch(1, 0, 3, body_bytes=100_000)])
    assert sink.answers[1][2] == "not-appended"
    broker.put.handle(sink, [batch(2, 0, 2, body_bytes=100_000), batch(3, 2, 2, body_bytes=100_000)])
    broker.put.release(broker.log.max_offset)
    assert [sink.answers[opaque][0] for opaque in (2, 3)] == [0, 0]
    assert [each.queue_offset for each in read_by_the_document(broker.log._files.log_folder)] == [0, 1, 2, 3]


def test_a_slave_that_read_batches_has_the_table_of_its_master(broker: LogBroker, tmp_path: Path) -> None:
    """Rule 1 of the table: folded by batches at the append, by records at the receipt, and again at a start."""
    sink = Sink()
    for first in (0, 40, 41):
        broker.put.handle(sink, [batch(first, first, 40 if not first else 1, body_bytes=3_000)])
        broker.put.release(broker.log.max_offset)
    second = LogBroker(tmp_path / "2", 2)
    data = log_bytes(broker.log)
    while second.log.max_offset < broker.log.max_offset:
        rest = data[second.log.max_offset :]
        with second.log.receive_view(len(rest)) as view:
            length = len(view)
            view[:] = rest[:length]
        second.log.commit_received(length)
    second.log.extend_index(1 << 30)
    assert second.log.producers.snapshot() == broker.log.producers.snapshot()
    assert second.log.producers.snapshot()[bytes.fromhex(PRODUCER)] == (0, 0, 41)
    second.log.close(is_clean=False)
