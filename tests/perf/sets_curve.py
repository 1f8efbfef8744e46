"""
Costs of a set in groups of several sizes: registration, heartbeats, the loss of all masters, memory of the leader.

    python -m tests.perf.sets_curve --sets 100,1000,3000 --runs 1 [--heartbeat-s 4]

One group after the other, each with controllers of its own, TLS on; two replicas a set, all in two processes
(``replicas``). A controller gives its brokers three quarters of its open files: more than 7,400 sets of two need more
than 20,000 (``ulimit -n``). Prints the table and the bars of docs/numbers.md.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from tests.perf.bench_sets import QUIET_S, beat, crowds, lose_masters, register
from tests.perf.machine import cpu_s, describe
from tests.perf.replicas import HEARTBEAT_S
from tests.perf.section import Context

ROWS = (
    ("registered_s", "all registered", "s", 1.0),
    ("registered_ms", "registration of a set", "ms", 1.0),
    ("beat_cpu", "leader's CPU for heartbeats", "%", 1.0),
    ("beat_us", "leader's CPU for a heartbeat", "us", 1.0),
    ("elected_p50_ms", "all masters lost: half elected after", "s", 1e-3),
    ("elected_all_ms", "all elected after", "s", 1e-3),
    ("elected_ms", "election of a set", "ms", 1.0),
    ("elected_cpu_ms", "leader's CPU for an election", "ms", 1.0),
    ("rest_max_ms", "longest answer of REST meanwhile", "s", 1e-3),
    ("resident_mib", "leader's memory, all registered", "MiB", 1.0),
)
"""Key, words, unit, factor from the key's unit."""
BAR_CHARACTERS = 40
PLOTTED = ("registered_ms", "elected_ms", "elected_cpu_ms")


def measure(context: Context, sets: int, heartbeat_s: float) -> dict[str, float]:
    """One life of a group."""
    with crowds(context, is_insecure=False, sets=sets, heartbeat_s=heartbeat_s) as (fleet, slaves, masters):
        leader = fleet.leader()
        pid = fleet.pid(leader)
        assert pid is not None
        time.sleep(QUIET_S)
        values = register(context, slaves, masters, sets) | beat(context, pid, slaves, masters)
        values["resident_mib"] = psutil.Process(pid).memory_info().rss / 2**20
        before = cpu_s([pid])
        values |= lose_masters(context, fleet, slaves, masters, sets)
        values["elected_cpu_ms"] = (cpu_s([pid]) - before) * 1000 / sets
        if fleet.leader() != leader:
            raise RuntimeError(f"{leader} lost the lead meanwhile")
        if values["lost_masters"] != sets:
            raise RuntimeError(f"{values['lost_masters']:.0f} of {sets} sets lost their masters")
    values["registered_ms"] = values["registered_s"] * 1000 / sets
    values["beat_us"] = values["beat_cpu"] * 10_000 / values["beats"]
    values["elected_ms"] = values["elected_all_ms"] / sets
    return values


def table(found: dict[int, list[dict[str, float]]]) -> str:
    """Markdown: a column for each group, medians of its runs."""
    lines = ["| what | unit | " + " | ".join(f"{sets:,} sets" for sets in found) + " |"]
    lines.append("| --- | --- |" + " ---: |" * len(found))
    for key, what, unit, factor in ROWS:
        cells = (f"{statistics.median(run[key] for run in runs) * factor:,.3g}" for runs in found.values())
        lines.append(f"| {what} | {unit} | {' | '.join(cells)} |")
    return "\n".join(lines)


def plot(found: dict[int, list[dict[str, float]]]) -> str:
    """Markdown: bars of milliseconds per set, all on one scale."""
    words = {key: what for key, what, _, _ in ROWS}
    values = {
        (key, sets): statistics.median(run[key] for run in runs) for key in PLOTTED for sets, runs in found.items()
    }
    per_ms = BAR_CHARACTERS / max(values.values())
    lines = ["| milliseconds | sets | |", "| --- | ---: | --- |"]
    lines += [
        f"| {words[key]} | {sets:,} | {'█' * max(1, round(value * per_ms))} {value:.2f} |"
        for (key, sets), value in values.items()
    ]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """See the module; 1: a group could not be finished."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default="100,1000,3000", help="sizes of the groups")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--heartbeat-s", type=float, default=HEARTBEAT_S, help="between two of a replica")
    chosen = parser.parse_args(arguments)
    sizes = [int(size) for size in chosen.sets.split(",")]
    directory = Path(tempfile.mkdtemp(prefix="sets-curve-"))
    sys.stderr.write(f"{describe(directory).text()}\n")
    found: dict[int, list[dict[str, float]]] = {size: [] for size in sizes}
    for number in range(chosen.runs):
        for size in sizes:
            sys.stderr.write(f"run {number + 1} of {chosen.runs}, {size} sets\n")
            found[size].append(measure(Context(directory=directory, is_quick=False), size, chosen.heartbeat_s))
    shutil.rmtree(directory)
    print(f"{table(found)}\n\n{plot(found)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
