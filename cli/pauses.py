"""
Commands that pause and resume elections, and acknowledge the failovers that blocked a set.

Here: the orders and their answers. Not here: what a pause withholds (``controller.core.pauses``).
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from rollcall_ha.cli import context, output
from rollcall_ha.cli.context import CommandExit
from rollcall_ha.cli.orders import give

if TYPE_CHECKING:
    from rollcall_ha.cli.options import OperatorOptions
    from rollcall_ha.client.client import Client
    from rollcall_ha.controller.contract.ids import SetKey


def pause(name: str | None, order: OperatorOptions, *, is_fleet: bool, seconds: float) -> None:
    """Elect by word only, in one set or in all, from now on for so long."""
    from rollcall_ha.client import bodies

    expires_at_ms = int((time.time() + seconds) * 1000)
    with context.client(order.form) as asking:
        key = _whose(asking, name, is_fleet=is_fleet)
        until, whose = output.utc(expires_at_ms), _named(key)
        give(
            asking,
            order,
            f"{bodies.scope_path(key)}/pause",
            {"expiresAtMs": expires_at_ms},
            would=f"Would pause elections of {whose} until {until}.",
            done=f"elections of {whose} are paused until {until}; a master that dies has no successor meanwhile",
        )


def resume(name: str | None, order: OperatorOptions, *, is_fleet: bool) -> None:
    """End a pause; sets without a master get one at once."""
    from rollcall_ha.client import bodies

    with context.client(order.form) as asking:
        key = _whose(asking, name, is_fleet=is_fleet)
        would, done = f"Would end the pause of {_named(key)}.", f"elections of {_named(key)} are held again"
        give(asking, order, f"{bodies.scope_path(key)}/resume", {}, would=would, done=done)


def acknowledge(name: str, order: OperatorOptions) -> None:
    """End the block of a set that failed over again and again; the count begins anew."""
    from rollcall_ha.client import bodies

    order = replace(order, reason=f"acknowledged: {order.reason}" if order.reason else "acknowledged")
    with context.client(order.form) as asking:
        key = context.set_key(asking, name)
        would, done = f"Would let {key} fail over again.", f"{key} fails over again, and failovers are counted anew"
        give(asking, order, f"{bodies.set_path(key)}/resume", {}, would=would, done=done)


def _whose(asking: Client, name: str | None, *, is_fleet: bool) -> SetKey | None:
    # Without --fleet, a set name that a script left empty would stop every failover of the fleet.
    if (name is None) != is_fleet:
        raise context.fail("rollcall: name a set, or say --fleet for all of them", CommandExit.WRONG_USE)
    return None if name is None else context.set_key(asking, name)


def _named(key: SetKey | None) -> str:
    return "the fleet" if key is None else str(key)
