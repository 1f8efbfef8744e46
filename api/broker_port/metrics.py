"""Metrics of links, of the broker port and of the name service on it, read when somebody scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import CollectorRegistry

from rollcall_ha.api.broker_port.port import BrokerPortServer
from rollcall_ha.api.rocketmq.controller.assembly import RocketmqController
from rollcall_ha.api.rocketmq.names.table import NameTable
from rollcall_ha.controller.runtime.metrics import LateCollector
from rollcall_ha.node.remoting.link_metrics import link_families
from rollcall_ha.node.remoting.links import CloseCause, LinkTable


class LinkMetrics(LateCollector):
    """Links of this controller's ports, and the causes of their ends."""

    def __init__(
        self,
        ports: Mapping[str, LinkTable[Any]],
        registry: CollectorRegistry,
        *,
        raft: Callable[[], Mapping[CloseCause, int]],
    ) -> None:
        """``raft``: why links of the Raft port ended; it has no table."""
        self._ports = ports
        self._raft = raft
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        return link_families(self._ports, closed_elsewhere={"raft": self._raft()})


class GatewayMetrics(LateCollector):
    """Requests on the broker port."""

    def __init__(self, gateway: BrokerPortServer, registry: CollectorRegistry) -> None:
        self._gateway = gateway
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        requests = CounterMetricFamily("rollcall_session_requests", "Requests by name.", labels=["request"])
        for request, count in sorted(self._gateway.requests.items()):
            requests.add_metric([request], count)
        yield requests
        orders = HistogramMetricFamily(
            "rollcall_session_order_seconds", "From a session's order to its answer, by name.", labels=["request"]
        )
        for request, durations in sorted(self._gateway.durations.items()):
            durations.show(orders, [request])
        yield orders


class NameMetrics(LateCollector):
    """The size of the name service's table."""

    def __init__(self, table: NameTable, registry: CollectorRegistry) -> None:
        self._table = table
        registry.register(self)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        yield GaugeMetricFamily("rollcall_names_brokers", "Registered brokers.", value=self._table.brokers)
        yield GaugeMetricFamily("rollcall_names_topics", "Topics with a route.", value=len(self._table.queues))


class RocketmqMetrics(LateCollector):
    """What RocketMQ's peers may not have, heartbeats that count for nobody, and the pushes to brokers."""

    def __init__(self, gateway: BrokerPortServer, rocketmq: RocketmqController, registry: CollectorRegistry) -> None:
        self._gateway = gateway
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
                self._gateway.access.refused,
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
