"""
The small producer of the demo: keeps sends in flight, writes the ledger, prints a client's counts once a second.

    python3 -m rollcall_ha.deploy.local.producer --directory .demo [--in-flight 8] [--body-bytes 256] [--pause-ms 0]

Here: load and book-keeping. Not here: following the master, retries, duplicates (``broker.client``).
Signals: SIGUSR1 pushes a burst of large messages at once; SIGTERM stops after the answers under way.

Rule 1: only an acknowledged message gets a line in the ledger.
Rule 2: a message whose outcome is unknown is counted, never repeated under another key.
Rule 3: the loop is the client's stopwatch: files are written on a thread, or answers would be stamped late.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import itertools
import secrets
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rollcall_ha.broker.client.producer import Producer, SendFailedError, SendResult
from rollcall_ha.controller.contract.values import made_from
from rollcall_ha.deploy.local import ledger
from rollcall_ha.node import process
from rollcall_ha.node.config import FLEET_FILE_NAME, load_fleet_file
from rollcall_ha.node.credentials import client_name, credentials_of, of_ports

COUNTS_FILE_NAME = "producer.json"
TOPIC = "demo"
BURST_MESSAGES = 128
BURST_BODY_BYTES = 256 * 1024
REPORT_INTERVAL_S = 1.0
WRITE_INTERVAL_S = 0.05
DRAIN_DEADLINE_S = 10.0


class SendCounts(msgspec.Struct, kw_only=True, rename="camel"):
    """``producer.json``: sums since the start."""

    acked: int = 0
    retried: int = 0
    duplicate_answers: int = 0
    unknown: int = 0
    not_appended: int = 0
    gap_ms_max: float = 0.0


_decode_counts = msgspec.json.Decoder(SendCounts).decode


def read_counts(directory: Path) -> SendCounts:
    """What the producer counted so far; zeros before it started."""
    try:
        return _decode_counts((directory / COUNTS_FILE_NAME).read_bytes())
    except FileNotFoundError:
        return SendCounts()


class Load:
    """Keeps sends in flight until told to stop."""

    def __init__(
        self, producer: Producer, directory: Path, set_name: str, body_bytes: int, pause_ms: float = 0
    ) -> None:
        """Nothing is sent yet. ``pause_ms``: between an answer and the send that takes its place."""
        self._producer = producer
        self._directory = directory
        self._set_name = set_name
        self._body_bytes = body_bytes
        self._pause_s = pause_ms / 1000
        self._ledger = ledger.LedgerWriter(directory)
        self._lines: list[ledger.Line] = []
        self._numbers = itertools.count()
        self._prefix = secrets.token_hex(10)
        self._last_ack_ns = time.monotonic_ns()
        self._gap_ns = 0
        self._gap_ns_max = 0
        self._bursts: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def run(self, in_flight: int, stop: asyncio.Event) -> None:
        """
        Until ``stop``, and then until the answers under way are there, at most ``DRAIN_DEADLINE_S``.

        Raises ``OSError`` at once if the ledger cannot be written: an acknowledgement without a line is not audited.
        """
        workers = [asyncio.create_task(self._work()) for _ in range(in_flight)]
        drained = asyncio.Event()
        books = asyncio.create_task(self._keep_books(drained))
        stopped = asyncio.create_task(stop.wait())
        await asyncio.wait((stopped, books), return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        self._stopping = True
        _, late = await asyncio.wait([*workers, *self._bursts], timeout=DRAIN_DEADLINE_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        drained.set()
        await books
        self._ledger.close()

    def push(self) -> None:
        """A burst of large messages, all in flight at once."""
        for _ in range(BURST_MESSAGES):
            task = asyncio.create_task(self._send(BURST_BODY_BYTES))
            self._bursts.add(task)
            task.add_done_callback(self._bursts.discard)

    async def _work(self) -> None:
        while not self._stopping:
            await self._send(self._body_bytes)
            if self._pause_s:
                await asyncio.sleep(self._pause_s)

    async def _send(self, body_bytes: int) -> None:
        key = f"{self._prefix}{next(self._numbers):012x}".upper()
        body = (key.encode() * (body_bytes // len(key) + 1))[:body_bytes]
        try:
            result = await self._producer.send(TOPIC, body, properties={"UNIQ_KEY": key})
        except SendFailedError:
            return  # Counted by the producer, by outcome.
        now_ns = result.answered_at_ns
        self._gap_ns = max(self._gap_ns, now_ns - self._last_ack_ns)
        self._last_ack_ns = now_ns
        self._lines.append(_line(key, self._set_name, body, result, now_ns))

    async def _keep_books(self, drained: asyncio.Event) -> None:
        """Write ledger and counts until ``drained`` (rule 3)."""
        due = time.monotonic() + REPORT_INTERVAL_S
        acked_before = 0
        is_last = False
        while not is_last:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WRITE_INTERVAL_S):
                    await drained.wait()
            # Read BEFORE the lines are taken: an answer that comes in between would not be written by the last turn.
            is_last = drained.is_set()
            self._gap_ns_max = max(self._gap_ns_max, self._gap_ns)
            lines, self._lines = self._lines, []
            await asyncio.to_thread(self._write, lines, self._counts())
            if time.monotonic() >= due:
                due += REPORT_INTERVAL_S
                counters = self._producer.counters
                print(
                    f"acked {counters.acked:,} (+{counters.acked - acked_before:,})"
                    f"  longest gap {self._gap_ns / 1e6:.0f} ms"
                    f"  retried {counters.retried:,}  duplicate answers {counters.duplicate_answers:,}"
                    f"  unknown {counters.unknown:,}",
                    flush=True,
                )
                acked_before, self._gap_ns = counters.acked, 0

    def _counts(self) -> SendCounts:
        counters = self._producer.counters
        return made_from(counters, SendCounts, gap_ms_max=self._gap_ns_max / 1e6)

    def _write(self, lines: Sequence[ledger.Line], counts: SendCounts) -> None:
        """The ledger BEFORE the counts: what is counted can be audited. Blocking."""
        if lines:
            self._ledger.append(lines)
        temporary = self._directory / f"{COUNTS_FILE_NAME}.tmp"
        temporary.write_bytes(msgspec.json.encode(counts))
        temporary.replace(self._directory / COUNTS_FILE_NAME)


def _line(key: str, set_name: str, body: bytes, result: SendResult, now_ns: int) -> ledger.Line:
    """A duplicate's answer may not say where the message lies; then the key alone must be found."""
    return ledger.Line(
        key=key,
        set=set_name,
        topic=TOPIC,
        queue_id=result.queue_id,
        queue_offset=result.queue_offset,
        physical_offset=ledger.offset_of(result.message_id),
        body_sha256=hashlib.sha256(body).hexdigest(),
        acked_at_ns=now_ns,
        acked_by=result.answered_by,
    )


async def _main(stop: asyncio.Event, options: argparse.Namespace) -> int:
    fleet = load_fleet_file(options.directory / FLEET_FILE_NAME)
    seeds = [section.listen for section in fleet.brokers.values() if section.set == options.set]
    credentials = of_ports(fleet, await asyncio.to_thread(credentials_of, fleet, client_name(fleet)))
    async with Producer(seeds, group="demo", credentials=credentials) as producer:
        load = Load(producer, options.directory, options.set, options.body_bytes, options.pause_ms)
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, load.push)
        await load.run(options.in_flight, stop)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--set", default="broker-a")
    parser.add_argument("--in-flight", type=int, default=8)
    parser.add_argument("--body-bytes", type=int, default=256)
    parser.add_argument("--pause-ms", type=float, default=0.0, help="after each answer; 0 = as fast as it goes")
    options = parser.parse_args(arguments)
    return process.run(lambda stop: _main(stop, options))


if __name__ == "__main__":
    sys.exit(main())
