"""
The commands ``rollcall config``: show, diff, history, apply, set, undo.

Here: reading what was typed, asking, how answers look. Not here: keys, ranges and relations
(``controller.contract.settings``), what is refused (``controller.core.settings``).

Rule: every change names the version that was looked at (compare-and-set), also where nobody typed one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from rollcall_ha.cli import context, output, reads
from rollcall_ha.cli.groups import Verbs
from rollcall_ha.cli.options import OperatorOptions, OutputOption, SetArgument, takes_order
from rollcall_ha.cli.orders import give, looked_at
from rollcall_ha.cli.output import CommandExit, Format, Mood, Report, Table, fail, print_report
from rollcall_ha.cli.tables import read_line
from rollcall_ha.controller.contract.commands import ConfigureSet
from rollcall_ha.controller.contract.events import SettingsApplied
from rollcall_ha.controller.contract.orders import ChangeSettings
from rollcall_ha.controller.contract.settings import KEYS, SettingChange, Settings, changes
from rollcall_ha.controller.contract.timing import Preset
from rollcall_ha.epoch.codec import NUMBER_MAX

if TYPE_CHECKING:
    from rollcall_ha.client.client import Client
    from rollcall_ha.controller.contract.views import OrderPreview, SettingsAnswer

app = Verbs(no_args_is_help=True, rich_markup_mode=None)
_CHANGES = output.columns("KEY", ">BEFORE", ">AFTER", "UNIT", "MEANING")


@app.command("show")
def show(form: OutputOption = Format.TABLE) -> None:
    """Every key with its value, and which nodes work by it."""
    with context.client(form) as asking:
        answer = asking.settings()
        rows = reads.controller_rows(asking, asking.survey())
        told = [row.status.settings_version for row in rows if row.status is not None]
        print_report(show_report(answer, controllers=len(rows), controllers_told=told.count(answer.version)), form)


def show_report(answer: SettingsAnswer, *, controllers: int, controllers_told: int) -> Report:
    """One line per key."""
    has_file = answer.version > 0
    rows = tuple(
        (
            name,
            str(answer.settings.value(name)),
            key.unit,
            str(answer.file.value(name)) if has_file and _differ(answer, name) else "",
            key.meaning,
            key.rocketmq,
        )
        for name, key in KEYS.items()
    )
    whose = f"version {answer.version}" if has_file else "the fleet file is in force"
    by = f", applied by {answer.history[-1].applied_by}" if answer.history else ""
    lines = [_worst_case(answer.worst_case_rto_ms)]
    if has_file:
        told = answer.brokers - len(answer.brokers_behind)
        lines.append(
            f"Taken by {controllers_told} of {controllers} controllers and {told} of {answer.brokers} brokers."
        )
    lines += [f"Not taken yet: {name}." for name in answer.brokers_behind]
    if has_file and any(row[3] for row in rows):
        lines.append("The column FILE is what the leader's fleet file says; it is not in force.")
    titles = output.columns("KEY", ">VALUE", "UNIT", ">FILE?", "MEANING", "ROCKETMQ")
    table = Table(columns=titles, rows=rows, leaving=("ROCKETMQ",), cut="MEANING")
    return Report(
        document=answer,
        verdict=f"OK  {whose}{by}",
        mood=Mood.GOOD,
        read=read_line(answer.freshness),
        parts=(table, *lines),
        names=tuple(KEYS),
    )


def _differ(answer: SettingsAnswer, name: str) -> bool:
    return answer.settings.value(name) != answer.file.value(name)


def _worst_case(by_phase: dict[str, int]) -> str:
    parts = ", ".join(f"{phase} {duration_ms}" for phase, duration_ms in by_phase.items())
    return f"Worst case of a silent master: {sum(by_phase.values())} ms ({parts})."


@app.command()
def diff(
    before: Annotated[
        int, typer.Argument(min=0, max=NUMBER_MAX, metavar="[FROM]", help="A version; 0: the leader's fleet file.")
    ] = 0,
    after: Annotated[
        int | None,
        typer.Argument(min=0, max=NUMBER_MAX, metavar="[TO]", help="A version; by default the one in force."),
    ] = None,
    form: OutputOption = Format.TABLE,
) -> None:
    """Show the keys in which two versions differ."""
    with context.client(form) as asking:
        answer = asking.settings()
        last = answer.version if after is None else after
        found = changes(_values_of(answer, before), _values_of(answer, last))
        verdict = f"{_name(before)} and {_name(last)} " + (f"differ in {len(found)} keys" if found else "are the same")
        parts = (_table_of(found),) if found else ()
        print_report(Report(document=found, verdict=verdict, read=read_line(answer.freshness), parts=parts), form)


def _values_of(answer: SettingsAnswer, version: int) -> Settings:
    if version == 0:
        return answer.file
    for applied in answer.history:
        if applied.version == version:
            return applied.settings
    kept = f"{answer.history[0].version} to {answer.history[-1].version}" if answer.history else "none"
    raise fail(f"rollcall: version {version} is not kept; kept are: {kept}", CommandExit.REFUSED)


def _name(version: int) -> str:
    return f"version {version}" if version else "the fleet file"


def _table_of(found: Sequence[SettingChange]) -> Table:
    return Table(
        columns=_CHANGES,
        rows=tuple(
            (one.key, str(one.before), str(one.after), KEYS[one.key].unit, KEYS[one.key].meaning) for one in found
        ),
    )


@app.command()
def history(form: OutputOption = Format.TABLE) -> None:
    """Each version that is kept: what changed, by whom, when."""
    with context.client(form) as asking:
        print_report(history_report(asking.settings()), form)


def history_report(answer: SettingsAnswer) -> Report:
    """One line per version, the newest first."""
    rows = tuple(
        (
            str(applied.version),
            output.utc(applied.applied_at_ms),
            applied.applied_by,
            str(applied.worst_case_rto_ms),
            ", ".join(map(str, applied.changed)) or "-",
            applied.reason,
        )
        for applied in reversed(answer.history)
    )
    columns = output.columns(">VERSION", "APPLIED", "BY", ">WORST CASE MS", "CHANGED", "REASON?")
    verdict = f"OK  version {answer.version} is in force" if rows else "OK  nothing was changed yet"
    return Report(
        document=answer.history,
        verdict=verdict,
        mood=Mood.GOOD,
        read=read_line(answer.freshness),
        parts=(Table(columns=columns, rows=rows, leaving=("WORST CASE MS", "BY")),) if rows else (),
        names=tuple(row[0] for row in rows),
    )


def _pair(text: str) -> tuple[str, int]:
    name, _, value = text.partition("=")
    try:
        return name.strip(), int(value)
    except ValueError:
        told = f"rollcall: {text!r} is not KEY=VALUE with a whole number, such as heartbeat_timeout_ms=2000"
        raise fail(told, CommandExit.WRONG_USE) from None


@app.command()
@takes_order()
def apply(
    values: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="As in config show.")] = None,
    *,
    order: OperatorOptions,
    preset: Annotated[Preset | None, typer.Option(help="Its durations first.")] = None,
    version: Annotated[
        int | None, typer.Option(min=0, max=NUMBER_MAX, help="Begin with the values of this version: go back.")
    ] = None,
    expect_version: Annotated[
        int | None, typer.Option(min=0, max=NUMBER_MAX, help="Refuse unless this version is in force.")
    ] = None,
) -> None:
    """Change settings; they are judged as a whole. Every node works by them within two seconds."""
    typed = dict(map(_pair, values or []))
    if not typed and not preset and version is None:
        raise fail("rollcall: name what to change: KEY=VALUE, --preset or --version", CommandExit.WRONG_USE)
    with context.client(order.form) as asking:
        # The change is one of what was looked at, and of nothing else (rule).
        seen = asking.settings().version if expect_version is None else expect_version
        _apply(asking, order, values=typed, preset=preset, version=version, expected_version=seen)


@app.command("set")
@takes_order()
def configure(
    name: SetArgument,
    *,
    order: OperatorOptions,
    expected_replicas: Annotated[
        int | None, typer.Option(min=1, max=NUMBER_MAX, help="Replicas that the set is to have.")
    ] = None,
    min_in_sync: Annotated[
        int | None,
        typer.Option(min=0, max=NUMBER_MAX, help="So many must hold a message; 0: half of the replicas, rounded up."),
    ] = None,
) -> None:
    """Change how many replicas a set expects, or acks need. Its master goes by them at once."""
    if expected_replicas is None and min_in_sync is None:
        told = "rollcall: name what to change: --expected-replicas, --min-in-sync, or both"
        raise fail(told, CommandExit.WRONG_USE)
    with context.client(order.form) as asking:
        key = context.set_key(asking, name)
        wanted = {"expected_replicas": expected_replicas, "min_in_sync": min_in_sync}
        words = ", ".join(f"{name} {value}" for name, value in wanted.items() if value is not None)
        asked = ConfigureSet(
            set_key=key, expected_replicas=expected_replicas, min_in_sync=min_in_sync, reason=order.reason
        )
        give(asking, order, asked, would=f"Would set {words} of {key}.", done=f"{words} of {key}")


@app.command()
@takes_order()
def undo(*, order: OperatorOptions) -> None:
    """Go back to the values before the newest change. That is a version, too."""
    with context.client(order.form) as asking:
        kept = asking.settings().history
        if len(kept) < 2:
            raise fail("rollcall: nothing was changed yet: there is nothing to undo", CommandExit.REFUSED)
        _apply(asking, order, version=kept[-2].version, expected_version=kept[-1].version)


def _apply(
    asking: Client,
    order: OperatorOptions,
    *,
    values: dict[str, int] | None = None,
    preset: str | None = None,
    version: int | None,
    expected_version: int,
) -> None:
    wanted = ChangeSettings(
        values=values or {}, preset=preset, version=version, expected_version=expected_version, reason=order.reason
    )
    if looked_at(asking, order, wanted, preview_report, "Apply?") is None:
        return
    asking.order(wanted, request_id=order.request_id)
    answer = asking.settings()
    line = f"OK  version {answer.version} is in force; see who has taken it with: rollcall config show"
    print_report(
        Report(document=answer, verdict=line, mood=Mood.GOOD, parts=(_worst_case(answer.worst_case_rto_ms),)),
        order.form,
    )


def preview_report(found: OrderPreview) -> Report:
    """What an order would change, and the worst outage that it would allow."""
    applied = [event for event in found.events if isinstance(event, SettingsApplied)]
    if not applied or not applied[-1].changed:
        verdict = "Would put the leader's file on record." if applied else "Would change nothing."
        return Report(document=found, verdict=verdict, read=read_line(found.freshness))
    newest = applied[-1]
    return Report(
        document=found,
        verdict=f"Would apply version {newest.version}.",
        read=read_line(found.freshness),
        parts=(_table_of(newest.changed), f"Worst case of a silent master: {newest.worst_case_rto_ms} ms."),
    )
