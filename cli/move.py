"""
Moving sets from RocketMQ's controllers to ours, and back: ``import rocketmq`` and ``export rocketmq``.

Here: reading both sides, asking, printing. Not here: the plan of a move (``api.rocketmq.moving.plan``), the procedure
around it (docs/moving-from-rocketmq.md).

Rule 1: both sides are read before anything is changed; ``--dry-run`` ends there.
Rule 2: sets are independent: a set that is refused does not keep the others. The exit code is 1 if any was refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rollcall_ha.cli import context
from rollcall_ha.cli.context import CommandExit
from rollcall_ha.cli.options import OperatorOptions
from rollcall_ha.cli.orders import confirm
from rollcall_ha.cli.output import Mood, Report, Table, columns, id_set, number, print_report

if TYPE_CHECKING:
    from rollcall_ha.api.rocketmq.moving.plan import ExportLine, ImportLine
    from rollcall_ha.client.client import Client
    from rollcall_ha.controller.contract.ids import SetKey
    from rollcall_ha.controller.contract.replies import SetView


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """RocketMQ's side of the move."""

    controllers: str
    """host:port;host:port of RocketMQ's controllers."""
    name_servers: str = ""
    sets: tuple[str, ...] = ()
    """broker-a or cluster/broker-a; empty: all that the name servers (import) or we (export) know."""


def import_rocketmq(elsewhere: Elsewhere, order: OperatorOptions) -> None:
    """Take sets of RocketMQ's controllers over with their ids and epochs, or show the plan."""
    from rollcall_ha.api.rocketmq.moving.plan import plan_import
    from rollcall_ha.api.rocketmq.moving.reading import Controllers, ReadingError, named, names_from, split_addresses

    if not elsewhere.sets and not elsewhere.name_servers:
        raise context.fail(
            "rollcall: RocketMQ's controllers do not list their sets: name them with --set, or name servers with "
            "--namesrv",
            CommandExit.WRONG_USE,
        )
    try:
        names = names_from(split_addresses(elsewhere.name_servers)) if elsewhere.name_servers else {}
        wanted = named(elsewhere.sets)
        clusters = {name: cluster or names.get(name, "") for name, cluster in wanted.items()} or names
        with Controllers.connect(split_addresses(elsewhere.controllers)) as controllers:
            found = controllers.sets(clusters)
    except ReadingError as error:
        raise context.fail(f"UNREACHABLE  {error}", CommandExit.UNREACHABLE) from None
    missing = sorted(wanted.keys() - found.keys())
    if missing:
        raise context.fail(f"rollcall: those controllers know no set {', '.join(missing)}", CommandExit.WRONG_USE)
    with context.client(order.form) as asking:
        lines = plan_import(tuple(found.values()), _views(asking), reason=order.reason)
        send = asking.preview_import if order.is_dry_run else asking.import_set
        for line in lines:
            if line.order is not None:
                send(line.order)
        print_report(_import_report(lines, is_dry_run=order.is_dry_run), order.form)
    _end(any(line.order is None for line in lines))


def export_rocketmq(elsewhere: Elsewhere, order: OperatorOptions, *, raises_max: int) -> None:
    """Make empty controllers of RocketMQ ready to take our sets over, or show the plan."""
    from rollcall_ha.api.rocketmq.moving.plan import plan_export
    from rollcall_ha.api.rocketmq.moving.reading import Controllers, ReadingError, named, split_addresses
    from rollcall_ha.api.rocketmq.moving.replay import replay

    wanted = named(elsewhere.sets)
    with context.client(order.form) as asking:
        views = _views(asking)
    chosen = {key: view for key, view in views.items() if not wanted or wanted.get(key.name) in ("", key.cluster)}
    missing = sorted(wanted.keys() - {key.name for key in chosen})
    if missing or not chosen:
        raise context.fail(f"rollcall: no set {', '.join(missing) or 'at all'} here", CommandExit.WRONG_USE)
    try:
        with Controllers.connect(split_addresses(elsewhere.controllers)) as controllers:
            found = controllers.sets({key.name: key.cluster for key in chosen}, asks_brokers=False)
            lines = tuple(
                plan_export(view, found.get(key.name), raises_max=raises_max) for key, view in sorted(chosen.items())
            )
            if not order.is_dry_run:
                if any(line.steps for line in lines):
                    confirm(f"Write {len(lines)} sets into the controllers at {controllers.leader}?", order)
                for line in lines:
                    if line.steps:
                        replay(controllers, line)
    except ReadingError as error:
        raise context.fail(
            f"UNREACHABLE  {error}\nRun the same command again to go on.", CommandExit.UNREACHABLE
        ) from None
    print_report(_export_report(lines, is_dry_run=order.is_dry_run), order.form)
    _end(any(line.refusal for line in lines))


def _views(asking: Client) -> dict[SetKey, SetView]:
    return {status.view.set_key: status.view for status in asking.sets().sets}


def _end(is_refused: bool) -> None:
    if is_refused:
        raise context.fail("Some sets were refused; see above.", CommandExit.REFUSED)


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
