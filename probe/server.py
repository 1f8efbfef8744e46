"""
The probe's process: a loop for each set, the journal, /metrics.

Here: the composition root, clocks. Not here: the stopwatch (``gaps``), a send (``sending``), arguments (``__main__``).

Rule 1: of each set one send at most is on its way, and one loop does it all: nothing is made per message.
Rule 2: it never ends because brokers or controllers are away; that is what it is here to tell.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec
from prometheus_client import Histogram, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import CollectorRegistry

from rollcall_ha.broker.client.routes import RouteWatcher, renewing
from rollcall_ha.broker.client.sets import FoundSet, find_sets, is_ours
from rollcall_ha.broker.protocol.topics import DEFAULT_TOPIC
from rollcall_ha.client.client import Client
from rollcall_ha.client.errors import ClientError
from rollcall_ha.client.identity import Identity
from rollcall_ha.controller.contract.ids import ReplicaKind
from rollcall_ha.node.remoting.secured import ExpectedPeer
from rollcall_ha.node.telemetry import get_logger
from rollcall_ha.probe.gaps import NS_PER_MS, Gap, Limits, Send, Stopwatch, end, take
from rollcall_ha.probe.journal import Journal
from rollcall_ha.probe.lines import GapLine, Line, WatchedLine, WatchedSet
from rollcall_ha.probe.sending import REMEDY, TOPIC, SetSender

SETS_MAX: Final = 64
LOOK_INTERVAL_MS: Final = 30_000
"""Between two looks for sets that have come."""
RETRY_INTERVAL_MS: Final = 500
"""The same, while there is none."""
WATCHED_INTERVAL_MS: Final = 3_600_000
BUCKETS_S: Final = (0.2, 0.3, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 60.0, 300.0)

_log = get_logger("probe")


class TooManySets(RuntimeError):
    """More than ``SETS_MAX``; nothing is watched."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The sets that a probe watches, and the limits by which it does."""

    limits: Limits
    ack_timeout_ms: int
    controllers: tuple[str, ...] = ()
    """REST ports, which tell brokers."""
    brokers: tuple[str, ...] = ()
    """Brokers of ours, or name servers, in place of that."""
    identity: Identity = Identity()
    expected: ExpectedPeer | None = None
    """The certificate that brokers must show, and ours; None: links without TLS."""


class Probe:
    """One life of a probe, on one event loop; ``journal`` None: gaps are kept in memory."""

    def __init__(self, plan: Plan, journal: Journal | None, registry: CollectorRegistry) -> None:
        """Nothing is dialled yet."""
        self.watches: dict[str, Stopwatch] = {}
        self.gaps: list[GapLine] = []
        """Kept without a journal alone, which a life of seconds is."""
        self.trouble = ""
        """Why a seed told no set when they were asked last; empty: each told one."""
        self._plan, self._journal = plan, journal
        self._told: dict[str, Stopwatch] = {}
        self._told_ns = time.monotonic_ns()
        self._writing = asyncio.Lock()
        self._felt = Histogram(
            "rollcall_probe_felt_gap_seconds", "Gaps.", ["set"], buckets=BUCKETS_S, registry=registry
        )
        registry.register(ProbeCollector(self))

    async def run(self, stop: asyncio.Event) -> None:
        """Until ``stop``. Raises ``TooManySets``, and ``OSError`` if the journal cannot be written."""
        works: set[asyncio.Task[None]] = {asyncio.create_task(self._tell_hourly(stop))}
        renewal = None
        if self._plan.expected is not None:
            renewal = asyncio.create_task(renewing(self._plan.expected.credentials))
        try:
            while not stop.is_set():
                sets = await self._found()
                if not self.watches and len(sets) > SETS_MAX:
                    raise TooManySets(
                        f"there are {len(sets)} sets, one probe watches {SETS_MAX} at most: give each probe some by"
                        " --brokers"
                    )
                for name, found in sorted(sets.items()):
                    if name in self.watches:
                        continue
                    if len(self.watches) >= SETS_MAX:
                        # Ended now, it would be blind for all others because one has come.
                        _log.error("set_not_watched", set=name, watched=len(self.watches), watched_max=SETS_MAX)
                        continue
                    routes = await routes_of(found, self._plan)
                    if routes is None:
                        _log.warning("set_not_watched_yet", set=name, addresses=found.addresses)
                        continue
                    self.watches[name] = self._told[name] = Stopwatch()
                    works.add(asyncio.create_task(self._watch(name, routes, stop), name=f"probe {name}"))
                    _log.info("set_watched", set=name)
                await _first(works, stop, LOOK_INTERVAL_MS if self.watches else RETRY_INTERVAL_MS)
            await asyncio.gather(*works)
            await self._tell_watched()
        finally:
            for work in (*works, *([renewal] if renewal is not None else [])):
                work.cancel()

    async def _found(self) -> dict[str, FoundSet]:
        seeds, troubles = (self._plan.brokers, []) if self._plan.brokers else await asyncio.to_thread(self._seeds)
        found, more, absent = await find_sets(seeds, [TOPIC, DEFAULT_TOPIC], self._plan.expected)
        # A set that would make the topic at a send has the route of the other one.
        remedy = [REMEDY] if more and {TOPIC, DEFAULT_TOPIC} <= absent else []
        # RocketMQ's name servers have the address of a page in a second line.
        trouble = "; ".join([one.partition("\n")[0] for one in (*troubles, *more)] + remedy)
        if trouble and trouble != self.trouble:
            # Beside sets that are found, too: of one that is not watched, silence would read as health.
            _log.warning("set_not_found" if found else "no_set_found", troubles=trouble)
        self.trouble = trouble
        return found

    def _seeds(self) -> tuple[tuple[str, ...], list[str]]:
        """One broker of each set, its master or else whoever lives; and why a set has none."""
        try:
            with Client(self._plan.controllers, identity=self._plan.identity) as client:
                sets = client.sets(consistency="local").sets
        except ClientError as error:
            return (), [str(error)]
        seeds: list[str] = []
        troubles: list[str] = []
        for status in sets:
            living = [one for one in status.replicas if one.is_alive]
            if any(one.kind == ReplicaKind.ROCKETMQ for one in status.replicas):
                # They tell no routes; which name servers know theirs, controllers are not told.
                troubles.append(f"{status.view.set_key} is RocketMQ's; --name-servers finds it")
            elif living:
                seeds.append(max(living, key=lambda one: one.is_master).address)
            else:
                troubles.append(f"{status.view.set_key} has no living broker")
        return tuple(seeds), troubles

    async def _watch(self, name: str, routes: RouteWatcher, stop: asyncio.Event) -> None:
        plan, limits = self._plan, self._plan.limits
        sender = SetSender(routes, plan.expected, timeout_ms=plan.ack_timeout_ms)
        await sender.start()
        try:
            due_ns = time.monotonic_ns()
            while not stop.is_set():
                begun_ns = time.monotonic_ns()
                failure = await sender.send()
                ended_ns = time.monotonic_ns()
                late_ns = begun_ns - due_ns + max(0, ended_ns - begun_ns - plan.ack_timeout_ms * NS_PER_MS)
                done = Send(begun_ns=begun_ns, ended_ns=ended_ns, late_ns=late_ns, failure=failure)
                self.watches[name], gap = take(self.watches[name], done, limits)
                if gap is not None:
                    await self._tell(name, routes, gap)
                if self.watches[name].acks == 1 and not failure:
                    _log.info("first_acknowledgement", set=name)
                # From now, not from the last time: after a stop of seconds the set would get all that were left out.
                due_ns = max(due_ns + limits.interval_ms * NS_PER_MS, time.monotonic_ns())
                await _pause(stop, (due_ns - time.monotonic_ns()) / 1e9)
        finally:
            await sender.close()
        self.watches[name], gap = end(self.watches[name], time.monotonic_ns(), limits)
        if gap is not None:
            await self._tell(name, routes, gap)

    # --- telling -----------------------------------------------------------------------------------------------------

    async def _tell(self, name: str, routes: RouteWatcher, gap: Gap) -> None:
        self._felt.labels(name).observe(gap.felt_ns / 1e9)
        # The clock of the wall is read once, now: read at the beginning too, a clock that is set would make a gap.
        from_ms = (time.time_ns() - (time.monotonic_ns() - gap.from_ns)) // NS_PER_MS
        line = GapLine(
            cluster="" if routes.route is None else routes.route.cluster,
            set_name=name,
            from_ms=from_ms,
            felt_ms=gap.felt_ns // NS_PER_MS,
            since_ack_ms=None if gap.last_ack_ns is None else (gap.from_ns - gap.last_ack_ns) // NS_PER_MS,
            sends_failed=gap.sends_failed,
            threshold_ms=self._plan.limits.threshold_ms,
            stalled_ms=gap.stalled_ns // NS_PER_MS,
            is_over=gap.is_over,
            reason=gap.reason,
        )
        _log.warning("gap_felt", set=name, felt_ms=line.felt_ms, sends_failed=line.sends_failed, reason=line.reason)
        await self._append(line)

    async def _tell_hourly(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await _pause(stop, WATCHED_INTERVAL_MS / 1000)
            if not stop.is_set():
                await self._tell_watched()

    async def _tell_watched(self) -> None:
        now_ns = time.monotonic_ns()
        watched_ms, self._told_ns = (now_ns - self._told_ns) // NS_PER_MS, now_ns
        before, self._told = self._told, dict(self.watches)
        sets = tuple(_since(name, before.get(name, Stopwatch()), watch) for name, watch in sorted(self._told.items()))
        interval_ms = self._plan.limits.interval_ms
        await self._append(
            WatchedLine(to_ms=time.time_ns() // NS_PER_MS, watched_ms=watched_ms, interval_ms=interval_ms, sets=sets)
        )

    async def _append(self, line: Line) -> None:
        if self._journal is not None:
            async with self._writing:
                # On a thread: a disk that is slow must not stop the stopwatches of other sets.
                await asyncio.to_thread(self._journal.append, line, now_ms=time.time_ns() // NS_PER_MS)
        elif isinstance(line, GapLine):
            self.gaps.append(line)


async def routes_of(found: FoundSet, plan: Plan) -> RouteWatcher | None:
    """A watcher that follows the master of the set; None: none of its brokers answers now."""
    is_its_own = await is_ours(found, plan.expected)
    if is_its_own is None:
        return None
    if is_its_own:
        # Its own brokers alone: each tells the route of its set, and one of another set, named by ``--brokers`` too,
        # would lead this stopwatch to its master.
        return RouteWatcher(found.addresses, plan.expected)
    asked = TOPIC if TOPIC in found.queue_counts else DEFAULT_TOPIC
    return RouteWatcher(plan.brokers, plan.expected, topic=asked, set_name=found.name)


def _since(name: str, before: Stopwatch, now: Stopwatch) -> WatchedSet:
    fields = ("sends", "acks", "failures", "gaps", "stalls")
    return WatchedSet(set_name=name, **{field: getattr(now, field) - getattr(before, field) for field in fields})


async def _first(works: set[asyncio.Task[None]], stop: asyncio.Event, pause_ms: int) -> None:
    """Until ``stop`` or for ``pause_ms``. Raises what one of the works raised."""
    waiting = asyncio.create_task(stop.wait())
    try:
        done, _ = await asyncio.wait({*works, waiting}, timeout=pause_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    for one in done:
        one.result()


async def _pause(stop: asyncio.Event, pause_s: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(pause_s):
            await stop.wait()


class ProbeCollector(msgspec.Struct, frozen=True):
    """Counts of one process for Prometheus."""

    probe: Probe

    def collect(self) -> Iterator[Metric]:
        """The counts of this moment, for one scrape."""
        watches: Sequence[tuple[str, Stopwatch]] = list(self.probe.watches.items())
        for name, text, field in (
            ("rollcall_probe_sends", "Messages sent to a set.", "sends"),
            ("rollcall_probe_failures", "Messages that were not acknowledged in time.", "failures"),
            ("rollcall_probe_stalls", "How often the probe itself was late.", "stalls"),
        ):
            family = CounterMetricFamily(name, text, labels=["set"])
            for key, watch in watches:
                family.add_metric([key], getattr(watch, field))
            yield family
        age = GaugeMetricFamily(
            "rollcall_probe_last_ack_age_seconds", "Since the last acknowledgement.", labels=["set"]
        )
        for key, watch in watches:
            if watch.last_ack_ns is not None:
                age.add_metric([key], (time.monotonic_ns() - watch.last_ack_ns) / 1e9)
        yield age
