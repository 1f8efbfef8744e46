"""
Logs, metrics and the loop's lag, the same in every process.

Rule 1: a log line is an event with keys; JSON unless stderr is a terminal (``log_options``); UTC; one line per
decision, none per heartbeat or message. It begins with time, level, event and process: merged logs can be told apart.
Rule 2: no line raises, for a decision stands right behind many a line: what cannot be rendered is shown as ``repr``
does, what cannot be written is dropped and counted (``standard_error``).
Rule 3: metric names and labels use the glossary; the registry is the process's own.
"""

from __future__ import annotations

import asyncio
import logging
import platform
import reprlib
import sys
import time
from collections.abc import MutableMapping
from datetime import UTC, datetime
from enum import IntEnum
from typing import Any, TextIO, cast

import msgspec
from prometheus_client import CollectorRegistry, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from rollcall_ha import __version__
from rollcall_ha.node.left_out import left_out
from rollcall_ha.node.log_options import LogFormat, LogLevel
from rollcall_ha.node.standard_error import LINES_DROPPED, open_standard_error, say

# structlog brings rich where it is installed, for tracebacks that we do not show, and rich brings attrs: a sixth of the
# time in which a broker starts.
with left_out("rich"):
    import structlog

_READABLE = reprlib.Repr()
"""Also shows values whose own words raise."""
_READABLE.maxdict, _READABLE.maxlong, _READABLE.maxstring, _READABLE.maxother = 64, 100, 1_000, 1_000

Logger = structlog.stdlib.BoundLogger


class _Form:
    """How this process speaks; one for the process, as structlog's: a start is refused at many depths."""

    process = ""
    log_format: LogFormat | None = None


def format_of_logs(asked: LogFormat | None) -> LogFormat:
    """``asked``; without a wish text on a terminal, JSON else."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    return asked or (LogFormat.TEXT if is_terminal else LogFormat.JSON)


def choose_form(process: str, log_format: LogFormat | None) -> LogFormat:
    """For refusals of a start that come before ``configure_logs``, which calls it too; returns the form."""
    _Form.process, _Form.log_format = process, format_of_logs(log_format)
    return _Form.log_format


def refuse_start(code: IntEnum, reason: str) -> int:
    """Say in the chosen form why this process does not start: as text or as a line of the log; returns ``code``."""
    if format_of_logs(_Form.log_format) is LogFormat.TEXT:
        say(f"rollcall: {reason}")
        return int(code)
    # Not by structlog, which is not set up yet where the settings themselves are refused.
    head = {"timestamp": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}", "level": "error", "event": "cannot_start"}
    told = {"process": _Form.process, "component": "server", "code": code.name, "error": reason}
    say(msgspec.json.encode(head | told, enc_hook=str).decode())
    return int(code)


def configure_logs(*, process: str, level: LogLevel = LogLevel.INFO, log_format: LogFormat | None = None) -> None:
    """Set up structlog for this process; standard logging of libraries goes the same way, from WARNING on."""
    is_json = choose_form(process, log_format) is LogFormat.JSON
    least = logging.getLevelNamesMapping()[level.upper()]
    render: Any = (
        structlog.processors.JSONRenderer(
            serializer=lambda value, **_: msgspec.json.encode(value, enc_hook=str).decode()
        )
        if is_json
        else structlog.dev.ConsoleRenderer(
            # A file of text has no colours.
            colors=sys.stderr is not None and sys.stderr.isatty(),
            sort_keys=False,
            exception_formatter=structlog.dev.plain_traceback,
        )
    )

    def rendered(logger: Any, name: str, event: MutableMapping[str, Any]) -> str:
        try:
            return str(render(logger, name, dict(event)))
        except Exception as error:  # noqa: BLE001 (a name that is no Unicode, a number of 70 bits: rule 2)
            shown = _READABLE.repr(event).encode("ascii", "backslashreplace").decode()
            head = {
                "timestamp": event.get("timestamp"),
                "level": event.get("level"),
                "event": shown,
                "process": process,
            }
            return str(render(logger, name, {**head, "unrendered": type(error).__name__}))

    def in_order(_logger: Any, _name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        # The process not by a context variable, which the lines of other threads do not have; and no key of a line
        # may stand in its place, or that line of merged logs would be another process's.
        head = {key: event.get(key) for key in ("timestamp", "level", "event")}
        return {**head, "process": process, **{key: event[key] for key in event if key not in (*head, "process")}}

    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        in_order,
    ]

    def dropped(count: int, error: str) -> str:
        event: Any = {"event": "log_lines_dropped", "component": "logs", "count": count, "error": error}
        for step in (*shared, rendered):
            event = step(None, "warning", event)
        return f"{event}\n"

    lines = cast("TextIO", open_standard_error(dropped))
    structlog.configure(
        processors=[*shared, rendered],
        wrapper_class=structlog.make_filtering_bound_logger(least),
        logger_factory=structlog.WriteLoggerFactory(lines),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(lines)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(processor=rendered, foreign_pre_chain=shared))
    logging.basicConfig(level=max(least, logging.WARNING), handlers=[handler], force=True)


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
        self.registry.register(LINES_DROPPED)
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
