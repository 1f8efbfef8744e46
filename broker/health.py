"""
/livez, /readyz, /metrics and the questions of load balancers on the broker's health address.

Here: a minimal HTTP/1.1 answerer, the gauges, and the counters of every port. Not here: the meaning of ready
(``broker.status``), of master, replica and in sync (``broker.core.balancing``).
Rule 1: one request per link, at most ``REQUEST_BYTES_MAX`` of headers, answered or closed in ``REQUEST_MS_MAX`` and one
sweep; links are limited and counted as on every port (``node.remoting.links``).
Rule 2: gauges are read at a scrape; nothing is counted per message.
Rule 3: with credentials the port is TLS. A stranger hears whether the broker is alive, ready, master or in sync, for
probes and load balancers have no certificate; metrics tell of peers and offsets, and are for holders of a certificate
of the fleet.

Not h11, nor a web server: a few fixed paths need the first line of a request and nothing else of HTTP. h11 took 300 us
of the loop that acknowledges messages for each answer, this takes 4 us, and it would not save a line: the limits and
the closing are ours either way.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from http import HTTPStatus
from typing import Any, cast

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from rollcall_ha.broker.core import balancing
from rollcall_ha.broker.core.balancing import ReplicaFacts
from rollcall_ha.controller.contract.session import BrokerState
from rollcall_ha.controller.contract.values import Frozen, StopReason
from rollcall_ha.node.durations import Durations
from rollcall_ha.node.remoting.link_metrics import link_families
from rollcall_ha.node.remoting.links import CloseCause, LimitedLink, LinkLimits, LinkTable
from rollcall_ha.node.remoting.secured import Door, SecuredDoor
from rollcall_ha.node.telemetry import Telemetry
from rollcall_ha.node.tls import Credentials

REQUEST_BYTES_MAX = 8 * 1024
REQUEST_MS_MAX = 2_000
_WANTED = re.compile(r"(hours|forced|refused)=([0-9]{1,5})")
TEXT = "text/plain; charset=utf-8"
LIMITS = LinkLimits(
    connections_max=64,
    silent_make_room=True,
    first_frame_ms_max=REQUEST_MS_MAX,
    frame_ms_max=REQUEST_MS_MAX,
    idle_ms_max=REQUEST_MS_MAX,
)


class HealthSnapshot(Frozen):
    """The broker at the moment of asking. None = not known."""

    state: BrokerState
    is_ready: bool
    reason: str
    """Why it is not ready; the role's own words otherwise."""
    values: tuple[tuple[str, str, float], ...]
    """Name without the prefix ``rollcall_broker_``, help text, value; a name that ends in ``_total`` is a counter's."""
    lags: Callable[[], list[tuple[str, str, int]]] = list
    """Group, topic and messages that the group is behind; of one that serves (``consuming.lag``)."""
    stopped: StopReason | None = None
    """Why this master acknowledges no write; None = it does, or is no master."""
    facts: ReplicaFacts | None = None
    """For load balancers; None = the log is still being read."""
    waits: Durations | None = None
    """How long sends waited, from append to PUT_OK (``PutPath.waits``)."""
    retention: Callable[[Mapping[str, int]], str] = lambda _wanted: "reading the log\n"
    """The dry run of a deletion, by the values in force or by other ``hours``, ``forced`` and ``refused`` (percent)."""


class BrokerCollector:
    """Turns a snapshot into metrics, at each scrape."""

    def __init__(
        self, snapshot: Callable[[], HealthSnapshot], ports: dict[str, LinkTable[Any]], refused: Callable[[], int]
    ) -> None:
        """
        Register it with the process's registry.

        ``ports``: the links of each, by its name in the fleet file. ``refused``: questions for metrics by strangers.
        """
        self._snapshot = snapshot
        self._ports = ports
        self._refused = refused

    def collect(self) -> Iterable[Metric]:
        """One sample each; the role is one gauge per state, 1 for the current one."""
        snapshot = self._snapshot()
        role = GaugeMetricFamily("rollcall_broker_role", "1 for the state that the broker is in.", labels=["state"])
        for state in BrokerState:
            role.add_metric([state.value], 1.0 if state is snapshot.state else 0.0)
        yield role
        yield GaugeMetricFamily("rollcall_broker_ready", "1 if /readyz says so.", value=float(snapshot.is_ready))
        stopped = GaugeMetricFamily(
            "rollcall_broker_writes_stopped",
            "1 for the reason why this master acknowledges no write.",
            labels=["reason"],
        )
        for reason in StopReason:
            stopped.add_metric([reason.value], 1.0 if reason is snapshot.stopped else 0.0)
        yield stopped
        for name, text, value in snapshot.values:
            # As a gauge, a restart would look like a fall of thousands: rate() corrects for counters only.
            family = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            yield family(f"rollcall_broker_{name}", text, value=value)
        lags = GaugeMetricFamily(
            "rollcall_broker_group_lag_messages",
            "Confirmed, and behind the group's offsets; the groups beyond the limit are one sum.",
            labels=["group", "topic"],
        )
        for group, topic, lag in snapshot.lags():
            lags.add_metric([group, topic], lag)
        yield lags
        if snapshot.waits is not None:
            waits = HistogramMetricFamily(
                "rollcall_broker_release_seconds",
                "From append to PUT_OK of the send that waited longest, one value for each release of a batch.",
            )
            snapshot.waits.show(waits, [])
            yield waits
        yield CounterMetricFamily(
            "rollcall_broker_metrics_refused",
            "Questions for these metrics without a certificate of the fleet.",
            value=self._refused(),
        )
        yield from link_families(self._ports)


class _Request(LimitedLink, asyncio.BufferedProtocol):
    """One link: collects a request's head, has it answered, and closes when the answer is out."""

    def __init__(self, server: HealthServer) -> None:
        super().__init__(LIMITS)
        self._server = server
        self._transport: asyncio.Transport | None = None
        self._head = bytearray(REQUEST_BYTES_MAX + 1)
        self._head_bytes = 0

    @property
    def unread_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def close(self, reason: str, cause: CloseCause = CloseCause.HANDLER) -> None:  # noqa: ARG002 (nobody asks for it)
        if self._transport is not None and self.close_cause is None:
            self.close_cause = cause
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.note_opened(transport.get_extra_info("peername"), asyncio.get_running_loop().time())
        self._server.ports["health"].admit(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 (a callback of asyncio)
        """Where the next bytes go."""
        if self.has_frame:
            self._head_bytes = 0  # behind the one request of this link: read and forgotten
        return memoryview(self._head)[self._head_bytes :]

    def buffer_updated(self, nbytes: int) -> None:
        if self._transport is None or self.has_frame or self.close_cause is not None:
            return
        self._last_read, self._has_read = asyncio.get_running_loop().time(), True
        self._head_bytes += nbytes
        is_whole = self._head.find(b"\r\n\r\n", 0, self._head_bytes) >= 0
        self.note_read(0 if is_whole else self._head_bytes, took_frame=is_whole)
        if self._head_bytes > REQUEST_BYTES_MAX:
            self.close(f"more than {REQUEST_BYTES_MAX} bytes of headers", CloseCause.FRAME_LENGTH)
        elif is_whole:
            head = bytes(self._head[: self._head_bytes])
            self._transport.write(self._server.answer(head, is_known=self.certificate is not None))
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        # Answered, so the end is ours, in order: else each scrape would count as a peer that broke off.
        if self.has_frame and self.close_cause is None:
            self.close_cause = CloseCause.HANDLER
        self._server.ports["health"].ended(self, exc)
        self._transport = None


class HealthServer:
    """Listens on one address until ``stop``."""

    def __init__(
        self, telemetry: Telemetry, snapshot: Callable[[], HealthSnapshot], *, credentials: Credentials | None = None
    ) -> None:
        """Registers its metrics; ``start`` listens. Without ``credentials`` (an insecure fleet) the port is plain."""
        self.ports: dict[str, LinkTable[Any]] = {"health": LinkTable(LIMITS, credentials=credentials)}
        """Links that /metrics tells of; the process adds its other ports."""
        self._door = None if credentials is None else Door(credentials=credentials, takes_nameless=True)
        self._telemetry = telemetry
        self._snapshot = snapshot
        self._server: asyncio.Server | None = None
        self._refused = 0
        telemetry.registry.register(BrokerCollector(snapshot, self.ports, lambda: self._refused))

    @property
    def port(self) -> int:
        """Where it listens; for tests that asked for port 0."""
        assert self._server is not None, "it was started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self, host: str, port: int) -> None:
        """Raises ``OSError`` if the address is taken."""
        self._server = await asyncio.get_running_loop().create_server(self._make_link, host, port)
        self.ports["health"].open()

    async def stop(self) -> None:
        """Listen no more; answers under way go out."""
        if self._server is not None:
            self._server.close()
        for link in self.ports["health"].snapshot():
            if not link.has_frame:
                link.close("the broker stops", CloseCause.STOPPED)

    def _make_link(self) -> asyncio.BaseProtocol:
        link = _Request(self)
        return link if self._door is None else SecuredDoor(link, self._door)

    def answer(self, head: bytes, *, is_known: bool = False) -> bytes:
        """The whole answer to a request's head; ``is_known``: of a peer with a certificate of the fleet."""
        method, _, rest = head.partition(b" ")
        path, _, query = rest.partition(b" ")[0].partition(b"?")
        if method not in (b"GET", b"HEAD"):
            return _response(HTTPStatus.METHOD_NOT_ALLOWED, b"GET or HEAD\n")
        status, body, content_type = self._answer_to(path.decode("latin-1"), query.decode("latin-1"), is_known=is_known)
        return _response(status, body, content_type=content_type, is_body_wanted=method == b"GET")

    def _answer_to(self, path: str, query: str, *, is_known: bool) -> tuple[HTTPStatus, bytes, str]:
        """Status, body and its type."""
        if path == "/livez":
            return HTTPStatus.OK, b"alive\n", TEXT
        if path == "/readyz":
            snapshot = self._snapshot()
            text = f"{snapshot.state}: {snapshot.reason}\n".encode()
            return HTTPStatus.OK if snapshot.is_ready else HTTPStatus.SERVICE_UNAVAILABLE, text, TEXT
        if path in balancing.PATHS:
            found = balancing.judge(path, query, self._snapshot().facts)
            return found.status, f"{found.text}\n".encode(), TEXT
        if path in ("/metrics", "/retention") and self._door is not None and not is_known:
            self._refused += 1
            text = b"metrics of this fleet are for holders of one of its certificates; show one\n"
            return HTTPStatus.FORBIDDEN, text, TEXT
        if path == "/metrics":
            body, content_type = self._telemetry.exposition()
            return HTTPStatus.OK, body, content_type
        if path == "/retention":
            parts = [_WANTED.fullmatch(part) for part in query.split("&")] if query else []
            wanted = {part[1]: int(part[2]) for part in parts if part is not None}
            if len(wanted) < len(parts):
                text = b"/retention, or /retention?hours=N&forced=PERCENT&refused=PERCENT, each once (0: never)\n"
                return HTTPStatus.BAD_REQUEST, text, TEXT
            return HTTPStatus.OK, self._snapshot().retention(wanted).encode(), TEXT
        known = " ".join(("/livez", "/readyz", *balancing.PATHS, "/metrics", "/retention"))
        return HTTPStatus.NOT_FOUND, f"{known}\n".encode(), TEXT


def _response(status: HTTPStatus, body: bytes, *, content_type: str = TEXT, is_body_wanted: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {status.value} {status.phrase}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n"
        "Connection: close\r\n\r\n"
    ).encode("ascii")
    return head + body if is_body_wanted else head
