"""
Commands about tokens: issue, list, revoke.

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
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rollcall_ha.cli import context, output
from rollcall_ha.cli.context import CommandExit
from rollcall_ha.cli.options import OperatorOptions
from rollcall_ha.cli.orders import confirm
from rollcall_ha.cli.output import Format, Mood, Report, Table, print_report
from rollcall_ha.controller.contract.principals import Role
from rollcall_ha.node.certified import utc_text

if TYPE_CHECKING:
    from rollcall_ha.controller.contract.views import TokensAnswer, TokenStatus

TOKEN_BYTES = 32
TOKEN_ID_BYTES = 6
MS_PER_DAY = 86_400_000
_COLUMNS = output.columns("ID", "ROLE", "NAME", "SET?", "STATE", "EXPIRES", "ISSUED", "BY")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the token shall be, and where it goes."""

    role: Role
    name: str
    set_name: str
    days: int
    file: Path | None
    """None: to standard output, once."""


def issue(wanted: Wanted, form: Format) -> None:
    """Draw a token, write it down, and let it count."""
    if (wanted.role is Role.BROKER) != bool(wanted.set_name):
        raise context.fail("rollcall: --set is of role broker, and of no other", CommandExit.WRONG_USE)
    token, token_id = secrets.token_urlsafe(TOKEN_BYTES), secrets.token_hex(TOKEN_ID_BYTES)
    expires_at_ms = int(time.time() * 1000) + wanted.days * MS_PER_DAY
    with context.client(form) as asking:
        key = context.set_key(asking, wanted.set_name) if wanted.set_name else None
        if wanted.file is not None:
            _write_new(wanted.file, token)
        from rollcall_ha.client.errors import ClientError, OutcomeUnknown

        try:
            asking.issue_token(
                token_id=token_id,
                digest=hashlib.sha256(token.encode()).hexdigest(),
                role=wanted.role,
                name=wanted.name,
                key=key,
                expires_at_ms=expires_at_ms,
            )
        except OutcomeUnknown:
            raise  # it may be in force: the file is kept
        except ClientError:
            if wanted.file is not None:
                wanted.file.unlink()
            raise
    until = utc_text(expires_at_ms)
    who = f"{wanted.role}:{wanted.name}" + (f" of {key}" if key is not None else "")
    if wanted.file is None:
        # Alone on standard output, for a pipe into a store of secrets.
        sys.stdout.write(f"{token}\n")
        context.complain(f"OK  token {token_id} of {who} until {until}; it is not shown again")
        return
    line = f"OK  token {token_id} of {who} until {until}: {wanted.file}"
    document = {"tokenId": token_id, "file": str(wanted.file), "expiresAtMs": expires_at_ms}
    use = f"Use it with: ROLLCALL_TOKEN_FILE={wanted.file}"
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
        raise context.fail(told, CommandExit.WRONG_USE) from None


def show(form: Format) -> None:
    """Every token that is kept."""
    with context.client(form) as asking:
        print_report(tokens_report(asking.tokens(), now_ms=int(time.time() * 1000)), form)


def tokens_report(answer: TokensAnswer, *, now_ms: int) -> Report:
    """One line per token."""
    rows = tuple(_row(token, now_ms) for token in answer.tokens)
    in_force = sum(row[4] == "in force" for row in rows)
    verdict = f"OK  {in_force} of {len(rows)} tokens are in force"
    table = Table(columns=_COLUMNS, rows=rows)
    names = tuple(token.token_id for token in answer.tokens)
    return Report(document=answer, verdict=verdict, mood=Mood.GOOD, parts=(table,), names=names)


def _row(token: TokenStatus, now_ms: int) -> tuple[str, ...]:
    state = "in force" if token.expires_at_ms > now_ms else "expired"
    if token.revoked_at_ms is not None:
        state = f"revoked by {token.revoked_by}"
    key = "" if token.set_key is None else str(token.set_key)
    times = (utc_text(token.expires_at_ms), utc_text(token.issued_at_ms))
    return (token.token_id, token.role, token.name, key, state, *times, token.issued_by)


def revoke(token_id: str, order: OperatorOptions) -> None:
    """Take a token back, everywhere."""
    with context.client(order.form) as asking:
        confirm(f"Revoke token {token_id}? Whoever has it is refused from then on.", order)
        answer = asking.revoke_token(token_id, reason=order.reason, request_id=order.request_id)
        line = f"OK  token {token_id} is revoked"
        print_report(Report(document=answer, verdict=line, mood=Mood.GOOD), order.form)
