"""
Typer's runner of commands, for a ``rollcall`` that is put together once.

Typer reads the signatures of all commands again for each one that is run: nine tenths of the time of a test that runs
one. What it makes of them holds nothing of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from typer import testing
from typer.main import get_command

vars(testing)["_get_command"] = cache(get_command)

CliRunner = testing.CliRunner


@dataclass
class Ran:
    """What a command left."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]
