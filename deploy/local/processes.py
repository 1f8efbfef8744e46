"""
Processes that the launcher starts: each in its own process group, with a log file and a pid file.

Here: start, look, signal, wait; ports in use. Not here: what a fleet is (``fleet``), faults in files (``faults``).

Rule 1: a process is named by pid AND creation time; a pid that another process has by now is never signalled.
Rule 2: only processes that this launcher started, by its own record in ``run/``, are ever signalled.
Rule 3: every wait has a deadline, and its error says for which condition.

``run/NAME.pid`` holds the bare pid, so that ``kill -9 $(cat run/NAME.pid)`` works; ``run/NAME.json`` the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import Protocol

import psutil

import rollcall_ha
from rollcall_ha.controller.contract.values import Frozen

POLL_MS_MIN, POLL_MS_MAX = 10, 50
"""Between two looks: most of them ask a server that needs the same core to get ready."""
POLL_SHARE = 0.05
"""Of the time that was waited so far, between these two: a wait is at most so much longer than it had to be."""
PORT_FIRST, PORT_LAST = 20_000, 30_000
"""Free ports are looked for here: below the ephemeral range, clear of RocketMQ's 9876 and 10909-10912."""
BLOCK_PORTS = 500
"""Of one process that launches; the first of them is its claim."""
_CREATED_TOLERANCE_S = 0.05


class LauncherError(RuntimeError):
    """The launcher cannot do what was asked; the message says why and what to do."""


class PortInUseError(LauncherError):
    """Another process listens on a port of the fleet."""


class DeadlineError(LauncherError):
    """A condition did not come true in time; the message names it, and the state that was seen last."""


class ProcessRecord(Frozen):
    pid: int
    created_s: float
    """Creation time as psutil reports it."""


class Child(Protocol):
    """A process that was started here, as this module needs it: ``subprocess.Popen`` is one."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None:
        """None while it lives; then its exit status, and it is reaped."""


class Processes:
    """The processes of one directory. Not for several threads."""

    popen: Callable[..., Child] = subprocess.Popen
    """Starts a process; takes the arguments of ``subprocess.Popen`` that ``start`` gives it."""

    def __init__(self, directory: Path) -> None:
        """Use ``directory/run`` and ``directory/log``; both are created."""
        self.run = directory / "run"
        self.log = directory / "log"
        self._children: dict[int, Child] = {}
        self.run.mkdir(parents=True, exist_ok=True)
        self.log.mkdir(parents=True, exist_ok=True)

    def start(self, name: str, argv: Sequence[str], *, ports: Sequence[tuple[str, int]] = ()) -> int:
        """
        Start a process in a group of its own; what it prints is appended to ``log/NAME.log``.

        Returns:
            Its pid.

        Raises:
            LauncherError: one of this name runs already.
            PortInUseError: one of its ports is taken.
        """
        if (running := self.pid(name)) is not None:
            raise LauncherError(f"{name} runs already as pid {running}; stop it first")
        # Before the start, to name the process that has the port: the server's own error is a line in its log.
        for host, port in ports:
            require_free(host, port)
        with (self.log / f"{name}.log").open("ab") as output:
            child = self.popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A session of its own: Ctrl-C at the demo would reach all brokers at once, as a clean stop of the
                # fleet.
                start_new_session=True,
                env=our_environment(),
                cwd=self.run.parent,
            )
        self._children[child.pid] = child
        record = {"pid": child.pid, "created_s": psutil.Process(child.pid).create_time(), "argv": list(argv)}
        (self.run / f"{name}.json").write_text(json.dumps(record) + "\n")
        (self.run / f"{name}.pid").write_text(f"{child.pid}\n")
        return child.pid

    def names(self) -> tuple[str, ...]:
        """Every name that was ever started here and not forgotten, sorted."""
        return tuple(sorted(path.stem for path in self.run.glob("*.json")))

    def running(self) -> tuple[str, ...]:
        """Names of the processes that are alive."""
        return tuple(name for name in self.names() if self.pid(name) is not None)

    def record(self, name: str) -> ProcessRecord | None:
        """The record of ``name``, alive or not."""
        try:
            found = json.loads((self.run / f"{name}.json").read_text())
        except (FileNotFoundError, ValueError):
            return None
        return ProcessRecord(pid=int(found["pid"]), created_s=float(found["created_s"]))

    def pid(self, name: str) -> int | None:
        """Pid of ``name`` if it is alive and still the process that was started; a zombie is dead."""
        record = self.record(name)
        if record is None:
            return None
        if (child := self._children.get(record.pid)) is not None:
            # Only when it can be reaped is it gone: its first thread is a zombie before the last one lets go of ports.
            return record.pid if child.poll() is None else None
        try:
            process = psutil.Process(record.pid)
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            # Rule 1: after a reboot pid 4711 of yesterday's broker may be the user's editor.
            same = abs(process.create_time() - record.created_s) <= _CREATED_TOLERANCE_S
        except psutil.NoSuchProcess:
            return None
        return record.pid if same else None

    def signal(self, name: str, number: signal.Signals) -> int:
        """Send a signal to the process of ``name``; returns its pid. Raises ``LauncherError`` if it does not run."""
        pid = self.pid(name)
        if pid is None:
            known = ", ".join(self.names()) or "nothing"
            raise LauncherError(f"{name} does not run; started here: {known}")
        os.kill(pid, number)
        return pid

    def kill(self, name: str, *, deadline_s: float = 5.0) -> None:
        """SIGKILL, and wait until it is gone."""
        self.signal(name, signal.SIGKILL)
        self.wait_gone(name, deadline_s=deadline_s)

    def wait_gone(self, name: str, *, deadline_s: float) -> None:
        """Return when the process of ``name`` has ended. Raises ``DeadlineError``."""
        wait_until(lambda: self.pid(name) is None, deadline_s=deadline_s, what=f"{name} to be gone")

    def terminate(self, name: str, *, deadline_s: float = 10.0) -> None:
        """SIGTERM (and SIGCONT, should it be stopped), and wait; after the deadline SIGKILL."""
        if self.pid(name) is None:
            return
        with contextlib.suppress(LauncherError, ProcessLookupError):
            self.signal(name, signal.SIGTERM)
            self.signal(name, signal.SIGCONT)
        try:
            self.wait_gone(name, deadline_s=deadline_s)
        except DeadlineError:
            with contextlib.suppress(LauncherError, ProcessLookupError):
                self.kill(name)

    def forget(self, name: str) -> None:
        """Remove the pid file of one that does not run."""
        for suffix in ("pid", "json"):
            (self.run / f"{name}.{suffix}").unlink(missing_ok=True)

    def tail(self, name: str, lines: int = 15) -> str:
        """The end of its log, for error messages."""
        try:
            content = (self.log / f"{name}.log").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(content[-lines:]) or "(empty log)"


def our_environment() -> dict[str, str]:
    """Environment in which a child runs the same code as we do, also from a checkout that is not installed."""
    return {**os.environ, "PYTHONPATH": str(Path(rollcall_ha.__file__).resolve().parents[1])}


def python_module(module: str, *arguments: str) -> list[str]:
    """Command line that runs a module of ours under this interpreter; no file of the working directory shadows one."""
    return [sys.executable, "-P", "-m", module, *arguments]


def wait_until(condition: Callable[[], object], *, deadline_s: float, what: str) -> float:
    """
    Wait until ``condition`` is true.

    Returns:
        Seconds that it took.

    Raises:
        DeadlineError: it was not within ``deadline_s``.
    """
    began = time.monotonic()
    while not condition():
        waited_s = time.monotonic() - began
        if waited_s > deadline_s:
            raise DeadlineError(f"waited {deadline_s:.1f} s for {what}")
        time.sleep(min(POLL_MS_MAX, max(POLL_MS_MIN, waited_s * 1000 * POLL_SHARE)) / 1000)
    return time.monotonic() - began


def is_free(host: str, port: int) -> bool:
    """Whether we could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def require_free(host: str, port: int) -> None:
    """Raise ``PortInUseError`` with the pid that has the port, if the system tells."""
    if is_free(host, port):
        return
    holder = ""
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("inet"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port:
                holder = f" by pid {connection.pid}" if connection.pid else ""
                break
    raise PortInUseError(f"port {port} is in use{holder}; stop that process, or choose other ports in the fleet file")


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """``count`` different ports on which no process listens now, from ``PORT_FIRST`` to ``PORT_LAST``."""
    free = (port for port in islice(_own_ports(), BLOCK_PORTS - 1) if is_free(host, port))
    found = list(islice(free, count))
    if len(found) < count:
        raise LauncherError(f"only {len(found)} of {count} ports are free on {host}; {BLOCK_PORTS - 1} were looked at")
    return found


@cache
def _own_ports() -> Iterator[int]:
    """
    A block of ports that no other process launches from while this one lives, each port of it in turn.

    A port that is free is not taken by that: two launchers found the same one free before either of their brokers
    listened there, or while the broker of one of them was down, and the other broker could not start.
    """
    firsts = list(range(PORT_FIRST, PORT_LAST, BLOCK_PORTS))
    random.Random().shuffle(firsts)  # noqa: S311 - nobody gains by a guess; of its own: the tests seed the shared one
    for first in firsts:
        claim = socket.socket()
        # Without SO_REUSEADDR: with it two processes could hold one claim, as neither of them listens.
        try:
            claim.bind(("127.0.0.1", first))
        except OSError:
            claim.close()
        else:
            claim.detach()  # held until this process ends
            return cycle(range(first + 1, first + BLOCK_PORTS))
    raise LauncherError(f"other processes hold every block of {BLOCK_PORTS} ports from {PORT_FIRST} to {PORT_LAST}")
