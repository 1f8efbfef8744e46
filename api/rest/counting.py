"""
How many requests REST gets, how they end and how long they take, for metrics.

Here: counting around the whole application. Not here: which operation a request is (``guard``), links (``listening``).

Rule: labels are operation ids of the document and statuses, both of a closed set: a path in a label would let whoever
asks for made-up paths fill the memory of Prometheus, and ours.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram
from starlette.types import ASGIApp, Message, Receive, Scope, Send

OPERATION = "operation"
"""Key in the state of each request: the id of its operation, from the guard on."""
NO_OPERATION = "none"
"""What counts for paths and methods that no route has, and for what the edge refused."""
NO_ANSWER = "none"
"""The caller was gone before its answer began."""
HELD = frozenset({"listEvents", "streamEvents", "switchOver", "transferLeadership"})
"""Operations that wait on purpose, for half a minute or for ever: their times say nothing of this process."""
_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class Counting:
    """ASGI: counts what goes through it."""

    def __init__(
        self, app: ASGIApp, *, registry: CollectorRegistry, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        """``registry``: of the process; ``clock_s`` is monotonic."""
        self._app = app
        self._clock_s = clock_s
        self._requests = Counter(
            "rollcall_rest_requests",
            "Requests by operation and status; none = no route, or refused before one was looked for.",
            ["operation", "status"],
            registry=registry,
        )
        self._seconds = Histogram(
            "rollcall_rest_request_seconds",
            "From the head of a request to the end of its answer; without operations that wait on purpose.",
            ["operation"],
            buckets=_BUCKETS,
            registry=registry,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_s, status = self._clock_s(), NO_ANSWER

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            operation = scope.get("state", {}).get(OPERATION, NO_OPERATION)
            self._requests.labels(operation=operation, status=status).inc()
            if operation not in HELD:
                self._seconds.labels(operation=operation).observe(self._clock_s() - began_s)
