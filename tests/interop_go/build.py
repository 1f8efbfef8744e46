"""
RocketMQ's client for Go in a small program of ours, built from what Go's module proxy serves.

Here: find Go, build. Not here: what the program does (``main.go``), who starts it (``tests.interop_java.clients``).
Rule: what cannot be had is ``GoUnavailableError``, whose message says what was tried; callers skip and count.

The client is the newest that the proxy has: its last release, 2.1.2 of 2023, takes a refusal of a message that it gives back
for a yes, and loses it.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from rollcall_ha.deploy.local.processes import LauncherError

HERE = Path(__file__).resolve().parent
BUILD_DEADLINE_S = 600.0
REASON_CHARACTERS_MAX = 600


class GoUnavailableError(LauncherError):
    """Go or the client's modules cannot be had here; the message says which and why."""


def build(directory: Path) -> Path:
    """
    The program, in ``directory``.

    Raises:
        GoUnavailableError: it cannot be built on this machine.
    """
    go = shutil.which("go")
    if go is None:
        raise GoUnavailableError("no go here; run as root: apt-get install golang-go")
    program = directory.resolve() / "interop"
    argv = [go, "build", "-buildvcs=false", "-o", str(program), "."]
    try:
        done = subprocess.run(argv, cwd=HERE, capture_output=True, text=True, timeout=BUILD_DEADLINE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GoUnavailableError(f"could not build the Go client: {error}") from error
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip()[:REASON_CHARACTERS_MAX]
        raise GoUnavailableError(f"could not build the Go client: {said or f'status {done.returncode}'}")
    return program
