"""The commands ``rollcall controllers``: names, options, help. What they do is in ``reads`` and ``transfers``."""

from __future__ import annotations

from typing import Annotated

import typer

from rollcall_ha.api.cli.options import OperatorOptions, OutputOption, WatchOption, takes_order
from rollcall_ha.api.cli.output import Format
from rollcall_ha.controller.contract.ids import ControllerName

app = typer.Typer(help="The controllers.", invoke_without_command=True, rich_markup_mode=None)


@app.command("list")
def controllers_list(output: OutputOption = Format.TABLE, watch: WatchOption = None) -> None:
    """Each controller as it tells of itself: role, term, how far it has applied."""
    from rollcall_ha.api.cli import reads

    reads.controllers(output, watch)


@app.command("transfer")
@takes_order(yes=False)
def controllers_transfer(
    *,
    order: OperatorOptions,
    to: Annotated[
        str | None, typer.Option(metavar="NAME", help="This controller; by default the one that is furthest.")
    ] = None,
) -> None:
    """Have another controller lead, without waiting for an election timeout: before the leader is restarted."""
    from rollcall_ha.api.cli import transfers

    transfers.transfer(None if to is None else ControllerName(to), order)


@app.callback(invoke_without_command=True)
def controllers(caller: typer.Context, output: OutputOption = Format.TABLE, watch: WatchOption = None) -> None:
    """Each controller as it tells of itself: role, term, how far it has applied."""
    if caller.invoked_subcommand is None:
        controllers_list(output, watch)
