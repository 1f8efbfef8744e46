"""
A server process: one uvloop loop, signals that we own, exit codes that a supervisor can read.

Rule: SIGTERM and SIGINT ask to stop, and SIGHUP where it says that the terminal is gone; the main coroutine stops
cleanly and returns the exit code. A second one asks to do without what others would like first.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Coroutine
from enum import IntEnum

import uvloop

from rollcall_ha.node.standard_error import say

SWITCH_INTERVAL_SECONDS = 0.0005
"""Hand-over between threads: with the default of 5 ms, busy threads cost elections (docs/pysyncobj.md)."""


COLLECTOR_THRESHOLDS = (5_000, 20, 50)
"""
New objects before the cycle collector looks at the young ones, and how often before it looks at older ones and at all.

State is many frozen values without cycles. With Python's (700, 10, 10), 250 broker sets cost a tenth of a controller's
processor time and, for a look at everything, 64 ms without an answer.
"""


class ExitCode(IntEnum):
    """Why a server ended; a supervisor restarts all but CONFIG and DIRECTORY."""

    OK = 0
    FAILED = 1
    CONFIG = 64
    DIRECTORY = 65
    """The data directory must not be used: damaged, foreign or taken."""
    ADDRESS_IN_USE = 66
    STORAGE = 72
    """A write or sync failed: never retried (node.files)."""
    RAFT = 73
    NOT_DETERMINISTIC = 74
    """MemoryError or an internal fault inside apply."""
    FEATURE_LEVEL = 75
    WATCHDOG = 76


class StopAsked(asyncio.Event):
    """Set by the first SIGTERM or SIGINT; ``again`` by the second."""

    def __init__(self) -> None:
        super().__init__()
        self.again = asyncio.Event()

    def ask(self) -> None:
        """A signal came: the first one sets this event, any later one ``again``."""
        (self.again if self.is_set() else self).set()


def run(main: Callable[[StopAsked], Coroutine[None, None, int]]) -> int:
    """
    Run ``main(stop)`` on a uvloop loop and return its exit code.

    ``stop`` is set by the first signal that asks for it, ``stop.again`` by the second.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_SECONDS)
    # Modules stay for the life of the process: the collector need not go through them again.
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    _raise_open_files_limit()

    async def runner() -> int:
        stop = StopAsked()
        loop = asyncio.get_running_loop()

        def asked() -> None:
            stop.ask()
            tell_supervisor("STOPPING=1")

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, asked)
        # Of nohup it stays as it is. By default it ends the process on the spot: of a whole fleet, where a job that
        # rotates logs sends it to all of them at midnight. There is nothing to read again, files are watched.
        if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
            has_terminal = sys.stdin is not None and sys.stdin.isatty()
            loop.add_signal_handler(signal.SIGHUP, asked if has_terminal else lambda: None)
        return await main(stop)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop_runner:
        return loop_runner.run(runner())


def tell_supervisor(state: str) -> None:
    """
    Tell systemd ``READY=1`` or ``STOPPING=1`` (sd_notify(3)); does nothing where no supervisor listens.

    Never raises: a supervisor that cannot be told gives up by its own timeout, and says so.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as link:
            # A supervisor that hangs takes no message, and would hold up the loop.
            link.setblocking(False)
            # "@" stands for the zero byte with which a name outside of the file system begins.
            link.sendto(state.encode(), address.replace("@", "\0", 1) if address.startswith("@") else address)
    except OSError as error:
        say(f"rollcall: {state} could not be sent to NOTIFY_SOCKET {address!r}: {error}")


def _raise_open_files_limit() -> None:
    """Use what the system grants: thousands of sessions need a descriptor each."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
