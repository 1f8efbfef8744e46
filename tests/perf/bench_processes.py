"""
What a process costs: start of a broker until it is ready, memory of controllers and brokers, CPU of an idle fleet.

Memory is read after traffic, so that buffers and tables have the size that they keep. Pages of files (libraries, mapped
logs) are page cache and are shown apart.
"""

from __future__ import annotations

import statistics
import time

from rollcall_ha.deploy.local.fleet import Fleet, Layout
from tests.perf.bench_put import KIB, put
from tests.perf.machine import cpu_s, resident_mib
from tests.perf.results import Measure
from tests.perf.section import Context, Section

IDLE_S = 5.0


def pids(fleet: Fleet, names: tuple[str, ...]) -> list[int]:
    """Of the ones that run, which must be all."""
    found = [pid for name in names if (pid := fleet.pid(name)) is not None]
    assert len(found) == len(names), "all of them run"
    return found


def run_processes(context: Context) -> dict[str, float]:
    """Start brokers one by one, load them, look."""
    started_ms: list[float] = []
    with context.fleet(Layout(name="perf"), is_up=False) as fleet:
        fleet.up_controllers()
        for name in fleet.brokers:
            began = time.monotonic()
            fleet.start(name)
            fleet.wait_live([name])
            started_ms.append((time.monotonic() - began) * 1000)
        fleet.wait_ready(fleet.brokers)
        fleet.wait_redundant(fleet.set_keys()[0])
        slave = next(name for name in fleet.brokers if name != fleet.master(fleet.set_keys()[0]))
        fleet.terminate(slave)
        began = time.monotonic()
        fleet.restart(slave)
        fleet.wait_ready([slave])
        ready_ms = (time.monotonic() - began) * 1000
        fleet.wait_redundant(fleet.set_keys()[0])
        put(fleet, 64, KIB, 2.0)
        controllers, brokers = pids(fleet, fleet.controllers), pids(fleet, fleet.brokers)
        before, began = cpu_s(controllers + brokers), time.monotonic()
        time.sleep(IDLE_S)
        idle = (cpu_s(controllers + brokers) - before) / (time.monotonic() - began) * 100
        context.detail["broker_resident_mib"] = [resident_mib(pid)[0] for pid in brokers]
        context.detail["controller_resident_mib"] = [resident_mib(pid)[0] for pid in controllers]
        return {
            "live_ms": statistics.median(started_ms),
            "ready_ms": ready_ms,
            "controller_mib": max(resident_mib(pid)[0] for pid in controllers),
            "broker_mib": max(resident_mib(pid)[1] for pid in brokers),
            "broker_all_mib": max(resident_mib(pid)[0] for pid in brokers),
            "idle_cpu": idle,
        }


PROCESSES = Section(
    name="processes",
    title="start and memory",
    measures=(
        Measure(
            key="ready_ms", what="start of a broker until it is ready", unit="ms", aim=1_000, reference="7,000-9,000"
        ),
        Measure(key="live_ms", what="  a new one, until it answers", unit="ms"),
        Measure(key="controller_mib", what="resident memory, controller", unit="MiB", aim=120, reference="200-315"),
        Measure(
            key="broker_mib", what="resident memory, broker, without files", unit="MiB", aim=200, reference="1,126"
        ),
        Measure(key="broker_all_mib", what="  with libraries and mapped log", unit="MiB"),
        Measure(key="idle_cpu", what="CPU of all six, idle", unit="%"),
    ),
    run=run_processes,
)
