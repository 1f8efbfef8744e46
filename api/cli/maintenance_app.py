"""The commands ``rollcall maintenance``: names, options, help. What they do is in ``maintenance``."""

from __future__ import annotations

from typing import Annotated

import typer

from rollcall_ha.api.cli.context import decode_duration_s
from rollcall_ha.api.cli.output import Format
from rollcall_ha.controller.contract.ids import RequestId

app = typer.Typer(
    help="Replicas and hosts that are worked on: not elected, not missed.", rich_markup_mode=None, no_args_is_help=True
)

WhatArgument = Annotated[
    str, typer.Argument(metavar="REPLICA|HOST", help="broker-a:2, or the host of replicas' addresses: 10.0.0.5.")
]
OutputOption = Annotated[Format, typer.Option("-o", "--output", help="How to print the answer.")]
ReasonOption = Annotated[str, typer.Option(help="Goes into the record.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]
RequestIdOption = Annotated[
    str | None, typer.Option(help="Repeat a request whose outcome is unknown; it never executes twice.")
]


@app.command("begin")
def maintenance_begin(
    what: WhatArgument,
    *,
    lasting: Annotated[str, typer.Option("--for", metavar="TIME", help="How long: 30m, 2h, at most 7d.")],
    spend_last: Annotated[
        bool, typer.Option("--spend-last", help="Accept that a set can lose no other replica meanwhile.")
    ] = False,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    request_id: RequestIdOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Elect a replica, or those of a host, by word only for a while, and miss none of them."""
    from rollcall_ha.api.cli import maintenance, orders

    seconds = decode_duration_s(lasting, least="1s", most="7d")
    identity = None if request_id is None else RequestId(request_id)
    order = orders.OperatorOptions(form=output, reason=reason, is_dry_run=dry_run, request_id=identity)
    maintenance.begin(what, order, seconds=seconds, spends_last=spend_last)


@app.command("end")
def maintenance_end(
    what: WhatArgument,
    *,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    request_id: RequestIdOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """End a maintenance before its time."""
    from rollcall_ha.api.cli import maintenance, orders

    identity = None if request_id is None else RequestId(request_id)
    order = orders.OperatorOptions(form=output, reason=reason, is_dry_run=dry_run, request_id=identity)
    maintenance.end(what, order)


@app.command("list")
def maintenance_list(output: OutputOption = Format.TABLE) -> None:
    """Every maintenance in force: of what, until when, by whom, why."""
    from rollcall_ha.api.cli import maintenance

    maintenance.show(output)
