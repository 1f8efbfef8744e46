"""The commands ``rollcall context``: names, options, help. What they do is in ``contexts``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rollcall_ha.cli.options import OutputOption
from rollcall_ha.cli.output import Format

app = typer.Typer(help="Fleets by name.", rich_markup_mode=None, no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Of the context.")]


@app.command("add")
def context_add(
    name: NameArgument,
    *,
    controllers: Annotated[str, typer.Option(help="host:port,… of the controllers' REST ports.")],
    authority: Annotated[Path | None, typer.Option(help="ca.pem of the fleet.")] = None,
    identity: Annotated[Path | None, typer.Option(help="NAME.pem, its key beside it.")] = None,
    token_file: Annotated[Path | None, typer.Option(help="As rollcall tokens issue --out wrote it.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Also if there is one of that name.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Remember where a fleet is and who asks it; the first one is in use at once."""
    from rollcall_ha.cli import contexts

    contexts.add(
        name,
        controllers,
        authority=authority,
        identity=identity,
        token_file=token_file,
        is_replacing=replace,
        form=output,
    )


@app.command("use")
def context_use(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="Of the context.")] = "",
    *,
    none: Annotated[bool, typer.Option("--none", help="No context from now on.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Take this context for the following commands."""
    if none == bool(name):
        raise typer.BadParameter("name a context, or say --none")
    from rollcall_ha.cli import contexts

    contexts.use(name, is_none=none, form=output)


@app.command("list")
def context_list(output: OutputOption = Format.TABLE) -> None:
    """All contexts, and which one is in use."""
    from rollcall_ha.cli import contexts

    contexts.show(output)


@app.command("remove")
def context_remove(name: NameArgument, output: OutputOption = Format.TABLE) -> None:
    """Forget a context; its certificates and tokens stay where they are."""
    from rollcall_ha.cli import contexts

    contexts.remove(name, output)
