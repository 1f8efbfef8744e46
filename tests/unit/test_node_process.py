"""A server process and its signals."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys

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


def test_a_hangup_of_a_job_that_rotates_logs_ends_no_server() -> None:
    """It ended all nodes of a fleet at once, and none of them cleanly."""
    with subprocess.Popen(
        [sys.executable, "-c", SERVER],
        env=our_environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "up\n"
        server.send_signal(signal.SIGHUP)
        server.terminate()

        assert server.wait(30) == 7


def test_a_hangup_of_the_own_terminal_stops_the_server_cleanly() -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], env=our_environment(), stdin=theirs, stdout=subprocess.PIPE, text=True
    ) as server:
        os.close(theirs)
        assert server.stdout is not None
        assert server.stdout.readline() == "up\n"
        server.send_signal(signal.SIGHUP)

        assert server.wait(30) == 7
    os.close(ours)
