"""The commands ``rollcall config``: names, options, help. What they do is in ``settings``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from rollcall_ha.api.cli.output import Format
from rollcall_ha.controller.contract.ids import RequestId

if TYPE_CHECKING:
    from rollcall_ha.api.cli.orders import OperatorOptions

app = typer.Typer(
    help="Settings of the fleet while it runs: durations and limits.", rich_markup_mode=None, no_args_is_help=True
)

OutputOption = Annotated[Format, typer.Option("-o", "--output", help="How to print the answer.")]
ReasonOption = Annotated[str, typer.Option(help="Goes into the record.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Say what would happen; change nothing.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
RequestIdOption = Annotated[
    str | None, typer.Option(help="Repeat a request whose outcome is unknown; it never executes twice.")
]


@app.command("show")
def config_show(output: OutputOption = Format.TABLE) -> None:
    """Every key with its value in force, and which nodes work by it."""
    from rollcall_ha.api.cli import settings

    settings.show(output)


@app.command("diff")
def config_diff(
    before: Annotated[int, typer.Argument(metavar="[FROM]", help="A version; 0: the leader's fleet file.")] = 0,
    after: Annotated[int | None, typer.Argument(metavar="[TO]", help="A version; by default the one in force.")] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the keys in which two versions differ."""
    from rollcall_ha.api.cli import settings

    settings.diff(before, after, output)


@app.command("history")
def config_history(output: OutputOption = Format.TABLE) -> None:
    """Each version that is kept: what it changed, whose word it was, when."""
    from rollcall_ha.api.cli import settings

    settings.history(output)


@app.command("apply")
def config_apply(
    values: Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="As in config show.")] = None,
    *,
    preset: Annotated[str, typer.Option(help="Its durations first: fast, normal or safe.")] = "",
    version: Annotated[int | None, typer.Option(help="Begin with the values of this version: go back.")] = None,
    expect_version: Annotated[int | None, typer.Option(help="Refuse unless this version is in force.")] = None,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    request_id: RequestIdOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Change settings, judged as a whole; every node works by them within two seconds."""
    from rollcall_ha.api.cli import settings

    order = settings.order_of(values or [], preset=preset, version=version, expected_version=expect_version)
    settings.apply(order, _options(output, reason, request_id, is_dry_run=dry_run, is_confirmed=yes))


@app.command("undo")
def config_undo(
    *,
    reason: ReasonOption = "",
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    request_id: RequestIdOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Go back to the values before the newest change; that is a version, too."""
    from rollcall_ha.api.cli import settings

    settings.undo(_options(output, reason, request_id, is_dry_run=dry_run, is_confirmed=yes))


def _options(
    output: Format, reason: str, request_id: str | None, *, is_dry_run: bool, is_confirmed: bool
) -> OperatorOptions:
    from rollcall_ha.api.cli import orders

    identity = None if request_id is None else RequestId(request_id)
    return orders.OperatorOptions(
        form=output, reason=reason, is_dry_run=is_dry_run, is_confirmed=is_confirmed, request_id=identity
    )
