"""
The commands ``rollcall hooks``.

Here: names, options and help. Not here: what they do (``rollcall_ha.hooks``, a program of its own, reached by exec).
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NoReturn

import typer

from rollcall_ha.cli import run
from rollcall_ha.cli.groups import Verbs
from rollcall_ha.cli.options import LogFormatOption, LogLevelOption, PlainOption, PlainOutput
from rollcall_ha.node.log_options import log_arguments

app = Verbs(no_args_is_help=True, rich_markup_mode=None)
FileOption = Annotated[Path, typer.Option("--file", help="The settings.")]
SETTINGS = Path("hooks.toml")


def _verb(name: str, *arguments: str, output: PlainOutput = PlainOutput.TABLE) -> NoReturn:
    told = ["--json"] if output is PlainOutput.JSON else []
    run.module("rollcall_ha.hooks", name, *told, *arguments)


@app.command("run")
def hooks_run(
    *,
    file: FileOption = SETTINGS,
    accept_fleet: Annotated[
        str,
        typer.Option(metavar="INCARNATION", help="Read the record of this fleet from its end on, in place of ours."),
    ] = "",
    log_format: LogFormatOption = None,
    log_level: LogLevelOption = None,
) -> None:
    """Follow the record of a fleet, and deliver, in this process. Any number of controllers may be away."""
    accepted = [f"--accept-fleet={accept_fleet}"] if accept_fleet else []
    _verb("run", f"--file={file}", *accepted, *log_arguments(log_format, log_level))


@app.command("check")
def hooks_check(
    file: Annotated[Path, typer.Argument(help="The settings.")] = SETTINGS, output: PlainOption = PlainOutput.TABLE
) -> None:
    """Judge a file of settings, and whether what it names is here. Nothing is asked or sent."""
    _verb("check", f"--file={file}", output=output)


@app.command("test")
def hooks_test(
    name: Annotated[str, typer.Argument(help="A hook of the settings.")],
    *,
    file: FileOption = SETTINGS,
    output: PlainOption = PlainOutput.TABLE,
) -> None:
    """Deliver a test event now, once. Exit code 1: it was not taken."""
    _verb("test", f"--file={file}", "--", name, output=output)


@app.command("dead-letters")
def hooks_dead_letters(*, file: FileOption = SETTINGS, output: PlainOption = PlainOutput.TABLE) -> None:
    """Deliveries that were given up, each with its last reason. The oldest comes first."""
    _verb("dead-letters", f"--file={file}", output=output)


@app.command("retry")
def hooks_retry(
    identity: Annotated[str | None, typer.Argument(metavar="[ID]", help="The id of one dead letter.")] = None,
    *,
    is_all: Annotated[bool, typer.Option("--all", help="Every one.")] = False,
    file: FileOption = SETTINGS,
    output: PlainOption = PlainOutput.TABLE,
) -> None:
    """Deliver dead letters again, behind what waits. The running process hears of it within a second."""
    arguments = [*(["--all"] if is_all else []), *(["--", identity] if identity is not None else [])]
    _verb("retry", f"--file={file}", *arguments, output=output)


@app.command("take")
def hooks_take(*, file: FileOption = SETTINGS, output: PlainOption = PlainOutput.TABLE) -> None:
    """
    Pass alerts of analytics stream on to hooks that want them.

    They are read from standard input.

    The running process delivers them as it delivers events: signed, again after a failure, in order per set.
    """
    _verb("take", f"--file={file}", output=output)


@app.command("secret")
def hooks_secret(
    file: Annotated[Path, typer.Argument(help="Where it is written, with mode 0600; it must not exist.")],
) -> None:
    """Write a new secret for signatures; it is never printed."""
    _verb("secret", "--", str(file))
