"""
The counters and gauges of a controller, for /metrics.

Here: names, labels, counts of sets. Not here: the gauges, which are read when somebody asks (``queries``), loop lag and
process (``node.telemetry``), which alarms are made of them (``deploy/prometheus/rules.yml``).
Rule 1: labels have bounded sets of values: gauges by set are given for at most ``METRIC_SETS_MAX`` sets, the worst
first, so that no set in trouble is left out for one that is well. Counts cover all sets.
Rule 2: only the leader hears brokers. Its gauges by set are the truth, those of the others what they know of it.
"""

from __future__ import annotations

import collections
import heapq
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from rollcall_ha.controller.contract.events import (
    AnyEvent,
    ClockStepped,
    CommandRefused,
    ElectionFailed,
    EventRecord,
    MasterElected,
    MilestoneReached,
    ReplicaSilent,
    WritesResumed,
    WritesStopped,
)
from rollcall_ha.controller.contract.problems import ProblemCode
from rollcall_ha.controller.contract.replies import Condition
from rollcall_ha.controller.contract.values import Frozen, Milestone, Phase
from rollcall_ha.controller.contract.views import SetStatus
from rollcall_ha.controller.core.state import FleetState, Reign
from rollcall_ha.controller.runtime.views import gravity, is_blocked, is_exposed, is_served

METRIC_SETS_MAX = 500
US_PER_SECOND = 1_000_000

_PHASE_BUCKETS = (0.001, 0.005, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_COMMIT_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 3.0)


class Census:
    """All sets of a fleet in a few numbers, and the worst of them; it is filled with one status after the other."""

    def __init__(self) -> None:
        self.conditions: collections.Counter[str] = collections.Counter()
        self.problems: collections.Counter[str] = collections.Counter()
        self.exposed = 0
        """Sets with one member in sync, and more expected."""
        self._statuses: list[SetStatus] = []

    def add(self, status: SetStatus) -> None:
        """Count a set by condition and problem; a cleaned one only by its condition."""
        self.conditions[status.view.condition.value] += 1
        # A tombstone serves nobody, and never will: as a series of a set it would be an alarm for ever.
        if status.view.condition is Condition.CLEANED:
            return
        self.problems.update(status.problems)
        self.exposed += is_exposed(status.view)
        self._statuses.append(status)

    def worst(self, limit: int) -> list[SetStatus]:
        """Those with the worst problems first, at most ``limit``."""
        return heapq.nsmallest(limit, self._statuses, key=gravity)


Gauge = tuple[str, str, float | None]
"""Name, help, value; None is not shown."""


class Reading(Frozen):
    """Values that count no events; the service reads them at the moment of a scrape."""

    role: str
    gauges: tuple[Gauge, ...]
    events_dropped: int
    graces: int
    census: Census


class ControllerMetrics:
    """Counters and histograms of one controller. Times are seconds, as the exposition format wants them."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self.elections = Counter("rollcall_elections", "Applied elections by kind.", ["kind"], registry=registry)
        self.elections_failed = Counter(
            "rollcall_elections_failed", "Elections in which nobody was eligible.", registry=registry
        )
        self.silences = Counter(
            "rollcall_replicas_silent", "Replicas that were found to be gone, by cause.", ["cause"], registry=registry
        )
        self.refusals = Counter(
            "rollcall_commands_refused",
            "Commands that were refused, on record or not, by code.",
            ["code"],
            registry=registry,
        )
        self.write_stops = Counter(
            "rollcall_write_stops",
            "Times that writes stopped without an election, by reason.",
            ["reason"],
            registry=registry,
        )
        self.writes_stopped = Counter(
            "rollcall_writes_stopped_seconds",
            "Time in such stops that have ended, on the masters' clocks.",
            registry=registry,
        )
        self.clock_steps = Counter(
            "rollcall_clock_steps",
            "Times that the clock of entries stepped: a leader's clock was set, or the next leader's differs.",
            registry=registry,
        )
        self.phases = Histogram(
            "rollcall_rto_phase_seconds",
            "From the first sign of the fault to the arrival of a phase's report, by phase and kind of the election; "
            "the outage is serving. Of a planned election: from when its master took no sends, or was moved.",
            ["phase", "kind"],
            buckets=_PHASE_BUCKETS,
            registry=registry,
        )
        self.first_ack_wait = Histogram(
            "rollcall_first_ack_wait_seconds",
            "The longest wait that a sender of the first acknowledged batch of a reign told, outage included.",
            buckets=_PHASE_BUCKETS,
            registry=registry,
        )
        self.commit_delay = Histogram(
            "rollcall_commit_delay_seconds",
            "From submission to the reply of apply.",
            buckets=_COMMIT_BUCKETS,
            registry=registry,
        )
        self.outcome_unknown = Counter(
            "rollcall_proposals_unknown", "Proposals whose outcome is unknown.", registry=registry
        )

    def observe(self, records: Iterable[EventRecord], state: FleetState) -> None:
        """Count applied events while this controller leads; ``state`` is the one after them."""
        for record in records:
            if isinstance(record.event, MilestoneReached):
                set_state = state.sets.get(record.set_key) if record.set_key is not None else None
                self._observe_phase(record.event.milestone, set_state.reigns if set_state is not None else ())
            else:
                self._count(record.event)

    def _count(self, event: AnyEvent) -> None:
        if isinstance(event, MasterElected):
            self.elections.labels(kind=event.verdict.kind.value).inc()
        elif isinstance(event, ElectionFailed):
            self.elections_failed.inc()
        elif isinstance(event, ReplicaSilent):
            self.silences.labels(cause=event.cause.value).inc()
        elif isinstance(event, CommandRefused):
            self.refusals.labels(code=event.code.name).inc()
        elif isinstance(event, ClockStepped):
            self.clock_steps.inc()
        elif isinstance(event, WritesStopped):
            self.write_stops.labels(reason=event.reason.value).inc()
        elif isinstance(event, WritesResumed):
            self.writes_stopped.inc(event.stopped_us / US_PER_SECOND)

    def _observe_phase(self, milestone: Milestone, reigns: Sequence[Reign]) -> None:
        # The first acknowledgement comes when somebody sends: as a phase of the outage it would put an idle hour there.
        if milestone.phase is Phase.FIRST_ACK:
            if milestone.waited_us is not None:
                self.first_ack_wait.observe(milestone.waited_us / US_PER_SECOND)
        elif milestone.observed_us is not None:
            # A handover of 20 ms beside failovers of 2 s, or a set that waited an hour for its first master, would be
            # in one quantile with them: an alarm on outages asks for kind="failover".
            kind = next(
                (reign.kind.value for reign in reigns if reign.master_epoch == milestone.master_epoch), "unknown"
            )
            self.phases.labels(phase=milestone.phase.value, kind=kind).observe(milestone.observed_us / US_PER_SECOND)

    def read_from(self, reading: Callable[[], Reading]) -> None:
        """Show the gauges of ``reading`` on each scrape."""
        self._registry.register(_Gauges(reading))


class _Gauges(Collector):
    def __init__(self, reading: Callable[[], Reading]) -> None:
        self._reading = reading

    def collect(self) -> Iterable[Metric]:
        """Values of this moment."""
        reading = self._reading()
        role = GaugeMetricFamily("rollcall_controller_role", "1 for the Raft role held.", labels=["role"])
        role.add_metric([reading.role], 1)
        yield role
        for name, text, value in reading.gauges:
            if value is not None:
                yield GaugeMetricFamily(name, text, value=value)
        census = reading.census
        yield GaugeMetricFamily(
            "rollcall_sets_exposed", "Sets with one member in sync, and more expected.", value=census.exposed
        )
        yield CounterMetricFamily(
            "rollcall_journal_events_dropped", "Events that retention has removed.", value=reading.events_dropped
        )
        yield CounterMetricFamily(
            "rollcall_graces", "How often every replica got one full timeout.", value=reading.graces
        )
        conditions = GaugeMetricFamily("rollcall_sets_by_condition", "Broker sets by condition.", labels=["condition"])
        for condition, count in sorted(census.conditions.items()):
            conditions.add_metric([condition], count)
        yield conditions
        problems = GaugeMetricFamily("rollcall_sets_by_problem", "Broker sets that have a problem.", labels=["problem"])
        for problem in ProblemCode:
            problems.add_metric([problem.value], census.problems[problem.value])
        yield problems
        yield from _by_set(census.worst(METRIC_SETS_MAX))


def _by_set(statuses: Sequence[SetStatus]) -> Iterable[GaugeMetricFamily]:
    labels = ["cluster", "set"]

    def gauge(name: str, text: str, *more: str) -> GaugeMetricFamily:
        return GaugeMetricFamily(name, text, labels=[*labels, *more])

    epoch = gauge("rollcall_set_master_epoch", "masterEpoch.")
    size = gauge("rollcall_set_sync_state_set_size", "Members of the SyncStateSet.")
    expected = gauge("rollcall_set_expected_replicas", "Replicas that the set is configured to have.")
    budget = gauge("rollcall_set_failure_budget", "Replicas that may be lost without loss.")
    serving = gauge("rollcall_set_master_serving", "1 if a master has entered, lives, and has not stopped itself.")
    stopped = gauge("rollcall_set_writes_stopped", "1 if the master acknowledges no write, by its word.")
    blocked = gauge("rollcall_set_blocked", "1 if it failed over too often, and waits for a person.")
    master = gauge("rollcall_replica_is_master", "1 for the master.", "broker")
    lag = gauge("rollcall_replica_lag_bytes", "Distance to the master's end.", "broker")
    for status in statuses:
        view = status.view
        key = [view.set_key.cluster, view.set_key.name]
        epoch.add_metric(key, view.master_epoch)
        size.add_metric(key, len(view.sync_state_set))
        expected.add_metric(key, view.configuration.expected_replicas)
        budget.add_metric(key, status.failure_budget)
        serving.add_metric(key, is_served(status))
        stopped.add_metric(key, view.condition is Condition.WRITES_STOPPED)
        blocked.add_metric(key, is_blocked(status))
        for replica in status.replicas:
            master.add_metric([*key, str(replica.broker_id)], replica.is_master)
            if replica.lag_bytes is not None:
                lag.add_metric([*key, str(replica.broker_id)], replica.lag_bytes)
    return epoch, size, expected, budget, serving, stopped, blocked, master, lag
