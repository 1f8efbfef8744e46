"""
Groups of verbs: their help in panels, and verbs that are imported when one of them is asked for.

Here: how a group lists its verbs, and ``lazy``, which names the module of a group. Not here: which groups there are
(``main``), their verbs (a module for each, which calls its group ``app``).
Rule 1: what stands in the list of verbs is known without the module: ``rollcall --help`` and the completion of its
first word pay for none.
Rule 2: the first sentence of a help is its summary. It has at most ``SUMMARY_MAX`` characters, so that a terminal of 80
columns shows all of it behind the longest name.
"""

from __future__ import annotations

from enum import StrEnum
from importlib import import_module
from typing import Any, ClassVar

import typer.main
from typer.core import TyperGroup

SUMMARY_MAX = 60
TYPED_SHOWN_MAX = 40
"""Characters of a value that is refused."""


class Panel(StrEnum):
    """What a verb is for, in the order of the help."""

    LOOK = "Look"
    MESSAGES = "Messages"
    ORDER = "Order"
    MAINTAIN = "Maintain"
    INSTALL = "Install"


class VerbGroup(TyperGroup):
    """
    A group that lists its verbs by panel; those without one are "Commands".

    Typer does so with rich only, whose import takes longer than all else that ``--help`` does.
    Contexts, formatters and commands have the type Any: typer keeps click's own classes to itself.
    """

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            # Pydantic's words have the limit alone: which of five numbers of a script was the wrong one?
            refused = getattr(error.__cause__, "errors", None)
            if refused is not None:
                typed = str(refused()[0]["input"])
                error.message = f"{typed[:TYPED_SHOWN_MAX]!r}: {error.message}"
                # Told once: the groups around this one see it, too.
                error.__cause__ = None
            raise

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        verbs: dict[str, Any] = {name: self.get_command(ctx, name) for name in self.list_commands(ctx)}
        width = max(map(len, verbs), default=0)
        for title in (*Panel, "Commands"):
            listed = [
                (name.ljust(width), verb.get_short_help_str(SUMMARY_MAX))
                for name, verb in verbs.items()
                # Typer's word for "none was given" is a value of its own.
                if title == (verb.rich_help_panel if verb.rich_help_panel in list(Panel) else "Commands")
            ]
            if listed:
                with formatter.section(title):
                    formatter.write_dl(listed)


class LazyGroup(VerbGroup):
    """A group that takes its verbs, and its own options, from ``place`` at the first question for them."""

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


def lazy(place: str, help: str) -> typer.Typer:  # noqa: A002 - as typer's
    """What ``add_typer`` takes for the group at ``place``, which is a text, so that nothing is imported for it."""
    made = type("LazyGroup", (LazyGroup,), {"place": place})
    return typer.Typer(cls=made, help=help, rich_markup_mode=None)
