"""
Commands that change something: elect, switchover, bootstrap, clean, raise-level, pause, resume, acknowledge.

Here: the orders and their answers, and what all commands that give one share (``give``, ``looked_at``, ``confirm``).
Not here: which orders there are (``controller.contract.orders``), how decisions look (``decisions``).

``main`` imports this module: heavy ones are imported inside the functions, so that ``rollcall --help`` is fast.

Rule 1: only ``elect --unclean --accept-loss BYTES`` can lose messages; it and ``clean`` need ``--yes`` or an answer.
Rule 2: a script is never asked: without a terminal, an order that needs a confirmation is refused as wrong use.
Rule 3: every order carries a request id, which is printed if the outcome is unknown.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import replace

from rollcall_ha.cli import context, output
from rollcall_ha.cli.options import (
    LagOption,
    LastingOption,
    OperatorOptions,
    SetArgument,
    broker_option,
    deadline_option,
    takes_order,
)
from rollcall_ha.cli.output import CommandExit, Format, Mood, Report, fail, print_report
from rollcall_ha.controller.contract.commands import (
    FIRST_FEATURE_LEVEL,
    SWITCHOVER_DEADLINE_MS,
    SWITCHOVER_LAG_BYTES,
    Bootstrap,
    CleanReplicas,
    ElectMaster,
    ElectUnclean,
    OrderSwitchover,
    PauseElections,
    ResumeElections,
)
from rollcall_ha.controller.contract.values import made_from
from rollcall_ha.epoch.codec import NUMBER_MAX

if TYPE_CHECKING:
    from rollcall_ha.client.client import Client
    from rollcall_ha.controller.contract.ids import BrokerId, SetKey
    from rollcall_ha.controller.contract.replies import AnsweredBy, Done
    from rollcall_ha.controller.contract.views import OrderPreview, SetStatus


FleetOption = Annotated[bool, typer.Option("--fleet", help="Every set of the fleet, instead of SET.")]
OptionalSetArgument = Annotated[str | None, typer.Argument(metavar="[SET]", help="broker-a, or cluster/broker-a.")]


@takes_order(expects=True)
def elect(
    name: SetArgument,
    *,
    order: OperatorOptions,
    to: Annotated[str | None, broker_option("This one; refused if it is not eligible.")] = None,
    unclean: Annotated[bool, typer.Option("--unclean", help="Also outside the SyncStateSet. Can lose.")] = False,
    accept_loss: Annotated[
        int | None, typer.Option(min=0, max=NUMBER_MAX, metavar="BYTES", help="With --unclean: at most this.")
    ] = None,
) -> None:
    """Elect a master now, by policy or the one you name. Clean, unless --unclean --accept-loss BYTES are given."""
    if unclean != (accept_loss is not None):
        raise typer.BadParameter("--unclean and --accept-loss BYTES belong together")
    from rollcall_ha.cli import decisions
    from rollcall_ha.cli.brokers import brokers_of

    with context.client(order.form) as asking:
        brokers = brokers_of(asking, name, to, order.expected_master)
        wanted: ElectMaster | ElectUnclean = made_from(
            order,
            ElectMaster,
            set_key=brokers.key,
            to=brokers.may_be(to),
            expected_master=brokers.may_be(order.expected_master),
        )
        if accept_loss is not None:
            wanted = made_from(wanted, ElectUnclean, accepted_loss_bytes=accept_loss)
        exact = looked_at(asking, order, wanted, decisions.preview_report, "Elect?")
        if exact is None:
            return
        if accept_loss is not None and not may_ask():
            # A clean election loses nothing, so a script may hold it without --yes; this one can.
            confirm("Elect outside the SyncStateSet?", order)
        answer = asking.order(exact, request_id=order.request_id)
        print_report(decisions.elected_report(answer), order.form)


@takes_order(yes=False)
def pause(
    name: OptionalSetArgument = None,
    *,
    order: OperatorOptions,
    fleet: FleetOption = False,
    lasting: LastingOption,
) -> None:
    """No automatic elections until TIME; an order still elects. What would have been elected is on record."""
    seconds = context.decode_duration_s("--for", lasting, least="1s", most="7d")
    expires_at_ms = int((time.time() + seconds) * 1000)
    with context.client(order.form) as asking:
        key = _whose(asking, name, is_fleet=fleet)
        until, whose = output.utc(expires_at_ms), _named(key)
        give(
            asking,
            order,
            PauseElections(set_key=key, expires_at_ms=expires_at_ms, reason=order.reason),
            would=f"Would pause elections of {whose} until {until}.",
            done=f"elections of {whose} are paused until {until}; a master that dies has no successor meanwhile",
        )


@takes_order(yes=False)
def resume(name: OptionalSetArgument = None, *, order: OperatorOptions, fleet: FleetOption = False) -> None:
    """End a pause early; sets without a master get one at once."""
    with context.client(order.form) as asking:
        key = _whose(asking, name, is_fleet=fleet)
        would, done = f"Would end the pause of {_named(key)}.", f"elections of {_named(key)} are held again"
        give(asking, order, ResumeElections(set_key=key, reason=order.reason), would=would, done=done)


@takes_order(yes=False)
def acknowledge(name: SetArgument, *, order: OperatorOptions) -> None:
    """Unblock a set that failed over too often. The setting flap_failovers says what is too often."""
    reason = f"acknowledged: {order.reason}" if order.reason else "acknowledged"
    with context.client(order.form) as asking:
        key = context.set_key(asking, name)
        would, done = f"Would let {key} fail over again.", f"{key} fails over again, and failovers are counted anew"
        give(asking, order, ResumeElections(set_key=key, reason=reason), would=would, done=done)


@takes_order(expects=True)
def switchover(
    name: SetArgument,
    *,
    order: OperatorOptions,
    to: Annotated[str | None, broker_option("This one; by policy without it.")] = None,
    deadline_ms: Annotated[
        int, deadline_option("Not done by then: the old master serves again.")
    ] = SWITCHOVER_DEADLINE_MS,
    max_lag: LagOption = SWITCHOVER_LAG_BYTES,
) -> None:
    """Hand mastership over to another member, without loss. The old master drains and follows, or serves again."""
    from rollcall_ha.cli import decisions
    from rollcall_ha.cli.brokers import brokers_of
    from rollcall_ha.controller.contract.values import SwitchoverEnd

    with context.client(order.form) as asking:
        brokers = brokers_of(asking, name, to, order.expected_master)
        wanted = made_from(
            order,
            OrderSwitchover,
            set_key=brokers.key,
            to=brokers.may_be(to),
            expected_master=brokers.may_be(order.expected_master),
            deadline_ms=deadline_ms,
            max_lag_bytes=max_lag,
        )
        exact = looked_at(asking, order, wanted, decisions.switchover_preview_report, "Switch over?")
        if exact is None:
            return
        answer = asking.order(exact, request_id=order.request_id)
        print_report(decisions.switchover_report(answer), order.form)
        # A script goes on by the exit code: the master is not where it was ordered to be.
        if answer.row.end is not SwitchoverEnd.DONE:
            raise typer.Exit(CommandExit.REFUSED)


def switchover_of(status: SetStatus, to: BrokerId | None, reason: str) -> OrderSwitchover:
    """The order to hand over from the master that ``status`` shows, and from no other; ``to`` None: by policy."""
    view = status.view
    return OrderSwitchover(
        set_key=view.set_key, to=to, expected_master=view.master, expected_epoch=view.master_epoch, reason=reason
    )


@takes_order(dry_run="")
def bootstrap(
    name: SetArgument,
    *,
    order: OperatorOptions,
    master: Annotated[str, broker_option("The first master.")],
) -> None:
    """Name the first master of a set that may elect none itself."""
    from rollcall_ha.cli import decisions
    from rollcall_ha.cli.brokers import brokers_of

    with context.client(order.form) as asking:
        brokers = brokers_of(asking, name, master)
        first = brokers.id_of(master)
        if may_ask():
            confirm(f"Make broker {brokers.label(first)} the first master of {brokers.key}?", order)
        wanted = Bootstrap(set_key=brokers.key, master=first, reason=order.reason)
        print_report(decisions.elected_report(asking.order(wanted, request_id=order.request_id)), order.form)


@takes_order()
def clean(
    name: SetArgument,
    *,
    order: OperatorOptions,
    broker: Annotated[list[str] | None, broker_option("Only this one; may be repeated.")] = None,
    unclean: Annotated[bool, typer.Option("--unclean", help="Also while the master serves.")] = False,
) -> None:
    """Forget replicas, or a whole set; epochs never go down."""
    from rollcall_ha.cli import decisions
    from rollcall_ha.cli.brokers import brokers_of

    with context.client(order.form) as asking:
        brokers = brokers_of(asking, name, *(broker or ()))
        key, ids = brokers.key, tuple(map(brokers.id_of, broker or ()))
        whom = "broker " + ", ".join(map(brokers.label, ids)) if ids else "every replica"
        wanted = CleanReplicas(set_key=key, broker_ids=ids, is_unclean=unclean, reason=order.reason)
        if order.is_dry_run:
            print_report(decisions.clean_preview_report(asking.preview(wanted)), order.form)
            return
        confirm(f"Forget {whom} of {key}?", order)
        give(asking, order, wanted, done=f"forgot {whom} of {key}; its epochs stay")


@takes_order(dry_run="")
def raise_level(
    level: Annotated[
        int | None,
        typer.Argument(min=FIRST_FEATURE_LEVEL, max=NUMBER_MAX, help="Without: that of the leader's program."),
    ] = None,
    *,
    order: OperatorOptions,
    assume_upgraded: Annotated[
        bool, typer.Option("--assume-upgraded", help="Controllers that the leader cannot ask are upgraded.")
    ] = False,
) -> None:
    """Allow what a newer version brought; there is no way back. Every controller has to run it."""
    from rollcall_ha.controller.contract.orders import RaiseLevel

    with context.client(order.form) as asking:
        wanted = "that of the leader's program" if level is None else str(level)
        confirm(f"Raise the feature level to {wanted}? An older controller can not join any more.", order)
        asked = RaiseLevel(level=level, assume_upgraded=assume_upgraded, reason=order.reason)
        give(asking, order, asked, done="the feature level is raised; see it with: rollcall controllers")


VERBS = (elect, pause, resume, acknowledge, switchover, bootstrap, clean)
"""Those of the panel of orders, in the order of the help."""


def _whose(asking: Client, name: str | None, *, is_fleet: bool) -> SetKey | None:
    # Without --fleet, a set name that a script left empty would stop every failover of the fleet.
    if (name is None) != is_fleet:
        raise fail("rollcall: name a set, or say --fleet for all of them", CommandExit.WRONG_USE)
    return None if name is None else context.set_key(asking, name)


def _named(key: SetKey | None) -> str:
    return "the fleet" if key is None else str(key)


# --- what all orders share -------------------------------------------------------------------------------------------


def give(
    asking: Client,
    order: OperatorOptions,
    asked: AnsweredBy[Done],
    *,
    would: str = "",
    done: str,
    hints: Callable[[], tuple[str, ...]] = tuple,
) -> None:
    """
    Give an order that is answered by "done", or with ``--dry-run`` say what it ``would`` do. Raises ``ClientError``.

    ``hints``: what to do next, asked for when it is done.
    """
    if order.is_dry_run:
        found = asking.preview(asked)
        print_preview(found, would if found.events else "Would change nothing.", order.form)
        return
    answer = asking.order(asked, request_id=order.request_id)
    print_report(Report(document=answer, verdict=f"OK  {done}", mood=Mood.GOOD, parts=hints()), order.form)


def print_preview(found: OrderPreview, verdict: str, form: Format, *, wanted: AnsweredBy[Any] | None = None) -> None:
    """``wanted``: what was asked, if the leader chose something in it."""
    from rollcall_ha.cli.previewed import exactly
    from rollcall_ha.cli.tables import read_line

    parts = () if wanted is None else exactly(wanted, found)
    print_report(Report(document=found, verdict=verdict, read=read_line(found.freshness), parts=parts), form)


def looked_at(
    asking: Client,
    order: OperatorOptions,
    wanted: AnsweredBy[Any],
    report: Callable[[Any], Report],
    question: str,
) -> AnsweredBy[Any] | None:
    """
    The order to give; None: this was a dry run, and is over. ``report``: of its preview.

    A person at a terminal orders what was shown to them. Raises ``ClientError``, and ``typer.Exit``: declined.
    """
    from rollcall_ha.cli.previewed import bound, exactly

    exact = wanted

    def preview() -> Report:
        nonlocal exact
        found = asking.preview(wanted)
        # A repeated request is known by its bytes: what it was bound to is in the words that were typed.
        exact = wanted if order.request_id else bound(wanted, found)
        shown = report(found)
        return replace(shown, parts=(*shown.parts, *exactly(wanted, found)))

    return None if is_looked_at(order, preview, question) else exact


def is_looked_at(order: OperatorOptions, preview: Callable[[], Report], question: str) -> bool:
    """
    True: this was a dry run, and is over. Else a person at a terminal sees the preview, and is asked.

    Raises ``ClientError``, and ``typer.Exit``: declined.
    """
    if order.is_dry_run:
        print_report(preview(), order.form)
    elif not order.is_confirmed and may_ask():
        # On standard error: standard output is the answer to the order, for a pipe.
        print_report(preview(), Format.TABLE, stream=sys.stderr)
        confirm(question, order)
    return order.is_dry_run


def may_ask() -> bool:
    """Whether a person sits at the terminal; a prompt in a script would hang it for ever."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, order: OperatorOptions) -> None:
    """Ask, unless ``--yes`` was said. Raises ``typer.CommandExit``: declined (1), or there is nobody to ask (2)."""
    if order.is_confirmed:
        return
    if not may_ask():
        raise fail(f"rollcall: needs --yes, since there is no terminal to ask at: {question}", CommandExit.WRONG_USE)
    if not typer.confirm(question, err=True):
        raise fail("Nothing was changed.", CommandExit.REFUSED)
