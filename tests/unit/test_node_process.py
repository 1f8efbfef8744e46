"""A server process and its signals."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rollcall_ha.deploy.local.processes import our_environment

SERVER = """
import asyncio, sys
from rollcall_ha.node.process import run
async def main(stop):
    print("up", flush=True)
    await stop.wait()
    return 7
sys.exit(run(main))
"""


@contextmanager
def served(stdin: int) -> Iterator[subprocess.Popen[str]]:
    """The server, up. Tests that run under nohup would hand its deafness on, and wait for ever."""
    command = [sys.executable, "-c", SERVER]
    with subprocess.Popen(
        command, env=our_environment(), stdin=stdin, stdout=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509 (no threads here)
    ) as server:  # fmt: skip
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "up\n"
            yield server
        finally:
            server.kill()


def test_a_hangup_of_a_job_that_rotates_logs_ends_no_server() -> None:
    """It ended all nodes of a fleet at once, and none of them cleanly."""
    with served(subprocess.DEVNULL) as server:
        server.send_signal(signal.SIGHUP)
        server.terminate()

        assert server.wait(30) == 7


def test_a_hangup_of_the_own_terminal_stops_the_server_cleanly() -> None:
    ours, theirs = pty.openpty()
    try:
        with served(theirs) as server:
            os.close(theirs)
            server.send_signal(signal.SIGHUP)

            assert server.wait(30) == 7
    finally:
        os.close(ours)
