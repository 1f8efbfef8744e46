"""
Servers that are forked from an interpreter that has imported them: most of the processor time of a fleet's start is the
import of the same modules, six times.

A child runs the program that ``python -m`` would run, in a process, session and directory of its own, with its own signals,
files and ports. Lists of processes show another command line for it, and its modules were imported before it began.
``tests/cluster/test_warm.py`` compares it with the real thing.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import IO, Any

from rollcall_ha.deploy.local.processes import Child, our_environment

SERVERS = ("rollcall_ha.api.server", "rollcall_ha.broker.server")
BYTES_MAX = 1 << 16
"""Of one request: a command line and an environment."""
_turn = Lock()
"""Tests kill from threads: an answer belongs to the question before it."""


class Forked:
    """A child of the warm interpreter: ``rollcall_ha.deploy.local.processes.Child``."""

    def __init__(self, link: socket.socket, request: bytes, output: int) -> None:
        with _turn:
            socket.send_fds(link, [request], [output])
            self.pid = int(link.recv(BYTES_MAX))
        self._link = link
        self._status: int | None = None

    def poll(self) -> int | None:
        """None while it lives; then its exit status, below zero for a signal."""
        if self._status is None:
            with _turn:
                self._link.send(str(self.pid).encode())
                self._status = json.loads(self._link.recv(BYTES_MAX))
        return self._status


class WarmInterpreter:
    """Starts servers of ours; begins with the first of them and ends with whoever began it."""

    def __init__(self) -> None:
        self._link: socket.socket | None = None

    def popen(
        self,
        argv: Sequence[str],
        *,
        stdout: IO[bytes],
        cwd: Path,
        env: dict[str, str],
        **more: Any,
    ) -> Child:
        """
        As ``subprocess.Popen``, which starts all that is no server of ours.

        A server gets a new session, no input, and ``stdout`` for its errors too, as ``Processes.start`` wants it.
        """
        is_ours = tuple(argv[:3]) == (sys.executable, "-P", "-m") and argv[3] in SERVERS
        if not is_ours:
            return subprocess.Popen(argv, stdout=stdout, cwd=cwd, env=env, **more)
        link = self._link = self._link or _begin()
        request = json.dumps({"argv": list(argv[3:]), "cwd": str(cwd), "env": env}).encode()
        return Forked(link, request, stdout.fileno())


def _begin() -> socket.socket:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # A group of its own: Ctrl-C at the tests would end it before the fleets that they stop then.
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, str(its.fileno())],
        pass_fds=[its.fileno()],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env=our_environment(),
        cwd=Path(__file__).parents[2],
    )
    its.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(link: socket.socket) -> list[str]:
    """Fork for each request. Returns in the children, with what they shall run."""
    for module in SERVERS:
        __import__(module)
        # As with ``-m``, it is no module but the program: it is read again, and its imports are there.
        del sys.modules[module]
    gc.collect()
    gc.freeze()
    while True:
        content, descriptors, _, _ = socket.recv_fds(link, BYTES_MAX, 1)
        if not content:
            os._exit(0)
        if not descriptors:
            done, status = os.waitpid(int(content), os.WNOHANG)
            link.send(json.dumps(os.waitstatus_to_exitcode(status) if done else None).encode())
            continue
        if child := os.fork():
            os.close(descriptors[0])
            link.send(str(child).encode())
            continue
        link.close()
        request = json.loads(content)
        os.setsid()
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        for standard in (1, 2):
            os.dup2(descriptors[0], standard)
        os.close(descriptors[0])
        return list(request["argv"])


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.argv = _serve(socket.socket(fileno=int(sys.argv[1])))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
