"""The walk through the CLI leaves no command out; its answers are in tests/machines/test_story.py."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from rollcall_ha.cli.main import app
from rollcall_ha.deploy.local.walk import OFFLINE, PLANS


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    """Every command, and each group that answers by itself; verbs of offline groups are asked without a plan."""
    for name, found in group.commands.items():
        if name in OFFLINE:
            continue
        here = (*path, name)
        if not hasattr(found, "commands"):
            yield " ".join(here)
            continue
        if found.invoke_without_command:
            yield " ".join(here)
        yield from commands(found, here)


def test_every_command_has_a_plan() -> None:
    """A new command: give it a plan in deploy/local/walk.py, with the exit code that it must have."""
    assert set(commands(typer.main.get_command(app))) - set(PLANS) == set()
