"""
The small consumer of the demo: reads what the producer sends, and counts what it was given.

    python3 -m rollcall_ha.deploy.local.consumer --directory .demo

Here: counts. Not here: following the master, groups, offsets (``broker.client``), load (``producer``).
Signals: SIGTERM ends it when it has read all there is, after ``DRAIN_DEADLINE_S`` at the latest.

Rule: offsets of a queue have no gaps, so that what is missing is seen without the ledger of the producer.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from rollcall_ha.broker.client.consumer import Consumer, Start
from rollcall_ha.broker.client.messages import Message
from rollcall_ha.deploy.local.producer import DRAIN_DEADLINE_S, REPORT_INTERVAL_S, TOPIC
from rollcall_ha.node import process
from rollcall_ha.node.config import FLEET_FILE_NAME, load_fleet_file
from rollcall_ha.node.credentials import client_name, credentials_of, of_ports

COUNTS_FILE_NAME = "consumer.json"
POLL_MS = 200


class ReadCounts(msgspec.Struct, kw_only=True, rename="camel"):
    """``consumer.json``: sums since the start."""

    consumed: int = 0
    """Different messages."""
    twice: int = 0
    """Given once more: at least once is what a group is promised."""
    missing: int = 0
    """Offsets that were passed by."""


_decode_counts = msgspec.json.Decoder(ReadCounts).decode


def read_counts(directory: Path) -> ReadCounts:
    """What the consumer counted so far; zeros before it started."""
    try:
        return _decode_counts((directory / COUNTS_FILE_NAME).read_bytes())
    except FileNotFoundError:
        return ReadCounts()


class Books:
    """The next offset of each queue, and what follows from it."""

    def __init__(self) -> None:
        self.counts = ReadCounts()
        self._next: dict[int, int] = {}

    def note(self, messages: Iterable[Message]) -> None:
        """They were given, in the order of their queues."""
        for message in messages:
            queue_id, offset = message.queue.queue_id, message.queue_offset
            expected = self._next.get(queue_id, 0)
            if offset < expected:
                self.counts.twice += 1
                continue
            self.counts.consumed += 1
            self.counts.missing += offset - expected
            self._next[queue_id] = offset + 1


async def _main(stop: asyncio.Event, directory: Path, set_name: str) -> int:
    fleet = load_fleet_file(directory / FLEET_FILE_NAME)
    seeds = [section.listen for section in fleet.brokers.values() if section.set == set_name]
    credentials = of_ports(fleet, await asyncio.to_thread(credentials_of, fleet, client_name(fleet)))
    books, due, end = Books(), 0.0, float("inf")
    topics = {TOPIC: "*"}
    async with Consumer(seeds, group="demo", topics=topics, start=Start.FIRST, credentials=credentials) as consumer:
        while time.monotonic() < end:
            messages = await consumer.poll(wait_ms=POLL_MS)
            books.note(messages)
            consumer.done()
            if time.monotonic() >= due:
                due = time.monotonic() + REPORT_INTERVAL_S
                await asyncio.to_thread(_write, directory, books.counts)
            if stop.is_set():
                end = min(end, time.monotonic() + DRAIN_DEADLINE_S)
                if not messages and await consumer.behind() == 0:
                    break
    await asyncio.to_thread(_write, directory, books.counts)
    return 0


def _write(directory: Path, counts: ReadCounts) -> None:
    temporary = directory / f"{COUNTS_FILE_NAME}.tmp"
    temporary.write_bytes(msgspec.json.encode(counts))
    temporary.replace(directory / COUNTS_FILE_NAME)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--set", default="broker-a")
    options = parser.parse_args(arguments)
    return process.run(lambda stop: _main(stop, options.directory, options.set))


if __name__ == "__main__":
    sys.exit(main())
