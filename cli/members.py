"""
``rollcall controllers add``, ``remove`` and ``replace``.

Here: the orders, and waiting until a new controller votes. Not here: which change may follow
(``controller.replication.raft.membership``).
Rule: each step is asked for by the members of that moment, so that a command that was broken off goes on when repeated.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from rollcall_ha.cli import context
from rollcall_ha.cli.context import CommandExit
from rollcall_ha.cli.options import OperatorOptions
from rollcall_ha.cli.output import Format, Mood, Report, print_report
from rollcall_ha.cli.tables import read_line
from rollcall_ha.controller.contract.events import LeadershipTransferOrdered
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.views import OrderPreview

if TYPE_CHECKING:
    from rollcall_ha.client.client import Client

LOOK_SECONDS = 0.3


def add(seat: Mapping[str, str], order: OperatorOptions, *, timeout_s: float) -> None:
    """Add a controller, and wait until it votes; ``seat``: its name and its three addresses."""
    body, name = {**seat, "reason": order.reason}, seat["name"]
    with context.client(order.form) as asking:
        if order.is_dry_run:
            found = asking.preview_controllers("add", body)
            verdict = f"Would add {name}: it takes entries, and votes when it has caught up."
            _print_preview(found, verdict, order.form)
            return
        _add(asking, body, timeout_s)
        _print_members(asking, f"OK  {name} votes", order.form)


def remove(name: str, order: OperatorOptions) -> None:
    """Take a controller out."""
    with context.client(order.form) as asking:
        if order.is_dry_run:
            found, verdict = _preview_removal(asking, name, order.reason)
            _print_preview(found, f"Would {verdict}.", order.form)
            return
        _remove(asking, name, order.reason)
        line = f"OK  {name} is no controller any more: stop it, and revoke its certificate"
        _print_members(asking, line, order.form)


def replace(old: str, seat: Mapping[str, str], order: OperatorOptions, *, timeout_s: float) -> None:
    """Add one, then take the other out."""
    body, name = {**seat, "reason": order.reason}, seat["name"]
    with context.client(order.form) as asking:
        if order.is_dry_run:
            removal, verdict = _preview_removal(asking, old, order.reason)
            found = asking.preview_controllers("add", body)
            both = msgspec.structs.replace(found, events=(*found.events, *removal.events))
            _print_preview(both, f"Would add {name}, and when it votes {verdict}.", order.form)
            return
        _add(asking, body, timeout_s)
        if ControllerName(old) in asking.members().voters:
            _remove(asking, old, order.reason)
        _print_members(asking, f"OK  {name} votes in the place of {old}: stop {old}", order.form)


def _add(asking: Client, body: dict[str, str], timeout_s: float) -> None:
    name, until = ControllerName(body["name"]), time.monotonic() + timeout_s
    found = asking.members()
    if name not in (*found.voters, *found.learners):
        asking.change_controllers("add", body)
    while name not in asking.members().voters:
        if time.monotonic() >= until:
            raise context.fail(
                f"rollcall: {name} has no vote after {timeout_s:.0f} s; is it running, and linked? It gets its vote "
                "when it has caught up; the same command waits on",
                CommandExit.TIMED_OUT,
            )
        threading.Event().wait(LOOK_SECONDS)


def _remove(asking: Client, name: str, reason: str) -> None:
    # A leader does not remove itself: another one leads first.
    if asking.members().name == name:
        asking.transfer_lead(None, reason=reason)
    asking.change_controllers("remove", {"name": name, "reason": reason})


def _preview_removal(asking: Client, name: str, reason: str) -> tuple[OrderPreview, str]:
    """The first step of it, and all of them in words."""
    if asking.members().name == name:
        found = asking.preview_transfer(None)
        heirs = [one.successor for one in found.events if isinstance(one, LeadershipTransferOrdered)]
        return found, f"have {', '.join(heirs)} lead, then remove {name}"
    return asking.preview_controllers("remove", {"name": name, "reason": reason}), f"remove {name}"


def _print_preview(found: OrderPreview, verdict: str, form: Format) -> None:
    print_report(Report(document=found, verdict=verdict, read=read_line(found.freshness)), form)


def _print_members(asking: Client, line: str, form: Format) -> None:
    found = asking.members()
    verdict = f"{line}; voters: {', '.join(found.voters)}"
    print_report(Report(document=found, verdict=verdict, mood=Mood.GOOD), form)
