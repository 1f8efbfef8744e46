"""
How fast the send path is: one master with the real listen port, put path and log, two receivers with real logs.

    python -m tests.perf.bench_send [--seconds 3] [--runs 3] [--raw-body-bytes 1024] [--json FILE]

First single frames of a client that does no work; then the ``Producer``, one message in a frame beside batches, in turns,
with bodies of 100 bytes. Four processes on one machine. Replication is the plainest that is correct (a stream of log bytes out, an int64 end back),
so that what is measured is the put path; HA's own links are measured elsewhere. All three replicas must have a message
before it is acknowledged. Prints a table; absolute numbers say more about the machine than about us.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import uvloop

from rollcall_ha.broker.client.packing import PackLimits
from rollcall_ha.broker.client.producer import Producer
from rollcall_ha.broker.consuming.topics import USUAL
from rollcall_ha.broker.handlers.listen import ListenService, listen_server
from rollcall_ha.broker.handlers.ports import Gate, GateState
from rollcall_ha.broker.handlers.put import PutPath
from rollcall_ha.broker.log.commit_log import CommitLog
from rollcall_ha.broker.parts import Parts
from rollcall_ha.broker.protocol.codes import ClientResult
from rollcall_ha.broker.protocol.pull import Refused
from rollcall_ha.broker.protocol.routes import RouteBroker, RouteState
from rollcall_ha.broker.protocol.send import encode_send
from rollcall_ha.broker.protocol.topics import TopicRow
from rollcall_ha.controller.contract.ids import (
    BrokerId,
    BrokerName,
    ClusterName,
    FlushMode,
    Incarnation,
    MasterEpoch,
    SetKey,
)
from rollcall_ha.controller.contract.session import BrokerState, ProbeAnswer
from rollcall_ha.epoch.model import LogOffset
from tests.perf.machine import cpu_s
from tests.perf.results import Measure, gather, percentile, table

SEGMENT_BYTES = 64 * 1024 * 1024
STORE_HOST = b"\x7f\x00\x00\x01" + (10911).to_bytes(4, "big")
ACK = struct.Struct(">q")


def fail(error: BaseException) -> None:
    """A sync failed: the measurement is void."""
    raise SystemExit(f"sync failed: {error}")


def open_log(root: Path, loop: asyncio.AbstractEventLoop) -> CommitLog:
    """A log as a broker opens it."""
    return CommitLog.open(
        root,
        segment_bytes=SEGMENT_BYTES,
        flush_mode=FlushMode.ASYNC,
        store_host=STORE_HOST,
        stop_process=fail,
        post=loop.call_soon_threadsafe,
    )


class Receiver:
    """A slave: receives into its map, walks the records, acks whole ones."""

    def __init__(self, log: CommitLog, link: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self.log, self.link, self.loop = log, link, loop

    def readable(self) -> None:
        with self.log.receive_view(1024 * 1024) as view:
            length = self.link.recv_into(view)
        if not length:
            self.loop.stop()
            return
        self.log.commit_received(length)
        self.link.send(ACK.pack(self.log.ackable_offset))
        self.log.extend_index(length * 2)


class UsualTopics:
    """Implements ``handlers.ports.Topics``: each name is a topic, with the usual queues."""

    def find(self, topic: str) -> TopicRow | None:
        return USUAL

    def absence(self, topic: str) -> Refused:
        return Refused(ClientResult.TOPIC_NOT_EXIST, topic)

    def unsure(self) -> Refused | None:
        return None


class Master:
    """The set as the master sees it: gate, routes, probes, and two links."""

    def __init__(self, log: CommitLog, links: list[socket.socket], loop: asyncio.AbstractEventLoop) -> None:
        self.log, self.links, self.loop = log, links, loop
        self.gate = Gate()
        self.gate.state = GateState(is_serving=True, master_epoch=MasterEpoch(1), is_min_in_sync=True)
        self.route = RouteState(
            cluster="c", broker_name="b", master_epoch=MasterEpoch(1), master=BrokerId(1), replicas=()
        )
        self.probe = ProbeAnswer(
            set_key=SetKey(ClusterName("c"), BrokerName("b")),
            broker_id=BrokerId(1),
            incarnation=Incarnation("0" * 32),
            state=BrokerState.MASTER,
        )
        self.sent = [0] * len(links)
        self.acked = [0] * len(links)
        self.put = PutPath(
            log,
            self.gate,
            store_host=STORE_HOST,
            broker_properties=b"MSG_REGION\x01DefaultRegion\x02CLUSTER\x01c\x02TRACE_ON\x01true\x02",
            now_ms=Parts().wall_ms,
            now_us=Parts().now_us,
            wake_links=self.wake,
            on_first_ack=lambda _epoch, _at_us, _waited_us: None,
        )
        self.put.topics, self.put.retry_times_max = UsualTopics(), lambda _group: 16
        self.put.enter_epoch(MasterEpoch(1))
        for index, link in enumerate(links):
            loop.add_reader(link, self.heard, index)

    def wake(self) -> None:
        for index in range(len(self.links)):
            self.push(index)

    def push(self, index: int) -> None:
        while self.sent[index] < self.log.max_offset:
            segment = self.log.reader.segment_of(self.sent[index])
            assert segment is not None, "nothing is deleted here"
            at = self.sent[index] - segment.base
            try:
                self.sent[index] += self.links[index].send(
                    segment.view[at : min(segment.size, self.log.max_offset - segment.base)]
                )
            except BlockingIOError:
                self.loop.call_later(0.0005, self.push, index)
                return

    def heard(self, index: int) -> None:
        data = self.links[index].recv(65536)
        if not data:
            self.loop.stop()
            return
        (self.acked[index],) = ACK.unpack_from(data, len(data) - 8)
        self.put.release(LogOffset(min(self.log.max_offset, *self.acked)))


def run_receiver(root: str, link: socket.socket) -> None:
    loop = uvloop.new_event_loop()
    sys.setswitchinterval(0.0005)
    link.setblocking(False)
    log = open_log(Path(root), loop)
    loop.add_reader(link, Receiver(log, link, loop).readable)
    loop.run_forever()


def run_master(root: str, links: list[socket.socket], ready: Any) -> None:
    loop = uvloop.new_event_loop()
    asyncio.set_event_loop(loop)
    sys.setswitchinterval(0.0005)
    for link in links:
        link.setblocking(False)
    log = open_log(Path(root), loop)
    master = Master(log, links, loop)
    service = ListenService(put=master.put, word=master, responders={}, on_disconnected=lambda _link: None)
    log.subscribe_room(service.room_is_ready)
    server = listen_server(service)
    loop.run_until_complete(server.start("127.0.0.1", 0))
    own = RouteBroker(broker_id=BrokerId(1), address=f"127.0.0.1:{server.port}")
    master.route = RouteState(
        cluster="c", broker_name="b", master_epoch=MasterEpoch(1), master=BrokerId(1), replicas=(own,)
    )
    ready.send(server.port)
    loop.run_forever()


class Client(asyncio.Protocol):
    """Keeps ``in_flight`` sends open."""

    def __init__(self, in_flight: int, body: bytes, seconds: float, done: asyncio.Future[None]) -> None:
        self.in_flight, self.body, self.seconds, self.done = in_flight, body, seconds, done
        self.began: dict[int, float] = {}
        self.took: list[float] = []
        self.next = 0
        self.rest = b""
        self.end = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.end = time.perf_counter() + self.seconds
        self.transport.write(b"".join(self.one() for _ in range(self.in_flight)))

    def one(self) -> bytes:
        self.next += 1
        self.began[self.next] = time.perf_counter()
        return encode_send(
            opaque=self.next,
            group="bench",
            topic="Bench",
            queue_id=self.next & 7,
            born_at_ms=1_700_000_000_000,
            properties=f"ROLLCALL_SEQ\x01{'0' * 32}:0:{self.next - 1}\x02",
            body=self.body,
        )

    def data_received(self, data: bytes) -> None:
        data = self.rest + data
        at, now, answered = 0, time.perf_counter(), 0
        while len(data) - at >= 4:
            length = int.from_bytes(data[at : at + 4], "big")
            if at + 4 + length > len(data):
                break
            header = json.loads(data[at + 8 : at + 4 + length])
            assert header["code"] == 0, header
            self.took.append(now - self.began.pop(header["opaque"]))
            answered += 1
            at += 4 + length
        self.rest = data[at:]
        if now < self.end:
            self.transport.write(b"".join(self.one() for _ in range(answered)))
        elif not self.began and not self.done.done():
            self.done.set_result(None)


async def measure(port: int, in_flight: int, body_bytes: int, seconds: float) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    began = time.perf_counter()
    client = Client(in_flight, b"x" * body_bytes, seconds, done)
    transport, _ = await loop.create_connection(lambda: client, "127.0.0.1", port)
    await done
    elapsed = time.perf_counter() - began
    transport.close()
    took = sorted(client.took)
    return {
        "inFlight": in_flight,
        "perSecond": round(len(took) / elapsed),
        "p50Ms": round(statistics.median(took) * 1000, 3),
        "p99Ms": round(took[int(len(took) * 0.99)] * 1000, 3),
    }


BODY_BYTES: Final = 100
MANY: Final = 1_000
CALLERS: Final = 64
SINGLE: Final = PackLimits(messages_max=1)
_Sent = tuple[int, list[float]]
"""Acknowledged messages, and how long each call took, in ms."""


async def one_by_one(producer: Producer, until_s: float) -> _Sent:
    """One caller of ``send``, one message at a time."""
    took: list[float] = []
    body = os.urandom(BODY_BYTES)
    while (began := time.perf_counter()) < until_s:
        await producer.send("Bench", body)
        took.append((time.perf_counter() - began) * 1000)
    return len(took), took


async def by_callers(producer: Producer, until_s: float) -> _Sent:
    """As many callers of ``send`` at once."""
    sent = await asyncio.gather(*(one_by_one(producer, until_s) for _ in range(CALLERS)))
    return sum(count for count, _ in sent), [each for _, took in sent for each in took]


async def by_many(producer: Producer, until_s: float) -> _Sent:
    """``send_many``, four calls at once: what is read from a file, or comes from another log."""
    bodies = [os.urandom(BODY_BYTES) for _ in range(MANY)]

    async def caller() -> _Sent:
        took: list[float] = []
        while (began := time.perf_counter()) < until_s:
            await producer.send_many("Bench", bodies)
            took.append((time.perf_counter() - began) * 1000)
        return len(took) * MANY, took

    sent = await asyncio.gather(*(caller() for _ in range(4)))
    return sum(count for count, _ in sent), [each for _, took in sent for each in took]


WAYS: Final[dict[str, tuple[str, Callable[[Producer, float], Coroutine[Any, Any, _Sent]]]]] = {
    "one": ("1 in flight", one_by_one),
    "callers": (f"{CALLERS} callers of send", by_callers),
    "many": (f"send_many of {MANY:,}", by_many),
}


def measures() -> tuple[Measure, ...]:
    found: list[Measure] = []
    for way, (what, _) in WAYS.items():
        aim = 150_000 if way == "many" else None
        found += [
            Measure(key=f"{way}_single", what=f"{what}: single frames", unit="/s"),
            Measure(key=f"{way}_batch", what="  batches", unit="/s", aim=aim, is_floor=True),
            Measure(key=f"{way}_ratio", what="  ratio", unit="", aim=3 if way == "many" else None, is_floor=True),
            Measure(key=f"{way}_p99_single", what="  p99 of a call, single frames", unit="ms"),
            Measure(key=f"{way}_p99_batch", what="  p99 of a call, batches", unit="ms"),
            Measure(key=f"{way}_cpu_single", what="  CPU of all four processes per message, single frames", unit="us"),
            Measure(key=f"{way}_cpu_batch", what="  CPU of all four processes per message, batches", unit="us"),
        ]
    return tuple(found)


async def produce(
    port: int, pids: list[int], way: str, limits: PackLimits | None, seconds: float
) -> tuple[float, float, float]:
    """Messages a second, p99 of a call in ms, and CPU per message in µs."""
    async with Producer([f"127.0.0.1:{port}"], pack=limits) as producer:
        await producer.send("Bench", b"warm")
        began, before = time.perf_counter(), cpu_s([*pids, os.getpid()])
        sent, took = await WAYS[way][1](producer, began + seconds)
        rate = sent / (time.perf_counter() - began)
        assert producer.counters.acked == sent + 1, "each is acknowledged"
        return rate, percentile(took, 0.99), (cpu_s([*pids, os.getpid()]) - before) / sent * 1e6


@contextmanager
def a_set() -> Iterator[tuple[int, list[int]]]:
    """A master and its two receivers: the port of the master, and their processes."""
    with tempfile.TemporaryDirectory() as root:
        pairs = [socket.socketpair() for _ in range(2)]
        ready, other = multiprocessing.Pipe()
        processes = [
            multiprocessing.Process(target=run_receiver, args=(f"{root}/s{n}", pair[1]), daemon=True)
            for n, pair in enumerate(pairs)
        ]
        links = [pair[0] for pair in pairs]
        processes.append(multiprocessing.Process(target=run_master, args=(f"{root}/m", links, other), daemon=True))
        for process in processes:
            process.start()
        try:
            yield ready.recv(), [process.pid for process in processes if process.pid is not None]
        finally:
            for process in processes:
                process.kill()
                process.join()


def run_once(number: int, seconds: float) -> dict[str, float]:
    """Every way of the producer, single frames and batches one behind the other; which is first changes by the run."""
    values: dict[str, float] = {}
    sides: tuple[tuple[str, PackLimits | None], ...] = (("single", SINGLE), ("batch", None))
    for way in WAYS:
        for side, limits in sides[:: -1 if number % 2 else 1]:
            with a_set() as (port, pids):
                rate, p99_ms, cpu_us = uvloop.run(produce(port, pids, way, limits, seconds))
            found = {side: rate, f"p99_{side}": p99_ms, f"cpu_{side}": cpu_us}
            values.update((f"{way}_{key}", value) for key, value in found.items())
            sys.stderr.write(f"    {way} {side}: {rate:,.0f}/s, p99 {p99_ms:.2f} ms, CPU {cpu_us:.1f} us\n")
        values[f"{way}_ratio"] = values[f"{way}_batch"] / values[f"{way}_single"]
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--runs", type=int, default=3, help="of the producer; 0: none")
    parser.add_argument(
        "--raw-body-bytes", type=int, default=1024, help="0: no single frames of the client without work"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    for in_flight in (1, 16, 64) if options.raw_body_bytes else ():
        with a_set() as (port, _):
            rows.append(uvloop.run(measure(port, in_flight, options.raw_body_bytes, options.seconds)))
    print(f"{'in flight':>9} {'per second':>10} {'p50 ms':>8} {'p99 ms':>8}")
    for row in rows:
        print(f"{row['inFlight']:>9} {row['perSecond']:>10} {row['p50Ms']:>8} {row['p99Ms']:>8}")
    runs = [run_once(number, options.seconds) for number in range(options.runs)]
    if runs:
        print(table(gather("send", measures(), runs)))
    if options.json:
        options.json.write_text(json.dumps({"raw": rows, "producer": runs}, indent=2) + "\n")


if __name__ == "__main__":
    main()
