"""
The counters and gauges of a controller, for /metrics.

Here: names, labels, and the gauges that are read from the service when somebody asks. Not here: loop lag and process
(``node.telemetry``), which alarms are made of them (``deploy/prometheus/rules.yml``).
Rule 1: labels have bounded sets of values: gauges by set are given for at most ``METRIC_SETS_MAX`` sets, the worst
first, so that no set in trouble is left out for one that is well. Counts cover all sets.
Rule 2: only the leader hears brokers. Its gauges by set are the truth, those of the others what they know of it.
"""

from __future__ import annotations

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
from rollcall_ha.controller.runtime.views import is_blocked, is_served

METRIC_SETS_MAX = 500
US_PER_SECOND = 1_000_000

_PHASE_BUCKETS = (0.001, 0.005, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_COMMIT_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 3.0)


class Reading(Frozen):
    """The values of the gauges; made by the service at the moment of a scrape."""

    role: str
    has_authority: bool
    term: int
    commit_index: int
    applied_index: int
    synced_event_index: int
    events_dropped: int
    majority_age_ms: int | None
    sets_total: int
    sets_by_condition: dict[str, int]
    sets_wanting_master: int
    sessions_open: int
    graces: int
    sets_by_problem: dict[str, int]
    sets_exposed: int
    """With one member in the SyncStateSet, and more expected."""
    statuses: Sequence[SetStatus]
    """The worst first, at most ``METRIC_SETS_MAX``."""
    controllers: int
    """That vote, by the log."""
    controllers_heard: int | None
    """Voting ones that the leader hears, itself included; None: this one does not lead."""
    settings_version: int
    feature_level: int
    """In force."""
    controllers_differing: int
    lost_entries: int
    lead_changes: int
    late_ms: int
    certificates_revoked: int
    tokens_in_force: int
    pauses: int
    maintenances: int


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


_GAUGES: tuple[tuple[str, str, Callable[[Reading], float | None]], ...] = (
    ("rollcall_controller_authority", "1 if this controller answers with authority.", lambda now: now.has_authority),
    ("rollcall_raft_term", "Raft term.", lambda now: now.term),
    ("rollcall_raft_commit_index", "Highest committed index known.", lambda now: now.commit_index),
    ("rollcall_raft_applied_index", "Highest applied index.", lambda now: now.applied_index),
    ("rollcall_journal_synced_index", "Index up to which events are on disk.", lambda now: now.synced_event_index),
    ("rollcall_majority_age_seconds", "Since a majority was asked.", lambda now: _seconds(now.majority_age_ms)),
    ("rollcall_settings_version", "Of the settings in force; 0 = the file's.", lambda now: now.settings_version),
    ("rollcall_feature_level", "In force.", lambda now: now.feature_level),
    ("rollcall_controllers", "Controllers that vote, by the log.", lambda now: now.controllers),
    (
        "rollcall_controllers_heard",
        "Voting controllers that the leader has heard lately, itself included; of the leader alone.",
        lambda now: now.controllers_heard,
    ),
    ("rollcall_sets", "Broker sets.", lambda now: now.sets_total),
    ("rollcall_sets_exposed", "Sets with one member in sync, and more expected.", lambda now: now.sets_exposed),
    ("rollcall_sets_wanting_master", "Sets that the leader tries to elect for.", lambda now: now.sets_wanting_master),
    (
        "rollcall_controllers_differing",
        "Controllers that made another state of the same entries; anything but 0 is an alarm.",
        lambda now: now.controllers_differing,
    ),
    (
        "rollcall_lost_entries",
        "Entries that brokers have seen and the log lacks; anything but 0 is an alarm; of the leader alone.",
        lambda now: now.lost_entries,
    ),
    (
        "rollcall_lead_changes",
        "Terms with a leader that began within ten minutes, here.",
        lambda now: now.lead_changes,
    ),
    (
        "rollcall_raft_late_seconds",
        "By which two turns of Raft in a row were late within the last seconds.",
        lambda now: _seconds(now.late_ms),
    ),
    (
        "rollcall_certificates_revoked",
        "Certificates that nobody believes any more.",
        lambda now: now.certificates_revoked,
    ),
    ("rollcall_tokens_in_force", "Tokens neither revoked nor expired.", lambda now: now.tokens_in_force),
    ("rollcall_election_pauses", "Pauses of elections in force, of sets or the fleet.", lambda now: now.pauses),
    ("rollcall_maintenances", "Maintenances in force, of replicas or hosts.", lambda now: now.maintenances),
    ("rollcall_sessions_open", "Broker sessions on a connection.", lambda now: now.sessions_open),
)
"""Name, help, value; None is not shown."""


def _seconds(age_ms: int | None) -> float | None:
    return None if age_ms is None else age_ms / 1000


class _Gauges(Collector):
    def __init__(self, reading: Callable[[], Reading]) -> None:
        self._reading = reading

    def collect(self) -> Iterable[Metric]:
        """Values of this moment."""
        reading = self._reading()
        role = GaugeMetricFamily("rollcall_controller_role", "1 for the Raft role held.", labels=["role"])
        role.add_metric([reading.role], 1)
        yield role
        for name, text, value in _GAUGES:
            if (number := value(reading)) is not None:
                yield GaugeMetricFamily(name, text, value=number)
        yield CounterMetricFamily(
            "rollcall_journal_events_dropped", "Events that retention has removed.", value=reading.events_dropped
        )
        yield CounterMetricFamily(
            "rollcall_graces", "How often every replica got one full timeout.", value=reading.graces
        )
        conditions = GaugeMetricFamily("rollcall_sets_by_condition", "Broker sets by condition.", labels=["condition"])
        for condition, count in sorted(reading.sets_by_condition.items()):
            conditions.add_metric([condition], count)
        yield conditions
        problems = GaugeMetricFamily("rollcall_sets_by_problem", "Broker sets that have a problem.", labels=["problem"])
        for problem in ProblemCode:
            problems.add_metric([problem.value], reading.sets_by_problem.get(problem.value, 0))
        yield problems
        yield from _by_set(reading.statuses)


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
    for status in statuses[:METRIC_SETS_MAX]:
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
