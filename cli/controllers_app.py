"""The commands ``rollcall controllers``: names, help. What they do is in ``reads``, ``transfers`` and ``members``."""

from __future__ import annotations

from typing import Annotated

import typer

from rollcall_ha.cli.options import OperatorOptions, OutputOption, WatchOption, takes_order
from rollcall_ha.cli.output import Format
from rollcall_ha.controller.contract.ids import ControllerName

app = typer.Typer(help="The controllers.", invoke_without_command=True, rich_markup_mode=None)


@app.command("list")
def controllers_list(output: OutputOption = Format.TABLE, watch: WatchOption = None) -> None:
    """Each controller as it tells of itself: role, term, how far it has applied."""
    from rollcall_ha.cli import reads

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
    from rollcall_ha.cli import transfers

    transfers.transfer(None if to is None else ControllerName(to), order)


AddressOption = Annotated[str, typer.Option(metavar="HOST:PORT", help="As other controllers and brokers reach it.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Of the controller, as in its certificate.")]
TimeoutOption = Annotated[
    float, typer.Option(metavar="SECONDS", min=1, max=86_400, help="Exit with 8 if it has no vote after these.")
]


@app.command("add")
@takes_order(yes=False, repeats=False)
def controllers_add(
    name: NameArgument,
    *,
    raft: AddressOption,
    broker: AddressOption,
    rest: AddressOption,
    order: OperatorOptions,
    timeout: TimeoutOption = 60,
) -> None:
    """Add a controller that is running already; returns when it has caught up and votes."""
    from rollcall_ha.cli import members

    members.add({"name": name, "raft": raft, "broker": broker, "rest": rest}, order, timeout_s=timeout)


@app.command("remove")
@takes_order(yes=False, repeats=False)
def controllers_remove(name: NameArgument, *, order: OperatorOptions) -> None:
    """Take a controller out; stop it then, and revoke its certificate."""
    from rollcall_ha.cli import members

    members.remove(name, order)


@app.command("replace")
@takes_order(yes=False, repeats=False)
def controllers_replace(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The controller that goes.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The one that comes, running already.")],
    *,
    raft: AddressOption,
    broker: AddressOption,
    rest: AddressOption,
    order: OperatorOptions,
    timeout: TimeoutOption = 60,
) -> None:
    """Add one, wait until it votes, then take the other one out; repeated, it goes on where it ended."""
    from rollcall_ha.cli import members

    members.replace(old, {"name": new, "raft": raft, "broker": broker, "rest": rest}, order, timeout_s=timeout)


@app.callback(invoke_without_command=True)
def controllers(caller: typer.Context, output: OutputOption = Format.TABLE, watch: WatchOption = None) -> None:
    """Each controller as it tells of itself: role, term, how far it has applied."""
    if caller.invoked_subcommand is None:
        controllers_list(output, watch)
