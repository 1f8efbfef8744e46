"""Metrics of the name service and of what RocketMQ's peers ask, read when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector, CollectorRegistry

from rollcall_ha.api.rocketmq.access.judging import RocketmqAccess
from rollcall_ha.api.rocketmq.controller.assembly import RocketmqController
from rollcall_ha.api.rocketmq.names.table import NameTable


class NameMetrics(Collector):
    """The size of the name service's table."""

    def __init__(self, table: NameTable, registry: CollectorRegistry) -> None:
        self._table = table
        registry.register(self)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        yield GaugeMetricFamily("rollcall_names_brokers", "Registered brokers.", value=self._table.brokers)
        yield GaugeMetricFamily("rollcall_names_topics", "Topics with a route.", value=len(self._table.queues))


class RocketmqMetrics(Collector):
    """What RocketMQ's peers may not have, heartbeats that count for nobody, and the pushes to brokers."""

    def __init__(self, access: RocketmqAccess, rocketmq: RocketmqController, registry: CollectorRegistry) -> None:
        self._access = access
        self._rocketmq = rocketmq
        registry.register(self)

    def collect(self) -> Iterable[CounterMetricFamily]:
        for name, text, label, counts in (
            (
                "rollcall_rocketmq_heartbeats_ignored",
                "Heartbeats (904) that count for nobody, by reason.",
                "reason",
                self._rocketmq.replicas.ignored,
            ),
            (
                "rollcall_rocketmq_refused",
                "Requests that their sender has no right to, by reason.",
                "reason",
                self._access.refused,
            ),
            (
                "rollcall_rocketmq_claims_refused",
                "Words in the name of a replica that another peer speaks for, by code; native: of a broker of ours.",
                "code",
                self._rocketmq.replicas.claims.refused,
            ),
            ("rollcall_rocketmq_pushes", "Pushes (1008, 906) by outcome.", "outcome", self._rocketmq.pushes.sent),
        ):
            family = CounterMetricFamily(name, text, labels=[label])
            for value, count in sorted(counts.items()):
                family.add_metric([value], count)
            yield family
