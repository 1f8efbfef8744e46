"""
Commands that become another program: ``exec`` keeps the process id, so that supervisors and pid files stay right.

No code of a server or of the demo is imported here.
"""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import rollcall_ha
from rollcall_ha.cli.output import CommandExit, fail

IMPORT_ROOT = str(Path(rollcall_ha.__file__).resolve().parents[1])
"""The folder in which ``rollcall_ha`` was found: the next program must find the same one."""


def module(name: str, *arguments: str) -> NoReturn:
    """
    Become ``python -m name arguments``, with the same code as ours.

    Raises ``typer.Exit`` if this installation has no such module (2).
    """
    command, environment = command_of(name, *arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, command, environment)


def command_of(name: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """The command and environment of ``module``, for a program that runs beside this one. Raises as it does."""
    try:
        found = find_spec(name) is not None
    except ModuleNotFoundError:
        found = False
    if not found:
        raise fail(f"rollcall: this installation has no {name}", CommandExit.WRONG_USE)
    search_path = os.pathsep.join([IMPORT_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])])
    # -P: without it the working directory comes first, and a user's own typer.py there would be ours.
    command = [sys.executable, "-P", "-m", name, *arguments]
    return command, {**os.environ, "PYTHONPATH": search_path}
