"""
Our own producer and consumers as small programs, with the books of the Java and Go ones beside which they run.

    python -m tests.interop_java.pair produce NAMES TOPIC ORDERED_TOPIC DIRECTORY SENDERS PAUSE_MS
    python -m tests.interop_java.pair consume NAMES TOPIC ORDERED_TOPIC DIRECTORY GROUP ORDERED_GROUP

Here: load, refusals, lines. Not here: the clients (``broker.client``), what keys say (``keys``).

Rule 1: SIGTERM ends it after what is under way. A consumer that ended by itself ends its program, with status 1.
Rule 2: a refused message is refused once here, whatever its kind: our client names no number of refusals behind which a
message is dead, so a second one would only cost half a minute.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rollcall_ha.broker.client.consumer import Consumer, Start
from rollcall_ha.broker.client.messages import Message
from rollcall_ha.broker.client.producer import Producer, SendFailedError
from rollcall_ha.deploy.local.ledger import LedgerWriter, Line, offset_of
from tests.interop_java.books import CONSUMED_FILE_NAME
from tests.interop_java.keys import LATE, SHARDS, body_of, digest_of, kind_at, kind_of, refusals_of

SET = "broker-a"
REFUSED_PAUSE_S = 0.05


class RefusedError(Exception):
    """The program plays a handler that fails."""


class Sender:
    """The producer and its ledger."""

    def __init__(self, producer: Producer, directory: Path, pause_s: float, stop: asyncio.Event) -> None:
        self._producer, self._pause_s, self._stop = producer, pause_s, stop
        self._ledger = LedgerWriter(directory)
        self._run = secrets.token_hex(6)
        self._numbers = itertools.count(1)

    async def work(self, topic: str, kind: Callable[[int], str]) -> None:
        """One message after the other."""
        while not self._stop.is_set():
            number = next(self._numbers)
            is_acked = await self._send(topic, kind(number), number)
            await asyncio.sleep(self._pause_s if is_acked else REFUSED_PAUSE_S)

    async def _send(self, topic: str, kind: str, number: int) -> bool:
        key = f"python-{kind}-{self._run}-{number:012x}"
        body = body_of(key)
        properties = {"KEYS": key, "UNIQ_KEY": key, "TAGS": ("even", "odd")[number % 2]}
        if kind.startswith(LATE):
            properties["DELAY"] = kind.removeprefix(LATE)
        queue_id = int(kind[-1]) if kind.startswith("shard") else None
        try:
            result = await self._producer.send(topic, body, queue_id=queue_id, properties=properties)
        except SendFailedError:
            return False
        line = Line(
            key=key,
            set=SET,
            topic=topic,
            queue_id=result.queue_id,
            queue_offset=result.queue_offset,
            physical_offset=offset_of(result.message_id),
            body_sha256=digest_of(body),
            acked_at_ns=result.answered_at_ns,
            acked_by=result.answered_by,
        )
        self._ledger.append([line])
        return True


class Taker:
    """What one group got."""

    def __init__(self, directory: Path, *, refuses: bool) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._file = (directory / CONSUMED_FILE_NAME).open("a", buffering=1)
        self._refuses = refuses

    async def take(self, messages: Sequence[Message]) -> None:
        """Raises ``RefusedError`` about all of them."""
        is_refused = self._refuses and any(self._is_refused(message) for message in messages)
        for message in messages:
            (key,), queue = message.keys, message.queue
            self._file.write(
                f"{key}\t{digest_of(message.body)}\t{time.monotonic_ns()}\t{queue.topic}\t{queue.queue_id}\t"
                f"{message.queue_offset}\t{message.reconsume_times}\t{int(not is_refused)}\n"
            )
        if is_refused:
            raise RefusedError

    def _is_refused(self, message: Message) -> bool:
        return message.reconsume_times == 0 and refusals_of(kind_of(message.keys[0])) != 0


async def produce(names: Sequence[str], arguments: Sequence[str], stop: asyncio.Event) -> None:
    """Several that send to one topic, and one that sends to the ordered one."""
    topic, ordered_topic, directory, senders, pause_ms = arguments
    async with Producer(names, group="python-producer", topic=topic, set_name=SET) as producer:
        sender = Sender(producer, Path(directory), int(pause_ms) / 1000, stop)
        works = [sender.work(topic, kind_at) for _ in range(int(senders))]
        await asyncio.gather(*works, sender.work(ordered_topic, lambda number: f"shard{number % SHARDS}"))


async def consume(names: Sequence[str], arguments: Sequence[str], stop: asyncio.Event) -> None:
    """A group of each topic. Raises ``ConsumerError``."""
    topic, ordered_topic, directory, group, ordered_group = arguments
    plain = Taker(Path(directory) / group, refuses=True)
    ordered = Taker(Path(directory) / ordered_group, refuses=False)
    async with (
        # One by one: a batch that is refused is refused as a whole.
        Consumer(names, group=group, topics={topic: "*"}, handler=plain.take, start=Start.FIRST, batch_max=1) as first,
        Consumer(
            names,
            group=ordered_group,
            topics={ordered_topic: "*"},
            handler=ordered.take,
            is_ordered=True,
            start=Start.FIRST,
        ) as second,
        asyncio.TaskGroup() as running,
    ):
        tasks = [running.create_task(consumer.run()) for consumer in (first, second)]
        await stop.wait()
        for task in tasks:
            task.cancel()


async def _main(arguments: Sequence[str]) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    run = {"produce": produce, "consume": consume}[arguments[0]]
    await run(arguments[1].split(";"), arguments[2:], stop)


if __name__ == "__main__":
    asyncio.run(_main(sys.argv[1:]))
