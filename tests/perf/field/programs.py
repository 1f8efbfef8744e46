"""
Programs of other people: where ``deploy/setup.sh field`` has laid them, and their processes.

Here: find, run as somebody who is not root, end. Not here: where they come from (``deploy/setup.sh``, and for Java
``tests.interop_java.artifacts``).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rollcall_ha.deploy.local.processes import LauncherError, Processes, wait_until
from tests.interop_java.artifacts import cache_directory
from tests.perf.field.system import READY_S_MAX, RefusedError, UnavailableError

REMEDY = "run: deploy/setup.sh field .venv"
VERSION_S_MAX = 20.0
GONE_S_MAX = 30.0
_LIBRARIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu")


def program(name: str, package: str, folders: str = "usr/bin") -> Path:
    """
    A program of a Debian package: out of the cache, or as it is installed here.

    ``folders``: a pattern below the root, of which the last match in the order of names is taken.
    Raises ``UnavailableError``.
    """
    for root in (cache_directory() / "field" / package, Path("/")):
        found = sorted(root.glob(f"{folders}/{name}"))
        if found:
            return found[-1]
    raise UnavailableError(f"no {name} of Debian's package {package}; {REMEDY}")


def command(path: Path, *arguments: str) -> list[str]:
    """The command line of a program, which finds the libraries that lie beside it."""
    root = next((up for up in path.parents if up.parent == cache_directory() / "field"), None)
    folders = [str(root / folder) for folder in _LIBRARIES if (root / folder).is_dir()] if root else []
    beside = ["env", f"LD_LIBRARY_PATH={':'.join(folders)}"] if folders else []
    return [*beside, str(path), *arguments]


def version(path: Path) -> str:
    """The first number with a dot that ``--version`` says. Raises ``UnavailableError`` if it does not run."""
    argv = command(path, "--version")
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=VERSION_S_MAX, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{path} does not run: {error}") from error
    found = re.search(r"\d+(\.\d+)+", done.stdout)
    if done.returncode or found is None:
        raise UnavailableError(f"{path} does not run: {(done.stderr or done.stdout).strip()[-300:]}")
    return found[0]


def end(processes: Processes) -> None:
    """SIGKILL to all that were started here, those that hang too: what they leave is thrown away."""
    for name in processes.running():
        with suppress(LauncherError, ProcessLookupError):
            processes.kill(name, deadline_s=GONE_S_MAX)


def pid_of(processes: Processes, name: str) -> int:
    """Raises ``LauncherError`` with the end of its log if it does not run."""
    pid = processes.pid(name)
    if pid is None:
        raise LauncherError(f"{name} has ended; the end of its log:\n{processes.tail(name)}")
    return pid


def wait_ready(processes: Processes, condition: Callable[[], object], *, what: str) -> None:
    """Return when it holds; what cannot be asked, or answered, yet does not hold. Raises ``LauncherError``."""

    def holds() -> bool:
        for name in processes.names():
            pid_of(processes, name)
        try:
            return bool(condition())
        except (OSError, RefusedError):
            return False

    wait_until(holds, deadline_s=READY_S_MAX, what=what)


def is_root() -> bool:
    """PostgreSQL's servers refuse to run as root."""
    return os.geteuid() == 0


def require(*names: str) -> None:
    """Raises ``UnavailableError`` for a program of the machine that is not there."""
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise UnavailableError(f"no {', '.join(missing)} here")
