"""The commands ``rollcall maintenance``: names, options, help. What they do is in ``maintenance``."""

from __future__ import annotations

from typing import Annotated

import typer

from rollcall_ha.cli.context import decode_duration_s
from rollcall_ha.cli.options import LastingOption, OperatorOptions, OutputOption, takes_order
from rollcall_ha.cli.output import Format

app = typer.Typer(
    help="Replicas and hosts that are worked on: not elected, not missed.", rich_markup_mode=None, no_args_is_help=True
)

WhatArgument = Annotated[
    str, typer.Argument(metavar="REPLICA|HOST", help="broker-a:2, or the host of replicas' addresses: 10.0.0.5.")
]


@app.command("begin")
@takes_order(yes=False)
def maintenance_begin(
    what: WhatArgument,
    *,
    order: OperatorOptions,
    lasting: LastingOption,
    spend_last: Annotated[
        bool, typer.Option("--spend-last", help="Accept that a set can lose no other replica meanwhile.")
    ] = False,
) -> None:
    """Elect a replica, or those of a host, by word only for a while, and miss none of them."""
    from rollcall_ha.cli import maintenance

    seconds = decode_duration_s(lasting, least="1s", most="7d")
    maintenance.begin(what, order, seconds=seconds, spends_last=spend_last)


@app.command("end")
@takes_order(yes=False)
def maintenance_end(what: WhatArgument, *, order: OperatorOptions) -> None:
    """End a maintenance before its time."""
    from rollcall_ha.cli import maintenance

    maintenance.end(what, order)


@app.command("list")
def maintenance_list(output: OutputOption = Format.TABLE) -> None:
    """Every maintenance in force: of what, until when, by whom, why."""
    from rollcall_ha.cli import maintenance

    maintenance.show(output)
