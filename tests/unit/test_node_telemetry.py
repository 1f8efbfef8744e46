"""Logs and metrics of a process."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rollcall_ha.node.telemetry import LoopLag, Telemetry


@pytest.mark.slow
def test_a_log_line_is_one_json_object_with_process_component_and_utc_time() -> None:
    """As an operator's log shipper reads it; secrets are whatever the caller passes, so callers pass none."""
    program = (
        "from rollcall_ha.node.telemetry import LogFormat, configure_logs, get_logger\n"
        "configure_logs(process='c1', log_format=LogFormat.JSON)\n"
        "get_logger('electing').info('master_elected', set='demo/broker-a', epoch=8)\n"
    )
    line = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stderr

    entry = json.loads(line)
    assert entry["event"] == "master_elected"
    assert (entry["process"], entry["component"], entry["epoch"]) == ("c1", "electing", 8)
    assert entry["timestamp"].endswith("Z")


@pytest.mark.slow
@pytest.mark.parametrize("server", ["rollcall_ha.broker.server", "rollcall_ha.api.server"])
def test_a_server_imported_tables_for_tracebacks_that_it_never_shows(server: str) -> None:
    """structlog brings rich, and rich attrs: 75 ms of each start. A module that imports rich afterwards gets it."""
    program = f"import sys, {server}\nprint(sys.modules.keys() & {{'rich', 'attr'}})\nimport rich.table"
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert told == "set()\n"


LINES_OF_ALL_KINDS = """
import logging, sys, threading
from rollcall_ha.node.telemetry import LogFormat, configure_logs, get_logger
configure_logs(process=sys.argv[1], log_format=LogFormat.JSON)
log = get_logger("x")
log.info("of_the_loop", epoch=8)
log.info("of_another", process="somebody else")
log.info("unrendered", offset=2**70)
logging.getLogger("library").warning("of a library")
thread = threading.Thread(target=lambda: log.warning("of_a_thread"))
thread.start()
thread.join()
"""
HEAD = ["timestamp", "level", "event", "process"]


@pytest.mark.slow
def test_merged_logs_of_a_fleet_could_not_be_told_apart() -> None:
    """Half of the lines had no process, and the time stood last: three logs in one file were no record."""
    merged = {
        name: subprocess.run(
            [sys.executable, "-c", LINES_OF_ALL_KINDS, name], capture_output=True, text=True, check=True
        ).stderr.splitlines()
        for name in ("c1", "broker-a-1", "hooks")
    }

    for name, lines in merged.items():
        assert len(lines) == 5, lines
        for entry in map(json.loads, lines):
            assert (list(entry)[:4], entry["process"]) == (HEAD, name), entry


def refused(tmp_path: Path, module: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, **variables},
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "arguments", "name"),
    [
        ("rollcall_ha.api.server", ["--config=none.toml", "--name=c1"], "c1"),
        ("rollcall_ha.broker.server", ["--config=none.toml", "--name=broker-a-1"], "broker-a-1"),
        ("rollcall_ha.hooks", ["run", "--file=none.toml"], "hooks"),
    ],
)
def test_a_refused_start_was_text_of_one_program_and_json_of_another(
    tmp_path: Path, module: str, arguments: list[str], name: str
) -> None:
    """A log shipper takes the first form, a person at a terminal the second; both are chosen by option or variable."""
    as_json = refused(tmp_path, module, *arguments)
    entry = json.loads(as_json.stderr)
    assert (list(entry)[:4], entry["event"], entry["process"]) == (HEAD, "cannot_start", name)
    assert "none.toml" in entry["error"]

    as_text = refused(tmp_path, module, *arguments, ROLLCALL_LOG_FORMAT="text")
    assert as_text.stderr == f"rollcall: {entry['error']}\n"
    assert as_text.returncode == as_json.returncode

    told = "'loud' is none of debug, info, warning, error: mend the option, or ROLLCALL_LOG_LEVEL"
    for options, variables in ((["--log-level=loud"], {}), ([], {"ROLLCALL_LOG_LEVEL": "loud"})):
        wrong = refused(tmp_path, module, *arguments, *options, **variables)
        # 2 would be restarted by systemd for ever (RestartPreventExitStatus=64 65).
        assert (wrong.returncode, json.loads(wrong.stderr)["error"]) == (64, told)


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
