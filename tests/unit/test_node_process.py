"""A server process owns its signals and says why it ended."""

from __future__ import annotations

import signal
import subprocess
import sys

PROGRAM = """
import asyncio, gc, sys
from rollcall_ha.node.process import ExitCode, run
async def main(stop):
    loop = type(asyncio.get_running_loop()).__module__
    print("ready", sys.getswitchinterval(), loop, gc.get_freeze_count() > 0, *gc.get_threshold(), flush=True)
    await stop.wait()
    if "twice" in sys.argv:
        print("asked", flush=True)
        await stop.again.wait()
    return ExitCode.DIRECTORY
sys.exit(run(main))
"""


def test_sigterm_stops_the_main_coroutine_and_its_code_is_the_exit_code() -> None:
    """The loop is uvloop's, switch interval and collector are set, SIGTERM is an orderly stop."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().split() == ["ready", "0.0005", "uvloop", "True", "5000", "20", "50"]
        process.send_signal(signal.SIGTERM)

        assert process.wait(timeout=10) == 65
    finally:
        process.kill()
        process.communicate()


def test_a_second_signal_is_told_apart_from_the_first() -> None:
    """A broker that hands over stops without it then."""
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, "twice"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGINT)

        assert process.wait(timeout=10) == 65
    finally:
        process.kill()
        process.communicate()
