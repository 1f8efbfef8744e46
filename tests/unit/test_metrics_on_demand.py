"""What is counted for metrics: durations, disks, requests of REST, all sets of a fleet."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import HistogramMetricFamily
from starlette.types import Message, Receive, Scope, Send

from rollcall_ha.api.rest.counting import OPERATION, Counting
from rollcall_ha.node import disk_usage
from rollcall_ha.node.disk_usage import DiskUsage, measure
from rollcall_ha.node.durations import Durations
from rollcall_ha.node.telemetry import LoopLag, Telemetry
from tests.support.ha_replica import until


def test_durations_are_shown_as_a_cumulative_histogram() -> None:
    """A bound is part of its own bucket; what is above all of them is in +Inf and in the sum."""
    durations = Durations((0.01, 0.1))
    for seconds in (0.005, 0.01, 0.05, 7.0):
        durations.note(seconds)
    family = HistogramMetricFamily("x_seconds", "x", labels=["of"])
    durations.show(family, ["put"])
    found = {(one.name, one.labels.get("le")): one.value for one in family.samples}
    assert found[("x_seconds_bucket", "0.01")] == 2
    assert found[("x_seconds_bucket", "0.1")] == 3
    assert found[("x_seconds_bucket", "+Inf")] == found[("x_seconds_count", None)] == 4
    assert found[("x_seconds_sum", None)] == pytest.approx(7.065)


def test_a_segment_that_is_a_hole_was_counted_as_if_it_were_full(tmp_path: Path) -> None:
    """A log segment has its full length from the beginning; the disk gives its blocks one by one."""
    (tmp_path / "log" / "older").mkdir(parents=True)
    with (tmp_path / "log" / "0").open("wb") as segment:
        segment.truncate(1024**3)
    (tmp_path / "log" / "older" / "1").write_bytes(b"x" * 50_000)
    (tmp_path / "marks").write_bytes(b"x" * 10)
    found = measure(
        tmp_path, {"log": tmp_path / "log", "marks": tmp_path / "marks", "gone": tmp_path / "gone"}, lambda: 7.0
    )
    assert 50_000 <= found.used["log"] < 1_000_000
    assert found.used["marks"] < 100_000
    assert found.used["gone"] == 0
    assert 0 < found.free < found.size
    assert found.measured_at_s == 7.0


def test_what_nobody_could_measure_for_a_minute_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that hangs had 40 % free, by a value of an hour ago."""
    registry = CollectorRegistry()
    usage = DiskUsage(tmp_path, {"log": tmp_path}, registry)

    def shown() -> float | None:
        return registry.get_sample_value("rollcall_disk_free_bytes")

    async def scene() -> None:
        running = asyncio.create_task(usage.run())
        async with asyncio.timeout(30):
            await until(lambda: shown() is not None)
        running.cancel()

    assert shown() is None
    asyncio.run(scene())
    assert registry.get_sample_value("rollcall_state_bytes", {"part": "log"}) is not None
    monkeypatch.setattr(disk_usage, "KEPT_S", -1.0)
    assert shown() is None


async def _ask(app: Counting, operation: str | None, *, breaks: bool = False) -> None:
    async def receive() -> Message:
        return {"type": "http.request"}

    async def send(_: Message) -> None:
        if breaks:
            raise OSError("gone")

    state: dict[str, Any] = {} if operation is None else {OPERATION: operation}
    try:
        await app({"type": "http", "path": "/" + os.urandom(4).hex(), "state": state}, receive, send)
    except OSError:
        pass


def test_requests_are_counted_by_operation_and_never_by_path() -> None:
    """Made-up paths have one label together; operations that wait on purpose have no time."""

    async def answering(_: Scope, __: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 404, "headers": []})

    async def silent(*_: object) -> None:
        raise OSError("gone")

    registry = CollectorRegistry()
    app = Counting(answering, registry=registry, clock_s=lambda: 1.0)

    async def scene() -> None:
        for _ in range(5):
            await _ask(app, None)
        await _ask(app, "getStatus")
        await _ask(app, "listEvents")
        app._app = silent
        await _ask(app, "getStatus")

    asyncio.run(scene())
    counts = {
        tuple(one.labels.values()): one.value
        for family in registry.collect()
        for one in family.samples
        if one.name == "rollcall_rest_requests_total"
    }
    assert counts == {
        ("none", "404"): 5,
        ("getStatus", "404"): 1,
        ("listEvents", "404"): 1,
        ("getStatus", "none"): 1,
    }
    assert registry.get_sample_value("rollcall_rest_request_seconds_count", {"operation": "getStatus"}) == 2
    assert registry.get_sample_value("rollcall_rest_request_seconds_count", {"operation": "listEvents"}) is None


def test_a_stall_between_two_scrapes_was_not_in_the_longest_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gauge had the newest lag alone, of 100 ms; Prometheus asks every 15 s."""
    telemetry = Telemetry()
    now_s = 100.0

    class Loop:
        def time(self) -> float:
            return now_s

        def call_at(self, when: float, _: object) -> object:
            return when

    monkeypatch.setattr("rollcall_ha.node.telemetry.asyncio.get_running_loop", Loop)
    lag = LoopLag(telemetry)
    lag.start()

    def tick(late_s: float) -> float | None:
        nonlocal now_s
        now_s += LoopLag.INTERVAL_MS / 1000 + late_s
        lag._tick()
        return telemetry.registry.get_sample_value("rollcall_loop_lag_max_seconds")

    assert tick(2.0) == pytest.approx(2.0)
    assert max(tick(0.0) or 0.0 for _ in range(200)) == pytest.approx(2.0)
    now_s += 60.0
    lag.start()
    assert [tick(0.0), *(tick(0.0) for _ in range(400))][-1] == pytest.approx(0.0)
