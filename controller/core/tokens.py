"""
Tokens of people and programs: issued, taken back, recognised.

Here: deciding all three. Not here: drawing a token and showing it once (whoever orders ``IssueToken``), the header that
carries it (``api.rest``), what a role may do (``api.rest.roles``).

Rule 1: the token never reaches the controllers' log, only its SHA-256: 256 random bits cannot be guessed back.
Rule 2: at most ``TOKENS_MAX`` are kept. One that has expired or was revoked makes room: forgotten, it is refused all
the same. Without such room a new one is refused.
Rule 3: when a token expires is judged by the clock of the controller that is shown it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable

from msgspec.structs import replace

from rollcall_ha.controller.contract.codes import RefusalCode
from rollcall_ha.controller.contract.commands import IssueToken, Operation, RevokeToken
from rollcall_ha.controller.contract.events import TokenIssued, TokenRevoked
from rollcall_ha.controller.contract.principals import Principal, ProvedBy, Role
from rollcall_ha.controller.contract.values import made_from
from rollcall_ha.controller.core.decision import Decision, Refusal, done, no_room
from rollcall_ha.controller.core.revocations import TIME_MS_MAX
from rollcall_ha.controller.core.state import TOKENS_MAX, FleetState, IssuedToken

_TOKEN_ID = re.compile(r"[0-9A-Za-z_-]{1,64}", re.ASCII)
_DIGEST = re.compile(r"[0-9a-f]{64}", re.ASCII)


class TokenRefused(ValueError):
    """This token gives no right to anything; the message says why, and never holds the token."""


def digest_of(token: str) -> str:
    """What the controllers keep of a token's text."""
    return hashlib.sha256(token.encode()).hexdigest()


def judge_token(fleet: FleetState, digest: str, *, now_ms: int, address: str = "") -> Principal:
    """
    Whose token has this digest. ``now_ms``: UTC.

    Raises ``TokenRefused``: there is none, or it has expired or was revoked.
    """
    found = _find(fleet.tokens.values(), digest)
    if found is None:
        raise TokenRefused("this token is unknown here: it was never issued, or was forgotten after its end")
    if found.revoked_at_ms is not None:
        raise TokenRefused(f"token {found.token_id} of {found.role}:{found.name} is revoked: {found.revoke_reason}")
    if found.expires_at_ms <= now_ms:
        ago_s = (now_ms - found.expires_at_ms) // 1000
        raise TokenRefused(f"token {found.token_id} of {found.role}:{found.name} expired {ago_s} s ago")
    return Principal(
        name=found.name,
        role=found.role,
        proved_by=ProvedBy.TOKEN,
        serial=found.token_id,
        address=address,
        set_key=found.set_key,
    )


def _find(tokens: Iterable[IssuedToken], digest: str) -> IssuedToken | None:
    found = None
    # All of them, each in the same time: how long it takes tells nothing about how much of a guess was right.
    for token in tokens:
        if hmac.compare_digest(token.digest.encode(), digest.encode()):
            found = token
    return found


def decide_issue_token(fleet: FleetState, operation: Operation, command: IssueToken) -> Decision:
    """Issue a token. The same again changes nothing; other content under a used id is refused."""
    complaint = _complaint(command, operation)
    if complaint:
        raise Refusal(
            RefusalCode.INVALID_ARGUMENT,
            complaint,
            "correct it, or leave the drawing of id and token to the command line",
        )
    event = made_from(command, TokenIssued, token_set=command.set_key)
    before = fleet.tokens.get(command.token_id)
    if before is not None and _is_same(before, command):
        return done()
    # One digest under two ids: revoked by the one, the token would go on by the other.
    if before is not None or _find(fleet.tokens.values(), command.digest) is not None:
        raise Refusal(
            RefusalCode.INVALID_REQUEST,
            f"token id {command.token_id} or its digest is in use",
            "draw a new token",
        )
    if len(fleet.tokens) < TOKENS_MAX:
        return done(event)
    forgotten = tuple(sorted(token.token_id for token in fleet.tokens.values() if _is_over(token, operation)))
    if not forgotten:
        raise no_room("tokens", len(fleet.tokens), TOKENS_MAX, "revoke those that are not used")
    return done(replace(event, forgotten=forgotten))


def decide_revoke_token(fleet: FleetState, command: RevokeToken) -> Decision:
    """Take a token back."""
    token = fleet.tokens.get(command.token_id)
    if token is None:
        raise Refusal(
            RefusalCode.UNKNOWN_TOKEN,
            f"there is no token {command.token_id[:64]!r}",
            "list the tokens, and take the id from there",
            requested=command.token_id[:64],
        )
    if token.revoked_at_ms is not None:
        return done()
    return done(TokenRevoked(token_id=command.token_id, reason=command.reason))


def _complaint(command: IssueToken, operation: Operation) -> str:
    if _TOKEN_ID.fullmatch(command.token_id) is None:
        return f"token id {command.token_id[:64]!r} is not 1 to 64 letters, digits, '-' or '_'"
    if _DIGEST.fullmatch(command.digest) is None:
        return "the digest is not the 64 hex digits of a SHA-256"
    if not command.name:
        return "the token has no name"
    if (command.role is Role.BROKER) != (command.set_key is not None):
        return f"a token of role {command.role} comes {'with' if command.role is Role.BROKER else 'without'} a set"
    if not operation.stamped_at_ms < command.expires_at_ms <= TIME_MS_MAX:
        return f"it would expire at {command.expires_at_ms} ms UTC, it is {operation.stamped_at_ms} now"
    return ""


def _is_same(before: IssuedToken, command: IssueToken) -> bool:
    return all(
        getattr(before, name) == getattr(command, name)
        for name in ("digest", "role", "name", "set_key", "expires_at_ms")
    )


def _is_over(token: IssuedToken, operation: Operation) -> bool:
    return token.revoked_at_ms is not None or token.expires_at_ms <= operation.stamped_at_ms
