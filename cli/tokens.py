"""
The commands ``rollcall tokens``: issue, list, revoke.

Here: drawing a token, keeping it from everybody but its owner. Not here: what controllers keep of it
(``controller.core.tokens``), how a caller shows it (``client.identity``).

Rule 1: a token is drawn here, and only its digest is sent: a controller, its log and its record never had it.
Rule 2: it goes into a new file that its owner alone reads, before it is issued; on the terminal only when asked.
Written afterwards, a full disk would leave a token in force that nobody has.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollcall_ha.cli import context, output
from rollcall_ha.cli.groups import Verbs
from rollcall_ha.cli.options import OperatorOptions, OutputOption, takes_order
from rollcall_ha.cli.orders import confirm, give
from rollcall_ha.cli.output import CommandExit, Format, Mood, Report, Table, complain, fail, print_report
from rollcall_ha.controller.contract.commands import IssueToken, RevokeToken
from rollcall_ha.controller.contract.principals import Role
from rollcall_ha.node.certified import utc_text

if TYPE_CHECKING:
    from rollcall_ha.controller.contract.views import TokensAnswer, TokenStatus

app = Verbs(no_args_is_help=True, rich_markup_mode=None)
TOKEN_BYTES = 32
TOKEN_ID_BYTES = 6
MS_PER_DAY = 86_400_000
_COLUMNS = output.columns("ID", "ROLE", "NAME", "SET?", "STATE", "EXPIRES", "ISSUED", "BY")


@app.command()
def issue(
    *,
    role: Annotated[Role, typer.Option(help="What its owner may do.")],
    name: Annotated[str, typer.Option(help="Whose it is, for the record; by default the role.")] = "",
    of_set: Annotated[str, typer.Option("--set", help="With role broker: the set that it may speak for.")] = "",
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long it counts.")] = 30,
    out: Annotated[Path | None, typer.Option("--out", help="A new file for it, that you alone can read.")] = None,
    is_shown: Annotated[bool, typer.Option("--show", help="Print it instead, once.")] = False,
    form: OutputOption = Format.TABLE,
) -> None:
    """Draw a token of 256 bits, and let it count. The controllers keep its digest only."""
    if (out is None) is not is_shown:
        raise typer.BadParameter("say where it goes: --out FILE, or --show")
    if (role is Role.BROKER) != bool(of_set):
        raise fail("rollcall: --set belongs to role broker, and to no other", CommandExit.WRONG_USE)
    name = name or role
    token, token_id = secrets.token_urlsafe(TOKEN_BYTES), secrets.token_hex(TOKEN_ID_BYTES)
    expires_at_ms = int(time.time() * 1000) + days * MS_PER_DAY
    with context.client(form) as asking:
        key = context.set_key(asking, of_set) if of_set else None
        if out is not None:
            _write_new(out, token)
        from rollcall_ha.client.errors import ClientError, OutcomeUnknown

        try:
            asking.order(
                IssueToken(
                    token_id=token_id,
                    digest=hashlib.sha256(token.encode()).hexdigest(),
                    role=role,
                    name=name,
                    set_key=key,
                    expires_at_ms=expires_at_ms,
                )
            )
        except OutcomeUnknown:
            raise  # it may be in force: the file is kept
        except ClientError:
            if out is not None:
                out.unlink()
            raise
    until = utc_text(expires_at_ms)
    who = f"{role}:{name}" + (f" of {key}" if key is not None else "")
    if out is None:
        # Alone on standard output, for a pipe into a store of secrets.
        sys.stdout.write(f"{token}\n")
        complain(f"OK  token {token_id} of {who} until {until}; it is not shown again")
        return
    line = f"OK  token {token_id} of {who} until {until}: {out}"
    document = {"tokenId": token_id, "file": str(out), "expiresAtMs": expires_at_ms}
    use = f"Use it with: ROLLCALL_TOKEN_FILE={out}"
    print_report(Report(document=document, verdict=line, mood=Mood.GOOD, parts=(use,)), form)


def _write_new(file: Path, token: str) -> None:
    try:
        # The mode at its making: between a write and a chmod, everybody could read it.
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as made:
            made.write(f"{token}\n")
            made.flush()
            os.fsync(made.fileno())
    except OSError as error:
        told = f"rollcall: {file}: {error.strerror}; name a new file with --out"
        raise fail(told, CommandExit.WRONG_USE) from None


@app.command("list")
def show(form: OutputOption = Format.TABLE) -> None:
    """Every token that is kept: whose, which role, until when."""
    with context.client(form) as asking:
        print_report(tokens_report(asking.tokens(), now_ms=int(time.time() * 1000)), form)


def tokens_report(answer: TokensAnswer, *, now_ms: int) -> Report:
    """One line per token."""
    rows = tuple(_row(token, now_ms) for token in answer.tokens)
    in_force = sum(row[4] == "in force" for row in rows)
    verdict = f"OK  {in_force} of {len(rows)} tokens are in force"
    table = Table(columns=_COLUMNS, rows=rows, leaving=("ISSUED", "BY", "SET"))
    names = tuple(token.token_id for token in answer.tokens)
    return Report(document=answer, verdict=verdict, mood=Mood.GOOD, parts=(table,), names=names)


def _row(token: TokenStatus, now_ms: int) -> tuple[str, ...]:
    state = "in force" if token.expires_at_ms > now_ms else "expired"
    if token.revoked_at_ms is not None:
        state = f"revoked by {token.revoked_by}"
    key = "" if token.set_key is None else str(token.set_key)
    times = (utc_text(token.expires_at_ms), utc_text(token.issued_at_ms))
    return (token.token_id, token.role, token.name, key, state, *times, token.issued_by)


@app.command()
@takes_order(dry_run="")
def revoke(
    token_id: Annotated[str, typer.Argument(metavar="ID", help="As rollcall tokens list shows it.")],
    *,
    order: OperatorOptions,
) -> None:
    """Take a token back, on every controller, from its entry on."""
    with context.client(order.form) as asking:
        confirm(f"Revoke token {token_id}? Whoever has it is refused from then on.", order)
        give(asking, order, RevokeToken(token_id=token_id, reason=order.reason), done=f"token {token_id} is revoked")
