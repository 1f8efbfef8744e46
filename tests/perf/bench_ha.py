"""
Catch-up of an empty slave over loopback beside the raw limit, sendfile -> TCP -> mapped file, in one run.

    python -m tests.perf.bench_ha [--mib 256] [--runs 3] [--dir DIR]

Master and slave are processes of their own, as in a fleet. Prints one JSON object; ratios count, not absolute figures.
Also measured: the longest pause of either loop meanwhile, and the time from an append to its ack on an idle link.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import multiprocessing
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path

import structlog
import uvloop
from msgspec.structs import replace

from rollcall_ha.controller.contract.ids import BrokerId, LogOffset
from tests.perf.bench_catch_up import TURN_BYTES, raw_receive
from tests.support.ha_logs import MappedLog
from tests.support.ha_pair import reign, target
from tests.support.ha_replica import MasterReplica, SlaveReplica

structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))  # standard output is JSON

MIB = 1024 * 1024
LIVE_BATCH_BYTES = 1024
LIVE_ROUNDS = 500


class LoopLag:
    """Longest time by which a 1 ms timer of this loop came late."""

    def __init__(self) -> None:
        self.worst_s = 0.0
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def _watch(self) -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            self.worst_s = max(self.worst_s, time.perf_counter() - before - 0.001)

    def stop(self) -> float:
        self._task.cancel()
        return round(self.worst_s * 1000, 1)


def new_map(path: Path, size: int) -> MappedLog:
    path.unlink(missing_ok=True)
    return MappedLog(path, size)


def run_slave(path: Path, size: int, pipe: Connection) -> None:
    """Follow the port that the pipe names until everything is here; then wait for the end."""

    async def body() -> None:
        slave = SlaveReplica(new_map(path, size))
        lag = LoopLag()
        pipe.send("ready")
        port = await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        slave.client.follow(replace(target(1), port=port))
        await asyncio.get_running_loop().run_in_executor(None, pipe.recv)
        pipe.send(lag.stop())
        await slave.client.stop()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(body())


async def serve(log: MappedLog, pipe: Connection) -> dict[str, float]:
    """Time a catch-up and the acks of a live tail."""
    loop = asyncio.get_running_loop()
    master = MasterReplica(log)
    caught_up = asyncio.Event()
    master.on_ack = lambda ack: caught_up.set() if ack.offset == log.max_offset else None
    port = await master.server.start("127.0.0.1", 0)
    master.server.open_reign(reign(1), LogOffset(0))
    await loop.run_in_executor(None, pipe.recv)
    lag = LoopLag()
    start = time.perf_counter()
    pipe.send(port)
    await asyncio.wait_for(caught_up.wait(), 300)
    seconds = time.perf_counter() - start
    worst_ms = lag.stop()
    round_trips = []
    for _ in range(LIVE_ROUNDS):
        caught_up.clear()
        log.append(bytes(LIVE_BATCH_BYTES))
        begin = time.perf_counter()
        master.server.log_extended()
        await caught_up.wait()
        round_trips.append((time.perf_counter() - begin) * 1e6)
    pipe.send("end")
    slave_worst_ms = await loop.run_in_executor(None, pipe.recv)
    assert master.acks[BrokerId(2)] == log.max_offset
    await master.server.stop()
    return {
        "seconds": seconds,
        "master_loop_pause_ms": worst_ms,
        "slave_loop_pause_ms": slave_worst_ms,
        "live_ack_p50_us": round(statistics.median(round_trips), 1),
        "live_ack_p99_us": round(statistics.quantiles(round_trips, n=100)[98], 1),
    }


def raw_send(fd: int, size: int, port: int) -> float:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        start = time.perf_counter()
        position = 0
        while position < size:
            position += os.sendfile(sock.fileno(), fd, position, min(TURN_BYTES, size - position))
        sock.recv(1)
        return time.perf_counter() - start


def in_child(work: Callable[[Path, int, Connection], None], path: Path, size: int) -> tuple[BaseProcess, Connection]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=work, args=(path, size, theirs), daemon=True)
    process.start()
    return process, ours


def bench(directory: Path, mib: int, runs: int) -> dict[str, object]:
    size = mib * MIB
    log = new_map(directory / "master", size + LIVE_ROUNDS * LIVE_BATCH_BYTES * (runs + 1))
    log.begin_epoch(1)
    block = os.urandom(MIB)
    for _ in range(mib):
        log.append(block)
    raw, links = [], []
    for _ in range(runs):
        process, pipe = in_child(raw_receive, directory / "raw", size)
        raw.append(mib / raw_send(log.fd, size, pipe.recv()))
        process.join()
        (directory / "raw").unlink()
        process, pipe = in_child(run_slave, directory / "slave", size + LIVE_ROUNDS * LIVE_BATCH_BYTES * (runs + 1))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            result = runner.run(serve(log, pipe))
        process.join()
        (directory / "slave").unlink()
        links.append(result | {"mib_per_s": round(mib / result.pop("seconds"), 1)})
    ratios = [link["mib_per_s"] / limit for link, limit in zip(links, raw, strict=True)]
    return {
        "mib": mib,
        "raw_mib_per_s": [round(value, 1) for value in raw],
        "link": links,
        "ratio_min_median_max": [round(value, 2) for value in (min(ratios), statistics.median(ratios), max(ratios))],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--dir", type=Path, default=None)
    options = parser.parse_args()
    sys.setswitchinterval(0.0005)
    with tempfile.TemporaryDirectory(dir=options.dir) as directory:
        print(json.dumps(bench(Path(directory), options.mib, options.runs), indent=2))


if __name__ == "__main__":
    main()
