"""Logs and metrics of a process."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys

import pytest

from rollcall_ha.node.telemetry import LoopLag, Telemetry


@pytest.mark.slow
def test_a_log_line_is_one_json_object_with_process_component_and_utc_time() -> None:
    """As an operator's log shipper reads it; secrets are whatever the caller passes, so callers pass none."""
    program = (
        "from rollcall_ha.node.telemetry import configure_logs, get_logger\n"
        "configure_logs(process='c1', is_json=True)\n"
        "get_logger('electing').info('master_elected', set='demo/broker-a', epoch=8)\n"
    )
    line = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stderr

    entry = json.loads(line)
    assert entry["event"] == "master_elected"
    assert (entry["process"], entry["component"], entry["epoch"]) == ("c1", "electing", 8)
    assert entry["timestamp"].endswith("Z")


def test_the_loop_lag_is_measured_and_exposed() -> None:
    """The gauge appears in the exposition once a timer has fired."""
    telemetry = Telemetry()

    async def run() -> None:
        lag = LoopLag(telemetry)
        lag.start()
        fired = asyncio.Event()
        asyncio.get_running_loop().call_later(LoopLag.INTERVAL_MS / 1000 + 0.02, fired.set)
        await asyncio.wait_for(fired.wait(), 5)
        lag.stop()

    asyncio.run(run())
    body, content_type = telemetry.exposition()

    assert b"rollcall_loop_lag_seconds_count 1.0" in body
    assert content_type.startswith("text/plain")
