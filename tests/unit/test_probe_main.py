"""How the program of the probe refuses a start, and in which form its log is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import msgspec
import pytest

from rollcall_ha.node import telemetry
from rollcall_ha.node.process import ExitCode
from rollcall_ha.probe.__main__ import WRONG_USE, main

TIMEOUT_S = 60.0


@pytest.fixture(autouse=True)
def no_form(monkeypatch: pytest.MonkeyPatch) -> None:
    """The form of a process is one for the process, and other tests have one, too."""
    monkeypatch.setattr(telemetry._Form, "process", "")
    monkeypatch.setattr(telemetry._Form, "log_format", None)


def test_a_refused_start_is_a_line_of_the_log_or_one_of_text(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--interval-ms=1", "--brokers=127.0.0.1:1", "--log-format=json"]) == ExitCode.CONFIG
    line = json.loads(capfd.readouterr().err)
    assert (line["event"], line["process"], line["code"]) == ("cannot_start", "probe", "CONFIG")
    assert main(["--interval-ms=1", "--brokers=127.0.0.1:1", "--log-format=text"]) == ExitCode.CONFIG
    assert capfd.readouterr().err == "rollcall: interval_ms is 1 ms; 10 to 60000 are possible\n"


def test_a_refused_once_is_wrong_use_in_words(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--once-s=1", "--interval-ms=1", "--brokers=127.0.0.1:1"]) == WRONG_USE
    assert capfd.readouterr().err.startswith("rollcall: interval_ms is 1 ms")


def test_once_is_ended_by_a_signal_and_logs_what_it_is_asked_to() -> None:
    """By default it has a table alone; with a level, lines beside it. The level of the variable counts, too."""
    command = [sys.executable, "-m", "rollcall_ha.probe", "--brokers=127.0.0.1:1", "--once-s=600", "--log-format=json"]
    environment = {**os.environ, "ROLLCALL_LOG_LEVEL": "warning"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment, text=True) as probe:
        assert probe.stderr is not None
        told = msgspec.json.decode(probe.stderr.readline())
        probe.send_signal(signal.SIGTERM)
        _, rest = probe.communicate(timeout=TIMEOUT_S)
    assert (told["event"], told["level"], told["process"]) == ("no_set_found", "warning", "probe")
    assert probe.returncode == 4
    assert rest.splitlines()[-1].startswith("rollcall: no set was found: 127.0.0.1:1: ")
