"""The links of a process's ports as metrics: how many are open, what they hold, why they ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from rollcall_ha.node.remoting.links import CloseCause, LinkTable


def link_families(
    ports: Mapping[str, LinkTable[Any]], *, closed_elsewhere: Mapping[str, Mapping[CloseCause, int]] | None = None
) -> Iterable[Metric]:
    """Values of this moment; ``ports`` by their names in the fleet file, ``closed_elsewhere`` those without a table."""
    links = GaugeMetricFamily("rollcall_links_open", "Open links.", labels=["port"])
    unfinished = GaugeMetricFamily(
        "rollcall_links_unfinished_bytes", "Held for frames and requests that are not whole yet.", labels=["port"]
    )
    closed = CounterMetricFamily("rollcall_links_closed", "Closed links by cause.", labels=["port", "reason"])
    answers = CounterMetricFamily(
        "rollcall_port_answers",
        "Answers of ports of RocketMQ's protocol by response code, 0 = done; sends are counted as messages.",
        labels=["port", "code"],
    )
    counts = dict(closed_elsewhere or {})
    for port, table in ports.items():
        counts[port] = table.closed_by_cause
        links.add_metric([port], len(table))
        unfinished.add_metric([port], table.unfinished_bytes)
        for code, count in sorted(table.answers.items()):
            answers.add_metric([port, str(int(code))], count)
    for port, by_cause in counts.items():
        for cause in CloseCause:
            closed.add_metric([port, cause.value], by_cause.get(cause, 0))
    return (links, unfinished, closed, answers)
