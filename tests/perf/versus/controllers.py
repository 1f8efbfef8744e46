"""
Controllers beside controllers: many sets at once, a killed leader, what an idle one costs.

The brokers are simulated (``crowd``), the same processes for both sides, one connection each to the leading controller.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable
from functools import partial
from types import TracebackType
from typing import Self

import msgspec

from rollcall_ha.controller.contract.codes import RequestCode
from rollcall_ha.deploy.local.processes import wait_until
from rollcall_ha.node.remoting.asking import BlockingLink
from tests.interop_java import asking
from tests.interop_java.fleet import CLUSTER
from tests.interop_java.sides import Side, sides
from tests.perf.bench_sets import cpu_share
from tests.perf.machine import resident_mib
from tests.perf.results import Measure, percentile
from tests.perf.section import Context, Section
from tests.perf.versus.crowd import Crowd, CrowdProcess

DEADLINE_S = 120.0
QUIET_S = 5.0
ASK_INTERVAL_S = 0.02
ASK_TIMEOUT_MS = 30_000
SIZES = (200, 1000)


class Asker:
    """A thread that asks the leader for one set again and again over RocketMQ's protocol, and takes the time."""

    def __init__(self, address: str, set_name: str) -> None:
        """Begins with the context."""
        self.took_ms: list[float] = []
        self.failures = 0
        self._address = address
        self._body = msgspec.json.encode([set_name])
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> Self:
        """Ask."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Ask no more; the last answer is awaited."""
        self._is_over.set()
        self._thread.join()

    def _ask(self) -> None:
        link: BlockingLink | None = None
        while not self._is_over.wait(ASK_INTERVAL_S):
            began = time.perf_counter()
            try:
                link = link or BlockingLink(self._address, timeout_ms=ASK_TIMEOUT_MS)
                if link.ask(RequestCode.GET_SYNC_STATE_DATA, body=self._body).code != 0:
                    self.failures += 1
            except OSError:
                self.failures += 1
                link = None
            self.took_ms.append((time.perf_counter() - began) * 1000)


def _wait(crowd: CrowdProcess, what: str, count: Callable[[], int], goal: int) -> None:
    def reached() -> bool:
        told = crowd.told()
        if told.refused:
            raise RuntimeError(f"{told.refused} replicas were refused, the first one: {told.reason}")
        return count() >= goal

    wait_until(reached, deadline_s=DEADLINE_S, what=what)


def _register(masters: CrowdProcess, slaves: CrowdProcess, count: int) -> tuple[float, float]:
    """(seconds until all are registered and each set has a master, until each SyncStateSet has two members)."""
    began = time.monotonic()
    masters.tell("join")
    _wait(masters, f"{count} masters", lambda: masters.told().masters, count)
    slaves.tell("join")
    _wait(slaves, f"{count} slaves", lambda: slaves.told().registered, count)
    registered_s = time.monotonic() - began
    masters.tell("grow")
    _wait(masters, f"{count} sets of two", lambda: masters.told().grown, count)
    return registered_s, time.monotonic() - began


def _lose_masters(masters: CrowdProcess, slaves: CrowdProcess, leader: str, count: int) -> tuple[list[float], Asker]:
    """kill -9 of all masters; how long it took until each slave was told, in ms."""
    with Asker(leader, "s0000") as asker:
        wait_until(lambda: len(asker.took_ms) > 10, deadline_s=DEADLINE_S, what="the controller to answer")
        killed_ns = time.monotonic_ns()
        masters.process.kill()
        wait_until(lambda: slaves.told().masters >= count, deadline_s=DEADLINE_S, what=f"{count} slaves to be elected")
        answered = len(asker.took_ms)
        wait_until(
            lambda: len(asker.took_ms) > answered + 10, deadline_s=DEADLINE_S, what="the controller to answer again"
        )
    return sorted((at - killed_ns) / 1e6 for at in slaves.told().pushed_at_ns), asker


def _sets(context: Context, side: Side, count: int) -> dict[str, float]:
    names = tuple(f"s{number:04}" for number in range(count))
    leader = side.leader()
    address, pid = side.names()[leader], side.pid(leader)
    values: dict[str, float] = {}
    crowd = partial(Crowd, cluster=CLUSTER, names=names, controller=address)
    with CrowdProcess(crowd(number=1)) as masters, CrowdProcess(crowd(number=2)) as slaves:
        values["registered_s"], values["grown_s"] = _register(masters, slaves, count)
        context.say(f"{count} sets registered after {values['registered_s']:.1f} s")
        beats, began = slaves.told().beats + masters.told().beats, time.monotonic()
        values["beating_cpu"] = cpu_share(pid, QUIET_S)
        values["beats"] = (slaves.told().beats + masters.told().beats - beats) / (time.monotonic() - began)
        values["resident_mib"] = resident_mib(pid)[0]
        waits, asker = _lose_masters(masters, slaves, address, count)
    context.detail["elected_after_ms"] = waits
    values["elected_all_ms"], values["elected_p50_ms"] = waits[-1], percentile(waits, 0.5)
    values["answer_max_ms"] = max(asker.took_ms)
    context.say(f"{count} masters lost: p50 {values['elected_p50_ms']:.0f} ms, all after {waits[-1]:.0f} ms")
    return values


def run_sets(count: int, context: Context) -> dict[str, float]:
    """Controllers that have nothing to do, and then ``count`` sets."""
    with sides(context.directory, context.rocketmq, context.side, jvm=()) as (side, _):
        idle = cpu_share(side.pid(side.leader()), QUIET_S)
        return {"idle_cpu": idle} | _sets(context, side, count)


def run_leader(context: Context) -> dict[str, float]:
    """kill -9 of the leading controller until another one says that it leads and answers for a set."""
    took: list[float] = []
    with sides(context.directory, context.rocketmq, context.side, jvm=()) as (side, _):
        leader = side.leader()
        crowd = Crowd(cluster=CLUSTER, names=("s0000",), controller=side.names()[leader], number=1)
        with CrowdProcess(crowd) as one:
            one.tell("join")
            _wait(one, "a set", lambda: one.told().masters, 1)
        for _ in range(2 if context.is_quick else 3):
            leader = side.leader()
            began = time.monotonic()
            side.kill(leader)
            wait_until(partial(_answers, side, leader), deadline_s=DEADLINE_S, what="the next controller to answer")
            took.append((time.monotonic() - began) * 1000)
            context.say(f"next controller after {took[-1]:.0f} ms")
            side.restart(leader)
            wait_until(partial(_all_answer, side), deadline_s=DEADLINE_S, what="all controllers to answer")
    context.detail["next_ms"] = took
    return {"next_ms": statistics.median(took), "next_max_ms": max(took)}


def _answers(side: Side, dead: str) -> bool:
    others = [address for name, address in side.names().items() if name != dead]
    return any(asking.is_leader(address) and asking.sets_at(address, ["s0000"]) for address in others)


def _all_answer(side: Side) -> bool:
    return all(asking.leader_of(address) for address in side.names().values())


def _section(count: int) -> Section:
    is_large = count == max(SIZES)
    return Section(
        name=f"sets-{count}",
        title=f"{count:,} sets of two, simulated brokers",
        measures=(
            Measure(key="elected_all_ms", what="all masters lost: all elected after", unit="ms",
                aim=1_000 if is_large else None),
            Measure(key="elected_p50_ms", what="  p50", unit="ms"),
            Measure(key="answer_max_ms", what="  longest answer of the controller meanwhile", unit="ms",
                aim=100 if is_large else None),
            Measure(key="registered_s", what="all registered, each set with a master", unit="s",
                aim=4 if is_large else None),
            Measure(key="grown_s", what="  and with both in the SyncStateSet", unit="s"),
            Measure(key="beating_cpu", what=f"leader's CPU at {2 * count:,} heartbeats/s", unit="%",
                aim=10 if is_large else None),
            Measure(key="beats", what="  heartbeats sent", unit="/s", is_floor=True),
            Measure(key="resident_mib", what="  leader's resident memory", unit="MiB", aim=120 if is_large else None),
            Measure(key="idle_cpu", what="leader's CPU before, idle", unit="%", aim=2),
        ),
        run=partial(run_sets, count),
    )  # fmt: skip


SETS = tuple(_section(count) for count in SIZES)
LEADER = Section(
    name="leader",
    title="kill -9 of the leading controller",
    measures=(
        Measure(key="next_ms", what="next one leads and answers, p50", unit="ms", aim=1_000),
        Measure(key="next_max_ms", what="  longest", unit="ms"),
    ),
    run=run_leader,
)
