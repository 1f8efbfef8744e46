"""
A client in a process of its own: a producer with a few sends in flight, each acknowledgement stamped.

Here: ``Client`` for the bench, ``_produce`` for the child. The load is light on purpose (``PAUSE_MS`` between two sends
of one worker): a failover is to be timed, not a full machine.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Self

import uvloop

from rollcall_ha.broker.client.producer import Producer, SendFailedError
from rollcall_ha.node.tls import Credentials
from tests.support.fleet_links import credentials_in_fleet

WORKERS = 4
PAUSE_MS = 2
BODY = b"x" * 1024
READY_DEADLINE_S = 20


class Client:
    """``with Client(directory, seeds) as client: ...; stamps = client.stop()``."""

    def __init__(self, directory: Path, seeds: Sequence[str]) -> None:
        """``directory``: the fleet's; ``seeds``: listen addresses of the set's brokers."""
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_produce, args=(directory, tuple(seeds), theirs), daemon=True)

    def __enter__(self) -> Self:
        """Start; returns when the first message was acknowledged."""
        self._process.start()
        if not self._pipe.poll(READY_DEADLINE_S):
            raise TimeoutError(f"the client had no acknowledgement within {READY_DEADLINE_S} s")
        self._pipe.recv()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It ends, also if it was not asked to."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()

    def stop(self) -> list[int]:
        """When each acknowledgement came, CLOCK_MONOTONIC in ns, rising."""
        self._pipe.send("stop")
        stamps: list[int] = self._pipe.recv()
        self._process.join()
        return stamps

    def acked(self) -> int:
        """Acknowledgements so far."""
        self._pipe.send("count")
        count: int = self._pipe.recv()
        return count


def _produce(directory: Path, seeds: Sequence[str], pipe: Connection) -> None:
    sys.setswitchinterval(0.0005)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_main(credentials_in_fleet(directory), seeds, pipe))


async def _main(credentials: Credentials | None, seeds: Sequence[str], pipe: Connection) -> None:
    stamps: list[int] = []
    stop = asyncio.Event()

    def heard() -> None:
        if pipe.recv() == "count":
            pipe.send(len(stamps))
        else:
            stop.set()

    async with Producer(seeds, group="perf", credentials=credentials) as producer:
        workers = [asyncio.create_task(_work(producer, stamps, pipe)) for _ in range(WORKERS)]
        asyncio.get_running_loop().add_reader(pipe.fileno(), heard)
        await stop.wait()
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    pipe.send(stamps)


async def _work(producer: Producer, stamps: list[int], pipe: Connection) -> None:
    while True:
        try:
            await producer.send("Perf", BODY)
        except SendFailedError:
            continue
        stamps.append(time.monotonic_ns())
        if len(stamps) == 1:
            pipe.send("ready")
        await asyncio.sleep(PAUSE_MS / 1000)
