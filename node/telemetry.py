"""
Logs, metrics and the loop's lag, the same in every process.

Rule 1: a log line is an event with keys; JSON unless stderr is a terminal; UTC; one line per decision, none per
heartbeat or message.
Rule 2: metric names and labels use the glossary; the registry is the process's own.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any, cast

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

Logger = structlog.stdlib.BoundLogger


def configure_logs(*, process: str, level: int = logging.INFO, is_json: bool | None = None) -> None:
    """Set up structlog for this process; standard logging of libraries goes the same way, from WARNING on."""
    if is_json is None:
        is_json = not sys.stderr.isatty()
    renderer: Any = (
        structlog.processors.JSONRenderer(
            serializer=lambda value, **_: msgspec.json.encode(value, enc_hook=str).decode()
        )
        if is_json
        else structlog.dev.ConsoleRenderer()
    )
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=renderer, foreign_pre_chain=shared))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


def get_logger(component: str) -> Logger:
    """A logger whose lines carry ``component``."""
    return cast("Logger", structlog.get_logger(component=component))


class Telemetry:
    """The metrics registry of one process."""

    def __init__(self) -> None:
        """With the process's own CPU, memory and descriptors."""
        # Else each counter has a gauge beside it with the time of its making, which no question needs.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.loop_lag_max_seconds = Gauge(
            "rollcall_loop_lag_max_seconds",
            "Longest delay of the event loop within the last interval.",
            registry=self.registry,
        )
        self.loop_lag_seconds = Histogram(
            "rollcall_loop_lag_seconds",
            "Delay of the event loop's timer.",
            registry=self.registry,
            buckets=(0.001, 0.005, 0.02, 0.1, 0.5, 2.0),
        )

    def exposition(self) -> tuple[bytes, str]:
        """Body and content type of /metrics."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST


class LoopLag:
    """Measures by how much a timer of the loop comes late; the newest lag is evidence of our own stall (S42)."""

    INTERVAL_MS = 100

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._due = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self.last_lag_ms = 0

    def start(self) -> None:
        """Measure from now on, on the running loop."""
        self._arm()

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()

    def _arm(self) -> None:
        loop = asyncio.get_running_loop()
        self._due = loop.time() + self.INTERVAL_MS / 1000
        self._handle = loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        lag = max(0.0, asyncio.get_running_loop().time() - self._due)
        self.last_lag_ms = int(lag * 1000)
        self._telemetry.loop_lag_seconds.observe(lag)
        self._telemetry.loop_lag_max_seconds.set(lag)
        self._arm()
