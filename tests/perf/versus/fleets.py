"""
Fleets beside fleets: failovers of Java brokers before either controllers, and puts and catch-up of either brokers.

Failovers: the same three Java brokers and the same Java producer, which asks for routes each second; only controllers
and name service differ. Puts and catch-up: RocketMQ's brokers before RocketMQ's controllers, ours before ours; the same
client, the same sizes, every replica has a message before its acknowledgement.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rollcall_ha.controller.contract.ids import BrokerName, ClusterName, MasterEpoch, SetKey
from rollcall_ha.controller.contract.values import Phase
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import wait_until
from tests.interop_java import asking
from tests.interop_java.admin import BROKERS, create_topic
from tests.interop_java.fleet import CLUSTER, SEGMENT_BYTES, SET, JavaFleet
from tests.interop_java.sides import JavaSide, RollcallSide, Side, sides
from tests.interop_java.story import KILL, STOP, Plan, Story
from tests.perf import bench_catch_up, bench_put
from tests.perf.bench_failover import ELECTED, spans_ms
from tests.perf.bench_put import KIB, SHAPES
from tests.perf.results import Measure
from tests.perf.section import Context, Section

MIB = KIB * KIB
ROUTE_POLL_MS = 1000
DEADLINE_S = 150.0
FILL_MIB = 384
STUCK_S = 90.0
"""RocketMQ's controllers may leave a slave with its old master for ever: then it is started again, and counted."""


def run_failover(context: Context) -> dict[str, float]:
    """kill -9 and SIGSTOP of Java masters."""
    kills = 1 if context.is_quick else 2
    plan = Plan(kills=kills, stops=1, leaders=0, restarts=0, route_poll_ms=ROUTE_POLL_MS, stuck_s=STUCK_S)
    with sides(context.directory, context.rocketmq, context.side, jvm=()) as (side, java):
        story = Story(side, java, plan, context.say)
        audit = story.run()
        recorded = _recorded(side, story, context)
    if audit.lost or not audit.acked:
        raise RuntimeError(f"{audit.lost} of {audit.acked} acknowledged messages were lost")
    values: dict[str, float] = {}
    for name, kind in (("kill", KILL), ("stop", STOP)):
        strikes = [strike for strike in story.strikes if strike.kind == kind]
        elected = [strike.elected_s or 0.0 for strike in strikes]
        gaps = [strike.gap_s for strike in strikes]
        context.detail |= {f"{name}_elected_s": elected, f"{name}_gap_s": gaps}
        values |= {
            f"{name}_elected_s": statistics.median(elected),
            f"{name}_gap_s": statistics.median(gaps),
            f"{name}_gap_max_s": max(gaps),
            f"{name}_whole_s": statistics.median(strike.in_sync_s for strike in strikes),
        }
    return values | recorded | {"started_again": sum(strike.started_again for strike in story.strikes)}


def _recorded(side: Side, story: Story, context: Context) -> dict[str, float]:
    """What our record says of the kills; RocketMQ keeps none."""
    if not isinstance(side, RollcallSide):
        return {}
    reigns = {
        row.master_epoch: row for row in side.fleet.client().history(SetKey(ClusterName(CLUSTER), BrokerName(SET))).rows
    }
    found: dict[str, list[float]] = {"record_elected_ms": [], "record_applied_ms": []}
    for strike in (strike for strike in story.strikes if strike.kind == KILL):
        spans = spans_ms(reigns[MasterEpoch(strike.epoch_before + 1)])
        found["record_elected_ms"].append(sum(spans.get(phase, 0.0) for phase in ELECTED))
        found["record_applied_ms"].append(sum(spans.get(phase, 0.0) for phase in (Phase.NOTIFIED, Phase.ROLE_APPLIED)))
    context.detail |= found
    return {key: statistics.median(samples) for key, samples in found.items()}


# --- puts ------------------------------------------------------------------------------------------------------------


@contextmanager
def java_brokers(context: Context) -> Iterator[tuple[Side, JavaFleet]]:
    with sides(context.directory, context.rocketmq, JavaSide.name, jvm=()) as (side, java):
        for name in BROKERS:
            java.start_broker(name, controllers=side.controllers, namesrv=side.namesrv)
            java.wait_serving(name)
        java.wait_in_sync(side.controllers, len(BROKERS))
        java.wait_route(side.namesrv, members=len(BROKERS))
        create_topic(java, side.namesrv, bench_put.TOPIC)
        yield side, java


@contextmanager
def our_brokers(context: Context) -> Iterator[Fleet]:
    with Fleet.create(context.directory / "fleet", Layout(name="versus", rocketmq=("127.0.0.1",))) as fleet:
        fleet.up()
        yield fleet


def _shapes(context: Context, address: str, pids: list[int], directory: Path | None = None) -> dict[str, float]:
    """``directory``: of a fleet of ours, whose ports take no plain link."""
    values: dict[str, float] = {}
    for name, in_flight, body_bytes in SHAPES:
        seconds = 2.0 if context.is_quick else 4.0
        told, cpu = bench_put.put_at(address, pids, in_flight, body_bytes, seconds, directory=directory)
        rate = told.acked / told.seconds
        values |= {f"rate_{name}": rate, f"p50_{name}": told.p50_ms, f"p99_{name}": told.p99_ms}
        values |= {f"mib_{name}": rate * body_bytes / MIB, f"cpu_{name}": cpu * 1e6}
        context.say(f"{in_flight} x {body_bytes} bytes: {rate:,.0f}/s, p50 {told.p50_ms:.2f} ms")
    return values


def run_put(context: Context) -> dict[str, float]:
    """Every shape, one after the other."""
    if context.side == JavaSide.name:
        with java_brokers(context) as (side, java):
            seen = java.wait_in_sync(side.controllers, len(BROKERS))
            pids = [pid for name in BROKERS if (pid := java.processes.pid(name)) is not None]
            bench_put.put_at(seen.master_address or "", pids, 16, KIB, 5.0)
            return _shapes(context, seen.master_address or "", pids)
    with our_brokers(context) as fleet:
        master = fleet.file.broker(fleet.master(fleet.set_keys()[0])).listen
        pids = [pid for name in fleet.brokers if (pid := fleet.pid(name)) is not None]
        return _shapes(context, master, pids, fleet.directory)


# --- catch-up --------------------------------------------------------------------------------------------------------


def run_catch_up(context: Context) -> dict[str, float]:
    """A slave whose directory was removed, from its start until it is in the SyncStateSet again."""
    if context.side != JavaSide.name:
        with our_brokers(context) as fleet:
            files = bench_catch_up.fill(fleet, FILL_MIB)
            limit = bench_catch_up.raw_mib_per_s(files, context.directory / "raw")
            began = time.monotonic()
            mib, seconds = bench_catch_up.catch_up(fleet)
            return _of_limit(mib / seconds, limit) | {"back_s": time.monotonic() - began}
    with java_brokers(context) as (side, java):
        seen = java.wait_in_sync(side.controllers, len(BROKERS))
        master = java.name_of(seen.master_address or "")
        pids = [pid for name in BROKERS if (pid := java.processes.pid(name)) is not None]
        while _log_mib(java, master) < FILL_MIB:
            bench_put.put_at(seen.master_address or "", pids, 8, 256 * KIB, 4.0)
        slave = next(name for name in BROKERS if name != master)
        mib = _log_mib(java, master)
        files = sorted((java.data(master) / "store" / "commitlog").iterdir())[: FILL_MIB * MIB // SEGMENT_BYTES]
        limit = bench_catch_up.raw_mib_per_s(files, context.directory / "raw")
        found = _java_catch_up(side, java, slave, mib)
        return found | _of_limit(found["catch_up"], limit)


def _of_limit(mib_per_s: float, limit: float) -> dict[str, float]:
    """The limit: the master's files by sendfile over loopback into a mapped file, in the same run."""
    return {"catch_up": mib_per_s, "limit": limit, "share": mib_per_s / limit * 100}


def _java_catch_up(side: Side, java: JavaFleet, slave: str, mib: float) -> dict[str, float]:
    """The same id with an empty log: its identity stays, what it had is gone."""
    java.kill(slave)
    wait_until(
        lambda: (seen := asking.set_of(side.controllers, SET)) is not None and len(seen.in_sync) == 2,
        deadline_s=DEADLINE_S,
        what="the slave to have left the SyncStateSet",
    )
    store = java.data(slave) / "store"
    for path in store.iterdir():
        if path.name != "brokerIdentity":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    began = time.monotonic()
    java.restart(slave)
    wait_until(lambda: _log_mib(java, slave) >= 1, deadline_s=DEADLINE_S, what="the first bytes at the slave")
    first = time.monotonic()
    wait_until(lambda: _log_mib(java, slave) >= mib * 0.95, deadline_s=DEADLINE_S, what="the slave to have the log")
    copied_s = time.monotonic() - first
    java.wait_in_sync(side.controllers, len(BROKERS), deadline_s=DEADLINE_S)
    return {"catch_up": mib * 0.95 / copied_s, "back_s": time.monotonic() - began}


def _log_mib(java: JavaFleet, name: str) -> float:
    """How far a broker's log reaches, by what it says of itself (1007)."""
    return asking.log_end_of(java.address(name)) / MIB


FAILOVER = Section(
    name="failover",
    title="failover of a fleet of Java brokers, as a Java client sees it",
    measures=(
        Measure(key="kill_elected_s", what="kill -9 of the master: next one elected after", unit="s", aim=0.03),
        Measure(key="record_elected_ms", what="  of which from the first sign to the commit, by the record", unit="ms"),
        Measure(key="record_applied_ms", what="  and until the Java broker has applied its role", unit="ms"),
        Measure(key="kill_gap_s", what="  gap between two acks, median", unit="s", aim=0.05),
        Measure(key="kill_gap_max_s", what="  longest", unit="s", aim=0.2),
        Measure(key="kill_whole_s", what="  whole again after the restart", unit="s"),
        Measure(key="stop_elected_s", what="SIGSTOP of the master: next one elected after", unit="s", aim=4),
        Measure(key="stop_gap_s", what="  gap between two acks, median", unit="s", aim=4),
        Measure(key="stop_whole_s", what="  whole again after it went on", unit="s"),
        Measure(key="started_again", what="brokers that had to be started again to come back", unit=""),
    ),
    run=run_failover,
)
PUT = Section(
    name="put",
    title="puts that all three replicas must have",
    measures=(
        Measure(key="rate_1", what="1 KiB, 1 in flight", unit="/s", is_floor=True),
        Measure(key="p50_1", what="  p50", unit="ms", aim=1),
        Measure(key="rate_16", what="1 KiB, 16 in flight", unit="/s", is_floor=True),
        Measure(key="p50_16", what="  p50", unit="ms"),
        Measure(key="rate_64", what="1 KiB, 64 in flight", unit="/s", aim=20_000, is_floor=True),
        Measure(key="p50_64", what="  p50", unit="ms"),
        Measure(key="cpu_64", what="  CPU of the three brokers per message", unit="us"),
        Measure(key="mib_big", what="256 KiB, 8 in flight", unit="MiB/s", aim=100, is_floor=True),
        Measure(key="p50_big", what="  p50", unit="ms"),
    ),
    run=run_put,
)
CATCH_UP = Section(
    name="catch-up",
    title="catch-up of a wiped slave",
    measures=(
        Measure(key="catch_up", what="copying the log", unit="MiB/s", is_floor=True),
        Measure(key="limit", what="  sendfile to a map, the same files", unit="MiB/s", is_floor=True),
        Measure(key="share", what="  share of that", unit="%", aim=70, is_floor=True),
        Measure(key="back_s", what="  in the SyncStateSet again after its restart", unit="s"),
    ),
    run=run_catch_up,
)
