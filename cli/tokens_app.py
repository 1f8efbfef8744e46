"""The commands ``rollcall tokens``: names, options, help. What they do is in ``tokens``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rollcall_ha.cli.options import OperatorOptions, OutputOption, takes_order
from rollcall_ha.cli.output import Format
from rollcall_ha.controller.contract.principals import Role

app = typer.Typer(help="Tokens of people and programs for REST.", rich_markup_mode=None, no_args_is_help=True)


@app.command("issue")
def tokens_issue(
    *,
    role: Annotated[Role, typer.Option(help="What its owner may do.")],
    name: Annotated[str, typer.Option(help="Whose it is, for the record; by default the role.")] = "",
    of_set: Annotated[str, typer.Option("--set", help="Of role broker: the set that it may speak for.")] = "",
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long it counts.")] = 30,
    out: Annotated[Path | None, typer.Option("--out", help="A new file for it, that you alone can read.")] = None,
    is_shown: Annotated[bool, typer.Option("--show", help="Print it instead, once.")] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Draw a token of 256 bits and let it count; the controllers keep its digest only."""
    if (out is None) is not is_shown:
        raise typer.BadParameter("say where it goes: --out FILE, or --show")
    from rollcall_ha.cli import tokens

    tokens.issue(tokens.Wanted(role=role, name=name or role, set_name=of_set, days=days, file=out), output)


@app.command("list")
def tokens_list(output: OutputOption = Format.TABLE) -> None:
    """Every token that is kept: whose, which role, until when."""
    from rollcall_ha.cli import tokens

    tokens.show(output)


@app.command("revoke")
@takes_order(dry_run="")
def tokens_revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As rollcall tokens list shows it.")],
    *,
    order: OperatorOptions,
) -> None:
    """Take a token back, on every controller, from its entry on."""
    from rollcall_ha.cli import tokens

    tokens.revoke(token_id, order)
