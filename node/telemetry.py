"""
Logs, metrics and the loop's lag, the same in every process.

Rule 1: a log line is an event with keys; JSON unless stderr is a terminal; UTC; one line per decision, none per
heartbeat or message.
Rule 2: metric names and labels use the glossary; the registry is the process's own.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import sys
import time
from typing import Any, cast

import msgspec
import structlog
from prometheus_client import CollectorRegistry, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from rollcall_ha import __version__

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
        build = Gauge(
            "rollcall_build_info",
            "1; the labels say what runs here.",
            ["version", "python"],
            registry=self.registry,
        )
        build.labels(version=__version__, python=platform.python_version()).set(1)
        # Beside the time of the scrape, this is by how much the clocks of two machines differ.
        Gauge(
            "rollcall_clock_timestamp_seconds",
            "UTC by the clock of this machine, at the scrape.",
            registry=self.registry,
        ).set_function(time.time)
        self.loop_lag_max_seconds = Gauge(
            "rollcall_loop_lag_max_seconds",
            "Longest delay of the event loop within the last minute.",
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
    """Measures by how much a timer of the loop comes late."""

    INTERVAL_MS = 100
    HALF_WINDOW_S = 30.0

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self._due = 0.0
        self._handle: asyncio.TimerHandle | None = None
        self._half_until_s = 0.0
        self._longest_s = [0.0, 0.0]
        """The longest lag of the half window that runs, and of the one before."""

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
        now_s = asyncio.get_running_loop().time()
        lag = max(0.0, now_s - self._due)
        self._telemetry.loop_lag_seconds.observe(lag)
        # The newest lag alone is that of 100 ms: of a stall of two seconds a scrape every 15 s would see nothing.
        if now_s >= self._half_until_s:
            self._half_until_s = now_s + self.HALF_WINDOW_S
            self._longest_s = [0.0, self._longest_s[0]]
        self._longest_s[0] = max(self._longest_s[0], lag)
        self._telemetry.loop_lag_max_seconds.set(max(self._longest_s))
        self._arm()
