"""Metrics of links and of the broker port, read when somebody scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from rollcall_ha.api.broker_port.port import BrokerPortServer
from rollcall_ha.node.remoting.link_metrics import link_families
from rollcall_ha.node.remoting.links import CloseCause, LinkTable


class LinkMetrics(Collector):
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


class GatewayMetrics(Collector):
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
