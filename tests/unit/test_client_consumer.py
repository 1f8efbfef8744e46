"""The consumer against real listen ports, logs and rooms of consumers: groups, failovers, failed handlers, locks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollcall_ha.broker.client import consumer as client_consumer
from rollcall_ha.broker.client import progress
from rollcall_ha.broker.client.blocking import BlockingConsumer
from rollcall_ha.broker.client.consumer import Consumer, ConsumerError, Start
from rollcall_ha.broker.client.messages import Message
from rollcall_ha.broker.client.packing import PackLimits
from rollcall_ha.broker.client.producer import Producer
from rollcall_ha.broker.client.progress import QueueProgress
from rollcall_ha.broker.consuming import room
from rollcall_ha.broker.consuming.reading import FAR_MESSAGES_MAX
from rollcall_ha.broker.consuming.reads_core import Place
from rollcall_ha.broker.protocol.codes import ClientCode
from rollcall_ha.broker.protocol.consumers import MessageQueue, Subscription
from rollcall_ha.controller.contract.ids import BrokerId
from rollcall_ha.deploy.local.processes import wait_until
from rollcall_ha.epoch.model import LogOffset
from rollcall_ha.node.remoting.asking import TOOL_LIMITS, dial
from rollcall_ha.node.remoting.connection import LinkClosed, RemotingError, RemotingTimeout
from rollcall_ha.node.remoting.frame import Frame
from tests.support.ha_replica import until
from tests.support.log_broker import LogBroker
from tests.unit.test_client_producer import replicate, run, serving

pytestmark = pytest.mark.slow


async def send(broker: LogBroker, count: int, *, first: int = 0, **properties: str) -> list[bytes]:
    """Each into the next queue: packed, they would be in one."""
    bodies = [b"%d" % number for number in range(first, first + count)]
    async with Producer([broker.address], pack=PackLimits(messages_max=1)) as producer:
        await asyncio.gather(*(producer.send("T", body, properties=properties) for body in bodies))
    return bodies


async def spread(broker: LogBroker, count: int) -> list[bytes]:
    """As many into each queue."""
    bodies = [b"%d" % number for number in range(count)]
    async with Producer([broker.address]) as producer:
        await asyncio.gather(*(producer.send("T", body, queue_id=n % 8) for n, body in enumerate(bodies)))
    return bodies


async def drain(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []

    async def gather() -> None:
        while len(found) < count:
            found.extend(await consumer.poll(100, 100))

    await asyncio.wait_for(gather(), 30)
    consumer.done()
    return found


def reader(broker: LogBroker, **options: object) -> Consumer:
    return Consumer([broker.address], **{"group": "g", "topics": {"T": "*"}, "start": Start.FIRST} | options)  # type: ignore[arg-type]


def test_a_group_reads_everything_once_and_goes_on_behind_what_it_committed(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as broker:
            sent = await send(broker, 100, TAGS="a", KEYS="k1 k2")
            async with reader(broker) as consumer:
                found = await drain(consumer, 100)
            assert sorted(each.body for each in found) == sorted(sent)
            assert {(each.topic, each.tag, each.keys) for each in found} == {("T", "a", ("k1", "k2"))}
            more = await send(broker, 10, first=100)
            async with reader(broker) as consumer:
                assert sorted(each.body for each in await drain(consumer, 10)) == more
                assert await consumer.poll(wait_ms=100) == []

    run(body)


def test_what_was_given_and_not_finished_is_given_again(tmp_path: Path) -> None:
    """At least once: an error ends the consumer between poll and the end of the work."""

    async def body() -> None:
        async with serving(tmp_path) as broker:
            sent = await send(broker, 20)

            async def fail() -> None:
                async with reader(broker) as consumer:
                    while not await consumer.poll(5):
                        pass
                    raise RuntimeError("the work failed")

            with pytest.raises(RuntimeError):
                await fail()
            async with reader(broker) as consumer:
                assert sorted(each.body for each in await drain(consumer, 20)) == sorted(sent)

    run(body)


def test_members_of_a_group_share_the_queues_and_one_takes_over_those_of_another(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as broker:
            async with reader(broker) as one:
                async with reader(broker) as two:
                    await until(lambda: len(one._works) == len(two._works) == 4)
                    assert not one._works.keys() & two._works.keys()
                    await until(lambda: all(each.progress for each in (*one._works.values(), *two._works.values())))
                    await spread(broker, 80)
                    halves = await asyncio.gather(drain(one, 40), drain(two, 40))
                await until(lambda: len(one._works) == 8)
                await until(lambda: all(each.progress for each in one._works.values()))
                rest = await send(broker, 16, first=80)
                assert sorted(each.body for each in await drain(one, 16)) == sorted(rest)
            counts = Counter(each.body for half in halves for each in half)
            assert len(counts) == 80
            assert set(counts.values()) == {1}

    run(body)


def test_a_new_group_begins_where_it_was_told_to(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as broker:
            await send(broker, 16)
            async with reader(broker, start=Start.LAST) as last, reader(broker, group="h", start=1 << 41) as later:
                works = (last._works, later._works)
                await until(lambda: all(len(each) == 8 for each in works))
                await until(lambda: all(work.progress for each in works for work in each.values()))
                new = await send(broker, 16, first=16)
                assert sorted(each.body for each in await drain(last, 16)) == new
                assert sorted(each.body for each in await drain(later, 16)) == new

    run(body)


async def order(broker: LogBroker, topic: str, queues: int) -> None:
    link = await dial(broker.address, timeout_ms=1_000, limits=TOOL_LIMITS)
    numbers = {"readQueueNums": str(queues), "writeQueueNums": str(queues)}
    fields = {"topic": topic, "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}
    answer = await link.request(ClientCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields | numbers, timeout_ms=10_000)
    assert answer.code == 0, answer.remark
    link.close("ordered")


def test_a_queue_that_came_while_the_group_was_reading_is_read_from_its_first_message(tmp_path: Path) -> None:
    """At its end, as all others began, what was sent before the next look would be passed by."""

    async def body() -> None:
        async with serving(tmp_path) as broker:
            broker.room.topics.creates = False
            await order(broker, "T", 8)
            await send(broker, 8)
            both: dict[str, object] = {"topics": {"T": "*", "later": "*"}, "start": Start.LAST}
            async with reader(broker, **both) as consumer:
                await until(lambda: len(consumer._works) == 8)
                await until(lambda: all(work.progress for work in consumer._works.values()))
                await order(broker, "T", 16)
                await order(broker, "later", 8)
                async with Producer([broker.address]) as producer:
                    await producer.send("T", b"wider", queue_id=12)
                    await producer.send("later", b"later", queue_id=3)
                consumer._woken.set()
                assert sorted(each.body for each in await drain(consumer, 2)) == [b"later", b"wider"]
            async with reader(broker, **both | {"topics": {"later": "*"}, "group": "h"}) as alone:
                await until(lambda: len(alone._works) == 8)
                assert await alone.poll(wait_ms=100) == []

    run(body)


def test_a_topic_that_nobody_had_made_yet_is_read_from_its_first_message(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as broker:
            broker.room.topics.creates = False
            async with reader(broker, start=Start.LAST) as consumer:
                await until(lambda: "T" in consumer._at_start)
                await order(broker, "T", 8)
                sent = await send(broker, 8)
                assert sorted(each.body for each in await drain(consumer, 8)) == sent

    run(body)


def test_where_a_group_began_at_the_end_is_known_before_its_first_message(tmp_path: Path) -> None:
    """A member that dies before its first commit would be followed by one that begins at a later end."""

    async def die() -> bool:
        return False

    async def body() -> None:
        async with serving(tmp_path) as broker:
            await send(broker, 8)
            commit = broker.service._responders.pop(ClientCode.UPDATE_CONSUMER_OFFSET)
            async with reader(broker, start=Start.LAST) as first:
                first.commit = die  # type: ignore[method-assign]
                await until(lambda: len(first._works) == 8)
                assert await first.poll(wait_ms=200) == []
                assert not [work for work in first._works.values() if work.progress], "read, and not known where from"
                broker.service._responders[ClientCode.UPDATE_CONSUMER_OFFSET] = commit
                await until(lambda: all(work.progress for work in first._works.values()))
                sent = await send(broker, 8, first=8)
                await drain(first, 8)
            async with reader(broker, start=Start.LAST) as second:
                assert sorted(each.body for each in await drain(second, 8)) == sorted(sent)

    run(body)


def test_tags_and_expressions_choose_messages_and_nonsense_ends_the_consumer(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as broker:
            await send(broker, 10, TAGS="a", amount="5")
            wanted = await send(broker, 10, first=10, TAGS="b", amount="50")
            wanted += await send(broker, 10, first=20, TAGS="c", amount="60")
            async with reader(broker, topics={"T": "b || c"}) as consumer:
                assert sorted(each.body for each in await drain(consumer, 20)) == wanted
            sql = Subscription("amount > 10", kind="SQL92")
            async with reader(broker, group="s", topics={"T": sql}) as consumer:
                assert sorted(each.body for each in await drain(consumer, 20)) == wanted
            nonsense = Subscription("amount >", kind="SQL92")
            async with reader(broker, group="n", topics={"T": nonsense}) as consumer:
                with pytest.raises(ConsumerError, match="mend the subscription"):
                    await drain(consumer, 1)

    run(body)


def test_a_group_follows_the_master_and_loses_nothing(tmp_path: Path) -> None:
    """The old master still answers: the route moves the consumer, and its offsets are those that the log has."""

    async def body() -> None:
        async with LogBroker(tmp_path / "1", 1) as first, LogBroker(tmp_path / "2", 2) as second:
            first.lead(1)
            for each in (first, second):
                each.set_route(1, 1, first, second)
            async with reader(second) as consumer:
                sent = await send(first, 40)
                found = await drain(consumer, 40)
                assert await consumer.commit()
                replicate(first, second)
                first.follow()
                second.lead(2)
                for each in (first, second):
                    each.set_route(2, 2, first, second)
                more = await send(second, 40, first=40)
                found += await drain(consumer, 40)
            assert sorted(each.body for each in found) == sorted(sent + more)

    run(body)


@asynccontextmanager
async def pair(directory: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[LogBroker, LogBroker]]:
    """A master and a slave in sync that may be read from; every reader that finds something counts as far behind."""
    monkeypatch.setattr(room, "NEAR_BYTES", 0)
    async with LogBroker(directory / "1", 1) as master, LogBroker(directory / "2", 2) as slave:
        master.lead(1)
        master.gate.state = msgspec.structs.replace(master.gate.state, in_sync=(BrokerId(1), BrokerId(2)))
        master.room.standing._place = lambda: Place(broker_id=1, is_member=True, has_confirm=True)
        slave.room.standing._place = lambda: Place(broker_id=2, is_slave=True, is_member=True, has_confirm=True)
        for each in (master, slave):
            each.room.standing.slave_reads = True
            each.set_route(1, 1, master, slave)
        yield master, slave


def copy(master: LogBroker, slave: LogBroker) -> None:
    replicate(master, slave)
    slave.log.note_confirm(slave.log.max_offset, LogOffset(0))
    while slave.folds.catch_up():
        pass


def test_a_reader_far_behind_reads_from_the_slave_that_its_master_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each queue by itself; offsets are committed at the master."""

    async def body() -> None:
        async with pair(tmp_path, monkeypatch) as (master, slave):
            sent = await spread(master, 800)
            copy(master, slave)
            async with reader(master) as consumer:
                assert sorted(each.body for each in await drain(consumer, 800)) == sorted(sent)
                assert await consumer.commit()
                assert master.room.pulls.messages == 8 * FAR_MESSAGES_MAX
                assert slave.room.pulls.messages == 800 - 8 * FAR_MESSAGES_MAX
                more = await send(master, 16, first=800)
                copy(master, slave)
                assert sorted(each.body for each in await drain(consumer, 16)) == more
            async with reader(master) as consumer:
                assert await consumer.poll(wait_ms=100) == []

    run(body)


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_reader_of_a_slave_goes_back_to_the_master_when_the_slave_ends_or_gives_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_gone: bool
) -> None:
    """The master still names it."""
    monkeypatch.setattr(progress, "QUEUE_MESSAGES_MAX", 2 * FAR_MESSAGES_MAX)

    async def body() -> None:
        async with pair(tmp_path, monkeypatch) as (master, slave):
            sent = await spread(master, 256)
            copy(master, slave)
            async with reader(master) as consumer:
                await until(lambda: slave.room.pulls.messages == 8 * FAR_MESSAGES_MAX)
                if is_gone:
                    await slave.server.stop()
                else:
                    slave.room.standing.slave_reads = False
                assert sorted(each.body for each in await drain(consumer, 256)) == sorted(sent)
            assert slave.room.pulls.messages == 8 * FAR_MESSAGES_MAX
            assert master.room.pulls.messages == 256 - 8 * FAR_MESSAGES_MAX

    run(body)


@pytest.mark.parametrize(("is_slave", "goes_on"), [(True, 50), (False, 7)])
def test_a_slave_moves_no_queue(*, is_slave: bool, goes_on: int) -> None:
    """RocketMQ's may be behind: it would take the group back, or pass by what it does not have."""

    class Moving(Peer):
        async def request(self, code: int, **_fields: object) -> Frame:
            self.asked = code
            return Frame(code=21, opaque=0, ext_fields={"nextBeginOffset": "7", "suggestWhichBrokerId": "2"})

    async def body() -> None:
        consumer = Consumer(["h:1"], group="g", topics={"T": "*"})
        peer: Any = Moving(None)
        work = client_consumer._Work(MessageQueue("a", 0, "T"))
        work.progress, work.reader = QueueProgress(50), 2
        assert await consumer._pull(peer, work, is_slave=is_slave) == 0
        assert (work.progress.next_offset, work.reader) == (goes_on, 0)

    run(body)


def test_a_handler_gets_batches_of_one_queue_and_its_offsets_are_committed(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as broker:
            sent = await send(broker, 200)
            seen: list[bytes] = []

            async def handle(batch: Sequence[Message]) -> None:
                assert len({each.queue for each in batch}) == 1
                assert len(batch) <= 7
                await asyncio.sleep(0)
                seen.extend(each.body for each in batch)

            async with reader(broker, handler=handle, batch_max=7) as consumer:
                await until(lambda: consumer.messages == 200)
            assert sorted(seen) == sorted(sent)
            async with reader(broker) as consumer:
                assert await consumer.poll(wait_ms=200) == []

    run(body)


def test_a_batch_that_fails_comes_again_and_holds_its_offset_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The brokers of this test take nothing back (code 36): it is tried again here."""
    monkeypatch.setattr(client_consumer, "RETRY_MS", 50)

    async def body() -> None:
        async with serving(tmp_path) as broker:
            await send(broker, 24)
            tries: Counter[bytes] = Counter()

            async def handle(batch: Sequence[Message]) -> None:
                tries.update(each.body for each in batch)
                if tries[b"7"] in (1, 2) and any(each.body == b"7" for each in batch):
                    raise ValueError("not yet")

            broker.service._responders.pop(36, None)
            async with reader(broker, handler=handle, batch_max=1) as consumer:
                await until(lambda: consumer.messages == 24)
            assert tries.pop(b"7") == 3
            assert set(tries.values()) == {1}

    run(body)


def test_a_handler_whose_own_work_is_cancelled_fails_and_its_worker_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for the consumer's end, it would end the worker in silence, and nobody would handle anything."""
    monkeypatch.setattr(client_consumer, "ORDERED_RETRY_MS", 1)

    async def body() -> None:
        async with serving(tmp_path) as broker:
            await send(broker, 8)
            tries: Counter[bytes] = Counter()

            async def handle(batch: Sequence[Message]) -> None:
                tries[batch[0].body] += 1
                if tries[batch[0].body] == 1:
                    work = asyncio.ensure_future(asyncio.sleep(60))
                    work.cancel()
                    await work

            async with reader(broker, handler=handle, handlers=1, batch_max=1, is_ordered=True) as consumer:
                await until(lambda: consumer.messages == 8)
            assert set(tries.values()) == {2}

    run(body)


def test_a_worker_that_ends_early_ends_the_consumer_and_says_so(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as broker:
            await send(broker, 1)

            async def handle(batch: Sequence[Message]) -> None:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(60)

            async with reader(broker, handler=handle) as consumer:
                with pytest.raises(ConsumerError, match="cancelled"):
                    await asyncio.wait_for(consumer.run(), 30)
            async with reader(broker) as consumer:
                assert [each.body for each in await drain(consumer, 1)] == [b"0"]

    run(body)


class Peer:
    """The link to the master of one set, and of ``MasterLink`` what the consumer asks for."""

    def __init__(self, fault: Exception | None) -> None:
        self.fault, self.asked, self.closed = fault, 0, ""
        self.link = self
        self.is_open = True

    async def request(self, code: int, **_fields: object) -> Frame:
        self.asked += 1
        if self.fault is not None:
            raise self.fault
        is_list = code == ClientCode.GET_CONSUMER_LIST_BY_GROUP
        return Frame(code=0, opaque=0, body=b'{"consumerIdList":["me"]}' if is_list else b'{"lockOKMQSet":[]}')

    def close(self, reason: str) -> None:
        self.closed = reason


@pytest.mark.parametrize("fault", [RemotingTimeout("no answer within 3000 ms"), LinkClosed("it is gone")])
def test_a_set_that_hangs_keeps_no_beat_and_no_lock_from_the_others(fault: RemotingError) -> None:
    """Nor the list of members: it was asked of the first set alone."""

    async def handle(batch: Sequence[Message]) -> None:
        raise AssertionError(batch)

    async def body() -> None:
        consumer = Consumer(["h:1"], group="g", topics={"T": "*"}, handler=handle, is_ordered=True, client_id="me")
        hung, fine = Peer(fault), Peer(None)
        consumer._sets = {"a": hung, "b": fine}  # type: ignore[dict-item]
        for name in "ab":
            queue = MessageQueue(name, 0, "T")
            work = consumer._works[queue] = client_consumer._Work(queue)
            work.locked_s = asyncio.get_running_loop().time()
        for number, ask in enumerate((consumer._beat_all, consumer._renew_locks, consumer._members), 1):
            hung.closed = ""
            assert await ask() == (["me"] if ask == consumer._members else None)
            assert (hung.asked, fine.asked) == (number, number)
            assert bool(hung.closed) == isinstance(fault, RemotingTimeout), "hung, it would hold up each next look"
        fine.fault = fault
        with pytest.raises(type(fault)):
            await consumer._members()

    run(body)


def message(queue: MessageQueue, size_bytes: int) -> Message:
    return Message(
        topic=queue.topic, queue=queue, queue_offset=0, body=b"", properties={}, born_at_ms=0, stored_at_ms=0,
        message_id="", log_offset=0, reconsume_times=0, size_bytes=size_bytes,
    )  # fmt: skip


def test_a_queue_whose_lock_was_lost_filled_the_room_of_all_others_until_its_set_was_back() -> None:
    async def handle(batch: Sequence[Message]) -> None:
        raise AssertionError(batch)

    async def body() -> None:
        consumer = Consumer(["h:1"], group="g", topics={"T": "*"}, handler=handle, is_ordered=True)
        queue = MessageQueue("a", 0, "T")
        work = consumer._works[queue] = client_consumer._Work(queue)
        work.progress = QueueProgress(0)
        work.progress.take([message(queue, client_consumer.OPEN_BYTES_MAX)], 1)
        consumer._list(work)
        assert consumer._next(32) is None
        assert (consumer._open_bytes, consumer._room.is_set()) == (0, True)

    run(body)


def test_a_lock_that_a_new_master_did_not_renew_is_asked_for_again_before_it_is_believed_no_longer() -> None:
    """A master refuses locks until it knows all that is confirmed; for 20 s nobody asked again, and messages came twice."""

    async def handle(batch: Sequence[Message]) -> None:
        raise AssertionError(batch)

    async def body() -> None:
        consumer = Consumer(["h:1"], group="g", topics={"T": "*"}, handler=handle, is_ordered=True, client_id="me")
        peer = Peer(None)
        consumer._sets = {"a": peer}  # type: ignore[dict-item]
        work = consumer._works[MessageQueue("a", 0, "T")] = client_consumer._Work(MessageQueue("a", 0, "T"))
        work.locked_s = asyncio.get_running_loop().time() - client_consumer.LOCK_RENEWAL_MS / 1000
        peer.fault = LinkClosed("a new master")
        for asked in (1, 2):
            await consumer._renew_due()
            assert (peer.asked, consumer._is_locked(work)) == (asked, True)
        work.locked_s = asyncio.get_running_loop().time()
        await consumer._renew_due()
        assert peer.asked == 2, "what was renewed just now is not due"

    run(body)


def test_a_message_that_no_handler_takes_ends_the_consumer_and_is_not_passed_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_consumer, "ORDERED_RETRY_MS", 1)

    async def body() -> None:
        async with serving(tmp_path) as broker:
            await send(broker, 3)
            tries = 0

            async def handle(batch: Sequence[Message]) -> None:
                nonlocal tries
                if batch[0].body == b"1":
                    tries += 1
                    raise ValueError("never")

            async with reader(broker, handler=handle, batch_max=1, is_ordered=True) as consumer:
                with pytest.raises(ConsumerError, match="failed 16 times and is not committed"):
                    await asyncio.wait_for(consumer.run(), 30)
            assert tries == 16
            async with reader(broker) as consumer:
                assert [each.body for each in await drain(consumer, 1)] == [b"1"]

    run(body)


def test_an_ordered_queue_has_one_reader_and_keeps_its_order_when_it_moves(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as broker:
            seen: list[tuple[str, int, int]] = []
            busy: set[int] = set()

            def handler(name: str) -> object:
                async def handle(batch: Sequence[Message]) -> None:
                    queue_id = batch[0].queue.queue_id
                    assert queue_id not in busy
                    busy.add(queue_id)
                    await asyncio.sleep(0.01)
                    seen.extend((name, queue_id, each.queue_offset) for each in batch)
                    busy.discard(queue_id)

                return handle

            sent = len(await send(broker, 80))
            async with reader(broker, handler=handler("one"), is_ordered=True, batch_max=2) as one:
                async with reader(broker, handler=handler("two"), is_ordered=True, batch_max=2) as two:
                    while not two.messages:
                        sent += len(await send(broker, 40, first=sent))
                    await until(lambda: one.messages + two.messages >= sent)
                sent += len(await send(broker, 40, first=sent))
                await until(lambda: one.messages + two.messages >= sent)
            assert len(seen) == sent
            for queue_id in range(8):
                offsets = [offset for _, of, offset in seen if of == queue_id]
                assert offsets == list(range(sent // 8))

    run(body)


def test_a_queue_that_is_locked_by_another_member_is_not_read(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as broker:
            await send(broker, 8)
            got: list[bytes] = []

            async def handle(batch: Sequence[Message]) -> None:
                got.extend(each.body for each in batch)

            async with reader(broker, handler=handle, is_ordered=True, client_id="a") as one:
                await until(lambda: one.messages == 8)
                # The same group under another id, which believes that it is alone.
                two = reader(broker, handler=handle, is_ordered=True, client_id="b")
                two._strategy = lambda queues, members, own: list(queues)
                async with two:
                    await until(lambda: len(two._works) == 8)
                    await send(broker, 8, first=8)
                    await until(lambda: one.messages + two.messages >= 12)
                    assert not [work for work in two._works.values() if work.progress and work.queue in one._works]
            assert len(got) == len(set(got))

    run(body)


def test_a_plain_thread_reads_without_a_loop(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as broker:
            sent = await send(broker, 30)

            def read() -> list[bytes]:
                assert threading.current_thread() is not threading.main_thread()
                with BlockingConsumer(reader(broker)) as it:
                    found = [message.body for _, message in zip(range(30), it, strict=False)]
                    assert it.commit()
                    return found

            found = await asyncio.to_thread(read)
            assert sorted(found) == sorted(sent)
            async with reader(broker) as consumer:
                assert await consumer.poll(wait_ms=200) == []

    run(body)


def test_what_an_iterator_read_ahead_is_given_again_to_who_breaks_off(tmp_path: Path) -> None:
    async def body() -> None:
        async with serving(tmp_path) as broker:
            sent = await send(broker, 100)

            def read(count: int) -> list[bytes]:
                found: list[bytes] = []
                with BlockingConsumer(reader(broker)) as it:
                    # Held, so that no end of it as garbage comes first.
                    messages = iter(it)
                    for message in messages:
                        found.append(message.body)
                        if len(found) == count:
                            break
                return found

            found = await asyncio.to_thread(read, 10)
            found += await asyncio.to_thread(read, 30)
            async with reader(broker) as consumer:
                found += [each.body for each in await drain(consumer, 60)]
            assert sorted(found) == sorted(sent)

    run(body)


def test_what_a_signal_took_on_its_way_to_the_owner_is_given_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its handler raises in the owner's thread, when the answer is there, or before; the owner goes on."""
    submit = asyncio.run_coroutine_threadsafe
    waits_s: list[float | None] = []

    class Interrupted:
        def __init__(self, future: concurrent.futures.Future[object]) -> None:
            self._future = future
            self.cancel = future.cancel

        def result(self) -> object:
            if not waits_s:
                return self._future.result()
            with suppress(TimeoutError):
                self._future.result(waits_s.pop())
            raise InterruptedError

    async def body() -> None:
        async with serving(tmp_path) as broker:
            sent = await send(broker, 50)

            def read() -> list[bytes]:
                found: list[bytes] = []
                with BlockingConsumer(reader(broker)) as it:
                    wait_until(lambda: it._consumer._turns, deadline_s=10, what="messages to be ready")
                    for wait_s in (None, 0.0, None):
                        found += [each.body for each in it.poll(4)]
                        waits_s.append(wait_s)
                        with pytest.raises(InterruptedError):
                            it.poll(5)
                    assert it.commit()
                    waits_s.append(None)
                    with pytest.raises(InterruptedError):
                        it.poll(5)
                return found

            monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", lambda *work: Interrupted(submit(*work)))
            found = await asyncio.to_thread(read)
            monkeypatch.undo()
            async with reader(broker) as consumer:
                found += [each.body for each in await drain(consumer, 50 - len(found))]
            assert sorted(found) == sorted(sent)

    run(body)


def test_too_much_that_is_not_finished_stops_the_reading_and_not_the_consumer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_consumer, "OPEN_BYTES_MAX", 4_000)

    async def body() -> None:
        async with serving(tmp_path) as broker:
            async with Producer([broker.address]) as producer:
                for number in range(40):
                    await producer.send("T", b"%d" % number + bytes(1_000), queue_id=0)
            async with reader(broker) as consumer:
                await until(lambda: consumer._open_bytes >= 4_000)
                await asyncio.sleep(0.05)
                assert consumer._open_bytes < 4_000 + 40_000
                assert len(await drain(consumer, 40)) == 40

    run(body)


@pytest.mark.parametrize(
    ("seeds", "options", "told"),
    [
        (["h:1"], {"is_ordered": True}, "needs a handler"),
        ([], {}, "0 seeds and 1 topics"),
        (["h"], {}, "'h'"),
        (["h:1"], {"group": "my group"}, "group 'my group'"),
    ],
)
def test_what_can_never_work_is_refused_at_once(seeds: list[str], options: dict[str, object], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        Consumer(seeds, **{"group": "g", "topics": {"T": "*"}} | options)  # type: ignore[arg-type]
