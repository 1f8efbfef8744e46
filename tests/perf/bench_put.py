"""
Puts that all three replicas must have: 1 KiB with 1, 16 and 64 in flight, 256 KiB with 8.

Three controllers, three brokers, one client, each a process of its own, all on this machine. The client speaks the
protocol of the Python producer (code 310, numbered messages) with as little work per message as it can: the two cores
are the brokers'. CPU per message is the figure to compare between machines that are differently busy.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import operator
import secrets
import struct
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from rollcall_ha.broker.protocol.send import encode_send
from rollcall_ha.broker.protocol.stamp import STAMP_PROPERTY, format_stamp
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.node.config import split_address
from tests.perf.machine import cpu_s
from tests.perf.results import Measure, percentile
from tests.perf.section import Context, Section
from tests.support.fleet_links import credentials_in_fleet

KIB = 1024
SHAPES: tuple[tuple[str, int, int], ...] = (("1", 1, KIB), ("16", 16, KIB), ("64", 64, KIB), ("big", 8, 256 * KIB))
WARM_UP_S = 0.5
TOPIC = "Perf"
BUSY_MAX = 1_000
"""So many puts of one run may be refused because the broker is busy; they count for nothing."""
BUSY = 2
PRODUCER_EPOCH = 0
_WORDS = struct.Struct(">iI")
_OPAQUE, _SEQUENCE, _QUEUE = 1_111_111_111, 1_222_222_222, 1_333_333_333


class _Answer(msgspec.Struct):
    code: int
    opaque: int
    remark: str | None = None


class Told(msgspec.Struct, frozen=True):
    """What a client measured."""

    acked: int
    seconds: float
    p50_ms: float
    p99_ms: float


class Target(msgspec.Struct, frozen=True):
    """Where messages go: to each queue of each topic in turn."""

    topics: tuple[str, ...] = (TOPIC,)
    queues: range = range(3, 4)

    @property
    def all(self) -> tuple[tuple[str, int], ...]:
        """Topic and queue id of each."""
        return tuple((topic, queue_id) for topic in self.topics for queue_id in self.queues)


ONE_QUEUE = Target()


def frame_maker(body: bytes, target: Target = ONE_QUEUE) -> Callable[[int, int], bytes]:
    """(opaque, sequence) -> a frame as the producer writes it, to the queue whose turn it is by ``sequence``."""
    stamp = format_stamp(secrets.token_bytes(16), PRODUCER_EPOCH, _SEQUENCE)
    patterns: list[tuple[bytes, Callable[[tuple[int, int, int]], tuple[int, ...]]]] = []
    for topic in target.topics:
        frame = encode_send(
            opaque=_OPAQUE,
            group="perf",
            topic=topic,
            queue_id=_QUEUE,
            born_at_ms=time.time_ns() // 1_000_000,
            properties=f"{STAMP_PROPERTY}\x01{stamp}\x02",
            body=body,
        )
        _, length = _WORDS.unpack_from(frame)
        header = frame[8 : 8 + length]
        marks = [b"%d" % mark for mark in (_OPAQUE, _SEQUENCE, _QUEUE)]
        if any(header.count(mark) != 1 for mark in marks):
            raise RuntimeError(f"a header of another form: {header!r}")
        pattern = header.replace(b"%", b"%%")
        for mark in marks:
            pattern = pattern.replace(mark, b"%d")
        order = sorted(range(3), key=[header.index(mark) for mark in marks].__getitem__)
        patterns.append((pattern, operator.itemgetter(*order)))
    pack, body_length, topics, queues = _WORDS.pack, len(body), len(patterns), target.queues

    def make(opaque: int, sequence: int) -> bytes:
        turn, which = divmod(sequence, topics)
        pattern, ordered = patterns[which]
        text = pattern % ordered((opaque, sequence, queues[turn % len(queues)]))
        return pack(4 + len(text) + body_length, len(text)) + text + body

    return make


class _Client(asyncio.Protocol):
    """Keeps ``in_flight`` sends open until ``end``; takes the time of those that began after the warm-up."""

    def __init__(
        self, in_flight: int, body_bytes: int, seconds: float, target: Target, done: asyncio.Future[Told]
    ) -> None:
        self._in_flight = in_flight
        self._make = frame_maker(b"x" * body_bytes, target)
        self._seconds = seconds
        self._done = done
        self._decode = msgspec.json.Decoder(_Answer).decode
        self._began: dict[int, float] = {}
        self._took: list[float] = []
        self._busy = 0
        self._next = 0
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._is_secured = transport.get_extra_info("peercert") is not None
        self._from = time.perf_counter() + WARM_UP_S
        self._end = self._from + self._seconds
        self._send(self._in_flight, time.perf_counter())

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(ConnectionError(f"the master closed the link: {exc}"))

    def _send(self, count: int, now: float) -> None:
        first = self._next
        self._next += count
        self._began.update(dict.fromkeys(range(first, self._next), now))
        # As the Producer: one record of TLS, not one for each message.
        frames = [self._make(number, number) for number in range(first, self._next)]
        if self._is_secured:
            self._transport.write(b"".join(frames))
        else:
            self._transport.writelines(frames)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        at, now, answered = 0, time.perf_counter(), 0
        while len(data) - at >= 8:
            length = int.from_bytes(data[at : at + 4], "big")
            if at + 4 + length > len(data):
                break
            header_length = int.from_bytes(data[at + 5 : at + 8], "big")
            answer = self._decode(data[at + 8 : at + 8 + header_length])
            began = self._began.pop(answer.opaque)
            if answer.code == BUSY and self._busy < BUSY_MAX:
                # RocketMQ's flow control on a busy machine; its clients send again, and so does the next line.
                self._busy += 1
            elif answer.code:
                self._fail(f"code {answer.code}: {answer.remark}")
                return
            elif began >= self._from:
                self._took.append(now - began)
            answered += 1
            at += 4 + length
        self._rest = data[at:]
        if now < self._end:
            self._send(answered, now)
        elif not self._began and not self._done.done():
            self._done.set_result(self._told(now))

    def _fail(self, reason: str) -> None:
        if not self._done.done():
            self._done.set_exception(RuntimeError(f"a put was not acknowledged: {reason}"))
        self._transport.abort()

    def _told(self, now: float) -> Told:
        return Told(
            acked=len(self._took),
            seconds=now - self._from,
            p50_ms=percentile(self._took, 0.5) * 1000,
            p99_ms=percentile(self._took, 0.99) * 1000,
        )


def _run(
    directory: Path | None,
    address: str,
    in_flight: int,
    body_bytes: int,
    seconds: float,
    target: Target,
    pipe: Connection,
) -> None:
    sys.setswitchinterval(0.0005)
    credentials = credentials_in_fleet(directory)
    tls = None if credentials is None else credentials.client_context()

    async def main() -> Told:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Told] = loop.create_future()
        host, port = split_address(address)
        transport, _ = await loop.create_connection(
            lambda: _Client(in_flight, body_bytes, seconds, target, done), host, port, ssl=tls
        )
        try:
            return await done
        finally:
            transport.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        pipe.send(runner.run(main()))


def put(fleet: Fleet, in_flight: int, body_bytes: int, seconds: float) -> tuple[Told, float]:
    """(what the client measured, CPU seconds of all brokers per message) of one run of one shape."""
    master = fleet.file.broker(fleet.master(fleet.set_keys()[0])).listen
    pids = [pid for name in fleet.brokers if (pid := fleet.pid(name)) is not None]
    return put_at(master, pids, in_flight, body_bytes, seconds, directory=fleet.directory)


def put_at(
    address: str,
    pids: list[int],
    in_flight: int,
    body_bytes: int,
    seconds: float,
    *,
    directory: Path | None = None,
    target: Target = ONE_QUEUE,
) -> tuple[Told, float]:
    """The same at a master whoever it is; ``pids``: whose CPU counts; ``directory``: of a fleet of ours."""
    ours, theirs = multiprocessing.Pipe()
    arguments = (directory, address, in_flight, body_bytes, seconds, target, theirs)
    process = multiprocessing.get_context("spawn").Process(target=_run, args=arguments, daemon=True)
    before = cpu_s(pids)
    process.start()
    theirs.close()
    try:
        told: Told = ours.recv()
    finally:
        process.join()
    spent = cpu_s(pids) - before
    return told, spent / (told.acked * (1 + WARM_UP_S / seconds))


def run_put(context: Context) -> dict[str, float]:
    """Every shape, one after the other, on one fleet."""
    values: dict[str, float] = {}
    with context.fleet(Layout(name="perf")) as fleet:
        for name, in_flight, body_bytes in SHAPES:
            told, cpu = put(fleet, in_flight, body_bytes, 1.5 if context.is_quick else 3.0)
            rate = told.acked / told.seconds
            values[f"rate_{name}"] = rate
            values[f"p50_{name}"], values[f"p99_{name}"] = told.p50_ms, told.p99_ms
            values[f"cpu_{name}"] = cpu * 1e6
            values[f"mib_{name}"] = rate * body_bytes / (KIB * KIB)
            context.say(
                f"{in_flight} x {body_bytes} bytes: {rate:,.0f}/s, p50 {told.p50_ms:.2f} ms, CPU {cpu * 1e6:.0f} us"
            )
            fleet.wait_redundant(fleet.set_keys()[0])
    return values


def _measures() -> tuple[Measure, ...]:
    return (
        Measure(key="rate_1", what="1 KiB, 1 in flight", unit="/s", reference="294"),
        Measure(key="p50_1", what="  p50", unit="ms", aim=1, reference="2.3"),
        Measure(key="p99_1", what="  p99", unit="ms"),
        Measure(key="rate_16", what="1 KiB, 16 in flight", unit="/s"),
        Measure(key="p50_16", what="  p50", unit="ms"),
        Measure(key="p99_16", what="  p99", unit="ms"),
        Measure(
            key="rate_64", what="1 KiB, 64 in flight", unit="/s", aim=20_000, is_floor=True, reference="1,041-1,461"
        ),
        Measure(key="p50_64", what="  p50", unit="ms", reference="18-28"),
        Measure(key="p99_64", what="  p99", unit="ms"),
        Measure(key="cpu_64", what="  CPU of the three brokers per message", unit="us"),
        Measure(key="mib_big", what="256 KiB, 8 in flight", unit="MiB/s", aim=100, is_floor=True, reference="8"),
        Measure(key="p50_big", what="  p50", unit="ms"),
        Measure(key="p99_big", what="  p99", unit="ms"),
    )


PUT = Section(name="put", title="puts that all three replicas must have", measures=_measures(), run=run_put)
