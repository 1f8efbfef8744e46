"""The probe at a living fleet: it tells the stop of a master as a producer beside it felt it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from rollcall_ha.broker.client.producer import Producer
from rollcall_ha.deploy.local.fleet import Fleet
from rollcall_ha.node.credentials import client_name, credentials_of, files_of, of_ports
from rollcall_ha.probe.journal import GLOB
from rollcall_ha.probe.lines import GapLine, Line, WatchedLine, decode_line
from tests.support.fleet_story import heal, only_set, rollcall
from tests.support.ha_replica import until

pytestmark = pytest.mark.cluster

TIMEOUT_S = 30.0


def lines(folder: Path) -> list[Line]:
    return [decode_line(line) for file in sorted(folder.glob(GLOB)) for line in file.read_bytes().splitlines()]


def test_a_master_that_hangs_is_a_gap_within_what_a_producer_felt(fleet: Fleet, tmp_path: Path) -> None:
    """The producer's longest time without an ack, and the probe's gap, differ by the grain of the probe at most."""
    heal(fleet)
    master = fleet.master(only_set(fleet))
    seeds = [section.listen for section in fleet.file.brokers.values()]
    proof = of_ports(fleet.file, credentials_of(fleet.file, client_name(fleet.file)))
    folder = tmp_path / "probe"
    arguments = [f"--brokers={','.join(seeds)}", f"--directory={folder}", "--interval-ms=50"]
    if proof is not None:
        files = files_of(fleet.file, "client")
        arguments += [f"--authority={files.authority}", f"--identity={files.certificate}"]
    acked_ns: list[int] = []

    async def send(producer: Producer) -> None:
        while True:
            acked_ns.append((await producer.send("beside", b"x")).answered_at_ns)

    async def story() -> None:
        async with Producer(seeds, credentials=proof) as producer:
            sending = asyncio.create_task(send(producer))
            await until(lambda: len(acked_ns) > 100)
            before = len(acked_ns)
            # A killed one is followed in 40 ms here, which is less than an interval.
            fleet.stop(master)
            await until(lambda: len(acked_ns) > before + 100)
            sending.cancel()

    probe = subprocess.Popen([sys.executable, "-m", "rollcall_ha.probe", *arguments], stderr=subprocess.PIPE, text=True)
    said: list[str] = []
    try:
        assert probe.stderr is not None
        deadline = time.monotonic() + TIMEOUT_S
        for told in probe.stderr:
            assert time.monotonic() < deadline, told
            said.append(told)
            if "set_watched" in told:
                break
        asyncio.run(story())
    finally:
        fleet.cont(master)
        probe.terminate()
        _, told = probe.communicate(timeout=TIMEOUT_S)
    assert probe.returncode == 0, (said, told)
    found = lines(folder)
    felt_ms = max(after - ack for ack, after in pairwise(acked_ns)) / 1e6
    gaps = [one for one in found if isinstance(one, GapLine)]
    last = found[-1]
    assert isinstance(last, WatchedLine)
    assert last.sets[0].acks > 0
    assert gaps, (found[-1], felt_ms)
    longest = max(gaps, key=lambda one: one.felt_ms)
    assert longest.is_over
    assert longest.sends_failed > 0
    # It looks each interval, and leaves a send alone when its time is over: 50 and 150 ms.
    assert abs(longest.felt_ms - felt_ms) < 250 + longest.stalled_ms, (longest, felt_ms)


def test_once_finds_the_sets_by_the_controllers_and_prints_a_table(fleet: Fleet) -> None:
    """It ends by itself; with a threshold of seconds, a busy machine makes no gap."""
    heal(fleet)
    done = rollcall(fleet, "probe", "--once=3", "--threshold-ms=20000", "--ack-timeout-ms=10000")
    assert done.returncode == 0, done
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["SET", "SENDS", "FAILED", "GAPS", "LONGEST"]
    assert [row.split()[0] for row in rows] == [only_set(fleet).name]
    assert int(rows[0].split()[1]) > 0
