"""
The commands ``rollcall controllers``: list, transfer, add, remove, replace.

Here: the orders, and waiting until a new controller votes. Not here: the list (``reads``), which change may follow
(``controller.replication.membership``), who can take over (``controller.runtime.transfers``).
Rule: each step is asked for by the members of that moment, so that a command that was broken off goes on when repeated.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from rollcall_ha.cli import context, reads
from rollcall_ha.cli.groups import Verbs
from rollcall_ha.cli.options import OperatorOptions, OutputOption, WatchOption, takes_order
from rollcall_ha.cli.orders import confirm, may_ask, print_preview
from rollcall_ha.cli.output import CommandExit, Format, Mood, Report, fail, print_report
from rollcall_ha.controller.contract.commands import ChangeControllers
from rollcall_ha.controller.contract.events import LeadershipTransferOrdered
from rollcall_ha.controller.contract.ids import ControllerName
from rollcall_ha.controller.contract.orders import TransferLead
from rollcall_ha.controller.contract.values import MembershipVerb
from rollcall_ha.controller.contract.views import OrderPreview

if TYPE_CHECKING:
    from rollcall_ha.client.client import Client

app = Verbs(invoke_without_command=True, rich_markup_mode=None)
AddressOption = Annotated[str, typer.Option(metavar="HOST:PORT", help="As other controllers and brokers reach it.")]
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the controller, as in its certificate.")]
TimeoutOption = Annotated[
    float, typer.Option(metavar="SECONDS", min=1, max=86_400, help="Exit with 8 if it has no vote after these.")
]
LOOK_SECONDS = 0.3


@app.callback(invoke_without_command=True)
def controllers(caller: typer.Context, output: OutputOption = Format.TABLE, watch: WatchOption = None) -> None:
    """Each controller: role, term, how far it has applied. It tells so of itself."""
    if caller.invoked_subcommand is None:
        reads.controllers(output, watch)


@app.command("list")
def show(output: OutputOption = Format.TABLE, watch: WatchOption = None) -> None:
    """Each controller: role, term, how far it has applied. It tells so of itself."""
    reads.controllers(output, watch)


@app.command()
@takes_order(yes=False)
def transfer(
    *,
    order: OperatorOptions,
    to: Annotated[
        str | None, typer.Option(metavar="NAME", help="This controller; by default the one that is furthest.")
    ] = None,
) -> None:
    """Have another controller lead, so that this one can restart. Nobody waits for an election timeout then."""
    successor = None if to is None else ControllerName(to)
    with context.client(order.form) as asking:
        if order.is_dry_run:
            asked = TransferLead(to=successor, reason=order.reason)
            found = asking.preview(asked)
            ordered = [event for event in found.events if isinstance(event, LeadershipTransferOrdered)]
            would = "; ".join(f"Would have {one.successor} lead instead of {one.controller}." for one in ordered)
            print_preview(found, would or "Would change nothing.", order.form, wanted=asked)
            return
        answer = asking.order(TransferLead(to=successor, reason=order.reason), request_id=order.request_id)
        line, mood = f"OK  {answer.leader} leads in term {answer.term}", Mood.GOOD
        if to not in (None, answer.leader):
            # Raft's vote decides: the follower that was asked may have been cut off in that moment.
            line, mood = f"{answer.leader} leads in term {answer.term}, not {to}: it was not elected", Mood.WARNING
        print_report(Report(document=answer, verdict=line, mood=mood), order.form)


@app.command()
@takes_order(yes=False, repeats=False)
def add(
    name: NameArgument,
    *,
    raft: AddressOption,
    broker: AddressOption,
    rest: AddressOption,
    order: OperatorOptions,
    timeout: TimeoutOption = 60,
) -> None:
    """Add a controller that runs already, and wait for its vote. It votes when it has caught up."""
    asked = _addition(name, raft, broker, rest, order.reason)
    with context.client(order.form) as asking:
        if order.is_dry_run:
            found = asking.preview(asked)
            verdict = f"Would add {name}: it takes entries, and votes when it has caught up."
            print_preview(found, verdict, order.form)
            return
        _add(asking, asked, timeout)
        _print_members(asking, f"OK  {name} votes", order.form)


@app.command()
@takes_order(repeats=False)
def remove(name: NameArgument, *, order: OperatorOptions) -> None:
    """Take a controller out. Stop it then, and revoke its certificate."""
    with context.client(order.form) as asking:
        if order.is_dry_run:
            found, verdict = _preview_removal(asking, name, order.reason)
            print_preview(found, f"Would {verdict}.", order.form)
            return
        if may_ask():
            confirm(f"Take {name} out of the controllers?", order)
        _remove(asking, name, order.reason)
        line = f"OK  {name} is no controller any more: stop it, and revoke its certificate"
        _print_members(asking, line, order.form)


@app.command()
@takes_order(repeats=False)
def replace(
    old: Annotated[str, typer.Argument(metavar="OLD", help="The controller that goes.")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="The one that comes, running already.")],
    *,
    raft: AddressOption,
    broker: AddressOption,
    rest: AddressOption,
    order: OperatorOptions,
    timeout: TimeoutOption = 60,
) -> None:
    """Add one, wait for its vote, then take the other one out. Repeated, it goes on where it ended."""
    asked = _addition(new, raft, broker, rest, order.reason)
    with context.client(order.form) as asking:
        if order.is_dry_run:
            removal, verdict = _preview_removal(asking, old, order.reason)
            found = asking.preview(asked)
            both = msgspec.structs.replace(found, events=(*found.events, *removal.events))
            print_preview(both, f"Would add {new}, and when it votes {verdict}.", order.form)
            return
        if may_ask():
            confirm(f"Take {old} out of the controllers when {new} votes?", order)
        _add(asking, asked, timeout)
        if ControllerName(old) in asking.members().voters:
            _remove(asking, old, order.reason)
        _print_members(asking, f"OK  {new} votes in the place of {old}: stop {old}", order.form)


def _addition(name: str, raft: str, broker: str, rest: str, reason: str) -> ChangeControllers:
    return ChangeControllers(
        verb=MembershipVerb.ADD, name=ControllerName(name), raft=raft, broker=broker, rest=rest, reason=reason
    )


def _removal(name: str, reason: str) -> ChangeControllers:
    return ChangeControllers(verb=MembershipVerb.REMOVE, name=ControllerName(name), reason=reason)


def _add(asking: Client, asked: ChangeControllers, timeout_s: float) -> None:
    name, until = asked.name, time.monotonic() + timeout_s
    found = asking.members()
    if name not in (*found.voters, *found.learners):
        asking.order(asked)
    while name not in asking.members().voters:
        if time.monotonic() >= until:
            raise fail(
                f"rollcall: {name} has no vote after {timeout_s:.0f} s; is it running, and linked? It gets its vote "
                "when it has caught up; the same command waits on",
                CommandExit.TIMED_OUT,
            )
        threading.Event().wait(LOOK_SECONDS)


def _remove(asking: Client, name: str, reason: str) -> None:
    # A leader does not remove itself: another one leads first.
    if asking.members().name == name:
        asking.order(TransferLead(reason=reason))
    asking.order(_removal(name, reason))


def _preview_removal(asking: Client, name: str, reason: str) -> tuple[OrderPreview, str]:
    """The first step of it, and all of them in words."""
    if asking.members().name == name:
        found = asking.preview(TransferLead())
        heirs = [one.successor for one in found.events if isinstance(one, LeadershipTransferOrdered)]
        return found, f"have {', '.join(heirs)} lead, then remove {name}"
    return asking.preview(_removal(name, reason)), f"remove {name}"


def _print_members(asking: Client, line: str, form: Format) -> None:
    found = asking.members()
    verdict = f"{line}; voters: {', '.join(found.voters)}"
    print_report(Report(document=found, verdict=verdict, mood=Mood.GOOD), form)
