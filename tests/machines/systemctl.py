"""
``systemctl`` for a machine without systemd as its first process: it runs what the units of ``deploy/systemd`` say.

Here: ``daemon-reload``, ``enable``, ``disable``, ``start``, ``stop`` and ``kill`` of units of Type=notify, by one process
that supervises each of them. Not here: what a unit may see and do of the system (``tests/unit/test_systemd.py``).

Of a unit count: ExecStart, User, WorkingDirectory, UMask, Restart=always with RestartSec and RestartPreventExitStatus,
TimeoutStopSec. What it prints is in ``/var/lib/journal/UNIT.log``.
"""

from __future__ import annotations

import argparse
import os
import re
import select
import shlex
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

UNITS, STATE = Path("/etc/systemd/system"), Path("/var/lib/journal")
INSTALLED = "/opt/rollcall/bin/rollcall"
"""The units' program; here it is where the PATH has it."""
READY = b"ready\n"


def settings(unit: str) -> dict[str, str]:
    """The newest word of each key, with the instance in the place of ``%i``."""
    name, _, instance = unit.partition("@")
    text = (UNITS / (f"{name}@.service" if instance else f"{name}.service")).read_text()
    return {key: value.replace("%i", instance) for key, value in re.findall(r"(?m)^(\w+)=(.*)$", text)}


def supervise(unit: str, told: int) -> None:
    """Run it until it is stopped, or ends with a status after which it is not started again; ``told``: a pipe."""
    unit_says = settings(unit)
    wakes, woken = os.pipe()
    main: subprocess.Popen[bytes] | None = None

    def stop(*_: object) -> None:
        os.write(woken, b".")
        if main is not None:
            main.terminate()

    def is_stopping(within_s: float) -> bool:
        return bool(select.select([wakes], [], [], within_s)[0])

    def hear() -> None:
        while b"READY=1" not in supervisor.recv(4096):
            pass
        os.write(told, READY)
        while True:
            supervisor.recv(4096)

    signal.signal(signal.SIGTERM, stop)
    at = STATE / f"{unit}.notify"
    at.unlink(missing_ok=True)
    kept_down = set(map(int, unit_says["RestartPreventExitStatus"].split()))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as supervisor:
        supervisor.bind(str(at))
        at.chmod(0o777)
        threading.Thread(target=hear, daemon=True).start()
        while not is_stopping(0):
            main = subprocess.Popen(
                command_of(unit_says),
                cwd=unit_says["WorkingDirectory"],
                env={**os.environ, "NOTIFY_SOCKET": str(at)},
                umask=int(unit_says["UMask"], 8),
            )
            (STATE / f"{unit}.main").write_text(str(main.pid))
            if is_stopping(0):
                main.terminate()
            if main.wait() in kept_down or is_stopping(float(unit_says["RestartSec"])):
                break


def command_of(unit_says: dict[str, str]) -> list[str]:
    """As the unit's user. It may read all: the interpreter of the tests may lie in a folder of root; it writes its own."""
    user = unit_says["User"]
    rights = [f"--{what}-caps=-all,+dac_read_search" for what in ("inh", "ambient")]
    words = shlex.split(unit_says["ExecStart"].replace(INSTALLED, "rollcall"))
    return ["setpriv", f"--reuid={user}", f"--regid={unit_says['Group']}", "--clear-groups", *rights, *words]


def start(unit: str) -> None:
    """Comes back when it is ready. Raises ``SystemExit`` if it ends before."""
    if supervisor_of(unit) is not None:
        return
    STATE.mkdir(exist_ok=True)
    heard, told = os.pipe()
    words = [sys.executable, __file__, "supervise", unit, str(told)]
    with (STATE / f"{unit}.log").open("ab") as log:
        made = subprocess.Popen(
            words, pass_fds=[told], start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    (STATE / f"{unit}.supervisor").write_text(str(made.pid))
    os.close(told)
    with os.fdopen(heard, "rb") as pipe:
        if pipe.readline() != READY:
            sys.exit(f"{unit} did not start: {(STATE / f'{unit}.log').read_text()[-2000:]}")


def supervisor_of(unit: str) -> int | None:
    """A descriptor of the process that supervises a unit, readable once it has ended; None: it has."""
    try:
        return os.pidfd_open(int((STATE / f"{unit}.supervisor").read_text()))
    except (FileNotFoundError, ProcessLookupError):
        return None


def stop(unit: str) -> None:
    """Comes back when it has ended; killed after TimeoutStopSec."""
    supervisor = supervisor_of(unit)
    if supervisor is None:
        return
    signal.pidfd_send_signal(supervisor, signal.SIGTERM)
    if not select.select([supervisor], [], [], float(settings(unit)["TimeoutStopSec"]))[0]:
        kill(unit, signal.SIGKILL)
        select.select([supervisor], [], [])
    os.close(supervisor)


def kill(unit: str, number: int) -> None:
    os.kill(int((STATE / f"{unit}.main").read_text()), number)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("verb")
    parser.add_argument("unit", nargs="?", default="")
    parser.add_argument("told", nargs="?", type=int)
    parser.add_argument("--now", action="store_true")
    parser.add_argument("--signal", default="TERM")
    asked = parser.parse_intermixed_args()
    if asked.verb == "supervise":
        supervise(asked.unit, asked.told)
    elif asked.verb == "start" or (asked.verb == "enable" and asked.now):
        start(asked.unit)
    elif asked.verb == "stop" or (asked.verb == "disable" and asked.now):
        stop(asked.unit)
    elif asked.verb == "kill":
        kill(asked.unit, signal.Signals[f"SIG{asked.signal}"])
    elif asked.verb != "daemon-reload":
        sys.exit(f"{asked.verb}: not here")


if __name__ == "__main__":
    main()
