"""A server process owns its signals and says why it ended."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import asyncio, sys
from node.process import ExitCode, run
async def main(stop):
    print("ready", sys.getswitchinterval(), type(asyncio.get_running_loop()).__module__, flush=True)
    await stop.wait()
    return ExitCode.DIRECTORY
sys.exit(run(main))
"""


def test_sigterm_stops_the_main_coroutine_and_its_code_is_the_exit_code() -> None:
    """The loop is uvloop's, the switch interval is lowered, SIGTERM is an orderly stop."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().split() == ["ready", "0.0005", "uvloop"]
        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=10) == 65
    finally:
        process.kill()
        process.communicate()
