"""
The commands ``rollcall topics`` and ``rollcall groups``: what consumers read, how far they are, orders about both.

Here: arguments, reports, exit codes. Not here: who is asked (``api.rest.masters``), messages (``messages``).

Rule 1: a set that did not answer is named on standard error; if none did, the command ends with 4.
Rule 2: of an order to several sets, the worst outcome is the exit code: 5 unknown, 4 not reached, 1 refused or nowhere.
Rule 3: what takes offsets away, or moves them, needs ``--yes`` or an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from rollcall_ha.cli import context, output
from rollcall_ha.cli.groups import Verbs
from rollcall_ha.cli.options import OperatorOptions, OutputOption, WatchOption, takes, takes_order
from rollcall_ha.cli.orders import confirm, is_looked_at, may_ask
from rollcall_ha.cli.output import CommandExit, Format, Mood, Report, Table, complain, print_report, wrong_use
from rollcall_ha.cli.reads import show
from rollcall_ha.controller.contract import consuming as told
from rollcall_ha.controller.contract.consuming import Outcome, Permission
from rollcall_ha.controller.contract.orders import quoted
from rollcall_ha.controller.contract.values import Frozen

if TYPE_CHECKING:
    from rollcall_ha.client.client import Client

topics = Verbs(no_args_is_help=True, rich_markup_mode=None)
groups = Verbs(no_args_is_help=True, rich_markup_mode=None)
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As list shows it.")]
FilterOption = Annotated[str, typer.Option("--filter", metavar="PART", help="Only names that contain this.")]
SetsOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="SET", help="Only in this set; repeat it. Without: in all.")
]
_BAD = {
    Outcome.UNKNOWN: CommandExit.OUTCOME_UNKNOWN,
    Outcome.NOT_REACHED: CommandExit.UNREACHABLE,
    Outcome.REFUSED: CommandExit.REFUSED,
}
"""The worst first (rule 2)."""
_TOPICS = "TOPIC=topic SET=set_key >QUEUES=read_queues PERMISSION=permission"
_GROUPS = "GROUP=group SET=set_key >MEMBERS=members >TOPICS=topics >LAG=lag >STUCK=stuck_queues"
_ENDS = "SET=set_key >QUEUE=queue_id >MIN=min_offset >MAX=max_offset"
_MEMBERS = "MEMBER=client_id SET=set_key ADDRESS=address >QUEUES=queues >LAG=lag >STUCK=stuck_queues"
_SETTINGS = "SET=set_key >RETRIES=retries_max CONSUMES=may_consume BROADCASTS=may_broadcast ORDERED=is_ordered"
_QUEUES = f"TOPIC=topic {_ENDS} >OFFSET=offset >LAG=lag >STILL=still_ms STUCK=is_stuck HOLDER=holder"


# --- reads -----------------------------------------------------------------------------------------------------------


@topics.command("list")
def list_topics(
    form: OutputOption = Format.TABLE,
    part: FilterOption = "",
    is_all: Annotated[bool, typer.Option("--all", help="The brokers' own, too.")] = False,
) -> None:
    """Topics of each set: queues and permission."""

    def fetch(asking: Client) -> Report:
        page = asking.consuming(told.TopicPage, "topics", name=part)
        page = msgspec.structs.replace(page, topics=tuple(one for one in page.topics if is_all or not one.is_own))
        names = tuple(one.topic for one in page.topics)
        return _report(page, f"{len(set(names))} topics", names, _table(_TOPICS, page.topics))

    show(fetch, form, None)


@topics.command("show")
def show_topic(name: NameArgument, form: OutputOption = Format.TABLE, watch: WatchOption = None) -> None:
    """One topic: its queues in each set, and who reads it."""

    def fetch(asking: Client) -> Report:
        found = asking.consuming(told.TopicAnswer, f"topics/{quoted(name)}")
        kept = sum(one.max_offset - one.min_offset for one in found.queues)
        verdict = f"{name}: {len(found.queues)} queues in {len(found.topics)} sets, {output.number(kept)} messages"
        parts = (_table(_TOPICS, found.topics), _table(_ENDS, found.queues), _table(_GROUPS, found.groups))
        return _report(found, verdict, (name,), *parts)

    show(fetch, form, watch)


@groups.command("list")
def list_groups(form: OutputOption = Format.TABLE, part: FilterOption = "", watch: WatchOption = None) -> None:
    """Groups of each set, the stuck and the late ones first."""

    def fetch(asking: Client) -> Report:
        page = asking.consuming(told.GroupPage, "groups", name=part)
        lines = sorted(page.groups, key=lambda one: (-one.stuck_queues, -one.lag, one.group, one.set_key))
        names = tuple(one.group for one in lines)
        stuck = dict.fromkeys(one.group for one in lines if one.stuck_queues)
        verdict = f"{len(set(names))} groups"
        return _report(page, verdict, names, _table(_GROUPS, lines), stuck=", ".join(list(stuck)[:5]))

    show(fetch, form, watch)


@groups.command("show")
def show_group(
    name: NameArgument,
    form: OutputOption = Format.TABLE,
    watch: WatchOption = None,
    topic: Annotated[str, typer.Option(help="Only what it reads of this topic.")] = "",
) -> None:
    """One group: members, lag per queue, and who is stuck."""

    def fetch(asking: Client) -> Report:
        found = asking.consuming(told.GroupAnswer, f"groups/{quoted(name)}", topic=topic)
        stuck = dict.fromkeys(one.holder or "nobody" for one in found.queues if one.is_stuck)
        lag = output.number(sum(one.lag for one in found.groups))
        verdict = f"{name}: {lag} messages behind, {len({one.client_id for one in found.members})} members"
        tables = ((_MEMBERS, found.members), (_QUEUES, found.queues), (_SETTINGS, found.settings))
        parts = (_table(columns, rows) for columns, rows in tables)
        return _report(found, verdict, (name,), *parts, stuck=", ".join(list(stuck)[:5]))

    show(fetch, form, watch)


# --- orders ----------------------------------------------------------------------------------------------------------


class TopicOptions(Frozen):
    """What a topic may be told to have."""

    queues: Annotated[int | None, typer.Option(min=1, max=256, help="In each set; 8 if it is new.")] = None
    permission: Annotated[Permission | None, typer.Option(help="What clients may do with it.")] = None
    of_sets: SetsOption = None


@topics.command("create")
@takes_order(yes=False, repeats=False)
@takes("wanted", TopicOptions)
def create_topic(name: NameArgument, *, order: OperatorOptions, wanted: TopicOptions) -> None:
    """Make a topic before its first message. Sets that have it refuse."""
    permission = wanted.permission or Permission.READ_WRITE
    asked = told.CreateTopic(topic=name, queues=wanted.queues or 8, permission=permission)
    _give(asked, order, wanted.of_sets, f"topic {name} is made")


@topics.command("change")
@takes_order(yes=False, repeats=False)
@takes("wanted", TopicOptions)
def change_topic(name: NameArgument, *, order: OperatorOptions, wanted: TopicOptions) -> None:
    """Change a topic's queues or permission. What is not named stays."""
    asked = told.ChangeTopic(topic=name, queues=wanted.queues, permission=wanted.permission)
    _give(asked, order, wanted.of_sets, f"topic {name} is changed")


@topics.command("delete")
@takes_order(repeats=False)
def delete_topic(name: NameArgument, *, order: OperatorOptions, of_sets: SetsOption = None) -> None:
    """Delete a topic. Its messages stay until their age; an order alone makes it again."""
    _give(told.DeleteTopic(topic=name), order, of_sets, f"topic {name} is deleted", f"Delete topic {name}?")


class GroupOptions(Frozen):
    """The settings of a group that an order says."""

    retries: Annotated[
        int | None, typer.Option(min=0, max=2**31 - 1, help="Refused once more, a message is a dead letter.")
    ] = None
    consume: Annotated[bool | None, typer.Option("--consume/--no-consume", help="Whether it gets messages.")] = None
    broadcast: Annotated[
        bool | None, typer.Option("--broadcast/--no-broadcast", help="Whether each member may read all.")
    ] = None
    ordered: Annotated[bool | None, typer.Option("--ordered/--no-ordered", help="Kept for RocketMQ's clients.")] = None
    of_sets: SetsOption = None

    def to(self, kind: type[told.ChangeGroup], group: str) -> told.ChangeGroup:
        """The order that asks for them."""
        return kind(
            group=group,
            retries_max=self.retries,
            may_consume=self.consume,
            may_broadcast=self.broadcast,
            is_ordered=self.ordered,
        )


@groups.command("create")
@takes_order(yes=False, repeats=False)
@takes("wanted", GroupOptions)
def create_group(name: NameArgument, *, order: OperatorOptions, wanted: GroupOptions) -> None:
    """Make a group before its first member. Sets that have it refuse."""
    _give(wanted.to(told.CreateGroup, name), order, wanted.of_sets, f"group {name} is made")


@groups.command("change")
@takes_order(yes=False, repeats=False)
@takes("wanted", GroupOptions)
def change_group(name: NameArgument, *, order: OperatorOptions, wanted: GroupOptions) -> None:
    """Change a group's settings. Those that are not named stay."""
    _give(wanted.to(told.ChangeGroup, name), order, wanted.of_sets, f"group {name} is changed")


@groups.command("reset")
@takes_order(repeats=False)
def reset_group(
    name: NameArgument,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Its offsets there move; others stay.")],
    *,
    order: OperatorOptions,
    to: Annotated[str, typer.Option(metavar="first|last|TIME", help="Where it goes on; TIME in ISO 8601.")],
    of_sets: SetsOption = None,
) -> None:
    """Let a group go on at a time in a topic. It may have members."""
    from rollcall_ha.cli.messaging import decode_start

    with wrong_use(ValueError):
        start = decode_start(to, "--to")
    to_ms = {"first": 0, "last": -1}[start] if isinstance(start, str) else start
    asked, where = told.ResetGroup(group=name, topic=topic, to_ms=to_ms), f"go on at {to} in {topic}"
    _give(asked, order, of_sets, f"{name} is to {where}", f"Let {name} {where}?")


@groups.command("delete")
@takes_order(repeats=False)
def delete_group(
    name: NameArgument,
    *,
    order: OperatorOptions,
    keep_offsets: Annotated[bool, typer.Option("--keep-offsets", help="It goes on there if it returns.")] = False,
    of_sets: SetsOption = None,
) -> None:
    """Forget a group: its settings and its offsets."""
    asked = told.DeleteGroup(group=name, keeps_offsets=keep_offsets)
    _give(asked, order, of_sets, f"group {name} is deleted", f"Delete group {name}?")


def _give(
    asked: told.BrokerOrder, order: OperatorOptions, of_sets: Sequence[str] | None, done: str, question: str = ""
) -> None:
    """Raises ``typer.Exit`` unless every set did it (rule 2)."""
    good = "Would do it" if order.is_dry_run else f"OK  {done}"
    with context.client(order.form) as asking:
        keys = tuple(context.set_key(asking, one) for one in of_sets or ())
        asked = msgspec.structs.replace(asked, sets=keys, reason=order.reason)
        if question and not order.is_dry_run:
            if not may_ask():
                confirm(question, order)
            is_looked_at(order, lambda: _outcomes(_every(asking.preview, asked), "Would do it")[0], question)
        answer = _every(asking.preview if order.is_dry_run else asking.order, asked)
        report, code = _outcomes(answer, good)
        print_report(report, order.form)
    if code is not CommandExit.DONE:
        raise typer.Exit(int(code))


def _every(
    ask: Callable[[told.BrokerOrder], told.BrokersAnswer], asked: told.BrokerOrder
) -> tuple[told.SetOutcome, ...]:
    """The outcomes of all sets, so many at a time as one order takes."""
    answer = ask(asked)
    outcomes = answer.outcomes
    while answer.next_set is not None:
        answer = ask(msgspec.structs.replace(asked, from_set=answer.next_set))
        outcomes += answer.outcomes
    return outcomes


def _outcomes(outcomes: tuple[told.SetOutcome, ...], good: str) -> tuple[Report, CommandExit]:
    found = {one.outcome for one in outcomes}
    code = next((code for outcome, code in _BAD.items() if outcome in found), CommandExit.DONE)
    if found <= {Outcome.ABSENT}:
        code = CommandExit.REFUSED
    verdict, mood = (good, Mood.GOOD) if code is CommandExit.DONE else ("NOT DONE  in every set", Mood.BAD)
    table = _table("SET=set_key OUTCOME=outcome REASON?=reason", outcomes)
    return Report(document=outcomes, verdict=verdict, mood=mood, parts=(table,)), code


# --- what all share --------------------------------------------------------------------------------------------------


def _report(found: told.Joined, verdict: str, names: tuple[str, ...], *parts: Table, stuck: str = "") -> Report:
    """``stuck``: who is. Raises ``typer.Exit`` (rule 1)."""
    for one in found.read:
        if one.trouble or one.left_off:
            complain(f"rollcall: {one.set_key}: {one.trouble or f'{one.left_off} rows are left off; name a topic'}")
    if found.read and all(one.trouble for one in found.read):
        raise typer.Exit(int(CommandExit.UNREACHABLE))
    mood = Mood.WARNING if stuck else Mood.PLAIN
    verdict = f"STUCK  {verdict}; stuck: {stuck}" if stuck else verdict
    return Report(
        document=found, verdict=verdict, mood=mood, parts=tuple(part for part in parts if part.rows), names=names
    )


def _table(columns: str, rows: Sequence[msgspec.Struct]) -> Table:
    """``>LAG=lag`` is a column of the field ``lag``, right-aligned."""
    titles, fields = zip(*(one.split("=") for one in columns.split()), strict=True)
    cells = tuple(tuple(_cell(field, getattr(row, field)) for field in fields) for row in rows)
    return Table(columns=output.columns(*titles), rows=cells)


def _cell(field: str, value: object) -> str:
    if value is None or value == "":
        return output.NOT_APPLICABLE
    if isinstance(value, bool):
        return output.yes_no(value)
    if isinstance(value, int):
        return output.age_ms(value) if field == "still_ms" else output.number(value)
    return str(value)
