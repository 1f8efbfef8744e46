"""The commands ``rollcall controllers``: names, options, help. What they do is in ``reads`` and ``transfers``."""

from __future__ import annotations

from typing import Annotated

import typer

from rollcall_ha.api.cli.output import Format
from rollcall_ha.controller.contract.ids import ControllerName, RequestId

app = typer.Typer(help="The controllers.", invoke_without_command=True, rich_markup_mode=None)

OutputOption = Annotated[Format, typer.Option("-o", "--output", help="How to print the answer.")]
WatchOption = Annotated[
    str | None,
    typer.Option("--watch", metavar="[=2s]", help="Print again and again; alone it means every 2 s."),
]


@app.command("list")
def controllers_list(output: OutputOption = Format.TABLE, watch: WatchOption = None) -> None:
    """Each controller as it tells of itself: role, term, how far it has applied."""
    from rollcall_ha.api.cli import reads

    reads.controllers(output, watch)


@app.command("transfer")
def controllers_transfer(
    *,
    to: Annotated[
        str | None, typer.Option(metavar="NAME", help="This controller; by default the one that is furthest.")
    ] = None,
    reason: Annotated[str, typer.Option(help="Goes into the record.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")] = False,
    request_id: Annotated[
        str | None, typer.Option(help="Repeat a request whose outcome is unknown; it never executes twice.")
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Have another controller lead, without waiting for an election timeout: before the leader is restarted."""
    from rollcall_ha.api.cli import transfers

    transfers.transfer(
        None if to is None else ControllerName(to),
        reason=reason,
        is_dry_run=dry_run,
        request_id=None if request_id is None else RequestId(request_id),
        form=output,
    )


@app.callback(invoke_without_command=True)
def controllers(caller: typer.Context, output: OutputOption = Format.TABLE, watch: WatchOption = None) -> None:
    """Each controller as it tells of itself: role, term, how far it has applied."""
    if caller.invoked_subcommand is None:
        controllers_list(output, watch)
