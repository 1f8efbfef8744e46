"""
/livez, /readyz and /metrics on the broker's health address.

Here: a minimal HTTP/1.1 answerer, and the gauges. Not here: what ready means (``broker.server`` says).
Rule 1: one request per connection, at most ``REQUEST_BYTES_MAX`` of headers, answered or closed in ``REQUEST_MS_MAX``;
a web server would cost a broker more start time and memory than all the rest of it.
Rule 2: gauges are read when somebody asks; nothing is counted per message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily, Metric

from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.node.telemetry import Telemetry

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_MS_MAX = 2_000
CONNECTIONS_MAX = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSnapshot:
    """The broker at the moment of asking. None = not known."""

    state: BrokerState
    is_ready: bool
    reason: str
    """Why it is not ready; the role's own words otherwise."""
    values: tuple[tuple[str, str, float], ...]
    """Name without the prefix ``rollcall_broker_``, help text, value."""


class BrokerCollector:
    """Turns a snapshot into metrics, each time that somebody scrapes."""

    def __init__(self, snapshot: Callable[[], HealthSnapshot]) -> None:
        """Register it with the process's registry."""
        self._snapshot = snapshot

    def describe(self) -> Iterable[Metric]:
        """Names are known only when the broker runs: nothing to compare with."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """One sample each; the role is one gauge per state, 1 for the current one."""
        snapshot = self._snapshot()
        role = GaugeMetricFamily("rollcall_broker_role", "1 for the state that the broker is in.", labels=["state"])
        for state in BrokerState:
            role.add_metric([state.value], 1.0 if state is snapshot.state else 0.0)
        yield role
        yield GaugeMetricFamily("rollcall_broker_ready", "1 if /readyz says so.", value=float(snapshot.is_ready))
        for name, text, value in snapshot.values:
            yield GaugeMetricFamily(f"rollcall_broker_{name}", text, value=value)


class HealthServer:
    """Listens on one address until ``stop``."""

    def __init__(self, telemetry: Telemetry, snapshot: Callable[[], HealthSnapshot]) -> None:
        """Does not listen yet."""
        self._telemetry = telemetry
        self._snapshot = snapshot
        self._server: asyncio.Server | None = None
        self._connections = 0
        telemetry.registry.register(BrokerCollector(snapshot))

    async def start(self, host: str, port: int) -> None:
        """Raises ``OSError`` if the address is taken."""
        self._server = await asyncio.start_server(self._serve, host, port, limit=REQUEST_BYTES_MAX)

    async def stop(self) -> None:
        """Listen no more; answers under way go out."""
        if self._server is not None:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        try:
            if self._connections <= CONNECTIONS_MAX:
                async with asyncio.timeout(REQUEST_MS_MAX / 1000):
                    head = await reader.readuntil(b"\r\n\r\n")
                    writer.write(self.answer(head))
                    await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, TimeoutError, OSError):
            pass  # it did not ask in time, or not for something that fits: the close says so
        finally:
            self._connections -= 1
            writer.close()

    def answer(self, head: bytes) -> bytes:
        """The whole answer to a request's head."""
        method, _, rest = head.partition(b" ")
        path = rest.partition(b" ")[0].partition(b"?")[0]
        if method not in (b"GET", b"HEAD"):
            return _response(405, "Method Not Allowed", b"GET or HEAD\n")
        is_body_wanted = method == b"GET"
        if path == b"/livez":
            return _response(200, "OK", b"alive\n", is_body_wanted=is_body_wanted)
        if path == b"/readyz":
            snapshot = self._snapshot()
            text = f"{snapshot.state}: {snapshot.reason}\n".encode()
            if snapshot.is_ready:
                return _response(200, "OK", text, is_body_wanted=is_body_wanted)
            return _response(503, "Service Unavailable", text, is_body_wanted=is_body_wanted)
        if path == b"/metrics":
            body, content_type = self._telemetry.exposition()
            return _response(200, "OK", body, content_type=content_type, is_body_wanted=is_body_wanted)
        return _response(404, "Not Found", b"/livez /readyz /metrics\n", is_body_wanted=is_body_wanted)


def _response(
    status: int,
    phrase: str,
    body: bytes,
    *,
    content_type: str = "text/plain; charset=utf-8",
    is_body_wanted: bool = True,
) -> bytes:
    head = (
        f"HTTP/1.1 {status} {phrase}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode("ascii")
    return head + body if is_body_wanted else head
