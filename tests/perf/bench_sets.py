"""
A thousand sets of two: their registration, their heartbeats, and all their masters lost at once.

Three controllers as processes; two more processes play the 2,000 replicas (``replicas``), masters in the one, slaves in
the other. kill -9 of the masters' process closes 2,000 connections at once and makes 1,000 addresses refuse.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Self

from rollcall_ha.deploy.local.endpoints import Endpoint
from rollcall_ha.deploy.local.fleet import Fleet, Layout
from rollcall_ha.deploy.local.processes import wait_until
from tests.perf.machine import cpu_s
from tests.perf.replicas import HEARTBEAT_S, Crowd, CrowdProcess
from tests.perf.results import Measure, percentile
from tests.perf.section import Context, Section
from tests.support.fleet_story import rollcall

SETS = 1_000
DEADLINE_S = 60.0
"""For ``SETS``; so much longer for more."""
ASK_INTERVAL_S = 0.02
QUIET_S = 2.0


class Asker:
    """A thread that reads one set from the leader again and again, linearizable, and takes the time."""

    def __init__(self, endpoint: Endpoint, path: str) -> None:
        self.took_ms: list[float] = []
        self.failures: list[str] = []
        self._endpoint, self._path = endpoint, path
        self._is_over = False
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        self._thread.join()

    def _ask(self) -> None:
        connection = self._endpoint.connection(timeout_s=30)
        while not self._is_over:
            began = time.perf_counter()
            try:
                connection.request("GET", self._path)
                answer = connection.getresponse()
                answer.read()
                if answer.status != http.HTTPStatus.OK:
                    self.failures.append(str(answer.status))
            except (OSError, http.client.HTTPException) as error:
                self.failures.append(repr(error))
                connection.close()
            self.took_ms.append((time.perf_counter() - began) * 1000)
            time.sleep(ASK_INTERVAL_S)
        connection.close()


def cpu_share(pid: int, seconds: float) -> float:
    """Percent of a core that a process uses over some seconds."""
    before, began = cpu_s([pid]), time.monotonic()
    time.sleep(seconds)
    return (cpu_s([pid]) - before) / (time.monotonic() - began) * 100


def deadline_s(sets: int) -> float:
    """For everything that ``sets`` do at once."""
    return DEADLINE_S * max(1.0, sets / SETS)


def register(context: Context, slaves: CrowdProcess, masters: CrowdProcess, count: int) -> dict[str, float]:
    """
    One half at once, then the other, until each set has a master that has entered, by the word of both replicas.

    In halves, so that the first ones are ready and become masters: the process of all masters is to die later.
    """
    began = time.monotonic()

    def registered(crowd: CrowdProcess) -> bool:
        told = crowd.told()
        if told.broken:
            raise RuntimeError(f"{told.broken} sessions broke while registering, the first one: {told.reason}")
        return told.registered == count

    def serve() -> bool:
        return slaves.told().entered == count and masters.told().entered == count

    for crowd in (masters, slaves):
        crowd.tell("join")
        wait_until(partial(registered, crowd), deadline_s=deadline_s(count), what=f"{count} to be registered")
    registered_s = time.monotonic() - began
    wait_until(serve, deadline_s=deadline_s(count), what=f"{count} sets to serve")
    context.say(f"{count} sets registered after {registered_s:.1f} s, serving after {time.monotonic() - began:.1f} s")
    moves = slaves.told().moves + masters.told().moves
    return {"registered_s": registered_s, "serving_s": time.monotonic() - began, "moves": float(moves)}


def lose_masters(
    context: Context, fleet: Fleet, slaves: CrowdProcess, masters: CrowdProcess, count: int
) -> dict[str, float]:
    """kill -9 of the process of all masters; until every slave heard that it is master."""
    leader = fleet.leader()
    before = slaves.told().masters
    doomed = masters.told().masters
    path = f"/v1/sets/{fleet.file.fleet.name}/s0000"
    with Asker(fleet.rest(leader), path) as asker:
        wait_until(lambda: len(asker.took_ms) > 10, deadline_s=10, what="the controller to answer")
        killed_ns = time.monotonic_ns()
        masters.process.kill()

        def all_elected() -> bool:
            return slaves.told().masters == before + doomed

        wait_until(all_elected, deadline_s=deadline_s(count), what=f"{doomed} slaves to be elected")
        wait_until(lambda: slaves.told().entered == count, deadline_s=deadline_s(count), what="all to have entered")
    waits = sorted((at - killed_ns) / 1e6 for at in slaves.told().elected_at_ns if at > killed_ns)
    context.detail["elected_after_ms"] = waits
    context.detail["rest_ms"] = asker.took_ms
    context.say(f"{len(waits)} sets elected after {waits[-1]:.0f} ms, REST at most {max(asker.took_ms):.0f} ms")
    if asker.failures:
        context.say(f"REST failed {len(asker.failures)} times, first {asker.failures[0]}")
    return {
        "elected_p50_ms": percentile(waits, 0.5),
        "elected_p99_ms": percentile(waits, 0.99),
        "elected_all_ms": waits[-1],
        "lost_masters": float(len(waits)),
        "rest_p99_ms": percentile(asker.took_ms, 0.99),
        "rest_max_ms": max(asker.took_ms),
        "rest_failures": float(len(asker.failures)),
    }


@contextmanager
def crowds(
    context: Context, *, is_insecure: bool, sets: int = SETS, heartbeat_s: float = HEARTBEAT_S
) -> Iterator[tuple[Fleet, CrowdProcess, CrowdProcess]]:
    """
    Controllers, and the processes of those replicas that are to be slaves and masters; nobody has registered.

    A longer ``heartbeat_s`` than a second needs the patience of the preset ``safe``, and controllers that know of it: no
    replica that is overdue is elected.
    """
    timing = "normal" if heartbeat_s <= HEARTBEAT_S else "safe"
    names = tuple(f"s{number:04d}" for number in range(sets))
    with context.fleet(Layout(name="perf", is_insecure=is_insecure, timing=timing), is_up=False) as fleet:
        fleet.up_controllers()
        if heartbeat_s > HEARTBEAT_S:
            rollcall(
                fleet, "config", "apply", f"heartbeat_interval_ms={heartbeat_s * 1000:.0f}", "--yes"
            ).check_returncode()
        cluster, port = fleet.file.fleet.name, fleet.file.controllers[fleet.leader()].broker
        authority = None if is_insecure else fleet.directory / "authority"
        slaves, masters = (
            CrowdProcess(
                Crowd(
                    cluster=cluster,
                    names=names,
                    priority=priority,
                    controller=port,
                    authority=authority,
                    heartbeat_s=heartbeat_s,
                )
            )
            for priority in (100, 1)
        )
        with slaves, masters:
            yield fleet, slaves, masters


def beat(context: Context, pid: int, slaves: CrowdProcess, masters: CrowdProcess) -> dict[str, float]:
    """The leader's CPU while all replicas send their heartbeats."""
    time.sleep(QUIET_S)
    beats, began = slaves.told().beats + masters.told().beats, time.monotonic()
    share = cpu_share(pid, 3.0 if context.is_quick else 8.0)
    rate = (slaves.told().beats + masters.told().beats - beats) / (time.monotonic() - began)
    context.say(f"{rate:.0f} heartbeats/s: leader {share:.1f} % of a core")
    return {"beat_cpu": share, "beats": rate}


def run_sets(context: Context) -> dict[str, float]:
    """One life of a thousand sets."""
    with crowds(context, is_insecure=False) as (fleet, slaves, masters):
        leader = fleet.leader()
        pid = fleet.pid(leader)
        assert pid is not None
        time.sleep(QUIET_S)
        values = {"idle_cpu": cpu_share(pid, 3.0 if context.is_quick else 8.0)}
        values |= register(context, slaves, masters, SETS)
        values |= beat(context, pid, slaves, masters)
        values |= lose_masters(context, fleet, slaves, masters, SETS)
        if fleet.leader() != leader:
            raise RuntimeError(f"{leader} lost the lead meanwhile")
    return values


SETS_SECTION = Section(
    name="sets",
    title="a thousand sets of two",
    measures=(
        Measure(key="registered_s", what="1,000 sets of two registered", unit="s", aim=4, reference="18.5"),
        Measure(key="serving_s", what="  and each with a master that entered", unit="s"),
        Measure(key="moves", what="  sessions that had to find another leader", unit=""),
        Measure(key="idle_cpu", what="leader's CPU, idle", unit="%", aim=2, reference="9"),
        Measure(key="beat_cpu", what="leader's CPU at 2,000 heartbeats/s", unit="%", aim=10, reference="30"),
        Measure(key="beats", what="  heartbeats that were answered", unit="/s"),
        Measure(
            key="elected_all_ms", what="all masters lost: all elected after", unit="ms", aim=1_000, reference="6,100"
        ),
        Measure(key="elected_p50_ms", what="  p50", unit="ms", reference="3,100"),
        Measure(key="elected_p99_ms", what="  p99", unit="ms"),
        Measure(key="lost_masters", what="  masters lost and replaced", unit=""),
        Measure(key="rest_max_ms", what="  longest answer of REST meanwhile", unit="ms", aim=100, reference="> 10,000"),
        Measure(key="rest_p99_ms", what="  p99", unit="ms"),
        Measure(key="rest_failures", what="  answers that were not 200", unit=""),
    ),
    run=run_sets,
)
