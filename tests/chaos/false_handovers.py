"""
A fleet under a CPU load of twice the cores, with every policy on by which a living master is left: nobody may be left.

    python3 -m tests.chaos.false_handovers --minutes 30

Here: the load, the looks, the counts. Not here: faults for which a master has to be left (``tests.chaos.net.policies``).
The policies wait as short as the settings allow, and are damped for as short: what they would do wrong they do here. Log
syncs are waited for (``flush`` is sync), because a disk is what a policy asks about. A master that a busy machine keeps from
being heard is a failover, and counted apart. Exit code 1: a hand-over, or a message lost.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rollcall_ha.client.errors import ClientError
from rollcall_ha.controller.contract.ids import SetKey
from rollcall_ha.controller.contract.orders import ChangeSettings
from rollcall_ha.controller.contract.verdicts import ElectionKind
from rollcall_ha.controller.contract.views import HistoryPage
from rollcall_ha.deploy.local import producer
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import wait_until
from tests.support.fleet_story import heal, judge, load, only_set, running, timing_of

LOAD_FACTOR = 2
IN_FLIGHT = 8
PAUSE_MS = 80.0
"""After each answer: at most 100 sends a second, so that half an hour of them can be audited in minutes."""
AUDIT_DEADLINE_S = 600.0
LOOK_S = 10.0
DAMPING_MS_MIN = 1_000
HISTORY_DEADLINE_S = 60.0
_BUSY = "while True: pass"


def switch_on(fleet: Fleet, **values: int) -> None:
    """Settings of a fleet that has a leader; returns when they are applied."""
    version = fleet.client().settings().version
    fleet.client().order(ChangeSettings(values=values, expected_version=version, reason="policies on"))


def tightest(fleet: Fleet) -> dict[str, int]:
    """The shortest times that the settings of this fleet allow."""
    timing = timing_of(fleet)
    return {
        "handover_disk_full_after_ms": timing.stall_ms,
        "handover_writes_stopped_after_ms": timing.catch_up_timeout_ms,
        "handover_pause_ms": DAMPING_MS_MIN,
    }


@contextmanager
def busy(fleet: Fleet, processes: int) -> Iterator[None]:
    """So many processes that do nothing but compute; they end with the block, and with the fleet."""
    names = [f"busy-{number}" for number in range(1, processes + 1)]
    for name in names:
        fleet.processes.start(name, [sys.executable, "-I", "-c", _BUSY])
    try:
        yield
    finally:
        for name in names:
            fleet.processes.terminate(name, deadline_s=15)


def history(fleet: Fleet, key: SetKey) -> HistoryPage:
    """All that is on record of the set. Raises ``DeadlineError``: no controller tells it."""
    pages: list[HistoryPage] = []

    def is_told() -> bool:
        try:
            pages[:] = [fleet.client().history(key)]
        except ClientError:
            return False
        return True

    wait_until(is_told, deadline_s=HISTORY_DEADLINE_S, what="the history")
    return pages[0]


def counts(page: HistoryPage) -> dict[str, int]:
    """Elections behind the first one by what made them, and stops of writes that no election ended."""
    kinds = [row.kind for row in page.rows if row.kind not in (ElectionKind.FIRST, ElectionKind.BOOTSTRAP)]
    return {
        "handovers": kinds.count(ElectionKind.HANDOVER),
        "failovers": kinds.count(ElectionKind.FAILOVER),
        "stops_of_writes": len(page.stops),
    }


def run(directory: Path, minutes: float) -> int:
    """Exit code 0 if nobody was left, and nothing was lost."""
    cores = len(os.sched_getaffinity(0))
    layout = Layout(flush="sync", min_in_sync=2, segment_bytes=4 << 20)
    with running(directory, layout) as fleet:
        key = only_set(fleet)
        policies = tightest(fleet)
        switch_on(fleet, **policies)
        print(
            f"{cores} cores, {LOAD_FACTOR * cores} processes that compute, {minutes:g} minutes, {policies}", flush=True
        )
        with load(fleet, in_flight=IN_FLIGHT, pause_ms=PAUSE_MS) as work:
            began_ns = time.monotonic_ns()
            ends = time.monotonic() + minutes * 60
            load_averages = []
            with busy(fleet, LOAD_FACTOR * cores):
                while (left_s := ends - time.monotonic()) > 0:
                    time.sleep(min(LOOK_S, left_s))  # the length of the load is what is tried
                    load_averages.append(os.getloadavg()[0])
                    told = counts(history(fleet, key))
                    print(
                        f"{(time.monotonic_ns() - began_ns) / 6e10:5.1f} min: acked {work.acked():,}, load "
                        f"{load_averages[-1]:.1f}, {told}",
                        flush=True,
                    )
            longest_ms = work.longest_gap_ms(began_ns)
            sent = producer.read_counts(fleet.books)
        heal(fleet)
        page = history(fleet, key)
        for row in page.rows:
            print(f"masterEpoch {row.master_epoch}: {row.kind}, {row.cause}")
        for stop in page.stops:
            print(f"masterEpoch {stop.master_epoch}: no writes for {stop.stopped_us} us, {stop.reason}: {stop.detail}")
        print(f"acked {sent.acked:,}, longest gap {longest_ms:,.0f} ms; auditing", flush=True)
        audit = judge(fleet, audit_deadline_s=AUDIT_DEADLINE_S)
    found = {
        "minutes": minutes, "cores": cores, "busy_processes": LOAD_FACTOR * cores,
        "load_average": {"mean": round(sum(load_averages) / len(load_averages), 1), "max": round(max(load_averages), 1)},
        **counts(page),
        "acked": audit["acked"], "lost": audit["lost"], "duplicated": audit["duplicated"],
        "failed_sends": sent.unknown + sent.not_appended, "longest_gap_ms": round(longest_ms, 1), "settings": policies,
    }  # fmt: skip
    print(f"RESULT {json.dumps(found)}", flush=True)
    return int(bool(found["handovers"] or found["lost"]))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.false_handovers")
    parser.add_argument("--minutes", type=float, default=30.0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="rollcall-busy-") as directory:
        return run(Path(directory) / "fleet", options.minutes)


if __name__ == "__main__":
    sys.exit(main())
