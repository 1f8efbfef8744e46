"""
Groups of verbs that are imported when one of them is asked for.

Here: ``lazy``, which names the module of a group. Not here: which groups there are (``main``), their verbs (a module
for each, which calls its group ``app``).
Rule: what stands in the list of verbs is known without the module: ``rollcall --help`` and the completion of its first
word pay for none.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar

import typer.main
from typer.core import TyperGroup


class LazyGroup(TyperGroup):
    """
    A group that takes its verbs, and its own options, from ``place`` at the first question for them.

    Contexts and commands have the type Any: typer keeps click's own classes to itself.
    """

    place: ClassVar[str]
    """The module, and behind a colon the name of its group, if that is not ``app``."""

    def make_context(self, *given: Any, **extra: Any) -> Any:
        self._load()
        return super().make_context(*given, **extra)

    def get_params(self, ctx: Any) -> list[Any]:
        self._load()
        return super().get_params(ctx)

    def list_commands(self, ctx: Any) -> list[str]:
        self._load()
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        self._load()
        return super().get_command(ctx, cmd_name)

    def _load(self) -> None:
        if self.commands:
            return
        module, _, name = self.place.partition(":")
        found = typer.main.get_group(getattr(import_module(module), name or "app"))
        self.commands, self.params, self.callback = found.commands, found.params, found.callback
        self.invoke_without_command, self.no_args_is_help = found.invoke_without_command, found.no_args_is_help


def lazy(place: str, *, help: str) -> typer.Typer:  # noqa: A002 - as typer's
    """What ``add_typer`` takes for the group at ``place``, which is a text, so that nothing is imported for it."""
    made = type("LazyGroup", (LazyGroup,), {"place": place})
    return typer.Typer(cls=made, help=help, rich_markup_mode=None)
