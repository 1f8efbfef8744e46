"""Batches of the producer against real listen ports and logs: none lost, none twice, whatever happens on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from rollcall_ha.broker.client.packing import PackLimits
from rollcall_ha.broker.client.producer import Producer, SendFailedError, SendResult
from rollcall_ha.broker.log.record import blank_bytes, walk
from rollcall_ha.broker.protocol.codes import SendOutcome
from rollcall_ha.broker.protocol.record import RecordView
from tests.support.ha_replica import until
from tests.support.java_set import JavaSet
from tests.support.log_broker import LogBroker
from tests.support.log_tools import log_bytes
from tests.unit.test_client_producer import bodies, replicate, run, serving


def results_of(outcomes: list[SendResult | SendFailedError]) -> list[SendResult]:
    """All of them acknowledged."""
    assert not [each for each in outcomes if isinstance(each, SendFailedError)]
    return [each for each in outcomes if isinstance(each, SendResult)]


@asynccontextmanager
async def packing(directory: Path, **given: Any) -> AsyncIterator[tuple[LogBroker, Producer]]:
    """A broker that confirms nothing by itself, and a producer whose frames wait a minute for more."""
    async with serving(directory) as broker:
        broker.confirms_at_once = False
        async with Producer([broker.address], pack=PackLimits(delay_ms=60_000), **given) as producer:
            yield broker, producer


def test_each_message_of_a_batch_hears_its_own_place(tmp_path: Path) -> None:
    """Queue, offset and id are those of the record that is there."""

    async def body() -> None:
        async with serving(tmp_path) as broker, Producer([broker.address]) as producer:
            sent = [b"%d" % number for number in range(2_500)]
            outcomes = results_of(await producer.send_many("T", sent))
            assert bodies(broker) == sent
            data = memoryview(log_bytes(broker.log))
            starts: list[int] = []
            walk(data, 0, broker.log.max_offset, starts)
            views = [RecordView(data, at) for at in starts if blank_bytes(data, at) is None]
            records = {int(each.physical_offset): each for each in views}
            for text, result in zip(sent, outcomes, strict=True):
                record = records[int(result.message_id[16:], 16)]
                place = (bytes(record.body), record.queue_id, record.queue_offset)
                assert place == (text, result.queue_id, result.queue_offset)
            assert [each.sequence for each in outcomes] == list(range(2_500))
            assert len({each.queue_id for each in outcomes}) == 3, "a frame of at most 1,024 has one queue"
            assert producer.counters.acked == broker.put.counters.released == 2_500

    run(body)


def test_callers_at_once_share_frames_and_one_alone_waits_for_nobody(tmp_path: Path) -> None:
    """What gathers while a frame of its queue is under way leaves in the next one."""

    async def body() -> None:
        async with packing(tmp_path) as (broker, producer):
            first = asyncio.ensure_future(producer.send("T", b"first", queue_id=1))
            await until(lambda: broker.put.waiting_messages == 1)
            others = [asyncio.ensure_future(producer.send("T", b"%d" % n, queue_id=1)) for n in range(9)]
            elsewhere = asyncio.ensure_future(producer.send("T", b"elsewhere", queue_id=2))
            await until(lambda: broker.put.waiting_messages == 2)
            assert bodies(broker) == [b"first", b"elsewhere"]
            broker.put.release(broker.log.max_offset)
            await first
            await until(lambda: broker.put.waiting_messages == 9)
            broker.put.release(broker.log.max_offset)
            await asyncio.gather(*others, elsewhere)
            assert bodies(broker)[2:] == [b"%d" % n for n in range(9)]
            assert broker.woken == 3

    run(body)


def test_a_batch_that_a_failover_cut_is_whole_and_once_at_the_next_master(tmp_path: Path) -> None:
    """R18: the next master has the first ones of it; the rest follows, and each caller is acknowledged."""

    async def body() -> None:
        async with LogBroker(tmp_path / "1", 1) as first, LogBroker(tmp_path / "2", 2) as second:
            first.confirms_at_once = False
            first.lead(1)
            for each in (first, second):
                each.set_route(1, 1, first, second)
            async with Producer([second.address]) as producer:
                sent = [b"%d" % number for number in range(50)]
                sends = asyncio.ensure_future(producer.send_many("T", sent))
                await until(lambda: first.put.waiting_messages == 50)
                starts: list[int] = []
                walk(memoryview(log_bytes(first.log)), 0, first.log.max_offset, starts)
                with second.log.receive_view(starts[20]) as view:
                    view[:] = log_bytes(first.log)[: starts[20]]
                second.log.commit_received(starts[20])
                second.log.extend_index(1 << 30)
                assert len(bodies(second)) == 20
                first.follow()
                second.lead(2)
                second.set_route(2, 2, first, second)
                outcomes = results_of(await sends)
                assert bodies(second) == sent
                assert {(each.attempts, each.queue_offset) for each in outcomes} == {(2, None)}
                assert (await producer.send("T", b"after")).sequence == 50

    run(body)


def test_a_batch_whose_answer_was_lost_is_there_once(tmp_path: Path) -> None:
    """The next master has all of it: it answers for the original."""

    async def body() -> None:
        async with LogBroker(tmp_path / "1", 1) as first, LogBroker(tmp_path / "2", 2) as second:
            first.confirms_at_once = False
            first.lead(1)
            for each in (first, second):
                each.set_route(1, 1, first, second)
            async with Producer([second.address], in_flight_max=100) as producer:
                sends = asyncio.ensure_future(producer.send_many("T", [b"%d" % number for number in range(300)]))
                await until(lambda: first.put.waiting_messages == 100)
                replicate(first, second)
                first.follow()
                second.lead(2)
                second.set_route(2, 2, first, second)
                results_of(await sends)
                assert bodies(second) == [b"%d" % number for number in range(300)]
                assert producer.counters.duplicate_answers == 100

    run(body)


def test_a_message_that_is_too_large_fails_alone_among_its_neighbours(tmp_path: Path) -> None:
    """It is larger than a segment of this broker, and than a frame may be."""

    async def body() -> None:
        async with serving(tmp_path) as broker, Producer([broker.address]) as producer:
            sent = [b"x" * (300_000 if n == 3 else n + 1) for n in range(8)]
            outcomes = await producer.send_many("T", sent)
        refused = outcomes.pop(3)
        assert isinstance(refused, SendFailedError)
        assert refused.outcome is SendOutcome.NOT_APPENDED
        results_of(outcomes)
        assert sorted(map(len, bodies(broker))) == [1, 2, 3, 5, 6, 7, 8]

    run(body)


def test_a_refused_batch_is_taken_apart_and_the_one_that_is_illegal_fails_alone(tmp_path: Path) -> None:
    """One of them is more than a record of this broker may hold together with others."""

    async def body() -> None:
        async with (
            serving(tmp_path) as broker,
            Producer([broker.address], pack=PackLimits(bytes_max=1 << 20)) as producer,
        ):
            sent = [b"x" * (262_000 if n == 3 else n + 1) for n in range(8)]
            outcomes = await producer.send_many("T", sent, queue_id=1)
        refused = outcomes.pop(3)
        assert isinstance(refused, SendFailedError)
        assert refused.outcome is SendOutcome.NOT_APPENDED
        results_of(outcomes)
        assert list(map(len, bodies(broker))) == [1, 2, 3, 5, 6, 7, 8], "in their order"

    run(body)


def test_a_topic_that_takes_nothing_is_told_to_each_message_of_its_frame(tmp_path: Path) -> None:
    """One answer for all: asked for one by one, each would cost the window a round."""

    async def body() -> None:
        async with serving(tmp_path) as broker, Producer([broker.address]) as producer:
            broker.room.topics.creates = False
            outcomes = await producer.send_many("U", [b"x"] * 100)
            assert {each.outcome for each in outcomes if isinstance(each, SendFailedError)} == {
                SendOutcome.NOT_APPENDED
            }
            assert len({id(each) for each in outcomes}) == 100
            assert producer.counters.not_appended == 100
            assert broker.put.counters.refused == 1

    run(body)


def test_the_end_of_a_producer_tells_each_caller_what_is_known(tmp_path: Path) -> None:
    """Written, waiting for a frame, waiting for a place: none hangs, and none is told more than is known."""

    async def body() -> None:
        async with serving(tmp_path) as broker:
            broker.confirms_at_once = False
            limits = PackLimits(delay_ms=60_000)
            async with Producer([broker.address], in_flight_max=3, pack=limits) as producer:
                first = asyncio.ensure_future(producer.send("T", b"a", queue_id=1))
                await until(lambda: broker.put.waiting_messages == 1)
                rest = asyncio.ensure_future(producer.send_many("T", [b"b", b"c", b"d"], queue_id=1))
                await until(lambda: producer._places.messages == 3)
            with pytest.raises(SendFailedError) as failure:
                await first
            assert failure.value.outcome is SendOutcome.UNKNOWN
            told = [each.outcome for each in await rest if isinstance(each, SendFailedError)]
            assert told == [SendOutcome.NOT_APPENDED] * 3
            with pytest.raises(SendFailedError, match="closed"):
                await producer.send("T", b"e")
            assert bodies(broker) == [b"a"]

    run(body)


def test_a_caller_that_was_cancelled_has_sent_its_message_and_holds_no_place(tmp_path: Path) -> None:
    """Handed over is handed over: it leaves with its neighbours."""

    async def body() -> None:
        async with packing(tmp_path) as (broker, producer):
            sends = [asyncio.ensure_future(producer.send("T", b"%d" % n, queue_id=1)) for n in range(3)]
            await until(lambda: broker.put.waiting_messages == 3)
            late = [asyncio.ensure_future(producer.send("T", b"%d" % n, queue_id=1)) for n in range(3, 6)]
            await until(lambda: producer._places.messages == 6)
            for each in (sends[1], late[1]):
                each.cancel()
            broker.confirms_at_once = True
            broker.put.release(broker.log.max_offset)
            await asyncio.gather(*sends, *late, return_exceptions=True)
            await until(lambda: producer._places.messages == 0)
            assert bodies(broker) == [b"%d" % n for n in range(6)]

    run(body)


def test_what_waits_for_a_frame_too_long_is_taken_out_and_its_neighbours_stay(tmp_path: Path) -> None:
    """Definitely not appended, while what was written is unknown."""

    async def body() -> None:
        async with packing(tmp_path, send_timeout_ms=300) as (broker, producer):
            outcomes = await asyncio.gather(
                producer.send_many("T", [b"a"], queue_id=1),
                asyncio.wait_for(later(producer, broker), 20),
            )
            assert [each.outcome for each in outcomes[0] if isinstance(each, SendFailedError)] == [SendOutcome.UNKNOWN]
            assert [each.outcome for each in outcomes[1] if isinstance(each, SendFailedError)] == [
                SendOutcome.NOT_APPENDED
            ] * 2
            producer._timeout_s = 20
            last = asyncio.ensure_future(producer.send("T", b"d", queue_id=1))
            broker.confirms_at_once = True
            broker.put.release(broker.log.max_offset)
            assert (await last).sequence == 1
            assert bodies(broker) == [b"a", b"d"]
            assert producer._places.messages == 0

    async def later(producer: Producer, broker: LogBroker) -> list[SendResult | SendFailedError]:
        await until(lambda: broker.put.waiting_messages == 1)
        return await producer.send_many("T", [b"b", b"c"], queue_id=1)

    run(body)


def test_a_broker_of_rocketmqs_gets_batches_and_each_message_alone_if_one_is_illegal() -> None:
    """It refuses the whole batch, and says no reason."""

    async def body() -> None:
        java = JavaSet(refuses_once=False)
        await java.server.start("127.0.0.1", 0)
        async with Producer([java.address], topic="T", set_name="j", queue_count=4) as producer:
            outcomes = await producer.send_many("T", [b"1", b"bad", b"2"])
            places = [each.queue_offset for each in results_of(await producer.send_many("T", [b"3", b"4"]))]
        assert [type(each) for each in outcomes] == [SendResult, SendFailedError, SendResult]
        assert java.batches == [3, 1, 1, 1, 2]
        assert places == [7, 8]
        await java.server.stop()

    run(body)


def test_a_message_that_asks_for_it_is_alone_in_its_frame() -> None:
    """In its order; with ``messages_max`` 1 every one is."""

    async def body() -> None:
        java = JavaSet(refuses_once=False)
        await java.server.start("127.0.0.1", 0)
        async with Producer([java.address], topic="T", set_name="j", queue_count=4) as producer:
            ways = (True, True, False, True, True)
            sends = [producer.send("T", b"%d" % n, queue_id=0, may_pack=way) for n, way in enumerate(ways)]
            await asyncio.gather(*sends)
        assert java.batches == [2, 1, 2]
        async with Producer([java.address], topic="T", set_name="j", pack=PackLimits(messages_max=1)) as producer:
            results_of(await producer.send_many("T", [b"a", b"b", b"c"]))
        assert java.batches == [2, 1, 2, 1, 1, 1]
        await java.server.stop()

    run(body)
