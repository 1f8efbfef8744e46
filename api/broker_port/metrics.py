"""Metrics of the broker port and of the name service on it, read when somebody scrapes."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import CollectorRegistry

from rollcall_ha.api.broker_port.port import BrokerPortServer
from rollcall_ha.api.rocketmq.controller.assembly import RocketmqController
from rollcall_ha.api.rocketmq.names.table import NameTable
from rollcall_ha.controller.runtime.metrics import LateCollector
from rollcall_ha.node.remoting.links import CloseCause


class GatewayMetrics(LateCollector):
    """Links, the causes of their ends, and requests."""

    def __init__(self, gateway: BrokerPortServer, registry: CollectorRegistry) -> None:
        self._gateway = gateway
        registry.register(self)

    def collect(self) -> Iterable[GaugeMetricFamily | CounterMetricFamily]:
        yield GaugeMetricFamily(
            "rollcall_links_open", "Open links on the broker port.", value=self._gateway.connections
        )
        yield GaugeMetricFamily(
            "rollcall_links_unfinished_bytes",
            "Bytes of frames that are not whole yet, over all links.",
            value=self._gateway.unfinished_bytes,
        )
        closed = CounterMetricFamily("rollcall_links_closed", "Closed links by cause.", labels=["reason"])
        for cause in CloseCause:
            closed.add_metric([cause.value], self._gateway.closed_by_cause[cause])
        yield closed
        requests = CounterMetricFamily("rollcall_session_requests", "Requests by name.", labels=["request"])
        for request, count in sorted(self._gateway.requests.items()):
            requests.add_metric([request], count)
        yield requests


class NameMetrics(LateCollector):
    """The size of the name service's table."""

    def __init__(self, table: NameTable, registry: CollectorRegistry) -> None:
        self._table = table
        registry.register(self)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        yield GaugeMetricFamily("rollcall_names_brokers", "Registered brokers.", value=self._table.brokers)
        yield GaugeMetricFamily("rollcall_names_topics", "Topics with a route.", value=len(self._table.queues))


class RocketmqMetrics(LateCollector):
    """Heartbeats of RocketMQ brokers that count for nobody, and the pushes to them."""

    def __init__(self, rocketmq: RocketmqController, registry: CollectorRegistry) -> None:
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
            ("rollcall_rocketmq_pushes", "Pushes (1008, 906) by outcome.", "outcome", self._rocketmq.pushes.sent),
        ):
            family = CounterMetricFamily(name, text, labels=[label])
            for value, count in sorted(counts.items()):
                family.add_metric([value], count)
            yield family
