"""
Moving sets from RocketMQ's controllers to ours, and back: ``import rocketmq`` and ``export rocketmq``.

Here: reading both sides, asking, printing. Not here: the plan of a move (``api.rocketmq.moving.plan``), the procedure
around it (docs/moving-from-rocketmq.md).

Rule 1: both sides are read before anything is changed; ``--dry-run`` ends there.
Rule 2: sets are independent: a set that is refused does not keep the others. The exit code is 1 if any was refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rollcall_ha.cli import context
from rollcall_ha.cli.groups import Verbs
from rollcall_ha.cli.options import OperatorOptions, takes_order
from rollcall_ha.cli.orders import confirm
from rollcall_ha.cli.output import CommandExit, Mood, Report, Table, columns, fail, id_set, number, print_report
from rollcall_ha.epoch.codec import NUMBER_MAX

if TYPE_CHECKING:
    from rollcall_ha.api.rocketmq.moving.plan import ExportLine, ImportLine
    from rollcall_ha.client.client import Client
    from rollcall_ha.controller.contract.ids import SetKey
    from rollcall_ha.controller.contract.replies import SetView


imports = Verbs(no_args_is_help=True, rich_markup_mode=None)
exports = Verbs(no_args_is_help=True, rich_markup_mode=None)
ElsewhereOption = Annotated[str, typer.Option("--controllers", metavar="HOST:PORT;…", help="RocketMQ's controllers.")]
NamesrvOption = Annotated[str, typer.Option(metavar="HOST:PORT;…", help="Name servers that list the sets.")]
SetsOption = Annotated[list[str] | None, typer.Option("--set", help="Only broker-a or cluster/broker-a; repeat it.")]


@imports.command("rocketmq")
@takes_order(yes=False, repeats=False)
def import_rocketmq(
    *,
    order: OperatorOptions,
    controllers: ElsewhereOption,
    namesrv: NamesrvOption = "",
    only: SetsOption = None,
) -> None:
    """Take running sets over with their ids and epochs. No election before all brokers of a set have come here."""
    from rollcall_ha.api.rocketmq.moving.plan import plan_import
    from rollcall_ha.api.rocketmq.moving.reading import Controllers, ReadingError, named, names_from, split_addresses

    if not only and not namesrv:
        raise fail(
            "rollcall: RocketMQ's controllers do not list their sets: name them with --set, or name servers with "
            "--namesrv",
            CommandExit.WRONG_USE,
        )
    try:
        names = names_from(split_addresses(namesrv)) if namesrv else {}
        wanted = named(only or ())
        clusters = {name: cluster or names.get(name, "") for name, cluster in wanted.items()} or names
        with Controllers.connect(split_addresses(controllers)) as reached:
            found = reached.sets(clusters)
    except ReadingError as error:
        raise fail(f"UNREACHABLE  {error}", CommandExit.UNREACHABLE) from None
    missing = sorted(wanted.keys() - found.keys())
    if missing:
        raise fail(f"rollcall: those controllers know no set {', '.join(missing)}", CommandExit.WRONG_USE)
    with context.client(order.form) as asking:
        lines = plan_import(tuple(found.values()), _views(asking), reason=order.reason)
        send = asking.preview if order.is_dry_run else asking.order
        for line in lines:
            if line.order is not None:
                send(line.order)
        print_report(_import_report(lines, is_dry_run=order.is_dry_run), order.form)
    _end(any(line.order is None for line in lines))


@exports.command("rocketmq")
@takes_order(reason=False, repeats=False)
def export_rocketmq(
    *,
    order: OperatorOptions,
    controllers: ElsewhereOption,
    only: SetsOption = None,
    raises_max: Annotated[
        int, typer.Option(min=1, max=NUMBER_MAX, help="Refuse a set whose epoch is further away.")
    ] = 100_000,
) -> None:
    """Write ids and epochs above ours into empty controllers. Brokers can be restarted with their addresses then."""
    from rollcall_ha.api.rocketmq.moving.plan import plan_export
    from rollcall_ha.api.rocketmq.moving.reading import Controllers, ReadingError, named, split_addresses
    from rollcall_ha.api.rocketmq.moving.replay import replay

    wanted = named(only or ())
    with context.client(order.form) as asking:
        views = _views(asking)
    chosen = {key: view for key, view in views.items() if not wanted or wanted.get(key.name) in ("", key.cluster)}
    missing = sorted(wanted.keys() - {key.name for key in chosen})
    if missing or not chosen:
        raise fail(f"rollcall: no set {', '.join(missing) or 'at all'} here", CommandExit.WRONG_USE)
    try:
        with Controllers.connect(split_addresses(controllers)) as reached:
            found = reached.sets({key.name: key.cluster for key in chosen}, asks_brokers=False)
            lines = tuple(
                plan_export(view, found.get(key.name), raises_max=raises_max) for key, view in sorted(chosen.items())
            )
            if not order.is_dry_run:
                if any(line.steps for line in lines):
                    confirm(f"Write {len(lines)} sets into the controllers at {reached.leader}?", order)
                for line in lines:
                    if line.steps:
                        replay(reached, line)
    except ReadingError as error:
        raise fail(f"UNREACHABLE  {error}\nRun the same command again to go on.", CommandExit.UNREACHABLE) from None
    print_report(_export_report(lines, is_dry_run=order.is_dry_run), order.form)
    _end(any(line.refusal for line in lines))


def _views(asking: Client) -> dict[SetKey, SetView]:
    return {status.view.set_key: status.view for status in asking.sets().sets}


def _end(is_refused: bool) -> None:
    if is_refused:
        raise fail("Some sets were refused; see above.", CommandExit.REFUSED)


# --- how it looks ----------------------------------------------------------------------------------------------------


def _import_report(lines: Sequence[ImportLine], *, is_dry_run: bool) -> Report:
    refused = sum(line.order is None for line in lines)
    done = len(lines) - refused
    word = "WOULD" if is_dry_run else "OK"
    tail = f"; {refused} refused" if refused else ""
    titles = columns("SET", "DO", ">MASTER", ">EPOCH", "IN SYNC", "BROKERS", ">NEXT ID", "NOTE?")
    rows = tuple(
        (
            str(line.set_key),
            line.verb.value,
            number(line.found.master),
            number(line.found.highest_epoch),
            id_set(line.found.sync_state_set),
            id_set([replica.broker_id for replica in line.found.replicas]),
            number(line.found.next_id),
            line.reason,
        )
        for line in lines
    )
    follow = "Next: restart the slaves of each set with our addresses, import again, then restart its master."
    return Report(
        document=tuple(lines),
        verdict=f"{word}  import {done} sets; the first epoch of each here is the next one{tail}",
        mood=Mood.WARNING if refused else Mood.GOOD,
        parts=(Table(columns=titles, rows=rows), follow) if done else (Table(columns=titles, rows=rows),),
        names=tuple(row[0] for row in rows),
    )


def _export_report(lines: Sequence[ExportLine], *, is_dry_run: bool) -> Report:
    refused = sum(bool(line.refusal) for line in lines)
    word = "WOULD" if is_dry_run else "OK"
    tail = f"; {refused} refused" if refused else ""
    titles = columns("SET", ">MASTER", ">EPOCH HERE", ">EPOCH THERE", "STEPS")
    rows = tuple(
        (
            str(line.set_key),
            number(line.master) if line.master is not None else "none",
            number(line.from_epoch),
            number(line.to_epoch),
            line.refusal or _steps(line),
        )
        for line in lines
    )
    return Report(
        document=tuple(lines),
        verdict=f"{word}  export {len(lines) - refused} sets, each in an epoch above ours{tail}",
        mood=Mood.WARNING if refused else Mood.GOOD,
        parts=(Table(columns=titles, rows=rows),),
        names=tuple(row[0] for row in rows),
    )


def _steps(line: ExportLine) -> str:
    kinds = [type(step).__name__ for step in line.steps]
    counted = [f"{kinds.count(kind)} x {kind}" if kinds.count(kind) > 1 else kind for kind in dict.fromkeys(kinds)]
    return ", ".join(counted).lower() or "nothing to do"
