"""
A thin client of pulls, at brokers of ours and of RocketMQ: it drains queues, follows them, or times messages on their way.

Each in a process of its own, with as little work per message as it can: the two cores are the brokers'. It asks as
RocketMQ's push consumer does, with one pull under way per queue, 32 messages at a time, held while there are none.
"""

from __future__ import annotations

import abc
import asyncio
import multiprocessing
import struct
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import cast

import msgspec
import uvloop

from rollcall_ha.broker.protocol.codes import ClientCode, ClientResult
from rollcall_ha.broker.protocol.pull import FLAG_SUBSCRIPTION, FLAG_SUSPEND
from rollcall_ha.node.config import split_address
from rollcall_ha.node.remoting.codes import SystemCode
from rollcall_ha.node.remoting.frame import Frame, encode_frame
from tests.perf.bench_put import BUSY, BUSY_MAX, KIB, ONE_QUEUE, WARM_UP_S, Target, frame_maker
from tests.perf.results import percentile
from tests.support.fleet_links import credentials_in_fleet

GROUP = "perf-readers"
PULL_MESSAGES = 32
HELD_MS = 15_000
TICK_S = 0.001
_SIZE, _STAMP = struct.Struct(">i"), struct.Struct(">q")
_BODY_BYTES_AT, _BODY_AT = 84, 88
"""Of a record whose hosts have four bytes."""


class Pulled(msgspec.Struct, frozen=True):
    """The messages that brokers gave to a client."""

    messages: int
    payload: int
    """Bytes of these messages as records, with heads and properties."""
    seconds: float
    p50_ms: float = 0.0
    p99_ms: float = 0.0
    """From the send to the client, of messages that carry their time."""


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """The task of one process: it pulls to the end of each queue, or for ``seconds``, or until it is told to stop."""

    address: str
    directory: Path | None = None
    """Of a fleet of ours, whose ports take no plain link."""
    target: Target = ONE_QUEUE
    is_to_end: bool = False
    """From the first message of each queue to the one that is the last at the beginning; or else from there on."""
    seconds: float | None = None
    per_s: int = 0
    """So many messages are sent meanwhile, each with its time; 0: none."""


class _Answer(msgspec.Struct, rename="camel"):
    code: int
    opaque: int
    remark: str | None = None
    ext_fields: dict[str, str] = {}


_decode = msgspec.json.Decoder(_Answer).decode


class _Link(asyncio.Protocol, abc.ABC):
    """Cuts answers; who inherits takes them."""

    def __init__(self, done: asyncio.Future[None]) -> None:
        self.done = done
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(ConnectionError(f"the master closed the link: {exc}"))

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        at = 0
        while len(data) - at >= 8:
            end = at + 4 + int.from_bytes(data[at : at + 4], "big")
            if end > len(data):
                break
            body_at = at + 8 + int.from_bytes(data[at + 5 : at + 8], "big")
            self.take(_decode(data[at + 8 : body_at]), memoryview(data)[body_at:end])
            at = end
        self._rest = data[at:]

    @abc.abstractmethod
    def take(self, answer: _Answer, body: memoryview) -> None:
        """One answer; ``body`` is a view of what was received, for this call only."""

    def fail(self, reason: str) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(reason))


class _Sends(_Link):
    """``per_s`` messages a second, whatever is answered when."""

    def begin(self, work: Work) -> None:
        self._body = bytes(KIB)
        self._make, self._next, self._busy = frame_maker(self._body, work.target), 0, 0
        self._began_s, self._per_s = time.perf_counter(), work.per_s
        self._tick()

    def _tick(self) -> None:
        if self.done.done():
            return
        now_s = time.perf_counter()
        due = int((now_s - self._began_s) * self._per_s)
        while self._next < due:
            head = self._make(self._next, self._next)[: -len(self._body)]
            stamp = _STAMP.pack(time.perf_counter_ns())
            self.transport.write(head + stamp + self._body[len(stamp) :])
            self._next += 1
        asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def take(self, answer: _Answer, body: memoryview) -> None:
        if answer.code == BUSY and self._busy < BUSY_MAX:
            self._busy += 1  # RocketMQ's flow control: this message is not in the log, and nobody is given it
        elif answer.code:
            self.fail(f"a put was not acknowledged: code {answer.code}: {answer.remark}")


class _Pulls(_Link):
    """One pull under way for each queue."""

    def begin(self, work: Work) -> None:
        self._work, self._queues = work, work.target.all
        self._offsets = [0] * len(self._queues)
        self._ends: dict[int, int] = {}
        self.begun = asyncio.get_running_loop().create_future()
        self._messages = self._payload = 0
        self._took_ns: list[int] = []
        self._began_s = time.perf_counter()
        self._timed_from_ns = time.perf_counter_ns() + int(WARM_UP_S * 1e9)
        for which, (topic, queue_id) in enumerate(self._queues):
            fields = {"topic": topic, "queueId": str(queue_id)}
            self.transport.write(encode_frame(Frame(code=ClientCode.GET_MAX_OFFSET, opaque=which, ext_fields=fields)))

    def _pull(self, which: int) -> None:
        topic, queue_id = self._queues[which]
        fields = {
            "consumerGroup": GROUP, "topic": topic, "queueId": str(queue_id), "queueOffset": str(self._offsets[which]),
            "maxMsgNums": str(PULL_MESSAGES), "sysFlag": str(FLAG_SUSPEND | FLAG_SUBSCRIPTION), "commitOffset": "0",
            "suspendTimeoutMillis": str(HELD_MS), "subscription": "*", "subVersion": "1", "expressionType": "TAG",
        }  # fmt: skip
        self.transport.write(encode_frame(Frame(code=ClientCode.PULL_MESSAGE, opaque=which, ext_fields=fields)))

    def take(self, answer: _Answer, body: memoryview) -> None:
        which = answer.opaque
        if which not in self._ends:
            self._note_end(which, answer)
            return
        if answer.code == SystemCode.SUCCESS:
            self._count(body)
        elif answer.code not in (ClientResult.PULL_NOT_FOUND, ClientResult.PULL_RETRY_IMMEDIATELY):
            self.fail(f"a pull was refused: code {answer.code}: {answer.remark}")
            return
        self._offsets[which] = int(answer.ext_fields["nextBeginOffset"])
        self._go_on(which)

    def _note_end(self, which: int, answer: _Answer) -> None:
        if answer.code:
            self.fail(f"the end of a queue is not known: code {answer.code}: {answer.remark}")
            return
        self._ends[which] = int(answer.ext_fields["offset"])
        if not self._work.is_to_end:
            self._offsets[which] = self._ends[which]
        if len(self._ends) == len(self._queues):
            self.begun.set_result(None)
        self._go_on(which)

    def _go_on(self, which: int) -> None:
        if self.done.done():
            return
        if not self._work.is_to_end or self._offsets[which] < self._ends[which]:
            self._pull(which)
        elif len(self._ends) == len(self._queues) and all(
            offset >= self._ends[queue] for queue, offset in enumerate(self._offsets)
        ):
            self.done.set_result(None)

    def _count(self, body: memoryview) -> None:
        at, size, is_timed, now_ns = 0, len(body), bool(self._work.per_s), time.perf_counter_ns()
        while at < size:
            if is_timed:
                (sent_ns,) = _STAMP.unpack_from(body, at + _BODY_AT)
                if sent_ns >= self._timed_from_ns:
                    self._took_ns.append(now_ns - sent_ns)
            at += _SIZE.unpack_from(body, at)[0]
            self._messages += 1
        self._payload += size

    def told(self) -> Pulled:
        took = self._took_ns
        return Pulled(
            messages=self._messages,
            payload=self._payload,
            seconds=time.perf_counter() - self._began_s,
            p50_ms=percentile(took, 0.5) / 1e6 if took else 0.0,
            p99_ms=percentile(took, 0.99) / 1e6 if took else 0.0,
        )


async def _work(work: Work, stop: asyncio.Event, pipe: Connection) -> Pulled:
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    credentials = credentials_in_fleet(work.directory)
    tls = None if credentials is None else credentials.client_context()
    host, port = split_address(work.address)
    _, pulls = await loop.create_connection(lambda: _Pulls(done), host, port, ssl=tls)
    pulls.begin(work)
    await asyncio.wait((pulls.begun, done), return_when=asyncio.FIRST_COMPLETED)
    pipe.send("begun")
    if work.per_s:
        _, sends = await loop.create_connection(lambda: _Sends(done), host, port, ssl=tls)
        sends.begin(work)
    stopped = asyncio.create_task(stop.wait())
    await asyncio.wait((done, stopped), timeout=work.seconds, return_when=asyncio.FIRST_COMPLETED)
    stopped.cancel()
    if done.done():
        done.result()
    else:
        done.set_result(None)
    told = pulls.told()
    pulls.transport.abort()
    return told


def _run(work: Work, pipe: Connection) -> None:
    sys.setswitchinterval(0.0005)

    async def main() -> Pulled:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_reader(pipe.fileno(), stop.set)
        return await _work(work, stop, pipe)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        pipe.send(runner.run(main()))


@contextmanager
def pulling(work: Work) -> Iterator[list[Pulled]]:
    """Pulls go on in a process of their own while the block runs; then the list has what it was given."""
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_run, args=(work, theirs), daemon=True)
    process.start()
    theirs.close()
    told: list[Pulled] = []
    try:
        ours.recv()
        yield told
        if not work.is_to_end and work.seconds is None:
            ours.send("stop")
        told.append(ours.recv())
    finally:
        process.join()


def pull(work: Work) -> Pulled:
    """The same, to its end."""
    with pulling(work) as told:
        pass
    return told[0]
