"""
``make prove PARTS=port-abuse``: what bad neighbours on the broker ports cost the elections of everybody else.

    python -m tests.perf.port_abuse [--rounds 7] [--keep DIRECTORY]

One fleet of real processes. First its master is killed ``rounds`` times in peace, then as often while ``abuser`` does
everything wrong that a peer can do on the ports of all three controllers: garbage, huge lengths, deep JSON, half frames
in drips, answers that nobody reads, 100 probes a second and 1,000 idle links. The ratio of the medians is what it costs;
numbers of a shared machine judge nobody. The exit code is 1 if a kind of abuse was not counted under its cause, or if
links or unfinished frames stay when the neighbours are gone.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections import Counter
from pathlib import Path

import psutil

from rollcall_ha.client.errors import ClientError
from rollcall_ha.controller.contract.ids import MasterEpoch
from rollcall_ha.deploy.local.endpoints import Endpoint
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import LauncherError, wait_until
from tests.perf import abuser
from tests.perf.bench_failover import ELECTED, spans_ms

DEADLINE_S = 60.0
FIRST_FRAME_S = 30.0
EXPECTED = ("frame-length", "frame", "slow-frame", "said-nothing", "probe")
"""Causes that must be counted; who does not read is closed when its answers are above a limit that takes longer."""
OPEN = 'rollcall_links_open{port="broker"}'
LINKS_LEFT_MAX = 40
"""Sessions of brokers and whoever asks at this moment."""


def metrics(endpoint: Endpoint) -> dict[str, float]:
    """The samples of a /metrics, by name with labels."""
    connection = endpoint.connection(timeout_s=5)
    try:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    finally:
        connection.close()
    samples = (line.rpartition(" ") for line in lines if line[:1] not in ("", "#"))
    return {name: float(value) for name, _, value in samples}


def total(fleet: Fleet, name: str) -> float:
    """Sum of one sample over the controllers."""
    return sum(metrics(fleet.rest(one)).get(name, 0.0) for one in fleet.controllers)


def causes(fleet: Fleet) -> Counter[str]:
    """Links that ended, by cause, over the controllers."""
    found: Counter[str] = Counter()
    for one in fleet.controllers:
        for name, value in metrics(fleet.rest(one)).items():
            if name.startswith('rollcall_links_closed_total{port="broker",'):
                found[name.split('"')[3]] += int(value)
    return found


def memory_mib(fleet: Fleet) -> float:
    """Resident memory of all controllers."""
    pids = [pid for name in fleet.controllers if (pid := fleet.pid(name)) is not None]
    return sum(psutil.Process(pid).memory_info().rss for pid in pids) / 2**20


def elected_ms(fleet: Fleet, epoch: MasterEpoch) -> float:
    """From the first sign of the fault to the commit, by the record of this epoch."""
    key = fleet.set_key()
    found: list[float] = []

    def is_there() -> bool:
        try:
            rows = fleet.client().history(key).rows
        except ClientError:
            return False
        whole = [row for row in rows if row.master_epoch == epoch and not set(ELECTED) & set(row.missing)]
        found[:] = [sum(spans_ms(row)[phase] for phase in ELECTED) for row in whole]
        return bool(found)

    wait_until(is_there, deadline_s=DEADLINE_S, what=f"the record of masterEpoch {epoch}")
    return found[0]


def kills(fleet: Fleet, rounds: int, when: str) -> list[float]:
    """Kill the master so often; the election of each."""
    key, samples = fleet.set_key(), []
    for number in range(rounds):
        before = fleet.wait_redundant(key, deadline_s=DEADLINE_S).view.master_epoch
        name = fleet.master(key)
        fleet.kill(name)
        samples.append(elected_ms(fleet, MasterEpoch(before + 1)))
        fleet.restart(name)
        sys.stderr.write(f"    {when} {number + 1} of {rounds}: elected after {samples[-1]:.1f} ms\n")
    fleet.wait_redundant(key, deadline_s=DEADLINE_S)
    return samples


def run(directory: Path, rounds: int) -> int:
    """Print the table; the exit code."""
    with Fleet.create(directory, Layout(name="abuse", is_insecure=True)) as fleet:
        fleet.up(deadline_s=DEADLINE_S)
        peace = kills(fleet, rounds, "in peace")
        counted, memory = causes(fleet), memory_mib(fleet)
        fleet.processes.start(
            "abuser",
            [sys.executable, abuser.__file__, *(section.broker for section in fleet.file.controllers.values())],
        )
        wait_until(lambda: total(fleet, OPEN) >= 1_000, deadline_s=DEADLINE_S, what="1,000 idle links")
        abused = kills(fleet, rounds, "under abuse")
        wait_until(
            lambda: all((causes(fleet) - counted)[cause] for cause in EXPECTED),
            deadline_s=DEADLINE_S + FIRST_FRAME_S,
            what=f"each of {', '.join(EXPECTED)} to be counted",
        )
        ended, memory_then = causes(fleet) - counted, memory_mib(fleet)
        malformed = total(fleet, 'rollcall_session_requests_total{request="malformed"}')
        fleet.processes.kill("abuser")
        wait_until(
            lambda: total(fleet, OPEN) <= LINKS_LEFT_MAX,
            deadline_s=DEADLINE_S,
            what="its links to be gone",
        )
        unfinished = total(fleet, 'rollcall_links_unfinished_bytes{port="broker"}')
    ratio = statistics.median(abused) / statistics.median(peace)
    print(f"election, median of {rounds}: {statistics.median(peace):.1f} ms in peace, ", end="")
    print(f"{statistics.median(abused):.1f} ms under abuse: ratio {ratio:.2f}")
    print(f"slowest: {max(peace):.1f} ms and {max(abused):.1f} ms")
    print(f"memory of all controllers: {memory:.0f} MiB and {memory_then:.0f} MiB")
    print(f"{'links ended because of':<24}{'count':>8}")
    for cause, count in ended.most_common():
        print(f"{cause:<24}{count:>8,}")
    print(f"{'bodies refused':<24}{malformed:>8,.0f}")
    print(f"left when they were gone: {unfinished:.0f} bytes of unfinished frames")
    result = {"rounds": rounds, "links_ended": ended.total(), "bodies_refused": malformed, "ratio": round(ratio, 3),
              "unfinished_bytes": unfinished}  # fmt: skip
    print(f"RESULT {json.dumps(result)}")
    return 0 if unfinished == 0 and malformed else 1


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Elections in peace and under abuse of the broker ports.")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--keep", type=Path, help="where data and logs are left; default: removed unless it fails")
    options = parser.parse_args()
    folder = options.keep or Path(tempfile.mkdtemp(prefix="rollcall-abuse-"))
    try:
        code = run(folder / "fleet", options.rounds)
    except LauncherError as error:
        sys.exit(f"FAILED  {error}\nlogs are in {folder}")
    if options.keep is None:
        shutil.rmtree(folder)
    sys.exit(code)
