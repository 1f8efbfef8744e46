"""
Commands that change something: elect, switchover, bootstrap, clean, raise-level.

Rule 1: only ``elect --unclean --accept-loss BYTES`` can lose messages; it and ``clean`` need ``--yes`` or an answer.
Rule 2: a script is never asked: without a terminal, an order that needs a confirmation is refused as wrong use.
Rule 3: every order carries a request id, which is printed if the outcome is unknown.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import typer

from rollcall_ha.cli import context
from rollcall_ha.cli.context import CommandExit
from rollcall_ha.cli.options import OperatorOptions
from rollcall_ha.cli.output import Format, Mood, Report, print_report
from rollcall_ha.cli.tables import read_line

if TYPE_CHECKING:
    from rollcall_ha.client.bodies import ElectionGuards, SwitchoverOptions
    from rollcall_ha.client.client import Client
    from rollcall_ha.controller.contract.ids import BrokerId


def elect(name: str, order: OperatorOptions, *, to: BrokerId | None, accept_loss_bytes: int | None) -> None:
    """Elect by policy, or ``to`` this broker; with ``accept_loss_bytes`` also outside the SyncStateSet."""
    from rollcall_ha.cli import decisions

    guards: ElectionGuards = {
        "to": to,
        "expected_master": order.expected_master,
        "expected_epoch": order.expected_epoch,
    }
    with context.client(order.form) as asking:
        key = context.set_key(asking, name)

        def preview() -> Report:
            found = asking.preview_election(key, accepted_loss_bytes=accept_loss_bytes, **guards)
            return decisions.preview_report(found)

        if order.is_dry_run:
            print_report(preview(), order.form)
            return
        if not order.is_confirmed and may_ask():
            # On standard error: standard output is the answer of the election, for a pipe.
            print_report(preview(), Format.TABLE, stream=sys.stderr)
            confirm("Elect?", order)
        elif accept_loss_bytes is not None:
            # A clean election loses nothing, so a script may hold it without --yes; this one can.
            confirm("Elect outside the SyncStateSet?", order)
        if accept_loss_bytes is None:
            answer = asking.elect(key, reason=order.reason, request_id=order.request_id, **guards)
        else:
            answer = asking.elect_unclean(
                key, accepted_loss_bytes=accept_loss_bytes, reason=order.reason, request_id=order.request_id, **guards
            )
        print_report(decisions.elected_report(answer), order.form)


def switch_over(
    name: str, order: OperatorOptions, *, to: BrokerId | None, deadline_ms: int, max_lag_bytes: int
) -> None:
    """Let the master hand over, ``to`` this broker or by policy, and wait for the end."""
    from rollcall_ha.cli import decisions
    from rollcall_ha.controller.contract.values import SwitchoverEnd

    wanted: SwitchoverOptions = {
        "to": to,
        "expected_master": order.expected_master,
        "expected_epoch": order.expected_epoch,
        "deadline_ms": deadline_ms,
        "max_lag_bytes": max_lag_bytes,
    }
    with context.client(order.form) as asking:
        key = context.set_key(asking, name)
        if order.is_dry_run:
            print_report(decisions.switchover_preview_report(asking.preview_switchover(key, **wanted)), order.form)
            return
        if not order.is_confirmed and may_ask():
            found = asking.preview_switchover(key, **wanted)
            print_report(decisions.switchover_preview_report(found), Format.TABLE, stream=sys.stderr)
            confirm("Switch over?", order)
        answer = asking.switch_over(key, reason=order.reason, request_id=order.request_id, **wanted)
        print_report(decisions.switchover_report(answer), order.form)
        # A script goes on by the exit code: the master is not where it was ordered to be.
        if answer.row.end is not SwitchoverEnd.DONE:
            raise typer.Exit(CommandExit.REFUSED)


def bootstrap(name: str, order: OperatorOptions, *, master: BrokerId) -> None:
    """First election of a set by an operator's decision."""
    from rollcall_ha.cli import decisions

    with context.client(order.form) as asking:
        key = context.set_key(asking, name)
        if may_ask():
            confirm(f"Make broker {master} the first master of {key}?", order)
        answer = asking.bootstrap(key, master=master, reason=order.reason, request_id=order.request_id)
        print_report(decisions.elected_report(answer), order.form)


def clean(name: str, order: OperatorOptions, *, brokers: Sequence[BrokerId], is_unclean: bool) -> None:
    """Forget replicas, or the whole set if none is named; its epochs stay."""
    from rollcall_ha.cli import decisions

    with context.client(order.form) as asking:
        key = context.set_key(asking, name)
        whom = "broker " + ", ".join(map(str, brokers)) if brokers else "every replica"
        if order.is_dry_run:
            found = asking.preview_clean(key, broker_ids=brokers, is_unclean=is_unclean)
            print_report(decisions.clean_preview_report(found), order.form)
            return
        confirm(f"Forget {whom} of {key}?", order)
        answer = asking.clean(
            key, broker_ids=brokers, is_unclean=is_unclean, reason=order.reason, request_id=order.request_id
        )
        line = f"OK  forgot {whom} of {key}; its epochs stay"
        print_report(Report(document=answer, verdict=line, mood=Mood.GOOD), order.form)


def raise_level(order: OperatorOptions, *, level: int | None, assume_upgraded: bool) -> None:
    """Raise the feature level of the fleet."""
    with context.client(order.form) as asking:
        wanted = "that of the leader's program" if level is None else str(level)
        confirm(f"Raise the feature level to {wanted}? An older controller can not join any more.", order)
        answer = asking.raise_level(
            level, assume_upgraded=assume_upgraded, reason=order.reason, request_id=order.request_id
        )
        line = "OK  the feature level is raised; see it with: rollcall controllers"
        print_report(Report(document=answer, verdict=line, mood=Mood.GOOD), order.form)


def give(
    asking: Client,
    order: OperatorOptions,
    path: str,
    body: dict[str, Any],
    *,
    would: str,
    done: str,
    hints: Callable[[], tuple[str, ...]] = tuple,
) -> None:
    """
    Give an order that is answered by "done", or with ``--dry-run`` say what it ``would`` do. Raises ``ClientError``.

    ``hints``: what to do next, asked for when it is done.
    """
    if order.is_dry_run:
        found = asking.preview(path, body)
        verdict = would if found.events else "Would change nothing."
        print_report(Report(document=found, verdict=verdict, read=read_line(found.freshness)), order.form)
        return
    answer = asking.order(path, body, reason=order.reason, request_id=order.request_id)
    print_report(Report(document=answer, verdict=f"OK  {done}", mood=Mood.GOOD, parts=hints()), order.form)


def may_ask() -> bool:
    """Whether a person sits at the terminal; a prompt in a script would hang it for ever."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, order: OperatorOptions) -> None:
    """Ask, unless ``--yes`` was said. Raises ``typer.CommandExit``: declined (1), or there is nobody to ask (2)."""
    if order.is_confirmed:
        return
    if not may_ask():
        raise context.fail(
            f"rollcall: needs --yes, since there is no terminal to ask at: {question}", CommandExit.WRONG_USE
        )
    if not typer.confirm(question, err=True):
        raise context.fail("Nothing was changed.", CommandExit.REFUSED)
