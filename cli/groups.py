"""
Groups of verbs: their help in panels, and verbs that are imported when one of them is asked for.

Here: how a group lists its verbs and finds one, and ends what cannot be typed; ``Verbs``, in which they are declared;
``lazy``, which names the module of a group. Not here: which groups there are (``main``), their verbs (a module for
each, which calls its group ``app``), how words are read (``words``).
Rule 1: what stands in the list of verbs is known without the module: ``rollcall --help`` and the completion of its
first word pay for none. Nor does a verb pay for the options of the others.
Rule 2: the first sentence of a help is its summary. It has at most ``SUMMARY_MAX`` characters, so that a terminal of 80
columns shows all of it behind the longest name.
Rule 3: wrong use is one line: what was typed, what is taken, and where all of that stands. Typer's own three lines have
the limit without the value, or neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import typer.main
from typer.core import TyperCommand, TyperGroup

from rollcall_ha.cli.output import CommandExit, fail
from rollcall_ha.cli.words import read_plainly, told_of

SUMMARY_MAX = 60
Verb = TypeVar("Verb", bound=Callable[..., Any])


class Panel(StrEnum):
    """What a verb is for, in the order of the help."""

    LOOK = "Look"
    MESSAGES = "Messages"
    ORDER = "Order"
    MAINTAIN = "Maintain"
    INSTALL = "Install"


@contextmanager
def _one_line(group: Any) -> Iterator[None]:
    """A refusal of typer within ends the command (2) by rule 3; ``group``: the context of the verb's group, or None."""
    try:
        yield
    except typer.TyperException as error:
        # A group without a verb answers by its help, which typer raises as a refusal.
        if error.message.startswith("Usage: "):
            raise
        at = getattr(error, "ctx", None)
        # The parser of an option that lacks its value knows no context: the verb is the one that was asked for.
        path = at.command_path if at else f"{group.command_path} {group.invoked_subcommand}" if group else "rollcall"
        words = told_of(error).rstrip(".")
        told = f"rollcall: {words}{'' if words.endswith('?') else '.'} See: {path} --help"
        raise fail(told, CommandExit.WRONG_USE) from None


class Verbs(typer.Typer):
    """
    A typer program that reads the signature of a verb when that one is asked for.

    Typer reads those of all verbs for each that runs: a seventh of the time that a command takes.
    """

    def command(self, name: str | None = None, **settings: Any) -> Callable[[Verb], Verb]:
        def declare(verb: Verb) -> Verb:
            def later() -> None:
                """Has no options, for typer reads it now."""

            def make() -> Any:
                alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
                alone.command(name, **settings)(verb)
                return read_plainly(typer.main.get_command(alone))

            later.__name__, later.__doc__ = verb.__name__, verb.__doc__
            kind = type("LaterVerb", (LaterVerb,), {"make": staticmethod(make)})
            super(Verbs, self).command(name, cls=kind, **settings)(later)
            return verb

        return declare


class LaterVerb(TyperCommand):
    """A verb's place in the list of its group."""

    make: ClassVar[Any]
    """Makes the verb, with its options."""


class VerbGroup(TyperGroup):
    """
    A group that lists its verbs by panel; those without one are "Commands".

    Typer does so with rich only, whose import takes longer than all else that ``--help`` does.
    Contexts, formatters and commands have the type Any: typer keeps click's own classes to itself.
    """

    def __init__(self, **made: Any) -> None:
        """As typer makes it."""
        super().__init__(**made)
        read_plainly(self)

    def make_context(self, *given: Any, **extra: Any) -> Any:
        with _one_line(None):
            return super().make_context(*given, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _one_line(ctx):
            return super().invoke(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if isinstance(found, LaterVerb):
            found = self.commands[cmd_name] = found.make()
        return found

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        # Not by ``get_command``: it would read the signatures of all of them for their first sentences.
        verbs: dict[str, Any] = {name: self.commands[name] for name in self.list_commands(ctx)}
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
        for verb in self.commands.values():
            read_plainly(verb)
        self.invoke_without_command, self.no_args_is_help = found.invoke_without_command, found.no_args_is_help


def lazy(place: str, help: str) -> typer.Typer:  # noqa: A002 - as typer's
    """What ``add_typer`` takes for the group at ``place``, which is a text, so that nothing is imported for it."""
    made = type("LazyGroup", (LazyGroup,), {"place": place})
    return typer.Typer(cls=made, help=help, rich_markup_mode=None)
