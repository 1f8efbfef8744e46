"""
Typer's runner of commands, for a ``rollcall`` that is put together once.

Typer reads the signatures of all commands again for each one that is run: nine tenths of the time of a test that runs
one. What it makes of them holds nothing of a run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest
from typer import testing
from typer.main import get_command

from rollcall_ha.cli import context
from rollcall_ha.cli.main import app
from rollcall_ha.client.client import Client
from tests.support.fake_controllers import NAMES, FakeControllers

vars(testing)["_get_command"] = cache(get_command)

CliRunner = testing.CliRunner


@dataclass
class Ran:
    """What a command left."""

    code: int
    out: str
    err: str


Run = Callable[..., Ran]


def scripted(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command, named behind a script, against the controllers of that script."""

    def run(script: dict[tuple[str, str, str], object], *arguments: str) -> Ran:
        transport = FakeControllers(script).transport()

        def make() -> Client:
            ticks = iter(range(10_000))
            return Client(NAMES, transport=transport, clock=lambda: float(next(ticks)), pause=lambda _: None)

        monkeypatch.setattr(context, "make_client", make)
        done = CliRunner().invoke(app, list(arguments))
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Ran(done.exit_code, done.stdout, done.stderr)

    return run
