"""The producer against real listen ports and logs: failovers, lost answers, full windows, refused messages."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rollcall_ha.broker.client import routes as client_routes
from rollcall_ha.broker.client.producer import Producer, SendFailedError, SendResult
from rollcall_ha.broker.client.sets import find_sets, is_ours
from rollcall_ha.broker.protocol.codes import SendOutcome
from rollcall_ha.controller.contract.ids import MasterEpoch
from rollcall_ha.node.certified import PeerKind
from rollcall_ha.node.remoting.secured import Door
from rollcall_ha.node.tls import Credentials, TlsFiles
from tests.support.fleet_certs import FleetCertificates
from tests.support.ha_replica import until
from tests.support.java_set import JavaSet
from tests.support.log_broker import LogBroker
from tests.support.log_tools import log_bytes, read_by_the_document


def replicate(source: LogBroker, target: LogBroker) -> None:
    """Copy what is missing, as a link would."""
    data = log_bytes(source.log)[target.log.max_offset :]
    while data:
        with target.log.receive_view(len(data)) as view:
            length = len(view)
            view[:] = data[:length]
        target.log.commit_received(length)
        data = data[length:]
    target.log.extend_index(1 << 30)


def bodies(broker: LogBroker) -> list[bytes]:
    """What the log holds, by docs/wire.md."""
    return [each.body for each in read_by_the_document(broker.log._files.log_folder)]


@asynccontextmanager
async def serving(directory: Path, *, epoch: int = 1, door: Door | None = None) -> AsyncIterator[LogBroker]:
    """A broker that is master of its set and the whole of it; in epoch 0 nobody is."""
    async with LogBroker(directory, 1, door=door) as broker:
        if epoch:
            broker.lead(epoch)
        broker.set_route(epoch, 1, *([broker] if epoch else []))
        yield broker


def run(test: object) -> None:
    """A loop per test."""
    assert callable(test)
    asyncio.run(test())


def test_a_window_of_sends_is_acknowledged_and_each_is_in_the_log_once(tmp_path: Path) -> None:
    """The plain case, over one link, with queue offsets counted per queue."""

    async def body() -> None:
        async with serving(tmp_path) as broker, Producer([broker.address]) as producer:
            results = await asyncio.gather(*[producer.send("T", b"%d" % n) for n in range(200)])
        assert sorted(bodies(broker)) == sorted(b"%d" % n for n in range(200))
        assert len({(each.queue_id, each.queue_offset) for each in results}) == 200
        assert producer.counters.acked == 200
        assert producer.counters.retried == 0
        assert [epoch for epoch, _, _ in broker.first_acks] == [MasterEpoch(1)]
        assert broker.log.released_offset == broker.log.max_offset

    run(body)


def test_answers_lost_in_a_failover_neither_lose_nor_double_a_message(tmp_path: Path) -> None:
    """R18: appended and replicated, the answer lost, sent again to the next master: it answers for the original."""

    async def body() -> None:
        async with LogBroker(tmp_path / "1", 1) as first, LogBroker(tmp_path / "2", 2) as second:
            await fail_over(first, second)

    async def fail_over(first: LogBroker, second: LogBroker) -> None:
        first.confirms_at_once = False
        first.lead(1)
        for each in (first, second):
            each.set_route(1, 1, first, second)
        async with Producer([second.address]) as producer:
            sends = [asyncio.ensure_future(producer.send("T", b"%d" % n)) for n in range(50)]
            await until(lambda: first.put.waiting_messages == 50)
            replicate(first, second)
            first.follow()
            second.lead(2)
            second.set_route(2, 2, first, second)
            results = await asyncio.gather(*sends)
            assert bodies(second) == [b"%d" % n for n in range(50)]
            assert {each.queue_offset for each in results} == {None}
            assert producer.counters.duplicate_answers == 50
            await producer.send("T", b"after")
        assert bodies(second)[-1] == b"after"

    run(body)


def test_a_master_that_hangs_does_not_hide_its_successor(tmp_path: Path) -> None:
    """The route comes from any broker of the set, and the link to the hanging master is left for the new one."""

    async def body() -> None:
        first, second = LogBroker(tmp_path / "1", 1), LogBroker(tmp_path / "2", 2)
        await first.start()
        await second.start()
        first.lead(1)
        first.confirms_at_once = False
        for each in (first, second):
            each.set_route(1, 1, first, second)
        async with Producer([first.address]) as producer:
            handed_us = time.monotonic_ns() // 1_000
            send = asyncio.ensure_future(producer.send("T", b"x"))
            await until(lambda: first.put.waiting_messages == 1)
            seen_us = time.monotonic_ns() // 1_000
            await until(lambda: time.monotonic_ns() // 1_000 > seen_us + 50_000)
            led_us = time.monotonic_ns() // 1_000
            second.lead(2)
            second.set_route(2, 2, first, second)
            result = await send
            assert isinstance(result, SendResult)
            assert result.attempts == 2
            # Its second attempt counts from the first: by its own age alone, nobody would have waited for this master.
            # Ways over links are not counted, nor what it took to be handed over: on a busy machine some milliseconds each.
            ((_, acked_us, waited_us),) = second.first_acks
            assert waited_us is not None
            assert led_us - seen_us <= waited_us <= acked_us - handed_us
        assert bodies(second) == [b"x"]
        await first.stop()
        await second.stop()

    run(body)


def test_a_message_that_nobody_acknowledges_is_unknown_and_keeps_its_number(tmp_path: Path) -> None:
    """Rule 3: the caller is told; the window goes on without a gap when the master does."""

    async def body() -> None:
        async with serving(tmp_path) as broker, Producer([broker.address], send_timeout_ms=200) as producer:
            broker.confirms_at_once = False
            with pytest.raises(SendFailedError) as failure:
                await producer.send("T", b"x")
            assert failure.value.outcome is SendOutcome.UNKNOWN
            broker.confirms_at_once = True
            assert (await producer.send("T", b"y")).sequence == 1
        assert bodies(broker) == [b"x", b"y"]

    run(body)


def test_a_message_that_its_broker_timed_out_is_sent_again_and_is_in_the_log_once(tmp_path: Path) -> None:
    """By the same link: by a new one, the whole window would go again every five seconds."""

    async def body() -> None:
        async with serving(tmp_path) as broker, Producer([broker.address]) as producer:
            broker.confirms_at_once = False
            broker.put.ack_timeout_ms = -1
            sent = asyncio.create_task(producer.send("T", b"x"))
            async with asyncio.timeout(10):
                while producer.counters.retried < 2:
                    broker.put.expire()
                    await asyncio.sleep(0)
            broker.confirms_at_once = True
            broker.put.release(broker.log.max_offset)
            assert (await producer.send("T", b"y")).sequence == 1
            assert (await sent).sequence == 0
            assert producer.counters.links == 1
        assert bodies(broker) == [b"x", b"y"]

    run(body)


def test_without_a_master_a_send_is_definitely_not_appended(tmp_path: Path) -> None:
    """And its number is used by the next one."""

    async def body() -> None:
        async with serving(tmp_path, epoch=0) as broker, Producer([broker.address], send_timeout_ms=100) as producer:
            with pytest.raises(SendFailedError) as failure:
                await producer.send("T", b"x")
            assert failure.value.outcome is SendOutcome.NOT_APPENDED
            broker.lead(1)
            broker.set_route(1, 1, broker)
            producer._timeout_s = 5
            assert (await producer.send("T", b"y")).sequence == 0
        assert bodies(broker) == [b"y"]

    run(body)


def test_an_illegal_message_takes_nothing_else_with_it(tmp_path: Path) -> None:
    """Rule 4: what was refused because of the gap behind it gets a new number and is acknowledged."""

    async def body() -> None:
        async with serving(tmp_path) as broker, Producer([broker.address]) as producer:
            sends = [producer.send("T", b"x" * (300_000 if n == 3 else n + 1)) for n in range(8)]
            results = await asyncio.gather(*sends, return_exceptions=True)
        refused = results.pop(3)
        assert isinstance(refused, SendFailedError)
        assert refused.outcome is SendOutcome.NOT_APPENDED
        assert all(isinstance(each, SendResult) for each in results)
        assert sorted(map(len, bodies(broker))) == [1, 2, 3, 5, 6, 7, 8]

    run(body)


def test_a_topic_that_takes_nothing_fails_its_sends_at_once_and_no_others(tmp_path: Path) -> None:
    """Sent again to each master, they would wait for their whole time and hold up what is behind them."""

    async def body() -> None:
        async with serving(tmp_path) as broker, Producer([broker.address]) as producer:
            await producer.send("T", b"a")
            assert not broker.folds.catch_up(), "T has a message, and stays"
            broker.room.topics.creates = False
            with pytest.raises(SendFailedError, match="auto_create_topics is 0") as refused:
                await producer.send("U", b"x")
            await producer.send("T", b"b")
        assert refused.value.outcome is SendOutcome.NOT_APPENDED
        assert bodies(broker) == [b"a", b"b"]

    run(body)


def test_a_number_that_the_log_has_forgotten_is_never_taken_for_new(tmp_path: Path) -> None:
    """R18: a producer whose numbers were cut with the log hears "gap" and goes on in a new producer epoch."""

    async def body() -> None:
        async with serving(tmp_path) as broker, Producer([broker.address]) as producer:
            await producer.send("T", b"x")
            broker.log.producers.clear()
            assert (await producer.send("T", b"y")).producer_epoch == 1
            assert producer.counters.gap == 1
        assert bodies(broker) == [b"x", b"y"]

    run(body)


def credentials_of(certificates: FleetCertificates, kind: PeerKind, name: str, set_key: str = "") -> Credentials:
    file = certificates.issue(kind, name, set_key=set_key)
    files = TlsFiles(authority=certificates.authority_file, certificate=file, key=file.with_suffix(".key"))
    return Credentials(files, fleet=certificates.fleet, name=None)


def test_a_producer_whose_certificate_was_renewed_had_to_be_restarted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It showed the certificate of its start for ever; no broker took it any more once that had ended."""
    monkeypatch.setattr(client_routes, "LOOK_INTERVAL_MS", 1)
    certificates = FleetCertificates(tmp_path / "certificates")

    async def body() -> None:
        of_broker = credentials_of(certificates, PeerKind.BROKER, "b-1", "demo/b")
        own = credentials_of(certificates, PeerKind.CLIENT, "client")
        async with (
            serving(tmp_path / "log", door=Door(credentials=of_broker)) as broker,
            Producer([broker.address], credentials=own) as producer,
        ):
            await producer.send("T", b"before")
            old = own.own.serial
            certificates.issue(PeerKind.CLIENT, "client")
            await until(lambda: own.own.serial != old)
            of_broker.revoke({old})
            await until(lambda: producer.counters.links == 2)
            await producer.send("T", b"after")
        assert bodies(broker) == [b"before", b"after"]

    run(body)


def test_a_producer_shakes_hands_with_the_next_master_before_it_is_one(tmp_path: Path) -> None:
    """It did so when the route came: a handshake longer than the outage was."""
    certificates = FleetCertificates(tmp_path / "certificates")

    def broker(number: int) -> LogBroker:
        credentials = credentials_of(certificates, PeerKind.BROKER, f"b-{number}", "demo/b")
        return LogBroker(tmp_path / f"{number}", number, door=Door(credentials=credentials))

    async def body() -> None:
        first, second, third = brokers = tuple(map(broker, (1, 2, 3)))
        own = credentials_of(certificates, PeerKind.CLIENT, "client")
        for each in brokers:
            await each.start()
        first.lead(1)
        for each in brokers:
            each.set_route(1, 1, *brokers)
        async with Producer([second.address], credentials=own) as producer:
            await producer.send("T", b"before")
            await until(lambda: [len(each.server.links) for each in brokers] == [2, 1, 1])
            await first.server.stop()
            # A watch and a spare link; the master of epoch 2 is not elected yet.
            await until(lambda: [len(each.server.links) for each in (second, third)] == [2, 2])
            spare = second.server.links.snapshot()[-1]
            await until(lambda: spare.certificate is not None)
            send = asyncio.ensure_future(producer.send("T", b"after"))
            second.lead(2)
            for each in (second, third):
                each.set_route(2, 2, second, third)
            await send
            assert spare.has_frame
            assert second.server.links.snapshot()[-1] is spare
            await until(lambda: len(third.server.links) == 1)
        for each in (second, third):
            await until(lambda each=each: len(each.server.links) == 0)  # type: ignore[misc]
            await each.stop()
        first.log.close(is_clean=False)
        assert bodies(second) == [b"after"]

    run(body)


def test_a_broker_of_rocketmqs_that_is_busy_is_asked_again_for_that_message_alone() -> None:
    """It knows no numbers: the whole window, sent again by a new link, would be there twice."""

    async def body() -> None:
        java = JavaSet()
        await java.server.start("127.0.0.1", 0)
        async with Producer([java.address], topic="T", set_name="j", queue_count=4) as producer:
            results = await asyncio.gather(*(producer.send("T", b"%d" % number) for number in range(20)))
        assert {(each.message_id, each.attempts) for each in results} == {("x", 2)}
        assert set(java.seen.values()) == {2}
        assert producer.counters.links == 1
        found, troubles, _ = await find_sets([java.address, "127.0.0.1:9"], ["T"])
        assert (found["j"].addresses, found["j"].queue_counts) == ((java.address,), {"T": 4})
        assert len(troubles) == 1
        assert await is_ours(found["j"]) is False
        await java.server.stop()

    run(body)


def test_what_a_broker_of_rocketmqs_never_takes_was_perhaps_there_after_30_s() -> None:
    async def body() -> None:
        java = JavaSet()
        await java.server.start("127.0.0.1", 0)
        async with Producer([java.address], topic="T", set_name="j", queue_count=4) as producer:
            sends = (producer.send("T", each) for each in (b"1", b"bad", b"2"))
            one, failed, two = await asyncio.wait_for(asyncio.gather(*sends, return_exceptions=True), 20)
        assert isinstance(failed, SendFailedError)
        assert (failed.outcome, "the message is illegal" in str(failed)) == (SendOutcome.NOT_APPENDED, True)
        assert isinstance(one, SendResult)
        assert isinstance(two, SendResult)
        assert (one.attempts, two.attempts) == (2, 2)
        assert java.seen == {b"1": 2, b"bad": 1, b"2": 2}
        await java.server.stop()

    run(body)


def test_a_send_that_nobody_answers_names_each_address_and_its_last_failure() -> None:
    """README's program met a wrong port: 30 s of silence, and an error that named no address."""

    async def body(address: str) -> None:
        async with Producer([address], send_timeout_ms=500) as producer:
            with pytest.raises(SendFailedError, match=rf"0\.5 s; {address}: connection refused \(not-appended\)"):
                await producer.send("T", b"x")

    # Bound, and never listened on: nobody else gets the port, and whoever dials it is refused.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        asyncio.run(body(f"127.0.0.1:{taken.getsockname()[1]}"))
