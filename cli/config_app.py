"""The commands ``rollcall config``: names, options, help. What they do is in ``settings``."""

from __future__ import annotations

from typing import Annotated

import typer

from rollcall_ha.cli.options import OperatorOptions, OutputOption, SetArgument, takes_order
from rollcall_ha.cli.output import Format

app = typer.Typer(
    help="Settings of the fleet while it runs: durations and limits.", rich_markup_mode=None, no_args_is_help=True
)


@app.command("show")
def config_show(output: OutputOption = Format.TABLE) -> None:
    """Every key with its value in force, and which nodes work by it."""
    from rollcall_ha.cli import settings

    settings.show(output)


@app.command("diff")
def config_diff(
    before: Annotated[int, typer.Argument(metavar="[FROM]", help="A version; 0: the leader's fleet file.")] = 0,
    after: Annotated[int | None, typer.Argument(metavar="[TO]", help="A version; by default the one in force.")] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the keys in which two versions differ."""
    from rollcall_ha.cli import settings

    settings.diff(before, after, output)


@app.command("history")
def config_history(output: OutputOption = Format.TABLE) -> None:
    """Each version that is kept: what it changed, whose word it was, when."""
    from rollcall_ha.cli import settings

    settings.history(output)


@app.command("apply")
@takes_order()
def config_apply(
    values: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="As in config show.")] = None,
    *,
    order: OperatorOptions,
    preset: Annotated[str, typer.Option(help="Its durations first: fast, normal or safe.")] = "",
    version: Annotated[int | None, typer.Option(help="Begin with the values of this version: go back.")] = None,
    expect_version: Annotated[int | None, typer.Option(help="Refuse unless this version is in force.")] = None,
) -> None:
    """Change settings, judged as a whole; every node works by them within two seconds."""
    from rollcall_ha.cli import settings

    wanted = settings.wanted_by(values or [], preset=preset, version=version, expected_version=expect_version)
    settings.apply(wanted, order)


@app.command("set")
@takes_order()
def config_set(
    name: SetArgument,
    *,
    order: OperatorOptions,
    expected_replicas: Annotated[int | None, typer.Option(min=1, help="Replicas that the set is to have.")] = None,
    min_in_sync: Annotated[
        int | None, typer.Option(min=0, help="Of them must hold a message; 0: half of them, rounded up.")
    ] = None,
) -> None:
    """Change the numbers of one set; its master goes by them at once."""
    from rollcall_ha.cli import settings

    settings.configure(name, expected_replicas, min_in_sync, order)


@app.command("undo")
@takes_order()
def config_undo(*, order: OperatorOptions) -> None:
    """Go back to the values before the newest change; that is a version, too."""
    from rollcall_ha.cli import settings

    settings.undo(order)
