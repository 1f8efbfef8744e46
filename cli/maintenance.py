"""
The commands ``rollcall maintenance``: begin, end, list.

Here: the orders and their answers. Not here: which replica or host a word means (``brokers``), what a maintenance does
(``controller.core.maintenance``), moving masters away (``moving``).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from rollcall_ha.cli import context, output
from rollcall_ha.cli.brokers import brokers_of, scope_of
from rollcall_ha.cli.groups import Verbs
from rollcall_ha.cli.options import LastingOption, OperatorOptions, OutputOption, takes_order
from rollcall_ha.cli.orders import give
from rollcall_ha.cli.output import Format, Report, Table, print_report
from rollcall_ha.cli.tables import read_line
from rollcall_ha.controller.contract.commands import BeginMaintenance, EndMaintenance
from rollcall_ha.controller.contract.labels import scope_words

if TYPE_CHECKING:
    from rollcall_ha.client.client import Client
    from rollcall_ha.controller.contract.values import MaintenanceScope
    from rollcall_ha.controller.contract.views import SetPage

app = Verbs(no_args_is_help=True, rich_markup_mode=None)
WhatArgument = Annotated[
    str,
    typer.Argument(
        metavar="REPLICA|HOST", help="broker-a:broker-a-2, broker-a:2, or the host of replicas' addresses: 10.0.0.5."
    ),
]
_COLUMNS = output.columns("OF", "UNTIL", "SINCE", "BY", "REASON?")


@app.command()
@takes_order(yes=False)
def begin(
    what: WhatArgument,
    *,
    order: OperatorOptions,
    lasting: LastingOption,
    spend_last: Annotated[
        bool, typer.Option("--spend-last", help="Accept that a set can lose no other replica meanwhile.")
    ] = False,
) -> None:
    """Neither elect nor miss a replica, or a host's, until TIME. An order may still elect them."""
    seconds = context.decode_duration_s("--for", lasting, least="1s", most="7d")
    expires_at_ms = int((time.time() + seconds) * 1000)
    until = output.utc(expires_at_ms)
    with context.client(order.form) as asking:
        scope = scope_of(asking, what)
        told = _words(asking, scope)

        def hints() -> tuple[str, ...]:
            masters = masters_in(asking.sets(), scope)
            if not masters:
                return ()
            follow = f"rollcall drain {scope.host}" if scope.host else f"rollcall switchover {masters[0]}"
            return (f"It is master of {len(masters)} sets, and stays that. Move them with: {follow}",)

        give(
            asking,
            order,
            BeginMaintenance(scope=scope, expires_at_ms=expires_at_ms, spends_last=spend_last, reason=order.reason),
            would=f"Would keep {told} out until {until}.",
            done=f"{told} is in maintenance until {until}: elected by word only, and not missed",
            hints=hints,
        )


@app.command()
@takes_order(yes=False)
def end(what: WhatArgument, *, order: OperatorOptions) -> None:
    """End a maintenance before its time."""
    with context.client(order.form) as asking:
        scope = scope_of(asking, what)
        told = _words(asking, scope)
        would, done = f"Would end the maintenance of {told}.", f"{told} is elected and expected again"
        give(asking, order, EndMaintenance(scope=scope, reason=order.reason), would=would, done=done)


@app.command("list")
def show(form: OutputOption = Format.TABLE) -> None:
    """Every maintenance in force: whose, until when, by whom, why."""
    with context.client(form) as asking:
        found = asking.maintenances()
        rows = tuple(
            (
                scope_words(one.scope, found.names.get(str(one.scope.set_key), {})),
                output.utc(one.expires_at_ms),
                output.utc(one.begun_at_ms),
                one.begun_by,
                one.reason,
            )
            for one in found.maintenances
        )
        count = len(rows)
        verdict = f"{count} maintenance{'' if count == 1 else 's'} in force"
        names = tuple(str(one.scope) for one in found.maintenances)
        parts = (Table(columns=_COLUMNS, rows=rows),) if rows else ()
        print_report(
            Report(document=found, verdict=verdict, read=read_line(found.freshness), parts=parts, names=names), form
        )


def _words(asking: Client, scope: MaintenanceScope) -> str:
    return scope_words(scope, {} if scope.set_key is None else brokers_of(asking, str(scope.set_key)).names)


def masters_in(page: SetPage, scope: MaintenanceScope) -> list[str]:
    """The sets whose master is in ``scope``."""
    from rollcall_ha.cli.plans import is_in

    return [
        str(status.view.set_key)
        for status in page.sets
        for one in status.replicas
        if one.is_master and is_in(scope, status, one)
    ]
