"""
Commands that pause and resume elections, and acknowledge the failovers that blocked a set.

Here: the orders and their answers. Not here: what a pause withholds (``controller.core.pauses``).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from rollcall_ha.api.cli import context, output
from rollcall_ha.api.cli.context import CommandExit
from rollcall_ha.api.cli.output import Format, Mood, Report, print_report
from rollcall_ha.api.cli.tables import read_line

if TYPE_CHECKING:
    from rollcall_ha.api.cli.orders import OperatorOptions
    from rollcall_ha.api.client import Client
    from rollcall_ha.controller.contract.ids import SetKey
    from rollcall_ha.controller.contract.views import OrderPreview


def pause(name: str | None, order: OperatorOptions, *, is_fleet: bool, seconds: float) -> None:
    """Elect by word only, in one set or in all, from now on for so long."""
    from rollcall_ha.api import bodies

    expires_at_ms = int((time.time() + seconds) * 1000)
    with context.client(order.form) as asking:
        key = _whose(asking, name, is_fleet=is_fleet)
        until = output.utc(expires_at_ms)
        path, body = f"{bodies.scope_path(key)}/pause", {"expiresAtMs": expires_at_ms}
        if order.is_dry_run:
            found = asking.preview(path, body)
            print_preview(found, order.form, f"Would pause elections of {_named(key)} until {until}.")
            return
        answer = asking.order(path, body, reason=order.reason, request_id=order.request_id)
        line = f"OK  elections of {_named(key)} are paused until {until}; a master that dies has no successor meanwhile"
        print_report(Report(document=answer, verdict=line, mood=Mood.GOOD), order.form)


def resume(name: str | None, order: OperatorOptions, *, is_fleet: bool) -> None:
    """End a pause; sets without a master get one at once."""
    from rollcall_ha.api import bodies

    with context.client(order.form) as asking:
        key = _whose(asking, name, is_fleet=is_fleet)
        path = f"{bodies.scope_path(key)}/resume"
        if order.is_dry_run:
            print_preview(asking.preview(path, {}), order.form, f"Would end the pause of {_named(key)}.")
            return
        answer = asking.order(path, {}, reason=order.reason, request_id=order.request_id)
        line = f"OK  elections of {_named(key)} are held again"
        print_report(Report(document=answer, verdict=line, mood=Mood.GOOD), order.form)


def acknowledge(name: str, order: OperatorOptions) -> None:
    """End the block of a set that failed over again and again; the count begins anew."""
    from rollcall_ha.api import bodies

    with context.client(order.form) as asking:
        key = context.set_key(asking, name)
        path = f"{bodies.set_path(key)}/resume"
        if order.is_dry_run:
            print_preview(asking.preview(path, {}), order.form, f"Would let {key} fail over again.")
            return
        reason = f"acknowledged: {order.reason}" if order.reason else "acknowledged"
        answer = asking.order(path, {}, reason=reason, request_id=order.request_id)
        line = f"OK  {key} fails over again, and failovers are counted anew"
        print_report(Report(document=answer, verdict=line, mood=Mood.GOOD), order.form)


def _whose(asking: Client, name: str | None, *, is_fleet: bool) -> SetKey | None:
    # Without --fleet, a set name that a script left empty would stop every failover of the fleet.
    if (name is None) != is_fleet:
        raise context.fail("rollcall: name a set, or say --fleet for all of them", CommandExit.WRONG_USE)
    return None if name is None else context.set_key(asking, name)


def _named(key: SetKey | None) -> str:
    return "the fleet" if key is None else str(key)


def print_preview(found: OrderPreview, form: Format, line: str) -> None:
    """Of an order that is answered by "done"; ``line`` says what it would do."""
    verdict = line if found.events else "Would change nothing."
    print_report(Report(document=found, verdict=verdict, read=read_line(found.freshness)), form)
